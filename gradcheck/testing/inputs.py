"""Specifications of random arrays, the primals of `@gradcheck.case`.

The numbers are those of `numerics.draw.Draw`: seeded by names, with full mantissas, so that code
that rounds them shows it; a narrower dtype gets them rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.numerics.draw import Draw

Array = NDArray[Any]
ROWS: Final[dict[str, Callable[[Array], Array]]] = {
    "zero": lambda row: 0.0 * row,
    "tiny": lambda row: row * 2.0**-20,
    "large": lambda row: row * 2.0**12,
    "constant": lambda row: np.full_like(row, row[:1].item() if row.size else 0.0),
}
"""Rows that are hard for a backward, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """An array to draw, equal whenever it is drawn for the same names.

    `draw(generator)` gives its numbers; `hard` names the kinds of its last rows.
    """

    draw: Callable[[Draw], Array]
    hard: tuple[str, ...] = ()

    def rows(self, *kinds: str) -> ArraySpec:
        """The same array with its last rows (along the last axis) made hard, one row per kind.

        "zero" is all zeros, "tiny" 2^-20 and "large" 2^12 times what was drawn, "constant" its
        first number throughout.

        Raises:
            UsageError: a kind is unknown.
        """
        for kind in kinds:
            if kind not in ROWS:
                raise UnknownNameError("kind of row", kind, ROWS)
        return replace(self, hard=(*self.hard, *kinds))

    def drawn(self, name: str, draw: Draw) -> Array:
        """The numbers; messages call the array `name`.

        Raises:
            UsageError: they are not numbers, or too few rows for the hard ones.
        """
        found = np.array(self.draw(draw), order="C")  # rows of it are views
        if found.dtype.kind not in "fiu":
            raise UsageError(f"{name} is drawn as {found.dtype}: draw floating numbers or integers")
        return _hardened(name, found, self.hard) if self.hard else found


def _hardened(name: str, array: Array, kinds: Sequence[str]) -> Array:
    if array.dtype.kind != "f" or array.ndim == 0:
        raise UsageError(f"{name}: only an array of floating numbers has hard rows")
    rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
    if len(kinds) > len(rows):
        raise UsageError(f"{name} has {len(rows)} rows, and {len(kinds)} are to be hard: draw more")
    for row, kind in zip(rows[len(rows) - len(kinds) :], kinds, strict=True):
        row[:] = ROWS[kind](row.copy())
    return array


def drawn(draw: Callable[[Draw], Array]) -> ArraySpec:
    """An array from a function: `draw` gets a seeded `gradcheck.numerics.draw.Draw`.

    >>> lower = drawn(lambda draw: np.tril(draw.normal(4, 4)))

    Raises:
        UsageError: `draw` is not a function.
    """
    if not callable(draw):
        raise UsageError(f"drawn(…) takes a function of a generator, not a {_kind(draw)}")
    return ArraySpec(draw=draw)


def normal(*shape: int, scale: float = 1.0) -> ArraySpec:
    """Standard normal numbers times `scale`."""
    sizes = _shape("normal", shape)
    return ArraySpec(draw=lambda draw: draw.normal(*sizes, scale=scale))


def uniform(low: float, high: float, *shape: int) -> ArraySpec:
    """Uniform numbers in [low, high].

    Raises:
        UsageError: the interval is empty.
    """
    if not low < high:
        raise UsageError(f"uniform({low}, {high}, …): write the lower end first, then the upper")
    sizes = _shape("uniform", shape)
    return ArraySpec(draw=lambda draw: draw.uniform(low, high, *sizes))


def positive(*shape: int) -> ArraySpec:
    """Numbers in [1/8, 2]: for logarithms, roots and divisors."""
    sizes = _shape("positive", shape)
    return ArraySpec(draw=lambda draw: draw.positive(*sizes))


def away(points: float | Sequence[float], *shape: int, scale: float = 1.0) -> ArraySpec:
    """Normal numbers times `scale` that keep 1/8 distance from each of `points`, say from kinks."""
    sizes = _shape("away", shape)
    return ArraySpec(draw=lambda draw: draw.away(points, *sizes, scale=scale))


def integers(low: int, high: int, *shape: int) -> ArraySpec:
    """Integers in [low, high): indices, labels. There is no gradient with respect to them.

    Raises:
        UsageError: the interval is empty.
    """
    if not low < high:
        raise UsageError(f"integers({low}, {high}, …): there is none from {low} up to below {high}")
    sizes = _shape("integers", shape)
    return ArraySpec(draw=lambda draw: draw.integers(low, high, *sizes))


def _shape(function: str, shape: Sequence[Any]) -> tuple[int, ...]:
    """The sizes of the axes, given as arguments or as one tuple."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = shape[0]
    for size in shape:
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if not whole or size < 0:
            raise UsageError(f"{function}(…): invalid axis size {size!r}: write whole numbers")
    return tuple(int(size) for size in shape)


def _kind(value: object) -> str:
    return type(value).__name__


def is_primal(value: object) -> bool:
    """Whether a keyword of `@gradcheck.case` is a primal; all others are attributes."""
    return isinstance(value, ArraySpec | np.ndarray)
