"""PyTorch's copies, views and rearrangements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def cpy(a, b):
    """copy_, into a copy of the destination."""
    return b.clone().copy_(a.reshape(*a.shape[:-3], *b.shape[-3:]))


def cont(x, *, axes):
    return _permuted(x, axes).contiguous()


def _permuted(x, axes):
    lead = x.ndim - len(axes)
    return x.permute(*range(lead), *(lead + a for a in axes))


def reshape(x, *, shape):
    return x.reshape(*x.shape[:-3], *shape)


def permute(x, *, axes, form):
    if form == "destination":
        axes = [3 - axes.index(3 - k) for k in range(4)]
    return _permuted(x, axes)


def concat(x, y, *, axis):
    return torch.cat([x, y], axis)


def diag(x, *, offset):
    return torch.diag_embed(x, offset)


# ── as_strided ───────────────────────────────────────────────────────────────────────────────


def _geometry(x, rank, sizes, strides, offset):
    """Size, stride and offset of a view, with the leading axes as they are."""
    lead, core = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    own = [math.prod(core[k + 1 :]) for k in range(rank)]
    steps = [
        own[rank - 1 - len(strides) + k] if step is None else step for k, step in enumerate(strides)
    ]
    total = math.prod(core)
    front = [total * math.prod(lead[k + 1 :]) for k in range(len(lead))]
    return (*lead, *sizes), (*front, *steps, 1), offset


def view_1d(x, *, ne0, offset):
    size = math.prod(x.shape[-2:]) - offset if ne0 is None else ne0
    return x.contiguous().as_strided(*_geometry(x, 2, (size,), (), offset))


def _view(x, sizes, strides, offset):
    core = x.shape[x.ndim - len(sizes) :]
    sizes = [n if size is None else size for size, n in zip(sizes, core, strict=True)]
    return x.contiguous().as_strided(*_geometry(x, len(sizes), sizes, strides, offset))


def view_2d(x, *, ne0, ne1, nb1, offset):
    return _view(x, (ne1, ne0), (nb1,), offset)


def view_3d(x, *, ne0, ne1, ne2, nb1, nb2, offset):
    return _view(x, (ne2, ne1, ne0), (nb2, nb1), offset)


def view_4d(x, *, ne0, ne1, ne2, ne3, nb1, nb2, nb3, offset):
    return _view(x, (ne3, ne2, ne1, ne0), (nb3, nb2, nb1), offset)


def _set(a, b, rank, strides, offset):
    """copy_ into a view of a copy.

    Not torch.as_strided_scatter: its gradient of `a` (PyTorch 2.13) is the cotangent inside the
    window and zero outside, the wrong way round.
    """
    sizes = b.shape[b.ndim - 1 - len(strides) :]
    out = a.clone(memory_format=torch.contiguous_format)
    out.as_strided(*_geometry(a, rank, sizes, strides, offset)).copy_(b)
    return out


def set_general(a, b, *, nb1, nb2, nb3, offset):
    return _set(a, b, 4, (nb3, nb2, nb1), offset)


def set_1d(a, b, *, offset):
    return _set(a, b, 2, (), offset)


def set_2d(a, b, *, nb1, offset):
    return _set(a, b, 2, (nb1,), offset)


def acc(a, b, *, nb1, nb2, nb3, offset):
    return a + _set(torch.zeros_like(a), b, 4, (nb3, nb2, nb1), offset)


# ── windows, orders, masks ───────────────────────────────────────────────────────────────────


def pad(x, *, rows, columns, mode, value):
    width = (*columns, *rows)
    if mode == "constant":
        return F.pad(x, width, value=value)
    return F.pad(x[None], width, mode=mode)[0]  # needs a channel axis


def slice_(x, *, rows, columns):
    """Indices, because a tensor's own slices cannot run backwards."""
    i, j = (
        torch.tensor(range(n)[slice(*along)], dtype=torch.int64)
        for n, along in zip(x.shape[-2:], (rows, columns), strict=True)
    )
    return x.index_select(-2, i).index_select(-1, j)


def flip(x, *, axes):
    return torch.flip(x, axes)


def tril(x, *, diagonal):
    return torch.tril(x, diagonal)


def triu(x, *, diagonal):
    return torch.triu(x, diagonal)


def where(mask, x, y, *, guard):
    taken = mask != 0
    if guard == "sqrt":
        x = torch.sqrt(torch.where(taken, x, 1.0))
    return torch.where(taken, x, y)


OTHERS: dict[str, Callable[..., Any]] = {
    "dup": torch.clone,
    "transpose": lambda x: x.mT,
    "set": set_general,
    "slice": slice_,
}
