"""Which memory a crashed script of C calls touched: it runs again, with margins for guard pages.

Each run takes a fresh process of 40 ms, and only a crash has one (`crash_or_hang`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from gradcheck.implementations.processes.c_worker import (
    Access,
    Buffer,
    Guard,
    Outcome,
    Script,
    Worker,
)
from gradcheck.implementations.processes.crash_or_hang import (
    Ending,
    WorkerError,
    because,
    explained,
)
from gradcheck.implementations.processes.worker import RequestError

Factory = Callable[[], AbstractContextManager[Worker]]
MEMORY: Final = (-signal.SIGSEGV, -signal.SIGBUS)
WILD: Final = "a null pointer, an address far from all of its arguments, or endless recursion"
MEANS: Final = {
    -signal.SIGFPE: "an integer division by zero, or a floating-point trap that it has enabled",
    -signal.SIGILL: "an instruction that this CPU lacks, or a trap that the compiler put there",
    -signal.SIGABRT: "it called abort(), or its runtime did; see what it printed",
}


def diagnose(script: Script, ending: Ending, fresh: Factory) -> str:
    """The reason of a crash, and what is found out by running `script` again.

    `fresh()` gives a new worker as a context manager. An end without a signal keeps its reason. The
    code's own words on aborting are part of the reason.
    """
    code, silent = ending.returncode, because(ending) == ending.reason
    if code not in MEMORY:
        ending = explained(ending)
    if code is None or code >= 0:
        return ending.reason
    again = _ended(script, fresh)
    if again is None:
        return (
            f"{ending.reason}; not in a process of its own, so it depends on the calls before: "
            "look for memory that is kept, freed twice, or overwritten"
        )
    if again.returncode != code:
        return f"{ending.reason}; in a process of its own: {because(again)}"
    what = _touched(script, fresh) if code in MEMORY else MEANS.get(code, "") if silent else ""
    return f"{ending.reason}: {what}" if what else ending.reason


def handled(script: Script, ending: Ending, fresh: Factory, let: Factory) -> Outcome | Ending:
    """What a script gives where handlers that its code installs get the faults of its calls.

    It has ended by one of `MEMORY`. A runtime may raise faults in memory of its own on purpose:
    where that is all, the outcome; else how the script ended, with what a handler printed. `let()`
    gives a worker with `handled`.
    """
    try:
        with let() as worker:
            outcome = worker.run(script)
    except WorkerError as end:
        printed = max(ending.printed, end.ending.printed, key=len)
        return replace(ending, printed=printed)
    except RequestError:
        return ending
    loose = _ended(_loosened(script), fresh)  # it dies there as well: not of the script's memory
    return outcome if loose is not None and loose.returncode in MEMORY else ending


def _touched(script: Script, fresh: Factory) -> str:
    """The memory that a script touches and must not, in words."""
    try:
        with fresh() as worker:
            outcome = worker.run(_loosened(script))
    except WorkerError as end:
        if end.ending.returncode in MEMORY:
            return WILD
        return f"where it may touch more memory, {end.ending.reason}"
    except RequestError as refusal:
        return f"where it may touch more memory, {refusal}"
    found = [*_written(script, outcome)] or [*_eliminated(script, fresh)]
    return "it " + " and ".join(found) if found else "not so where it may touch more memory"


def _loosened(script: Script, strict: Buffer | None = None) -> Script:
    """The script with margins for guard pages and everything writable, except that `strict`."""
    buffers = tuple(
        strict if strict is not None and strict.name == b.name
        else replace(b, access=Access.WRITE, guard="off")
        for b in script.buffers
    )  # fmt: skip
    return replace(script, buffers=buffers)


def _written(script: Script, outcome: Outcome) -> Iterator[str]:
    """Forbidden writes, in words."""
    for buffer in script.buffers:
        stray = outcome.strayed.get(buffer.name, "")
        if stray:
            yield stray.replace(" its ", " the ").replace(" and ", f" of {buffer.name} and ") + (
                f" of {buffer.name}"
            )
        if buffer.access is Access.WRITE:
            continue
        before, after = bytes(buffer.content), bytes(outcome.buffers[buffer.name])
        if before != after:
            changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
            what = "its input " if buffer.access is Access.READ else ""
            where = f"bytes {changed[0]} to {changed[-1]} of {len(before)}"
            yield f"wrote into {what}{buffer.name} ({where})"


def _eliminated(script: Script, fresh: Factory) -> Iterator[str]:
    """Without a write: the single restrictions under which the script crashes, in words."""

    def kills(strict: Buffer) -> bool:
        return _ended(_loosened(script, strict), fresh) is not None

    for buffer in script.buffers:
        name = buffer.name
        if buffer.access is not Access.WRITE and kills(replace(buffer, guard="off")):
            if buffer.access is Access.READ:
                yield f"wrote into its input {name} (what it held before)"
            else:
                yield f"read from {name}, which it may not touch"
        elif buffer.guard != "off" and kills(replace(buffer, access=Access.WRITE)):
            other: Guard = "start" if buffer.guard == "end" else "end"
            both = kills(replace(buffer, access=Access.WRITE, guard=other))
            where = {"end": "past the end of", "start": "before the start of"}[buffer.guard]
            yield f"reads {'outside of' if both else where} {name}"


def _ended(script: Script, fresh: Factory) -> Ending | None:
    """How a fresh process ends on a script; None: it does not."""
    try:
        with fresh() as worker:
            worker.run(script)
    except WorkerError as end:
        return end.ending
    except RequestError:
        pass
    return None
