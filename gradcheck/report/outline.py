"""The tables of a report: what their rows and columns are, and which result a cell stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from gradcheck.results.case_result import CaseResult, Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Known, Verdict, worst
from gradcheck.results.words import CONTRACT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gradcheck.results.case_result import CaseResult, Kind
    from gradcheck.results.finding import Part
    from gradcheck.results.run import Run, Standing

T = TypeVar("T")

CALL = "vjp"
"""What a result is called that is about the whole call, and no gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The operators, or the update rules, of one implementation; a column per dtype."""

    implementation: str
    kind: Kind
    dtypes: tuple[str, ...]
    rows: tuple[Row, ...]


def are_named(run: Run, found: Sequence[Table]) -> bool:
    """Whether to say whose each table is: there are several implementations."""
    return len({*run.header.implementations, *(table.implementation for table in found)}) > 1


def shown(cell: Cell) -> CaseResult:
    """The result that stands for a cell: of its worst verdict, the worst one."""
    # Not `Cell.worst`: max() over a NaN depends on the order, and a NaN is the worst there is.
    return max(
        (r for r in cell.results if r.finding.verdict is cell.verdict),
        key=lambda r: r.finding.times_bound,
    )


def is_contract(cell: Cell) -> bool:
    """Whether a cell holds the properties of one contract, and no numbers."""
    return all(r.finding.part is Part.CONTRACT for r in cell.results)


def tables(run: Run) -> list[Table]:
    """One table per implementation that has results, in the header's order; none of models."""
    dtypes = unique([*run.header.dtypes, *(r.case.dtype for r in run.results)])
    found: dict[tuple[str, Kind], list[Row]] = {
        (name, kind): [] for name in run.header.implementations for kind in Kind
    }
    for row in _contracts_in_one(rows(run)):
        found.setdefault((row.implementation, row.kind), []).append(row)
    return [
        Table(
            implementation=name,
            kind=kind,
            dtypes=tuple(d for d in dtypes if any(d in row.cells for row in of_name)),
            rows=tuple(_together(_telling(of_name))),
        )
        for (name, kind), of_name in found.items()
        if of_name and kind is not Kind.MODEL
    ]


def _contracts_in_one(every: Iterable[Row]) -> Iterator[Row]:
    """The rows, those of a dialect's contract as one, where the first of them stood."""
    ordered = list(every)
    contracts: dict[tuple[str, str, str], list[Row]] = {}
    for row in ordered:
        if row.part is Part.CONTRACT:
            contracts.setdefault((row.implementation, row.op, row.dialect), []).append(row)
    for row in ordered:
        if row.part is not Part.CONTRACT:
            yield row
            continue
        of_one = contracts.pop((row.implementation, row.op, row.dialect), [])
        cells: dict[str, list[Cell]] = {}
        for other in of_one:
            for dtype, cell in other.cells.items():
                cells.setdefault(dtype, []).append(cell)
        if cells:
            joined = {dtype: Cell.joined(of_dtype) for dtype, of_dtype in cells.items()}
            yield replace(row, output=CONTRACT, cells=joined)


def _telling(of_name: list[Row]) -> list[Row]:
    """The rows of which something can be told; `remarks.gaps` names the others, and why.

    Left out are whole calls that were not made: of what an implementation says nothing about, and
    of a dialect that has other rows (in another dtype, say). All are kept where there is no other.
    """

    def made(row: Row) -> bool:
        return row.output != CALL or row.verdict.checked

    dialects = {(row.op, row.dialect) for row in of_name if made(row)}
    told = [
        row
        for row in of_name
        if made(row)
        or (row.verdict is not Verdict.UNBOUND and (row.op, row.dialect) not in dialects)
    ]
    return told or of_name


def folded(rows: Sequence[Row]) -> Iterator[Row]:
    """One row for each operator that passes; those of the others as they are."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.op, []).append(row)
    for op, of_op in groups.items():
        verdicts = {cell.stands for row in of_op for cell in row.cells.values()}
        if not {Verdict.PASS} <= verdicts <= {Verdict.PASS, Verdict.SKIP}:
            yield from of_op
            continue
        passing = [row for row in of_op if row.verdict is Verdict.PASS]
        dialects = unique(row.dialect for row in passing)
        outputs = unique(row.output for row in passing)
        cells: dict[str, list[Cell]] = {}
        for row in passing:
            for dtype, cell in row.cells.items():
                if cell.verdict is Verdict.PASS:
                    cells.setdefault(dtype, []).append(cell)
        yield Row(
            implementation=of_op[0].implementation,
            kind=of_op[0].kind,
            part=of_op[0].part,
            op=op,
            dialect=dialects[0] if len(dialects) == 1 else f"all {len(dialects)}",
            output=outputs[0] if len(outputs) == 1 else f"all {len(outputs)}",
            cells={dtype: Cell.joined(of_dtype) for dtype, of_dtype in cells.items()},
        )


def by_sample(row: Row) -> list[tuple[CaseResult, ...]]:
    """A row's results, those of one sample together."""
    samples: dict[str, list[CaseResult]] = {}
    for cell in row.cells.values():
        for result in cell.results:
            samples.setdefault(result.case.sample, []).append(result)
    return [tuple(results) for results in samples.values()]


def drawn(row: Row) -> list[CaseResult]:
    """A row's results that have a Taylor curve."""
    return [r for results in by_sample(row) for r in results if r.finding.taylor is not None]


def _together(of_name: list[Row]) -> list[Row]:
    """An operator may come back later in the run; a table names it, and each dialect, once."""
    ops = {op: place for place, op in enumerate(unique(row.op for row in of_name))}
    dialects = unique((row.op, row.dialect) for row in of_name)
    places = {dialect: place for place, dialect in enumerate(dialects)}
    return sorted(of_name, key=lambda row: (ops[row.op], places[row.op, row.dialect]))


def unique(values: Iterable[T]) -> tuple[T, ...]:
    """The values, each once, in the order in which they first came."""
    return tuple(dict.fromkeys(values))


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
