"""A conversation goes on whatever the program does, and says what it did."""

import gc
import math
import os
import struct
from pathlib import Path

import pytest

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.processes.crash_or_hang import WorkerError
from gradcheck.implementations.protocol.message import Block, Form, Request, Violation
from gradcheck.implementations.protocol.session import Failed, Oneshot, Session
from gradcheck.results.verdict import Verdict

X = (0.5, -1.25, 3.0)
CT = (1.0, 2.0, -0.5)


def block(role, name, values):
    form = Form(role=role, name=name, dtype="float64", shape=(len(values),))
    return Block(form, struct.pack(f"<{len(values)}d", *values))


REQUEST = Request(
    op="tanh",
    ask="vjp",
    dtype="float64",
    blocks=(block("input", "x", X), block("cotangent", "0", CT)),
    wanted=(Form(role="gradient", name="x", dtype="float64", shape=(3,)),),
)


@pytest.fixture
def talk(program, level):
    """A session with a liar; it is closed at the end."""
    sessions = []

    def make(lie="", **options):
        sessions.append(Session(program(level, lie, **options)))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


def check(found):
    got = struct.unpack("<3d", found["x"].data)
    want = [c * (1 - math.tanh(x) ** 2) for c, x in zip(CT, X, strict=True)]
    assert all(abs(g - w) <= 1e-15 for g, w in zip(got, want, strict=True))


@pytest.mark.slow(keep=1)
def test_a_program_is_greeted_asked_and_dismissed(talk):
    session = talk()
    hello = session.hello
    assert hello.implementation.name == "speaker"
    assert hello.ops["leaky_relu"].attrs == ("negative_slope",)
    check(session.run(REQUEST))
    session.ping()
    session.reset()
    check(session.run(REQUEST))
    session.close()
    session.close()
    assert session.printed() == ""
    check(session.run(REQUEST))  # it begins again
    os.kill(session._child.process.pid, 9)
    session.close()  # of a program that is gone
    check(session.run(REQUEST))


LIES = {
    Violation: {
        "other_kind": 'the kind "answer"',
        "kind_is_a_number": "the kind 3",
        "no_kind": "the kind null",
        "hello_for_result": "is a `hello` where",
        "other_seq": "another seq than the request",
        "seq_as_text": "another seq than the request",
        "no_seq": "field `seq`",
        "blocks_is_a_number": "no list",
        "other_role": 'the role "grad"',
        "other_name": "asked for were x",
        "other_dtype": "make it float64",
        "hostile_dtype": "make it float64",
        "other_shape": r"not \[3\]",
        "negative_shape": "shape",
        "shape_is_text": "shape",
        "twice": "twice",
        "one_more": 'the gradient "bias" answers nothing',
        "too_short": "comes with 23 bytes",
        "too_long": "comes with 25 bytes",
        "not_json": "no JSON",
        "huge": "too large|no JSON",
        "floods": "print on standard error",
    },
    WorkerError: {
        "exits_0": "exited with status 0 before it answered",
        "exits_3": "exited with status 3",
        "truncated": "exited with status 0",
        "killed": "SIGKILL",
        "says_why_on_stdout_and_exits": "assertion failed: n > 0",
    },
    Unsupported: {"unsupported": "^not here$"},
    Failed: {"unasked_error": "boom", "null_error": "unreadable"},
}


@pytest.mark.slow(keep=5, rest=17)
@pytest.mark.parametrize(
    ("kind", "lie"), [(kind, lie) for kind, lies in LIES.items() for lie in lies]
)
def test_a_lie_is_an_error_in_words_and_the_session_goes_on(talk, kind, lie):
    session = talk(lie)
    for _ in range(2 if kind is WorkerError else 1):
        with pytest.raises(kind, match=LIES[kind][lie]) as caught:
            session.run(REQUEST)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < (510 if kind is Failed else 1000)
    if kind is Violation:
        assert str(caught.value).startswith("protocol: ")
    if kind is WorkerError:
        assert caught.value.ending.verdict is Verdict.CRASH
        if said := LAST_WORDS.get(lie):
            assert caught.value.ending.printed.startswith(said)
    if lie == "unasked_error":
        assert caught.value.trace == "t"
    session.printed()
    session.ping()  # a derailed program has been started again


LAST_WORDS = {
    "exits_3": "out of luck\n",
    "says_why_on_stdout_and_exits": "your program printed to stdout: assertion",
}


@pytest.mark.slow(keep=1)
def test_odd_answers(talk):
    session = talk("answers_ahead")
    check(session.run(REQUEST))
    with pytest.raises(Violation, match="another seq than the request"):
        session.run(REQUEST)
    check(talk("unknown_key").run(REQUEST))
    assert talk("one_less").run(REQUEST) == {}
    with pytest.raises(Violation, match="is a `done` where `pong` is expected"):
        talk("deaf_to_ping").ping()


def test_frames_must_lie_in_their_payload(program):
    for lie, said in {"offset_outside": "ends at byte", "offset_is_text": "whole numbers"}.items():
        session = Session(program("frames", lie))
        with pytest.raises(Violation, match=said):
            session.run(REQUEST)
        session.close()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("lie", ["hangs", "closes_stdout"])
def test_a_program_that_says_no_more_is_ended(talk, lie):
    session = talk(lie, timeout=0.5 if lie == "hangs" else 300.0)
    with pytest.raises(WorkerError) as caught:
        session.run(REQUEST)
    wanted = {"hangs": Verdict.TIMEOUT, "closes_stdout": Verdict.CRASH}[lie]
    assert caught.value.ending.verdict is wanted


@pytest.mark.slow(keep=1)
def test_noise_is_collected_in_bounds_and_changes_nothing(talk, level):
    session = talk("prints")
    check(session.run(REQUEST))
    check(session.run(REQUEST))
    assert session.printed() == (
        "your program printed to stdout: epoch 1: loss 0.3\nepoch 1: loss 0.3\n"
    )
    assert session.printed() == ""
    assert session.strayed.startswith("epoch 1")
    if level == "frames":
        session = talk("prints_the_beginning_of_magic")
        check(session.run(REQUEST))
        assert "GRDGRDC\r\nGRDC\r\n\x1a" in session.printed()
    session = talk("floods_stderr")
    check(session.run(REQUEST))
    session.close()
    assert 0 < len(session.printed()) <= (1 << 16) + 100  # a line says what was cut


UNLOADABLE = {
    "version_2": "speaks GRADCHECK/2, this gradcheck GRADCHECK/1",
    "hello_without_ops": "field `ops`",
    "ops_is_a_list": "Expected `object`",
    "no_dtypes": "field `dtypes`",
    "hello_error": "not today",
    "offers_everything": "is too large here",
    "exits_at_once": "exited with status 2 before it answered; your program printed to stdout: "
    '"usage: speaker WHAT"',
}


@pytest.mark.slow(keep=2, rest=6)
@pytest.mark.parametrize("lie", UNLOADABLE)
def test_a_program_that_cannot_be_greeted_cannot_be_loaded_and_is_ended(talk, lie):
    before = at_first()
    session = talk(lie)
    for call in (lambda: session.hello, session.ping, lambda: session.run(REQUEST)):
        with pytest.raises(LoadError, match=UNLOADABLE[lie]):
            call()
        assert descriptors() == before


@pytest.mark.slow(keep=1)
def test_a_program_that_is_silent_at_first_cannot_be_loaded(talk):
    session = talk("hangs_at_once", startup=0.5)
    with pytest.raises(LoadError, match=r"asked what it offers: no answer within 0\.5 s"):
        _ = session.hello


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("ours", "its"), [("frames", "jsonl"), ("jsonl", "frames")])
def test_a_program_of_another_level_cannot_be_loaded_and_is_recognised(program, ours, its):
    there = program(ours)
    object.__setattr__(there, "command", program(its).command)
    with pytest.raises(LoadError, match=rf"; is its level {its}\?$"):
        _ = Session(there).hello


@pytest.mark.slow(keep=1)
def test_last_words(talk):
    session = talk()
    assert session.last(b"", close=True) == (0, b"")
    code, said = session.last(b"\n", close=True)
    assert code == 1
    assert b"no JSON" in said or b"no magic" in said
    session.ping()
    with pytest.raises(WorkerError, match="did not end within"):
        talk(timeout=0.5).last(b"", close=False)


def at_first():
    """The descriptors before a test: what others have left behind goes now, and not within it."""
    gc.collect()
    return descriptors()


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def big(size):
    form = Form(role="input", name="x", dtype="float64", shape=(size,))
    wanted = Form(role="output", name="0", dtype="float64", shape=(size,))
    attrs = {"min": "-inf", "max": "inf"}
    blocks = (Block(form, os.urandom(8 * size)),)
    return Request(
        op="clamp", ask="forward", dtype="float64", attrs=attrs, blocks=blocks, wanted=(wanted,)
    )


@pytest.mark.slow(keep=1)
def test_a_block_larger_than_any_pipe_comes_back_as_it_was(talk):
    request = big(1 << 19)
    assert bytes(talk().run(request)["0"].data) == request.blocks[0].data


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("calls", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_calls_leak_nothing(talk, calls):
    session, request = talk(), big(12_500)
    for _ in range(100):
        session.run(request)
    before, memory = at_first(), resident()
    for _ in range(calls):
        session.run(request)
    assert descriptors() == before
    assert resident() - memory < 20e6  # a leak of every answer would be 40 MB


@pytest.mark.slow(keep=1)
def test_a_program_that_dies_is_begun_again_and_leaves_nothing_open(talk):
    before = at_first()
    session = talk("dies_every_other_time")
    for _ in range(5):
        check(session.run(REQUEST))
        with pytest.raises(WorkerError, match="SIGABRT"):
            session.run(REQUEST)
    session.close()
    assert descriptors() == before


@pytest.mark.slow(keep=1)
def test_an_interrupt_ends_the_program(talk, monkeypatch):
    session = talk()
    session.ping()
    before = at_first()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(session._level, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run(REQUEST)
    assert len(descriptors()) < len(before)
    check(session.run(REQUEST))


# ── one process per request ──────────────────────────────────────────────────────────────────


def request(ask="vjp", op="tanh"):
    role, name = {"vjp": ("gradient", "x"), "forward": ("output", "0")}[ask]
    blocks = REQUEST.blocks if ask == "vjp" else REQUEST.blocks[:1]
    wanted = (Form(role=role, name=name, dtype="float64", shape=(3,)),)
    return Request(op=op, ask=ask, dtype="float64", blocks=blocks, wanted=wanted)


@pytest.fixture
def run(program):
    def call(lie="", ask="vjp", op="tanh", **options):
        return Oneshot(program("oneshot", lie, **options)).run(request(ask, op))

    return call


def test_a_request_is_answered_by_files(run):
    assert struct.unpack("<3d", run(ask="forward")["0"].data) == tuple(map(math.tanh, X))
    check(run())
    assert run("nothing") == {}


def test_status_3_is_unsupported(run):
    with pytest.raises(Unsupported, match=r"^only tanh$"):
        run(op="silu")
    with pytest.raises(Unsupported, match="says that it lacks this"):
        run("no_forward", "forward")


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("lie", "kind", "said"),
    [
        ("exits_4", Failed, "it exited with status 4: singular"),
        *((lie, Violation, r"protocol: .*gradient") for lie in ("short", "long", "link", "extra")),
        ("aborts", WorkerError, "SIGABRT"),
        ("hangs", WorkerError, "within 0.5 s"),
    ],
)
def test_what_goes_wrong_with_files(run, lie, kind, said):
    with pytest.raises(kind, match=said) as caught:
        run(lie, **{"timeout": 0.5} if lie == "hangs" else {})
    if kind is WorkerError:
        verdict = {"aborts": Verdict.CRASH, "hangs": Verdict.TIMEOUT}[lie]
        assert caught.value.ending.verdict is verdict


def test_what_it_prints_is_kept(program):
    session = Oneshot(program("oneshot", "prints"))
    session.run(request())
    assert session.printed() == "your program printed to stdout: loss 0.3\nslow\n"
    assert session.printed() == ""


@pytest.mark.parametrize("level", ["frames", "oneshot"])
def test_a_program_that_is_not_there_cannot_be_loaded(program, level):
    there = program(level)
    object.__setattr__(there, "command", ("./nothing-here",))
    with pytest.raises(LoadError, match="does not start: No such file"):
        (Oneshot if level == "oneshot" else Session)(there).run(request())
