"""What the flags of a session mean once a project's defaults are heard: a flag wins."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gradcheck.cli.config import project_of
from gradcheck.cli.project import destination, filled
from gradcheck.implementations.processes import TIMEOUT
from gradcheck.testing import MARKER, WORKER

if TYPE_CHECKING:
    import pytest

USUAL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("impl", "op", "model", "rule", "dialect", "sample", "dtype", "suite"), ()),
    "require": (),
    "seed": 0,
    "baseline": "",
    "timeout": TIMEOUT,
    "convention": "",
    "contract": None,
    "no-isolate": True,
    "no-build": True,
    **dict.fromkeys(("train", "project", "taylor"), False),
}
"""What flags mean that neither the session nor a project gives, by their keys in the table."""
BESIDE: Final = ("gradcheck_config", "gradcheck_file")
"""Whether a project's defaults are in effect, and which file has them."""


def settle(config: pytest.Config) -> None:
    """Give every flag of a session its meaning, and let the project's modules be imported.

    A process of xdist's takes over what the one that started it has found.

    Raises:
        UsageError: the project's table cannot be right.
    """
    option = config.option
    worker = getattr(config, WORKER, None)
    if worker is not None:
        vars(option).update(worker[MARKER]["flags"])
    else:
        project = project_of(config.invocation_params.dir) if option.gradcheck_config else None
        given = {key: getattr(option, attribute(key)) for key in USUAL}
        defaults = project.defaults if project is not None else {}
        for key, value in filled(given, USUAL, defaults).items():
            setattr(option, attribute(key), str(value) if isinstance(value, Path) else value)
        option.gradcheck_config = project is not None
        option.gradcheck_file = str(project.path) if project is not None else ""
    beside = option.gradcheck_file and str(Path(option.gradcheck_file).parent)
    if beside and beside not in sys.path:
        sys.path.insert(1, beside)


def told(config: pytest.Config) -> dict[str, Any]:
    """The settled flags, as another process is told of them: of built-in types."""
    return {name: getattr(config.option, name) for name in (*map(attribute, USUAL), *BESIDE)}


def attribute(key: str) -> str:
    """Where pytest puts a flag."""
    return f"gradcheck_{destination(key)}"
