"""Probes of a function without a spec: differences of forward stand for the true VJP."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.explain.probe import (
    ROUNDING_SAFETY,
    UNITS,
    Array,
    Cotangent,
    Float,
    Probe,
    returned_arrays,
)
from gradcheck.implementations.checked_call import CheckedCall
from gradcheck.implementations.returned import Broken
from gradcheck.judge.cotangents import Cotangents
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Estimate, noise_lines
from gradcheck.numerics.evaluate import REFUSALS, Function, Point, flatten
from gradcheck.numerics.jacobian import EVALUATIONS, Jacobian, jacobian
from gradcheck.numerics.noise import per_output
from gradcheck.numerics.sparsity import Structure

MAX_JACOBIANS: Final = 160
"""So many are made; what is asked for later is not known."""
MAX_SECONDS: Final = 1.0
"""What calls of forward may take in all, if each takes what the fastest of the first ones took."""
TIMED_CALLS: Final = 3
STACKED_COST: Final = 0.35
"""What one copy costs among many that are stacked, and its differences, in calls."""
MIN_SECONDS: Final = 1e-6
BAR_FACTOR: Final = 2.0
NO_SLOPE_BAR: Final = 1e200
"""The error bar of an element at which there is no slope: nothing there is wrong."""


class Unknown(ValueError):  # noqa: N818  a gradient is
    """A gradient that cannot be differenced at this point, or within the budget."""


Jacobians = tuple[Jacobian | None, ...]
"""One per primal; None for an index, and for a primal not asked for."""


class DifferenceTruth:
    """A function's VJP at any primals and attributes, by central differences.

    `forward(*primals, **attrs)` is the user's, `point` the same in float64 where it can be asked
    there. Each Jacobian is made once; those beyond the budget are unknown.
    """

    def __init__(
        self, forward: Callable[..., Any], point: Point, u: float, asked: Collection[int] = ()
    ) -> None:
        """Time forward; `u` is the unit roundoff of the code judged.

        `asked` are the places of the primals whose gradients are of interest everywhere.
        """
        self._forward, self._u, self._asked = forward, u, frozenset(asked)
        self._whole: set[tuple[Any, ...]] = set()
        self._mixing: dict[tuple[Any, ...], Structure] = {}
        self._rounding_bounds = np.zeros(0)
        took = min(_timed(point) for _ in range(TIMED_CALLS))
        self._calls = 0.0
        self._allowed = MAX_SECONDS / max(took, MIN_SECONDS)
        self._kinds = tuple(p.dtype for p in point.primals)
        self._sizes = tuple(p.size for p in point.primals)
        self._made: dict[tuple[Any, ...], Jacobians | None] = {}

    def affords(self, point: Point) -> bool:
        """Whether the budget is enough for Jacobians at two points."""
        size = sum(point.primals[i].size for i in point.differentiable)
        return 2 * EVALUATIONS * size <= self._allowed

    @property
    def spec(self) -> None:
        """None: there is no spec."""

    @cached_property
    def defaults(self) -> Attrs:
        """Default values in forward's signature."""
        try:
            parameters = inspect.signature(self._forward).parameters.values()
        except (TypeError, ValueError):  # none can be seen
            return {}
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    @property
    def choices(self) -> Mapping[str, Sequence[Any]]:
        """No other values are known."""
        return {}

    def forward(self, primals: Sequence[Array], attrs: Attrs) -> tuple[Float, ...]:
        """Forward's outputs.

        Raises:
            Unknown: it is not defined there.
        """
        typed = [p.astype(kind) for p, kind in zip(primals, self._kinds, strict=True)]
        try:
            with np.errstate(all="ignore"):
                return self._function(attrs)(*typed)
        except REFUSALS as error:
            raise Unknown(str(error)) from None

    def vjp(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """Sums of ct·J.

        Raises:
            Unknown: forward is not defined there, has other outputs, or the budget is spent.
        """
        flat = flatten(ct)
        return tuple(
            None if j is None else self._sum(flat, j.value).reshape(np.shape(p))
            for p, j in zip(primals, self._jacobians(primals, attrs), strict=True)
        )

    def cost(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """Error bars of the differences, in units of the code's u."""
        flat = np.abs(flatten(ct)) * BAR_FACTOR / (ROUNDING_SAFETY * self._u)
        return tuple(
            None if j is None else self._sum(flat, j.bar).reshape(np.shape(p))
            for p, j in zip(primals, self._jacobians(primals, attrs), strict=True)
        )

    def stand(self, primals: Sequence[Array], attrs: Attrs) -> None:
        """Difference every primal here, and not those alone that were asked for."""
        self._whole.add(_place(primals, attrs))

    @staticmethod
    def _sum(ct: Float, rows: Float) -> Float:
        if len(ct) != len(rows):
            raise Unknown("forward has other outputs there")
        return np.asarray(ct @ rows)

    def _function(self, attrs: Attrs) -> Function:
        def function(*values: Array) -> tuple[Array, ...]:
            pairs = zip(values, self._sizes, strict=True)
            copies = max((np.size(v) / n for v, n in pairs if n), default=1.0)
            self._calls += max(1.0, STACKED_COST * copies)
            return tuple(np.asarray(o) for o in as_tuple(self._forward(*values, **attrs)))

        return function

    def _jacobians(self, primals: Sequence[Array], attrs: Attrs) -> Jacobians:
        place = _place(primals, attrs)
        if place not in self._made:
            whole = place in self._whole
            self._made[place] = self._differenced(primals, attrs, whole=whole)
        found = self._made[place]
        if found is None:
            raise Unknown("forward has no slopes there, or the budget is spent")
        return found

    def _differenced(
        self, primals: Sequence[Array], attrs: Attrs, *, whole: bool
    ) -> Jacobians | None:
        """None where they are unknown, which is remembered."""
        if self._calls > self._allowed or len(self._made) >= MAX_JACOBIANS:
            return None
        typed = tuple(
            np.asarray(p).astype(kind) for p, kind in zip(primals, self._kinds, strict=True)
        )
        if not all(np.isfinite(p).all() for p in typed):
            return None
        point = Point(self._function(attrs), typed)
        wanted = [i for i in point.differentiable if whole or i in self._asked]
        try:
            outputs = flatten(self.forward(primals, attrs))
            if not np.isfinite(outputs).all():
                return None
            if self._rounding_bounds.size != outputs.size:
                self._rounding_bounds = per_output(noise_lines(point), outputs)
            found = {i: self._of(point, i, attrs) for i in wanted}
        except REFUSALS:
            return None
        return tuple(found.get(i) for i in range(len(typed)))

    def _of(self, point: Point, index: int, attrs: Attrs) -> Jacobian:
        """One Jacobian; its sparsity is determined once for the same indices."""
        rows = tuple(_key(p) for p in point.primals if p.dtype.kind != "f")
        key = (index, repr(sorted(attrs.items())), rows)
        found = jacobian(point, index, self._rounding_bounds, self._mixing.get(key))
        self._mixing[key] = found.mixing
        known = np.isfinite(found.bar) & np.isfinite(found.value)
        value, bar = np.where(known, found.value, 0.0), np.where(known, found.bar, NO_SLOPE_BAR)
        return replace(found, value=value, bar=bar)


def _timed(point: Point) -> float:
    start = time.monotonic()
    point.forward(*(p.copy() for p in point.primals))
    return time.monotonic() - start


def _place(primals: Sequence[Array], attrs: Attrs) -> tuple[Any, ...]:
    return (repr(sorted(attrs.items())), *(_key(p) for p in primals))


def _key(primal: Array) -> tuple[Any, ...]:
    return np.shape(primal), np.asarray(primal).tobytes()


class PointTruth(DifferenceTruth):
    """A function's VJP at one point alone, as far as a check has differenced it.

    `known` holds gradients by the places of primals, one row for each of `cts` [q, m].
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        point: Point,
        u: float,
        attrs: Attrs,
        cts: Float,
        known: Mapping[int, Estimate],
    ) -> None:
        """Difference nothing more."""
        super().__init__(forward, point, u)
        self._primals, self._attrs, self._cts, self._known = point.primals, attrs, cts, known

    def vjp(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """What was differenced.

        Raises:
            Unknown: this was not.
        """
        return self._rows(ct, primals, attrs, bars=False)

    def cost(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """Error bars of the differences, in units of the code's u."""
        rows = self._rows(ct, primals, attrs, bars=True)
        return tuple(
            None if row is None else row * BAR_FACTOR / (ROUNDING_SAFETY * self._u) for row in rows
        )

    def _rows(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs, *, bars: bool
    ) -> tuple[Float | None, ...]:
        rows = np.flatnonzero((self._cts == flatten(ct)).all(axis=1))
        here = all(np.array_equal(a, b) for a, b in zip(primals, self._primals, strict=True))
        if not (rows.size and here and attrs == self._attrs):
            raise Unknown("nothing was differenced there")
        out: list[Float | None] = []
        for i, primal in enumerate(self._primals):
            if i not in self._known:
                out.append(None)
                continue
            found = self._known[i]
            value, bar = (a[rows[0]].reshape(primal.shape) for a in (found.value, found.bar))
            known = np.isfinite(value) & np.isfinite(bar)
            out.append(np.where(known, bar, NO_SLOPE_BAR) if bars else np.where(known, value, 0.0))
        return tuple(out)


MAX_DIFFERENCED_INPUTS: Final = 400
"""Elements of all primals above which only what the check has differenced is known."""
MAX_DIFFERENCED_OUTPUTS: Final = 1600
"""Elements of all outputs, likewise."""
HERE: Final = "the point checked"
POINT_FACTORS: Final = ((0.75, 1.25), (1.25, 1.75))
"""Factors on the primals, drawn for each element: signs stay, and so does what is zero."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The arguments and intermediate results of one `gradcheck.check`.

    `point` is forward in float64, where it can be asked there; `kinds` are the dtypes of its
    outputs as they are given; `estimates` are gradients under `cotangents`, by the names of
    primals; `rules` names those that may be tried (None: all).
    """

    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    primals: tuple[Array, ...]
    names: tuple[str, ...]
    attrs: Attrs
    dtype: str
    point: Point
    kinds: tuple[np.dtype[Any], ...]
    cotangents: Cotangents
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    rules: frozenset[str] | None = None


class FunctionProbes:
    """Probes of one function, made when the first is needed.

    `wrong` are the names of the gradients that fail: only these are differenced at other points.
    """

    def __init__(self, checked: Checked, wrong: frozenset[str]) -> None:
        """Ask nothing yet."""
        self._checked, self._wrong = checked, wrong

    def own(self) -> Probe | None:
        """A new probe at the point checked: code that is not repeatable gives other bits there."""
        checked = self._checked
        return self._probe(HERE, checked.primals, checked.attrs, self._cts[0])

    def probes(self, output: str, *, compared: bool = True) -> list[Probe]:
        """Probes at which the gradient of `output` is known; where no numbers compare, all."""
        return [p for p in self._probes if output in p.right or not compared]

    @cached_property
    def _truth(self) -> DifferenceTruth:
        checked, point = self._checked, self._checked.point
        u = UNITS[checked.dtype]
        moving = sum(point.primals[i].size for i in point.differentiable)
        outputs = checked.cotangents.flat.shape[1]
        if moving <= MAX_DIFFERENCED_INPUTS and outputs <= MAX_DIFFERENCED_OUTPUTS:
            asked = [i for i, name in enumerate(checked.names) if name in self._wrong]
            truth = DifferenceTruth(checked.forward, point, u, asked)
            if truth.affords(point):
                return truth
        known = {i: checked.estimates[name] for i, name in enumerate(checked.names)
                 if name in checked.estimates}  # fmt: skip
        cts = checked.cotangents.flat
        return PointTruth(checked.forward, point, u, checked.attrs, cts, known)

    @cached_property
    def _probes(self) -> list[Probe]:
        """At the point checked under two cotangents, at other primals, and at other attributes.

        One numeric attribute at a time is moved, so that a factor of its name is no constant.
        """
        checked = self._checked
        primals, attrs = checked.primals, checked.attrs
        points: list[tuple[str, tuple[Array, ...], Attrs, Cotangent]]
        points = [(HERE, primals, attrs, ct) for ct in self._cts[:2]]
        if not isinstance(self._truth, PointTruth):
            shapes = [part.shape for part in self._cts[0]]
            for seed, factors in enumerate(POINT_FACTORS):
                draw = Draw("black box", seed, *shapes)
                ct = tuple(draw.away(0.0, *shape) for shape in shapes)
                points.append(("other primals", _moved(primals, draw, factors), attrs, ct))
            for key, value in attrs.items():
                if isinstance(value, float) and np.isfinite(value):
                    other = {**attrs, key: 1.5 * value + 0.0625}
                    points.append((f"{key} = {other[key]:g}", primals, other, self._cts[0]))
        found = [self._probe(*point) for point in points]
        return [probe for probe in found if probe is not None]

    @property
    def _cts(self) -> tuple[Cotangent, ...]:
        return self._checked.cotangents.values

    def _probe(
        self, where: str, primals: tuple[Array, ...], attrs: Attrs, ct: Cotangent
    ) -> Probe | None:
        """None where forward is not defined, or the code fails."""
        checked, truth = self._checked, self._truth
        names = checked.names
        wide = tuple(p.astype(np.float64) if p.dtype.kind == "f" else p for p in primals)

        def call(ct: Cotangent) -> dict[str, Array | None]:
            # A forward that saves what its backward reads must have seen these primals last.
            CheckedCall("forward", checked.forward)((), primals, names, attrs)
            typed = tuple(p.astype(kind) for p, kind in zip(ct, checked.kinds, strict=True))
            out = CheckedCall("vjp", checked.vjp)(typed, primals, names, attrs)
            return returned_arrays(names, as_tuple(out))

        try:
            outputs = truth.forward(wide, attrs)
            if not all(np.isfinite(o).all() for o in outputs):
                return None
            truth.stand(wide, attrs)
            return Probe.asked(
                call, where=where, seed=0, names=names, primals=wide, attrs=attrs, ct=ct,
                truth=truth, dtype=checked.dtype,
            )  # fmt: skip
        except (Broken, Unsupported, Unknown):
            return None


def _moved(primals: Sequence[Array], draw: Draw, factors: tuple[float, float]) -> tuple[Array, ...]:
    return tuple(
        (p * draw.uniform(*factors, *p.shape)).astype(p.dtype) if p.dtype.kind == "f" else p
        for p in primals
    )
