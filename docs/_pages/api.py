"""The Python interface: a section per public name, filled from its docstring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import gradcheck
from _pages.text import code, front, joined, link

PAGE: Final = "reference/api.md"
GROUPS: Final = {
    "Check a function": ("check", "assert_vjp", "Result", "Finding", "Verdict"),
    "Check the gradients of a loss": ("check_model",),
    "Bind PyTorch and JAX": ("torch_op", "jax_op"),
    "Describe an operator": (
        "OpSpec",
        "Sample",
        "Dialect",
        "Kink",
        "Convention",
        "Slack",
        "Mutant",
    ),
    "Describe a model": ("ModelSpec", "Program", "Stage", "Size"),
    "Collect them": ("Suite",),
    "Errors": ("GradcheckError", "Unsupported"),
}
"""Public names by purpose; ungrouped names go to the end."""


def pages() -> Iterator[tuple[str, str]]:
    """The page's path and Markdown."""
    grouped = [name for names in GROUPS.values() for name in names]
    rest = tuple(name for name in gradcheck.__all__ if name not in grouped)
    groups = {
        title: known
        for title, names in {**GROUPS, "More": rest}.items()
        if (known := [name for name in names if name in gradcheck.__all__])
    }
    parts = [
        front("Python", "The public names of the package gradcheck"),
        "# Python interface",
        "The public names of `gradcheck`. They load on first use: importing the package imports "
        "nothing else. Usage: [check a NumPy function](../guides/numpy.md).",
        "\n".join(
            f"- {title}: " + ", ".join(link(code(name), f"#{_home(name)}") for name in names)
            for title, names in groups.items()
        ),
    ]
    for title, names in groups.items():
        parts.append(f"## {title}")
        parts += [f"::: {_home(name)}" for name in names]
    yield PAGE, joined(*parts)


def _home(name: str) -> str:
    """The name of a public object for mkdocstrings: where it is defined."""
    return f"{gradcheck._HOME[name]}.{name}"
