"""A case of a suite, as a test is given it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradcheck.testing.base_case import Asked, as_entry
from gradcheck.testing.inputs import Array

if TYPE_CHECKING:
    from gradcheck.implementations.bound import Bound
    from gradcheck.run.plan import Plan
    from gradcheck.spec.suite import Case


class SuiteCase(Asked):
    """A case of a suite, in one dtype; `case` is the suite's own."""

    def __init__(self, test: str, case: Case, dtype: str, key: str, plan: Plan) -> None:
        """`plan` says how it is judged; `key` is what a table would call the entry."""
        super().__init__(test)
        self.case, self.dtype, self.name = case, dtype, case.name
        self._key, self._plan = key, plan

    @property
    def id(self) -> str:
        """The name of the case and its dtype."""
        return f"{self.name}/{self.dtype}"

    @property
    def primals(self) -> tuple[Array, ...]:
        """The primals, in order, as the code is given them."""
        from gradcheck.numerics.dtypes import dtype_named

        return tuple(
            p.astype(dtype_named(self.dtype)) if p.dtype.kind == "f" else p
            for p in self.case.primals
        )

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes."""
        return self.case.attrs

    def check(self, forward: Any = None, vjp: Callable[..., Any] | None = None) -> None:
        """Judge a backward here, as `gradcheck run --impl` does.

        Either `forward` and `vjp`, or `vjp` alone, or `forward` is whatever may stand in a table:
        an object with both, a `torch.autograd.Function`, a `jax.custom_vjp`.

        Raises:
            CheckFailed: it is wrong; an AssertionError, whose text is the failure.
            SkipTest: it declares that it lacks an attribute's value.
            UsageError: there is nothing to judge.
        """
        __tracebackhide__ = True
        from gradcheck.run.judge_case import judge

        entry = as_entry(forward, vjp)
        self._calls += 1
        who = f"{self._file}::{self.test.partition('::')[2]}"
        found = judge(self._plan, self.case, _Table(who, self._key, entry))
        self._judged([replace(record, repro=self._again) for record in found])


class _Table:
    """One entry as an implementation."""

    def __init__(self, name: str, key: str, entry: Any) -> None:
        self.name, self._table = name, {key: entry}

    def bind(self, case: Case, dtype: str) -> Bound:
        from gradcheck.implementations.python import bound_operator
        from gradcheck.implementations.user_functions import entry_of

        entry, fixed = entry_of(self._table, case)
        return bound_operator(entry, case.attrs, fixed, case.primal_names)

    def bind_model(self, case: Any, dtype: str) -> None:
        return None

    def bind_rule(self, case: Any, dtype: str) -> None:
        return None
