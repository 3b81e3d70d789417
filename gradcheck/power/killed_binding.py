"""A mutant, judged at the sample that must catch it: code that can be asked further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.errors import SpecError
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.draw import key_of
from gradcheck.power.attack import REJECTED, Target, Wrong
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.suite import Case

THIRDS: Final = 3


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


def leading(found: Sequence[tuple[str, Diagnosis]]) -> Diagnosis | None:
    """Of diagnoses by gradient, the one with a label that explains most; None if none has one."""
    named = [diagnosis for _, diagnosis in found if diagnosis.label]
    says = [(d.label, d.rule) for d in named]
    return max(named, key=lambda d: says.count((d.label, d.rule)), default=None)
