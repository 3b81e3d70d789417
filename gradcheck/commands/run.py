"""`gradcheck run`: judge implementations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gradcheck import console
from gradcheck.commands.flags import (
    add_color,
    add_executor,
    add_implementation,
    add_jobs,
    add_selection,
    choice,
    executor_of,
    suite_of,
)
from gradcheck.commands.outcome import exit_code, save, targets_of
from gradcheck.commands.progress import Progress, add_progress
from gradcheck.commands.project import open_to_defaults, settle
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.inert import heard
from gradcheck.selection import all_dtypes_of

if TYPE_CHECKING:
    from gradcheck.baseline.entry import Baseline
    from gradcheck.commands.outcome import Target
    from gradcheck.commands.watch import Watch
    from gradcheck.plan import Plan
    from gradcheck.record import Header, Record, Run
    from gradcheck.run import Witness
    from gradcheck.suite import Suite

LOG: Final = "jsonl"
"""The format that is written while a run goes on."""


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Hold gradients against the true derivative: a table per implementation, then every "
        "failure with what is wrong, and a line that repeats it."
    )
    add_plan(parser)
    add_baseline(parser)
    parser.add_argument(
        "-x", dest="first", action="store_true",
        help="stop at the first case with a failure that no baseline knows",
    )  # fmt: skip
    parser.add_argument(
        "--lf", dest="failed", action="store_true",
        help="of the selection, only the cases that failed last time in this folder",
    )  # fmt: skip
    parser.add_argument(
        "--shard", type=_shard, metavar="I/N",
        help="every N-th case of the selection, from the I-th on; `gradcheck merge` joins them",
    )  # fmt: skip
    add_executor(parser)
    add_output(parser)
    parser.set_defaults(command=run)
    open_to_defaults(parser)


def _shard(text: str) -> str:
    from gradcheck.shards import parsed

    try:
        parsed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def add_baseline(parser: argparse.ArgumentParser) -> None:
    """What is known."""
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE",
        help="failures that are known (`gradcheck baseline write FILE`): the gate fails on "
        "anything else, and on a listed one that passes",
    )  # fmt: skip


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
    group = parser.add_argument_group("reports")
    group.add_argument(
        "-o", "--output", dest="outputs", action="append", default=[], metavar="FILE[:FORMAT]",
        help="write a report: .md .html .json .xml .txt; .jsonl, a log that grows with the run; or "
        "FILE:FORMAT, also with summary (a CI job's page), github, badge (repeat)",
    )  # fmt: skip
    group.add_argument(
        "--format", default="terminal", metavar="FORMAT",
        help="what stdout carries: terminal (default), markdown, summary, html, json, jsonl, "
        "junit, github, badge",
    )  # fmt: skip
    add_color(group)
    add_progress(group)


def run(arguments: argparse.Namespace) -> int:
    """Judge what the flags select; returns the exit code."""
    settle(arguments)
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = baseline_of(arguments, targets)
    with _workers(arguments):
        plan = replace(plan_of(arguments), **executor_of(arguments))
        if arguments.failed:
            plan = _failed(plan)
        plan = replace(plan, shard=arguments.shard or "")
        return carry_out(plan, arguments, targets, baseline, remember=True)


def _workers(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Let workers load what they need while this process does."""
    if arguments.jobs == 1 or arguments.executor != "local":
        return nullcontext()
    from gradcheck.workers.nursery import foreseen, importing
    from gradcheck.workers.pool import LISTEN

    suites = ("gradcheck.suite", "load_suite", (arguments.suite,))
    return foreseen(LISTEN, [importing("gradcheck.workers.remote"), suites])


def _failed(plan: Plan) -> Plan:
    """What of a plan failed last time, here; all of it where nothing of it did."""
    from gradcheck.stored.failed import cases, known

    only, total = cases(known(), plan.implementations), len(plan.everything)
    narrow = replace(plan, only=only)
    if not narrow.everything:
        console.say(f"--lf: nothing of this failed last time; all {total:,} cases are run")
        return plan
    console.say(f"--lf: {len(narrow.everything):,} of {total:,} cases failed last time")
    return narrow


def baseline_of(arguments: argparse.Namespace, targets: Sequence[Target]) -> Baseline | None:
    """What the flag of `add_baseline` names, read before anything is done.

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
        config=arguments.config,
    )


def carry_out(
    plan: Plan,
    arguments: argparse.Namespace,
    targets: Sequence[Target],
    baseline: Baseline | None = None,
    *,
    remember: bool = False,
) -> int:
    """Execute a plan, and report it as the flags of `add_output` say; returns the exit code.

    `remember`: whether what fails is what `--lf` runs next.
    """
    check_format(arguments.format)
    logs = [path for path, form in targets if form == LOG]
    watch = _watch(logs, baseline, first=getattr(arguments, "first", False))
    with closing(watch):
        found = executed(plan, arguments, watch)
        written = watch.ends(found)
    if baseline is not None:
        found = held(found, baseline, plan.suite)
    if remember:
        from gradcheck.stored.failed import keep

        keep(found)
    others = [target for target in targets if target[1] != LOG]
    return publish_run(found, arguments, others, written=written)


def _watch(logs: Sequence[Path], baseline: Baseline | None, *, first: bool) -> Watch:
    """What is to look at a run: its logs, and, where its `first` failure ends it, what is one."""
    from gradcheck.commands.watch import Watch

    def fails(header: Header, results: Sequence[Record]) -> bool:
        if all(result.verdict.expected for result in results):
            return False
        from gradcheck.record import Run

        some = Run(header=header, results=tuple(results))
        if baseline is not None:
            from gradcheck.baseline.apply import accepted

            some = accepted(some, baseline)
        return any(map(some.fails, results))

    if not logs:
        return Watch(fails=fails if first else None)
    from gradcheck.stored.log import Log

    return Watch([Log(path) for path in logs], fails if first else None)


def held(found: Run, baseline: Baseline, suite: Suite) -> Run:
    """A run with what a baseline makes of it today."""
    from gradcheck.baseline import today
    from gradcheck.baseline.apply import applied
    from gradcheck.baseline.scope import Scope

    return applied(found, baseline, Scope.of(suite, baseline, found), today.today())


def executed(plan: Plan, arguments: argparse.Namespace, witness: Witness | None = None) -> Run:
    """What comes of a plan; unless -q is given, a terminal shows how far it is."""
    from gradcheck.run import execute

    progress = Progress(arguments, (case.name for case in plan.everything)).watching(witness)
    with heard():  # what the code judged prints is no part of a report
        found = execute(plan, progress, progress)
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

    saved = [written, *(save(path, report.pieces(found, form)) for path, form in targets)]
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
        complete=found.complete or found.halted,
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
    if not word:  # no operator is looked at: the suite imports them when they are
        return ""
    known = {
        system
        for spec in suite
        for kink in spec.kinks
        for convention in kink.conventions
        for system in convention.systems
    }
    by_lower = {system.lower(): system for system in known}
    if word.lower() not in by_lower:
        raise UnknownNameError("system with conventions on kinks", word, sorted(known))
    return by_lower[word.lower()]
