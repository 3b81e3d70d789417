"""One implementation at one case, its other points, and what is right at each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError, Unsupported
from gradcheck.implementations.checked_call import bare
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import ask_forward
from gradcheck.judge.compare import CANCELLATION_FACTOR, ROUNDING_SAFETY
from gradcheck.judge.contract.asking import (
    ENDS,
    Asking,
    Cotangent,
    Gradients,
    Unasked,
    Unfit,
    difference,
    finite,
    in_digits,
    place,
    quiet,
)
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Array, Attrs, Float, as_tuple, dtype_limits
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.rounding import ROUNDING, allowance
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Case


class Resized(Draw):
    """Draws as its base does, with `after` elements wherever `before` are asked for."""

    def __init__(self, before: int, after: int, *names: object) -> None:
        """Seed with `names`."""
        super().__init__(*names)
        self.before, self.after = before, after

    def _to(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.after if n == self.before else n for n in shape)

    def normal(self, *shape: int, scale: float = 1.0) -> Float:
        """As in `Draw`."""
        return super().normal(*self._to(shape), scale=scale)

    def uniform(self, low: float, high: float, *shape: int) -> Float:
        """As in `Draw`."""
        return super().uniform(low, high, *self._to(shape))

    def signs(self, *shape: int) -> Float:
        """As in `Draw`."""
        return super().signs(*self._to(shape))

    def powers(self, *shape: int) -> Float:
        """As in `Draw`."""
        return super().powers(*self._to(shape))

    def near(self, centre: float, *shape: int) -> Float:
        """As in `Draw`."""
        return super().near(centre, *self._to(shape))

    def away(self, points: float | Sequence[float], *shape: int, scale: float = 1.0) -> Float:
        """As in `Draw`."""
        return super().away(points, *self._to(shape), scale=scale)

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int64]:
        """As in `Draw`; a bound that is the size of an axis follows it."""
        return super().integers(low, *self._to((high,)), *self._to(shape))

    def probabilities(self, *shape: int) -> Float:
        """As in `Draw`."""
        return super().probabilities(*self._to(shape))

    def permutation(self, count: int) -> NDArray[np.int64]:
        """As in `Draw`."""
        return super().permutation(*self._to((count,)))


def resized(case: Case, axis: int, size: int) -> Case | None:
    """The case with `size` elements along one axis of its first floating primal.

    Every axis of the same size goes with it, in all primals. None where the sample does not let
    itself be drawn so: it writes numbers out, or sizes are bound to something else.
    """
    first = next(p for p in case.primals if p.dtype.kind == "f")
    before = first.shape[axis]
    sample, seed = case.sample, case.seed
    draw = Resized(before, size, seed, case.suite, case.spec.name, sample.name, "primals", size)
    try:
        drawn = tuple(np.asarray(p) for p in sample.primals(draw))
    except Exception:  # noqa: BLE001  a sample may compute anything with what it draws
        return None
    name = f"{sample.name}.{axis % first.ndim}.{size}"
    other = replace(case, sample=replace(sample, name=name, primals=lambda _: drawn))
    try:
        shapes = [p.shape for p in other.primals]
    except SpecError:
        return None
    wanted = [tuple(size if n == before else n for n in p.shape) for p in case.primals]
    return other if shapes == wanted else None


def several_rows(primals: Sequence[Any]) -> bool:
    """Whether the first floating primal has two axes, with several elements along each."""
    first = next((p for p in primals if p.dtype.kind == "f"), None)
    return first is not None and first.ndim > 1 and min(first.shape) > 1


REFUSALS: Final = (ArithmeticError, IndexError, TypeError, ValueError, SpecError)
"""What a spec raises away from its samples: it is not defined there."""
SKIPPED: Final = (Verdict.INVALID, Verdict.INCONCLUSIVE)
"""Verdicts of the ordinary judgement that say nothing about the code."""


class Subject(Asking):
    """One implementation of one case in one dtype, and what is known to be right there."""

    # ── other points ─────────────────────────────────────────────────────────────────────────

    def at(self, case: Case) -> Subject:
        """The same implementation at another case.

        Raises:
            Unfit: the operator is not defined there, or not supported.
        """
        with quiet():
            try:
                truth = CaseTruth(case, low=self.truth.low)
            except REFUSALS as error:
                raise Unfit(str(error)) from error
        return Subject(truth, self.binding, self.dtype, self.lacking)

    def without_lacking(self) -> Subject:
        """This subject without the gradients for which a call gives None.

        Raises:
            Unfit: it gives none at all.
            Broken: the call failed.
        """
        absent = self.absent()
        if absent == {*self.names}:
            raise Unfit("it gives no gradient")
        return Subject(self.truth, self.binding, self.dtype, absent)

    def renamed(self, suffix: str, attrs: Attrs | None = None) -> Subject:
        """The case with other random values of the same shapes, or with other attributes.

        Raises:
            Unfit: the operator is not defined there, or not supported.
        """
        sample = self.case.sample
        if attrs is None:
            return self.at(
                replace(self.case, sample=replace(sample, name=f"{sample.name}.{suffix}"))
            )
        fixed = self.truth.case.primals
        every = dict(zip(self.truth.names, fixed, strict=True))
        spec = self.case.spec
        values = tuple(every.get(name, np.zeros(spec.core_ranks[i] * (1,)))
                       for i, name in enumerate(spec.primals))  # fmt: skip
        return self.at(
            replace(
                self.case,
                sample=replace(
                    sample,
                    name=f"{sample.name}.{suffix}",
                    attrs={**sample.attrs, **attrs},
                    primals=lambda _: values,
                ),
            )
        )

    def resized(self, axis: int, size: int) -> Subject:
        """The case with another size of one axis of the first primal, and of all that share it.

        Raises:
            Unfit: the operator is not defined there, or not supported.
        """
        case = resized(self.case, axis, size)
        if case is None:
            raise Unfit("the sample cannot be drawn in that size")
        other = self.at(case)
        before = next(p for p in self.primals if p.dtype == self.kind).shape[axis]
        for old, new in zip(self.truth.outputs, other.truth.outputs, strict=True):
            if not _in_proportion(old.shape, new.shape, before, size):
                raise Unfit("the operator does not split that size into equal parts")
        return other

    def is_batch(self, axis: int) -> bool:
        """Whether an axis of the first floating primal is none of its operator's core axes."""
        ranks = zip(self.primals, self.case.core_ranks, strict=True)
        first, rank = next((p, rank) for p, rank in ranks if p.dtype == self.kind)
        return axis % first.ndim < first.ndim - rank if first.ndim else False

    # ── what is right ────────────────────────────────────────────────────────────────────────

    def want(self, ct: Cotangent) -> Gradients:
        """The spec's gradients in float64.

        Raises:
            Unfit: the spec's VJP is not defined there.
        """
        return self._spec(F64, [np.asarray(p, dtype=np.float64) for p in ct], self.truth.primals)

    def cost(self, ct: Cotangent) -> Gradients:
        """What rounding may cost each gradient, in units of u: about Σ|terms| (running error)."""
        rounded = [ROUNDING.asarray(np.asarray(p, dtype=np.float64)) for p in ct]
        primals = [ROUNDING.asarray(p) if p.dtype.kind == "f" else p for p in self.truth.primals]
        found = self._spec(ROUNDING, rounded, primals)
        out: Gradients = {}
        for name, value in found.items():
            cost = allowance(value)
            assert cost is not None
            out[name] = cost
        return out

    def _spec(self, xp: Any, ct: Sequence[Any], primals: Sequence[Any]) -> dict[str, Any]:
        with quiet():
            try:
                out = as_tuple(self.case.spec.vjp(xp, bare(tuple(ct)), *primals, **self.case.attrs))
            except REFUSALS as error:
                raise Unfit(str(error)) from error
        if any(np.shape(out[i]) != self.truth.primals[i].shape for i in self.truth.floating):
            raise Unfit("the operator's own gradient has another shape than its primal")
        return {n: out[self.truth.names.index(n)] for n in self.names}

    def allowed(self, ct: Cotangent, *gradients: Mapping[str, Array]) -> Gradients:
        """How far each element of a right gradient may be off: the bound of the judgement.

        rtol·S + (rtol/16 + 4u)·R + underflow, with S the largest of the element in `gradients` and
        R the running error in units of u, which is at least Σ|ct·J|. Two answers to one question
        may differ by the sum of their bounds.
        """
        rules, slack = self.rules, self.case.spec.slack
        per_cost = rules.rtol / CANCELLATION_FACTOR + ROUNDING_SAFETY * rules.u
        if slack is not None:
            per_cost += slack.ulp * 2 * rules.u
        if self.bound.slack is not None:
            per_cost += self.bound.slack.ulp * 2 * rules.u
        out: Gradients = {}
        for name, cost in self.cost(ct).items():
            if any(name not in g for g in gradients):
                continue
            size = np.max([finite(g[name]) for g in gradients], axis=0)
            out[name] = rules.rtol * size + per_cost * cost + rules.underflow
        return out

    def _relative(self, *gradients: Mapping[str, Array]) -> Gradients:
        """The part of `allowed` that costs nothing to know: what it admits, all of it does."""
        return {
            name: self.rules.rtol * np.max([finite(g[name]) for g in gradients], axis=0)
            for name in self.names
            if all(name in g for g in gradients)
        }

    def differ(self, ct: Cotangent, got: Gradients, want: Gradients) -> str:
        """Where two answers to one question are further apart than both may be off; "" if not."""
        if not difference(got, want, self._relative(got, want)):
            return ""
        bound = self.allowed(ct, got, want)
        return difference(got, want, {name: 2 * b for name, b in bound.items()})

    def wrong(self, when: str = "") -> str:
        """What is wrong with the gradients at this point, "" if nothing is.

        What the spec's own VJP does not confirm at once, the ordinary judgement decides.

        Raises:
            Unfit: it decides nothing here.
            Broken: the call failed.
        """
        ct = self.cts[0]
        want = self.want(ct)  # first: where the spec has none, nothing is owed
        if self.truth.low and not self._holds([*self.truth.outputs, *want.values()]):
            raise Unfit(f"{self.dtype} does not hold the results there")
        try:
            got = self.ask(ct, when)
        except Broken:
            self._require_forward()
            raise
        close = not difference(got, want, self._relative(got, want))
        if not close and difference(got, want, self.allowed(ct, got, want)):
            return self._on_appeal()
        return ""

    def _holds(self, values: Sequence[Array]) -> bool:
        """Whether a dtype of low precision holds every number there as a normal one.

        Samples are chosen so that it does; in another size, products of many factors leave it.
        """
        limits = dtype_limits(self.dtype)
        low, high = float(limits.smallest_normal), float(limits.max)
        sizes = [np.abs(v[np.isfinite(v) & (v != 0)]) for v in map(np.asarray, values)]
        return all(bool(np.all((s >= low) & (s <= high))) for s in sizes)

    def _require_forward(self) -> None:
        """A size that the code's own forward refuses too is none that it supports.

        Raises:
            Unfit: forward raises here, or has results of other shapes than the operator.
            Broken: its process ended or hung.
        """
        forward, attrs = self.bound.forward, self.bound.attrs
        if forward is not None:
            try:
                with quiet():
                    outputs = ask_forward(forward, self.primals, self.truth.names, attrs)
            except (Broken, Unsupported) as error:
                if isinstance(error, Broken) and error.finding.verdict in ENDS:
                    raise
                raise Unfit(f"its forward refuses: {error}") from error
            if [np.shape(o) for o in outputs] != [o.shape for o in self.truth.outputs]:
                raise Unfit("its forward is another operator there")

    def _on_appeal(self) -> str:
        try:
            with quiet():
                findings = judge_case(self.truth, self.binding, self.dtype)
        except REFUSALS as error:
            raise Unfit(str(error)) from error
        for finding in findings:
            if finding.verdict in SKIPPED or finding.name in self.lacking:
                continue
            if finding.verdict in ENDS or (
                finding.verdict is Verdict.ERROR and not finding.diagnosis
            ):
                raise Broken(finding)
            if not finding.verdict.expected:
                name = {"vjp": "", "forward": "forward"}.get(finding.name, f"d{finding.name}")
                top = finding.top
                shown = (
                    f" ({name}{place(top.index)} is {in_digits(top.got, top.want)})"
                    if top is not None
                    else ""
                )
                return f"{name}{': ' if name else ''}{finding.reason}{shown}"
        return ""

    @cached_property
    def right(self) -> bool:
        """Whether the gradients at the case itself are right.

        Where they are wrong, other points would repeat it.
        """
        return not self.wrong()

    def require_right(self) -> None:
        """Leave out what only repeats that the gradient is wrong.

        Raises:
            Unasked: it is wrong here already.
        """
        if not self.right:
            raise Unasked("the gradient itself is wrong")


def _in_proportion(old: tuple[int, ...], new: tuple[int, ...], before: int, after: int) -> bool:
    """Whether an output that was a third of an axis is a third of it still.

    A spec that slices its primal into parts leaves over, in silence, what makes no whole part.
    """
    if len(old) != len(new):
        return False
    parts = [(o, n) for o, n in zip(old, new, strict=True) if 1 < o < before and not before % o]
    return all(n * before == o * after for o, n in parts if n != o)
