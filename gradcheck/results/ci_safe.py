"""What foreign code prints, on its way to a log that a CI system reads for commands.

GitHub takes lines that begin with `::` for commands, wherever they come from, and `##[…]` within
a line; others take `##vso[…]` or `##teamcity[…]`. Code that is judged could so annotate files,
mask words, or stop what the report has to say.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

LINE: Final = re.compile(r"([\r\n])")
"""Where a line ends for whoever reads the log."""
FIRST: Final = re.compile(r"\s*:(?::|\Z)")
"""The beginning of a line that is a command, or may become one."""
WITHIN: Final = re.compile(r"##(?=\w*(?:\[|\Z))|#\Z")
"""The beginning of a command within a line, or what may become one."""
INNER: Final = re.compile(r"##(?=\w*\[)")
"""The same in a line that is whole."""
MARK: Final = "| "


def inert(text: str) -> str:
    r"""Text in which no line is a command: what would be one is marked, or taken apart.

    >>> inert("::error::a\n ::b"), inert("a::b"), inert("a ##[error]b")
    ('| ::error::a\n|  ::b', 'a::b', 'a ## [error]b')
    """
    return Inert.of(text, blank=True)


def apart(line: str) -> str:
    """A line with no command within it; what stands before it may make one of its beginning.

    >>> apart("a ##[group]b ## c ##")
    'a ## [group]b ## c ##'
    """
    return INNER.sub("## ", line)


class Inert:
    """A stream that makes what is written to it inert; all else is the stream's behind it."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._blank = True
        """Whether nothing but blanks is on the line so far."""

    @staticmethod
    def of(text: str, *, blank: bool) -> str:
        """`text` made inert; `blank`: it begins a line."""
        parts = LINE.split(text)
        for place in range(0, len(parts), 2):
            part = WITHIN.sub(r"\g<0> ", parts[place])
            begins = (place or blank) and FIRST.match(part)
            parts[place] = f"{MARK}{part}" if begins else part
        return "".join(parts)

    def write(self, text: str) -> int:
        """Write `text`, inert; returns its length. Nobody is to fail for a log that is gone."""
        with suppress(OSError):
            self._stream.write(self.of(text, blank=self._blank))
        *before, last = LINE.split(text)
        self._blank = (bool(before) or self._blank) and not last.strip()
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write each of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def heard() -> Iterator[None]:
    """Within, what is printed goes to stderr, inert: it is no part of a report."""
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = Inert(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
