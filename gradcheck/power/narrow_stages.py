"""Narrow mutants of models: one stage rounds its operands, cotangents or gradients.

Each must fail where stages are bound, and in the gradients of the whole model; where one passes,
the reason is given with a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.judge.compare import TOLERANCES
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.stage import judge_stage
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.narrow import Narrow, narrower
from gradcheck.results.verdict import Verdict
from gradcheck.spec.fault import PLACES, Fault, Wrong, narrowed
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Program, Stage, Values

KIND: Final = "narrow"
LEAST: Final = 1
"""Bits of the coarsest type that is tried where a fault does not show."""


def fixed_part(program: Program, dtype: str) -> Iterator[tuple[Stage, str, Narrow]]:
    """One fault per stage, in turn of every kind and type: what `gradcheck power` has time for."""
    kinds = [(place, narrow) for narrow in narrower(dtype) for place in PLACES]
    for i, stage in enumerate(program.stages):
        yield stage, *kinds[i % len(kinds)]


def fault_of(case: ModelCase, stage: Stage, place: str, narrow: Narrow) -> Fault:
    """A stage that rounds what stands at one of `PLACES`."""
    verb = "are" if place == "operands" else "is"
    return Fault(
        model=case.spec.name,
        name=f"{stage.name}.{narrow.name}-{place}",
        kind=KIND,
        stages=(stage.name,),
        says=f"Its {place} {verb} rounded to {narrow.title}.",
        wrong=narrowed(place, narrow),
        dialects=(case.dialect.name,),
    )


def _right(xp: Any, stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
    return stage.vjp(xp, cts, values)


def _same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(a is b or (a is not None and np.array_equal(a, b)) for a, b in pairs)


@dataclass(frozen=True)
class StageTrials:
    """One model in one dtype, of which one stage after the other computes in narrower types."""

    whole: ModelTruth
    dtype: str

    @cached_property
    def truth(self) -> ModelTruth:
        """The truth at the dtype's own point."""
        return self.whole.at(self.dtype)

    @cached_property
    def values(self) -> Values:
        """Every value in the dtype."""
        with np.errstate(all="ignore"):
            return self.truth.program.forward(FLOATS[self.dtype], self.truth.typed(self.dtype))

    @cached_property
    def _right(self) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """By stage, the cotangents that reach it and the gradients that it gives for them."""
        found: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
        xp = FLOATS[self.dtype]

        def vjp(stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
            found[stage.name] = cts, stage.vjp(xp, cts, values)
            return found[stage.name][1]

        with np.errstate(all="ignore"):
            self.truth.program.backward(xp, self.values, xp.asarray(1.0), vjp)
        return found

    def of_stage(self, stage: Stage, wrong: Wrong) -> Verdict:
        """The verdict on the stage alone."""
        xp = FLOATS[self.dtype]

        def vjp(stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
            return wrong(xp, stage, cts, values)

        return judge_stage(self.truth.at(self.dtype).stage(stage), vjp, self.dtype).verdict

    def of_model(self, stage: Stage, wrong: Wrong) -> Verdict:
        """The worst verdict on the gradients of the whole model, one stage of which is wrong."""
        cts = self._folded(stage, wrong)
        verdicts = {Verdict.PASS}
        for name in self.truth.floating:
            if name in cts:
                got = np.ravel(cts[name]).astype(np.float64)[None]
                known = self.truth.gradient(name)
                found = known.compared(got, np.ones(1), TOLERANCES[self.dtype])
                verdicts.add(found.finding(name, known.shape, ("one",), details=False).verdict)
        return next(v for v in (Verdict.FAIL, *verdicts - {Verdict.PASS}, Verdict.PASS)
                    if v in verdicts)  # fmt: skip

    def _folded(self, stage: Stage, wrong: Wrong) -> Values:
        """The cotangents of the model one stage of which is wrong."""
        xp, program = FLOATS[self.dtype], self.truth.program

        def vjp(here: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
            if here.name == stage.name:
                return wrong(xp, here, cts, values)
            known, found = self._right[here.name]
            return found if _same(cts, known) else here.vjp(xp, cts, values)

        with np.errstate(all="ignore"):
            return program.backward(xp, self.values, xp.asarray(1.0), vjp)

    def told(
        self, judge: Callable[[Stage, Wrong], Verdict], stage: Stage, place: str, narrow: Narrow
    ) -> tuple[Verdict, str]:
        """A verdict, and where it is no FAIL, why."""
        verdict = judge(stage, narrowed(place, narrow))
        return verdict, "" if verdict is Verdict.FAIL else self.why(judge, stage, place, narrow)

    def why(
        self, judge: Callable[[Stage, Wrong], Verdict], stage: Stage, place: str, narrow: Narrow
    ) -> str:
        """Why a fault is not rejected; empty where that is not known."""
        if judge(stage, narrowed(place, narrow)) is not Verdict.PASS:
            return ""
        unseen = self._unseen(stage, place, narrow, whole=judge == self.of_model)
        if unseen:
            return unseen
        for bits in range(narrow.bits - 1, LEAST - 1, -1):
            coarser = Narrow("short", "", bits)
            if judge(stage, narrowed(place, coarser)) is Verdict.FAIL:
                shows = f"rounding to {bits} significant bits shows"
                return f"within the tolerance of {self.dtype}: {shows}"
        return ""

    def _unseen(self, stage: Stage, place: str, narrow: Narrow, *, whole: bool) -> str:
        """Why the rounding changes no gradient; empty where it changes one."""
        xp = FLOATS[self.dtype]
        values, cts = self.values, [self._right[n][0] for n in [stage.name] if n in self._right]
        if not whole:
            known = self.truth.stage(stage)
            values, cts = known.values(self.dtype), known.typed(self.dtype)
        with np.errstate(all="ignore"):
            right = [stage.vjp(xp, ct, values) for ct in cts]
            wrong = [narrowed(place, narrow)(xp, stage, ct, values) for ct in cts]
        if not all(_same(*pair) for pair in zip(right, wrong, strict=True)):
            alike = whole and self._reaches_nothing(stage, narrowed(place, narrow))
            return "what it changes reaches no parameter's gradient" if alike else ""
        given: list[Sequence[Any]] = [[values[name] for name in stage.reads]]
        if place != "operands":
            given = [*(cts if place == "cotangent" else right)]
        floating = [[a for a in arrays if a is not None] for arrays in given]
        if all(_same(arrays, [narrow.held(a) for a in arrays]) for arrays in floating):
            return f"{narrow.title} holds every number of its {place}"
        return f"its gradients do not depend on the last bits of its {place}"

    def _reaches_nothing(self, stage: Stage, wrong: Wrong) -> bool:
        """Whether the gradients of all parameters are the right ones, to the last bit."""
        names = self.truth.floating
        folds = (self._folded(stage, way) for way in (wrong, _right))
        ours, theirs = ([fold.get(name) for name in names] for fold in folds)
        return _same(ours, theirs)
