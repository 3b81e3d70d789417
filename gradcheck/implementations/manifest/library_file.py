"""The shared library of a manifest: its symbols, its sanitizer, and the commands that build it."""

from __future__ import annotations

import difflib
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
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
from gradcheck.implementations.manifest.schema import Command, File
from gradcheck.implementations.processes.c_worker import Worker
from gradcheck.implementations.processes.crash_or_hang import WorkerError, because, in_words
from gradcheck.implementations.processes.worker import RequestError
from gradcheck.system.posix import fcntl
from gradcheck.system.reading import opened

LARGEST: Final = 1 << 40
"""Bytes read of a library, some of them several times."""

MACH_O: Final = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How libraries for macOS begin: of one machine, and of several."""
SANITIZERS: Final = {"address": "__asan_", "undefined": "__ubsan_"}
"""The prefixes of functions in their runtimes."""


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
    """A hint where the library is built for another machine than this Python."""
    try:
        with elf(path) as theirs, elf(Path(sys.executable)) as ours:
            machines = [file.get_machine_arch() for file in (theirs, ours)]
    except LoadError:  # no ELF file: the loader's own words are the best
        return ""
    if machines[0] == machines[1]:
        return ""
    return f" (it is built for {machines[0]}, this Python for {machines[1]}; build it for that)"


def _sanitized(library: NativeLibrary, path: Path) -> str:
    """A hint where the library needs the runtime of a sanitizer."""
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
    from elftools.common.exceptions import ELFError  # slow to import: only for a look inside
    from elftools.elf.elffile import ELFFile

    try:
        with opened(path, LARGEST) as stream:
            yield ELFFile(stream)
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from None
    except (ELFError, ValueError, LookupError, TypeError, AssertionError) as error:
        raise LoadError(f"{path} is {_not_elf(path, error)}") from None


def _not_elf(path: Path, error: Exception) -> str:
    """What a file is that cannot be read as ELF."""
    with opened(path, LARGEST) as stream:
        if stream.read(4) in MACH_O:
            return (
                "a library for macOS, whose functions gradcheck cannot list; "
                "`gradcheck init --header FILE.h` reads their declarations from a header"
            )
    return f"not a shared library in ELF: {error}"


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
    own = [name for name in known if name not in ("_init", "_fini")]  # which every library has
    if not own:
        return "; it exports no function: is it `static`, or hidden by -fvisibility?"
    return f"; it exports {', '.join(own[:12])}{', …' if len(own) > 12 else ''}"


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


# ── build and version ────────────────────────────────────────────────────────────────────────

TAIL: Final = 4_000
"""Bytes of a failing command's output that are shown."""
VERSION_TIMEOUT: Final = 10.0
LONGEST_VERSION: Final = 100


def prepare(file: File) -> str:
    """Run the manifest's build, if it has one; returns the version that it tells.

    Both commands run in the manifest's folder: a string through the shell, a list without. A build
    for a sanitizer finds its flags in CFLAGS, CXXFLAGS and LDFLAGS.

    Raises:
        LoadError: the build fails, takes too long, or cannot be started; the tail of what it
            printed is in the message.
        ManifestError: its timeout is not a number of seconds.
    """
    top = file.top
    if top.build is not None:
        ok = 0 < top.build.timeout < math.inf
        if not ok:
            raise ManifestError(f"{file.path.name}: [build] timeout = {top.build.timeout}; "
                                "write seconds, more than 0")  # fmt: skip
        with file.path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # processes of one test run build one after another
            sanitize = top.c.sanitize if top.c is not None else None
            env = sanitizing(sanitize) if sanitize else {}
            what = f"{file.path}: [build]"
            _run(top.build.cmd, file.folder, top.build.timeout, what, env)
    if not isinstance(top.impl.version, Command):
        return top.impl.version
    try:
        said = _run(top.impl.version.cmd, file.folder, VERSION_TIMEOUT, "")
    except LoadError:  # a checkout without tags, or no git: judge without a version
        return ""
    lines = "".join(c if c.isprintable() else "\n" for c in said.strip()).splitlines()
    return lines[0][:LONGEST_VERSION] if lines else ""


def sanitizing(kind: str) -> dict[str, str]:
    """The variables by which make, CMake and others learn what to compile and link with."""
    flags = f"-g -fno-omit-frame-pointer -fsanitize={kind}"
    names = ("CFLAGS", "CXXFLAGS", "LDFLAGS")
    return {name: f"{os.environ.get(name, '')} {flags}".strip() for name in names}


def _run(
    cmd: str | list[str],
    folder: Path,
    timeout: float,
    what: str,
    env: Mapping[str, str] | None = None,
) -> str:
    shown = cmd if isinstance(cmd, str) else " ".join(cmd)
    with tempfile.TemporaryFile() as output:  # a pipe would wait for what the command leaves behind
        try:
            process = subprocess.Popen(
                cmd,
                shell=isinstance(cmd, str),
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError, IndexError) as error:
            raise LoadError(f"{what} `{shown}` cannot be started: {error}") from None
        try:
            status = process.wait(timeout)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise LoadError(f"{what} `{shown}` took longer than {timeout:g} s") from None
        output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL))
        printed = output.read().decode(errors="replace").strip()
    if status != 0:
        raise LoadError(
            f"{what} `{shown}` failed with {in_words(status)}"
            f"{f'; it printed:{chr(10)}{printed}' if printed else ' and printed nothing'}"
        )
    return printed
