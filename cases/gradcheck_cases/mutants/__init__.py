"""Wrong backward passes, one module per operator family: what the suite's samples must reject.

`MUTANTS` are those of all families. They are imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gradcheck_cases import OPERATORS

if TYPE_CHECKING:
    from gradcheck.spec.mutant import Mutant

    MUTANTS: tuple[Mutant, ...]


def __getattr__(name: str) -> object:
    if name != "MUTANTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    tables = (import_module(f"{__name__}.{family}").MUTANTS for family in OPERATORS)
    found = globals()["MUTANTS"] = tuple(mutant for table in tables for mutant in table)
    return found
