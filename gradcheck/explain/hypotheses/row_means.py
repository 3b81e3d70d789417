"""Shares: elements, or rows, divided by a count of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import RAISES, Float, Probe


def shared(scene: Observations) -> Iterator[Suspicion]:
    """Each element divided by how often it is used: the mean of its contributions."""
    name, own = scene.output, scene.gradient
    says = f"{own} is divided, element by element, by the number of its contributions"
    for of in (_uses, _multiplicities):
        yield predicting(
            scene, "R", f"{says}: averaged instead of summed", partial(_over, of, name)
        )


def _over(count: Callable[[Probe, str], Float | None], name: str, probe: Probe) -> Float | None:
    n = count(probe, name)
    if n is None or not np.isfinite(n).all():
        return None
    whole = np.abs(n - np.round(n)) <= 1e-9 * np.maximum(1.0, n)
    most = sum(part.size for part in probe.ct)
    if not whole.all() or n.min(initial=0) < 0 or not 1 < n.max(initial=0) <= most:
        return probe.right[name]
    return np.asarray(probe.right[name] / np.maximum(n, 1.0))


def _uses(probe: Probe, name: str) -> Float | None:
    """How many elements of the output read each element, where they only copy or add."""
    found = probe.vjp(tuple(np.ones_like(part) for part in probe.ct))
    return None if found is None else found.get(name)


def _multiplicities(probe: Probe, name: str) -> Float | None:
    """How many elements are added into the output to which each belongs."""
    values = [np.ones_like(p) if n == name else p
              for n, p in zip(probe.names, probe.primals, strict=True)]  # fmt: skip
    try:
        outputs = probe.truth.forward(values, probe.attrs)
    except RAISES:
        return None
    if [o.shape for o in outputs] != [part.shape for part in probe.ct]:
        return None
    found = probe.vjp(outputs)
    return None if found is None else found.get(name)


# ── a count for each row ─────────────────────────────────────────────────────────────────────

Form = Callable[[Float, int], Float]

FORMS: Final[tuple[tuple[str, Form], ...]] = (
    ("divided by the first row's count of {} in place of its own", lambda v, n: v / v.flat[0]),
    ("divided by all of {}, in place of the count of those in use", lambda v, n: v / n),
    ("divided by the count of {} in use, in place of all", lambda v, n: n / v),
    ("averaged over {} in use, in place of summed", lambda v, n: 1 / v),
    ("summed over {} in use, in place of averaged", lambda v, n: v),
)
"""What the right gradient of each row is multiplied by, with v of n entries in use."""


def by_row(scene: Observations) -> Iterator[Suspicion]:
    """Rows that are divided by another count of the entries in use than their own."""
    name = scene.output
    for words, used in _in_use(scene.first):
        for form, of in FORMS:
            says = f"{scene.gradient} is, row by row, {form.format(words)}"
            yield predicting(scene, "R", says, partial(_rowwise, used, of, name))


Used = Callable[[Probe], Float]


def _in_use(probe: Probe) -> Iterator[tuple[str, Used]]:
    """Indices that are not an attribute's value, ones of a mask."""
    for other, primal in zip(probe.names, probe.primals, strict=True):
        if primal.dtype.kind == "f":
            if np.isin(primal, (0.0, 1.0)).all():
                yield f"the ones of {other}", partial(_ones, other)
            continue
        for attr, marker in probe.attrs.items():
            if isinstance(marker, int) and not isinstance(marker, bool):
                yield f"{other} other than `{attr}`", partial(_others, other, attr)


def _ones(other: str, probe: Probe) -> Float:
    return np.asarray(probe.primal(other) == 1, dtype=np.float64)


def _others(other: str, attr: str, probe: Probe) -> Float:
    return np.asarray(probe.primal(other) != probe.attrs.get(attr), dtype=np.float64)


def _rowwise(used: Used, form: Form, name: str, probe: Probe) -> Float | None:
    kept, right = used(probe), probe.right[name]
    if not kept.ndim or kept.shape != right.shape[: kept.ndim]:
        return None
    counts = kept.sum(axis=-1, keepdims=True)
    factor = np.asarray(form(counts, kept.shape[-1]))
    spread = factor.reshape(*factor.shape, *(1,) * (right.ndim - kept.ndim))
    return np.where(right == 0, 0.0, right * spread)
