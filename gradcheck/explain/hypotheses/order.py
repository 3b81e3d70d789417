"""Order: the right numbers in the wrong places, or J in place of its transpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.lost_contribution import MAX_SLABS, MAX_SLABS_TESTED, jacobian
from gradcheck.explain.hypothesis import Hypothesis, Observations, predicting
from gradcheck.explain.probe import ROUNDING_TOLERANCE, Array, Float, Probe
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.defect import Defect

Of = Callable[[Probe], Float | None]
"""What a gradient would be at a probe."""

MIN_MOVED_ELEMENTS: Final = 4
"""Elements that must differ from those in their old place, before a distance explains them."""
MIN_DISPLACED_PROBES: Final = 2
MAX_REORDERED_SIZE: Final = 700


def orientation(obs: Observations) -> Iterator[Hypothesis]:
    """The gradient, the cotangent or a primal with its elements in another order."""
    attrs, name = obs.first.attrs, obs.output
    for a, b in combinations(range(-obs.first.right[name].ndim, 0), 2):
        yield predicting(
            obs,
            Defect.LAYOUT,
            f"{obs.gradient} comes transposed: axes {a} and {b} are exchanged",
            partial(_transposed, name, a, b),
        )
    for label, says, of in _moves_of(obs, lambda rank: moves(rank, attrs)):
        yield predicting(obs, label, says, of)


def displaced(obs: Observations) -> Iterator[Hypothesis]:
    """Elements read from, or written to, a neighbour's place."""
    attrs = obs.first.attrs
    for label, says, of in _moves_of(obs, lambda rank: losses(rank, attrs)):
        yield predicting(obs, label, says, of)
    name = obs.output
    for axis in range(-obs.first.right[name].ndim, 0):
        shifted = [_displaced(probe, name, axis) for probe in obs.failing]
        if False not in shifted and shifted.count(True) >= MIN_DISPLACED_PROBES:
            yield Hypothesis(
                label=Defect.INDEX,
                says=f"{obs.gradient} stands in another place along axis {axis}: it is displaced",
                fits=lambda probe: True,  # every failing probe was asked above
            )


def _displaced(probe: Probe, name: str, axis: int) -> bool | None:
    """Whether a shift along an axis explains a gradient, except for the places shifted in.

    None where it is too short to tell.
    """
    got, right = probe.got.get(name), probe.right[name]
    if got is None or right.ndim < -axis:
        return False
    got, right = np.moveaxis(got, axis, 0), np.moveaxis(right, axis, 0)
    bound = ROUNDING_TOLERANCE[probe.dtype] * float(np.max(np.abs(right), initial=0.0))
    shifted = None
    for step in range(1, len(right) - 1):
        low, high = right[:-step], right[step:]
        if np.count_nonzero(np.abs(high - low) > bound) < MIN_MOVED_ELEMENTS:
            continue  # moved or not, it would be the same
        shifted = False
        for a, b in ((got[step:], low), (got[:-step], high)):
            if bool(np.all(np.abs(a - b) <= bound)):
                return True
    return shifted


def _moves_of(
    obs: Observations, catalogue: Callable[[int], Iterable[Move]]
) -> Iterator[tuple[str, str, Of]]:
    """Class, words and prediction of every move of the gradient and of its operands."""
    name, own, first = obs.output, obs.gradient, obs.first
    for move in catalogue(first.right[name].ndim):
        says = f"{own} holds the right numbers, but with {move.says}"
        yield move.label, says, partial(_written, name, move)
    for part, ct in enumerate(first.ct):
        which = "the cotangent" if len(first.ct) == 1 else f"output {part}'s cotangent"
        for move in catalogue(ct.ndim) if ct.size <= MAX_REORDERED_SIZE else ():
            if move.label == Defect.BROADCAST or (move.square and ct.size > first.right[name].size):
                continue  # the axis of a sum is not a matter of layout
            says = f"{own} reads {which} with {move.says}"
            yield move.label, says, partial(_at_cotangent, name, part, move)
    for other, value in zip(first.names, first.primals, strict=True):
        for move in catalogue(value.ndim) if value.size <= MAX_REORDERED_SIZE else ():
            says = f"{own} reads {other} with {move.says}"
            yield move.label, says, partial(_at_primal, name, other, move)


def _transposed(name: str, a: int, b: int, probe: Probe) -> Array:
    right = probe.right[name]
    return right.swapaxes(a, b) if right.ndim >= -a else right


def _written(name: str, move: Move, probe: Probe) -> Array:
    return move.of(probe.right[name], probe.attrs)


def _at_cotangent(name: str, part: int, move: Move, probe: Probe) -> Float | None:
    if part >= len(probe.ct):
        return None
    moved = move.of(probe.ct[part], probe.attrs)
    return probe.gradient(name, ct=(*probe.ct[:part], moved, *probe.ct[part + 1 :]))


def _at_primal(name: str, other: str, move: Move, probe: Probe) -> Float | None:
    if other not in probe.names:
        return None
    return probe.gradient(name, primals={other: move.of(probe.primal(other), probe.attrs)})


# ── read and written in another layout ───────────────────────────────────────────────────────


def relaid(obs: Observations) -> Iterator[Hypothesis]:
    """Operands read in another layout, and the gradient written back in it."""
    name, first = obs.output, obs.first
    own = first.primal(name)
    if own.size > MAX_REORDERED_SIZE:
        return
    for move in moves(own.ndim, first.attrs):
        if move.back is None:
            continue
        for says, chosen in _layouts(obs):
            yield predicting(
                obs,
                move.label,
                f"{obs.gradient} is right for another layout: {says} with {move.says}",
                _in_layout(name, move, chosen),
            )
    yield from _by_channel(obs)


def _by_channel(obs: Observations) -> Iterator[Hypothesis]:
    """Parts of one axis in another order, of a vector that goes with the axis, too."""
    name, attrs = obs.output, obs.first.attrs
    own = obs.first.primal(name)
    for axis in range(-own.ndim, -1):
        for move, mate in zip(divisions(axis, attrs), divisions(-1, attrs), strict=True):
            yield predicting(
                obs,
                move.label,
                f"{obs.gradient} is right for another layout: all is read, and the gradient "
                f"written, with {move.says}",
                partial(_with_mates, name, axis, move, mate),
            )


def _with_mates(name: str, axis: int, move: Move, mate: Move, probe: Probe) -> Float | None:
    own = probe.primal(name)
    if own.ndim < -axis or move.back is None:
        return None

    def moved(x: Array) -> Array:
        if x.shape == own.shape:
            return move.of(x, probe.attrs)
        return mate.of(x, probe.attrs) if x.shape == (own.shape[axis],) else x

    primals = {n: moved(p) for n, p in zip(probe.names, probe.primals, strict=True)}
    found = probe.gradient(name, tuple(map(moved, probe.ct)), primals)
    return None if found is None else move.back(found, probe.attrs)


def _layouts(obs: Observations) -> Iterator[tuple[str, Callable[[Probe, str | int], bool]]]:
    """Which operands share the layout: primals by name, cotangents by number."""
    first, name = obs.first, obs.output
    rank = first.primal(name).ndim
    alike = [n for n, p in zip(first.names, first.primals, strict=True) if p.ndim == rank]
    yield f"{name} is read, and its gradient written,", lambda probe, key: key == name
    if any(ct.ndim == rank for ct in first.ct):
        says = f"{name} and the cotangent are read, and the gradient written,"
        yield says, lambda probe, key: key == name or isinstance(key, int)
    if len(alike) > 1:
        says = "all operands are read, and the gradient written,"
        yield says, lambda probe, key: isinstance(key, int) or key in alike


def _in_layout(
    name: str, move: Move, chosen: Callable[[Probe, str | int], bool]
) -> Callable[[Probe], Float | None]:
    back = move.back
    assert back is not None

    def of(probe: Probe) -> Float | None:
        primals = {
            other: move.of(value, probe.attrs)
            for other, value in zip(probe.names, probe.primals, strict=True)
            if chosen(probe, other)
        }
        parts = enumerate(probe.ct)
        ct = tuple(move.of(c, probe.attrs) if chosen(probe, k) else c for k, c in parts)
        found = probe.gradient(name, ct, primals)
        return None if found is None else back(found, probe.attrs)

    return of


# ── J in place of its transpose ──────────────────────────────────────────────────────────────


def forward_mode(obs: Observations) -> Iterator[Hypothesis]:
    """The Jacobian applied to the cotangent, where its transpose belongs."""
    name, first = obs.output, obs.first
    if len(first.ct) != 1 or first.ct[0].size != first.right[name].size:
        return
    tested = [p for p in obs.failing if p.ct[0].size == p.right[name].size]
    if len(tested) < 2 or first.ct[0].size > MAX_SLABS:
        return

    def fits(probe: Probe) -> bool:
        ct = probe.ct[0]
        if ct.size != probe.right[name].size or ct.size > MAX_SLABS_TESTED:
            return True  # J cannot be applied to it, or would cost too much
        rows = jacobian(probe, name)
        if rows is None:
            return False
        applied = rows.reshape(ct.size, -1) @ ct.ravel()
        return probe.reproduces(applied.reshape(probe.right[name].shape), name)

    yield Hypothesis(
        label=Defect.LAYOUT,
        says=f"{obs.gradient} is the Jacobian applied to the cotangent, not its transpose",
        fits=fits,
    )


ROLL_DISTANCES: Final = (1, -1, 2, -2, 3, -3)
PART_COUNTS: Final = (2, 3, 4)
"""Into how many equal parts an axis is taken to be divided, beside what attributes say."""


@dataclass(frozen=True, slots=True)
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
        flip = _along(axis, np.flip)
        yield Move(Defect.LAYOUT, f"{_axis(axis)} reversed", flip, flip)
    if rank > 1:
        yield Move(Defect.LAYOUT, "its last two axes reversed", _flip_two, _flip_two)
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
    named = {-1: "its last axis", 0: "its first axis", 1: "its second axis"}
    return named.get(axis, f"its axis {axis}")


def _has(array: Array, axis: int) -> bool:
    return -array.ndim <= axis < array.ndim


def _along(axis: int, of: Callable[..., Array]) -> Callable[[Array, Attrs], Array]:
    """A move along one axis, in arrays that have it."""
    return lambda array, attrs: of(array, axis=axis) if _has(array, axis) else array


def _exchanges(a: int, b: int) -> Iterator[Move]:
    two = f"{_axis(a)} and {_axis(b).removeprefix('its ')} exchanged"

    def move(of: Callable[[Array], Array]) -> Callable[[Array, Attrs], Array]:
        return lambda array, attrs: of(array) if _has(array, a) and _has(array, b) else array

    def read(array: Array) -> Array:
        shape = list(array.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return array.reshape(shape).swapaxes(a, b)

    there = move(lambda x: np.ascontiguousarray(x.swapaxes(a, b)).reshape(x.shape))
    back = move(read)
    same = move(lambda x: x.swapaxes(a, b) if x.shape[a] == x.shape[b] else x)
    yield Move(Defect.LAYOUT, two, there, back)
    yield Move(Defect.LAYOUT, f"{two} in memory", back, there)
    yield Move(Defect.LAYOUT, f"{two} where they are equally long", same, same, square=True)


def _moved_axis(source: int, place: int) -> Callable[[Array, Attrs], Array]:
    def of(array: Array, attrs: Attrs) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, source, place)).reshape(array.shape)

    return of


def _orders() -> Iterator[Move]:
    def by_columns(array: Array, attrs: Attrs) -> Array:
        return array.ravel(order="F").reshape(array.shape)

    def from_columns(array: Array, attrs: Attrs) -> Array:
        return array.ravel().reshape(array.shape, order="F")

    batch_last, last_in_front = _moved_axis(0, -1), _moved_axis(-1, 0)
    yield Move(Defect.LAYOUT, "its memory written column by column", by_columns, from_columns)
    yield Move(Defect.LAYOUT, "its memory read column by column", from_columns, by_columns)
    yield Move(Defect.LAYOUT, "its first axis taken for the innermost", batch_last, last_in_front)
    yield Move(Defect.LAYOUT, "its innermost axis taken for the first", last_in_front, batch_last)


def _flip_two(array: Array, attrs: Attrs) -> Array:
    return np.flip(array, (-2, -1)) if array.ndim > 1 else array


def _rolled(axis: int, step: int) -> Move:
    side = "behind" if step < 0 else "before"
    places = f"{abs(step)} place{'s' if abs(step) > 1 else ''}"
    says = f"each element along {_axis(axis)} taken from {places} {side} it, the ends joined"
    there, back = (_along(axis, partial(np.roll, shift=by)) for by in (step, -step))
    return Move(Defect.INDEX, says, there, back)


def _shifts(axis: int) -> Iterator[Move]:
    def shifted(array: Array, *, axis: int, step: int, edge: bool) -> Array:
        if array.shape[axis] == 0:
            return array
        out = np.roll(array, step, axis)
        end = [slice(None)] * array.ndim
        end[axis] = slice(0, 1) if step > 0 else slice(-1, None)
        out[tuple(end)] = array[tuple(end)] if edge else 0
        return out

    for step, side in ((1, "before"), (-1, "behind")):
        for edge, comes in ((False, "zero comes in at the end"), (True, "the end stays")):
            says = f"each element along {_axis(axis)} taken from 1 place {side} it; {comes}"
            yield Move(Defect.INDEX, says, _along(axis, partial(shifted, step=step, edge=edge)))


def _firsts(axis: int) -> Iterator[Move]:
    def entry(array: Array, *, axis: int, place: int) -> Array:
        if array.shape[axis] == 0:
            return array
        return np.broadcast_to(np.take(array, [place], axis=axis), array.shape)

    def summed(array: Array, *, axis: int) -> Array:
        return np.broadcast_to(array.sum(axis, keepdims=True), array.shape)

    for place, which in ((0, "first"), (-1, "last")):
        says = f"the {which} entry of {_axis(axis)} in place of every one"
        yield Move(Defect.INDEX, says, _along(axis, partial(entry, place=place)))
    yield Move(
        Defect.BROADCAST,
        f"the sum over {_axis(axis)} in place of every entry",
        _along(axis, summed),
    )


def _first_part(axis: int, count: int | str) -> Move:
    of = _divided(axis, count, lambda x, k: np.broadcast_to(x.take([0], axis=k), x.shape))
    return Move(
        Defect.INDEX, f"the first of {count} parts of {_axis(axis)} in place of every one", of
    )


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


def _divided(
    axis: int, count: int | str, change: Callable[[Array, int], Array]
) -> Callable[[Array, Attrs], Array]:
    """A move of an axis cut into parts: `change(array, k)`, the parts being axis k of the array."""

    def of(array: Array, attrs: Attrs) -> Array:
        parts = _parts(array, axis, count, attrs)
        return array if parts is None else change(parts, axis % array.ndim).reshape(array.shape)

    return of


def divisions(axis: int, attrs: Attrs) -> Iterator[Move]:
    """Parts of an axis in another order, or dealt out one by one."""
    for count in _counts(attrs):
        dealt, gathered = _divided(axis, count, _dealt), _divided(axis, count, _gathered)
        parts = f"{_axis(axis)} in {count} parts"
        yield Move(Defect.LAYOUT, f"{parts} dealt out one by one, not in blocks", dealt, gathered)
        yield Move(Defect.LAYOUT, f"{parts} in blocks, not dealt out one by one", gathered, dealt)
        if isinstance(count, int):
            for a, b in combinations(range(count), 2):
                which = "halves" if count == 2 else f"parts {a + 1} and {b + 1} of {count}"
                of = _divided(axis, count, partial(_exchanged_parts, a, b))
                yield Move(Defect.LAYOUT, f"the {which} of {_axis(axis)} exchanged", of, of)


def _dealt(parts: Array, k: int) -> Array:
    return np.ascontiguousarray(parts.swapaxes(k, k + 1))


def _gathered(parts: Array, k: int) -> Array:
    n, length = parts.shape[k : k + 2]
    pairs = parts.reshape(*parts.shape[:k], length, n, *parts.shape[k + 2 :])
    return np.ascontiguousarray(pairs.swapaxes(k, k + 1))


def _exchanged_parts(a: int, b: int, parts: Array, k: int) -> Array:
    order = [*range(parts.shape[k])]
    order[a], order[b] = b, a
    return parts.take(order, axis=k)


def _packed_pairs(axis: int, attrs: Attrs) -> Iterator[Move]:
    """The two extents of an attribute, such as a kernel's, packed in an axis in the other order."""
    for key, value in attrs.items():
        if _pair(value) is not None:
            says = f"the {key}'s two extents within {_axis(axis)} exchanged"
            there, back = partial(_turned, axis, key, 1), partial(_turned, axis, key, -1)
            yield Move(Defect.LAYOUT, says, there, back)
            yield Move(Defect.LAYOUT, f"{says} in memory", back, there)


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
