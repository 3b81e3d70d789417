"""Where a gradient is wrong, as a picture: a cell per element or block, with a glyph in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise, product
from typing import Final

from gradcheck.report.plots import power
from gradcheck.results import words
from gradcheck.results.finding import Finding, Heat

LEAST: Final = 13
MOST: Final = 24
"""Pixels of a cell, with the gap."""
WIDEST: Final = 320
HIGHEST: Final = 416
"""Pixels that all cells together should fill, as far as that makes them larger."""
LARGE: Final = 18
"""Pixels of a cell with a large glyph."""
GAP: Final = 1
HEAD: Final = 20
"""Pixels above the cells, for the numbers of the columns."""
DIGIT: Final = 6.2
"""Pixels of a digit of a label."""
STRANGE: Final = {"!": ("strange", "NaN or infinite"), "?": ("open", "unresolved")}
"""Class and meaning of what is no digit."""
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
    """A label of a row or a column."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The glyphs of one row on cells of one shade, each at its own of the places `xs`."""

    shade: str
    xs: str
    y: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A heat map in pixels.

    `grid` are the cells that are right, `patches` the others: strokes as wide as `side`, dashed
    by `side` and `gap`. `size` is the class of the glyphs.
    """

    width: float
    height: float
    side: int
    gap: int
    size: str
    grid: str
    patches: tuple[Patch, ...]
    glyphs: tuple[Glyphs, ...]
    down: tuple[Text, ...]
    across: tuple[Text, ...]
    label: str
    caption: str


def picture(finding: Finding) -> Picture | None:
    """The picture of a finding's heat map; None without one."""
    found = finding.heat
    if found is None:
        return None
    plan = _Plan(found)
    across = tuple(plan.across())
    return Picture(
        width=round(max(plan.right, *(at.x + len(at.text) * DIGIT / 2 for at in across)), 1),
        height=HEAD + found.rows * plan.cell,
        side=plan.cell - GAP,
        gap=GAP,
        size="large" if plan.cell >= LARGE else "small",
        grid=plan.path(FINE),
        patches=tuple(plan.patches()),
        glyphs=tuple(plan.glyphs()),
        down=tuple(plan.down()),
        across=across,
        label=f"where {_name(finding)} is wrong",
        caption=says(finding),
    )


def says(finding: Finding) -> str:
    """What is laid out how; empty without a map."""
    found = finding.heat
    if found is None:
        return ""
    shape = f", {' × '.join(map(str, found.shape))}" if found.shape else ""
    whose = f" under the cotangent {words.clean(found.cotangent)}" if found.cotangent else ""
    return f"{_name(finding)}{shape}{whose}{_axes(found)}{_block(found)}"


def scale(glyph: str) -> str:
    """What a glyph stands for.

    >>> scale("0"), scale("3"), scale("!")
    ('≥ 1 × tolerance', '≥ 10³ × tolerance', 'NaN or infinite')
    """
    return STRANGE[glyph][1] if glyph in STRANGE else f"≥ {power(int(glyph))} × tolerance"


def worst(found: Heat) -> Iterator[str]:
    """The glyphs of a map that are not fine, in the order of what they mean."""
    return iter(sorted(set(found.cells) - {FINE}, key="?0123456789!".index))


def rows(found: Heat) -> list[str]:
    """What the rows are called: all indices of their first element but the last one."""
    *down, _ = found.shape or (1,)
    tall, _ = found.block
    return [", ".join(map(str, unravelled(k * tall, tuple(down)))) for k in range(found.rows)]


def row(found: Heat, k: int) -> str:
    """The cells of one row."""
    return found.cells[k * found.columns : (k + 1) * found.columns]


def _name(finding: Finding) -> str:
    tensor = finding.top.tensor if finding.top else ""
    return words.gradient(tensor) if tensor else words.subject(finding.name, finding.part)


def _axes(found: Heat) -> str:
    count = len(found.shape)
    if count < 2:
        return ""
    down = ", ".join(map(str, range(count - 1)))
    return f"; {'axis' if count == 2 else 'axes'} {down} ↓, axis {count - 1} →"


def _block(found: Heat) -> str:
    high, wide = found.block
    return f"; a cell is the worst of {high} × {wide} elements" if high * wide > 1 else ""


@dataclass(frozen=True)
class _Plan:
    found: Heat

    @cached_property
    def cell(self) -> int:
        fitting = min(WIDEST // self.found.columns, HIGHEST // self.found.rows)
        return max(LEAST, min(MOST, fitting))

    @cached_property
    def left(self) -> float:
        return round(8 + DIGIT * max(map(len, self.names)), 1)

    @property
    def right(self) -> float:
        return self.left + self.found.columns * self.cell

    @cached_property
    def names(self) -> list[str]:
        return rows(self.found)

    def down(self) -> Iterator[Text]:
        for k, name in enumerate(self.names):
            if name:
                yield Text(x=self.left - 5, y=self.base(k), text=name)

    def across(self) -> Iterator[Text]:
        """Labels of columns, as many as there is room for."""
        digits = len(str(self.found.size[1]))
        every = math.ceil((digits + 1) * DIGIT / self.cell)
        for k in range(0, self.found.columns, every):
            x = self.left + (k + 0.5) * self.cell
            yield Text(x=round(x, 1), y=HEAD - 6, text=str(k * self.found.block[1]))

    def base(self, k: int) -> float:
        return HEAD + k * self.cell + round(self.cell * 0.7, 1)

    def glyphs(self) -> Iterator[Glyphs]:
        for k in range(self.found.rows):
            cells = [(i, glyph) for i, glyph in enumerate(row(self.found, k)) if glyph != FINE]
            for shade in ("light", "dark"):
                some = [pair for pair in cells if (pair[1] in DARK) == (shade == "light")]
                if some:
                    middle = self.left + (self.cell - GAP) / 2
                    xs = " ".join(f"{middle + i * self.cell:g}" for i, _ in some)
                    text = "".join(glyph for _, glyph in some)
                    yield Glyphs(shade=shade, xs=xs, y=self.base(k), text=text)

    def patches(self) -> Iterator[Patch]:
        for glyph in worst(self.found):
            tone = STRANGE[glyph][0] if glyph in STRANGE else f"l{glyph}"
            count = self.found.cells.count(glyph)
            yield Patch(
                glyph=glyph, tone=tone, path=self.path(glyph), says=scale(glyph), count=count
            )

    def path(self, glyph: str) -> str:
        """Strokes through the cells with one glyph; those side by side are one stroke."""
        parts = []
        for k in range(self.found.rows):
            at, y = 0, HEAD + k * self.cell + (self.cell - GAP) / 2
            for same, run in groupby(row(self.found, k), lambda cell: cell == glyph):
                count = len(list(run))
                if same:
                    length = count * self.cell - GAP
                    parts.append(f"M{self.left + at * self.cell:g} {y:g}h{length}")
                at += count
        return "".join(parts)


MAX_SLICES: Final = 4
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
    return parts if len(parts) <= MAX_SLICES else []


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
