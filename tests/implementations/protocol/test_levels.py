"""Messages survive the way there and back; what is printed between them is set aside."""

import pytest

from gradcheck.implementations.processes.frames import MAGIC, PREFIX
from gradcheck.implementations.protocol.levels import (
    LEVELS,
    STRAY_MAX,
    Frames,
    Lines,
    Recorded,
    Strays,
    decoded,
    encoded,
)
from gradcheck.implementations.protocol.message import Violation

HEADER = {"kind": "result", "seq": 1, "blocks": [{"name": "x"}, {"name": "y"}]}


def received(level, data, expected=1000):
    strays = Strays()
    header, blocks = LEVELS[level](Recorded(data), strays).receive(expected)
    return header, [bytes(block) for block in blocks], strays.take()


def test_a_message_comes_back_as_it_was(level):
    blocks = [bytes(range(200)), b""]
    header, found, printed = received(level, encoded(level, HEADER, blocks) + b"rest\n")
    assert found == blocks
    assert [entry["name"] for entry in header["blocks"]] == ["x", "y"]
    assert (header["kind"], header["seq"], printed) == ("result", 1, "")


def test_a_message_without_blocks_has_none(level):
    header, found, _ = received(level, encoded(level, {"kind": "pong", "seq": None}))
    assert header["kind"] == "pong"
    assert found == []


@pytest.mark.parametrize(
    "noise", [b"epoch 1\n", b"G\n", b"GRDC\n", b"GRDGRDC\r\n\x1a", b"\xff\n\n"]
)
def test_what_is_printed_before_an_answer_is_set_aside(level, noise):
    if level == "jsonl" and not noise.endswith(b"\n"):
        noise += b"\n"
    header, _, printed = received(level, noise + encoded(level, {"kind": "pong", "seq": 1}))
    assert header["seq"] == 1
    assert printed.encode() == noise.replace(b"\xff", "\ufffd".encode())


def test_a_flood_is_no_answer(level):
    noise = b"x" * 99 + b"\n"
    with pytest.raises(Violation, match="no answer; print on standard error") as caught:
        received(level, noise * (STRAY_MAX // 100 + 2))
    assert caught.value.derailed


def test_noise_before_each_of_many_answers_is_no_flood(level):
    strays = Strays()
    data = (b"x" * 999 + b"\n" + encoded(level, {"kind": "pong", "seq": 1})) * 100
    way = LEVELS[level](Recorded(data), strays)
    for _ in range(100):
        way.receive(0)
    assert len(strays.peek()) <= STRAY_MAX
    assert strays.first == b"x" * 500


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (PREFIX.pack(MAGIC, 2**32 - 1, 0), "too large"),
        (PREFIX.pack(MAGIC, 2, 2**30) + b"{}", "is too large here"),
        (PREFIX.pack(MAGIC, 3, 0) + b"{a}", "no JSON"),
        (PREFIX.pack(MAGIC, 2, 0) + b"[]", "list"),
        (PREFIX.pack(MAGIC, 14, 0) + b'{"blocks":[3]}', "whole numbers"),
    ],
)
def test_a_broken_frame_ends_the_conversation(data, said):
    with pytest.raises(Violation, match=said) as caught:
        Frames(Recorded(data), Strays()).receive(100)
    assert caught.value.derailed


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{a}\n", "no JSON"),
        (b"{" + b"x" * 100 + b"\n", "no JSON"),
        (b'{"a":' * 10**5 + b"\n", "no JSON"),
        (b'{"blocks":3}\n', "no list"),
        (b'{"blocks":[3]}\n', "base64"),
        (b'{"blocks":[{}]}\n', "base64 under `b64`; this has null"),
        (b'{"blocks":[{"b64":"%%%%"}]}\n', 'this has "%%%%"'),
        (b'{"blocks":[{"b64":17}]}\n', "this has 17"),
        (b"{\xff}\n", "no JSON"),
    ],
)
def test_a_broken_line_is_no_message(data, said):
    with pytest.raises(Violation, match=said):
        Lines(Recorded(data), Strays()).receive(100)


def test_a_line_far_longer_than_the_answer_is_cut_and_no_message():
    with pytest.raises(Violation, match="an answer of 16777216 bytes or more is too large here"):
        Lines(Recorded(b'{"a":"' + b"x" * (1 << 25) + b'"}\n'), Strays()).receive(0)


def test_all_that_a_program_said_can_be_read_at_once(level):
    messages = [{"kind": "pong", "seq": n} for n in range(3)]
    data = b"".join(encoded(level, message) for message in messages)
    headers, printed = decoded(level, b"noise\n" + data)
    assert [header["seq"] for header in headers] == [0, 1, 2]
    assert printed == "noise\n"
