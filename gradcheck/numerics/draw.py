"""Seeded generators of primals and cotangents: a number depends on names, never on order.

Values fill float64's 53 bits: code that computes in a narrower type must round them, which shows.
A narrower dtype is judged at these values, rounded once (ADR 42).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]
LEAST = 2.0**-7
"""The smallest probability drawn."""


def key_of(*names: object) -> int:
    """A 128-bit key from names, the same on every machine and in every process."""
    text = "\x1f".join(str(name) for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


class Draw:
    """Random values for one named purpose.

    `Draw(0, "builtin", "rms_norm", "typical")` always yields the same numbers: adding an operator
    or a sample changes no other values.
    """

    def __init__(self, *names: object) -> None:
        """Seed a counter-based generator with `names`."""
        self._rng = np.random.Generator(np.random.Philox(key=key_of(*names)))

    def normal(self, *shape: int, scale: float = 1.0) -> Float64:
        """Standard normal values times `scale`."""
        return np.asarray(self._rng.standard_normal(shape) * scale, dtype=np.float64)

    def uniform(self, low: float, high: float, *shape: int) -> Float64:
        """Uniform values in [low, high]."""
        return np.asarray(self._rng.uniform(low, high, shape))

    def positive(self, *shape: int) -> Float64:
        """Values in [1/8, 2]."""
        return self.uniform(0.125, 2.0, *shape)

    def signed(self, *shape: int) -> Float64:
        """Sign × magnitude in [1/2, 3/2]: dense, and no element can hide another's error."""
        return np.asarray(self.signs(*shape) * self.uniform(0.5, 1.5, *shape))

    def signs(self, *shape: int) -> Float64:
        """±1."""
        return np.asarray(self._rng.integers(0, 2, shape) * 2.0 - 1.0, dtype=np.float64)

    def powers(self, *shape: int) -> Float64:
        """Signed powers of two from 2^-4 to 2^4: magnitudes that differ by a factor of 256."""
        exponents = self._rng.integers(-4, 5, shape).astype(np.float64)
        return np.asarray(self.signs(*shape) * np.exp2(exponents), dtype=np.float64)

    def near(self, centre: float, *shape: int) -> Float64:
        """Values within 2^-7 of `centre`."""
        return np.asarray(centre + self._rng.uniform(-1.0, 1.0, shape) * 2.0**-7)

    def away(self, points: float | Sequence[float], *shape: int, scale: float = 1.0) -> Float64:
        """Normal values times `scale` that keep 1/8 distance from each of `points`."""
        centres = np.atleast_1d(np.asarray(points, dtype=np.float64)).tolist()
        return self._reject(
            shape,
            lambda size: np.asarray(self._rng.standard_normal(size) * scale, dtype=np.float64),
            lambda x: np.logical_and.reduce([np.abs(x - c) >= 0.125 for c in centres]),
        )

    def filled(self, values: ArrayLike) -> Float64:
        """Designed values, each within 2^-8 of itself, with a full mantissa; zeros stay."""
        given = np.asarray(values, dtype=np.float64)
        return np.asarray(given * (1 + self._rng.uniform(-1.0, 1.0, given.shape) * 2.0**-8))

    def swamped(self, *shape: int) -> Float64:
        """Rows (last axis) of positive terms: first 1, then less than half its last place.

        A running sum loses all of them in bfloat16, and two thirds of a row in float16.
        """
        last = np.where(np.arange(shape[-1]) <= shape[-1] // 3, 2.0**-8, 2.0**-11)
        out: Float64 = self.uniform(0.85, 0.97, *shape) * last
        out[..., :1] = 1.0
        return out

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int64]:
        """Integers in [low, high)."""
        return self._rng.integers(low, high, shape, dtype=np.int64)

    def probabilities(self, *shape: int) -> Float64:
        """Rows (last axis) of values in [2^-7, 1) that sum to about 1."""
        raw = self._rng.uniform(0.2, 1.0, shape)
        return np.asarray(np.maximum(raw / raw.sum(axis=-1, keepdims=True), LEAST))

    def permutation(self, count: int) -> NDArray[np.int64]:
        """0 … count − 1 in random order."""
        return self._rng.permutation(count).astype(np.int64)

    @staticmethod
    def _reject(
        shape: tuple[int, ...],
        propose: Callable[[tuple[int, ...]], Float64],
        accept: Callable[[Float64], NDArray[np.bool_]],
    ) -> Float64:
        out = propose(shape)
        for _ in range(1000):
            bad = ~accept(out)
            if not bad.any():
                return out
            out = np.where(bad, propose(shape), out)
        raise ValueError("no value keeps its distance from every point: widen the scale")
