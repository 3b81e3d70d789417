"""Markdown tables, and the row that two things measured by turns make."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


def head(names: Sequence[str]) -> str:
    """The two lines above a table; a name that begins with `<` heads a column of text."""
    marks = ["---" if name.startswith("<") else "---:" for name in names]
    return f"{line([name.removeprefix('<') for name in names])}\n|{'|'.join(marks)}|"


def line(cells: Iterable[object]) -> str:
    """One row; a bar within a cell is escaped."""
    return "".join(f"| {str(cell).replace('|', chr(92) + '|')} " for cell in cells) + "|"


def table(names: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A whole table, without a newline at its end."""
    return "\n".join([head(names), *map(line, rows)])


def number(value: float | None, digits: int = 3) -> str:
    """Three digits, never in powers of ten below a million; nothing for None."""
    if value is None:
        return ""
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A beside B, measured by turns: medians in milliseconds, the median of the ratios A / B.

    `what` is how `benchmarks/targets.py` calls it; a and b say what was measured.
    """

    what: str
    a: str
    b: str
    a_ms: float
    b_ms: float
    ratio: float

    def cells(self, goal: str = "") -> tuple[str, ...]:
        """For a table with the columns of `PAIRED`."""
        return (self.a, self.b, number(self.a_ms), number(self.b_ms), number(self.ratio), goal)


PAIRED = ("<A", "<B", "A, median ms", "B, median ms", "A / B", "<target")


def paired(what: str, names: tuple[str, str], times: Sequence[tuple[float, float]]) -> Row:
    """The row of pairs of seconds."""
    a, b = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(x / y for x, y in times)
    return Row(what=what, a=names[0], b=names[1], a_ms=a, b_ms=b, ratio=ratio)


def by_turns(
    what: str, names: tuple[str, str], seconds: tuple[Callable[[], float], Callable[[], float]],
    count: int,
) -> Row:  # fmt: skip
    """A, B, A, B, …, so that a drift of the machine touches both; each gives its own seconds."""
    return paired(what, names, [(seconds[0](), seconds[1]()) for _ in range(count)])
