"""JAX's primitives in big numbers: the closed list from which every JAX function is composed.

A rule takes its operands' values (big numbers, or plain arrays of integers, booleans or constants)
and the primitive's parameters, and returns the values of its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from gradcheck.numerics.highprecision.array import big, raw
from gradcheck.numerics.highprecision.linear import linear
from gradcheck.numerics.highprecision.routines import (
    convolution,
    ordered,
    padded,
    ranked,
    running,
    windows,
)

Array = Any  # NumPy's types know no big numbers
Rule = Callable[..., Any]

IGNORED_PARAMETERS: Final = frozenset({
    "accuracy", "algorithm", "indices_are_sorted", "is_stable", "out_dtype", "out_sharding",
    "precision", "preferred_element_type", "sharding", "sort_eigenvalues", "subset_by_index",
    "symmetrize_input", "unique_indices", "use_magma", "weak_type",
})  # fmt: skip
"""Parameters that choose an algorithm or a layout and leave the values as they are."""

IDENTITIES: Final = frozenset({
    "copy", "copy_p", "device_put", "name", "optimization_barrier", "pvary", "pcast",
    "reduced_vary_cast_p", "sharding_constraint", "stop_gradient", "layout_constraint", "tie",
})  # fmt: skip
"""Primitives that return their operands."""

EXACT: Final = frozenset({
    "abs", "add", "and", "broadcast_in_dim", "ceil", "clamp", "concatenate",
    "convert_element_type", "dynamic_slice", "dynamic_update_slice", "eq", "expand_dims",
    "floor", "gather", "ge", "gt", "iota", "le", "lt", "max", "min", "mul", "ne", "neg",
    "not", "or", "pad", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reshape",
    "rev", "select_n", "sign", "slice", "split", "squeeze", "sub", "transpose",
})  # fmt: skip
"""Primitives with equal results in NumPy and JAX, bit by bit, in any dtype."""


def _reduced(function: Callable[..., Any]) -> Rule:
    return lambda x, *, axes: function(x, axis=tuple(axes))


def _iota(*, dtype: Any, shape: tuple[int, ...], dimension: int) -> Array:
    along = [n if axis == dimension else 1 for axis, n in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(along), shape)


def _gathered(
    x: Array,
    indices: Array,
    *,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any,
    fill_value: Any,
) -> Array:
    """The slices of `x` that begin at `indices`; beyond its ends `fill_value`, or the last ones."""
    at = _places(x.shape, indices, dimension_numbers, slice_sizes, _fills(mode))
    out = x.reshape(-1)[np.maximum(at, 0)]
    if not (at < 0).any():
        return out
    return np.where(at < 0, np.nan if fill_value is None else fill_value, out)


def _fills(mode: Any) -> bool:
    """Whether a gather or scatter of this mode leaves out elements beyond the ends."""
    return bool(mode is not None and mode.name == "FILL_OR_DROP")


def _places(
    shape: Sequence[int], indices: Array, numbers: Any, sizes: Sequence[int], leaves: bool
) -> Array:
    """Where in an array of `shape`, end to end, the elements are that a gather takes.

    Negative, where `leaves` and a slice reaches beyond the array; else it is moved inside.
    """
    batch = indices.shape[:-1]
    starts = np.zeros((len(shape), *batch), dtype=np.int64)
    for k, axis in enumerate(numbers.start_index_map):
        starts[axis] = indices[..., k]
    for axis, along in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        starts[axis] = np.arange(shape[axis]).reshape(
            [-1 if a == along else 1 for a in range(len(batch))]
        )
    last = np.array([n - size for n, size in zip(shape, sizes, strict=True)])
    last = last.reshape(-1, *(1,) * len(batch))
    outside = ((starts < 0) | (starts > last)).any(axis=0)
    starts = np.clip(starts, 0, last)
    at = np.zeros((*batch, *(1,) * len(shape)), dtype=np.int64)
    for axis, size in enumerate(sizes):
        row = [1] * len(shape)
        row[axis] = size
        within = starts[axis].reshape(*batch, *(1,) * len(shape)) + np.arange(size).reshape(row)
        at = at * shape[axis] + within
    if leaves:
        at = np.where(outside.reshape(*batch, *(1,) * len(shape)), -1, at)
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    at = np.squeeze(at, tuple(len(batch) + axis for axis in gone))
    offsets = range(len(batch), at.ndim)
    return np.moveaxis(at, offsets, numbers.offset_dims)


def scattered(
    name: str,
    x: Array,
    indices: Array,
    updates: Array,
    *,
    dimension_numbers: Any,
    mode: Any,
    **_: Any,
) -> Array:
    """`x` with `updates` put in, added or otherwise combined at the `indices`."""
    numbers = dimension_numbers
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    sizes = iter(updates.shape[axis] for axis in numbers.update_window_dims)
    mirrored = SimpleNamespace(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    window = [1 if axis in gone else next(sizes) for axis in range(x.ndim)]
    at = _places(x.shape, indices, mirrored, window, _fills(mode))
    out, step = x.reshape(-1).copy(), _SCATTERED[name.replace("_", "-")]
    for place, update in zip(at.reshape(-1).tolist(), updates.reshape(-1), strict=True):
        if place >= 0:
            out[place] = step(out[place], update)
    return out.reshape(x.shape)


def _dynamic_slice(x: Array, *starts: Array, slice_sizes: Sequence[int]) -> Array:
    return x[_inside(x, starts, slice_sizes)]


def _dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    out = x.copy()
    out[_inside(x, starts, update.shape)] = update
    return out


def _inside(x: Array, starts: Sequence[Array], sizes: Sequence[int]) -> tuple[slice, ...]:
    firsts = [
        min(max(int(s), 0), n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)
    ]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def _pad(x: Array, fill: Array, *, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    ends = [(low, high) for low, high, _ in padding_config]
    return padded(x, ends, fill[()], [between + 1 for *_, between in padding_config])


def _split(x: Array, *, sizes: Sequence[int], axis: int) -> list[Array]:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _cumulative(function: Callable[..., Any]) -> Rule:
    def cumulative(x: Array, *, axis: int, reverse: bool) -> Array:
        turned = np.flip(x, axis) if reverse else x
        out = function(turned, axis)
        return np.flip(out, axis) if reverse else out

    return cumulative


def _clamp(low: Any, x: Array, high: Any) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _select(which: Array, *cases: Array) -> Array:
    out, which = cases[0], which.astype(np.int64)
    for i, case in enumerate(cases[1:], 1):
        out = np.where(which == i, case, out)
    return out


def _round(x: Array, *, rounding_method: int) -> Array:
    if int(rounding_method) == 1:
        return np.rint(x)
    return np.sign(x) * np.floor(np.absolute(x) + 0.5)


def _broadcast(
    x: Array, *dynamic: Any, shape: tuple[int, ...], broadcast_dimensions: Sequence[int]
) -> Array:
    kept = [1] * len(shape)
    for axis, n in zip(broadcast_dimensions, x.shape, strict=True):
        kept[axis] = n
    return np.broadcast_to(x.reshape(kept), shape)


def _slice(
    x: Array,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
) -> Array:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _dot_general(x: Array, y: Array, *, dimension_numbers: tuple[Any, Any]) -> Array:
    (x_sum, y_sum), (x_batch, y_batch) = dimension_numbers
    x_free = [a for a in range(x.ndim) if a not in (*x_sum, *x_batch)]
    y_free = [a for a in range(y.ndim) if a not in (*y_sum, *y_batch)]
    batch = [x.shape[a] for a in x_batch]
    summed = math.prod(x.shape[a] for a in x_sum)
    left = x.transpose(*x_batch, *x_free, *x_sum)
    right = y.transpose(*y_batch, *y_sum, *y_free)
    rows, columns = [x.shape[a] for a in x_free], [y.shape[a] for a in y_free]
    product = np.matmul(
        left.reshape(math.prod(batch), math.prod(rows), summed),
        right.reshape(math.prod(batch), summed, math.prod(columns)),
    )
    return product.reshape((*batch, *rows, *columns))


def _convolution(
    x: Array,
    w: Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
) -> Array:
    if batch_group_count != 1:
        raise NotImplementedError("batch groups")
    out = convolution(
        x.transpose(dimension_numbers.lhs_spec),
        w.transpose(dimension_numbers.rhs_spec),
        strides=window_strides,
        pads=padding,
        x_dilation=lhs_dilation,
        w_dilation=rhs_dilation,
        groups=feature_group_count,
    )
    return out.transpose(np.argsort(dimension_numbers.out_spec))


def _window(function: Callable[..., Any], empty: float) -> Rule:
    def window(
        x: Array,
        *,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        base_dilation: Sequence[int],
        window_dilation: Sequence[int],
    ) -> Array:
        wide = padded(x, padding, big(empty)[()], base_dilation)
        seen = windows(wide, window_dimensions, window_strides, window_dilation)
        return function(big(seen), axis=tuple(range(x.ndim, 2 * x.ndim)))

    return window


def _sort(*operands: Array, dimension: int, num_keys: int) -> list[Array]:
    order = ranked(*operands[:num_keys], axis=dimension)
    return [np.take_along_axis(x, order, dimension) for x in operands]


def _top_k(x: Array, *, k: int, axis: int = -1) -> list[Array]:
    return list(ordered(x, axis, k, descending=True))


def _first(function: Callable[..., Any]) -> Rule:
    return lambda x, *, axes, index_dtype: function(x, axis=axes[0])


def _to(x: Array, *, new_dtype: Any) -> Array:
    kind = np.dtype(new_dtype).kind
    if kind == "b":
        return np.asarray(x != 0, dtype=bool)
    return x.astype(new_dtype) if kind in "iu" else x


def _triangular_solve(
    a: Array,
    b: Array,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> Array:
    a = np.conjugate(a) if conjugate_a else a
    if transpose_a:
        a, lower = np.swapaxes(a, -1, -2), not lower
    return linear().triangular(raw(a), raw(b), lower=lower, unit=unit_diagonal, left=left_side)


def _eigh(a: Array, *, lower: bool) -> list[Array]:
    values, vectors = np.linalg.eigh(a, UPLO="L" if lower else "U")
    return [vectors, values]


def _svd(a: Array, *, full_matrices: bool, compute_uv: bool) -> list[Array]:
    if not compute_uv:
        return [np.linalg.svd(a, compute_uv=False)]
    u, s, vt = np.linalg.svd(a, full_matrices=full_matrices)
    return [s, u, vt]


def _qr(a: Array, *, full_matrices: bool, pivoting: bool = False) -> list[Array]:
    if pivoting:
        raise NotImplementedError("with pivoting")
    return list(np.linalg.qr(a, mode="complete" if full_matrices else "reduced"))


def _fft(x: Array, *, fft_type: Any, fft_lengths: Sequence[int]) -> Array:
    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    transforms = (np.fft.fftn, np.fft.ifftn, np.fft.rfftn, np.fft.irfftn)
    return transforms[int(fft_type)](x, tuple(fft_lengths), axes)


RULES: Final[Mapping[str, Rule]] = {
    "and": np.bitwise_and,
    "argmax": _first(np.argmax),
    "argmin": _first(np.argmin),
    "broadcast_in_dim": _broadcast,
    "cholesky": np.linalg.cholesky,  # reads the lower triangle
    "clamp": _clamp,
    "complex": lambda re, im: re + 1j * im,
    "concatenate": lambda *xs, dimension: np.concatenate(xs, axis=dimension),
    "conv_general_dilated": _convolution,
    "convert_element_type": _to,
    "cumlogsumexp": _cumulative(running(np.logaddexp)),
    "cummax": _cumulative(running(np.maximum)),
    "cummin": _cumulative(running(np.minimum)),
    "cumprod": _cumulative(running(np.multiply)),
    "cumsum": _cumulative(running(np.add)),
    "dot_general": _dot_general,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "eigh": _eigh,
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    "fft": _fft,
    "gather": _gathered,
    "imag": np.imag,
    "integer_pow": lambda x, *, y: np.power(x, y),
    "iota": _iota,
    "lu": lambda x: linear().lu(raw(x)),
    "not": np.invert,
    "or": np.bitwise_or,
    "pad": _pad,
    "qr": _qr,
    "real": np.real,
    "reduce_and": _reduced(np.all),
    "reduce_max": _reduced(np.max),
    "reduce_min": _reduced(np.min),
    "reduce_or": _reduced(np.any),
    "reduce_prod": _reduced(np.prod),
    "reduce_sum": _reduced(np.sum),
    "reduce_window_max": _window(np.max, -math.inf),
    "reduce_window_min": _window(np.min, math.inf),
    "reduce_window_sum": _window(np.sum, 0.0),
    "reshape": lambda x, *, new_sizes, dimensions: x.reshape(new_sizes),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "round": _round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": _select,
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "svd": _svd,
    "tile": lambda x, *, reps: np.tile(x, reps),
    "top_k": _top_k,
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
    "triangular_solve": _triangular_solve,
    "unstack": lambda x, *, axis: list(np.moveaxis(x, axis, 0)),
}


_SCATTERED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "scatter": lambda _, update: update,
    "scatter-add": lambda old, update: old + update,
    "scatter-max": np.maximum,
    "scatter-min": np.minimum,
    "scatter-mul": lambda old, update: old * update,
    "scatter-sub": lambda old, update: old - update,
}
"""How each scatter combines an old element and its update."""
