"""A C program that shows one wrong gradient of a library, and needs that library alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.binding.native.call import HANDLE, plan_forward
from gradcheck.binding.native.case import NativeCase
from gradcheck.binding.native.element import Element
from gradcheck.binding.native.fitting import functions
from gradcheck.binding.native.layout import Key, Place
from gradcheck.binding.native.library import Native
from gradcheck.binding.native.memory import Contents, fill, slots
from gradcheck.binding.native.plan import Block, Holds, Plan, Setting
from gradcheck.errors import UsageError
from gradcheck.explain.shrink import Shrunk
from gradcheck.foreign.script import Argument, Call, Kept, Scalar
from gradcheck.manifest.operation import CType, Function, Operation, RoleKind
from gradcheck.repro import c_pieces
from gradcheck.repro.c_literal import array, declaration, named, number, sizes, string
from gradcheck.repro.literal import comment
from gradcheck.repro.point import (
    Accepted,
    cotangent_of,
    primal_of,
    primals_of,
    step_of,
    worst_of,
)
from gradcheck.selection import LOW

Array = NDArray[Any]


def program(
    shrunk: Shrunk, accepted: Accepted, binding: Native, path: Path, said: Sequence[str]
) -> str:
    """The whole program; the lines `said` tell what is wrong, and stand at its top.

    Raises:
        UsageError: the library has nothing that could be called, or by names that C has not.
        ManifestError: the manifest yields nonsense at this point.
        Unsupported, Broken: the code does not claim to do the case, or fails on the way.
    """
    calls = binding.calls(shrunk.case, shrunk.dtype)
    if calls is None or calls.operation.vjp is None:
        raise UsageError(f"--export: {binding.name} has no VJP of {shrunk.case.spec.name}")
    asked, operation, name = NativeCase(calls), calls.operation, primal_of(shrunk)
    primals, cotangent = primals_of(shrunk), cotangent_of(shrunk)
    ct = cotangent if len(cotangent) > 1 else cotangent[0]
    setting = asked.setting(tuple(primals.values()), shrunk.case.attrs, ct)
    ask = calls.vjp_asked(setting)
    key = Key(RoleKind.GRAD, name)
    if key not in ask.plan.makes or name in operation.missing:
        why = operation.missing.get(name, f"no parameter is bound to grad:{name}")
        raise UsageError(f"--export: there is no gradient of {name} to show: {why}")
    tensors = {
        **ask.tensors,
        **{Key(RoleKind.COTANGENT, "", i): p for i, p in enumerate(cotangent)},
    }
    contents = Contents(tensors=tensors, poisoned=frozenset(slots(ask.plan, operation)))
    made = _Function(operation, ask.plan, contents, binding.library.align)
    gradient = [*made.memory(), *made.calls(), *made.sums(key, "got", shrunk.want.size), *made.factor(
        asked.factor(setting, ct), shrunk.want.size)]  # fmt: skip
    differenced = _forward(shrunk, operation, setting, binding.library.align)
    used = [made, *([differenced[0]] if differenced else [])]
    parts = [
        *_head(binding, operation, used, path, said),
        c_pieces.HEADERS,
        *_declarations(operation, used),
        "",
        *_truth(shrunk, accepted),
        "",
        c_pieces.filled(c_pieces.MEMORY, **_guards(binding)),
        c_pieces.HALF.get(shrunk.dtype, ""),
        *made.data(),
        "",
        "/* Calls the library; 1 where it says that it failed. */",
        "static int gc_gradient(double *got)",
        "{",
        *(f"    {line}" for line in gradient),
        "    return 0;",
        "}",
        "",
        *(differenced[1] if differenced else ()),
        c_pieces.filled(
            c_pieces.COMPARE, nearest=_nearest(accepted), rtol=number(accepted.rtol, "float64")
        ),
        _main(shrunk, name, bool(differenced)),
    ]
    return "\n".join(part for part in parts if part is not None)


# ── the top ──────────────────────────────────────────────────────────────────────────────────


def _head(
    binding: Native,
    operation: Operation,
    used: Sequence[_Function],
    path: Path,
    said: Sequence[str],
) -> Iterator[str]:
    """How to compile it comes first, then what is wrong."""
    libraries = list(dict.fromkeys(call.library for one in used for call in one.plan.calls))
    owners: dict[str, str] = {}
    for one in used:
        for call in one.plan.calls:
            if owners.setdefault(call.symbol, call.library) != call.library:
                raise UsageError(
                    f"--export: {call.symbol} is in two libraries; no program links to both"
                )
    yield f"// {comment(_command(path, libraries, binding.library.environment))}"
    yield "//"
    yield from (f"// {comment(line)}" for line in said)
    yield f"// The code: {comment(', '.join(owners))} of {comment(binding.name)}"
    if operation.source:
        yield f"// Its source: {comment(operation.source)}"
    yield "// Exit status: 1 as long as the gradient is wrong, 0 once it is right. What the code"
    yield "// must write holds NaN before, and every buffer ends at a page that may not be touched."


def _command(path: Path, libraries: Sequence[str], environment: Mapping[str, str]) -> str:
    """The command that compiles and runs the program, for the folder that this is run in."""
    folders = list(dict.fromkeys(str(Path(library).absolute().parent) for library in libraries))
    words = ["cc", "-g", str(path), *(str(Path(library).absolute()) for library in libraries)]
    for folder in folders:
        words += (
            ["-Xlinker", "-rpath", "-Xlinker", folder]
            if "," in folder
            else [f"-Wl,-rpath,{folder}"]
        )
    out = str(path.with_suffix(""))
    run = [f"{name}={value}" for name, value in environment.items()]
    run.append(out if "/" in out else f"./{out}")
    return f"{shlex.join([*words, '-lm', '-o', out])} && {shlex.join(run)}"


def _declarations(operation: Operation, used: Sequence[_Function]) -> Iterator[str]:
    symbols = {call.symbol for one in used for call in one.plan.calls}
    seen = set()
    for function in functions(operation):
        prototype = function.prototype
        if prototype.symbol in symbols and prototype.symbol not in seen:
            seen.add(prototype.symbol)
            yield f"// {comment(prototype.text)}"
            yield declaration(prototype)


def _truth(shrunk: Shrunk, accepted: Accepted) -> Iterator[str]:
    yield "// The true gradient, its error bar, and how far rounding may take a right one from it."
    yield f"#define GC_SIZE {shrunk.want.size}"
    yield f"#define GC_AXES {shrunk.want.ndim}"
    yield sizes("gc_shape", shrunk.want.shape)
    yield array("gc_want", accepted.nearest(shrunk.want), "float64")
    yield array("gc_bar", _rounded(shrunk.bar), "float64")
    yield array("gc_room", _rounded(1.01 * accepted.room), "float64")
    if accepted.kinked:
        yield "// On a kink, anything between the two is right."
        yield array("gc_low", accepted.low, "float64")
        yield array("gc_high", accepted.high, "float64")


def _rounded(values: Array) -> Array:
    return np.array([float(f"{v:.3g}") for v in values.reshape(-1)])


def _nearest(accepted: Accepted) -> str:
    if not accepted.kinked:
        return "(void)got, gc_want[i]"
    return "got < gc_low[i] ? gc_low[i] : got > gc_high[i] ? gc_high[i] : got"


def _guards(binding: Native) -> dict[str, str]:
    guard = binding.library.guard
    return {
        "start": c_pieces.AT_START if guard == "start" else c_pieces.AT_END,
        "guards": "" if guard == "off" else c_pieces.GUARDS,
    }


def _main(shrunk: Shrunk, name: str, differenced: bool) -> str:
    quoted = string(name.encode())
    moved = ""
    if differenced:
        step = step_of(shrunk, worst_of(shrunk), shrunk.dtype)
        moved = c_pieces.filled(c_pieces.MOVED, step=number(step, "float64"))
    return c_pieces.filled(c_pieces.MAIN, name=quoted, moved=moved)


# ── functions ────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Function:
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
        """Element i of a tensor, as C; and the table of where the elements lie, if one is needed."""
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
        """Elements, and the name of their type."""
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
            pairs = zip(
                call.arguments, _function(self.operation, call).prototype.parameters, strict=True
            )
            for argument, parameter in pairs:
                if getattr(argument, "buffer", None) == block.name:
                    return parameter.ctype
        raise AssertionError(f"no call takes {block.name}")

    def _call(self, k: int, call: Call) -> Iterator[str]:
        arguments = ", ".join(self._argument(a) for a in call.arguments)
        text = f"{call.symbol}({arguments})"
        role = next((role for n, role in self.plan.returned if n == k), None)
        if call.keep:
            yield f"void *{HANDLE} = {text};"
            yield f"if ({HANDLE} == NULL) {{"
            yield f'    printf("WRONG: %s returned a null pointer\\n", {string(call.symbol.encode())});'
            yield "    return 1;"
            yield "}"
        elif role is None:
            yield f"{text};"
        elif role.kind is RoleKind.STATUS:
            yield f"long long status_{k} = {text};"
            yield f"if (status_{k} != 0) {{"
            yield (
                f'    printf("WRONG: %s returned %lld; 0 is success\\n", '
                f"{string(call.symbol.encode())}, status_{k});"
            )
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


# ── the library's own forward ────────────────────────────────────────────────────────────────


def _forward(
    shrunk: Shrunk, operation: Operation, setting: Setting, align: int
) -> tuple[_Function, list[str]] | None:
    """The function that calls forward with one element moved, where there is such a forward."""
    if operation.forward is None or shrunk.dtype in LOW:
        return None
    plan, name = plan_forward(setting), primal_of(shrunk)
    outputs = [Key(RoleKind.OUT, "", i) for i in range(len(shrunk.cotangent))]
    moved = [p for p in plan.places if p[2].given and p[2].before == Key(RoleKind.IN, name)]
    if not moved or not all(key in plan.makes for key in outputs):
        return None
    tensors = {Key(RoleKind.IN, n): primal for n, primal in setting.primals.items()}
    contents = Contents(tensors=tensors, poisoned=frozenset(slots(plan, operation)))
    made = _Function(operation, plan, contents, align, prefix="gc_of", read_only=False)
    body = ["size_t i = element;", *(made.memory())]
    for block, number_, place in moved:
        cell, table = made.cell(block, number_, place)
        body += [*table, f"*at = {cell} += step;"]
    body += [*made.calls(), "*value = 0;"]
    data = [*made.data()]
    for k, (key, part) in enumerate(zip(outputs, shrunk.cotangent, strict=True)):
        data.append(array(f"gc_ct_{k}", part, "float64"))
        body += [f"double out_{k}[{max(part.size, 1)}];", *made.sums(key, f"out_{k}", part.size)]
        body += [f"for (i = 0; i < {part.size}; i++)", f"    *value += gc_ct_{k}[i] * out_{k}[i];"]
    lines = [
        *data,
        "",
        "/* Sum of cotangent times forward, with one element moved, to *at; 1 where it fails. */",
        "static int gc_forward(size_t element, double step, double *at, double *value)",
        "{",
        *(f"    {line}" for line in body),
        "    return 0;",
        "}",
        "",
    ]
    return made, lines
