"""What every report says of a run as a whole: its verdict, its counts, what was run on what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.results.expectation import Known
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import clean, plural, tone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.results.run import Header, Run

LONGEST_VERSION: Final = 100
"""Characters of what an implementation says that it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """How many impostors the checks would have rejected, of how many; to which each is blind.

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
        return f"{bad:,} of {plural(footer.checked, 'check')} did not pass{beside}"
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
    """Each implementation, and what it says that it is."""
    for name in header.implementations:
        said = header.versions.get(name, "")
        yield clean(f"{name} ({said[:LONGEST_VERSION]})" if said else name)


def rejected(found: Rejected) -> str:
    """What the certificates say, in one line."""
    text = f"{found.rejected:,} of {found.tried:,} impostors would have been rejected"
    if found.blind:
        few = [f"{name} ({count:,}, as in {where})" for name, count, where in found.blind[:3]]
        more = f" and {len(found.blind) - 3} more" if len(found.blind) > 3 else ""
        text += f"; passed by: {', '.join(few)}{more}"
    if found.tolerated:
        text += f"; {plural(found.tolerated, 'rounding')} to a narrower type within the tolerance"
    return clean(text)
