"""A conversation on file: what we write never changes, and who speaks the protocol answers it so.

`golden/requests.frames` and `golden/requests.jsonl` are the bytes of one conversation;
`golden/answers.jsonl` is what answers it, in level `jsonl`, numbers to rounding.
"""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.protocol.levels import LEVELS, Recorded, Strays, encoded
from gradcheck.numerics.arithmetic import F64

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
CLIENTS = HERE.parents[2] / "examples" / "protocol"
X = np.array([[0.5, -1.25, 2.0], [0.0, 0.75, -3.0]])
W = np.array([1.5, -0.5, 2.0])
CT = np.array([[1.0, -2.0, 0.25], [0.5, 4.0, -1.0]])
ATTRS = {"eps": 0.125, "unit_offset": False}


def tensors(dtype, **arrays):
    """Entries and bytes of blocks: `x=` an input, `_0=` a cotangent."""
    entries, data = [], []
    for name, array in arrays.items():
        role, name = ("cotangent", "0") if name == "_0" else ("input", name)  # noqa: PLW2901
        entries.append({"role": role, "name": name, "dtype": dtype, "shape": list(array.shape)})
        data.append(array.astype(dtype).tobytes())
    return entries, data


def run(seq, ask, dtype, **arrays):
    entries, data = tensors(dtype, **arrays)
    header = {"kind": "run", "seq": seq, "op": "rms_norm", "ask": ask, "dtype": dtype,
              "attrs": ATTRS, "blocks": entries}  # fmt: skip
    return header, data


def conversation():
    return [
        ({"kind": "hello", "protocol": [1]}, []),
        ({"kind": "ping", "seq": {"any": ["JSON", None, 0.5]}}, []),
        run(1, "vjp", "float64", x=X, w=W, _0=CT),
        run("two", "forward", "float32", x=X, w=W),
        run(3, "vjp", "float32", x=X, _0=CT),
        run(4, "vjp", "float64", x=X[:0], w=W, _0=CT[:0]),
        ({**run(5, "vjp", "float64", x=X, _0=CT)[0], "op": "no_such_operator"},
         run(5, "vjp", "float64", x=X, _0=CT)[1]),
        ({"kind": "no_such_kind", "seq": 6}, []),
        ({"kind": "reset", "seq": 7}, []),
        ({"kind": "bye"}, []),
    ]  # fmt: skip


def messages(level, data, count):
    """`count` messages, and nothing else."""
    recorded, strays = Recorded(data), Strays()
    way = LEVELS[level](recorded, strays)
    found = [way.receive(1 << 20) for _ in range(count)]
    assert recorded.rest() == b"", "there are more answers than requests"
    assert strays.take() == ""
    return found


def answers(program, level):
    """What a program answers; it must end with status 0."""
    given = (GOLDEN / f"requests.{level}").read_bytes()
    done = subprocess.run(program, input=given, capture_output=True, timeout=300, check=True)
    return messages(level, done.stdout, len(conversation()) - 1)


def compare(found):
    wanted = messages("jsonl", (GOLDEN / "answers.jsonl").read_bytes(), len(found))
    for (header, data), (want, numbers) in zip(found, wanted, strict=True):
        kinds = {want["kind"]} | ({"error"} if want["kind"] == "unsupported" else set())
        assert header["kind"] in kinds
        if want["kind"] == "hello":
            assert header["protocol"] == 1
            assert {"vjp", "forward"} <= set(header["ops"]["rms_norm"]["asks"])
            continue
        assert header["seq"] == want["seq"]
        forms = [[{k: e[k] for k in ("role", "name", "dtype", "shape")} for e in h["blocks"]]
                 for h in (header, want)] if want["kind"] == "result" else [[], []]  # fmt: skip
        assert sorted(forms[0], key=str) == sorted(forms[1], key=str)
        got = {e["name"]: bytes(d) for e, d in zip(forms[0], data, strict=False)}
        for entry, number in zip(forms[1], numbers, strict=False):
            a, b = (np.frombuffer(v, entry["dtype"]) for v in (got[entry["name"]], number))
            ok = np.abs(a - b) <= 8 * np.finfo(entry["dtype"]).eps * np.abs(b).max(initial=1.0)
            assert ok.all(), (header, a, b)


@pytest.mark.parametrize("level", ["frames", "jsonl"])
def test_what_we_write_is_what_we_always_wrote(level):
    now = b"".join(encoded(level, header, blocks) for header, blocks in conversation())
    assert now == (GOLDEN / f"requests.{level}").read_bytes()


def test_a_frame_is_what_the_document_says():
    data = (GOLDEN / "requests.frames").read_bytes()
    sizes = []
    while data:
        magic, header, payload = struct.unpack("<8sIQ", data[:20])
        assert magic == b"GRDC\r\n\x1a\n"
        assert payload % 64 == 0
        sizes.append(payload)
        data = data[20 + header + payload :]
    assert sizes == [0, 0, 64 * 3, 64 * 2, 64 * 2, 64, 64 * 2, 0, 0, 0]


def test_the_answers_on_file_are_right():
    spec = SUITE.operators["rms_norm"]
    found = messages("jsonl", (GOLDEN / "answers.jsonl").read_bytes(), len(conversation()) - 1)
    want = [
        spec.vjp(F64, CT, X, W, **ATTRS),
        (spec.forward(F64, X, W, **ATTRS),),
        (spec.vjp(F64, CT, X, **ATTRS),),
        (np.zeros((0, 3)), np.zeros(3)),
    ]
    for (header, data), arrays in zip(found[2:6], want, strict=True):
        for entry, raw, array in zip(header["blocks"], data, arrays, strict=True):
            got = np.frombuffer(raw, entry["dtype"]).reshape(entry["shape"])
            assert np.allclose(got, array, rtol=0, atol=8 * np.finfo(entry["dtype"]).eps)


@pytest.mark.parametrize("level", ["frames", "jsonl"])
def test_the_speaker_of_these_tests_answers_so(level):
    compare(answers([sys.executable, "-I", "-S", HERE / "speaker.py", level], level))


def test_a_wrong_answer_is_noticed():
    program = [sys.executable, "-I", "-S", HERE / "speaker.py", "frames", "negated"]
    with pytest.raises(AssertionError):
        compare(answers(program, "frames"))


COMPILERS = {
    ".c": ["gcc", "-O1", "-o", "{to}", "{source}", "-lm"],
    ".rs": ["rustc", "-O", "--edition", "2021", "-o", "{to}", "{source}"],
    ".go": ["go", "build", "-o", "{to}", "{source}"],
}
INTERPRETERS = {".py": sys.executable, ".js": "node"}


def command(source, folder):
    """How a client is called; it is compiled if need be."""
    ending = source.suffix
    tool = INTERPRETERS.get(ending) or COMPILERS[ending][0]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    if ending in INTERPRETERS:
        return [tool, source]
    words = [word.format(to=folder / "grads", source=source) for word in COMPILERS[ending]]
    subprocess.run(words, check=True, capture_output=True, cwd=source.parent)
    return [folder / "grads"]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("source", sorted(CLIENTS.glob("*/grads.*")), ids=lambda path: path.name)
def test_a_client_of_the_examples_answers_so(source, tmp_path):
    compare(answers(command(source, tmp_path), "frames"))
