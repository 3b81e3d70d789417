"""The plan of a run: cases, implementations, dtypes and options; its shards; and its loading."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from gradcheck.errors import LoadError, ManifestError, Unsupported
from gradcheck.implementations.bound import Closing, Implementation, LaidOut, bind
from gradcheck.implementations.checked_call import bound_by
from gradcheck.implementations.load import load
from gradcheck.implementations.processes import TIMEOUT
from gradcheck.implementations.returned import Broken
from gradcheck.results import required
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.loading import installed_suites

if TYPE_CHECKING:  # a run of operators needs neither models nor update rules
    from gradcheck.spec.model import ModelCase
    from gradcheck.spec.rule import RuleCase
    from gradcheck.spec.suite import Case, Suite

Executor = Literal["local", "dask"]
T = TypeVar("T")
C = TypeVar("C", bound=AnyCase)
Key = tuple[Kind, str, str]
SHARD: Final = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run judges, and how.

    Attributes:
        suite: the suite of the cases.
        cases: cases of operators.
        models: cases of models.
        rules: cases of update rules.
        implementations: the words of `--impl`.
        dtypes: the dtypes of operators and rules.
        model_dtypes: the dtypes of models; "mp50" compares the suite's own gradients of a model
            with differences in 50 digits.
        seed: the seed of all inputs.
        suites: the references of `--suite`, repeated in repro lines.
        convention: the system whose choices on kinks are the only ones allowed; empty: any
            subgradient.
        jobs: the number of processes; more than one needs a suite that can be loaded by reference.
        taylor: whether the Taylor remainder of every gradient is computed.
        project: whether gradients of models are compared along directions, as of large models.
        train: whether models are trained at their smallest sizes, by every rule that can.
        build: whether manifests may run their commands.
        contract: whether the contract is checked, once per operator and dialect; None: of all but
            the reference.
        contract_at: the names of the cases at which it is checked.
        isolate: whether Python that is not the suite's runs in a child process.
        timeout: the seconds that a call in such a process may take.
        only: the names of the cases that are left of the selection; None: all.
        shard: "I/N", every N-th case of those, from the I-th on; empty: all.
        require: globs of names that must be answered; they change no verdict.
        config: whether a project's defaults were in effect; repro lines repeat them.
        executor: where the jobs run; it changes no report.
        scheduler: the address of a Dask cluster; empty: one is started.
        max_time: the seconds that the run may take in all; None: any number.
        budget: the seconds of judging after which no case is begun; None: any number. With a budget
            the most telling cases come first.
        all: whether cases are judged that no implementation binds, samples without features by
            other code than the suite's, and all sizes of code that is compiled for each.
        named: the globs by which kinds of cases were selected; of one that selects nothing bound,
            all cases stay.
        known: the globs of a baseline's entries, whose cases stay.
        by_name: whether samples were selected by name, so that those without features are judged.
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
    budget: float | None = None
    all: bool = True
    named: Sequence[tuple[Kind, str]] = ()
    known: Sequence[str] = ()
    by_name: bool = False

    @property
    def everything(self) -> list[AnyCase]:
        """The cases that are judged: operators, then models, then update rules."""
        wanted = [case for case in self.whole if self.only is None or case.name in self.only]
        return [*shard_of(wanted, self.shard)]

    @property
    def whole(self) -> list[AnyCase]:
        """The cases of all kinds, before --lf and shards."""
        return [*self.cases, *self.models, *self.rules]

    def dtypes_of(self, case: AnyCase) -> Sequence[str]:
        """The dtypes in which a case is judged."""
        return self.model_dtypes if case.kind is Kind.MODEL else self.dtypes

    def owes_contract(self, implementation: str) -> bool:
        """Whether the contract of an implementation is checked."""
        return implementation != "reference" if self.contract is None else self.contract

    def asks_without_features(self, implementation: str) -> bool:
        """Whether an implementation is judged at samples without features."""
        return self.all or self.by_name or implementation == "reference"


def names_of(cases: Iterable[AnyCase]) -> set[tuple[str, str]]:
    """The operators, models and rules, with their dialects, of some cases."""
    return {(case.spec.name, case.dialect.name) for case in cases}


# ── shards ───────────────────────────────────────────────────────────────────────────────────────


def parsed_shard(text: str) -> tuple[int, int]:
    """I and N of "I/N".

    >>> parsed_shard("2/3")
    (2, 3)

    Raises:
        ValueError: the text has another form, or I is not between 1 and N.
    """
    found = SHARD.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"{text!r} is not a shard; write I/N with 1 ≤ I ≤ N, such as 1/3")
    return int(found[1]), int(found[2])


def shard_of(items: Sequence[T], text: str) -> Sequence[T]:
    """The items of a shard "I/N": the I-th, and every N-th after it; all of them for "".

    >>> shard_of("abcde", "2/3")
    'be'
    """
    if not text:
        return items
    first, of = parsed_shard(text)
    return items[first - 1 :: of]


def joined_shards(shards: Sequence[Sequence[T]]) -> list[T]:
    """The items of all shards, in order, in the order of the whole.

    >>> "".join(joined_shards([shard_of("abcde", f"{i}/3") for i in (1, 2, 3)]))
    'abcde'
    """
    longest = max(map(len, shards), default=0)
    return [shard[place] for place in range(longest) for shard in shards if place < len(shard)]


# ── loading ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan with its implementations.

    Attributes:
        plan: what is judged; without `Plan.all`, nothing that no implementation binds.
        bindings: the implementations that loaded.
        troubles: messages on those that did not.
        left_out: the number of operators, models and rules that are left out since nobody binds
            them.
    """

    plan: Plan
    bindings: Sequence[Implementation]
    troubles: Sequence[str]
    left_out: int = 0


@contextmanager
def loaded(plan: Plan) -> Iterator[LoadedPlan]:
    """Load a plan's implementations; their processes end with the block.

    Raises:
        UnknownNameError, LoadError, ManifestError: as `run.execute` does.
    """
    bindings, troubles = load_all(plan)
    planned = plan
    if not plan.all:
        plan = bound_part(plan, bindings)
    if any(plan.owes_contract(binding.name) for binding in bindings):
        from gradcheck.judge.contract_check import contract_cases  # door: contracts

        plan = replace(plan, contract_at=contract_cases(plan.cases))
    try:
        _smoke(plan, bindings)
        left_out = len({c.spec.name for c in planned.whole} - {c.spec.name for c in plan.whole})
        yield LoadedPlan(plan, bindings, troubles, left_out)
    finally:
        _close(bindings)


def load_all(plan: Plan) -> tuple[list[Implementation], list[str]]:
    """The implementations that load, and messages on the others.

    Raises:
        LoadError: none of them loads.
    """
    bindings: list[Implementation] = []
    troubles: list[str] = []
    first: LoadError | None = None
    own = plan.isolate and any(word != "reference" for word in plan.implementations)
    suites = (plan.suites or installed_suites()) if own else ()
    isolation = None
    if own:
        from gradcheck.implementations.isolated import Isolation  # door: child processes

        isolation = Isolation(suites=suites, timeout=plan.timeout)
    for word in plan.implementations:
        try:
            bindings.append(load(word, plan.suite, build=plan.build, isolation=isolation))
        except LoadError as error:
            troubles.append(str(error))
            first = first or error
    if first is not None and not bindings:
        raise first
    return bindings, troubles


def bound_part(plan: Plan, bindings: Sequence[Implementation]) -> Plan:
    """The plan without the operators, models and rules that no implementation binds.

    The reference, which binds all of them, does not count. What is required or known to fail stays,
    bound or not, and so does all that was asked for by a glob that selects nothing bound: it is
    reported as UNBOUND.
    """
    others = [binding for binding in bindings if binding.name != "reference"]
    every: dict[Key, list[AnyCase]] = {}
    for case in plan.whole:
        every.setdefault(key_of(case), []).append(case)
    has = {key for key in every if any(_binds(plan, binding, every[key]) for binding in others)}
    stays = has | {key for key in every if required.matching(plan.require, [key[1:]])}
    for kind, glob in plan.named or [(kind, "*") for kind in Kind]:
        meant = {key for key in every if key[0] is kind and fnmatchcase(key[1], glob)}
        stays |= meant if meant.isdisjoint(has) else set()
    listed = _listed(plan)

    def kept(cases: Sequence[C]) -> list[C]:
        return [case for case in cases if key_of(case) in stays or case.name in listed]

    return replace(plan, cases=kept(plan.cases), models=kept(plan.models), rules=kept(plan.rules))


def key_of(case: AnyCase) -> Key:
    """The kind of a case, its operator, model or rule, and the dialect."""
    return case.kind, case.spec.name, case.dialect.name


def _binds(plan: Plan, binding: Implementation, cases: Sequence[AnyCase]) -> bool:
    """Whether an implementation has one of the cases, or says anything about it."""
    for case in cases:
        try:
            if bound_by(partial(bind, binding, case, plan.dtypes_of(case)[0])) is not None:
                return True
        except (Unsupported, Broken):
            return True
    return False


def _listed(plan: Plan) -> set[str]:
    """The names of cases that an entry of the baseline matches in some dtype."""
    if not plan.known:
        return set()
    from gradcheck.results.baseline.match import Names  # door: a baseline

    names = Names(f"{c.name}/{dtype}" for c in plan.whole for dtype in plan.dtypes_of(c))
    return {name.rpartition("/")[0] for glob in plan.known for name in names.matching(glob)}


def _smoke(plan: Plan, bindings: Sequence[Implementation]) -> None:
    """Lay out every planned call of a manifest before the first one is judged.

    Raises:
        ManifestError: the manifest is wrong for some cases, or exchanges two sizes; the message
            names all such places.
    """
    for binding in bindings:
        if isinstance(binding, LaidOut):
            problems = binding.smoke(plan.cases, plan.dtypes)
            problems = problems or binding.exchanged(plan.cases, plan.dtypes)
            if problems:
                raise ManifestError("; also ".join(problems))


def _close(bindings: Sequence[Implementation]) -> None:
    for binding in bindings:
        if isinstance(binding, Closing):
            binding.close()
