"""Which roundings to a narrower type are rejected, in every format."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tabulate import tabulate

from gradcheck.numerics.narrow import OPERANDS, WHAT
from gradcheck.report import power_html
from gradcheck.report.marked import code, table
from gradcheck.report.power_page import page, suite_of
from gradcheck.report.prose import escape, in_markdown
from gradcheck.results.words import clean, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gradcheck.power.narrow import NarrowPower, Outcome

LETTERS: Final = {"TF32": "T", "bfloat16": "B", "float16": "H", "float32": "S"}
LEGEND: Final = (
    "T: TF32, B: bfloat16, H: float16, S: float32 inside float64 code. A capital: rounding to the "
    "type is rejected in every dialect. A small letter: in some, and the list below says why no "
    "check can see the others. A dash: the backward has no such part, or no gradient depends on "
    "it. Of several operands each is rounded alone, and all together."
)
NUMBER: Final = re.compile(r"\d[\d.e+-]*")
TOLERANCE: Final = "within the tolerance"


def render(power: NarrowPower, format: str) -> str:
    """The table in one of `FORMATS`, ending in a newline."""
    if format == "json":
        return json.dumps(_plain(power), indent=2) + "\n"
    if format == "html":
        return power_html.render(_page(power))
    if format == "markdown":
        return _markdown(power)
    parts = [tabulate(_totals(power), _HEADS, tablefmt="simple", disable_numparse=True)]
    parts += [f"not rejected, for no known reason: {_named(one)}" for one in power.missed]
    return "\n\n".join([*parts, summary(power)]) + "\n"


def summary(power: NarrowPower) -> str:
    """The last line, for a script to read."""
    rejected = sum(one.rejected for one in power.outcomes)
    missed = len(power.missed)
    return (
        f"NARROW {'pass' if power.sound else 'fail'} rejected={rejected} "
        f"equivalent={len(power.outcomes) - rejected - missed} missed={missed}"
    )


_HEADS: Final = ("judged by", "dtype", "rounded to", "rejected", "cannot be seen", "missed")


def _totals(power: NarrowPower) -> list[list[str]]:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for one in power.outcomes:
        seen = "rejected" if one.rejected else "equivalent" if one.reason else "missed"
        counts[one.judged, one.dtype, _title(one.type), seen] += 1
    keys = dict.fromkeys(key[:3] for key in counts)
    kinds = ("rejected", "equivalent", "missed")
    return [[*key, *(f"{counts[(*key, kind)]:,}" for kind in kinds)] for key in keys]


def _markdown(power: NarrowPower) -> str:
    state = "every rounding that a dtype can show is rejected" if power.sound else "NOT SOUND"
    lines = [
        "# Code that computes in a narrower type",
        "",
        f"**gradcheck power --narrow: {state}**",
        "",
        f"{escape(suite_of(power))}. Written by `gradcheck power --narrow -o reports/narrow.md`.",
        "",
        table(_HEADS, _totals(power)),
        "",
    ]
    operators = [one for one in power.outcomes if one.judged == "operator"]
    models = [one for one in power.outcomes if one.judged != "operator"]
    if operators:
        lines += ["## Operators", "", LEGEND, "", _by_operator(operators), ""]
    if models:
        lines += ["## Models, stage by stage", "", _by_model(models), ""]
    lines += ["## What no check can see, and why", "", *_reasons(power.outcomes), ""]
    if power.missed:
        lines += ["## Missed", "", *(f"- {escape(_named(one))}" for one in power.missed), ""]
    return page(lines, summary(power))


def _page(power: NarrowPower) -> power_html.PowerPage:
    scores = []
    for judged, of in _grouped(power.outcomes, lambda one: one.judged).items():
        hidden = sum(bool(not one.rejected and one.reason) for one in of)
        scores.append(
            power_html.Score(
                name=f"judged by {judged}", part=sum(one.rejected for one in of),
                of=len(of) - hidden, note=f"{hidden:,} more have no visible effect",
            )
        )  # fmt: skip
    missed = len(power.missed)
    sections = []
    for name, of in _grouped(power.outcomes, lambda one: one.subject.partition("/")[0]).items():
        rejected, hidden = sum(one.rejected for one in of), sum(bool(one.reason) for one in of)
        sections.append(
            power_html.Section(
                name=clean(name),
                counts=f"{rejected:,} of {len(of) - hidden:,} roundings rejected",
                mutants=tuple(_mutant(one) for one in of if not one.rejected),
            )
        )
    total = len(power.outcomes)
    headline = f"{plural(missed, 'rounding')} of {total:,} missed"
    return power_html.PowerPage(
        command="gradcheck power --narrow",
        headline=headline if missed else "every rounding that has a visible effect is rejected",
        passed=power.sound,
        facts=suite_of(power),
        scores=tuple(scores),
        sections=tuple(sections),
        tables=(
            power_html.Table(
                title="Roundings by type", heads=_HEADS, rows=tuple(map(tuple, _totals(power)))
            ),
        ),
        summary=summary(power),
    )


def _grouped(
    outcomes: Iterable[Outcome], key: Callable[[Outcome], str]
) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(key(one), []).append(one)
    return groups


def _mutant(one: Outcome) -> power_html.Mutant:
    """A rounding that is not rejected."""
    return power_html.Mutant(
        name=clean(f"{one.subject.partition('/')[2]} {one.what}".strip()),
        state="equivalent" if one.reason else "survived",
        says=clean(f"Rounded to {_title(one.type)} in {one.dtype}, judged by {one.judged}."),
        label=_title(one.type),
        note=clean(one.reason),
    )


def _by_operator(outcomes: Sequence[Outcome]) -> str:
    rows: dict[tuple[str, str], dict[str, list[Outcome]]] = {}
    for one in outcomes:
        what = one.what if one.what in WHAT else OPERANDS
        key = one.subject.partition("/")[0], one.dtype
        rows.setdefault(key, {}).setdefault(what, []).append(one)
    cells = [
        [code(clean(op)), dtype, *(_letters(found.get(what, [])) for what in WHAT)]
        for (op, dtype), found in rows.items()
    ]
    return table(("operator", "dtype", *WHAT), cells)


def _letters(found: Sequence[Outcome]) -> str:
    out = ""
    for title, letter in LETTERS.items():
        mine = [one for one in found if _title(one.type) == title]
        if any(one.rejected for one in mine):
            out += letter if all(one.rejected for one in mine) else letter.lower()
    return out or "–"


def _by_model(outcomes: Sequence[Outcome]) -> str:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for one in outcomes:
        model = one.subject.partition("/")[0]
        near = TOLERANCE in one.reason
        seen = (
            "rejected" if one.rejected else "near" if near else "none" if one.reason else "missed"
        )
        counts[model, one.dtype, one.judged, seen] += 1
    keys = dict.fromkeys(key[:3] for key in counts)
    heads = ("model", "dtype", "judged by", "rejected", TOLERANCE, "changes nothing", "missed")
    kinds = ("rejected", "near", "none", "missed")
    rows = [
        [code(clean(key[0])), *key[1:], *(f"{counts[(*key, kind)]:,}" for kind in kinds)]
        for key in keys
    ]
    return table(heads, rows)


def _reasons(outcomes: Iterable[Outcome]) -> list[str]:
    """One line per reason, numbers apart: how often, and of what."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for one in outcomes:
        if not one.rejected and one.reason:
            groups.setdefault((one.judged, NUMBER.sub("#", one.reason)), []).append(one)
    lines = []
    for (judged, _), found in sorted(groups.items(), key=lambda item: -len(item[1])):
        named = dict.fromkeys(f"{one.subject} {one.what}" for one in found)
        text = f"{judged}, {plural(len(found), 'rounding')}: {found[0].reason}"
        lines += [
            f"- {in_markdown(clean(text))}",
            f"  <details><summary>{plural(len(named), 'place')}</summary>",
        ]
        lines += [f"  {', '.join(code(clean(name)) for name in named)}</details>"]
    return lines


def _named(one: Outcome) -> str:
    return clean(f"{one.subject}, {one.what} rounded to {one.type}, in {one.dtype} ({one.judged})")


def _title(kind: str) -> str:
    return "TF32" if kind == "tf32" else kind


def _plain(power: NarrowPower) -> dict[str, object]:
    return {
        "suite": power.suite,
        "suite_version": power.suite_version,
        "seed": power.seed,
        "sound": power.sound,
        "outcomes": [one._asdict() for one in power.outcomes],
    }
