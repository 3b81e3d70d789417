"""The library face: check any function and its VJP, without a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.contract.returned import Broken
from gradcheck.difference.evaluate import Point
from gradcheck.difference.truth import Around, Estimate
from gradcheck.draw import Draw
from gradcheck.errors import Unsupported, UsageError
from gradcheck.finding import Finding
from gradcheck.judge.beside import FAR, NEAR, jumps, rounds, stays, times, unseen
from gradcheck.judge.compare import RULES
from gradcheck.judge.conditioning import Conditioning, asking, rows_of
from gradcheck.judge.cotangents import Cotangents, draw_cotangents, first_cotangent
from gradcheck.judge.directional import screened
from gradcheck.judge.double import judge_double
from gradcheck.judge.forward_mode import ForwardMode
from gradcheck.judge.function import BlackBox, promoted
from gradcheck.judge.probe import ask_forward, ask_vjp
from gradcheck.judge.second import Gradients, Second
from gradcheck.narrow import fits_narrow
from gradcheck.spec import as_tuple
from gradcheck.verdict import Verdict, worst

Array = NDArray[Any]
Float = NDArray[np.float64]

NO_ATTRS: Final[Mapping[str, Any]] = MappingProxyType({})
KEPT: Final = 1 << 14
"""Numbers that forward may return for its cotangents to be kept from check to check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What `check` found: a finding per gradient output. Prints as a table."""

    findings: tuple[Finding, ...]
    dtype: str
    subject: str

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst(finding.verdict for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether everything passed. Nothing is a pass but PASS."""
        return self.verdict is Verdict.PASS

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        from gradcheck.report.findings import table

        return table(self.subject, self.dtype, self.findings)


@np.errstate(all="ignore")  # forward is asked beyond its domain, and near the largest number
def check(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    *primals: Any,
    seed: int = 0,
    attrs: Mapping[str, Any] = NO_ATTRS,
    full: bool = False,
    order: int = 1,
    double_vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> Result:
    """Judge `vjp` against the derivative of `forward` at `primals`.

    `forward(*primals, **attrs)` returns an array or a tuple of arrays;
    `vjp(ct, *primals, **attrs)` returns one cotangent per primal (a bare array for one primal,
    None for an integer one), where `ct` is shaped as forward's output (a tuple for several).

    First all primals move at once along a random direction, drawn from `seed`. Where ⟨gradient,
    direction⟩ agrees with the slope of forward within the slope's own error bar, and an error of a
    hundredth (float32: a tenth) of any element that is not zero in the gradient given would not,
    each primal's finding is a PASS: a few primals may have to move alone for it, by several steps,
    and then a tenth must show. `Finding.smallest_visible_error` says what would have shown in the
    least element that must, `evaluations` what it took. In float32 elements below a thousandth of
    their tensor's largest need not show.

    vjp is asked with a random cotangent and with −2 times that; where forward is one number, with
    1, −2 and −8/3. A vjp that is wrong for ones alone is seen there, and with `full=True`
    everywhere.

    A vjp that rounds to TF32, float16, bfloat16 or (in float64) float32 is seen where numbers do
    not fit in those. Cotangents never do. Where most numbers of a primal do (ones, small integers,
    multiples of 1/8), what passes is judged a second time, at all primals times 0.9784. A vjp that
    is wrong there is a FAIL, unless its error grows with the distance: that is what a vjp does that
    is right for these primals alone, and it passes with a note, as does one that cannot be judged
    there.

    Everything else is judged element by element, under three cotangents (an all-ones one is among
    them), and so is every check with `full=True`, `order=2` or a `jvp`.

    `order=2` judges the derivative of `vjp` too, by differences of `vjp` along random directions:
    with respect to ct it must be forward's slope, with respect to a primal forward's second
    derivative, and that must be symmetric (rows `d vjp/d ct`, `d vjp/d x`, `Hessian symmetry`).
    `double_vjp(ggs, ct, *primals, **attrs)`, the VJP of (ct, *primals) → gradients, returns
    (d_ct, *d_primals), None for an integer primal; `ggs` is shaped as what `vjp` returns, d_ct as
    ct. It is judged element by element (rows `double dct`, `double dx`).

    `jvp(us, *primals, **attrs)` returns J·u, one tangent per output, where `us` is shaped as the
    primals (bare for one, None for an integer one). It is judged element by element against
    forward (row `jvp`), and by ⟨v, J u⟩ = ⟨Jᵀv, u⟩ against `vjp` (row `dot product`).

    A gradient that is wrong has a diagnosis (`Finding.diagnosis`), which stands in the text: vjp is
    asked at other primals and attributes too, and held against differences of forward there.

    Cost: of a projection 8 evaluations of forward, batched where forward treats a leading axis as
    batch, and two of vjp, three where forward is one number; at short primals twice that. Element
    by element 2 to 6 evaluations per element, fewer where outputs do not mix (rows), batched too: a
    loss of more than 100,000 elements is for `check_model`, which never goes there. `order=2`: per
    primal about 160 more of forward and 80 of vjp, whatever its size; a `double_vjp` as a first
    order of its own, with vjp in the place of forward. `jvp`: about 100. A diagnosis: what forward
    does in a second.

    Raises:
        UsageError: a primal is complex, of a dtype other than float64 or float32 (integers
            apart), or there is no floating one to differentiate by; `order` is neither 1 nor 2,
            or a `double_vjp` comes without `order=2`.

    >>> import numpy as np
    >>> check(lambda x: x**2, lambda ct, x: 2 * x * ct, np.array([1.0, 2.0])).ok
    True
    >>> check(lambda x: x**2, lambda ct, x: x * ct, np.array([1.0, 2.0])).verdict.name
    'FAIL'
    >>> saved = np.array([1.0, 2.0])
    >>> check(lambda x: x**2, lambda ct, x: 2 * saved * ct, saved, order=2).verdict.name
    'FAIL'
    """
    _check_request(order, double_vjp, jvp)
    arrays = tuple(_as_primal(value, i) for i, value in enumerate(primals))
    dtype = _common_dtype(arrays)
    names = _names(forward, len(arrays))
    subject = getattr(vjp, "__name__", type(vjp).__name__)

    asked = _Asked(
        forward=forward,
        vjp=vjp,
        names=names,
        attrs=attrs,
        dtype=dtype,
        seed=seed,
        subject=subject,
        full=full,
        order=order,
        double_vjp=double_vjp,
        jvp=jvp,
    )
    findings = asked.findings(arrays)
    if all(finding.verdict is Verdict.PASS for finding in findings):
        short = [
            n
            for n, p in zip(names, arrays, strict=True)
            if p.dtype.kind == "f" and fits_narrow(p, dtype)
        ]
        if short:
            findings = asked.beside(arrays, findings, short)
    return Result(findings=findings, dtype=dtype, subject=subject)


@dataclass(slots=True, kw_only=True)
class _Asked:
    """What one check asks for, at whatever primals; `told`: failures get their diagnosis."""

    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    names: tuple[str, ...]
    attrs: Mapping[str, Any]
    dtype: str
    seed: int
    subject: str
    full: bool
    order: int
    double_vjp: Callable[..., Any] | None
    jvp: Callable[..., Any] | None
    told: bool = True

    def findings(self, primals: tuple[Array, ...]) -> tuple[Finding, ...]:
        """By a projection where that is asked for, and certain; else element by element."""
        passed = None
        if not self.full and self.order == 1 and self.jvp is None:
            passed = self.screened(primals)
        return self._by_element(primals) if passed is None else passed

    def screened(self, primals: tuple[Array, ...]) -> tuple[Finding, ...] | None:
        """PASS by a projection, or None."""
        return screened(
            self.forward,
            self.vjp,
            primals,
            self.names,
            self.attrs,
            self.dtype,
            self.seed,
            self.subject,
        )

    def beside(
        self, primals: tuple[Array, ...], passed: tuple[Finding, ...], short: Sequence[str]
    ) -> tuple[Finding, ...]:
        """What `passed` at primals of which `short` have short mantissas, judged beside them too.

        A gradient that is wrong there, and not for being elsewhere, is a FAIL; where that cannot
        be told, a note says so.
        """
        near = times(primals, NEAR)
        if self.screened(near) is not None:
            return passed
        try:
            found = self._failing(primals, near)
        except (Broken, Unsupported):
            found = None
        if found is not None and all(f.verdict is Verdict.PASS for f in found):
            return passed
        wrong = {f.name: f for f in found or () if f.verdict is Verdict.FAIL}
        if wrong:
            return tuple([wrong.get(finding.name, finding) for finding in passed])
        note = unseen(short, self.dtype)
        first, *others = passed
        return replace(first, reason="; ".join(filter(None, (first.reason, note)))), *others

    def _failing(
        self, primals: tuple[Array, ...], near: tuple[Array, ...]
    ) -> tuple[Finding, ...] | None:
        """Findings at `near`, FAIL only what goes on to be so; None if nothing can be told."""
        untold = replace(self, full=False, order=1, jvp=None, told=False)
        found = untold.findings(near)
        if all(f.verdict is Verdict.PASS for f in found):
            return found
        moving = self._moving(primals, near, times(primals, FAR[1]))
        failing = {f.name: f for f in found if f.verdict is Verdict.FAIL and f.name in moving}
        staying: set[str] = set()
        for factor in FAR:
            if len(staying) < len(failing):
                afar = {f.name: f for f in untold.findings(times(primals, factor))}
                staying |= {n for n, f in failing.items() if stays(f, afar.get(n), factor)}
        if not staying:
            return None
        told = replace(untold, told=self.told).findings(near)
        return tuple(
            replace(f, reason="; ".join(filter(None, (rounds(self.dtype), f.reason))))
            for f in told
            if f.name in staying
        )

    def _moving(self, *points: tuple[Array, ...]) -> set[str]:
        """Names of primals whose gradient is another at the first two points; none on a jump."""
        outputs = [ask_forward(self.forward, p, self.names, self.attrs) for p in points]
        if jumps(*outputs):
            return set()
        v = first_cotangent(self.seed, self.subject, sum(o.size for o in outputs[0]))
        ct = tuple(np.split(v, np.cumsum([o.size for o in outputs[0]])[:-1]))
        ct = tuple(
            part.reshape(o.shape).astype(o.dtype) for part, o in zip(ct, outputs[0], strict=True)
        )
        here, there = (self._gradients(ct, p) for p in points[:2])
        return {n for n in here if n in there and not np.array_equal(here[n], there[n])}

    def _gradients(self, ct: tuple[Array, ...], primals: tuple[Array, ...]) -> dict[str, Float]:
        """What vjp gives, right after forward: that may save what vjp reads."""
        ask_forward(self.forward, primals, self.names, self.attrs)
        answer = ask_vjp(self.vjp, [ct], primals, self.names, self.attrs)
        return {n: g for n, g in answer.gradients.items() if not isinstance(g, Finding)}

    def _by_element(self, primals: tuple[Array, ...]) -> tuple[Finding, ...]:
        forward, vjp, names, attrs = self.forward, self.vjp, self.names, self.attrs
        dtype, seed, subject, arrays = self.dtype, self.seed, self.subject, primals

        def function(*values: Array) -> tuple[Array, ...]:
            return tuple(np.asarray(o) for o in as_tuple(forward(*values, **attrs)))

        try:
            outputs = ask_forward(forward, arrays, names, attrs)
        except Broken as error:
            return (error.finding,)
        strange = sum(o.size - np.count_nonzero(np.isfinite(o)) for o in outputs)
        if strange:
            reason = f"{strange} of forward's values are not finite here: it has no derivative"
            return (Finding(name="forward", verdict=Verdict.INCONCLUSIVE, reason=reason),)
        shapes = [o.shape for o in outputs]
        few = sum(o.size for o in outputs) <= KEPT
        drawing = _cotangents if few else _cotangents.__wrapped__
        cotangents = drawing(seed, subject, tuple(shapes), tuple(o.dtype for o in outputs))
        typed = [
            tuple(c.astype(o.dtype) for c, o in zip(ct, outputs, strict=True))
            for ct in cotangents.values
        ]
        ended: list[Finding] = []
        try:
            answer = ask_vjp(vjp, typed, arrays, names, attrs)
        except Broken as error:
            ended = [error.finding]
        rules = RULES[dtype]
        point = promoted(Point(function, arrays), outputs)  # after vjp: a forward may save for it
        estimates: dict[str, Estimate] = {}

        def explained(findings: Sequence[Finding]) -> list[Finding]:
            if not self.told or all(finding.verdict.expected for finding in findings):
                return [*findings]
            from gradcheck.explain import (
                black_box,
            )  # deferred: a check that passes needs none of it

            checked = black_box.Checked(
                forward=forward,
                vjp=vjp,
                primals=arrays,
                names=names,
                attrs=attrs,
                dtype=dtype,
                point=point,
                kinds=tuple(o.dtype for o in outputs),
                cotangents=cotangents,
                estimates=estimates,
            )
            return black_box.explained(checked, findings)

        if ended:
            return tuple(explained(ended))
        around = Around(point, outputs if point.primals is arrays else None)
        asked = asking(vjp, cotangents, attrs)
        conditioning = Conditioning(asked, point, rules)
        findings: list[Finding] = []
        for i in point.differentiable:
            got = answer.gradients[names[i]]
            if isinstance(got, Finding):
                findings.append(got)
                continue
            primal = BlackBox(point, i, names[i], cotangents, around, conditioning)
            findings.append(primal.judge(got))
            estimates[names[i]] = primal.estimate
        findings = explained(findings)
        floating = [names[i] for i in point.differentiable]
        gradients = rows_of(answer, floating, len(typed))

        def drawn(*role: object) -> Draw:
            return Draw(seed, "check", subject, *shapes, *role)

        if self.order == 2:
            right = all(finding.verdict is Verdict.PASS for finding in findings)
            ct = tuple(
                drawn("second", k).signed(*o.shape).astype(o.dtype) for k, o in enumerate(outputs)
            )
            try:
                base = rows_of(ask_vjp(vjp, [ct], arrays, names, attrs), floating, 1)
            except Broken as error:
                return (*findings, error.finding)
            if base is None or not all(np.isfinite(g).all() for g in base):
                reason = "vjp gives no gradients whose derivative could be judged"
                findings.append(Finding(name="d vjp", verdict=Verdict.NOTRUN, reason=reason))
            else:
                of_vjp = Gradients(vjp, ct, arrays, names, attrs, tuple(base))
                findings += Second(point, of_vjp, drawn, rules).judge(right)
                if self.double_vjp is not None:
                    findings += judge_double(self.double_vjp, of_vjp, drawn("double"), rules)
        if self.jvp is not None:
            mode = ForwardMode(
                self.jvp,
                point,
                outputs,
                arrays,
                names,
                attrs,
                cotangents,
                asked,
                drawn("jvp"),
                rules,
            )
            findings += mode.judge(gradients)
        return tuple(findings)


def assert_vjp(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    *primals: Any,
    seed: int = 0,
    attrs: Mapping[str, Any] = NO_ATTRS,
    full: bool = False,
    order: int = 1,
    double_vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> None:
    """Raise unless `check` passes; the arguments are those of `check`.

    Raises:
        AssertionError: the check did not pass; the text is the failure.
        UsageError: as for `check`.
    """
    found = check(
        forward,
        vjp,
        *primals,
        seed=seed,
        attrs=attrs,
        full=full,
        order=order,
        double_vjp=double_vjp,
        jvp=jvp,
    )
    if not found.ok:
        raise AssertionError(str(found))


@lru_cache(maxsize=16)
def _cotangents(
    seed: int,
    subject: str,
    shapes: tuple[tuple[int, ...], ...],
    kinds: tuple[np.dtype[Any], ...],
) -> Cotangents:
    """Those of a check that goes element by element; read-only, for the next one has them too."""
    drawn = draw_cotangents(Draw(seed, "check", subject, *shapes), shapes)
    # What vjp was asked first: an answer that it keeps is then known for what it is.
    drawn = drawn.holding(first_cotangent(seed, subject, drawn.flat.shape[1])).held(kinds)
    for ct in drawn.values:
        for part in ct:
            part.setflags(write=False)
    return drawn


def _check_request(order: Any, double_vjp: Any, jvp: Any) -> None:
    """Refuse what cannot be meant."""
    if isinstance(order, bool) or order not in (1, 2):
        raise UsageError(f"order is {order!r}: 1 judges the gradients, 2 their derivatives too")
    if double_vjp is not None and order != 2:
        raise UsageError("double_vjp is judged at order=2: pass that too")
    for name, function in (("double_vjp", double_vjp), ("jvp", jvp)):
        if function is not None and not callable(function):
            raise UsageError(f"{name} is a {type(function).__name__}: pass a function")


def _as_primal(value: Any, index: int) -> Array:
    try:
        array = np.array(value)
    except ValueError as error:
        raise UsageError(f"primal {index} is no array: {error}") from error
    if array.dtype == np.float64 or array.dtype.kind in "iub":
        return array
    if array.dtype.kind == "c":
        raise UsageError(
            f"primal {index} is {array.dtype}: complex primals are not supported yet; "
            "check the real and the imaginary part as two float64 primals"
        )
    if array.dtype.kind != "f" or array.dtype.name not in RULES:
        raise UsageError(
            f"primal {index} is {array.dtype}: pass float64 or float32 (integers for indices)"
        )
    return array


def _common_dtype(arrays: Sequence[Array]) -> str:
    floating = {a.dtype for a in arrays if a.dtype.kind == "f"}
    if len(floating) == 1 and np.dtype(np.float64) in floating:
        return "float64"
    found = sorted(dtype.name for dtype in floating)
    if not found:
        raise UsageError("no floating primal: there is nothing to differentiate by")
    if len(found) > 1:
        raise UsageError("the primals mix float32 and float64: give them one dtype")
    return found[0]


def _names(forward: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Names of the primals, from forward's signature where it has one."""
    own: Any = forward.__func__ if isinstance(forward, MethodType) else forward
    if isinstance(own, FunctionType) and not own.__dict__:  # what follows costs 15 µs
        names = own.__code__.co_varnames[own is not forward : own.__code__.co_argcount]
    else:
        names = _positional(forward)
    return names[:count] if len(names) >= count else tuple([f"primal{i}" for i in range(count)])


def _positional(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters that take a positional argument."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple([p.name for p in parameters if p.kind in kinds])
