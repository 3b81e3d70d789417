"""Mutation operators: from a right VJP to one that is wrong in one way.

An operator takes a spec's VJP, `vjp(xp, ct, *primals, **attrs)`, and returns another with the same
signature; one with a memory returns what makes such VJPs, for `Mutant.make`. A change is what
`output` does to a gradient, or `cotangent` to the cotangent: `change(xp, g, *primals, **attrs)`.
Other mutants are written out in full beside the cases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.numerics.arrays import as_tuple
from gradcheck.spec.operator import OpSpec

Vjp = Callable[..., Any]
Change = Callable[..., Any]


def _wrapped(vjp: Vjp, body: Callable[..., Any]) -> Vjp:
    return functools.wraps(vjp)(body)


def output(vjp: Vjp, index: int, change: Change) -> Vjp:
    """Gradient `index` becomes `change(xp, g, *primals, **attrs)`; None stands for no gradient."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        gradients = list(as_tuple(vjp(xp, ct, *primals, **attrs)))
        gradients[index] = change(xp, gradients[index], *primals, **attrs)
        return gradients[0] if len(gradients) == 1 else tuple(gradients)

    return _wrapped(vjp, body)


def scaled(vjp: Vjp, index: int, factor: Callable[..., Any] | float) -> Vjp:
    """Gradient `index` times a number, or times `factor(xp, *primals, **attrs)`."""

    def change(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        return g * (factor(xp, *primals, **attrs) if callable(factor) else factor)

    return output(vjp, index, change)


def negated(vjp: Vjp, index: int) -> Vjp:
    """Gradient `index` with the other sign."""
    return output(vjp, index, lambda xp, g, *primals, **attrs: -g)


def swapped(vjp: Vjp, first: int, second: int) -> Vjp:
    """Two gradients in each other's place."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        gradients = list(vjp(xp, ct, *primals, **attrs))
        gradients[first], gradients[second] = gradients[second], gradients[first]
        return tuple(gradients)

    return _wrapped(vjp, body)


def cotangent(vjp: Vjp, change: Change) -> Vjp:
    """The cotangent becomes `change(xp, ct, *primals, **attrs)` before anything else happens."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        return vjp(xp, change(xp, ct, *primals, **attrs), *primals, **attrs)

    return _wrapped(vjp, body)


def primal(vjp: Vjp, index: int, change: Callable[..., Any]) -> Vjp:
    """Primal `index` is read as `change(xp, *primals, **attrs)`, of the same shape."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        read = list(primals)
        read[index] = change(xp, *primals, **attrs)
        return vjp(xp, ct, *read, **attrs)

    return _wrapped(vjp, body)


def attribute(vjp: Vjp, **fixed: Any) -> Vjp:
    """Attributes are replaced by fixed values, or by functions of all attributes."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        values = {k: v(**attrs) if callable(v) else v for k, v in fixed.items()}
        return vjp(xp, ct, *primals, **{**attrs, **values})

    return _wrapped(vjp, body)


def replaced(vjp: Vjp, index: int, other: Vjp) -> Vjp:
    """Gradient `index` is that of `other`, which takes the same arguments."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        gradients = list(as_tuple(vjp(xp, ct, *primals, **attrs)))
        gradients[index] = as_tuple(other(xp, ct, *primals, **attrs))[index]
        return gradients[0] if len(gradients) == 1 else tuple(gradients)

    return _wrapped(vjp, body)


def of_last(spec: OpSpec, index: int) -> Vjp:
    """Gradient `index`, where a batch shares the primal, is that of the batch's last entry."""
    rank = len([axis for axis in spec.signature.partition("->")[2].strip("()").split(",") if axis])

    def keep(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        shared = ct.ndim - rank > primals[index].ndim - spec.core_ranks[index]
        return xp.concatenate([xp.zeros_like(ct[:-1]), ct[-1:]], axis=0) if shared else ct

    return replaced(spec.vjp, index, cotangent(spec.vjp, keep))


def overwriting(vjp: Vjp) -> Vjp:
    """The first gradient is written over the cotangent."""

    def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
        gradients = vjp(xp, ct, *primals, **attrs)
        ct[...] = as_tuple(gradients)[0]
        return gradients

    return _wrapped(vjp, body)


# ── with a memory ────────────────────────────────────────────────────────────────────────────


def accumulated(vjp: Vjp, index: int | None = None) -> Callable[[], Vjp]:
    """Gradient `index` (None: each) is added to a buffer of its shape that is never cleared."""

    def make() -> Vjp:
        buffers: dict[Any, Any] = {}

        def add(i: int, g: Any) -> Any:
            key = (i, np.shape(g))
            buffers[key] = buffers[key] + g if key in buffers else g
            return buffers[key]

        def body(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
            gradients = list(as_tuple(vjp(xp, ct, *primals, **attrs)))
            for i in range(len(gradients)) if index is None else (index,):
                gradients[i] = None if gradients[i] is None else add(i, gradients[i])
            return gradients[0] if len(gradients) == 1 else tuple(gradients)

        return _wrapped(vjp, body)

    return make


def stale(vjp: Vjp, index: int = 0) -> Callable[[], Vjp]:
    """Gradient `index` is that of the first call with its shape."""

    def make() -> Vjp:
        first: dict[Any, Any] = {}
        return output(vjp, index, lambda xp, g, *primals, **attrs: first.setdefault(g.shape, g))

    return make


# ── changes of a gradient or of the cotangent ────────────────────────────────────────────────


def nothing(xp: Any, g: Any, *primals: Any, **attrs: Any) -> None:
    """No gradient at all."""


def zeros(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
    """Zeros."""
    return xp.zeros_like(g)


def ones(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
    """Ones, as the cotangent is after a sum."""
    return xp.zeros_like(g) + 1


def half(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
    """Rounded to float16 on the way."""
    with np.errstate(all="ignore"):
        return np.asarray(g).astype(np.float16).astype(g.dtype)


def rounded(bits: int) -> Change:
    """Rounded to a number of bits, as in a narrower type of the same range."""

    def change(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        mantissa, exponent = np.frexp(g)
        return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent).astype(g.dtype)

    return change


def transposed(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
    """The last two axes are exchanged where they are equally long, and nothing complains."""
    return xp.swapaxes(g, -1, -2) if g.ndim > 1 and g.shape[-1] == g.shape[-2] else g


def relaid(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
    """The last two axes are written in the other order into a buffer of the right shape."""
    return xp.reshape(xp.swapaxes(g, -1, -2), g.shape)


def first_entry(rank: int) -> Change:
    """0 but in the first entry of a batch, whose entries have `rank` axes."""
    first = cut(1, axis=0)
    return lambda xp, g, *primals, **attrs: first(xp, g) if g.ndim > rank else g


def cut(count: int | Callable[[int], int], axis: int = -1) -> Change:
    """0 from place `count` (or `count(length)`) on along an axis; -1 cuts the last one off."""

    def change(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        n = g.shape[axis]
        end = count(n) if callable(count) else count if count >= 0 else n + count
        places = np.arange(n).reshape(-1, *(1,) * (g.ndim - 1 - axis % g.ndim))
        return xp.where(places < end, g, 0.0)

    return change


def whole_blocks(size: int) -> Change:
    """0 behind the last whole block of `size` elements, counted through all axes."""

    def change(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        return xp.where(np.arange(g.size).reshape(g.shape) < g.size // size * size, g, 0.0)

    return change


def first_for_all(*axes: int) -> Change:
    """What stands first along the axes (none given: along all) stands everywhere along them."""

    def change(xp: Any, g: Any, *primals: Any, **attrs: Any) -> Any:
        first: list[slice] = [slice(None)] * g.ndim
        for axis in axes or range(g.ndim):
            first[axis] = slice(1)
        return xp.broadcast_to(g[tuple(first)], g.shape)

    return change


def flushed(below: float) -> Change:
    """0 where it is smaller than `below`."""
    return lambda xp, g, *primals, **attrs: xp.where(xp.abs(g) < below, 0.0, g)
