"""`gradcheck repro`: one case in full, or as a script that stands alone."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradcheck.cli import console
from gradcheck.cli.issue import tried
from gradcheck.cli.project_defaults import implementations_of, suite_of
from gradcheck.cli.reports import check_format, check_writable, publish_run, save, targets_of
from gradcheck.cli.run import convention_of
from gradcheck.errors import Unsupported, UsageError
from gradcheck.explain.shrink import WRONG_VERDICTS, Shrunk, shrink
from gradcheck.explain.shrink_trial import CALL
from gradcheck.implementations.bound import Bound, Implementation
from gradcheck.implementations.returned import Broken
from gradcheck.judge.operator import Unsuitable
from gradcheck.report import failure_text
from gradcheck.report.repro import Shown, render
from gradcheck.report.scripts.export import (
    AGAIN,
    Named,
    check_form,
    check_issue,
    named,
    written,
)
from gradcheck.report.scripts.issue import Issue
from gradcheck.report.scripts.point import Accepted, accepted, primal_of, whole
from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.ci_safe import heard
from gradcheck.results.finding import Finding
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import executed
from gradcheck.run.plan import LoadedPlan, Plan, loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A result, at the smallest input that shows it, with what is accepted there."""

    result: CaseResult
    small: Shrunk
    accepted: Accepted
    bound: Bound


def repro(arguments: argparse.Namespace) -> int:
    """Judge the case, show it, export it; returns the exit code."""
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    suite = suite_of(arguments.suite)
    implementations = implementations_of(arguments, suite)
    path: Path | None = arguments.export
    if path is not None:
        check_writable([path], "--export")
        check_form(path, implementations)
    about: Path | None = arguments.issue
    if about is not None:
        check_writable([about], "--issue")
        check_issue(about, implementations)

    meant = named(arguments.name, suite, arguments.seed)
    plan = Plan(
        suite=suite,
        cases=[meant.case],
        implementations=implementations,
        dtypes=[meant.dtype],
        seed=arguments.seed,
        suites=arguments.suite,
        convention=convention_of(arguments.convention, suite),
        build=arguments.build,
        contract=False,
        isolate=arguments.isolate,
        timeout=arguments.timeout,
    )
    with heard(), loaded(plan) as ready:
        found = _narrowed(executed(ready), meant)
        asked = found.complete  # after Ctrl-C nothing more is
        smallest = _smallest(ready, found, meant) if asked and arguments.shrink else {}
        kept = path is None or not asked or _export(ready, found, meant, smallest, path)
        kept &= about is None or not asked or _issue(ready, found, meant, smallest, about)

    def terminal(**how: Any) -> str:
        shown = Shown(run=found, case=meant.case, dtype=meant.dtype, smallest=smallest)
        return render(shown, **how)

    return publish_run(found, arguments, targets, terminal, written=kept)


def _narrowed(run: Run, meant: Named) -> Run:
    """Keep the results on the gradient that the name means, and on the call as a whole."""
    others = {*meant.case.primal_names, "forward"} - {meant.output}
    if not meant.output:
        return run
    return replace(run, results=tuple(r for r in run.results if r.finding.name not in others))


def _wrong(run: Run, meant: Named) -> list[CaseResult]:
    """The results that find a gradient wrong."""
    names = (*meant.case.primal_names, CALL)
    found = (r for r in run.results if r.finding.name in names)
    return [r for r in found if r.finding.verdict in WRONG_VERDICTS]


def _smallest(ready: LoadedPlan, run: Run, meant: Named) -> dict[tuple[str, str], Shrunk]:
    """The smallest input found that shows each wrong gradient."""
    found, convention = {}, ready.plan.convention
    for result in _wrong(run, meant):
        binding = _binding(ready, result.case.implementation)
        small = shrink(meant.case, binding, meant.dtype, result.finding.name, convention=convention)
        if small is not None:
            found[result.case.implementation, result.finding.name] = small
    return found


def _binding(ready: LoadedPlan, name: str) -> Implementation:
    return next(binding for binding in ready.bindings if binding.name == name)


def _export(
    ready: LoadedPlan,
    run: Run,
    meant: Named,
    smallest: Mapping[tuple[str, str], Shrunk],
    path: Path,
) -> bool:
    """Write the script; False, and a line on stderr, if that is impossible."""
    try:
        return save(path, _exported(ready, run, meant, smallest, path), "--export")
    except UsageError as error:
        console.say(str(error))
        return False


def _exported(
    ready: LoadedPlan,
    run: Run,
    meant: Named,
    smallest: Mapping[tuple[str, str], Shrunk],
    path: Path,
) -> str:
    """The script that shows the first wrong gradient, or else the first one.

    Raises:
        UsageError: there is nothing to show.
    """
    point = _point(ready, run, meant, smallest, "--export")
    said = _said(point.result, point.small)
    return written(point.small, point.accepted, ready.bindings[0], point.bound, path, said)


def _issue(
    ready: LoadedPlan,
    run: Run,
    meant: Named,
    smallest: Mapping[tuple[str, str], Shrunk],
    path: Path,
) -> bool:
    """Write the issue; False, and a line on stderr, if that is impossible."""
    try:
        point = _point(ready, run, meant, smallest, "--issue")
        *says, again = _said(point.result, point.small)
        callee = point.bound.callee
        if callee is None:
            raise UsageError(
                "--issue is for functions of PyTorch and JAX that have a name in their module; "
                "--export FILE.py writes a script for others"
            )
        about = Issue(
            shrunk=point.small,
            accepted=point.accepted,
            callee=callee,
            word=ready.bindings[0].name,
            verdict=point.result.finding.verdict,
            says=says,
            again=again,
            ours=point.bound.recipe is not None and point.bound.recipe.ours,
        )
        return save(path, tried(about, path, ready.plan.timeout), "--issue")
    except UsageError as error:
        console.say(str(error))
        return False


def _point(
    ready: LoadedPlan,
    run: Run,
    meant: Named,
    smallest: Mapping[tuple[str, str], Shrunk],
    flag: str,
) -> Point:
    """The first wrong gradient, or else the first one, at the smallest input that shows it.

    Raises:
        UsageError: there is nothing to show; the message names `flag`.
    """
    (binding,) = ready.bindings
    case, dtype = meant.case, meant.dtype
    for result in run.results:
        if result.finding.verdict is Verdict.INVALID:
            raise UsageError(f"{flag}: the case is at fault, not the code: {result.finding.reason}")
    floating = [n for n, p in zip(case.primal_names, case.primals, strict=True)
                if p.dtype.kind == "f"]  # fmt: skip
    every = [
        *_wrong(run, meant),
        *(r for r in run.results if r.finding.name == CALL),  # a crash, a hang
        *(r for r in run.results if r.finding.name in floating),
        *run.results,
    ]
    if not every:
        raise UsageError(f"{flag}: {binding.name} has no {meant.output} that could be shown")
    result = every[0]
    output = next(n for n in (result.finding.name, meant.output, *floating) if n in floating)
    try:
        bound = binding.bind(case, dtype)
        if bound is None or not result.finding.verdict.checked:
            raise UsageError(f"{flag}: {result.finding.reason}: there is nothing to show")
        small = smallest.get((binding.name, result.finding.name))
        if small is None:
            worst = result.finding.worst if result.finding.name == output else ()
            finding = Finding(name=output, verdict=result.finding.verdict, worst=worst)
            small = whole(case, binding, dtype, finding, ready.plan.convention)
        passes = accepted(small, ready.plan.convention, bound.slack)
    except (Unsupported, Broken, Unsuitable) as error:
        raise UsageError(f"{flag}: {error}") from None
    return Point(result=result, small=small, accepted=passes, bound=bound)


def _said(result: CaseResult, small: Shrunk) -> list[str]:
    """The first lines of a script: what is wrong."""
    told = failure_text.alone(result)
    title = f"{words.word(result.finding.verdict)} {small.case.name}/{small.dtype}"
    first = f"{title}: {words.gradient(primal_of(small))}"
    lines = [f"{first}: {told.lead}" if told.lead else first]
    lines += [text for label, text in told.facts if label in ("reason", "evidence", "pattern")]
    return [*lines, f"{AGAIN}{result.repro}"]
