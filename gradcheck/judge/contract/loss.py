"""A loss that can be differenced: one finite number, the same twice, and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.draw import CHUNK
from gradcheck.numerics.line_function import Scalar
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict


def value_at(scalar: Scalar, tensors: Mapping[str, Array]) -> float | Finding:
    """The function's value at the point, or what keeps it from being differenced."""

    def broken(verdict: Verdict, reason: str) -> Finding:
        return Finding(name="loss", verdict=verdict, reason=reason, part=Part.VALUE)

    before = {name: checksum([tensor]) for name, tensor in tensors.items()}
    values = []
    for _ in range(2):
        scalar.refusal = ""
        values.append(scalar())
        if scalar.refusal:
            return broken(Verdict.ERROR, f"loss raised {scalar.refusal}")
    for name, tensor in tensors.items():
        if checksum([tensor]) != before[name]:
            return broken(Verdict.ERROR, f"loss writes into {name}: it must only read it")
    if not np.isfinite(values[0]):
        reason = f"loss is {values[0]} here: it has no derivative"
        return broken(Verdict.INCONCLUSIVE, reason)
    if values[0] != values[1]:
        return broken(
            Verdict.ERROR,
            f"loss is not deterministic: it was {values[0]!r}, then {values[1]!r}. Freeze its "
            "seed, and what it counts or averages from call to call",
        )
    return values[0]


def not_finite(tensor: Array) -> tuple[int, int, float] | None:
    """How many elements are not finite, and the first of them, by flat index; None: all are."""
    flat, count, first = tensor.reshape(-1), 0, -1
    for at in range(0, flat.size, CHUNK):
        strange = np.flatnonzero(~np.isfinite(flat[at : at + CHUNK]))
        if strange.size and first < 0:
            first = at + int(strange[0])
        count += int(strange.size)
    return (count, first, float(flat[first])) if count else None


def checksum(arrays: Sequence[Array]) -> tuple[int, ...]:
    """Numbers that change when the bytes of arrays do (but for a mere exchange of words)."""
    sums = []
    for array in arrays:
        flat = array.reshape(-1)
        words = flat.view(np.uint32 if flat.itemsize % 4 == 0 else np.uint8)
        sums.append(int(np.add.reduce(words, dtype=np.uint64)) if words.size else 0)
    return tuple(sums)
