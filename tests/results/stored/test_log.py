"""A log grows with its run, ends where it cannot, and is never taken for whole where it is not."""

import errno
import os
import signal
import threading
from datetime import date
from itertools import groupby

import pytest

from gradcheck.report import render
from gradcheck.results.baseline.apply import accepted, applied
from gradcheck.results.baseline.file import parsed
from gradcheck.results.baseline.match import Scope
from gradcheck.results.stored import log as logs
from gradcheck.results.stored.log import Log, case_of
from gradcheck.results.stored.read import CUT, read
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Suite
from tests.case_results import changed


def batches(run):
    """The results as a run's loop has them: case by case, of all implementations."""
    return [[*results] for _, results in groupby(logs.by_case(run), case_of)]


def streamed(run, path):
    log = Log(path)
    log.begins(run.header)
    for some in batches(run):
        log.sees(some)
    return log


@pytest.mark.parametrize("implementations", [("reference",), ("torch", "reference")])
def test_a_log_that_grew_is_the_one_rendered_at_the_end(tmp_path, make, implementations):
    run = make.whole(implementations=implementations)
    log = streamed(run, tmp_path / "run.jsonl")
    log.ends(run)
    assert (log.trouble, log.written) == ("", len(run.results))
    assert (tmp_path / "run.jsonl").read_text() == render(run, "jsonl")
    assert read(tmp_path / "run.jsonl") == run


ENTRY = """
[[known]]
match = "{match}"
output = "{output}"
verdict = "fail"
reason = "r"
"""


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("match", ["relu/*/*/*", "*/*/*/*", "tanh/*/*/*", "relu/*/empty/*"])
@pytest.mark.parametrize("output", ["dx", "vjp"])
@pytest.mark.parametrize("empty", ["pass", "fail"])
def test_a_log_that_grew_with_a_baseline_is_the_one_rendered_at_the_end(
    tmp_path, make, match, output, empty
):
    """What it says of a pass that compared nothing hangs on what comes after."""
    baseline = parsed(ENTRY.format(match=match, output=output), "k.toml")
    relu = make.result("relu", verdict="fail")
    bare = make.run(
        changed(relu, sample="empty", name="relu/default/empty/float64", compared=0,
                verdict=Verdict(empty)),
        relu,
        changed(relu, sample="zero", name="relu/default/zero/float64", verdict=Verdict.PASS),
        make.result("tanh", output="vjp", verdict="crash", compared=0),
        make.result("silu", compared=0),
    )  # fmt: skip
    run = applied(bare, baseline, Scope.of(Suite("s", "1", []), baseline, bare), date(2026, 1, 1))
    log = Log(tmp_path / "run.jsonl", lambda part: accepted(part, baseline))
    log.begins(bare.header)
    for some in batches(bare):
        log.sees(some)
    log.ends(run)
    assert (tmp_path / "run.jsonl").read_text() == render(run, "jsonl")
    assert read(tmp_path / "run.jsonl") == run


def test_every_case_is_on_file_before_the_next(tmp_path, make):
    run, path = make.whole(), tmp_path / "run.jsonl"
    log = Log(path)
    log.begins(run.header)
    known = 0
    for some in batches(run):
        assert len(read(path).results) == known
        log.sees(some)
        known += len(some)
    found = read(path)
    assert found.results == run.results
    assert (found.complete, found.stopped) == (False, CUT)
    log.close()
    assert path.read_text() == render(run, "jsonl").rpartition('{"footer"')[0]


def test_what_an_interruption_kept_from_the_log_comes_before_its_footer(tmp_path, make):
    run, path = make.whole(implementations=("torch", "reference")), tmp_path / "run.jsonl"
    log = Log(path)
    log.begins(run.header)
    for some in batches(run)[:3]:
        log.sees(some)
    log.ends(run)
    assert path.read_text() == render(run, "jsonl")


def test_what_was_there_is_begun_anew(tmp_path, make):
    run, path = make.whole(), tmp_path / "run.jsonl"
    path.write_text("x" * 1_000_000)
    streamed(run, path).ends(run)
    assert read(path) == run


class Full:
    """A disk with room for so many bytes; it takes a few at a time."""

    def __init__(self, room, stream):
        self.room, self.stream = room, stream

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        some = data[: min(self.room, 100)]
        self.room -= len(some)
        return self.stream.write(some)

    def close(self):
        self.stream.close()


def full(monkeypatch, room):
    opened = logs.opened
    monkeypatch.setattr(logs, "opened", lambda path: Full(room, opened(path)))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.999])
def test_a_full_disk_ends_the_log_and_nothing_else(tmp_path, make, monkeypatch, share):
    run, path = make.whole(), tmp_path / "run.jsonl"
    whole = render(run, "jsonl").encode()
    full(monkeypatch, round(len(whole) * share))
    log = streamed(run, path)
    log.ends(run)
    assert log.trouble == "No space left on device"
    assert path.read_bytes() == whole[: round(len(whole) * share)]
    assert log.written == max(path.read_bytes().count(b"\n") - 1, 0)
    if log.written:
        assert read(path).results == run.results[: log.written]
        assert not read(path).complete


def test_nothing_follows_half_a_line_where_there_is_room_again(tmp_path, make, monkeypatch):
    class Cleared(Full):
        def write(self, data):
            try:
                return super().write(data)
            except OSError:
                self.room = 1 << 30
                raise

    run, path = make.whole(), tmp_path / "run.jsonl"
    whole, opened = render(run, "jsonl").encode(), logs.opened
    some = whole.index(b"\n") + 1000
    monkeypatch.setattr(logs, "opened", lambda path: Cleared(some, opened(path)))
    log = streamed(run, path)
    log.ends(run)
    assert log.trouble == "No space left on device"
    assert path.read_bytes() == whole[:some]


def test_a_stream_that_takes_little_at_once_gets_all(tmp_path, make, monkeypatch):
    run, path = make.whole(), tmp_path / "run.jsonl"
    full(monkeypatch, 1 << 30)
    streamed(run, path).ends(run)
    assert read(path) == run


def test_a_place_where_there_can_be_no_log_is_a_trouble_of_it(tmp_path, make):
    log = streamed(make.whole(), tmp_path / "none" / "run.jsonl")
    log.ends(make.whole())
    assert (log.trouble, log.written) == ("No such file or directory", 0)


def test_a_disk_that_fails_at_the_end_is_told(tmp_path, make, monkeypatch):
    class Late(Full):
        def close(self):
            super().close()
            raise OSError(errno.EIO, "Input/output error")

    opened = logs.opened
    monkeypatch.setattr(logs, "opened", lambda path: Late(1 << 30, opened(path)))
    log = streamed(make.whole(), tmp_path / "run.jsonl")
    log.ends(make.whole())
    assert log.trouble == "Input/output error"
    log.close()  # nothing is left to be closed


# ── interruptions ────────────────────────────────────────────────────────────────────────────


class Asked(Full):
    """Is asked to end while it writes: by each of these signals, once, in the second piece."""

    def __init__(self, stream, kinds):
        super().__init__(1 << 30, stream)
        self.kinds, self.pieces = [*kinds], 0

    def write(self, data):
        self.pieces += 1
        if self.pieces > 20:
            while self.kinds:
                signal.raise_signal(self.kinds.pop(0))
        return super().write(data)


@pytest.fixture
def terminates():
    """SIGTERM is Ctrl-C, as it is for the command line."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_waits_for_the_end_of_a_case(tmp_path, make, monkeypatch, kind, terminates):
    run, path, known = make.whole(), tmp_path / "run.jsonl", 0
    opened = logs.opened
    monkeypatch.setattr(logs, "opened", lambda path: Asked(opened(path), [kind]))
    log = Log(path)
    log.begins(run.header)

    def all_seen():
        nonlocal known
        for some in batches(run):
            known += len(some)
            log.sees(some)

    with pytest.raises(KeyboardInterrupt):
        all_seen()
    assert 0 < known < len(run.results)
    assert read(path).results == run.results[:known]
    log.ends(run)
    assert read(path) == run
    assert signal.getsignal(kind) is signal.default_int_handler


def test_an_interruption_of_the_end_comes_after_it(tmp_path, make, monkeypatch, terminates):
    run, path = make.whole(), tmp_path / "run.jsonl"
    opened = logs.opened
    monkeypatch.setattr(logs, "opened", lambda path: Asked(opened(path), [signal.SIGINT]))
    log = Log(path)
    log.begins(run.header)
    with pytest.raises(KeyboardInterrupt):
        log.ends(run)
    assert read(path) == run


def test_who_asks_twice_does_not_wait(tmp_path, make, monkeypatch, terminates):
    run, path = make.whole(), tmp_path / "run.jsonl"
    opened, kinds = logs.opened, [signal.SIGINT, signal.SIGTERM]
    monkeypatch.setattr(logs, "opened", lambda path: Asked(opened(path), kinds))
    with pytest.raises(KeyboardInterrupt):
        streamed(run, path)
    log = Log(path)
    found = read(path)
    assert not found.complete
    assert found.results == run.results[: len(found.results)]
    assert log.trouble == ""


def test_a_log_of_another_thread_leaves_signals_alone(tmp_path, make):
    run, path = make.whole(), tmp_path / "run.jsonl"
    thread = threading.Thread(target=lambda: streamed(run, path).ends(run))
    thread.start()
    thread.join()
    assert read(path) == run


def test_a_pipe_is_written_while_it_is_read(tmp_path, make):
    run, path = make.whole(), tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    got = []
    thread = threading.Thread(target=lambda: got.append(path.read_bytes()))
    thread.start()
    streamed(run, path).ends(run)
    thread.join()
    assert got == [render(run, "jsonl").encode()]


def test_a_reader_who_leaves_ends_the_log(tmp_path, make):
    run, path = make.whole(), tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    thread = threading.Thread(target=lambda: path.open("rb").close())
    thread.start()
    log = Log(path)
    log.begins(run.header)
    thread.join()
    log.sees(run.results)
    log.ends(run)
    assert log.trouble == "Broken pipe"
