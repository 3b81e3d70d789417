"""A first workflow for a CI service: `gradcheck init --ci`."""

from __future__ import annotations

import json
import shlex
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gradcheck.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVICES: Final = {
    "github": Path(".github/workflows/gradcheck.yml"),
    "gitlab": Path(".gitlab-ci.yml"),
}
"""Where each service looks for its workflow."""


def workflow(service: str, implementations: Sequence[str], baseline: str, install: str) -> str:
    """The text of a workflow that judges these implementations.

    Args:
        service: one of `SERVICES`.
        implementations: as `--impl` takes them; none: what the project names, or the reference.
        baseline: the file of known failures; empty: none but the project's.
        install: what pip is to install; empty: what is installed here.

    Raises:
        UsageError: a word cannot stand in a workflow, or CI could not install what is here.
    """
    template = resources.files("gradcheck.cli") / "templates" / f"{service}.yml"
    command = ["gradcheck", "run", *(f"--impl={_checked(name)}" for name in implementations)]
    if baseline:
        command.append(f"--baseline={baseline}")
    text = template.read_text("utf-8")
    text = text.replace("<<install>>", shlex.quote(_checked(install or installed())))
    return text.replace("<<command>>", shlex.join(command))


def _checked(word: str) -> str:
    """A word that a workflow can hold: both services put values in place of what looks like names.

    Raises:
        UsageError: it cannot.
    """
    if not word.isprintable() or "${{" in word or not word.strip():
        raise UsageError(f"{word!r} cannot stand in a workflow; name a file or a module without it")
    return word


def installed() -> str:
    """What pip is to be told to install this gradcheck elsewhere.

    Source: PEP 610, which says where a distribution came from.

    Raises:
        UsageError: it came from this machine.
    """
    try:
        found = metadata.distribution("gradcheck")
        origin: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {"dir_info": {}}
    if not origin:  # an index: its name and version are enough
        return f"gradcheck=={found.version}"
    control = origin.get("vcs_info", {})
    if control.get("vcs") and control.get("commit_id"):
        return f"gradcheck @ {control['vcs']}+{origin['url']}@{control['commit_id']}"
    raise UsageError(
        "this gradcheck was installed from a folder of this machine, which CI does not have; say "
        "what pip is to install there, as in --install 'git+https://HOST/OWNER/gradcheck@COMMIT'"
    )
