"""Expressions of a manifest, evaluated where shapes and attributes are known."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.operation import CType, Function, Value
from gradcheck.implementations.manifest.syntax import (
    FUNCTIONS,
    HAS,
    OF_TENSORS,
    OPERATORS,
    order,
    tree,
)
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.operator import Array

LARGEST: Final = 1 << 32
"""Elements of a buffer."""
WIDEST: Final = 128
"""Bits of a whole number."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where expressions are evaluated: primals, attributes, and scalar parameters by name.

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
        for name in order({n: text for n, (_, text) in scalars.items()}, primals, where):
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
        """A finite or infinite number."""
        return self._number(self._value(text, of), text, of)

    def whole(self, text: str, *, of: str = "") -> int:
        """A whole number."""
        return self._whole(self._value(text, of), text, of)

    def size(self, text: str, *, of: str = "") -> int:
        """A whole number, not negative."""
        whole = self.whole(text, of=of)
        if whole < 0:
            raise self._wrong(text, of, f"yields {whole}; a size is not negative")
        if whole > LARGEST:
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
        """Whether a condition holds."""
        value = self._value(text, of)
        if isinstance(value, (bool, np.bool_, int, float)):
            return bool(value)
        raise self._wrong(text, of, f"yields {value!r}; a condition is needed: D % 4 == 0")

    def _value(self, text: str, of: str, hide: str = "") -> Any:
        try:
            resolved = _resolved(text, frozenset(self.primals))
            if isinstance(resolved, ast.Constant):
                return resolved.value
            scalars = {name: value for name, value in self.names.items() if name != hide}
            evaluator = _evaluator()
            evaluator.names = {**self.primals, **self.attrs, **scalars}
            evaluator.names |= {f"in:{name}": value for name, value in self.primals.items()}
            with np.errstate(all="ignore"):
                value = evaluator.eval(text, resolved)
        except ManifestError:
            raise
        except Exception as error:  # noqa: BLE001  arithmetic on what a user wrote
            raise self._wrong(text, of, f"cannot be evaluated: {_said(error, self)}") from None
        if isinstance(value, int) and value.bit_length() > WIDEST:
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


@lru_cache(maxsize=1)
def _evaluator() -> Any:
    """The one evaluator: making it costs ten times what an expression does."""
    from simpleeval import SimpleEval

    evaluator = SimpleEval(operators=OPERATORS, functions=FUNCTIONS)
    evaluator.nodes |= {
        ast.List: lambda node: [evaluator.eval("", e) for e in node.elts],
        ast.Tuple: lambda node: tuple(evaluator.eval("", e) for e in node.elts),
    }
    return evaluator


@lru_cache(maxsize=4096)
def _resolved(text: str, primals: frozenset[str]) -> ast.expr:
    """The expression's tree, for a dialect that has these primals."""
    found: ast.expr = _Resolved(primals).visit(deepcopy(tree(text)))
    return found


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
    name = getattr(error, "name", None)
    if isinstance(name, str) and type(error).__name__ == "NameNotDefined":
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
