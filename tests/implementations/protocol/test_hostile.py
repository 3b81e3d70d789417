"""Whatever bytes a program sends, they end in an answer or in a violation: never in our failure."""

import json
import random
import struct

import pytest

from gradcheck.implementations.protocol.levels import LEVELS, Recorded, Strays, encoded
from gradcheck.implementations.protocol.message import (
    Block,
    Failure,
    Form,
    Hello,
    Lacking,
    Request,
    Result,
    Violation,
    check_seq,
    fitting,
    parse,
)

FORM = {"role": "gradient", "name": "x", "dtype": "float64", "shape": [3]}
REQUEST = Request(
    op="tanh",
    ask="vjp",
    dtype="float64",
    wanted=(Form(role="gradient", name="x", dtype="float64", shape=(3,)),),
)
RESULT = {"kind": "result", "seq": 1, "blocks": [FORM]}
DATA = struct.pack("<3d", 1.0, 2.0, 3.0)
VALUES = (
    None, True, -1, 0, 3, 2**70, 1e400, -0.0, "", "x", "\ud800", "1", [], [[]], [None], {},
    {"a": 1}, [-3], [10**18, 10**18], [0], [1.5], ["3"], "result", "error", float("nan"),
)  # fmt: skip


def understood(level, data):
    """What becomes of bytes: "answered", or why not."""
    try:
        header, raw = LEVELS[level](Recorded(data), Strays()).receive(REQUEST.wanted[0].nbytes)
        kind = header.get("kind")
        if kind == "hello":
            parse(header, Hello)
        elif kind == "error":
            parse(header, Failure)
        else:
            answer = parse(header, Result, Lacking)
            check_seq(answer.seq, 1)
            if isinstance(answer, Result):
                found = zip(answer.blocks, raw, strict=True)
                fitting(REQUEST, (Block(form, block) for form, block in found))
    except Violation as error:
        said = str(error)
    except EOFError:
        return "end"
    else:
        return "answered"
    assert said.startswith("protocol: ")
    assert said.isprintable()
    assert len(said) < 1500
    return "violation"


def test_a_right_answer_is_understood(level):
    assert understood(level, encoded(level, RESULT, [DATA])) == "answered"


def test_flipped_cut_and_doubled_bytes_are_understood_or_refused(level):
    draw = random.Random(f"hostile bytes {level}")
    whole = encoded(level, RESULT, [DATA])
    seen = set()
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(data))
            deed = draw.randrange(3)
            if deed == 0:
                data[place] = draw.randrange(256)
            elif deed == 1:
                del data[place : place + draw.randrange(1, 9)]
            else:
                data[place:place] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
            if not data:
                break
        seen.add(understood(level, bytes(data)))
    assert seen == {"answered", "violation", "end"}


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if not isinstance(value, (dict, list)):
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        yield from places(part, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


HELLO = {
    "kind": "hello",
    "protocol": 1,
    "implementation": {"name": "a", "version": "b", "language": "c"},
    "ops": {"tanh": {"asks": ["vjp"], "dtypes": ["float64"], "attrs": []}},
}
FRAMED = {**RESULT, "blocks": [{**FORM, "offset": 0, "nbytes": 24}]}
LINED = {**RESULT, "blocks": [{**FORM, "b64": "AAAAAAAA8D8AAAAAAAAAQAAAAAAAAAhA"}]}


@pytest.mark.parametrize("message", [HELLO, FRAMED, LINED], ids=["hello", "frame", "line"])
def test_every_part_may_be_anything(message):
    level = "jsonl" if message is LINED else "frames"
    seen = set()
    for path in places(message):
        for value in VALUES:
            text = json.dumps(replaced(message, path, value)).encode()
            payload = DATA + bytes(40)
            if level == "frames":
                prefix = struct.pack("<8sIQ", b"GRDC\r\n\x1a\n", len(text), len(payload))
                data = prefix + text + payload
            else:
                data = text + b"\n"
            seen.add(understood(level, data))
    assert {"answered", "violation"} <= seen


def test_every_part_may_be_missing(level):
    message = FRAMED if level == "frames" else LINED
    for path in places(message):
        if path and isinstance(path[-1], str):
            parent = message
            for key in path[:-1]:
                parent = parent[key]
            smaller = {k: v for k, v in parent.items() if k != path[-1]}
            text = json.dumps(replaced(message, path[:-1], smaller)).encode()
            payload = DATA + bytes(40)
            prefix = struct.pack("<8sIQ", b"GRDC\r\n\x1a\n", len(text), len(payload))
            data = prefix + text + payload if level == "frames" else text + b"\n"
            assert understood(level, data) == "violation"
