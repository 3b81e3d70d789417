"""A C program that shows one wrong gradient of a library, and needs that library alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import UsageError
from gradcheck.explain.shrink import Shrunk
from gradcheck.implementations.manifest.operation import Operation, RoleKind, functions
from gradcheck.implementations.native.layout import Key
from gradcheck.implementations.native.library import Native
from gradcheck.implementations.native.memory import Contents, slots
from gradcheck.implementations.native.plan import Setting, plan_forward
from gradcheck.report.scripts import c_pieces
from gradcheck.report.scripts.c_calls import Statements
from gradcheck.report.scripts.c_pieces import array, declaration, number, sizes, string
from gradcheck.report.scripts.pieces import comment
from gradcheck.report.scripts.point import (
    Accepted,
    cotangent_of,
    primal_of,
    primals_of,
    step_of,
    worst_of,
)
from gradcheck.spec.dtype_selection import LOW

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
    asked = binding.case(shrunk.case, shrunk.dtype)
    if asked is None or asked.operation.vjp is None:
        raise UsageError(f"--export: {binding.name} has no VJP of {shrunk.case.spec.name}")
    operation, name = asked.operation, primal_of(shrunk)
    primals, cotangent = primals_of(shrunk), cotangent_of(shrunk)
    ct = cotangent if len(cotangent) > 1 else cotangent[0]
    setting = asked.setting(tuple(primals.values()), shrunk.case.attrs, ct)
    ask = asked.planned_vjp(setting)
    key = Key(RoleKind.GRAD, name)
    if key not in ask.plan.makes or name in operation.missing:
        why = operation.missing.get(name, f"no parameter is bound to grad:{name}")
        raise UsageError(f"--export: there is no gradient of {name} to show: {why}")
    tensors = {
        **ask.tensors,
        **{Key(RoleKind.COTANGENT, "", i): p for i, p in enumerate(cotangent)},
    }
    contents = Contents(tensors=tensors, poisoned=frozenset(slots(ask.plan, operation)))
    made = Statements(operation, ask.plan, contents, binding.library.align)
    size, factor = shrunk.want.size, asked.factor(setting, ct)
    gradient = [*made.memory(), *made.calls(), *made.sums(key, "got", size)]
    gradient += made.factor(factor, size)
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
        _main(shrunk, accepted, differenced=bool(differenced)),
    ]
    return "\n".join(part for part in parts if part is not None)


# ── the top ──────────────────────────────────────────────────────────────────────────────────


def _head(
    binding: Native,
    operation: Operation,
    used: Sequence[Statements],
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
    run = ["env", *(f"{name}={value}" for name, value in environment.items())]
    run = run if environment else []
    run.append(out if "/" in out else f"./{out}")
    return f"{shlex.join([*words, '-lm', '-o', out])} && {shlex.join(run)}"


def _declarations(operation: Operation, used: Sequence[Statements]) -> Iterator[str]:
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
    if len(accepted.along):
        yield "// And several together: along each of these directions, a slope between two."
        yield array("gc_along", accepted.along, "float64")
        yield array("gc_least", accepted.least, "float64")
        yield array("gc_most", accepted.most, "float64")


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


def _main(shrunk: Shrunk, accepted: Accepted, *, differenced: bool) -> str:
    first = ""
    if differenced:
        step = step_of(shrunk, worst_of(shrunk), shrunk.dtype)
        first += c_pieces.filled(c_pieces.MOVED, step=number(step, "float64"))
    if len(accepted.along):
        first += c_pieces.filled(c_pieces.TOGETHER, count=str(len(accepted.along)))
    name = string(primal_of(shrunk).encode())
    return c_pieces.filled(c_pieces.MAIN, name=name, first=first)


# ── the library's own forward ────────────────────────────────────────────────────────────────


def _forward(
    shrunk: Shrunk, operation: Operation, setting: Setting, align: int
) -> tuple[Statements, list[str]] | None:
    if operation.forward is None or shrunk.dtype in LOW:
        return None
    plan, name = plan_forward(setting), primal_of(shrunk)
    outputs = [Key(RoleKind.OUT, "", i) for i in range(len(shrunk.cotangent))]
    moved = [p for p in plan.places if p[2].given and p[2].before == Key(RoleKind.IN, name)]
    if not moved or not all(key in plan.makes for key in outputs):
        return None
    tensors = {Key(RoleKind.IN, n): primal for n, primal in setting.primals.items()}
    contents = Contents(tensors=tensors, poisoned=frozenset(slots(plan, operation)))
    made = Statements(operation, plan, contents, align, prefix="gc_of", read_only=False)
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
