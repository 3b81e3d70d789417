"""Pictures as numbers and names: a curve of Taylor remainders, the stages of a model in a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.finding import Part
from gradcheck.report import heat as heats
from gradcheck.report import kills as matrices
from gradcheck.report import models, remainder, words
from gradcheck.report import vcurve as vcurves
from gradcheck.verdict import Verdict

if TYPE_CHECKING:
    from gradcheck.finding import Taylor
    from gradcheck.record import Run
    from gradcheck.report.models import Blamed

WIDTH: Final = 280
HEIGHT: Final = 160
MARGIN: Final = 34
"""Pixels left of and below the curve, for its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """|r(h)| over h, both logarithmic, in pixels; y grows downwards.

    `error` is the line 2h·|intercept| that a wrong gradient leaves, as two points; None where the
    intercept is within its error bar.
    """

    points: tuple[tuple[float, float], ...]
    error: tuple[tuple[float, float], tuple[float, float]] | None
    steps: tuple[str, str]
    """The shortest and the longest step."""
    remainders: tuple[str, str]
    """The smallest and the largest remainder."""
    width: int = WIDTH
    height: int = HEIGHT
    margin: int = MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """One stage in a row of stages: `mark` says without colour what `tone` says with it."""

    name: str
    tone: str
    mark: str
    says: str


whole = models.whole
telling = models.telling
counted = models.counted
vcurve = vcurves.picture
heat = heats.picture
taylor = remainder.picture
kills = matrices.matrices
KILLS: Final = tuple((kind, *marks) for kind, marks in matrices.MARKS.items())
"""Kind, glyph and tone of each mark of a kill matrix."""


def curve(found: Taylor) -> Curve | None:
    """The picture of `found`; None where fewer than two remainders can be drawn."""
    pairs = [
        (math.log10(h), math.log10(abs(2 * h * r)))
        for h, r in zip(found.steps, found.remainders, strict=True)
        if h > 0 and r and math.isfinite(h) and math.isfinite(r)
    ]
    left, right = _ends([x for x, _ in pairs])
    low, high = _ends([y for _, y in pairs])
    if len(pairs) < 2:
        return None

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) * (WIDTH - MARGIN - 8)
        up = (min(max(y, low), high) - low) / (high - low) * (HEIGHT - MARGIN - 8)
        return round(MARGIN + across, 1), round(HEIGHT - MARGIN - up, 1)

    error = None
    intercept = abs(found.intercept)
    if math.isfinite(intercept) and intercept > abs(found.error_bar):
        # The line is cut where it leaves the picture, at either end.
        shift = math.log10(2 * intercept)
        start, end = max(left, low - shift), min(right, high - shift)
        error = (at(start, start + shift), at(end, end + shift)) if start < end else None
    return Curve(
        points=tuple(at(x, y) for x, y in pairs),
        error=error,
        steps=(words.number(10**left, 1), words.number(10**right, 1)),
        remainders=(words.number(10**low, 1), words.number(10**high, 1)),
    )


def _ends(values: list[float]) -> tuple[float, float]:
    """The smallest and the largest value, at least half a decade apart."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    return low, max(high, low + 0.5)


LIGHTS: Final = {
    "wrong": ("bad", "✗", "gives a wrong gradient for the reference's cotangent"),
    "suspect": ("warn", "?", "may be at fault"),
    "right": ("good", "✓", "gives the right gradient for the reference's cotangent"),
    "unknown": ("calm", "·", "was not judged alone"),
}


def _known(verdict: Verdict) -> str:
    if verdict is Verdict.PASS:
        return "right"
    return "wrong" if verdict.checked else "unknown"


def stages(run: Run, blamed: Blamed) -> list[Light]:
    """The stages of a model in the program's order, and what is known of each.

    Where no stage was judged alone, only the suspects are known by name; the others are counted.
    """
    known: dict[str, str] = {}
    for model in models.models(run):
        if (model.implementation, model.name, model.dialect) == blamed.whose:
            for row in model.block(Part.STAGE).rows:
                known[row.output] = _known(row.verdict)
    for blame in blamed.blames:
        for name in blame.stages:
            if blame.exact:
                known[name] = "wrong"
            elif known.get(name) not in ("wrong", "right"):
                known[name] = "suspect"
    lights = [
        Light(name=words.clean(name), tone=tone, mark=mark, says=says)
        for name, word in known.items()
        for tone, mark, says in [LIGHTS[word]]
    ]
    others = max(blame.of for blame in blamed.blames) - len(lights)
    if others > 0:
        tone, mark, _ = LIGHTS["unknown"]
        says = "were not judged alone, and are not suspected"
        lights.append(Light(name=f"{others} others", tone=tone, mark=mark, says=says))
    return lights
