"""One point at which code was asked for its gradients: what it gave, and what would be right.

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

from gradcheck.explain.closeness import SAME
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.operator import OpSpec

Array = NDArray[Any]
Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Gradients = Mapping[str, Float]
Cotangent = tuple[Float, ...]

RAISES: Final = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What a right function may raise where it is not defined."""
CLOSER: Final = 0.01
"""A prediction must be so many times nearer to what was returned than the right gradient is."""
SAFETY: Final = 4.0
"""Factor on what rounding is estimated to cost before it explains a difference."""


class Truth(Protocol):
    """The right function behind a gradient, in float64, wherever it is defined.

    `forward(primals, attrs)` gives a tuple of outputs, `vjp(ct, primals, attrs)` one gradient per
    primal (None for an index), `cost(ct, primals, attrs)` what rounding may cost each, in units of
    u (None: not known). `spec` is the operator whose own text tells it, if one does. `defaults` are
    the attributes' default values, `choices` the values that each takes anywhere in the suite.
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

    `primals` are float64 or int64, `ct` has one part per output of forward. `got` holds what came
    back by the names of primals, in float64 (a name is absent where nothing or nothing fitting
    came); `raw` is what came in its place, of whatever shape (None: nothing). `ask(ct)` asks the
    same code again, at the same point; `at(primals, ct)` with the same attributes at another one
    (None: it cannot be asked there). `where` names the point, `seed` what it was drawn from;
    `u` is the unit roundoff of the code's `dtype`. `kinked` marks elements of primals that sit on
    a declared kink.
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
    u: float = 2.0**-53
    kinked: Mapping[str, Mask] = field(default_factory=dict)
    raw: Mapping[str, Array | None] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What rules have found here and may want again; keys begin with the rule's module."""
    at: Callable[[Sequence[Array], Cotangent], Probe | None] = lambda primals, ct: None

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
        with np.errstate(all="ignore"):
            return self.truth.forward(self.primals, self.attrs)

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
        values = [(primals or {}).get(n, p) for n, p in zip(self.names, self.primals, strict=True)]
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

    # ── what differs ─────────────────────────────────────────────────────────────────────────

    @cached_property
    def _blur(self) -> Gradients:
        """How far rounding alone may take each element from the true gradient."""
        with np.errstate(all="ignore"):
            cost = self.truth.cost(self.ct, self.primals, self.attrs)
        out = {}
        for name, of in zip(self.names, cost, strict=True):
            if name in self.right:
                right = np.where(np.isfinite(self.right[name]), self.right[name], 0.0)
                size = float(np.max(np.abs(right), initial=0.0))
                extra = 0.0 if of is None else SAFETY * self.u * np.nan_to_num(of, posinf=0.0)
                out[name] = np.broadcast_to(SAME[self.dtype] * size + extra, right.shape)
        return out

    def blur(self, name: str) -> Float:
        """How far rounding alone may take each element of a gradient."""
        return self._blur[name]

    def wrong(self, name: str) -> Mask:
        """Which elements of a gradient are wrong beyond rounding; all, where none came."""
        right = self.right[name]
        if name not in self.got:
            return np.ones(right.shape, dtype=bool)
        return ~self._within(self.got[name], right, name)

    def fails(self, name: str) -> bool:
        """Whether any is."""
        key = "explain.probe", "fails", name
        if key not in self.memo:
            self.memo[key] = bool(self.wrong(name).any()) or name not in self.got
        return bool(self.memo[key])

    def reproduces(self, prediction: Any, name: str) -> bool:
        """Whether a prediction is what was returned, to rounding, and the right one is not.

        Where the gradient is right, a prediction must be right, too. What is not finite must stand
        in the same places.
        """
        if prediction is None:
            return False
        guess = np.asarray(prediction, dtype=np.float64)
        if name not in self.got:
            return self._came(guess, name)
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
        bound, closest = self._reach(name, strange)
        mine = np.abs(guess - got)[~strange]
        if not bool(np.all(mine <= bound)):
            return False
        return bool(strange.any() or np.max(mine, initial=0.0) <= closest)

    def _reach(self, name: str, strange: Mask) -> tuple[Float, float]:
        """How near to what was returned a prediction must come: each finite element, and the worst.

        `strange` marks what is not finite.
        """
        key = "explain.probe", "reach", name
        if key not in self.memo:
            finite = self.got[name][~strange]
            its = np.abs(self.right[name][~strange] - finite)
            size = max(float(np.max(np.abs(finite), initial=0.0)), 0.0)
            bound = np.maximum(self._blur[name][~strange], SAME[self.dtype] * size)
            self.memo[key] = bound, float(CLOSER * np.max(its, initial=0.0))
        found: tuple[Float, float] = self.memo[key]
        return found

    def _came(self, guess: Float, name: str) -> bool:
        """Whether a prediction of another shape than the primal's is what came in its place."""
        raw = self.raw.get(name)
        if raw is None or raw.shape != guess.shape or not raw.size:
            return False
        came = np.asarray(raw, dtype=np.float64)
        with np.errstate(all="ignore"):
            bound = SAME[self.dtype] * float(np.max(np.abs(guess), initial=0.0))
            return bool(bound > 0 and np.all(np.abs(came - guess) <= bound))

    def _within(self, a: Float, right: Float, name: str) -> Mask:
        with np.errstate(all="ignore"):
            return np.asarray((np.abs(a - right) <= self._blur[name]) | (a == right))
