"""Calls of foreign code on copies of its arguments, and checks of what a call must not do.

It may neither write into its arguments, nor answer the same arguments with other bits, nor say that
it lacks what it has answered before. Whatever it raises becomes `Broken`; NotImplementedError with
the verdict UNSUPPORTED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import Unsupported, text_of
from gradcheck.implementations.returned import Broken, broken, is_ours, overwrites
from gradcheck.numerics.arrays import Attrs
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]
T = TypeVar("T")

LEADING_ARGUMENTS: Final = {"jvp": "us", "double_vjp": "ggs"}
"""What messages call the first argument of a role, where it is not the cotangent `ct`."""
PADDED: Final = "g"
"""The dtype character of a long double: of its 16 bytes only 10 are written."""


class CheckedCall:
    """Foreign code that is called on copies; `role` is what messages call it.

    Once it has answered, it may not raise `Unsupported` any more (see `steady`).
    """

    __slots__ = ("_function", "role")

    def __init__(self, role: str, function: Callable[..., Any]) -> None:
        """Nothing is called yet."""
        self.role, self._function = role, steady(role, function)

    def __call__(
        self,
        leading: Sequence[Array],
        arrays: Sequence[Array],
        names: Sequence[str],
        attrs: Attrs,
    ) -> Any:
        """The result for read-only copies.

        The cotangents, or whatever else is `leading`, are one argument: bare if it is one array.
        `names` are those of `arrays`, for messages.

        Raises:
            Broken: the code raised, or wrote into an argument.
            Unsupported: the code lacks this.
        """
        copies = guarded(leading), guarded(arrays)
        out = self.on(*copies, attrs)
        lead = LEADING_ARGUMENTS.get(self.role, "ct")
        changed = mutated(
            (*leading, *arrays), (*copies[0], *copies[1]), (*(lead,) * len(leading), *names)
        )
        if changed is not None:
            reason = f"{self.role} writes into its argument {changed}; copy first"
            raise overwrites(self.role, reason)
        return out

    def on(self, leading: Sequence[Array], arrays: Sequence[Array], attrs: Attrs) -> Any:
        """The result for these very arrays.

        Raises:
            Broken: the code raised.
            Unsupported: the code lacks this.
        """
        first = () if not leading else (bare(tuple(leading)),)
        return attempt(self.role, lambda: self._function(*first, *arrays, **attrs))


def guarded(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Read-only copies in C order: a write raises inside the called code."""
    copies = tuple([np.array(a, order="C") for a in arrays])
    for copy in copies:
        copy.setflags(write=False)
    return copies


def mutated(before: Sequence[Array], after: Sequence[Array], names: Sequence[str]) -> str | None:
    """The name of the first argument whose bytes changed (foreign code ignores the flag)."""
    for name, old, new in zip(names, before, after, strict=True):
        if old.tobytes() != new.tobytes():
            return name
    return None


def differs(first: Sequence[Array | None], second: Sequence[Array | None]) -> bool:
    """Whether two calls gave other bits anywhere (NaN equals NaN, −0 does not equal 0)."""
    for a, b in zip(first, second, strict=True):
        if (a is None) != (b is None):
            return True
        if a is None or b is None:
            continue
        if a.shape != b.shape or not _same_bits(a, b):
            return True
    return False


def _same_bits(a: Array, b: Array) -> bool:
    if a.dtype.char == b.dtype.char == PADDED:
        signs = np.array_equal(np.signbit(a), np.signbit(b))
        return signs and np.array_equal(a, b, equal_nan=True)
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def bare(leading: tuple[Array, ...]) -> Any:
    """A cotangent as a VJP takes it: one array for one output, else the tuple."""
    return leading[0] if len(leading) == 1 else leading


def steady(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for the calls of one case; after an answer, it may not decline any more.

    `Unsupported` and NotImplementedError are then an ERROR.

    Support may depend on shapes, dtypes and attributes. If it depended on numbers, code whose
    gradient is wrong somewhere could answer there that it does not support the point.
    """
    answered = False

    def steadily(*args: Any, **options: Any) -> Any:
        nonlocal answered
        try:
            found = function(*args, **options)
        except (Unsupported, NotImplementedError) as error:
            if not answered:
                raise
            raise broken(
                role,
                f"{role} raised {_in_one_line(error)}; it had answered another call of this case: "
                "decide by shapes, dtype and attributes, at the first call",
            ) from error
        answered = True
        return found

    return steadily


def bound_by(bind: Callable[[], T], name: str = "vjp") -> T:
    """What an implementation binds; its own code may run for that, and raise anything.

    `name` is that of the finding on failure.

    Raises:
        Broken, Unsupported: as `attempt` does.
    """
    found: T = attempt("binding it", bind, name)
    return found


def attempt(role: str, call: Callable[[], Any], name: str = "") -> Any:
    """The result of one call of foreign code; messages call it `role`, the finding `name`.

    Raises:
        Broken: it raised anything; a `Broken` of its own making does not set the verdict. The
            verdict of NotImplementedError is UNSUPPORTED.
        Unsupported: the code lacks this.
    """
    try:
        with np.errstate(all="ignore"):
            return call()
    except (Unsupported, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: foreign code must not end the run
        if isinstance(error, Broken) and is_ours(error):
            raise
        if isinstance(error, NotImplementedError):
            why = text_of(error) or f"{role} raised NotImplementedError"
            raise broken(name or role, why, Verdict.UNSUPPORTED) from error
        if _is_refused_write(error):
            why = f"{role} writes into its arguments ({text_of(error)}); copy first"
            raise overwrites(role, why) from error
        raise broken(name or role, f"{role} raised {_in_one_line(error)}") from error


def _is_refused_write(error: BaseException) -> bool:
    return isinstance(error, ValueError) and "read-only" in text_of(error)


def _in_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error) or 'no message'}"
