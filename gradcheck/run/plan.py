"""What is to be judged: cases of a suite, whose code, in which dtypes, and how."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from gradcheck.implementations.processes import TIMEOUT
from gradcheck.results.case_result import Kind
from gradcheck.run import shards
from gradcheck.spec.suite import Case

if TYPE_CHECKING:  # a run of operators needs neither models nor update rules
    from gradcheck.spec.model import ModelCase, Size
    from gradcheck.spec.operator import Sample
    from gradcheck.spec.rule import RuleCase, Steps
    from gradcheck.spec.suite import Suite

AnyCase: TypeAlias = "Case | ModelCase | RuleCase"
Executor = Literal["local", "dask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to judge: cases of a suite, implementations by their `--impl` words, dtypes.

    `cases` are operators', `models` models'; `model_dtypes` may hold "mp50", under which the
    suite's own fold of a model is held against 50-digit differences.

    `suites` are the `--suite` references, repeated in repro lines. `convention` names the system
    whose choices on kinks are the only ones allowed (empty: any subgradient). More than one of
    `jobs` needs a suite that another process can load: an installed one, or one of `suites`.
    `taylor` asks for the Taylor remainder of every gradient; `project` holds the gradients of
    models against slopes of their loss, as large ones always are; `train` trains each at its
    smallest size, by every rule of the suite that says how. `build` lets manifests run their
    commands. `contract` asks what a backward owes beyond its numbers (None: of all but the
    reference), once per operator and dialect, at the cases named by `contract_at`. `isolate` runs
    Python that is not the suite's own in a process of its own, in which each call may take
    `timeout` seconds; it needs what several jobs need. `only` names the cases that are left of
    the selection (None: all), and `shard`, "I/N", every N-th of those, from the I-th on.
    `require` are globs of what has to be answered, which makes no difference to what is judged.
    `config` says that a project's defaults were in effect: repro lines are complete without them.
    `executor` says on what the jobs run, and `scheduler` at which address the cluster is that does
    (empty: on one that is started for this); neither makes a difference to a report. `max_time`
    is how many seconds a run of it may take in all (None: any).
    """

    suite: Suite
    cases: Sequence[Case]
    implementations: Sequence[str]
    dtypes: Sequence[str]
    seed: int
    suites: Sequence[str] = ()
    convention: str = ""
    jobs: int = 1
    models: Sequence[ModelCase] = ()
    model_dtypes: Sequence[str] = ()
    taylor: bool = False
    project: bool = False
    rules: Sequence[RuleCase] = ()
    train: bool = False
    build: bool = True
    contract: bool | None = None
    contract_at: frozenset[str] = frozenset()
    isolate: bool = False
    timeout: float = TIMEOUT
    only: Container[str] | None = None
    shard: str = ""
    config: bool = False
    require: Sequence[str] = ()
    executor: Executor = "local"
    scheduler: str = ""
    max_time: float | None = None

    @property
    def everything(self) -> list[AnyCase]:
        """What is judged: operators first, then models, then update rules."""
        every: list[AnyCase] = [*self.cases, *self.models, *self.rules]
        wanted = [case for case in every if self.only is None or case.name in self.only]
        return [*shards.part(wanted, self.shard)]

    def owes_contract(self, implementation: str) -> bool:
        """Whether an implementation is asked what it owes beyond its numbers."""
        return implementation != "reference" if self.contract is None else self.contract


def names_of(cases: Iterable[AnyCase]) -> set[tuple[str, str]]:
    """Of which operators, models and rules, and of which dialects, cases are."""
    return {(case.spec.name, case.dialect.name) for case in cases}


def point_of(case: AnyCase) -> Sample | Size | Steps:
    """Where a case is judged: an operator's sample, a model's size, a rule's steps."""
    if isinstance(case, Case):
        return case.sample
    from gradcheck.spec.model import ModelCase

    return case.size if isinstance(case, ModelCase) else case.sample


def kind_of(case: AnyCase) -> Kind:
    """What a case is a case of."""
    if isinstance(case, Case):
        return Kind.OPERATOR
    from gradcheck.spec.model import ModelCase

    return Kind.MODEL if isinstance(case, ModelCase) else Kind.RULE
