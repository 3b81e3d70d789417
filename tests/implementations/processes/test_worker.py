import os

import pytest

from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.worker import (
    ANSWERING,
    CALLING,
    HIGH,
    LOADING,
    Line,
    Machine,
    answer,
    serve,
)


@pytest.fixture
def machine():
    """What answers in the worker, here in this process, and what it has marked and checked."""
    marks = []
    made = Machine(marks.append, lambda: marks.append(b"check"))
    made.marks = marks
    return made


@pytest.fixture
def ask(machine):
    """`ask(request, *contents)`: the answer's header and the bytes of its blocks."""

    def made(request, *contents):
        mapped = {}
        said, blocks = answer(machine, request, [memoryview(c) for c in contents], mapped)
        found = [bytes(block.view()) for block in blocks]
        for block in mapped.values():
            block.free()
        return said, found

    return made


def script(*calls, blocks=()):
    return {"kind": "script", "calls": [*calls], "blocks": [*blocks]}


def buffer(name, access="write", **rest):
    return {"name": name, "access": access, "guard": "end", "align": 1, **rest}


def step(library, symbol, *arguments, returns="void", keep="", label=""):
    return {
        "library": library,
        "symbol": symbol,
        "arguments": [*arguments],
        "returns": returns,
        "keep": keep,
        "label": label,
    }


def test_marks_tell_loading_from_calling(machine, ask, library):
    said, _ = ask(script(step(library, "status", returns="int32"), step(library, "status")))
    assert said["returned"] == [-7, None]
    assert machine.marks == [LOADING, b"check", CALLING, b"check", CALLING, b"check"]


def test_memory_goes_in_and_comes_back(ask, library):
    put = step(library, "put", {"buffer": "x", "offset": 8}, ["float64", 0.0])
    said, found = ask(
        script(put, blocks=[buffer("x"), buffer("y", "read"), buffer("z")]),
        bytes([1]) * 16, b"read only", b"other",
    )  # fmt: skip
    assert said["kind"] == "outcome"
    assert [b["name"] for b in said["blocks"]] == ["x", "z"]
    assert found == [bytes([1]) * 8 + bytes(8), b"other"]


def test_a_stray_write_is_in_the_answer(ask, library):
    put = step(library, "put", {"buffer": "x", "offset": 8}, ["float64", 0.0])
    said, _ = ask(script(put, blocks=[buffer("x", align=64)]), bytes(8))
    assert said["strayed"] == {"x": "wrote up to 8 bytes past its end"}


def test_handles_are_kept_for_later_calls(ask, library):
    said, _ = ask(
        script(
            step(library, "make", ["int32", 1], returns="pointer", keep="h"),
            step(library, "put", {"kept": "h"}, ["float64", 1.5]),
            step(library, "get", {"kept": "h"}, returns="float64"),
        )
    )
    assert said["returned"] == [None, None, 1.5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "has no function 'nothing'"),
        (("get", {"kept": "h"}), "get takes 'h', which the script does not have"),
        (("get", ["int128", 1]), "no scalar type 'int128'"),
        (("get", ["uint16", 65536]), "cannot hold 65536"),
        (("get", ["uint16", 0.5]), "0.5 is no whole number"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(ask, library, arguments, words):
    said, found = ask(script(step(library, *arguments)))
    assert (said["kind"], found) == ("refused", [])
    assert words in said["message"]


def test_a_null_handle_is_refused_by_the_label(ask, library):
    made = step(library, "make", ["int32", -1], returns="pointer", keep="h", label="new")
    assert ask(script(made))[0]["message"] == "new returned a null pointer"


def test_a_library_that_is_not_there_is_refused_with_the_loaders_words(ask):
    said, _ = ask({"kind": "inspect", "library": "/not/there.so", "symbols": []})
    assert "/not/there.so: cannot open shared object file" in said["message"]


def test_inspecting_says_which_functions_are_there(ask, library):
    request = {"kind": "inspect", "library": library, "symbols": ["get", "got", "_name"]}
    assert ask(request)[0] == {"kind": "symbols", "present": ["get"]}


class Talk:
    """A line to a parent that has said everything already."""

    def __init__(self, *requests):
        self.said = bytearray(b"".join(bytes(p) for r in requests for p in frames.pieces(*r)))
        self.heard, self.restored, self.stamp = bytearray(), 0, b""

    def exactly(self, n):
        found = self.said[:n]
        del self.said[:n]
        return found

    def write(self, piece):
        self.heard += piece

    def restore(self):
        self.restored += 1


def test_a_request_is_answered_after_a_mark_and_its_memory_is_freed(machine, library):
    put = step(library, "put", {"buffer": "x", "offset": 0}, ["float64", 0.0])
    stamp = frames.new_stamp()
    asked = {**script(put, blocks=[buffer("x")]), "stamp": stamp.hex()}
    talk = Talk((asked, [bytes([1]) * 16]))
    serve(machine, talk)
    assert talk.heard[:1] == ANSWERING
    rest = talk.heard[1:]
    frame = frames.read(lambda n: take(rest, n), stamp=stamp)
    assert bytes(frame.blocks[0]) == bytes(8) + bytes([1]) * 8
    assert talk.restored == 1


def take(store, n):
    found = bytes(store[:n])
    del store[:n]
    return found


def test_the_line_keeps_out_of_the_way_and_knows_its_descriptors():
    (requests, mine), (hers, answers) = os.pipe(), os.pipe()
    line = Line(requests, answers)
    try:
        os.write(mine, b"hello")
        assert line.exactly(5) == b"hello"
        line.write(memoryview(b"answer"))
        assert os.read(hers, 100) == b"answer"
        line.check()
        assert min(line._mine) >= HIGH
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(requests)
    finally:
        for descriptor in (mine, hers, *line._mine, line._capture):
            os.close(descriptor)


def test_a_buffer_of_an_unknown_kind_is_refused(ask):
    said, _ = ask(script(blocks=[buffer("x", guard="nowhere")]), b"a")
    assert said["message"] == "guard is 'nowhere'; make it 'end', 'start' or 'off'"
