"""The kill matrix: every wrong answer against every sample of its operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gradcheck.draw import key_of
from gradcheck.judge.impostors import IMPOSTORS
from gradcheck.judge.operator import CaseTruth
from gradcheck.power.attack import FORMS, Target
from gradcheck.power.equivalence import difference
from gradcheck.power.mutant import Mutant
from gradcheck.spec import OpSpec
from gradcheck.suite import Case

FAULTS: Final = (Exception, SystemExit)
"""What a suite may raise; the scoring goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One wrong answer of one operator, and which samples reject it.

    `kind` is "mutant" or "impostor"; `what` is the mutant's name, or "impostor of PRIMAL".
    `tried` and `killed` are names of cases ("dialect/sample") in which it is wrong, and in which
    it is rejected. `killer` is the sample that was to catch a mutant. `equivalent` is the proof
    of a mutant that no sample can catch, `doubt` what speaks against it.
    """

    kind: str
    what: str
    says: str
    label: str
    tried: tuple[str, ...]
    killed: tuple[str, ...]
    killer: str = ""
    modelled_on: str = ""
    equivalent: str = ""
    doubt: str = ""

    @property
    def proved_equivalent(self) -> bool:
        """Whether it is the right answer after all, by proof and by a thousand trials."""
        return bool(self.equivalent) and not self.doubt and not self.killed

    @property
    def survives(self) -> bool:
        """Whether nothing rejects it, though it is wrong."""
        return not self.killed and not self.proved_equivalent

    @property
    def killed_as_said(self) -> bool:
        """Whether the sample that was named does catch it."""
        samples = {case.partition("/")[2] for case in self.killed}
        return not self.killer or self.killer in samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All trials of one operator.

    `sizes` is the number of elements of each case's primals, in the order of the cases;
    `alarms` names the cases and dtypes in which the right VJP does not pass; `judged` counts how
    often it was judged. `useless` names cases that reject nothing.
    """

    op: str
    family: str
    sizes: dict[str, int]
    trials: tuple[Trial, ...]
    judged: int
    alarms: tuple[str, ...] = ()
    useless: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()

    def of(self, kind: str) -> list[Trial]:
        """The trials of one kind."""
        return [trial for trial in self.trials if trial.kind == kind]

    def cheapest(self, trial: Trial) -> str:
        """The smallest case that rejects a trial; "" if none does."""
        return min(trial.killed, key=lambda case: (self.sizes[case], case), default="")

    @property
    def sound(self) -> bool:
        """Whether every wrong answer is rejected, where it was said to be, and no right one."""
        return not (
            self.alarms
            or self.useless
            or self.troubles
            or any(trial.survives or not trial.killed_as_said for trial in self.trials)
        )


@dataclass(frozen=True, slots=True)
class Part:
    """The `number`-th of `of` parts of all wrong answers, chosen by their names."""

    number: int = 1
    of: int = 1

    def holds(self, *names: str) -> bool:
        """Whether a wrong answer belongs to it; the same on every machine, for ever."""
        return int(key_of("power", *names)) % self.of == self.number - 1


WHOLE: Final = Part()


def score(
    spec: OpSpec,
    cases: Sequence[Case],
    mutants: Sequence[Mutant],
    dtypes: Sequence[str],
    part: Part,
) -> Score:
    """Attack one operator with every impostor and every mutant, in every case and dtype."""
    ledger = _Ledger()
    sizes, useless, alarms, troubles = {}, [], [], []
    chosen = [m for m in mutants if part.holds(m.op, m.name)]
    for case in cases:
        name = f"{case.dialect.name}/{case.sample.name}"
        try:
            sizes[name] = sum(p.size for p in case.primals)
            truth = CaseTruth(case)
            killed_before = ledger.kills
            numbers = any(truth.primals[i].size for i in truth.floating)
            for dtype in dtypes:
                target = Target(truth, _other_seed(case), dtype)
                if not target.accepts_the_right_one():
                    alarms.append(f"{case.name}/{dtype}")
                    continue
                _attack(ledger, name, target, chosen, part)
            if numbers and ledger.tried_in(name) and ledger.kills == killed_before:
                useless.append(case.name)
        except FAULTS as error:
            troubles.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())}")
    return Score(
        op=spec.name,
        family=spec.family,
        sizes=sizes,
        trials=(*ledger.impostors(), *ledger.mutants(spec, chosen)),
        judged=len(cases) * len(dtypes),
        alarms=tuple(alarms),
        useless=tuple(useless),
        troubles=tuple(troubles),
    )


class _Ledger:
    """Which case tried and which killed what, in order of appearance."""

    def __init__(self) -> None:
        self.kills = 0
        self._tried: dict[tuple[str, str], dict[str, bool]] = {}

    def note(self, kind: str, what: str, case: str, rejected: bool) -> None:
        row = self._tried.setdefault((kind, what), {})
        row[case] = row.get(case, False) or rejected
        self.kills += rejected

    def tried_in(self, case: str) -> bool:
        return any(case in row for row in self._tried.values())

    def row(self, kind: str, what: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        row = self._tried.get((kind, what), {})
        return tuple(row), tuple(case for case, rejected in row.items() if rejected)

    def impostors(self) -> Iterable[Trial]:
        says = {impostor.name: impostor.says for impostor in (*IMPOSTORS, *FORMS)}
        for kind, what in self._tried:
            if kind == "impostor":
                tried, killed = self.row(kind, what)
                name, _, primal = what.partition(" of ")
                yield Trial(
                    kind=kind,
                    what=what,
                    says=f"In place of d{primal}: {says[name]}.",
                    label="",
                    tried=tried,
                    killed=killed,
                )

    def mutants(self, spec: OpSpec, mutants: Sequence[Mutant]) -> Iterable[Trial]:
        for mutant in mutants:
            tried, killed = self.row("mutant", mutant.name)
            doubt = ""
            if mutant.equivalent:
                doubt = "a sample rejects it" if killed else difference(mutant, spec)
            yield Trial(
                kind="mutant",
                what=mutant.name,
                says=mutant.says,
                label=mutant.label,
                tried=tried,
                killed=killed,
                killer=mutant.killer,
                modelled_on=mutant.modelled_on,
                equivalent=mutant.equivalent,
                doubt=doubt,
            )


def _attack(
    ledger: _Ledger, name: str, target: Target, mutants: Sequence[Mutant], part: Part
) -> None:
    truth = target.truth
    for index in truth.floating:
        # Without elements there are no numbers to be wrong, but still a shape and a dtype.
        numbers = IMPOSTORS if truth.primals[index].size else ()
        for impostor in (*numbers, *FORMS):
            what = f"{impostor.name} of {truth.names[index]}"
            if not part.holds(truth.case.spec.name, what):
                continue
            rejected = target.impostor(impostor, index)
            if rejected is not None:
                ledger.note("impostor", what, name, rejected)
    for mutant in mutants:
        if mutant.dialects and truth.case.dialect.name not in mutant.dialects:
            continue
        if mutant.dtype and mutant.dtype != target.dtype:
            continue
        ledger.note("mutant", mutant.name, name, target.mutant(mutant))


def _other_seed(case: Case) -> Case:
    return Case(case.spec, case.dialect, case.sample, case.seed + 1, case.suite)
