"""Runs as they come: by implementation, then case by case."""

from types import SimpleNamespace

import pytest

from gradcheck.results.case_result import Kind
from gradcheck.results.run import Header, Run, digest_of
from gradcheck.results.verdict import Verdict
from tests.case_results import case_result

OPS = ("relu", "tanh", "exp", "softmax", "rms_norm", "silu", "gelu")


def result(op="relu", dtype="float64", output="x", *, verdict="pass", whose="reference", **changes):
    plain = {
        "name": f"{op}/default/typical/{dtype}", "hash": f"{len(op):04}", "seed": 0,
        "repro": f"gradcheck repro {op}/default/typical/{dtype}", "compared": 3,
    }  # fmt: skip
    return case_result(
        op=op, dialect="default", sample="typical", dtype=dtype, output=output,
        implementation=whose, verdict=Verdict(verdict), **{**plain, **changes},
    )  # fmt: skip


def run(*results, **changes):
    header = {
        "version": "0.1.0", "suite": "builtin", "suite_version": "2026.11", "seed": 0,
        "implementations": ("reference",), "dtypes": ("float64", "float32"), "numpy": "2.4.6",
    }  # fmt: skip
    header |= {key: changes.pop(key) for key in [*changes] if key in Header.__slots__}
    header.setdefault("cases", digest_of(results))
    return Run(header=Header(**header), results=results, **changes)


def whole(ops=OPS, implementations=("reference",), **changes):
    """A run of some operators, two results each in two dtypes."""
    results = [
        result(op, dtype, output, whose=whose, kind=Kind.OPERATOR)
        for whose in implementations
        for op in ops
        for dtype in ("float64", "float32")
        for output in ("forward", "x")
    ]
    return run(*results, implementations=implementations, **changes)


@pytest.fixture(scope="session")
def make():
    """Builders: `make.result`, `make.run`, `make.whole`; `make.ops` are the operators."""
    return SimpleNamespace(result=result, run=run, whole=whole, ops=OPS)
