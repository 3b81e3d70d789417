"""Titled lists of names and what is said of them, wrapped to one width: the form of `explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from gradcheck.numerics.arrays import Attrs

WIDTH: Final = 96


def section(title: str, entries: Sequence[tuple[str, str]], width: int = WIDTH) -> str:
    """A title and its entries, the texts in one column, or below where that is too narrow."""
    column = max(len(name) for name, _ in entries) + 4
    lines = [title]
    for name, text in entries:
        lead, indent = f"  {name}".ljust(column), " " * column
        if column > width // 2:
            lines += [f"  {name}"] if text else []
            lead = indent = "      " if text else f"  {name}"
        lines += wrapped(text, width, lead, indent) or [lead.rstrip()]
    return "\n".join(lines)


def wrapped(text: str, width: int, lead: str = "", indent: str = "") -> list[str]:
    """Lines of at most `width` columns; names are not broken at their hyphens."""
    return textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False
    )


def attributes(attrs: Attrs) -> str:
    """Attributes as in a call.

    >>> attributes({"axis": -1, "mode": "sum"})
    "axis=-1, mode='sum'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in attrs.items())
