import mpmath
import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.activation import (
    clamp,
    dropout,
    elu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    mish,
    relu,
    relu_squared,
    sigmoid,
    sigmoid_back,
    softcap,
    softcap_back,
    softplus,
    tanh,
    tanh_back,
)

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digits import mp50


def slope(spec, x, **attrs):
    """The derivative at the points `x`."""
    return spec.vjp(F64, np.ones(np.shape(x)), np.asarray(x), **attrs)


def exact_slope(spec, x, **attrs):
    """The same from 50 digits, rounded once."""
    xp = mp50()
    ct = xp.asarray(np.ones(np.shape(x)))
    return xp.to_float64(spec.vjp(xp, ct, xp.asarray(x), **attrs))


# ── what happens on a kink ───────────────────────────────────────────────────────────────────


def test_relu_is_flat_at_both_zeros():
    assert slope(relu, [-1.0, -0.0, 0.0, 1.0]).tolist() == [0, 0, 0, 1]


def test_leaky_relu_takes_the_negative_slope_at_zero():
    assert slope(leaky_relu, [-2.0, 0.0, 2.0], negative_slope=0.25).tolist() == [0.25, 0.25, 1]


def test_the_seed_formula_for_leaky_relu_is_not_acceptable_at_zero():
    def step(x):
        return (x > 0) * 1.0

    x, s = np.array([-2.0, 0.0, 2.0]), 0.01
    formula = s * step(-x) + step(x)
    low, high = leaky_relu.kinks[0].slopes({"negative_slope": s})
    assert formula[[0, 2]].tolist() == slope(leaky_relu, x)[[0, 2]].tolist()
    assert not low <= formula[1] <= high


@pytest.mark.parametrize(
    ("spec", "attrs", "interval"),
    [
        (leaky_relu, {"negative_slope": 1.5}, (1.0, 1.5)),
        (leaky_relu, {"negative_slope": -0.2}, (-0.2, 1.0)),
        (elu, {"alpha": 2.0}, (1.0, 2.0)),
        (elu, {"alpha": 1.0}, (1.0, 1.0)),
        (elu, {"alpha": 0.5}, (0.5, 1.0)),
    ],
)
def test_slopes_allowed_at_zero_lie_between_the_one_sided_ones(spec, attrs, interval):
    assert spec.kinks[0].slopes(attrs) == interval
    tiny = 2.0**-40
    sides = slope(spec, [-tiny, tiny], **attrs)
    np.testing.assert_allclose(sorted(sides), interval, rtol=1e-11)


def test_elu_is_alpha_exp_below_zero_and_1_above():
    x = np.array([-3.0, -0.5, 0.0, 0.5, 3.0])
    got = slope(elu, x, alpha=0.5)
    np.testing.assert_allclose(got[:3], 0.5 * np.exp(x[:3]), rtol=1e-15)
    assert got[3:].tolist() == [1, 1]


def test_the_second_derivative_of_elu_jumps_at_zero_where_the_first_does_not():
    tiny = 2.0**-20
    below, at, above = slope(elu, [-tiny, 0.0, tiny])
    assert at == above == 1
    assert (at - below) / tiny == pytest.approx(1.0, rel=1e-6)  # exp's curvature; above, 0


def test_clamp_passes_the_cotangent_on_both_bounds():
    got = slope(clamp, [-2.0, -0.5, 0.0, 2.0, 3.0], min=-0.5, max=2.0)
    assert got.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("spec", "ends"), [(hardswish, ((-0.5, 0.0), (1.0, 1.5))), (hardsigmoid, ((0, 1 / 6),) * 2)]
)
def test_the_hard_kinks_allow_what_lies_between_both_sides(spec, ends):
    tiny = 2.0**-40
    for kink, point, interval in zip(spec.kinks, (-3.0, 3.0), ends, strict=True):
        assert kink.slopes({}) == interval
        sides = slope(spec, [point - tiny, point + tiny])
        np.testing.assert_allclose(sorted(sides), interval, atol=1e-12)


def test_softplus_jumps_to_the_identity_above_its_threshold():
    x = np.array([1.75, 2.0, 2.25])
    y = softplus.forward(F64, x, threshold=2.0)
    np.testing.assert_allclose(y[:2] - x[:2], np.log1p(np.exp(-x[:2])), rtol=1e-14)
    assert y[2] == x[2]
    sigma_2 = 1 / (1 + np.exp(-2.0))
    assert softplus.kinks[0].slopes({"beta": 1.0, "threshold": 2.0}) == (sigma_2, 1.0)
    assert slope(softplus, x, threshold=2.0)[1:].tolist() == [pytest.approx(sigma_2), 1.0]


@pytest.mark.parametrize(
    "spec", [relu, leaky_relu, elu, clamp, softplus, hardswish, hardsigmoid, relu_squared]
)
def test_a_convention_lies_in_the_interval_and_its_system_is_named_once(spec):
    for kink in spec.kinks:
        low, high = kink.slopes(spec.defaults)
        systems = [name for c in kink.conventions for name in c.systems]
        assert len(set(systems)) == len(systems)
        assert "PyTorch" in systems
        for c in kink.conventions:
            assert low <= (c.slope(**spec.defaults) if callable(c.slope) else c.slope) <= high


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("spec", "kink", "x", "attrs"),
    [
        (relu, 0, 0.0, {}),
        (leaky_relu, 0, 0.0, {"negative_slope": 0.25}),
        (elu, 0, 0.0, {"alpha": 0.25}),
        (clamp, 0, -1.0, {"min": -1.0, "max": 1.0}),
        (clamp, 1, 1.0, {"min": -1.0, "max": 1.0}),
        (softplus, 0, 1.0, {"beta": 2.0, "threshold": 2.0}),
        (hardswish, 0, -3.0, {}),
        (hardswish, 1, 3.0, {}),
        (hardsigmoid, 0, -3.0, {}),
        (hardsigmoid, 1, 3.0, {}),
        (relu_squared, 0, 0.0, {}),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_what_the_table_says_of_pytorch_is_what_pytorch_does(spec, kink, x, attrs):
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    function = {
        "leaky_relu": f.leaky_relu,
        "elu": f.elu,
        "clamp": torch.clamp,
        "softplus": f.softplus,
        "hardswish": f.hardswish,
        "hardsigmoid": f.hardsigmoid,
        "relu_squared": lambda x: f.relu(x) ** 2,
    }.get(spec.name, f.relu)
    (convention,) = [c for c in spec.kinks[kink].conventions if "PyTorch" in c.systems]
    wanted = convention.slope(**attrs) if callable(convention.slope) else convention.slope
    leaf = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    function(leaf, **attrs).backward()
    assert leaf.grad.item() == pytest.approx(wanted, rel=1e-12)


# ── values that are published, and identities ───────────────────────────────────────────────


@pytest.mark.parametrize("cap", [0.5, 30.0])
def test_softcap_is_the_identity_near_zero_and_keeps_its_slope_in_terms_of_y(cap):
    assert slope(softcap, [0.0], cap=cap) == 1
    x = np.array([-1.5, 0.25, 2.0]) * cap
    y = softcap.forward(F64, x, cap=cap)
    np.testing.assert_allclose(slope(softcap, x, cap=cap), 1 - (y / cap) ** 2, rtol=1e-13)


@pytest.mark.parametrize("attrs", [{"threshold": np.inf}, {"threshold": np.inf, "beta": 2.5}])
def test_softplus_is_x_more_on_the_right_than_on_the_left(attrs):
    x = np.linspace(0.25, 8.0, 9)
    right, left = (softplus.forward(F64, s * x, **attrs) for s in (1, -1))
    np.testing.assert_allclose(right - left, x, rtol=1e-14)
    np.testing.assert_allclose(slope(softplus, x, **attrs) + slope(softplus, -x, **attrs), 1)


def test_the_slope_of_mish_at_zero_and_its_minimum():
    assert slope(mish, [0.0]) == pytest.approx(0.6)  # tanh(log 2)
    assert abs(slope(mish, [-1.1924312145154952]).item()) < 1e-12
    y = mish.forward(F64, np.array([-1.1924312145154952]))
    assert y.item() == pytest.approx(-0.30884, abs=5e-6)  # as the paper says


def test_hardswish_is_x_times_hardsigmoid():
    x = np.linspace(-5.0, 5.0, 41)
    np.testing.assert_allclose(
        hardswish.forward(F64, x), x * hardsigmoid.forward(F64, x), rtol=1e-15
    )
    inside = np.linspace(-2.875, 2.875, 47)
    product = hardsigmoid.forward(F64, inside) + inside * slope(hardsigmoid, inside)
    np.testing.assert_allclose(slope(hardswish, inside), product, atol=1e-15)


@pytest.mark.parametrize(
    ("spec", "back", "attrs"),
    [
        (tanh, tanh_back, {}),
        (sigmoid, sigmoid_back, {}),
        (softcap, softcap_back, {"cap": 2.5}),
    ],
    ids=["tanh", "sigmoid", "softcap"],
)
def test_the_backward_from_the_output_is_the_vjp_from_the_input(spec, back, attrs):
    draw = Draw("saved")
    g, x = draw.signed(3, 5), draw.normal(3, 5)
    y = spec.forward(F64, x, **attrs)
    np.testing.assert_allclose(back.forward(F64, g, y, **attrs), spec.vjp(F64, g, x, **attrs))
    dg, dy = back.vjp(F64, g, g, y, **attrs)
    np.testing.assert_allclose(dg, spec.vjp(F64, g, x, **attrs))
    middle = back.vjp(F64, g, g, 0 * y + (0.5 if spec is sigmoid else 0.0), **attrs)[1]
    assert dy.any()
    assert not middle.any()  # the slope is largest there


# ── dropout ──────────────────────────────────────────────────────────────────────────────────


def test_dropout_keeps_the_mean_over_all_masks():
    x, p = np.array([2.0, -3.0]), 0.25
    masks = np.array([[a, b] for a in (0, 1) for b in (0, 1)])
    chance = np.where(masks, 1 - p, p).prod(axis=-1)
    mean = sum(c * dropout.forward(F64, x, m, p=p) for c, m in zip(chance, masks, strict=True))
    np.testing.assert_allclose(mean, x, rtol=1e-15)
    plain = dropout.forward(F64, x, masks[3], p=p, inverted=False)
    assert plain.tolist() == x.tolist()


def test_dropout_gives_exactly_what_was_kept_and_nothing_to_its_mask():
    ct, mask = np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1])
    dx, dmask = dropout.vjp(F64, ct, np.zeros(3), mask, p=0.75)
    assert dx.tolist() == [4.0, 0.0, 16.0]
    assert dmask is None
    assert dropout.vjp(F64, ct, ct, 0 * mask, p=1.0)[0].tolist() == [0.0] * 3


def test_dropout_of_float32_stays_float32_whatever_its_mask_is():
    x = np.ones(3, dtype=np.float32)
    mask = np.array([1, 0, 1], dtype=np.int64)
    assert dropout.forward(F32, x, mask).dtype == np.float32
    assert dropout.vjp(F32, x, x, mask)[0].dtype == np.float32


# ── tails ────────────────────────────────────────────────────────────────────────────────────


def sigma(x):
    return 1 / (1 + mpmath.exp(-x))


@pytest.mark.parametrize(
    ("spec", "attrs", "textbook", "x"),
    [
        (tanh, {}, mpmath.tanh, -16.0),
        (sigmoid, {}, sigma, -32.0),
        (softcap, {"cap": 2.0}, lambda x: 2 * mpmath.tanh(x / 2), 32.0),
    ],
)
def test_the_oracle_knows_the_textbook_slope_far_into_the_tail(spec, attrs, textbook, x):
    with mpmath.workdps(400):
        want = float(mpmath.diff(textbook, x))
    assert 0 < abs(want) < 1e-8
    np.testing.assert_allclose(exact_slope(spec, [x], **attrs), want, rtol=1e-15)


@pytest.mark.parametrize("spec", [elu, tanh, sigmoid, softcap, softplus, mish, hardswish])
@pytest.mark.parametrize("xp", [F32, F64], ids=lambda xp: xp.name)
def test_nothing_overflows_far_out(spec, xp):
    x = xp.asarray([-800.0, -104.0, 104.0, 800.0])
    with np.errstate(over="raise", invalid="raise"):
        y, dx = spec.forward(xp, x), spec.vjp(xp, xp.asarray(np.ones(4)), x)
    assert np.isfinite(y).all()
    assert np.isfinite(dx).all()


# ── defects of others that the samples show ──────────────────────────────────────────────────


@pytest.mark.frameworks
def test_pytorchs_hardsigmoid_rounds_a_sixth_to_float32_for_float64_too():
    torch = pytest.importorskip("torch")
    leaf = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.hardsigmoid(leaf).backward()
    if leaf.grad.item() == 1 / 6:
        pytest.skip("this PyTorch has it right")
    assert leaf.grad.item() == float(np.float32(1 / 6))
    assert abs(6 * leaf.grad.item() - 1) > 2e-8


def test_every_operator_of_the_family_has_a_sample_without_elements():
    for name, spec in SUITE.operators.items():
        if spec.family == "activation":
            assert [s.name for s in spec.samples].count("empty") == 1, name
