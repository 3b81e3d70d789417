"""One of several equal parts of a selection, "I/N": its I-th case, and every N-th from there on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")
FORM: Final = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


def parsed(text: str) -> tuple[int, int]:
    """I and N of "I/N".

    >>> parsed("2/3")
    (2, 3)

    Raises:
        ValueError: it is no such text, or I is not between 1 and N.
    """
    found = FORM.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"{text!r} is no shard; write I/N with 1 ≤ I ≤ N, such as 1/3")
    return int(found[1]), int(found[2])


def part(items: Sequence[T], text: str) -> Sequence[T]:
    """What of `items` is in a shard; all of it where `text` is empty.

    >>> part("abcde", "2/3")
    'be'
    """
    if not text:
        return items
    first, of = parsed(text)
    return items[first - 1 :: of]


def joined(parts: Sequence[Sequence[T]]) -> list[T]:
    """All parts of a selection, the first shard's first, in the order that they had.

    >>> "".join(joined([part("abcde", f"{i}/3") for i in (1, 2, 3)]))
    'abcde'
    """
    longest = max(map(len, parts), default=0)
    return [part[place] for place in range(longest) for part in parts if place < len(part)]
