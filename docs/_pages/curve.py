"""The V-curve: how far a central difference is from the truth, step by step, drawn from real runs.

Everything in the picture is measured when the site is built: the differences and their error bars
by the project's own engine, the truth by its 50-digit oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from gradcheck_cases import SUITE
from numpy.typing import NDArray

from gradcheck.numerics import richardson
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.estimator import Differences, noise_lines
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.operator_oracle import Oracle

Float = NDArray[np.float64]

WIDTH: Final = 640
HEIGHT: Final = 380
LEFT: Final = 62
BOTTOM: Final = 46
TOP: Final = 14
RIGHT: Final = 14
FLOOR: Final = 1e-18
"""A difference that hits the truth to the last bit is drawn here."""


@dataclass(frozen=True)
class Ladder:
    """One element of one gradient at every step: errors are relative to the true derivative.

    `errors` are those of the central differences at `steps`, `extrapolated` those of Richardson's
    values, each at the smallest step it uses; `rounding` is what three deviations of the measured
    noise may do. `chosen` and `bar` are the error of the value that the engine takes, and its bar.
    """

    steps: Float
    errors: Float
    extrapolated: Float
    rounding: Float
    chosen: float
    bar: float


@cache
def measured(name: str, element: int = 0, dtype: str = "float64") -> Ladder:
    """The ladder of one element of the gradient of a case's first primal.

    `name` is operator/dialect/sample. The cotangent is one at the element's output, else zero.
    """
    op, dialect, sample = name.split("/")
    (case,) = SUITE.cases([op], [dialect], [sample])
    xp = FLOATS[dtype]

    def forward(*primals: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        return as_tuple(case.spec.forward(xp, *primals, **case.attrs))

    primals = tuple(p.astype(dtype) if p.dtype.kind == "f" else p for p in case.primals)
    point = Point(forward, primals)
    outputs = forward(*primals)
    ct = np.zeros(sum(o.size for o in outputs))
    ct[element] = 1.0
    found = Differences(point, 0, ct[None], noise_lines(point))
    colour = np.flatnonzero((found.structure.grid == element).any(axis=1))
    block = int(np.flatnonzero(found.structure.grid[colour[0]] == element)[0])
    h = richardson.steps(found.evaluator.x, richardson.LADDER_LEVELS)
    differences = richardson.central(found.evaluator, found.structure, ct[None], colour, h)
    slopes, scales, rough, _ = differences
    noise, _ = found._noise_of(colour)
    u = float(np.finfo(dtype).eps) / 2
    value, bar = richardson.best_of_all_steps(slopes, scales, noise, h, u, rough)
    shaped = tuple(part.reshape(o.shape) for part, o in _parts(ct, outputs))
    oracle = Oracle(case.spec, case.primals, case.attrs, [shaped], [None] * len(case.primals))
    exact = oracle.gradient()
    assert exact is not None
    assert exact[0] is not None
    truth = float(exact[0][0, element])

    def relative(values: Float) -> Float:
        return np.asarray(np.abs(values[:, 0, 0, block] - truth) / abs(truth))

    return Ladder(
        steps=h,
        errors=relative(slopes),
        extrapolated=relative(richardson.extrapolate(slopes)),
        rounding=np.asarray(3 * noise[0, 0, block] / h / abs(truth)),
        chosen=float(np.abs(value[0, 0, block] - truth) / abs(truth)),
        bar=float(bar[0, 0, block] / abs(truth)),
    )


def _parts(ct: Float, outputs: Sequence[Float]) -> Iterator[tuple[Float, Float]]:
    start = 0
    for output in outputs:
        yield ct[start : start + output.size], output
        start += output.size


class Picture:
    """A plane with two logarithmic axes, in pixels."""

    def __init__(self, left: int, right: int, low: int, high: int) -> None:
        """The powers of ten between which it lies."""
        self.left, self.right, self.low, self.high = left, right, low, high
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A point in pixels; what is off the plane is moved to its edge."""
        across = (math.log10(x) - self.left) / (self.right - self.left)
        up = (math.log10(max(y, FLOOR)) - self.low) / (self.high - self.low)
        px = LEFT + min(max(across, 0), 1) * (WIDTH - LEFT - RIGHT)
        py = HEIGHT - BOTTOM - min(max(up, 0), 1) * (HEIGHT - BOTTOM - TOP)
        return round(px, 1), round(py, 1)

    def axes(self, below: str, beside: str) -> None:
        """Grid lines and labels."""
        for power in range(self.left, self.right + 1, 2):
            x, _ = self.at(10.0**power, 1)
            self.parts.append(
                f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            )
            self.parts.append(_label(x, HEIGHT - BOTTOM + 18, _power(power), "middle"))
        for power in range(self.low, self.high + 1, 3):
            _, y = self.at(1, 10.0**power)
            self.parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            )
            self.parts.append(_label(LEFT - 8, y + 4, _power(power), "end"))
        self.parts.append(_label((LEFT + WIDTH) / 2, HEIGHT - 8, below, "middle"))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.parts.append(
            f'<text class="label" text-anchor="middle" '
            f'transform="translate(14 {middle}) rotate(-90)">{beside}</text>'
        )

    def curve(self, xs: Float, ys: Float, kind: str, mark: str = "") -> None:
        """Points joined by a line; those that are no number are left out."""
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True) if np.isfinite(y) and x > 0]
        joined = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{joined}"/>')
        for x, y in points if mark else ():
            self.parts.append(_mark(mark, x, y, kind))

    def upright(self, x: float, words: str, row: int = 0) -> None:
        """A line at a step, and what it is."""
        px, _ = self.at(x, 1)
        self.parts.append(
            f'<line class="fixed" x1="{px}" x2="{px}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        )
        self.parts.append(_label(px + 4, TOP + 12 + 15 * row, words, "start"))

    def level(self, y: float, kind: str, words: str) -> None:
        """A line at an error, and what it is."""
        _, py = self.at(1, y)
        self.parts.append(
            f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py}" y2="{py}"/>'
        )
        self.parts.append(_label(LEFT + 6, py - 5, words, "start"))

    def svg(self, says: str) -> str:
        """All of it, on one line, so that Markdown leaves it alone."""
        body = "".join(self.parts)
        return (
            f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{says}">'
            f"{body}</svg>"
        )


def _label(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="label" x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>'


def _power(power: int) -> str:
    return f'10<tspan dy="-5" font-size="9">{power}</tspan>'.replace("-", "−").replace(
        '"−5"', '"-5"'
    )


def _mark(mark: str, x: float, y: float, kind: str) -> str:
    if mark == "circle":
        return f'<circle class="{kind} dot" cx="{x}" cy="{y}" r="3"/>'
    return f'<path class="{kind} dot" d="M{x} {y - 4}l4 7h-8z"/>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<span class="key {kind}">{words}</span>' for kind, words in entries)
    return f'<div class="legend">{items}</div>'


def _figure(svg: str, legend: str, caption: str) -> str:
    return f'<figure class="plot">{svg}{legend}<figcaption>{caption}</figcaption></figure>'


def ordinary() -> str:
    """One element of gelu: the V of float64, that of float32, and Richardson's values."""
    name = "gelu/erf/typical"
    wide, narrow = measured(name), measured(name, dtype="float32")
    picture = Picture(-12, 0, -18, 0)
    picture.axes("step h, in units of the primal", "relative error")
    picture.curve(narrow.steps, narrow.errors, "narrow", "circle")
    picture.curve(wide.steps, wide.rounding, "rounding")
    picture.curve(wide.steps, wide.errors, "wide", "circle")
    picture.curve(wide.steps[1:], wide.extrapolated, "richardson", "triangle")
    picture.level(wide.bar, "bar", f"error bar of the value in use: {wide.bar:.0e}")
    svg = picture.svg("Error of a central difference of gelu against its step")
    legend = _legend(
        [
            ("wide", "difference, float64"),
            ("narrow", "difference, float32"),
            ("richardson", "extrapolated, float64"),
            ("rounding", "3 × measured noise / h"),
        ]
    )
    best = float(np.nanmin(wide.errors))
    caption = (
        "<b>gelu at one point.</b> Truncation falls with h², rounding grows with 1/h: a V. The "
        f"best difference in float64 is {best:.0e} off; the extrapolated value in use is "
        f"{max(wide.chosen, FLOOR):.0e} off, with an error bar of {wide.bar:.0e}. The best in "
        f"float32 is {float(np.nanmin(narrow.errors)):.0e} off: float32 is never differenced."
    )
    return _figure(svg, legend, caption)


def near_zero() -> str:
    """rms_norm where x is as small as a common step: a fixed step is wrong by half a per cent."""
    found = measured("rms_norm/plain/unsolved")
    picture = Picture(-12, 0, -18, 3)
    picture.axes("step h, in units of the primal", "relative error")
    picture.upright(1e-4, "h = 1e-4, a common choice")
    picture.upright(1e-6, "h = 1e-6, another", row=1)
    picture.curve(found.steps, found.rounding, "rounding")
    picture.curve(found.steps, found.errors, "wide", "circle")
    picture.curve(found.steps[1:], found.extrapolated, "richardson", "triangle")
    picture.level(found.bar, "bar", f"error bar of the value in use: {found.bar:.0e}")
    svg = picture.svg("Error of a central difference of rms_norm near zero against its step")
    legend = _legend(
        [
            ("wide", "difference"),
            ("richardson", "extrapolated"),
            ("rounding", "3 × measured noise / h"),
        ]
    )
    nearest = int(np.argmin(np.abs(np.log(found.steps / 1e-4))))
    caption = (
        "<b>rms_norm of a row of one small element</b> (sample <code>unsolved</code>). The V lies "
        f"elsewhere: a step near 1e-4 ({found.steps[nearest]:.1e}) is off by "
        f"{found.errors[nearest]:.0e}, and a checker with a fixed step would reject a right "
        "gradient. The step is therefore chosen for each primal; the value in use is "
        f"{max(found.chosen, FLOOR):.0e} off."
    )
    return _figure(svg, legend, caption)


def _measured(forward: Callable[[Float], Float], x: float, h: Float) -> tuple[Float, Float]:
    """Central differences of `forward` at `x`, and its even parts over the step."""
    above, below, here = forward(x + h), forward(x - h), forward(np.float64(x))
    return (above - below) / ((x + h) - (x - h)), (above - 2 * here + below) / h


def afar() -> str:
    """A norm at 3e-9: kinked at coarse steps, smooth at steps below its own size."""
    steps = 4.0 ** -np.arange(23)
    other = 4e-9
    slopes, bends = _measured(lambda x: np.sqrt(x * x + other * other), 3e-9, steps)
    picture = Picture(-14, 0, -12, 0)
    picture.axes("step h, in units of the primal", "relative error; bend")
    picture.upright(3e-9, "the element, 3e-9", row=2)
    picture.curve(steps, np.abs(slopes / 0.6 - 1), "wide", "circle")
    picture.curve(steps, np.abs(bends), "richardson", "triangle")
    svg = picture.svg("Error of a central difference of a norm at 3e-9 against its step")
    legend = _legend([("wide", "difference"), ("richardson", "(f(x+h) − 2f(x) + f(x−h)) / h")])
    caption = (
        "<b>√(x² + y²) at x = 3e-9, y = 4e-9.</b> At steps longer than the element the "
        "difference is off by the whole slope, and the second difference over h stays as large as "
        "at a kink. At shorter steps both fall: the function is smooth here, with slope 0.6. The "
        "finest scale decides."
    )
    return _figure(svg, legend, caption)


def stairs() -> str:
    """tanh, rounded to three decimals: a slope at coarse steps, none within a stair."""
    steps = 4.0 ** -(np.arange(14) + 0.5)
    x = 0.4237
    slopes, _ = _measured(lambda t: np.round(np.tanh(t), 3), x, steps)
    slope = 1 - math.tanh(x) ** 2
    picture = Picture(-8, 0, -6, 0)
    picture.axes("step h, in units of the primal", "relative error")
    picture.upright(1e-3 / slope, "one stair")
    picture.curve(steps, np.abs(slopes / slope - 1), "wide", "circle")
    picture.curve(steps, 5e-4 / steps / slope, "rounding")
    svg = picture.svg("Error of a central difference of a rounded tanh against its step")
    legend = _legend([("wide", "difference"), ("rounding", "half a stair / h")])
    caption = (
        "<b>tanh, rounded to three decimals</b>, and the slope of tanh. Coarse steps give "
        "it to one per cent. Within a stair forward is constant and the difference is 0. Values "
        "alone do not determine which of the two is the derivative."
    )
    return _figure(svg, legend, caption)
