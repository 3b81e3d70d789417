"""One forward at one point in big numbers: its values and its slopes along directions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Array, Float
from gradcheck.numerics.highprecision.array import big, number_protocol, raw, raw_all
from gradcheck.numerics.highprecision.numbers import (
    DIGITS,
    Leak,
    NoArbiter,
    Spent,
    Unsupported,
    numbers,
)
from gradcheck.numerics.highprecision.rebound import Rebound

STEPS: Final = ((-73, -86), (-133, -146), (-266, -279), (-1100, -1113))
"""Pairs of steps, as powers of two of each element's size; each pair is computed in more digits.
The last pair is for waves: the sine of the largest number turns within 2⁻¹⁰²⁴ of it."""
EXTRA_DIGITS: Final = 100
"""Additional digits of each finer step."""
CONFIRM: Final = 400
"""Additional digits that confirm a slope of exactly 0."""
AGREES: Final = 1e-12
"""The largest difference of both steps' slopes, as a part of the larger one."""
VANISHES: Final = 1e-24
"""A slope that shrinks by this factor from the first step to the last is 0 in the limit."""
ROUNDING: Final = 1e-60
"""Unsettled slopes below this part of forward's value over the primal's size are 0."""
VISIBLE: Final = 2.0**-20
"""A step visible in float64, as a part of each element."""
MAX_SHOWN_ERROR: Final = 120
"""Characters of a foreign exception's text that a reason quotes."""
SMALLEST: Final = -100
"""The binary exponent of an element 0 of a tensor of zeros."""
BESIDE: Final = 33
"""Powers of two between the size of an element 0 and that of the smallest other element."""


@dataclass(frozen=True)
class Slopes:
    """One-sided derivatives of every output along a direction, all outputs end to end, [m].

    Each is correct to 12 digits; NaN if there is none (forward jumps, or is vertical, on that
    side). Both are equal where forward is smooth.
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
        """Prepare `forward(*primals, **attrs)`, with at most `budget` numbers computed in total.

        Floating and complex primals become big numbers; others are passed unchanged.
        """
        _ready()
        try:
            self._forward = Rebound()(forward)
        except Exception:  # noqa: BLE001  foreign objects: call the original
            self._forward = forward
        self._attrs = dict(attrs)
        self._primals = tuple(np.asarray(p) for p in primals)
        self._moving = [i for i, p in enumerate(self._primals) if p.dtype.kind in "fc"]
        self._left = budget
        self._values: dict[int, list[Array]] = {}
        widths = [_real(self._primals[i].dtype) for i in self._moving]
        self._dtype = max(widths, key=lambda d: d.itemsize, default=np.dtype(np.float64))

    # ── interface ────────────────────────────────────────────────────────────────────────────

    def outputs(self, digits: int = DIGITS) -> tuple[Array, ...]:
        """Forward's values here, rounded to float64 (complex128 where they are complex).

        With fewer `digits`, forward rounds as it does in a narrower type.

        Raises:
            NoArbiter: forward cannot be evaluated in big numbers; the text says why.
        """
        with _refusing():
            return tuple(numbers().rounded(v) for v in self._base(digits))

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
            zero = np.zeros(sum(v.size for v in self.outputs()))
            return Slopes(zero, zero.copy())
        with _refusing():
            ahead = self._side(moved, 1)
            behind = self._quotients(moved, -1, STEPS[0][0], DIGITS + self._spread(moved))
            if not np.all(_same(behind, ahead)):
                behind = self._side(moved, -1)
        mean = (ahead + behind) / 2
        same = _same(behind, ahead)
        return Slopes(np.where(same, mean, behind), np.where(same, mean, ahead))

    # ── slopes ───────────────────────────────────────────────────────────────────────────────

    def _side(self, moved: list[tuple[int, Array]], sign: int) -> Array:
        """One-sided slopes, [m], by pairs of ever smaller steps until two agree.

        The finer step of a pair is computed in many more digits, so that agreement excludes both
        curvature and absorption on the way: (1 + e⁻²⁰⁰) − 1.
        """
        digits = DIGITS + self._spread(moved)
        steepest = flattest = found = np.zeros(0)
        open_ = np.ones(0, dtype=bool)
        for k, (far, near) in enumerate(STEPS):
            first = self._quotients(moved, sign, far, digits + k * EXTRA_DIGITS)
            second = self._quotients(moved, sign, near, digits + (k + 1) * EXTRA_DIGITS)
            with np.errstate(invalid="ignore"):  # a jump over the shortest step is infinite
                apart = np.abs(first - second)
            settled = apart <= AGREES * np.maximum(np.abs(first), np.abs(second))
            if k == 0:
                steepest, found, open_ = np.abs(first), second, ~settled
            else:
                found = np.where(open_ & settled, second, found)
                open_ &= ~settled
            flattest = np.abs(second)
            if not open_.any():
                break
        else:
            limit = np.maximum(VANISHES * steepest, self._negligible(moved))
            found = np.where(open_, np.where(flattest <= limit, 0.0, np.nan), found)
        if np.any(found == 0):  # more digits distinguish flat from absorbed
            far, near = STEPS[0]
            first = self._quotients(moved, sign, far, digits + CONFIRM)
            second = self._quotients(moved, sign, near, digits + CONFIRM)
            settled = np.abs(first - second) <= AGREES * np.abs(first)
            found = np.where((found == 0) & settled, second, found)
        return found

    def _negligible(self, moved: list[tuple[int, Array]]) -> Float:
        """Slopes below the rounding of the big numbers themselves, [m]."""
        base = self._base(DIGITS + self._spread(moved))
        sizes = [np.abs(numbers().rounded(v)).reshape(-1) for v in base]
        largest = [np.max(np.abs(self._primals[i]), initial=1.0) for i in self._moving]
        with np.errstate(all="ignore"):
            scale = np.ldexp(ROUNDING, -max(-900, min(900, self._size(moved))))
            return np.asarray(np.fmax(np.concatenate(sizes), max(largest)) * scale, np.float64)

    def _quotients(
        self, moved: list[tuple[int, Array]], sign: int, power: int, digits: int
    ) -> Array:
        """(f(x + t d) − f(x)) / t, rounded, [m]; t is ±2^power of the moved elements' size."""
        base = self._base(digits)
        work = numbers()
        with self._session(digits):
            step = work.context.ldexp(work.context.mpf(sign), power + self._size(moved))
            arguments = self._arguments({i: big(d) * step for i, d in moved})
            values = _lifted(called(self._forward, arguments, self._attrs))
            parts = [
                numbers().rounded(raw((big(after) - big(before)) / step)).reshape(-1)
                for after, before in zip(values, base, strict=True)
            ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _size(self, moved: list[tuple[int, Array]]) -> int:
        """The power of two for which each element moves by at most its own size."""
        return min(
            int(np.min((_exponents(self._primals[i]) - np.frexp(np.abs(d))[1])[d != 0])) - 1
            for i, d in moved
        )

    def _spread(self, moved: list[tuple[int, Array]]) -> int:
        """Digits between the largest primal, or 1, and the smallest step."""
        top = max(1, *(int(np.max(_exponents(self._primals[i]), initial=1)) for i in self._moving))
        least = min(int(np.min(np.frexp(np.abs(d))[1][d != 0])) for _, d in moved)
        return max(0, int((top - least - self._size(moved)) * np.log10(2)))

    # ── evaluation ───────────────────────────────────────────────────────────────────────────

    def _base(self, digits: int) -> list[Array]:
        if digits not in self._values:
            with self._session(digits):
                parts = called(self._forward, self._arguments({}), self._attrs)
                if not self._values:
                    self._check_constants(parts)
                self._values[digits] = _lifted(parts)
        return self._values[digits]

    @contextmanager
    def _session(self, digits: int) -> Iterator[None]:
        """Evaluate in `digits`, with the rest of the budget."""
        work = numbers()
        with work.session(digits, self._left, self._dtype):
            try:
                yield
            finally:
                self._left = work.left

    def _check_constants(self, here: list[Any]) -> None:
        """Check that results without big numbers are constants, by a step visible in float64.

        Raises:
            Leak: they depend on the primals.
        """
        if all(_is_big(part) for part in here):
            return
        for sign in (1, -1):
            steps = {i: big(self._primals[i]) * (sign * VISIBLE) for i in self._moving}
            there = called(self._forward, self._arguments(steps), self._attrs)
            for before, after in zip(here, there, strict=True):
                if not _is_big(before) and not np.array_equal(before, after, equal_nan=True):
                    raise Leak("forward's result holds no big numbers, and depends on its primals")

    def _arguments(self, steps: Mapping[int, Any]) -> list[Any]:
        """The primals, with `steps` added, as forward expects them."""
        arguments: list[Any] = []
        for i, p in enumerate(self._primals):
            if i not in self._moving:
                arguments.append(p.copy())
                continue
            if not np.all(np.isfinite(p)):
                raise NoArbiter("a primal is not finite: there is no derivative here")
            x = big(p.astype(np.result_type(p.dtype, np.float64)))
            arguments.append(x + steps[i] if i in steps else x)
        return arguments


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn a failure of this package into a refusal: it is not a fault of the code judged.

    Raises:
        NoArbiter: for every exception.
    """
    try:
        yield
    except NoArbiter:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_SHOWN_ERROR]}"
        raise NoArbiter(
            f"gradcheck's own big numbers fail here, please report it: {what}"
        ) from error


def called(
    forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    """The results of forward, as a list.

    Raises:
        NoArbiter: big numbers do not support forward; the text says why.
    """
    work = numbers()
    try:
        with np.errstate(all="ignore"):
            parts = returned(forward, arguments, attrs)
            return [np.zeros(0) if part is None else part for part in parts]
    except NoArbiter:
        raise
    except (Exception, SystemExit) as error:  # forward rejects big numbers
        if work.refused is not None:
            raise work.refused from error
        text = " ".join(str(error).split())[:MAX_SHOWN_ERROR]
        raise Unsupported(
            f"forward raises {type(error).__name__} on big numbers: {text}"
        ) from error


def _exponents(x: Array) -> NDArray[np.int64]:
    """Binary exponents of each element's size; a zero counts as far below the smallest other."""
    size = np.abs(x).astype(np.float64)
    exponents = np.frexp(size)[1].astype(np.int64)
    there = size > 0
    beside = int(exponents[there].min()) - BESIDE if there.any() else SMALLEST
    return np.where(there, exponents, beside)


def _is_big(part: Any) -> bool:
    return np.asarray(raw_all(part)).dtype == object


def _lifted(parts: list[Any]) -> list[Array]:
    """Forward's results as object arrays of big numbers.

    Raises:
        NoArbiter: some are not finite.
    """
    work = numbers()
    values = [work.lifted(raw_all(part)) for part in parts]
    for array in values:
        if not all(map(work.context.isfinite, array.ravel().tolist())):
            raise NoArbiter("forward's values in big numbers are not finite here")
    return values


def _same(behind: Array, ahead: Array) -> NDArray[np.bool_]:
    """Where both sides have one slope."""
    return np.asarray(np.abs(ahead - behind) <= 8 * AGREES * np.abs(ahead))


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype=dtype).real.dtype


@cache
def _ready() -> None:
    number_protocol(numbers())


FRAMEWORKS: Final = {
    "jax": "gradcheck.numerics.highprecision.jax",
    "torch": "gradcheck.numerics.highprecision.torch",
}
"""Per framework the module that makes it compute in big numbers."""


def returned(
    forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    """The results of forward, as a list; uses only frameworks that are already loaded.

    A function of JAX that rejects NumPy's arrays of big numbers gets JAX's.

    Raises:
        NoArbiter: big numbers do not support forward; the text says why.
    """
    loaded = _loaded()
    with ExitStack() as stack:
        for framework in loaded:
            stack.enter_context(framework.takes_big_numbers())
        out = _called(forward, arguments, attrs)
    parts = list(out) if isinstance(out, (tuple, list)) else [out]
    for framework in loaded:
        parts = [framework.held(part) for part in parts]
    return parts


def _loaded() -> list[ModuleType]:
    """Modules for the loaded frameworks, if they support the installed versions."""
    found = []
    for name, ours in FRAMEWORKS.items():
        if name in sys.modules:
            with suppress(ImportError, AttributeError):
                found.append(import_module(ours))
    return found


def _called(forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    try:
        return _unrefused(forward, arguments, attrs)
    except (Exception, SystemExit) as error:
        ours = sys.modules.get(FRAMEWORKS["jax"])
        if ours is None or isinstance(error, Spent):
            raise
        refused = numbers().refused
        with suppress(Exception, SystemExit):
            return _unrefused(forward, [ours.traced(x) for x in arguments], attrs)
        numbers().refused = refused  # report the first reason
        raise


def _unrefused(
    forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]
) -> Any:
    work = numbers()
    work.refused = None
    out = forward(*arguments, **attrs)
    if work.refused is not None:  # although forward swallowed it
        raise work.refused
    return out


__all__ = ["BigForward", "NoArbiter", "Slopes"]
