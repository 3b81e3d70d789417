"""Sums and means: the count of one is wrong, or it runs over other elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradcheck.explain.text.run import Edit, Likeness, Run, Target, Text, all_of, at, targets
from gradcheck.explain.text.source import text_of
from gradcheck.explain.text.tape import Change, Node


def reductions(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Every sum and mean of the text with another count, axis or extent."""
    seen: set[Target] = set()
    for node in reversed(run.needed):
        if node.kind not in ("sum", "mean", "reduce_to"):
            continue
        for target in targets(node, run):
            if target in seen or text.spent:
                continue
            seen.add(target)
            for label, says, change in _changes(node):
                if like(text.tried(run, at(target, change)(run))):
                    yield Edit(
                        label=label,
                        says=f"{text.scene.gradient}: `{text_of(node)}` {says}",
                        changes=at(target, change),
                    )
    yield from _together(text, run, like)


def _together(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """All means at once, or all sums."""
    for kind in ("mean", "sum"):
        every = tuple({n.place: Target(place=n.place, kind=kind) for n in run.needed
                       if n.kind == kind and n.place is not None}.values())  # fmt: skip
        if len(every) < 2:
            continue
        for label, says, change in _counted(kind):
            changes = all_of(every, change)
            if like(text.tried(run, changes(run))):
                yield Edit(
                    label=label, says=f"{text.scene.gradient}: each {kind} {says}", changes=changes
                )


def _changes(node: Node) -> Iterator[tuple[str, str, Change]]:
    yield from _counted(node.kind)
    if node.kind == "reduce_to" or not isinstance(node.kwargs.get("axis", _given(node)), int):
        return
    yield "T", "is not formed: each element takes its own value alone", lambda n, ops: ops[0]
    for axis in range(np.ndim(_first(node))):
        if axis != _axis(node) % np.ndim(_first(node)):
            yield "I", f"runs over axis {axis}", _along(axis)
    yield "A", "keeps its last element alone", _kept(slice(-1, None))
    yield "A", "keeps its first element alone", _kept(slice(0, 1))
    yield "I", "leaves out its last element", _kept(slice(0, -1))
    yield "I", "leaves out its first element", _kept(slice(1, None))


def _counted(kind: str) -> Iterator[tuple[str, str, Change]]:
    if kind != "mean":
        yield "R", "is a mean, not a sum", _by_count(lambda n: 1 / n)
        return
    yield "R", "is a sum, not a mean", _by_count(lambda n: n)
    yield "R", "divides by n - 1, where n elements are averaged", _by_count(lambda n: n / (n - 1))
    yield "R", "divides by the root of the count", _by_count(np.sqrt)
    yield "R", "divides by the number of all elements", _by_total


def _by_total(node: Node, ops: list[Any]) -> Any:
    return node.call(ops) / max(np.size(node.value), 1)


def _first(node: Node) -> Any:
    operand = node.operands[0]
    return operand.value if isinstance(operand, Node) else operand


def _given(node: Node) -> Any:
    return node.operands[1] if len(node.operands) > 1 else None


def _axis(node: Node) -> int:
    return int(node.kwargs.get("axis", _given(node)))


def _by_count(factor: Callable[[float], float]) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        count = np.size(ops[0]) / max(np.size(node.value), 1)
        return node.call(ops) * factor(count)

    return change


def _along(axis: int) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        kwargs = {"keepdims": bool(ops[2]) if len(ops) > 2 else False, **node.kwargs}
        return node.function(ops[0], **{**kwargs, "axis": axis})

    return change


def _kept(part: slice) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        axis = _axis(node) % np.ndim(ops[0])
        count = np.shape(ops[0])[axis]
        kept = ops[0][(*(slice(None),) * axis, part)]
        share = kept.shape[axis] / count if node.kind == "mean" and count else 1.0
        return node.call([kept, *ops[1:]]) * share

    return change
