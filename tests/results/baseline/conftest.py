"""Runs to hold against baselines, baselines from their text, and a suite of names."""

from __future__ import annotations

import math
from datetime import date
from types import SimpleNamespace

import pytest

from gradcheck.results.baseline.apply import applied
from gradcheck.results.baseline.file import parsed
from gradcheck.results.baseline.match import Scope
from gradcheck.results.finding import Diagnosis, Miss
from gradcheck.results.run import Header, Run
from gradcheck.results.verdict import Verdict
from tests.case_results import case_result

SAMPLES = ("typical", "square", "tiny")
ENTRY = {
    "match": "rms_norm/weight/*/float32",
    "output": "dx",
    "verdict": "fail",
    "reason": "the mean is kept in half",
}
TODAY = date(2026, 11, 21)


def suite(cases=None, models=(), rules=()):
    """A suite of which only the names of its cases are known."""
    if cases is None:
        cases = [f"rms_norm/weight/{sample}" for sample in SAMPLES]

    def of(names):
        return lambda: [SimpleNamespace(name=name) for name in names]

    return SimpleNamespace(
        name="builtin", version="2026.11",
        cases=of(cases), model_cases=of(models), rule_cases=of(rules),
    )  # fmt: skip


def miss(error):
    """An element that is off by `error`, relative; NaN is no number at all."""
    got = 1.0 if math.isfinite(error) else error
    return Miss(index=(0,), got=got, want=1.0 - error, error=error, bound=1e-9, error_bar=1e-16,
                ulp=None, cotangent="normal")  # fmt: skip


def result(
    sample="typical", verdict=Verdict.PASS, output="x", *, error=None, label=None, **changes
):
    names = {"op": "rms_norm", "dialect": "weight", "dtype": "float32"}
    names |= {key: changes.pop(key) for key in [*names] if key in changes}
    if verdict == "fail" and error is None:
        error = 0.25
    plain = {
        "name": "/".join([names["op"], names["dialect"], sample, names["dtype"]]),
        "hash": "a1b2",
        "implementation": "mine",
        "seed": 0,
        "compared": 24,
        "repro": "gradcheck run",
        "worst": () if error is None else (miss(error),),
        "diagnosis": None if label is None else Diagnosis(label=label, says="dx is half of it"),
    }
    return case_result(sample=sample, output=output, verdict=Verdict(verdict), **names,
                  **{**plain, **changes})  # fmt: skip


def run(*results, **changes):
    header = {"implementations": ("mine",), "dtypes": ("float64", "float32"), "versions": {}}
    header |= {key: changes.pop(key) for key in [*header] if key in changes}
    head = Header(version="0.1.0", suite="builtin", suite_version="2026.11", seed=0, **header)
    return Run(header=head, results=results, **changes)


def toml(*entries, top="", plain=True):
    """A file of entries: each changes what an ordinary one says; None leaves a key out."""
    blocks = [top] if top else []
    for changes in entries:
        pairs = {**(ENTRY if plain else {}), **changes}
        lines = [f"{key} = {shown(of)}" for key, of in pairs.items() if of is not None]
        blocks.append("\n".join(["[[known]]", *lines, ""]))
    return "\n".join(blocks)


def shown(value):
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float, date)) else f'"{value}"'


def held(found, text, of=None, day=TODAY, name="known.toml"):
    """A run with what the text of a baseline makes of it."""
    baseline = parsed(text, name)
    return applied(found, baseline, Scope.of(of or suite(), baseline, found), day)


@pytest.fixture(scope="session")
def make():
    return SimpleNamespace(
        result=result, run=run, toml=toml, held=held, suite=suite, samples=SAMPLES, today=TODAY
    )
