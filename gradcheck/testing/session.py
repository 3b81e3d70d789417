"""A pytest session: the meaning of its flags, and the plan, checks and baseline that they load."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gradcheck.cli.flags import option_named
from gradcheck.cli.project_defaults import filled, project_of
from gradcheck.cli.run import plan_of
from gradcheck.errors import LoadError, Unsupported, UsageError
from gradcheck.implementations.bound import Implementation, bind
from gradcheck.implementations.checked_call import bound_by
from gradcheck.implementations.returned import Broken
from gradcheck.results.baseline import entry
from gradcheck.results.baseline.apply import applied
from gradcheck.results.baseline.entry import Baseline
from gradcheck.results.baseline.file import read
from gradcheck.results.baseline.match import Scope, matcher
from gradcheck.results.case_result import CaseResult
from gradcheck.results.required import asked, matching, refuse_left_out
from gradcheck.results.run import Header, Run
from gradcheck.results.verdict import Problem
from gradcheck.run.execute import header_of
from gradcheck.run.judge_case import judge, why_of
from gradcheck.run.options import OPTIONS
from gradcheck.run.plan import Plan, loaded, names_of
from gradcheck.spec.case import AnyCase
from gradcheck.spec.suite import Suite
from gradcheck.testing import MARKER, WORKER

if TYPE_CHECKING:
    from gradcheck.explain.case_diagnosis import LazyDiagnoser


PROJECT: Final = ("gradcheck_config", "gradcheck_file")
"""Whether a project's defaults are in effect, and its file."""


def settle(config: pytest.Config) -> None:
    """Give every flag of a session its value, and make the project's modules importable.

    A worker of xdist takes the values from the process that started it.

    Raises:
        UsageError: the project's table is invalid.
    """
    option = config.option
    worker = getattr(config, WORKER, None)
    if worker is not None:
        vars(option).update(worker[MARKER]["flags"])
    else:
        project = project_of(config.invocation_params.dir) if option.gradcheck_config else None
        usual = {o.name: o.initial for o in OPTIONS if o.pytest}
        given = {key: getattr(option, _attribute(key)) for key in usual}
        defaults = project.defaults if project is not None else {}
        for key, value in filled(given, usual, defaults).items():
            setattr(option, _attribute(key), str(value) if isinstance(value, Path) else value)
        option.gradcheck_config = project is not None
        option.gradcheck_file = str(project.path) if project is not None else ""
    beside = option.gradcheck_file and str(Path(option.gradcheck_file).parent)
    if beside and beside not in sys.path:
        sys.path.insert(1, beside)


def settled(config: pytest.Config) -> dict[str, Any]:
    """The settled flags as built-in types, for another process."""
    names = (_attribute(o.name) for o in OPTIONS if o.pytest)
    return {name: getattr(config.option, name) for name in (*names, *PROJECT)}


def _attribute(key: str) -> str:
    return f"gradcheck_{option_named(key).dest}"


@dataclass(frozen=True, slots=True)
class Check:
    """The check of an item: one implementation, one case, one dtype."""

    case: AnyCase
    binding: Implementation
    dtype: str


class Session:
    """The suite, the implementations and the baseline of one pytest process.

    Raises:
        GradcheckError: something cannot be loaded, or the flags contradict each other.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Load everything; processes end with the configuration, whose flags are settled."""
        self._config = config
        worker = getattr(config, WORKER, None)
        self.baseline = self._baseline()
        stack = ExitStack()
        config.add_cleanup(stack.close)
        plan = self._plan(build=worker is None)  # under xdist, the first process builds
        self.suite = plan.suite
        ready = stack.enter_context(loaded(plan))
        if ready.troubles:
            raise LoadError("; ".join(ready.troubles))
        self.plan = ready.plan
        header = header_of(ready.plan, ready.bindings)
        if worker is not None:  # it runs no command of a manifest, and so knows no version
            header = replace(header, versions=worker[MARKER]["versions"])
        self.header: Header = header
        self.checks = _checks(ready.plan, ready.bindings)
        if not any(map(_bound, self.checks)):
            raise UsageError("nothing to check: no implementation has any of the cases selected")
        self.distribution: str = config.getoption("dist", "no")  # as xdist has it
        if self.distribution != "no":
            stack.close()  # other processes judge

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the implementations."""
        return self.header.versions

    def ordered(self, results: Sequence[CaseResult]) -> list[CaseResult]:
        """Results in the order of `gradcheck run`, whatever process and order they came from."""
        names = ((c.binding.name, f"{c.case.name}/{c.dtype}") for c in self.checks)
        places = {name: place for place, name in enumerate(names)}
        return sorted(
            results, key=lambda result: places[result.case.implementation, result.case.name]
        )

    def judged(self, check: Check) -> Run:
        """Judge one check, and apply the baseline."""
        dtypes = [check.dtype]
        plan = replace(
            self.plan, implementations=[check.binding.name], dtypes=dtypes, model_dtypes=dtypes
        )
        return self.held(judge(plan, check.case, check.binding, self._why), alone=True)

    def held(self, results: Sequence[CaseResult], *, alone: bool = False) -> Run:
        """Results as a run, with the expectations of the baseline.

        `alone`: they are those of one case; other entries are not reported.
        """
        judged = {(result.case.op, result.case.dialect) for result in results}
        require = matching(self.header.require, judged)  # in pytest's selection
        header = replace(self.header, require=tuple(require))
        run = Run(header=header, results=tuple(results))
        baseline = self.baseline
        if baseline is None:
            return run
        scope = None
        if alone:
            names = {result.case.name for result in results}
            about = (e for e in baseline.entries if any(map(matcher(e.match), names)))
            baseline = replace(baseline, entries=tuple(about))
            scope = Scope(Suite("nothing", "0", ()), (), names)
        scope = scope or Scope.of(self.suite, baseline, run)
        return applied(run, baseline, scope, entry.today())

    def _option(self, name: str) -> Any:
        return self._config.getoption(f"gradcheck_{name}")

    def outdated(self) -> tuple[Problem, ...]:
        """Faults of the baseline in its names and dates."""
        gate = self.held(()).gate
        return gate.problems if gate is not None else ()

    @cached_property
    def _why(self) -> LazyDiagnoser:
        return why_of(self.plan)

    def _baseline(self) -> Baseline | None:
        path = self._option("baseline")
        if not self._option("impl"):
            raise UsageError(
                "--gradcheck-baseline needs an implementation: name it with --gradcheck-impl"
                if path
                else "--gradcheck: no implementation is named: use --gradcheck-impl, or "
                "`impl` in [tool.gradcheck] of pyproject.toml"
            )
        return read(Path(path)) if path else None

    def _plan(self, *, build: bool) -> Plan:
        option = self._option
        timeout: float = option("timeout")
        if not 0 < timeout < float("inf"):
            raise UsageError(f"--gradcheck-timeout {timeout:g}: write a positive number of seconds")
        names = (o.dest for o in OPTIONS if o.pytest)
        arguments = argparse.Namespace(
            **{name: option(name) for name in names}, config=option("config")
        )
        plan = plan_of(arguments, build=build)
        selected = names_of([*plan.cases, *plan.models, *plan.rules])
        kept = asked(option("require"), plan.suite, selected)
        if not option("config"):  # a project requires things of a whole run
            refuse_left_out(option("require"), kept)
        known = [entry.match for entry in self.baseline.entries] if self.baseline else []
        return replace(plan, require=kept, known=known)


def _checks(plan: Plan, bindings: Sequence[Implementation]) -> list[Check]:
    return [
        Check(case, who, dtype)
        for who in bindings
        for case in (*plan.cases, *plan.models, *plan.rules)
        for dtype in plan.dtypes_of(case)
    ]


def _bound(check: Check) -> bool:
    case, binding = check.case, check.binding
    try:
        return bound_by(lambda: bind(binding, case, check.dtype)) is not None
    except Unsupported:
        return False
    except Broken:  # it dies of it, which the item reports
        return True
