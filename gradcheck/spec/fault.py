"""Planted faults: stages of a model whose VJP is wrong in one known way.

A wrong VJP is a function `(xp, stage, cts, values)` that returns one gradient per value read, as
the stage's own VJP does. The functions below derive such from the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Final

import numpy as np

from gradcheck.errors import LoadError, SpecError
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.narrow import COTANGENT, OPERANDS, RESULT, Narrow
from gradcheck.spec.loading import resolve
from gradcheck.spec.model import ModelSpec
from gradcheck.spec.program import Stage, StageVjp, Values
from gradcheck.spec.spec_checks import NAME
from gradcheck.spec.suite import Suite

Wrong = Callable[[Any, Stage, tuple[Any, ...], Values], tuple[Any, ...]]
Change = Callable[..., Any]
Index = tuple[int | slice | EllipsisType, ...]

KINDS: Final = (
    "stale activation",
    "missing residual",
    "wrong scale",
    "mask off by one",
    "position offset",
    "tied gradient overwritten",
    "last layer only",
    "one head only",
    "one element",
    "sign",
    "formula",
    "layout",
    "reduction",
    "gradient missing",
    "narrow",
)
"""The kinds of planted faults."""
PLACES: Final = (OPERANDS, COTANGENT, RESULT)
"""The arrays that a stage rounds to a narrower type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One wrong backward pass of one model.

    `stages` are the names of the faulty stages, `wrong` is their VJP. `says` is
    the defect in one sentence, `kind` one of `KINDS`; `dialects` limits it to those of the model
    where the stages exist (empty: all). `modelled_on` names the real bug.

    Raises:
        SpecError: the parts contradict each other.
    """

    model: str
    name: str
    says: str
    kind: str
    stages: tuple[str, ...]
    wrong: Wrong
    dialects: tuple[str, ...] = ()
    modelled_on: str = ""

    def __post_init__(self) -> None:
        me = f"fault {self.full_name}"
        if not NAME.fullmatch(self.name):
            raise SpecError(f"{me}: use lower-case letters, digits, '_', '-' and '.' in its name")
        if self.kind not in KINDS:
            raise SpecError(f"{me}: no kind {self.kind!r}; known: {', '.join(KINDS)}")
        if not self.says.strip():
            raise SpecError(f"{me}: say in `says`, in one sentence, what is wrong with it")
        if not self.stages:
            raise SpecError(f"{me}: name the stages that are at fault")

    @property
    def full_name(self) -> str:
        """`model/name`."""
        return f"{self.model}/{self.name}"

    def of_dialect(self, dialect: str) -> bool:
        """Whether a dialect of the model has the fault."""
        return not self.dialects or dialect in self.dialects

    def vjp(self, xp: Any) -> StageVjp:
        """The VJP of every stage of the model, in the arithmetic `xp`; wrong for faulty stages."""

        def of(stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
            if stage.name in self.stages:
                return tuple(self.wrong(xp, stage, cts, values))
            return stage.vjp(xp, cts, values)

        return of


def check(fault: Fault, spec: ModelSpec) -> None:
    """Compare a fault with its model.

    Raises:
        SpecError: the model has no such dialect or stage.
    """
    for name in fault.dialects:
        spec.dialect(name)
    for dialect in spec.dialects:
        if not fault.of_dialect(dialect.name):
            continue
        program = spec.build(**{**spec.defaults, **dialect.attrs, **spec.sizes[0].attrs})
        known = {stage.name for stage in program.stages}
        for name in fault.stages:
            if name not in known:
                raise SpecError(
                    f"fault {fault.full_name}: {spec.name}/{dialect.name} has no stage {name!r}"
                )


def faults_of(suite: Suite) -> dict[str, list[Fault]]:
    """The suite's planted faults by model, in suite order.

    Raises:
        LoadError: a table of faults cannot be imported, or holds something else.
        SpecError: a fault names a model, a dialect or a stage that does not exist, or shares its
            name with another.
    """
    found: dict[str, list[Fault]] = {name: [] for name in suite.models}
    for reference in suite.faults:
        table = resolve(reference)
        if not isinstance(table, Sequence) or not all(isinstance(f, Fault) for f in table):
            raise LoadError(f"{reference}: make it a tuple of gradcheck.spec.fault.Fault")
        for fault in table:
            if fault.model not in found:
                raise SpecError(f"fault {fault.full_name}: the suite has no model {fault.model!r}")
            check(fault, suite.models[fault.model])
            if any(f.name == fault.name for f in found[fault.model]):
                raise SpecError(f"two faults are called {fault.full_name}; rename one")
            found[fault.model].append(fault)
    return found


# ── wrong VJPs of a stage ─────────────────────────────────────────────────────────────────


def of_operator(vjp: Callable[..., Any]) -> Wrong:
    """The stage's operator has this VJP, for instance a mutant's."""

    def wrong(xp: Any, stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        primals = (values[name] for name in stage.reads)
        bare = cts[0] if len(cts) == 1 else cts
        return as_tuple(vjp(xp, bare, *primals, **stage.all_attrs))

    return wrong


def reading(swap: Mapping[int, str], then: Wrong | None = None) -> Wrong:
    """The stage reads, as primal i, the value called `swap[i]` instead of its own."""

    def wrong(xp: Any, stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        others = {stage.reads[i]: values[name] for i, name in swap.items()}
        vjp = stage.vjp if then is None else lambda *args: then(args[0], stage, *args[1:])
        return vjp(xp, cts, {**values, **others})

    return wrong


def with_attrs(**fixed: Any) -> Wrong:
    """The stage's VJP takes other attributes than its forward."""

    def wrong(xp: Any, stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        primals = (values[name] for name in stage.reads)
        bare = cts[0] if len(cts) == 1 else cts
        return as_tuple(stage.op.vjp(xp, bare, *primals, **{**stage.attrs, **fixed}))

    return wrong


def changed(index: int, change: Change) -> Wrong:
    """Gradient `index` becomes `change(xp, g, *primals, **attrs)`; None stands for no gradient."""

    def wrong(xp: Any, stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        found = list(stage.vjp(xp, cts, values))
        primals = (values[name] for name in stage.reads)
        found[index] = change(xp, found[index], *primals, **stage.all_attrs)
        return tuple(found)

    return wrong


def fed(change: Change) -> Wrong:
    """The stage's cotangent becomes `change(xp, ct, *primals, **attrs)` before its VJP."""

    def wrong(xp: Any, stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        primals = [values[name] for name in stage.reads]
        other = tuple(change(xp, ct, *primals, **stage.all_attrs) for ct in cts)
        return stage.vjp(xp, other, values)

    return wrong


def scaled(index: int, factor: float) -> Wrong:
    """Gradient `index` times a number."""
    return changed(index, lambda xp, g, *primals, **attrs: g * factor)


def at(index: int, where: Index, factor: float) -> Wrong:
    """Gradient `index` is right but at `where` (a NumPy index), where it is times a number."""

    def change(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        here = np.zeros(np.shape(g), dtype=bool)
        here[where] = True
        return xp.where(here, g * factor, g)

    return changed(index, change)


def narrowed(place: str, narrow: Narrow) -> Wrong:
    """The stage's VJP with one of `PLACES` rounded to a type."""

    def wrong(xp: Any, stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        if place == OPERANDS:
            values = {**values, **{name: narrow.held(values[name]) for name in stage.reads}}
        if place == COTANGENT:
            cts = tuple(narrow.held(ct) for ct in cts)
        found = stage.vjp(xp, cts, values)
        if place != RESULT:
            return found
        return tuple(None if g is None else narrow.held(g) for g in found)

    return wrong
