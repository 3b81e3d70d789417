"""What a right VJP may lose at a point, asked of the VJP judged: conditioning, and loss inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.returned import Broken
from gradcheck.judge.compare import RULES, Rules
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.probe import Answer, ask_vjp
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.noise import RELATIVE
from gradcheck.results.finding import Finding

Array = NDArray[Any]
Float = NDArray[np.float64]
Ask = Callable[[tuple[Array, ...], str], list[Float] | None]
"""What the code judged gives at other primals, in a dtype: rows [q, n] per part (None: nothing)."""

NEIGHBOURS: Final = 8
REACH: Final = 2.0**10
"""How many times further away the farther neighbours are: what rounding does grows with it; what
is noise, a gradient that is wrong otherwise at every point, does not."""
CANCELS: Final = {"float64": 2.0**-28, "float32": 2.0**-15, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""What may be left where terms cancel, as a part of them: no more than what moves with the last bit
of the primals, and less than what a narrower type leaves."""
SAFETY: Final = 8.0
"""Eight neighbours bound the next one within this factor of their root mean square."""


class Allowing(Protocol):
    """What a right VJP may lose at a point."""

    rules: Rules

    def cost(self, index: int, reach: Float, size: Float | None = None) -> Float | None:
        """Allowance for the gradient of primal `index`, [q, n]; None if it cannot be told.

        `reach` [q, n] are slopes from afar, `size` [q, n] what terms may come to that cancel.
        """


class Conditioning:
    """What a right VJP may lose at this point, asked of the VJP judged at neighbouring points.

    Two things: what rounding the primals alone does to the gradient (layer_norm at 1000 ± 1 knows
    its rows to 6e-5 of their spread in float32, however it is computed), and what float32 loses
    against float64 inside (1 − y of a saturated softmax), up to some roundings of the largest
    slope that forward shows from afar. A wrong formula is equally wrong at all points and in both
    dtypes, and gains nothing; noise that follows the primals gains a thousandth of itself, because
    farther neighbours must not differ by more in proportion.
    """

    def __init__(self, ask: Ask, point: Point, rules: Rules, *, noisy: bool = False) -> None:
        """Ask nothing yet: a gradient that passes needs no allowance.

        With `noisy`, noise that follows the primals is allowed too.
        """
        self.rules = rules
        self._noisy = noisy
        self._ask, self._point = ask, point

    def cost(self, index: int, reach: Float, size: Float | None = None) -> Float | None:
        """Allowance for the gradient of primal `index`, [q, n]; None if it cannot be told.

        `size` [q, n] is what terms that cancel in the gradient may come to.
        """
        if self._costs is None:
            return None
        moved, lost, noise = (costs[index] for costs in self._costs)
        if size is not None:
            moved = np.maximum(moved, np.minimum(noise, CANCELS[self.rules.dtype] * size))
        # Roundings are lumpy: an element that lost nothing at eight neighbours may do so here.
        lost = np.maximum(lost, np.sqrt(np.mean(lost**2, axis=1, keepdims=True)))
        return moved + np.minimum(lost, RELATIVE * self.rules.u * reach)

    @cached_property
    def _costs(self) -> tuple[list[Float], list[Float], list[Float]] | None:
        """Per primal, what moves with its last bit, what is lost inside, and all that moves.

        Arrays are [q, n].
        """
        wide = next(p.dtype for p in self._point.primals if p.dtype.kind == "f")
        here = self._ask(self._point.primals, wide.name)
        if here is None:
            return None
        near, far, lost = ([np.zeros_like(g) for g in here] for _ in range(3))
        rng = np.random.Generator(np.random.Philox(key=key_of("conditioning")))
        for _ in range(NEIGHBOURS):
            signs = [rng.choice([-1.0, 1.0], p.shape) for p in self._point.primals]
            for totals, reach in ((near, 1.0), (far, REACH)):
                there = self._ask(self._moved(signs, reach), wide.name)
                _add_squares(totals, there, here, 1 / reach)
            single = self._moved(signs, 1.0, np.dtype(np.float32))
            rough = self._ask(single, "float32")
            fine = self._ask(tuple(_typed(p, wide) for p in single), wide.name)
            _add_squares(lost, rough, fine, self.rules.u / RULES["float32"].u)
        pairs = zip(near, far, strict=True)
        least = [a if self._noisy else np.minimum(a, b) for a, b in pairs]
        rms = [[SAFETY * np.sqrt(t / NEIGHBOURS) for t in totals] for totals in (least, lost, near)]
        # A sum that cancels exactly at most neighbours does not at all.
        every = [np.maximum(a, b) for a, b in zip(rms[1], rms[2], strict=True)]
        noise = [
            np.maximum(t, np.sqrt(np.mean(t**2, axis=1, keepdims=True))) if t.size else t
            for t in every
        ]
        return rms[0], rms[1], noise

    def _moved(
        self, signs: list[Float], reach: float, dtype: np.dtype[Any] | None = None
    ) -> tuple[Array, ...]:
        """The primals, `reach` units of rounding away."""
        pairs = zip(self._point.primals, signs, strict=True)
        return tuple(
            _typed(p * (1 + sign * reach * self.rules.u), dtype or p.dtype)
            if p.dtype.kind == "f"
            else p
            for p, sign in pairs
        )


def asking(vjp: Callable[..., Any], cotangents: Cotangents, attrs: Attrs, role: str = "vjp") -> Ask:
    """Gradients [q, n] per primal (an index has none, [q, 0]); None if `vjp` refuses."""

    def ask(primals: tuple[Array, ...], dtype: str) -> list[Float] | None:
        names = [str(i) for i in range(len(primals))]
        cts = cotangents.typed(dtype)
        try:
            answer = ask_vjp(vjp, cts, primals, names, attrs, role)
        except Broken:
            return None
        return rows_of(answer, names, len(cts))

    return ask


def rows_of(answer: Answer, names: Sequence[str], count: int) -> list[Float] | None:
    """The rows of an answer in the order of `names`; None if something is wrong with one."""
    out = []
    for name in names:
        found = answer.gradients.get(name, np.zeros((count, 0)))
        if isinstance(found, Finding):
            return None
        out.append(found)
    return out


def _typed(primal: Array, dtype: np.dtype[Any]) -> Array:
    """A floating primal in another dtype; an index stays."""
    with np.errstate(over="ignore"):  # what is beyond float32 is infinite there
        return primal.astype(dtype) if primal.dtype.kind == "f" else primal


def _add_squares(
    totals: list[Float], first: list[Float] | None, second: list[Float] | None, unit: float
) -> None:
    """Add squared differences, times `unit`², to `totals`; a refused answer adds nothing."""
    if first is None or second is None:
        return
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        with np.errstate(all="ignore"):
            square = ((a - b) * unit) ** 2
        totals[i] = totals[i] + np.where(np.isfinite(square), square, 0.0)
