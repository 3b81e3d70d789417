"""All pairs by name, except those of frameworks that are not installed."""

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
"""The modules, and their dependencies besides NumPy."""


@cache
def missing() -> tuple[str, ...]:
    """Modules whose framework is not installed."""
    return tuple(m for m, needs in FAMILIES.items() if not all(map(_there, needs)))


def _there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@cache
def corpus(*, plain: bool = False) -> dict[str, Pair]:
    """Pairs by `kind/name`; if `plain`, only those that need nothing but NumPy."""
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
