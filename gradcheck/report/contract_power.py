"""Which property sees which contract mutant, as text, markdown and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gradcheck.judge.contract_check import PROPERTIES
from gradcheck.report.marked import code, escape, table
from gradcheck.report.page import grid
from gradcheck.report.power_page import bullets, listed, page, suite_of
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
        "Find the property that a right backward has and it lacks"
        for mutant in power.survivors
    ]
    lines += [
        f"{name} is the only one to reject nothing: drop it, or add the mutant that needs it"
        for name in power.idle
    ]
    return [*lines, *power.alarms]


def _markdown(power: ContractPower) -> str:
    state = "every mutant is rejected, and every property is needed" if power.sound else "NOT SOUND"
    rejected = f"{plural(len(power.killed), 'variant')} of one right backward"
    lines = [f"**gradcheck power --contract: {state}**", ""]
    lines += [
        f"{escape(suite_of(power))}. {rejected}, whose formula is right and whose behaviour is "
        f"not, at {code(power.case)}: each is put to each property alone, new each time, in "
        "float64 and in float32. The right one passes everything.",
        "",
    ]
    says = {"numbers": NUMBERS, **{asked.name: asked.says for asked in PROPERTIES}}
    judges = [
        [code(judge), escape(says[judge]), ", ".join(map(code, power.sole(judge))) or "–"]
        for judge in power.judges
    ]
    lines += [table(("property", "what a backward owes", "alone rejects"), judges), ""]
    heads = ["mutant", "class", *power.judges, "what is wrong"]
    lines += [table(heads, [_row(power, found) for found in power.killed]), ""]
    return page([*lines, *bullets(_problems(power))], summary(power))


def _row(power: ContractPower, found: Killed) -> list[str]:
    mark = ALONE if len(found.by) == 1 else KILLS
    marks = [mark if judge in found.by else SPARES for judge in power.judges]
    mutant = found.mutant
    return [code(mutant.name), code(mutant.source), *marks, escape(clean(mutant.says))]


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
