"""A plan with its implementations: loaded once, asked whether they fit, ended with the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.bound import Closing, Implementation, LaidOut
from gradcheck.implementations.load import load
from gradcheck.run.plan import Plan
from gradcheck.spec.loading import installed_suites


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan whose implementations are loaded; `troubles` names those that could not be."""

    plan: Plan
    bindings: Sequence[Implementation]
    troubles: Sequence[str]


@contextmanager
def loaded(plan: Plan) -> Iterator[LoadedPlan]:
    """The plan with its implementations, whose processes end with the block.

    Raises:
        UnknownNameError, LoadError, ManifestError: as `run.execute` does.
    """
    bindings, troubles = load_all(plan)
    if any(plan.owes_contract(binding.name) for binding in bindings):
        from gradcheck.judge.contract_check import (
            contract_cases,  # deferred: the reference owes none
        )

        plan = replace(plan, contract_at=contract_cases(plan.cases))
    try:
        _smoke(plan, bindings)
        yield LoadedPlan(plan, bindings, troubles)
    finally:
        _close(bindings)


def load_all(plan: Plan) -> tuple[list[Implementation], list[str]]:
    """The implementations that could be loaded, and why the others could not.

    Raises:
        LoadError: none could.
    """
    bindings: list[Implementation] = []
    troubles: list[str] = []
    first: LoadError | None = None
    own = plan.isolate and any(word != "reference" for word in plan.implementations)
    suites = (plan.suites or installed_suites()) if own else ()
    isolation = None
    if own:
        from gradcheck.implementations.isolated import Isolation

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


def _smoke(plan: Plan, bindings: Sequence[Implementation]) -> None:
    """Lay out every call that is planned, where a manifest says how, before one is judged.

    Raises:
        ManifestError: the manifest yields nonsense for a case, or exchanges two sizes; all such
            places are named.
    """
    for binding in bindings:
        if isinstance(binding, LaidOut):
            problems = binding.smoke(plan.cases, plan.dtypes)
            problems = problems or binding.exchanged(plan.cases, plan.dtypes)
            if problems:
                raise ManifestError("; also ".join(problems))


def _close(bindings: Sequence[Implementation]) -> None:
    """End the processes that implementations run in."""
    for binding in bindings:
        if isinstance(binding, Closing):
            binding.close()
