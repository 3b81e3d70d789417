"""`gradcheck baseline`: write, update, prune and check a file of known failures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gradcheck.cli import console
from gradcheck.cli.gate import add_require, code_of, held, required_of, requiring
from gradcheck.cli.outcome import check_writable
from gradcheck.cli.planned import add_plan, plan_of
from gradcheck.cli.progress import add_progress
from gradcheck.cli.project import open_to_defaults, settle
from gradcheck.cli.report import suite_for
from gradcheck.cli.run import executed
from gradcheck.errors import UsageError

if TYPE_CHECKING:
    from gradcheck.results.baseline.change import Change
    from gradcheck.results.baseline.entry import Baseline
    from gradcheck.results.run import Run
    from gradcheck.spec.suite import Suite

ACTIONS: Final = {
    "write": "list every failure in a new FILE",
    "update": "set what was measured now, and list what is new; comments and patterns stay",
    "prune": "remove the entries that excuse nothing any more",
    "check": "only hold the run against FILE",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Its commands and their flags."""
    parser.description = (
        "Keep a file of failures that are known. The run is made now, by the flags of `run`, or "
        "read from RUN.json, which `gradcheck run -o RUN.json` wrote. The exit code is what the "
        "gate says of the file as it is afterwards."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for action, what in ACTIONS.items():
        one = actions.add_parser(action, help=what, description=f"{what[0].upper()}{what[1:]}.")
        one.add_argument("file", metavar="FILE", type=Path, help="known-failures.toml")
        one.add_argument(
            "report", metavar="RUN.json", type=Path, nargs="?", help="a run made before"
        )
        add_plan(one)
        add_require(one)
        add_progress(one)
        one.set_defaults(command=baseline, action=action)
        open_to_defaults(one)


def baseline(arguments: argparse.Namespace) -> int:
    """Carry out what is asked for; returns the exit code."""
    from gradcheck.results.baseline.file import parsed, text_of

    settle(arguments, ["suite"] if arguments.report is not None else None)
    path: Path = arguments.file
    if arguments.action == "write":
        if path.exists():
            raise UsageError(
                f"{path}: it is there already; `gradcheck baseline update {path}` keeps what it "
                "says, or remove it first"
            )
        text, before = "", None
    else:
        text = text_of(path)
        before = parsed(text, str(path))
    if arguments.action != "check":
        check_writable([path], "FILE")
    found, suite = _run(arguments)
    if arguments.action != "check":
        _refuse_partial(found, path)
    change = _change(arguments.action, found, suite, path, text, before)
    written = _save(path, change) if change.text != text else True
    after = parsed(change.text, str(path)) if written or before is None else before
    judged = held(found, after, suite)
    shown = console.show(_told(change, judged))
    return code_of(judged, written=written and shown)


def _run(arguments: argparse.Namespace) -> tuple[Run, Suite]:
    """The run that is meant, and the suite that it is of."""
    if arguments.report is None:
        plan = requiring(plan_of(arguments), arguments)
        return executed(plan, arguments), plan.suite
    from gradcheck.results.stored.read import read

    flags = ("op", "model", "rule", "dialect", "sample", "impl", "dtype")
    for flag in flags:
        if getattr(arguments, flag):
            raise UsageError(f"--{flag}: the run is read from {arguments.report}; leave it out")
    found = read(arguments.report)
    suite = suite_for(found, arguments.suite, str(arguments.report))
    return required_of(found, arguments, lambda: suite), suite


def _refuse_partial(found: Run, path: Path) -> None:
    """A file is not changed for a run that lost something.

    Raises:
        UsageError: the run did.
    """
    if not found.complete:
        from gradcheck.report.run_words import incomplete

        raise UsageError(f"{path}: nothing is changed: {incomplete(found)}; run again")
    if found.troubles:
        raise UsageError(f"{path}: nothing is changed: {found.troubles[0]}")


def _change(
    action: str, found: Run, suite: Suite, path: Path, text: str, before: Baseline | None
) -> Change:
    from gradcheck.results.baseline import change
    from gradcheck.results.baseline.entry import Baseline
    from gradcheck.results.baseline.scope import Scope

    name = str(path)
    scope = Scope.of(suite, before or Baseline(name=name), found)
    if before is None:
        return change.new(found, name, scope)
    if action == "update":
        return change.updated(found, text, before, scope)
    if action == "prune":
        return change.pruned(found, text, before, scope)
    return change.Change(text=text)


def _save(path: Path, change: Change) -> bool:
    from gradcheck.system.atomic_io import replace

    try:
        replace(path, change.text)
    except OSError as error:
        console.say(f"{path}: {error.strerror}; it is as it was")
        return False
    return True


def _told(change: Change, judged: Run) -> str:
    """What was changed, what was refused, what the gate says now."""
    from gradcheck.report.run_words import baseline as said
    from gradcheck.report.run_words import unmet

    refused = [f"refused: {text}" for text in change.refused]
    return "\n".join([*change.done, *refused, *said(judged), *unmet(judged), judged.summary, ""])
