"""Processes for other people's code: what a start, a round trip and a million doubles cost.

`python -m benchmarks.foreign` prints Markdown tables; A and B are measured in turn (A, B, A, B, …),
so that a drift of the machine touches both. `--scripts 10000` says how many scripts the figures of
what is held are taken over.
"""

from __future__ import annotations

import argparse
import ctypes.util
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.table import PAIRED, by_turns, head, line
from gradcheck.implementations.isolated import Isolated, Isolation
from gradcheck.implementations.load import load
from gradcheck.implementations.processes.c_worker import (
    Access,
    Buffer,
    Call,
    Pointer,
    Scalar,
    Script,
    Worker,
)
from gradcheck.spec.loading import load_suite

LIBC = ctypes.util.find_library("c") or "libc.so.6"
SMALL, LARGE = 64, 8_000_000
HELD = ("KiB before", "after", "descriptors before", "after")


def copying(nbytes: int) -> Script:
    """One call, memcpy, on two guarded buffers: as a VJP of the same size moves its data."""
    to = Buffer(name="to", content=bytes(nbytes))
    source = Buffer(name="from", content=bytes(nbytes), access=Access.READ)
    pointers = (Pointer(buffer="to"), Pointer(buffer="from"))
    size = Scalar(ctype="uint64", value=nbytes)
    call = Call(library=LIBC, symbol="memcpy", arguments=(*pointers, size))
    return Script(buffers=(to, source), calls=(call,))


def start() -> None:
    """A worker process from nothing to its first outcome, and its end."""
    with Worker() as worker:
        worker.run(copying(SMALL))


def bare() -> None:
    """A Python process that does nothing."""
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)


def numpy() -> None:
    """A Python process that imports NumPy."""
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)


def isolated() -> tuple[Isolated, list[tuple[Callable[[], object], Callable[[], object]]]]:
    """A process with a Python VJP, and pairs of the same call there and here: small, large."""
    suites = ["gradcheck_cases:SUITE"]
    suite = load_suite(suites)
    there = Isolated("examples.kernels:IMPL", Isolation(suites=suites))
    here = load("examples.kernels:IMPL", suite)
    (case,) = suite.cases(["silu"], samples=["typical"])
    pairs = []
    for size in (SMALL // 8, LARGE // 8):
        x, ct = np.linspace(-1.0, 1.0, size), np.linspace(2.0, -1.0, size)
        calls = []
        for who in (there, here):
            bound = who.bind(case, "float64")
            assert bound is not None
            calls.append(partial(bound.vjp, ct, x, **bound.attrs))
        pairs.append((calls[0], calls[1]))
    return there, pairs


def judge(*words: str) -> Callable[[], None]:
    """`gradcheck run` on Python code."""
    command = [sys.executable, "-m", "gradcheck", "run", "-q", "--op", "silu", *words]
    command += ["--impl", "examples.kernels:IMPL", "--suite", "gradcheck_cases:SUITE"]

    def call() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    return call


def seconds(call: Callable[[], object], times: int) -> float:
    """Wall-clock time of one call, the mean over `times`."""
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def row(
    names: tuple[str, str], calls: tuple[Callable[[], object], Callable[[], object]],
    count: int, times: int, goal: str,
) -> None:  # fmt: skip
    """One line of the table: medians of both and of their ratios."""
    for call in calls:
        call()
    a, b = (partial(seconds, call, times) for call in calls)
    print(line(by_turns("", names, (a, b), count).cells(goal)), flush=True)


def held(pid: int | str) -> tuple[int, int]:
    """Resident KiB and open descriptors of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4, len([*Path(f"/proc/{pid}/fd").iterdir()])


def leaks(scripts: int) -> None:
    """What the worker and this process hold before and after so many scripts."""
    script = copying(4096)
    with Worker() as worker:
        for _ in range(200):
            worker.run(script)
        child = worker._child
        assert child is not None
        before = held(child.process.pid), held("self")
        for _ in range(scripts):
            worker.run(script)
        after = held(child.process.pid), held("self")
    for who, (kib, fds), (kib_after, fds_after) in zip(
        ("worker", "parent"), before, after, strict=True
    ):
        print(line((who, kib, kib_after, fds, fds_after)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=9, help="pairs; default 9")
    parser.add_argument("--scripts", type=int, default=10_000)
    words = parser.parse_args()
    small, large = copying(SMALL), copying(LARGE)
    source, target = bytearray(LARGE), bytearray(LARGE)

    def copy() -> None:
        target[:] = source

    print(head(PAIRED))
    row(("start a worker, one call, end it", "`python -c pass`"), (start, bare), words.n, 3, "")
    row(("start a worker, one call, end it", "`import numpy`"), (start, numpy), words.n, 1,
        "A < 500 ms")  # fmt: skip
    with Worker() as worker:
        name = f"a call on two buffers of {SMALL} bytes"
        row((name, "start a worker"), (lambda: worker.run(small), start), words.n, 1, "")
        row(("a call on two buffers of 1,000,000 doubles", "`memcpy` of one of them here"),
            (lambda: worker.run(large), copy), words.n, 3, "")  # fmt: skip
    there, (small_pair, large_pair) = isolated()
    row(
        ("a Python VJP of 8 doubles in its own process", "the same here"),
        small_pair, words.n, 100, "",
    )  # fmt: skip
    row(
        ("a Python VJP of 1,000,000 doubles in its own process", "the same here"),
        large_pair, words.n, 1, "",
    )  # fmt: skip
    there.close()
    row(
        ("`gradcheck run --impl` of one operator", "the same with `--no-isolate`"),
        (judge(), judge("--no-isolate")), words.n, 1, "",
    )  # fmt: skip
    print(f"\n{head((f'<after {words.scripts:,} scripts', *HELD))}")
    leaks(words.scripts)


if __name__ == "__main__":
    main()
