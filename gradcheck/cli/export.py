"""`gradcheck export` and `gradcheck judge`: cases on file, and the answers to them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gradcheck.cli import console
from gradcheck.cli.exit_codes import NOTHING, OK, USAGE
from gradcheck.cli.options import add, add_sections, choice, suite_of
from gradcheck.cli.progress import Progress
from gradcheck.cli.reports import targets_of
from gradcheck.cli.run import carry_out, convention_of
from gradcheck.errors import UsageError
from gradcheck.results.words import plural
from gradcheck.run.options import REPORTS, SELECTION
from gradcheck.spec.selection import dtypes_of

LAYOUTS = ("bin", "npz")


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `export`."""
    parser.description = (
        "Write the cases of operators as requests on file, for code that is not bound: its author "
        "computes the gradients in whatever way, and `gradcheck judge` reads them."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a new folder, or an empty one")
    parser.add_argument(
        "--format", dest="layout", choices=LAYOUTS, default="bin",
        help="bin: a folder per request, raw bytes, for any language (default); npz: a file per "
        "request, for NumPy",
    )  # fmt: skip
    add_sections(parser, SELECTION, default="all")
    add(
        parser, "dtype",
        help="float64, float32, float16, bfloat16, all (repeat); default: float64 and float32",
    )  # fmt: skip
    add(parser, "seed")
    add(parser, "quiet", help="no progress on stderr")
    add(parser, "progress")
    parser.set_defaults(command=export)


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `judge`."""
    parser.description = "Judge the answers that lie in a folder which `gradcheck export` wrote."
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder, with its answers")
    add(parser, "suite")
    add(parser, "convention", help="on kinks accept only what this system returns")
    add(parser, "jobs")
    add_sections(parser, REPORTS)
    parser.set_defaults(command=judge)


def export(arguments: argparse.Namespace) -> int:
    """Write the requests; returns the exit code."""
    if arguments.model or arguments.rule:
        raise UsageError("operators are exported; leave --model and --rule out")
    dtypes = dtypes_of(arguments.dtype)
    from gradcheck.run import export as exporting

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
        f"{exporting.README} there says what to write; then: gradcheck judge {arguments.folder}\n"
    )
    if not console.show(text):
        return USAGE
    return OK if found.requests else NOTHING


def judge(arguments: argparse.Namespace) -> int:
    """Judge the answers; returns the exit code."""
    targets = targets_of(arguments.outputs)
    from gradcheck.implementations.protocol import answers
    from gradcheck.run.export import README, still_true
    from gradcheck.run.plan import Plan

    found = answers.read(arguments.folder)
    dtypes = dtypes_of(list({one.dtype for one in found.cases}))
    suite = suite_of(arguments.suite)
    plan = Plan(
        suite=suite,
        cases=still_true(arguments.folder, found, suite),
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
        console.say(f"{arguments.folder} holds no answers yet; {README} there says what to write")
    return code


def _word(folder: Path) -> str:
    """The folder as `--impl` takes it: "./torch", since "torch" is a framework."""
    word = str(folder)
    return word if os.sep in word else f".{os.sep}{word}"
