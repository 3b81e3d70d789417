"""Mutation runs of update rules: is every wrong update rejected?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradcheck.errors import SpecError
from gradcheck.implementations.bound import BoundRule
from gradcheck.implementations.reference import Reference
from gradcheck.judge.rule import judge_rule
from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.power.run_mutants import MutationReport, Work, from_tables
from gradcheck.results.verdict import Verdict
from gradcheck.spec.rule import RuleCase, State, Tensors
from gradcheck.spec.spec_checks import NAME
from gradcheck.spec.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMutant:
    """One wrong update of one rule: `update` takes what the rule's takes.

    `says` is the defect in one sentence, `killer` the sample that must reject it in some dialect
    of `dialects` (empty: all), `modelled_on` the real bug.

    Raises:
        SpecError: the parts contradict each other.
    """

    rule: str
    name: str
    says: str
    killer: str
    update: Callable[..., Any]
    dialects: tuple[str, ...] = ()
    modelled_on: str = ""

    def __post_init__(self) -> None:
        me = f"mutant {self.full_name}"
        if not NAME.fullmatch(self.name):
            raise SpecError(f"{me}: use lower-case letters, digits, '_', '-' and '.' in its name")
        if not self.says.strip():
            raise SpecError(f"{me}: say in `says`, in one sentence, what is wrong with it")

    @property
    def full_name(self) -> str:
        """`rule/name`."""
        return f"{self.rule}/{self.name}"


@dataclass(frozen=True, slots=True)
class Mutated:
    """A mutant as an implementation."""

    mutant: RuleMutant

    @property
    def name(self) -> str:
        """The mutant's."""
        return self.mutant.full_name

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule:
        """Its update in the arithmetic of `dtype`, with the rule's own init."""
        xp, mutant = FLOATS[dtype], self.mutant

        def update(params: Tensors, grads: Tensors, state: State, t: int, **attrs: Any) -> Any:
            return mutant.update(xp, params, grads, state, t, **attrs)

        def init(params: Tensors) -> Any:
            return case.spec.init(xp, params)

        return BoundRule(update=update, init=init, attrs=case.attrs)


@dataclass(frozen=True, slots=True)
class Kills:
    """The cases (`dialect/sample`) in which a mutant was tried, and those that reject it."""

    mutant: RuleMutant
    tried: tuple[str, ...]
    killed: tuple[str, ...]

    @property
    def as_said(self) -> bool:
        """Whether the sample that was named rejects it."""
        return self.mutant.killer in {case.partition("/")[2] for case in self.killed}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScore:
    """The mutants of one update rule; `alarms` are cases in which the right rule fails.

    `judged` counts the cases and dtypes of the right rule.
    """

    kills: tuple[Kills, ...] = ()
    alarms: tuple[str, ...] = ()
    judged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePower(MutationReport[RuleScore]):
    """The scores of update rules."""

    @property
    def kills(self) -> list[Kills]:
        """All mutants."""
        return [kills for score in self.scores for kills in score.kills]

    @property
    def alarms(self) -> list[str]:
        """All cases in which a right rule fails."""
        return [case for score in self.scores for case in score.alarms]

    @property
    def judged(self) -> int:
        """How often a right rule was judged."""
        return sum(score.judged for score in self.scores)

    @property
    def survivors(self) -> list[Kills]:
        """Mutants that the named sample does not reject."""
        return [found for found in self.kills if not found.as_said]

    @property
    def checked(self) -> bool:
        """Whether any mutant was judged."""
        return bool(self.kills)

    @property
    def sound(self) -> bool:
        """Whether all mutants, one at least, are rejected as said, and every right rule passes."""
        return bool(self.kills) and not (self.survivors or self.alarms)


def scores(work: Work, rule: str) -> Sequence[RuleScore]:
    """Judge the mutants of one rule, and the rule itself, in every case."""
    truths = [RuleTruth(case) for case in work.suite.rule_cases([rule], seed=work.plan.seed)]
    found = RuleScore(
        kills=tuple(kills(work.mutants[rule], truths)),
        alarms=tuple(alarm for truth in truths for alarm in _alarms(truth)),
        judged=len(truths) * len(FLOATS),
    )
    return [found]


def rule_mutants_of(suite: Suite) -> dict[str, list[RuleMutant]]:
    """The suite's wrong updates by rule, in suite order.

    Raises:
        LoadError: a table cannot be imported, or holds something else.
        SpecError: a mutant names a rule, a sample or a dialect that does not exist, takes other
            arguments than its rule's update, or shares its name with another.
    """
    found: dict[str, list[RuleMutant]] = {name: [] for name in suite.rules}
    for mutant in from_tables(suite.rule_mutants, RuleMutant):
        _check(mutant, suite)
        if any(m.name == mutant.name for m in found[mutant.rule]):
            raise SpecError(f"two mutants are called {mutant.full_name}; rename one")
        found[mutant.rule].append(mutant)
    return found


load = rule_mutants_of
REPORT = RulePower


def _alarms(truth: RuleTruth) -> Iterator[str]:
    """Where the rule's own update does not pass."""
    for dtype in FLOATS:
        right = judge_rule(truth, Reference(), dtype)
        if any(f.verdict is not Verdict.PASS for f in right):
            yield f"{truth.case.name}/{dtype}"


def kills(mutants: Sequence[RuleMutant], truths: Iterable[RuleTruth]) -> list[Kills]:
    """Put every mutant to the judgement in every case of its rule, in float64 and float32."""
    tried: dict[str, list[str]] = {m.full_name: [] for m in mutants}
    killed: dict[str, list[str]] = {m.full_name: [] for m in mutants}
    for truth in truths:
        case = truth.case
        name = f"{case.dialect.name}/{case.sample.name}"
        for mutant in mutants:
            if mutant.rule != case.spec.name:
                continue
            if mutant.dialects and case.dialect.name not in mutant.dialects:
                continue
            tried[mutant.full_name].append(name)
            if any(_rejected(truth, mutant, dtype) for dtype in FLOATS):
                killed[mutant.full_name].append(name)
    return [Kills(m, tuple(tried[m.full_name]), tuple(killed[m.full_name])) for m in mutants]


def _rejected(truth: RuleTruth, mutant: RuleMutant, dtype: str) -> bool:
    """By its numbers, or because something is not there; a mutant that raises proves nothing."""
    findings = judge_rule(truth, Mutated(mutant), dtype)
    return any(
        f.verdict is Verdict.MISSING or (f.verdict is Verdict.FAIL and f.compared > 0)
        for f in findings
    )


def _check(mutant: RuleMutant, suite: Suite) -> None:
    me = f"mutant {mutant.full_name}"
    if mutant.rule not in suite.rules:
        raise SpecError(f"{me}: the suite has no rule {mutant.rule!r}")
    spec = suite.rules[mutant.rule]
    for what, names, known in (
        ("sample", (mutant.killer,), [s.name for s in spec.samples]),
        ("dialect", mutant.dialects, [d.name for d in spec.dialects]),
    ):
        for name in names:
            if name not in known:
                raise SpecError(f"{me}: {spec.name} has no {what} {name!r}; known: {known}")
    wanted = list(inspect.signature(spec.update).parameters)
    given = list(inspect.signature(mutant.update).parameters)
    if wanted != given:
        raise SpecError(f"{me}: its update takes {given}, the rule's takes {wanted}")
