"""Where a gradient is wrong, as a picture: a cell per element or block, with a glyph in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gradcheck.report import words
from gradcheck.report.axis import power

if TYPE_CHECKING:
    from gradcheck.record import Heat, Record

CELL: Final = 13
GAP: Final = 1
SIDE: Final = CELL - GAP
HEAD: Final = 20
"""Pixels above the cells, for the numbers of the columns."""
DIGIT: Final = 6.2
"""Pixels of a digit of a label."""
FINE: Final = "."
"""A cell with nothing wrong in it."""
NARROW: Final = 4
"""Cells from one label to the next, at least."""
STRANGE: Final = {"!": "no number", "?": "not resolved"}
DARK: Final = "56789!"
"""Cells so dark that their glyph is light."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """All cells with one glyph: strokes of an SVG path, its class, and what the glyph says."""

    glyph: str
    tone: str
    path: str
    says: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text in the picture: a label of an axis, or a glyph."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A heat map in pixels.

    `grid` are the cells that are right, `patches` the others: strokes as wide as `side`, dashed
    by `side` and `gap`.
    """

    width: float
    height: float
    side: int
    gap: int
    grid: str
    patches: tuple[Patch, ...]
    light: tuple[Text, ...]
    """Glyphs on dark cells."""
    dark: tuple[Text, ...]
    rows: tuple[Text, ...]
    columns: tuple[Text, ...]
    axes: str
    label: str
    caption: str


def picture(result: Record) -> Picture | None:
    """The picture of a result's heat map; None without one."""
    found = result.heat
    if found is None:
        return None
    rows, columns = list(_rows(found)), list(_columns(found))
    left = 8 + DIGIT * max(len(label) for _, label in rows)
    glyphs = [
        (left + (k % found.columns) * CELL, HEAD + k // found.columns * CELL, glyph)
        for k, glyph in enumerate(found.cells)
    ]
    wrong = [(x + SIDE / 2, y + CELL - 4, g) for x, y, g in glyphs if g != FINE]
    last = max([0.0, *(len(label) * DIGIT for _, label in columns)])
    return Picture(
        width=round(left + found.columns * CELL + last, 1),
        height=HEAD + found.rows * CELL + 2,
        side=SIDE,
        gap=GAP,
        grid=_path(found, left, FINE),
        patches=tuple(_patches(found, left)),
        light=tuple(Text(x=x, y=y, text=g) for x, y, g in wrong if g in DARK),
        dark=tuple(Text(x=x, y=y, text=g) for x, y, g in wrong if g not in DARK),
        rows=tuple(Text(x=left - 5, y=HEAD + k * CELL + CELL - 4, text=t) for k, t in rows),
        columns=tuple(Text(x=left + k * CELL, y=HEAD - 6, text=t) for k, t in columns),
        axes=_axes(found),
        label=f"where {_name(result)} is wrong",
        caption=says(result),
    )


def says(result: Record) -> str:
    """How much of a gradient is wrong, in a sentence; empty without a map."""
    found = result.heat
    if found is None:
        return ""
    high, wide = found.block
    block = f", a cell is the worst of {high} × {wide} elements" if high * wide > 1 else ""
    whose = f" with cotangent {words.clean(found.cotangent)}" if found.cotangent else ""
    return f"{_name(result)}{words.position(found.shape)}{whose}{block}"


def scale(glyph: str) -> str:
    """What a glyph stands for.

    >>> scale("0"), scale("3"), scale("9")
    ('1 to 10 × bound', '10³ to 10⁴ × bound', '10⁹ × bound or more')
    """
    if glyph in STRANGE:
        return STRANGE[glyph]
    if glyph == "9":
        return f"{power(9)} × bound or more"
    return f"{power(int(glyph))} to {power(int(glyph) + 1)} × bound"


def _name(result: Record) -> str:
    return words.subject(result.output, result.part)


def _patches(found: Heat, left: float) -> Iterator[Patch]:
    for glyph in sorted(set(found.cells) - {FINE}):
        tone = {"!": "strange", "?": "open"}.get(glyph, f"l{glyph}")
        yield Patch(
            glyph=glyph, tone=tone, path=_path(found, left, glyph), says=scale(glyph),
            count=found.cells.count(glyph),
        )  # fmt: skip


def _path(found: Heat, left: float, glyph: str) -> str:
    """Strokes through the cells with one glyph, to be dashed: those side by side are one."""
    parts = []
    for row in range(found.rows):
        at = 0
        y = HEAD + row * CELL + SIDE / 2
        cells = found.cells[row * found.columns : (row + 1) * found.columns]
        for same, run in groupby(cells, lambda cell: cell == glyph):
            count = len(list(run))
            if same:
                parts.append(f"M{left + at * CELL:g} {y:g}h{count * CELL - GAP}")
            at += count
    return "".join(parts)


def _rows(found: Heat) -> Iterator[tuple[int, str]]:
    """The rows that are named, by all their indices but the last."""
    *down, _ = found.shape or (1,)
    for row in range(found.rows):
        if down:
            yield row, ", ".join(map(str, unravelled(row * found.block[0], tuple(down))))
        else:
            yield row, ""


def unravelled(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element whose place in the flattened array is known.

    >>> unravelled(7, (2, 2, 3))
    (1, 0, 1)
    """
    index: list[int] = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        index.append(at)
    return tuple(reversed(index))


def _columns(found: Heat) -> Iterator[tuple[int, str]]:
    """The columns that are named, by the last index, as many as there is room for."""
    digits = len(str(found.size[1]))
    every = max(NARROW, math.ceil((digits + 1) * DIGIT / CELL))
    for column in range(0, found.columns, every):
        yield column, str(column * found.block[1])


def _axes(found: Heat) -> str:
    """Which axis runs which way."""
    count = len(found.shape)
    if count < 2:
        return "" if count == 0 else "axis 0 →"
    down = ", ".join(map(str, range(count - 1)))
    return f"{'axis' if count == 2 else 'axes'} {down} ↓, axis {count - 1} →"
