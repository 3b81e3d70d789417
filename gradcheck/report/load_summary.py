"""How a start went: what of an implementation was found, and of how much of that it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run

REFERENCE: Final = "reference"
"""Whose code needs no loading."""
ANSWERS: Final = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
"""What is said of a gradient that was given, right or wrong."""
UNASKED: Final = (Verdict.UNBOUND, Verdict.SKIP)
"""What is said where nobody was asked."""
GIVEN: Final = (Part.GRADIENT, Part.STAGE, Part.UPDATE)
"""What is asked for first; a property is asked of those who answer."""
FORWARD: Final = "forward"
NAMED: Final = 3
"""That did not answer."""
NOUNS: Final = {Kind.OPERATOR: "operator", Kind.MODEL: "model", Kind.RULE: "update rule"}


def told(run: Run) -> list[str]:
    """A line for each implementation that was loaded; none for the reference.

    "loaded mykernels 1.2: 3 operators, float32; 3 of 3 answered": the operators of the selection
    that it has, the dtypes in which one of them was judged, and how many gave a gradient, right or
    wrong, at least once. It is counted in what was judged: nothing is called for it.
    """
    others = [name for name in run.header.implementations if name != REFERENCE]
    results: dict[str, list[CaseResult]] = {name: [] for name in others}
    for result in run.results:
        if result.case.implementation in results:
            results[result.case.implementation].append(result)
    return [_told(run, name, found) for name, found in results.items() if found]


def _told(run: Run, name: str, results: Sequence[CaseResult]) -> str:
    asked: dict[tuple[Kind, str], list[CaseResult]] = {}
    for result in results:
        if result.finding.verdict not in UNASKED and result.finding.part in GIVEN:
            asked.setdefault((result.case.kind, result.case.op), []).append(result)
    called = run.header.versions.get(name, "") or name
    loaded = f"loaded {words.clean(called)}"
    if not asked:
        return f"{loaded}: it has nothing of this selection"
    dtypes = {r.case.dtype for found in asked.values() for r in found if r.finding.verdict.checked}
    shown = [dtype for dtype in run.header.dtypes if dtype in dtypes]
    silent = {key: found for key, found in asked.items() if not any(map(_answers, found))}
    parts = ", ".join([*_counted(asked), *map(words.clean, shown)])
    text = f"{loaded}: {parts}; {len(asked) - len(silent):,} of {len(asked):,} answered"
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
        for (_, op), found in [*silent.items()][:NAMED]
    ]
    more = len(silent) - len(few)
    return ", ".join([*few, *([f"and {more:,} more"] if more else [])])
