import numpy as np
import pytest
from gradcheck_cases.position import rope

from gradcheck.arithmetic import F64
from gradcheck.draw import Draw

LAYOUTS = pytest.mark.parametrize("half_split", [False, True])


def turn(x, **attrs):
    return rope.forward(F64, x, **attrs)


def turn_back(ct, **attrs):
    return rope.vjp(F64, ct, ct, **attrs)


@LAYOUTS
def test_gradient_has_the_length_of_its_cotangent(half_split):
    ct = Draw("rope").signed(5, 2, 6)
    dx = turn_back(ct, half_split=half_split, offset=7)
    squares = np.sum(ct * ct, axis=-1)
    np.testing.assert_allclose(np.sum(dx * dx, axis=-1), squares, rtol=1e-13)
    assert not np.allclose(dx, ct)


@LAYOUTS
def test_gradient_of_the_output_is_the_input(half_split):
    x = Draw("rope").normal(5, 2, 7)
    attrs = {"half_split": half_split, "offset": 7, "n_dims": 4, "base": 100.0}
    np.testing.assert_allclose(turn_back(turn(x, **attrs), **attrs), x, atol=1e-14)


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


def test_layouts_differ_by_a_permutation_of_features():
    x = Draw("rope").normal(4, 2, 6)
    interleaved = turn(x, offset=1)
    shuffle = [0, 2, 4, 1, 3, 5]
    assert np.array_equal(
        turn(x[..., shuffle], offset=1, half_split=True), interleaved[..., shuffle]
    )
    assert not np.allclose(turn(x, offset=1, half_split=True), interleaved)


def test_position_zero_and_features_beyond_n_dims_stay_exactly():
    x = Draw("rope").signed(4, 2, 7)
    for back in (turn(x, n_dims=4), turn_back(x, n_dims=4)):
        assert np.array_equal(back[0], x[0])
        assert np.array_equal(back[..., 4:], x[..., 4:])
        assert not np.isclose(back[1:, :, :4], x[1:, :, :4]).all()


@pytest.mark.parametrize(("size", "n_dims"), [(5, 0), (6, 3)])
def test_an_odd_number_of_features_is_refused(size, n_dims):
    x = np.zeros((1, 1, size))
    with pytest.raises(ValueError, match="rope turns pairs of features"):
        turn(x, n_dims=n_dims)
    with pytest.raises(ValueError, match="rope turns pairs of features"):
        turn_back(x, n_dims=n_dims)
