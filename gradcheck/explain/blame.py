"""Which stages of a program may be at fault, from which of its gradients are wrong.

With stage verdicts the guilty are known. With end-to-end gradients alone, a stage is a suspect
unless the evidence clears it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gradcheck.explain.dataflow import Derivatives, Reach
from gradcheck.explain.evidence import BlameContext, Errors, explains, known_errors
from gradcheck.results.finding import Blame
from gradcheck.spec.program import Program, Stage, Values

BLUNT: Final = 8
"""Suspects above which noise may have hidden what would clear them: the graph is asked as well."""
CERTAIN: Final = (
    "one fault a round: each stage was judged alone, at the reference's cotangent, and replaced by "
    "the reference for the next round"
)
SINGLE: Final = "a single stage is assumed to be at fault: one of these, if no other is"
GRAPH: Final = (
    "a single stage is assumed to be at fault, with an error of which some part reaches every "
    "gradient that depends on it"
)
SEVERAL: Final = (
    "no single stage explains every wrong gradient: at least two are at fault; these explain the "
    "wrong ones nearest to the loss"
)
LEFT: Final = "these explain what the suspects before do not; a single fault is assumed here"
TOGETHER: Final = (
    "every stage is right by itself: the fault is in how they are put together, so the suspects "
    "are those whose gradients are added up, passed on or left out"
)


def rounds(
    program: Program,
    guilty: Collection[str],
    still_wrong: Callable[[frozenset[str]], Collection[str]],
) -> tuple[Blame, ...]:
    """Independent faults one after another, from the loss backwards.

    `still_wrong(replaced)` names the parameters whose gradients are wrong when the stages named
    are the reference's. While there are any, the guilty stage nearest to the loss is blamed, and
    replaced in its turn. What is still wrong when none is left is no stage's by itself; a guilty
    stage that spoils no parameter is blamed last.
    """
    found: list[Blame] = []
    left = [stage.name for stage in program.stages if stage.name in guilty]
    place = Reach(program).place
    replaced: frozenset[str] = frozenset()
    wrong = still_wrong(replaced)
    while left:
        stage = left.pop()
        found.append(
            Blame(
                exact=True,
                stages=(stage,),
                of=len(program.stages),
                assumption=CERTAIN,
                bounds=("", max(wrong, key=place, default="")),
                round=len(found) + 1,
            )
        )
        replaced |= {stage}
        wrong = still_wrong(replaced)
    if wrong:
        found.append(_unexplained(program, len(found) + 1))
    return tuple(found)


def _unexplained(program: Program, round: int) -> Blame:
    names = tuple(stage.name for stage in program.stages)
    return Blame(exact=False, stages=names, of=len(names), assumption=TOGETHER, round=round)


def suspects(
    program: Program,
    values: Values,
    cts: Mapping[str, Any],
    wrong: Collection[str],
    right: Collection[str],
    errors: Errors | None = None,
    dtype: str = "float64",
    derivatives: Derivatives | None = None,
) -> tuple[Blame, ...]:
    """The stages that may have made the `wrong` gradients wrong; one blame per fault at least.

    `values` and `cts` are the reference's, in float64, of every value by name. `wrong` and `right`
    name the parameters (or other values) whose gradients were judged. `errors` holds what was
    returned minus the truth, by name, as arrays of the value's shape; a name that is wrong and
    not in it, or not finite, counts as a gradient that was not produced. The first blame contains
    the guilty stage if there is one alone. `dtype` says how much rounding may have cost;
    `derivatives` with respect to all names judged serve several calls at one point.
    """
    known = known_errors(values, errors or {})
    court = BlameContext.of(program, values, cts, (wrong, right), known, dtype, derivatives)
    if errors is None:
        court = replace(court, missing=frozenset())
    left = sorted(wrong, key=court.reach.place, reverse=True)
    found: list[Blame] = []
    while left:
        groups = _groups(court, left)
        count, stages = _explained(court, groups)
        explained = [name for group in groups[:count] for name in group]
        whole = count == len(groups) and not found
        sharp = court.derivatives is not None
        if whole and sharp and len(stages) > BLUNT:
            by_graph = replace(court, derivatives=None)
            fewer = [s for s in stages if explains(by_graph, s, explained, [])]
            if fewer and 2 * len(fewer) <= len(stages):
                stages, sharp = fewer, False
        assumption = (SINGLE if sharp else GRAPH) if whole else SEVERAL if not found else LEFT
        found.append(
            Blame(
                exact=False,
                stages=tuple(stage.name for stage in stages),
                of=len(program.stages),
                assumption=assumption,
                bounds=(_nearest(court, explained[0]), explained[0]),
                round=len(found) + 1,
                names=tuple(
                    f"no gradient of `{name}` is produced."
                    for name in explained
                    if name in court.missing
                ),
            )
        )
        touched = frozenset().union(*(court.reach.of(stage) for stage in stages))
        left = [
            name
            for name in left
            if name not in explained and (name not in touched or name not in court.errors)
        ]
    return tuple(found)


def _groups(court: BlameContext, names: Sequence[str]) -> list[list[str]]:
    """Names that are read first by the same stage, together; the nearest to the loss first."""
    groups: dict[int, list[str]] = {}
    for name in names:
        groups.setdefault(court.reach.place(name), []).append(name)
    return list(groups.values())


def _explained(court: BlameContext, groups: list[list[str]]) -> tuple[int, list[Stage]]:
    """How many groups, all or the nearest alone, one stage explains; and which stages do."""
    for count in dict.fromkeys((len(groups), 1)):  # beyond the nearest, faults may mix
        names = [name for group in groups[:count] for name in group]
        stages = [s for s in court.program.stages if explains(court, s, names, groups[count:])]
        if stages:
            return count, stages
    # Nothing explains even the nearest alone: whatever lies between it and the loss may be at fault
    first = groups[0][0]
    near = [s for s in court.program.stages if first in court.reach.of(s)]
    return 1, near or list(court.program.stages)


def _nearest(court: BlameContext, wrong: str) -> str:
    """The right gradient nearest to the first wrong one, towards the loss; "" if there is none."""
    place = court.reach.place(wrong)
    nearer = [n for n in court.right if court.reach.place(n) > place and not court.reach.tied(n)]
    related = [n for n in nearer if _downstream(court, n, wrong)]
    return min(related or nearer, key=lambda n: (court.reach.place(n), n), default="")


def _downstream(court: BlameContext, name: str, wrong: str) -> bool:
    """Whether a stage that reads `name` also depends on the wrong one's value."""
    return any(wrong in court.reach.of(stage) for stage in court.program.readers.get(name, ()))
