"""The registry: operators, models and update rules with unique names, and cases selected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from gradcheck.errors import SpecError, UnknownNameError
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.lazy_specs import Families
from gradcheck.spec.operator import Array, Dialect, OpSpec, Sample
from gradcheck.spec.spec_checks import check_held

if TYPE_CHECKING:
    from gradcheck.spec.model import ModelCase, ModelSpec
    from gradcheck.spec.rule import RuleCase, RuleSpec

Spec = TypeVar("Spec", OpSpec, "ModelSpec", "RuleSpec")


@dataclass(frozen=True)
class Case(AnyCase):
    """One point to judge at: operator, dialect and sample, with its primals and attributes.

    `primals` are float64, with full mantissas, or int64; they are read-only.
    """

    kind: ClassVar[Kind] = Kind.OPERATOR
    spec: OpSpec
    dialect: Dialect
    sample: Sample
    seed: int
    suite: str

    @property
    def point(self) -> Sample:
        """The sample."""
        return self.sample

    @cached_property
    def primal_names(self) -> tuple[str, ...]:
        """Names of the primals that the dialect has."""
        return tuple(n for n in self.spec.primals if n not in self.dialect.without)

    @cached_property
    def core_ranks(self) -> tuple[int, ...]:
        """Core axes of each primal that the dialect has."""
        pairs = zip(self.spec.primals, self.spec.core_ranks, strict=True)
        return tuple(rank for name, rank in pairs if name not in self.dialect.without)

    @cached_property
    def primals(self) -> tuple[Array, ...]:
        """The primals.

        Raises:
            SpecError: their number is wrong, or float32 does not hold their values.
        """
        drawn = self.sample.primals(self.draw("primals"))
        if len(drawn) != len(self.spec.primals):
            raise SpecError(
                f"{self.name}: the sample draws {len(drawn)} primal{'s' * (len(drawn) != 1)}, "
                f"forward takes {list(self.spec.primals)}"
            )
        kept = []
        for name, value, rank in zip(self.spec.primals, drawn, self.spec.core_ranks, strict=True):
            if name in self.dialect.without:
                continue
            array = np.array(value)  # a copy: no caller shares its memory
            if array.ndim < rank:
                raise SpecError(
                    f"{self.name}: the sample draws {name!r} with shape {array.shape}, the "
                    f"signature {self.spec.signature!r} wants a rank of at least {rank}"
                )
            if array.dtype.kind in "iu":
                array = array.astype(np.int64)
            else:
                check_held(self.name, name, array, nan=True)
                array = array.astype(np.float64)
            array.flags.writeable = False
            kept.append(array)
        return tuple(kept)

    def _meaning(self) -> Iterator[bytes]:
        for array in self.primals:
            yield f"{array.dtype}{array.shape}".encode()
            yield np.ascontiguousarray(array).tobytes()
        yield repr(sorted(self.attrs.items())).encode()
        yield repr(self.spec.slack).encode()


class Suite:
    """Operators, models and update rules in the order in which they are shown; names are unique.

    `peers` names tables of counterparts in other libraries: the word that `--impl` takes
    ("torch") to "module:NAME". `mutants` is the "module:NAME" of a sequence of
    `Mutant`s, for all operators or for each by its name; `rule_mutants` that of a sequence of
    `RuleMutant`s, `faults` that of a sequence of `Fault`s of the models, `contract_mutants` that of
    a sequence of `ContractMutant`s.

    Raises:
        SpecError: two of them share a name.
    """

    def __init__(
        self,
        name: str,
        version: str,
        operators: Sequence[OpSpec] | Families[OpSpec],
        peers: Mapping[str, str] = MappingProxyType({}),
        mutants: str | Mapping[str, str] = "",
        models: Sequence[ModelSpec] | Families[ModelSpec] = (),
        rules: Sequence[RuleSpec] | Families[RuleSpec] = (),
        rule_mutants: str = "",
        faults: str = "",
        contract_mutants: str = "",
    ) -> None:
        """Register `operators`, `models` and `rules`."""
        self.name = name
        self.version = version
        self.peers: dict[str, tuple[str, ...]] = {
            word: (reference,) for word, reference in peers.items()
        }
        self.mutants: tuple[str | Mapping[str, str], ...] = (mutants,) if mutants else ()
        self.faults: tuple[str, ...] = (faults,) if faults else ()
        self.contract_mutants: tuple[str, ...] = (contract_mutants,) if contract_mutants else ()
        self.rule_mutants: tuple[str, ...] = (rule_mutants,) if rule_mutants else ()
        self.operators = _by_name(name, "operator", operators)
        self.models = _by_name(name, "spec", models)
        self.rules = _by_name(name, "spec", rules)
        self.home: dict[str, str] = {}  # the suite that seeds the samples of each spec
        for one in (*self.operators, *self.models, *self.rules):
            if one in self.home:
                raise SpecError(f"suite {name!r}: two specs are called {one!r}; rename one")
            self.home[one] = name

    @classmethod
    def joined(cls, suites: Sequence[Suite]) -> Suite:
        """All operators of several suites, with the same sample values as in each.

        Raises:
            SpecError: two suites share an operator's name.
        """
        whole = cls(
            "+".join(suite.name for suite in suites),
            "+".join(suite.version for suite in suites),
            [spec for suite in suites for spec in suite],
            models=[model for suite in suites for model in suite.models.values()],
            rules=[rule for suite in suites for rule in suite.rules.values()],
        )
        for suite in suites:
            whole.home.update(suite.home)
            whole.mutants += suite.mutants
            whole.rule_mutants += suite.rule_mutants
            whole.faults += suite.faults
            whole.contract_mutants += suite.contract_mutants
            for word, references in suite.peers.items():
                whole.peers[word] = whole.peers.get(word, ()) + references
        return whole

    def select(self, globs: Sequence[str] = ()) -> list[OpSpec]:
        """Operators whose names match one of `globs` (none given: all), in suite order.

        Raises:
            UnknownNameError: a glob matches nothing.
        """
        return self._matching(Kind.OPERATOR, globs)

    def cases(
        self,
        ops: Sequence[str] = (),
        dialects: Sequence[str] = (),
        samples: Sequence[str] = (),
        seed: int = 0,
    ) -> list[Case]:
        """Cases of the operators, dialects and samples that match; empty means all.

        Raises:
            UnknownNameError: a glob matches nothing among the operators selected.
        """
        return [*self._cases(Kind.OPERATOR, ops, dialects, samples, seed)]

    def model_cases(
        self,
        models: Sequence[str] = (),
        dialects: Sequence[str] = (),
        sizes: Sequence[str] = (),
        seed: int = 0,
    ) -> list[ModelCase]:
        """Cases of the models, dialects and sizes that match; empty means all.

        Raises:
            UnknownNameError: a glob matches nothing among the models selected.
        """
        return [*self._cases(Kind.MODEL, models, dialects, sizes, seed)]

    def rule_cases(
        self,
        rules: Sequence[str] = (),
        dialects: Sequence[str] = (),
        samples: Sequence[str] = (),
        seed: int = 0,
    ) -> list[RuleCase]:
        """Cases of the update rules, dialects and samples that match; empty means all.

        Raises:
            UnknownNameError: a glob matches nothing among the rules selected.
        """
        return [*self._cases(Kind.RULE, rules, dialects, samples, seed)]

    def case(self, name: str, dialect: str, point: str, seed: int) -> AnyCase:
        """The case of an operator, model or update rule with these names (`AnyCase.address`).

        Raises:
            UnknownNameError: there is no such dialect, sample or size.
            KeyError: there is no such spec.
        """
        kind = next(kind for kind in Kind if name in self.specs(kind))
        spec = self.specs(kind)[name]
        for one in spec.points:
            if one.name == point:
                found = _case_class(kind)
                return found(spec, spec.dialect(dialect), one, seed, self.home[name])
        raise UnknownNameError(_point_word(kind), point, [one.name for one in spec.points])

    def specs(self, kind: Kind) -> Mapping[str, Any]:
        """The operators, models or update rules, by name."""
        return {
            Kind.OPERATOR: self.operators,
            Kind.MODEL: self.models,
            Kind.RULE: self.rules,
        }[kind]

    def _matching(self, kind: Kind, globs: Sequence[str]) -> list[Any]:
        specs = self.specs(kind)
        _check_globs(kind, globs, specs)
        return [specs[name] for name in specs if _matches(name, globs)]

    def _cases(
        self,
        kind: Kind,
        names: Sequence[str],
        dialects: Sequence[str],
        points: Sequence[str],
        seed: int,
    ) -> Iterator[Any]:
        specs, case = self._matching(kind, names), _case_class(kind)
        _check_globs("dialect", dialects, {d.name for s in specs for d in s.dialects})
        _check_globs(_point_word(kind), points, {p.name for s in specs for p in s.points})
        for spec in specs:
            for dialect in spec.dialects:
                for point in spec.points:
                    meant = _matches(dialect.name, dialects) and _matches(point.name, points)
                    only = getattr(point, "dialects", ())
                    if meant and (not only or dialect.name in only):
                        yield case(spec, dialect, point, seed, self.home[spec.name])

    def __iter__(self) -> Iterator[OpSpec]:
        """Operators in order."""
        return iter(self.operators.values())

    def __len__(self) -> int:
        """Number of operators."""
        return len(self.operators)


def _by_name(suite: str, what: str, specs: Sequence[Spec] | Families[Spec]) -> Mapping[str, Spec]:
    """Specs by name, in order; those of `Families` are not imported.

    Raises:
        SpecError: two share a name.
    """
    if isinstance(specs, Families):
        return specs
    found: dict[str, Spec] = {}
    for spec in specs:
        if spec.name in found:
            both = " and ".join(
                str(getattr(s, "family", "models")) for s in (found[spec.name], spec)
            )
            raise SpecError(
                f"suite {suite!r}: two {what}s are called {spec.name!r} (in {both}); rename one"
            )
        found[spec.name] = spec
    return found


def index_primals(spec: OpSpec, suite: Suite) -> frozenset[str]:
    """The primals of an operator of `suite` that are whole numbers: they have no gradient."""
    sample = spec.samples[0]
    case = Case(spec, spec.dialects[0], sample, 0, suite.home[spec.name])
    pairs = zip(spec.primals, sample.primals(case.draw("primals")), strict=True)
    return frozenset(name for name, primal in pairs if np.asarray(primal).dtype.kind in "iu")


def _case_class(kind: Kind) -> Callable[..., AnyCase]:
    # Deferred: a run of operators alone needs no dataclasses of models and update rules.
    if kind is Kind.MODEL:
        from gradcheck.spec.model import ModelCase

        return ModelCase
    if kind is Kind.RULE:
        from gradcheck.spec.rule import RuleCase

        return RuleCase
    return Case


def _point_word(kind: Kind) -> str:
    """The word for a point of a kind of spec, in messages."""
    return "size" if kind is Kind.MODEL else "sample"


def _check_globs(kind: str, globs: Sequence[str], known: Iterable[str]) -> None:
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            raise UnknownNameError(kind, glob, known)


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
