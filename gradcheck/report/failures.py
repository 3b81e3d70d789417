"""What the gate does not accept: failures by gradient, the worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import SEVERITY, Verdict

if TYPE_CHECKING:
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
    found: dict[tuple[str, Kind, str, str, Part, str], list[CaseResult]] = {}
    for r in run.results:
        if run.fails(r):
            key = (
                r.case.implementation,
                r.case.kind,
                r.case.op,
                r.case.dialect,
                r.finding.part,
                r.finding.name,
            )
            found.setdefault(key, []).append(r)
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
        for (implementation, kind, op, dialect, part, output), results in found.items()
    ]
    return sorted(ordered, key=_urgency)


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


MAX_STAGES: Final = 2
"""Stages that blame names and whose failures are shown in full all the same."""
MAX_NAMED: Final = 8
"""Others that are named."""
MAX_GROUPS: Final = 12
"""Gradients whose failures are shown in full."""
SAMPLES: Final = 3
"""Failures shown of each of them."""
SAMPLES_OF_KIND: Final = {Kind.OPERATOR: SAMPLES, Kind.MODEL: 1, Kind.RULE: SAMPLES}
"""A model fails at every size alike, and in many gradients."""


def on_terminal(page: Page, run: Run, *, everything: bool) -> list[str]:
    """Failures by gradient, the worst first: `everything`, or a few, and the others counted."""
    guilty = explained(run, Part.STAGE)
    spoilt = explained(run, Part.GRADIENT)
    if everything:
        guilty = spoilt = []
    brief = [*guilty[MAX_STAGES:], *spoilt]
    open_groups = [group for group in groups(run) if group not in brief]
    named = len({r.case.implementation for r in run.results}) > 1
    shown = len(open_groups) if everything else MAX_GROUPS
    blocks = [
        _lines_of(page, group, named=named, everything=everything) for group in open_groups[:shown]
    ]
    rest = open_groups[shown:]
    if rest:
        results = sum(len(group.results) for group in rest)
        blocks.append(
            page.wrap(
                f"… and {words.plural(results, 'more result')} of "
                f"{words.plural(len(rest), 'more gradient')}: "
                f"{failure_text.tally(r for group in rest for r in group.results)}; "
                "-o report.html shows them all"
            )
        )
    for lead, few in (
        ("wrong too", guilty[MAX_STAGES:]),
        ("spoilt by these stages", spoilt),
    ):
        if few:
            names = ", ".join(words.subject(g.output, g.part) for g in few[:MAX_NAMED])
            more = f", … and {len(few) - MAX_NAMED} more" if len(few) > MAX_NAMED else ""
            blocks.append(page.wrap(f"{lead}: {names}{more}; -o report.html shows each"))
    return [line for block in blocks for line in ["", *block]][1:]


def _lines_of(page: Page, group: Group, *, named: bool, everything: bool) -> list[str]:
    """What is wrong with one gradient: a few results in full, the others counted."""
    told = []
    most = 1 if group.part is Part.CONTRACT else SAMPLES_OF_KIND[group.kind]
    most = len(group.results) if everything else most
    talker = next((r for r in group.results[:most] if r.finding.printed.strip()), None)
    whose = f"{words.clean(group.implementation)} · " if named else ""
    for said in failure_text.told(group.results[:most]):
        result = said.result
        title = f"{whose}{words.title(result)}"
        told += page.judged(result.finding.verdict, f"{title}: {said.lead}" if said.lead else title)
        for label, text in said.facts:
            if label == "run":
                told += page.quoted(result.finding.printed) if result is talker else []
                told.append(f"  run: {text}")  # to be copied: never broken
            else:
                told += page.wrap(text, f"  {label}: ", "    ")
    rest = group.results[most:]
    if rest:
        where = words.clean(f"{group.op}/{group.dialect}")
        told += page.wrap(
            f"… and {len(rest):,} more of {where} · {words.subject(group.output, group.part)}: "
            f"{failure_text.rest(rest, group.results[:most])}",
            "  ",
            "    ",
        )
    return told
