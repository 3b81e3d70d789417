"""Uses of a value where another one of the same shape stands: before or after, stale, swapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradcheck.explain.text.named import candidates
from gradcheck.explain.text.run import Edit, Likeness, Ref, Run, Target, Text, targets
from gradcheck.explain.text.source import operand_text, text_of
from gradcheck.explain.text.tape import Change, Node


def uses(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Every operand of the text with another value of its shape in its place."""
    found = candidates(run)
    seen: set[tuple[Target, int]] = set()
    for node in reversed(run.needed):
        for k, operand in enumerate(node.operands):
            if not isinstance(operand, Node) or operand.value.dtype.kind != "f":
                continue
            for target in targets(node, run):
                if (target, k) in seen or text.spent:
                    continue
                seen.add((target, k))
                for ref, says in _others(run, node, operand, found):
                    change = _replaced(k, ref)
                    made = change(run)
                    if made is not None and like(text.tried(run, target.on(run), made)):
                        yield Edit(
                            label="V",
                            says=f"{text.scene.gradient}: `{text_of(node)}` reads `{says}`, "
                            f"where `{operand_text(node, k)}` is needed",
                            target=(target,),
                            change=change,
                        )


def _others(run: Run, node: Node, operand: Node, found: list[Any]) -> Iterator[tuple[Ref, str]]:
    value = operand.value
    for candidate in found:
        if candidate.value.shape == value.shape and not np.array_equal(candidate.value, value):
            yield candidate.ref, candidate.says
    turns = run.chains.get((node.chain, node.kind), [])
    if len(turns) > 1:
        for (chain, kind), same in run.chains.items():
            if len(same) == len(turns) and same[0].value.shape == value.shape:
                for step in (0, 1, -1):
                    if step or same[node.turn] is not operand:
                        says = text_of(same[0])
                        late = {0: "", 1: " of the turn after", -1: " of the turn before"}[step]
                        yield Ref(chain=chain, kind=kind, step=step), says + late


def _replaced(k: int, ref: Ref) -> Callable[[Run], Change | None]:
    def change(run: Run) -> Change | None:
        def other(node: Node, ops: list[Any]) -> Any:
            v = ref.on(run, node.turn)
            if v is None:
                return node.call(ops)  # the first or last turn has no neighbour
            return node.call([*ops[:k], v, *ops[k + 1 :]])

        return other

    return change
