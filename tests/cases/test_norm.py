import numpy as np
import pytest
from gradcheck_cases.norm import (
    batch_norm,
    group_norm,
    l2_normalize,
    layer_norm,
    norm,
    qk_norm,
    rms_norm,
    rms_norm_back,
)

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digits import mp50


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


def test_norm_is_layer_norm_without_weights():
    x, _, ct = drawn()
    np.testing.assert_array_equal(norm.forward(F64, x), layer_norm.forward(F64, x))
    np.testing.assert_allclose(
        norm.vjp(F64, ct, x), layer_norm.vjp(F64, ct, x), rtol=1e-14, atol=1e-15
    )
    assert norm.defaults["eps"] == 1e-5


# ── rms_norm_back ────────────────────────────────────────────────────────────────────────────


def test_the_backward_of_rms_norm_is_rms_norms_vjp():
    x, _, ct = drawn()
    for eps in (1e-6, 0.1):
        np.testing.assert_array_equal(
            rms_norm_back.forward(F64, ct, x, eps=eps), rms_dx(ct, x, eps=eps)
        )


def test_the_backward_of_rms_norm_is_its_own_adjoint_in_g():
    x, _, g = drawn()
    u = Draw("norm", "u").signed(3, 5)
    dg, _ = rms_norm_back.vjp(F64, u, g, x)
    np.testing.assert_allclose(dg, rms_norm_back.forward(F64, u, x), rtol=1e-13)


def test_the_double_backward_is_symmetric_in_its_two_cotangents():
    # It is the gradient in x of <u, J(x) g> with a symmetric J.
    x, _, g = drawn()
    u = Draw("norm", "u").signed(3, 5)
    _, one = rms_norm_back.vjp(F64, u, g, x)
    _, other = rms_norm_back.vjp(F64, g, u, x)
    np.testing.assert_allclose(one, other, rtol=1e-13)


def test_at_a_zero_row_the_double_backward_has_no_gradient_of_x():
    x, _, g = drawn()
    x[1] = 0
    dg, dx = rms_norm_back.vjp(F64, g, 2 * g, x, eps=1e-4)
    np.testing.assert_allclose(dg[1], g[1] * 100, rtol=1e-13)
    assert not dx[1].any()


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


def test_groups_are_neighbouring_channels_and_do_not_see_each_other():
    x, w, b, ct = channels()
    ct[:, :2] = 0
    dx, dw, db = group_norm.vjp(F64, ct, x, w, b, groups=2)
    assert not dx[:, :2].any()
    assert dx[:, 2:].all()
    assert not dw[:2].any()
    assert not db[:2].any()


def test_the_gain_differs_within_a_group_and_so_belongs_into_its_means():
    x, w, b, ct = channels()
    inside = group_norm.vjp(F64, ct, x, w, b, groups=2)[0]
    after = group_norm.vjp(F64, ct, x, groups=2) * w[:, None]
    assert not np.allclose(inside, after)
    alone = group_norm.vjp(F64, ct, x, groups=4) * w[:, None]  # one channel each: no difference
    np.testing.assert_allclose(
        group_norm.vjp(F64, ct, x, w, b, groups=4)[0], alone, rtol=1e-12, atol=1e-15
    )


def test_batch_norm_is_layer_norm_of_the_channels():
    x, w, b, ct = channels()
    rows = x.transpose(1, 0, 2).reshape(4, 15)
    flat = layer_norm.vjp(F64, (ct * w[:, None]).transpose(1, 0, 2).reshape(4, 15), rows)
    dx, dw, db = batch_norm.vjp(F64, ct, x, w, b)
    np.testing.assert_allclose(dx, flat.reshape(4, 3, 5).transpose(1, 0, 2), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(db, ct.sum(axis=(0, 2)))
    np.testing.assert_allclose(dw, (ct * batch_norm.forward(F64, x)).sum(axis=(0, 2)))


def test_under_equal_cotangents_batch_norm_passes_nothing_back():
    x, w, b, _ = channels()
    dx, dw, db = batch_norm.vjp(F64, np.ones(x.shape), x, w, b)
    np.testing.assert_allclose(dx, 0, atol=1e-15)  # why all ones must never stand alone
    np.testing.assert_allclose(dw, 0, atol=1e-13)
    assert db.tolist() == [15] * 4


# ── l2_normalize ─────────────────────────────────────────────────────────────────────────────


def test_inside_the_ball_eps_is_the_length_and_the_gradient_is_plain():
    x, ct = np.array([[0.25, -0.5], [0.0, 0.0], [3.0, 4.0]]), np.array([[1.0, 2.0]] * 3)
    y = l2_normalize.forward(F64, x, eps=2.0)
    dx = l2_normalize.vjp(F64, ct, x, eps=2.0)
    assert y.tolist() == [[0.125, -0.25], [0, 0], [0.6, 0.8]]
    assert dx[:2].tolist() == [[0.5, 1.0]] * 2
    np.testing.assert_allclose((dx[2] * x[2]).sum(), 0, atol=1e-15)


@pytest.mark.frameworks
def test_on_the_sphere_pytorch_follows_the_outer_formula():
    torch = pytest.importorskip("torch")
    x, ct = np.array([[0.375, 0.5]]), np.array([[1.0, -2.0]])
    leaf = torch.tensor(x, requires_grad=True)
    torch.nn.functional.normalize(leaf, dim=-1, eps=0.625).backward(torch.tensor(ct))
    (kink,) = l2_normalize.kinks
    outer, half = (c.vjp(F64, ct, x, eps=0.625) for c in kink.conventions)
    np.testing.assert_allclose(leaf.grad.numpy(), outer, rtol=1e-13)
    np.testing.assert_allclose(half, (outer + ct / 0.625) / 2, rtol=1e-13)


def test_under_the_root_there_is_no_kink():
    x, _, _ = drawn()
    (kink,) = l2_normalize.kinks
    assert (kink.gap(F64, 0 * x, eps=0.25, inside=True) == 1).all()
    assert not kink.gap(F64, np.array([[0.375, 0.5]]), eps=0.625).any()


# ── qk_norm ──────────────────────────────────────────────────────────────────────────────────


def test_each_head_is_normalised_by_itself():
    draw = Draw("norm", "heads")
    q, k, w = draw.normal(3, 4, 5), draw.normal(3, 2, 5), np.ones(5)
    louder = q * np.array([1.0, 8.0, 64.0, 0.5])[:, None]
    one, _ = qk_norm.forward(F64, q, k, w, w, eps=0.0)
    other, _ = qk_norm.forward(F64, louder, k, w, w, eps=0.0)
    np.testing.assert_allclose(one, other, rtol=1e-14)


def test_the_weights_collect_from_all_tokens_and_heads_of_their_own():
    draw = Draw("norm", "heads")
    q, k, wq, wk = draw.normal(3, 4, 5), draw.normal(7, 2, 5), draw.normal(5), draw.normal(5)
    ctq, ctk = draw.signed(3, 4, 5), draw.signed(7, 2, 5)
    dq, dk, dwq, dwk = qk_norm.vjp(F64, (ctq, ctk), q, k, wq, wk)
    yq, yk = qk_norm.forward(F64, q, k, np.ones(5), np.ones(5))
    np.testing.assert_allclose(dwq, (ctq * yq).sum(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(dwk, (ctk * yk).sum(axis=(0, 1)), rtol=1e-12)
    none = qk_norm.vjp(F64, (ctq, 0 * ctk), q, k, wq, wk)
    np.testing.assert_array_equal(none[0], dq)
    assert not none[1].any()
    assert not none[3].any()
    assert dk.any()
