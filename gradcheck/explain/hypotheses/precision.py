"""Precision: rounded through a narrow type, cancelled, differenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gradcheck.explain.byelement import is_diagonal
from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import Array, Float, Probe
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.narrow import short

TYPES: Final = (
    (4, "four significant bits", 0.0),
    (8, "bfloat16", 0.0),
    (11, "float16 or TF32", 2.0**-24),
    (24, "float32", 0.0),
)
"""Significant bits, the implicit one included, and the type that has them; narrowest first.

Last, what is lost of any number, however small.
"""
STEPS: Final = (*(10.0**-k for k in range(1, 9)), *(2.0**-k for k in range(4, 27)))
"""Steps with which a backward may difference forward."""
WITHIN: Final = 16.0
"""Units of a narrow type that a gradient summed in it may be off, in its largest element."""
COARSE: Final = 0.125
"""Share of the largest element that no rounding costs."""
MOST: Final = 0.75
SEEN: Final = 3
"""Elements that must show the same factor."""
TINY: Final = 1e-3
"""Share of what is typical below which a number is tiny, and tells nothing."""


def precision(scene: Observations) -> Iterator[Suspicion]:
    """Constants and results in a narrow type; differenced; rounding errors."""
    if any(scene.output not in probe.got for probe in scene.failing):
        return
    yield from _narrow_constant(scene)
    yield from _narrow(scene)
    yield from _differenced(scene)
    yield from _noisy(scene)


# ── a narrow type ────────────────────────────────────────────────────────────────────────────


def _narrow_constant(scene: Observations) -> Iterator[Suspicion]:
    """One factor that differs from 1 by no more than rounding a constant to float32 does."""
    name, probe = scene.output, scene.first
    if probe.dtype != "float64":
        return
    got, right = probe.got[name], probe.right[name]
    there = np.abs(right) > TINY * np.max(np.abs(right), initial=0.0)
    if there.sum() < SEEN:
        return
    ratios = got[there] / right[there]
    off = float(np.median(ratios)) - 1.0
    if not 0 < abs(off) <= 2.0**-24:
        return
    says = f"{scene.gradient} is off by a factor of 1 {off:+.1e}: a constant is rounded to float32"
    yield predicting(scene, "O", says, lambda p: (1.0 + off) * p.right[name])


def _narrow(scene: Observations) -> Iterator[Suspicion]:
    """The result, or what comes in, has passed through a narrow type."""
    name, own = scene.output, scene.gradient
    largest = np.max(np.abs(scene.first.right[name]), initial=0.0)
    for bits, kind, lost in TYPES:
        if 2.0**-bits <= 2 * scene.first.u or largest <= lost:
            continue
        yield Suspicion(
            label="O",
            says=f"{own} is rounded to {kind} on the way",
            fits=_is_short(name, bits, lost),
            evidence=(
                f"it has {bits} significant bits where the right one has more, and is off by no "
                f"more than {WITHIN:.0f} units of such a type",
            ),
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
        size = min(WITHIN * 2.0**-bits, COARSE) * np.max(np.abs(right), initial=0.0)
        return bool(
            np.isfinite(got).all()
            and (short(got, bits) == got).all()
            and (short(right, bits) != right)[there].sum() >= MOST * there.sum()
            and np.count_nonzero(got) >= MOST * there.sum()
            and np.max(np.abs(got - right)) <= size + WITHIN * lost
        )

    return fits


def _moved(probe: Probe, k: int, by: float) -> Probe | None:
    """The code a little elsewhere, at numbers with all their bits."""

    def near(role: str, x: Array) -> Array:
        if x.dtype.kind != "f":
            return x
        return np.asarray(x * (1 + by * Draw(role, k, by).uniform(-1.0, 1.0, *x.shape)))

    primals = [near(n, p) for n, p in zip(probe.names, probe.primals, strict=True)]
    # not on the grid of what is drawn: a seventh has all its bits
    ct = tuple(near("ct", part) * (8 / 7) for part in probe.ct)
    return probe.at(primals, ct)


# ── a difference of forward ──────────────────────────────────────────────────────────────────


def _differenced(scene: Observations) -> Iterator[Suspicion]:
    """Forward differenced with a fixed step, where it acts element by element."""
    name = scene.output
    if not is_diagonal(scene.first, name):
        return
    for step in STEPS:
        for words, up, down in (("central", 1, 1), ("forward", 1, 0), ("backward", 0, 1)):
            says = f"{scene.gradient} is a {words} difference with a step of {step:.3g}"
            yield predicting(scene, "O", says, _difference(name, up * step, down * step))


def _difference(name: str, up: float, down: float) -> Callable[[Probe], Float]:
    def of(probe: Probe) -> Float:
        k = probe.names.index(name)

        def at(by: float) -> Float:
            primals = [p + by if i == k else p for i, p in enumerate(probe.primals)]
            return probe.truth.forward(primals, probe.attrs)[0]

        with np.errstate(all="ignore"):
            return np.asarray(probe.ct[0] * (at(up) - at(-down)) / (up + down))

    return of


# ── errors of rounding ───────────────────────────────────────────────────────────────────────

NUDGES: Final = tuple(2.0**-k for k in (6, 9, 12, 15, 18, 21))
"""How far arguments are moved, relative to themselves."""
CALM: Final = 0.02
"""Share of itself by which the right gradient may then move."""
RANDOM: Final = 0.5
"""Share of itself by which an error that is rounding then moves; a wrong formula's, by `CALM`."""
TRIES: Final = 4


def _noisy(scene: Observations) -> Iterator[Suspicion]:
    """The error changes at random when arguments move so little that the gradient does not."""
    name = scene.output
    if not _jump(scene.first, name) >= RANDOM / 2:
        return
    jumps = [_jump(probe, name) for probe in scene.failing]
    typical = float(np.median(jumps))
    if not typical >= RANDOM:
        return
    yield Suspicion(
        label="O",
        says=f"{scene.gradient} has an error of rounding: something cancels, or is kept in a "
        "narrow type",
        fits=lambda p: not p.fails(name) or _jump(p, name) >= RANDOM / 2,
        evidence=(
            f"where arguments move so little that the right gradient changes by less than "
            f"{CALM:.0%}, the error changes by {typical:.0%} of itself",
        ),
    )


def _jump(probe: Probe, name: str) -> float:
    """How much the error changes, in units of itself; 0 where that cannot be told."""
    for by in NUDGES:
        near = [_moved(probe, k, by) for k in range(TRIES)]
        found = [p for p in near if p is not None and name in p.got]
        rights = np.array([p.right[name] for p in found])
        gots = np.array([p.got[name] for p in found])
        if len(found) < TRIES or not (np.isfinite(gots).all() and np.isfinite(rights).all()):
            return 0.0
        moved = float(np.linalg.norm(np.ptp(rights, axis=0)))
        if moved <= CALM * TRIES * np.linalg.norm(rights[0]):
            errors = gots - rights
            size = float(np.sqrt(np.mean(errors**2)))
            spread = float(np.sqrt(np.mean(np.var(errors, axis=0, ddof=1))))
            return spread / size if size > 0 else 0.0
    return 0.0
