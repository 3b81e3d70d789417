"""What every report says of a run as a whole: its verdict, its counts, what was run on what."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.report.outline import unique
from gradcheck.results import words
from gradcheck.results.case_result import CaseResult, Kind
from gradcheck.results.finding import Part
from gradcheck.results.run import Header, Run
from gradcheck.results.verdict import Known, Verdict, worst
from gradcheck.results.words import clean, plural, tone

LONGEST_VERSION: Final = 100
"""Characters of what an implementation says that it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """How many wrong gradients the checks reject, of how many; to which each is blind.

    `tolerated` counts roundings to narrower types that are within what a dtype is allowed.
    """

    rejected: int
    tried: int
    blind: tuple[tuple[str, int, str], ...]
    """Impostor, number of checks that it would pass, and one of them."""
    tolerated: int = 0


def headline(run: Run) -> str:
    """The verdict on the whole run in a few words."""
    footer, gate = run.footer, run.gate
    bad = sum(map(run.fails, run.results))
    known = gate.count(Known.XFAIL) if gate is not None else 0
    beside = f", {plural(known, 'known failure')}" if known else ""
    if not footer.checked:
        return "nothing was checked"
    if bad:
        return f"{bad:,} of {plural(footer.checked, 'check')} failed{beside}"
    if unmet := len(run.unmet):
        return f"{plural(unmet, 'requirement')} {'is' if unmet == 1 else 'are'} not met{beside}"
    if gate is not None and gate.problems:
        return f"{plural(len(gate.problems), 'line')} of {clean(gate.baseline)} to correct{beside}"
    if run.troubles:
        return f"{plural(len(run.troubles), 'problem')} kept the run from judging everything"
    if not run.complete:
        return "the run is incomplete"
    passed = footer.checked - known
    if known:
        return f"{passed:,} of {plural(footer.checked, 'check')} passed{beside}"
    return f"{'all ' if passed > 1 else ''}{plural(passed, 'check')} passed"


def sentence(run: Run, why: str = "") -> str:
    """The verdict with its reason, how much was checked, and how long it took if that is known."""
    said = headline(run)
    took = "" if run.timing is None else f" in {duration(run.timing.seconds)}"
    compared = f" {plural(run.footer.elements, 'number')} compared{took}." if run.results else ""
    return f"{said[:1].upper()}{said[1:]}{why}.{compared}"


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(0.02), duration(0.26), duration(12.3), duration(135)
    ('under 0.1 s', '0.3 s', '12 s', '2 min 15 s')
    """
    if seconds < 0.05:
        return "under 0.1 s"
    if seconds < 59.5:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def incomplete(run: Run) -> str:
    """Why a run ended early and what it did not reach, as far as that is known."""
    return clean(run.stopped) or "the run stopped early"


def tally(run: Run) -> list[tuple[str, str]]:
    """The counts behind the headline and what else closes the gate, as (tone, text) pairs."""
    counts = run.footer.counts
    known = {*Verdict} - {r.finding.verdict for r in run.results if not run.accepts(r)}
    pairs = [
        ("calm" if v in known and not v.expected else tone(v), f"{counts[v.value]:,} {v.value}")
        for v in Verdict
        if counts[v.value]
    ]
    if run.gate is not None:
        marks = [(known, run.gate.count(known)) for known in Known]
        pairs += [(tone(known), f"{count:,} {known.value}") for known, count in marks if count]
    if unmet := len(run.unmet):
        pairs.append(("bad", f"{plural(unmet, 'requirement')} not met"))
    if run.troubles:
        pairs.append(("bad", plural(len(run.troubles), "problem")))
    if not run.complete:
        pairs.append(("bad", "incomplete"))
    return pairs


def baseline(run: Run) -> list[str]:
    """What a baseline makes of the run: what it lists, then a line per thing to correct."""
    gate = run.gate
    if gate is None:
        return []
    counts = [f"{plural(gate.count(Known.XFAIL), 'known failure')} (XFAIL)"]
    if passing := gate.count(Known.XPASS):
        counts.append(f"{passing:,} unexpected {'pass' if passing == 1 else 'passes'} (XPASS)")
    lines = [problem.text for problem in gate.problems]
    warnings = [f"warning: {text}" for text in gate.warnings]
    return [clean(text) for text in (f"{gate.baseline}: {', '.join(counts)}", *lines, *warnings)]


def unmet(run: Run) -> list[str]:
    """What was required and is not there, a line each."""
    return [clean(text) for text in run.unmet]


def versions(run: Run) -> list[tuple[str, str]]:
    """What was run, on what, as (label, text) pairs."""
    header = run.header
    cases = f", cases {clean(header.cases)}" if header.cases else ""
    numpy = f", NumPy {clean(header.numpy)}" if header.numpy else ""
    several = "s" if len(header.implementations) > 1 else ""
    return [
        ("gradcheck", clean(header.version)),
        ("suite", clean(f"{header.suite} {header.suite_version}") + cases),
        *([("shard", clean(header.shard))] if header.shard else []),
        (f"implementation{several}", ", ".join(_called(header)) or "none"),
        ("dtypes", ", ".join(map(clean, header.dtypes)) or "none"),
        ("seed", str(header.seed)),
        ("on", f"Python {clean(header.python)}{numpy}, {clean(header.platform)}"),
    ]


def _called(header: Header) -> Iterator[str]:
    for name in header.implementations:
        said = header.versions.get(name, "")
        yield clean(f"{name} ({said[:LONGEST_VERSION]})" if said else name)


def rejected(found: Rejected) -> str:
    """What the self-checks say, in one line."""
    all_of = found.rejected == found.tried
    count = f"all {found.tried:,}" if all_of else f"{found.rejected:,} of {found.tried:,}"
    text = f"{count} deliberately wrong gradients were caught"
    if found.blind:
        few = [f"{name} ({count:,}, as in {where})" for name, count, where in found.blind[:3]]
        more = f" and {len(found.blind) - 3} more" if len(found.blind) > 3 else ""
        text += f"; not caught: {', '.join(few)}{more}"
    if found.tolerated:
        text += f"; {plural(found.tolerated, 'rounding')} to a narrower type within the tolerance"
    return clean(text)


NAMED: Final = 8
"""Operators that are named, of those that were not checked for the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What was not checked for one and the same reason."""

    verdict: Verdict
    reason: str
    ops: tuple[str, ...]
    count: int

    @property
    def named(self) -> tuple[str, ...]:
        """The first of the operators."""
        return self.ops[:NAMED]

    @property
    def others(self) -> str:
        """How many are not named: ", … and 12 more", or nothing."""
        more = len(self.ops) - NAMED
        return f", … and {more:,} more" if more > 0 else ""


def gaps(run: Run, *, side_conditions: bool = True) -> list[Gap]:
    """What was not checked, one entry per verdict and reason.

    What an implementation does not implement has one reason, however it is worded per operator.
    Side conditions that do not apply are one entry, left out unless `side_conditions`.
    """
    found: dict[tuple[Verdict, str, str], list[CaseResult]] = {}
    unasked: dict[str, list[CaseResult]] = {}
    for result in run.results:
        if result.finding.part is Part.CONTRACT and not result.finding.verdict.checked:
            unasked.setdefault(result.finding.reason, []).append(result)
        elif not result.finding.verdict.checked:
            unbound = result.finding.verdict is Verdict.UNBOUND
            silent, reason = (
                (result.case.implementation, "") if unbound else ("", result.finding.reason)
            )
            found.setdefault((result.finding.verdict, silent, reason), []).append(result)
    gaps = [
        Gap(
            verdict=verdict,
            reason=f"not implemented by {silent}" if silent else reason,
            ops=unique(r.case.op for r in results),
            count=len(results),
        )
        for (verdict, silent, reason), results in found.items()
    ]
    return [*gaps, *([_unasked(unasked)] if unasked and side_conditions else [])]


def _unasked(found: Mapping[str, Sequence[CaseResult]]) -> Gap:
    """The properties of contracts that could not be asked, all in one: they say little."""
    results = [result for of_one in found.values() for result in of_one]
    reasons = (f"{reason} ({', '.join(unique(r.finding.name for r in of_one))})"
               for reason, of_one in found.items())  # fmt: skip
    return Gap(
        verdict=Verdict.SKIP,
        reason=f"side conditions that do not apply: {'; '.join(reasons)}",
        ops=unique(r.case.op for r in results),
        count=len(results),
    )


def talkers(run: Run) -> list[tuple[CaseResult, int]]:
    """What printed although nothing failed there: one result per dialect, and of how many.

    Noise is no failure, but its author may not know of it. What a failure printed stands with it.
    """
    found: dict[tuple[str, Kind, str, str], list[CaseResult]] = {}
    for r in run.results:
        if r.finding.printed.strip():
            found.setdefault(
                (r.case.implementation, r.case.kind, r.case.op, r.case.dialect), []
            ).append(r)
    calm = [rs for rs in found.values() if all(r.finding.verdict.expected for r in rs)]
    return [(results[0], len(results)) for results in calm]


def slacks(run: Run) -> list[tuple[str, str]]:
    """Who needed a wider bound, "op" or "implementation: op", in how many results, and why."""
    several = len({r.case.implementation for r in run.results}) > 1
    found = Counter(
        (f"{r.case.implementation}: {r.case.op}" if several else r.case.op, r.finding.slack)
        for r in run.results
        if r.finding.slack
    )
    return [(name, f"{plural(count, 'result')} {slack}") for (name, slack), count in found.items()]


def conventions(run: Run) -> list[tuple[str, tuple[str, ...]]]:
    """Whose conventions were found on kinks: "op" or "implementation: op", and what was found."""
    several = len({r.case.implementation for r in run.results}) > 1
    found: dict[str, list[str]] = {}
    for result in run.results:
        if result.finding.conventions:
            name = f"{result.case.implementation}: {result.case.op}" if several else result.case.op
            found.setdefault(name, []).extend(result.finding.conventions)
    return [(name, unique(texts)) for name, texts in found.items()]


def curves(run: Run) -> list[tuple[str, int, CaseResult]]:
    """Per dtype, how many Taylor curves there are, and the one that misses the largest part."""
    found: dict[str, list[tuple[float, CaseResult]]] = {}
    for result in run.results:
        if result.finding.taylor is not None:
            found.setdefault(result.case.dtype, []).append((result.finding.taylor.share, result))
    return [
        (dtype, len(pairs), max(pairs, key=lambda pair: (math.isfinite(pair[0]), pair[0]))[1])
        for dtype, pairs in found.items()
    ]


def certificate(run: Run) -> Rejected | None:
    """The self-checks of all results together; None if there are none."""
    certified = [
        (r, r.finding.certificate) for r in run.results if r.finding.certificate is not None
    ]
    if not certified:
        return None
    blind: dict[str, list[CaseResult]] = {}
    for result, found in certified:
        for name in found.blind:
            blind.setdefault(name, []).append(result)
    return Rejected(
        rejected=sum(len(found.rejected) for _, found in certified),
        tried=sum(found.tried for _, found in certified),
        tolerated=sum(len(found.tolerated) for _, found in certified),
        blind=tuple(
            (name, len(results), f"{results[0].case.name}/{results[0].finding.name}")
            for name, results in sorted(blind.items(), key=lambda item: -len(item[1]))
        ),
    )


REFERENCE: Final = "reference"
"""Whose code needs no loading."""
ANSWERS: Final = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
"""What is said of a gradient that was given, right or wrong."""
UNASKED: Final = (Verdict.UNBOUND, Verdict.SKIP)
"""What is said where nobody was asked."""
GIVEN: Final = (Part.GRADIENT, Part.STAGE, Part.UPDATE)
"""What is asked for first; a property is asked of those who answer."""
FORWARD: Final = "forward"
MAX_SILENT_OPS: Final = 3
"""That did not answer."""
NOUNS: Final = {Kind.OPERATOR: "operator", Kind.MODEL: "model", Kind.RULE: "update rule"}


def load_summary(run: Run, *, everything: bool = False) -> list[str]:
    """A line for each implementation that lacks something; of `everything`, for each but ours.

    "mykernels 1.2: 3 operators, float32; 2 of 3 returned gradients (not softmax: CRASH)": the
    operators of the selection that it has, the dtypes in which one of them was judged, and how many
    gave a gradient, right or wrong, at least once. It is counted in what was judged: nothing is
    called for it.
    """
    others = [name for name in run.header.implementations if name != REFERENCE]
    results: dict[str, list[CaseResult]] = {name: [] for name in others}
    for result in run.results:
        if result.case.implementation in results:
            results[result.case.implementation].append(result)
    told = (_told(run, name, found, everything) for name, found in results.items() if found)
    return [text for text in told if text]


def _told(run: Run, name: str, results: Sequence[CaseResult], everything: bool) -> str:
    asked: dict[tuple[Kind, str], list[CaseResult]] = {}
    for result in results:
        if result.finding.verdict not in UNASKED and result.finding.part in GIVEN:
            asked.setdefault((result.case.kind, result.case.op), []).append(result)
    called = run.header.versions.get(name, "") or name
    loaded = words.clean(called)
    if not asked:
        return f"{loaded} has nothing of this selection"
    dtypes = {r.case.dtype for found in asked.values() for r in found if r.finding.verdict.checked}
    shown = [dtype for dtype in run.header.dtypes if dtype in dtypes]
    silent = {key: found for key, found in asked.items() if not any(map(_answers, found))}
    parts = ", ".join([*_counted(asked), *map(words.clean, shown)])
    if not (silent or everything):
        return ""
    text = f"{loaded}: {parts}; {len(asked) - len(silent):,} of {len(asked):,} returned gradients"
    return f"{text} (not {_named(silent)})" if silent else text


def _answers(result: CaseResult) -> bool:
    """Whether it holds a gradient of the code judged."""
    return result.finding.verdict in ANSWERS and result.finding.name != FORWARD


def _counted(asked: dict[tuple[Kind, str], list[CaseResult]]) -> Iterator[str]:
    for kind, noun in NOUNS.items():
        count = sum(of is kind for of, _ in asked)
        if count:
            yield words.plural(count, noun)


def _named(silent: dict[tuple[Kind, str], list[CaseResult]]) -> str:
    few = [
        f"{words.clean(op)}: {words.word(worst(r.finding.verdict for r in found))}"
        for (_, op), found in [*silent.items()][:MAX_SILENT_OPS]
    ]
    more = len(silent) - len(few)
    return ", ".join([*few, *([f"and {more:,} more"] if more else [])])
