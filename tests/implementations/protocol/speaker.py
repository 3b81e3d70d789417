"""A program that speaks GRADCHECK/1 in plain Python, or that lies in the way it is told to.

`python speaker.py LEVEL [LIE]`. A lie is the name of a function below that is called with every
answer before it is sent, and may change it, or send bytes of its own, or end the process.
"""

import array
import base64
import json
import math
import os
import signal
import struct
import sys
import time

MAGIC = b"GRDC\r\n\x1a\n"
CODES = {"float64": "d", "float32": "f", "float16": "H", "bfloat16": "H", "int64": "q"}
SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}
OUT = sys.stdout.buffer


ANSWERED = []


class UnreadableError(Exception):
    pass


def exactly(n):
    data = sys.stdin.buffer.read(n)
    if len(data) != n:
        raise UnreadableError("the input ended in the middle of a frame") if data else EOFError
    return data


def read_frame():
    prefix = sys.stdin.buffer.read(20)
    if not prefix:
        raise EOFError
    if len(prefix) < 20 or prefix[:8] != MAGIC:
        raise UnreadableError("no magic")
    size, payload = struct.unpack("<IQ", prefix[8:])
    if size > 1 << 24 or payload > 1 << 32:
        raise UnreadableError("too large")
    try:
        header = json.loads(exactly(size))
        blocks = header.get("blocks", [])
        data = exactly(payload) if payload else b""
        if any(b["offset"] < 0 or b["offset"] + b["nbytes"] > payload for b in blocks):
            raise UnreadableError("a block lies outside of the payload")
    except (EOFError, ValueError, AttributeError, RecursionError):
        raise UnreadableError("no JSON, or the input ended") from None
    return header, [data[b["offset"] : b["offset"] + b["nbytes"]] for b in blocks]


def read_line():
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    try:
        header = json.loads(line)
        blocks = header.get("blocks", [])
        return header, [base64.b64decode(b["b64"], validate=True) for b in blocks]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise UnreadableError("no JSON object") from None


def frame(header, blocks):
    table, payload = [], b""
    for entry, data in zip(header.get("blocks", []), blocks, strict=True):
        table.append({"offset": len(payload), "nbytes": len(data), **entry})
        payload += data + bytes(-len(data) % 64)
    text = json.dumps({**header, "blocks": table}).encode()
    return MAGIC + struct.pack("<IQ", len(text), len(payload)) + text + payload


def line(header, blocks):
    table = [
        {"b64": base64.b64encode(data).decode(), **entry}
        for entry, data in zip(header.get("blocks", []), blocks, strict=True)
    ]
    return json.dumps({**header, "blocks": table} if table else header).encode() + b"\n"


def encoded(header, blocks=()):
    return (frame if LEVEL == "frames" else line)(header, blocks)


def send(header, blocks=()):
    OUT.write(encoded(header, blocks))
    OUT.flush()


# ── operators ────────────────────────────────────────────────────────────────────────────────


class Tensors(dict):
    """Arrays by name, and their shapes."""


def tanh(ask, tensors, attrs):
    x = tensors["x"]
    if ask == "forward":
        return {"0": [math.tanh(v) for v in x]}
    return {"x": [c * (1 - math.tanh(v) ** 2) for c, v in zip(tensors["0"], x, strict=True)]}


def mul(ask, tensors, attrs):
    x, y = tensors["x"], tensors["y"]
    if len(x) != len(y):
        raise NotImplementedError("no broadcasting")
    if ask == "forward":
        return {"0": [a * b for a, b in zip(x, y, strict=True)]}
    ct = tensors["0"]
    return {
        "x": [c * b for c, b in zip(ct, y, strict=True)],
        "y": [c * a for c, a in zip(ct, x, strict=True)],
    }


def leaky_relu(ask, tensors, attrs):
    slope = attrs["negative_slope"]
    x = tensors["x"]
    if ask == "forward":
        return {"0": [v if v > 0 else slope * v for v in x]}
    return {"x": [c if v > 0 else slope * c for c, v in zip(tensors["0"], x, strict=True)]}


def clamp(ask, tensors, attrs):
    if (attrs["min"], attrs["max"]) != ("-inf", "inf"):
        raise NotImplementedError("clamps nothing")
    return {"0": tensors["x"]} if ask == "forward" else {"x": tensors["0"]}


def rms_norm(ask, tensors, attrs):
    x, w, d = tensors["x"], tensors.get("w"), tensors.shapes["x"][-1]
    out, dx, dw = [], [], [0.0] * d
    for i in range(0, len(x), d):
        row = x[i : i + d]
        r = 1 / math.sqrt(sum(v * v for v in row) / d + attrs["eps"])
        gain = w or [1.0] * d
        out += [v * r * g for v, g in zip(row, gain, strict=True)]
        if ask == "vjp":
            ct = tensors["0"][i : i + d]
            g = [c * k for c, k in zip(ct, gain, strict=True)]
            mean = sum(a * v * r for a, v in zip(g, row, strict=True)) / d
            dx += [r * (a - v * r * mean) for a, v in zip(g, row, strict=True)]
            dw = [a + c * v * r for a, c, v in zip(dw, ct, row, strict=True)]
    return {"0": out} if ask == "forward" else {"x": dx, **({"w": dw} if w else {})}


def qk_norm(ask, tensors, attrs):
    found = {}
    for i, (x, w) in enumerate((("q", "wq"), ("k", "wk"))):
        part = Tensors(x=tensors[x], w=tensors[w])
        part.shapes = {"x": tensors.shapes[x]}
        if ask == "vjp":
            part["0"] = tensors[str(i)]
        names = {"0": str(i), "x": x, "w": w}
        found |= {names[k]: v for k, v in rms_norm(ask, part, attrs).items()}
    return found


def get_rows(ask, tensors, attrs):
    x, rows, c = tensors["x"], tensors["rows"], tensors.shapes["x"][-1]
    if ask == "forward":
        return {"0": [v for r in rows for v in x[r * c : r * c + c]]}
    dx = [0.0] * len(x)
    for i, r in enumerate(rows):
        for j in range(c):
            dx[r * c + j] += tensors["0"][i * c + j]
    return {"x": dx}


def output_shape(op, name, shapes):
    if op == "qk_norm":
        return shapes["qk"[int(name)]]
    return [*shapes["rows"], shapes["x"][-1]] if op == "get_rows" else shapes["x"]


OPS = {
    "tanh": tanh,
    "get_rows": get_rows,
    "qk_norm": qk_norm,
    "mul": mul,
    "leaky_relu": leaky_relu,
    "clamp": clamp,
    "rms_norm": rms_norm,
}
OFFER = {"asks": ["vjp", "forward"], "dtypes": ["float64", "float32"]}


def hello():
    ops = {name: dict(OFFER) for name in OPS}
    ops["leaky_relu"]["attrs"] = ["negative_slope"]
    ops["tanh"]["attrs"] = []
    ops["clamp"]["dtypes"] = ["float64", "float32", "float16", "bfloat16"]
    ops["rms_norm"]["attrs"] = ops["qk_norm"]["attrs"] = ["eps"]
    about = {"name": "speaker", "version": "1", "language": "Python"}
    return {"kind": "hello", "protocol": 1, "implementation": about, "ops": ops}


def answer(header, blocks):
    kind, seq = header.get("kind"), header.get("seq")
    if kind == "hello":
        return hello(), []
    if kind == "ping":
        return {"kind": "pong", "seq": seq}, []
    if kind == "reset":
        return {"kind": "done", "seq": seq}, []
    if kind != "run":
        return {"kind": "error", "seq": seq, "message": f"unknown kind {kind!r}"}, []
    if header.get("op") not in OPS or silences(header):
        return {"kind": "unsupported", "seq": seq, "reason": "no such operator"}, []
    try:
        return run(header, blocks)
    except NotImplementedError as lack:
        return {"kind": "unsupported", "seq": seq, "reason": str(lack)}, []
    except Exception as error:  # noqa: BLE001  whatever was wrong with the request
        message = f"{type(error).__name__}: {error}"
        return {"kind": "error", "seq": seq, "message": message, "traceback": "in run"}, []


def run(header, blocks):
    if LIE == "dies_of_attributes" and "gradcheck" in header["attrs"]:
        os.abort()
    code = CODES[header["dtype"]]
    entries = header["blocks"]
    for entry, data in zip(entries, blocks, strict=True):
        if min(entry["shape"], default=0) < 0:
            raise ValueError("a length is negative")
        if math.prod(entry["shape"]) * SIZES[entry["dtype"]] != len(data):
            raise ValueError("a block has not the size that its shape says")
    tensors = Tensors()
    for entry, data in zip(entries, blocks, strict=True):
        tensors[entry["name"]] = array.array(CODES[entry["dtype"]], data)
        if LIE == "rounds_operands" and entry["role"] == "input" and entry["dtype"] == "float32":
            bits = array.array("I", data)  # to TF32: nearest, ties to even
            bits = array.array("I", [b + 0x0FFF + (b >> 13 & 1) & ~0x1FFF for b in bits])
            tensors[entry["name"]] = array.array("f", bits.tobytes())
    shapes = {e["name"]: e["shape"] for e in entries if e["role"] == "input"}
    tensors.shapes = shapes
    role = {"vjp": "gradient", "forward": "output"}[header["ask"]]
    found = OPS[header["op"]](header["ask"], tensors, header["attrs"])
    table, data = [], []
    for name, values in found.items():
        shape = shapes.get(name) or output_shape(header["op"], name, shapes)
        table.append({"role": role, "name": name, "dtype": header["dtype"], "shape": shape})
        data.append(array.array(code, values).tobytes())
    return {"kind": "result", "seq": header["seq"], "blocks": table}, data


# ── lies: each takes an answer, and gives another ────────────────────────────────────────────


def of(kind):
    """A lie that is told in one kind of answer alone."""

    def only(lie):
        def told(reply, blocks):
            return lie(reply, blocks) if reply["kind"] == kind else (reply, blocks)

        LIES[lie.__name__] = told
        return lie

    return only


LIES = dict.fromkeys(("", "silences"), lambda reply, blocks: (reply, blocks))


def silences(header):
    """Whether the operator that answered first has left others nothing to say."""
    FIRST.append(header.get("op"))
    return LIE == "silences" and header.get("op") != next(filter(None, FIRST), None)


FIRST = []


def block(**changes):
    """A lie that changes the entry of the first block."""

    def lie(reply, blocks):
        if reply["kind"] != "result":
            return reply, blocks
        first, *rest = reply["blocks"]
        return {**reply, "blocks": [{**first, **changes}, *rest]}, blocks

    return lie


def changed(kind, /, **changes):
    """A lie that changes keys of an answer; None takes a key away."""

    def lie(reply, blocks):
        if reply["kind"] != kind:
            return reply, blocks
        new = {**reply, **changes}
        return {k: v for k, v in new.items() if v is not None}, blocks

    return lie


LIES |= {
    "other_kind": changed("result", kind="answer"),
    "kind_is_a_number": changed("result", kind=3),
    "no_kind": changed("result", kind=None),
    "hello_for_result": changed("result", kind="hello"),
    "other_seq": changed("result", seq=10**6),
    "no_seq": changed("result", seq=None),
    "blocks_is_a_number": lambda r, b: (r, b) if r["kind"] != "result" else raw({**r, "blocks": 3}),
    "unknown_key": changed("result", mood="good"),
    "other_role": block(role="grad"),
    "other_name": block(name="weight"),
    "other_dtype": block(dtype="float16"),
    "hostile_dtype": block(dtype="\x1b[31m" + "float64" * 1000),
    "other_shape": block(shape=[1, 2, 3, 4, 5, 6, 7]),
    "negative_shape": block(shape=[-1]),
    "shape_is_text": block(shape="3"),
    "offset_outside": block(offset=1 << 20, nbytes=64),
    "offset_is_text": block(offset="0"),
    "version_2": changed("hello", protocol=2),
    "hello_without_ops": changed("hello", ops=None),
    "ops_is_a_list": changed("hello", ops=["tanh"]),
    "no_dtypes": changed("hello", ops={"tanh": {"asks": ["vjp"]}}),
    "misspelt": changed("hello", ops={"tahn": OFFER}),
    "offers_nothing": changed("hello", ops={}),
    "offers_everything": changed("hello", ops={f"tahn_{i}": OFFER for i in range(20_000)}),
    "offers_much": changed("hello", ops={f"tahn_{i}": OFFER for i in range(4000)}),
    "forward_alone": changed("hello", ops={"tanh": {**OFFER, "asks": ["forward"]}}),
    "no_attributes": changed("hello", ops={"leaky_relu": {**OFFER, "attrs": []}}),
    "single_alone": changed("hello", ops={"tanh": {**OFFER, "dtypes": ["float32"]}}),
}


def instead(kind, /, **reply):
    """A lie that gives another answer."""
    return lambda r, b: ({"seq": r.get("seq"), **reply}, []) if r["kind"] == kind else (r, b)


LIES |= {
    "unasked_error": instead("result", kind="error", message="\x1b[2J boom\n" * 999, traceback="t"),
    "unsupported": instead("result", kind="unsupported", reason="not\nhere"),
    "null_error": instead("result", kind="error", seq=None, message="unreadable"),
    "hello_error": instead("hello", kind="error", seq=None, message="not today"),
}


def raw(header):
    """Bytes of a frame or line whose header is sent as it is."""
    text = json.dumps(header).encode()
    OUT.write(
        MAGIC + struct.pack("<IQ", len(text), 0) + text if LEVEL == "frames" else text + b"\n"
    )
    OUT.flush()
    return None, None


@of("result")
def answers_ahead(reply, blocks):
    """And, beforehand, what would come next if requests were numbered one by one."""
    send(reply, blocks)
    return {**reply, "seq": reply["seq"] + 1}, blocks


@of("result")
def seq_as_text(reply, blocks):
    return {**reply, "seq": str(reply["seq"])}, blocks


@of("result")
def twice(reply, blocks):
    return {**reply, "blocks": [*reply["blocks"], reply["blocks"][0]]}, [*blocks, blocks[0]]


@of("result")
def too_short(reply, blocks):
    return reply, [blocks[0][:-1], *blocks[1:]]


@of("result")
def too_long(reply, blocks):
    return reply, [blocks[0] + b"\0", *blocks[1:]]


@of("result")
def one_more(reply, blocks):
    more = {**reply["blocks"][0], "name": "bias"}
    return {**reply, "blocks": [*reply["blocks"], more]}, [*blocks, blocks[0]]


@of("result")
def one_less(reply, blocks):
    return {**reply, "blocks": reply["blocks"][:-1]}, blocks[:-1]


@of("result")
def last_missing_in_vjp(reply, blocks):
    return (reply, blocks) if len(blocks) < 2 else one_less(reply, blocks)


@of("result")
def negated(reply, blocks):
    code = CODES[reply["blocks"][0]["dtype"]]
    values = array.array(code, blocks[0])
    return reply, [array.array(code, [-v for v in values]).tobytes(), *blocks[1:]]


@of("result")
def floods(reply, blocks):
    while True:
        OUT.write(b"x" * 1000 + b"\n")


@of("result")
def dies_every_other_time(reply, blocks):
    ANSWERED.append(reply["seq"])
    if len(ANSWERED) == 2:
        os.abort()
    return reply, blocks


@of("pong")
def rounds_seq(reply, blocks):
    seq = reply["seq"]
    return {**reply, "seq": int(seq) if isinstance(seq, float) else seq}, blocks


def first(kind, act):
    """A lie that does something before one kind of answer, which may be the end."""

    def lie(reply, blocks):
        if reply["kind"] == kind:
            act(reply, blocks)
        return reply, blocks

    return lie


def says(frame_bytes, line_bytes=None):
    """Writes bytes: those of a frame, or those of a line."""
    return lambda *_: OUT.write(frame_bytes if LEVEL == "frames" else line_bytes or frame_bytes)


def last_words(stream, text, status):
    """Writes bytes, and ends."""

    def act(*_):
        stream.write(text)
        stream.flush()
        os._exit(status)

    return act


def closes_stdout(*_):
    os.close(1)
    time.sleep(600)


def truncated(reply, blocks):
    last_words(OUT, encoded(reply, blocks)[:-3], 0)()


def instead_of_a_result(frame_bytes, line_bytes):
    """A lie that sends bytes and no answer."""

    def lie(reply, blocks):
        if reply["kind"] != "result":
            return reply, blocks
        says(frame_bytes, line_bytes)()
        OUT.flush()
        return None, None

    return lie


NOT_JSON = b"{kind: result}"
LIES |= {
    "prints": first("result", says(b"epoch 1: loss 0.3\n")),
    "prints_the_beginning_of_magic": first(
        "result", says(b"GRDGRDC\r\nGRDC\r\n\x1a", b"GRDC\n {\n")
    ),
    "complains": first("result", lambda *_: sys.stderr.write("warning: slow\n\x1b]0;title\x07")),
    "floods_stderr": first("result", lambda *_: sys.stderr.write(("y" * 1000 + "\n") * 1000)),
    "not_json": instead_of_a_result(
        MAGIC + struct.pack("<IQ", len(NOT_JSON), 0) + NOT_JSON, NOT_JSON + b"\n"
    ),
    "huge": instead_of_a_result(MAGIC + struct.pack("<IQ", 2**32 - 1, 2**63), b"{" * (1 << 25)),
    "truncated": first("result", truncated),
    "exits_0": first("result", lambda *_: sys.exit(0)),
    "exits_3": first("result", last_words(sys.stderr.buffer, b"out of luck\n", 3)),
    "says_why_on_stdout_and_exits": first("result", last_words(OUT, b"assertion failed: n > 0", 1)),
    "killed": first("result", lambda *_: os.kill(os.getpid(), signal.SIGKILL)),
    "hangs": first("result", lambda *_: time.sleep(600)),
    "closes_stdout": first("result", closes_stdout),
    "hangs_at_once": first("hello", lambda *_: time.sleep(600)),
    "exits_at_once": first("hello", last_words(OUT, b"usage: speaker WHAT\n", 2)),
    "deaf_to_ping": changed("pong", kind="done"),
    "never_lacks": lambda r, b: (
        ({"kind": "result", "seq": r["seq"], "blocks": []}, [])
        if r["kind"] == "unsupported"
        else (r, b)
    ),
    "dies_of_what_it_does_not_know": first("error", lambda *_: os.abort()),
}


def forgives():
    return 0


def aborts_on_garbage():
    os.abort()


GARBAGE = (forgives, aborts_on_garbage)
FAREWELLS = {"ignores_bye": None, "leaves_with_1": 1}
LIES |= dict.fromkeys(
    ["dies_of_attributes", "rounds_operands", *(one.__name__ for one in GARBAGE), *FAREWELLS],
    LIES[""],
)


def main():
    read = read_frame if LEVEL == "frames" else read_line
    garbage = {one.__name__: one for one in GARBAGE}
    while True:
        try:
            header, blocks = read()
        except EOFError:
            return 0
        except UnreadableError as error:
            if LIE in garbage:
                return garbage[LIE]()
            send({"kind": "error", "seq": None, "message": str(error)})
            return 1
        if header.get("kind") == "bye":
            code = FAREWELLS.get(LIE, 0)
            if code is None:
                continue
            return code
        reply, data = LIES[LIE](*answer(header, blocks))
        if reply is not None:
            send(reply, data)


if __name__ == "__main__":
    LEVEL, LIE = sys.argv[1], "".join(sys.argv[2:3])
    sys.exit(main())
