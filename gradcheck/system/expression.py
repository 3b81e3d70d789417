"""Expressions that users write in manifests, baselines and `-k`: checked, and compiled once.

The syntax is Python's, and only the nodes below are known: no attributes, no lambdas, no calls but
of the functions that a language names. A checked tree becomes nested closures; evaluating it walks
no tree again.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

Names = Mapping[str, Any]
Evaluate = Callable[[Names], Any]
"""Names to the value of an expression."""
Operators = Mapping[type[ast.AST], Callable[..., Any]]

OPERATORS: Final[Operators] = {
    ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda x, y: operator.contains(y, x),
    ast.NotIn: lambda x, y: not operator.contains(y, x),
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
"""Comparisons and negation; a language with arithmetic adds its own."""


class UndefinedNameError(LookupError):
    """An expression uses a name without a value; `name` is that name."""

    def __init__(self, name: str) -> None:
        """Keep the name."""
        super().__init__(f"{name!r} is not defined")
        self.name = name


def parsed(text: str, max_chars: int, purpose: str = "") -> ast.expr:
    """The syntax tree of an expression, unchecked.

    Raises:
        ValueError: `text` has more than `max_chars` characters, or is not an expression.
    """
    if len(text) > max_chars:
        length = f"{len(text)}" if purpose else f"{len(text):,}"
        raise ValueError(f"it is {length} characters long; {max_chars} are enough{purpose}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a SyntaxWarning is a mistake here
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, SyntaxWarning, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it cannot be read: {getattr(error, 'msg', None) or error}") from None


def compiled(
    node: ast.AST,
    operators: Operators = OPERATORS,
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Evaluate:
    """A function from names to the value of the expression.

    A name that has no value stands for the function of that name.

    Raises:
        ValueError: the tree holds a node or operator that is not known.
    """
    compiler = _Compiler(operators, functions or {})
    return compiler.closure(node)


class _Compiler:
    """One closure per node of a tree."""

    def __init__(self, operators: Operators, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.operators, self.functions = operators, functions

    def closure(self, node: ast.AST) -> Evaluate:
        make = getattr(self, f"_{type(node).__name__.lower()}", None)
        if make is None:
            raise ValueError(f"{type(node).__name__} is not allowed")
        found: Evaluate = make(node)
        return found

    def _constant(self, node: ast.Constant) -> Evaluate:
        value = node.value
        return lambda names: value

    def _name(self, node: ast.Name) -> Evaluate:
        name = node.id

        def look_up(names: Names) -> Any:
            if name in names:
                return names[name]
            if name in self.functions:
                return self.functions[name]
            raise UndefinedNameError(name)

        return look_up

    def _list(self, node: ast.List) -> Evaluate:
        parts = [self.closure(part) for part in node.elts]
        return lambda names: [part(names) for part in parts]

    def _tuple(self, node: ast.Tuple) -> Evaluate:
        parts = [self.closure(part) for part in node.elts]
        return lambda names: tuple(part(names) for part in parts)

    def _unaryop(self, node: ast.UnaryOp) -> Evaluate:
        apply, operand = self.operators[type(node.op)], self.closure(node.operand)
        return lambda names: apply(operand(names))

    def _binop(self, node: ast.BinOp) -> Evaluate:
        apply = self.operators[type(node.op)]
        left, right = self.closure(node.left), self.closure(node.right)
        return lambda names: apply(left(names), right(names))

    def _boolop(self, node: ast.BoolOp) -> Evaluate:
        parts = [self.closure(part) for part in node.values]
        stop = isinstance(node.op, ast.Or)

        def evaluate(names: Names) -> Any:
            value: Any = not stop
            for part in parts:
                value = part(names)
                if bool(value) is stop:
                    break
            return value

        return evaluate

    def _compare(self, node: ast.Compare) -> Evaluate:
        first = self.closure(node.left)
        steps = [
            (self.operators[type(how)], self.closure(right))
            for how, right in zip(node.ops, node.comparators, strict=True)
        ]

        def evaluate(names: Names) -> Any:
            left, holds = first(names), True
            for compare, closure in steps:
                if not holds:
                    break
                right = closure(names)
                left, holds = right, compare(left, right)
            return holds

        return evaluate

    def _ifexp(self, node: ast.IfExp) -> Evaluate:
        test, then, other = (self.closure(part) for part in (node.test, node.body, node.orelse))
        return lambda names: then(names) if test(names) else other(names)

    def _subscript(self, node: ast.Subscript) -> Evaluate:
        value, key = self.closure(node.value), self.closure(node.slice)
        return lambda names: value(names)[key(names)]

    def _slice(self, node: ast.Slice) -> Evaluate:
        parts = [
            None if part is None else self.closure(part)
            for part in (node.lower, node.upper, node.step)
        ]
        return lambda names: slice(*(None if part is None else part(names) for part in parts))

    def _call(self, node: ast.Call) -> Evaluate:
        function = self.functions[node.func.id] if isinstance(node.func, ast.Name) else None
        if function is None:
            raise ValueError(f"{ast.unparse(node.func)} cannot be called")
        arguments = [self.closure(argument) for argument in node.args]
        keywords = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ValueError("** is not allowed")
            keywords[keyword.arg] = self.closure(keyword.value)
        return lambda names: function(
            *(argument(names) for argument in arguments),
            **{name: value(names) for name, value in keywords.items()},
        )
