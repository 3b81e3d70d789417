"""Cases of a suite that the words of a command select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gradcheck.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from gradcheck.spec.case import AnyCase
    from gradcheck.spec.model import ModelCase
    from gradcheck.spec.rule import RuleCase
    from gradcheck.spec.suite import Case, Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedCases:
    """The cases that are meant, each kind in the suite's order."""

    operators: Sequence[Case] = ()
    models: Sequence[ModelCase] = ()
    rules: Sequence[RuleCase] = ()

    def __bool__(self) -> bool:
        """Whether anything is meant at all."""
        return bool(self.operators or self.models or self.rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSelection:
    """Globs by kind; none given means all of them.

    Without globs for operators, models and rules every operator is meant; with globs for some of
    these kinds, those kinds alone. `samples` name an operator's and a rule's samples and a model's
    sizes. Of what is left, `keyword` is an expression on names, as `keyword_expression` has it.
    """

    ops: Sequence[str] = ()
    models: Sequence[str] = ()
    rules: Sequence[str] = ()
    dialects: Sequence[str] = ()
    samples: Sequence[str] = ()
    keyword: str | None = None
    seed: int = 0

    @property
    def has_operators(self) -> bool:
        """Whether operators are chosen from."""
        return bool(self.ops) or not (self.models or self.rules)

    def cases(self, suite: Suite) -> SelectedCases:
        """The cases chosen from `suite`.

        Raises:
            UnknownNameError: a glob matches nothing.
            UsageError: the keyword does, or is no expression.
        """
        return self._narrowed(
            suite.cases(self.ops, seed=self.seed) if self.has_operators else [],
            suite.model_cases(self.models, seed=self.seed) if self.models else [],
            suite.rule_cases(self.rules, seed=self.seed) if self.rules else [],
        )

    def everything(self, suite: Suite) -> SelectedCases:
        """The same, but all there is where no kind is named.

        Raises:
            UnknownNameError: a glob matches nothing.
            UsageError: the keyword does, or is no expression.
        """
        if self.ops or self.models or self.rules:
            return self.cases(suite)
        seed = self.seed
        return self._narrowed(
            suite.cases(seed=seed), suite.model_cases(seed=seed), suite.rule_cases(seed=seed)
        )

    def _narrowed(
        self, operators: list[Case], models: list[ModelCase], rules: list[RuleCase]
    ) -> SelectedCases:
        """The cases of each kind that match; a glob has to match something in one of them."""
        cases: list[AnyCase] = [*operators, *models, *rules]
        kind = " or ".join(["sample"] * bool(operators or rules) + ["size"] * bool(models))
        _check("dialect", self.dialects, {case.dialect.name for case in cases})
        _check(kind, self.samples, {case.point.name for case in cases})

        def wanted(case: AnyCase) -> bool:
            return _matches(case.dialect.name, self.dialects) and _matches(
                case.point.name, self.samples
            )

        return self._meant(
            SelectedCases(
                operators=[case for case in operators if wanted(case)],
                models=[case for case in models if wanted(case)],
                rules=[case for case in rules if wanted(case)],
            )
        )

    def _meant(self, chosen: SelectedCases) -> SelectedCases:
        """The cases that match the keyword; there has to be one."""
        if self.keyword is None:
            return chosen
        from gradcheck.spec.keyword_expression import parsed  # deferred: few runs have one

        holds = parsed(self.keyword)
        found = SelectedCases(
            operators=[c for c in chosen.operators if holds(c.name)],
            models=[c for c in chosen.models if holds(c.name)],
            rules=[c for c in chosen.rules if holds(c.name)],
        )
        if chosen and not found:
            kind = "size" if not (chosen.operators or chosen.rules) else "sample"
            count = sum(map(len, (chosen.operators, chosen.models, chosen.rules)))
            raise UsageError(
                f"-k {self.keyword!r}: none of the selected cases ({count:,}) has such a name: "
                f"names are operator/dialect/{kind} (`gradcheck list`); dtypes go to --dtype"
            )
        return found


def _check(kind: str, globs: Sequence[str], known: set[str]) -> None:
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            raise UnknownNameError(kind, glob, known)


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
