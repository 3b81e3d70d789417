"""Gradients that are exactly zero, and those that cancel to rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .applied import attention, attention_vjp
from .pair import Pair, at, drawn, each, elementwise, uniform
from .smooth import layer_norm, layer_norm_vjp, rms_norm, rms_norm_vjp, softmax, softmax_vjp

FLAT = {
    "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "rint": np.rint, "trunc": np.trunc,
    "round half": lambda x: np.round(x * 2) / 2, "step": lambda x: (x > 0) * 1.0,
    "heaviside": lambda x: np.heaviside(x, 0.5), "constant": lambda x: np.full_like(x, 3.7),
    "zeros": np.zeros_like, "0·x": lambda x: 0 * x, "bins": lambda x: np.digitize(x, [-1, 0,
        1]) * 1.0,
    "isfinite": lambda x: np.isfinite(x).astype(x.dtype),
        "shape alone": lambda x: np.ones(x.shape) * x.size,
    "dead relu": lambda x: np.maximum(x - 50, 0), "clipped away": lambda x: np.clip(x, 50, 60),
    "x⁰": lambda x: x**0, "floor division": lambda x: x // 0.7,
        "saturated exp": lambda x: np.exp(-(x * x) - 800),
}  # fmt: skip


def argmax_one_hot(x):
    return (x == x.max(-1, keepdims=True)) * 1.0


def zeros_vjp(ct, x):
    return np.zeros_like(x)


def centred_mean_vjp(ct, x):
    n = x.shape[1]
    mean = (ct / n)[:, None] * np.full(x.shape, 1 / n).sum(-1, keepdims=True)
    return np.broadcast_to(ct[:, None] / n, x.shape) - mean


def normalised_sum(x):
    return (x / x.sum(-1, keepdims=True)).sum(-1)


def normalised_sum_vjp(ct, x):
    s = x.sum(-1, keepdims=True)
    return np.repeat(ct[:, None] * (1 / s - (x / s**2).sum(-1, keepdims=True)), x.shape[1], 1)


def unit_norm(x):
    n = np.sqrt((x * x).sum(-1, keepdims=True))
    return ((x / n) ** 2).sum(-1)


def unit_norm_vjp(ct, x):
    n = np.sqrt((x * x).sum(-1, keepdims=True))
    u = x / n
    g = 2 * ct[:, None] * u
    return (g - u * (u * g).sum(-1, keepdims=True)) / n


OF_ORDER = {
    "argmax one hot": (argmax_one_hot, zeros_vjp),
    "argsort": (lambda x: np.argsort(x, -1) * 1.0, zeros_vjp),
    "count above": (lambda x: float((x > 0).sum()), zeros_vjp),
}
OF_ONE_NUMBER = {
    "x/x": (lambda x: x / x, lambda x: 1 / x - x / x**2),
    "sqrt squared": (
        lambda x: np.sqrt(x) ** 2 - x,
        lambda x: 2 * np.sqrt(x) * (0.5 / np.sqrt(x)) - 1,
    ),
    "sin² + cos²": (
        lambda x: np.sin(x) ** 2 + np.cos(x) ** 2,
        lambda x: 2 * np.sin(x) * np.cos(x) - 2 * np.cos(x) * np.sin(x),
    ),
    "(x+1)² expanded": (
        lambda x: (x + 1) ** 2 - x * x - 2 * x,
        lambda x: 2 * (x + 1) - 2 * x - 2,
    ),
}
OF_ROWS = {
    "softmax(x).sum()": (
        lambda x: softmax(x).sum(-1),
        lambda ct, x: softmax_vjp(np.broadcast_to(ct[:, None], x.shape), x),
    ),
    "layer_norm summed": (
        lambda x: layer_norm(x).sum(-1),
        lambda ct, x: layer_norm_vjp(np.broadcast_to(ct[:, None], x.shape), x),
    ),
    "sum of shares": (normalised_sum, normalised_sum_vjp),
    "norm of the unit vector": (unit_norm, unit_norm_vjp),
    "centred mean": (lambda x: (x - x.mean(-1, keepdims=True)).mean(-1), centred_mean_vjp),
}


def pairs() -> Iterator[Pair]:
    """All of this file."""
    yield from flat()
    yield from cancelled()


def flat() -> Iterator[Pair]:
    """Gradients that are exactly zero."""
    kind = "zero"
    for name, f in FLAT.items():
        x = drawn(f"flat {name}", 6, scale=2.0)
        points = {"ordinary": x}
        if name not in ("saturated exp", "dead relu", "clipped away"):
            points |= {"large": x + 1000.123}
        yield from elementwise(kind, name, f, lambda x: 0 * x, points, hidden=True)
    x = drawn("one hot", 3, 4)
    yield from each(kind, {"ordinary": x}, OF_ORDER, hidden=True)
    yield from at(
        kind,
        "second primal unused",
        lambda x, y: x * 2,
        lambda ct, x, y: (2 * ct, 0 * y),
        {"ordinary": (x, x + 1)},
    )
    point = {"ordinary": drawn("s1", 4, 1)}
    yield from at(kind, "softmax of one", softmax, lambda ct, x: 0 * x, point)
    yield from at(
        kind,
        "log_softmax of one",
        lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)),
        lambda ct, x: 0 * x,
        {"ordinary": drawn("ls1", 4, 1)},
    )
    point = {"ordinary": (drawn("q", 3, 4), drawn("k", 1, 4), drawn("v", 1, 4))}
    yield from at(kind, "attention with one key", attention, attention_vjp, point)


def cancelled() -> Iterator[Pair]:
    """Gradients whose terms cancel to rounding."""
    kind, few = "cancelled", {"loses": np.inf}
    for s in (1.0, 1e-3, 1e3):
        w = f"{s:g}"
        y = s * uniform(f"cancelled {s}", 0.5, 2, 3, 5)
        for name, (f, slope) in OF_ONE_NUMBER.items():
            yield from elementwise(kind, name, f, slope, {w: y[0]}, **few)
        yield from each(kind, {w: y}, OF_ROWS, **few)
        one = {w: y[:, :1]}
        yield from at(kind, "layer_norm over one feature", layer_norm, layer_norm_vjp, one, **few)
        yield from at(
            kind,
            "rms_norm over one feature",
            lambda x, w: rms_norm(x, w, 0.0),
            lambda ct, x, w: rms_norm_vjp(ct, x, w, 0.0),
            {w: (y[:, :1], np.array([1.3]))},
            **few,
        )
        yield from at(
            kind,
            "cosine with itself",
            lambda x: (x @ x) / np.sqrt((x @ x) * (x @ x)),
            lambda ct, x: ct * (2 * x / (x @ x) - 2 * x / (x @ x)),
            {w: y[0]},
            **few,
        )
        if s < 100:
            yield from elementwise(
                kind,
                "log exp",
                lambda x: np.log(np.exp(x)) - x,
                lambda x: np.exp(x) / np.exp(x) - 1,
                {w: y[0]},
                **few,
            )
