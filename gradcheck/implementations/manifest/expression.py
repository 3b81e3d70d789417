"""Expressions of a manifest: checked when it is read, evaluated where shapes are known.

Arithmetic, comparisons, conditions, lists and a fixed set of functions. There is no attribute
access, no call of anything else, and no power or product that could fill the memory. Each
expression is compiled once for each set of primals.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import numpy as np

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.operation import CType, Function, Value
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.operator import Array
from gradcheck.system import expression
from gradcheck.system.expression import Evaluate, UndefinedNameError

MAX_CHARS: Final = 2_000
MAX_EXPONENT: Final = 64
MAX_SIZE: Final = 1 << 32
"""Elements of a buffer."""
MAX_BITS: Final = 128
"""Bits of a whole number."""
MAX_CACHED: Final = 4096
"""Expressions whose trees and closures are kept."""

NODES: Final = (
    ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Call, ast.keyword, ast.Subscript, ast.Slice, ast.List, ast.Tuple, ast.And, ast.Or,
)  # fmt: skip


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    ok = not whole or (abs(exponent) <= MAX_EXPONENT and abs(base) < 1 << MAX_EXPONENT)
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
    ast.UAdd: operator.pos, ast.USub: operator.neg,
    **expression.OPERATORS,
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
"""The name of the first cotangent in expressions: `item(cotangent)`."""
HAS: Final = "has"
"""`has(w)`: whether the dialect has the primal w. It is answered before anything is evaluated."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names in an expression: first arguments of tensor functions, and others."""

    tensors: frozenset[str]
    others: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.tensors | self.others


@lru_cache(maxsize=MAX_CACHED)
def tree(text: str) -> ast.expr:
    """The checked tree of an expression.

    Raises:
        ValueError: `text` is not an expression, or holds something that is not allowed.
    """
    found = expression.parsed(text, MAX_CHARS, " for a size")
    for node in ast.walk(found):
        if not isinstance(node, NODES) and type(node) not in OPERATORS:
            raise ValueError(f"{_called(node)} is not allowed; use arithmetic and {_known()}")
        if isinstance(node, ast.Call):
            _check_call(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, (bytes, complex)):
            raise ValueError(f"{node.value!r} is not allowed")
    return found


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


def _mentioned(node: ast.AST, *, of_tensor: bool = False) -> Iterator[tuple[str, bool]]:
    """Names in an expression, and whether each is the tensor of a tensor function."""
    if isinstance(node, ast.Name):
        yield node.id, of_tensor
        return
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        direct = node.func.id in OF_TENSORS or node.func.id == HAS
        for place, argument in enumerate(node.args):
            yield from _mentioned(argument, of_tensor=direct and place == 0)
        for keyword in node.keywords:
            yield from _mentioned(keyword.value)
        return
    for child in ast.iter_child_nodes(node):
        yield from _mentioned(child)


@lru_cache(maxsize=MAX_CACHED)
def names_in(text: str) -> Names:
    """The names in an expression.

    Raises:
        ValueError: the text is not an expression.
    """
    try:
        found = list(_mentioned(tree(text)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return Names(
        frozenset(name for name, tensor in found if tensor),
        frozenset(name for name, tensor in found if not tensor),
    )


def check_expression(text: str, known: Collection[str], where: str) -> Names:
    """Refuse, before shapes are known, what can never be evaluated; `where` begins messages.

    Raises:
        ManifestError: the text is not an expression, or mentions a name that is not `known`.
    """
    try:
        mentioned = names_in(text)
    except ValueError as error:
        raise ManifestError(f"{where}: expression `{text}`: {error}") from None
    for name in sorted(mentioned.all):
        if name not in known:
            raise ManifestError(
                f"{where}: expression `{text}`: there is no `{name}` here{_near(name, known)}"
            )
    return mentioned


def evaluation_order(
    expressions: Mapping[str, str], primals: Collection[str], where: str
) -> tuple[str, ...]:
    """Parameters, each after those that its expression mentions.

    A parameter's own name in its own expression is the attribute of that name.

    Raises:
        ManifestError: some are defined by each other.
    """
    try:
        return _order(tuple(expressions.items()), frozenset(primals))
    except CycleError as error:
        circle = " → ".join(f"`{name}`" for name in reversed(error.args[1]))
        raise ManifestError(
            f"{where}: {circle}: these are defined by each other; write one of them in terms of "
            "primals and attributes"
        ) from None


@lru_cache(maxsize=MAX_CACHED)
def _order(expressions: tuple[tuple[str, str], ...], primals: frozenset[str]) -> tuple[str, ...]:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    parameters = {name for name, _ in expressions}
    for parameter, text in expressions:
        mentioned = names_in(text)
        needs = (mentioned.others | (mentioned.tensors - primals)) & parameters
        sorter.add(parameter, *sorted(needs - {parameter}))
    return tuple(sorter.static_order())


@dataclass(frozen=True, slots=True)
class Context:
    """The values in expressions: primals, attributes, and scalar parameters by name.

    `primals` are the arrays that the dialect has (a caller may add others by name, such as
    "cotangent"); `names` are scalars already known. `where` begins messages.

    All methods raise `ManifestError` where the expression cannot be evaluated, or yields something
    of another kind than is asked for; `of` says in the message what the expression is of.
    """

    primals: Mapping[str, Array]
    attrs: Attrs
    names: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    @classmethod
    def of(
        cls, function: Function, primals: Mapping[str, Array], attrs: Attrs, where: str = ""
    ) -> Context:
        """The context of one call of a function: all of its scalar parameters are evaluated."""
        scalars = {
            p.name: (p.ctype, meaning.expression)
            for p in function.prototype.parameters
            if isinstance(meaning := function.meanings.get(p.name), Value) and not p.ctype.pointer
        }
        known: dict[str, Any] = {}
        context = cls(primals, attrs, known, where)
        for name in evaluation_order({n: text for n, (_, text) in scalars.items()}, primals, where):
            known[name] = context.scalar(*scalars[name], of=f"parameter `{name}`", hide=name)
        return context

    def scalar(self, ctype: CType, text: str, *, of: str = "", hide: str = "") -> int | float:
        """A number as a C type holds it; `hide` is a parameter whose name is not to be seen."""
        value = self._value(text, of, hide)
        if ctype.base in ("float32", "float64"):
            return self._number(value, text, of)
        whole = self._whole(value, text, of)
        low, high = _range(ctype.base)
        ok = low <= whole <= high
        if not ok:
            raise self._wrong(text, of, f"yields {whole}, which is no {ctype.base}")
        return whole

    def number(self, text: str, *, of: str = "") -> int | float:
        return self._number(self._value(text, of), text, of)

    def whole(self, text: str, *, of: str = "") -> int:
        return self._whole(self._value(text, of), text, of)

    def size(self, text: str, *, of: str = "") -> int:
        whole = self.whole(text, of=of)
        if whole < 0:
            raise self._wrong(text, of, f"yields {whole}; a size is not negative")
        if whole > MAX_SIZE:
            raise self._wrong(text, of, f"yields {whole}, more than any sample needs")
        return whole

    def text(self, text: str, *, of: str = "") -> str:
        """A string without NUL."""
        value = self._value(text, of)
        if not isinstance(value, str) or "\0" in value:
            raise self._wrong(text, of, f"yields {value!r}; a string is needed: \"'causal'\"")
        return value

    def numbers(self, text: str, *, of: str = "") -> list[int | float]:
        """A list of numbers; those that are whole are ints."""
        value = self._value(text, of)
        if isinstance(value, np.ndarray):
            value = value.ravel().tolist()
        if not isinstance(value, (list, tuple)):
            raise self._wrong(text, of, f"yields {value!r}; a list is needed: [rows(x), D]")
        return [_as_whole(self._number(element, text, of)) for element in value]

    def array(self, text: str, *, of: str = "") -> Array:
        """An array of floating-point numbers."""
        value = self._value(text, of)
        try:
            return np.asarray(value).astype(np.float64, casting="same_kind")
        except (TypeError, ValueError):  # texts, lists of unequal length
            raise self._wrong(
                text, of, f"yields {value!r}; an array of numbers is needed"
            ) from None

    def truth(self, text: str, *, of: str = "") -> bool:
        value = self._value(text, of)
        if isinstance(value, (bool, np.bool_, int, float)):
            return bool(value)
        raise self._wrong(text, of, f"yields {value!r}; a condition is needed: D % 4 == 0")

    def _value(self, text: str, of: str, hide: str = "") -> Any:
        try:
            scalars = {name: value for name, value in self.names.items() if name != hide}
            names = {**self.primals, **self.attrs, **scalars}
            names |= {f"in:{name}": value for name, value in self.primals.items()}
            with np.errstate(all="ignore"):
                value = _compiled(text, frozenset(self.primals))(names)
        except Exception as error:  # noqa: BLE001  arithmetic on what a user wrote
            raise self._wrong(text, of, f"cannot be evaluated: {_said(error, self)}") from None
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise self._wrong(text, of, "yields a number that no C type holds")
        return value.item() if isinstance(value, np.generic) else value

    def _number(self, value: Any, text: str, of: str) -> int | float:
        value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if isinstance(value, bool):
            return int(value)
        if not isinstance(value, (int, float)) or math.isnan(value):
            raise self._wrong(text, of, f"yields {value!r}; a number is needed")
        return value

    def _whole(self, value: Any, text: str, of: str) -> int:
        number = _as_whole(self._number(value, text, of))
        if not isinstance(number, int):
            raise self._wrong(text, of, f"yields {number:.6g}, which is no whole number")
        return number

    def _wrong(self, text: str, of: str, what: str) -> ManifestError:
        front = f"{self.where}: " if self.where else ""
        return ManifestError(f"{front}expression `{text}`{f' of {of}' if of else ''} {what}")


@lru_cache(maxsize=MAX_CACHED)
def _compiled(text: str, primals: frozenset[str]) -> Evaluate:
    resolved = _Resolved(primals).visit(deepcopy(tree(text)))
    return expression.compiled(resolved, OPERATORS, FUNCTIONS)


class _Resolved(ast.NodeTransformer):
    """Arguments of tensor functions become names of primals; `has(w)` becomes its answer."""

    def __init__(self, primals: Collection[str]) -> None:
        self.primals = primals

    def visit_Call(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Name)
        if node.func.id == HAS:
            (asked,) = node.args
            assert isinstance(asked, ast.Name)
            return ast.Constant(asked.id in self.primals)
        if node.func.id in OF_TENSORS:
            node.args[:1] = [self._primal(argument) for argument in node.args[:1]]
        self.generic_visit(node)
        return node

    def _primal(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name) and node.id in self.primals:
            return ast.Name(f"in:{node.id}", ast.Load())
        return node


def _said(error: Exception, context: Context) -> str:
    if isinstance(error, UndefinedNameError):
        name = error.name
        have = ", ".join(sorted(context.primals))
        return (
            f"this dialect has no `{name}` (it has {have}); if it may be absent, write "
            f"`… if has({name}) else 0`"
        )
    return " ".join(str(error).split()) or type(error).__name__


def _as_whole(number: int | float) -> int | float:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _range(base: str) -> tuple[int, int]:
    """The lowest and the highest whole number that a C type holds."""
    if base == "bool":
        return 0, 1
    bits = int(base.removeprefix("u").removeprefix("int"))
    return (0, (1 << bits) - 1) if base[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
