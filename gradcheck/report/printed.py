"""What the code judged has printed, as a few printable lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report import words

if TYPE_CHECKING:
    from gradcheck.record import Record

LINES: Final = 20
"""Lines that are shown, the last ones: what a process says last tells best why it died."""
FEW: Final = 5
"""Lines of what passed, of which there may be thousands."""
MARK: Final = "| "
"""What each of them begins with where a report has no other frame: no line of ours does."""


def lines(text: str, most: int = LINES) -> list[str]:
    r"""The last `most` lines, every unprintable character as its escape.

    If they are not all, a first line says how many bytes are left out.

    >>> lines("a\tb\n\x1b[31mRESULT pass\n")
    ['a   b', '\\x1b[31mRESULT pass']
    >>> lines("one\ntwo\nthree", most=1)
    ['… 8 more bytes before this', 'three']
    """
    text = text.rstrip()
    tail = text[-words.LONGEST :].splitlines(keepends=True)[-most:]
    hidden = text[: len(text) - sum(map(len, tail))]
    shown = [words.escaped(line.expandtabs(4).rstrip()) for line in tail]
    while shown and not shown[0]:
        del shown[0]
    if hidden.strip():
        count = len(hidden.encode("utf-8", "surrogatepass"))
        shown.insert(0, f"… {words.plural(count, 'more byte')} before this")
    return shown


def of(result: Record) -> list[str]:
    """The lines that a report which shows every result can afford of this one."""
    return lines(result.printed, FEW if result.verdict.expected else LINES)


def marked(text: str, indent: str, most: int = LINES) -> list[str]:
    """The same lines for a report in plain text, under a title; none if nothing was printed."""
    found = lines(text, most)
    return [f"{indent}printed:", *(f"{indent}  {MARK}{line}" for line in found)] if found else []
