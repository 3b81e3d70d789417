"""Answers are held against what was asked; what does not fit is said in one short sentence."""

import json
import math
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gradcheck_cases import SUITE

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
from gradcheck.implementations.protocol.message import (
    Block,
    Done,
    Failure,
    Form,
    Hello,
    Pong,
    Request,
    Result,
    Violation,
    as_json,
    check_seq,
    fitting,
    parse,
    shown,
    tame,
)
from gradcheck.numerics.arithmetic import F64

X = Form(role="gradient", name="x", dtype="float32", shape=(2, 3))
B = Form(role="gradient", name="bias", dtype="float32", shape=())


def request(*wanted, ask="vjp"):
    return Request(op="add", ask=ask, dtype="float32", wanted=wanted)


def changed(form, **changes):
    return Form(**{name: changes.get(name, getattr(form, name)) for name in form.__struct_fields__})


HELLO = {
    "kind": "hello",
    "protocol": 1,
    "implementation": {"name": "mine"},
    "ops": {"add": {"asks": ["vjp"], "dtypes": ["float64"], "attrs": ["axis"]}},
}


RESULT = {"kind": "result", "seq": 1}
DX = {"role": "gradient", "name": "x", "dtype": "float64"}


def test_a_message_is_read_and_what_is_not_known_is_ignored():
    hello = parse({**HELLO, "colour": "red"}, Hello)
    assert hello.ops["add"].attrs == ("axis",)
    assert hello.implementation.language == ""
    assert parse({"kind": "pong", "seq": [1]}, Pong, Failure).seq == [1]
    assert parse({"kind": "done", "seq": 3}, Done).seq == 3


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({}, "the kind null"),
        ({"kind": 3}, "the kind 3"),
        ({"kind": ["result"]}, "the kind"),
        ({"kind": "res\x1bult"}, 'the kind "res ult"; `result` is expected'),
        ({"kind": "pong", "seq": 1}, "the answer is a `pong` where `result` is expected"),
        ({"kind": "result", "blocks": []}, "missing required field `seq`"),
        ({"kind": "result", "seq": 1}, "missing required field `blocks`"),
        ({"kind": "result", "seq": 1, "blocks": {}}, "Expected `array`"),
        ({"kind": "result", "seq": 1, "blocks": [3]}, "Expected `object`"),
        ({**RESULT, "blocks": [{"role": "gradient", "name": 1}]}, "Expected `str`"),
        ({**RESULT, "blocks": [{**DX, "shape": [1.5]}]}, "shape"),
    ],
)
def test_a_message_of_another_form_is_a_violation(header, said):
    with pytest.raises(Violation, match=said) as caught:
        parse(header, Result)
    assert str(caught.value).startswith("protocol: ")


def test_blocks_that_fit_are_given_back_and_a_missing_one_is_absent():
    block = Block(X, bytes(24))
    assert fitting(request(X, B), [block]) == {"x": block}
    assert fitting(request(X, B), [Block(B, bytes(4)), block]).keys() == {"x", "bias"}


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([Block(changed(X, role="grad"), bytes(24))], 'the role "grad"'),
        ([Block(changed(X, role="output"), bytes(24))], "role 'gradient'"),
        ([Block(changed(X, name="y"), bytes(24))], "asked for were x, bias"),
        ([Block(X, bytes(24)), Block(X, bytes(24))], "comes twice"),
        ([Block(changed(X, dtype="float64"), bytes(48))], "is float64; make it float32"),
        ([Block(changed(X, dtype="float8"), bytes(6))], "is float8; make it float32"),
        ([Block(changed(X, shape=(3, 2)), bytes(24))], r"shape \[3, 2\], not \[2, 3\]"),
        ([Block(changed(X, shape=(6,)), bytes(24))], r"shape \[6\], not"),
        ([Block(changed(B, shape=(1,)), bytes(4))], r"shape \[1\], not \[\]"),
        ([Block(X, bytes(23))], "comes with 23 bytes"),
        ([Block(X, bytes(28))], r"float32 of shape \[2, 3\] has 24"),
        ([Block(B, b"")], "comes with 0 bytes"),
    ],
)
def test_blocks_that_answer_something_else_are_violations(blocks, said):
    with pytest.raises(Violation, match=said):
        fitting(request(X, B), blocks)


def test_a_seq_comes_back_as_it_was():
    others = [1, "1", None, True, 0.5, [1], {"a": 1}, 1.5, 0]
    for seq in (1, "1", None, True, 0.5, [1, {"a": []}], {"a": 1, "b": 2}):
        check_seq(json.loads(json.dumps(seq)), seq)
        for other in others:
            if json.dumps(other) != json.dumps(seq):
                with pytest.raises(Violation, match="seq") as caught:
                    check_seq(other, seq)
                assert caught.value.derailed
    check_seq({"b": 2, "a": 1}, {"a": 1, "b": 2})  # in any order


def test_attributes_become_json():
    found = as_json((1, math.inf, [-math.inf, math.nan, None, "inf", (0.1, True)]))
    assert found == [1, "inf", ["-inf", "nan", None, "inf", [0.1, True]]]
    json.dumps(found, allow_nan=False)


def test_a_request_says_everything_but_the_bytes():
    block = Block(Form(role="input", name="x", dtype="float32", shape=(2,)), bytes(8))
    header = Request(op="add", ask="vjp", dtype="float32", attrs={"n": 1}, blocks=(block,)).header(
        9
    )
    assert json.loads(json.dumps(header)) == {
        "kind": "run",
        "seq": 9,
        "op": "add",
        "ask": "vjp",
        "dtype": "float32",
        "attrs": {"n": 1},
        "blocks": [{"role": "input", "name": "x", "dtype": "float32", "shape": [2]}],
    }


def test_a_foreign_text_is_one_short_printable_line():
    for text in ("a\nb", "\x1b[2J", "\ud800", "x" * 10**6, " " * 10**6, "\u202e"):
        for found in (tame(text), shown(text), shown([text]), shown(text, bare=True)):
            assert found.isprintable()
            assert len(found) <= 510
            found.encode()


def test_what_is_deeply_nested_can_be_shown_and_compared():
    deep = []
    for _ in range(10**5):
        deep = [deep]
    assert shown(deep)
    with pytest.raises(Violation):
        check_seq(deep, 1)


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


def test_what_is_printed_before_an_answer_is_set_aside(level):
    for noise in (b"epoch 1\n", b"G\n", b"GRDC\n", b"GRDGRDC\r\n\x1a", b"\xff\n\n"):
        if level == "jsonl" and not noise.endswith(b"\n"):
            noise += b"\n"  # noqa: PLW2901
        header, _, printed = received(level, noise + encoded(level, {"kind": "pong", "seq": 1}))
        assert header["seq"] == 1
        assert printed.encode() == noise.replace(b"\xff", "\ufffd".encode())


@pytest.mark.slow(keep=1)
def test_a_flood_is_no_answer(level):
    noise = b"x" * 99 + b"\n"
    with pytest.raises(Violation, match="no answer; print on standard error") as caught:
        received(level, noise * (STRAY_MAX // 100 + 2))
    assert caught.value.derailed


@pytest.mark.slow(keep=1)
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


HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
CLIENTS = HERE.parents[2] / "examples" / "protocol"
GOLDEN_X = np.array([[0.5, -1.25, 2.0], [0.0, 0.75, -3.0]])
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
        run(1, "vjp", "float64", x=GOLDEN_X, w=W, _0=CT),
        run("two", "forward", "float32", x=GOLDEN_X, w=W),
        run(3, "vjp", "float32", x=GOLDEN_X, _0=CT),
        run(4, "vjp", "float64", x=GOLDEN_X[:0], w=W, _0=CT[:0]),
        ({**run(5, "vjp", "float64", x=GOLDEN_X, _0=CT)[0], "op": "no_such_operator"},
         run(5, "vjp", "float64", x=GOLDEN_X, _0=CT)[1]),
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
        spec.vjp(F64, CT, GOLDEN_X, W, **ATTRS),
        (spec.forward(F64, GOLDEN_X, W, **ATTRS),),
        (spec.vjp(F64, CT, GOLDEN_X, **ATTRS),),
        (np.zeros((0, 3)), np.zeros(3)),
    ]
    for (header, data), arrays in zip(found[2:6], want, strict=True):
        for entry, raw, array in zip(header["blocks"], data, arrays, strict=True):
            got = np.frombuffer(raw, entry["dtype"]).reshape(entry["shape"])
            assert np.allclose(got, array, rtol=0, atol=8 * np.finfo(entry["dtype"]).eps)


@pytest.mark.slow(keep=1)
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


@pytest.mark.slow(keep=1, rest=2)
@pytest.mark.parametrize("source", sorted(CLIENTS.glob("*/grads.*")), ids=lambda path: path.name)
def test_a_client_of_the_examples_answers_so(source, tmp_path):
    compare(answers(command(source, tmp_path), "frames"))
