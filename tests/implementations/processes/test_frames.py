"""Frames survive the way there and back; what is no frame is refused with a sentence."""

import io
import json
import struct

import pytest

from gradcheck.implementations.processes.frames import (
    BLOCKS_MAX,
    HEADER_MAX,
    MAGIC,
    PREFIX,
    FrameError,
    Limits,
    new_stamp,
    pieces,
    read,
)


def exactly(data):
    stream = io.BytesIO(data)

    def take(n):
        found = stream.read(n)
        if len(found) != n:
            raise EOFError
        return found

    return take


def frame(header, payload=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return PREFIX.pack(MAGIC, len(text), len(payload)) + text + payload


@pytest.mark.parametrize("blocks", [[], [b""], [b"a" * 64, b"", b"bc"], [bytes(1000), b"\xff" * 7]])
def test_blocks_come_back_aligned(blocks):
    header = {"kind": "run", "blocks": [{"name": f"b{i}"} for i in range(len(blocks))]}
    data = b"".join(bytes(piece) for piece in pieces(header, blocks))
    found = read(exactly(data + b"rest"))
    assert [bytes(view) for view in found.blocks] == blocks
    assert [entry["name"] for entry in found.header["blocks"]] == [
        f"b{i}" for i in range(len(blocks))
    ]
    assert all(entry["offset"] % 64 == 0 for entry in found.header["blocks"])
    assert found.header["kind"] == "run"


def test_a_table_of_another_length_is_our_own_mistake():
    with pytest.raises(ValueError, match="zip"):
        list(pieces({"blocks": [{}]}, [b"a", b"b"]))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"hello, world, this is no frame", "begins with"),
        (PREFIX.pack(MAGIC, HEADER_MAX + 1, 0), "too large"),
        (struct.pack(">8sIQ", MAGIC, 300, 0), "little-endian"),
        (frame(b"{'a': 1}"), "no JSON"),
        (frame(b"\xff\xfe"), "no JSON"),
        (frame(b"[" * 100_000), "no JSON"),
        (frame([1]), "make it a JSON object"),
        (frame({"blocks": 3}), "no list"),
        (frame({"blocks": [3]}), "whole numbers"),
        (frame({"blocks": [{"offset": 0}]}), "whole numbers"),
        (frame({"blocks": [{"offset": -8, "nbytes": 8}]}, bytes(8)), "whole numbers"),
        (frame({"blocks": [{"offset": True, "nbytes": 1}]}, bytes(8)), "whole numbers"),
        (frame({"blocks": [{"offset": 4, "nbytes": 8}]}, bytes(8)), "ends at byte 12"),
    ],
)
def test_what_is_no_frame_is_refused_in_words(data, said):
    with pytest.raises(FrameError, match=said):
        read(exactly(data))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(payload=128), r"192 of payload is too large \(limits 16777216 and 128\)"),
        (Limits(header=20), "too large"),
        (Limits(blocks=2), r"3 blocks has too many \(limit 2\)"),
    ],
)
def test_a_frame_that_promises_too_much_is_refused_before_it_is_read(limits, said):
    data = b"".join(bytes(piece) for piece in pieces({}, [b"a", b"b", b"c"]))
    assert len(read(exactly(data), Limits(payload=192, blocks=3)).blocks) == 3
    short = data if limits.blocks == 2 else data[: PREFIX.size]  # there is no more of it
    with pytest.raises(FrameError, match=said):
        read(exactly(short), limits)


def test_an_answer_has_the_stamp_of_its_request_or_is_refused_at_once():
    stamp, other = new_stamp(), new_stamp()
    data = b"".join(bytes(piece) for piece in pieces({"kind": "x"}, [b"abc"], stamp))
    assert bytes(read(exactly(data), stamp=stamp).blocks[0]) == b"abc"
    for wrong in (other + data[len(stamp) :], MAGIC + bytes(12), data[len(stamp) :]):
        with pytest.raises(FrameError, match="something else than what was asked"):
            read(exactly(wrong[: len(stamp)]), stamp=stamp)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("blocks", [[b""] * (BLOCKS_MAX + 1), []])
def test_an_answer_that_nobody_would_take_is_not_begun(blocks):
    header = {} if blocks else {"text": "x" * HEADER_MAX}
    with pytest.raises(FrameError, match="too"):
        next(pieces(header, blocks, new_stamp()))


def test_a_truncated_frame_is_the_readers_end_of_file():
    data = b"".join(bytes(piece) for piece in pieces({"kind": "x"}, [b"abc"]))
    for n in range(len(data)):
        with pytest.raises(EOFError):
            read(exactly(data[:n]))
