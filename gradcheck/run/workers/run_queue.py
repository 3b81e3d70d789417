"""A run taken apart into units and put together again, wherever the units are judged.

An executor asks for the next unit, has it judged in one of its slots, and says what came of it;
in whatever order that happens, cases come back whole, in the order of the run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from queue import SimpleQueue
from typing import Final

from gradcheck.implementations.processes.budget import LIMITS
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.run.crash_limit import CALL, Ends
from gradcheck.run.plan import AnyCase, Plan
from gradcheck.run.to_result import result_of
from gradcheck.run.workers.task_queue import TRIES
from gradcheck.run.workers.unit import Ask, Unit, asks_of, begun, divided, units_of

NEAR: Final = 64
"""How far ahead a slot looks for more of the operator that it is at."""
ALIKE: Final = 0.8
"""What of the seconds of the longest that waits another one is to have, to come before it."""
BRIEF: Final = 0.05
"""Seconds for which a unit may wait in a worker for the one before it."""
ENDED: Final = {*LIMITS, Verdict.NOTRUN}
"""Verdicts that may depend on what else was asked of the same process within a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a unit: records in the order of its asks, and the seconds that it took.

    Of a unit that asks nothing: the hash of its case.
    """

    records: tuple[CaseResult, ...] = ()
    seconds: float = 0.0
    hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A case that has become whole: its place in the run, and the seconds that it took."""

    place: int
    seconds: float


class RunQueue:
    """Units to begin, and what came of those that have been begun.

    It is a `task_queue.TaskQueue` for the executor, which calls it from one thread at a time, and
    an `executor.Working` for the run, which may be another one.
    """

    def __init__(self, plan: Plan, cases: Sequence[AnyCase], slots: int) -> None:
        """Take a run apart for so many workers."""
        self._plan, self._cases, self.slots = plan, cases, slots
        units = units_of(plan, cases, slots)
        self._waiting = begun(units, slots)
        self._asks = [asks_of(plan, case) for case in cases]
        self._left = len(cases)
        self._parts: dict[int, dict[Ask, list[CaseResult]]] = {}
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._divided = divided(units)
        self._losses: Counter[tuple[int, Ask]] = Counter()
        self._fatal: dict[int, dict[Ask, str]] = {}
        self._at: dict[Hashable, Unit] = {}
        self._ends = Ends()
        self._whole: dict[int, list[CaseResult]] = {}
        self._arrived: SimpleQueue[Arrived | BaseException] = SimpleQueue()

    # ── the executor's side ──────────────────────────────────────────────────────────────────

    @property
    def left(self) -> int:
        """Cases that are not whole yet; at 0 there is nothing more to wait for.

        Before that `next` may say that nothing waits, and something again after a loss.
        """
        return self._left

    def next(self, slot: Hashable = None, *, ahead: bool = False) -> Unit | None:
        """What the worker in a slot is to judge now, or, `ahead`, after what it is at.

        None where nothing waits: after a loss something may wait again. Nothing is to wait behind
        what is long. A slot stays with an operator's dialect where it can, for a worker makes each
        of its diagnoses once; with no slot (None), units come in their order.
        """
        if not self._waiting or (ahead and self._alone(slot)):
            return None
        unit = self._waiting.pop(self._chosen(slot))
        self._at[slot] = unit
        words = dict.fromkeys(word for word, _ in unit.asks)
        known = ((word, self._ends.why(unit.place, word, unit.names[0])) for word in words)
        return replace(unit, left_out=tuple((word, why) for word, why in known if why))

    def _alone(self, slot: Hashable) -> bool:
        """Whether nothing is to be sent after what a slot is at: it might wait for long."""
        at = self._at.get(slot)
        return at is None or max(at.seconds, self._waiting[0].seconds) > BRIEF

    def _chosen(self, slot: Hashable) -> int:
        """Which of those that wait: more of what the slot is at, or what nobody else is at."""
        head, at = self._waiting[0], self._at.get(slot)
        alike = takewhile(
            lambda unit: unit.seconds >= ALIKE * head.seconds or not head.first,
            islice(self._waiting, NEAR),
        )
        near = [unit.owner for unit in alike]
        if at is not None and at.owner in near:
            return near.index(at.owner)
        theirs = {unit.owner for unit in self._at.values()} if slot is not None else ()
        return next((place for place, owner in enumerate(near) if owner not in theirs), 0)

    def came(self, unit: Unit, answer: Answer) -> None:
        """A unit was judged."""
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
        self._ends.sees(unit.place, records)
        self._whole[unit.place] = records
        self._left -= 1
        self._arrived.put(Arrived(place=unit.place, seconds=self._seconds[unit.place]))

    def lost(self, unit: Unit, how: str) -> None:
        """A worker ended while it judged a unit, `how`: "killed by signal 9", say.

        The unit is begun once more, each ask alone; what ends its worker twice has crashed.
        """
        self._divided.pop(unit.place, ())  # what ends the worker would end it again
        if not unit.asks:  # its inputs alone do
            self._crashed(unit, "")
        for ask in unit.asks:
            self._losses[unit.place, ask] += 1
            alone = replace(unit, asks=(ask,), first=True)
            if len(unit.asks) > 1 or self._losses[unit.place, ask] < TRIES:
                self.back(alone)
            else:
                self._fatal.setdefault(unit.place, {})[ask] = how
                self.back(replace(unit, asks=()))  # what is its hash? not to be found out here

    def back(self, unit: Unit) -> None:
        """A unit was sent, but not begun: its worker has ended at another one, or left."""
        self._waiting.insert(0, replace(unit, first=True))

    def broken(self, error: BaseException) -> None:
        """It cannot go on: the run is told so, after what it knows."""
        self._arrived.put(error)

    def _again(self, unit: Unit, parts: dict[Ask, list[CaseResult]]) -> bool:
        """Ask at once what was asked in parts, where code has ended in one of them.

        How often it may end within a case is counted per process, over all dtypes.
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
        """Say of what has ended its workers that it did; `fingerprint` is its case's."""
        for ask, how in self._fatal.pop(unit.place, {}).items():
            reason = f"its worker process ended, in {TRIES} tries: {how}"
            finding = Finding(name=CALL, verdict=Verdict.CRASH, reason=reason)
            record = result_of(self._plan, self._cases[unit.place], fingerprint, *ask, finding)
            self.came(replace(unit, asks=(ask,)), Answer(records=(record,)))

    # ── the run's side ───────────────────────────────────────────────────────────────────────

    def until(self, place: int) -> Iterator[Arrived]:
        """Wait until the case at a place is whole; meanwhile, every case as it becomes so.

        Raises:
            Died: it will not; or whatever a worker raised instead of an answer.
        """
        while place not in self._whole or not self._arrived.empty():
            what = self._arrived.get()
            if isinstance(what, BaseException):
                raise what
            yield what

    def result(self, place: int) -> list[CaseResult]:
        """What came of the case at a place, which is whole."""
        return self._whole[place]

    def finished(self) -> dict[int, list[CaseResult]]:
        """What is known of all cases so far, in their order; of some, not all; waits for none."""
        known = {**self._parts}
        return {
            place: [r for ask in self._asks[place] for r in known[place].get(ask, ())]
            for place in sorted(known)
        }
