"""JAX's copies and rearrangements; where other libraries have views, it indexes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def cpy(a, b):
    """The destination gives its shape and is overwritten."""
    return b.at[...].set(a.reshape(*a.shape[:-3], *b.shape[-3:]))


def cont(x, *, axes):
    lead = x.ndim - len(axes)
    return jnp.transpose(x, (*range(lead), *(lead + a for a in axes)))


def reshape(x, *, shape):
    return x.reshape(*x.shape[:-3], *shape)


def permute(x, *, axes, form):
    if form == "destination":
        axes = [3 - axes.index(3 - k) for k in range(4)]
    return cont(x, axes=axes)


def concat(x, y, *, axis):
    lead = jnp.broadcast_shapes(x.shape[:-3], y.shape[:-3])
    x, y = (jnp.broadcast_to(part, (*lead, *part.shape[-3:])) for part in (x, y))
    return jnp.concatenate([x, y], axis)


def diag(x, *, offset):
    return jnp.vectorize(lambda x: jnp.diag(x, offset), signature="(n)->(m,m)")(x)


# ── windows on memory ────────────────────────────────────────────────────────────────────────


def _places(core, sizes, strides, offset):
    """Places of a window's elements in a row-major tensor of shape `core`."""
    own = [math.prod(core[k + 1 :]) for k in range(len(core))][len(core) - len(sizes) :]
    steps = [o if s is None else s for s, o in zip((*strides, 1), own, strict=True)]
    grid = np.indices(sizes)
    return offset + sum(step * index for step, index in zip(steps, grid, strict=True))


def _flat(x, rank):
    return x.reshape(*x.shape[: x.ndim - rank], math.prod(x.shape[x.ndim - rank :]))


def view_1d(x, *, ne0, offset):
    flat = _flat(x, 2)
    return flat[..., offset : flat.shape[-1] if ne0 is None else offset + ne0]


def _view(x, sizes, strides, offset):
    core = x.shape[x.ndim - len(sizes) :]
    sizes = [n if size is None else size for size, n in zip(sizes, core, strict=True)]
    return _flat(x, len(sizes))[..., _places(core, sizes, strides, offset)]


def view_2d(x, *, ne0, ne1, nb1, offset):
    return _view(x, (ne1, ne0), (nb1,), offset)


def view_3d(x, *, ne0, ne1, ne2, nb1, nb2, offset):
    return _view(x, (ne2, ne1, ne0), (nb2, nb1), offset)


def view_4d(x, *, ne0, ne1, ne2, ne3, nb1, nb2, nb3, offset):
    return _view(x, (ne3, ne2, ne1, ne0), (nb3, nb2, nb1), offset)


def _window(a, b, rank, strides, offset):
    sizes = b.shape[b.ndim - 1 - len(strides) :]
    return _places(a.shape[a.ndim - rank :], sizes, strides, offset)


def _set(a, b, rank, strides, offset):
    return _flat(a, rank).at[..., _window(a, b, rank, strides, offset)].set(b).reshape(a.shape)


def set_general(a, b, *, nb1, nb2, nb3, offset):
    return _set(a, b, 4, (nb3, nb2, nb1), offset)


def set_1d(a, b, *, offset):
    flat = _flat(a, 2)
    b = jnp.broadcast_to(b, (*flat.shape[:-1], b.shape[-1]))
    return lax.dynamic_update_slice_in_dim(flat, b, offset, flat.ndim - 1).reshape(a.shape)


def set_2d(a, b, *, nb1, offset):
    return _set(a, b, 2, (nb1,), offset)


def acc(a, b, *, nb1, nb2, nb3, offset):
    places = _window(a, b, 4, (nb3, nb2, nb1), offset)
    return _flat(a, 4).at[..., places].add(b).reshape(a.shape)


# ── borders, orders, masks ───────────────────────────────────────────────────────────────────


def pad(x, *, rows, columns, mode, value):
    widths = [(0, 0)] * (x.ndim - 2) + [rows, columns]
    if mode == "constant":
        return jnp.pad(x, widths, constant_values=value)
    return jnp.pad(
        x, widths, mode={"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    )


def slice_(x, *, rows, columns):
    return x[..., slice(*rows), slice(*columns)]


def where(mask, x, y, *, guard):
    taken = mask != 0
    if guard == "sqrt":
        x = jnp.sqrt(jnp.where(taken, x, 1))
    return jnp.where(taken, x, y)


OTHERS: dict[str, Callable[..., Any]] = {
    "dup": jnp.copy,
    "transpose": jnp.matrix_transpose,
    "set": set_general,
    "slice": slice_,
    "flip": lambda x, *, axes: jnp.flip(x, axes),
    "tril": lambda x, *, diagonal: jnp.tril(x, diagonal),
    "triu": lambda x, *, diagonal: jnp.triu(x, diagonal),
}
