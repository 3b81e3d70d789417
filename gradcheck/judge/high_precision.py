"""A user's function without a spec, in 50 digits: slopes of its forward, gradients of its VJP.

Both are called on arrays of big numbers, where they accept them. Operators of a suite are evaluated
by `numerics/operator_oracle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import Array, Attrs, Float
from gradcheck.numerics.evaluate import flatten

if TYPE_CHECKING:
    from gradcheck.numerics.highprecision.forward import BigForward


MAX_NUMBERS: Final = 1 << 18
"""Numbers of 50 digits that one check computes at most: some two seconds."""
FEWER_DIGITS: Final = {"float64": (13, 14), "float32": (4, 5)}
"""Digits with which a forward rounds at least eight times as coarsely as in its own dtype."""
AGREEMENT: Final = 1e-3
"""Largest difference between forward in 50 digits and forward, relative to the largest value."""


@dataclass
class HighPrecisionForward:
    """One-sided slopes of forward in 50 digits; None, with a `refusal`, where it refuses.

    The values in 50 digits must agree with forward's own: a function that looks at its arguments'
    dtype may be another one there. If they do not, forward `differs`: its own values may have
    overflowed or underflowed on the way. `outputs` are forward's own values at `primals`;
    `rounding` is their largest error, 0 before slopes are known.
    """

    forward: Callable[..., Any]
    primals: Sequence[Array]
    attrs: Attrs
    outputs: Sequence[Array]
    refusal: str = ""
    differs: bool = False
    rounding: float = 0.0
    _big: BigForward | None = None
    _slopes: dict[tuple[int, bytes], tuple[Float, Float]] = field(default_factory=dict)

    def slopes(self, index: int, elements: NDArray[np.int64]) -> tuple[Float, Float] | None:
        """Slopes of every output, [m] each, behind and ahead of primal `index`.

        Its `elements` (flat) move together by the same amount. None where forward refuses 50
        digits.
        """
        direction = np.zeros(self.primals[index].size)
        direction[elements] = 1.0
        return self.along(index, direction)

    def along(self, index: int, direction: Float) -> tuple[Float, Float] | None:
        """Slopes of every output, behind and ahead, along `direction` [n] of primal `index`."""
        from gradcheck.numerics.highprecision.forward import NoArbiter  # door: needs mpmath

        key = index, direction.tobytes()
        if not self.refusal and key not in self._slopes:
            try:
                moves: list[Array | None] = [None] * len(self.primals)
                moves[index] = direction.reshape(self.primals[index].shape)
                found = self._checked().slopes(moves)
                self._slopes[key] = found.behind, found.ahead
            except NoArbiter as error:
                self.refusal = str(error)
        return self._slopes.get(key)

    def _checked(self) -> BigForward:
        """Forward in 50 digits, once its values agree with forward's own.

        Raises:
            NoArbiter: they do not agree, or cannot be evaluated.
        """
        from gradcheck.numerics.highprecision.forward import BigForward, NoArbiter  # door: as above

        if self._big is None:
            big = BigForward(self.forward, self.primals, self.attrs, MAX_NUMBERS)
            self.differs = not self._agree(big)
            if self.differs:
                raise NoArbiter("forward returns other values in 50 digits than in its own dtype")
            self._big = big
        return self._big

    @cached_property
    def _values(self) -> Float:
        return flatten(self.outputs)

    def _agree(self, big: BigForward) -> bool:
        """Whether the values agree with forward's own, but for rounding inside.

        An evaluation in fewer digits than the dtype has shows how large that rounding is.
        """
        exact = flatten(big.outputs())
        if exact.shape != self._values.shape:
            return False
        off = np.abs(exact - self._values)
        self.rounding = float(np.max(off, initial=0.0))
        if np.all(off <= AGREEMENT * np.max(np.abs(self._values), initial=0.0)):
            return True
        fewer = next(
            FEWER_DIGITS[p.dtype.name] for p in self.primals if p.dtype.name in FEWER_DIGITS
        )
        rounded = [flatten(big.outputs(digits)) for digits in fewer]
        return bool(np.all(off <= np.max(np.abs(np.stack(rounded) - exact), initial=0.0)))


@dataclass
class HighPrecisionVjp:
    """The gradients of a VJP in 50 digits: those of its formula without rounding."""

    vjp: Callable[..., Any]
    cotangents: Sequence[tuple[Array, ...]]
    primals: Sequence[Array]
    attrs: Attrs

    def __call__(self, index: int) -> Float | None:
        """Gradients [q, n] of primal `index`, rounded to float64; None where vjp refuses."""
        rows = self._rows
        return None if rows is None else np.stack([row[index].reshape(-1) for row in rows])

    @cached_property
    def _rows(self) -> list[tuple[Array, ...]] | None:
        from gradcheck.numerics.highprecision.forward import BigForward, NoArbiter  # door: as above

        rows = []
        try:
            for ct in self.cotangents:
                # A vjp itself, where that can be: the text of a wrapper is not its text.
                vjp = self.vjp if len(ct) == 1 else _with_joined_cotangent(self.vjp, len(ct))
                big = BigForward(vjp, (*ct, *self.primals), self.attrs, MAX_NUMBERS)
                rows.append(big.outputs())
        except (NoArbiter, TypeError):  # the gradient of an index is None, and no number
            return None
        return rows if all(len(row) == len(self.primals) for row in rows) else None


def _with_joined_cotangent(vjp: Callable[..., Any], count: int) -> Callable[..., Any]:
    def joined(*values: Any, **attrs: Any) -> Any:
        return vjp(values[:count], *values[count:], **attrs)

    return joined
