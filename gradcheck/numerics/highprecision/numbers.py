"""The numbers of a forward's evaluation: mpmath's, of a private context, with many digits.

They refuse to become floats or text, which would lose digits silently. The exceptions say in one
sentence why a forward cannot be evaluated in big numbers.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.fifty_digit_arithmetic import BigArithmetic

MAX_SHOWN_LINE: Final = 60
"""Characters of a source line that a reason quotes; of a longer line it gives the number only."""
DIGITS: Final = 75
"""Digits where no primal asks for more."""

_OWN_FOLDER = str(Path(__file__).parent)
_LIBRARIES = ("/numpy/", "/mpmath/", "/scipy/", "/jax/", "/torch/", "/functools.py")


class NoArbiter(Exception):  # noqa: N818  about a forward, not an error
    """Forward has no values in big numbers here; the text says why, in one sentence."""


class Leak(NoArbiter):
    """Digits would be lost: a float64 buffer, a narrower dtype, C code."""


class Unsupported(NoArbiter):
    """Forward calls a function that is not implemented in big numbers."""


class Spent(NoArbiter):
    """More numbers were computed than the budget allows."""


def place() -> str:
    """The line of the user's code in execution: "loss.py line 12: `y[i] = s`", or ""."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        ours = name.startswith(_OWN_FOLDER)
        if ours and frame.f_code.co_name == "called":
            return ""
        if not ours and not any(part in name.replace("\\", "/") for part in _LIBRARIES):
            line = linecache.getline(name, frame.f_lineno).strip()
            shown = f": `{line}`" if 0 < len(line) <= MAX_SHOWN_LINE else ""
            return f"{Path(name).name} line {frame.f_lineno}{shown}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def placed(text: str) -> str:
    """`text`, followed by the user's line where one is known."""
    where = place()
    return f"{text} ({where})" if where else text


def leak(text: str) -> NoArbiter:
    """A `Leak` to raise, with the user's line; recorded, as the user's code may swallow it."""
    return numbers().refuse(Leak(placed(text)))


def unsupported(text: str) -> NoArbiter:
    """An `Unsupported` to raise, with the user's line; recorded likewise."""
    return numbers().refuse(Unsupported(placed(text)))


class Numbers(BigArithmetic):
    """mpmath's numbers in as many digits as an evaluation asks for; counts them."""

    def __init__(self) -> None:
        """Set up the private context; its numbers refuse to become floats, integers or text."""
        super().__init__()
        self.context.dps = DIGITS
        self.name = "big"
        self.real, self.complex = self.context.mpf, self.context.mpc
        self.kinds = frozenset((self.real, self.complex))
        self.lock = threading.RLock()
        self.left = sys.maxsize  # outside a session nothing is counted
        self.dtype64: np.dtype[Any] = np.dtype(np.float64)
        self.refused: NoArbiter | None = None
        for kind in self.kinds:
            for method, what in _LOSSES.items():
                original = getattr(kind, method, None)
                if original is not None:
                    setattr(kind, method, self._guarded(original, what))
        self._to_number = np.frompyfunc(self.number, 1, 1)

    def _guarded(self, original: Callable[..., Any], what: str) -> Callable[..., Any]:
        def guarded(number: Any, *rest: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if caller.startswith("mpmath"):  # uses floats to estimate digits
                return original(number, *rest)
            raise leak(what)

        return guarded

    def refuse(self, reason: NoArbiter) -> NoArbiter:
        """Record the first `reason`, which the user's code may swallow, and return it to raise."""
        if self.refused is None:
            self.refused = reason
        return reason

    def spend(self, count: int) -> None:
        """Count numbers computed.

        Raises:
            Spent: they are more than the budget.
        """
        self.left -= count
        if self.left < 0:
            raise self.refuse(Spent("forward computes more numbers here than the budget allows"))

    @contextmanager
    def session(self, digits: int, budget: int, dtype: np.dtype[Any]) -> Iterator[None]:
        """Evaluate with `digits` and a `budget` of numbers; forward's own dtype is `dtype`."""
        with self.lock:
            before = self.context.dps, self.left, self.refused, self.dtype64
            self.context.dps, self.left, self.refused, self.dtype64 = digits, budget, None, dtype
            try:
                yield
            finally:
                self.context.dps, self.left, self.refused, self.dtype64 = before

    def number(self, x: Any) -> Any:
        """One number of any kind as a big number.

        Raises:
            TypeError: `x` is not a number.
        """
        if type(x) in self.kinds:
            return x
        if isinstance(x, np.ndarray) and x.ndim == 0:
            return self.number(x.item() if x.dtype != object else np.ndarray.item(x))
        if isinstance(x, (int, np.integer, np.bool_)):
            return self.real(int(x))
        if isinstance(x, float) or (isinstance(x, np.floating) and x.itemsize <= 8):
            return self.real(float(x))
        if isinstance(x, (complex, np.complexfloating)):
            return self.complex(complex(x))
        raise TypeError(f"{type(x).__name__} is not a number")

    @staticmethod
    def whole(x: Any) -> int:
        """A real number truncated to an integer: a step function, whose slope is 0."""
        from mpmath.libmp import to_int  # deferred, as mpmath is

        return int(to_int(x._mpf_))

    def floats(self, values: Array) -> NDArray[np.float64]:
        """Real numbers, finite or not, rounded to float64."""
        from mpmath.libmp import to_float  # deferred, as mpmath is

        values = np.asarray(values, dtype=object)  # a 0-d result is a bare number
        flat = [to_float(v._mpf_) for v in values.ravel().tolist()]
        return np.array(flat, dtype=np.float64).reshape(values.shape)

    def lifted(self, x: Any) -> Array:
        """Any array, list or number as an object array of big numbers."""
        array = np.ndarray.view(x, np.ndarray) if isinstance(x, np.ndarray) else np.asarray(x)
        kind = array.dtype.kind
        if kind == "f" and array.dtype.itemsize <= 8:
            return self.asarray(array)
        if kind == "O":
            return self.normal(array)
        if kind in "biufc":
            return np.asarray(self._to_number(array), dtype=object)
        raise TypeError(f"{array.dtype} values are not numbers")

    def normal(self, array: Array) -> Array:
        """An object array, with everything else it holds converted to big numbers."""
        if array.size and not {type(x) for x in array.ravel().tolist()} <= self.kinds:
            return np.asarray(self._to_number(array), dtype=object)
        return array

    def has_complex(self, array: Array) -> bool:
        """Whether an object array holds complex numbers."""
        return any(type(x) is self.complex for x in array.ravel().tolist())

    def real_part(self, array: Array) -> Array:
        """The real parts of an object array."""
        return np.asarray(_REAL(array), dtype=object)

    def imag_part(self, array: Array) -> Array:
        """The imaginary parts of an object array."""
        return np.asarray(_IMAG(array), dtype=object)

    def conjugate(self, array: Array) -> Array:
        """The complex conjugates of an object array."""
        return np.asarray(np.frompyfunc(self.context.conj, 1, 1)(array), dtype=object)

    def rounded(self, array: Array) -> Array:
        """An object array as float64, or complex128 where it holds complex numbers."""
        if not self.has_complex(array):
            return self.floats(array)
        real, imag = (self.floats(part(array)) for part in (self.real_part, self.imag_part))
        return np.asarray(real + 1j * imag)


_LOSSES: Final = {
    "__float__": "forward makes a float64 of a number",
    "__complex__": "forward makes a complex128 of a number",
    "__str__": "forward writes a number as text",
    "__repr__": "forward writes a number as text",
    "__format__": "forward writes a number as text",
}
_REAL: Final = np.frompyfunc(lambda number: number.real, 1, 1)
_IMAG: Final = np.frompyfunc(lambda number: number.imag, 1, 1)


@cache
def numbers() -> Numbers:
    """The arithmetic of this process; imports mpmath on first use."""
    return Numbers()
