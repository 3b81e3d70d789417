"""Code blocks, tables and formulas of a page: copying, scrolling by keys, colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from itertools import count
from typing import Final

from gradcheck.results.verdict import Known, Verdict

BLOCK: Final = re.compile(r"<pre>(?:<span></span>)?<code>(.*?)</code></pre>", re.DOTALL)
TABLE: Final = re.compile(r"<table>(?=(?:(?!<a |</table>).)*</table>)", re.DOTALL)
"""The head of a table without a link, which keys would not reach."""
PROMPT: Final = re.compile(r'<span class="gp">.*?</span>')
OUTPUT: Final = '<span class="go">'
PRINTED: Final = re.compile(r'(?<=<span class="go">)[^<]*(?=</span>)')
VERDICT: Final = re.compile(r"\b(" + "|".join(word.upper() for word in [*Verdict, *Known]) + r")\b")


def commands(block: str) -> str:
    r"""The commands of a highlighted console block, one a line; empty for other blocks.

    >>> commands('<span class="gp">$ </span>ls a\n<span class="go">b</span>')
    'ls a'
    """
    if not PROMPT.search(block):
        return ""
    typed = [line for line in block.splitlines() if not line.startswith(OUTPUT)]
    lines = (unescape(re.sub(r"<[^>]*>", "", PROMPT.sub("", line))) for line in typed)
    return "\n".join(line for line in lines if line.strip())


def finished(html: str) -> str:
    """`html` with copy buttons, tab stops for what scrolls, and coloured verdicts.

    The theme's own button copies prompts and output, too, and its own tab stops are not for phones.
    """
    numbers = count()
    html = html.replace('<div class="formula', '<div tabindex="0" class="formula')
    html = TABLE.sub('<table tabindex="0">', html)
    html = BLOCK.sub(lambda match: "".join(_framed(match[1], next(numbers))), html)
    return PRINTED.sub(lambda match: VERDICT.sub(_coloured, match[0]), html)


def _framed(code: str, number: int) -> Iterator[str]:
    typed = commands(code)
    copied = (
        f'data-clipboard-text="{escape(typed)}"'
        if typed
        else f'data-clipboard-target="#code-{number}"'
    )
    words = "Copy the command" if typed else "Copy"
    yield '<div class="block"><span class="md-code__nav"><button class="md-code__button" '
    yield f'type="button" title="{words}" data-md-type="copy" {copied}></button></span>'
    yield f'<pre tabindex="0"><span></span><code id="code-{number}">{code}</code></pre></div>'


def _coloured(match: re.Match[str]) -> str:
    return f'<span class="says {match[1].lower()}">{match[1]}</span>'
