"""What stands where in the page's tables: a line per gradient, a cell per dtype and code judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text, models, outline
from gradcheck.report.outline import Cell
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck.report.outline import Row
    from gradcheck.results.run import Run

DECADES: Final = (-6.0, 3.0)
"""Powers of ten of error/bound at the two ends of a bar; its tick stands at 0, the bound."""
STEPS: Final = 18
"""Lengths that a bar can have: half a decade each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of results; `name` tells it from the others, in the address of the page too."""

    dtype: str
    implementation: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A cell as it is shown: a verdict in words and in tone, the worst error, a bar's length.

    `badness` is the worst error in multiples of its bound, by which a column is sorted; `differs`
    says that it stands otherwise than the first implementation judged in this gradient and dtype.
    """

    cell: Cell
    tone: str
    word: str
    text: str
    bar: int | None
    badness: float
    differs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One gradient output of an operator's dialect, or a parameter or stage of a model."""

    op: str
    dialect: str
    output: str
    views: tuple[View | None, ...]
    note: str = ""
    """Of a model: where its worst element is."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """What was judged at all."""
        return tuple(view.cell for view in self.views if view is not None)

    @property
    def samples(self) -> tuple[str, ...]:
        """Samples judged in the line, each once."""
        return tuple(dict.fromkeys(r.case.sample for cell in self.cells for r in cell.results))

    @property
    def compared(self) -> int:
        """Numbers compared in the line."""
        return sum(r.finding.compared for cell in self.cells for r in cell.results)

    @property
    def differs(self) -> bool:
        """Whether implementations differ here."""
        return any(view is not None and view.differs for view in self.views)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines under a heading of their own."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A table: operators, update rules, or one model's dialect (then `name` is the model's).

    `first` is the number of its first cell: cells are numbered through all tables, line by line,
    those that are empty too.
    """

    kind: Kind
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]
    first: int
    name: str = ""
    dialect: str = ""
    passed: str = ""
    whole: tuple[View | None, ...] = ()
    """Of a model: everything in a column as one."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of all blocks."""
        return tuple(line for block in self.blocks for line in block.lines)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.lines) * len(self.columns)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes, each once."""
        return tuple(dict.fromkeys(column.dtype for column in self.columns))

    @property
    def implementations(self) -> tuple[str, ...]:
        """The implementations, each once."""
        return tuple(dict.fromkeys(column.implementation for column in self.columns))

    @property
    def alarming(self) -> bool:
        """Whether anything in it is no pass, nor known, nor left out."""
        return any(view is not None and view.tone in ("bad", "warn") for view in self.whole)

    def under(self, dtype: str) -> int:
        """How many columns a dtype has."""
        return sum(column.dtype == dtype for column in self.columns)


Key = tuple[str, str, Part, str]
Cells = dict[tuple[str, str], Cell]


def matrices(run: Run) -> list[Matrix]:
    """The operators and the update rules: one table of each, all implementations side by side."""
    found: dict[Kind, list[Row]] = {}
    dtypes: dict[Kind, list[str]] = {}
    for table in outline.tables(run):
        found.setdefault(table.kind, []).extend(table.rows)
        dtypes.setdefault(table.kind, []).extend(table.dtypes)
    made: list[Matrix] = []
    for kind, of_kind in found.items():
        columns = _columns(run, of_kind, dtypes[kind])
        lines = tuple(_line(key, cells, columns) for key, cells in _merged(of_kind).items())
        first = made[-1].first + made[-1].cells if made else 0
        made.append(
            Matrix(kind=kind, columns=columns, blocks=(Block(title="", lines=lines),), first=first)
        )
    return made


def model_matrices(run: Run, first: int) -> list[Matrix]:
    """One table per model and dialect, all implementations side by side."""
    groups: dict[tuple[str, str], list[models.Model]] = {}
    for model in models.models(run):
        groups.setdefault((model.name, model.dialect), []).append(model)
    made = []
    for (name, dialect), of_one in groups.items():
        every = [row for model in of_one for row in model.rows]
        columns = _columns(run, every, [dtype for model in of_one for dtype in model.dtypes])
        matrix = Matrix(
            kind=Kind.MODEL,
            name=name,
            dialect=dialect,
            columns=columns,
            blocks=tuple(_blocks(of_one, columns)),
            first=first,
            passed=_passed(of_one),
            whole=_views([_whole(of_one, column) for column in columns], columns),
        )
        made.append(matrix)
        first += matrix.cells
    return made


def _columns(run: Run, found: Iterable[Row], dtypes: Iterable[str]) -> tuple[Column, ...]:
    """A column per dtype and, next to each other, the implementations that have results in it."""
    judged = {(dtype, row.implementation) for row in found for dtype in row.cells}
    names = dict.fromkeys([*run.header.implementations, *(name for _, name in judged)])
    present = [name for name in names if any(name == other for _, other in judged)]
    order = dict.fromkeys([*run.header.dtypes, *dtypes])
    return tuple(
        Column(
            dtype=dtype,
            implementation=name,
            name=f"{dtype} {name}" if len(present) > 1 else dtype,
        )
        for dtype in order
        for name in present
        if (dtype, name) in judged
    )


def _merged(found: Iterable[Row]) -> dict[Key, Cells]:
    """The rows of all implementations by what they are about; those of one dialect together."""
    dialects: dict[str, dict[str, dict[Key, Cells]]] = {}
    for row in found:
        key = (row.op, row.dialect, row.part, row.output)
        cells = dialects.setdefault(row.op, {}).setdefault(row.dialect, {}).setdefault(key, {})
        cells.update({(dtype, row.implementation): cell for dtype, cell in row.cells.items()})
    return {
        key: cells
        for of_op in dialects.values()
        for lines in of_op.values()
        for key, cells in lines.items()
    }


def _line(key: Key, cells: Cells, columns: Sequence[Column], note: str = "") -> Line:
    op, dialect, part, output = key
    return Line(
        op=words.clean(op),
        dialect=words.clean(dialect),
        output=words.clean(output) if part is Part.STAGE else words.subject(output, part),
        views=_views([cells.get((c.dtype, c.implementation)) for c in columns], columns),
        note=note,
    )


def _views(cells: Sequence[Cell | None], columns: Sequence[Column]) -> tuple[View | None, ...]:
    """The cells as they are shown. A cell differs from the first of its dtype, if both judged."""
    first: dict[str, str] = {}
    views: list[View | None] = []
    for cell, column in zip(cells, columns, strict=True):
        if cell is None:
            views.append(None)
            continue
        differs = False
        if cell.verdict.checked:
            differs = first.setdefault(column.dtype, cell.stands) != cell.stands
        views.append(_view(cell, differs))
    return tuple(views)


def _view(cell: Cell, differs: bool) -> View:
    shown = outline.shown(cell)
    badness = shown.finding.times_bound
    contract = outline.is_contract(cell)
    return View(
        cell=cell,
        tone=words.tone(cell.stands),
        word=words.word(cell.stands),
        text=words.kept(cell.results) if contract else words.cell(shown.finding),
        bar=bar(badness) if shown.finding.top is not None and cell.verdict.checked else None,
        badness=badness,
        differs=differs,
    )


def bar(badness: float) -> int:
    """The length of a bar for log₁₀(error / bound), in steps from 1 to `STEPS`."""
    low, high = DECADES
    decade = math.log10(badness) if badness > 0 else low
    return max(1, round((min(max(decade, low), high) - low) / (high - low) * STEPS))


def _blocks(of_one: Sequence[models.Model], columns: Sequence[Column]) -> Iterable[Block]:
    for part in dict.fromkeys(block.part for model in of_one for block in model.blocks):
        found = [row for model in of_one for row in model.block(part).rows]
        notes: dict[str, str] = {}
        for row in found:
            result = models.telling(row)
            if result is not None and result.finding.top is not None:
                place = failure_text.spot(result.finding, result.finding.top)
                tensor = words.clean(result.finding.top.tensor) if part is Part.STAGE else ""
                notes.setdefault(
                    row.output, f"{tensor}{place} {failure_text.bar(result.finding.top)}"
                )
        lines = tuple(
            _line(key, cells, columns, notes.get(key[3], ""))
            for key, cells in _merged(found).items()
        )
        yield Block(title=models.block(part, len(lines)), lines=lines)


def _whole(of_one: Sequence[models.Model], column: Column) -> Cell | None:
    for model in of_one:
        if model.implementation == column.implementation and column.dtype in model.dtypes:
            return models.whole(model, column.dtype)
    return None


def _passed(of_one: Sequence[models.Model]) -> str:
    """How many of its parts pass, per implementation if there are several."""
    said = []
    for model in of_one:
        counts = ", ".join(
            f"{models.passed(model.block(part))} {models.COUNTED[part]}"
            for part in models.counted([model])
        )
        several = len(of_one) > 1
        said.append(f"{words.clean(model.implementation)}: {counts}" if several else counts)
    return "; ".join(said)
