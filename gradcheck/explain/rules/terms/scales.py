"""Terms that are missing, of the other sign, or weighted by a wrong number or array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.probe import Array
from gradcheck.explain.text.named import SIGNIFICANT, Candidate, candidates, factor_at, numbers
from gradcheck.explain.text.run import Edit, Likeness, Run, Target, Text, targets
from gradcheck.explain.text.source import operand_text, text_of
from gradcheck.explain.text.tape import Change, Node

SUMS: Final = frozenset({"add", "subtract"})
HOMOGENEOUS: Final = frozenset(
    {
        "multiply", "negative", "sum", "mean", "reduce_to", "matmul", "einsum", "reshape",
        "swapaxes", "moveaxis", "transpose", "flip", "expand_dims", "broadcast_to", "getitem",
        "gather", "scatter_add", "take_along", "add_along", "take_rows", "add_rows", "pick",
        "cumsum", "asarray", "squeeze",
    }
)  # fmt: skip
"""Operations that hand a factor of an operand on: it is looked for behind them."""
SLOTS: Final = frozenset({"concatenate"})


def scales(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Operands of sums first, then whatever else is not merely a factor of what follows."""
    found = candidates(run)
    seen: set[tuple[Target, int]] = set()
    yield from _whole(text, run, like, found)
    for summing in (True, False):
        for node in reversed(run.needed):
            for k in range(len(node.operands)):
                if (node.kind in SUMS) is not summing or not _counts(node, k, run):
                    continue
                for target in targets(node, run):
                    if (target, k) not in seen and not text.spent:
                        seen.add((target, k))
                        yield from _weights(text, run, like, node, k, target, found)


def scaled(k: int, factor: Any) -> Change:
    """Operand `k` times a factor."""
    return lambda node, operands: node.call(
        [*operands[:k], operands[k] * factor, *operands[k + 1 :]]
    )


def _counts(node: Node, k: int, run: Run) -> bool:
    """Whether an operand's factor means something of its own there."""
    operand = node.operands[k]
    if not isinstance(operand, Node):
        return node.kind in SUMS and isinstance(operand, (int, float))
    if operand.value.dtype.kind != "f" or node.place is None:
        return False
    if node.kind == "divide":
        return k == 0 and len(run.users.get(operand.index, ())) > 1
    return node.kind not in HOMOGENEOUS or len(run.users.get(operand.index, ())) > 1


def _weights(
    text: Text,
    run: Run,
    like: Likeness,
    node: Node,
    k: int,
    target: Target,
    found: list[Candidate],
) -> Iterator[Edit]:
    nodes = target.on(run)
    without = text.tried(run, nodes, scaled(k, 0.0))
    if without is None:
        return
    right = run.needed[-1].value
    with np.errstate(all="ignore"):
        part, rest = right - without, like.got - without
    if not np.any(part) or without.shape != like.got.shape:
        return
    if like(without):
        yield _edit(text, run, node, k, target, *_lost(text, run, node, k, target), 0.0)
    negated = text.tried(run, nodes, scaled(k, -1.0))
    if like(negated):
        label = "S" if _affine(text, run, nodes, k, without) else "D"
        yield _edit(text, run, node, k, target, label, f"{_term(node, k)} has the other sign", -1.0)
    usable = np.isfinite(part) & np.isfinite(rest)
    p, r = np.where(usable, part, 0.0), np.where(usable, rest, 0.0)
    c = float(np.sum(p * r) / np.sum(p * p))
    if np.all(np.abs(r - c * p) <= SIGNIFICANT * np.max(np.abs(r), initial=0.0)) and c:
        yield from _numbered(text, run, like, node, k, target, c, without)
        return
    for candidate, inverse in _matching(p, r, found):
        yield from _by_array(text, run, like, node, k, target, candidate, inverse)


def _edit(
    text: Text, run: Run, node: Node, k: int, target: Target, label: str, says: str, c: float
) -> Edit:
    return Edit(
        label=_eps(node, k, label),
        says=f"{text.scene.gradient}: {says}" if not says.startswith("lacks") else
        f"{text.scene.gradient} {says}",
        target=(target,),
        change=lambda _: scaled(k, c),
        evidence=_inside(node, target),
    )  # fmt: skip


def _inside(node: Node, target: Target) -> tuple[str, ...]:
    if target.turn is not None:
        return (f"in the {'first' if target.turn == 0 else 'last'} turn of its loop alone",)
    return ()


def _term(node: Node, k: int) -> str:
    what = "term" if node.kind in SUMS else "part" if node.kind in SLOTS else "value"
    return f"the {what} `{operand_text(node, k)}`"


def _eps(node: Node, k: int, label: str) -> str:
    """The class E where it is eps that is wrong."""
    operand = node.operands[k]
    if isinstance(operand, Node):
        return "E" if "eps" in operand.name else label
    return "E" if isinstance(operand, float) and 0 < abs(operand) <= 1e-4 else label


def _lost(text: Text, run: Run, node: Node, k: int, target: Target) -> tuple[str, str]:
    operand = node.operands[k]
    if node.kind in SUMS:
        array = isinstance(operand, Node) and bool(operand.parents or operand.value.ndim)
        if array and isinstance(operand, Node):
            linear = operand.index in run.with_ct() or _affine(
                text, run, target.on(run), k, text.tried(run, target.on(run), scaled(k, 0.0))
            )
            return ("T" if linear else "D"), f"lacks {_term(node, k)}"
        return "D", f"`{operand_text(node, k)}` is left out of `{text_of(node)}`"
    label = "G" if node.kind in SLOTS else "D" if node.kind == "where" else "T"
    return label, f"{_term(node, k)} is taken for 0"


def _affine(text: Text, run: Run, nodes: list[Node], k: int, without: Array | None) -> bool:
    """Whether the gradient is linear in that operand."""
    twice = text.tried(run, nodes, scaled(k, 2.0))
    if twice is None or without is None:
        return False
    right = run.needed[-1].value
    with np.errstate(all="ignore"):
        off = np.abs(twice - 2 * right + without)
        size = np.max(np.abs(right - without), initial=0.0)
    return bool(np.all(off <= 1e-9 * size + 1e-12 * np.max(np.abs(right), initial=0.0)))


def _numbered(
    text: Text,
    run: Run,
    like: Likeness,
    node: Node,
    k: int,
    target: Target,
    c: float,
    without: Array,
) -> Iterator[Edit]:
    nodes = target.on(run)
    for number in numbers(run, c):
        value = number.of(run)
        if value is None or not like(text.tried(run, nodes, scaled(k, value))):
            continue
        linear = _affine(text, run, nodes, k, without)
        yield Edit(
            label=_eps(node, k, number.label if linear else "D"),
            says=f"{text.scene.gradient}: {_term(node, k)} is {number.says} times the right value",
            target=(target,),
            change=_times(k, number.of),
            evidence=_inside(node, target),
        )


def _times(k: int, of: Callable[[Run], float | None]) -> Callable[[Run], Change | None]:
    def change(run: Run) -> Change | None:
        value = of(run)
        return None if value is None else scaled(k, value)

    return change


def _matching(
    part: Array, rest: Array, found: list[Candidate]
) -> Iterator[tuple[Candidate, bool]]:
    """Arrays that the quotient of what came and what is right is equal to; or their inverses."""
    telling = np.abs(part) > SIGNIFICANT * np.max(np.abs(part), initial=0.0)
    if np.count_nonzero(telling) < 3:
        return
    for candidate in found:
        v = factor_at(candidate, part.shape)
        if v is None:
            continue
        for inverse in (False, True):
            with np.errstate(all="ignore"):
                off = rest * v - part if inverse else rest - part * v
                size = np.abs(part if inverse else rest)
                if bool(np.all(np.abs(off[telling]) <= SIGNIFICANT * size[telling])):
                    yield candidate, inverse


def _by_array(
    text: Text,
    run: Run,
    like: Likeness,
    node: Node,
    k: int,
    target: Target,
    candidate: Candidate,
    inverse: bool,
) -> Iterator[Edit]:
    def change(run: Run) -> Change | None:
        def times(node: Node, operands: list[Any]) -> Any:
            v = candidate.ref.on(run, node.turn)
            if v is None:
                raise ValueError
            return scaled(k, 1 / v if inverse else v)(node, operands)

        return times

    made = change(run)
    if made is not None and like(text.tried(run, target.on(run), made)):
        how = "lacks the factor" if inverse else "has, once too often, the factor"
        yield Edit(
            label=_eps(node, k, "F"),
            says=f"{text.scene.gradient}: {_term(node, k)} {how} `{candidate.says}`",
            target=(target,),
            change=change,
        )


def _whole(text: Text, run: Run, like: Likeness, found: list[Candidate]) -> Iterator[Edit]:
    """A factor of the whole gradient that is an array."""
    last = run.needed[-1]
    if last.place is None:
        return
    with np.errstate(all="ignore"):
        usable = np.isfinite(like.got) & np.isfinite(last.value)
    part, rest = np.where(usable, last.value, 0.0), np.where(usable, like.got, 0.0)
    for candidate, inverse in _matching(part, rest, found):
        how = "lacks the factor" if inverse else "has, once too often, the factor"
        yield Edit(
            label="U" if inverse and candidate.says.startswith("ct") else "F",
            says=f"{text.scene.gradient} {how} `{candidate.says}`",
            target=(Target(place=last.place, kind=last.kind, chain=last.chain, turn=-1),),
            change=_result_times(candidate, inverse),
        )


def _result_times(candidate: Candidate, inverse: bool) -> Callable[[Run], Change | None]:
    def change(run: Run) -> Change | None:
        v = candidate.ref.on(run, 0)
        if v is None:
            return None
        return lambda node, operands: node.call(operands) * (1 / v if inverse else v)

    return change
