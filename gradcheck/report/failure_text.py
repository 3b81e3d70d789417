"""A failure as it is told: why it is wrong in the first line, what that rests on below.

What several results of one gradient have in common is said with the first of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.report import heat, plots
from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Diagnosis, Finding, Miss, Part
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import (
    clean,
    command,
    gradient,
    multiple,
    number,
    plural,
    position,
    relative,
    subject,
)
from gradcheck.spec.defect import UNKNOWN

UNASKED: Final = "not diagnosed"
"""What stands for those of which nothing is known, beside others that have a diagnosis."""
NAMED: Final = 3
"""Diagnoses that a tally spells out, of those that were not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is said of one result: `word` and `text` behind its title, `facts` below.

    `word` is that of its class of defects; empty where that is not known.
    """

    result: CaseResult
    word: str
    text: str
    facts: tuple[tuple[str, str], ...]

    @property
    def lead(self) -> str:
        """What the first line says behind the title."""
        return ": ".join(filter(None, (self.word, self.text)))


def told(results: Iterable[CaseResult]) -> Iterator[Told]:
    """What is said of each of several results of one gradient; a diagnosis is said once."""
    seen: set[tuple[str, str]] = set()
    for result in results:
        key = _key(result)
        yield _again(result) if key in seen else alone(result)
        seen.update({key} if key is not None else ())


def alone(result: CaseResult) -> Told:
    """What is said of a result that stands by itself."""
    found, reason = result.finding.diagnosis, words.clean(result.finding.reason)
    pairs = facts(result)
    if found is None:
        return Told(result=result, word="", text=reason, facts=tuple(pairs))
    # A property's reason holds its witness already.
    evidence = [text for text in map(words.clean, found.evidence) if text and text not in reason]
    if not found.word:
        pattern = ("pattern", "; ".join(["none known", *evidence]))
        return Told(result=result, word="", text=reason, facts=(pattern, *pairs))
    behind = [("reason", reason)] if reason else []
    behind += [("evidence", text) for text in evidence]
    return Told(
        result=result, word=found.word, text=words.clean(found.says), facts=(*behind, *pairs)
    )


def _again(result: CaseResult) -> Told:
    """What is said of a result whose diagnosis has been told."""
    named, reason = result.finding.defect, words.clean(result.finding.reason)
    pairs = facts(result)
    if not named:
        return Told(result=result, word="", text=reason, facts=tuple(pairs))
    counted = extent(result.finding).partition(";")[0]
    told_below = counted and reason.startswith(counted)  # "failed: 3 of 24 elements; …"
    behind = [("reason", reason)] if reason and not told_below else []
    return Told(result=result, word=f"{named}, as above", text="", facts=(*behind, *pairs))


def _key(result: CaseResult) -> tuple[str, str] | None:
    found = result.finding.diagnosis
    return None if found is None else (found.word, found.says)


def paragraph(result: CaseResult) -> str:
    """One result in full: what is wrong in the first line, the facts below."""
    return "\n".join(lines(alone(result)))


def lines(said: Told) -> list[str]:
    """A result in full, as plain text."""
    result = said.result
    title = f"{words.word(result.finding.verdict)} {words.title(result)}"
    first = f"{title}: {said.lead}" if said.lead else title
    return [first, *(f"  {label}: {text}" for label, text in said.facts)]


def brief(result: CaseResult) -> str:
    """A result's reason behind the word of its class: what one line of a table can hold."""
    return ": ".join(filter(None, (result.finding.defect, words.clean(result.finding.reason))))


def distinct(results: Iterable[CaseResult]) -> list[Diagnosis]:
    """The diagnoses of several results of one gradient, each once, in their order."""
    found: dict[tuple[str, str], Diagnosis] = {}
    for result in results:
        if (key := _key(result)) is not None and result.finding.diagnosis is not None:
            found.setdefault(key, result.finding.diagnosis)
    return list(found.values())


def differ(results: Sequence[CaseResult]) -> bool:
    """Whether not all of them have the same diagnosis, or all none."""
    return len({_key(result) for result in results}) > 1


def named(results: Sequence[CaseResult]) -> str:
    """The class of several results of one gradient, or how many are of which; empty without one."""
    return counts(results) if differ(results) else results[0].finding.defect if results else ""


def counts(results: Sequence[CaseResult], shown: Sequence[CaseResult] = ()) -> str:
    """How many results have which diagnosis; those that are not among the `shown` in words.

    >>> counts([])
    ''
    """
    before = {_key(result) for result in shown}
    found = Counter(_key(result) for result in results)
    new = [key for key in found if key is not None and key[0] and key not in before][:NAMED]
    merged: Counter[str] = Counter()
    for key, count in found.items():
        name = UNASKED if key is None else key[0] or UNKNOWN
        says = f" ({words.clean(key[1])})" if shown and key in new and key is not None else ""
        merged[name + says] += count
    return ", ".join(f"{count:,} {name}" for name, count in merged.items())


def tally(results: Iterable[CaseResult]) -> str:
    """How many results have which verdict."""
    found = Counter(result.finding.verdict for result in results)
    return ", ".join(f"{found[v]:,} {words.word(v)}" for v in Verdict if v in found)


def rest(results: Sequence[CaseResult], shown: Sequence[CaseResult]) -> str:
    """How many more there are beside the `shown`; where diagnoses differ, of which."""
    text = tally(results)
    return f"{text}: {counts(results, shown)}" if differ([*results, *shown]) else text


DESIGNED: Final = "designed to catch"
"""The label of what a sample was made for."""
ALONG: Final = "along d"
"""What stands for an index where a whole gradient was compared along a direction d."""


def place(finding: Finding, miss: Miss) -> str:
    """The element that was compared, of the gradient to which it belongs; of training a step."""
    if finding.part is Part.TRAINING:
        return spot(finding, miss)
    name = gradient(miss.tensor) if miss.tensor else subject(finding.name, finding.part)
    return f"{name} {ALONG}" if projected(finding) else name + spot(finding, miss)


def spot(finding: Finding, miss: Miss) -> str:
    """Where in a gradient the element is; of training, at which step and what moved."""
    if finding.part is Part.TRAINING:
        alone = f", {clean(miss.tensor)} alone" if miss.tensor else ""
        return f"step {', '.join(map(str, miss.index))}{alone}"
    return ALONG if projected(finding) else position(miss.index)


def projected(finding: Finding) -> bool:
    """Whether a gradient was compared along a direction only, and not element by element."""
    return bool(finding.evaluations and finding.top is not None and not finding.top.index)


def values(miss: Miss, most: int = 17) -> tuple[str, str]:
    """What was got and what was wanted, in as many digits as it takes to see them differ.

    Args:
        miss: the element.
        most: significant digits at most; there are 6 at least.
    """
    if miss.got == miss.want:
        return number(miss.got, 6), number(miss.want, 6)
    digits = 6
    while digits < most and number(miss.got, digits) == number(miss.want, digits):
        digits += 1
    # One more digit, to see by how much.
    digits = min(digits + 1, most) if digits > 6 else digits
    return number(miss.got, digits), number(miss.want, digits)


def bar(miss: Miss) -> str:
    """The error bar of what was wanted."""
    return f"± {number(miss.error_bar, 2)}"


def is_known(miss: Miss) -> bool:
    """Whether anything is known of what was wanted: an infinite error bar says that nothing is."""
    return not math.isinf(miss.error_bar)


def wanted(miss: Miss, *, bars: bool = True) -> str:
    """The value returned and the one expected, with its uncertainty unless `bars` is False."""
    got, want = values(miss)
    if not is_known(miss):
        return f"got {got}, the true value is not known"
    return f"got {got}, expected {want}{f' {bar(miss)}' if bars else ''}"


def errors(miss: Miss) -> str:
    """An error in four units: relative, ulp, multiples of the tolerance and of the uncertainty."""
    if not math.isfinite(miss.error) or not is_known(miss):
        return ""
    parts = []
    ratios = relative(miss)
    if ratios is not None:
        parts.append(f"{number(ratios[0])} relative")
    if miss.ulp is not None:
        parts.append(f"{number(miss.ulp)} ulp")
    for unit, name in ((miss.bound, "tolerance"), (miss.error_bar, "uncertainty")):
        times = multiple(miss.error, unit)
        if times:
            parts.append(f"{times} × {name}")
    return ", ".join(parts)


def extent(finding: Finding) -> str:
    """How many of how many elements failed, and under which cotangent the worst one did."""
    if not finding.compared:
        return ""
    text = f"{finding.failed:,} of {plural(finding.compared, 'element')}"
    if finding.unresolved:
        text += f", {finding.unresolved:,} unresolved"
    if finding.top is not None and finding.top.cotangent:
        text += f"; the worst {_among(finding.part)}{clean(finding.top.cotangent)}"
    return text


def _among(part: Part) -> str:
    """What the name of a cotangent follows; steps and sequences of them say it themselves."""
    return "at " if part in (Part.UPDATE, Part.TRAINING) else "with cotangent "


def facts(result: CaseResult) -> list[tuple[str, str]]:
    """What is known about a result, as (label, text) pairs; the last says how to rerun it."""
    finding, pairs = result.finding, []
    top = finding.top
    if top is not None:
        pairs += [
            ("worst", f"{place(finding, top)} {wanted(top)}"),
            ("error", errors(top)),
        ]
    pairs += [("failed", extent(finding)), ("where", where(finding))]
    if finding.evaluations or finding.verdict is Verdict.INCONCLUSIVE:
        pairs.append(("visible", visible(finding)))
    if finding.taylor is not None:
        pairs.append(("taylor", plots.taylor_says(finding.taylor)))
    pairs += [(DESIGNED, clean(result.case.hunts)), ("run", command(result.repro))]
    return [(label, text) for label, text in pairs if text]


def where(finding: Finding) -> str:
    """Which part of a gradient is wrong under the worst cotangent; empty where that is long.

    A diagnosis says it in its own way.
    """
    named = finding.diagnosis is not None and finding.diagnosis.label
    if named or finding.verdict.expected or finding.top is None:
        return ""
    name = (
        gradient(finding.top.tensor) if finding.top.tensor else subject(finding.name, finding.part)
    )
    return ", ".join(name + part for part in heat.slices(finding.heat))


def visible(finding: Finding) -> str:
    """How small an error the check would have seen, and what it cost to look."""
    least = finding.smallest_visible_error
    if least is None:
        return ""
    if not finding.evaluations:
        return f"a relative error of {number(least)} or more"
    cost = plural(finding.evaluations, "forward evaluation")
    return f"an error of {number(least)} of a typical element or more; {cost}"
