"""float16 and bfloat16: where a case applies, and whether its errors are those of rounding.

Nothing is differenced in low precision (its best central difference is off by 1e-3). Primals and
cotangents are rounded to the dtype first; the truth is the certified 50-digit gradient there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.dtypes import dtype_limits, dtype_named
from gradcheck.finding import Finding
from gradcheck.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]

DROWNED: Final = 256.0
"""Smallest numbers of the dtype that the largest of a tensor must exceed."""
ENOUGH: Final = 64
"""Errors needed before their mean says anything."""
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


def bias(got: Float, want: Float, dtype: str) -> float | None:
    """Mean error away from zero in ulp, where rounding to nearest does not explain it, else None.

    `got` and `want` are [q, n]; elements that the dtype holds exactly do not count. A mean alone
    proves nothing: thirds of short numbers are all off to the same side. So many elements must
    also be off by more than half a unit.
    """
    kind = dtype_named(dtype)
    near = want.astype(kind).astype(np.float64)
    inexact = (near != want) & np.isfinite(got) & np.isfinite(near) & (near != 0)
    if inexact.sum() < ENOUGH:
        return None
    place = np.abs(np.spacing(np.abs(want[inexact]).astype(kind)).astype(np.float64))
    errors = (got[inexact] - want[inexact]) * np.sign(want[inexact]) / place
    errors = errors[np.abs(errors) <= ONCE]  # what was lost inside was not lost by the last step
    if errors.size < ENOUGH:
        return None
    mean = float(errors.mean())
    beyond = float(np.mean(errors * np.sign(mean) > BEYOND))
    ok = abs(mean) <= BIAS or beyond <= SHARE
    return None if ok else mean


def unbiased(finding: Finding, got: Float, want: Float, dtype: str) -> Finding:
    """A pass, unless its errors lean to one side further than rounding to nearest explains."""
    off = bias(got, want, dtype) if finding.verdict is Verdict.PASS else None
    if off is None:
        return finding
    where = "toward zero: they are truncated" if off < 0 else "away from zero: rounded up"
    reason = (
        f"every element is in its bound, but they lean by {off:.2g} ulp {where}, or all of them "
        "share a factor that was rounded"
    )
    return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)
