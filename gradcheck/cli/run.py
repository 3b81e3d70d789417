"""`gradcheck run`: judge implementations."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gradcheck.cli import console
from gradcheck.cli.gate import baseline_of, held, requiring
from gradcheck.cli.progress import LogWriter, Progress
from gradcheck.cli.project_defaults import (
    check_executor,
    choice,
    implementations_of,
    settle,
    suite_of,
)
from gradcheck.cli.reports import Target, check_folder, check_format, publish_run, targets_of
from gradcheck.errors import UnknownNameError
from gradcheck.results.ci_safe import heard
from gradcheck.results.run import Run
from gradcheck.results.stored import last_failed
from gradcheck.results.words import plural
from gradcheck.run import execute as running
from gradcheck.run.options import OPTIONS
from gradcheck.run.plan import LoadedPlan, Plan
from gradcheck.spec.case import Kind
from gradcheck.spec.dtype_selection import all_dtypes_of

if TYPE_CHECKING:
    from gradcheck.results.baseline.entry import Baseline
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Header
    from gradcheck.run.execute import Observer
    from gradcheck.spec.suite import Suite

LOG: Final = "jsonl"
"""The format that grows with the run."""


def run(arguments: argparse.Namespace) -> int:
    """Judge what the flags select; returns the exit code."""
    settle(arguments)
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = baseline_of(arguments, targets)
    check_executor(arguments)
    if arguments.keep_artifacts is not None:
        check_folder(arguments.keep_artifacts, "--keep-artifacts")
    with _workers(arguments):
        plan = plan_of(arguments)
        if arguments.lf:
            plan = _failed(plan)
        known = [entry.match for entry in baseline.entries] if baseline is not None else []
        plan = replace(requiring(plan, arguments), shard=arguments.shard or "", known=known)
        return carry_out(plan, arguments, targets, baseline, remember=True)


def plan_of(arguments: argparse.Namespace, *, build: bool = True) -> Plan:
    """The plan that the flags of the sections `PLAN` describe, and other flags where there are any.

    Args:
        arguments: the parsed and settled flags.
        build: whether manifests may run their commands, if the flags allow it.

    Raises:
        UsageError, LoadError: the flags contradict each other, or something cannot be loaded.
    """
    suite = suite_of(arguments.suite)
    implementations = implementations_of(arguments, suite)
    dtypes, model_dtypes = all_dtypes_of(
        arguments.dtype,
        operators=bool(arguments.op or arguments.rule) or not arguments.model,
        models=bool(arguments.model),
        certify="reference" in implementations,
    )
    chosen = choice(arguments).cases(suite)
    options = {o.plan: getattr(arguments, o.dest, o.initial) for o in OPTIONS if o.plan}
    options["convention"] = convention_of(arguments.convention, suite)
    options["build"] = build and arguments.build
    options["all"] = options["all"] or implementations == ["reference"]
    kinds = {Kind.OPERATOR: arguments.op, Kind.MODEL: arguments.model, Kind.RULE: arguments.rule}
    return Plan(
        suite=suite,
        cases=chosen.operators,
        models=chosen.models,
        rules=chosen.rules,
        implementations=implementations,
        dtypes=dtypes,
        model_dtypes=model_dtypes,
        config=arguments.config,
        named=[(kind, glob) for kind, globs in kinds.items() for glob in globs],
        by_name=bool(arguments.sample),
        **options,
    )


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


def _workers(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Let workers load their modules while this process loads its own."""
    if arguments.jobs == 1 or arguments.executor != "local":
        return nullcontext()
    # door: only for several jobs
    from gradcheck.run.workers.fork_server import importing, prestarted
    from gradcheck.run.workers.pool import LISTEN

    suites = ("gradcheck.spec.loading", "load_suite", (arguments.suite,))
    return prestarted(LISTEN, [importing("gradcheck.run.workers.remote"), suites])


def _failed(plan: Plan) -> Plan:
    """The cases of a plan that failed last time in this folder; all of them where none did."""
    only = last_failed.cases(last_failed.known(), plan.implementations)
    total = len(plan.everything)
    narrow = replace(plan, only=only)
    if not narrow.everything:
        console.say(f"--lf: nothing of this failed last time; running {plural(total, 'case')}")
        return plan
    console.say(f"--lf: {len(narrow.everything):,} of {plural(total, 'case')} failed last time")
    return narrow


def carry_out(
    plan: Plan,
    arguments: argparse.Namespace,
    targets: Sequence[Target],
    baseline: Baseline | None = None,
    *,
    remember: bool = False,
) -> int:
    """Execute a plan and report it as the flags of the section "reports" say.

    Args:
        plan: what is judged.
        arguments: the parsed flags.
        targets: the files to write.
        baseline: the known failures, if any.
        remember: whether `--lf` runs the failures of this run next.

    Returns:
        The exit code.
    """
    check_format(arguments.format)
    logs = [path for path, form in targets if form == LOG]
    folder: Path | None = getattr(arguments, "keep_artifacts", None)
    written: list[bool] = []
    log = _log_writer(logs, baseline, getattr(arguments, "max_fail", None))

    def ended(ready: LoadedPlan, found: Run) -> Run:
        if baseline is not None:
            found = held(found, baseline, plan.suite)
        written.append(log.ends(found))
        if folder is not None and (found.complete or found.halted) and not found.late:
            written.append(_kept(ready, found, folder))
        return found

    with closing(log):
        found = executed(plan, arguments, log, ended)
    if remember:
        last_failed.keep(found)
    others = [target for target in targets if target[1] != LOG]
    return publish_run(found, arguments, others, written=all(written))


def _kept(ready: LoadedPlan, found: Run, folder: Path) -> bool:
    """Write failing tensors; False, and a line on stderr, where one could not be written."""
    # door: only for failing gradients that are kept
    from gradcheck.report.scripts.artifacts import LARGEST, MOST, keep, wanted

    if not wanted(found):
        return True
    kept = keep(ready, found, folder)
    of = plural(kept.of, "failing gradient")
    text = f"--keep-artifacts {folder}: {kept.files:,} of {of} written"
    if kept.trouble:
        text += f": {kept.trouble}; what was judged is in the reports"
    elif kept.files < kept.of:
        text += f": at most {MOST} files and {LARGEST >> 20} MiB are written, of what has numbers"
    console.say(text)
    return not kept.trouble


def _log_writer(logs: Sequence[Path], baseline: Baseline | None, most: int | None) -> LogWriter:
    def so_far(run: Run) -> Run:
        if baseline is None:
            return run
        from gradcheck.results.baseline.apply import accepted  # door: a baseline

        return accepted(run, baseline)

    def fails(header: Header, results: Sequence[CaseResult]) -> bool:
        if all(result.finding.verdict.expected for result in results):
            return False
        some = so_far(Run(header=header, results=tuple(results)))
        return any(map(some.fails, results))

    if not logs:
        return LogWriter(fails=fails, most=most)
    from gradcheck.results.stored.log import Log  # door: a log

    return LogWriter([Log(path, so_far) for path in logs], fails, most)


def left_out(plan: Plan, ready: LoadedPlan) -> str:
    """A line on what is not judged since no implementation has it.

    "judging 3 of 141 operators, those that kernels:IMPL implements; --all also reports the others".
    """
    whole = len({case.spec.name for case in plan.whole})
    names = [b.name for b in ready.bindings if b.name != "reference"]
    noun = "operators, models and rules" if plan.models or plan.rules else "operators"
    return (
        f"judging {whole - ready.left_out:,} of {whole:,} {noun}, those that "
        f"{' or '.join(names)} implements; --all also reports the others"
    )


def executed(
    plan: Plan,
    arguments: argparse.Namespace,
    observer: Observer | None = None,
    ended: Callable[[LoadedPlan, Run], Run] = lambda ready, found: found,
) -> Run:
    """Execute a plan; unless -q is given, a terminal shows how far it is.

    `ended` completes the run while its implementations are still loaded.
    """
    names = (case.name for case in plan.everything) if plan.all else ()
    progress = Progress(arguments, names).forwarding(observer)

    def last(ready: LoadedPlan, found: Run) -> Run:
        progress.clear()
        if ready.left_out and not arguments.quiet:
            console.say(left_out(plan, ready))
        return ended(ready, found)

    with heard():  # prints of the code judged stay out of reports
        return running.execute(plan, progress, progress, last)
