"""One primal too large for element by element: random directions, bisection, some elements.

φ = ⟨ct, forward⟩ is differenced along random directions, one cotangent after the other, as
`check_model` does with a loss: a handful of forwards whatever the size, and about six per halving
where an element is wrong. What that accuses is judged once more, alone, as any element of a small
primal is: no FAIL rests on a direction. A primal passes only if a tenth of nearly all of its
elements, or what is negligible in it, would have shown.

A float32 gradient is held, element by element, against what vjp gives in float64, and that one is
differenced: its own rounding would hide a lone element among many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.black_box import FLAT, PrimalCheck, blindness
from gradcheck.judge.compare import CANCELLED, ROUNDINGS, RULES, Rules, compare, rules_of
from gradcheck.judge.conditioning import REACH, SAFETY, Ask, Conditioning
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.locate import ALLOWED
from gradcheck.judge.projection import Projection
from gradcheck.judge.value import because
from gradcheck.numerics import sparsity
from gradcheck.numerics.adaptive_slope import TensorView
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.element_slope import excluding
from gradcheck.numerics.estimator import Estimate, NoiseProbe
from gradcheck.numerics.evaluate import REFUSALS, Evaluator, Point, flatten, keep_pages
from gradcheck.numerics.ray import Given, Scalar, unit_of
from gradcheck.numerics.sparsity import NUDGES
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

Array = NDArray[Any]
Float = NDArray[np.float64]
Proof = tuple[int, Finding]
"""An element, by its flat index, and what judging it alone found."""

AFFORDED: Final = 1 << 26
"""Numbers that forward may evaluate for one primal, element by element: some seconds."""
CALL: Final = 1 << 11
"""What a call costs at least, in numbers."""
EACH: Final = 64
PROBED: Final = 1000
"""Copies that one failing element takes; and those that take the longest to settle, together."""
PER_COLOUR: Final = 8
FIRST: Final = 256
MORE: Final = 32
"""Copies per colour, where all fail; and so many more for each of the first ones."""
SHARE: Final = 0.1
"""The part of an element that must show."""
SPARE: Final = 1000
"""One element of so many need not: it may be as small as it likes."""
FAINT: Final = {"float64": 2.0**-40, "float32": 1e-3}
"""Elements below this part of the largest need not show, as in `judge.directional`."""
SEARCH: Final = 160
"""Evaluations that may be spent on finding wrong elements of one gradient."""
NEIGHBOURS: Final = 2
"""Points beside the primals at which vjp is asked what rounding does to one element."""
CLEAR: Final = 16.0
"""An error along a direction, as a multiple of what is tolerated, that needs no whole ladder."""
ACCUSED: Final = 3
"""Elements that are looked at alone before an accusation is dropped."""


def too_large(point: Point, index: int, outputs: Sequence[Array]) -> bool:
    """Whether element by element would evaluate too many numbers, by the primal's structure."""
    x = point.primals[index]
    m = sum(o.size for o in outputs)
    width = max(m, CALL, *(p.size for p in point.primals))
    least = min(PROBED, EACH * x.size)

    def afforded(colours: int) -> bool:
        copies = least + PER_COLOUR * colours + MORE * min(colours, FIRST)
        return copies * width <= AFFORDED

    if afforded(x.size):
        return False
    if m == 1 or not afforded(1):
        return True
    rng = np.random.Generator(np.random.Philox(key=key_of("large", index)))
    return not afforded(sparsity.find(Evaluator(point, index), rng).colours)


def own_units(x: Array) -> Array:
    """Powers of two that count as one unit of each element: its own size, or the usual one."""
    size = np.abs(x)
    some = size[size > 0]
    usual = float(np.median(some)) if some.size else 1.0
    return np.asarray(np.exp2(np.frexp(np.maximum(size, usual))[1] - 1).astype(x.dtype))


class Weighted(Scalar):
    """φ = ⟨v, forward⟩; `still` until forward's values were others than those at the point."""

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
        """What independent roundings of all outputs do to φ."""
        return self.u * self._noise


@dataclass(frozen=True, slots=True)
class Promised(TensorView):
    """A place where a gradient may round as much as its dtype promises, not what one sum costs."""

    promised: float = 0.0

    @property
    def u(self) -> float:
        """What ALLOWED times that allows of ‖g∘d‖."""
        return self.promised


class Alone(Conditioning):
    """What the rounding of all primals may cost one element of a large gradient."""

    def at(self, index: int, element: int) -> Alone:
        """The same, of element `element` of primal `index`."""
        self._where = index, element
        return self

    def cost(self, index: int, reach: Float, size: Float | None = None) -> Float | None:
        """Allowance for that element, [1, 1]: few neighbours, for each is a large call."""
        place, element = self._where
        rng = np.random.Generator(np.random.Philox(key=key_of("alone", place, element)))
        wide = self._point.primals[place].dtype.name
        here = self._ask(self._point.primals, wide)
        squares = []
        for _ in range(NEIGHBOURS):
            signs = [rng.choice([-1.0, 1.0], p.shape) for p in self._point.primals]
            for far in (1.0, REACH):
                there = self._ask(self._moved(signs, far), wide)
                if here is None or there is None:
                    return None
                change = there[place][:, [element]] - here[place][:, [element]]
                squares.append((change / far) ** 2)
        near, far_off = sum(squares[::2]), sum(squares[1::2])
        return np.asarray(SAFETY * np.sqrt(np.fmin(near, far_off) / NEIGHBOURS))


class Projected:
    """One primal of a function that no spec describes, judged along directions."""

    def __init__(
        self,
        point: Point,
        index: int,
        name: str,
        cotangents: Cotangents,
        around: NoiseProbe,
        rules: Rules,
        asking: Callable[[Cotangents], Ask],
        wider: Slack | None = None,
    ) -> None:
        """Evaluate nothing yet; `asking` asks vjp, under some cotangents, wherever it is wanted.

        What does not pass is judged again by a bound that is `wider`, where that is asked for.
        """
        self._point, self._index, self._name, self._rules = point, index, name, rules
        self._cotangents, self._around, self._asking = cotangents, around, asking
        self._x = np.ascontiguousarray(point.primals[index])
        self._evaluations, self._wider = 0, wider

    def judge(self, got: Float) -> Finding:
        """The verdict on `got` [q, n]; the first cotangent under which it does not pass decides."""
        keep_pages()
        found = self._judged(got)
        if self._wider is not None and found.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            self._rules = rules_of(self._rules.dtype, self._wider.ulp)
            found = because(self._judged(got), self._wider)
        return replace(found, compared=got.size, evaluations=self._evaluations)

    def _judged(self, got: Float) -> Finding:
        strange = ~np.isfinite(got)
        if strange.any():
            return self._not_finite(got, strange)
        rows, off = self._in_float64(got)
        return self._in_detail(got, rows, off)

    def _in_detail(self, got: Float, rows: Float, off: NDArray[np.bool_]) -> Finding:
        """A finite `got`, by `rows` in float64 where it is those."""
        if not off.any():
            return self._along_all(got, rows)
        return self._off(got, rows, off) or self._along_all(got, got)

    def _along_all(self, got: Float, rows: Float) -> Finding:
        """`rows` [q, n] along directions; they stand for `got`."""
        passed = []
        for k in range(len(got)):
            finding = self._along(k, got, rows[k], rounded=rows is not got)
            if finding.verdict is not Verdict.PASS:
                return finding
            passed.append(finding)
        return max(passed, key=lambda finding: finding.smallest_visible_error or 0.0)

    def _in_float64(self, got: Float) -> tuple[Float, NDArray[np.bool_]]:
        """What vjp gives in float64 for the same numbers, and where `got` is not that, rounded."""
        nowhere = np.zeros(1, dtype=bool)
        if self._rules.dtype != "float32" or self._x.dtype != np.float64:
            return got, nowhere
        found = self._asking(self._cotangents)(self._point.primals, "float64")
        if found is None:
            return got, nowhere
        rows, u = found[self._index], self._rules.u
        size = np.abs(rows)
        bound = self._part * size + FLAT * u * size.max(axis=1, keepdims=True)
        return rows, ~(np.abs(got - rows) <= bound)

    def _not_finite(self, got: Float, strange: NDArray[np.bool_]) -> Finding:
        """It is wrong: where, and what should be there."""
        k, element = (int(i) for i in np.argwhere(strange)[0])
        count = int(strange.any(axis=0).sum())
        reason = f"{count} of {got.shape[1]} elements are not finite"
        alone = self._excluded(k, element, got) or self._alone(k, element, got)
        return self._failed(reason, count, [self._placed(alone, element)])

    def _off(self, got: Float, rows: Float, off: NDArray[np.bool_]) -> Finding | None:
        """FAIL where `got` is not what vjp gives in float64, if an element proves it."""
        k = int(off.sum(axis=1).argmax())
        error = np.where(off[k], np.abs(got[k] - rows[k]), -1.0)
        count = int(off.any(axis=0).sum())
        worst = [int(element) for element in np.argsort(error)[: -ACCUSED - 1 : -1]]
        proof = self._proved(k, worst, got, most=1)
        if proof is None:
            return None
        reason = f"{count} of {got.shape[1]} elements are not what vjp gives in float64"
        return self._failed(reason, count, [self._placed(proof[1], proof[0])])

    def _along(self, k: int, got: Float, row: Float, *, rounded: bool) -> Finding:
        """The verdict on `row` [n], under cotangent `k`; `rounded`: `got` is that in float32."""
        value, site, least = self._site(k, row, rounded=rounded)
        seed = ("check", self._name, self._cotangents.names[k])
        projection = Projection(self._name, site, seed, least=least, subject="forward", clear=CLEAR)
        if not np.isfinite(site.base):
            reason = "forward's values are too large for a sum: scale them down"
            return Finding(name=self._name, verdict=Verdict.INCONCLUSIVE, reason=reason)
        finding = projection.judge(SEARCH)
        if finding.verdict is Verdict.FAIL:
            return self._accused(k, got, row, finding, projection)
        if finding.verdict is Verdict.PASS and not row.any() and not value.still:
            reason = "the gradient is 0, but forward moves, by no more than rounding may explain"
            finding = replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)
        count = 0
        if finding.verdict is Verdict.PASS and least < np.inf:
            lone = min(projection.lone(s) for s in projection.strikes if s.ok)
            size = self._weight(row)
            count = int(np.sum((SHARE * size < lone) & (size > self._faint * size.max())))
        elif finding.verdict is not Verdict.PASS:
            count = row.size
        miss = replace(finding.worst[0], cotangent=self._cotangents.names[k])
        return replace(finding, unresolved=count, worst=(miss,))

    def _accused(
        self, k: int, got: Float, row: Float, finding: Finding, projection: Projection
    ) -> Finding:
        """Two directions say that it is wrong: FAIL if an element alone does."""
        placed = [m for m in finding.worst if len(m.index) == self._x.ndim]
        elements = [int(np.ravel_multi_index(m.index, self._x.shape)) for m in placed]
        largest = np.argsort(self._weight(row))[::-1]
        tried = [*elements, *map(int, largest[:ACCUSED])][:ACCUSED]
        proof = self._proved(k, tried, got, most=ACCUSED)
        if proof is not None:
            others = [
                self._in_its_units(miss, k)
                for miss, other in zip(placed, elements, strict=True)
                if other != proof[0]
            ]
            worst = [self._placed(proof[1], proof[0]), *others]
            return self._failed(finding.reason, finding.failed, worst)
        strikes = projection.strikes
        bounds = [max(s.tolerance, self._part * s.norm) for s in strikes]
        shares = [abs(s.error) / bound for s, bound in zip(strikes, bounds, strict=True)]
        if max(shares) <= 1 and projection.lone(strikes[0]) <= projection.least:
            nearest = int(np.argmax(shares))
            (miss,) = projection.finding(strikes[nearest]).worst
            miss = replace(miss, bound=bounds[nearest], cotangent=self._cotangents.names[k])
            return replace(finding, verdict=Verdict.PASS, reason="", failed=0, worst=(miss,))
        reason = (
            f"{finding.reason}, but {len(tried)} of the largest errors are none where one element "
            "moves alone; full=True judges each"
        )
        return replace(
            finding, verdict=Verdict.INCONCLUSIVE, reason=reason, failed=0, unresolved=row.size
        )

    def _site(self, k: int, row: Float, *, rounded: bool) -> tuple[Weighted, Promised, float]:
        """φ along directions that move each element by its own size, and what must show."""
        units = self._units
        tensor = np.asarray(self._x / units)
        primals = list(self._point.primals)

        def forward() -> tuple[Array, ...]:
            primals[self._index] = tensor * units
            return self._forward(*primals)

        value = Weighted(forward, self._cotangents.flat[k], flatten(self._around.outputs))
        weight = self._weight(row)
        largest = float(weight.max())
        some = weight[weight > self._faint * largest]
        least = np.inf
        if some.size:
            spared = some.size // SPARE
            small = float(np.partition(some, spared)[spared])
            least = max(self._rules.negligible * largest, SHARE * small)
        kind = "float64" if rounded else self._rules.dtype
        promised = max(RULES[kind].u, RULES["float64"].rtol / CANCELLED / ALLOWED)
        if not rounded:  # else it is what `got` may be off from this row
            promised += self._rules.slack * 2 * self._rules.u / ROUNDINGS
        given = Given.of(row * units.reshape(-1))
        return value, Promised(value, value(), tensor, given, unit_of(tensor), promised), least

    def _excluded(self, k: int, element: int, got: Float) -> Finding | None:
        """FAIL where a few steps of one element exclude what was given for it by far.

        Where a wider bound was asked for, that is told apart by judging it twice: not here.
        """
        if self._rules.slack:
            return None
        name, ct = self._cotangents.names[k], self._cotangents.flat[k]
        given, here = got[[k]][:, [element]], self._here(element)
        base = flatten(self._around.outputs)
        unit = float(self._units.reshape(-1)[element])
        known = excluding(self._with(element), here, base, ct, unit, float(given[0, 0]))
        if known is None:
            return None
        estimate = Estimate(
            value=np.array([[known.value]]),
            bar=np.array([[known.bar]]),
            scale=np.array([[known.scale]]),
            terms=np.array([base.size]),
            settled=np.zeros((1, 1), dtype=bool),
        )
        extra = self._rounding(k, element).cost(self._index, np.abs(given))
        blind = blindness(self._rules, here.dtype)
        found = compare(given, estimate, self._rules, extra=extra, resolution=blind)
        finding = found.finding(self._name, (), (name,))
        return finding if finding.verdict is Verdict.FAIL else None

    def _alone(self, k: int, element: int, got: Float) -> Finding:
        """One element judged as those of small primals are, all others where they were."""
        forward, here = self._with(element), self._here(element)
        moving = self._moving(forward, here, float(self._units.reshape(-1)[element]))

        def some(number: Array) -> tuple[Array, ...]:
            outputs = forward(number)
            kind = np.result_type(*outputs)
            return (np.concatenate([o.reshape(-1) for o in outputs])[moving].astype(kind),)

        point = Point(some, (here,))
        part = Cotangents((self._cotangents.names[k],), ((self._cotangents.flat[k][moving],),))
        where = ", ".join(str(i) for i in self._place(element))
        judged = PrimalCheck(
            point,
            0,
            self._name,
            part,
            NoiseProbe(point),
            self._rounding(k, element),
            subject=(f"{self._name}[{where}]", "forward"),
        )
        one = got[[k]][:, [element]]
        wider = self._wider if self._rules.slack else None
        return judged.judge(one) if wider is None else judged.judge_wider(one, wider)

    def _with(self, element: int) -> Callable[[Array], tuple[Array, ...]]:
        """Forward of one element's number, all others where they were."""
        x, primals = self._x, list(self._point.primals)

        def forward(number: Array) -> tuple[Array, ...]:
            if np.ndim(number):
                raise ValueError("one number at a time")
            moved = x.copy()
            moved.reshape(-1)[element] = number
            primals[self._index] = moved
            return self._forward(*primals)

        return forward

    def _here(self, element: int) -> Array:
        return np.array(self._x.reshape(-1)[element])

    def _rounding(self, k: int, element: int) -> Alone:
        """What rounding may cost that element under one cotangent."""
        cotangents = Cotangents((self._cotangents.names[k],), (self._cotangents.values[k],))
        rounding = Alone(self._asking(cotangents), self._point, self._rules)
        return rounding.at(self._index, element)

    def _proved(self, k: int, elements: Sequence[int], got: Float, most: int) -> Proof | None:
        """The first of `elements` that fails alone: by a few steps, or else `most` by all."""
        for element in elements:
            found = self._excluded(k, element, got)
            if found is not None:
                return element, found
        for element in elements[:most]:
            found = self._alone(k, element, got)
            if found.verdict is Verdict.FAIL:
                return element, found
        return None

    def _moving(
        self, forward: Callable[[Array], tuple[Array, ...]], here: Array, unit: float
    ) -> NDArray[np.int64]:
        """Outputs that move with one element; the first one, where none does."""
        base = flatten(self._around.outputs)
        moved = np.zeros(base.size, dtype=bool)
        for number in (np.nan, here + NUDGES[0] * unit, here - NUDGES[1] * unit):
            try:
                values = flatten(forward(np.asarray(number, here.dtype)))
            except REFUSALS:
                continue
            if values.shape == base.shape:
                moved |= values != base
        return np.flatnonzero(moved) if moved.any() else np.zeros(1, dtype=np.int64)

    def _failed(self, reason: str, count: int, worst: Sequence[Miss]) -> Finding:
        return Finding(
            name=self._name,
            verdict=Verdict.FAIL,
            reason=reason,
            failed=max(count, 1),
            worst=tuple(worst),
        )

    def _placed(self, alone: Finding, element: int) -> Miss:
        """The element that was judged alone, as one of the whole."""
        return replace(alone.worst[0], index=self._place(element))

    def _in_its_units(self, miss: Miss, k: int) -> Miss:
        """An element that bisection found, in units of the gradient."""
        unit = float(self._units[miss.index])
        numbers = (miss.got, miss.want, miss.error, miss.bound, miss.error_bar)
        got, want, error, bound, bar = (number / unit for number in numbers)
        return replace(
            miss,
            got=got,
            want=want,
            error=error,
            bound=bound,
            error_bar=bar,
            cotangent=self._cotangents.names[k],
        )

    def _forward(self, *primals: Array) -> tuple[Array, ...]:
        self._evaluations += 1
        return self._point.forward(*primals)

    def _place(self, element: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(element, self._x.shape))

    def _weight(self, row: Float) -> Float:
        """How much each element's gradient counts where it moves by its own size, [n]."""
        return np.asarray(np.abs(row) * self._units.reshape(-1))

    @property
    def _part(self) -> float:
        """The part of itself that an element may be off."""
        return self._rules.rtol + self._rules.slack * 2 * self._rules.u

    @property
    def _faint(self) -> float:
        return FAINT[self._rules.dtype]

    @cached_property
    def _units(self) -> Array:
        return own_units(self._x)
