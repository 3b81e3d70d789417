"""Primals with short mantissas, and what is judged beside them.

Where the numbers of a primal fit in a narrower type, code that rounds them to it is exact. All
primals times one factor fill their mantissas, and what holds between them goes on to hold: zeros,
ties, signs, symmetry, which are largest. A gradient that is right at the primals and wrong there
may be right for these primals alone (they have norm 1, or a value was saved elsewhere): then its
error grows with the distance, and a rounding error does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]

NEAR: Final = 0.9784007352901021
"""Less than 1, for domains that end at ±1; at least four units of bfloat16's last place away. A
small integer times this lies between two numbers of each narrow type: none of 1, 3, 5 and 7 within
0.15 units in the last place of one."""
FAR: Final = (0.9402144884612985, 0.8777144884601089, 0.815214488468164)
"""The same, about three, six and nine times as far away."""
GROWS: Final = 0.5
"""An error grows with the distance if it grows at least by this part of that, at each of FAR."""
JUMPED: Final = 2.0**-5
"""A change at NEAR, as a part of the largest value, that may be a jump."""
NAMED: Final = 3
"""Primals that a note names; the others are counted."""
FITS: Final = {"float64": "float32's 24 bits", "float32": "TF32's 11 bits"}


def times(primals: Sequence[Array], factor: float) -> tuple[Array, ...]:
    """Floating primals times a factor, each in its dtype; integer ones as they are."""
    return tuple((p * factor).astype(p.dtype) if p.dtype.kind == "f" else p for p in primals)


def jumps(base: Sequence[Array], near: Sequence[Array], far: Sequence[Array]) -> bool:
    """Whether forward's values jump between the primals and NEAR: these are two functions."""
    for here, close, afar in zip(base, near, far, strict=True):
        if not here.shape == close.shape == afar.shape:
            return True
        change = np.abs(close - here)
        large = change > JUMPED * np.max(np.abs(here), initial=0.0)
        if not np.isfinite(close).all() or np.any(large & (2 * change > np.abs(afar - here))):
            return True
    return False


def stays(near: Finding, far: Finding | None, factor: float) -> bool:
    """Whether both fail, at NEAR and at `factor`, and the error does not grow with the distance."""
    if far is None or not near.verdict is far.verdict is Verdict.FAIL:
        return False
    if not near.worst or not far.worst:
        return False
    close, afar = (max(miss.error for miss in f.worst) for f in (near, far))
    return bool(afar < GROWS * (1.0 - factor) / (1.0 - NEAR) * close)


def unseen(names: Sequence[str], dtype: str) -> str:
    """A note: what a pass does not say of primals `names`, which nothing was judged beside."""
    more = [] if len(names) <= NAMED else [f"{len(names) - NAMED} more"]
    said = " and ".join([*names[:NAMED], *more])
    return (
        f"{said} {'fits' if len(names) == 1 else 'fit'} in {FITS[dtype]} of mantissa: code that "
        "rounds to that would not show here; give random numbers"
    )


def rounds(dtype: str) -> str:
    """What a failure says that shows beside the primals alone."""
    return (
        f"right at the primals given, which fit in {FITS[dtype]} of mantissa, and wrong at "
        f"{NEAR:.4g} times them: is something rounded to a narrower type?"
    )
