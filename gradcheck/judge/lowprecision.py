"""float16 and bfloat16: where a case applies, and whether its errors are those of rounding.

Nothing is differenced in low precision (its best central difference is off by 1e-3). Primals and
cotangents are rounded to the dtype first; the truth is the certified 50-digit gradient there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.dtypes import dtype_limits, dtype_named
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]

Draws = Callable[[], Sequence[Float]]

DROWNED: Final = 256.0
"""Smallest numbers of the dtype that the largest of a tensor must exceed."""
FEW: Final = 16
"""Errors needed before their mean says anything."""
ENOUGH: Final = 64
"""Errors that say something by all leaning to one side."""
NEARLY: Final = 0.97
"""The part of them that all but noise is."""
LEANS: Final = 4.0
"""Times what right values lean by, as their rounding is drawn."""
BIAS: Final = 0.25
"""Of a unit in the last place: truncation is off by half of one on average."""
BEYOND: Final = 0.55
"""Ulp that rounding a good value to nearest never exceeds; a third of what truncation does is."""
ONCE: Final = 1.05
"""Ulp that one rounding or truncation can cost."""
SHARE: Final = 0.2


def rounded(values: Array, dtype: str) -> Array:
    """`values` in float64, as the dtype holds them; integers stay."""
    if values.dtype.kind != "f":
        return values
    with np.errstate(over="ignore"):
        out = np.asarray(values.astype(dtype_named(dtype)).astype(np.float64))
    out.flags.writeable = False
    return out


def lost(before: Sequence[Array], after: Sequence[Array]) -> bool:
    """Whether rounding the primals made a finite number infinite, or another one zero."""
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a.dtype.kind == "f"]
    return any(
        bool(np.any(np.isinf(b) & np.isfinite(a)) or np.any((b == 0) & (a != 0))) for a, b in pairs
    )


def unfit(values: Float, dtype: str) -> bool:
    """Whether the dtype cannot hold some finite value, or all of them drown in its last place."""
    largest = float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))
    if 0 < largest < DROWNED * float(dtype_limits(dtype).smallest_subnormal):
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        typed = values.astype(dtype_named(dtype)).astype(np.float64)
    return bool(np.any(np.isfinite(values) & ~np.isfinite(typed)))


def last_place(values: Float, dtype: str) -> Float:
    """Units in the last place of values that are held in the dtype; 0 where it holds none."""
    with np.errstate(all="ignore"):
        place = np.spacing(np.abs(values).astype(dtype_named(dtype))).astype(np.float64)
    return np.where(np.isfinite(place), place, 0.0)


def nearby(got: Float, want: Float, dtype: str) -> bool:
    """Whether no element is further off than the last place of what it should be."""
    with np.errstate(invalid="ignore"):  # an infinity where one belongs
        return bool(np.all((got == want) | (np.abs(got - want) <= last_place(want, dtype))))


def bias(got: Float, want: Float, dtype: str, drawn: Draws) -> float | None:
    """Mean error away from zero in ulp, where rounding to nearest does not explain it, else None.

    `got`, `want` and each of what is `drawn()`, right values that are rounded at random inside, are
    [q, n]. A mean alone proves nothing: thirds of short numbers are all off to the same side, and
    so are elements that share a factor that was rounded. So many elements must also be off by more
    than half a unit; and the mean is larger than what is drawn shows, or (nearly) all elements
    lean.
    """
    errors = _in_places(got, want, dtype)
    if errors.size < FEW:
        return None
    mean = float(errors.mean())
    side = errors * np.sign(mean)
    if abs(mean) <= BIAS or np.mean(side > BEYOND) <= SHARE:
        return None
    others = [e.mean() for draw in drawn() if (e := _in_places(draw, want, dtype)).size]
    typical = math.sqrt(np.mean(np.square(others))) if others else 0.0
    alone = errors.size >= ENOUGH and np.mean(side > 0) >= NEARLY
    return mean if alone or abs(mean) > LEANS * typical else None


def _in_places(got: Float, want: Float, dtype: str) -> Float:
    """Errors away from zero in ulp, of elements that the dtype does not hold exactly."""
    with np.errstate(all="ignore"):
        near = want.astype(dtype_named(dtype)).astype(np.float64)
        inexact = (near != want) & np.isfinite(got) & np.isfinite(near) & (near != 0)
        off = (got[inexact] - want[inexact]) * np.sign(want[inexact])
        errors = off / last_place(want[inexact], dtype)
    return np.asarray(errors[np.abs(errors) <= ONCE])  # what was lost inside is no last step's


def unbiased(finding: Finding, got: Float, want: Float, dtype: str, drawn: Draws) -> Finding:
    """A pass, unless its errors lean to one side further than rounding to nearest explains."""
    off = bias(got, want, dtype, drawn) if finding.verdict is Verdict.PASS else None
    if off is None:
        return finding
    where = "toward zero: they are truncated" if off < 0 else "away from zero: rounded up"
    reason = (
        f"every element is in its bound, but they lean by {off:.2g} ulp {where}, or all of them "
        "share a factor that was rounded"
    )
    return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)
