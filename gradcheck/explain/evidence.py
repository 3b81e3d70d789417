"""What speaks for and against one stage, given which gradients of a program are wrong.

A stage is innocent if its VJP could not have caused what is seen: each wrong gradient must lie
upstream of what it reads and, where the derivatives fit into memory, the errors of all gradients
together must be what true VJPs make of an error of this one stage. That is linear algebra and
assumes nothing but a single fault. In larger programs a right gradient clears a slot, see
`_cleared`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.dataflow import Derivatives, Reach
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.spec.program import Program, Stage, Values

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Errors = Mapping[str, Any]

NOISE: Final = {"float64": 1e-9, "float32": 3e-5}
"""What rounding may do to a gradient, relative to the largest element of its tensor: far more
than it does, so that the true stage is never cleared by it."""
FLOOR: Final = 1e-3
"""The least scale of a tensor, relative to the largest one's: a gradient that is 0 is all noise."""
SHARE: Final = 1e-6
"""Part of a gradient that a slot must contribute before its being right clears the slot."""
RANK: Final = 1e-12
"""Singular values below this part of the largest one are rounding."""
WORK: Final = 3e9
"""Multiplications above which a stage is not put to the linear algebra."""
KEPT: Final = 64 << 20
"""Bytes of what linear algebra has found that are kept for the next fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameContext:
    """Everything that speaks for or against a stage."""

    program: Program
    values: Values
    cts: Mapping[str, Any]
    right: frozenset[str]
    missing: frozenset[str]
    reach: Reach
    errors: Mapping[str, Float]
    noise: Mapping[str, float]
    derivatives: Derivatives | None

    @classmethod
    def of(
        cls,
        program: Program,
        values: Values,
        cts: Mapping[str, Any],
        judged: tuple[Collection[str], Collection[str]],
        errors: Mapping[str, Float],
        dtype: str,
        derivatives: Derivatives | None,
    ) -> BlameContext:
        wrong, right = map(frozenset, judged)
        sizes = {n: float(np.max(np.abs(cts[n]), initial=0)) for n in errors if n in cts}
        floor = FLOOR * max(sizes.values(), default=0.0)
        if derivatives is None:
            derivatives = Derivatives(program, values, list(errors))
        return cls(
            program=program,
            values=values,
            cts=cts,
            right=right,
            missing=wrong - frozenset(errors),
            reach=Reach(program),
            errors=errors,
            noise={n: NOISE[dtype] * max(sizes.get(n, 0.0), floor) or 1.0 for n in errors},
            derivatives=derivatives if errors and derivatives.affordable else None,
        )


def known_errors(values: Values, errors: Errors) -> dict[str, Float]:
    """The errors that are numbers, flat."""
    found = {}
    for name, error in errors.items():
        if error is not None and np.shape(error) == np.shape(values[name]):
            flat = np.ravel(np.asarray(error, dtype=np.float64))
            if np.isfinite(flat).all():
                found[name] = flat
    return found


def explains(court: BlameContext, stage: Stage, names: list[str], beyond: list[list[str]]) -> bool:
    """Whether a fault of one stage can be what is seen at `names`, leaving those beyond open."""
    reached = court.reach.of(stage)
    if not reached.issuperset(names):
        return False
    if not all(_lost(court, stage, name) for name in names if name in court.missing):
        return False
    wrong = [name for name in names if name not in court.missing]
    if not wrong:
        return True
    farthest = court.reach.place(names[-1]) if beyond else -1
    open_names = {name for group in beyond for name in group}
    if court.derivatives is not None:
        rows = [
            name
            for name in court.errors
            if name in wrong or (name not in open_names and court.reach.place(name) > farthest)
        ]
        return _consistent(court, stage, rows)
    slots = [name for name in dict.fromkeys(stage.reads) if not _cleared(court, stage, name, wrong)]
    return frozenset().union(*(court.reach.upstream(n) for n in slots)).issuperset(wrong)


def _lost(court: BlameContext, stage: Stage, name: str) -> bool:
    """Whether a gradient that is missing may be missing because the stage returned none.

    Then it was to return it, or the value that it returned none for has no other way to the loss;
    what was produced all the same has one.
    """
    if name in stage.reads:
        return True
    produced = court.right | frozenset(court.errors)
    for read in dict.fromkeys(stage.reads):
        if name in court.reach.upstream(read):
            reached = court.reach.without(stage, read)
            if name not in reached and produced <= reached:
                return True
    return False


def _consistent(court: BlameContext, stage: Stage, rows: list[str]) -> bool:
    """Whether some error of what the stage returned makes the errors seen in `rows`.

    What it reads directly is free, the rest must lie in the range of the derivatives; the part
    that does not must be small enough for noise. Errors are in units of the noise.
    """
    assert court.derivatives is not None
    rows = [name for name in rows if name not in stage.reads]
    seen = np.concatenate([court.errors[n] / court.noise[n] for n in rows]) if rows else None
    if seen is None:
        return True
    columns = np.concatenate(
        [np.arange(s.start, s.stop) for s in (court.derivatives.columns[n] for n in rows)]
    )
    allowed = np.sqrt(columns.size) + NOISE["float64"] * np.linalg.norm(seen)
    beyond, basis = _spanned(court, stage, rows, columns)
    if not np.linalg.norm(seen[beyond]) <= allowed:
        return False
    rest = seen[~beyond]
    # Without a basis it would take too long to find out.
    return basis is None or bool(np.linalg.norm(rest - basis @ (basis.T @ rest)) <= allowed)


def _spanned(
    court: BlameContext, stage: Stage, rows: list[str], columns: NDArray[np.int64]
) -> tuple[Mask, Float | None]:
    """Which elements of `rows` no error of what the stage returned can reach; a basis of the rest.

    The basis [m, n] is None where it would take too long. All faults of a program ask for a few
    of these, again and again.
    """
    assert court.derivatives is not None
    noise = tuple(court.noise[n] for n in rows)
    reads = tuple(n for n in dict.fromkeys(stage.reads)
                  if n in court.cts and n not in court.program.params)  # fmt: skip
    key = reads, tuple(rows), noise
    kept: dict[Any, tuple[Mask, Float | None]] = court.derivatives.kept
    if key not in kept:
        weights = np.repeat([1 / n for n in noise], [court.errors[n].size for n in rows])
        blocks = [court.derivatives.of(read)[:, columns] * weights for read in reads]
        matrix = np.concatenate(blocks).T if blocks else np.zeros((columns.size, 0))
        beyond = ~np.any(matrix != 0, axis=1)
        matrix = matrix[~beyond]
        matrix = matrix[:, np.any(matrix != 0, axis=0)]
        affordable = matrix.size * float(min(matrix.shape)) <= WORK
        basis = _range(matrix) if affordable else None
        size = 0 if basis is None else basis.nbytes
        if size + sum(b.nbytes for _, b in kept.values() if b is not None) > KEPT:
            kept.clear()
        kept[key] = beyond, basis
    return kept[key]


def _range(matrix: Float) -> Float:
    """An orthonormal basis of what a matrix [m, n] can give; its columns are not 0."""
    height, width = matrix.shape
    matrix = matrix / np.linalg.norm(matrix, axis=0)
    turned = np.eye(height)
    if height > width:
        turned, matrix = np.linalg.qr(matrix)
    elif width > height:
        matrix = np.linalg.qr(matrix.T)[1].T
    if not matrix.size:
        return np.zeros((height, 0))
    left, sizes, _ = np.linalg.svd(matrix)
    return np.asarray(turned @ left[:, sizes > RANK * sizes[0]])


def _cleared(court: BlameContext, stage: Stage, read: str, wrong: list[str]) -> bool:
    """Whether a right gradient speaks for what the stage returns for one value that it reads.

    It does if it is nearer to the loss than every wrong one, not a sum over several stages, and
    this slot's own share of it is not nothing: shares that vanish by structure (Σₜ dk = 0, so a
    key's bias stays right whatever factor dk has) speak for nobody, nor does a sum (a bias's) that
    stays the same when rows are exchanged. An error that vanishes on its way though these do not
    would clear the guilty; the assumption printed says so.
    """
    nearest = max(court.reach.place(name) for name in wrong)
    behind = court.reach.upstream(read)
    near = [
        name
        for name in court.right & behind
        if court.reach.place(name) > nearest and not court.reach.tied(name)
    ]
    if not near:
        return False
    outputs = tuple(
        court.cts[name] if name in court.cts else np.zeros_like(court.values[name])
        for name in stage.outputs
    )
    gradients = zip(stage.reads, stage.vjp(F64, outputs, court.values), strict=True)
    own = np.asarray(sum(g for name, g in gradients if name == read and g is not None))
    uneven = own * Draw("blame", stage.name, read).uniform(0.5, 1.5, *own.shape)
    for probe in (own, *(np.roll(uneven, 1, axis) - uneven for axis in range(own.ndim))):
        share = court.program.backward(F64, court.values, np.array(1.0), start={read: probe})
        near = [name for name in near if name in share and _felt(court, name, share[name])]
    return bool(near)


def _felt(court: BlameContext, name: str, share: Any) -> bool:
    whole = np.max(np.abs(court.cts[name]), initial=0) if name in court.cts else np.inf
    return bool(np.max(np.abs(share), initial=0) > SHARE * whole)
