"""A scalar function along a random direction through one tensor, which is moved in place.

The direction d is sign × magnitude in [1/2, 3/2]: no element can be masked, and two equal errors
hardly ever cancel. It is never stored: a counter-based generator gives any part of it again. Both
ends are formed from one saved copy in the tensor's own dtype, and the difference that the machine
made of them, x₊ − x₋, is what the gradient is multiplied by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.evaluate import REFUSALS

Array = NDArray[Any]
Float = NDArray[np.float64]

CHUNK: Final = 1 << 15
"""Elements that are moved at once: all temporaries of a chunk fit in a second-level cache."""
BLOCK: Final = 16
"""Elements per step of the generator's counter: 256 bits, 16 for each."""
WORD: Final = 4
"""Elements per word that the generator returns."""
DISTINCT: Final = 3
"""Different values, all of them float32 numbers, that are no coincidence."""
LEAST: Final = 0.5
"""The smallest magnitude of an element of a direction, in units of the tensor."""


def direction(key: int, start: int, stop: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Elements start … stop of the direction called `key`, in chunks (each overwrites the last).

    Element i depends on `key` and i alone. Values are ±(1/2 + k/32768) with k in 0 … 32767.
    """
    kind = dtype.newbyteorder("=")
    philox = np.random.Philox(key=key)
    philox.advance(start // BLOCK)
    skip = start % BLOCK
    chunk, half = np.empty(CHUNK, kind), np.empty(CHUNK, kind)
    shrink, least = kind.type(2.0**-15), kind.type(LEAST)
    for at in range(start - skip, stop, CHUNK):
        count = min(CHUNK, stop - at)
        words = np.asarray(philox.random_raw(-(-count // WORD))).astype("<u8", copy=False)
        out = chunk[:count]
        np.multiply(words.view("<i2")[:count], shrink, out=out)
        out += np.copysign(least, out, out=half[:count])
        yield out[skip:]
        skip = 0


@dataclass(frozen=True, slots=True)
class Heading:
    """Which direction: its key; `uphill` gives it the signs of the gradient that is judged.

    A random direction sees √n times less of a tensor's error as a whole than one uphill does.
    """

    key: int
    uphill: bool = False


@dataclass(slots=True)
class Scalar:
    """A function without arguments that returns a number: counted, NaN where it refuses.

    `evaluations` counts its calls, `refusal` is what it raised last.
    """

    function: Callable[[], Any]
    evaluations: int = 0
    refusal: str = ""
    _declared: bool = False
    _double: bool = False
    _few: set[float] = field(default_factory=set)

    def __call__(self) -> float:
        """One evaluation; NaN where the function raises."""
        self.evaluations += 1
        try:
            with np.errstate(all="ignore"):
                returned = self.function()
                value = float(returned)
        except REFUSALS as error:  # outside the domain: the caller drops the step
            self.refusal = f"{type(error).__name__}: {error}"
            return float("nan")
        self._declared = self._declared or getattr(returned, "dtype", None) == np.float32
        if np.isfinite(value) and not self._double:
            with np.errstate(over="ignore"):
                self._double = value != float(np.float32(value))
            if len(self._few) < DISTINCT:
                self._few.add(value)
        return value

    @property
    def u(self) -> float:
        """The unit roundoff of its values: by their dtype, or because float32 holds all of them."""
        single = self._declared or (not self._double and len(self._few) >= DISTINCT)
        return 2.0**-24 if single else 2.0**-53

    def rounding(self, base: float) -> float:
        """The least noise, one standard deviation, that its values near `base` can have."""
        return self.u * abs(base)


@dataclass(frozen=True, slots=True)
class Given:
    """The gradient that is judged, flat: the sum of its `buffers`."""

    buffers: tuple[Array, ...]

    @classmethod
    def of(cls, gradient: Array | Sequence[Array]) -> Given:
        """From one array, or from several that add up to it (copied, where not contiguous)."""
        parts = gradient if isinstance(gradient, (list, tuple)) else (gradient,)
        return cls(tuple(np.ascontiguousarray(part).reshape(-1) for part in parts))

    @property
    def u(self) -> float:
        """The unit roundoff of its dtype."""
        return float(np.finfo(self.buffers[0].dtype).eps) / 2

    def part(self, start: int, stop: int) -> Float:
        """Elements start … stop in float64."""
        total = self.buffers[0][start:stop].astype(np.float64)
        for buffer in self.buffers[1:]:
            total += buffer[start:stop]
        return total


@dataclass(frozen=True, slots=True)
class Pair:
    """Values at x + t·d and x − t·d, and what the gradient says of their difference."""

    above: float
    below: float
    given: float


@dataclass(slots=True)
class Segment:
    """Elements start … stop of one C-contiguous tensor, moved to x + t·unit·d and back.

    Use it as a context: it saves the elements, and puts them back bit by bit, whatever is raised.
    `offset` is the number of the tensor's first element in what d is drawn for: a shard of a
    tensor moves along its own part of the whole tensor's direction.
    """

    tensor: Array
    given: Given
    heading: Heading
    unit: float
    start: int
    stop: int
    offset: int = 0
    _saved: Array | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._saved = self._run.copy()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        np.copyto(self._run, self._original)
        self._saved = None

    def sums(self) -> tuple[float, float]:
        """⟨g, d⟩ and ‖g∘d‖₂²: those of several segments add up."""
        total = square = 0.0
        for at, d in self._chunks(np.dtype(np.float64)):
            terms = d * self.given.part(self.start + at, self.start + at + d.size)
            total += float(terms.sum())
            square += float(np.einsum("i,i->", terms, terms))
        return total, square

    def width(self, index: int) -> float:
        """How far t = 1 moves one element of the tensor, of either sign."""
        kind, number = np.dtype(np.float64), self.offset + index
        d = float(next(direction(self.heading.key, number, number + 1, kind))[0])
        slope = float(self.given.part(index, index + 1)[0])
        return float(np.copysign(d, slope) if self.heading.uphill and slope else d) * self.unit

    def move(self, t: float) -> None:
        """Set the elements to x + t·d."""
        run, original = self._run, self._original
        step = original.dtype.type(t * self.unit)
        for at, d in self._chunks(original.dtype):
            here = slice(at, at + d.size)
            np.multiply(d, step, out=d)
            np.add(original[here], d, out=run[here])

    @property
    def _run(self) -> Array:
        return self.tensor.reshape(-1)[self.start : self.stop]

    @property
    def _original(self) -> Array:
        if self._saved is None:
            raise RuntimeError("a ray moves its tensor only inside `with`")
        return self._saved

    def _chunks(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, Array]]:
        """Offsets and elements of d, in `dtype`."""
        at, first, last = 0, self.offset + self.start, self.offset + self.stop
        for d in direction(self.heading.key, first, last, dtype):
            if self.heading.uphill:
                slope = self.given.part(self.start + at, self.start + at + d.size)
                np.copysign(d, slope, out=d, where=slope != 0)
            yield at, d
            at += d.size

    def move_back(self, t: float) -> float:
        """Set the elements to x − t·d; returns ⟨g, (x + t·d) − (x − t·d)⟩."""
        run, original = self._run, self._original
        step = original.dtype.type(t * self.unit)
        up = np.empty(min(CHUNK, run.size), original.dtype.newbyteorder("="))
        gap = np.empty(up.shape)
        total = 0.0
        for at, d in self._chunks(original.dtype):
            here = slice(at, at + d.size)
            np.multiply(d, step, out=d)
            np.add(original[here], d, out=up[: d.size])
            np.subtract(original[here], d, out=d)
            run[here] = d
            moved = np.subtract(up[: d.size], d, out=gap[: d.size], dtype=np.float64)
            moved *= self.given.part(self.start + at, self.start + at + d.size)
            total += float(moved.sum())  # not a BLAS dot: its threads cost more than they save here
        return total


@dataclass(slots=True)
class Ray:
    """The line x + t·unit·d through a segment of a tensor in this process.

    Use it as a context. `value` is evaluated while the tensor is moved.
    """

    value: Scalar
    segment: Segment

    @property
    def heading(self) -> Heading:
        """Which direction it is."""
        return self.segment.heading

    @property
    def unit(self) -> float:
        """How far t = 1 goes, in the tensor's own units."""
        return self.segment.unit

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's."""
        return self.segment.tensor.dtype

    def __enter__(self) -> Self:
        self.segment.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.segment.__exit__(kind, error, trace)

    def pair(self, t: float) -> Pair:
        """Both ends at `t`, and ⟨g, x₊ − x₋⟩ in float64."""
        self.segment.move(t)
        above = self.value()
        given = self.segment.move_back(t)
        return Pair(above, self.value(), given)

    def at(self, t: float) -> float:
        """The value at one point of the line."""
        self.segment.move(t)
        return self.value()

    def products(self) -> tuple[float, float]:
        """⟨g, d⟩·unit, and ‖g∘d‖₂·unit: what it measures if signs are random."""
        total, square = self.segment.sums()
        return total * self.unit, float(np.sqrt(square)) * self.unit

    def width(self, index: int) -> float:
        """How far t = 1 moves one element of the tensor, of either sign."""
        return self.segment.width(index)


def unit_of(tensor: Array) -> float:
    """What counts as one unit of a tensor: its root mean square, or 1 where all of it is zero."""
    flat = tensor.reshape(-1)
    largest = max(
        (float(np.max(np.abs(flat[at : at + CHUNK]))) for at in range(0, flat.size, CHUNK)),
        default=0.0,
    )
    if not 0 < largest < np.inf:
        return 1.0
    total = 0.0
    for at in range(0, flat.size, CHUNK):
        part = flat[at : at + CHUNK].astype(np.float64) / largest  # no underflow on the way
        total += float(np.einsum("i,i->", part, part))
    return largest * float(np.sqrt(total / flat.size))
