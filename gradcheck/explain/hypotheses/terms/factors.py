"""Factors and divisors that are left out, squared, or on the other side of the fraction bar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gradcheck.explain.hypotheses.terms.weighing import BENT, FACTOR, WHOLE, affine
from gradcheck.explain.trace.run import Edit, Likeness, Run, Target, Text, at, targets
from gradcheck.explain.trace.source import operand_text, text_of
from gradcheck.explain.trace.tape import Change, Node


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
    says = operand_text(node, k)
    divisor = node.kind == "divide" and k == 1
    what = "divisor" if divisor else "factor"
    for change, how, less in (
        (_one(k), f"lacks the {what} `{says}`", True),
        (_twice(k), f"has the {what} `{says}` twice", False),
        (_other_side(k), f"is {'multiplied' if divisor else 'divided'} by `{says}`", False),
    ):
        changes = at(target, change)
        if like(text.tried(run, changes(run))):
            whole = node is run.needed[-1]
            yield Edit(
                label=_label(text, run, node, k, target, less),
                says=f"{text.scene.gradient} {how}" if whole else
                f"{text.scene.gradient}: `{text_of(node)}` {how}",
                changes=changes,
                rank=WHOLE if whole else FACTOR if _linear(text, run, target) else BENT,
            )  # fmt: skip


def _one(k: int) -> Change:
    return lambda node, ops: np.broadcast_to(node.call([*ops[:k], 1.0, *ops[k + 1 :]]), _shape(ops))


def _twice(k: int) -> Change:
    return lambda node, ops: node.call([*ops[:k], ops[k] * ops[k], *ops[k + 1 :]])


def _other_side(k: int) -> Change:
    return lambda node, ops: node.call([*ops[:k], 1.0 / ops[k], *ops[k + 1 :]])


def _shape(ops: list[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(o) for o in ops))


def _label(text: Text, run: Run, node: Node, k: int, target: Target, less: bool) -> str:
    """F; D where a power of one value is another, or the product stands inside a function.

    A value of forward that lacks a factor is another value: V.
    """
    one, other = node.operands[k], node.operands[1 - k]
    if isinstance(one, Node) and one.name.startswith("ct"):
        return "U"
    if one is other or (isinstance(one, Node) and np.isin(one.value, (0.0, 1.0)).all()):
        return "D"  # another power; or a mask
    array = isinstance(one, Node) and one.value.size > 1
    if node.index in run.with_ct:
        if array and run.elementwise:
            return "D"
        return "R" if isinstance(one, int) and not isinstance(one, bool) and one > 2 else "F"
    if array and less and not run.elementwise and isinstance(other, Node):
        return "V"
    if not _linear(text, run, target):
        return "D"
    return "D" if array and run.elementwise and not less else "F"


def _linear(text: Text, run: Run, target: Target) -> bool:
    """Whether the gradient is linear in what these operations give."""

    def times(c: float) -> Change:
        return lambda node, ops: node.call(ops) * c

    twice, none = (text.tried(run, at(target, times(c))(run)) for c in (2.0, 0.0))
    return none is not None and affine(run.needed[-1].value, none, twice)
