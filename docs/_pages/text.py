"""Markdown from data: tables, code, and text with escaped markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

SPECIAL: Final = re.compile(r"([\\*_\[\]|#])")


def text(words: str) -> str:
    r"""`words` with escaped markup; parts between backticks stay code.

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
    """A link; `words` is Markdown."""
    return f"[{words}]({target})"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table in Markdown; cells are Markdown, columns in `right` are right-aligned."""
    rule = ["--:" if i in right else "---" for i in range(len(heads))]
    lines = [heads, rule, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def block(language: str, body: str, title: str = "") -> str:
    """A block of code, with a fence longer than any in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", body)), 3)
    head = f' title="{title}"' if title else ""
    return f"{fence}{language}{head}\n{body.rstrip()}\n{fence}\n"


def attributes(values: Mapping[str, Any]) -> str:
    """`a=1, b=2`, as code; empty: nothing."""
    return code(", ".join(f"{name}={value!r}" for name, value in values.items())) if values else ""


def front(title: str, description: str = "") -> str:
    """The front matter of a page: its title and description."""
    about = " ".join(description.split()).replace('"', "'")
    return f'---\ntitle: "{title}"\ndescription: "{about}"\n---\n\n'


def joined(*parts: str) -> str:
    """The nonempty parts of a page, separated by empty lines."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
