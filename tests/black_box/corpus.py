"""All pairs, by name; those of a framework that is not installed are left out, and said so."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache

from .pair import Pair

FAMILIES = {
    "smooth": (), "kinks": (), "linear_algebra": (), "quantised": (), "zero": (), "applied": (),
    "complex_numbers": (), "special_functions": ("scipy",),
    "by_jax": ("jax",), "by_torch": ("torch",),
}  # fmt: skip
"""The modules, and what each needs beside NumPy."""


@cache
def missing() -> tuple[str, ...]:
    """Modules whose framework is not there."""
    return tuple(m for m, needs in FAMILIES.items() if not all(map(_there, needs)))


def _there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@cache
def corpus(*, plain: bool = False) -> dict[str, Pair]:
    """Pairs by `kind/name`; those alone that need nothing beside NumPy, where `plain`."""
    found: dict[str, Pair] = {}
    for module, needs in FAMILIES.items():
        if module in missing() or (plain and needs):
            continue
        for pair in importlib.import_module(f"{__package__}.{module}").pairs():
            name = f"{pair.kind}/{pair.name}"
            if name in found:
                raise ValueError(f"two pairs are named {name}")
            found[name] = pair
    return found
