"""Terms that are missing, of the other sign, or weighted by a wrong number or array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.weighing import (
    HOMOGENEOUS,
    LOST,
    SIGN,
    SUMS,
    WEIGHT,
    WHOLE,
    Weighing,
    lacking,
    matching,
    signs,
)
from gradcheck.explain.trace.named import Candidate, candidates
from gradcheck.explain.trace.run import Changes, Edit, Likeness, Run, Target, Text, at, targets
from gradcheck.explain.trace.source import text_of
from gradcheck.explain.trace.tape import Change, Node
from gradcheck.numerics.arithmetic import F64


def scales(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Operands of sums first, then whatever else is not merely a factor of what follows."""
    found = candidates(run)
    seen: set[tuple[Target, Any]] = set()
    yield from _whole(text, run, like, found)
    yield from _carried(text, run, like)
    for summing in (True, False):
        for node in reversed(run.needed):
            for k in range(len(node.operands)):
                if (node.kind in SUMS) is not summing or not _counts(node, k, run):
                    continue
                for target in targets(node, run):
                    key = node.operands[k].place if node.kind == "stack" else k
                    if (target, key) not in seen and not text.spent:
                        seen.add((target, key))
                        yield from Weighing(text, run, like, node, k, target).edits(found)


def _counts(node: Node, k: int, run: Run) -> bool:
    """Whether an operand's factor means something of its own there."""
    operand = node.operands[k]
    if not isinstance(operand, Node):
        return node.kind in SUMS and isinstance(operand, (int, float))
    if operand.value.dtype.kind != "f" or node.place is None:
        return False
    if node.kind == "divide":
        return k == 0 and len(run.users.get(operand.index, ())) > 1
    return node.kind not in HOMOGENEOUS or len(run.users.get(operand.index, ())) > 1


_WEIGHTS: Final = (
    (0.0, "T", "lacks the term `{}` in every turn", LOST),
    (-1.0, "S", "has the term `{}` with the other sign in every turn", SIGN),
    (0.5, "F", "has half the term `{}` in every turn", WEIGHT),
    (2.0, "F", "has the term `{}` twice in every turn", WEIGHT),
)


def _carried(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """What a loop hands on to its next turn is lost, or weighted wrongly."""
    seen: set[Target] = set()
    for node in reversed(run.needed):
        if node.index not in run.with_ct or node.kind not in HOMOGENEOUS or node.turn:
            continue
        for target in targets(node, run):
            if target in seen or target.turn is not None or len(target.on(run)) < 2:
                continue
            seen.add(target)
            for weight, label, says, rank in _WEIGHTS:
                changes = at(target, _weighted(weight))
                if like(text.tried(run, changes(run))):
                    what = f"{text.scene.gradient} {says.format(text_of(node))}"
                    yield Edit(label=label, says=what, changes=changes, rank=rank)


def _weighted(weight: float) -> Change:
    return lambda node, ops: weight * node.call(ops)


def _whole(text: Text, run: Run, like: Likeness, found: list[Candidate]) -> Iterator[Edit]:
    """A factor of the whole gradient that is an array."""
    last = run.needed[-1]
    if last.place is None:
        return
    with np.errstate(all="ignore"):
        usable = np.isfinite(like.got) & np.isfinite(last.value)
    part, rest = np.where(usable, last.value, 0.0), np.where(usable, like.got, 0.0)
    for candidate, inverse in matching(part, rest, [*found, *_functions(found)]):
        label = "D" if run.elementwise else "F"
        if inverse and candidate.says.startswith("ct"):
            label = "U"
        yield Edit(
            label="S" if signs(candidate.value) else label,
            says=f"{text.scene.gradient} {lacking(inverse)} `{candidate.says}`",
            changes=_result_times(candidate, inverse),
            rank=WHOLE,
        )


_APPLIED: Final = (
    ("exp", np.exp),
    ("sigmoid", F64.sigmoid),
    ("tanh", np.tanh),
    ("log", np.log),
    ("sqrt", np.sqrt),
    ("sign", np.sign),
)


def _functions(found: list[Candidate]) -> Iterator[Candidate]:
    """Functions of what the operator is given: chain factors of a parameter's own form."""
    for candidate in found:
        if candidate.ref.name and not candidate.says.startswith("ct"):
            for name, function in _APPLIED:
                with np.errstate(all="ignore"):
                    value = function(candidate.value)
                ref = replace(candidate.ref, of=function)
                yield replace(candidate, ref=ref, value=value, says=f"{name}({candidate.says})")


def _result_times(candidate: Candidate, inverse: bool) -> Callable[[Run], Changes | None]:
    def changes(run: Run) -> Changes | None:
        v = candidate.ref.on(run, 0)
        if v is None or run.needed[-1].place is None:
            return None
        return {
            run.needed[-1].index: lambda node, operands: (
                node.call(operands) * (1 / v if inverse else v)
            )
        }

    return changes
