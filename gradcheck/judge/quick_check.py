"""The quick check: one random direction through all primals at once, which can only pass.

forward is evaluated at three steps along d, and ⟨g, d⟩ is compared with the slope of ⟨v, forward⟩.
A tensor that this leaves open moves alone: by three steps, then by a full ladder. None means that
something is uncertain; the caller then judges element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gradcheck.implementations import returned
from gradcheck.judge.compare import ERROR_BAR_FACTOR, FAINT_SHARE, TOLERANCES, number_miss
from gradcheck.judge.cotangents import THIRDS, first_cotangent
from gradcheck.judge.locate import DIRECTION_ROUNDINGS
from gradcheck.judge.primal_check import in_float64, values_in_float64
from gradcheck.numerics import noise
from gradcheck.numerics.arrays import Array, Attrs, Float
from gradcheck.numerics.batched import BatchedForward, PackedPrimals, by_rows, end_to_end
from gradcheck.numerics.directional_slope import (
    LINE_UNITS,
    STEP_RANGES,
    Residuals,
    richardson3,
    top_of,
)
from gradcheck.numerics.draw import run_of_direction
from gradcheck.numerics.kinks_and_slopes import RESOLVED
from gradcheck.numerics.line_function import Pair
from gradcheck.numerics.narrow import fits_narrow
from gradcheck.numerics.richardson import RATIO
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

ELEMENT_SHARE: Final = {"float64": 0.005, "float32": 0.05}
"""The error that must be visible along one direction through all tensors, relative to each tensor's
least element: half of a hundredth (float32: of a tenth). Otherwise the tensor moves alone."""
LONE_ELEMENT_SHARE: Final = {"float64": 0.025, "float32": 0.05}
"""The error that must be visible where a tensor moves alone: a tenth, several times over."""
WHOLE_SHARE: Final = 2.0**-11
"""The error that must be visible at least, relative to the slope itself: half of a thousandth."""
KINK_DECAY: Final = 8.0
"""An even part that falls less per level belongs to a kink (16 where φ is smooth, 4 at a kink)."""
CLEARING_SHARE: Final = 0.5
"""A ladder clears an alarm only if it could overlook at most this part of it."""
MAX_LADDER_SIZE: Final = 1 << 17
"""Elements of all tensors above which no ladder is tried: it costs seconds."""
ELEMENTS_PER_SPARED: Final = 1 << 13
"""One element of so many may be too small to show, if it is negligible in its tensor."""
UNIT_ROUNDOFF: Final = 2.0**-53
PLAN: Final = STEP_RANGES["float64"]
FIRST_STEP: Final = RATIO**-5
"""The longest of three steps: where thirty tensors move, truncation and noise are about equal
there; where one moves, both are far below the error that must show."""
STEPS: Final = np.array([[1.0, s * FIRST_STEP / RATIO**k] for k in range(3) for s in (1.0, -1.0)])
UNKNOWN_SLOPE: Final = (0.0, math.inf, False)
FAILED_CALL: Final = object()
SECOND_FACTOR: Final = -2.0
"""A factor that leaves the rounding of products and sums unchanged."""
MAX_NONLINEARITY: Final = {"float64": 2.0**-30, "float32": 2.0**-16}
"""The rounding of a gradient for THIRDS, relative to its norm: less than a fourth of what a
narrower type loses of THIRDS."""
OUTPUT_DTYPES: Final = (np.dtype(np.float64), np.dtype(np.float32))


def quick_check(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    primals: Sequence[Array],
    names: Sequence[str],
    attrs: Attrs,
    dtype: str,
    seed: int,
    subject: str,
) -> tuple[Finding, ...] | None:
    """One PASS per floating primal, or None if anything is uncertain.

    Forward is called at the point, at a moved one and for the stack of steps; vjp with a cotangent
    and with −2 times that. The caller ignores floating-point warnings.
    """
    pair = FunctionPair(forward, vjp, primals, attrs)
    base = pair.outputs()
    if base is None:
        return None
    v = rounded_to_outputs(first_cotangent(seed, subject, sum([o.size for o in base])), base)
    gradient = pair.gradient(v, base)
    if gradient is not None and v.size == 1 and not pair.scales(gradient, base[0]):
        return None
    if gradient is not None and v.size > 1 and fits_narrow(gradient, dtype):
        return None  # the cotangent fills its mantissa: one direction in 300 shows no rounding
    if gradient is not None and dtype != "float64":
        base = pair.promoted(base)
    if gradient is None or base is None:
        return None
    points = BatchedForward(pair.values, primals, base)
    weighted = v * points.base
    sigma = UNIT_ROUNDOFF * math.sqrt(weighted.dot(weighted))
    if not sigma < math.inf:
        return None
    floating = pair.floating
    r = run_of_direction(seed, subject, gradient.size)
    bundle = PackedPrimals([primals[k] for k in floating], gradient, r)
    screen = QuickCheck(points, bundle, floating, v, sigma, dtype)
    return screen.findings([names[k] for k in floating])


class QuickCheck:
    """The decision, from as few values as possible.

    `floating` are the positions of the packed tensors among the primals; `sigma` is the least noise
    of φ = ⟨v, f⟩.
    """

    __slots__ = ("_allowed", "_bundle", "_dtype", "_floating", "_points", "_sigma", "_spare", "_v")

    def __init__(
        self,
        points: BatchedForward,
        bundle: PackedPrimals,
        floating: Sequence[int],
        v: Float,
        sigma: float,
        dtype: str,
    ) -> None:
        """Evaluate nothing yet."""
        self._points, self._bundle, self._floating = points, bundle, floating
        self._v, self._sigma, self._dtype = v, sigma, dtype
        self._allowed = DIRECTION_ROUNDINGS * TOLERANCES[dtype].u
        self._spare: float = bundle.x.size // ELEMENTS_PER_SPARED

    def findings(self, names: Sequence[str]) -> tuple[Finding, ...] | None:
        """One PASS per tensor, or None."""
        products, squares, least = self._bundle.weigh(FAINT_SHARE[self._dtype])
        norm = math.sqrt(sum(squares))
        if not 0 < norm < math.inf:  # zero: nothing is relative to it; or not finite
            return None
        error, bar, kinked = self._three(self._bundle)
        tolerance = self._allowed * norm + ERROR_BAR_FACTOR * bar
        visible = abs(error) + tolerance
        settled = abs(error) <= tolerance and not kinked
        # A ladder must see less than what has raised an alarm here.
        alarm = CLEARING_SHARE * abs(error) if abs(error) > tolerance else math.inf
        if alarm < math.inf and self._bundle.x.size > MAX_LADDER_SIZE:
            return None
        used = self._points.evaluations + 1
        sharp, whole = ELEMENT_SHARE[self._dtype], WHOLE_SHARE * abs(sum(products))
        found = []
        for k, name in enumerate(names):
            one: Finding | None = None
            if settled and visible <= min(sharp * least[k], whole):
                size = self._bundle.sizes[k]
                one = _finding(name, size, error, bar, tolerance, products[k], least[k], used)
            else:
                one = self._alone(k, name, alarm, alarm / norm)
            if one is None:
                return None
            found.append(one)
        return tuple(found)

    def _three(self, bundle: PackedPrimals, only: int | None = None) -> tuple[float, float, bool]:
        """(e, error bar, whether there is a kink) from three steps along the direction.

        It moves all tensors, or tensor `only`.
        """
        places = self._floating if only is None else [self._floating[only]]
        found = self._points.along(bundle, places, STEPS, 3)
        if found is None:
            return UNKNOWN_SLOPE
        phi, given = found[0].dot(self._v).tolist(), found[1]
        odd = [phi[0] - phi[1], phi[2] - phi[3], phi[4] - phi[5]]
        even = [phi[0] + phi[1], phi[2] + phi[3], phi[4] + phi[5]]
        error, bar, _ = richardson3(odd, given, even, FIRST_STEP, UNIT_ROUNDOFF, self._sigma)
        kinked = (
            abs(even[2]) > RESOLVED * self._sigma
            and abs(even[1]) < KINK_DECAY * abs(even[2])
            and abs(even[0]) < KINK_DECAY * abs(even[1])
        )
        return error, bar, kinked

    def _alone(self, k: int, name: str, alarm: float, part: float) -> Finding | None:
        """Three steps, then a full ladder, through one tensor; None if it does not pass.

        Each of its rows moves by its own size. Errors of `alarm` along the direction of all tensors
        must be visible, whichever row has them, and errors of `part` of ‖g∘d‖.
        """
        bundle = self._bundle
        x, r, shape = bundle.part(bundle.x, k), bundle.part(bundle.r, k), bundle.shapes[k]
        only = bundle.alone(k, r * (by_rows(x, shape) if len(shape) > 1 else bundle.units[k]))
        (product,), (square,), (least,) = only.weigh(FAINT_SHARE[self._dtype])
        norm = math.sqrt(square)
        part = min(part * norm, alarm * float(np.abs(only.d / bundle.part(bundle.d, k)).min()))
        lone = LONE_ELEMENT_SHARE[self._dtype]
        large = bundle.x.size > MAX_LADDER_SIZE
        for look in (self._three,) if large else (self._three, self._ladder):
            before = self._points.evaluations
            error, bar, kinked = look(only, k)
            tolerance = self._allowed * norm + ERROR_BAR_FACTOR * bar
            visible = abs(error) + tolerance
            if kinked or not abs(error) <= tolerance:
                continue
            if not visible <= min(part, WHOLE_SHARE * abs(product)):
                continue
            unseen = 0.0
            if not visible <= lone * least:
                if look == self._three:
                    continue
                unseen, least = self._unseen(only, visible / lone)
                if not unseen <= self._spare:
                    continue
                self._spare -= unseen
            used = self._points.evaluations - before
            found = _finding(name, x.size, error, bar, tolerance, product, least, used)
            return replace(found, unresolved=int(unseen)) if unseen else found
        return None

    def _unseen(self, bundle: PackedPrimals, smallest: float) -> tuple[float, float]:
        """The number of |g∘d| below `smallest` that should show, and the least of the others.

        Infinite where even an element that is not negligible in its tensor would not show.
        """
        size, g = np.abs(bundle.g * bundle.d), np.abs(bundle.g)
        negligible = TOLERANCES[self._dtype].negligible_scale
        if not smallest <= negligible * float(size.max()):
            return math.inf, 0.0
        hidden = bundle.counts(0, FAINT_SHARE[self._dtype]) & (size < smallest)
        if not np.all(g[hidden] <= negligible * g.max()):
            return math.inf, 0.0
        return int(hidden.sum()), float(size[size >= smallest].min())

    def _ladder(self, bundle: PackedPrimals, only: int) -> tuple[float, float, bool]:
        """As `_three`, from all steps, with the noise measured on a line of its own."""
        levels = range(top_of(float(np.max(np.abs(bundle.d)))), PLAN.bottom + 1)
        steps = np.repeat(RATIO ** -np.array(levels, dtype=np.float64), 2)
        steps[1::2] *= -1.0
        line = noise.LINE / noise.LINE[-1] * LINE_UNITS * UNIT_ROUNDOFF
        t = np.concatenate([steps, line])
        rows = np.stack([np.ones_like(t), t], axis=1)
        found = self._points.along(bundle, [self._floating[only]], rows, len(levels))
        if found is None:
            return UNKNOWN_SLOPE
        phi, given = found[0].dot(self._v), found[1]
        residuals = Residuals(0.0, UNIT_ROUNDOFF, self._sigma, noise.scatter(phi[steps.size :]))
        values = phi.tolist()
        for j, level in enumerate(levels):
            residuals.pairs[level] = Pair(values[2 * j], values[2 * j + 1], given[j])
        slope = residuals.slope(finest=True)
        return slope.value, slope.bar, residuals.kinked()


def _finding(
    name: str,
    size: int,
    error: float,
    bar: float,
    tolerance: float,
    product: float,
    least: float,
    evaluations: int,
) -> Finding:
    miss = number_miss(product, product + error, abs(error), tolerance, bar, cotangent="normal")
    return Finding(
        name=name,
        verdict=Verdict.PASS,
        compared=size,
        smallest_visible_error=(abs(error) + tolerance) / least,
        worst=(miss,),
        evaluations=evaluations,
    )


class FunctionPair:
    """Both functions and their arguments: the same read-only copies in every call.

    `floating` are the positions of the primals that have a gradient.
    """

    __slots__ = ("_attrs", "_bits", "_copies", "_forward", "_primals", "_vjp", "floating")

    def __init__(
        self,
        forward: Callable[..., Any],
        vjp: Callable[..., Any],
        primals: Sequence[Array],
        attrs: Attrs,
    ) -> None:
        """Copy the primals."""
        self._forward, self._vjp, self._attrs, self._primals = forward, vjp, attrs, primals
        self._copies = [np.array(p, order="C") for p in primals]
        for copy in self._copies:
            copy.setflags(write=False)
        self._bits = _bits(self._copies)
        self.floating = [k for k, p in enumerate(primals) if p.dtype.kind == "f"]

    def values(self, *primals: Array) -> tuple[Array, ...]:
        """Forward's values, as arrays."""
        out = self._forward(*primals, **self._attrs)
        if type(out) is np.ndarray:
            return (out,)
        parts = out if isinstance(out, (tuple, list)) else (out,)
        return tuple(np.asarray(part) for part in parts)

    def outputs(self) -> tuple[Array, ...] | None:
        """Forward's values at the primals, copied; None on any violation."""
        out = self._call(self.values, ())
        if out is FAILED_CALL or not out:
            return None
        for o in out:
            if o.dtype not in OUTPUT_DTYPES or not o.size:
                return None
        return tuple([o.copy() for o in out])

    def gradient(self, v: Float, outputs: Sequence[Array]) -> Float | None:
        """The gradients for the cotangent `v` [m]: floating primals end to end, [N]; or None.

        vjp is also called with −2v, and must return −2 times that to the last bit, since it is
        linear. This shows a cotangent that is ignored and a buffer that is not zeroed.
        """
        kept: Array | None = None
        for factor in (1.0, SECOND_FACTOR):
            cts, at = [], 0
            for o in outputs:
                part = v[at : at + o.size].reshape(o.shape)
                cts.append((part * factor).astype(o.dtype, copy=False))
                cts[-1].setflags(write=False)
                at += o.size
            bits = _bits(cts)
            lead = (cts[0] if len(cts) == 1 else tuple(cts),)
            parts = self._parts(self._call(self._vjp, lead, **self._attrs))
            if parts is None or bits != _bits(cts):
                return None
            # A copy: a gradient may be a view of a buffer that the next call uses again.
            flat = end_to_end(parts)
            if kept is None:
                kept = flat
            elif not (flat == kept * factor).all():
                return None
        assert kept is not None
        return kept.astype(np.float64, copy=False)

    def scales(self, gradient: Float, output: Array) -> bool:
        """Whether the vjp of a forward with one number is linear for a cotangent that types round.

        `gradient` is that for 1, the cotangent of a loss. 1 and its multiples by powers of two fit
        in every type, so that rounding of the cotangent has not shown there.
        """
        ct = np.full(output.shape, THIRDS, output.dtype)
        ct.setflags(write=False)
        parts = self._parts(self._call(self._vjp, (ct,), **self._attrs))
        if parts is None:
            return False
        at = 0
        for part in parts:
            want = gradient[at : at + part.size] * float(ct.reshape(-1)[0])
            off = part.reshape(-1) - want
            at += part.size
            if not off.dot(off) <= MAX_NONLINEARITY[part.dtype.name] ** 2 * want.dot(want):
                return False
        return True

    def promoted(self, outputs: Sequence[Array]) -> tuple[Array, ...] | None:
        """Forward's values in float64, if a float32 forward computes in its arguments' dtype."""
        values = values_in_float64(self.values, in_float64(self._primals), outputs)
        return None if values is None else tuple([v.copy() for v in values])

    def _parts(self, out: Any) -> list[Array] | None:
        """The gradients of floating primals as arrays; None if their form is wrong."""
        parts = out if isinstance(out, (tuple, list)) else (out,)
        if len(parts) != len(self._primals):
            return None
        found = []
        for k in self.floating:
            part, primal = parts[k], self._primals[k]
            array = part if type(part) is np.ndarray else returned.as_array(part)
            if array is None or array.shape != primal.shape or array.dtype != primal.dtype:
                return None
            if not array.size:
                return None
            found.append(array)
        return found

    def _call(self, function: Callable[..., Any], lead: tuple[Any, ...], /, **attrs: Any) -> Any:
        """The result of `function`; FAILED_CALL if it raises or changes a primal."""
        try:
            out = function(*lead, *self._copies, **attrs)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  it is asked again, and then named
            return FAILED_CALL
        return out if self._bits == _bits(self._copies) else FAILED_CALL  # some ignore the flag


def rounded_to_outputs(v: Float, outputs: Sequence[Array]) -> Float:
    """A cotangent [m] of all outputs end to end, rounded to their dtypes."""
    if all(o.dtype == np.float64 for o in outputs):
        return v
    ends = np.cumsum([o.size for o in outputs])[:-1]
    parts = zip(np.split(v, ends), outputs, strict=True)
    return np.concatenate([part.astype(o.dtype).astype(np.float64) for part, o in parts])


def _bits(arrays: Sequence[Any]) -> bytes:
    return b"".join(arrays)
