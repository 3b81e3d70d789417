"""Results as lines of a table: a row per gradient output, a cell per dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradcheck.results.expectation import Known
from gradcheck.results.verdict import Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck.results.case_result import CaseResult, Kind
    from gradcheck.results.finding import Part
    from gradcheck.results.run import Run, Standing


@dataclass(frozen=True, slots=True)
class Cell:
    """All results of one gradient output in one dtype: what a table's cell shows.

    `stands` is the verdict, or what a baseline makes of it.
    """

    verdict: Verdict
    results: tuple[CaseResult, ...]
    stands: Standing

    @classmethod
    def of(cls, run: Run, results: Sequence[CaseResult]) -> Cell:
        """What is shown of `results`: a failure that nothing excuses before all others."""
        verdict = worst(result.finding.verdict for result in results)
        marks = {run.stands(result) for result in results}
        stands: Standing = verdict
        if not any(run.fails(result) for result in results):
            stands = next((known for known in reversed(Known) if known in marks), verdict)
        return cls(verdict, tuple(results), stands)

    @classmethod
    def joined(cls, cells: Sequence[Cell]) -> Cell:
        """Several cells as one, in which the same goes before the same."""
        verdict = worst(cell.verdict for cell in cells)
        marks = {cell.stands for cell in cells}
        stands: Standing = verdict
        if all(mark.expected or mark is Known.XPASS for mark in marks):
            stands = next((known for known in reversed(Known) if known in marks), verdict)
        return cls(verdict, tuple(r for cell in cells for r in cell.results), stands)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table: a gradient output of an operator's dialect, a cell per dtype.

    Of a model: a parameter or a stage; `part` says which, as two of them may share a name.
    """

    implementation: str
    kind: Kind
    part: Part
    op: str
    dialect: str
    output: str
    cells: dict[str, Cell]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the row."""
        return worst(cell.verdict for cell in self.cells.values())

    @property
    def stands(self) -> Standing:
        """That verdict, or what a baseline makes of the row."""
        return Cell.joined([*self.cells.values()]).stands

    @property
    def compared(self) -> int:
        """Numbers compared in the row."""
        return sum(r.finding.compared for cell in self.cells.values() for r in cell.results)

    @property
    def samples(self) -> int:
        """Samples judged in the row."""
        return len({r.case.sample for cell in self.cells.values() for r in cell.results})


def rows(run: Run) -> list[Row]:
    """The results as table rows, in the order in which they came."""
    groups: dict[tuple[str, Kind, str, str, Part, str], dict[str, list[CaseResult]]] = {}
    for r in run.results:
        key = (
            r.case.implementation,
            r.case.kind,
            r.case.op,
            r.case.dialect,
            r.finding.part,
            r.finding.name,
        )
        groups.setdefault(key, {}).setdefault(r.case.dtype, []).append(r)
    return [
        Row(
            implementation=implementation,
            kind=kind,
            op=op,
            dialect=dialect,
            part=part,
            output=output,
            cells={dtype: Cell.of(run, results) for dtype, results in by_dtype.items()},
        )
        for (implementation, kind, op, dialect, part, output), by_dtype in groups.items()
    ]


def spread(run: Run, rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Every row as one per sample, behind the sample's name; those of a case stand together."""
    dialects: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        dialects.setdefault((row.op, row.dialect), []).append(row)
    return [one for of_dialect in dialects.values() for one in _by_case(run, of_dialect)]


def _by_case(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    samples = dict.fromkeys(
        result.case.sample for row in rows for cell in row.cells.values() for result in cell.results
    )
    for sample in samples:
        for row in rows:
            cells = {
                dtype: Cell.of(run, results)
                for dtype, cell in row.cells.items()
                if (results := _of(cell, sample))
            }
            if cells:
                yield sample, replace(row, cells=cells)


def _of(cell: Cell, sample: str) -> list[CaseResult]:
    return [result for result in cell.results if result.case.sample == sample]
