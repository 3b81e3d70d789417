"""Taylor curves of the gradients of a case: for whom there is one, and what it shows."""

import dataclasses

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arrays import as_tuple
from gradcheck.results.verdict import Verdict


class Spoiled:
    """The reference, with one gradient changed."""

    name = "spoiled"

    def __init__(self, change):
        self.change = change

    def bind(self, case, dtype):
        bound = Reference().bind(case, dtype)

        def vjp(ct, *primals, **attrs):
            first, *rest = as_tuple(bound.vjp(ct, *primals, **attrs))
            return (self.change(first), *rest)

        return Bound(vjp=vjp, forward=None, attrs=bound.attrs)


def truth_of(op, sample="typical", dialect=None):
    cases = SUITE.cases([op], [dialect] if dialect else [], [sample])
    return CaseTruth(cases[0])


def judged(truth, binding=None, dtype="float64"):
    found = judge_case(truth, binding or Reference(), dtype, taylor=True)
    return {finding.name: finding for finding in found}


def test_nobody_gets_a_curve_unasked():
    found = judge_case(truth_of("softmax"), Reference(), "float64")
    assert len(found) == 2
    assert all(finding.taylor is None for finding in found)


def test_what_is_not_a_gradient_has_no_curve():
    found = judged(truth_of("softmax"), Spoiled(lambda g: g[..., :-1]))
    assert found["x"].verdict is Verdict.FAIL
    assert found["x"].taylor is None
    found = judged(truth_of("softmax"), Spoiled(lambda g: g * np.nan))
    assert found["x"].verdict is Verdict.FAIL
    assert found["x"].taylor is None
    assert judged(truth_of("softmax"))["forward"].taylor is None


def test_where_there_are_no_elements_there_is_no_curve():
    found = judged(truth_of("softcap_back", "empty"))
    assert all(finding.taylor is None for finding in found.values())


@pytest.mark.parametrize("op", ["softmax", "rms_norm", "gelu", "matmul", "cross_entropy"])
def test_the_curve_of_a_right_gradient_finds_no_error(op):
    for case in SUITE.cases([op])[:12]:
        truth = CaseTruth(case)
        found = judged(truth)
        for i in truth.floating:
            curve = found[truth.names[i]].taylor
            if curve is None:
                assert truth.primals[i].size == 0
            else:
                assert abs(curve.intercept) <= curve.error_bar < np.inf


def test_a_wrong_gradient_has_an_intercept_and_the_verdict_stays_the_same():
    truth, wrong = truth_of("softmax"), Spoiled(lambda g: g * (1 + 1e-6))
    found = judged(truth, wrong)["x"]
    curve = found.taylor
    assert curve.intercept == pytest.approx(-1e-6 * curve.product, rel=1e-2)
    assert curve.error_bar <= 1e-3 * abs(curve.intercept)
    (plain,) = judge_case(truth, wrong, "float64")
    assert dataclasses.replace(found, taylor=None) == plain
    assert found.verdict is Verdict.FAIL


def test_float32_rounding_shows_as_the_error_that_it_is():
    curve = judged(truth_of("softmax"), dtype="float32")["x"].taylor
    assert curve.error_bar < abs(curve.intercept) <= 1e-6


@pytest.mark.parametrize(
    ("op", "sample"), [("relu", "kink"), ("relu", "beside"), ("clamp", "kink"), ("max", "ties")]
)
def test_elements_on_a_kink_or_beside_one_stay_where_they_are(op, sample):
    truth = truth_of(op, sample)
    near = truth.declared.near()[0]
    assert near.any()
    right = judged(truth)["x"].taylor
    anything = judged(truth, Spoiled(lambda g: np.where(near, 7.0, g)))["x"].taylor
    if near.all():
        assert right is None
        return
    assert abs(right.intercept) <= right.error_bar < 1e-9
    assert repr(anything) == repr(right)


def test_a_curve_depends_on_names_alone():
    both = truth_of("matmul")
    alone = truth_of("matmul")
    i = alone.floating[-1]
    found = judged(both)[both.names[i]].taylor
    certain = np.asarray(as_tuple(Reference().bind(alone.case, "float64").vjp(
        alone.cotangents.values[0][0], *alone.primals, **alone.case.attrs))[i])  # fmt: skip
    assert repr(alone.remainders.of(i, certain)) == repr(found)
