"""What every report says of a curve of Taylor remainders."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gradcheck.results.words import clean, number, plural, title

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Taylor

CLEAR: Final = 100.0
"""A Taylor remainder of so many times the noise shows the slope of its curve."""


def curve(found: Taylor) -> str:
    """What a curve of Taylor remainders says of the gradient along one direction."""
    product = number(found.product, 6)
    if not math.isfinite(found.error_bar):
        return f"⟨g, d⟩ is {product}; no steps agree on what is missing from it"
    missing = f"{number(found.intercept)} ± {number(found.error_bar, 2)}"
    intercept = f"⟨g, d⟩ is {product}, and {missing} is missing from it"
    if found.linear:
        return f"{intercept}; every remainder is noise"
    slope = _last_slope(found)
    if slope is None:
        return intercept
    return f"{intercept}; slope {slope:.1f} (3 where the gradient is right, 1 where it is wrong)"


def _last_slope(found: Taylor) -> float | None:
    """The slope at the shortest steps whose remainders stand well above the noise."""
    whole = [abs(2 * h * r) for h, r in zip(found.steps, found.remainders, strict=True)]
    clear = [
        slope
        for slope, rest in zip(found.slopes, whole[1:], strict=True)
        if rest > CLEAR * found.noise and math.isfinite(slope)
    ]
    return clear[-1] if clear else None


def curves(dtype: str, count: int, worst: CaseResult) -> str:
    """What the Taylor curves of one dtype say together."""
    found = worst.finding.taylor
    assert found is not None
    share, bar = number(found.share), number(abs(found.error_bar), 2)
    return (
        f"{plural(count, 'curve')} in {clean(dtype)}; the largest part missing from ⟨g, d⟩ is "
        f"{share}, in {title(worst)} ({number(found.intercept)} ± {bar} missing from "
        f"{number(found.product)})"
    )
