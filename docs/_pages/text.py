"""Markdown from data: tables, code and text in which nothing is taken for markup by accident."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

SPECIAL: Final = re.compile(r"([\\*_\[\]|#])")


def text(words: str) -> str:
    r"""`words` as they are; what stands between backticks stays code.

    >>> text("a_b < `x * y`")
    'a\\_b &lt; `x * y`'
    """
    parts = re.split(r"(`[^`]+`)", " ".join(words.split()))
    return "".join(
        part
        if part.startswith("`") and len(part) > 1
        else SPECIAL.sub(r"\\\1", escape(part, quote=False))
        for part in parts
    )


def code(words: object) -> str:
    """`words` as inline code, whatever backticks they hold."""
    return f"`{words}`" if "`" not in str(words) else f"<code>{escape(str(words))}</code>"


def link(words: str, target: str) -> str:
    """A link whose words are taken as they are."""
    return f"[{words}]({target})"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table in Markdown; cells hold Markdown already, columns in `right` are flush right."""
    rule = ["--:" if i in right else "---" for i in range(len(heads))]
    lines = [heads, rule, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def block(language: str, body: str, title: str = "") -> str:
    """A block of code, fenced by more marks than it holds itself."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", body)), 3)
    head = f' title="{title}"' if title else ""
    return f"{fence}{language}{head}\n{body.rstrip()}\n{fence}\n"


def attributes(values: Mapping[str, Any]) -> str:
    """`a=1, b=2`, as code; empty: nothing."""
    return code(", ".join(f"{name}={value!r}" for name, value in values.items())) if values else ""


def front(title: str, description: str = "") -> str:
    """The head of a page: its title in the navigation and in a search, and what it is about."""
    about = " ".join(description.split()).replace('"', "'")
    return f'---\ntitle: "{title}"\ndescription: "{about}"\n---\n\n'


def joined(*parts: str) -> str:
    """Parts of a page, an empty line between each two; empty ones are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
