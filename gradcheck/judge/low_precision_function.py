"""A function without a spec in float16 or bfloat16.

Nothing is differenced in low precision: forward is called with the same numbers in float64 (or in
float32, if it computes in that) and differenced there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import Answer, ask_vjp, rows_of
from gradcheck.judge.compare import ERROR_BAR_FACTOR, tolerance_of
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.low_precision import (
    DRAWS,
    MAX_RATIO,
    TERM_ROUNDINGS,
    Dispersion,
    judge_bias,
    judge_spread,
)
from gradcheck.judge.primal_check import PrimalCheck
from gradcheck.numerics.arrays import Array, Attrs, Float, dtype_named, is_float
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.estimator import NoiseProbe
from gradcheck.numerics.evaluate import REFUSALS, Function, Point, flatten
from gradcheck.numerics.narrow import BITS, short
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

FORWARD_ROUNDINGS: Final = 16.0
"""Units of u of its largest value that forward may be off in low precision."""
PROBE_DISTANCE: Final = 2.0**-4
"""Relative distance of the point that shows in which type forward keeps its values."""
UNIFORM_UNIT: Final = 0.7
"""Half-width, in units of u, of a uniform error with the spread of rounding to nearest."""
WIDE_DTYPES: Final = ("float64", "float32")


@dataclass(frozen=True, slots=True)
class LowPrecisionFunction:
    """A forward and the VJP judged, at primals of float16 or bfloat16."""

    forward: Function
    vjp: Callable[..., Any]
    primals: tuple[Array, ...]
    names: tuple[str, ...]
    attrs: Attrs
    dtype: str
    wider: Slack | None = None

    def judge(
        self, outputs: Sequence[Array], cotangents: Cotangents, answer: Answer
    ) -> list[Finding]:
        """One finding per floating primal; `outputs` is forward's value at the primals."""
        point, rounding = self.wide(outputs), LowPrecisionRounding(self, cotangents)
        found = []
        for i, primal in enumerate(self.primals):
            if not is_float(primal.dtype):
                continue
            got = answer.gradients[self.names[i]]
            if isinstance(got, Finding):
                found.append(got)
            elif isinstance(point, str):
                found.append(
                    Finding(name=self.names[i], verdict=Verdict.INCONCLUSIVE, reason=point)
                )
            else:
                found.append(self._judged(i, point, got, cotangents, rounding))
        return found

    def wide(self, outputs: Sequence[Array]) -> Point | str:
        """The point in a wider dtype that is differenced, or a sentence why there is none."""
        why = ""
        for dtype in WIDE_DTYPES:
            point = Point(self.forward, self.held(dtype))
            why = self._unlike(point, outputs, dtype)
            if not why:
                return point
        return why

    def held(self, dtype: str) -> tuple[Array, ...]:
        """The primals in another dtype; an index stays."""
        return tuple(p.astype(dtype) if is_float(p.dtype) else p for p in self.primals)

    def _unlike(self, point: Point, outputs: Sequence[Array], dtype: str) -> str:
        """Why forward shows no slope in a wider dtype; empty if it does."""
        ask = f"forward at {dtype} primals, where the truth of {self.dtype} ones is sought,"
        rng = np.random.Generator(np.random.Philox(key=key_of("aside")))
        aside = [
            (p * (1 + PROBE_DISTANCE * rng.uniform(-1.0, 1.0, p.shape))).astype(p.dtype)
            if is_float(p.dtype)
            else p
            for p in point.primals
        ]
        try:
            values = point.forward(*(p.copy() for p in point.primals))
            beside = point.forward(*(np.array(p) for p in aside))
        except REFUSALS as error:
            return f"{ask} raised {type(error).__name__}: {error}"
        kinds = {v.dtype.name for v in values}
        if kinds != {dtype}:
            return f"{ask} returns {', '.join(sorted(kinds))}: round to the primals' own dtype"
        here, there, moved = flatten(outputs), flatten(values), flatten(beside)
        if here.shape != there.shape or not np.isfinite(there).all():
            return f"{ask} gives values of another form, or infinite ones"
        off = np.max(np.abs(here - there), initial=0.0)
        if not off <= FORWARD_ROUNDINGS * tolerance_of(self.dtype).u * np.max(
            np.abs(there), initial=0.0
        ):
            return (
                f"{ask} is another function: its values differ by {off:.3g}, which rounding to "
                f"{self.dtype} does not explain"
            )
        bits = BITS["float32"] if dtype == "float64" else BITS[self.dtype]
        if np.array_equal(moved, there) or not np.array_equal(short(moved, bits), moved):
            return ""
        kept = "float32" if dtype == "float64" else self.dtype
        return f"{ask} rounds its values to {kept}: compute in the primals' own dtype"

    def _judged(
        self,
        index: int,
        point: Point,
        got: Float,
        cotangents: Cotangents,
        rounding: LowPrecisionRounding,
    ) -> Finding:
        name = self.names[index]
        box = PrimalCheck(point, index, name, cotangents, NoiseProbe(point), rounding)
        finding = self._by_spread(box, index, got, cotangents, rounding)
        if self.wider is not None and finding.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            return box.judge_wider(got, self.wider)
        return finding

    def _by_spread(
        self,
        box: PrimalCheck,
        index: int,
        got: Float,
        cotangents: Cotangents,
        rounding: LowPrecisionRounding,
    ) -> Finding:
        """The verdict by bounds, and by the spread of right values where that is known."""
        finding, truth, shape = box.judge(got), box.estimate, self.primals[index].shape
        if finding.kinked or not finding.compared:
            return finding
        draws = [truth.value + off for off in rounding.offs(index, got.shape)]
        spread = Dispersion.of(self.dtype, truth, draws, np.isfinite(truth.bar))
        if not np.all(ERROR_BAR_FACTOR * truth.bar <= spread.spread):
            return finding
        form = shape, cotangents.names
        finding = judge_spread(finding, got, truth.value, self.dtype, lambda: spread, form)
        return judge_bias(finding, got, truth.value, self.dtype, lambda: draws)


class LowPrecisionRounding:
    """What rounding may cost gradients in float16 or bfloat16, measured on the VJP judged.

    The VJP is called in float64, at primals and cotangents moved by one rounding; its loss in the
    dtype itself is added, up to a part of the last place of the largest element. A wrong formula is
    equally wrong at all of these points, and gains nothing.
    """

    def __init__(self, function: LowPrecisionFunction, cotangents: Cotangents) -> None:
        """Call nothing yet: most gradients pass without an allowance."""
        self._function, self._cotangents = function, cotangents
        self.tolerance = tolerance_of(function.dtype)

    def cost(self, index: int, reach: Float, terms: Float | None = None) -> Float:
        """Allowance for the gradient of primal `index`, [q, n]."""
        offs = self.offs(index, reach.shape)
        return np.asarray(MAX_RATIO * np.sqrt(np.mean(np.square(offs), axis=0)))

    def offs(self, index: int, shape: tuple[int, ...]) -> list[Float]:
        """How far each draw moves the gradient [q, n] of primal `index`; zeros if VJP refuses."""
        return [draw[index] for draw in self._draws] or [np.zeros(shape)]

    @cached_property
    def _draws(self) -> list[list[Float]]:
        out = []
        here = self._rows("float64", self._function.primals, self._cotangents.values)
        for k in range(DRAWS if here is not None else 0):
            rng = np.random.Generator(np.random.Philox(key=key_of("low", k)))
            primals = [self._moved(p, rng) for p in self._function.primals]
            cts = [tuple(self._moved(part, rng) for part in ct) for ct in self._cotangents.values]
            there = self._rows("float64", primals, cts)
            rough = self._rows(self._function.dtype, primals, cts)
            fine = self._rows("float64", self._held(primals), [self._held(ct) for ct in cts])
            if here is None or there is None or fine is None or rough is None:
                return []
            out.append([self._off(*rows) for rows in zip(here, there, rough, fine, strict=True)])
        return out

    def _off(self, here: Float, there: Float, rough: Float, fine: Float) -> Float:
        """The effect of one rounding of the arguments, and of the loss inside, in one draw."""
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(here), axis=1, initial=0.0, keepdims=True)
            lost = np.minimum(np.abs(rough - fine), TERM_ROUNDINGS * self.tolerance.u * largest)
            off = np.hypot(there - here, lost)
        return np.where(np.isfinite(off), off, 0.0)

    def _moved(self, values: Array, rng: np.random.Generator) -> Array:
        if not is_float(values.dtype):
            return values
        wide = values.astype(np.float64)
        unit = UNIFORM_UNIT * self.tolerance.u
        return np.asarray(wide * (1 + unit * rng.uniform(-1.0, 1.0, wide.shape)))

    def _held(self, values: Sequence[Array]) -> tuple[Array, ...]:
        kind = dtype_named(self._function.dtype)
        return tuple(v.astype(kind).astype(np.float64) if is_float(v.dtype) else v for v in values)

    def _rows(
        self, dtype: str, primals: Sequence[Array], cts: Sequence[tuple[Array, ...]]
    ) -> list[Float] | None:
        function, kind = self._function, dtype_named(dtype)
        given = [p.astype(kind) if is_float(p.dtype) else p for p in primals]
        parts = [tuple(part.astype(kind) for part in ct) for ct in cts]
        try:
            answer = ask_vjp(function.vjp, parts, given, function.names, function.attrs)
        except Broken:
            return None
        return rows_of(answer, function.names, len(parts))
