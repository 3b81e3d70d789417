"""The protocol against a raw copy of the same bytes through the pipes of a process like it.

`python -m benchmarks.protocol` sends a million doubles there and back, by turns raw, in frames and
in JSON lines, then small messages, then 10,000 calls, and prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.table import head, line
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.protocol.message import Block, Form, Request
from gradcheck.implementations.protocol.session import Session

ECHO = [sys.executable, "-I", "-S", str(Path(__file__).with_name("echo.py"))]
PIPE = 1 << 20


class Raw:
    """A process that copies messages of one size; `wide` asks for pipes of a megabyte."""

    def __init__(self, size: int, wide: bool) -> None:
        """Start it."""
        self.size = size
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*ECHO, "raw", str(size)], stdin=pipe, stdout=pipe)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.to, self.back = self.process.stdin.fileno(), self.process.stdout.fileno()
        for descriptor in (self.to, self.back) if wide else ():
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE)

    def __call__(self, data: memoryview) -> bytearray:
        """The data, there and back."""
        rest = data
        while rest:
            rest = rest[os.write(self.to, rest) :]
        found = bytearray(self.size)
        room, filled = memoryview(found), 0
        while filled < self.size:
            filled += os.readv(self.back, [room[filled:]])
        return found

    def close(self) -> None:
        """End it."""
        self.process.communicate()


def session(level: str) -> Session:
    """A program that gives back what it is given."""
    here = Path(__file__)
    return Session(Program(name="echo", path=here, command=(*ECHO, level), level=level))


def request(values: np.ndarray) -> Request:
    """For all of these values back."""
    shape = values.shape
    form = Form(role="input", name="x", dtype="float64", shape=shape)
    wanted = Form(role="output", name="0", dtype="float64", shape=shape)
    return Request(
        op="dup",
        ask="forward",
        dtype="float64",
        blocks=(Block(form, values.view(np.uint8).data),),
        wanted=(wanted,),
    )


def through(one: Session, values: np.ndarray) -> Callable[[], None]:
    """One round trip by the protocol, arrays included."""

    def call() -> None:
        block = one.run(request(values))["0"]
        found = np.frombuffer(block.data, dtype="float64").reshape(block.form.shape)
        assert found[-1] == values[-1]

    return call


def milliseconds(calls: list[Callable[[], object]], count: int) -> list[list[float]]:
    """Times of each call, taken by turns."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(count + 2):  # two to warm up
        for call, column in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if turn > 1:
                column.append(1000 * (time.perf_counter() - start))
    return times


def compare(n: int, count: int) -> None:
    """A table of `n` doubles there and back."""
    values = np.random.default_rng(0).standard_normal(n)
    data = values.view(np.uint8).data
    raws = [Raw(8 * n, wide=False), Raw(8 * n, wide=True)]
    sessions = [session("frames"), session("jsonl")]
    calls: list[Callable[[], object]] = [lambda one=one: one(data) for one in raws]
    calls += [through(one, values) for one in sessions]
    names = ["raw copy, pipes as they are", "raw copy, pipes of 1 MB", "`frames`", "`jsonl`"]
    times = milliseconds(calls, count)
    for name, column in zip(names, times, strict=True):
        ratios = [statistics.median(map(_ratio, column, times[i])) for i in (0, 1)]
        median = statistics.median(column)
        print(line((f"{n:,}", name, *(f"{value:.2f}" for value in (median, *ratios)))))
    for one in (*raws, *sessions):
        one.close()


def _ratio(x: float, y: float) -> float:
    return x / y


def endurance(calls: int) -> None:
    """Memory and descriptors after a tenth of the calls, and after all."""
    heads = ("<level", "calls", "RSS, MB", "descriptors", "RSS of the program, MB")
    print(f"\n{head(heads)}")
    for level in ("frames", "jsonl"):
        with_values = np.random.default_rng(0).standard_normal(1000)
        one = session(level)
        call = through(one, with_values)
        for done in range(1, calls + 1):
            call()
            if done in (calls // 10, calls):
                child = one._child  # to weigh it
                assert child is not None
                held = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
                sizes = [f"{_rss(who):.1f}" for who in ("self", child.process.pid)]
                print(line((f"`{level}`", f"{done:,}", sizes[0], held, sizes[1])))
        one.close()


def _rss(process: int | str) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=30, help="round trips of each; default 30")
    parser.add_argument("--calls", type=int, default=10_000)
    arguments = parser.parse_args()
    heads = ("doubles", "<there and back by", "median ms", "/ raw", "/ raw, wide pipes")
    print(head(heads))
    for n in (1_000_000, 8192, 16):
        compare(n, arguments.n * (1 if n > 100_000 else 20))
    endurance(arguments.calls)


if __name__ == "__main__":
    main()
