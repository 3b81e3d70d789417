"""What the source says where an operation stands: the expression, and those of its operands.

What the names in a quoted expression stand for: a formula's own shorthands, spelt out.
Values that an edit may bring in, by names that hold at every probe: numbers and arrays.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np

from gradcheck.explain.hypotheses.terms.tape import Node, Place
from gradcheck.explain.hypotheses.terms.text import Ref, Run, key_of
from gradcheck.explain.probe import Array

MAX_EXPRESSION_LENGTH: Final = 60
_DROPPED: Final = frozenset({"axis", "keepdims"})


def text_of(x: Any) -> str:
    """The expression that gave a value: a leaf's name, a bare number, or its source."""
    if not isinstance(x, Node):
        return f"{x:.6g}" if isinstance(x, float) else str(x)
    return x.name if x.place is None else _texts(x.place)[0] or x.kind


def expression(node: Node) -> str:
    """The source of an operation itself, whatever name it is given."""
    text = "" if node.place is None else _texts(node.place)[1]
    return text or text_of(node)


def operand_text(node: Node, k: int) -> str:
    """The expression of operand `k`, as it stands in the operation's own source."""
    parts = [] if node.place is None else _parts(_parsed(node.place)[1])
    return _shown(parts[k]) if k < len(parts) == len(node.operands) else text_of(node.operands[k])


@cache
def _texts(place: Place) -> tuple[str, str]:
    """The name and the expression of a value computed at a place.

    The first is the expression where it has no name; both are empty where there is no source.
    """
    target, tree = _parsed(place)
    if tree is None:
        return target, ""
    if any(isinstance(n, ast.Name) and n.id == target for n in ast.walk(tree)):
        target = ""  # the name stands for what was there before, too
    return target or _shown(tree), _shown(tree)


@cache
def span(place: Place) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Line and column where an expression begins, and where it ends."""
    code, offset = place
    line, end, start, stop = list(code.co_positions())[offset // 2]
    if line is None or end is None or start is None or stop is None:
        return None
    return (line, start), (end, stop)


@cache
def _parsed(place: Place) -> tuple[str, ast.expr | None]:
    """The name that the expression is given, if it is given one, and its tree."""
    name, found = place[0].co_filename, span(place)
    if found is None:
        return "", None
    (line, start), (end, stop) = found
    rows = [linecache.getline(name, k).encode() for k in range(line, end + 1)]
    if not all(rows):
        return "", None
    rows[-1] = rows[-1][:stop]
    rows[0] = rows[0][start:]
    try:
        tree = ast.parse("(" + b"".join(rows).decode() + ")", mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return "", None
    return _assigned(name).get(found, ""), tree


@cache
def _assigned(filename: str) -> dict[tuple[tuple[int, int], tuple[int, int]], str]:
    """Where in a file an expression is given a name, by the expression's span."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if value.end_lineno is not None and value.end_col_offset is not None:
                end = value.end_lineno, value.end_col_offset
                found[(value.lineno, value.col_offset), end] = node.targets[0].id
    return found


def _parts(tree: ast.expr | None) -> list[ast.expr]:
    if isinstance(tree, ast.BinOp):
        return [tree.left, tree.right]
    if isinstance(tree, ast.UnaryOp):
        return [tree.operand]
    if isinstance(tree, ast.Compare):
        return [tree.left, tree.comparators[0]]
    if isinstance(tree, ast.Call):
        found: list[ast.expr] = []
        for arg in tree.args:
            found.extend(arg.elts if isinstance(arg, (ast.List, ast.Tuple)) else [arg])
        return found
    return []


class _Short(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        bare = isinstance(node.value, ast.Name) and node.value.id in ("xp", "np")
        return ast.Name(node.attr) if bare else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        args = [a for a in node.args if not (isinstance(a, ast.Name) and a.id == "xp")]
        kept = [k for k in node.keywords if k.arg not in _DROPPED]
        return ast.Call(node.func, args, kept)


def shown(tree: ast.expr) -> str:
    """An expression without the arithmetic's name and the axes, cut where it is long."""
    shown = ast.unparse(_Short().visit(ast.parse(ast.unparse(tree), mode="eval").body))
    return (
        shown if len(shown) <= MAX_EXPRESSION_LENGTH else shown[: MAX_EXPRESSION_LENGTH - 1] + "…"
    )


_shown = cache(shown)  # of trees that are kept, by their identity


MAX_SPELT_OUT: Final = 4
_QUOTED: Final = re.compile(r"`([^`]*)`")
_NAME: Final = re.compile(r"\b[A-Za-z_]\w*\b(?!\()")


def glossary(function: Callable[..., Any], says: str) -> str:
    """A sentence for the names in `says` that `function` gives to its own values; "" for none."""
    known = _definitions(function)
    wanted = [name for quoted in _QUOTED.findall(says) for name in _NAME.findall(quoted)]
    spelt_out: dict[str, str] = {}
    while wanted and len(spelt_out) < MAX_SPELT_OUT:
        name = wanted.pop(0)
        if name in known and name not in spelt_out:
            spelt_out[name] = known[name]
            wanted += _NAME.findall(known[name])
    if not spelt_out:
        return ""
    spelt = [f"`{name}` is `{text}`" for name, text in spelt_out.items()]
    return f"in the reference, {', '.join(spelt)}"


@cache
def _definitions(function: Callable[..., Any]) -> dict[str, str]:
    """The values that a function, and those of its module that it calls, give a name once."""
    found: dict[str, str] = {}
    again: set[str] = set()
    for tree in _trees(function):
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    again |= {target.id} & found.keys()
                    found[target.id] = shown(node.value) if isinstance(node, ast.Assign) else ""
    return {name: text for name, text in found.items() if text and name not in again}


def _trees(function: Callable[..., Any]) -> Iterator[ast.AST]:
    """The text of a function, then of what it calls in its own module."""
    todo, seen = [function], {function}
    while todo:
        one = todo.pop(0)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, SyntaxError, TypeError):
            continue
        yield tree
        names = [n.func.id for n in ast.walk(tree)
                 if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]  # fmt: skip
        for name in names:
            called = getattr(one, "__globals__", {}).get(name)
            if not inspect.isfunction(called) or called in seen:
                continue
            if called.__module__ == one.__module__:
                seen.add(called)
                todo.append(called)


FACTOR_TOLERANCE: Final = 1e-6
"""Relative distance within which a fitted factor may be what a name says."""
SIGNIFICANT_SHARE: Final = 1e-6
"""Share of the largest element below which a quotient tells nothing."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number by its name.

    `kind` is what it was found as; `note` says what a letter in the name means.
    """

    says: str
    kind: Literal["number", "attribute", "count"]
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
            yield Number(f"{plain:g}", "number", _always(plain))
    for number in _known(run):
        found = number.of(run)
        if found is not None and math.isfinite(found) and _near(value, found):
            yield number
    if 1e-4 < abs(value) < 1e4:
        yield Number(f"{value:.6g}", "number", _always(value))


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= FACTOR_TOLERANCE * abs(b)


def _always(number: float) -> Callable[[Run], float]:
    return lambda _: number


def _known(run: Run) -> Iterator[Number]:
    for name in (k for k, v in run.probe.attrs.items() if _real(v)):
        for says, f in _OF_ATTR:
            yield Number(says.replace("a", name), "attribute", _attribute(name, f))
    axes = list(_axes(run))
    for axis, (says, f) in itertools.product(axes, _OF_COUNT):
        note = f", n being the length of axis {axis[1]} of {axis[0]}"
        yield Number(says, "number" if "sqrt" in says else "count", _count((axis,), f), note)
    for one, two in itertools.combinations(axes, 2):
        note = f", n being that of axes {one[1]} of {one[0]} and {two[1]} of {two[0]} together"
        yield Number("n", "count", _count((one, two), lambda n: n), note)
        yield Number("1/n", "count", _count((one, two), lambda n: 1 / n), note)


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
    needed = {node.index for node in run.needed}
    for node in run.tape.nodes:
        turns = run.chains.get((node.chain, node.kind), [node])
        if (
            node.chain
            and len(turns) == 1
            and (node.index in needed or node.index >= run.tape.length)
        ):
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
