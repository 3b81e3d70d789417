"""The pytest plugin: a suite as items, `@gradcheck.case`, known failures, and a summary.

`pytest --gradcheck-impl mykernels:IMPL` adds an item per (implementation, case, dtype) to whatever
else is collected, and `pytest --gradcheck` does so for what `[tool.gradcheck]` names. Without a
flag that asks, and without a decorator of ours in a test file, the plugin does nothing and imports
nothing. Items select with `-k`, rerun with `--lf`, and spread with `-n auto`, because their names
and inputs depend on nothing but names.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from gradcheck.errors import GradcheckError
from gradcheck.run.options import OPTIONS, SWITCH, Option
from gradcheck.testing import CARRIED, MARKER, WORKER

if TYPE_CHECKING:
    from collections.abc import Generator

    from gradcheck.cli.reports import Target
    from gradcheck.testing.cases import CaseBase
    from gradcheck.testing.reporter import ResultCollector
    from gradcheck.testing.session import Session

SESSION: Final = pytest.StashKey[Any]()
"""The `Session` of a configuration, where the flags ask for one."""
COLLECTOR: Final = "gradcheck-results"
"""The plugin that collects results, in the process where all reports arrive."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags of `gradcheck run` that say what is judged, and how.

    A flag that is not given is None, and has the project's default.
    """
    group = parser.getgroup("gradcheck", "hand-written gradients against the true derivative")
    group.addoption(
        "--gradcheck", action="store_true", dest="gradcheck_asked",
        help="judge what [tool.gradcheck] of pyproject.toml names; where this is given, or "
        "--gradcheck-impl, or --gradcheck-baseline, its keys are the defaults of the flags below",
    )  # fmt: skip
    group.addoption(
        "--gradcheck-report", action="append", default=[],
        help="write what was found to FILE[:FORMAT], as `gradcheck run -o` does (repeat)",
    )  # fmt: skip
    for option in OPTIONS:
        if option.pytest:
            _add(group, option)
    group.addoption(
        "--gradcheck-no-contract", action="store_const", const=False, dest="gradcheck_contract",
        help="check the numbers alone, without side conditions",
    )  # fmt: skip
    group.addoption(
        "--gradcheck-no-config", action="store_false", dest="gradcheck_config",
        help="ignore [tool.gradcheck] in pyproject.toml",
    )  # fmt: skip


def _add(group: pytest.OptionGroup, option: Option) -> None:
    """Add an option of a run, None by default."""
    how: dict[str, Any] = {"dest": f"gradcheck_{option.dest}", "help": option.pytest}
    if option.kind is SWITCH:
        how |= {"action": "store_const", "const": not option.negated}
    elif option.repeatable:
        how["action"] = "append"
    else:
        how["metavar"] = option.metavar
    if isinstance(option.default, int | float):
        how["type"] = type(option.default)
    group.addoption(f"--gradcheck-{option.name}", **how)


def pytest_configure(config: pytest.Config) -> None:
    """Load and select before tests are collected, so that mistakes are usage errors.

    Under xdist the controller loads first, since workers cannot report such an error.
    """
    config.addinivalue_line("markers", f"{MARKER}: judges a gradient")
    option = config.getoption
    asks = ("gradcheck_asked", "gradcheck_impl", "gradcheck_baseline")
    session = any(map(option, asks))
    sys.path[:0] = [str(config.invocation_params.dir)] * session  # as the command line does
    try:
        if session:
            from gradcheck.testing.session import Session, settle  # door: a flag asks

            settle(config)
        targets = _targets(config)
        ours = config.stash[SESSION] = Session(config) if session else None
        if not hasattr(config, WORKER):
            collector = _collector(ours, targets) if session else FirstResult(config, targets)
            config.pluginmanager.register(collector, COLLECTOR)
        if ours is not None and ours.distribution != "no":
            from gradcheck.testing.crash_retry import SHARED, CrashRetry  # door: xdist

            if ours.distribution in SHARED:
                config.pluginmanager.register(CrashRetry(ours), "gradcheck-retry")
    except GradcheckError as error:
        raise pytest.UsageError(f"gradcheck: {_clean(error)}") from error


def _targets(config: pytest.Config) -> list[Target]:
    outputs = config.getoption("--gradcheck-report")
    if not outputs or hasattr(config, WORKER):
        return []
    from gradcheck.cli.reports import targets_of  # door: reports are asked for

    return targets_of(outputs)


def _collector(ours: Session | None, targets: list[Target]) -> ResultCollector:
    from gradcheck.testing.reporter import ResultCollector  # door: there will be results

    return ResultCollector(ours, targets)


class FirstResult:
    """Where no flag asks, the collector takes over with the first report that carries results."""

    def __init__(self, config: pytest.Config, targets: list[Target]) -> None:
        """Take the configuration, and the reports to write."""
        self._plugins, self._targets = config.pluginmanager, targets

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Put the collector in the place of this plugin."""
        if hasattr(report, CARRIED):
            self._plugins.unregister(self)
            collector = _collector(None, self._targets)
            self._plugins.register(collector, COLLECTOR)
            collector.pytest_runtest_logreport(report)


def _clean(error: GradcheckError) -> str:
    from gradcheck.results.words import clean  # door: only for a message

    return clean(str(error))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send a worker of xdist the versions of implementations, and the settled flags."""
    session = node.config.stash.get(SESSION, None)
    if session is not None:
        from gradcheck.testing.session import settled  # door: a flag asks

        flags = settled(node.config)
        node.workerinput[MARKER] = {"versions": dict(session.versions), "flags": flags}


@pytest.hookimpl(tryfirst=True)  # before -k, --lf and random orders, so that they see the items
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Append an item per case, with a report, from which pytest counts them."""
    ours = config.stash.get(SESSION, None)
    if ours is not None:
        from gradcheck.testing.items import items_of  # door: a flag asks

        added: list[pytest.Item | pytest.Collector] = [*items_of(ours, session)]
        items += [item for item in added if isinstance(item, pytest.Item)]
        report = pytest.CollectReport("gradcheck", "passed", longrepr=None, result=added)
        config.hook.pytest_collectreport(report=report)


# ── tests with a decorator ───────────────────────────────────────────────────────────────────


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test by the cases that `@gradcheck.case` or `@gradcheck.cases_of` declares."""
    if "gradcheck.testing.parametrize" not in sys.modules:  # no test can be decorated
        return
    from gradcheck.testing.parametrize import ARGUMENT, declared_of  # door: a test is decorated

    declared = declared_of(metafunc.function, metafunc.cls)
    if declared is None:
        return
    test = f"{metafunc.definition.path.name}::{metafunc.function.__qualname__}"
    if ARGUMENT not in metafunc.fixturenames:
        if declared_of(metafunc.function) is None:
            return  # another test of the class
        pytest.fail(
            f"{test} is given no case: write `{ARGUMENT}` among its arguments", pytrace=False
        )
    try:
        cases = declared.cases(test)
    except GradcheckError as error:
        pytest.fail(f"{test}: {_clean(error)}", pytrace=False)
    marked = [pytest.param(case, id=case.id, marks=getattr(pytest.mark, MARKER)) for case in cases]
    metafunc.parametrize(ARGUMENT, marked)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that does not check its case."""
    case = _case(item)
    if case is not None:
        case.begin(_from_here(item))
    found = yield
    if case is not None:
        case.end()
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the lead of a failure into its line of the summary, and attach the results."""
    report = yield
    if call.when == "call" and "gradcheck.results.run" in sys.modules:
        from gradcheck.testing.items import attach_results  # door: something was judged

        attach_results(item, call, report, _case(item))
    return report


def _from_here(item: pytest.Item) -> str:
    """The argument of pytest that runs this test again, from the folder where it was started."""
    file, colons, rest = item.nodeid.partition("::")
    return (
        os.path.relpath(item.config.rootpath / file, item.config.invocation_params.dir)
        + colons
        + rest
    )


def _case(item: pytest.Item) -> CaseBase | None:
    """The case of a decorated test."""
    if "gradcheck.testing.parametrize" not in sys.modules:
        return None
    # door: a test is decorated
    from gradcheck.testing.cases import CaseBase
    from gradcheck.testing.parametrize import ARGUMENT

    found = getattr(getattr(item, "callspec", None), "params", {}).get(ARGUMENT)
    return found if isinstance(found, CaseBase) else None
