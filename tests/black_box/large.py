"""A million elements, right and wrong: the verdict, its time, and whether it names the place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .judged import said
from .kinks import relu_network, relu_network_vjp
from .pair import drawn, typed
from .smooth import softmax, softmax_vjp

PLACE = 123_457
"""The element of the first primal that is wrong alone."""


def mean_square(x, y):
    return ((x - y) ** 2).mean()


def mean_square_vjp(ct, x, y):
    g = ct * 2 * (x - y) / x.size
    return g, -g


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "tanh": (np.tanh, lambda ct, x: ct * (1 - np.tanh(x) ** 2), lambda: (drawn("large tanh",
        1_000_000),)),
    "relu": (lambda x: np.maximum(x, 0), lambda ct, x: ct * (x > 0), lambda: (drawn("large relu",
        1_000_000),)),
    "mean square": (mean_square, mean_square_vjp,
                    lambda: (drawn("large loss", 1_000_000), drawn("large target", 1_000_000))),
    "matmul": (lambda a, b: a @ b, lambda ct, a, b: (ct @ b.T, a.T @ ct),
               lambda: (drawn("large a", 1000, 1000), drawn("large b", 1000, 1000))),
    "softmax rows": (softmax, softmax_vjp, lambda: (drawn("large rows", 1000, 1000),)),
    "relu network": (relu_network, relu_network_vjp,
                     lambda: (drawn("large x", 16, 1000), drawn("large w", 1000, 900) / 30,
                              drawn("large v", 900, 100) / 30)),
}  # fmt: skip


def _all(g: Any) -> Any:
    return g * g.dtype.type(1.01)


def _one(g: Any) -> Any:
    g = g.copy()
    g.reshape(-1)[PLACE % g.size] *= -1
    return g


def _row(g: Any) -> Any:
    g = g.copy()
    g.reshape(-1)[: g.shape[-1] if g.ndim > 1 else 1000] = 0
    return g


WRONG: dict[str, Callable[[Any], Any]] = {
    "right": lambda g: g, "×1.01": _all, "one negated": _one, "a row zeroed": _row,
}  # fmt: skip


def judge_large(names: list[str], limit: float) -> int:
    """Print a table; 1 if a right one is no PASS, a wrong one no FAIL, or one is late."""
    bad = 0
    sys.stdout.write("| case | dtype | gradient | verdict | place | seconds | reason |\n")
    sys.stdout.write("|---|---|---|---|---|---:|---|\n")
    for name, (f, vjp, made) in CASES.items():
        if names and not any(part in name for part in names):
            continue
        for dtype in ("float64", "float32"):
            primals = tuple(p.astype(dtype) for p in made())
            for error, change in WRONG.items():

                def judged(ct, *given, vjp=typed(vjp), change=change):  # noqa: B008
                    got = vjp(ct, *given)
                    if isinstance(got, tuple):
                        return (change(got[0]), *got[1:])
                    return change(got)

                verdict, reason, seconds = said(f, judged, primals, limit)
                shape = primals[0].shape
                place = np.unravel_index(PLACE % primals[0].size, shape)
                named = error != "one negated" or str([int(i) for i in place]) in reason
                bad += verdict != ("PASS" if error == "right" else "FAIL") or not named
                sys.stdout.write(
                    f"| {name} | {dtype} | {error} | {verdict} | "
                    f"{'' if error != 'one negated' else 'named' if named else 'not named'} | "
                    f"{seconds:.1f} | {reason.replace('|', chr(92) + '|')[:160]} |\n"
                )
                sys.stdout.flush()
    return int(bad > 0)
