"""What a gradient leaves of forward's change, as a picture: a line of slope 3, or of slope 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report import taylor_words
from gradcheck.report.axis import Axis, Tick, path
from gradcheck.report.vcurve import BOTTOM, HEIGHT, LEFT, LINE, RIGHT, TICKS, TOP, WIDTH, Note
from gradcheck.results import words

if TYPE_CHECKING:
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
        caption=taylor_words.curve(found),
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
