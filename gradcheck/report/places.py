"""Which part of a gradient is wrong, in a few words: `[2, :]`, `[:, 6]`, `[3:7]`."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradcheck.results.finding import Heat

MOST: Final = 4
"""Parts that are still told apart; what has more is best seen in a picture."""
FINE: Final = "."
"""A cell with nothing wrong in it."""


def slices(found: Heat | None) -> list[str]:
    """The slices that are wrong, as NumPy writes them, all of each and nothing else.

    Empty where everything is wrong or nothing, where it takes too many slices, and of a map whose
    cells are blocks.

    >>> from gradcheck.results.finding import Heat
    >>> slices(Heat(shape=(3, 4), rows=3, columns=4, cells="...755557..9", cotangent=""))
    ['[1, :]', '[:, 3]', '[2, 0]']
    """
    if found is None or found.block != (1, 1) or len(found.shape) == 0:
        return []
    high, wide = found.rows, found.columns
    wrong = {divmod(k, wide) for k, cell in enumerate(found.cells) if cell != FINE}
    if not wrong or len(wrong) == high * wide:
        return []
    rows = [i for i in range(high) if wide > 1 and all((i, j) in wrong for j in range(wide))]
    others = [i for i in range(high) if i not in rows]
    tall = len(others) > 1
    columns = [j for j in range(wide) if tall and all((i, j) in wrong for i in others)]
    rest = sorted(wrong - {*product(rows, range(wide)), *product(range(high), columns)})
    parts = [*_rows(found, rows), *_columns(found, columns), *_elements(found, rest)]
    return parts if len(parts) <= MOST else []


def _rows(found: Heat, rows: list[int]) -> Iterator[str]:
    *down, _ = found.shape
    if len(down) == 1:
        yield from (f"[{run}, :]" for run in _runs(rows))
    else:
        yield from (f"[{_index(row, down)}, :]" for row in rows)


def _columns(found: Heat, columns: list[int]) -> Iterator[str]:
    every = ":" if len(found.shape) == 2 else "..."
    yield from (f"[{every}, {run}]" for run in _runs(columns))


def _elements(found: Heat, places: list[tuple[int, int]]) -> Iterator[str]:
    if len(found.shape) == 1:
        yield from (f"[{run}]" for run in _runs(j for _, j in places))
    else:
        yield from (f"[{_index(i, found.shape[:-1])}, {j}]" for i, j in places)


def _runs(numbers: Iterable[int]) -> Iterator[str]:
    """Ascending numbers as slices: those that follow on each other are one."""
    found = list(numbers)
    if not found:
        return
    breaks = [k for k, (a, b) in enumerate(pairwise(found), 1) if b != a + 1]
    for start, end in pairwise([0, *breaks, len(found)]):
        first, last = found[start], found[end - 1]
        yield str(first) if first == last else f"{first}:{last + 1}"


def _index(flat: int, shape: Iterable[int]) -> str:
    return ", ".join(map(str, unravelled(flat, tuple(shape))))


def unravelled(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element whose place in the flattened array is known.

    >>> unravelled(7, (2, 2, 3))
    (1, 0, 1)
    """
    index = []
    for axis, size in enumerate(shape):
        at, flat = divmod(flat, math.prod(shape[axis + 1 :]))
        index.append(at % size)
    return tuple(index)
