"""The kinks that a case declares: which elements lie on one, and which gradients they may have.

The slopes allowed are written in the spec (`Kink.accept`). Without a spec, `open_elements.py` finds
the kinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gradcheck.errors import SpecError
from gradcheck.judge.compare import Comparison, Interval
from gradcheck.judge.cotangents import Cotangents
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Array, Float, Mask, as_tuple
from gradcheck.numerics.draw import key_of
from gradcheck.spec.operator import Convention, Kink
from gradcheck.spec.suite import Case

if TYPE_CHECKING:
    from gradcheck.numerics.operator_oracle import Oracle


SMOOTH_DISTANCE: Final = 0.125
"""Distance of a smooth sample from every kink."""
ORACLE_DISTANCE: Final = 1e-20
"""Below this distance the oracle's ordinary step would cross the kink."""
POINTS_PER_ELEMENT: Final = 12
"""Random points beside a tie, per element: two elements take each place and sign in some."""
MAX_POINTS: Final = 48
"""Points at most: among five equal elements each takes each place in some of them."""
POINT_DISTANCE: Final = 1e-15
"""Their distance: nearer than any other element, farther than the oracle steps."""
RANDOM_DIRECTIONS: Final = 4
"""Random directions through all elements on a kink, beside the one of all ones."""


class DeclaredKinks:
    """The declared kinks of one case.

    `convention` names a system: where it has a convention, only that is allowed.

    Raises:
        SpecError: a smooth sample comes near a kink, a kink sample visits none, or a gap is not
            shaped as its primal.
    """

    def __init__(
        self,
        case: Case,
        primals: Sequence[Array],
        convention: str = "",
        distance: float = SMOOTH_DISTANCE,
    ) -> None:
        """Measure the gaps; smooth samples keep `distance` from every kink."""
        self._case, self._primals, self._convention = case, primals, convention
        self._distance = distance
        self._resolved: dict[tuple[int, bytes], list[Float]] = {}
        self._kinks: dict[int, list[tuple[Kink, Mask]]] = {}
        self.beside: dict[int, Mask] = {}
        self._close: dict[int, Mask] = {}
        names = case.primal_names
        for kink in case.spec.kinks:
            name = kink.primal or case.spec.primals[0]
            if name not in names:
                continue
            index = names.index(name)
            gap = self._gap(kink, index)
            for masks, distance in ((self.beside, SMOOTH_DISTANCE), (self._close, ORACLE_DISTANCE)):
                near = (gap > 0) & (gap < distance)
                masks[index] = masks.get(index, np.zeros(gap.size, dtype=bool)) | near
            self._kinks.setdefault(index, []).append((kink, gap == 0))
        if case.sample.at_kink and not any(on.any() for _, on in self._all()):
            raise SpecError(f"{case.name}: at_kink=True, but no element lies exactly on a kink")

    def _all(self) -> list[tuple[Kink, Mask]]:
        return [pair for pairs in self._kinks.values() for pair in pairs]

    def _gap(self, kink: Kink, index: int) -> Float:
        case = self._case
        with np.errstate(all="ignore"):
            gap = np.asarray(kink.gap(F64, *self._primals, **case.attrs), dtype=np.float64)
        if gap.shape != self._primals[index].shape:
            raise SpecError(
                f"{case.name}: the gap of the kink {kink.name!r} has shape {gap.shape}, its "
                f"primal has {self._primals[index].shape}; give one distance per element"
            )
        smooth = gap[gap < self._distance]
        if smooth.size and not case.sample.at_kink:
            where = (
                f"on the kink {kink.name!r}"
                if smooth.min() == 0
                else f"{smooth.min():.3g} from the kink {kink.name!r}"
            )
            raise SpecError(
                f"{case.name}: an element lies {where}; "
                "draw with draw.away, or mark the sample at_kink=True"
            )
        return np.asarray(gap.reshape(-1))

    def on(self, index: int) -> Mask | None:
        """Which elements of a primal lie on a kink, [n]; None if it has no kinks."""
        pairs = self._kinks.get(index)
        return np.any([on for _, on in pairs], axis=0) if pairs else None

    def still(self) -> list[Mask | None]:
        """Per primal, in its shape: the elements that no direction may move."""
        return self._shaped([self.on(i) for i in range(len(self._primals))])

    def close(self) -> list[Mask | None]:
        """Per primal, in its shape: the elements nearer to a kink than the oracle steps."""
        return self._shaped([self._close.get(i) for i in range(len(self._primals))])

    def near(self) -> list[Mask | None]:
        """Per primal, in its shape: the elements on a kink, or so near that long steps cross it."""
        on = {i: self.on(i) for i in range(len(self._primals))}
        return self._shaped([m if m is None else m | self.beside[i] for i, m in on.items()])

    def _shaped(self, masks: list[Mask | None]) -> list[Mask | None]:
        pairs = zip(masks, self._primals, strict=True)
        return [None if mask is None else mask.reshape(p.shape) for mask, p in pairs]

    def allowed(
        self, index: int, cts: Cotangents, oracle: Callable[[], Oracle]
    ) -> KinkConstraint | None:
        """The gradients allowed for primal `index`; None if none of its elements is near a kink."""
        on, beside = self.on(index), self.beside.get(index)
        if on is None or beside is None or not (on.any() or beside.any()):
            return None
        shape = (len(cts.values), on.size)
        which = np.zeros(shape, dtype=bool)
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        followed, narrowed = [], []
        ties = np.zeros(on.size, dtype=bool)
        for kink, here in self._kinks[index]:
            if not here.any():
                continue
            tables = tuple((c, self._wanted(c, index, cts)) for c in kink.conventions)
            if tables:
                followed.append(FollowedConvention(kink.name, here, tables))
            chosen = [w for c, w in tables if self._convention in c.systems]
            if chosen:
                ends = chosen[0], chosen[0]
                narrowed.append(f"on {kink.name} only what {self._convention} returns is right")
            elif kink.directional:
                ends = one_sided(oracle(), cts, index, here)
                ties |= here
                for one in self._resolutions(oracle(), index, here):
                    ends = np.minimum(ends[0], one), np.maximum(ends[1], one)
            else:
                flat = elementwise_cotangents(cts, here.size, kink)
                ends = slope_interval(kink.slopes(self._case.attrs), flat)
            which |= here
            low = np.where(here, np.minimum(low, ends[0]), low)
            high = np.where(here, np.maximum(high, ends[1]), high)
        interval = Interval(which, np.where(which, low, 0.0), np.where(which, high, 0.0))
        directions = None
        if ties.sum() > 1:
            resolved = self._resolutions(oracle(), index, ties)
            directions = shared_directions(oracle(), cts, index, ties, resolved)
        return KinkConstraint(
            on, beside, interval, directions, tuple(followed), "; ".join(narrowed)
        )

    def _resolutions(self, oracle: Oracle, index: int, which: Mask) -> list[Float]:
        """Gradients [q, n] at points where the kink is resolved in one way or another.

        The one-sided derivatives move an element of a tie to its ends; where other elements move
        too, it comes to stand in the middle (the second of three equal ones, sorted).
        """
        if which.sum() < 2:
            return []
        key = (index, which.tobytes())
        if key not in self._resolved:
            rng = np.random.Generator(np.random.Philox(key=key_of("beside a kink")))
            ranks = np.arange(1, which.size + 1) / which.size
            count = min(POINTS_PER_ELEMENT * int(which.sum()), MAX_POINTS)
            random = rng.uniform(-1.0, 1.0, (count, which.size))
            moves = np.concatenate([[ranks, -ranks], random]) * which * POINT_DISTANCE
            self._resolved[key] = oracle.nearby(index, moves)
        return self._resolved[key]

    def _wanted(self, convention: Convention, index: int, cts: Cotangents) -> Float:
        """The gradient of primal `index` by a convention, [q, n]."""
        case = self._case
        if convention.vjp is None:
            slope = convention.slope
            number = slope(**case.attrs) if callable(slope) else slope
            assert number is not None
            flat = elementwise_cotangents(cts, self._primals[index].size, convention)
            return slope_interval((number, number), flat)[0]
        rows: list[Float] = []
        for ct in cts.values:
            bare = ct[0] if len(ct) == 1 else ct
            with np.errstate(all="ignore"):
                gradients = as_tuple(convention.vjp(F64, bare, *self._primals, **case.attrs))
            rows.append(np.asarray(gradients[index], dtype=np.float64).reshape(-1))
        return np.stack(rows)


@dataclass(frozen=True, slots=True)
class KinkDirections:
    """Directions [k, n] through elements on a kink, and the range of ⟨g, d⟩: [q, k] each."""

    along: Float
    low: Float
    high: Float

    def violated(self, got: Float, bound: Float) -> tuple[float, float, float] | None:
        """The worst (⟨g, d⟩, low, high) outside its range; `got` and `bound` are [q, n]."""
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
class FollowedConvention:
    """One kink's conventions, and the gradient of each for the elements on it."""

    kink: str
    which: Mask
    tables: tuple[tuple[Convention, Float], ...]

    def by(self, found: Comparison) -> str:
        """The conventions that a gradient follows; "" where all of them agree."""
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
    """The gradients allowed for one primal's elements on declared kinks.

    `on` [n] marks the elements on a kink, `beside` [n] those close to one.
    """

    on: Mask
    beside: Mask
    interval: Interval
    directions: KinkDirections | None
    followed: tuple[FollowedConvention, ...]
    narrowed: str

    @property
    def known(self) -> Mask:
        """Elements to be settled by the oracle: beside a kink, and on one with directions."""
        return self.beside if self.directions is None else self.beside | self.on


def elementwise_cotangents(cts: Cotangents, size: int, owner: Kink | Convention) -> Float:
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


def slope_interval(slopes: tuple[float, float], cts: Float) -> tuple[Float, Float]:
    """The cotangents times the lowest and the highest slope, sorted; [q, n] each."""
    with np.errstate(invalid="ignore"):
        ends = np.stack([np.where(cts == 0, 0.0, cts * slope) for slope in slopes])
    return ends.min(axis=0), ends.max(axis=0)


def one_sided(oracle: Oracle, cts: Cotangents, index: int, which: Mask) -> tuple[Float, Float]:
    """The range of the one-sided derivatives of every output, element by element; [q, n] each."""
    low, high = np.zeros((len(cts.values), which.size)), np.zeros((len(cts.values), which.size))
    for element in np.flatnonzero(which):
        direction = np.zeros(which.size)
        direction[element] = 1.0
        low[:, element], high[:, element] = _between(oracle, cts, index, direction)
    return low, high


def _between(oracle: Oracle, cts: Cotangents, index: int, direction: Float) -> tuple[Float, Float]:
    """The range of the change of Σ ct·f along a direction: [q] each.

    An output alone is (mostly) convex or concave at its kink: its slopes lie between the two
    one-sided ones, and a negative cotangent reverses the interval.
    """
    behind, ahead = oracle.one_sided(index, direction)
    products = cts.flat * np.stack([behind, ahead])[:, None, :]  # [2, q, m]
    return products.min(axis=0).sum(axis=-1), products.max(axis=0).sum(axis=-1)


def shared_directions(
    oracle: Oracle, cts: Cotangents, index: int, which: Mask, resolved: list[Float]
) -> KinkDirections:
    """Directions through the elements `which` [n] of a tie, and the range of each.

    `resolved` are gradients [q, n] at points beside the tie.
    """
    rng = np.random.Generator(np.random.Philox(key=key_of("kink directions")))
    size = (RANDOM_DIRECTIONS, which.size)
    random = rng.choice([-1.0, 1.0], size) * rng.uniform(0.5, 1.5, size)
    along = np.concatenate([np.ones((1, which.size)), random]) * which
    ends = [_between(oracle, cts, index, d) for d in along]
    low, high = (np.stack(side, axis=1) for side in zip(*ends, strict=True))
    for gradient in resolved:
        product = gradient @ along.T
        low, high = np.minimum(low, product), np.maximum(high, product)
    return KinkDirections(along, low, high)
