"""The gate of a run: its requirements, its baseline, and its exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck.cli import console
from gradcheck.cli.exit_codes import exit_code
from gradcheck.errors import UsageError
from gradcheck.results.required import asked, check_known, refuse_left_out
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from gradcheck.results.baseline.entry import Baseline
    from gradcheck.results.run import Run
    from gradcheck.run.plan import Plan
    from gradcheck.spec.suite import Suite


def requiring(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """The plan with the names that --require matches in it.

    A project's requirement that the command line does not select is dropped, with a line on stderr.

    Raises:
        UnknownNameError: a glob matches nothing of the suite.
        UsageError: a glob of the command line matches nothing that is selected.
    """
    globs = list(dict.fromkeys(arguments.require))
    if not globs:
        return plan
    from gradcheck.run.plan import names_of  # door: it imports NumPy

    selected = names_of([*plan.cases, *plan.models, *plan.rules])
    kept = asked(globs, plan.suite, selected)
    if arguments.narrowed and arguments.require_of_project:
        for glob in globs:
            if glob not in kept:
                console.say(
                    f"require {glob}: it is not selected here, and not required of this run"
                )
    else:
        refuse_left_out(globs, kept)
    return replace(plan, require=asked(kept, plan.suite, names_of(plan.everything)))


def required_of(found: Run, arguments: argparse.Namespace, suite: Callable[[], Suite]) -> Run:
    """A stored run, whose requirements --require replaces, if it is given.

    Raises:
        UnknownNameError: a glob matches nothing of the suite.
    """
    globs = tuple(dict.fromkeys(arguments.require))
    if not globs:
        return found
    for glob in globs:
        check_known(glob, suite())
    return replace(found, header=replace(found.header, require=globs))


def baseline_of(
    arguments: argparse.Namespace, targets: Sequence[tuple[Path, str]]
) -> Baseline | None:
    """The baseline that --baseline names, read before anything is judged.

    Raises:
        UsageError: it is not a baseline, or a report would overwrite it.
    """
    if arguments.baseline is None:
        return None
    from gradcheck.results.baseline.file import read  # door: a baseline

    baseline = read(arguments.baseline)
    for path, _ in targets:
        if path.exists() and path.samefile(arguments.baseline):
            raise UsageError(f"-o {path}: it is the baseline; write the report elsewhere")
    return baseline


def held(found: Run, baseline: Baseline, suite: Suite) -> Run:
    """The run with the expectations of a baseline, as of today."""
    # door: a baseline
    from gradcheck.results.baseline import entry
    from gradcheck.results.baseline.apply import applied
    from gradcheck.results.baseline.match import Scope

    return applied(found, baseline, Scope.of(suite, baseline, found), entry.today())


def exit_code_of_run(found: Run, *, written: bool, exit_zero: bool = False) -> int:
    """The exit code of a run.

    Args:
        found: the run.
        written: whether every report of it was written.
        exit_zero: whether a closed gate counts as open.
    """
    return exit_code(
        complete=found.complete or found.halted,
        invalid=bool(found.footer.counts[Verdict.INVALID]),
        unloaded=bool(found.troubles),
        written=written,
        checked=bool(found.footer.checked or found.unmet),
        passed=found.passed or exit_zero,
    )
