"""A failure against forward's differences stands where shorter steps confirm it."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.compare import TOLERANCES, Tolerance, compare
from gradcheck.judge.forward_mode import ForwardMode
from gradcheck.numerics.direction import FINER
from gradcheck.numerics.estimator import Estimate
from gradcheck.results.verdict import Verdict

F64 = TOLERANCES["float64"]
BY_HAND = Tolerance("float64", u=2.0**-53, rtol=0.0, negligible_scale=0.0, underflow=1.0)


def looked_closer(value, bar):
    """(truth, bar) for a jvp of 8 that failed against 0, where shorter steps say otherwise."""
    one = np.ones((1, 1))
    estimate = Estimate(
        value=0.0 * one, bar=0.1 * one, scale=0.0 * one, terms=np.ones(1, int),
        settled=np.zeros((1, 1), bool),
    )  # fmt: skip
    found = compare(8.0 * one, estimate, BY_HAND)
    assert found.failed.all()
    asked = []

    def slopes(direction, finer):
        asked.append(finer)
        return SimpleNamespace(value=np.array([value]), bar=np.array([bar]))

    ForwardMode._look_closer(SimpleNamespace(_forward=SimpleNamespace(slopes=slopes)), found, [0])
    assert asked == [*FINER]
    return float(estimate.value[0, 0]), float(estimate.bar[0, 0])


@pytest.mark.parametrize(
    ("value", "bar", "truth"),
    [
        (7.5, 0.1, (7.5, 0.1)),  # they agree with the jvp, and could have shown the error
        (6.5, 0.25, (6.5, 0.25)),  # 1.5 away: a bound of 1, and twice the bar
        (6.1, 0.1, (0.0, 0.1)),  # not within both: it is confirmed
        (0.0, 0.1, (0.0, 0.1)),
        (8.0, 1.1, (0.0, np.inf)),  # they could not have shown a fourth of the error
    ],
)
def test_shorter_steps_overrule_confirm_or_leave_it_unknown(value, bar, truth):
    assert looked_closer(value, bar) == truth


@pytest.mark.parametrize(("lost", "verdict"), [(3e-6, Verdict.PASS), (1e-6, Verdict.FAIL)])
def test_a_dot_product_may_be_off_by_what_neighbouring_points_show_to_be_lost(lost, verdict):
    """And by no more: ⟨v, J u⟩ is 1 + 2e-6, ⟨Jᵀv, u⟩ is 1."""
    one = np.ones((1, 1))
    of = SimpleNamespace(
        cts=SimpleNamespace(flat=one),
        tolerance=F64,
        _slopes=lambda tangents: [SimpleNamespace(reach=np.zeros(1))],
        _lost=lambda v, u, again: np.array([lost]),
    )
    tangents = SimpleNamespace(flat=one)
    found = ForwardMode._against_vjp(of, (1 + 2e-6) * one, [one], tangents, None)
    assert found.verdict is verdict
    exact = ForwardMode._against_vjp(of, one, [one], tangents, None)
    assert (exact.verdict, exact.bound < 1e-12) == (Verdict.PASS, True)
