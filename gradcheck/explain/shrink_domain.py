"""Where an operator is asked at all: the values and attributes that its own samples have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.suite import Case

Array = NDArray[Any]

FEW: Final = 3
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
    """What no declaration says (targets between 0 and 1, a stride of at least 1), read off samples.

    `primals` has one range per primal, None for one that nothing is known of; `attrs` the numbers
    that each attribute has been seen with.
    """

    primals: tuple[Range | None, ...]
    attrs: dict[str, tuple[float, ...]]

    @classmethod
    def of(cls, case: Case, primals: Sequence[Array]) -> Domain:
        """What the samples of the case's operator have in its dialect, and what `primals` have."""
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
    few = tuple(float(v) for v in distinct) if distinct.size <= FEW else ()
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
