"""The mutants of a suite, held against the operators that they are mutants of."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from gradcheck.errors import LoadError, SpecError
from gradcheck.spec.loading import resolve
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Suite


def mutants_of(suite: Suite) -> dict[str, list[Mutant]]:
    """The suite's mutants by operator, in suite order.

    Raises:
        LoadError: a table of mutants cannot be imported, or holds something else.
        SpecError: a mutant names an operator, a sample or a dialect that does not exist, takes
            other arguments than its operator's VJP, or shares its name with another.
    """
    found: dict[str, list[Mutant]] = {name: [] for name in suite.operators}
    for reference in suite.mutants:
        table = resolve(reference)
        if not isinstance(table, Sequence) or not all(isinstance(m, Mutant) for m in table):
            raise LoadError(f"{reference}: make it a tuple of gradcheck.Mutant")
        for mutant in table:
            if mutant.op not in found:
                raise SpecError(
                    f"mutant {mutant.full_name}: the suite has no operator {mutant.op!r}"
                )
            check(mutant, suite.operators[mutant.op])
            if any(m.name == mutant.name for m in found[mutant.op]):
                raise SpecError(f"two mutants are called {mutant.full_name}; rename one")
            found[mutant.op].append(mutant)
    return found


def check(mutant: Mutant, spec: OpSpec) -> None:
    """Hold one mutant against its operator.

    Raises:
        SpecError: it names a sample or a dialect that the operator lacks, its killer is not a
            sample of its dialects, or its VJP takes other arguments.
    """
    me = f"mutant {mutant.full_name}"
    samples = {s.name: s for s in spec.samples}
    dialects = [d.name for d in spec.dialects]
    for dialect in mutant.dialects:
        if dialect not in dialects:
            raise SpecError(f"{me}: {spec.name} has no dialect {dialect!r}; known: {dialects}")
    if mutant.killer:
        if mutant.killer not in samples:
            raise SpecError(
                f"{me}: its killer {mutant.killer!r} is no sample of {spec.name}; "
                f"known: {sorted(samples)}"
            )
        lives = set(mutant.dialects or dialects)
        if not lives & set(samples[mutant.killer].dialects or dialects):
            raise SpecError(
                f"{me}: its killer {mutant.killer!r} is a sample of other dialects than "
                f"{sorted(lives)}"
            )
    if mutant.vjp is None:
        return  # what `make` returns may take *primals
    wanted = list(inspect.signature(spec.vjp).parameters)
    given = list(inspect.signature(mutant.vjp).parameters)
    if wanted != given:
        raise SpecError(
            f"{me}: its vjp takes {given}, the operator's takes {wanted}; give it the same"
        )
