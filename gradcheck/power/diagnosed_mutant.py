"""One mutant, judged at the sample that must catch it, diagnosed, and its failure made small."""

from __future__ import annotations

import inspect
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import gradcheck
from gradcheck.errors import SpecError
from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.explain.shrink import shrink
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.narrow import WHAT
from gradcheck.power.attack import REJECTED, Target, Wrong
from gradcheck.power.narrow_operators import LABEL, narrow_mutant, narrow_of
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.spec.dtype_selection import DTYPES
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case

FEW: Final = 8
"""Elements of all primals together that a reader takes in at a glance."""
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


# ── its diagnosis ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """One mutant's first failure, made small.

    `output` names the gradient ("vjp": the call as a whole), `label` the class that was found and
    kept ("": none). `before` and `after` count the elements of all primals, `largest` those of the
    largest primal after.
    """

    output: str
    label: str
    before: int
    after: int
    largest: int

    @property
    def few(self) -> bool:
        """Whether it is small enough to be read."""
        return self.after <= FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedMutant(ABC):
    """The diagnosis of one mutant; `found` are those of its failing gradients by name."""

    op: str
    family: str
    name: str
    found: tuple[tuple[str, Diagnosis], ...]

    @property
    def first(self) -> Diagnosis | None:
        """The diagnosis with a label that explains most gradients; None if none has one."""
        labelled = [diagnosis for _, diagnosis in self.found if diagnosis.label]
        says = [(d.label, d.rule) for d in labelled]
        return max(labelled, key=lambda d: says.count((d.label, d.rule)), default=None)

    @property
    def verdict(self) -> str:
        """`right`, `wrong`, or `none` where no pattern was found."""
        if self.first is None:
            return "none"
        return "right" if self._matches(self.first) else "wrong"

    @abstractmethod
    def _matches(self, diagnosis: Diagnosis) -> bool:
        """Whether a diagnosis names the mutant's class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(DiagnosedMutant):
    """The diagnosis of a mutant written by hand.

    `labels` are the classes written beside it. `held_out`: no hypothesis was written with it in
    sight. `passed`: without a spec, `gradcheck.check` does not fail it at its sample. `small` is
    its first failure made small.
    """

    says: str
    labels: tuple[str, ...]
    held_out: bool
    passed: bool = False
    small: Small | None = None

    @property
    def exact(self) -> bool:
        """Whether the label is the class written first, and not another that is true as well."""
        return self.first is not None and self.first.label == self.labels[0]

    def _matches(self, diagnosis: Diagnosis) -> bool:
        return diagnosis.label in self.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedNarrow(DiagnosedMutant):
    """The diagnosis of a narrow mutant in one dtype: right where the type is named.

    `what` is rounded to `type`.
    """

    dtype: str
    what: str
    type: str

    @property
    def place(self) -> str:
        """What is rounded, without the name of an operand."""
        return self.what if self.what in WHAT else "one operand"

    def _matches(self, diagnosis: Diagnosis) -> bool:
        typed = re.search(rf"(?<!\w){re.escape(self.type)}(?!\w)", diagnosis.says)
        return typed is not None and diagnosis.label == LABEL


def named(
    mutant: Mutant,
    cases: Sequence[Case],
    operators: Mapping[str, OpSpec] = MappingProxyType({}),
    *,
    black_box: bool = False,
) -> Named:
    """Judge and diagnose one mutant at its killer.

    With a spec, its first failure is also made small, and it may be named as another of the
    suite's `operators`, but not as a known defect: it is one. `black_box` diagnoses it as
    `gradcheck.check` does, which knows forward and no spec.

    Raises:
        SpecError: the sample that must catch it does not.
    """
    found = caught(mutant, cases)
    if black_box:
        explained = _without_spec(found)
    else:
        diagnoser = LazyDiagnoser(operators)
        explained = diagnoser.explained(found.case, found.binding, found.dtype, found.findings)
    return Named(
        op=mutant.op,
        family=found.case.spec.family,
        name=mutant.name,
        says=mutant.says,
        labels=mutant.labels,
        held_out=held_out(mutant),
        found=tuple((f.name, f.diagnosis) for f in explained if f.diagnosis is not None),
        passed=black_box and not any(f.verdict in REJECTED for f in explained),
        small=None if black_box else small(caught(mutant, cases)),  # one with a memory anew
    )


def _without_spec(found: Caught) -> Sequence[Finding]:
    """What `gradcheck.check` says of a mutant: of its spec it sees forward alone."""
    case = found.case

    def forward(*primals: Any, **attrs: Any) -> Any:
        dtype = next((str(p.dtype) for p in primals if p.dtype.kind == "f"), found.dtype)
        return case.spec.forward(FLOATS.get(dtype, FLOATS["float64"]), *primals, **attrs)

    kind = inspect.Parameter
    parameters = [kind(name, kind.POSITIONAL_OR_KEYWORD) for name in case.primal_names]
    parameters.append(kind("attrs", kind.VAR_KEYWORD))
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    primals = [p.astype(found.dtype) if p.dtype.kind == "f" else p for p in case.primals]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = gradcheck.check(forward, found.binding.vjp, *primals, attrs=case.attrs)
    return result.findings


def small(found: Caught) -> Small:
    """Make the first failure of a mutant small."""
    output = next(f.name for f in found.findings if f.verdict in REJECTED)
    shrunk = shrink(found.case, found.binding, found.dtype, output)
    case = found.case if shrunk is None else shrunk.case
    diagnosis = None if shrunk is None else shrunk.finding.diagnosis
    sizes = [p.size for p in case.primals]
    return Small(
        output=output,
        label="" if diagnosis is None else diagnosis.label,
        before=sum(p.size for p in found.case.primals),
        after=sum(sizes),
        largest=max(sizes),
    )


def name_narrow(
    cases: Sequence[Case], operators: Mapping[str, OpSpec], holds: Callable[..., bool]
) -> Iterator[NamedNarrow]:
    """Diagnose the narrow mutants of one operator that belong to a part and are rejected.

    Raises:
        SpecError: the spec's VJP breaks off in an arithmetic that keeps numbers narrow.
    """
    here = {f"{case.dialect.name}/{case.sample.name}": case for case in cases}
    for tried in narrow_of(cases, DTYPES, holds) if cases else ():
        if not tried.killer:
            continue
        case = here[tried.killer]
        wrong = caught(narrow_mutant(tried.rounding, case, tried.dtype), [case])
        why = LazyDiagnoser(operators)
        explained = why.explained(wrong.case, wrong.binding, wrong.dtype, wrong.findings)
        yield NamedNarrow(
            op=case.spec.name,
            family=case.spec.family,
            name=tried.rounding.mutant,
            dtype=tried.dtype,
            what=tried.rounding.what,
            type=tried.rounding.type.title,
            found=tuple((f.name, f.diagnosis) for f in explained if f.diagnosis is not None),
        )
