"""Elements of a stage that lie exactly on a kink: which gradients they may have.

A model's stage meets a kink where its values do (a blank image's pixels in one pooling window). On
it the gradient is a convention: any mixture of what the stage's own VJP gives at points beside it,
where one element or another is ahead. Those points bound every element; and where all of them
share the same sum, so must any convention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import Comparison, Interval
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.draw import key_of
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Array
from gradcheck.spec.program import Stage

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

DRAWS: Final = 256
"""Points beside a kink: among 16 equal elements each is the largest of all in some of them."""
ASIDE: Final = 2.0**-30
"""How far they are, relative to the largest value: nearer than any other kink."""
SAME: Final = 1e-12
"""Sums that differ by less, relative to their terms, are one sum."""


@dataclass(frozen=True, slots=True)
class Tied:
    """What is allowed on a kink: `interval` per element, and their sum per cotangent, `total` [q].

    The sum is None where conventions disagree about it, too (each corner has its own).
    """

    interval: Interval
    total: Float | None

    def finding(self, found: Comparison, finding: Finding) -> Finding:
        """The finding, with what the elements on the kink must share."""
        if self.total is None or finding.verdict is Verdict.FAIL:
            return finding
        on = self.interval.which
        sums, allowed = (np.where(on, x, 0.0).sum(axis=1) for x in (found.got, found.bound))
        ok = np.abs(sums - self.total) <= allowed
        if ok.all():
            return finding
        q = int(np.argmin(ok))
        reason = (
            f"the {int(on[q].sum())} elements on a kink share {sums[q]:.6g}, whatever the "
            f"convention it must be {self.total[q]:.6g}"
        )
        failed = int(on[~ok].sum())
        return replace(finding, verdict=Verdict.FAIL, reason=reason, failed=failed)


def tied(
    stage: Stage,
    primals: Sequence[Array],
    cts: Sequence[tuple[Array, ...]],
    index: int,
    on: Mask,
) -> Tied:
    """What the value `stage.reads[index]`, whose elements `on` lie on a kink, may get.

    `primals` and `cts` are the stage's own, in float64; rows follow `cts`.
    """
    rng = np.random.Generator(np.random.Philox(key=key_of("tied", stage.name)))
    flat = on.reshape(-1)
    size = max(1.0, float(np.abs(primals[index]).max()))
    moves = rng.uniform(-1.0, 1.0, (DRAWS, flat.size)) * flat * (ASIDE * size)
    with np.errstate(all="ignore"):
        ways = np.stack([_rows(stage, primals, cts, index, move) for move in moves])  # [k, q, n]
    which = np.broadcast_to(flat, ways.shape[1:])
    interval = Interval(which, *(np.where(which, end, 0.0) for end in (ways.min(0), ways.max(0))))
    totals, sizes = (x[..., flat].sum(axis=-1) for x in (ways, np.abs(ways)))  # [k, q]
    same = np.ptp(totals, axis=0) <= SAME * sizes.max(axis=0)
    return Tied(interval, totals[0] if same.all() else None)


def _rows(
    stage: Stage,
    primals: Sequence[Array],
    cts: Sequence[tuple[Array, ...]],
    index: int,
    move: Float,
) -> Float:
    """The gradients [q, n] of one value where it is moved."""
    moved = list(primals)
    moved[index] = moved[index] + move.reshape(moved[index].shape)
    values = dict(zip(stage.reads, moved, strict=True))
    rows = []
    for ct in cts:
        share = as_tuple(stage.vjp(F64, ct, values))[index]
        rows.append(np.asarray(share, dtype=np.float64).reshape(-1))
    return np.stack(rows)
