"""Functions with right VJPs on ordinary and on hard inputs, for what the screen makes of them."""

import numpy as np

from tests.functions import (
    gelu,
    gelu_vjp,
    layer_norm,
    layer_norm_vjp,
    rms_norm,
    rms_norm_vjp,
    softmax,
    softmax_vjp,
)


def cross_entropy(x):
    """Scalar mean over rows, whose target is class 1: no structure at all."""
    m = x.max(-1, keepdims=True)
    return np.mean(np.log(np.exp(x - m).sum(-1)) + m[..., 0] - x[..., 1], -1)


def cross_entropy_vjp(ct, x):
    y = softmax(x)
    y[:, 1] -= 1
    return ct * y / len(x)


def attention(q, k, v):
    t = q.shape[-2]
    scores = q @ np.swapaxes(k, -1, -2) / 4 + np.triu(np.full((t, t), -np.inf), 1)
    return softmax(scores) @ v


def attention_vjp(ct, q, k, v):
    t = q.shape[-2]
    p = softmax(q @ np.swapaxes(k, -1, -2) / 4 + np.triu(np.full((t, t), -np.inf), 1))
    dp = ct @ np.swapaxes(v, -1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / 4
    return ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ ct


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer(x, w):
    """relu(x @ w): 512 kinks, some of them beside x."""
    return np.maximum(x @ w, 0)


def layer_vjp(ct, x, w):
    g = ct * (x @ w > 0)
    return g @ w.T, x.T @ g


def network(x, w, v):
    """A scalar of everything: no structure, and third derivatives of all sizes."""
    return (np.tanh(x @ w) @ v).sum((-1, -2))


def network_vjp(ct, x, w, v):
    h = np.tanh(x @ w)
    g = ct * np.ones((len(x), v.shape[1]))
    inside = g @ v.T * (1 - h * h)
    return inside @ w.T, x.T @ inside, h.T @ g


def with_eps(eps):
    return (lambda x, w: rms_norm(x, w, eps)), (lambda ct, x, w: rms_norm_vjp(ct, x, w, eps))


ORDINARY = {
    "rms_norm": (rms_norm, rms_norm_vjp, lambda r: (r((8, 32)), r(64)[:32])),
    "softmax": (softmax, softmax_vjp, lambda r: (r((16, 32)),)),
    "layer_norm": (layer_norm, layer_norm_vjp, lambda r: (r((8, 64)), r(64), r(64))),
    "matmul": (
        np.matmul,
        lambda ct, a, b: (ct @ b.T, a.T @ ct),
        lambda r: (r((16, 24)), r((24, 12))),
    ),
    "attention": (
        attention,
        attention_vjp,
        lambda r: (r((2, 8, 8)), r((2, 8, 8)), r((2, 8, 8))),
    ),
    "cross_entropy": (cross_entropy, cross_entropy_vjp, lambda r: (r((16, 40)),)),
    "gelu": (gelu, gelu_vjp, lambda r: (r(500),)),
    "network": (
        network,
        network_vjp,
        lambda r: (r((8, 20)), r((20, 30)) / 4, r((30, 10)) / 5),
    ),
}

HARD = {
    **{
        f"rows of {d} at 1e-4, eps {eps:g}": (
            *with_eps(eps),
            lambda r, d=d: (1e-4 * r((512 // d, d)), r(d)),
        )
        for eps in (1e-5, 1e-6, 1e-12)
        for d in (64, 4, 1)
    },
    "rows of all sizes": (
        *with_eps(1e-6),
        lambda r: (10 ** np.linspace(-6, 3, 32)[:, None] * r((32, 16)), r(16)),
    ),
    "softmax at 1000": (softmax, softmax_vjp, lambda r: (1000 + 3 * r((16, 32)),)),
    "softmax of N(0, 10)": (softmax, softmax_vjp, lambda r: (10 * r((16, 32)),)),
    "layer_norm at 1000": (
        layer_norm,
        layer_norm_vjp,
        lambda r: (1000 + 3 * r((16, 32)), r(32), r(32)),
    ),
    "tail of tanh": (np.tanh, lambda ct, x: ct / np.cosh(x) ** 2, lambda r: (8 * r(500),)),
    "tail of sigmoid": (
        sigmoid,
        lambda ct, x: ct * sigmoid(x) * sigmoid(-x),
        lambda r: (8 * r(500),),
    ),
    "kinks": (layer, layer_vjp, lambda r: (r((1, 64)), r((64, 512)) / 8)),
}


def drawn(name, seed):
    """Forward, VJP and primals of a case."""
    forward, vjp, primals = (ORDINARY | HARD)[name]
    return forward, vjp, primals(np.random.default_rng(seed).standard_normal)
