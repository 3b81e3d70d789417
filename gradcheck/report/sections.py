"""Titled lists of names and what is said of them, wrapped to one width: the form of `explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from gradcheck.spec import Attrs

WIDTH: Final = 96


def section(title: str, entries: Sequence[tuple[str, str]]) -> str:
    """A title and its entries, the texts in one column."""
    width = max(len(name) for name, _ in entries) + 2
    lines = [title]
    for name, text in entries:
        lead = f"  {name.ljust(width)}"
        lines += textwrap.wrap(
            text,
            WIDTH,
            initial_indent=lead,
            subsequent_indent=" " * len(lead),
            break_on_hyphens=False,
        ) or [lead.rstrip()]
    return "\n".join(lines)


def attributes(attrs: Attrs) -> str:
    """Attributes as in a call.

    >>> attributes({"axis": -1, "mode": "sum"})
    "axis=-1, mode='sum'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in attrs.items())
