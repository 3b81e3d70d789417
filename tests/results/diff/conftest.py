"""Runs to compare: results by output, verdict and how far they are off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gradcheck.results.diff.change import Side
from gradcheck.results.diff.compare import compared
from gradcheck.results.finding import Diagnosis, Miss, Part
from gradcheck.results.run import Header, Run
from gradcheck.results.verdict import Verdict
from tests.case_results import case_result

BOUND = 1e-8


def off(times, bound=BOUND):
    """An element whose error is so many times its bound."""
    return Miss(index=(0,), got=1.0, want=1.0, error=times * bound, bound=bound, error_bar=1e-20,
                ulp=None, cotangent="normal")  # fmt: skip


def result(output="x", verdict=Verdict.PASS, times=None, *, op="silu", sample="typical",
           dtype="float64", implementation="mine", label="", **changes):  # fmt: skip
    """One result; `times` is its error in multiples of the bound, `label` its diagnosis."""
    plain = {
        "name": f"{op}/default/{sample}/{dtype}", "hash": "a1b2", "seed": 0, "compared": 3,
        "worst": () if times is None else (off(times),), "repro": f"gradcheck repro {op}",
        "diagnosis": Diagnosis(label=label, says="it is off", rule="") if label else None,
    }  # fmt: skip
    return case_result(
        op=op, dialect="default", sample=sample, dtype=dtype, output=output, verdict=verdict,
        implementation=implementation, **{**plain, **changes},
    )  # fmt: skip


def run(*results, complete=True, gate=None, troubles=(), **header):
    """A run; its implementations are those of its results."""
    names = tuple(dict.fromkeys(r.case.implementation for r in results)) or ("mine",)
    plain = {"version": "0.1.0", "suite": "builtin", "suite_version": "2026.11", "seed": 0,
             "implementations": names, "dtypes": ("float64", "float32"), "python": "3.11.2",
             "platform": "Linux x86_64", "numpy": "2.1.0"}  # fmt: skip
    return Run(header=Header(**{**plain, **header}), results=results, complete=complete, gate=gate,
               troubles=troubles)  # fmt: skip


def against(old, new, pairs=None, factor=2.0):
    """The difference between two runs, by default of implementations of the same name."""
    names = pairs or {name: name for name in old.header.implementations}
    return compared(Side(name="old.json", run=old), Side(name="new.json", run=new), names, factor)


@pytest.fixture(scope="session")
def make():
    """Builders: `make.result`, `make.run`, `make.diff`, …"""

    def one(old, new, factor=2.0, **headers):
        """What became of one result, None where nothing did; None stands for one that is not."""
        runs = [run(*filter(None, [side]), **headers) for side in (old, new)]
        found = against(*runs, {"mine": "mine"}, factor)
        assert len(found.entries) + found.same == 1
        return found.entries[0] if found.entries else None

    def contract(name, verdict=Verdict.PASS, **changes):
        return result(name, verdict, part=Part.CONTRACT, **changes)

    return SimpleNamespace(
        result=result, run=run, diff=against, one=one, off=off, contract=contract
    )
