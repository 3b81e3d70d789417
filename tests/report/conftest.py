"""Runs to render: passing, failing in every way, hostile, empty, of several implementations."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from gradcheck.record import Header, Miss, Record, Run
from gradcheck.verdict import Verdict

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>|`x`**\n\x1b[31m\x00\ud800\u202e&'
DTYPES = ("float64", "float32")
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def miss(**changes):
    got = {"index": (1, 3), "got": 0.123456, "want": 0.1234, "bound": 1.234e-9,
           "error_bar": 1e-20, "ulp": 4.0e9, "cotangent": "normal-0"}  # fmt: skip
    got.update(changes)
    got.setdefault("error", abs(got["got"] - got["want"]))
    return Miss(**got)


def result(
    op="rms_norm", output="x", verdict=Verdict.PASS, *, dialect="weight", sample="typical",
    dtype="float64", implementation="reference", **changes,
):  # fmt: skip
    name = f"{op}/{dialect}/{sample}/{dtype}"
    selection = f"--op {op} --dialect {dialect} --sample {sample} --dtype {dtype}"
    plain = {
        "name": f"{name}#a1b2:{output}",
        "hash": "a1b2",
        "seed": 0,
        "repro": f"gradcheck run {selection}",
        "hunts": "a missing factor 1/n in the mean",
    }
    if verdict is Verdict.PASS:
        eps = EPS[dtype]
        plain["compared"] = 24
        plain["worst"] = (miss(got=0.5 + eps, want=0.5, error=eps, bound=32 * eps, ulp=1.0),)
    elif verdict is Verdict.FAIL:
        plain.update(
            compared=24,
            failed=3,
            reason="3 of 24 elements are outside their bound",
            worst=(miss(),),
        )
    return Record(
        op=op, dialect=dialect, sample=sample, dtype=dtype, output=output, verdict=verdict,
        implementation=implementation, **{**plain, **changes},
    )  # fmt: skip


def run(*results, **changes):
    header = {
        "version": "0.1.0",
        "suite": "builtin",
        "suite_version": "2026.11",
        "implementations": ("reference",),
        "dtypes": DTYPES,
        "seed": 0,
        "python": "3.11.2",
        "platform": "Linux x86_64",
        "numpy": "2.1.0",
        "cases": "",
    }
    for name in list(changes):
        if name in header:
            header[name] = changes.pop(name)
    return Run(header=Header(**header), results=tuple(results), **changes)


@pytest.fixture(scope="session")
def make():
    """Builders: `make.miss`, `make.result`, `make.run`; `make.hostile` is a text."""
    return SimpleNamespace(miss=miss, result=result, run=run, hostile=HOSTILE)


def passing_results(implementation="reference"):
    return [
        result(op, output, sample=sample, dtype=dtype, implementation=implementation)
        for op, outputs in (("rms_norm", ("x", "weight")), ("softmax", ("x",)))
        for sample in ("typical", "tiny")
        for dtype in DTYPES
        for output in outputs
    ]


@pytest.fixture
def passing():
    return run(*passing_results())


@pytest.fixture
def failing():
    """Every verdict, and every way in which a number can be none."""
    v = Verdict
    nan = miss(got=math.nan, error=math.nan, ulp=None)
    inf = miss(got=-math.inf, error=math.inf, ulp=math.inf)
    return run(
        *passing_results(),
        result("rms_norm", "x", v.FAIL, sample="offset"),
        result("gelu", "x", v.FAIL, dialect="tanh", worst=(nan,), reason="got nan"),
        result("gelu", "x", v.FAIL, dialect="tanh", sample="far", worst=(inf,), reason="-inf"),
        result("gelu", "x", v.FAIL, dialect="erf", reason="shape (3,), want (3, 1)", worst=()),
        result("relu", "x", v.MISSING, dialect="default", reason="no gradient for x"),
        result("relu", "x", v.CRASH, sample="big", reason="SIGSEGV after 0.2 s"),
        result("relu", "x", v.TIMEOUT, sample="huge", reason="no answer within 10 s"),
        result("relu", "x", v.NOTRUN, sample="later", reason="too many crashes"),
        result("abs", "x", v.ERROR, reason="ValueError: bad | shape"),
        result("abs", "x", v.INVALID, sample="weak", reason="rejects no impostor"),
        result("exp", "x", v.INCONCLUSIVE, compared=24, unresolved=7,
               smallest_visible_error=0.0123, worst=(miss(error_bar=1e-3),)),
        result("sort", "x", v.UNSUPPORTED, reason="no axis but the last"),
        result("sort", "x", v.UNSUPPORTED, sample="tiny", reason="no axis but the last"),
        result("conv", "x", v.UNBOUND),
        result("einsum", "x", v.SKIP, reason="left out by -k"),
    )  # fmt: skip


@pytest.fixture
def empty():
    return run()


@pytest.fixture
def several():
    return run(
        *passing_results(),
        *passing_results("mine"),
        result("softmax", "x", Verdict.FAIL, implementation="mine", sample="big"),
        implementations=("reference", "mine"),
    )


@pytest.fixture
def hostile():
    """Foreign text everywhere that it can stand."""
    found = [
        result(
            HOSTILE, HOSTILE, verdict, dialect=HOSTILE, sample=HOSTILE, implementation=HOSTILE,
            reason=HOSTILE, hunts=HOSTILE, repro=HOSTILE, worst=(miss(cotangent=HOSTILE),),
        )
        for verdict in Verdict
    ]  # fmt: skip
    return run(
        *found,
        implementations=(HOSTILE,), suite=HOSTILE, troubles=(HOSTILE,), platform=HOSTILE,
    )  # fmt: skip


@pytest.fixture(params=["passing", "failing", "empty", "several", "hostile"])
def any_run(request):
    return request.getfixturevalue(request.param)
