"""What an operator is: forward, VJP, dialects, kinks and samples, as frozen data with self-checks.

A spec is one literal; importing a case file changes nothing else. Whatever contradicts itself
raises `SpecError` at import, with a message that says how to repair it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, Final

from numpy.typing import NDArray

from gradcheck.errors import SpecError, UnknownNameError
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.draw import Draw
from gradcheck.spec.spec_checks import check_attrs, check_name, check_texts, check_unique

Array = NDArray[Any]
CORE: Final = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One named point of an operator: primals, attributes, and the defect it hunts.

    `primals(draw)` returns the primals in the order of `forward`, as float64 arrays, or as int64
    arrays for indices. `draw` is seeded by the operator's and the sample's names. Values must fill
    float64's mantissa, as those of `draw` do: code that rounds short ones is right at them.
    `exact` marks a sample that needs just these short values (zeros, equal ones); `at_kink` one
    with elements exactly on a declared kink; `no_features` one with an empty axis that is summed or
    normalised over, which code other than the suite's is asked only with --all or by name.
    `dialects` limits the sample to those dialects (empty: all).
    """

    name: str
    primals: Callable[[Draw], tuple[Array, ...]]
    hunts: str
    attrs: Attrs = field(default_factory=dict)
    dialects: tuple[str, ...] = ()
    at_kink: bool = False
    exact: bool = False
    no_features: bool = False

    def __post_init__(self) -> None:
        check_name("sample", self.name)
        if not self.hunts.strip():
            raise SpecError(f"sample {self.name!r}: say in `hunts` which defect it would expose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A named variant of one operator: the constants, layout or convention of known systems.

    `attrs` replace defaults of `forward`; `without` names optional primals that it lacks.
    """

    name: str
    says: str
    attrs: Attrs = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name("dialect", self.name)


DEFAULT: Final = (Dialect(name="default", says="the only form"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """The subgradient that known systems return on a kink.

    Either `slope`, a number or a function of the attributes, for a forward that acts element by
    element: the gradient there is ct · slope. Or `vjp`, a whole VJP that follows the convention.
    """

    name: str
    systems: tuple[str, ...]
    slope: float | Callable[..., float] | None = None
    vjp: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if (self.slope is None) == (self.vjp is None):
            raise SpecError(f"convention {self.name!r}: give it a slope or a vjp, one of the two")
        if not self.systems:
            raise SpecError(f"convention {self.name!r}: name the systems that follow it")


DIRECTIONAL: Final = "directional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kink:
    """A set where forward has no derivative: a corner, a bound, a tie.

    `gap(xp, *primals, **attrs)` is the distance of each element of `primal` (a name; empty: the
    first) from the kink (same shape; 0 on it). `accept` says what is allowed there:

    * "directional" (any forward): along each element and along directions through all of them,
      ⟨g, d⟩ must lie between the two one-sided derivatives of every output. So ties may go to
      the first, to the last, or be split, but not to all of them.
    * a pair of slopes, lowest first, or a function of the attributes that gives one: for a
      forward that acts element by element. Infinite slopes are allowed.

    `conventions` is the table of what known systems do.
    """

    name: str
    gap: Callable[..., Array]
    source: str
    accept: str | tuple[float, float] | Callable[..., tuple[float, float]] = DIRECTIONAL
    primal: str = ""
    conventions: tuple[Convention, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.accept, str) and self.accept != DIRECTIONAL:
            raise SpecError(
                f"kink {self.name!r}: accept is {self.accept!r}; write 'directional', a pair of "
                "slopes, or a function of the attributes that gives one"
            )
        check_unique(f"kink {self.name!r}", "convention", [c.name for c in self.conventions])

    @property
    def directional(self) -> bool:
        """Whether one-sided derivatives say what is allowed."""
        return self.accept == DIRECTIONAL

    def slopes(self, attrs: Attrs) -> tuple[float, float]:
        """The lowest and the highest slope allowed on the kink.

        Raises:
            SpecError: the interval is reversed.
        """
        assert not isinstance(self.accept, str)
        low, high = self.accept(**attrs) if callable(self.accept) else self.accept
        ok = low <= high
        if not ok:
            raise SpecError(f"kink {self.name!r}: accept is ({low}, {high}); sort it")
        return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """A wider bound for one operator, or for one `check`, with the sentence that justifies it.

    Units: ulp of the element's scale Σ|ct·J|.

    Raises:
        SpecError: there is no sentence, or the width is negative, or not a finite number.
    """

    ulp: float
    because: str

    def __post_init__(self) -> None:
        if not isinstance(self.because, str) or not self.because.strip():
            raise SpecError("a wider bound needs a sentence: fill Slack.because")
        if not isinstance(self.ulp, Real) or not 0 <= self.ulp < math.inf:
            raise SpecError(f"Slack.ulp is {self.ulp!r}: write how many, 0 or more and finite")


@dataclass(frozen=True)
class OpSpec:
    """An operator: how it computes, how it is differentiated, and where that is put to the test.

    `forward(xp, *primals, **attrs)` returns an array or a tuple of arrays; attributes are its
    keyword-only arguments. `vjp(xp, ct, *primals, **attrs)` returns one cotangent per primal (a
    bare array for a single primal), None for an index primal; `ct` is a tuple where forward
    returns one. `signature` is NumPy's gufunc notation: core axes, everything before them is
    batch. Trailing primals that default to None are optional; a dialect may lack them.

    Raises:
        SpecError: the parts contradict each other.
    """

    name: str
    signature: str
    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    samples: tuple[Sample, ...]
    formula: str
    source: str
    dialects: tuple[Dialect, ...] = DEFAULT
    kinks: tuple[Kink, ...] = ()
    slack: Slack | None = None

    def __post_init__(self) -> None:
        check_name("operator", self.name)
        me = f"operator {self.name!r}"
        check_texts(me, formula=self.formula, source=self.source)
        self._check_functions(me)
        self._check_signature(me)
        if not self.samples:
            raise SpecError(f"{me} has no samples: add at least one Sample")
        check_unique(me, "sample", [s.name for s in self.samples])
        check_unique(me, "dialect", [d.name for d in self.dialects])
        parts = [(s.name, s.attrs) for s in self.samples]
        parts += [(d.name, d.attrs) for d in self.dialects]
        check_attrs(me, parts, self.defaults, "forward")
        known = {d.name for d in self.dialects}
        for sample in self.samples:
            for name in sample.dialects:
                if name not in known:
                    raise SpecError(
                        f"{me}, sample {sample.name!r}: no dialect {name!r}; known: {sorted(known)}"
                    )
        for dialect in self.dialects:
            for name in dialect.without:
                if name not in self.optional:
                    raise SpecError(
                        f"{me}, dialect {dialect.name!r}: primal {name!r} cannot be left out; "
                        f"give it the default None in forward and vjp"
                    )
        check_unique(me, "kink", [k.name for k in self.kinks])
        for kink in self.kinks:
            if kink.primal and kink.primal not in self.primals:
                raise SpecError(
                    f"{me}, kink {kink.name!r}: forward has no primal {kink.primal!r}; "
                    f"known: {list(self.primals)}"
                )
        if self.kinks and not any(s.at_kink for s in self.samples):
            raise SpecError(
                f"{me} declares the kink {self.kinks[0].name!r} but no sample visits it; "
                "add a Sample with at_kink=True whose primals hold exact kink values"
            )

    def _check_functions(self, me: str) -> None:
        forward = self._parameters
        if not forward or forward[0].name != "xp":
            raise SpecError(f"{me}: the first argument of forward must be `xp`")
        for p in forward:
            if p.kind is p.KEYWORD_ONLY and p.default is p.empty:
                raise SpecError(f"{me}: attribute {p.name!r} of forward needs a default")
            if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                raise SpecError(f"{me}: spell out the arguments of forward; *args hide mistakes")

        def shown(p: inspect.Parameter) -> str:
            return p.name if p.default is p.empty else f"{p.name}={p.default!r}"

        wanted = ["xp", "ct", *(shown(p) for p in forward[1:])]
        given = [shown(p) for p in inspect.signature(self.vjp).parameters.values()]
        if wanted != given:
            raise SpecError(
                f"{me}: vjp takes {given}, but forward implies {wanted}. "
                "Give vjp the arguments of forward, with `ct` after `xp`."
            )

    def _check_signature(self, me: str) -> None:
        left, arrow, right = self.signature.partition("->")
        counts = (len(CORE.findall(left)), len(CORE.findall(right)))
        if not arrow or counts[0] != len(self.primals) or counts[1] == 0:
            raise SpecError(
                f"{me}: signature {self.signature!r} names {counts[0]} inputs and {counts[1]} "
                f"outputs, forward has the primals {list(self.primals)}; write one "
                "'(axes)' per primal, '->', and one per output"
            )

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.forward).parameters.values())

    @cached_property
    def primals(self) -> tuple[str, ...]:
        """Names of the primals, in order."""
        return tuple(p.name for p in self._parameters[1:] if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def optional(self) -> tuple[str, ...]:
        """Names of the primals that a dialect may lack."""
        default = {p.name: p.default for p in self._parameters}
        return tuple(name for name in self.primals if default[name] is None)

    @cached_property
    def defaults(self) -> Attrs:
        """Attributes and their default values."""
        return {p.name: p.default for p in self._parameters if p.kind is p.KEYWORD_ONLY}

    @cached_property
    def core_ranks(self) -> tuple[int, ...]:
        """Number of core axes of each primal, from the signature."""
        left = self.signature.partition("->")[0]
        return tuple(len([d for d in core.split(",") if d.strip()]) for core in CORE.findall(left))

    def definition(self, role: str, name: str = "") -> str:
        """The line that begins an implementation's "forward" or "vjp", which is called `name`.

        By default it is called as its role: `def vjp(ct, x, *, eps=1e-05):`.
        """
        function = self.forward if role == "forward" else self.vjp
        plain = inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
        bare = [p.replace(annotation=p.empty) for p in plain.parameters.values()][1:]
        return f"def {name or role}{plain.replace(parameters=bare)}:"

    @property
    def outputs(self) -> int:
        """How many arrays forward returns."""
        return len(CORE.findall(self.signature.partition("->")[2]))

    @property
    def family(self) -> str:
        """The case file that the operator stands in."""
        return str(self.forward.__module__).rpartition(".")[2]

    @property
    def points(self) -> tuple[Sample, ...]:
        """The samples, under the name that all kinds of specs share."""
        return self.samples

    def dialect(self, name: str) -> Dialect:
        """The dialect called `name`.

        Raises:
            UnknownNameError: there is none.
        """
        return dialect_named(name, self.name, self.dialects)


def dialect_named(name: str, of: str, dialects: Sequence[Dialect]) -> Dialect:
    """The dialect called `name` among those of the spec called `of`.

    Raises:
        UnknownNameError: there is none.
    """
    for dialect in dialects:
        if dialect.name == name:
            return dialect
    raise UnknownNameError(f"dialect of {of}", name, [d.name for d in dialects])
