"""Where the code judged stands: its file and line, as seen from the working directory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

WRAPPED: Final = 16
"""Wrappers (decorators, partials, compiled functions) that are looked through at the most."""
INSTALLED: Final = "site-packages"
"""The folder of packages that were installed, in an environment below the working directory too."""


def source_of(function: Callable[..., Any]) -> str:
    """File and first line of a Python function ("src/rms.py:12"), what wraps it looked through.

    Empty where it has none, or where that is an installed package's or lies outside the working
    directory: it is not the user's to change, and its path would be another on every machine.
    """
    code = _code(function)
    if code is None:
        return ""
    file = _seen(Path(code.co_filename))
    return "" if file is None or INSTALLED in Path(file).parts else f"{file}:{code.co_firstlineno}"


def placed(source: str, folder: Path) -> str:
    """A file, and perhaps a line, that a manifest in `folder` names, from the working directory.

    As it is where the manifest's folder has no such file.
    """
    name, colon, line = source.rpartition(":")
    if not (colon and line.isdecimal()):
        name, colon, line = source, "", ""
    path = folder / name
    file = _seen(path) if name and path.is_file() else None
    return source if file is None else f"{file}{colon}{line}"


def _code(function: Any) -> CodeType | None:
    for _ in range(WRAPPED):
        if isinstance(function, partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            wrapped = _wrapped(function)
            if wrapped is None and isinstance(function, FunctionType):
                return function.__code__
            function = type(function).__call__ if wrapped is None else wrapped
    return None


def _wrapped(function: Any) -> Any:
    """What a wrapper says that it wraps: an object of a user's may answer anything."""
    try:
        return getattr(function, "__wrapped__", None)
    except Exception:  # noqa: BLE001  code of the user's answers
        return None


def _seen(path: Path) -> str | None:
    """A file's path from the working directory; None if it is no file below it."""
    try:
        whole = path.resolve()
        return whole.relative_to(Path.cwd().resolve()).as_posix() if whole.is_file() else None
    except (OSError, ValueError):
        return None
