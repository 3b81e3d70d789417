"""One line of prose in HTML and in Markdown: `code` between backticks, everything else escaped.

Diagnoses, evidence and reasons quote source code between backticks. Backticks without a partner,
or several in a row, are characters like any other. `prose` in `templates/unpack.js` does the same
in a browser.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE: Final = re.compile(r"(?<!`)`([^`\s](?:[^`]*[^`\s])?)`(?!`)")
"""Code in a line of prose: between two single backticks, which do not stand beside blanks in it."""
SPECIAL: Final = re.compile(r"[\\`*_\[\]|~$]")
"""What Markdown reads in the middle of a line; foreign text never begins one."""


def in_html(text: str) -> str:
    """A line as HTML.

    >>> in_html("`a < b` is 2 < 3")
    '<code>a &lt; b</code> is 2 &lt; 3'
    """
    return "".join(
        f"<code>{html.escape(part)}</code>" if is_code else html.escape(part)
        for is_code, part in _parts(text)
    )


def in_markdown(text: str) -> str:
    r"""A line as GitHub's Markdown, in a table too.

    >>> in_markdown("`a*b` is 2*3, `a|b` is 7")
    '`a*b` is 2\\*3, <code>a\\|b</code> is 7'
    """
    return "".join(_code(part) if is_code else escape(part) for is_code, part in _parts(text))


def escape(text: str) -> str:
    r"""One line of foreign text as Markdown that shows it as it is.

    >>> escape("a|b <i>`c`")
    'a\\|b &lt;i&gt;\\`c\\`'
    """
    return SPECIAL.sub(r"\\\g<0>", html.escape(text, quote=False))


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """The parts of a line, and whether each is code."""
    for number, part in enumerate(CODE.split(text)):
        if part:
            yield bool(number % 2), part


def _code(text: str) -> str:
    # A table ends a cell at a bar, even in code; backslashes escape nothing there.
    return f"<code>{escape(text)}</code>" if "|" in text else f"`{text}`"
