"""A program that gives back what it is given: raw, or in the words of the protocol.

`python echo.py raw N` copies messages of N bytes; `frames` and `jsonl` answer a `run` with its
first block. Standard library only, as a client of the protocol would be.
"""

import base64
import json
import os
import struct
import sys

PREFIX = struct.Struct("<8sIQ")
MAGIC = b"GRDC\r\n\x1a\n"


def exactly(n: int) -> memoryview:
    """The next n bytes of the input; the process ends with it."""
    data = memoryview(bytearray(n))
    filled = 0
    while filled < n:
        got = os.readv(0, [data[filled:]])
        if not got:
            sys.exit(0)
        filled += got
    return data


def write(*pieces: bytes | memoryview) -> None:
    """All of the pieces."""
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(1, rest) :]


def raw(size: int) -> None:
    """Copy."""
    while True:
        write(exactly(size))


def answer(header: dict, count: int) -> dict:
    """What answers a request whose first block is to come back."""
    if header["kind"] == "hello":
        ops = {"dup": {"asks": ["forward"], "dtypes": ["float64"]}}
        about = {"name": "echo"}
        return {"kind": "hello", "protocol": 1, "implementation": about, "ops": ops}
    if header["kind"] != "run":
        return {"kind": "pong", "seq": header["seq"]}
    first = {**header["blocks"][0], "role": "output", "name": "0"}
    return {"kind": "result", "seq": header["seq"], "blocks": [first]}


def frames() -> None:
    """Binary frames."""
    while True:
        magic, size, count = PREFIX.unpack(exactly(PREFIX.size))
        assert magic == MAGIC
        header, payload = json.loads(bytes(exactly(size))), exactly(count)
        if header["kind"] == "bye":
            return
        text = json.dumps(answer(header, count)).encode()
        write(PREFIX.pack(MAGIC, len(text), count) + text, payload)


def jsonl() -> None:
    """Lines of JSON."""
    for line in sys.stdin.buffer:
        header = json.loads(line)
        if header["kind"] == "bye":
            return
        for block in header.get("blocks", []):  # as a program would that computes with it
            block["b64"] = base64.b64encode(base64.b64decode(block["b64"])).decode()
        write(json.dumps(answer(header, 0)).encode() + b"\n")


if __name__ == "__main__":
    LEVEL, *SIZE = sys.argv[1:]
    {"frames": frames, "jsonl": jsonl, "raw": raw}[LEVEL](*map(int, SIZE))
