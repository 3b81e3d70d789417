"""Tests whether forward, or the code judged, acts element by element."""

from __future__ import annotations

from typing import Final

import numpy as np

from gradcheck.explain.probe import Array, Cotangent, Float, Mask, Probe
from gradcheck.numerics.draw import Draw

MIN_SIZE: Final = 3
"""Elements below which any operator looks as if it acted element by element."""
CUTS: Final = 2


def over(probe: Probe, shape: tuple[int, ...]) -> Float | None:
    """The one cotangent over a gradient's shape: as it is, or one number for all of a row.

    None where it has neither shape.
    """
    if len(probe.ct) != 1 or probe.ct[0].shape != shape[: probe.ct[0].ndim]:
        return None
    return spread(probe.ct[0], shape)


def spread(values: Array, shape: tuple[int, ...]) -> Array:
    """Values over the last axes that they lack."""
    return np.broadcast_to(values.reshape(values.shape + (1,) * (len(shape) - values.ndim)), shape)


def slope(probe: Probe, gradient: Float) -> Float | None:
    """A gradient divided by the cotangent; None where their shapes do not fit."""
    ct = over(probe, gradient.shape)
    with np.errstate(all="ignore"):
        return None if ct is None else np.asarray(gradient / ct)


def is_diagonal(probe: Probe, name: str) -> bool:
    """Whether forward acts element by element on a primal, or sums such a function over rows.

    It does if a cotangent that is cut down to some elements gives the gradient cut down to these,
    and if a gradient's element does not change when other elements of the arguments do.
    """
    right = probe.right[name]
    if right.size < MIN_SIZE or over(probe, right.shape) is None:
        return False
    for kept, ct in _cuts(probe):
        found = probe.vjp(ct)
        if found is None or not _same(found[name], np.where(spread(kept, right.shape), right, 0.0)):
            return False
    for kept, primals in _exchanged(probe, right.shape):
        found = probe.vjp(primals=dict(zip(probe.names, primals, strict=True)))
        if found is not None and not _same(found[name][kept], right[kept]):
            return False
    return True


def answers_diagonally(probe: Probe, name: str) -> bool:
    """Whether the code's gradient is, element by element, a slope times the cotangent.

    The slope may depend on all but the cotangent: it is asked again with other ones.
    """
    if name not in probe.got:
        return False
    got = probe.got[name]
    for kept, part in _cuts(probe):
        found = probe.ask(part).get(name)
        if found is None or not _same(found, np.where(spread(kept, got.shape), got, 0.0)):
            return False
    other = (np.asarray(Draw("other cotangent").away(0.0, *probe.ct[0].shape)),)
    found, slopes = probe.ask(other).get(name), slope(probe, got)
    if found is None or slopes is None:
        return False
    return _same(found, slopes * spread(other[0], got.shape), 64 * probe.u)


def follows_values(probe: Probe, name: str) -> bool:
    """Whether the code's gradient depends on the values at each element, and not on its place.

    It must move with the values when elements that share a cotangent change places, and stay where
    it is when others change. Code that cannot be asked elsewhere does not show it.
    """
    shape = probe.right[name].shape
    if any(p.shape != shape and p.size > 1 for p in probe.primals):
        return False
    rows = 1 if probe.ct[0].shape == shape else max(probe.ct[0].size, 1)
    order = Draw("other places").permutation(int(np.prod(shape)) // rows)

    def moved(x: Array) -> Array:
        return x.reshape(rows, -1)[:, order].reshape(shape) if x.shape == shape else x

    found = probe.at([moved(p) for p in probe.primals], tuple(moved(p) for p in probe.ct))
    if found is None or name not in found.got:
        return False
    if not _same(found.got[name], moved(probe.got[name]), 64 * probe.u):
        return False
    for kept, primals in _exchanged(probe, shape):
        found = probe.at(primals, probe.ct)
        if found is not None and not (
            name in found.got and _same(found.got[name][kept], probe.got[name][kept], 64 * probe.u)
        ):
            return False
    return True


def _cuts(probe: Probe) -> list[tuple[Mask, Cotangent]]:
    """Cotangents cut down to a part of their elements, and which."""
    (ct,) = probe.ct
    out: list[tuple[Mask, Cotangent]] = []
    for k in range(CUTS if ct.size > 1 else 0):
        kept = Draw("cut", k).signs(*ct.shape) > 0
        out.append((kept, (np.where(kept, ct, 0.0),)))
    return out


def _exchanged(probe: Probe, shape: tuple[int, ...]) -> list[tuple[Mask, list[Array]]]:
    """Arguments of one shape in which some elements have another's values, and where not."""
    out = []
    for k in range(CUTS):
        kept = Draw("kept", k).signs(*shape) > 0

        def other(x: Array, kept: Mask = kept, k: int = k) -> Array:
            return np.where(kept, x, np.roll(x.ravel(), k + 1).reshape(shape))

        out.append((kept, [other(p) if p.shape == shape else p for p in probe.primals]))
    return out


def _same(a: Float, b: Float, tolerance: float = 1e-9) -> bool:
    """Whether two gradients agree to rounding, in units of the largest element."""
    with np.errstate(all="ignore"):
        size = float(np.max(np.abs(np.nan_to_num(b, posinf=0.0, neginf=0.0)), initial=0.0))
        near = np.abs(a - b) <= max(tolerance, 1e-9) * size
        return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
