"""Linear algebra on object arrays of big numbers: numpy.linalg, and what SciPy and others add.

LU and triangular systems are written here; eigenvalues, singular values and functions of matrices
are mpmath's, one matrix at a time, with signs and order as LAPACK chooses them in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.highprecision.numbers import Numbers, Unsupported, numbers

Function = Callable[..., Any]


class Linear:
    """Linear algebra in big numbers; shapes and results as in numpy.linalg."""

    def __init__(self, work: Numbers) -> None:
        """Compute in the numbers of `work`."""
        self._work = work
        self._c = work.context

    def table(self) -> dict[Any, Function]:
        """Functions of numpy.linalg and their implementations here."""
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

    def lu(self, a: Any) -> tuple[Array, NDArray[np.int32], NDArray[np.int32]]:
        """LU with partial pivoting, as LAPACK stores it.

        Returns:
            Both factors in one array; the row that each row was swapped with; the order of rows.
        """
        out = self._work.lifted(a).copy()
        m, n = out.shape[-2:]
        k = min(m, n)
        pivots = np.empty((*out.shape[:-2], k), dtype=np.int32)
        order = np.broadcast_to(np.arange(m, dtype=np.int32), out.shape[:-1]).copy()
        for at in np.ndindex(out.shape[:-2]):
            self._work.spend(m * n * k // 3)
            rows, places = out[at], order[at]
            for j in range(k):
                sizes = [abs(v) for v in rows[j:, j].tolist()]
                best = j + max(range(len(sizes)), key=sizes.__getitem__)
                pivots[(*at, j)] = best
                rows[[j, best]], places[[j, best]] = rows[[best, j]], places[[best, j]]
                if rows[j, j] != 0:
                    rows[j + 1 :, j] = rows[j + 1 :, j] / rows[j, j]
                    rows[j + 1 :, j + 1 :] -= rows[j + 1 :, j, None] * rows[None, j, j + 1 :]
        return out, pivots, order

    def unpacked_lu(self, a: Any) -> tuple[Array, Array, Array]:
        """P, L and U with a = P L U."""
        a = self._work.lifted(a)
        factors, _, order = self.lu(a)
        m, n = a.shape[-2:]
        k = min(m, n)
        lower = np.tril(factors[..., :k], -1) + self._work.lifted(np.eye(m, k))
        permutation = np.swapaxes(np.eye(m)[order], -1, -2)
        return self._work.lifted(permutation), lower, np.triu(factors[..., :k, :])

    def triangular(
        self, a: Any, b: Any, *, lower: bool, unit: bool = False, left: bool = True
    ) -> Array:
        """Solve a x = b, or x a = b unless `left`, for stacks of triangular `a`.

        Args:
            a: [..., n, n]; only one triangle is read.
            b: [..., n, k]; [..., k, n] unless `left`.
            lower: which triangle.
            unit: whether ones stand for the diagonal.
            left: on which side of x `a` stands.

        Raises:
            LinAlgError: a diagonal element is 0.
        """
        a, b = self._work.lifted(a), self._work.lifted(b)
        if not left:
            turned = (np.swapaxes(x, -1, -2) for x in (a, b))
            return np.swapaxes(self.triangular(*turned, lower=not lower, unit=unit), -1, -2)
        n = a.shape[-1]
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.broadcast_to(b, (*lead, *b.shape[-2:])).copy()
        if not unit and any(v == 0 for v in np.diagonal(a, 0, -2, -1).ravel().tolist()):
            raise np.linalg.LinAlgError("Singular matrix")
        for i in range(n) if lower else reversed(range(n)):
            known = slice(0, i) if lower else slice(i + 1, n)
            if i != (0 if lower else n - 1):
                row = a[..., i : i + 1, known]
                out[..., i, :] = out[..., i, :] - self._matmul(row, out[..., known, :])[..., 0, :]
            if not unit:
                out[..., i, :] = out[..., i, :] / a[..., i, i, None]
        return out

    def _solved(self, a: Array, b: Array) -> Array:
        factors, _, order = self.lu(a)
        half = self.triangular(factors, b[order], lower=True, unit=True)
        return self.triangular(factors, half, lower=False)

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
        factors, pivots, _ = self.lu(a)
        swaps = np.sum(pivots != np.arange(pivots.shape[-1]), axis=-1)
        product = np.prod(np.diagonal(factors, 0, -2, -1), axis=-1)
        return self._work.lifted(np.where(swaps % 2, -product, product))

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
        lower = self._stacked(self._root, (self.adjoint(a) if upper else a,), a.shape)
        return self.adjoint(lower) if upper else lower

    def _root(self, m: Array) -> Array:
        n = len(m)
        out = np.full((n, n), self._c.zero, dtype=object)
        self._work.spend(n * n * n // 6 + n)
        for j in range(n):
            square = (m[j, j] - sum((abs(v) ** 2 for v in out[j, :j]), self._c.zero)).real
            if not square > 0:
                raise np.linalg.LinAlgError("Matrix is not positive definite")
            out[j, j] = self._c.sqrt(square)
            rest = out[j + 1 :, :j] @ self._work.conjugate(out[j, :j]) if j else self._c.zero
            out[j + 1 :, j] = (m[j + 1 :, j] - rest) / out[j, j]
        return out

    # ── eigenvalues ──────────────────────────────────────────────────────────────────────────

    def _hermitian(self, m: Array) -> tuple[list[Any], Array]:
        """Eigenvalues, ascending, and vectors (columns) of one Hermitian matrix."""
        c, n = self._c, len(m)
        self._work.spend(8 * n * n * n + n)
        values, vectors = (c.eighe if self._work.has_complex(m) else c.eigsy)(c.matrix(m.tolist()))
        return [values[i].real for i in range(n)], _grid(vectors, n, n)

    def eigh(self, a: Any, UPLO: str = "L") -> Any:  # noqa: N803  NumPy's name
        a = self.symmetric(self._work.lifted(a), UPLO)
        values = np.empty(a.shape[:-1], dtype=object)
        vectors = np.empty(a.shape, dtype=object)
        for at in np.ndindex(a.shape[:-2]):
            found, columns = self._hermitian(a[at])
            values[at] = found
            vectors[at] = self._oriented(columns, a[at], UPLO)
        return _named("eigh", values, vectors)

    def eigvalsh(self, a: Any, UPLO: str = "L") -> Array:  # noqa: N803  NumPy's name
        a = self.symmetric(self._work.lifted(a), UPLO)
        values = np.empty(a.shape[:-1], dtype=object)
        for at in np.ndindex(a.shape[:-2]):
            values[at] = self._hermitian(a[at])[0]
        return values

    def symmetric(self, a: Array, uplo: str) -> Array:
        """The matrix that NumPy reads from one triangle."""
        if uplo.upper() == "U":
            a = self.adjoint(a)
        lower = np.tril(np.ones(a.shape[-2:], dtype=bool))
        return np.where(lower, a, self.adjoint(a))

    def _oriented(self, columns: Array, m: Array, uplo: str) -> Array:
        """Columns with the signs that NumPy gives them in float64."""
        floats = np.linalg.eigh(self._work.rounded(m), "U" if uplo.upper() == "U" else "L")[1]
        return np.asarray(columns * self._signs(columns, floats), dtype=object)

    def _signs(self, columns: Array, floats: Array) -> Array:
        rounded = self._work.rounded(columns)
        overlap = np.sum(np.conj(rounded) * floats, axis=-2)
        if np.iscomplexobj(overlap) and np.any(overlap.imag):
            raise Unsupported("the phases of complex vectors are a matter of convention")
        signs = np.where(np.real(overlap) < 0, -self._c.one, self._c.one)
        return np.asarray(signs, dtype=object)

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
        floats, directions = np.linalg.eig(self._work.rounded(m))
        order, left = [], list(range(n))
        for value in floats.tolist():
            near = min(left, key=lambda i: abs(found[i] - value))
            order.append(near)
            left.remove(near)
        grid = _grid(columns, n, n)[:, order]
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
                u, vh = _grid(u, m, k), _grid(vh, k, n)
                float_u = np.linalg.svd(self._work.rounded(a[at]), full_matrices=False)[0]
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
        q = q * self._signs(q, np.linalg.qr(self._work.rounded(m))[0])
        r = self._work.matmul(self.adjoint(q), m)
        return q, np.where(np.tri(k, n, -1, dtype=bool), c.zero, r)

    def _inner(self, x: Array, y: Array) -> Any:
        return sum((self._c.conj(a) * b for a, b in zip(x, y, strict=True)), self._c.zero)

    # ── what follows from these ──────────────────────────────────────────────────────────────

    def norm(self, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
        x = self._work.lifted(x)
        axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis).tolist())
        flat = ord is None or (ord in ("f", "fro") and x.ndim == 2) or (ord == 2 and x.ndim == 1)
        if len(axes) == 1 or (axis is None and flat):
            return self._vector(x, None if len(axes) != 1 else ord, axes, keepdims)
        if len(axes) == 2:
            return self._matrix(x, ord, tuple(a % x.ndim for a in axes), keepdims)
        raise ValueError("Improper number of dimensions to norm.")

    def vector_norm(
        self, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
    ) -> Any:
        x = self._work.lifted(x)
        return self._vector(x, ord, tuple(range(x.ndim)) if axis is None else axis, keepdims)

    def matrix_norm(self, x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
        return self.norm(x, ord, (-2, -1), keepdims)

    def _vector(self, x: Array, ord_: Any, axes: Any, keepdims: bool) -> Array:
        work, how = self._work, {"axis": axes, "keepdims": keepdims}
        work.spend(2 * x.size)
        sizes = np.asarray(np.abs(x), dtype=object)
        if ord_ in (np.inf, -np.inf):
            return np.asarray((np.max if ord_ > 0 else np.min)(sizes, **how), dtype=object)
        if ord_ == 0:
            return work.lifted(np.sum(sizes != 0, **how))
        if ord_ == 1:
            return work.sum(sizes, **how)
        if ord_ in (None, 2):
            return np.asarray(np.frompyfunc(self._c.sqrt, 1, 1)(work.sum(sizes * sizes, **how)))
        p = work.number(ord_)
        power = np.frompyfunc(self._c.power, 2, 1)
        return np.asarray(power(work.sum(power(sizes, p), **how), 1 / p), dtype=object)

    def _matrix(self, x: Array, ord_: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
        rows = np.moveaxis(x, axes, (-2, -1))
        out = np.empty(rows.shape[:-2], dtype=object)
        for at in np.ndindex(out.shape):
            m = rows[at]
            if ord_ in (None, "f", "fro"):
                out[at] = self._vector(m, 2, (0, 1), False)[()]
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
        flipped = self.adjoint(a)
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
        return np.linalg.matrix_rank(self._work.rounded(self._work.lifted(a)), *args, **keywords)

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

    def expm(self, a: Any) -> Array:
        """The exponential of stacked matrices."""
        return self._of_matrices(self._c.expm, a)

    def sqrtm(self, a: Any) -> Array:
        """The principal square root of stacked matrices."""
        return self._of_matrices(self._c.sqrtm, a)

    def logm(self, a: Any) -> Array:
        """The principal logarithm of stacked matrices."""
        return self._of_matrices(self._c.logm, a)

    def _of_matrices(self, function: Function, a: Any) -> Array:
        a = self._work.lifted(a)
        n = a.shape[-1]

        def one(m: Array) -> Array:
            self._work.spend(6 * n * n * n + 40 * n * n)
            try:
                return _grid(function(self._c.matrix(m.tolist())), n, n)
            except (ZeroDivisionError, self._c.NoConvergence):
                name = function.__name__
                raise Unsupported(f"{name} of this matrix is not known in big numbers") from None

        return self._stacked(one, (a,), a.shape)

    def _matmul(self, x: Any, y: Any) -> Array:
        x, y = self._work.lifted(x), self._work.lifted(y)
        self._work.spend(x.size * y.shape[-1] // 8)
        return self._work.matmul(x, y)

    # ── helpers ──────────────────────────────────────────────────────────────────────────────

    def _eye(self, n: int) -> Array:
        return self._work.lifted(np.eye(n))

    def adjoint(self, a: Array) -> Array:
        """The conjugate transpose of stacked matrices."""
        turned = np.swapaxes(a, -1, -2)
        return self._work.conjugate(turned) if self._work.has_complex(a) else turned

    def _stacked(self, one: Function, parts: tuple[Array, ...], shape: tuple[int, ...]) -> Array:
        out = np.empty(shape, dtype=object)
        for at in np.ndindex(shape[:-2]):
            out[at] = one(*(p[at] for p in parts))
        return out


def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset, -2, -1)


def _grid(matrix: Any, rows: int, columns: int) -> Array:
    """A matrix of mpmath's as an object array."""
    out = np.empty((rows, columns), dtype=object)
    for i, j in np.ndindex(out.shape):
        out[i, j] = matrix[i, j]
    return out


@cache
def linear() -> Linear:
    """Linear algebra in the numbers of this process."""
    return Linear(numbers())


def _named(name: str, *parts: Any) -> Any:
    """The named tuple that numpy.linalg returns."""
    return type(getattr(np.linalg, name)(np.eye(1)))(*parts)
