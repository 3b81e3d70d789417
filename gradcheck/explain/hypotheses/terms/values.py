"""Values: another value of the same shape is read, one place or turn off, stale or swapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.operations import COMPARISONS
from gradcheck.explain.hypotheses.terms.weights import SUMS
from gradcheck.explain.probe import Array
from gradcheck.explain.trace.names import (
    Candidate,
    candidates,
    constant,
    operand_text,
    span,
    text_of,
)
from gradcheck.explain.trace.run import Changes, Edit, Match, Ref, Run, Text, targets
from gradcheck.explain.trace.tape import Change, Node, Place
from gradcheck.numerics.arithmetic import F64

Substitute = Callable[[Run, Node, Node, Any], Array | None]
"""What stands for an operand: run, the operation, the operand, and its value there."""

APPLIED: Final[tuple[tuple[str, str, Callable[[Any], Any]], ...]] = (
    ("D", "0", np.zeros_like),
    ("V", "1", np.ones_like),
    ("V", "sigmoid({})", F64.sigmoid),
    ("V", "tanh({})", np.tanh),
    ("V", "exp({})", np.exp),
    ("V", "max({}, 0)", lambda v: np.maximum(v, 0)),
    ("D", "log({})", np.log),
    ("S", "|{}|", np.abs),
    ("D", "{}**2", np.square),
    ("D", "sqrt({})", np.sqrt),
)


def uses(text: Text, run: Run, like: Match) -> Iterator[Edit]:
    """Every use of a value, and all its uses in one place, with another value instead."""
    found = candidates(run)
    for value, where, nodes in _places(run):
        for label, says, substitute in _others(run, value, nodes, found):
            if text.spent:
                return
            edit = Edit(
                label=_class(run, value, nodes, label),
                says=f"{text.obs.gradient}: {where(says)}",
                changes=_replaced(nodes, _own(run, value), value, substitute),
            )
            if like(text.tried(run, edit.changes(run))):
                yield edit


def _class(run: Run, value: Node, nodes: Nodes, label: str) -> str:
    """V; D for a condition, and for a value that forward does not have, such as a slope."""
    if label in "VS" and all(node.kind in COMPARISONS for node in nodes(run)):
        return "D"
    if label != "V" or value.index in run.with_ct:
        return label
    return "V" if value.index in run.known else "D"


Where = Callable[[str], str]
Nodes = Callable[[Run], list[Node]]


def _places(run: Run) -> Iterator[tuple[Node, Where, Nodes]]:
    """A value, how to say where another is read for it, and the operations that read it there."""
    seen: set[Any] = set()
    for node in reversed(run.needed):
        for k, operand in enumerate(node.operands):
            if not isinstance(operand, Node) or operand.value.dtype.kind != "f":
                continue
            own = operand.index if not operand.chain else (operand.chain, operand.kind)
            for target in targets(node, run):
                if (target, own) not in seen:
                    seen.add((target, own))
                    yield operand, _in(node, k), target.on
    for value in reversed(run.needed):
        users = run.users.get(value.index, [])
        if len(users) < 2 or value.value.dtype.kind != "f" or value.value.size < 2:
            continue
        tests = [lambda _: True, *map(_within, dict.fromkeys(n.chain[1:] for n in users))]
        tests.extend(map(_written_in, _expressions(run, users)))
        tried: set[frozenset[int]] = set()
        for inside in tests:
            chosen = frozenset(n.index for n in users if inside(n))
            if len(chosen) > 1 and chosen not in tried:
                tried.add(chosen)
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
    every = dict.fromkeys(n.place for n in run.needed if n.kind in ("add", "subtract", "multiply"))
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
    for k, operand in enumerate(value.operands) if flows or value.kind not in SUMS else ():
        if isinstance(operand, Node) and operand.value.shape == now.shape:
            label = _BEFORE.get(value.kind, "V") if flows else "V"
            yield label, f"{operand_text(value, k)}", _before(k)
    for candidate in found:
        if flows and not candidate.flows:
            continue  # that ignores the cotangent: other rules say so
        if candidate.value.shape == now.shape and not np.array_equal(candidate.value, now):
            turned = now.ndim > 1 and np.array_equal(
                np.sort(candidate.value, None), np.sort(now, None)
            )
            yield "L" if turned else "V", candidate.says, _referred(candidate.ref)
    yield from _in_loops(run, value)
    me = text_of(value)
    for axis in range(now.ndim):
        if now.shape[axis] > 1:
            yield (
                "I",
                f"{me} of the first place along axis {axis - now.ndim}",
                _applied(_first(axis - now.ndim)),
            )
    if flows or now.size < 2:
        return
    for label, says, function in APPLIED:
        yield label, says.format(me), _applied(function)
    if now.ndim > 1 and now.shape[0] > 1:
        yield "I", f"{me} of the very first row", _applied(_first_row)


_BEFORE: Final = {"multiply": "F", "divide": "F", "add": "T", "subtract": "T"}


def _first(axis: int) -> Callable[[Any], Any]:
    def first(v: Any) -> Any:
        if v.ndim < -axis:
            raise ValueError(axis)
        return np.broadcast_to(np.take(v, [0], axis=axis), v.shape)

    return first


def _first_row(v: Any) -> Any:
    return np.broadcast_to(v.reshape(-1, v.shape[-1])[0], v.shape)


def _in_loops(run: Run, value: Node) -> Iterator[tuple[str, str, Substitute]]:
    """Values of a loop in the same iteration, or in the one before or after."""
    own = (value.chain, value.kind)
    turns = len(run.chains.get(own, ()))
    if turns < 2:
        return
    for (chain, kind), same in run.chains.items():
        if all(constant(node.value) for node in same):
            continue
        if len(same) == turns and same[0].value.shape == value.value.shape:
            if (chain, kind) != own:
                yield "V", text_of(same[0]), _referred(Ref(chain=chain, kind=kind, step=0))
            for step, when in ((1, "after"), (-1, "before")):
                says = f"{text_of(same[0])} of the turn {when}"
                yield "V", says, _referred(Ref(chain=chain, kind=kind, step=step), stay=True)


def _before(k: int) -> Substitute:
    """The value is read before the operation that gave it."""

    def substitute(run: Run, node: Node, operand: Node, value: Any) -> Any:
        found = operand.operands[k] if k < len(operand.operands) else None
        return found.value if isinstance(found, Node) else None

    return substitute


def _referred(ref: Ref, stay: bool = False) -> Substitute:
    def substitute(run: Run, node: Node, operand: Node, value: Any) -> Any:
        found = ref.on(run, operand.turn)
        return value if found is None and stay else found  # the last turn has none after it

    return substitute


def _applied(function: Callable[[Any], Any]) -> Substitute:
    return lambda run, node, operand, value: function(value)


def _replaced(
    nodes: Nodes, own: Ref | None, like: Node, substitute: Substitute
) -> Callable[[Run], Changes | None]:
    """`own` finds the value that is replaced; None: what stands in a loop as `like` does."""

    def changes(run: Run) -> Changes | None:
        mine = None if own is None else own.node(run, 0)

        def change(node: Node, ops: list[Any]) -> Any:
            read = list(ops)
            for k, operand in enumerate(node.operands):
                if isinstance(operand, Node) and (
                    operand is mine if own else _alike(operand, like)
                ):
                    found = substitute(run, node, operand, ops[k])
                    if found is None:
                        raise ValueError(operand.kind)
                    read[k] = found
            return node.call(read)

        made: Change = change
        return {node.index: made for node in nodes(run)}

    return changes


def _alike(one: Node, other: Node) -> bool:
    return one.chain == other.chain and one.kind == other.kind
