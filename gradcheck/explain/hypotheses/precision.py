"""Precision: rounded, cancelled or differenced; underflow to 0, overflow of a square."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import is_diagonal, slope
from gradcheck.explain.hypothesis import Hypothesis, Observations, predicting
from gradcheck.explain.probe import Array, Float, Probe
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.narrow import short
from gradcheck.results.finding import COMPUTED_IN
from gradcheck.spec.defect import Defect

NARROW_TYPES: Final = (
    (4, "four significant bits", 0.0),
    (8, "bfloat16", 0.0),
    (11, "float16 or TF32", 2.0**-24),
    (24, "float32", 0.0),
)
"""Significant bits, the implicit one included, and the type that has them; narrowest first.

Last, what is lost of any number, however small.
"""
DIFFERENCE_STEPS: Final = (*(10.0**-k for k in range(1, 9)), *(2.0**-k for k in range(4, 27)))
MAX_NARROW_UNITS: Final = 16.0
"""Units of a narrow type that a gradient summed in it may be off, in its largest element."""
MAX_NARROW_ERROR: Final = 0.125
"""Share of the largest element that no rounding costs."""
MIN_SHORT_SHARE: Final = 0.75
MIN_RATIOS: Final = 3
TINY_SHARE: Final = 1e-3
"""Share of what is typical below which a number is tiny, and tells nothing."""


def precision(obs: Observations) -> Iterator[Hypothesis]:
    """Constants and results in a narrow type; differenced; rounding errors."""
    if any(obs.output not in probe.got for probe in obs.failing):
        return
    yield from _narrow_constant(obs)
    yield from _narrow(obs)
    yield from _differenced(obs)
    yield from _noisy(obs)


# ── a narrow type ────────────────────────────────────────────────────────────────────────────


def _narrow_constant(obs: Observations) -> Iterator[Hypothesis]:
    """One factor that differs from 1 by no more than rounding a constant to float32 does."""
    name, probe = obs.output, obs.first
    if probe.dtype != "float64":
        return
    got, right = probe.got[name], probe.right[name]
    there = np.abs(right) > TINY_SHARE * np.max(np.abs(right), initial=0.0)
    if there.sum() < MIN_RATIOS:
        return
    ratios = got[there] / right[there]
    off = float(np.median(ratios)) - 1.0
    if not 0 < abs(off) <= 2.0**-24:
        return
    says = f"{obs.gradient} is off by a factor of 1 {off:+.1e}: a constant is rounded to float32"
    yield predicting(obs, Defect.PRECISION, says, lambda p: (1.0 + off) * p.right[name])


def _narrow(obs: Observations) -> Iterator[Hypothesis]:
    """The result or an operand has passed through a narrow type."""
    name, own = obs.output, obs.gradient
    largest = np.max(np.abs(obs.first.right[name]), initial=0.0)
    for bits, kind, lost in NARROW_TYPES:
        if 2.0**-bits <= 2 * obs.first.u or largest <= lost:
            continue
        yield Hypothesis(
            label=Defect.PRECISION,
            says=f"{own} is rounded to {kind} on the way",
            fits=_is_short(name, bits, lost),
            evidence=(
                f"it has {bits} significant bits where the right one has more, and is off by no "
                f"more than {MAX_NARROW_UNITS:.0f} units of such a type",
            ),
            cause=COMPUTED_IN + kind,
        )


def _is_short(name: str, bits: int, lost: float) -> Callable[[Probe], bool]:
    """Whether all elements are short numbers where the right ones are not."""

    def fits(probe: Probe) -> bool:
        if not probe.fails(name):
            return True
        sharp = _moved(probe, 0, 2.0**-6)
        if sharp is None or name not in sharp.got:
            return False
        got, right = sharp.got[name], sharp.right[name]
        there = np.abs(right) > lost
        size = min(MAX_NARROW_UNITS * 2.0**-bits, MAX_NARROW_ERROR) * np.max(
            np.abs(right), initial=0.0
        )
        return bool(
            np.isfinite(got).all()
            and (short(got, bits) == got).all()
            and (short(right, bits) != right)[there].sum() >= MIN_SHORT_SHARE * there.sum()
            and np.count_nonzero(got) >= MIN_SHORT_SHARE * there.sum()
            and np.max(np.abs(got - right)) <= size + MAX_NARROW_UNITS * lost
        )

    return fits


def _moved(probe: Probe, k: int, by: float) -> Probe | None:
    """Ask the code at a nearby point, at numbers with full mantissas."""

    def near(role: str, x: Array) -> Array:
        if x.dtype.kind != "f":
            return x
        return np.asarray(x * (1 + by * Draw(role, k, by).uniform(-1.0, 1.0, *x.shape)))

    primals = [near(n, p) for n, p in zip(probe.names, probe.primals, strict=True)]
    # not on the grid of what is drawn: a seventh has all its bits
    ct = tuple(near("ct", part) * (8 / 7) for part in probe.ct)
    return probe.at(primals, ct)


# ── a difference of forward ──────────────────────────────────────────────────────────────────


def _differenced(obs: Observations) -> Iterator[Hypothesis]:
    """Forward differenced with a fixed step, where it acts element by element."""
    name = obs.output
    if not is_diagonal(obs.first, name):
        return
    for step in DIFFERENCE_STEPS:
        for words, up, down in (("central", 1, 1), ("forward", 1, 0), ("backward", 0, 1)):
            says = f"{obs.gradient} is a {words} difference with a step of {step:.3g}"
            yield predicting(obs, Defect.PRECISION, says, _difference(name, up * step, down * step))


def _difference(name: str, up: float, down: float) -> Callable[[Probe], Float]:
    def of(probe: Probe) -> Float:
        def at(by: float) -> Float:
            return probe.forward({name: probe.primal(name) + by})[0]

        with np.errstate(all="ignore"):
            return np.asarray(probe.ct[0] * (at(up) - at(-down)) / (up + down))

    return of


# ── errors of rounding ───────────────────────────────────────────────────────────────────────

NUDGES: Final = tuple(2.0**-k for k in (6, 9, 12, 15, 18, 21))
"""How far arguments are moved, relative to themselves."""
MAX_RIGHT_CHANGE: Final = 0.02
"""Share of itself by which the right gradient may then move."""
MIN_ERROR_CHANGE: Final = 0.5
"""Share of itself by which an error that is rounding then moves; a wrong formula's, by that."""
NUDGED_CALLS: Final = 4


def _noisy(obs: Observations) -> Iterator[Hypothesis]:
    """The error changes at random when arguments move so little that the gradient does not."""
    name = obs.output
    if not _jump(obs.first, name) >= MIN_ERROR_CHANGE / 2:
        return
    jumps = [_jump(probe, name) for probe in obs.failing]
    typical = float(np.median(jumps))
    if not typical >= MIN_ERROR_CHANGE:
        return
    yield Hypothesis(
        label=Defect.PRECISION,
        says=f"{obs.gradient} has an error of rounding: something cancels, or is kept in a "
        "narrow type",
        fits=lambda p: not p.fails(name) or _jump(p, name) >= MIN_ERROR_CHANGE / 2,
        evidence=(
            f"where arguments move so little that the right gradient changes by less than "
            f"{MAX_RIGHT_CHANGE:.0%}, the error changes by {typical:.0%} of itself",
        ),
    )


def _jump(probe: Probe, name: str) -> float:
    """The change of the error when arguments are nudged, relative to the error; 0 if unknown."""
    for by in NUDGES:
        near = [_moved(probe, k, by) for k in range(NUDGED_CALLS)]
        found = [p for p in near if p is not None and name in p.got]
        rights = np.array([p.right[name] for p in found])
        gots = np.array([p.got[name] for p in found])
        if len(found) < NUDGED_CALLS or not (np.isfinite(gots).all() and np.isfinite(rights).all()):
            return 0.0
        moved = float(np.linalg.norm(np.ptp(rights, axis=0)))
        if moved <= MAX_RIGHT_CHANGE * NUDGED_CALLS * np.linalg.norm(rights[0]):
            errors = gots - rights
            size = float(np.sqrt(np.mean(errors**2)))
            spread = float(np.sqrt(np.mean(np.var(errors, axis=0, ddof=1))))
            return spread / size if size > 0 else 0.0
    return 0.0


MIN_LOST: Final = 3
"""Elements that must be lost."""
MAX_FLUSHED_SHARE: Final = 1e-2
"""Share of what is typical below which what is flushed is tiny."""
SAME_SLOPE: Final = 1e-6
MIN_FLOOR_SHARE: Final = 0.5
HUGE_ARGUMENT: Final = {"float16": 40.0, "bfloat16": 1e12, "float32": 1e12, "float64": 1e102}
"""Magnitude of an argument beyond which its cube may overflow."""
MAX_FLOOR: Final = 1e-3


def flushed(obs: Observations) -> Iterator[Hypothesis]:
    """Zeros below a threshold, of whatever decides it; a floor in the place of zeros."""
    if all(obs.output in probe.got for probe in obs.failing):
        yield from _below(obs)
        yield from _floored(obs)


@dataclass(frozen=True, slots=True)
class _Size:
    """A magnitude below which elements are flushed: its words, and its values at a probe."""

    word: str
    label: str
    read: Callable[[Probe], Float | None]


def _below(obs: Observations) -> Iterator[Hypothesis]:
    """Zero wherever something is below a threshold, or an argument beyond one."""
    probes = [p for p in (*obs.failing, *obs.passing) if obs.output in p.got]
    if any((p.got[obs.output][p.wrong(obs.output)] != 0).any() for p in obs.failing):
        return
    for name in obs.first.names:
        size = _Size(f"|{name}|", Defect.PRECISION, partial(_against, name))
        found = _threshold(probes, obs.output, size)
        if found is not None and -found.lost >= HUGE_ARGUMENT[obs.first.dtype]:
            says = f"{obs.gradient} is 0 where |{name}| is huge: an intermediate overflows"
            evidence = (
                f"it is lost from |{name}| = {-found.lost:.3g} on, and right up to "
                f"{-found.kept:.3g}",
            )
            yield predicting(obs, Defect.PRECISION, says, _cut(obs.output, size, found), evidence)
    for size in _sizes(obs):
        found = _threshold(probes, obs.output, size)
        if found is not None and found.lost <= MAX_FLUSHED_SHARE * found.typical:
            nothing = found.lost <= 8 * obs.first.u * found.typical
            says = f"{obs.gradient} is flushed to 0 where {size.word} is tiny"
            evidence = (
                f"the largest lost is {found.lost:.3g}, the smallest kept {found.kept:.3g}",
            )
            label = Defect.PRECISION if nothing else size.label
            yield predicting(obs, label, says, _cut(obs.output, size, found), evidence)


def _floored(obs: Observations) -> Iterator[Hypothesis]:
    """A share of the cotangent is kept above a tiny number, and perhaps as far below 1."""
    name = obs.output
    found = [(slope(p, p.got[name]), p.wrong(name)) for p in obs.failing]
    came = np.concatenate([np.abs(s[wrong]) for s, wrong in found if s is not None])
    floor = float(np.min(came, initial=1.0))
    if (
        0 < floor <= MAX_FLOOR
        and np.mean(np.abs(came - floor) <= SAME_SLOPE * floor) >= MIN_FLOOR_SHARE
    ):
        says = f"{obs.gradient} is cut off {floor:.3g} of the cotangent before 0"
        yield Hypothesis(label=Defect.PRECISION, says=says, fits=_at_floor(name, floor))


def _at_floor(name: str, floor: float) -> Callable[[Probe], bool]:
    def fits(probe: Probe) -> bool:
        came, due = slope(probe, probe.got[name]), slope(probe, probe.right[name])
        if came is None or due is None:
            return not probe.fails(name)
        wrong = probe.wrong(name)
        came, due = np.abs(came[wrong]), np.abs(due[wrong])
        flat = (np.abs(came - floor) <= SAME_SLOPE * floor) & (due < floor)
        return bool((flat | (np.abs(came - due) <= floor)).all())

    return fits


def _sizes(obs: Observations) -> Iterator[_Size]:
    name = obs.output
    yield _Size("it", Defect.PRECISION, lambda p: np.abs(p.right[name]))
    yield _Size("its slope", Defect.DERIVATIVE, lambda p: _magnitude(slope(p, p.right[name])))
    yield _Size("its share of the cotangent", Defect.DERIVATIVE, partial(_share, name))
    yield _Size(
        "the output",
        Defect.DERIVATIVE,
        lambda p: _magnitude(_spread(p.outputs, p.right[name].shape)),
    )


def _magnitude(x: Float | None) -> Float | None:
    return None if x is None else np.abs(x)


def _share(name: str, probe: Probe) -> Float | None:
    right = probe.right[name]
    ct = _spread(probe.ct, right.shape)
    with np.errstate(all="ignore"):
        return None if ct is None else np.abs(right / ct)


def _against(name: str, probe: Probe) -> Float | None:
    """Minus the magnitude of an argument, so that "below" means beyond."""
    value = probe.primal(name)
    shape = probe.right.get(name, np.zeros(())).shape
    return -np.abs(value) if value.shape == shape and value.dtype.kind == "f" else None


def _spread(parts: Sequence[Float], shape: tuple[int, ...]) -> Float | None:
    """The only part over a shape: as it is, or one number for all of the last axis."""
    if len(parts) != 1:
        return None
    (x,) = parts
    for form in (x.shape, (*x.shape, 1)):
        try:
            if len(form) <= len(shape):
                return np.broadcast_to(x.reshape(form), shape)
        except ValueError:
            continue
    return None


@dataclass(frozen=True, slots=True)
class _Threshold:
    """The largest flushed and the smallest kept magnitude, and the median of those kept."""

    lost: float
    kept: float
    typical: float


def _threshold(probes: Sequence[Probe], name: str, size: _Size) -> _Threshold | None:
    """The threshold between zeros and right elements over all probes; None if there is none."""
    zeros, kept = [], []
    for probe in probes:
        values = size.read(probe)
        if values is None or values.shape != probe.right[name].shape:
            return None
        wrong, right = probe.wrong(name), probe.right[name]
        zeros.append(values[wrong])
        # where the truth is 0, flushing does nothing
        kept.append(values[~wrong & (right != 0) & (probe.got[name] != 0)])
    low, high = np.concatenate(zeros), np.concatenate(kept)
    apart = low.size >= MIN_LOST and high.size > 0 and 0 != np.max(low) < np.min(high)
    if not apart:
        return None
    return _Threshold(float(np.max(low)), float(np.min(high)), float(np.median(high)))


def _cut(name: str, size: _Size, found: _Threshold) -> Callable[[Probe], Float | None]:
    def of(probe: Probe) -> Float | None:
        values = size.read(probe)
        if values is None:
            return None
        return np.where(values <= found.lost, 0.0, probe.right[name])

    return of
