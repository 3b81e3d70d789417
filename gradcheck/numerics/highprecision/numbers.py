"""Why a forward cannot be evaluated in big numbers, in one sentence."""

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

from gradcheck.numerics.fifty_digits import BigArithmetic

LONGEST: Final = 60
"""Characters of a source line that a reason shows; a longer line is named by its number alone."""

_OURS = str(Path(__file__).parent)
_LIBRARIES = (
    f"{Path('/numpy/').as_posix()}",
    "/mpmath/",
    "/scipy/",
    "/jax/",
    "/torch/",
    "/functools.py",
)


class NoArbiter(Exception):  # noqa: N818  a statement about a forward, not a mistake
    """Forward has no values in big numbers here; the text is one sentence that says why."""


class Leak(NoArbiter):
    """Digits would be lost: a float64 buffer, a narrower dtype, C code."""


class Unsupported(NoArbiter):
    """A function that is not known in big numbers."""


class Spent(NoArbiter):
    """More numbers were computed than the budget allows."""


def place() -> str:
    """The line of the user's code that is being executed: "loss.py line 12: `y[i] = s`".

    Empty, where no frame on the stack is a user's.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        ours = name.startswith(_OURS)
        if ours and frame.f_code.co_name == "called":
            return ""
        if not ours and not any(part in name.replace("\\", "/") for part in _LIBRARIES):
            line = linecache.getline(name, frame.f_lineno).strip()
            shown = f": `{line}`" if 0 < len(line) <= LONGEST else ""
            return f"{Path(name).name} line {frame.f_lineno}{shown}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def placed(text: str) -> str:
    """`text`, with the user's line behind it where one is known."""
    where = place()
    return f"{text} ({where})" if where else text


Array = NDArray[Any]

DIGITS: Final = 75
"""Digits where no primal asks for more."""


class Numbers(BigArithmetic):
    """Mpmath's numbers in as many digits as an evaluation asks for, and their count."""

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
            if caller.startswith("mpmath"):  # it works out digits of its own with them
                return original(number, *rest)
            raise self.refuse(Leak(placed(what)))

        return guarded

    def refuse(self, reason: NoArbiter) -> NoArbiter:
        """Remember `reason`, which the user's code may swallow, and hand it back to raise."""
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
        """One number of any kind as one of ours.

        Raises:
            TypeError: it is no number.
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
        raise TypeError(f"{type(x).__name__} is no number")

    @staticmethod
    def whole(x: Any) -> int:
        """A real number without its fraction: a step function, whose slope is 0."""
        from mpmath.libmp import to_int

        return int(to_int(x._mpf_))

    def floats(self, values: Array) -> NDArray[np.float64]:
        """Real numbers, finite or not, rounded to float64."""
        from mpmath.libmp import to_float

        values = np.asarray(values, dtype=object)  # one number of no axes is bare
        flat = [to_float(v._mpf_) for v in values.ravel().tolist()]
        return np.array(flat, dtype=np.float64).reshape(values.shape)

    def lifted(self, x: Any) -> Array:
        """Any array, list or number as an object array of our numbers."""
        array = np.ndarray.view(x, np.ndarray) if isinstance(x, np.ndarray) else np.asarray(x)
        kind = array.dtype.kind
        if kind == "f" and array.dtype.itemsize <= 8:
            return self.asarray(array)
        if kind == "O":
            return self.normal(array)
        if kind in "biufc":
            return np.asarray(self._to_number(array), dtype=object)
        raise TypeError(f"{array.dtype} values are no numbers")

    def normal(self, array: Array) -> Array:
        """An object array, with whatever else it holds made one of our numbers."""
        if array.size and not {type(x) for x in array.ravel().tolist()} <= self.kinds:
            return np.asarray(self._to_number(array), dtype=object)
        return array


_LOSSES: Final = {
    "__float__": "forward makes a float64 of a number",
    "__complex__": "forward makes a complex128 of a number",
    "__str__": "forward writes a number as text",
    "__repr__": "forward writes a number as text",
    "__format__": "forward writes a number as text",
}


@cache
def numbers() -> Numbers:
    """The one arithmetic; imports mpmath on first use."""
    return Numbers()
