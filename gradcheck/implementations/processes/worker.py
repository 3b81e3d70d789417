"""The worker process: it lays out memory, calls C functions on it, and answers.

Started by `processes.c_worker`. It imports only what it needs, without NumPy, and trusts nothing
that the called code leaves behind: neither its descriptors, nor its signal handlers, nor that it is
still one process. Its answers are frames. Before them, marks say how far it is, so that a crash can
be located. Each mark is a byte and the stamp of the request, which the called code cannot know.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.floats import Floats
from gradcheck.implementations.processes.frames import ParentChannel, end_with_parent
from gradcheck.implementations.processes.guarded_memory import Guarded
from gradcheck.system.posix import libc

MEMORY_FAULTS: Final = (signal.SIGSEGV, signal.SIGBUS)
"""What an access to a page raises that forbids it."""
WATCHED: Final = (
    *MEMORY_FAULTS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS,
    signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF,
)  # fmt: skip
"""Signals whose handlers are restored after a call."""
TIMERS: Final = {
    signal.ITIMER_REAL: "SIGALRM", signal.ITIMER_VIRTUAL: "SIGVTALRM", signal.ITIMER_PROF: "SIGPROF"
}  # fmt: skip
SIZE: Final = 256
"""Bytes: more than a system's `sigset_t` or `struct sigaction`."""


class Signals:
    """What signals do here: as it is when this is made, and after each `settled`.

    With `handled`, faults go to handlers, and handlers stay: a runtime may need both.
    """

    def __init__(self, *, handled: bool = False) -> None:
        """Look; a handler that is there before anything is loaded is a preloaded runtime's."""
        self._handled = handled
        self._mask = ctypes.create_string_buffer(SIZE)
        self._held = ctypes.create_string_buffer(SIZE)
        libc.pthread_sigmask(signal.SIG_BLOCK, None, self._mask)
        libc.pthread_sigmask(signal.SIG_BLOCK, None, self._held)
        for fault in () if handled else MEMORY_FAULTS:
            if signal.getsignal(fault) is not None:
                libc.sigaddset(self._held, fault)
        self._handlers: dict[int, bytes] = {}
        self._timers: dict[int, bool] = {}
        self.settled()

    def settled(self) -> None:
        """Take the present handlers as right: a library installs some when it is loaded."""
        self._handlers = {number: _handler(number) for number in WATCHED}
        self._timers = {timer: _runs(timer) for timer in TIMERS}

    def hold(self) -> None:
        """From now on a fault ends the process, with or without a handler."""
        libc.pthread_sigmask(signal.SIG_SETMASK, self._held, None)

    def restore(self) -> list[str]:
        """Restore everything; say what would still have disturbed later calls.

        A signal that the code sent to itself arrives here.
        """
        libc.pthread_sigmask(signal.SIG_SETMASK, self._mask, None)
        if not self._handled:
            for number, was in self._handlers.items():
                if _handler(number) != was:
                    libc.sigaction(number, was, None)
        said = []
        for timer, name in TIMERS.items():
            if _runs(timer) and not self._timers[timer]:
                signal.setitimer(timer, 0)
                said.append(f"leaves an interval timer running, whose {name} comes later; stop it")
        return said


def _handler(number: int) -> bytes:
    """The system's action for a signal."""
    found = ctypes.create_string_buffer(SIZE)
    libc.sigaction(number, None, found)
    return found.raw


def _runs(timer: int) -> bool:
    return signal.getitimer(timer)[0] > 0


READY, LOADING, CALLING, ANSWERING = b"R", b"L", b"C", b"A"
"""Marks: it has started; it loads the next call's library; it makes that call; a frame follows."""
HANDLED: Final = "--handled"
IOLBF: Final = 1
"""Of the C library: standard output is written line by line."""
CTYPES: Final[Mapping[str, Any]] = {
    "int8": ctypes.c_int8, "uint8": ctypes.c_uint8, "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16, "int32": ctypes.c_int32, "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64, "uint64": ctypes.c_uint64, "float32": ctypes.c_float,
    "float64": ctypes.c_double, "bool": ctypes.c_bool,
}  # fmt: skip


class RequestError(Exception):
    """A request that cannot be carried out; the worker lives on."""


class Machine:
    """Loads libraries, once each, and runs scripts.

    Each library computes in the floating-point environment that loading it leaves, as it does for
    its users, whatever else is loaded; between calls there is the usual one.
    """

    def __init__(
        self, mark: Callable[[bytes], None], check: Callable[[], None], *, handled: bool = False
    ) -> None:
        """`mark` gets the stage of each call; `check` is called after each call of foreign code.

        `handled`: handlers that libraries install may handle the faults of their calls.
        """
        self._mark, self._check = mark, check
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._usual, self._signals = Floats(), Signals(handled=handled)
        self._floats: dict[str, Floats] = {}

    def inspect(self, library: str, symbols: Iterable[str]) -> list[str]:
        """Those of `symbols` that the library has.

        Raises:
            RequestError: it cannot be loaded.
        """
        self._library(library)
        return [symbol for symbol in symbols if self._found(library, symbol) is not None]

    def run(
        self,
        buffers: Mapping[str, Guarded],
        calls: Sequence[Mapping[str, Any]],
    ) -> tuple[list[int | float | None], list[str]]:
        """Make the calls; what each returned, and a sentence per thing that one must not do.

        Raises:
            RequestError: a call cannot be made, or returned a null pointer where it is to be kept.
        """
        kept: dict[str, int] = {}
        returned: list[int | float | None] = []
        breaches: list[str] = []
        for call in calls:
            label = call["label"] or call["symbol"]
            self._library(call["library"])
            function = self._found(call["library"], call["symbol"])
            if function is None:
                raise RequestError(f"{call['library']} has no function {call['symbol']!r}")
            arguments = [_argument(a, buffers, kept, label) for a in call["arguments"]]
            pointer = call["returns"] == "pointer"
            function.restype = ctypes.c_void_p if pointer else CTYPES.get(call["returns"])
            self._mark(CALLING)
            found, breach = self._called(function, arguments, call["library"], buffers)
            breaches += (f"{label} {what}" for what in breach)
            if pointer and call["keep"]:
                if found is None:
                    raise RequestError(f"{label} returned a null pointer")
                kept[call["keep"]] = found
            returned.append(None if pointer else found)
        return returned, breaches

    def _called(
        self, function: Any, arguments: Sequence[Any], library: str, buffers: Mapping[str, Guarded]
    ) -> tuple[Any, list[str]]:
        """The result of a call, and a sentence per violation, which is undone."""
        floats = self._floats[library]
        self._signals.hold()
        floats.set()
        try:
            found = function(*arguments)
            changed = floats.changed()
        finally:
            self._usual.set()
            breach = self._signals.restore()
        libc.fflush(None)
        self._check()
        breach += (f"leaves another {what}; restore what it was before" for what in changed)
        for name, block in buffers.items():
            if what := block.trespassed():
                breach.append(what.format(name))
        return found, breach

    def _library(self, path: str) -> None:
        if path in self._libraries:
            return
        self._mark(LOADING)
        try:
            self._libraries[path] = ctypes.CDLL(path, os.RTLD_LOCAL | os.RTLD_NOW)
        except OSError as error:
            raise RequestError(str(error)) from None
        finally:
            self._floats[path] = Floats()
            self._usual.set()
            self._signals.settled()
            libc.fflush(None)
            self._check()

    def _found(self, library: str, symbol: str) -> Any:
        """A function of a loaded library; a new object each time: what it returns is set on it."""
        try:
            return self._libraries[library][symbol]
        except AttributeError:
            return None


def _argument(
    said: Any, buffers: Mapping[str, Guarded], kept: Mapping[str, int], label: str
) -> Any:
    """A null pointer (None), [ctype, value], {"buffer", "offset"}, or {"kept"}."""
    if said is None:
        return ctypes.c_void_p(None)
    if isinstance(said, list):
        return _scalar(said[0], said[1], label)
    try:
        if "kept" in said:
            return ctypes.c_void_p(kept[said["kept"]])
        return ctypes.c_void_p(buffers[said["buffer"]].address + said["offset"])
    except KeyError as error:
        raise RequestError(f"{label} takes {error}, which the script does not have") from None


def _scalar(name: str, value: int | float, label: str) -> Any:
    ctype = CTYPES.get(name)
    if ctype is None:
        raise RequestError(f"{label}: there is no scalar type {name!r}; known: {', '.join(CTYPES)}")
    if name.startswith(("int", "uint")):
        if value != int(value):
            raise RequestError(f"{label} takes an {name}, and {value} is no whole number")
        if ctype(int(value)).value != value:
            raise RequestError(f"{label} takes an {name}, which cannot hold {value}")
        value = int(value)
    return ctype(value)


def serve(machine: Machine, channel: ParentChannel) -> None:
    """Answer one request."""
    request = frames.read(channel.exactly)
    channel.stamp = bytes.fromhex(request.header["stamp"])
    mapped: dict[str, Guarded] = {}
    try:
        said, blocks = answer(machine, request.header, request.blocks, mapped)
        channel.restore()
        channel.write(ANSWERING)
        for piece in frames.pieces(said, [block.view() for block in blocks], channel.stamp):
            channel.write(piece)
    finally:
        for block in mapped.values():
            block.free()


def answer(
    machine: Machine,
    asked: Mapping[str, Any],
    contents: Sequence[memoryview],
    mapped: dict[str, Guarded],
) -> tuple[dict[str, Any], list[Guarded]]:
    """The answer to a request, and the blocks of memory that go with it.

    Every block that is laid out is put into `mapped`, to be freed by the caller.
    """
    try:
        if asked["kind"] == "inspect":
            found = machine.inspect(asked["library"], asked["symbols"])
            return {"kind": "symbols", "present": found}, []
        _lay_out(asked["blocks"], contents, mapped)
        returned, breaches = machine.run(mapped, asked["calls"])
    except (RequestError, MemoryError, ValueError, OverflowError) as error:
        return {"kind": "refused", "message": str(error)}, []
    back = [said["name"] for said in asked["blocks"] if said["access"] == "write"]
    said = {
        "kind": "outcome",
        "returned": returned,
        "breaches": breaches,
        "strayed": {n: text for n, block in mapped.items() if (text := block.strayed())},
        "blocks": [{"name": name} for name in back],
    }
    return said, [mapped[name] for name in back]


def _lay_out(
    table: Sequence[Mapping[str, Any]],
    contents: Sequence[memoryview],
    mapped: dict[str, Guarded],
) -> None:
    for said, content in zip(table, contents, strict=True):
        if said["name"] in mapped:
            raise RequestError(f"two buffers are called {said['name']!r}")
        block = Guarded(content.nbytes, said["guard"], said["align"], number=len(mapped))
        mapped[said["name"]] = block
        block.fill(content)
        block.protect(said["access"])


def main(words: Sequence[str]) -> None:
    """Serve the parent at the descriptors that `words` end with, until it is gone.

    `HANDLED` among them: handlers of libraries get the faults of their calls.
    """
    end_with_parent()
    with contextlib.suppress(ValueError):  # line by line: a crash loses no more than its last
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, IOLBF, ctypes.c_size_t(0))
    os.environ.pop("LD_PRELOAD", None)  # a sanitizer is for us; its own symbolizer would hang
    channel = ParentChannel(int(words[-2]), int(words[-1]))
    machine = Machine(channel.mark, channel.check, handled=HANDLED in words)
    channel.write(READY)
    while True:
        serve(machine, channel)


if __name__ == "__main__":
    main(sys.argv)
