"""Random directions and cotangents as runs of numbers that are drawn once per process.

A generator that is set up for each check would cost as much as a small forward does. So a pool
is drawn once, and a check takes the run that its names choose: the same names, the same numbers.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.draw import Draw, key_of

Float = NDArray[np.float64]

POOL: Final = 1 << 16
"""Numbers of the pool; whoever needs more has them drawn."""
KIND: Final[np.dtype[Any]] = np.dtype(np.float64)


def run_of_direction(seed: int, subject: str, size: int) -> Float:
    """`size` elements of a direction: sign × magnitude in [1/2, 3/2], read-only.

    No element can be masked by another, and two equal errors hardly ever cancel.
    """
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
    from gradcheck.numerics.projection import direction  # deferred: a run of operators has none

    return np.concatenate([chunk.copy() for chunk in direction(key, 0, size, KIND)])


def _twice(pool: Float) -> Float:
    out = np.concatenate([pool, pool])
    out.setflags(write=False)
    return out
