"""How far a result is off, in the unit in which entries say how far it may be."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Final

from gradcheck.results.verdict import Verdict
from gradcheck.results.words import relative

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradcheck.results.case_result import CaseResult

ROOM: Final = Decimal("1.5")
"""What an entry allows, in multiples of what was measured."""
DIGITS: Final = 2


def measured(result: CaseResult) -> float | None:
    """The relative error of a failure's worst element, as reports print it.

    Infinite where it is no number; None where nothing was compared (a crash, a property).
    """
    if result.finding.verdict is not Verdict.FAIL or result.finding.top is None:
        return None
    ratios = relative(result.finding.top)
    return math.inf if ratios is None or math.isnan(ratios[0]) else ratios[0]


def largest(results: Iterable[CaseResult]) -> float | None:
    """The largest error of several results; None where none has one."""
    return max((error for r in results if (error := measured(r)) is not None), default=None)


def allowance(error: float) -> float:
    """What an entry allows where `error` was measured: half as much again, rounded up.

    >>> allowance(0.0267), allowance(0.1)
    (0.041, 0.15)
    """
    exact = Decimal(repr(error)) * ROOM
    last = Decimal(1).scaleb(exact.adjusted() - DIGITS + 1)
    return float(exact.quantize(last, rounding=ROUND_CEILING))


def within(error: float | None, most: float | None) -> bool:
    """Whether an error is no larger than an entry says; an entry need not say it."""
    return most is None or error is None or error <= most
