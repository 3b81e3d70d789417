"""`gradcheck baseline`: write, update, prune and check a file of known failures."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from gradcheck.cli import console
from gradcheck.cli.gate import exit_code_of_run, held, required_of, requiring
from gradcheck.cli.project_defaults import settle
from gradcheck.cli.reports import check_writable
from gradcheck.cli.run import executed, plan_of
from gradcheck.cli.stored import suite_for
from gradcheck.errors import UsageError
from gradcheck.report.run_words import baseline as said
from gradcheck.report.run_words import incomplete, unmet
from gradcheck.results.baseline import change
from gradcheck.results.baseline.entry import Baseline
from gradcheck.results.baseline.file import parsed, text_of
from gradcheck.results.baseline.match import Scope
from gradcheck.results.run import Run
from gradcheck.results.stored.read import read
from gradcheck.spec.suite import Suite
from gradcheck.system import atomic_io


def baseline(arguments: argparse.Namespace) -> int:
    """Carry out an action on the file; returns the exit code."""
    settle(arguments, ["suite"] if arguments.report is not None else None)
    path: Path = arguments.file
    if arguments.action == "write":
        if path.exists():
            raise UsageError(
                f"{path}: it exists; update it with `gradcheck baseline update {path}`, or "
                "remove it"
            )
        text, before = "", None
    else:
        text = text_of(path)
        before = parsed(text, str(path))
    if arguments.action != "check":
        check_writable([path], "FILE")
    found, suite = _run(arguments, before)
    if arguments.action != "check":
        _refuse_partial(found, path)
    change = _change(arguments.action, found, suite, path, text, before)
    written = _save(path, change) if change.text != text else True
    after = parsed(change.text, str(path)) if written or before is None else before
    judged = held(found, after, suite)
    shown = console.show(_told(change, judged))
    return exit_code_of_run(judged, written=written and shown)


def _run(arguments: argparse.Namespace, before: Baseline | None) -> tuple[Run, Suite]:
    """The run, made now or read from a file, and its suite."""
    if arguments.report is None:
        known = [entry.match for entry in before.entries] if before is not None else []
        plan = replace(requiring(plan_of(arguments), arguments), known=known)
        return executed(plan, arguments), plan.suite
    flags = ("op", "model", "rule", "dialect", "sample", "impl", "dtype")
    for flag in flags:
        if getattr(arguments, flag):
            raise UsageError(f"--{flag}: the run is read from {arguments.report}; remove --{flag}")
    found = read(arguments.report)
    suite = suite_for(found, arguments.suite, str(arguments.report))
    return required_of(found, arguments, lambda: suite), suite


def _refuse_partial(found: Run, path: Path) -> None:
    """Refuse to change a file for an incomplete run.

    Raises:
        UsageError: the run is incomplete.
    """
    if not found.complete:
        raise UsageError(f"{path}: nothing is changed: {incomplete(found)}; run again")
    if found.troubles:
        raise UsageError(f"{path}: nothing is changed: {found.troubles[0]}")


def _change(
    action: str, found: Run, suite: Suite, path: Path, text: str, before: Baseline | None
) -> change.Change:
    name = str(path)
    scope = Scope.of(suite, before or Baseline(name=name), found)
    if before is None:
        return change.new(found, name, scope)
    if action == "update":
        return change.updated(found, text, before, scope)
    if action == "prune":
        return change.pruned(found, text, before, scope)
    return change.Change(text=text)


def _save(path: Path, changed: change.Change) -> bool:
    try:
        atomic_io.replace(path, changed.text)
    except OSError as error:
        console.say(f"{path}: {error.strerror}; it is as it was")
        return False
    return True


def _told(change: change.Change, judged: Run) -> str:
    """What was changed and refused, and the state of the gate."""
    refused = [f"refused: {text}" for text in change.refused]
    return "\n".join([*change.done, *refused, *said(judged), *unmet(judged), judged.summary, ""])
