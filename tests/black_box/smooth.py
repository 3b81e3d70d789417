"""Smooth functions where differences are hard: tiny, narrow, absorbed, saturated, far away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pair import DOUBLE, Pair, at, drawn, elementwise, uniform

TINY = (1e-9, 1e-15, 1e-40, 1e-150, 1e-300)


def soft_abs(x, eps):
    return np.sqrt(x * x + eps * eps)


def norm(x):
    return np.sqrt((x * x).sum())


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


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def cosine_vjp(ct, a, b):
    na, nb = np.linalg.norm(a), np.linalg.norm(b)
    ua, ub = a / na, b / nb
    c = ua @ ub
    return ct * (ub - c * ua) / na, ct * (ua - c * ub) / nb


def distances(x):
    d = x[:, None, :] - x[None, :, :]
    return np.sqrt((d * d).sum(-1) + np.eye(len(x)) * 1e-300)


def tiny() -> Iterator[Pair]:
    """Kinked from afar, smooth at the scale of the primal itself."""
    kind = "tiny"
    for s in TINY:
        few = {"dtypes": DOUBLE if s < 1e-30 else ("float64", "float32")}
        x, y = drawn(f"tiny x {s}", 5), drawn(f"tiny y {s}", 5)
        p = {f"{s:g}": (s * x, s * y)}
        one = {f"{s:g}": s * x}
        yield from at(
            kind,
            "hypot",
            np.hypot,
            lambda ct, x, y: (ct * (x / np.hypot(x, y)), ct * (y / np.hypot(x, y))),
            p,
            **few,
        )
        yield from at(kind, "norm scaled", scaled_norm, scaled_norm_vjp, one, **few)
        yield from (
            at(
                kind,
                "row norms",
                row_norms,
                lambda ct, x: ct[:, None] * x / np.linalg.norm(x, axis=-1, keepdims=True),
                {f"{s:g}": s * drawn(f"rows {s}", 3, 4)},
                dtypes=DOUBLE if s < 1e-15 else ("float64", "float32"),
                **({"hidden": True} if s < 1e-100 else {}),
            )
            if s > 1e-150
            else ()
        )
        eps = 0.7 * s
        yield from at(
            kind,
            "soft abs by hypot",
            lambda x, eps=eps: np.hypot(x, eps),
            lambda ct, x, eps=eps: ct * (x / np.hypot(x, eps)),
            one,
            **few,
        )
        yield from (
            at(
                kind,
                "huber",
                huber,
                huber_vjp,
                one,
                attrs={"delta": 1.3 * s},
                free=(np.abs(np.abs(s * x) / (1.3 * s) - 1) < 1e-6,),
                **few,
            )
            if s > 1e-150
            else ()
        )
        yield from (
            at(
                kind,
                "softsign",
                lambda x, s=s: x / (s + np.abs(x)),
                lambda ct, x, s=s: ct * (1 / (1 + np.abs(x) / s)) ** 2 / s,
                one,
                **few,
            )
            if s > 1e-150
            else ()
        )
        yield from at(
            kind,
            "tanh(x/s)·s",
            lambda x, s=s: s * np.tanh(x / s),
            lambda ct, x, s=s: ct / np.cosh(x / s) ** 2,
            one,
            **few,
        )
        yield from at(
            kind,
            "log cosh",
            lambda x, s=s: s * np.log(np.cosh(x / s)),
            lambda ct, x, s=s: ct * np.tanh(x / s),
            one,
            **few,
        )
        yield from at(
            kind,
            "arctan2",
            np.arctan2,
            lambda ct, y, x: (
                ct * (x / np.hypot(x, y)) / np.hypot(x, y),
                -ct * (y / np.hypot(x, y)) / np.hypot(x, y),
            ),
            {f"{s:g}": (s * y, s * x)},
            **few,
        )
    for s in (1e-9, 1e-40, 1e-120):
        x = s * drawn(f"tiny sqrt {s}", 4)
        few = {"dtypes": DOUBLE if s < 1e-30 else ("float64", "float32")}
        yield from at(
            kind,
            "soft abs",
            soft_abs,
            lambda ct, x, eps: ct * x / soft_abs(x, eps),
            {f"{s:g}": x},
            attrs={"eps": 0.3 * s},
            dtypes=DOUBLE if s < 1e-15 else ("float64", "float32"),
        )
        yield from at(
            kind,
            "norm",
            norm,
            lambda ct, x: ct * x / norm(x),
            {f"{s:g}": x},
            dtypes=DOUBLE if s < 1e-15 else ("float64", "float32"),
        )
        yield from at(
            kind,
            "cosine",
            cosine,
            cosine_vjp,
            {f"{s:g}": (x, s * drawn(f"cosine {s}", 4))},
            dtypes=DOUBLE if s < 1e-15 else ("float64", "float32"),
        )
        yield from at(
            kind, "sqrt", np.sqrt, lambda ct, x: ct / (2 * np.sqrt(x)), {f"{s:g}": np.abs(x)}, **few
        )
        yield from at(kind, "log", np.log, lambda ct, x: ct / x, {f"{s:g}": np.abs(x)}, **few)
        yield from at(
            kind, "cbrt", np.cbrt, lambda ct, x: ct / (3 * np.cbrt(x) ** 2), {f"{s:g}": x}, **few
        )
        yield from at(
            kind,
            "ratio",
            lambda a, b: a / b,
            lambda ct, a, b: (ct / b, -ct * (a / b) / b),
            {f"{s:g}": (x, s * uniform(f"ratio {s}", 1, 2, 4))},
            **few,
        )
        yield from at(
            kind,
            "x log x",
            lambda x: x * np.log(x),
            lambda ct, x: ct * (np.log(x) + 1),
            {f"{s:g}": np.abs(x)},
            **few,
        )


def narrow() -> Iterator[Pair]:
    """Features narrower than a step that follows the primal's scale."""
    kind = "narrow"
    for k in (1e3, 1e5, 1e7):
        x = 1 + drawn(f"narrow {k}", 4) / k
        few = {"dtypes": DOUBLE if k > 1e4 else ("float64", "float32")}
        w = {f"{k:g}": x}
        yield from at(
            kind,
            "tanh(k(x−1))",
            lambda x, k=k: np.tanh(k * (x - 1)),
            lambda ct, x, k=k: ct * k / np.cosh(k * (x - 1)) ** 2,
            w,
            **few,
        )
        yield from at(
            kind,
            "gaussian",
            lambda x, k=k: np.exp(-((k * (x - 1)) ** 2)),
            lambda ct, x, k=k: -2 * ct * k * k * (x - 1) * np.exp(-((k * (x - 1)) ** 2)),
            w,
            **few,
        )
        yield from at(
            kind,
            "lorentzian",
            lambda x, k=k: 1 / (1 + (k * (x - 1)) ** 2),
            lambda ct, x, k=k: -2 * ct * k * k * (x - 1) / (1 + (k * (x - 1)) ** 2) ** 2,
            w,
            **few,
        )
        yield from at(
            kind,
            "sin(kx)",
            lambda x, k=k: np.sin(k * x),
            lambda ct, x, k=k: ct * k * np.cos(k * x),
            w,
            **few,
        )
        yield from at(
            kind,
            "sigmoid",
            lambda x, k=k: 1 / (1 + np.exp(-k * (x - 1))),
            lambda ct, x, k=k: ct * k / (4 * np.cosh(k * (x - 1) / 2) ** 2),
            w,
            **few,
        )
        yield from at(
            kind,
            "arctan",
            lambda x, k=k: np.arctan(k * (x - 1)),
            lambda ct, x, k=k: ct * k / (1 + (k * (x - 1)) ** 2),
            w,
            **few,
        )
        yield from at(
            kind,
            "pole beside",
            lambda x, k=k: 1 / (x - (1 - 10 / k)),
            lambda ct, x, k=k: -ct / (x - (1 - 10 / k)) ** 2,
            w,
            dtypes=DOUBLE,
        )
        yield from at(
            kind,
            "log beside its end",
            lambda x, k=k: np.log(x - (1 - 10 / k)),
            lambda ct, x, k=k: ct / (x - (1 - 10 / k)),
            w,
            dtypes=DOUBLE,
        )
        yield from at(
            kind,
            "softplus sharp",
            lambda x, k=k: np.logaddexp(0, k * (x - 1)) / k,
            lambda ct, x, k=k: ct / (1 + np.exp(-k * (x - 1))),
            w,
            **few,
        )
    for t in (1e-2, 1e-5, 1e-8):
        x = 0.5 + t * drawn(f"temperature {t}", 3, 5)
        yield from at(
            kind,
            "softmax at temperature",
            softmax_at,
            softmax_at_vjp,
            {f"{t:g}": x},
            attrs={"t": t},
            dtypes=DOUBLE if t < 1e-4 else ("float64", "float32"),
        )
        yield from at(
            kind,
            "soft maximum",
            lambda x, t: t * logsumexp(x / t),
            lambda ct, x, t: ct[:, None] * softmax(x / t),
            {f"{t:g}": x},
            attrs={"t": t},
            dtypes=DOUBLE if t < 1e-4 else ("float64", "float32"),
        )
        yield from at(
            kind,
            "soft rank",
            lambda x, t: np.tanh((x[:, None] - x[None]) / (2 * t)).sum(1),
            soft_rank_vjp,
            {f"{t:g}": x[0]},
            attrs={"t": t},
            dtypes=DOUBLE if t < 1e-4 else ("float64", "float32"),
        )


def soft_rank_vjp(ct, x, t):
    s = 1 / np.cosh((x[:, None] - x[None]) / (2 * t)) ** 2 / (2 * t)
    return ct * s.sum(1) - s.T @ ct


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_vjp(ct, x):
    y = softmax(x)
    return y * (ct - (ct * y).sum(-1, keepdims=True))


def softmax_at(x, t):
    return softmax(x / t)


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


def absorbed() -> Iterator[Pair]:
    """What moves is lost beside what does not."""
    kind = "absorbed"
    for margin in (16.0, 24.0, 36.0, 60.0):
        x = drawn(f"margin {margin}", 2, 4)
        x[:, 0] += margin
        few = {"dtypes": DOUBLE}
        yield from at(kind, "logsumexp margin", logsumexp, logsumexp_vjp, {f"{margin:g}": x}, **few)
        yield from at(
            kind, "softmax margin", softmax, softmax_vjp, {f"{margin:g}": x}, loses=2.0, **few
        )
        yield from at(
            kind, "log_softmax margin", log_softmax, log_softmax_vjp, {f"{margin:g}": x}, **few
        )
        yield from elementwise(
            kind,
            "log(1+exp(-x))",
            lambda x: np.log(1 + np.exp(-x)),
            lambda x: -1 / (1 + np.exp(x)),
            {f"{margin:g}": uniform(f"l {margin}", 0, 4, 5) + margin},
            **few,
        )
        yield from elementwise(
            kind,
            "logaddexp(0, x)",
            lambda x: np.logaddexp(0, x),
            lambda x: 1 / (1 + np.exp(-x)),
            {f"{margin:g}": drawn(f"ladd {margin}", 5) - margin},
        )
        yield from elementwise(
            kind,
            "1 − tanh",
            lambda x: 1 - np.tanh(x),
            lambda x: -1 / np.cosh(x) ** 2,
            {f"{margin / 2:g}": drawn(f"tanh {margin}", 4, scale=0.3) + margin / 2},
            dtypes=DOUBLE,
        )
    for c in (1e3, 1e6, 1e12, 1e15):
        x = drawn(f"absorbed {c}", 5)
        w = {f"{c:g}": x}
        yield from elementwise(
            kind, "(c + exp x) − c", lambda x, c=c: (c + np.exp(x)) - c, np.exp, w, dtypes=DOUBLE
        )
        yield from elementwise(
            kind,
            "sqrt(c² + x²)",
            lambda x, c=c: np.sqrt(c * c + x * x),
            lambda x, c=c: x / np.sqrt(c * c + x * x),
            w,
            dtypes=DOUBLE,
        )
        yield from (
            elementwise(
                kind,
                "cos far away",
                lambda x, c=c: np.cos(x + c),
                lambda x, c=c: -np.sin(x + c),
                w,
                dtypes=DOUBLE,
                hidden=True,
            )
            if c < 1e7
            else ()
        )
        yield from (
            at(
                kind,
                "mean of squares offset",
                lambda x: (x * x).mean() - x.mean() ** 2,
                lambda ct, x: ct * 2 * (x - x.mean()) / x.size,
                {f"{c:g}": c + x},
                dtypes=DOUBLE,
                loses=1e-6,
            )
            if c < 1e7
            else ()
        )
        yield from at(
            kind,
            "sum beside",
            lambda x, y: (x.sum() + y).reshape(1),
            lambda ct, x, y: (np.full(x.shape, ct[0]), ct.copy()),
            {f"{c:g}": (x, np.array([c]))},
        )
    yield from elementwise(
        kind,
        "1 − cos x",
        lambda x: 1 - np.cos(x),
        np.sin,
        {f"{s:g}": s * drawn(f"cos {s}", 4) for s in (1e-3, 1e-6, 1e-9)},
        dtypes=DOUBLE,
    )
    yield from elementwise(
        kind,
        "exp(x) − 1",
        lambda x: np.exp(x) - 1,
        np.exp,
        {f"{s:g}": s * drawn(f"exp {s}", 4) for s in (1e-6, 1e-12, 1e-17)},
    )
    yield from elementwise(
        kind,
        "log(1 + x)",
        lambda x: np.log(1 + x),
        lambda x: 1 / (1 + x),
        {f"{s:g}": s * drawn(f"log {s}", 4) for s in (1e-6, 1e-12, 1e-17)},
    )


def far() -> Iterator[Pair]:
    """Large offsets, and one large element beside small ones."""
    kind = "offset"
    for c in (1e3, 1e5, 1e7):
        x = c + drawn(f"offset {c}", 3, 6)
        w = {f"{c:g}": x}
        few = {"dtypes": ("float64", "float32") if c < 1e4 else DOUBLE}
        yield from at(kind, "layer_norm", layer_norm, layer_norm_vjp, w, **few, loses=1e-7)
        yield from at(kind, "softmax", softmax, softmax_vjp, w, **few)
        yield from at(kind, "logsumexp", logsumexp, logsumexp_vjp, w, **few)
        yield from at(
            kind,
            "variance",
            lambda x: x.var(-1),
            lambda ct, x: ct[:, None] * 2 * (x - x.mean(-1, keepdims=True)) / x.shape[-1],
            w,
            **few,
            loses=1e-7,
        )
        yield from at(kind, "std", lambda x: x.std(-1), std_vjp, w, **few, loses=1e-7)
        yield from at(
            kind,
            "differences",
            lambda x: np.diff(x) ** 2,
            lambda ct, x: (
                2
                * (
                    np.pad(ct * np.diff(x), ((0, 0), (1, 0)))
                    - np.pad(ct * np.diff(x), ((0, 0), (0, 1)))
                )
            ),
            w,
            **few,
        )
    kind = "mixed"
    for big in (1e3, 3e6, 1e12):
        x = np.array([1.0, -2.0, 0.5, 1.1 * big]) * (1 + 1e-3 * drawn(f"mixed {big}", 4))
        w = {f"{big:g}": x}
        yield from elementwise(
            kind, "exp(−x²)", lambda x: np.exp(-x * x), lambda x: -2 * x * np.exp(-x * x), w
        )
        yield from elementwise(kind, "sin", np.sin, np.cos, w, dtypes=DOUBLE)
        yield from elementwise(
            kind,
            "tanh",
            np.tanh,
            lambda x: 1 / np.cosh(np.minimum(np.abs(x), 300)) ** 2,
            w,
            dtypes=DOUBLE,
        )
        yield from elementwise(
            kind, "log(1+x²)", lambda x: np.log1p(x * x), lambda x: 2 * x / (1 + x * x), w
        )
        yield from elementwise(
            kind, "x/(1+|x|)", lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2, w
        )
        yield from at(kind, "norm", norm, lambda ct, x: ct * x / norm(x), w, dtypes=DOUBLE)
        yield from at(kind, "softmax", softmax, softmax_vjp, w)
        yield from at(
            kind,
            "rms_norm",
            rms_norm,
            rms_norm_vjp,
            {f"{big:g}": (x[None], uniform(f"w {big}", 1, 2, 4))},
            dtypes=DOUBLE,
        )
        yield from at(kind, "product", np.prod, lambda ct, x: ct * np.prod(x) / x, w)


def std_vjp(ct, x):
    c = x - x.mean(-1, keepdims=True)
    return ct[:, None] * c / (x.shape[-1] * np.sqrt((c * c).mean(-1, keepdims=True)))


def saturated() -> Iterator[Pair]:
    """Nearly flat: sigmoids and losses far out."""
    kind = "saturated"
    for c in (8.0, 17.0, 40.0, 300.0):
        x = np.concatenate([c + drawn(f"s {c}", 3), -c + drawn(f"t {c}", 3)])
        w = {f"{c:g}": x}
        yield from elementwise(
            kind, "sigmoid", sigmoid, lambda x: sigmoid(x) * sigmoid(-x), w, dtypes=DOUBLE
        )
        yield from elementwise(
            kind, "silu", lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x)), w
        )
        yield from elementwise(
            kind,
            "tanh",
            np.tanh,
            lambda x: 1 / np.cosh(x) ** 2,
            {f"{c / 2:g}": x / 2},
            dtypes=DOUBLE,
        )
        yield from elementwise(
            kind,
            "elu",
            lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
            lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
            w,
        )
        yield from elementwise(
            kind, "arctan", lambda x: np.arctan(x * x * x), lambda x: 3 * x * x / (1 + x**6), w
        )
        yield from at(
            kind,
            "bce with logits",
            bce_with_logits,
            lambda ct, x, y: (ct * (sigmoid(x) - y) / x.size, -ct * x / x.size),
            {f"{c:g}": (x, uniform(f"y {c}", 0, 1, 6))},
        )
        yield from elementwise(
            kind,
            "gaussian tail",
            lambda x: np.exp(-0.5 * x * x),
            lambda x: -x * np.exp(-0.5 * x * x),
            {f"{c / 9:g}": x / 9},
            dtypes=DOUBLE,
        )
        yield from elementwise(
            kind, "mish", lambda x: x * np.tanh(np.logaddexp(0, x)), mish_slope, w
        )


def mish_slope(x):
    t = np.tanh(np.logaddexp(0, x))
    return t + x * sigmoid(x) / np.cosh(np.logaddexp(0, x)) ** 2


def pairs() -> Iterator[Pair]:
    """All of this file."""
    for family in (tiny, narrow, absorbed, far, saturated):
        yield from family()
