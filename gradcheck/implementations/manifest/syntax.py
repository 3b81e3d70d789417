"""What an expression of a manifest may be: its syntax, its functions, the names that it mentions.

Arithmetic, comparisons, conditions, lists and a fixed set of functions; no attribute access, no
call of anything else, no power that could fill the memory.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import numpy as np

from gradcheck.errors import ManifestError
from gradcheck.spec.operator import Array

LONGEST: Final = 2_000
"""Characters of an expression."""
EXPONENT: Final = 64
NODES: Final = (
    ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Call, ast.keyword, ast.Subscript, ast.Slice, ast.List, ast.Tuple, ast.And, ast.Or,
)  # fmt: skip


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    ok = not whole or (abs(exponent) <= EXPONENT and abs(base) < 1 << EXPONENT)
    if not ok:
        raise ValueError(f"{base} ** {exponent} is too large for a size")
    return base**exponent


def _times(left: Any, right: Any) -> Any:
    if isinstance(left, (list, tuple, str)) or isinstance(right, (list, tuple, str)):
        raise TypeError("only numbers can be multiplied")
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, str):  # would format
        raise TypeError("only numbers can be divided")
    return left % right


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return [*left, *right]
    return left + right


OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: _plus, ast.Sub: operator.sub, ast.Mult: _times, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: _modulo, ast.Pow: _power,
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda x, y: operator.contains(y, x),
    ast.NotIn: lambda x, y: not operator.contains(y, x),
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip


def _dims(x: Array) -> list[int]:
    return [int(n) for n in np.shape(x)]


def _item(x: Array) -> Any:
    return np.asarray(x).item()


def _extreme(name: str) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        if len(values) == 1:
            return getattr(np, name)(values[0]).item()
        return {"min": min, "max": max}[name](*values)

    return extreme


def _mean(x: Any, axis: int | None = None) -> Any:
    return np.mean(x, axis=axis)


def _sum(x: Any, axis: int | None = None) -> Any:
    return np.sum(x, axis=axis)


OF_TENSORS: Final[dict[str, Callable[..., Any]]] = {
    "dim": lambda x, axis: _dims(x)[axis],
    "dims": _dims,
    "ndim": lambda x: len(_dims(x)),
    "size": lambda x: math.prod(_dims(x)),
    "rows": lambda x: math.prod(_dims(x)[:-1]),
    "item": _item,
    "sum": _sum,
    "mean": _mean,
}
"""Functions whose first argument is a primal, even where a parameter has the same name."""
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **OF_TENSORS,
    "max": _extreme("max"), "min": _extreme("min"), "prod": math.prod, "abs": abs,
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "int": int, "float": float, "len": len,
    "reversed": lambda values: list(reversed(values)),
}  # fmt: skip
COTANGENT: Final = "cotangent"
"""What expressions of a VJP call the incoming cotangent: `item(cotangent)`."""
HAS: Final = "has"
"""`has(w)`: whether the dialect has the primal w. It is answered before anything is evaluated."""


@dataclass(frozen=True, slots=True)
class Names:
    """What an expression mentions: first arguments of tensor functions, and other names."""

    tensors: frozenset[str]
    others: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Every name."""
        return self.tensors | self.others


@lru_cache(maxsize=4096)
def tree(text: str) -> ast.expr:
    """The expression's tree.

    Raises:
        ValueError: it is none, or has something in it that is not allowed.
    """
    if len(text) > LONGEST:
        raise ValueError(f"it is {len(text)} characters long; {LONGEST} are enough for a size")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python warns of is a mistake here
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it cannot be read: {getattr(error, 'msg', None) or error}") from None
    for node in ast.walk(tree):
        allowed = isinstance(node, NODES) or type(node) in OPERATORS
        if not allowed:
            raise ValueError(f"{_called(node)} is not allowed; use arithmetic and {_known()}")
        if isinstance(node, ast.Call):
            _check_call(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, (bytes, complex)):
            raise ValueError(f"{node.value!r} is not allowed")
    return tree


def _check_call(node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name):
        raise ValueError(f"{ast.unparse(node.func)} cannot be called; use {_known()}")
    name = node.func.id
    if name == HAS:
        if len(node.args) != 1 or not isinstance(node.args[0], ast.Name) or node.keywords:
            raise ValueError("has takes the name of one primal: has(w)")
    elif name not in FUNCTIONS:
        raise ValueError(f"there is no function `{name}`{_near(name, [HAS, *FUNCTIONS])}")


def _called(node: ast.AST) -> str:
    words = {ast.Attribute: "an attribute (a dot)", ast.Lambda: "a lambda"}
    return words.get(type(node), f"{type(node).__name__}")


def _known() -> str:
    return ", ".join(sorted([HAS, *FUNCTIONS]))


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean `{near[0]}`?" if near else f"; known: {', '.join(sorted(known))}"


def _walk(node: ast.AST, *, of_tensor: bool = False) -> Iterator[tuple[str, bool]]:
    """Names in an expression, and whether each is the tensor of a tensor function."""
    if isinstance(node, ast.Name):
        yield node.id, of_tensor
        return
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        direct = node.func.id in OF_TENSORS or node.func.id == HAS
        for place, argument in enumerate(node.args):
            yield from _walk(argument, of_tensor=direct and place == 0)
        for keyword in node.keywords:
            yield from _walk(keyword.value)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


@lru_cache(maxsize=4096)
def names(text: str) -> Names:
    """What an expression mentions.

    Raises:
        ValueError: it is no expression.
    """
    try:
        found = list(_walk(tree(text)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return Names(
        frozenset(name for name, tensor in found if tensor),
        frozenset(name for name, tensor in found if not tensor),
    )


def check(text: str, known: Collection[str], where: str) -> Names:
    """Refuse, before shapes are known, what can never be evaluated; `where` begins messages.

    Raises:
        ManifestError: it is no expression, or mentions a name that is not `known`.
    """
    try:
        mentioned = names(text)
    except ValueError as error:
        raise ManifestError(f"{where}: expression `{text}`: {error}") from None
    for name in sorted(mentioned.all):
        if name not in known:
            raise ManifestError(
                f"{where}: expression `{text}`: there is no `{name}` here{_near(name, known)}"
            )
    return mentioned


def order(expressions: Mapping[str, str], primals: Collection[str], where: str) -> list[str]:
    """Parameters so that each stands after those that its expression mentions.

    A parameter's own name in its own expression is the attribute of that name.

    Raises:
        ManifestError: some are defined by each other.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for parameter, text in expressions.items():
        mentioned = names(text)
        needs = (mentioned.others | (mentioned.tensors - {*primals})) & expressions.keys()
        sorter.add(parameter, *sorted(needs - {parameter}))
    try:
        return list(sorter.static_order())
    except CycleError as error:
        circle = " → ".join(f"`{name}`" for name in reversed(error.args[1]))
        raise ManifestError(
            f"{where}: {circle}: these are defined by each other; write one of them in terms of "
            "primals and attributes"
        ) from None
