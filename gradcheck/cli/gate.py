"""What a run is held against, and how strictly: the flags of the gate, and what they make of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck.cli import console
from gradcheck.cli.outcome import exit_code
from gradcheck.errors import UsageError
from gradcheck.results.required import asked, check_known, refuse_left_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck.cli.outcome import Target
    from gradcheck.results.baseline.entry import Baseline
    from gradcheck.results.run import Run
    from gradcheck.run.plan import Plan
    from gradcheck.spec.suite import Suite


def add_gate(parser: argparse.ArgumentParser) -> None:
    """What is known, and whether anything else fails."""
    group = parser.add_argument_group("the gate")
    group.add_argument(
        "--baseline", type=Path, metavar="FILE",
        help="failures that are known (`gradcheck baseline write FILE`): the gate fails on "
        "anything else, and on a listed one that passes",
    )  # fmt: skip
    add_require(group)
    group.add_argument(
        "--exit-zero", action="store_true",
        help="exit with 0 where the gate fails; reports say `fail` all the same, and what cannot "
        "be judged keeps its code",
    )  # fmt: skip


def add_require(parser: argparse._ActionsContainer) -> None:
    """What has to be answered."""
    parser.add_argument(
        "--require", action="append", default=[], metavar="GLOB",
        help="operators, models or rules that have to pass, or to fail as the baseline says: there "
        "the gate fails on UNSUPPORTED, UNBOUND and SKIP, too; OP or OP/DIALECT (repeat)",
    )  # fmt: skip


def requiring(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """A plan with what --require names of it.

    What a project requires, and the command line leaves out, is not required of this run.

    Raises:
        UnknownNameError: nothing of the suite matches.
        UsageError: nothing that is selected does.
    """
    globs = list(dict.fromkeys(arguments.require))
    if not globs:
        return plan
    from gradcheck.run.plan import names_of

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
    """A run that was stored, with what --require names, if anything, in place of what was required.

    Raises:
        UnknownNameError: nothing of the suite matches.
    """
    globs = tuple(dict.fromkeys(arguments.require))
    if not globs:
        return found
    for glob in globs:
        check_known(glob, suite())
    return replace(found, header=replace(found.header, require=globs))


def baseline_of(arguments: argparse.Namespace, targets: Sequence[Target]) -> Baseline | None:
    """What --baseline names, read before anything is done.

    Raises:
        UsageError: it is no baseline, or a report would overwrite it.
    """
    if arguments.baseline is None:
        return None
    from gradcheck.results.baseline.file import read

    baseline = read(arguments.baseline)
    for path, _ in targets:
        if path.exists() and path.samefile(arguments.baseline):
            raise UsageError(f"-o {path}: it is the baseline; write the report elsewhere")
    return baseline


def held(found: Run, baseline: Baseline, suite: Suite) -> Run:
    """A run with what a baseline makes of it today."""
    from gradcheck.results.baseline import clock
    from gradcheck.results.baseline.apply import applied
    from gradcheck.results.baseline.scope import Scope

    return applied(found, baseline, Scope.of(suite, baseline, found), clock.today())


def code_of(found: Run, *, written: bool, exit_zero: bool = False) -> int:
    """The exit code of a run; `written`: every report of it was; `exit_zero`: the gate is open."""
    from gradcheck.results.verdict import Verdict

    return exit_code(
        complete=found.complete or found.halted,
        invalid=bool(found.footer.counts[Verdict.INVALID]),
        unloaded=bool(found.troubles),
        written=written,
        checked=bool(found.footer.checked or found.unmet),
        passed=found.passed or exit_zero,
    )
