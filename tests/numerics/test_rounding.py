"""The rounding that a text collects covers what its evaluation loses, and hardly more."""

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.attention import softmax
from gradcheck_cases.position import diag_mask_inf

from gradcheck.judge.compare import ROUNDING_SAFETY, TOLERANCES
from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.numerics.rounding import LIBRARY, ROUNDING, Rounded, allowance, sums_kept_wide
from tests.sizes import ordinary, third

U = {"float32": 2.0**-24, "float64": 2.0**-53}
OPERATORS = [spec.name for spec in SUITE]


def in_arithmetic(xp, arrays):
    return [xp.asarray(a) if a.dtype.kind == "f" else a for a in arrays]


def forward(xp, truth):
    case, primals = truth.case, in_arithmetic(xp, truth.primals)
    with np.errstate(all="ignore"):
        return as_tuple(case.spec.forward(xp, *primals, **case.attrs))


def vjp(xp, truth, ct):
    case, primals = truth.case, in_arithmetic(xp, truth.primals)
    parts = tuple(in_arithmetic(xp, ct))
    bare = parts[0] if len(parts) == 1 else parts
    with np.errstate(all="ignore"):
        return as_tuple(case.spec.vjp(xp, bare, *primals, **case.attrs))


TYPICAL = ("typical", "cube")  # a rearrangement of axes has no typical number of them


def lost(floats, exact):
    """How far `floats` are from 50-digit values, flat; what is infinite by design is not off."""
    xp = mp50()
    floats, exact = np.asarray(floats, dtype=np.float64), np.asarray(exact, dtype=object)
    infinite = np.isinf(floats)
    assert np.array_equal(floats[infinite], xp.to_float64(exact[infinite]))
    far = np.abs(xp.asarray(np.where(infinite, 0, floats)) - np.where(infinite, 0, exact))
    return xp.to_float64(far).reshape(-1)


def uncovered(error, units, dtype):
    """Elements whose error exceeds the rounding collected (no safety factor is needed)."""
    ok = error <= U[dtype] * units + TOLERANCES[dtype].underflow
    return np.flatnonzero(~ok)


# ── coverage ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite(keep=3, rest=10)
@pytest.mark.parametrize("name", third(OPERATORS))
def test_the_rounding_collected_covers_every_gradient_and_value(suite, name):
    for case in ordinary(suite.cases([name])):
        truth = CaseTruth(case)
        exact = {}  # by the primals' dtype: mostly both hold the same numbers
        for floats in (F32, F64):
            at = truth.at(floats.name)
            if id(at) not in exact:
                exact[id(at)] = exactly(at)
            covers(at, floats, *exact[id(at)])


def exactly(truth):
    """Forward at 50 digits, and the gradients for each cotangent; None: an infinite slope."""
    xp, gradients = mp50(), []
    for ct in truth.cotangents.values:
        try:
            gradients.append(vjp(xp, truth, ct))
        except ZeroDivisionError:  # which is judged as a kink
            assert truth.case.sample.at_kink
            gradients.append(None)
    return forward(xp, truth), gradients


def covers(truth, floats, values, gradients):
    case = truth.case
    pairs = zip(forward(floats, truth), values, strict=True)
    error = np.concatenate([lost(got, exact) for got, exact in pairs])
    bad = uncovered(error, truth.value_rounding[0], floats.name)
    assert bad.size == 0, (case.name, floats.name, "forward", bad, error[bad])
    for q, (ct, exact) in enumerate(zip(truth.cotangents.values, gradients, strict=True)):
        if exact is None:
            continue
        got = vjp(floats, truth, ct)
        for i in truth.floating:
            error = lost(got[i], exact[i])
            bad = uncovered(error, truth._vjp_rounding[i][q], floats.name)
            assert bad.size == 0, (case.name, floats.name, truth.names[i], bad, error[bad])


def test_a_saturated_softmax_may_lose_units_of_its_cotangent(suite):
    # The textbook formula y (ct − Σ y ct), with ct all ones: the gradient is exactly zero, what
    # comes out is u·|ct|, and no multiple of Σ |ct·J| covers that.
    losing = 0
    cases = [
        *suite.cases(["masked_softmax"], samples=["saturated"], seed=4),
        *suite.cases(["softmax"], samples=["dominant"], seed=4),
    ]
    for case in cases:
        truth = CaseTruth(case).at("float32")
        q = truth.cotangents.names.index("ones")
        ct = truth.cotangents.values[q]
        error = lost(vjp(F32, truth, ct)[0], vjp(mp50(), truth, ct)[0])
        assert uncovered(error, truth._vjp_rounding[0][q], "float32").size == 0
        scale = truth.truth(0).differences.estimate.scale[q]
        losing += int(np.sum(error > 1e-4 * scale + 8 * U["float32"] * scale))
    assert losing > 0


def test_too_little_would_be_seen():
    x, ct = Draw("rounding").normal(4, 7), Draw("rounding", "ct").signed(4, 7)
    args = (F32.asarray(ct), F32.asarray(x))
    exact = softmax.vjp(mp50(), mp50().asarray(ct), mp50().asarray(x))
    error = lost(softmax.vjp(F32, *args), exact)
    units = allowance(softmax.vjp(ROUNDING, ROUNDING.asarray(ct), ROUNDING.asarray(x))).reshape(-1)
    assert uncovered(error, units, "float32").size == 0
    assert uncovered(error, units / 64, "float32").size > 0


# ── sharpness ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite(keep=13, rest=101)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_typical_sample_is_not_given_more_than_float32_needs(suite, name):
    for case in suite.cases([name]):
        if case.sample.name not in TYPICAL:
            continue
        truth = CaseTruth(case)
        for i in truth.floating:
            largest = truth.truth(i).differences.estimate.scale.max(axis=1, keepdims=True)
            allowed = ROUNDING_SAFETY * U["float32"] * truth._vjp_rounding[i]
            assert np.all(allowed <= 1e-4 * largest), (case.name, truth.names[i])


# ── the numbers themselves ───────────────────────────────────────────────────────────────────


def units(x):
    return np.asarray(x.error).tolist()


def test_rounding_is_counted_in_units_of_each_result():
    x = Rounded([3.0, -1.0], [2.0, 0.0])
    assert units(x + 1) == [2 + 4, 0 + 0]
    assert units(x - x) == [4 + 0, 0]
    assert units(2 * x) == [4 + 6, 0 + 2]
    assert units(6 / x) == [2 * 2 / 3 + 2, 6]
    assert units(x**2) == [6 * 2 + 2 * 9, 2]
    assert units(-x) == units(abs(x)) == [2, 0]
    assert units(x[:1]) == [2]


def test_cancellation_keeps_the_error_of_its_terms():
    mean = ROUNDING.mean(ROUNDING.asarray([1000.0, 1001.0]))
    assert units(ROUNDING.asarray([1000.0]) - mean)[0] > 1000
    tail = 1 + ROUNDING.tanh(ROUNDING.asarray([-8.0]))
    assert tail.value[0] < 1e-6
    assert units(tail)[0] > LIBRARY / 2


def test_a_library_function_carries_its_argument_through_its_slope():
    x = Rounded([0.5], [10.0])
    for name, slope in (
        ("exp", np.exp(0.5)),
        ("expm1", np.exp(0.5)),
        ("log", 2.0),
        ("log1p", 1 / 1.5),
        ("sqrt", 0.5 / np.sqrt(0.5)),
        ("tanh", 1 - np.tanh(0.5) ** 2),
        ("sin", np.cos(0.5)),
        ("cos", np.sin(0.5)),
        ("erf", 2 / np.sqrt(np.pi) * np.exp(-0.25)),
    ):
        y = getattr(ROUNDING, name)(x)
        own = LIBRARY * abs(float(y.value[0]))
        assert units(y)[0] == pytest.approx(10 * slope + own, rel=1e-12), name


def test_structure_moves_errors_with_their_values():
    x = Rounded(np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3))
    for moved in (
        ROUNDING.swapaxes(x, 0, 1),
        ROUNDING.concatenate([x, x], axis=0),
        ROUNDING.stack([x, x], axis=-1),
        ROUNDING.take_rows(x, np.array([1, 0, 1])),
        ROUNDING.pick(x, np.array([2, 0])),
        ROUNDING.max(x, axis=-1),
        ROUNDING.broadcast_to(x[:, :1], (2, 4)),
        ROUNDING.where(x > 2, x, 0.0),
    ):
        assert isinstance(moved, Rounded)
        assert moved.value.tolist() == moved.error.tolist()


def test_a_constant_that_is_chosen_was_rounded_on_entry():
    x = ROUNDING.asarray([1.0, -1.0])
    assert units(ROUNDING.where(x > 0, x, 0.1)) == [0, 0.1]
    assert units(ROUNDING.where(x > 0, x, 0)) == units(ROUNDING.where(x > 0, x, 0.0)) == [0, 0]


def test_rows_that_are_added_together_add_their_errors():
    table, rows = ROUNDING.asarray(np.zeros((2, 1))), Rounded([[1.0], [2.0], [4.0]], [[8.0]] * 3)
    total = ROUNDING.add_rows(rows, np.array([1, 1, 1]), table)
    assert total.value.tolist() == [[0.0], [7.0]]
    assert units(total)[0] == [0.0]
    assert units(total)[1][0] >= 3 * 8 + 7


def test_a_sum_grows_with_the_root_of_its_length_and_a_product_with_its_terms():
    few, many = (units(ROUNDING.sum(ROUNDING.asarray(np.ones(n) / n))) for n in (4, 400))
    assert few >= 2
    assert many == pytest.approx(10 * few, rel=1e-12)
    x = ROUNDING.asarray(np.ones((2, 9)))
    assert np.all(ROUNDING.matmul(x, ROUNDING.swapaxes(x, 0, 1)).error >= 9)


def test_what_is_not_finite_allows_nothing():
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = 1 / ROUNDING.asarray([0.0, 2.0])
    assert allowance(slope).tolist() == [0.0, 0.5]
    assert allowance(None) is None
    assert allowance(np.zeros(3)).tolist() == [0, 0, 0]


def test_a_function_outside_the_list_is_refused():
    with pytest.raises(TypeError):
        np.cumsum(ROUNDING.asarray([1.0]))
    with pytest.raises(TypeError):
        np.arctan(ROUNDING.asarray([1.0]))


def test_what_is_masked_is_exact_and_what_is_seen_keeps_its_error():
    scores = Rounded([[1.0, 2.0], [0.5, 3.0]], 5.0)
    masked = diag_mask_inf.forward(ROUNDING, scores)
    assert np.array_equal(masked.error, [[5.0, 0.0], [5.0, 5.0]])
    weights = softmax.forward(ROUNDING, masked)
    assert np.array_equal(weights.value[0], [1.0, 0.0])
    assert weights.error[0, 1] == 0
    assert np.isfinite(weights.error).all()
    assert (weights.error[1] > 5 * weights.value.min(axis=-1)[1]).all()


@pytest.mark.parametrize(
    "total",
    [
        lambda x: ROUNDING.sum(x, axis=-1),
        lambda x: x @ ROUNDING.asarray(np.ones(4096)),
        lambda x: np.einsum("i,i->", x, ROUNDING.asarray(np.ones(4096))),
    ],
)
def test_a_sum_that_is_kept_wide_costs_one_rounding_of_the_dtype(total):
    x = ROUNDING.asarray(np.ones(4096))
    grown = total(x).error
    with sums_kept_wide(2.0**-13):
        wide = total(x).error
    assert 2 * 4096 <= wide <= 2.1 * 4096
    assert grown >= 2 * 64 * 4096
    np.testing.assert_array_equal(total(x).error, grown)  # and outside it is as before
