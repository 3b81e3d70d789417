"""The only commands that a manifest may run: its library's build, and what tells the version."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.schema import Command, File
from gradcheck.implementations.processes.crash_or_hang import in_words

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
    """The tail of what a command prints."""
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
            with contextlib.suppress(ProcessLookupError):
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
