"""`gradcheck export` and `gradcheck judge`: cases on file, and the answers to them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gradcheck.cli import console
from gradcheck.cli.exit_codes import NOTHING, OK, USAGE
from gradcheck.cli.progress import Progress
from gradcheck.cli.project_defaults import choice, suite_of
from gradcheck.cli.reports import targets_of
from gradcheck.cli.run import carry_out, convention_of
from gradcheck.errors import UsageError
from gradcheck.implementations.protocol import answers
from gradcheck.results.words import plural
from gradcheck.run import export as exporting
from gradcheck.run.plan import Plan
from gradcheck.spec.dtype_selection import dtypes_of


def export(arguments: argparse.Namespace) -> int:
    """Write the requests; returns the exit code."""
    if arguments.model or arguments.rule:
        raise UsageError("only operators are exported; remove --model and --rule")
    dtypes = dtypes_of(arguments.dtype)
    suite = suite_of(arguments.suite)
    cases = choice(arguments).cases(suite).operators
    progress = Progress(arguments)
    found = exporting.export(
        arguments.folder, suite, cases, dtypes, arguments.seed, arguments.layout, progress
    )
    progress.clear()
    skipped = f" ({found.skipped} do not fit their dtype)" if found.skipped else ""
    text = (
        f"{plural(found.requests, 'request')} of {plural(found.cases, 'case')} "
        f"in {arguments.folder}{skipped}\n"
        f"{exporting.README} there describes the answers to write; then: "
        f"gradcheck judge {arguments.folder}\n"
    )
    if not console.show(text):
        return USAGE
    return OK if found.requests else NOTHING


def judge(arguments: argparse.Namespace) -> int:
    """Judge the answers; returns the exit code."""
    targets = targets_of(arguments.outputs)
    found = answers.read(arguments.folder)
    dtypes = dtypes_of(list({one.dtype for one in found.cases}))
    suite = suite_of(arguments.suite)
    plan = Plan(
        suite=suite,
        cases=exporting.still_true(arguments.folder, found, suite),
        implementations=[_word(arguments.folder)],
        dtypes=dtypes,
        seed=found.seed,
        suites=arguments.suite,
        convention=convention_of(arguments.convention, suite),
        jobs=arguments.jobs,
        contract=False,
    )
    code = carry_out(plan, arguments, targets)
    if code == NOTHING:
        console.say(
            f"{arguments.folder} has no answers yet; {exporting.README} there describes them"
        )
    return code


def _word(folder: Path) -> str:
    """The folder as `--impl` takes it: "./torch", since "torch" is a framework."""
    word = str(folder)
    return word if os.sep in word else f".{os.sep}{word}"
