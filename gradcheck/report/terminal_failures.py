"""What fails, on a terminal: a few results of each gradient in full, the others counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text, failures
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from gradcheck.report.failures import Group
    from gradcheck.report.page import Page
    from gradcheck.results.run import Run

GUILTY: Final = 2
"""Stages that blame names and whose failures are shown in full all the same."""
NAMED: Final = 8
"""Others that are named."""
GROUPS: Final = 12
"""Gradients whose failures are shown in full."""
SAMPLES: Final = 3
"""Failures shown of each of them."""
SAMPLES_OF: Final = {Kind.OPERATOR: SAMPLES, Kind.MODEL: 1, Kind.RULE: SAMPLES}
"""A model fails at every size alike, and in many gradients."""


def lines(page: Page, run: Run, *, everything: bool) -> list[str]:
    """Failures by gradient, the worst first: `everything`, or a few, and the others counted."""
    guilty = failures.explained(run, Part.STAGE)
    spoilt = failures.explained(run, Part.GRADIENT)
    if everything:
        guilty = spoilt = []
    brief = [*guilty[GUILTY:], *spoilt]
    groups = [group for group in failures.groups(run) if group not in brief]
    named = len({r.case.implementation for r in run.results}) > 1
    shown = len(groups) if everything else GROUPS
    blocks = [_group(page, group, named=named, everything=everything) for group in groups[:shown]]
    rest = groups[shown:]
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
    for lead, few in (("wrong too", guilty[GUILTY:]), ("spoilt by these stages", spoilt)):
        if few:
            names = ", ".join(words.subject(g.output, g.part) for g in few[:NAMED])
            more = f", … and {len(few) - NAMED} more" if len(few) > NAMED else ""
            blocks.append(page.wrap(f"{lead}: {names}{more}; -o report.html shows each"))
    return [line for block in blocks for line in ["", *block]][1:]


def _group(page: Page, group: Group, *, named: bool, everything: bool) -> list[str]:
    """What is wrong with one gradient: a few results in full, the others counted."""
    told = []
    most = 1 if group.part is Part.CONTRACT else SAMPLES_OF[group.kind]
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
