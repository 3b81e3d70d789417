"""Mutation runs of contracts: which property rejects a right formula that behaves wrongly?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.errors import SpecError
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.python import bound_operator
from gradcheck.judge.contract.asking import quiet
from gradcheck.judge.contract.subject import Subject
from gradcheck.judge.contract_check import PROPERTIES, contract_cases, examine
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.power.run_mutants import MutationReport, Work, from_tables
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.spec_checks import NAME
from gradcheck.spec.suite import Case, Suite

NUMBERS: Final = "numbers"
"""The ordinary judgement of the gradients at one typical sample, with what it checks of calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractMutant:
    """One implementation of an operator's dialect, made anew by `make()` for every question.

    `says` is the defect in one sentence, `source` its class. The one that is `right` has none: it
    must pass everything.

    Raises:
        SpecError: the parts contradict each other.
    """

    op: str
    dialect: str
    name: str
    says: str
    make: Callable[[], Any]
    source: str = ""
    right: bool = False

    def __post_init__(self) -> None:
        me = f"contract mutant {self.op}/{self.name}"
        if not NAME.fullmatch(self.name):
            raise SpecError(f"{me}: use lower-case letters, digits, '_', '-' and '.' in its name")
        if not self.says.strip():
            raise SpecError(f"{me}: say in `says`, in one sentence, what is wrong with it")


@dataclass(frozen=True, slots=True)
class Mutated:
    """One fresh instance of a mutant as an implementation."""

    name: str
    entry: Any

    @classmethod
    def of(cls, mutant: ContractMutant) -> Mutated:
        """An instance that has never been called."""
        return cls(f"{mutant.op}/{mutant.name}", mutant.make())

    def bind(self, case: Case, dtype: str) -> Bound:
        """As an entry of a table for the dialect is bound."""
        fixed = {**case.spec.defaults, **case.dialect.attrs}
        return bound_operator(self.entry, case.attrs, fixed, case.primal_names)


@dataclass(frozen=True, slots=True)
class Killed:
    """A mutant and what rejects it at a case: "numbers", and names of properties."""

    mutant: ContractMutant
    by: tuple[str, ...]
    case: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractPower(MutationReport[Killed]):
    """A row of the kill matrix per mutant; the right ones must be rejected by nothing.

    `judges` are the columns: the numbers, then the properties.
    """

    judges: tuple[str, ...] = (NUMBERS, *(asked.name for asked in PROPERTIES))

    @property
    def case(self) -> str:
        """Where the mutants were judged."""
        return ", ".join(dict.fromkeys(found.case for found in self.scores))

    @property
    def killed(self) -> list[Killed]:
        """The rows of wrong mutants."""
        return [found for found in self.scores if not found.mutant.right]

    @property
    def alarms(self) -> list[str]:
        """Right ones that are rejected."""
        return [
            f"{found.case}: the right one is rejected by {name}"
            for found in self.scores
            if found.mutant.right
            for name in found.by
        ]

    @property
    def checked(self) -> bool:
        """Whether any mutant was judged."""
        return bool(self.killed)

    @property
    def survivors(self) -> list[ContractMutant]:
        """Mutants that nothing rejects."""
        return [found.mutant for found in self.killed if not found.by]

    def sole(self, judge: str) -> list[str]:
        """Mutants that `judge` alone rejects."""
        return [found.mutant.name for found in self.killed if found.by == (judge,)]

    @property
    def idle(self) -> list[str]:
        """Properties that are the only killer of nothing: they prove nothing of their own."""
        return [judge for judge in self.judges if judge != NUMBERS and not self.sole(judge)]

    @property
    def sound(self) -> bool:
        """Whether every mutant dies, every property is needed, and the right ones pass."""
        return bool(self.killed) and not (self.survivors or self.idle or self.alarms)


def scores(work: Work, op: str) -> Sequence[Killed]:
    """Judge the mutants of one operator at a typical sample."""
    found = []
    for mutant in work.mutants:
        if mutant.op == op:
            case = _case(work.suite, mutant, work.plan.seed)
            found.append(Killed(mutant, killers(mutant, case), case.name))
    return found


def contract_mutants_of(suite: Suite) -> list[ContractMutant]:
    """The suite's contract mutants, in order.

    Raises:
        LoadError: a table cannot be imported, or holds something else.
        SpecError: two share a name, or one names what the suite has not.
    """
    found: list[ContractMutant] = []
    for mutant in from_tables(suite.contract_mutants, ContractMutant):
        me = f"contract mutant {mutant.op}/{mutant.name}"
        if mutant.op not in suite.operators:
            raise SpecError(f"{me}: the suite has no operator {mutant.op!r}")
        if any((m.op, m.name) == (mutant.op, mutant.name) for m in found):
            raise SpecError(f"two contract mutants are called {mutant.op}/{mutant.name}")
        suite.operators[mutant.op].dialect(mutant.dialect)
        found.append(mutant)
    return found


load = contract_mutants_of
REPORT = ContractPower


def killers(mutant: ContractMutant, case: Case) -> tuple[str, ...]:
    """What rejects a mutant, in float64 or in float32; each judge has an instance of its own."""
    by: dict[str, bool] = {}
    truth = CaseTruth(case)
    for dtype in FLOATS:
        with quiet():
            found = judge_case(truth, Mutated.of(mutant), dtype)
        by[NUMBERS] = by.get(NUMBERS, False) or any(map(_rejects, found))
        for asked in PROPERTIES:
            finding = examine(asked, Subject(truth, Mutated.of(mutant), dtype))
            rejects = finding is not None and _rejects(finding)
            by[asked.name] = by.get(asked.name, False) or rejects
    return tuple(name for name, rejected in by.items() if rejected)


def _case(suite: Suite, mutant: ContractMutant, seed: int) -> Case:
    cases = suite.cases([mutant.op], [mutant.dialect], seed=seed)
    names = contract_cases(cases)
    return next(case for case in cases if case.name in names)


def _rejects(finding: Finding) -> bool:
    if finding.verdict is Verdict.INVALID:  # ours is at fault: this proves nothing
        raise SpecError(f"{finding.name}: {finding.reason}")
    return not finding.verdict.expected
