"""Values that an edit may bring in, by names that hold at every probe: numbers and arrays."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradcheck.explain.probe import Array
from gradcheck.explain.trace.run import Ref, Run, key_of
from gradcheck.explain.trace.source import text_of
from gradcheck.explain.trace.tape import Node

NEAR: Final = 1e-6
"""Relative distance within which a fitted factor may be what a name says."""
SIGNIFICANT: Final = 1e-6
"""Share of the largest element below which a quotient tells nothing."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number by its name; `label` is F for a number, A for an attribute, R for a count.

    `note` says what a letter in the name means.
    """

    says: str
    label: str
    of: Callable[[Run], float | None]
    note: str = ""

    def times(self, quoted: str) -> str:
        """In words, beside a quotation: a count is N where `n` has a meaning there already."""
        says = f"{self.says} times the right value{self.note}"
        taken = self.note and re.search(r"\bn\b", quoted)
        return re.sub(r"\bn\b", "N", says) if taken else says


def numbers(run: Run, value: float) -> Iterator[Number]:
    """All names of a number at one probe, the likeliest first: 2 and 1/2, then counts."""
    for plain in (2.0, 0.5, -2.0, -0.5):
        if _near(value, plain):
            yield Number(f"{plain:g}", "F", _always(plain))
    for number in _known(run):
        found = number.of(run)
        if found is not None and math.isfinite(found) and _near(value, found):
            yield number
    if 1e-4 < abs(value) < 1e4:
        yield Number(f"{value:.6g}", "F", _always(value))


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= NEAR * abs(b)


def _always(number: float) -> Callable[[Run], float]:
    return lambda _: number


def _known(run: Run) -> Iterator[Number]:
    for name in (k for k, v in run.probe.attrs.items() if _real(v)):
        for says, f in _OF_ATTR:
            yield Number(says.replace("a", name), "A", _attribute(name, f))
    axes = list(_axes(run))
    for axis, (says, f) in itertools.product(axes, _OF_COUNT):
        note = f", n being the length of axis {axis[1]} of {axis[0]}"
        yield Number(says, _class(says), _count((axis,), f), note)
    for one, two in itertools.combinations(axes, 2):
        note = f", n being that of axes {one[1]} of {one[0]} and {two[1]} of {two[0]} together"
        yield Number("n", "R", _count((one, two), lambda n: n), note)
        yield Number("1/n", "R", _count((one, two), lambda n: 1 / n), note)


def _class(says: str) -> str:
    return "F" if "sqrt" in says else "R"


def _real(v: Any) -> bool:
    return isinstance(v, (int, float)) and not isinstance(v, bool)


_OF_ATTR: Final[tuple[tuple[str, Callable[[float], float]], ...]] = (
    ("a", lambda a: a),
    ("1/a", lambda a: 1 / a),
    ("a**2", lambda a: a * a),
    ("1/a**2", lambda a: 1 / (a * a)),
    ("sqrt(a)", math.sqrt),
    ("1/sqrt(a)", lambda a: 1 / math.sqrt(a)),
    ("1 - a", lambda a: 1 - a),
    ("1/(1 - a)", lambda a: 1 / (1 - a)),
)
_OF_COUNT: Final[tuple[tuple[str, Callable[[float], float]], ...]] = (
    ("n", lambda n: n),
    ("1/n", lambda n: 1 / n),
    ("sqrt(n)", math.sqrt),
    ("1/sqrt(n)", lambda n: 1 / math.sqrt(n)),
    ("(n - 1)/n", lambda n: (n - 1) / n),
    ("n/(n - 1)", lambda n: n / (n - 1)),
)


def _attribute(name: str, f: Callable[[float], float]) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        value = run.probe.attrs.get(name)
        return _safe(f, value) if _real(value) else None

    return of


def _safe(f: Callable[[float], float], *values: Any) -> float | None:
    try:
        return float(f(*values))
    except (ArithmeticError, ValueError):
        return None


def _axes(run: Run) -> Iterator[tuple[str, int]]:
    seen = set()
    for name, leaf in run.leaves.items():
        for axis in range(-leaf.value.ndim, 0):
            length = leaf.value.shape[axis]
            if length > 1 and (length, axis) not in seen:
                seen.add((length, axis))
                yield name, axis


def _count(
    axes: tuple[tuple[str, int], ...], f: Callable[[float], float]
) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        product = 1.0
        for name, axis in axes:
            leaf = run.leaves.get(name)
            if leaf is None or leaf.value.ndim < -axis:
                return None
            product *= leaf.value.shape[axis]
        return _safe(f, product)

    return of


@dataclass(frozen=True, slots=True)
class Candidate:
    """An array of the text, the value that it has at the first probe, and its expression.

    `flows` tells whether the cotangent has gone into it.
    """

    ref: Ref
    value: Array
    says: str
    key: tuple[tuple[int, ...], bytes]
    flows: bool


def candidates(run: Run) -> list[Candidate]:
    """All arrays of numbers at one probe that differ: arguments, outputs, intermediate values.

    Those that the text says in fewest words come first.
    """
    found: list[Candidate] = []
    seen: set[Any] = set()

    def add(ref: Ref, node: Node, says: str) -> None:
        value = node.value
        key = key_of(node)
        if value.dtype.kind == "f" and not constant(value) and key not in seen:
            seen.add(key)
            found.append(Candidate(ref, value, says, key, node.index in run.with_ct))

    for name, leaf in run.leaves.items():
        add(Ref(name=name), leaf, name)
    for k, out in enumerate(run.tape.forward):
        if out is not None:
            add(Ref(output=k), out, "the output" if len(run.tape.forward) == 1 else f"output {k}")
    ours = {node.index for node in run.needed}
    for node in run.tape.nodes:
        turns = run.chains.get((node.chain, node.kind), [node])
        if node.chain and len(turns) == 1 and (node.index in ours or node.index >= run.tape.length):
            add(Ref(chain=node.chain, kind=node.kind), node, text_of(node))
    return sorted(found, key=lambda candidate: len(candidate.says))


def constant(value: Array) -> bool:
    """Whether all elements are equal: such an array tells as little as a number."""
    return bool(value.size < 2 or np.all(value == value.flat[0]))


def factor_at(candidate: Candidate, shape: tuple[int, ...]) -> Array | None:
    """A candidate's value in a shape; None where it does not fit."""
    try:
        return np.broadcast_to(candidate.value, shape)
    except ValueError:
        return None


__all__ = ["Candidate", "Number", "candidates", "constant", "factor_at", "key_of", "numbers"]
