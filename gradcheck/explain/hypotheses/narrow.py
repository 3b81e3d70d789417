"""Narrow types: operands, the result, products or sums are rounded to fewer bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import is_diagonal
from gradcheck.explain.hypothesis import Hypothesis, Observations
from gradcheck.explain.probe import RAISES, ROUNDING_TOLERANCE, Array, Float, Gradients, Probe, bare
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.narrow import FLOAT16, TF32, Narrow, NarrowArithmetic, cut, narrower
from gradcheck.results.finding import COMPUTED_IN
from gradcheck.spec.defect import Defect

MAX_ROUNDING_UNITS: Final = 2.0**8
"""Units of a type, of the largest element, that no rounding to it costs at ordinary values."""
OWN_ROUNDING_UNITS: Final = 8.0
"""Units of roundoff of the code's own dtype, of the largest element, beside what its text costs."""
MAX_RELATIVE_DISTANCE: Final = 0.1
"""A prediction that is off by no more must be so many times nearer than the right gradient."""
SAME_BITS: Final = (TF32, FLOAT16)
"""Types of as many bits: they differ only where float16's exponents end."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A place that may be rounded: its words, and the gradients when it is rounded to a type."""

    words: str
    gradients: Callable[[Probe, Narrow, bool], Gradients | None]
    truncates: bool = True


def narrowed(obs: Observations) -> Iterator[Hypothesis]:
    """Each place rounded to each type, to nearest and toward zero."""
    likely = _likely(obs)
    if not likely:
        return
    for place, truncated in _ways(obs, likely):
        fit = _fitting(obs, place, likely, truncated)
        if fit and _fitting(obs, place, _kinds(obs), truncated) == fit:
            yield from _each(obs, place, fit, truncated)


def turned(obs: Observations) -> Iterator[Hypothesis]:
    """A choice among elements (the largest, an order) that rounding changed, and nothing else.

    It costs any amount. Element by element, a threshold that is a little off does the same, and
    is likelier.
    """
    name, probe = obs.output, obs.first
    if name not in probe.got or probe.truth.spec is None or is_diagonal(probe, name):
        return
    for place, truncated in _ways(obs, _kinds(obs)):
        fit = _fitting(obs, place, _kinds(obs), truncated)
        if fit:
            yield from _each(obs, place, fit, truncated)


def _kinds(obs: Observations) -> list[Narrow]:
    """The types to be told apart: of a difference, those that may explain it."""
    spec = obs.first.truth.spec
    return _likely(obs) if spec is None else [*narrower(obs.first.dtype)]


def _likely(obs: Observations) -> list[Narrow]:
    if obs.output not in obs.first.got:
        return []
    return [kind for kind in narrower(obs.first.dtype) if _costs(obs, kind)]


def _ways(obs: Observations, kinds: Sequence[Narrow]) -> Iterator[tuple[_Place, bool]]:
    for place in _places(obs, kinds):
        yield place, False
        if place.truncates:
            yield place, True


def _fitting(
    obs: Observations, place: _Place, kinds: Sequence[Narrow], truncated: bool
) -> list[Narrow]:
    """The types that reproduce the gradient at the first probe."""
    return [k for k in kinds if _hypothesis(obs, place, [k], truncated).fits(obs.first)]


def _each(
    obs: Observations, place: _Place, fit: Sequence[Narrow], truncated: bool
) -> Iterator[Hypothesis]:
    """All types together where no probe tells them apart, then fewer."""
    for count in range(len(fit), 0, -1):
        for kinds in combinations(fit, count):
            yield _hypothesis(obs, place, kinds, truncated)


def _costs(obs: Observations, kind: Narrow) -> bool:
    """Whether rounding to a type may cost as much as the gradient is off."""
    got, right = obs.first.got[obs.output], obs.first.right[obs.output]
    known = np.isfinite(got) & np.isfinite(right)
    if got.size and not known.any():
        return False
    off = np.max(np.abs(got - right), initial=0.0, where=known)
    size = np.max(np.abs(right), initial=0.0, where=known)
    return bool(off <= MAX_ROUNDING_UNITS * 2.0**-kind.bits * size)


def _hypothesis(
    obs: Observations, place: _Place, kinds: Sequence[Narrow], truncated: bool
) -> Hypothesis:
    """One place of one type; of more, where none tells itself from the others at any probe."""
    says = f"{place.words} {_as(kinds, 'cut' if truncated else 'rounded')}"
    if not place.truncates:
        says = f"{place.words} {_as(kinds, 'kept')}"

    def fits(probe: Probe) -> bool:
        each = [_predicted(probe, place, kind, truncated, obs) for kind in kinds]
        return all(
            probe.reproduces(one, obs.output)
            or _to_rounding(probe, one, obs.output)
            or _beyond(probe, one, obs.output)
            for one in each
        )

    cause = COMPUTED_IN + " or ".join(kind.title for kind in kinds)
    return Hypothesis(label=Defect.PRECISION, says=says, fits=fits, cause=cause)


def _to_rounding(probe: Probe, prediction: Float | None, name: str) -> bool:
    """Whether a prediction is off by what the code's own dtype costs, and ten times nearer."""
    got = probe.got.get(name)
    if prediction is None or got is None or got.shape != prediction.shape:
        return False
    if not (np.isfinite(got).all() and np.isfinite(prediction).all() and probe.fails(name)):
        return False
    right, mine = probe.right[name], np.abs(prediction - got)
    size = np.max(np.abs(right), initial=0.0)
    own = (
        probe.rounding(name)
        - (ROUNDING_TOLERANCE[probe.dtype] - OWN_ROUNDING_UNITS * probe.u) * size
    )
    closest = MAX_RELATIVE_DISTANCE * np.max(np.abs(right - got), initial=0.0)
    return bool(np.all(mine <= own) and np.max(mine, initial=0.0) <= closest)


def _beyond(probe: Probe, prediction: Float | None, name: str) -> bool:
    """Whether nothing finite came, as predicted: all numbers lie beyond the type's exponents."""
    got = probe.got.get(name)
    if prediction is None or got is None or not got.size or np.isfinite(got).any():
        return False
    return np.array_equal(got, prediction, equal_nan=True)


def _as(kinds: Sequence[Narrow], done: str) -> str:
    """The rounding in words that name the type, or every type that it may be."""
    into = "in" if done == "kept" else "to"
    alike = [kind for kind in kinds if kind in SAME_BITS]
    phrases = []
    if TF32 in alike:
        named, verb = " and ".join(kind.title for kind in alike), "do" if alike[1:] else "does"
        phrases.append(f"{into} {_bits(TF32)} bits of mantissa, as {named} {verb}")
        kinds = [kind for kind in kinds if kind not in SAME_BITS]
    phrases += [f"{into} {kind.title} ({_bits(kind)} bits of mantissa)" for kind in kinds]
    return f"{done} {', or '.join(phrases)}"


def _bits(kind: Narrow) -> int:
    """Stored bits of the mantissa, without the leading one."""
    return kind.bits - 1


def _predicted(
    probe: Probe, place: _Place, kind: Narrow, truncated: bool, obs: Observations
) -> Float | None:
    key = "explain.rules.narrowed", place.words, kind.name, truncated
    if key not in probe.memo:
        try:
            probe.memo[key] = place.gradients(probe, kind, truncated)
        except RAISES:
            probe.memo[key] = None
    found: Mapping[str, Float] | None = probe.memo[key]
    return None if found is None else found.get(obs.output)


def _places(obs: Observations, likely: Sequence[Narrow]) -> Iterator[_Place]:
    """The likeliest first; one operand before all those that have a part in the gradient."""
    names = [
        name
        for name, primal in zip(obs.first.names, obs.first.primals, strict=True)
        if primal.dtype.kind == "f"
    ]
    alone = {name: _Place(f"{name} is", _incoming([name], cotangent=False)) for name in names}
    yield from alone.values()
    yield _Place("the cotangent is", _incoming([], cotangent=True))
    yield _Place(f"{obs.gradient} is", _result(obs.output))
    parts = [n for n, place in alone.items() if any(_matters(obs, place, k) for k in likely)]
    if len(parts) > 1:
        yield _Place(f"{_all(parts)} are", _incoming(parts, cotangent=False))
    if parts:
        yield _Place(f"{_all([*parts, 'the cotangent'])} are", _incoming(parts, cotangent=True))
    if obs.first.truth.spec is not None:
        for what in ("products", "sums"):
            yield _Place(f"{what} are", _inside(what), truncates=False)


def _matters(obs: Observations, place: _Place, kind: Narrow) -> bool:
    """Whether rounding one operand changes the gradient; a difference, by more than its bar."""
    probe, name = obs.first, obs.output
    found = _predicted(probe, place, kind, False, obs)
    if found is None:
        return False
    known = 0.0 if probe.truth.spec is not None else probe.rounding(name)
    return bool(np.any(np.abs(found - probe.right[name]) > known))


def _all(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _held(values: Array, kind: Narrow, truncated: bool) -> Array:
    if values.dtype.kind != "f":
        return values
    return cut(values, kind.bits) if truncated else kind.rounded(values)


def _incoming(
    names: Sequence[str], *, cotangent: bool
) -> Callable[[Probe, Narrow, bool], Gradients | None]:
    """The right gradients of operands, or of a cotangent, that are rounded first."""

    def of(probe: Probe, kind: Narrow, truncated: bool) -> Gradients | None:
        primals = {name: _held(probe.primal(name), kind, truncated) for name in names}
        ct = tuple(_held(part, kind, truncated) for part in probe.ct) if cotangent else None
        return probe.vjp(ct, primals)

    return of


def _result(name: str) -> Callable[[Probe, Narrow, bool], Gradients | None]:
    """The right gradient rounded; where it lies between two numbers, the one that was chosen."""

    def of(probe: Probe, kind: Narrow, truncated: bool) -> Gradients:
        right, got = probe.right[name], probe.got.get(name)
        if got is None or got.shape != right.shape or probe.dtype == "float64":
            return {name: _held(right, kind, truncated)}
        off = probe.rounding(name)
        low, high = (_held(right + by, kind, truncated) for by in (-off, off))
        chosen = np.where(np.isfinite(got), _held(got, kind, truncated), right)
        return {name: np.clip(chosen, low, high)}

    return of


def _inside(what: str) -> Callable[[Probe, Narrow, bool], Gradients | None]:
    """The spec's own text in the code's arithmetic, with products or sums that are kept narrow."""

    def of(probe: Probe, kind: Narrow, _: bool) -> Gradients | None:
        spec = probe.truth.spec
        if spec is None or probe.dtype not in FLOATS:
            return None
        keeping: dict[str, Any] = {what: kind}
        xp = NarrowArithmetic(dtype=probe.dtype, **keeping)
        parts = tuple(xp.asarray(part) for part in probe.ct)
        held = [xp.asarray(p) if p.dtype.kind == "f" else p for p in probe.primals]
        with np.errstate(all="ignore"):
            found = as_tuple(spec.vjp(xp, bare(parts), *held, **probe.attrs))
        pairs = zip(probe.names, found, strict=True)
        return {n: np.array(g, dtype=np.float64, subok=False) for n, g in pairs if g is not None}

    return of
