"""The true gradients of one case of a suite, with a 50-digit oracle behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gradcheck.errors import SpecError
from gradcheck.judge.compare import (
    ROUNDING_SAFETY,
    Interval,
    Tolerance,
    tolerance_of,
)
from gradcheck.judge.cotangents import Cotangents, draw_cotangents
from gradcheck.judge.declared_kinks import SMOOTH_DISTANCE, DeclaredKinks, KinkConstraint
from gradcheck.judge.gradient_truth import GradientTruth
from gradcheck.judge.impostors import Certifier, NarrowedGradients
from gradcheck.judge.low_precision import (
    Dispersion,
    cannot_hold,
    loses_values,
    rounded,
    scattered_arithmetics,
)
from gradcheck.numerics.arithmetic import F64, Arithmetic
from gradcheck.numerics.arrays import Array, Float, Mask, as_tuple
from gradcheck.numerics.estimator import Differences, Estimate, certain, noise_lines
from gradcheck.numerics.evaluate import Point, flatten
from gradcheck.numerics.narrow import Narrow
from gradcheck.numerics.rounding import ROUNDING, allowance, sums_kept_wide
from gradcheck.results.finding import Certificate
from gradcheck.spec.suite import Case

if TYPE_CHECKING:
    from gradcheck.judge.evidence_curves import Remainders
    from gradcheck.numerics.operator_oracle import Oracle


SINGLE: Final = "float32"
MAX_ORACLE_ELEMENTS: Final = 32
"""Elements that the oracle differences one by one where the spec's VJP is wrong."""


class Unsuitable(Exception):  # noqa: N818  a case is
    """A case that does not fit in some dtype of low precision."""


class CaseTruth:
    """The true gradients of one case, in float64 with a 50-digit oracle behind; made once.

    Raises:
        SpecError: the case contradicts its spec (a smooth sample near a kink, say).
    """

    def __init__(
        self,
        case: Case,
        convention: str = "",
        low: str = "",
        cotangents: Cotangents | None = None,
        wide: CaseTruth | None = None,
    ) -> None:
        """Evaluate forward, and draw the cotangents if none are given.

        `convention` names a system whose choice on kinks is the only one allowed (empty: any);
        `low` a dtype of low precision, to which primals and cotangents are rounded first. `wide` is
        the truth in float64, where this is the one at float32 numbers (made by `wide.at`).
        """
        self.case = case
        self.convention = convention
        self.names = case.primal_names
        self.low = low
        narrower = low or (SINGLE if wide else "")
        held = [rounded(p, narrower) for p in case.primals] if narrower else case.primals
        self.primals = tuple(held)
        self.floating = [i for i, p in enumerate(self.primals) if p.dtype.kind == "f"]
        with np.errstate(all="ignore"):
            self.outputs = self._forward(*self.primals)
        self._check_outputs()
        if cotangents is None:
            shapes = [o.shape for o in self.outputs]
            cotangents = draw_cotangents(case.draw("cotangents"), shapes)
        self.cotangents = cotangents.rounded(narrower) if narrower else cotangents
        distance = (
            SMOOTH_DISTANCE / 2 if narrower else SMOOTH_DISTANCE
        )  # what rounding may take of it
        self.declared = DeclaredKinks(case, self.primals, convention, distance)
        self._wide = wide
        self._truths: dict[int, GradientTruth] = {}
        self._certificates: dict[tuple[int, str, float], Certificate] = {}
        self._dispersions: dict[int, Dispersion] = {}

    def at(self, dtype: str) -> CaseTruth:
        """The truth at the primals and cotangents that code of `dtype` gets.

        In float32 these are rounded; the gradients there are those of the spec's VJP in float64, if
        it passes here (ADR 42).
        """
        return self._single if dtype == SINGLE else self

    @cached_property
    def _single(self) -> CaseTruth:
        if self.low or self._wide is not None:
            return self
        held = [part for ct in self.cotangents.values for part in ct]
        if all(np.array_equal(p, rounded(p, SINGLE)) for p in (*self.primals, *held)):
            return self
        return CaseTruth(self.case, self.convention, cotangents=self.cotangents, wide=self)

    def truth(self, index: int) -> GradientTruth:
        """What is known of the gradient of primal `index`."""
        if index not in self._truths:
            known = None if self._wide is None else self._wide.carried(index, self)
            near = self if known is None else self._wide or self
            truth = GradientTruth(
                name=self.names[index],
                shape=self.primals[index].shape,
                cotangents=self.cotangents.names,
                differences=Differences(
                    self._point,
                    index,
                    self._carrying,
                    near._noise_lines,
                    near.value_rounding[0],
                    known,
                ),
                kinks=self._on_kinks(index),
                settle=lambda found: self._settle(index, found.pending),
                allowance=lambda tolerance: self._allowance(index, tolerance),
            )
            self._truths[index] = truth
            if self.low:
                self._settle(index, np.ones(truth.differences.estimate.value.shape, dtype=bool))
            elif truth.kinks is not None and known is None:
                # A difference steps across a kink that lies closer than its step.
                which = np.broadcast_to(truth.kinks.known, truth.differences.estimate.value.shape)
                if which.any():
                    self._settle(index, which)
        return self._truths[index]

    def _on_kinks(self, index: int) -> KinkConstraint | None:
        """The declared kinks of a primal; those of `wide` if rounding moved no element to one."""
        if self._wide is not None:
            known = self._wide.truth(index).kinks
            on = self.declared.on(index)
            if known is not None and on is not None and np.array_equal(known.on, on):
                return known
        return self.declared.allowed(index, self.cotangents, lambda: self._oracle)

    def carried(self, index: int, beside: CaseTruth) -> Estimate | None:
        """The gradient of primal `index` at the rounded point `beside` this one; None: unknown.

        It is that of the spec's VJP, which is as near to the truth there as it is here.
        """
        here = self.truth(index)
        off = here.confirmed(self.own[index], tolerance_of("float64"))
        if off is None:
            return None
        estimate, there = here.differences.estimate, beside.own[index]
        return replace(estimate, value=there, bar=off, settled=np.zeros(there.shape, dtype=bool))

    @cached_property
    def own(self) -> list[Float]:
        """The spec's VJP in float64, [q, n] per primal (an index has none, [q, 0])."""
        with np.errstate(all="ignore"):
            rows = [self._vjp(F64, ct, self.primals) for ct in self.cotangents.values]
        return [np.stack(primal) for primal in zip(*rows, strict=True)]

    def _vjp(self, xp: Arithmetic, ct: tuple[Array, ...], primals: Sequence[Array]) -> list[Float]:
        """The spec's VJP in an arithmetic of floats: a flat row per primal."""
        parts = tuple(xp.asarray(part) for part in ct)
        bare = parts[0] if len(parts) == 1 else parts
        held = [xp.asarray(p) if p.dtype.kind == "f" else p for p in primals]
        found = as_tuple(self.case.spec.vjp(xp, bare, *held, **self.case.attrs))
        return [np.zeros(0) if g is None else np.asarray(g).reshape(-1) for g in found]

    def certain(self, index: int) -> GradientTruth:
        """The gradient of primal `index`, with all of it settled by the oracle."""
        truth = self.truth(index)
        estimate = truth.differences.estimate
        if not estimate.settled.all():
            self._settle(index, ~estimate.settled)
        return truth

    def value_dispersion(self) -> Dispersion:
        """The spread around the operator's value of forwards that round every operation."""
        want, drawn = flatten(self.outputs)[None], []
        with np.errstate(all="ignore"):
            for xp in scattered_arithmetics(self.low):
                given = [xp.asarray(p) if p.dtype.kind == "f" else p for p in self.primals]
                outputs = as_tuple(self.case.spec.forward(xp, *given, **self.case.attrs))
                drawn.append(flatten([np.asarray(o) for o in outputs])[None])
        return Dispersion.of(self.low, certain(want), drawn, np.isfinite(want))

    def certificate(self, index: int, dtype: str, slack: float = 0.0) -> Certificate:
        """The wrong gradients of primal `index` that the check rejects, widened by `slack` ulp."""
        if self._wide is not None:  # rounding changes what is true by less than any impostor
            return self._wide.certificate(index, dtype, slack)
        key = (index, dtype, slack)
        if key not in self._certificates:
            tolerance = tolerance_of(dtype, slack)
            self._certificates[key] = self._certifier.certificate(index, tolerance)
        return self._certificates[key]

    @cached_property
    def _certifier(self) -> Certifier:
        truths = [self.truth(i) if i in self.floating else None for i in range(len(self.primals))]
        return Certifier(truths, self.cotangents, self._narrowed)

    @cached_property
    def _narrowed(self) -> NarrowedGradients:
        return NarrowedGradients(
            self._vjp, self.primals, self.cotangents.values[0], [rows[0] for rows in self.own]
        )

    def short(self, dtype: str) -> Narrow | None:
        """A type that holds all primals, so that no gradient shows a rounding to it.

        None for a sample that declares to need these numbers.
        """
        if self._wide is not None:
            return self._wide.short(dtype)
        sample = self.case.sample
        if self.low or sample.exact or sample.at_kink:
            return None
        return self._certifier.short(tolerance_of(dtype))

    @classmethod
    def in_low(
        cls, case: Case, convention: str, low: str, cotangents: Cotangents | None = None
    ) -> CaseTruth:
        """The case with its primals and cotangents rounded to a dtype of low precision.

        Raises:
            Unsuitable: the dtype does not hold its primals or its results, or the operator is
                not defined at the rounded primals.
            SpecError: the case contradicts its spec before anything is rounded.
        """
        if loses_values(case.primals, tuple(rounded(p, low) for p in case.primals)):
            raise Unsuitable(f"{low} does not hold the primals of some samples")
        try:
            truth = cls(case, convention, low, cotangents)
            values = [flatten(truth.outputs), *(g for g in truth._certain or () if g is not None)]
        except (SpecError, ArithmeticError) as error:
            if isinstance(error, SpecError):
                cls(case, convention)  # at fault without rounding too, it says so itself
            reason = f"rounded to {low}, the primals of some samples are out of the domain"
            raise Unsuitable(reason) from None
        if any(cannot_hold(v, low) for v in values):
            raise Unsuitable(f"{low} does not hold the results of some samples")
        return truth

    @cached_property
    def remainders(self) -> Remainders:
        """Taylor remainders of any gradient, under the first cotangent."""
        from gradcheck.judge.evidence_curves import Remainders  # door: few ask for it

        names, case = self.names, self.case
        ct, near = self._carrying[0], self.declared.near()
        return Remainders(self._point, ct, near, lambda i: case.draw(f"taylor {names[i]}"))

    @cached_property
    def spec_is_right(self) -> bool:
        """Whether the oracle certifies the spec's own VJP here."""
        return self._certain is not None

    @cached_property
    def _point(self) -> Point:
        infinite = any(np.isinf(o).any() for o in self.outputs)
        forward = self._finite_forward if infinite else self._forward
        return Point(forward, self.primals, self.case.core_ranks)

    @cached_property
    def _noise_lines(self) -> Float:
        return noise_lines(self._point)

    def _forward(self, *primals: Array) -> tuple[Array, ...]:
        outputs = as_tuple(self.case.spec.forward(F64, *primals, **self.case.attrs))
        return tuple(np.asarray(o) for o in outputs)  # NumPy turns 0-d results into scalars

    def _finite_forward(self, *primals: Array) -> tuple[Array, ...]:
        """Forward with 0 for outputs that are infinite at the case's point, which have no slope."""
        return tuple(
            np.where(np.isinf(base), np.where(out == base, 0.0, np.nan), out)
            for out, base in zip(self._forward(*primals), self.outputs, strict=True)
        )

    @cached_property
    def _carrying(self) -> Float:
        """The cotangents [q, m] of the outputs with a slope; 0 for the others."""
        return np.where(np.isinf(flatten(self.outputs)), 0.0, self.cotangents.flat)

    def _check_outputs(self) -> None:
        for output in self.outputs:
            if output.dtype != np.float64:
                raise SpecError(
                    f"{self.case.name}: forward gives {output.dtype} in float64 arithmetic; "
                    "write constants with xp.const, and sums with xp.sum"
                )
            if np.isnan(output).any():
                raise SpecError(
                    f"{self.case.name}: forward gives NaN; an operator may give infinities by "
                    "design, NaN never: change the sample, or the forward"
                )

    @cached_property
    def _oracle(self) -> Oracle:
        from gradcheck.numerics.operator_oracle import Oracle  # door: few cases ask for it

        spec, cts = self.case.spec, self.cotangents.values
        still, close = self.declared.still(), self.declared.close()
        return Oracle(spec, self.primals, self.case.attrs, cts, still, close)

    @cached_property
    def _certain(self) -> list[Float | None] | None:
        return self._oracle.gradient()

    def _settle(self, index: int, pending: Mask) -> list[Interval]:
        """Overrule the differences by the certified VJP, or by single 50-digit differences."""
        differences = self._truths[index].differences
        certain = self._certain
        values = certain[index] if certain is not None else None
        if values is not None:
            differences.settle(values, np.ones(values.shape, dtype=bool))
            return []
        some = np.flatnonzero(pending.any(axis=0))[:MAX_ORACLE_ELEMENTS]
        exact = np.zeros(pending.shape)
        exact[:, some] = self._oracle.differences(index, some)
        which = np.zeros(pending.shape, dtype=bool)
        which[:, some] = True
        differences.settle(exact, which)
        return []

    @cached_property
    def _vjp_rounding(self) -> list[Float]:
        """The cost of rounding for each primal's gradient, [q, n], in units of u."""
        spec, attrs = self.case.spec, self.case.attrs
        primals = self._rounding_primals()
        rows, tolerance = [], tolerance_of(self.low or "float64")
        cost = 1.0 if tolerance.accumulate is None else tolerance.accumulate / tolerance.u
        for ct in self.cotangents.values:
            parts = tuple(ROUNDING.asarray(part) for part in ct)
            bare = parts[0] if len(parts) == 1 else parts
            with np.errstate(all="ignore"), sums_kept_wide(cost):
                gradients = as_tuple(spec.vjp(ROUNDING, bare, *primals, **attrs))
            costs = [allowance(g) for g in gradients]
            rows.append([np.zeros(0) if c is None else c.reshape(-1) for c in costs])
        return [np.stack(primal) for primal in zip(*rows, strict=True)]

    @cached_property
    def value_rounding(self) -> Float:
        """The cost of rounding for forward's value, [1, m], in units of u."""
        with np.errstate(all="ignore"):
            outputs = self.case.spec.forward(ROUNDING, *self._rounding_primals(), **self.case.attrs)
        costs = [allowance(o) for o in as_tuple(outputs)]
        return flatten([c for c in costs if c is not None])[None]

    def dispersion(self, index: int) -> Dispersion:
        """The spread around the gradient of primal `index` of kernels that round everything."""
        if index not in self._dispersions:
            known, draws = self.truth(index), self.scattered(index)
            estimate, kinks = known.differences.estimate, known.kinks
            on = np.array(False) if kinks is None else kinks.interval.which
            self._dispersions[index] = Dispersion.of(self.low, estimate, draws, ~on)
        return self._dispersions[index]

    def scattered(self, index: int) -> list[Float]:
        """Gradients of primal `index` by the spec's VJP, with every result rounded at random."""
        return [draw[index] for draw in self._scattered]

    @cached_property
    def _scattered(self) -> list[list[Float]]:
        drawn = []
        with np.errstate(all="ignore"):
            for xp in scattered_arithmetics(self.low):
                rows = [self._vjp(xp, ct, self.primals) for ct in self.cotangents.values]
                drawn.append([np.stack(primal) for primal in zip(*rows, strict=True)])
        return drawn

    def _rounding_primals(self) -> list[Any]:
        return [ROUNDING.asarray(p) if p.dtype.kind == "f" else p for p in self.primals]

    def _allowance(self, index: int, tolerance: Tolerance) -> Float:
        extra: Float = ROUNDING_SAFETY * tolerance.u * self._vjp_rounding[index]
        slack = self.case.spec.slack
        ulp = tolerance.extra_ulp + (0.0 if slack is None else slack.ulp)
        if ulp:
            extra = extra + ulp * 2 * tolerance.u * self._truths[index].differences.estimate.scale
        return extra
