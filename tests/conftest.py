"""Fixtures that every room of the tests may use."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import defaultdict
from itertools import pairwise

# As the command does: several threads for small products are slower, many times where processes
# share the cores. It counts before the first import of numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.system.process import END_SIGNALS

MAX_SECONDS = 900
"""A test that takes longer fails; tests marked `soak` take hours."""
TIERS = ("suite", "slow", "frameworks")
"""Markers of tests that a plain run leaves out; `--all` and `--rest` run them."""

gc.set_threshold(50_000, 20, 20)  # as the command does, too


def pytest_addoption(parser):
    parser.addoption(
        "--all", action="store_true", help="run the tests marked suite, slow or frameworks, too"
    )
    parser.addoption("--rest", action="store_true", help="run only what a plain run leaves out")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Give workers neighbouring tests: they share fixtures of a module or a session."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_xdist_auto_num_workers():
    """Three workers on two cores: many tests wait for a process that they started."""
    return os.cpu_count() * 3 // 2


def pytest_configure(config):
    """Set signals: a command that runs in this process leaves handlers of others alone.

    Processes that tests start receive Ctrl-C, also where this one ignores it (nohup, `&`).
    """
    config.left_out = 0
    for kind in END_SIGNALS:
        if kind is not signal.SIGINT:
            signal.signal(kind, end)
        elif signal.getsignal(kind) is signal.SIG_IGN:
            signal.signal(kind, signal.default_int_handler)


def end(kind, _):
    """End this process by a signal as if it had no handler."""
    signal.signal(kind, signal.SIG_DFL)
    os.kill(os.getpid(), kind)


def pytest_collection_modifyitems(config, items):
    """Leave out the tests of the tiers, unless the command line asks for them."""
    if config.option.markexpr:
        return
    soak = {item for item in items if item.get_closest_marker("soak")}
    optional, rest = tiers([item for item in items if item not in soak])
    if config.option.rest:
        kept = rest
    elif config.option.all or any("::" in word for word in config.args):
        kept = set(items) - soak
    else:
        kept = set(items) - soak - set(optional)
        config.left_out = len(optional)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = sorted((item for item in items if item in kept), key=begins_late)


def begins_late(item):
    """Whether a test is not marked as `slow(first=True)`: one that takes a minute begins first."""
    return not any(mark.kwargs.get("first") for mark in item.iter_markers("slow"))


def tiers(items):
    """Tests that a plain run leaves out, and those of them that `--rest` runs.

    Of each function with a marker of the tiers, `keep` parameter sets belong to the plain run, and
    of the others `rest` to `--rest` (without the word: all). Where a command judges the others in
    CI, `by` names it, and `--rest` runs none.
    """
    functions = defaultdict(list)
    for item in items:
        marks = [mark for mark in item.iter_markers() if mark.name in TIERS]
        if marks:
            functions[item.nodeid.partition("[")[0]].append((item, marks[0].kwargs))
    optional, rest = set(), set()
    for function in functions.values():
        options = function[0][1]
        _, left_out = spaced([item for item, _ in function], options.get("keep", 0))
        optional.update(left_out)
        if "by" not in options:
            rest.update(spaced(left_out, options.get("rest", len(left_out)))[0])
    return optional, rest


def spaced(items, number):
    """At most `number` items, evenly spaced, and the others."""
    taken = {
        i for i in range(len(items)) if i * number // len(items) != (i - 1) * number // len(items)
    }
    return [x for i, x in enumerate(items) if i in taken], [
        x for i, x in enumerate(items) if i not in taken
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take the number of tests left out from a worker: each of them collects all tests."""
    node.config.left_out = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.left_out


def pytest_terminal_summary(terminalreporter, config):
    if config.left_out:
        terminalreporter.write_line(
            f"{config.left_out} tests of the whole suite were left out: "
            "`--rest` runs them, `--all` runs everything"
        )


def pytest_collection_finish():
    """Thousands of tests stay to the end: look for garbage in what they make alone."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Fail a test that exceeds the time limit."""

    def late(*_):
        pytest.fail(f"it took more than {MAX_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0 if item.get_closest_marker("soak") else MAX_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def untimed():
    """`untimed(text)`: a terminal report without the seconds that the run took."""
    took = re.compile(r"\bcompared\s+in\s+[\d.a-z\s]+?\s+s\.$", re.MULTILINE)
    return lambda text: took.sub("compared.", text)


@pytest.fixture(scope="session")
def suite():
    """The built-in suite."""
    return SUITE


class Network:
    """A multi-layer perceptron with a mean square loss, and its gradients by hand."""

    def __init__(self, *widths, batch=8, dtype="float64", relu=False, seed=0):
        draw = np.random.default_rng(seed)
        self.relu, self.layers = relu, len(widths) - 1
        self.params = {}
        for i, (a, b) in enumerate(pairwise(widths)):
            self.params[f"w{i}"] = (draw.normal(size=(b, a)) / np.sqrt(a)).astype(dtype)
            self.params[f"b{i}"] = (0.1 * draw.normal(size=b)).astype(dtype)
        self.x = draw.normal(size=(batch, widths[0])).astype(dtype)
        self.y = draw.normal(size=(batch, widths[-1])).astype(dtype)
        self.forwards = 0

    def activations(self):
        values = [self.x]
        for i in range(self.layers):
            z = values[-1] @ self.params[f"w{i}"].T + self.params[f"b{i}"]
            last = i == self.layers - 1
            values.append(z if last else np.maximum(z, 0) if self.relu else np.tanh(z))
        return values

    def loss(self):
        self.forwards += 1
        return np.mean((self.activations()[-1] - self.y) ** 2)

    def gradients(self):
        values, out = self.activations(), {}
        ct = (2 * (values[-1] - self.y) / self.y.size).astype(self.y.dtype)
        for i in reversed(range(self.layers)):
            out[f"w{i}"], out[f"b{i}"] = ct.T @ values[i], ct.sum(axis=0)
            slope = values[i] > 0 if self.relu else 1 - values[i] ** 2
            ct = (ct @ self.params[f"w{i}"]) * slope
        return out


@pytest.fixture
def network():
    """`network(*widths, batch=, dtype=, relu=, seed=)`: a small model of any size."""
    return Network
