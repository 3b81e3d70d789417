"""A run as a log that grows with it: a header, a line per result, a footer that seals it.

Every line is one JSON object with one key. What ends without a footer was cut short; all whole
lines before are good. Where a baseline was named, the header says which, a result what the baseline
makes of it, and the footer what it makes of the whole.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Header, Run
from gradcheck.results.stored.plain import (
    dumped,
    expectation,
    footer_dict,
    header_dict,
    known_dict,
    named,
    result_dict,
)
from gradcheck.results.verdict import Verdict
from gradcheck.system.atomic_io import opened
from gradcheck.system.process import END_SIGNALS


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

    def header(self, run: Run) -> bytes:
        """The first line; which cases they are can be said only of all results."""
        plain = {**header_dict(run.header), "cases": ""}
        if run.gate is not None:
            plain["baseline"] = named(run.gate)
        return self._line("header", plain)

    def result(self, run: Run, result: CaseResult) -> bytes:
        """The line of a result."""
        known = replace(run, gate=None) if is_late(result) else run
        return self._line("result", result_dict(known, result))

    def footer(self, run: Run) -> bytes:
        """The last line, with the hash of all before it."""
        plain = footer_dict(run)
        if run.gate is not None:
            plain["baseline"]["late"] = [*_late(run)]
        return self._line("footer", {**plain, "sha256": self._digest.hexdigest()})

    def _line(self, key: str, value: dict[str, Any]) -> bytes:
        line = f"{dumped({key: value})}\n".encode("ascii")
        self._digest.update(line)
        return line


def is_late(result: CaseResult) -> bool:
    """Whether what a baseline says of a result is known at the end of a run alone.

    Of a pass that compared nothing: an entry is about it only if it is about nothing that did.
    """
    return result.finding.verdict is Verdict.PASS and not result.finding.compared


def _late(run: Run) -> Iterator[dict[str, Any]]:
    for result in run.results:
        found = run.expected(result) if is_late(result) else None
        if found is not None:
            yield {
                "implementation": result.case.implementation,
                "name": result.case.name,
                "part": result.finding.part.value,
                "output": result.finding.name,
                "expectation": expectation(run, result),
                "known": known_dict(found),
            }


def whole(run: Run) -> Iterator[bytes]:
    """The lines of a run that has ended: those that grew with it, byte for byte."""
    lines = Lines()
    yield lines.header(run)
    for result in by_case(run):
        yield lines.result(run, result)
    yield lines.footer(run)


def by_case(run: Run) -> list[CaseResult]:
    """The results case by case, as they came; a run has them by implementation."""
    order: dict[tuple[str, ...], int] = {}
    for result in run.results:
        order.setdefault(case_of(result), len(order))
    ordered = sorted(run.results, key=lambda result: order[case_of(result)])
    back = sorted(ordered, key=by_implementation(run.header))
    return ordered if back == [*run.results] else [*run.results]  # whose order is its own


def by_implementation(header: Header) -> Callable[[CaseResult], int]:
    """Where the implementation of a result stands in a run."""
    order = {name: place for place, name in enumerate(header.implementations)}
    return lambda result: order.get(result.case.implementation, len(order))


def case_of(result: CaseResult) -> tuple[str, ...]:
    """The case that a result is of."""
    return result.case.kind, result.case.op, result.case.dialect, result.case.sample


class Log:
    """Writes one run as it goes; a disk that is full ends the log, never the run.

    `trouble` says what went wrong, empty while nothing has; `written` counts results.
    """

    def __init__(self, path: Path, held: Callable[[Run], Run] | None = None) -> None:
        """Where to write; the file is begun anew with the header, in place.

        `held` gives a part of the run, whole cases of it, with what a baseline makes of them.
        """
        self.path = path
        self.trouble = ""
        self.written = 0
        self._held = held or _as_it_is
        self._lines = Lines()
        self._stream: Stream | None = None
        self._run: Run | None = None
        self._seen: set[tuple[str, ...]] = set()

    def begins(self, header: Header) -> None:
        """The first line; who reads from now on sees a log that is not finished."""
        self._run = self._held(Run(header=header, results=()))
        try:
            self._stream = opened(self.path)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return
        with _undisturbed():
            self._write(self._lines.header(self._run))

    def sees(self, results: Sequence[CaseResult]) -> str:
        """A line per result, on its way to the disk before the next case is judged."""
        assert self._run is not None, "a log begins with a header"
        if self._stream is not None and results:
            self._add(self._held(replace(self._run, results=tuple(results))), results)
        return ""

    def _add(self, run: Run, results: Sequence[CaseResult]) -> None:
        with _undisturbed():
            for result in results:
                if self._write(self._lines.result(run, result)):
                    self._seen.add(result.key)
                    self.written += 1

    def ends(self, run: Run) -> None:
        """The last line, and before it whatever an interruption has kept from being seen."""
        if self._stream is None:
            return
        with _undisturbed():
            self._add(run, [result for result in by_case(run) if result.key not in self._seen])
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


def _as_it_is(run: Run) -> Run:
    return run


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and the like wait for the end of the block; the second of them does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def later(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            signal.default_int_handler(number, frame)

    handlers = {kind: signal.getsignal(kind) for kind in END_SIGNALS}
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
