"""Verifies the pairs, by their forward's code (or the smooth function behind it) in many digits.

It does not use gradcheck. During an evaluation, the names `np`, `special` and `linalg` of the
corpus' modules are bound to mpmath. Roundings in the code (`astype`, `round`) have no effect:
`behind` replaces functions that round. For other forwards, PyTorch's or JAX's own derivative in
float64 is the truth.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import mpmath
import numpy as np

from .corpus import corpus
from .pair import Pair

mp = mpmath.mp


class Big(np.ndarray):
    """Objects that no `astype` rounds."""

    def astype(self, dtype, *args, **kwargs):
        return self.copy() if np.dtype(dtype).kind in "fc" else np.asarray(self).astype(dtype)

    def var(self, axis=None, keepdims=False, ddof=0, **_):
        c = self - self.mean(axis=axis, keepdims=True)
        n = self.size if axis is None else self.shape[axis]
        return (c * conj(c)).sum(axis=axis, keepdims=keepdims) / (n - ddof)

    def std(self, axis=None, keepdims=False, ddof=0, **_):
        return Numpy.sqrt(self.var(axis=axis, keepdims=keepdims, ddof=ddof))

    def conj(self):
        return conj(self)

    @property
    def real(self):
        return ufunc(mpmath.re)(self)

    @property
    def imag(self):
        return ufunc(mpmath.im)(self)


def big(values: Any) -> Any:
    """An array of big numbers."""
    array = np.asarray(values)
    if array.dtype.kind in "fc":
        flat = [mpmath.mpmathify(v) for v in array.ravel().tolist()]
        array = np.array([*flat, None], dtype=object)[:-1].reshape(array.shape)
    if array.dtype != object:
        return array
    if any(isinstance(v, np.ndarray) for v in array.ravel().tolist()):  # 0-d, in a list
        flat = [v.item() if isinstance(v, np.ndarray) else v for v in array.ravel().tolist()]
        array = np.array([*flat, None], dtype=object)[:-1].reshape(array.shape)
    return array.view(Big)


def ufunc(f, count=1):
    """A function of mpmath, element by element."""
    made = np.frompyfunc(f, count, 1)

    def of(*args, **known):
        where = known.get("where")
        if where is not None:
            raise NotImplementedError("where=")
        return big(made(*map(big, args[:count])))

    return of


conj = ufunc(mpmath.conj)


def matrix(a):
    return mpmath.matrix(np.asarray(a).tolist())


def back(m):
    return big(np.array([*m], dtype=object).reshape(m.rows, m.cols))


def batched(f):
    """A function of one matrix, for stacks of them."""

    def of(a, *rest, **known):
        a = big(a)
        if a.ndim <= 2:
            return f(a, *rest, **known)
        parts = [
            f(a[i], *[big(r)[i] if np.ndim(r) > 1 else r for r in rest], **known)
            for i in range(len(a))
        ]
        return big(np.stack([np.asarray(p) for p in parts]))

    return of


def inv(a):
    return back(mp.inverse(matrix(a)))


def solve(a, b):
    b = big(b)
    if b.ndim == 1:
        return back(mp.lu_solve(matrix(a), matrix(b)))[:, 0]
    return big(np.stack([np.asarray(solve(a, b[:, k])) for k in range(b.shape[1])], 1))


def det(a):
    return big(mp.det(matrix(a)))


def slogdet(a):
    d = mp.det(matrix(a))
    return big(mp.sign(d)), big(mp.log(abs(d)))


def cholesky(a):
    return back(mp.cholesky(matrix(a)))


def eigh(a):
    symmetric = (matrix(a) + matrix(a).H) / 2
    values, vectors = mp.eigsy(symmetric) if symmetric == symmetric.T else mp.eighe(symmetric)
    order = sorted(range(len(values)), key=lambda i: mpmath.re(values[i]))
    q = back(vectors)[:, order]
    return big(np.array([values[i] for i in order], dtype=object)), q


def eigvalsh(a):
    return eigh(a)[0]


def svd(a, full_matrices=True, compute_uv=True):
    u, s, v = (
        mp.svd_r(matrix(a))
        if not any(isinstance(x, mpmath.mpc) for x in np.ravel(a))
        else mp.svd_c(matrix(a))
    )
    s = back(s)[:, 0]
    return (back(u), s, back(v)) if compute_uv else s


def norm(x, ord=None, axis=None, keepdims=False):
    x = big(x)
    size = np.abs(np.asarray(x)).view(Big)
    if ord == "nuc":
        return svd(x, compute_uv=False).sum()
    if ord == 2 and x.ndim == 2 and axis is None:
        return svd(x, compute_uv=False)[0]
    if ord in (None, "fro", 2):
        return Numpy.sqrt((size * size).sum(axis=axis, keepdims=keepdims))
    if ord == np.inf:
        return big(np.max(size, axis=axis, keepdims=keepdims))
    return Numpy.power(
        (size ** mpmath.mpf(ord)).sum(axis=axis, keepdims=keepdims), 1 / mpmath.mpf(ord)
    )


def qr(a):
    """With the signs of the diagonal as LAPACK leaves them: taken from NumPy's own at float64."""
    a = big(a)
    there = np.linalg.qr(a.astype(object).astype(float))
    q, r = mp.qr(matrix(a), mode="skinny")
    q, r = back(q), back(r)
    sign = np.sign(np.diag(there[1])) * np.array([int(mpmath.sign(v)) for v in np.diag(r)])
    return q * sign, sign[:, None] * r


def pinv(a):
    a = big(a)
    if a.shape[0] >= a.shape[1]:
        return solve(a.T @ a, a.T)
    return a.T @ inv(a @ a.T)


def power_of(a, n):
    out = np.eye(len(a)) if n == 0 else a if n > 0 else inv(a)
    for _ in range(abs(n) - 1):
        out = out @ (a if n > 0 else inv(a))
    return big(out)


class Module:
    """A module whose functions are mpmath's where it has them, and its own elsewhere."""

    def __init__(self, own, **functions):
        self.__dict__.update(functions)
        self._own = own

    def __getattr__(self, name):
        return getattr(self._own, name)


LINALG = Module(
    np.linalg,
    inv=batched(inv),
    solve=batched(solve),
    det=batched(det),
    slogdet=slogdet,
    cholesky=batched(cholesky),
    eigh=eigh,
    eigvalsh=eigvalsh,
    svd=svd,
    svdvals=lambda a: svd(a, compute_uv=False),
    norm=norm,
    qr=qr,
    pinv=pinv,
    matrix_power=power_of,
    multi_dot=lambda ms: reduce(np.matmul, ms),
    expm=lambda a: back(mp.expm(matrix(a), method="taylor")),
    logm=lambda a: back(mp.logm(matrix(a))),
    sqrtm=lambda a: back(mp.sqrtm(matrix(a))),
)


def mean(x, axis=None, keepdims=False, **_):
    return big(np.asarray(big(x)).mean(axis=axis, keepdims=keepdims))


def sinc(x):
    return mpmath.sinc(mpmath.pi * x)


def clip(x, low=None, high=None):
    x = big(x)
    x = x if low is None else big(np.maximum(x, low))
    return x if high is None else big(np.minimum(x, high))


def logaddexp(a, b):
    m = max(a, b)
    return m + mpmath.log(mpmath.exp(a - m) + mpmath.exp(b - m))


def absolute(x):
    return big(np.abs(big(x)))


def dft(x, sign, n):
    k = np.arange(n)
    w = [mpmath.expjpi(mpmath.mpf(sign * 2 * int(j)) / n) for j in range(n)]
    table = np.array([w[int(i * j) % n] for i in k for j in k], dtype=object).reshape(n, n)
    return big(np.asarray(big(x)) @ table)


def irfft(y):
    n = 2 * (y.shape[-1] - 1)
    full = np.concatenate([np.asarray(y), np.asarray(conj(y))[..., -2:0:-1]], -1)
    return ufunc(mpmath.re)(dft(full, 1, n) / n)


FFT = Module(
    np.fft,
    fft=lambda x: dft(x, -1, x.shape[-1]),
    ifft=lambda x: dft(x, 1, x.shape[-1]) / x.shape[-1],
    rfft=lambda x: dft(x, -1, x.shape[-1])[..., : x.shape[-1] // 2 + 1],
    irfft=irfft,
)
SAME = (
    *("exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh", "log10", "expm1"),
    *("log1p", "conj"),
)
INVERSE = ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")


def cuberoot(x):
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def zeros(shape, *_, **__):
    return big(np.zeros(shape))


def zeros_like(x, **_):
    return zeros(np.shape(x))


def cross(a, b):
    parts = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return big(np.stack(parts, -1))


Numpy = Module(
    np,
    linalg=LINALG,
    fft=FFT,
    **{name: ufunc(getattr(mpmath, name)) for name in SAME},
    **{name: ufunc(getattr(mpmath, name.replace("arc", "a"))) for name in INVERSE},
    **dict.fromkeys(("abs", "absolute"), absolute),
    **dict.fromkeys(("zeros", "empty"), zeros),
    **dict.fromkeys(("zeros_like", "empty_like"), zeros_like),
    **dict.fromkeys(
        ("array", "asarray", "ascontiguousarray", "float16", "float32", "float64"), big
    ),
    angle=ufunc(mpmath.arg),
    arctan2=ufunc(mpmath.atan2, 2),
    cbrt=ufunc(cuberoot),
    clip=clip,
    cross=cross,
    exp2=ufunc(lambda x: mpmath.mpf(2) ** x),
    eye=lambda *shape, **_: big(np.eye(*shape)),
    hypot=ufunc(mpmath.hypot, 2),
    imag=ufunc(mpmath.im),
    isfinite=ufunc(mpmath.isfinite),
    log2=ufunc(lambda x: mpmath.log(x, 2)),
    logaddexp=ufunc(logaddexp, 2),
    mean=mean,
    ones=lambda shape, *_, **__: big(np.ones(shape)),
    power=ufunc(lambda a, b: a**b, 2),
    real=ufunc(mpmath.re),
    sinc=ufunc(sinc),
    square=lambda x: x * x,
    std=lambda x, **k: big(x).std(**k),
    trapezoid=lambda y, x: ((y[1:] + y[:-1]) * (x[1:] - x[:-1])).sum() / 2,
    var=lambda x, **k: big(x).var(**k),
)
SPECIAL = Module(
    None,
    erf=ufunc(mpmath.erf),
    erfc=ufunc(mpmath.erfc),
    gammaln=ufunc(mpmath.loggamma),
    expit=ufunc(lambda x: 1 / (1 + mpmath.exp(-x))),
    ndtr=ufunc(mpmath.ncdf),
    logsumexp=lambda x, axis=None: Numpy.log(Numpy.exp(x).sum(axis=axis)),
    softmax=lambda x, axis=-1: Numpy.exp(x) / Numpy.exp(x).sum(axis=axis, keepdims=True),
    xlogy=ufunc(lambda x, y: x * mpmath.log(y) if x else x * 0, 2),
    log_ndtr=ufunc(lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)),
    psi=ufunc(mpmath.psi, 2),
    logit=ufunc(lambda x: mpmath.log(x / (1 - x))),
)
BOUND = {"np": Numpy, "special": SPECIAL, "linalg": LINALG}


@contextmanager
def many_digits(digits: int) -> Iterator[None]:
    """The corpus' modules speak mpmath."""
    before = []
    for name, module in list(sys.modules.items()):
        if name.startswith(__package__ + ".") and name != __name__ and module is not None:
            for key, value in BOUND.items():
                if key in module.__dict__:
                    before.append((module, key, module.__dict__[key]))
                    setattr(module, key, value)
    try:
        with mpmath.workdps(digits):
            yield
    finally:
        for module, key, value in before:
            setattr(module, key, value)


def outputs(pair: Pair, primals: list[Any]) -> list[Any]:
    """All of forward's numbers, end to end."""
    text = pair.behind or pair.forward
    name = getattr(text, "__name__", "")
    for own, module in ((np, Numpy), (np.linalg, LINALG), (np.fft, FFT)):
        if getattr(own, name, None) is text:
            text = getattr(module, name)
            break
    found = text(*primals, **pair.attrs)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [v for o in found for v in np.ravel(np.asarray(o)).tolist()]


def cotangents(pair: Pair, seed: int = 0) -> tuple[Any, ...]:
    """One per output, in forward's own types."""
    rng = np.random.default_rng(seed)
    found = pair.forward(*pair.cast("float64"), **pair.attrs)
    many = isinstance(found, (tuple, list))
    made = []
    for o in map(np.asarray, found if many else (found,)):
        ct = rng.normal(size=o.shape)
        made.append(ct + 1j * rng.normal(size=o.shape) if o.dtype.kind == "c" else ct)
    made = [np.asarray(c) for c in made]
    return tuple(made)


def asked(pair: Pair, cts: tuple[Any, ...], primals: tuple[Any, ...]) -> list[Any]:
    """The gradients that the VJP gives, one per primal (None for integers)."""
    single = not isinstance(pair.forward(*primals, **pair.attrs), (tuple, list))
    got = pair.vjp(cts[0] if single else cts, *primals, **pair.attrs)
    return list(got) if isinstance(got, (tuple, list)) else [got]


def gradients(pair: Pair) -> Iterator[tuple[Any, Any, Any]]:
    """Per floating primal: what the VJP gives, and the one-sided truths behind and ahead."""
    given = pair.cast("float64")
    cts = cotangents(pair)
    with np.errstate(all="ignore"):
        got = asked(pair, cts, given)
    flat = [v for c in cts for v in np.ravel(c).tolist()]
    sizes = [abs(v) for p in given if p.dtype.kind in "fc" for v in p.ravel().tolist() if v]
    least = min(sizes, default=1.0)
    plain = pair.kind == "special" and least > 1e-30
    digits = 60 if plain else 400 if least > 1e-90 and max(sizes, default=1) < 1e90 else 800
    step = mpmath.mpf(10) ** (-20 if plain else -40)
    with many_digits(digits):
        base = [big(p) for p in given]
        zero = outputs(pair, base)
        ct = [mpmath.conj(mpmath.mpmathify(v)) for v in flat]

        def moved(i, at, by):
            primals = [b.copy() for b in base]
            primals[i].reshape(-1)[at] += by
            there = outputs(pair, primals)
            return mpmath.fsum(
                mpmath.re(c * (b - a)) for c, a, b in zip(ct, zero, there, strict=True)
            )

        for i, p in enumerate(given):
            if p.dtype.kind not in "fc":
                continue
            sides = [np.empty(p.size, dtype=complex) for _ in range(2)]
            for k, v in enumerate(p.ravel().tolist()):
                h = step * (abs(mpmath.mpmathify(v)) or mpmath.mpf(least))
                for side, s in zip(sides, (-h, h), strict=True):
                    slope = moved(i, k, s) / s
                    if p.dtype.kind == "c":
                        slope = mpmath.mpc(slope, moved(i, k, mpmath.mpc(0, s)) / s)
                    side[k] = complex(slope)
            yield np.asarray(got[i]), *(s.reshape(p.shape) for s in sides)


def error(pair: Pair) -> float:
    """The largest distance of the VJP from what is right, over the largest gradient."""
    if pair.hidden:
        return by_differences(pair)
    worst = 0.0
    floor = 1e-320 if any(np.any(p) for p in pair.primals) else 1e-30
    if pair.loses == np.inf:  # it cancels: what is left is held against what cancelled
        sizes = np.concatenate([np.abs(np.ravel(p)) for p in pair.primals])
        floor = 1e9 * np.abs(np.concatenate([np.ravel(c) for c in cotangents(pair)])).max()
        floor *= max(1.0, 1 / sizes.min()) * 1e-18
    for got, behind, ahead in gradients(pair):
        if got.shape != behind.shape:
            raise ValueError(f"the gradient has shape {got.shape}, the primal {behind.shape}")
        with np.errstate(all="ignore"):
            scale = max(np.abs(behind).max(initial=0), np.abs(ahead).max(initial=0), floor)
            middle = (behind + ahead) / 2
            far = np.abs(got - middle) - np.abs(ahead - behind) / 2
            part = np.max(far / scale, initial=0.0)
        worst = max(worst, float(part) if np.isfinite(part) else np.inf)
    return (0.0 if worst <= 1 else np.nan) if pair.loses == np.inf else worst


def by_differences(pair: Pair) -> float:
    """The same where big numbers cannot go: differences of sixth order in float64."""
    given, cts = pair.cast("float64"), cotangents(pair)
    got = asked(pair, cts, given)
    f = pair.behind or pair.forward
    flat = np.concatenate([np.ravel(c) for c in cts])

    def value(primals):
        found = f(*primals, **pair.attrs)
        found = found if isinstance(found, (tuple, list)) else (found,)
        return np.concatenate([np.ravel(o) for o in found]) @ flat

    worst = 0.0
    for i, p in enumerate(given):
        if p.dtype.kind != "f":
            continue
        free = pair.free[i] if i < len(pair.free) else np.zeros(p.shape, bool)
        want = np.where(free, np.asarray(got[i], float), 0.0)
        for k in np.flatnonzero(~np.ravel(free)):
            size = abs(p.flat[k])
            h = 2.0**-7 if size > 100 else 2.0 ** np.floor(np.log2(1e-3 * max(size, 0.1)))
            total = 0.0
            for n, w in ((1, 45), (2, -9), (3, 1)):
                for s in (1, -1):
                    moved = [q.copy() for q in given]
                    moved[i].reshape(-1)[k] += s * n * h
                    total += s * w * value(moved)
            want.reshape(-1)[k] = total / (60 * h)
        scale = max(np.abs(want).max(initial=0), 1e-3)
        worst = max(worst, float(np.abs(np.asarray(got[i]) - want).max(initial=0) / scale))
    return worst if worst > 1e-6 else 0.0


def verify_all(kinds: list[str], names: list[str]) -> int:
    """Print what is not right, or cannot be verified; 1 if there is any."""
    count = bad = hidden = 0
    for name, pair in corpus().items():
        if (kinds and pair.kind not in kinds) or (names and not any(n in name for n in names)):
            continue
        count += 1
        hidden += pair.hidden
        try:
            with np.errstate(all="ignore"):
                far = error(pair)
        except Exception as problem:  # noqa: BLE001 - said, and counted
            sys.stdout.write(f"UNKNOWN {name}: {type(problem).__name__}: {problem}\n")
            bad += 1
            continue
        sys.stdout.flush()
        if not far <= pair.loses:
            sys.stdout.write(f"WRONG {name}: {far:.2g} of the largest element\n")
            bad += 1
    sys.stdout.write(f"{count} pairs, {bad} not verified, {hidden} verified by differences only\n")
    return 1 if bad else 0
