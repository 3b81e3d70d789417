"""The rows of a table taken apart: one for every case, as `gradcheck run -v` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gradcheck.report.rows import Cell

if TYPE_CHECKING:
    from gradcheck.report.rows import Row
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run


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
