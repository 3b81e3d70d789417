"""Cells, and scans by lax.scan, which JAX differentiates from the last step to the first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def _lead(*arrays_and_ranks):
    """The leading axes that arrays, each with so many axes of its own, have together."""
    return jnp.broadcast_shapes(*(x.shape[: x.ndim - rank] for x, rank in arrays_and_ranks))


def _rows(x, lead, rank=2):
    """`x` with all leading axes, and time, the first of its own `rank` axes, before them."""
    whole = jnp.broadcast_to(x, (*lead, *x.shape[x.ndim - rank :]))
    return jnp.moveaxis(whole, -rank, 0)


def _start(state, lead, shape, dtype):
    return jnp.zeros((*lead, *shape), dtype) if state is None else jnp.broadcast_to(
        state, (*lead, *shape)
    )  # fmt: skip


def _over_time(y):
    return jnp.moveaxis(y, 0, -2)


def selective_scan(x, delta, a, b, c, d=None, h=None, *, softplus, exact_hold):
    lead = _lead((x, 2), (delta, 2), (b, 2), (c, 2), *([] if h is None else [(h, 2)]))

    def step(h, row):
        x, dt, b, c = row
        exponent = dt[..., None] * a
        gain = jnp.expm1(exponent) / a if exact_hold else dt[..., None]
        h = jnp.exp(exponent) * h + gain * (x[..., None] * b[..., None, :])
        return h, (h * c[..., None, :]).sum(-1)

    delta = jax.nn.softplus(delta) if softplus else delta
    rows = tuple(_rows(r, lead) for r in (x, delta, b, c))
    last, y = lax.scan(step, _start(h, lead, a.shape, x.dtype), rows)
    y = _over_time(y)
    return (y if d is None else y + x * d), last


def wkv(w, u, k, v, num=None, den=None, *, raw):
    """Numerator and denominator over a power of e that is only a scale: no gradient of it."""
    rate, lead = (w if raw else -jnp.exp(w)), _lead((k, 2), (v, 2))

    def step(state, row):
        (a, b, p), (k, v) = state, row
        top = lax.stop_gradient(jnp.maximum(p, u + k))
        old, new = jnp.exp(p - top), jnp.exp(u + k - top)
        y = (old * a + new * v) / (old * b + new)
        top = lax.stop_gradient(jnp.maximum(p + rate, k))
        old, new = jnp.exp(p + rate - top), jnp.exp(k - top)
        return (old * a + new * v, old * b + new, top), y

    power = jnp.full((*lead, *w.shape), -jnp.inf if num is None else 0.0, k.dtype)
    start = (*(_start(s, lead, w.shape, k.dtype) for s in (num, den)), power)
    return _over_time(lax.scan(step, start, (_rows(k, lead), _rows(v, lead)))[1])


def wkv6(r, k, v, w, u, s=None, *, log_decay):
    lead = _lead((r, 2), (k, 2), (v, 2), (w, 2), *([] if s is None else [(s, 2)]))

    def step(s, row):
        r, k, v, decay = row
        new = k[..., :, None] * v[..., None, :]
        y = (r[..., None, :] @ (s + u[:, None] * new))[..., 0, :]
        return decay[..., :, None] * s + new, y

    rows = (r, k, v, jnp.exp(w if log_decay else -jnp.exp(w)))
    start = _start(s, lead, (k.shape[-1], v.shape[-1]), k.dtype)
    last, y = lax.scan(step, start, tuple(_rows(x, lead) for x in rows))
    return _over_time(y), last


def linear_attention(q, k, v, s=None, z=None, *, feature, normalised, scaled, decay, eps):
    if feature == "elu":
        q, k = _positive(q), _positive(k)
    if scaled:
        q = q * q.shape[-1] ** -0.5
    states = [(x, n) for x, n in ((s, 2), (z, 1)) if x is not None]
    lead = _lead((q, 2), (k, 2), (v, 2), *states)

    def step(state, row):
        (s, z), (q, k, v) = state, row
        s, z = decay * s + k[..., :, None] * v[..., None, :], decay * z + k
        y = (q[..., None, :] @ s)[..., 0, :]
        return (s, z), y / ((q * z).sum(-1, keepdims=True) + eps) if normalised else y

    d, e = k.shape[-1], v.shape[-1]
    start = (_start(s, lead, (d, e), k.dtype), _start(z, lead, (d,), k.dtype))
    (last, _), y = lax.scan(step, start, tuple(_rows(x, lead) for x in (q, k, v)))
    return _over_time(y), last


def _positive(x):
    """elu(x) + 1, without the sum that cancels where x is far below 0."""
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.where(x > 0, 0, x)))


def gated_delta_rule(q, k, v, beta, g=None, s=None, *, scaled, normalised, eps):
    """Decay, then the write of what is missing to v: the state moves by one outer product."""
    if normalised:
        q, k = (x * lax.rsqrt((x * x).sum(-1, keepdims=True) + eps) for x in (q, k))
    if scaled:
        q = q * q.shape[-1] ** -0.5
    lead = _lead((q, 2), (k, 2), (v, 2), (beta, 1), *([] if s is None else [(s, 2)]))

    def step(s, row):
        q, k, v, beta, g = row
        s = jnp.exp(g)[..., None, None] * s
        error = v - (k[..., None, :] @ s)[..., 0, :]
        s = s + k[..., :, None] * (beta[..., None] * error)[..., None, :]
        return s, (q[..., None, :] @ s)[..., 0, :]

    g = jnp.zeros_like(beta) if g is None else g
    rows = (*(_rows(x, lead) for x in (q, k, v)), _rows(beta, lead, 1), _rows(g, lead, 1))
    start = _start(s, lead, (k.shape[-1], v.shape[-1]), k.dtype)
    last, y = lax.scan(step, start, rows)
    return _over_time(y), last


def _gates(x, w, b, order):
    """By their letters, the gates of packed rows."""
    rows = x @ w.T if b is None else x @ w.T + b
    return dict(zip(order, jnp.split(rows, len(order), axis=-1), strict=True))


def lstm_cell(x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, *, order, forget_bias):
    by_x, by_h = _gates(x, w_ih, b_ih, order), _gates(h, w_hh, b_hh, order)
    i, f, g, o = (by_x[gate] + by_h[gate] for gate in "ifgo")
    kept = jax.nn.sigmoid(f + forget_bias) * c
    cell = kept + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def gru_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, order, reset_after):
    by_x, by_h = _gates(x, w_ih, b_ih, order), _gates(h, w_hh, b_hh, order)
    r, z = (jax.nn.sigmoid(by_x[gate] + by_h[gate]) for gate in "rz")
    new = r * by_h["n"] if reset_after else _gates(r * h, w_hh, b_hh, order)["n"]
    n = jnp.tanh(by_x["n"] + new)
    return (1 - z) * n + z * h
