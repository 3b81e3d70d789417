"""What a ladder needs of a ray, and of the place where a tensor lies: here, or on many machines.

`projection.Ray` and `adaptive_slope.TensorView` are those of a tensor in this process. Where it is
sharded, each machine moves its own `projection.Segment`, whose sums add up; only numbers travel.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from gradcheck.numerics.projection import Heading, Pair, Scalar


class Line(Protocol):
    """What a ladder needs of a ray, wherever its tensor lies: in this process, or in many.

    Used as a context it puts back whatever it moved, bit by bit. `value` is the function at the
    point where the tensor is just now, `unit` how far t = 1 goes.
    """

    value: Scalar

    @property
    def heading(self) -> Heading:
        """Which direction it is."""

    @property
    def unit(self) -> float:
        """How far t = 1 goes, in the tensor's own units."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's."""

    def __enter__(self) -> Self:
        """Keep what will be moved."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put it back."""

    def pair(self, t: float) -> Pair:
        """Both ends at `t`, and ⟨g, x₊ − x₋⟩ in float64."""

    def at(self, t: float) -> float:
        """The value at one point of the line."""

    def products(self) -> tuple[float, float]:
        """⟨g, d⟩·unit, and ‖g∘d‖₂·unit: what it measures if signs are random."""

    def width(self, index: int) -> float:
        """How far t = 1 moves one element of the tensor, of either sign."""


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
        """The tensor's."""

    @property
    def size(self) -> int:
        """Elements of the tensor."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's."""

    @property
    def u(self) -> float:
        """The unit roundoff of the gradient that is judged."""

    def got(self, index: int) -> float:
        """One element of that gradient, by its flat index."""

    def ray(self, heading: Heading, start: int = 0, stop: int | None = None) -> Line:
        """The line through elements start … stop."""
