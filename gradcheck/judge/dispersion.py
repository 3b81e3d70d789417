"""How far kernels that round every operation lie from the truth, in a dtype of low precision.

A bound adds up the worst that rounding may do. In bfloat16 that is soon a tenth of the gradient,
and an error of 2% drowns in it. So the operator's own text is run several times with every result
rounded up or down at random. The spread of what it gives is what rounding does here, to each
element; the errors of a kernel that rounds no more often are of that size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import rules_of
from gradcheck.judge.heat import heat_of
from gradcheck.judge.lowprecision import last_place, nearby
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.dtypes import dtype_named
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.narrow import ScatteredArithmetic
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

DRAWS: Final = 8
LUMPY: Final = 0.25
"""An element may have been lucky eight times: it counts for this part of its row's typical."""
TERMS: Final = 0.5
"""Units of u that another text of the formula may lose on each term of a sum, one as the other."""
PLACE: Final = 0.3
"""Ulp: the standard deviation of one rounding."""
TYPICAL: Final = 2.0
"""Times the spread that errors may be, in the mean square."""
LARGEST: Final = 6.0
"""Times its spread that the error of one element may be."""
ONCE: Final = 3.0
"""The same, where all other elements show that the kernel rounds once."""
NEAREST: Final = 0.51
"""Ulp that one rounding to nearest costs, of a value that is right in float32."""
MOST: Final = 0.9
"""The part of the elements that must lie so near for a kernel to count as one that rounds once."""
ENOUGH: Final = 16
"""Elements that the dtype does not hold, needed to tell how often a kernel rounds."""
CERTAIN: Final = 2.0
"""Times what is allowed, above which an error is no matter of another text of the formula."""
LOST: Final = 0.1
"""The spread, as a part of its row, above which it is cut to that: what rounding every operation
loses is more than a kernel may lose."""
NOTHING: Final = 4.0
"""The same, above which a row is zero but for rounding: bounds alone judge it."""


def scattering(dtype: str) -> Iterator[ScatteredArithmetic]:
    """Arithmetics that round every result to the dtype, each in another way."""
    for k in range(DRAWS):
        draws = np.random.Generator(np.random.Philox(key=key_of("dispersion", k)))
        yield ScatteredArithmetic(dtype_named(dtype), draws)


def as_rounding(
    finding: Finding,
    got: Float,
    want: Float,
    dtype: str,
    dispersion: Callable[[], Dispersion],
    form: tuple[tuple[int, ...], Sequence[str]],
) -> Finding:
    """A finding by bounds, unless its errors are of another size than those of rounding.

    What the bounds leave open passes if they are of that size. `form` is the shape of a row, and
    the names of the cotangents. A wider bound that was asked for stays.
    """
    undecided = finding.verdict is Verdict.INCONCLUSIVE
    if finding.slack or not (undecided or finding.verdict is Verdict.PASS):
        return finding
    if not undecided and nearby(got, want, dtype):
        return finding
    return dispersion().judge(finding, got, *form)


@dataclass(frozen=True, slots=True)
class Dispersion:
    """The spread [q, n] of right values around `want` [q, n] in a dtype; `counts`: where."""

    dtype: str
    want: Float
    counts: Mask
    spread: Float
    _place: Float
    _rows: Float

    @classmethod
    def of(cls, dtype: str, truth: Estimate, draws: Sequence[Float], counts: Mask) -> Dispersion:
        """Of gradients drawn, each [q, n], around the true one; it is judged where `counts`."""
        rules, counts = rules_of(dtype), counts & np.isfinite(truth.value)
        want = np.where(counts, truth.value, 0.0)
        with np.errstate(all="ignore"):
            place = last_place(want, dtype)
            off = np.where(counts, np.stack(draws) - want, 0.0)
            square = np.mean(off**2, axis=0)
            row = np.mean(square, axis=1, keepdims=True)
            scale = np.where(np.isfinite(truth.scale), truth.scale, 0.0)
            terms = TERMS * rules.u * scale / np.sqrt(np.maximum(truth.terms, 1))
            least = np.maximum(LUMPY**2 * row, terms**2)
            tiny = rules.underflow / LARGEST
            spread = np.sqrt(np.maximum(square, least) + (PLACE * place) ** 2) + tiny
            rows = np.sqrt(row[:, 0] / np.mean(want**2, axis=1))
            # What overflows in the dtype says nothing of how it is rounded, nor do zeros.
            rows = np.where(np.isnan(rows), np.inf, rows)
            spread = spread * np.where(rows < NOTHING, np.minimum(1.0, LOST / rows), 1.0)[:, None]
        return cls(dtype, want, counts, spread, place, rows)

    def judge(
        self, finding: Finding, got: Float, shape: tuple[int, ...], cotangents: Sequence[str]
    ) -> Finding:
        """A finding on `got` [q, n] that bounds alone have not failed, by its errors' spread."""
        judged = self._rows < NOTHING
        if not judged.any():
            return finding
        times, limit = self._times(got)
        times = np.where(judged[:, None], times, 0.0)
        typical = TYPICAL * (1 + 0.5 / math.sqrt(times.shape[1]))  # the fewer, the more by chance
        mean = float(np.sqrt(np.mean(times**2, axis=1)).max())
        excess = max(mean / typical, float(times.max()) / limit)
        if excess <= 1:
            if finding.verdict is Verdict.PASS:
                return finding
            return replace(
                finding,
                verdict=Verdict.PASS,
                reason="",
                unresolved=0,
                heat=None,
                smallest_visible_error=self._visible(limit),
            )
        if np.any(judged & (self._rows > LOST)):
            return finding
        return self._rejected(finding, got, times, (limit, typical, mean), shape, cotangents)

    def _rejected(
        self,
        finding: Finding,
        got: Float,
        times: Float,
        limits: tuple[float, float, float],
        shape: tuple[int, ...],
        cotangents: Sequence[str],
    ) -> Finding:
        """A finding on errors that are larger than rounding explains."""
        largest, (limit, typical, mean) = float(times.max()), limits
        says = (
            f"an error is {largest:.3g} times what rounding every operation to {self.dtype} does "
            f"there; at most {limit:.3g} times is explained"
            if largest / limit >= mean / typical
            else f"errors are {mean:.3g} times those of rounding every operation to "
            f"{self.dtype}, in the mean square; at most {typical:.3g} times is explained"
        )
        certain = max(largest / limit, mean / typical) > CERTAIN
        wrong = times > (limit if largest > limit else typical)
        row, element = divmod(int(np.argmax(times)), times.shape[1])
        name = cotangents[row]
        return replace(
            finding,
            verdict=Verdict.FAIL if certain else Verdict.INCONCLUSIVE,
            reason=f"every element is in its bound, but {says}",
            failed=int(np.count_nonzero(wrong)) if certain else 0,
            worst=(self._miss(got, row, element, limit, shape, name),),
            heat=heat_of(times[row] / limit, wrong[row] & certain, wrong[row], shape, name),
        )

    def _times(self, got: Float) -> tuple[Float, float]:
        """Errors as multiples of their spread, and the largest multiple that is explained."""
        with np.errstate(all="ignore"):
            off = np.where(self.counts, np.abs(got - self.want), 0.0)
            times = np.nan_to_num(off / self.spread, nan=0.0)
            typed = self.want.astype(dtype_named(self.dtype)).astype(np.float64)
        inexact = self.counts & (typed != self.want)
        near = off[inexact] <= NEAREST * self._place[inexact]
        once = near.size >= ENOUGH and np.mean(near) >= MOST
        return times, ONCE if once else LARGEST

    def _visible(self, limit: float) -> float | None:
        """The largest relative error, of elements that are not zero, that would not be seen."""
        seen = self.counts & (self.want != 0) & (self._rows < NOTHING)[:, None]
        return float(np.max(limit * self.spread[seen] / np.abs(self.want[seen]), initial=0.0))

    def _miss(
        self,
        got: Float,
        row: int,
        element: int,
        limit: float,
        shape: tuple[int, ...],
        cotangent: str,
    ) -> Miss:
        want, given = float(self.want[row, element]), float(got[row, element])
        place = float(self._place[row, element])
        return Miss(
            index=tuple(int(i) for i in np.unravel_index(element, shape)),
            got=given,
            want=want,
            error=abs(given - want),
            bound=limit * float(self.spread[row, element]),
            error_bar=0.0,
            ulp=abs(given - want) / place if want != 0 and place else None,
            cotangent=cotangent,
        )
