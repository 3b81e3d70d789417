"""A forward with its right VJP at one hard point, and functions that make families of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

BOTH = ("float64", "float32")
DOUBLE = ("float64",)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A right VJP at one point.

    `behind` is the smooth function that belongs to the VJP, where forward rounds. `free` are masks,
    one per primal, of elements on a kink: other subgradients are right there, too, and no error is
    planted. `loses` is the part of the largest gradient that a carefully written VJP may lose to
    rounding in float64. `sees` is the smallest relative error that forward's values can show at
    all: 1 for staircases, where a zero gradient is true between two steps, and not an error.
    """

    name: str
    kind: str
    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    primals: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = BOTH
    behind: Callable[..., Any] | None = None
    free: tuple[Any, ...] = ()
    loses: float = 1e-8
    sees: float = 0.0
    hidden: bool = False  # not verified in big numbers: a framework's derivative is the truth

    def cast(self, dtype: str) -> tuple[Any, ...]:
        """The primals in a dtype; complex ones as wide, integers unchanged."""
        kinds = {"f": dtype, "c": {"float64": "complex128", "float32": "complex64"}[dtype]}
        given = (np.asarray(p) for p in self.primals)
        return tuple(p.astype(kinds.get(p.dtype.kind, p.dtype)) for p in given)


def typed(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """The VJP with gradients in their primals' dtypes, where NumPy has widened them."""

    def one(g: Any, p: Any) -> Any:
        kind = np.asarray(p).dtype
        g = g if g is None else np.asarray(g)
        return g if g is None or g.dtype.kind != kind.kind else g.astype(kind)

    def kept(ct: Any, *primals: Any, **attrs: Any) -> Any:
        got = vjp(ct, *primals, **attrs)
        if isinstance(got, (tuple, list)):
            return tuple(map(one, got, primals))
        return one(got, primals[0])

    return kept


Point = Any
Points = Mapping[str, Point]


def drawn(name: str, *shape: int, scale: float = 1.0, offset: float = 0.0) -> Any:
    """Normal numbers by name, with full mantissas."""
    return offset + scale * np.random.default_rng(crc32(name.encode())).normal(size=shape)


def uniform(name: str, low: float, high: float, *shape: int) -> Any:
    """Uniform numbers by name."""
    return np.random.default_rng(crc32(name.encode())).uniform(low, high, size=shape)


def elementwise(
    kind: str, name: str, f: Callable[..., Any], slope: Callable[..., Any], points: Points, **known
) -> Iterator[Pair]:
    """f(x) per element, and ct·slope(x)."""

    vjp = typed(lambda ct, x: ct * slope(x))
    free = known.pop("free", None)
    for where, point in points.items():
        x = np.asarray(point, dtype=float)
        mask = () if free is None else (free(x),)
        yield Pair(
            name=f"{name} {where}", kind=kind, forward=f, vjp=vjp, primals=(x,), free=mask, **known
        )


def at(
    kind: str, name: str, f: Callable[..., Any], vjp: Callable[..., Any], points: Points, **known
) -> Iterator[Pair]:
    """f and its VJP at several points: each an array, or a tuple of primals."""
    for where, x in points.items():
        primals = x if isinstance(x, tuple) else (x,)
        yield Pair(
            name=f"{name} {where}", kind=kind, forward=f, vjp=typed(vjp), primals=primals, **known
        )


def each(
    kind: str, points: Points, functions: Mapping[str, tuple[Any, Any]], **known
) -> Iterator[Pair]:
    """Several functions with their VJPs at the same points."""
    for name, (f, vjp) in functions.items():
        yield from at(kind, name, f, vjp, points, **known)


def of_framework(
    kind: str,
    functions: Mapping[str, Any],
    rounded: Mapping[str, Any],
    single: Mapping[str, Any],
    both: Callable[..., Any],
    double_only: tuple[str, ...] = (),
) -> Iterator[Pair]:
    """Pairs of a framework's functions; differences in float64 verify them.

    Args:
        kind: the framework.
        functions: by name, a function and its primals.
        rounded: by name, a function that rounds inside, the smooth one behind it, its primals.
        single: by the pair's name, forward and VJP in float32, and the name of the function.
        both: makes forward and VJP of a function.
        double_only: functions whose own VJP is wrong in float32.
    """
    for name, (f, primals) in functions.items():
        forward, vjp = both(f)
        yield Pair(
            name=name,
            kind=kind,
            forward=forward,
            vjp=vjp,
            primals=primals,
            hidden=True,
            free=(primals[0] == 0,) if "kink" in name else (),
            loses=np.inf if name == "x/x" else 1e-8,
            dtypes=DOUBLE if name in double_only else BOTH,
        )
    for name, (forward, vjp, of) in single.items():
        f, primals = functions[of]
        yield Pair(
            name=name,
            kind=kind,
            forward=forward,
            vjp=vjp,
            primals=primals,
            hidden=True,
            dtypes=DOUBLE,
            sees=1e-2,
            loses=1e-3,
            behind=both(f)[0],
        )
    for name, (rounding, smooth, primals) in rounded.items():
        yield Pair(
            name=name,
            kind=kind,
            forward=both(rounding)[0],
            vjp=both(smooth)[1],
            primals=primals,
            hidden=True,
            behind=both(smooth)[0],
            sees=0.6,
        )
