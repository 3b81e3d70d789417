"""Mutation runs of operators, the kill matrix: impostors, mutants and narrow mutants by sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradcheck.errors import CODE_ERRORS, told
from gradcheck.judge.impostors import IMPOSTORS
from gradcheck.judge.operator import CaseTruth
from gradcheck.power.attack import FORMS, Target, difference
from gradcheck.power.narrow_operators import LABEL, Narrowed
from gradcheck.power.run_mutants import MutationReport, Part, Work
from gradcheck.spec.mutant import Mutant, mutants_of
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One wrong answer of one operator, and which samples reject it.

    `kind` is "mutant", "narrow" (a mutant made from the spec, in one dtype) or "impostor"; `what`
    is the mutant's name, "NAME in DTYPE", or "impostor of PRIMAL".
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
        """Whether the sample that was named catches it, where it could be tried at all."""
        killed, tried = (
            {case.partition("/")[2] for case in cases} for cases in (self.killed, self.tried)
        )
        return not self.killer or self.killer in killed or self.killer not in tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All trials of one operator.

    `sizes` is the number of elements of each case's primals, in the order of the cases;
    `alarms` names the cases and dtypes in which the right VJP does not pass; `judged` counts how
    often it was judged. `useless` names cases that reject nothing, `troubles` says what could not
    be attacked, or with what, and why.
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
    def certificates(self) -> dict[str, tuple[int, int]]:
        """By case: how many wrong answers it rejects, of how many.

        Narrow mutants do not count: they are tried until one case rejects them.
        """
        everywhere = [trial for trial in self.trials if trial.kind != "narrow"]
        killed = Counter(case for trial in everywhere for case in trial.killed)
        tried = Counter(case for trial in everywhere for case in trial.tried)
        return {case: (killed[case], tried[case]) for case in self.sizes}

    @property
    def sound(self) -> bool:
        """Whether every wrong answer is rejected, where it was said to be, and no right one."""
        return not (
            self.alarms
            or self.useless
            or self.troubles
            or any(t.survives or t.doubt or not t.killed_as_said for t in self.trials)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(MutationReport[Score]):
    """The scores of operators."""

    def trials(self, kind: str) -> list[Trial]:
        """All trials of one kind."""
        return [trial for found in self.scores for trial in found.of(kind)]

    @property
    def survivors(self) -> list[tuple[Score, Trial]]:
        """Wrong answers that nothing rejects."""
        return [(s, t) for s in self.scores for t in s.trials if t.survives]

    @property
    def refuted(self) -> list[tuple[Score, Trial]]:
        """Mutants declared equivalent that are rejected."""
        return [(s, t) for s in self.scores for t in s.trials if t.doubt and t.killed]

    @property
    def misnamed(self) -> list[tuple[Score, Trial]]:
        """Mutants that another sample than the named one rejects."""
        return [(s, t) for s in self.scores for t in s.trials if t.killed and not t.killed_as_said]

    @property
    def sound(self) -> bool:
        """Whether all wrong answers, one at least, are rejected, and all right ones pass."""
        tried = any(found.trials for found in self.scores)
        return self.complete and tried and all(found.sound for found in self.scores)

    @property
    def checked(self) -> bool:
        """Whether any wrong answer was tried, or a right one failed."""
        return any(score.trials or score.alarms for score in self.scores)

    @property
    def invalid(self) -> bool:
        """Whether something could not be tried, or a sample rejects nothing."""
        return any(score.troubles or score.useless for score in self.scores)


load = mutants_of
REPORT = Power


def scores(work: Work, op: str) -> Sequence[Score]:
    """Judge the wrong answers of one operator."""
    plan, spec = work.plan, work.suite.operators[op]
    cases = work.suite.cases([op], seed=plan.seed)
    return [score(spec, cases, work.mutants[op], plan.dtypes, plan.part)]


def score(
    spec: OpSpec,
    cases: Sequence[Case],
    mutants: Sequence[Mutant],
    dtypes: Sequence[str],
    part: Part,
) -> Score:
    """Attack one operator with every impostor and every mutant, in every case and dtype."""
    ledger = _Ledger()
    sizes, useless, alarms, judged = {}, [], [], 0
    narrowed = Narrowed(spec)
    chosen = [m for m in mutants if part.holds(m.op, m.name) and m.dtype in ("", *dtypes)]
    for case in cases:
        name = f"{case.dialect.name}/{case.sample.name}"
        try:
            sizes[name] = sum(p.size for p in case.primals)
            truth = CaseTruth(case)
            accepted = []
            for dtype in dtypes:
                target = Target(truth, _other_seed(case), dtype)
                judged += 1
                if target.accepts_the_right_one():
                    accepted.append(dtype)
                    _attack(ledger, name, target, chosen, part)
                    narrowed.attack(name, target, part.holds)
                else:
                    alarms.append(f"{case.name}/{dtype}")
            if _useless(truth, accepted):
                useless.append(case.name)
        except CODE_ERRORS as error:
            ledger.troubles.setdefault(case.name, f"{case.name}: {told(error)}")
    return Score(
        op=spec.name,
        family=spec.family,
        sizes=sizes,
        trials=(*ledger.impostors(), *ledger.mutants(spec, chosen), *_narrow(narrowed)),
        judged=judged,
        alarms=tuple(alarms),
        useless=tuple(useless),
        troubles=tuple(ledger.troubles.values()),
    )


def _narrow(narrowed: Narrowed) -> Iterable[Trial]:
    """The trials of narrow mutants; each is tried until one case rejects it."""
    for tried in narrowed.results():
        yield Trial(
            kind="narrow",
            what=tried.name,
            says=tried.rounding.says,
            label=LABEL,
            tried=tuple(tried.tried),
            killed=(tried.killer,) if tried.killer else (),
            equivalent=tried.equivalent,
            doubt=tried.unclear,
        )


def _useless(truth: CaseTruth, dtypes: Sequence[str]) -> bool:
    """Whether the case rejects no wrong number in any dtype, whatever part is attacked."""
    found = [
        truth.certificate(index, dtype)
        for dtype in dtypes
        for index in truth.floating
        if truth.primals[index].size
    ]
    return bool(found) and not any(certificate.proves for certificate in found)


class _Ledger:
    """The cases that tried and that rejected each wrong answer, and all troubles."""

    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}
        self._tried: dict[tuple[str, str], dict[str, bool]] = {}

    def note(self, kind: str, what: str, case: str, rejected: bool) -> None:
        row = self._tried.setdefault((kind, what), {})
        row[case] = row.get(case, False) or rejected

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
        try:
            ledger.note("mutant", mutant.name, name, target.mutant(mutant))
        except CODE_ERRORS as error:  # once per mutant; the others are tried
            me = mutant.full_name
            ledger.troubles.setdefault(f"mutant {me}", f"{truth.case.name}, {me}: {told(error)}")


def _other_seed(case: Case) -> Case:
    return Case(case.spec, case.dialect, case.sample, case.seed + 1, case.suite)
