"""Whether an operation does a case, and its calls, each made with two fillings of memory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import Unsupported
from gradcheck.implementations.manifest.expression import Context, names_in
from gradcheck.implementations.manifest.operation import (
    NativeLibrary,
    Operation,
    RoleKind,
    expressions,
    functions,
    roles,
)
from gradcheck.implementations.native.layout import Key
from gradcheck.implementations.native.memory import (
    Contents,
    MemoryAfter,
    Slot,
    blame,
    fill,
    judged,
    left,
    residual,
    script,
    slots,
)
from gradcheck.implementations.native.plan import (
    COTANGENT,
    Plan,
    Setting,
    plan_forward,
    plan_vjp,
)
from gradcheck.implementations.processes.c_worker import Outcome, Script
from gradcheck.implementations.returned import Broken, broken, overwrites
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Case

Array = NDArray[Any]

MENTION: Final = re.compile(rf"\b{COTANGENT}\b")
OF_SHAPE: Final = re.compile(rf"\b(dim|dims|ndim|size|rows)\(\s*{COTANGENT}\b")


def operation_for(library: NativeLibrary, case: Case, dtype: str) -> Operation | None:
    """The operation for `op/dialect`, else for `op`; None if the library has neither.

    Raises:
        Unsupported: it has it in other dtypes alone.
    """
    exact = f"{case.spec.name}/{case.dialect.name}"
    for key in (exact, case.spec.name):
        has = [kind for name, kind in library.operations if name == key]
        if dtype in has:
            return library.operations[key, dtype]
        if has:
            # Without the operator's name: reports say the same reason once, for all of them.
            raise Unsupported(f"{library.name} has it in {' and '.join(has)}, not in {dtype}")
    return None


def refuse_unfit(operation: Operation, setting: Setting, case: Case, most: int | None) -> None:
    """Refuse a case that the code does not claim to do; `most` elements is its largest tensor.

    Raises:
        Unsupported: another value of an attribute than the code's, a size that it does not take,
            a primal that it does not know, an output without a cotangent.
        ManifestError: a condition cannot be evaluated.
    """
    _refuse_attributes(operation, setting)
    _refuse_primals(operation, setting, case)
    _refuse_cotangents(operation, setting)
    largest = max((math.prod(s) for s in _shapes(setting)), default=0)
    if most is not None and largest > most:
        raise Unsupported(f"a tensor has {largest} elements; the code takes {most} at most")
    _refuse_conditions(operation, setting)


def by_value(operation: Operation) -> bool:
    """Whether an expression reads the cotangent's value, not only its shape: a loss's."""
    return any(MENTION.search(OF_SHAPE.sub("", text)) for text in _expressions(operation))


def _shapes(setting: Setting) -> Iterator[tuple[int, ...]]:
    yield from (primal.shape for primal in setting.primals.values())
    yield from setting.outputs


def _refuse_attributes(operation: Operation, setting: Setting) -> None:
    for name, value in setting.attrs.items():
        if name in operation.attrs and value != operation.attrs[name]:
            fixed = operation.attrs[name]
            raise Unsupported(f"its code has {name}={fixed!r}; this case wants {value!r}")


def _refuse_primals(operation: Operation, setting: Setting, case: Case) -> None:
    known = {role.name for function in functions(operation) for role in roles(function)}
    known |= {*operation.missing}
    for text in _expressions(operation):
        known |= names_in(text).tensors | names_in(text).others
    for name in setting.primals:
        if name not in known:
            raise Unsupported(
                f"no parameter is the primal {name}, which dialect {case.dialect.name} has; bind "
                f"`in:{name}` or `grad:{name}`"
            )


def _refuse_cotangents(operation: Operation, setting: Setting) -> None:
    if operation.vjp is None:
        return
    bound = {r.index for r in roles(operation.vjp) if r.kind is RoleKind.COTANGENT}
    bound |= {0} if by_value(operation) else set()
    scalar = [math.prod(shape) for shape in setting.outputs] == [1]
    lacking = [i for i in range(len(setting.outputs)) if i not in bound]
    if lacking and not (scalar and not bound):
        symbol = operation.vjp.prototype.symbol
        which = f"output {lacking[0]}" if len(setting.outputs) > 1 else "the output"
        shape = setting.outputs[lacking[0]]
        raise Unsupported(
            f"{symbol} takes no cotangent of {which}, of shape {shape}; only the cotangent of a "
            "single number can be left out"
        )


def _refuse_conditions(operation: Operation, setting: Setting) -> None:
    """Those first that need no parameters: the parameters may make no sense without them."""
    function = functions(operation)[0]
    scalars = {p.name for p in function.prototype.parameters}
    plain = Context(setting.tensors, setting.attrs, {}, operation.where)

    def needs(text: str) -> bool:
        mentioned = names_in(text)
        return bool(mentioned.others & scalars - {*setting.primals, *setting.attrs})

    for text in sorted(operation.requires, key=needs):
        context = setting.context(function) if needs(text) else plain
        if not context.truth(text, of="`requires`"):
            raise Unsupported(f"its code requires {text}")


def _expressions(operation: Operation) -> Iterator[str]:
    yield from operation.requires
    yield from operation.saved.values()
    yield operation.loss_scale
    for function in functions(operation):
        for meaning in function.meanings.values():
            yield from expressions(meaning)


T = TypeVar("T")
Run = Callable[[Script, str], Outcome]
"""Run a script, in the role "vjp" or "forward"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One call laid out: its plan, and the tensors that it is given but for the cotangents."""

    setting: Setting
    plan: Plan
    tensors: Mapping[Key, Array]


@dataclass(slots=True)
class Calls:
    """The calls of one operation of a library, for one case.

    Each is made twice, with other bytes in all memory that may hold anything: an answer that
    differs read or left some of them.
    """

    library: NativeLibrary
    operation: Operation
    case: Case
    run: Run
    _last: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _by_value: bool = False

    def __post_init__(self) -> None:
        self._by_value = by_value(self.operation)

    def refuse_unfit(self, setting: Setting) -> None:
        """Refuse what the code does not claim to do; attributes and sizes may differ per call.

        Raises:
            Unsupported: it does not.
            ManifestError: a condition cannot be evaluated.
        """
        refuse_unfit(self.operation, setting, self.case, self.library.max_elements)

    def lay_out(self, setting: Setting) -> None:
        """Lay out every call with all that is known before one is made; make none.

        Raises:
            ManifestError: an expression yields nonsense here.
            Unsupported: the code needs what the case lacks.
        """
        if self.operation.forward is not None:
            self._hold(plan_forward(setting), setting)
        if self.operation.vjp is not None:
            self._hold(plan_vjp(setting), setting)

    def _hold(self, plan: Plan, setting: Setting) -> None:
        """Put into the blocks of a plan what is known of their tensors.

        Raises:
            ManifestError: a tensor's size, or a value, does not fit.
        """
        tensors = _primals(setting)
        for key in plan.reads:
            if key.kind is RoleKind.SAVED and key.name in self.operation.saved:
                tensors[key] = self._expressed(key, setting)
        for block in plan.blocks.values():
            if all(place.before in tensors for place in block.places if place.given):
                fill(block, Contents(tensors=tensors), self.operation.where)

    def reference(self, primals: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
        """The suite's own forward, in float64."""
        wide = [p if p.dtype.kind in "iu" else p.astype(np.float64) for p in primals]
        with np.errstate(all="ignore"):
            outputs = as_tuple(self.case.spec.forward(F64, *wide, **attrs))
        return tuple(np.asarray(o) for o in outputs)

    def forward_asked(self, setting: Setting) -> PlannedCall:
        """The library's own forward, laid out."""
        return self._once_per("forward", setting, lambda: self._lay_forward(setting))

    def _lay_forward(self, setting: Setting) -> PlannedCall:
        self.refuse_unfit(setting)
        return PlannedCall(setting=setting, plan=plan_forward(setting), tensors=_primals(setting))

    def vjp_asked(self, setting: Setting) -> PlannedCall:
        """The VJP, laid out, with what its forward leaves it."""
        return self._once_per("vjp", setting, lambda: self._lay_vjp(setting))

    def _lay_vjp(self, setting: Setting) -> PlannedCall:
        self.refuse_unfit(setting)
        plan = plan_vjp(setting)
        left_by_forward = (RoleKind.OUT, RoleKind.SAVED)
        kept = {k: self._kept(k, setting) for k in plan.reads if k.kind in left_by_forward}
        return PlannedCall(setting=setting, plan=plan, tensors={**_primals(setting), **kept})

    def _once_per(self, what: str, setting: Setting, make: Callable[[], T]) -> T:
        """What `make` gives, made anew only for another point."""
        point = (
            [(n, p.shape, p.tobytes()) for n, p in setting.primals.items()],
            setting.cotangents[0].tobytes() if self._by_value else b"",
            repr(setting.attrs),
            setting.outputs,
            setting.wanted,
            setting.aliases,
        )
        last = self._last.get(what)
        if last is None or last[0] != point:
            self._last[what] = last = (point, make())
        kept: T = last[1]
        return kept

    # ── what forward leaves behind ───────────────────────────────────────────────────────────

    def _kept(self, key: Key, setting: Setting) -> Array:
        """An output or a residual that a VJP wants and no call before it has left in place."""
        operation = self.operation
        if operation.forward is not None and operation.residuals == "self":
            found = residual(*self._left_by_forward(setting), key)
            if found is not None:
                return found
        if key.kind is RoleKind.OUT:
            return self.reference(tuple(setting.primals.values()), setting.attrs)[key.index]
        return self._expressed(key, setting)

    def _expressed(self, key: Key, setting: Setting) -> Array:
        """A residual as an expression of primals."""
        assert self.operation.vjp is not None
        text, of = self.operation.saved[key.name], f"`saved.{key.name}`"
        return setting.context(self.operation.vjp).array(text, of=of)

    def _left_by_forward(self, setting: Setting) -> tuple[Plan, MemoryAfter]:
        plan = self.forward_asked(setting).plan

        def make() -> MemoryAfter:
            return self.once("forward", plan, Contents(tensors=_primals(setting)))

        return plan, self._once_per("left", setting, make)

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def called(
        self, role: str, ask: PlannedCall, cotangents: Mapping[Key, Array]
    ) -> tuple[Plan, MemoryAfter]:
        """What the call leaves, checked not to depend on what its memory held before.

        Raises:
            Broken: it leaves other bits where memory held others.
        """
        plan, tensors = ask.plan, {**ask.tensors, **cotangents}
        some = slots(plan, self.operation)

        def again(poisoned: frozenset[Slot], preloads: dict[Key, Array]) -> MemoryAfter:
            contents = Contents(tensors=tensors, preloads=preloads, poisoned=poisoned)
            return self.once(role, plan, contents)

        clean = again(frozenset(), {})
        if role == "vjp":
            self._untouched(ask, clean)
        if some:
            try:
                dirty = again(frozenset(some), {})
            except Broken as error:
                raise _only_dirty(error) from None
            if not clean.same(dirty, judged(plan, role)):
                raise blame(plan, some, clean, again, role, self.symbol(role))
        return plan, clean

    def once(self, role: str, plan: Plan, contents: Contents) -> MemoryAfter:
        where, library = self.operation.where, self.library
        symbol = self.symbol(role)
        lines = script(plan, contents, library.guard, library.align, where)
        outcome = self.run(lines, role)
        for breach in outcome.breaches:
            raise broken(role, breach)
        for call, returned in plan.returned:
            status = outcome.returned[call]
            if returned.kind is RoleKind.STATUS and status:
                raise broken(role, f"{plan.calls[call].symbol} returned {status}; 0 is success")
        for name, what in outcome.strayed.items():
            reason = f"{symbol} {what} ({name})"
            says = f"an index into {name} leaves its memory"
            raise broken(role, reason, Verdict.FAIL, label="I", says=says)
        found = left(plan, contents, outcome, where)
        if found.damaged:
            reason = f"{symbol} writes outside of its part of `{found.damaged[0]}`"
            says = f"an index into `{found.damaged[0]}` leaves its part"
            raise broken(role, reason, Verdict.FAIL, label="I", says=says)
        return found

    def _untouched(self, ask: PlannedCall, found: MemoryAfter) -> None:
        """Refuse a VJP that writes into what its forward has left for it to read."""
        for block, number in ask.plan.watched:
            key = ask.plan.blocks[block].places[number].after
            was = residual(*self._left_by_forward(ask.setting), key)
            bits = found.places[Slot(block, number)]
            if was is not None and was.tobytes() != bits.tobytes():
                symbol = self.symbol("vjp")
                raise overwrites("vjp", f"{symbol} writes into its argument `{block}`; copy first")

    def symbol(self, role: str) -> str:
        function = self.operation.vjp if role == "vjp" else self.operation.forward
        function = function or functions(self.operation)[0]
        return function.prototype.symbol


def _primals(setting: Setting) -> dict[Key, Array]:
    return {Key(RoleKind.IN, name): primal for name, primal in setting.primals.items()}


def _only_dirty(error: Broken) -> Broken:
    """The error of a call that went well as long as its memory was zero."""
    finding = error.finding
    if " between calls" in finding.reason:  # it may die at any time
        return error
    reason = f"{finding.reason}; not so where all memory is zero before: something is read unset"
    return Broken(replace(finding, reason=reason))
