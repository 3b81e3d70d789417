"""What the flags ask for, loaded: the items of a pytest session, and what judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gradcheck.cli.planned import convention_of
from gradcheck.errors import LoadError, Unsupported, UsageError
from gradcheck.implementations.bound import Implementation
from gradcheck.implementations.returned import Broken
from gradcheck.judge.probe import bound_by
from gradcheck.results.baseline import clock
from gradcheck.results.baseline.apply import applied
from gradcheck.results.baseline.entry import Baseline
from gradcheck.results.baseline.file import read
from gradcheck.results.baseline.scope import Scope, matcher
from gradcheck.results.case_result import CaseResult
from gradcheck.results.expectation import Problem
from gradcheck.results.required import asked, matching, refuse_left_out
from gradcheck.results.run import Header, Run
from gradcheck.run.execute import header_of
from gradcheck.run.judge_case import judge, why_of
from gradcheck.run.loaded_plan import loaded
from gradcheck.run.plan import AnyCase, Plan, names_of
from gradcheck.spec.choice import Choice
from gradcheck.spec.loading import load_suite
from gradcheck.spec.model import ModelCase
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.selection import all_dtypes_of
from gradcheck.spec.suite import Suite
from gradcheck.testing import MARKER, WORKER

if TYPE_CHECKING:
    from gradcheck.explain.lazy_diagnosis import LazyDiagnoser


@dataclass(frozen=True, slots=True)
class Check:
    """What one item judges: one implementation, one case, one dtype."""

    case: AnyCase
    binding: Implementation
    dtype: str


class Session:
    """The suite, the implementations and the baseline of one pytest process.

    Raises:
        GradcheckError: what is asked for cannot be loaded, or cannot be right.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Load everything; processes that are started end with the configuration.

        What the flags mean is settled (`gradcheck.testing.options`).
        """
        self._config = config
        worker = getattr(config, WORKER, None)
        self.baseline = self._baseline()
        stack = ExitStack()
        config.add_cleanup(stack.close)
        self.suite = load_suite(self._option("suite"))
        plan = self._plan(self.suite, config, build=worker is None)
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
        """What implementations say that they are."""
        return self.header.versions

    def ordered(self, results: Sequence[CaseResult]) -> list[CaseResult]:
        """Results in the order of `gradcheck run`, whatever process and order they came from."""
        names = ((c.binding.name, f"{c.case.name}/{c.dtype}") for c in self.checks)
        places = {name: place for place, name in enumerate(names)}
        return sorted(
            results, key=lambda result: places[result.case.implementation, result.case.name]
        )

    def judged(self, check: Check) -> Run:
        """What comes of one check, held against the baseline."""
        dtypes = [check.dtype]
        plan = replace(
            self.plan, implementations=[check.binding.name], dtypes=dtypes, model_dtypes=dtypes
        )
        return self.held(judge(plan, check.case, check.binding, self._why), alone=True)

    def held(self, results: Sequence[CaseResult], *, alone: bool = False) -> Run:
        """Results as a run with what the baseline makes of them.

        `alone`: they are those of one case, and nothing is said of other entries.
        """
        judged = {(result.case.op, result.case.dialect) for result in results}
        require = matching(self.header.require, judged)  # of what pytest has selected
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
        return applied(run, baseline, scope, clock.today())

    def _option(self, name: str) -> Any:
        return self._config.getoption(f"gradcheck_{name}")

    def outdated(self) -> tuple[Problem, ...]:
        """What is wrong with the baseline by its names and dates alone, whatever was judged."""
        gate = self.held(()).gate
        return gate.problems if gate is not None else ()

    @cached_property
    def _why(self) -> LazyDiagnoser:
        """Diagnoses, each made once."""
        return why_of(self.plan)

    def _baseline(self) -> Baseline | None:
        path = self._option("baseline")
        if not self._option("impl"):
            raise UsageError(
                "--gradcheck-baseline is about an implementation: name it with --gradcheck-impl"
                if path
                else "--gradcheck: nobody's code is named: say whose with --gradcheck-impl, or as "
                "`impl` in [tool.gradcheck] of pyproject.toml"
            )
        return read(Path(path)) if path else None

    def _plan(self, suite: Suite, config: pytest.Config, *, build: bool) -> Plan:
        option = self._option
        timeout: float = option("timeout")
        if not 0 < timeout < float("inf"):
            raise UsageError(f"--gradcheck-timeout {timeout:g}: write a positive number of seconds")
        kinds = ("models", "rules", "dialects", "samples")
        words: dict[str, Any] = {kind: option(kind.removesuffix("s")) for kind in kinds}
        choice = Choice(ops=option("op"), seed=option("seed"), **words)
        chosen = choice.cases(suite)
        implementations = list(dict.fromkeys(option("impl")))
        dtypes, model_dtypes = all_dtypes_of(
            option("dtype"),
            operators=choice.has_operators or bool(choice.rules),
            models=bool(choice.models),
            certify="reference" in implementations,
        )
        names = names_of([*chosen.operators, *chosen.models, *chosen.rules])
        kept = asked(option("require"), suite, names)
        if not option("config"):  # a project requires things of a whole run
            refuse_left_out(option("require"), kept)
        return Plan(
            suite=suite,
            require=kept,
            cases=chosen.operators,
            models=chosen.models,
            rules=chosen.rules,
            implementations=implementations,
            dtypes=dtypes,
            model_dtypes=model_dtypes,
            seed=option("seed"),
            suites=option("suite"),
            convention=convention_of(option("convention"), suite),
            # Under xdist, it has been built before the processes start.
            build=build and option("build"),
            contract=option("contract"),
            isolate=option("isolate"),
            train=option("train"),
            project=option("project"),
            taylor=option("taylor"),
            timeout=timeout,
            config=option("config"),
        )


def _checks(plan: Plan, bindings: Sequence[Implementation]) -> list[Check]:
    kinds: tuple[tuple[Sequence[AnyCase], Sequence[str]], ...] = (
        (plan.cases, plan.dtypes),
        (plan.models, plan.model_dtypes),
        (plan.rules, plan.dtypes),
    )
    return [
        Check(case, who, dtype)
        for who in bindings
        for cases, dtypes in kinds
        for case in cases
        for dtype in dtypes
    ]


def _bound(check: Check) -> bool:
    case, binding = check.case, check.binding
    try:
        if isinstance(case, ModelCase):
            found: object = bound_by(lambda: binding.bind_model(case, check.dtype))
        elif isinstance(case, RuleCase):
            found = bound_by(lambda: binding.bind_rule(case, check.dtype))
        else:
            found = bound_by(lambda: binding.bind(case, check.dtype))
        return found is not None
    except Unsupported:
        return False
    except Broken:  # it dies of it, which is to be told
        return True
