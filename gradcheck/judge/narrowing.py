"""Right formulas in a narrower type: what a VJP gives that rounds what it gets, keeps or returns.

Every gradient is put to these as to other impostors. A kernel that computes in TF32 or float16
rounds at least one of them; so a check that rejects each of them alone rejects the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arithmetic import F64, Arithmetic
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.narrow import (
    BFLOAT16,
    COTANGENT,
    FLOAT16,
    OPERANDS,
    PRODUCTS,
    RESULT,
    SUMS,
    TYPES,
    Narrow,
    NarrowArithmetic,
    Narrowing,
)

Array = NDArray[Any]
Float = NDArray[np.float64]
Vjp = Callable[[Arithmetic, tuple[Array, ...], Sequence[Array]], "list[Float]"]
"""A VJP in an arithmetic, for a cotangent, at primals: one flat row per primal, [n] each."""


NARROWINGS: Final = (
    *(Narrowing(what, one) for what in (OPERANDS, COTANGENT, RESULT) for one in TYPES),
    Narrowing(PRODUCTS, FLOAT16),
    Narrowing(SUMS, BFLOAT16),
)
SAYS: Final = {
    OPERANDS: "the gradient at primals that were rounded to",
    COTANGENT: "the gradient for a cotangent that was rounded to",
    RESULT: "the gradient rounded to",
    PRODUCTS: "the gradient with every product kept in",
    SUMS: "the gradient with every sum kept in",
}
ARITHMETICS: Final = {
    PRODUCTS: NarrowArithmetic(products=FLOAT16),
    SUMS: NarrowArithmetic(sums=BFLOAT16),
}


def says(narrowing: Narrowing) -> str:
    """The wrong answer in words."""
    return f"{SAYS[narrowing.what]} {narrowing.type.title}"


@dataclass
class Narrowed:
    """What each narrowing does to the gradients of one VJP at one point, under one cotangent."""

    vjp: Vjp
    primals: Sequence[Array]
    ct: tuple[Array, ...]
    right: Sequence[Float]
    _known: dict[tuple[str, bytes], list[Float]] = field(default_factory=dict)

    @cached_property
    def offs(self) -> dict[str, list[Float]]:
        """By the names of narrowings, how far each primal's gradient is off, [n] each."""
        return {one.name: self._off_by(one) for one in NARROWINGS}

    def _off_by(self, narrowing: Narrowing) -> list[Float]:
        what, kept = narrowing.what, narrowing.type
        if what == RESULT:
            return [kept.rounded(row) - row for row in self.right]
        if what in ARITHMETICS:
            return self._off(ARITHMETICS[what], self.ct, self.primals)
        if what == OPERANDS:
            return self._off(F64, self.ct, self._rounded(kept))
        return self._off(F64, tuple(kept.rounded(p) for p in self.ct), self.primals)

    def moved(self, kept: Narrow, index: int) -> Float:
        """How far the gradient of primal `index` is off at primals beside these, [n].

        Each lies as far away as rounding to the type may take it; zeros stay.
        """
        return self._off(F64, self.ct, self._beside(kept))[index]

    def holds(self, kept: Narrow) -> bool:
        """Whether the type holds all primals as they are."""
        pairs = zip(self.primals, self._rounded(kept), strict=True)
        return all(np.array_equal(p, r, equal_nan=p.dtype.kind == "f") for p, r in pairs)

    def _rounded(self, kept: Narrow) -> list[Array]:
        return [kept.rounded(p) if p.dtype.kind == "f" else p for p in self.primals]

    def _beside(self, kept: Narrow) -> list[Array]:
        rng = np.random.Generator(np.random.Philox(key=key_of("beside", kept.name)))
        unit = 2.0**-kept.bits
        return [
            p * (1 + unit * rng.choice([-1.0, 1.0], p.shape)) if p.dtype.kind == "f" else p
            for p in self.primals
        ]

    def _off(self, xp: Arithmetic, ct: tuple[Array, ...], primals: Sequence[Array]) -> list[Float]:
        """Made once of the same numbers: float16 and TF32 round most of them alike."""
        key = str(id(xp)), b"".join(p.tobytes() for p in (*ct, *primals))
        if key not in self._known:
            with np.errstate(all="ignore"):
                found = self.vjp(xp, ct, primals)
                self._known[key] = [a - b for a, b in zip(found, self.right, strict=True)]
        return self._known[key]


def told_bits(name: str, kind: Narrow, share: float) -> str:
    """The name of a rounding that costs a `share` of what is allowed, and where it would show."""
    bits = kind.bits - 1 + math.floor(math.log2(share)) if share > 0 else -1
    return f"{name}: shows from {bits} bits" if bits >= 0 else f"{name}: shows at no precision"
