"""Curves shown with a finding: the Taylor remainder along a direction, the V-curve of an element.

A gradient g leaves of forward's change along d the remainder
r(h) = φ(x + hd) − φ(x − hd) − 2h⟨g, d⟩, so

    r(h) / 2h = δ + a·h² + b·h⁴ + … + noise/h,   δ = ⟨true gradient − g, d⟩.

δ is fitted, by weighted least squares of r/2h on 1, h², h⁴ over every window of neighbouring steps,
with the error bar of the best window. Curves illustrate, they do not judge: across a kink they show
the mean of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gradcheck.judge.gradient_truth import GradientTruth
from gradcheck.numerics import richardson
from gradcheck.numerics.arrays import Array, Float, Mask
from gradcheck.numerics.direction import Along, Direction, draw_direction
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.noise import RELATIVE
from gradcheck.results.finding import Finding, Taylor, VCurve

FIT_STEPS: Final = 5
"""Steps in a fit. Weights go with h²: one more step would weigh 1/1000, and the order 6 of the
curve would be hidden by the number of steps that agree."""
FIT_TERMS: Final = 3
"""1, h² and h⁴."""
TAIL_STEPS: Final = 6
"""The finest steps: the misfit of 1 and h² there is noise."""
MAX_WINDOW_MOVE: Final = 16.0
"""Error bars that the intercept may move from the window before."""
CHUNK: Final = 4096
"""Elements whose steps are rounded at once, to stay in the cache."""
SIGMAS: Final = 3.0
LEAST_NOISE: Final = float(np.finfo(np.float64).tiny)
"""The noise of a forward that is zero everywhere."""
CURVE_STEPS: Final = 27
STEPS_PER_DECADE: Final = 2
MAX_CURVE_ELEMENTS: Final = 1 << 17
"""Elements of a primal, or of the outputs, above which 54 more evaluations are too slow."""
CURVE_DIGITS: Final = 6
"""Significant digits that are stored: more would neither be seen nor survive rounding."""


class TaylorLine:
    """φ = Σ ct·f along one direction through a point: its slopes at all steps, measured once.

    `left_by` gives the remainder of any gradient.
    """

    def __init__(self, along: Along, direction: Direction, ct: Float) -> None:
        """Evaluate forward on both sides of the point; `ct` [m] weighs its outputs."""
        longest = along.steps(direction)
        halvings = np.arange(2 * len(longest), dtype=np.float64)
        self._primals, self._direction = along.point.primals, direction
        self.h: Float = longest[0] * 0.5**halvings
        ahead, behind = (along.values(direction, sign * self.h) for sign in (1.0, -1.0))
        with np.errstate(all="ignore"):
            change = (ahead - behind) / (2 * self.h)[:, None]
            self._slopes: Float = change @ ct
            self._scale: Float = np.abs(change) @ np.abs(ct)
            noise = float(along.noise(ct[None])[0])
        self._noise = np.inf if np.isnan(noise) else noise
        dtype = next(p.dtype for p in self._primals if p.dtype.kind == "f")
        self._u = float(np.finfo(dtype).eps) / 2

    def left_by(self, gradients: Sequence[Array | None]) -> Taylor | None:
        """The remainder of `gradients`, one per primal that moves (others are ignored).

        None where nothing can be fitted: forward has no finite values at the finest steps, or the
        gradient has none.
        """
        with np.errstate(all="ignore"):
            product, size = self._products(gradients)
            left = self._slopes - product
            known = np.isfinite(left) & np.isfinite(self._scale)
        # What lies beyond a step that forward refuses is another branch, or overflows.
        first = 0 if known.all() else known.size - int(np.argmin(known[::-1]))
        if known.size - first <= FIT_STEPS:
            return None
        h, left = self.h[first:], left[first:]
        rounding = self._u * np.maximum(self._scale[first:], size)
        noise = max(self._noise, float(rounding[-1] * h[-1]), LEAST_NOISE)
        with np.errstate(all="ignore"):
            intercept, bar = _fitted(h, left, noise, rounding)
        return Taylor(
            steps=tuple(h.tolist()),
            remainders=tuple(left.tolist()),
            slopes=_slopes(left),
            intercept=intercept,
            error_bar=bar,
            linear=bool(np.all(np.abs(left) <= _noise_floor(h, noise, rounding))),
            product=float(product[first]),  # the finest steps are rounded most
            noise=noise,
        )

    def _products(self, gradients: Sequence[Array | None]) -> tuple[Float, float]:
        """⟨g, d⟩ with d as realised by rounding x ± hd, [s], and Σ|g·d|."""
        products, size = np.zeros(self.h.size), 0.0
        for x, d, g in zip(self._primals, self._direction, gradients, strict=True):
            if d is None:
                continue
            wide = np.asarray(g, dtype=np.float64)
            size += float(np.sum(np.abs(wide * d)))
            flat = (x.reshape(-1), d.reshape(-1), wide.reshape(-1))
            for start in range(0, x.size, CHUNK):
                xs, ds, gs = (array[start : start + CHUNK] for array in flat)
                steps = self.h[:, None] * ds
                ahead, behind = (xs + steps).astype(x.dtype), (xs - steps).astype(x.dtype)
                products += (ahead.astype(np.float64) - behind) @ gs
        return products / (2 * self.h), size


def _fitted(h: Float, left: Float, noise: float, rounding: Float) -> tuple[float, float]:
    """The intercept of r/2h at h = 0, and its error bar: those of the window with the least bar.

    A bar is three deviations of the intercept, times χ where the fit is worse than noise explains,
    plus the move of the intercept to the next window, whose steps are half as long: terms of order
    6 fall by 64 there. Lest two windows agree by accident, it is at least a part of the move from
    the window before. Where the remainders at a window's longest steps do not settle, the function
    saturates (r does not change with h), and the bar is infinite.
    """
    count = len(h) - FIT_STEPS  # the last window has none to vouch for it
    floor = _noise_floor(h, noise, rounding)
    change = np.abs(np.diff(left))
    settling = change[1:] <= change[:-1] / 2 + 2 * floor[2:]
    values, misfits, share = _fits(h, left, FIT_STEPS, FIT_TERMS)
    _, (seen,), _ = _fits(
        h[-TAIL_STEPS:], left[-TAIL_STEPS:], min(TAIL_STEPS, len(h)), FIT_TERMS - 1
    )
    deviations = share / h[:count] * np.maximum(misfits[:count], max(noise, seen))
    moves = np.abs(np.diff(values))
    bars = SIGMAS * (deviations + RELATIVE * rounding[:count]) + moves
    bars[1:] = np.maximum(bars[1:], moves[:-1] / MAX_WINDOW_MOVE)
    bars[~(settling[:count] & settling[1 : count + 1] & np.isfinite(bars))] = np.inf
    best = int(np.argmin(bars))
    return float(values[best]), float(bars[best])


def _fits(h: Float, left: Float, width: int, terms: int) -> tuple[Float, Float, float]:
    """Fits of 1, h², … to r/2h in every window of so many steps.

    Returns the intercepts [w], the misfits as deviations of φ [w], and the deviation of an
    intercept in units of that of φ over the window's longest step.
    """
    weights = 0.5 ** np.arange(width)  # h in units of the longest step, the same in every window
    columns = weights[:, None] ** (2 * np.arange(terms) + 1)
    inverse = np.linalg.pinv(columns)
    unit = float(np.max(np.abs(left))) or 1.0  # squares must not overflow
    windows = sliding_window_view(left / unit, width) * weights
    coefficients = windows @ inverse.T
    misfit = np.linalg.norm(windows - coefficients @ columns.T, axis=1)
    misfit *= unit * h[: len(windows)] / np.sqrt(width - terms)
    return coefficients[:, 0] * unit, misfit, float(np.linalg.norm(inverse[0]))


def _noise_floor(h: Float, noise: float, rounding: Float) -> Float:
    """Three deviations of noise and rounding, in each remainder."""
    return SIGMAS * (noise / h + RELATIVE * rounding)


def _slopes(left: Float) -> tuple[float, ...]:
    """log₂(|r(h)|/|r(h/2)|) of neighbours, from r/2h."""
    sizes = np.abs(left)
    with np.errstate(all="ignore"):
        slopes = 1 + np.log2(sizes[:-1] / sizes[1:])
    return tuple(np.where(np.isfinite(slopes), slopes, np.nan).tolist())


class Remainders:
    """Random dense lines through one point, one per primal, that leave out elements on kinks.

    They are measured in float64 on first use, and serve every implementation and dtype.
    """

    def __init__(
        self,
        point: Point,
        ct: Float,
        still: Sequence[Mask | None],
        draw: Callable[[int], Draw],
    ) -> None:
        """`ct` [m] weighs the outputs; `still` marks, per primal, the elements that do not move."""
        self._along = Along(point)
        self._ct, self._draw, self._still = ct, draw, still
        self._lines: dict[int, TaylorLine | None] = {}

    def of(self, index: int, got: Array) -> Taylor | None:
        """The curve of a gradient `got` [n] of primal `index`; None if there is none to draw."""
        primals = self._along.point.primals
        if index not in self._lines:
            self._lines[index] = self._line(index)
        line = self._lines[index]
        if line is None:
            return None
        shaped = got.reshape(primals[index].shape)
        return line.left_by([shaped if i == index else None for i in range(len(primals))])

    def _line(self, index: int) -> TaylorLine | None:
        drawn = draw_direction(self._draw(index), self._along.point.primals, {index})
        still = self._still[index]
        direction = tuple(
            d if d is None or still is None else np.where(still, 0.0, d) for d in drawn
        )
        moves = direction[index]
        if moves is None or not moves.any():
            return None
        return TaylorLine(self._along, direction, self._ct)


def v_curve(truth: GradientTruth, found: Finding) -> VCurve | None:
    """The V-curve at the worst element of a finding about the gradient of `truth`.

    None where the true derivative is unknown or a convention, where forward has no value at any
    step, and where 54 more calls would be slow.
    """
    top, evaluator = found.top, truth.differences.evaluator
    if top is None or max(evaluator.x.size, evaluator.base.size) > MAX_CURVE_ELEMENTS:
        return None
    element = int(np.ravel_multi_index(top.index, truth.shape)) if top.index else 0
    on_kink = truth.kinks is not None and bool(truth.kinks.on[element])
    if on_kink or not (math.isfinite(top.want) and math.isfinite(top.error_bar)):
        return None
    h = curve_steps(evaluator.x)
    slopes, bars = truth.differences.seen_at(truth.cotangents.index(top.cotangent), element, h)
    with np.errstate(all="ignore"):
        errors = np.where(np.isfinite(bars), np.abs(slopes - top.want), np.nan)
    if not np.isfinite(errors).any():
        return None
    return VCurve(
        index=top.index, tensor=found.name, cotangent=top.cotangent,
        steps=_rounded(h), errors=_rounded(errors), bars=_rounded(bars),
        off=top.error, want=top.want, bound=top.bound, error_bar=top.error_bar,
    )  # fmt: skip


def curve_steps(x: Float) -> Float:
    """Half decades from the magnitude of the primal down to where rounding is all there is."""
    top = round(math.log10(richardson.top_step(x)))
    return np.asarray(10.0 ** (top - np.arange(CURVE_STEPS) / STEPS_PER_DECADE))


def _rounded(values: Float) -> tuple[float, ...]:
    return tuple(float(f"{value:.{CURVE_DIGITS}g}") for value in values.tolist())
