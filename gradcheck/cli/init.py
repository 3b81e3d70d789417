"""`gradcheck init`: a first manifest, guessed from a library's names; empty kernels; a workflow."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from gradcheck.cli import console
from gradcheck.cli.exit_codes import OK, USAGE
from gradcheck.cli.project_defaults import project_of, suite_of
from gradcheck.errors import UsageError
from gradcheck.implementations.manifest.suggest import CONFIRM, Suggestion, suggest_c, template
from gradcheck.report.catalogue import gradients_of
from gradcheck.results.words import clean, plural
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Suite, index_primals
from gradcheck.system.atomic_io import create
from gradcheck.system.user_modules import SUFFIX, here

MAX_LISTED: Final = 8
"""Functions named that were not recognised."""
MANIFEST: Final = "gradcheck.toml"
KERNELS: Final = "mykernels.py"
BASELINE: Final = "known-failures.toml"
"""The baseline of a workflow, where it exists and the project names no other."""
NO_IMPLEMENTATION: Final = "gradcheck's own reference (name yours with --impl)"
SERVICES: Final = {
    "github": Path(".github/workflows/gradcheck.yml"),
    "gitlab": Path(".gitlab-ci.yml"),
}
"""Where each service looks for its workflow."""


def init(arguments: argparse.Namespace) -> int:
    """Write the manifest, the kernels or the workflow; returns the exit code."""
    if arguments.ci:
        return _workflow(arguments)
    if arguments.impl or arguments.install:
        raise UsageError("--impl and --install are for --ci github or --ci gitlab")
    if arguments.op:
        return _kernels(arguments)
    library, header = (Path(p) if p else None for p in (arguments.lib, arguments.header))
    kind = arguments.kind or ("c" if library or header else "")
    path = Path(arguments.output or MANIFEST)
    if not kind:
        raise UsageError(
            "say what for: --lib build/libk.so, --kind python --op 'soft*', or --kind process"
        )
    if kind != "c" and (library or header):
        raise UsageError(f"--lib and --header are for --kind c, not {kind}")
    if path.suffix != ".toml":
        raise UsageError(f"-o {path}: name a .toml, so that --impl knows what it is")
    if path.exists():
        raise UsageError(f"-o {path}: it exists; remove it, or name another with -o")

    if kind == "c":
        found = suggest_c(library, header, path, suite_of(arguments.suite))
    else:
        found = template(kind)
    try:
        create(path, found.text)
    except OSError as error:
        raise UsageError(f"-o {path}: {error.strerror}") from error
    return OK if console.show(_told(found, path, kind)) else USAGE


def _told(found: Suggestion, path: Path, kind: str) -> str:
    """What was written, and what the user still has to do."""
    run = f"    gradcheck run --impl {path}\n"
    if kind != "c":
        return f"{path} is written; fill it in, then\n{run}"
    names = list(dict.fromkeys(found.bound))
    bound = (
        f"{plural(len(names), 'operator')} by name: {', '.join(names)}"
        if names
        else "no operator yet"
    )
    lines = [f"{path} is written. It binds {bound}."]
    if found.open:
        more = ", …" if len(found.open) > MAX_LISTED else ""
        lines.append(f"Not recognised: {clean(', '.join(found.open[:MAX_LISTED]))}{more}.")
    guesses = found.text.count(CONFIRM)
    if guesses:
        lines.append(f"{plural(guesses, 'line')} marked `confirm`: a guess; look at each.")
    waiting = found.text.count("# [[op]]")
    if waiting:
        lines.append(f"{plural(waiting, 'function')} left as a comment: complete it, or delete it.")
        if "build the library with -g" in found.text:
            lines.append("Where nothing says what one takes: --header FILE.h, or a build with -g.")
    return "\n".join([*lines, "Then", run])


# ── kernels in Python ────────────────────────────────────────────────────────────────────────────


def _kernels(arguments: argparse.Namespace) -> int:
    """Write a module of backward passes to fill in; returns the exit code."""
    if arguments.lib or arguments.header or arguments.kind not in ("", "python"):
        raise UsageError("--op writes a Python module; remove --lib and --header, or --op")
    path = Path(arguments.output or KERNELS)
    if path.suffix != SUFFIX:
        raise UsageError(f"-o {path}: name a {SUFFIX} file for the operators of --op")
    if path.exists():
        raise UsageError(f"-o {path}: it exists; remove it, or name another with -o")
    suite = suite_of(arguments.suite)
    chosen = suite.select(arguments.op)
    try:
        create(path, skeleton(chosen, suite))
    except OSError as error:
        raise UsageError(f"-o {path}: {error.strerror}") from error
    shown = f"{path} has {_passes(len(chosen))} to fill in. Then\n"
    return OK if console.show(f"{shown}    gradcheck run --impl {path}\n") else USAGE


def skeleton(specs: Sequence[OpSpec], suite: Suite) -> str:
    """A module with a VJP per operator that raises NotImplementedError, and their table.

    It imports and can be judged as it is: what is not written yet is not implemented.
    """
    parts = ['"""Backward passes, called as vjp(ct, *primals, **attributes)."""\n']
    parts += ["import numpy as np  # noqa: F401\n\n"]
    for spec in specs:
        gives = gradients_of(spec, index_primals(spec, suite))
        ct = "" if spec.outputs == 1 else f" `ct` is a tuple of {spec.outputs} arrays."
        formula = " ".join(spec.formula.split()).replace('"""', "'''")
        body = [
            spec.definition("vjp", _function(spec)),
            f'    r"""Return {gives}.{ct}',
            "",
            f"    {formula}",
            f"    Axes, behind those of the batch: {spec.signature}",
            '    """',
            f'    raise NotImplementedError("{spec.name}")\n\n',
        ]
        parts.append("\n".join(body))
    rows = [f"    {json.dumps(spec.name)}: {_function(spec)}," for spec in specs]
    return "\n".join([*parts, "IMPL = {", *rows, "}\n"])


def _passes(count: int) -> str:
    return "1 backward pass" if count == 1 else f"{count} backward passes"


def _function(spec: OpSpec) -> str:
    return re.sub(r"\W", "_", f"{spec.name}_vjp")


# ── a workflow ───────────────────────────────────────────────────────────────────────────────────


def _workflow(arguments: argparse.Namespace) -> int:
    """Write a workflow; returns the exit code."""
    if arguments.lib or arguments.header or arguments.kind or arguments.op:
        raise UsageError("--ci writes a workflow; remove --lib, --header, --kind and --op")
    usual = SERVICES[arguments.ci]
    path = Path(arguments.output) if arguments.output else usual
    if path.exists():
        raise UsageError(f"{path}: it exists; {_beside(arguments.ci, path)}")
    project = project_of(here())
    given = project.defaults if project is not None else {}
    found = [] if "impl" in given or not Path(MANIFEST).exists() else [MANIFEST]
    implementations = arguments.impl or found
    baseline = BASELINE if "baseline" not in given and Path(BASELINE).exists() else ""
    text = workflow(arguments.ci, implementations, baseline, arguments.install)
    try:
        if not arguments.output:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    whose = " ".join(implementations)
    if not whose:
        whose = "what [tool.gradcheck] names" if "impl" in given else NO_IMPLEMENTATION
    commit = [str(path), *filter(None, [baseline])]
    commit += [name for name in implementations if name.endswith(".toml")]
    shown = [
        f"{path} judges {whose} on every push.",
        "Add to it what your code needs to be imported or compiled, then",
        f"    git add {shlex.join(commit)} && git commit -m 'Check gradients in CI'",
        "",
    ]
    return OK if console.show("\n".join(shown)) else USAGE


def _beside(service: str, path: Path) -> str:
    """What to do where the workflow exists already."""
    if service == "gitlab":
        return (
            "write another with -o gradcheck.gitlab-ci.yml, and name it in that one: "
            "include: [{local: gradcheck.gitlab-ci.yml}]"
        )
    return f"remove it, or write another with -o {path.with_name('gradcheck-2.yml')}"


def workflow(service: str, implementations: Sequence[str], baseline: str, install: str) -> str:
    """The text of a workflow that judges these implementations.

    Args:
        service: one of `SERVICES`.
        implementations: as `--impl` takes them; none: what the project names, or the reference.
        baseline: the file of known failures; empty: none but the project's.
        install: the requirement for pip; empty: the gradcheck that is installed here.

    Raises:
        UsageError: a word cannot stand in a workflow, or CI cannot install this gradcheck.
    """
    template = resources.files("gradcheck.cli") / "templates" / f"{service}.yml"
    command = ["gradcheck", "run", *(f"--impl={_checked(name)}" for name in implementations)]
    if baseline:
        command.append(f"--baseline={baseline}")
    text = template.read_text("utf-8")
    text = text.replace("<<install>>", shlex.quote(_checked(install or installed())))
    return text.replace("<<command>>", shlex.join(command))


def _checked(word: str) -> str:
    """A word for a workflow, in which services replace expressions such as `${{ … }}`.

    Raises:
        UsageError: it contains one, or is blank.
    """
    if not word.isprintable() or "${{" in word or not word.strip():
        raise UsageError(f"{word!r} cannot stand in a workflow; name a file or a module without it")
    return word


def installed() -> str:
    """The requirement by which pip installs this gradcheck elsewhere.

    Source: PEP 610, the origin of a distribution.

    Raises:
        UsageError: it was installed from a folder of this machine.
    """
    from importlib import metadata  # door: it takes as long as a help text

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
