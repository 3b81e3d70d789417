"""A case: one point at which an operator, a model or an update rule of a suite is judged."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:  # reports and `--help` need `Kind`, and no NumPy
    from gradcheck.numerics.arrays import Attrs
    from gradcheck.numerics.draw import Draw
    from gradcheck.spec.operator import Dialect


class Kind(StrEnum):
    """What was judged as a whole."""

    OPERATOR = "operator"
    MODEL = "model"
    RULE = "rule"
    """An update rule."""


class Point(Protocol):
    """One named point of a spec: an operator's `Sample`, a model's `Size`, a rule's `Steps`."""

    @property
    def name(self) -> str:
        """The name, unique among the points of its spec."""

    @property
    def hunts(self) -> str:
        """The defect that it would expose."""

    @property
    def attrs(self) -> Attrs:
        """Attributes, dimensions or hyper-parameters that differ from the spec's defaults."""


class AnyCase(ABC):
    """Names, attributes, random numbers and hash of a case of any kind.

    Attributes:
        kind: whether it is a case of an operator, a model or an update rule.
        spec: the operator, model or update rule.
        dialect: one of the dialects of `spec`.
        seed: the seed of all its numbers.
        suite: the name of the suite, which is part of the seed.
    """

    kind: ClassVar[Kind]
    spec: Any
    dialect: Dialect
    seed: int
    suite: str

    @property
    @abstractmethod
    def point(self) -> Point:
        """The sample, size or sequence of steps."""

    @abstractmethod
    def _meaning(self) -> Iterator[bytes]:
        """Everything that changes the fingerprint."""

    @property
    def name(self) -> str:
        """`spec/dialect/point`; a dtype and an output are appended where they are judged."""
        return f"{self.spec.name}/{self.dialect.name}/{self.point.name}"

    @property
    def address(self) -> tuple[str, str, str, int]:
        """The names of spec, dialect and point, and the seed, for `Suite.case`."""
        return self.spec.name, self.dialect.name, self.point.name, self.seed

    @cached_property
    def attrs(self) -> Attrs:
        """The spec's defaults, then the dialect's attributes, then those of the point."""
        return {**self.spec.defaults, **self.dialect.attrs, **self.point.attrs}

    def draw(self, *role: object) -> Draw:
        """A generator for one role ("primals", "cotangents"); equal for all dialects."""
        from gradcheck.numerics.draw import Draw  # deferred: it imports NumPy

        return Draw(self.seed, self.suite, self.spec.name, self.point.name, *role)

    @cached_property
    def fingerprint(self) -> str:
        """Four characters of a hash of all values and attributes.

        Raises:
            SpecError: the values cannot be drawn.
        """
        digest = hashlib.blake2b(digest_size=8)
        for part in self._meaning():
            digest.update(part)
        return digest.hexdigest()[:4]
