"""What is allowed for one gradient whose elements sit on declared kinks, and whose choice it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError
from gradcheck.judge.compare import Comparison, Interval
from gradcheck.judge.cotangents import Cotangents
from gradcheck.numerics.draw import key_of
from gradcheck.spec.operator import Convention, Kink

if TYPE_CHECKING:
    from gradcheck.numerics.oracle import Oracle

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

DIRECTIONS: Final = 4
"""Random directions through all elements on a kink, beside the one of all ones."""


@dataclass(frozen=True, slots=True)
class Directions:
    """Directions [k, n] through elements on a kink, and what ⟨g, d⟩ may be: [q, k] each."""

    along: Float
    low: Float
    high: Float

    def violated(self, got: Float, bound: Float) -> tuple[float, float, float] | None:
        """The worst (⟨g, d⟩, low, high) outside; `got` and `bound` are [q, n]."""
        with np.errstate(invalid="ignore"):
            product = got @ self.along.T
            allowed = bound @ np.abs(self.along).T
            ok = (product >= self.low - allowed) & (product <= self.high + allowed)
            if ok.all():
                return None
            excess = np.maximum(self.low - product, product - self.high) / allowed
        worst = np.unravel_index(np.argmax(np.where(ok, -np.inf, excess)), ok.shape)
        return float(product[worst]), float(self.low[worst]), float(self.high[worst])


@dataclass(frozen=True, slots=True)
class Followed:
    """One kink's table of conventions: what each would return, for the elements on it."""

    kink: str
    which: Mask
    tables: tuple[tuple[Convention, Float], ...]

    def by(self, found: Comparison) -> str:
        """Which conventions a gradient follows, "" where all of them say the same."""
        agree = []
        for convention, wanted in self.tables:
            here = self.which & (np.abs(wanted) < np.inf)
            with np.errstate(invalid="ignore"):
                off = np.abs(found.got - wanted)
            near = np.isfinite(off) & (off <= found.bound)
            ok = np.where(here, near, found.got == wanted)[:, self.which]
            if ok.all():
                agree.append(convention)
        if len(agree) == len(self.tables) and len(agree) > 1:
            return ""
        if not agree:
            return f"{self.kink}: none that is known"
        names = "; ".join(f"{c.name} ({', '.join(c.systems)})" for c in agree)
        return f"{self.kink}: {names}"


@dataclass(frozen=True, slots=True)
class KinkConstraint:
    """One primal's elements on declared kinks, `on` [n], and beside one, `beside` [n]."""

    on: Mask
    beside: Mask
    interval: Interval
    directions: Directions | None
    followed: tuple[Followed, ...]
    narrowed: str

    @property
    def known(self) -> Mask:
        """What the oracle must tell: beside a kink, and on one where directions are judged."""
        return self.beside if self.directions is None else self.beside | self.on


def elementwise(cts: Cotangents, size: int, owner: Kink | Convention) -> Float:
    """The cotangents [q, n] of a forward that acts element by element.

    Raises:
        SpecError: forward has another number of outputs than elements.
    """
    flat = cts.flat
    if flat.shape[1] != size:
        raise SpecError(
            f"{owner.name!r} gives slopes, but forward does not act element by element; write "
            "accept='directional', and conventions with a vjp"
        )
    return flat


def sloped(slopes: tuple[float, float], cts: Float) -> tuple[Float, Float]:
    """The cotangents times the lowest and the highest slope, sorted; [q, n] each."""
    with np.errstate(invalid="ignore"):
        ends = np.stack([np.where(cts == 0, 0.0, cts * slope) for slope in slopes])
    return ends.min(axis=0), ends.max(axis=0)


def one_sided(oracle: Oracle, cts: Cotangents, index: int, which: Mask) -> tuple[Float, Float]:
    """Between the one-sided derivatives of every output, element by element; [q, n] each."""
    low, high = np.zeros((len(cts.values), which.size)), np.zeros((len(cts.values), which.size))
    for element in np.flatnonzero(which):
        direction = np.zeros(which.size)
        direction[element] = 1.0
        low[:, element], high[:, element] = _between(oracle, cts, index, direction)
    return low, high


def _between(oracle: Oracle, cts: Cotangents, index: int, direction: Float) -> tuple[Float, Float]:
    """What Σ ct·f may change by along a direction: [q] each.

    An output alone is (mostly) convex or concave at its kink: its slopes lie between the two
    one-sided ones, and a cotangent's sign turns the interval round.
    """
    behind, ahead = oracle.one_sided(index, direction)
    products = cts.flat * np.stack([behind, ahead])[:, None, :]  # [2, q, m]
    return products.min(axis=0).sum(axis=-1), products.max(axis=0).sum(axis=-1)


def sharing(
    oracle: Oracle, cts: Cotangents, index: int, which: Mask, resolved: list[Float]
) -> Directions:
    """Directions through the elements `which` [n] of a tie, and what each may come to.

    `resolved` are gradients [q, n] at points beside the tie.
    """
    rng = np.random.Generator(np.random.Philox(key=key_of("kink directions")))
    size = (DIRECTIONS, which.size)
    random = rng.choice([-1.0, 1.0], size) * rng.uniform(0.5, 1.5, size)
    along = np.concatenate([np.ones((1, which.size)), random]) * which
    ends = [_between(oracle, cts, index, d) for d in along]
    low, high = (np.stack(side, axis=1) for side in zip(*ends, strict=True))
    for gradient in resolved:
        product = gradient @ along.T
        low, high = np.minimum(low, product), np.maximum(high, product)
    return Directions(along, low, high)
