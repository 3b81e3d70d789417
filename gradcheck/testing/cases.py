"""The cases that decorated tests get: of a suite, or of a user's own operator."""

from __future__ import annotations

import inspect
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import numpy as np

from gradcheck.api.check import check
from gradcheck.errors import UnknownNameError, Unsupported, UsageError
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.python import ROLES, bound_operator, differentiated
from gradcheck.implementations.user_functions import entry_of, method, source_of
from gradcheck.numerics.arrays import dtype_named
from gradcheck.numerics.draw import Draw
from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.words import clean, word
from gradcheck.run.judge_case import judge
from gradcheck.testing.failure import NotCompared, failure_of
from gradcheck.testing.inputs import Array, ArraySpec, is_primal

if TYPE_CHECKING:
    from gradcheck.api.check import Result
    from gradcheck.results.finding import Finding
    from gradcheck.run.plan import Plan
    from gradcheck.spec.suite import Case


class CaseBase(ABC):
    """A case as a test gets it, with the results of its checks."""

    name: str
    dtype: str

    def __init__(self, test: str) -> None:
        """`test` is the file and the name of the test."""
        self.test, self.results, self._calls = test, list[Any](), 0
        self._file, self._again = test.partition("::")[0], ""

    @property
    @abstractmethod
    def id(self) -> str:
        """The id of the parameter, in brackets behind the test's name."""

    def begin(self, node: str) -> None:
        """Begin a test; `node` is its pytest id."""
        self.results, self._calls = [], 0
        self._file, self._again = node.partition("::")[0], shlex.join(["pytest", node])

    def end(self) -> None:
        """End a test that did not fail.

        Raises:
            NotCompared: it never called `check`.
        """
        if not self._calls:
            raise NotCompared(
                f"nothing was compared: {self.test} never calls case.check(forward, vjp)"
            )

    def __repr__(self) -> str:
        """The id, for messages."""
        return f"<case {self.id}>"

    def _judged(self, records: Sequence[CaseResult]) -> None:
        """Keep the results of a check.

        Raises:
            CheckFailed: a gradient is wrong.
            SkipTest: the code lacks the operator or an attribute.
        """
        __tracebackhide__ = True
        self.results += records
        checked = [r for r in records if r.finding.verdict.checked]
        if records and not checked:
            raise SkipTest(
                f"{word(records[0].finding.verdict)}: {clean(records[0].finding.reason)}"
            )
        failed = [r for r in checked if not r.finding.verdict.expected]
        if failed:
            raise failure_of(failed)


# ── a suite's ────────────────────────────────────────────────────────────────────────────────────


class SuiteCase(CaseBase):
    """A case of a suite, in one dtype; `case` is the suite's own."""

    def __init__(self, test: str, case: Case, dtype: str, key: str, plan: Plan) -> None:
        """Take how it is judged, `plan`, and the key of its entry in a table."""
        super().__init__(test)
        self.case, self.dtype, self.name = case, dtype, case.name
        self._key, self._plan = key, plan

    @property
    def id(self) -> str:
        """The name of the case and its dtype."""
        return f"{self.name}/{self.dtype}"

    @property
    def primals(self) -> tuple[Array, ...]:
        """The primals, in order, in the dtype."""
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

        Pass `forward` and `vjp`, or `vjp` alone, or as `forward` any entry of a table: an object
        with both, a `torch.autograd.Function`, a `jax.custom_vjp`.

        Raises:
            CheckFailed: it is wrong; an AssertionError, whose text is the failure.
            SkipTest: it lacks an attribute's value.
            UsageError: the arguments contain no backward.
        """
        __tracebackhide__ = True
        entry = as_entry(forward, vjp)
        self._calls += 1
        who = f"{self._file}::{self.test.partition('::')[2]}"
        found = judge(self._plan, self.case, _Table(who, self._key, entry))
        self._judged([replace(record, repro=self._again) for record in found])


class _Table:
    """An implementation with one entry."""

    def __init__(self, name: str, key: str, entry: Any) -> None:
        self.name, self._table = name, {key: entry}

    def bind(self, case: Case, dtype: str) -> Bound:
        entry, fixed = entry_of(self._table, case)
        return bound_operator(entry, case.attrs, fixed, case.primal_names)

    def bind_model(self, case: Any, dtype: str) -> None:
        return None

    def bind_rule(self, case: Any, dtype: str) -> None:
        return None


# ── a user's own ─────────────────────────────────────────────────────────────────────────────────


class UserCase(CaseBase):
    """A point of your own operator, in one dtype.

    `primals` are arrays in the order in which the decorator names them, and `attrs` the attributes;
    `case["x"]` is either by its name. `seed` counts the drawings of this sample, from 0.
    """

    def __init__(
        self, test: str, name: str, values: Mapping[str, Any], dtype: str, seed: int
    ) -> None:
        """Take the names that seed its arrays: other cases change nothing here."""
        super().__init__(test)
        self.name, self.dtype, self.seed = name, dtype, seed
        self.attrs = {key: value for key, value in values.items() if not is_primal(value)}
        self._values = {key: value for key, value in values.items() if is_primal(value)}

    @property
    def id(self) -> str:
        """Sample and dtype, and the seed if it is not 0."""
        return f"{self.name}-{self.dtype}" + (f"-seed{self.seed}" if self.seed else "")

    @cached_property
    def named(self) -> dict[str, Array]:
        """The primals by name; floating ones in the case's dtype."""
        found = {}
        for name, value in self._values.items():
            if isinstance(value, ArraySpec):
                draw = Draw("case", self.test, self.name, name, self.seed)
                array = value.drawn(name, draw)
            else:
                array = np.array(value)
            found[name] = array.astype(self.dtype) if array.dtype.kind == "f" else array
        return found

    @property
    def primals(self) -> tuple[Array, ...]:
        """The primals, in order."""
        return tuple(self.named.values())

    def __getitem__(self, name: str) -> Any:
        """A primal or an attribute.

        Raises:
            UnknownNameError: nothing has that name.
        """
        known = {**self.named, **self.attrs}
        if name not in known:
            raise UnknownNameError("primal or attribute", name, known)
        return known[name]

    def check(
        self,
        forward: Any,
        vjp: Callable[..., Any] | None = None,
        *,
        order: int = 1,
        double_vjp: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
    ) -> Result:
        """Judge `vjp` against the derivative of `forward`, as `gradcheck.check(…, full=True)` does.

        Instead of two functions, `forward` may be one object that has both, or that PyTorch or
        JAX differentiates (`gradcheck.torch_op`, a `torch.autograd.Function`, a `jax.custom_vjp`).

        Raises:
            CheckFailed: it is wrong; an AssertionError, whose text is the failure.
            UsageError: the arguments contain no backward, or the primals are in another order.
        """
        __tracebackhide__ = True
        bound = self._bound(forward, vjp)
        assert bound.forward is not None
        self._calls += 1
        found = check(
            _named(bound.forward, [*self.named]),
            bound.vjp,
            *self.primals,
            seed=self.seed,
            attrs=bound.attrs,
            full=True,
            order=order,
            double_vjp=double_vjp,
            jvp=jvp,
        )
        self._judged([self._record(finding, bound.source) for finding in found.findings])
        return found

    def _bound(self, forward: Any, vjp: Callable[..., Any] | None) -> Bound:
        """Bind two functions, or one object."""
        entry = as_entry(forward, vjp)
        pair = _pair(entry)
        if pair is not None:
            _check_order(pair[0], [*self.named])
            return Bound(forward=pair[0], vjp=pair[1], attrs=self.attrs, source=source_of(pair[1]))
        fixed = dict.fromkeys(self.attrs, object())  # equal to no value: none is fixed in the code
        try:
            bound = bound_operator(entry, self.attrs, fixed, [*self.named])
        except Unsupported as error:
            raise UsageError(f"{error}: let it take that, or remove it from @case") from None
        if bound.forward is None:
            raise UsageError("there is no forward; pass case.check(forward, vjp)")
        return bound

    def _record(self, finding: Finding, source: str) -> CaseResult:
        """The result of a finding, under the test's name; `source` is the place of the backward."""
        file, _, function = self.test.partition("::")
        stem = file.removesuffix(".py")
        where = f"{stem}/{function}/{self.id}"
        sample = self.id.replace(f"-{self.dtype}", "", 1)
        case = CaseId(
            name=where, hash="", implementation=self._file, op=stem, dialect=function,
            sample=sample, dtype=self.dtype, seed=self.seed,
        )  # fmt: skip
        return CaseResult(case=case, finding=replace(finding, source=source), repro=self._again)


def _pair(entry: Any) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """A forward and a vjp that take the same attributes, if an entry has them."""
    forward, vjp = method(entry, "forward"), method(entry, "vjp")
    if forward is None or vjp is None or differentiated(entry) is not None:
        return None
    return forward, vjp


def _named(forward: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The same function, with the decorator's names for its primals."""

    def named(*values: Any, **attrs: Any) -> Any:
        return forward(*values, **attrs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in names]
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return named


def _check_order(forward: Callable[..., Any], names: Sequence[str]) -> None:
    """Refuse primals in another order than the function's."""
    try:
        taken = [name for name in inspect.signature(forward).parameters if name in names]
    except (TypeError, ValueError):
        return
    if sorted(taken) == sorted(names) and taken != [*names]:
        raise UsageError(
            f"@gradcheck.case names the primals {', '.join(names)}, and forward takes them as "
            f"{', '.join(taken)}: write them in its order"
        )


def as_entry(forward: Any, vjp: Callable[..., Any] | None) -> Any:
    """The entry of a table that corresponds to the arguments of `check`.

    Raises:
        UsageError: they contain no backward.
    """
    entry = forward
    if vjp is not None:
        entry = {"vjp": vjp} if forward is None else {"forward": forward, "vjp": vjp}
    if differentiated(entry) is None and not any(method(entry, role) for role in ROLES):
        raise UsageError(f"a {type(forward).__name__} has no vjp; pass case.check(forward, vjp)")
    return entry
