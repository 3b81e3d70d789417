"""Mutation operators: from a right VJP to one that is wrong in one way.

Each takes a spec's VJP, `vjp(xp, ct, *primals, **attrs)`, and returns another with the same
signature. What they cannot say is written out in full beside the cases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradcheck.spec import as_tuple

Vjp = Callable[..., Any]


def _wrapped(vjp: Vjp, body: Callable[..., Any]) -> Vjp:
    return functools.wraps(vjp)(body)


def output(vjp: Vjp, index: int, change: Callable[..., Any]) -> Vjp:
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


def cotangent(vjp: Vjp, change: Callable[..., Any]) -> Vjp:
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
