"""What goes where in a report about models: blocks of rows, blame, how small an error was seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Final

from gradcheck.report.outline import Cell, Row, rows
from gradcheck.results import words
from gradcheck.results.case_result import CaseResult, Kind
from gradcheck.results.finding import Blame, Part
from gradcheck.results.run import Run
from gradcheck.results.verdict import SEVERITY, Verdict, worst

PARTS: Final = (Part.VALUE, Part.GRADIENT, Part.STAGE, Part.TRAINING)
"""The order in which a model's parts are shown."""
CERTIFICATE: Final = "mp50"
"""The dtype under which the suite's own reverse pass is certified; it says nothing of anybody's."""
WHOLE: Final = ("gradients", "vjp")
"""What stands for all of a model's gradients where none was judged alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The rows of one part of a model, in the program's order.

    `title` says which they are, where they are not all.
    """

    part: Part
    rows: tuple[Row, ...]
    title: str = ""

    @property
    def passed(self) -> int:
        """How many rows pass."""
        return sum(row.verdict is Verdict.PASS for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Everything about one model's dialect in one implementation; a column per dtype."""

    implementation: str
    name: str
    dialect: str
    dtypes: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all rows."""
        return worst(row.verdict for row in self.rows)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all blocks."""
        return tuple(row for block in self.blocks for row in block.rows)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that were judged."""
        return tuple(dict.fromkeys(r.case.sample for row in self.rows for r in results(row)))

    def block(self, part: Part) -> Block:
        """The rows of one part; empty if there are none."""
        return next((b for b in self.blocks if b.part is part), Block(part=part, rows=()))


def counted(found: Sequence[Model]) -> list[Part]:
    """The parts whose rows are counted in the lines of these models."""
    parts = (Part.GRADIENT, Part.STAGE, Part.TRAINING)
    return [part for part in parts if any(model.block(part).rows for model in found)]


def whole(model: Model, dtype: str) -> Cell | None:
    """Everything about a model in one dtype."""
    cells = [row.cells[dtype] for row in model.rows if dtype in row.cells]
    return Cell.joined(cells) if cells else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blamed:
    """The rounds of blame that are the same in several sizes and dtypes of one model."""

    implementation: str
    name: str
    dialect: str
    cases: tuple[tuple[str, str], ...]
    """Size and dtype of each."""
    blames: tuple[Blame, ...]

    @property
    def whose(self) -> tuple[str, str, str]:
        """Implementation, model and dialect."""
        return self.implementation, self.name, self.dialect

    @property
    def where(self) -> str:
        """The sizes and dtypes, as shortly as it can be said."""
        sizes, dtypes = (tuple(dict.fromkeys(words)) for words in zip(*self.cases, strict=True))
        if set(self.cases) == set(product(sizes, dtypes)):
            return f"{', '.join(sizes)} in {', '.join(dtypes)}"
        return ", ".join("/".join(case) for case in self.cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the checks of one size and dtype could have seen, where that has to be told."""

    implementation: str
    case: str
    """`model/dialect/size/dtype`."""
    projected: tuple[CaseResult, ...]
    """Gradients that were projected: one number each, which sees only errors of some size."""
    coarse: tuple[CaseResult, ...]
    """Gradients some of whose elements are too uncertain to be judged."""


def models(run: Run) -> list[Model]:
    """The models of a run, in the order in which they came; implementations in the header's."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows(run):
        if row.kind is Kind.MODEL:
            groups.setdefault((row.implementation, row.op, row.dialect), []).append(row)
    places = _places(run)
    names = run.header.implementations
    ordered = sorted(groups, key=lambda key: names.index(key[0]) if key[0] in names else len(names))
    return [_model(key, groups[key], places, run.header.dtypes) for key in ordered]


def _model(
    key: tuple[str, str, str],
    found: list[Row],
    places: Mapping[tuple[str, str, Part], Sequence[str]],
    dtypes: Sequence[str],
) -> Model:
    told = [row for row in found if row.verdict.checked or row.output not in WHOLE]
    found = told or found  # what was not judged at all stands among the gaps
    blocks = []
    for part in dict.fromkeys([*PARTS, *(row.part for row in found)]):
        order = places.get((key[1], key[2], part), ())
        of_part = sorted(
            (row for row in found if row.part is part), key=lambda row: order.index(row.output)
        )
        if of_part:
            blocks.append(Block(part=part, rows=tuple(of_part)))
    judged = {dtype for row in found for dtype in row.cells}
    return Model(
        implementation=key[0],
        name=key[1],
        dialect=key[2],
        dtypes=tuple(d for d in dict.fromkeys([*dtypes, *sorted(judged)]) if d in judged),
        blocks=tuple(blocks),
    )


def _places(run: Run) -> dict[tuple[str, str, Part], list[str]]:
    """Per model, dialect and part one order of all names, over sizes and dtypes."""
    sequences: dict[tuple[str, str, Part], dict[tuple[str, ...], list[str]]] = {}
    for r in run.results:
        if r.case.kind is Kind.MODEL:
            of_part = sequences.setdefault((r.case.op, r.case.dialect, r.finding.part), {})
            of_part.setdefault((r.case.implementation, r.case.sample, r.case.dtype), []).append(
                r.finding.name
            )
    return {key: _merged(list(of_part.values())) for key, of_part in sequences.items()}


def _merged(sequences: Sequence[Sequence[str]]) -> list[str]:
    """One order for all names: what a longer sequence has between two stands between them.

    >>> _merged([["h.0", "out"], ["h.0", "h.1", "out"]])
    ['h.0', 'h.1', 'out']
    """
    order: list[str] = []
    for sequence in sorted(sequences, key=len, reverse=True):
        at = 0 if set(sequence) & set(order) else len(order)
        for name in sequence:
            if name in order:
                at = order.index(name) + 1
            else:
                order.insert(at, name)
                at += 1
    return order


def results(row: Row) -> tuple[CaseResult, ...]:
    """All results of a row."""
    return tuple(result for cell in row.cells.values() for result in cell.results)


def telling(row: Row) -> CaseResult | None:
    """The result whose worst element stands for a row: of its worst verdict, the worst one.

    One of the suite's own certificate only where there is nothing else.
    """
    measured = [r for r in results(row) if r.finding.top is not None]
    if not measured:
        return None

    def rank(result: CaseResult) -> tuple[int, bool, float]:
        certifies = result.case.dtype == CERTIFICATE
        return SEVERITY.index(result.finding.verdict), certifies, -result.finding.times_bound

    return min(measured, key=rank)


def blamed(run: Run) -> list[Blamed]:
    """What was blamed; equal findings once, with the cases that they hold for."""
    found: dict[tuple[str, str, str, tuple[Blame, ...]], list[tuple[str, str]]] = {}
    for result in run.results:
        if result.finding.blames:
            key = (
                result.case.implementation,
                result.case.op,
                result.case.dialect,
                result.finding.blames,
            )
            found.setdefault(key, []).append((result.case.sample, result.case.dtype))
    return [
        Blamed(
            implementation=implementation,
            name=name,
            dialect=dialect,
            cases=tuple(dict.fromkeys(cases)),
            blames=tuple(sorted(blames, key=lambda blame: blame.round)),
        )
        for (implementation, name, dialect, blames), cases in found.items()
    ]


def trained(run: Run) -> list[CaseResult]:
    """Trainings that went as they should; what is told of the others stands with the failures."""
    return [
        r
        for r in run.results
        if r.finding.part is Part.TRAINING
        and r.finding.verdict is Verdict.PASS
        and r.finding.reason
    ]


def sights(run: Run) -> list[Sight]:
    """How small an error was seen, wherever a gradient was projected or elements are unresolved."""
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for result in run.results:
        if result.case.kind is Kind.MODEL and (
            result.finding.evaluations or result.finding.unresolved
        ):
            case = (
                f"{result.case.op}/{result.case.dialect}/{result.case.sample}/{result.case.dtype}"
            )
            groups.setdefault((result.case.implementation, case), []).append(result)
    return [
        Sight(
            implementation=implementation,
            case=case,
            projected=tuple(r for r in found if r.finding.evaluations),
            coarse=tuple(r for r in found if r.finding.unresolved and not r.finding.evaluations),
        )
        for (implementation, case), found in groups.items()
    ]


def sight(found: Sight) -> str:
    """What the checks of one case could have seen, and what they could not."""
    parts = []
    seen = [r for r in found.projected if r.finding.smallest_visible_error is not None]
    if seen:
        parts.append(_seen(seen, lambda blindest: words.gradient(blindest.finding.name)))
    if found.projected:
        parts.append(_cost(found.projected))
    if found.coarse:
        names = [
            f"{words.subject(r.finding.name, r.finding.part)} ({r.finding.unresolved:,})"
            for r in found.coarse
        ]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        count = sum(r.finding.unresolved for r in found.coarse)
        few = ", ".join(names[:4])
        parts.append(f"{words.plural(count, 'element')} too uncertain to be judged: {few}{more}")
    return "; ".join(parts)


def _seen(projected: Sequence[CaseResult], name: Callable[[CaseResult], str]) -> str:
    """The smallest error that the blindest of several projections could have seen."""
    blindest = max(projected, key=lambda r: r.finding.smallest_visible_error or 0.0)
    least = words.number(blindest.finding.smallest_visible_error or 0.0)
    middle = words.number(median(r.finding.smallest_visible_error or 0.0 for r in projected))
    return (
        f"an error of {least} of a typical element in {name(blindest)}, the blindest of "
        f"{words.plural(len(projected), 'projected gradient')} ({middle} in the median)"
    )


def _cost(projected: Sequence[CaseResult]) -> str:
    return words.plural(sum(r.finding.evaluations for r in projected), "forward evaluation")


def together(found: Sequence[Sight]) -> list[str]:
    """What the checks of several models could have seen, and what not, in a line each."""
    projected = [r for sight in found for r in sight.projected]
    seen = [r for r in projected if r.finding.smallest_visible_error is not None]
    lines = [f"{_seen(seen, words.title)}; {_cost(projected)}"] if seen else []
    return [*lines, *filter(None, [_unresolved(found)])]


def _unresolved(found: Sequence[Sight]) -> str:
    cases = {
        f"{s.implementation} {s.case}": sum(r.finding.unresolved for r in s.coarse) for s in found
    }
    total = sum(cases.values())
    if not total:
        return ""
    most = max(found, key=lambda s: cases[f"{s.implementation} {s.case}"])
    return (
        f"{words.plural(total, 'element')} too uncertain to be judged, the most of them in "
        f"{words.clean(most.case)}: --model {words.clean(most.case.partition('/')[0])} says where"
    )


def block(part: Part, count: int) -> str:
    """What stands above the rows of one part of a model."""
    if part is Part.GRADIENT:
        return words.plural(count, "gradient")
    if part is Part.STAGE:
        return f"{words.plural(count, 'stage')}, each at the reference's values and cotangents"
    return words.plural(count, part.value) if part is Part.TRAINING else part.value


def passed(found: Block) -> str:
    """How many rows of how many pass."""
    return f"{found.passed}/{len(found.rows)}" if found.rows else "–"


COUNTED: Final = {Part.GRADIENT: "gradients", Part.STAGE: "stages", Part.TRAINING: "trainings"}
"""What is counted in the line of a model."""


def accusation(blame: Blame) -> str:
    """Which stages may be at fault, and how far to trust that."""
    stages = ", ".join(map(words.clean, blame.stages))
    count = words.plural(blame.of, "stage")
    if blame.exact or len(blame.stages) == 1:
        noun = "faulty stage" if len(blame.stages) == 1 else "faulty stages"
        return f"{noun}: {stages} ({len(blame.stages)} of {count})"
    return f"faulty stage: one of {stages} ({len(blame.stages)} of {count})"


def interval(blame: Blame) -> str:
    """Between which gradients the fault lies; empty where that is not known, or not needed."""
    right, wrong = (words.clean(name) for name in blame.bounds)
    if blame.exact or not wrong:
        return ""
    start = f"the right gradient of {right}" if right else "the loss"
    return f"between {start} and the wrong one of {wrong}"


def charges(blames: Sequence[Blame]) -> list[str]:
    """Everything that is said of all rounds of blame, a line each."""
    rounds = ((f"round {blame.round}: {accusation(blame)}", *said(blame)) for blame in blames)
    return [*(line for lines in rounds for line in lines), *assumptions(blames)]


def said(blame: Blame) -> list[str]:
    """What stands behind an accusation: the interval, and what exactly is wrong."""
    return list(filter(None, (interval(blame), *map(words.clean, blame.names))))


def assumptions(blames: Sequence[Blame]) -> list[str]:
    """What the rounds take for granted, each thing once."""
    return list(dict.fromkeys(words.clean(b.assumption) for b in blames if b.assumption))
