"""The first and the last of what foreign code prints, and in one line how much lies between.

What it prints first often says why it dies (a failed assertion, a sanitizer's report), what it
prints last says where; and a flood takes no memory.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

FIRST: Final = 1 << 15
"""Bytes that are kept of the beginning."""
LAST: Final = 1 << 15
"""Bytes that are kept of the end."""
CUT: Final = re.compile(r"^… ([1-9][0-9,]{0,20}) bytes? left out …(?:\n|\Z)", re.MULTILINE)


class Excerpt(NamedTuple):
    """A text's `first` and `last` characters, and how many bytes are `left_out` between them.

    Where none are, all of it is `first`.
    """

    first: str
    left_out: int = 0
    last: str = ""

    @classmethod
    def of(cls, text: str) -> Excerpt:
        r"""A text that may be an excerpt; several, one behind the other, become one.

        >>> Excerpt.of("a\n… 1,000 bytes left out …\nb")
        Excerpt(first='a\n', left_out=1000, last='b')
        """
        first, *rest = CUT.split(text)
        if not rest:
            return cls(first)
        cuts = sum(int(count.replace(",", "")) for count in rest[::2])
        return cls(first, cuts + sum(size(part) for part in rest[1:-1:2]), rest[-1])

    def __str__(self) -> str:
        r"""The text that `of` reads.

        >>> str(Excerpt("one", 1234, "two"))
        'one\n… 1,234 bytes left out …\ntwo'
        """
        if not self.left_out:
            return self.first
        ends = "" if self.first.endswith("\n") or not self.first else "\n"
        return f"{self.first}{ends}{told(self.left_out)}\n{self.last}"


class Heard:
    """Bytes as they come, of which the first and the last are kept."""

    def __init__(self) -> None:
        """Nothing is heard yet."""
        self._first, self._last, self._left_out = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        """Hear more."""
        room = FIRST - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        excess = max(0, len(self._last) - LAST)
        self._left_out += excess
        del self._last[:excess]

    def take(self) -> str:
        """What was heard, as the text of an excerpt; it is forgotten."""
        first, left_out, last = self._first, self._left_out, self._last
        self._first, self._last, self._left_out = bytearray(), bytearray(), 0
        if not left_out:
            return (first + last).decode(errors="replace")
        ends = (part.decode(errors="replace") for part in (first, last))
        return str(Excerpt(next(ends), left_out, next(ends)))


def told(left_out: int) -> str:
    """The line that stands for so many bytes."""
    return f"… {left_out:,} byte{'' if left_out == 1 else 's'} left out …"


def shortened(text: str) -> str:
    """A text as an excerpt, where it is longer than one."""
    if len(text) <= FIRST + LAST:
        return text
    first, left_out, last = Excerpt.of(text)
    if not left_out:
        return str(Excerpt(first[:FIRST], size(first[FIRST:-LAST]), first[-LAST:]))
    hidden = size(first[FIRST:]) + size(last[:-LAST])
    return str(Excerpt(first[:FIRST], left_out + hidden, last[-LAST:]))


def size(text: str) -> int:
    """Bytes of a text as UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))
