"""Operations: a product, a choice or a reduction of the text done otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.names import Number, numbers, operand_text, text_of
from gradcheck.explain.hypotheses.terms.tape import Change, Node
from gradcheck.explain.hypotheses.terms.text import (
    Changes,
    Described,
    Edit,
    Run,
    Search,
    Target,
    all_of,
    at,
)
from gradcheck.explain.hypotheses.terms.weights import (
    BENT,
    FACTOR,
    WHOLE,
    affine,
    fitted,
    result_times,
)
from gradcheck.spec.defect import Defect


def factors(search: Search) -> Iterator[Edit]:
    """Every product and quotient with one operand left out, squared or inverted."""
    run, own = search.run, search.text.obs.gradient
    for node, target, _ in search.targets(lambda node: node.kind in ("multiply", "divide")):
        for k in (0, 1):
            says, divisor = operand_text(node, k), node.kind == "divide" and k == 1
            what = "divisor" if divisor else "factor"
            for change, how, less in (
                (_one(k), f"lacks the {what} `{says}`", True),
                (_twice(k), f"has the {what} `{says}` twice", False),
                (_other_side(k), f"is {'multiplied' if divisor else 'divided'} by `{says}`", False),
            ):
                for edit in search.fitting("", "", at(target, change)):
                    whole = node is run.needed[-1]
                    yield replace(
                        edit,
                        label=_label(search, node, k, target, less),
                        says=f"{own} {how}" if whole else f"{own}: `{text_of(node)}` {how}",
                        rank=WHOLE if whole else FACTOR if _linear(search, target) else BENT,
                    )


def _one(k: int) -> Change:
    return lambda node, ops: np.broadcast_to(node.call([*ops[:k], 1.0, *ops[k + 1 :]]), _shape(ops))


def _twice(k: int) -> Change:
    return lambda node, ops: node.call([*ops[:k], ops[k] * ops[k], *ops[k + 1 :]])


def _other_side(k: int) -> Change:
    return lambda node, ops: node.call([*ops[:k], 1.0 / ops[k], *ops[k + 1 :]])


def _shape(ops: list[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(o) for o in ops))


def _label(search: Search, node: Node, k: int, target: Target, less: bool) -> str:
    """F; D where a power of one value is another, or the product stands inside a function.

    A value of forward that lacks a factor is another value: V.
    """
    run, one, other = search.run, node.operands[k], node.operands[1 - k]
    if isinstance(one, Node) and one.name.startswith("ct"):
        return Defect.COTANGENT
    if one is other or (isinstance(one, Node) and np.isin(one.value, (0.0, 1.0)).all()):
        return Defect.DERIVATIVE  # another power; or a mask
    array = isinstance(one, Node) and one.value.size > 1
    if node.index in run.with_ct:
        if array and run.elementwise:
            return Defect.DERIVATIVE
        return (
            Defect.REDUCTION
            if isinstance(one, int) and not isinstance(one, bool) and one > 2
            else Defect.SCALE
        )
    if array and less and not run.elementwise and isinstance(other, Node):
        return Defect.SAVED_VALUE
    if not _linear(search, target):
        return Defect.DERIVATIVE
    return Defect.DERIVATIVE if array and run.elementwise and not less else Defect.SCALE


def _linear(search: Search, target: Target) -> bool:
    """Whether the gradient is linear in the results of these operations."""
    run = search.run
    twice, none = (search.text.tried(run, at(target, result_times(c))(run)) for c in (2.0, 0.0))
    return none is not None and affine(run.needed[-1].value, none, twice)


COMPARISONS: Final = {
    "less": np.less_equal,
    "less_equal": np.less,
    "greater": np.greater_equal,
    "greater_equal": np.greater,
}
"""Each with the one that differs in a tie."""
EPSILONS: Final = tuple(10.0**k for k in range(-3, -13, -1))


def masks(search: Search) -> Iterator[Edit]:
    """Every choice of the text made otherwise."""
    yield from search.everywhere(_mask_changes)


def _mask_changes(node: Node, run: Run) -> Iterator[Described]:
    me = f"`{text_of(node)}`"
    if node.kind == "where" and len(node.operands) == 3:
        label = Defect.INDEX if positional(node.operands[0], run) else Defect.DERIVATIVE
        mask, yes, no = (operand_text(node, k) for k in range(3))
        if not _constant_mask(
            node.operands[0]
        ):  # else another value stands there, not another mask
            yield label, f"`{yes}` is taken everywhere, not only where `{mask}`", _taken(1)
            yield label, f"`{no}` is taken everywhere, also where `{mask}`", _taken(2)
            yield label, f"`{mask}` is inverted", lambda n, ops: n.call([ops[0], ops[2], ops[1]])
    elif node.kind in ("maximum", "minimum"):
        for k in (0, 1):
            yield Defect.DERIVATIVE, f"{me} is taken for `{operand_text(node, k)}`", _one_operand(k)
    elif node.kind in COMPARISONS:
        label = Defect.INDEX if positional(node, run) else Defect.DERIVATIVE
        tie = COMPARISONS[node.kind]
        yield (
            Defect.INDEX if label == Defect.INDEX else Defect.KINK,
            f"{me} is decided the other way in a tie",
            _replaced_by(tie),
        )
        for k in (0, 1) if label == Defect.DERIVATIVE else ():
            for eps in EPSILONS:
                yield (
                    Defect.DERIVATIVE,
                    f"the threshold of {me} is off by {eps:g}",
                    _threshold_off(k, eps),
                )
        other = Defect.ATTRIBUTE if _given(node, run) else label
        yield label, f"{me} is inverted", lambda n, ops: np.logical_not(n.call(ops))
        yield other, f"{me} is taken to hold everywhere", _all(True)
        yield other, f"{me} is taken to hold nowhere", _all(False)
    elif node.kind in ("equal", "not_equal"):
        label = (
            Defect.INDEX
            if positional(node, run)
            else Defect.MASK
            if _dropped(node)
            else Defect.DERIVATIVE
        )
        yield label, f"{me} is inverted", lambda n, ops: np.logical_not(n.call(ops))
        yield label, f"{me} is taken to hold everywhere", _all(True)
        yield label, f"{me} is taken to hold nowhere", _all(False)
    elif node.kind in ("bitwise_and", "bitwise_or", "logical_and", "logical_or"):
        label = Defect.INDEX if positional(node, run) else Defect.DERIVATIVE
        for k in (0, 1):
            lost = (
                Defect.ATTRIBUTE if _given(node.operands[1 - k], run) else label
            )  # with what it compares
            yield lost, f"{me} looks at `{operand_text(node, k)}` alone", _one_operand(k)
    elif node.kind == "causal":
        for shift in (1, -1):
            yield Defect.INDEX, f"the causal mask is off by {shift:+d}", _shifted(shift)
        yield Defect.INDEX, "the causal mask is left out", _all(True)
        yield Defect.LAYOUT, "the causal mask is transposed", _transposed


def _constant_mask(mask: Any) -> bool:
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
    return not isinstance(x, Node) or not any(
        node.name in run.probe.names or node.name.startswith("ct") for node in run.ancestors(x)
    )


def _taken(k: int) -> Change:
    return lambda node, ops: np.broadcast_to(ops[k], np.shape(node.value))


def _one_operand(k: int) -> Change:
    return lambda node, ops: np.broadcast_to(ops[k], np.broadcast_shapes(*map(np.shape, ops)))


def _threshold_off(k: int, eps: float) -> Change:
    return lambda node, ops: node.call([*ops[:k], ops[k] + eps, *ops[k + 1 :]])


def _replaced_by(function: Any) -> Change:
    return lambda node, ops: function(*ops)


def _all(value: bool) -> Change:
    return lambda node, ops: np.full(np.shape(node.call(ops)), value)


def _shifted(by: int) -> Change:
    return lambda node, ops: np.tri(ops[0], ops[1], by, dtype=bool)


def _transposed(node: Node, ops: list[Any]) -> Any:
    return ~np.tri(ops[0], ops[1], -1, dtype=bool)


def reductions(search: Search) -> Iterator[Edit]:
    """Every sum and mean of the text with another count, axis or extent."""
    yield from search.everywhere(_reduction_changes)
    yield from _together(search)
    yield from _flowing(search)


def _all_of_kind(kind: str, nodes: Iterable[Node]) -> tuple[Target, ...]:
    places = dict.fromkeys(n.place for n in nodes if n.kind == kind)
    return tuple(Target(place=place, kind=kind) for place in places if place is not None)


def _together(search: Search) -> Iterator[Edit]:
    for kind in ("mean", "sum"):
        every = _all_of_kind(kind, search.run.needed)
        for label, says, change in _counted(kind) if len(every) > 1 else ():
            whole = f"{search.text.obs.gradient}: each {kind} {says}"
            yield from search.fitting(label, whole, all_of(every, change))


def _flowing(search: Search) -> Iterator[Edit]:
    """All means, or all sums, that the cotangent flows through, weighted by one number."""
    text, run = search.text, search.run
    for kind in ("mean", "sum"):
        every = _all_of_kind(kind, (n for n in run.needed if n.index in run.with_ct))
        if len(every) < 2:
            continue
        without = text.tried(run, all_of(every, result_times(0.0))(run))
        c = None if without is None else fitted(run.needed[-1].value, without, search.like.got)
        for number in () if c is None else numbers(run, c):
            counts = number.kind == "count" or (
                number.kind == "attribute" and isinstance(run.probe.attrs.get(_attr(number)), int)
            )
            yield from search.fitting(
                Defect.REDUCTION if counts else Defect.SCALE,
                f"{text.obs.gradient}: each {kind} of what comes from the cotangent is "
                f"{number.says} times the right value{number.note}",
                _weighted(every, number),
            )


def _attr(number: Number) -> str:
    return number.says.removeprefix("1/")


def _weighted(every: tuple[Target, ...], number: Number) -> Callable[[Run], Changes | None]:
    def changes(run: Run) -> Changes | None:
        value = number.of(run)
        return None if value is None else all_of(every, result_times(value))(run)

    return changes


def _reduction_changes(node: Node, _: Run) -> Iterator[Described]:
    if node.kind in ("sum", "mean", "reduce_to"):
        for label, says, change in _reduced(node):
            yield label, f"`{text_of(node)}` {says}", change


def _reduced(node: Node) -> Iterator[Described]:
    yield from _counted(node.kind)
    if node.kind == "reduce_to" or not isinstance(node.kwargs.get("axis", _given_axis(node)), int):
        return
    yield (
        Defect.TERM,
        "is not formed: each element takes its own value alone",
        lambda n, ops: ops[0],
    )
    for axis in range(np.ndim(_summand(node))):
        if axis != _axis(node) % np.ndim(_summand(node)):
            yield Defect.INDEX, f"runs over axis {axis}", _along(axis)
    yield Defect.ACCUMULATION, "keeps its last element alone", _kept(slice(-1, None))
    yield Defect.ACCUMULATION, "keeps its first element alone", _kept(slice(0, 1))
    yield Defect.INDEX, "leaves out its last element", _kept(slice(0, -1))
    yield Defect.INDEX, "leaves out its first element", _kept(slice(1, None))


def _counted(kind: str) -> Iterator[Described]:
    if kind != "mean":
        yield Defect.REDUCTION, "is a mean, not a sum", _by_count(lambda n: 1 / n)
        return
    yield Defect.REDUCTION, "is a sum, not a mean", _by_count(lambda n: n)
    yield (
        Defect.REDUCTION,
        "divides by n - 1, where n elements are averaged",
        _by_count(lambda n: n / (n - 1)),
    )
    yield Defect.REDUCTION, "divides by the root of the count", _by_count(np.sqrt)
    yield Defect.REDUCTION, "divides by the number of all elements", _by_total


def _by_total(node: Node, ops: list[Any]) -> Any:
    return node.call(ops) / max(np.size(node.value), 1)


def _summand(node: Node) -> Any:
    operand = node.operands[0]
    return operand.value if isinstance(operand, Node) else operand


def _given_axis(node: Node) -> Any:
    return node.operands[1] if len(node.operands) > 1 else None


def _axis(node: Node) -> int:
    return int(node.kwargs.get("axis", _given_axis(node)))


def _by_count(factor: Callable[[float], float]) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        count = np.size(ops[0]) / max(np.size(node.value), 1)
        return node.call(ops) * factor(count)

    return change


def _along(axis: int) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        kwargs = {"keepdims": bool(ops[2]) if len(ops) > 2 else False, **node.kwargs}
        return node.function(ops[0], **{**kwargs, "axis": axis})

    return change


def _kept(part: slice) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        axis = _axis(node) % np.ndim(ops[0])
        count = np.shape(ops[0])[axis]
        kept = ops[0][(*(slice(None),) * axis, part)]
        share = kept.shape[axis] / count if node.kind == "mean" and count else 1.0
        return node.call([kept, *ops[1:]]) * share

    return change
