"""What a shared library file says: its symbols, debug information and sanitizer."""

from __future__ import annotations

import difflib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.operation import (
    Function,
    NativeLibrary,
    Operation,
    functions,
)
from gradcheck.implementations.manifest.prototype import NAMED, is_number
from gradcheck.implementations.processes.c_worker import Worker
from gradcheck.implementations.processes.crash_or_hang import WorkerError, because
from gradcheck.implementations.processes.worker import RequestError
from gradcheck.system.reading import opened

LARGEST: Final = 1 << 40
"""Bytes read of a library, some of them several times."""

SANITIZERS: Final = {"address": "__asan_", "undefined": "__ubsan_"}
"""What the functions of their runtimes begin with."""


def check_symbols(library: NativeLibrary) -> None:
    """Refuse a manifest that names a function which its library does not have.

    The libraries are loaded, in a process of their own.

    Raises:
        ManifestError: a function is missing; the message names the nearest one.
        LoadError: a library cannot be loaded, or loading it ends the process.
    """
    with Worker(library.environment, library.timeout) as worker:
        for path in libraries(library):
            here = [(o, f.prototype.symbol) for o, f in _functions(library) if f.library == path]
            try:
                present = worker.inspect(str(path), dict.fromkeys(symbol for _, symbol in here))
            except RequestError as error:
                why = f"{error}{_foreign(path)}{_sanitized(library, path)}"
                raise LoadError(f"{library.path}: {path} cannot be loaded: {why}") from None
            except WorkerError as end:
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
        for function in functions(operation):
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


TAG: Final = "DW_TAG_"
BOOL, FLOAT, SIGNED, UNSIGNED = 2, 4, 5, 7
"""Encodings of numbers (DWARF 5, table 7.11)."""
QUALIFIERS: Final = {f"{TAG}volatile_type", f"{TAG}restrict_type", f"{TAG}atomic_type"}


def prototypes(path: Path, symbols: Collection[str]) -> dict[str, str]:
    """The prototypes, in C, of those of `symbols` that the debug information describes (DWARF).

    Raises:
        LoadError: the library cannot be read.
    """
    found: dict[str, str] = {}
    with elf(path) as file:
        try:
            for die in _subprograms(file):
                if len(found) == len(symbols):  # there may be a hundred megabytes more
                    break
                name = _name(die)
                if name in symbols and name not in found:
                    found[name] = _prototype(die, name)
        except Exception:  # noqa: BLE001  debug information that cannot be read is none
            return found
    return found


def _subprograms(file: Any) -> Iterator[Any]:
    if file.has_dwarf_info():
        for unit in file.get_dwarf_info().iter_CUs():
            yield from _below(unit.get_top_DIE())


def _below(die: Any) -> Iterator[Any]:
    for child in die.iter_children():
        if child.tag == f"{TAG}subprogram":
            yield child
        elif child.tag == f"{TAG}namespace":  # of C++, and the modules of Rust
            yield from _below(child)


def _prototype(die: Any, name: str) -> str:
    parameters = []
    for number, child in enumerate(die.iter_children(), start=1):
        if child.tag == f"{TAG}formal_parameter":
            parameters.append(_declared(_type(child), _name(child) or f"parameter_{number}"))
        elif child.tag == f"{TAG}unspecified_parameters":
            parameters.append("...")
    return _declared(_type(die), f"{name}({', '.join(parameters) or 'void'})")


def _declared(ctype: str, name: str) -> str:
    return f"{ctype}{name}" if ctype.endswith("*") else f"{ctype} {name}"


def _type(die: Any) -> str:
    """The type that an entry refers to, as C writes it."""
    if "DW_AT_type" not in die.attributes:
        return "void"
    return _written(die.get_DIE_from_attribute("DW_AT_type"))


def _written(die: Any) -> str:
    tag, name = die.tag.removeprefix(TAG), _name(die)
    if tag == "base_type":
        return _number(die, name)
    if tag == "pointer_type":
        inner = _type(die)
        if name.startswith("*const ") and not inner.startswith("const "):  # Rust's
            inner = f"const {inner}"
        return f"{inner}*" if inner.endswith("*") else f"{inner} *"
    if tag == "const_type":
        inner = _type(die)
        return inner if inner.endswith("*") else f"const {inner}"
    if die.tag in QUALIFIERS:
        return _type(die)
    if tag == "typedef":
        return name if name in NAMED else _through(die, name)
    if tag in ("structure_type", "union_type", "class_type"):
        return f"struct {name or 'unnamed'}"
    if tag == "enumeration_type":
        return "int"
    return name or tag


def _number(die: Any, name: str) -> str:
    """The C name of a number type of any language."""
    if name == "char" or is_number(name):
        return name
    encoding, size = (die.attributes[f"DW_AT_{key}"].value for key in ("encoding", "byte_size"))
    if encoding == FLOAT:
        return {4: "float", 8: "double"}.get(size, name)
    return {BOOL: "bool", SIGNED: f"int{8 * size}_t", UNSIGNED: f"uint{8 * size}_t"}.get(
        encoding, name
    )


def _through(typedef: Any, name: str) -> str:
    """What a typedef stands for, where that is a number; else its own name."""
    meant = _type(typedef)
    return meant if is_number(meant) else name


def _name(die: Any) -> str:
    attribute = die.attributes.get("DW_AT_name")
    return "" if attribute is None else attribute.value.decode(errors="replace")


GCC: Final = {"address": "libasan.so", "undefined": "libubsan.so"}
CLANG: Final = {"address": "libclang_rt.asan", "undefined": "libclang_rt.ubsan_standalone"}
COMPILERS: Final = ("gcc", "clang", "cc")
OPTIONS: Final = (
    "abort_on_error=1", "halt_on_error=1", "print_stacktrace=1", "print_legend=0",
    "allocator_may_return_null=1",
    "detect_leaks=0", "detect_odr_violation=0",  # Python's, and of libraries that share no names
    *(f"handle_{name}=0" for name in ("segv", "sigbus", "abort", "sigill", "sigfpe")),
)  # fmt: skip
"""Signals still kill, so that guard pages work with a sanitizer, too."""


def with_runtime(library: NativeLibrary) -> NativeLibrary:
    """The library with the environment in which its sanitizer works; without one, as it is.

    Raises:
        LoadError: a shared library is not built with the sanitizer, or its runtime is not found.
    """
    kind = library.sanitize
    if not kind:
        return library
    where = f'{library.path}: [c] sanitize = "{kind}"'
    for path in libraries(library):
        if not calls_sanitizer(path, kind):
            raise LoadError(
                f"{where}: {path.name} is not built with it; compile and link it anew with "
                f"-fsanitize={kind} -g (a [build] has these in CFLAGS and LDFLAGS)"
            )
    runtime = dict.fromkeys(_runtime(path, kind, where) for path in libraries(library))
    given = {**os.environ, **library.environment}
    preload = [*runtime, *filter(None, [given.get("LD_PRELOAD")])]
    ours = ":".join((*OPTIONS, f"strip_path_prefix='{library.path.parent.absolute()}/'"))
    options = {
        name: ":".join(filter(None, [ours, given.get(name)]))
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS")
    }
    environment = {**library.environment, **options, "LD_PRELOAD": ":".join(preload)}
    return replace(library, environment=environment)


def _runtime(path: Path, kind: str, where: str) -> str:
    """The shared library of the sanitizer that one shared library needs, as the loader takes it."""
    names = [*_names(path, kind)]
    for name in names:
        for compiler in filter(shutil.which, COMPILERS):
            words = [compiler, f"-print-file-name={name}"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            found = Path(done.stdout.strip())
            if found.is_absolute() and found.is_file():
                return str(found)
        stem = name.removeprefix("lib").partition(".so")[0]
        if find_library(stem) == name:
            return name
    package = "compiler-rt (Debian: libclang-rt-dev)" if "clang" in names[0] else (
        f"GCC's lib{'a' if kind == 'address' else 'ub'}san"
    )  # fmt: skip
    raise LoadError(f"{where}: its runtime {names[0]} is not found; install {package}")


def _names(path: Path, kind: str) -> Iterator[str]:
    """The names that the runtime may have, the likeliest first."""
    with elf(path) as file:
        dynamic = file.get_section_by_name(".dynamic")
        tags = [] if dynamic is None else [*dynamic.iter_tags()]
    needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
    named = [name for name in needed if name.startswith((GCC[kind], CLANG[kind]))]
    yield from named
    if not named:  # Clang leaves it to the program
        yield f"{CLANG[kind]}-{platform.machine()}.so"
        yield f"{CLANG[kind]}.so"
