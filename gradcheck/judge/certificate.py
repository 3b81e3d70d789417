"""Which wrong gradients a check would have rejected, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import TOLERANCES, Tolerance, largest_scale, tolerance_of
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.gradient_truth import GradientTruth
from gradcheck.judge.impostors import (
    IMPOSTORS,
    NARROWINGS,
    Answers,
    NarrowedGradients,
    with_visible_bits,
)
from gradcheck.numerics.narrow import Narrow, narrower
from gradcheck.results.finding import Certificate

Array = NDArray[Any]
Float = NDArray[np.float64]
Mask = NDArray[np.bool_]
NARROWINGS_BY_NAME: Final = {one.name: one for one in NARROWINGS}
SAME_SHARE: Final = 1e-12
"""An impostor nowhere further off than this part of the largest Σ|ct·J| equals the truth."""
SAME_BARS: Final = 4.0
"""Error bars that it may be off besides: equal gradients are not equally well known."""
WIDEST_DTYPE: Final = "float32"
"""The differenced dtype with the widest tolerance: the others reject more."""


@dataclass(slots=True)
class Certifier:
    """The impostors of every gradient of one case, made from the true gradients.

    `truths` holds None for an index; `narrowed` are the gradients of narrower types under the first
    cotangent.
    """

    truths: Sequence[GradientTruth | None]
    cotangents: Cotangents
    narrowed: NarrowedGradients
    _made: dict[int, tuple[list[str], Float]] = field(default_factory=dict)
    _widest: dict[tuple[int, float], tuple[tuple[bytes, ...], Mask]] = field(default_factory=dict)

    def certificate(self, index: int, tolerance: Tolerance) -> Certificate:
        """Which impostors of the gradient of primal `index` the comparison rejects."""
        truth = self.truths[index]
        assert truth is not None
        if index not in self._made:  # a dtype changes what is allowed, not what is wrong
            self._made[index] = self._make(truth, index)
        names, stack = self._made[index]
        known = [
            name not in NARROWINGS_BY_NAME or NARROWINGS_BY_NAME[name].below(tolerance.dtype)
            for name in names
        ]
        failed = (
            self._rejected(truth, index, stack, tolerance) if names else np.zeros(0, dtype=bool)
        )
        passed = np.flatnonzero(known & ~failed)
        within = [k for k in passed if names[k] in NARROWINGS_BY_NAME]
        shares = truth.excess(stack[within], tolerance) if within else ()
        return Certificate(
            rejected=tuple(names[k] for k in np.flatnonzero(known & failed)),
            blind=tuple(names[k] for k in passed if names[k] not in NARROWINGS_BY_NAME),
            tolerated=tuple(
                with_visible_bits(names[k], NARROWINGS_BY_NAME[names[k]].type, float(s))
                for k, s in zip(within, shares, strict=True)
            ),
        )

    def short(self, tolerance: Tolerance) -> Narrow | None:
        """A type that holds all primals, and whose rounding would show at other primals."""
        held = [t for t in narrower(tolerance.dtype) if self.narrowed.holds(t)]
        coarsest = min(held, key=lambda t: t.bits, default=None)
        if coarsest is None:
            return None
        for index, truth in enumerate(self.truths):
            if truth is not None and truth.shape and 0 not in truth.shape:
                off = self.narrowed.moved(coarsest, index)
                if truth.rejects(_beside(truth, [off]), tolerance).any():
                    return coarsest
        return None

    def _rejected(
        self, truth: GradientTruth, index: int, stack: Float, tolerance: Tolerance
    ) -> Mask:
        """Which of `stack` [k, q, n] fail, judged by the widest tolerance for all dtypes at once.

        An impostor that fails by it fails by all others, whose bounds are smaller everywhere. It is
        judged again only if the truth was refined in between.
        """
        if tolerance.dtype not in TOLERANCES:
            return truth.rejects(stack, tolerance)
        known, key = _state(truth), (index, tolerance.extra_ulp)
        before, failed = self._widest.get(key, ((), None))
        if failed is None or before != known:
            failed = truth.rejects(stack, tolerance_of(WIDEST_DTYPE, tolerance.extra_ulp))
            self._widest[key] = known, failed
        if tolerance.dtype == WIDEST_DTYPE or failed.all():
            return failed
        sharper = failed.copy()
        sharper[~failed] = truth.rejects(stack[~failed], tolerance)
        return sharper

    def _make(self, truth: GradientTruth, index: int) -> tuple[list[str], Float]:
        """Names of the impostors, and each as rows: [k, q, n].

        An impostor that equals the truth here (zeros, where the gradient is zero) is left out.
        """
        answers, right = self._answers(), truth.settled()
        estimate = truth.differences.estimate
        known = np.isfinite(estimate.bar)
        if truth.kinks is not None:
            known = known & ~truth.kinks.interval.which  # a jump has a bar that hides everything
        bar = np.where(known, estimate.bar, 0.0)
        same = SAME_SHARE * np.max(largest_scale(estimate), initial=0.0) + SAME_BARS * bar
        names: list[str] = []
        rows: list[Array] = []
        with np.errstate(all="ignore"):
            for impostor in IMPOSTORS:
                wrong = [w for a in answers if (w := impostor.make(a, index)) is not None]
                if len(wrong) == len(answers):
                    names.append(impostor.name)
                    rows += [np.ravel(w) for w in wrong]
            stack = np.stack(rows).reshape(len(names), *right.shape)
            every = self.narrowed.offs.items()
            offs = {name: off[index] for name, off in every if off[index].any()}
            stack = np.concatenate([stack, _beside(truth, [*offs.values()])])
            proves = ~np.all(np.abs(stack - right) <= same, axis=(1, 2))
        names += offs
        return [names[k] for k in np.flatnonzero(proves)], stack[proves]

    def _answers(self) -> list[Answers]:
        rows = [None if t is None else t.settled() for t in self.truths]

        def under(q: int) -> list[Array | None]:
            pairs = zip(self.truths, rows, strict=True)
            return [
                None if truth is None or values is None else values[q].reshape(truth.shape)
                for truth, values in pairs
            ]

        known = [under(q) for q in range(len(self.cotangents.values))]
        ignored = known[self.cotangents.names.index("ones")]
        return [
            Answers(known[q], ct, lambda: ignored, partial(known.__getitem__, 0 if q else 1))
            for q, ct in enumerate(self.cotangents.values)
        ]


def _beside(truth: GradientTruth, offs: Sequence[Float]) -> Float:
    """The true gradient, off by each of `offs` [n] under the first cotangent: [k, q, n]."""
    right = truth.settled()
    stack = np.repeat(right[None], len(offs), axis=0)
    for rows, off in zip(stack, offs, strict=True):
        rows[0] += off
    return stack


def _state(truth: GradientTruth) -> tuple[bytes, ...]:
    """Everything about the truth that a comparison depends on."""
    now = truth.differences.estimate
    return tuple(part.tobytes() for part in (now.value, now.bar, now.scale, now.terms))
