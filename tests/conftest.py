"""Fixtures that every room of the tests may use."""

from __future__ import annotations

import gc
import os
import signal
from itertools import pairwise

# As the command does: several threads for small products are slower, many times where processes
# share the cores. It counts before the first import of numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.system.process import END_SIGNALS

LIMIT = 900
"""Seconds that a test may take: none waits for ever."""

gc.set_threshold(50_000, 20, 20)  # as the command does, too


def pytest_configure(config):
    """Processes that tests start hear Ctrl-C, also where this one does not (nohup, `&`)."""
    for kind in END_SIGNALS:
        if signal.getsignal(kind) is signal.SIG_IGN:
            usual = kind is signal.SIGINT
            signal.signal(kind, signal.default_int_handler if usual else signal.SIG_DFL)


def pytest_collection_finish():
    """Thousands of tests stay to the end: look for garbage in what they make alone."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Fail what takes longer than the limit; a soak takes hours."""

    def late(*_):
        pytest.fail(f"it took more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0 if item.get_closest_marker("soak") else LIMIT)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
