"""Tables of words that fit a width: where one is too wide, cells are wrapped at blanks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from tabulate import tabulate

GAP: Final = 2
"""Columns between two cells."""


def wrapped_table(
    heads: Sequence[str],
    body: Sequence[Sequence[object]],
    width: int | None = None,
    align: Sequence[str] | None = None,
    spare: Sequence[str] = (),
) -> str:
    """A table of at most `width` columns (None: as wide as it is), if its longest words allow.

    The widest cells give way first; names are never broken at their hyphens. What is still too
    wide loses the columns whose heads are `spare`, the first of them first.

    >>> print(wrapped_table(["name", "what it says"], [["a", "one two three"]], width=16))
    name  what it
          says
    ----  ----------
    a     one two
          three
    """
    rows = [[str(cell) for cell in row] for row in body]
    text = tabulate(rows, heads, disable_numparse=True, colalign=align, tablefmt="simple")
    if width is None or _span(text) <= width:
        return text
    for name in ("", *spare):
        kept = [i for i, head in enumerate(heads) if head != name]
        heads, rows = [heads[i] for i in kept], [[row[i] for i in kept] for row in rows]
        align = None if align is None else [align[i] for i in kept]
        text = _tight(heads, rows, width, align)
        if _span(text) <= width:
            break
    return text


def _tight(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, align: Sequence[str] | None
) -> str:
    """Wrapped cells, and heads without the room that tabulate leaves behind them."""
    limits = _limits([heads, *rows], width)
    wrapped = [
        [_wrapped(cell, limit) for cell, limit in zip(row, limits, strict=True)]
        for row in (heads, *rows)
    ]
    height = max(cell.count("\n") for cell in wrapped[0]) + 1
    text = tabulate(wrapped, disable_numparse=True, colalign=align, tablefmt="plain")
    lines = [line.rstrip() for line in text.splitlines()]
    rule = (" " * GAP).join("-" * limit for limit in limits)
    return "\n".join([*lines[:height], rule, *lines[height:]])


def _limits(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that each cell may have."""
    columns = list(zip(*rows, strict=True))
    limits = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split(" ")) for column in columns]
    while sum(limits) + GAP * (len(limits) - 1) > width:
        shrinkable = [i for i, limit in enumerate(limits) if limit > least[i]]
        if not shrinkable:
            break
        limits[max(shrinkable, key=limits.__getitem__)] -= 1
    return limits


def _wrapped(cell: str, limit: int) -> str:
    return textwrap.fill(cell, max(limit, 1), break_long_words=False, break_on_hyphens=False)


def _span(text: str) -> int:
    return max(map(len, text.splitlines()))
