"""Functions and powers that are others, and an eps where the text has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.masks import positional
from gradcheck.explain.trace.run import Edit, Likeness, Run, Target, Text, all_of, tried_everywhere
from gradcheck.explain.trace.source import operand_text, text_of
from gradcheck.explain.trace.tape import Change, Node
from gradcheck.numerics.arithmetic import F64

FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": F64.sigmoid, "sqrt": np.sqrt, "log": np.log,
    "sin": np.sin, "cos": np.cos, "absolute": np.abs, "abs": np.abs, "erf": F64.erf,
    "log1p": np.log1p, "expm1": np.expm1, "square": np.square, "sign": np.sign,
}  # fmt: skip
OTHERS: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
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
STEPS: Final = ("taken for relu", "taken for the step of relu")
EPSILONS: Final = tuple(10.0**k for k in range(-3, -13, -1))


def functions(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Every function of the text taken for another, every divisor and argument with an eps."""
    yield from tried_everywhere(text, run, like, _changes)
    yield from _everywhere(text, run, like)


def _everywhere(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """An eps in all divisors at once."""
    every = {n.place: Target(place=n.place, kind="divide") for n in run.needed
             if n.kind == "divide" and n.place is not None}  # fmt: skip
    if len(every) > 1:
        for eps in EPSILONS:
            changes = all_of(tuple(every.values()), _plus(1, eps))
            if like(text.tried(run, changes(run))):
                yield Edit(
                    label="E",
                    says=f"{text.scene.gradient}: {eps:g} is added to every divisor",
                    changes=changes,
                )


def _changes(node: Node, run: Run) -> Iterator[tuple[str, str, Change]]:
    me = f"`{text_of(node)}`"
    number = node.value.size == 1 and positional(node, run)  # any number can stand for it
    if node.kind in FUNCTIONS and len(node.operands) == 1 and not number:
        for says, function in OTHERS:
            if says in STEPS and _constant(function, node.operands[0]):
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
