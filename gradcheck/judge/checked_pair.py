"""Calls of forward and vjp for the quick check; any violation gives None.

The form of the results, unchanged arguments and equal bits of a second call are checked. Any
violation gives None; `judge.call` repeats the call and reports which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations import returned
from gradcheck.judge.cotangents import THIRDS
from gradcheck.judge.function_primal import PROMOTION_AGREEMENT
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.batched import end_to_end
from gradcheck.numerics.evaluate import REFUSALS

Array = NDArray[Any]
Float = NDArray[np.float64]
FAILED_CALL: Final = object()
SECOND_FACTOR: Final = -2.0
"""A factor that leaves the rounding of products and sums unchanged."""
MAX_NONLINEARITY: Final = {"float64": 2.0**-30, "float32": 2.0**-16}
"""The rounding of a gradient for THIRDS, relative to its norm: less than a fourth of what a
narrower type loses of THIRDS."""
OUTPUT_DTYPES: Final = (np.dtype(np.float64), np.dtype(np.float32))


class CheckedPair:
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
        wide = [p.astype(np.float64) if p.dtype.kind == "f" else p.copy() for p in self._primals]
        try:
            values = self.values(*wide)
        except REFUSALS:
            return None
        if [o.shape for o in values] != [o.shape for o in outputs]:
            return None
        if any(o.dtype != np.float64 for o in values):
            return None
        largest = max(float(np.abs(o).max()) for o in values)
        apart = max(float(np.abs(a - b).max()) for a, b in zip(values, outputs, strict=True))
        return tuple(o.copy() for o in values) if apart <= PROMOTION_AGREEMENT * largest else None

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
