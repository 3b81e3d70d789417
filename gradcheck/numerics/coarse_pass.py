"""One central pair per colour: a first estimate of a large gradient, at a third of the cost.

A *pilot* of a few colours shows, block by block, how fast the error of a central difference falls
with its step, and how much rounding is in it; from both follow the best step for one pair per
colour, and its bar. Elements that the pair leaves open get three steps and the ladder.

Elements that step together go up or down by a hash of their number. If a block depends on an
element of another one after all (the structure is only as good as its probe), its differences
agree with no gradient, right or wrong, and are measured again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics import sparsity
from gradcheck.numerics.arrays import Float
from gradcheck.numerics.evaluate import Array, Evaluator, keep_pages
from gradcheck.numerics.noise import RELATIVE
from gradcheck.numerics.sparsity import Structure

SMALLEST: Final = 48
"""Elements of a primal below which three steps of each cost no more than the pilot."""
TOP: Final = 2.0**-10
"""The pilot's first step, as a part of the primal's largest element."""
FALL: Final = 16.0
"""How many times smaller each step of the pilot is than the one before."""
LEVELS: Final = 3
FINER: Final = 4
"""Levels that may follow if these are too coarse: rms_norm at 1e-4 needs shorter steps."""
COLOURS: Final = 4
"""Colours of the pilot; more if there are few blocks."""
PER_COLOUR: Final = 256
"""The pilot takes one of this many colours, up to 8 times as many."""
SMALL: Final = 2.0**-5
"""The largest error, as a part of the slope, of a step in the regime of h²."""
FALLS: Final = FALL**2 / 4
"""The factor by which it must fall at the next step, unless it falls below TINY."""
TINY: Final = 2.0**-12
NOTHING: Final = 2.0**-1022
ASIDE: Final = np.array([1.0, 0.5, 0.0, -0.25])
"""Steps of copies that only show whether copies can be stacked: asymmetric."""
LUCK: Final = 8.0
"""The factor by which a block may look better than most by chance."""
LEAST: Final = 2.0**-3
"""The least Σ|ct·J| of an element, as a part of its block's mean."""
SAFETY: Final = 6.0
"""The largest third derivative of an element, as a multiple of those in the pilot."""
SIGMAS: Final = 3.0
CANCELS: Final = 4.0
GATHERED: Final = 1 << 13
"""Differences that are contracted at once; shorter chunks are joined."""


@dataclass(frozen=True, slots=True)
class Screened:
    """The gradient of Σ ct·f from one pair per colour: arrays [q, n], in its units.

    `bar` is infinite where the pilot found no step. `terms` [n] counts the outputs that an element
    may move, at most.
    """

    value: Float
    bar: Float
    scale: Float
    terms: NDArray[np.int64]


class Contraction:
    """Σ ct·Δf over the outputs of each block, for all cotangents at once."""

    def __init__(self, shape: Structure, cts: Float) -> None:
        """Arrange `cts` [q, m] by block, if all nonempty blocks have equally many outputs."""
        self._shape, self._cts = shape, cts
        counts = shape.outputs[shape.present]
        self._uniform = counts.size > 0 and bool((counts == counts[0]).all())
        in_order = len(shape.order) == cts.shape[1] and (shape.owner[1:] >= shape.owner[:-1]).all()
        self._order = None if in_order else shape.order
        if self._uniform:
            self._weights = np.ascontiguousarray(self._apart(cts).transpose(1, 2, 0))
            self._sizes = np.abs(self._weights)

    def by_block(self, values: Float) -> Float:
        """Sums of `values` [q, m] over the outputs of each block, [q, blocks]."""
        if not self._uniform:
            return self._shape.by_block(values)
        return self._spread(self._apart(values).sum(axis=2))

    def __call__(self, moved: Float) -> tuple[Float, Float]:
        """Sums, and sums of absolute values, [q, k, blocks], of `moved` [k, m]."""
        if not self._uniform:
            weighted = self._cts[:, None, :] * moved
            return self._shape.by_block(weighted), self._shape.by_block(np.abs(weighted))
        blocks = self._apart(moved)
        if blocks.shape[2] == 1:
            sums = self._weights[:, 0].T[:, None, :] * blocks[:, :, 0]
            return self._spread(sums), self._spread(np.abs(sums))
        blocks = blocks.transpose(1, 0, 2)
        sums = np.matmul(blocks, self._weights).transpose(2, 1, 0)
        sizes = np.matmul(np.abs(blocks), self._sizes).transpose(2, 1, 0)
        return self._spread(sums), self._spread(sizes)

    def _apart(self, values: Float) -> Float:
        """`values` [k, m] by block: [k, blocks that have outputs, outputs of each]."""
        if self._order is not None:
            values = values.take(self._order, axis=1)
        return values.reshape(len(values), self._shape.present.size, -1)

    def _spread(self, sums: Float) -> Float:
        """Sums [..., blocks that have outputs] as [..., blocks]: 0 for the others."""
        if self._shape.present.size == self._shape.blocks:
            return sums
        out = np.zeros((*sums.shape[:-1], self._shape.blocks))
        out[..., self._shape.present] = sums
        return out


def screen(evaluator: Evaluator, cts: Float) -> Screened:
    """One pair per colour for the cotangents `cts` [q, m], at the steps that a pilot chooses."""
    x = evaluator.x.reshape(-1)
    keep_pages()
    with np.errstate(all="ignore"):  # steps beyond the domain, and beyond the largest number
        signs = _signs(x.size)
        h = TOP * (float(np.abs(x).max()) or 1.0) / FALL ** np.arange(LEVELS, dtype=np.float64)
        # Most vectors have one colour; then the steps that show the structure are the whole pilot.
        step = (h if evaluator.x.ndim == 1 else h[:1])[:, None] * signs
        if evaluator.base.size == 1:
            shape, moved = sparsity.whole(evaluator.x, 1), np.zeros((0, 1))
            copies = x + ASIDE[:, None] * step[0]
            evaluator.first_values(copies.reshape(-1, *evaluator.x.shape), ASIDE.size // 2)
        else:
            shape, moved = sparsity.near(evaluator, x + step, x - step)
        sums = Contraction(shape, cts)
        pilot = _Pilot(evaluator, shape, sums, signs, _model(sums, evaluator, cts))
        pilot.look(h, moved if shape.colours == 1 else moved[:0])
        pilot.settle()
        found = pilot.extrapolated() if pilot.whole else pilot.sweep()
    terms = np.empty(shape.grid.shape, dtype=np.int64)
    terms[:] = shape.outputs
    value, bar, scale = shape.by_element(found)
    return Screened(value, bar, scale, shape.by_element(terms))


class _Pilot:
    """Differences of a few colours at several steps: arrays [level, q, colours, blocks]."""

    def __init__(
        self, evaluator: Evaluator, shape: Structure, sums: Contraction, signs: Float, noise: Float
    ) -> None:
        """Choose the colours; `noise` [q, blocks] is a model of one standard deviation."""
        self._evaluator, self._shape, self._sums = evaluator, shape, sums
        self._signs, self._noise = signs, noise
        self._u = evaluator.u
        count = COLOURS if shape.blocks >= COLOURS else 2 * COLOURS
        count = min(max(count, shape.colours // PER_COLOUR), 8 * COLOURS, shape.colours)
        self.whole = count == shape.colours
        self._colours = np.arange(count) * (shape.colours - 1) // max(count - 1, 1)
        self._h = np.zeros(0)
        self._slopes = self._scales = np.zeros((0, len(noise), count, shape.blocks))

    def look(self, h: Float, known: Float) -> None:
        """Difference the colours at further steps `h`.

        `known` [k, m] are the differences of the first k steps, where there is but one colour.
        """
        cells = self._shape.grid[self._colours]
        every = np.concatenate([cells] * len(h))
        above, below = self._ends(every, h.repeat(len(cells))[:, None])
        moved = [known]
        if len(known) < len(every):
            rest = (ends[len(known) :] for ends in (every, above, below))
            moved += [d for _, d in self._evaluator.pairs(*rest)]
        sums, sizes = self._sums(np.concatenate(moved))
        gaps = above - below
        shape = (len(sums), len(h), *cells.shape)
        slopes = (sums / gaps).reshape(shape).swapaxes(0, 1)
        scales = (sizes / np.abs(gaps)).reshape(shape).swapaxes(0, 1)
        self._h = np.concatenate([self._h, h])
        self._slopes = np.concatenate([self._slopes, slopes])
        self._scales = np.concatenate([self._scales, scales])

    def _ends(self, cells: NDArray[np.int64], h: Float) -> tuple[Array, Array]:
        """The elements of `cells` after a step up and a step down."""
        x = self._evaluator.x.reshape(-1)[cells]
        step = h * self._signs[cells]
        return x + step, x - step

    def settle(self) -> None:
        """Find each block's steps in the regime of h², and its noise; add finer steps if needed."""
        self._read()
        for _ in range(FINER):
            if self._settled.all():
                return
            self.look(self._h[-1:] / FALL, np.zeros((0, self._evaluator.base.size)))
            self._read()

    def _read(self) -> None:
        h, slopes, scales = self._h, self._slopes, self._scales
        count = scales.shape[2]
        least = scales.sum(axis=2) * (LEAST / count)  # [level, q, blocks]
        change = slopes[:-1] - slopes[1:]
        part = np.abs(change) / np.maximum(scales[1:] + least[1:, :, None], NOTHING)
        self._worst = worst = part.max(axis=(1, 2))  # [level − 1, blocks]
        self._ok = (worst[:-1] <= SMALL) & (worst[1:] <= np.maximum(worst[:-1] / FALLS, TINY))
        self._settled = settled = self._ok.any(axis=0)
        self._least = least[-2]
        # The finest change without its h² term is rounding.
        seen = (change[-1] - change[-2] / FALL**2) * (h[-1] * math.sqrt(2))
        squares = np.where(settled & np.isfinite(seen), seen, 0.0) ** 2
        model = np.where(settled, self._noise, 0.0)
        share = squares.sum() / (count * (model * model).sum())
        ratio = math.sqrt(share) if share > 1 else 1.0  # nan: nothing moves
        self._level = np.maximum(ratio * self._noise, np.sqrt(squares.sum(axis=1) / count))

    def _law(self) -> tuple[Float, Float]:
        """Each block's error, relative to its slope, per h²; its longest step in that regime."""
        first = self._ok.argmax(axis=0)
        longest = self._h[first]
        growth = self._worst[first, np.arange(first.size)] / longest**2
        # With few colours a block may look better than it is by chance.
        usual = _middle(growth[self._settled])
        growth = np.maximum(growth, np.minimum(usual, LUCK * growth))
        settled = self._settled
        return np.where(settled, growth, np.inf), np.where(settled, longest, self._h[-1])

    def extrapolated(self) -> Float:
        """Value, bar, scale: [3, q, colours, blocks], where all colours took all steps."""
        factor = FALL**2
        values = (factor * self._slopes[1:] - self._slopes[:-1]) / (factor - 1)
        h = self._h[1:-1].reshape(-1, 1, 1, 1)
        floor = SIGMAS * (self._level[:, None] / h + RELATIVE * self._u * self._scales[1:-1])
        change = np.abs(self._slopes[1:] - self._slopes[:-1])
        # The next value has more noise, and may agree by chance: relative to the slope, the h⁴ term
        # is about the square of the h² term; or that of other elements, if this one vanishes.
        part = change[:-1] / self._scales[1:-1]
        usual = _middle(part[np.isfinite(part)])
        fourth = np.fmax(part, usual) ** 2 * self._scales[1:-1] / factor
        bar = 3 * np.abs(values[1:] - values[:-1]) + 2 * fourth + floor
        settling = change[1:] <= change[:-1] / 2 + FALL * floor
        bar = np.where(settling & np.isfinite(bar), bar, np.inf)
        if len(bar) == 1:
            return np.concatenate([values[:1], bar, self._scales[1:2]])
        best = bar.argmin(axis=0)[None]
        found = (values[:-1], bar, self._scales[1:-1])
        return np.concatenate([np.take_along_axis(a, best, 0) for a in found])

    def sweep(self) -> Float:
        """Value, bar, scale: [3, q, colours, blocks], one pair per colour."""
        grid = self._shape.grid
        growth, longest = self._law()
        rounding = (self._level * LEAST / self._least).max(axis=0)
        ideal = np.cbrt(SIGMAS * rounding / (2 * SAFETY * growth))
        within = np.minimum(np.maximum(ideal, self._h[-1]), longest)
        h = np.where(np.isfinite(ideal), within, self._h[1])
        above, below = self._ends(grid, h)
        gaps = above - below
        found = np.empty((3, len(self._noise), *grid.shape))
        value, bar, scale = found
        start = 0
        for moved in _gathered(self._evaluator.pairs(grid, above, below)):
            rows = slice(start, start + len(moved))
            value[:, rows], scale[:, rows] = self._sums(moved)
            start = rows.stop
        value /= gaps
        scale /= np.abs(gaps)
        np.add(scale, self._least[:, None], out=bar)
        bar *= SAFETY * growth * h**2 + SIGMAS * RELATIVE * self._u
        bar += (SIGMAS * self._level / h)[:, None]
        bar[~np.isfinite(bar)] = np.inf
        return found


def _gathered(chunks: Iterator[tuple[slice, Float]]) -> Iterator[Float]:
    """The differences of `chunks`, several at once where they are short."""
    some: list[Float] = []
    for _, moved in chunks:
        some.append(moved)
        if len(some) * moved.size >= GATHERED:
            yield np.concatenate(some) if len(some) > 1 else moved
            some = []
    if some:
        yield np.concatenate(some) if len(some) > 1 else some[0]


def _middle(values: Float) -> float:
    """The upper median; 0 if empty."""
    return float(np.sort(values, axis=None)[values.size // 2]) if values.size else 0.0


def _model(sums: Contraction, evaluator: Evaluator, cts: Float) -> Float:
    """Noise of each block if every output is rounded once, [q, blocks].

    An output that is small by cancellation inside forward has the noise of the cancelling terms: a
    block counts at least a part of the others, the more, the fewer outputs it has.
    """
    squares = sums.by_block((evaluator.u * cts * evaluator.base) ** 2)
    each = max(1.0, evaluator.base.size / squares.shape[1])
    mean = squares.sum(axis=1, keepdims=True) / squares.shape[1]
    least = mean / (CANCELS**2 * each)
    return np.asarray(np.sqrt(np.maximum(squares, least)))


@cache
def _signs(n: int) -> Float:
    """Between 15/16 and 1 for each element, of either sign, by a hash of its number, in 20 bits.

    Equal on every machine. With steps of one size, the sum over a row whose signs balance would not
    move, and an element that forward needs would seem to have no slope.
    """
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    size = 1.0 - (z & np.uint64(0xFFFF)).astype(np.float64) / 2.0**20
    return np.where(z >> np.uint64(63), size, -size)
