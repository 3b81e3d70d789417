"""`gradcheck run`: judge implementations."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gradcheck.cli import console
from gradcheck.cli.flags import add_executor, executor_of, seconds
from gradcheck.cli.gate import add_gate, baseline_of, held, requiring
from gradcheck.cli.outcome import check_folder, targets_of
from gradcheck.cli.planned import add_plan, plan_of
from gradcheck.cli.progress import Progress
from gradcheck.cli.project import open_to_defaults, settle
from gradcheck.cli.published import add_output, check_format, publish_run
from gradcheck.results.ci_safe import heard

if TYPE_CHECKING:
    from gradcheck.cli.outcome import Target
    from gradcheck.cli.watch import Watch
    from gradcheck.results.baseline.entry import Baseline
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Header, Run
    from gradcheck.run.execute import Witness
    from gradcheck.run.loaded_plan import LoadedPlan
    from gradcheck.run.plan import Plan

LOG: Final = "jsonl"
"""The format that is written while a run goes on."""


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Hold gradients against the true derivative: a table per implementation, then every "
        "failure with what is wrong, and a line that repeats it."
    )
    add_plan(parser)
    add_gate(parser)
    group = parser.add_argument_group("how much of it")
    group.add_argument(
        "-x", dest="max_fail", action="store_const", const=1,
        help="stop at the first case with a failure that no baseline knows",
    )  # fmt: skip
    group.add_argument(
        "--max-fail", type=_positive, metavar="N", help="stop at the N-th such case",
    )  # fmt: skip
    group.add_argument(
        "--max-time", type=seconds, metavar="S",
        help="seconds that the run may take in all: then what goes on is ended, and the rest is "
        "NOTRUN",
    )  # fmt: skip
    group.add_argument(
        "--lf", dest="failed", action="store_true",
        help="of the selection, only the cases that failed last time in this folder",
    )  # fmt: skip
    group.add_argument(
        "--shard", type=_shard, metavar="I/N",
        help="every N-th case of the selection, from the I-th on; `gradcheck merge` joins them",
    )  # fmt: skip
    parser.add_argument(
        "--keep-artifacts", type=_folder, metavar="DIR",
        help="write the tensors of failing gradients of operators to DIR, an .npz file each "
        "(primals, cotangent, got, want)",
    )  # fmt: skip
    add_executor(parser)
    add_output(parser)
    parser.set_defaults(command=run)
    open_to_defaults(parser)


def _positive(word: str) -> int:
    if not (word.isascii() and word.isdecimal()) or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is no number of cases; write 1 or more")
    return int(word)


def _folder(word: str) -> Path:
    if not word:  # a variable that is not set: this folder is not to be filled for that
        raise argparse.ArgumentTypeError("it names no folder; this one is .")
    return Path(word)


def _shard(text: str) -> str:
    from gradcheck.run.shards import parsed

    try:
        parsed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def run(arguments: argparse.Namespace) -> int:
    """Judge what the flags select; returns the exit code."""
    settle(arguments)
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = baseline_of(arguments, targets)
    if arguments.keep_artifacts is not None:
        check_folder(arguments.keep_artifacts, "--keep-artifacts")
    with _workers(arguments):
        plan = replace(plan_of(arguments), **executor_of(arguments))
        if arguments.failed:
            plan = _failed(plan)
        plan = requiring(plan, arguments)
        plan = replace(plan, shard=arguments.shard or "", max_time=arguments.max_time)
        return carry_out(plan, arguments, targets, baseline, remember=True)


def _workers(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Let workers load what they need while this process does."""
    if arguments.jobs == 1 or arguments.executor != "local":
        return nullcontext()
    from gradcheck.run.workers.fork_server import foreseen, importing
    from gradcheck.run.workers.pool import LISTEN

    suites = ("gradcheck.spec.loading", "load_suite", (arguments.suite,))
    return foreseen(LISTEN, [importing("gradcheck.run.workers.remote"), suites])


def _failed(plan: Plan) -> Plan:
    """What of a plan failed last time, here; all of it where nothing of it did."""
    from gradcheck.results.stored.failed import cases, known

    only, total = cases(known(), plan.implementations), len(plan.everything)
    narrow = replace(plan, only=only)
    if not narrow.everything:
        console.say(f"--lf: nothing of this failed last time; all {total:,} cases are run")
        return plan
    console.say(f"--lf: {len(narrow.everything):,} of {total:,} cases failed last time")
    return narrow


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
    folder: Path | None = getattr(arguments, "keep_artifacts", None)
    written: list[bool] = []
    watch = _watch(logs, baseline, getattr(arguments, "max_fail", None))

    def ended(ready: LoadedPlan, found: Run) -> Run:
        if baseline is not None:
            found = held(found, baseline, plan.suite)
        written.append(watch.ends(found))
        if folder is not None and (found.complete or found.halted) and not found.late:
            written.append(_kept(ready, found, folder))
        return found

    with closing(watch):
        found = executed(plan, arguments, watch, ended)
    if remember:
        from gradcheck.results.stored.failed import keep

        keep(found)
    others = [target for target in targets if target[1] != LOG]
    return publish_run(found, arguments, others, written=all(written))


def _kept(ready: LoadedPlan, found: Run, folder: Path) -> bool:
    """Put failing tensors on file; False, and a line that says why, where one could not be."""
    from gradcheck.report.scripts.artifacts import LARGEST, MOST, keep, wanted

    if not wanted(found):
        return True
    kept = keep(ready, found, folder)
    text = f"--keep-artifacts {folder}: {kept.files:,} of {kept.of:,} failing gradients are there"
    if kept.trouble:
        text += f": {kept.trouble}; what was judged is in the reports"
    elif kept.files < kept.of:
        text += f": at most {MOST} files and {LARGEST >> 20} MiB are written, of what has numbers"
    console.say(text)
    return not kept.trouble


def _watch(logs: Sequence[Path], baseline: Baseline | None, most: int | None) -> Watch:
    """What is to look at a run: its logs, and what ends it after `most` cases that fail."""
    from gradcheck.cli.watch import Watch

    def so_far(run: Run) -> Run:
        if baseline is None:
            return run
        from gradcheck.results.baseline.apply import accepted

        return accepted(run, baseline)

    def fails(header: Header, results: Sequence[CaseResult]) -> bool:
        if all(result.finding.verdict.expected for result in results):
            return False
        from gradcheck.results.run import Run

        some = so_far(Run(header=header, results=tuple(results)))
        return any(map(some.fails, results))

    if not logs:
        return Watch(fails=fails, most=most)
    from gradcheck.results.stored.log import Log

    return Watch([Log(path, so_far) for path in logs], fails, most)


def executed(
    plan: Plan,
    arguments: argparse.Namespace,
    witness: Witness | None = None,
    ended: Callable[[LoadedPlan, Run], Run] = lambda ready, found: found,
) -> Run:
    """What comes of a plan; unless -q is given, a terminal shows how far it is.

    `ended` makes of the run what it is to be, while the implementations are still there.
    """
    from gradcheck.run.execute import execute

    progress = Progress(arguments, (case.name for case in plan.everything)).watching(witness)

    def last(ready: LoadedPlan, found: Run) -> Run:
        progress.clear()
        return ended(ready, found)

    with heard():  # what the code judged prints is no part of a report
        return execute(plan, progress, progress, last)
