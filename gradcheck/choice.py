"""What the words of a selection choose from a suite: cases of operators and of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gradcheck.errors import UnknownNameError
from gradcheck.model import ModelCase
from gradcheck.suite import Case, Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Globs by kind; none given means all of them.

    Without globs for operators and models every operator is meant; with globs for one of the two
    kinds, that kind alone. `samples` name an operator's samples and a model's sizes.
    """

    ops: Sequence[str] = ()
    models: Sequence[str] = ()
    dialects: Sequence[str] = ()
    samples: Sequence[str] = ()
    seed: int = 0

    @property
    def has_operators(self) -> bool:
        """Whether operators are chosen from."""
        return bool(self.ops) or not self.models

    def cases(self, suite: Suite) -> tuple[list[Case], list[ModelCase]]:
        """The cases chosen from `suite`: operators' and models'.

        Raises:
            UnknownNameError: a glob matches nothing.
        """
        ours = suite.cases(self.ops, seed=self.seed) if self.has_operators else []
        theirs = suite.model_cases(self.models, seed=self.seed) if self.models else []
        return self._narrowed(ours, theirs)

    def everything(self, suite: Suite) -> tuple[list[Case], list[ModelCase]]:
        """The same, but all operators and all models where neither is named.

        Raises:
            UnknownNameError: a glob matches nothing.
        """
        if self.ops or self.models:
            return self.cases(suite)
        return self._narrowed(suite.cases(seed=self.seed), suite.model_cases(seed=self.seed))

    def _narrowed(
        self, ours: list[Case], theirs: list[ModelCase]
    ) -> tuple[list[Case], list[ModelCase]]:
        """What is left of both kinds; a glob has to match something in either of them."""
        dialects = {c.dialect.name for c in ours} | {c.dialect.name for c in theirs}
        samples = {c.sample.name for c in ours} | {c.size.name for c in theirs}
        kind = " or ".join(["sample"] * bool(ours) + ["size"] * bool(theirs))
        for what, globs, known in (
            ("dialect", self.dialects, dialects),
            (kind, self.samples, samples),
        ):
            for glob in globs:
                if not any(fnmatchcase(name, glob) for name in known):
                    raise UnknownNameError(what, glob, known)
        return (
            [c for c in ours if self._wants(c.dialect.name, c.sample.name)],
            [c for c in theirs if self._wants(c.dialect.name, c.size.name)],
        )

    def _wants(self, dialect: str, sample: str) -> bool:
        return matches(dialect, self.dialects) and matches(sample, self.samples)


def matches(name: str, globs: Sequence[str]) -> bool:
    """Whether one of `globs` means `name`; no globs mean every name."""
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
