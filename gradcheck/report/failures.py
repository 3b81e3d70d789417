"""What the gate does not accept: failures by gradient, the worst first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gradcheck.report import failure_text
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import SEVERITY, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gradcheck.report.page import Page
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run


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
    results: tuple[CaseResult, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the group."""
        return self.results[0].finding.verdict


def groups(run: Run) -> list[Group]:
    """What the gate does not accept, by gradient; groups and results in them worst first.

    A model's loss and its stages come before its parameters: one wrong stage spoils the gradient
    of every parameter before it.
    """
    found = [
        replace(group, results=tuple(sorted(group.results, key=_rank_of(group.kind))))
        for group in grouped(filter(run.fails, run.results))
    ]
    return sorted(found, key=_urgency)


def grouped(results: Iterable[CaseResult]) -> list[Group]:
    """Results by gradient; groups and results in them in their order."""
    found: dict[tuple[str, Kind, str, str, Part, str], list[CaseResult]] = {}
    for r in results:
        case, finding = r.case, r.finding
        key = case.implementation, case.kind, case.op, case.dialect, finding.part, finding.name
        found.setdefault(key, []).append(r)
    return [
        Group(
            implementation=implementation,
            kind=kind,
            op=op,
            dialect=dialect,
            part=part,
            output=output,
            results=tuple(of_gradient),
        )
        for (implementation, kind, op, dialect, part, output), of_gradient in found.items()
    ]


def _rank_of(kind: Kind) -> Callable[[CaseResult], int | tuple[int, float]]:
    return _rank if kind is not Kind.MODEL else _severity


def explained(run: Run, part: Part) -> list[Group]:
    """Failing stages that blame names exactly, or failing parameters of models that have such.

    What blame says of the former need not be said twice; the latter are wrong for no other reason.
    """
    guilty = {
        (r.case.implementation, r.case.name)
        for r in run.results
        if r.finding.blames and all(blame.exact for blame in r.finding.blames)
    }
    return [
        group
        for group in groups(run)
        if group.kind is Kind.MODEL and group.part is part
        if all((r.case.implementation, r.case.name) in guilty for r in group.results)
    ]


def _urgency(group: Group) -> tuple[int, bool, tuple[int, float]]:
    """What is worse than a wrong number, then what is wrong by itself, then what may follow."""
    rank = min(map(_rank, group.results))
    follows = group.kind is Kind.MODEL and group.part not in (Part.VALUE, Part.STAGE)
    return min(rank[0], SEVERITY.index(Verdict.FAIL)), follows, rank


def _severity(result: CaseResult) -> int:
    """Of a model that fails at every size alike, the smallest one comes first."""
    return SEVERITY.index(result.finding.verdict)


def _rank(result: CaseResult) -> tuple[int, float]:
    return SEVERITY.index(result.finding.verdict), -result.finding.times_bound


def in_full(page: Page, run: Run) -> list[str]:
    """Every failure with all that is known about it, by gradient, the worst first."""
    named = len({r.case.implementation for r in run.results}) > 1
    blocks = [_lines_of(page, group, named=named) for group in groups(run)]
    return [line for block in blocks for line in ["", *block]][1:]


def _lines_of(page: Page, group: Group, *, named: bool) -> list[str]:
    """What is wrong with one gradient, result by result."""
    lines = []
    talker = next((r for r in group.results if r.finding.printed.strip()), None)
    whose = f"{words.clean(group.implementation)} · " if named else ""
    for said in failure_text.told(group.results):
        result = said.result
        title = f"{whose}{words.title(result)}"
        lead = f"{title}: {said.lead}" if said.lead else title
        lines += page.judged(result.finding.verdict, lead)
        for label, text in said.facts:
            if label == "run":
                lines += page.quoted(result.finding.printed) if result is talker else []
                lines.append(f"  run: {text}")  # to be copied: never broken
            else:
                lines += page.wrap(text, f"  {label}: ", "    ")
    return lines
