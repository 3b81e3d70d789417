import numpy as np
import pytest
from gradcheck_cases.attention import softmax
from gradcheck_cases.loss import cross_entropy, softmax_cross_entropy

from gradcheck.arithmetic import F64
from gradcheck.draw import Draw

TARGETS = np.array([2, 0, 1, 1, 2])


def probabilities():
    return Draw("loss").probabilities(5, 3)


def logits():
    return Draw("loss").normal(5, 3)


# ── cross_entropy ────────────────────────────────────────────────────────────────────────────


def test_bits_are_nats_over_ln_2():
    p, ct = probabilities(), Draw("loss", "ct").signed(5)
    for compute in (
        lambda **attrs: cross_entropy.forward(F64, p, TARGETS, **attrs),
        lambda **attrs: cross_entropy.vjp(F64, ct, p, TARGETS, **attrs)[0],
    ):
        np.testing.assert_allclose(compute(bits=True), compute() / np.log(2), rtol=1e-14)


def test_half_is_one_bit():
    p = np.array([[0.5, 0.5], [0.75, 0.25]])
    losses = cross_entropy.forward(F64, p, np.array([0, 1]), bits=True)
    np.testing.assert_allclose(losses, [1, 2], rtol=1e-15)


def test_only_targets_have_a_gradient():
    dp, none = cross_entropy.vjp(F64, np.ones(5), probabilities(), TARGETS)
    assert np.array_equal(dp != 0, np.eye(3, dtype=bool)[TARGETS])
    assert none is None


def test_total_is_the_sum_and_spreads_its_cotangent():
    p = probabilities()
    losses = cross_entropy.forward(F64, p, TARGETS)
    total = cross_entropy.forward(F64, p, TARGETS, total=True)
    np.testing.assert_allclose(total, losses.sum(), rtol=1e-15)
    dp, _ = cross_entropy.vjp(F64, np.array(2.5), p, TARGETS, total=True)
    assert np.array_equal(dp, cross_entropy.vjp(F64, np.full(5, 2.5), p, TARGETS)[0])


@pytest.mark.parametrize(
    ("context_size", "hidden"), [(0, 0), (1, 0), (2, 1), (3, 2), (5, 4), (6, 5)]
)
def test_a_context_of_n_tokens_hides_n_minus_1_positions_exactly(context_size, hidden):
    p, ct = probabilities(), Draw("loss", "ct").signed(5)
    losses = cross_entropy.forward(F64, p, TARGETS, context_size=context_size)
    dp, _ = cross_entropy.vjp(F64, ct, p, TARGETS, context_size=context_size)
    assert np.array_equal(losses == 0, np.arange(5) < hidden)
    assert np.array_equal(dp.any(axis=-1), np.arange(5) >= hidden)


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


def test_gradient_sums_to_zero_in_each_row_and_pulls_at_the_target_only():
    dx, _ = softmax_cross_entropy.vjp(F64, np.ones(5), logits(), TARGETS)
    np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-15)
    assert np.array_equal(dx < 0, np.eye(3, dtype=bool)[TARGETS])


def test_a_constant_added_to_a_row_changes_nothing():
    x, ct = logits(), Draw("loss", "ct").signed(5)
    shifted = x + np.array([[1000.0], [-1000.0], [0.0], [64.0], [-64.0]])
    for compute in (
        lambda x: softmax_cross_entropy.forward(F64, x, TARGETS),
        lambda x: softmax_cross_entropy.vjp(F64, ct, x, TARGETS)[0],
    ):
        np.testing.assert_allclose(compute(shifted), compute(x), atol=1e-14)


def test_next_token_loss_is_the_mean_over_positions_against_the_next_token():
    x, tokens = logits(), TARGETS
    losses = softmax_cross_entropy.forward(F64, x[:4], tokens[1:])
    loss = softmax_cross_entropy.forward(F64, x, tokens, next_token=True)
    np.testing.assert_allclose(loss, losses.mean(), rtol=1e-15)
    dx, _ = softmax_cross_entropy.vjp(F64, np.array(2.5), x, tokens, next_token=True)
    per_position, _ = softmax_cross_entropy.vjp(F64, np.full(4, 2.5), x[:4], tokens[1:])
    np.testing.assert_allclose(dx[:4], per_position / 4, atol=1e-16)
    assert not dx[4].any()
