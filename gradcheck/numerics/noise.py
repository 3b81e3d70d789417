"""The rounding noise of a forward's values: a model, and a measurement that overrules it.

The model u·‖ct·f‖ misses cancellation inside forward (layer_norm at 1000, a float32 table behind a
float64 interface). The measurement evaluates forward on short lines, where any smooth function is
close to a quintic: the residual of a quintic fit is noise (after Moré & Wild 2011).
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from gradcheck.numerics.arrays import Float
from gradcheck.numerics.evaluate import Array, Point, along
from gradcheck.numerics.sparsity import Structure

LINE: Final = np.array([-64, -53, -41, -29, -17, -6, 6, 17, 29, 41, 53, 64], dtype=np.float64)
SPACINGS: Final = {"float64": (1.0, 3.0**15), "float32": (1.0, 3.0**2)}
"""In ulp: one for rounding that changes with every bit, one for values that are constant between
neighbours (log(1 + tiny); a float32 table behind a float64 face, of which it spans a few
entries). It is odd, so that no table in steps of a power of two hides between its points, and so
small that the line's sixth power vanishes in rounding, also for a function of x − 1000."""
BREAK: Final = 16.0
"""How many times more the longer line must show than the shorter, and than a fit with one kink
leaves, to be explained by that kink."""
SLANTS: Final = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
"""Units by which elements move. Equal ones would leave a mean, and its rounding, unchanged."""
DEGREE: Final = 5
LINES: Final = 2
REACH: Final = {"float64": 2.0**-8, "float32": 2.0**-7}
"""Half the length of the line that shows staircases, as a part of each element."""
JUMP: Final = 2.0**-12
"""A change above this part of forward's largest value is a jump, not rounding."""
STAIR: Final = 512.0
"""The highest step of rounding, in units of u of forward's largest value."""
FAR: Final = 2.0**300
"""Numbers between its inverse and it have squares that neither overflow nor underflow."""
LOSES: Final = 16.0
"""Units of u of a value above which its collected rounding replaces the model."""
RELATIVE: Final = 128.0
"""Units of u by which a derivative may be off as a whole: a forward that cancels inside (the tail
of a tanh-form gelu) is wrong by the same amount at neighbouring points, which no line shows."""


def lines(point: Point, rng: np.random.Generator) -> Float:
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
    """1 to 3 ulp, times the line's spacing, of either sign per element; None for an index."""
    if x.dtype.kind != "f":
        return None
    size = np.maximum(np.abs(x), np.max(np.abs(x), initial=0.0) * 2.0**-10)
    ulp = np.spacing(np.where(size == 0, 1.0, size).astype(x.dtype))
    spacing = SPACINGS[x.dtype.name][line]
    return np.asarray(ulp * spacing * rng.choice(SLANTS, x.shape))


def staircase(point: Point, outputs: Float, rng: np.random.Generator) -> Float:
    """Rounding that each output has collected, `[m]`, in units of u, as far as values show it.

    A forward that cancels inside (1 + tanh far out) is a staircase whose steps may be longer than
    the lines above. On a longer line, cubic and quintic fits leave about the same residual of it;
    a smooth function is fitted better by the higher degree.
    """
    u, copies = point.u, []
    for p in point.primals:
        position = (LINE / LINE[-1]).reshape(-1, *(1,) * p.ndim)
        if p.dtype.kind == "f":
            position = position * REACH[p.dtype.name] * rng.choice([-1.0, 1.0], p.shape)
            copies.append((p * (1 + position)).astype(p.dtype))
        else:
            copies.append(np.broadcast_to(p, (LINE.size, *p.shape)))
    values = along(point, copies)
    if values is None or values.shape[1] != outputs.size:
        return np.zeros(outputs.size)
    cubic, quintic = (_deviation(values, degree) for degree in (3, 5))
    highest = STAIR * u * np.max(np.abs(outputs), initial=0.0)
    rounding = (quintic >= cubic / 4) & (quintic <= highest)
    return np.where(rounding, 2 * quintic / u, 0.0)


def measured(values: Float, structure: Structure, cts: Float) -> Float:
    """Standard deviation of Σ ct·f over the outputs of each block: `[q, blocks]`.

    `values` come from `lines`; `cts` is `[q, m]`, one row per cotangent.
    """
    if values.shape[-1] != cts.shape[1]:
        return np.zeros((len(cts), structure.blocks))
    return _rounding(structure.by_block(cts[:, None, None, :] * values))


def per_output(values: Float, outputs: Float) -> Float:
    """Standard deviation of each output, `[m]`; zeros where `lines` measured no rounding.

    A line that crosses a jump of forward shows the jump, which is not rounding.
    """
    if values.shape[-1] != outputs.size:
        return np.zeros(outputs.size)
    deviation = _rounding(values)
    lowest_jump = JUMP * np.max(np.abs(outputs), initial=0.0)
    return np.where(deviation <= lowest_jump, deviation, 0.0)


def scatter(values: Float) -> float:
    """Standard deviation of one output's rounding, from its `values` [12] on a line `LINE`."""
    return float(_deviation(values[:, None])[0])


def _rounding(values: Float) -> Float:
    """Noise of `values` [..., 2, 12, k] on the noisier line: [..., k].

    Noise on the longer line alone may be a kink that this line crosses, which is not noise,
    however near it is. (A kink at x itself shows on both.)
    """
    both = np.moveaxis(values, (-3, -2), (0, 1))
    columns = both.reshape(LINES, LINE.size, -1)
    short, long = _deviation(columns)
    odd = long > BREAK * short
    if odd.any():
        rest = _beside_kink(columns[..., odd])
        beside = (rest[1] <= long[odd] / BREAK) & ~(rest[0] < short[odd] / BREAK)
        long[odd] = np.where(beside, rest[1], long[odd])
    return np.asarray(np.maximum(short, long).reshape(both.shape[2:]))


def _deviation(values: Float, degree: int = DEGREE) -> Float:
    """The residual deviation of a polynomial fit to `values` [..., 12, k]: [..., k]."""
    residual, _ = _unexplained(values, *_fit(degree))
    deviation = _root(residual, LINE.size - degree - 1)
    return np.asarray(np.where(np.isfinite(deviation), deviation, 0.0))


def _root(residual: Float, freedom: int) -> Float:
    """The root of Σ residual² / `freedom` over its last but one axis, where that has one."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.sqrt(np.sum(residual**2, axis=-2) / freedom)
        lost = ~np.isfinite(found)
        if lost.any():  # squares overflow, or a value is missing
            largest = np.max(np.abs(residual), axis=-2, keepdims=True)
            part = np.sqrt(np.sum((residual / largest) ** 2, axis=-2) / freedom)
            found = np.where(lost, largest[..., 0, :] * part, found)
    return np.asarray(found)


def _beside_kink(values: Float) -> Float:
    """The residual deviation of a cubic with one kink fitted to `values` [..., 12, k]: [..., k]."""
    t = LINE / LINE[-1]
    least = np.full((*values.shape[:-2], values.shape[-1]), np.inf)
    for at in range(1, LINE.size):
        residual, coefficients = _unexplained(values, *_fit(3, at))
        jump, bend = coefficients[..., -2, :], coefficients[..., -1, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            kink = -jump / bend  # where both sides meet; a jump, if not between the two points
        met = (t[at - 1] <= kink) & (kink <= t[at])
        deviation = _root(residual, LINE.size - 6)
        least = np.where(met, np.fmin(least, deviation), least)
    return least


@cache
def _fit(degree: int, broken_at: int = 0) -> tuple[Float, Float]:
    """Columns of a fit to values on the line, and their pseudo-inverse.

    They are powers and, for `broken_at`, a jump and a bend before that point.
    """
    t = LINE / LINE[-1]
    columns = np.vander(t, degree + 1)
    if broken_at:
        beyond = np.where(np.arange(LINE.size) >= broken_at, 1.0, 0.0)
        columns = np.column_stack([columns, beyond, beyond * t])
    return columns, np.linalg.pinv(columns)


def _unexplained(values: Float, columns: Float, inverse: Float) -> tuple[Float, Float]:
    """Residual [..., 12, k] and coefficients of the best fit of `columns` to `values`."""
    with np.errstate(invalid="ignore"):
        moved = values - values[..., :1, :]  # exact: the fit must not round a constant
        coefficients = inverse @ moved
        return moved - columns @ coefficients, coefficients


def modelled(
    values: Float,
    cts: Float,
    u: float,
    rounding: Float | None = None,
) -> Float:
    """Standard deviation of each output's rounding, `[q, m]`.

    It is u·|ct·f|; or `rounding` [m], the known rounding inside forward in units of u, where that
    exceeds 16 such units, as in the tail of 1 + tanh.
    """
    size = np.abs(values)
    if rounding is not None:
        size = np.where(rounding > LOSES * size, rounding, size)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(u * cts * size))


def unit_of(deviations: Float) -> float:
    """A power of two in which squares of `deviations` are numbers: 1 but far from 1."""
    largest = float(np.max(deviations, initial=0.0))
    ordinary = 1 / FAR <= largest <= FAR or largest == 0 or not np.isfinite(largest)
    return 1.0 if ordinary else 2.0 ** int(np.frexp(largest)[1])
