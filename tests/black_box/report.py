"""What was said of the corpus, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .corpus import corpus, missing
from .judged import Judged

ENOUGH = 0.995
"""The part of the wrong ones that has to be rejected."""
REFUSED = "50 digits cannot decide"
"""A part of the reason, where a forward cannot be evaluated in 50 digits."""
STAIRS = "is a staircase or a table"
"""The same, where forward's values stand on stairs."""
WORDS = ("PASS", "INCONCLUSIVE", "FAIL", "REFUSED")
"""What a right one may be called; everything else is counted as `other`."""


def accepted(judged: Sequence[Judged]) -> bool:
    """No right one is a FAIL or worse, and enough of the wrong ones are rejected."""
    right = [j for j in judged if not j.error]
    wrong = [j for j in judged if j.error]
    held = all(j.verdict in ("PASS", "INCONCLUSIVE", "REFUSED") for j in right)
    passed = sum(j.verdict == "PASS" for j in wrong)
    return held and passed <= (1 - ENOUGH) * len(wrong)


def report(judged: Sequence[Judged]) -> str:
    """What became of the right and the wrong, per kind and dtype, and each that is amiss."""
    right = [j for j in judged if not j.error]
    wrong = [j for j in judged if j.error]
    lines = [
        "# `check` at hard points",
        "",
        "Made by `tox -e black-box`. Each pair is a forward and its right VJP, verified without",
        "gradcheck (`python -m tests.black_box --verify`); the wrong ones are made of it.",
        "",
        f"{len(corpus())} pairs; left out for want of a framework: {', '.join(missing()) or '-'}.",
        "",
        *_summary(right, wrong),
    ]
    for title, full in (("By projection", False), ("In full", True)):
        part = [j for j in right if j.full is full]
        if part:
            lines += [f"## Right: {title[0].lower()}{title[1:]}", "", *_right(part), ""]
    if wrong:
        lines += ["## Wrong", "", *_wrong(wrong), ""]
    lines += ["## Right, and not PASS", "", *_listed(j for j in right if j.verdict != "PASS"), ""]
    if wrong:
        lines += ["## Wrong, and PASS", "", *_listed(j for j in wrong if j.verdict == "PASS"), ""]
        other = [j for j in wrong if j.verdict not in ("PASS", "FAIL", "REFUSED")]
        lines += ["## Wrong, and neither PASS nor FAIL", "", *_listed(other), ""]
    return "\n".join(lines)


def _summary(right: Sequence[Judged], wrong: Sequence[Judged]) -> list[str]:
    lines = []
    if right:
        failed = sum(j.verdict == "FAIL" for j in right)
        wide = [j for j in right if j.dtype == "float64" and REFUSED not in j.reason]
        smooth = [j for j in wide if STAIRS not in j.reason]
        open_ = sum(j.verdict != "PASS" for j in smooth)
        share = 100 * open_ / max(len(smooth), 1)
        lines += [
            f"- Right: {failed} FAIL of {len(right)} checks. In float64, where 50 digits do not",
            f"  refuse, {open_} of {len(smooth)} checks do not PASS ({share:.2f}%). Beside them",
            f"  stand {len(wide) - len(smooth)} checks of a staircase's slope from afar: these are",
            "  INCONCLUSIVE, and named as what a straight-through estimator gives.",
        ]
    if wrong:
        passed = sum(j.verdict == "PASS" for j in wrong)
        failed = sum(j.verdict == "FAIL" for j in wrong)
        share = 100 - 100 * passed / len(wrong)
        single = sum("1% off" in j.error for j in wrong)
        lines += [
            f"- Wrong: {failed} FAIL and {passed} PASS of {len(wrong)} checks; "
            f"{share:.3f}% are rejected.",
            f"  In {single} of them one element alone is 1% off.",
        ]
    return [*lines, ""]


def _right(judged: Sequence[Judged]) -> list[str]:
    lines = [
        "| kind | dtype | checks | PASS | INCONCLUSIVE | FAIL | REFUSED | other | seconds |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (kind, dtype), some in _grouped(judged):
        counts = Counter(j.verdict for j in some)
        cells = [counts[w] for w in WORDS]
        cells.append(len(some) - sum(cells))
        seconds = sum(j.seconds for j in some)
        lines.append(
            f"| {kind} | {dtype} | {len(some)} | {' | '.join(map(str, cells))} | {seconds:.1f} |"
        )
    return lines


def _wrong(judged: Sequence[Judged]) -> list[str]:
    lines = [
        "| error | dtype | checks | FAIL | INCONCLUSIVE | PASS | REFUSED | other | rejected |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (error, dtype), some in _grouped(judged, by="error"):
        counts = Counter(j.verdict for j in some)
        cells = [counts[w] for w in ("FAIL", "INCONCLUSIVE", "PASS", "REFUSED")]
        cells.append(len(some) - sum(cells))
        asked = len(some) - counts["REFUSED"]
        share = f"{100 * (asked - counts['PASS']) / asked:.2f}%" if asked else "–"
        lines.append(
            f"| {error} | {dtype} | {len(some)} | {' | '.join(map(str, cells))} | {share} |"
        )
    return lines


def _grouped(
    judged: Iterable[Judged], by: str = "kind"
) -> list[tuple[tuple[str, str], list[Judged]]]:
    groups: dict[tuple[str, str], list[Judged]] = {}
    for dtype in ("float64", "float32"):
        every: dict[tuple[str, str], list[Judged]] = {}
        for j in judged:
            if j.dtype == dtype:
                key = j.kind if by == "kind" else _class(j.error)
                every.setdefault((key, dtype), []).append(j)
                every.setdefault(("**all**", dtype), []).append(j)
        groups |= {k: v for k, v in every.items() if k[0] != "**all**"}
        groups |= {k: v for k, v in every.items() if k[0] == "**all**"}
    return list(groups.items())


def _class(error: str) -> str:
    """What is wrong, without the place."""
    for word in ("1% off", "zeroed", "dropped", "transposed"):
        if word in error:
            return word
    return error


def _listed(judged: Iterable[Judged]) -> list[str]:
    """One line per pair, dtype and verdict: in which modes and seeds, and the first reason."""
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for j in judged:
        groups.setdefault((j.kind, j.name, _class(j.error), j.dtype, j.verdict), []).append(j)
    if not groups:
        return ["None."]
    lines = ["| pair | error | dtype | verdict | in | reason |", "|---|---|---|---|---|---|"]
    for (kind, name, error, dtype, verdict), some in groups.items():
        modes = sorted({"full" if j.full else "projection" for j in some})
        reason = some[0].reason.replace("|", "\\|")[:300]
        where = f"{', '.join(modes)} ({len(some)})"
        title = f"{kind}/{name}".replace("|", "\\|")
        lines.append(f"| {title} | {error} | {dtype} | {verdict} | {where} | {reason} |")
    return lines
