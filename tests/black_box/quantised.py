"""Forwards coarser than their dtype; the VJP is that of the smooth function behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .pair import BOTH, DOUBLE, Pair, drawn, typed, uniform
from .smooth import sigmoid, softmax, softmax_vjp

KIND = "quantised"


def half(y):
    return y.astype(np.float16).astype(y.dtype)


def brain(y):
    """To the nearest bfloat16, ties to even, on the bits of a float32."""
    bits = np.asarray(y, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(y.dtype)


def single(y):
    return y.astype(np.float32).astype(y.dtype)


def decimals(y):
    return np.round(y, 3)


def fixed_point(y):
    return np.rint(y * 256) / 256


def truncated(y):
    return np.trunc(y * 1000) / 1000


def significant(y):
    scale = 10.0 ** (3 - np.ceil(np.log10(np.abs(y) + 1e-300)))
    return np.rint(y * scale) / scale


ROUNDINGS = {
    # what rounds, and the largest relative error that may hide in it at these points
    "float16": (half, 0.2), "bfloat16": (brain, 0.6), "float32": (single, 1e-3),
    "three decimals": (decimals, 0.3), "fixed point": (fixed_point, 0.5), "truncated": (truncated,
        0.3),
    "three digits": (significant, 0.5),
}  # fmt: skip


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def gelu_slope(x):
    t = np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x)


def table_of(f: Callable[..., Any]) -> Any:
    """As ggml's: f of each float16, kept as float16."""
    return f(np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)).astype(
        np.float16
    )


with np.errstate(all="ignore"):
    GELU, SILU, EXP = table_of(gelu), table_of(lambda x: x / (1 + np.exp(-x))), table_of(np.exp)


def looked_up(table):
    """A forward that reads a table at its primal rounded to float16."""

    def forward(x):
        return table[np.asarray(x, np.float16).view(np.uint16)].astype(x.dtype)

    return forward


def linear_table(f, low, high, count):
    """np.interp of f at so many places."""
    at = np.linspace(low, high, count)
    values = f(at)

    def forward(x):
        return np.interp(x, at, values)

    return forward


def nearest_table(f, low, high, count):
    values = f(np.linspace(low, high, count))

    def forward(x):
        return values[np.rint((x - low) / (high - low) * (count - 1)).astype(int)]

    return forward


SMOOTH = {
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2), "exp": (np.exp, np.exp),
    "gelu": (gelu, gelu_slope), "x²": (lambda x: x * x, lambda x: 2 * x),
    "sin": (np.sin, np.cos), "sigmoid": (lambda x: 1 / (1 + np.exp(-x)),
        lambda x: sigmoid(x) * sigmoid(-x)),
}  # fmt: skip


TABLES = {
    "gelu": (GELU, gelu, gelu_slope),
    "silu": (
        SILU,
        lambda x: x / (1 + np.exp(-x)),
        lambda x: sigmoid(x) * (1 + x * sigmoid(-x)),
    ),
    "exp": (EXP, np.exp, np.exp),
}


def matmul_vjp(ct, a, b):
    return ct @ b.T, a.T @ ct


def of_slope(slope: Callable[..., Any]) -> Callable[..., Any]:
    """The VJP of a function of single elements."""
    return typed(lambda ct, x: ct * slope(x))


def rounded(outer: Callable[..., Any], f: Callable[..., Any], inside: bool) -> Callable[..., Any]:
    """f whose primals or whose results are rounded."""

    def forward(*primals):
        return f(*map(outer, primals)) if inside else outer(f(*primals))

    return forward


def pairs() -> Iterator[Pair]:
    """All of this file."""
    for how, (outer, sees) in ROUNDINGS.items():
        yield from of_rounding(how, outer, sees)
    yield from of_tables()


def of_rounding(how: str, outer: Callable[..., Any], sees: float) -> Iterator[Pair]:
    """Functions whose results, or whose primals, are rounded; and the rounding itself."""
    known = {"kind": KIND, "sees": sees, "dtypes": DOUBLE if how == "float32" else BOTH}
    results = {
        name: (f, of_slope(slope), (uniform(f"{name} {how}", 0.3, 1.4, 5),))
        for name, (f, slope) in SMOOTH.items()
    }
    results["softmax"] = softmax, typed(softmax_vjp), (drawn(f"softmax {how}", 2, 4),)
    inside = {
        "tanh": (*results["tanh"][:2], (uniform(f"inside {how}", 0.3, 1.4, 5),)),
        "matmul": (
            lambda a, b: a @ b,
            typed(matmul_vjp),
            (drawn(f"a {how}", 3, 4), drawn(f"b {how}", 4, 2)),
        ),
        "mean square": (
            lambda x: (x * x).mean(),
            typed(lambda ct, x: ct * 2 * x / x.size),
            (drawn(f"loss {how}", 6),),
        ),
    }
    for word, some in (("to", results), ("in", inside)):
        for name, (f, vjp, primals) in some.items():
            yield Pair(
                name=f"{name} {word} {how}",
                forward=rounded(outer, f, word == "in"),
                behind=f,
                vjp=vjp,
                primals=primals,
                **known,
            )
    yield Pair(
        name=f"straight through {how}",
        forward=outer,
        behind=lambda x: x * 1,
        vjp=lambda ct, x: ct * 1,
        primals=(uniform(f"ste {how}", 0.3, 3, 6),),
        **known,
    )


def of_tables() -> Iterator[Pair]:
    """Values of each float16, and a few thousand entries with and without interpolation."""
    for name, (table, f, slope) in TABLES.items():
        for where, x in (
            ("middle", drawn(f"ggml {name}", 6)),
            ("far", 3 + drawn(f"ggml far {name}", 6)),
        ):
            yield Pair(
                name=f"ggml {name} table {where}",
                kind=KIND,
                forward=looked_up(table),
                behind=f,
                vjp=of_slope(slope),
                primals=(x,),
                sees=0.3,
            )
    for name, (f, slope) in SMOOTH.items():
        known = {"kind": KIND, "behind": f, "vjp": of_slope(slope)}
        known |= {"primals": (uniform(f"table {name}", 0.3, 1.4, 5),)}
        lines, nearest = linear_table(f, -2, 2, 4001), nearest_table(f, -2, 2, 1025)
        yield Pair(name=f"{name} by np.interp", forward=lines, sees=0.1, dtypes=DOUBLE, **known)
        yield Pair(name=f"{name} by nearest entry", forward=nearest, sees=0.5, **known)
