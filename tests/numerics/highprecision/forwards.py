"""Forwards as many people write them: the body of each is one text, in its own style."""

import functools
import math
import zlib
from math import exp, sqrt

import numpy as np
from numpy import asarray, sum, zeros  # as people import them
from numpy.lib.stride_tricks import sliding_window_view

FORWARDS = {}


def drawn(name, *shapes):
    """Primals of a forward: normal numbers, or positive ones where the shape is a list."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return [
        rng.normal(size=s) if isinstance(s, tuple) else rng.uniform(0.5, 2.0, size=tuple(s))
        for s in shapes
    ]


def forward(*shapes, **attrs):
    def keep(function):
        FORWARDS[function.__name__] = function, shapes, attrs
        return function

    return keep


def lines(table):
    for name, (function, *shapes) in table.items():
        FORWARDS[name] = function, shapes, {}


V, M, P, PM, S = (6,), (3, 4), [6], [3, 4], (3, 3)

# ── one expression ───────────────────────────────────────────────────────────────────────────

lines(
    {
        "tanh": (np.tanh, M),
        "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), M),
        "softplus": (lambda x: np.logaddexp(0, x), M),
        "softplus_careful": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), M),
        "relu": (lambda x: x * (x > 0), M),
        "relu_where": (lambda x: np.where(x > 0, x, 0), M),
        "relu_max": (lambda x: np.maximum(0, x), M),
        "leaky": (lambda x: np.where(x >= 0, x, 0.01 * x), M),
        "elu": (lambda x: np.where(x > 0, x, np.expm1(x)), M),
        "selu": (lambda x: 1.0507 * np.where(x > 0, x, 1.6733 * (np.exp(x) - 1)), M),
        "gelu_tanh": (
            lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), M
        ),
        "silu": (lambda x: x / (1 + np.exp(-x)), M),
        "mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), M),
        "hard_sigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), M),
        "hard_swish": (lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6, M),
        "softsign": (lambda x: x / (1 + np.abs(x)), M),
        "cube": (lambda x: x**3, V),
        "negative_power": (lambda x: x**-1.5, P),
        "power_of_both": (np.power, P, P),
        "exp2_log2": (lambda x: np.exp2(x) + np.log2(x), P),
        "log10_cbrt": (lambda x: np.log10(x) * np.cbrt(x), P),
        "hypot": (np.hypot, V, V),
        "arctan2": (np.arctan2, V, V),
        "trigonometry": (lambda x: np.sin(x) * np.cos(x) + np.tan(x / 4), V),
        "inverse_trigonometry": (lambda x: np.arcsin(x / 5) + np.arccos(x / 6) + np.arctan(x), V),
        "hyperbolic": (lambda x: np.sinh(x) / np.cosh(x) + np.arcsinh(x), V),
        "arccosh_arctanh": (lambda x: np.arccosh(1 + x) + np.arctanh(x / 3), P),
        "reciprocal_square": (lambda x: np.reciprocal(np.square(x) + 1), V),
        "degrees": (lambda x: np.sin(np.deg2rad(x)) + np.rad2deg(x), V),
        "sinc": (np.sinc, V),
        "bump": (lambda x: np.exp(-1 / (1 - (x / 5) ** 2)), V),
        "fmod": (lambda x: np.mod(x, 1.0) ** 2, V),
        "floor_fraction": (lambda x: (x - np.floor(x)) ** 2, V),
        "sign_square": (lambda x: np.sign(x) * x**2, V),
        "copysign": (lambda x: np.copysign(x, -x) * x, V),
        "heaviside": (lambda x: np.heaviside(x, 0.5) * x, V),
        "nan_to_num": (lambda x: np.nan_to_num(x) * 2, V),
        "abs_power": (lambda x: np.abs(x) ** 1.7, V),
        "float_power": (lambda x: np.float_power(x, 2.5), P),
        "i0": (np.i0, V),
        "poly": (lambda x: np.polyval([1.0, -2.0, 0.5, 3.0], x), V),
        "piecewise": (lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda v: -v, np.square]), V),
        "select": (lambda x: np.select([x < -0.5, x < 0.5], [x**2, x**3], x), V),
        # ── reductions ──
        "sum": (np.sum, M),
        "mean_axis": (lambda x: x.mean(axis=0), M),
        "sum_tuple": (lambda x: x.sum((0, 1)), M),
        "prod": (lambda x: np.prod(x, axis=1), M),
        "variance": (lambda x: np.var(x, axis=-1, ddof=1), M),
        "std_keepdims": (lambda x: x / x.std(axis=1, keepdims=True), M),
        "max_axis": (lambda x: x.max(axis=1), M),
        "min_all": (np.min, M),
        "max_initial": (lambda x: np.max(x, axis=1, initial=0.5), M),
        "ptp": (lambda x: np.ptp(x, axis=0), M),
        "median": (lambda x: np.median(x, axis=1), M),
        "quantile": (lambda x: np.quantile(x, 0.3, axis=1), M),
        "percentile": (lambda x: np.percentile(x, [10, 90]), M),
        "average": (lambda x: np.average(x, axis=0, weights=[1.0, 2.0, 3.0]), M),
        "nanmean": (lambda x: np.nanmean(x, axis=0), M),
        "nansum": (lambda x: np.nansum(x**2), M),
        "norm": (np.linalg.norm, M),
        "norm_rows": (lambda x: np.linalg.norm(x, axis=1), M),
        "norm_ords": (
            lambda x: sum([np.linalg.norm(x, ord=p) for p in (1, 2, np.inf, 3)]), V
        ),
        "norm_matrix": (lambda x: np.linalg.norm(x, "nuc") + np.linalg.norm(x, 1), M),
        "cumsum": (lambda x: np.cumsum(x, axis=1), M),
        "cumprod": (lambda x: x.cumprod(), V),
        "running_max": (np.maximum.accumulate, V),
        "running_lse": (np.logaddexp.accumulate, V),
        "lse_reduce": (lambda x: np.logaddexp.reduce(x, axis=-1), M),
        "geometric_mean": (lambda x: np.exp(np.mean(np.log(x))), P),
        "harmonic_mean": (lambda x: len(x) / np.sum(1 / x), P),
        "masked_mean": (lambda x: np.mean(x, where=np.arange(4) < 3), M),
        "add_reduce": (lambda x: np.add.reduce(x, axis=1) * np.max(x, axis=())[:, 0], M),
        "reduceat": (lambda x: np.add.reduceat(x, [0, 2, 4]), V),
        "count_weighted": (lambda x: np.count_nonzero(x > 0) * x.sum(), V),
        # ── structure ──
        "transpose": (lambda x: x.T @ x, M),
        "reshape": (lambda x: x.reshape(2, -1)[:, ::-1], M),
        "concatenate": (lambda x, y: np.concatenate([x, y * 2], axis=0), M, M),
        "stacks": (lambda x, y: np.stack((x, y), -1) + np.dstack((x, y)), M, M),
        "hstack_vstack": (lambda x: np.vstack([np.hstack([x, x]), np.tile(x, 2)]), M),
        "split": (lambda x: np.multiply(*np.split(x, 2, axis=1)), M),
        "roll": (lambda x: x - np.roll(x, 1, axis=0), M),
        "pad": (lambda x: np.pad(x, 1), M),
        "pad_reflect": (lambda x: np.pad(x, ((0, 0), (1, 2)), mode="reflect"), M),
        "repeat": (lambda x: np.repeat(x, 2, axis=0) ** 2, M),
        "flip": (lambda x: np.flip(x) * np.fliplr(x) + np.rot90(x, 2), M),
        "fancy": (lambda x: x[[0, 2, 2], [1, 1, 3]], M),
        "mask_index": (lambda x: x[x > 0].sum(), M),
        "take_along": (lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1), M),
        "take": (lambda x: np.take(x, [3, 1, 1], axis=1), M),
        "triangles": (lambda x: np.tril(x) @ np.triu(x, 1), S),
        "diag": (lambda x: np.diag(x) + np.diagonal(x[::-1]) + np.trace(x), S),
        "diag_of_vector": (lambda x: np.diag(x) @ np.diag(x[::-1]), V),
        "diff": (lambda x: np.diff(x, n=2, axis=1), M),
        "gradient": (lambda x: np.gradient(x, 0.1), V),
        "trapezoid": (lambda y: np.trapezoid(y, dx=0.5), V),
        "sort": (lambda x: np.sort(x, axis=0) * np.arange(3)[:, None], M),
        "partition": (lambda x: np.partition(x, 3)[:3].sum(), V),
        "topk": (lambda x: x[np.argsort(-x)[:2]], V),
        "argmax_pick": (lambda x: x[np.arange(3), x.argmax(axis=1)], M),
        "meshgrid": (lambda x, y: np.multiply(*np.meshgrid(x, y)), V, V),
        "broadcast": (lambda x: np.broadcast_to(x, (3, 6)).sum(axis=0), V),
        "squeeze": (lambda x: np.squeeze(np.expand_dims(x, 0) * x[None]), M),
        "moveaxis": (lambda x: np.moveaxis(x[None], 0, -1) * np.swapaxes(x[..., None], 0, 0), M),
        "outer": (lambda x, y: np.outer(x, y) + np.multiply.outer(x, y), V, V),
        "kron": (np.kron, S, (2, 2)),
        "cross": (np.cross, S, S),
        "dot": (lambda x, y: np.dot(x, y) + np.vdot(x, y) + np.inner(x, y), V, V),
        "einsum": (lambda x, y: np.einsum("ij,kj->ik", x, y), M, M),
        "einsum_trace": (lambda x: np.einsum("ii", x) * np.einsum("ij->j", x), S),
        "einsum_three": (lambda x, y: np.einsum("i,ij,j->", x, y, x, optimize=True), (3,), S),
        "tensordot": (lambda x, y: np.tensordot(x, y, axes=([1], [1])), M, M),
        "matmul_batched": (lambda x, y: x @ y, (2, 3, 4), (2, 4, 2)),
        "add_at": (lambda x: (y := np.zeros(3), np.add.at(y, [0, 1, 1, 2, 0, 2], x))[0], V),
        "bits_of_where": (lambda x: np.where((x > 0) & ~(x > 1), x, -x), V),
        "interp": (lambda x: np.interp(x, [-3.0, 0.0, 3.0], [0.0, 1.0, 4.0]), V),
        "convolve": (lambda x: np.convolve(x, [1.0, -2.0, 1.0], mode="same"), V),
        "correlate": (lambda x, y: np.correlate(x, y, "full"), V, (3,)),
        "windows": (lambda x: sliding_window_view(x, 3).max(axis=-1), V),
        "unwrap": (lambda x: np.unwrap(3 * x), V),
        "vander": (lambda x: np.vander(x, 3), V),
        "cov": (np.cov, M),
        "corrcoef": (np.corrcoef, M),
        "apply_along": (lambda x: np.apply_along_axis(lambda r: r / r.sum(), 1, x), PM),
        # ── linear algebra, Fourier ──
        "inv": (np.linalg.inv, S),
        "solve": (np.linalg.solve, S, S),
        "det": (np.linalg.det, S),
        "slogdet": (lambda x: np.linalg.slogdet(x)[1], S),
        "cholesky": (lambda x: np.linalg.cholesky(x @ x.T + np.eye(3)), S),
        "eigvalsh": (lambda x: np.linalg.eigvalsh(x + x.T), S),
        "eigh_whiten": (
            lambda x: (lambda w, v: v / np.sqrt(w))(*np.linalg.eigh(x @ x.T + np.eye(3))), S
        ),
        "svdvals": (lambda x: np.linalg.svd(x, compute_uv=False), M),
        "svd": (lambda x: (lambda u, s, v: (u * s**2) @ v)(*np.linalg.svd(x, False)), M),
        "qr": (lambda x: np.linalg.qr(x).R, (4, 3)),
        "pinv": (np.linalg.pinv, M),
        "lstsq": (lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], (4, 3), (4,)),
        "matrix_power": (lambda x: np.linalg.matrix_power(x, 3), S),
        "multi_dot": (lambda x, y: np.linalg.multi_dot([x, y, x]), S, S),
        "cond": (np.linalg.cond, S),
        "fft_power": (lambda x: np.abs(np.fft.fft(x)) ** 2, V),
        "rfft_filter": (lambda x: np.fft.irfft(np.fft.rfft(x) * np.array([1, 0.5, 0.2, 0])), V),
        "irfft_odd": (lambda x: np.fft.irfft(np.fft.rfft(x), 5), V),
        "fft_padded": (lambda x: np.abs(np.fft.fft(x, 8)), V),
        "fft2_real": (lambda x: np.fft.fft2(x).real + np.fft.ifft2(x).imag, M),
        "spectral_flatness": (
            lambda x: (lambda p: np.exp(np.mean(np.log(p))) / np.mean(p))(
                np.abs(np.fft.rfft(x)) ** 2 + 1e-9
            ), V,
        ),
        "phase": (lambda x: np.angle(np.fft.rfft(x)[1:3]), V),
        "complex_inside": (lambda x: np.real(np.exp(1j * x) * (x + 2j)) + np.imag(x * 1j), V),
    }
)  # fmt: skip


# ── layers and losses ────────────────────────────────────────────────────────────────────────


@forward(M, axis=-1)
def softmax(x, axis):
    x = np.asarray(x, dtype=np.float64)
    z = x - np.max(x, axis=axis, keepdims=True)
    e = np.exp(z)
    return e / np.sum(e, axis=axis, keepdims=True)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@forward(M, eps=1e-5)
def layer_norm(x, eps):
    mu = x.mean(axis=-1, keepdims=True)
    return (x - mu) / np.sqrt(x.var(axis=-1, keepdims=True) + eps)


@forward(M, (4,), (4,))
def batch_norm(x, gamma, beta):
    mean, std = np.mean(x, 0), np.std(x, 0)
    return gamma * (x - mean) / (std + np.finfo(x.dtype).eps) + beta


@forward(M, (4,))
def rms_norm(x, g):
    return x * g * (np.mean(x**2, axis=-1, keepdims=True) + 1e-6) ** -0.5


@forward((2, 3, 4), (2, 3, 4), (2, 3, 4))
def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones((3, 3), dtype=bool)), scores, -np.inf)
    return _softmax(scores) @ v


@forward((2, 6, 6), (3, 2, 3, 3))
def conv2d_windows(x, w):
    patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return np.einsum("cijuv,ocuv->oij", patches, w)


@forward((2, 4, 4))
def max_pool(x):
    return x.reshape(2, 2, 2, 2, 2).max(axis=(2, 4))


@forward((2, 4, 4))
def average_pool_loops(x):
    y = np.empty((2, 2, 2), dtype=x.dtype)
    for i in range(2):
        for j in range(2):
            y[:, i, j] = x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean(axis=(1, 2))
    return y


@forward((4, 3), (8, 3), (8, 2), (8,))
def lstm(xs, wx, wh, b):
    h, c = np.zeros(2), np.zeros(2)
    hs = []
    for x in xs:
        i, f, g, o = np.split(wx @ x + wh @ h + b, 4)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        hs.append(h)
    return np.array(hs)


def _sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


@forward((4, 3), (3, 3), (3, 3))
def rnn_buffer(x, w, u):
    h = np.zeros((5, 3))
    for t in range(4):
        h[t + 1] = np.tanh(x[t] @ w + h[t] @ u)
    return h[1:]


class Dense:
    def __init__(self, n_in, n_out):
        self.w = np.linspace(-1, 1, n_in * n_out).reshape(n_in, n_out)
        self.b = np.zeros(n_out)

    def __call__(self, x):
        self.x = x
        return x.dot(self.w) + self.b


class Network:
    def __init__(self):
        self.layers = [Dense(4, 5), Dense(5, 2)]

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = np.tanh(layer(x))
        return self.layers[-1](x)


FORWARDS["network"] = Network().forward, (M,), {}
FORWARDS["dense_object"] = Dense(4, 2), (M,), {}


@forward(V, V)
def mse(p, t):
    return float(np.mean((p - t) ** 2))


@forward(V, delta=1.0)
def huber(r, delta):
    a = np.abs(r)
    return np.where(a <= delta, 0.5 * a * a, delta * (a - 0.5 * delta)).sum()


@forward(V)
def bce_with_logits(x):
    y = (np.arange(6) % 2).astype(float)
    return np.mean(np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x))))


@forward(P)
def kl_divergence(p):
    p = p / p.sum()
    q = np.full_like(p, 1 / len(p))
    return np.sum(p * np.log(p / q))


@forward(V, V)
def cosine(a, b):
    return 1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


@forward(M, M, margin=0.3)
def triplet(a, b, margin):
    d = np.sqrt(((a - b) ** 2).sum(1))
    return np.maximum(0, d - d[::-1] + margin).mean()


@forward(M)
def info_nce(z):
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    s = z @ z.T / 0.1
    np.fill_diagonal(s, -1e9)
    return np.mean(np.log(np.sum(np.exp(s), axis=1)))


@forward((5, 3))
def ctc_like(logp):
    alpha = np.full((5, 3), -np.inf)
    alpha[0, 0] = logp[0, 0]
    for t in range(1, 5):
        for s in range(3):
            prev = alpha[t - 1, s]
            if s > 0:
                prev = np.logaddexp(prev, alpha[t - 1, s - 1])
            alpha[t, s] = prev + logp[t, s]
    return alpha[-1, -1]


@forward((6, 4))
def rotary(x):
    t = np.arange(x.shape[0])[:, None]
    angle = t / 10000 ** (np.arange(0, 4, 2) / 4)
    x1, x2 = x[:, ::2], x[:, 1::2]
    out = np.empty_like(x)
    out[:, ::2] = x1 * np.cos(angle) - x2 * np.sin(angle)
    out[:, 1::2] = x1 * np.sin(angle) + x2 * np.cos(angle)
    return out


@forward((5, 3))
def embedding(table):
    return table[np.array([[0, 2], [2, 4]])].mean(axis=1)


@forward((2, 3, 3))
def group_norm(x):
    flat = x.reshape(2, -1)
    return ((flat.T - flat.mean(1)) / (flat.std(1) + 1e-3)).T.reshape(x.shape)


@forward(M, (4, 6), (3, 4))
def swiglu(x, w, v):
    a, b = np.array_split(x @ w, 2, axis=-1)
    return a * _sigmoid(a) * b + np.sum(v)


@forward(M)
def gumbel(x):
    noise = -np.log(-np.log(np.random.default_rng(0).uniform(size=x.shape)))
    return _softmax((x + noise) / 0.5)


@forward(V)
def sparsemax(z):
    s = np.sort(z)[::-1]
    c = np.cumsum(s)
    k = np.arange(1, len(z) + 1)
    keep = 1 + k * s > c
    k = k[keep][-1]
    return np.maximum(z - (c[k - 1] - 1) / k, 0)


# ── physics, statistics, finance, geometry, signals ──────────────────────────────────────────


@forward((4, 2))
def gravity(x):
    e = 0.0
    for i in range(4):
        for j in range(i):
            e -= 1 / np.sqrt(np.sum((x[i] - x[j]) ** 2))
    return e


@forward((8,))
def heat_equation(u):
    u = u.copy()
    for _ in range(4):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


@forward((6, 6))
def laplacian(u):
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


@forward((5,))
def burgers(u):
    return -u * (np.roll(u, -1) - np.roll(u, 1)) / 2 + 0.1 * np.gradient(np.gradient(u))


@forward(V, [1], [1])
def student_loglik(x, nu, s):
    z = x / s
    return -np.sum((nu + 1) / 2 * np.log(1 + z * z / nu)) - len(x) * np.log(s)


@forward((5,), [1], [1])
def gp_likelihood(y, ell, noise):
    x = np.linspace(0, 1, 5)
    k = np.exp(-0.5 * (x[:, None] - x) ** 2 / ell**2) + noise * np.eye(5)
    chol = np.linalg.cholesky(k)
    alpha = np.linalg.solve(chol.T, np.linalg.solve(chol, y))
    return 0.5 * y @ alpha + np.log(np.diag(chol)).sum()


@forward([4])
def black_scholes(p):
    s, k, v, t = p
    d1 = (math.log(s / k) + (0.05 + v * v / 2) * t) / (v * math.sqrt(t))
    d2 = d1 - v * math.sqrt(t)
    cdf = lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2)))  # noqa: E731
    return s * cdf(d1) - k * math.exp(-0.05 * t) * cdf(d2)


@forward([5])
def bond_price(rates):
    price = 0.0
    for t, r in enumerate(rates, 1):
        price += 5 / (1 + r / 100) ** t
    return price


@forward((6,))
def sharpe(r):
    return np.sqrt(252) * r.mean() / r.std(ddof=1)


@forward([6])
def drawdown(prices):
    peak = np.maximum.accumulate(prices)
    return ((peak - prices) / peak).max()


@forward((4,), (3,))
def quaternion(q, v):
    q = q / np.linalg.norm(q)
    w, u = q[0], q[1:]
    t = 2 * np.cross(u, v)
    return v + w * t + np.cross(u, t)


@forward((4, 2), (4, 2))
def chamfer(a, b):
    d = np.linalg.norm(a[:, None, :] - b[None, :, :], axis=-1)
    return d.min(axis=0).mean() + d.min(axis=1).mean()


@forward((3, 3), (3, 3))
def procrustes(a, b):
    u, _, vt = np.linalg.svd(a.T @ b)
    return np.linalg.norm(a @ (u @ vt) - b)


@forward((2,))
def haversine(p):
    lat, lon = np.radians(p)
    h = np.sin(lat / 2) ** 2 + np.cos(lat) * np.sin(lon / 2) ** 2
    return 2 * 6371 * np.arcsin(np.sqrt(h))


@forward((8,))
def biquad(x):
    y = [0.0, 0.0]
    for n in range(len(x)):
        y.append(0.2 * x[n] + 1.1 * y[-1] - 0.5 * y[-2])
    return np.stack(y[2:])


@forward((8,))
def spectrogram(x):
    frames = np.lib.stride_tricks.sliding_window_view(x, 4)[::2] * np.hanning(4)
    return np.log(np.abs(np.fft.rfft(frames, axis=-1)) ** 2 + 1e-3)


@forward((8,))
def autocorrelation(x):
    x = x - x.mean()
    return np.correlate(x, x, mode="full")[len(x) - 1 :] / (x @ x)


@forward((4, 4))
def total_variation(img):
    return np.abs(np.diff(img, axis=0)).sum() + np.abs(np.diff(img, axis=1)).sum()


@forward((4, 4), [1])
def gaussian_blur(img, sigma):
    k = np.exp(-(np.arange(-1, 2) ** 2) / (2 * sigma**2))
    k /= k.sum()
    padded = np.pad(img, 1, mode="edge")
    rows = sum([k[i] * padded[i : i + 4] for i in range(3)], axis=0)
    return sum([k[j] * rows[:, j : j + 4] for j in range(3)], axis=0)


@forward((4, 4), (2,))
def bilinear(img, p):
    x, y = np.clip(p + 1.5, 0, 2.99)
    i, j = int(np.floor(x)), int(np.floor(y))
    a, b = x - i, y - j
    top = (1 - b) * img[i, j] + b * img[i, j + 1]
    return (1 - a) * top + a * ((1 - b) * img[i + 1, j] + b * img[i + 1, j + 1])


@forward((6,))
def plain_python(x):
    total = 0
    for v in x:
        total = total + (v**2 if v > 0 else -v) * max(v, 0.1) + abs(v) + round(2.0)
    return total


@forward((6,))
def math_module(x):
    return np.array([sqrt(1 + v * v) + exp(-v) + math.sin(v) * math.atan(v) for v in x])


@forward((6,))
def list_comprehension(x):
    return [np.exp(v) for v in x]


@forward((3, 4))
def names_of_numpy(x):
    x = asarray(x, float)
    y = zeros(x.shape)
    y[:] = x
    y += 1
    y *= x
    return sum(y, axis=0)


@forward((6,))
def in_place(x):
    y = np.array(x, copy=True)
    np.exp(y, out=y)
    np.multiply(y, 2, out=y)
    y[y > 3] = 3
    return y


@forward((6,))
def vectorized(x):
    return np.vectorize(lambda v: v * v if v > 0 else 0.1 * v)(x)


@forward([3], [3])
def newton_root(a, b):
    x = np.ones_like(a)
    for _ in range(4):
        x = x - (x**3 + a * x - b) / (3 * x**2 + a)
    return x


@forward((3, 2))
def several_results(x):
    return x.sum(), (x**2).sum(axis=0), {"x": x}["x"][0]


def _scaled(f, k, x):
    return k * f(x)


FORWARDS["partial"] = functools.partial(_scaled, np.tanh, 3.0), (V,), {}
