"""The mutation test of operators, the kill matrix and its score, in every format."""

from __future__ import annotations

import json
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
from gradcheck.spec.defect import LABELS

if TYPE_CHECKING:
    from gradcheck.power.operators import Power, Score, Trial

SMALL: Final = 3
"""Operators whose matrices a short report shows."""
LISTED: Final = 40
"""Problems that a short report names."""

HEADS: Final = (
    "family", "operators", "mutants killed", "equivalent", "narrow killed", "narrow equivalent",
    "generic killed", "false alarms",
)  # fmt: skip
LEGEND: Final = "● rejected   · not rejected   (blank) equal to the right gradient there"
MARKS: Final = ("x", ".", "-")
KINDS: Final = {"impostor": "generic", "narrow": "rounding"}
"""What stands for the class of mutants that nobody wrote."""
MARKS_SAY: Final = "`x` rejected, `.` not rejected, `-` equal to the right gradient there"


def render(power: Power, format: str, *, width: int = 100, short: bool = False) -> str:
    """The score in one of `FORMATS`, ending in a newline; `short` is for the terminal alone."""
    if format == "json":
        return _json(power)
    if format == "html":
        return power_html.render(_page(power))
    return _markdown(power) if format == "markdown" else _terminal(power, width, short)


def summary(power: Power) -> str:
    """The last line, for a script to read."""
    mutants, impostors = power.trials("mutant"), power.trials("impostor")
    narrow = power.trials("narrow")
    equivalent, same = (sum(t.proved_equivalent for t in of) for of in (mutants, narrow))
    return (
        f"POWER {'pass' if power.sound else 'fail'} "
        f"mutants={sum(bool(t.killed) for t in mutants)}/{len(mutants) - equivalent} "
        f"equivalent={equivalent} "
        f"impostors={sum(bool(t.killed) for t in impostors)}/{len(impostors)} "
        f"alarms={sum(len(s.alarms) for s in power.scores)} survivors={len(power.survivors)} "
        f"narrow={sum(bool(t.killed) for t in narrow)}/{len(narrow) - same} "
        f"narrow_equivalent={same}"
    )


# ── what goes where ──────────────────────────────────────────────────────────────────────────


def _families(power: Power) -> list[list[str]]:
    groups: dict[str, list[Score]] = {}
    for found in power.scores:
        groups.setdefault(found.family, []).append(found)
    rows = [_row(family, scores) for family, scores in groups.items()]
    return [*rows, _row("all", list(power.scores))] if len(rows) > 1 else rows


def _row(name: str, scores: Sequence[Score]) -> list[str]:
    mutants, narrow, impostors = (
        [t for s in scores for t in s.of(kind)] for kind in ("mutant", "narrow", "impostor")
    )
    equivalent, same = (sum(t.proved_equivalent for t in of) for of in (mutants, narrow))
    return [
        clean(name),
        f"{len(scores)}",
        f"{sum(bool(t.killed) for t in mutants)} of {len(mutants) - equivalent}",
        f"{equivalent}",
        f"{sum(bool(t.killed) for t in narrow)} of {len(narrow) - same}",
        f"{same}",
        f"{sum(bool(t.killed) for t in impostors)} of {len(impostors)}",
        f"{sum(len(s.alarms) for s in scores)} of {sum(s.judged for s in scores)}",
    ]


def _problems(power: Power) -> Iterator[str]:
    yield from _troubles(power)
    for found, trial in power.survivors:
        yield f"{found.op}/{trial.what} survives: {_advice(trial)}"
    yield from _mistakes(power)


def _troubles(power: Power) -> Iterator[str]:
    """What could not be tried, right VJPs that fail, and samples that reject nothing."""
    yield from power.troubles
    for found in power.scores:
        yield from found.troubles
        yield from (
            f"{case}: the right VJP does not pass; run it with `gradcheck run`"
            for case in found.alarms
        )
        yield from (
            f"{case}: this sample rejects nothing; change its values or remove it"
            for case in found.useless
        )


def _mistakes(power: Power) -> Iterator[str]:
    """Mutants that are declared otherwise than they are."""
    for found, trial in power.refuted:
        yield (
            f"{found.op}/{trial.what}: it is declared equivalent ({trial.equivalent}), but "
            f"{found.cheapest(trial)} rejects it; name that sample in `killer` instead"
        )
    for found, trial in power.misnamed:
        yield (
            f"{found.op}/{trial.what}: its killer {trial.killer!r} does not catch it, "
            f"{found.cheapest(trial)} does; name that one"
        )


def _advice(trial: Trial) -> str:
    """What is wrong with a survivor, and what to do."""
    return " ".join(filter(None, (_sentence(trial.says), _remedy(trial))))


def _sentence(text: str) -> str:
    return f"{text.rstrip('. ')}." if text.strip() else ""


def _remedy(trial: Trial) -> str:
    """What to do about a survivor."""
    if trial.kind == "narrow":
        return trial.doubt
    if trial.equivalent:
        return f"It is declared equivalent ({trial.equivalent}), but {trial.doubt}"
    if not trial.tried:
        return "It could not be tried; correct the problems listed here first"
    if trial.kind == "impostor":
        return "No sample rejects it; add one whose gradient has such elements"
    return "No sample rejects it; add one that does, or prove in `equivalent` that it is right"


def _matrix(
    found: Score, trials: Sequence[Trial], mark: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: a wrong gradient per row, a case per column."""
    heads = ["wrong gradient", "class", "cheapest", *found.sizes]
    rows = [
        [
            trial.what,
            trial.label,
            found.cheapest(trial) or ("equivalent" if trial.proved_equivalent else "none"),
            *(
                mark[0] if case in trial.killed else mark[1] if case in trial.tried else mark[2]
                for case in found.sizes
            ),
        ]
        for trial in trials
    ]
    return heads, rows


# ── the formats ──────────────────────────────────────────────────────────────────────────────


def _state(power: Power) -> str:
    if power.sound:
        return "every wrong gradient is rejected"
    if not power.complete:
        return "incomplete: the run stopped early"
    something = any(found.trials or not found.sound for found in power.scores)
    return "NOT SOUND" if something else "nothing was attacked"


def _terminal(power: Power, width: int, short: bool) -> str:
    blocks = [filled(facts(power, power.dtypes), width)]
    if not short or len(power.scores) <= SMALL:
        blocks += [_narrow(found, width) for found in power.scores]
    blocks.append(wrapped_table(HEADS, _families(power), width, spare=("equivalent",)))
    problems = [clean(problem) for problem in _problems(power)]
    if short and len(problems) > LISTED:
        more = plural(len(problems) - LISTED, "more problem")
        problems[LISTED:] = [f"… and {more}; write them all into a file with -o"]
    if problems:
        blocks.append("\n".join(filled(problem, width) for problem in problems))
    if not (power.sound or problems) or not power.complete:
        blocks.append(_state(power))
    return "\n\n".join([*blocks, summary(power)]) + "\n"


def _narrow(found: Score, width: int) -> str:
    """A matrix whose columns are numbered: the names of the cases stand below it."""
    told, routine = _told(found)
    heads, rows = _matrix(found, told, ("●", "·", " "))
    cases = heads[3:]
    numbered = [*heads[:3], "".join(f"{i % 10}" for i in range(1, len(cases) + 1))]
    body = [[*row[:3], "".join(row[3:])] for row in rows]
    table = tabulate(body, numbered, disable_numparse=True, tablefmt="simple")
    names = [
        f"  {i:>2}  {case} ({found.sizes[case]}): {rejected} of {tried}"
        for i, (case, (rejected, tried)) in enumerate(found.certificates.items(), 1)
    ]
    lines = [filled(f"{found.op}: {LEGEND}", width), table] if rows else [f"{found.op}:"]
    if routine:
        count = plural(len(routine), "generic wrong gradient")
        lines.append(filled(f"{count} rejected in every case: {_kinds(routine)}", width))
    lines += [filled(line, width) for line in _narrowed(found)]
    return "\n".join([*lines, "cases (elements): wrong gradients rejected", *names])


def _told(found: Score) -> tuple[list[Trial], list[Trial]]:
    """Trials worth a line each, and impostors that every case rejects in which they are wrong."""
    routine = [t for t in found.of("impostor") if t.killed == t.tried]
    each = [t for t in found.trials if t.kind != "narrow"]
    return [t for t in each if t.kind != "impostor" or t.killed != t.tried], routine


def _narrowed(found: Score) -> list[str]:
    """How many narrow mutants are rejected; then what is proved of the others, a line each."""
    narrow = found.of("narrow")
    if not narrow:
        return []
    proofs: dict[str, list[str]] = {}
    for trial in narrow:
        if trial.proved_equivalent:
            proofs.setdefault(trial.equivalent, []).append(trial.what)
    rest = len(narrow) - sum(map(len, proofs.values()))
    killed = sum(bool(t.killed) for t in narrow)
    return [
        f"roundings: {killed} of {rest} rejected",
        *(f"equivalent, {proof}: {_short(of)}" for proof, of in proofs.items()),
    ]


def _short(names: Sequence[str]) -> str:
    """Names without what they share: `narrow-b-` and its types."""
    kinds: dict[str, dict[str, None]] = {}
    for name in names:
        what, _, kind = name.partition(" in ")[0].removeprefix("narrow-").rpartition("-")
        kinds.setdefault(what, {})[kind] = None
    return "; ".join(f"{what} ({', '.join(types)})" for what, types in kinds.items())


def _kinds(trials: Sequence[Trial]) -> str:
    """The names of impostors, without the primals that they were tried on."""
    return ", ".join(dict.fromkeys(trial.what.partition(" of ")[0] for trial in trials))


def _markdown(power: Power) -> str:
    lines = [f"**gradcheck power: {_state(power)}**", "", escape(facts(power, power.dtypes)), ""]
    rows = [[escape(name), *rest] for name, *rest in _families(power)]
    lines += [table(HEADS, rows), ""]
    lines += bullets(_problems(power))
    for title, heads, cells in _overviews(power):
        lines += [title, "", table(heads, cells), ""] if cells else []
    if power.scores:
        lines += [f"In matrices, a letter per case: {MARKS_SAY}.", ""]
    for found in power.scores:
        lines += [*_details(found), ""]
    return page(lines, summary(power))


def _overviews(power: Power) -> Iterator[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Title, heads and rows of the tables over all operators."""
    yield "Wrong answers by class of defect:", ("class", "killed"), _classes(power)
    yield (
        "Modelled on real bugs:",
        ("mutant", "class", "modelled on", "cheapest killer"),
        [
            [
                code(f"{s.op}/{t.what}"),
                t.label,
                in_markdown(clean(t.modelled_on)),
                code(s.cheapest(t)),
            ]
            for s in power.scores
            for t in s.of("mutant")
            if t.modelled_on
        ],
    )
    says = {t.what.partition(" of ")[0]: t.says for t in power.trials("impostor")}
    yield (
        "Generic wrong gradients, made without knowledge of the operator:",
        ("generic", "in place of a gradient"),
        [[code(name), in_markdown(_alone(text))] for name, text in says.items()],
    )


def _classes(power: Power) -> list[list[str]]:
    labels = sorted({t.label for t in power.trials("mutant")})
    return [
        [label, f"{sum(bool(t.killed) for t in of)} of {sum(not t.proved_equivalent for t in of)}"]
        for label in labels
        for of in [[t for t in power.trials("mutant") if t.label == label]]
    ]


def _alone(says: str) -> str:
    """What an impostor is, without the name of a primal."""
    return clean(says.partition(": ")[2].rstrip("."))


def _details(found: Score) -> list[str]:
    each = [t for t in found.trials if t.kind != "narrow"]
    killed = sum(bool(t.killed) for t in each)
    wrong = sum(not t.proved_equivalent for t in each)
    told, routine = _told(found)
    title = f"<b>{found.op}</b> {killed} of {plural(wrong, 'wrong gradient')} rejected"
    rows = [
        [
            code(trial.what),
            trial.label,
            in_markdown(clean(trial.equivalent or trial.says)) if trial.kind == "mutant" else "",
            code(found.cheapest(trial)) if trial.killed else "–",
            f"`{''.join(row[3:])}`" if found.sizes else "",
        ]
        for trial, row in zip(told, _matrix(found, told, MARKS)[1], strict=True)
    ]
    heads = ("wrong gradient", "class", "what is wrong", "cheapest killer", "matrix")
    lines = [f"<details><summary>{title}</summary>", ""]
    if routine:
        lines += [
            f"Generic wrong gradients that every case rejects: {in_markdown(_kinds(routine))}.",
            "",
        ]
    lines += [table(heads, rows), ""] if rows else []
    lines += [line for text in _narrowed(found) for line in (f"{in_markdown(clean(text))}.", "")]
    cases = [
        f"{i} {code(case)} ({found.sizes[case]}) {rejected} of {tried}"
        for i, (case, (rejected, tried)) in enumerate(found.certificates.items(), 1)
    ]
    lines += (
        [f"Cases (elements), wrong gradients rejected: {', '.join(cases)}.", ""] if cases else []
    )
    return [*lines, "</details>"]


def _page(power: Power) -> power_html.PowerPage:
    mutants, narrow, impostors = map(power.trials, ("mutant", "narrow", "impostor"))
    scores = [
        _scored("mutants written by hand", mutants),
        _scored("rounding mutants", narrow),
        _scored("generic wrong gradients", impostors),
    ]
    sections = tuple(_section(found) for found in power.scores)
    killed, wrong = (sum(getattr(s, part) for s in scores) for part in ("part", "of"))
    headline = f"all {wrong:,} wrong gradients are rejected"
    if killed < wrong:
        headline = f"{plural(len(power.survivors), 'wrong gradient')} of {wrong:,} not rejected"
    return power_html.PowerPage(
        command="gradcheck power",
        headline=headline if power.sound or killed < wrong else _state(power),
        passed=power.sound,
        facts=facts(power, power.dtypes),
        scores=(
            *(score for score in scores if score.of),
            power_html.alarms(
                sum(len(found.alarms) for found in power.scores),
                sum(found.judged for found in power.scores),
                "right gradients rejected",
            ),
        ),
        sections=sections,
        problems=tuple(map(clean, (*_troubles(power), *_mistakes(power)))),
        grids=(_grid(power),) if mutants else (),
        summary=summary(power),
    )


def _scored(name: str, trials: Sequence[Trial]) -> power_html.Score:
    equivalent = sum(trial.proved_equivalent for trial in trials)
    return power_html.Score(
        name=name,
        part=sum(bool(trial.killed) for trial in trials),
        of=len(trials) - equivalent,
        note=f"{equivalent:,} more proved equivalent" if equivalent else "",
    )


def _grid(power: Power) -> power_html.Grid:
    """Operators by classes of defects: how many mutants there are, all rejected or not."""
    labels = [label for label in LABELS if any(t.label == label for t in power.trials("mutant"))]
    rows = []
    for found in power.scores:
        cells = []
        for label in labels:
            of = [t for t in found.of("mutant") if t.label == label and not t.proved_equivalent]
            cells.append(power_html.counted(sum(bool(t.killed) for t in of), len(of)))
        rows.append((clean(found.op), tuple(cells)))
    return power_html.Grid(
        title="Operators by class of defect",
        corner="operator",
        columns=tuple((LABELS[label].word, LABELS[label].says) for label in labels),
        rows=tuple(rows),
        note="Each cell: the number of mutants written by hand, all of them rejected; `2/3`: two "
        "of three are.",
    )


def _section(found: Score) -> power_html.Section:
    told, routine = _told(found)
    survived = [t for t in found.of("narrow") if t.survives]
    generic = f"Generic wrong gradients rejected in every sample: {_kinds(routine)}."
    notes = [generic] if routine else []
    notes += [f"{text[0].upper()}{text[1:]}." for text in _narrowed(found)]
    counts = [
        f"{sum(bool(t.killed) for t in of)} of {sum(not t.proved_equivalent for t in of)} {what}"
        for kind, what in (("mutant", "mutants"), ("narrow", "roundings"), ("impostor", "generic"))
        if (of := found.of(kind))
    ]
    return power_html.Section(
        name=clean(found.op),
        counts=" · ".join(counts),
        mutants=tuple(_mutant(found, trial) for trial in [*told, *survived]),
        notes=tuple(map(clean, notes)),
        samples=tuple(
            (clean(case), f"{plural(found.sizes[case], 'element')}, rejects {part} of {of}")
            for case, (part, of) in found.certificates.items()
        ),
    )


def _mutant(found: Score, trial: Trial) -> power_html.Mutant:
    label = LABELS[trial.label].word if trial.label in LABELS else KINDS.get(trial.kind, "")
    equal = trial.proved_equivalent
    marks = ("●", "·", "◦")
    each = trial.kind != "narrow"  # which is tried until one sample rejects it
    return power_html.Mutant(
        name=clean(trial.what),
        state="equivalent" if equal else "rejected" if trial.killed else "survived",
        says=clean(trial.says),
        label=label,
        by=f"`{clean(found.cheapest(trial))}`" if trial.killed else "",
        extent=f"{len(trial.killed)} of {plural(len(trial.tried), 'sample')}" if each else "",
        marks="".join(_matrix(found, [trial], marks)[1][0][3:]) if each else "",
        note=clean(trial.equivalent if equal else _remedy(trial) if trial.survives else ""),
        modelled_on=clean(trial.modelled_on),
    )


def _json(power: Power) -> str:
    document = {
        "version": power.version,
        "suite": power.suite,
        "suite_version": power.suite_version,
        "dtypes": power.dtypes,
        "seed": power.seed,
        "part": asdict(power.part),
        "complete": power.complete,
        "troubles": power.troubles,
        "sound": power.sound,
        "operators": [
            {
                **asdict(found),
                "certificates": {
                    case: {"rejected": rejected, "tried": tried}
                    for case, (rejected, tried) in found.certificates.items()
                },
                "trials": [
                    {**asdict(t), "cheapest": found.cheapest(t), "survives": t.survives}
                    for t in found.trials
                ],
            }
            for found in power.scores
        ],
    }
    return json.dumps(document, indent=1) + "\n"
