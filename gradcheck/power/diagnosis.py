"""`power --diagnosis`: every mutant diagnosed at the sample that must catch it, and scored.

In: mutants, with the classes of defects that are written beside them. Out: a `Diagnosed`, which
counts right, wrong and missing diagnoses, and how small the failures can be made.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import gradcheck
from gradcheck.explain.case_diagnosis import LazyDiagnoser
from gradcheck.explain.shrink import shrink
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.power.attack import REJECTED
from gradcheck.power.killed_binding import Caught, caught, held_out, leading
from gradcheck.power.narrow_named import NamedNarrow, name_narrow
from gradcheck.power.score import WHOLE, Part
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.run.workers.collect import Collected, Workers, collect
from gradcheck.spec.loading import load_suite
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.mutant_registry import mutants_of
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case, Suite

Progress = Callable[[int, int, str], None]

FEW: Final = 8
"""Elements of all primals together that a reader takes in at a glance."""
READABLE: Final = 0.8
"""Share of failures that `FEW` elements must show."""
TYPED: Final = 0.9
"""Share of narrow mutants whose type the diagnosis must name."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What a score must reach: the least share named rightly, the largest named wrongly."""

    right: float
    wrong: float


WITH_SPEC: Final = Bar(right=0.85, wrong=0.03)
WITHOUT_SPEC: Final = Bar(right=0.6, wrong=0.12)


# ── one mutant ───────────────────────────────────────────────────────────────────────────────


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
class Named:
    """The diagnosis of one mutant.

    `labels` are the classes written beside it, `found` the diagnoses of its failing gradients by
    name. `held_out`: no hypothesis was written with it in sight. `passed`: without a spec,
    `gradcheck.check` does not fail it at its sample. `small` is its first failure made small.
    """

    op: str
    family: str
    name: str
    says: str
    labels: tuple[str, ...]
    held_out: bool
    found: tuple[tuple[str, Diagnosis], ...]
    passed: bool = False
    small: Small | None = None

    @property
    def first(self) -> Diagnosis | None:
        """The diagnosis with a label that explains most gradients; None if none has one."""
        return leading(self.found)

    @property
    def exact(self) -> bool:
        """Whether the label is the class written first, and not another that is true as well."""
        return self.first is not None and self.first.label == self.labels[0]

    @property
    def verdict(self) -> str:
        """`right`, `wrong`, or `none` where no pattern was found."""
        if self.first is None:
            return "none"
        return "right" if self.first.label in self.labels else "wrong"


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


# ── all of them ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Which mutants to diagnose, and how.

    `narrow` asks for the mutants made from the specs, beside those written by hand. `suites` are
    `--suite` references (empty: the installed ones). `black_box` leaves out the specs, and with
    them the narrow mutants.
    """

    suites: tuple[str, ...] = ()
    ops: tuple[str, ...]
    seed: int = 0
    part: Part = WHOLE
    jobs: int = 1
    held_out: bool = True
    narrow: bool = True
    black_box: bool = False


_SUITE: Suite
_PLAN: Naming
_MUTANTS: dict[str, list[Mutant]]


def name_all(
    plan: Naming, progress: Progress | None = None, workers: Workers | None = None
) -> Collected[list[Named | NamedNarrow]]:
    """Diagnose all mutants, operator by operator: those written by hand, then the narrow ones."""
    return collect(
        _named_of, plan.ops, plan.jobs, _prepare, (plan,), progress=progress, workers=workers
    )


def _prepare(plan: Naming) -> None:
    global _SUITE, _MUTANTS, _PLAN  # noqa: PLW0603  what a worker process keeps
    _PLAN, _SUITE = plan, load_suite(plan.suites)
    _MUTANTS = mutants_of(_SUITE)


def _named_of(op: str) -> list[Named | NamedNarrow]:
    cases = _SUITE.cases([op], seed=_PLAN.seed)
    written = [
        named(mutant, cases, _SUITE.operators, black_box=_PLAN.black_box)
        for mutant in _MUTANTS[op]
        if not mutant.equivalent
        and _PLAN.part.holds(mutant.op, mutant.name)
        and (_PLAN.held_out or not held_out(mutant))
    ]
    if _PLAN.black_box or not _PLAN.narrow:
        return [*written]
    return [*written, *name_narrow(cases, _SUITE.operators, _PLAN.part.holds)]


def diagnose_mutants(
    plan: Naming, progress: Progress | None = None, workers: Workers | None = None
) -> Diagnosed:
    """Diagnose the mutants of a plan; an interrupted run returns what it has.

    Raises:
        LoadError: the suite, or its table of mutants, cannot be imported.
        SpecError: a mutant contradicts its operator, or its sample does not catch it.
    """
    suite = load_suite(plan.suites)
    mutants_of(suite)  # raises here, before any process starts
    found = name_all(plan, progress, workers)
    every = [one for of_op in found.results for one in of_op]
    written = [one for one in every if isinstance(one, Named)]
    return Diagnosed(
        version=gradcheck.__version__,
        suite=suite.name,
        suite_version=suite.version,
        seed=plan.seed,
        part=plan.part,
        black_box=plan.black_box,
        named=tuple(one for one in written if not one.passed),
        passed=sum(one.passed for one in written),
        narrow=tuple(one for one in every if isinstance(one, NamedNarrow)),
        complete=found.complete,
        troubles=found.troubles,
    )


# ── the score ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Tally:
    """How many diagnoses are right and wrong, and how many mutants have none.

    `exact` counts the right ones whose label is the class that is written first.
    """

    right: int
    wrong: int
    unnamed: int
    exact: int = 0

    @classmethod
    def of(cls, named: Iterable[Named | NamedNarrow]) -> Tally:
        """Count the verdicts of some mutants."""
        every = [*named]
        count = Counter(one.verdict for one in every)
        exact = sum(isinstance(one, Named) and one.exact for one in every)
        return cls(count["right"], count["wrong"], count["none"], exact)

    @property
    def all(self) -> int:
        """How many mutants there are."""
        return self.right + self.wrong + self.unnamed

    def reaches(self, bar: Bar) -> bool:
        """Whether enough are right and few enough wrong; an empty tally reaches nothing."""
        enough = self.right >= bar.right * self.all and self.wrong <= bar.wrong * self.all
        return self.all > 0 and enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """The diagnoses of all mutants.

    `named` are the mutants written by hand, `narrow` those made from the specs, which are counted
    apart. `black_box`: diagnosed without specs; `passed` mutants, which `gradcheck.check` does not
    fail at their samples, are then left out. `complete` is false where the run was interrupted or
    lost a process; `troubles` say so.
    """

    version: str
    suite: str
    suite_version: str
    seed: int
    part: Part = WHOLE
    black_box: bool = False
    named: tuple[Named, ...]
    passed: int = 0
    narrow: tuple[NamedNarrow, ...] = ()
    complete: bool = True
    troubles: tuple[str, ...] = ()

    @property
    def bar(self) -> Bar:
        """What the score of `named` must reach."""
        return WITHOUT_SPEC if self.black_box else WITH_SPEC

    @property
    def development(self) -> list[Named]:
        """The two thirds that hypotheses were written with."""
        return [one for one in self.named if not one.held_out]

    @property
    def held_out(self) -> list[Named]:
        """The third that no hypothesis was written with."""
        return [one for one in self.named if one.held_out]

    @property
    def small(self) -> list[Small]:
        """The failures that were made small."""
        return [one.small for one in self.named if one.small is not None]

    @property
    def few(self) -> int:
        """How many of them are shown by few elements."""
        return sum(one.few for one in self.small)

    @property
    def sound(self) -> bool:
        """Whether it is complete, enough mutants are named rightly, and enough are made small."""
        readable = self.few >= READABLE * len(self.small)
        good = readable and Tally.of(self.named).reaches(self.bar) and self.typed
        return self.complete and not self.troubles and good

    @property
    def typed(self) -> bool:
        """Whether the type of enough narrow mutants is named, if there are any."""
        return Tally.of(self.narrow).right >= TYPED * len(self.narrow)

    def by(self, key: Callable[[Named], str]) -> Iterator[tuple[str, list[Named]]]:
        """Group the mutants by a property, in the order of its names."""
        groups: dict[str, list[Named]] = {}
        for one in self.named:
            groups.setdefault(key(one), []).append(one)
        yield from sorted(groups.items())


def confusion(named: Sequence[Named]) -> Counter[tuple[str, str]]:
    """How often a class (its first) was given a label; "" for no label."""
    return Counter((one.labels[0], one.first.label if one.first else "") for one in named)
