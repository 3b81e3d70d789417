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
        self._noise = per_output(lines, self._differences.evaluator.base, u)
        self._truth = Truth(
            name=name,
            shape=point.primals[index].shape,
            cotangents=cotangents.names,
            differences=self._differences,
            settle=self._find_kinks,
            allowance=lambda _: conditioning.cost(index),
            resolution=max(RELATIVE * self._rules.u, UNSEEN * u),
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

    def _where(self, elements: list[int]) -> str:
        index = np.unravel_index(elements[0], self._truth.shape)
        shown = f"[{', '.join(str(int(i)) for i in index)}]" if index else ""
        value = self._differences.evaluator.x.reshape(-1)[elements[0]]
        more = f" and at {len(elements) - 1} more" if len(elements) > 1 else ""
        return f"{self._truth.name}{shown} = {value:g}{more}"


class _Conditioning:
    """What rounding the primals alone does to a gradient: no implementation can do better.

    Layer_norm at 1000 ± 1 in float32 knows its rows to 6e-5 of their spread, and so its gradient
    to a few of that, however it is computed. The VJP judged is asked at neighbouring points, in
    float64 where it takes it; a wrong formula is equally wrong at all of them and gains nothing,
    and noise that follows the primals gains a thousandth of itself.
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

    def cost(self, index: int) -> Float | None:
        """Allowance for the gradient of primal `index`, [q, n]; None if it cannot be told."""
        costs = self._costs
        return None if costs is None else costs[index]

    @cached_property
    def _costs(self) -> list[Float] | None:
        rng = np.random.Generator(np.random.Philox(key=key_of("conditioning")))
        shapes = [p.shape for p in self._point.primals]
        draws = [[rng.choice([-1.0, 1.0], s) for s in shapes] for _ in range(NEIGHBOURS)]
        try:
            here = self._gradients(self._point.primals)
            near, far = ([self._squares(here, d, reach) for d in draws] for reach in (1.0, REACH))
        except Broken:
            return None
        means = ([np.mean(g, axis=0) for g in zip(*rows, strict=True)] for rows in (near, far))
        return [SAFETY * np.sqrt(np.minimum(*pair)) for pair in zip(*means, strict=True)]

    def _squares(self, here: list[Float], signs: list[Float], reach: float) -> list[Float]:
        """Squared change of the gradients, `reach` units of rounding away, per such unit."""
        moved = tuple(
            (p * (1 + sign * reach * self.rules.u)).astype(p.dtype) if p.dtype.kind == "f" else p
            for p, sign in zip(self._point.primals, signs, strict=True)
        )
        changes = [b - a for a, b in zip(here, self._gradients(moved), strict=True)]
        return [np.where(np.isfinite(c), (c / reach) ** 2, 0.0) for c in changes]

    def _gradients(self, primals: tuple[Array, ...]) -> list[Float]:
        """Gradients [q, n] per primal; an index has none, [q, 0]."""
        dtype = next(p.dtype for p in primals if p.dtype.kind == "f")
        names = [str(i) for i in range(len(primals))]
        cts = self._cotangents.typed(dtype.name)
        answer = ask_vjp(self._vjp, cts, primals, names, self._attrs)
        out = []
        for name, p in zip(names, primals, strict=True):
            found = answer.gradients.get(name, np.zeros((len(cts), 0)))
            if isinstance(found, Finding):
                raise Broken(found)
            out.append(found if p.dtype.kind == "f" else np.zeros((len(cts), 0)))
        return out


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
