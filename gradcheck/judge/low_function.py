"""A black box in float16 or bfloat16: its gradients against those of the same forward, kept wide.

Nothing is differenced in low precision. Forward is called with the same numbers in float64 (in
float32, where it keeps no more inside), and differenced there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.returned import Broken
from gradcheck.judge.black_box import PrimalCheck
from gradcheck.judge.compare import KAPPA, rules_of
from gradcheck.judge.conditioning import rows_of
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.dispersion import DRAWS, LARGEST, TERMS, Dispersion, as_rounding
from gradcheck.judge.lowprecision import unbiased
from gradcheck.judge.probe import Answer, ask_vjp
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.dtypes import dtype_named, is_float
from gradcheck.numerics.estimator import NoiseProbe
from gradcheck.numerics.evaluate import REFUSALS, Function, Point, flatten
from gradcheck.numerics.narrow import BITS, short
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

Array = NDArray[Any]
Float = NDArray[np.float64]

AGREES: Final = 16.0
"""Units of u of its largest value that forward may be off in low precision."""
NEAREST: Final = 0.7
"""Units of u either way that spread as much as rounding to nearest does, on the average."""
ASIDE: Final = 2.0**-4
"""How far beside the primals forward is asked what its values are kept in."""
WIDE: Final = ("float64", "float32")


@dataclass(frozen=True, slots=True)
class LowFunction:
    """A forward and the VJP judged, at primals of a dtype of low precision."""

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
        point, rounding = self.wide(outputs), Rounding(self, cotangents)
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
        """Where the truth comes from: forward at the same numbers in a wider dtype.

        Else a sentence that says why there is none.
        """
        why = ""
        for dtype in WIDE:
            point = Point(self.forward, self.held(dtype))
            why = self._unlike(point, outputs, dtype)
            if not why:
                return point
        return why

    def held(self, dtype: str) -> tuple[Array, ...]:
        """The primals in another dtype; an index stays."""
        return tuple(p.astype(dtype) if is_float(p.dtype) else p for p in self.primals)

    def _unlike(self, point: Point, outputs: Sequence[Array], dtype: str) -> str:
        """Why forward shows no more in a wider dtype than here; empty if it does."""
        ask = f"forward at {dtype} primals, where the truth of {self.dtype} ones is sought,"
        rng = np.random.Generator(np.random.Philox(key=key_of("aside")))
        aside = [
            (p * (1 + ASIDE * rng.uniform(-1.0, 1.0, p.shape))).astype(p.dtype)
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
        if not off <= AGREES * rules_of(self.dtype).u * np.max(np.abs(there), initial=0.0):
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
        self, index: int, point: Point, got: Float, cotangents: Cotangents, rounding: Rounding
    ) -> Finding:
        name = self.names[index]
        box = PrimalCheck(point, index, name, cotangents, NoiseProbe(point), rounding)
        finding = self._by_spread(box, index, got, cotangents, rounding)
        if self.wider is not None and finding.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            return box.judge_wider(got, self.wider)
        return finding

    def _by_spread(
        self, box: PrimalCheck, index: int, got: Float, cotangents: Cotangents, rounding: Rounding
    ) -> Finding:
        """The verdict by bounds, and by what rounding does to right values where that is known."""
        finding, truth, shape = box.judge(got), box.estimate, self.primals[index].shape
        if finding.kinked or not finding.compared:
            return finding
        draws = [truth.value + off for off in rounding.offs(index, got.shape)]
        spread = Dispersion.of(self.dtype, truth, draws, np.isfinite(truth.bar))
        if not np.all(KAPPA * truth.bar <= spread.spread):
            return finding
        form = shape, cotangents.names
        finding = as_rounding(finding, got, truth.value, self.dtype, lambda: spread, form)
        return unbiased(finding, got, truth.value, self.dtype, lambda: draws)


class Rounding:
    """What rounding may cost gradients at a point of low precision, asked of the VJP judged.

    Kept wide, at primals and cotangents moved by what one rounding may take; and what it loses in
    the dtype beside that, up to a part of the last place of the largest element. A wrong formula is
    equally wrong at all of them, and gains nothing.
    """

    def __init__(self, of: LowFunction, cotangents: Cotangents) -> None:
        """Ask nothing yet: most gradients pass without an allowance."""
        self.rules = rules_of(of.dtype)
        self._of, self._cotangents = of, cotangents

    def cost(self, index: int, reach: Float, size: Float | None = None) -> Float:
        """Allowance for the gradient of primal `index`, [q, n]."""
        offs = self.offs(index, reach.shape)
        return np.asarray(LARGEST * np.sqrt(np.mean(np.square(offs), axis=0)))

    def offs(self, index: int, shape: tuple[int, ...]) -> list[Float]:
        """How far each draw moves the gradient [q, n] of primal `index`; zeros if VJP refuses."""
        return [draw[index] for draw in self._draws] or [np.zeros(shape)]

    @cached_property
    def _draws(self) -> list[list[Float]]:
        out = []
        here = self._ask("float64", self._of.primals, self._cotangents.values)
        for k in range(DRAWS if here is not None else 0):
            rng = np.random.Generator(np.random.Philox(key=key_of("low", k)))
            primals = [self._moved(p, rng) for p in self._of.primals]
            cts = [tuple(self._moved(part, rng) for part in ct) for ct in self._cotangents.values]
            there = self._ask("float64", primals, cts)
            rough = self._ask(self._of.dtype, primals, cts)
            fine = self._ask("float64", self._typed(primals), [self._typed(ct) for ct in cts])
            if here is None or there is None or fine is None or rough is None:
                return []
            out.append([self._off(*rows) for rows in zip(here, there, rough, fine, strict=True)])
        return out

    def _off(self, here: Float, there: Float, rough: Float, fine: Float) -> Float:
        """What moves with a rounding of what is given, and what is lost inside; in one draw."""
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(here), axis=1, initial=0.0, keepdims=True)
            lost = np.minimum(np.abs(rough - fine), TERMS * self.rules.u * largest)
            off = np.hypot(there - here, lost)
        return np.where(np.isfinite(off), off, 0.0)

    def _moved(self, values: Array, rng: np.random.Generator) -> Array:
        if not is_float(values.dtype):
            return values
        wide = values.astype(np.float64)
        unit = NEAREST * self.rules.u
        return np.asarray(wide * (1 + unit * rng.uniform(-1.0, 1.0, wide.shape)))

    def _typed(self, values: Sequence[Array]) -> tuple[Array, ...]:
        """Values in float64 as the dtype holds them."""
        kind = dtype_named(self._of.dtype)
        return tuple(v.astype(kind).astype(np.float64) if is_float(v.dtype) else v for v in values)

    def _ask(
        self, dtype: str, primals: Sequence[Array], cts: Sequence[tuple[Array, ...]]
    ) -> list[Float] | None:
        kind, of = dtype_named(dtype), self._of
        given = [p.astype(kind) if is_float(p.dtype) else p for p in primals]
        parts = [tuple(part.astype(kind) for part in ct) for ct in cts]
        try:
            answer = ask_vjp(of.vjp, parts, given, of.names, of.attrs)
        except Broken:
            return None
        return rows_of(answer, of.names, len(parts))
