"""How many forwards of the corpus can be evaluated in 50 digits, and whether their slopes are true.

The slopes at the element with the largest gradient are compared with those that `verify` computes
from the same code in its own numbers.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from gradcheck.judge.arbiter import BUDGET, Arbiter
from gradcheck.numerics.highprecision.forward import BigForward
from gradcheck.numerics.highprecision.numbers import NoArbiter

from .corpus import corpus
from .pair import Pair
from .verify import cotangents, gradients

AGREES = 1e-10
"""The largest difference of the two slopes, as a part of the sum of their terms' sizes."""
FRAMEWORKS = {"jax": "JAX", "torch": "PyTorch"}


@dataclass(frozen=True)
class Carried:
    """The outcome of one forward: the reason of a refusal, or the error of its slope."""

    kind: str
    name: str
    dtype: str
    refusal: str
    off: float | None


class Slopes:
    """Slopes of one forward in 50 digits, as in `check`; `refusal` if there are none."""

    def __init__(self, pair: Pair, dtype: str) -> None:
        self.refusal = ""
        self._primals = pair.cast(dtype)
        found = pair.forward(*self._primals, **pair.attrs)
        found = found if isinstance(found, (tuple, list)) else (found,)
        outputs = [np.asarray(o) for o in found]
        known = pair.forward, self._primals, pair.attrs
        self._arbiter = None
        if any(a.dtype.kind == "c" for a in (*outputs, *self._primals)):
            self._big = BigForward(*known, BUDGET)  # `check` splits them into real ones first
        else:
            self._arbiter = Arbiter(*known, outputs)

    def at(self, index: int, element: int):
        """Slopes [m] behind and ahead of one element; None where forward refuses 50 digits."""
        if self._arbiter is not None:
            slopes = self._arbiter.slopes(index, np.array([element]))
            self.refusal = self._arbiter.refusal
            return slopes
        moves = [None] * len(self._primals)
        moves[index] = np.zeros(self._primals[index].shape)
        moves[index].reshape(-1)[element] = 1.0
        try:
            slopes = self._big.slopes(moves)
        except NoArbiter as error:
            self.refusal = str(error)
            return None
        return slopes.behind, slopes.ahead


def carried(pair: Pair, dtype: str) -> Carried:
    """One forward in 50 digits; `off` is None where there is no independent truth."""
    off = None
    with np.errstate(all="ignore"):
        slopes = Slopes(pair, dtype)
        floating = [i for i, p in enumerate(pair.primals) if np.asarray(p).dtype.kind in "fc"]
        if pair.hidden or pair.behind is not None or dtype != "float64":
            slopes.at(floating[0], 0)
        else:
            flat = np.concatenate([np.ravel(c) for c in cotangents(pair)])
            truths = [*gradients(pair)]  # to its end: until then the corpus speaks mpmath
            off = max(
                _off(slopes, i, flat, behind, ahead)
                for i, (_, behind, ahead) in zip(floating, truths, strict=True)
            )
    refusal = slopes.refusal
    return Carried(pair.kind, pair.name, dtype, refusal, None if refusal else off)


def _off(slopes: Slopes, index: int, flat, behind, ahead) -> float:
    """How far the slopes at one element of a primal are from the truth `behind` and `ahead` it."""
    k = int(np.argmax(np.abs(np.ravel(behind))))
    found = slopes.at(index, k)
    if found is None:
        return 0.0
    worst = 0.0
    for slope, truth in zip(found, (behind, ahead), strict=True):
        terms = np.real(np.conj(flat) * slope)
        size = np.abs(terms).sum()
        far = abs(terms.sum() - np.real(np.ravel(truth)[k]))
        worst = max(worst, float(far / size) if size else float(far))
    return worst if np.isfinite(worst) else 0.0  # no slope on that side, here or there


def _by_name(name: str) -> list[Carried]:
    pair = corpus()[name]
    return [carried(pair, dtype) for dtype in pair.dtypes]


def carry_all(names: Iterable[str], jobs: int) -> str:
    """All of `names`, as a section of the report; progress on stderr."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        found = [one for some in pool.map(_by_name, names) for one in some]
    for one in found:
        if one.refusal or (one.off or 0) > AGREES:
            sys.stderr.write(f"{one.kind}/{one.name} {one.dtype}: {one.refusal or one.off}\n")
    groups: dict[tuple[str, str], list[Carried]] = {}
    for one in found:
        whose = FRAMEWORKS.get(one.kind, "NumPy and SciPy")
        groups.setdefault((whose, one.dtype), []).append(one)
    lines = [
        "",
        "## Forwards in 50 digits",
        "",
        *__doc__.splitlines()[2:],
        "",
        "| forwards of | dtype | pairs | carried | of those without rounding | compared | agree |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (group, dtype), some in groups.items():
        held = [one for one in some if not one.refusal]
        known = [one for one in held if one.off is not None]
        right = sum(one.off <= AGREES for one in known if one.off is not None)
        whole = [one for one in some if "rounds" not in one.refusal]
        shares = [f"{100 * len(held) / len(all_):.1f}%" for all_ in (some, whole)]
        lines.append(
            f"| {group} | {dtype} | {len(some)} | {len(held)} ({shares[0]}) | {shares[1]} "
            f"| {len(known)} | {right} |"
        )
    why = Counter(one.refusal.partition(" (")[0] for one in found if one.refusal)
    lines += ["", "Refused because:", ""]
    lines += [f"- {count} × {reason}" for reason, count in why.most_common()]
    return "\n".join([*lines, ""])
