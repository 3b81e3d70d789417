"""Whether a gradient is, element by element, a slope times the cotangent, and which slope."""

from __future__ import annotations

from typing import Final

import numpy as np

from gradcheck.draw import Draw
from gradcheck.explain.probe import Cotangent, Float, Mask, Probe

SMALLEST: Final = 3
"""Elements below which any operator looks as if it acted element by element."""
MASKS: Final = 2


def slope(probe: Probe, gradient: Float) -> Float | None:
    """What a gradient is in multiples of the one cotangent; None where shapes differ."""
    if len(probe.ct) != 1 or probe.ct[0].shape != gradient.shape:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(gradient / probe.ct[0])


def is_diagonal(probe: Probe, name: str) -> bool:
    """Whether the Jacobian of forward with respect to a primal is diagonal.

    It is if a cotangent that is cut down to some elements gives the gradient cut down to these.
    """
    right = probe.right[name]
    if right.size < SMALLEST or len(probe.ct) != 1 or probe.ct[0].shape != right.shape:
        return False
    return all(
        found is not None and name in found and _same(found[name], np.where(kept, right, 0.0))
        for kept, ct in _cuts(probe)
        for found in [probe.vjp(ct)]
    )


def answers_diagonally(probe: Probe, name: str) -> bool:
    """Whether the code's gradient is a slope times the cotangent, element by element.

    The slope may be any, but for the cotangent: it is asked again with other ones.
    """
    if name not in probe.got:
        return False
    got, ct = probe.got[name], probe.ct[0]
    for kept, part in _cuts(probe):
        found = probe.ask(part).get(name)
        if found is None or not _same(found, np.where(kept, got, 0.0)):
            return False
    other = (np.asarray(Draw("other cotangent").away(0.0, *ct.shape)),)
    found = probe.ask(other).get(name)
    with np.errstate(all="ignore"):
        return found is not None and _same(found, got / ct * other[0], 64 * probe.u)


def follows_values(probe: Probe, name: str) -> bool:
    """Whether the code's gradient moves with the values when all elements change places.

    False says that it is the place that matters, and not what stands there; so does code that
    cannot be asked elsewhere.
    """
    shape = probe.right[name].shape
    order = Draw("other places").permutation(int(np.prod(shape)))

    def moved(x: Float) -> Float:
        return x.ravel()[order].reshape(shape) if x.shape == shape else x

    if any(p.shape != shape and p.size > 1 for p in probe.primals):
        return False
    found = probe.at([moved(p) for p in probe.primals], tuple(moved(p) for p in probe.ct))
    if found is None or name not in found.got:
        return False
    return _same(found.got[name], moved(probe.got[name]), 64 * probe.u)


def _cuts(probe: Probe) -> list[tuple[Mask, Cotangent]]:
    """Cotangents cut down to a part of their elements, and which."""
    (ct,) = probe.ct
    out: list[tuple[Mask, Cotangent]] = []
    for k in range(MASKS):
        kept = Draw("cut", k).signs(*ct.shape) > 0
        out.append((kept, (np.where(kept, ct, 0.0),)))
    return out


def _same(a: Float, b: Float, tolerance: float = 1e-9) -> bool:
    """Whether two gradients agree to rounding, in units of the largest element."""
    with np.errstate(all="ignore"):
        size = float(np.max(np.abs(np.nan_to_num(b, posinf=0.0, neginf=0.0)), initial=0.0))
        near = np.abs(a - b) <= max(tolerance, 1e-9) * size
        return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
