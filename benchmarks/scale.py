"""Cost and memory against size: parameters, operators, samples, results; measured and fitted.

`python -m benchmarks.scale` measures every curve, each point in a process of its own, and prints
Markdown: what each size cost, the exponent n^k with its standard error, and start + each · n.
`--axis` picks one axis, `--quick` stops at small sizes. Times are of the processor, so that other
programs on the machine hardly matter. A curve that grows faster than linearly is named, and then
the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import fit
from benchmarks.scale_points import Point

MODELS: Final = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
RESULTS: Final = (1e3, 1e4, 1e5, 1e6)
AXES: Final[dict[str, dict[str, tuple[float, ...]]]] = {
    "parameters": {
        "forward float64": MODELS,
        "check_model float64": MODELS,
        "forward float32": MODELS,
        "check_model float32": MODELS,
        "check": (1e3, 1e4, 1e5, 1e6),
        "check full=True": (1e3, 1e4, 1e5),
    },
    "operators": dict.fromkeys(("list", "run", "report"), (10, 30, 100, 300, 1000)),
    "samples": {"run, one operator": (1, 10, 100, 300, 1000)},
    "results": dict.fromkeys(
        ("read", "json", "jsonl", "markdown", "terminal", "html", "junit", "merge", "diff"), RESULTS
    ),
}
"""Curves and sizes, by axis."""
QUICK: Final = {"parameters": 1e6, "operators": 100, "samples": 100, "results": 1e4}
"""The largest sizes of `--quick`."""
ROOT: Final = Path(__file__).parents[1]
Measure = Callable[[str, int, str], Point]
PEAK: Final = 4096.0
"""MB that no point may take."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What was measured at which sizes."""

    name: str
    sizes: tuple[int, ...]
    points: tuple[Point, ...]

    @property
    def seconds(self) -> list[float]:
        """Processor time of each."""
        return [point.seconds for point in self.points]

    @property
    def power(self) -> fit.Power | None:
        """How time grows."""
        return fit.power(self.sizes, self.seconds)

    @property
    def faster_than_linear(self) -> bool:
        """Whether that is a bug."""
        return self.power is not None and not self.power.linear


def measure(name: str, size: int, folder: str) -> Point:
    """One point, in a process of its own with BLAS at one thread."""
    paths = [str(ROOT), *filter(None, sys.path)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    call = [sys.executable, "-m", "benchmarks.scale_points", name, str(size), folder]
    done = subprocess.run(call, stdout=subprocess.PIPE, env=environment, check=True, text=True)
    return Point(**json.loads(done.stdout))


def curves(axis: str, most: float, point: Measure, folder: str) -> list[Curve]:
    """All curves of an axis, up to a size; what points share is kept in a folder."""
    found = []
    for name, sizes in AXES[axis].items():
        kept = tuple(int(size) for size in sizes if size <= most)
        found.append(Curve(name, kept, tuple(point(name, size, folder) for size in kept)))
    return found


def table(axis: str, found: Sequence[Curve]) -> list[str]:
    """A row per point, then a row per curve."""
    forwards = any(p.forwards for c in found for p in c.points)
    sizes = any(p.size for c in found for p in c.points)
    visible = any(p.visible == p.visible for c in found for p in c.points)
    heads = [axis, "what", "seconds", "peak MB"]
    heads += ["forwards"] * forwards + ["one wrong element shows from"] * visible
    heads += ["written MB"] * sizes
    lines = [_row(heads), "|---:|---|" + "---:|" * (len(heads) - 2)]
    for curve in found:
        for size, point in zip(curve.sizes, curve.points, strict=True):
            cells = [f"{size:,}", curve.name, f"{point.seconds:.3g}", f"{point.peak:,.0f}"]
            cells += [f"{point.forwards:,}"] * forwards
            cells += [f"{point.visible:.1g}" if point.visible == point.visible else ""] * visible
            cells += [f"{point.size:,.2f}" if point.size else ""] * sizes
            lines.append(_row(cells))
    return [*lines, "", *fits(axis, found)]


def fits(axis: str, found: Sequence[Curve]) -> list[str]:
    """How each curve grows."""
    one = axis.removesuffix("s")
    heads = ["what", f"time ∝ {axis}^k", "start, s", f"each {one}, µs", f"memory, bytes a {one}"]
    lines = [_row(heads), "|---|---:|---:|---:|---:|"]
    for curve in found:
        line, power = fit.line(curve.sizes, curve.seconds), curve.power
        peaks = [1e6 * point.peak for point in curve.points]
        grown = (peaks[-1] - peaks[0]) / max(curve.sizes[-1] - curve.sizes[0], 1)
        lines.append(
            _row([
                curve.name,
                "no growth to speak of" if power is None else str(power),
                f"{max(line.start, 0.0):.2g}",
                f"{1e6 * line.each:.3g}",
                f"{grown:,.1f}",
            ])
        )  # fmt: skip
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def complaints(found: Sequence[Curve]) -> list[str]:
    """What is a bug."""
    fast = [
        f"{curve.name} grows faster than linearly: {curve.power}"
        for curve in found
        if curve.faster_than_linear
    ]
    large = [
        f"{curve.name} of {size:,} takes {point.peak:,.0f} MB"
        for curve in found
        for size, point in zip(curve.sizes, curve.points, strict=True)
        if point.peak > PEAK
    ]
    return fast + large


def main(arguments: Sequence[str] | None = None, point: Measure = measure) -> int:
    """Measure and print; 1 where something grows faster than linearly, or takes too much."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--axis", action="append", choices=[*AXES], help="repeat for several")
    parser.add_argument("--quick", action="store_true", help="small sizes alone")
    parser.add_argument("--most", type=float, default=float("inf"), metavar="N", help="no larger")
    parser.add_argument("-o", type=Path, metavar="FILE", help="write the tables there, too")
    given = parser.parse_args(arguments)
    lines: list[str] = []
    wrong: list[str] = []
    for axis in given.axis or AXES:
        most = min(given.most, QUICK[axis]) if given.quick else given.most
        with tempfile.TemporaryDirectory() as folder:
            found = curves(axis, most, point, folder)
        wrong += complaints(found)
        lines += [f"### {axis.capitalize()}", "", *table(axis, found), ""]
    lines += wrong or ["Nothing grows faster than linearly."]
    text = "\n".join(lines)
    print(text)
    if given.o:
        given.o.write_text(f"{text}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
