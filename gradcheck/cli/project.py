"""What a project's defaults make of the flags of a command: a flag that is given wins."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

KEYS: Final = (
    "op", "model", "rule", "dialect", "sample", "suite", "impl", "dtype", "output", "baseline",
    "convention", "format", "color", "seed", "jobs", "timeout", "contract", "train", "project",
    "taylor", "no-build", "no-isolate", "quiet", "verbose", "progress",
    "executor", "scheduler", "max-fail", "max-time", "keep-artifacts", "require",
)  # fmt: skip
"""The flags that a project can give, as `gradcheck.cli.config_table` has them."""
DESTINATIONS: Final[Mapping[str, str]] = {
    "output": "outputs",
    "no-build": "build",
    "no-isolate": "isolate",
}
"""Where the parser puts a flag, if not under its own name; what begins with "no-" is inverted."""
NARROWING: Final = ("op", "model", "rule", "dialect", "sample")
"""What leaves something out, where the command line gives it."""
SELECTION: Final = ("op", "model", "rule")
"""What is judged: one of these flags replaces the defaults of all three."""


def open_to_defaults(parser: argparse.ArgumentParser) -> None:
    """Let a project say what flags of `parser` mean that are not given; call it last."""
    usual = {key: parser.get_default(destination(key)) for key in KEYS}
    parser.set_defaults(**{destination(key): None for key in usual}, usual=usual)
    parser.add_argument(
        "--no-config", dest="config", action="store_false",
        help="leave the defaults in [tool.gradcheck] of pyproject.toml out",
    )  # fmt: skip


def settle(arguments: argparse.Namespace, only: Iterable[str] | None = None) -> None:
    """Give every flag that is not given its default: the project's, else the usual one.

    `only` names the keys that the project is heard about; None: all. `arguments.config` says
    afterwards whether there is such a project, `arguments.narrowed` whether the command line says
    what is judged, and `arguments.require_of_project` that it does not say what is required.

    Raises:
        UsageError: its table cannot be right, or the working directory is gone.
    """
    from gradcheck.cli.config import project_of
    from gradcheck.system.user_modules import here

    folder, usual = here(), arguments.usual
    project = project_of(folder) if arguments.config else None
    defaults = dict(project.defaults) if project is not None else {}
    if only is not None:
        defaults = {key: defaults[key] for key in defaults if key in only}
    given = {key: getattr(arguments, destination(key)) for key in usual}
    words = [given.get(key) for key in NARROWING] + [getattr(arguments, "keyword", None)]
    arguments.narrowed = any(word is not None for word in words)
    arguments.require_of_project = given.get("require") is None
    for key, value in filled(given, usual, defaults).items():
        setattr(arguments, destination(key), value)
    arguments.config = project is not None


def filled(
    given: Mapping[str, Any], usual: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The value of every flag by key: as given (None: it is not), else the project's, else usual.

    The keys are those of `usual`; other `defaults` are left out.
    """
    if any(given.get(key) is not None for key in SELECTION):
        defaults = {key: defaults[key] for key in defaults if key not in SELECTION}
    return {
        key: given[key]
        if given[key] is not None
        else (_given(key, defaults[key]) if key in defaults else usual[key])
        for key in usual
    }


def destination(key: str) -> str:
    """Where the parser puts a flag."""
    return DESTINATIONS.get(key, key.replace("-", "_"))


def _given(key: str, value: Any) -> Any:
    if key.startswith("no-"):
        return not value
    if key == "jobs":
        from gradcheck.cli.flags import jobs_of

        return jobs_of(str(value))
    return Path(value) if key in ("baseline", "keep-artifacts") else value
