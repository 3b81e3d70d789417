"""What a run is held against, and how strictly: the flags of the gate, and what they make of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck.commands.outcome import exit_code
from gradcheck.errors import UsageError

if TYPE_CHECKING:
    from gradcheck.baseline.entry import Baseline
    from gradcheck.commands.outcome import Target
    from gradcheck.record import Run
    from gradcheck.suite import Suite


def add_gate(parser: argparse.ArgumentParser) -> None:
    """What is known, and whether anything else fails."""
    group = parser.add_argument_group("the gate")
    group.add_argument(
        "--baseline", type=Path, metavar="FILE",
        help="failures that are known (`gradcheck baseline write FILE`): the gate fails on "
        "anything else, and on a listed one that passes",
    )  # fmt: skip
    group.add_argument(
        "--exit-zero", action="store_true",
        help="exit with 0 where the gate fails; reports say `fail` all the same, and what cannot "
        "be judged keeps its code",
    )  # fmt: skip


def baseline_of(arguments: argparse.Namespace, targets: Sequence[Target]) -> Baseline | None:
    """What --baseline names, read before anything is done.

    Raises:
        UsageError: it is no baseline, or a report would overwrite it.
    """
    if arguments.baseline is None:
        return None
    from gradcheck.baseline.file import read

    baseline = read(arguments.baseline)
    for path, _ in targets:
        if path.exists() and path.samefile(arguments.baseline):
            raise UsageError(f"-o {path}: it is the baseline; write the report elsewhere")
    return baseline


def held(found: Run, baseline: Baseline, suite: Suite) -> Run:
    """A run with what a baseline makes of it today."""
    from gradcheck.baseline import today
    from gradcheck.baseline.apply import applied
    from gradcheck.baseline.scope import Scope

    return applied(found, baseline, Scope.of(suite, baseline, found), today.today())


def code_of(found: Run, *, written: bool, exit_zero: bool = False) -> int:
    """The exit code of a run; `written`: every report of it was; `exit_zero`: the gate is open."""
    from gradcheck.verdict import Verdict

    return exit_code(
        complete=found.complete or found.halted,
        invalid=bool(found.footer.counts[Verdict.INVALID]),
        unloaded=bool(found.troubles),
        written=written,
        checked=bool(found.footer.checked),
        passed=found.passed or exit_zero,
    )
