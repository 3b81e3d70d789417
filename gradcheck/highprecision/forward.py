"""One forward at one point in big numbers: its values, and its slopes along directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.highprecision.array import big, number_protocol, raw
from gradcheck.highprecision.numbers import DIGITS, Numbers, numbers
from gradcheck.highprecision.rebound import Rebound
from gradcheck.highprecision.refusal import Leak, NoArbiter, Spent, Unsupported, placed

Array = NDArray[Any]
Float = NDArray[np.float64]

STEPS: Final = ((-73, -86), (-133, -146), (-266, -279))
"""Pairs of steps, as powers of two of every element's own size; each pair asks for more digits."""
MARGIN: Final = (0, 40, 120)
"""Digits more for each pair of steps."""
AGREES: Final = 1e-12
"""How closely the slopes of both steps must agree, as a part of the larger."""
SHRINKS: Final = 1e-3
"""A slope that shrinks so with a step 2⁻¹³ times as long is 0 in the limit."""
CONFIRM: Final = 400
"""Digits more in which a slope of exactly 0 is confirmed."""
SMALLEST: Final = 1e-30
"""The size of an element 0 of a tensor of zeros."""
BESIDE: Final = 1e-10
"""The size of an element 0, as a part of the smallest element beside it."""


@dataclass(frozen=True)
class Slopes:
    """One-sided derivatives of every output along a direction, all outputs end to end, [m].

    Each is correct to 12 digits; NaN where there is none (forward jumps, or is vertical, on that
    side). They are equal where forward is smooth.
    """

    behind: Array
    ahead: Array


class BigForward:
    """One forward at one point, in big numbers."""

    def __init__(
        self,
        forward: Callable[..., Any],
        primals: Sequence[Array],
        attrs: Mapping[str, Any],
        budget: int,
    ) -> None:
        """Evaluate `forward(*primals, **attrs)`, with at most `budget` numbers computed in all.

        Floating and complex primals become big numbers; others are passed as they are.
        """
        _ready()
        self._forward, self._attrs = Rebound()(forward), dict(attrs)
        self._primals = tuple(np.asarray(p) for p in primals)
        self._moving = [i for i, p in enumerate(self._primals) if p.dtype.kind in "fc"]
        self._left = budget
        self._values: dict[int, list[Array]] = {}
        widths = [_real(self._primals[i].dtype) for i in self._moving]
        self._dtype = max(widths, key=lambda d: d.itemsize, default=np.dtype(np.float64))

    # ── the face ─────────────────────────────────────────────────────────────────────────────

    def outputs(self) -> tuple[Array, ...]:
        """Forward's values here, rounded to float64 (complex128 where they are complex).

        Raises:
            NoArbiter: forward cannot be evaluated in big numbers; the text says why.
        """
        return tuple(self._rounded(v) for v in self._base(DIGITS + self._spread(None)))

    def slopes(self, direction: Sequence[Array | None]) -> Slopes:
        """Derivatives of every output along `direction`, one part for each primal.

        Raises:
            NoArbiter: forward cannot be evaluated in big numbers; the text says why.
        """
        moved = [
            (i, np.asarray(direction[i]))
            for i in self._moving
            if direction[i] is not None and np.any(direction[i])
        ]
        if not moved:
            zero = np.zeros(sum(v.size for v in self._base(DIGITS + self._spread(None))))
            return Slopes(zero, zero.copy())
        ahead = self._side(moved, 1)
        behind = self._side(moved, -1)
        mean = (ahead + behind) / 2
        same = np.abs(ahead - behind) <= 8 * AGREES * np.abs(mean)
        return Slopes(np.where(same, mean, behind), np.where(same, mean, ahead))

    # ── slopes ───────────────────────────────────────────────────────────────────────────────

    def _side(self, moved: list[tuple[int, Array]], sign: int) -> Array:
        """One-sided slopes, [m], by pairs of ever smaller steps until two agree."""
        size = self._size(moved)
        spread = self._spread(moved)
        found: Array | None = None
        open_: Array | None = None
        for (far, near), margin in zip(STEPS, MARGIN, strict=True):
            digits = DIGITS + spread + margin
            first, second = (
                self._quotients(moved, sign, size, power, digits) for power in (far, near)
            )
            value, settled = _settled(first, second)
            if found is None or open_ is None:
                found, open_ = value, ~settled
            else:
                found = np.where(open_ & settled, value, found)
                open_ &= ~settled
            if not open_.any():
                break
        else:
            shrinks = np.abs(second) <= SHRINKS * np.abs(first)
            found = np.where(open_, np.where(shrinks, 0.0, np.nan), found)
        zero = found == 0
        if zero.any():
            exact = self._quotients(moved, sign, size, near, DIGITS + spread + margin + CONFIRM)
            again = self._quotients(moved, sign, size, far, DIGITS + spread + margin + CONFIRM)
            shrinks = np.abs(exact) <= SHRINKS * np.abs(again)
            value = np.where(shrinks, 0.0, exact)
            found = np.where(zero, value, found)
        return np.asarray(found)

    def _quotients(
        self, moved: list[tuple[int, Array]], sign: int, size: Any, power: int, digits: int
    ) -> Array:
        """(f(x ± t d) − f(x)) / ±t, rounded, [m]; t is 2^power of the common `size`."""
        base = self._base(digits)
        work = numbers()
        with self._session(digits):
            step = sign * work.context.ldexp(size, power)
            values = self._evaluate({i: big(d) * step for i, d in moved})
            parts = [
                raw((big(after) - big(before)) / step).reshape(-1)
                for after, before in zip(values, base, strict=True)
            ]
            return np.concatenate([self._rounded(p) for p in parts]) if parts else np.zeros(0)

    def _size(self, moved: list[tuple[int, Array]]) -> Any:
        """The step along the direction that is each moved element's own size or less."""
        context = numbers().context
        least = context.inf
        for i, d in moved:
            x, d = np.abs(self._primals[i]).astype(np.float64), np.abs(d).astype(np.float64)
            there = x[x > 0]
            smallest = context.mpf(float(there.min())) * BESIDE if there.size else SMALLEST
            on = (d > 0) & (x > 0)
            with np.errstate(all="ignore"):
                ratio = np.where(on, x / np.where(on, d, 1.0), np.inf)
            k = int(np.argmin(ratio))
            if np.isfinite(x.reshape(-1)[k] / d.reshape(-1)[k] if d.reshape(-1)[k] else np.inf):
                own = context.mpf(float(x.reshape(-1)[k])) / float(d.reshape(-1)[k])
                least = min(least, own)
            if np.any((d > 0) & (x == 0)):
                least = min(least, smallest / float(d[(d > 0) & (x == 0)].max()))
        mantissa, exponent = context.frexp(least)
        del mantissa
        return context.ldexp(context.one, int(exponent) - 1)

    def _spread(self, moved: list[tuple[int, Array]] | None) -> int:
        """Digits that lie between the largest primal, or 1, and the smallest step."""
        largest = 1.0
        for i in self._moving:
            x = np.abs(self._primals[i])
            largest = max(largest, float(np.max(x, initial=0.0)))
        if moved is None:
            return 0
        size = self._size(moved)
        return max(
            0,
            int(context.nint(context.log10(largest / size))._mpf_[1])
            if False
            else _log10(largest, size),
        )

    # ── evaluation ───────────────────────────────────────────────────────────────────────────

    def _base(self, digits: int) -> list[Array]:
        if digits not in self._values:
            with self._session(digits):
                self._values[digits] = self._evaluate({})
        return self._values[digits]

    def _session(self, digits: int) -> Any:
        return _Session(self, digits)

    def _evaluate(self, steps: Mapping[int, Any]) -> list[Array]:
        """Forward's outputs as object arrays of big numbers."""
        arguments = []
        for i, p in enumerate(self._primals):
            if i not in self._moving:
                arguments.append(p.copy())
                continue
            if not np.all(np.isfinite(p)):
                raise NoArbiter("a primal is not finite: there is no derivative here")
            x = big(p.astype(np.result_type(p.dtype, np.float64)))
            arguments.append(x + steps[i] if i in steps else x)
        with np.errstate(all="ignore"):
            outputs = evaluate(self._forward, arguments, self._attrs)
        for values in outputs:
            if not all(_finite(v) for v in values.ravel().tolist()):
                raise NoArbiter("forward's values in big numbers are not finite here")
        return outputs

    @staticmethod
    def _rounded(values: Array) -> Array:
        work = numbers()
        if any(type(v) is work.complex for v in values.ravel().tolist()):
            parts = [
                work.floats(np.frompyfunc(lambda v, p=p: getattr(v, p), 1, 1)(values))
                for p in ("real", "imag")
            ]
            return np.asarray(parts[0] + 1j * parts[1])
        return work.floats(values)


class _Session:
    """The digits of one evaluation, and what is left of the budget after it."""

    def __init__(self, forward: BigForward, digits: int) -> None:
        self._forward, self._digits = forward, digits

    def __enter__(self) -> None:
        _ready()
        work = numbers()
        self._held = work.session(self._digits, self._forward._left, self._forward._dtype)
        self._held.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._forward._left = numbers().left
        self._held.__exit__(*raised)


def evaluate(
    forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Array]:
    """Forward's outputs, in big numbers throughout.

    Raises:
        NoArbiter: they are not; the text says why.
    """
    work = numbers()
    try:
        returned = forward(*arguments, **attrs)
    except NoArbiter:
        raise
    except Exception as error:
        if work.refused is not None:
            raise work.refused from error
        text = " ".join(str(error).split())[:120]
        raise Unsupported(
            f"forward raises {type(error).__name__} on big numbers: {text}"
        ) from error
    if work.refused is not None:  # and forward went on without it
        raise work.refused
    parts = returned if isinstance(returned, (tuple, list)) else [returned]
    return [_output(work, part) for part in parts]


def _output(work: Numbers, part: Any) -> Array:
    array = np.ndarray.view(part, np.ndarray) if isinstance(part, np.ndarray) else np.asarray(part)
    if array.dtype != object:
        raise Leak(f"forward's result holds {array.dtype} values that depend on no big number")
    if not array.size:
        return array
    return np.asarray(work.normal(array), dtype=object)


def _settled(first: Array, second: Array) -> tuple[Array, Array]:
    """The slope of the finer step, and where both steps agree on it."""
    both = np.maximum(np.abs(first), np.abs(second))
    return second, np.abs(first - second) <= AGREES * both


def _finite(number: Any) -> bool:
    return bool(numbers().context.isfinite(number))


def _log10(largest: float, size: Any) -> int:
    from math import frexp, log10

    _, _, exponent, bits = size._mpf_
    return max(0, int((frexp(largest)[1] - exponent - bits) * log10(2)))


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype=dtype).real.dtype


@cache
def _ready() -> None:
    number_protocol(numbers())


__all__ = ["BigForward", "Leak", "NoArbiter", "Slopes", "Spent", "Unsupported", "placed"]
