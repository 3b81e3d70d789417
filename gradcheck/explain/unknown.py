"""What can be said of a wrong gradient that no rule names: its size, its place, its causes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations
from gradcheck.explain.probe import Array, Float, Gradients, Probe
from gradcheck.numerics.draw import Draw

NUDGE: Final = 2.0**-5
"""How far an argument is moved, relative to itself, to see whether the residual follows."""
STILL: Final = 1e-6
"""Share of the residual by which it may move and still count as the same."""


def unknown(scene: Observations) -> Iterator[str]:
    """One sentence each: how much is left over and where, and what that depends on."""
    probe, name = scene.first, scene.output
    if name not in probe.got:
        yield "no gradient of the right shape came back"
        return
    got, right = probe.got[name], probe.right[name]
    strange = int((~np.isfinite(got)).sum())
    if strange:
        yield f"{strange} of {got.size} elements are not finite at {probe.where}"
        return
    yield _left(scene, got - right, right)
    with np.errstate(all="ignore"):
        yield from _causes(probe, name)


def _left(scene: Observations, rest: Float, right: Float) -> str:
    wrong = scene.first.wrong(scene.output)
    size = float(np.linalg.norm(right[np.isfinite(right)]))
    norm = float(np.linalg.norm(rest[np.isfinite(rest)]))
    share = f"{norm / size:.3g} of the gradient's norm" if size > 0 else f"{norm:.3g}"
    worst = np.unravel_index(np.argmax(np.abs(np.nan_to_num(rest))), rest.shape)
    place = f"[{', '.join(str(int(k)) for k in worst)}]" if rest.ndim else ""
    return (
        f"the residual got − want is {share}, in {int(wrong.sum())} of {wrong.size} elements, at "
        f"{scene.first.where}; the largest is at {scene.gradient}{place}"
    )


def _causes(probe: Probe, name: str) -> Iterator[str]:
    """Whether it is linear in the cotangent, and which arguments move it."""
    rest = _rest(probe, name)
    twice = _rest_of(probe, probe.ask(tuple(2 * ct for ct in probe.ct)), name, 2.0)
    if rest is None or twice is None:
        return
    linear = _alike(twice, 2 * rest)
    yield f"the residual {'doubles' if linear else 'does not double'} with the cotangent"
    moving: list[str] = []
    still: list[str] = []
    for k, value in enumerate(probe.primals):
        if value.dtype.kind == "f":
            found = _nudged(probe, k)
            moved = None if found is None else _rest(found, name)
            if moved is not None and moved.shape == rest.shape:
                (still if _alike(moved, rest) else moving).append(probe.names[k])
    if moving:
        yield f"it changes with {_listed(moving)}" + (
            f", not with {_listed(still)}" if still else ""
        )
    elif still:
        yield f"it does not change with {_listed(still)}"


def _rest(probe: Probe, name: str) -> Float | None:
    return probe.got[name] - probe.right[name] if name in probe.got else None


def _rest_of(probe: Probe, got: Gradients, name: str, times: float) -> Float | None:
    """The residual under a multiple of the cotangent."""
    found = got.get(name)
    return None if found is None else np.asarray(found - times * probe.right[name])


def _nudged(probe: Probe, k: int) -> Probe | None:
    """The code at the same point, but for one argument."""

    def near(x: Array) -> Array:
        return np.asarray(x * (1 + NUDGE * Draw("nudge", k).uniform(-1.0, 1.0, *x.shape)))

    return probe.at([near(p) if i == k else p for i, p in enumerate(probe.primals)], probe.ct)


def _alike(a: Float, b: Float) -> bool:
    return bool((np.abs(a - b) <= STILL * np.max(np.abs(b), initial=0.0)).all())


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
