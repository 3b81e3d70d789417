"""Where a gradient is wrong, and by which factor: what can be said of any error."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.closeness import SAME, close, near
from gradcheck.spec.program import Stage

Float = NDArray[np.float64]

WHERE_ALONE: Final = ": wrong "
"""What stands in a sentence that says where a gradient is wrong, but not how."""


def pattern(stage: Stage, index: int, got: Float, right: Float, dtype: str) -> str:
    """Where a gradient is wrong, and by which factor if there is one; "" if nothing is special."""
    which = f"d{stage.primals[index]}"
    wrong = ~close(got, right, dtype)
    where = _where(stage, wrong)
    how = _factor(got[wrong], right[wrong], dtype)
    if not (where or how):
        return ""
    return f"{which}{WHERE_ALONE}{where}." if not how else f"{which}: {how} {where}".rstrip() + "."


def _factor(got: Float, right: Float, dtype: str) -> str:
    if not np.isfinite(got).all():
        return "not finite"
    if not np.any(got):
        return "zero"
    size = float(right @ right)
    factor = float(got @ right) / size if size else 0.0
    if not near(got, factor * right, dtype):
        return ""
    return (
        "its sign is wrong"
        if factor == -1.0 or abs(factor + 1) < SAME[dtype]
        else (f"{factor:.6g}{_root(factor, dtype)} times what it should be")
    )


def _root(factor: float, dtype: str) -> str:
    """What an odd factor may stand for: a root, or a fraction, of a whole number."""
    if factor < 0 or _whole(factor, dtype):
        return ""
    if _whole(1 / factor, dtype):
        return f" (1/{round(1 / factor)})"
    if _whole(factor**2, dtype):
        return f" (√{round(factor**2)})"
    return f" (1/√{round(factor**-2)})" if _whole(factor**-2, dtype) else ""


def _whole(value: float, dtype: str) -> bool:
    return 1 < round(value) < 10_000 and abs(value - round(value)) <= SAME[dtype] * value


def _where(stage: Stage, wrong: NDArray[np.bool_]) -> str:
    """The part of a tensor that is wrong: one element, a head, or places along one axis."""
    count = int(wrong.sum())
    if count == wrong.size:
        return ""
    if count == 1:
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"in one element, {list(index)}"
    parts = []
    heads = int(stage.all_attrs.get("heads", 0))
    for axis, length in enumerate(wrong.shape):
        others = tuple(a for a in range(wrong.ndim) if a != axis)
        places = np.flatnonzero(wrong.any(axis=others))
        if len(places) == length:
            continue
        last = axis == wrong.ndim - 1
        blocks = {int(p) * heads // length for p in places} if heads and last else set()
        if len(blocks) == 1 and length % heads == 0 and len(places) * heads == length:
            parts.append(f"in head {blocks.pop()} of {heads}")
        else:
            parts.append(f"at {_places(places)} of {length} along axis {axis}")
    return "only " + " and ".join(parts) if parts else f"in {count} of {wrong.size} elements"


def _places(places: NDArray[np.int64]) -> str:
    first, last = int(places[0]), int(places[-1])
    if len(places) == 1:
        return f"place {first}"
    if last - first + 1 == len(places):
        return f"places {first} to {last}"
    shown = ", ".join(str(int(p)) for p in places[:6])
    return f"places {shown}{', …' if len(places) > 6 else ''}"
