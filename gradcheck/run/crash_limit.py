"""What a run leaves out of an operator whose code has crashed or hung too often.

The rule counts results in the order of a run, not processes as they die: it is the same for one
job, for several, and for shards that are put together again.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gradcheck.implementations.processes.budget import LIMITS, too_often
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict

CALL = "vjp"
"""What a result is called that is about the whole call."""


class CrashLimit:
    """Counts what crashed and hung, by implementation and operator."""

    def __init__(self) -> None:
        """Nothing has yet."""
        self._seen: Counter[tuple[str, str, Verdict]] = Counter()

    def sees(self, results: Iterable[CaseResult]) -> None:
        """Count the results of one case."""
        self._seen.update(
            (r.case.implementation, r.case.op, r.finding.verdict)
            for r in results
            if r.finding.verdict in LIMITS
        )

    def why(self, implementation: str, op: str) -> str:
        """Why the rest of an operator is left out; empty: it is not."""
        return too_often(op, lambda verdict: self._seen[implementation, op, verdict]) or ""

    def applied(self, results: Iterable[CaseResult]) -> Iterator[CaseResult]:
        """The results of the next case, but for what is left out: NOTRUN, one per dtype."""
        told = set()
        for result in results:
            why = self.why(result.case.implementation, result.case.op)
            if not why:
                yield result
            elif (
                result.finding.part is Part.GRADIENT
                and (result.case.implementation, result.case.name) not in told
            ):
                told.add((result.case.implementation, result.case.name))
                yield left_out(result, why)

    def after(self, results: Iterable[CaseResult]) -> Sequence[CaseResult]:
        """The same as a list, counted."""
        kept = [*self.applied(results)]
        self.sees(kept)
        return kept


class Ends:
    """The same count where cases become known out of their order: of those before a place."""

    def __init__(self) -> None:
        """Nothing has ended yet."""
        self._places: dict[tuple[str, str, Verdict], list[int]] = {}

    def sees(self, place: int, results: Iterable[CaseResult]) -> None:
        """Note the results of the case at a place."""
        for r in results:
            if r.finding.verdict in LIMITS:
                self._places.setdefault(
                    (r.case.implementation, r.case.op, r.finding.verdict), []
                ).append(place)

    def why(self, place: int, implementation: str, op: str) -> str:
        """Why the case at a place is left out, whatever else is still to come; empty: it is not."""

        def before(verdict: Verdict) -> int:
            return sum(p < place for p in self._places.get((implementation, op, verdict), ()))

        return too_often(op, before) or ""


def left_out(result: CaseResult, why: str) -> CaseResult:
    """What stands for all results of a case and dtype, of which this is one."""
    words = shlex.split(result.repro)
    if words[1:2] == ["repro"]:
        words[2] = result.case.name
    return CaseResult(
        case=result.case,
        finding=Finding(name=CALL, verdict=Verdict.NOTRUN, reason=why),
        repro=shlex.join(words),
    )
