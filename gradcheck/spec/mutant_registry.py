"""The mutants of a suite by operator, compared with their operators' specs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence

from gradcheck.errors import LoadError, SpecError
from gradcheck.spec.loading import resolve
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Suite


class KnownMutants(Mapping[str, list[Mutant]]):
    """The mutants of a suite by operator; a table is imported with its first operator.

    Raises:
        LoadError, SpecError: on access, as `mutants_of`.
    """

    def __init__(self, suite: Suite) -> None:
        """Import nothing yet."""
        self._suite = suite
        self._found: dict[str, list[Mutant]] = {}

    def __getitem__(self, op: str) -> list[Mutant]:
        """The mutants of one operator.

        Raises:
            KeyError: the suite has no such operator.
        """
        if op not in self._found:
            spec = self._suite.operators[op]
            found: list[Mutant] = []
            for homes in self._suite.mutants:
                for mutant in self._table(homes, op):
                    if mutant.op == op:
                        check(mutant, spec)
                        if any(m.name == mutant.name for m in found):
                            raise SpecError(
                                f"two mutants are called {mutant.full_name}; rename one"
                            )
                        found.append(mutant)
            self._found[op] = found
        return self._found[op]

    def _table(self, homes: str | Mapping[str, str], op: str) -> Sequence[Mutant]:
        """The table with the mutants of `op`; empty if there is none."""
        home = homes if isinstance(homes, str) else homes.get(op)
        if home is None:
            return ()
        table = resolve(home)
        if not isinstance(table, Sequence) or not all(isinstance(m, Mutant) for m in table):
            raise LoadError(f"{home}: make it a tuple of gradcheck.Mutant")
        for mutant in table:
            me = f"mutant {mutant.full_name}"
            if mutant.op not in self._suite.operators:
                raise SpecError(f"{me}: the suite has no operator {mutant.op!r}")
            if not isinstance(homes, str) and homes.get(mutant.op) != home:
                raise SpecError(
                    f"{me}: it stands in {home}, and the suite looks for mutants of "
                    f"{mutant.op} in {homes.get(mutant.op)}"
                )
        return table

    def __iter__(self) -> Iterator[str]:
        """The operators in suite order."""
        return iter(self._suite.operators)

    def __len__(self) -> int:
        """Number of operators."""
        return len(self._suite.operators)


def mutants_of(suite: Suite) -> dict[str, list[Mutant]]:
    """The suite's mutants by operator, in suite order.

    Raises:
        LoadError: a table of mutants cannot be imported, or holds something else.
        SpecError: a mutant names an operator, a sample or a dialect that does not exist, takes
            other arguments than its operator's VJP, or shares its name with another.
    """
    return dict(KnownMutants(suite))


def check(mutant: Mutant, spec: OpSpec) -> None:
    """Compare one mutant with its operator.

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
