"""Functions of SciPy in big numbers, except its ufuncs: NumPy's protocol dispatches those."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gradcheck.numerics.highprecision.array import big, elementwise, raw, wrapped
from gradcheck.numerics.highprecision.linear import linear
from gradcheck.numerics.highprecision.numbers import Unsupported, numbers
from gradcheck.numerics.highprecision.routines import log_softmax, softmax


def table() -> dict[Any, Callable[..., Any]]:
    """Functions of SciPy's loaded modules and their implementations here."""
    found: dict[Any, Callable[..., Any]] = {}
    for path, functions in _TABLE.items():
        module = sys.modules.get(path)
        for name, function in functions.items():
            original = getattr(module, name, None)
            if original is not None and not isinstance(original, np.ufunc):
                found[original] = function
    return found


def objects() -> list[tuple[Any, Any]]:
    """Objects of SciPy and stand-ins whose methods take big numbers."""
    stats = sys.modules.get("scipy.stats")
    normal = getattr(stats, "norm", None)
    several = getattr(stats, "multivariate_normal", None)
    pairs = [(normal, _Normal(normal)), (several, _SeveralNormal(several))]
    return [pair for pair in pairs if pair[0] is not None]


# ── scipy.special ────────────────────────────────────────────────────────────────────────────


def _logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    a = big(a)
    top = np.max(a, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    terms = np.exp(a - top)
    total = np.sum(terms if b is None else terms * b, axis=axis, keepdims=keepdims)
    sign = np.sign(total)
    out = np.log(np.abs(total) if return_sign else total)
    out = out + (top if keepdims else np.squeeze(top, axis=axis))
    return (out, sign) if return_sign else out


def _multigammaln(a: Any, d: int) -> Any:
    a = big(a)
    terms = sum(elementwise("gammaln", a - j / 2) for j in range(d))
    return terms + np.log(big(numbers().pi)) * (d * (d - 1) / 4)


# ── scipy.linalg ─────────────────────────────────────────────────────────────────────────────


def _adjoint(a: Any) -> Any:
    return np.conj(np.swapaxes(a, -1, -2))


def _solve(
    a: Any, b: Any, lower: bool = False, transposed: bool = False, assume_a: Any = None, **_: Any
) -> Any:
    a = big(a)
    if assume_a in ("sym", "her", "pos"):
        a = _symmetric(a, lower)
    return np.linalg.solve(_adjoint(a) if transposed else a, big(b))


def _symmetric(a: Any, lower: bool) -> Any:
    half = np.tri(a.shape[-1], dtype=bool)
    return np.where(half if lower else half.T, a, np.swapaxes(a, -1, -2))


def _solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, **_: Any
) -> Any:
    a, b = big(a), big(b)
    if trans in (1, "T"):
        a, lower = np.swapaxes(a, -1, -2), not lower
    if trans in (2, "C"):
        a, lower = _adjoint(a), not lower
    columns = b[:, None] if b.ndim == 1 else b
    x = linear().triangular(raw(a), raw(columns), lower=lower, unit=unit_diagonal)
    return wrapped(x[:, 0] if b.ndim == 1 else x)


def _cholesky(a: Any, lower: bool = False, **_: Any) -> Any:
    return np.linalg.cholesky(big(a), upper=not lower)


def _cho_factor(a: Any, lower: bool = False, **_: Any) -> Any:
    return _cholesky(a, lower), lower


def _cho_solve(factor: Any, b: Any, **_: Any) -> Any:
    root, lower = factor
    half = _solve_triangular(root, b, 0 if lower else 2, lower)
    return _solve_triangular(root, half, 2 if lower else 0, lower)


def _block_diag(*arrays: Any) -> Any:
    parts = [np.atleast_2d(big(a)) for a in arrays]
    rows, columns = (sum(p.shape[k] for p in parts) for k in (0, 1))
    out = big(np.zeros((rows, columns)))
    i = j = 0
    for p in parts:
        out[i : i + p.shape[0], j : j + p.shape[1]] = p
        i, j = i + p.shape[0], j + p.shape[1]
    return out


def _toeplitz(c: Any, r: Any = None) -> Any:
    c = big(c).ravel()
    r = np.conj(c) if r is None else big(r).ravel()
    values = np.concatenate([c[::-1], r[1:]])
    return values[len(c) - 1 - np.arange(len(c))[:, None] + np.arange(len(r))]


def _circulant(c: Any) -> Any:
    c = big(c)
    n = c.shape[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)) % n]


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> Any:
    if not compute_uv:
        return np.linalg.svd(big(a), compute_uv=False)
    return tuple(np.linalg.svd(big(a), full_matrices=full_matrices))


def _eigh(a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, **_: Any) -> Any:
    if b is not None:
        raise Unsupported("the generalised _eigh(a, b) is not known in big numbers")
    values, vectors = np.linalg.eigh(big(a), "L" if lower else "U")
    return values if eigvals_only else (values, vectors)


def _eigvalsh(a: Any, b: Any = None, lower: bool = True, **_: Any) -> Any:
    return _eigh(a, b, lower, eigvals_only=True)


def _qr(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", **_: Any) -> Any:
    if mode == "r":
        return (np.linalg.qr(big(a), "r"),)
    return tuple(np.linalg.qr(big(a), "reduced" if mode == "economic" else "complete"))


def _lu(a: Any, permute_l: bool = False, **_: Any) -> Any:
    p, lower, upper = map(big, linear().unpacked_lu(raw(big(a))))
    return (p @ lower, upper) if permute_l else (p, lower, upper)


def _lu_factor(a: Any, **_: Any) -> Any:
    factors, pivots, _order = linear().lu(raw(big(a)))
    return big(factors), pivots


def _lu_solve(factors: Any, b: Any, trans: int = 0, **_: Any) -> Any:
    both, swaps = factors
    order = np.arange(len(swaps))
    for k, p in enumerate(swaps):
        order[[k, p]] = order[[p, k]]
    a = ((np.tril(both, -1) + np.eye(len(swaps))) @ np.triu(both))[np.argsort(order)]
    return np.linalg.solve({0: a, 1: a.T}.get(trans, _adjoint(a)), big(b))


def _solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    a, b, q = big(a), big(b), big(q)
    whole = np.kron(a, np.eye(b.shape[0])) + np.kron(np.eye(a.shape[0]), b.T)
    return np.linalg.solve(whole, q.ravel()).reshape(q.shape)


# ── scipy.stats, scipy.ndimage ───────────────────────────────────────────────────────────────


class _Distribution:
    """A distribution of SciPy; other methods are the original's."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def pdf(self, *args: Any, **keywords: Any) -> Any:
        return np.exp(self.logpdf(*args, **keywords))


class _Normal(_Distribution):
    def logpdf(self, x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        scale = big(scale)
        z = (big(x) - loc) / scale
        return -z * z / 2 - np.log(scale * np.sqrt(2 * big(numbers().pi)))

    def cdf(self, x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        return elementwise("ndtr", (big(x) - loc) / big(scale))

    def logcdf(self, x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        return elementwise("log_ndtr", (big(x) - loc) / big(scale))

    def sf(self, x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        return elementwise("ndtr", (loc - big(x)) / big(scale))

    def logsf(self, x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        return elementwise("log_ndtr", (loc - big(x)) / big(scale))

    def ppf(self, q: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
        return loc + big(scale) * elementwise("ndtri", q)


class _SeveralNormal(_Distribution):
    def logpdf(self, x: Any, mean: Any = 0.0, cov: Any = 1.0, **_: Any) -> Any:
        x, cov = big(x), big(cov)
        size = np.shape(mean)[-1] if np.ndim(mean) else x.shape[-1]
        cov = cov if cov.ndim == 2 else cov * np.eye(size)
        away = (x - mean)[..., None]
        squares = (np.swapaxes(away, -1, -2) @ np.linalg.solve(cov, away))[..., 0, 0]
        logs = size * np.log(2 * big(numbers().pi)) + np.linalg.slogdet(cov)[1]
        return -(squares + logs) / 2


def _correlate1d(
    x: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: float = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    pads = {"reflect": "symmetric", "nearest": "edge", "mirror": "reflect", "wrap": "wrap"}
    x, weights = np.moveaxis(big(x), axis, -1), big(weights)
    before = len(weights) // 2 + origin
    width = [(0, 0)] * (x.ndim - 1) + [(before, len(weights) - 1 - before)]
    if mode in pads:
        padded = np.pad(x, width, mode=pads[mode])  # type: ignore[call-overload]
    else:
        padded = np.pad(x, width, constant_values=cval)
    out = sum(w * padded[..., k : k + x.shape[-1]] for k, w in enumerate(weights))
    return np.moveaxis(out, -1, axis)


def _convolve1d(x: Any, weights: Any, axis: int = -1, *rest: Any, **keywords: Any) -> Any:
    if len(weights) % 2 == 0:
        raise Unsupported("convolve1d with an even number of weights is not known in big numbers")
    return _correlate1d(x, big(weights)[::-1], axis, *rest, **keywords)


def _uniform_filter1d(x: Any, size: int, axis: int = -1, **keywords: Any) -> Any:
    return _correlate1d(x, np.full(size, 1 / big(size)), axis, **keywords)


def _gaussian_filter1d(
    x: Any, sigma: Any, axis: int = -1, order: int = 0, output: Any = None, mode: str = "reflect",
    cval: float = 0.0, truncate: float = 4.0, *, radius: int | None = None,
) -> Any:  # fmt: skip
    if order:
        raise Unsupported("gaussian_filter1d(order=…) is not known in big numbers")
    sigma = big(sigma)
    far = int(truncate * sigma + 0.5) if radius is None else radius
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * sigma * sigma))
    return _correlate1d(x, weights / weights.sum(), axis, mode=mode, cval=cval)


def _gaussian_filter(x: Any, sigma: Any, **keywords: Any) -> Any:
    x = big(x)
    for axis, one in enumerate(np.broadcast_to(big(sigma), x.ndim)):
        x = _gaussian_filter1d(x, one, axis, **keywords)
    return x


# ── scipy.signal, scipy.integrate, scipy.fft, scipy.spatial ──────────────────────────────────


def _convolve(a: Any, v: Any, mode: str = "full", method: str = "auto", axes: Any = None) -> Any:
    a, v = big(a), big(v)
    full = [p + q - 1 for p, q in zip(a.shape, v.shape, strict=True)]
    out = big(np.zeros(full))
    for at in np.ndindex(v.shape):
        where = tuple(slice(k, k + n) for k, n in zip(at, a.shape, strict=True))
        out[where] = out[where] + a * v[at]
    if mode == "full":
        return out
    kept = a.shape if mode == "same" else [p - q + 1 for p, q in zip(a.shape, v.shape, strict=True)]
    begin = [(f - k) // 2 for f, k in zip(full, kept, strict=True)]
    return out[tuple(slice(b, b + k) for b, k in zip(begin, kept, strict=True))]


def _correlate(a: Any, v: Any, mode: str = "full", method: str = "auto") -> Any:
    v = big(v)
    return _convolve(a, np.conj(v[(slice(None, None, -1),) * v.ndim]), mode)


def _lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    if zi is not None:
        raise Unsupported("lfilter(zi=…) is not known in big numbers")
    b, a, x = big(b), big(a), np.moveaxis(big(x), axis, -1)
    out = np.zeros_like(x)
    for t in range(x.shape[-1]):
        total = sum(b[k] * x[..., t - k] for k in range(min(len(b), t + 1)))
        total = total - sum(a[k] * out[..., t - k] for k in range(1, min(len(a), t + 1)))
        out[..., t] = total / a[0]
    return np.moveaxis(out, -1, axis)


def _cumulative_trapezoid(
    y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Any:
    y = np.moveaxis(big(y), axis, -1)
    steps = big(dx) if x is None else np.diff(big(x), axis=-1)
    out = np.cumsum((y[..., 1:] + y[..., :-1]) / 2 * steps, axis=-1)
    if initial is not None:
        out = np.concatenate([np.zeros_like(out[..., :1]), out], axis=-1)
    return np.moveaxis(out, -1, axis)


def _simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(big(y), axis, -1)
    if x is not None or y.shape[-1] % 2 == 0:
        raise Unsupported("simpson of uneven points is not known in big numbers")
    inner = 4 * np.sum(y[..., 1:-1:2], axis=-1) + 2 * np.sum(y[..., 2:-1:2], axis=-1)
    return (y[..., 0] + inner + y[..., -1]) * dx / 3


def _cdist(a: Any, b: Any, metric: str = "euclidean", **keywords: Any) -> Any:
    away = big(a)[:, None, :] - big(b)[None, :, :]
    if metric == "sqeuclidean":
        return np.sum(away**2, axis=-1)
    if metric not in _ORDERS:
        raise Unsupported(f"cdist(metric={metric!r}) is not known in big numbers")
    return np.linalg.vector_norm(away, axis=-1, ord=_ORDERS[metric])


_ORDERS = {"cityblock": 1, "euclidean": 2}


def _dct(x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None, **_: Any) -> Any:
    if type != 2 or n is not None:
        raise Unsupported("dct of another type than 2 is not known in big numbers")
    x = np.moveaxis(big(x), axis, -1)
    count = x.shape[-1]
    angle = big(np.outer(2 * np.arange(count) + 1, np.arange(count)))
    out = 2 * (x @ elementwise("cospi", angle / (2 * count)))
    if norm == "ortho":
        scale = np.sqrt(big(np.where(np.arange(count) == 0, 4.0, 2.0) * count))
        out = out / scale
    return np.moveaxis(out, -1, axis)


def _transform(name: str) -> Callable[..., Any]:
    function = getattr(np.fft, name)

    def transform(x: Any, *args: Any, **keywords: Any) -> Any:
        return function(big(x), *args, **keywords)

    return transform


_TABLE: dict[str, dict[str, Callable[..., Any]]] = {
    "scipy.special": {
        "logsumexp": _logsumexp, "softmax": lambda x, axis=None: softmax(big(x), axis),
        "log_softmax": lambda x, axis=None: log_softmax(big(x), axis),
        "multigammaln": _multigammaln, "polygamma": partial(elementwise, "polygamma"),
        "sinc": lambda x: np.sinc(big(x)),
        "digamma": partial(elementwise, "psi"),
    },
    "scipy.linalg": {
        "solve": _solve, "solve_triangular": _solve_triangular, "cholesky": _cholesky,
        "cho_factor": _cho_factor, "cho_solve": _cho_solve, "svd": _svd, "qr": _qr,
        "eigh": _eigh, "eigvalsh": _eigvalsh, "lu": _lu,
        "lu_factor": _lu_factor, "lu_solve": _lu_solve,
        "expm": lambda a, **_: big(linear().expm(raw(big(a)))),
        "sqrtm": lambda a, **_: big(linear().sqrtm(raw(big(a)))),
        "logm": lambda a, **_: big(linear().logm(raw(big(a)))),
        "solve_sylvester": _solve_sylvester, "block_diag": _block_diag,
        "toeplitz": _toeplitz, "circulant": _circulant,
        "inv": lambda a, **_: np.linalg.inv(big(a)), "det": lambda a, **_: np.linalg.det(big(a)),
        "pinv": lambda a, **_: np.linalg.pinv(big(a)),
        "norm": lambda a, ord=None, axis=None, keepdims=False, **_: np.linalg.norm(
            big(a), ord, axis, keepdims
        ),
        "svdvals": lambda a, **_: np.linalg.svd(big(a), compute_uv=False),
        "lstsq": lambda a, b, **_: np.linalg.lstsq(big(a), big(b), rcond=None),
    },
    "scipy.ndimage": {
        "correlate1d": _correlate1d, "convolve1d": _convolve1d,
        "uniform_filter1d": _uniform_filter1d, "gaussian_filter1d": _gaussian_filter1d,
        "gaussian_filter": _gaussian_filter,
    },
    "scipy.signal": {
        "convolve": _convolve, "fftconvolve": _convolve, "oaconvolve": _convolve,
        "correlate": _correlate, "lfilter": _lfilter,
        "convolve2d": lambda a, v, mode="full": _convolve(a, v, mode),
        "correlate2d": lambda a, v, mode="full": _correlate(a, v, mode),
    },
    "scipy.integrate": {
        "trapezoid": lambda y, x=None, dx=1.0, axis=-1: np.trapezoid(big(y), x, dx, axis),
        "cumulative_trapezoid": _cumulative_trapezoid, "simpson": _simpson,
    },
    "scipy.spatial.distance": {
        "cdist": _cdist,
        "pdist": lambda x, metric="euclidean", **_: _cdist(x, x, metric)[
            np.triu_indices(len(x), 1)
        ],
    },
    "scipy.fft": {
        **{
            name: _transform(name)
            for name in (
                "fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "fftn", "ifftn", "rfft2",
                "irfft2", "rfftn", "irfftn", "hfft", "ihfft",
            )
        },
        "dct": _dct,
    },
}  # fmt: skip
