import gc
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradcheck.implementations.processes.child import RLIMIT_LOCKS, Child
from gradcheck.results.printed import FIRST, LAST, Excerpt
from gradcheck.results.verdict import Verdict
from tests.implementations.processes.scripts import LONG, ended, gone


@pytest.fixture
def child():
    """`child(code, channel=…)`: a Python process without the site's start-up."""
    made = []

    def start(code, channel="stdio", **options):
        words = [sys.executable, "-I", "-S", "-c", f"import os, sys, time, signal\n{code}"]
        made.append(Child(words, channel=channel, **options))
        made[-1].deadline(LONG)
        return made[-1]

    yield start
    for one in made:
        one.kill()


def descriptors():
    gc.collect()  # what others have left behind goes now, and not in the middle of a test
    return len([*Path("/proc/self/fd").iterdir()])


ECHO = "while True:\n    got = os.read(0, 1 << 16)\n    if not got: break\n    os.write(1, got)"


def test_what_is_sent_comes_back(child):
    echo = child(ECHO)
    echo.send([b"one\n", memoryview(b"two")], LONG)
    assert echo.line(100) == b"one\n"
    assert echo.exactly(3) == b"two"
    assert echo.exactly(0) == b""
    assert echo.alive


def test_a_child_that_answers_while_it_reads_does_not_block_us(child):
    echo, size = child(ECHO), 20_000_000
    blob = os.urandom(1 << 20) * (size >> 20)
    echo.send([blob], LONG)
    assert echo.exactly(len(blob)) == blob


def test_two_descriptors_of_its_own_leave_the_streams_to_noise(child):
    code = (
        "print('noise', flush=True)\n"
        "os.write(2, b'more')\n"
        "assert os.read(0, 1) == b''\n"
        "os.write(int(sys.argv[2]), os.read(int(sys.argv[1]), 5))"
    )
    one = child(code, "pipes")
    one.send([b"hello"], LONG)
    assert one.exactly(5) == b"hello"
    assert one.printed() == "noise\nmore"
    assert one.printed() == ""


def test_a_longer_line_comes_in_pieces(child):
    one = child("os.write(1, b'abcdef\\nrest')")
    assert [one.line(4), one.line(4)] == [b"abcd", b"ef\n"]
    ending = ended(lambda: one.line(100))
    assert ending.verdict is Verdict.CRASH
    assert one.unread == b"rest"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("code", "reason", "returncode"),
    [
        ("pass", "exited with status 0 before it answered", 0),
        ("sys.exit(3)", "exited with status 3 before it answered", 3),
        ("os.kill(os.getpid(), 11)", "SIGSEGV", -11),
        ("os.abort()", "SIGABRT", -6),
        ("os.kill(os.getpid(), 9)", "SIGKILL (not from here: out of memory?)", -9),
        ("os.write(1, b'ab'); os.abort()", "SIGABRT", -6),
    ],
)
def test_an_end_without_an_answer_is_a_crash_with_its_reason(child, code, reason, returncode):
    one = child(f"os.write(2, b'last words')\n{code}")
    ending = ended(lambda: one.exactly(3))
    assert (ending.verdict, ending.reason) == (Verdict.CRASH, reason)
    assert (ending.printed, ending.returncode) == ("last words", returncode)
    assert not one.alive
    assert ended(lambda: one.send([b"x"], LONG)) == ending


def test_an_answer_before_the_end_is_an_answer(child):
    one = child("os.write(1, b'abc'); os.abort()")
    assert one.wait(LONG) == -signal.SIGABRT
    assert one.unread == b"abc"
    other = child("os.write(1, b'abc'); os.abort()")
    while other.alive:
        time.sleep(0.01)
    assert other.exactly(3) == b"abc"


@pytest.mark.slow
def test_a_child_that_closes_its_output_and_stays_is_ended(child):
    one = child("os.close(1); os.close(2); time.sleep(1000)")
    ending = ended(lambda: one.exactly(1))
    assert ending.verdict is Verdict.CRASH
    assert "closed its output" in ending.reason
    assert gone(one.process.pid)


def test_no_answer_is_a_timeout_and_the_end(child):
    one = child("signal.signal(15, signal.SIG_IGN)\nos.write(2, b'waiting')\ntime.sleep(1000)")
    one.deadline(0.5)
    ending = ended(lambda: one.exactly(1))
    assert (ending.verdict, ending.reason) == (Verdict.TIMEOUT, "no answer within 0.5 s")
    assert gone(one.process.pid)


def test_a_child_that_does_not_read_is_late(child):
    one = child("time.sleep(1000)")
    ending = ended(lambda: one.send([bytes(1 << 24)], 0.2))
    assert (ending.verdict, ending.reason) == (
        Verdict.TIMEOUT,
        "did not read its input within 0.2 s",
    )


def test_an_early_answer_to_a_request_that_is_never_read_is_heard(child):
    one = child("os.write(1, b'no')")
    one.send([bytes(1 << 24)], LONG)
    assert one.exactly(2) == b"no"
    assert "status 0" in ended(lambda: one.exactly(1)).reason


@pytest.mark.slow
@pytest.mark.parametrize("stream", [1, 2])
def test_a_flood_is_a_timeout_and_takes_no_memory(child, stream):
    one = child(f"while True: os.write({stream}, b'x' * 65536)", "pipes")
    one.deadline(0.5)
    ending = ended(lambda: one.exactly(1))
    assert ending.verdict is Verdict.TIMEOUT
    assert len(ending.printed) <= FIRST + LAST + 50


def test_what_is_printed_is_cut_in_its_middle_and_may_be_any_bytes(child):
    one = child(
        "os.write(2, b'\\x00\\xffwhy\\n' + b'a' * 200_000 + b'\\nwhere\\xff\\x00end')\n"
        "os.write(1, b'k')"
    )
    assert one.exactly(1) == b"k"
    first, left_out, last = Excerpt.of(one.printed())
    assert first.startswith("\x00\ufffdwhy\naaa")
    assert last.endswith("aaa\nwhere\ufffd\x00end")
    assert left_out == 6 + 200_000 + 11 - FIRST - LAST
    assert len(first) + len(last) <= FIRST + LAST + 1
    assert one.printed() == ""


def test_a_grandchild_that_keeps_the_pipes_open_does_not_hold_us(child):
    one = child("pid = os.fork()\nif not pid: time.sleep(1000)\nprint(pid, file=sys.stderr)\n")
    ending = ended(lambda: one.exactly(1))
    assert ending.reason == "exited with status 0 before it answered"
    assert gone(int(ending.printed))


def test_a_grandchild_that_never_reads_does_not_hold_us(child):
    one = child("if not os.fork(): time.sleep(1000)")
    one.send([bytes(1 << 24)], LONG)
    assert "status 0" in ended(lambda: one.exactly(1)).reason


@pytest.mark.slow
def test_the_end_is_polite(child, monkeypatch):
    code = "os.read(0, 1); os.write(1, b'x' * (1 << 21)); os.write(2, b'bye'); os._exit(0)"
    with monkeypatch.context() as patch:
        patch.setattr("gradcheck.implementations.processes.child.POLITE", LONG)
        one = child(code)
        one.end()
    assert one.process.returncode == 0
    one.end()
    stubborn = child("signal.signal(15, lambda *_: os._exit(4)); time.sleep(1000)")
    time.sleep(0.3)
    stubborn.end()
    assert stubborn.process.returncode in (4, -15)


@pytest.mark.slow
def test_one_that_will_not_go_is_killed(child):
    one = child("signal.signal(15, signal.SIG_IGN); os.write(1, b'k'); time.sleep(1000)")
    one.exactly(1)
    one.end()
    assert one.process.returncode == -signal.SIGKILL
    assert not one.alive
    assert "ended by us" in ended(lambda: one.exactly(1)).reason


def test_a_child_that_is_forgotten_is_ended(child):
    one = Child([sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)"])
    pid = one.process.pid
    del one
    gc.collect()
    assert gone(pid)


def test_wait_gives_the_return_code_and_keeps_what_was_said(child):
    one = child("os.write(1, b'y' * 300_000); os.write(2, b'note'); sys.exit(3)")
    one.close_input()
    assert one.wait(LONG) == 3
    assert len(one.unread) == 300_000
    assert one.printed() == "note"
    slow = child("time.sleep(1000)")
    assert "did not end within 0.1 s" in ended(lambda: slow.wait(0.1)).reason


def test_a_length_that_is_a_lie_takes_no_memory(child):
    one = child("os.write(1, b'abc')")
    assert "status 0" in ended(lambda: one.exactly(1 << 36)).reason


def test_a_program_that_is_not_there_leaves_nothing_open():
    before = descriptors()
    with pytest.raises(FileNotFoundError, match="no/such/program"):
        Child(["no/such/program"])
    assert descriptors() == before


def test_children_leave_no_descriptors_and_no_zombies(child):
    before = descriptors()
    for channel in ("stdio", "pipes") * 3:
        one = child("pass", channel)
        ended(lambda: one.exactly(1))  # noqa: B023  called at once
        assert gone(one.process.pid)
    assert descriptors() == before


def test_it_runs_single_threaded_libraries_and_what_is_added(child):
    code = "print(*(os.environ.get(n) for n in ('OMP_NUM_THREADS', 'MINE')))"
    one = child(code, env={"MINE": "7"})
    assert one.line(100) == b"1 7\n"
    other = child(code, env={"OMP_NUM_THREADS": "2"})
    assert other.line(100) == b"2 None\n"


def test_without_word_of_its_death_it_is_looked_at(child, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    one = child("if not os.fork(): time.sleep(1000)\nos.write(1, b'k')")
    assert one.exactly(1) == b"k"
    assert "status 0" in ended(lambda: one.exactly(1)).reason


DAEMON = """
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    {begins}
if {stays}: time.sleep(1000)
"""
SLEEPS = "'/bin/sh', ['sh', '-c', 'echo $$ >&2; exec sleep 1000 <&- >&- 2>&-']"
BEGINS = {
    "keeps its environment": f"os.execv({SLEEPS})",
    "has an empty environment": f"os.execve({SLEEPS}, {{}})",
    "has a name and nothing else": f"os.execve({SLEEPS}, {{'GRADCHECK_CHILD': ''}})",
}


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("begins", "channel", "stays"),
    [
        ("keeps its environment", "stdio", True),
        ("keeps its environment", "pipes", False),
        ("has an empty environment", "pipes", True),
        ("has an empty environment", "stdio", False),
        ("has a name and nothing else", "stdio", True),
    ],
)
def test_what_leaves_the_group_goes_with_its_parent(child, begins, channel, stays):
    one = child(DAEMON.format(begins=BEGINS[begins], stays=stays), channel)
    daemon = int(heard(one))
    one.kill() if stays else ended(lambda: one.exactly(1))
    assert gone(daemon)


def test_where_there_is_no_such_limit_the_environment_tells(child, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("gradcheck.implementations.processes.child.sys.platform", "other")
        one = child(DAEMON.format(begins=BEGINS["keeps its environment"], stays=True))
    daemon = int(heard(one))
    one.kill()
    assert gone(daemon)


def test_a_process_that_somebody_else_starts_meanwhile_is_spared(child, monkeypatch):
    """Another thread's, between the mark and the child: it has the mark, and lives."""
    start = subprocess.Popen.__init__
    others = []

    def also(self, *words, **options):
        monkeypatch.setattr(subprocess.Popen, "__init__", start)
        others.append(subprocess.Popen(["sleep", "1000"]))
        start(self, *words, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", also)
    limit = resource.getrlimit(RLIMIT_LOCKS)
    child("time.sleep(1000)").kill()
    assert resource.getrlimit(RLIMIT_LOCKS) == limit
    (other,) = others
    assert other.poll() is None
    other.kill()
    assert other.wait(LONG) == -signal.SIGKILL


def heard(one):
    """The first line that a child prints, by a deadline."""
    printed, late = "", time.monotonic() + LONG
    while not printed.endswith("\n") and time.monotonic() < late:
        time.sleep(0.01)
        printed += one.printed()
    return printed
