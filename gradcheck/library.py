"""The library face: check any function and its VJP, without a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.contract.returned import Broken
from gradcheck.difference import kinks
from gradcheck.difference.evaluate import REFUSALS, Point, flatten
from gradcheck.difference.noise import RELATIVE, per_output
from gradcheck.difference.oracle import as_tuple
from gradcheck.difference.truth import Differences, noise_lines, noise_stairs
from gradcheck.draw import Draw, key_of
from gradcheck.errors import UsageError
from gradcheck.finding import Finding
from gradcheck.judge.compare import KAPPA, RULES, Comparison, Interval, Rules
from gradcheck.judge.cotangents import Cotangents, draw_cotangents
from gradcheck.judge.gradient import Truth
from gradcheck.judge.probe import ask_forward, ask_vjp
from gradcheck.verdict import Verdict, worst

Array = NDArray[Any]
Float = NDArray[np.float64]

NO_ATTRS: Final[Mapping[str, Any]] = MappingProxyType({})
CONFIRMED: Final = 16
"""Failing elements without a kink of forward under them that settle the matter."""
FLAT: Final = 16.0
"""Units of the judged dtype's u of the largest Σ|ct·J| that any element may be off: 1 − y² of a
saturated tanh is so, whatever its own scale."""
UNSEEN: Final = 1024.0
"""Units of u of the largest Σ|ct·J| below which values alone say nothing of an element."""
NEIGHBOURS: Final = 8
REACH: Final = 2.0**10
"""How many times further away the farther neighbours are: what rounding does grows with it; what
is noise, a gradient that is wrong otherwise at every point, does not."""
SAFETY: Final = 8.0
"""Eight neighbours bound the next one within this factor of their root mean square."""
EXAMINED: Final = 64
"""Open elements without a kink after which the others are left unresolved."""
BLURRED: Final = 0.1
"""The error bar, as a part of the one-sided slopes, above which they are no slopes to judge by."""
AGREES: Final = 1e-3
"""How closely, as part of its largest value, a float32 forward must agree with itself in float64 to
be differenced there."""


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


def check(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    *primals: Any,
    seed: int = 0,
    attrs: Mapping[str, Any] = NO_ATTRS,
) -> Result:
    """Judge `vjp` against the derivative of `forward` at `primals`, element by element.

    `forward(*primals, **attrs)` returns an array or a tuple of arrays;
    `vjp(ct, *primals, **attrs)` returns one cotangent per primal (a bare array for one primal,
    None for an integer one), where `ct` is shaped as forward's output (a tuple for several).
    The cotangents are random, drawn from `seed`; an all-ones one is among them.

    Cost: about 6 evaluations of forward per element, fewer where outputs do not mix (rows), and
    batched where forward treats a leading axis as batch.

    Raises:
        UsageError: a primal is complex, of a dtype other than float64 or float32 (integers
            apart), or there is no floating one to differentiate by.

    >>> import numpy as np
    >>> check(lambda x: x**2, lambda ct, x: 2 * x * ct, np.array([1.0, 2.0])).ok
    True
    >>> check(lambda x: x**2, lambda ct, x: x * ct, np.array([1.0, 2.0])).verdict.name
    'FAIL'
    """
    arrays = tuple(_as_primal(value, i) for i, value in enumerate(primals))
    dtype = _common_dtype(arrays)
    names = _names(forward, len(arrays))
    subject = getattr(vjp, "__name__", type(vjp).__name__)

    def result(findings: Sequence[Finding]) -> Result:
        return Result(findings=tuple(findings), dtype=dtype, subject=subject)

    try:
        outputs = ask_forward(forward, arrays, names, attrs)
        strange = sum(int((~np.isfinite(o)).sum()) for o in outputs)
        if strange:
            reason = f"{strange} of forward's values are not finite here: it has no derivative"
            return result([Finding(name="forward", verdict=Verdict.INCONCLUSIVE, reason=reason)])
        shapes = [o.shape for o in outputs]
        cotangents = draw_cotangents(Draw(seed, "check", subject, *shapes), shapes)
        typed = [
            tuple(c.astype(o.dtype) for c, o in zip(ct, outputs, strict=True))
            for ct in cotangents.values
        ]
        answer = ask_vjp(vjp, typed, arrays, names, attrs)
    except Broken as error:
        return result([error.finding])

    def function(*values: Array) -> tuple[Array, ...]:
        return tuple(np.asarray(o) for o in as_tuple(forward(*values, **attrs)))

    point = _promoted(Point(function, arrays), outputs)
    lines, stairs = noise_lines(point), noise_stairs(point)
    conditioning = _Conditioning(vjp, cotangents, point, attrs, RULES[dtype])
    findings = []
    for i in point.differentiable:
        got = answer.gradients[names[i]]
        if isinstance(got, Finding):
            findings.append(got)
            continue
        black_box = _BlackBox(point, i, names[i], cotangents, lines, stairs, conditioning)
        findings.append(black_box.judge(got))
    return result(findings)


def assert_vjp(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    *primals: Any,
    seed: int = 0,
    attrs: Mapping[str, Any] = NO_ATTRS,
) -> None:
    """Raise unless `check` passes; the arguments are those of `check`.

    Raises:
        AssertionError: the check did not pass; the text is the failure.
        UsageError: as for `check`.
    """
    found = check(forward, vjp, *primals, seed=seed, attrs=attrs)
    if not found.ok:
        raise AssertionError(str(found))


class _BlackBox:
    """One primal of a function that no spec describes: no oracle, but kinks can be found."""

    def __init__(
        self,
        point: Point,
        index: int,
        name: str,
        cotangents: Cotangents,
        lines: Float,
        stairs: Float,
        conditioning: _Conditioning,
    ) -> None:
        self._rules = conditioning.rules
        self._cts = cotangents.flat
        self._differences = Differences(point, index, self._cts, lines, stairs)
        u = float(np.finfo(point.primals[index].dtype).eps) / 2
        self._noise = per_output(lines, self._differences.evaluator.base)
        self._truth = Truth(
            name=name,
            shape=point.primals[index].shape,
            cotangents=cotangents.names,
            differences=self._differences,
            settle=self._find_kinks,
            allowance=lambda _: conditioning.cost(index, self._differences.reach),
            resolution=max(FLAT * self._rules.u, UNSEEN * u),
        )
        self._notes: list[str] = []

    def judge(self, got: Float) -> Finding:
        finding = self._truth.judge(got, self._rules)
        reason = "; ".join(filter(None, (finding.reason, *self._notes)))
        return replace(finding, reason=reason)

    def _find_kinks(self, found: Comparison) -> list[Interval]:
        """Look for a kink under the elements that the differences leave failed or open."""
        evaluator = self._differences.evaluator
        shape = found.got.shape
        which = np.zeros(shape, dtype=bool)
        low, high = np.zeros(shape), np.zeros(shape)
        lost: list[int] = []
        for suspects, enough in ((found.failed, CONFIRMED), (found.open, EXAMINED)):
            smooth = 0
            for element in np.flatnonzero(np.any(suspects & found.pending, axis=0)):
                sides = kinks.examine(evaluator, int(element), self._cts, self._noise)
                if sides is None:
                    self._look_aside(int(element))
                    smooth += 1
                    if smooth == enough:
                        break
                    continue
                blur = KAPPA * sides.bar
                steepest = np.maximum(np.abs(sides.low), np.abs(sides.high))
                if sides.jumps or not np.all(blur <= BLURRED * steepest):
                    lost.append(int(element))
                    self._differences.estimate.bar[:, element] = np.inf
                else:
                    which[:, element] = True
                    low[:, element], high[:, element] = sides.low - blur, sides.high + blur
        kinked = [int(e) for e in np.flatnonzero(np.any(which, axis=0))]
        if kinked:
            self._notes.append(
                f"forward has an undeclared kink at {self._where(kinked)}: "
                "judged by the slopes on both sides"
            )
        if lost:
            self._notes.append(
                f"forward jumps, or ends, at {self._where(lost)}: no slope to judge by"
            )
        return [Interval(which, low, high)] if kinked else []

    def _look_aside(self, element: int) -> None:
        """Sharpen an element whose bar is wide because a kink lies close beside it."""
        estimate = self._differences.estimate
        evaluator = self._differences.evaluator
        slope, bar = kinks.better_sides(evaluator, element, self._cts, self._noise)
        value, wide = estimate.value[:, element], estimate.bar[:, element]
        better = (bar < wide) & (np.abs(slope - value) <= KAPPA * wide)
        estimate.value[:, element] = np.where(better, slope, value)
        estimate.bar[:, element] = np.where(better, bar, wide)

    def _where(self, elements: list[int]) -> str:
        index = np.unravel_index(elements[0], self._truth.shape)
        shown = f"[{', '.join(str(int(i)) for i in index)}]" if index else ""
        value = self._differences.evaluator.x.reshape(-1)[elements[0]]
        more = f" and at {len(elements) - 1} more" if len(elements) > 1 else ""
        return f"{self._truth.name}{shown} = {value:g}{more}"


class _Conditioning:
    """What a right VJP may lose at this point, asked of the VJP judged at neighbouring points.

    Two things: what rounding the primals alone does to the gradient (layer_norm at 1000 ± 1 knows
    its rows to 6e-5 of their spread in float32, however it is computed), and what float32 loses
    against float64 inside (1 − y of a saturated softmax), up to some roundings of the largest
    slope that forward shows from afar. A wrong formula is equally wrong at all points and in both
    dtypes, and gains nothing; noise that follows the primals gains a thousandth of itself, because
    farther neighbours must not differ by more in proportion.
    """

    def __init__(
        self,
        vjp: Callable[..., Any],
        cotangents: Cotangents,
        point: Point,
        attrs: Mapping[str, Any],
        rules: Rules,
    ) -> None:
        self.rules = rules
        self._vjp, self._cotangents, self._point, self._attrs = vjp, cotangents, point, attrs

    def cost(self, index: int, reach: Float) -> Float | None:
        """Allowance for the gradient of primal `index`, [q, n]; None if it cannot be told."""
        if self._costs is None:
            return None
        moved, lost = (costs[index] for costs in self._costs)
        # Roundings are lumpy: an element that lost nothing at eight neighbours may do so here.
        lost = np.maximum(lost, np.sqrt(np.mean(lost**2, axis=1, keepdims=True)))
        return moved + np.minimum(lost, RELATIVE * self.rules.u * reach)

    @cached_property
    def _costs(self) -> tuple[list[Float], list[Float]] | None:
        """Per primal, what moves with its last bit, and what is lost inside; [q, n] each."""
        wide = next(p.dtype for p in self._point.primals if p.dtype.kind == "f")
        here = self._gradients(self._point.primals, wide)
        if here is None:
            return None
        near, far, lost = ([np.zeros_like(g) for g in here] for _ in range(3))
        rng = np.random.Generator(np.random.Philox(key=key_of("conditioning")))
        for _ in range(NEIGHBOURS):
            signs = [rng.choice([-1.0, 1.0], p.shape) for p in self._point.primals]
            for totals, reach in ((near, 1.0), (far, REACH)):
                there = self._gradients(self._moved(signs, reach), wide)
                _add_squares(totals, there, here, 1 / reach)
            single = self._moved(signs, 1.0, np.dtype(np.float32))
            rough = self._gradients(single, np.dtype(np.float32))
            fine = self._gradients(tuple(_typed(p, wide) for p in single), wide)
            _add_squares(lost, rough, fine, self.rules.u / RULES["float32"].u)
        least = [np.minimum(*pair) for pair in zip(near, far, strict=True)]
        rms = [[SAFETY * np.sqrt(t / NEIGHBOURS) for t in totals] for totals in (least, lost)]
        return rms[0], rms[1]

    def _moved(
        self, signs: list[Float], reach: float, dtype: np.dtype[Any] | None = None
    ) -> tuple[Array, ...]:
        """The primals, `reach` units of rounding away."""
        pairs = zip(self._point.primals, signs, strict=True)
        return tuple(
            _typed(p * (1 + sign * reach * self.rules.u), dtype or p.dtype)
            if p.dtype.kind == "f"
            else p
            for p, sign in pairs
        )

    def _gradients(self, primals: tuple[Array, ...], dtype: np.dtype[Any]) -> list[Float] | None:
        """Gradients [q, n] per primal (an index has none, [q, 0]); None if the VJP refuses."""
        names = [str(i) for i in range(len(primals))]
        cts = self._cotangents.typed(dtype.name)
        try:
            answer = ask_vjp(self._vjp, cts, primals, names, self._attrs)
        except Broken:
            return None
        out = []
        for name in names:
            found = answer.gradients.get(name, np.zeros((len(cts), 0)))
            if isinstance(found, Finding):
                return None
            out.append(found)
        return out


def _typed(primal: Array, dtype: np.dtype[Any]) -> Array:
    """A floating primal in another dtype; an index stays."""
    return primal.astype(dtype) if primal.dtype.kind == "f" else primal


def _add_squares(
    totals: list[Float], first: list[Float] | None, second: list[Float] | None, unit: float
) -> None:
    """Add squared differences, times `unit`², to `totals`; a refused answer adds nothing."""
    if first is None or second is None:
        return
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        with np.errstate(all="ignore"):
            square = ((a - b) * unit) ** 2
        totals[i] = totals[i] + np.where(np.isfinite(square), square, 0.0)


def _as_primal(value: Any, index: int) -> Array:
    try:
        array = np.array(value)
    except ValueError as error:
        raise UsageError(f"primal {index} is no array: {error}") from error
    if array.dtype.kind in "iub":
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
    found = sorted({a.dtype.name for a in arrays if a.dtype.kind == "f"})
    if not found:
        raise UsageError("no floating primal: there is nothing to differentiate by")
    if len(found) > 1:
        raise UsageError("the primals mix float32 and float64: give them one dtype")
    return found[0]


def _names(forward: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Names of the primals, from forward's signature where it has one."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional]
    return (
        tuple(names[:count]) if len(names) >= count else tuple(f"primal{i}" for i in range(count))
    )


def _promoted(point: Point, outputs: Sequence[Array]) -> Point:
    """The same point in float64, where a float32 forward computes in its arguments' dtype."""
    if all(p.dtype != np.float32 for p in point.primals):
        return point
    wide = tuple(p.astype(np.float64) if p.dtype.kind == "f" else p for p in point.primals)
    try:
        with np.errstate(all="ignore"):
            values = point.forward(*(p.copy() for p in wide))
    except REFUSALS:  # it insists on float32, and says so in its own way
        return point
    if any(v.dtype != np.float64 for v in values):
        return point
    a, b = flatten(outputs), flatten(values)
    if a.shape != b.shape:
        return point
    size = float(np.max(np.abs(b), initial=0.0))
    ok = bool(np.all(np.abs(a - b) <= AGREES * size))
    return replace(point, primals=wide) if ok else point
