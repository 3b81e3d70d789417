"""Defaults of a project: the table `[tool.gradcheck]` of its pyproject.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import UsageError
from gradcheck.system.config_file import LARGEST, NAME, file_of, table_of
from gradcheck.system.reading import contents

PATHS: Final = ("baseline", "keep-artifacts", "output")
"""Keys whose values are paths; so are those of `impl` that look it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The defaults that hold in a folder: by key, lists where a flag may be repeated.

    Paths among them are relative to the folder for which they were looked up.
    """

    path: Path
    defaults: Mapping[str, Any]


def project_of(folder: Path) -> Project | None:
    """The defaults that hold in `folder`, an absolute path; None: nobody has said any.

    Raises:
        UsageError: the table cannot be right; the message names the file and the key.
    """
    path = file_of(folder)
    if path is None:
        return None
    from gradcheck.cli.config_table import checked  # deferred: few projects have a table

    shown = os.path.relpath(path, folder)
    try:
        table = table_of(contents(path, LARGEST))
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}") from None
    if isinstance(table, ValueError):
        raise UsageError(f"{shown}: it is no TOML: {table}")
    where = f"{shown}: [tool.{NAME}]"
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table; write its keys below a line [tool.{NAME}]")
    said, base = checked(table, where), os.path.relpath(path.parent, folder)
    return Project(path=path, defaults={key: _given(key, said[key], base) for key in said})


def _given(key: str, value: Any, base: str) -> Any:
    """A value, where it is a path as seen from here; `base` is the folder of the file."""
    if base == os.curdir:
        return value
    if isinstance(value, list):
        return [_given(key, word, base) for word in value]
    path = key in PATHS or (key == "impl" and (value.endswith(".toml") or os.sep in value))
    path = path and value != ""  # which is no file: whoever opens it says so
    return os.path.join(base, value) if path else value  # noqa: PTH118  "./torch" keeps its dot
