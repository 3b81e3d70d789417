"""A point of one's own operator, as a test is given it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gradcheck.errors import UnknownNameError, Unsupported, UsageError
from gradcheck.numerics.draw import Draw
from gradcheck.testing.base_case import Asked, as_entry
from gradcheck.testing.inputs import Array, Drawn

if TYPE_CHECKING:
    from gradcheck.api.check import Result
    from gradcheck.implementations.bound import Bound
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Finding

NOWHERE: Final = object()
"""Equal to no attribute's value: nothing is taken to be fixed in the code."""


class OwnCase(Asked):
    """A point of your own operator, in one dtype.

    `primals` are arrays in the order in which the decorator names them, `attrs` the attributes;
    `case["x"]` is either by its name. `seed` counts the drawings of this sample, from 0.
    """

    def __init__(
        self, test: str, name: str, values: Mapping[str, Any], dtype: str, seed: int
    ) -> None:
        """`test` and `name` seed what is drawn, so that other cases move nothing here."""
        super().__init__(test)
        self.name, self.dtype, self.seed = name, dtype, seed
        self.attrs = {key: value for key, value in values.items() if not is_primal(value)}
        self._values = {key: value for key, value in values.items() if is_primal(value)}

    @property
    def id(self) -> str:
        """Sample, dtype, and the seed but the first."""
        return f"{self.name}-{self.dtype}" + (f"-seed{self.seed}" if self.seed else "")

    @cached_property
    def named(self) -> dict[str, Array]:
        """The primals by name; floating ones in the case's dtype."""
        found = {}
        for name, value in self._values.items():
            if isinstance(value, Drawn):
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
            UnknownNameError: there is none of that name.
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
        """Judge `vjp` against the derivative of `forward` here, element by element.

        It is what `gradcheck.check(…, full=True)` does.

        Instead of two functions, `forward` may be one object that has both, or that PyTorch or
        JAX differentiates (`gradcheck.torch_op`, a `torch.autograd.Function`, a `jax.custom_vjp`).

        Raises:
            CheckFailed: it is wrong; an AssertionError, whose text is the failure.
            UsageError: there is nothing to judge, or the primals stand in another order.
        """
        __tracebackhide__ = True
        from gradcheck.api.check import check

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
        """What there is to call, of two functions or of one object."""
        from gradcheck.implementations.bound import Bound
        from gradcheck.implementations.python import bound_operator
        from gradcheck.implementations.source import source_of

        entry = as_entry(forward, vjp)
        pair = _pair(entry)
        if pair is not None:
            _check_order(pair[0], [*self.named])
            return Bound(forward=pair[0], vjp=pair[1], attrs=self.attrs, source=source_of(pair[1]))
        fixed = dict.fromkeys(self.attrs, NOWHERE)
        try:
            bound = bound_operator(entry, self.attrs, fixed, [*self.named])
        except Unsupported as error:
            raise UsageError(f"{error}: let it take that, or leave it out of @case") from None
        if bound.forward is None:
            raise UsageError("there is no forward to difference: case.check(forward, vjp)")
        return bound

    def _record(self, finding: Finding, source: str) -> CaseResult:
        """A finding under the test's name; `source` is where the backward stands."""
        from gradcheck.results.case_result import CaseId, CaseResult

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
    """A forward and a vjp that take the same attributes, if that is what there is."""
    from gradcheck.implementations.frameworks import differentiated
    from gradcheck.implementations.keywords import method

    forward, vjp = method(entry, "forward"), method(entry, "vjp")
    if forward is None or vjp is None or differentiated(entry) is not None:
        return None
    return forward, vjp


def _named(forward: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The same function, whose primals are called as in the decorator."""

    def named(*values: Any, **attrs: Any) -> Any:
        return forward(*values, **attrs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in names]
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return named


def _check_order(forward: Callable[..., Any], names: Sequence[str]) -> None:
    """Refuse primals that the function would take for each other."""
    try:
        taken = [name for name in inspect.signature(forward).parameters if name in names]
    except (TypeError, ValueError):
        return
    if sorted(taken) == sorted(names) and taken != [*names]:
        raise UsageError(
            f"@gradcheck.case names the primals {', '.join(names)}, and forward takes them as "
            f"{', '.join(taken)}: write them in its order"
        )


def is_primal(value: object) -> bool:
    """Whether a keyword of the decorator is a primal; all else is an attribute."""
    return isinstance(value, Drawn | np.ndarray)
