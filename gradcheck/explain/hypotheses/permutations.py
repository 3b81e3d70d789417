"""Ways in which the elements of an array are misplaced: a catalogue of moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np

from gradcheck.explain.probe import Array
from gradcheck.numerics.arrays import Attrs

ROLL_DISTANCES: Final = (1, -1, 2, -2, 3, -3)
PART_COUNTS: Final = (2, 3, 4)
"""Into how many equal parts an axis is taken to be divided, beside what attributes say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One way to misplace elements.

    `of(array, attrs)` returns an array of the same shape: the array itself where it has no such
    axis or does not divide. `back` undoes it (None: elements are lost). `says` follows "with",
    `label` is the class of the mistake. `square`: only equal axes are moved.
    """

    label: str
    says: str
    of: Callable[[Array, Attrs], Array]
    back: Callable[[Array, Attrs], Array] | None = None
    square: bool = False


def moves(rank: int, attrs: Attrs) -> Iterator[Move]:
    """Moves of an array of `rank` axes by which no element is lost, the likeliest first."""
    axes = _axes(rank)
    pairs = [*combinations(range(-rank, 0), 2), *(((0, 1),) if rank > 2 else ())]
    for a, b in pairs:
        yield from _exchanges(a, b)
    if rank > 1:
        yield from _orders()
    for axis in axes:
        flip = _along(axis, _flip)
        yield Move(label="L", says=f"{_axis(axis)} reversed", of=flip, back=flip)
    if rank > 1:
        yield Move(label="L", says="its last two axes reversed", of=_flip_two, back=_flip_two)
    for axis in axes:
        for step in ROLL_DISTANCES:
            yield _rolled(axis, step)
    for axis in axes:
        yield from divisions(axis, attrs)
        yield from _packed_pairs(axis, attrs)


def losses(rank: int, attrs: Attrs) -> Iterator[Move]:
    """Moves of an array of `rank` axes by which some elements are lost, others doubled."""
    for axis in _axes(rank):
        yield from _shifts(axis)
        yield from _firsts(axis)
        for count in _counts(attrs):
            yield _first_part(axis, count)


def _axes(rank: int) -> list[int]:
    """Axes counted from the end, and the first one, which has another place in every rank."""
    return [*range(-1, -rank - 1, -1), *((0,) if rank > 1 else ())]


def _axis(axis: int) -> str:
    """An axis in words."""
    named = {-1: "its last axis", 0: "its first axis", 1: "its second axis"}
    return named.get(axis, f"its axis {axis}")


def _has(array: Array, axis: int) -> bool:
    return -array.ndim <= axis < array.ndim


def _along(axis: int, of: Callable[[Array, int], Array]) -> Callable[[Array, Attrs], Array]:
    """A move along one axis, in arrays that have it."""
    return lambda array, attrs: of(array, axis) if _has(array, axis) else array


def _exchanges(a: int, b: int) -> Iterator[Move]:
    two = f"{_axis(a)} and {_axis(b).removeprefix('its ')} exchanged"

    def apt(array: Array) -> bool:
        return _has(array, a) and _has(array, b)

    def written(array: Array, attrs: Attrs) -> Array:
        if not apt(array):
            return array
        return np.ascontiguousarray(array.swapaxes(a, b)).reshape(array.shape)

    def read(array: Array, attrs: Attrs) -> Array:
        if not apt(array):
            return array
        shape = list(array.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return array.reshape(shape).swapaxes(a, b)

    def square(array: Array, attrs: Attrs) -> Array:
        if not apt(array) or array.shape[a] != array.shape[b]:
            return array
        return array.swapaxes(a, b)

    yield Move(label="L", says=two, of=written, back=read)
    yield Move(label="L", says=f"{two} in memory", of=read, back=written)
    alike = f"{two} where they are equally long"
    yield Move(label="L", says=alike, of=square, back=square, square=True)


def _orders() -> Iterator[Move]:
    """Other orders of all axes in memory."""

    def by_columns(array: Array, attrs: Attrs) -> Array:
        return array.ravel(order="F").reshape(array.shape)

    def from_columns(array: Array, attrs: Attrs) -> Array:
        return array.ravel().reshape(array.shape, order="F")

    def batch_last(array: Array, attrs: Attrs) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, 0, -1)).reshape(array.shape)

    def last_in_front(array: Array, attrs: Attrs) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, -1, 0)).reshape(array.shape)

    turned = (
        ("its memory written column by column", by_columns, from_columns),
        ("its memory read column by column", from_columns, by_columns),
        ("its first axis taken for the innermost", batch_last, last_in_front),
        ("its innermost axis taken for the first", last_in_front, batch_last),
    )
    for says, of, back in turned:
        yield Move(label="L", says=says, of=of, back=back)


def _flip(array: Array, axis: int) -> Array:
    return np.flip(array, axis)


def _flip_two(array: Array, attrs: Attrs) -> Array:
    return np.flip(array, (-2, -1)) if array.ndim > 1 else array


def _rolled(axis: int, step: int) -> Move:
    side = "behind" if step < 0 else "before"
    places = f"{abs(step)} place{'s' if abs(step) > 1 else ''}"
    return Move(
        label="I",
        says=f"each element along {_axis(axis)} taken from {places} {side} it, the ends joined",
        of=_along(axis, lambda array, k: np.roll(array, step, k)),
        back=_along(axis, lambda array, k: np.roll(array, -step, k)),
    )


def _shifts(axis: int) -> Iterator[Move]:
    """A shift by one place along an axis: zero or the end element is shifted in."""

    def shifted(array: Array, k: int, *, step: int, edge: bool) -> Array:
        if array.shape[k] == 0:
            return array
        out = np.roll(array, step, k)
        end = [slice(None)] * array.ndim
        end[k] = slice(0, 1) if step > 0 else slice(-1, None)
        out[tuple(end)] = array[tuple(end)] if edge else 0
        return out

    for step, side in ((1, "before"), (-1, "behind")):
        for edge, comes in ((False, "zero comes in at the end"), (True, "the end stays")):
            yield Move(
                label="I",
                says=f"each element along {_axis(axis)} taken from 1 place {side} it; {comes}",
                of=_along(axis, partial(shifted, step=step, edge=edge)),
            )


def _firsts(axis: int) -> Iterator[Move]:
    """One entry of an axis, or the sum of all, in place of each."""
    for place, which in ((0, "first"), (-1, "last")):

        def same(array: Array, k: int, place: int = place) -> Array:
            if array.shape[k] == 0:
                return array
            return np.broadcast_to(np.take(array, [place], axis=k), array.shape)

        yield Move(
            label="I",
            says=f"the {which} entry of {_axis(axis)} in place of every one",
            of=_along(axis, same),
        )
    yield Move(
        label="B",
        says=f"the sum over {_axis(axis)} in place of every entry",
        of=_along(axis, lambda array, k: np.broadcast_to(array.sum(k, keepdims=True), array.shape)),
    )


def _first_part(axis: int, count: int | str) -> Move:
    """The first of equal parts of an axis in place of all."""

    def of(array: Array, attrs: Attrs) -> Array:
        parts = _parts(array, axis, count, attrs)
        if parts is None:
            return array
        k = axis % array.ndim
        return np.broadcast_to(parts.take([0], axis=k), parts.shape).reshape(array.shape)

    says = f"the first of {count} parts of {_axis(axis)} in place of every one"
    return Move(label="I", says=says, of=of)


def _counts(attrs: Attrs) -> list[int | str]:
    """Into how many parts an axis may be divided: numbers, and attributes that say it."""
    named = [key for key, value in attrs.items() if type(value) is int and value > 1]
    return [*PART_COUNTS, *named]


def _parts(array: Array, axis: int, count: int | str, attrs: Attrs) -> Array | None:
    """An axis as two, parts first; None where it does not divide."""
    n = attrs.get(count) if isinstance(count, str) else count
    if not _has(array, axis) or type(n) is not int or n < 2:
        return None
    k = axis % array.ndim
    if array.shape[k] % n or array.shape[k] < n:
        return None
    return array.reshape(*array.shape[:k], n, -1, *array.shape[k + 1 :])


def divisions(axis: int, attrs: Attrs) -> Iterator[Move]:
    """Parts of an axis in another order, or dealt out one by one."""
    for count in _counts(attrs):
        dealt, gathered = _dealt(axis, count), _gathered(axis, count)
        parts = f"{_axis(axis)} in {count} parts"
        says = f"{parts} dealt out one by one, not in blocks"
        yield Move(label="L", says=says, of=dealt, back=gathered)
        says = f"{parts} in blocks, not dealt out one by one"
        yield Move(label="L", says=says, of=gathered, back=dealt)
        if isinstance(count, int):
            yield from _exchanges_of_parts(axis, count)


def _packed_pairs(axis: int, attrs: Attrs) -> Iterator[Move]:
    """The two extents of an attribute, such as a kernel's, packed in an axis in the other order."""
    for key, value in attrs.items():
        if _pair(value) is not None:
            says = f"the {key}'s two extents within {_axis(axis)} exchanged"
            there, back = partial(_turned, axis, key, 1), partial(_turned, axis, key, -1)
            yield Move(label="L", says=says, of=there, back=back)
            yield Move(label="L", says=f"{says} in memory", of=back, back=there)


def _pair(value: object) -> tuple[int, int] | None:
    """A value of an attribute, if it is two extents."""
    if not isinstance(value, tuple) or len(value) != 2:
        return None
    n, m = value
    return (n, m) if type(n) is type(m) is int and n > 0 and m > 0 else None


def _turned(axis: int, key: str, way: int, array: Array, attrs: Attrs) -> Array:
    pair = _pair(attrs.get(key))
    if pair is None or not _has(array, axis):
        return array
    k = axis % array.ndim
    n, m = pair[::way]
    if not array.shape[k] or array.shape[k] % (n * m):
        return array
    parts = array.reshape(*array.shape[:k], -1, n, m, *array.shape[k + 1 :])
    return np.ascontiguousarray(parts.swapaxes(k + 1, k + 2)).reshape(array.shape)


def _exchanges_of_parts(axis: int, count: int) -> Iterator[Move]:
    for a, b in combinations(range(count), 2):
        which = "halves" if count == 2 else f"parts {a + 1} and {b + 1} of {count}"
        of = _exchanged(axis, count, a, b)
        yield Move(label="L", says=f"the {which} of {_axis(axis)} exchanged", of=of, back=of)


def _dealt(axis: int, count: int | str) -> Callable[[Array, Attrs], Array]:
    def of(array: Array, attrs: Attrs) -> Array:
        parts = _parts(array, axis, count, attrs)
        if parts is None:
            return array
        k = axis % array.ndim
        return np.ascontiguousarray(parts.swapaxes(k, k + 1)).reshape(array.shape)

    return of


def _gathered(axis: int, count: int | str) -> Callable[[Array, Attrs], Array]:
    def of(array: Array, attrs: Attrs) -> Array:
        parts = _parts(array, axis, count, attrs)
        if parts is None:
            return array
        k = axis % array.ndim
        pairs = array.reshape(*array.shape[:k], -1, parts.shape[k], *array.shape[k + 1 :])
        return np.ascontiguousarray(pairs.swapaxes(k, k + 1)).reshape(array.shape)

    return of


def _exchanged(axis: int, count: int, a: int, b: int) -> Callable[[Array, Attrs], Array]:
    def of(array: Array, attrs: Attrs) -> Array:
        parts = _parts(array, axis, count, attrs)
        if parts is None:
            return array
        order = [*range(count)]
        order[a], order[b] = b, a
        return parts.take(order, axis=axis % array.ndim).reshape(array.shape)

    return of
