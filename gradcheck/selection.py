"""Words that select: dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradcheck.errors import UnknownNameError, UsageError

DTYPES: Final = ("float64", "float32")
LATER: Final = ("float16", "bfloat16")


def dtypes_of(words: Sequence[str]) -> list[str]:
    """The dtypes named, in the usual order; none named: all.

    Raises:
        UsageError: a dtype is not supported yet.
        UnknownNameError: a word is no dtype.
    """
    for word in words:
        if word in LATER:
            raise UsageError(f"dtype {word} is not supported yet; choose {' or '.join(DTYPES)}")
        if word not in DTYPES:
            raise UnknownNameError("dtype", word, DTYPES)
    return [dtype for dtype in DTYPES if not words or dtype in words]
