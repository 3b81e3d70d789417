"""Scripts of C calls, and the worker process that runs them, seen from its parent.

What becomes of a crash or hang is told in `crash_or_hang`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import gradcheck
from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.child import Child
from gradcheck.implementations.processes.crash_or_hang import Ending, WorkerError, placed
from gradcheck.implementations.processes.worker import (
    ANSWERING,
    CALLING,
    HANDLED,
    LOADING,
    READY,
    RequestError,
)

SCALARS: Final = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float32", "float64", "bool",
)  # fmt: skip
"""C types of scalar arguments and results, by width; `size_t` is uint64, `int` int32."""

Guard = Literal["end", "start", "off"]


class Access(StrEnum):
    """What the code called may do with a buffer."""

    READ = "read"
    """Its pages are read-only: a write kills the worker."""
    WRITE = "write"
    NONE = "none"
    """Any access kills the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One block of memory, `nbytes` long, that begins with `content`.

    `guard` says on which side a page lies that may not be touched; the block touches it, except
    that its start is a multiple of `align` bytes (1: of the element's own alignment, which the
    caller gives). The gap that alignment leaves is watched: what changes there is reported.
    """

    name: str
    content: bytes | memoryview
    access: Access = Access.WRITE
    guard: Guard = "end"
    align: int = 1

    @property
    def nbytes(self) -> int:
        """Its length."""
        return memoryview(self.content).nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The address of a buffer, `offset` bytes in."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A number passed by value, as one of `SCALARS`."""

    ctype: str
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What an earlier call returned (an opaque handle)."""

    name: str


Argument = Pointer | Scalar | Kept | None
"""None is a null pointer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of `symbol` in the shared library at `library`.

    `returns` is one of `SCALARS`, "pointer", or "void"; a pointer is kept under `keep`. `label`
    is what messages call it. A null pointer under `keep` ends the script with an error.
    """

    library: str
    symbol: str
    arguments: tuple[Argument, ...]
    returns: str = "void"
    keep: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Buffers, and the calls to make on them."""

    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a script left: every writable buffer's bytes, what each call returned.

    `strayed` says, per buffer, what was written outside of it (into its alignment gap); `breaches`
    are sentences on what else a call must not leave behind: another rounding mode, memory that it
    was given to read; `printed` is an excerpt of what the code printed meanwhile.
    """

    buffers: dict[str, memoryview]
    returned: tuple[int | float | None, ...]
    strayed: dict[str, str]
    breaches: tuple[str, ...]
    printed: str


STARTUP: Final = 30.0
"""Seconds that starting, loading a library and moving data may each take."""
ROOT: Final = str(Path(gradcheck.__file__).parents[1])
BEGIN: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from gradcheck.implementations.processes.worker import main; main(sys.argv)"
)
COMMAND: Final = (sys.executable, "-I", "-S", "-c", BEGIN, ROOT)
"""Isolated from the user's environment and site: it needs the standard library alone."""


class Worker:
    """One process that runs scripts; it is started when it is needed, and again after an end.

    `timeout` is in seconds per call, `startup` per start, library and transfer. What libraries
    keep from call to call they keep until the process ends. A fault (SIGSEGV, SIGBUS) in a call
    ends the process, except with `handled`: then handlers that the code installs get it first.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        *,
        startup: float = STARTUP,
        handled: bool = False,
    ) -> None:
        """`environment` is added to the process's own."""
        self._environment = dict(environment or {})
        self._timeout, self._startup = timeout, startup
        self.handled = handled
        self._child: Child | None = None

    def run(self, script: Script) -> Outcome:
        """Carry out a script.

        Raises:
            WorkerError: the process crashed or hung; the message names the call. The next script
                starts a new process.
            RequestError: a library or function is missing, a scalar does not fit, a handle is null.
        """
        blocks = [
            {"name": b.name, "access": b.access.value, "guard": b.guard, "align": b.align}
            for b in script.buffers
        ]
        calls = [_call_said(call) for call in script.calls]
        contents = [_flat(b.content) for b in script.buffers]
        request = {"kind": "script", "calls": calls, "blocks": blocks}
        back = [b for b in script.buffers if b.access is Access.WRITE]
        sizes = [_flat(b.content).nbytes for b in back]
        frame, printed = self._asked(request, contents, _Place(script.calls), sizes)
        if frame.header["breaches"]:  # it may have done more than is seen and undone
            self.close()
        return Outcome(
            buffers=dict(zip((b.name for b in back), frame.blocks, strict=True)),
            returned=tuple(frame.header["returned"]),
            strayed=dict(frame.header["strayed"]),
            breaches=tuple(frame.header["breaches"]),
            printed=printed,
        )

    def inspect(self, library: str, symbols: Iterable[str]) -> frozenset[str]:
        """Those of `symbols` that the shared library has.

        Raises:
            RequestError: it cannot be loaded; the message is the loader's.
            WorkerError: loading it killed or hung the process.
        """
        request = {"kind": "inspect", "library": library, "symbols": [*symbols]}
        frame, _ = self._asked(
            request, [], _Place((Call(library=library, symbol="", arguments=()),))
        )
        return frozenset(frame.header["present"])

    def close(self) -> None:
        """End the process; a second time does nothing."""
        if self._child is not None:
            self._child.end()
        self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _asked(
        self,
        request: Mapping[str, Any],
        contents: list[memoryview],
        place: _Place,
        sizes: Sequence[int] = (),
    ) -> tuple[frames.Frame, str]:
        """The answer, whose blocks have these sizes, and what was printed meanwhile."""
        stamp = frames.new_stamp()
        said = {**request, "stamp": stamp.hex()}
        try:
            child = self._child = self._child or self._started()
            child.send(frames.pieces(said, contents), self._startup)
            frame = self._answer(child, place, stamp, sizes)
            printed = child.printed()
        except WorkerError as end:
            self._child = None
            raise WorkerError(place.explained(end.ending)) from None
        except BaseException:  # Ctrl-C: an answer may be under way that nobody will read
            if self._child is not None:
                self._child.kill()
            self._child = None
            raise
        if frame.header["kind"] == "refused":
            raise RequestError(frame.header["message"])
        return frame, printed

    def _started(self) -> Child:
        command = (*COMMAND, HANDLED) if self.handled else COMMAND
        child = Child(command, env=self._environment, channel="pipes")
        child.deadline(self._startup)
        try:
            if child.exactly(1) != READY:
                child.crashed("it said something else than that it is ready")
        except WorkerError as end:
            reason = f"the worker process did not start: {end.ending.reason}"
            raise WorkerError(replace(end.ending, reason=reason)) from None
        return child

    def _answer(
        self, child: Child, place: _Place, stamp: bytes, sizes: Sequence[int]
    ) -> frames.Frame:
        """Marks, then a frame. The clock starts anew at each mark that is due, and at no other."""
        limits = frames.Limits(payload=sum(map(frames.padded, sizes)), blocks=len(sizes))
        child.deadline(self._startup)
        try:
            while (mark := child.exactly(1)) in (LOADING, CALLING):
                if child.exactly(len(stamp)) != stamp or not place.reached(bytes(mark)):
                    raise frames.FrameError("no such mark is due")
                place.limit = self._timeout if mark == CALLING else self._startup
                child.deadline(place.limit)
            if mark != ANSWERING:
                raise frames.FrameError(f"it begins with {bytes(mark)!r}")
            child.deadline(self._startup)
            frame = frames.read(child.exactly, limits, stamp)
            if frame.header["kind"] != "refused" and [b.nbytes for b in frame.blocks] != [*sizes]:
                raise frames.FrameError("its blocks are others than those that are to come back")
        except frames.FrameError:
            child.crashed("something else than the worker wrote into the worker's own channel")
        return frame


class _Place:
    """How far a script has come, and what an end there means."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self.calls = calls
        self.mark, self.index, self.limit = READY, -1, 0.0
        self._unloaded = len({call.library for call in calls})

    def reached(self, mark: bytes) -> bool:
        """Go on to a mark; False: a script with these calls has none of these to come."""
        loading = mark == LOADING
        due = self.index + 1 < len(self.calls) and self._unloaded >= loading
        if due:
            self.mark = mark
            self.index += not loading
            self._unloaded -= loading
        return due

    def explained(self, ending: Ending) -> Ending:
        """The ending, with the call that it happened in."""
        return replace(ending, reason=self._reason(ending))

    def _reason(self, ending: Ending) -> str:
        if self.mark == READY:
            if ending.returncode is None or ending.reason.startswith("the worker"):
                return ending.reason
            what = ending.reason.partition(" before")[0]
            return f"{what} between calls: look at what an earlier call left running"
        calling = self.mark == CALLING
        call = self.calls[self.index + (not calling)]
        what = (call.label or call.symbol) if calling else f"loading {Path(call.library).name}"
        return placed(ending, what, self.limit)


def _flat(content: bytes | memoryview) -> memoryview:
    view = memoryview(content)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _call_said(call: Call) -> dict[str, Any]:
    return {
        "library": call.library,
        "symbol": call.symbol,
        "arguments": [_argument_said(argument) for argument in call.arguments],
        "returns": call.returns,
        "keep": call.keep,
        "label": call.label,
    }


def _argument_said(argument: Argument) -> Any:
    if isinstance(argument, Pointer):
        return {"buffer": argument.buffer, "offset": argument.offset}
    if isinstance(argument, Scalar):
        return [argument.ctype, argument.value]
    return {"kept": argument.name} if isinstance(argument, Kept) else None
