"""What passes for a right gradient in a script is what the judgement passes, and nothing else."""

import numpy as np
import pytest

from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator import CaseTruth, Unsuitable, judge_case
from gradcheck.numerics.arrays import as_tuple
from gradcheck.report.scripts.point import (
    accepted,
    cotangent_of,
    primals_of,
    step_of,
    whole,
    worst_of,
)
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec import Slack

DTYPES = ("float64", "float32", "float16", "bfloat16")
OPS = ("softmax", "rms_norm", "relu", "clamp", "max", "get_rows", "logsumexp", "lstm_cell")


def right(passes, got, want):
    with np.errstate(all="ignore"):
        near = passes.nearest(got)
        size = np.maximum(np.abs(got), np.where(np.isfinite(want), np.abs(want), 0.0))
        limit = passes.room + passes.rtol * size
        each = (np.abs(got - near) <= limit) | (got == near)
        slopes = passes.along @ got.reshape(-1)
        blur = np.abs(passes.along) @ limit.reshape(-1)
    together = (slopes >= passes.least - blur) & (slopes <= passes.most + blur)
    return bool(each.all() and together.all())


def passed(name):
    return Finding(name=name, verdict=Verdict.PASS)


@pytest.mark.suite(keep=5, rest=6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_the_reference_passes_and_what_is_off_does_not(suite, op, dtype):
    seen = 0
    for case in suite.cases([op])[::5]:
        for name, primal in zip(case.primal_names, case.primals, strict=True):
            if primal.dtype.kind != "f" or not 0 < primal.size < 100:
                continue
            try:
                found = whole(case, Reference(), dtype, passed(name))
                passes = accepted(found)
            except Unsuitable:
                continue
            seen += 1
            got = found.got
            assert right(passes, got, found.want)
            assert not right(passes, np.full_like(got, np.nan), found.want)
            if np.isfinite(got).all() and not passes.kinked and np.abs(got).max() > 1e-3:
                # Where rounding may cost as much as the gradient, the judgement is INCONCLUSIVE.
                if passes.room.max() < 0.3 * np.abs(got).max():
                    assert not right(passes, -2 * got, found.want)
                if dtype in ("float64", "float32"):  # the others are judged more coarsely
                    assert not right(passes, got * (1 + 1e-2), found.want)
                    assert not right(passes, got + 1e-2 * np.abs(got).max(), found.want)
    assert seen


class Doubled:
    name = "doubled"

    def bind(self, case, dtype):
        def vjp(ct, *primals, **attrs):
            bound = Reference().bind(case, dtype)
            return tuple(2 * g for g in as_tuple(bound.vjp(ct, *primals, **attrs)))

        return Bound(vjp=vjp, forward=None, attrs=case.attrs)


def test_the_case_as_it_is_shows_its_worst_element(suite):
    (case,) = suite.cases(["softmax"], samples=["typical"])
    (finding,) = judge_case(CaseTruth(case), Doubled(), "float64")
    found = whole(case, Doubled(), "float64", finding)
    assert found.case is case
    assert found.got == pytest.approx(2 * found.want, rel=1e-12)
    assert found.got[finding.top.index] == finding.top.got
    assert found.want[finding.top.index] == finding.top.want
    assert worst_of(found) == finding.top.index or finding.top.cotangent != "normal"
    assert [p.dtype for p in (*primals_of(found).values(), *cotangent_of(found))] == ["float64"] * 2


def test_a_wider_bound_that_the_code_asks_for_is_granted(suite):
    (case,) = suite.cases(["softmax"], samples=["typical"])
    found = whole(case, Reference(), "float64", passed("x"))
    slack = Slack(ulp=1e10, because="a table in half precision")
    assert (accepted(found, slack=slack).room > 2 * accepted(found).room).all()


def test_a_convention_narrows_what_is_right_on_a_kink(suite):
    (case,) = suite.cases(["relu"], samples=["kink"])
    found = whole(case, Reference(), "float64", passed("x"))
    wide, narrow = accepted(found), accepted(found, convention="PyTorch")
    on = case.primals[0] == 0
    assert wide.kinked
    assert not narrow.kinked
    assert (wide.low < wide.high)[on].all()
    assert not (wide.low < wide.high)[~on].any()


def test_the_step_of_a_difference_fits_the_function(suite):
    (case,) = suite.cases(["tanh"], samples=["typical"])
    found = whole(case, Reference(), "float64", passed("x"))
    index = (0, 1)
    for computes, error in (("float64", 1e-8), ("float32", 1e-2)):
        step = step_of(found, index, computes)
        x = case.primals[0][index]
        slope = (np.tanh(x + step) - np.tanh(x - step)) / (2 * step) * found.cotangent[0][index]
        assert slope == pytest.approx(found.want[index], rel=error)
    assert step_of(found, index, "float32") > step_of(found, index, "float64")
