"""The suite as pytest items: one per (implementation, case, dtype), of operators, models and rules.

`pytest --gradcheck-impl mykernels:IMPL` adds them to whatever else is collected; without the
flag the plugin does nothing and imports nothing. Items select with `-k`, rerun with `--lf`, and
spread with `-n auto`, because their names and inputs depend on nothing but names.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck.binding import Implementation
    from gradcheck.plan import AnyCase, Plan


@dataclass(frozen=True, slots=True)
class Check:
    """What one item judges; the plan holds one implementation and dtype."""

    plan: Plan
    case: AnyCase
    binding: Implementation

    @property
    def dtype(self) -> str:
        """The plan's only one."""
        (dtype,) = self.plan.dtypes
        return dtype


CHECKS: Final = pytest.StashKey[list[Check]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags of `gradcheck run`, as far as they select."""
    group = parser.getgroup("gradcheck", "hand-written gradients against the true derivative")
    for flag, what in (
        ("impl", "judge this implementation: reference, torch, jax, pkg.module:NAME (repeat)"),
        ("op", "operators that match (repeat); default: all, unless another kind is named"),
        ("model", "models that match (repeat)"),
        ("rule", "update rules that match (repeat)"),
        ("dialect", "only dialects that match (repeat)"),
        ("sample", "only samples, or sizes of models, that match (repeat)"),
        ("dtype", "float64, float32, float16, bfloat16, all (repeat); default: the first two"),
        ("suite", "a suite of your own, MODULE:NAME (repeat)"),
    ):
        group.addoption(f"--gradcheck-{flag}", action="append", default=[], help=what)
    group.addoption("--gradcheck-seed", type=int, default=0, help="of all inputs; default 0")


def pytest_configure(config: pytest.Config) -> None:
    """Load and select before anything is collected: what is wrong there is a usage error.

    So also under xdist, whose workers could not say it.
    """
    if not config.getoption("--gradcheck-impl"):
        return
    from gradcheck.errors import GradcheckError
    from gradcheck.report.words import clean

    sys.path.insert(0, str(config.invocation_params.dir))  # as the command line does
    try:
        config.stash[CHECKS] = _checks(config)
    except GradcheckError as error:
        raise pytest.UsageError(f"gradcheck: {clean(str(error))}") from error


@pytest.hookimpl(tryfirst=True)  # before -k, --lf and random orders, so that they see the items
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Append an item per case, and say so: pytest counts what collectors report."""
    if CHECKS not in config.stash:
        return
    added: list[pytest.Item | pytest.Collector] = []
    for check in config.stash[CHECKS]:
        name = f"{check.binding.name}::{check.case.name}/{check.dtype}"
        nodeid = f"gradcheck::{name}"
        item = GradcheckItem.from_parent(session, name=name, nodeid=nodeid, check=check)
        added.append(item)
        items.append(item)
    report = pytest.CollectReport("gradcheck", "passed", longrepr=None, result=added)
    config.hook.pytest_collectreport(report=report)


def _checks(config: pytest.Config) -> list[Check]:
    from gradcheck.binding.load import load
    from gradcheck.choice import Choice
    from gradcheck.errors import UsageError
    from gradcheck.judge.contract import contract_cases
    from gradcheck.plan import Plan
    from gradcheck.selection import all_dtypes_of
    from gradcheck.suite import load_suite

    def option(name: str) -> Any:
        return config.getoption(f"--gradcheck-{name}")

    suite = load_suite(option("suite"))
    kinds = ("models", "rules", "dialects", "samples")
    words = {kind: option(kind.removesuffix("s")) for kind in kinds}
    choice = Choice(ops=option("op"), seed=option("seed"), **words)
    chosen = choice.cases(suite)
    build = not hasattr(config, "workerinput")  # xdist: before its workers start, it has been built
    bindings = [load(word, suite, build=build) for word in dict.fromkeys(option("impl"))]
    dtypes, model_dtypes = all_dtypes_of(
        option("dtype"),
        operators=choice.has_operators or bool(choice.rules),
        models=bool(choice.models),
        certify=any(binding.name == "reference" for binding in bindings),
    )
    plan = Plan(
        contract_at=contract_cases(chosen.operators),
        suite=suite,
        cases=(),
        implementations=(),
        dtypes=(),
        seed=option("seed"),
        suites=option("suite"),
    )
    kinds_of_case: tuple[tuple[Sequence[AnyCase], Sequence[str]], ...] = (
        (chosen.operators, dtypes),
        (chosen.models, model_dtypes),
        (chosen.rules, dtypes),
    )
    checks = [
        Check(replace(plan, implementations=[who.name], dtypes=[d], model_dtypes=[d]), case, who)
        for who in bindings
        for cases, judged in kinds_of_case
        for case in cases
        for d in judged
    ]
    if not any(_bound(check) for check in checks):
        raise UsageError("nothing to check: no implementation has any of the cases selected")
    return checks


def _bound(check: Check) -> bool:
    from gradcheck.errors import Unsupported
    from gradcheck.model import ModelCase
    from gradcheck.rule import RuleCase

    case, binding = check.case, check.binding
    try:
        if isinstance(case, ModelCase):
            return binding.bind_model(case, check.dtype) is not None
        if isinstance(case, RuleCase):
            return binding.bind_rule(case, check.dtype) is not None
        return binding.bind(case, check.dtype) is not None
    except Unsupported:
        return False


class Failure(Exception):  # noqa: N818  it is one
    """A case that did not pass; the text is what pytest shows."""


class GradcheckItem(pytest.Item):
    """One case, one implementation, one dtype."""

    def __init__(self, *, check: Check, **rest: Any) -> None:
        """Keep what to judge."""
        super().__init__(**rest)
        self.check = check

    def runtest(self) -> None:
        """Judge the case."""
        from gradcheck.report import diagnosed, printed, words
        from gradcheck.run import judge

        records = judge(self.check.plan, self.check.case, self.check.binding)
        unchecked = [r for r in records if not r.verdict.checked]
        if unchecked and len(unchecked) == len(records):
            pytest.skip(f"{words.word(unchecked[0].verdict)}: {words.clean(unchecked[0].reason)}")
        failed = [r for r in records if not r.verdict.expected]
        if failed or not records:
            text = "\n\n".join(diagnosed.paragraph(r) for r in failed) or "nothing compared"
            noise = printed.marked(records[0].printed, "  ") if records else []
            raise Failure("\n".join([text, *noise]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure's own text, without a traceback through the checker."""
        if isinstance(excinfo.value, Failure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where pytest says the item is."""
        from gradcheck.model import ModelSpec

        spec = self.check.case.spec
        home = spec.build.__module__ if isinstance(spec, ModelSpec) else spec.family
        return home, None, f"gradcheck {self.name}"
