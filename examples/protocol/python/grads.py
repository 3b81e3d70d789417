"""GRADCHECK/1 at level `frames`, standard library only, for little-endian machines.

Copy this file, keep part 1, put your own operators into part 2.
"""

import json
import math
import os
import struct
import sys
import traceback
from array import array
from operator import add, mul

# ── part 1: frames and the conversation ──────────────────────────────────────────────────────

PREFIX = struct.Struct("<8sIQ")
MAGIC, HEADER_MAX, PAYLOAD_MAX = b"GRDC\r\n\x1a\n", 1 << 24, 1 << 36
CODES = {"float64": "d", "float32": "f", "int64": "q"}


class BadFrameError(Exception):
    """The input is out of step: there is no way to go on."""


class UnsupportedError(Exception):
    """Raise this for what your operator lacks."""


class Array:
    """`shape`, and `values`: an array.array in C order."""

    def __init__(self, dtype, shape, values):
        """Copy `values`."""
        self.dtype, self.shape, self.values = dtype, tuple(shape), array(CODES[dtype], values)
        if len(self.values) != math.prod(self.shape):
            raise ValueError(f"{len(self.values)} numbers do not fill the shape {self.shape}")

    def like(self, values):
        """Other numbers, in the same shape and dtype."""
        return Array(self.dtype, self.shape, values)


def exactly(stream, count):
    """The next bytes, piece by piece: a length that is only claimed takes no memory."""
    pieces = []
    while count:
        piece = stream.read(min(count, 1 << 20))
        if not piece:
            raise BadFrameError("the input ends within a frame")
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def receive(stream):
    """The next message and its payload; None at the end of the input."""
    first = stream.read(1)
    if not first:
        return None
    magic, header_size, payload_size = PREFIX.unpack(first + exactly(stream, PREFIX.size - 1))
    if magic != MAGIC:
        raise BadFrameError("a frame has another beginning")
    if header_size > HEADER_MAX or payload_size > PAYLOAD_MAX:
        raise BadFrameError("a frame is too large")
    text, payload = exactly(stream, header_size), exactly(stream, payload_size)
    try:
        header = json.loads(text.decode())
        json.dumps(header, allow_nan=False)  # Python reads NaN and Infinity, which no JSON holds
    except (ValueError, RecursionError) as error:
        raise BadFrameError(f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadFrameError("the header is no object")
    return header, payload


def send(stream, message, arrays=()):
    """Write one frame; `arrays` are (role, name, Array)."""
    table, payload = [], bytearray()
    for role, name, found in arrays:
        data = found.values.tobytes()
        where = {"offset": len(payload), "nbytes": len(data)}
        block = {"role": role, "name": name, "dtype": found.dtype, "shape": found.shape}
        table.append({**block, **where})
        payload += data + bytes(-len(data) % 64)
    header = json.dumps({**message, "blocks": table} if arrays else message).encode()
    stream.write(PREFIX.pack(MAGIC, len(header), len(payload)) + header + payload)
    stream.flush()


def run(header, payload):
    """The answer to a `run`, as a message and its arrays."""
    offer, ask, dtype = OPERATORS.get(header["op"]), header["ask"], header["dtype"]
    if offer is None or ask not in offer["asks"] or dtype not in offer["dtypes"]:
        raise UnsupportedError(f"no {ask} of {header['op']} in {dtype}")
    arrays = {}
    for block in header["blocks"]:
        start, end = block["offset"], block["offset"] + block["nbytes"]
        if not 0 <= start <= end <= len(payload):
            raise ValueError(f"block {block['name']} lies outside of the payload")
        values = memoryview(payload)[start:end].cast(CODES[block["dtype"]])
        arrays[block["role"], block["name"]] = Array(block["dtype"], block["shape"], values)
    results = offer["asks"][ask](arrays, header["attrs"])
    role = "gradient" if ask == "vjp" else "output"
    return {"kind": "result"}, [(role, name, result) for name, result in results.items()]


def answer(header, payload):
    """The answer to any message but `bye`."""
    kind = header.get("kind")
    if kind == "run":
        return run(header, payload)
    if kind in ("ping", "reset"):  # there is no cache to forget
        return {"kind": "pong" if kind == "ping" else "done"}, ()
    if kind != "hello":
        raise ValueError(f"no such kind: {kind!r}")
    ops = {name: {**offer, "asks": list(offer["asks"])} for name, offer in OPERATORS.items()}
    return {"kind": "hello", "protocol": 1, "implementation": ABOUT, "ops": ops}, ()


def serve():
    """Answer until `bye` or the end of the input; the exit status."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an operator prints is no frame
    try:
        while (message := receive(source)) and message[0].get("kind") != "bye":
            arrays = ()
            try:
                said, arrays = answer(*message)
            except UnsupportedError as error:
                said = {"kind": "unsupported", "reason": str(error)}
            except Exception as error:  # noqa: BLE001  the next request may fare better
                trace = traceback.format_exc()
                said = {"kind": "error", "message": repr(error), "traceback": trace}
            send(sink, said | {k: v for k, v in message[0].items() if k == "seq"}, arrays)
    except BadFrameError as error:
        send(sink, {"kind": "error", "seq": None, "message": str(error)})
        return 1
    return 0


# ── part 2: operators, from arrays by (role, name) to results by name ────────────────────────


def rows(x):
    """The rows along the last axis."""
    return [x.values[i : i + x.shape[-1]] for i in range(0, len(x.values), x.shape[-1] or 1)]


def rms_norm(arrays, attrs):
    """Rows n = x/rms, 1/rms of each, and the gain (1 where there is no weight)."""
    x, w = rows(arrays["input", "x"]), arrays.get(("input", "w"))
    gain = w.values if w else [1.0] * arrays["input", "x"].shape[-1]
    gain = [1 + value for value in gain] if attrs["unit_offset"] else gain
    r = [1 / math.sqrt(sum(map(mul, row, row)) / len(row) + attrs["eps"]) for row in x]
    return [[v * s for v in row] for row, s in zip(x, r, strict=True)], r, gain


def rms_norm_forward(arrays, attrs):
    n, _, gain = rms_norm(arrays, attrs)
    return {"0": arrays["input", "x"].like([v for row in n for v in map(mul, row, gain)])}


def rms_norm_vjp(arrays, attrs):
    n, r, gain = rms_norm(arrays, attrs)
    dx, dw = [], [0.0] * len(gain)
    for row, s, ct in zip(n, r, rows(arrays["cotangent", "0"]), strict=True):
        g = list(map(mul, ct, gain))
        mean = sum(map(mul, g, row)) / len(row)
        dx += [s * (a - b * mean) for a, b in zip(g, row, strict=True)]
        dw = list(map(add, dw, map(mul, ct, row)))
    sums = {"w": arrays["input", "w"].like(dw)} if ("input", "w") in arrays else {}
    return {"x": arrays["input", "x"].like(dx), **sums}


def silu_forward(arrays, attrs):
    x = arrays["input", "x"]
    return {"0": x.like([v / (1 + math.exp(-v)) for v in x.values])}


def silu_vjp(arrays, attrs):
    """WRONG, for show: it lacks the term ct·x·s·(1 − s), where s = 1/(1 + exp(−x))."""
    x, ct = arrays["input", "x"], arrays["cotangent", "0"]
    return {"x": x.like([c / (1 + math.exp(-v)) for c, v in zip(ct.values, x.values, strict=True)])}


RMS_NORM = {"vjp": rms_norm_vjp, "forward": rms_norm_forward}
SILU = {"vjp": silu_vjp, "forward": silu_forward}
BOTH = ["float64", "float32"]
OPERATORS = {
    "rms_norm": {"asks": RMS_NORM, "dtypes": BOTH, "attrs": ["eps", "unit_offset"]},
    "silu": {"asks": SILU, "dtypes": BOTH, "attrs": []},
}
ABOUT = {"name": "grads.py", "version": "1", "language": "Python"}

if __name__ == "__main__":
    sys.exit(serve())
