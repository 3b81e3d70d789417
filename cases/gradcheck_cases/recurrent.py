"""Cells and scans over time. Axes: t steps, d features, e features of a value, n states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample


def _joined(xp: Any, rows: Sequence[Any], like: Any, axis: int = -2) -> Any:
    """One array per step stacked as `like`; batch axes that it lacks are summed over."""
    if not rows:
        return xp.zeros_like(like)
    return xp.reduce_to(xp.stack(rows, axis=axis), like)


def _outer(x: Any, y: Any) -> Any:
    return x[..., :, None] * y[..., None, :]


# ── selective_scan ───────────────────────────────────────────────────────────────────────────


def selective_scan_forward(
    xp, x, delta, a, b, c, d=None, h=None, *, softplus=False, exact_hold=False
):
    states = _scan_states(xp, x, delta, a, b, h, softplus, exact_hold)
    rows = [xp.sum(s * c[..., t, None, :], axis=-1) for t, s in enumerate(states[1:])]
    y = xp.stack(rows, axis=-2) if rows else xp.zeros_like(x)
    return y if d is None else y + x * d[..., None, :], states[-1]


def selective_scan_vjp(
    xp, ct, x, delta, a, b, c, d=None, h=None, *, softplus=False, exact_hold=False
):
    ct_y, dh = ct
    states = _scan_states(xp, x, delta, a, b, h, softplus, exact_hold)
    step = _softplus(xp, delta) if softplus else delta
    dx, ddelta, db, dc = [], [], [], []
    da = xp.zeros_like(a)
    for t in reversed(range(x.shape[-2])):
        g, s = ct_y[..., t, :, None], step[..., t, :, None]
        xt, bt = x[..., t, :, None], b[..., t, None, :]
        decay, gain, gain_by_step, gain_by_a = _hold(xp, s, a, exact_hold)
        dc.append(xp.sum(g * states[t + 1], axis=-2))
        dh = dh + g * c[..., t, None, :]
        ddecay = dh * states[t] * decay  # cotangent of the exponent s·a
        dgain = dh * xt * bt
        ddelta.append(xp.sum(ddecay * a + dgain * gain_by_step, axis=-1))
        da = da + xp.reduce_to(ddecay * s + dgain * gain_by_a, a)
        db.append(xp.sum(dh * gain * xt, axis=-2))
        dx.append(xp.sum(dh * gain * bt, axis=-1))
        dh = dh * decay
    dx, ddelta, db, dc = (
        _joined(xp, rows[::-1], like) for rows, like in ((dx, x), (ddelta, delta), (db, b), (dc, c))
    )
    if softplus:
        ddelta = ddelta * xp.sigmoid(delta)
    if d is None:
        return dx, ddelta, da, db, dc
    dx = dx + xp.reduce_to(ct_y * d[..., None, :], x)
    dd = xp.reduce_to(xp.sum(ct_y * x, axis=-2), d)
    gradients = (dx, ddelta, da, db, dc, dd)
    return gradients if h is None else (*gradients, xp.reduce_to(dh, h))


def _scan_states(
    xp: Any, x: Any, delta: Any, a: Any, b: Any, h: Any, softplus: bool, exact_hold: bool
) -> list[Any]:
    """The states [d, n] before the first step and after every step."""
    step = _softplus(xp, delta) if softplus else delta
    states = [xp.zeros_like(a) if h is None else h]
    for t in range(x.shape[-2]):
        decay, gain, _, _ = _hold(xp, step[..., t, :, None], a, exact_hold)
        fed = gain * x[..., t, :, None] * b[..., t, None, :]
        states.append(decay * states[-1] + fed)
    return states


def _hold(xp: Any, s: Any, a: Any, exact: bool) -> tuple[Any, Any, Any, Any]:
    """Decay exp(s·a) and gain of one step, and the gain's derivatives by s and by a."""
    decay = xp.exp(s * a)
    if not exact:
        return decay, s, 1, 0
    gain = xp.expm1(s * a) / a
    return decay, gain, decay, (s * decay - gain) / a


def _softplus(xp: Any, x: Any) -> Any:
    return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))


def _scan(
    draw: Any, t: int, d: int, n: int, *, batch: tuple[int, ...] = (), zero: bool = False
) -> tuple[Any, ...]:
    """Steps in [1/8, 2], decay rates in [-2, -1/8], everything else about 1."""
    h = np.zeros((*batch, d, n)) if zero else draw.normal(*batch, d, n)
    return (
        draw.normal(*batch, t, d),
        draw.positive(*batch, t, d),
        -draw.positive(d, n),
        draw.normal(*batch, t, n),
        draw.normal(*batch, t, n),
        draw.normal(d),
        h,
    )


def _steps(draw: Any, values: Sequence[float]) -> tuple[Any, ...]:
    """A scan of 3 features and 2 states whose steps are `values`; slow decay."""
    x, _, a, b, c, d, h = _scan(draw, len(values), 3, 2)
    delta = np.array(values)[:, None] + draw.uniform(-0.25, 0.25, len(values), 3)
    return x, delta, a / 16, b, c, d, h


def _quiet_step(draw: Any) -> tuple[Any, ...]:
    primals = _scan(draw, 4, 3, 2)
    primals[1][1] = 0.0
    return primals


def _loud_input(draw: Any) -> tuple[Any, ...]:
    x, *rest = _scan(draw, 3, 2, 3)
    return (x * np.exp2([[-10.0], [0.0], [10.0]]), *rest)


selective_scan = OpSpec(
    name="selective_scan",
    signature="(t,d),(t,d),(d,n),(t,n),(t,n),(d),(d,n)->(t,d),(d,n)",
    forward=selective_scan_forward,
    vjp=selective_scan_vjp,
    formula=r"h_t = e^{\Delta_t a} h_{t-1} + \Delta_t x_t b_t,\quad "
    r"y_t = \sum_n c_{tn} h_{tn} + d\,x_t",
    source="Gu & Dao 2023, arXiv:2312.00752, algorithm 2; mamba_ssm, selective_scan_ref",
    dialects=(
        Dialect(name="stateful", says="h given, as in chunked or resumed scans"),
        Dialect(name="mamba", says="mamba_ssm: from a state of zero", without=("h",)),
        Dialect(
            name="softplus",
            says="mamba_ssm with delta_softplus: the step is softplus(delta)",
            attrs={"softplus": True},
        ),
        Dialect(
            name="exact-hold",
            says="the paper's (4): b is scaled by (exp(step·a) - 1)/a",
            attrs={"exact_hold": True},
        ),
        Dialect(name="no-skip", says="mamba_ssm with D=None", without=("d", "h")),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _scan(draw, 5, 3, 2),
            hunts="a state's gradient not carried back, time off by one, a sum of a over the "
            "last step only",
        ),
        Sample(
            name="square",
            primals=lambda draw: _scan(draw, 3, 3, 3),
            hunts="steps, features and states exchanged, which only equal sizes forgive",
        ),
        Sample(
            name="two-steps",
            primals=lambda draw: _scan(draw, 2, 3, 5),
            hunts="the first and the last step treated alike",
        ),
        Sample(
            name="one-step",
            primals=lambda draw: _scan(draw, 1, 3, 2),
            hunts="the last state's cotangent lost, a scan that starts at the second step",
        ),
        Sample(
            name="single",
            primals=lambda draw: _scan(draw, 3, 1, 1),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="chunk-and-one",
            primals=lambda draw: _scan(draw, 9, 1, 2),
            hunts="a state lost between blocks of 8 steps, the ninth alone in its block",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _scan(draw, 3, 2, 3, batch=(2,)),
            hunts="a and d summed over time but not over the batch",
        ),
        Sample(
            name="zero-state",
            primals=lambda draw: _scan(draw, 3, 2, 3, zero=True),
            hunts="no gradient of a state that is given as zero; its gradient is not zero",
            dialects=("stateful",),
        ),
        Sample(
            name="long-step",
            primals=lambda draw: _steps(draw, [30.0, -3.0, 1.0]),
            hunts="softplus that overflows or loses its slope where it is all but the identity",
            dialects=("softplus",),
        ),
        Sample(
            name="short-steps",
            primals=lambda draw: _steps(draw, [-6.0, 0.5, -3.0]),
            hunts="softplus(delta) taken for delta where it is small",
            dialects=("softplus",),
        ),
        Sample(
            name="quiet-step",
            primals=_quiet_step,
            hunts="a division by the step: at a step of 0 the state stays, its gradient does not",
            dialects=("stateful", "mamba", "exact-hold"),
        ),
        Sample(
            name="loud-input",
            primals=_loud_input,
            hunts="gradients of small inputs lost beside large ones",
            dialects=("stateful", "mamba"),
        ),
        Sample(
            name="empty",
            primals=lambda draw: _scan(draw, 0, 3, 2),
            hunts="a scan of no steps: the state passes through, its gradient too",
            dialects=("stateful",),
        ),
        Sample(
            name="tiles",
            primals=lambda draw: _scan(draw, 35, 1, 1),
            dialects=("stateful",),
            hunts="a sequence in chunks of 32 whose state is not handed on",
        ),
    ),
)

# ── wkv ──────────────────────────────────────────────────────────────────────────────────────

NOTHING = "-1e30"  # the logarithm of an empty sum, as the kernels write it


def wkv_forward(xp, w, u, k, v, num=None, den=None, *, raw=False):
    rows = [
        _wkv_output(xp, state, u, k[..., t, :], v[..., t, :])[0]
        for t, state in enumerate(_wkv_states(xp, w, k, v, num, den, raw))
    ]
    return xp.stack(rows, axis=-2) if rows else xp.zeros_like(v)


def wkv_vjp(xp, ct, w, u, k, v, num=None, den=None, *, raw=False):
    rate = w if raw else -xp.exp(w)
    states = _wkv_states(xp, w, k, v, num, den, raw)
    dk, dv = [], []
    drate, du = xp.zeros_like(w), xp.zeros_like(u)
    # Cotangents of numerator and denominator after the step, over e^o: they overflow alone.
    da = db = xp.zeros_like(w)
    o = xp.full(np.shape(w), NOTHING)
    for t in reversed(range(k.shape[-2])):
        (a, b, p), kt, vt = states[t], k[..., t, :], v[..., t, :]
        y, z, m, bonus = _wkv_output(xp, states[t], u, kt, vt)
        q = ct[..., t, :] / z
        through_u = bonus * q * (vt - y)
        du = du + xp.reduce_to(through_u, u)
        kept = xp.exp(kt + o)
        dk.append(through_u + kept * (vt * da + db))
        dv.append(bonus * q + kept * da)
        drate = drate + xp.reduce_to(xp.exp(p + rate + o) * (a * da + b * db), w)
        top = xp.maximum(-m, o + rate)
        fresh, old = xp.exp(-m - top), xp.exp(o + rate - top)
        da, db, o = fresh * q + old * da, old * db - fresh * q * y, top
    dw = drate if raw else drate * rate
    gradients = (dw, du, _joined(xp, dk[::-1], k), _joined(xp, dv[::-1], v))
    if num is None:
        return gradients
    scale = xp.exp(o)
    return (*gradients, xp.reduce_to(scale * da, num), xp.reduce_to(scale * db, den))


def _wkv_states(xp: Any, w: Any, k: Any, v: Any, num: Any, den: Any, raw: bool) -> list[Any]:
    """Before each step: numerator and denominator over e^p, and p."""
    rate = w if raw else -xp.exp(w)
    a, b = (xp.zeros_like(w),) * 2 if num is None else (num, den)
    p = xp.full(np.shape(w), NOTHING) if num is None else xp.zeros_like(w)
    states = []
    for t in range(k.shape[-2]):
        states.append((a, b, p))
        kt = k[..., t, :]
        top = xp.maximum(p + rate, kt)
        old, fresh = xp.exp(p + rate - top), xp.exp(kt - top)
        a, b, p = old * a + fresh * v[..., t, :], old * b + fresh, top
    return states


def _wkv_output(xp: Any, state: Any, u: Any, k: Any, v: Any) -> tuple[Any, Any, Any, Any]:
    """Output, denominator over e^m, m, and the weight of this step's own value over e^m."""
    a, b, p = state
    m = xp.maximum(p, u + k)
    old, bonus = xp.exp(p - m), xp.exp(u + k - m)
    z = old * b + bonus
    return (old * a + bonus * v) / z, z, m, bonus


def _wkv(draw: Any, t: int, d: int, *, batch: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """With w in [-2, -1/4]: a decay either way, raw or through -exp."""
    return (
        draw.uniform(-2.0, -0.25, d),
        draw.normal(d),
        draw.normal(*batch, t, d),
        draw.normal(*batch, t, d),
        draw.normal(*batch, d),
        draw.positive(*batch, d),
    )


def _wkv_alternating(draw: Any) -> tuple[Any, ...]:
    """Values far from their averages, so that nothing cancels needlessly."""
    w, u, k, _, *rest = _wkv(draw, 5, 3)
    signs = np.array([1.0, -1.0, 1.0, -1.0, 1.0])[:, None]
    return (w, u, k / 2, signs * draw.uniform(1.0, 2.0, 5, 3), *rest)


def _wkv_keys(draw: Any, keys: Sequence[float]) -> tuple[Any, ...]:
    w, u, k, *rest = _wkv(draw, len(keys), 3)
    return (w, u, k + np.array(keys)[:, None], *rest)


def _wkv_bonus(draw: Any, bonus: float) -> tuple[Any, ...]:
    w, u, *rest = _wkv(draw, 4, 3)
    return (w, u + bonus, *rest)


def _wkv_from_nothing(draw: Any) -> tuple[Any, ...]:
    *rest, num, den = _wkv(draw, 3, 3)
    return (*rest, 0 * num, 0 * den)


def _wkv_fade(draw: Any, w: float) -> tuple[Any, ...]:
    _, *rest = _wkv(draw, 4, 3)
    return (w + draw.uniform(-0.125, 0.125, 3), *rest)


wkv = OpSpec(
    name="wkv",
    signature="(d),(d),(t,d),(t,d),(d),(d)->(t,d)",
    forward=wkv_forward,
    vjp=wkv_vjp,
    formula=r"y_t = \frac{\sum_{i<t} e^{-(t-1-i)e^w + k_i} v_i + e^{u+k_t} v_t}"
    r"{\sum_{i<t} e^{-(t-1-i)e^w + k_i} + e^{u+k_t}}",
    source="Peng et al. 2023, arXiv:2305.13048; RWKV-LM, RWKV-v4, cuda/wkv_cuda.cu",
    dialects=(
        Dialect(
            name="rwkv-4",
            says="RWKV-4: from no state; the decay of a step is exp(-exp(w))",
            without=("num", "den"),
        ),
        Dialect(
            name="kernel",
            says="RWKV-4's kernel: w comes as -exp(time_decay)",
            attrs={"raw": True},
            without=("num", "den"),
        ),
        Dialect(
            name="stateful",
            says="RWKV-4 resumed: numerator and denominator of all that went before",
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=_wkv_alternating,
            hunts="the bonus u left out of a gradient, time off by one, the chain factor of w",
        ),
        Sample(
            name="square",
            primals=lambda draw: _wkv(draw, 4, 4),
            hunts="steps and features exchanged, which only a square forgives",
        ),
        Sample(
            name="one-step",
            primals=lambda draw: _wkv(draw, 1, 3),
            hunts="a gradient of k, u or w where y is v",
        ),
        Sample(
            name="two-steps",
            primals=lambda draw: _wkv(draw, 2, 3),
            hunts="decay applied to the step just before, which has none yet",
        ),
        Sample(
            name="three-steps",
            primals=lambda draw: _wkv(draw, 3, 2),
            hunts="a gradient of w that misses the first decay there is",
        ),
        Sample(
            name="single",
            primals=lambda draw: _wkv(draw, 3, 1),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="chunk-and-one",
            primals=lambda draw: _wkv(draw, 9, 2),
            hunts="a state lost between blocks of 8 steps",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _wkv(draw, 3, 2, batch=(2,)),
            hunts="w and u overwritten by the last row of the batch",
        ),
        Sample(
            name="loud-first",
            primals=lambda draw: _wkv_keys(draw, [96.0, 92.0, 94.0]),
            hunts="exp(k) without the largest exponent taken out: it overflows in float32",
            dialects=("rwkv-4", "kernel"),
        ),
        Sample(
            name="quiet",
            primals=lambda draw: _wkv_keys(draw, [-120.0, -118.0, -119.0]),
            hunts="exp(k) without the largest exponent taken out: 0/0 in float32",
            dialects=("rwkv-4", "kernel"),
        ),
        Sample(
            name="rising",
            primals=lambda draw: _wkv_keys(draw, [-2.0, 0.0, 2.0, 4.0]),
            hunts="a running maximum that is not renewed",
        ),
        Sample(
            name="falling",
            primals=lambda draw: _wkv_keys(draw, [4.0, 2.0, 0.0, -2.0]),
            hunts="a running maximum that does not decay",
        ),
        Sample(
            name="large-bonus",
            primals=lambda draw: _wkv_bonus(draw, 4.0),
            hunts="what little the past contributes cut off",
        ),
        Sample(
            name="small-bonus",
            primals=lambda draw: _wkv_bonus(draw, -4.0),
            hunts="the bonus taken for zero: this step's own value hardly counts",
        ),
        Sample(
            name="slow-fade",
            primals=lambda draw: _wkv_fade(draw, -5.0),
            hunts="the factor exp(w) missing from the gradient of w, which is small here",
            dialects=("rwkv-4", "stateful"),
        ),
        Sample(
            name="state-of-zero",
            primals=_wkv_from_nothing,
            hunts="no gradient of a state that is given as zero",
            dialects=("stateful",),
        ),
        Sample(
            name="empty",
            primals=lambda draw: _wkv(draw, 0, 3),
            hunts="no steps: gradients of w, u and the state are zero, not left over",
        ),
    ),
)

# ── wkv6 ─────────────────────────────────────────────────────────────────────────────────────


def wkv6_forward(xp, r, k, v, w, u, s=None, *, log_decay=False):
    states = _wkv6_states(xp, k, v, w, s, log_decay)
    rows = []
    for t, state in enumerate(states[:-1]):
        kt, vt = k[..., t, :], v[..., t, :]
        rows.append(xp.sum(r[..., t, :, None] * (state + _outer(u * kt, vt)), axis=-2))
    return xp.stack(rows, axis=-2) if rows else xp.zeros_like(v), states[-1]


def wkv6_vjp(xp, ct, r, k, v, w, u, s=None, *, log_decay=False):
    ct_y, ds = ct
    states = _wkv6_states(xp, k, v, w, s, log_decay)
    dr, dk, dv, dw = [], [], [], []
    du = xp.zeros_like(u)
    for t in reversed(range(k.shape[-2])):
        g, rt, kt, vt = ct_y[..., t, :], r[..., t, :], k[..., t, :], v[..., t, :]
        rate = _rate(xp, w[..., t, :], log_decay)
        decay = xp.exp(rate)
        gv = xp.sum(g * vt, axis=-1, keepdims=True)
        dr.append(xp.sum(states[t] * g[..., None, :], axis=-1) + u * kt * gv)
        dk.append(xp.sum(ds * vt[..., None, :], axis=-1) + u * rt * gv)
        read = xp.sum(rt * u * kt, axis=-1, keepdims=True)
        dv.append(xp.sum(ds * kt[..., :, None], axis=-2) + read * g)
        du = du + xp.reduce_to(rt * kt * gv, u)
        drate = xp.sum(ds * states[t], axis=-1) * decay
        dw.append(drate if log_decay else drate * rate)
        ds = ds * decay[..., None] + _outer(rt, g)
    gradients = (
        *(_joined(xp, rows[::-1], like) for rows, like in ((dr, r), (dk, k), (dv, v), (dw, w))),
        du,
    )
    return gradients if s is None else (*gradients, xp.reduce_to(ds, s))


def _wkv6_states(xp: Any, k: Any, v: Any, w: Any, s: Any, log_decay: bool) -> list[Any]:
    """The states [d, e] before the first step and after every step."""
    states = [_initial(xp, k, v, s)]
    for t in range(k.shape[-2]):
        decay = xp.exp(_rate(xp, w[..., t, :], log_decay))
        states.append(states[-1] * decay[..., None] + _outer(k[..., t, :], v[..., t, :]))
    return states


def _rate(xp: Any, w: Any, log_decay: bool) -> Any:
    return w if log_decay else -xp.exp(w)


def _wkv6(draw: Any, t: int, d: int, e: int, *, batch: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """With w in [-2, -1/4]: a decay either way, as it is or through -exp."""
    return (
        draw.normal(*batch, t, d),
        draw.normal(*batch, t, d),
        draw.normal(*batch, t, e),
        draw.uniform(-2.0, -0.25, *batch, t, d),
        draw.normal(d),
        draw.normal(*batch, d, e),
    )


def _wkv6_silent(draw: Any) -> tuple[Any, ...]:
    r, k, *rest = _wkv6(draw, 4, 3, 2)
    k[1], r[2] = 0.0, 0.0
    return (r, k, *rest)


def _wkv6_forgetting(draw: Any) -> tuple[Any, ...]:
    r, k, v, w, u, s = _wkv6(draw, 3, 3, 2)
    w[1] = [-8.0, -0.25, 2.0]  # exp(-exp(2)) is 6e-4
    return r, k, v, w, u, s


def _wkv6_from_nothing(draw: Any) -> tuple[Any, ...]:
    *rest, s = _wkv6(draw, 3, 3, 2)
    return (*rest, 0 * s)


wkv6 = OpSpec(
    name="wkv6",
    signature="(t,d),(t,d),(t,e),(t,d),(d),(d,e)->(t,e),(d,e)",
    forward=wkv6_forward,
    vjp=wkv6_vjp,
    formula=r"y_t = (S_{t-1} + (u \odot k_t) v_t^\top)^\top r_t,\quad "
    r"S_t = e^{-e^{w_t}} \odot S_{t-1} + k_t v_t^\top",
    source="Peng et al. 2024, arXiv:2404.05892; ggml_rwkv_wkv6; fla, fused_recurrent_rwkv6",
    dialects=(
        Dialect(name="stateful", says="RWKV-6: the decay of a step is exp(-exp(w)); a state given"),
        Dialect(name="rwkv-6", says="RWKV-6 from a state of zero", without=("s",)),
        Dialect(
            name="log-decay",
            says="fla's fused_recurrent_rwkv6: w is the logarithm of the decay",
            attrs={"log_decay": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _wkv6(draw, 5, 3, 2),
            hunts="the bonus left out of a gradient, the decay's gradient off by one step",
        ),
        Sample(
            name="square",
            primals=lambda draw: _wkv6(draw, 3, 3, 3),
            hunts="the state transposed; r and k, or keys and values, exchanged",
        ),
        Sample(
            name="two-steps",
            primals=lambda draw: _wkv6(draw, 2, 2, 3),
            hunts="a state that is read after the write",
        ),
        Sample(
            name="one-step",
            primals=lambda draw: _wkv6(draw, 1, 3, 2),
            hunts="the last state's cotangent lost",
        ),
        Sample(
            name="single",
            primals=lambda draw: _wkv6(draw, 3, 1, 1),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="chunk-and-one",
            primals=lambda draw: _wkv6(draw, 9, 2, 1),
            hunts="a state lost between blocks of 8 steps",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _wkv6(draw, 3, 2, 3, batch=(2,)),
            hunts="u overwritten by the last row of the batch",
        ),
        Sample(
            name="silent",
            primals=_wkv6_silent,
            hunts="no gradient of a key or a receptance that is 0",
        ),
        Sample(
            name="forgetting",
            primals=_wkv6_forgetting,
            hunts="one decay for all features: here one keeps all, one keeps nothing",
            dialects=("stateful", "rwkv-6"),
        ),
        Sample(
            name="state-of-zero",
            primals=_wkv6_from_nothing,
            hunts="no gradient of a state that is given as zero",
            dialects=("stateful", "log-decay"),
        ),
        Sample(
            name="empty",
            primals=lambda draw: _wkv6(draw, 0, 3, 2),
            hunts="no steps: the state passes through, its gradient too",
            dialects=("stateful",),
        ),
    ),
)

# ── linear_attention ─────────────────────────────────────────────────────────────────────────


def linear_attention_forward(
    xp,
    q,
    k,
    v,
    s=None,
    z=None,
    *,
    feature="elu",
    normalised=True,
    scaled=False,
    decay=1.0,
    eps=1e-6,
):
    q, k = _feature(xp, q, feature) * _scale(xp, q, scaled), _feature(xp, k, feature)
    states = _attention_states(xp, k, v, s, z, decay)
    rows = [
        _attention_output(xp, q[..., t, :], state, normalised, eps)[0]
        for t, state in enumerate(states[1:])
    ]
    return xp.stack(rows, axis=-2) if rows else xp.zeros_like(v), states[-1][0]


def linear_attention_vjp(
    xp,
    ct,
    q,
    k,
    v,
    s=None,
    z=None,
    *,
    feature="elu",
    normalised=True,
    scaled=False,
    decay=1.0,
    eps=1e-6,
):
    ct_y, ds = ct
    fq = _feature(xp, q, feature) * _scale(xp, q, scaled)
    fk = _feature(xp, k, feature)
    states = _attention_states(xp, fk, v, s, z, decay)
    dz = xp.zeros_like(states[0][1])
    dq, dk, dv = [], [], []
    for t in reversed(range(q.shape[-2])):
        g, (st, zt) = ct_y[..., t, :], states[t + 1]
        qt, kt, vt = fq[..., t, :], fk[..., t, :], v[..., t, :]
        y, total = _attention_output(xp, qt, states[t + 1], normalised, eps)
        if normalised:
            g = g / total
            dtotal = -xp.sum(g * y, axis=-1, keepdims=True)
            dz = dz + qt * dtotal
            dq.append(xp.sum(st * g[..., None, :], axis=-1) + zt * dtotal)
        else:
            dq.append(xp.sum(st * g[..., None, :], axis=-1))
        ds = ds + _outer(qt, g)
        dk.append(xp.sum(ds * vt[..., None, :], axis=-1) + dz)
        dv.append(xp.sum(ds * kt[..., :, None], axis=-2))
        ds, dz = ds * decay, dz * decay
    dq = _joined(xp, dq[::-1], q) * _scale(xp, q, scaled) * _feature_slope(xp, q, feature)
    dk = _joined(xp, dk[::-1], k) * _feature_slope(xp, k, feature)
    gradients: tuple[Any, ...] = (dq, dk, _joined(xp, dv[::-1], v))
    if s is None:
        return gradients
    gradients = (*gradients, xp.reduce_to(ds, s))
    return gradients if z is None else (*gradients, xp.reduce_to(dz, z))


def _feature(xp: Any, x: Any, feature: str) -> Any:
    """elu(x) + 1, or x itself."""
    if feature == "identity":
        return x
    return (
        xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0.0))) + 1
    )  # loses digits, as in every implementation


def _feature_slope(xp: Any, x: Any, feature: str) -> Any:
    return xp.where(x > 0, 1.0, xp.exp(xp.minimum(x, 0.0))) if feature == "elu" else 1


def _scale(xp: Any, q: Any, scaled: bool) -> Any:
    return 1 / xp.sqrt_of(q.shape[-1]) if scaled else 1


def _attention_states(xp: Any, k: Any, v: Any, s: Any, z: Any, decay: float) -> list[Any]:
    """Sums of k vᵀ [d, e] and of k [d], before the first step and after every step."""
    s = xp.zeros((k.shape[-1], v.shape[-1])) if s is None else s
    z = xp.zeros((k.shape[-1],)) if z is None else z
    states = [(s, z)]
    for t in range(k.shape[-2]):
        kt = k[..., t, :]
        s, z = s * decay + _outer(kt, v[..., t, :]), z * decay + kt
        states.append((s, z))
    return states


def _attention_output(xp: Any, q: Any, state: Any, normalised: bool, eps: float) -> tuple[Any, Any]:
    """One row of the output, and its divisor."""
    s, z = state
    y = xp.sum(q[..., :, None] * s, axis=-2)
    if not normalised:
        return y, 1
    total = xp.sum(q * z, axis=-1, keepdims=True) + eps
    return y / total, total


def _attention(
    draw: Any, t: int, d: int, e: int, *, batch: tuple[int, ...] = ()
) -> tuple[Any, ...]:
    """With q and k away from 0, where elu's second derivative jumps."""
    return (
        draw.away(0.0, *batch, t, d),
        draw.away(0.0, *batch, t, d),
        draw.normal(*batch, t, e),
        draw.normal(*batch, d, e),
        draw.positive(*batch, d),
    )


def _attention_tails(draw: Any) -> tuple[Any, ...]:
    q, k, *rest = _attention(draw, 3, 3, 2)
    return (q, k - np.array([[0.0], [10.0], [5.0]]), *rest)


def _attention_tiny(draw: Any) -> tuple[Any, ...]:
    q, k, v, s, z = _attention(draw, 3, 3, 2)
    return q - 5, k - 5, v, s / 2**10, z / 2**10


def _attention_from_nothing(draw: Any) -> tuple[Any, ...]:
    q, k, v, s, z = _attention(draw, 3, 3, 2)
    return q, k, v, 0 * s, 0 * z


GIVEN = ("stateful", "identity", "retention")

linear_attention = OpSpec(
    name="linear_attention",
    signature="(t,d),(t,d),(t,e),(d,e),(d)->(t,e),(d,e)",
    forward=linear_attention_forward,
    vjp=linear_attention_vjp,
    formula=r"S_t = \gamma S_{t-1} + \phi(k_t) v_t^\top,\quad z_t = \gamma z_{t-1} + \phi(k_t),"
    r"\quad y_t = \frac{\phi(q_t)^\top S_t}{\phi(q_t) \cdot z_t + \epsilon}",
    source="Katharopoulos et al. 2020, arXiv:2006.16236",
    dialects=(
        Dialect(name="stateful", says="elu + 1, normalised, from a state that is given"),
        Dialect(name="elu", says="the paper: from a state of zero", without=("s", "z")),
        Dialect(
            name="identity",
            says="fla's chunk_linear_attn, normalize=False: no feature map, q over sqrt(d)",
            attrs={"feature": "identity", "normalised": False, "scaled": True},
            without=("z",),
        ),
        Dialect(
            name="retention",
            says="RetNet, arXiv:2307.08621: a state that decays by a constant",
            attrs={"feature": "identity", "normalised": False, "scaled": True, "decay": 0.96875},
            without=("z",),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _attention(draw, 5, 3, 2),
            hunts="a state's gradient not carried back, the normaliser's gradient missing",
            dialects=GIVEN,
        ),
        Sample(
            name="from-nothing",  # the first row averages one value: its dq is only rounding
            primals=lambda draw: _attention(draw, 5, 3, 2),
            hunts="the same where the state holds nothing but the first few steps",
            dialects=("elu",),
        ),
        Sample(
            name="square",
            primals=lambda draw: _attention(draw, 3, 3, 3),
            hunts="the state transposed, keys and values exchanged",
        ),
        Sample(
            name="two-steps",
            primals=lambda draw: _attention(draw, 2, 2, 3),
            attrs={"eps": 0.25},
            hunts="a step that does not see itself",
        ),
        Sample(
            name="one-step",
            primals=lambda draw: _attention(draw, 1, 3, 2),
            attrs={"eps": 0.25},  # with less y is v, and dq only rounding
            hunts="the last state's cotangent lost",
        ),
        Sample(
            name="single",
            primals=lambda draw: _attention(draw, 3, 1, 1),
            attrs={"eps": 0.25},
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="chunk-and-one",
            primals=lambda draw: _attention(draw, 9, 2, 2),
            hunts="what passes between blocks of 8 steps lost",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _attention(draw, 3, 2, 3, batch=(2,)),
            hunts="the state of another sequence",
        ),
        Sample(
            name="decay",
            primals=lambda draw: _attention(draw, 5, 3, 2),
            attrs={"decay": 0.5},
            hunts="the decay ignored, applied once too often or too seldom",
        ),
        Sample(
            name="eps",
            primals=_attention_tiny,
            attrs={"eps": 2.0**-10},
            hunts="eps left out of the backward: the normaliser is hardly larger",
            dialects=("stateful", "elu"),
        ),
        Sample(
            name="tails",
            primals=_attention_tails,
            attrs={"eps": 0.25},
            hunts="the slope of elu + 1 taken for 1, or for 0, below 0",
            dialects=("stateful", "elu"),
        ),
        Sample(
            name="state-of-zero",
            primals=_attention_from_nothing,
            hunts="no gradient of a state that is given as zero",
            dialects=("stateful",),
        ),
        Sample(
            name="empty",
            primals=lambda draw: _attention(draw, 0, 3, 2),
            hunts="no steps: the state passes through, its gradient too",
            dialects=("stateful", "identity"),
        ),
    ),
)

# ── gated_delta_rule ─────────────────────────────────────────────────────────────────────────


def gated_delta_rule_forward(
    xp, q, k, v, beta, g=None, s=None, *, scaled=True, normalised=False, eps=1e-6
):
    if normalised:
        q, k = _unit(xp, q, eps)[0], _unit(xp, k, eps)[0]
    states = [after for *_, after in _delta_steps(xp, k, v, beta, g, s)]
    rows = [
        xp.sum(q[..., t, :, None] * state, axis=-2) * _scale(xp, q, scaled)
        for t, state in enumerate(states)
    ]
    y = xp.stack(rows, axis=-2) if rows else xp.zeros_like(v)
    return y, states[-1] if states else _initial(xp, k, v, s)


def gated_delta_rule_vjp(
    xp, ct, q, k, v, beta, g=None, s=None, *, scaled=True, normalised=False, eps=1e-6
):
    ct_y, ds = ct
    given = q, k
    if normalised:
        (q, by_q), (k, by_k) = _unit(xp, q, eps), _unit(xp, k, eps)
    steps = _delta_steps(xp, k, v, beta, g, s)
    dq, dk, dv, dbeta, dg = [], [], [], [], []
    for t in reversed(range(q.shape[-2])):
        ct_t = ct_y[..., t, :] * _scale(xp, q, scaled)
        kt, bt = k[..., t, :], beta[..., t : t + 1]
        decay, kept, u, after = steps[t]
        dq.append(xp.sum(after * ct_t[..., None, :], axis=-1))
        ds = ds + _outer(q[..., t, :], ct_t)
        pulled = xp.sum(ds * kt[..., :, None], axis=-2)  # k' ds
        du = bt * pulled
        dv.append(du)
        dbeta.append(xp.sum(pulled * u, axis=-1, keepdims=True))
        through_write = bt * xp.sum(ds * u[..., None, :], axis=-1)
        dk.append(through_write - xp.sum(kept * du[..., None, :], axis=-1))
        ds = ds - _outer(kt, du)  # what the error u reads
        if g is not None:
            dg.append(xp.sum(xp.sum(ds * kept, axis=-1), axis=-1, keepdims=True))
            ds = ds * decay[..., None]
    dq, dk = _joined(xp, dq[::-1], given[0]), _joined(xp, dk[::-1], given[1])
    if normalised:
        dq, dk = by_q(dq), by_k(dk)
    gradients: tuple[Any, ...] = (dq, dk, _joined(xp, dv[::-1], v), _gates(xp, dbeta, beta))
    if g is None:
        return gradients
    gradients = (*gradients, _gates(xp, dg, g))
    return gradients if s is None else (*gradients, xp.reduce_to(ds, s))


def _initial(xp: Any, k: Any, v: Any, s: Any) -> Any:
    return xp.zeros((k.shape[-1], v.shape[-1])) if s is None else s


def _delta_steps(xp: Any, k: Any, v: Any, beta: Any, g: Any, s: Any) -> list[Any]:
    """Per step: its decay, the decayed state, the error of its reading, the final state."""
    steps, s = [], _initial(xp, k, v, s)
    for t in range(k.shape[-2]):
        kt = k[..., t, :]
        decay = None if g is None else xp.exp(g[..., t : t + 1])
        kept = s if decay is None else s * decay[..., None]
        u = v[..., t, :] - xp.sum(kept * kt[..., :, None], axis=-2)
        s = kept + _outer(kt, beta[..., t : t + 1] * u)
        steps.append((decay, kept, u, s))
    return steps


def _gates(xp: Any, rows: Sequence[Any], like: Any) -> Any:
    """One number per step, from rows [1] in reverse order."""
    return xp.reduce_to(xp.concatenate(rows[::-1], axis=-1), like) if rows else xp.zeros_like(like)


def _unit(xp: Any, x: Any, eps: float) -> tuple[Any, Any]:
    """Rows of x over their length, and the pullback of this division."""
    r = 1 / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + eps)
    n = x * r
    return n, lambda ct: r * (ct - n * xp.sum(n * ct, axis=-1, keepdims=True))


def _delta(draw: Any, t: int, d: int, e: int, *, batch: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """Keys of length about 1, writing strengths in (0, 1), log decays in [-2, 0)."""
    return (
        draw.normal(*batch, t, d),
        draw.normal(*batch, t, d) / 2,
        draw.normal(*batch, t, e),
        draw.uniform(0.125, 0.875, *batch, t),
        -draw.positive(*batch, t),
        draw.normal(*batch, d, e),
    )


def _full_write(draw: Any) -> tuple[Any, ...]:
    q, k, v, beta, g, s = _delta(draw, 4, 3, 2)
    beta[1], beta[2] = 1.0, 2.0  # 2: the state is reflected, not shrunk
    return q, k, v, beta, g, s


def _no_write(draw: Any) -> tuple[Any, ...]:
    q, k, v, beta, g, s = _delta(draw, 4, 3, 2)
    beta[1], g[2] = 0.0, 0.0
    return q, k, v, beta, g, s


def _same_key(draw: Any) -> tuple[Any, ...]:
    q, k, v, beta, g, s = _delta(draw, 4, 3, 2)
    k[2:] = k[1]
    return q, k, v, beta, g, s


def _forgetting(draw: Any) -> tuple[Any, ...]:
    q, k, v, beta, g, s = _delta(draw, 3, 3, 2)
    return q, k, v, beta, g - np.array([0.0, 9.0, 0.0]), s


def _delta_from_nothing(draw: Any) -> tuple[Any, ...]:
    *rest, s = _delta(draw, 3, 3, 2)
    return (*rest, 0 * s)


def _short_keys(draw: Any) -> tuple[Any, ...]:
    q, k, *rest = _delta(draw, 3, 3, 2)
    return (q / 2**9, k / 2**9, *rest)


gated_delta_rule = OpSpec(
    name="gated_delta_rule",
    signature="(t,d),(t,d),(t,e),(t),(t),(d,e)->(t,e),(d,e)",
    forward=gated_delta_rule_forward,
    vjp=gated_delta_rule_vjp,
    formula=r"S_t = e^{g_t}(I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top,\quad "
    r"y_t = \frac{1}{\sqrt{d}} S_t^\top q_t",
    source="Yang, Kautz & Hatamizadeh 2024, arXiv:2412.06464; "
    "fla, fused_recurrent_gated_delta_rule",
    dialects=(
        Dialect(name="stateful", says="fla: g is the logarithm of the decay; a state is given"),
        Dialect(name="stateless", says="fla: from a state of zero", without=("s",)),
        Dialect(
            name="normalised",
            says="Qwen3-Next: q and k are divided by their lengths inside, eps 1e-6",
            attrs={"normalised": True},
        ),
        Dialect(
            name="delta-rule",
            says="DeltaNet, arXiv:2406.06484: no decay",
            without=("g", "s"),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _delta(draw, 5, 3, 2),
            hunts="the gradient through what the error reads, decay after instead of before it",
        ),
        Sample(
            name="square",
            primals=lambda draw: _delta(draw, 3, 3, 3),
            hunts="the state transposed, keys and values exchanged",
        ),
        Sample(
            name="two-steps",
            primals=lambda draw: _delta(draw, 2, 2, 3),
            hunts="gates off by one step",
        ),
        Sample(
            name="one-step",
            primals=lambda draw: _delta(draw, 1, 3, 2),
            hunts="the last state's cotangent lost",
        ),
        Sample(
            name="single",
            primals=lambda draw: _delta(draw, 3, 1, 1),
            hunts="an axis of size 1 dropped",
            dialects=("stateful", "stateless", "delta-rule"),
        ),
        Sample(
            name="chunk-and-one",
            primals=lambda draw: _delta(draw, 9, 2, 2),
            hunts="what passes between blocks of 8 steps lost",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _delta(draw, 3, 2, 3, batch=(2,)),
            hunts="the gates of another sequence or head",
        ),
        Sample(
            name="full-write",
            primals=_full_write,
            hunts="beta = 1 replaces, beta = 2 reflects what the key holds; a clamp at 1",
        ),
        Sample(
            name="no-write",
            primals=_no_write,
            hunts="a gradient of beta that is 0 where beta is, a decay of 1 without a gradient",
        ),
        Sample(
            name="same-key",
            primals=_same_key,
            hunts="writes under one key: the later must see the earlier",
        ),
        Sample(
            name="forgetting",
            primals=_forgetting,
            hunts="gradients across a step that forgets all but 1e-5",
            dialects=("stateful", "stateless"),
        ),
        Sample(
            name="unscaled",
            primals=lambda draw: _delta(draw, 3, 3, 2),
            attrs={"scaled": False},
            hunts="1/sqrt(d) at its default in the backward, whatever forward was given",
        ),
        Sample(
            name="short-keys",
            primals=_short_keys,
            attrs={"eps": 2.0**-16},
            hunts="eps left out of the lengths of q and k, which are hardly larger",
            dialects=("normalised",),
        ),
        Sample(
            name="state-of-zero",
            primals=_delta_from_nothing,
            hunts="no gradient of a state that is given as zero",
            dialects=("stateful",),
        ),
        Sample(
            name="empty",
            primals=lambda draw: _delta(draw, 0, 3, 2),
            hunts="no steps: the state passes through, its gradient too",
            dialects=("stateful",),
        ),
    ),
)

# ── what the cells share ─────────────────────────────────────────────────────────────────────


def _affine(xp: Any, w: Any, x: Any, b: Any) -> Any:
    y = xp.matmul(w, x[..., None])[..., 0]
    return y if b is None else y + b


def _affine_back(xp: Any, ct: Any, w: Any) -> Any:
    return xp.matmul(xp.swapaxes(w, -1, -2), ct[..., None])[..., 0]


def _part(a: Any, order: str, gate: str) -> Any:
    """The rows of one gate in packed rows."""
    n, at = a.shape[-1] // len(order), order.index(gate)
    return a[..., at * n : (at + 1) * n]


def _gate_at(cell: Any, draw: Any, row: int, value: float) -> tuple[Any, ...]:
    """One gate of the first unit (rows in PyTorch's order) at `value`, all others as they are."""
    *rest, b_ih, b_hh = cell(draw, 2, 3)
    b_ih[3 * row] = value
    return (*rest, b_ih, b_hh)


def _cells(cell: Any) -> tuple[Sample, ...]:
    """Samples of primals `cell(draw, d, n, batch=())` with hard shapes."""
    return (
        Sample(
            name="square",
            primals=lambda draw: cell(draw, 3, 3, batch=(3,)),
            hunts="x and h, or the two weights, exchanged; a weight transposed",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: cell(draw, 2, 3),
            hunts="a batch axis that is taken for granted",
        ),
        Sample(
            name="single",
            primals=lambda draw: cell(draw, 1, 1),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="batched",
            primals=lambda draw: cell(draw, 2, 2, batch=(2, 3)),
            hunts="weights and biases summed over one batch axis instead of all",
        ),
    )


def _no_rows(cell: Any) -> Sample:
    return Sample(
        name="empty",
        primals=lambda draw: cell(draw, 2, 3, batch=(0,)),
        hunts="a batch of no rows: gradients of the weights are zero, not left over",
        dialects=("pytorch",),
    )


# ── lstm_cell ────────────────────────────────────────────────────────────────────────────────


def lstm_cell_forward(
    xp, x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, *, order="ifgo", forget_bias=0.0
):
    i, f, g, o = _lstm_gates(xp, x, h, w_ih, w_hh, b_ih, b_hh, order, forget_bias)
    c = f * c + i * g
    return o * xp.tanh(c), c


def lstm_cell_vjp(
    xp, ct, x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, *, order="ifgo", forget_bias=0.0
):
    ct_h, dc = ct
    i, f, g, o = _lstm_gates(xp, x, h, w_ih, w_hh, b_ih, b_hh, order, forget_bias)
    y = xp.tanh(f * c + i * g)
    dc = dc + ct_h * o * (1 - y * y)
    parts = {
        "i": dc * g * i * (1 - i),
        "f": dc * c * f * (1 - f),
        "g": dc * i * (1 - g * g),
        "o": ct_h * y * o * (1 - o),
    }
    da = xp.concatenate([parts[gate] for gate in order], axis=-1)  # of the sums before the gates
    return (
        xp.reduce_to(_affine_back(xp, da, w_ih), x),
        xp.reduce_to(_affine_back(xp, da, w_hh), h),
        xp.reduce_to(dc * f, c),
        xp.reduce_to(_outer(da, x), w_ih),
        xp.reduce_to(_outer(da, h), w_hh),
        *(xp.reduce_to(da, b) for b in (b_ih, b_hh) if b is not None),
    )


def _lstm_gates(
    xp: Any, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, order: str, offset: float
) -> tuple[Any, ...]:
    """Input, forget, candidate and output gate."""
    a = _affine(xp, w_ih, x, b_ih) + _affine(xp, w_hh, h, b_hh)
    i, f, g, o = (_part(a, order, gate) for gate in "ifgo")
    return xp.sigmoid(i), xp.sigmoid(f + offset), xp.tanh(g), xp.sigmoid(o)


def _lstm(draw: Any, d: int, n: int, *, batch: tuple[int, ...] = ()) -> tuple[Any, ...]:
    return (
        draw.normal(*batch, d),
        draw.normal(*batch, n),
        draw.normal(*batch, n),
        draw.normal(4 * n, d) / 2,
        draw.normal(4 * n, n) / 2,
        draw.normal(4 * n) / 2,
        draw.normal(4 * n) / 2,
    )


def _lstm_zero_state(draw: Any) -> tuple[Any, ...]:
    x, h, c, *rest = _lstm(draw, 2, 3, batch=(2,))
    return (x, 0 * h, 0 * c, *rest)


def _lstm_large_cell(draw: Any) -> tuple[Any, ...]:
    x, h, c, *rest = _lstm(draw, 2, 3)
    return (x, h, c + np.array([4.0, -6.0, 0.0]), *rest)


lstm_cell = OpSpec(
    name="lstm_cell",
    signature="(d),(n),(n),(g,d),(g,n),(g),(g)->(n),(n)",
    forward=lstm_cell_forward,
    vjp=lstm_cell_vjp,
    formula=r"c' = \sigma(a_f) c + \sigma(a_i) \tanh(a_g),\quad h' = \sigma(a_o) \tanh(c'),"
    r"\quad a = W_x x + W_h h + b_x + b_h",
    source="Hochreiter & Schmidhuber 1997; Gers et al. 2000; torch.nn.LSTMCell",
    dialects=(
        Dialect(name="pytorch", says="PyTorch, cuDNN: rows in the order i, f, g, o; two biases"),
        Dialect(name="keras", says="Keras: the same order, one bias", without=("b_hh",)),
        Dialect(
            name="tensorflow-1",
            says="TensorFlow's BasicLSTMCell: i, g, f, o; 1 is added to f; one bias",
            attrs={"order": "igfo", "forget_bias": 1.0},
            without=("b_hh",),
        ),
        Dialect(name="onnx", says="ONNX: i, o, f, g; two biases", attrs={"order": "iofg"}),
        Dialect(name="bias-free", says="PyTorch with bias=False", without=("b_ih", "b_hh")),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _lstm(draw, 3, 2, batch=(5,)),
            hunts="a gate's slope at the gate instead of before it, gates exchanged, weights of "
            "the last row only",
        ),
        *_cells(_lstm),
        Sample(
            name="forget-bias",
            primals=lambda draw: _lstm(draw, 2, 3, batch=(2,)),
            attrs={"forget_bias": 2.0},
            hunts="the offset of the forget gate ignored, or given to another gate",
        ),
        Sample(
            name="order",
            primals=lambda draw: _lstm(draw, 2, 3, batch=(2,)),
            attrs={"order": "fiog"},
            hunts="the order of the gates at its default",
        ),
        Sample(
            name="forget-closed",
            primals=lambda draw: _gate_at(_lstm, draw, 1, -12.0),
            hunts="the gradient through a gate that is nearly shut cut off",
            dialects=("pytorch", "keras", "onnx"),
        ),
        Sample(
            name="output-closed",
            primals=lambda draw: _gate_at(_lstm, draw, 3, -12.0),
            hunts="tanh(c) recovered as h/o",
            dialects=("pytorch", "keras"),
        ),
        Sample(
            name="zero-state",
            primals=_lstm_zero_state,
            hunts="a gradient of w_hh where h is 0, none of h and c because they are 0",
        ),
        Sample(
            name="large-cell",
            primals=_lstm_large_cell,
            hunts="the slope of tanh(c) cut off in its tail, or taken at c instead of tanh(c)",
        ),
        _no_rows(_lstm),
    ),
)

# ── gru_cell ─────────────────────────────────────────────────────────────────────────────────


def gru_cell_forward(xp, x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, order="rzn", reset_after=True):
    _, z, n, _ = _gru_gates(xp, x, h, w_ih, w_hh, b_ih, b_hh, order, reset_after)
    return (1 - z) * n + z * h


def gru_cell_vjp(xp, ct, x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, order="rzn", reset_after=True):
    r, z, n, inner = _gru_gates(xp, x, h, w_ih, w_hh, b_ih, b_hh, order, reset_after)
    dz = ct * (h - n) * z * (1 - z)
    dn = ct * (1 - z) * (1 - n * n)
    if reset_after:
        dr = dn * inner * r * (1 - r)
        wide = {"r": dr, "z": dz, "n": dn}
        parts = {"r": dr, "z": dz, "n": dn * r}  # the reset gate scales the part of n that h feeds
        dh = 0
        read = {"r": h, "z": h, "n": h}
    else:
        into_n = _affine_back(xp, dn, _rows(w_hh, order, "n"))  # cotangent of r·h
        dr = into_n * h * r * (1 - r)
        wide = parts = {"r": dr, "z": dz, "n": dn}
        dh = into_n * r
        read = {"r": h, "z": h, "n": r * h}
    for gate in "rzn" if reset_after else "rz":
        dh = dh + _affine_back(xp, parts[gate], _rows(w_hh, order, gate))
    da = xp.concatenate([wide[gate] for gate in order], axis=-1)
    db = xp.concatenate([parts[gate] for gate in order], axis=-1)
    dw_hh = xp.concatenate([_outer(parts[gate], read[gate]) for gate in order], axis=-2)
    return (
        xp.reduce_to(_affine_back(xp, da, w_ih), x),
        xp.reduce_to(dh + ct * z, h),
        xp.reduce_to(_outer(da, x), w_ih),
        xp.reduce_to(dw_hh, w_hh),
        *(xp.reduce_to(g, b) for g, b in ((da, b_ih), (db, b_hh)) if b is not None),
    )


def _gru_gates(
    xp: Any, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, order: str, after: bool
) -> tuple[Any, ...]:
    """Reset, update and candidate gate, and the factor of the reset gate (h, or W h + b)."""
    a = _affine(xp, w_ih, x, b_ih)
    by_h = _affine(xp, w_hh, h, b_hh)
    r, z = (xp.sigmoid(_part(a, order, gate) + _part(by_h, order, gate)) for gate in "rz")
    if after:
        inner = _part(by_h, order, "n")
        return r, z, xp.tanh(_part(a, order, "n") + r * inner), inner
    b = None if b_hh is None else _part(b_hh, order, "n")
    return r, z, xp.tanh(_part(a, order, "n") + _affine(xp, _rows(w_hh, order, "n"), r * h, b)), h


def _rows(w: Any, order: str, gate: str) -> Any:
    """The rows of one gate in a packed weight."""
    n, at = w.shape[-2] // len(order), order.index(gate)
    return w[..., at * n : (at + 1) * n, :]


def _gru(draw: Any, d: int, n: int, *, batch: tuple[int, ...] = ()) -> tuple[Any, ...]:
    return (
        draw.normal(*batch, d),
        draw.normal(*batch, n),
        draw.normal(3 * n, d) / 2,
        draw.normal(3 * n, n) / 2,
        draw.normal(3 * n) / 2,
        draw.normal(3 * n) / 2,
    )


def _gru_zero_state(draw: Any) -> tuple[Any, ...]:
    x, h, *rest = _gru(draw, 2, 3, batch=(2,))
    return (x, 0 * h, *rest)


gru_cell = OpSpec(
    name="gru_cell",
    signature="(d),(n),(g,d),(g,n),(g),(g)->(n)",
    forward=gru_cell_forward,
    vjp=gru_cell_vjp,
    formula=r"h' = (1 - z) n + z h,\quad n = \tanh(W_n x + b_n + r\,(U_n h + c_n)),\quad "
    r"r, z = \sigma(W x + b + U h + c)",
    source="Cho et al. 2014, arXiv:1406.1078; torch.nn.GRUCell",
    dialects=(
        Dialect(
            name="pytorch",
            says="PyTorch, cuDNN: rows in the order r, z, n; reset after the matrix",
        ),
        Dialect(
            name="original",
            says="Cho et al., Keras with reset_after=False: the reset gate scales h itself",
            attrs={"order": "zrn", "reset_after": False},
            without=("b_hh",),
        ),
        Dialect(
            name="onnx",
            says="ONNX with linear_before_reset = 0: z, r, n; two biases",
            attrs={"order": "zrn", "reset_after": False},
        ),
        Dialect(name="keras", says="Keras: z, r, n; reset after", attrs={"order": "zrn"}),
        Dialect(name="bias-free", says="PyTorch with bias=False", without=("b_ih", "b_hh")),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _gru(draw, 3, 2, batch=(5,)),
            hunts="a gate's slope at the gate instead of before it, z and 1 - z exchanged, the "
            "reset gate left out of what h feeds into n",
        ),
        *_cells(_gru),
        Sample(
            name="reset-before",
            primals=lambda draw: _gru(draw, 3, 2, batch=(2,)),
            attrs={"reset_after": False},
            hunts="the place of the reset gate ignored",
        ),
        Sample(
            name="order",
            primals=lambda draw: _gru(draw, 2, 3, batch=(2,)),
            attrs={"order": "nrz"},
            hunts="the order of the gates at its default",
        ),
        Sample(
            name="reset-closed",
            primals=lambda draw: _gate_at(_gru, draw, 0, -12.0),
            hunts="the gradient through a gate that is nearly shut cut off; a division by r",
            dialects=("pytorch", "bias-free"),
        ),
        Sample(
            name="update-closed",
            primals=lambda draw: _gate_at(_gru, draw, 1, -12.0),
            hunts="the gradient through z cut off where h hardly counts",
            dialects=("pytorch",),
        ),
        Sample(
            name="zero-state",
            primals=_gru_zero_state,
            hunts="a gradient of w_hh where h is 0, none of h because it is 0",
        ),
        _no_rows(_gru),
    ),
)
