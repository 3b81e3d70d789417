"""Runs to render: passing, failing in every way, hostile, empty, of several implementations."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gradcheck.results.case_result import Kind
from gradcheck.results.finding import (
    Blame,
    Certificate,
    Diagnosis,
    Heat,
    Miss,
    Part,
    Taylor,
    VCurve,
)
from gradcheck.results.run import Header, Run
from gradcheck.results.verdict import Breach, Expected, Gate, Known, Problem, Verdict
from tests.case_results import case_result

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>|`x`**\n\x1b[31m\x00\ud800\u202e&'
DTYPES = ("float64", "float32")
EPS = {
    "mp50": 1e-50,
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}


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
        eps = EPS.get(dtype, EPS["float64"])
        plain["compared"] = 24
        plain["worst"] = (miss(got=0.5 + eps, want=0.5, error=eps, bound=32 * eps, ulp=1.0),)
    elif verdict is Verdict.FAIL:
        plain.update(
            compared=24,
            failed=3,
            reason="3 of 24 elements are outside their bound",
            worst=(miss(),),
        )
    return case_result(
        op=op, dialect=dialect, sample=sample, dtype=dtype, output=output, verdict=verdict,
        implementation=implementation, **{**plain, **changes},
    )  # fmt: skip


def of_model(output="wte", verdict=Verdict.PASS, *, part=Part.GRADIENT, size="tiny", **changes):
    """A result of a model: a parameter's gradient, or with another `part` a stage, the loss, …"""
    plain = {"op": "gpt2", "dialect": "default", "sample": size, "dtype": "float64",
             "hunts": f"what {size} shows"} | changes  # fmt: skip
    plain.setdefault("name", "/".join(plain[k] for k in ("op", "dialect", "sample", "dtype")))
    return result(output=output, verdict=verdict, kind=Kind.MODEL, part=part, **plain)


def blame(*stages, exact=True, **changes):
    plain = {"of": 25, "assumption": "one fault at a time"}
    return Blame(exact=exact, stages=stages, **{**plain, **changes})


def curve(intercept=0.0, **changes):
    """The remainders of a gradient whose directional derivative is off by `intercept`."""
    steps = tuple(2.0**-k for k in range(1, 9))
    rest = tuple(intercept + 0.1 * h * h for h in steps)
    whole = [2 * h * r for h, r in zip(steps, rest, strict=True)]
    slopes = tuple(math.log2(abs(a / b)) for a, b in itertools.pairwise(whole))
    plain = {"steps": steps, "remainders": rest, "slopes": slopes, "intercept": intercept,
             "error_bar": 1e-12, "linear": False, "product": 0.25, "noise": 1e-16}  # fmt: skip
    return Taylor(**{**plain, **changes})


def vcurve(off=0.01, **changes):
    """The V of a central difference: h²/8 of truncation, 1e-16/h of rounding."""
    steps = tuple(10.0 ** (-k / 2) for k in range(27))
    bars = tuple(4e-16 / h + 1e-15 for h in steps)
    errors = tuple(h * h / 8 + 1e-16 / h for h in steps)
    plain = {"index": (1, 3), "tensor": "x", "cotangent": "normal", "steps": steps,
             "errors": errors, "bars": bars, "off": off, "want": 0.1234, "bound": 1.2e-9,
             "error_bar": 1e-17}  # fmt: skip
    return VCurve(**{**plain, **changes})


def heat(rows=(".3.!", "9..0", "?..."), **changes):
    """A map of so many rows; without a `shape`, one whose cells are elements."""
    plain = {"rows": len(rows), "columns": len(rows[0]), "cells": "".join(rows),
             "shape": (len(rows), len(rows[0])), "cotangent": "normal"}  # fmt: skip
    return Heat(**{**plain, **changes})


def certificate(rejected=("zeros", "nan", "double"), blind=("stale",)):
    return Certificate(rejected=rejected, blind=blind)


def why(label="F", **changes):
    """A diagnosis; with an empty label, one that found no pattern."""
    plain = {
        "says": "dw is 1/3 of the right value" if label else "dw: no known pattern",
        "rule": "counts",
        "evidence": ("3 is the number of rows", "wrong in all 5 probes"),
    }
    return Diagnosis(label=label, **{**plain, **changes})


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
        "versions": {},
    }
    for name in list(changes):
        if name in header:
            header[name] = changes.pop(name)
    return Run(header=Header(**header), results=tuple(results), **changes)


@pytest.fixture(scope="session")
def make():
    """Builders: `make.miss`, `make.result`, `make.run`, …; `make.hostile` is a text."""
    return SimpleNamespace(
        miss=miss, result=result, run=run, hostile=HOSTILE, of_model=of_model, blame=blame,
        curve=curve, why=why, gated=gated, problem=problem, unpacked=unpacked, Part=Part,
        vcurve=vcurve, heat=heat, certificate=certificate,
    )  # fmt: skip


def unpacked(text):
    """What is packed in an HTML report: the index first, then the results, chunk by chunk."""
    found = re.findall("<template[^>]*>([^<]*)</template>", text)
    return [json.loads(zlib.decompress(base64.b64decode(data))) for data in found]


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


def model_results(implementation="reference", op="gpt2", names=("wte", "h.0.w", "ln_f.w")):
    """A model that passes: its loss, three gradients, two stages; at two sizes, in two dtypes."""
    return [
        of_model(output, part=part, size=size, dtype=dtype, implementation=implementation, op=op)
        for size in ("tiny", "large")
        for dtype in DTYPES
        for part, outputs in (
            (Part.VALUE, ("loss",)), (Part.GRADIENT, names), (Part.STAGE, ("embed", "ln_f")),
        )
        for output in outputs
    ]  # fmt: skip


@pytest.fixture
def model():
    """A model that passes, and an operator beside it."""
    return run(*passing_results(), *model_results())


@pytest.fixture
def faulty():
    """A model with a wrong stage, who is to blame for it, projections and Taylor curves."""
    v = Verdict
    suspects = blame("embed", "h.0.attn", exact=False, bounds=("ln_f.w", "wte"), round=2)
    return run(
        *model_results(),
        *model_results(op="llama"),
        of_model("wte", v.FAIL, size="odd", taylor=curve(1e-3)),
        of_model("embed", v.MISSING, part=Part.STAGE, size="odd", reason="no gradient for wpe"),
        of_model("h.0.attn", v.FAIL, part=Part.STAGE, size="odd",
                 worst=(miss(tensor="h.0.qkv"),)),
        of_model("ln_f.b", v.INCONCLUSIVE, size="odd", compared=3, unresolved=3, evaluations=26,
                 smallest_visible_error=0.25, worst=(miss(index=()),)),
        of_model("gradients", v.SKIP, size="huge", reason="too many parameters"),
        of_model("loss", part=Part.VALUE, size="odd",
                 blames=(blame("h.0.attn", names=("its dk lacks a factor",)), suspects)),
    )  # fmt: skip


@pytest.fixture
def explained():
    """A gradient with two diagnoses, one with none that is known, one lost, one never asked."""
    fail = Verdict.FAIL
    return run(
        *passing_results(),
        *(result(output="w", verdict=fail, sample=f"s{i}", diagnosis=why()) for i in range(5)),
        result(output="w", verdict=fail, sample="late", diagnosis=why("T", says="dw lacks a term")),
        result("gelu", "x", fail, diagnosis=why("", evidence=("the residual is 0.3",))),
        result("relu", "x", Verdict.MISSING, reason="no gradient for x",
               diagnosis=why("G", says="dx is lost", evidence=())),
        result("exp", "x", fail),
    )  # fmt: skip


@pytest.fixture
def evidenced():
    """Results with evidence of every kind, and numbers in it that are none."""
    fail, nan = Verdict.FAIL, math.nan
    lost = vcurve(nan, errors=(nan, math.inf, *[1e-3] * 25), bars=(nan, *[1e-4] * 26))
    return run(
        *passing_results(),
        result("gelu", "x", taylor=curve(), curve=vcurve(0.0), certificate=certificate()),
        result("gelu", "x", fail, sample="far", curve=vcurve(), heat=heat(),
               taylor=curve(1e-3), certificate=certificate(("nan",), ("zeros", "double"))),
        result("relu", "x", fail, curve=lost, heat=heat(("!",), shape=()),
               worst=(miss(index=(), got=nan, error=nan, ulp=None),)),
        result("exp", "x", Verdict.INCONCLUSIVE, curve=vcurve(1e-12, error_bar=1e-3),
               heat=heat(("??.",) * 32, shape=(16, 4, 9), cotangent=""), unresolved=7),
        of_model("wte", fail, heat=heat((".1",), shape=(64,))),
        of_model("h.0.attn", fail, part=Part.STAGE, heat=heat(),
                 worst=(miss(tensor="h.0.qkv"),)),
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
    accused = blame(
        HOSTILE, exact=False, assumption=HOSTILE, bounds=(HOSTILE, HOSTILE), names=(HOSTILE,)
    )
    found = [
        result(
            HOSTILE, HOSTILE, verdict, dialect=HOSTILE, sample=HOSTILE, implementation=HOSTILE,
            reason=HOSTILE, hunts=HOSTILE, repro=HOSTILE, evaluations=2, unresolved=1,
            worst=(miss(cotangent=HOSTILE, tensor=HOSTILE),), kind=kind, part=part,
            blames=(accused,), taylor=curve(), source=f"{HOSTILE}:7",
            diagnosis=why(label, says=HOSTILE, evidence=(HOSTILE, "")),
            curve=vcurve(tensor=HOSTILE, cotangent=HOSTILE), heat=heat(cotangent=HOSTILE),
            certificate=certificate((HOSTILE, "nan"), (f"{HOSTILE}2",)),
        )
        for verdict, label in zip(Verdict, itertools.cycle(("F", "", HOSTILE)), strict=False)
        for kind, part in (
            (Kind.OPERATOR, Part.GRADIENT), (Kind.MODEL, Part.GRADIENT), (Kind.MODEL, Part.STAGE),
        )
    ]  # fmt: skip
    return run(
        *found,
        implementations=(HOSTILE,), suite=HOSTILE, troubles=(HOSTILE,), platform=HOSTILE,
    )  # fmt: skip


def gated(run, marks, problems=(), warnings=(), reason="kept in half", file="known.toml"):
    """A run with what a baseline makes of it: per result how it stands, None for nothing."""
    results = {
        r.key: Expected(accepted=mark is Known.XFAIL, known=mark, entry=f"{file}:7", reason=reason)
        for r, mark in zip(run.results, marks, strict=True)
        if mark
    }
    gate = Gate(baseline=file, results=results, problems=tuple(problems), warnings=tuple(warnings))
    return replace(run, gate=gate)


def problem(breach=Breach.STALE, line=7, says="remove the entry", file="known.toml"):
    return Problem(breach=breach, file=file, line=line, says=says)


def stands(result):
    """Every failure that can be known is."""
    beyond = (Verdict.INVALID, Verdict.NOTRUN)
    verdict = result.finding.verdict
    return None if verdict.expected or verdict in beyond else Known.XFAIL


@pytest.fixture
def known(explained):
    """Failures of which all are known."""
    return gated(explained, map(stands, explained.results), warnings=("known.toml:7: many",))


@pytest.fixture
def outdated(failing):
    """Failures of which some are known, passes that are listed, and a line to correct of each."""
    marks = [Known.XPASS, *map(stands, failing.results[1:-6]), *[None] * 6]
    lines = [problem(breach, line) for line, breach in enumerate(Breach, 1)]
    return gated(failing, marks, [*lines, problem(Breach.UNLISTED, None)])


@pytest.fixture
def foreign(hostile):
    """Foreign text in a baseline."""
    lines = [problem(breach, file=HOSTILE, says=HOSTILE) for breach in Breach]
    marks = [stands(r) or (Known.XPASS if r.finding.verdict is Verdict.PASS else None)
             for r in hostile.results]  # fmt: skip
    return gated(hostile, marks, lines, (HOSTILE,), HOSTILE, HOSTILE)


RUNS = (
    "passing", "failing", "empty", "several", "hostile", "model", "faulty", "explained", "known",
    "outdated", "foreign", "evidenced",
)  # fmt: skip


@pytest.fixture(params=RUNS)
def any_run(request):
    return request.getfixturevalue(request.param)
