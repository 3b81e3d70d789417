"""A suite's counterpart of an operator as a user of its framework would write it.

Its module is parsed, not imported. Keywords become their values, and branches that values alone
decide are taken.
"""

from __future__ import annotations

import ast
import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

KNOWN: Final = {"math": math, "float": float}
"""What a test may use beside values."""


@dataclass(frozen=True, slots=True)
class Inlined:
    """`call` is an expression of the outputs; the lines `before` it define what it uses."""

    before: tuple[str, ...]
    call: str


def inlined(file: Path, name: str, primals: Sequence[str], values: Mapping[str, str]) -> Inlined:
    """The function `name` of a module, called with `primals` by position.

    `values` are expressions for its keywords. Functions that it calls, of its module or of one
    beside it, come with it.
    """
    source = _Source()
    source.read(file)
    function = source.functions[name]
    names = [a.arg for a in function.args.args]
    given: dict[str, ast.expr] = {n: _expression("None") for n in names[len(primals) :]}
    given |= {n: _expression(v) for n, v in values.items()}
    stored = {n.id for n in ast.walk(function)
              if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip
    begin = ast.parse(
        "\n".join(f"{n} = {ast.unparse(given.pop(n))}" for n in sorted(stored & {*given}))
    )
    given |= {own: _expression(p) for own, p in zip(names, primals, strict=False)}
    fold = _Fold({**source.aliases, **given}, primals)
    body = [*begin.body, *_folded(function.body, fold)]
    helpers = [*source.called(body, {name})]
    whole = len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value
    if not whole:
        helpers.append(_function(name, ", ".join(primals), body))
    call = ast.unparse(whole) if whole else f"{name}({', '.join(primals)})"
    lines = [line for helper in helpers for line in helper.splitlines()]
    imports = ["import math"] if any("math." in line for line in (*lines, call)) else []
    return Inlined((*imports, *lines), call)


@dataclass(slots=True)
class _Source:
    """The functions of a module, and what its aliases stand for."""

    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    aliases: dict[str, ast.expr] = field(default_factory=dict)

    def read(self, file: Path) -> None:
        """Add a module, and those beside it that it imports from."""
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.aliases[node.targets[0].id] = node.value  # a constant
            elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                self.functions |= dict(_lambdas(node.value))
            elif isinstance(node, ast.Import):
                aliases = (a for a in node.names if a.asname)
                self.aliases |= {str(a.asname): _expression(a.name) for a in aliases}
            elif isinstance(node, ast.ImportFrom):
                module = str(node.module)
                beside = file.with_name(f"{module.rpartition('.')[2]}.py")
                if beside.is_file():
                    self.read(beside)
                else:
                    wholes = {a.name: f"{module}.{a.name}" for a in node.names}
                    self.aliases |= {n: _expression(w) for n, w in wholes.items()}

    def called(self, body: Sequence[ast.stmt], seen: set[str]) -> Iterator[str]:
        """The functions that statements call; those that they call in turn come first."""
        for node in (n for statement in body for n in ast.walk(statement)):
            if isinstance(node, ast.Name) and node.id in self.functions and node.id not in seen:
                seen.add(node.id)
                function = self.functions[node.id]
                own = [*_folded(function.body, _Fold(self.aliases))]
                yield from self.called(own, seen)
                yield _function(node.id, ast.unparse(function.args), own)


def _lambdas(table: ast.Dict) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions that a table has without names, by their keys."""
    for key, entry in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(entry, ast.Lambda):
            body: list[ast.stmt] = [ast.Return(entry.body)]
            yield str(key.value), ast.FunctionDef(str(key.value), entry.args, body, [])


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _function(name: str, parameters: str, body: Sequence[ast.stmt]) -> str:
    lines = "\n".join(map(ast.unparse, body)).splitlines()
    return "\n".join([f"def {name}({parameters}):", *(f"    {line}" for line in lines)])


def _folded(body: Sequence[ast.stmt], fold: _Fold) -> Iterator[ast.stmt]:
    """Statements without docstrings, with values put in, up to the first that returns."""
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        known = fold.decided(statement.test) if isinstance(statement, ast.If) else None
        if known is None:
            left: Sequence[ast.stmt] = [fold.visit(copy.deepcopy(statement))]
        else:
            assert isinstance(statement, ast.If)
            left = [*_folded(statement.body if known else statement.orelse, fold)]
        yield from left
        if left and isinstance(left[-1], ast.Return):
            return


class _Primal:
    """A primal within a test: nothing is known of it but that it is there."""

    def __bool__(self) -> bool:
        raise TypeError


class _Fold(ast.NodeTransformer):
    """Puts values in the place of names, and takes the branches that they decide."""

    def __init__(self, values: Mapping[str, ast.expr], primals: Sequence[str] = ()) -> None:
        self.values = values
        self.known = {**KNOWN, **{name: _Primal() for name in primals}}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.values.get(node.id, node))

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        known = self.decided(node.test)
        if known is None:
            return self.generic_visit(node)
        return self.visit(node.body if known else node.orelse)

    def decided(self, test: ast.expr) -> bool | None:
        """Whether a test holds; None where that depends on more than values."""
        put = ast.fix_missing_locations(ast.Expression(self.visit(copy.deepcopy(test))))
        try:
            with warnings.catch_warnings(action="ignore"):  # a value that `is` None
                code = compile(put, "", "eval")
            return bool(eval(code, {"__builtins__": {}, **self.known}))  # noqa: S307  a suite's own
        except Exception:  # noqa: BLE001  what primals decide
            return None
