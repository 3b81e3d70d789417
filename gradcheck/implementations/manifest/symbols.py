"""The functions of a shared library: whether those that a manifest names are there."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.operation import Function, NativeLibrary, Operation
from gradcheck.implementations.processes.cause import because
from gradcheck.implementations.processes.ending import Ended
from gradcheck.implementations.processes.native import Worker
from gradcheck.implementations.processes.worker import Refused
from gradcheck.system.reading import opened

LARGEST: Final = 1 << 40
"""Bytes read of a library, some of them several times."""

SANITIZERS: Final = {"address": "__asan_", "undefined": "__ubsan_"}
"""What the functions of their runtimes begin with."""


def check_symbols(library: NativeLibrary) -> None:
    """Refuse a manifest that names a function which its library does not have.

    The libraries are loaded, in a process of their own.

    Raises:
        ManifestError: there is such a function; the nearest one that is there is named.
        LoadError: a library cannot be loaded, or loading it ends the process.
    """
    with Worker(library.environment, library.timeout) as worker:
        for path in libraries(library):
            here = [(o, f.prototype.symbol) for o, f in _functions(library) if f.library == path]
            try:
                present = worker.inspect(str(path), dict.fromkeys(symbol for _, symbol in here))
            except Refused as error:
                why = f"{error}{_foreign(path)}{_sanitized(library, path)}"
                raise LoadError(f"{library.path}: {path} cannot be loaded: {why}") from None
            except Ended as end:
                why = f"{because(end.ending)}{_sanitized(library, path)}"
                raise LoadError(f"{library.path}: {why}") from None
            for operation, symbol in here:
                if symbol not in present:
                    raise ManifestError(
                        f"{operation.where}: symbol `{symbol}` is not in {path}"
                        f"{_hint(symbol, path)}"
                    )


def _foreign(path: Path) -> str:
    """What the loader does not say: the library is for another machine than this Python."""
    try:
        with elf(path) as theirs, elf(Path(sys.executable)) as ours:
            machines = [file.get_machine_arch() for file in (theirs, ours)]
    except LoadError:  # no ELF file: the loader's own words are the best
        return ""
    if machines[0] == machines[1]:
        return ""
    return f" (it is built for {machines[0]}, this Python for {machines[1]}; build it for that)"


def _sanitized(library: NativeLibrary, path: Path) -> str:
    """What the loader does not say: the library needs a runtime that is there first."""
    if library.sanitize:
        return ""
    with suppress(LoadError):
        for kind in SANITIZERS:
            if calls_sanitizer(path, kind):
                return f'; it is built with -fsanitize={kind}: write `sanitize = "{kind}"` in [c]'
    return ""


def calls_sanitizer(path: Path, kind: str) -> bool:
    """Whether a library was compiled with `-fsanitize=kind`.

    Raises:
        LoadError: it cannot be read.
    """
    with elf(path) as file:
        table = file.get_section_by_name(".dynsym")
        names = [] if table is None else [s.name for s in table.iter_symbols()]
    return any(name.startswith(SANITIZERS[kind]) for name in names)


def exported(path: Path) -> list[str]:
    """The names of the functions that a shared library exports, sorted.

    Raises:
        LoadError: it cannot be read, or is no ELF file.
    """
    with elf(path) as file:
        table = file.get_section_by_name(".dynsym")
        found = [] if table is None else [s.name for s in table.iter_symbols() if _is_export(s)]
    return sorted({name for name in found if name})


@contextmanager
def elf(path: Path) -> Iterator[Any]:
    """A shared library, opened for reading.

    Raises:
        LoadError: it cannot be read, or is no ELF file.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with opened(path, LARGEST) as stream:
            yield ELFFile(stream)
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from None
    except (ELFError, ValueError, LookupError, TypeError, AssertionError) as error:
        raise LoadError(f"{path} is no shared library in ELF: {error}") from None


def _is_export(symbol: Any) -> bool:
    entry = symbol.entry
    return (
        entry.st_shndx != "SHN_UNDEF"
        and entry.st_info.type in ("STT_FUNC", "STT_GNU_IFUNC")
        and entry.st_info.bind in ("STB_GLOBAL", "STB_WEAK")
        and entry.st_other.visibility in ("STV_DEFAULT", "STV_PROTECTED")
    )


def libraries(library: NativeLibrary) -> list[Path]:
    """The shared libraries that a manifest's functions lie in."""
    return [*dict.fromkeys(function.library for _, function in _functions(library))]


def _functions(library: NativeLibrary) -> Iterator[tuple[Operation, Function]]:
    for operation in library.operations.values():
        for function in (operation.vjp, operation.forward, operation.create, operation.destroy):
            if function is not None:
                yield operation, function


def _hint(symbol: str, path: Path) -> str:
    """What may be meant instead."""
    try:
        known = exported(path)
    except LoadError:
        return ""
    mangled = [name for name in known if name.startswith(f"_Z{len(symbol)}{symbol}")]
    if mangled:
        return f'; it is there as `{mangled[0]}`, as C++ names it: declare it extern "C"'
    near = difflib.get_close_matches(symbol, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    ours = list(_visible(known))
    if not ours:
        return "; it exports no function: is it `static`, or hidden by -fvisibility?"
    return f"; it exports {', '.join(ours[:12])}{', …' if len(ours) > 12 else ''}"


def _visible(names: Iterable[str]) -> Iterator[str]:
    """Without what every library has."""
    return (name for name in names if name not in ("_init", "_fini"))
