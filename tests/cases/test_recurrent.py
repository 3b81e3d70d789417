import numpy as np
import pytest
from gradcheck_cases.recurrent import (
    gated_delta_rule,
    gru_cell,
    linear_attention,
    lstm_cell,
    selective_scan,
    wkv,
    wkv6,
)

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw


def primals(spec, sample, dialect=""):
    """The primals of one sample, as the suite draws them."""
    (found,) = [s for s in spec.samples if s.name == sample]
    drawn = found.primals(Draw("recurrent", spec.name, sample))
    without = spec.dialect(dialect).without if dialect else ()
    return [np.array(p) for name, p in zip(spec.primals, drawn, strict=True) if name not in without]


def forward(spec, *given, **attrs):
    return spec.forward(F64, *given, **attrs)


def cut(given, at, timed):
    """Two runs of primals: the first `at` steps and the rest; primals beyond `timed` are shared."""
    return (
        [p[:at] if i in timed else p for i, p in enumerate(given)],
        [p[at:] if i in timed else p for i, p in enumerate(given)],
    )


# ── scans: one run or two ────────────────────────────────────────────────────────────────────
# Each resumes from the state that it returned; so does its backward, from the state's gradient.

RESUMED = {
    "selective_scan": (selective_scan, {0, 1, 3, 4}, {"softplus": True}),
    "wkv6": (wkv6, {0, 1, 2, 3}, {}),
    "linear_attention": (linear_attention, {0, 1, 2}, {"normalised": False, "decay": 0.5}),
    "gated_delta_rule": (gated_delta_rule, {0, 1, 2, 3, 4}, {"normalised": True}),
}


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("name", RESUMED)
def test_a_scan_in_two_runs_is_the_scan_in_one(name, at):
    spec, timed, attrs = RESUMED[name]
    given = primals(spec, "typical")
    given = given[:-1] if name == "linear_attention" else given  # without z, which is not returned
    draw = Draw("two runs", name)
    y, last = forward(spec, *given, **attrs)
    ct, ct_last = draw.signed(*y.shape), draw.signed(*last.shape)
    whole = spec.vjp(F64, (ct, ct_last), *given, **attrs)

    first, second = cut(given, at, timed)
    y1, between = forward(spec, *first, **attrs)
    second[-1] = between
    y2, end = forward(spec, *second, **attrs)
    np.testing.assert_allclose(np.concatenate([y1, y2]), y, rtol=1e-13)
    np.testing.assert_allclose(end, last, rtol=1e-13)

    late = spec.vjp(F64, (ct[at:], ct_last), *second, **attrs)
    early = spec.vjp(F64, (ct[:at], late[-1]), *first, **attrs)
    for i, want in enumerate(whole):
        if i in timed:
            got = np.concatenate([early[i], late[i]])
        else:
            got = early[i] if i == len(whole) - 1 else early[i] + late[i]
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


# ── selective_scan ───────────────────────────────────────────────────────────────────────────


def test_a_scan_by_hand():
    # One feature, one state; a step of log 2 at the rate -1 halves the state.
    step = np.log(2)
    x, delta = np.array([[1.0], [2.0]]), np.full((2, 1), step)
    a, b, c = np.array([[-1.0]]), np.array([[1.0], [3.0]]), np.array([[1.0], [5.0]])
    y, h = forward(selective_scan, x, delta, a, b, c, np.array([10.0]), np.array([[4.0]]))
    h1 = 2 + step
    h2 = h1 / 2 + 6 * step
    np.testing.assert_allclose(y[:, 0], [h1 + 10, 5 * h2 + 20], rtol=1e-15)
    np.testing.assert_allclose(h, [[h2]], rtol=1e-15)


def test_a_scan_without_decay_is_a_running_sum():
    x = np.arange(1.0, 6.0)[:, None]
    ones = np.ones((5, 1))
    y, h = forward(selective_scan, x, ones, np.zeros((1, 1)), ones, ones)
    np.testing.assert_array_equal(y, np.cumsum(x, axis=0))
    np.testing.assert_array_equal(h, [[15.0]])


def test_softplus_of_the_step_may_be_taken_outside():
    x, delta, *rest = primals(selective_scan, "typical")
    inside = forward(selective_scan, x, delta, *rest, softplus=True)
    outside = forward(selective_scan, x, np.log1p(np.exp(delta)), *rest)
    for got, want in zip(inside, outside, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_the_two_holds_agree_as_the_step_goes_to_zero():
    x, delta, a, *rest, h = primals(selective_scan, "one-step")
    fed = [
        forward(selective_scan, x, delta / 2**20, a, *rest, 0 * h, exact_hold=exact)[1]
        for exact in (True, False)
    ]
    np.testing.assert_allclose(*fed, rtol=1e-5)
    wide = [
        forward(selective_scan, x, delta, a, *rest, 0 * h, exact_hold=exact)[1]
        for exact in (True, False)
    ]
    ratio = wide[0] / wide[1]  # (1 - e^-s)/s for s = |step a|
    s = -delta[0][:, None] * a
    np.testing.assert_allclose(ratio, -np.expm1(-s) / s, rtol=1e-12)


@pytest.mark.parametrize("spec", [selective_scan, wkv6, linear_attention, gated_delta_rule])
def test_no_steps_pass_the_state_and_its_cotangent_through(spec):
    given = primals(spec, "empty")
    at = spec.primals.index("h" if spec is selective_scan else "s")
    y, last = forward(spec, *given)
    assert y.shape[0] == 0
    np.testing.assert_array_equal(last, given[at])
    ct = Draw("no steps").signed(*last.shape)
    gradients = spec.vjp(F64, (y, ct), *given)
    np.testing.assert_array_equal(gradients[at], ct)
    assert not any(g.any() for i, g in enumerate(gradients) if i != at)


# ── wkv ──────────────────────────────────────────────────────────────────────────────────────


def test_wkv_by_hand():
    # Keys and bonus of 0: a value's weight is 1 when new and one step later, then it decays.
    v = np.array([[1.0], [2.0], [4.0], [8.0]])
    zero, k = np.zeros(1), np.zeros((4, 1))
    f = np.exp(-1.0)  # exp(-exp(0))
    y = forward(wkv, zero, zero, k, v)[:, 0]
    want = [
        1,
        3 / 2,
        (f + 2 + 4) / (f + 2),
        (f * f + 2 * f + 4 + 8) / (f * f + f + 2),
    ]
    np.testing.assert_allclose(y, want, rtol=1e-15)


def test_the_kernel_of_wkv_takes_the_rate_itself():
    w, u, k, v = primals(wkv, "typical", "rwkv-4")
    rate = -np.exp(w)
    np.testing.assert_array_equal(forward(wkv, rate, u, k, v, raw=True), forward(wkv, w, u, k, v))
    ct = Draw("kernel").signed(*v.shape)
    by_rate = wkv.vjp(F64, ct, rate, u, k, v, raw=True)[0]
    np.testing.assert_allclose(wkv.vjp(F64, ct, w, u, k, v)[0], by_rate * rate, rtol=1e-15)


def test_wkv_resumes_from_the_sums_of_what_went_before():
    w, u, k, v = primals(wkv, "typical", "rwkv-4")
    ages = np.array([[1.0], [0.0]])  # the state decays from one step to the next, not at once
    weights = np.exp(k[:2] - ages * np.exp(w))
    num, den = (weights * v[:2]).sum(axis=0), weights.sum(axis=0)
    resumed = forward(wkv, w, u, k[2:], v[2:], num, den)
    np.testing.assert_allclose(resumed, forward(wkv, w, u, k, v)[2:], rtol=1e-13)


def test_wkv_stays_finite_in_float32_where_exp_of_a_key_does_not():
    given = [p.astype(np.float32) for p in primals(wkv, "loud-first", "rwkv-4")]
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(given[2])).all()
    y = wkv.forward(F32, *given)
    assert y.dtype == np.float32
    assert all(np.isfinite(g).all() for g in wkv.vjp(F32, np.ones_like(y), *given))


# ── wkv6 ─────────────────────────────────────────────────────────────────────────────────────


def test_wkv6_by_hand():
    # One feature: a value counts u times when it is new, once the step after, then it decays.
    r, k = np.array([[1.0], [2.0], [1.0]]), np.array([[1.0], [3.0], [1.0]])
    v, u = np.array([[1.0], [10.0], [100.0]]), np.array([7.0])
    half = np.full((3, 1), np.log(0.5))
    y, last = forward(wkv6, r, k, v, half, u, np.array([[4.0]]), log_decay=True)
    want = [4 + 7 * 1, 2 * (2 + 1 + 7 * 30), (1 + 0.5 + 30) + 700]
    np.testing.assert_allclose(y[:, 0], want, rtol=1e-14)
    np.testing.assert_allclose(last, [[0.5 * (0.5 * (0.5 * 4 + 1) + 30) + 100]], rtol=1e-14)


def test_wkv6_with_a_constant_decay_and_a_bonus_of_one_over_it_is_retention():
    # What it reads before the decay, retention reads after.
    r, k, v, w, u = primals(wkv6, "typical", "rwkv-6")
    decay = 0.5
    w, u = np.full_like(w, np.log(decay)), np.full_like(u, 1 / decay)
    y, last = forward(wkv6, r, k, v, w, u, log_decay=True)
    attrs = {"feature": "identity", "normalised": False, "decay": decay}
    want, state = forward(linear_attention, r, k, v, **attrs)
    np.testing.assert_allclose(y, want / decay, rtol=1e-12)
    np.testing.assert_allclose(last, state, rtol=1e-12)


# ── linear_attention ─────────────────────────────────────────────────────────────────────────


def test_linear_attention_is_masked_attention_without_a_softmax():
    q, k, v = primals(linear_attention, "typical", "elu")
    weights = (np.where(q > 0, q + 1, np.exp(q)) @ np.where(k > 0, k + 1, np.exp(k)).T) * np.tri(5)
    y, _ = forward(linear_attention, q, k, v, eps=0.0)
    np.testing.assert_allclose(y, weights @ v / weights.sum(axis=1, keepdims=True), rtol=1e-12)


def test_retention_fades_by_the_distance():
    q, k, v, s = primals(linear_attention, "typical", "retention")
    attrs = linear_attention.dialect("retention").attrs
    decay, steps = attrs["decay"], np.arange(5)
    fade = np.where(steps[:, None] >= steps, decay ** np.abs(steps[:, None] - steps), 0)
    y, last = forward(linear_attention, q, k, v, 0 * s, **attrs)
    np.testing.assert_allclose(y, (q @ k.T * fade) @ v / np.sqrt(3), rtol=1e-12)
    np.testing.assert_allclose(last, (k * decay ** steps[::-1, None]).T @ v, rtol=1e-12)


# ── gated_delta_rule ─────────────────────────────────────────────────────────────────────────


def test_a_full_write_under_a_unit_key_is_read_back():
    q, _, v, beta, g, s = primals(gated_delta_rule, "one-step")
    k = np.array([[0.0, 0.6, 0.8]])
    y, last = forward(gated_delta_rule, k, k, v, np.ones_like(beta), g, s, scaled=False)
    np.testing.assert_allclose(y, v, rtol=1e-14)
    other = np.array([1.0, 0.0, 0.0])  # an orthogonal key: only the decay reaches what it holds
    np.testing.assert_allclose(other @ last, np.exp(g[0]) * (other @ s), rtol=1e-14)
    assert q.shape == k.shape


def test_a_log_decay_of_zero_is_the_delta_rule():
    q, k, v, beta = primals(gated_delta_rule, "typical", "delta-rule")
    gated = forward(gated_delta_rule, q, k, v, beta, np.zeros(5))
    for got, want in zip(gated, forward(gated_delta_rule, q, k, v, beta), strict=True):
        np.testing.assert_array_equal(got, want)
    y, last = gated
    ct = Draw("delta").signed(*y.shape), Draw("delta", "last").signed(*last.shape)
    gates = gated_delta_rule.vjp(F64, ct, q, k, v, beta, np.zeros(5))[4]
    assert gates[0] == 0  # nothing to forget before the first step
    assert np.all(gates[1:] != 0)


def test_the_error_is_read_after_the_decay():
    q, k, v, beta, g, s = primals(gated_delta_rule, "one-step")
    _, last = forward(gated_delta_rule, q, k, v, beta, g, s)
    kept = np.exp(g[0]) * s
    want = kept + beta[0] * np.outer(k[0], v[0] - k[0] @ kept)
    np.testing.assert_allclose(last, want, rtol=1e-14)


# ── cells ────────────────────────────────────────────────────────────────────────────────────


def test_an_lstm_without_weights_halves_its_cell():
    x, h, c, w_ih, w_hh = primals(lstm_cell, "one-row", "bias-free")
    after, cell = forward(lstm_cell, x, h, c, 0 * w_ih, 0 * w_hh)
    np.testing.assert_array_equal(cell, c / 2)
    np.testing.assert_array_equal(after, np.tanh(c / 2) / 2)


def test_an_open_forget_gate_and_a_closed_input_gate_carry_the_cell():
    x, h, c, w_ih, w_hh = primals(lstm_cell, "one-row", "bias-free")
    bias = np.repeat([-60.0, 60.0, 0.0, 0.0], 3)
    _, cell = forward(lstm_cell, x, h, c, w_ih, w_hh, bias)
    np.testing.assert_allclose(cell, c, rtol=1e-15)
    ct = np.zeros(3), np.array([1.0, 2.0, 3.0])
    dc = lstm_cell.vjp(F64, ct, x, h, c, w_ih, w_hh, bias)[2]
    np.testing.assert_allclose(dc, ct[1], rtol=1e-15)


@pytest.mark.parametrize(
    ("spec", "plain", "order"), [(lstm_cell, "ifgo", "iofg"), (gru_cell, "rzn", "zrn")]
)
def test_an_order_is_a_permutation_of_rows(spec, plain, order):
    given = primals(spec, "typical")
    states = 3 if spec is lstm_cell else 2

    def reordered(w):
        parts = dict(zip(plain, np.split(w, len(plain)), strict=True))
        return np.concatenate([parts[gate] for gate in order])

    moved = [p if i < states else reordered(p) for i, p in enumerate(given)]
    out = np.asarray(forward(spec, *given))
    np.testing.assert_array_equal(np.asarray(forward(spec, *moved, order=order)), out)
    ct = Draw("order").signed(*out.shape)
    ct = tuple(ct) if spec is lstm_cell else ct
    wanted = spec.vjp(F64, ct, *given)
    for i, got in enumerate(spec.vjp(F64, ct, *moved, order=order)):
        want = wanted[i] if i < states else reordered(wanted[i])
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)


def test_the_forget_bias_is_a_bias_of_one_gate():
    *rest, b_ih = primals(lstm_cell, "typical", "keras")
    offset = b_ih + np.repeat([0.0, 1.0, 0.0, 0.0], 2)
    for got, want in zip(
        forward(lstm_cell, *rest, b_ih, forget_bias=1.0),
        forward(lstm_cell, *rest, offset),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-14)


def test_an_update_gate_that_is_open_keeps_the_state():
    x, h, w_ih, w_hh, b, _ = primals(gru_cell, "one-row")
    b = np.where(np.arange(9) // 3 == 1, 60.0, b)
    np.testing.assert_allclose(forward(gru_cell, x, h, w_ih, w_hh, b), h, rtol=1e-15)
    dx, dh, *_ = gru_cell.vjp(F64, np.array([1.0, 2.0, 3.0]), x, h, w_ih, w_hh, b)
    np.testing.assert_allclose(dh, [1, 2, 3], rtol=1e-15)
    assert not dx.any()


def test_the_place_of_the_reset_gate_matters_unless_it_is_open():
    x, h, w_ih, w_hh, b, _ = primals(gru_cell, "one-row")
    places = [forward(gru_cell, x, h, w_ih, w_hh, b, reset_after=after) for after in (True, False)]
    assert np.abs(places[0] - places[1]).max() > 1e-3
    b = np.where(np.arange(9) < 3, 60.0, b)
    places = [forward(gru_cell, x, h, w_ih, w_hh, b, reset_after=after) for after in (True, False)]
    np.testing.assert_allclose(*places, rtol=1e-14)
