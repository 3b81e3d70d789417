"""The values of flags that several commands share, and a project's defaults.

A flag that is not given has the default of `[tool.gradcheck]` in the project's pyproject.toml, else
the usual one (`settle`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gradcheck.cli import console
from gradcheck.cli.flags import TYPES, option_named
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.results.ci_safe import heard
from gradcheck.results.words import clean
from gradcheck.run.options import JOBS, OPTIONS, STRING, Option
from gradcheck.spec.case_selection import CaseSelection
from gradcheck.system.reading import contents
from gradcheck.system.user_modules import (
    FILE,
    MAX_BYTES,
    SUFFIX,
    TABLE,
    here,
    misspelt_table,
    project_file,
    project_table,
)

if TYPE_CHECKING:
    from gradcheck.run.workers.collect import Workers
    from gradcheck.spec.suite import Suite

NARROWING: Final = ("op", "model", "rule", "dialect", "sample")
"""Options that leave something out, where the command line gives them."""
KINDS: Final = ("op", "model", "rule")
"""Options that select kinds of cases: one on the command line replaces the defaults of all."""
MAX_SHOWN: Final = 60
"""Characters of a wrong value that a message quotes."""


# ── a project's defaults ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The defaults that hold in a folder: by key, lists where a flag may be repeated.

    Paths among them are relative to the folder for which they were looked up.
    """

    path: Path
    defaults: Mapping[str, Any]


def project_keys() -> dict[str, Option]:
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
        raise UsageError(f"{shown}: it is not TOML: {table}")
    where = f"{shown}: [tool.{TABLE}]"
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table; write its keys below a line [tool.{TABLE}]")
    base = os.path.relpath(path.parent, folder)
    return Project(path=path, defaults=_checked(table, where, base))


def _checked(table: Mapping[str, Any], where: str, base: str) -> dict[str, Any]:
    """The values of a table by key; `base` is its file's folder as seen from here.

    Raises:
        UsageError: an unknown key, or a value of another type; `where` begins the message.
    """
    known, found = project_keys(), {}
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
    file = option.name == "impl" and (value.endswith((".toml", SUFFIX)) or os.sep in value)
    path = (option.paths or file) and value != ""  # an empty name is reported where it is opened
    return os.path.join(base, value) if path else value  # noqa: PTH118  "./torch" keeps its dot


def _shown(value: Any) -> str:
    text = clean(str(value).lower() if isinstance(value, bool) else repr(value))
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def settle(arguments: argparse.Namespace, only: Iterable[str] | None = None) -> None:
    """Give every flag that is not given its default: the project's, else the usual one.

    Afterwards `arguments.config` says whether there is such a project, `arguments.narrowed`
    whether the command line narrows the selection, `arguments.require_of_project` whether
    it leaves --require to the project, and `arguments.of_project` what the project sets: its file,
    and values by key.

    Args:
        arguments: what the parser returned.
        only: the keys of the project that count; None: all.

    Raises:
        UsageError: the project's table is invalid, or the working directory is gone.
    """
    folder, usual = here(), arguments.usual
    project = project_of(folder) if arguments.config else None
    if arguments.config and project is None and (near := misspelt_table(folder)):
        console.say(f"{FILE}: [tool.{near}] is ignored: did you mean [tool.{TABLE}]?")
    defaults = dict(project.defaults) if project is not None else {}
    if only is not None:
        defaults = {key: defaults[key] for key in defaults if key in only}
    given = {key: getattr(arguments, option_named(key).dest) for key in usual}
    words = [given.get(key) for key in NARROWING] + [getattr(arguments, "keyword", None)]
    arguments.narrowed = any(word is not None for word in words)
    arguments.require_of_project = given.get("require") is None
    file = "" if project is None else os.path.relpath(project.path, folder)
    own = {key: value for key, value in defaults.items() if key in usual and given[key] is None}
    arguments.of_project = file, own
    for key, value in filled(given, usual, defaults).items():
        setattr(arguments, option_named(key).dest, value)
    arguments.config = project is not None


def origin(arguments: argparse.Namespace, message: str) -> str:
    """What precedes a message about a value of the project: its file and key; else nothing."""
    file, own = getattr(arguments, "of_project", ("", {}))
    said = message.partition(" did you mean")[0].partition(" known:")[0]
    for key, value in own.items():
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and (repr(word) in said or f" {word}:" in f" {said}"):
                return f"{file}: [tool.{TABLE}]: {key}: "
    return ""


def filled(
    given: Mapping[str, Any], usual: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The value of every option by name: as given (None: not), else the project's, else usual.

    The keys are those of `usual`; other `defaults` are left out.
    """
    if any(given.get(key) is not None for key in KINDS):
        defaults = {key: defaults[key] for key in defaults if key not in KINDS}
    read = {key: _read(option_named(key), defaults[key]) for key in defaults if key in usual}
    return {key: {**usual, **read}[key] if given[key] is None else given[key] for key in usual}


def _read(option: Option, value: Any) -> Any:
    """A value of a project, as the command line would give it."""
    if option.negated:
        return not value
    convert = TYPES.get(option.name)
    return convert(str(value)) if convert and option.kind in (JOBS, STRING) else value


# ── what they select ─────────────────────────────────────────────────────────────────────────────


def choice(arguments: argparse.Namespace) -> CaseSelection:
    """The selection of cases that the flags describe."""
    return CaseSelection(
        ops=arguments.op,
        models=arguments.model,
        rules=arguments.rule,
        dialects=arguments.dialect,
        samples=arguments.sample,
        keyword=getattr(arguments, "keyword", None),
        seed=getattr(arguments, "seed", 0),
    )


def suite_of(references: Sequence[str]) -> Suite:
    """The suites of `--suite`, or all installed ones.

    Raises:
        UsageError: no suite is installed.
        LoadError: a suite cannot be imported.
    """
    from gradcheck.spec.loading import load_suite  # door: not for stored runs

    with heard():  # a user's module may print
        return load_suite(references)


def implementations_of(arguments: argparse.Namespace, suite: Suite) -> list[str]:
    """The words of `--impl`, each once; a module or file without a table gets its only one.

    A line on stderr names that table, unless `-q` is given.

    Raises:
        UsageError: a module or file has no table, or several.
    """
    if not arguments.impl:
        return ["reference"]
    from gradcheck.implementations.find_table import completed  # door: a user's code is named

    found = {word: completed(word, suite) for word in arguments.impl}
    if not getattr(arguments, "quiet", True):
        for word, name in found.items():
            if ":" in name and ":" not in word:
                console.say(f"--impl {word}: judging {name}")
    return list(dict.fromkeys(found.values()))


def check_executor(arguments: argparse.Namespace) -> None:
    """Refuse --executor and --scheduler where they contradict each other.

    Raises:
        UsageError: they do, or Dask is not installed.
    """
    if arguments.executor == "dask":
        from gradcheck.run.cluster.client import check_installed  # door: it needs Dask

        check_installed()
    elif arguments.scheduler:
        raise UsageError(
            f"--scheduler {arguments.scheduler}: nothing would run there; add --executor dask"
        )


def workers_of(arguments: argparse.Namespace) -> Workers | None:
    """Workers of a cluster, where --executor names one; None: processes of this machine.

    Raises:
        UsageError: as `check_executor` does.
    """
    check_executor(arguments)
    if arguments.executor == "local":
        return None
    from gradcheck.run.cluster.client import workers  # door: it needs Dask

    return workers(arguments.scheduler, arguments.jobs, arguments.suite)
