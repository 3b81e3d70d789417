"""Words that select: dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradcheck.errors import UnknownNameError

DTYPES: Final = ("float64", "float32")
"""What is judged unless something else is asked for."""
LOW: Final = ("float16", "bfloat16")
"""Low precision: judged at rounded inputs, never differenced."""
ALL: Final = "all"


def dtypes_of(words: Sequence[str]) -> list[str]:
    """The dtypes named, in the usual order; none named: float64 and float32; "all": all four.

    Raises:
        UnknownNameError: a word is no dtype.
    """
    known = (*DTYPES, *LOW)
    for word in words:
        if word not in (*known, ALL):
            raise UnknownNameError("dtype", word, (*known, ALL))
    if ALL in words:
        return list(known)
    return [dtype for dtype in known if dtype in (words or DTYPES)]
