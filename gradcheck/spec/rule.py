"""What an update rule is: the step from parameters and gradients to new parameters, as data.

A rule is one text in the closed `xp` namespace, like an operator's: the same lines run in float32,
in float64 and with 50 digits. Its samples are sequences of gradients, not single points, because
what goes wrong in a rule goes wrong over time: a bias correction, a state that is not kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

import numpy as np

from gradcheck.errors import SpecError
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.draw import Draw
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.operator import DEFAULT, Array, Dialect, dialect_named
from gradcheck.spec.spec_checks import (
    check_attrs,
    check_held,
    check_name,
    check_texts,
    check_unique,
)

Tensors = Mapping[str, Array]
"""Arrays by the name of their parameter."""
State = Mapping[str, Tensors]
"""What a rule remembers: by slot ("m", "v", …), one array per parameter."""

STEPS: Final = 20
"""Steps that a sample takes: enough for a bias correction to fade, or to be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """One named sequence of steps, and the defect it hunts.

    `params(draw)` and `gradients(draw, t)` return arrays by name, the same names and shapes in
    every step; `state(draw, params)` what was there before step `first` (None: what the rule's
    `init` makes). All values are float64, within the range of float32. Where the gradients are to
    follow the parameters, as in training, `slope(xp, params, drawn)` makes them of what was drawn.
    """

    name: str
    hunts: str
    params: Callable[[Draw], Tensors]
    gradients: Callable[[Draw, int], Tensors]
    state: Callable[[Draw, Tensors], State] | None = None
    slope: Callable[[Any, Tensors, Tensors], Tensors] | None = None
    first: int = 1
    count: int = STEPS
    attrs: Attrs = field(default_factory=dict)
    dialects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name("sample", self.name)
        if not self.hunts.strip():
            raise SpecError(f"sample {self.name!r}: say in `hunts` which defect it would expose")
        if self.first < 1 or self.count < 1:
            raise SpecError(
                f"sample {self.name!r}: steps are counted from 1, and there must be one"
            )


@dataclass(frozen=True)
class RuleSpec:
    """An update rule: `update(xp, params, grads, state, t, *, …)` returns new tensors and state.

    `init(xp, params)` is the state before step 1. What `update` gives first is, by `gives`, the
    new parameters, or (clipping) new gradients; hyper-parameters are its keyword-only arguments.
    `training` are those with which a small model learns; None: the rule trains nothing. With
    `searched`, a line search may shorten its steps.

    Raises:
        SpecError: the parts contradict each other.
    """

    name: str
    init: Callable[[Any, Tensors], State]
    update: Callable[..., tuple[Tensors, State]]
    samples: tuple[Steps, ...]
    formula: str
    source: str
    dialects: tuple[Dialect, ...] = DEFAULT
    gives: Literal["params", "grads"] = "params"
    training: Attrs | None = None
    searched: bool = False

    def __post_init__(self) -> None:
        me = f"rule {self.name!r}"
        check_name("rule", self.name)
        check_texts(me, formula=self.formula, source=self.source)
        if not self.samples:
            raise SpecError(f"{me} has no samples: add at least one Steps")
        taken = [p.name for p in self._parameters if p.kind is not p.KEYWORD_ONLY]
        if taken != ["xp", "params", "grads", "state", "t"]:
            raise SpecError(f"{me}: update takes {taken}; make it (xp, params, grads, state, t, *)")
        for p in self._parameters:
            if p.kind is p.KEYWORD_ONLY and p.default is p.empty:
                raise SpecError(f"{me}: hyper-parameter {p.name!r} of update needs a default")
        check_unique(me, "sample", [s.name for s in self.samples])
        check_unique(me, "dialect", [d.name for d in self.dialects])
        parts = [(s.name, s.attrs) for s in self.samples]
        parts += [(d.name, d.attrs) for d in self.dialects]
        check_attrs(me, [*parts, ("training", self.training or {})], self.defaults, "update")
        known = [d.name for d in self.dialects]
        for sample in self.samples:
            for name in sample.dialects:
                if name not in known:
                    raise SpecError(
                        f"{me}, sample {sample.name!r}: no dialect {name!r}; known: {known}"
                    )

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.update).parameters.values())

    @cached_property
    def defaults(self) -> Attrs:
        """Hyper-parameters and their default values."""
        return {p.name: p.default for p in self._parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def family(self) -> str:
        """The case file that the rule stands in."""
        return str(self.update.__module__).rpartition(".")[2]

    @property
    def points(self) -> tuple[Steps, ...]:
        """The samples, under the name that all kinds of specs share."""
        return self.samples

    def dialect(self, name: str) -> Dialect:
        """The dialect called `name`.

        Raises:
            UnknownNameError: there is none.
        """
        return dialect_named(name, self.name, self.dialects)


@dataclass(frozen=True)
class RuleCase(AnyCase):
    """One sequence to judge a rule by: rule, dialect and sample, with its numbers.

    All arrays are float64 (within the range of float32), and read-only.
    """

    kind: ClassVar[Kind] = Kind.RULE
    spec: RuleSpec
    dialect: Dialect
    sample: Steps
    seed: int
    suite: str

    @property
    def point(self) -> Steps:
        """The sequence of steps."""
        return self.sample

    @property
    def times(self) -> range:
        """The steps' numbers."""
        return range(self.sample.first, self.sample.first + self.sample.count)

    @cached_property
    def params(self) -> dict[str, Array]:
        """The parameters before the first step.

        Raises:
            SpecError: float32 does not hold a value.
        """
        return self._kept(self.sample.params(self.draw("params")))

    @cached_property
    def gradients(self) -> tuple[dict[str, Array], ...]:
        """What was drawn for each step: its gradients, unless the sample has a slope.

        Raises:
            SpecError: float32 does not hold a value, or a gradient has another shape.
        """
        found = []
        for t in self.times:
            tensors = self._kept(self.sample.gradients(self.draw("gradients", t), t))
            shapes = {name: g.shape for name, g in tensors.items()}
            if shapes != {name: p.shape for name, p in self.params.items()}:
                raise SpecError(f"{self.name}: gradients of step {t} are {shapes}; fit the params")
            found.append(tensors)
        return tuple(found)

    @cached_property
    def state(self) -> dict[str, dict[str, Array]] | None:
        """What the sample puts into the rule's memory before the first step; None: nothing."""
        if self.sample.state is None:
            return None
        drawn = self.sample.state(self.draw("state"), self.params)
        return {slot: self._kept(tensors) for slot, tensors in drawn.items()}

    def _meaning(self) -> Iterator[bytes]:
        for tensors in (self.params, *self.gradients, *(self.state or {}).values()):
            for name, array in tensors.items():
                yield f"{name}{array.shape}".encode()
                yield np.ascontiguousarray(array).tobytes()
        yield f"{sorted(self.attrs.items())!r}{self.times!r}".encode()

    def _kept(self, tensors: Tensors) -> dict[str, Array]:
        kept = {}
        for name, drawn in tensors.items():
            array = np.array(drawn, dtype=np.float64)
            check_held(self.name, name, array)
            array.flags.writeable = False
            kept[name] = array
        return kept
