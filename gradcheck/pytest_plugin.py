"""The suite as pytest items: one per (implementation, operator, dialect, sample, dtype).

`pytest --gradcheck-impl mykernels:IMPL` adds them to whatever else is collected; without the
flag the plugin does nothing and imports nothing. Items select with `-k`, rerun with `--lf`, and
spread with `-n auto`, because their names and inputs depend on nothing but names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradcheck.binding import Binding
    from gradcheck.run import Plan
    from gradcheck.suite import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags of `gradcheck run`, as far as they select."""
    group = parser.getgroup("gradcheck", "hand-written gradients against the true derivative")
    for flag, what in (
        ("impl", "judge this implementation: reference, torch, pkg.module:NAME (repeat)"),
        ("op", "only operators that match (repeat)"),
        ("dialect", "only dialects that match (repeat)"),
        ("sample", "only samples that match (repeat)"),
        ("dtype", "only this dtype: float64, float32 (repeat)"),
        ("suite", "a suite of your own, MODULE:NAME (repeat)"),
    ):
        group.addoption(f"--gradcheck-{flag}", action="append", default=[], help=what)
    group.addoption("--gradcheck-seed", type=int, default=0, help="of all inputs; default 0")


@pytest.hookimpl(tryfirst=True)  # before -k, --lf and random orders, so that they see the items
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Append an item per case."""
    if not config.getoption("--gradcheck-impl"):
        return
    from gradcheck.errors import GradcheckError

    try:
        items.extend(_items(session, config))
    except GradcheckError as error:
        raise pytest.UsageError(f"gradcheck: {error}") from error


def _items(session: pytest.Session, config: pytest.Config) -> Iterator[GradcheckItem]:
    from gradcheck.binding.load import load
    from gradcheck.run import Plan
    from gradcheck.selection import dtypes_of
    from gradcheck.suite import load_suite

    def option(name: str) -> Any:
        return config.getoption(f"--gradcheck-{name}")

    suite = load_suite(option("suite"))
    cases = suite.cases(option("op"), option("dialect"), option("sample"), option("seed"))
    dtypes = dtypes_of(option("dtype"))
    for word in dict.fromkeys(option("impl")):
        binding = load(word, suite)
        for case in cases:
            for dtype in dtypes:
                plan = Plan(
                    suite=suite,
                    cases=[case],
                    implementations=[word],
                    dtypes=[dtype],
                    seed=option("seed"),
                    suites=option("suite"),
                )
                yield GradcheckItem.from_parent(
                    session,
                    name=f"{word}::{case.name}/{dtype}",
                    nodeid=f"gradcheck::{word}::{case.name}/{dtype}",
                    plan=plan,
                    case=case,
                    binding=binding,
                )


class Failure(Exception):  # noqa: N818  it is one
    """A case that did not pass; the text is what pytest shows."""


class GradcheckItem(pytest.Item):
    """One case, one implementation, one dtype."""

    def __init__(self, *, plan: Plan, case: Case, binding: Binding, **rest: Any) -> None:
        """Keep what to judge."""
        super().__init__(**rest)
        self.plan, self.case, self.binding = plan, case, binding

    def runtest(self) -> None:
        """Judge the case."""
        from gradcheck.report import words
        from gradcheck.run import judge

        records = judge(self.plan, self.case, self.binding)
        unchecked = [r for r in records if not r.verdict.checked]
        if unchecked and len(unchecked) == len(records):
            pytest.skip(f"{words.word(unchecked[0].verdict)}: {words.clean(unchecked[0].reason)}")
        failed = [r for r in records if not r.verdict.expected]
        if failed or not records:
            raise Failure("\n\n".join(words.paragraph(r) for r in failed) or "nothing compared")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure's own text, without a traceback through the checker."""
        if isinstance(excinfo.value, Failure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where pytest says the item is."""
        return self.case.spec.family, None, f"gradcheck {self.name}"
