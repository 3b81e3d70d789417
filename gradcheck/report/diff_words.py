"""The wording that all reports of a difference share, and what goes where in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.report import failure_text, run_words
from gradcheck.results import words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.diff.change import Change, Diff, Mark, Side
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

TOLD: Final = (Mark.NEWLY_CRASHING, Mark.NEWLY_FAILING, Mark.ERROR_GREW, Mark.OTHERWISE)
"""Marks whose results are told one by one; of the others, so is what fails now."""
NAMED: Final = 6
"""Gradients that a line names."""
TWO: Final = {
    Mark.NEWLY_CRASHING: "only B crashes",
    Mark.NEWLY_FAILING: "only B fails",
    Mark.ERROR_GREW: "B is further off",
    Mark.SUPPORT_LOST: "only A is checked",
    Mark.REMOVED: "only A has it",
    Mark.OTHERWISE: "they fail differently",
    Mark.ADDED: "only B has it",
    Mark.SUPPORT_GAINED: "only B is checked",
    Mark.IMPROVED: "A is further off",
    Mark.FIXED: "only A fails",
    Mark.STILL_FAILING: "both fail",
}
"""What the marks say of two implementations."""
GOOD: Final = (Mark.FIXED, Mark.IMPROVED, Mark.SUPPORT_GAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Entries of one mark about one gradient of one operator's dialect, in their order.

    `worse` says whether one of them is. All properties of a contract are one group.
    """

    mark: Mark
    op: str
    dialect: str
    subject: str
    implementation: str
    worse: bool
    entries: tuple[Change, ...]

    @property
    def title(self) -> str:
        """Which gradient it is."""
        return f"{words.clean(f'{self.op}/{self.dialect}')} · {self.subject}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """Entries of one mark that have one reason, or none, in common."""

    mark: Mark
    reason: str
    worse: bool
    gradients: Counter[tuple[str, str]]
    """Operator and dialect, and the gradient; of each, how many entries."""

    @property
    def count(self) -> int:
        """How many entries."""
        return self.gradients.total()


def title(diff: Diff, mark: Mark) -> str:
    """What a mark is called."""
    return TWO.get(mark, mark.value) if diff.two else mark.value


def tone(mark: Mark, *, worse: bool) -> str:
    """How a mark feels: "good", "bad" or "calm"."""
    return "bad" if worse else "good" if mark in GOOD else "calm"


def headline(diff: Diff) -> str:
    """What is worse, in a few words; else that nothing is."""
    if not diff.compared:
        return "nothing can be compared"
    bad = Counter(entry.mark for entry in diff.entries if entry.worse)
    if bad:
        return ", ".join(_counted(diff, mark, bad[mark]) for mark in Mark if bad[mark])
    if diff.changes:
        return "nothing is worse"
    return "no difference" if diff.two else "nothing changed"


def tally(diff: Diff) -> list[tuple[str, str]]:
    """What the headline does not say, as (tone, text) pairs: all else, and how much is the same."""
    rest = Counter(entry.mark for entry in diff.entries if not entry.worse)
    pairs = [
        (tone(mark, worse=False), _counted(diff, mark, rest[mark])) for mark in Mark if rest[mark]
    ]
    return [*pairs, ("calm", f"alike: {diff.same:,}" if diff.two else f"{diff.same:,} as before")]


def _counted(diff: Diff, mark: Mark, count: int) -> str:
    text = title(diff, mark)
    return f"{text}: {count:,}" if diff.two else f"{count:,} {text}"


def names(diff: Diff) -> tuple[str, str]:
    """What the two sides are called."""
    return ("A", "B") if diff.two else ("old", "new")


def about(side: Side, names: Iterable[str]) -> str:
    """A run in one line: where it stands, whose code it judged, what came of it."""
    run = side.run
    parts = [side.name, ", ".join(names), f"{words.plural(run.footer.checked, 'check')}"]
    bad = sum(not r.finding.verdict.expected for r in run.results)
    if run.footer.checked:
        parts.append(f"{bad:,} did not pass" if bad else "all passed")
    if run.gate is not None:
        parts.append(f"baseline {run.gate.baseline}")
    if not run.complete:
        parts.append(f"incomplete: {run_words.incomplete(run)}")
    parts += run.troubles
    return words.clean(" · ".join(filter(None, parts)))


def context(diff: Diff) -> list[str]:
    """What else differs between the runs: versions, platform, seed, …; one text each."""
    first, second = diff.old.run.header, diff.new.run.header
    pairs = [
        ("gradcheck", first.version, second.version),
        ("suite", f"{first.suite} {first.suite_version}", f"{second.suite} {second.suite_version}"),
        ("cases", first.cases, second.cases),
        ("dtypes", ", ".join(first.dtypes), ", ".join(second.dtypes)),
        ("seed", str(first.seed), str(second.seed)),
        ("shard", first.shard or "none", second.shard or "none"),
        ("Python", first.python, second.python),
        ("NumPy", first.numpy, second.numpy),
        ("platform", first.platform, second.platform),
        *(
            (new, first.versions.get(old, ""), second.versions.get(new, ""))
            for old, new in diff.pairs.items()
            if old == new
        ),
    ]
    return [
        words.clean(f"{label} {old or 'unknown'} → {new or 'unknown'}")
        for label, old, new in pairs
        if old != new
    ]


def by_verdict(diff: Diff) -> str:
    """That baselines play no part; empty where there are none."""
    if diff.old.run.gate is None and diff.new.run.gate is None:
        return ""
    return "Compared by verdict: failures listed in a baseline (XFAIL) count as failures."


def told(diff: Diff, entry: Change) -> bool:
    """Whether an entry is told by itself, and not in a heap.

    Of two implementations neither is the right one: what only one of them gets wrong is told,
    whichever it is.
    """
    new = entry.new
    fails = (
        new is not None
        and not new.finding.verdict.expected
        and new.finding.verdict is not Verdict.NOTRUN
    )
    either = diff.two and entry.mark in (Mark.IMPROVED, Mark.FIXED)
    return entry.mark in TOLD or (entry.worse and fails) or either


def groups(diff: Diff) -> list[Group]:
    """What is told one by one, by gradient: what is worse first, then by mark."""
    found: dict[tuple[Mark, str, str, str, str], list[Change]] = {}
    for entry in diff.entries:
        if told(diff, entry):
            of = entry.of
            key = (entry.mark, of.case.implementation, of.case.op, of.case.dialect, _subject(of))
            found.setdefault(key, []).append(entry)
    made = [
        Group(
            mark=mark,
            op=op,
            dialect=dialect,
            subject=subject,
            implementation=implementation,
            worse=any(entry.worse for entry in entries),
            entries=tuple(entries),
        )
        for (mark, implementation, op, dialect, subject), entries in found.items()
    ]
    return sorted(made, key=lambda group: not group.worse)


def _subject(of: CaseResult) -> str:
    return (
        words.CONTRACT
        if of.finding.part is Part.CONTRACT
        else words.subject(of.finding.name, of.finding.part)
    )


def heaps(diff: Diff) -> list[Heap]:
    """What is told together, by mark and reason: what is worse first."""
    found: dict[tuple[Mark, str, bool], Counter[tuple[str, str]]] = {}
    for entry in diff.entries:
        if not told(diff, entry):
            of = entry.of
            key = (entry.mark, reason(entry), entry.worse)
            found.setdefault(key, Counter())[f"{of.case.op}/{of.case.dialect}", _subject(of)] += 1
    made = [
        Heap(mark=mark, reason=why, worse=worse, gradients=gradients)
        for (mark, why, worse), gradients in found.items()
    ]
    return sorted(made, key=lambda heap: not heap.worse)


def reason(entry: Change) -> str:
    """Why an entry that is told in a heap has its mark, where there is a reason."""
    if entry.why:
        return entry.why
    if entry.mark is Mark.SUPPORT_LOST and entry.new is not None:
        if entry.new.finding.verdict is Verdict.UNBOUND:
            return "it is no longer checked"
        return f"{words.word(entry.new.finding.verdict)} {entry.new.finding.reason}".strip()
    return ""


def listed(heap: Heap, most: int = NAMED) -> str:
    """The gradients of a heap by name; of many, the first operators."""
    dialects: dict[str, list[str]] = {}
    for dialect, gradient in heap.gradients:
        dialects.setdefault(dialect, []).append(gradient)
    if len(heap.gradients) <= most:
        named = (f"{dialect} · {', '.join(of_it)}" for dialect, of_it in dialects.items())
        return words.clean("; ".join(named))
    ops = list(dict.fromkeys(dialect.partition("/")[0] for dialect in dialects))
    more = f", … and {len(ops) - most:,} more" if len(ops) > most else ""
    return ", ".join(map(words.clean, ops[:most])) + more


def states(diff: Diff, entry: Change) -> tuple[str, str]:
    """How a result stood, and how it stands."""
    moved = entry.mark in (Mark.ERROR_GREW, Mark.IMPROVED)
    before = _state(diff.old, entry.old, moved=moved)
    return before, _state(diff.new, entry.new, moved=moved)


def _state(side: Side, record: CaseResult | None, *, moved: bool) -> str:
    if record is None:
        return "–"
    word = words.word(record.finding.verdict)
    stands = side.run.stands(record)
    if stands is not record.finding.verdict:
        word += f" ({words.word(stands)})"
    if moved and record.finding.top is not None:
        return f"{word} {words.number(record.finding.times_bound, 2)} × tolerance"
    kind = record.finding.defect
    return " ".join(filter(None, (word, words.cell(record.finding), kind and f"({kind})")))


def findings(group: Group) -> Sequence[str]:
    """What is wrong with a group's results, each said once."""
    leads = (failure_text.alone(record).lead for record in filter(None, map(_wrong, group.entries)))
    return tuple(dict.fromkeys(filter(None, leads)))


def _wrong(entry: Change) -> CaseResult | None:
    """The result that an entry is told for: the new one, if it fails, else the old one."""
    failing = [
        r for r in (entry.new, entry.old) if r is not None and not r.finding.verdict.expected
    ]
    return failing[0] if failing else None


def place(entry: Change) -> str:
    """Which of a group's results it is: sample and dtype, and of a contract the property."""
    of = entry.of
    prefix = f"{of.finding.name}, " if of.finding.part is Part.CONTRACT else ""
    return words.clean(f"{prefix}{of.case.sample}/{of.case.dtype}")


def verdict_of(diff: Diff) -> str:
    """All of it in one line, without colours."""
    return f"{headline(diff)} ({', '.join(text for _, text in tally(diff))})"


def repro(group: Group) -> str:
    """How to see the first of a group's results again."""
    shown = (_wrong(entry) or entry.new or entry.old for entry in group.entries)
    return words.command(next((r.repro for r in shown if r is not None and r.repro), ""))


def whose(diff: Diff, group: Group) -> str:
    """The implementation, where several are compared at once."""
    return f"{words.clean(group.implementation)} · " if len(diff.pairs) > 1 else ""
