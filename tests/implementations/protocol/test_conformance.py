"""A program that speaks well passes every check; one that does not is told where."""

import json
import random
import struct

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.conformance import oneshot, session
from gradcheck.cli.conformance.broken import Target, lasts, wrong_with
from gradcheck.errors import LoadError, UnknownNameError
from gradcheck.implementations.processes.frames import MAGIC, PREFIX, FrameError, read
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


@pytest.fixture
def probed(program):
    """The checks of a liar, by name; only one operator is asked for, which is enough."""

    def call(level="frames", lie="", ops=("tanh",), timeout=60.0):
        module = oneshot if level == "oneshot" else session
        checks = list(module.checks(program(level, lie, timeout=timeout), SUITE, ops))
        found = {check.name: check for check in checks}
        assert len(found) == len(checks)
        return found

    return call


def failing(found):
    return {name for name, check in found.items() if check.outcome == "FAIL"}


@pytest.mark.slow(keep=1)
def test_a_program_that_speaks_well_passes(probed, level):
    found = probed(level, ops=["tanh", "leaky_relu", "rms_norm"])
    assert {check.outcome.value for check in found.values()} == {"ok"}
    assert {"tanh in float64", "rms_norm in float32", "two requests at once"} <= set(found)
    assert len(found) >= 30


@pytest.mark.slow
def test_a_oneshot_program_that_answers_well_passes(probed):
    found = probed("oneshot", ops=["tanh", "silu"])
    assert {check.outcome.value for check in found.values()} == {"ok"}
    assert found["operators that it lacks"].says == "exit status 3 for 2 of 4"
    assert {"tanh in float32", "an input that was cut short"} <= set(found)


RUNS = dict.fromkeys(
    ("tanh in float64", "tanh in float32", "empty arrays", "arrays of no dimension"), ""
)
SUITES = "operators, dtypes and attributes are the suite's"
UNKNOWN = "a kind that it does not know"
LIES = [
    ("frames", "other_seq", RUNS),
    ("jsonl", "other_shape", RUNS),
    ("frames", "twice", RUNS),
    ("jsonl", "killed", RUNS),
    ("frames", "one_more", RUNS),
    ("jsonl", "seq_as_text", RUNS),
    ("frames", "prints", {"nothing on standard output but answers": ""}),
    ("jsonl", "prints", {"nothing on standard output but answers": ""}),
    ("frames", "rounds_seq", {"`ping`, with any `seq`": ""}),
    ("jsonl", "leaves_with_1", {"`bye`": ""}),
    ("frames", "dies_of_attributes", {"an attribute that it does not know": ""}),
    ("frames", "misspelt", {SUITES: "no operator \"tahn\"; did you mean 'tanh'?"}),
    ("jsonl", "never_lacks", {"an operator that it does not know": "", "a block of 16 MB": ""}),
    ("frames", "never_lacks", {"an operator that it does not know": "", "a block of 16 MB": ""}),
    ("frames", "dies_of_what_it_does_not_know", {UNKNOWN: "SIGABRT"}),
    ("jsonl", "dies_of_what_it_does_not_know", {UNKNOWN: "SIGABRT"}),
    (
        "frames",
        "forgives",
        {"a header that is no JSON": "", "the end of the input within a payload": ""},
    ),
    ("frames", "aborts_on_garbage", {"a frame with another beginning": "SIGABRT"}),
    ("frames", "hello_without_ops", {"`hello`": "field `ops`"}),
    ("oneshot", "short", {"tanh in float64": ""}),
    ("oneshot", "exits_4", {"tanh in float64": ""}),
    ("oneshot", "aborts", {"tanh in float64": ""}),
]
MANY = ("dies_of_what_it_does_not_know", "forgives", "aborts_on_garbage")
"""Lies that fail many checks besides."""


@pytest.mark.slow(keep=1, rest=2)
@pytest.mark.parametrize(("level", "lie", "says"), LIES)
def test_a_lie_is_told_where_it_is(probed, level, lie, says):
    found = probed(level, lie)
    assert says.keys() <= failing(found)
    assert [name for name, said in says.items() if said not in found[name].says] == []
    if level != "oneshot" and lie not in MANY:
        assert len(failing(found)) <= len(says) + 4
    if lie == "hello_without_ops":
        assert [*found] == ["`hello`"]  # nothing else can be asked


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    ("lie", "ops", "name", "says"),
    [
        ("", ["clamp"], "clamp in float64", "it lacks this: clamps nothing"),
        ("negated", ["tanh"], "tanh in float64", "form is right, its numbers are not: forward, x"),
        ("offers_nothing", ["tanh"], "empty arrays", "none of its operators takes them"),
    ],
)
def test_what_is_noted_and_no_fault(probed, lie, ops, name, says):
    found = probed(lie=lie, ops=ops)
    assert failing(found) == set()
    assert says in found[name].says


@pytest.mark.slow
def test_hanging_is_told(program):
    """The deadline is short, and meant to pass; so whether others pass with it is not asked."""
    liar = program("frames", "ignores_bye", timeout=1.0)
    found = {check.name: check for check in session.checks(liar, SUITE, ["tanh"])}
    assert "did not end within 1 s" in found["`bye`"].says


@pytest.mark.slow
def test_of_many_misspelt_operators_a_few_are_looked_at(probed, monkeypatch):
    looked = []
    monkeypatch.setattr(session, "_nearest", lambda name, known: looked.append(name) or "")
    found = probed("jsonl", "offers_much")
    assert found[SUITES].outcome == "FAIL"
    assert len(looked) == 8
    assert found["`hello`"].says.endswith(", tahn_999, and 3000 more")


def test_a_program_that_does_not_start_cannot_be_probed(program, probed):
    for lie in ("exits_at_once", "version_2"):
        with pytest.raises(LoadError):
            probed(lie=lie)
    with pytest.raises(UnknownNameError):
        probed(ops=["no_such_operator"])
    lost = program("oneshot")
    object.__setattr__(lost, "command", ("./nothing-here",))
    with pytest.raises(LoadError):
        list(oneshot.checks(lost, SUITE, ["tanh"]))


@pytest.mark.slow
def test_folders_that_are_none_must_be_refused(probed):
    broken = {"a folder without `meta.txt`", "an input that was cut short", "no folder at all"}
    for lie, said in {"forgives": "status 0", "aborts_on_garbage": "SIGABRT"}.items():
        found = probed("oneshot", lie)
        assert broken <= failing(found)
        assert all(said in found[name].says for name in broken)
        assert "tanh in float64" not in failing(found)


ERROR = {"kind": "error", "seq": None, "message": "no"}
RESULT = {"kind": "result", "seq": 1, "blocks": []}


def named(level, name):
    return next(last for last in lasts(level, Target()) if name in last.name)


def verdict(level, name, code, *messages):
    said = b"".join(encoded(level, message) for message in messages)
    return wrong_with(named(level, name), level, code, said)


def test_each_is_named_once(level):
    names = [last.name for last in lasts(level, Target())]
    assert len(names) == len(set(names)) >= 10


def test_none_of_the_broken_frames_can_be_read():
    for last in lasts("frames", Target()):
        if "shape" in last.name or "length" in last.name or "elements" in last.name:
            continue  # well framed, at odds with itself
        if "nested" in last.name or "`bye`" in last.name:
            continue
        place = 0

        def exactly(n, data=last.data):
            nonlocal place
            place += n
            if place > len(data):
                raise EOFError
            return data[place - n : place]

        with pytest.raises((FrameError, EOFError)):
            read(exactly)


def test_what_is_at_odds_with_itself_is_framed_well():
    for last in lasts("frames", Target()):
        if last.name.startswith("a block") and "payload" not in last.name:
            magic, header, payload = struct.unpack("<8sIQ", last.data[:20])
            assert magic == MAGIC
            assert len(last.data) == 20 + header + payload


def test_a_target_of_narrow_elements_has_the_same_bytes():
    (block,) = Target(op="silu", dtype="float16").run()["blocks"]
    assert (block["dtype"], block["shape"]) == ("float16", [12])


@pytest.mark.parametrize(
    ("name", "code", "messages", "said"),
    [
        ("another beginning", 1, [], ""),
        ("another beginning", 1, [ERROR], ""),
        ("another beginning", 0, [ERROR], "exited with status 0"),
        ("another beginning", 1, [RESULT], "answer `error`"),
        ("another beginning", 1, [{**ERROR, "seq": 3}], '"seq": null'),
        ("another beginning", -11, [ERROR], "SIGSEGV"),
        ("within a payload", 0, [], "exited with status 0"),
        ("negative offset", 0, [{**ERROR, "seq": 1}], ""),
        ("negative offset", 0, [{"kind": "unsupported", "seq": 1, "reason": ""}], ""),
        ("negative offset", 1, [], ""),
        ("negative offset", 0, [], "said nothing"),
        ("negative offset", 0, [RESULT], "it answered"),
        ("negative offset", -6, [], "SIGABRT"),
        ("deeply nested", 0, [{"kind": "pong", "seq": 1}], ""),
        ("deeply nested", 0, [ERROR], ""),
        ("deeply nested", 1, [], ""),
        ("deeply nested", 0, [], "said nothing"),
        ("deeply nested", 0, [RESULT], "it answered"),
        ("deeply nested", -11, [], "SIGSEGV"),
        ("`bye`", 0, [], ""),
        ("`bye`", 1, [], "exit with 0"),
        ("`bye`", 0, [RESULT], "nothing was asked"),
        ("the end of the input without", 1, [], ""),
        ("the end of the input without", -9, [], "SIGKILL"),
        ("the end of the input without", 0, [RESULT], "nothing was asked"),
    ],
)
def test_an_end_is_held_against_its_rule(name, code, messages, said):
    found = verdict("frames", name, code, *messages)
    assert said in found
    assert bool(said) == bool(found)


def test_half_a_line_may_be_ignored_but_not_answered():
    assert verdict("jsonl", "within a line", 0) == ""
    assert verdict("jsonl", "within a line", 1, ERROR) == ""
    assert "it answered" in verdict("jsonl", "within a line", 0, RESULT)


def test_what_is_printed_instead_of_an_answer_is_shown(level):
    last = named(level, "the end of the input without")
    assert "print on standard error" in wrong_with(last, level, 1, b"Traceback \x1b[1m\n")


def test_an_answer_that_is_none_is_shown():
    last = named("frames", "another beginning")
    assert "list" in wrong_with(last, "frames", 1, struct.pack("<8sIQ", MAGIC, 2, 0) + b"[]")


FORM = {"role": "gradient", "name": "x", "dtype": "float64", "shape": [3]}
REQUEST = Request(
    op="tanh",
    ask="vjp",
    dtype="float64",
    wanted=(Form(role="gradient", name="x", dtype="float64", shape=(3,)),),
)
RESULT_LINE = {"kind": "result", "seq": 1, "blocks": [FORM]}
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
    assert understood(level, encoded(level, RESULT_LINE, [DATA])) == "answered"


@pytest.mark.slow(keep=1)
def test_flipped_cut_and_doubled_bytes_are_understood_or_refused(level):
    draw = random.Random(f"hostile bytes {level}")
    whole = encoded(level, RESULT_LINE, [DATA])
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
FRAMED = {**RESULT_LINE, "blocks": [{**FORM, "offset": 0, "nbytes": 24}]}
LINED = {**RESULT_LINE, "blocks": [{**FORM, "b64": "AAAAAAAA8D8AAAAAAAAAQAAAAAAAAAhA"}]}


def sent(message, text):
    """The bytes of a message whose header is `text`, with a payload where it has one."""
    if message is LINED:
        return text + b"\n"
    payload = DATA + bytes(40)
    return PREFIX.pack(MAGIC, len(text), len(payload)) + text + payload


@pytest.mark.parametrize("message", [HELLO, FRAMED, LINED], ids=["hello", "frame", "line"])
def test_every_part_may_be_anything_and_none_missing(message):
    level = "jsonl" if message is LINED else "frames"
    seen = set()
    for path in places(message):
        for value in VALUES:
            text = json.dumps(replaced(message, path, value)).encode()
            seen.add(understood(level, sent(message, text)))
        if message is not HELLO and path and isinstance(path[-1], str):
            parent = message
            for key in path[:-1]:
                parent = parent[key]
            smaller = {k: v for k, v in parent.items() if k != path[-1]}
            text = json.dumps(replaced(message, path[:-1], smaller)).encode()
            assert understood(level, sent(message, text)) == "violation"
    assert {"answered", "violation"} <= seen
