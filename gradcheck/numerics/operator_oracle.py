"""The 50-digit oracle: the spec's own text in mpmath, differenced with a step of 1e-25.

Forward has 25 guard digits, which the difference f(x + h) − f(x − h) uses up; so truncation and
rounding are both about 1e-50, also where forward cancels inside. One central difference along a
random direction through all primals certifies the spec's VJP to 30 digits of their sum, that is
to 25 of every element that makes up 1e-5 of it; the certified VJP gives every element at once.
If certification fails, the VJP is wrong, and elements are differenced one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arithmetic import DIGITS
from gradcheck.numerics.arrays import Array, Attrs, Float, as_tuple
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.fifty_digit_arithmetic import mp50

STEP: Final = "1e-25"
FINE: Final = ("1e-60", 150)
"""Step and digits beside a kink: float32 has numbers down to 1e-45."""
ASIDE: Final = "1e-40"
"""The distance from a kink at which a VJP is evaluated that divides by zero on it."""
GUARDED: Final = DIGITS + 25
"""Digits of forward while it is differenced."""
AGREEMENT: Final = "1e-30"
"""Relative to Σ |g·r| over the direction r."""
FLOOR: Final = "1e-38"
"""Relative to Σ |ct·f|: the rounding of a VJP that is exactly zero."""


class Operator(Protocol):
    """The two functions of a spec that the oracle needs."""

    @property
    def forward(self) -> Callable[..., Any]:
        """`forward(xp, *primals, **attrs)`."""

    @property
    def vjp(self) -> Callable[..., Any]:
        """`vjp(xp, ct, *primals, **attrs)`."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A VJP against the 50-digit difference along one direction r, in units of the slope.

    `product` is ⟨g, r⟩, `slope` the central difference, `error` their distance, `allowed` 1e-30 of
    Σ |g·r| and the rounding of a zero.
    """

    product: float
    slope: float
    error: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        return self.error <= self.allowed


class Oracle:
    """One operator at one point, in 50-digit arithmetic.

    `cts` holds, per cotangent, a tuple of arrays shaped as forward's outputs; `still` marks, per
    primal, the elements on a kink, which no direction may move, and `close` those nearer to one
    than the step, which are moved one by one with a finer step.
    """

    def __init__(
        self,
        operator: Operator,
        primals: Sequence[Array],
        attrs: Attrs,
        cts: Sequence[tuple[Array, ...]],
        still: Sequence[NDArray[np.bool_] | None],
        close: Sequence[NDArray[np.bool_] | None] = (),
    ) -> None:
        """Convert the primals exactly."""
        self.xp = mp50()
        self.operator = operator
        self.attrs = attrs
        self.primals = [self._exact(p) for p in primals]
        self.floating = [i for i, p in enumerate(primals) if p.dtype.kind == "f"]
        self.cts = [tuple(self.xp.asarray(part) for part in ct) for ct in cts]
        self.still = still
        self.close = close or [None] * len(self.primals)

    def gradient(self) -> list[Float | None] | None:
        """The VJP of every primal, [q, n] each (None: an index), if it is certified; else None."""
        try:
            exact = self._vjps(self.primals)
        except ZeroDivisionError:  # an infinite slope on a kink
            exact = self._vjps(self._beside())
        if not self.certifies(exact):
            return None
        out: list[Float | None] = [None] * len(self.primals)
        for i in self.floating:
            out[i] = np.stack([self.xp.to_float64(g[i]).reshape(-1) for g in exact])
        return out

    def _vjps(self, primals: Sequence[Array]) -> list[tuple[Any, ...]]:
        """The spec's gradients for each cotangent."""
        bare = (ct[0] if len(ct) == 1 else ct for ct in self.cts)
        vjp, xp, attrs = self.operator.vjp, self.xp, self.attrs
        return [as_tuple(vjp(xp, ct, *primals, **attrs)) for ct in bare]

    def _beside(self) -> list[Array]:
        """The primals, with elements on a kink moved off it by 1e-40."""
        aside = self.xp.const(ASIDE)
        return [
            primal if still is None else np.where(still, primal + aside, primal)
            for primal, still in zip(self.primals, self.still, strict=True)
        ]

    def differences(self, index: int, elements: NDArray[np.int64]) -> Float:
        """Central differences [q, len(elements)] with respect to elements of one primal."""
        out = np.empty((len(self.cts), elements.size))
        for k, element in enumerate(elements):
            direction = np.zeros(self.primals[index].size)
            direction[element] = 1.0
            moved = {index: direction.reshape(self.primals[index].shape)}
            out[:, k] = [float(slope) for slope, _ in self._slopes(moved)]
        return out

    def one_sided(self, index: int, direction: Float) -> tuple[Float, Float]:
        """Slopes of every output behind and ahead of one primal, [m] each, along `direction` [n].

        An output that is not finite carries no slope: 0.
        """
        with self.xp.context.workdps(GUARDED):
            h = self.xp.const(STEP)
            step = self.xp.asarray(direction.reshape(self.primals[index].shape)) * h
            sides = []
            for move in (-step, None, step):
                moved = list(self.primals)
                if move is not None:
                    moved[index] = np.asarray(moved[index] + move, dtype=object)
                outputs = as_tuple(self.operator.forward(self.xp, *moved, **self.attrs))
                sides.append(np.concatenate([np.ravel(o) for o in outputs]))
            behind, ahead = (self._change(b, a) / h for a, b in itertools.pairwise(sides))
        return self.xp.to_float64(behind), self.xp.to_float64(ahead)

    def nearby(self, index: int, moves: Float) -> list[Float]:
        """The certified gradients [q, n] of one primal at points beside this one.

        `moves` [k, n] are added to the primal; points where the VJP is not certified are left out.
        """
        out = []
        here, still, close = self.primals, self.still, self.close
        for move in moves:
            aside = self.xp.asarray(move.reshape(here[index].shape))
            self.primals = list(here)
            self.primals[index] = np.asarray(here[index] + aside, dtype=object)
            self.still = list(still)
            self.still[index] = self.close[index]  # a point off the ties moves every element
            exact = self._vjps(self.primals)
            if self.certifies(exact):
                out.append(np.stack([self.xp.to_float64(g[index]).reshape(-1) for g in exact]))
        self.primals, self.still, self.close = here, still, close
        return out

    def probes(self, index: int, exact: Sequence[Any]) -> list[Agreement]:
        """Gradients of primal `index` in 50 digits, one per cotangent, along one direction of it.

        Raises:
            ValueError: a gradient does not have the primal's shape.
        """
        direction = self._direction(np.random.Generator(np.random.Philox(key=key_of(index))), index)
        slopes = self._slopes({index: direction})
        pairs = zip(exact, slopes, strict=True)
        return [self._agreement({index: direction}, {index: g}, slope) for g, slope in pairs]

    def certifies(self, exact: Sequence[tuple[Any, ...]]) -> bool:
        """Whether gradients in 50 digits, one tuple per cotangent, agree with the differences."""
        rng = np.random.Generator(np.random.Philox(key=key_of("oracle")))
        directions = {i: self._direction(rng, i) for i in self.floating}
        for gradients, slope in zip(exact, self._slopes(directions), strict=True):
            if len(gradients) != len(self.primals):
                return False
            try:
                found = self._agreement(directions, dict(enumerate(gradients)), slope)
            except ValueError:
                return False
            if not found.ok:
                return False
        return self._certified_close(exact)

    def _direction(self, rng: np.random.Generator, index: int) -> Float:
        """Sign × magnitude in [1/2, 3/2] for every element that may move."""
        shape = self.primals[index].shape
        r = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)
        for fixed in (self.still[index], self.close[index]):
            r = r if fixed is None else np.where(fixed, 0.0, r)
        return r

    def _agreement(
        self, directions: dict[int, Float], gradients: dict[int, Any], slope: tuple[Any, Any]
    ) -> Agreement:
        product, size = self.xp.context.zero, self.xp.context.zero
        for i, direction in directions.items():
            if gradients[i] is None or np.shape(gradients[i]) != self.primals[i].shape:
                raise ValueError(f"the gradient of primal {i} has another shape")
            along, gradient = self.xp.asarray(direction), np.asarray(gradients[i], dtype=object)
            product = product + self.xp.inner(gradient, along)
            size = size + self.xp.inner(np.abs(gradient), np.abs(along))
        allowed = self.xp.const(AGREEMENT) * size + self.xp.const(FLOOR) * slope[1]
        return Agreement(
            float(product), float(slope[0]), float(abs(product - slope[0])), float(allowed)
        )

    def _certified_close(self, exact: Sequence[tuple[Any, ...]]) -> bool:
        """The elements beside a kink, one by one."""
        for i, close in enumerate(self.close):
            for element in () if close is None else np.flatnonzero(close):
                direction = np.zeros(self.primals[i].size)
                direction[element] = 1.0
                moved = {i: direction.reshape(self.primals[i].shape)}
                for gradients, (slope, _) in zip(exact, self._slopes(moved, FINE), strict=True):
                    g = np.ravel(gradients[i])[element]
                    ok = abs(g - slope) <= self.xp.const(AGREEMENT) * max(abs(g), abs(slope))
                    if not ok:
                        return False
        return True

    def _slopes(
        self, directions: dict[int, Float], step: tuple[str, int] = (STEP, GUARDED)
    ) -> list[tuple[Any, Any]]:
        """Per cotangent: the central difference of Σ ct·f, and Σ |ct·f|."""
        with self.xp.context.workdps(step[1]):
            return self._guarded_slopes(directions, self.xp.const(step[0]))

    def _guarded_slopes(self, directions: dict[int, Float], h: Any) -> list[tuple[Any, Any]]:
        steps = {i: self.xp.asarray(direction) * h for i, direction in directions.items()}
        ends = []
        for sign in (1, -1):
            moved = list(self.primals)
            for i, step in steps.items():
                moved[i] = np.asarray(moved[i] + sign * step, dtype=object)  # 0-d sums decay to mpf
            ends.append(as_tuple(self.operator.forward(self.xp, *moved, **self.attrs)))
        zero = self.xp.context.zero
        parts = [
            (self._change(above, below), np.abs(np.where(self._infinite(above), zero, above)))
            for above, below in zip(*ends, strict=True)
        ]
        out = []
        for ct in self.cts:
            slope, size = zero, zero
            for part, (change, value) in zip(ct, parts, strict=True):
                slope = slope + self.xp.inner(part, change)
                size = size + self.xp.inner(np.abs(part), np.asarray(value, dtype=object))
            out.append((slope / (2 * h), size))
        return out

    def _exact(self, primal: Array) -> Array:
        return self.xp.asarray(primal) if primal.dtype.kind == "f" else primal

    def _change(self, above: Array, below: Array) -> Array:
        """`above` − `below`; 0 where an output stays at one infinity, which carries no slope."""
        stays = self._infinite(above) & np.asarray(above == below, dtype=bool)
        zero = self.xp.context.mpf(0)
        return np.asarray(np.where(stays, zero, above) - np.where(stays, zero, below), dtype=object)

    def _infinite(self, values: Array) -> NDArray[np.bool_]:
        return np.asarray(np.frompyfunc(self.xp.context.isinf, 1, 1)(values), dtype=bool)
