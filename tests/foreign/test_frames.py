"""Frames survive the way there and back; what is no frame is refused with a sentence."""

import io
import json
import struct

import pytest

from gradcheck.foreign.frames import HEADER_MAX, MAGIC, PREFIX, BadFrame, pieces, read


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
    with pytest.raises(BadFrame, match=said):
        read(exactly(data))


def test_a_truncated_frame_is_the_readers_end_of_file():
    data = b"".join(bytes(piece) for piece in pieces({"kind": "x"}, [b"abc"]))
    for n in range(len(data)):
        with pytest.raises(EOFError):
            read(exactly(data[:n]))
