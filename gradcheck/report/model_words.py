"""The wording of what is said of models alone: blocks, blame, how small an error is seen."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from gradcheck.results import words
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck.report.models import Block, Sight
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Blame


def sight(found: Sight) -> str:
    """What the checks of one case could have seen, and what they could not."""
    parts = []
    seen = [r for r in found.projected if r.finding.smallest_visible_error is not None]
    if seen:
        parts.append(_seen(seen, lambda blindest: words.gradient(blindest.finding.name)))
    if found.projected:
        parts.append(_cost(found.projected))
    if found.coarse:
        names = [
            f"{words.subject(r.finding.name, r.finding.part)} ({r.finding.unresolved:,})"
            for r in found.coarse
        ]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        count = sum(r.finding.unresolved for r in found.coarse)
        few = ", ".join(names[:4])
        parts.append(f"{words.plural(count, 'element')} too uncertain to be judged: {few}{more}")
    return "; ".join(parts)


def _seen(projected: Sequence[CaseResult], name: Callable[[CaseResult], str]) -> str:
    """The smallest error that the blindest of several projections could have seen."""
    blindest = max(projected, key=lambda r: r.finding.smallest_visible_error or 0.0)
    least = words.number(blindest.finding.smallest_visible_error or 0.0)
    middle = words.number(median(r.finding.smallest_visible_error or 0.0 for r in projected))
    return (
        f"an error of {least} of a typical element in {name(blindest)}, the blindest of "
        f"{words.plural(len(projected), 'projected gradient')} ({middle} in the median)"
    )


def _cost(projected: Sequence[CaseResult]) -> str:
    return words.plural(sum(r.finding.evaluations for r in projected), "forward evaluation")


def together(found: Sequence[Sight]) -> list[str]:
    """What the checks of several models could have seen, and what not, in a line each."""
    projected = [r for sight in found for r in sight.projected]
    seen = [r for r in projected if r.finding.smallest_visible_error is not None]
    lines = [f"{_seen(seen, words.title)}; {_cost(projected)}"] if seen else []
    return [*lines, *filter(None, [_unresolved(found)])]


def _unresolved(found: Sequence[Sight]) -> str:
    cases = {
        f"{s.implementation} {s.case}": sum(r.finding.unresolved for r in s.coarse) for s in found
    }
    total = sum(cases.values())
    if not total:
        return ""
    most = max(found, key=lambda s: cases[f"{s.implementation} {s.case}"])
    return (
        f"{words.plural(total, 'element')} too uncertain to be judged, the most of them in "
        f"{words.clean(most.case)}: --model {words.clean(most.case.partition('/')[0])} says where"
    )


def block(part: Part, count: int) -> str:
    """What stands above the rows of one part of a model."""
    if part is Part.GRADIENT:
        return words.plural(count, "gradient")
    if part is Part.STAGE:
        return f"{words.plural(count, 'stage')}, each at the reference's values and cotangents"
    return words.plural(count, part.value) if part is Part.TRAINING else part.value


def passed(found: Block) -> str:
    """How many rows of how many pass."""
    return f"{found.passed}/{len(found.rows)}" if found.rows else "–"


COUNTED: Final = {Part.GRADIENT: "gradients", Part.STAGE: "stages", Part.TRAINING: "trainings"}
"""What is counted in the line of a model."""


def accusation(blame: Blame) -> str:
    """Which stages may be at fault, and how far to trust that."""
    stages = ", ".join(map(words.clean, blame.stages))
    if blame.exact:
        return f"guilty: {stages} ({len(blame.stages)} of {words.plural(blame.of, 'stage')})"
    few = f"one of {len(blame.stages)} of {words.plural(blame.of, 'stage')}: {stages}"
    return few if len(blame.stages) != 1 else f"{stages}, the only suspect of {blame.of} stages"


def interval(blame: Blame) -> str:
    """Between which gradients the fault lies; empty where that is not known, or not needed."""
    right, wrong = (words.clean(name) for name in blame.bounds)
    if blame.exact or not wrong:
        return ""
    start = f"the right gradient of {right}" if right else "the loss"
    return f"between {start} and the wrong one of {wrong}"


def charges(blames: Sequence[Blame]) -> list[str]:
    """Everything that is said of all rounds of blame, a line each."""
    rounds = ((f"round {blame.round}: {accusation(blame)}", *said(blame)) for blame in blames)
    return [*(line for lines in rounds for line in lines), *assumptions(blames)]


def said(blame: Blame) -> list[str]:
    """What stands behind an accusation: the interval, and what exactly is wrong."""
    return list(filter(None, (interval(blame), *map(words.clean, blame.names))))


def assumptions(blames: Sequence[Blame]) -> list[str]:
    """What the rounds take for granted, each thing once."""
    return list(dict.fromkeys(words.clean(b.assumption) for b in blames if b.assumption))
