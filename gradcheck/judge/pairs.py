"""Two measurements of the same few numbers: do they agree, as far as both are known?

The rule is that of `judge.compare`, for numbers that stand for whole tensors: the bound is
rtol·max(|got|, |want|) + (rtol/16 + 4u√terms)·scale, and the error bars, doubled, stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import CANCELLED, KAPPA, ROUNDINGS, Rules
from gradcheck.results.finding import Finding, Miss
from gradcheck.results.verdict import Verdict

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Numbers `got` and `want` [k], with the error bar of their difference.

    `scale` is what cancels in them, `natural` the size that one expects of them where they are not
    exceptionally small: an error of a tenth of it (`Rules.blunt`) must be visible for a pass.
    """

    got: Float
    want: Float
    bar: Float
    scale: Float
    natural: Float

    def failed(self, bound: Float) -> NDArray[np.bool_]:
        """Where no explanation is left: neither the bound nor the error bars."""
        with np.errstate(all="ignore"):
            known = np.isfinite(self.want) & np.isfinite(self.bar)
            blur = KAPPA * np.where(known, self.bar, np.inf)
            return np.asarray(known & ~(np.abs(self.got - self.want) <= bound + blur))

    def finding(self, name: str, rules: Rules, bound: Float, reasons: tuple[str, str]) -> Finding:
        """The verdict; `reasons` say what a failure means, and what it is that cannot be seen."""
        with np.errstate(all="ignore"):
            error = np.abs(self.got - self.want)
            known = np.isfinite(self.want) & np.isfinite(self.bar)
            blur = KAPPA * np.where(known, self.bar, np.inf)
            failed = self.failed(bound)
            size = np.fmax(np.fmax(np.abs(self.got), np.abs(self.want)), self.natural)
            room = bound + blur
            visible = np.where(size > 0, room / size, np.where(room == 0, 0.0, np.inf))
        blind = ~failed & ~(visible <= rules.blunt)
        verdict, reason = Verdict.PASS, ""
        if failed.any():
            verdict = Verdict.FAIL
            reason = f"{reasons[0]} ({int(failed.sum())} of {failed.size} random directions)"
        elif blind.any():
            verdict = Verdict.INCONCLUSIVE
            reason = f"{reasons[1]} ({int(blind.sum())} of {failed.size} random directions)"
        with np.errstate(all="ignore"):
            ratio = np.where(error == 0, 0.0, error / room)
        rank = ratio if failed.any() else np.where(blind, 1 + visible, ratio / 2)
        rank = np.where(failed, np.inf, np.nan_to_num(rank, nan=np.inf))
        order = np.argsort(-rank, kind="stable")[: int(failed.sum()) or 1]
        return Finding(
            name=name,
            verdict=verdict,
            reason=reason,
            compared=int(failed.size),
            failed=int(failed.sum()),
            unresolved=int(blind.sum()),
            smallest_visible_error=float(np.max(visible)) if np.isfinite(visible).all() else None,
            worst=tuple(self._miss(int(k), float(error[k]), float(bound[k])) for k in order),
        )

    def _miss(self, k: int, error: float, bound: float) -> Miss:
        return Miss(
            index=(),
            got=float(self.got[k]),
            want=float(self.want[k]),
            error=error,
            bound=bound,
            error_bar=float(self.bar[k]),
            ulp=None,
            cotangent="",
        )


def bound_of(pairs: Pairs, rules: Rules, terms: int) -> Float:
    """What two ways to compute the same number may differ by; `terms` are summed in each."""
    with np.errstate(all="ignore"):
        size = np.fmax(np.abs(pairs.got), np.abs(pairs.want))
        size = np.where(np.isfinite(size), size, 0.0)
        part = rules.rtol / CANCELLED + ROUNDINGS * rules.u * np.sqrt(max(terms, 1))
        return np.asarray(rules.rtol * size + part * pairs.scale + rules.underflow)
