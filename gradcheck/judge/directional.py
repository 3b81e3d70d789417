"""A whole call's gradients against the slope along random directions: pass, or not settled here.

All primals move at once along d, sign × magnitude in [1/2, 3/2] of each one's size. With
e = ⟨g* − g, d⟩ as the residuals of three steps give it, U = 2 · error bar and B = 12·u·‖g∘d‖₂ for
what the implementation may round, a gradient passes where |e| ≤ B + U, **and** an error of a tenth
of its smallest element would have been more than that, several times over. A gradient that is
small beside the others, or a forward that three steps do not settle, gets the whole ladder along
directions of its own. What is not settled then is somebody else's to judge, element by element:
nothing fails here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.checked_pair import CheckedPair, held
from gradcheck.judge.compare import KAPPA, RULES
from gradcheck.judge.cotangents import first_cotangent
from gradcheck.judge.locate import ALLOWED
from gradcheck.numerics import noise
from gradcheck.numerics.adaptive_slope import (
    LINE_UNITS,
    STEP_RANGES,
    Residuals,
    richardson3,
    top_of,
)
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.batched import BatchedForward, PackedPrimals, by_rows
from gradcheck.numerics.draw import run_of_direction
from gradcheck.numerics.multiscale import RESOLVED
from gradcheck.numerics.narrow import fits_narrow
from gradcheck.numerics.ray import Pair
from gradcheck.numerics.richardson import RATIO
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]

SHARP: Final = {"float64": 0.005, "float32": 0.05}
"""What must be visible along one direction through all tensors, as a part of each one's least
element: half of an error of a hundredth (float32: a tenth). Otherwise a tensor moves alone."""
LONE: Final = {"float64": 0.025, "float32": 0.05}
"""The same where it moves alone: an error of a tenth shows, several times over."""
WHOLE: Final = 2.0**-11
"""What must be visible at least, as a part of the slope itself: half of an error of a thousandth in
all of a gradient."""
FAINT: Final = {"float64": 2.0**-40, "float32": 1e-3}
"""Elements below this part of the largest, in g and in g∘d, need not show: values alone say nothing
of them (float64: `judge.black_box.UNSEEN`), or what a kernel may round of the others hides them."""
KINK: Final = 8.0
"""An even part that falls less per level (16 where φ is smooth, 4 at a kink) is a kink's."""
CLEARED: Final = 0.5
"""What a ladder could overlook is at most this part of an alarm that it clears."""
LARGE: Final = 1 << 17
"""Elements of all tensors above which what needs a ladder is handed over: it costs seconds."""
SPARE: Final = 1 << 13
"""One element of so many may be too small to show, if it is negligible in its tensor."""
U: Final = 2.0**-53
PLAN: Final = STEP_RANGES["float64"]
FIRST: Final = RATIO**-5
"""The longest of three steps: truncation and noise are about as large where thirty tensors move,
and where one does, both are far below what must show."""
STEPS: Final = np.array([[1.0, s * FIRST / RATIO**k] for k in range(3) for s in (1.0, -1.0)])
UNKNOWN: Final = (0.0, math.inf, False)


def screened(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    primals: Sequence[Array],
    names: Sequence[str],
    attrs: Attrs,
    dtype: str,
    seed: int,
    subject: str,
) -> tuple[Finding, ...] | None:
    """One PASS per floating primal, or None if anything at all is not certain.

    Forward is called at the point, at a moved one and for the stack; vjp twice, with a cotangent
    and −2 times that. Callers ignore floating-point warnings.
    """
    handed = CheckedPair(forward, vjp, primals, attrs)
    base = handed.outputs()
    if base is None:
        return None
    v = held(first_cotangent(seed, subject, sum([o.size for o in base])), base)
    gradient = handed.gradient(v, base)
    if gradient is not None and v.size == 1 and not handed.scales(gradient, base[0]):
        return None
    if gradient is not None and v.size > 1 and fits_narrow(gradient, dtype):
        return None  # the cotangent fills its mantissa: one direction in 300 shows no rounding
    if gradient is not None and dtype != "float64":
        base = handed.promoted(base)
    if gradient is None or base is None:
        return None
    points = BatchedForward(handed.values, primals, base)
    weighted = v * points.base
    sigma = U * math.sqrt(weighted.dot(weighted))
    if not sigma < math.inf:
        return None
    floating = handed.floating
    r = run_of_direction(seed, subject, gradient.size)
    bundle = PackedPrimals([primals[k] for k in floating], gradient, r)
    screen = Screen(points, bundle, floating, v, sigma, dtype)
    return screen.findings([names[k] for k in floating])


class Screen:
    """The decision, from as few values as it takes.

    `floating` are the places of the bundle's tensors among the primals; `sigma` is the least noise
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
        self._allowed = ALLOWED * RULES[dtype].u
        self._spare: float = bundle.x.size // SPARE

    def findings(self, names: Sequence[str]) -> tuple[Finding, ...] | None:
        """One PASS per tensor, or None."""
        products, squares, least = self._bundle.weigh(FAINT[self._dtype])
        norm = math.sqrt(sum(squares))
        if not 0 < norm < math.inf:  # zero: nothing is relative to it; or not finite
            return None
        error, bar, kinked = self._three(self._bundle)
        tolerance = self._allowed * norm + KAPPA * bar
        visible = abs(error) + tolerance
        settled = abs(error) <= tolerance and not kinked
        # A ladder must see less than what has raised an alarm here.
        alarm = CLEARED * abs(error) if abs(error) > tolerance else math.inf
        if alarm < math.inf and self._bundle.x.size > LARGE:
            return None
        used = self._points.evaluations + 1
        sharp, whole = SHARP[self._dtype], WHOLE * abs(sum(products))
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
        """(e, error bar, whether there is a kink) from three steps along `bundle`'s direction.

        It holds all tensors, or tensor `only`.
        """
        places = self._floating if only is None else [self._floating[only]]
        found = self._points.along(bundle, places, STEPS, 3)
        if found is None:
            return UNKNOWN
        phi, given = found[0].dot(self._v).tolist(), found[1]
        odd = [phi[0] - phi[1], phi[2] - phi[3], phi[4] - phi[5]]
        even = [phi[0] + phi[1], phi[2] + phi[3], phi[4] + phi[5]]
        error, bar, _ = richardson3(odd, given, even, FIRST, U, self._sigma)
        kinked = (
            abs(even[2]) > RESOLVED * self._sigma
            and abs(even[1]) < KINK * abs(even[2])
            and abs(even[0]) < KINK * abs(even[1])
        )
        return error, bar, kinked

    def _alone(self, k: int, name: str, alarm: float, part: float) -> Finding | None:
        """Three steps, or a whole ladder, through one tensor; None if it does not pass.

        Each of its rows moves by its own size. To be seen are errors of `alarm` along the
        direction of all tensors, whichever row has them, and `part` of ‖g∘d‖.
        """
        bundle = self._bundle
        x, r, shape = bundle.part(bundle.x, k), bundle.part(bundle.r, k), bundle.shapes[k]
        only = bundle.alone(k, r * (by_rows(x, shape) if len(shape) > 1 else bundle.units[k]))
        (product,), (square,), (least,) = only.weigh(FAINT[self._dtype])
        norm = math.sqrt(square)
        part = min(part * norm, alarm * float(np.abs(only.d / bundle.part(bundle.d, k)).min()))
        lone = LONE[self._dtype]
        large = bundle.x.size > LARGE
        for look in (self._three,) if large else (self._three, self._ladder):
            before = self._points.evaluations
            error, bar, kinked = look(only, k)
            tolerance = self._allowed * norm + KAPPA * bar
            visible = abs(error) + tolerance
            if kinked or not abs(error) <= tolerance:
                continue
            if not visible <= min(part, WHOLE * abs(product)):
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
        """How many |g∘d| that must show are below `smallest`, and the least of the others.

        All of them count where even what is negligible in the tensor would not show.
        """
        size, g = np.abs(bundle.g * bundle.d), np.abs(bundle.g)
        negligible = RULES[self._dtype].negligible
        if not smallest <= negligible * float(size.max()):
            return math.inf, 0.0
        hidden = bundle.counts(0, FAINT[self._dtype]) & (size < smallest)
        if not np.all(g[hidden] <= negligible * g.max()):
            return math.inf, 0.0
        return int(hidden.sum()), float(size[size >= smallest].min())

    def _ladder(self, bundle: PackedPrimals, only: int) -> tuple[float, float, bool]:
        """The same from all steps, and the noise on a line of its own."""
        levels = range(top_of(float(np.max(np.abs(bundle.d)))), PLAN.bottom + 1)
        steps = np.repeat(RATIO ** -np.array(levels, dtype=np.float64), 2)
        steps[1::2] *= -1.0
        line = noise.LINE / noise.LINE[-1] * LINE_UNITS * U
        t = np.concatenate([steps, line])
        rows = np.stack([np.ones_like(t), t], axis=1)
        found = self._points.along(bundle, [self._floating[only]], rows, len(levels))
        if found is None:
            return UNKNOWN
        phi, given = found[0].dot(self._v), found[1]
        residuals = Residuals(0.0, U, self._sigma, noise.scatter(phi[steps.size :]))
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
    """PASS, and what it could have seen."""
    miss = Miss(
        index=(),
        got=product,
        want=product + error,
        error=abs(error),
        bound=tolerance,
        error_bar=bar,
        ulp=None,
        cotangent="normal",
    )
    return Finding(
        name=name,
        verdict=Verdict.PASS,
        compared=size,
        smallest_visible_error=(abs(error) + tolerance) / least,
        worst=(miss,),
        evaluations=evaluations,
    )
