"""Contributions: of all that must be added up, some is lost or overwritten, or one term is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.wrong_region import BLOCKS, by_value, on_kinks, zero
from gradcheck.explain.hypothesis import (
    Hypothesis,
    Observations,
    applied,
    read_output,
    read_primal,
    softmax,
)
from gradcheck.explain.probe import Array, Float, Mask, Probe, agree
from gradcheck.spec.defect import Defect


@dataclass(frozen=True, slots=True)
class Keep:
    """The contributions that are left: `of(slabs)` gives weights per slab and element.

    `shared` labels the defect where several slabs reach one element of the gradient, `alone` where
    each slab reaches its own (empty: other defects look alike there). `says` holds {} for the slabs
    in words; `because` follows where they are shared. `needs(n)` tells whether n slabs distinguish
    it from simpler defects.
    """

    shared: str
    alone: str
    says: str
    of: Callable[[Mask], Array]
    because: str = ""
    needs: Callable[[int], bool] = lambda n: n > 1


def _at(choose: Callable[[int], Array]) -> Callable[[Mask], Array]:
    return lambda reach: np.reshape(choose(len(reach)), (-1, *(1,) * (reach.ndim - 1)))


def _ends(reach: Mask, count: int, *, last: bool) -> Array:
    """The first or the last slabs that reach each element."""
    rank = np.cumsum(reach[::-1], axis=0)[::-1] if last else np.cumsum(reach, axis=0)
    return np.asarray(reach & (rank <= count))


def _after_blocks(block: int) -> Keep:
    says = f"lacks what is left over of {{}} after the last whole block of {block}"
    of = _at(lambda n: np.arange(n) < n // block * block)
    return Keep(Defect.SHAPE, Defect.SHAPE, says, of, needs=lambda n: n > block and n % block > 0)


def _beyond_first(block: int) -> Keep:
    says = f"lacks what lies beyond the first {block} of {{}}"
    return Keep(
        Defect.SHAPE,
        Defect.SHAPE,
        says,
        _at(lambda n: np.arange(n) < block),
        needs=lambda n: n > block,
    )


OVERWRITTEN: Final = ": overwritten where it must be added up"
PER_ELEMENT: Final = (
    *(
        Keep(Defect.ACCUMULATION, "", f"keeps, of what {{}} contribute to each element, {says}",
             of, because)
        for says, of, because in (
            ("the last alone", partial(_ends, count=1, last=True), OVERWRITTEN),
            ("the first alone", partial(_ends, count=1, last=False), ""),
            ("two at most, the first", partial(_ends, count=2, last=False), ""),
            ("two at most, the last", partial(_ends, count=2, last=True), ""),
        )
    ),
    Keep(Defect.REDUCTION, "", "is the mean of what {} contribute to each element",
         lambda reach: np.asarray(reach / np.maximum(reach.sum(axis=0), 1))),
)  # fmt: skip
BY_SLAB: Final = (
    Keep(Defect.ACCUMULATION, Defect.INDEX, "is what the last of {} contributes alone",
         _at(lambda n: np.arange(n) == n - 1), OVERWRITTEN),
    Keep(Defect.BROADCAST, Defect.INDEX, "is what the first of {} contributes alone",
         _at(lambda n: np.arange(n) == 0)),
    Keep(Defect.INDEX, Defect.INDEX, "lacks what the last of {} contributes",
         _at(lambda n: np.arange(n) < n - 1)),
    Keep(Defect.INDEX, Defect.INDEX, "lacks what the first of {} contributes",
         _at(lambda n: np.arange(n) > 0)),
    *map(_after_blocks, BLOCKS),
    *map(_beyond_first, BLOCKS),
)  # fmt: skip
LOSSES: Final = (*BY_SLAB, *PER_ELEMENT)


MAX_SLABS: Final = 64
"""Slabs up to which a cotangent is taken apart at the first probe."""
MAX_SLABS_TESTED: Final = 256
"""The same where they are put to the test; beyond, a probe says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A way to cut the cotangent of output `part` into slabs, in the order of memory.

    `says` names the slabs, `slabs(ct)` numbers the slab of each element from 0 (None: impossible).
    Without a `part` all cotangents are cut alike, and slabs of one number belong together.
    """

    part: int | None
    says: str
    slabs: Callable[[Array], Array | None]


def contributions(obs: Observations) -> Iterator[Hypothesis]:
    """The gradient with some of the cotangent's slabs left out."""
    first = obs.first
    indexed = any(p.dtype.kind != "f" for p in first.primals)
    by_values = on_kinks(obs) or by_value(obs, zero)
    ranks = [max(p.ct[k].ndim for p in obs.failing if k < len(p.ct)) for k in range(len(first.ct))]
    cuts = [cut for part, rank in enumerate(ranks) for cut in _cuts(part, rank)]
    joint = _cuts(None, min(ranks)) if len(ranks) > 1 else ()
    for cut in [*cuts, *joint]:
        taken = _taken(first, obs.output, cut, MAX_SLABS)
        if taken is None or len(taken) < 2:
            continue
        overlap = bool(((taken != 0).sum(axis=0) > 1).any())
        if not overlap and by_values:
            continue
        for keep in LOSSES:
            label = keep.shared if overlap else keep.alone
            if indexed and overlap and keep in PER_ELEMENT:
                label = Defect.DUPLICATES
            if label and any(keep.needs(n) for n in _counts(obs, cut)):
                yield _hypothesis(obs, cut, keep, label)


def _hypothesis(obs: Observations, cut: Cut, keep: Keep, label: str) -> Hypothesis:
    def fits(probe: Probe) -> bool:
        taken = _taken(probe, obs.output, cut, MAX_SLABS_TESTED)
        if taken is None:
            return probe is not obs.first
        left = (taken * keep.of(taken != 0)).sum(axis=0)
        guess = probe.right[obs.output] - taken.sum(axis=0) + left
        return probe.reproduces(guess, obs.output)

    because = keep.because if label != keep.alone else ""
    says = f"{obs.gradient} {keep.says.format(cut.says)}{because}"
    return Hypothesis(label=label, says=says, fits=fits)


def _counts(obs: Observations, cut: Cut) -> Iterator[int]:
    for probe in obs.failing:
        numbers = _numbers(probe, cut).values()
        yield max((int(n.max()) + 1 for n in numbers if n.size), default=0)


def _taken(probe: Probe, name: str, cut: Cut, most: int) -> Float | None:
    """Contributions of each slab of the cotangent to the gradient, [slabs, *gradient]."""
    key = ("contributions", name, cut.part, cut.says)
    found: Float | None = probe.memo.get(key)
    if found is not None:
        return found
    numbered = _numbers(probe, cut)
    count = max((int(n.max()) + 1 for n in numbered.values() if n.size), default=0)
    if not numbered or count > most:
        return None
    parts = []
    for slab in range(count):
        ct = tuple(
            np.where(numbered[k] == slab, part, 0.0) if k in numbered else np.zeros_like(part)
            for k, part in enumerate(probe.ct)
        )
        vjp = probe.vjp(ct=ct)
        if vjp is None or name not in vjp:
            return None
        parts.append(vjp[name])
    found = np.stack(parts) if parts else np.zeros((0, *probe.right[name].shape))
    probe.memo[key] = found
    return found


def along(probe: Probe, name: str, part: int, axis: int) -> Float | None:
    """Contributions of each place along an axis of a cotangent, [places, *gradient]."""
    if part >= len(probe.ct) or probe.ct[part].ndim < -axis:
        return None
    return _taken(probe, name, _axis_of(part, axis), MAX_SLABS_TESTED)


def jacobian(probe: Probe, name: str, part: int = 0) -> Float | None:
    """The derivative of each element of output `part` by a primal, outputs flattened in front.

    None where the cotangent is too large, or holds a zero.
    """
    ct = probe.ct[part]
    taken = _taken(probe, name, _elements(part), MAX_SLABS_TESTED)
    if taken is None or not ct.all():
        return None
    return np.asarray(taken / ct.reshape(-1, *(1,) * (taken.ndim - 1)))


def _numbers(probe: Probe, cut: Cut) -> dict[int, Array]:
    """The slabs of each output's cotangent that is cut; empty where one cannot be cut so."""
    chosen = range(len(probe.ct)) if cut.part is None else [cut.part]
    if any(k >= len(probe.ct) for k in chosen):
        return {}
    found = {k: cut.slabs(probe.ct[k]) for k in chosen}
    numbered = {k: n for k, n in found.items() if n is not None}
    return numbered if len(numbered) == len(found) else {}


# ── how a cotangent is cut ───────────────────────────────────────────────────────────────────


def _cuts(part: int | None, rank: int) -> Iterator[Cut]:
    for axis in [*range(-rank, 0), *((0, 1) if rank > 1 else ())]:
        yield _axis_of(part, axis)
    which = _which(part)
    for inner in range(1, rank):
        last = "axis" if inner == 1 else f"{inner} axes"
        yield Cut(
            part=part,
            says=f"the places along all but the last {last} of {which}",
            slabs=partial(_by_rows, inner),
        )
    yield _elements(part)
    for inner in range(2, rank):
        says = f"the places along the last {inner} axes of {which}"
        yield Cut(part=part, says=says, slabs=partial(_places, inner))
    for axis in range(-rank, 0):
        for count in (2, 3, 4):
            says = f"the {count} blocks along axis {axis} of {which}"
            yield Cut(part=part, says=says, slabs=partial(_blocks, axis, count))


def _which(part: int | None) -> str:
    named = {None: "all cotangents", 0: "the cotangent"}
    return named.get(part, f"output {part}'s cotangent")


def _axis_of(part: int | None, axis: int) -> Cut:
    which = _which(part)
    return Cut(
        part=part, says=f"the places along axis {axis} of {which}", slabs=partial(_by_axis, axis)
    )


def _elements(part: int | None) -> Cut:
    which = _which(part)
    return Cut(part=part, says=f"the elements of {which}", slabs=partial(_by_rows, 0))


def _by_axis(axis: int, ct: Array) -> Array:
    if not -ct.ndim <= axis < ct.ndim:
        return np.zeros(ct.shape, dtype=int)
    return _numbered(ct, axis)


def _by_rows(inner: int, ct: Array) -> Array | None:
    """All axes but the last `inner` taken as one."""
    if ct.ndim < inner:
        return None
    lead = ct.shape[: ct.ndim - inner]
    numbers = np.arange(int(np.prod(lead, dtype=int))).reshape((*lead, *(1,) * inner))
    return np.broadcast_to(numbers, ct.shape)


def _places(inner: int, ct: Array) -> Array | None:
    """The last `inner` axes taken as one, whatever stands before them."""
    if ct.ndim < inner:
        return None
    last = ct.shape[ct.ndim - inner :]
    return np.broadcast_to(np.arange(int(np.prod(last, dtype=int))).reshape(last), ct.shape)


def _blocks(axis: int, count: int, ct: Array) -> Array:
    if not -ct.ndim <= axis < ct.ndim or ct.shape[axis] % count or ct.shape[axis] <= count:
        return np.zeros(ct.shape, dtype=int)
    return np.asarray(_numbered(ct, axis) // (ct.shape[axis] // count))


def _numbered(ct: Array, axis: int) -> Array:
    k = axis % ct.ndim
    numbers = np.arange(ct.shape[k]).reshape(-1, *(1,) * (ct.ndim - 1 - k))
    return np.broadcast_to(numbers, ct.shape)


MAX_OFF_DIRECTION: Final = 1e-8
"""1 − R² up to which a row lies along a direction."""
MIN_ROW_LENGTH: Final = 4
MIN_ROWS: Final = 6
MIN_FREE_ELEMENTS: Final = 256
"""Elements of them, less one for each row, that do instead."""
MIN_SHARE: Final = 0.5
"""Share of failing probes that must have such rows, and of a probe's rows that must be wrong."""

Direction = Callable[[Probe], Array | None]


def residual(obs: Observations) -> Iterator[Hypothesis]:
    """Along ones, an argument, the output or its exponential; along the last axis, then others."""
    name, own = obs.output, obs.gradient
    if any(name not in p.got or not np.isfinite(p.got[name]).all() for p in obs.failing):
        return
    if not _linear(obs.first, name):
        return
    ndim = obs.first.right[name].ndim
    for axis in range(ndim - 1, -1, -1):
        where = "in every row" if axis == ndim - 1 else f"along axis {axis}"
        for word, direction in _directions(obs):
            found = _rows_along(obs.failing, name, direction, axis - ndim)
            if found is None or not found.enough(obs.failing):
                continue
            what, how = "one number", "a mean is missing or mis-weighted"
            if word:
                kind = "projection" if found.lacking else "term"
                what = f"a multiple of {word}"
                how = f"a {kind} along it is missing or mis-weighted"
            yield Hypothesis(
                label=Defect.TERM,
                says=f"{own} is off by {what} {where}: {how}",
                fits=_lies(name, direction, axis - ndim),
                evidence=(f"the residual lies along it {where}: 1 − R² ≤ {found.worst:.1g}",),
            )


def _lies(name: str, direction: Direction, axis: int) -> Callable[[Probe], bool]:
    def fits(probe: Probe) -> bool:
        return not probe.fails(name) or _rows_along([probe], name, direction, axis) is not None

    return fits


def _directions(obs: Observations) -> Iterator[tuple[str, Direction]]:
    """Directions that a residual may lie along, by name; "" is a constant row."""
    probe = obs.first
    shape = probe.right[obs.output].shape
    pairs = zip(probe.names, probe.primals, strict=True)
    names = [n for n, p in pairs if p.dtype.kind == "f" and p.shape == shape]
    yield "", lambda p: np.ones(p.right[obs.output].shape)
    for name in names:
        yield name, read_primal(name)
    for k, out in enumerate(probe.outputs):
        if out.shape == shape:
            word = "the output" if len(probe.outputs) == 1 else f"output {k}"
            yield word, read_output(k)
            yield f"exp of {word}", applied(np.exp, read_output(k))
    for name in names:
        yield f"softmax of {name}", applied(softmax, read_primal(name))
        yield f"what marks the largest of {name}", applied(_marked_largest, read_primal(name))


def _marked_largest(x: Float) -> Float:
    return np.asarray(x == np.max(x, axis=-1, keepdims=True), dtype=np.float64)


def _linear(probe: Probe, name: str) -> bool:
    twice = probe.ask(tuple(2 * part for part in probe.ct)).get(name)
    return twice is not None and agree(twice, 2 * probe.got[name], 1e-6)


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows that lie along a direction: the worst 1 − R², and whether right rows have no such part.

    `rows` of `probes` were long enough to show it, with `free` elements that no factor of a row
    explains.
    """

    worst: float
    lacking: bool
    rows: int
    free: int
    probes: int

    def enough(self, failing: Sequence[Probe]) -> bool:
        """Whether they are no coincidence."""
        many = self.rows >= MIN_ROWS or self.free >= MIN_FREE_ELEMENTS
        return many and self.probes >= MIN_SHARE * len(failing)


def _rows_along(
    probes: Sequence[Probe], name: str, direction: Direction, axis: int
) -> _Found | None:
    """Rows that lie along it; None if some wrong row does not, or if right rows do."""
    worst, rows, free, seen, lacking = 0.0, 0, 0, 0, True
    for probe in probes:
        along, right = direction(probe), probe.right[name]
        if along is None or along.shape != right.shape or right.ndim < -axis:
            return None
        if right.shape[axis] < MIN_ROW_LENGTH:
            continue
        v, n, r = (_rows(x, axis) for x in (along, right, probe.got[name] - right))
        wrong = _rows(probe.wrong(name), axis).any(axis=-1)
        if not np.mean(wrong) >= MIN_SHARE:  # it matters which row it is
            return None
        v, n, r = v[wrong], n[wrong], r[wrong]
        off, other = _unlike(r, v), _unlike(n, v)
        # what is right along it, too, is off by a factor
        lies = np.max(off, initial=0.0) <= MAX_OFF_DIRECTION < np.max(other, initial=0.0)
        if not lies:
            return None
        worst, rows, seen = max(worst, float(np.max(off))), rows + len(r), seen + 1
        free += r.size - len(r)
        lacking = lacking and bool((other >= 1 - MAX_OFF_DIRECTION).all())
    return _Found(worst, lacking, rows, free, seen)


def _rows(x: Array, axis: int) -> Array:
    return np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def _unlike(x: Float, v: Float) -> Float:
    """1 − R² of each row of x along that of v."""
    with np.errstate(all="ignore"):
        share = np.sum(x * v, -1) ** 2 / (np.sum(x * x, -1) * np.sum(v * v, -1))
        return np.asarray(np.nan_to_num(1.0 - share, nan=1.0))
