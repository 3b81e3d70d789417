"""One point of a scale curve, in a process of its own: time, peak memory, forwards.

`python -m benchmarks.scale_points CURVE N FOLDER` prints one line of JSON. What is generated lies
in the folder, and is found there by the next point.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEAST_SECONDS: Final = 0.2
MOST_CALLS: Final = 20
"""A call is repeated until it took so long in sum, or so often."""
BATCH: Final = 16
ROW: Final = 64
CHUNK: Final = 1 << 16
GRADCHECK: Final = (sys.executable, "-m", "gradcheck")
MODULE: Final = '''
"""A generated suite: {count} operators of {samples} samples."""

from gradcheck import OpSpec, Sample, Suite


def _forward(b):
    def squareplus_forward(xp, x):
        return (x + xp.sqrt(x * x + b)) / 2

    return squareplus_forward


def _vjp(b):
    def squareplus_vjp(xp, ct, x):
        return ct * (1 + x / xp.sqrt(x * x + b)) / 2

    return squareplus_vjp


SUITE = Suite("scale", "1", [
    OpSpec(
        name=f"squareplus_{{k}}",
        signature="()->()",
        forward=_forward(float(1 + k % 7)),
        vjp=_vjp(float(1 + k % 7)),
        formula="y = (x + sqrt(x^2 + b)) / 2",
        source="generated",
        samples=tuple(
            Sample(name=f"s{{j}}", primals=lambda draw: (draw.normal(3, 5),), hunts="the root")
            for j in range({samples})
        ),
    )
    for k in range({count})
])
'''


@dataclass(frozen=True, slots=True)
class Point:
    """What one size cost: processor seconds, peak resident MB, and what it had before the call.

    `forwards` is 0 where there are none to count; `visible` is the smallest relative error of one
    element of typical size that would have been seen, NaN where nobody asks. `size` is that of
    what was written, in MB.
    """

    seconds: float
    peak: float
    before: float
    forwards: int = 0
    visible: float = float("nan")
    size: float = 0.0


def peak() -> float:
    """The largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of a call, the least of several where it is short, and what it gives."""
    best, spent, calls = float("inf"), 0.0, 0
    while not calls or (spent < LEAST_SECONDS and calls < MOST_CALLS):
        start = time.process_time()
        value = call()
        taken = time.process_time() - start
        best, spent, calls = min(best, taken), spent + taken, calls + 1
    return best, value


class Layer:
    """One tensor of so many parameters: mean (tanh(W·x) − target)² / 2 over a batch of 16."""

    def __init__(self, parameters: int, dtype: str) -> None:
        """Draw it; W is square, about."""
        self.dtype, self.k = np.dtype(dtype), max(2, round(parameters**0.5))
        draw = np.random.default_rng(0)
        scale = self.dtype.type(self.k**-0.5)
        self.w = np.empty((self.k, self.k), self.dtype)
        for row in self.w:  # nothing as large as w beside it
            row[:] = draw.standard_normal(self.k).astype(self.dtype) * scale
        self.x = draw.standard_normal((self.k, BATCH)).astype(self.dtype)
        self.target = draw.standard_normal((self.k, BATCH)).astype(self.dtype)
        self.forwards = 0

    def loss(self) -> float:
        """Summed in float64."""
        self.forwards += 1
        apart = (np.tanh(self.w @ self.x) - self.target).astype(np.float64)
        return float(np.mean(apart * apart)) / 2

    def gradient(self) -> Array:
        """By hand."""
        y = np.tanh(self.w @ self.x)
        inner = (y - self.target) * (1 - y * y) / self.dtype.type(y.size)
        return np.asarray(inner @ self.x.T)


def model(n: int, dtype: str) -> Point:
    """`check_model` of one tensor of n parameters."""
    from gradcheck import check_model

    layer = Layer(n, dtype)
    gradient = layer.gradient()
    layer.loss()
    before = peak()
    seconds, result = timed(lambda: check_model(layer.loss, {"w": layer.w}, {"w": gradient}))
    (finding,) = result.findings
    if not result.ok:
        raise RuntimeError(f"a right gradient was not passed: {finding.reason}")
    visible = finding.smallest_visible_error or float("nan")
    return Point(seconds, peak(), before, 2 + finding.evaluations, visible)


def forward(n: int, dtype: str) -> Point:
    """One forward of the same, which all else is held against."""
    layer = Layer(n, dtype)
    before = peak()
    seconds, _ = timed(layer.loss)
    return Point(seconds, peak(), before, 1)


def function(n: int, **options: Any) -> Point:
    """`check` of rms_norm on n numbers in rows of 64."""
    from gradcheck import check

    rows = max(1, n // ROW)
    x = np.random.default_rng(0).standard_normal((rows, ROW))
    size, copies = x.size, [0]

    def rms_norm(x: Array) -> Array:
        copies[0] += x.size // size  # several at once are as many evaluations
        return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6))

    def rms_norm_vjp(ct: Array, x: Array) -> Array:
        r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        return np.asarray(r * (ct - x * r * np.mean(ct * x * r, axis=-1, keepdims=True)))

    before = peak()
    seconds, result = timed(lambda: check(rms_norm, rms_norm_vjp, x, **options))
    if not result.ok:
        raise RuntimeError(f"a right gradient was not passed: {result}")
    copies[0] = 0
    check(rms_norm, rms_norm_vjp, x, **options)
    return Point(seconds, peak(), before, copies[0])


def command(folder: Path, *arguments: str) -> Point:
    """A command line as a user gives it in a folder, start-up and all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call = [*GRADCHECK, *arguments]
    done = subprocess.run(call, cwd=folder, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"gradcheck {' '.join(arguments)} ended with {done.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Point(seconds, used.ru_maxrss / 1e3, 0.0)


def suite(what: str, count: int, samples: int) -> Point:
    """A generated suite: what its commands cost. `report` finds the log of `run`."""
    folder = Path(f"suite-{count}-{samples}")
    folder.mkdir(exist_ok=True)
    (folder / "scale_suite.py").write_text(MODULE.format(count=count, samples=samples))
    flags, log = ("--suite", "scale_suite:SUITE"), folder / "run.jsonl"
    if what == "list":
        return command(folder, "list", *flags)
    if what == "run" or not log.exists():
        run = command(folder, "run", *flags, "-q", "-o", log.name)
    if what == "run":
        return replace(run, size=log.stat().st_size / 1e6)
    page = command(folder, "report", log.name, "-q", "-o", "run.html")
    return replace(page, size=(folder / "run.html").stat().st_size / 1e6)


def written(n: int) -> Path:
    """A log of n synthetic results, none of which is kept; the same file for all curves."""
    from benchmarks import reports
    from gradcheck.results.run import Run
    from gradcheck.results.stored.log import Lines

    path, lines, run = Path(f"{n}.jsonl"), Lines(), Run(header=reports.header(), results=())
    if not path.exists():
        with path.open("wb") as out:
            out.write(lines.header(run))
            for result in reports.one_by_one(n):
                out.write(lines.result(run, result))
            out.write(lines.footer(run))
    return path


def results(what: str, n: int) -> Point:
    """What n results on file cost to read, to render, to merge, to hold against others."""
    from gradcheck.report import pieces
    from gradcheck.results.stored.read import read

    log = written(n)
    calls: dict[str, Callable[[], Any]] = {"read": lambda: read(log)}
    if what == "diff":
        calls[what] = _diff(log)
    elif what == "merge":
        calls[what] = _merge(log)
    elif what != "read":
        run = read(log)
        calls[what] = lambda: sum(map(len, pieces(run, what)))
    gc.collect()
    before = peak()
    seconds, given = timed(calls[what])
    size = given if isinstance(given, int) else log.stat().st_size
    return Point(seconds, peak(), before, size=size / 1e6)


def _diff(log: Path) -> Callable[[], Any]:
    from gradcheck.report import diff
    from gradcheck.results.diff.change import Side
    from gradcheck.results.diff.compare import compared
    from gradcheck.results.stored.read import read

    def call() -> int:
        old, new = (Side(name=name, run=read(log)) for name in ("old", "new"))
        return len(diff.render(compared(old, new, {"synthetic": "synthetic"}), "markdown"))

    return call


def _merge(log: Path) -> Callable[[], Any]:
    """Four shards of the run, by case."""
    from gradcheck.results.stored.read import read
    from gradcheck.run.merge import Named, merged

    shards = _shards(log, 4)
    return lambda: merged([Named(path.name, read(path)) for path in shards])


def _shards(log: Path, of: int) -> list[Path]:
    """The same run as it would have been judged on several machines, in other files."""
    from benchmarks import reports
    from gradcheck.results.run import Run
    from gradcheck.results.stored.log import Lines, case_of

    count = int(log.stem)
    paths = [log.with_name(f"{count}-{shard}.jsonl") for shard in range(of)]
    headers = [replace(reports.header(), shard=f"{shard + 1}/{of}") for shard in range(of)]
    runs = [Run(header=header, results=()) for header in headers]
    lines, places = [Lines() for _ in paths], dict[tuple[str, ...], int]()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for file, own, run in zip(files, lines, runs, strict=True):
            file.write(own.header(run))
        for result in reports.one_by_one(count):
            shard = places.setdefault(case_of(result), len(places)) % of
            files[shard].write(lines[shard].result(runs[shard], result))
        for file, own, run in zip(files, lines, runs, strict=True):
            file.write(own.footer(run))
    return paths


CURVES: Final[dict[str, Callable[[int], Point]]] = {
    "forward float64": lambda n: forward(n, "float64"),
    "check_model float64": lambda n: model(n, "float64"),
    "forward float32": lambda n: forward(n, "float32"),
    "check_model float32": lambda n: model(n, "float32"),
    "check": function,
    "check full=True": lambda n: function(n, full=True),
    "list": lambda n: suite("list", n, 2),
    "run": lambda n: suite("run", n, 2),
    "report": lambda n: suite("report", n, 2),
    "run, one operator": lambda n: suite("run", 1, n),
    "read": lambda n: results("read", n),
    "json": lambda n: results("json", n),
    "jsonl": lambda n: results("jsonl", n),
    "markdown": lambda n: results("markdown", n),
    "terminal": lambda n: results("terminal", n),
    "html": lambda n: results("html", n),
    "junit": lambda n: results("junit", n),
    "merge": lambda n: results("merge", n),
    "diff": lambda n: results("diff", n),
}
"""What is measured, by name, as a function of size."""


def main() -> None:
    """Measure one point."""
    curve, n, folder = sys.argv[1:]
    os.chdir(folder)
    print(json.dumps(asdict(CURVES[curve](int(n)))))


if __name__ == "__main__":
    main()
