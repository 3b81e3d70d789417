"""Arrays that a framework borrows, and PyTorch's tensors made of them and back, by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from gradcheck.numerics.dtypes import dtype_named, is_float

Array = NDArray[Any]


def imported_torch() -> Any:
    """PyTorch. It is an optional peer that takes two seconds to import."""
    import torch

    return torch


def lent(array: Array) -> Array:
    """`array` itself where a framework may have its memory, else a copy with the same strides.

    PyTorch takes no notice of NumPy's read-only flag, and JAX refuses what has it: both get a
    writable copy, in which a write is seen by who compares. Gaps between its elements hold NaN, so
    that code that ignores strides shows. Negative strides, which DLPack allows and PyTorch 2.13
    ends the process on, become C order; so does whatever is not a multiple of the item's size.
    """
    forward = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    if not forward:
        return np.array(array, order="C")
    if array.flags.writeable:
        return array
    if not array.size:
        return np.array(array)
    pairs = zip(array.shape, array.strides, strict=True)
    span = sum((n - 1) * step for n, step in pairs) // array.itemsize + 1
    floating = is_float(array.dtype)
    room = np.full(span, np.nan if floating else 0).astype(array.dtype)
    copy = as_strided(room, array.shape, array.strides)
    copy[...] = array
    return copy


def tensor_of(torch: Any, array: Any, device: str | None = None) -> Any:
    """A tensor with the memory of `lent(array)`; on another device, a copy of it."""
    given = lent(np.asarray(array))
    if given.dtype.name == "bfloat16":  # DLPack knows it, NumPy's side of DLPack does not
        tensor = torch.from_dlpack(given.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_dlpack(given)
    return tensor if device is None else tensor.to(device)


def array_of(tensor: Any) -> Array:
    """An array with the memory of a tensor on the CPU; from another device, a copy of it."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_sparse or tensor._is_zerotensor():  # autograd may return what only says zero
        tensor = tensor.to_dense().clone()
    if str(tensor.dtype) == "torch.bfloat16":
        return np.from_dlpack(tensor.view(imported_torch().int16)).view(dtype_named("bfloat16"))
    return np.from_dlpack(tensor)
