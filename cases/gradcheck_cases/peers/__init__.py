"""The suite's operators in other frameworks, whose gradients are the frameworks' own.

A module per framework and family. Its functions that are named as an operator are that operator's
counterpart; `OTHERS`, where a module has it, holds counterparts under other names and of dialects.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from gradcheck_cases import FAMILIES, SUITE


def counterparts(framework: str) -> dict[str, Callable[..., Any]]:
    """The operators of all families in a framework, a package beside this module."""
    found: dict[str, Callable[..., Any]] = {}
    for family in FAMILIES:
        names = vars(import_module(f"{__name__}.{framework}.{family}"))
        found.update({op: names[op] for op in SUITE.operators if op in names})
        found.update(names.get("OTHERS", {}))
    return found
