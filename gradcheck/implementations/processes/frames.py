"""Binary frames, a JSON header and raw blocks, and the child's end of the channel that they use.

Large blocks are written and read without copies.

One frame is ``magic`` (8 bytes), header length (u32, little-endian), payload length (u64,
little-endian), the header (UTF-8 JSON), the payload. The header's ``blocks`` says, per block,
where it lies in the payload (``offset`` and ``nbytes``); each starts at a multiple of `ALIGN`.
An answer begins with the random stamp of its request, which foreign code cannot guess.
Nothing here needs NumPy: the process that calls foreign code starts without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.implementations.processes import DESCRIPTORS_LOST
from gradcheck.system.posix import fcntl, libc, resource

MAGIC: Final = b"GRDC\r\n\x1a\n"
PREFIX: Final = struct.Struct("<8sIQ")
ALIGN: Final = 64
HEADER_MAX: Final = 1 << 24
"""Bytes of JSON; a larger header means that the reader is out of step."""
LARGE: Final = 1 << 16
"""Bytes of a block that is not copied; smaller ones go together: each piece costs a system call."""
PAYLOAD_MAX: Final = 1 << 36
BLOCKS_MAX: Final = 1 << 16
STAMP: Final = 8
"""Bytes of a stamp."""
PR_SET_PDEATHSIG: Final = 1
HIGH: Final = 100
"""A child's own descriptors get numbers from here on: careless code closes small ones."""

Block = bytes | bytearray | memoryview


class FrameError(ValueError):
    """The bytes are not a frame; the message says why."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A header, and the blocks that it describes (views of one buffer)."""

    header: Mapping[str, Any]
    blocks: tuple[memoryview, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a frame may promise: bytes of its header and of its payload, and how many blocks."""

    header: int = HEADER_MAX
    payload: int = PAYLOAD_MAX
    blocks: int = BLOCKS_MAX


ANY: Final = Limits()


def new_stamp() -> bytes:
    """A random stamp of a request, which its answer repeats."""
    return os.urandom(STAMP)


def padded(nbytes: int) -> int:
    """Bytes of a payload that a block takes."""
    return nbytes + -nbytes % ALIGN


def pieces(
    header: Mapping[str, Any], blocks: Sequence[Block] = (), stamp: bytes = b""
) -> Iterator[Block]:
    """The bytes of one frame, in order, ready to be written; an answer has a `stamp`.

    `header["blocks"]`, one mapping per block (empty ones are made if it is missing), gets
    `offset` and `nbytes`.

    Raises:
        FrameError: the answer exceeds the limits of a reader; no piece was yielded.
    """
    views = [memoryview(block).cast("B") for block in blocks]
    said = header.get("blocks", [{} for _ in views])
    table, offset = [], 0
    for entry, view in zip(said, views, strict=True):
        table.append({**entry, "offset": offset, "nbytes": view.nbytes})
        offset += padded(view.nbytes)
    text = json.dumps({**header, "blocks": table}, separators=(",", ":")).encode()
    if stamp:
        _refuse_large(ANY, len(text), offset)
        _refuse_many(ANY, len(table))
    small = bytearray(stamp + PREFIX.pack(MAGIC, len(text), offset) + text)
    for view in views:
        if view.nbytes >= LARGE:
            yield small
            yield view
            small = bytearray()
        else:
            small += view
        small += bytes(-view.nbytes % ALIGN)
    if small:
        yield small


def read(exactly: Callable[[int], Block], limits: Limits = ANY, stamp: bytes = b"") -> Frame:
    """The next frame; `exactly(n)` gives the next n bytes. An answer has the `stamp` asked for.

    Raises:
        FrameError: the bytes are no frame, answer something else, promise more than the `limits`,
            or its table points out of its payload.
        Whatever `exactly` raises.
    """
    if stamp and bytes(exactly(len(stamp))) != stamp:
        raise FrameError("it answers something else than what was asked")
    magic, header_size, payload_size = PREFIX.unpack(exactly(PREFIX.size))
    if magic != MAGIC:
        raise FrameError(f"a frame begins with {MAGIC!r}, this with {bytes(magic)!r}")
    _refuse_large(limits, header_size, payload_size)
    text = bytes(exactly(header_size))
    payload = memoryview(exactly(payload_size))
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError(f"the header is a {type(header).__name__}; make it a JSON object")
    return Frame(header, tuple(_cut(payload, header.get("blocks", []), limits)))


def _refuse_large(limits: Limits, header: int, payload: int) -> None:
    if header > limits.header or payload > limits.payload:
        raise FrameError(
            f"a frame of {header} bytes of header and {payload} of payload is too large "
            f"(limits {limits.header} and {limits.payload}); lengths are little-endian, u32 and u64"
        )


def _refuse_many(limits: Limits, blocks: int) -> None:
    if blocks > limits.blocks:
        raise FrameError(f"a frame of {blocks} blocks has too many (limit {limits.blocks})")


def _cut(payload: memoryview, table: Any, limits: Limits) -> Iterator[memoryview]:
    if not isinstance(table, list):
        raise FrameError("`blocks` of the header is no list")
    _refuse_many(limits, len(table))
    for entry in table:
        offset, nbytes = (entry.get(key) if isinstance(entry, dict) else None
                          for key in ("offset", "nbytes"))  # fmt: skip
        if not (type(offset) is int and type(nbytes) is int and offset >= 0 and nbytes >= 0):
            raise FrameError(
                f"a block needs whole numbers `offset` and `nbytes`; this has {entry!r}"
            )
        if offset + nbytes > payload.nbytes:
            raise FrameError(
                f"a block ends at byte {offset + nbytes} of a payload of {payload.nbytes}"
            )
        yield payload[offset : offset + nbytes]


class ParentChannel:
    """The descriptors to the parent, and what else the code called must not break.

    `requests` is read from, `answers` written to; standard output and error are the capture.
    """

    def __init__(self, requests: int, answers: int) -> None:
        """Move all of them out of the way."""
        self._process = os.getpid()
        self._mine = [_moved(fd) for fd in (requests, answers)]
        self._capture = _copied(2)
        self._identity = [self._identify(fd) for fd in (*self._mine, self._capture)]
        self.stamp = b""

    def mark(self, mark: bytes) -> None:
        """Report progress on the request with this stamp."""
        self.write(mark + self.stamp)

    def exactly(self, n: int) -> bytearray:
        """The next bytes of a request; the process ends where there are no more."""
        found = bytearray(n)
        with memoryview(found) as whole:
            filled = 0
            while filled < n:
                got = os.readv(self._mine[0], [whole[filled:]])
                if not got:
                    os._exit(0)
                filled += got
        return found

    def write(self, piece: Block) -> None:
        """Write all of it."""
        rest = memoryview(piece).cast("B")
        while rest.nbytes:
            rest = rest[os.write(self._mine[1], rest) :]

    def check(self) -> None:
        """End the process if it is a copy, or if its descriptors were closed or replaced."""
        if os.getpid() != self._process:
            os._exit(0)
        try:
            same = [self._identify(fd) for fd in (*self._mine, self._capture)] == self._identity
        except OSError:
            same = False
        if not same:
            os._exit(DESCRIPTORS_LOST)
        for descriptor in self._mine:
            os.set_blocking(descriptor, True)

    def restore(self) -> None:
        """Send standard output and error to the capture, even if the code has closed them."""
        for stream in (1, 2):
            os.dup2(self._capture, stream)

    def _identify(self, descriptor: int) -> tuple[int, int]:
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino


def _moved(descriptor: int) -> int:
    high = _copied(descriptor)
    os.close(descriptor)
    return high


def _copied(descriptor: int) -> int:
    """A copy with a high number, or, where few are allowed, with any."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH)
    except OSError:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def end_with_parent() -> None:
    """End this process when its parent ends, and leave no core file.

    Only Linux tells a child; elsewhere the closed pipe ends it.
    """
    with contextlib.suppress(AttributeError):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
