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
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.contract import returned
from gradcheck.difference import noise
from gradcheck.difference.abreast import Abreast, copies
from gradcheck.difference.direction import NARROW, magnitude
from gradcheck.difference.evaluate import REFUSALS
from gradcheck.difference.kinks import RESOLVED
from gradcheck.difference.ladder import RATIO
from gradcheck.difference.projection import Pair, direction
from gradcheck.difference.residuals import Residuals, three
from gradcheck.difference.rungs import LINE_UNITS, PLANS, top_of
from gradcheck.draw import Draw, key_of
from gradcheck.finding import Finding, Miss
from gradcheck.judge.compare import KAPPA, RULES
from gradcheck.judge.function import AGREES
from gradcheck.judge.locate import ALLOWED
from gradcheck.spec import Attrs
from gradcheck.verdict import Verdict

Array = NDArray[Any]
Float = NDArray[np.float64]

POOL: Final = 1 << 16
"""Random numbers that are drawn once; a check takes a run of them, which its names choose."""
LONE: Final = 0.1
"""The error of one element that must show, as a part of it."""
MARGIN: Final = 4.0
"""How many times more than what is visible for certain it must be."""
FAINT: Final = {"float64": 2.0**-40, "float32": 1e-3}
"""Elements of g∘d below this part of the largest need not show: values alone say nothing of them
(float64: `judge.function.UNSEEN`), or full checks tolerate them (float32: `Rules.negligible`)."""
CRAMPED: Final = 1 / 16
"""A tensor moves by the spread of its elements, and at least by this part of their size."""
KINK: Final = 8.0
"""An even part that falls less per level (16 where φ is smooth, 4 at a kink) is a kink's."""
CLEARED: Final = 0.5
"""The errors that the ladders could overlook are at most this part of an alarm that they clear."""
U: Final = 2.0**-53

FIRST: Final = RATIO ** -PLANS["float64"].first
STEPS: Final = FIRST * np.repeat([[1.0], [1 / RATIO], [1 / RATIO**2]], 2, axis=0)
STEPS[1::2] *= -1.0


class Tensor:
    """One floating primal, flat: its values, its gradient, and the direction in which it moves."""

    __slots__ = ("d", "g", "least", "name", "norm", "product", "r", "shape", "square", "unit", "x")

    def __init__(self, name: str, x: Array, g: Float, r: Float) -> None:
        """`g` and `r` are flat, in float64; `r` are the direction's signs and magnitudes."""
        self.name, self.shape, self.g, self.r = name, x.shape, g, r
        self.x = x.astype(np.float64, copy=False).reshape(-1)
        self.unit: Any = _unit(self.x)

    def aim(self, faint: float) -> None:
        """Set d, ⟨g, d⟩, ‖g∘d‖² and the least |g∘d| that must show."""
        self.d = self.r * self.unit
        terms = self.g * self.d
        self.product, self.square = float(terms.sum()), float(terms.dot(terms))
        size = np.abs(terms)
        limit = faint * float(size.max())
        least = float(size.min())
        if not least > limit:
            seen = size[size > limit]
            least = float(seen.min()) if seen.size else 0.0
        self.least = least
        self.norm = math.sqrt(self.square)


def _unit(x: Float) -> float:
    """How far t = 1 moves a tensor: how far its elements lie apart, roughly."""
    square = float(x.dot(x)) / x.size
    if not 1e-280 < square < 1e280:
        return magnitude(x)
    mean = float(x.sum()) / x.size
    spread = square - mean * mean
    return math.sqrt(max(spread, square * CRAMPED**2))


def by_rows(x: Float, shape: tuple[int, ...]) -> Float:
    """The size of each row (last axis) of a tensor, per element: rows may differ by far."""
    rows = x.reshape(-1, shape[-1])
    largest = np.abs(rows).max(axis=1, keepdims=True)
    largest[largest == 0] = float(largest.max()) or 1.0
    size = largest * np.sqrt(np.mean((rows / largest) ** 2, axis=1, keepdims=True))
    size[~rows.any(axis=1)] = float(size.max())
    size = np.maximum(size, NARROW**2 * size.max())
    return np.broadcast_to(size, rows.shape).reshape(-1)


@cache
def _directions() -> Float:
    """Elements of directions, `POOL` of them and as many again that repeat them."""
    kind = np.dtype(np.float64)
    chunks = [c.copy() for c in direction(key_of("check", "directions"), 0, POOL, kind)]
    out = np.concatenate([*chunks, *chunks])
    out.setflags(write=False)
    return out


@cache
def _normals() -> Float:
    """Elements of cotangents: normal, none of them near zero."""
    out = np.tile(Draw("check", "cotangents").away(0.0, POOL), 2)
    out.setflags(write=False)
    return out


@lru_cache(maxsize=256)
def _starts(seed: int, subject: str) -> tuple[int, int]:
    """Where the numbers of one check begin."""
    key = key_of("check", seed, subject)
    return key % POOL, (key >> 64) % POOL


def draw_direction(seed: int, subject: str, size: int) -> Float:
    """`size` elements of a direction."""
    if size <= POOL:
        start = _starts(seed, subject)[0]
        return _directions()[start : start + size]
    kind = np.dtype(np.float64)
    key = key_of("check", "directions", seed, subject)
    return np.concatenate([c.copy() for c in direction(key, 0, size, kind)])


def draw_cotangent(seed: int, subject: str, size: int) -> Float:
    """`size` elements of a cotangent."""
    if size <= POOL:
        start = _starts(seed, subject)[1]
        return _normals()[start : start + size]
    return Draw("check", "cotangents", seed, subject).away(0.0, size)


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

    Forward is called at the point, at a moved one and for the stack; vjp twice, with the same
    cotangent. All that they owe besides numbers (form, purity, the same bits twice) is looked at;
    who broke what is not said here.
    """
    with np.errstate(all="ignore"):
        asked = Asked(forward, vjp, primals, names, attrs)
        outputs = asked.outputs()
        if outputs is None:
            return None
        base = [np.array(o, dtype=np.float64) for o in outputs]
        v = draw_cotangent(seed, subject, sum(o.size for o in base))
        gradients = asked.gradients(v, outputs)
        if gradients is None:
            return None
        if dtype != "float64":
            wide = _promoted(asked, base)
            if wide is None:
                return None
            base = wide
        flat = base[0].reshape(-1) if len(base) == 1 else np.concatenate([*map(np.ravel, base)])
        weighted = v * flat
        sigma = U * math.sqrt(weighted.dot(weighted))
        if not sigma < math.inf:
            return None
        r = draw_direction(seed, subject, sum(g.size for g in gradients if g is not None))
        tensors: list[Tensor | None] = []
        at = 0
        for name, primal, gradient in zip(names, primals, gradients, strict=True):
            if gradient is None:
                tensors.append(None)
                continue
            run, at = r[at : at + gradient.size], at + gradient.size
            tensors.append(Tensor(name, primal, gradient, run))
        fixed = [p if t is None else t.x.reshape(t.shape) for p, t in zip(primals, tensors)]
        points = Abreast(asked.values, fixed, base)
        return Screen(points, tensors, v, sigma, dtype).findings()


RAISED: Final = object()


class Asked:
    """Both functions and what they are called with: the same read-only copies every time."""

    __slots__ = ("_attrs", "_bits", "_copies", "_forward", "_names", "_vjp", "primals")

    def __init__(
        self,
        forward: Callable[..., Any],
        vjp: Callable[..., Any],
        primals: Sequence[Array],
        names: Sequence[str],
        attrs: Attrs,
    ) -> None:
        """Copy the primals."""
        self._forward, self._vjp, self._attrs = forward, vjp, attrs
        self.primals, self._names = primals, names
        self._bits = [p.tobytes() for p in primals]
        self._copies = [_read_only(np.array(p, order="C")) for p in primals]

    def values(self, *primals: Array) -> tuple[Array, ...]:
        """Forward's values as arrays."""
        out = self._forward(*primals, **self._attrs)
        if type(out) is np.ndarray:
            return (out,)
        parts = out if isinstance(out, (tuple, list)) else (out,)
        return tuple(np.asarray(part) for part in parts)

    def outputs(self) -> tuple[Array, ...] | None:
        """Forward's values at the primals; None if there is anything to say against them."""
        outputs = self._call(self.values, ())
        if outputs is RAISED or not self._pure():
            return None
        ok = outputs and all(o.dtype == np.float64 or o.dtype == np.float32 for o in outputs)
        return outputs if ok and all(o.size for o in outputs) else None

    def gradients(self, v: Float, outputs: Sequence[Array]) -> list[Float | None] | None:
        """What vjp gives, flat, None for an integer primal; None if it broke its contract."""
        cts, at = [], 0
        for o in outputs:
            part = v[at : at + o.size].reshape(o.shape)
            cts.append(_read_only(part.astype(o.dtype)))
            at += o.size
        bits = [ct.tobytes() for ct in cts]
        lead = cts[0] if len(cts) == 1 else tuple(cts)
        found: list[list[Float | None]] = []
        seen: list[list[bytes]] = []
        for _ in range(2):
            out = self._call(self._vjp, (lead,), **self._attrs)
            if out is RAISED or not self._pure() or bits != [ct.tobytes() for ct in cts]:
                return None
            parts = self._parts(out)
            if parts is None:
                return None
            seen.append([p.tobytes() for p in parts if p is not None])
            if not found:  # copies: the next call may use the same buffers
                found.append([None if p is None else _copy(p) for p in parts])
        return found[0] if seen[0] == seen[1] else None

    def _parts(self, out: Any) -> list[Array | None] | None:
        """The gradients of floating primals as arrays, if their form is right."""
        parts = out if isinstance(out, (tuple, list)) else (out,)
        if len(parts) != len(self.primals):
            return None
        found: list[Array | None] = []
        for part, primal in zip(parts, self.primals, strict=True):
            if primal.dtype.kind != "f":
                found.append(None)
                continue
            if type(part) is not np.ndarray:
                part = returned.as_array(part)
            if part is None or part.shape != primal.shape or part.dtype != primal.dtype:
                return None
            if not part.size:
                return None
            found.append(part)
        return found

    def _call(self, function: Callable[..., Any], lead: tuple[Any, ...], **attrs: Any) -> Any:
        try:
            return function(*lead, *self._copies, **attrs)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  whatever it is, it is asked again, and then named
            return RAISED

    def _pure(self) -> bool:
        """Whether the primals are what they were (foreign code ignores the flag)."""
        return self._bits == [c.tobytes() for c in self._copies]


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array


def _copy(array: Array) -> Float:
    """A copy, flat, in float64."""
    return np.array(array, dtype=np.float64).reshape(-1)


def _promoted(asked: Asked, base: Sequence[Float]) -> list[Float] | None:
    """Forward's values in float64, if a forward of float32 computes in its arguments' dtype."""
    wide = [p.astype(np.float64) if p.dtype.kind == "f" else p.copy() for p in asked.primals]
    try:
        outputs = asked.values(*wide)
    except REFUSALS:
        return None
    if [o.shape for o in outputs] != [o.shape for o in base]:
        return None
    if any(o.dtype != np.float64 for o in outputs):
        return None
    largest = max(float(np.abs(o).max()) for o in outputs)
    apart = max(float(np.abs(a - b).max()) for a, b in zip(outputs, base, strict=True))
    return [o.copy() for o in outputs] if apart <= AGREES * largest else None


class Screen:
    """The decision, from as few values as it takes; `sigma` is the least noise of ⟨v, f⟩."""

    __slots__ = ("_dtype", "_points", "_sigma", "_tensors", "_v")

    def __init__(
        self,
        points: Abreast,
        tensors: Sequence[Tensor | None],
        v: Float,
        sigma: float,
        dtype: str,
    ) -> None:
        """One tensor per primal; None for an integer one."""
        self._points, self._tensors, self._v = points, tensors, v
        self._sigma, self._dtype = sigma, dtype

    def findings(self) -> tuple[Finding, ...] | None:
        """One PASS per tensor, or None."""
        tensors = [t for t in self._tensors if t is not None]
        faint, u = FAINT[self._dtype], RULES[self._dtype].u
        square = 0.0
        for tensor in tensors:
            tensor.aim(faint)
            square += tensor.square
        norm = math.sqrt(square)
        if not norm < math.inf:  # an element that is not finite, too
            return None
        error, bar, kinked = self._together()
        allowed = ALLOWED * u * norm
        tolerance = allowed + KAPPA * bar
        visible = abs(error) + tolerance
        used = self._points.evaluations + 1
        settled = abs(error) <= tolerance and not kinked
        found: list[Finding] = []
        alone: list[Tensor] = []
        for tensor in tensors:
            if settled and LONE * tensor.least >= MARGIN * visible:
                found.append(_finding(tensor, error, bar, allowed, used))
            else:
                alone.append(tensor)
                found.append(NONE)
        if not alone:
            return tuple(found)
        alarm = math.inf if abs(error) <= tolerance or not bar < math.inf else abs(error)
        total = 0.0
        for k, tensor in enumerate(tensors):
            if found[k] is not NONE:
                continue
            one = self._alone(tensor, rows=not alarm < math.inf)
            if one is None:
                return None
            found[k] = one
            total += abs(one.error or 0.0) + (one.bound or 0.0)
        return tuple(found) if total <= CLEARED * alarm else None

    def _together(self) -> tuple[float, float, bool]:
        """(e, bar, whether there is a kink) along one direction through all tensors."""
        moved: list[Float | None] = []
        given: Any = 0.0
        for tensor in self._tensors:
            if tensor is None:
                moved.append(None)
                continue
            stack = copies(tensor.x, tensor.d, STEPS)
            moved.append(stack)
            given = given + np.subtract(stack[0::2], stack[1::2]) @ tensor.g
        change = self._points.changes(moved)
        if change is None:
            return 0.0, math.inf, False
        phi = (change @ self._v).tolist()
        odd = [phi[0] - phi[1], phi[2] - phi[3], phi[4] - phi[5]]
        even = [phi[0] + phi[1], phi[2] + phi[3], phi[4] + phi[5]]
        error, bar, _ = three(odd, given.tolist(), even, FIRST, U, self._sigma)
        kinked = (
            abs(even[2]) > RESOLVED * self._sigma
            and abs(even[1]) < KINK * abs(even[2])
            and abs(even[0]) < KINK * abs(even[1])
        )
        return error, bar, kinked

    def _alone(self, tensor: Tensor, rows: bool) -> Finding | None:
        """The whole ladder along a direction through one tensor; None if it does not pass.

        With `rows` each row moves by its own size.
        """
        if rows and len(tensor.shape) > 1:
            tensor.unit = by_rows(tensor.x, tensor.shape)
        tensor.aim(FAINT[self._dtype])
        largest = float(np.max(tensor.unit))
        plan = PLANS["float64"]
        levels = range(top_of(largest), plan.bottom + 1)
        steps = np.repeat(RATIO ** -np.array(levels, dtype=np.float64), 2)
        steps[1::2] *= -1.0
        line = noise.LINE / noise.LINE[-1] * LINE_UNITS * U
        stack = copies(tensor.x, tensor.d, np.concatenate([steps, line])[:, None])
        given = np.subtract(stack[0 : steps.size : 2], stack[1 : steps.size : 2]) @ tensor.g
        change = self._points.changes([stack if t is tensor else None for t in self._tensors])
        if change is None:
            return None
        phi = change @ self._v
        residuals = Residuals(0.0, U, self._sigma, noise.scatter(phi[steps.size :]))
        for k, level in enumerate(levels):
            pair = Pair(float(phi[2 * k]), float(phi[2 * k + 1]), float(given[k]))
            residuals.pairs[level] = pair
        slope = residuals.slope(finest=True)
        allowed = ALLOWED * RULES[self._dtype].u * tensor.norm
        tolerance = allowed + KAPPA * slope.bar
        ok = abs(slope.value) <= tolerance
        if not ok or not LONE * tensor.least >= MARGIN * (abs(slope.value) + tolerance):
            return None
        if residuals.sides() is not None:
            return None
        return _finding(tensor, slope.value, slope.bar, allowed, len(stack))


NONE: Final = Finding(name="", verdict=Verdict.NOTRUN)


def _finding(
    tensor: Tensor, error: float, bar: float, allowed: float, evaluations: int
) -> Finding:
    """PASS, and what it could have seen."""
    tolerance = allowed + KAPPA * bar
    miss = Miss(
        index=(),
        got=tensor.product,
        want=tensor.product + error,
        error=abs(error),
        bound=tolerance,
        error_bar=bar,
        ulp=None,
        cotangent="normal",
    )
    return Finding(
        name=tensor.name,
        verdict=Verdict.PASS,
        compared=tensor.g.size,
        smallest_visible_error=(abs(error) + tolerance) / tensor.least,
        worst=(miss,),
        evaluations=evaluations,
    )
