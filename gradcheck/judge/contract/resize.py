"""The same sample in another size, by drawing its primals with other numbers of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError
from gradcheck.numerics.draw import Draw
from gradcheck.spec.suite import Case

Float = NDArray[np.float64]


class Resized(Draw):
    """Draws as its base does, with `after` elements wherever `before` are asked for."""

    def __init__(self, before: int, after: int, *names: object) -> None:
        """Seed with `names`."""
        super().__init__(*names)
        self.before, self.after = before, after

    def _to(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.after if n == self.before else n for n in shape)

    def normal(self, *shape: int, scale: float = 1.0) -> Float:
        """As in `Draw`."""
        return super().normal(*self._to(shape), scale=scale)

    def uniform(self, low: float, high: float, *shape: int) -> Float:
        """As in `Draw`."""
        return super().uniform(low, high, *self._to(shape))

    def signs(self, *shape: int) -> Float:
        """As in `Draw`."""
        return super().signs(*self._to(shape))

    def powers(self, *shape: int) -> Float:
        """As in `Draw`."""
        return super().powers(*self._to(shape))

    def near(self, centre: float, *shape: int) -> Float:
        """As in `Draw`."""
        return super().near(centre, *self._to(shape))

    def away(self, points: float | Sequence[float], *shape: int, scale: float = 1.0) -> Float:
        """As in `Draw`."""
        return super().away(points, *self._to(shape), scale=scale)

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int64]:
        """As in `Draw`; a bound that is the size of an axis follows it."""
        return super().integers(low, *self._to((high,)), *self._to(shape))

    def probabilities(self, *shape: int) -> Float:
        """As in `Draw`."""
        return super().probabilities(*self._to(shape))

    def permutation(self, count: int) -> NDArray[np.int64]:
        """As in `Draw`."""
        return super().permutation(*self._to((count,)))


def resized(case: Case, axis: int, size: int) -> Case | None:
    """The case with `size` elements along one axis of its first floating primal.

    Every axis of the same size goes with it, in all primals. None where the sample does not let
    itself be drawn so: it writes numbers out, or sizes are bound to something else.
    """
    first = next(p for p in case.primals if p.dtype.kind == "f")
    before = first.shape[axis]
    sample, seed = case.sample, case.seed
    draw = Resized(before, size, seed, case.suite, case.spec.name, sample.name, "primals", size)
    try:
        drawn = tuple(np.asarray(p) for p in sample.primals(draw))
    except Exception:  # noqa: BLE001  a sample may compute anything with what it draws
        return None
    name = f"{sample.name}.{axis % first.ndim}.{size}"
    other = replace(case, sample=replace(sample, name=name, primals=lambda _: drawn))
    try:
        shapes = [p.shape for p in other.primals]
    except SpecError:
        return None
    wanted = [tuple(size if n == before else n for n in p.shape) for p in case.primals]
    return other if shapes == wanted else None


def several_rows(primals: Sequence[Any]) -> bool:
    """Whether the first floating primal has two axes, with several elements along each."""
    first = next((p for p in primals if p.dtype.kind == "f"), None)
    return first is not None and first.ndim > 1 and min(first.shape) > 1
