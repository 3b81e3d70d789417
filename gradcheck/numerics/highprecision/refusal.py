"""Why a forward cannot be evaluated in big numbers, in one sentence."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Final

LONGEST: Final = 60
"""Characters of a source line that a reason shows; a longer line is named by its number alone."""

_OURS = str(Path(__file__).parent)
_LIBRARIES = (
    f"{Path('/numpy/').as_posix()}",
    "/mpmath/",
    "/scipy/",
    "/jax/",
    "/torch/",
    "/functools.py",
)


class NoArbiter(Exception):  # noqa: N818  a statement about a forward, not a mistake
    """Forward has no values in big numbers here; the text is one sentence that says why."""


class Leak(NoArbiter):
    """Digits would be lost: a float64 buffer, a narrower dtype, C code."""


class Unsupported(NoArbiter):
    """A function that is not known in big numbers."""


class Spent(NoArbiter):
    """More numbers were computed than the budget allows."""


def place() -> str:
    """The line of the user's code that is being executed: "loss.py line 12: `y[i] = s`".

    Empty, where no frame on the stack is a user's.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        ours = name.startswith(_OURS)
        if ours and frame.f_code.co_name == "called":
            return ""
        if not ours and not any(part in name.replace("\\", "/") for part in _LIBRARIES):
            line = linecache.getline(name, frame.f_lineno).strip()
            shown = f": `{line}`" if 0 < len(line) <= LONGEST else ""
            return f"{Path(name).name} line {frame.f_lineno}{shown}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def placed(text: str) -> str:
    """`text`, with the user's line behind it where one is known."""
    where = place()
    return f"{text} ({where})" if where else text
