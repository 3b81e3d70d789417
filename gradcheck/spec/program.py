"""What a model computes: a straight-line program of named stages, each one operator.

A program reads and writes named values: parameters and inputs first, then one stage after the
other, each value written once, the last one a scalar loss. Its backward pass is the reverse fold
over the stages; nothing of it is written by hand for any model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gradcheck.errors import SpecError, UnknownNameError, raised
from gradcheck.numerics.arithmetic import Arithmetic
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.spec.operator import Array, OpSpec
from gradcheck.spec.spec_checks import check_name

Drawn = Callable[[Draw], Array]
Values = Mapping[str, Array]
StageVjp = Callable[["Stage", tuple[Array, ...], Values], tuple[Any, ...]]
"""`(stage, cts, values)` → one gradient per value that the stage reads; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One line of a program: `writes = op(*reads, **attrs)`.

    `reads` are names of values in the order of the operator's primals (optional ones at the end
    may be left out), `writes` is one name, or one per output. `attrs` replace the operator's
    defaults.
    """

    name: str
    op: OpSpec
    reads: tuple[str, ...]
    writes: str | tuple[str, ...]
    attrs: Attrs = field(default_factory=dict)

    def __post_init__(self) -> None:
        me = f"stage {self.name!r}"
        check_name("stage", self.name)
        least = len(self.op.primals) - len(self.op.optional)
        if not least <= len(self.reads) <= len(self.op.primals):
            raise SpecError(
                f"{me} reads {list(self.reads)}, but {self.op.name} takes {list(self.op.primals)}"
            )
        for attr in self.attrs:
            if attr not in self.op.defaults:
                raise SpecError(
                    f"{me}: attribute {attr!r} is not one of {self.op.name}'s; "
                    f"known: {sorted(self.op.defaults) or 'none'}"
                )

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the values that it writes."""
        return (self.writes,) if isinstance(self.writes, str) else self.writes

    @property
    def primals(self) -> tuple[str, ...]:
        """The operator's own names of what it reads."""
        return self.op.primals[: len(self.reads)]

    @property
    def all_attrs(self) -> Attrs:
        """Every attribute: the operator's defaults, then the stage's own."""
        return {**self.op.defaults, **self.attrs}

    def forward(self, xp: Arithmetic, values: Values) -> tuple[Array, ...]:
        """Its outputs, from the values it reads.

        Raises:
            SpecError: the operator raised at these values; the message names the stage.
        """
        try:
            out = self.op.forward(xp, *(values[name] for name in self.reads), **self.attrs)
        except Exception as error:
            what = f"stage {self.name!r} ({self.op.name})"
            raise SpecError(f"{what} raised {raised(error)}") from error
        return tuple(_array(o) for o in as_tuple(out))

    def vjp(self, xp: Arithmetic, cts: tuple[Array, ...], values: Values) -> tuple[Any, ...]:
        """The operator's own VJP: one gradient per value read, None for an index."""
        bare = cts[0] if len(cts) == 1 else cts
        primals = (values[name] for name in self.reads)
        found = as_tuple(self.op.vjp(xp, bare, *primals, **self.attrs))
        return tuple(None if g is None else _array(g) for g in found)


def _array(x: Any) -> Any:
    """An array again, where arithmetic on 0-d arrays decayed to a bare number."""
    return x if hasattr(x, "shape") and not isinstance(x, np.generic) else np.asarray(x)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A model at given dimensions: parameters and inputs, stages, and the name of the loss.

    `params` and `inputs` map names to how they are drawn: float64 values within the range of
    float32, or integers. Gradients are judged with respect to parameters; inputs are data, and
    never perturbed.

    Raises:
        SpecError: a name is read before it is written, written twice, or never used.
    """

    params: Mapping[str, Drawn]
    inputs: Mapping[str, Drawn]
    stages: tuple[Stage, ...]
    loss: str

    def __post_init__(self) -> None:
        given = [*self.params, *self.inputs]
        known = set(given)
        if len(known) < len(given):
            raise SpecError("a parameter and an input share a name; rename one")
        names: set[str] = set()
        used: set[str] = set()
        for stage in self.stages:
            if stage.name in names:
                raise SpecError(f"two stages are called {stage.name!r}; rename one")
            names.add(stage.name)
            for name in stage.reads:
                if name not in known:
                    raise SpecError(f"stage {stage.name!r} reads {name!r} before it is written")
            used.update(stage.reads)
            for name in stage.outputs:
                if name in known:
                    raise SpecError(f"stage {stage.name!r} writes {name!r} a second time")
                known.add(name)
        for name in given:
            if name not in used:
                raise SpecError(f"no stage reads {name!r}; use it or take it out")
        if not self.stages or self.loss not in self.stages[-1].outputs:
            raise SpecError(f"the last stage must write the loss {self.loss!r}")

    @cached_property
    def readers(self) -> Mapping[str, tuple[Stage, ...]]:
        """The stages that read each value; a parameter with several is tied."""
        found: dict[str, list[Stage]] = {}
        for stage in self.stages:
            for name in dict.fromkeys(stage.reads):
                found.setdefault(name, []).append(stage)
        return {name: tuple(stages) for name, stages in found.items()}

    @cached_property
    def tied(self) -> frozenset[str]:
        """Parameters that are read more than once: their gradient is a sum."""
        reads = [name for stage in self.stages for name in stage.reads]
        return frozenset(name for name in self.params if reads.count(name) > 1)

    def stage(self, name: str) -> Stage:
        """The stage called `name`.

        Raises:
            UnknownNameError: there is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise UnknownNameError("stage", name, [s.name for s in self.stages])

    def forward(self, xp: Arithmetic, given: Values) -> dict[str, Array]:
        """Every value by name, from the parameters and inputs in the arithmetic `xp`."""
        values = dict(given)
        for stage in self.stages:
            values.update(zip(stage.outputs, stage.forward(xp, values), strict=True))
        return values

    def backward(
        self,
        xp: Arithmetic,
        values: Values,
        ct: Array,
        vjp: StageVjp | None = None,
        start: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """The cotangent of every value that the loss depends on: the reverse fold of the stages.

        `ct` is the loss's cotangent (a 0-d array in `xp`), `vjp` replaces the operators' own VJPs.
        `start` replaces `ct` by cotangents of other values, all others starting at zero; so the
        share of one value in all gradients is found (the fold is linear).
        """
        cts: dict[str, Array] = {self.loss: ct} if start is None else dict(start)
        for stage in reversed(self.stages):
            if not any(name in cts for name in stage.outputs):
                continue
            whole = tuple(
                cts[name] if name in cts else xp.zeros_like(values[name]) for name in stage.outputs
            )
            found = stage.vjp(xp, whole, values) if vjp is None else vjp(stage, whole, values)
            for name, gradient in zip(stage.reads, found, strict=True):
                if gradient is not None:
                    cts[name] = cts[name] + gradient if name in cts else gradient
        return cts


@dataclass(frozen=True)
class Whole:
    """A program as one operator: parameters in, loss out; the inputs are closed over.

    What certifies an operator certifies a model with it: `forward(xp, *params)` and
    `vjp(xp, ct, *params)` are those of a spec.
    """

    program: Program
    inputs: Values

    def forward(self, xp: Any, *params: Array) -> Array:
        """The loss."""
        return self.program.forward(xp, self._given(xp, params))[self.program.loss]

    def vjp(self, xp: Any, ct: Array, *params: Array) -> tuple[Array, ...]:
        """The gradient of every parameter: zero for one that the loss does not depend on."""
        given = self._given(xp, params)
        cts = self.program.backward(xp, self.program.forward(xp, given), ct)
        return tuple(
            cts[name] if name in cts else xp.zeros_like(given[name]) for name in self.program.params
        )

    def _given(self, xp: Any, params: tuple[Array, ...]) -> dict[str, Array]:
        inputs = {
            name: xp.asarray(value) if value.dtype.kind == "f" else value
            for name, value in self.inputs.items()
        }
        return {**dict(zip(self.program.params, params, strict=True)), **inputs}


@dataclass(frozen=True)
class Nudged(Whole):
    """A whole that is asked for its loss where single parameters are moved, again and again.

    `around` are the parameters that do not move, by name, as they will be handed in: what no
    stage reads a moved one for is evaluated once (per precision), and then remembered.
    """

    around: Values = field(default_factory=dict)
    _known: dict[int, Values] = field(default_factory=dict, init=False, repr=False, compare=False)

    def forward(self, xp: Any, *params: Array) -> Array:
        given = dict(zip(self.program.params, params, strict=True))
        moved = {name for name, value in given.items() if value is not self.around.get(name)}
        if len(moved) != 1:
            return super().forward(xp, *params)
        values = {**self._here(xp), **given}
        for stage in self.program.stages:
            if not moved.isdisjoint(stage.reads):
                values.update(zip(stage.outputs, stage.forward(xp, values), strict=True))
                moved.update(stage.outputs)
        return values[self.program.loss]

    def _here(self, xp: Any) -> Values:
        """Every value where nothing is moved."""
        precision = xp.context.prec
        if precision not in self._known:
            given = self._given(xp, tuple(self.around.values()))
            self._known[precision] = self.program.forward(xp, given)
        return self._known[precision]
