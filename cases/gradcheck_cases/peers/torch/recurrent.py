"""PyTorch's cells, and scans composed of its functions; loops over time, as its autograd needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F


def _over_time(rows: Sequence[Any], like: Any) -> Any:
    return torch.stack(list(rows), dim=-2) if rows else like * 1


def selective_scan(x, delta, a, b, c, d=None, h=None, *, softplus, exact_hold):
    """The loop of mamba_ssm's selective_scan_ref."""
    step = F.softplus(delta) if softplus else delta
    h = torch.zeros_like(a) if h is None else h * 1
    rows = []
    for t in range(x.shape[-2]):
        exponent = step[..., t, :, None] * a
        gain = torch.expm1(exponent) / a if exact_hold else step[..., t, :, None]
        h = torch.exp(exponent) * h + gain * (x[..., t, :, None] * b[..., t, None, :])
        rows.append((h * c[..., t, None, :]).sum(-1))
    y = _over_time(rows, x)
    return (y if d is None else y + x * d), h


def wkv(w, u, k, v, num=None, den=None, *, raw):
    """A logarithm of weighted sums over all earlier steps, without a recurrence."""
    rate = w if raw else -torch.exp(w)
    rows = []
    for t in range(k.shape[-2]):
        ages = torch.arange(t - 1, -1, -1, dtype=k.dtype)[:, None]
        past = k[..., :t, :] + ages * rate
        logs = torch.cat([past, (u + k[..., t, :])[..., None, :]], dim=-2)
        values = v[..., : t + 1, :]
        if num is None:
            rows.append((torch.softmax(logs, dim=-2) * values).sum(-2))
            continue
        top = logs.detach().amax(dim=-2).clamp(min=0)
        weights, old = torch.exp(logs - top[..., None, :]), torch.exp(t * rate - top)
        total = weights.sum(-2) + old * den
        rows.append(((weights * values).sum(-2) + old * num) / total)
    return _over_time(rows, v)


def wkv6(r, k, v, w, u, s=None, *, log_decay):
    """The loop of RWKV-6; sums of log decays over spans would cancel where one is large."""
    decays = torch.exp(w if log_decay else -torch.exp(w))
    s = torch.zeros((k.shape[-1], v.shape[-1]), dtype=k.dtype) if s is None else s * 1
    rows = []
    for t in range(k.shape[-2]):
        new = k[..., t, :, None] * v[..., t, None, :]
        rows.append((r[..., t, None, :] @ (s + u[:, None] * new))[..., 0, :])
        s = decays[..., t, :, None] * s + new
    return _over_time(rows, v), s


def linear_attention(q, k, v, s=None, z=None, *, feature, normalised, scaled, decay, eps):
    """Masked quadratic attention, which equals the recurrence."""
    if feature == "elu":
        q, k = F.elu(q) + 1, F.elu(k) + 1
    if scaled:
        q = q * q.shape[-1] ** -0.5
    steps = torch.arange(q.shape[-2], dtype=q.dtype)
    age = steps[:, None] - steps
    mask = torch.where(age >= 0, decay ** age.clamp(min=0), 0.0).to(q.dtype)
    weights = (q @ k.transpose(-1, -2)) * mask
    y, total = weights @ v, weights.sum(-1, keepdim=True)
    fade = (decay ** (steps + 1))[:, None]
    left = (decay ** steps.flip(0))[:, None]
    state = (k * left).transpose(-1, -2) @ v
    if s is not None:
        y, state = y + fade * (q @ s), state + decay ** len(steps) * s
    if z is not None:
        total = total + fade * (q * z[..., None, :]).sum(-1, keepdim=True)
    return (y / (total + eps) if normalised else y), state


def gated_delta_rule(q, k, v, beta, g=None, s=None, *, scaled, normalised, eps):
    """Each step as a matrix on the state: decay times I - beta k k', then the write."""
    if normalised:
        q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + eps)
        k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + eps)
    if scaled:
        q = q * q.shape[-1] ** -0.5
    s = torch.zeros((k.shape[-1], v.shape[-1]), dtype=k.dtype) if s is None else s * 1
    rows = []
    for t in range(k.shape[-2]):
        kt, bt = k[..., t, :], beta[..., t, None, None]
        turn = torch.eye(k.shape[-1], dtype=k.dtype) - bt * kt[..., :, None] * kt[..., None, :]
        if g is not None:
            turn = turn * torch.exp(g[..., t, None, None])
        s = turn @ s + bt * kt[..., :, None] * v[..., t, None, :]
        rows.append((q[..., t, None, :] @ s)[..., 0, :])
    return _over_time(rows, v), s


def _repacked(rows: Any, order: str, wanted: str) -> Any:
    """The gates of packed rows in another order."""
    if rows is None or order == wanted:
        return rows
    parts = dict(zip(order, rows.chunk(len(order)), strict=True))
    return torch.cat([parts[gate] for gate in wanted])


def _flat(x: Any) -> Any:
    return x.reshape(-1, x.shape[-1])


def lstm_cell(x, h, c, w_ih, w_hh, b_ih=None, b_hh=None, *, order, forget_bias):
    """torch.lstm_cell, with its rows in its own order."""
    w_ih, w_hh, b_ih, b_hh = (_repacked(w, order, "ifgo") for w in (w_ih, w_hh, b_ih, b_hh))
    if b_ih is not None:
        n = h.shape[-1]
        offset = torch.zeros(4 * n, dtype=h.dtype)
        offset[n : 2 * n] = forget_bias
        b_ih, b_hh = b_ih + offset, torch.zeros_like(b_ih) if b_hh is None else b_hh
    elif forget_bias:
        b_ih = torch.zeros(4 * h.shape[-1], dtype=h.dtype)
        b_ih[h.shape[-1] : 2 * h.shape[-1]] = forget_bias
        b_hh = torch.zeros_like(b_ih)
    after, cell = torch.lstm_cell(_flat(x), (_flat(h), _flat(c)), w_ih, w_hh, b_ih, b_hh)
    return after.reshape(h.shape), cell.reshape(c.shape)


def gru_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None, *, order, reset_after):
    """torch.gru_cell; where the reset gate comes before the matrix, composed."""
    w_ih, w_hh, b_ih, b_hh = (_repacked(w, order, "rzn") for w in (w_ih, w_hh, b_ih, b_hh))
    if b_ih is not None and b_hh is None:
        b_hh = torch.zeros_like(b_ih)
    if reset_after:
        return torch.gru_cell(_flat(x), _flat(h), w_ih, w_hh, b_ih, b_hh).reshape(h.shape)
    by_x, (w_r, w_z, w_n) = F.linear(x, w_ih, b_ih).chunk(3, -1), w_hh.chunk(3)
    b_r, b_z, b_n = (None,) * 3 if b_hh is None else b_hh.chunk(3)
    r = torch.sigmoid(by_x[0] + F.linear(h, w_r, b_r))
    z = torch.sigmoid(by_x[1] + F.linear(h, w_z, b_z))
    n = torch.tanh(by_x[2] + F.linear(r * h, w_n, b_n))
    return torch.lerp(n, h, z)
