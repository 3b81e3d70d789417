"""Weights: terms that are missing, of the other sign, or weighted by a number or an array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.names import (
    FACTOR_TOLERANCE,
    SIGNIFICANT_SHARE,
    Candidate,
    candidates,
    expression,
    factor_at,
    numbers,
    operand_text,
    text_of,
)
from gradcheck.explain.hypotheses.terms.tape import Change, Node
from gradcheck.explain.hypotheses.terms.text import Changes, Edit, Run, Search, Target, at, targets
from gradcheck.explain.probe import Array
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.defect import Defect

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

    search: Search
    node: Node
    k: int
    target: Target

    @property
    def run(self) -> Run:
        """The text at the first probe."""
        return self.search.run

    def edits(self, found: list[Candidate]) -> Iterator[Edit]:
        """Weight 0, −1, some number, some array."""
        without = self._with(0.0)
        right = self.run.needed[-1].value
        if without is None:
            return
        with np.errstate(all="ignore"):
            part, rest = right - without, self.search.like.got - without
        if not np.any(part):
            return
        if self.search.like(without):
            label, says = self._lost(without)
            yield self._edit(label, says, LOST, at(self.target, scaled(self.k, 0.0)), without)
        if self.search.like(self._with(-1.0)):
            says = f"{self._term} has the other sign"
            yield self._edit(
                Defect.SIGN, says, SIGN, at(self.target, scaled(self.k, -1.0)), without
            )
        c = fitted(right, without, self.search.like.got)
        if c is not None and abs(c - 1) <= FACTOR_TOLERANCE:
            return  # the right weight, computed imprecisely
        if c:
            yield from self._numbered(c, without)
            return
        usable = np.isfinite(part) & np.isfinite(rest)
        p, r = np.where(usable, part, 0.0), np.where(usable, rest, 0.0)
        for candidate, inverse in matching(p, r, found):
            yield from self._by_array(candidate, inverse, without)

    def _with(self, factor: Any) -> Array | None:
        change = scaled(self.k, factor)
        return self.search.text.tried(self.run, {n.index: change for n in self.target.on(self.run)})

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
        own = self.search.text.obs.gradient
        eps = self.node.kind in (SUMS | BOUNDS) and _eps(self.node.operands[self.k])
        if eps:
            label = Defect.EPS
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
                    return Defect.ACCUMULATION
                return Defect.TERM if how == "lost" else Defect.SCALE
            if node.kind in JOINED and how == "lost":
                return Defect.ACCUMULATION if _passed_on(node.operands[self.k]) else Defect.SLOT
            return Defect.DERIVATIVE if node.kind == "where" else _PLAIN[how]
        if node.kind not in SUMS:
            return (
                _PLAIN[how]
                if node.kind in HOMOGENEOUS and self._affine(without)
                else Defect.DERIVATIVE
            )
        own, other = _size(node.operands[self.k]), _size(node.operands[1 - self.k])
        if how == "number":
            return Defect.TERM if self._affine(without) else Defect.DERIVATIVE
        if own > 1 and other <= 1:
            return Defect.DERIVATIVE  # what is left of the sum is a number
        if not run.elementwise:
            return Defect.TERM
        top = how in ("lost", "lacks") and own > 1 and self._whole_slope
        return Defect.TERM if top else Defect.DERIVATIVE

    @property
    def _given(self) -> bool:
        operand, attrs = self.node.operands[self.k], self.run.probe.attrs
        return isinstance(operand, Node) and any(
            n.name in attrs for n in self.run.ancestors(operand)
        )

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
            if value is None or not self.search.like(self._with(value)):
                continue
            label = self._label("number", without)
            if number.kind == "count" and label in (Defect.SCALE, Defect.TERM):
                label = Defect.REDUCTION
            elif number.kind == "attribute" and label == Defect.TERM and not self.run.elementwise:
                label = Defect.DERIVATIVE
            elif number.kind == "attribute" and label == Defect.DERIVATIVE and self._given:
                label = Defect.SCALE  # what is there already is multiplied in once more
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

        if self.search.like(self.search.text.tried(self.run, changes(self.run))):
            label = self._label("lacks" if inverse else "extra", without)
            says = f"{self._term} {lacking(inverse)} `{candidate.says}`"
            if signs(candidate.value):
                label, says = Defect.SIGN, f"{self._term} has the sign of `{candidate.says}` wrong"
            yield self._edit(label, says, FACTOR, changes, without)


def _collects(node: Node, operand: Any) -> bool:
    """Whether a sum adds to its result of the previous iteration."""
    return isinstance(operand, Node) and operand.place == node.place


def _passed_on(operand: Any) -> bool:
    """Whether an operand is a part of the cotangent itself."""
    while isinstance(operand, Node) and operand.kind in ("getitem", "asarray"):
        operand = operand.operands[0]
    return isinstance(operand, Node) and operand.name.startswith("ct")


_PLAIN: Final = {
    "lost": Defect.TERM,
    "number": Defect.SCALE,
    "lacks": Defect.SCALE,
    "extra": Defect.SCALE,
}


def lacking(inverse: bool) -> str:
    """The verb for a factor that is missing, or present once too often."""
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
    if isinstance(operand, Node):
        return "eps" in operand.name
    return isinstance(operand, float) and 0 < abs(operand) <= 1e-4


def fitted(right: Array, without: Array, got: Array) -> float | None:
    """The weight of a part that reproduces the gradient; None if none does."""
    with np.errstate(all="ignore"):
        part, rest = right - without, got - without
        usable = np.isfinite(part) & np.isfinite(rest)
        p, r = np.where(usable, part, 0.0), np.where(usable, rest, 0.0)
        size = float(np.sum(p * p))
        if not 0.0 < size < np.inf:
            return None
        c = float(np.sum(p * r)) / size
        fits = np.all(np.abs(r - c * p) <= SIGNIFICANT_SHARE * np.max(np.abs(r), initial=0.0))
    return c if fits else None


def affine(right: Array, without: Array, twice: Array | None) -> bool:
    """Whether the gradient is linear in a part that was taken 0, 1 and 2 times."""
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
    """Arrays equal to the quotient of the returned and the right gradient, or to its inverse."""
    telling = np.abs(part) > SIGNIFICANT_SHARE * np.max(np.abs(part), initial=0.0)
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
                if bool(np.all(np.abs(off[telling]) <= SIGNIFICANT_SHARE * size[telling])):
                    yield candidate, inverse


def scales(search: Search) -> Iterator[Edit]:
    """Every operand with another weight: those of sums first."""
    run, found = search.run, candidates(search.run)
    seen: set[tuple[Target, Any]] = set()
    yield from _whole(search, found)
    yield from _carried(search)
    for summing in (True, False):
        for node in reversed(run.needed):
            for k in range(len(node.operands)):
                if (node.kind in SUMS) is not summing or not _counts(node, k, run):
                    continue
                for target in targets(node, run):
                    key = node.operands[k].place if node.kind == "stack" else k
                    if (target, key) not in seen and not search.text.spent:
                        seen.add((target, key))
                        yield from Weighing(search, node, k, target).edits(found)


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


_WEIGHTS: Final = (
    (0.0, Defect.TERM, "lacks the term `{}` in every turn", LOST),
    (-1.0, Defect.SIGN, "has the term `{}` with the other sign in every turn", SIGN),
    (0.5, Defect.SCALE, "has half the term `{}` in every turn", WEIGHT),
    (2.0, Defect.SCALE, "has the term `{}` twice in every turn", WEIGHT),
)


def _carried(search: Search) -> Iterator[Edit]:
    """A value that a loop carries to its next iteration is lost, or weighted wrongly."""
    run = search.run

    def carried(node: Node) -> bool:
        return node.index in run.with_ct and node.kind in HOMOGENEOUS and not node.turn

    for node, target, _ in search.targets(carried):
        if target.turn is None and len(target.on(run)) > 1:
            for weight, label, says, rank in _WEIGHTS:
                what = f"{search.text.obs.gradient} {says.format(text_of(node))}"
                yield from search.fitting(label, what, at(target, result_times(weight)), rank)


def result_times(factor: float) -> Change:
    """The result of an operation times a number."""
    return lambda node, ops: factor * node.call(ops)


def _whole(search: Search, found: list[Candidate]) -> Iterator[Edit]:
    """A factor of the whole gradient that is an array."""
    run, like = search.run, search.like
    last = run.needed[-1]
    if last.place is None:
        return
    with np.errstate(all="ignore"):
        usable = np.isfinite(like.got) & np.isfinite(last.value)
    part, rest = np.where(usable, last.value, 0.0), np.where(usable, like.got, 0.0)
    for candidate, inverse in matching(part, rest, [*found, *_functions(found)]):
        label = Defect.DERIVATIVE if run.elementwise else Defect.SCALE
        if inverse and candidate.says.startswith("ct"):
            label = Defect.COTANGENT
        yield Edit(
            label=Defect.SIGN if signs(candidate.value) else label,
            says=f"{search.text.obs.gradient} {lacking(inverse)} `{candidate.says}`",
            changes=_whole_times(candidate, inverse),
            rank=WHOLE,
        )


_APPLIED: Final = (
    ("exp", np.exp),
    ("sigmoid", F64.sigmoid),
    ("tanh", np.tanh),
    ("log", np.log),
    ("sqrt", np.sqrt),
    ("sign", np.sign),
)


def _functions(found: list[Candidate]) -> Iterator[Candidate]:
    """Functions of the operator's arguments: factors of a reparametrisation."""
    for candidate in found:
        if candidate.ref.name and not candidate.says.startswith("ct"):
            for name, function in _APPLIED:
                with np.errstate(all="ignore"):
                    value = function(candidate.value)
                ref = replace(candidate.ref, of=function)
                yield replace(candidate, ref=ref, value=value, says=f"{name}({candidate.says})")


def _whole_times(candidate: Candidate, inverse: bool) -> Callable[[Run], Changes | None]:
    def changes(run: Run) -> Changes | None:
        v = candidate.ref.on(run, 0)
        if v is None or run.needed[-1].place is None:
            return None
        return {
            run.needed[-1].index: lambda node, operands: (
                node.call(operands) * (1 / v if inverse else v)
            )
        }

    return changes
