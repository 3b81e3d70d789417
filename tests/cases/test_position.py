import numpy as np
import pytest
from gradcheck_cases.position import alibi, diag_mask_inf, diag_mask_zero, rope

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw

LAYOUTS = pytest.mark.parametrize("half_split", [False, True])


def turn(x, **attrs):
    return rope.forward(F64, x, **attrs)


def turn_back(ct, **attrs):
    return rope.vjp(F64, ct, ct, **attrs)


@LAYOUTS
def test_angle_of_a_pair_is_position_times_frequency(half_split):
    first, second = (1, 3) if half_split else (2, 3)  # pair 1 of two, in four of six features
    x = np.zeros((3, 1, 6))
    x[..., first] = 1.0
    y = turn(x, half_split=half_split, base=100.0, offset=5, n_dims=4)[:, 0]
    angles = np.array([5, 6, 7]) * 100.0 ** (-2 / 4)
    np.testing.assert_allclose(y[:, first], np.cos(angles), rtol=1e-14)
    np.testing.assert_allclose(y[:, second], np.sin(angles), rtol=1e-14)


@LAYOUTS
def test_scores_depend_on_the_distance_of_positions_only(half_split):
    draw = Draw("rope")
    q, k = draw.normal(4, 1, 6), draw.normal(4, 1, 6)

    def scores(offset):
        turned = [turn(x, half_split=half_split, offset=offset)[:, 0] for x in (q, k)]
        return turned[0] @ turned[1].T

    np.testing.assert_allclose(scores(11), scores(0), atol=1e-13)
    assert not np.allclose(scores(0), q[:, 0] @ k[:, 0].T)


@LAYOUTS
def test_the_rows_of_the_past_stay_and_the_others_keep_their_own_position(half_split):
    x = Draw("rope").signed(5, 2, 6)
    skipped = turn(x, half_split=half_split, offset=2, skip_past=True)
    assert np.array_equal(skipped[:2], x[:2])
    np.testing.assert_allclose(skipped[2:], turn(x, half_split=half_split)[2:], rtol=1e-15)
    back = turn_back(skipped, half_split=half_split, offset=2, skip_past=True)
    np.testing.assert_allclose(back, x, atol=1e-15)


# ── alibi ────────────────────────────────────────────────────────────────────────────────────


def slopes(heads, **attrs):
    bias = alibi.forward(F64, np.zeros((heads, 1, 2)), **attrs)
    return bias[:, 0, 1] - bias[:, 0, 0]


def test_slopes_of_eight_heads_are_the_powers_of_a_half():
    np.testing.assert_allclose(slopes(8), 0.5 ** np.arange(1, 9), rtol=1e-15)


@pytest.mark.parametrize(("heads", "n"), [(1, 1), (3, 2), (6, 4), (7, 4), (12, 8)])
def test_slopes_beyond_a_power_of_two_lie_between_those_of_twice_as_many_heads(heads, n):
    found, doubled = slopes(heads), slopes(2 * n)
    np.testing.assert_allclose(found[:n], slopes(n), rtol=1e-14)
    np.testing.assert_allclose(found[n:], doubled[0::2][: heads - n], rtol=1e-14)


def test_a_share_of_the_heads_keeps_the_slopes_of_all():
    np.testing.assert_allclose(slopes(3, n_head=12), slopes(12)[:3], rtol=1e-15)
    assert not np.allclose(slopes(3, n_head=12), slopes(3))


def test_slopes_fall_to_the_power_of_bias_max():
    assert slopes(4, bias_max=4.0)[-1] == 2.0**-4
    assert slopes(4, bias_max=12.0)[-1] == 2.0**-12


def test_alibi_counts_slots_from_the_end_of_the_past_and_passes_gradients_on():
    x, ct = Draw("alibi").normal(2, 3, 5), Draw("alibi").signed(2, 3, 5)
    y = alibi.forward(F64, x, n_past=3)
    assert np.array_equal(y[..., 3], x[..., 3])
    np.testing.assert_allclose(y[..., 0], x[..., 0] - 3 * slopes(2)[:, None], rtol=1e-14)
    assert np.array_equal(alibi.vjp(F64, ct, x, n_past=3), ct)


# ── diagonal masks ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n_past", [0, 1, 3])
def test_masks_hide_what_lies_beyond_the_diagonal_and_pass_nothing_back(n_past):
    x, ct = Draw("mask").signed(2, 3, 5), Draw("mask").signed(2, 3, 5)
    seen = np.broadcast_to(np.tri(3, 5, n_past, dtype=bool), x.shape)
    for mask, hidden in ((diag_mask_inf, -np.inf), (diag_mask_zero, 0.0)):
        y = mask.forward(F64, x, n_past=n_past)
        assert np.array_equal(y[seen], x[seen])
        assert (y[~seen] == hidden).all()
        dx = mask.vjp(F64, ct, x, n_past=n_past)
        assert np.array_equal(dx, np.where(seen, ct, 0))
        assert np.isfinite(dx).all()
