"""Places: the gradient is right except at the end of an axis, in a block or a triangle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import follows_values
from gradcheck.explain.hypothesis import Hypothesis, Observations
from gradcheck.explain.probe import Array, Float, Mask, Probe
from gradcheck.spec.defect import Defect

BLOCKS: Final = (4, 8, 16, 32, 64)
"""Lengths of blocks of which a loop may leave out the remainder, or all but the first."""


@dataclass(frozen=True, slots=True)
class Places:
    """A set of places in an array of any shape.

    `says` follows "except", `label` is the class of being wrong there alone. `of(array, probe)` is
    a mask of the array's shape (all false where it has no such axis). `needs(array)` is true where
    the set differs from smaller and simpler ones.
    """

    label: str
    says: str
    of: Callable[[Array, Probe], Mask]
    needs: Callable[[Array], bool] = lambda array: True


def places(probe: Probe, rank: int) -> Iterator[Places]:
    """Sets of places in an array of `rank` axes, the likeliest first."""
    for axis in [*range(-1, -rank - 1, -1), *((0,) if rank > 1 else ())]:
        yield from _ends(axis)
        yield from _named(axis, probe)
        yield from _blocks(axis)
    for inner in (1, 2):
        if rank > inner:
            yield _first_only(inner)
    if rank > 1:
        yield from _triangles()
        yield from _tiles()
    # Where the right gradient is 0, a loop over contributions never writes.
    yield Places(
        Defect.ACCUMULATION, "where nothing arrives", lambda array, probe: np.asarray(array == 0)
    )


def _axis(axis: int) -> str:
    return {-1: "the last axis", 0: "the first axis"}.get(axis, f"axis {axis}")


def _line(axis: int, test: Callable[[Array, int], Mask]) -> Callable[[Array, Probe], Mask]:
    """Places chosen by their number along one axis, of its length."""

    def of(array: Array, probe: Probe) -> Mask:
        if not -array.ndim <= axis < array.ndim:
            return np.zeros(array.shape, dtype=bool)
        k = axis % array.ndim
        n = array.shape[k]
        mask = test(np.arange(n), n).reshape(-1, *(1,) * (array.ndim - 1 - k))
        return np.broadcast_to(mask, array.shape)

    return of


def _length(array: Array, axis: int) -> int:
    return array.shape[axis] if -array.ndim <= axis < array.ndim else 0


def _ends(axis: int) -> Iterator[Places]:
    along = f"along {_axis(axis)}"
    # Of two packed operands that share the last axis, one gets no gradient.
    half = Defect.SLOT if axis == -1 else Defect.INDEX
    chosen: tuple[tuple[str, str, int, Callable[[Array, int], Mask]], ...] = (
        (Defect.INDEX, "the last", 1, lambda i, n: i == n - 1),
        (Defect.INDEX, "the first", 1, lambda i, n: i == 0),
        (Defect.INDEX, "all but the first", 1, lambda i, n: i > 0),
        (Defect.INDEX, "all but the last", 1, lambda i, n: i < n - 1),
        (half, "the second half", 3, lambda i, n: i >= n - n // 2),
        (half, "the first half", 3, lambda i, n: i < n // 2),
    )
    for label, says, least, test in chosen:
        yield Places(label, f"{says} {along}", _line(axis, test), _longer(axis, least))


def _longer(axis: int, least: int) -> Callable[[Array], bool]:
    return lambda array: _length(array, axis) > least


def _named(axis: int, probe: Probe) -> Iterator[Places]:
    """Beyond a number that an attribute gives, or the length of some other axis."""
    for key, value in probe.attrs.items():
        if type(value) is int and value > 0:
            for beyond in (True, False):
                side = "from" if beyond else "up to"
                says = f"{side} `{key}` along {_axis(axis)}"
                yield Places(Defect.INDEX, says, partial(_beyond_attribute, axis, key, beyond))
    for name, primal in zip(probe.names, probe.primals, strict=True):
        for k in range(-primal.ndim, 0):
            says = f"beyond {name}'s length along {_axis(k)} ({_axis(axis)})"
            yield Places(Defect.SHAPE, says, partial(_beyond_length, axis, name, k))


def _beyond_attribute(axis: int, key: str, beyond: bool, array: Array, probe: Probe) -> Mask:
    end = probe.attrs.get(key)
    if type(end) is not int:
        return np.zeros(array.shape, dtype=bool)
    return _line(axis, lambda i, n: (i >= end) == beyond)(array, probe)


def _beyond_length(axis: int, name: str, k: int, array: Array, probe: Probe) -> Mask:
    end = _length(probe.primal(name), k) if name in probe.names else 0
    return _line(axis, lambda i, n: i >= end)(array, probe)


def _blocks(axis: int) -> Iterator[Places]:
    """The remainder after whole blocks, or everything beyond the first block."""
    along = f"along {_axis(axis)}"
    for block in BLOCKS:
        says = f"what is left over after the last whole block of {block} {along}"
        leaves = partial(_leaves_some, block, lambda array: _length(array, axis))
        yield Places(Defect.SHAPE, says, _line(axis, partial(_after_blocks, block)), leaves)
        says = f"what lies beyond the first {block} {along}"
        yield Places(Defect.SHAPE, says, _line(axis, _from(block)), _longer(axis, block))
    yield Places(
        Defect.SHAPE,
        f"what lies beyond the largest power of two {along}",
        _line(axis, lambda i, n: i >= 1 << (max(n, 1).bit_length() - 1)),
        _longer(axis, 2),
    )


def _from(place: int) -> Callable[[Array, int], Mask]:
    return lambda i, n: i >= place


def _after_blocks(block: int, i: Array, n: int) -> Mask:
    return np.asarray(i >= n // block * block)


def _leaves_some(block: int, length: Callable[[Array], int], array: Array) -> bool:
    return length(array) > block and length(array) % block > 0


def _first_only(inner: int) -> Places:
    what = "row" if inner == 1 else "matrix"

    def of(array: Array, probe: Probe) -> Mask:
        if array.ndim <= inner:
            return np.zeros(array.shape, dtype=bool)
        lead = array.shape[: array.ndim - inner]
        numbers = np.arange(int(np.prod(lead, dtype=int))).reshape((*lead, *(1,) * inner))
        return np.broadcast_to(numbers > 0, array.shape)

    return Places(Defect.INDEX, f"all but the first {what}", of)


def _tiles() -> Iterator[Places]:
    for block in (2, *BLOCKS):

        def of(array: Array, probe: Probe, block: int = block) -> Mask:
            edges = [_line(k, partial(_after_blocks, block))(array, probe) for k in (-1, -2)]
            return np.asarray(edges[0] | edges[1])

        leaves = partial(_leaves_some, block, lambda a: min(a.shape[-2:]) if a.ndim > 1 else 0)
        yield Places(
            Defect.SHAPE, f"what is left over after whole tiles of {block} by {block}", of, leaves
        )


def _triangles() -> Iterator[Places]:
    def band(test: Callable[[Array], Mask]) -> Callable[[Array, Probe], Mask]:
        def of(array: Array, probe: Probe) -> Mask:
            if array.ndim < 2:
                return np.zeros(array.shape, dtype=bool)
            rows, columns = np.indices(array.shape[-2:])
            return np.broadcast_to(test(np.asarray(columns - rows)), array.shape)

        return of

    chosen: tuple[tuple[str, Callable[[Array], Mask]], ...] = (
        ("the diagonal", lambda d: d == 0),
        ("what lies above the diagonal", lambda d: d > 0),
        ("what lies below the diagonal", lambda d: d < 0),
        ("the diagonal and above", lambda d: d >= 0),
        ("the diagonal and below", lambda d: d <= 0),
        ("what lies off the diagonal", lambda d: d != 0),
        ("what lies next to the diagonal", lambda d: abs(d) == 1),
        ("what lies beyond the diagonal's neighbours", lambda d: abs(d) > 1),
    )
    for says, test in chosen:
        yield Places(Defect.INDEX, says, band(test), lambda a: a.ndim > 1 and a.size > 3)


MIN_PROBES: Final = 2
"""Failing probes below which a set of places may hold by chance."""


def subset(obs: Observations) -> Iterator[Hypothesis]:
    """Zero, the cotangent, twice the gradient or 1 in a set of places, right elsewhere."""
    if len(obs.failing) < MIN_PROBES:
        return
    first, name = obs.first, obs.output
    if name not in first.got or on_kinks(obs):
        return
    rank = max(probe.right[name].ndim for probe in obs.failing)
    for says, value in VALUES:
        other = value(first, name)
        if other is None or not _between(first, name, other) or by_value(obs, value):
            continue
        for where in places(first, rank):
            if any(where.needs(probe.right[name]) for probe in obs.failing):
                yield _hypothesis(obs, where, says, value)


def _hypothesis(
    obs: Observations, where: Places, says: str, value: Callable[[Probe, str], Float | None]
) -> Hypothesis:
    name = obs.output

    def fits(probe: Probe) -> bool:
        other = value(probe, name)
        if other is None:
            return not probe.fails(name)  # it cannot stand there, and need not
        right = probe.right[name]
        guess = np.where(where.of(right, probe), other, right)
        return probe.reproduces(guess, name)

    return Hypothesis(
        label=_label(obs, where, value),
        says=f"{obs.gradient} is right except {where.says}: {says}",
        fits=fits,
    )


def _label(obs: Observations, where: Places, value: Callable[[Probe, str], Float | None]) -> str:
    """The class: of a transposition a triangle is left where it was done in place."""
    right, ct = obs.first.right[obs.output], obs.first.ct
    if value is _cotangent and right.ndim > 1 and len(ct) == 1:
        turned = right.swapaxes(-1, -2)
        if turned.shape == ct[0].shape and np.array_equal(turned, ct[0]):
            return Defect.ALIASING
    return where.label


def _between(probe: Probe, name: str, other: Float) -> bool:
    """Whether each element is either right or `other`, so that a set of places explains it."""
    got = probe.got[name]
    wrong = probe.wrong(name)
    with np.errstate(all="ignore"):
        chosen = np.where(wrong, other, probe.right[name])
    return probe.reproduces(chosen, name) and bool(wrong.any()) and got.size > 1


def on_kinks(obs: Observations) -> bool:
    """Whether every wrong element sits on a kink: its value is to blame, not its place."""
    name = obs.output
    return all(
        name in probe.kinked
        and probe.kinked[name].shape == probe.right[name].shape
        and bool((probe.kinked[name] | ~probe.wrong(name)).all())
        for probe in obs.failing
    )


def by_value(obs: Observations, value: Callable[[Probe, str], Float | None]) -> bool:
    """Whether values tell the places as well: they move with them, or a threshold parts them."""
    name, first = obs.output, obs.first
    alike = len(first.ct) == 1 and first.ct[0].shape == first.right[name].shape
    if alike and follows_values(first, name):
        return True
    for operand in obs.first.names:
        for of in (np.asarray, np.abs):
            sides = [_side(probe, name, operand, of, value) for probe in obs.failing]
            if all(side == sides[0] and side != 0 for side in sides):
                return True
    return False


def _side(
    probe: Probe,
    name: str,
    operand: str,
    of: Callable[[Float], Float],
    value: Callable[[Probe, str], Float | None],
) -> int:
    """1 where the operand is larger at all wrong places than at all others, -1 if smaller."""
    other = value(probe, name)
    x = of(np.asarray(probe.primal(operand), dtype=np.float64))
    wrong, right = probe.wrong(name), probe.right[name]
    if other is None or x.shape != right.shape:
        return 0
    tells = ~np.isclose(other, right)  # elsewhere the two cannot be told apart
    inside, outside = x[wrong], x[~wrong & tells]
    if not inside.size or not outside.size:
        return 0
    return int(inside.min() > outside.max()) - int(inside.max() < outside.min())


# ── what stands there instead ────────────────────────────────────────────────────────────────


def zero(probe: Probe, name: str) -> Float:
    """Zeros in the gradient's shape."""
    return np.zeros_like(probe.right[name])


def _cotangent(probe: Probe, name: str) -> Float | None:
    """The cotangent itself, where it has the gradient's shape."""
    fitting = [ct for ct in probe.ct if ct.shape == probe.right[name].shape]
    return fitting[0] if fitting else None


VALUES: Final = (
    ("it is 0 there", zero),
    ("the cotangent stands there", _cotangent),
    ("1 stands there", lambda probe, name: np.ones_like(probe.right[name])),
)
