"""The descriptors that whoever started this process gave it, and those that he did not."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from typing import Final

NAMES: Final = re.compile(r"/dev/(stdin|stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,9})")
"""What descriptors of this process are called as files."""
STANDARD: Final = ("stdin", "stdout", "stderr")
"""By their numbers."""
_CLOSED: Final[set[int]] = set()


def fill() -> None:
    """Open /dev/null where the caller has closed 0, 1 or 2 (`<&-`): no pipe takes that number.

    It is to be called before anything else is opened.
    """
    for number in range(len(STANDARD)):
        try:
            os.fstat(number)
        except OSError:
            _CLOSED.add(number)
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest number


def number_of(name: str) -> int | None:
    """The descriptor that a path names; None: it names none.

    >>> number_of("/dev/stdout"), number_of("/dev/fd/3"), number_of("/dev/null")
    (1, 3, None)
    """
    found = NAMES.fullmatch(name)
    if found is None:
        return None
    return STANDARD.index(found[1]) if found[1] else int(found[2])


def is_open(number: int) -> bool:
    """Whether this process was given a descriptor; at a start, before it opens any of its own."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return number not in _CLOSED
