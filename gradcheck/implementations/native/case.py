"""One case of an operation of a C library: its calls, and the gradients and outputs they leave.

Each call is made twice, with other bytes in all memory that may hold anything: an answer that
differs read or left some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError, Unsupported
from gradcheck.implementations.bound import Bound, Into
from gradcheck.implementations.manifest.operation import (
    NativeLibrary,
    Operation,
    Role,
    RoleKind,
    functions,
    roles,
)
from gradcheck.implementations.native.claims import by_value, refuse_unfit
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
    tensor,
)
from gradcheck.implementations.native.plan import Plan, Setting, plan_forward, plan_vjp
from gradcheck.implementations.processes.c_worker import Outcome, Script
from gradcheck.implementations.returned import Broken, broken, overwrites
from gradcheck.implementations.user_functions import placed
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple, dtype_named
from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import Defect
from gradcheck.spec.operator import CORE
from gradcheck.spec.suite import Case

Array = NDArray[Any]
T = TypeVar("T")
Run = Callable[[Script, str], Outcome]
"""Run a script, in the role "vjp" or "forward"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One call laid out: its plan, and the tensors that it is given but for the cotangents."""

    setting: Setting
    plan: Plan
    tensors: Mapping[Key, Array]


class NativeCase:
    """An operation of a library, called for one case."""

    def __init__(self, library: NativeLibrary, operation: Operation, case: Case, run: Run) -> None:
        """Call by `run`."""
        self.library, self.operation, self.case = library, operation, case
        self._run = run
        self._last: dict[str, tuple[Any, Any]] = {}
        self._by_value = by_value(operation)
        self._vjp_roles: list[Role] = list(roles(operation.vjp))
        cotangent = any(role.kind is RoleKind.COTANGENT for role in self._vjp_roles)
        self._takes_cotangent = cotangent or self._by_value
        values = {role.index for role in self._vjp_roles if role.kind is RoleKind.VALUE}
        outputs = CORE.findall(case.spec.signature.partition("->")[2])
        self._has_value = len(values) == len(outputs)

    def bound(self, printed: Callable[[], str]) -> Bound:
        """The implementation of the case."""
        operation, case = self.operation, self.case
        self._refuse_unfit(self.setting(case.primals, case.attrs))
        gradients = [r for r in self._vjp_roles if r.kind is RoleKind.GRAD]
        optional = any(role.optional for role in gradients)
        return Bound(
            vjp=_in_words("vjp", self.vjp),
            forward=_in_words("forward", self.forward)
            if operation.forward or self._has_value
            else None,
            attrs=case.attrs,
            into=self._into(),
            asked=_in_words("vjp", self.asked) if optional else None,
            slack=operation.slack,
            source=placed(operation.source, self.library.path.parent),
            printed=printed,
            missing=self._missing,
        )

    def lay_out(self) -> None:
        """Lay out every call with all that is known before one is made; make none."""
        setting = self.setting(self.case.primals, self.case.attrs)
        self._refuse_unfit(setting)
        if self.operation.forward is not None:
            self._fill(plan_forward(setting), setting)
        if self.operation.vjp is not None:
            self._fill(plan_vjp(setting), setting)

    def vjp(self, ct: Any, *primals: Array, **attrs: Any) -> tuple[Array | None, ...]:
        return self.asked((True,) * len(primals), ct, *primals, **attrs)

    def asked(
        self, needs: Sequence[bool], ct: Any, *primals: Array, **attrs: Any
    ) -> tuple[Array | None, ...]:
        """The gradients for which `needs` has True; null pointers stand for the others."""
        if self.operation.vjp is None:
            raise Unsupported(f"{self.library.name} has only a forward of {self.case.spec.name}")
        pairs = zip(self.case.primal_names, needs, strict=True)
        wanted = frozenset(name for name, needed in pairs if needed)
        setting = self.setting(primals, attrs, ct, wanted)
        plan, found = self._called("vjp", self.planned_vjp(setting), _cotangents(ct))
        factor = self.factor(setting, ct)
        return tuple(
            self._gradient(plan, found, name, primal, factor) if name in wanted else None
            for name, primal in setting.primals.items()
        )

    def forward(self, *primals: Array, **attrs: Any) -> Any:
        """The outputs of the library's own forward, or what its VJP computes beside gradients.

        Where it has both, the worse of the two, element by element.
        """
        setting = self.setting(primals, attrs)
        found = []
        if self.operation.forward is not None:
            plan, what = self._called("forward", self.planned_forward(setting), {})
            found.append(self._outputs(plan, what, RoleKind.OUT, setting))
        if self._has_value:
            ones = tuple(np.ones(shape) for shape in setting.outputs)
            setting = replace(setting, cotangents=ones)
            plan, what = self._called("vjp", self.planned_vjp(setting), _cotangents(ones))
            found.append(self._outputs(plan, what, RoleKind.VALUE, setting))
        outputs = found[0]
        if len(found) > 1:
            right = self._reference(primals, setting.attrs)
            outputs = tuple(map(_worse, *found, right))
        return outputs[0] if len(outputs) == 1 else outputs

    def into(self, outs: Mapping[str, Array], ct: Any, *primals: Array, **attrs: Any) -> None:
        """Fill `outs`, arrays by primal; one that is the cotangent's or a primal's shares it."""
        setting = self.setting(primals, attrs, ct)
        given = [(Key(RoleKind.COTANGENT, "", i), part) for i, part in enumerate(as_tuple(ct))]
        given += [(Key(RoleKind.IN, name), p) for name, p in setting.primals.items()]
        shared = tuple((x, key) for x, out in outs.items() for key, part in given if part is out)
        setting = replace(setting, aliases=shared)
        ask = self.planned_vjp(setting)
        scale = self._scale(setting)
        alone = {name: out for name, out in outs.items() if name not in dict(shared)}
        contents = Contents(
            tensors={**ask.tensors, **_cotangents(ct)},
            preloads={
                Key(RoleKind.GRAD, x): out if scale == 1 else out.astype(np.float64) * scale
                for x, out in alone.items()
            },
            poisoned=frozenset(slots(ask.plan, self.operation)),
        )
        found = self._once("vjp", ask.plan, contents)
        for name, out in outs.items():
            gradient = self._gradient(ask.plan, found, name, out, 1 / scale)
            if gradient is not None:
                out[...] = gradient

    # ── answers ──────────────────────────────────────────────────────────────────────────────

    def setting(
        self,
        primals: Sequence[Array],
        attrs: Attrs,
        ct: Any = None,
        wanted: frozenset[str] | None = None,
    ) -> Setting:
        """The setting of one call; forward's outputs stand for a lacking `ct`."""
        names = self.case.primal_names
        every = {**self.case.attrs, **attrs}
        cotangents = self._reference(primals, every) if ct is None else as_tuple(ct)
        return Setting(
            operation=self.operation,
            primals=dict(zip(names, primals, strict=True)),
            attrs=every,
            cotangents=tuple(np.asarray(c) for c in cotangents),
            wanted=frozenset(names) if wanted is None else wanted,
        )

    @property
    def _missing(self) -> Mapping[str, str]:
        """The primals whose gradient the code lacks, and why."""
        made = {role.name for role in self._vjp_roles if role.kind is RoleKind.GRAD}
        silent = {
            name: f"no parameter is bound to grad:{name}"
            for name in self.case.primal_names
            if name not in made
        }
        return {**silent, **self.operation.missing}

    def _outputs(
        self, plan: Plan, found: MemoryAfter, kind: RoleKind, setting: Setting
    ) -> tuple[Array | None, ...]:
        dtype = dtype_named(self.operation.dtype)
        return tuple(
            tensor(plan, found, Key(kind, "", i), shape, dtype)
            for i, shape in enumerate(setting.outputs)
        )

    def _gradient(
        self, plan: Plan, found: MemoryAfter, name: str, primal: Array, factor: float
    ) -> Array | None:
        if name in self.operation.missing or primal.dtype.kind in "iu":
            return None
        dtype = dtype_named(self.operation.dtype)
        value = tensor(plan, found, Key(RoleKind.GRAD, name), primal.shape, dtype)
        if value is None or factor == 1:
            return value
        return np.asarray(value.astype(np.float64) * factor).astype(dtype)

    def factor(self, setting: Setting, ct: Any) -> float:
        """The factor from the code's gradients to the true ones."""
        factor = 1 / self._scale(setting)
        if self._takes_cotangent:
            return factor
        return factor * float(np.asarray(as_tuple(ct)[0], dtype=np.float64).reshape(()))

    def _scale(self, setting: Setting) -> float:
        assert self.operation.vjp is not None
        if self.operation.loss_scale == "1":
            return 1.0
        scale = setting.context(self.operation.vjp).number(self.operation.loss_scale)
        if not (np.isfinite(scale) and scale):
            where = self.operation.where
            raise ManifestError(f"{where}: `loss_scale` is {scale}; nothing can be divided by it")
        return float(scale)

    def _into(self) -> Into | None:
        """The VJP into memory of the caller's; None where its buffers are not the gradients.

        A gradient that is the sum of several buffers, or that a cotangent multiplies afterwards,
        is not what the code has written.
        """
        operation = self.operation
        if operation.vjp is None:
            return None
        kinds = [r for r in self._vjp_roles if r.kind is RoleKind.GRAD]
        names = [r.name for r in kinds]
        several = len(names) != len(set(names))
        returned = operation.vjp.returned in kinds
        if several or returned or not self._takes_cotangent:
            return None
        return Into(
            call=_in_words("vjp", self.into),
            accumulates=operation.accumulates,
            zeroed=operation.zeroed,
            aliases=operation.aliases,
        )

    # ── plans ────────────────────────────────────────────────────────────────────────────────

    def _refuse_unfit(self, setting: Setting) -> None:
        """Refuse what the code does not claim to do; attributes and sizes may differ per call."""
        refuse_unfit(self.operation, setting, self.case, self.library.max_elements)

    def _fill(self, plan: Plan, setting: Setting) -> None:
        """Fill the blocks of a plan whose tensors are known: sizes and values must fit."""
        tensors = _primals(setting)
        for key in plan.reads:
            if key.kind is RoleKind.SAVED and key.name in self.operation.saved:
                tensors[key] = self._expressed(key, setting)
        for block in plan.blocks.values():
            if all(place.before in tensors for place in block.places if place.given):
                fill(block, Contents(tensors=tensors), self.operation.where)

    def _reference(self, primals: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
        wide = [p if p.dtype.kind in "iu" else p.astype(np.float64) for p in primals]
        with np.errstate(all="ignore"):
            outputs = as_tuple(self.case.spec.forward(F64, *wide, **attrs))
        return tuple(np.asarray(o) for o in outputs)

    def planned_forward(self, setting: Setting) -> PlannedCall:
        """The library's own forward, laid out."""

        def make() -> PlannedCall:
            self._refuse_unfit(setting)
            return PlannedCall(
                setting=setting, plan=plan_forward(setting), tensors=_primals(setting)
            )

        return self._once_per("forward", setting, make)

    def planned_vjp(self, setting: Setting) -> PlannedCall:
        """The VJP, laid out, with what its forward leaves it."""

        def make() -> PlannedCall:
            self._refuse_unfit(setting)
            plan = plan_vjp(setting)
            by_forward = (RoleKind.OUT, RoleKind.SAVED)
            kept = {k: self._kept(k, setting) for k in plan.reads if k.kind in by_forward}
            return PlannedCall(setting=setting, plan=plan, tensors={**_primals(setting), **kept})

        return self._once_per("vjp", setting, make)

    def _once_per(self, what: str, setting: Setting, make: Callable[[], T]) -> T:
        """The result of `make`, kept until another point is asked for."""
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
            return self._reference(tuple(setting.primals.values()), setting.attrs)[key.index]
        return self._expressed(key, setting)

    def _expressed(self, key: Key, setting: Setting) -> Array:
        """A residual as an expression of primals."""
        assert self.operation.vjp is not None
        text, of = self.operation.saved[key.name], f"`saved.{key.name}`"
        return setting.context(self.operation.vjp).array(text, of=of)

    def _left_by_forward(self, setting: Setting) -> tuple[Plan, MemoryAfter]:
        plan = self.planned_forward(setting).plan

        def make() -> MemoryAfter:
            return self._once("forward", plan, Contents(tensors=_primals(setting)))

        return plan, self._once_per("left", setting, make)

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def _called(
        self, role: str, ask: PlannedCall, cotangents: Mapping[Key, Array]
    ) -> tuple[Plan, MemoryAfter]:
        """Make the call, on zeros and on other bits: both must leave the same results."""
        plan, tensors = ask.plan, {**ask.tensors, **cotangents}
        some = slots(plan, self.operation)

        def again(poisoned: frozenset[Slot], preloads: dict[Key, Array]) -> MemoryAfter:
            contents = Contents(tensors=tensors, preloads=preloads, poisoned=poisoned)
            return self._once(role, plan, contents)

        clean = again(frozenset(), {})
        if role == "vjp":
            self._untouched(ask, clean)
        if some:
            try:
                dirty = again(frozenset(some), {})
            except Broken as error:
                raise _only_dirty(error) from None
            if not clean.same(dirty, judged(plan, role)):
                raise blame(plan, some, clean, again, role, self._symbol(role))
        return plan, clean

    def _once(self, role: str, plan: Plan, contents: Contents) -> MemoryAfter:
        where, library = self.operation.where, self.library
        symbol = self._symbol(role)
        lines = script(plan, contents, library.guard, library.align, where)
        outcome = self._run(lines, role)
        for breach in outcome.breaches:
            raise broken(role, breach)
        for call, returned in plan.returned:
            status = outcome.returned[call]
            if returned.kind is RoleKind.STATUS and status:
                raise broken(role, f"{plan.calls[call].symbol} returned {status}; 0 is success")
        for name, what in outcome.strayed.items():
            reason = f"{symbol} {what} ({name})"
            says = f"an index into {name} leaves its memory"
            raise broken(role, reason, Verdict.FAIL, label=Defect.INDEX, says=says)
        found = left(plan, contents, outcome, where)
        if found.damaged:
            reason = f"{symbol} writes outside of its part of `{found.damaged[0]}`"
            says = f"an index into `{found.damaged[0]}` leaves its part"
            raise broken(role, reason, Verdict.FAIL, label=Defect.INDEX, says=says)
        return found

    def _untouched(self, ask: PlannedCall, found: MemoryAfter) -> None:
        """Refuse a VJP that writes into what its forward has left for it to read."""
        for block, number in ask.plan.watched:
            key = ask.plan.blocks[block].places[number].after
            was = residual(*self._left_by_forward(ask.setting), key)
            bits = found.places[Slot(block, number)]
            if was is not None and was.tobytes() != bits.tobytes():
                symbol = self._symbol("vjp")
                raise overwrites("vjp", f"{symbol} writes into its argument `{block}`; copy first")

    def _symbol(self, role: str) -> str:
        function = self.operation.vjp if role == "vjp" else self.operation.forward
        function = function or functions(self.operation)[0]
        return function.prototype.symbol


def _primals(setting: Setting) -> dict[Key, Array]:
    return {Key(RoleKind.IN, name): primal for name, primal in setting.primals.items()}


def _only_dirty(error: Broken) -> Broken:
    """The error of a call that succeeds only where its memory is zero before."""
    finding = error.finding
    if " between calls" in finding.reason:  # it may die at any time
        return error
    reason = f"{finding.reason}; not so where all memory is zero before: something is read unset"
    return Broken(replace(finding, reason=reason))


def _cotangents(ct: Any) -> dict[Key, Array]:
    return {Key(RoleKind.COTANGENT, "", i): np.asarray(p) for i, p in enumerate(as_tuple(ct))}


def _worse(first: Array, second: Array, right: Array) -> Array:
    """The answer with the larger error, element by element."""
    with np.errstate(all="ignore"):
        off = [np.abs(x.astype(np.float64) - right) for x in (first, second)]
        return np.where(np.isnan(off[1]) | (off[1] > off[0]), second, first)


def _in_words(role: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    """`ask`, with a `ManifestError` turned into a finding about the role."""

    def asked(*args: Any, **attrs: Any) -> Any:
        try:
            return ask(*args, **attrs)
        except ManifestError as error:
            raise broken(role, str(error)) from error

    return asked
