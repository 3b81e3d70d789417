"""Calls of one implementation of one case on copies, and the form of its answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import ManifestError, Unsupported
from gradcheck.implementations import returned
from gradcheck.implementations.bound import Binding, Bound, Into
from gradcheck.implementations.checked_call import (
    CheckedCall,
    attempt,
    bare,
    bound_by,
    guarded,
)
from gradcheck.implementations.framed_memory import Framed, framed
from gradcheck.implementations.returned import Broken
from gradcheck.judge.compare import tolerance_of
from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arrays import Array, Float, dtype_named
from gradcheck.results.verdict import Verdict


def difference(
    got: Mapping[str, Array], want: Mapping[str, Array], allowed: Mapping[str, Array]
) -> str:
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
        return f"d{name}{where} is {in_digits(a[worst], b[worst])}"
    return ""


def in_digits(got: float, want: float) -> str:
    """What is, and what it is not, in as many digits as tell them apart."""
    digits = next((d for d in range(6, 17) if f"{got:.{d}g}" != f"{want:.{d}g}"), 17)
    return f"{got:.{digits}g}, not {want:.{digits}g}"


def place(index: tuple[int, ...]) -> str:
    """An index in brackets; empty for a scalar."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def finite(gradient: Array) -> Float:
    """Magnitudes in float64; 0 for what is not finite."""
    size = np.abs(np.asarray(gradient, dtype=np.float64))
    return np.where(np.isfinite(size), size, 0.0)


Cotangent = tuple[Array, ...]
Gradients = dict[str, Array]
"""Per floating primal, an array of its shape."""
ENDS: Final = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.NOTRUN)
"""Verdicts on a call that did not return."""


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


class Asking:
    """One implementation of one case in one dtype.

    `names` are those of the floating primals, `cts` the cotangents (normal, powers, ones), each a
    tuple shaped as forward's outputs; all in the working dtype.

    Raises:
        Unfit: the implementation does not support the case, or says nothing about it.
        Broken: binding the case failed.
    """

    def __init__(
        self, truth: CaseTruth, binding: Binding, dtype: str, lacking: frozenset[str] = frozenset()
    ) -> None:
        """Bind the case; `lacking` are gradients that it is known not to give."""
        truth = truth.at(dtype)
        self.truth, self.binding, self.dtype = truth, binding, dtype
        self.case = truth.case
        self.kind = dtype_named(dtype)
        self.rules = tolerance_of(dtype)
        self.lacking = lacking
        self.names = tuple(truth.names[i] for i in truth.floating if truth.names[i] not in lacking)
        self.primals = tuple(
            p.astype(self.kind) if p.dtype.kind == "f" else p for p in truth.primals
        )
        self.cts = truth.cotangents.typed(dtype)
        try:
            bound = bound_by(lambda: binding.bind(self.case, dtype))
        except Unsupported as reason:
            raise Unfit(str(reason)) from reason
        except Broken as error:
            if isinstance(error.__cause__, ManifestError):  # a manifest means nothing here
                raise Unfit(error.finding.reason) from error
            raise
        if bound is None:
            raise Unfit(f"not implemented by {binding.name}")
        self.bound: Bound = bound
        self._vjp = CheckedCall("vjp", bound.vjp)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────

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
            ct, values = guarded(ct), guarded(values)
        out = self._call(lambda: self._vjp.on(ct, values, self.bound.attrs), when)
        return self._formed(out, when, [True] * len(self.primals))

    def raw_if_any(self, ct: Cotangent) -> Gradients:
        """What `raw` gives; nothing where the code refuses: it raises, and does so again.

        Raises:
            Broken: the process ended or hung, or the code raised once and not again.
        """
        try:
            return self.raw(ct)
        except Broken as error:
            if error.finding.verdict in ENDS:
                raise
            failed = error
        try:
            self.raw(ct)
        except Broken as error:
            if error.finding.verdict in ENDS:
                raise
            return {}
        raise failed

    def absent(self) -> frozenset[str]:
        """The floating primals for whose gradients a call gives None.

        Raises:
            Broken: the call failed.
        """
        ct, values = guarded(self.cts[0]), guarded(self.primals)
        out = self._call(lambda: self._vjp.on(ct, values, self.bound.attrs), "")
        parts = returned.gradients(out, self.truth.names)
        pairs = zip(self.truth.names, parts, strict=True)
        return frozenset(name for name, part in pairs if part is None) & {*self.names}

    def ask_some(self, needs: tuple[bool, ...], ct: Cotangent, when: str) -> Gradients:
        """The gradients of the primals that `needs` names, when no others are asked for.

        Raises:
            Unasked: the implementation cannot be asked that.
            Broken: as for `ask`.
        """
        asked = self.bound.asked
        if asked is None:
            raise Unasked("vjp does not take `needs`")
        given, values = guarded(ct), guarded(self.primals)
        out = self._call(lambda: asked(needs, bare(given), *values, **self.bound.attrs), when)
        return self._formed(out, when, needs)

    @property
    def into(self) -> Into:
        """The VJP that writes into memory of the caller's.

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
        given, values = guarded(ct), guarded(self.primals)
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
            if error.finding.verdict is Verdict.UNSUPPORTED:
                raise Unfit(error.finding.reason) from error
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


def typed(values: Sequence[Array], dtype: np.dtype[Any]) -> Cotangent:
    """Values as a cotangent in a dtype."""
    with np.errstate(over="ignore"):
        return tuple(np.asarray(v).astype(dtype) for v in values)


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
