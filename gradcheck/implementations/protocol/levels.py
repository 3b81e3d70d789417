"""The two encodings of messages over a pipe: binary frames, and lines of JSON.

Anything else that a program prints there is kept, up to a limit, and shown to the user.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.child import Child
from gradcheck.implementations.protocol.message import SHOWN, Raw, Violation, shown, tame
from gradcheck.results.printed import shortened

STRAY_MAX: Final = 1 << 16
"""Bytes that a program may print before an answer."""
SMALL: Final = 1 << 14
"""Bytes: copying so many costs less than writing them by themselves."""

Received = tuple[Mapping[str, Any], tuple[Raw, ...]]
"""A message and the bytes of its blocks, in order."""


class Strays:
    """Standard output that is not part of an answer."""

    def __init__(self) -> None:
        """Nothing came yet."""
        self.first = b""  # what came first of all, a few characters of it
        self._found = bytearray()
        self._since = 0

    def add(self, data: Raw) -> None:
        """Set bytes aside.

        Raises:
            Violation: there are more of them than a program may print before it answers.
        """
        self.first += bytes(data[: SHOWN - len(self.first)])
        self._found += data
        self._since += len(data)
        if self._since > STRAY_MAX:
            raise Violation(
                f"more than {STRAY_MAX} bytes on standard output and no answer; print on standard "
                f"error. It begins: {tame(self.peek(), 60)}",
                derailed=True,
            )

    def answered(self) -> None:
        """An answer came: what was printed before it is not counted any more."""
        self._since = 0
        del self._found[:-STRAY_MAX]

    def peek(self) -> str:
        return self._found[-STRAY_MAX:].decode(errors="replace")

    def take(self) -> str:
        """The text set aside since the last call."""
        text = self.peek()
        self._found.clear()
        return shortened(text)


class Level(ABC):
    """One way for messages to travel over a channel.

    The blocks of the next message should have about `expected` bytes, and all else of it up to
    `header`: a message that is far larger, or none, is a `Violation`.
    """

    def __init__(self, channel: Child | Recorded, strays: Strays) -> None:
        """Talk over `channel`; other output goes to `strays`."""
        self._channel, self._strays = channel, strays

    @abstractmethod
    def send(self, header: Mapping[str, Any], blocks: Sequence[Raw], timeout: float) -> None:
        """Send a message within `timeout` seconds."""

    @abstractmethod
    def receive(self, expected: int, header: int = frames.HEADER_MAX) -> Received:
        """Wait for the next message."""


class Frames(Level):
    """Binary frames, level `frames`."""

    def send(self, header: Mapping[str, Any], blocks: Sequence[Raw], timeout: float) -> None:
        self._channel.send(_gathered(frames.pieces(header, blocks)), timeout)

    def receive(self, expected: int, header: int = frames.HEADER_MAX) -> Received:
        self._find_magic()
        self._strays.answered()
        begun = False

        def exactly(n: int) -> Raw:
            nonlocal begun
            if n > 2 * expected + header:
                raise Violation(f"an answer of {n} bytes is too large here", derailed=True)
            if begun:
                return self._channel.exactly(n)
            begun = True
            return frames.MAGIC + bytes(self._channel.exactly(n - len(frames.MAGIC)))

        try:
            frame = frames.read(exactly)
        except frames.FrameError as error:
            raise Violation(shown(str(error), bare=True), derailed=True) from None
        return frame.header, frame.blocks

    def _find_magic(self) -> None:
        found = b""  # always a beginning of the magic
        while found != frames.MAGIC:
            found += bytes(self._channel.exactly(len(frames.MAGIC) - len(found) if found else 1))
            while not frames.MAGIC.startswith(found):
                self._strays.add(found[:1])
                found = found[1:]


def _gathered(pieces: Iterable[Raw]) -> Iterator[Raw]:
    """The same bytes in fewer pieces: small ones are joined, large ones are not copied."""
    joined = bytearray()
    for piece in pieces:
        if len(piece) > SMALL:
            if joined:
                yield bytes(joined)
                joined.clear()
            yield piece
        else:
            joined += piece
    if joined:
        yield bytes(joined)


class Lines(Level):
    """JSON lines, level `jsonl`."""

    def send(self, header: Mapping[str, Any], blocks: Sequence[Raw], timeout: float) -> None:
        entries = header.get("blocks", [])
        table = [{**e, "b64": data} for e, data in zip(entries, blocks, strict=True)]
        whole = {**header, "blocks": table} if table or "blocks" in header else header
        self._channel.send([msgspec.json.encode(whole), b"\n"], timeout)

    def receive(self, expected: int, header: int = frames.HEADER_MAX) -> Received:
        most = 2 * expected + header
        while not (line := self._channel.line(most)).startswith(b"{"):
            self._strays.add(line)
        self._strays.answered()
        if len(line) == most:
            raise Violation(f"an answer of {most} bytes or more is too large here", derailed=True)
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no UTF-8, too
            begins = line[:200].decode(errors="replace")
            raise Violation(
                f"a line that begins with {{ is no JSON ({error}): {shown(begins)}", derailed=True
            ) from None
        return message, tuple(_decoded(message.get("blocks", [])))


def _decoded(table: Any) -> Iterable[Raw]:
    if not isinstance(table, list):
        raise Violation("`blocks` is no list")
    for entry in table:
        text = entry.get("b64") if isinstance(entry, dict) else None
        try:
            yield msgspec.convert(text, bytes)
        except (msgspec.ValidationError, ValueError):
            raise Violation(
                f"a block needs its bytes in base64 under `b64`; this has {shown(text)}"
            ) from None


LEVELS: Final[Mapping[str, type[Level]]] = {"frames": Frames, "jsonl": Lines}


class Recorded:
    """A channel to nowhere, from bytes that came before."""

    def __init__(self, data: bytes = b"") -> None:
        """Give `data`, and keep what is `sent`."""
        self.sent = bytearray()
        self._stream = io.BytesIO(data)

    def send(self, pieces: Iterable[Raw], timeout: float) -> None:
        for piece in pieces:
            self.sent += piece

    def exactly(self, n: int) -> Raw:
        found = self._stream.read(n)
        if len(found) != n:
            raise EOFError
        return found

    def line(self, limit: int) -> bytes:
        found = self._stream.readline(limit)
        if not found:
            raise EOFError
        return found

    def rest(self) -> bytes:
        return self._stream.read()


def encoded(level: str, header: Mapping[str, Any], blocks: Sequence[Raw] = ()) -> bytes:
    """A message as the bytes that travel."""
    channel = Recorded()
    LEVELS[level](channel, Strays()).send(header, blocks, 0.0)
    return bytes(channel.sent)


def decoded(level: str, data: bytes) -> tuple[list[Mapping[str, Any]], str]:
    """The headers of the messages in `data`, and what is in it besides.

    Raises:
        Violation: something in it begins as a message does, and is none.
    """
    strays = Strays()
    way = LEVELS[level](Recorded(data), strays)
    headers = []
    try:
        while True:
            headers.append(way.receive(len(data))[0])
    except EOFError:
        return headers, strays.take()
