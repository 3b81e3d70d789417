"""The smallest input at which a gradient still fails, and fails for the same reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gradcheck.finding import Finding
from gradcheck.suite import Case

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A failure made small: the case, the one cotangent under which it shows, and the numbers.

    `case` has a sample of its own, named after the original's, that returns the reduced primals
    and holds the reduced attributes; `cotangent` has one part per output of forward, in float64.
    `finding` is the judgement of the gradient `output` there. `got`, `want` (the true gradient)
    and `bar` (how uncertain `want` is) are float64, in the shape of the primal `output`; `got` is
    NaN where nothing of that shape came back.
    """

    case: Case
    cotangent: tuple[Array, ...]
    output: str
    dtype: str
    finding: Finding
    got: Array
    want: Array
    bar: Array
def shrink(*a): return None
