"""float16 and bfloat16: where a case applies, and whether its errors are those of rounding.

Nothing is differenced in low precision (the best central difference is off by 1e-3). Primals and
cotangents are rounded to the dtype first; the truth is the certified 50-digit gradient there.

A bound adds up the worst that rounding may do. In bfloat16 that soon is a tenth of the gradient,
and hides an error of 2%. So the operator's own formula is run several times with every result
rounded up or down at random. The spread of the results shows what rounding does to each element;
the errors of a kernel that rounds no more often are of that size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gradcheck.judge.compare import heat_map, tolerance_of
from gradcheck.numerics.arrays import Array, Float, Mask, dtype_limits, dtype_named
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.narrow import ScatteredArithmetic
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict

Draws = Callable[[], Sequence[Float]]
MIN_SUBNORMALS: Final = 256.0
"""The largest number of a tensor, over the dtype's smallest subnormal, at least."""
MIN_BIAS_ERRORS: Final = 16
"""Errors needed for their mean to be significant."""
MIN_LEANING_ERRORS: Final = 64
"""Errors that are significant if nearly all have the same sign."""
LEANING_SHARE: Final = 0.97
"""The part of them that must have the same sign."""
MAX_BIAS_RATIO: Final = 4.0
"""The mean error over that of right values rounded at random, at most."""
MIN_BIAS: Final = 0.25
"""The mean error in ulp that counts as a bias: that of truncation is half a unit."""
HALF_ULP: Final = 0.55
"""Ulp that rounding to nearest never exceeds; a third of the errors of truncation does."""
ONE_ROUNDING: Final = 1.05
"""Ulp that one rounding or truncation can cost."""
BEYOND_SHARE: Final = 0.2
DRAWS: Final = 8
MIN_ROW_SHARE: Final = 0.25
"""The least spread of an element, relative to its row's: eight draws may be lucky."""
TERM_ROUNDINGS: Final = 0.5
"""Units of u that another implementation may lose on each term of a sum."""
ROUNDING_DEVIATION: Final = 0.3
"""The standard deviation of one rounding, in ulp."""
MAX_MEAN_RATIO: Final = 2.0
"""Errors over their spread, in the mean square, at most."""
MAX_RATIO: Final = 6.0
"""The error of one element over its spread, at most."""
MAX_RATIO_ROUNDED_ONCE: Final = 3.0
"""The same limit, where all other elements show that the kernel rounds once."""
NEAREST_ULP: Final = 0.51
"""Ulp that one rounding to nearest costs, of a value that is right in float32."""
NEAREST_SHARE: Final = 0.9
"""The part of the elements within NEAREST_ULP, for a kernel that rounds once."""
MIN_INEXACT: Final = 16
"""Elements that the dtype does not hold exactly, needed to tell how often a kernel rounds."""
FAIL_EXCESS: Final = 2.0
"""An error so many times its limit is a FAIL, and no difference of implementations."""
MAX_ROW_SPREAD: Final = 0.1
"""The largest spread, relative to its row: a kernel may not lose as much as rounding every
operation does."""
ZERO_ROW_SPREAD: Final = 4.0
"""Above this spread a row counts as zero, and bounds alone judge it."""


def rounded(values: Array, dtype: str) -> Array:
    """`values` in float64, rounded to the dtype; integers unchanged."""
    if values.dtype.kind != "f":
        return values
    with np.errstate(over="ignore"):
        out = np.asarray(values.astype(dtype_named(dtype)).astype(np.float64))
    out.flags.writeable = False
    return out


def loses_values(before: Sequence[Array], after: Sequence[Array]) -> bool:
    """Whether rounding made a finite number infinite, or a number zero."""
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a.dtype.kind == "f"]
    return any(
        bool(np.any(np.isinf(b) & np.isfinite(a)) or np.any((b == 0) & (a != 0))) for a, b in pairs
    )


def cannot_hold(values: Float, dtype: str) -> bool:
    """Whether the dtype overflows for some finite value, or all values are near its least ones."""
    largest = float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))
    if 0 < largest < MIN_SUBNORMALS * float(dtype_limits(dtype).smallest_subnormal):
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        typed = values.astype(dtype_named(dtype)).astype(np.float64)
    return bool(np.any(np.isfinite(values) & ~np.isfinite(typed)))


def last_place(values: Float, dtype: str) -> Float:
    """Units in the last place of values in the dtype; 0 where it holds none."""
    with np.errstate(all="ignore"):
        place = np.spacing(np.abs(values).astype(dtype_named(dtype))).astype(np.float64)
    return np.where(np.isfinite(place), place, 0.0)


def within_last_place(got: Float, want: Float, dtype: str) -> bool:
    """Whether every element is within one unit in the last place of its true value."""
    with np.errstate(invalid="ignore"):  # an infinity where one belongs
        return bool(np.all((got == want) | (np.abs(got - want) <= last_place(want, dtype))))


def bias(got: Float, want: Float, dtype: str, drawn: Draws) -> float | None:
    """The mean error away from zero in ulp, where rounding to nearest does not explain it; or None.

    `got`, `want` and each of `drawn()`, right values rounded at random inside, are [q, n]. A mean
    alone is no proof: thirds of short numbers are all off to the same side, and so are elements
    that share a rounded factor. So many elements must also be off by more than half a unit; and the
    mean exceeds that of the values drawn, or nearly all errors have the same sign.
    """
    errors = _in_places(got, want, dtype)
    if errors.size < MIN_BIAS_ERRORS:
        return None
    mean = float(errors.mean())
    side = errors * np.sign(mean)
    if abs(mean) <= MIN_BIAS or np.mean(side > HALF_ULP) <= BEYOND_SHARE:
        return None
    others = [e.mean() for draw in drawn() if (e := _in_places(draw, want, dtype)).size]
    typical = math.sqrt(np.mean(np.square(others))) if others else 0.0
    alone = errors.size >= MIN_LEANING_ERRORS and np.mean(side > 0) >= LEANING_SHARE
    return mean if alone or abs(mean) > MAX_BIAS_RATIO * typical else None


def _in_places(got: Float, want: Float, dtype: str) -> Float:
    """Errors away from zero in ulp, of elements that the dtype does not hold exactly."""
    with np.errstate(all="ignore"):
        near = want.astype(dtype_named(dtype)).astype(np.float64)
        inexact = (near != want) & np.isfinite(got) & np.isfinite(near) & (near != 0)
        off = (got[inexact] - want[inexact]) * np.sign(want[inexact])
        errors = off / last_place(want[inexact], dtype)
    return np.asarray(
        errors[np.abs(errors) <= ONE_ROUNDING]
    )  # what was lost inside is no last step's


def judge_bias(finding: Finding, got: Float, want: Float, dtype: str, drawn: Draws) -> Finding:
    """A pass becomes INCONCLUSIVE where its errors are biased beyond rounding to nearest."""
    off = bias(got, want, dtype, drawn) if finding.verdict is Verdict.PASS else None
    if off is None:
        return finding
    where = "toward zero: they are truncated" if off < 0 else "away from zero: rounded up"
    reason = (
        f"every element is within its tolerance, but they lean by {off:.2g} ulp {where}, or all "
        "of them share a factor that was rounded"
    )
    return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=reason)


def scattered_arithmetics(dtype: str) -> Iterator[ScatteredArithmetic]:
    """Arithmetics that round every result to the dtype, up or down at random."""
    for k in range(DRAWS):
        draws = np.random.Generator(np.random.Philox(key=key_of("dispersion", k)))
        yield ScatteredArithmetic(dtype_named(dtype), draws)


def judge_spread(
    finding: Finding,
    got: Float,
    want: Float,
    dtype: str,
    dispersion: Callable[[], Dispersion],
    form: tuple[tuple[int, ...], Sequence[str]],
) -> Finding:
    """The finding by bounds, unless its errors are not of the size of those of rounding.

    Elements that the bounds leave open pass if their errors are of that size. `form` is the shape
    of a row, and the names of the cotangents. A finding by a wider bound stays.
    """
    undecided = finding.verdict is Verdict.INCONCLUSIVE
    if finding.slack or not (undecided or finding.verdict is Verdict.PASS):
        return finding
    if not undecided and within_last_place(got, want, dtype):
        return finding
    return dispersion().judge(finding, got, *form)


@dataclass(frozen=True, slots=True)
class Dispersion:
    """The spread [q, n] of right values around `want` [q, n] in a dtype, where it `counts`."""

    dtype: str
    want: Float
    counts: Mask
    spread: Float
    _place: Float
    _rows: Float

    @classmethod
    def of(cls, dtype: str, truth: Estimate, draws: Sequence[Float], counts: Mask) -> Dispersion:
        """The spread of gradients drawn, each [q, n], around the true one, where it `counts`."""
        tolerance, counts = tolerance_of(dtype), counts & np.isfinite(truth.value)
        want = np.where(counts, truth.value, 0.0)
        with np.errstate(all="ignore"):
            place = last_place(want, dtype)
            off = np.where(counts, np.stack(draws) - want, 0.0)
            square = np.mean(off**2, axis=0)
            row = np.mean(square, axis=1, keepdims=True)
            scale = np.where(np.isfinite(truth.scale), truth.scale, 0.0)
            terms = TERM_ROUNDINGS * tolerance.u * scale / np.sqrt(np.maximum(truth.terms, 1))
            least = np.maximum(MIN_ROW_SHARE**2 * row, terms**2)
            tiny = tolerance.underflow / MAX_RATIO
            spread = np.sqrt(np.maximum(square, least) + (ROUNDING_DEVIATION * place) ** 2) + tiny
            rows = np.sqrt(row[:, 0] / np.mean(want**2, axis=1))
            # What overflows in the dtype says nothing of how it is rounded, nor do zeros.
            rows = np.where(np.isnan(rows), np.inf, rows)
            spread = (
                spread
                * np.where(rows < ZERO_ROW_SPREAD, np.minimum(1.0, MAX_ROW_SPREAD / rows), 1.0)[
                    :, None
                ]
            )
        return cls(dtype, want, counts, spread, place, rows)

    def judge(
        self, finding: Finding, got: Float, shape: tuple[int, ...], cotangents: Sequence[str]
    ) -> Finding:
        """The finding on `got` [q, n], not failed by bounds, by the size of its errors."""
        judged = self._rows < ZERO_ROW_SPREAD
        if not judged.any():
            return finding
        times, limit = self._times(got)
        times = np.where(judged[:, None], times, 0.0)
        typical = MAX_MEAN_RATIO * (
            1 + 0.5 / math.sqrt(times.shape[1])
        )  # the fewer, the more by chance
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
        if np.any(judged & (self._rows > MAX_ROW_SPREAD)):
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
        largest, (limit, typical, mean) = float(times.max()), limits
        says = (
            f"an error is {largest:.3g} times what rounding every operation to {self.dtype} does "
            f"there; at most {limit:.3g} times is explained"
            if largest / limit >= mean / typical
            else f"errors are {mean:.3g} times those of rounding every operation to "
            f"{self.dtype}, in the mean square; at most {typical:.3g} times is explained"
        )
        certain = max(largest / limit, mean / typical) > FAIL_EXCESS
        wrong = times > (limit if largest > limit else typical)
        row, element = divmod(int(np.argmax(times)), times.shape[1])
        name = cotangents[row]
        return replace(
            finding,
            verdict=Verdict.FAIL if certain else Verdict.INCONCLUSIVE,
            reason=f"every element is within its tolerance, but {says}",
            failed=int(np.count_nonzero(wrong)) if certain else 0,
            worst=(self._miss(got, row, element, limit, shape, name),),
            heat=heat_map(times[row] / limit, wrong[row] & certain, wrong[row], shape, name),
        )

    def _times(self, got: Float) -> tuple[Float, float]:
        """Errors as multiples of their spread, and the largest multiple that is explained."""
        with np.errstate(all="ignore"):
            off = np.where(self.counts, np.abs(got - self.want), 0.0)
            times = np.nan_to_num(off / self.spread, nan=0.0)
            typed = self.want.astype(dtype_named(self.dtype)).astype(np.float64)
        inexact = self.counts & (typed != self.want)
        near = off[inexact] <= NEAREST_ULP * self._place[inexact]
        once = near.size >= MIN_INEXACT and np.mean(near) >= NEAREST_SHARE
        return times, MAX_RATIO_ROUNDED_ONCE if once else MAX_RATIO

    def _visible(self, limit: float) -> float | None:
        """The largest relative error of a non-zero element that would not be seen."""
        seen = self.counts & (self.want != 0) & (self._rows < ZERO_ROW_SPREAD)[:, None]
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
