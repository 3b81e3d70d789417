"""What a property asks: one implementation at one case, its answers, and what may be allowed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64, dtype_named
from gradcheck.binding import Binding, Bound, Into
from gradcheck.contract import purity, returned
from gradcheck.contract.memory import Framed, framed
from gradcheck.contract.resize import resized
from gradcheck.contract.returned import Broken
from gradcheck.errors import ManifestError, SpecError, Unsupported
from gradcheck.judge.compare import CANCELLED, rules_of
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.judge.probe import ask_forward, attempt
from gradcheck.judge.value import SAFETY
from gradcheck.rounding import ROUNDING, allowance
from gradcheck.spec import Attrs, as_tuple
from gradcheck.suite import Case
from gradcheck.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]
Cotangent = tuple[Array, ...]
Gradients = dict[str, Array]
"""Per floating primal, an array of its shape."""

REFUSALS: Final = (ArithmeticError, IndexError, TypeError, ValueError, SpecError)
"""What a spec raises away from its samples: it is not defined there."""
SKIPPED: Final = (Verdict.INVALID, Verdict.INCONCLUSIVE)
"""Verdicts of the ordinary judgement that say nothing about the code."""


class Unasked(Exception):  # noqa: N818  a property is
    """A property cannot be asked of this implementation; the text says what is missing."""


class Vacuous(Exception):  # noqa: N818  a property is
    """A property says nothing about this operator, or about what is declared of it."""


class Unfit(Exception):  # noqa: N818  a point is
    """The operator itself is not defined at a point, or not supported there."""


@dataclass(frozen=True, slots=True)
class Breach:
    """How a property is broken: what was seen, in a clause, and the verdict on it."""

    seen: str
    verdict: Verdict = Verdict.FAIL


class Subject:
    """One implementation of one case in one dtype.

    `names` are those of the floating primals, `cts` the cotangents (normal, powers, ones), each a
    tuple shaped as forward's outputs; all in the working dtype.

    Raises:
        Unfit: the implementation does not support the case, or says nothing about it.
    """

    def __init__(
        self, truth: CaseTruth, binding: Binding, dtype: str, lacking: frozenset[str] = frozenset()
    ) -> None:
        """Bind the case; `lacking` are gradients that it is known not to give."""
        self.truth, self.binding, self.dtype = truth, binding, dtype
        self.case = truth.case
        self.kind = dtype_named(dtype)
        self.rules = rules_of(dtype)
        self.lacking = lacking
        self.names = tuple(truth.names[i] for i in truth.floating if truth.names[i] not in lacking)
        self.primals = tuple(
            p.astype(self.kind) if p.dtype.kind == "f" else p for p in truth.primals
        )
        self.cts = truth.cotangents.typed(dtype)
        try:
            bound = binding.bind(self.case, dtype)
        except (Unsupported, ManifestError) as reason:
            raise Unfit(str(reason)) from reason
        except Broken as error:
            if error.finding.verdict is Verdict.NOTRUN:
                raise
            raise Unfit(error.finding.reason) from error  # a manifest means nothing here
        if bound is None:
            raise Unfit(f"{binding.name} says nothing about {self.case.spec.name}")
        self.bound: Bound = bound

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
        """The same, less the gradients for which a call gives None: the others owe no less.

        Raises:
            Unfit: it gives none at all.
            Broken: the call failed.
        """
        ct, values = purity.guarded(self.cts[0]), purity.guarded(self.primals)
        out = self._call(lambda: self.bound.vjp(bare(ct), *values, **self.bound.attrs), "")
        parts = returned.gradients(out, self.truth.names)
        lacking = {n for n, part in zip(self.truth.names, parts, strict=True) if part is None}
        if not set(self.names) - lacking:
            raise Unfit("it gives no gradient")
        return Subject(self.truth, self.binding, self.dtype, frozenset(lacking) & {*self.names})

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

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    def ask(self, ct: Cotangent, when: str = "") -> Gradients:
        """Copies of the gradients for one cotangent, whose form is right but for the dtype.

        Raises:
            Broken: the call failed, or a gradient is missing or has another shape; `when` says
                where.
        """
        out = self.raw(ct, when)
        return {name: np.array(gradient) for name, gradient in out.items()}

    def raw(
        self,
        ct: Cotangent,
        when: str = "",
        primals: Sequence[Array] | None = None,
        *,
        ready: bool = False,
    ) -> Gradients:
        """What `ask` copies; `ready` arguments are passed as they are, others as copies.

        Raises:
            Broken: as for `ask`.
        """
        values = self.primals if primals is None else primals
        if not ready:
            ct, values = purity.guarded(ct), purity.guarded(values)
        out = self._call(lambda: self.bound.vjp(bare(ct), *values, **self.bound.attrs), when)
        return self._formed(out, when, [True] * len(self.primals))

    def ask_some(self, needs: tuple[bool, ...], ct: Cotangent, when: str) -> Gradients:
        """The gradients of the primals that `needs` names, when no others are asked for.

        Raises:
            Unasked: the implementation cannot be asked that.
            Broken: as for `ask`.
        """
        asked = self.bound.asked
        if asked is None:
            raise Unasked("vjp does not take `needs`")
        given, values = purity.guarded(ct), purity.guarded(self.primals)
        out = self._call(lambda: asked(needs, bare(given), *values, **self.bound.attrs), when)
        return self._formed(out, when, needs)

    @property
    def into(self) -> Into:
        """The VJP that writes into memory of ours.

        Raises:
            Unasked: there is none.
        """
        if self.bound.into is None:
            raise Unasked("there is no `vjp_into`")
        return self.bound.into

    def fill(
        self, ct: Cotangent, held: Mapping[str, Array] | None = None, when: str = ""
    ) -> dict[str, Framed]:
        """What `into` leaves in arrays that hold zeros before, or what `held` says by name.

        Raises:
            Unasked: there is no `into`.
            Broken: it raised.
        """
        into, outs = self.into, self.outs(held or {})
        given, values = purity.guarded(ct), purity.guarded(self.primals)
        self._fill(into, {n: o.array for n, o in outs.items()}, given, values, when)
        return outs

    def fill_these(
        self, outs: Mapping[str, Array], ct: Cotangent, primals: Sequence[Array], when: str
    ) -> None:
        """Call `into` on these very arrays.

        Raises:
            Unasked: there is no `into`.
            Broken: it raised.
        """
        self._fill(self.into, dict(outs), ct, primals, when)

    def _fill(
        self,
        into: Into,
        outs: dict[str, Array],
        ct: Cotangent,
        primals: Sequence[Array],
        when: str,
    ) -> None:
        attrs = self.bound.attrs
        self._call(lambda: into.call(outs, bare(ct), *primals, **attrs), when)

    def outs(self, held: Mapping[str, Array]) -> dict[str, Framed]:
        """Arrays for the gradients that hold zeros, or what `held` says."""
        by_name = dict(zip(self.truth.names, self.primals, strict=True))
        return {n: framed(held.get(n, np.zeros_like(by_name[n]))) for n in self.names}

    def _call(self, call: Callable[[], Any], when: str) -> Any:
        try:
            with quiet():
                return attempt("vjp", call)
        except (Unsupported, ManifestError) as reason:
            raise Unfit(str(reason)) from reason
        except Broken as error:
            raise _placed(error, when) from error

    def _formed(self, out: Any, when: str, needs: Sequence[bool]) -> Gradients:
        gradients: Gradients = {}
        try:
            parts = returned.gradients(out, self.truth.names)
            for name, part, primal, need in zip(
                self.truth.names, parts, self.primals, needs, strict=True
            ):
                if name not in self.names or not need:
                    continue
                array = None if part is None else returned.as_array(part)
                if array is None or array.shape != primal.shape:
                    wrong = returned.fault(part, primal, name)
                    assert wrong is not None
                    raise Broken(wrong)
                gradients[name] = array
        except Broken as error:
            raise _placed(error, when) from error
        return gradients

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
        per_cost = rules.rtol / CANCELLED + SAFETY * rules.u
        if slack is not None:
            per_cost += slack.ulp * 2 * rules.u
        if self.bound.slack is not None:
            per_cost += self.bound.slack.ulp * 2 * rules.u
        out: Gradients = {}
        for name, cost in self.cost(ct).items():
            if any(name not in g for g in gradients):
                continue
            size = np.max([_finite(g[name]) for g in gradients], axis=0)
            out[name] = rules.rtol * size + per_cost * cost + rules.underflow
        return out

    def differ(self, ct: Cotangent, got: Gradients, want: Gradients) -> str:
        """Where two answers to one question are further apart than both may be off; "" if not."""
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
        try:
            got = self.ask(ct, when)
        except Broken:
            self._require_forward()
            raise
        if difference(got, want, self.allowed(ct, got, want)):
            return self._on_appeal()
        return ""

    def _require_forward(self) -> None:
        """A size that the code's own forward refuses too is none that it supports.

        Raises:
            Unfit: forward raises here, or has results of other shapes than the operator.
        """
        forward, attrs = self.bound.forward, self.bound.attrs
        if forward is not None:
            try:
                with quiet():
                    outputs = ask_forward(forward, self.primals, self.truth.names, attrs)
            except (Broken, Unsupported) as error:
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
            if not finding.verdict.expected:
                name = {"vjp": "", "forward": "forward"}.get(finding.name, f"d{finding.name}")
                top = finding.top
                shown = (
                    f" ({name}{place(top.index)} is {told(top.got, top.want)})"
                    if top is not None
                    else ""
                )
                return f"{name}{': ' if name else ''}{finding.reason}{shown}"
        return ""

    @cached_property
    def right(self) -> bool:
        """Whether the gradients at the case itself are right.

        Where they are not, other points would tell the same once more.
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


def bare(ct: Cotangent) -> Any:
    """A cotangent as a VJP takes it: bare for one output."""
    return ct[0] if len(ct) == 1 else ct


def typed(values: Sequence[Array], dtype: np.dtype[Any]) -> Cotangent:
    """Values as a cotangent in a dtype."""
    with np.errstate(over="ignore"):
        return tuple(np.asarray(v).astype(dtype) for v in values)


def difference(got: Gradients, want: Gradients, allowed: Gradients) -> str:
    """The element that is furthest outside of what is allowed, in words; "" if none is."""
    for name in got:
        a, b = (np.asarray(g[name], dtype=np.float64) for g in (got, want))
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            error = np.where(same, 0.0, np.abs(a - b))
            ok = error <= allowed[name]  # never `error > allowed`: a NaN would pass
            if ok.all():
                continue
            excess = np.where(ok, -1.0, np.nan_to_num(error / allowed[name], nan=np.inf))
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        where = place(tuple(int(i) for i in worst))
        return f"d{name}{where} is {told(a[worst], b[worst])}"
    return ""


def told(got: float, want: float) -> str:
    """What is, and what it is not, in as many digits as tell them apart."""
    digits = next((d for d in range(6, 17) if f"{got:.{d}g}" != f"{want:.{d}g}"), 17)
    return f"{got:.{digits}g}, not {want:.{digits}g}"


def place(index: tuple[int, ...]) -> str:
    """An index in brackets; empty for a scalar."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def _finite(gradient: Array) -> Float:
    size = np.abs(np.asarray(gradient, dtype=np.float64))
    return np.where(np.isfinite(size), size, 0.0)


def _placed(error: Broken, when: str) -> Broken:
    if not when:
        return error
    return Broken(replace(error.finding, reason=f"{when}: {error.finding.reason}"))


@contextmanager
def quiet() -> Iterator[None]:
    """Floating-point warnings, and those of foreign code, are nothing that is judged here."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
