"""Mutants of the operators in `gradcheck_cases.recurrent`.

Each scan's backward is written here once more as one loop, with its possible faults.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases import recurrent
from gradcheck_cases.recurrent import (
    NOTHING,
    _affine,
    _affine_back,
    _attention_output,
    _attention_states,
    _delta_steps,
    _feature,
    _feature_slope,
    _gates,
    _gru_gates,
    _hold,
    _joined,
    _lstm_gates,
    _outer,
    _part,
    _rate,
    _rows,
    _scale,
    _scan_states,
    _softplus,
    _unit,
    _wkv6_states,
    _wkv_output,
    _wkv_states,
)

MUTANTS: tuple[Mutant, ...] = ()

BLOCK = 8
"""Steps in a block of the modelled kernels."""


def _last_state_ignored(vjp: Vjp) -> Vjp:
    return mutate.cotangent(vjp, lambda xp, ct, *primals, **attrs: (ct[0], xp.zeros_like(ct[1])))


# ── selective_scan ───────────────────────────────────────────────────────────────────────────


def selective_scan_with(fault: str, carried: list[Any] | None = None) -> Vjp:
    """The backward of selective_scan with one fault; `carried` outlives the call."""

    def vjp(xp, ct, x, delta, a, b, c, d=None, h=None, *, softplus=False, exact_hold=False):
        ct_y, dh = ct
        states = _scan_states(xp, x, delta, a, b, h, softplus, exact_hold)
        if fault == "states-alias":
            states = states[-1:] * len(states)
        step = _softplus(xp, delta) if softplus else delta
        dx, ddelta, db, dc = [], [], [], []
        da = xp.zeros_like(a)
        count = x.shape[-2]
        if fault == "padding-decays":  # a padded step is softplus(0), not 0
            dh = dh * xp.exp(xp.const("0.6931471805599453") * a * (-count % 4))
        if carried:
            dh = dh + carried[0] if carried[0].shape == dh.shape else dh
        for t in reversed(range(count)):
            if fault == "block-lost" and t % BLOCK == BLOCK - 1 and t + 1 < count:
                dh = xp.zeros_like(dh)
            g, s = ct_y[..., t, :, None], step[..., t, :, None]
            xt, bt = x[..., t, :, None], b[..., t, None, :]
            decay, gain, gain_by_step, gain_by_a = _hold(xp, s, a, exact_hold)
            if fault == "hold-by-a":
                gain_by_a = 0
            dc.append(xp.sum(g * states[t + (fault != "early-state")], axis=-2))
            dh = dh + g * c[..., t, None, :]
            ddecay = dh * states[t + (fault == "late-state")] * decay
            if fault == "decay-itself":
                ddecay = dh * states[t]
            dgain = dh * xt * bt
            through_decay = 0 if fault == "step-by-gain" else ddecay * a
            through_gain = 0 if fault == "step-by-decay" else dgain * gain_by_step
            ddelta.append(xp.sum(through_decay + through_gain, axis=-1))
            before = 0 if fault == "a-overwritten" else da
            da = before + xp.reduce_to(ddecay * s + dgain * gain_by_a, a)
            fed = dh * gain * xt
            db.append(fed[..., -1, :] if fault == "b-last-feature" else xp.sum(fed, axis=-2))
            dx.append(xp.sum(dh * gain * bt, axis=-1))
            if fault == "not-carried":
                dh = xp.zeros_like(dh)
            elif fault == "next-decay":
                dh = dh * _hold(xp, step[..., max(t - 1, 0), :, None], a, exact_hold)[0]
            elif fault != "no-decay":
                dh = dh * decay
        if carried is not None:
            carried[:] = [dh]
        dx, ddelta, db, dc = (
            _joined(xp, rows[::-1], like)
            for rows, like in ((dx, x), (ddelta, delta), (db, b), (dc, c))
        )
        if softplus and fault != "softplus-slope":
            ddelta = ddelta * xp.sigmoid(delta)
        if d is None:
            return dx, ddelta, da, db, dc
        if fault != "skip-term":
            dx = dx + xp.reduce_to(ct_y * d[..., None, :], x)
        fed_back = ct_y * x
        dd = xp.reduce_to(xp.sum(fed_back, axis=-2), d)
        if fault == "d-averaged":
            dd = dd / max(count, 1)
        if fault == "d-last-row" and fed_back.ndim > 2:
            dd = xp.sum(fed_back[-1], axis=-2)
        gradients = (dx, ddelta, da, db, dc, dd)
        return gradients if h is None else (*gradients, xp.reduce_to(dh, h))

    return vjp


SCAN = recurrent.selective_scan_vjp
WITH_SKIP = ("stateful", "mamba", "softplus", "exact-hold")


MUTANTS += mutant_table(
    "selective_scan",
    {
        ("not-carried", "term", "typical"): (
            "The state's cotangent is not carried back: every step sees its own output alone."
        ),
        ("last-state-ignored", "cotangent term", "one-step"): (
            "The cotangent of the last state is ignored.",
            _last_state_ignored(SCAN),
            {
                "modelled_on": (
                    "mamba_ssm's selective_scan_fn: 'the gradient of the last state is not "
                    "considered in the backward pass'"
                )
            },
        ),
        ("early-state", "index saved-value", "typical"): (
            "The gradient of c reads the state before the step, not after it."
        ),
        ("late-state", "saved-value index", "typical"): (
            "The decay's gradient reads the state after the step, not before it."
        ),
        ("decay-itself", "derivative scale", "typical"): (
            "The decay's gradient is taken for its exponent's: a factor exp(s a) is missing."
        ),
        ("next-decay", "index saved-value", "two-steps"): (
            "The state's cotangent is carried back by the decay of the step before."
        ),
        ("no-decay", "scale term", "two-steps"): (
            "The state's cotangent is carried back without the decay."
        ),
        ("a-overwritten", "accumulation broadcast", "typical"): (
            "The gradient of a, which all steps share, is overwritten by every step."
        ),
        ("b-last-feature", "broadcast accumulation", "typical"): (
            "The gradient of b, which all features share, comes from the last feature alone."
        ),
        ("d-averaged", "reduction", "typical"): (
            "The gradient of d is a mean over the steps.",
            {"dialects": WITH_SKIP},
        ),
        ("d-last-row", "broadcast accumulation", "batched"): (
            "The gradient of d comes from the last row of the batch alone.",
            {"dialects": WITH_SKIP},
        ),
        ("skip-term", "term", "one-step"): (
            "The gradient of x lacks d ct.",
            {"dialects": WITH_SKIP},
        ),
        ("step-by-gain", "term", "typical"): (
            "The step's gradient leaves out that it sets the decay."
        ),
        ("step-by-decay", "term", "one-step"): (
            "The step's gradient leaves out that it scales b x."
        ),
        ("softplus-slope", "derivative scale", "short-steps"): (
            "The gradient is that of softplus(delta), not of delta.",
            {"dialects": ("softplus",)},
        ),
        ("padding-decays", "shape term scale", "typical"): (
            "Steps that pad the last block decay the state's cotangent: softplus(0) is not 0.",
            {
                "dialects": ("softplus",),
                "modelled_on": "mamba issue 368, selective_scan_bwd_kernel.cuh",
            },
        ),
        ("block-lost", "shape term", "chunk-and-one"): (
            "The state's cotangent does not pass from one block of 8 steps to the one before."
        ),
        ("states-alias", "aliasing saved-value", "typical"): (
            "All saved states are one buffer, which holds the last."
        ),
        ("adjoint-not-cleared", "accumulation", "one-step"): (
            "The state's cotangent starts from where the previous call left it.",
            {"make": lambda: selective_scan_with("adjoint-not-cleared", [])},
        ),
        ("h-missing", "slot", "zero-state"): (
            "The given state gets no gradient.",
            mutate.output(SCAN, -1, mutate.zeros),
            {"dialects": ("stateful", "softplus", "exact-hold")},
        ),
        ("b-c-swapped", "slot", "typical"): (
            "The gradients of b and c are in each other's place.",
            mutate.swapped(SCAN, 3, 4),
        ),
        ("hold-by-a", "term", "typical"): (
            "The gradient of a leaves out that a scales the input too.",
            {"dialects": ("exact-hold",)},
        ),
        ("hold-ignored", "attribute", "one-step"): (
            "The backward takes the simple gain, whatever forward took.",
            mutate.attribute(SCAN, exact_hold=False),
            {"dialects": ("exact-hold",)},
        ),
    },
    faulty=selective_scan_with,
)

# ── wkv ──────────────────────────────────────────────────────────────────────────────────────


def wkv_with(fault: str) -> Vjp:
    """The backward of wkv with one fault."""

    def vjp(xp, ct, w, u, k, v, num=None, den=None, *, raw=False):
        rate = w if raw else -xp.exp(w)
        states = _wkv_states(xp, w, k, v, num, den, raw)
        dk, dv = [], []
        drate, du = xp.zeros_like(w), xp.zeros_like(u)
        da = db = xp.zeros_like(w)
        o = xp.full(np.shape(w), NOTHING)
        count = k.shape[-2]
        for t in reversed(range(count)):
            if fault == "block-lost" and t % BLOCK == BLOCK - 1 and t + 1 < count:
                da, db = xp.zeros_like(da), xp.zeros_like(db)
            (a, b, p), kt, vt = states[t], k[..., t, :], v[..., t, :]
            read = (a, b, p + rate) if fault == "decayed-before-read" else states[t]
            y, z, m, bonus = _wkv_output(xp, read, u, kt, vt)
            if fault == "stale-output" and t:
                y = _wkv_output(xp, states[t - 1], u, k[..., t - 1, :], v[..., t - 1, :])[0]
            q = ct[..., t, :] / z
            through_u = bonus * q * (vt if fault == "denominator-constant" else vt - y)
            before = 0 if fault == "u-overwritten" else du
            du = before + xp.reduce_to(through_u, u)
            kept = xp.exp(kt + o)
            own = 0 if fault == "bonus-dropped" else through_u
            dk.append(own + kept * (vt * da + (0 if fault == "numerator-only" else db)))
            dv.append((0 if fault == "bonus-dropped" else bonus * q) + kept * da)
            late = fault == "late-state" and t + 1 < count
            seen_a, seen_b, seen_p = states[t + 1] if late else (a, b, p)
            term = xp.exp(seen_p + rate + o) * (seen_a * da + seen_b * db)
            if fault == "w-last-row" and term.ndim > 1:
                term = term[-1]
            drate = drate + xp.reduce_to(term, w)
            carry = 0 if fault == "no-decay" else rate
            top = xp.maximum(-m, o + carry)
            fresh, old = xp.exp(-m - top), xp.exp(o + carry - top)
            if fault == "not-carried":
                old = xp.zeros_like(old)
            da, db, o = fresh * q + old * da, old * db - fresh * q * y, top
        chain = raw if fault != "chain-everywhere" else not raw
        dw = drate if chain or fault == "chain-missing" else drate * rate
        gradients = (dw, du, _joined(xp, dk[::-1], k), _joined(xp, dv[::-1], v))
        if num is None:
            return gradients
        scale = 1 if fault == "state-exponent" else xp.exp(o)
        return (*gradients, xp.reduce_to(scale * da, num), xp.reduce_to(scale * db, den))

    return vjp


def wkv_unshifted_vjp(xp, ct, w, u, k, v, num=None, den=None, *, raw=False):
    decay = xp.exp(w if raw else -xp.exp(w))
    a, b = (xp.zeros_like(w),) * 2 if num is None else (num, den)
    states = []
    for t in range(k.shape[-2]):
        states.append((a, b))
        e = xp.exp(k[..., t, :])
        a, b = decay * a + e * v[..., t, :], decay * b + e
    dk, dv = [], []
    ddecay, du = xp.zeros_like(w), xp.zeros_like(u)
    da = db = xp.zeros_like(w)
    for t in reversed(range(k.shape[-2])):
        (a, b), e, vt = states[t], xp.exp(k[..., t, :]), v[..., t, :]
        bonus = xp.exp(u) * e
        q = ct[..., t, :] / (b + bonus)
        y = (a + bonus * vt) / (b + bonus)
        du = du + xp.reduce_to(bonus * q * (vt - y), u)
        dk.append(bonus * q * (vt - y) + e * (vt * da + db))
        dv.append(bonus * q + e * da)
        ddecay = ddecay + xp.reduce_to(a * da + b * db, w)
        da, db = q + decay * da, decay * db - q * y
    dw = ddecay * decay * (1 if raw else -xp.exp(w))
    gradients = (dw, du, _joined(xp, dk[::-1], k), _joined(xp, dv[::-1], v))
    return gradients if num is None else (*gradients, xp.reduce_to(da, num), xp.reduce_to(db, den))


MUTANTS += mutant_table(
    "wkv",
    {
        ("bonus-dropped", "term", "two-steps"): (
            "The step's own value and key get no gradient through the bonus."
        ),
        ("u-missing", "slot", "two-steps"): (
            "The bonus u gets no gradient.",
            mutate.output(recurrent.wkv_vjp, 1, mutate.zeros),
        ),
        ("u-overwritten", "accumulation broadcast", "typical"): (
            "The gradient of u, which all steps share, is overwritten by every step."
        ),
        ("u-ignored", "saved-value", "large-bonus"): (
            "The backward reads a bonus of 0.",
            mutate.primal(recurrent.wkv_vjp, 1, lambda xp, w, u, *rest, **attrs: xp.zeros_like(u)),
        ),
        ("denominator-constant", "term", "typical"): (
            "The bonus's gradient treats the denominator as a constant."
        ),
        ("numerator-only", "term", "typical"): (
            "What a key adds to later denominators is left out of its gradient."
        ),
        ("decayed-before-read", "index saved-value", "typical"): (
            "The past decays before it is read, one step too early."
        ),
        ("late-state", "saved-value index", "typical"): (
            "The decay's gradient reads the state after the step, which has decayed already."
        ),
        ("stale-output", "saved-value index", "typical"): (
            "The output of the step before stands for the saved one."
        ),
        ("not-carried", "term", "three-steps"): (
            "The state's cotangent is not carried back beyond one step."
        ),
        ("no-decay", "scale term", "three-steps"): (
            "The state's cotangent is carried back without the decay."
        ),
        ("w-last-row", "broadcast accumulation", "batched"): (
            "The gradient of w comes from the last row of the batch alone."
        ),
        ("chain-missing", "derivative scale", "typical"): (
            "The gradient is that of the kernel's rate: the chain factor -exp(w) is missing.",
            {"dialects": ("rwkv-4", "stateful")},
        ),
        ("chain-everywhere", "scale derivative", "typical"): (
            "The chain factor of the parameter is applied where w comes as the rate itself, and "
            "left out where it does not.",
            {"dialects": ("kernel",)},
        ),
        ("unshifted", "precision non-finite", "loud-first"): (
            "exp(k) without the running maximum taken out: it overflows in float32.",
            wkv_unshifted_vjp,
            {"dtype": "float32", "dialects": ("rwkv-4", "kernel")},
        ),
        ("block-lost", "shape term", "chunk-and-one"): (
            "The state's cotangent does not pass from one block of 8 steps to the one before."
        ),
        ("state-exponent", "scale derivative", "typical"): (
            "The given state's gradient is left over its running exponent.",
            {"dialects": ("stateful",)},
        ),
        ("state-missing", "slot", "state-of-zero"): (
            "The given state gets no gradient.",
            mutate.output(mutate.output(recurrent.wkv_vjp, -1, mutate.zeros), -2, mutate.zeros),
            {
                "modelled_on": "transformers pull request 23774: RwkvLinearAttention drops it",
                "dialects": ("stateful",),
            },
        ),
        ("k-v-swapped", "slot", "typical"): (
            "The gradients of k and v are in each other's place.",
            mutate.swapped(recurrent.wkv_vjp, 2, 3),
        ),
    },
    faulty=wkv_with,
)

# ── wkv6 ─────────────────────────────────────────────────────────────────────────────────────


def wkv6_with(fault: str) -> Vjp:
    """The backward of wkv6 with one fault."""

    def vjp(xp, ct, r, k, v, w, u, s=None, *, log_decay=False):
        ct_y, ds = ct
        states = _wkv6_states(xp, k, v, w, s, log_decay)
        dr, dk, dv, dw = [], [], [], []
        du = xp.zeros_like(u)
        count = k.shape[-2]
        for t in reversed(range(count)):
            if fault == "block-lost" and t % BLOCK == BLOCK - 1 and t + 1 < count:
                ds = xp.zeros_like(ds)
            g, rt, kt, vt = ct_y[..., t, :], r[..., t, :], k[..., t, :], v[..., t, :]
            rate = _rate(xp, w[..., t, :], log_decay)
            decay = xp.exp(rate)
            if fault == "one-decay":
                decay = xp.broadcast_to(decay[..., :1], decay.shape)
            gv = xp.sum(g * vt, axis=-1, keepdims=True)
            bonus = 1 if fault == "bonus-of-one" else u
            seen = states[t + (fault == "late-read")]
            dr.append(xp.sum(seen * g[..., None, :], axis=-1) + bonus * kt * gv)
            by_bonus = 0 if fault == "bonus-not-to-k" else bonus * rt * gv
            read = 0 if fault == "bonus-not-to-v" else xp.sum(rt * u * kt, axis=-1, keepdims=True)
            if fault == "early-write":
                ds = ds + _outer(rt, g)
            dk.append(xp.sum(ds * vt[..., None, :], axis=-1) + by_bonus)
            dv.append(xp.sum(ds * kt[..., :, None], axis=-2) + read * g)
            row = rt * kt * gv
            if fault == "u-last-row" and row.ndim > 1:
                row = row[-1]
            du = (0 if fault == "u-overwritten" else du) + xp.reduce_to(row, u)
            drate = xp.sum(ds * states[t + (fault == "late-state")], axis=-1)
            if fault != "decay-itself":
                drate = drate * decay
            dw.append(drate if log_decay or fault == "chain-missing" else drate * rate)
            if fault == "not-carried":
                ds = xp.zeros_like(ds)
            if fault == "decayed-too":
                ds = (ds + _outer(rt, g)) * decay[..., None]
            elif fault == "early-write":
                ds = ds * decay[..., None]
            else:
                ds = ds * decay[..., None] + _outer(rt, g)
        gradients = (
            *(_joined(xp, rows[::-1], x) for rows, x in ((dr, r), (dk, k), (dv, v), (dw, w))),
            du,
        )
        return gradients if s is None else (*gradients, xp.reduce_to(ds, s))

    return vjp


MUTANTS += mutant_table(
    "wkv6",
    {
        ("bonus-of-one", "term scale", "one-step"): (
            "The gradients of r and k take the bonus u for 1."
        ),
        ("bonus-not-to-k", "term", "one-step"): ("The key gets no gradient through the bonus."),
        ("bonus-not-to-v", "term", "one-step"): ("The value gets no gradient through the bonus."),
        ("u-overwritten", "accumulation broadcast", "typical"): (
            "The gradient of u, which all steps share, is overwritten by every step."
        ),
        ("u-last-row", "broadcast accumulation", "batched"): (
            "The gradient of u comes from the last row of the batch alone."
        ),
        ("late-read", "index saved-value", "one-step"): (
            "The gradient of r reads the state after the write."
        ),
        ("early-write", "index term", "one-step"): (
            "A step's key, value and decay see the cotangent of its own reading."
        ),
        ("decayed-too", "index term scale", "two-steps"): (
            "The cotangent of a step's reading decays with the state that the step leaves."
        ),
        ("late-state", "saved-value index", "typical"): (
            "The decay's gradient reads the state after the step."
        ),
        ("decay-itself", "derivative scale", "typical"): (
            "The gradient is that of the decay, not of its exponent."
        ),
        ("chain-missing", "derivative scale", "typical"): (
            "The gradient is that of the log decay: the chain factor -exp(w) is missing.",
            {"dialects": ("stateful", "rwkv-6")},
        ),
        ("one-decay", "index saved-value", "forgetting"): (
            "The backward decays all features as the first.",
            {"dialects": ("stateful", "rwkv-6")},
        ),
        ("not-carried", "term", "typical"): (
            "The state's cotangent is not carried back beyond one step."
        ),
        ("last-state-ignored", "cotangent term", "one-step"): (
            "The cotangent of the last state is ignored.",
            _last_state_ignored(recurrent.wkv6_vjp),
        ),
        ("state-missing", "slot", "state-of-zero"): (
            "The given state gets no gradient.",
            mutate.output(recurrent.wkv6_vjp, 5, mutate.zeros),
            {"dialects": ("stateful", "log-decay")},
        ),
        ("state-relaid", "layout", "typical"): (
            "The gradient of the given state is written as [e, d].",
            mutate.output(recurrent.wkv6_vjp, 5, mutate.relaid),
            {"dialects": ("stateful", "log-decay")},
        ),
        ("r-k-swapped", "slot", "typical"): (
            "The gradients of r and k are in each other's place.",
            mutate.swapped(recurrent.wkv6_vjp, 0, 1),
        ),
        ("block-lost", "shape term", "chunk-and-one"): (
            "The state's cotangent does not pass from one block of 8 steps to the one before."
        ),
    },
    faulty=wkv6_with,
)

# ── linear_attention ─────────────────────────────────────────────────────────────────────────


def linear_attention_with(fault: str, carried: list[Any] | None = None) -> Vjp:
    """The backward of linear_attention with one fault; `carried` outlives the call."""

    def vjp(
        xp, ct, q, k, v, s=None, z=None, *,
        feature="elu", normalised=True, scaled=False, decay=1.0, eps=1e-6,
    ):  # fmt: skip
        ct_y, ds = ct
        fq = _feature(xp, q, feature) * _scale(xp, q, scaled)
        fk = _feature(xp, k, feature)
        states = _attention_states(xp, fk, v, s, z, decay)
        dz = xp.zeros_like(states[0][1])
        dq, dk, dv = [], [], []
        count = q.shape[-2]
        back = 1 if fault == "no-decay" else decay * decay if fault == "decay-twice" else decay
        if carried:
            ds = ds + carried[0] if carried[0].shape == ds.shape else ds
        for t in reversed(range(count)):
            if fault == "block-lost" and t % BLOCK == BLOCK - 1 and t + 1 < count:
                ds, dz = xp.zeros_like(ds), xp.zeros_like(dz)
            if fault == "decay-first":
                ds, dz = ds * decay, dz * decay
            g, (st, zt) = ct_y[..., t, :], states[t + (fault != "early-state")]
            qt, kt, vt = fq[..., t, :], fk[..., t, :], v[..., t, :]
            y, total = _attention_output(xp, qt, states[t + 1], normalised, eps)
            row_dz = 0
            row_dq = xp.sum(st * g[..., None, :], axis=-1)
            if normalised:
                if fault == "eps-left-out":
                    total = total - eps
                g = g / total
                dtotal = -xp.sum(g * y, axis=-1, keepdims=True)
                if fault == "normaliser-sign":
                    dtotal = -dtotal
                row_dq = xp.sum(st * g[..., None, :], axis=-1)
                if fault != "normaliser-constant":
                    row_dq = row_dq + zt * dtotal
                    row_dz = 0 if fault == "normaliser-of-q-only" else qt * dtotal
            dq.append(row_dq)
            seen = ds
            ds, dz = ds + _outer(qt, g), dz + row_dz
            if fault != "itself-hidden":
                seen = ds
            dk.append(xp.sum(seen * vt[..., None, :], axis=-1) + dz)
            dv.append(xp.sum(seen * kt[..., :, None], axis=-2))
            if fault == "not-carried":
                ds, dz = xp.zeros_like(ds), xp.zeros_like(dz)
            elif fault != "decay-first":
                ds, dz = ds * back, dz * back
        if carried is not None:
            carried[:] = [ds]
        slopes = [_feature_slope(xp, x, feature) for x in (q, k)]
        if fault == "slope-one":
            slopes = [1, 1]
        if fault == "slope-exp" and feature == "elu":
            slopes = [xp.exp(q), xp.exp(k)]
        dq = _joined(xp, dq[::-1], q) * slopes[0]
        if fault != "scale-missing":
            dq = dq * _scale(xp, q, scaled)
        dk = _joined(xp, dk[::-1], k) * slopes[1]
        gradients: tuple[Any, ...] = (dq, dk, _joined(xp, dv[::-1], v))
        if s is None:
            return gradients
        gradients = (*gradients, xp.reduce_to(ds, s))
        return gradients if z is None else (*gradients, xp.reduce_to(dz, z))

    return vjp


ATTENTION = recurrent.linear_attention_vjp
NORMALISED = ("stateful", "elu")
GIVEN = ("stateful", "identity", "retention")


def _first_of_batch(vjp: Vjp) -> Vjp:
    """The cotangent of y of the first row of the batch stands for all."""

    def change(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        return (xp.broadcast_to(ct[0][:1], ct[0].shape), ct[1]) if ct[0].ndim > 2 else ct

    return mutate.cotangent(vjp, change)


MUTANTS += mutant_table(
    "linear_attention",
    {
        ("not-carried", "term", "two-steps"): ("The state's cotangent is not carried back at all."),
        ("last-state-ignored", "cotangent term", "one-step"): (
            "The cotangent of the last state is ignored.",
            _last_state_ignored(ATTENTION),
        ),
        ("normaliser-constant", "term", "typical"): (
            "The normaliser is treated as a constant.",
            {"dialects": NORMALISED},
        ),
        ("normaliser-of-q-only", "term", "typical"): (
            "The normaliser's gradient reaches q but not the keys.",
            {"dialects": NORMALISED},
        ),
        ("normaliser-sign", "sign", "typical"): (
            "The normaliser's gradient has the wrong sign.",
            {"dialects": NORMALISED},
        ),
        ("eps-left-out", "eps", "eps"): (
            "The backward divides without eps.",
            {"dialects": NORMALISED},
        ),
        ("itself-hidden", "index term", "one-step"): (
            "A step's own key and value get no gradient from its own query."
        ),
        ("early-state", "index saved-value", "typical"): (
            "The gradient of q reads the state before the step's own write."
        ),
        ("slope-one", "derivative scale", "tails"): (
            "The slope of elu + 1 is taken for 1.",
            {"dialects": NORMALISED},
        ),
        ("slope-exp", "derivative", "typical"): (
            "The slope of elu + 1 is taken for exp(x) on both sides of 0.",
            {"dialects": NORMALISED},
        ),
        ("decay-default", "attribute", "decay"): (
            "The backward takes the decay's default.",
            mutate.attribute(ATTENTION, decay=1.0),
        ),
        ("no-decay", "scale term", "decay"): (
            "The state's cotangent is carried back without the decay."
        ),
        ("decay-twice", "scale term", "decay"): ("The state's cotangent decays twice per step."),
        ("decay-first", "index term scale", "decay"): (
            "The state's cotangent decays before the step's own keys and values read it."
        ),
        ("scale-missing", "scale", "one-step"): (
            "The gradient of q lacks 1/sqrt(d).",
            {"dialects": ("identity", "retention")},
        ),
        ("block-lost", "shape term", "chunk-and-one"): (
            "The state's cotangent does not pass from one block of 8 steps to the one before."
        ),
        ("one-row-for-all", "index cotangent", "batched"): (
            "Every row of the batch reads the cotangent of the first.",
            _first_of_batch(ATTENTION),
        ),
        ("state-relaid", "layout", "typical"): (
            "The gradient of the given state is written as [e, d].",
            mutate.output(ATTENTION, 3, mutate.relaid),
            {"dialects": GIVEN},
        ),
        ("state-missing", "slot", "state-of-zero"): (
            "The given state gets no gradient.",
            mutate.output(ATTENTION, 3, mutate.zeros),
            {"dialects": ("stateful",)},
        ),
        ("z-missing", "slot", "typical"): (
            "The given normaliser gets no gradient.",
            mutate.output(ATTENTION, 4, mutate.zeros),
            {"dialects": ("stateful",)},
        ),
        ("adjoint-not-cleared", "accumulation", "one-step"): (
            "The state's cotangent starts from where the previous call left it.",
            {"make": lambda: linear_attention_with("adjoint-not-cleared", [])},
        ),
    },
    faulty=linear_attention_with,
)

# ── gated_delta_rule ─────────────────────────────────────────────────────────────────────────


def gated_delta_rule_with(fault: str) -> Vjp:
    """The backward of gated_delta_rule with one fault."""

    def vjp(xp, ct, q, k, v, beta, g=None, s=None, *, scaled=True, normalised=False, eps=1e-6):
        ct_y, ds = ct
        given = q, k
        if normalised:
            (q, by_q), (k, by_k) = _unit(xp, q, eps), _unit(xp, k, eps)
        steps = _delta_steps(xp, k, v, beta, g, s)
        dq, dk, dv, dbeta, dg = [], [], [], [], []
        count = q.shape[-2]
        for t in reversed(range(count)):
            if fault == "block-lost" and t % BLOCK == BLOCK - 1 and t + 1 < count:
                ds = xp.zeros_like(ds)
            ct_t = ct_y[..., t, :] * _scale(xp, q, scaled)
            kt, bt = k[..., t, :], beta[..., t : t + 1]
            decay, kept, u, after = steps[t]
            if fault == "early-state":
                after = kept
            dq.append(xp.sum(after * ct_t[..., None, :], axis=-1))
            ds = ds + _outer(q[..., t, :], ct_t)
            pulled = xp.sum(ds * kt[..., :, None], axis=-2)
            du = bt * pulled
            dv.append(pulled if fault == "v-without-beta" else du)
            written = v[..., t, :] if fault == "beta-by-value" else u
            dbeta.append(xp.sum(pulled * written, axis=-1, keepdims=True))
            through_write = bt * xp.sum(ds * u[..., None, :], axis=-1)
            through_read = xp.sum(kept * du[..., None, :], axis=-1)
            if fault == "key-write-only":
                through_read = 0
            if fault == "key-read-only":
                through_write = 0
            if fault == "key-read-sign":
                through_read = -through_read
            dk.append(through_write - through_read)
            before = ds
            if fault != "error-not-read":
                ds = ds - _outer(kt, du)
            if g is not None:
                seen = after if fault == "g-late-state" else kept
                by = before if fault == "g-before-read" else ds
                row = xp.sum(xp.sum(by * seen, axis=-1), axis=-1, keepdims=True)
                dg.append(row / decay if fault == "g-as-decay" else row)
                if fault == "next-decay":
                    decay = steps[max(t - 1, 0)][0]
                if fault != "no-decay":
                    ds = ds * decay[..., None]
            if fault == "not-carried":
                ds = xp.zeros_like(ds)
        dq, dk = _joined(xp, dq[::-1], given[0]), _joined(xp, dk[::-1], given[1])
        if normalised and fault == "length-constant":
            dq, dk = (
                ct / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + eps)
                for ct, x in zip((dq, dk), given, strict=True)
            )
        elif normalised:
            dq, dk = by_q(dq), by_k(dk)
        gradients: tuple[Any, ...] = (dq, dk, _joined(xp, dv[::-1], v), _gates(xp, dbeta, beta))
        if g is None:
            return gradients
        gradients = (*gradients, _gates(xp, dg, g))
        return gradients if s is None else (*gradients, xp.reduce_to(ds, s))

    return vjp


def error_before_decay_vjp(
    xp, ct, q, k, v, beta, g=None, s=None, *, scaled=True, normalised=False, eps=1e-6
):
    """Of S = e^g S + beta k (v - S'k)': the error is read before the state decays."""
    ct_y, ds = ct
    s0 = xp.zeros((k.shape[-1], v.shape[-1])) if s is None else s
    states = [s0]
    for t in range(k.shape[-2]):
        kt, last = k[..., t, :], states[-1]
        u = v[..., t, :] - xp.sum(last * kt[..., :, None], axis=-2)
        decay = xp.exp(g[..., t : t + 1])[..., None]
        states.append(decay * last + _outer(kt, beta[..., t : t + 1] * u))
    dq, dk, dv, dbeta, dg = [], [], [], [], []
    for t in reversed(range(k.shape[-2])):
        kt, bt, last = k[..., t, :], beta[..., t : t + 1], states[t]
        decay = xp.exp(g[..., t : t + 1])[..., None]
        u = v[..., t, :] - xp.sum(last * kt[..., :, None], axis=-2)
        ct_t = ct_y[..., t, :] * _scale(xp, q, scaled)
        dq.append(xp.sum(states[t + 1] * ct_t[..., None, :], axis=-1))
        ds = ds + _outer(q[..., t, :], ct_t)
        pulled = xp.sum(ds * kt[..., :, None], axis=-2)
        du = bt * pulled
        dv.append(du)
        dbeta.append(xp.sum(pulled * u, axis=-1, keepdims=True))
        dk.append(
            bt * xp.sum(ds * u[..., None, :], axis=-1) - xp.sum(last * du[..., None, :], axis=-1)
        )
        dg.append(xp.sum(xp.sum(ds * decay * last, axis=-1), axis=-1, keepdims=True))
        ds = ds * decay - _outer(kt, du)
    gradients = (
        _joined(xp, dq[::-1], q),
        _joined(xp, dk[::-1], k),
        _joined(xp, dv[::-1], v),
        _gates(xp, dbeta, beta),
        _gates(xp, dg, g),
    )
    return gradients if s is None else (*gradients, xp.reduce_to(ds, s))


def _gate_of_first_row(xp: Any, *primals: Any, **attrs: Any) -> Any:
    g = primals[4]
    return xp.broadcast_to(g[:1], g.shape) if g.ndim > 1 else g


DELTA = recurrent.gated_delta_rule_vjp
GATED = ("stateful", "stateless", "normalised")


MUTANTS += mutant_table(
    "gated_delta_rule",
    {
        ("error-not-read", "term", "two-steps"): (
            "The state's cotangent leaves out that the error reads the state."
        ),
        ("key-write-only", "term", "typical"): (
            "The key's gradient leaves out the reading of the state."
        ),
        ("key-read-only", "term", "one-step"): ("The key's gradient leaves out the writing."),
        ("key-read-sign", "sign", "typical"): (
            "What the key reads is added to its gradient instead of subtracted."
        ),
        ("beta-by-value", "saved-value term", "same-key"): (
            "The gradient of beta reads the value, not the error that is written."
        ),
        ("v-without-beta", "scale derivative", "one-step"): ("The gradient of v lacks beta."),
        ("error-before-decay", "derivative", "typical"): (
            "The backward of another recurrence: the error is read before the decay.",
            error_before_decay_vjp,
            {
                "modelled_on": "flash-linear-attention issue 885, the form taken for the paper's",
                "dialects": ("stateful", "stateless"),
            },
        ),
        ("g-as-decay", "derivative scale", "typical"): (
            "The gradient is that of the decay, not of its logarithm g.",
            {"dialects": GATED},
        ),
        ("g-late-state", "saved-value index", "typical"): (
            "The gate's gradient reads the state after the write.",
            {"dialects": GATED},
        ),
        ("g-before-read", "term", "typical"): (
            "The gate's gradient leaves out that the error reads the decayed state.",
            {"dialects": GATED},
        ),
        ("next-decay", "index saved-value", "two-steps"): (
            "The state's cotangent is carried back by the decay of the step before.",
            {"dialects": GATED},
        ),
        ("no-decay", "scale term", "two-steps"): (
            "The state's cotangent is carried back without the decay.",
            {"dialects": GATED},
        ),
        ("not-carried", "term", "two-steps"): ("The state's cotangent is not carried back at all."),
        ("early-state", "index saved-value", "one-step"): (
            "The gradient of q reads the state before the write."
        ),
        ("last-state-ignored", "cotangent term", "one-step"): (
            "The cotangent of the last state is ignored.",
            _last_state_ignored(DELTA),
        ),
        ("state-missing", "slot", "state-of-zero"): (
            "The given state gets no gradient.",
            mutate.output(DELTA, 5, mutate.zeros),
            {"dialects": ("stateful", "normalised")},
        ),
        ("state-relaid", "layout", "typical"): (
            "The gradient of the given state is written as [e, d].",
            mutate.output(DELTA, 5, mutate.relaid),
            {"dialects": ("stateful", "normalised")},
        ),
        ("beta-clamped", "derivative saved-value", "full-write"): (
            "The backward clamps beta to 1.",
            mutate.primal(
                DELTA, 3, lambda xp, q, k, v, beta, *rest, **attrs: xp.minimum(beta, 1.0)
            ),
        ),
        ("gate-of-first-row", "index saved-value", "batched"): (
            "The gates lack the offset of their row: all rows of the batch read the first's.",
            mutate.primal(DELTA, 4, _gate_of_first_row),
            {
                "modelled_on": "flash-linear-attention issue 1115, pre_process_bwd_kernel_merged",
                "dialects": GATED,
            },
        ),
        ("length-constant", "term", "typical"): (
            "The lengths of q and k are treated as constants.",
            {"dialects": ("normalised",)},
        ),
        ("eps-default", "eps attribute", "short-keys"): (
            "The backward divides by lengths with the default eps.",
            mutate.attribute(DELTA, eps=1e-6),
            {"dialects": ("normalised",)},
        ),
        ("scale-default", "attribute", "unscaled"): (
            "The backward scales q by 1/sqrt(d), whatever forward did.",
            mutate.attribute(DELTA, scaled=True),
        ),
        ("block-lost", "shape term", "chunk-and-one"): (
            "The state's cotangent does not pass from one block of 8 steps to the one before."
        ),
    },
    faulty=gated_delta_rule_with,
)

# ── lstm_cell ────────────────────────────────────────────────────────────────────────────────


def lstm_cell_with(fault: str) -> Vjp:
    """The backward of lstm_cell with one fault."""

    def vjp(xp, ct, x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, *, order="ifgo", forget_bias=0.0):
        ct_h, dc = ct
        i, f, g, o = _lstm_gates(xp, x, h, w_ih, w_hh, b_ih, b_hh, order, forget_bias)
        cell = f * c + i * g
        y = xp.tanh(cell)
        slope = 1 - y * y
        if fault == "tanh-slope-of-cell":
            slope = 1 - cell * cell
        if fault == "hidden-not-into-cell":
            slope = 0 * slope
        dc = dc + ct_h * slope * (1 if fault == "output-gate-missing" else o)
        if fault == "tail-cut":
            dc = xp.where(xp.abs(cell) > 3, xp.zeros_like(dc), dc)

        def sigma(s: Any) -> Any:
            """The slope of a gate from its value."""
            if fault == "slope-of-value":
                s = xp.sigmoid(s)
            return s * (1 - s)

        parts = {
            "i": dc * g * sigma(i),
            "f": dc * (cell if fault == "new-cell" else c) * sigma(f),
            "g": dc * i * (g * (1 - g) if fault == "candidate-as-sigmoid" else 1 - g * g),
            "o": ct_h * (cell if fault == "output-by-cell" else y) * sigma(o),
        }
        if fault == "i-f-exchanged":
            parts["i"], parts["f"] = parts["f"], parts["i"]
        da = xp.concatenate([parts[gate] for gate in order], axis=-1)
        rows_x, rows_h = _outer(da, x), _outer(da, h)
        if fault == "weights-overwritten" and da.ndim > 1 and len(da):
            rows_x, rows_h = rows_x[..., -1, :, :], rows_h[..., -1, :, :]
        summed = da
        if fault == "bias-averaged":
            summed = da / max(da.size // da.shape[-1], 1)
        return (
            xp.reduce_to(_affine_back(xp, da, w_ih), x),
            xp.reduce_to(_affine_back(xp, da, w_hh), h),
            xp.reduce_to(dc if fault == "forget-missing" else dc * f, c),
            xp.reduce_to(rows_x, w_ih),
            xp.reduce_to(rows_h, w_hh),
            *(xp.reduce_to(summed, b) for b in (b_ih, b_hh) if b is not None),
        )

    return vjp


LSTM = recurrent.lstm_cell_vjp


MUTANTS += mutant_table(
    "lstm_cell",
    {
        ("slope-of-value", "derivative saved-value", "typical"): (
            "The slope of the gates is taken at their values, not at the sums before them."
        ),
        ("tanh-slope-of-cell", "saved-value derivative", "large-cell"): (
            "The slope of tanh(c') is 1 - c'^2: the cell in place of its tanh."
        ),
        ("candidate-as-sigmoid", "derivative", "typical"): (
            "The candidate gets the slope of a sigmoid."
        ),
        ("cell-ignored", "cotangent term", "one-row"): (
            "The cotangent of the new cell is ignored.",
            _last_state_ignored(LSTM),
        ),
        ("hidden-not-into-cell", "term", "one-row"): (
            "The cotangent of h' reaches the output gate alone, not the cell."
        ),
        ("output-gate-missing", "scale term", "one-row"): (
            "The cotangent of the cell through h' lacks the output gate."
        ),
        ("new-cell", "saved-value", "typical"): (
            "The forget gate's gradient reads the new cell, not the old."
        ),
        ("output-by-cell", "saved-value derivative", "large-cell"): (
            "The output gate's gradient reads the cell, not its tanh."
        ),
        ("forget-missing", "scale derivative", "one-row"): (
            "The old cell's gradient lacks the forget gate."
        ),
        ("tail-cut", "derivative", "large-cell"): (
            "The cell's gradient is cut off where tanh is nearly flat."
        ),
        ("i-f-exchanged", "layout index", "typical"): (
            "The rows of the input and forget gates are exchanged in the packed gradient."
        ),
        ("order-default", "attribute", "order"): (
            "The backward packs the gates in the default order.",
            mutate.attribute(LSTM, order="ifgo"),
        ),
        ("forget-bias-ignored", "attribute", "forget-bias"): (
            "The backward leaves out the offset of the forget gate.",
            mutate.attribute(LSTM, forget_bias=0.0),
        ),
        ("h-missing", "slot", "zero-state"): (
            "The gradient of h through the recurrent weights is zero.",
            mutate.output(LSTM, 1, mutate.zeros),
            {"modelled_on": "AiDotNet, HipLstmKernels.cs: dH = 0 after every step"},
        ),
        ("weights-overwritten", "accumulation broadcast", "typical"): (
            "The gradients of the weights are overwritten by every row of the batch."
        ),
        ("bias-averaged", "reduction", "typical"): (
            "The biases' gradients are means over the batch.",
            {"dialects": ("pytorch", "keras", "tensorflow-1", "onnx")},
        ),
        ("b-hh-missing", "slot", "single"): (
            "The second bias gets no gradient.",
            mutate.output(LSTM, 6, mutate.zeros),
            {"dialects": ("pytorch", "onnx")},
        ),
        ("weight-relaid", "layout", "typical"): (
            "The gradient of w_ih is written as [d, g].",
            mutate.output(LSTM, 3, mutate.relaid),
        ),
    },
    faulty=lstm_cell_with,
)

# ── gru_cell ─────────────────────────────────────────────────────────────────────────────────


def gru_cell_with(fault: str, memory: dict[bytes, Any] | None = None) -> Vjp:
    """The backward of gru_cell with one fault; `memory` keeps the gates between calls."""

    def vjp(xp, ct, x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, order="rzn", reset_after=True):
        r, z, n, inner = _gru_gates(xp, x, h, w_ih, w_hh, b_ih, b_hh, order, reset_after)
        key = np.asarray(x).tobytes() + np.asarray(w_ih).tobytes()
        if memory is not None and key in memory:
            n = memory[key]
        if fault == "inner-without-bias" and reset_after:
            inner = _part(_affine(xp, w_hh, h, None), order, "n")
        if fault == "inner-is-h":
            inner = h

        def sigma(s: Any) -> Any:
            """The slope of a gate from its value."""
            if fault == "slope-of-value":
                s = xp.sigmoid(s)
            slope = s * (1 - s)
            return xp.where(s < 2.0**-12, 0 * s, slope) if fault == "closed-gate" else slope

        keep = z if fault == "update-reversed" else 1 - z
        dz = ct * (n - h if fault == "update-sign" else h - n) * sigma(z)
        dn = ct * keep * (1 - (n if fault == "tanh-slope" else n * n))
        if memory is not None:
            memory[key] = dn
        if reset_after:
            dr = dn * inner * sigma(r)
            wide = {"r": dr, "z": dz, "n": dn}
            parts = {"r": dr, "z": dz, "n": dn if fault == "reset-missing" else dn * r}
            dh = 0
            read = {"r": h, "z": h, "n": h}
        else:
            into_n = _affine_back(xp, dn, _rows(w_hh, order, "n"))
            dr = into_n * h * sigma(r)
            wide = parts = {"r": dr, "z": dz, "n": dn}
            dh = into_n if fault == "reset-missing" else into_n * r
            read = {"r": h, "z": h, "n": h if fault == "read-unreset" else r * h}
        for gate in "rzn" if reset_after else "rz":
            if fault != f"{gate}-not-into-h":
                dh = dh + _affine_back(xp, parts[gate], _rows(w_hh, order, gate))
        da = xp.concatenate([wide[gate] for gate in order], axis=-1)
        db = xp.concatenate([parts[gate] for gate in order], axis=-1)
        if fault == "biases-alike":
            db = da
        dw_ih = _outer(da, x)
        dw_hh = xp.concatenate([_outer(parts[gate], read[gate]) for gate in order], axis=-2)
        if fault == "weights-overwritten" and da.ndim > 1 and len(da):
            dw_ih, dw_hh = dw_ih[..., -1, :, :], dw_hh[..., -1, :, :]
        return (
            xp.reduce_to(_affine_back(xp, da, w_ih), x),
            xp.reduce_to(dh if fault == "direct-path" else dh + ct * z, h),
            xp.reduce_to(dw_ih, w_ih),
            xp.reduce_to(dw_hh, w_hh),
            *(xp.reduce_to(g, b) for g, b in ((da, b_ih), (db, b_hh)) if b is not None),
        )

    return vjp


GRU = recurrent.gru_cell_vjp
TWO_BIASES = ("pytorch", "keras")


MUTANTS += mutant_table(
    "gru_cell",
    {
        ("update-sign", "sign", "one-row"): ("The update gate's gradient has the wrong sign."),
        ("update-reversed", "derivative", "one-row"): (
            "The candidate is weighted by z, not by 1 - z: the two conventions mixed."
        ),
        ("reset-missing", "scale term", "one-row"): (
            "What h feeds into the candidate lacks the reset gate."
        ),
        ("inner-is-h", "saved-value", "typical"): (
            "The reset gate's gradient reads h, not W h + b, though the reset comes after.",
            {"dialects": ("pytorch", "keras", "bias-free")},
        ),
        ("inner-without-bias", "term", "typical"): (
            "The reset gate's gradient leaves out the bias that it scales too.",
            {"dialects": TWO_BIASES},
        ),
        ("direct-path", "term", "zero-state"): ("The gradient of h lacks its direct path, z ct."),
        ("z-not-into-h", "term", "one-row"): (
            "The gradient of h leaves out the update gate's weights."
        ),
        ("r-not-into-h", "term", "one-row"): (
            "The gradient of h leaves out the reset gate's weights."
        ),
        ("slope-of-value", "derivative saved-value", "typical"): (
            "The slope of the gates is taken at their values, not at the sums before them."
        ),
        ("tanh-slope", "derivative", "typical"): (
            "The slope of the candidate is 1 - n, not 1 - n^2."
        ),
        ("closed-gate", "derivative precision", "reset-closed"): (
            "A gate below 2^-12 gets no gradient.",
            {"dialects": ("pytorch",)},
        ),
        ("reset-place-default", "attribute", "reset-before"): (
            "The backward takes the reset to come after the matrix, whatever forward did.",
            mutate.attribute(GRU, reset_after=True),
            {"dialects": ("pytorch", "onnx", "keras")},
        ),
        ("order-default", "attribute", "order"): (
            "The backward packs the gates in the default order.",
            mutate.attribute(GRU, order="rzn"),
        ),
        ("biases-alike", "slot", "single"): (
            "Both biases get the gradient of the first.",
            {"dialects": TWO_BIASES},
        ),
        ("read-unreset", "saved-value scale", "typical"): (
            "The recurrent weight's gradient reads h, not r h.",
            {"dialects": ("original", "onnx")},
        ),
        ("weights-overwritten", "accumulation broadcast", "typical"): (
            "The gradients of the weights are overwritten by every row of the batch."
        ),
        ("weights-averaged", "reduction", "typical"): (
            "The gradient of w_ih is a mean over the batch.",
            mutate.scaled(GRU, 2, lambda xp, x, *rest, **attrs: x.shape[-1] / max(x.size, 1)),
        ),
        ("weight-relaid", "layout", "typical"): (
            "The gradient of w_ih is written as [d, g].",
            mutate.output(GRU, 2, mutate.relaid),
        ),
        ("gates-overwritten", "aliasing saved-value", "one-row"): (
            "Backward writes its gradient into the saved candidate: a second call reads it.",
            {
                "modelled_on": "PyTorch issue 1532: backward through a fused GRU cell twice",
                "make": lambda: gru_cell_with("gates-overwritten", {}),
            },
        ),
    },
    faulty=gru_cell_with,
)
