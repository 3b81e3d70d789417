"""Sparsity: which elements of the cotangent reach which of the gradient, and which should."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.lost_contribution import along, jacobian
from gradcheck.explain.hypotheses.wrong_region import BLOCKS
from gradcheck.explain.hypothesis import Hypothesis, Observations
from gradcheck.explain.probe import RAISES, ROUNDING_TOLERANCE, Array, Float, Mask, Probe
from gradcheck.implementations.returned import Broken
from gradcheck.spec.defect import Defect

MAX_COTANGENT_SIZE: Final = 150
"""Elements of the cotangent up to which code is asked for each alone."""
MIN_COTANGENT_SIZE: Final = 4
"""Elements of it below which a probe says little."""
MAX_PROBES: Final = 5
MIN_PROBES: Final = 2
MIN_DIFFERING_PAIRS: Final = 3
DERIVATIVE_TOLERANCE: Final = 1e-9
"""Distance, relative to the largest, within which two derivatives are one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Two Jacobians, by elements of the cotangent and of the gradient: the code's and the right."""

    code: Float
    right: Float
    """The values of all primals."""

    @property
    def lost(self) -> Mask:
        """Pairs that the code leaves out."""
        return np.asarray((self.right != 0) & (self.code == 0))

    @property
    def extra(self) -> Mask:
        """Pairs that should not be there."""
        return np.asarray((self.right == 0) & (self.code != 0))

    @property
    def differs(self) -> Mask:
        """Pairs with a wrong derivative."""
        bound = DERIVATIVE_TOLERANCE * np.max(np.abs(self.right), initial=0.0)
        return np.asarray(np.abs(self.code - self.right) > bound)

    @property
    def copies(self) -> bool:
        """Whether both only copy elements, times one number, and add them up."""
        numbers = np.concatenate([self.code[self.code != 0], self.right[self.right != 0]])
        return (
            bool(np.ptp(numbers) <= DERIVATIVE_TOLERANCE * np.abs(numbers).max())
            if numbers.size
            else True
        )

    @property
    def rearranges(self) -> bool:
        """Whether both put each element in one place, and one in each place."""
        return all(
            bool((np.count_nonzero(j, axis=k) == 1).all())
            for j in (self.code, self.right)
            for k in (0, 1)
        )


def support(obs: Observations) -> Iterator[Hypothesis]:
    """The right derivatives, but for other pairs of elements."""
    name = obs.output
    asked = [(p, found) for p in _small(obs) if (found := _support(p, name)) is not None]
    every = [found for _, found in asked if found.right.any()]
    if len(every) < MIN_PROBES or sum(int(s.differs.sum()) for s in every) < MIN_DIFFERING_PAIRS:
        return
    for label, says, holds in _readings([probe for probe, _ in asked], name):
        if holds(every):
            lost = sum(int(s.lost.sum()) for s in every)
            extra = sum(int(s.extra.sum()) for s in every)
            of = sum(int((s.right != 0).sum()) for s in every)
            yield Hypothesis(
                label=label,
                says=f"{obs.gradient} {says}",
                fits=lambda probe: True,  # those that can tell were asked above
                evidence=(
                    f"of {of} pairs of an element of the cotangent and one of the gradient "
                    f"{lost} are lost and {extra} should not be there, in {len(every)} probes",
                ),
            )


def _small(obs: Observations) -> list[Probe]:
    """The smallest failing probes, first one of each sample."""
    fitting = [p for p in obs.failing if len(p.ct) == 1 and 1 < p.ct[0].size <= MAX_COTANGENT_SIZE]
    seen = [p.where for p in fitting]
    again = [seen[:k].count(where) for k, where in enumerate(seen)]
    order = sorted(
        range(len(fitting)),
        key=lambda k: (fitting[k].ct[0].size < MIN_COTANGENT_SIZE, again[k], fitting[k].ct[0].size),
    )
    return [fitting[k] for k in order[:MAX_PROBES]]


def _readings(probes: Sequence[Probe], name: str) -> Iterator[Reading]:
    """The readings that apply: pairs chosen by values, or by places."""
    right, code = (
        [any(_changes(p, name, of, kinds) for p in probes) for kinds in ("f", "iu")]
        for of in (_true, _given)
    )
    if right[0]:
        yield from BY_VALUE
    elif not code[0] and code[1] <= right[1]:
        yield from BY_PLACE


def _changes(
    probe: Probe,
    name: str,
    of: Callable[[Probe, Sequence[Array], str], Float | None],
    kinds: str,
) -> bool:
    """Whether a gradient depends on the values of primals of some kinds: mirrored, they differ."""
    others = [_mirrored(p) if p.dtype.kind in kinds else p for p in probe.primals]
    if not any(p.dtype.kind in kinds for p in probe.primals):
        return False
    found, given = of(probe, others, name), of(probe, probe.primals, name)
    return found is None or given is None or not np.allclose(found, given, equal_nan=True)


def _mirrored(p: Array) -> Array:
    return -np.flip(p) if p.dtype.kind == "f" else np.flip(p)


def _true(probe: Probe, primals: Sequence[Array], name: str) -> Float | None:
    return probe.gradient(name, primals=dict(zip(probe.names, primals, strict=True)))


def _given(probe: Probe, primals: Sequence[Array], name: str) -> Float | None:
    found = probe.at(primals, probe.ct)
    return None if found is None else found.got.get(name)


Reading = tuple[str, str, Callable[[Sequence[Support]], bool]]


def _copies(every: Sequence[Support]) -> bool:
    return all(s.copies for s in every)


def _rearranged(every: Sequence[Support]) -> bool:
    """Everything is still there, in another order."""
    return _copies(every) and all(s.rearranges for s in every)


def _let_pass(every: Sequence[Support]) -> bool:
    return _copies(every) and not any(s.lost.any() for s in every)


def _dropped(every: Sequence[Support]) -> bool:
    """Something is lost; where it is, nothing else is left, so that no sum was cut short."""
    return _copies(every) and not any(s.extra.any() or _cut_short(s) for s in every)


def _misplaced(every: Sequence[Support]) -> bool:
    return _copies(every) and any(s.extra.any() for s in every)


def _as_often(every: Sequence[Support]) -> bool:
    """Each element of the cotangent counts as often as it should, but elsewhere."""
    return _copies(every) and all(
        np.array_equal(np.count_nonzero(s.code, axis=1), np.count_nonzero(s.right, axis=1))
        for s in every
    )


def _permuted(every: Sequence[Support]) -> bool:
    """The derivatives of each element are the right ones, in other places."""
    return any(
        all(
            np.allclose(
                np.sort(s.code, axis=k), np.sort(s.right, axis=k), rtol=DERIVATIVE_TOLERANCE, atol=0
            )
            for s in every
        )
        for k in (0, 1)
    )


def _cut_short(s: Support) -> bool:
    """Whether an element that lost a contribution kept another."""
    lost = s.lost.any(axis=0)
    return bool((np.count_nonzero(s.code, axis=0)[lost] > 0).any())


ELSEWHERE: Final = "puts elements of the cotangent in other places than they belong to"
BY_PLACE: Final[tuple[Reading, ...]] = (
    (
        Defect.LAYOUT,
        "puts the cotangent's elements in another order than they came from",
        _rearranged,
    ),
    (Defect.INDEX, "lets elements of the cotangent pass where they should be held back", _let_pass),
    (Defect.INDEX, "loses elements of the cotangent that should pass", _dropped),
    (Defect.INDEX, ELSEWHERE, _misplaced),
    (Defect.INDEX, "gives each contribution to another element than it belongs to", _permuted),
)
"""Class, words and test where places alone decide which elements belong together."""
BY_VALUE: Final[tuple[Reading, ...]] = (
    (Defect.INDEX, ELSEWHERE, _as_often),
    (Defect.INDEX, "gives each contribution to another element than it belongs to", _permuted),
)
"""The same where values do: which of them are chosen is not a matter of places."""


def _support(probe: Probe, name: str) -> Support | None:
    """The two Jacobians; None where they cannot be had, or the code's is not linear."""
    key = ("support", name)
    if key not in probe.memo:
        probe.memo[key] = _asked(probe, name)
    found: Support | None = probe.memo[key]
    return found


def _asked(probe: Probe, name: str) -> Support | None:
    if name not in probe.got:
        return None
    right = jacobian(probe, name)
    if right is None:
        return None
    rows = []
    for e in range(probe.ct[0].size):
        one = np.zeros(probe.ct[0].size)
        one[e] = 1.0
        try:
            rows.append(probe.ask((one.reshape(probe.ct[0].shape),))[name].ravel())
        except (Broken, *RAISES):
            return None
    code = np.stack(rows)
    linear = probe.ct[0].ravel() @ code
    bound = ROUNDING_TOLERANCE[probe.dtype] * max(
        float(np.max(np.abs(linear), initial=0.0)), 1e-300
    )
    if not np.all(np.abs(linear - probe.got[name].ravel()) <= bound):
        return None
    return Support(code=code, right=right.reshape(code.shape))


Pairs = Callable[[Array, Array], Array]
"""Which pairs (place in the cotangent, place in the gradient) are left."""

KEPT_PAIRS: Final[tuple[tuple[str, str, Pairs], ...]] = (
    (Defect.TERM, "lacks what each place contributes to its own", lambda s, t: s != t),
    (Defect.INDEX, "lacks what each place contributes to the one before", lambda s, t: s != t + 1),
    (Defect.INDEX, "lacks what each place contributes to the one behind", lambda s, t: s + 1 != t),
    (Defect.TERM, "holds only what each place contributes to its own", lambda s, t: s == t),
    (Defect.INDEX, "lacks what places contribute to later ones", lambda s, t: s >= t),
    (Defect.INDEX, "lacks what places contribute to earlier ones", lambda s, t: s <= t),
    (Defect.TERM, "holds only what each place contributes to itself and its neighbours",
     lambda s, t: abs(s - t) <= 1),
    *(
        (Defect.SHAPE, f"lacks what is carried from one block of {block} to another",
         lambda s, t, block=block: s // block == t // block)
        for block in BLOCKS
    ),
)  # fmt: skip


def pairs(obs: Observations) -> Iterator[Hypothesis]:
    """Along an axis that the cotangent and the gradient share, some pairs of places are lost."""
    first, name = obs.first, obs.output
    for part, ct in enumerate(first.ct):
        for axis in range(-ct.ndim, 0):
            for own in _same_length(first, name, ct.shape[axis]):
                for label, says, kept in KEPT_PAIRS:
                    yield _hypothesis(obs, part, axis, own, label, says, kept)


def _same_length(probe: Probe, name: str, length: int) -> list[int]:
    shape = probe.right[name].shape
    return [k for k in range(-len(shape), 0) if shape[k] == length > 1]


def _hypothesis(
    obs: Observations, part: int, axis: int, own: int, label: str, says: str, kept: Pairs
) -> Hypothesis:
    name = obs.output

    def fits(probe: Probe) -> bool:
        taken = along(probe, name, part, axis)
        right = probe.right[name]
        if taken is None:
            return probe is not obs.first
        if right.ndim < -own or right.shape[own] != len(taken):
            return not probe.fails(name)
        to = np.arange(right.shape[own]).reshape(-1, *(1,) * (-own - 1))
        at = np.arange(len(taken)).reshape(-1, *(1,) * right.ndim)
        lost = (taken * ~kept(at, to)).sum(axis=0)
        return probe.reproduces(right - lost, name)

    where = f"along axis {axis} of the cotangent"
    return Hypothesis(label=label, says=f"{obs.gradient} {says}, {where}", fits=fits)
