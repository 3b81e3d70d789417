"""The elements of a C buffer: numbers written as a C type holds them, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.operation import CType
from gradcheck.numerics.dtypes import dtype_named, is_float

Array = NDArray[Any]

HALVES: Final = ("float16", "bfloat16")
BITS: Final = ("uint16", "int16")
"""C types that hold the bits of a 16-bit float: C itself has no such type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """What one element of a buffer is.

    `storage` is what NumPy calls the C type; `dtype` is that of the operation. `bits` says that
    the C type is an integer that holds the bits of a number of `dtype`.
    """

    storage: np.dtype[Any]
    dtype: np.dtype[Any]
    bits: bool = False

    @classmethod
    def of(cls, ctype: CType, dtype: str, *, floating: bool = True) -> Element:
        """The element that a pointer of this type leads to, in an operation in `dtype`.

        A `void*` leads to what the tensor is: numbers of `dtype` if it is `floating`, else int64.
        """
        kind, base = dtype_named(dtype), ctype.base
        if base in ("void", "opaque"):
            base = ("uint16" if dtype in HALVES else dtype) if floating else "int64"
        elif base == "char":
            base = "int8"
        bits = floating and dtype in HALVES and base in BITS
        return cls(storage=np.dtype(base), dtype=kind, bits=bits)

    def encode(self, values: Array, where: str) -> Array:
        """`values`, flat, as elements; floats are rounded to a narrower float.

        Raises:
            ManifestError: the C type does not hold a value; `where` says whose.
        """
        flat = np.ascontiguousarray(values).reshape(-1)
        if self.bits and is_float(flat.dtype):
            return flat.astype(self.dtype).view(self.storage)
        if is_float(flat.dtype) and self.storage.kind == "f":
            return flat.astype(self.storage, copy=False)
        with np.errstate(all="ignore"):
            held = flat.astype(self.storage)
            same = (held.astype(flat.dtype) == flat) & ((held < 0) == (flat < 0))
        if not same.all():
            worst = flat[np.flatnonzero(~same)[0]]
            raise ManifestError(
                f"{where}: {self.storage.name} does not hold {worst}; give it a C type that does, "
                "or leave such samples out by `requires`"
            )
        return held

    def decode(self, elements: Array) -> Array:
        """Elements as numbers of the operation's dtype."""
        if self.bits:
            return elements.view(self.dtype)
        return elements.astype(self.dtype, copy=False)
