"""Uses of a value where another one of the same shape stands: before or after, stale, swapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.arithmetic import F64
from gradcheck.explain.probe import Array
from gradcheck.explain.rules.terms.masks import COMPARISONS
from gradcheck.explain.text.named import Candidate, candidates
from gradcheck.explain.text.run import Changes, Edit, Likeness, Ref, Run, Target, Text, targets
from gradcheck.explain.text.source import operand_text, span, text_of
from gradcheck.explain.text.tape import Change, Node, Place

Substitute = Callable[[Run, Node, Node, Any], Array | None]
"""What stands for an operand: run, the operation, the operand, and its value there."""

APPLIED: Final[tuple[tuple[str, str, Callable[[Any], Any]], ...]] = (
    ("V", "sigmoid({})", F64.sigmoid),
    ("V", "tanh({})", np.tanh),
    ("V", "exp({})", np.exp),
    ("V", "max({}, 0)", lambda v: np.maximum(v, 0)),
    ("D", "log({})", np.log),
    ("S", "|{}|", np.abs),
    ("D", "{}**2", np.square),
    ("D", "sqrt({})", np.sqrt),
)


def uses(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Every use of a value, and all its uses in one place, with another value instead."""
    found = candidates(run)
    for value, where, nodes in _places(run):
        for label, says, substitute in _others(run, value, nodes, found):
            if text.spent:
                return
            edit = Edit(
                label=_class(run, value, nodes, label),
                says=f"{text.scene.gradient}: {where(says)}",
                changes=_replaced(nodes, _own(run, value), substitute),
            )
            if like(text.tried(run, edit.changes(run))):
                yield edit


def _class(run: Run, value: Node, nodes: Nodes, label: str) -> str:
    """V; D for a condition, and for what forward has no value of: a slope."""
    if label != "V" or value.index in run.with_ct:
        return label
    return "D" if value.index not in run.known or all(
        node.kind in COMPARISONS for node in nodes(run)
    ) else "V"  # fmt: skip


Where = Callable[[str], str]
Nodes = Callable[[Run], list[Node]]


def _places(run: Run) -> Iterator[tuple[Node, Where, Nodes]]:
    """A value, how to say where another is read for it, and the operations that read it there."""
    seen: set[Any] = set()
    for node in reversed(run.needed):
        for k, operand in enumerate(node.operands):
            if not isinstance(operand, Node) or operand.value.dtype.kind != "f":
                continue
            for target in targets(node, run):
                if (target, k, operand.index) not in seen:
                    seen.add((target, k, operand.index))
                    yield operand, _in(node, k), target.on
    for value in reversed(run.needed):
        users = run.users.get(value.index, [])
        if len(users) > 1 and value.value.dtype.kind == "f" and value.index != 0:
            yield value, _everywhere(value), _users(run, value, lambda _: True)
            for scope in {n.chain[1:] for n in users if len(n.chain) > 1}:
                inside = _within(scope)
                if 1 < sum(map(inside, users)) < len(users):
                    yield value, _everywhere(value), _users(run, value, inside)
            for place in _expressions(run, users):
                inside = _written_in(place)
                if 1 < sum(map(inside, users)) < len(users):
                    yield value, _everywhere(value), _users(run, value, inside)


def _in(node: Node, k: int) -> Where:
    return lambda says: f"`{text_of(node)}` reads `{says}`, where `{operand_text(node, k)}` is due"


def _everywhere(value: Node) -> Where:
    return lambda says: f"`{says}` is read, where `{text_of(value)}` is due"


def _own(run: Run, value: Node) -> Ref | None:
    """How to find the value on another tape; None: each operation has its own."""
    if value.name:
        return Ref(name=value.name)
    same = run.chains.get((value.chain, value.kind), [])
    return Ref(chain=value.chain, kind=value.kind) if len(same) == 1 else None


def _users(run: Run, value: Node, inside: Callable[[Node], bool]) -> Nodes:
    own = _own(run, value)

    def nodes(other: Run) -> list[Node]:
        mine = value if other is run else None if own is None else own.node(other, 0)
        return [] if mine is None else [n for n in other.users.get(mine.index, ()) if inside(n)]

    return nodes


def _within(scope: tuple[Place, ...]) -> Callable[[Node], bool]:
    return lambda node: node.chain[1:] == scope


def _expressions(run: Run, users: list[Node]) -> list[Place]:
    """Places of sums and products in whose source several of the operations stand."""
    codes = {n.place[0] for n in users if n.place}
    every = {n.place for n in run.needed if n.kind in ("add", "subtract", "multiply")}
    return [place for place in every if place is not None and place[0] in codes]


def _written_in(place: Place) -> Callable[[Node], bool]:
    outer = span(place)

    def inside(node: Node) -> bool:
        if node.place is None or node.place[0] is not place[0]:
            return False
        inner = span(node.place)
        return outer is not None and inner is not None and (
            outer[0] <= inner[0] and inner[1] <= outer[1]
        )  # fmt: skip

    return inside


def _others(
    run: Run, value: Node, nodes: Nodes, found: list[Candidate]
) -> Iterator[tuple[str, str, Substitute]]:
    now = value.value
    flows = value.index in run.with_ct
    for candidate in found:
        if candidate.value.shape == now.shape and not np.array_equal(candidate.value, now):
            turned = now.ndim > 1 and np.array_equal(np.sort(candidate.value, None), np.sort(now, None))
            yield "L" if turned else "V", candidate.says, _referred(candidate.ref)
    if not flows and now.size > 1:
        me = text_of(value)
        for label, says, function in APPLIED:
            yield label, says.format(me), _applied(function)
        if now.ndim > 1 and now.shape[0] > 1:
            yield "I", f"{me} of the first row", lambda r, n, o, v: np.broadcast_to(v[:1], v.shape)
        if now.ndim and now.shape[-1] > 1:
            yield "I", f"{me} of the first column", lambda r, n, o, v: np.broadcast_to(
                v[..., :1], v.shape
            )
    same = run.chains.get((value.chain, value.kind), [])
    if len(same) > 1:
        for step, when in ((1, "after"), (-1, "before")):
            yield "V", f"{text_of(value)} of the turn {when}", _neighbour(step)


def _referred(ref: Ref) -> Substitute:
    return lambda run, node, operand, value: ref.on(run, node.turn)


def _applied(function: Callable[[Any], Any]) -> Substitute:
    return lambda run, node, operand, value: function(value)


def _neighbour(step: int) -> Substitute:
    def substitute(run: Run, node: Node, operand: Node, value: Any) -> Array | None:
        same = run.chains.get((operand.chain, operand.kind), [])
        k = operand.turn + step
        if not operand.chain or not 0 <= k < len(same):
            return np.asarray(value)  # the first or last turn has no neighbour
        return same[k].value

    return substitute


def _replaced(
    nodes: Nodes, own: Ref | None, substitute: Substitute
) -> Callable[[Run], Changes | None]:
    def changes(run: Run) -> Changes | None:
        def change(node: Node, ops: list[Any]) -> Any:
            mine = None if own is None else own.node(run, 0)
            read = list(ops)
            for k, operand in enumerate(node.operands):
                if isinstance(operand, Node) and (operand is mine or own is None):
                    found = substitute(run, node, operand, ops[k])
                    if found is None:
                        raise ValueError(operand.kind)
                    read[k] = found
            return node.call(read)

        made: Change = change
        return {node.index: made for node in nodes(run)}

    return changes
