"""Pictures over the step: the V of a central difference, and the remainders of a Taylor test.

The V falls with the step while truncation rules, and rises again where rounding does; what a
gradient leaves of forward's change has slope 3 where the gradient is right, else 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Finding, Taylor, VCurve

WIDTH: Final = 460
HEIGHT: Final = 278
LEFT: Final = 46
RIGHT: Final = 450
TOP: Final = 22
BOTTOM: Final = 236
TICKS: Final = 7
LINE: Final = 14
"""Pixels from one line of text to the next."""
RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
EVERY: Final = (1, 2, 3, 4, 5, 10, 20, 50, 100, 200)
"""Decades from one label to the next."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A power of ten on an axis: `at` so many pixels, and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Powers of ten from `low` to `high`, whole decades, spread from pixel `start` to `end`."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> Axis:
        """An axis on which all `values` that are positive and finite have a place."""
        decades = [math.log10(v) for v in values if 0 < v < math.inf]
        low = math.floor(min(decades, default=0.0))
        return cls(low, max(low + 1, math.ceil(max(decades, default=0.0))), start, end)

    def at(self, value: float) -> float:
        """The pixel of a value; what lies beyond an end, and 0, is at that end."""
        return self._place(math.log10(value) if value > 0 else -math.inf)

    def ticks(self, most: int) -> tuple[Tick, ...]:
        """At most so many powers of ten, evenly spaced."""
        span = self.high - self.low
        every = next((e for e in EVERY if span // e < most), span)
        first = -(-self.low // every) * every
        return tuple(Tick(self._place(k), power(k)) for k in range(first, self.high + 1, every))

    def _place(self, decade: float) -> float:
        share = (min(max(decade, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def power(exponent: int) -> str:
    """A power of ten as it is written.

    >>> power(-6), power(0), power(1)
    ('10⁻⁶', '1', '10')
    """
    if exponent in (0, 1):
        return str(10**exponent)
    return f"10{str(exponent).translate(RAISED)}"


def path(points: Sequence[tuple[float, float]]) -> str:
    """A line through points in pixels, as SVG writes it.

    >>> path([(1.0, 2.5), (3.0, 4.0)])
    'M1 2.5L3 4'
    """
    return "".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A text in the picture; `anchor` is SVG's."""

    x: float
    y: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture in pixels, y downwards: its axes, the texts in it and below it."""

    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    notes: tuple[Note, ...]
    label: str
    caption: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    bottom: int = BOTTOM


# ── the V-curve ─────────────────────────────────────────────────────────────────────────────

DEPTH: Final = 1e-3
"""How far below the surest step the picture goes: what is less stands at its edge."""
TINY: Final = 1e-30
CLEAR_OF_BAR: Final = 3.0
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
class Level:
    """A horizontal line at `y`, and its text."""

    y: float
    note: Note


@dataclass(frozen=True, slots=True, kw_only=True)
class VPlot(Plot):
    """A V-curve.

    `band` and `trace` are SVG paths: the region that rounding explains, and the errors themselves.
    `off` is the gradient judged, `bound` what it may be off, `best` the surest step.
    """

    band: str
    trace: str
    dots: tuple[Dot, ...]
    off: Level | None
    bound: Level | None
    tone: str
    best: Dot | None


def v_plot(finding: Finding) -> VPlot | None:
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
    return VPlot(
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
        caption=v_says(finding),
    )


def v_says(finding: Finding) -> str:
    """What the V-curve shows, in a sentence; empty without one."""
    found = finding.curve
    if found is None or found.best is None:
        return ""
    step = f"the best difference (h = {words.number(found.steps[found.best], 2)})"
    known = (
        f"{_place(finding, found)}: {step} gives the slope to within {words.number(found.floor, 2)}"
    )
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
        return f"{off}: smaller than any difference can show; 50-digit arithmetic shows it"
    return f"{off}, less than a difference can show"


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
        text = f"tolerance: {words.number(found.bound, 2)}"
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
    clear = [error for _, error, bar in steps if error > CLEAR_OF_BAR * bar]
    if any(long >= FALLS * short for long, short in zip(clear, clear[PER_DECADE:], strict=False)):
        yield Note(x=RIGHT - 4, y=low, text="truncation ∝ h²", anchor="end")
    if best is not None and LEFT + ROOM + STEP < best.x < RIGHT - ROOM:
        yield Note(x=best.x - 5, y=low, text=best.step, anchor="end")


# ── Taylor remainders ───────────────────────────────────────────────────────────────────────

SIGMAS: Final = 6.0
"""Deviations of noise that r(h) may show: three for each of its two values of forward."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaylorPlot(Plot):
    """|r(h)| over h.

    `noise` is the height below which all is noise, `error` the line 2h·|intercept| that a wrong
    gradient leaves, as an SVG path; empty where the intercept is within its error bar.
    """

    points: tuple[Point, ...]
    trace: str
    error: str
    noise: float


def taylor_plot(finding: Finding) -> TaylorPlot | None:
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
    return TaylorPlot(
        across=x.ticks(TICKS),
        up=y.ticks(TICKS),
        points=points,
        trace=path(points),
        error=error,
        noise=y.at(SIGMAS * found.noise),
        notes=note,
        label=f"remainder of {words.subject(finding.name, finding.part)} over the step",
        caption=taylor_says(found),
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


CLEAR_OF_NOISE: Final = 100.0
"""A Taylor remainder of so many times the noise shows the slope of its curve."""


def taylor_says(found: Taylor) -> str:
    """What a curve of Taylor remainders says of the gradient along one direction."""
    product = words.number(found.product, 6)
    if not math.isfinite(found.error_bar):
        return f"⟨g, d⟩ is {product}; no steps agree on what is missing from it"
    missing = f"{words.number(found.intercept)} ± {words.number(found.error_bar, 2)}"
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
        if rest > CLEAR_OF_NOISE * found.noise and math.isfinite(slope)
    ]
    return clear[-1] if clear else None


def taylor_curves(dtype: str, count: int, worst: CaseResult) -> str:
    """What the Taylor curves of one dtype say together."""
    found = worst.finding.taylor
    assert found is not None
    share, bar = words.number(found.share), words.number(abs(found.error_bar), 2)
    curves = f"{words.plural(count, 'curve')} in {words.clean(dtype)}"
    return (
        f"{curves}; the largest part missing from ⟨g, d⟩ is "
        f"{share}, in {words.title(worst)} ({words.number(found.intercept)} ± {bar} missing from "
        f"{words.number(found.product)})"
    )
