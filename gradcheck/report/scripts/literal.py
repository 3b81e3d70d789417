"""Numbers and words of other people's as literals of Python, to be read back bit by bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import UsageError
from gradcheck.numerics.dtypes import is_float
from gradcheck.results.words import escaped

Array = NDArray[Any]

WIDTH: Final = 96
"""Columns of a script."""
STRANGE: Final = {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}


def number(value: Any) -> str:
    """One number in the fewest digits that give it again, in its own dtype."""
    scalar = np.asarray(value)
    if not is_float(scalar.dtype):
        return str(scalar.item())
    wide = float(scalar)
    if not math.isfinite(wide):
        return STRANGE[str(wide)]
    short = repr(float(str(scalar[()])))
    same = np.asarray(float(short)).astype(scalar.dtype).tobytes() == scalar.tobytes()
    return short if same else repr(wide)


def array(values: Array, dtype: str, indent: int = 0, before: int = 0) -> str:
    """An array as `np.array(…, dtype)`; its first line begins after `before` columns.

    Lines after it are indented by `indent`, and more inside.
    """
    values = np.asarray(values)
    if not values.size:
        return f"np.zeros({values.shape!r}, {dtype})"
    text = _nested(values, indent, before + len("np.array("), len(dtype) + 4)
    return f"np.array({text}, {dtype})"


def _nested(values: Array, indent: int, before: int, after: int) -> str:
    """Numbers in brackets: on one line where they fit between what stands before and after."""
    flat = str(_listed(values)).replace("'", "")
    if values.ndim == 0 or before + len(flat) + after <= WIDTH:
        return flat
    pad = " " * (indent + 4)
    if values.ndim == 1:
        lines = wrapped([number(v) for v in values], pad, WIDTH)
    else:
        lines = "\n".join(f"{pad}{_nested(part, indent + 4, indent + 4, 1)}," for part in values)
    return f"[\n{lines}\n{' ' * indent}]"


def _listed(values: Array) -> Any:
    return number(values) if values.ndim == 0 else [_listed(np.asarray(part)) for part in values]


def wrapped(words: Sequence[str], pad: str, width: int) -> str:
    """Words, each with a comma, in lines of at most `width` columns, each after `pad`."""
    lines, line = [], pad
    for word in words:
        if len(line) > len(pad) and len(line) + len(word) + 2 > width:
            lines.append(line.rstrip())
            line = pad
        line += f"{word}, "
    return "\n".join([*lines, line.rstrip()])


def value(found: Any, what: str) -> str:
    """An attribute's value; messages call it `what`.

    Raises:
        UsageError: it is no number, text or collection of these.
    """
    if isinstance(found, np.generic):
        found = found.item()
    if isinstance(found, float):
        return number(found)
    if found is None or isinstance(found, (bool, int, str)):
        return repr(found)
    if isinstance(found, np.ndarray) and (is_float(found.dtype) or found.dtype.kind in "iub"):
        return array(found, f"np.{found.dtype.name}")
    if isinstance(found, tuple):
        parts = [value(part, what) for part in found]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if isinstance(found, list):
        return f"[{', '.join(value(part, what) for part in found)}]"
    if isinstance(found, Mapping):
        return mapping(found, what)
    raise UsageError(f"{what} is a {type(found).__name__}, which no script can hold")


def mapping(found: Mapping[Any, Any], what: str = "") -> str:
    """A dict of such values."""
    parts = (f"{name!r}: {value(part, what or str(name))}" for name, part in found.items())
    return f"{{{', '.join(parts)}}}"


def comment(text: str) -> str:
    """Foreign text as one line that can end no comment: neither `#` nor `//`.

    What would reorder or hide text is escaped; a C compiler joins the next line to one that ends
    in a backslash, or in what C once took for one.
    """
    line = escaped(" ".join(text.split()))
    return f"{line} ." if line.endswith(("\\", "??/")) else line
