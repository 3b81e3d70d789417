"""What rounding may cost a right VJP at a point, measured by calling it at neighbouring points."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from gradcheck.judge.call import RowsAt
from gradcheck.judge.compare import TOLERANCES, Tolerance
from gradcheck.numerics.arrays import Array, Float
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.noise import RELATIVE

NEIGHBOUR_POINTS: Final = 8
ELEMENT_NEIGHBOURS: Final = 2
"""Neighbours for one element of a large primal, where each call is expensive."""
FAR_FACTOR: Final = 2.0**10
"""Distance of the farther neighbours over that of the near ones: the effect of rounding grows with
it, noise and the error of a wrong formula do not."""
CANCELLATION_LEFT: Final = {
    "float64": 2.0**-28,
    "float32": 2.0**-15,
    "float16": 2.0**-9,
    "bfloat16": 2.0**-6,
}
"""The largest allowance where terms cancel, relative to them: less than a narrower type leaves."""
NEIGHBOUR_SAFETY: Final = 8.0
"""The root mean square over eight neighbours, times this, bounds the next neighbour."""


class RoundingCost(Protocol):
    """What rounding may cost a right VJP at a point."""

    tolerance: Tolerance

    def cost(self, index: int, reach: Float, terms: Float | None = None) -> Float | None:
        """Allowance for the gradient of primal `index`, [q, n]; None if it is unknown.

        `reach` [q, n] are slopes from afar, `terms` [q, n] the size of terms that may cancel.
        """


class Conditioning:
    """What rounding may cost at this point, measured on the VJP judged at neighbouring points.

    Two effects count: what rounding the primals alone does to the gradient (layer_norm at 1000 ± 1
    knows its rows to 6e-5 of their spread in float32, however it is computed), and what float32
    loses against float64 inside (1 − y of a saturated softmax), up to some roundings of the largest
    slope that forward shows from afar. A wrong formula is equally wrong at all points and in both
    dtypes, and gains nothing. Noise that follows the primals gains a thousandth of itself, because
    farther neighbours must not differ by more in proportion; with `noisy` it is allowed.
    """

    def __init__(
        self, rows_at: RowsAt, point: Point, tolerance: Tolerance, *, noisy: bool = False
    ) -> None:
        """Call nothing yet: a gradient that passes needs no allowance."""
        self.tolerance = tolerance
        self._rows_at, self._point, self._noisy = rows_at, point, noisy

    def cost(self, index: int, reach: Float, terms: Float | None = None) -> Float | None:
        """Allowance for the gradient of primal `index`, [q, n]; None if it is unknown."""
        if self._costs is None:
            return None
        moved, lost, noise = (costs[index] for costs in self._costs)
        if terms is not None:
            limit = CANCELLATION_LEFT[self.tolerance.dtype] * terms
            moved = np.maximum(moved, np.minimum(noise, limit))
        # An element that lost nothing at eight neighbours may lose something here.
        lost = np.maximum(lost, np.sqrt(np.mean(lost**2, axis=1, keepdims=True)))
        return moved + np.minimum(lost, RELATIVE * self.tolerance.u * reach)

    @cached_property
    def _costs(self) -> tuple[list[Float], list[Float], list[Float]] | None:
        """Per primal [q, n]: the effect of its last bit, the loss inside, and all that moves."""
        wide = next(p.dtype for p in self._point.primals if p.dtype.kind == "f")
        here = self._rows_at(self._point.primals, wide.name)
        if here is None:
            return None
        near, far, lost = ([np.zeros_like(g) for g in here] for _ in range(3))
        rng = np.random.Generator(np.random.Philox(key=key_of("conditioning")))
        for _ in range(NEIGHBOUR_POINTS):
            signs = self._signs(rng)
            for totals, distance in ((near, 1.0), (far, FAR_FACTOR)):
                there = self._rows_at(self._moved(signs, distance), wide.name)
                _add_squares(totals, there, here, 1 / distance)
            single = self._moved(signs, 1.0, np.dtype(np.float32))
            rough = self._rows_at(single, "float32")
            fine = self._rows_at(tuple(_typed(p, wide) for p in single), wide.name)
            _add_squares(lost, rough, fine, self.tolerance.u / TOLERANCES["float32"].u)
        pairs = zip(near, far, strict=True)
        least = [a if self._noisy else np.minimum(a, b) for a, b in pairs]
        rms = [
            [NEIGHBOUR_SAFETY * np.sqrt(t / NEIGHBOUR_POINTS) for t in totals]
            for totals in (least, lost, near)
        ]
        # A sum that cancels exactly at most neighbours does not at all of them.
        every = [np.maximum(a, b) for a, b in zip(rms[1], rms[2], strict=True)]
        noise = [
            np.maximum(t, np.sqrt(np.mean(t**2, axis=1, keepdims=True))) if t.size else t
            for t in every
        ]
        return rms[0], rms[1], noise

    def _signs(self, rng: np.random.Generator) -> list[Float]:
        return [rng.choice([-1.0, 1.0], p.shape) for p in self._point.primals]

    def _moved(
        self, signs: list[Float], distance: float, dtype: np.dtype[Any] | None = None
    ) -> tuple[Array, ...]:
        """The primals, `distance` units of rounding away."""
        return tuple(
            _typed(p * (1 + sign * distance * self.tolerance.u), dtype or p.dtype)
            if p.dtype.kind == "f"
            else p
            for p, sign in zip(self._point.primals, signs, strict=True)
        )


class ElementConditioning(Conditioning):
    """What rounding of all primals may cost one element of a large gradient."""

    def __init__(
        self, rows_at: RowsAt, point: Point, tolerance: Tolerance, index: int, element: int
    ) -> None:
        """Call nothing yet; the element is `element` of the gradient of primal `index`."""
        super().__init__(rows_at, point, tolerance)
        self._index, self._element = index, element

    def cost(self, index: int, reach: Float, terms: Float | None = None) -> Float | None:
        """Allowance for that element, [1, 1], from few neighbours."""
        place, element = self._index, self._element
        rng = np.random.Generator(np.random.Philox(key=key_of("alone", place, element)))
        wide = self._point.primals[place].dtype.name
        here = self._rows_at(self._point.primals, wide)
        squares = []
        for _ in range(ELEMENT_NEIGHBOURS):
            signs = self._signs(rng)
            for distance in (1.0, FAR_FACTOR):
                there = self._rows_at(self._moved(signs, distance), wide)
                if here is None or there is None:
                    return None
                change = there[place][:, [element]] - here[place][:, [element]]
                squares.append((change / distance) ** 2)
        least = np.fmin(sum(squares[::2]), sum(squares[1::2]))
        return np.asarray(NEIGHBOUR_SAFETY * np.sqrt(least / ELEMENT_NEIGHBOURS))


def _typed(primal: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # a number beyond float32 is infinite there
        return primal.astype(dtype) if primal.dtype.kind == "f" else primal


def _add_squares(
    totals: list[Float], first: list[Float] | None, second: list[Float] | None, unit: float
) -> None:
    """Add squared differences, times `unit`², to `totals`; a refused call adds nothing."""
    if first is None or second is None:
        return
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        with np.errstate(all="ignore"):
            square = ((a - b) * unit) ** 2
        totals[i] = totals[i] + np.where(np.isfinite(square), square, 0.0)
