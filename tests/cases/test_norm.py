import numpy as np
import pytest
from gradcheck_cases.norm import layer_norm, rms_norm

from gradcheck.arithmetic import F32, F64, mp50
from gradcheck.draw import Draw


def drawn(*roles):
    """A sample x, its weight and a cotangent."""
    draw = Draw("norm", *roles)
    return draw.normal(3, 5), draw.normal(5), draw.signed(3, 5)


# ── rms_norm ─────────────────────────────────────────────────────────────────────────────────


def rms_dx(ct, x, **attrs):
    return rms_norm.vjp(F64, ct, x, **attrs)


def test_rms_gradient_is_orthogonal_to_x_but_for_eps():
    x, _, ct = drawn()
    dot = (rms_dx(ct, x, eps=0.0) * x).sum(axis=-1)
    np.testing.assert_allclose(dot, 0, atol=1e-14)
    dot = (rms_dx(ct, x, eps=0.1) * x).sum(axis=-1)
    rms = np.sqrt((x * x).mean(axis=-1) + 0.1)
    np.testing.assert_allclose(dot, 0.1 * (ct * x).sum(axis=-1) / rms**3, rtol=1e-12)


def test_rms_gradient_shrinks_as_x_grows():
    x, _, ct = drawn()
    np.testing.assert_allclose(
        rms_dx(ct, 4 * x, eps=0.0), rms_dx(ct, x, eps=0.0) / 4, rtol=1e-12, atol=1e-15
    )
    assert not np.allclose(rms_dx(ct, 4 * x, eps=0.1), rms_dx(ct, x, eps=0.1) / 4)


def test_a_zero_row_gets_the_cotangent_over_the_root_of_eps():
    x, w, ct = drawn()
    x[1] = 0
    dx, dw = rms_norm.vjp(F64, ct, x, w, eps=1e-6)
    np.testing.assert_allclose(dx[1], ct[1] * w * 1e3, rtol=1e-12)
    rest = [0, 2]
    np.testing.assert_allclose(dw, rms_norm.vjp(F64, ct[rest], x[rest], w, eps=1e-6)[1])


def test_a_unit_offset_weight_of_zero_is_no_weight():
    x, w, ct = drawn()
    plain = rms_norm.forward(F64, x)
    np.testing.assert_allclose(rms_norm.forward(F64, x, 0 * w, unit_offset=True), plain)
    dx, dw = rms_norm.vjp(F64, ct, x, 0 * w, unit_offset=True)
    np.testing.assert_allclose(dx, rms_dx(ct, x), rtol=1e-15)
    np.testing.assert_allclose(dw, (ct * plain).sum(axis=0), rtol=1e-14)


def test_the_dialects_hold_the_eps_of_their_systems():
    eps = {d.name: d.attrs.get("eps", rms_norm.defaults["eps"]) for d in rms_norm.dialects}
    assert eps == {"weight": 1e-5, "unit-offset": 1e-6, "plain": 1e-6}


# ── the unsolved case ────────────────────────────────────────────────────────────────────────
# rms_norm: ndims=2, i=0, k=2, x0=0.000153, xm=0.000053, xp=0.000253, f0=0.278594, f1=0.086213,
# g0=961.905457, g1=966.064941, eps=0.000100, error_abs=4.159485, error_rel=0.004324


@pytest.fixture
def unsolved():
    (sample,) = [s for s in rms_norm.samples if s.name == "unsolved"]
    attrs = {**rms_norm.defaults, **rms_norm.dialect("plain").attrs, **sample.attrs}
    x, _ = sample.primals(Draw("unsolved"))
    return x, attrs


H = 1e-4


def test_the_unsolved_point_is_the_one_in_the_log(unsolved):
    x, attrs = unsolved
    assert x.shape == (1, 1)
    assert attrs["eps"] == 1e-6
    assert [f"{v:.6f}" for v in (x[0, 0], x[0, 0] - H, x[0, 0] + H)] == [
        "0.000153",
        "0.000053",
        "0.000253",
    ]


def test_the_analytic_slope_in_the_log_was_right(unsolved):
    x, attrs = unsolved
    for xp, rtol in ((F64, 4e-9), (F32, 1.3e-7)):
        dx = rms_norm.vjp(xp, xp.asarray([[1.0]]), xp.asarray(x), **attrs)
        np.testing.assert_allclose(dx, 966.064941, rtol=rtol)


def test_the_values_in_the_log_differ_by_the_other_rows_alone(unsolved):
    # f0 and f1 are sums over the whole tensor: the rows that did not move add a constant.
    x, attrs = unsolved
    f0, f1 = (rms_norm.forward(F64, x + s * H, **attrs)[0, 0] for s in (1, -1))
    assert 0.278594 - f0 == pytest.approx(0.086213 - f1, abs=1e-6)
    assert (f0 - f1) / (2 * H) == pytest.approx(961.905457, rel=1e-6)


def test_the_log_blames_the_truncation_error_of_its_step(unsolved):
    x, attrs = unsolved
    xp = mp50()
    x = xp.asarray(x)
    right = rms_norm.vjp(xp, xp.asarray([[1.0]]), x, **attrs)[0, 0]

    def error(text):
        h = xp.const(text)
        ends = [rms_norm.forward(xp, x + s * h, **attrs)[0, 0] for s in (1, -1)]
        return float(abs((ends[0] - ends[1]) / (2 * h) / right - 1))

    assert error("1e-4") == pytest.approx(0.0043, abs=5e-5)  # with 50 digits, so not rounding
    assert error("1e-4") == pytest.approx(H**2 / (2 * attrs["eps"]), rel=0.2)
    assert error("1e-6") == pytest.approx(error("1e-4") * 1e-4, rel=0.05)
    assert error("1e-17") < 1e-25


# ── layer_norm ───────────────────────────────────────────────────────────────────────────────


def test_layer_gradient_sums_to_zero_whatever_eps():
    x, w, ct = drawn()
    for eps in (1e-5, 0.1):
        dx, _, _ = layer_norm.vjp(F64, ct, x, w, 0 * w, eps=eps)
        np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-14)
        assert np.abs(dx).max() > 0.1


def test_layer_gradient_is_orthogonal_to_centred_x_but_for_eps():
    x, _, ct = drawn()
    c = x - x.mean(axis=-1, keepdims=True)
    dot = (layer_norm.vjp(F64, ct, x, eps=0.0) * c).sum(axis=-1)
    np.testing.assert_allclose(dot, 0, atol=1e-14)
    dot = (layer_norm.vjp(F64, ct, x, eps=0.1) * c).sum(axis=-1)
    sigma = np.sqrt((c * c).mean(axis=-1) + 0.1)
    np.testing.assert_allclose(dot, 0.1 * (ct * c).sum(axis=-1) / sigma**3, rtol=1e-12)


def test_a_constant_row_gets_the_centred_cotangent_over_the_root_of_eps():
    x, w, ct = drawn()
    x[1] = 0.75
    dx, _, _ = layer_norm.vjp(F64, ct, x, w, 0 * w, eps=1e-6)
    g = ct[1] * w
    np.testing.assert_allclose(dx[1], (g - g.mean()) * 1e3, rtol=1e-12)


def test_the_bias_shifts_and_gets_the_sum_of_the_cotangent():
    x, w, ct = drawn()
    b = np.arange(5.0)
    shift = layer_norm.forward(F64, x, w, b) - layer_norm.forward(F64, x, w, 0 * b)
    np.testing.assert_allclose(shift, np.broadcast_to(b, (3, 5)), atol=1e-14)
    _, dw, db = layer_norm.vjp(F64, ct, x, w, b)
    np.testing.assert_allclose(db, ct.sum(axis=0), rtol=1e-15)
    np.testing.assert_allclose(dw, (ct * layer_norm.forward(F64, x)).sum(axis=0), rtol=1e-13)


def test_a_row_of_one_element_has_no_gradient():
    x = np.array([[3.0], [-0.5]])
    assert not layer_norm.vjp(F64, np.ones((2, 1)), x).any()
