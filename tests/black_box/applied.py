"""Losses, networks, physics, statistics, finance and geometry, at points where they are hard."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pair import BOTH, DOUBLE, Pair, at, drawn, uniform
from .smooth import (
    layer_norm,
    layer_norm_vjp,
    log_softmax,
    logsumexp,
    sigmoid,
    softmax,
    softmax_vjp,
)  # fmt: skip


def cross_entropy(x, y):
    return -log_softmax(x)[np.arange(len(y)), y].mean()


def cross_entropy_vjp(ct, x, y):
    g = softmax(x)
    g[np.arange(len(y)), y] -= 1
    return ct * g / len(y), None


def focal(x, y):
    p = sigmoid(x)
    return (-y * (1 - p) ** 2 * np.log(p) - (1 - y) * p**2 * np.log(1 - p)).sum()


def focal_vjp(ct, x, y):
    p = sigmoid(x)
    q = 1 - p
    pos = q * q * (2 * p * np.log(p) - q)
    neg = -(p * p) * (2 * q * np.log(q) - p)
    return ct * (y * pos + (1 - y) * neg), ct * (-(q**2) * np.log(p) + p**2 * np.log(q))


def kl(p, q):
    return (p * (np.log(p) - np.log(q))).sum(-1)


def kl_vjp(ct, p, q):
    c = ct[:, None]
    return c * (np.log(p / q) + 1), -c * p / q


def student_nll(x, mu, log_s):
    z = (x - mu) * np.exp(-log_s)
    return (2.5 * np.log1p(z * z / 4) + log_s).sum()


def student_nll_vjp(ct, x, mu, log_s):
    z = (x - mu) * np.exp(-log_s)
    d = ct * 2.5 * (2 * z / 4) / (1 + z * z / 4)
    g = d * np.exp(-log_s)
    return g, -g, ct - d * z


def normal_nll(x, mu, sigma):
    return (0.5 * ((x - mu) / sigma) ** 2 + np.log(sigma)).sum()


def normal_nll_vjp(ct, x, mu, sigma):
    z = (x - mu) / sigma
    return ct * z / sigma, -ct * z / sigma, ct * (1 - z * z) / sigma


def mixture(x, w, mu, log_s):
    z = (x[:, None] - mu) * np.exp(-log_s)
    return logsumexp(w - 0.5 * z * z - log_s)


def mixture_vjp(ct, x, w, mu, log_s):
    z = (x[:, None] - mu) * np.exp(-log_s)
    r = ct[:, None] * softmax(w - 0.5 * z * z - log_s)
    d = -r * z * np.exp(-log_s)
    return d.sum(1), r.sum(0), -d.sum(0), (r * (z * z - 1)).sum(0)


def contrastive(a, b, t):
    u = a / np.linalg.norm(a, axis=-1, keepdims=True)
    v = b / np.linalg.norm(b, axis=-1, keepdims=True)
    s = u @ v.T / t
    return (logsumexp(s) - np.diag(s)).mean()


def contrastive_vjp(ct, a, b, t):
    na, nb = (np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    u, v = a / na, b / nb
    g = ct * (softmax(u @ v.T / t) - np.eye(len(a))) / len(a) / t
    gu, gv = g @ v, g.T @ u
    return (gu - u * (u * gu).sum(-1, keepdims=True)) / na, (
        gv - v * (v * gv).sum(-1, keepdims=True)
    ) / nb


def deep(x, w, b):
    for i in range(len(w)):
        x = np.tanh(x @ w[i] + b[i])
    return x


def deep_vjp(ct, x, w, b):
    kept = [x]
    for i in range(len(w)):
        kept.append(np.tanh(kept[-1] @ w[i] + b[i]))
    gw, gb = np.empty_like(w), np.empty_like(b)
    for i in reversed(range(len(w))):
        ct = ct * (1 - kept[i + 1] ** 2)
        gw[i], gb[i] = kept[i].T @ ct, ct.sum(0)
        ct = ct @ w[i].T
    return ct, gw, gb


def residual(x, w):
    for i in range(len(w)):
        x = x + np.tanh(layer_norm(x) @ w[i])
    return x


def residual_vjp(ct, x, w):
    kept = [x]
    for i in range(len(w)):
        kept.append(kept[-1] + np.tanh(layer_norm(kept[-1]) @ w[i]))
    gw = np.empty_like(w)
    for i in reversed(range(len(w))):
        h = layer_norm(kept[i])
        g = ct * (1 - np.tanh(h @ w[i]) ** 2)
        gw[i] = h.T @ g
        ct = ct + layer_norm_vjp(g @ w[i].T, kept[i])
    return ct, gw


def recurrent(x, h, w, u):
    for t in range(len(x)):
        h = np.tanh(w @ x[t] + u @ h)
    return h


def recurrent_vjp(ct, x, h, w, u):
    kept = [h]
    for t in range(len(x)):
        kept.append(np.tanh(w @ x[t] + u @ kept[-1]))
    gx, gw, gu = np.empty_like(x), np.zeros_like(w), np.zeros_like(u)
    for t in reversed(range(len(x))):
        ct = ct * (1 - kept[t + 1] ** 2)
        gx[t] = w.T @ ct
        gw += np.outer(ct, x[t])
        gu += np.outer(ct, kept[t])
        ct = u.T @ ct
    return gx, ct, gw, gu


def attention(q, k, v):
    return softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v


def attention_vjp(ct, q, k, v):
    s = np.sqrt(q.shape[-1])
    p = softmax(q @ k.T / s)
    d = softmax_vjp(ct @ v.T, q @ k.T / s) / s
    return d @ k, d.T @ q, p.T @ ct


def gravity(x, m):
    d = x[:, None] - x[None]
    r2 = (d * d).sum(-1) + np.eye(len(x))
    return -0.5 * (m[:, None] * m / np.sqrt(r2) * (1 - np.eye(len(x)))).sum()


def gravity_vjp(ct, x, m):
    d = x[:, None] - x[None]
    off = 1 - np.eye(len(x))
    r2 = (d * d).sum(-1) + np.eye(len(x))
    f = m[:, None] * m * r2**-1.5 * off
    return ct * (f[..., None] * d).sum(1), -ct * (off / np.sqrt(r2)) @ m


def lennard_jones(r, s):
    q = (s / r) ** 6
    return 4 * (q * q - q)


def lennard_jones_vjp(ct, r, s):
    q = (s / r) ** 6
    d = 24 * (2 * q * q - q)
    return -ct * d / r, ct * d / s


def pendulum(y, dt):
    a, v = y
    for _ in range(20):
        v = v - dt * np.sin(a)
        a = a + dt * v
    return np.stack([a, v])


def pendulum_vjp(ct, y, dt):
    a, v = y
    kept = []
    for _ in range(20):
        kept.append(a)
        v = v - dt * np.sin(a)
        a = a + dt * v
    ga, gv = ct
    for a in reversed(kept):
        gv = gv + dt * ga
        ga = ga - dt * np.cos(a) * gv
    return np.stack([ga, gv])


def logistic_map(x, r):
    for _ in range(12):
        x = r * x * (1 - x)
    return x


def logistic_map_vjp(ct, x, r):
    kept = [x]
    for _ in range(12):
        kept.append(r * kept[-1] * (1 - kept[-1]))
    gr = 0 * r
    for x in reversed(kept[:-1]):
        gr = gr + ct * x * (1 - x)
        ct = ct * r * (1 - 2 * x)
    return ct, gr


def planck(nu, t):
    return nu**3 / np.expm1(nu / t)


def planck_vjp(ct, nu, t):
    e = np.expm1(nu / t)
    d = nu**3 * (e + 1) / e**2
    return ct * (3 * nu**2 / e - d / t), ct * d * (nu / t) / t


def lorentz(v):
    return 1 / np.sqrt(1 - v * v)


def lorentz_vjp(ct, v):
    return ct * v * (1 - v * v) ** -1.5


def rigid(w):
    """Rodrigues: the rotation matrix of a vector."""
    t = np.sqrt((w * w).sum())
    k = np.array([[0 * t, -w[2], w[1]], [w[2], 0 * t, -w[0]], [-w[1], w[0], 0 * t]])
    return np.eye(3) + np.sin(t) / t * k + (1 - np.cos(t)) / t**2 * (k @ k)


GENERATORS = np.zeros((3, 3, 3))
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    GENERATORS[_i, _k, _j], GENERATORS[_i, _j, _k] = 1.0, -1.0


def rigid_vjp(ct, w):
    t = np.sqrt((w * w).sum())
    k = np.tensordot(w, GENERATORS.astype(w.dtype), 1)
    s, c = np.sin(t) / t, 2 * np.sin(t / 2) ** 2 / t**2
    ds, dc = (np.cos(t) - s) / t, (np.sin(t) - 2 * t * c) / t**2
    g = np.array([s * (ct * e).sum() + c * (ct * (e @ k + k @ e)).sum() for e in GENERATORS])
    return g + (ds * (ct * k).sum() + dc * (ct * (k @ k)).sum()) * w / t


def quaternion_rotate(q, p):
    n = q / np.sqrt((q * q).sum())
    w, v = n[0], n[1:]
    return p + 2 * np.cross(v, np.cross(v, p) + w * p)


def quaternion_rotate_vjp(ct, q, p):
    size = np.sqrt((q * q).sum())
    n = q / size
    w, v = n[0], n[1:]
    inner = np.cross(v, p) + w * p
    gi = 2 * np.cross(ct, v)
    gv = 2 * np.cross(inner, ct).sum(0) + np.cross(p, gi).sum(0)
    g = np.concatenate([[(gi * p).sum()], gv])
    gp = ct + np.cross(gi, v) + w * gi
    return (g - n * (n @ g)) / size, gp


def triangle_area(a, b, c):
    n = np.cross(b - a, c - a)
    return 0.5 * np.sqrt((n * n).sum(-1))


def triangle_area_vjp(ct, a, b, c):
    n = np.cross(b - a, c - a)
    u = ct[:, None] * 0.5 * n / np.sqrt((n * n).sum(-1, keepdims=True))
    gb, gc = np.cross(c - a, u), np.cross(u, b - a)
    return -gb - gc, gb, gc


def haversine(p, q):
    d = np.sin((p - q) / 2) ** 2
    h = d[:, 0] + np.cos(p[:, 0]) * np.cos(q[:, 0]) * d[:, 1]
    return 2 * np.arcsin(np.sqrt(h))


def haversine_vjp(ct, p, q):
    d = np.sin((p - q) / 2) ** 2
    (a, b), s = (np.cos(p[:, 0]), np.cos(q[:, 0])), np.sin(p - q) / 2
    h = d[:, 0] + a * b * d[:, 1]
    w = ct / np.sqrt(h * (1 - h))
    along = w * a * b * s[:, 1]
    gp = np.stack([w * (s[:, 0] - np.sin(p[:, 0]) * b * d[:, 1]), along], 1)
    return gp, np.stack([w * (-s[:, 0] - a * np.sin(q[:, 0]) * d[:, 1]), -along], 1)


def horner(x, c):
    y = 0 * x
    for k in range(len(c)):
        y = y * x + c[k]
    return y


def horner_vjp(ct, x, c):
    y, d = 0 * x, 0 * x
    for k in range(len(c)):
        d = d * x + y
        y = y * x + c[k]
    n = len(c)
    return ct * d, np.array([(ct * x ** (n - 1 - k)).sum() for k in range(n)], dtype=c.dtype)


def compounded(r, n):
    return (1 + r / n) ** n


def compounded_vjp(ct, r, n):
    return ct * np.exp((n - 1) * np.log1p(r / n))


def present_value(rate, cash):
    return (cash / (1 + rate) ** np.arange(1, len(cash) + 1)).sum()


def present_value_vjp(ct, rate, cash):
    k = np.arange(1, len(cash) + 1)
    return (
        np.asarray(ct * (-k * cash / (1 + rate) ** (k + 1)).sum()),
        (ct / (1 + rate) ** k).astype(cash.dtype),
    )


def sharpe(r):
    return r.mean() / r.std()


def sharpe_vjp(ct, r):
    m, s = r.mean(), r.std()
    return ct * (1 / s - m * (r - m) / s**3) / r.size


def correlation(x, y):
    a, b = x - x.mean(), y - y.mean()
    return (a @ b) / np.sqrt((a @ a) * (b @ b))


def correlation_vjp(ct, x, y):
    a, b = x - x.mean(), y - y.mean()
    na, nb = np.sqrt(a @ a), np.sqrt(b @ b)
    c = (a / na) @ (b / nb)
    return ct * (b / nb - c * a / na) / na, ct * (a / na - c * b / nb) / nb


def geometric_mean(x):
    return np.exp(np.log(x).mean())


def geometric_mean_vjp(ct, x):
    return ct * geometric_mean(x) / (x.size * x)


def power_mean(x, p):
    return ((x**p).mean()) ** (1 / p)


def power_mean_vjp(ct, x, p):
    return ct * power_mean(x, p) * x ** (p - 1) / (x**p).sum()


def cumulative(x):
    return np.cumsum(x) ** 2


def cumulative_vjp(ct, x):
    return np.cumsum((2 * ct * np.cumsum(x))[::-1])[::-1]


def rbf(x, y, s):
    d = ((x[:, None] - y[None]) ** 2).sum(-1)
    return np.exp(-d / (2 * s * s))


def rbf_vjp(ct, x, y, s):
    w = ct * rbf(x, y, s) / (s * s)
    d = x[:, None] - y[None]
    return -(w[..., None] * d).sum(1), (w[..., None] * d).sum(0)


def convolved(x, k):
    return np.stack([x[i : i + len(k)] @ k for i in range(len(x) - len(k) + 1)])


def convolved_vjp(ct, x, k):
    gx, gk = np.zeros_like(x), np.zeros_like(k)
    for i, c in enumerate(ct):
        gx[i : i + len(k)] += c * k
        gk += c * x[i : i + len(k)]
    return gx, gk


def pairs() -> Iterator[Pair]:
    """All of this file."""
    for family in (losses, networks, physics, geometry, statistics, finance):
        yield from family()


def losses() -> Iterator[Pair]:
    kind = "loss"
    y = np.array([0, 2, 1, 2])
    for s in (1.0, 10.0, 30.0, 300.0):
        w = f"{s:g}"
        point = {w: (s * drawn(f"logits {s}", 4, 3), y)}
        known = {"dtypes": DOUBLE if s > 10 else BOTH, "loses": 1.0 if s > 29 else 1e-8}
        yield from at(kind, "cross entropy", cross_entropy, cross_entropy_vjp, point, **known)
        point = {w: (drawn(f"ca {s}", 4, 3), drawn(f"cb {s}", 4, 3))}
        known = {"attrs": {"t": 1 / s}, "dtypes": DOUBLE, "loses": 1e-4 if s > 29 else 1e-8}
        yield from at(kind, "contrastive", contrastive, contrastive_vjp, point, **known)
        point = {w: (s * drawn(f"st {s}", 5), drawn(f"sm {s}", 5), drawn(f"ss {s}", 5))}
        yield from at(kind, "student nll", student_nll, student_nll_vjp, point)
        means = s * drawn(f"mx {s}", 4), drawn("mw", 3), s * drawn("mm", 3), drawn("ms", 3)
        yield from at(kind, "mixture", mixture, mixture_vjp, {w: means}, dtypes=DOUBLE)
    for s in (1.0, 1e-4, 1e-8):
        w = f"{s:g}"
        sigma, mu = s * uniform(f"sigma {s}", 0.5, 2, 4), drawn(f"mu {s}", 4)
        point = {w: (mu + sigma * drawn(f"nx {s}", 4), mu, sigma)}
        known = {"dtypes": DOUBLE if s < 1e-3 else BOTH}
        yield from at(kind, "normal nll", normal_nll, normal_nll_vjp, point, **known)
        p, q = (softmax(np.log(1 / s + 1) * drawn(f"{n} {s}", 3, 4)) for n in "pq")
        yield from at(kind, "kl", kl, kl_vjp, {w: (p, q)})
    point = {"ordinary": (drawn("focal", 5), uniform("focal y", 0, 1, 5))}
    yield from at(kind, "focal", focal, focal_vjp, point)
    point = {"sure": (12 + drawn("focal s", 5), uniform("focal t", 0, 1, 5))}
    yield from at(kind, "focal", focal, focal_vjp, point, dtypes=DOUBLE)


def networks() -> Iterator[Pair]:
    kind = "network"
    for n in (2, 10, 40):
        few = {"dtypes": DOUBLE if n > 2 else BOTH}
        x, b = drawn(f"deep x {n}", 2, 3), 0.1 * drawn(f"deep b {n}", n, 3)
        w = drawn(f"deep w {n}", n, 3, 3) / np.sqrt(3)
        yield from at(kind, "tanh layers", deep, deep_vjp, {f"{n}": (x, w, b)}, **few)
        large = {f"{n}": (x, 2.5 * w, b)}
        yield from at(kind, "exploding layers", deep, deep_vjp, large, dtypes=DOUBLE)
        sizes = {"rx": (n, 2), "rh": (3,), "rw": (3, 2), "ru": (3, 3)}
        point = {f"{n}": tuple(drawn(f"{name} {n}", *size) for name, size in sizes.items())}
        yield from at(kind, "recurrent", recurrent, recurrent_vjp, point, **few)
        point = {f"{n}": (drawn(f"res x {n}", 2, 4), drawn(f"res w {n}", n, 4, 4) / 2)}
        few = {"dtypes": DOUBLE if n > 10 else BOTH}
        yield from at(kind, "residual layers", residual, residual_vjp, point, **few)
    for s in (1.0, 6.0, 30.0):
        point = {f"{s:g}": (s * drawn("aq", 3, 4), drawn("ak", 5, 4), drawn("av", 5, 4))}
        known = {"dtypes": DOUBLE if s > 1 else BOTH, "loses": 1e-6}
        yield from at(kind, "attention", attention, attention_vjp, point, **known)


def physics() -> Iterator[Pair]:
    kind = "physics"
    for s in (1.0, 1e-6, 1e9):
        w = f"{s:g}"
        point = {w: (s * uniform(f"lj {s}", 0.9, 2.5, 5), s * uniform(f"ls {s}", 0.9, 1.1, 5))}
        yield from at(kind, "lennard-jones", lennard_jones, lennard_jones_vjp, point)
        point = {w: (s * uniform(f"nu {s}", 0.5, 4, 4), s * uniform(f"temp {s}", 0.5, 2, 4))}
        yield from at(kind, "planck", planck, planck_vjp, point, loses=1e-7)
    point = {"1": (drawn("bodies 1.0", 4, 3), uniform("mass", 1, 3, 4))}
    yield from at(kind, "gravity", gravity, gravity_vjp, point)
    bodies = np.array([[0.1, 0.2, 0.3], [0.1 + 1e-7, 0.2, 0.3], [4.0, 1.0, 2.0]])
    point = {"two bodies close": (bodies, uniform("m3", 1, 3, 3))}
    yield from at(kind, "gravity", gravity, gravity_vjp, point, dtypes=DOUBLE, loses=1e-6)
    point = {"ordinary": drawn("pend", 2, 3)}
    yield from at(kind, "pendulum", pendulum, pendulum_vjp, point, attrs={"dt": 0.1})
    point = {"chaotic": (uniform("lm", 0.2, 0.8, 4), uniform("lr", 3.7, 3.99, 4))}
    yield from at(kind, "logistic map", logistic_map, logistic_map_vjp, point, dtypes=DOUBLE)
    for d in (1e-2, 1e-8, 1e-13):
        point = {f"{d:g}": 1 - d * uniform(f"lorentz {d}", 0.5, 2, 4)}
        known = {"dtypes": DOUBLE, "loses": 1e-2 if d < 1e-9 else 1e-6}
        yield from at(kind, "lorentz factor", lorentz, lorentz_vjp, point, **known)


def geometry() -> Iterator[Pair]:
    kind = "geometry"
    few = {"dtypes": DOUBLE}
    for s in (1.0, 1e-3, 1e-7):
        w = f"{s:g}"
        point = {w: s * drawn(f"rod {s}", 3)}
        yield from at(kind, "rotation of a vector", rigid, rigid_vjp, point, loses=1e-6, **few)
        point = {w: (s * drawn(f"quat {s}", 4), drawn(f"qp {s}", 3, 3))}
        yield from at(kind, "quaternion", quaternion_rotate, quaternion_rotate_vjp, point)
        a, b = drawn(f"ta {s}", 3, 3), drawn(f"tb {s}", 3, 3)
        point = {f"sliver {s:g}": (a, b, (a + b) / 2 + s * drawn(f"tc {s}", 3, 3))}
        yield from at(
            kind, "triangle area", triangle_area, triangle_area_vjp, point, loses=1e-7, **few
        )
        p = drawn(f"hp {s}", 4, 2) / 2
        point = {w: (p, p + s * drawn(f"hq {s}", 4, 2) / 2)}
        yield from at(kind, "haversine", haversine, haversine_vjp, point, loses=1e-6, **few)
        x = drawn(f"rbf {s}", 3, 2)
        point = {w: (x, x[::-1] + s * drawn(f"rb {s}", 3, 2))}
        yield from at(kind, "rbf", rbf, rbf_vjp, point, attrs={"s": s}, **few)


def statistics() -> Iterator[Pair]:
    kind = "statistics"
    for c in (0.0, 1e3, 1e6):
        w = f"{c:g}"
        few = {"dtypes": DOUBLE if c else BOTH, "loses": 1e-7}
        x, y = c + drawn(f"stat {c}", 6), c + drawn(f"staty {c}", 6)
        positive = {w: np.abs(x) + 1}
        yield from at(kind, "correlation", correlation, correlation_vjp, {w: (x, y)}, **few)
        yield from at(kind, "sharpe ratio", sharpe, sharpe_vjp, {w: x}, **few)
        yield from at(kind, "geometric mean", geometric_mean, geometric_mean_vjp, positive)
        few = {"attrs": {"p": 7.3}, "dtypes": DOUBLE}
        yield from at(kind, "power mean", power_mean, power_mean_vjp, positive, **few)
        yield from at(kind, "cumulative", cumulative, cumulative_vjp, {w: x}, dtypes=DOUBLE)
        yield from at(kind, "convolution", convolved, convolved_vjp, {w: (x, drawn("kernel", 3))})


def finance() -> Iterator[Pair]:
    kind = "finance"
    few = {"dtypes": DOUBLE, "loses": 1e-6}
    for n in (1.0, 365.0, 1e8):
        point = {f"{n:g}": uniform(f"rate {n}", 0.01, 0.2, 4)}
        yield from at(
            kind, "compound interest", compounded, compounded_vjp, point, attrs={"n": n}, **few
        )
    for r in (0.05, 1e-9):
        point = {f"{r:g}": (np.asarray(r * 1.1234567), uniform("cash", 50, 200, 8))}
        yield from at(kind, "present value", present_value, present_value_vjp, point)
    coefficients = np.array([1.0, -5, 10, -10, 5, -1])
    point = {
        "ordinary": (drawn("poly", 4), coefficients),
        "near a root": (1 + 1e-2 * drawn("root", 4), coefficients),
    }
    yield from at(kind, "polynomial", horner, horner_vjp, point, **few)
