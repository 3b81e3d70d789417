"""What a gradient leaves of forward's change, as a picture: a line of slope 3, or of slope 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report.axis import Axis, Tick, path
from gradcheck.report.vcurve import BOTTOM, HEIGHT, LEFT, LINE, RIGHT, TICKS, TOP, WIDTH, Note
from gradcheck.results import words
from gradcheck.results.words import clean, number, plural, title

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Finding, Taylor

SIGMAS: Final = 6.0
"""Deviations of noise that r(h) may show: three for each of its two values of forward."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """|r(h)| over h in pixels, y downwards.

    `noise` is the height below which all is noise, `error` the line 2h·|intercept| that a wrong
    gradient leaves, as an SVG path; empty where the intercept is within its error bar.
    """

    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    points: tuple[Point, ...]
    trace: str
    error: str
    noise: float
    notes: tuple[Note, ...]
    label: str
    caption: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    bottom: int = BOTTOM


def picture(finding: Finding) -> Picture | None:
    """The picture of a finding's remainders; None where fewer than two can be drawn."""
    found = finding.taylor
    if found is None:
        return None
    pairs = [
        (h, abs(2 * h * r))
        for h, r in zip(found.steps, found.remainders, strict=True)
        if h > 0 and r and math.isfinite(r)
    ]
    pairs = [(h, left) for h, left in pairs if 0 < left < math.inf]
    if len(pairs) < 2:
        return None
    x = Axis.over((h for h, _ in pairs), LEFT, RIGHT)
    y = Axis.over((left for _, left in pairs), BOTTOM, TOP)
    points = tuple((x.at(h), y.at(left)) for h, left in pairs)
    error, note = _error(found, x, y)
    return Picture(
        across=x.ticks(TICKS),
        up=y.ticks(TICKS),
        points=points,
        trace=path(points),
        error=error,
        noise=y.at(SIGMAS * found.noise),
        notes=note,
        label=f"remainder of {words.subject(finding.name, finding.part)} over the step",
        caption=curve(found),
    )


def _error(found: Taylor, x: Axis, y: Axis) -> tuple[str, tuple[Note, ...]]:
    """The line that the missing part leaves, cut where it leaves the picture, and its name."""
    missing = abs(found.intercept)
    if not (math.isfinite(missing) and missing > abs(found.error_bar)):
        return "", ()
    shift = math.log10(2 * missing)
    low, high = max(x.low, y.low - shift), min(x.high, y.high - shift)
    if not low < high:
        return "", ()
    ends = [(x.at(10.0**d), y.at(10.0 ** (d + shift))) for d in (low, high)]
    line = path(ends)
    middle = (ends[0][0] + ends[1][0]) / 2, (ends[0][1] + ends[1][1]) / 2
    text = f"what a part of {words.number(missing)} leaves: slope 1"
    return line, (Note(x=middle[0] - 8, y=middle[1] - LINE / 2, text=text, anchor="end"),)


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
