"""Replacements: another function, slope, eps or value stands in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.names import (
    Candidate,
    candidates,
    constant,
    operand_text,
    span,
    text_of,
)
from gradcheck.explain.hypotheses.terms.operations import COMPARISONS, EPSILONS, positional
from gradcheck.explain.hypotheses.terms.tape import Change, Node, Place
from gradcheck.explain.hypotheses.terms.text import (
    Changes,
    Described,
    Edit,
    Ref,
    Run,
    Search,
    Target,
    all_of,
    key_of,
    targets,
)
from gradcheck.explain.hypotheses.terms.weights import SUMS
from gradcheck.explain.probe import Array
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.defect import Defect

FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": F64.sigmoid, "sqrt": np.sqrt, "log": np.log,
    "sin": np.sin, "cos": np.cos, "absolute": np.abs, "abs": np.abs, "erf": F64.erf,
    "log1p": np.log1p, "expm1": np.expm1, "square": np.square, "sign": np.sign,
}  # fmt: skip
REPLACEMENTS: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("left out", lambda x: x),
    ("taken for exp", np.exp),
    ("taken for exp of the negative", lambda x: np.exp(-x)),
    ("taken for tanh", np.tanh),
    ("taken for sigmoid", F64.sigmoid),
    ("taken for sigmoid of the negative", lambda x: F64.sigmoid(-x)),
    ("taken for relu", lambda x: np.maximum(x, 0)),
    ("taken for the step of relu", lambda x: np.where(x > 0, 1.0, 0.0)),
    ("taken for the square", np.square),
    ("taken for the root", np.sqrt),
    ("taken for the magnitude", np.abs),
    ("taken for sin", np.sin),
    ("taken for cos", np.cos),
    ("taken for log", np.log),
    ("applied twice", lambda x: x),
    ("taken for 1", np.ones_like),
)
STEP_LIKE: Final = ("taken for relu", "taken for the step of relu")


def functions(search: Search) -> Iterator[Edit]:
    """Every function of the text taken for another, every divisor and argument with an eps."""
    yield from search.everywhere(_changes)
    places = dict.fromkeys(n.place for n in search.run.needed if n.kind == "divide")
    every = tuple(Target(place=place, kind="divide") for place in places if place is not None)
    for eps in EPSILONS if len(every) > 1 else ():
        says = f"{search.text.obs.gradient}: {eps:g} is added to every divisor"
        yield from search.fitting(Defect.EPS, says, all_of(every, _plus(1, eps)))


def _changes(node: Node, run: Run) -> Iterator[Described]:
    me = f"`{text_of(node)}`"
    number = node.value.size == 1 and positional(node, run)  # any number can stand for it
    if node.kind in FUNCTIONS and len(node.operands) == 1 and not number:
        for says, function in REPLACEMENTS:
            if says in STEP_LIKE and _constant(function, node.operands[0]):
                continue  # it cannot be told from a number there
            if says == "taken for 1" and positional(node, run):
                continue  # nor from its value at the first place
            yield (
                Defect.DERIVATIVE,
                f"{me} is {says}",
                _twice if "twice" in says else _function(function),
            )
    if node.kind == "power":
        for step in (1, -1):
            yield Defect.DERIVATIVE, f"the exponent of {me} is off by {step:+d}", _plus(1, step)
        yield Defect.DERIVATIVE, f"{me} is taken for its base", lambda n, ops: ops[0]
    if node.kind == "negative":
        yield Defect.SIGN, f"the sign of {me} is lost", lambda n, ops: ops[0]
    k = {"divide": 1, "sqrt": 0, "log": 0}.get(node.kind)
    if k is not None and isinstance(node.operands[k], Node):
        says = operand_text(node, k)
        for eps in EPSILONS:
            yield Defect.EPS, f"{eps:g} is added to `{says}` in {me}", _plus(k, eps)
            yield Defect.EPS, f"`{says}` is kept above {eps:g} in {me}", _floor(k, eps)
    if node.kind == "sqrt":
        for eps in EPSILONS:
            yield Defect.EPS, f"{eps:g} is added to {me}", _added(eps)


def _constant(function: Callable[[Any], Any], x: Any) -> bool:
    return bool(np.ptp(function(x.value if isinstance(x, Node) else np.asarray(x))) == 0)


def _function(function: Callable[[Any], Any]) -> Change:
    return lambda node, ops: function(ops[0])


def _added(eps: float) -> Change:
    return lambda node, ops: node.call(ops) + eps


def _twice(node: Node, ops: list[Any]) -> Any:
    return node.call([node.call(ops)])


def _plus(k: int, eps: float) -> Change:
    return lambda node, ops: node.call([*ops[:k], ops[k] + eps, *ops[k + 1 :]])


def _floor(k: int, eps: float) -> Change:
    return lambda node, ops: node.call([*ops[:k], np.maximum(ops[k], eps), *ops[k + 1 :]])


def _silu(x: Any, a: float = 1.0) -> Any:
    s = F64.sigmoid(a * x)
    return s * (1 + a * x * (1 - s))


def _gelu(x: Any) -> Any:
    return 0.5 * (1 + F64.erf(x / np.sqrt(2))) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _tanh_gelu(x: Any) -> Any:
    root = np.sqrt(2 / np.pi)
    t = np.tanh(root * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x)


SLOPES: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("relu's", lambda x: np.where(x > 0, 1.0, 0.0)),
    ("silu's", _silu),
    ("gelu's, by erf", _gelu),
    ("gelu's, by tanh", _tanh_gelu),
    ("quick gelu's", lambda x: _silu(x, 1.702)),
    ("sigmoid's", lambda x: F64.sigmoid(x) * F64.sigmoid(-x)),
    ("y (1 - y), a sigmoid's by its output,", lambda x: x * (1 - x)),
    ("tanh's", lambda x: 1 - np.tanh(x) ** 2),
    ("1 - y**2, tanh's by its output,", lambda x: 1 - x * x),
    ("1 - y, tanh's by its output without the square,", lambda x: 1 - x),
    ("softplus's", F64.sigmoid),
    ("exp's", np.exp),
    ("the magnitude's", np.sign),
    ("the square's", lambda x: 2 * x),
    ("the logarithm's", lambda x: 1 / x),
    ("hardswish's", lambda x: np.where(x >= 3, 1.0, np.where(x <= -3, 0.0, (2 * x + 3) / 6))),
    ("that of a clip to [-1, 1]", lambda x: np.where(np.abs(x) <= 1, 1.0, 0.0)),
)


def slopes(search: Search) -> Iterator[Edit]:
    """Every factor of the cotangent taken for the slope of each known function at each value."""
    run, found = search.run, candidates(search.run)
    seen: set[tuple[Target, int]] = set()
    for node in reversed(run.needed):
        if node.kind != "multiply":
            continue
        for k in (0, 1):
            one, other = node.operands[k], node.operands[1 - k]
            if not (isinstance(one, Node) and isinstance(other, Node)) or (
                one.index in run.with_ct or other.index not in run.with_ct
            ):
                continue
            for target in targets(node, run):
                if (target, k) not in seen:
                    seen.add((target, k))
                    yield from _slopes_of(search, node, k, target, found)


def _slopes_of(
    search: Search, node: Node, k: int, target: Target, found: list[Candidate]
) -> Iterator[Edit]:
    now = node.operands[k].value
    above = {key_of(n) for n in search.run.ancestors(node.operands[k])}
    says = f"{search.text.obs.gradient}: in `{text_of(node)}` the slope `{operand_text(node, k)}`"
    for candidate in found:
        if candidate.key not in above and candidate.ref.output < 0:
            continue
        if candidate.value.shape != now.shape or candidate.says.startswith("ct"):
            continue
        for name, slope in SLOPES:
            if search.text.spent:
                return
            with np.errstate(all="ignore"):
                if np.ptp(slope(candidate.value)) == 0:
                    continue  # it cannot be told from a number there
            whole = f"{says} is {name} of `{candidate.says}`"
            yield from search.fitting(Defect.DERIVATIVE, whole, _slope(target, k, candidate, slope))


def _slope(
    target: Target, k: int, candidate: Candidate, slope: Callable[[Any], Any]
) -> Callable[[Run], Changes]:
    def changes(run: Run) -> Changes:
        def change(node: Node, ops: list[Any]) -> Any:
            z = candidate.ref.on(run, node.turn)
            if z is None:
                raise ValueError(candidate.says)
            return node.call([*ops[:k], slope(z), *ops[k + 1 :]])

        made: Change = change
        return {node.index: made for node in target.on(run)}

    return changes


Substitute = Callable[[Run, Node, Node, Any], Array | None]
"""What stands for an operand: run, the operation, the operand, and its value there."""

APPLIED: Final[tuple[tuple[str, str, Callable[[Any], Any]], ...]] = (
    (Defect.DERIVATIVE, "0", np.zeros_like),
    (Defect.SAVED_VALUE, "1", np.ones_like),
    (Defect.SAVED_VALUE, "sigmoid({})", F64.sigmoid),
    (Defect.SAVED_VALUE, "tanh({})", np.tanh),
    (Defect.SAVED_VALUE, "exp({})", np.exp),
    (Defect.SAVED_VALUE, "max({}, 0)", lambda v: np.maximum(v, 0)),
    (Defect.DERIVATIVE, "log({})", np.log),
    (Defect.SIGN, "|{}|", np.abs),
    (Defect.DERIVATIVE, "{}**2", np.square),
    (Defect.DERIVATIVE, "sqrt({})", np.sqrt),
)


def uses(search: Search) -> Iterator[Edit]:
    """Every use of a value, and all its uses in one place, with another value instead."""
    run, found = search.run, candidates(search.run)
    for value, where, nodes in _places(run):
        for label, says, substitute in _others(run, value, nodes, found):
            if search.text.spent:
                return
            yield from search.fitting(
                _class(run, value, nodes, label),
                f"{search.text.obs.gradient}: {where(says)}",
                _replaced(nodes, _own(run, value), value, substitute),
            )


def _class(run: Run, value: Node, nodes: Nodes, label: str) -> str:
    """V; D for a condition, and for a value that forward does not have, such as a slope."""
    if label in "VS" and all(node.kind in COMPARISONS for node in nodes(run)):
        return Defect.DERIVATIVE
    if label != Defect.SAVED_VALUE or value.index in run.with_ct:
        return label
    return Defect.SAVED_VALUE if value.index in run.known else Defect.DERIVATIVE


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
                yield value, _in_every_place(value), _users(run, value, inside)


def _in(node: Node, k: int) -> Where:
    return lambda says: f"`{text_of(node)}` reads `{says}`, where `{operand_text(node, k)}` is due"


def _in_every_place(value: Node) -> Where:
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
            label: str = (
                _BEFORE.get(value.kind, Defect.SAVED_VALUE) if flows else Defect.SAVED_VALUE
            )
            yield label, f"{operand_text(value, k)}", _before(k)
    for candidate in found:
        if flows and not candidate.flows:
            continue  # that ignores the cotangent: other rules say so
        if candidate.value.shape == now.shape and not np.array_equal(candidate.value, now):
            turned = now.ndim > 1 and np.array_equal(
                np.sort(candidate.value, None), np.sort(now, None)
            )
            yield (
                Defect.LAYOUT if turned else Defect.SAVED_VALUE,
                candidate.says,
                _referred(candidate.ref),
            )
    yield from _in_loops(run, value)
    me = text_of(value)
    for axis in range(now.ndim):
        if now.shape[axis] > 1:
            yield (
                Defect.INDEX,
                f"{me} of the first place along axis {axis - now.ndim}",
                _applied(_first_entry(axis - now.ndim)),
            )
    if flows or now.size < 2:
        return
    for label, says, function in APPLIED:
        yield label, says.format(me), _applied(function)
    if now.ndim > 1 and now.shape[0] > 1:
        yield Defect.INDEX, f"{me} of the very first row", _applied(_first_row)


_BEFORE: Final = {
    "multiply": Defect.SCALE,
    "divide": Defect.SCALE,
    "add": Defect.TERM,
    "subtract": Defect.TERM,
}


def _first_entry(axis: int) -> Callable[[Any], Any]:
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
                yield (
                    Defect.SAVED_VALUE,
                    text_of(same[0]),
                    _referred(Ref(chain=chain, kind=kind, step=0)),
                )
            for step, when in ((1, "after"), (-1, "before")):
                says = f"{text_of(same[0])} of the turn {when}"
                yield (
                    Defect.SAVED_VALUE,
                    says,
                    _referred(Ref(chain=chain, kind=kind, step=step), stay=True),
                )


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
