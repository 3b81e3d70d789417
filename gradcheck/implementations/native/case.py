"""What the C functions of one operation answer for one case, as a `Bound`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError, Unsupported
from gradcheck.implementations.bound import Bound, Into
from gradcheck.implementations.manifest.operation import Role, RoleKind, roles
from gradcheck.implementations.native.calls import Calls, by_value
from gradcheck.implementations.native.layout import Key
from gradcheck.implementations.native.memory import Contents, MemoryAfter, slots, tensor
from gradcheck.implementations.native.plan import Plan, Setting
from gradcheck.implementations.returned import broken
from gradcheck.implementations.user_functions import placed
from gradcheck.numerics.arrays import Attrs, as_tuple, dtype_named
from gradcheck.spec.operator import CORE

Array = NDArray[Any]


class NativeCase:
    """An operation of a library, asked for one case."""

    def __init__(self, calls: Calls) -> None:
        """Ask by `calls`."""
        self.calls = calls
        self.operation, self.case, self.library = calls.operation, calls.case, calls.library
        vjp = self.operation.vjp
        self._vjp_roles: list[Role] = [] if vjp is None else list(roles(vjp))
        cotangent = any(role.kind is RoleKind.COTANGENT for role in self._vjp_roles)
        self._takes_cotangent = cotangent or by_value(self.operation)
        values = {role.index for role in self._vjp_roles if role.kind is RoleKind.VALUE}
        outputs = CORE.findall(self.case.spec.signature.partition("->")[2])
        self._has_value = len(values) == len(outputs)

    def bound(self, printed: Callable[[], str]) -> Bound:
        """The implementation of the case.

        Raises:
            Unsupported: the code does not claim to do the case.
            ManifestError: an expression yields nonsense here.
        """
        operation, case = self.operation, self.case
        self.calls.refuse_unfit(self.setting(case.primals, case.attrs))
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
        """Lay out every call, and make none.

        Raises:
            ManifestError: an expression yields nonsense here.
            Unsupported: the code does not claim to do the case.
        """
        setting = self.setting(self.case.primals, self.case.attrs)
        self.calls.refuse_unfit(setting)
        self.calls.lay_out(setting)

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
        setting = self.setting(primals, attrs, ct, wanted)
        plan, found = self.calls.called("vjp", self.calls.vjp_asked(setting), _cotangents(ct))
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
            plan, what = self.calls.called("forward", self.calls.forward_asked(setting), {})
            found.append(self._outputs(plan, what, RoleKind.OUT, setting))
        if self._has_value:
            ones = tuple(np.ones(shape) for shape in setting.outputs)
            setting = replace(setting, cotangents=ones)
            plan, what = self.calls.called("vjp", self.calls.vjp_asked(setting), _cotangents(ones))
            found.append(self._outputs(plan, what, RoleKind.VALUE, setting))
        outputs = found[0]
        if len(found) > 1:
            right = self.calls.reference(primals, setting.attrs)
            outputs = tuple(map(_worse, *found, right))
        return outputs[0] if len(outputs) == 1 else outputs

    def into(self, outs: Mapping[str, Array], ct: Any, *primals: Array, **attrs: Any) -> None:
        """Fill `outs`, arrays by primal; one that is the cotangent's or a primal's shares it."""
        setting = self.setting(primals, attrs, ct)
        given = [(Key(RoleKind.COTANGENT, "", i), part) for i, part in enumerate(as_tuple(ct))]
        given += [(Key(RoleKind.IN, name), p) for name, p in setting.primals.items()]
        shared = tuple((x, key) for x, out in outs.items() for key, part in given if part is out)
        setting = replace(setting, aliases=shared)
        ask = self.calls.vjp_asked(setting)
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
        found = self.calls.once("vjp", ask.plan, contents)
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
        """What one call is asked: without `ct` anything of its shape, without `wanted` all."""
        names = self.case.primal_names
        every = {**self.case.attrs, **attrs}
        cotangents = self.calls.reference(primals, every) if ct is None else as_tuple(ct)
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


def _cotangents(ct: Any) -> dict[Key, Array]:
    return {Key(RoleKind.COTANGENT, "", i): np.asarray(p) for i, p in enumerate(as_tuple(ct))}


def _worse(first: Array, second: Array, right: Array) -> Array:
    """Of two answers, element by element, the one that lies further from the right one."""
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
