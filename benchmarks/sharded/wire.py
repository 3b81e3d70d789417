"""What travels between processes: requests and replies of fixed size, arrays, and their count.

A request is a seed, a range of elements and a step; a reply is one count and three numbers. Both
are as long whatever the model's size. Bytes are counted where they are written and read, all of
them: there is no framing beside what is counted.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

REQUEST: Final = struct.Struct("<BBHI16sQQdd")
REPLY: Final = struct.Struct("<BxxxIQ3d")
LENGTH: Final = struct.Struct("<Q")
UPHILL: Final = 1
"""A flag of a request: the direction has the signs of the gradient."""


class Ask(IntEnum):
    """What a worker is asked for; what its reply's count and numbers are."""

    SURVEY = 1
    """Of its part of a tensor: (checksum; largest, Σx² / largest², strange numbers in x and g)."""
    SUMS = 2
    """⟨g, d⟩ and ‖g∘d‖₂² of its part of a range."""
    HERE = 3
    """A forward of the whole model: its value, of the worker that has it."""
    AHEAD = 4
    """The same with the range at x + t·d."""
    BACK = 5
    """The same with the range at x − t·d; beside the value, ⟨g, x₊ − x₋⟩."""
    RESTORE = 6
    """Nothing: the range is put back."""
    GOT = 7
    """One element of the gradient."""
    BACKWARD = 8
    """Nothing: the gradient is formed, by the model's own backward."""
    COUNTS = 9
    """(forwards; bytes of the model that it sent and received, the largest copy in bytes)."""
    END = 10
    """Nothing: the worker ends."""


class Closed(ConnectionError):  # noqa: N818  that is what it is
    """The other end is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the coordinator asks. Elements start … stop of tensor number `tensor`, all 0 else."""

    ask: Ask
    tensor: int = 0
    number: int = 0
    key: int = 0
    uphill: bool = False
    start: int = 0
    stop: int = 0
    t: float = 0.0
    unit: float = 1.0

    def packed(self) -> bytes:
        """As it travels."""
        key = self.key.to_bytes(16, "little")
        flags = UPHILL * self.uphill
        return REQUEST.pack(
            self.ask, flags, self.tensor, self.number, key, self.start, self.stop, self.t, self.unit
        )

    @classmethod
    def unpacked(cls, data: bytes) -> Request:
        """As it came."""
        ask, flags, tensor, number, key, start, stop, t, unit = REQUEST.unpack(data)
        return cls(
            ask=Ask(ask),
            tensor=tensor,
            number=number,
            key=int.from_bytes(key, "little"),
            uphill=bool(flags & UPHILL),
            start=start,
            stop=stop,
            t=t,
            unit=unit,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answers to request `number`; `text` says what went wrong there, else empty."""

    number: int
    count: int = 0
    numbers: tuple[float, float, float] = (0.0, 0.0, 0.0)
    text: str = ""


@dataclass(slots=True)
class Channel:
    """One end of a TCP connection, which counts what passes."""

    socket: socket.socket
    sent: int = 0
    received: int = 0
    _view: memoryview = field(default_factory=lambda: memoryview(bytearray(1 << 16)))

    def __post_init__(self) -> None:
        """Small messages leave at once."""
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: Request) -> None:
        """Send a request."""
        self.write(request.packed())

    def asked(self) -> Request:
        """Wait for a request."""
        return Request.unpacked(self.read(REQUEST.size))

    def answer(self, reply: Reply) -> None:
        """Send a reply."""
        text = reply.text.encode()
        kind = 1 if text else 0
        self.write(REPLY.pack(kind, len(text) or reply.number, reply.count, *reply.numbers) + text)

    def answered(self) -> Reply:
        """Wait for a reply."""
        kind, number, count, *numbers = REPLY.unpack(self.read(REPLY.size))
        if kind:
            return Reply(0, text=self.read(number).decode())
        return Reply(number, count, (numbers[0], numbers[1], numbers[2]))

    def give(self, array: Array) -> None:
        """Send the bytes of a contiguous array, and their number before them."""
        self.write(LENGTH.pack(array.nbytes))
        self.write(array.reshape(-1).view(np.uint8).data)

    def take(self, out: Array) -> Array:
        """Receive an array into a contiguous one of the same shape and dtype."""
        (length,) = LENGTH.unpack(self.read(LENGTH.size))
        if length != out.nbytes:
            raise ValueError(f"{length} bytes came, and {out.nbytes} were expected")
        self._fill(memoryview(out.reshape(-1).view(np.uint8)))
        return out

    def write(self, data: bytes | memoryview) -> None:
        """Send all of it.

        Raises:
            Closed: the other end is gone.
        """
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(str(error)) from None
        self.sent += len(data)

    def read(self, count: int) -> bytes:
        """Receive exactly so many bytes."""
        view = self._view[:count] if count <= len(self._view) else memoryview(bytearray(count))
        self._fill(view)
        return bytes(view)

    def _fill(self, view: memoryview) -> None:
        """Receive into the whole of it.

        Raises:
            Closed: the other end is gone.
        """
        at = 0
        while at < len(view):
            try:
                count = self.socket.recv_into(view[at:])
            except ConnectionResetError as error:
                raise Closed(str(error)) from None
            if not count:
                raise Closed("the connection ended")
            at += count
        self.received += len(view)
