"""Choices: a mask that is ignored, inverted, or drawn at another place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.trace.run import Edit, Likeness, Run, Text, tried_everywhere
from gradcheck.explain.trace.source import operand_text, text_of
from gradcheck.explain.trace.tape import Change, Node

COMPARISONS: Final = {
    "less": np.less_equal,
    "less_equal": np.less,
    "greater": np.greater_equal,
    "greater_equal": np.greater,
}
"""Each with the one that differs in a tie."""
EPSILONS: Final = tuple(10.0**k for k in range(-3, -13, -1))


def masks(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Every choice of the text made otherwise."""
    yield from tried_everywhere(text, run, like, _changes)


def _changes(node: Node, run: Run) -> Iterator[tuple[str, str, Change]]:
    me = f"`{text_of(node)}`"
    if node.kind == "where" and len(node.operands) == 3:
        label = "I" if positional(node.operands[0], run) else "D"
        mask, yes, no = (operand_text(node, k) for k in range(3))
        if not _constant(node.operands[0]):  # else another value stands there, not another mask
            yield label, f"`{yes}` is taken everywhere, not only where `{mask}`", _taken(1)
            yield label, f"`{no}` is taken everywhere, also where `{mask}`", _taken(2)
            yield label, f"`{mask}` is inverted", lambda n, ops: n.call([ops[0], ops[2], ops[1]])
    elif node.kind in ("maximum", "minimum"):
        for k in (0, 1):
            yield "D", f"{me} is taken for `{operand_text(node, k)}`", _operand(k)
    elif node.kind in COMPARISONS:
        label = "I" if positional(node, run) else "D"
        tie = COMPARISONS[node.kind]
        yield "I" if label == "I" else "K", f"{me} is decided the other way in a tie", _with(tie)
        for k in (0, 1) if label == "D" else ():
            for eps in EPSILONS:
                yield "D", f"the threshold of {me} is off by {eps:g}", _plus(k, eps)
        other = "P" if _given(node, run) else label
        yield label, f"{me} is inverted", lambda n, ops: np.logical_not(n.call(ops))
        yield other, f"{me} is taken to hold everywhere", _all(True)
        yield other, f"{me} is taken to hold nowhere", _all(False)
    elif node.kind in ("equal", "not_equal"):
        label = "I" if positional(node, run) else "M" if _dropped(node) else "D"
        yield label, f"{me} is inverted", lambda n, ops: np.logical_not(n.call(ops))
        yield label, f"{me} is taken to hold everywhere", _all(True)
        yield label, f"{me} is taken to hold nowhere", _all(False)
    elif node.kind in ("bitwise_and", "bitwise_or", "logical_and", "logical_or"):
        label = "I" if positional(node, run) else "D"
        for k in (0, 1):
            lost = "P" if _given(node.operands[1 - k], run) else label  # with what it compares
            yield lost, f"{me} looks at `{operand_text(node, k)}` alone", _operand(k)
    elif node.kind == "causal":
        for shift in (1, -1):
            yield "I", f"the causal mask is off by {shift:+d}", _shifted(shift)
        yield "I", "the causal mask is left out", _all(True)
        yield "L", "the causal mask is transposed", _transposed


def _constant(mask: Any) -> bool:
    """Whether it holds everywhere, or nowhere."""
    value = mask.value if isinstance(mask, Node) else np.asarray(mask)
    return bool(value.all() or not value.any())


def _dropped(node: Node) -> bool:
    """Whether it reads the mask that an operator is given."""
    return any(isinstance(o, Node) and o.name == "mask" for o in node.operands)


def _given(node: Any, run: Run) -> bool:
    """Whether an attribute stands in a comparison."""
    return isinstance(node, Node) and any(
        isinstance(o, Node) and o.name in run.probe.attrs for o in node.operands
    )


def positional(x: Any, run: Run) -> bool:
    """Whether a mask depends on shapes and attributes alone."""
    if not isinstance(x, Node):
        return True
    seen, stack = set(), [x.index]
    while stack:
        node = run.tape.nodes[stack.pop()]
        if node.index not in seen:
            seen.add(node.index)
            if node.name in run.probe.names or node.name.startswith("ct"):
                return False
            stack.extend(node.parents)
    return True


def _taken(k: int) -> Change:
    return lambda node, ops: np.broadcast_to(ops[k], np.shape(node.value))


def _operand(k: int) -> Change:
    return lambda node, ops: np.broadcast_to(ops[k], np.broadcast_shapes(*map(np.shape, ops)))


def _plus(k: int, eps: float) -> Change:
    return lambda node, ops: node.call([*ops[:k], ops[k] + eps, *ops[k + 1 :]])


def _with(function: Any) -> Change:
    return lambda node, ops: function(*ops)


def _all(value: bool) -> Change:
    return lambda node, ops: np.full(np.shape(node.call(ops)), value)


def _shifted(by: int) -> Change:
    return lambda node, ops: np.tri(ops[0], ops[1], by, dtype=bool)


def _transposed(node: Node, ops: list[Any]) -> Any:
    return ~np.tri(ops[0], ops[1], -1, dtype=bool)
