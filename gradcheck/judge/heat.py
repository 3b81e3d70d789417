"""Where in a gradient the error is, laid out as a picture that is never too large."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.results.finding import Heat

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROWS: Final = 32
COLUMNS: Final = 48
"""Cells of a picture at most."""
RANKED: Final = ".?0123456789!"
"""What a cell may be, the worst last: a block shows its worst."""
FIRST: Final = RANKED.index("0")
LAST: Final = RANKED.index("9")


def heat_of(
    times: Float, failed: Mask, unresolved: Mask, shape: tuple[int, ...], cotangent: str
) -> Heat | None:
    """The map of a gradient of `shape`; None where it has no elements.

    `times` [n] is error/bound, of which only `failed` [n] elements show; what is not finite there
    is no number.
    """
    if not times.size:
        return None
    ranks = np.where(unresolved, RANKED.index("?"), 0)
    with np.errstate(all="ignore"):
        decades = np.floor(np.log10(times))
    digits = FIRST + np.clip(np.nan_to_num(decades), 0, LAST - FIRST).astype(np.int64)
    ranks = np.where(failed, np.where(np.isfinite(times), digits, RANKED.index("!")), ranks)
    *down, across = shape or (1,)
    cells = blocked(ranks.reshape(math.prod(down), across))
    rows, columns = cells.shape
    return Heat(
        shape=shape, rows=rows, columns=columns,
        cells="".join(RANKED[rank] for rank in cells.flat), cotangent=cotangent,
    )  # fmt: skip


def blocked(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest of each block of `ranks` [h, w], in as small blocks as fit the picture."""
    (high, wide), (rows, columns) = ranks.shape, (ROWS, COLUMNS)
    tall, broad = -(-high // rows), -(-wide // columns)
    rows, columns = -(-high // tall), -(-wide // broad)
    padded = np.zeros((rows * tall, columns * broad), dtype=np.int64)
    padded[:high, :wide] = ranks
    return np.asarray(padded.reshape(rows, tall, columns, broad).max(axis=(1, 3)))
