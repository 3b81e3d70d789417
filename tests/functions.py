"""Operators in NumPy with right VJPs, for tests of functions without a spec."""

import math

import numpy as np

ROOT = math.sqrt(2 / math.pi)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_pullback(ct, y):
    return y * (ct - (ct * y).sum(-1, keepdims=True))


def softmax_vjp(ct, x):
    return softmax_pullback(ct, softmax(x))


def logsumexp(x):
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1)) + top[..., 0]


def logsumexp_vjp(ct, x):
    return ct[..., None] * softmax(x)


def rms_norm(x, w, eps=1e-5):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * w


def rms_norm_vjp(ct, x, w, eps=1e-5):
    r = 1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)
    g = ct * w
    return r * g - x * r**3 * np.mean(g * x, -1, keepdims=True), (ct * x * r).sum(0)


def normalised(x):
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt(np.mean(c * c, -1, keepdims=True) + 1e-5)
    return c * r, r


def layer_norm(x, w, b):
    return normalised(x)[0] * w + b


def layer_norm_vjp(ct, x, w, b):
    n, r = normalised(x)
    g = ct * w
    dx = r * (g - g.mean(-1, keepdims=True) - n * np.mean(g * n, -1, keepdims=True))
    return dx, (ct * n).sum(0), ct.sum(0)


def attention(q, k, v):
    return softmax(q @ k.T / q.dtype.type(q.shape[-1] ** 0.5)) @ v


def attention_vjp(ct, q, k, v):
    scale = q.dtype.type(q.shape[-1] ** 0.5)
    p = softmax(q @ k.T / scale)
    ds = softmax_pullback(ct @ v.T, p) / scale
    return ds @ k, ds.T @ q, p.T @ ct


def gelu(x):
    return 0.5 * x * (1 + np.tanh(ROOT * (x + 0.044715 * x * x * x)))


def gelu_vjp(ct, x):
    t = np.tanh(ROOT * (x + 0.044715 * x * x * x))
    return ct * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * 0.044715 * x * x))


def relu(x):
    return np.maximum(x, 0)


def network(x, w, v):
    return v @ relu(w @ x)


def network_vjp(ct, x, w, v):
    z = w @ x
    g = (v.T @ ct) * (z > 0)
    return w.T @ g, np.outer(g, x), np.outer(ct, relu(z))
