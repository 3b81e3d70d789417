"""`gradcheck init`: a first manifest, guessed from a library's names, or a workflow for CI."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gradcheck.cli import console
from gradcheck.cli.flags import add_suite, suite_of
from gradcheck.cli.outcome import OK, USAGE
from gradcheck.cli.workflow import SERVICES, workflow
from gradcheck.errors import UsageError

if TYPE_CHECKING:
    from gradcheck.implementations.manifest.suggest import Suggestion

KINDS: Final = ("c", "python", "process")
NAMED: Final = 8
"""Functions that were not recognised and are named."""
MANIFEST: Final = "gradcheck.toml"
BASELINE: Final = "known-failures.toml"
"""What a workflow takes up where it is there, and the project names no other."""
NOBODY: Final = "gradcheck's own reference (name yours with --impl)"


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Write a manifest for --impl. From a C library it takes the functions and, from debug "
        "information or a header, their prototypes; by their names it guesses operators and what "
        "each parameter is, and marks what you should confirm. With --ci, write a workflow."
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="",
        help="a C library (default with --lib or --header), Python objects, or a program",
    )  # fmt: skip
    parser.add_argument("--lib", metavar="FILE.so", help="the shared library")
    parser.add_argument("--header", metavar="FILE.h", help="where its functions are declared")
    parser.add_argument(
        "-o", dest="output", default="", metavar="FILE",
        help="what to write; never overwritten; default gradcheck.toml, or where the CI service "
        "looks for its workflow",
    )  # fmt: skip
    parser.add_argument(
        "--ci", choices=tuple(SERVICES), help="a workflow that judges --impl on every change"
    )
    parser.add_argument(
        "--impl", action="append", default=[], metavar="WHOSE",
        help="with --ci: whose code, as for `gradcheck run` (repeat); default: what "
        "[tool.gradcheck] names, or gradcheck.toml",
    )  # fmt: skip
    parser.add_argument(
        "--install", default="", metavar="WHAT",
        help="with --ci: what pip installs there; default: the gradcheck that is installed here",
    )  # fmt: skip
    add_suite(parser)
    parser.set_defaults(command=init)


def init(arguments: argparse.Namespace) -> int:
    """Write the manifest or the workflow; returns the exit code."""
    if arguments.ci:
        return _workflow(arguments)
    if arguments.impl or arguments.install:
        raise UsageError("--impl and --install are for --ci github or --ci gitlab")
    library, header = (Path(p) if p else None for p in (arguments.lib, arguments.header))
    kind = arguments.kind or ("c" if library or header else "")
    path = Path(arguments.output or MANIFEST)
    if not kind:
        raise UsageError("say what for: --lib build/libk.so, --kind python, or --kind process")
    if kind != "c" and (library or header):
        raise UsageError(f"--lib and --header are for --kind c, not {kind}")
    if path.suffix != ".toml":
        raise UsageError(f"-o {path}: name a .toml, so that --impl knows what it is")
    if path.exists():
        raise UsageError(f"-o {path}: it exists; remove it, or name another with -o")

    from gradcheck.implementations.manifest.suggest import suggest_c, template
    from gradcheck.system.atomic_io import create

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
    """What was written, and what is to be done before it is right."""
    run = f"    gradcheck run --impl {path}\n"
    if kind != "c":
        return f"{path} is written; fill it in, then\n{run}"
    from gradcheck.implementations.manifest.suggest import CONFIRM
    from gradcheck.results.words import clean, plural

    names = list(dict.fromkeys(found.bound))
    bound = (
        f"{plural(len(names), 'operator')} by name: {', '.join(names)}"
        if names
        else "no operator yet"
    )
    lines = [f"{path} is written. It binds {bound}."]
    if found.open:
        more = ", …" if len(found.open) > NAMED else ""
        lines.append(f"Not recognised: {clean(', '.join(found.open[:NAMED]))}{more}.")
    guesses = found.text.count(CONFIRM)
    if guesses:
        lines.append(f"{plural(guesses, 'line')} marked `confirm`: a guess; look at each.")
    waiting = found.text.count("# [[op]]")
    if waiting:
        lines.append(f"{plural(waiting, 'function')} left as a comment: complete it, or delete it.")
        if "build the library with -g" in found.text:
            lines.append("Where nothing says what one takes: --header FILE.h, or a build with -g.")
    return "\n".join([*lines, "Then", run])


def _workflow(arguments: argparse.Namespace) -> int:
    """Write a workflow; returns the exit code."""
    from gradcheck.cli.config import project_of
    from gradcheck.system.user_modules import here

    if arguments.lib or arguments.header or arguments.kind:
        raise UsageError("--ci writes a workflow; --lib, --header and --kind are for a manifest")
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
        whose = "what [tool.gradcheck] names" if "impl" in given else NOBODY
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
    """What to do where there is a file already."""
    if service == "gitlab":
        return (
            "write another with -o gradcheck.gitlab-ci.yml, and name it in that one: "
            "include: [{local: gradcheck.gitlab-ci.yml}]"
        )
    return f"remove it, or write another with -o {path.with_name('gradcheck-2.yml')}"
