"""Mutants whose formula is right and whose numbers are narrow, made from any operator's spec.

What is rounded (operands, the cotangent, the result, products, sums) × the type it is rounded to
(TF32, bfloat16, float16, float32) × the dtype of the code. Each must be rejected at some sample, or
is proved to change no gradient by more than the dtype allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.narrow import (
    COTANGENT,
    KEPT,
    OPERANDS,
    PRODUCTS,
    RESULT,
    SUMS,
    Narrow,
    NarrowArithmetic,
    Narrowing,
    narrower,
)
from gradcheck.power.attack import Target
from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import Defect
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case

Array = NDArray[Any]
Vjp = Callable[..., Any]

LABEL: Final = Defect.PRECISION


class Rounding(Narrowing):
    """A narrowing that can be put into a spec's VJP."""

    __slots__ = ()

    @property
    def mutant(self) -> str:
        """The mutant's name: `narrow-w-tf32`."""
        return f"narrow-{self.name.lower()}"

    @property
    def says(self) -> str:
        """The defect in a sentence."""
        if self.what in KEPT:
            return f"{self.what.capitalize()} are kept in {self.type.title}."
        named = {
            OPERANDS: "All operands are",
            COTANGENT: "The cotangent is",
            RESULT: "The result is",
        }
        return f"{named.get(self.what, f'{self.what} is')} rounded to {self.type.title}."

    def of(self, spec: OpSpec, names: Sequence[str]) -> Vjp:
        """The spec's VJP with this rounding in it; `names` are its primals'."""

        def vjp(xp: Any, ct: Any, *primals: Array, **attrs: Any) -> Any:
            xp = FLOATS[as_tuple(ct)[0].dtype.name]  # asked in another dtype, it is the same code
            if self.what in KEPT:
                return self._inside(spec, xp, ct, primals, attrs)
            if self.what == COTANGENT:
                parts = tuple(self.type.held(part) for part in as_tuple(ct))
                ct = parts if isinstance(ct, tuple) else parts[0]
            pairs = zip(names, primals, strict=True)
            held = [self.type.held(p) if self.what in (OPERANDS, n) else p for n, p in pairs]
            found = spec.vjp(xp, ct, *held, **attrs)
            if self.what != RESULT:
                return found
            gradients = tuple(None if g is None else self.type.held(g) for g in as_tuple(found))
            return gradients if isinstance(found, tuple) else gradients[0]

        return vjp

    def _inside(
        self, spec: OpSpec, xp: Any, ct: Any, primals: Sequence[Array], attrs: Any
    ) -> tuple[Any, ...]:
        keeping = {self.what: self.type}
        kept = NarrowArithmetic(dtype=xp.dtype.name, **keeping)
        parts = tuple(kept.asarray(part) for part in as_tuple(ct))
        held = [kept.asarray(p) if p.dtype.kind == "f" else p for p in primals]
        found = spec.vjp(kept, parts if isinstance(ct, tuple) else parts[0], *held, **attrs)
        return tuple(None if g is None else np.array(g, subok=False) for g in as_tuple(found))


def roundings(floating: Sequence[str], dtype: str) -> Iterator[Rounding]:
    """All that may be narrow in an operator with these floating primals."""
    for kind in narrower(dtype):
        operands = (OPERANDS, *floating) if len(floating) > 1 else tuple(floating)
        for what in (*operands, COTANGENT, RESULT, *KEPT):
            yield Rounding(what, kind)


def narrow_mutant(rounding: Rounding, case: Case, dtype: str) -> Mutant:
    """The mutant of a case's operator and dialect that this case must catch in `dtype`."""
    return Mutant(
        op=case.spec.name,
        name=rounding.mutant,
        says=rounding.says,
        label=LABEL,
        killer=case.sample.name,
        make=lambda: rounding.of(case.spec, case.primal_names),
        dialects=(case.dialect.name,),
        dtype=dtype,
    )


@dataclass(slots=True)
class Tried:
    """The outcome of one narrow mutant in one dtype.

    `tried` are the names of the cases at which it was judged, `killer` the one that rejects it
    (the last of them: nothing more is asked). `share` is by how much of its bound a gradient is
    off at most, where it passes; `changed` says whether any bit differs from the right VJP's.
    `equivalent` is the proof that no sample can reject it, `unclear` why that is not known.
    """

    rounding: Rounding
    dtype: str
    tried: list[str] = field(default_factory=list)
    killer: str = ""
    share: float = 0.0
    changed: bool = False
    equivalent: str = ""
    unclear: str = ""

    @property
    def name(self) -> str:
        """The mutant and its dtype, in reports."""
        return f"{self.rounding.mutant} in {self.dtype}"


class _Judged(NamedTuple):
    rejected: bool
    changed: bool
    share: float
    unclear: str = ""


@dataclass
class Narrowed:
    """The narrow mutants of one operator, judged case by case until each is rejected."""

    spec: OpSpec
    found: dict[tuple[str, str], Tried] = field(default_factory=dict)
    _targets: list[tuple[str, Target]] = field(default_factory=list)
    _shows: dict[tuple[str, str, int], tuple[bool, bool]] = field(default_factory=dict)

    def attack(self, name: str, target: Target, holds: Callable[..., bool]) -> None:
        """Judge at one more case the mutants of a part that are not rejected yet.

        Raises:
            SpecError: the spec's VJP breaks off in an arithmetic that keeps numbers narrow.
        """
        self._targets.append((name, target))
        truth = target.truth
        names = [truth.names[i] for i in truth.floating]
        for rounding in roundings(names, target.dtype):
            if not holds(self.spec.name, rounding.mutant, target.dtype):
                continue
            key = rounding.mutant, target.dtype
            tried = self.found.setdefault(key, Tried(rounding, target.dtype))
            if tried.killer:
                continue
            judged = self._judged(rounding, target)
            tried.tried.append(name)
            tried.changed |= judged.changed
            tried.share = max(tried.share, judged.share)
            tried.unclear = tried.unclear or (judged.unclear and f"{name}: {judged.unclear}")
            if judged.rejected:
                tried.killer, tried.unclear = name, ""

    def results(self) -> list[Tried]:
        """All outcomes; for a mutant that no case rejects, a proof is sought."""
        for tried in self.found.values():
            if not tried.killer and not tried.unclear:
                self._prove(tried)
        return list(self.found.values())

    def _judged(self, rounding: Rounding, target: Target) -> _Judged:
        vjp = rounding.of(self.spec, target.truth.names)
        rows = target.rows(lambda *given, **attrs: vjp(target.xp, *given, **attrs))
        if target.is_right(rows):
            return _Judged(rejected=False, changed=False, share=0.0)
        verdicts, share = target.weigh(rows)
        odd = next((v for v in verdicts if v not in (Verdict.PASS, Verdict.FAIL)), None)
        rejected = Verdict.FAIL in verdicts
        return _Judged(rejected, True, share, "" if odd is None else odd.value)

    def _prove(self, tried: Tried) -> None:
        """Prove that no sample can reject it, or note why that is not known."""
        what, dtype, kind = tried.rounding.what, tried.dtype, tried.rounding.type
        shows = next((b for b in range(kind.bits - 1, 0, -1) if self._at(what, dtype, b)[1]), 0)
        moves = any(self._at(what, dtype, bits)[0] for bits in range(1, kind.bits))
        seen = f"shows from {shows} bits" if shows else "shows at no number of bits"
        if tried.changed:
            share = f"{tried.share:.2g}"
            tried.equivalent = f"no gradient is off by more than {share} × its bound; {seen}"
        elif not moves:
            tried.equivalent = _INERT.get(what, f"no gradient depends on how {what} is rounded")
        elif what in (OPERANDS, *self.spec.primals) and not self._moved(what, kind):
            if self._whole(what):
                tried.equivalent = f"{what} is made of integers that {kind.title} holds; {seen}"
            else:
                tried.unclear = f"{kind.title} holds {what} at every sample; draw it at one"
        else:
            tried.equivalent = f"no gradient changes at any sample; {seen}"

    def _at(self, what: str, dtype: str, bits: int) -> tuple[bool, bool]:
        """Whether rounding to so many bits changes any gradient, and whether that is rejected."""
        key = what, dtype, bits
        if key not in self._shows:
            kind = Narrow("short", f"{bits} bits", bits)
            changed = rejected = False
            for _, target in self._targets:
                if target.dtype == dtype and not rejected:
                    judged = self._judged(Rounding(what, kind), target)
                    changed, rejected = changed or judged.changed, judged.rejected
            self._shows[key] = changed, rejected
        return self._shows[key]

    def _moved(self, what: str, kind: Narrow) -> bool:
        """Whether rounding changes an operand at any sample."""
        return any(np.any(kind.rounded(p) != p) for p in self._operands(what))

    def _whole(self, what: str) -> bool:
        """Whether an operand is made of integers at every sample."""
        return all(np.all(p == np.rint(p)) for p in self._operands(what))

    def _operands(self, what: str) -> Iterator[Array]:
        for _, target in self._targets:
            truth = target.truth
            for name, primal in zip(truth.names, truth.primals, strict=True):
                if primal.dtype.kind == "f" and what in (OPERANDS, name):
                    yield primal


_INERT: Final = {
    OPERANDS: "no gradient depends on the operands",
    COTANGENT: "no gradient depends on the cotangent",
    RESULT: "every gradient is zero",
    PRODUCTS: "its backward multiplies nothing",
    SUMS: "its backward adds nothing up",
}


def narrow_of(
    cases: Sequence[Case], dtypes: Sequence[str], holds: Callable[..., bool] = lambda *_: True
) -> list[Tried]:
    """The narrow mutants of one operator, judged at some cases of it."""
    narrowed = Narrowed(cases[0].spec)
    for case in cases:
        truth = CaseTruth(case)
        for dtype in dtypes:
            name = f"{case.dialect.name}/{case.sample.name}"
            narrowed.attack(name, Target(truth, case, dtype), holds)
    return narrowed.results()
