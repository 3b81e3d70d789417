"""A run as a log that grows with it: a header, a line per result, a footer that seals it.

Every line is one JSON object with one key. What ends without a footer was cut short; all whole
lines before are good.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from gradcheck.disk import opened
from gradcheck.record import Run
from gradcheck.stored.plain import dumped, footer_dict, header_dict, result_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from gradcheck.record import Header, Record


class Stream(Protocol):
    """What a log is written to: bytes, of which it may take a part at a time."""

    def write(self, data: memoryview, /) -> int | None:
        """Take some; returns how many."""

    def close(self) -> None:
        """Take no more."""


class Lines:
    """The lines of a log, and the hash of those that were asked for."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._digest = hashlib.sha256()

    def header(self, header: Header) -> bytes:
        """The first line; which cases they are can be said only of all results."""
        return self._line("header", {**header_dict(header), "cases": ""})

    def result(self, run: Run, result: Record) -> bytes:
        """The line of a result."""
        return self._line("result", result_dict(run, result))

    def footer(self, run: Run) -> bytes:
        """The last line, with the hash of all before it."""
        return self._line("footer", {**footer_dict(run), "sha256": self._digest.hexdigest()})

    def _line(self, key: str, value: dict[str, Any]) -> bytes:
        line = f"{dumped({key: value})}\n".encode("ascii")
        self._digest.update(line)
        return line


def whole(run: Run) -> Iterator[bytes]:
    """The lines of a run that has ended: those that grew with it, byte for byte."""
    lines = Lines()
    yield lines.header(run.header)
    for result in by_case(run):
        yield lines.result(run, result)
    yield lines.footer(run)


def by_case(run: Run) -> list[Record]:
    """The results case by case, as they came; a run has them by implementation."""
    order: dict[tuple[str, ...], int] = {}
    for result in run.results:
        order.setdefault(case_of(result), len(order))
    ordered = sorted(run.results, key=lambda result: order[case_of(result)])
    back = sorted(ordered, key=by_implementation(run.header))
    return ordered if back == [*run.results] else [*run.results]  # whose order is its own


def by_implementation(header: Header) -> Callable[[Record], int]:
    """Where the implementation of a result stands in a run."""
    order = {name: place for place, name in enumerate(header.implementations)}
    return lambda result: order.get(result.implementation, len(order))


def case_of(result: Record) -> tuple[str, ...]:
    """The case that a result is of."""
    return result.kind, result.op, result.dialect, result.sample


class Log:
    """Writes one run as it goes; a disk that is full ends the log, never the run.

    `trouble` says what went wrong, empty while nothing has; `written` counts results. What an
    entry of a baseline makes of a result is none of its business: it holds the run as it was.
    """

    def __init__(self, path: Path) -> None:
        """Where to write; the file is begun anew with the header, in place."""
        self.path = path
        self.trouble = ""
        self.written = 0
        self._lines = Lines()
        self._stream: Stream | None = None
        self._run: Run | None = None
        self._seen: set[tuple[str, ...]] = set()

    def begins(self, header: Header) -> None:
        """The first line; who reads from now on sees a log that is not finished."""
        self._run = Run(header=header, results=())
        try:
            self._stream = opened(self.path)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return
        with _undisturbed():
            self._write(self._lines.header(header))

    def sees(self, results: Sequence[Record]) -> str:
        """A line per result, on its way to the disk before the next case is judged."""
        assert self._run is not None, "a log begins with a header"
        if self._stream is not None and results:
            with _undisturbed():
                for result in results:
                    if self._write(self._lines.result(self._run, result)):
                        self._seen.add(result.key)
                        self.written += 1
        return ""

    def ends(self, run: Run) -> None:
        """The last line, and before it whatever an interruption has kept from being seen."""
        if self._stream is None:
            return
        with _undisturbed():
            self.sees([result for result in by_case(run) if result.key not in self._seen])
            self._write(self._lines.footer(run))
            self.close()

    def close(self) -> None:
        """Close the stream; a log that has no footer by then stays without."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        try:
            stream.close()
        except OSError as error:
            self.trouble = self.trouble or error.strerror or str(error)

    def _write(self, line: bytes) -> bool:
        """Write a line to its end; whether that went well."""
        left = memoryview(line)
        try:
            while left and self._stream is not None:
                left = left[self._stream.write(left) or 0 :]
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self.close()
        except BaseException:  # asked twice to end: half a line, and nothing behind it
            self.trouble = "interrupted while it was written"
            self.close()
            raise
        return not left


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the block; the second of them does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def later(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            signal.default_int_handler(number, frame)

    handlers = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    ours = {kind: handler for kind, handler in handlers.items() if callable(handler)}
    for kind in ours:
        signal.signal(kind, later)
    try:
        yield
    finally:
        for kind, handler in ours.items():
            signal.signal(kind, handler)
    if asked:
        signal.raise_signal(asked[0])
