"""The V of a central difference as a picture: truncation to the right, rounding to the left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report.axis import Axis, Tick, path
from gradcheck.results import words

if TYPE_CHECKING:
    from gradcheck.results.finding import Finding, VCurve

WIDTH: Final = 460
HEIGHT: Final = 278
LEFT: Final = 46
RIGHT: Final = 450
TOP: Final = 22
BOTTOM: Final = 236
TICKS: Final = 7
LINE: Final = 14
"""Pixels from one line of text to the next."""
DEPTH: Final = 1e-3
"""How far below the surest step the picture goes: what is less stands at its edge."""
TINY: Final = 1e-30
CLEAR: Final = 3.0
"""A point so many times above its bar is truncation."""
PER_DECADE: Final = 2
FALLS: Final = 30.0
"""How much a difference must gain in a decade of steps for truncation to be seen: h² gains 100."""
ROOM: Final = 104
STEP: Final = 60
"""Pixels of a name of a side, and of a step."""
Step = tuple[float, float, float]
"""A step, the error of its difference, and what rounding explains of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One step: `kind` is "clear" above what rounding explains, "noise" within, "exact" for 0."""

    x: float
    y: float
    kind: str
    step: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A text in the picture; `anchor` is SVG's."""

    x: float
    y: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A horizontal line at `y`, and its text."""

    y: float
    note: Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A V-curve in pixels, y downwards.

    `band` and `trace` are SVG paths: the region that rounding explains, and the errors themselves.
    `off` is the gradient judged, `bound` what it may be off, `best` the surest step.
    """

    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    band: str
    trace: str
    dots: tuple[Dot, ...]
    off: Level | None
    bound: Level | None
    tone: str
    best: Dot | None
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
    """The picture of a finding's curve; None where there is none, or no two of its points."""
    found = finding.curve
    if found is None:
        return None
    steps = [
        (h, error, max(bar, found.error_bar))
        for h, error, bar in zip(found.steps, found.errors, found.bars, strict=True)
        if h > 0 and math.isfinite(error) and math.isfinite(bar)
    ]
    if len(steps) < 2:
        return None
    heights = [v for _, error, bar in steps for v in (error, bar)]
    x = Axis.over((h for h, _, _ in steps), LEFT, RIGHT)
    lowest = DEPTH * max(max(heights) * TINY, found.floor)  # a floor that is nan is no maximum
    y = Axis.over([max(v, lowest) for v in (*heights, found.off, found.bound)], BOTTOM, TOP)
    edge = [(x.at(h), y.at(bar)) for h, _, bar in steps]
    dots = tuple(_dot(x, y, *step) for step in steps)
    best = _best(found, x, y)
    off, bound = _levels(found, y, best)
    return Picture(
        across=x.ticks(TICKS),
        up=y.ticks(TICKS),
        band=f"{path([*edge, (edge[-1][0], BOTTOM), (edge[0][0], BOTTOM)])}Z",
        trace=path([(dot.x, dot.y) for dot in dots]),
        dots=dots,
        off=off,
        bound=bound,
        tone=words.tone(finding.verdict),
        best=best,
        notes=tuple(_notes(steps, best, [level for level in (off, bound) if level])),
        label=f"error of the central difference of {_place(finding, found)} at each step",
        caption=says(finding),
    )


def says(finding: Finding) -> str:
    """What the curve shows, in a sentence; empty without one.

    >>> says.__name__
    'says'
    """
    found = finding.curve
    if found is None or found.best is None:
        return ""
    step = f"the best difference (h = {words.number(found.steps[found.best], 2)})"
    known = f"{_place(finding, found)}: {step} knows the slope to {words.number(found.floor, 2)}"
    exact = finding.oracle and not found.off <= max(found.bound, found.error_bar)
    return f"{known}; {_off(found, exact=exact)}"


def _off(found: VCurve, *, exact: bool) -> str:
    """How far the gradient judged is off, beside what a difference can tell.

    With `exact`, 50-digit arithmetic tells it.
    """
    if not math.isfinite(found.off):
        return f"this gradient is {words.number(found.off)}"
    if found.off == 0:
        return "this gradient is right to the last digit"
    off = f"this gradient is off by {words.number(found.off)}"
    times = words.multiple(found.off, found.floor)
    if found.off > found.floor and times:
        return f"{off}, {times} times as much"
    if exact:  # beside a kink, or where forward jumps
        return f"{off}: no difference can tell, 50-digit arithmetic does"
    return f"{off}, less than a difference can tell"


def _place(finding: Finding, found: VCurve) -> str:
    return words.element(words.clean(found.tensor or finding.name), found.index)


def _dot(x: Axis, y: Axis, h: float, error: float, bar: float) -> Dot:
    kind = "exact" if error == 0 else "clear" if error > bar else "noise"
    step = f"h = {words.number(h, 2)}"
    says = f"{step}: off by {words.number(error)}, rounding explains {words.number(bar, 2)}"
    return Dot(x=x.at(h), y=y.at(error), kind=kind, step=step, says=says)


def _levels(found: VCurve, y: Axis, best: Dot | None) -> tuple[Level | None, Level | None]:
    """The lines of the gradient judged and of its bound; the text of the higher is above it."""
    off = bound = None
    higher = not found.off <= found.bound
    if 0 < found.off < math.inf:
        deeper = "↓ " if math.log10(found.off) < y.low else ""
        text = f"{deeper}this gradient is off by {words.number(found.off)}"
        middle = (LEFT + RIGHT) / 2 if best is None else best.x
        x = min(max(middle, LEFT + ROOM), RIGHT - ROOM)  # between the arms of the V
        off = _level(y.at(found.off), x, text, "middle", above=higher)
    if 0 < found.bound < math.inf:
        text = f"allowed: {words.number(found.bound, 2)}"
        bound = _level(y.at(found.bound), RIGHT - 4, text, "end", above=not higher)
    return off, bound


def _level(at: float, x: float, text: str, anchor: str, *, above: bool) -> Level:
    below = at < TOP + LINE or (not above and at < BOTTOM - LINE)
    return Level(y=at, note=Note(x=x, y=at + (LINE - 3 if below else -5), text=text, anchor=anchor))


def _best(found: VCurve, x: Axis, y: Axis) -> Dot | None:
    if found.best is None:
        return None
    h, error, bar = (v[found.best] for v in (found.steps, found.errors, found.bars))
    return _dot(x, y, h, error, bar)


def _notes(steps: list[Step], best: Dot | None, levels: list[Level]) -> Iterator[Note]:
    """The names of the V's sides, where it has them, and of its lowest point."""
    low = BOTTOM - 7
    while any(abs(level.note.y - low) < LINE for level in levels):
        low -= LINE
    yield Note(x=LEFT + 6, y=low, text="rounding ∝ 1/h")
    clear = [error for _, error, bar in steps if error > CLEAR * bar]
    if any(long >= FALLS * short for long, short in zip(clear, clear[PER_DECADE:], strict=False)):
        yield Note(x=RIGHT - 4, y=low, text="truncation ∝ h²", anchor="end")
    if best is not None and LEFT + ROOM + STEP < best.x < RIGHT - ROOM:
        yield Note(x=best.x - 5, y=low, text=best.step, anchor="end")
