"""The cotangents under which a gradient is judged: random, dense and signed; never ones alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradcheck.numerics.arrays import Array, Float, dtype_named
from gradcheck.numerics.draw import Draw, run_of_cotangent

KINDS: Final = ("normal", "powers", "ones")
THIRDS: Final = -8.0 / 3.0
"""A cotangent with the bits 1010…: every type loses a third of its last place."""


@dataclass(frozen=True, slots=True)
class Cotangents:
    """Cotangents by name, each a tuple shaped as forward's outputs, in float64."""

    names: tuple[str, ...]
    values: tuple[tuple[Array, ...], ...]

    @property
    def flat(self) -> Float:
        """All cotangents as rows [q, m]."""
        parts = [part.reshape(-1) for ct in self.values for part in ct]
        return np.concatenate(parts).reshape(len(self.values), -1)

    def typed(self, dtype: str) -> list[tuple[Array, ...]]:
        """All cotangents in a working dtype."""
        kind = dtype_named(dtype)
        return [tuple(part.astype(kind) for part in ct) for ct in self.values]

    def holding(self, first: Float) -> Cotangents:
        """These cotangents with `first` [m] in place of the normal one.

        For a single number, 1 is among them already; −2 replaces the power of two, and THIRDS the
        normal one, because a single random number may be short by chance.
        """
        if first.size == 1:
            values = [self._filled(x) for x in (THIRDS * first, -2.0 * first)]
            return Cotangents(self.names, (*values, *self.values[2:]))
        return Cotangents(self.names, (self._filled(first), *self.values[1:]))

    def _filled(self, flat: Float) -> tuple[Array, ...]:
        parts, at = [], 0
        for part in self.values[0]:
            parts.append(flat[at : at + part.size].reshape(part.shape).copy())
            at += part.size
        return tuple(parts)

    def rounded(self, dtype: str) -> Cotangents:
        """These cotangents in float64, rounded to a dtype."""
        return self.held([dtype_named(dtype)] * len(self.values[0]))

    def held(self, kinds: Sequence[np.dtype[Any]]) -> Cotangents:
        """These cotangents in float64, each output rounded to its dtype."""
        values = tuple(
            tuple(p.astype(kind).astype(np.float64) for p, kind in zip(ct, kinds, strict=True))
            for ct in self.values
        )
        return Cotangents(self.names, values)


def first_cotangent(seed: int, subject: str, size: int) -> Float:
    """The first cotangent of a quick check: random, but 1 for a forward with one number, [size].

    Every loss has the cotangent 1; −2 times it shows clipping beyond ±1.
    """
    return np.array([1.0]) if size == 1 else run_of_cotangent(seed, subject, size)


def draw_cotangents(draw: Draw, shapes: Sequence[tuple[int, ...]]) -> Cotangents:
    """One normal (no element near zero), one of signed powers of two, one of all ones.

    All ones is the usual cotangent; alone it misses errors (a softmax's VJP for it is exactly
    zero).
    """
    makers: dict[str, Callable[[tuple[int, ...]], Array]] = {
        "normal": lambda shape: draw.away(0.0, *shape),
        "powers": lambda shape: draw.powers(*shape),
        "ones": np.ones,
    }
    values = tuple(tuple(makers[kind](shape) for shape in shapes) for kind in KINDS)
    return Cotangents(KINDS, values)
