"""Functions: another function, power, eps or slope stands in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.operations import EPSILONS, positional
from gradcheck.explain.trace.names import Candidate, candidates, key_of, operand_text, text_of
from gradcheck.explain.trace.run import (
    Changes,
    Edit,
    Match,
    Run,
    Target,
    Text,
    all_of,
    targets,
    tried_everywhere,
)
from gradcheck.explain.trace.tape import Change, Node
from gradcheck.numerics.arithmetic import F64

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


def functions(text: Text, run: Run, like: Match) -> Iterator[Edit]:
    """Every function of the text taken for another, every divisor and argument with an eps."""
    yield from tried_everywhere(text, run, like, _changes)
    yield from _everywhere(text, run, like)


def _everywhere(text: Text, run: Run, like: Match) -> Iterator[Edit]:
    """An eps in all divisors at once."""
    every = {n.place: Target(place=n.place, kind="divide") for n in run.needed
             if n.kind == "divide" and n.place is not None}  # fmt: skip
    if len(every) > 1:
        for eps in EPSILONS:
            changes = all_of(tuple(every.values()), _plus(1, eps))
            if like(text.tried(run, changes(run))):
                yield Edit(
                    label="E",
                    says=f"{text.obs.gradient}: {eps:g} is added to every divisor",
                    changes=changes,
                )


def _changes(node: Node, run: Run) -> Iterator[tuple[str, str, Change]]:
    me = f"`{text_of(node)}`"
    number = node.value.size == 1 and positional(node, run)  # any number can stand for it
    if node.kind in FUNCTIONS and len(node.operands) == 1 and not number:
        for says, function in REPLACEMENTS:
            if says in STEP_LIKE and _constant(function, node.operands[0]):
                continue  # it cannot be told from a number there
            if says == "taken for 1" and positional(node, run):
                continue  # nor from its value at the first place
            yield "D", f"{me} is {says}", _twice if "twice" in says else _with(function)
    if node.kind == "power":
        for step in (1, -1):
            yield "D", f"the exponent of {me} is off by {step:+d}", _plus(1, step)
        yield "D", f"{me} is taken for its base", lambda n, ops: ops[0]
    if node.kind == "negative":
        yield "S", f"the sign of {me} is lost", lambda n, ops: ops[0]
    k = {"divide": 1, "sqrt": 0, "log": 0}.get(node.kind)
    if k is not None and isinstance(node.operands[k], Node):
        says = operand_text(node, k)
        for eps in EPSILONS:
            yield "E", f"{eps:g} is added to `{says}` in {me}", _plus(k, eps)
            yield "E", f"`{says}` is kept above {eps:g} in {me}", _floor(k, eps)
    if node.kind == "sqrt":
        for eps in EPSILONS:
            yield "E", f"{eps:g} is added to {me}", _added(eps)


def _constant(function: Callable[[Any], Any], x: Any) -> bool:
    return bool(np.ptp(function(x.value if isinstance(x, Node) else np.asarray(x))) == 0)


def _with(function: Callable[[Any], Any]) -> Change:
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


def slopes(text: Text, run: Run, like: Match) -> Iterator[Edit]:
    """Every factor of the cotangent taken for the slope of each known function at each value."""
    found = candidates(run)
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
                    yield from _at(text, run, like, node, k, target, found)


def _at(
    text: Text,
    run: Run,
    like: Match,
    node: Node,
    k: int,
    target: Target,
    found: list[Candidate],
) -> Iterator[Edit]:
    now = node.operands[k].value
    above = _ancestors(run, node.operands[k])
    for candidate in found:
        if candidate.key not in above and candidate.ref.output < 0:
            continue
        if candidate.value.shape != now.shape or candidate.says.startswith("ct"):
            continue
        for says, slope in SLOPES:
            if text.spent:
                return
            with np.errstate(all="ignore"):
                if np.ptp(slope(candidate.value)) == 0:
                    continue  # it cannot be told from a number there
            changes = _slope(target, k, candidate, slope)
            if like(text.tried(run, changes(run))):
                yield Edit(
                    label="D",
                    says=f"{text.obs.gradient}: in `{text_of(node)}` the slope "
                    f"`{operand_text(node, k)}` is {says} of `{candidate.says}`",
                    changes=changes,
                )


def _ancestors(run: Run, node: Node) -> set[tuple[tuple[int, ...], bytes]]:
    """The values that a value was computed from, itself included."""
    seen, stack = set(), [node.index]
    while stack:
        k = stack.pop()
        if k not in seen:
            seen.add(k)
            stack.extend(run.tape.nodes[k].parents)
    return {key_of(run.tape.nodes[k]) for k in seen}


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
