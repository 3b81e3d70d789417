"""Factors and divisors that are left out, squared, or on the other side of the fraction bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradcheck.explain.rules.terms.scales import scaled
from gradcheck.explain.text.run import Edit, Likeness, Run, Target, Text, targets
from gradcheck.explain.text.source import operand_text, text_of
from gradcheck.explain.text.tape import Change, Node


def factors(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Every product and quotient with one of its operands treated otherwise."""
    seen: set[tuple[Target, int]] = set()
    for node in reversed(run.needed):
        if node.kind not in ("multiply", "divide"):
            continue
        for target in targets(node, run):
            for k in (0, 1):
                if (target, k) not in seen and not text.spent:
                    seen.add((target, k))
                    yield from _operand(text, run, like, node, k, target)


def _operand(
    text: Text, run: Run, like: Likeness, node: Node, k: int, target: Target
) -> Iterator[Edit]:
    nodes = target.on(run)
    says = operand_text(node, k)
    divisor = node.kind == "divide" and k == 1
    what = "divisor" if divisor else "factor"
    for change, how in (
        (_one(k), f"lacks the {what} `{says}`"),
        (_twice(k), f"has the {what} `{says}` twice"),
        (_other_side(k), f"is {'multiplied' if divisor else 'divided'} by `{says}`"),
    ):
        if like(text.tried(run, nodes, change)):
            whole = node is run.needed[-1]
            yield Edit(
                label=_label(text, run, node, k, nodes),
                says=f"{text.scene.gradient} {how}" if whole else
                f"{text.scene.gradient}: `{text_of(node)}` {how}",
                target=(target,),
                change=_constant(change),
            )  # fmt: skip


def _constant(change: Change) -> Callable[[Run], Change | None]:
    return lambda _: change


def _one(k: int) -> Change:
    return lambda node, ops: np.broadcast_to(
        node.call([*ops[:k], 1.0, *ops[k + 1 :]]), _shape(ops)
    )


def _twice(k: int) -> Change:
    return lambda node, ops: node.call([*ops[:k], ops[k] * ops[k], *ops[k + 1 :]])


def _other_side(k: int) -> Change:
    return lambda node, ops: node.call([*ops[:k], 1.0 / ops[k], *ops[k + 1 :]])


def _shape(ops: list[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(o) for o in ops))


def _label(text: Text, run: Run, node: Node, k: int, nodes: list[Node]) -> str:
    """F; D where a power of one value is another, or the product stands inside a function."""
    one, other = node.operands[k], node.operands[1 - k]
    if isinstance(one, Node) and one.name.startswith("ct"):
        return "U"
    if one is other or not _affine(text, run, nodes):
        return "D"
    return "R" if isinstance(one, int) and not isinstance(one, bool) and one > 2 else "F"


def _affine(text: Text, run: Run, nodes: list[Node]) -> bool:
    """Whether the gradient is linear in what these operations give."""

    def times(c: float) -> Change:
        return lambda node, ops: node.call(ops) * c

    twice, none = text.tried(run, nodes, times(2.0)), text.tried(run, nodes, times(0.0))
    if twice is None or none is None:
        return False
    right = run.needed[-1].value
    with np.errstate(all="ignore"):
        off = np.abs(twice - 2 * right + none)
        size = np.max(np.abs(right - none), initial=0.0)
    return bool(np.all(off <= 1e-9 * size + 1e-12 * np.max(np.abs(right), initial=0.0)))


__all__ = ["factors", "scaled"]
