from unittest import SkipTest

import numpy as np
import pytest

import gradcheck
from gradcheck import CheckFailed
from gradcheck.errors import UsageError
from tests.testing.given import NODE, given


def silu(**said):
    said = {"samples": "typical", "dtypes": "float64", **said}
    return given(gradcheck.cases_of("silu", suite="gradcheck_cases:SUITE", **said))


class Silu:
    @staticmethod
    def vjp(ct, x):
        s = 1 / (1 + np.exp(-x))
        return ct * (s + x * s * (1 - s))


def test_a_right_backward_of_the_suites_operator_keeps_its_contract_too():
    (case,) = silu()
    case.check(Silu)
    parts = {r.finding.part.value for r in case.results}
    assert parts == {"gradient", "contract"}
    assert len(case.results) > 5
    case.end()
    (bare,) = silu(contract=False)
    bare.check(vjp=Silu.vjp)
    assert {r.finding.part.value for r in bare.results} == {"gradient"}


def test_a_wrong_one_is_diagnosed_and_repeated_by_pytest():
    (case,) = silu()
    with pytest.raises(CheckFailed) as caught:
        case.check(vjp=lambda ct, x: -Silu.vjp(ct, x))
    assert caught.value.lead.startswith("dx: sign: dx has the wrong sign")
    assert f"\n  run: pytest '{NODE}'" in str(caught.value)
    assert "gradcheck repro" not in str(caught.value)
    assert {r.case.implementation for r in case.results} == {"tests/test_x.py::test_y"}


def test_a_broken_contract_fails():
    (case,) = silu()
    with pytest.raises(CheckFailed, match=r"· side condition scaling .*\n.*not linear"):
        case.check(vjp=lambda ct, x: Silu.vjp(np.where(abs(ct) > 1e-9, ct, 0), x))


def test_a_forward_that_is_wrong_fails():
    (case,) = silu()
    with pytest.raises(
        CheckFailed, match=r"· forward .*\n  it computes something else than silu: "
    ):
        case.check(lambda x: x, Silu.vjp)


def test_an_attribute_that_is_not_taken_is_skipped_not_passed():
    cases = given(
        gradcheck.cases_of(
            "rms_norm/weight", suite="gradcheck_cases:SUITE", samples=["typical", "eps-*"],
            dtypes="float64", contract=False,
        )
    )  # fmt: skip

    def vjp(ct, x, w):
        r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        n, g = x * r, ct * w
        return r * (g - n * (g * n).mean(-1, keepdims=True)), (ct * n).sum(0)

    typical, other = cases
    typical.check(vjp=vjp)
    with pytest.raises(SkipTest, match="UNSUPPORTED: vjp takes no 'eps'"):
        other.check(vjp=vjp)


def test_nothing_to_judge_is_refused():
    (case,) = silu()
    for entry in (None, {}, Silu.vjp):
        with pytest.raises(UsageError, match="has no vjp; pass case"):
            case.check(entry)
