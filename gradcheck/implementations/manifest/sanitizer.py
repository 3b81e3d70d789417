"""`[c] sanitize`: the runtime that a library built with a sanitizer needs before all others."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path
from typing import Final

from gradcheck.errors import LoadError
from gradcheck.implementations.manifest.operation import NativeLibrary
from gradcheck.implementations.manifest.symbols import calls_sanitizer, elf, libraries

GCC: Final = {"address": "libasan.so", "undefined": "libubsan.so"}
CLANG: Final = {"address": "libclang_rt.asan", "undefined": "libclang_rt.ubsan_standalone"}
COMPILERS: Final = ("gcc", "clang", "cc")
OPTIONS: Final = (
    "abort_on_error=1", "halt_on_error=1", "print_stacktrace=1", "print_legend=0",
    "allocator_may_return_null=1",
    "detect_leaks=0", "detect_odr_violation=0",  # Python's, and of libraries that share no names
    *(f"handle_{name}=0" for name in ("segv", "sigbus", "abort", "sigill", "sigfpe")),
)  # fmt: skip
"""Signals kill, as they do without it: what guard pages tell is told as before."""


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
