"""Slopes: the derivative of another activation stands in a product with the cotangent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.trace.named import Candidate, candidates, key_of
from gradcheck.explain.trace.run import Changes, Edit, Likeness, Run, Target, Text, targets
from gradcheck.explain.trace.source import operand_text, text_of
from gradcheck.explain.trace.tape import Change, Node
from gradcheck.numerics.arithmetic import F64


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


def slopes(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
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
    like: Likeness,
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
                    says=f"{text.scene.gradient}: in `{text_of(node)}` the slope "
                    f"`{operand_text(node, k)}` is {says} of `{candidate.says}`",
                    changes=changes,
                )


def _ancestors(run: Run, node: Node) -> set[tuple[tuple[int, ...], bytes]]:
    """What a value was computed from, itself included."""
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
