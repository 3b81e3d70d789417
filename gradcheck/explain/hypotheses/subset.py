"""Subsets: the gradient is right except in a set of places, where it has another value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gradcheck.explain.byelement import follows_values
from gradcheck.explain.diagnosis_rule import Observations, Suspicion
from gradcheck.explain.hypotheses.places import Places, places
from gradcheck.explain.probe import Float, Probe

PROBES: Final = 2
"""Failing probes below which a set of places may hold by chance."""


def subset(scene: Observations) -> Iterator[Suspicion]:
    """Zero, the cotangent, twice the gradient or 1 in a set of places, right elsewhere."""
    if len(scene.failing) < PROBES:
        return
    first, name = scene.first, scene.output
    if name not in first.got or on_kinks(scene):
        return
    rank = max(probe.right[name].ndim for probe in scene.failing)
    for says, value in VALUES:
        other = value(first, name)
        if other is None or not _between(first, name, other) or by_value(scene, value):
            continue
        for where in places(first, rank):
            if any(where.needs(probe.right[name]) for probe in scene.failing):
                yield _suspicion(scene, where, says, value)


def _suspicion(
    scene: Observations, where: Places, says: str, value: Callable[[Probe, str], Float | None]
) -> Suspicion:
    name = scene.output

    def fits(probe: Probe) -> bool:
        other = value(probe, name)
        if other is None:
            return not probe.fails(name)  # it cannot stand there, and need not
        right = probe.right[name]
        guess = np.where(where.of(right, probe), other, right)
        return probe.reproduces(guess, name)

    return Suspicion(
        label=_label(scene, where, value),
        says=f"{scene.gradient} is right except {where.says}: {says}",
        fits=fits,
    )


def _label(scene: Observations, where: Places, value: Callable[[Probe, str], Float | None]) -> str:
    """The class: of a transposition a triangle is left where it was done in place."""
    right, ct = scene.first.right[scene.output], scene.first.ct
    if value is _cotangent and right.ndim > 1 and len(ct) == 1:
        turned = right.swapaxes(-1, -2)
        if turned.shape == ct[0].shape and np.array_equal(turned, ct[0]):
            return "X"
    return where.label


def _between(probe: Probe, name: str, other: Float) -> bool:
    """Whether each element is the right one or the other, so that a set of places can be it."""
    got = probe.got[name]
    wrong = probe.wrong(name)
    with np.errstate(all="ignore"):
        chosen = np.where(wrong, other, probe.right[name])
    return probe.reproduces(chosen, name) and bool(wrong.any()) and got.size > 1


def on_kinks(scene: Observations) -> bool:
    """Whether every wrong element sits on a kink: its value is to blame, not its place."""
    name = scene.output
    return all(
        name in probe.kinked
        and probe.kinked[name].shape == probe.right[name].shape
        and bool((probe.kinked[name] | ~probe.wrong(name)).all())
        for probe in scene.failing
    )


def by_value(scene: Observations, value: Callable[[Probe, str], Float | None]) -> bool:
    """Whether values tell the places as well: they move with them, or a threshold parts them."""
    name, first = scene.output, scene.first
    alike = len(first.ct) == 1 and first.ct[0].shape == first.right[name].shape
    if alike and follows_values(first, name):
        return True
    for operand in scene.first.names:
        for of in (np.asarray, np.abs):
            sides = [_side(probe, name, operand, of, value) for probe in scene.failing]
            if all(side == sides[0] and side != 0 for side in sides):
                return True
    return False


def _side(
    probe: Probe,
    name: str,
    operand: str,
    of: Callable[[Float], Float],
    value: Callable[[Probe, str], Float | None],
) -> int:
    """1 where the operand is larger at all wrong places than at all others, -1 if smaller."""
    other = value(probe, name)
    x = of(np.asarray(probe.primal(operand), dtype=np.float64))
    wrong, right = probe.wrong(name), probe.right[name]
    if other is None or x.shape != right.shape:
        return 0
    tells = ~np.isclose(other, right)  # elsewhere the two cannot be told apart
    inside, outside = x[wrong], x[~wrong & tells]
    if not inside.size or not outside.size:
        return 0
    return int(inside.min() > outside.max()) - int(inside.max() < outside.min())


# ── what stands there instead ────────────────────────────────────────────────────────────────


def zero(probe: Probe, name: str) -> Float:
    """Nothing."""
    return np.zeros_like(probe.right[name])


def _cotangent(probe: Probe, name: str) -> Float | None:
    """The cotangent as it came, where it has the gradient's shape."""
    fitting = [ct for ct in probe.ct if ct.shape == probe.right[name].shape]
    return fitting[0] if fitting else None


def _twice(probe: Probe, name: str) -> Float:
    return 2 * probe.right[name]


def _one(probe: Probe, name: str) -> Float:
    return np.ones_like(probe.right[name])


VALUES: Final = (
    ("it is 0 there", zero),
    ("the cotangent stands there", _cotangent),
    ("it counts twice there", _twice),
    ("1 stands there", _one),
)
