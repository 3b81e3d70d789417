"""Residual: what is off has, row by row, the direction of something known: one term is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gradcheck.explain.probe import Float, Probe
from gradcheck.explain.suspicion import Scene, Suspicion

NARROW: Final = 4
"""Columns below which many arrays are proportional to one another."""
ROWS: Final = 3
"""Rows, over all probes, below which a coincidence is too likely."""
FITTED: Final = 1e-6
"""What may be left of a residual, as a part of its largest element."""
SEEN: Final = 100.0
"""Times what rounding explains that a residual must be to have a direction."""

Basis = Callable[[Probe], Float]


def residual(scene: Scene) -> Iterator[Suspicion]:
    """Proportional to an array in every row; to one and a constant, as a norm's terms are."""
    for says, vectors in _directions(scene):
        counts = [_rows(probe, scene.output, vectors) for probe in scene.failing]
        if None in counts or sum(c for c in counts if c is not None) < ROWS:
            continue
        yield Suspicion(
            label="T",
            says=f"{scene.gradient} has one term too many, too few, or of another weight: what is "
            f"off is {says} in every row",
            fits=_spanned(scene.output, vectors),
            evidence=(f"in {sum(c or 0 for c in counts)} rows, each with a factor of its own",),
        )


def _directions(scene: Scene) -> Iterator[tuple[str, tuple[Basis, ...]]]:
    """What residuals are compared with: words, and functions of a probe."""
    first = scene.first
    shape = first.primal(scene.output).shape
    single: list[tuple[str, Basis]] = [("one number", _ones(scene.output))]
    for name, primal in zip(first.names, first.primals, strict=True):
        if primal.shape == shape and primal.dtype.kind == "f":
            single.append((f"proportional to {name}", _primal(name)))
    for k, output in enumerate(first.outputs):
        if output.shape == shape:
            of = "the output" if len(first.outputs) == 1 else f"output {k}"
            single.append((f"proportional to {of}", _output(k)))
            single.append((f"proportional to exp of {of}", _exp(k)))
    for says, vector in single:
        yield says, (vector,)
    for k, part in enumerate(first.ct):
        if part.shape == shape:
            of = "the cotangent" if len(first.ct) == 1 else f"cotangent {k}"
            yield f"proportional to {of}", (_cotangent(k),)
    for says, vector in single[1:]:
        yield f"{says}, but for one number,", (single[0][1], vector)


def _ones(name: str) -> Basis:
    return lambda probe: np.ones_like(probe.right[name])


def _primal(name: str) -> Basis:
    return lambda probe: probe.primal(name)


def _output(k: int) -> Basis:
    return lambda probe: probe.outputs[k]


def _exp(k: int) -> Basis:
    return lambda probe: np.exp(probe.outputs[k])


def _cotangent(k: int) -> Basis:
    return lambda probe: probe.ct[k]


def _spanned(name: str, vectors: tuple[Basis, ...]) -> Callable[[Probe], bool]:
    return lambda probe: not probe.fails(name) or _rows(probe, name, vectors) is not None


def _rows(probe: Probe, name: str, vectors: tuple[Basis, ...]) -> int | None:
    """In how many rows the residual is seen to be a sum of the vectors; None if in any it is not.

    Narrow rows, and residuals that rounding may have bent, tell nothing.
    """
    if name not in probe.got:
        return None
    right = probe.right[name]
    if right.ndim < 1 or right.shape[-1] < NARROW + len(vectors):
        return 0
    with np.errstate(all="ignore"):
        off = probe.got[name] - right
        arrays = [vector(probe) for vector in vectors]
    if any(np.shape(a) != right.shape for a in arrays):
        return None
    basis = np.stack(arrays, axis=-1).reshape(-1, right.shape[-1], len(vectors))
    if not (np.isfinite(off).all() and np.isfinite(basis).all()):
        return None
    blur = float(np.max(probe.blur(name), initial=0.0))
    wrong = np.max(np.abs(off), axis=-1).reshape(-1) > SEEN * blur
    rows, whole = (a.reshape(-1, right.shape[-1])[wrong] for a in (off, right))
    if not _in_span(rows, basis[wrong], 2 * blur):
        return None
    # Where the whole gradient has that direction, it is no term that is wrong.
    return 0 if _in_span(whole, basis[wrong], 2 * blur) else int(wrong.sum())


def _in_span(rows: Float, basis: Float, blur: float) -> bool:
    """Whether each of `rows` [r, n] is a sum of its own vectors, `basis` [r, n, k]."""
    close = max(blur, FITTED * float(np.max(np.abs(rows), initial=0.0)))
    for row, vectors in zip(rows, basis, strict=True):
        weights, *_ = np.linalg.lstsq(vectors, row, rcond=None)
        if not np.max(np.abs(row - vectors @ weights)) <= close:
            return False
    return True
