"""Which outputs move with which elements of a primal: the axes along which they do not mix.

An axis of a primal is *independent* if no output moves with two of its slices: the rows of
rms_norm, the columns of a weight. All slices of an independent axis are perturbed at once (they
share a *colour*), and each output belongs to the slice that moves it (its *block*). So a full
Jacobian of t rows of d features costs d evaluations, not t·d. (Curtis, Powell & Reid 1974.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.evaluate import Array, Evaluator

NUDGES: Final = (0.375, 2.0**-10)
"""Relative sizes of the finite probes: one far, for saturated outputs, and one near."""


@dataclass(frozen=True, slots=True)
class Structure:
    """Elements of a primal arranged as colours × blocks.

    `grid[c, b]` is the flat index of the element with colour c in block b; perturbing all
    elements of a colour at once, output j moves with the element of block `owner[j]`
    (−1: with none). `order` and `starts` group the outputs by block; `outputs`
    counts those of each, `present` are the blocks that have some. The grid is the primal with its
    axes in the order `axes`, which are `lengths` long.
    """

    grid: NDArray[np.int64]
    owner: NDArray[np.int64]
    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    present: NDArray[np.int64]
    outputs: NDArray[np.int64]
    axes: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def colours(self) -> int:
        """Perturbed copies per sweep."""
        return int(self.grid.shape[0])

    @property
    def blocks(self) -> int:
        """Elements perturbed together."""
        return int(self.grid.shape[1])

    def by_element(self, values: NDArray[Any]) -> NDArray[Any]:
        """A copy of `values[…, colours, blocks]` in the order of the primal, `[…, n]`."""
        front = values.shape[:-2]
        back = [len(front) + self.axes.index(axis) for axis in range(len(self.axes))]
        apart = values.reshape((*front, *self.lengths)).transpose(*range(len(front)), *back)
        return apart.copy().reshape((*front, self.grid.size))

    def by_block(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum `values[…, m]` over the outputs of each block: `[…, blocks]`."""
        sums = np.zeros((*values.shape[:-1], self.blocks), dtype=values.dtype)
        if self.present.size:
            sums[..., self.present] = np.add.reduceat(values[..., self.order], self.starts, axis=-1)
        return sums

    def norms(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Root of the sum of squares of `values[…, m]` ≥ 0 in each block: `[…, blocks]`.

        Squares neither overflow nor underflow. A block with a value that is not finite has no norm.
        """
        out = np.zeros((*values.shape[:-1], self.blocks))
        if self.present.size:
            ordered = values[..., self.order]
            largest = np.maximum.reduceat(ordered, self.starts, axis=-1)
            largest = np.where(largest > 0, largest, 1.0)
            unit = np.repeat(largest, self.outputs[self.present], axis=-1)
            squares = np.add.reduceat((ordered / unit) ** 2, self.starts, axis=-1)
            out[..., self.present] = largest * np.sqrt(squares)
        return out


def find(evaluator: Evaluator, rng: np.random.Generator) -> Structure:
    """Probe every axis of the evaluator's primal.

    Slices are probed by the bits of their numbers: once all slices whose bit is set, once all
    others. An output that one slice moves responds to exactly one probe of each pair, and the
    responses spell the slice's number; two slices differ in some bit, where both probes move the
    output. So an axis of length n costs 2·log2(n) probes of each kind, not n.
    """
    x, base = evaluator.x, evaluator.base
    bits = {axis: (n - 1).bit_length() for axis, n in enumerate(x.shape) if n > 1}
    masks = [mask for axis, count in bits.items() for mask in _masks(x, axis, count)]
    kinds = _probes(x, rng)

    def fill(rows: slice, copies: Array) -> None:
        for k, row in enumerate(range(rows.start, rows.stop)):
            mask, kind = divmod(row, len(kinds))
            np.copyto(copies[k], kinds[kind], where=masks[mask])

    moved = np.zeros((len(masks) * len(kinds), base.size), dtype=bool)
    for rows, values in evaluator.sweep(len(moved), fill):
        # A probe that forward refuses gives NaN and counts as moving every output: that costs
        # colours but never attributes an output to the wrong element.
        changed = (values != base) & ~(np.isnan(values) & np.isnan(base))
        moved[rows] = changed
    answered = moved.reshape(len(masks) // 2, 2, len(kinds), base.size)
    answers = iter(np.asarray(np.any(answered, axis=2)))
    owners = {}
    for axis, count in bits.items():
        owner = _owner(np.stack([next(answers) for _ in range(count)]))
        if owner is not None:
            owners[axis] = owner
    return _arrange(x, owners, base.size)


def near(evaluator: Evaluator, above: Array, below: Array) -> tuple[Structure, NDArray[np.float64]]:
    """Structure as the first steps `above` [s, n] show it, and f(above) − f(below), [s, m].

    Cheaper than `find`: first all slices step, then those whose bit is set. An output that one
    slice moves then has either its old value or, bit by bit, that of the whole step. So an axis
    costs log2(n) copies. An output that this step moves by no more than rounding counts as
    independent. Choose random signs for the elements: a dependence that `near` overlooks then
    makes differences that agree with no gradient, right or wrong.
    """
    x, base, count = evaluator.x, evaluator.base, len(above)
    some = np.where(_codes(x.shape), above[0], x.reshape(-1))
    half = len(some) // 2
    copies = np.concatenate([above, below, some[:half], x.reshape(1, -1), some[half:]])
    still = 2 * count + half
    values = evaluator.first_values(copies.reshape(-1, *x.shape), still)
    new, some = values[0], np.concatenate([values[2 * count : still], values[still + 1 :]])
    moved, still = some != base, new == base
    steps = (~moved | (some == new)).all(axis=1)
    owners, place = {}, 0
    for axis, n in enumerate(x.shape):
        if n == 1:
            continue
        bits = slice(place, place + (n - 1).bit_length())
        place = bits.stop
        if not steps[bits].all():
            continue
        owner = (2.0 ** np.arange(bits.stop - bits.start) @ moved[bits]).astype(np.int64)
        owner[still] = -1
        if owner.max(initial=-1) < n:
            owners[axis] = owner
    return _arrange(x, owners, base.size), values[:count] - values[count : 2 * count]


@lru_cache(maxsize=8)
def _codes(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Elements [k, n] that step: per axis those with each bit of their slice's number set."""
    numbers = np.indices(shape).reshape(len(shape), math.prod(shape))
    bits = [np.arange((n - 1).bit_length())[:, None] for n in shape]
    return np.concatenate([(own >> bit) & 1 == 1 for own, bit in zip(numbers, bits, strict=True)])


def whole(x: Array, outputs: int) -> Structure:
    """No structure: every element is a colour of its own, and all outputs are one block."""
    return _arrange(x, {}, outputs)


def _masks(x: Array, axis: int, bits: int) -> list[NDArray[np.bool_]]:
    """For each bit of the slice numbers of `axis`: slices with the bit, slices without."""
    numbers = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - axis - 1))
    return [(numbers >> bit) & 1 == side for bit in range(bits) for side in (1, 0)]


def _owner(answers: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """For each output the slice that moves it (−1: none), from `answers` [bits, 2, m].

    None if two slices move some output.
    """
    on, off = answers[:, 0], answers[:, 1]
    if np.any(on & off):
        return None
    owner: NDArray[np.int64] = np.asarray((1 << np.arange(len(on))) @ on.astype(np.int64))
    owner[~np.any(on | off, axis=0)] = -1
    return owner


def _probes(x: Array, rng: np.random.Generator) -> list[Array]:
    """Values that replace a slice: two finite ones, and NaN."""
    reach = np.maximum(np.abs(x), np.max(np.abs(x), initial=0.0) * 2.0**-6)
    reach = np.where(reach == 0, 1.0, reach)
    away = rng.choice([-1.0, 1.0], x.shape) * rng.uniform(0.5, 1.5, x.shape) * reach
    kinds: list[Array] = [(x + nudge * away).astype(x.dtype) for nudge in NUDGES]
    return [*kinds, np.full_like(x, np.nan)]  # NaN passes through saturated values


def _arrange(x: Array, owners: dict[int, NDArray[np.int64]], outputs: int) -> Structure:
    free = tuple(owners)
    axes = (*(axis for axis in range(x.ndim) if axis not in owners), *free)
    flat = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    blocks = math.prod(x.shape[a] for a in free)
    grid = flat.transpose(axes).reshape(-1, blocks)
    owner = np.zeros(outputs, dtype=np.int64)
    for axis in free:
        owner = owner * x.shape[axis] + owners[axis]
    for axis in free:
        owner[owners[axis] < 0] = -1
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner + 1, minlength=blocks + 1)
    unmoved, counts = counts[0], counts[1:]
    (present,) = counts.nonzero()
    starts = (counts.cumsum() - counts)[present]
    lengths = tuple(x.shape[axis] for axis in axes)
    return Structure(grid, owner, order[unmoved:], starts, present, counts, axes, lengths)
