"""What a mutation of the engine is: one small change of a module's text, with a name that stays.

The name holds the function and the change, never a line number. The draw goes by the hash of the
name: code that is added moves none of the others.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST = 110
"""Characters of a name that show the change."""
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OPPOSITE = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip
CALLS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum",
    "maximum": "minimum", "zeros": "ones", "ceil": "floor", "floor": "ceil", "argmax": "argmin",
    "argmin": "argmax", "isfinite": "isinf",
}  # fmt: skip
SELECTS = ("min", "max", "minimum", "maximum")


@dataclass(frozen=True)
class Mutation:
    """`path` (relative to the repository) with the bytes `start` to `end` replaced by `text`.

    `lines` are those of its statement; none where that runs on import.
    """

    path: str
    line: int
    lines: frozenset[int]
    where: str
    kind: str
    change: str
    start: int
    end: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.path} {self.where}: {self.change}"

    @property
    def place(self) -> float:
        """Where in 0 … 1 the draw finds it."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) / 2**64

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutations(path: str, source: bytes) -> list[Mutation]:
    """All of a module, in the order of its text, each under a name of its own."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: Counter[str] = Counter()
    found = []
    tree = ast.parse(source)
    called = lines_of_functions(tree)
    for where, statement, node, kind, new in _of(tree, "", None):
        old = ast.unparse(node)
        change = f"{_short(old)} → {_short(new)}"
        seen[where + change] += 1
        if (count := seen[where + change]) > 1:
            change += f" ({count})"
        body = getattr(statement, "body", None)  # of a compound statement, its head
        last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = new if isinstance(node, ast.stmt) else f"({new})"
        lines = called & {*range(statement.lineno, last + 1)}
        found.append(Mutation(path, statement.lineno, lines, where, kind, change, start, end, text))
    return found


def lines_of_functions(tree: ast.AST) -> frozenset[int]:
    """The lines that run when a function is called, and not on import."""
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(
        line for body in bodies for line in range(body[0].lineno, body[-1].end_lineno + 1)
    )


def chosen(table: Path, root: Path) -> list[Mutation]:
    """Those that `table` asks for; exits where a text to replace is not there exactly once."""
    return [_asked(entry, root) for entry in tomllib.loads(table.read_text())["mutation"]]


def _asked(entry: dict[str, str], root: Path) -> Mutation:
    path, old, new = f"gradcheck/{entry['file']}", entry["old"], entry["new"]
    source = (root / path).read_text()
    if source.count(old) != 1:
        sys.exit(f"chosen.toml, {entry['says']!r}: {path} has not exactly once {old!r}")
    before = source[: source.index(old)]
    start, line = len(before.encode()), before.count("\n") + 1
    end, last = start + len(old.encode()), line + old.rstrip("\n").count("\n")
    lines = lines_of_functions(ast.parse(source)) & {*range(line, last + 1)}
    return Mutation(path, line, lines, "by hand", "by hand", entry["says"], start, end, new)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST // 2 else f"{text[: LONGEST // 2 - 1]}…"


def _of(node, where, statement) -> Iterator[tuple[str, ast.stmt, ast.AST, str, str]]:
    """(function, statement, what is replaced, kind, by what) in a node."""
    if isinstance(node, ast.stmt):
        statement = node
    yield from ((where, statement, old, kind, new) for kind, old, new in _changes(node))
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue  # no part of what is computed
        inside = where
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inside = f"{where}.{node.name}".lstrip(".")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not where:
            inside = ast.unparse(
                node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            )
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _idle(child) and not _alike(node, child):
                yield from _of(child, inside, statement)


def _idle(node: ast.AST) -> bool:
    """What is words or types: texts, imports, and what type checkers alone read."""
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TYPE_CHECKING":
        return True
    return isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in node.bases)


def _alike(node: ast.AST, child: ast.AST) -> bool:
    """What may change without a trace: NumPy takes any negative size for the unknown one, and
    `zip(strict=)` says what its lengths are anyway."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(child, ast.keyword):
        return child.arg == "strict"
    return ast.unparse(child) == "-1" and ast.unparse(node.func).endswith(".reshape")


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """(kind, what is replaced, by what) of a node itself."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if isinstance(test, ast.Name | ast.Call | ast.Attribute):
                yield "condition", test, f"not {ast.unparse(test)}"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "statement", node, "return None"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "statement", node, "pass"
        case ast.Continue():
            yield "statement", node, "break"
        case ast.Break():
            yield "statement", node, "continue"
        case ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield "arithmetic", node, _with(node, op=ARITHMETIC[type(op)]())
        case ast.expr():
            yield from ((kind, node, new) for kind, new in _values(node))


def _values(node: ast.expr) -> Iterator[tuple[str, str]]:
    """(kind, by what) an expression is replaced."""
    match node:
        case ast.Compare(ops=[op]):
            for kind, table in (("boundary", BOUNDARY), ("comparison", OPPOSITE)):
                if type(op) in table:
                    yield kind, _with(node, ops=[table[type(op)]()])
        case ast.BoolOp(op=op, values=[left, right]):
            yield "and/or", _with(node, op=ast.And() if isinstance(op, ast.Or) else ast.Or())
            yield from (("operand", ast.unparse(side)) for side in (left, right))
        case ast.BoolOp(values=values):
            for i in range(len(values)):
                yield "operand", _with(node, values=values[:i] + values[i + 1 :])
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield "not", ast.unparse(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            if not (_is_words(left) or _is_words(right)):
                yield "arithmetic", _with(node, op=ARITHMETIC[type(op)]())
                yield from (("operand", ast.unparse(side)) for side in (left, right))
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=int() as value):
            yield from (("constant", str(new)) for new in sorted({value + 1, value * 10} - {value}))
        case ast.Constant(value=float() as value):
            yield "constant", repr(value * 10 if value else 1.0)
        case ast.Call(func=ast.Name(id=name), args=args) if name in CALLS | {"abs": ""}:
            yield from _calls(node, "id", args)
        case ast.Call(func=ast.Attribute(attr=name), args=args) if name in CALLS | {"abs": ""}:
            yield from _calls(node, "attr", args)


def _calls(node: ast.Call, field: str, args: list[ast.expr]) -> Iterator[tuple[str, str]]:
    name = getattr(node.func, field)
    if name == "abs" or (name in SELECTS and len(args) == 2):
        yield from (("operand", ast.unparse(a)) for a in args if not isinstance(a, ast.Starred))
    if name in CALLS:
        func = copy.copy(node.func)
        setattr(func, field, CALLS[name])
        yield "call", _with(node, func=func)


def _is_words(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _with(node, **fields) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(ast.fix_missing_locations(changed))
