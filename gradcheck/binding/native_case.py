"""What the C functions of one operation are asked for one case, and the answers as gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64, dtype_named
from gradcheck.binding import Bound, Into
from gradcheck.binding.blame import blame, judged
from gradcheck.binding.call import Plan, Setting, follows_forward, plan_forward, plan_vjp
from gradcheck.binding.fitting import by_value, functions, missing, refuse_unfit, roles
from gradcheck.binding.layout import Key
from gradcheck.binding.memory import Contents, Left, Slot, left, residual, script, slots, tensor
from gradcheck.contract.returned import Broken, broken
from gradcheck.errors import ManifestError, Unsupported
from gradcheck.finding import Finding
from gradcheck.foreign.script import Outcome, Script
from gradcheck.manifest.operation import NativeLibrary, Operation, RoleKind
from gradcheck.spec import Attrs, as_tuple
from gradcheck.suite import Case
from gradcheck.verdict import Verdict

Array = NDArray[Any]
T = TypeVar("T")
Run = Callable[[Script, str], Outcome]
"""Run a script, in the role "vjp" or "forward"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call laid out: its plan, and the tensors that it is given but for the cotangents."""

    setting: Setting
    plan: Plan
    tensors: Mapping[Key, Array]


@dataclass(slots=True)
class NativeCase:
    """An operation of a library, asked for one case.

    Every call is made twice, with other bytes in all memory that may hold anything: an answer that
    differs read or left some of them.
    """

    library: NativeLibrary
    operation: Operation
    case: Case
    run: Run
    _last: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def bound(self, printed: Callable[[], str]) -> Bound:
        """The implementation of the case.

        Raises:
            Unsupported: the code does not claim to do the case.
            ManifestError: an expression yields nonsense here.
        """
        operation, case = self.operation, self.case
        setting = self._setting(case.primals, case.attrs)
        refuse_unfit(operation, setting, case, self.library.max_elements)
        self.lay_out(setting)
        gradients = [r for r in self._vjp_roles if r.kind is RoleKind.GRAD]
        optional = any(role.optional for role in gradients)
        return Bound(
            vjp=self.vjp,
            forward=self.forward if self._has_forward else None,
            attrs=case.attrs,
            into=self._into(setting),
            asked=self.asked if optional else None,
            slack=operation.slack,
            source=operation.source,
            printed=printed,
            missing=missing(operation, setting),
        )

    def lay_out(self, setting: Setting | None = None) -> None:
        """Lay out every call, and make none.

        Raises:
            ManifestError: an expression yields nonsense here.
            Unsupported: the code needs what the case lacks.
        """
        setting = setting or self._setting(self.case.primals, self.case.attrs)
        if self.operation.forward is not None:
            self._lacking(plan_forward(setting), setting)
        if self.operation.vjp is not None:
            plan = plan_vjp(setting)
            for key in plan.reads:
                known = key.kind is not RoleKind.SAVED or self._knows(key, setting)
                if not known:
                    raise ManifestError(
                        f"{self.operation.where}: nobody says what `saved:{key.name}` is: no "
                        "forward of the library's writes it, and `saved` has no expression"
                    )

    # ── what a Bound offers ──────────────────────────────────────────────────────────────────

    def vjp(self, ct: Any, *primals: Array, **attrs: Any) -> tuple[Array | None, ...]:
        """One gradient per primal.

        Raises:
            Broken: the code crashed, hung, said that it failed, or broke a rule about memory.
        """
        return self.asked((True,) * len(primals), ct, *primals, **attrs)

    def asked(
        self, needs: Sequence[bool], ct: Any, *primals: Array, **attrs: Any
    ) -> tuple[Array | None, ...]:
        """The gradients for which `needs` has True; null pointers stand for the others."""
        if self.operation.vjp is None:
            raise Unsupported(f"{self.library.name} has only a forward of {self.case.spec.name}")
        pairs = zip(self.case.primal_names, needs, strict=True)
        wanted = frozenset(name for name, needed in pairs if needed)
        setting = self._setting(primals, attrs, ct, wanted)
        plan, found = self._called("vjp", self._vjp_asked(setting), _cotangents(ct))
        factor = self._factor(setting, ct)
        return tuple(
            self._gradient(plan, found, name, primal, factor) if name in wanted else None
            for name, primal in setting.primals.items()
        )

    def forward(self, *primals: Array, **attrs: Any) -> Any:
        """The outputs: the library's own forward's, or what its VJP computes beside gradients."""
        setting = self._setting(primals, attrs)
        if self.operation.forward is not None:
            plan, found = self._called("forward", self._forward_asked(setting), {})
            kind = RoleKind.OUT
        else:
            ones = tuple(np.ones(shape) for shape in setting.outputs)
            setting = replace(setting, cotangents=ones)
            plan, found = self._called("vjp", self._vjp_asked(setting), _cotangents(ones))
            kind = RoleKind.VALUE
        outputs = tuple(
            tensor(plan, found, Key(kind, "", i), shape, dtype_named(self.operation.dtype))
            for i, shape in enumerate(setting.outputs)
        )
        return outputs[0] if len(outputs) == 1 else outputs

    def into(self, outs: Mapping[str, Array], ct: Any, *primals: Array, **attrs: Any) -> None:
        """Fill `outs`, arrays by primal; one that is the cotangent's or a primal's shares it."""
        setting = self._setting(primals, attrs, ct)
        given = [(Key(RoleKind.COTANGENT, "", i), part) for i, part in enumerate(as_tuple(ct))]
        given += [(Key(RoleKind.IN, name), p) for name, p in setting.primals.items()]
        shared = tuple((x, key) for x, out in outs.items() for key, part in given if part is out)
        setting = replace(setting, aliases=shared)
        ask = self._vjp_asked(setting)
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

    # ── settings and plans ───────────────────────────────────────────────────────────────────

    def _setting(
        self,
        primals: Sequence[Array],
        attrs: Attrs,
        ct: Any = None,
        wanted: frozenset[str] | None = None,
    ) -> Setting:
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

    def _reference(self, primals: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
        """The suite's own forward, in float64."""
        wide = [p if p.dtype.kind in "iu" else p.astype(np.float64) for p in primals]
        with np.errstate(all="ignore"):
            outputs = as_tuple(self.case.spec.forward(F64, *wide, **attrs))
        return tuple(np.asarray(o) for o in outputs)

    def _forward_asked(self, setting: Setting) -> Asked:
        return self._once_per("forward", setting, lambda: self._lay_forward(setting))

    def _lay_forward(self, setting: Setting) -> Asked:
        plan = plan_forward(setting)
        self._lacking(plan, setting)
        return Asked(setting=setting, plan=plan, tensors=_primals(setting))

    def _vjp_asked(self, setting: Setting) -> Asked:
        return self._once_per("vjp", setting, lambda: self._lay_vjp(setting))

    def _lay_vjp(self, setting: Setting) -> Asked:
        plan = plan_vjp(setting)
        left_by_forward = (RoleKind.OUT, RoleKind.SAVED)
        kept = {k: self._kept(k, setting) for k in plan.reads if k.kind in left_by_forward}
        return Asked(setting=setting, plan=plan, tensors={**_primals(setting), **kept})

    def _once_per(self, what: str, setting: Setting, make: Callable[[], T]) -> T:
        """What `make` gives, made anew only for another point."""
        point = (
            [(n, p.shape, p.tobytes()) for n, p in setting.primals.items()],
            setting.cotangents[0].tobytes() if by_value(self.operation) else b"",
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

    def _knows(self, key: Key, setting: Setting) -> bool:
        """Whether the library's forward, or an expression, gives a residual."""
        own = self.operation.forward is not None and self.operation.residuals == "self"
        made = own and key in plan_forward(setting).makes
        return made or key.name in self.operation.saved

    def _kept(self, key: Key, setting: Setting) -> Array:
        """An output or a residual that a VJP wants and no call before it has left in place."""
        operation = self.operation
        if operation.forward is not None and operation.residuals == "self":
            found = residual(*self._left_by_forward(setting), key)
            if found is not None:
                return found
        if key.kind is RoleKind.OUT:
            return self._reference(tuple(setting.primals.values()), setting.attrs)[key.index]
        assert operation.vjp is not None
        of = f"`saved.{key.name}`"
        return setting.context(operation.vjp).array(operation.saved[key.name], of=of)

    def _left_by_forward(self, setting: Setting) -> tuple[Plan, Left]:
        plan = self._forward_asked(setting).plan

        def make() -> Left:
            return self._once("forward", plan, Contents(tensors=_primals(setting)))

        return plan, self._once_per("left", setting, make)

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    def _called(
        self, role: str, ask: Asked, cotangents: Mapping[Key, Array]
    ) -> tuple[Plan, Left]:
        """What the call leaves, whatever its memory held before.

        Raises:
            Broken: it leaves other bits where memory held others.
        """
        plan, tensors = ask.plan, {**ask.tensors, **cotangents}
        some = slots(plan, self.operation)

        def again(poisoned: frozenset[Slot], preloads: dict[Key, Array]) -> Left:
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

    def _once(self, role: str, plan: Plan, contents: Contents) -> Left:
        where, library = self.operation.where, self.library
        symbol = self._symbol(role)
        lines = script(plan, contents, library.guard, library.align, where)
        outcome = self.run(lines, role)
        for call, returned in plan.returned:
            status = outcome.returned[call]
            if returned.kind is RoleKind.STATUS and status:
                raise broken(role, f"{plan.calls[call].symbol} returned {status}; 0 is success")
        for name, what in outcome.strayed.items():
            raise broken(role, f"{symbol} {what} ({name})", Verdict.FAIL)
        found = left(plan, contents, outcome, where)
        if found.hurt:
            reason = f"{symbol} writes outside of its part of `{found.hurt[0]}`"
            raise broken(role, reason, Verdict.FAIL)
        return found

    def _untouched(self, ask: Asked, found: Left) -> None:
        """Refuse a VJP that writes into what its forward has left for it to read."""
        for block, number in ask.plan.watched:
            key = ask.plan.blocks[block].places[number].after
            was = residual(*self._left_by_forward(ask.setting), key)
            bits = found.places[Slot(block, number)]
            if was is not None and was.tobytes() != bits.tobytes():
                symbol = self._symbol("vjp")
                raise broken("vjp", f"{symbol} writes into its argument `{block}`; copy first")

    # ── answers ──────────────────────────────────────────────────────────────────────────────

    def _gradient(
        self, plan: Plan, found: Left, name: str, primal: Array, factor: float
    ) -> Array | None:
        if name in self.operation.missing or primal.dtype.kind in "iu":
            return None
        dtype = dtype_named(self.operation.dtype)
        value = tensor(plan, found, Key(RoleKind.GRAD, name), primal.shape, dtype)
        if value is None or factor == 1:
            return value
        return np.asarray(value.astype(np.float64) * factor).astype(dtype)

    def _factor(self, setting: Setting, ct: Any) -> float:
        """What turns the code's gradients into the true ones."""
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

    def _into(self, setting: Setting) -> Into | None:
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
            call=self.into,
            accumulates=operation.accumulates,
            zeroed=operation.zeroed,
            aliases=operation.aliases,
        )

    @property
    def _vjp_roles(self) -> list[Any]:
        return [] if self.operation.vjp is None else list(roles(self.operation.vjp))

    @property
    def _takes_cotangent(self) -> bool:
        bound = any(role.kind is RoleKind.COTANGENT for role in self._vjp_roles)
        return bound or by_value(self.operation)

    @property
    def _has_forward(self) -> bool:
        value = any(role.kind is RoleKind.VALUE for role in self._vjp_roles)
        return self.operation.forward is not None or value

    def _lacking(self, plan: Plan, setting: Setting) -> None:
        """Refuse a forward that leaves an output out.

        Raises:
            ManifestError: it does.
        """
        for i in range(len(setting.outputs)):
            if Key(RoleKind.OUT, "", i) not in plan.makes:
                role = "out" if i == 0 else f"out:{i}"
                raise ManifestError(
                    f"{self.operation.where}: no parameter of {self._symbol('forward')} is "
                    f"`{role}`; bind one, or leave the forward out"
                )

    def _symbol(self, role: str) -> str:
        function = self.operation.vjp if role == "vjp" else self.operation.forward
        function = function or functions(self.operation)[0]
        return function.prototype.symbol


def _primals(setting: Setting) -> dict[Key, Array]:
    return {Key(RoleKind.IN, name): primal for name, primal in setting.primals.items()}


def _cotangents(ct: Any) -> dict[Key, Array]:
    return {Key(RoleKind.COTANGENT, "", i): np.asarray(p) for i, p in enumerate(as_tuple(ct))}


def _only_dirty(error: Broken) -> Broken:
    """The error of a call that went well as long as its memory was zero."""
    finding = error.finding
    reason = f"{finding.reason}; not so where all memory is zero before: something is read unset"
    return Broken(replace(finding, reason=reason))
