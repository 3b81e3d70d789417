"""One wrong answer in one case: does the judgement that everybody gets reject it?

Also, is it wrong? A mutant that is declared to be the right VJP is tried on a thousand inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import CODE_ERRORS, SpecError, raised, told
from gradcheck.implementations.bound import Bound
from gradcheck.judge.compare import tolerance_of
from gradcheck.judge.impostors import SAME_SHARE, Answers, Impostor
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.results.verdict import Verdict
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case

Array = NDArray[Any]
Float = NDArray[np.float64]
Vjp = Callable[..., Any]

REJECTED: Final = frozenset({Verdict.FAIL, Verdict.ERROR, Verdict.MISSING})
SLIPS: Final = (TypeError, NameError, AttributeError, ImportError)
"""Exceptions of a mistake in a mutant's own text: a rejection would prove nothing."""


@dataclass(frozen=True, slots=True)
class Form:
    """A right gradient in a wrong form: `make(gradient)` gives it."""

    name: str
    says: str
    make: Callable[[Array], Any]


FORMS: Final = (
    Form("missing", "None", lambda g: None),
    Form("unshaped", "the same numbers with one axis more", lambda g: g[None]),
    Form("complex", "complex numbers without an imaginary part", lambda g: g.astype(complex)),
)
"""They are rejected whatever the numbers are, and where there are none."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong VJP as an implementation of one case."""

    vjp: Vjp
    name: str = "wrong"

    def bind(self, case: Case, dtype: str) -> Bound:
        """The VJP, without a forward."""
        return Bound(vjp=self.vjp, forward=None, attrs=case.attrs)


@dataclass
class Target:
    """One case in one dtype, to be attacked; `beside` is the same case drawn from another seed."""

    truth: CaseTruth
    beside: Case
    dtype: str
    _right: dict[bytes, Sequence[Array | None]] = field(default_factory=dict)

    def rejects(self, vjp: Vjp) -> bool:
        """Whether the judgement rejects `vjp(ct, *primals, **attrs)`."""
        findings = judge_case(self.truth, Wrong(vjp), self.dtype, details=False)
        return any(finding.verdict in REJECTED for finding in findings)

    def accepts_the_right_one(self) -> bool:
        """Whether the operator's own VJP passes: anything else is a false alarm."""
        findings = judge_case(self.truth, Wrong(self._vjp), self.dtype, details=False)
        return all(finding.verdict is Verdict.PASS for finding in findings)

    def rows(self, vjp: Vjp) -> list[Float | None]:
        """What `vjp(ct, *primals, **attrs)` gives under each cotangent: rows [q, n] per primal.

        Raises:
            SpecError: it breaks off.
        """
        found = []
        for ct in self._here.cotangents.typed(self.dtype):
            try:
                with np.errstate(all="ignore"):
                    bare = ct[0] if len(ct) == 1 else ct
                    found.append(as_tuple(vjp(bare, *self._primals, **self._here.case.attrs)))
            except Exception as error:
                raise SpecError(f"{self._here.case.name}/{self.dtype}: {told(error)}") from error
        return [
            None if of[0] is None else np.stack([np.asarray(g, np.float64).ravel() for g in of])
            for of in zip(*found, strict=True)
        ]

    @cached_property
    def _right_rows(self) -> list[Float | None]:
        return self.rows(self._vjp)

    def is_right(self, rows: Sequence[Float | None]) -> bool:
        """Whether gradients are those of the operator's own VJP, bit by bit."""
        return all(
            a is b if a is None or b is None else np.array_equal(a, b, equal_nan=True)
            for a, b in zip(rows, self._right_rows, strict=True)
        )

    def weigh(self, rows: Sequence[Float | None]) -> tuple[list[Verdict], float]:
        """The verdicts on gradients, and of their bounds the largest share that they are off.

        The gradients of the first primals are looked at until one fails.
        """
        here, rules, verdicts, share = self._here, tolerance_of(self.dtype), [], 0.0
        for index in here.floating:
            row = rows[index]
            if row is None or not row.size:
                continue
            truth = here.truth(index)
            verdicts.append(truth.judge(row, rules, details=False).verdict)
            if verdicts[-1] is Verdict.FAIL:
                break
            share = max(share, truth.share(row, rules))
        return verdicts, share

    @cached_property
    def _here(self) -> CaseTruth:
        return self.truth.at(self.dtype)

    def mutant(self, mutant: Mutant) -> bool:
        """Whether the judgement rejects a mutant.

        Raises:
            SpecError: the mutant breaks off where it was to give a wrong answer.
        """
        fresh, xp = mutant.fresh(), self.xp
        slips: list[Exception] = []

        def vjp(ct: Any, *primals: Array, **attrs: Any) -> Any:
            try:
                return fresh(xp, ct, *primals, **attrs)
            except SLIPS as error:
                slips.append(error)
                raise

        rejected = self.rejects(vjp)
        if slips:
            raise SpecError(
                f"mutant {mutant.full_name} raises {type(slips[0]).__name__}: "
                f"{' '.join(str(slips[0]).split())}; repair it: a mutant gives a wrong answer"
            )
        return rejected

    def impostor(self, impostor: Impostor | Form, index: int) -> bool | None:
        """Whether the judgement rejects an impostor of the gradient of primal `index`.

        None: it cannot be made of this gradient, or equals the right one.
        """
        if isinstance(impostor, Form):
            return self._form(impostor, index)
        if all(wrong is None for wrong in self._wrong(impostor, index)):
            return None

        def vjp(ct: Any, *primals: Array, **attrs: Any) -> Any:
            answers = self._answers(as_tuple(ct))
            gradients = list(answers.gradients)
            with np.errstate(all="ignore"):
                wrong = impostor.make(answers, index)
            gradients[index] = gradients[index] if wrong is None else wrong
            return gradients[0] if len(gradients) == 1 else tuple(gradients)

        return self.rejects(vjp)

    def _form(self, form: Form, index: int) -> bool:
        def vjp(ct: Any, *primals: Array, **attrs: Any) -> Any:
            gradients: list[Any] = list(self._answers(as_tuple(ct)).gradients)
            gradients[index] = form.make(gradients[index])
            return gradients[0] if len(gradients) == 1 else tuple(gradients)

        return self.rejects(vjp)

    def _wrong(self, impostor: Impostor, index: int) -> list[Array | None]:
        """The impostor under each cotangent; None where it is no other than the right one."""
        out: list[Array | None] = []
        scale = self.truth.truth(index).differences.estimate.scale
        same = SAME_SHARE * float(np.max(np.where(np.isfinite(scale), scale, 0.0), initial=0.0))
        for ct in self.truth.cotangents.typed(self.dtype):
            answers = self._answers(ct)
            with np.errstate(all="ignore"):
                wrong = impostor.make(answers, index)
                right = answers.gradients[index]
                if wrong is not None and right is not None:
                    near = np.abs(wrong - right) <= same
                    equal = bool(np.all(near | (wrong == right)))  # inf - inf is no number
                    out.append(None if equal else wrong)
        return out

    def _answers(self, ct: tuple[Array, ...]) -> Answers:
        def ignored() -> Sequence[Array | None]:
            return self._gradients(tuple(np.ones_like(part) for part in ct), self._primals)

        def earlier() -> Sequence[Array | None]:  # by no factor like ct, nor constant
            other = tuple(np.roll(part, 1) * part for part in ct)
            return self._gradients(other, self._primals)

        return Answers(
            self._gradients(ct, self._primals),
            ct,
            ignored,
            earlier,
            lambda: None if self._elsewhere is None else self._gradients(ct, self._elsewhere),
        )

    def _gradients(self, ct: tuple[Array, ...], primals: Sequence[Array]) -> Sequence[Array | None]:
        key = b"".join(part.tobytes() for part in ct) + bytes([primals is self._primals])
        if key not in self._right:
            bare = ct[0] if len(ct) == 1 else ct
            with np.errstate(all="ignore"):
                found = as_tuple(self._vjp(bare, *primals, **self.truth.case.attrs))
            self._right[key] = [None if g is None else np.asarray(g) for g in found]
        return self._right[key]

    @cached_property
    def xp(self) -> Any:
        """The arithmetic of the dtype."""
        return FLOATS[self.dtype]

    def _vjp(self, ct: Any, *primals: Array, **attrs: Any) -> Any:
        return self.truth.case.spec.vjp(self.xp, ct, *primals, **attrs)

    @cached_property
    def _primals(self) -> tuple[Array, ...]:
        return self._typed(self._here.primals)

    @cached_property
    def _elsewhere(self) -> tuple[Array, ...] | None:
        """Other primals of the same shapes; None where the sample does not draw them."""
        other = self._typed(self.beside.primals)
        pairs = list(zip(self._primals, other, strict=True))
        if any(a.shape != b.shape for a, b in pairs):
            return None
        return None if all(np.array_equal(a, b) for a, b in pairs) else other

    def _typed(self, primals: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(p.astype(self.dtype) if p.dtype.kind == "f" else p for p in primals)


# ── equivalent mutants ──────────────────────────────────────────────────────────────────────────

TRIALS: Final = 1000
AGREEMENT: Final = "1e-45"
"""Relative to the largest element: 50 digits, less the rounding of another order of terms."""


def difference(mutant: Mutant, spec: OpSpec, trials: int = TRIALS) -> str:
    """Evidence that a mutant is not the operator's VJP to 50 digits; "" for none.

    Its inputs must differ in values and in shapes: a thousand times the same proves little.
    """
    assert mutant.inputs is not None
    seen: set[bytes] = set()
    shapes: set[tuple[tuple[int, ...], ...]] = set()
    for trial in range(trials):
        draw = Draw(0, "equivalence", mutant.op, mutant.name, str(trial))
        try:
            drawn, given = mutant.inputs(draw)
            attrs = {**spec.defaults, **given}
            same = _agree(mutant, spec, draw, drawn, attrs)
        except CODE_ERRORS as error:
            return f"trial {trial} raises {raised(error)}"
        shape = tuple(np.shape(p) for p in drawn)
        if not same:
            return f"it differs from the right VJP at trial {trial}: shapes {list(shape)}, {attrs}"
        seen.add(b"".join(np.asarray(p).tobytes() for p in drawn))
        shapes.add(shape)
    if len(seen) == 1 < trials:
        return "its `inputs` are the same in every trial; draw them"
    if len(shapes) == 1 < trials:
        return f"its `inputs` have the shapes {list(*shapes)} in every trial; draw these too"
    return ""


def _agree(mutant: Mutant, spec: OpSpec, draw: Draw, drawn: Sequence[Array], attrs: Attrs) -> bool:
    xp = mp50()
    primals = [xp.asarray(p) if np.asarray(p).dtype.kind == "f" else p for p in drawn]
    outputs = as_tuple(spec.forward(xp, *primals, **attrs))
    parts = tuple(xp.asarray(draw.away(0.0, *np.shape(o))) for o in outputs)
    ct = parts[0] if len(parts) == 1 else parts
    right = as_tuple(spec.vjp(xp, ct, *primals, **attrs))
    wrong = as_tuple(mutant.fresh()(xp, ct, *primals, **attrs))
    return _same(xp, right, wrong)


def _same(xp: Any, right: tuple[Any, ...], wrong: tuple[Any, ...]) -> bool:
    if len(right) != len(wrong):
        return False
    for a, b in zip(right, wrong, strict=True):
        if (a is None) != (b is None):
            return False
        if a is None:
            continue
        if np.shape(a) != np.shape(b):
            return False
        pairs = list(zip(np.ravel(a), np.ravel(b), strict=True))
        finite = xp.context.isfinite
        size = max((abs(x) for x, _ in pairs if finite(x)), default=0)
        allowed = xp.context.mpf(AGREEMENT) * size
        if not all(x == y or abs(x - y) <= allowed for x, y in pairs):
            return False
    return True
