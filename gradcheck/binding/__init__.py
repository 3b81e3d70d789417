"""Whose backward is judged: the suite's own, a user's Python, or a framework's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gradcheck.spec import Attrs
from gradcheck.suite import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An implementation of one case.

    `vjp(ct, *primals, **attrs)` returns one gradient per primal; `forward(*primals, **attrs)`,
    if there is one, an array or a tuple of arrays. `attrs` are the attributes to pass.
    """

    vjp: Callable[..., Any]
    forward: Callable[..., Any] | None
    attrs: Attrs


class Binding(Protocol):
    """An implementation that can be asked for each case of a suite."""

    @property
    def name(self) -> str:
        """What `--impl` calls it."""

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The implementation of `case`, or None if it says nothing about the operator.

        Raises:
            Unsupported: it declares that it lacks the operator or an attribute's value.
        """
