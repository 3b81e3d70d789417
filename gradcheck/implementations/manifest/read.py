"""From a gradcheck.toml to its operations, checked as far as no code has to run.

A mistake is a `ManifestError` that begins with the file, the entry and the key.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest import check_entry, expression, schema
from gradcheck.implementations.manifest.bind import bound, check_element, dtype_of, elements
from gradcheck.implementations.manifest.check_entry import Operator, check_residuals
from gradcheck.implementations.manifest.operation import (
    Function,
    Manifest,
    Meaning,
    NativeLibrary,
    Operation,
    Program,
    PythonEntry,
    Special,
    functions,
)
from gradcheck.implementations.manifest.prototype import parse
from gradcheck.implementations.manifest.schema import (
    File,
    Library,
    Op,
    PerDtype,
    on_this_platform,
    suggestion,
)
from gradcheck.spec.operator import CORE
from gradcheck.spec.suite import Suite, index_primals

DTYPES: Final = ("float64", "float32", "float16", "bfloat16")


def operator_named(named: str, suite: Suite, where: str) -> Operator:
    """The operator and dialect of an entry called "operator" or "operator/dialect"."""
    name, slash, dialect = named.partition("/")
    spec = suite.operators.get(name)
    if spec is None:
        near = suggestion(name, [*suite.operators])
        near = near if "did you" in near else "; `gradcheck list` shows them all"
        raise ManifestError(f"{where}: the suite has no operator `{name}`{near}")
    dialects = [d.name for d in spec.dialects]
    if slash and dialect not in dialects:
        raise ManifestError(
            f"{where}: {name} has no dialect `{dialect}`{suggestion(dialect, dialects)}"
        )
    return Operator(
        spec=spec,
        dialect=dialect,
        outputs=len(CORE.findall(spec.signature.partition("->")[2])),
        indices=index_primals(spec, suite),
        absent=frozenset(spec.dialect(dialect).without if dialect else ()),
        attrs=spec.dialect(dialect).attrs if dialect else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An `[[op]]`, its operator, and the [c] that it belongs to; `where` begins messages."""

    where: str
    op: Op
    operator: Operator
    folder: Path
    c: Library

    def library(self, own: Any) -> Path:
        """The shared library of a function, `own` if the entry names one."""
        return self.folder / on_this_platform(self.c.library if own is None else own, self.where)


def operations(entry: Entry, dtypes: Sequence[str] | None) -> Iterator[Operation]:
    """The operator in each dtype that the entry has, of those in `dtypes` (None: all)."""
    op, where = entry.op, entry.where
    if op.vjp is None and op.forward is None:
        raise ManifestError(f'{where}: write `vjp = "…"`, the prototype of the backward function')
    _check_dtypes("capabilities.dtypes", dtypes or (), where)
    vjps, forwards = _functions(entry, "vjp"), _functions(entry, "forward")
    have = [d for d in DTYPES if d in vjps or d in forwards]
    wanted = [d for d in have if dtypes is None or d in dtypes]
    if not wanted:
        raise ManifestError(
            f"{where}: its prototypes are for {', '.join(have)}, [capabilities] dtypes for "
            f"{', '.join(dtypes or ())} alone; add the dtype there, or leave the entry out"
        )
    for dtype in wanted:
        yield _operation(entry, dtype, vjps.get(dtype), forwards.get(dtype))


def _functions(entry: Entry, key: str) -> dict[str, Function]:
    op, where = entry.op, entry.where
    texts: PerDtype | None = getattr(op, key)
    if texts is None:
        if key == "forward" and op.forward_bind:
            raise ManifestError(f"{where}: `forward_bind` explains no function; write `forward`")
        return {}
    bind = op.bind if key == "vjp" else {**_inheritable(op, texts), **op.forward_bind}
    library = entry.library(
        op.forward_library if key == "forward" and op.forward_library is not None else op.library
    )
    if isinstance(texts, str):
        function = _function(entry, key, texts, bind, library)
        return {dtype_of(entry.operator, where, key, function): function}
    _check_dtypes(key, [*texts], where)
    functions = {d: _function(entry, key, t, bind, library) for d, t in texts.items()}
    for dtype, function in functions.items():
        for name, base, primal in elements(entry.operator, function):
            check_element(f"{where}: {key}.{dtype}: `{name}`", base, primal, dtype)
    return functions


def _inheritable(op: Op, texts: PerDtype) -> Mapping[str, Any]:
    """The entries of `bind` that `forward` inherits: those of parameters that it has, too."""
    if op.vjp is None:
        return op.bind
    words = {w for text in ([texts] if isinstance(texts, str) else texts.values())
             for w in re.findall(r"\w+", text)}  # fmt: skip
    return {name: said for name, said in op.bind.items() if name in words and name != "return"}


def _function(
    entry: Entry, key: str, text: str, bind: Mapping[str, Any], library: Path
) -> Function:
    where = f"{entry.where}: {key}"
    prototype = parse(text, where)
    return bound(entry.operator, entry.where, key, prototype, bind, library)


def _check_dtypes(key: str, dtypes: Collection[str], where: str) -> None:
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise ManifestError(
                f"{where}: {key} names the dtype `{dtype}`{suggestion(dtype, [*DTYPES])}"
            )


# ── the whole ────────────────────────────────────────────────────────────────────────────────


def _operation(
    entry: Entry, dtype: str, vjp: Function | None, forward: Function | None
) -> Operation:
    op, where = entry.op, entry.where
    vjp, forward = check_residuals(vjp, forward, op, where, dtype, entry.operator.names)
    create, destroy = _handle(entry)
    uses_handle = any(
        Special.HANDLE in f.meanings.values() for f in (vjp, forward) if f is not None
    )
    if uses_handle and create is None:
        raise ManifestError(f"{where}: bind names a `handle`, and nothing makes one; add `handle`")
    if create is not None and not uses_handle:
        raise ManifestError(f'{where}: no parameter is bound to "handle"; leave `handle` out')
    main = vjp or forward
    assert main is not None
    names = entry.operator.names | check_entry.scalar_names(main)
    for text in (*op.requires, *op.saved.values(), str(op.loss_scale)):
        expression.check_expression(text, names, where)
    accumulates = check_entry.declared_primals(vjp, op.accumulates, f"{where}: accumulates")
    zeroed = check_entry.declared_primals(vjp, op.zeroed, f"{where}: zeroed")
    if accumulates & zeroed:
        both = ", ".join(sorted(accumulates & zeroed))
        raise ManifestError(f"{where}: {both}: either accumulates or must be zeroed; name it once")
    _check_dtypes("slack", [*op.slack], where)
    functions = [f for f in (vjp, forward, create) if f is not None]
    return Operation(
        op=entry.operator.spec.name,
        dialect=entry.operator.dialect,
        dtype=dtype,
        where=where,
        vjp=vjp,
        forward=forward,
        attrs=check_entry.fixed_attrs(op, where, entry.operator, functions),
        requires=tuple(op.requires),
        accumulates=accumulates,
        zeroed=zeroed,
        aliases=tuple(check_entry.declared_alias(vjp, *pair, where) for pair in op.aliases),
        saved=op.saved,
        residuals=op.residuals,
        loss_scale=str(op.loss_scale),
        missing=check_entry.declared_missing(op, where, entry.operator, vjp),
        create=create,
        destroy=destroy,
        slack=check_entry.declared_slack(op.slack.get(dtype), where),
        source=op.source,
    )


def _handle(entry: Entry) -> tuple[Function | None, Function | None]:
    said = entry.op.handle
    if said is None:
        return None, None
    where = f"{entry.where}: handle"
    library = entry.library(said.library if said.library is not None else entry.op.library)
    create = parse(said.create, f"{where}.create")
    if not create.returns.pointer:
        raise ManifestError(f"{where}.create: `{create.symbol}` returns no pointer")
    destroy = parse(said.destroy, f"{where}.destroy", unnamed="handle")
    if len(destroy.parameters) != 1 or not destroy.parameters[0].ctype.pointer:
        raise ManifestError(f"{where}.destroy: `{destroy.symbol}` must take the handle alone")
    freed: dict[str, Meaning] = {destroy.parameters[0].name: Special.HANDLE}
    made = bound(entry.operator, entry.where, "handle", create, said.bind, library)
    return made, Function(prototype=destroy, library=library, meanings=freed)


MAX_ALIGN: Final = 1 << 16


def read(path: Path, suite: Suite) -> Manifest:
    """The operations of the manifest at `path` for the operators of `suite`.

    Raises:
        LoadError: the file cannot be read.
        ManifestError: it cannot be right; the message names the file, the entry and the key.
    """
    return resolve(schema.parse(path), suite)


def resolve(file: File, suite: Suite) -> Manifest:
    """The meaning of a manifest whose keys are right."""
    top, name = file.top, file.path.name
    if top.python is not None:
        module, colon, attribute = top.python.entry.partition(":")
        if not (module and colon and attribute):
            raise ManifestError(f'{name}: [python] entry: write `entry = "package.module:NAME"`')
        return PythonEntry(name=top.impl.name, path=file.path, entry=top.python.entry)
    if top.subprocess is not None:
        return _program(file, top.subprocess)
    assert top.c is not None
    return _library(file, top.c, suite)


def check_libraries(library: NativeLibrary) -> None:
    """Refuse a manifest whose libraries are not there.

    Raises:
        LoadError: one is not; it says what to do.
    """
    for operation in library.operations.values():
        for function in functions(operation):
            if not function.library.is_file():
                raise LoadError(
                    f"{operation.where}: there is no library {function.library}; build it, or let "
                    '`[build] cmd = "make"` do it before it is loaded'
                )


def _library(file: File, c: schema.Library, suite: Suite) -> NativeLibrary:
    top, name = file.top, file.path.name
    _check_seconds(f"{name}: [c] timeout", c.timeout)
    aligned = 1 <= c.align <= MAX_ALIGN and c.align & (c.align - 1) == 0
    if not aligned:
        raise ManifestError(f"{name}: [c] align = {c.align}; write a power of 2 up to {MAX_ALIGN}")
    if not top.op:
        raise ManifestError(f"{name}: there is no [[op]]; add one per function")
    most = top.capabilities.max_elements
    if most is not None and most < 1:
        raise ManifestError(f"{name}: [capabilities] max_elements = {most} leaves nothing to check")
    return NativeLibrary(
        name=top.impl.name,
        path=file.path,
        operations=_operations(file, c, suite),
        guard=c.guard,
        align=c.align,
        timeout=c.timeout,
        environment=c.env,
        sanitize=c.sanitize or "",
        max_elements=most,
        version=top.impl.version if isinstance(top.impl.version, str) else "",
    )


def _operations(file: File, c: schema.Library, suite: Suite) -> Mapping[tuple[str, str], Operation]:
    found: dict[tuple[str, str], Operation] = {}
    for where, op in file.ops:
        operator = operator_named(op.name, suite, where)
        entry = Entry(where=where, op=op, operator=operator, folder=file.folder.absolute(), c=c)
        for operation in operations(entry, file.top.capabilities.dtypes):
            key = (op.name, operation.dtype)
            if key in found:
                raise ManifestError(
                    f"{where}: {op.name} in {operation.dtype} is already in {found[key].where}; "
                    "leave one out, or name a dialect: `operator/dialect`"
                )
            found[key] = operation
    return found


def _program(file: File, process: schema.Process) -> Program:
    top, name = file.top, file.path.name
    _check_seconds(f"{name}: [subprocess] startup", process.startup)
    _check_seconds(f"{name}: [subprocess] timeout", process.timeout)
    return Program(
        name=top.impl.name,
        path=file.path,
        command=_command(process.cmd, file),
        level=process.level,
        startup=process.startup,
        timeout=process.timeout,
        environment=process.env,
        version=top.impl.version if isinstance(top.impl.version, str) else "",
    )


def _command(cmd: str | list[str], file: File) -> tuple[str, ...]:
    """The words of a command; a program that is named by a relative path lies by the manifest."""
    try:
        words = shlex.split(cmd) if isinstance(cmd, str) else cmd
    except ValueError as error:
        raise ManifestError(f"{file.path.name}: [subprocess] cmd: {error}") from None
    if not words or not words[0]:
        raise ManifestError(f"{file.path.name}: [subprocess] cmd is empty; name the program")
    first = str(file.folder.absolute() / words[0]) if "/" in words[0] else words[0]
    return (first, *words[1:])


def _check_seconds(what: str, seconds: Any) -> None:
    ok = 0 < seconds < math.inf
    if not ok:
        raise ManifestError(f"{what} = {seconds}; write seconds, more than 0")
