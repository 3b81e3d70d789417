"""What goes where in a report: tables, failures with the worst first, gaps by reason."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from gradcheck.record import Cell, Kind, Part, Record, Row, rows
from gradcheck.report.words import CONTRACT, Rejected, missing, plural
from gradcheck.verdict import SEVERITY, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradcheck.record import Run

T = TypeVar("T")

NAMED: Final = 8
"""Operators that are named, of those that were not checked for the same reason."""

CALL = "vjp"
"""What a result is called that is about the whole call, and no gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The operators, or the update rules, of one implementation; a column per dtype."""

    implementation: str
    kind: Kind
    dtypes: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What is wrong with one gradient of one operator's dialect, the worst first.

    Of a model: with one parameter, stage, or its loss.
    """

    implementation: str
    kind: Kind
    op: str
    dialect: str
    part: Part
    output: str
    results: tuple[Record, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the group."""
        return self.results[0].verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What was not checked for one and the same reason."""

    verdict: Verdict
    reason: str
    ops: tuple[str, ...]
    count: int

    @property
    def named(self) -> tuple[str, ...]:
        """The first of the operators."""
        return self.ops[:NAMED]

    @property
    def others(self) -> str:
        """How many are not named: ", … and 12 more", or nothing."""
        more = len(self.ops) - NAMED
        return f", … and {more:,} more" if more > 0 else ""


def badness(result: Record) -> float:
    """Error of the worst element in multiples of its bound; infinite where it is no number."""
    top = result.top
    if top is None:
        return -1.0
    if not top.bound > 0:  # a NaN is an error too
        return math.inf if top.error else 0.0
    ratio = top.error / top.bound
    return math.inf if math.isnan(ratio) else ratio


def shown(cell: Cell) -> Record:
    """The result that stands for a cell: of its worst verdict, the worst one."""
    # Not `Cell.worst`: max() over a NaN depends on the order, and a NaN is the worst there is.
    return max((r for r in cell.results if r.verdict is cell.verdict), key=badness)


def is_contract(cell: Cell) -> bool:
    """Whether a cell holds the properties of one contract, and no numbers."""
    return all(r.part is Part.CONTRACT for r in cell.results)


def tables(run: Run) -> list[Table]:
    """One table per implementation that has results, in the header's order; none of models."""
    dtypes = _unique([*run.header.dtypes, *(r.dtype for r in run.results)])
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
    """The rows of which something can be told; `gaps` names the others, and why.

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


def failing(run: Run) -> list[Group]:
    """What the gate does not accept, by gradient; groups and results in them worst first.

    A model's loss and its stages come before its parameters: one wrong stage spoils the gradient
    of every parameter before it.
    """
    groups: dict[tuple[str, Kind, str, str, Part, str], list[Record]] = {}
    for r in run.results:
        if run.fails(r):
            key = (r.implementation, r.kind, r.op, r.dialect, r.part, r.output)
            groups.setdefault(key, []).append(r)
    ordered = [
        Group(
            implementation=implementation,
            kind=kind,
            op=op,
            dialect=dialect,
            part=part,
            output=output,
            results=tuple(sorted(results, key=_rank if kind is not Kind.MODEL else _severity)),
        )
        for (implementation, kind, op, dialect, part, output), results in groups.items()
    ]
    return sorted(ordered, key=_urgency)


def explained(run: Run, part: Part) -> list[Group]:
    """Failing stages that blame names exactly, or failing parameters of models that have such.

    What blame says of the former need not be said twice; the latter are wrong for no other reason.
    """
    guilty = {
        (r.implementation, r.name)
        for r in run.results
        if r.blames and all(blame.exact for blame in r.blames)
    }
    return [
        group
        for group in failing(run)
        if group.kind is Kind.MODEL and group.part is part
        if all((r.implementation, r.name) in guilty for r in group.results)
    ]


def _urgency(group: Group) -> tuple[int, bool, tuple[int, float]]:
    """What is worse than a wrong number, then what is wrong by itself, then what may follow."""
    rank = min(map(_rank, group.results))
    follows = group.kind is Kind.MODEL and group.part not in (Part.VALUE, Part.STAGE)
    return min(rank[0], SEVERITY.index(Verdict.FAIL)), follows, rank


def gaps(run: Run) -> list[Gap]:
    """What was not checked, one entry per verdict and reason.

    What an implementation says nothing about has one reason, however it is worded per operator.
    """
    found: dict[tuple[Verdict, str, str], list[Record]] = {}
    unasked: dict[str, list[Record]] = {}
    for result in run.results:
        if result.part is Part.CONTRACT and not result.verdict.checked:
            unasked.setdefault(result.reason, []).append(result)
        elif not result.verdict.checked:
            unbound = result.verdict is Verdict.UNBOUND
            silent, reason = (result.implementation, "") if unbound else ("", result.reason)
            found.setdefault((result.verdict, silent, reason), []).append(result)
    gaps = [
        Gap(
            verdict=verdict,
            reason=f"{silent} says nothing about {_them(results)}" if silent else reason,
            ops=_unique(r.op for r in results),
            count=len(results),
        )
        for (verdict, silent, reason), results in found.items()
    ]
    return [*gaps, *([_unasked(unasked)] if unasked else [])]


def _unasked(found: Mapping[str, Sequence[Record]]) -> Gap:
    """The properties of contracts that could not be asked, all in one: they say little."""
    results = [result for of_one in found.values() for result in of_one]
    reasons = (f"{reason} ({', '.join(_unique(r.output for r in of_one))})"
               for reason, of_one in found.items())  # fmt: skip
    return Gap(
        verdict=Verdict.SKIP,
        reason=f"properties that cannot be asked: {'; '.join(reasons)}",
        ops=_unique(r.op for r in results),
        count=len(results),
    )


def talkers(run: Run) -> list[tuple[Record, int]]:
    """What printed although nothing failed there: one result per dialect, and of how many.

    Noise is no failure, but its author may not know of it. What a failure printed stands with it.
    """
    found: dict[tuple[str, Kind, str, str], list[Record]] = {}
    for r in run.results:
        if r.printed.strip():
            found.setdefault((r.implementation, r.kind, r.op, r.dialect), []).append(r)
    calm = [rs for rs in found.values() if all(r.verdict.expected for r in rs)]
    return [(results[0], len(results)) for results in calm]


def slacks(run: Run) -> list[tuple[str, str]]:
    """Who needed a wider bound, "op" or "implementation: op", in how many results, and why."""
    several = len({r.implementation for r in run.results}) > 1
    found = Counter(
        (f"{r.implementation}: {r.op}" if several else r.op, r.slack)
        for r in run.results
        if r.slack
    )
    return [(name, f"{plural(count, 'result')} {slack}") for (name, slack), count in found.items()]


def conventions(run: Run) -> list[tuple[str, tuple[str, ...]]]:
    """Whose conventions were found on kinks: "op" or "implementation: op", and what was found."""
    several = len({r.implementation for r in run.results}) > 1
    found: dict[str, list[str]] = {}
    for result in run.results:
        if result.conventions:
            name = f"{result.implementation}: {result.op}" if several else result.op
            found.setdefault(name, []).extend(result.conventions)
    return [(name, _unique(texts)) for name, texts in found.items()]


def curves(run: Run) -> list[tuple[str, int, Record]]:
    """Per dtype, how many Taylor curves there are, and the one that misses the largest part."""
    found: dict[str, list[tuple[float, Record]]] = {}
    for result in run.results:
        if result.taylor is not None:
            found.setdefault(result.dtype, []).append((missing(result.taylor), result))
    return [
        (dtype, len(pairs), max(pairs, key=lambda pair: (math.isfinite(pair[0]), pair[0]))[1])
        for dtype, pairs in found.items()
    ]


def certificate(run: Run) -> Rejected | None:
    """The certificates of all results together; None if there are none."""
    certified = [(r, r.certificate) for r in run.results if r.certificate is not None]
    if not certified:
        return None
    blind: dict[str, list[Record]] = {}
    for result, found in certified:
        for name in found.blind:
            blind.setdefault(name, []).append(result)
    return Rejected(
        rejected=sum(len(found.rejected) for _, found in certified),
        tried=sum(found.tried for _, found in certified),
        blind=tuple(
            (name, len(results), f"{results[0].name}/{results[0].output}")
            for name, results in sorted(blind.items(), key=lambda item: -len(item[1]))
        ),
    )


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
        dialects = _unique(row.dialect for row in passing)
        outputs = _unique(row.output for row in passing)
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


def _them(results: list[Record]) -> str:
    return "them" if len({r.op for r in results}) > 1 else "it"


def by_sample(row: Row) -> list[tuple[Record, ...]]:
    """A row's results, those of one sample together."""
    samples: dict[str, list[Record]] = {}
    for cell in row.cells.values():
        for result in cell.results:
            samples.setdefault(result.sample, []).append(result)
    return [tuple(results) for results in samples.values()]


def drawn(row: Row) -> list[Record]:
    """A row's results that have a Taylor curve."""
    return [r for results in by_sample(row) for r in results if r.taylor is not None]


def _severity(result: Record) -> int:
    """Of a model that fails at every size alike, the smallest one comes first."""
    return SEVERITY.index(result.verdict)


def _rank(result: Record) -> tuple[int, float]:
    return SEVERITY.index(result.verdict), -badness(result)


def _together(of_name: list[Row]) -> list[Row]:
    """An operator may come back later in the run; a table names it, and each dialect, once."""
    ops = {op: place for place, op in enumerate(_unique(row.op for row in of_name))}
    dialects = _unique((row.op, row.dialect) for row in of_name)
    places = {dialect: place for place, dialect in enumerate(dialects)}
    return sorted(of_name, key=lambda row: (ops[row.op], places[row.op, row.dialect]))


def _unique(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
