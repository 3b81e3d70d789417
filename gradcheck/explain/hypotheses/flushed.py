"""Flushed: 0, or some tiny number, wherever what is due is smaller; 0 where a square overflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.explain.byelement import slope
from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import Float, Probe

LOST: Final = 3
"""Elements that must be lost."""
FLUSHED: Final = 1e-2
"""Share of what is typical below which what is flushed is tiny."""
FLAT: Final = 1e-6
"""Relative difference below which slopes are one number."""
FLOORED: Final = 0.5
"""Share of wrong slopes that must be that number."""
HUGE: Final = {"float16": 40.0, "bfloat16": 1e12, "float32": 1e12, "float64": 1e102}
"""Magnitude of an argument beyond which its cube may overflow."""
TINY: Final = 1e-3
"""Share of the cotangent up to which a floor is tiny."""


def flushed(scene: Observations) -> Iterator[Suspicion]:
    """Zeros below a threshold, of whatever decides it; a floor in the place of zeros."""
    if all(scene.output in probe.got for probe in scene.failing):
        yield from _below(scene)
        yield from _floored(scene)


@dataclass(frozen=True, slots=True)
class _Size:
    """A magnitude that decides what is flushed: its words, and its value at a probe."""

    word: str
    label: str
    read: Callable[[Probe], Float | None]


def _below(scene: Observations) -> Iterator[Suspicion]:
    """Zero wherever something is below a threshold, or an argument beyond one."""
    probes = [p for p in (*scene.failing, *scene.passing) if scene.output in p.got]
    if any((p.got[scene.output][p.wrong(scene.output)] != 0).any() for p in scene.failing):
        return
    for name in scene.first.names:
        size = _Size(f"|{name}|", "O", _against(name))
        found = _threshold(probes, scene.output, size)
        if found is not None and -found.lost >= HUGE[scene.first.dtype]:
            says = f"{scene.gradient} is 0 where |{name}| is huge: an intermediate overflows"
            evidence = (
                f"it is lost from |{name}| = {-found.lost:.3g} on, and right up to "
                f"{-found.kept:.3g}",
            )
            yield predicting(scene, "O", says, _cut(scene.output, size, found), evidence)
    for size in _sizes(scene):
        found = _threshold(probes, scene.output, size)
        if found is not None and found.lost <= FLUSHED * found.typical:
            nothing = found.lost <= 8 * scene.first.u * found.typical
            says = f"{scene.gradient} is flushed to 0 where {size.word} is tiny"
            evidence = (
                f"the largest lost is {found.lost:.3g}, the smallest kept {found.kept:.3g}",
            )
            label = "O" if nothing else size.label
            yield predicting(scene, label, says, _cut(scene.output, size, found), evidence)


def _floored(scene: Observations) -> Iterator[Suspicion]:
    """A share of the cotangent is cut off some tiny number before 0, and so perhaps before 1."""
    name = scene.output
    found = [slope(p, p.got[name]) for p in scene.failing]
    came = np.concatenate([np.abs(s[p.wrong(name)]) for p, s in _paired(scene, found)])
    floor = float(np.min(came, initial=1.0))
    if 0 < floor <= TINY and np.mean(np.abs(came - floor) <= FLAT * floor) >= FLOORED:
        says = f"{scene.gradient} is cut off {floor:.3g} of the cotangent before 0"
        yield Suspicion(label="O", says=says, fits=_at_floor(name, floor))


def _paired(scene: Observations, found: Sequence[Float | None]) -> Iterator[tuple[Probe, Float]]:
    for probe, slopes in zip(scene.failing, found, strict=True):
        if slopes is not None:
            yield probe, slopes


def _at_floor(name: str, floor: float) -> Callable[[Probe], bool]:
    def fits(probe: Probe) -> bool:
        came, due = slope(probe, probe.got[name]), slope(probe, probe.right[name])
        if came is None or due is None:
            return not probe.fails(name)
        wrong = probe.wrong(name)
        came, due = np.abs(came[wrong]), np.abs(due[wrong])
        flat = (np.abs(came - floor) <= FLAT * floor) & (due < floor)
        return bool((flat | (np.abs(came - due) <= floor)).all())

    return fits


def _sizes(scene: Observations) -> Iterator[_Size]:
    name = scene.output
    yield _Size("it", "O", lambda p: np.abs(p.right[name]))

    def of_slope(probe: Probe) -> Float | None:
        found = slope(probe, probe.right[name])
        return None if found is None else np.abs(found)

    yield _Size("its slope", "D", of_slope)
    yield _Size("its share of the cotangent", "D", _share(name))
    yield _Size("the output", "D", _output(name))


def _share(name: str) -> Callable[[Probe], Float | None]:
    def read(probe: Probe) -> Float | None:
        right = probe.right[name]
        ct = _spread(probe.ct[0], right.shape) if len(probe.ct) == 1 else None
        with np.errstate(all="ignore"):
            return None if ct is None else np.abs(right / ct)

    return read


def _output(name: str) -> Callable[[Probe], Float | None]:
    def read(probe: Probe) -> Float | None:
        if len(probe.outputs) != 1:
            return None
        found = _spread(probe.outputs[0], probe.right[name].shape)
        return None if found is None else np.abs(found)

    return read


def _against(name: str) -> Callable[[Probe], Float | None]:
    """Minus the magnitude of an argument: "below" is then beyond."""

    def read(probe: Probe) -> Float | None:
        value = probe.primal(name)
        shape = probe.right.get(name, np.zeros(())).shape
        return -np.abs(value) if value.shape == shape and value.dtype.kind == "f" else None

    return read


def _spread(x: Float, shape: tuple[int, ...]) -> Float | None:
    """An array over a shape: as it is, or one number for all of the last axis."""
    for form in (x.shape, (*x.shape, 1)):
        try:
            if len(form) <= len(shape):
                return np.broadcast_to(x.reshape(form), shape)
        except ValueError:
            continue
    return None


@dataclass(frozen=True, slots=True)
class _Threshold:
    """The largest that is lost, the smallest that is kept, and what is typical of these."""

    lost: float
    kept: float
    typical: float


def _threshold(probes: Sequence[Probe], name: str, size: _Size) -> _Threshold | None:
    """What parts zeros from what is right, over all probes; None where nothing does."""
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
    apart = low.size >= LOST and high.size > 0 and 0 != np.max(low) < np.min(high)
    if not apart:
        return None
    return _Threshold(float(np.max(low)), float(np.min(high)), float(np.median(high)))


def _cut(name: str, size: _Size, found: _Threshold) -> Callable[[Probe], Float | None]:
    """What is right, but for zeros below the threshold; between the two, as it came."""

    def of(probe: Probe) -> Float | None:
        values = size.read(probe)
        if values is None:
            return None
        return np.where(values <= found.lost, 0.0, probe.right[name])

    return of
