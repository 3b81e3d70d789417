"""One point at which code was asked for its gradients, with the true gradients there.

A rule looks at probes alone. It may evaluate the true VJP there with other cotangents, primals or
attributes, and ask the code itself again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.returned import Missing, as_array
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.spec.operator import OpSpec

Float = NDArray[np.float64]

ROUNDING_TOLERANCE: Final = {
    "mp50": 1e-13,
    "float64": 1e-10,
    "float32": 3e-5,
    "bfloat16": 6e-2,
    "float16": 8e-3,
}
"""Distance, relative to the largest element, that rounding alone explains."""
UNITS: Final = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""The unit roundoff of each dtype that code is judged in."""
MAX_RELATIVE_DISTANCE: Final = 0.01
"""A hypothesis must be so many times nearer to what was returned than the right VJP is."""


def as_float64(x: Any) -> Float:
    """Numbers in float64, whatever they were."""
    return np.asarray(x, dtype=np.float64)


def close(a: Any, b: Any, dtype: str, floor: float = 0.0) -> NDArray[np.bool_]:
    """Which elements of `a` and `b` differ by no more than rounding.

    It is measured by the largest of `b`, but by no less than `floor`.
    """
    a, b = as_float64(a), as_float64(b)
    with np.errstate(all="ignore"):
        size = max(float(np.max(np.abs(b), initial=0.0)), floor)
        same = (np.abs(a - b) <= ROUNDING_TOLERANCE[dtype] * size) | (a == b)
    return np.asarray(same)


def near(a: Any, b: Any, dtype: str, floor: float = 0.0) -> bool:
    """Whether all elements are; None is near None alone."""
    if a is None or b is None or np.shape(a) != np.shape(b):
        return a is b
    return bool(close(a, b, dtype, floor).all())


def agree(a: Float, b: Float, tolerance: float = 1e-9) -> bool:
    """Whether two arrays agree within `tolerance` times the largest element of `b`."""
    with np.errstate(all="ignore"):
        return bool((np.abs(a - b) <= tolerance * np.max(np.abs(b), initial=0.0)).all())


def reproduces(hypothesis: Any, got: Any, right: Any, dtype: str, floor: float = 0.0) -> bool:
    """Whether a prediction equals the returned gradient to rounding, and the right one does not."""
    if hypothesis is None or np.shape(hypothesis) != np.shape(got):
        return False
    if not near(hypothesis, got, dtype, floor) or near(right, got, dtype, floor):
        return False
    a, b, c = as_float64(hypothesis), as_float64(got), as_float64(right)
    with np.errstate(all="ignore"):
        mine, its = np.abs(a - b), np.abs(c - b)
    mine, its = (np.where(np.isfinite(d), d, 0.0) for d in (mine, its))
    return bool(np.max(mine, initial=0.0) <= MAX_RELATIVE_DISTANCE * np.max(its, initial=0.0))


Array = NDArray[Any]
Mask = NDArray[np.bool_]
Gradients = Mapping[str, Float]
Cotangent = tuple[Float, ...]

RAISES: Final = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What a right function may raise where it is not defined."""
ROUNDING_SAFETY: Final = 4.0
"""Factor on what rounding is estimated to cost before it explains a difference."""


class Truth(Protocol):
    """The right function behind a gradient, in float64, wherever it is defined.

    `forward(primals, attrs)` returns a tuple of outputs, `vjp(ct, primals, attrs)` one gradient per
    primal (None for an index), `cost(ct, primals, attrs)` the rounding error allowed to each, in
    units of u (None: unknown). `spec` is the operator's spec, if there is one. `defaults` are the
    attributes' default values, `choices` the values that each takes anywhere in the suite.
    """

    @property
    def spec(self) -> OpSpec | None: ...

    @property
    def defaults(self) -> Attrs: ...

    @property
    def choices(self) -> Mapping[str, Sequence[Any]]: ...

    def forward(self, primals: Sequence[Array], attrs: Attrs) -> tuple[Float, ...]: ...

    def vjp(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]: ...

    def cost(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]: ...


@dataclass(frozen=True)
class Probe:
    """Code asked at one point, under one cotangent.

    `primals` are float64 or int64, `ct` has one part per output of forward. `got` holds the
    returned gradients by the names of primals, in float64 (a name is absent where none of the
    primal's shape was returned); `raw` holds the returned arrays, of any shape (None: nothing).
    `ask(ct)` asks the code again at this point, `at(primals, ct)` at another one with these
    attributes (None: impossible). `where` names the point, `seed` is the seed that it was drawn
    from; `dtype` is the code's. `kinked` marks elements of primals on a declared kink.
    """

    where: str
    seed: int
    names: tuple[str, ...]
    primals: tuple[Array, ...]
    attrs: Attrs
    ct: Cotangent
    got: Gradients
    truth: Truth
    ask: Callable[[Cotangent], Gradients]
    dtype: str = "float64"
    kinked: Mapping[str, Mask] = field(default_factory=dict)
    raw: Mapping[str, Array | None] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What rules have found here and may want again; keys begin with the rule's module."""
    at: Callable[[Sequence[Array], Cotangent], Probe | None] = lambda primals, ct: None

    @classmethod
    def asked(
        cls, call: Callable[[Cotangent], Mapping[str, Array | None]], **fields: Any
    ) -> Probe | None:
        """The probe of what `call(ct)` returns, by name; None where the true VJP is not defined.

        `fields` are those of the class but for the answer.
        """
        names, primals = fields["names"], fields["primals"]
        raw = call(fields["ct"])
        probe = cls(
            got=matching_gradients(raw, names, primals),
            ask=lambda ct: matching_gradients(call(ct), names, primals),
            raw=raw,
            **fields,
        )
        return probe if probe.vjp() is not None else None

    @property
    def u(self) -> float:
        """The unit roundoff of the code's dtype."""
        return UNITS[self.dtype]

    # ── what is right ────────────────────────────────────────────────────────────────────────

    @cached_property
    def right(self) -> Gradients:
        """The true gradients, by name."""
        found = self.vjp()
        assert found is not None  # a probe is only made where they are defined
        return found

    @cached_property
    def outputs(self) -> tuple[Float, ...]:
        """Forward's outputs."""
        return self.forward()

    def forward(
        self, primals: Mapping[str, Array] | None = None, attrs: Attrs | None = None
    ) -> tuple[Float, ...]:
        """Forward's outputs with other primals (by name), other attributes."""
        with np.errstate(all="ignore"):
            return self.truth.forward(self._with(primals or {}), {**self.attrs, **(attrs or {})})

    def _with(self, primals: Mapping[str, Array]) -> list[Array]:
        return [primals.get(n, p) for n, p in zip(self.names, self.primals, strict=True)]

    def primal(self, name: str) -> Array:
        """One primal."""
        return self.primals[self.names.index(name)]

    def vjp(
        self,
        ct: Cotangent | None = None,
        primals: Mapping[str, Array] | None = None,
        attrs: Attrs | None = None,
    ) -> Gradients | None:
        """The true gradients with another cotangent, other primals (by name), other attributes.

        None where the true VJP is not defined there.
        """
        values = self._with(primals or {})
        try:
            with np.errstate(all="ignore"):
                found = self.truth.vjp(
                    self.ct if ct is None else ct, values, {**self.attrs, **(attrs or {})}
                )
        except RAISES:
            return None
        if len(found) != len(self.names):
            return None
        pairs = zip(self.names, found, strict=True)
        return {name: np.asarray(g, dtype=np.float64) for name, g in pairs if g is not None}

    def gradient(
        self,
        name: str,
        ct: Cotangent | None = None,
        primals: Mapping[str, Array] | None = None,
        attrs: Attrs | None = None,
    ) -> Float | None:
        """The true gradient of one primal, as `vjp` gives it; None where it is not defined."""
        found = self.vjp(ct, primals, attrs)
        return None if found is None else found.get(name)

    # ── what differs ─────────────────────────────────────────────────────────────────────────

    @cached_property
    def _rounding_bounds(self) -> Gradients:
        """How far rounding alone may take each element from the true gradient."""
        with np.errstate(all="ignore"):
            cost = self.truth.cost(self.ct, self.primals, self.attrs)
        out = {}
        for name, of in zip(self.names, cost, strict=True):
            if name in self.right:
                right = np.where(np.isfinite(self.right[name]), self.right[name], 0.0)
                size = float(np.max(np.abs(right), initial=0.0))
                extra = (
                    0.0 if of is None else ROUNDING_SAFETY * self.u * np.nan_to_num(of, posinf=0.0)
                )
                out[name] = np.broadcast_to(
                    ROUNDING_TOLERANCE[self.dtype] * size + extra, right.shape
                )
        return out

    def rounding(self, name: str) -> Float:
        """How far rounding alone may take each element of a gradient."""
        return self._rounding_bounds[name]

    def wrong(self, name: str) -> Mask:
        """Which elements of a gradient are wrong beyond rounding; all, if none was returned."""
        right = self.right[name]
        if name not in self.got:
            return np.ones(right.shape, dtype=bool)
        return ~self._within(self.got[name], right, name)

    def fails(self, name: str) -> bool:
        """Whether any element is."""
        key = "explain.probe", "fails", name
        if key not in self.memo:
            self.memo[key] = bool(self.wrong(name).any()) or name not in self.got
        return bool(self.memo[key])

    def reproduces(self, prediction: Any, name: str) -> bool:
        """Whether a prediction is the returned gradient to rounding, and the right one is not.

        Where the gradient is right, a prediction must be right, too. What is not finite must stand
        in the same places.
        """
        if prediction is None:
            return False
        guess = np.asarray(prediction, dtype=np.float64)
        if name not in self.got:
            return self._matches_raw(guess, name)
        got, right = self.got[name], self.right[name]
        if guess.shape != got.shape:
            return False
        if not self.fails(name):
            return bool(self._within(guess, right, name).all())
        strange = ~np.isfinite(got)
        if strange.all() or not np.array_equal(strange, ~np.isfinite(guess)):
            return False  # NaN everywhere has too many explanations
        if not np.array_equal(got[strange], guess[strange], equal_nan=True):
            return False
        bound, closest = self._distance_bounds(name, strange)
        mine = np.abs(guess - got)[~strange]
        if not bool(np.all(mine <= bound)):
            return False
        return bool(strange.any() or np.max(mine, initial=0.0) <= closest)

    def _distance_bounds(self, name: str, strange: Mask) -> tuple[Float, float]:
        """The distance from the returned gradient allowed to each finite element, and to the worst.

        `strange` marks what is not finite.
        """
        key = "explain.probe", "reach", name
        if key not in self.memo:
            finite = self.got[name][~strange]
            its = np.abs(self.right[name][~strange] - finite)
            size = max(float(np.max(np.abs(finite), initial=0.0)), 0.0)
            bound = np.maximum(
                self._rounding_bounds[name][~strange], ROUNDING_TOLERANCE[self.dtype] * size
            )
            self.memo[key] = bound, float(MAX_RELATIVE_DISTANCE * np.max(its, initial=0.0))
        found: tuple[Float, float] = self.memo[key]
        return found

    def _matches_raw(self, guess: Float, name: str) -> bool:
        """Whether a prediction of another shape than the primal's equals the raw array returned."""
        raw = self.raw.get(name)
        if raw is None or raw.shape != guess.shape or not raw.size:
            return False
        came = np.asarray(raw, dtype=np.float64)
        with np.errstate(all="ignore"):
            bound = ROUNDING_TOLERANCE[self.dtype] * float(np.max(np.abs(guess), initial=0.0))
            return bool(bound > 0 and np.all(np.abs(came - guess) <= bound))

    def _within(self, a: Float, right: Float, name: str) -> Mask:
        with np.errstate(all="ignore"):
            return np.asarray((np.abs(a - right) <= self._rounding_bounds[name]) | (a == right))


def bare(parts: tuple[Any, ...]) -> Any:
    """The cotangent as a VJP takes it: the array itself, where there is one output."""
    return parts[0] if len(parts) == 1 else parts


def called(
    vjp: Callable[..., Any], ct: Sequence[Any], primals: Sequence[Any], attrs: Attrs
) -> tuple[Any, ...] | None:
    """The gradients of a VJP in the text of specs, in float64; None where it raises.

    It may write over the cotangent, and is given a copy.
    """
    try:
        with np.errstate(all="ignore"):
            found = as_tuple(vjp(F64, bare(tuple(np.array(c) for c in ct)), *primals, **attrs))
    except RAISES:
        return None
    return found if len(found) == len(primals) else None


def returned_arrays(names: Sequence[str], gradients: Sequence[Any]) -> dict[str, Array | None]:
    """The array returned for each primal; anything else but None is left out."""
    pairs = ((n, g, as_array(g)) for n, g in zip(names, gradients, strict=False))
    return {n: a for n, g, a in pairs if a is not None or g is None or isinstance(g, Missing)}


def matching_gradients(
    raw: Mapping[str, Array | None], names: Sequence[str], primals: Sequence[Array]
) -> Gradients:
    """The gradients that have the shapes of their primals, as float64 copies."""
    shapes = {n: p.shape for n, p in zip(names, primals, strict=True) if p.dtype.kind == "f"}
    with np.errstate(all="ignore"):
        return {
            name: np.array(gradient, dtype=np.float64)
            for name, gradient in raw.items()
            if gradient is not None and shapes.get(name) == gradient.shape
        }
