"""Operators of a line each, and wrong backward passes of them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gradcheck import Mutant, OpSpec, Sample, Suite
from gradcheck.judge.operator import CaseTruth
from gradcheck.power.attack import Target
from gradcheck.spec.suite import Case


def square(xp, x):
    return x * x


def double(xp, ct, x):
    return 2 * ct * x


def typical(draw):
    return (draw.signed(3),)


def op(name="square", forward=square, vjp=double, signature="()->()", options=(), **samples):
    """An operator with the samples given: functions of a draw, or whole samples."""
    drawn = tuple(
        s if isinstance(s, Sample) else Sample(name=n, primals=s, hunts="a factor")
        for n, s in (samples or {"typical": typical}).items()
    )
    return OpSpec(
        name=name, signature=signature, forward=forward, vjp=vjp, samples=drawn, formula="x^2",
        source="here", **dict(options),
    )  # fmt: skip


def mutant(vjp=None, name="wrong", **options):
    """A mutant of `square`, caught by `typical` unless it is said to be equivalent."""
    usual = {"op": "square", "label": "F", "says": "It is wrong."}
    usual["killer"] = "" if "equivalent" in options else "typical"
    return Mutant(name=name, vjp=vjp, **{**usual, **options})


def target(spec, dtype="float64", sample=0):
    """One sample of an operator in one dtype, to be attacked."""
    here, beside = (
        Case(spec, spec.dialects[0], spec.samples[sample], seed, "tests") for seed in (0, 1)
    )
    return Target(CaseTruth(here), beside, dtype)


@pytest.fixture(scope="session")
def make():
    """Builders: `make.op`, `make.mutant`, `make.target`."""
    return SimpleNamespace(op=op, mutant=mutant, target=target, double=double)


@pytest.fixture
def suite_of(monkeypatch):
    """Make a module `user` with a SUITE of operators and mutants; returns the suite."""

    def build(operators, mutants=None, **more):
        suite = Suite("mine", "1", operators, mutants="" if mutants is None else "user:MUTANTS")
        module = ModuleType("user")
        vars(module).update(SUITE=suite, MUTANTS=mutants, **more)
        monkeypatch.setitem(sys.modules, "user", module)
        return suite

    return build
