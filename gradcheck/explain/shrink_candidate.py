"""A smaller input that may show a failure, and the values that its operator takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError
from gradcheck.explain.probe import Cotangent
from gradcheck.judge.cotangents import KINDS
from gradcheck.judge.declared_kinks import DISTANCE
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.suite import Case

Array = NDArray[Any]

MAX_ENUMERATED: Final = 3
"""Distinct values, over all samples, up to which a primal takes no other ones (masks, signs)."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values of one primal: between two ends; whole numbers alone, or a few alone."""

    low: float
    high: float
    whole: bool
    few: tuple[float, ...]

    def holds(self, values: Array) -> bool:
        """Whether all values are of the kind that samples have."""
        if self.few and not np.isin(values, self.few).all():
            return False
        if self.whole and not (values == np.round(values)).all():
            return False
        return bool(((values >= self.low) & (values <= self.high)).all())


@dataclass(frozen=True, slots=True)
class Domain:
    """The values and attributes that an operator takes, as far as its samples show.

    `primals` has one range per primal, None where nothing is known; `attrs` the numbers that each
    attribute takes in samples.
    """

    primals: tuple[Range | None, ...]
    attrs: dict[str, tuple[float, ...]]

    @classmethod
    def of(cls, case: Case, primals: Sequence[Array]) -> Domain:
        """The domain spanned by the operator's samples in the case's dialect, and by `primals`."""
        values: list[list[Array]] = [[] for _ in case.primal_names]
        for sample in case.spec.samples:
            if sample.dialects and case.dialect.name not in sample.dialects:
                continue
            try:
                drawn = replace(case, sample=sample).primals
            except Exception:  # noqa: BLE001  a suite's own; the ordinary judgement says so
                continue
            for seen, primal in zip(values, drawn, strict=True):
                seen.append(primal.reshape(-1))
        for seen, primal in zip(values, primals, strict=True):
            seen.append(primal.reshape(-1))
        return cls(tuple(_range(seen) for seen in values), _seen(case))

    def holds(self, primals: Sequence[Array], attrs: Attrs) -> bool:
        """Whether primals and attributes are like those of samples."""
        pairs = zip(self.primals, primals, strict=True)
        if not all(r is None or p.dtype.kind != "f" or r.holds(p) for r, p in pairs):
            return False
        return all(self._usual(name, number) for name in attrs for number in _numbers(attrs[name]))

    def _usual(self, name: str, number: float) -> bool:
        """Whole numbers from 1 on are, where smaller ones are not asked for; others in between."""
        seen = self.attrs.get(name, ())
        if number in seen:
            return True
        low, high = min(seen, default=1.0), max(seen, default=1.0)
        return number >= 1 if float(number).is_integer() and low >= 1 else low <= number <= high


def _range(seen: Sequence[Array]) -> Range | None:
    every = np.concatenate(list(seen))
    every = every[np.isfinite(every)]
    if not every.size:
        return None
    distinct = np.unique(every)
    few = tuple(float(v) for v in distinct) if distinct.size <= MAX_ENUMERATED else ()
    whole = bool((every == np.round(every)).all())
    return Range(float(distinct[0]), float(distinct[-1]), whole, few)


def _seen(case: Case) -> dict[str, tuple[float, ...]]:
    spec = case.spec
    sets = [spec.defaults, *(d.attrs for d in spec.dialects), *(s.attrs for s in spec.samples)]
    return {
        name: tuple(n for attrs in sets if name in attrs for n in _numbers(attrs[name]))
        for name in spec.defaults
    }


def _numbers(value: Any) -> Iterator[float]:
    """The numbers in an attribute; none in a word or a flag."""
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, (int, float)) and not isinstance(part, bool):
            yield part


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
            SpecError: An element lies beside a kink, or on one that the original avoids; or float32
                cannot hold a value.
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
            on, near = on or bool((gap == 0).any()), near or bool((gap < DISTANCE).any())
        if near and not (on and case.sample.at_kink):
            raise SpecError(f"{case.name}: an element comes near a kink")
        return on

    def key(self) -> object:
        """A key equal for equal candidates."""
        arrays = [*self.primals, *(self.ct or ())]
        return repr(self.attrs), self.kind, *((a.shape, a.tobytes()) for a in arrays)
