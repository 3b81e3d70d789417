"""Binary frames: a JSON header and raw blocks; large ones are written and read without copies.

One frame is ``magic`` (8 bytes), header length (u32, little-endian), payload length (u64,
little-endian), the header (UTF-8 JSON), the payload. The header's ``blocks`` says, per block,
where it lies in the payload (``offset`` and ``nbytes``); each starts at a multiple of `ALIGN`.
Nothing here needs NumPy: the process that calls foreign code starts without it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

MAGIC: Final = b"GRDC\r\n\x1a\n"
PREFIX: Final = struct.Struct("<8sIQ")
ALIGN: Final = 64
HEADER_MAX: Final = 1 << 24
"""Bytes of JSON: more is no header but a sign that the reader is out of step."""
LARGE: Final = 1 << 16
"""Bytes of a block that is not copied; smaller ones go together: each piece costs a system call."""
PAYLOAD_MAX: Final = 1 << 36

Block = bytes | bytearray | memoryview


class BadFrame(ValueError):  # noqa: N818  a frame is
    """What arrived is no frame; the message says what it is instead."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A header, and the blocks that it describes (views of one buffer)."""

    header: Mapping[str, Any]
    blocks: tuple[memoryview, ...]


def pieces(header: Mapping[str, Any], blocks: Sequence[Block] = ()) -> Iterator[Block]:
    """The bytes of one frame, in order, ready to be written.

    `header["blocks"]`, one mapping per block (empty ones are made if it is missing), gets
    `offset` and `nbytes`.
    """
    views = [memoryview(block).cast("B") for block in blocks]
    said = header.get("blocks", [{} for _ in views])
    table, offset = [], 0
    for entry, view in zip(said, views, strict=True):
        table.append({**entry, "offset": offset, "nbytes": view.nbytes})
        offset += view.nbytes + -view.nbytes % ALIGN
    text = json.dumps({**header, "blocks": table}, separators=(",", ":")).encode()
    small = bytearray(PREFIX.pack(MAGIC, len(text), offset) + text)
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


def read(exactly: Callable[[int], Block]) -> Frame:
    """The next frame; `exactly(n)` gives the next n bytes.

    Raises:
        BadFrame: the bytes are no frame, or its table points out of its payload.
        Whatever `exactly` raises.
    """
    magic, header_size, payload_size = PREFIX.unpack(exactly(PREFIX.size))
    if magic != MAGIC:
        raise BadFrame(f"a frame begins with {MAGIC!r}, this with {bytes(magic)!r}")
    if header_size > HEADER_MAX or payload_size > PAYLOAD_MAX:
        raise BadFrame(
            f"a frame of {header_size} bytes of header and {payload_size} of payload is too large "
            f"(limits {HEADER_MAX} and {PAYLOAD_MAX}); lengths are little-endian, u32 and u64"
        )
    text = bytes(exactly(header_size))
    payload = memoryview(exactly(payload_size))
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadFrame(f"the header is a {type(header).__name__}; make it a JSON object")
    return Frame(header, tuple(_cut(payload, header.get("blocks", []))))


def _cut(payload: memoryview, table: Any) -> Iterator[memoryview]:
    if not isinstance(table, list):
        raise BadFrame("`blocks` of the header is no list")
    for entry in table:
        offset, nbytes = (entry.get(key) if isinstance(entry, dict) else None
                          for key in ("offset", "nbytes"))  # fmt: skip
        if not (type(offset) is int and type(nbytes) is int and offset >= 0 and nbytes >= 0):
            raise BadFrame(f"a block needs whole numbers `offset` and `nbytes`; this has {entry!r}")
        if offset + nbytes > payload.nbytes:
            raise BadFrame(
                f"a block ends at byte {offset + nbytes} of a payload of {payload.nbytes}"
            )
        yield payload[offset : offset + nbytes]
