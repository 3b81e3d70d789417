"""Which defect of which suspect gives all the end-to-end gradients that were returned.

A slot is one value read by one stage. An error δ in the gradient that a stage returns for a slot
adds Gᵀδ to the gradient of every name upstream, where G is the derivative of the value read with
respect to that name; no other stage needs to be asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.explain.probe import near, reproduces
from gradcheck.explain.stage_defects import misplaced_gradients, narrow_vjps, wrong_vjps
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.program import Program, Stage, Values

Float = NDArray[np.float64]

MIN_TENSOR_SCALE: Final = 1e-3
"""The least scale of a tensor, relative to the largest one's: a gradient that is 0 is all noise."""
MAX_DERIVATIVE_NUMBERS: Final = 4e7


class Reach:
    """The dependencies between the values of one program, from the graph alone."""

    def __init__(self, program: Program) -> None:
        """Walk the stages once."""
        self.program = program
        self._upstream: dict[str, frozenset[str]] = {}
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        for name in (*program.params, *program.inputs):
            self._upstream[name] = frozenset({name})
        for place, stage in enumerate(program.stages):
            behind = frozenset().union(*(self._upstream[name] for name in stage.reads))
            for name in stage.reads:
                self._first.setdefault(name, place)
                self._last[name] = place
            for name in stage.outputs:
                self._upstream[name] = behind | {name}

    def upstream(self, name: str) -> frozenset[str]:
        """The value itself, and every value that it depends on."""
        return self._upstream[name]

    def of(self, stage: Stage) -> frozenset[str]:
        """Every value whose gradient an error of the stage may touch."""
        return frozenset().union(*(self._upstream[name] for name in stage.reads))

    def without(self, stage: Stage, read: str) -> frozenset[str]:
        """Every value that would still get a gradient if the stage returned none for one read."""
        reached = {self.program.loss}
        for other in reversed(self.program.stages):
            if reached.intersection(other.outputs):
                reached.update(n for n in other.reads if other is not stage or n != read)
        return frozenset(reached)

    def place(self, name: str) -> int:
        """Where a value is read first: the larger, the nearer to the loss. A loss is nearest."""
        return self._first.get(name, len(self.program.stages))

    def tied(self, name: str) -> bool:
        """Whether several stages read it: its gradient is a sum."""
        return name in self._first and self._first[name] != self._last[name]


class Derivatives:
    """The derivative of every value with respect to some names, at one point, in float64.

    `of(value)` is [elements of the value, elements of all `names`, one name after the other];
    it is built forward, stage by stage, from the VJPs of the basis cotangents.
    """

    def __init__(self, program: Program, values: Values, names: Collection[str]) -> None:
        """Lay the columns out; nothing is computed yet."""
        self.program = program
        self.values = values
        self.kept: dict[Any, Any] = {}  # what linear algebra found of them
        self.columns: dict[str, slice] = {}
        start = 0
        for name in names:
            end = start + np.asarray(values[name]).size
            self.columns[name] = slice(start, end)
            start = end
        self.width = start

    @property
    def affordable(self) -> bool:
        """Whether all of them together fit into a moment and into memory."""
        rows = sum(np.asarray(v).size for v in self.values.values() if v.dtype.kind == "f")
        return rows * self.width <= MAX_DERIVATIVE_NUMBERS

    def of(self, value: str) -> Float:
        """The derivative of one value."""
        return self._all[value]

    @cached_property
    def _all(self) -> Mapping[str, Float]:
        given = {*self.program.params, *self.program.inputs}
        found = {name: self._own(name) for name in given}
        for stage in self.program.stages:
            total = [self._own(name) for name in stage.outputs]
            for read, parts in self._blocks(stage).items():
                for output, block in enumerate(parts):
                    if read not in given:
                        total[output] += block @ found[read]
                    elif read in self.columns:
                        total[output][:, self.columns[read]] += block
            found.update(zip(stage.outputs, total, strict=True))
        return found

    def _own(self, name: str) -> Float:
        """1 where the name itself is a column."""
        rows = np.zeros((np.asarray(self.values[name]).size, self.width))
        if name in self.columns:
            rows[:, self.columns[name]] = np.eye(len(rows))
        return rows

    def _blocks(self, stage: Stage) -> dict[str, list[Float]]:
        """By value read: the derivative of each output with respect to it."""
        sizes = [np.asarray(self.values[name]).size for name in stage.outputs]
        found: dict[str, list[Float]] = {}
        for output, size in enumerate(sizes):
            for element in range(size):
                for read, gradient in zip(
                    stage.reads, stage.vjp(F64, self._basis(stage, output, element), self.values),
                    strict=True,
                ):  # fmt: skip
                    if gradient is None:
                        continue
                    if read not in found:
                        width = np.asarray(self.values[read]).size
                        found[read] = [np.zeros((n, width)) for n in sizes]
                    found[read][output][element] += np.ravel(gradient)
        return found

    def _basis(self, stage: Stage, output: int, element: int) -> tuple[Any, ...]:
        cts = [np.zeros(np.shape(self.values[name])) for name in stage.outputs]
        cts[output].reshape(-1)[element] = 1.0
        return tuple(cts)


Gradients = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """A defect of one stage that gives all the end-to-end gradients that were returned."""

    stage: str
    says: str


def reproduce(
    program: Program,
    values: Values,
    cts: Mapping[str, Any],
    got: Mapping[str, Any],
    suspects: Collection[str],
    mutants: Callable[[str], Sequence[Mutant]],
    dtype: str = "float64",
) -> tuple[Reproduced, ...]:
    """The simplest defects of suspects that reproduce every gradient in `got`.

    `got` holds the returned gradients by name; those that are None are left out.
    """
    right = {name: cts[name] for name in got if name in cts}
    judged = {n: g for n, g in got.items() if n in right and np.shape(g) == np.shape(right[n])}
    seen = _Seen(program, values, judged, right, dtype)
    best: dict[int, list[Reproduced]] = {}
    for place, stage in enumerate(program.stages):
        if stage.name not in suspects or not seen.possible(place):
            continue
        whole = cotangents(stage, values, cts)
        true = stage.vjp(F64, whole, values)
        ways = wrong_vjps(stage, whole, values, mutants(stage.op.name))
        short = narrow_vjps(stage, whole, values, dtype)
        for hypothesis in itertools.chain(misplaced_gradients(stage, true), short, ways):
            if best and hypothesis.rank > min(best):
                break
            if _alike(hypothesis.gradients, true) and seen.follows(
                place, hypothesis.gradients, true
            ):
                best.setdefault(hypothesis.rank, []).append(
                    Reproduced(stage=stage.name, says=hypothesis.says)
                )
    return tuple(best[min(best)]) if best else ()


class _Seen:
    """The returned gradients, to be compared with those that follow from a stage's defect."""

    def __init__(
        self,
        program: Program,
        values: Values,
        got: Mapping[str, Any],
        right: Mapping[str, Any],
        dtype: str,
    ) -> None:
        self.program, self.values, self.dtype = program, values, dtype
        self.got, self.right = got, right
        sizes = (float(np.max(np.abs(g), initial=0.0)) for g in right.values())
        self.floor = MIN_TENSOR_SCALE * max(sizes, default=0.0)
        self.differs = frozenset(n for n in got if not self._near(got[n], right[n]))
        reach = Reach(program)
        self.due: dict[int, list[str]] = {}
        for name in got:
            self.due.setdefault(reach.place(name), []).append(name)

    def _near(self, a: Any, b: Any) -> bool:
        return near(a, b, self.dtype, self.floor)

    def possible(self, place: int) -> bool:
        """Whether nothing differs that is read behind a stage alone."""
        behind = (name for at, names in self.due.items() if at > place for name in names)
        return bool(self.differs) and not self.differs.intersection(behind)

    def follows(self, place: int, gradients: Gradients, right: Gradients) -> bool:
        """Whether all returned gradients follow if the stage at `place` returns `gradients`.

        What they differ by is carried on by the true VJPs; the first gradient that comes out
        otherwise ends it.
        """
        stages = self.program.stages
        error: dict[str, Any] = {}
        pairs = zip(gradients, right, strict=True)
        self._add(error, stages[place], [None if g is None else g - r for g, r in pairs])
        for at in range(place, -1, -1):
            stage = stages[at]
            if at < place and any(name in error for name in stage.outputs):
                cts = cotangents(stage, self.values, error)
                with np.errstate(all="ignore"):
                    carried = stage.vjp(F64, cts, self.values)
                self._add(error, stage, carried)
            if not all(self._as_seen(name, error) for name in self.due.get(at, ())):
                return False
        return True

    def _add(self, error: dict[str, Any], stage: Stage, found: Iterable[Any]) -> None:
        for name, gradient in zip(stage.reads, found, strict=True):
            if gradient is not None and np.any(gradient != 0):
                error[name] = error[name] + gradient if name in error else gradient

    def _as_seen(self, name: str, error: Mapping[str, Any]) -> bool:
        got, right = self.got[name], self.right[name]
        if name not in error:
            return name not in self.differs
        if name not in self.differs:
            return self._near(right + error[name], got)
        return reproduces(right + error[name], got, right, self.dtype, self.floor)


def contributions(
    program: Program, values: Values, cts: Mapping[str, Any], name: str, got: Any, dtype: str
) -> str:
    """The contributions that a tied gradient lacks, of those of its readers; "" if unclear."""
    shares = {}
    for stage in program.readers.get(name, ()):
        found = stage.vjp(F64, cotangents(stage, values, cts), values)
        own = [g for read, g in zip(stage.reads, found, strict=True) if read == name]
        shares[stage.name] = sum(g for g in own if g is not None)
    right = sum(shares.values())
    if len(shares) < 2 or got is None or np.shape(got) != np.shape(right):
        return ""
    for lost, share in shares.items():
        if reproduces(right - share, got, right, dtype):
            kept = ", ".join(f"`{other}`" for other in shares if other != lost)
            return (
                f"`{name}`: it is the contribution of {kept} alone; that of `{lost}` is "
                "overwritten instead of added, or its buffer is not bound."
            )
    for kept, share in shares.items():
        if reproduces(share, got, right, dtype):
            return f"`{name}`: it is the contribution of `{kept}` alone; the others are lost."
        if reproduces(right + share, got, right, dtype):
            return f"`{name}`: the contribution of `{kept}` is added twice."
    return ""


def cotangents(stage: Stage, values: Values, cts: Mapping[str, Any]) -> tuple[Any, ...]:
    """Those of a stage's outputs; 0 where the loss does not depend on one."""
    return tuple(
        cts[name] if name in cts else np.zeros_like(values[name]) for name in stage.outputs
    )


def _alike(gradients: Gradients, right: Gradients) -> bool:
    return all(
        true is None or (g is not None and np.shape(g) == np.shape(true))
        for g, true in zip(gradients, right, strict=True)
    )
