"""Types with fewer bits of mantissa than the dtype judged, and numbers rounded to them.

A kernel that computes in such a type is exact wherever its numbers happen to fit, so every gradient
is judged at numbers that fill the mantissa (ADR 42). The types:

* TF32 (NVIDIA A100 and later, inside matrix products): 11 significant bits, float32's exponents
* float16: 11 bits, exponents from −14 to 15 (65,504 is its largest number)
* bfloat16: 8 bits, float32's exponents
* float32: 24 bits
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from gradcheck.numerics.arithmetic import Array, FloatArithmetic
from gradcheck.numerics.arrays import Float

BITS: Final = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of the dtypes that code is judged in."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A type with `bits` significant bits; `title` is its name in a sentence."""

    name: str
    title: str
    bits: int

    def rounded(self, values: ArrayLike) -> Float:
        """`values` in float64, as the type holds them: to nearest, ties to even."""
        given = np.asarray(values, dtype=np.float64)
        if self.name in ("float16", "float32"):  # their exponents end where numbers may lie
            with np.errstate(over="ignore"):
                return np.asarray(given.astype(self.name), dtype=np.float64)
        return short(given, self.bits)

    def held(self, values: ArrayLike) -> Array:
        """`values` rounded likewise, in their own dtype; integers are returned unchanged."""
        given = np.asarray(values)
        return self.rounded(given).astype(given.dtype) if given.dtype.kind == "f" else given


TF32: Final = Narrow("tf32", "TF32", 11)
FLOAT16: Final = Narrow("float16", "float16", 11)
BFLOAT16: Final = Narrow("bfloat16", "bfloat16", 8)
FLOAT32: Final = Narrow("float32", "float32", 24)
TYPES: Final = (TF32, BFLOAT16, FLOAT16, FLOAT32)


BEYOND: Final = {"float64": (1 << 29) - 1, "float32": (1 << 42) - 1}
"""Bits of float64 beyond the widest type that is narrower than each dtype: float32, and TF32."""


OPERANDS: Final = "operands"
COTANGENT: Final = "cotangent"
RESULT: Final = "result"
PRODUCTS: Final = "products"
SUMS: Final = "sums"
KEPT: Final = (PRODUCTS, SUMS)
"""Intermediate results, rounded as they arise."""
WHAT: Final = (OPERANDS, COTANGENT, RESULT, *KEPT)
"""Values that code may round to a narrower type: inputs, results, intermediates."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """One way to compute in a narrower type: `what` is rounded to `type`.

    `what` is one of `WHAT`, or the name of one operand.
    """

    what: str
    type: Narrow

    @property
    def name(self) -> str:
        """Its name in certificates: "operands-tf32"."""
        return f"{self.what}-{self.type.name}"

    def below(self, dtype: str) -> bool:
        """Whether code of `dtype` would lose bits."""
        return self.type.bits < BITS[dtype]


def narrower(dtype: str) -> tuple[Narrow, ...]:
    """The types with fewer bits than `dtype` ("float64", "float32", "float16", "bfloat16")."""
    return tuple(one for one in TYPES if one.bits < BITS[dtype])


def fits_narrow(values: Array, dtype: str) -> bool:
    """Whether most of `values` of a dtype that are not zero fit in a narrower type."""
    full = np.count_nonzero(values.astype(np.float64, copy=False).view(np.uint64) & BEYOND[dtype])
    if 2 * full >= values.size:
        return False
    return bool(2 * full < np.count_nonzero(values))


def cut(values: ArrayLike, bits: int) -> Float:
    """Values cut off after `bits` significant bits, of any exponent: rounded toward zero."""
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
        return np.asarray(np.ldexp(np.trunc(np.ldexp(mantissa, bits)), exponent - bits))


def short(values: Float, bits: int) -> Float:
    """Values rounded to nearest with `bits` significant bits, of any exponent; ties to even."""
    if bits >= BITS["float64"]:
        return np.array(values, dtype=np.float64)
    word = np.array(values, dtype=np.float64).view(np.int64)
    lost = BITS["float64"] - bits
    word += (1 << (lost - 1)) - 1 + ((word >> lost) & 1)  # a carry into the exponent is right
    word &= -1 << lost
    return np.asarray(word.view(np.float64))


@dataclass(frozen=True, slots=True)
class Scattered:
    """A dtype to which numbers are rounded up or down at random, the nearer the likelier."""

    dtype: np.dtype[Any]
    draws: np.random.Generator

    def rounded(self, values: ArrayLike) -> Float:
        """`values` in float64, as the dtype holds them; what it holds already stays."""
        given = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            place = np.spacing(np.abs(given).astype(self.dtype)).astype(np.float64)
            moved = given + np.where(np.isfinite(place), place, 0.0) * self.draws.uniform(
                -0.5, 0.5, given.shape
            )
            return np.asarray(moved.astype(self.dtype), dtype=np.float64)

    def held(self, values: ArrayLike) -> Array:
        """`values` rounded likewise; integers are returned unchanged."""
        given = np.asarray(values)
        return self.rounded(given) if given.dtype.kind == "f" else given


class _Kept(np.ndarray[Any, Any]):
    """Values whose products, or sums, are rounded as they arise."""

    products: Narrow | None = None
    sums: Narrow | Scattered | None = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        if ufunc is np.matmul:
            return self.holding(self.matrix_product(*map(_plain, inputs)), self.sums)
        made = getattr(ufunc, method)(*map(_plain, inputs), **kwargs)
        if method == "at":
            if ufunc is np.add and self.sums is not None:
                whole = _plain(inputs[0])
                whole[...] = self.sums.rounded(whole)
            return None
        return self.holding(made, self.rounds(ufunc, method))

    def rounds(self, ufunc: Any, method: str) -> Narrow | Scattered | None:
        """The type in which the result of a ufunc is kept."""
        if ufunc is np.multiply:
            return self.products
        return self.sums if ufunc is np.add and method != "__call__" else None

    def holding(self, made: Any, kept: Narrow | Scattered | None) -> Any:
        """A floating result as an array of this class; others are returned unchanged."""
        out = np.asarray(made)
        if out.dtype.kind != "f":
            return out
        return (out if kept is None else kept.held(out)).view(type(self))

    def matrix_product(self, x: Any, y: Any) -> Any:
        """x·y, with each product rounded if products are kept narrow."""
        if self.products is None or x.ndim < 2 or y.ndim < 2:
            return np.matmul(x, y)
        return self.products.held(x[..., :, :, None] * y[..., None, :, :]).sum(axis=-2)


class _Everything(_Kept):
    """Values of which every result is rounded as it arises."""

    def rounds(self, ufunc: Any, method: str) -> Narrow | Scattered | None:
        return self.sums


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.view(np.ndarray) if isinstance(value, _Kept) else value


class NarrowArithmetic(FloatArithmetic):
    """Floats of one dtype, but `products` (every a·b) or `sums` are kept in a narrower type.

    A sum is rounded once, at its end; code that rounds each partial sum is off by more.
    """

    def __init__(
        self,
        *,
        products: Narrow | None = None,
        sums: Narrow | None = None,
        dtype: str = "float64",
    ) -> None:
        """Set up the arithmetic."""
        super().__init__(dtype)
        self.name = "narrow"
        self._array: Any = type("Kept", (_Kept,), {"products": products, "sums": sums})
        self._products = products
        self._sums: Narrow | Scattered | None = sums

    def asarray(self, values: ArrayLike) -> Array:
        return np.array(values, dtype=self.dtype).view(self._array)

    def einsum(self, subscripts: str, *arrays: Array) -> Array:
        made = self._summed(subscripts, *map(_plain, arrays))
        return self._wrap(made if self._sums is None else self._sums.held(made))

    def _summed(self, subscripts: str, *arrays: Any) -> Any:
        if self._products is None:
            return np.einsum(subscripts, *arrays)
        given, out = subscripts.split("->")
        rest = "".join(sorted(set(given) - set(out) - set(".,")))
        products = self._products.held(np.einsum(f"{given}->{out}{rest}", *arrays))
        return products.sum(axis=tuple(range(-len(rest), 0))) if rest else products

    def _wrap(self, x: Any) -> Array:
        out = np.asarray(x)
        return out.view(self._array) if out.dtype.kind == "f" else out


class ScatteredArithmetic(NarrowArithmetic):
    """float64 whose every result is rounded at random to a narrower dtype.

    Sums are rounded once, at their end: a kernel keeps them in float32.
    """

    def __init__(self, dtype: np.dtype[Any], draws: np.random.Generator) -> None:
        """Set up the arithmetic of `dtype`; `draws` chooses the direction of each rounding."""
        super().__init__()
        self.name = "scattered"
        self._sums = kept = Scattered(dtype, draws)
        self._array = type("Everything", (_Everything,), {"sums": kept})
        bell = self.erf
        self.erf = lambda x: self._wrap(kept.held(bell(_plain(x))))
