"""Which planted faults of the models are found, blamed and named, as text, markdown and JSON."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tabulate import tabulate

from gradcheck.report.marked import code, escape, table
from gradcheck.report.page import wrapped_table
from gradcheck.report.power_page import bullets, facts, filled, page
from gradcheck.results.words import clean, plural

if TYPE_CHECKING:
    from gradcheck.power.model import FaultReport, FaultTrial, ModelScore, Shortened

SMALL: Final = 2
"""Models whose faults a short report lists one by one."""
HEADS: Final = (
    "model", "faults", "found", "blamed exactly", "among suspects", "suspects (median, most)",
    "named", "false alarms",
)  # fmt: skip
ROW: Final = ("fault", "stage", "gradients rejected", "suspects", "what blame says of the stage")


def render(harvest: FaultReport, format: str, *, width: int = 100, short: bool = False) -> str:
    """The harvest in one of `FORMATS`, ending in a newline; `short` is for the terminal alone."""
    if format == "json":
        return _json(harvest)
    return _markdown(harvest) if format == "markdown" else _terminal(harvest, width, short)


def summary(harvest: FaultReport) -> str:
    """The last line, for a script to read."""
    sown, narrow = harvest.sown, harvest.narrow
    short = f" narrow={len(narrow)} narrow_found={sum(n.killed for n in narrow)}" if narrow else ""
    return (
        f"POWER {'pass' if harvest.sound else 'fail'} faults={len(sown)} "
        f"found={sum(s.rejected > 0 for s in sown)} exact={sum(s.exact for s in sown)} "
        f"among_suspects={sum(s.contained for s in sown)} "
        f"named={sum(s.understood for s in sown)} "
        f"alarms={sum(len(s.alarms) for s in harvest.scores)}{short}"
    )


def _overview(harvest: FaultReport) -> list[list[str]]:
    rows = [_row(score.model, [score]) for score in harvest.scores]
    return [*rows, _row("all", harvest.scores)] if len(rows) > 1 else rows


def _row(name: str, scores: Sequence[ModelScore]) -> list[str]:
    sown = [s for score in scores for s in score.sown]
    lengths = [len(s.suspects[0]) for s in sown if s.suspects]
    longest = max((s for s in sown if s.suspects), key=lambda s: len(s.suspects[0]), default=None)
    most = f"{len(longest.suspects[0])} of {plural(longest.of, 'stage')}" if longest else ""
    return [
        clean(name),
        f"{len(sown)}",
        f"{sum(s.rejected > 0 for s in sown)}",
        f"{sum(s.exact for s in sown)}",
        f"{sum(s.contained for s in sown)}",
        f"{statistics.median(lengths):g}, {most}" if lengths else "",
        f"{sum(s.understood for s in sown)}",
        f"{sum(len(score.alarms) for score in scores)} of {sum(s.judged for s in scores)}",
    ]


def _problems(harvest: FaultReport) -> Iterator[str]:
    yield from harvest.troubles
    for score in harvest.scores:
        yield from score.troubles
        for case in score.alarms:
            yield f"{case}: the right model does not pass; run it with `gradcheck run --model`"
        for sown in score.sown:
            me = f"{sown.fault}, {sown.dialect}, {sown.dtype}"
            if not sown.rejected:
                yield f"{me}: no parameter's gradient is rejected. {sown.says}"
                continue
            if not sown.exact:
                blamed = ", ".join(sown.blamed) or "nobody"
                yield f"{me}: {blamed} is blamed, at fault is {', '.join(sown.stages)}"
            if not sown.contained:
                yield f"{me}: the suspects do not hold {', '.join(sown.stages)}"
        for short in score.narrow:
            if not short.sound:
                blamed = ", ".join(short.blamed) or "nobody"
                yield (
                    f"{short.fault}, {short.dialect}, {short.dtype}: {short.says} {blamed} is "
                    f"blamed, and {short.rejected} gradients are rejected"
                )


def _narrow(harvest: FaultReport) -> Iterator[str]:
    every = harvest.narrow
    if every:
        found, named = sum(n.killed for n in every), sum(_typed(n) for n in every)
        yield (
            f"narrow: of {plural(len(every), 'trial')} of a stage in a narrower type, {found} "
            f"are found and blamed, {named} of them by the type's name; in "
            f"{sum(not n.killed and n.sound for n in every)} nothing can show"
        )
    whys = Counter(n.equivalent for n in every if n.sound and not n.killed)
    yield from (f"{why} ({plural(count, 'time')})" for why, count in whys.most_common())


def _typed(short: Shortened) -> bool:
    return short.killed and any("rounded to" in said for said in short.named)


def _details(score: ModelScore) -> list[list[str]]:
    """One row per fault and dialect: what is the same in both dtypes is said once."""
    rows = []
    for sown in _merged(score.sown):
        first = f"{len(sown.suspects[0])} of {sown.of}" if sown.suspects else "none"
        stages = sown.stages[0] + (f" and {len(sown.stages) - 1} more" if sown.stages[1:] else "")
        rows.append(
            [
                sown.fault.partition("/")[2],
                stages,
                f"{sown.rejected} of {sown.parameters}",
                first,
                " ".join(sown.named),
            ]
        )
    return [[clean(cell) for cell in row] for row in rows]


def _merged(sown: Sequence[FaultTrial]) -> list[FaultTrial]:
    """The first of each fault in each dialect: in the widest dtype."""
    found: dict[tuple[str, str], FaultTrial] = {}
    for one in sown:
        found.setdefault((one.fault, one.dialect), one)
    return list(found.values())


def _state(harvest: FaultReport) -> str:
    if harvest.sound:
        return "every planted fault is found, and blamed on its stage"
    if not harvest.complete:
        return "incomplete: the run stopped early"
    return "NOT SOUND" if harvest.sown else "nothing was planted"


def _terminal(harvest: FaultReport, width: int, short: bool) -> str:
    blocks = [filled(facts(harvest, harvest.dtypes), width, "  ")]
    if not short or len(harvest.scores) <= SMALL:
        blocks += [_listed(score, width) for score in harvest.scores]
    table = tabulate(_overview(harvest), HEADS, disable_numparse=True, tablefmt="simple",
                     maxheadercolwidths=12)  # fmt: skip
    if max(map(len, table.splitlines())) > width:
        table = wrapped_table(HEADS, _overview(harvest), width, spare=HEADS[5:6])
    blocks.append(table)
    narrow = [filled(clean(line), width, "    ") for line in _narrow(harvest)]
    if narrow:
        blocks.append("\n".join(narrow))
    problems = [clean(problem) for problem in _problems(harvest)]
    if problems:
        blocks.append("\n".join(filled(problem, width, "  ") for problem in problems))
    if not (harvest.sound or problems) or not harvest.complete:
        blocks.append(_state(harvest))
    return "\n\n".join([*blocks, summary(harvest)]) + "\n"


def _listed(score: ModelScore, width: int) -> str:
    rows = _details(score)
    table = tabulate([row[:4] for row in rows], ROW[:4], disable_numparse=True, tablefmt="simple")
    if max(map(len, table.splitlines())) > width:
        table = wrapped_table(ROW[:4], [row[:4] for row in rows], width)
        told = [filled(f"{row[0]}: {row[4]}", width, "    ") for row in rows if row[4]]
        return "\n".join([f"{clean(score.model)}:", table, *told])
    heads, lines = table.splitlines()[:2], table.splitlines()[2:]
    out = [f"{clean(score.model)}:", *heads]
    for line, row in zip(lines, rows, strict=True):
        out.append(line.rstrip())
        out += [filled(f"    {row[4]}", width, "    ")] if row[4] else []
    return "\n".join(out)


def _markdown(harvest: FaultReport) -> str:
    lines = [
        f"**gradcheck power: {_state(harvest)}**",
        "",
        escape(facts(harvest, harvest.dtypes)),
        "",
    ]
    lines += [table(HEADS, [[escape(c) for c in row] for row in _overview(harvest)]), ""]
    lines += [*bullets(_problems(harvest)), *bullets(_narrow(harvest))]
    for score in harvest.scores:
        rows = [[code(r[0]), code(r[1]), r[2], r[3], escape(r[4])] for r in _details(score)]
        title = f"<b>{escape(clean(score.model))}</b> {plural(len(rows), 'fault')}"
        lines += [f"<details><summary>{title}</summary>", "", table(ROW, rows), "", "</details>"]
        lines.append("")
    return page(lines, summary(harvest))


def _json(harvest: FaultReport) -> str:
    fields = {key: value for key, value in asdict(harvest).items() if key != "part"}
    document = {
        **fields,
        "sound": harvest.sound,
        "scores": [
            {
                **asdict(score),
                "sown": [
                    {**asdict(s), "exact": s.exact, "contained": s.contained} for s in score.sown
                ],
                "narrow": [
                    {**asdict(n), "killed": n.killed, "sound": n.sound} for n in score.narrow
                ],
            }
            for score in harvest.scores
        ],
    }
    return json.dumps(document, indent=1) + "\n"
