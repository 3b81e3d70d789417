import numpy as np
import pytest
from gradcheck_cases.norm import (
    batch_norm,
    group_norm,
    l2_normalize,
    layer_norm,
    rms_norm,
)

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50


def drawn(*roles):
    """A sample x, its weight and a cotangent."""
    draw = Draw("norm", *roles)
    return draw.normal(3, 5), draw.normal(5), draw.signed(3, 5)


# ── rms_norm ─────────────────────────────────────────────────────────────────────────────────


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


# ── group_norm and batch_norm ────────────────────────────────────────────────────────────────


def channels():
    """A tensor [n, c, s], a weight and a bias per channel, and a cotangent."""
    draw = Draw("norm", "channels")
    return draw.normal(3, 4, 5), draw.normal(4), draw.normal(4), draw.signed(3, 4, 5)


def test_one_group_is_layer_norm_over_channels_and_pixels():
    x, _, _, ct = channels()
    flat = layer_norm.vjp(F64, ct.reshape(3, 20), x.reshape(3, 20))
    np.testing.assert_allclose(
        group_norm.vjp(F64, ct, x, groups=1), flat.reshape(3, 4, 5), rtol=1e-12, atol=1e-15
    )


def test_batch_norm_is_layer_norm_of_the_channels():
    x, w, b, ct = channels()
    rows = x.transpose(1, 0, 2).reshape(4, 15)
    flat = layer_norm.vjp(F64, (ct * w[:, None]).transpose(1, 0, 2).reshape(4, 15), rows)
    dx, dw, db = batch_norm.vjp(F64, ct, x, w, b)
    np.testing.assert_allclose(dx, flat.reshape(4, 3, 5).transpose(1, 0, 2), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(db, ct.sum(axis=(0, 2)))
    np.testing.assert_allclose(dw, (ct * batch_norm.forward(F64, x)).sum(axis=(0, 2)))


# ── l2_normalize ─────────────────────────────────────────────────────────────────────────────


def test_under_the_root_there_is_no_kink():
    x, _, _ = drawn()
    (kink,) = l2_normalize.kinks
    assert (kink.gap(F64, 0 * x, eps=0.25, inside=True) == 1).all()
    assert not kink.gap(F64, np.array([[0.375, 0.5]]), eps=0.625).any()
