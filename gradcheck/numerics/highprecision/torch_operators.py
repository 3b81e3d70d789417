# ruff: noqa: N803  the arguments are named as in the operators' schemas
"""PyTorch's core operators on arrays of big numbers, by name.

A rule takes an operator's arguments by the names of its schema: tensors as big numbers, or as plain
arrays of integers and booleans.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch

from gradcheck.numerics.highprecision.array import big, by_name, elementwise, raw
from gradcheck.numerics.highprecision.linear import linear
from gradcheck.numerics.highprecision.numbers import numbers
from gradcheck.numerics.highprecision.routines import (
    convolution,
    ordered,
    padded,
    running,
    windows,
)
from gradcheck.numerics.highprecision.ufuncs import ELEMENTWISE

Array = Any  # NumPy's types know no big numbers
Rule = Callable[..., Any]

MOVES: Final = frozenset({
    "_unsafe_index", "as_strided_copy", "cat", "channel_shuffle", "constant_pad_nd", "copy",
    "diag_embed", "diagonal_scatter", "expand_copy", "flip", "gather", "im2col", "index",
    "index_copy", "index_fill", "index_put", "index_select", "masked_fill", "masked_scatter",
    "masked_select", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "repeat", "repeat_interleave",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "rot90", "scatter",
    "select_scatter", "slice_scatter", "stack", "take", "tril", "triu", "unfold_copy",
    "_index_put_impl",
})  # fmt: skip
"""Operators whose results consist of the arguments' elements, and zeros."""


def shown(name: str, dtype: torch.dtype) -> torch.dtype:
    """The dtype of an operator's results, of tensors that are `dtype` together."""
    real = {torch.complex128: torch.float64, torch.complex64: torch.float32}
    complexes = {kept: changed for changed, kept in real.items()}
    if name in ("abs", "angle", "view_as_real", "_fft_c2r", "real", "imag", "linalg_vector_norm"):
        return real.get(dtype, dtype)
    if name in ("complex", "view_as_complex", "_fft_r2c", "polar"):
        return complexes.get(dtype, dtype)
    return dtype


def _elementwise(name: str) -> Rule:
    function = by_name(name)
    return lambda self, other=None, **_: function(self) if other is None else function(self, other)


def _dims(dim: Any) -> Any:
    if dim is None or (isinstance(dim, (list, tuple)) and not len(dim)):
        return None
    return tuple(dim) if isinstance(dim, (list, tuple)) else int(dim)


def _reduced(function: Rule) -> Rule:
    return lambda self, dim=None, keepdim=False, **_: function(
        self, axis=_dims(dim), keepdims=bool(keepdim)
    )


def _div(self: Any, other: Any, rounding_mode: str | None = None, **_: Any) -> Array:
    out = np.true_divide(big(self), other)
    if rounding_mode == "floor":
        return np.floor(out)
    return np.trunc(out) if rounding_mode == "trunc" else out


def _pow(self: Any, exponent: Any, **_: Any) -> Array:
    if isinstance(exponent, float) and exponent.is_integer() and abs(exponent) < 1 << 30:
        exponent = int(exponent)
    return np.power(big(self), exponent)


def _round(self: Array, decimals: int = 0, **_: Any) -> Array:
    scale = 10**decimals
    return np.rint(self * scale) / scale if decimals else np.rint(self)


def _var(
    self: Array,
    dim: Any = None,
    correction: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    **_: Any,
) -> Array:
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    return np.var(self, axis=_dims(dim), ddof=correction, keepdims=keepdim)


def _extreme(find: Rule, value: Rule) -> Rule:
    def extreme(self: Array, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        if dim is None:
            return value(self)
        at = np.expand_dims(find(self, axis=dim), dim) if self.ndim else np.zeros((), np.int64)
        out = np.take_along_axis(self, at, dim) if self.ndim else self
        return (out, at) if keepdim or not self.ndim else (out.squeeze(dim), at.squeeze(dim))

    return extreme


def _place(find: Rule) -> Rule:
    def place(self: Array, dim: int | None = None, keepdim: bool = False, **_: Any) -> Array:
        at = np.asarray(find(self, axis=dim))
        return np.expand_dims(at, dim) if keepdim and dim is not None else at

    return place


def _sort(self: Array, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Array, Array]:
    if not self.ndim:
        return self, np.zeros((), np.int64)
    return ordered(self, dim, descending=descending)


def _topk(
    self: Array, k: int, dim: int = -1, largest: bool = True, **_: Any
) -> tuple[Array, Array]:
    if not self.ndim:
        return self, np.zeros((), np.int64)
    return ordered(self, dim, k, descending=largest)


def _kth(
    self: Array, k: int, dim: int = -1, keepdim: bool = False, **_: Any
) -> tuple[Array, Array]:
    found = [np.take(part, [k - 1], dim) for part in ordered(self, dim, k)]
    out, at = found if keepdim else [part.squeeze(dim) for part in found]
    return out, at


def _median(self: Array, dim: int | None = None, keepdim: bool = False, **_: Any) -> Any:
    if dim is None:
        return _kth(self.reshape(-1), (self.size + 1) // 2)[0]
    return _kth(self, (self.shape[dim] + 1) // 2, dim, keepdim)


def _along(step: Rule) -> Rule:
    return lambda self, dim=0, **_: running(step)(self, dim) if self.ndim else self


def _cumulative_extreme(better: Rule) -> Rule:
    def along(self: Array, dim: int, **_: Any) -> tuple[Array, Array]:
        rows = np.moveaxis(self, dim, 0)
        out, at = rows.copy(), np.zeros(rows.shape, np.int64)
        for i in range(1, len(rows)):
            now = better(rows[i], out[i - 1])
            out[i] = np.where(now, rows[i], out[i - 1])
            at[i] = np.where(now, i, at[i - 1])
        return np.moveaxis(out, 0, dim), np.moveaxis(at, 0, dim)

    return along


def _spread(n: Any, count: int) -> list[int]:
    values = list(n) if isinstance(n, (list, tuple)) else [n]
    return [int(v) for v in (values * count if len(values) == 1 else values)]


def _convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    **_: Any,
) -> Array:
    space = weight.ndim - 2
    strides, pads, steps = (_spread(v, space) for v in (stride, padding, dilation))
    x: Array = big(input)
    w: Array = big(weight)
    between = [1] * space
    if transposed:
        more = _spread(output_padding, space)
        w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
        w = np.flip(w.reshape(-1, *w.shape[2:]), tuple(range(2, 2 + space)))
        ends = [
            (step * (k - 1) - pad, step * (k - 1) - pad + extra)
            for step, k, pad, extra in zip(steps, w.shape[2:], pads, more, strict=True)
        ]
        between, strides = strides, between
    else:
        ends = [(pad, pad) for pad in pads]
    out = convolution(
        x, w, strides=strides, pads=ends, x_dilation=between, w_dilation=steps, groups=groups
    )
    return out if bias is None else out + np.reshape(bias, (-1, *(1,) * space))


def _pooled(
    x: Array,
    sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: bool,
    fill: float,
    space: int,
) -> tuple[Array, list[list[int]]]:
    """Every window over the last axes, and [size, stride, pad] of each of these axes."""
    sizes = _spread(sizes, space)
    strides = _spread(stride, space) if stride not in (None, [], ()) else sizes
    pads, steps = _spread(padding, space), _spread(dilation, space)
    ends = []
    for n, k, s, p, d in zip(x.shape[-space:], sizes, strides, pads, steps, strict=True):
        over = n + 2 * p - d * (k - 1) - 1
        last = -(-over // s) if ceil else over // s
        if ceil and last * s >= n + p:
            last -= 1
        ends.append((p, max(p, last * s + d * (k - 1) + 1 - n - p)))
    keep = [(0, 0)] * (x.ndim - space)
    wide = padded(raw(x), [*keep, *ends], big(np.full((), fill))[()])
    seen = windows(wide, sizes, strides, steps)
    return seen, [sizes, strides, pads, steps]


def _max_pool(space: int) -> Rule:
    def pool(
        self: Array,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        **_: Any,
    ) -> tuple[Array, Array]:
        seen, (sizes, strides, pads, steps) = _pooled(
            self, kernel_size, stride, padding, dilation, ceil_mode, -math.inf, space
        )
        flat = big(seen.reshape(*seen.shape[: self.ndim], -1))
        best = np.argmax(flat, axis=-1)
        out = np.take_along_axis(flat, best[..., None], -1)[..., 0]
        within = np.unravel_index(best, sizes)
        place = np.zeros_like(best)
        for axis in range(space):
            first = self.ndim - space + axis
            row = [-1 if a == first else 1 for a in range(self.ndim)]
            start = np.arange(best.shape[first]).reshape(row) * strides[axis] - pads[axis]
            place = place * self.shape[first] + start + within[axis] * steps[axis]
        return out, place

    return pool


def _avg_pool(space: int) -> Rule:
    def pool(
        self: Array,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        **_: Any,
    ) -> Array:
        if ceil_mode:
            raise NotImplementedError("with ceil_mode")
        axes = tuple(range(self.ndim, self.ndim + space))
        seen, (sizes, *_others) = _pooled(self, kernel_size, stride, padding, 1, False, 0.0, space)
        total = np.sum(big(seen), axis=axes)
        if divisor_override or count_include_pad:
            return total / (divisor_override or math.prod(sizes))
        ones: Array = big(np.ones(self.shape))
        counted, _sizes = _pooled(ones, kernel_size, stride, padding, 1, False, 0.0, space)
        return total / np.sum(big(counted), axis=axes)

    return pool


def _adaptive(self: Array, output_size: Sequence[int], **_: Any) -> Array:
    out, space = self, len(output_size)
    for i, m in enumerate(output_size):
        axis = self.ndim - space + i
        n = self.shape[axis]
        parts = [
            np.mean(np.take(out, range(j * n // m, -(-(j + 1) * n // m)), axis), axis=axis)
            for j in range(m)
        ]
        out = np.stack(parts, axis)
    return out


def _adaptive_max(self: Array, output_size: Sequence[int], **_: Any) -> tuple[Array, Array]:
    rows, columns = self.shape[-2:]
    out = np.empty((*self.shape[:-2], *output_size), dtype=object)
    at = np.empty(out.shape, dtype=np.int64)
    for i, j in np.ndindex(*output_size):
        (top, low), (left, right) = (
            (k * n // m, -(-(k + 1) * n // m))
            for k, n, m in zip((i, j), (rows, columns), output_size, strict=True)
        )
        part: Array = self[..., top:low, left:right].reshape(*self.shape[:-2], -1)
        best: Array = np.argmax(part, axis=-1)
        out[..., i, j] = raw(big(np.take_along_axis(part, best[..., None], -1)[..., 0]))
        at[..., i, j] = (top + best // (right - left)) * columns + left + best % (right - left)
    return big(out), at


def _embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    mode: int = 0,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    **_: Any,
) -> tuple[Array, ...]:
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    ends = offsets.tolist() + ([] if include_last_offset else [len(indices)])
    combine = (np.sum, np.mean, np.max)[mode]
    empty = big(np.zeros(weight.shape[1]))
    pairs = pairwise(ends)
    out = [combine(rows[a:b], axis=0) if b > a else empty for a, b in pairs]
    nothing = np.zeros(0, dtype=np.int64)
    return np.stack(out), nothing, nothing, nothing


def _trilinear(
    i1: Array, i2: Array, i3: Array, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, **_: Any
) -> Array:
    factors = [
        np.expand_dims(x, tuple(axes)) for x, axes in ((i1, expand1), (i2, expand2), (i3, expand3))
    ]
    return np.sum(factors[0] * factors[1] * factors[2], axis=tuple(sumdim))


def _gelu(self: Array, approximate: str = "none", **_: Any) -> Array:
    if approximate == "none":
        return self * elementwise("ndtr", self)
    root = np.sqrt(2 / big(numbers().pi))
    return self * (1 + np.tanh(root * (self + 0.044715 * self**3))) / 2


def _batch_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    training: bool = False,
    **_: Any,
) -> tuple[Array, Array, Array]:
    """The running means are not among the results, and stay as they are."""
    row = (1, -1, *(1,) * (input.ndim - 2))
    if training or running_mean is None:
        axes = (0, *range(2, input.ndim))
        mean, var = np.mean(input, axis=axes), np.var(input, axis=axes)
    else:
        mean, var = big(running_mean), big(running_var)
    scale = 1 / np.sqrt(var + eps)
    out = (input - mean.reshape(row)) * scale.reshape(row)
    out = out if weight is None else out * weight.reshape(row)
    return out if bias is None else out + bias.reshape(row), mean, scale


def _lu_factor(a: Array) -> tuple[Array, Array]:
    factors, pivots, _ = linear().lu(raw(a))
    return big(factors), pivots + 1


def _solve_ex(A: Array, B: Array, left: bool = True, **_: Any) -> tuple[Any, ...]:
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)
    if not left:
        out = np.swapaxes(np.linalg.solve(np.swapaxes(A, -1, -2), np.swapaxes(B, -1, -2)), -1, -2)
    else:
        out = np.linalg.solve(A, B[..., None])[..., 0] if vector else np.linalg.solve(A, B)
    return out, *_lu_factor(A), _no_errors(A)


def _no_errors(a: Array) -> Array:
    return np.zeros(a.shape[:-2], dtype=np.int32)


def _cholesky_ex(self: Array, upper: bool = False, **_: Any) -> tuple[Array, Array]:
    return np.linalg.cholesky(self, upper=upper), _no_errors(self)


def _cholesky_solve(self: Array, A: Array, upper: bool = False, **_: Any) -> Array:
    a = raw(np.swapaxes(A, -1, -2) if upper else A)
    half = linear().triangular(a, raw(self), lower=True)
    return big(linear().triangular(linear().adjoint(a), half, lower=False))


def _solve_triangular(
    self: Array,
    B: Array,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    **_: Any,
) -> Array:
    x = linear().triangular(raw(self), raw(B), lower=not upper, unit=unitriangular, left=left)
    return big(x)


def _lu(A: Array, **_: Any) -> tuple[Array, ...]:
    return tuple(map(big, linear().unpacked_lu(raw(A))))


def _eigh(A: Array, UPLO: Any = "L", compute_v: bool = True, **_: Any) -> tuple[Array, Array]:
    if not compute_v:
        return np.linalg.eigvalsh(A, UPLO), big(np.zeros(0))
    values, vectors = np.linalg.eigh(A, UPLO)
    return values, vectors


def _svd(
    A: Array, full_matrices: bool = False, compute_uv: bool = True, **_: Any
) -> tuple[Array, ...]:
    if not compute_uv:
        return big(np.zeros(0)), np.linalg.svd(A, compute_uv=False), big(np.zeros(0))
    return tuple(np.linalg.svd(A, full_matrices=full_matrices))


def _vector_norm(
    self: Array, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Array:
    return np.linalg.vector_norm(self, ord=ord, axis=_dims(dim), keepdims=bool(keepdim))


def _cdist(x1: Array, x2: Array, p: float, **_: Any) -> Array:
    return _vector_norm(x1[..., :, None, :] - x2[..., None, :, :], p, -1)


def _scaled(out: Array, count: int, normalization: int) -> Array:
    if not normalization:
        return out
    return out / (np.sqrt(big(np.asarray(float(count)))) if normalization == 1 else count)


def _fft(self: Array, dim: Sequence[int], normalization: int, forward: bool, **_: Any) -> Array:
    count = math.prod(self.shape[d] for d in dim)
    out = np.fft.fftn(self, axes=tuple(dim))
    if not forward:
        out = np.fft.ifftn(self, axes=tuple(dim)) * count
    return _scaled(out, count, normalization)


def _rfft(self: Array, dim: Sequence[int], normalization: int, onesided: bool, **_: Any) -> Array:
    transform = np.fft.rfftn if onesided else np.fft.fftn
    count = math.prod(self.shape[d] for d in dim)
    return _scaled(transform(self, axes=tuple(dim)), count, normalization)


def _irfft(
    self: Array, dim: Sequence[int], normalization: int, last_dim_size: int, **_: Any
) -> Array:
    sizes = [*(self.shape[d] for d in dim[:-1]), last_dim_size]
    out = np.fft.irfftn(self, sizes, tuple(dim)) * math.prod(sizes)
    return _scaled(out, math.prod(sizes), normalization)


def _bucket(input: Array, boundaries: Array, right: bool = False, **_: Any) -> Array:
    edges = raw(big(boundaries)).tolist()
    below = operator.le if right else operator.lt
    flat = [sum(below(e, v) for e in edges) for v in raw(big(input)).ravel().tolist()]
    return np.array(flat, dtype=np.int64).reshape(np.shape(input))


def _to(self: Array, dtype: Any = None, **_: Any) -> Any:
    if dtype is None or dtype.is_floating_point or dtype.is_complex:
        return self
    if dtype is torch.bool:
        return np.asarray(self != 0, dtype=bool)
    return self.astype(torch.empty(0, dtype=dtype).numpy().dtype)


def _where(condition: Any, self: Any, other: Any, **_: Any) -> Array:
    return np.where(condition, big(self), big(other))


TABLE: Final[Mapping[str, Rule]] = {
    **{name: _elementwise(name) for name in ELEMENTWISE["torch"]},
    "_adaptive_avg_pool2d": _adaptive,
    "_adaptive_avg_pool3d": _adaptive,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_trilinear": _trilinear,
    "adaptive_max_pool2d": _adaptive_max,
    "linalg_lstsq": lambda self, b, **_: (
        np.matmul(np.linalg.pinv(self), b), *[big(np.zeros(0))] * 3
    ),
    "linalg_matrix_exp": lambda self, **_: big(linear().expm(raw(self))),
    "linalg_pinv": lambda self, **_: np.linalg.pinv(self),
    "_cdist_forward": _cdist,
    "_fft_c2c": _fft,
    "_fft_c2r": _irfft,
    "_fft_r2c": _rfft,
    "_linalg_det": lambda A, **_: (np.linalg.det(A), *_lu_factor(A)),
    "_linalg_eigh": _eigh,
    "_linalg_slogdet": lambda A, **_: (*np.linalg.slogdet(A), *_lu_factor(A)),
    "_linalg_solve_ex": _solve_ex,
    "_linalg_svd": _svd,
    "_has_same_storage_numel": lambda **_: True,
    "gelu": _gelu,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_to_copy": _to,
    "add": lambda self, other, alpha=1, **_: big(self) + (other if alpha == 1 else other * alpha),
    "all": lambda self, **how: _reduced(np.all)(self != 0, **how),
    "amax": _reduced(np.max),
    "amin": _reduced(np.min),
    "any": lambda self, **how: _reduced(np.any)(self != 0, **how),
    "argmax": _place(np.argmax),
    "argmin": _place(np.argmin),
    "avg_pool1d": _avg_pool(1),
    "avg_pool2d": _avg_pool(2),
    "avg_pool3d": _avg_pool(3),
    "bmm": lambda self, mat2, **_: np.matmul(big(self), big(mat2)),
    "bucketize": _bucket,
    "cholesky": lambda self, upper=False, **_: _cholesky_ex(self, upper)[0],
    "cholesky_solve": lambda self, input2, upper=False, **_: _cholesky_solve(self, input2, upper),
    "clone": lambda self, **_: self,
    "complex": lambda real, imag, **_: big(real) + 1j * big(imag),
    "convolution": _convolution,
    "cummax": _cumulative_extreme(np.greater_equal),
    "cummin": _cumulative_extreme(np.less_equal),
    "cumprod": _along(np.multiply),
    "cumsum": _along(np.add),
    "div": _div,
    "equal": lambda self, other, **_: bool(np.array_equal(self, other)),
    "kthvalue": _kth,
    "lift_fresh": lambda self, **_: self,
    "linalg_cholesky_ex": _cholesky_ex,
    "linalg_inv_ex": lambda A, **_: (np.linalg.inv(A), _no_errors(A)),
    "linalg_lu": _lu,
    "linalg_lu_factor_ex": lambda A, **_: (*_lu_factor(A), _no_errors(A)),
    "linalg_qr": lambda A, mode="reduced", **_: tuple(np.linalg.qr(A, mode)),
    "linalg_solve_triangular": _solve_triangular,
    "linalg_vector_norm": _vector_norm,
    "logcumsumexp": _along(np.logaddexp),
    "max": _extreme(np.argmax, np.max),
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "mean": _reduced(np.mean),
    "median": _median,
    "min": _extreme(np.argmin, np.min),
    "mm": lambda self, mat2, **_: np.matmul(big(self), big(mat2)),
    "native_batch_norm": _batch_norm,
    "nonzero": lambda self, **_: np.argwhere(np.asarray(self != 0)),
    "polar": lambda abs, angle, **_: abs * np.cos(angle) + 1j * (abs * np.sin(angle)),
    "polygamma": lambda n, self, **_: elementwise("polygamma", np.full(self.shape, n), self),
    "pow": _pow,
    "prod": _reduced(np.prod),
    "round": _round,
    "rsqrt": lambda self, **_: 1 / np.sqrt(self),
    "sort": _sort,
    "sub": lambda self, other, alpha=1, **_: big(self) - (other if alpha == 1 else other * alpha),
    "sum": _reduced(np.sum),
    "topk": _topk,
    "triangular_solve": lambda self, A, upper=True, transpose=False, unitriangular=False, **_: (
        _solve_triangular(
            np.swapaxes(A, -1, -2) if transpose else A,
            self, upper != transpose, True, unitriangular,
        ),
        A,
    ),
    "var": _var,
    "var_mean": lambda self, dim=None, **how: (
        _var(self, dim, **how), _reduced(np.mean)(self, dim, **how)
    ),
    "view_as_complex": lambda self, **_: self[..., 0] + 1j * self[..., 1],
    "view_as_real": lambda self, **_: np.stack([np.real(self), np.imag(self)], -1),
    "where": _where,
}  # fmt: skip
"""The rule of each operator; PyTorch decomposes all others into these (torch._decomp)."""


# ── scatters ─────────────────────────────────────────────────────────────────────────────────

_REDUCTIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "sum": lambda old, new: old + new,
    "add": lambda old, new: old + new,
    "mean": lambda old, new: old + new,
    "prod": lambda old, new: old * new,
    "multiply": lambda old, new: old * new,
    "amax": max,
    "amin": min,
}


def mixed(out: Array, places: Array, updates: Any, named: Mapping[str, Any]) -> Array:
    """`out` with every update combined into its place."""
    reduce = named.get("reduce") or "sum"
    step, fresh = _REDUCTIONS[reduce], named.get("include_self") is False
    counts: dict[int, int] = {}
    for place, update in zip(places.tolist(), raw(big(updates)).reshape(-1).tolist(), strict=True):
        first = fresh and place not in counts
        counts[place] = counts.get(place, 0) + 1
        out[place] = update if first else step(out[place], update)
    if reduce == "mean":
        for place, count in counts.items():
            out[place] = out[place] / (count if fresh else count + 1)
    return out


def _by_index(at: torch.Tensor, named: Mapping[str, Any]) -> tuple[torch.Tensor, Any]:
    index, src = named["index"], named["src"]
    places = torch.gather(at, named["dim"], index)
    return places, src[tuple(slice(0, n) for n in index.shape)]


def _by_rows(at: torch.Tensor, named: Mapping[str, Any]) -> tuple[torch.Tensor, Any]:
    source, alpha = named["source"], named.get("alpha", 1)
    return at.index_select(named["dim"], named["index"]), source if alpha == 1 else source * alpha


def _by_indices(at: torch.Tensor, named: Mapping[str, Any]) -> tuple[torch.Tensor, Any]:
    places = torch.ops.aten.index.Tensor(at, named["indices"])
    return places, named["values"].expand(places.shape)


SCATTERS: Final[Mapping[str, Callable[[torch.Tensor, Mapping[str, Any]], Any]]] = {
    "_unsafe_index_put": _by_indices,
    "index_add": _by_rows,
    "index_put": _by_indices,
    "scatter_add": _by_index,
    "scatter_reduce": _by_index,
}
"""Operators that scatter: the place of each update, and the updates."""
