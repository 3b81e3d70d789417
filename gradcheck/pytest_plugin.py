"""The pytest plugin: a suite as items, `@gradcheck.case`, known failures, a summary of it all.

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
from gradcheck.testing import MARKER
from gradcheck.testing.reporter import Heard

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from gradcheck.cli.outcome import Target
    from gradcheck.testing.base_case import Asked

SESSION: Final = pytest.StashKey[Any]()
"""The `Session` of a configuration whose flags ask for something."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags of `gradcheck run`, as far as they say what is judged, and how.

    One that is not given is None: a project may say what it means.
    """
    group = parser.getgroup("gradcheck", "hand-written gradients against the true derivative")
    group.addoption(
        "--gradcheck", action="store_true", dest="gradcheck_asked",
        help="judge what [tool.gradcheck] of pyproject.toml names; where this is given, or "
        "--gradcheck-impl, or --gradcheck-baseline, its keys are the defaults of the flags below",
    )  # fmt: skip
    for flag, what in (
        ("impl", "judge this implementation: reference, torch, jax, pkg.module:NAME, FILE.toml "
                 "(repeat)"),
        ("op", "operators that match (repeat); default: all, unless another kind is named"),
        ("model", "models that match (repeat)"),
        ("rule", "update rules that match (repeat)"),
        ("dialect", "only dialects that match (repeat)"),
        ("sample", "only samples, or sizes of models, that match (repeat)"),
        ("dtype", "float64, float32, float16, bfloat16, all (repeat); default: the first two"),
        ("suite", "a suite of your own, MODULE:NAME (repeat)"),
        ("require", "operators, models or rules that may not be UNSUPPORTED or UNBOUND (repeat)"),
    ):  # fmt: skip
        group.addoption(f"--gradcheck-{flag}", action="append", help=what)
    group.addoption(
        "--gradcheck-report", action="append", default=[],
        help="write what was found to FILE[:FORMAT], as `gradcheck run -o` does (repeat)",
    )  # fmt: skip
    group.addoption("--gradcheck-seed", type=int, help="of all inputs; default 0")
    group.addoption(
        "--gradcheck-baseline", metavar="FILE",
        help="failures that are known (`gradcheck baseline write FILE`): they are xfailed, "
        "strictly, and anything else about them fails",
    )  # fmt: skip
    group.addoption(
        "--gradcheck-timeout", type=float, metavar="S",
        help="seconds that one call of a Python implementation may take; default 30",
    )  # fmt: skip
    group.addoption(
        "--gradcheck-convention", metavar="SYSTEM",
        help="on kinks accept only what this system returns (PyTorch, JAX, ggml, …)",
    )  # fmt: skip
    for name, value, what in (
        ("isolate", False, "run Python implementations in pytest's own process: for a debugger"),
        ("build", False, "run none of the commands in a manifest"),
        ("contract", True, "ask what a backward owes beyond its numbers, of the reference too"),
        ("contract", False, "ask for the numbers alone"),
        ("train", True, "models: train each at its smallest size"),
        ("project", True, "models: hold gradients against slopes of the loss"),
        ("taylor", True, "also the Taylor remainder of every gradient (in reports)"),
    ):
        flag = f"--gradcheck-{'' if value else 'no-'}{name}"
        dest = f"gradcheck_{name}"
        group.addoption(flag, action="store_const", const=value, dest=dest, help=what)
    group.addoption(
        "--gradcheck-no-config", action="store_false", dest="gradcheck_config",
        help="leave the defaults in [tool.gradcheck] of pyproject.toml out",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Load and select before anything is collected: what is wrong there is a usage error.

    So also under xdist, whose workers could not say it.
    """
    config.addinivalue_line("markers", f"{MARKER}: judges a gradient")
    option = config.getoption
    asks = ("gradcheck_asked", "gradcheck_impl", "gradcheck_baseline")
    session = any(map(option, asks))
    sys.path[:0] = [str(config.invocation_params.dir)] * session  # as the command line does
    try:
        if session:
            from gradcheck.testing.options import settle

            settle(config)
        if not hasattr(config, "workerinput"):  # here all reports arrive
            targets = _targets(option("--gradcheck-report"))
            heard = Heard(lambda: config.stash.get(SESSION, None), targets)
            config.pluginmanager.register(heard, "gradcheck-heard")
        if session:
            from gradcheck.testing.session import Session

            config.stash[SESSION] = ours = Session(config)
            if ours.distribution != "no":
                from gradcheck.testing.crash_retry import SHARED, Lost

                if ours.distribution in SHARED:
                    config.pluginmanager.register(Lost(ours), "gradcheck-lost")
    except GradcheckError as error:
        from gradcheck.results.words import clean

        raise pytest.UsageError(f"gradcheck: {clean(str(error))}") from error


def _targets(outputs: Sequence[str]) -> list[Target]:
    """Where reports go."""
    if not outputs:
        return []
    from gradcheck.cli.outcome import targets_of

    return targets_of(outputs)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of xdist's what it cannot find out: what was built says its version.

    So also what the flags mean: the project may have changed since.
    """
    session = node.config.stash.get(SESSION, None)
    if session is not None:
        from gradcheck.testing.options import told

        node.workerinput[MARKER] = {"versions": dict(session.versions), "flags": told(node.config)}


@pytest.hookimpl(tryfirst=True)  # before -k, --lf and random orders, so that they see the items
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Append an item per case, and say so: pytest counts what collectors report."""
    ours = config.stash.get(SESSION, None)
    if ours is not None:
        from gradcheck.testing.items import items_of

        added: list[pytest.Item | pytest.Collector] = [*items_of(ours, session)]
        items += [item for item in added if isinstance(item, pytest.Item)]
        report = pytest.CollectReport("gradcheck", "passed", longrepr=None, result=added)
        config.hook.pytest_collectreport(report=report)


# ── tests with a decorator ───────────────────────────────────────────────────────────────────


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that `@gradcheck.case` or `@gradcheck.cases_of` stands over gets its cases."""
    if "gradcheck.testing.parametrize" in sys.modules:  # else nobody can have said so
        from gradcheck.testing.generate import generate

        generate(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that was given a case has to ask for it."""
    case = _asked(item)
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
    """A failure says in its line of the summary what is wrong; its results go with its report."""
    report = yield
    if call.when == "call" and "gradcheck.results.run" in sys.modules:
        from gradcheck.testing.attach_results import tell

        tell(item, call, report, _asked(item))
    return report


def _from_here(item: pytest.Item) -> str:
    """What pytest is to be told to run this test again, in the folder where it was started."""
    file, colons, rest = item.nodeid.partition("::")
    return (
        os.path.relpath(item.config.rootpath / file, item.config.invocation_params.dir)
        + colons
        + rest
    )


def _asked(item: pytest.Item) -> Asked | None:
    """The case that a test was given."""
    if "gradcheck.testing.parametrize" not in sys.modules:
        return None
    from gradcheck.testing.base_case import Asked
    from gradcheck.testing.parametrize import ARGUMENT

    found = getattr(getattr(item, "callspec", None), "params", {}).get(ARGUMENT)
    return found if isinstance(found, Asked) else None
