"""`gradcheck run`: judge implementations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck import console
from gradcheck.commands.flags import (
    add_implementation,
    add_jobs,
    add_selection,
    choice,
    suite_of,
)
from gradcheck.commands.outcome import Target, exit_code, save, targets_of
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.selection import all_dtypes_of

if TYPE_CHECKING:
    from gradcheck.baseline.entry import Baseline
    from gradcheck.plan import Plan
    from gradcheck.record import Run
    from gradcheck.suite import Suite


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    add_plan(parser)
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE",
        help="failures that are known (`gradcheck baseline write FILE`): the gate fails on "
        "anything else, and on a listed one that passes",
    )  # fmt: skip
    add_output(parser)
    parser.set_defaults(command=run)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """What is judged, of whom, and how."""
    add_selection(parser, "all, unless another kind is named")
    add_implementation(parser)
    parser.add_argument(
        "--dtype", action="append", default=[], metavar="DTYPE",
        help="float64, float32, float16, bfloat16, all (repeat); models: mp50, float64, float32; "
        "default: float64 and float32, and mp50 for the suite's own models",
    )  # fmt: skip
    parser.add_argument(
        "--train", action="store_true",
        help="models: train each at its smallest size; does every step's loss fall as predicted?",
    )  # fmt: skip
    parser.add_argument(
        "--project", action="store_true",
        help="models: hold gradients against slopes of the loss, as of any function, and not "
        "element by element",
    )  # fmt: skip
    parser.add_argument(
        "--taylor", action="store_true",
        help="also the Taylor remainder of every gradient along one direction (in -o reports)",
    )  # fmt: skip
    parser.add_argument(
        "--contract", action=argparse.BooleanOptionalAction, default=None,
        help="what a backward owes beyond its numbers (linear, no state, any layout, …), once per "
        "operator and dialect; default: of all but the reference",
    )  # fmt: skip
    add_jobs(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the report of a run goes."""
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE[:FORMAT]",
        help="write a report: .md .html .json .xml .txt, or FILE:github (repeat)",
    )  # fmt: skip
    parser.add_argument(
        "--format", default="terminal", metavar="FORMAT",
        help="what stdout carries: terminal (default), markdown, html, json, junit, "
        "github",
    )  # fmt: skip
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def run(arguments: argparse.Namespace) -> int:
    """Judge what the flags select; returns the exit code."""
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = None
    if arguments.baseline is not None:
        from gradcheck.baseline.file import read

        baseline = read(arguments.baseline)
        for path, _ in targets:
            if path.exists() and path.samefile(arguments.baseline):
                raise UsageError(f"-o {path}: it is the baseline; write the report elsewhere")
    return carry_out(plan_of(arguments), arguments, targets, baseline)


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What the flags of `add_plan` ask for.

    Raises:
        UsageError, LoadError: they cannot be right.
    """
    implementations = list(dict.fromkeys(arguments.impl)) or ["reference"]
    dtypes, model_dtypes = all_dtypes_of(
        arguments.dtype,
        operators=bool(arguments.op or arguments.rule) or not arguments.model,
        models=bool(arguments.model),
        certify="reference" in implementations,
    )

    from gradcheck.plan import Plan

    suite = suite_of(arguments.suite)
    chosen = choice(arguments).cases(suite)
    return Plan(
        suite=suite,
        cases=chosen.operators,
        models=chosen.models,
        rules=chosen.rules,
        implementations=implementations,
        dtypes=dtypes,
        model_dtypes=model_dtypes,
        seed=arguments.seed,
        suites=arguments.suite,
        convention=convention_of(arguments.convention, suite),
        jobs=arguments.jobs,
        taylor=arguments.taylor,
        project=arguments.project,
        train=arguments.train,
        build=arguments.build,
        contract=arguments.contract,
        isolate=arguments.isolate,
        timeout=arguments.timeout,
    )


def carry_out(
    plan: Plan,
    arguments: argparse.Namespace,
    targets: Sequence[Target],
    baseline: Baseline | None = None,
) -> int:
    """Execute a plan, and report it as the flags of `add_output` say; returns the exit code."""
    check_format(arguments.format)
    found = executed(plan, arguments)
    if baseline is not None:
        found = held(found, baseline, plan.suite)
    return publish_run(found, arguments, targets)


def held(found: Run, baseline: Baseline, suite: Suite) -> Run:
    """A run with what a baseline makes of it today."""
    from gradcheck.baseline import today
    from gradcheck.baseline.apply import applied
    from gradcheck.baseline.scope import Scope

    return applied(found, baseline, Scope.of(suite, baseline, found), today.today())


def executed(plan: Plan, arguments: argparse.Namespace) -> Run:
    """What comes of a plan; unless -q is given, a terminal shows how far it is."""
    from gradcheck.run import execute

    progress = console.Progress(not arguments.quiet and sys.stderr.isatty())
    with redirect_stdout(sys.stderr):  # what the code judged prints is no part of a report
        found = execute(plan, progress)
    progress.clear()
    return found


def publish_run(
    found: Run,
    arguments: argparse.Namespace,
    targets: Sequence[Target],
    terminal: Callable[..., str] | None = None,
    *,
    written: bool = True,
) -> int:
    """Report a run as the flags of `add_output` say; returns the exit code.

    `terminal` renders what a terminal shows, if that is not the report of a run; `written` says
    whether all else that was to be written is.
    """
    from gradcheck import report

    saved = [written, *(save(path, report.render(found, form)) for path, form in targets)]
    how: dict[str, Any] = {
        "color": console.colored(arguments.color),
        "width": console.width(sys.stdout),
    }
    if arguments.format == "terminal" and terminal is not None:
        text = terminal(**how)
    else:
        text = report.render(found, arguments.format, **how)
    if arguments.format != "terminal":  # the terminal report shows them itself
        wrong = found.gate.problems if found.gate is not None else ()
        for line in (*found.troubles, *(problem.text for problem in wrong)):
            console.say(line)
    saved.append(console.show(text))
    return code_of(found, written=all(saved))


def code_of(found: Run, *, written: bool) -> int:
    """The exit code of a run; `written`: every report of it was."""
    from gradcheck.verdict import Verdict

    return exit_code(
        complete=found.complete,
        invalid=bool(found.footer.counts[Verdict.INVALID]),
        unloaded=bool(found.troubles),
        written=written,
        checked=bool(found.footer.checked),
        passed=found.passed,
    )


def check_format(word: str) -> None:
    """Refuse a format that there is not.

    Raises:
        UnknownNameError: there is none.
    """
    from gradcheck import report

    if word not in report.FORMATS:
        raise UnknownNameError("format", word, report.FORMATS)


def convention_of(word: str, suite: Suite) -> str:
    """The system that a word means, however it is capitalised.

    Raises:
        UnknownNameError: no operator of the suite knows a convention of it.
    """
    known = {
        system
        for spec in suite
        for kink in spec.kinks
        for convention in kink.conventions
        for system in convention.systems
    }
    by_lower = {system.lower(): system for system in known}
    if word and word.lower() not in by_lower:
        raise UnknownNameError("system with conventions on kinks", word, sorted(known))
    return by_lower.get(word.lower(), "")
