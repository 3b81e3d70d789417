"""An exit status is an answer; whatever else a program leaves behind is said in words."""

import math
import struct

import pytest

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.processes.crash_or_hang import Ended
from gradcheck.implementations.protocol.message import Block, Form, Request, Violation
from gradcheck.implementations.protocol.session import Failed, Oneshot
from gradcheck.results.verdict import Verdict


def request(ask="vjp", op="tanh"):
    def block(role, name):
        form = Form(role=role, name=name, dtype="float64", shape=(2,))
        return Block(form, struct.pack("<2d", 0.5, -2.0))

    role, name = {"vjp": ("gradient", "x"), "forward": ("output", "0")}[ask]
    blocks = [block("input", "x"), *([block("cotangent", "0")] if ask == "vjp" else [])]
    wanted = (Form(role=role, name=name, dtype="float64", shape=(2,)),)
    return Request(op=op, ask=ask, dtype="float64", blocks=tuple(blocks), wanted=wanted)


@pytest.fixture
def run(program):
    def call(lie="", ask="vjp", op="tanh", **options):
        return Oneshot(program("oneshot", lie, **options)).run(request(ask, op))

    return call


def test_a_request_is_answered_by_files(run):
    assert struct.unpack("<2d", run(ask="forward")["0"].data) == (math.tanh(0.5), math.tanh(-2))
    got = struct.unpack("<2d", run()["x"].data)
    want = [v * (1 - math.tanh(v) ** 2) for v in (0.5, -2.0)]
    assert all(abs(g - w) <= 1e-15 for g, w in zip(got, want, strict=True))


def test_status_3_is_unsupported(run):
    with pytest.raises(Unsupported, match=r"^only tanh$"):
        run(op="silu")
    with pytest.raises(Unsupported, match="says that it lacks this"):
        run("no_forward", "forward")


def test_another_status_is_an_error(run):
    with pytest.raises(Failed, match="it exited with status 4: singular"):
        run("exits_4")


@pytest.mark.parametrize("lie", ["short", "long", "link", "extra"])
def test_files_that_do_not_fit_are_violations(run, lie):
    with pytest.raises(Violation, match=r"protocol: .*gradient"):
        run(lie)


def test_a_file_that_is_not_written_is_absent(run):
    assert run("nothing") == {}


def test_a_crash_and_a_hang_are_ends(run):
    with pytest.raises(Ended, match="SIGABRT") as caught:
        run("aborts")
    assert caught.value.ending.verdict is Verdict.CRASH
    with pytest.raises(Ended) as caught:
        run("hangs", timeout=0.5)
    assert caught.value.ending.verdict is Verdict.TIMEOUT


def test_what_it_prints_is_kept(program):
    session = Oneshot(program("oneshot", "prints"))
    session.run(request())
    assert session.printed() == "your program printed to stdout: loss 0.3\nslow\n"
    assert session.printed() == ""


def test_a_program_that_is_not_there_cannot_be_loaded(program):
    there = program("oneshot")
    object.__setattr__(there, "command", ("./nothing-here",))
    with pytest.raises(LoadError, match="does not start: No such file"):
        Oneshot(there).run(request())
