"""Defaults of a project: the table `[tool.gradcheck]` of its pyproject.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.results.words import clean
from gradcheck.run.options import OPTIONS, Option
from gradcheck.system.reading import contents
from gradcheck.system.user_modules import MAX_BYTES, TABLE, project_file, project_table

MAX_SHOWN = 60
"""Characters of a wrong value that a message quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The defaults that hold in a folder: by key, lists where a flag may be repeated.

    Paths among them are relative to the folder for which they were looked up.
    """

    path: Path
    defaults: Mapping[str, Any]


def keys() -> dict[str, Option]:
    """The options that a project may set, by key."""
    return {option.name: option for option in OPTIONS if option.config}


def project_of(folder: Path) -> Project | None:
    """The defaults that hold in `folder`, an absolute path; None where no project sets any.

    Raises:
        UsageError: the table is invalid; the message names the file and the key.
    """
    path = project_file(folder)
    if path is None:
        return None
    shown = os.path.relpath(path, folder)
    try:
        table = project_table(contents(path, MAX_BYTES))
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}") from None
    if isinstance(table, ValueError):
        raise UsageError(f"{shown}: it is no TOML: {table}")
    where = f"{shown}: [tool.{TABLE}]"
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table; write its keys below a line [tool.{TABLE}]")
    base = os.path.relpath(path.parent, folder)
    return Project(path=path, defaults=_checked(table, where, base))


def _checked(table: Mapping[str, Any], where: str, base: str) -> dict[str, Any]:
    """The values of a table by key; `base` is its file's folder as seen from here.

    Raises:
        UsageError: an unknown key, or a value of another type; `where` begins the message.
    """
    known, found = keys(), {}
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"{where}: {clean(str(UnknownNameError('key', key, known)))}")
        option = known[key]
        if not option.kind.holds(value):
            raise UsageError(f"{where}: {key} = {_shown(value)}: {option.kind.how}")
        listed = option.repeatable and not isinstance(value, list)
        found[key] = _placed(option, [value] if listed else value, base)
    return found


def _placed(option: Option, value: Any, base: str) -> Any:
    """A value, whose paths are made relative to the folder from which the command runs."""
    if base == os.curdir:
        return value
    if isinstance(value, list):
        return [_placed(option, word, base) for word in value]
    path = option.paths or (option.name == "impl" and (value.endswith(".toml") or os.sep in value))
    path = path and value != ""  # an empty name is reported where it is opened
    return os.path.join(base, value) if path else value  # noqa: PTH118  "./torch" keeps its dot


def _shown(value: Any) -> str:
    text = clean(str(value).lower() if isinstance(value, bool) else repr(value))
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
