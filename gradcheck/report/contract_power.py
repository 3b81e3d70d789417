"""Which side condition rejects which mutant, in every format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gradcheck.judge.contract_check import PROPERTIES
from gradcheck.report import power_html
from gradcheck.report.marked import code, table
from gradcheck.report.page import grid
from gradcheck.report.power_page import bullets, listed, page, suite_of
from gradcheck.report.prose import escape, in_markdown
from gradcheck.results.words import clean, plural

if TYPE_CHECKING:
    from gradcheck.power.contract import ContractPower, Killed

KILLS, SPARES, ALONE = "x", "", "only"
FEW: Final = 5
"""Judges that the terminal names per mutant."""
NUMBERS: Final = "The gradients at one typical sample, called twice with read-only arguments."


def render(power: ContractPower, format: str) -> str:
    """The attack in one of `FORMATS`, ending in a newline."""
    if format == "json":
        return json.dumps(_plain(power), indent=2) + "\n"
    if format == "html":
        return power_html.render(_page(power))
    if format == "markdown":
        return _markdown(power)
    body = [[clean(found.mutant.name), _by(found)] for found in power.killed]
    lines = grid(("mutant", "rejected by"), body, 0)
    return listed("\n".join(lines), _problems(power), summary(power))


def summary(power: ContractPower) -> str:
    """The last line, for a script to read."""
    rejected = len(power.killed) - len(power.survivors)
    needed = len(power.judges) - 1 - len(power.idle)
    return (
        f"POWER {'pass' if power.sound else 'fail'} mutants={rejected}/{len(power.killed)} "
        f"properties={needed}/{len(power.judges) - 1} alarms={len(power.alarms)}"
    )


def _by(found: Killed) -> str:
    few = ", ".join(found.by[:FEW])
    return few if len(found.by) <= FEW else f"{few} and {len(found.by) - FEW} more"


def _problems(power: ContractPower) -> list[str]:
    lines = [
        f"{mutant.op}/{mutant.name} is rejected by nothing: {mutant.says} "
        "Add the side condition that it violates"
        for mutant in power.survivors
    ]
    return [*lines, *_idle(power), *power.alarms]


def _idle(power: ContractPower) -> list[str]:
    return [
        f"{name} rejects no mutant alone: remove it, or add a mutant that needs it"
        for name in power.idle
    ]


def _says() -> dict[str, str]:
    """What each judge requires."""
    return {"numbers": NUMBERS, **{asked.name: asked.says for asked in PROPERTIES}}


def _markdown(power: ContractPower) -> str:
    needed = "every mutant is rejected, and every side condition is needed"
    state = needed if power.sound else "NOT SOUND"
    rejected = f"{plural(len(power.killed), 'variant')} of one right backward pass"
    lines = [f"**gradcheck power --contract: {state}**", ""]
    lines += [
        f"{escape(suite_of(power))}. {rejected}, with the right formula and one wrong "
        f"behaviour each, at {code(power.case)}. Each side condition checks a new instance of "
        "each, in float64 and in float32. The right backward pass violates none.",
        "",
    ]
    says = _says()
    judges = [
        [code(judge), in_markdown(says[judge]), ", ".join(map(code, power.sole(judge))) or "–"]
        for judge in power.judges
    ]
    lines += [table(("side condition", "what is required", "alone rejects"), judges), ""]
    heads = ["mutant", "class", *power.judges, "what is wrong"]
    lines += [table(heads, [_row(power, found) for found in power.killed]), ""]
    return page([*lines, *bullets(_problems(power))], summary(power))


def _row(power: ContractPower, found: Killed) -> list[str]:
    mark = ALONE if len(found.by) == 1 else KILLS
    marks = [mark if judge in found.by else SPARES for judge in power.judges]
    mutant = found.mutant
    return [code(mutant.name), code(mutant.source), *marks, in_markdown(clean(mutant.says))]


def _page(power: ContractPower) -> power_html.PowerPage:
    every, judges = power.killed, len(power.judges) - 1
    rejected = len(every) - len(power.survivors)
    headline = f"{rejected} of {len(every)} misbehaving backward passes are rejected"
    says = _says()
    cell = power_html.Cell
    return power_html.PowerPage(
        command="gradcheck power --contract",
        headline=f"all {headline.partition(' of ')[2]}" if power.sound else headline,
        passed=power.sound,
        facts=suite_of(power),
        scores=(
            power_html.Score(name="mutants of behaviour", part=rejected, of=len(every)),
            power_html.Score(
                name="side conditions needed",
                part=judges - len(power.idle),
                of=judges,
                note="each alone rejects some mutant",
            ),
            power_html.alarms(len(power.alarms), 1, "right backward passes rejected"),
        ),
        sections=(
            power_html.Section(
                name=clean(every[0].mutant.op),
                counts=f"{rejected} of {len(every)} mutants, each with the right formula",
                mutants=tuple(map(_mutant, every)),
            ),
        )
        if every
        else (),
        problems=tuple(clean(text) for text in (*_idle(power), *power.alarms)),
        grids=(
            power_html.Grid(
                title="Mutants by side condition",
                corner="mutant",
                columns=tuple((clean(judge), says[judge]) for judge in power.judges),
                rows=tuple(
                    (
                        clean(found.mutant.name),
                        tuple(
                            cell(text="●", tone="good", says=f"{judge} rejects it")
                            if judge in found.by
                            else cell()
                            for judge in power.judges
                        ),
                    )
                    for found in every
                ),
                linked=False,
            ),
        ),
        tables=(
            power_html.Table(
                title="Side conditions",
                heads=("side condition", "what is required", "alone rejects"),
                rows=tuple(
                    (f"`{judge}`", says[judge], ", ".join(map(clean, power.sole(judge))) or "–")
                    for judge in power.judges
                ),
            ),
        ),
        summary=summary(power),
    )


def _mutant(found: Killed) -> power_html.Mutant:
    return power_html.Mutant(
        name=clean(found.mutant.name),
        state="rejected" if found.by else "survived",
        says=clean(found.mutant.says),
        label=clean(found.mutant.source),
        by=", ".join(map(clean, found.by)),
        note="" if found.by else "No side condition rejects it; add the one that it violates",
    )


def _plain(power: ContractPower) -> dict[str, Any]:
    return {
        "suite": power.suite,
        "suite_version": power.suite_version,
        "seed": power.seed,
        "case": power.case,
        "sound": power.sound,
        "alarms": list(power.alarms),
        "idle": power.idle,
        "judges": list(power.judges),
        "mutants": [
            {
                "op": found.mutant.op,
                "name": found.mutant.name,
                "class": found.mutant.source,
                "says": found.mutant.says,
                "rejected_by": list(found.by),
            }
            for found in power.killed
        ],
    }
