"""Mutants: VJPs that are wrong in one known way, and tables of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.errors import LoadError, SpecError
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.draw import Draw
from gradcheck.spec.defect import Defect, defect_named
from gradcheck.spec.loading import resolve
from gradcheck.spec.operator import Array, OpSpec
from gradcheck.spec.spec_checks import NAME
from gradcheck.spec.suite import Suite

WORDS: Final = tuple(defect.word for defect in Defect)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One wrong VJP of one operator.

    `vjp` has the parameters of the spec's VJP. For a defect with a memory between calls, `make()`
    returns a fresh VJP instead. `says` is the defect in one sentence, `label` its class, by word
    or by code ("scale", "F"; see `Defect`), `also` further classes that describe it, `killer` the
    sample that must reject it, `modelled_on` the real bug. `dialects` are those where the defect
    exists (empty: all), `dtype` the one where it shows (empty: all).

    An equivalent mutant is right after all: `equivalent` is the proof in one sentence, and
    `inputs(draw)` generates (primals, attributes) outside the suite's samples, on which mutant and
    spec must agree to 50 digits.

    Raises:
        SpecError: the parts contradict each other.
    """

    op: str
    name: str
    says: str
    label: str
    killer: str
    also: tuple[str, ...] = ()
    vjp: Callable[..., Any] | None = None
    make: Callable[[], Callable[..., Any]] | None = None
    modelled_on: str = ""
    dialects: tuple[str, ...] = ()
    dtype: str = ""
    equivalent: str = ""
    inputs: Callable[[Draw], tuple[tuple[Array, ...], Attrs]] | None = None

    def __post_init__(self) -> None:
        me = f"mutant {self.op}/{self.name}"
        if not NAME.fullmatch(self.name):
            raise SpecError(f"{me}: use lower-case letters, digits, '_', '-' and '.' in its name")
        found = [defect_named(label) for label in self.labels]
        for label, defect in zip(self.labels, found, strict=True):
            if defect is None:
                raise SpecError(f"{me}: no class {label!r}; known: {', '.join(WORDS)}")
        object.__setattr__(self, "label", found[0])
        object.__setattr__(self, "also", tuple(found[1:]))
        if len(set(self.labels)) != len(self.labels):
            raise SpecError(f"{me}: a class stands twice in {self.labels}; name each once")
        if not self.says.strip():
            raise SpecError(f"{me}: say in `says`, in one sentence, what is wrong with it")
        if (self.vjp is None) == (self.make is None):
            raise SpecError(f"{me}: give it a `vjp`, or a `make` that returns a fresh one")
        if not callable(self.vjp or self.make):
            raise SpecError(f"{me}: its `vjp` or `make` cannot be called; give it a function")
        if self.dtype and self.dtype not in FLOATS:
            raise SpecError(f"{me}: no dtype {self.dtype!r}; known: {', '.join(FLOATS)}")
        if self.equivalent and not self.equivalent.strip():
            raise SpecError(f"{me}: write its proof into `equivalent`, in one sentence")
        if bool(self.equivalent) != (self.inputs is not None):
            raise SpecError(
                f"{me}: an equivalent mutant needs both its proof in `equivalent` and a "
                "generator of `inputs`; a mutant that differs needs neither"
            )
        if bool(self.equivalent) == bool(self.killer):
            raise SpecError(
                f"{me}: name the sample that must catch it in `killer`, or prove in "
                "`equivalent` that none can"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """All classes that name the defect, its own first."""
        return (self.label, *self.also)

    @property
    def full_name(self) -> str:
        """`op/name`."""
        return f"{self.op}/{self.name}"

    def fresh(self) -> Callable[..., Any]:
        """A VJP without memory of earlier calls."""
        vjp = self.make() if self.make is not None else self.vjp
        assert vjp is not None
        return vjp


Vjp = Callable[..., Any]
More = Mapping[str, Any]
Row = str | tuple[str, Vjp] | tuple[str, Vjp, More] | tuple[str, More]


def mutant_table(
    op: str,
    rows: Mapping[tuple[str, str, str], Row],
    *,
    faulty: Callable[[str], Vjp] | None = None,
) -> tuple[Mutant, ...]:
    """The mutants of one operator, one row each: ``(name, classes, killer): (says, vjp, more)``.

    Args:
        op: The operator's name.
        rows: A key holds the mutant's name, its classes separated by blanks (its own first), and
            the sample that must catch it. A value holds the sentence, the VJP, and a dict of
            further fields of `Mutant`; the dict may be left out, or stand for the VJP where it
            holds `make`.
        faulty: Gives the VJP of rows that have neither: `faulty(name)`.

    Example:
        >>> def negated(xp, ct, x):
        ...     return -2 * x * ct
        >>> rows = {("negated", "sign", "typical"): ("It has the other sign.", negated)}
        >>> (mutant,) = mutant_table("sqr", rows)
        >>> full_name, labels, says
        ('sqr/negated', (<Defect.SIGN: 'S'>,), 'It has the other sign.')
    """

    def mutant(name: str, classes: str, killer: str, row: Row) -> Mutant:
        says, *rest = (row,) if isinstance(row, str) else row
        fields: dict[str, Any] = {}
        for part in rest:
            fields.update(part if isinstance(part, Mapping) else {"vjp": part})
        if faulty is not None and not fields.keys() & {"vjp", "make"}:
            fields["vjp"] = faulty(name)
        label, *also = classes.split()
        return Mutant(
            op=op, name=name, says=says, label=label, also=tuple(also), killer=killer, **fields
        )

    return tuple(mutant(*key, row) for key, row in rows.items())


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
