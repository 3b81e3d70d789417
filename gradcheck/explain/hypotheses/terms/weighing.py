"""What weight of one operand makes the gradient what it is: none, −1, a number, or an array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradcheck.explain.probe import Array
from gradcheck.explain.trace.named import NEAR, SIGNIFICANT, Candidate, factor_at, numbers
from gradcheck.explain.trace.run import Changes, Edit, Likeness, Run, Target, Text, at
from gradcheck.explain.trace.source import expression, operand_text, text_of
from gradcheck.explain.trace.tape import Change, Node

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
BOUNDS: Final = frozenset({"maximum", "minimum"})
JOINED: Final = frozenset({"concatenate"})
LOST, SIGN, WHOLE, WEIGHT, FACTOR, BENT = range(6)
"""Ranks: a plain loss before a wrong weight; what stands inside a function comes last."""


def scaled(k: int, factor: Any) -> Change:
    """Operand `k` times a factor; with those of a stack that a loop made with it."""

    def change(node: Node, operands: list[Any]) -> Any:
        mine = node.operands[k] if node.kind == "stack" else None
        return node.call(
            [
                o * factor if j == k or (mine is not None and _made_with(node.operands[j], mine))
                else o
                for j, o in enumerate(operands)
            ]
        )  # fmt: skip

    return change


def _made_with(one: Any, other: Any) -> bool:
    return isinstance(one, Node) and isinstance(other, Node) and one.place == other.place


@dataclass(frozen=True, slots=True)
class Weighing:
    """Operand `k` of one operation, wherever `target` means: which weight of it fits."""

    text: Text
    run: Run
    like: Likeness
    node: Node
    k: int
    target: Target

    def edits(self, found: list[Candidate]) -> Iterator[Edit]:
        """Weight 0, −1, some number, some array."""
        without = self._with(0.0)
        right = self.run.needed[-1].value
        if without is None:
            return
        with np.errstate(all="ignore"):
            part, rest = right - without, self.like.got - without
        if not np.any(part):
            return
        if self.like(without):
            label, says = self._lost(without)
            yield self._edit(label, says, LOST, at(self.target, scaled(self.k, 0.0)), without)
        if self.like(self._with(-1.0)):
            says = f"{self._term} has the other sign"
            yield self._edit("S", says, SIGN, at(self.target, scaled(self.k, -1.0)), without)
        c = fitted(right, without, self.like.got)
        if c is not None and abs(c - 1) <= NEAR:
            return  # that is no other weight, but an imprecise one
        if c:
            yield from self._numbered(c, without)
            return
        usable = np.isfinite(part) & np.isfinite(rest)
        p, r = np.where(usable, part, 0.0), np.where(usable, rest, 0.0)
        for candidate, inverse in matching(p, r, found):
            yield from self._by_array(candidate, inverse, without)

    def _with(self, factor: Any) -> Array | None:
        change = scaled(self.k, factor)
        return self.text.tried(self.run, {n.index: change for n in self.target.on(self.run)})

    def _affine(self, without: Array) -> bool:
        return affine(self.run.needed[-1].value, without, self._with(2.0))

    def _edit(
        self,
        label: str,
        says: str,
        rank: int,
        changes: Callable[[Run], Changes | None],
        without: Array,
    ) -> Edit:
        own = self.text.scene.gradient
        eps = self.node.kind in (SUMS | BOUNDS) and _eps(self.node.operands[self.k])
        if eps:
            label = "E"
        return Edit(
            label=label,
            says=f"{own} {says}" if says.startswith("lacks") else f"{own}: {says}",
            changes=changes,
            rank=rank if eps or self._affine(without) else BENT,
            evidence=_turn(self.target),
        )

    @property
    def _term(self) -> str:
        kind = self.node.kind
        what = "term" if kind in SUMS else "part" if kind in JOINED else "value"
        return f"the {what} `{operand_text(self.node, self.k)}`"

    @property
    def _flows(self) -> bool:
        """Whether the cotangent flows through the operand."""
        operand = self.node.operands[self.k]
        return isinstance(operand, Node) and operand.index in self.run.with_ct

    def _lost(self, without: Array) -> tuple[str, str]:
        node, k = self.node, self.k
        if node.kind in SUMS:
            array = isinstance(node.operands[k], Node) and _size(node.operands[k]) > 1
            says = f"lacks {self._term} of `{expression(node)}`"
            if not array:
                says = f"`{operand_text(node, k)}` is left out of `{text_of(node)}`"
            return self._label("lost", without), says
        label = self._label("lost", without)
        return label, f"{self._term} is taken for 0"

    def _label(self, how: str, without: Array) -> str:
        """The class of an operand that is lost, weighted by a number, lacks or has a factor."""
        node, run = self.node, self.run
        if self._flows:
            if node.kind in SUMS:
                if how == "lost" and _collects(node, node.operands[self.k]):
                    return "A"
                return "T" if how == "lost" else "F"
            if node.kind in JOINED and how == "lost":
                return "A" if _passed_on(node.operands[self.k]) else "G"
            return "D" if node.kind == "where" else _PLAIN[how]
        if node.kind not in SUMS:
            return _PLAIN[how] if node.kind in HOMOGENEOUS and self._affine(without) else "D"
        own, other = _size(node.operands[self.k]), _size(node.operands[1 - self.k])
        if how == "number":
            return "T" if self._affine(without) else "D"
        if own > 1 and other <= 1:
            return "D"  # what is left of the sum is a number
        if not run.elementwise:
            return "T"
        top = how in ("lost", "lacks") and own > 1 and self._whole_slope
        return "T" if top else "D"

    @property
    def _given(self) -> bool:
        """Whether an attribute has gone into the operand."""
        return _has_attribute(self.run, self.node.operands[self.k])

    @property
    def _whole_slope(self) -> bool:
        """Whether the sum is the slope itself, which the cotangent is multiplied by."""
        leaf = self.run.leaves.get("ct")
        right = self.run.needed[-1].value
        if leaf is None or leaf.value.shape != right.shape:
            return False
        with np.errstate(all="ignore"):
            product = leaf.value * self.node.value
            return product.shape == right.shape and bool(
                np.all(np.abs(product - right) <= 1e-9 * np.max(np.abs(right), initial=0.0))
            )

    def _numbered(self, c: float, without: Array) -> Iterator[Edit]:
        for number in numbers(self.run, c):
            value = number.of(self.run)
            if value is None or not self.like(self._with(value)):
                continue
            label = self._label("number", without)
            if number.label == "R" and label in ("F", "T"):
                label = "R"
            elif number.label == "A" and label == "T" and not self.run.elementwise:
                label = "D"
            elif number.label == "A" and label == "D" and self._given:
                label = "F"  # what is there already is multiplied in once more
            says = f"{self._term} is {number.times(self._term)}"
            yield self._edit(label, says, WEIGHT, _times(self.target, self.k, number.of), without)

    def _by_array(self, candidate: Candidate, inverse: bool, without: Array) -> Iterator[Edit]:
        k, target = self.k, self.target

        def times(run: Run) -> Change:
            def change(node: Node, operands: list[Any]) -> Any:
                v = candidate.ref.on(run, node.turn)
                if v is None:
                    raise ValueError(candidate.says)
                return scaled(k, 1 / v if inverse else v)(node, operands)

            return change

        def changes(run: Run) -> Changes:
            return {node.index: times(run) for node in target.on(run)}

        if self.like(self.text.tried(self.run, changes(self.run))):
            label = self._label("lacks" if inverse else "extra", without)
            says = f"{self._term} {lacking(inverse)} `{candidate.says}`"
            if signs(candidate.value):
                label, says = "S", f"{self._term} has the sign of `{candidate.says}` wrong"
            yield self._edit(label, says, FACTOR, changes, without)


def _collects(node: Node, operand: Any) -> bool:
    """Whether a sum adds to what it gave in the turn before."""
    return isinstance(operand, Node) and operand.place == node.place


def _passed_on(operand: Any) -> bool:
    """Whether it is a part of the cotangent, as it came."""
    while isinstance(operand, Node) and operand.kind in ("getitem", "asarray"):
        operand = operand.operands[0]
    return isinstance(operand, Node) and operand.name.startswith("ct")


def _has_attribute(run: Run, operand: Any) -> bool:
    """Whether an attribute has gone into an operand already."""
    stack, seen = [operand.index] if isinstance(operand, Node) else [], set()
    while stack:
        node = run.tape.nodes[stack.pop()]
        if node.index not in seen:
            seen.add(node.index)
            if node.name in run.probe.attrs:
                return True
            stack.extend(node.parents)
    return False


_PLAIN: Final = {"lost": "T", "number": "F", "lacks": "F", "extra": "F"}


def lacking(inverse: bool) -> str:
    """What is said of a factor that is missing, or there once too often."""
    return "lacks the factor" if inverse else "has, once too often, the factor"


def _size(x: Any) -> int:
    return int(x.value.size) if isinstance(x, Node) else 1


def signs(value: Array) -> bool:
    """Whether an array holds nothing but 1 and −1."""
    return bool(np.all(np.isin(value, (-1.0, 1.0))))


def _turn(target: Target) -> tuple[str, ...]:
    if target.turn is None:
        return ()
    return (f"in the {'first' if target.turn == 0 else 'last'} turn of its loop alone",)


def _eps(operand: Any) -> bool:
    """Whether it is an eps."""
    if isinstance(operand, Node):
        return "eps" in operand.name
    return isinstance(operand, float) and 0 < abs(operand) <= 1e-4


def fitted(right: Array, without: Array, got: Array) -> float | None:
    """The weight of a part that makes the gradient what it is; None where none does."""
    with np.errstate(all="ignore"):
        part, rest = right - without, got - without
        usable = np.isfinite(part) & np.isfinite(rest)
        p, r = np.where(usable, part, 0.0), np.where(usable, rest, 0.0)
        size = float(np.sum(p * p))
        if not 0.0 < size < np.inf:
            return None
        c = float(np.sum(p * r)) / size
        fits = np.all(np.abs(r - c * p) <= SIGNIFICANT * np.max(np.abs(r), initial=0.0))
    return c if fits else None


def affine(right: Array, without: Array, twice: Array | None) -> bool:
    """Whether the gradient is linear in what was taken 0, 1 and 2 times."""
    if twice is None:
        return False
    with np.errstate(all="ignore"):
        off = np.abs(twice - 2 * right + without)
        size = np.max(np.abs(right - without), initial=0.0)
    return bool(np.all(off <= 1e-9 * size + 1e-12 * np.max(np.abs(right), initial=0.0)))


def _times(
    target: Target, k: int, of: Callable[[Run], float | None]
) -> Callable[[Run], Changes | None]:
    def changes(run: Run) -> Changes | None:
        value = of(run)
        return None if value is None else at(target, scaled(k, value))(run)

    return changes


def matching(part: Array, rest: Array, found: list[Candidate]) -> Iterator[tuple[Candidate, bool]]:
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
