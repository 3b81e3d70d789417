"""No blind PASS: wrong gradients at every scale of every primal, from 1e-300 to 1e300.

Zeros, the negated gradient, its half and 1.1 times it are never a PASS where the true gradient is
not zero. They may be INCONCLUSIVE where forward's values show nothing.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from gradcheck.api.elementwise_check import Request
from gradcheck.api.judge_function import judge_function
from gradcheck.results.verdict import Verdict, worst

from . import smooth
from .judged import Late, limited
from .pair import drawn, typed

SCALES = {
    "float64": (
        *(1e-300, 1e-250, 1e-200, 1e-150, 1e-100, 1e-50, 1e-20, 1e-15, 1e-9, 1e-6, 1e-3, 1.0),
        *(1e3, 1e6, 1e9, 1e15, 1e20, 1e50, 1e100, 1e150, 1e200, 1e250, 1e300),
    ),
    "float32": (1e-36, 1e-30, 1e-20, 1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9, 1e20, 1e30, 1e36),
}
WRONG = {"zeros": 0.0, "negated": -1.0, "halved": 0.5, "×1.1": 1.1}
One = tuple[Callable[..., Any], Callable[..., Any]]


def positive(f: Callable[..., Any], slope: Callable[..., Any]) -> One:
    """A function of positive numbers."""
    return lambda x: f(np.abs(x)), lambda x: np.sign(x) * slope(np.abs(x))


ELEMENTWISE: dict[str, One] = {
    "abs": (np.abs, np.sign), "relu": (lambda x: np.maximum(x, 0), lambda x: x > 0),
    "leaky relu": (lambda x: np.where(x > 0, x, x / 8), lambda x: np.where(x > 0, 1, 1 / 8)),
    "clip": (lambda x: np.clip(x, -2, 2), lambda x: np.abs(x) < 2),
    "x|x|": (lambda x: x * np.abs(x), lambda x: 2 * np.abs(x)),
    "x²": (lambda x: x * x, lambda x: 2 * x), "x³": (lambda x: x**3, lambda x: 3 * x * x),
    "1/x": (lambda x: 1 / x, lambda x: -1 / x / x), "cbrt": (np.cbrt, lambda x: np.cbrt(x) / x / 3),
    "sqrt": positive(np.sqrt, lambda x: 0.5 / np.sqrt(x)), "log": positive(np.log, lambda x: 1 / x),
    "log1p": positive(np.log1p, lambda x: 1 / (1 + x)), "exp": (np.exp, np.exp),
    "expm1": (np.expm1, np.exp), "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "sin": (np.sin, np.cos), "arctan": (np.arctan, lambda x: 1 / (1 + x * x)),
    "arcsinh": (np.arcsinh, lambda x: 1 / np.hypot(1, x)),
    "sigmoid": (smooth.sigmoid, lambda x: smooth.sigmoid(x) * smooth.sigmoid(-x)),
    "softplus": (lambda x: np.logaddexp(0, x), smooth.sigmoid),
    "silu": (lambda x: x * smooth.sigmoid(x),
        lambda x: smooth.sigmoid(x) * (1 + x * smooth.sigmoid(-x))),
    "gaussian": (lambda x: np.exp(-x * x), lambda x: -2 * x * np.exp(-x * x)),
    "softsign": (lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2),
    "soft abs": (lambda x: np.hypot(x, 1), lambda x: x / np.hypot(x, 1)),
    "soft abs 1e-9": (lambda x: np.hypot(x, 1e-9), lambda x: x / np.hypot(x, 1e-9)),
    "huber": (lambda x: smooth.huber(x, 1.3), lambda x: np.clip(x / 1.3, -1, 1)),
    "huber 1e-20": (lambda x: smooth.huber(x, 1e-20), lambda x: np.clip(x / 1e-20, -1, 1)),
    "log cosh": (lambda x: np.logaddexp(x, -x), np.tanh), "1 + x": (lambda x: 1 + x, np.ones_like),
    "x + x²": (lambda x: x + x * x, lambda x: 1 + 2 * x), "elu": (
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), lambda x: np.exp(np.minimum(x,
            0))),
    "x log x": positive(lambda x: x * np.log(x), lambda x: np.log(x) + 1),
}  # fmt: skip
SEVERAL: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "hypot": (np.hypot, lambda ct, x, y: (ct * (x / np.hypot(x, y)), ct * (y / np.hypot(x, y))), 2),
    "product": (lambda x, y: x * y, lambda ct, x, y: (ct * y, ct * x), 2),
    "ratio": (lambda x, y: x / y, lambda ct, x, y: (ct / y, -ct * (x / y) / y), 2),
    "maximum": (np.maximum, lambda ct, x, y: (ct * (x > y), ct * (y >= x)), 2),
    "sum": (lambda x, y: x + y, lambda ct, x, y: (ct.copy(), ct.copy()), 2),
    "arctan2": (np.arctan2, lambda ct, y, x: (
        ct * (x / np.hypot(x, y)) / np.hypot(x, y), -ct * (y / np.hypot(x, y)) / np.hypot(x, y)),
            2),
    "logaddexp": (np.logaddexp, lambda ct, x, y: (ct * smooth.sigmoid(x - y),
        ct * smooth.sigmoid(y - x)), 2),
    "norm": (smooth.scaled_norm, smooth.scaled_norm_vjp, 1),
    "max": (np.max, lambda ct, x: ct * (x == x.max()), 1),
    "sum of absolutes": (lambda x: np.abs(x).sum(), lambda ct, x: ct * np.sign(x), 1),
    "l1": (lambda x, y: np.abs(x - y), lambda ct, x, y: (ct * np.sign(x - y),
        -ct * np.sign(x - y)), 2),
    "cosine": (smooth.cosine, smooth.cosine_vjp, 2),
    "dot": (lambda x, y: x @ y, lambda ct, x, y: (ct * y, ct * x), 2),
}  # fmt: skip


def functions() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], int]]:
    """Name, forward, VJP and the number of primals."""
    for name, (f, slope) in ELEMENTWISE.items():
        yield name, f, typed(lambda ct, x, s=slope: ct * s(x)), 1
    for name, (f, vjp, count) in SEVERAL.items():
        yield name, f, typed(vjp), count


def points(name: str, count: int, dtype: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """One primal at every scale, the others of size 1; and all of them at one scale."""
    base = [np.asarray(drawn(f"scale {name} {i}", 4)) for i in range(count)]
    for scale, which in itertools.product(SCALES[dtype], range(count + (count > 1))):
        sizes = [scale if which in (i, count) else 1.0 for i in range(count)]
        primals = tuple((s * b).astype(dtype) for s, b in zip(sizes, base, strict=True))
        yield " × ".join(f"{s:g}" for s in sizes), primals


def shows(vjp: Callable[..., Any], y: Any, primals: tuple[Any, ...], dtype: str) -> bool:
    """Whether forward has a value here, and a gradient that is not zero for any primal."""
    if not np.isfinite(y).all():
        return False
    got = vjp(np.ones_like(y), *primals)
    got = got if isinstance(got, tuple) else (got,)
    least = 2.0**12 * np.finfo(dtype).smallest_normal
    return all(np.isfinite(g).all() and np.abs(g).max() > least for g in got)


def _said(
    f: Callable[..., Any],
    vjp: Callable[..., Any],
    primals: tuple[Any, ...],
    dtype: str,
    seed: int,
    limit: float,
    *,
    right: bool,
) -> tuple[str, str]:
    """Verdict and reason, as of `check`; no diagnosis, which costs three times as much."""
    asked = Request(
        forward=f, vjp=vjp, names=("x", "y")[: len(primals)], attrs={}, dtype=dtype, seed=seed,
        subject="scales", full=False, order=1, double_vjp=None, jvp=None, explain=False,
    )  # fmt: skip
    try:
        with limited(limit), np.errstate(all="ignore"):
            found = judge_function(asked, primals)
    except Late:
        return "TIMEOUT", f"more than {limit:g} s"
    verdicts = [finding.verdict for finding in found]
    # A primal whose wrong gradient passes hides behind another one's.
    passed = right or Verdict.PASS not in verdicts
    verdict = worst(verdicts) if passed else Verdict.PASS
    return verdict.name, "; ".join(f"{f.name}: {f.reason}" for f in found if f.verdict is verdict)


def judge_one(
    name: str, dtype: str, seeds: int, limit: float
) -> tuple[list[str], Counter[tuple[str, str, str]]]:
    """What passes of one function and should not, or does not and should; and the counts."""
    counts: Counter[tuple[str, str, str]] = Counter()
    lines = []
    f, vjp, count = {known: others for known, *others in functions()}[name]
    for where, primals in points(name, count, dtype):
        with np.errstate(all="ignore"):
            if not shows(vjp, np.asarray(f(*primals)), primals, dtype):
                continue
        for (error, factor), seed in itertools.product(
            {"right": 1.0, **WRONG}.items(), range(seeds)
        ):

            def wrong(ct, *given, factor=factor):
                got = vjp(ct, *given)
                if isinstance(got, tuple):
                    return tuple(g * g.dtype.type(factor) for g in got)
                return got * got.dtype.type(factor)

            verdict, reason = _said(f, wrong, primals, dtype, seed, limit, right=error == "right")
            counts[dtype, error, verdict] += 1
            if (verdict == "PASS") is (error != "right"):
                lines.append(f"{verdict} {error}: {name} at {where}, {dtype}: {reason}\n")
    return lines, counts


def judge_scales(
    names: list[str], dtypes: tuple[str, ...], seeds: int, limit: float, jobs: int
) -> int:
    """Print what passes, and the counts; 1 if anything does."""
    counts: Counter[tuple[str, str, str]] = Counter()
    wanted = [name for name, *_ in functions() if not names or name in names]
    each = [*itertools.product(wanted, dtypes, [seeds], [limit])]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for lines, some in pool.map(judge_one, *zip(*each, strict=True)):
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            counts += some
    for key, number in sorted(counts.items()):
        sys.stdout.write(f"{' '.join(key)}: {number}\n")
    return int(any(error != "right" and verdict == "PASS" for _, error, verdict in counts))
