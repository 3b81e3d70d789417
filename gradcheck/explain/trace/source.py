"""What the source says where an operation stands: the expression, and those of its operands."""

from __future__ import annotations

import ast
import linecache
from functools import cache
from typing import Any, Final

from gradcheck.explain.trace.tape import Node, Place

LONGEST: Final = 60
"""Characters beyond which an expression is cut."""
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
    """What a value computed there is called, and its expression.

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
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


_shown = cache(shown)  # of trees that are kept, by their identity
