"""Which stages of a program may be at fault, from which of its gradients are wrong.

With stage verdicts the guilty are known. With end-to-end gradients alone, a stage is a suspect
unless its VJP could not have caused what is seen: each wrong gradient must lie upstream of what it
reads and, where the derivatives fit into memory, the errors of all gradients together must be what
true VJPs make of an error of this one stage. That is linear algebra and assumes nothing but a
single fault. Of larger programs a right gradient clears a slot, see `_cleared`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64
from gradcheck.draw import Draw
from gradcheck.explain.reach import Derivatives, Reach
from gradcheck.finding import Blame
from gradcheck.model import Program, Stage, Values

Float = NDArray[np.float64]
Errors = Mapping[str, Any]

NOISE: Final = {"float64": 1e-9, "float32": 3e-5}
"""What rounding may do to a gradient, relative to the largest element of its tensor: far more
than it does, so that the true stage is never cleared by it."""
FLOOR: Final = 1e-3
"""The least scale of a tensor, relative to the largest one's: a gradient that is 0 is all noise."""
SHARE: Final = 1e-6
"""Part of a gradient that a slot must contribute before its being right clears the slot."""
BLUNT: Final = 8
"""Suspects above which noise may have hidden what would clear them: the graph is asked as well."""
RANK: Final = 1e-12
"""Singular values below this part of the largest one are rounding."""
WORK: Final = 3e9
"""Multiplications above which a stage is not put to the linear algebra."""

CERTAIN: Final = (
    "one fault a round: each stage was judged alone, at the reference's cotangent, and replaced by "
    "the reference for the next round"
)
SINGLE: Final = "a single stage is assumed to be at fault: one of these, if no other is"
GRAPH: Final = (
    "a single stage is assumed to be at fault, with an error of which some part reaches every "
    "gradient that depends on it"
)
SEVERAL: Final = (
    "no single stage explains every wrong gradient: at least two are at fault; these explain the "
    "wrong ones nearest to the loss"
)
LEFT: Final = "these explain what the suspects before do not; a single fault is assumed here"
TOGETHER: Final = (
    "every stage is right by itself: the fault is in how they are put together, so the suspects "
    "are those whose gradients are added up, passed on or left out"
)


def rounds(
    program: Program,
    guilty: Collection[str],
    still_wrong: Callable[[frozenset[str]], Collection[str]],
) -> tuple[Blame, ...]:
    """Independent faults one after another, from the loss backwards.

    `still_wrong(replaced)` names the parameters whose gradients are wrong when the stages named
    are the reference's. While there are any, the guilty stage nearest to the loss is blamed, and
    replaced in its turn. What is still wrong when none is left is no stage's by itself; a guilty
    stage that spoils no parameter is blamed last.
    """
    found: list[Blame] = []
    left = [stage.name for stage in program.stages if stage.name in guilty]
    place = Reach(program).place
    replaced: frozenset[str] = frozenset()
    wrong = still_wrong(replaced)
    while left:
        stage = left.pop()
        found.append(
            Blame(
                exact=True,
                stages=(stage,),
                of=len(program.stages),
                assumption=CERTAIN,
                bounds=("", max(wrong, key=place, default="")),
                round=len(found) + 1,
            )
        )
        replaced |= {stage}
        wrong = still_wrong(replaced)
    if wrong:
        found.append(_unexplained(program, len(found) + 1))
    return tuple(found)


def _unexplained(program: Program, round: int) -> Blame:
    names = tuple(stage.name for stage in program.stages)
    return Blame(exact=False, stages=names, of=len(names), assumption=TOGETHER, round=round)


def suspects(
    program: Program,
    values: Values,
    cts: Mapping[str, Any],
    wrong: Collection[str],
    right: Collection[str],
    errors: Errors | None = None,
    dtype: str = "float64",
    derivatives: Derivatives | None = None,
) -> tuple[Blame, ...]:
    """The stages that may have made the `wrong` gradients wrong; one blame per fault at least.

    `values` and `cts` are the reference's, in float64, of every value by name. `wrong` and `right`
    name the parameters (or other values) whose gradients were judged. `errors` holds what was
    returned minus the truth, by name, as arrays of the value's shape; a name that is wrong and
    not in it, or not finite, counts as a gradient that was not produced. The first blame contains
    the guilty stage if there is one alone. `dtype` says how much rounding may have cost;
    `derivatives` with respect to all names judged serve several calls at one point.
    """
    known = _known(values, errors or {})
    court = _Court.of(program, values, cts, (wrong, right), known, dtype, derivatives)
    if errors is None:
        court = replace(court, missing=frozenset())
    left = sorted(wrong, key=court.reach.place, reverse=True)
    found: list[Blame] = []
    while left:
        groups = _groups(court, left)
        count, stages = _explained(court, groups)
        explained = [name for group in groups[:count] for name in group]
        whole = count == len(groups) and not found
        sharp = court.derivatives is not None
        if whole and sharp and len(stages) > BLUNT:
            by_graph = replace(court, derivatives=None)
            fewer = [s for s in stages if _explains(by_graph, s, explained, [])]
            if fewer and 2 * len(fewer) <= len(stages):
                stages, sharp = fewer, False
        assumption = (SINGLE if sharp else GRAPH) if whole else SEVERAL if not found else LEFT
        found.append(
            Blame(
                exact=False,
                stages=tuple(stage.name for stage in stages),
                of=len(program.stages),
                assumption=assumption,
                bounds=(_nearest(court, explained[0]), explained[0]),
                round=len(found) + 1,
                names=tuple(
                    f"no gradient of `{name}` is produced."
                    for name in explained
                    if name in court.missing
                ),
            )
        )
        touched = frozenset().union(*(court.reach.of(stage) for stage in stages))
        left = [
            name
            for name in left
            if name not in explained and (name not in touched or name not in court.errors)
        ]
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Court:
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
    ) -> _Court:
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


def _known(values: Values, errors: Errors) -> dict[str, Float]:
    """The errors that are numbers, flat."""
    found = {}
    for name, error in errors.items():
        if error is not None and np.shape(error) == np.shape(values[name]):
            flat = np.ravel(np.asarray(error, dtype=np.float64))
            if np.isfinite(flat).all():
                found[name] = flat
    return found


def _groups(court: _Court, names: Sequence[str]) -> list[list[str]]:
    """Names that are read first by the same stage, together; the nearest to the loss first."""
    groups: dict[int, list[str]] = {}
    for name in names:
        groups.setdefault(court.reach.place(name), []).append(name)
    return list(groups.values())


def _explained(court: _Court, groups: list[list[str]]) -> tuple[int, list[Stage]]:
    """How many groups, all or the nearest alone, one stage explains; and which stages do."""
    for count in dict.fromkeys((len(groups), 1)):  # beyond the nearest, faults may mix
        names = [name for group in groups[:count] for name in group]
        stages = [s for s in court.program.stages if _explains(court, s, names, groups[count:])]
        if stages:
            return count, stages
    # Nothing explains even the nearest alone: whatever lies between it and the loss may be at fault
    first = groups[0][0]
    near = [s for s in court.program.stages if first in court.reach.of(s)]
    return 1, near or list(court.program.stages)


def _explains(court: _Court, stage: Stage, names: list[str], beyond: list[list[str]]) -> bool:
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


def _lost(court: _Court, stage: Stage, name: str) -> bool:
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


def _consistent(court: _Court, stage: Stage, rows: list[str]) -> bool:
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
    weights = np.concatenate([np.full(court.errors[n].size, 1 / court.noise[n]) for n in rows])
    blocks = [
        court.derivatives.of(read)[:, columns] * weights
        for read in dict.fromkeys(stage.reads)
        if read in court.cts and read not in court.program.params
    ]
    matrix = np.concatenate(blocks).T if blocks else np.zeros((columns.size, 0))
    allowed = np.sqrt(columns.size) + NOISE["float64"] * np.linalg.norm(seen)
    beyond = ~np.any(matrix != 0, axis=1)
    if not np.linalg.norm(seen[beyond]) <= allowed:
        return False
    matrix, rest = matrix[~beyond], seen[~beyond]
    matrix = matrix[:, np.any(matrix != 0, axis=0)]
    if matrix.size * float(min(matrix.shape)) > WORK:
        return True  # it would take too long to find out
    basis = _range(matrix)
    return bool(np.linalg.norm(rest - basis @ (basis.T @ rest)) <= allowed)


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


def _cleared(court: _Court, stage: Stage, read: str, wrong: list[str]) -> bool:
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


def _felt(court: _Court, name: str, share: Any) -> bool:
    whole = np.max(np.abs(court.cts[name]), initial=0) if name in court.cts else np.inf
    return bool(np.max(np.abs(share), initial=0) > SHARE * whole)


def _nearest(court: _Court, wrong: str) -> str:
    """The right gradient nearest to the first wrong one, towards the loss; "" if there is none."""
    place = court.reach.place(wrong)
    nearer = [n for n in court.right if court.reach.place(n) > place and not court.reach.tied(n)]
    related = [n for n in nearer if _downstream(court, n, wrong)]
    return min(related or nearer, key=lambda n: (court.reach.place(n), n), default="")


def _downstream(court: _Court, name: str, wrong: str) -> bool:
    """Whether a stage that reads `name` also depends on the wrong one's value."""
    return any(wrong in court.reach.of(stage) for stage in court.program.readers.get(name, ()))
