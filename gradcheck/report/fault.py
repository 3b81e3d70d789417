"""Which planted faults of models are found, located and named, in every format."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tabulate import tabulate

from gradcheck.report import power_html
from gradcheck.report.marked import code, table
from gradcheck.report.page import wrapped_table
from gradcheck.report.power_page import bullets, facts, filled, page
from gradcheck.report.prose import escape, in_markdown
from gradcheck.results.words import clean, plural
from gradcheck.spec.fault import KINDS

if TYPE_CHECKING:
    from gradcheck.power.model import FaultReport, FaultTrial, ModelScore, Shortened

SMALL: Final = 2
"""Models whose faults a short report lists one by one."""
HEADS: Final = (
    "model", "faults", "found", "located", "among suspects", "suspects (median, most)",
    "named", "false alarms",
)  # fmt: skip
ROW: Final = ("fault", "stage", "gradients rejected", "suspects", "diagnosis of the stage")


def render(harvest: FaultReport, format: str, *, width: int = 100, short: bool = False) -> str:
    """The harvest in one of `FORMATS`, ending in a newline; `short` is for the terminal alone."""
    if format == "json":
        return _json(harvest)
    if format == "html":
        return power_html.render(_page(harvest))
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
                located = ", ".join(sown.blamed) or "no stage"
                yield f"{me}: located in {located}, expected {', '.join(sown.stages)}"
            if not sown.contained:
                yield f"{me}: the suspects do not include {', '.join(sown.stages)}"
        for short in score.narrow:
            if not short.sound:
                located = ", ".join(short.blamed) or "no stage"
                yield (
                    f"{short.fault}, {short.dialect}, {short.dtype}: {short.says} Located in "
                    f"{located}, and {plural(short.rejected, 'gradient')} rejected"
                )


def _narrow(every: Sequence[Shortened]) -> Iterator[str]:
    if every:
        found, named = sum(n.killed for n in every), sum(_typed(n) for n in every)
        yield (
            f"narrow: of {plural(len(every), 'trial')} of a stage in a narrower type, {found} "
            f"are found and located, {named} of them named by type; "
            f"{sum(not n.killed and n.sound for n in every)} have no visible effect"
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
        return "every planted fault is found and located"
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
    narrow = [filled(clean(line), width, "    ") for line in _narrow(harvest.narrow)]
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
    lines += [*bullets(_problems(harvest)), *bullets(_narrow(harvest.narrow))]
    for score in harvest.scores:
        rows = [[code(r[0]), code(r[1]), r[2], r[3], in_markdown(r[4])] for r in _details(score)]
        title = f"<b>{escape(clean(score.model))}</b> {plural(len(rows), 'fault')}"
        lines += [f"<details><summary>{title}</summary>", "", table(ROW, rows), "", "</details>"]
        lines.append("")
    return page(lines, summary(harvest))


def _page(harvest: FaultReport) -> power_html.PowerPage:
    sown, narrow, named = harvest.sown, harvest.narrow, power_html.Score
    found = sum(s.rejected > 0 for s in sown)
    scores = [
        named(name="faults found", part=found, of=len(sown)),
        named(name="faulty stage located", part=sum(s.exact for s in sown), of=len(sown),
              note="each stage judged alone"),
        named(name="among the suspects", part=sum(s.contained for s in sown), of=len(sown),
              note="from the gradients alone"),
    ]  # fmt: skip
    if narrow:
        hidden = sum(not n.killed and n.sound for n in narrow)
        note = f"{hidden:,} more have no visible effect" if hidden else ""
        killed = sum(n.killed for n in narrow)
        scores.append(named(name="stages in a narrower type", part=killed,
                            of=len(narrow) - hidden, note=note))  # fmt: skip
    scores.append(
        power_html.alarms(
            sum(len(score.alarms) for score in harvest.scores),
            sum(score.judged for score in harvest.scores),
            "right models rejected",
        )
    )
    kinds = [kind for kind in KINDS if any(s.kind == kind for s in sown)]
    rows = []
    for score in harvest.scores:
        of_kinds = [[s for s in score.sown if s.kind == kind] for kind in kinds]
        cells = [power_html.counted(sum(s.sound for s in of), len(of)) for of in of_kinds]
        rows.append((clean(score.model), tuple(cells)))
    headline = f"{found:,} of {len(sown):,} planted faults are found"
    if harvest.sound:
        headline = f"all {len(sown):,} planted faults are found and located"
    return power_html.PowerPage(
        command="gradcheck power --model",
        headline=headline if sown else _state(harvest),
        passed=harvest.sound,
        facts=facts(harvest, harvest.dtypes),
        scores=tuple(score for score in scores if score.of),
        sections=tuple(_section(score) for score in harvest.scores),
        problems=tuple(map(clean, _problems(harvest))),
        grids=(
            power_html.Grid(
                title="Models by kind of fault",
                corner="model",
                columns=tuple((kind, "") for kind in kinds),
                rows=tuple(rows),
                note="Each cell: the number of planted faults, per variant and dtype, all of them "
                "found and located; `2/3`: two of three are.",
            ),
        )
        if sown
        else (),
        summary=summary(harvest),
    )


def _section(score: ModelScore) -> power_html.Section:
    found = sum(s.rejected > 0 for s in score.sown)
    every = _merged(score.sown)
    several = len({sown.dialect for sown in every}) > 1
    narrow = [clean(f"{text}.") for text in _narrow(score.narrow)]
    return power_html.Section(
        name=clean(score.model),
        counts=f"{found} of {plural(len(score.sown), 'fault')} found",
        mutants=tuple(_mutant(sown, several) for sown in every),
        notes=tuple(f"{text[0].upper()}{text[1:]}" for text in narrow),
    )


def _mutant(sown: FaultTrial, several: bool) -> power_html.Mutant:
    stages = ", ".join(f"`{stage}`" for stage in sown.stages)
    located = "located" if sown.exact else "found, but not located"
    said = f" Diagnosis: {' '.join(sown.named)}" if sown.named else ""
    name = sown.fault.partition("/")[2]
    return power_html.Mutant(
        name=clean(f"{name} ({sown.dialect})" if several else name),
        state="rejected" if sown.rejected else "survived",
        says=clean(sown.says),
        label=clean(sown.kind),
        by=clean(f"{located}: {stages}"),
        extent=f"{sown.rejected} of {plural(sown.parameters, 'gradient')} rejected",
        note=clean(said.strip()),
        modelled_on=clean(sown.modelled_on),
    )


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
