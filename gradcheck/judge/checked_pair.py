"""What forward and vjp hand over at the point, where there is nothing to say against it.

All that a call owes besides numbers is looked at: the form of what it returns, its arguments
unchanged, the same bits twice. Whoever broke what is not said: any breach gives None, and is found
again, and named, by `probe`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations import returned
from gradcheck.judge.black_box import AGREES
from gradcheck.judge.cotangents import THIRDS
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.batched import end_to_end
from gradcheck.numerics.evaluate import REFUSALS

Array = NDArray[Any]
Float = NDArray[np.float64]

RAISED: Final = object()
TWICE_BACK: Final = -2.0
"""A factor by which products and sums round as before."""
LINEAR: Final = {"float64": 2.0**-30, "float32": 2.0**-16}
"""The part of a gradient's norm that rounding may change where it is asked for with that: less than
a fourth of what is lost of THIRDS in a narrower type."""
OUTPUTS: Final = (np.dtype(np.float64), np.dtype(np.float32))


class CheckedPair:
    """Both functions and what they are called with: the same read-only copies every time.

    `floating` are the places of the primals that have a gradient.
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
        """Forward's values at the primals, copied; None if there is anything against them."""
        out = self._call(self.values, ())
        if out is RAISED or not out:
            return None
        for o in out:
            if o.dtype not in OUTPUTS or not o.size:
                return None
        return tuple([o.copy() for o in out])

    def gradient(self, v: Float, outputs: Sequence[Array]) -> Float | None:
        """What vjp gives for the cotangent `v` [m]: floating primals end to end, [N].

        None if it broke its contract. It is asked for −2v too, and must give −2 times that to the
        last bit: it is linear. So one call shows what it does with its cotangent, and what is left
        in it from the call before.
        """
        kept: Array | None = None
        for factor in (1.0, TWICE_BACK):
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
        """Whether vjp of a forward that is one number scales with a cotangent that types round.

        `gradient` is what it gave for 1, the cotangent of a loss: short, as its multiples by
        powers of two are, so nothing that rounds its cotangent has shown there.
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
            if not off.dot(off) <= LINEAR[part.dtype.name] ** 2 * want.dot(want):
                return False
        return True

    def promoted(self, outputs: Sequence[Array]) -> tuple[Array, ...] | None:
        """Forward's values in float64, if a forward of float32 computes in its arguments' dtype."""
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
        return tuple(o.copy() for o in values) if apart <= AGREES * largest else None

    def _parts(self, out: Any) -> list[Array] | None:
        """The gradients of floating primals as arrays, if their form is right."""
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

    def _call(self, function: Callable[..., Any], lead: tuple[Any, ...], **attrs: Any) -> Any:
        """What `function` returns; RAISED, too, where a primal is not what it was afterwards."""
        try:
            out = function(*lead, *self._copies, **attrs)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  it is asked again, and then named
            return RAISED
        return out if self._bits == _bits(self._copies) else RAISED  # some ignore the flag


def held(v: Float, outputs: Sequence[Array]) -> Float:
    """A cotangent [m], all outputs end to end, as their dtypes hold it."""
    if all(o.dtype == np.float64 for o in outputs):
        return v
    ends = np.cumsum([o.size for o in outputs])[:-1]
    parts = zip(np.split(v, ends), outputs, strict=True)
    return np.concatenate([part.astype(o.dtype).astype(np.float64) for part, o in parts])


def _bits(arrays: Sequence[Any]) -> bytes:
    """Those of contiguous arrays, one after the other."""
    return b"".join(arrays)
