"""Every result of a run, packed for a page that unpacks what is asked for: deflated columns.

A page holds many results that nobody looks at. They stand in it as chunks, each a JSON object,
deflated and in base64; a browser's `DecompressionStream("deflate")` and `JSON.parse` read it. Cells
are numbered through all tables; a chunk holds whole cells. Per cell `counts` says how many results
it has, `cases` and `dtypes` which text names its operator, dialect and dtype. Per result, a column
each, in lines: see `_columns`. What few results have (why it is wrong, what was printed, pictures)
stands in `more`, by the number of the result in its chunk. `texts` holds what columns refer to.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gradcheck.report import failure_text
from gradcheck.results import printed, words
from gradcheck.results.stored import plain
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gradcheck.report.html_matrix import Matrix
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Certificate, Finding, Miss
    from gradcheck.results.run import Run

    Pictures = Mapping[tuple[str, ...], Sequence[Any]]

CHUNK: Final = 2000
"""Results in a chunk, at least: unpacking one is not felt, and more compress little better."""
ELEMENTS: Final = 8
"""The worst elements of a failure that a page lists."""
DIGITS: Final = 8
"""Significant digits of the numbers of a pass, at most; of a failure, all that tell them apart."""
CASE: Final = "{}"
"""What stands for `op/dialect/sample/dtype` in a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The results of consecutive cells, from the cell `first` on; `data` is base64."""

    first: int
    data: str


def packed(value: Any) -> str:
    """Plain data as JSON, deflated, in base64: the same bytes for the same data."""
    text = plain.dumped(value)
    return base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")


def chunks(run: Run, matrices: Iterable[Matrix], pictures: Pictures) -> list[Chunk]:
    """The results of all cells.

    Args:
        run: what happened.
        matrices: the page's tables, in which each cell's results are found.
        pictures: the evidence for a result, by its key, as trees of elements.
    """
    made: list[Chunk] = []
    cells: list[Sequence[CaseResult]] = []
    first = size = 0
    for results in _cells(matrices):
        cells.append(results)
        size += len(results)
        if size >= CHUNK:
            made.append(_chunk(run, first, cells, pictures))
            first, size, cells = first + len(cells), 0, []
    return [*made, *([_chunk(run, first, cells, pictures)] if cells else [])]


def _cells(matrices: Iterable[Matrix]) -> Iterator[Sequence[CaseResult]]:
    for matrix in matrices:
        for line in matrix.lines:
            for view in line.views:
                yield () if view is None else view.cell.results


class _Texts:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> str:
        return str(self.numbers.setdefault(text, len(self.numbers)))


def _chunk(
    run: Run, first: int, cells: Sequence[Sequence[CaseResult]], pictures: Pictures
) -> Chunk:
    texts = _Texts()
    results = [result for of_cell in cells for result in of_cell]
    data = {
        "counts": [len(of_cell) for of_cell in cells],
        "cases": [texts.number(_case(of_cell[0])) if of_cell else "" for of_cell in cells],
        "dtypes": [texts.number(of_cell[0].case.dtype) if of_cell else "" for of_cell in cells],
        **{
            name: "\n".join([column(result) for result in results])
            for name, column in _columns(run, texts).items()
        },
        "more": {
            i: found
            for i, result in enumerate(results)
            if (found := _more(run, result, pictures.get(result.key, ())))
        },
        "texts": list(texts.numbers),
    }
    return Chunk(first=first, data=packed(data))


def _columns(run: Run, texts: _Texts) -> dict[str, Callable[[CaseResult], str]]:
    """What is said of every result, by the name of the column; none of it holds a line's end."""
    certificates: dict[Certificate | None, str] = {None: ""}

    def certificate(result: CaseResult) -> str:
        found = result.finding.certificate
        if found not in certificates:
            certificates[found] = texts.number(_impostors(found)) if found else ""
        return certificates[found]

    cleaned: dict[str, str] = {}

    def text(foreign: str) -> str:
        """The number of a foreign text; there are few, each of many results."""
        if foreign not in cleaned:
            cleaned[foreign] = texts.number(words.clean(foreign))
        return cleaned[foreign]

    def of_top(said: Callable[[Finding, Miss], str]) -> Callable[[CaseResult], str]:
        return lambda r: said(r.finding, r.finding.worst[0]) if r.finding.worst else ""

    return {
        "sample": lambda r: texts.number(named(r)),
        "hunts": lambda r: text(r.case.hunts),
        "verdict": lambda r: texts.number(words.word(run.stands(r))),
        "certificate": certificate,
        "repro": lambda r: texts.number(_command(r)),
        "compared": lambda r: str(r.finding.compared),
        "failed": lambda r: str(r.finding.failed or ""),
        "unresolved": lambda r: str(r.finding.unresolved or ""),
        "place": of_top(failure_text.place),
        "got": of_top(_values),
        "bar": of_top(lambda r, top: words.number(top.error_bar, 2)),
        "error": of_top(lambda r, top: words.number(top.error)),
        "bound": of_top(lambda finding, top: words.number(words.allowed(top, finding.verdict))),
        "times": of_top(
            lambda finding, top: words.multiple(top.error, words.allowed(top, finding.verdict))
        ),
        "ulp": of_top(lambda r, top: "" if top.ulp is None else words.number(top.ulp)),
        "cotangent": of_top(lambda r, top: text(top.cotangent)),
    }


def named(result: CaseResult) -> str:
    """What a line of a cell's results is called: its sample, or the property of a contract."""
    contract = result.finding.part == "contract"
    return (
        words.subject(result.finding.name, result.finding.part)
        if contract
        else words.clean(result.case.sample)
    )


def _values(finding: Finding, top: Miss) -> str:
    """What was got and, behind a blank, what was wanted, if that is printed differently."""
    got, want = failure_text.values(top, DIGITS if finding.verdict is Verdict.PASS else 17)
    return got if want == got else f"{got} {want}"


def _impostors(found: Certificate) -> str:
    """Those rejected and, behind a bar each, those that pass, and those that are tolerated."""
    parts = (found.rejected, found.blind, *([found.tolerated] if found.tolerated else []))
    sides = (",".join(map(words.clean, names)) for names in parts)
    return "|".join(sides)


def _case(result: CaseResult) -> str:
    return words.clean(f"{result.case.op}/{result.case.dialect}")


def _command(result: CaseResult) -> str:
    """The command that runs a result again, in which the case is left out where it can be."""
    command = words.command(result.repro)
    case = f"{result.case.op}/{result.case.dialect}/{result.case.sample}/{result.case.dtype}"
    if CASE in command or case != words.clean(case):
        return command
    return command.replace(case, CASE)


def _more(run: Run, result: CaseResult, pictures: Sequence[Any]) -> dict[str, Any]:
    """What is said of few results; empty for an ordinary pass."""
    found: dict[str, Any] = {}
    known = run.expected(result)
    if known is not None:
        found["known"] = f"{words.clean(known.entry)}: {words.clean(known.reason)}"
    if result.finding.verdict is not Verdict.PASS:
        said = failure_text.alone(result)
        found["lead"] = said.lead
        found["facts"] = [
            pair for pair in said.facts if pair[0] not in ("run", failure_text.DESIGNED)
        ]
        found["elements"] = [
            list(_element(result, miss)) for miss in result.finding.worst[:ELEMENTS]
        ]
    elif result.finding.evaluations or result.finding.taylor is not None or result.finding.reason:
        found["lead"] = words.clean(result.finding.reason)
        kept = ("visible", "taylor")
        found["facts"] = [pair for pair in failure_text.facts(result) if pair[0] in kept]
    notes = [
        *result.finding.conventions,
        *([f"wider tolerance: {result.finding.slack}"] if result.finding.slack else []),
    ]
    if notes:
        found["notes"] = [words.clean(text) for text in notes]
    if result.finding.printed.strip():
        found["printed"] = printed.of(result)
    if result.finding.source:
        found["source"] = words.clean(result.finding.source)
    if pictures:
        found["pictures"] = list(pictures)
    return found


def _element(result: CaseResult, miss: Miss) -> Iterator[str]:
    """An element: where, got, want with its error bar, error in multiples of its bound, ulp."""
    got, want = failure_text.values(miss)
    yield failure_text.place(result.finding, miss)
    yield got
    yield f"{want} {failure_text.bar(miss)}"
    yield words.multiple(miss.error, miss.bound)
    yield "" if miss.ulp is None else words.number(miss.ulp)
    yield words.clean(miss.cotangent)
