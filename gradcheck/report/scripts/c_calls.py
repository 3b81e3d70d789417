"""The calls of one plan as C statements, and the constant arrays that they begin with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.manifest.operation import (
    CType,
    Function,
    Operation,
    RoleKind,
    functions,
)
from gradcheck.implementations.native.layout import Element, Key, Place
from gradcheck.implementations.native.memory import Contents, fill
from gradcheck.implementations.native.plan import HANDLE, Block, Holds, Plan
from gradcheck.implementations.processes.c_worker import Argument, Call, Kept, Pointer, Scalar
from gradcheck.report.scripts.c_pieces import array, named, number, sizes, string
from gradcheck.report.scripts.pieces import comment

Array = NDArray[Any]


@dataclass(slots=True)
class Statements:
    """The calls of one plan as C statements, and the data that they begin with."""

    operation: Operation
    plan: Plan
    contents: Contents
    align: int
    prefix: str = "gc_in"
    read_only: bool = True
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for block in self.plan.blocks:
            plain = re.sub(r"\W", "_", block, flags=re.ASCII)
            taken = self.names.values()
            self.names[block] = plain if plain not in taken else f"{plain}_{len(self.names)}"

    def data(self) -> Iterator[str]:
        """Constant arrays: what blocks hold before the first call."""
        for block in self.plan.blocks.values():
            if block.holds is not Holds.NOTHING and self._uniform(block) is None:
                values, base = self._content(block)
                yield self._described(block)
                yield array(f"{self.prefix}_{self.names[block.name]}", values, base)

    def memory(self) -> Iterator[str]:
        """Statements that lay out every block."""
        return (self._memory(block) for block in self.plan.blocks.values())

    def calls(self) -> Iterator[str]:
        """The calls in order."""
        for k, call in enumerate(self.plan.calls):
            yield from self._call(k, call)

    def sums(self, key: Key, into: str, size: int) -> Iterator[str]:
        """Statements that add every part of a tensor up into a cleared array of doubles."""
        yield f"for (size_t i = 0; i < {size}; i++)"
        yield f"    {into}[i] = 0;"
        for k, role in self.plan.returned:
            if Key(role.kind, role.name, role.index) == key:
                yield f"{into}[0] += returned_{k};"
        for name, number_, place in self.plan.places:
            if place.made and place.after == key:
                yield from self._added(name, number_, place, into)

    def factor(self, factor: float, size: int) -> Iterator[str]:
        """What turns the code's gradient into the true one."""
        if factor != 1:
            yield f"for (size_t i = 0; i < {size}; i++)"
            yield f"    got[i] *= {number(factor, 'float64')};"

    def _added(self, name: str, number_: int, place: Place, into: str) -> Iterator[str]:
        cell, at = self.cell(name, number_, place)
        yield from at
        yield f"for (size_t i = 0; i < {place.count}; i++)"
        yield f"    {into}[i] += {self._decoded(name, cell)};"

    def cell(self, name: str, number_: int, place: Place) -> tuple[str, list[str]]:
        """Element i of a tensor, as C; and the table of where elements lie, if there is one."""
        block = self.plan.blocks[name]
        assert block.element is not None
        base = named(block.element.storage.name)
        start = place.cells.start if isinstance(place.cells, slice) else None
        memory = f"(({base} *)b_{self.names[name]})"
        if start is not None:
            return f"{memory}[{start} + i]" if start else f"{memory}[i]", []
        table = f"at_{self.names[name]}_{number_}"
        return f"{memory}[{table}[i]]", [sizes(table, place.positions.tolist())]

    def _decoded(self, name: str, cell: str) -> str:
        element = self.plan.blocks[name].element
        return f"gc_half({cell})" if element is not None and element.bits else cell

    def _memory(self, block: Block) -> str:
        name = self.names[block.name]
        size, align = block.size * block.itemsize, max(self.align, block.itemsize)
        source, byte = f"{self.prefix}_{name}", 0
        if block.holds is Holds.CONSTANT:
            size = len(block.content)
        uniform = self._uniform(block)
        if uniform is not None:
            source, byte = "NULL", uniform
        locked = int(self.read_only and not block.written)
        if block.holds is Holds.NOTHING:
            source, byte, size = "NULL", 0, 0
        return f"void *b_{name} = gc_memory({source}, {byte}, {size}, {align}, {locked});"

    def _described(self, block: Block) -> str:
        held = [_called(p.before) for p in block.places if p.given]
        bits = " as bits" if block.element is not None and block.element.bits else ""
        return f"// {comment(block.name)}: {comment(', '.join(held) or block.holds.value)}{bits}"

    def _uniform(self, block: Block) -> int | None:
        """The byte that the whole block holds, where it is NaN or zero all over."""
        if block.holds is Holds.CONSTANT:
            return None
        found = set(fill(block, self.contents, self.operation.where).tobytes())
        return next(iter(found), 0) if found <= {0} or found == {255} else None

    def _content(self, block: Block) -> tuple[Array, str]:
        if block.holds is Holds.CONSTANT:
            ctype = self._ctype(block)
            if ctype.base == "char":
                return np.frombuffer(block.content, np.uint8), "uint8"
            element = Element.of(ctype, self.operation.dtype, floating=False)
            return np.frombuffer(block.content, element.storage), element.storage.name
        assert block.element is not None
        bits = fill(block, self.contents, self.operation.where)
        return bits.view(block.element.storage), block.element.storage.name

    def _ctype(self, block: Block) -> CType:
        """The type of the parameter that a constant is passed as."""
        for call in self.plan.calls:
            parameters = _function(self.operation, call).prototype.parameters
            for argument, parameter in zip(call.arguments, parameters, strict=True):
                if isinstance(argument, Pointer) and argument.buffer == block.name:
                    return parameter.ctype
        raise AssertionError(f"no call takes {block.name}")

    def _call(self, k: int, call: Call) -> Iterator[str]:
        arguments = ", ".join(self._argument(a) for a in call.arguments)
        text, name = f"{call.symbol}({arguments})", string(call.symbol.encode())
        role = next((role for n, role in self.plan.returned if n == k), None)
        if call.keep:
            yield f"void *{HANDLE} = {text};"
            yield f"if ({HANDLE} == NULL) {{"
            yield f'    printf("WRONG: %s returned a null pointer\\n", {name});'
            yield "    return 1;"
            yield "}"
        elif role is None:
            yield f"{text};"
        elif role.kind is RoleKind.STATUS:
            yield f"long long status_{k} = {text};"
            yield f"if (status_{k} != 0) {{"
            said = '"WRONG: %s returned %lld; 0 is success\\n"'
            yield f"    printf({said}, {name}, status_{k});"
            yield "    return 1;"
            yield "}"
        else:
            yield f"double returned_{k} = {text};"
            yield f"(void)returned_{k};"

    def _argument(self, argument: Argument) -> str:
        if argument is None:
            return "NULL"
        if isinstance(argument, Scalar):
            return number(argument.value, argument.ctype)
        if isinstance(argument, Kept):
            return argument.name
        name = f"b_{self.names[argument.buffer]}"
        return f"(char *){name} + {argument.offset}" if argument.offset else name


def _function(operation: Operation, call: Call) -> Function:
    return next(f for f in functions(operation) if f.prototype.symbol == call.symbol)


def _called(key: Key) -> str:
    return f"{key.kind.value}:{key.name or key.index}"
