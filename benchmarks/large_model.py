"""A residual network of 100,000,000 float32 parameters: what a check costs, in forwards.

`python -m benchmarks.large_model` builds six matrices of 4096 × 4096 in three residual blocks, with
their gradients by hand, and times side by side (in turn, medians of ratios): one forward; one
central pair of one matrix, moved in place; the whole check of one matrix with its error bar; the
check of all of them. Memory is what tracemalloc sees on top of a forward's. Set
OPENBLAS_NUM_THREADS to 1 where others share the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import table
from gradcheck import check_model
from gradcheck.numerics.directional_slope import TensorView
from gradcheck.numerics.line_function import Given, Heading, Scalar, unit_of

Array = NDArray[Any]


class Residual:
    """x ← x + tanh(x·Aᵀ)·Bᵀ, block by block, and half the mean square of what comes out."""

    def __init__(self, blocks: int, width: int, batch: int) -> None:
        """Draw everything from one seed."""
        draw = np.random.default_rng(0)
        self.blocks = blocks
        self.params = {
            f"{name}{k}": draw.standard_normal((width, width), np.float32)
            / np.sqrt(width, dtype=np.float32)
            for k in range(blocks)
            for name in "ab"
        }
        self.x = draw.standard_normal((batch, width), np.float32)

    def loss(self) -> float:
        """Summed in float64, as a careful trainer does."""
        x = self.x
        for k in range(self.blocks):
            x = x + np.tanh(x @ self.params[f"a{k}"].T) @ self.params[f"b{k}"].T
        return float(np.mean(x.astype(np.float64) ** 2)) / 2

    def gradients(self) -> dict[str, Array]:
        """By hand."""
        xs, ys, x = [], [], self.x
        for k in range(self.blocks):
            xs.append(x)
            ys.append(np.tanh(x @ self.params[f"a{k}"].T))
            x = x + ys[-1] @ self.params[f"b{k}"].T
        ct, out = x / np.float32(x.size), {}
        for k in reversed(range(self.blocks)):
            out[f"b{k}"] = ct.T @ ys[k]
            inner = (ct @ self.params[f"b{k}"]) * (1 - ys[k] ** 2)
            out[f"a{k}"] = inner.T @ xs[k]
            ct = ct + inner @ self.params[f"a{k}"]
        return out


def seconds(function: Callable[[], Any]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def beside(function: Callable[[], Any], forward: Callable[[], Any], count: int) -> float:
    """How many forwards a function takes: the median of ratios, with a forward on both sides."""
    ratios = []
    for _ in range(count):
        before, taken, after = seconds(forward), seconds(function), seconds(forward)
        ratios.append(2 * taken / (before + after))
    return statistics.median(ratios)


def memory(function: Callable[[], Any]) -> int:
    """Bytes that a call takes at its peak."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="repetitions; default 5")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    net = Residual(3, args.width, args.batch)
    gradients = net.gradients()
    total = sum(p.size for p in net.params.values())
    matrix = net.params["a1"]
    site = TensorView(
        Scalar(net.loss), net.loss(), matrix, Given.of(gradients["a1"]), unit_of(matrix)
    )
    alone, of = {"a1": matrix}, {"a1": gradients["a1"]}
    last: dict[str, Any] = {}

    def pair() -> None:
        with site.ray(Heading(1)) as ray:
            ray.pair(2.0**-4)

    def one() -> None:
        last["one"] = check_model(net.loss, alone, of)

    def every() -> None:
        last["every"] = check_model(net.loss, net.params, gradients)

    net.loss()
    forward = statistics.median(seconds(net.loss) for _ in range(args.n))
    plain = memory(net.loss)
    rows = []
    for name, function, count in (
        ("one central pair of one matrix", pair, args.n),
        ("the check of one matrix, with its error bar", one, args.n),
        ("the check of all six", every, 1),
    ):
        taken = beside(function, net.loss, count)
        extra = (memory(function) - plain) / matrix.nbytes
        used = {"one": last.get("one"), "every": last.get("every")}.get(function.__name__)
        calls = 2 if used is None else 2 + sum(f.evaluations for f in used.findings)
        rows.append((name, calls, f"{taken:.1f}", f"{extra:.2f}"))
    print(
        f"{total:,} float32 parameters, batch {args.batch}, one forward {1000 * forward:.0f} ms\n"
    )
    heads = ("<what", "forwards called", "time, in forwards", "memory, in matrices")
    print(table(heads, rows), end="\n\n")
    print(last["every"])


if __name__ == "__main__":
    main()
