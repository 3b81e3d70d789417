"""numpy.linalg on object arrays of big numbers: one matrix at a time, stacks by a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.highprecision.numbers import Numbers, Unsupported

Array = NDArray[Any]
Function = Callable[..., Any]

SWEEPS = 60
"""Sweeps of Jacobi's rotations: each doubles the digits once the first few have begun."""


class Linear:
    """Linear algebra in big numbers; shapes and results as in numpy.linalg."""

    def __init__(self, work: Numbers) -> None:
        """Compute in the numbers of `work`."""
        self._work = work
        self._c = work.context

    def table(self) -> dict[Any, Function]:
        """Function of numpy.linalg → ours."""
        la = np.linalg
        return {
            la.inv: self.inv, la.solve: self.solve, la.det: self.det, la.slogdet: self.slogdet,
            la.cholesky: self.cholesky, la.eigh: self.eigh, la.eigvalsh: self.eigvalsh,
            la.svd: self.svd, la.svdvals: lambda x: self.svd(x, compute_uv=False), la.qr: self.qr,
            la.norm: self.norm, la.pinv: self.pinv, la.matrix_power: self.matrix_power,
            la.lstsq: self.lstsq, la.cond: self.cond, la.multi_dot: self.multi_dot,
            la.eig: self.eig, la.eigvals: lambda x: self.eig(x)[0], la.trace: _trace,
            la.matrix_rank: self.matrix_rank, np.polyfit: self.polyfit,
            la.matrix_norm: self.matrix_norm, la.vector_norm: self.vector_norm,
            la.matmul: self._matmul, la.tensorsolve: self.tensorsolve, la.tensorinv: self.tensorinv,
        }  # fmt: skip

    # ── elimination ──────────────────────────────────────────────────────────────────────────

    def _eliminated(self, a: list[list[Any]], b: list[list[Any]]) -> tuple[Any, int]:
        """Gauss with pivots, in place: `a` upper triangular; the pivots' product and sign."""
        n, sign = len(a), 1
        det = self._c.one
        self._work.spend(n * n * (n + (len(b[0]) if b else 0)) // 3)
        for k in range(n):
            p = max(range(k, n), key=lambda i: abs(a[i][k]))
            if a[p][k] == 0:
                return self._c.zero, sign
            if p != k:
                a[p], a[k] = a[k], a[p]
                b[p], b[k] = b[k], b[p]
                sign = -sign
            pivot = a[k][k]
            det = det * pivot
            for i in range(k + 1, n):
                if a[i][k] == 0:
                    continue
                f = a[i][k] / pivot
                row, top = a[i], a[k]
                for j in range(k + 1, n):
                    row[j] = row[j] - f * top[j]
                row[k] = self._c.zero
                b[i] = [u - f * v for u, v in zip(b[i], b[k], strict=True)]
        return det * sign, sign

    def _solved(self, a: Array, b: Array) -> Array:
        rows, right = a.tolist(), b.tolist()
        det, _ = self._eliminated(rows, right)
        if det == 0:
            raise np.linalg.LinAlgError("Singular matrix")
        n = len(rows)
        for i in range(n - 1, -1, -1):
            total = right[i]
            for j in range(i + 1, n):
                f = rows[i][j]
                total = [u - f * v for u, v in zip(total, right[j], strict=True)]
            right[i] = [u / rows[i][i] for u in total]
        return _grid(right, b.shape)

    def solve(self, a: Any, b: Any) -> Array:
        a, b = self._work.lifted(a), self._work.lifted(b)
        if b.ndim == 1:
            return np.asarray(self.solve(a, b[:, None])[..., 0], dtype=object)
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a = np.broadcast_to(a, lead + a.shape[-2:])
        b = np.broadcast_to(b, lead + b.shape[-2:])
        return self._stacked(self._solved, (a, b), b.shape)

    def inv(self, a: Any) -> Array:
        a = self._work.lifted(a)
        return self.solve(a, self._eye(a.shape[-1]))

    def det(self, a: Any) -> Array:
        a = self._work.lifted(a)

        def one(m: Array) -> Any:
            rows = m.tolist()
            return self._eliminated(rows, [[] for _ in rows])[0]

        return self._numbers(one, a)

    def slogdet(self, a: Any) -> Any:
        det = self.det(a)
        sign = np.frompyfunc(
            lambda d: self._c.zero if d == 0 else d / abs(d), 1, 1)(det)  # fmt: skip
        logs = np.frompyfunc(
            lambda d: self._c.ninf if d == 0 else self._c.log(abs(d)), 1, 1)(det)  # fmt: skip
        kind = type(np.linalg.slogdet(np.eye(1)))
        return kind(np.asarray(sign, dtype=object), np.asarray(logs, dtype=object))

    def cholesky(self, a: Any, *, upper: bool = False) -> Array:
        a = self._work.lifted(a)
        if upper:
            a = self._adjoint(a)

        def one(m: Array) -> Array:
            n = len(m)
            out = np.full((n, n), self._c.zero, dtype=object)
            self._work.spend(n * n * n // 6 + n)
            for i in range(n):
                for j in range(i + 1):
                    s = m[i, j]
                    for k in range(j):
                        s = s - out[i, k] * self._c.conj(out[j, k])
                    if i == j:
                        s = s.real
                        if not s > 0:
                            raise np.linalg.LinAlgError("Matrix is not positive definite")
                        out[i, i] = self._c.sqrt(s)
                    else:
                        out[i, j] = s / out[j, j]
            return out

        lower = self._stacked(one, (a,), a.shape)
        return self._adjoint(lower) if upper else lower

    # ── eigenvalues ──────────────────────────────────────────────────────────────────────────

    def _rotated(self, m: Array) -> tuple[list[Any], Array]:
        """Jacobi: eigenvalues and vectors (columns) of one Hermitian matrix, ascending."""
        c, n = self._c, len(m)
        self._work.spend(8 * n * n * n + n)
        complex_ = any(type(v) is self._work.complex for v in m.ravel().tolist())
        values, vectors = (c.eighe if complex_ else c.eigsy)(c.matrix(m.tolist()))
        return (
            [values[i].real for i in range(n)],
            _grid([[vectors[i, j] for j in range(n)] for i in range(n)], (n, n)),
        )

    def eigh(self, a: Any, UPLO: str = "L") -> Any:  # noqa: N803  NumPy's name
        a = self._symmetric(self._work.lifted(a), UPLO)
        values = np.empty(a.shape[:-1], dtype=object)
        vectors = np.empty(a.shape, dtype=object)
        for at in np.ndindex(a.shape[:-2]):
            found, columns = self._rotated(a[at])
            values[at] = found
            vectors[at] = self._oriented(columns, a[at], UPLO)
        return _named("eigh", values, vectors)

    def eigvalsh(self, a: Any, UPLO: str = "L") -> Array:  # noqa: N803  NumPy's name
        a = self._symmetric(self._work.lifted(a), UPLO)
        values = np.empty(a.shape[:-1], dtype=object)
        for at in np.ndindex(a.shape[:-2]):
            values[at] = self._rotated(a[at])[0]
        return values

    def _symmetric(self, a: Array, uplo: str) -> Array:
        """The matrix that NumPy reads from one triangle."""
        if uplo.upper() == "U":
            a = self._adjoint(a)
        lower = np.tril(np.ones(a.shape[-2:], dtype=bool))
        return np.where(lower, a, self._adjoint(a))

    def _oriented(self, columns: Array, m: Array, uplo: str) -> Array:
        """Columns with the signs that NumPy gives them in float64."""
        floats = np.linalg.eigh(self._rounded(m), "U" if uplo.upper() == "U" else "L")[1]
        return np.asarray(columns * self._signs(columns, floats), dtype=object)

    def _signs(self, columns: Array, floats: Array) -> Array:
        rounded = self._rounded(columns)
        overlap = np.sum(np.conj(rounded) * floats, axis=-2)
        if np.iscomplexobj(overlap) and np.any(overlap.imag):
            raise Unsupported("the phases of complex vectors are a matter of convention")
        signs = np.where(np.real(overlap) < 0, -self._c.one, self._c.one)
        return np.asarray(signs, dtype=object)

    def _rounded(self, m: Array) -> Array:
        if any(type(v) is self._work.complex for v in m.ravel().tolist()):
            parts = [np.frompyfunc(lambda v, p=p: getattr(v, p), 1, 1)(m) for p in ("real", "imag")]
            real, imag = (self._work.floats(p) for p in parts)
            return real + 1j * imag
        return self._work.floats(m)

    def eig(self, a: Any) -> Any:
        a = self._work.lifted(a)
        values = np.empty(a.shape[:-1], dtype=object)
        vectors = np.empty(a.shape, dtype=object)
        for at in np.ndindex(a.shape[:-2]):
            values[at], vectors[at] = self._general(a[at])
        return _named("eig", values, vectors)

    def _general(self, m: Array) -> tuple[list[Any], Array]:
        c, n = self._c, len(m)
        self._work.spend(20 * n * n * n + n)
        found, columns = c.eig(c.matrix(m.tolist()))
        floats, directions = np.linalg.eig(self._rounded(m))
        order, left = [], list(range(n))
        for value in floats.tolist():
            near = min(left, key=lambda i: abs(found[i] - value))
            order.append(near)
            left.remove(near)
        grid = _grid([[columns[i, j] for j in order] for i in range(n)], (n, n))
        values = [c.mpc(found[i]) for i in order]
        if not np.iscomplexobj(floats):
            values = [v.real for v in values]
            grid = np.frompyfunc(lambda v: c.mpc(v).real, 1, 1)(grid)
        sizes = [c.sqrt(sum(abs(v) ** 2 for v in grid[:, j])) for j in range(n)]
        grid = grid / np.array(sizes, dtype=object)
        if np.iscomplexobj(floats):
            # LAPACK makes the largest component of each column real.
            turned = np.empty_like(grid)
            for j in range(n):
                k = int(np.argmax(np.abs(directions[:, j])))
                turned[:, j] = grid[:, j] * (abs(grid[k, j]) / grid[k, j])
                if (directions[k, j].real < 0) != (turned[k, j].real < 0):
                    turned[:, j] = -turned[:, j]
            return values, turned
        return values, grid * self._signs(grid, directions)

    # ── singular values, QR ──────────────────────────────────────────────────────────────────

    def svd(
        self, a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
    ) -> Any:
        a = self._work.lifted(a)
        m, n = a.shape[-2:]
        k = min(m, n)
        if compute_uv and full_matrices and m != n:
            raise Unsupported(
                "svd(full_matrices=True) of a matrix that is not square is not unique"
            )
        values = np.empty((*a.shape[:-2], k), dtype=object)
        left = np.empty((*a.shape[:-1], k), dtype=object)
        right = np.empty((*a.shape[:-2], k, n), dtype=object)
        c = self._c
        for at in np.ndindex(a.shape[:-2]):
            self._work.spend(12 * m * n * k + 1)
            u, s, vh = c.svd(c.matrix(a[at].tolist()))
            values[at] = [s[i].real for i in range(k)]
            if compute_uv:
                u = _grid([[u[i, j] for j in range(k)] for i in range(m)], (m, k))
                vh = _grid([[vh[i, j] for j in range(n)] for i in range(k)], (k, n))
                float_u = np.linalg.svd(self._rounded(a[at]), full_matrices=False)[0]
                signs = self._signs(u, float_u)
                left[at], right[at] = u * signs, vh * signs[:, None]
        return _named("svd", left, values, right) if compute_uv else values

    def qr(self, a: Any, mode: str = "reduced") -> Any:
        if mode not in ("reduced", "r", "complete"):
            raise Unsupported(f"qr(mode={mode!r}) is not known in big numbers")
        a = self._work.lifted(a)
        m, n = a.shape[-2:]
        if mode == "complete" and m != n:
            raise Unsupported("qr(mode='complete') is not known in big numbers")
        k = min(m, n)
        q = np.empty((*a.shape[:-1], k), dtype=object)
        r = np.empty((*a.shape[:-2], k, n), dtype=object)
        for at in np.ndindex(a.shape[:-2]):
            q[at], r[at] = self._orthogonal(a[at], k)
        return r if mode == "r" else _named("qr", q, r)

    def _orthogonal(self, m: Array, k: int) -> tuple[Array, Array]:
        """Gram and Schmidt, twice, with LAPACK's signs."""
        c = self._c
        rows, n = m.shape
        self._work.spend(4 * rows * n * k + 1)
        q = np.full((rows, k), c.zero, dtype=object)
        for j in range(k):
            v = m[:, j]
            for _ in range(2):
                for i in range(j):
                    v = v - q[:, i] * self._inner(q[:, i], v)
            q[:, j] = v / c.sqrt(self._inner(v, v).real)
        q = q * self._signs(q, np.linalg.qr(self._rounded(m))[0])
        r = self._work.matmul(self._adjoint(q), m)
        return q, np.where(np.tri(k, n, -1, dtype=bool), c.zero, r)

    def _inner(self, x: Array, y: Array) -> Any:
        return sum((self._c.conj(a) * b for a, b in zip(x, y, strict=True)), self._c.zero)

    # ── what follows from these ──────────────────────────────────────────────────────────────

    def norm(self, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
        x = self._work.lifted(x)
        if axis is None:
            if ord is None or (ord in ("f", "fro") and x.ndim == 2) or (ord == 2 and x.ndim == 1):
                out = self._c.sqrt(sum((abs(v) ** 2 for v in x.ravel().tolist()), self._c.zero))
                shape = (1,) * x.ndim if keepdims else ()
                return np.full(shape, out, dtype=object)
            axis = tuple(range(x.ndim))
        axes = tuple(a % x.ndim for a in np.atleast_1d(axis).tolist())
        self._work.spend(2 * x.size)
        if len(axes) == 1:
            return self._vector(x, ord, axes[0], keepdims)
        if len(axes) == 2:
            return self._matrix(x, ord, axes, keepdims)
        raise ValueError("Improper number of dimensions to norm.")

    def vector_norm(
        self, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
    ) -> Any:
        x = self._work.lifted(x)
        if axis is None:
            out = self._vector(x.ravel(), ord, 0, False)
            return np.asarray(out, dtype=object).reshape((1,) * x.ndim) if keepdims else out
        return self._vector(x, ord, int(axis) % x.ndim, keepdims)

    def matrix_norm(self, x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
        return self.norm(x, ord, (-2, -1), keepdims)

    def _vector(self, x: Array, ord_: Any, axis: int, keepdims: bool) -> Array:
        c = self._c
        rows = np.moveaxis(x, axis, -1)
        out = np.empty(rows.shape[:-1], dtype=object)
        for at in np.ndindex(out.shape):
            sizes = [abs(v) for v in rows[at]]
            if ord_ is None or ord_ == 2:
                out[at] = c.sqrt(sum((v * v for v in sizes), c.zero))
            elif ord_ == np.inf:
                out[at] = max(sizes)
            elif ord_ == -np.inf:
                out[at] = min(sizes)
            elif ord_ == 0:
                out[at] = c.mpf(sum(v != 0 for v in sizes))
            elif ord_ == 1:
                out[at] = sum(sizes, c.zero)
            else:
                p = self._work.number(ord_)
                out[at] = sum((v**p for v in sizes), c.zero) ** (1 / p)
        return np.expand_dims(out, axis) if keepdims else out

    def _matrix(self, x: Array, ord_: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
        rows = np.moveaxis(x, axes, (-2, -1))
        out = np.empty(rows.shape[:-2], dtype=object)
        for at in np.ndindex(out.shape):
            m = rows[at]
            if ord_ in (None, "f", "fro"):
                out[at] = self._c.sqrt(sum((abs(v) ** 2 for v in m.ravel().tolist()), self._c.zero))
                continue
            if ord_ in (1, -1, np.inf, -np.inf):
                sums = np.sum(np.abs(m), axis=0 if abs(ord_) == 1 else 1).tolist()
                out[at] = max(sums) if ord_ > 0 else min(sums)
                continue
            values = self.svd(m, compute_uv=False).tolist()
            if ord_ not in ("nuc", 2, -2):
                raise ValueError("Invalid norm order for matrices.")
            out[at] = sum(values) if ord_ == "nuc" else max(values) if ord_ == 2 else min(values)
        if keepdims:
            for axis in sorted(axes):
                out = np.expand_dims(out, axis)
        return out

    def pinv(self, a: Any, rcond: Any = None, hermitian: bool = False, **_: Any) -> Array:
        a = self._work.lifted(a)
        m, n = a.shape[-2:]
        flipped = self._adjoint(a)
        if m >= n:
            return self.solve(self._work.matmul(flipped, a), flipped)
        return self._work.matmul(flipped, self.inv(self._work.matmul(a, flipped)))

    def lstsq(self, a: Any, b: Any, rcond: Any = None) -> Any:
        a, b = self._work.lifted(a), self._work.lifted(b)
        m, n = a.shape
        columns = b[:, None] if b.ndim == 1 else b
        x = self._work.matmul(self.pinv(a), columns)
        away = columns - self._work.matmul(a, x)
        rest = np.sum(np.abs(away) ** 2, axis=0) if m > n else np.empty(0, dtype=object)
        x = x[:, 0] if b.ndim == 1 else x
        return x, rest, min(m, n), self.svd(a, compute_uv=False)

    def cond(self, x: Any, p: Any = None) -> Any:
        x = self._work.lifted(x)
        if p in (None, 2, -2):
            values = self.svd(x, compute_uv=False)
            top, low = values[..., 0], values[..., -1]
            return low / top if p == -2 else top / low
        return self.norm(x, p, (-2, -1)) * self.norm(self.inv(x), p, (-2, -1))

    def matrix_rank(self, a: Any, *args: Any, **keywords: Any) -> Any:
        return np.linalg.matrix_rank(self._rounded(self._work.lifted(a)), *args, **keywords)

    def polyfit(self, x: Any, y: Any, deg: int) -> Any:
        x, y = self._work.lifted(x), self._work.lifted(y)
        return self.lstsq(np.vander(x, deg + 1), y)[0]

    def matrix_power(self, a: Any, n: int) -> Array:
        a = self._work.lifted(a)
        if n < 0:
            a, n = self.inv(a), -n
        out = np.broadcast_to(self._eye(a.shape[-1]), a.shape)
        for _ in range(n):
            out = self._matmul(out, a)
        return out

    def multi_dot(self, arrays: Any, *, out: Any = None) -> Any:
        first, *rest = [self._work.lifted(a) for a in arrays]
        for a in rest:
            first = np.dot(first, a)
        return first

    def tensorsolve(self, a: Any, b: Any, axes: Any = None) -> Array:
        if axes is not None:
            raise Unsupported("tensorsolve(axes=…) is not known in big numbers")
        a, b = self._work.lifted(a), self._work.lifted(b)
        return self.solve(a.reshape(b.size, -1), b.ravel()).reshape(a.shape[b.ndim :])

    def tensorinv(self, a: Any, ind: int = 2) -> Array:
        a = self._work.lifted(a)
        side = int(np.prod(a.shape[:ind]))
        return self.inv(a.reshape(side, -1)).reshape(a.shape[ind:] + a.shape[:ind])

    def _matmul(self, x: Any, y: Any) -> Array:
        x, y = self._work.lifted(x), self._work.lifted(y)
        self._work.spend(x.size * y.shape[-1] // 8)
        return self._work.matmul(x, y)

    # ── helpers ──────────────────────────────────────────────────────────────────────────────

    def _eye(self, n: int) -> Array:
        return self._work.lifted(np.eye(n))

    def _adjoint(self, a: Array) -> Array:
        turned = np.swapaxes(a, -1, -2)
        if any(type(v) is self._work.complex for v in a.ravel().tolist()):
            return np.asarray(np.frompyfunc(self._c.conj, 1, 1)(turned), dtype=object)
        return turned

    def _stacked(self, one: Function, parts: tuple[Array, ...], shape: tuple[int, ...]) -> Array:
        out = np.empty(shape, dtype=object)
        for at in np.ndindex(shape[:-2]):
            out[at] = one(*(p[at] for p in parts))
        return out

    def _numbers(self, one: Function, a: Array) -> Array:
        out = np.empty(a.shape[:-2], dtype=object)
        for at in np.ndindex(out.shape):
            out[at] = one(a[at])
        return out


def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset, -2, -1)


def _grid(rows: list[list[Any]], shape: tuple[int, ...]) -> Array:
    out = np.empty(shape, dtype=object)
    for i, row in enumerate(rows):
        out[i] = row
    return out


def _named(name: str, *parts: Any) -> Any:
    """The named tuple that numpy.linalg gives, of our arrays."""
    return type(getattr(np.linalg, name)(np.eye(1)))(*parts)
