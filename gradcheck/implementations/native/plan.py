"""One call of a C function laid out: blocks of memory, and the calls made on them.

An expression that yields nonsense is a `ManifestError`, a lacking primal `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError, Unsupported
from gradcheck.implementations.manifest.expression import COTANGENT, Context
from gradcheck.implementations.manifest.operation import (
    CType,
    Function,
    Operation,
    Parameter,
    Role,
    RoleKind,
    Scratch,
    Special,
    Tensors,
    Value,
    View,
    views,
)
from gradcheck.implementations.native.layout import Element, Key, Place, extent, key_of, place
from gradcheck.implementations.processes.c_worker import Argument, Call, Kept, Pointer, Scalar
from gradcheck.numerics.arrays import Attrs
from gradcheck.results.words import plural

Array = NDArray[Any]


class Holds(StrEnum):
    """The purpose of a block of memory."""

    TENSORS = "tensors"
    CONSTANT = "constant"
    ANYTHING = "anything"
    """Workspace that may hold anything before the call."""
    ZEROS = "zeros"
    """Workspace that is zero before the call."""
    NOTHING = "nothing"
    """Memory that may not be touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One buffer of `size` elements; `content` are the bytes of a constant."""

    name: str
    holds: Holds
    element: Element | None = None
    size: int = 0
    places: tuple[Place, ...] = ()
    content: bytes = b""

    @property
    def written(self) -> bool:
        work = self.holds in (Holds.ANYTHING, Holds.ZEROS)
        return work or any(p.made for p in self.places)

    @property
    def itemsize(self) -> int:
        return 1 if self.element is None else self.element.storage.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The arguments of one call: an operation, its primals, attributes, cotangents of its outputs.

    Where no cotangent is at hand, anything of its shape stands for it. `wanted` are the primals
    whose gradients are asked for; `aliases` pairs of a primal, whose gradient lies where a
    cotangent or a primal does, and that tensor.
    """

    operation: Operation
    primals: Mapping[str, Array]
    attrs: Attrs
    cotangents: tuple[Array, ...]
    wanted: frozenset[str]
    aliases: tuple[tuple[str, Key], ...] = ()

    def context(self, function: Function) -> Context:
        """The context of expressions of `function`, with its scalar parameters."""
        return Context.of(function, self.tensors, self.attrs, self.operation.where)

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        return tuple(np.shape(ct) for ct in self.cotangents)

    @property
    def tensors(self) -> Mapping[str, Array]:
        """The tensors that expressions may name: the primals, and the first cotangent.

        Those that are not indices are float64.
        """
        wide = {
            name: primal if primal.dtype.kind in "iu" else primal.astype(np.float64)
            for name, primal in self.primals.items()
        }
        return {COTANGENT: np.asarray(self.cotangents[0]).astype(np.float64), **wide}

    def absent(self, role: Role) -> bool:
        """Whether the case lacks the primal, or its gradient is not asked for."""
        if role.kind is RoleKind.GRAD and role.optional and role.name not in self.wanted:
            return True
        return role.kind in (RoleKind.IN, RoleKind.GRAD) and role.name not in self.primals

    def shape(self, role: Role, context: Context) -> tuple[int, ...]:
        if role.kind in (RoleKind.IN, RoleKind.GRAD):
            return self.primals[role.name].shape
        if role.kind is RoleKind.SAVED:
            return tuple(context.size(text) for text in role.extents)
        if role.index >= len(self.outputs):
            raise ManifestError(
                f"{self.operation.where}: {role.kind.value}:{role.index}: the operator has "
                f"{plural(len(self.outputs), 'output')} here, counted from 0"
            )
        return self.outputs[role.index]


@dataclass(slots=True)
class Plan:
    """Blocks and the calls made on them; which of the calls return what.

    `reads` are the tensors that must be given; `watched` are places (block, number) that one call
    fills and a later one may only read.
    """

    blocks: dict[str, Block] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    returned: list[tuple[int, Role]] = field(default_factory=list)
    watched: list[tuple[str, int]] = field(default_factory=list)

    @property
    def places(self) -> Iterator[tuple[str, int, Place]]:
        """Every tensor's place: its block, its number there."""
        for name, block in self.blocks.items():
            for number, where in enumerate(block.places):
                yield name, number, where

    @property
    def reads(self) -> frozenset[Key]:
        return frozenset(p.before for _, _, p in self.places if p.given)

    @property
    def makes(self) -> frozenset[Key]:
        out = {p.after for _, _, p in self.places if p.made}
        return frozenset(out | {key_of(role) for _, role in self.returned})


HANDLE: Final = "handle"
LARGEST: Final = 1 << 32
"""Bytes of a buffer: more is a mistake in a size."""
FORWARD: Final = frozenset({RoleKind.IN})
"""The tensors that a forward reads; it writes the rest."""
VJP: Final = frozenset({RoleKind.IN, RoleKind.COTANGENT, RoleKind.OUT, RoleKind.SAVED})
"""The tensors that a VJP reads; it writes gradients and values."""


def plan_forward(setting: Setting) -> Plan:
    """The library's own forward, alone."""
    assert setting.operation.forward is not None
    plan = Plan()
    with_handle(plan, setting, [(setting.operation.forward, FORWARD)])
    return plan


def plan_vjp(setting: Setting) -> Plan:
    """The VJP; its own forward before it, if it wants what that leaves."""
    operation = setting.operation
    assert operation.vjp is not None
    plan = Plan()
    steps = [(operation.vjp, VJP)]
    if follows_forward(operation):
        assert operation.forward is not None
        steps.insert(0, (operation.forward, FORWARD))
    with_handle(plan, setting, steps)
    for name, key in setting.aliases:
        _share(plan, Key(RoleKind.GRAD, name), key, operation.where)
    return plan


def follows_forward(operation: Operation) -> bool:
    """Whether the VJP runs behind the library's own forward."""
    if operation.forward is None or operation.vjp is None or operation.residuals != "self":
        return False
    left = (RoleKind.OUT, RoleKind.SAVED)
    needs = any(view.role.kind in left for view in views(operation.vjp))
    return needs or operation.create is not None


def with_handle(
    plan: Plan, setting: Setting, steps: Sequence[tuple[Function, frozenset[RoleKind]]]
) -> None:
    """Add calls of functions, between those that make and free the handle, if there is one."""
    operation = setting.operation
    if operation.create is not None:
        _add(plan, setting, operation.create, FORWARD, keep=HANDLE)
    for function, given in steps:
        _add(plan, setting, function, given)
    if operation.destroy is not None:
        _add(plan, setting, operation.destroy, FORWARD)


def _add(
    plan: Plan, setting: Setting, function: Function, given: frozenset[RoleKind], keep: str = ""
) -> None:
    prototype = function.prototype
    maker = _Maker(plan, setting, function, given, setting.context(function))
    arguments = tuple(maker.argument(p) for p in prototype.parameters)
    returns = "pointer" if keep else "void" if _ignored(function) else prototype.returns.base
    if function.returned is not None:
        plan.returned.append((len(plan.calls), function.returned))
    plan.calls.append(
        Call(
            library=str(function.library),
            symbol=prototype.symbol,
            arguments=arguments,
            returns=returns,
            keep=keep,
            label=prototype.symbol,
        )
    )


def _ignored(function: Function) -> bool:
    return function.returned is None or function.prototype.returns.pointer > 0


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the arguments of one function."""

    plan: Plan
    setting: Setting
    function: Function
    given: frozenset[RoleKind]
    context: Context

    def argument(self, parameter: Parameter) -> Argument:
        """The argument for one parameter; its block is added to the plan."""
        meaning = self.function.meanings[parameter.name]
        if isinstance(meaning, Value):
            return self._value(parameter, meaning)
        if meaning is Special.HANDLE:
            return Kept(name=HANDLE)
        if meaning is Special.NULL:
            return None
        if meaning is Special.UNUSED and not parameter.ctype.pointer:
            return Scalar(ctype=_scalar(parameter.ctype), value=0)
        if meaning is Special.UNUSED:
            return self._block(parameter, Holds.NOTHING)
        if isinstance(meaning, Scratch):
            holds = Holds.ANYTHING if meaning.anything else Holds.ZEROS
            element = self._workspace(parameter)
            size = self.context.size(meaning.size, of=f"scratch `{parameter.name}`")
            return self._block(parameter, holds, element=element, size=size)
        assert isinstance(meaning, Tensors)
        return self._tensors(parameter, meaning)

    def _value(self, parameter: Parameter, meaning: Value) -> Argument:
        name, ctype, text = parameter.name, parameter.ctype, meaning.expression
        if not ctype.pointer:
            return Scalar(ctype=_scalar(ctype), value=self.context.names[name])
        of = f"parameter `{name}`"
        if ctype.base == "char":
            content = self.context.text(text, of=of).encode() + b"\0"
        else:
            element = self._element(parameter, floating=False)
            numbers = np.asarray(self.context.numbers(text, of=of))
            content = element.encode(numbers, f"{self._where}, {of}").tobytes()
        return self._block(parameter, Holds.CONSTANT, content=content)

    def _tensors(self, parameter: Parameter, meaning: Tensors) -> Argument:
        where = f"{self._where}, parameter `{parameter.name}`"
        present = [view for view in meaning.views if not self._absent(view, parameter)]
        if not present:
            return None
        places = tuple(
            place(v, self.setting.shape(v.role, self.context), self.given, self.context, where)
            for v in present
        )
        floating = any(self._floating(view) for view in present)
        size = self.context.size(meaning.size) if meaning.size else None
        return self._block(
            parameter,
            Holds.TENSORS,
            element=self._element(parameter, floating=floating),
            size=extent(places, size, where),
            places=places,
        )

    def _absent(self, view: View, parameter: Parameter) -> bool:
        role = view.becomes if view.becomes is not None else view.role
        missing = [r for r in (view.role, role) if self.setting.absent(r)]
        if not missing:
            return False
        if not view.role.optional:
            raise Unsupported(
                f"`{parameter.name}` of {self.function.prototype.symbol} is {_said(missing[0])}, "
                f"and there is no {missing[0].name} here; end its role with `?` if it may be null"
            )
        return True

    def _floating(self, view: View) -> bool:
        if view.role.kind is not RoleKind.IN:
            return True
        return self.setting.primals[view.role.name].dtype.kind not in "iu"

    def _element(self, parameter: Parameter, *, floating: bool) -> Element:
        return Element.of(parameter.ctype, self.setting.operation.dtype, floating=floating)

    def _workspace(self, parameter: Parameter) -> Element:
        """The elements of a workspace; those of a `void*` are bytes."""
        ctype = parameter.ctype
        base = "int8" if ctype.base == "void" else ctype.base
        return Element.of(replace(ctype, base=base), self.setting.operation.dtype)

    def _block(self, parameter: Parameter, holds: Holds, **more: Any) -> Pointer:
        block = Block(name=parameter.name, holds=holds, **more)
        size = block.size * block.itemsize
        if size > LARGEST:
            raise ManifestError(
                f"{self._where}: `{block.name}` would have {size:,} bytes; {LARGEST:,} are "
                "enough for any sample: correct its size, or a stride"
            )
        shared = next((b for b in self.plan.blocks.values() if _continues(block, b)), None)
        if shared is not None:
            self._merge(shared, block)
            return Pointer(buffer=shared.name)
        if block.name in self.plan.blocks:
            block = replace(block, name=f"{block.name} of {self.function.prototype.symbol}")
        self.plan.blocks[block.name] = block
        return Pointer(buffer=block.name)

    def _merge(self, first: Block, then: Block) -> None:
        places = []
        for number, (left, found) in enumerate(zip(first.places, then.places, strict=True)):
            if left.made and not found.made:
                self.plan.watched.append((first.name, number))
            places.append(replace(left, after=found.after, made=left.made or found.made))
        self.plan.blocks[first.name] = replace(first, places=tuple(places))

    @property
    def _where(self) -> str:
        return self.setting.operation.where


def _continues(then: Block, first: Block) -> bool:
    """Whether a block is the very memory that an earlier call left or read."""
    if then.holds is not Holds.TENSORS or first.holds is not Holds.TENSORS:
        return False
    if (then.size, then.element) != (first.size, first.element):
        return False
    if len(then.places) != len(first.places):
        return False
    pairs = list(zip(then.places, first.places, strict=True))
    if not all(p.given and p.follows(q) for p, q in pairs):
        return False
    # What is only read lies in read-only pages: it is not shared with what writes.
    return first.written or not then.written


def _share(plan: Plan, gradient: Key, with_: Key, where: str) -> None:
    """Let a gradient lie where a tensor does that is given."""
    made = [b for b in plan.blocks.values() if [p.after for p in b.places] == [gradient]]
    read = [b for b in plan.blocks.values() if [p.before for p in b.places] == [with_]]
    if len(made) != 1 or len(read) != 1:
        raise ManifestError(f"{where}: an alias needs one parameter for each of the two tensors")
    out, source = made[0], read[0]
    (place_out,), (place_in,) = out.places, source.places
    same = out.size == source.size and out.element == source.element
    if not (same and place_out.lies_as(place_in)):
        raise ManifestError(
            f"{where}: `{out.name}` and `{source.name}` are declared to be the same memory, but "
            "their layouts differ"
        )
    both = replace(place_in, after=gradient, made=True)
    plan.blocks[source.name] = replace(source, places=(both,))
    del plan.blocks[out.name]
    here, there = Pointer(buffer=out.name), Pointer(buffer=source.name)
    plan.calls = [
        replace(call, arguments=tuple(there if a == here else a for a in call.arguments))
        for call in plan.calls
    ]


def _scalar(ctype: CType) -> str:
    return "int8" if ctype.base == "char" else ctype.base


def _said(role: Role) -> str:
    return f"`{role.kind.value}:{role.name}`"
