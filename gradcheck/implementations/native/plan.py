"""What one call is asked, and its plan: blocks of memory, and the calls made on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.expression import Context
from gradcheck.implementations.manifest.operation import (
    Function,
    Operation,
    Role,
    RoleKind,
    Tensors,
    View,
)
from gradcheck.implementations.native.element import Element
from gradcheck.implementations.native.layout import Key, Place, key_of
from gradcheck.implementations.processes.script import Call
from gradcheck.numerics.arrays import Attrs

Array = NDArray[Any]

COTANGENT: Final = "cotangent"
"""What expressions call the first cotangent."""


class Holds(StrEnum):
    """What a block of memory is there for."""

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
        """Whether the code may write into it."""
        work = self.holds in (Holds.ANYTHING, Holds.ZEROS)
        return work or any(p.made for p in self.places)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return 1 if self.element is None else self.element.storage.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one call is asked: an operation, its primals and attributes, cotangents of its outputs.

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
        """Where expressions of `function` are evaluated; its scalar parameters are known."""
        return Context.of(function, self.tensors, self.attrs, self.operation.where)

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """The outputs' shapes."""
        return tuple(np.shape(ct) for ct in self.cotangents)

    @property
    def tensors(self) -> Mapping[str, Array]:
        """What expressions know by name: the primals, and the first cotangent."""
        first = np.asarray(self.cotangents[0]).astype(np.float64)
        return {COTANGENT: first, **self.wide}

    @property
    def wide(self) -> Mapping[str, Array]:
        """The primals in float64; indices as they are."""
        return {n: p if p.dtype.kind in "iu" else p.astype(np.float64)
                for n, p in self.primals.items()}  # fmt: skip

    def absent(self, role: Role) -> bool:
        """Whether there is no such primal here, or nobody asks for its gradient."""
        if role.kind is RoleKind.GRAD and role.optional and role.name not in self.wanted:
            return True
        return role.kind in (RoleKind.IN, RoleKind.GRAD) and role.name not in self.primals

    def shape(self, role: Role, context: Context) -> tuple[int, ...]:
        """The shape of the tensor that a role means.

        Raises:
            ManifestError: the operator has no such output, or its extents are no sizes.
        """
        if role.kind in (RoleKind.IN, RoleKind.GRAD):
            return self.primals[role.name].shape
        if role.kind is RoleKind.SAVED:
            return tuple(context.size(text) for text in role.extents)
        if role.index >= len(self.outputs):
            raise ManifestError(
                f"{self.operation.where}: {role.kind.value}:{role.index}: the operator has "
                f"{len(self.outputs)} outputs here, counted from 0"
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
        """The tensors that must be given."""
        return frozenset(p.before for _, _, p in self.places if p.given)

    @property
    def makes(self) -> frozenset[Key]:
        """The tensors that are written."""
        out = {p.after for _, _, p in self.places if p.made}
        return frozenset(out | {key_of(role) for _, role in self.returned})


def views(function: Function) -> Iterator[View]:
    """Every view of every tensor parameter."""
    for meaning in function.meanings.values():
        if isinstance(meaning, Tensors):
            yield from meaning.views
