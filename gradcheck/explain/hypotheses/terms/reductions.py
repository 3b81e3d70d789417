"""Sums and means: the count of one is wrong, or it runs over other elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradcheck.explain.hypotheses.terms.weighing import fitted
from gradcheck.explain.trace.named import Number, numbers
from gradcheck.explain.trace.run import (
    Changes,
    Edit,
    Likeness,
    Run,
    Target,
    Text,
    all_of,
    at,
    targets,
)
from gradcheck.explain.trace.source import text_of
from gradcheck.explain.trace.tape import Change, Node


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
    yield from _flowing(text, run, like)


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


def _flowing(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """All means, or all sums, of what the cotangent flows through, weighted by one number."""
    for kind in ("mean", "sum"):
        flows = [n for n in run.needed if n.kind == kind and n.index in run.with_ct]
        every = tuple(
            {n.place: Target(place=n.place, kind=kind) for n in flows if n.place}.values()
        )
        if len(every) < 2:
            continue
        without = text.tried(run, all_of(every, _times(0.0))(run))
        c = None if without is None else fitted(run.needed[-1].value, without, like.got)
        for number in () if c is None else numbers(run, c):
            changes = _weighted(every, number)
            if like(text.tried(run, changes(run))):
                counts = number.label == "R" or (
                    number.label == "A" and isinstance(run.probe.attrs.get(_attr(number)), int)
                )
                yield Edit(
                    label="R" if counts else "F",
                    says=f"{text.scene.gradient}: each {kind} of what comes from the cotangent is "
                    f"{number.says} times the right value{number.note}",
                    changes=changes,
                )


def _attr(number: Number) -> str:
    return number.says.removeprefix("1/")


def _weighted(every: tuple[Target, ...], number: Number) -> Callable[[Run], Changes | None]:
    def changes(run: Run) -> Changes | None:
        value = number.of(run)
        return None if value is None else all_of(every, _times(value))(run)

    return changes


def _times(factor: float) -> Change:
    return lambda node, ops: factor * node.call(ops)


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
