"""A page of markdown that stops growing at a limit, and counts what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradcheck.report.marked import folded
from gradcheck.results import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RESERVE: Final = 1_000
"""Bytes kept for saying what was left out."""


class Capped:
    """Whole blocks, at most `limit` bytes of UTF-8 of them; none is ever cut.

    `hint` says where everything is shown.
    """

    def __init__(self, limit: int, hint: str = "") -> None:
        """An empty page."""
        self._limit = self._ceiling = limit - RESERVE
        self._used = 0
        self._hint = f"; {hint}" if hint else ""
        self._parts: list[str] = []
        self._omitted: dict[str, int] = {}

    def until(self, share: float) -> None:
        """Let the page grow to this share of its limit: what follows has the rest for itself."""
        self._ceiling = int(self._limit * share)

    def add(self, text: str, noun: str = "line") -> bool:
        """Append `text` if it fits; after the first that does not, nothing of its kind does.

        A later row that fits would stand under another operator's name.
        """
        size = len(text.encode())
        if self._omitted.get(noun) or self._used + size > self._ceiling:
            self.leave_out(noun, 1)
            return False
        self._used += size
        self._parts.append(text)
        return True

    def add_all(self, texts: Iterable[str], noun: str, count: int) -> None:
        """Append `count` texts as far as they fit; no text is made that cannot."""
        for done, text in enumerate(texts):
            if not self.add(text, noun):
                self.leave_out(noun, count - done - 1)
                return

    def fold(
        self, word: str, text: str, head: Sequence[str], lines: Sequence[str], noun: str
    ) -> None:
        """A block to unfold that holds `head` and as many of `lines` as fit; nothing if none do.

        What is left out is counted as more of `noun`.
        """
        room = self._ceiling - self._used - len(folded(word, text, head).encode())
        kept: list[str] = []
        for line in lines:
            room -= len(line.encode()) + 1
            if room < 0:
                break
            kept.append(line)
        if kept:
            self.add(folded(word, text, [*head, *kept]), noun)
        self.leave_out(noun, len(lines) - len(kept))

    def leave_out(self, noun: str, count: int) -> None:
        """Count what is not on the page."""
        if count:
            self._omitted[noun] = self._omitted.get(noun, 0) + count

    def text(self) -> str:
        """What was added, and how much was not."""
        lines = "".join(
            f"\n… and {words.plural(count, f'more {noun}')}, left out for size{self._hint}\n"
            for noun, count in self._omitted.items()
        )
        return "".join(self._parts) + lines
