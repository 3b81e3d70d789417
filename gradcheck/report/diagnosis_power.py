"""How well mutants are diagnosed, in every format.

Those of the held-out third are listed in JSON only, so that no rule is written for them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from gradcheck.power.diagnosed_mutant import FEW
from gradcheck.power.diagnosis import TYPED, Tally, confusion
from gradcheck.report import power_html
from gradcheck.report.marked import code
from gradcheck.report.page import Page, grid, span, wrapped_table
from gradcheck.report.power_page import facts
from gradcheck.report.prose import escape, in_markdown
from gradcheck.results.words import clean, plural, share
from gradcheck.spec.defect import LABELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck.power.diagnosed_mutant import Named, NamedNarrow
    from gradcheck.power.diagnosis import Diagnosed

UNNAMED: Final = "none"
"""What tables call a mutant without a diagnosis, and a rule that found nothing."""
LISTED: Final = 40
"""Wrong diagnoses that the terminal spells out."""
HEADS: Final = (
    "right", "wrong", "unnamed", "held out: right", "wrong", "unnamed", "right of all",
)  # fmt: skip
NARROW: Final = ("type named", "wrong", "unnamed", "right of all")
OFF: Final = ("mutant", "class", "what is wrong with it", "label given", "rule", "diagnosis")


def render(found: Diagnosed, format: str, *, width: int = 100) -> str:
    """The score in one of `FORMATS`, ending in a newline."""
    if format == "json":
        return json.dumps(_plain(found), indent=1) + "\n"
    if format == "html":
        return power_html.render(_page(found))
    return _markdown(found) if format == "markdown" else _terminal(found, width)


def summary(found: Diagnosed) -> str:
    """The last line, for a script to read."""
    whole, unseen = Tally.of(found.named), Tally.of(found.held_out)
    line = (
        f"POWER {'pass' if found.sound else 'fail'} diagnosed={whole.right}/{whole.all} "
        f"wrong={whole.wrong} unnamed={whole.unnamed} "
        f"held_out={unseen.right}/{unseen.all} held_out_wrong={unseen.wrong}"
    )
    if found.black_box:
        return f"{line} passed={found.passed}"
    return (
        f"{line} small={found.few}/{len(found.small)} "
        f"narrow={Tally.of(found.narrow).right}/{len(found.narrow)} "
        f"narrow_wrong={Tally.of(found.narrow).wrong}"
    )


# ── what goes where ──────────────────────────────────────────────────────────────────────────


def _row(named: Iterable[Named]) -> list[str]:
    """Counts of the development part, then of the third held out; a share of both."""
    every = [*named]
    seen, unseen = (Tally.of(o for o in every if o.held_out is held) for held in (False, True))
    counts = (n for t in (seen, unseen) for n in (t.right, t.wrong, t.unnamed))
    return [*(f"{count:,}" for count in counts), _share(seen.right + unseen.right, len(every))]


def _share(part: int, of: int) -> str:
    return f"{part / of:.1%}" if of else "–"


def _table(found: Diagnosed, what: str) -> list[list[str]]:
    keys = {"class": _class, "rule": _rule, "family": lambda one: one.family}
    rows = [[clean(name), *_row(of)] for name, of in found.by(keys[what])]
    return [*rows, ["all", *_row(found.named)]]


def _class(one: Named) -> str:
    label = one.labels[0]
    return f"{label} {LABELS[label].word}"


def _rule(one: Named) -> str:
    return one.first.rule if one.first else UNNAMED


def _confused(found: Diagnosed) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: a class per row, the label given per column."""
    counts = confusion(found.named)
    given = [label for label in (*LABELS, "") if any(got == label for _, got in counts)]
    rows = [
        [label, *(f"{counts[label, got] or ''}" for got in given)]
        for label in LABELS
        if any(true == label for true, _ in counts)
    ]
    return ["class", *(label or UNNAMED for label in given)], rows


def _wrong(found: Diagnosed) -> list[list[str]]:
    return [
        [
            f"{one.op}/{one.name}",
            " ".join(one.labels),
            one.says,
            one.first.label,
            one.first.rule,
            one.first.says,
        ]
        for one in found.development
        if one.verdict == "wrong" and one.first is not None
    ]


def _state(found: Diagnosed) -> str:
    if not found.complete:
        return "incomplete: the run stopped early"
    whole = Tally.of(found.named)
    without = " without a spec" if found.black_box else ""
    return (
        f"{share(whole.right, whole.all, 'mutant')} named rightly{without} "
        f"({_share(whole.right, whole.all)}), {whole.wrong:,} wrongly "
        f"({_share(whole.wrong, whole.all)})" + ("" if found.sound else ": NOT SOUND")
    )


def _exact(found: Diagnosed) -> str:
    """How many are named by their first class; of each third, how many rightly and wrongly."""
    whole, seen, unseen = (
        Tally.of(some) for some in (found.named, found.development, found.held_out)
    )
    return (
        f"{whole.exact:,} ({_share(whole.exact, whole.all)}) by the class written first. "
        f"Development: {_share(seen.right, seen.all)} rightly, {_share(seen.wrong, seen.all)} "
        f"wrongly. Held out: {_share(unseen.right, unseen.all)} rightly, "
        f"{_share(unseen.wrong, unseen.all)} wrongly"
    )


def _small(found: Diagnosed) -> str:
    """How few elements the failures that were made small need."""
    before, after = (
        sum(sizes) for sizes in zip(*((s.before, s.after) for s in found.small), strict=True)
    )
    count = len(found.small)
    return (
        f"{found.few:,} of {plural(count, 'failure')} ({_share(found.few, count)}): shown by at "
        f"most {FEW} elements of all primals together; on average {after / count:.1f}, where the "
        f"samples have {before / count:.1f}"
    )


def _typed(found: Diagnosed) -> str:
    tally = Tally.of(found.narrow)
    return (
        f"{tally.right:,} of {plural(tally.all, 'mutant')} with narrow numbers are named by their "
        f"type ({_share(tally.right, tally.all)}), {tally.wrong:,} wrongly "
        f"({_share(tally.wrong, tally.all)})" + ("" if found.typed else ": NOT SOUND")
    )


def _narrow(found: Diagnosed) -> list[list[str]]:
    groups: dict[str, list[NamedNarrow]] = {}
    for one in found.narrow:
        groups.setdefault(one.place, []).append(one)
    for one in found.narrow:
        groups.setdefault(f"{one.type} in {one.dtype}", []).append(one)
    return [[name, *_counts(of)] for name, of in groups.items()]


def _counts(narrow: Sequence[NamedNarrow]) -> list[str]:
    tally = Tally.of(narrow)
    counts = (tally.right, tally.wrong, tally.unnamed)
    return [*(f"{count:,}" for count in counts), _share(tally.right, tally.all)]


def _hidden(found: Diagnosed) -> str:
    hidden = Tally.of(found.held_out).wrong
    return (
        f"{plural(hidden, 'mutant')} of the third held out named wrongly: counted only, so that "
        "no rule is written for them; JSON lists them"
    )


# ── the formats ──────────────────────────────────────────────────────────────────────────────


def _terminal(found: Diagnosed, width: int) -> str:
    page = Page(color=False, width=width)
    blocks = [facts(found)]
    for what in ("class", "rule", "family"):
        heads, rows = (what, *HEADS), _table(found, what)
        lines = grid(heads, rows, len(HEADS))
        align = ["left", *["right"] * len(HEADS)]
        text = "\n".join(lines)
        if span(lines) > width:
            text = wrapped_table(heads, rows, width, align, spare=HEADS[:3])
        blocks.append(text)
    wrong = [[clean(text) for text in row] for row in _wrong(found)]
    lines = [
        line
        for name, classes, says, given, rule, text in wrong[:LISTED]
        for line in page.wrap(
            f"{name} ({classes}: {says.rstrip('.')}): {given}, by {rule}: {text}", "", "  "
        )
    ]
    if len(wrong) > LISTED:
        more = plural(len(wrong) - LISTED, "more mutant")
        lines += [f"… and {more} named wrongly; write them all into a file with -o"]
    lines += page.wrap(_hidden(found), "", "  ") if Tally.of(found.held_out).wrong else []
    lines += [clean(trouble) for trouble in found.troubles]
    blocks += ["\n".join(lines)] if lines else []
    told = [f"{_state(found)}; {_exact(found)}", *([_small(found)] if found.small else [])]
    told += [_typed(found)] if found.narrow else []
    blocks += ["\n".join(page.wrap(line, "", "  ")) for line in told]
    return "\n\n".join([*blocks, summary(found)]) + "\n"


def _judged(found: Diagnosed) -> str:
    if not found.black_box:
        return "Each mutant is judged at the sample that must reject it."
    return (
        "Each mutant is judged by `gradcheck.check` at the sample that must reject it, from "
        "forward, the VJP, primals and attributes alone, without a spec. Not counted: "
        f"{plural(found.passed, 'mutant')} that `check` does not fail there (a subgradient chosen "
        "at a kink, another dtype)."
    )


def _markdown(found: Diagnosed) -> str:
    flags = "--diagnosis --black-box" if found.black_box else "--diagnosis"
    lines = [
        f"**gradcheck power {flags}: {_state(found)}**",
        "",
        f"{escape(facts(found))}. {_judged(found)} The diagnosis is compared "
        "with the classes listed for the mutant: the first, or another that also describes it. "
        "They were written before any rule of diagnosis. A third of the mutants, chosen by a hash "
        "of their names, is held out: no rule was written for one of them. "
        f"At least {found.bar.right:.0%} must be named rightly, at most {found.bar.wrong:.0%} "
        "wrongly.",
        "",
        f"{_exact(found)}.",
        "",
        *([f"{_small(found)}.", ""] if found.small else []),
        *(f"- {in_markdown(clean(trouble))}" for trouble in found.troubles),
    ]
    for what in ("class", "rule", "family"):
        rows = [[escape(cell) for cell in row] for row in _table(found, what)]
        lines += ["", *_grid((what, *HEADS), rows, right=len(HEADS))]
    heads, rows = _confused(found)
    lines += ["", f"Classes (rows) and the labels given (columns), of all {len(found.named):,}:"]
    lines += ["", *_grid(heads, rows, right=len(heads) - 1)]
    wrong = [
        [code(name), classes, in_markdown(clean(says)), given, code(rule), in_markdown(clean(text))]
        for name, classes, says, given, rule, text in _wrong(found)
    ]
    if wrong:
        title = f"{plural(len(wrong), 'mutant')} of the development part named wrongly"
        lines += ["", f"<details><summary>{title}</summary>", ""]
        lines += [*_grid(OFF, wrong), "", "</details>"]
    lines += ["", f"{_hidden(found)}."] if Tally.of(found.held_out).wrong else []
    if found.narrow:
        lines += [
            "",
            f"{_typed(found)}. They are made from the specs, and none is held out; at least "
            f"{TYPED:.0%} must be named by the type that something is rounded to.",
        ]
        lines += ["", *_grid(("narrow", *NARROW), _narrow(found), right=len(NARROW))]
    return "\n".join([*lines, "", f"`{summary(found)}`\n"])


def _page(found: Diagnosed) -> power_html.PowerPage:
    whole, unseen = Tally.of(found.named), Tally.of(found.held_out)
    scores = [
        power_html.Score(name="mutants named rightly", part=whole.right, of=whole.all,
                         passed=found.sound,
                         note=f"{whole.wrong:,} wrongly, {whole.unnamed:,} not at all"),
        power_html.Score(name="of those held out", part=unseen.right, of=unseen.all,
                         passed=found.sound,
                         note=f"{unseen.wrong:,} wrongly; no rule was written for them"),
    ]  # fmt: skip
    if found.narrow:
        typed = Tally.of(found.narrow)
        scores.append(power_html.Score(name="roundings named by type", part=typed.right,
                                       of=typed.all, note=f"{typed.wrong:,} wrongly"))  # fmt: skip
    heads, rows = _confused(found)
    return power_html.PowerPage(
        command=f"gradcheck power --diagnosis{' --black-box' if found.black_box else ''}",
        headline=_state(found),
        passed=found.sound,
        facts=facts(found),
        scores=tuple(score for score in scores if score.of),
        problems=tuple(map(clean, found.troubles)),
        grids=(
            power_html.Grid(
                title="Classes (rows) and labels given (columns)",
                corner="class",
                columns=tuple(_named(label) for label in heads[1:]),
                rows=tuple(
                    (_named(label)[0], tuple(_confusion(label, *pair)
                                  for pair in zip(heads[1:], counts, strict=True)))
                    for label, *counts in rows
                ),
                linked=False,
            ),
        ),
        tables=(
            *(power_html.Table(title=f"By {what}", heads=(what, *HEADS),
                               rows=tuple(map(tuple, _table(found, what))))
              for what in ("class", "rule", "family")),
            power_html.Table(title="Named wrongly, of those that rules were written for",
                             heads=OFF,
                             rows=tuple(tuple(map(clean, row)) for row in _wrong(found))),
        ),
        summary=summary(found),
    )  # fmt: skip


def _named(label: str) -> tuple[str, str]:
    """A class's word, and what belongs to it."""
    return (LABELS[label].word, LABELS[label].says) if label in LABELS else (label, "")


def _confusion(label: str, given: str, count: str) -> power_html.Cell:
    tone = "" if not count else "good" if given == label else "warn"
    return power_html.Cell(text=count, tone=tone)


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]], right: int = 0) -> list[str]:
    align = ["---"] * (len(heads) - right) + ["---:"] * right
    return [f"| {' | '.join(cells)} |" for cells in (heads, align, *rows)]


def _plain(found: Diagnosed) -> dict[str, Any]:
    whole, unseen = Tally.of(found.named), Tally.of(found.held_out)
    return {
        "version": found.version,
        "suite": found.suite,
        "suite_version": found.suite_version,
        "seed": found.seed,
        "part": asdict(found.part),
        "complete": found.complete,
        "troubles": list(found.troubles),
        "black_box": found.black_box,
        "passed": found.passed,
        "sound": found.sound,
        "all": asdict(whole),
        "held_out": asdict(unseen),
        "mutants": [_told(one) for one in found.named],
        "narrow": [_told_narrow(one) for one in found.narrow],
    }


def _told_narrow(one: NamedNarrow) -> dict[str, Any]:
    return {
        "op": one.op,
        "family": one.family,
        "name": one.name,
        "dtype": one.dtype,
        "what": one.what,
        "type": one.type,
        "verdict": one.verdict,
        "diagnoses": {name: asdict(diagnosis) for name, diagnosis in one.found},
    }


def _told(one: Named) -> dict[str, Any]:
    return {
        "op": one.op,
        "family": one.family,
        "name": one.name,
        "says": one.says,
        "classes": list(one.labels),
        "held_out": one.held_out,
        "verdict": one.verdict,
        "label": one.first.label if one.first else "",
        "rule": one.first.rule if one.first else "",
        "small": None if one.small is None else asdict(one.small),
        "diagnoses": {name: asdict(diagnosis) for name, diagnosis in one.found},
    }
