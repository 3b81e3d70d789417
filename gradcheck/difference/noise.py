"""How much of a forward's value is rounding: a model, and a measurement that overrules it.

The model u·‖ct·f‖ misses what cancels inside forward (layer_norm at 1000, a float32 table
behind a float64 face). The measurement looks at forward on a line of ±64 ulp, where any smooth
function is a parabola: what is left after the parabola is noise (after Moré & Wild 2011).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.evaluate import Array, Evaluator
from gradcheck.difference.structure import Structure

LINE: Final = np.array([-64, -53, -41, -29, -17, -6, 6, 17, 29, 41, 53, 64], dtype=np.float64)
FAMILY: Final = (1.0, 2.0**20)
"""Spacings of the line: ulps, and a coarser one for functions that round inside (float32)."""


def ulp_line(x: Array, spacing: float, rng: np.random.Generator) -> Array:
    """Copies of `x` on a line of ±64 · `spacing` ulp in a random diagonal direction."""
    size = np.maximum(np.abs(x), np.max(np.abs(x), initial=0.0) * 2.0**-10)
    ulp = np.spacing(np.where(size == 0, 1.0, size).astype(x.dtype)) * spacing
    direction = ulp * rng.choice([-1.0, 1.0], x.shape)
    line = LINE.reshape(-1, *(1,) * x.ndim)
    return (x + line * direction).astype(x.dtype)


def measure(
    evaluator: Evaluator,
    structure: Structure,
    cts: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Standard deviation of Σ ct·f over the outputs of each block: `[q, blocks]`.

    `cts` is `[q, m]`, one row per cotangent.
    """
    fit = np.vander(LINE / 64, 3)
    residual_of = np.eye(LINE.size) - fit @ np.linalg.pinv(fit)
    freedom = LINE.size - fit.shape[1]
    values = evaluator.values(ulp_line(evaluator.x, 1.0, rng))
    sums = structure.by_block(cts[:, None, :] * values)  # [q, line, blocks]
    residual = np.einsum("kl,qlb->qkb", residual_of, sums)
    return np.sqrt(np.sum(residual**2, axis=1) / freedom)


def modelled(values: NDArray[np.float64], cts: NDArray[np.float64], u: float) -> NDArray[np.float64]:
    """u·|ct·f| per output, squared: sum over outputs and take the root. `[q, m]`."""
    return (u * cts * values) ** 2
