"""Right and wrong implementations, and what a property is asked of."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.mutants.contract import MUTANTS

from gradcheck.implementations.python import bound_operator
from gradcheck.implementations.reference import Reference
from gradcheck.judge.contract.subject import Subject
from gradcheck.judge.operator import CaseTruth


class Entry:
    """An object of a user's table, as an implementation of everything."""

    name = "kernels:IMPL"

    def __init__(self, entry):
        self.entry = entry

    def bind(self, case, dtype):
        fixed = {**case.spec.defaults, **case.dialect.attrs}
        return bound_operator(self.entry, case.attrs, fixed, case.primal_names)


def case_of(name):
    op, dialect, sample = name.split("/")
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


@pytest.fixture
def subject():
    """`subject(entry)` of rms_norm, or of another case; the reference's, without an entry."""

    def of(entry=None, name="rms_norm/weight/typical", dtype="float32"):
        low = dtype if dtype in ("float16", "bfloat16") else ""
        truth = CaseTruth(case_of(name), low=low)
        return Subject(truth, Reference() if entry is None else Entry(entry), dtype)

    return of


@pytest.fixture
def mutant():
    """`mutant(name)`: a new instance of one of the contract mutants of rms_norm."""
    by_name = {m.name: m for m in MUTANTS}
    return lambda name: by_name[name].make()


@pytest.fixture
def right(mutant):
    """The right one."""
    return mutant("right")


@pytest.fixture
def silu():
    """A right silu of one primal, with nothing but a vjp."""

    def vjp(ct, x):
        s = 1 / (1 + np.exp(-x))
        return ct * s * (1 + x * (1 - s))

    return SimpleNamespace(vjp=vjp)
