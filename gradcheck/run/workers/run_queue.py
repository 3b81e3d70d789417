"""A run divided into units, and its cases put together again, wherever the units are judged.

An executor takes the next unit, has it judged by one of its workers, and returns the answer. In
whatever order that happens, cases come back whole, in the order of the run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from queue import SimpleQueue
from typing import Final

from gradcheck.implementations.processes.crash_or_hang import LIMITS
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.run.limits import CALL, CrashLimit
from gradcheck.run.plan import Plan
from gradcheck.run.to_result import result_of
from gradcheck.run.workers import MAX_TRIES
from gradcheck.run.workers.units import Ask, Unit, asks_of, begun, divided, units_of
from gradcheck.spec.case import AnyCase

LOOK_AHEAD: Final = 64
"""Units among which a slot looks for its current operator."""
MIN_SHARE: Final = 0.8
"""The share of the longest waiting unit's seconds that another needs to come before it."""
MAX_WAIT: Final = 0.05
"""Seconds for which a unit may wait in a worker behind another."""
ENDED: Final = {*LIMITS, Verdict.NOTRUN}
"""Verdicts that may depend on other asks of the same process within a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a unit: results in the order of its asks, and the seconds that it took.

    A unit without asks is answered by the hash of its case.
    """

    records: tuple[CaseResult, ...] = ()
    seconds: float = 0.0
    hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A case that is complete: its place in the run, and the seconds that it took."""

    place: int
    seconds: float


class RunQueue:
    """Units to begin, and the answers of those that were begun.

    The executor uses it as a `pool.TaskQueue`, from one thread at a time; the run takes the
    results, from another. `slots` is the number of workers.
    """

    def __init__(self, plan: Plan, cases: Sequence[AnyCase], slots: int) -> None:
        """Divide a run for a number of workers."""
        self._plan, self._cases, self.slots = plan, cases, slots
        units = units_of(plan, cases, slots)
        self._in_order = plan.budget is not None  # what comes first tells most
        self._waiting = units if self._in_order else begun(units, slots)
        self._asks = [asks_of(plan, case) for case in cases]
        self._left = len(cases)
        self._parts: dict[int, dict[Ask, list[CaseResult]]] = {}
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._divided = divided(units)
        self._losses: Counter[tuple[int, Ask]] = Counter()
        self._fatal: dict[int, dict[Ask, str]] = {}
        self._at: dict[Hashable, Unit] = {}
        self._crashes = CrashLimit()
        self._whole: dict[int, list[CaseResult]] = {}
        self._arrived: SimpleQueue[Arrived | BaseException] = SimpleQueue()

    # ── the executor's side ──────────────────────────────────────────────────────────────────

    @property
    def left(self) -> int:
        """The number of incomplete cases; at 0 there is nothing more to wait for."""
        return self._left

    def next(self, slot: Hashable = None, *, ahead: bool = False) -> Unit | None:
        """The next unit of a slot, or, with `ahead`, the unit after its current one.

        None where nothing waits; after a loss, something may wait again. Nothing waits behind a
        long unit. A slot stays with an operator's dialect where it can, since a worker makes each
        diagnosis once; without a slot, units come in their order.
        """
        if not self._waiting or (ahead and self._alone(slot)):
            return None
        unit = self._waiting.pop(self._chosen(slot))
        self._at[slot] = unit
        words = dict.fromkeys(word for word, _ in unit.asks)
        known = ((word, self._crashes.why(unit.place, word, *unit.owner)) for word in words)
        return replace(unit, left_out=tuple((word, why) for word, why in known if why))

    def _alone(self, slot: Hashable) -> bool:
        """Whether a unit behind the current one of a slot might wait for long."""
        at = self._at.get(slot)
        return at is None or max(at.seconds, self._waiting[0].seconds) > MAX_WAIT

    def _chosen(self, slot: Hashable) -> int:
        """The unit to take: of the slot's current operator, or of one that no other slot is at."""
        if self._in_order:
            return 0
        head, at = self._waiting[0], self._at.get(slot)
        alike = takewhile(
            lambda unit: unit.seconds >= MIN_SHARE * head.seconds or not head.first,
            islice(self._waiting, LOOK_AHEAD),
        )
        near = [unit.owner for unit in alike]
        if at is not None and at.owner in near:
            return near.index(at.owner)
        theirs = {unit.owner for unit in self._at.values()} if slot is not None else ()
        return next((place for place, owner in enumerate(near) if owner not in theirs), 0)

    def came(self, unit: Unit, answer: Answer) -> None:
        """Take the answer of a unit."""
        if not unit.asks:
            self._crashed(unit, answer.hash)
            return
        parts = self._parts.setdefault(unit.place, {})
        parts.update((ask, []) for ask in unit.asks)
        for record in answer.records:
            parts[record.case.implementation, record.case.dtype].append(record)
        self._seconds[unit.place] += answer.seconds
        asks = self._asks[unit.place]
        if len(parts) < len(asks) or self._again(unit, parts):
            return
        records = [record for ask in asks for record in parts[ask]]
        self._crashes.count(unit.place, records)
        self._whole[unit.place] = records
        self._left -= 1
        self._arrived.put(Arrived(place=unit.place, seconds=self._seconds[unit.place]))

    def lost(self, unit: Unit, how: str) -> None:
        """Note that a worker ended during a unit, `how` in words: "killed by signal 9".

        The unit is begun once more, each ask alone; an ask that ends its worker twice has crashed.
        """
        self._divided.pop(unit.place, ())  # it would end the worker again
        if not unit.asks:  # its inputs alone end the worker
            self._crashed(unit, "")
        for ask in unit.asks:
            self._losses[unit.place, ask] += 1
            alone = replace(unit, asks=(ask,), first=True)
            if len(unit.asks) > 1 or self._losses[unit.place, ask] < MAX_TRIES:
                self.back(alone)
            else:
                self._fatal.setdefault(unit.place, {})[ask] = how
                self.back(replace(unit, asks=()))  # a worker computes the hash

    def back(self, unit: Unit) -> None:
        """Take back a unit that was sent, but not begun."""
        self._waiting.insert(0, replace(unit, first=True))

    def broken(self, error: BaseException) -> None:
        """Report to the run, after the results so far, that no more will come."""
        self._arrived.put(error)

    def _again(self, unit: Unit, parts: dict[Ask, list[CaseResult]]) -> bool:
        """Repeat divided asks as one unit, where code has ended in a part; returns whether any are.

        How often code may end within a case is counted per process, over all dtypes.
        """
        words = self._divided.pop(unit.place, ())
        ended = {
            word
            for (word, _), records in parts.items()
            for r in records
            if r.finding.verdict in ENDED
        }
        for word in ended.intersection(words):
            asks = tuple(ask for ask in self._asks[unit.place] if ask[0] == word)
            for ask in asks:
                del parts[ask]
            self.back(replace(unit, asks=asks))
        return bool(ended.intersection(words))

    def _crashed(self, unit: Unit, fingerprint: str) -> None:
        """Make a CRASH of the asks that ended their workers; `fingerprint` is the case's."""
        for ask, how in self._fatal.pop(unit.place, {}).items():
            reason = f"its worker process ended, in {MAX_TRIES} tries: {how}"
            finding = Finding(name=CALL, verdict=Verdict.CRASH, reason=reason)
            record = result_of(self._plan, self._cases[unit.place], fingerprint, *ask, finding)
            self.came(replace(unit, asks=(ask,)), Answer(records=(record,)))

    # ── the run's side ───────────────────────────────────────────────────────────────────────

    def until(self, place: int) -> Iterator[Arrived]:
        """Wait until the case at a place is complete; yields every case that becomes complete.

        Raises:
            WorkersLostError: it will not be; or any exception that a worker raised.
        """
        while place not in self._whole or not self._arrived.empty():
            what = self._arrived.get()
            if isinstance(what, BaseException):
                raise what
            yield what

    def result(self, place: int) -> list[CaseResult]:
        """The results of the case at a place, which is complete."""
        return self._whole[place]

    def finished(self) -> dict[int, list[CaseResult]]:
        """All results so far by place, of incomplete cases too; does not wait."""
        known = {**self._parts}
        return {
            place: [r for ask in self._asks[place] for r in known[place].get(ask, ())]
            for place in sorted(known)
        }
