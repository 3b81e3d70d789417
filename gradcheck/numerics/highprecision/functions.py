"""NumPy's functions on object arrays of big numbers, where NumPy's own code does not work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.fifty_digit_arithmetic import reduced_rows
from gradcheck.numerics.highprecision.numbers import Numbers, Unsupported

Function = Callable[..., Any]


def table(work: Numbers, ufunc: Callable[..., Array]) -> dict[Any, Function]:
    """Functions of NumPy and their implementations; `ufunc(name, *arrays)` applies a ufunc."""
    c = work.context
    lift = work.lifted

    def like(fill: Any) -> Function:
        return lambda prototype, *args, **keywords: full_like(prototype, fill, *args, **keywords)

    def full_like(
        prototype: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **_: Any
    ) -> Any:
        shape = np.shape(prototype) if shape is None else shape
        if dtype is not None and np.dtype(getattr(dtype, "dtype", dtype)).kind in "biu":
            return np.full(shape, fill_value, dtype=dtype)
        return np.broadcast_to(lift(fill_value), shape).copy()

    def total(
        x: Any,
        axis: Any = None,
        keepdims: Any = False,
        where: Any = True,
        initial: Any = 0,
        **_: Any,
    ) -> Any:
        x = lift(x)
        if where is not True:
            x = np.where(where, x, c.zero)
        keepdims = keepdims is True
        axes = tuple(range(x.ndim)) if axis is None else axis
        out = work.sum(x, axis=axes, keepdims=keepdims) if x.ndim else x
        if initial is not np._NoValue and not (isinstance(initial, int) and initial == 0):
            out = out + work.number(initial)
        return out

    def count(x: Array, axis: Any, where: Any = True) -> Any:
        if where is not True:
            return lift(np.sum(np.broadcast_to(where, x.shape), axis=axis))
        axes = range(x.ndim) if axis is None else np.atleast_1d(axis).tolist()
        out = 1
        for a in axes:
            out *= x.shape[a]
        return work.real(out)

    def mean(x: Any, axis: Any = None, keepdims: Any = False, where: Any = True) -> Any:
        x = lift(x)
        counted = count(x, axis, where)
        if where is not True and keepdims is True:
            counted = lift(np.sum(np.broadcast_to(where, x.shape), axis=axis, keepdims=True))
        return ufunc("divide", total(x, axis, keepdims, where), counted)

    def var(
        x: Any,
        axis: Any = None,
        ddof: float = 0,
        keepdims: Any = False,
        where: Any = True,
        mean: Any = None,
        correction: Any = None,
    ) -> Any:
        x = lift(x)
        if isinstance(correction, (int, float)):
            ddof = correction
        middle = average_of(x, axis, True, where) if mean is None or mean is np._NoValue else mean
        away = x - middle
        square = away * ufunc("conjugate", away)
        out = total(square, axis, keepdims, where)
        out = work.real_part(out) if work.has_complex(np.asarray(out)) else out
        return ufunc("divide", out, count(x, axis, where) - work.number(ddof))

    average_of = mean

    def std(*args: Any, **keywords: Any) -> Any:
        return ufunc("sqrt", var(*args, **keywords))

    def where(condition: Any, *choices: Any) -> Any:
        condition = np.asarray(condition).astype(bool)
        if not choices:
            return np.nonzero(condition)
        if all(np.asarray(v).dtype.kind != "O" for v in choices):
            return np.where(condition, *choices)
        return np.where(condition, *map(lift, choices))

    def clip(x: Any, a_min: Any = None, a_max: Any = None, **more: Any) -> Any:
        low = more.get("min", a_min)
        high = more.get("max", a_max)
        low, high = (None if v is np._NoValue else v for v in (low, high))
        x = lift(x)
        if low is not None:
            x = ufunc("maximum", x, low)
        return x if high is None else ufunc("minimum", x, high)

    def isclose(
        a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Any:
        a, b = lift(a), lift(b)
        near = np.frompyfunc(
            lambda p, q: p == q or bool(abs(p - q) <= atol + rtol * abs(q))
            or (equal_nan and p != p and q != q), 2, 1
        )  # fmt: skip
        return np.asarray(near(a, b)).astype(bool)[()]

    def nan_to_num(
        x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
    ) -> Any:
        largest = float(np.finfo(work.dtype64).max)
        top = work.number(largest if posinf is None else posinf)
        low = work.number(-largest if neginf is None else neginf)
        none = work.number(nan)
        pick = np.frompyfunc(
            lambda v: none if v != v else top if v == c.inf else low if v == c.ninf else v, 1, 1
        )
        return pick(lift(x))

    def rounded(x: Any, decimals: int = 0) -> Any:
        unit = c.mpf(10) ** int(decimals)
        return ufunc("rint", lift(x) * unit) / unit

    def real(x: Any) -> Array:
        return work.real_part(lift(x))

    def imag(x: Any) -> Array:
        return work.imag_part(lift(x))

    def elementwise(function: Function) -> Function:
        return lambda x: np.frompyfunc(function, 1, 1)(lift(x))

    def angle(x: Any, deg: bool = False) -> Any:
        scale = 180 / c.pi if deg else c.one
        return elementwise(lambda v: c.arg(v) * scale)(x)

    def is_complex(x: Any) -> bool:
        return work.has_complex(lift(x))

    def interp(
        x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
    ) -> Any:
        x, xp, fp = lift(x), lift(xp), lift(fp)
        if period is not None:
            period = work.number(period)
            x, xp = ufunc("remainder", x, period), ufunc("remainder", xp, period)
            order = np.argsort(xp, kind="stable")
            xp, fp = xp[order], fp[order]
            xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
            fp = np.concatenate([fp[-1:], fp, fp[:1]])
        low = fp[0] if left is None else work.number(left)
        high = fp[-1] if right is None else work.number(right)

        def one(v: Any) -> Any:
            if v < xp[0]:
                return low
            if v > xp[-1]:
                return high
            j = min(int(np.searchsorted(xp, v, side="right")) - 1, len(xp) - 2)
            if j < 0:
                return fp[0]
            return fp[j] + (fp[j + 1] - fp[j]) / (xp[j + 1] - xp[j]) * (v - xp[j])

        return np.frompyfunc(one, 1, 1)(x)

    def digitize(x: Any, bins: Any, right: bool = False) -> Any:
        bins = lift(bins)
        x = lift(x)
        down = len(bins) > 1 and bins[0] > bins[-1]
        places = np.searchsorted(
            bins[::-1] if down else bins, x, side="right" if right == down else "left"
        )
        return len(bins) - places if down else places

    def dot(a: Any, b: Any) -> Any:
        a, b = lift(a), lift(b)
        if not a.ndim or not b.ndim:
            return a * b
        if b.ndim == 1 or a.ndim == 1 or (a.ndim == 2 and b.ndim == 2):
            return product(work, a, b)
        return np.dot(a, b)

    def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
        return np.tensordot(lift(a), lift(b), axes)

    def vdot(a: Any, b: Any) -> Any:
        return np.sum(ufunc("conjugate", lift(a).ravel()) * lift(b).ravel())

    def inner(a: Any, b: Any) -> Any:
        return np.inner(lift(a), lift(b))

    def put(x: Any, ind: Any, v: Any, mode: Any = "raise") -> None:
        np.put(x, ind, lift(v), mode)

    def array_equal(a: Any, b: Any, equal_nan: bool = False) -> bool:
        a, b = lift(a), lift(b)
        return a.shape == b.shape and bool(np.all(a == b))

    def logspace_like(name: str) -> Function:
        def spaced(start: Any, stop: Any, num: int = 50, endpoint: bool = True, **more: Any) -> Any:
            start, stop = lift(start), lift(stop)
            steps = num - 1 if endpoint else num
            at = np.array([c.mpf(k) / max(steps, 1) for k in range(num)], dtype=object)
            at = at.reshape((num,) + (1,) * max(start.ndim, stop.ndim))
            line = start + (stop - start) * at
            if name == "linspace":
                return line
            return ufunc("power", work.number(more.get("base", 10.0)), line)

        return spaced

    def quantile(scale: int) -> Function:
        def at(
            a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
            method: str = "linear", keepdims: bool = False, **more: Any,
        ) -> Any:  # fmt: skip
            if method not in ("linear", "lower", "higher", "nearest", "midpoint"):
                raise Unsupported(f"quantile(method={method!r}) is not known in big numbers")
            a = lift(a)
            axes = axis if axis is None else tuple(np.atleast_1d(axis).tolist())
            rows, shape, kept = reduced_rows(a, axes)
            rows = np.sort(rows)
            parts = np.asarray(lift(q) / scale, dtype=object)
            results = []
            for part in parts.ravel().tolist():
                where = part * (rows.shape[-1] - 1)
                low = min(work.whole(where), max(rows.shape[-1] - 2, 0))
                high = min(low + 1, rows.shape[-1] - 1)
                part_of = where - low
                if method != "linear" and part_of not in (0, 1):
                    nearest = int(work.whole(c.nint(where)) > low)
                    part_of = {"lower": 0, "higher": 1, "nearest": nearest}.get(method, 0.5)
                results.append(rows[..., low] + (rows[..., high] - rows[..., low]) * part_of)
            out = np.empty((len(results), *shape), dtype=object)
            for k, result in enumerate(results):
                out[k] = result
            return out.reshape([*parts.shape, *(kept if keepdims else shape)])

        return at

    def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = None) -> Any:
        p = lift(p)
        period = 2 * c.pi if period is None else work.number(period)
        steps = np.diff(p, axis=axis)
        turn = np.frompyfunc(lambda d: c.floor((d + period / 2) / period) * -period, 1, 1)
        limit = period / 2 if discont is None else max(work.number(discont), period / 2)
        fix = np.where(np.abs(steps) < limit, c.zero, turn(steps))
        zero = np.full_like(np.take(p, [0], axis=axis), c.zero)
        return p + np.cumsum(np.concatenate([zero, fix], axis=axis), axis=axis)

    def cov(
        m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
        fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
    ) -> Any:  # fmt: skip
        if fweights is not None or aweights is not None:
            raise Unsupported("cov with weights is not known in big numbers")
        parts = [np.atleast_2d(lift(v)) for v in (m, y) if v is not None]
        parts = [v if rowvar or v.shape[0] == 1 else v.T for v in parts]
        x = np.concatenate(parts)
        away = x - mean(x, 1, True)
        n = x.shape[1] - (ddof if ddof is not None else 0 if bias else 1)
        return np.squeeze(work.matmul(away, ufunc("conjugate", away).T) / n)

    def corrcoef(x: Any, y: Any = None, rowvar: bool = True, **_: Any) -> Any:
        c = np.asarray(cov(x, y, rowvar), dtype=object)
        if not c.ndim:
            return c / c
        size = ufunc("sqrt", np.diag(c))
        return c / size[:, None] / size[None, :]

    def gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
        f = lift(f)
        axes = list(range(f.ndim)) if axis is None else np.atleast_1d(axis).tolist()
        steps = list(spacing) or [1.0]
        steps = steps * len(axes) if len(steps) == 1 else steps
        out = []
        for a, step in zip(axes, steps, strict=True):
            rows = np.moveaxis(f, a, -1)
            given = lift(step)
            h = np.broadcast_to(given, rows.shape[-1] - 1) if not given.ndim else np.diff(given)
            low, high = h[:-1], h[1:]
            slope = np.empty(rows.shape, dtype=object)
            slope[..., 1:-1] = (
                low**2 * rows[..., 2:]
                + (high**2 - low**2) * rows[..., 1:-1]
                - high**2 * rows[..., :-2]
            ) / (low * high * (low + high))
            ends = (rows[..., 1] - rows[..., 0]) / h[0], (rows[..., -1] - rows[..., -2]) / h[-1]
            if edge_order == 2:
                ends = (
                    ends[0] * (1 + h[0] / (h[0] + h[1]))
                    - (rows[..., 2] - rows[..., 1]) / h[1] * h[0] / (h[0] + h[1]),
                    ends[1] * (1 + h[-1] / (h[-1] + h[-2]))
                    - (rows[..., -2] - rows[..., -3]) / h[-2] * h[-1] / (h[-1] + h[-2]),
                )
            slope[..., 0], slope[..., -1] = ends
            out.append(np.moveaxis(slope, -1, a))
        return out[0] if len(out) == 1 else tuple(out)

    return {
        np.cov: cov, np.corrcoef: corrcoef, np.gradient: gradient,
        np.zeros_like: like(0), np.empty_like: like(0), np.ones_like: like(1),
        np.full_like: full_like, np.sum: total, np.mean: mean, np.var: var, np.std: std,
        np.where: where, np.clip: clip, np.isclose: isclose,
        np.allclose: lambda *a, **k: bool(np.all(isclose(*a, **k))),
        np.array_equal: array_equal, np.nan_to_num: nan_to_num, np.round: rounded,
        np.around: rounded, np.real: real, np.imag: imag, np.angle: angle,
        np.iscomplexobj: is_complex, np.isrealobj: lambda x: not is_complex(x),
        np.isreal: lambda x: np.asarray(imag(x) == 0).astype(bool),
        np.iscomplex: lambda x: np.asarray(imag(x) != 0).astype(bool),
        np.sinc: elementwise(c.sincpi), np.i0: elementwise(partial(c.besseli, 0)),
        np.interp: interp, np.digitize: digitize, np.fix: partial(ufunc, "trunc"),
        np.dot: dot, np.tensordot: tensordot, np.vdot: vdot, np.inner: inner, np.put: put,
        np.linspace: logspace_like("linspace"), np.logspace: logspace_like("logspace"),
        np.quantile: quantile(1), np.percentile: quantile(100),
        np.nanquantile: quantile(1), np.nanpercentile: quantile(100), np.unwrap: unwrap,
        np.median: lambda a, axis=None, out=None, overwrite_input=False, keepdims=False: quantile(
            1
        )(a, 0.5, axis, keepdims=keepdims),
    }  # fmt: skip


def product(work: Numbers, a: Array, b: Array) -> Array:
    """`a @ b` of object arrays, vectors and stacks of matrices alike."""
    first, last = a.ndim == 1, b.ndim == 1
    a = a[None, :] if first else a
    b = b[:, None] if last else b
    work.spend(a.size * b.shape[-1] // 8)
    out = work.matmul(a, b)
    out = out[..., 0] if last else out
    return np.asarray((out[..., 0] if last else out[..., 0, :]) if first else out, dtype=object)


def products(work: Numbers) -> dict[str, Function]:
    """The ufuncs that sum products."""

    def matmul(a: Array, b: Array, **_: Any) -> Array:
        return product(work, a, b)

    def vecdot(a: Array, b: Array, axis: int = -1, **_: Any) -> Array:
        return work.sum(work.conjugate(a) * b, axis=axis)

    def matvec(a: Array, b: Array, **_: Any) -> Array:
        return np.asarray(product(work, a, b[..., None])[..., 0], dtype=object)

    def vecmat(a: Array, b: Array, **_: Any) -> Array:
        return np.asarray(product(work, a[..., None, :], b)[..., 0, :], dtype=object)

    return {"matmul": matmul, "vecdot": vecdot, "matvec": matvec, "vecmat": vecmat}
