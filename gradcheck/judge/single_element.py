"""Single elements of a large primal, each judged as in a small one, with all others fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.call import RowsAt
from gradcheck.judge.compare import Tolerance, compare
from gradcheck.judge.conditioning import ElementConditioning
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.function_primal import PrimalCheck, value_resolution
from gradcheck.numerics.element_slope import excluding
from gradcheck.numerics.estimator import Estimate, NoiseProbe
from gradcheck.numerics.evaluate import REFUSALS, Function, Point, flatten
from gradcheck.numerics.sparsity import NUDGES
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

Array = NDArray[Any]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SingleElements:
    """The elements of one primal of `point`, judged one at a time under one cotangent.

    `forward` is that of the point, counted; `base` are its values there. `rows_at(cotangents)`
    calls vjp at other primals. `units` are the sizes of the elements. `wider` is a bound that the
    user asks for, in use where `tolerance` has extra ulp.
    """

    forward: Function
    point: Point
    index: int
    name: str
    cotangents: Cotangents
    base: Float
    tolerance: Tolerance
    rows_at: Callable[[Cotangents], RowsAt]
    units: Array
    wider: Slack | None

    def first_failing(
        self, k: int, elements: Sequence[int], got: Float, most: int
    ) -> tuple[int, Finding] | None:
        """The first of `elements` that fails under cotangent `k`, and its finding.

        A few steps exclude it or, for the first `most` elements, the whole check does.
        """
        for element in elements:
            found = self.excluded(k, element, got)
            if found is not None:
                return element, found
        for element in elements[:most]:
            found = self.judge(k, element, got)
            if found.verdict is Verdict.FAIL:
                return element, found
        return None

    def excluded(self, k: int, element: int, got: Float) -> Finding | None:
        """FAIL where a few steps exclude the element of `got` [q, n] by far.

        None with a wider bound: whether that is needed shows in judging the element twice.
        """
        if self.tolerance.extra_ulp:
            return None
        name, ct = self.cotangents.names[k], self.cotangents.flat[k]
        given, here = got[[k]][:, [element]], self._number(element)
        unit = float(self.units.reshape(-1)[element])
        known = excluding(self._moving(element), here, self.base, ct, unit, float(given[0, 0]))
        if known is None:
            return None
        estimate = Estimate(
            value=np.array([[known.value]]),
            bar=np.array([[known.bar]]),
            scale=np.array([[known.scale]]),
            terms=np.array([self.base.size]),
            settled=np.zeros((1, 1), dtype=bool),
        )
        extra = self._rounding_cost(k, element).cost(self.index, np.abs(given))
        resolution = value_resolution(self.tolerance, here.dtype)
        found = compare(given, estimate, self.tolerance, extra=extra, resolution=resolution)
        finding = found.finding(self.name, (), (name,))
        return finding if finding.verdict is Verdict.FAIL else None

    def judge(self, k: int, element: int, got: Float) -> Finding:
        """The verdict on one element of `got` [q, n] under cotangent `k`."""
        forward, here = self._moving(element), self._number(element)
        outputs = self._dependent_outputs(forward, here, float(self.units.reshape(-1)[element]))

        def some(number: Array) -> tuple[Array, ...]:
            values = forward(number)
            kind = np.result_type(*values)
            return (np.concatenate([v.reshape(-1) for v in values])[outputs].astype(kind),)

        point = Point(some, (here,))
        name, ct = self.cotangents.names[k], self.cotangents.flat[k][outputs]
        where = ", ".join(str(i) for i in self.place(element))
        check = PrimalCheck(
            point,
            0,
            self.name,
            Cotangents((name,), ((ct,),)),
            NoiseProbe(point),
            self._rounding_cost(k, element),
            subject=(f"{self.name}[{where}]", "forward"),
        )
        one = got[[k]][:, [element]]
        wider = self.wider if self.tolerance.extra_ulp else None
        return check.judge(one) if wider is None else check.judge_wider(one, wider)

    def place(self, element: int) -> tuple[int, ...]:
        """The index of an element in the primal's shape."""
        return tuple(int(i) for i in np.unravel_index(element, self._x.shape))

    @property
    def _x(self) -> Array:
        return np.ascontiguousarray(self.point.primals[self.index])

    def _number(self, element: int) -> Array:
        return np.array(self._x.reshape(-1)[element])

    def _moving(self, element: int) -> Callable[[Array], tuple[Array, ...]]:
        """Forward as a function of that element's number."""
        x, primals = self._x, list(self.point.primals)

        def forward(number: Array) -> tuple[Array, ...]:
            if np.ndim(number):
                raise ValueError("one number at a time")
            moved = x.copy()
            moved.reshape(-1)[element] = number
            primals[self.index] = moved
            return self.forward(*primals)

        return forward

    def _dependent_outputs(
        self, forward: Callable[[Array], tuple[Array, ...]], here: Array, unit: float
    ) -> NDArray[np.int64]:
        """Outputs that change with the element; the first output, where none does."""
        changed = np.zeros(self.base.size, dtype=bool)
        for number in (np.nan, here + NUDGES[0] * unit, here - NUDGES[1] * unit):
            try:
                values = flatten(forward(np.asarray(number, here.dtype)))
            except REFUSALS:
                continue
            if values.shape == self.base.shape:
                changed |= values != self.base
        return np.flatnonzero(changed) if changed.any() else np.zeros(1, dtype=np.int64)

    def _rounding_cost(self, k: int, element: int) -> ElementConditioning:
        one = Cotangents((self.cotangents.names[k],), (self.cotangents.values[k],))
        rows_at = self.rows_at(one)
        return ElementConditioning(rows_at, self.point, self.tolerance, self.index, element)
