"""The check of a primal that is too large to be judged element by element.

⟨ct, forward⟩ is differenced along random directions, one cotangent after the other, as
`check_model` does with a loss: a few evaluations for any size, and about six per halving to find a
wrong element. A wrong element is then judged alone, as in a small primal: no FAIL rests on a
direction. A primal passes only if an error of a tenth would have shown in nearly all of its
elements that are not negligible in it.

A float32 gradient is compared element by element with the one that vjp returns in float64, and that
one is differenced: float32 rounding would hide a single wrong element among many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.call import RowsAt
from gradcheck.judge.compare import (
    ALLOWED_ROUNDINGS,
    CANCELLATION_FACTOR,
    FAINT_SHARE,
    TOLERANCES,
    Tolerance,
    by_wider_bound,
    compare,
    tolerance_of,
)
from gradcheck.judge.conditioning import ElementConditioning
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.directional_check import DirectionalCheck
from gradcheck.judge.locate import DIRECTION_ROUNDINGS
from gradcheck.judge.primal_check import FLAT_ROUNDINGS, PrimalCheck, value_resolution
from gradcheck.numerics import sparsity
from gradcheck.numerics.arrays import Array, Float, Mask
from gradcheck.numerics.directional_slope import TensorView
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.element_slope import excluding
from gradcheck.numerics.estimator import Estimate, NoiseProbe
from gradcheck.numerics.evaluate import REFUSALS, Evaluator, Point, flatten, keep_pages
from gradcheck.numerics.line_function import Given, Scalar, unit_of
from gradcheck.numerics.sparsity import NUDGES
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

MAX_NUMBERS: Final = 1 << 26
"""Numbers that forward may evaluate for one primal, element by element: some seconds."""
MIN_CALL_COST: Final = 1 << 11
"""The least cost of a call, in numbers."""
COPIES_PER_ELEMENT: Final = 64
MAX_PROBED_COPIES: Final = 1000
"""Copies for one failing element; and for those that take the longest, together."""
COPIES_PER_COLOUR: Final = 8
FAILING_COLOURS: Final = 256
COPIES_PER_FAILING_COLOUR: Final = 32
"""Copies per colour; and so many more for each of the first colours, if all of them fail."""
VISIBLE_SHARE: Final = 0.1
"""The error that must show, relative to the element."""
ELEMENTS_PER_SPARED: Final = 1000
"""One element of so many need not show it: it may be arbitrarily small."""
MAX_EVALUATIONS: Final = 160
"""Evaluations for finding the wrong elements of one gradient."""
CLEAR_ALARM: Final = 16.0
"""An error along a direction, over its tolerance, that needs no full ladder of steps."""
MAX_ELEMENTS_ALONE: Final = 3
"""Elements judged alone before an alarm is dropped."""


def too_large(point: Point, index: int, outputs: Sequence[Array]) -> bool:
    """Whether judging by element would evaluate too many numbers, by the primal's structure."""
    x = point.primals[index]
    m = sum(o.size for o in outputs)
    width = max(m, MIN_CALL_COST, *(p.size for p in point.primals))
    least = min(MAX_PROBED_COPIES, COPIES_PER_ELEMENT * x.size)

    def afforded(colours: int) -> bool:
        copies = least + COPIES_PER_COLOUR * colours
        copies += COPIES_PER_FAILING_COLOUR * min(colours, FAILING_COLOURS)
        return copies * width <= MAX_NUMBERS

    if afforded(x.size):
        return False
    if m == 1 or not afforded(1):
        return True
    rng = np.random.Generator(np.random.Philox(key=key_of("large", index)))
    return not afforded(sparsity.find(Evaluator(point, index), rng).colours)


def element_units(x: Array) -> Array:
    """Powers of two near each element's size, or near the median size if that is larger."""
    size = np.abs(x)
    some = size[size > 0]
    usual = float(np.median(some)) if some.size else 1.0
    return np.asarray(np.exp2(np.frexp(np.maximum(size, usual))[1] - 1).astype(x.dtype))


class WeightedForward(Scalar):
    """φ = ⟨v, forward⟩; `still` while all of forward's values have been those at the point."""

    def __init__(self, function: Callable[[], Sequence[Array]], v: Float, base: Float) -> None:
        """Evaluate nothing yet; `base` [m] are forward's values at the point."""
        super().__init__(self._weigh)
        self._outputs, self._v, self._base = function, v, base
        self._noise = math.sqrt(float(np.sum((v * base) ** 2)))
        self._single = False
        self.still = True

    def _weigh(self) -> float:
        outputs = self._outputs()
        values = flatten(outputs)
        if values.shape != self._base.shape:
            raise ValueError("forward has other outputs here")
        self._single = self._single or any(o.dtype == np.float32 for o in outputs)
        self.still = self.still and np.array_equal(values, self._base)
        values = values * self._v
        return float(values.sum())  # pairwise: a running sum would round more than forward does

    @property
    def u(self) -> float:
        """The unit roundoff of forward's values."""
        return 2.0**-24 if self._single else super().u

    def rounding(self, base: float) -> float:
        """The effect of independent roundings of all outputs on φ."""
        return self.u * self._noise


@dataclass(frozen=True, slots=True)
class LargeTensorView(TensorView):
    """A tensor whose gradient may round as much as its dtype allows, beyond the cost of one sum."""

    allowed_u: float = 0.0

    @property
    def u(self) -> float:
        """The part of ‖g∘d‖ that may be lost, over DIRECTION_ROUNDINGS."""
        return self.allowed_u


@dataclass
class LargePrimalCheck:
    """One primal of a function without a spec, judged along directions.

    `rows_at(cotangents)` calls vjp at other primals. A gradient that does not pass is judged again
    by the `wider` bound, if there is one.
    """

    point: Point
    index: int
    name: str
    cotangents: Cotangents
    around: NoiseProbe
    tolerance: Tolerance
    rows_at: Callable[[Cotangents], RowsAt]
    wider: Slack | None = None
    _evaluations: int = 0

    def judge(self, got: Float) -> Finding:
        """The verdict on `got` [q, n]: that under the first cotangent under which it fails."""
        keep_pages()
        found = self._judge(got)
        if self.wider is not None and found.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            self.tolerance = tolerance_of(self.tolerance.dtype, self.wider.ulp)
            found = by_wider_bound(self._judge(got), self.wider)
        return replace(found, compared=got.size, evaluations=self._evaluations)

    def _judge(self, got: Float) -> Finding:
        not_finite = ~np.isfinite(got)
        if not_finite.any():
            return self._judge_not_finite(got, not_finite)
        rows, off = self._in_float64(got)
        if not off.any():
            return self._judge_all(got, rows)
        return self._judge_off(got, rows, off) or self._judge_all(got, got)

    def _judge_all(self, got: Float, rows: Float) -> Finding:
        """`rows` [q, n] along directions, in place of `got`."""
        passed = []
        for k in range(len(got)):
            finding = self._judge_along(k, got, rows[k], rounded=rows is not got)
            if finding.verdict is not Verdict.PASS:
                return finding
            passed.append(finding)
        return max(passed, key=lambda finding: finding.smallest_visible_error or 0.0)

    def _in_float64(self, got: Float) -> tuple[Float, Mask]:
        """The gradient that vjp returns in float64, and where `got` is not that one, rounded."""
        nowhere = np.zeros(1, dtype=bool)
        if self.tolerance.dtype != "float32" or self.x.dtype != np.float64:
            return got, nowhere
        found = self.rows_at(self.cotangents)(self.point.primals, "float64")
        if found is None:
            return got, nowhere
        rows, u = found[self.index], self.tolerance.u
        size = np.abs(rows)
        bound = self._allowed_share * size + FLAT_ROUNDINGS * u * size.max(axis=1, keepdims=True)
        return rows, ~(np.abs(got - rows) <= bound)

    def _judge_not_finite(self, got: Float, which: Mask) -> Finding:
        """FAIL, with what should stand in place of the first NaN or infinity."""
        k, element = (int(i) for i in np.argwhere(which)[0])
        count = int(which.any(axis=0).sum())
        reason = f"{count} of {got.shape[1]} elements are not finite"
        alone = self._elements
        found = alone.excluded(k, element, got) or alone.judge(k, element, got)
        return self._failed(reason, count, [self._placed(found, element)])

    def _judge_off(self, got: Float, rows: Float, off: Mask) -> Finding | None:
        """FAIL where `got` differs from vjp's gradient in float64, if an element proves it."""
        k = int(off.sum(axis=1).argmax())
        error = np.where(off[k], np.abs(got[k] - rows[k]), -1.0)
        count = int(off.any(axis=0).sum())
        worst = [int(element) for element in np.argsort(error)[: -MAX_ELEMENTS_ALONE - 1 : -1]]
        proof = self._elements.first_failing(k, worst, got, most=1)
        if proof is None:
            return None
        reason = f"{count} of {got.shape[1]} elements are not what vjp gives in float64"
        return self._failed(reason, count, [self._placed(proof[1], proof[0])])

    def _judge_along(self, k: int, got: Float, row: Float, *, rounded: bool) -> Finding:
        """The verdict on `row` [n], under cotangent `k`; `rounded`: `got` is it in float32."""
        value, view, least = self._view(k, row, rounded=rounded)
        seed = ("check", self.name, self.cotangents.names[k])
        check = DirectionalCheck(
            self.name, view, seed, least=least, subject="forward", clear=CLEAR_ALARM
        )
        if not np.isfinite(view.base):
            reason = "forward's values are too large for a sum: scale them down"
            return Finding(name=self.name, verdict=Verdict.INCONCLUSIVE, reason=reason)
        finding = check.judge(MAX_EVALUATIONS)
        if finding.verdict is Verdict.FAIL:
            return self._confirm(k, got, row, finding, check)
        if finding.verdict is Verdict.PASS and not row.any() and not value.still:
            reason = "the gradient is 0, but forward moves, by no more than rounding may explain"
            finding = replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)
        count = 0
        if finding.verdict is Verdict.PASS and least < np.inf:
            lone = min(check.lone(r) for r in check.results if r.ok)
            size = self._weight(row)
            faint = FAINT_SHARE[self.tolerance.dtype] * size.max()
            count = int(np.sum((VISIBLE_SHARE * size < lone) & (size > faint)))
        elif finding.verdict is not Verdict.PASS:
            count = row.size
        miss = replace(finding.worst[0], cotangent=self.cotangents.names[k])
        return replace(finding, unresolved=count, worst=(miss,))

    def _confirm(
        self, k: int, got: Float, row: Float, finding: Finding, check: DirectionalCheck
    ) -> Finding:
        """A failure along two directions: FAIL if a single element fails alone."""
        placed = [m for m in finding.worst if len(m.index) == self.x.ndim]
        elements = [int(np.ravel_multi_index(m.index, self.x.shape)) for m in placed]
        largest = np.argsort(self._weight(row))[::-1]
        tried = [*elements, *map(int, largest[:MAX_ELEMENTS_ALONE])][:MAX_ELEMENTS_ALONE]
        proof = self._elements.first_failing(k, tried, got, most=MAX_ELEMENTS_ALONE)
        if proof is not None:
            others = [
                self._in_units_of_gradient(miss, k)
                for miss, other in zip(placed, elements, strict=True)
                if other != proof[0]
            ]
            worst = [self._placed(proof[1], proof[0]), *others]
            return self._failed(finding.reason, finding.failed, worst)
        results = check.results
        bounds = [max(r.tolerance, self._allowed_share * r.norm) for r in results]
        shares = [abs(r.error) / bound for r, bound in zip(results, bounds, strict=True)]
        if max(shares) <= 1 and check.lone(results[0]) <= check.least:
            nearest = int(np.argmax(shares))
            (miss,) = check.finding(results[nearest]).worst
            miss = replace(miss, bound=bounds[nearest], cotangent=self.cotangents.names[k])
            return replace(finding, verdict=Verdict.PASS, reason="", failed=0, worst=(miss,))
        reason = (
            f"{finding.reason}, but {len(tried)} of the largest errors are none where one element "
            "moves alone; full=True judges each"
        )
        return replace(
            finding, verdict=Verdict.INCONCLUSIVE, reason=reason, failed=0, unresolved=row.size
        )

    def _view(
        self, k: int, row: Float, *, rounded: bool
    ) -> tuple[WeightedForward, LargeTensorView, float]:
        """φ as a function of the elements in units of their own size, and the error to be seen."""
        units = self.units
        tensor = np.asarray(self.x / units)
        primals = list(self.point.primals)

        def forward() -> tuple[Array, ...]:
            primals[self.index] = tensor * units
            return self.forward(*primals)

        base = self.base
        value = WeightedForward(forward, self.cotangents.flat[k], base)
        weight, tolerance = self._weight(row), self.tolerance
        largest = float(weight.max())
        some = weight[weight > FAINT_SHARE[tolerance.dtype] * largest]
        least = np.inf
        if some.size:
            spared = some.size // ELEMENTS_PER_SPARED
            small = float(np.partition(some, spared)[spared])
            least = max(tolerance.negligible_scale * largest, VISIBLE_SHARE * small)
        kind = "float64" if rounded else tolerance.dtype
        rtol = TOLERANCES["float64"].rtol
        allowed = max(TOLERANCES[kind].u, rtol / CANCELLATION_FACTOR / DIRECTION_ROUNDINGS)
        if not rounded:  # else the difference between `got` and this row is compared alone
            allowed += tolerance.extra_ulp * 2 * tolerance.u / ALLOWED_ROUNDINGS
        given = Given.of(row * units.reshape(-1))
        view = LargeTensorView(value, value(), tensor, given, unit_of(tensor), allowed)
        return value, view, least

    def _failed(self, reason: str, count: int, worst: Sequence[Miss]) -> Finding:
        return Finding(
            name=self.name,
            verdict=Verdict.FAIL,
            reason=reason,
            failed=max(count, 1),
            worst=tuple(worst),
        )

    def _placed(self, alone: Finding, element: int) -> Miss:
        return replace(alone.worst[0], index=self._elements.place(element))

    def _in_units_of_gradient(self, miss: Miss, k: int) -> Miss:
        """An element that bisection found, in units of the gradient."""
        unit = float(self.units[miss.index])
        return replace(
            miss,
            got=miss.got / unit,
            want=miss.want / unit,
            error=miss.error / unit,
            bound=miss.bound / unit,
            error_bar=miss.error_bar / unit,
            cotangent=self.cotangents.names[k],
        )

    def forward(self, *primals: Array) -> tuple[Array, ...]:
        """Forward, counted."""
        self._evaluations += 1
        return self.point.forward(*primals)

    def _weight(self, row: Float) -> Float:
        """The gradient with respect to each element in units of its own size, [n]."""
        return np.asarray(np.abs(row) * self.units.reshape(-1))

    @property
    def _allowed_share(self) -> float:
        return self.tolerance.rtol + self.tolerance.extra_ulp * 2 * self.tolerance.u

    @cached_property
    def _elements(self) -> SingleElements:
        return SingleElements(self)

    @cached_property
    def x(self) -> Array:
        """The primal, contiguous."""
        return np.ascontiguousarray(self.point.primals[self.index])

    @cached_property
    def base(self) -> Float:
        """Forward's values at the point, [m]."""
        return flatten(self.around.outputs)

    @cached_property
    def units(self) -> Array:
        """The size of each element, as `element_units` gives it."""
        return element_units(self.x)


@dataclass(frozen=True, slots=True)
class SingleElements:
    """The elements of one large primal, judged one at a time under one cotangent."""

    primal: LargePrimalCheck

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
        if self.primal.tolerance.extra_ulp:
            return None
        name, ct = self.primal.cotangents.names[k], self.primal.cotangents.flat[k]
        given, here = got[[k]][:, [element]], self._number(element)
        unit = float(self.primal.units.reshape(-1)[element])
        known = excluding(
            self._moving(element), here, self.primal.base, ct, unit, float(given[0, 0])
        )
        if known is None:
            return None
        estimate = Estimate(
            value=np.array([[known.value]]),
            bar=np.array([[known.bar]]),
            scale=np.array([[known.scale]]),
            terms=np.array([self.primal.base.size]),
            settled=np.zeros((1, 1), dtype=bool),
        )
        extra = self._rounding_cost(k, element).cost(self.primal.index, np.abs(given))
        resolution = value_resolution(self.primal.tolerance, here.dtype)
        found = compare(given, estimate, self.primal.tolerance, extra=extra, resolution=resolution)
        finding = found.finding(self.primal.name, (), (name,))
        return finding if finding.verdict is Verdict.FAIL else None

    def judge(self, k: int, element: int, got: Float) -> Finding:
        """The verdict on one element of `got` [q, n] under cotangent `k`."""
        forward, here = self._moving(element), self._number(element)
        outputs = self._dependent_outputs(
            forward, here, float(self.primal.units.reshape(-1)[element])
        )

        def some(number: Array) -> tuple[Array, ...]:
            values = forward(number)
            kind = np.result_type(*values)
            return (np.concatenate([v.reshape(-1) for v in values])[outputs].astype(kind),)

        point = Point(some, (here,))
        name, ct = self.primal.cotangents.names[k], self.primal.cotangents.flat[k][outputs]
        where = ", ".join(str(i) for i in self.place(element))
        check = PrimalCheck(
            point,
            0,
            self.primal.name,
            Cotangents((name,), ((ct,),)),
            NoiseProbe(point),
            self._rounding_cost(k, element),
            subject=(f"{self.primal.name}[{where}]", "forward"),
        )
        one = got[[k]][:, [element]]
        wider = self.primal.wider if self.primal.tolerance.extra_ulp else None
        return check.judge(one) if wider is None else check.judge_wider(one, wider)

    def place(self, element: int) -> tuple[int, ...]:
        """The index of an element in the primal's shape."""
        return tuple(int(i) for i in np.unravel_index(element, self.primal.x.shape))

    def _number(self, element: int) -> Array:
        return np.array(self.primal.x.reshape(-1)[element])

    def _moving(self, element: int) -> Callable[[Array], tuple[Array, ...]]:
        """Forward as a function of that element's number."""
        x, primals = self.primal.x, list(self.primal.point.primals)

        def forward(number: Array) -> tuple[Array, ...]:
            if np.ndim(number):
                raise ValueError("one number at a time")
            moved = x.copy()
            moved.reshape(-1)[element] = number
            primals[self.primal.index] = moved
            return self.primal.forward(*primals)

        return forward

    def _dependent_outputs(
        self, forward: Callable[[Array], tuple[Array, ...]], here: Array, unit: float
    ) -> NDArray[np.int64]:
        """Outputs that change with the element; the first output, where none does."""
        changed = np.zeros(self.primal.base.size, dtype=bool)
        for number in (np.nan, here + NUDGES[0] * unit, here - NUDGES[1] * unit):
            try:
                values = flatten(forward(np.asarray(number, here.dtype)))
            except REFUSALS:
                continue
            if values.shape == self.primal.base.shape:
                changed |= values != self.primal.base
        return np.flatnonzero(changed) if changed.any() else np.zeros(1, dtype=np.int64)

    def _rounding_cost(self, k: int, element: int) -> ElementConditioning:
        one = Cotangents((self.primal.cotangents.names[k],), (self.primal.cotangents.values[k],))
        rows_at = self.primal.rows_at(one)
        return ElementConditioning(
            rows_at, self.primal.point, self.primal.tolerance, self.primal.index, element
        )
