"""A failure as it is told: why it is wrong in the first line, what that rests on below.

What several results of one gradient have in common is said with the first of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_words
from gradcheck.results import words
from gradcheck.results.verdict import Verdict
from gradcheck.spec.label import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Diagnosis

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
    facts = failure_words.facts(result)
    if found is None:
        return Told(result=result, word="", text=reason, facts=tuple(facts))
    # A property's reason holds its witness already.
    evidence = [text for text in map(words.clean, found.evidence) if text and text not in reason]
    if not found.word:
        pattern = ("pattern", "; ".join(["none known", *evidence]))
        return Told(result=result, word="", text=reason, facts=(pattern, *facts))
    behind = [("reason", reason)] if reason else []
    behind += [("evidence", text) for text in evidence]
    return Told(
        result=result, word=found.word, text=words.clean(found.says), facts=(*behind, *facts)
    )


def _again(result: CaseResult) -> Told:
    """What is said of a result whose diagnosis has been told."""
    named, reason = result.finding.defect, words.clean(result.finding.reason)
    facts = failure_words.facts(result)
    if not named:
        return Told(result=result, word="", text=reason, facts=tuple(facts))
    counted = failure_words.extent(result.finding).partition(";")[0]
    told_below = counted and reason.startswith(counted)  # "failed: 3 of 24 elements; …"
    behind = [("reason", reason)] if reason and not told_below else []
    return Told(result=result, word=f"{named}, as above", text="", facts=(*behind, *facts))


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
