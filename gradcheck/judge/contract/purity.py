"""A call leaves its arguments as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import text_of

Array = NDArray[Any]


def guarded(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Read-only copies: a write raises inside the code judged."""
    copies = tuple([np.array(a, order="C") for a in arrays])
    for copy in copies:
        copy.setflags(write=False)
    return copies


def mutated(before: Sequence[Array], after: Sequence[Array], names: Sequence[str]) -> str | None:
    """The name of the first argument whose bytes changed (foreign code ignores the flag)."""
    for name, old, new in zip(names, before, after, strict=True):
        if old.tobytes() != new.tobytes():
            return name
    return None


def is_write(error: BaseException) -> bool:
    """Whether an exception is NumPy's refusal to write into a read-only array."""
    return isinstance(error, ValueError) and "read-only" in text_of(error)
