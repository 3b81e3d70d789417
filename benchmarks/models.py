"""Models: what certifying, judging and expanding them costs, in multiples of one forward.

`python -m benchmarks.models` takes each model at its sizes (`--size GLOB`, `--model GLOB`), in CPU
time of this process, medians, and prints a table as Markdown. A forward is the program in float64;
"50 digits" is the truth with its certificate and the stages', float64 and float32 are the
judgements of the reference in these dtypes, with the truth known, and "curve" is the Taylor
remainder of one tensor.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gradcheck_cases import SUITE

from benchmarks.table import head, line, number
from gradcheck.implementations.load import load
from gradcheck.judge.evidence_curves import TaylorLine
from gradcheck.judge.model import CERTIFICATE, judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.direction import Along, draw_direction
from gradcheck.numerics.evaluate import Point
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Whole

REFERENCE = load("reference", SUITE)
HEADS = ("<model", "parameters", "tensors", "forward, ms", "backward", "50 digits", "float64",
         "float32", "curve")  # fmt: skip


def seconds(call: Callable[[], Any], count: int) -> float:
    """CPU time of a call, the median of several."""
    times = []
    for _ in range(count):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def row(case: ModelCase, count: int) -> list[str]:
    """One line of the table."""
    program, given = case.program, case.given
    values = program.forward(F64, given)
    forward = seconds(lambda: program.forward(F64, given), 10 * count)
    backward = seconds(lambda: program.backward(F64, values, np.asarray(1.0)), 10 * count)

    def certify() -> ModelTruth:
        truth = ModelTruth(case)
        judge_model(truth, REFERENCE, CERTIFICATE)
        return truth

    digits = seconds(certify, count)
    truth = certify()
    name = truth.floating[0]
    tensors = len(truth.floating)
    gradient = truth.gradient(name).value.reshape(truth.params[name].shape)

    def known(dtype: str) -> float:
        judge_model(truth, REFERENCE, dtype)  # what a truth keeps is made on the first call
        return seconds(lambda: judge_model(truth, REFERENCE, dtype), count)

    whole, params = Whole(program, case.inputs), tuple(truth.params.values())
    along = Along(Point(lambda *moved: (whole.forward(F64, *moved),), params))
    index = list(truth.params).index(name)

    def curve() -> None:
        direction = draw_direction(case.draw("direction"), params, {index})
        gradients = [gradient if i == index else None for i in range(len(params))]
        TaylorLine(along, direction, np.ones(1)).left_by(gradients)

    ratios = [backward, digits if truth.exact else None, known("float64"), known("float32"),
              seconds(curve, count)]  # fmt: skip
    size = sum(p.size for p in truth.params.values())
    shown = [number(None if r is None else r / forward) for r in ratios]
    return [case.name, f"{size:,}", str(tensors), f"{1000 * forward:.2f}", *shown]


def main() -> None:
    """Measure every model that is asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=3, help="calls of each kind; default 3")
    for flag in ("model", "size"):
        parser.add_argument(f"--{flag}", action="append", default=[], metavar="GLOB")
    asked = parser.parse_args()
    print(head(HEADS))
    for case in SUITE.model_cases(asked.model, sizes=asked.size):
        print(line(row(case, asked.n)), flush=True)


if __name__ == "__main__":
    main()
