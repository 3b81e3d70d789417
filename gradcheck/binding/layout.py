"""Where in a C buffer the elements of a tensor lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError
from gradcheck.manifest.operation import Role, RoleKind, View

Array = NDArray[Any]
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


class Sizes(Protocol):
    """What evaluates the size expressions of a manifest."""

    def size(self, text: str) -> int:
        """A whole number that is not negative."""

    def whole(self, text: str) -> int:
        """A whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The elements of one tensor in a buffer: `positions` in the tensor's C order.

    `before` is what they are before the call, `after` what they are after it. `given`: they are
    written before the call; `made`: the code writes them.
    """

    before: Key
    after: Key
    given: bool
    made: bool
    shape: tuple[int, ...]
    positions: Positions

    def follows(self, other: Place) -> bool:
        """Whether it finds what `other` leaves, element by element."""
        same = self.before == other.after and self.shape == other.shape
        return same and np.array_equal(self.positions, other.positions)


def place(
    view: View, shape: tuple[int, ...], given: frozenset[RoleKind], sizes: Sizes, where: str
) -> Place:
    """Where `view` puts a tensor of `shape`; messages begin with `where`.

    Tensors of the kinds in `given` are written before the call.

    Raises:
        ManifestError: the view's shape has another number of elements, its strides another number
            of axes, or two elements lie in one place.
    """
    count = math.prod(shape)
    own = tuple(sizes.size(text) for text in view.shape) if view.shape else shape
    if math.prod(own) != count:
        raise ManifestError(
            f"{where}: a view of shape {_text(own)} has {math.prod(own)} elements, "
            f"{view.role.name or view.role.kind.value} has {_text(shape)}, {count} elements"
        )
    if view.strides:
        strides = tuple(sizes.whole(text) for text in view.strides)
    else:
        strides = _contiguous(own, view.axes, where)
    if len(strides) != len(own):
        raise ManifestError(
            f"{where}: {len(strides)} strides for {len(own)} axes {_text(own)}; give one per axis, "
            "and a `shape` if the code's differs from the tensor's"
        )
    positions: Positions = np.full(own, sizes.size(view.at), dtype=np.intp)
    for axis, (length, stride) in enumerate(zip(own, strides, strict=True)):
        along = [1] * len(own)
        along[axis] = length
        positions += (stride * np.arange(length, dtype=np.intp)).reshape(along)
    flat = positions.reshape(-1)
    if np.unique(flat).size != count:
        raise ManifestError(
            f"{where}: strides {_text(strides)} put several elements of shape {_text(own)} in one "
            "place; correct the strides"
        )
    return Place(
        before=key_of(view.role),
        after=key_of(view.becomes or view.role),
        given=view.role.kind in given,
        made=view.becomes is not None or view.role.kind not in given,
        shape=shape,
        positions=flat,
    )


def extent(places: Sequence[Place], size: int | None, where: str) -> int:
    """The elements of a buffer that holds `places`: `size`, or up to the last of them.

    Raises:
        ManifestError: a place lies outside, or two places overlap.
    """
    filled = [p.positions for p in places if p.positions.size]
    last = max((int(p.max()) + 1 for p in filled), default=0)
    if any(p.min() < 0 for p in filled):
        raise ManifestError(f"{where}: negative strides reach before its start; correct `at`")
    if size is not None and last > size:
        raise ManifestError(
            f"{where}: its parts reach up to element {last}, its size is {size}; correct one"
        )
    if sum(p.size for p in filled) != (np.unique(np.concatenate(filled)).size if filled else 0):
        raise ManifestError(f"{where}: its parts overlap; correct `at`, `shape` or `strides`")
    return last if size is None else size


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
