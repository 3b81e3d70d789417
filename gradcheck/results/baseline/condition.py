"""When an entry holds: a small expression over device, version, dtype and implementation."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gradcheck.system.expression import Evaluate, compiled, parsed

LONGEST: Final = 500
"""Characters of a condition."""
NAMES: Final = ("device", "version", "dtype", "implementation")
COMPARISONS: Final = (
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn,
)  # fmt: skip
HOW: Final = "write comparisons with texts, joined by and, or, not: dtype == 'float16'"
NUMBER: Final = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a condition may ask about: where and in what one result came to be."""

    dtype: str
    implementation: str
    version: str = ""
    """What the implementation says that it is: "mykernels 1.2"; empty where it says nothing."""
    device: str = "cpu"


class Version(str):
    """A version as part of a text; it compares as numbers do: "2.10" is above "2.9".

    One that is not known is neither below nor above nor equal to anything.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def _key(self) -> tuple[int, ...] | None:
        found = NUMBER.search(self)
        if found is None:
            return None
        parts = [int(part) for part in found.group().split(".")]
        while parts and not parts[-1]:  # 2.0 is 2
            parts.pop()
        return tuple(parts)

    def _both(self, other: object) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        if not isinstance(other, str):
            raise TypeError("compare a version with a text: version < '2.1'")
        ours, theirs = self._key(), Version(other)._key()
        return None if ours is None or theirs is None else (ours, theirs)

    def __eq__(self, other: object) -> bool:
        pair = self._both(other)
        return pair is not None and pair[0] == pair[1]

    def __ne__(self, other: object) -> bool:
        pair = self._both(other)
        return pair is not None and pair[0] != pair[1]

    def __lt__(self, other: str) -> bool:
        pair = self._both(other)
        return pair is not None and pair[0] < pair[1]

    def __le__(self, other: str) -> bool:
        pair = self._both(other)
        return pair is not None and pair[0] <= pair[1]

    def __gt__(self, other: str) -> bool:
        pair = self._both(other)
        return pair is not None and pair[0] > pair[1]

    def __ge__(self, other: str) -> bool:
        pair = self._both(other)
        return pair is not None and pair[0] >= pair[1]


def check(text: str) -> None:
    """Refuse what can never be evaluated.

    Raises:
        ValueError: it is no condition; the message says what to write.
    """
    try:
        _check_truth(_tree(text))
    except RecursionError:
        raise ValueError(f"it is nested too deeply; {HOW}") from None


def _check_truth(node: ast.expr) -> None:
    """Refuse what yields no truth: conditions are comparisons, joined."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check_truth(part)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check_truth(node.operand)
    elif isinstance(node, ast.Compare):
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if not isinstance(operator, COMPARISONS):
                raise ValueError(f"`{ast.unparse(node)}` is not allowed; {HOW}")
            if isinstance(operator, (ast.In, ast.NotIn)) != isinstance(
                right, (ast.List, ast.Tuple)
            ):
                raise ValueError(f"`{ast.unparse(node)}`: write: dtype in ('float16', 'float32')")
        for part in (node.left, *node.comparators):
            _check_text(part)
    else:
        raise ValueError(f"`{ast.unparse(node)}` is not allowed, or no truth; {HOW}")


def _check_text(node: ast.expr) -> None:
    """Refuse what is neither a text, nor a name that stands for one, nor a list of such."""
    if isinstance(node, (ast.List, ast.Tuple)):
        for part in node.elts:
            _check_text(part)
    elif isinstance(node, ast.Name):
        if node.id not in NAMES:
            raise ValueError(f"there is no `{node.id}`; known: {', '.join(NAMES)}")
    elif not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        raise ValueError(f"`{ast.unparse(node)}` is no text; {HOW}")


def holds(text: str, where: Circumstances) -> bool:
    """Whether a condition that `check` accepts holds; an empty one always does."""
    if not text:
        return True
    names = {
        "device": where.device,
        "dtype": where.dtype,
        "implementation": where.implementation,
        "version": Version(where.version),
    }
    return bool(_compiled(text)(names))


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Evaluate:
    return compiled(_tree(text))


def _tree(text: str) -> ast.expr:
    return parsed(text, LONGEST)
