"""Kinks and ties, on the primal and beside it; the VJP is a subgradient that libraries use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pair import BOTH, DOUBLE, Pair, at, drawn, elementwise, uniform

KIND = "kink"
BESIDE = (1e-2, 1e-6, 1e-10, 1e-14)

FUNCTIONS = {
    # forward, slope, where it has kinks
    "abs": (np.abs, np.sign, (0.0,)),
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0, (0.0,)),
    "relu by where": (lambda x: np.where(x > 0, x, 0), lambda x: np.where(x > 0, 1.0, 0.0), (0.0,)),
    "relu by product": (lambda x: x * (x > 0), lambda x: (x > 0) * 1.0, (0.0,)),
    "leaky relu": (lambda x: np.where(x > 0, x, 0.01 * x), lambda x: np.where(x > 0, 1, 0.01),
        (0.0,)),
    "clip": (lambda x: np.clip(x, -1, 1), lambda x: (np.abs(x) <= 1) * 1.0, (-1.0, 1.0)),
    "relu6": (lambda x: np.minimum(np.maximum(x, 0), 6), lambda x: ((x > 0) & (x < 6)) * 1.0, (0.0,
        6.0)),
    "hard tanh": (lambda x: np.maximum(-1, np.minimum(1, x)), lambda x: (np.abs(x) < 1) * 1.0,
        (-1.0, 1.0)),
    "hard swish": (lambda x: x * np.clip(x + 3, 0, 6) / 6,
                   lambda x: np.where(x < -3, 0, np.where(x > 3, 1, x / 3 + 0.5)), (-3.0, 3.0)),
    "soft shrink": (lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
        lambda x: (np.abs(x) > 0.5) * 1.0,
                    (-0.5, 0.5)),
    "selu": (lambda x: 1.0507 * np.where(x > 0, x, 1.6733 * np.expm1(np.minimum(x, 0))),
             lambda x: 1.0507 * np.where(x > 0, 1, 1.6733 * np.exp(np.minimum(x, 0))), (0.0,)),
    "hinge": (lambda x: np.maximum(0, 1 - x), lambda x: np.where(x < 1, -1.0, 0.0), (1.0,)),
    "pinball": (lambda x: np.maximum(0.9 * x, -0.1 * x), lambda x: np.where(x > 0, 0.9, -0.1),
        (0.0,)),
    "triangle": (lambda x: np.maximum(0, 1 - np.abs(x)), lambda x: np.where(np.abs(x) < 1,
        -np.sign(x), 0),
                 (-1.0, 0.0, 1.0)),
    "call option": (lambda x: np.maximum(x - 100.0, 0), lambda x: (x > 100) * 1.0, (100.0,)),
    "x|x|": (lambda x: x * np.abs(x), lambda x: 2 * np.abs(x), (0.0,)),
    "squared hinge": (lambda x: np.maximum(0, 1 - x) ** 2, lambda x: -2 * np.maximum(0, 1 - x),
        (1.0,)),
    "ramp of exp": (lambda x: np.maximum(np.exp(x), 1 + x), np.exp, (0.0,)),
}  # fmt: skip
SMOOTH = {"x|x|", "squared hinge", "ramp of exp"}
"""Their slopes have no jump: no element is free."""


def max_vjp(ct, x):
    """All of it to the first."""
    g = np.zeros_like(x)
    g[np.arange(len(x)), x.argmax(-1)] = ct
    return g


def even_max_vjp(ct, x):
    """Shared among ties, as JAX does."""
    tied = x == x.max(-1, keepdims=True)
    return ct[:, None] * tied / tied.sum(-1, keepdims=True)


def sort_vjp(ct, x):
    g = np.empty_like(x)
    np.put_along_axis(g, np.argsort(x, -1, kind="stable"), ct, -1)
    return g


def median_vjp(ct, x):
    g = np.zeros_like(x)
    np.put_along_axis(
        g, np.argsort(x, -1, kind="stable")[:, x.shape[-1] // 2, None], ct[:, None], -1
    )
    return g


def topk(x):
    return np.sort(x, -1)[:, -2:].sum(-1)


def topk_vjp(ct, x):
    g = np.zeros_like(x)
    np.put_along_axis(g, np.argsort(x, -1, kind="stable")[:, -2:], ct[:, None], -1)
    return g


def max_pool(x):
    return x.reshape(len(x), -1, 2).max(-1)


def max_pool_vjp(ct, x):
    w = x.reshape(len(x), -1, 2)
    g = np.where(w[..., :1] >= w[..., 1:], [1.0, 0.0], [0.0, 1.0]) * ct[..., None]
    return g.reshape(x.shape).astype(x.dtype)


def l1(x, y):
    return np.abs(x - y).mean()


def l1_vjp(ct, x, y):
    g = ct * np.sign(x - y) / x.size
    return g, -g


def total_variation(x):
    return np.abs(np.diff(x)).sum()


def total_variation_vjp(ct, x):
    s = ct * np.sign(np.diff(x))
    return np.append(0, s) - np.append(s, 0)


def relu_network(x, w, v):
    return np.maximum(x @ w, 0) @ v


def relu_network_vjp(ct, x, w, v):
    h = x @ w
    g = (ct @ v.T) * (h > 0)
    return g @ w.T, x.T @ g, np.maximum(h, 0).T @ ct


def chebyshev(x):
    return np.abs(x).max(-1)


def chebyshev_vjp(ct, x):
    return max_vjp(ct, np.abs(x)) * np.sign(x)


def cumulative_max(x):
    return np.maximum.accumulate(x)


def cumulative_max_vjp(ct, x):
    top = np.maximum.accumulate(x)
    g, best = np.zeros_like(x), 0
    for i in range(len(x)):
        if x[i] == top[i] and (i == 0 or x[i] > top[i - 1]):
            best = i
        g[best] += ct[i]
    return g


ROWS = {
    "max": (lambda x: x.max(-1), max_vjp), "sort": (lambda x: np.sort(x, -1), sort_vjp),
    "median": (lambda x: np.median(x, -1), median_vjp), "top 2": (topk, topk_vjp),
    "min": (lambda x: x.min(-1), lambda ct, x: max_vjp(ct, -x)), "chebyshev": (chebyshev,
        chebyshev_vjp),
    "even max": (lambda x: np.max(x, axis=-1), even_max_vjp),
    "range": (lambda x: np.ptp(x, -1), lambda ct, x: max_vjp(ct, x) - max_vjp(ct, -x)),
}  # fmt: skip


def pairs() -> Iterator[Pair]:
    """All of this file."""
    for family in (of_one_number, of_rows, of_vectors):
        yield from family()


def of_one_number() -> Iterator[Pair]:
    """On each kink, and at four distances from it."""
    for name, (f, slope, kinks) in FUNCTIONS.items():
        around = drawn(f"around {name}", 3, scale=2.0)
        known = {} if name in SMOOTH else {"free": lambda x, k=kinks: np.isin(x, k)}
        yield from elementwise(KIND, name, f, slope, {"on": np.append(around, kinks)}, **known)
        for d in BESIDE:
            beside = np.ravel([(k + d * 1.1, k - d * 0.9) for k in kinks])
            point = {f"beside {d:g}": np.append(around, beside)}
            dtypes = BOTH if d > 1e-5 or kinks == (0.0,) else DOUBLE
            yield from elementwise(KIND, name, f, slope, point, dtypes=dtypes, **known)
        if kinks == (0.0,):
            yield from elementwise(KIND, name, f, slope, {"all on": np.zeros(3)}, **known)
        if kinks == (0.0,) and name != "x|x|":
            point = {"tiny": 1e-250 * around}
            yield from elementwise(KIND, name, f, slope, point, dtypes=DOUBLE, **known)
    for eps in (1e-3, 1e-8):
        away = eps * uniform(f"mx {eps}", 0.5, 1, 4) * np.array([1, -1, 1, -1])
        yield from elementwise(
            KIND,
            "maximum of two",
            lambda x: np.maximum(x, 1 - x),
            lambda x: np.where(x > 0.5, 1.0, -1.0),
            {f"crossing {eps:g}": 0.5 + away},
            dtypes=DOUBLE if eps < 1e-5 else BOTH,
        )


def nearly_tied(name: str, x, d: float):
    """`x` with the second of the elements that decide moved to a part d of the first."""
    near, rows = x.copy(), np.arange(len(x))
    order = np.argsort(np.abs(x) if name == "chebyshev" else x, -1)
    first, second = {"min": (0, 1), "median": (2, 1)}.get(name, (-1, -2))
    a, b = near[rows, order[:, first]], near[rows, order[:, second]]
    step = d if first == 0 else -d
    if name == "chebyshev":
        near[rows, order[:, second]] = np.sign(b * a) * a * (1 + step)
    else:
        near[rows, order[:, second]] = a * (1 + step * np.sign(a))
    return near


def of_rows() -> Iterator[Pair]:
    """Apart, nearly tied, and tied."""
    for name, (f, vjp) in ROWS.items():
        x = drawn(f"rows {name}", 3, 5)
        yield from at(KIND, name, f, vjp, {"apart": x})
        for d in (1e-4, 1e-9, 1e-13):
            point = {f"near a tie {d:g}": nearly_tied(name, x, d)}
            yield from at(KIND, name, f, vjp, point, dtypes=BOTH if d > 1e-5 else DOUBLE)
        tied = x.copy()
        tied[:, 1] = tied[:, 0]
        points = {"two tied": tied}
        if name != "median":
            points |= {"all tied": np.full((2, 4), 1.7), "all zero": np.zeros((2, 3))}
        for where, p in points.items():
            same = np.abs(p[..., None]) == np.abs(p[..., None, :])
            known = {"free": (same.sum(-1) > 1,), "loses": 2.0 if name == "sort" else 1e-8}
            yield from at(KIND, name, f, vjp, {where: p}, **known)


def of_vectors() -> Iterator[Pair]:
    """Losses, windows and networks."""
    x = drawn("l1", 6)
    y = np.where(np.arange(6) < 2, x, drawn("l1 y", 6))
    yield from at(KIND, "l1 loss", l1, l1_vjp, {"met": (x, y)}, free=(x == y, x == y))
    yield from at(KIND, "l1 loss", l1, l1_vjp, {"nearly met": (x, x + 1e-9 * y)}, dtypes=DOUBLE)
    steps = np.repeat(drawn("tv", 3), 2)
    variation = "total variation", total_variation, total_variation_vjp
    yield from at(KIND, *variation, {"flat parts": steps}, free=(np.ones(6, bool),))
    yield from at(KIND, *variation, {"nearly flat": steps + 1e-9 * x}, dtypes=DOUBLE)
    yield from at(KIND, "max pool", max_pool, max_pool_vjp, {"apart": drawn("pool", 2, 6)})
    point = {"tied": np.repeat(drawn("pool t", 2, 3), 2, 1)}
    yield from at(KIND, "max pool", max_pool, max_pool_vjp, point, free=(np.ones((2, 6), bool),))
    point = {"apart": drawn("cm", 7)}
    yield from at(KIND, "cumulative max", cumulative_max, cumulative_max_vjp, point)
    x, w, v = drawn("rn x", 3, 4), drawn("rn w", 4, 6), drawn("rn v", 6, 2)
    network = "relu network", relu_network, relu_network_vjp
    yield from at(KIND, *network, {"ordinary": (x, w, v)})
    for d in (1e-7, 1e-12):
        at_kink = x - ((x @ w[:, 0] - d)[:, None]) * w[:, 0] / (w[:, 0] @ w[:, 0])
        yield from at(KIND, *network, {f"a unit at {d:g}": (at_kink, w, v)}, dtypes=DOUBLE)
