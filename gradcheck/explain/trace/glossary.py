"""What the names in a quoted expression stand for: a formula's own shorthands, spelt out."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from gradcheck.explain.trace.source import shown

MOST: Final = 4
"""Names that are spelt out."""
_QUOTED: Final = re.compile(r"`([^`]*)`")
_NAME: Final = re.compile(r"\b[A-Za-z_]\w*\b(?!\()")


def glossary(function: Callable[..., Any], says: str) -> str:
    """A sentence for the names in `says` that `function` gives to its own values; "" for none."""
    known = _definitions(function)
    wanted = [name for quoted in _QUOTED.findall(says) for name in _NAME.findall(quoted)]
    told: dict[str, str] = {}
    while wanted and len(told) < MOST:
        name = wanted.pop(0)
        if name in known and name not in told:
            told[name] = known[name]
            wanted += _NAME.findall(known[name])
    if not told:
        return ""
    spelt = [f"`{name}` is `{text}`" for name, text in told.items()]
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
