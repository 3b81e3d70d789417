"""Which stages of a program may be at fault, from which of its gradients are wrong.

With stage verdicts the faulty stages are known. With end-to-end gradients alone, a stage is a
suspect unless the evidence clears it: each wrong gradient must lie upstream of what the stage
reads and, where the derivatives fit into memory, the errors of all gradients together must be what
true VJPs make of an error of this one stage. That is linear algebra and assumes nothing but a
single fault. In larger programs a right gradient clears a slot, see `_cleared`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.reproduce import MIN_TENSOR_SCALE, Derivatives, Reach
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.results.finding import Blame
from gradcheck.spec.program import Program, Stage, Values

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
Errors = Mapping[str, Any]

NOISE: Final = {"float64": 1e-9, "float32": 3e-5}
"""What rounding may do to a gradient, relative to the largest element of its tensor: far more
than it does, so that the true stage is never cleared by it."""
MIN_SHARE: Final = 1e-6
"""Part of a gradient that a slot must contribute before its being right clears the slot."""
RANK_TOLERANCE: Final = 1e-12
"""Singular values below this part of the largest one are rounding."""
MAX_MULTIPLICATIONS: Final = 3e9
"""Multiplications above which a stage is not put to the linear algebra."""
MAX_KEPT_BYTES: Final = 64 << 20
"""Bytes of what linear algebra has found that are kept for the next fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameContext:
    """The evidence about every stage."""

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
        floor = MIN_TENSOR_SCALE * max(sizes.values(), default=0.0)
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


def explains(
    context: BlameContext, stage: Stage, names: list[str], beyond: list[list[str]]
) -> bool:
    """Whether a fault of one stage explains the errors at `names`; `beyond` is left open."""
    reached = context.reach.of(stage)
    if not reached.issuperset(names):
        return False
    if not all(_lost(context, stage, name) for name in names if name in context.missing):
        return False
    wrong = [name for name in names if name not in context.missing]
    if not wrong:
        return True
    farthest = context.reach.place(names[-1]) if beyond else -1
    open_names = {name for group in beyond for name in group}
    if context.derivatives is not None:
        rows = [
            name
            for name in context.errors
            if name in wrong or (name not in open_names and context.reach.place(name) > farthest)
        ]
        return _consistent(context, stage, rows)
    slots = [
        name for name in dict.fromkeys(stage.reads) if not _cleared(context, stage, name, wrong)
    ]
    return frozenset().union(*(context.reach.upstream(n) for n in slots)).issuperset(wrong)


def _lost(context: BlameContext, stage: Stage, name: str) -> bool:
    """Whether a gradient may be missing because the stage returned none.

    True if the stage reads `name`; or if, without the gradient of one value that the stage reads,
    `name` would get none, and every gradient that was produced would still get one.
    """
    if name in stage.reads:
        return True
    produced = context.right | frozenset(context.errors)
    for read in dict.fromkeys(stage.reads):
        if name in context.reach.upstream(read):
            reached = context.reach.without(stage, read)
            if name not in reached and produced <= reached:
                return True
    return False


def _consistent(context: BlameContext, stage: Stage, rows: list[str]) -> bool:
    """Whether one error of the stage's gradients explains the errors seen in `rows`.

    Errors of values that the stage reads are free. The others must lie in the range of the
    derivatives, but for a part as small as noise. Errors are in units of the noise.
    """
    assert context.derivatives is not None
    rows = [name for name in rows if name not in stage.reads]
    seen = np.concatenate([context.errors[n] / context.noise[n] for n in rows]) if rows else None
    if seen is None:
        return True
    columns = np.concatenate(
        [np.arange(s.start, s.stop) for s in (context.derivatives.columns[n] for n in rows)]
    )
    allowed = np.sqrt(columns.size) + NOISE["float64"] * np.linalg.norm(seen)
    beyond, basis = _spanned(context, stage, rows, columns)
    if not np.linalg.norm(seen[beyond]) <= allowed:
        return False
    rest = seen[~beyond]
    # Without a basis it would take too long to find out.
    return basis is None or bool(np.linalg.norm(rest - basis @ (basis.T @ rest)) <= allowed)


def _spanned(
    context: BlameContext, stage: Stage, rows: list[str], columns: NDArray[np.int64]
) -> tuple[Mask, Float | None]:
    """The elements of `rows` that no error of the stage reaches, and a basis of the others.

    The basis [m, n] is None where it would take too long. Results are kept: several faults ask for
    the same rows.
    """
    assert context.derivatives is not None
    noise = tuple(context.noise[n] for n in rows)
    reads = tuple(n for n in dict.fromkeys(stage.reads)
                  if n in context.cts and n not in context.program.params)  # fmt: skip
    key = reads, tuple(rows), noise
    kept: dict[Any, tuple[Mask, Float | None]] = context.derivatives.kept
    if key not in kept:
        weights = np.repeat([1 / n for n in noise], [context.errors[n].size for n in rows])
        blocks = [context.derivatives.of(read)[:, columns] * weights for read in reads]
        matrix = np.concatenate(blocks).T if blocks else np.zeros((columns.size, 0))
        beyond = ~np.any(matrix != 0, axis=1)
        matrix = matrix[~beyond]
        matrix = matrix[:, np.any(matrix != 0, axis=0)]
        affordable = matrix.size * float(min(matrix.shape)) <= MAX_MULTIPLICATIONS
        basis = _range(matrix) if affordable else None
        size = 0 if basis is None else basis.nbytes
        if size + sum(b.nbytes for _, b in kept.values() if b is not None) > MAX_KEPT_BYTES:
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
    return np.asarray(turned @ left[:, sizes > RANK_TOLERANCE * sizes[0]])


def _cleared(context: BlameContext, stage: Stage, read: str, wrong: list[str]) -> bool:
    """Whether a right gradient clears the stage for one value that it reads.

    It does if it is nearer to the loss than every wrong one, not a sum over several stages, and
    this slot's own share of it is not nothing: shares that vanish by structure (Σₜ dk = 0, so a
    key's bias stays right whatever factor dk has) clear nothing, nor does a sum (a bias's) that
    stays the same when rows are exchanged. An error that vanishes on its way though these do not
    would clear the faulty stage; the assumption printed says so.
    """
    nearest = max(context.reach.place(name) for name in wrong)
    behind = context.reach.upstream(read)
    near = [
        name
        for name in context.right & behind
        if context.reach.place(name) > nearest and not context.reach.tied(name)
    ]
    if not near:
        return False
    outputs = tuple(
        context.cts[name] if name in context.cts else np.zeros_like(context.values[name])
        for name in stage.outputs
    )
    gradients = zip(stage.reads, stage.vjp(F64, outputs, context.values), strict=True)
    own = np.asarray(sum(g for name, g in gradients if name == read and g is not None))
    uneven = own * Draw("blame", stage.name, read).uniform(0.5, 1.5, *own.shape)
    for probe in (own, *(np.roll(uneven, 1, axis) - uneven for axis in range(own.ndim))):
        share = context.program.backward(F64, context.values, np.array(1.0), start={read: probe})
        near = [name for name in near if name in share and _felt(context, name, share[name])]
    return bool(near)


def _felt(context: BlameContext, name: str, share: Any) -> bool:
    whole = np.max(np.abs(context.cts[name]), initial=0) if name in context.cts else np.inf
    return bool(np.max(np.abs(share), initial=0) > MIN_SHARE * whole)


MAX_SHARP_SUSPECTS: Final = 8
"""Suspects above which noise may have hidden what would clear them: the graph is asked as well."""
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


def blame_judged_stages(
    program: Program,
    faulty: Collection[str],
    still_wrong: Callable[[frozenset[str]], Collection[str]],
) -> tuple[Blame, ...]:
    """Independent faults one after another, from the loss backwards.

    `still_wrong(replaced)` names the parameters whose gradients are wrong when the named stages are
    replaced by the reference. While any are, the faulty stage nearest to the loss is blamed and
    then replaced. Errors that are left belong to no single stage; a faulty stage that spoils no
    parameter is blamed last.
    """
    found: list[Blame] = []
    left = [stage.name for stage in program.stages if stage.name in faulty]
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
    """The stages that may have made the `wrong` gradients wrong; at least one blame per fault.

    Args:
        program: The model.
        values: The reference's values by name, in float64.
        cts: The reference's cotangents by name, in float64.
        wrong: Names of parameters (or other values) whose gradients are wrong.
        right: Names of those whose gradients are right.
        errors: Returned gradients minus the truth, by name. A wrong name that is absent, or not
            finite, counts as a gradient that was not produced.
        dtype: The dtype of the implementation, which says how much rounding may have cost.
        derivatives: Derivatives with respect to all names judged, to be shared by calls.

    Returns:
        Blames, the fault nearest to the loss first. If a single stage is at fault, the first
        contains it.
    """
    known = known_errors(values, errors or {})
    context = BlameContext.of(program, values, cts, (wrong, right), known, dtype, derivatives)
    if errors is None:
        context = replace(context, missing=frozenset())
    left = sorted(wrong, key=context.reach.place, reverse=True)
    found: list[Blame] = []
    while left:
        groups = _groups(context, left)
        count, stages = _explained(context, groups)
        explained = [name for group in groups[:count] for name in group]
        whole = count == len(groups) and not found
        sharp = context.derivatives is not None
        if whole and sharp and len(stages) > MAX_SHARP_SUSPECTS:
            by_graph = replace(context, derivatives=None)
            fewer = [s for s in stages if explains(by_graph, s, explained, [])]
            if fewer and 2 * len(fewer) <= len(stages):
                stages, sharp = fewer, False
        assumption = (SINGLE if sharp else GRAPH) if whole else SEVERAL if not found else LEFT
        found.append(
            Blame(
                exact=False,
                stages=tuple(stage.name for stage in stages),
                of=len(program.stages),
                assumption=assumption,
                bounds=(_nearest(context, explained[0]), explained[0]),
                round=len(found) + 1,
                names=tuple(
                    f"no gradient of `{name}` is produced."
                    for name in explained
                    if name in context.missing
                ),
            )
        )
        touched = frozenset().union(*(context.reach.of(stage) for stage in stages))
        left = [
            name
            for name in left
            if name not in explained and (name not in touched or name not in context.errors)
        ]
    return tuple(found)


def _groups(context: BlameContext, names: Sequence[str]) -> list[list[str]]:
    """Names that are read first by the same stage, together; the nearest to the loss first."""
    groups: dict[int, list[str]] = {}
    for name in names:
        groups.setdefault(context.reach.place(name), []).append(name)
    return list(groups.values())


def _explained(context: BlameContext, groups: list[list[str]]) -> tuple[int, list[Stage]]:
    """How many groups, all or the nearest alone, one stage explains; and which stages do."""
    for count in dict.fromkeys((len(groups), 1)):  # beyond the nearest, faults may mix
        names = [name for group in groups[:count] for name in group]
        stages = [s for s in context.program.stages if explains(context, s, names, groups[count:])]
        if stages:
            return count, stages
    # Nothing explains even the nearest alone: whatever lies between it and the loss may be at fault
    first = groups[0][0]
    near = [s for s in context.program.stages if first in context.reach.of(s)]
    return 1, near or list(context.program.stages)


def _nearest(context: BlameContext, wrong: str) -> str:
    """The right gradient nearest to the first wrong one, towards the loss; "" if there is none."""
    place = context.reach.place(wrong)
    nearer = [
        n for n in context.right if context.reach.place(n) > place and not context.reach.tied(n)
    ]
    related = [n for n in nearer if _downstream(context, n, wrong)]
    return min(related or nearer, key=lambda n: (context.reach.place(n), n), default="")


def _downstream(context: BlameContext, name: str, wrong: str) -> bool:
    """Whether a stage that reads `name` also depends on the wrong one's value."""
    return any(wrong in context.reach.of(stage) for stage in context.program.readers.get(name, ()))
