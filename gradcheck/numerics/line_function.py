"""A scalar function along a ray through one tensor, which is moved in place.

Both ends of a step are formed from one saved copy in the tensor's own dtype; the gradient is
multiplied by their difference x₊ − x₋ as the machine rounded it. The direction is never stored
(see `draw.direction`).

`Ray` and `adaptive_slope.TensorView` serve a tensor in this process. The protocols `Line` and
`Place` are what the search for a slope needs, so a sharded tensor can implement them: each machine
moves its own `Segment`, whose sums add up, and only numbers travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np

from gradcheck.numerics.arrays import Array, Float, unit_roundoff
from gradcheck.numerics.draw import CHUNK, direction
from gradcheck.numerics.evaluate import REFUSALS

DISTINCT_VALUES: Final = 3
"""If this many different values are all float32 numbers, the function computes in float32."""


@dataclass(frozen=True, slots=True)
class Heading:
    """Which direction: its key; `uphill` gives it the signs of the gradient that is judged.

    A random direction sees √n times less of a tensor's error as a whole than one uphill does.
    """

    key: int
    uphill: bool = False


@dataclass(slots=True)
class Scalar:
    """A function without arguments that returns a number: counted, NaN where it raises.

    `evaluations` counts its calls; `refusal` is the text of its last exception.
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
            if len(self._few) < DISTINCT_VALUES:
                self._few.add(value)
        return value

    @property
    def u(self) -> float:
        """The unit roundoff of its values: by their dtype, or because float32 holds all of them."""
        single = self._declared or (not self._double and len(self._few) >= DISTINCT_VALUES)
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
        return unit_roundoff(self.buffers[0].dtype)

    def part(self, start: int, stop: int) -> Float:
        """Elements start … stop in float64."""
        total = self.buffers[0][start:stop].astype(np.float64)
        for buffer in self.buffers[1:]:
            total += buffer[start:stop]
        return total


@dataclass(frozen=True, slots=True)
class Pair:
    """Values at x + t·d and x − t·d, and ⟨g, x₊ − x₋⟩ for the gradient g that is judged."""

    above: float
    below: float
    given: float


@dataclass(slots=True)
class Segment:
    """Elements start … stop of one C-contiguous tensor, moved to x + t·unit·d and back.

    As a context it saves the elements, and restores them bit by bit, whatever is raised.
    `offset` is the number of the tensor's first element in the array for which d is drawn: a shard
    of a tensor moves along its own part of the whole tensor's direction.
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
        """The distance t = 1 moves one element of the tensor, of either sign."""
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


@dataclass(slots=True)
class Ray(Segment):
    """The line x + t·unit·d through a segment of a tensor in this process.

    A `Line`; `value` is evaluated while the tensor is moved.
    """

    _: KW_ONLY
    value: Scalar

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    def pair(self, t: float) -> Pair:
        self.move(t)
        above = self.value()
        given = self.move_back(t)
        return Pair(above, self.value(), given)

    def at(self, t: float) -> float:
        self.move(t)
        return self.value()

    def products(self) -> tuple[float, float]:
        total, square = self.sums()
        return total * self.unit, float(np.sqrt(square)) * self.unit


def unit_of(tensor: Array) -> float:
    """The unit of a tensor: its root mean square, or 1 if all of it is zero."""
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


class Line(Protocol):
    """A ray, whether its tensor lies in this process or is sharded over many.

    As a context it restores bit by bit whatever it moved. `value` is the function at the point
    where the tensor currently is, `unit` the distance of t = 1 in the tensor's own units.
    """

    value: Scalar

    @property
    def heading(self) -> Heading:
        """The direction's key."""

    @property
    def unit(self) -> float:
        """The distance of t = 1, in the tensor's own units."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's dtype."""

    def __enter__(self) -> Self:
        """Save the elements that will be moved."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore them."""

    def pair(self, t: float) -> Pair:
        """Both ends at `t`, and ⟨g, x₊ − x₋⟩ in float64."""

    def at(self, t: float) -> float:
        """The value at one point of the line."""

    def products(self) -> tuple[float, float]:
        """⟨g, d⟩·unit, and ‖g∘d‖₂·unit: its typical size if signs are random."""

    def width(self, index: int) -> float:
        """The distance t = 1 moves one element of the tensor, of either sign."""


class Place(Protocol):
    """One tensor of a scalar function at the point x, wherever it lies, and its gradient.

    `base` is the function's value there. `shape` and `dtype` are the tensor's, `u` is the unit
    roundoff of the gradient that is judged.
    """

    @property
    def value(self) -> Scalar:
        """The function."""

    @property
    def base(self) -> float:
        """Its value at the point."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""

    @property
    def size(self) -> int:
        """Elements of the tensor."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's dtype."""

    @property
    def u(self) -> float:
        """The unit roundoff of the gradient that is judged."""

    def got(self, index: int) -> float:
        """One element of that gradient, by its flat index."""

    def ray(self, heading: Heading, start: int = 0, stop: int | None = None) -> Line:
        """The line through elements start … stop."""
