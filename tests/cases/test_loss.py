import numpy as np
import pytest
from gradcheck_cases.attention import softmax
from gradcheck_cases.loss import (
    binary_cross_entropy,
    cross_entropy,
    hinge,
    kl_divergence,
    label_smoothing_cross_entropy,
    masked_cross_entropy,
    softmax_cross_entropy,
    z_loss,
)

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw

TARGETS = np.array([2, 0, 1, 1, 2])


def probabilities():
    return Draw("loss").probabilities(5, 3)


def logits():
    return Draw("loss").normal(5, 3)


# ── cross_entropy ────────────────────────────────────────────────────────────────────────────


def test_half_is_one_bit():
    p = np.array([[0.5, 0.5], [0.75, 0.25]])
    losses = cross_entropy.forward(F64, p, np.array([0, 1]), bits=True)
    np.testing.assert_allclose(losses, [1, 2], rtol=1e-15)


def test_a_zero_probability_inside_the_context_does_no_harm():
    p = probabilities()
    p[0] = 0
    losses = cross_entropy.forward(F64, p, TARGETS, context_size=2)
    dp, _ = cross_entropy.vjp(F64, np.ones(5), p, TARGETS, context_size=2)
    assert np.isfinite(losses).all()
    assert np.isfinite(dp).all()
    assert not dp[0].any()


# ── softmax_cross_entropy ────────────────────────────────────────────────────────────────────


def test_fused_loss_is_cross_entropy_of_softmax():
    x, ct = logits(), Draw("loss", "ct").signed(5)
    p = softmax.forward(F64, x)
    losses = softmax_cross_entropy.forward(F64, x, TARGETS)
    np.testing.assert_allclose(losses, cross_entropy.forward(F64, p, TARGETS), atol=1e-14)
    dx, none = softmax_cross_entropy.vjp(F64, ct, x, TARGETS)
    dp, _ = cross_entropy.vjp(F64, ct, p, TARGETS)
    np.testing.assert_allclose(dx, softmax.vjp(F64, dp, x), atol=1e-14)
    assert none is None


# ── variants of softmax_cross_entropy ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("others", "wanted"), [(False, [0.05, 0.85, 0.05, 0.05]), (True, [1 / 15, 0.8, 1 / 15, 1 / 15])]
)
def test_the_smoothed_targets_by_hand(others, wanted):
    x, target = np.zeros((1, 4)), np.array([1])
    dx, _ = label_smoothing_cross_entropy.vjp(
        F64, np.ones(1), x, target, smoothing=0.2, others=others
    )
    np.testing.assert_allclose(dx, [0.25 - np.array(wanted)], rtol=1e-14)


def test_the_mean_is_over_the_positions_that_count():
    x, ct = logits(), np.array(2.5)
    targets = np.where(TARGETS == 1, -100, TARGETS)  # positions 2 and 3
    kept = [0, 1, 4]
    loss = masked_cross_entropy.forward(F64, x, targets)
    few = softmax_cross_entropy.forward(F64, x[kept], TARGETS[kept])
    assert loss == pytest.approx(few.mean(), rel=1e-15)
    dx, _ = masked_cross_entropy.vjp(F64, ct, x, targets)
    want, _ = softmax_cross_entropy.vjp(F64, np.full(3, 2.5 / 3), x[kept], TARGETS[kept])
    np.testing.assert_allclose(dx[kept], want, rtol=1e-14)
    assert not dx[[2, 3]].any()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_where_no_position_counts_loss_and_gradient_are_0(reduction):
    x, targets = logits(), np.full(5, -100)
    x[0] = 1e300  # would overflow
    attrs = {"reduction": reduction}
    losses = masked_cross_entropy.forward(F64, x, targets, **attrs)
    assert not losses.any()
    dx, _ = masked_cross_entropy.vjp(F64, np.ones_like(losses), x, targets, **attrs)
    assert not dx.any()


def test_the_z_loss_pulls_log_z_to_0_and_moves_the_gradients_sum():
    x, ct = logits(), np.ones(5)
    log_z = np.log(np.exp(x).sum(axis=-1))
    losses = z_loss.forward(F64, x, TARGETS, weight=0.5)
    plain = softmax_cross_entropy.forward(F64, x, TARGETS)
    np.testing.assert_allclose(losses - plain, log_z**2 / 2, rtol=1e-12)
    dx, _ = z_loss.vjp(F64, ct, x, TARGETS, weight=0.5)
    np.testing.assert_allclose(dx.sum(axis=-1), log_z, rtol=1e-13)


# ── hinge ────────────────────────────────────────────────────────────────────────────────────


def test_conventions_on_the_margin():
    x, labels, ct = np.array([1.0, -1.0, 0.0]), np.array([1, -1, 1]), np.full(3, 2.0)
    found = {c.name: c.vjp(F64, ct, x, labels)[0].tolist() for c in hinge.kinks[0].conventions}
    assert found == {"0": [0, 0, -2], "-y": [-2, 2, -2], "-y/2": [-1, 1, -2]}


# ── binary_cross_entropy ─────────────────────────────────────────────────────────────────────


def test_the_form_of_logits_is_that_of_probabilities_after_a_sigmoid():
    draw = Draw("loss", "binary")
    x, y, ct = draw.normal(3, 5), draw.uniform(0.0, 1.0, 3, 5), draw.signed(3, 5)
    p = 1 / (1 + np.exp(-x))
    for pos_weight in (1.0, 3.0):
        attrs = {"pos_weight": pos_weight}
        np.testing.assert_allclose(
            binary_cross_entropy.forward(F64, x, y, **attrs),
            binary_cross_entropy.forward(F64, p, y, logits=False, **attrs),
            rtol=1e-13,
        )
        dx, dy = binary_cross_entropy.vjp(F64, ct, x, y, **attrs)
        dp, same = binary_cross_entropy.vjp(F64, ct, p, y, logits=False, **attrs)
        np.testing.assert_allclose(dx, dp * p * (1 - p), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(dy, same, rtol=1e-12, atol=1e-14)


def test_two_classes_are_a_binary_choice():
    draw = Draw("loss", "two")
    x, targets = draw.normal(4), np.array([1, 0, 0, 1])
    pairs = np.stack([np.zeros(4), x], axis=-1)
    np.testing.assert_allclose(
        binary_cross_entropy.forward(F64, x, targets.astype(float)),
        softmax_cross_entropy.forward(F64, pairs, targets),
        rtol=1e-14,
    )


def test_no_logit_is_too_large():
    x, y = np.array([-800.0, 800.0]), np.array([1.0, 0.0])
    assert binary_cross_entropy.forward(F64, x, y).tolist() == [800, 800]
    dx, dy = binary_cross_entropy.vjp(F64, np.ones(2), x, y)
    assert dx.tolist() == [-1, 1]
    assert dy.tolist() == [800, -800]


# ── kl_divergence ────────────────────────────────────────────────────────────────────────────


def test_the_divergence_is_cross_entropy_less_entropy():
    draw = Draw("loss", "kl")
    p = draw.probabilities(5)
    q = draw.probabilities(5)
    d = kl_divergence.forward(F64, q, p, log_q=False)
    assert d == pytest.approx((p * np.log(p)).sum() - (p * np.log(q)).sum(), rel=1e-13)
    assert kl_divergence.forward(F64, p, p, log_q=False) == 0


def test_what_is_never_wanted_costs_nothing():
    p, q = np.array([0.0, 0.25, 0.75]), np.array([0.5, 0.25, 0.25])
    d = kl_divergence.forward(F64, q, p, log_q=False)
    assert d == pytest.approx(0.75 * np.log(3), rel=1e-15)  # 0 ln 0 is 0
    dq, dp = kl_divergence.vjp(F64, np.array(1.0), q, p, log_q=False)
    assert dq.tolist() == [0, -1, -3]
    assert np.isfinite(dp).all()
