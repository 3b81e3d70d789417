"""Every mutant diagnosed at the sample that must catch it, and held against its own classes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from gradcheck import pool
from gradcheck.draw import key_of
from gradcheck.errors import SpecError
from gradcheck.explain.why import Why
from gradcheck.finding import Diagnosis, Finding
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.power.attack import REJECTED, Target, Wrong
from gradcheck.power.mutant import Mutant
from gradcheck.power.registry import mutants_of
from gradcheck.power.score import WHOLE, Part
from gradcheck.spec import OpSpec
from gradcheck.suite import Case, Suite, load_suite

Progress = Callable[[int, int, str], None]

THIRDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What one mutant was diagnosed with.

    `labels` are the classes written beside it, `found` the diagnoses of its failing gradients by
    name; the first is the one that explains most of them. `held_out`: no rule was written with it
    in sight.
    """

    op: str
    family: str
    name: str
    says: str
    labels: tuple[str, ...]
    held_out: bool
    found: tuple[tuple[str, Diagnosis], ...]

    @property
    def first(self) -> Diagnosis | None:
        """The diagnosis with a label that explains most gradients; None if none has one."""
        named = [diagnosis for _, diagnosis in self.found if diagnosis.label]
        says = [(d.label, d.rule) for d in named]
        return max(named, key=lambda d: says.count((d.label, d.rule)), default=None)

    @property
    def verdict(self) -> str:
        """`right`, `wrong`, or `none` where no pattern was found."""
        if self.first is None:
            return "none"
        return "right" if self.first.label in self.labels else "wrong"


def held_out(mutant: Mutant) -> bool:
    """Whether a mutant belongs to the third that no rule may be written for."""
    return int(key_of("held out", mutant.op, mutant.name)) % THIRDS == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """A mutant rejected at a case, as an implementation that can be asked further."""

    case: Case
    binding: Wrong
    dtype: str
    findings: tuple[Finding, ...]


def caught(mutant: Mutant, cases: Sequence[Case]) -> Caught:
    """Judge one mutant at its killer, in the first dialect that has it.

    Raises:
        SpecError: the sample that must catch it does not.
    """
    dtype = mutant.dtype or "float64"
    for case in cases:
        if case.sample.name != mutant.killer:
            continue
        if mutant.dialects and case.dialect.name not in mutant.dialects:
            continue
        truth = CaseTruth(case)
        xp, vjp = Target(truth, case, dtype).xp, mutant.fresh()

        def wrong(ct: Any, *primals: Any, xp: Any = xp, vjp: Any = vjp, **attrs: Any) -> Any:
            return vjp(xp, ct, *primals, **attrs)

        binding = Wrong(wrong, mutant.full_name)
        findings = judge_case(truth, binding, dtype)
        if any(f.verdict in REJECTED for f in findings):
            return Caught(case=case, binding=binding, dtype=dtype, findings=tuple(findings))
    raise SpecError(f"mutant {mutant.full_name}: {mutant.killer} does not catch it in {dtype}")


def named(
    mutant: Mutant, cases: Sequence[Case], operators: Mapping[str, OpSpec] = MappingProxyType({})
) -> Named:
    """Judge and diagnose one mutant at its killer, in the first dialect that has it.

    It may be named as another of the suite's `operators`, but not as a known defect: it is one.

    Raises:
        SpecError: the sample that must catch it does not.
    """
    found = caught(mutant, cases)
    explained = Why(operators).explained(found.case, found.binding, found.dtype, found.findings)
    return Named(
        op=mutant.op,
        family=found.case.spec.family,
        name=mutant.name,
        says=mutant.says,
        labels=mutant.labels,
        held_out=held_out(mutant),
        found=tuple(_diagnosed(explained)),
    )


def _diagnosed(findings: Sequence[Finding]) -> Generator[tuple[str, Diagnosis]]:
    for finding in findings:
        if finding.diagnosis is not None:
            yield finding.name, finding.diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What to diagnose: mutants of operators, a fixed part of them, without those held out or with.

    `suites` are `--suite` references (empty: the installed ones).
    """

    suites: tuple[str, ...] = ()
    ops: tuple[str, ...]
    seed: int = 0
    part: Part = WHOLE
    jobs: int = 1
    held_out: bool = True


_SUITE: Suite
_PLAN: Naming
_MUTANTS: dict[str, list[Mutant]]


def name_all(plan: Naming, progress: Progress | None = None) -> pool.Collected[list[Named]]:
    """Diagnose all mutants, operator by operator."""
    found = pool.each(_named_of, plan.ops, plan.jobs, _prepare, (plan,))
    return pool.collect(found, plan.ops, progress)


def _prepare(plan: Naming) -> None:
    global _SUITE, _MUTANTS, _PLAN  # noqa: PLW0603  what a worker process keeps
    _PLAN, _SUITE = plan, load_suite(plan.suites)
    _MUTANTS = mutants_of(_SUITE)


def _named_of(op: str) -> list[Named]:
    cases = _SUITE.cases([op], seed=_PLAN.seed)
    return [
        named(mutant, cases, _SUITE.operators)
        for mutant in _MUTANTS[op]
        if not mutant.equivalent
        and _PLAN.part.holds(mutant.op, mutant.name)
        and (_PLAN.held_out or not held_out(mutant))
    ]
