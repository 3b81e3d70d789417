"""From a gradcheck.toml to what it offers, with everything checked that needs no code to run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest import schema
from gradcheck.implementations.manifest.entry import Entry, operations
from gradcheck.implementations.manifest.operation import (
    Manifest,
    NativeLibrary,
    Operation,
    Program,
    PythonEntry,
)
from gradcheck.implementations.manifest.schema import File
from gradcheck.spec.suite import Suite

MAX_ALIGN: Final = 1 << 16


def read(path: Path, suite: Suite) -> Manifest:
    """What the manifest at `path` offers for the operators of `suite`.

    Raises:
        LoadError: the file cannot be read.
        ManifestError: it cannot be right; the message names the file, the entry and the key.
    """
    return resolve(schema.parse(path), suite)


def resolve(file: File, suite: Suite) -> Manifest:
    """What a manifest whose keys are right means.

    Raises:
        ManifestError: its parts contradict each other, or the suite.
    """
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
        for function in (operation.vjp, operation.forward, operation.create, operation.destroy):
            if function is not None and not function.library.is_file():
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
        homepage=top.impl.homepage,
        issues=top.impl.issues,
    )


def _operations(file: File, c: schema.Library, suite: Suite) -> Mapping[tuple[str, str], Operation]:
    found: dict[tuple[str, str], Operation] = {}
    for where, op in file.ops:
        entry = Entry(where=where, op=op, suite=suite, folder=file.folder.absolute(), c=c)
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
        homepage=top.impl.homepage,
        issues=top.impl.issues,
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
