"""A user's Python in a process of its own: a crash or hang there is a verdict, and the run goes on.

To the judge this is an implementation like others. Each call travels to `isolated_host` and back,
with everything that a call in this process would show: bits, memory layout, exceptions by name,
writes into arguments, dicts changed in place.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gradcheck.errors import LoadError
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule, Callee, Into, Recipe
from gradcheck.implementations.isolated_calls import (
    FORGED,
    MALFORMED,
    Given,
    Handle,
    Raised,
    exception_of,
)
from gradcheck.implementations.processes import TIMEOUT, frames
from gradcheck.implementations.processes.child import SINGLE, Child
from gradcheck.implementations.processes.crash_or_hang import (
    Budget,
    Ending,
    WorkerError,
    because,
    placed,
    variant_of,
)
from gradcheck.implementations.processes.fresh_process import FreshProcess, changed
from gradcheck.implementations.returned import Broken, broken
from gradcheck.implementations.wire import EARLIER, KEPT, Cargo, Unpacker, put_back, span
from gradcheck.results.finding import Finding
from gradcheck.results.printed import shortened
from gradcheck.results.verdict import Verdict
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.model import ModelCase
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.suite import Case
from gradcheck.system.user_modules import here, path_without

LOADING: Final = 300.0
"""Seconds that importing an implementation may take."""
COMPILING: Final = 120.0
"""Seconds more for the first call with arguments of a size, where a compiler is loaded."""
BEGIN: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gradcheck.implementations.isolated_host import main; main(sys.argv)"
)
GIVEN: Final = 64
"""Calls whose answers a later one may still write into."""
RATE: Final = 5e7
"""Bytes per second that travel at the least: large arguments get more time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How a process of its own is set up: the suites that it loads, by "module:NAME".

    `timeout` is in seconds per call.
    """

    suites: Sequence[str]
    timeout: float = TIMEOUT


class Isolated:
    """The implementation that `--impl word` names, in a process of its own.

    After a crash or hang the next request starts a new process.

    Raises:
        LoadError, UnknownNameError: as `load` does; also, loading killed the process.
    """

    def __init__(self, word: str, isolation: Isolation) -> None:
        """Start the process and load the implementation there."""
        self.name, self.timeout = word, isolation.timeout
        self.generation = 0
        self._suites, self._path = [*isolation.suites], path_without()
        self._folder = here()
        self._budget, self._heard = Budget(), ""
        self.calls, self._given = 0, dict[int, list[weakref.ref[Any]]]()
        self._limit, self._compiled = self.timeout, set[str]()
        self._child: Child | None = None
        self._dropped: list[int] = []
        self._fresh_process = FreshProcess(lambda: Isolated(word, isolation))
        self._running()

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The entry for the case there.

        Raises:
            Unsupported: it declares that it lacks the operator or an attribute's value.
            Broken: the process died of it, or has died of this operator too often.
        """
        handle = self._bound(case, dtype)
        if handle is None:
            return None
        facts, written = handle.facts, handle.written
        into = facts.get("into")
        return Bound(
            vjp=handle.role("vjp"),
            forward=handle.role_if_any("forward"),
            attrs=handle.attrs,
            into=None if into is None else _into(handle, into),
            asked=handle.role_if_any("asked"),
            strided=bool(facts["strided"]),
            source=str(facts["source"]),
            printed=self.printed,
            compiles=bool(facts["compiles"]),
            missing={str(name): str(why) for name, why in facts["missing"].items()},
            recipe=Recipe(**written["recipe"]) if "recipe" in written else None,
            callee=Callee(**written["callee"]) if "callee" in written else None,
        )

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """The entry for the model there.

        Raises:
            Unsupported: it declares that it lacks the model, or a dimension's value.
            Broken: the process died of it, or has died of this model too often.
        """
        handle = self._bound(case, dtype)
        if handle is None:
            return None
        return BoundModel(
            gradients=handle.role_if_any("gradients"),
            loss=handle.role_if_any("loss"),
            stage=handle.stage,
        )

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule | None:
        """The entry for the update rule there.

        Raises:
            Unsupported: it declares that it lacks the rule, or a hyper-parameter's value.
            Broken: the process died of it, or has died of this rule too often.
        """
        handle = self._bound(case, dtype)
        if handle is None:
            return None
        return BoundRule(
            update=handle.role("update"), init=handle.role_if_any("init"), attrs=handle.attrs
        )

    def printed(self) -> str:
        """An excerpt of the text printed since the last call of this method."""
        heard, self._heard = self._heard, ""
        return heard

    def close(self) -> None:
        """End the process."""
        self._fresh_process.close()
        self._end()

    # ── the process ──────────────────────────────────────────────────────────────────────────

    def exchange(
        self,
        asked: Mapping[str, Any],
        blocks: Sequence[Any] = (),
        give: Callable[[str], Given] | None = None,
        seconds: float | None = None,
        cargo: Cargo | None = None,
    ) -> frames.Frame:
        """Send a request and read the answer; `give` finds the values that the other side asks for.

        All of it has one deadline. `cargo` is what the answer may be as large as.

        Raises:
            WorkerError: the process crashed, hung, or answered nonsense; the next call starts a new
                one.
        """
        limit = self._limit = self.timeout if seconds is None else seconds
        drop, self._dropped = self._dropped, []
        travels = sum(memoryview(block).nbytes for block in blocks) / RATE
        stamp, cargo, given = frames.new_stamp(), cargo or Cargo(), set[str]()
        said = {**asked, "drop": drop, "stamp": stamp.hex()}
        try:
            child = self._running()
            child.deadline(limit + travels)
            child.send(frames.pieces(said, blocks), child.left())
            frame = _read(child, stamp, cargo)
            while frame.header["kind"] == "get" and give is not None:
                name = str(frame.header["name"])
                if name in given:
                    child.crashed(FORGED)
                given.add(name)
                child.send(frames.pieces(*give(name)), child.left())
                frame = _read(child, stamp, cargo)
        except WorkerError:
            self._gone()
            raise
        except LoadError as error:  # a first time it went well
            reason = f"its process could not be started again ({error})"
            raise WorkerError(Ending(verdict=Verdict.CRASH, reason=reason)) from None
        except BaseException:  # Ctrl-C: an answer may be under way that nobody will read
            if self._child is not None:
                self._child.kill()
            self._gone()
            raise
        self._hear(child.printed())
        return frame

    def drop(self, generation: int, number: int) -> None:
        """Release a binding in the process."""
        if generation == self.generation:
            self._dropped.append(number)

    def crashed(self, variant: str, role: str, ending: Ending) -> Broken:
        """The error for a crash or hang, which is counted."""
        self._budget.spend(variant, ending.verdict)
        return Broken(
            Finding(
                name=role,
                verdict=ending.verdict,
                reason=because(replace(ending, reason=placed(ending, role, self._limit))),
                printed=ending.printed,
            )
        )

    def answered(self, frame: frames.Frame, cargo: Cargo) -> Any:
        """The result of a call; its writes into arrays and dicts are repeated here."""
        said, unpacker = frame.header, Unpacker(cargo, adds=False)
        for number, block in said["changed"]:
            room = cargo.rooms[number]
            put_back(room.low, room.size, frame.blocks[block])
        for number, entries in said["emptied"]:
            pairs = [[unpacker.unpack(part, frame.blocks) for part in pair] for pair in entries]
            cargo.dicts[number].clear()
            cargo.dicts[number].update(pairs)
        for call, index, block in said["late"]:
            array = self._given[call][index]() if call in self._given else None
            if array is not None:
                put_back(*span(array), frame.blocks[block])
        unpacker.returned.clear()
        found = (
            Raised(exception_of(said))
            if said["kind"] == "raised"
            else unpacker.unpack(said["value"], frame.blocks)
        )
        self._given[self.calls] = [weakref.ref(array) for array in unpacker.returned]
        self._given.pop(self.calls - GIVEN, None)
        self.calls += 1
        return found

    def seconds(self, call: str) -> float:
        """The limit of a call that may be compiled: longer for the first one of a kind.

        `call` says which function is called and with arguments of which sizes.
        """
        first = call not in self._compiled
        self._compiled.add(call)
        return self.timeout + COMPILING * first

    def runs(self, op: str) -> None:
        """Note that an operator's code is about to run in the process."""
        self._fresh_process.runs(op)

    def confirm(self, handle: Handle, there: Callable[[Handle], bool], *, calls: bool) -> None:
        """Confirm `Unsupported` in a process in which no other operator's code has run.

        Raises:
            Broken: it is supported there, or no such process can be started.
        """
        op = handle.op
        others = self._fresh_process.others(op)
        if not others:
            return
        try:
            other = self._fresh_process.calls(op) if calls else self._fresh_process.binds()
            if not there(handle.elsewhere(other)):
                return
        except LoadError as error:
            why = f"{op} is said not to be supported, and a second process cannot tell: {error}"
            raise broken("vjp", why) from None
        self._end()  # the next request gets an unchanged process
        raise broken("vjp", changed(op, others))

    def repeats(self, variant: str, ending: Ending) -> bool:
        """Whether the call is repeated alone in a new process, to explain the crash."""
        return self._budget.investigates(variant, ending.verdict)

    def _running(self) -> Child:
        if self._child is not None:
            return self._child
        words = [sys.executable, "-P", "-c", BEGIN, json.dumps(self._path)]
        own = {name: os.environ[name] for name in SINGLE if name in os.environ}
        child = self._child = Child(words, env=own, cwd=self._folder, channel="pipes")
        stamp = frames.new_stamp()
        asked = {
            "kind": "begin",
            "word": self.name,
            "suites": self._suites,
            "argv": sys.argv,
            "stamp": stamp.hex(),
        }
        try:
            child.deadline(LOADING)
            child.send(frames.pieces(asked), child.left())
            frame = _read(child, stamp, Cargo())
        except WorkerError as end:
            self._gone()
            self._hear(end.ending.printed)
            reason = because(replace(end.ending, reason=placed(end.ending, "loading it", LOADING)))
            raise LoadError(f"--impl {self.name}: {reason}") from None
        self._hear(child.printed())
        self._heard = ""  # text printed by the import belongs to no case
        if frame.header["kind"] == "raised":
            child.end()
            self._gone()
            raise exception_of(frame.header, interrupts=True)
        return child

    def _end(self) -> None:
        """End the process; the next request starts a new one."""
        if self._child is not None:
            self._child.end()
            self._gone()

    def _gone(self) -> None:
        self._child = None
        self._dropped = []
        self._given.clear()
        self._compiled.clear()
        self._fresh_process.renewed()
        self.generation += 1

    def _hear(self, text: str) -> None:
        """Keep printed text for the finding, and show it at once."""
        self._heard = shortened(self._heard + text)
        if text and sys.stderr is not None:
            shown = (c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
            sys.stderr.write("".join(shown))

    def _bound(self, case: AnyCase, dtype: str) -> Handle | None:
        variant = variant_of(case.spec.name, case.dialect.name)
        why = self._budget.exhausted(variant)
        if why is not None:
            raise broken("vjp", why, Verdict.NOTRUN)
        asked = {
            "kind": "bind",
            "names": [*case.address],
            "dtype": dtype,
        }
        attrs = dict(case.point.attrs) if case.kind is Kind.OPERATOR else {}
        handle = Handle(self, case.spec.name, variant, asked, attrs)
        return handle if handle.offered() else None


def _read(child: Child, stamp: bytes, cargo: Cargo) -> frames.Frame:
    """Read the next frame, with this stamp and at most as large as an answer to this cargo.

    Raises:
        WorkerError: the process ended, is late, or sent something else.
    """
    most = cargo.allowance + cargo.sent + EARLIER * KEPT + frames.ALIGN * frames.BLOCKS_MAX
    try:
        frame = frames.read(child.exactly, frames.Limits(payload=most), stamp)
        str(frame.header["kind"])
    except MALFORMED:
        child.crashed(FORGED)
    return frame


def _into(handle: Handle, said: Mapping[str, Any]) -> Into:
    return Into(
        call=handle.role("into"),
        accumulates=frozenset(said["accumulates"]),
        zeroed=frozenset(said["zeroed"]),
        aliases=tuple((a, b) for a, b in said["aliases"]),
    )
