"""What a check would have rejected: impostors put to the same comparison, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from gradcheck.finding import Certificate
from gradcheck.judge.compare import Rules
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.gradient import Truth
from gradcheck.judge.impostors import IMPOSTORS, Answers, Array

SAME: Final = 1e-12
"""Of the largest Σ|ct·J|: an impostor that is nowhere further off is the truth at this sample."""


@dataclass(frozen=True, slots=True)
class Known:
    """The true gradients of one case: per primal, by cotangent, in the primal's shape."""

    truths: Sequence[Truth | None]
    cotangents: Cotangents

    def answers(self) -> list[Answers]:
        """The right answers to each cotangent."""
        rows = [None if t is None else t.settled() for t in self.truths]
        ones = self.cotangents.names.index("ones")

        def under(q: int) -> list[Array | None]:
            pairs = zip(self.truths, rows, strict=True)
            return [
                None if truth is None or values is None else values[q].reshape(truth.shape)
                for truth, values in pairs
            ]

        ignored, first, last = under(ones), under(0), under(1)
        known = [(last if q == 0 else first) for q in range(len(self.cotangents.values))]
        return [
            Answers(under(q), ct, lambda: ignored, partial(known.__getitem__, q))
            for q, ct in enumerate(self.cotangents.values)
        ]


def certify(known: Known, index: int, rules: Rules) -> Certificate:
    """Which impostors of the gradient of primal `index` the comparison rejects.

    One that equals the truth here (zeros, where the gradient is zero) proves nothing and does
    not count.
    """
    truth = known.truths[index]
    assert truth is not None
    answers = known.answers()
    right = truth.settled()
    scale = truth.differences.estimate.scale
    same = SAME * float(np.max(np.where(np.isfinite(scale), scale, 0.0), initial=0.0))
    rejected: list[str] = []
    blind: list[str] = []
    for impostor in IMPOSTORS:
        with np.errstate(all="ignore"):
            wrong = [impostor.make(a, index) for a in answers]
        made = [np.ravel(w) for w in wrong if w is not None]
        if len(made) < len(wrong):
            continue
        rows = np.stack(made)
        with np.errstate(invalid="ignore"):
            if np.all(np.abs(rows - right) <= same):
                continue
        (rejected if truth.rejects(rows, rules) else blind).append(impostor.name)
    return Certificate(rejected=tuple(rejected), blind=tuple(blind))
