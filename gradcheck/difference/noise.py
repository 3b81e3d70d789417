"""How much of a forward's value is rounding: a model, and a measurement that overrules it.

The model u·‖ct·f‖ misses what cancels inside forward (layer_norm at 1000, a float32 table
behind a float64 face). The measurement looks at forward on a line of ±64 ulp, where any smooth
function is a parabola: what is left after the parabola is noise (after Moré & Wild 2011).
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.difference.evaluate import Array, Point, along
from gradcheck.difference.structure import Structure

LINE: Final = np.array([-64, -53, -41, -29, -17, -6, 6, 17, 29, 41, 53, 64], dtype=np.float64)
SPACINGS: Final = {"float64": (1.0, 2.0**20), "float32": (1.0, 2.0**4)}
"""In ulp: one for rounding that changes with every bit, one for values that are constant between
neighbours (log(1 + tiny), a float32 table behind a float64 face). The line stays so short, 1e-8
or 1e-4 of the primal, that what is cubic in it vanishes in rounding."""
LINES: Final = 2
LOSES: Final = 16.0
"""Units of u of a value above which its collected rounding replaces the model."""
RELATIVE: Final = 128.0
"""Units of u by which a derivative may be off as a whole: a forward that cancels inside (the tail
of a tanh-form gelu) is wrong by the same amount at neighbouring points, which no line shows."""


def lines(point: Point, rng: np.random.Generator) -> NDArray[np.float64]:
    """Values [2, 12, m] of forward on lines that move every floating primal at once."""
    copies = []
    for p in point.primals:
        position = LINE.reshape(-1, *(1,) * p.ndim)
        directions = [_direction(p, line, rng) for line in range(LINES)]
        moved = [
            np.broadcast_to(p, (LINE.size, *p.shape)) if d is None else p + position * d
            for d in directions
        ]
        copies.append(np.concatenate(moved).astype(p.dtype))
    values = along(point, copies)
    if values is None:  # outside the domain
        return np.full((LINES, LINE.size, 0), np.nan)
    return values.reshape(LINES, LINE.size, -1)


def _direction(x: Array, line: int, rng: np.random.Generator) -> Array | None:
    """±1 ulp (times the line's spacing) per element; None for an index."""
    if x.dtype.kind != "f":
        return None
    size = np.maximum(np.abs(x), np.max(np.abs(x), initial=0.0) * 2.0**-10)
    ulp = np.spacing(np.where(size == 0, 1.0, size).astype(x.dtype))
    spacing = SPACINGS[x.dtype.name][line]
    return np.asarray(ulp * spacing * rng.choice([-1.0, 1.0], x.shape))


def measured(
    values: NDArray[np.float64], structure: Structure, cts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Standard deviation of Σ ct·f over the outputs of each block: `[q, blocks]`.

    `values` come from `lines`; `cts` is `[q, m]`, one row per cotangent.
    """
    if values.shape[-1] != cts.shape[1]:
        return np.zeros((len(cts), structure.blocks))
    remove = _parabola_removed()
    freedom = LINE.size - 3
    sums = structure.by_block(cts[:, None, None, :] * values)  # [q, spacing, line, blocks]
    residual = np.einsum("kl,qslb->qskb", remove, sums)
    deviation = np.sqrt(np.sum(residual**2, axis=2) / freedom)
    return np.asarray(np.where(np.isfinite(deviation), deviation, 0.0).max(axis=1))


@cache
def _parabola_removed() -> NDArray[np.float64]:
    """The projection [12, 12] that leaves of values on the line what no parabola explains."""
    fit = np.vander(LINE / LINE[-1], 3)
    return np.asarray(np.eye(LINE.size) - fit @ np.linalg.pinv(fit))


def modelled(
    values: NDArray[np.float64],
    cts: NDArray[np.float64],
    u: float,
    rounding: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Squared noise per output, `[q, m]`: sum over outputs and take the root.

    It is u·|ct·f|; where forward is known to lose more than 16 such units inside (`rounding` [m],
    in units of u), as in the tail of 1 + tanh, what it loses.
    """
    size = np.abs(values)
    if rounding is not None:
        size = np.where(rounding > LOSES * size, rounding, size)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray((u * cts * size) ** 2)
