"""The derivative in one element from seven steps, far apart, down to its last bits.

It is known only if three neighbouring steps agree and no finer one contradicts them; a kink, a
staircase, absorption or a feature narrower than the step leaves no such three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.numerics.arrays import unit_roundoff
from gradcheck.numerics.evaluate import REFUSALS, Array, flatten
from gradcheck.numerics.richardson import SIGMAS

Float = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

STEPS: Final = {"float64": (6, 12, 18, 24, 30, 36, 42), "float32": (2, 5, 8, 11, 14, 17, 20)}
"""Negative exponents of two, in units of the element."""
CONCLUSIVE_BARS: Final = 64.0
"""An error of this many error bars is conclusive."""
CONCLUSIVE_SPREADS: Final = 8.0
"""An error this many times the spread of steps and sides is conclusive."""
SHOWS_BELOW: Final = 4.0
"""A finer step whose noise is so many times smaller than the error must show that error too."""


@dataclass(frozen=True, slots=True)
class Known:
    """A derivative, its error bar, and the sum of its terms' sizes."""

    value: float
    bar: float
    scale: float


@dataclass(frozen=True, slots=True)
class Step:
    """Slopes of Σ ct·f from one step, the noise of the central one, and Σ |ct·J|."""

    central: float
    behind: float
    ahead: float
    noise: float
    scale: float


def excluding(
    forward: Callable[[Array], Sequence[Array]],
    here: Array,
    base: Float,
    ct: Float,
    unit: float,
    got: float,
) -> Known | None:
    """The derivative of Σ ct·f at the number `here`, if it excludes `got`.

    Args:
        forward: the function of that number.
        here: an array without dimensions.
        base: forward's values there, [m].
        ct: the cotangent, [m].
        unit: a power of two, the unit of the longest step.
        got: the derivative given; excluded if it is not finite.
    """
    steps = [_step(forward, here, base, ct, unit * 2.0**-k) for k in STEPS[here.dtype.name]]
    found = []
    for k in range(2, len(steps)):
        known = _agreed(steps[k - 2 : k + 1], got)
        if known is not None:
            far = abs(got - known.value) if np.isfinite(got) else abs(known.value)
            if all(_shows(step, known.value, far) for step in steps[k + 1 :]):
                found.append(known)
    return min(found, key=lambda known: known.bar, default=None)


def _step(
    forward: Callable[[Array], Sequence[Array]], here: Array, base: Float, ct: Float, h: float
) -> Step | None:
    """One pair of values; None if forward refuses one, or does not respond to the step."""
    ends = [np.asarray(here + here.dtype.type(d)) for d in (h, -h)]
    right, left = float(ends[0]) - float(here), float(here) - float(ends[1])
    try:
        above, below = (flatten(forward(end)) for end in ends)
    except REFUSALS:
        return None
    if not (right > 0 and left > 0 and above.shape == below.shape == base.shape):
        return None
    moved = np.flatnonzero(above != below)
    if not moved.size:
        return None
    v, f = ct[moved], base[moved]
    rise, fall = above[moved] - f, f - below[moved]
    u = unit_roundoff(here.dtype)
    noise = SIGMAS * u * float(np.sqrt(np.sum((v * f) ** 2))) + u * abs(float(v @ f))
    both = v * (rise + fall) / (right + left)
    return Step(
        float(both.sum()),
        float(v @ fall) / left,
        float(v @ rise) / right,
        noise / min(right, left),
        float(np.abs(both).sum()),
    )


def _agreed(steps: Sequence[Step | None], got: float) -> Known | None:
    """The derivative by three steps, if they agree and exclude `got` on both sides."""
    if any(step is None for step in steps):
        return None
    first, second, last = (step for step in steps if step is not None)
    value = last.central
    bar = abs(last.central - second.central) + last.noise
    error = abs(got - value) if np.isfinite(got) else abs(value)
    spread = max(abs(s - value) for s in (first.central, last.behind, last.ahead))
    if not (error >= CONCLUSIVE_BARS * bar and error >= CONCLUSIVE_SPREADS * (spread + last.noise)):
        return None
    return Known(value, bar, last.scale)


def _shows(step: Step | None, value: float, error: float) -> bool:
    """Whether a finer step has the slope `value`, or is too noisy to show the `error`."""
    if step is None or step.noise * SHOWS_BELOW > error:
        return True
    return abs(step.central - value) <= error / 2
