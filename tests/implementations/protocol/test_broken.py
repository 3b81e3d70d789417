"""What may become of a program that hears something broken, and what may not."""

import struct

import pytest

from gradcheck.cli.conformance.broken import Target, lasts, wrong_with
from gradcheck.implementations.processes.frames import MAGIC, BadFrame, read
from gradcheck.implementations.protocol.levels import encoded

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

        with pytest.raises((BadFrame, EOFError)):
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
