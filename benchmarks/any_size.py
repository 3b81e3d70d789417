"""Forwards and seconds of `check` against the elements of a primal, right and wrong.

`python -m benchmarks.any_size` prints Markdown; `--most N` stops at N elements. Seconds are of
a wall clock, with whatever else the machine does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck import Verdict, check

Array = NDArray[Any]
Case = tuple[Callable[..., Array], Callable[..., Any], tuple[Array, ...]]

SIZES: Final = (1e3, 1e4, 1e5, 1e6)
ROWS: Final = 16


def _normal(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(size=shape)


def elementwise(n: int) -> Case:
    """The tanh of n elements."""
    return np.tanh, lambda ct, x: ct * (1 - np.tanh(x) ** 2), (_normal(n),)


def loss(n: int) -> Case:
    """The mean square of n errors."""
    target = _normal(1, n)[0]

    def forward(x: Array) -> Array:
        return np.asarray(np.mean((np.tanh(x) - target.astype(x.dtype)) ** 2))

    def vjp(ct: Array, x: Array) -> Array:
        y = np.tanh(x)
        return np.asarray(ct * 2 * (y - target.astype(x.dtype)) * (1 - y * y) / x.dtype.type(n))

    return forward, vjp, (_normal(n),)


def softmax(n: int) -> Case:
    """Rows of √n."""
    width = round(n**0.5)

    def forward(x: Array) -> Array:
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(e / e.sum(-1, keepdims=True))

    def vjp(ct: Array, x: Array) -> Array:
        y = forward(x)
        return np.asarray(y * (ct - (ct * y).sum(-1, keepdims=True)))

    return forward, vjp, (_normal(width, width),)


def matmul(n: int) -> Case:
    """Two square matrices of n elements each."""
    width = round(n**0.5)
    primals = (_normal(width, width), _normal(width, width) / width)
    return np.matmul, lambda ct, a, b: (ct @ b.T, a.T @ ct), primals


def network(n: int) -> Case:
    """Two layers with a ReLU between them, of n weights in all."""
    width = round((n / 2) ** 0.5)
    x, target = _normal(ROWS, width), _normal(width, ROWS).T

    def forward(a: Array, b: Array) -> Array:
        y = np.maximum(x.astype(a.dtype) @ a, 0) @ b
        return np.asarray(np.mean((y - target.astype(a.dtype)) ** 2))

    def vjp(ct: Array, a: Array, b: Array) -> tuple[Array, Array]:
        rows = x.astype(a.dtype)
        h = np.maximum(rows @ a, 0)
        e = ct * 2 * (h @ b - target.astype(a.dtype)) / a.dtype.type(target.size)
        return rows.T @ ((e @ b.T) * (h > 0)), h.T @ e

    return forward, vjp, (_normal(width, width) / width**0.5, _normal(width, width).T / width**0.5)


CASES: Final = (elementwise, loss, softmax, matmul, network)


def lone(g: Array) -> None:
    """One element is a hundredth off: the last quarter's first that is not small."""
    flat = g.reshape(-1)
    start = 3 * flat.size // 4
    at = start + int(np.argmax(np.abs(flat[start : start + 16])))
    flat[at] *= 1.01


def scaled(g: Array) -> None:
    """All of it is a hundredth off."""
    g *= 1.01


def measured(
    case: Case, dtype: str, change: Callable[[Array], None] | None
) -> tuple[str, int, float]:
    """The verdict, forwards and seconds of one check, its first gradient changed."""
    forward, right, primals = case
    calls = 0

    def counted(*values: Array) -> Array:
        nonlocal calls
        calls += 1
        return forward(*values)

    def vjp(ct: Array, *values: Array) -> Any:
        out = right(ct, *values)
        if change is None:
            return out
        parts = [np.array(part) for part in (out if isinstance(out, tuple) else (out,))]
        change(parts[0])
        return tuple(parts) if isinstance(out, tuple) else parts[0]

    start = time.perf_counter()
    found = check(counted, vjp, *(p.astype(dtype) for p in primals))
    took = time.perf_counter() - start
    known = {Verdict.PASS: "PASS", Verdict.FAIL: "FAIL"}
    return known.get(found.verdict, found.verdict.name), calls, took


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=SIZES[-1], help="elements at most")
    most = parser.parse_args(arguments).most
    sizes = [int(n) for n in SIZES if n <= most]
    heads = [f"{n:,}" for n in sizes]
    print("| forward | dtype | gradient |", " | ".join(heads), "|")
    print("|---|---|---|" + "---:|" * len(sizes))
    for make in CASES:
        for dtype in ("float64", "float32"):
            for name, change in (("right", None), ("one element", lone), ("× 1.01", scaled)):
                cells = []
                for n in sizes:
                    verdict, calls, took = measured(make(n), dtype, change)
                    cells.append(f"{verdict} {calls:,}, {took:.2g} s")
                print(f"| {make.__name__} | {dtype} | {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
