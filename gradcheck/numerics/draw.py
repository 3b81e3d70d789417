"""Seeded random numbers: primals, cotangents and directions depend on names, never on order.

The values of a `Draw` fill float64's 53 bits: code that computes in a narrower type must round
them, which shows. A narrower dtype is judged at these values, rounded once (ADR 42).

The elements of a direction are sign × magnitude in [1/2, 3/2]: none can be masked, and two equal
errors hardly ever cancel. `direction` generates any part of a direction again, so none is stored.

Setting up a generator for each check would cost as much as a small forward. So a pool is drawn once
per process, and the names of a check choose its run of numbers: equal names, equal numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradcheck.numerics.arrays import Array

Float64 = NDArray[np.float64]

LEAST: Final = 2.0**-7
"""The smallest probability drawn."""
POOL: Final = 1 << 16
"""Numbers of the pool; a longer run is drawn on demand."""
KIND: Final[np.dtype[Any]] = np.dtype(np.float64)
CHUNK: Final = 1 << 15
"""Elements that are moved at once: all temporaries of a chunk fit in a second-level cache."""
BLOCK: Final = 16
"""Elements per step of the generator's counter: 256 bits, 16 for each."""
WORD: Final = 4
"""Elements per word that the generator returns."""
LEAST_MAGNITUDE: Final = 0.5
"""The smallest magnitude of an element of a direction, in units of the tensor."""


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


def direction(key: int, start: int, stop: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Elements start … stop of the direction `key`, in chunks (each overwrites the last).

    Element i depends on `key` and i alone. Values are ±(1/2 + k/32768) with k in 0 … 32767.
    """
    kind = dtype.newbyteorder("=")
    philox = np.random.Philox(key=key)
    philox.advance(start // BLOCK)
    skip = start % BLOCK
    chunk, half = np.empty(CHUNK, kind), np.empty(CHUNK, kind)
    shrink, least = kind.type(2.0**-15), kind.type(LEAST_MAGNITUDE)
    for at in range(start - skip, stop, CHUNK):
        count = min(CHUNK, stop - at)
        words = np.asarray(philox.random_raw(-(-count // WORD))).astype("<u8", copy=False)
        out = chunk[:count]
        np.multiply(words.view("<i2")[:count], shrink, out=out)
        out += np.copysign(least, out, out=half[:count])
        yield out[skip:]
        skip = 0


def run_of_direction(seed: int, subject: str, size: int) -> Float64:
    """`size` elements of a direction, read-only."""
    if size <= POOL:
        start = _starts(seed, subject)[0]
        return _directions()[start : start + size]
    return _whole(key_of("check", "direction", seed, subject), size)


def run_of_cotangent(seed: int, subject: str, size: int) -> Float64:
    """`size` elements of a cotangent: normal, none of them near zero."""
    if size <= POOL:
        start = _starts(seed, subject)[1]
        return _normals()[start : start + size]
    return Draw("check", "cotangent", seed, subject).away(0.0, size)


@lru_cache(maxsize=256)
def _starts(seed: int, subject: str) -> tuple[int, int]:
    """Where in the pools the numbers of one check begin."""
    key = key_of("check", seed, subject)
    return key % POOL, (key >> 64) % POOL


@cache
def _directions() -> Float64:
    """The pool, and once more: a run may begin anywhere."""
    return _twice(_whole(key_of("check", "directions"), POOL))


@cache
def _normals() -> Float64:
    return _twice(Draw("check", "cotangents").away(0.0, POOL))


def _whole(key: int, size: int) -> Float64:
    return np.concatenate([chunk.copy() for chunk in direction(key, 0, size, KIND)])


def _twice(pool: Float64) -> Float64:
    out = np.concatenate([pool, pool])
    out.setflags(write=False)
    return out
