"""Tables as a user writes them, without a file, and what is found about an entry."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from gradcheck_cases import SUITE

from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.spec.dtype_selection import LOW

TRUTHS = {}


def imported(table, read, name="kernels"):
    """What `read("NAME:IMPL")` gives while that names the table."""
    module = ModuleType(name)
    module.IMPL = table
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)
        return read(f"{name}:IMPL")


def case_of(op, dialect, sample="typical"):
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


def judged(binding, case, dtype="float64"):
    """Findings by name; what is true of a case is computed once."""
    low = dtype if dtype in LOW else ""
    key = case.name, low
    if key not in TRUTHS:
        TRUTHS[key] = CaseTruth.in_low(case, "", low) if low else CaseTruth(case)
    return {f.name: f for f in judge_case(TRUTHS[key], binding, dtype)}


def verdicts(*args):
    return {name: finding.verdict.value for name, finding in judged(*args).items()}
