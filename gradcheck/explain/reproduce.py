"""Which defect of which suspect gives all the end-to-end gradients that were returned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck.explain.closeness import near, reproduces
from gradcheck.explain.dataflow import Reach
from gradcheck.explain.evidence import FLOOR
from gradcheck.explain.hypothesis import hypotheses, narrow, simple
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.program import Program, Stage, Values

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
    """Which defects of which suspects reproduce every gradient in `got`, the simplest ones.

    `got` holds what was returned, by name; names with None are left out of the comparison.
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
        ways = hypotheses(stage, whole, values, mutants(stage.op.name))
        short = narrow(stage, whole, values, dtype)
        for hypothesis in itertools.chain(simple(stage, true), short, ways):
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
    """The gradients that were returned, to be compared with what a hypothesis makes of them."""

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
        self.floor = FLOOR * max(sizes, default=0.0)
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
        """Whether all that was returned follows if the stage at `place` returns `gradients`.

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
    """What a tied gradient lacks: which of its readers' contributions are in it; "" if unclear."""
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
