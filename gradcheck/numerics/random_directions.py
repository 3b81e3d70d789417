"""Random directions and cotangents: a counter-based generator, and a pool drawn once per process.

The elements of a direction are sign × magnitude in [1/2, 3/2]: none can be masked, and two equal
errors hardly ever cancel. `direction` generates any part of a direction again, so none is stored.

Setting up a generator for each check would cost as much as a small forward. So a pool is drawn once
per process, and the names of a check choose its run of numbers: equal names, equal numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.draw import Draw, key_of

Array = NDArray[Any]
Float = NDArray[np.float64]

POOL: Final = 1 << 16
"""Numbers of the pool; a longer run is drawn on demand."""
KIND: Final[np.dtype[Any]] = np.dtype(np.float64)
CHUNK: Final = 1 << 15
"""Elements that are moved at once: all temporaries of a chunk fit in a second-level cache."""
BLOCK: Final = 16
"""Elements per step of the generator's counter: 256 bits, 16 for each."""
WORD: Final = 4
"""Elements per word that the generator returns."""
LEAST: Final = 0.5
"""The smallest magnitude of an element of a direction, in units of the tensor."""


def direction(key: int, start: int, stop: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Elements start … stop of the direction `key`, in chunks (each overwrites the last).

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


def run_of_direction(seed: int, subject: str, size: int) -> Float:
    """`size` elements of a direction, read-only."""
    if size <= POOL:
        start = _starts(seed, subject)[0]
        return _directions()[start : start + size]
    return _whole(key_of("check", "direction", seed, subject), size)


def run_of_cotangent(seed: int, subject: str, size: int) -> Float:
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
def _directions() -> Float:
    """The pool, and once more: a run may begin anywhere."""
    return _twice(_whole(key_of("check", "directions"), POOL))


@cache
def _normals() -> Float:
    return _twice(Draw("check", "cotangents").away(0.0, POOL))


def _whole(key: int, size: int) -> Float:
    return np.concatenate([chunk.copy() for chunk in direction(key, 0, size, KIND)])


def _twice(pool: Float) -> Float:
    out = np.concatenate([pool, pool])
    out.setflags(write=False)
    return out
