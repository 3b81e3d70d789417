"""What rounding costs a right backward at this point: measured, not assumed.

The spec's own text runs in float32 and in float64 at the same few neighbouring points; the
difference is rounding, whatever cancels inside (1 − y of a saturated softmax, x − mean at 1000).
Divided by float32's unit roundoff it holds for any dtype. A wrong formula is equally wrong in
both, so it gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F32, F64
from gradcheck.difference.oracle import as_tuple
from gradcheck.draw import key_of

Array = NDArray[Any]
Float = NDArray[np.float64]

NEIGHBOURS: Final = 8
SAFETY: Final = 8.0
"""Roundings are lumpy: eight measured ones bound the next within this factor of their RMS."""


def cost(
    compute: Callable[..., Any], floats: Sequence[Array], key: str
) -> tuple[Float | None, ...]:
    """Rounding of each result of `compute(xp, *floats)`, in units of its value times 1/u.

    `floats` are float64 arrays that float32 holds. Multiply by a dtype's unit roundoff to get
    an allowance. Results that are None (the gradient of an index) stay None.
    """
    u = float(np.finfo(np.float32).eps) / 2
    rng = np.random.Generator(np.random.Philox(key=key_of("rounding", key)))
    totals: list[Any] = []
    counts: list[Any] = []
    with np.errstate(all="ignore"):
        for _ in range(NEIGHBOURS):
            near = [_neighbour(x, rng) for x in floats]
            rough = as_tuple(compute(F32, *(x.astype(np.float32) for x in near)))
            fine = as_tuple(compute(F64, *near))
            for i, (a, b) in enumerate(zip(rough, fine, strict=True)):
                if len(totals) <= i:
                    totals.append(None if a is None else 0.0)
                    counts.append(0)
                if a is None:
                    continue
                square = (np.asarray(a, dtype=np.float64) - np.asarray(b)) ** 2
                seen = np.isfinite(square)
                totals[i] = totals[i] + np.where(seen, square, 0.0)
                counts[i] = counts[i] + seen
    return tuple(
        None if t is None else np.asarray(SAFETY * np.sqrt(t / np.maximum(n, 1)) / u)
        for t, n in zip(totals, counts, strict=True)
    )


def _neighbour(x: Array, rng: np.random.Generator) -> Array:
    """A point a few float32 ulp away; exact zeros stay (they may be masks)."""
    single = x.astype(np.float32)
    ulps = rng.integers(-3, 4, x.shape)
    return np.asarray((single + ulps * np.spacing(single) * (single != 0)).astype(np.float32), dtype=np.float64)
