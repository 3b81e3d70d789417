"""Special points: wrong, NaN or infinite only on kinks, at ties, repeated indices and the like."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import answers_diagonally, is_diagonal, slope, spread
from gradcheck.explain.hypothesis import (
    Hypothesis,
    Observations,
    applied,
    predicting,
    read_cotangent,
    read_output,
    read_primal,
)
from gradcheck.explain.probe import Array, Float, Mask, Probe
from gradcheck.results.words import plural
from gradcheck.spec.defect import Defect

On = Callable[[Probe], Mask | None]


def kinks(obs: Observations) -> Iterator[Hypothesis]:
    """Wrong only on a declared kink; only where two arguments are equal."""
    name = obs.output
    if any(not np.isfinite(p.got[name]).all() for p in obs.failing if name in p.got):
        return  # how NaN comes about has rules of its own
    says = f"{obs.gradient} is wrong only where {name} is exactly on a kink or a tie"
    found = _slopes(obs)
    evidence = (f"the slope is {found}",) if found else ()
    yield Hypothesis(
        label=Defect.KINK,
        says=says,
        fits=_only(name, _declared(name)),
        evidence=evidence,
        cause="wrong only where an argument is exactly on a kink or a tie",
    )
    for other in obs.first.names:
        if other != name and obs.first.primal(other).dtype.kind == "f":
            says = f"{obs.gradient} is wrong only where {name} and {other} are equal"
            yield Hypothesis(
                label=Defect.KINK, says=says, fits=_only(name, _equal_arguments(name, other))
            )


def _only(name: str, on: On) -> Callable[[Probe], bool]:
    """Whether all wrong elements sit there, and something is right elsewhere."""

    def fits(probe: Probe) -> bool:
        if not probe.fails(name):
            return True
        there = on(probe)
        if name not in probe.got or there is None:
            return False
        return not (probe.wrong(name) & ~there).any()

    return fits


def _declared(name: str) -> On:
    def on(probe: Probe) -> Mask | None:
        there = probe.kinked.get(name)
        return there if there is not None and there.shape == probe.right[name].shape else None

    return on


def _equal_arguments(name: str, other: str) -> On:
    def on(probe: Probe) -> Mask | None:
        a, b = probe.primal(name), probe.primal(other)
        return np.asarray(a == b) if a.shape == b.shape else None

    return on


def _slopes(obs: Observations) -> str:
    """The returned and the conventional slope on the kink, if forward is element by element."""
    name = obs.output
    came: list[float] = []
    meant: list[float] = []
    for probe in obs.failing:
        if name not in probe.got:
            return ""
        got, right = slope(probe, probe.got[name]), slope(probe, probe.right[name])
        if got is None or right is None:
            return ""
        wrong = probe.wrong(name)
        came += got[wrong].tolist()
        meant += right[wrong].tolist()
    one, other = _one(came), _one(meant)
    if one is None or other is None:
        return ""
    return f"{one + 0.0:.6g} there, {other + 0.0:.6g} by convention"  # no −0


def _one(values: Sequence[float]) -> float | None:
    """The number that all values equal, or None."""
    found = np.asarray(values)
    same = found.size and np.ptp(found) <= 1e-6 * max(1.0, float(np.max(np.abs(found))))
    return float(found[0]) if same else None


MIN_DUPLICATE_PROBES: Final = 2


def duplicates(obs: Observations) -> Iterator[Hypothesis]:
    """Per index primal: its values as rows of the gradient, or its places as places there."""
    name = obs.output
    if len(obs.failing) < MIN_DUPLICATE_PROBES:
        return
    for index, primal in zip(obs.first.names, obs.first.primals, strict=True):
        if primal.dtype.kind == "f":
            continue
        axes = range(-obs.first.right[name].ndim, 0)
        for again in (partial(_places, index), *(partial(_rows, index, k) for k in axes)):
            spared = 0
            for probe in obs.failing:
                mask = again(probe, name)
                if mask is None or bool((probe.wrong(name) & ~mask).any()):
                    break
                spared += int((~mask & (probe.right[name] != 0)).sum())
            else:
                if spared:  # what occurs once is there, and right
                    yield Hypothesis(
                        label=Defect.DUPLICATES,
                        says=f"{obs.gradient} is wrong only where {index} holds a value "
                        "more than once",
                        fits=lambda probe: True,  # every failing probe was asked above
                    )


def _places(index: str, probe: Probe, name: str) -> Mask | None:
    """Places of the gradient that stand beside a repeated index."""
    places, right = probe.primal(index), probe.right[name]
    if right.shape[: places.ndim] != places.shape:
        return None
    return spread(_repeated(places), right.shape)


def _rows(index: str, axis: int, probe: Probe, name: str) -> Mask | None:
    """Places along an axis of the gradient whose number is a repeated index."""
    places, right = probe.primal(index), probe.right[name]
    if right.ndim < -axis or not places.size:
        return None
    n = right.shape[axis]
    inside = places.ravel()[(places.ravel() >= 0) & (places.ravel() < n)]
    counts = np.bincount(inside.astype(int), minlength=n)
    again = (counts > 1).reshape(-1, *(1,) * (-axis - 1))
    return np.broadcast_to(again, right.shape)


def _repeated(index: Array) -> Mask:
    _, back, counts = np.unique(index, return_inverse=True, return_counts=True)
    return np.asarray((counts > 1)[back].reshape(index.shape))


Read = Callable[[Probe], Array]


def mask(obs: Observations) -> Iterator[Hypothesis]:
    """The mask inverted, recovered from zeros, one matrix's for all; or any other."""
    name, own = obs.output, obs.gradient
    drop = _mask_of(obs)
    if drop is None or not is_diagonal(obs.first, name):
        return
    for says, label, read in (
        (f"takes what {drop} drops for what it keeps", Defect.MASK, lambda p: 1 - p.primal(drop)),
        (
            f"takes zeros of {name} for dropped ones: {drop} is read from the output", Defect.MASK,
            lambda p: p.primal(drop) * (p.primal(name) != 0),
        ),
        (f"uses {drop} of the first matrix for all", Defect.MASK, _first_matrix(drop)),
        (f"drops nothing: {drop} is ignored",
         Defect.DERIVATIVE, lambda p: np.ones_like(p.primal(drop))),
    ):  # fmt: skip
        yield predicting(obs, label, f"{own} {says}", _under(name, drop, read))
    yield Hypothesis(
        label=Defect.MASK,
        says=f"{own} is masked, but not as forward was: it drops other elements than {drop} does",
        fits=lambda probe: _masked_otherwise(probe, name),
        evidence=("its slope is 0 or forward's factor everywhere, at other places",),
    )


def _mask_of(obs: Observations) -> str | None:
    """The argument of 0 and 1 that says for one other argument's elements which are kept."""
    probe = obs.first
    floating = [n for n, p in zip(probe.names, probe.primals, strict=True) if p.dtype.kind == "f"]
    if floating != [obs.output]:
        return None
    for name in probe.names:
        values = probe.primal(name)
        shapely = name != obs.output and values.shape == probe.primal(obs.output).shape
        if shapely and np.isin(values, (0, 1)).all() and np.ptp(values):
            return name
    return None


def _first_matrix(name: str) -> Read:
    def read(probe: Probe) -> Array:
        values = probe.primal(name)
        return np.broadcast_to(values[(0,) * (values.ndim - 2)], values.shape)

    return read


def _under(output: str, name: str, read: Read) -> Callable[[Probe], Float | None]:
    return lambda probe: probe.gradient(output, primals={name: read(probe)})


def _masked_otherwise(probe: Probe, name: str) -> bool:
    if not probe.fails(name):
        return True
    if name not in probe.got or not answers_diagonally(probe, name):
        return False
    got, right = slope(probe, probe.got[name]), slope(probe, probe.right[name])
    if got is None or right is None or not right.any():
        return False
    factor = right[right != 0][0]
    near = [np.abs(got - value) <= 1e-6 * abs(factor) for value in (0.0, factor)]
    return bool((near[0] | near[1]).all() and near[0].any() and near[1].any())


Field = Callable[[Probe], Array | None]

SPANS: Final = (("row", 1), ("column", -2), ("matrix", 2), ("array", 0))
"""What an element belongs to, and how many of the last axes that spans (0: all)."""
SPAN_MEASURES: Final[tuple[tuple[str, Callable[[Float], Float]], ...]] = (
    ("the least {0} of its {1}", lambda x: x.min(axis=-1)),
    ("the largest {0} of its {1}", lambda x: x.max(axis=-1)),
    ("the spread of {0} in its {1}", lambda x: x.max(axis=-1) - x.min(axis=-1)),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number for each element of the gradient: its name in messages, and its values."""

    words: str
    of: Field


def measures(values: Iterable[Measure], name: str) -> Iterator[Measure]:
    """Values beside an element; then of its row, of its matrix, and of all."""
    values = [*values]
    for measure in values:
        yield Measure(measure.words, partial(_beside, measure.of, name))
    for words, axes in SPANS:
        for measure in values:
            for split_by, over in SPAN_MEASURES:
                yield Measure(
                    split_by.format(measure.words, words),
                    partial(_spread, measure.of, name, axes, over),
                )


def primals(probe: Probe) -> Iterator[Measure]:
    """Primals, their magnitudes and their differences."""
    for name in probe.names:
        yield Measure(name, read_primal(name))
        yield Measure(f"|{name}|", applied(np.abs, read_primal(name)))
    for a, b in combinations(probe.names, 2):
        if probe.primal(a).shape == probe.primal(b).shape:
            yield Measure(f"{a} - {b}", partial(_difference, a, b))


def others(probe: Probe) -> Iterator[Measure]:
    """Outputs, cotangents and right gradients."""
    for i in range(len(probe.ct)):
        words = "the output" if len(probe.ct) == 1 else f"output {i + 1}"
        yield Measure(words, read_output(i))
        yield Measure(f"the magnitude of {words}", applied(np.abs, read_output(i)))
        words = "the cotangent" if len(probe.ct) == 1 else f"cotangent {i + 1}"
        yield Measure(words, read_cotangent(i))
    for name in probe.right:
        yield Measure(f"the right d{name}", partial(_right, name))


def _right(name: str, probe: Probe) -> Float | None:
    return probe.right.get(name)


def _difference(a: str, b: str, probe: Probe) -> Array | None:
    x, y = probe.primal(a), probe.primal(b)
    return np.asarray(x - y) if x.shape == y.shape else None


def _beside(of: Field, name: str, probe: Probe) -> Float | None:
    """A value in the gradient's shape; None where it does not fit."""
    value, shape = of(probe), probe.right[name].shape
    if value is None or value.ndim > len(shape):
        return None
    try:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
    except ValueError:
        return None


def _spread(
    of: Field, name: str, axes: int, over: Callable[[Float], Float], probe: Probe
) -> Float | None:
    """One number per row, spread over the gradient's elements."""
    value, shape = of(probe), probe.right[name].shape
    if value is None or not value.ndim or not value.size:
        return None
    if axes < 0:
        if value.ndim < -axes:
            return None
        value, axes = np.moveaxis(value, axes, -1), 1
        found = _reduced(value, 1, over)
        back = np.moveaxis(np.broadcast_to(found, value.shape), -1, -2)
        return np.asarray(back) if back.shape == shape else None
    found = _reduced(value, axes or value.ndim, over)
    if axes == 0:
        return np.full(shape, found.ravel()[0])
    if found.ndim != len(shape):
        return None
    try:
        return np.broadcast_to(found, shape)
    except ValueError:
        return None


def _reduced(value: Array, axes: int, over: Callable[[Float], Float]) -> Float:
    lead = value.shape[: max(value.ndim - axes, 0)]
    with np.errstate(all="ignore"):
        found = over(np.asarray(value, dtype=np.float64).reshape(*lead, -1))
    return found.reshape(*lead, *(1,) * (value.ndim - len(lead)))


EXP_OVERFLOW: Final = {"float32": 88.7228, "float64": 709.7827}
"""Arguments beyond which exp overflows: ln of a type's largest number."""
MIN_OVERFLOW: Final = 4.0
"""Magnitude beyond which a threshold suggests overflow rather than a special point."""
MIN_PER_SIDE: Final = 3


def nonfinite(obs: Observations) -> Iterator[Hypothesis]:
    """NaN or infinite where a value is 0, beyond a threshold, or in rows that hold such a value."""
    name = obs.output
    every = [*obs.failing, *obs.passing]
    bad = [_bad(probe, name) for probe in every]
    if any(b is None for b in bad) or not any(b is not None and b.any() for b in bad):
        return
    if not all(_else_right(probe, name) for probe in obs.failing):
        return
    kind = _kind(obs)
    for words, of in _conditions(obs, every, [b for b in bad if b is not None]):
        overflow = words.partition(", ")[2]  # "where exp overflows"
        yield Hypothesis(
            label=Defect.NON_FINITE,
            says=f"{obs.gradient} is {kind} {words}, right elsewhere",
            fits=partial(_marks, of, name),
            cause=f"{kind} {overflow}" if overflow else "",
        )
    count = sum(int(b.sum()) for b in bad if b is not None)
    size = sum(b.size for b in bad if b is not None and b.any())
    which = f"{count:,} of {plural(size, 'element')}, right elsewhere"
    which = "every element" if count == size else which
    yield Hypothesis(
        label=Defect.NON_FINITE,
        says=f"{obs.gradient} is {kind} in {which}",
        fits=lambda probe: True,
    )


def _bad(probe: Probe, name: str) -> Mask | None:
    """Where it is not finite though the truth is, or no number though the truth is infinite."""
    if name not in probe.got:
        return None
    got, right = probe.got[name], probe.right[name]
    return (np.isnan(got) & ~np.isnan(right)) | (np.isinf(got) & np.isfinite(right))


def _else_right(probe: Probe, name: str) -> bool:
    return not (probe.wrong(name) & np.isfinite(probe.got[name])).any()


def _kind(obs: Observations) -> str:
    found = [probe.got[obs.output] for probe in obs.failing]
    nan = any(np.isnan(g).any() for g in found)
    infinite = any(np.isinf(g).any() for g in found)
    return "NaN or infinite" if nan and infinite else "NaN" if nan else "infinite"


def _marks(of: Callable[[Probe], Mask | None], name: str, probe: Probe) -> bool:
    marked, bad = of(probe), _bad(probe, name)
    if marked is None or bad is None:
        return False
    return bool(np.array_equal(marked & ~np.isnan(probe.right[name]), bad))


# ── what is special there ────────────────────────────────────────────────────────────────────

Holds = Callable[[Probe], Mask | None]
Condition = tuple[str, Holds]
"""Words, and the elements for which it holds."""


def _conditions(
    obs: Observations, every: Sequence[Probe], bad: Sequence[Mask]
) -> Iterator[Condition]:
    """In words, and the elements each holds for: of attributes, of primals, of anything else."""
    yield from _of_attributes(every, bad)
    for values in (primals, others):
        split_by = [(m, _split(m, every, bad)) for m in measures(values(obs.first), obs.output)]
        apart = [(measure, split) for measure, split in split_by if split is not None]
        for conditions in (_at_zero, _overflowing, _signed, _special):
            for measure, split in apart:
                for words, of in conditions(measure, split):
                    yield f"where {words}", of


def _of_attributes(every: Sequence[Probe], bad: Sequence[Mask]) -> Iterator[Condition]:
    """All elements of just those points where an attribute has one value."""
    if not all(b.all() or not b.any() for b in bad):
        return
    for name in every[0].attrs:
        ill = [p.attrs.get(name) for p, b in zip(every, bad, strict=True) if b.any()]
        well = [p.attrs.get(name) for p, b in zip(every, bad, strict=True) if not b.any()]
        if all(value == ill[0] for value in ill) and well and ill[0] not in well:
            yield f"for {name} = {ill[0]!r}", partial(_at_value, name, ill[0])


def _at_value(name: str, value: Any, probe: Probe) -> Mask:
    return np.full(next(iter(probe.right.values())).shape, probe.attrs.get(name) == value)


# ── where a measure tells them apart ─────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Split:
    """Values of a measure where the gradient is not finite (`bad`), and where it is (`fine`)."""

    bad: Float
    fine: Float
    dtype: str


def _split(measure: Measure, every: Sequence[Probe], bad: Sequence[Mask]) -> Split | None:
    wrong, fine = [], []
    for probe, at in zip(every, bad, strict=True):
        value = measure.of(probe)
        if value is None or np.isnan(value).any():
            return None
        wrong.append(value[at])
        fine.append(value[~at])
    return Split(np.concatenate(wrong), np.concatenate(fine), every[0].dtype)


def _at_zero(measure: Measure, split: Split) -> Iterator[Condition]:
    if not split.bad.any() and split.fine.all():
        yield f"{measure.words} is 0", _where(measure, operator.eq, 0.0)


def _special(measure: Measure, split: Split) -> Iterator[Condition]:
    """One value, and more than one element that has it."""
    value = float(split.bad[0])
    if split.bad.size > 1 and (split.bad == value).all() and not (split.fine == value).any():
        yield f"{measure.words} is {value:.6g}", _where(measure, operator.eq, value)


def _signed(measure: Measure, split: Split) -> Iterator[Condition]:
    """One side of 0, with elements enough on both."""
    if min(split.bad.size, split.fine.size) < MIN_PER_SIDE:
        return
    tiny = np.finfo(np.float64).smallest_subnormal
    if split.bad.max() < 0 <= split.fine.min():
        yield f"{measure.words} < 0", _where(measure, operator.lt, 0.0)
    if split.fine.max() <= 0 < split.bad.min():
        yield f"{measure.words} > 0", _where(measure, operator.gt, 0.0)
    if split.bad.max() <= 0 < split.fine.min():
        yield f"{measure.words} ≤ 0", _where(measure, operator.lt, tiny)
    if split.fine.max() < 0 <= split.bad.min():
        yield f"{measure.words} ≥ 0", _where(measure, operator.gt, -tiny)


def _overflowing(measure: Measure, split: Split) -> Iterator[Condition]:
    """Beyond a large magnitude, which lies between those that are fine and those that are not."""
    if not split.fine.size:
        return
    low, high = float(split.fine.max()), float(split.bad.min())
    if low < high and high >= MIN_OVERFLOW:
        c, why = between(max(low, 0.0), high, split.dtype)
        yield f"{measure.words} > {c:.6g}{why}", _where(measure, operator.gt, c)
    low, high = float(split.bad.max()), float(split.fine.min())
    if low < high and low <= -MIN_OVERFLOW:
        c, why = between(-min(high, 0.0), -low, split.dtype)
        yield f"{measure.words} < {-c:.6g}{why}", _where(measure, operator.lt, -c)


def _where(measure: Measure, test: Callable[[Array, float], Any], value: float) -> Holds:
    def holds(probe: Probe) -> Mask | None:
        x = measure.of(probe)
        return None if x is None else np.asarray(test(x, value))

    return holds


def between(low: float, high: float, dtype: str) -> tuple[float, str]:
    """A number of [low, high), 0 <= low < high, the roundest; and what is known about it.

    It is where exp, or its square, overflows, if it can be.
    """
    for part, what in ((1, "exp"), (2, "its exp squared")):
        at = EXP_OVERFLOW.get(dtype, 0.0) / part
        if low <= at < high:
            return at, f", where {what} overflows"
    middle = low + (high - low) / 2
    for digits in range(1, 17):
        c = float(f"{middle:.{digits}g}")
        if low <= c < high:
            return c, ""
    return low, ""
