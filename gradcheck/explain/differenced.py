"""The truth behind a function that no spec describes: its differences, as far as they go."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.explain.probe import SAFETY, Array, Cotangent, Float
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.numerics.estimator import Estimate, noise_lines
from gradcheck.numerics.evaluate import REFUSALS, Function, Point, flatten
from gradcheck.numerics.jacobian import EVALUATIONS, Jacobian, jacobian
from gradcheck.numerics.noise import per_output
from gradcheck.numerics.sparsity import Structure

JACOBIANS: Final = 160
"""So many are made; what is asked for later is not known."""
SECONDS: Final = 1.0
"""What calls of forward may take in all, if each takes what the fastest of the first ones took."""
TIMED: Final = 3
"""How many the first ones are."""
STACKED: Final = 0.35
"""What one copy costs among many that are stacked, and its differences, in calls."""
TICK: Final = 1e-6
"""The shortest time, in seconds, that is believed."""
BARS: Final = 2.0
"""Factor on error bars before they explain a difference."""
UNKNOWN: Final = 1e200
"""The error bar of an element at which there is no slope: nothing there is wrong."""


class Unknown(ValueError):  # noqa: N818  a gradient is
    """A gradient that nobody can tell at this cost, or at this point."""


Jacobians = tuple[Jacobian | None, ...]
"""One per primal; None for an index, and where nobody asked."""


class Differenced:
    """A function's VJP at any primals and attributes, by central differences.

    `forward(*primals, **attrs)` is the user's, `point` the same in float64 where it can be asked
    there. Each Jacobian is made once; those beyond the budget are unknown.
    """

    def __init__(
        self, forward: Callable[..., Any], point: Point, u: float, asked: Collection[int] = ()
    ) -> None:
        """See what forward costs; `u` is the unit roundoff of the code that is asked.

        `asked` are the places of the primals whose gradients are of interest everywhere.
        """
        self._forward, self._u, self._asked = forward, u, frozenset(asked)
        self._whole: set[tuple[Any, ...]] = set()
        self._mixing: dict[tuple[Any, ...], Structure] = {}
        self._blur = np.zeros(0)
        took = min(_timed(point) for _ in range(TIMED))
        self._calls = 0.0
        self._allowed = SECONDS / max(took, TICK)
        self._kinds = tuple(p.dtype for p in point.primals)
        self._sizes = tuple(p.size for p in point.primals)
        self._made: dict[tuple[Any, ...], Jacobians | None] = {}

    def affords(self, point: Point) -> bool:
        """Whether the budget is enough for Jacobians at two points."""
        size = sum(point.primals[i].size for i in point.differentiable)
        return 2 * EVALUATIONS * size <= self._allowed

    @property
    def spec(self) -> None:
        """There is no text but the code's own."""

    @cached_property
    def defaults(self) -> Attrs:
        """What forward's signature gives its arguments."""
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
        """What the differences themselves may be off, in units of the code's u."""
        flat = np.abs(flatten(ct)) * BARS / (SAFETY * self._u)
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
            self._calls += max(1.0, STACKED * copies)
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
        """None where they are not known; asked again, they are not either."""
        if self._calls > self._allowed or len(self._made) >= JACOBIANS:
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
            if self._blur.size != outputs.size:
                self._blur = per_output(noise_lines(point), outputs)
            found = {i: self._of(point, i, attrs) for i in wanted}
        except REFUSALS:
            return None
        return tuple(found.get(i) for i in range(len(typed)))

    def _of(self, point: Point, index: int, attrs: Attrs) -> Jacobian:
        """One Jacobian; which elements mix is looked up once for the same indices."""
        rows = tuple(_key(p) for p in point.primals if p.dtype.kind != "f")
        key = (index, repr(sorted(attrs.items())), rows)
        found = jacobian(point, index, self._blur, self._mixing.get(key))
        self._mixing[key] = found.mixing
        known = np.isfinite(found.bar) & np.isfinite(found.value)
        value, bar = np.where(known, found.value, 0.0), np.where(known, found.bar, UNKNOWN)
        return replace(found, value=value, bar=bar)


def _timed(point: Point) -> float:
    start = time.monotonic()
    point.forward(*(p.copy() for p in point.primals))
    return time.monotonic() - start


def _place(primals: Sequence[Array], attrs: Attrs) -> tuple[Any, ...]:
    return (repr(sorted(attrs.items())), *(_key(p) for p in primals))


def _key(primal: Array) -> tuple[Any, ...]:
    return np.shape(primal), np.asarray(primal).tobytes()


class Estimated(Differenced):
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
        """What the differences may be off, in units of the code's u."""
        rows = self._rows(ct, primals, attrs, bars=True)
        return tuple(None if row is None else row * BARS / (SAFETY * self._u) for row in rows)

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
            out.append(np.where(known, bar, UNKNOWN) if bars else np.where(known, value, 0.0))
        return tuple(out)
