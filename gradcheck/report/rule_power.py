"""Which wrong update rules are rejected, and by which samples, in every format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tabulate import tabulate

from gradcheck.report import power_html
from gradcheck.report.marked import code, table
from gradcheck.report.power_page import bullets, listed, page, suite_of
from gradcheck.report.prose import escape, in_markdown
from gradcheck.results.words import clean, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck.power.rule import Kills, RulePower

HEADS: Final = ("rule", "wrong update", "to be caught by", "rejected in", "what is wrong")


def render(power: RulePower, format: str) -> str:
    """The attack in one of `FORMATS`, ending in a newline."""
    if format == "json":
        return json.dumps(_plain(power), indent=2) + "\n"
    if format == "html":
        return power_html.render(_page(power))
    if format == "markdown":
        return _markdown(power)
    text = tabulate(
        [_row(found)[:4] for found in power.kills], HEADS[:4], disable_numparse=True,
        tablefmt="simple",
    )  # fmt: skip
    return listed(text, _problems(power), summary(power))


def summary(power: RulePower) -> str:
    """The last line, for a script to read."""
    rejected = len(power.kills) - len(power.survivors)
    return (
        f"POWER {'pass' if power.sound else 'fail'} mutants={rejected}/{len(power.kills)} "
        f"alarms={len(power.alarms)} survivors={len(power.survivors)}"
    )


def _row(found: Kills) -> list[str]:
    mutant = found.mutant
    count = f"{len(found.killed)} of {plural(len(found.tried), 'case')}"
    return [clean(t) for t in (mutant.rule, mutant.name, mutant.killer, count, mutant.says)]


def _problems(power: RulePower) -> list[str]:
    lines = [
        f"{found.mutant.full_name} is not rejected by {found.mutant.killer}: {found.mutant.says} "
        "Change the sample so that it shows, or name the one that does"
        for found in power.survivors
    ]
    return [*lines, *_alarms(power)]


def _alarms(power: RulePower) -> list[str]:
    return [
        f"{case}: the right rule does not pass; run it with `gradcheck run --rule`"
        for case in power.alarms
    ]


def _markdown(power: RulePower) -> str:
    state = "every wrong update is rejected" if power.sound else "NOT SOUND"
    rows = [[*map(code, row[:3]), *map(in_markdown, row[3:])] for row in map(_row, power.kills)]
    lines = [f"**gradcheck power --rule: {state}**", "", escape(suite_of(power)), ""]
    lines += [table(HEADS, rows), "", *bullets(_problems(power))]
    return page(lines, summary(power))


def _page(power: RulePower) -> power_html.PowerPage:
    every, survivors = power.kills, power.survivors
    rejected = len(every) - len(survivors)
    headline = f"{rejected:,} of {len(every):,} wrong updates are rejected"
    return power_html.PowerPage(
        command="gradcheck power --rule",
        headline=headline if survivors else f"all {len(every):,} wrong updates are rejected",
        passed=power.sound,
        facts=suite_of(power),
        scores=(
            power_html.Score(name="wrong updates", part=rejected, of=len(every)),
            power_html.alarms(len(power.alarms), power.judged, "right updates rejected"),
        ),
        sections=tuple(_section(score.kills) for score in power.scores if score.kills),
        problems=tuple(map(clean, _alarms(power))),
        summary=summary(power),
    )


def _section(found: Sequence[Kills]) -> power_html.Section:
    mutants = tuple(map(_mutant, found))
    rejected = sum(mutant.state == "rejected" for mutant in mutants)
    return power_html.Section(
        name=clean(found[0].mutant.rule),
        counts=f"{rejected} of {plural(len(mutants), 'wrong update')}",
        mutants=mutants,
    )


def _mutant(found: Kills) -> power_html.Mutant:
    mutant = found.mutant
    remedy = f"It is not rejected by `{mutant.killer}`; change that sample, or name one that does"
    return power_html.Mutant(
        name=clean(mutant.name),
        state="rejected" if found.as_said else "survived",
        says=clean(mutant.says),
        by=f"`{clean(mutant.killer)}`",
        extent=f"{len(found.killed)} of {plural(len(found.tried), 'case')}",
        note="" if found.as_said else clean(remedy),
        modelled_on=clean(mutant.modelled_on),
    )


def _plain(power: RulePower) -> dict[str, Any]:
    return {
        "suite": power.suite,
        "suite_version": power.suite_version,
        "seed": power.seed,
        "sound": power.sound,
        "judged": power.judged,
        "alarms": list(power.alarms),
        "mutants": [
            {
                "rule": found.mutant.rule,
                "name": found.mutant.name,
                "says": found.mutant.says,
                "killer": found.mutant.killer,
                "tried": list(found.tried),
                "killed": list(found.killed),
            }
            for found in power.kills
        ],
    }
