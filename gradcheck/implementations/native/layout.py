"""Where in a C buffer the elements of a tensor lie, and how they are encoded.

Sizes and values that do not fit are `ManifestError`s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.expression import Context
from gradcheck.implementations.manifest.operation import CType, Role, RoleKind, View
from gradcheck.numerics.arrays import dtype_named, is_float
from gradcheck.results.words import plural

Array = NDArray[Any]

HALVES: Final = ("float16", "bfloat16")
BITS: Final = ("uint16", "int16")
"""C types that hold the bits of a 16-bit float: C itself has no such type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """The encoding of one element of a buffer.

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
        """`values`, flat, as elements; floats are rounded to a narrower float."""
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
        if self.bits:
            return elements.view(self.dtype)
        return elements.astype(self.dtype, copy=False)


Positions = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Key:
    """Which tensor: a primal, an output, a residual, or the cotangent or gradient of one."""

    kind: RoleKind
    name: str = ""
    index: int = 0


def key_of(role: Role) -> Key:
    """The tensor that a role means."""
    return Key(role.kind, role.name, role.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The elements of one tensor in a buffer: `cells`, in the tensor's C order.

    `before` is what they are before the call, `after` what they are after it. `given`: they are
    written before the call; `made`: the code writes them.
    """

    before: Key
    after: Key
    given: bool
    made: bool
    shape: tuple[int, ...]
    cells: slice | Positions

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def positions(self) -> Positions:
        if isinstance(self.cells, slice):
            return np.arange(self.cells.start, self.cells.stop, dtype=np.intp)
        return self.cells

    def lies_as(self, other: Place) -> bool:
        """Whether it has the same elements in the same order."""
        if isinstance(self.cells, slice) and isinstance(other.cells, slice):
            return self.cells == other.cells
        return np.array_equal(self.positions, other.positions)

    def follows(self, other: Place) -> bool:
        """Whether it finds what `other` leaves, element by element."""
        same = self.before == other.after and self.shape == other.shape
        return same and self.lies_as(other)


def place(
    view: View, shape: tuple[int, ...], given: frozenset[RoleKind], sizes: Context, where: str
) -> Place:
    """The place of a tensor of `shape` in a buffer; messages begin with `where`.

    Tensors of the kinds in `given` are written before the call.
    """
    count = math.prod(shape)
    own = tuple(sizes.size(text) for text in view.shape) if view.shape else shape
    if math.prod(own) != count:
        raise ManifestError(
            f"{where}: a view of shape {_text(own)} has {plural(math.prod(own), 'element')}, "
            f"{view.role.name or view.role.kind.value} has {_text(shape)}, "
            f"{plural(count, 'element')}"
        )
    if view.strides:
        strides = tuple(sizes.whole(text) for text in view.strides)
    else:
        strides = _contiguous(own, view.axes, where)
    if len(strides) != len(own):
        raise ManifestError(
            f"{where}: {plural(len(strides), 'stride')} for the rank {len(own)} of {_text(own)}; "
            "give one per axis, and a `shape` if the code's differs from the tensor's"
        )
    at = sizes.size(view.at)
    cells: slice | Positions = slice(at, at + count)
    if strides != _contiguous(own, (), where):
        cells = _scattered(own, strides, at)
        if np.unique(cells).size != count:
            raise ManifestError(
                f"{where}: strides {_text(strides)} put several elements of shape {_text(own)} in "
                "one place; correct the strides"
            )
    return Place(
        before=key_of(view.role),
        after=key_of(view.becomes or view.role),
        given=view.role.kind in given,
        made=view.becomes is not None or view.role.kind not in given,
        shape=shape,
        cells=cells,
    )


def extent(places: Sequence[Place], size: int | None, where: str) -> int:
    """The elements of a buffer that holds `places`: `size`, or up to the last of them."""
    filled = [p for p in places if p.count]
    if len(filled) == 1 and isinstance(filled[0].cells, slice):
        last = filled[0].cells.stop
    else:
        every = np.concatenate([p.positions for p in filled]) if filled else np.zeros(0, np.intp)
        last = int(every.max(initial=-1)) + 1
        if every.min(initial=0) < 0:
            raise ManifestError(f"{where}: negative strides reach before its start; correct `at`")
        if np.unique(every).size != every.size:
            raise ManifestError(f"{where}: its parts overlap; correct `at`, `shape` or `strides`")
    if size is not None and last > size:
        raise ManifestError(
            f"{where}: its parts reach up to element {last}, its size is {size}; correct one"
        )
    return last if size is None else size


def _scattered(shape: Sequence[int], strides: Sequence[int], at: int) -> Positions:
    positions: Positions = np.full(shape, at, dtype=np.intp)
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        along = [1] * len(shape)
        along[axis] = length
        positions += (stride * np.arange(length, dtype=np.intp)).reshape(along)
    return positions.reshape(-1)


def _contiguous(shape: tuple[int, ...], axes: tuple[int, ...], where: str) -> tuple[int, ...]:
    """Strides without gaps, `axes` from the outermost in memory to the innermost."""
    order = axes or tuple(range(len(shape)))
    if sorted(order) != list(range(len(shape))):
        raise ManifestError(
            f"{where}: axes {list(axes)} are no order of the {len(shape)} axes of {_text(shape)}; "
            "name each once, or leave such samples out by `requires`"
        )
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def _text(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))}{',' * (len(numbers) == 1)})"
