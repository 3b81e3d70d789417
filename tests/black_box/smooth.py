"""Smooth functions where differences are hard: tiny, narrow, absorbed, saturated, far away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pair import BOTH, DOUBLE, Pair, at, drawn, each, elementwise, uniform

TINY = (1e-9, 1e-15, 1e-40, 1e-150, 1e-300)


def soft_abs(x, eps):
    return np.sqrt(x * x + eps * eps)


def soft_abs_vjp(ct, x, eps):
    return ct * x / soft_abs(x, eps)


def norm(x):
    return np.sqrt((x * x).sum())


def norm_vjp(ct, x):
    return ct * x / norm(x)


def scaled_norm(x):
    s = np.abs(x).max()
    return s * np.sqrt(((x / s) ** 2).sum())


def scaled_norm_vjp(ct, x):
    return ct * (x / np.abs(x).max()) / (scaled_norm(x) / np.abs(x).max())


def huber(x, delta):
    a = np.abs(x)
    return np.where(a <= delta, 0.5 * x * x / delta, a - 0.5 * delta)


def huber_vjp(ct, x, delta):
    return ct * np.clip(x / delta, -1, 1)


def row_norms(x):
    return np.linalg.norm(x, axis=-1)


def row_norms_vjp(ct, x):
    return ct[:, None] * x / np.linalg.norm(x, axis=-1, keepdims=True)


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def cosine_vjp(ct, a, b):
    na, nb = np.linalg.norm(a), np.linalg.norm(b)
    ua, ub = a / na, b / nb
    c = ua @ ub
    return ct * (ub - c * ua) / na, ct * (ua - c * ub) / nb


def hypot_vjp(ct, x, y):
    return ct * (x / np.hypot(x, y)), ct * (y / np.hypot(x, y))


def arctan2_vjp(ct, y, x):
    r = np.hypot(x, y)
    return ct * (x / r) / r, -ct * (y / r) / r


def ratio_vjp(ct, a, b):
    return ct / b, -ct * (a / b) / b


def softsign(x, s):
    return x / (s + np.abs(x))


def softsign_vjp(ct, x, s):
    return ct * (1 / (1 + np.abs(x) / s)) ** 2 / s


def soft_rank(x, t):
    return np.tanh((x[:, None] - x[None]) / (2 * t)).sum(1)


def soft_rank_vjp(ct, x, t):
    s = 1 / np.cosh((x[:, None] - x[None]) / (2 * t)) ** 2 / (2 * t)
    return ct * s.sum(1) - s.T @ ct


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_vjp(ct, x):
    y = softmax(x)
    return y * (ct - (ct * y).sum(-1, keepdims=True))


def softmax_at_vjp(ct, x, t):
    return softmax_vjp(ct, x / t) / t


def logsumexp(x):
    m = x.max(-1)
    return m + np.log(np.exp(x - m[..., None]).sum(-1))


def logsumexp_vjp(ct, x):
    return ct[..., None] * softmax(x)


def log_softmax(x):
    z = x - x.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def log_softmax_vjp(ct, x):
    return ct - softmax(x) * ct.sum(-1, keepdims=True)


def layer_norm(x, eps=1e-5):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) / np.sqrt(v + eps)


def layer_norm_vjp(ct, x, eps=1e-5):
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
    y = c * r
    return r * (ct - ct.mean(-1, keepdims=True) - y * (ct * y).mean(-1, keepdims=True))


def rms_norm(x, w, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rms_norm_vjp(ct, x, w, eps=1e-6):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    g = ct * w
    return r * g - x * r**3 * (g * x).mean(-1, keepdims=True), (ct * x * r).sum(0)


def bce_with_logits(x, y):
    return (np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))).mean()


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def std_vjp(ct, x):
    c = x - x.mean(-1, keepdims=True)
    return ct[:, None] * c / (x.shape[-1] * np.sqrt((c * c).mean(-1, keepdims=True)))


def differences_vjp(ct, x):
    g = ct * np.diff(x)
    return 2 * (np.pad(g, ((0, 0), (1, 0))) - np.pad(g, ((0, 0), (0, 1))))


def sum_beside(x, y):
    return (x.sum() + y).reshape(1)


def sum_beside_vjp(ct, x, y):
    return np.full(x.shape, ct[0]), ct.copy()


def mish_slope(x):
    t = np.tanh(np.logaddexp(0, x))
    return t + x * sigmoid(x) / np.cosh(np.logaddexp(0, x)) ** 2


def tanh_slope(x):
    return 1 / np.cosh(np.minimum(np.abs(x), 300)) ** 2


SOFTMAX = softmax, softmax_vjp
LOGSUMEXP = logsumexp, logsumexp_vjp
LOG_SOFTMAX = log_softmax, log_softmax_vjp
DIFFERENCES = (lambda x: np.diff(x) ** 2), differences_vjp
SOFTPLUS = (lambda x: np.logaddexp(0, x)), (lambda x: 1 / (1 + np.exp(-x)))
SOFTPLUS_OF_MINUS = (lambda x: np.log(1 + np.exp(-x))), (lambda x: -1 / (1 + np.exp(x)))
ONE_MINUS_TANH = (lambda x: 1 - np.tanh(x)), (lambda x: -1 / np.cosh(x) ** 2)
GAUSSIAN = (lambda x: np.exp(-0.5 * x * x)), (lambda x: -x * np.exp(-0.5 * x * x))


def tiny() -> Iterator[Pair]:
    """Kinked from afar, smooth at the scale of the primal itself."""
    kind = "tiny"
    for s in TINY:
        few = {"dtypes": DOUBLE if s < 1e-30 else BOTH}
        x, y = s * drawn(f"tiny x {s}", 5), s * drawn(f"tiny y {s}", 5)
        one, eps, delta = {f"{s:g}": x}, 0.7 * s, 1.3 * s
        yield from at(kind, "hypot", np.hypot, hypot_vjp, {f"{s:g}": (x, y)}, **few)
        yield from at(kind, "arctan2", np.arctan2, arctan2_vjp, {f"{s:g}": (y, x)}, **few)
        yield from each(
            kind,
            one,
            {
                "norm scaled": (scaled_norm, scaled_norm_vjp),
                "soft abs by hypot": (
                    lambda x, eps=eps: np.hypot(x, eps),
                    lambda ct, x, eps=eps: ct * (x / np.hypot(x, eps)),
                ),
                "tanh(x/s)·s": (
                    lambda x, s=s: s * np.tanh(x / s),
                    lambda ct, x, s=s: ct / np.cosh(x / s) ** 2,
                ),
                "log cosh": (
                    lambda x, s=s: s * np.log(np.cosh(x / s)),
                    lambda ct, x, s=s: ct * np.tanh(x / s),
                ),
            },
            **few,
        )
        if s > 1e-150:
            free = (np.abs(np.abs(x) / delta - 1) < 1e-6,)
            few |= {"attrs": {"delta": delta}}
            yield from at(kind, "huber", huber, huber_vjp, one, free=free, **few)
            few |= {"attrs": {"s": s}}
            yield from at(kind, "softsign", softsign, softsign_vjp, one, **few)
            rows = {f"{s:g}": s * drawn(f"rows {s}", 3, 4)}
            wide = {"dtypes": DOUBLE if s < 1e-15 else BOTH}
            yield from at(kind, "row norms", row_norms, row_norms_vjp, rows, **wide)
    for s in (1e-9, 1e-40, 1e-120):
        x = s * drawn(f"tiny sqrt {s}", 4)
        w = f"{s:g}"
        wide = {"dtypes": DOUBLE if s < 1e-15 else BOTH}
        few = {"dtypes": DOUBLE if s < 1e-30 else BOTH}
        yield from at(
            kind, "soft abs", soft_abs, soft_abs_vjp, {w: x}, attrs={"eps": 0.3 * s}, **wide
        )
        yield from at(kind, "norm", norm, norm_vjp, {w: x}, **wide)
        pair = x, s * drawn(f"cosine {s}", 4)
        yield from at(kind, "cosine", cosine, cosine_vjp, {w: pair}, **wide)
        yield from at(
            kind, "cbrt", np.cbrt, lambda ct, x: ct / (3 * np.cbrt(x) ** 2), {w: x}, **few
        )
        pair = x, s * uniform(f"ratio {s}", 1, 2, 4)
        yield from at(kind, "ratio", lambda a, b: a / b, ratio_vjp, {w: pair}, **few)
        yield from each(
            kind,
            {w: np.abs(x)},
            {
                "sqrt": (np.sqrt, lambda ct, x: ct / (2 * np.sqrt(x))),
                "log": (np.log, lambda ct, x: ct / x),
                "x log x": (lambda x: x * np.log(x), lambda ct, x: ct * (np.log(x) + 1)),
            },
            **few,
        )


NARROW = {
    "tanh(k(x−1))": (
        lambda x, k: np.tanh(k * (x - 1)),
        lambda ct, x, k: ct * k / np.cosh(k * (x - 1)) ** 2,
    ),
    "gaussian": (
        lambda x, k: np.exp(-((k * (x - 1)) ** 2)),
        lambda ct, x, k: -2 * ct * k * k * (x - 1) * np.exp(-((k * (x - 1)) ** 2)),
    ),
    "lorentzian": (
        lambda x, k: 1 / (1 + (k * (x - 1)) ** 2),
        lambda ct, x, k: -2 * ct * k * k * (x - 1) / (1 + (k * (x - 1)) ** 2) ** 2,
    ),
    "sin(kx)": (lambda x, k: np.sin(k * x), lambda ct, x, k: ct * k * np.cos(k * x)),
    "sigmoid": (
        lambda x, k: 1 / (1 + np.exp(-k * (x - 1))),
        lambda ct, x, k: ct * k / (4 * np.cosh(k * (x - 1) / 2) ** 2),
    ),
    "arctan": (
        lambda x, k: np.arctan(k * (x - 1)),
        lambda ct, x, k: ct * k / (1 + (k * (x - 1)) ** 2),
    ),
    "softplus sharp": (
        lambda x, k: np.logaddexp(0, k * (x - 1)) / k,
        lambda ct, x, k: ct / (1 + np.exp(-k * (x - 1))),
    ),
}
"""Features of the width 1/k at 1."""
BESIDE = {
    "pole beside": (
        lambda x, k: 1 / (x - (1 - 10 / k)),
        lambda ct, x, k: -ct / (x - (1 - 10 / k)) ** 2,
    ),
    "log beside its end": (
        lambda x, k: np.log(x - (1 - 10 / k)),
        lambda ct, x, k: ct / (x - (1 - 10 / k)),
    ),
}
"""Ends of the domain, 10/k below 1."""
COLD = {
    "softmax at temperature": (lambda x, t: softmax(x / t), softmax_at_vjp),
    "soft maximum": (
        lambda x, t: t * logsumexp(x / t),
        lambda ct, x, t: ct[:, None] * softmax(x / t),
    ),
}
"""Functions of rows at a temperature."""


def narrow() -> Iterator[Pair]:
    """Features narrower than a step that follows the primal's scale."""
    kind = "narrow"
    for k in (1e3, 1e5, 1e7):
        known = {f"{k:g}": 1 + drawn(f"narrow {k}", 4) / k}, NARROW
        few = {"dtypes": DOUBLE if k > 1e4 else BOTH, "attrs": {"k": k}}
        yield from each(kind, *known, **few)
        yield from each(kind, known[0], BESIDE, **few | {"dtypes": DOUBLE})
    for t in (1e-2, 1e-5, 1e-8):
        x = 0.5 + t * drawn(f"temperature {t}", 3, 5)
        few = {"dtypes": DOUBLE if t < 1e-4 else BOTH, "attrs": {"t": t}}
        yield from each(kind, {f"{t:g}": x}, COLD, **few)
        yield from at(kind, "soft rank", soft_rank, soft_rank_vjp, {f"{t:g}": x[0]}, **few)


def absorbed() -> Iterator[Pair]:
    """What moves is lost beside what does not."""
    kind = "absorbed"
    few = {"dtypes": DOUBLE}
    for margin in (16.0, 24.0, 36.0, 60.0):
        x = drawn(f"margin {margin}", 2, 4)
        x[:, 0] += margin
        w = f"{margin:g}"
        rows = {"logsumexp margin": LOGSUMEXP, "log_softmax margin": LOG_SOFTMAX}
        yield from each(kind, {w: x}, rows, **few)
        yield from at(kind, "softmax margin", *SOFTMAX, {w: x}, loses=2.0, **few)
        above = {w: uniform(f"l {margin}", 0, 4, 5) + margin}
        below = {w: drawn(f"ladd {margin}", 5) - margin}
        half = {f"{margin / 2:g}": drawn(f"tanh {margin}", 4, scale=0.3) + margin / 2}
        yield from elementwise(kind, "log(1+exp(-x))", *SOFTPLUS_OF_MINUS, above, **few)
        yield from elementwise(kind, "logaddexp(0, x)", *SOFTPLUS, below)
        yield from elementwise(kind, "1 − tanh", *ONE_MINUS_TANH, half, **few)
    for c in (1e3, 1e6, 1e12, 1e15):
        x = drawn(f"absorbed {c}", 5)
        w = f"{c:g}"
        yield from elementwise(
            kind, "(c + exp x) − c", lambda x, c=c: (c + np.exp(x)) - c, np.exp, {w: x}, **few
        )
        root = lambda x, c=c: np.sqrt(c * c + x * x)  # noqa: E731
        yield from elementwise(
            kind, "sqrt(c² + x²)", root, lambda x, f=root: x / f(x), {w: x}, **few
        )
        yield from at(kind, "sum beside", sum_beside, sum_beside_vjp, {w: (x, np.array([c]))})
        if c < 1e7:
            yield from elementwise(
                kind,
                "cos far away",
                lambda x, c=c: np.cos(x + c),
                lambda x, c=c: -np.sin(x + c),
                {w: x},
                hidden=True,
                **few,
            )
            yield from at(
                kind,
                "mean of squares offset",
                lambda x: (x * x).mean() - x.mean() ** 2,
                lambda ct, x: ct * 2 * (x - x.mean()) / x.size,
                {w: c + x},
                loses=1e-6,
                **few,
            )

    def small(name, *scales):
        return {f"{s:g}": s * drawn(f"{name} {s}", 4) for s in scales}

    yield from elementwise(
        kind, "1 − cos x", lambda x: 1 - np.cos(x), np.sin, small("cos", 1e-3, 1e-6, 1e-9), **few
    )
    yield from elementwise(
        kind, "exp(x) − 1", lambda x: np.exp(x) - 1, np.exp, small("exp", 1e-6, 1e-12, 1e-17)
    )
    yield from elementwise(
        kind,
        "log(1 + x)",
        lambda x: np.log(1 + x),
        lambda x: 1 / (1 + x),
        small("log", 1e-6, 1e-12, 1e-17),
    )


ROWS_AFAR = {
    "variance": (
        lambda x: x.var(-1),
        lambda ct, x: ct[:, None] * 2 * (x - x.mean(-1, keepdims=True)) / x.shape[-1],
    ),
    "std": (lambda x: x.std(-1), std_vjp),
    "layer_norm": (layer_norm, layer_norm_vjp),
}
"""Functions of rows that subtract their mean."""
ONE_LARGE = {
    "exp(−x²)": (lambda x: np.exp(-x * x), lambda x: -2 * x * np.exp(-x * x)),
    "log(1+x²)": (lambda x: np.log1p(x * x), lambda x: 2 * x / (1 + x * x)),
    "x/(1+|x|)": (lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2),
}


def far() -> Iterator[Pair]:
    """Large offsets, and one large element beside small ones."""
    kind = "offset"
    for c in (1e3, 1e5, 1e7):
        w = {f"{c:g}": c + drawn(f"offset {c}", 3, 6)}
        few = {"dtypes": BOTH if c < 1e4 else DOUBLE}
        yield from each(kind, w, ROWS_AFAR, loses=1e-7, **few)
        rows = {"softmax": SOFTMAX, "logsumexp": LOGSUMEXP, "differences": DIFFERENCES}
        yield from each(kind, w, rows, **few)
    kind = "mixed"
    for big in (1e3, 3e6, 1e12):
        x = np.array([1.0, -2.0, 0.5, 1.1 * big]) * (1 + 1e-3 * drawn(f"mixed {big}", 4))
        w = {f"{big:g}": x}
        for name, (f, slope) in ONE_LARGE.items():
            yield from elementwise(kind, name, f, slope, w)
        yield from elementwise(kind, "sin", np.sin, np.cos, w, dtypes=DOUBLE)
        yield from elementwise(kind, "tanh", np.tanh, tanh_slope, w, dtypes=DOUBLE)
        yield from at(kind, "norm", norm, norm_vjp, w, dtypes=DOUBLE)
        yield from at(kind, "softmax", *SOFTMAX, w)
        yield from at(kind, "product", np.prod, lambda ct, x: ct * np.prod(x) / x, w)
        w = {f"{big:g}": (x[None], uniform(f"w {big}", 1, 2, 4))}
        yield from at(kind, "rms_norm", rms_norm, rms_norm_vjp, w, dtypes=DOUBLE)


SATURATED = {
    "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
    "elu": (
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
    ),
    "arctan": (lambda x: np.arctan(x * x * x), lambda x: 3 * x * x / (1 + x**6)),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), mish_slope),
}


def saturated() -> Iterator[Pair]:
    """Nearly flat: sigmoids and losses far out."""
    kind = "saturated"
    for c in (8.0, 17.0, 40.0, 300.0):
        x = np.concatenate([c + drawn(f"s {c}", 3), -c + drawn(f"t {c}", 3)])
        for name, (f, slope) in SATURATED.items():
            yield from elementwise(kind, name, f, slope, {f"{c:g}": x})
        for name, (f, slope), part in (
            ("sigmoid", (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)), 1),
            ("tanh", (np.tanh, lambda x: 1 / np.cosh(x) ** 2), 2),
            ("gaussian tail", GAUSSIAN, 9),
        ):
            yield from elementwise(kind, name, f, slope, {f"{c / part:g}": x / part}, dtypes=DOUBLE)
        yield from at(
            kind,
            "bce with logits",
            bce_with_logits,
            lambda ct, x, y: (ct * (sigmoid(x) - y) / x.size, -ct * x / x.size),
            {f"{c:g}": (x, uniform(f"y {c}", 0, 1, 6))},
        )


def pairs() -> Iterator[Pair]:
    """All of this file."""
    for family in (tiny, narrow, absorbed, far, saturated):
        yield from family()
