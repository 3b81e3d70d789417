"""A smaller input that may show a failure: primals, attributes and a cotangent, as a case."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError
from gradcheck.explain.probe import Cotangent
from gradcheck.judge.cotangents import KINDS
from gradcheck.judge.declared_kinks import SMOOTH_DISTANCE
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.suite import Case

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Primals, attributes and a cotangent that may show the failure of `original`.

    `primals` are float64 or int64, of the primals that the dialect has. Without `ct`, one of
    `kind` is drawn for the shapes of the outputs.
    """

    original: Case
    primals: tuple[Array, ...]
    attrs: Attrs
    ct: Cotangent | None = None
    kind: str = KINDS[0]

    @property
    def size(self) -> int:
        """Elements of all primals."""
        return sum(p.size for p in self.primals)

    def with_primal(self, index: int, values: Array) -> Candidate:
        """Another value of one primal."""
        primals = tuple(values if i == index else p for i, p in enumerate(self.primals))
        return replace(self, primals=primals)

    def case(self) -> Case:
        """A case whose sample holds these primals and attributes.

        Raises:
            SpecError: an element lies beside a kink, or on one that the original keeps clear of;
                or float32 does not hold a value.
        """
        case, dialect = self.original, self.original.dialect
        given = dict(zip(case.primal_names, self.primals, strict=True))
        every = tuple(given.get(name, np.zeros(())) for name in case.spec.primals)
        usual = {**case.spec.defaults, **dialect.attrs}
        attrs = {k: v for k, v in self.attrs.items() if repr(usual[k]) != repr(v)}
        sample = replace(
            case.sample,
            name=f"{case.sample.name}.shrunk",
            primals=lambda _: every,
            attrs=attrs,
            at_kink=self._on_kinks(),
        )
        return replace(case, sample=sample)

    def _on_kinks(self) -> bool:
        """Whether an element lies on a kink; what only comes near one belongs to no sample."""
        case = self.original
        on = near = False
        for kink in case.spec.kinks:
            if (kink.primal or case.spec.primals[0]) not in case.primal_names:
                continue
            with np.errstate(all="ignore"):
                gap = np.asarray(kink.gap(F64, *self.primals, **self.attrs))
            on, near = on or bool((gap == 0).any()), near or bool((gap < SMOOTH_DISTANCE).any())
        if near and not (on and case.sample.at_kink):
            raise SpecError(f"{case.name}: an element comes near a kink")
        return on

    def key(self) -> object:
        """The same for candidates that are the same."""
        arrays = [*self.primals, *(self.ct or ())]
        return repr(self.attrs), self.kind, *((a.shape, a.tobytes()) for a in arrays)
