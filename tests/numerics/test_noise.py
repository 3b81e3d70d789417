"""What rounding does to forward is measured where the model does not see it, and nowhere else."""

import numpy as np
import pytest
from gradcheck_cases.norm import layer_norm

from gradcheck.numerics import noise, sparsity
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Evaluator, Point
from gradcheck.numerics.fifty_digit_arithmetic import mp50

U64, U32 = 2.0**-53, 2.0**-24


def draw(*roles):
    return Draw("noise", *roles)


def rng():
    return np.random.default_rng(3)


def both(function, *primals, index=0):
    """Noise as measured and as modelled, each [blocks], and the structure, for random signs."""
    point = Point(lambda *p: (np.asarray(function(*p)),), primals)
    evaluator = Evaluator(point, index)
    found = sparsity.find(evaluator, rng())
    cts = draw("ct").signed(1, evaluator.base.size)
    measured = noise.measured(noise.lines(point, rng()), found, cts)[0]
    u = np.finfo(evaluator.x.dtype).eps / 2
    modelled = np.sqrt(found.by_block(noise.modelled(evaluator.base, cts, u) ** 2))[0]
    return measured, modelled, found


def normal_layer(x):
    return layer_norm.forward(F64, x)


# ── what is noise ────────────────────────────────────────────────────────────────────────────


def test_float32_behind_a_float64_face_is_measured():
    def forward(x):
        return np.tanh(x.astype(np.float32)).astype(np.float64)

    x = draw("x").normal(40)
    measured, modelled, _ = both(forward, x)
    assert np.all(modelled < 2 * U64)
    ratio = measured / (U32 * np.abs(np.tanh(x)))
    assert 0.1 < np.median(ratio) < 10
    assert np.mean(ratio > 0.05) > 0.95


def test_what_cancels_inside_layer_norm_at_1000_is_measured():
    x = 1000 + rng().normal(size=(30, 8))  # not on a grid, where sums would be exact
    measured, modelled, found = both(normal_layer, x)
    assert np.mean(measured > 8 * modelled) > 0.9
    xp = mp50()
    exact = layer_norm.forward(xp, xp.asarray(x))
    error = xp.to_float64(xp.asarray(normal_layer(x)) - exact)
    cts = draw("ct").signed(1, x.size)
    rows = np.abs(found.by_block(cts * error.reshape(1, -1)))[0]
    assert 0.2 < np.sqrt(np.mean(measured**2)) / np.sqrt(np.mean(rows**2)) < 5


def test_values_that_stay_the_same_between_neighbours_are_seen_on_the_longer_line():
    def table(x):  # 2^-30 apart: flat over any 64 ulp of a number near 1
        return np.round(x * 2.0**30) / 2.0**30

    measured, modelled, _ = both(table, 1 + np.abs(draw("x").normal(20)))
    assert np.all(measured > 2.0**-34)
    assert np.all(modelled < 2.0**-50)


def test_the_noise_of_one_row_is_not_anothers():
    def forward(x):
        y = np.exp(x)
        y[..., 1, :] = np.exp(x[..., 1, :].astype(np.float32))
        return y

    measured, modelled, found = both(forward, draw("x").normal(3, 1))
    assert found.blocks == 3
    assert measured[1] > 1e5 * modelled[1]
    assert np.all(measured[[0, 2]] < 4 * modelled[[0, 2]])


def test_a_kink_at_the_point_itself_counts_as_noise():
    measured, _, _ = both(np.abs, np.array([0.0, 1.0]))
    assert measured[0] > 0.0
    measured, modelled, _ = both(lambda x: np.maximum(x - 1.5, 0) + x, np.array([1.5, 1.0]))
    assert measured[0] > 1e4 * modelled[0]
    assert measured[1] <= 4 * modelled[1]


# ── what is none ─────────────────────────────────────────────────────────────────────────────

SMOOTH = {
    "linear": lambda x: 3 * x,
    "quadratic": lambda x: x * x,
    "exp": np.exp,
    "sine": np.sin,
    "constant": lambda x: 0 * x + 2,
    "zero": lambda x: 0 * x,
    "rows": lambda x: x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5),
    "a steep one": lambda x: np.tanh(1e4 * x),
}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_a_smooth_function_has_no_noise_but_its_rounding(name, offset):
    measured, modelled, _ = both(SMOOTH[name], offset + draw("x").normal(6, 4))
    assert np.all(measured <= 4 * modelled)


@pytest.mark.parametrize("distance", [3e-9, 1e-8, -1e-8, 5e-8, -2e-7])
def test_a_kink_beside_the_point_is_no_noise(distance):
    x = np.full(200, 1.5 + distance)  # lines of several slants, all of them across the kink
    measured, modelled, _ = both(lambda x: np.exp(x) + np.abs(x - 1.5), x)
    assert np.mean(measured <= 16 * modelled) > 0.75
    jump, _, _ = both(lambda x: x + 1e-7 * (x > 1.5), x)
    assert np.mean(jump > 1e-10) > 0.75  # a step is what tables are made of


def test_a_forward_that_refuses_its_neighbourhood_has_no_measured_noise():
    x = draw("x").normal(4)

    def forward(y):
        if not np.array_equal(y, x):
            raise ValueError("only here")
        return np.exp(y)

    measured, modelled, _ = both(forward, x)
    assert measured.tolist() == [0.0] * len(measured)
    assert np.all(modelled > 0)


def test_one_value_that_is_not_finite_leaves_the_others_their_noise():
    def forward(x):
        y = np.tanh(x.astype(np.float32)).astype(np.float64)
        return np.where(np.arange(4) == 2, np.inf, y)

    with np.errstate(invalid="ignore"):
        measured, _, _ = both(forward, draw("x").signed(4))
    assert np.isfinite(measured).all()
    assert np.all(measured[[0, 1, 3]] > U32 / 100)


# ── the lines ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_lines_move_every_floating_element_a_little_and_no_index(dtype):
    seen = []

    def forward(x, index):
        seen.append((x.copy(), index.copy()))
        return (x * 1.0,)

    x = np.array([1000.0, -1.0, 1e-30, 0.0], dtype=dtype)
    values = noise.lines(Point(forward, (x, np.array([2, 1]))), rng())
    assert values.shape == (noise.LINES, noise.LINE.size, 4)
    for moved, index in seen:
        assert moved.dtype == dtype
        assert np.all(index == [2, 1])
        assert np.all(np.abs(moved - x) <= 1e-3 * np.maximum(np.abs(x), 1.0))
    assert np.all(np.ptp(values, axis=1) > 0)
    # Beside a large number small ones move by the bits that a sum of both still has.
    assert np.all(np.abs(values - x).max(axis=(0, 1)) >= np.spacing(dtype(0.9)))


def test_rounding_that_a_tail_has_collected_is_counted_in_units_of_its_terms():
    """1 + tanh(−16) is a multiple of 2⁻⁵³ of size 2e-14: a staircase, each step one unit of 1."""

    def tail(x):
        return (1 + np.tanh(x),)

    x = np.array([-16.0, 0.5])
    lost, kept = noise.staircase(Point(tail, (x,)), tail(x)[0], rng())
    assert 0.1 <= lost <= 2
    assert kept == 0.0
    smooth = np.array([2e-14, 1.5])
    assert noise.staircase(Point(lambda x: (np.exp(x),), (x,)), smooth, rng()).tolist() == [0, 0]


def test_the_model_counts_a_known_loss_only_where_it_is_large():
    values, cts = np.array([2.0, 2.0, 0.0]), np.array([[1.0, -3.0, 5.0]])
    plain = noise.modelled(values, cts, U64)
    assert plain.tolist() == [[2 * U64, 6 * U64, 0.0]]
    known = noise.modelled(values, cts, U64, np.array([8.0, 100.0, 4.0]))
    assert known.tolist() == [[2 * U64, 300 * U64, 20 * U64]]


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**-600, 1.0, 2.0**900])
def test_deviations_are_summed_in_units_that_have_squares(scale):
    deviations = scale * np.array([[3.0, 4.0]])
    unit = noise.unit_of(deviations)
    assert unit * np.sqrt(((deviations / unit) ** 2).sum()) == 5 * scale
    assert noise.unit_of(np.zeros((1, 2))) == noise.unit_of(np.zeros((1, 0))) == 1.0
    assert (unit == 1.0) == (scale == 1.0)


def test_noise_per_output_is_that_of_single_outputs():
    def forward(x):
        return (np.stack([np.exp(x), np.exp(x.astype(np.float32))], axis=-1),)

    lines = noise.lines(Point(forward, (np.array(0.3),)), rng())
    exact, rough = noise.per_output(lines, np.array([1.35, 1.35]))
    assert exact < 1e-15 < 1e-9 < rough
    assert noise.per_output(lines, np.ones(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("scale", [2.0**600, 2.0**900])
def test_noise_near_the_largest_number_is_that_of_smaller_ones(scale):
    values = rng().normal(size=noise.LINE.size)
    assert noise.scatter(values * scale) == pytest.approx(scale * noise.scatter(values), rel=1e-12)
    assert noise.scatter(np.where(values > 0, np.inf, values)) == 0.0
    lines = np.stack([np.stack([values, values]), np.stack([values, values]) * scale], axis=-1)
    one, other = noise.per_output(lines, np.array([1e9, 1e9 * scale]))
    assert other == pytest.approx(scale * one, rel=1e-12)


@pytest.mark.parametrize("scale", [2.0**-20, -1.0, 2.0**20])
def test_a_jump_that_a_line_crosses_is_no_rounding(scale):
    """A deviation above the 4096th part of the largest value, whatever its sign and unit."""
    values = rng().normal(size=noise.LINE.size)
    values *= 1 / noise.scatter(values)
    lines = np.stack([np.stack([values * size] * 2) for size in (2.0**-13, 2.0**-11)], axis=-1)
    lines = np.stack([lines[0], lines[0]]) * abs(scale)
    rounding, jump = noise.per_output(lines, np.array([scale, 0.5 * scale]))
    assert (rounding, jump) == (pytest.approx(2.0**-13 * abs(scale), rel=1e-9), 0.0)
