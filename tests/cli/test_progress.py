"""Progress: what is left is weighed, told calmly, cut to the terminal, and kept out of logs."""

import io
import re
from itertools import pairwise
from types import SimpleNamespace

import pytest

from gradcheck.cli import console
from gradcheck.cli.progress import Progress, duration
from gradcheck.results.verdict import Verdict


class Terminal(io.StringIO):
    tty = True

    def isatty(self):
        return self.tty


@pytest.fixture
def stage(monkeypatch):
    """A clock that is moved by hand, and a stderr that is a terminal of 60 columns."""
    stage = SimpleNamespace(now=100.0, stderr=Terminal())
    monkeypatch.setattr("gradcheck.cli.progress.time.monotonic", lambda: stage.now)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    stage.told = lambda: [x for x in stage.stderr.getvalue().split("\r") if x.strip()]
    return stage


def watched(stage, names=(), **flags):
    return Progress(
        SimpleNamespace(**{"quiet": False, "progress": False, **flags}), names, stage.stderr
    )


def played(stage, costs, progress):
    """Run cases of these costs in seconds; the seconds that were said to be left, at each."""
    names = [name for name, _ in costs]
    said = []
    for done, (name, cost) in enumerate(costs):
        before = len(stage.told())
        progress(done, len(names), name)
        new = stage.told()[before:]
        found = re.search(r"  (\d+) s left", new[-1]) if new else None
        said.append(int(found[1]) if found else None)
        stage.now += cost
    return said


def test_nothing_is_said_in_the_first_second(stage):
    progress = watched(stage)
    for done in range(9):
        progress(done, 100, "relu/default/typical")
        stage.now += 0.1
    assert stage.told() == []


def test_what_is_left_is_weighed_by_what_its_like_took(stage):
    cheap = [(f"relu/default/s{i}", 0.25) for i in range(40)]
    costs = [("gpt2/default/a", 2.0), *cheap, ("gpt2/default/b", 2.0), ("gpt2/default/c", 2.0)]
    said = played(stage, costs, watched(stage, [name for name, _ in costs]))
    assert 5 <= said[35] <= 7  # six cheap ones and two dear ones: 5.5 s
    alike = played(stage, costs, watched(stage))
    assert alike[35] <= 4  # eight like the average: 2.4 s


def test_an_operator_that_is_yet_to_come_counts_as_the_others_did(stage):
    costs = [(f"op{i}/default/a", 1.0) for i in range(10)]
    said = played(stage, costs, watched(stage, [name for name, _ in costs]))
    assert said[5] == 5
    assert said[9] == 1


def test_a_surprise_moves_the_estimate_within_seconds_and_not_at_once(stage):
    costs = [(f"op{i}/default/a", 0.2) for i in range(30)]
    costs[15] = ("op15/default/a", 1.2)
    said = [s for s in played(stage, costs, watched(stage)) if s is not None]
    jumps = [abs(b - a) for a, b in pairwise(said)]
    assert max(jumps) <= 2


@pytest.mark.parametrize("width", [1, 20, 60, 80])
def test_a_line_never_wraps(stage, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    progress = watched(stage)
    stage.now += 5
    progress(7, 2182, "scaled_dot_product_attention/label-smoothing/" + "x" * 100)
    stage.now += 5
    progress(8, 2182, "relu/default/a")
    progress.clear()
    lines = stage.stderr.getvalue().split("\r")
    assert max(len(line) for line in lines) <= max(width - 1, 1)
    assert "\n" not in stage.stderr.getvalue()
    assert lines[-1] == ""
    assert lines[-2].strip() == ""


def test_failures_so_far_are_told(stage):
    seen = []
    observer = SimpleNamespace(begins=seen.append, sees=lambda results: "enough" * len(results))
    progress = watched(stage).forwarding(observer)
    progress.begins("header")
    results = [
        SimpleNamespace(finding=SimpleNamespace(verdict=v))
        for v in (Verdict.PASS, Verdict.FAIL, Verdict.CRASH)
    ]
    assert progress.sees(results) == "enough" * 3
    assert seen == ["header"]
    assert watched(stage).sees(results) == ""
    stage.now += 5
    progress(1, 10, "relu/default/a")
    assert stage.told()[-1].startswith("1/10  2 failed  ")


@pytest.mark.parametrize(
    ("tty", "term", "flags", "kind"),
    [
        (True, "xterm", {}, "line"),
        (True, "xterm", {"quiet": True}, "nothing"),
        (True, "xterm", {"quiet": True, "progress": True}, "nothing"),
        (False, "xterm", {}, "nothing"),
        (False, "xterm", {"progress": True}, "log"),
        (True, "dumb", {}, "nothing"),
        (True, "dumb", {"progress": True}, "log"),
    ],
)
def test_only_a_terminal_that_can_rewrite_a_line_is_asked_to(
    stage, monkeypatch, tty, term, flags, kind
):
    stage.stderr.tty = tty
    monkeypatch.setenv("TERM", term)
    progress = watched(stage, **flags)
    for done in range(100):
        progress(done, 100, "relu/default/a")
        stage.now += 1
    progress.clear()
    text = stage.stderr.getvalue()
    assert ("\r" in text) == (kind == "line")
    assert ("\n" in text) == (kind == "log")
    if kind == "log":  # one in thirty seconds
        assert [line.split("  ")[0] for line in text.splitlines()] == ["30/100", "60/100", "90/100"]
    if kind == "nothing":
        assert text == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (1.4, "1 s"), (90, "90 s"), (91, "1 min 30 s"), (3599, "59 min 50 s"),
     (3600, "1 h 00 min"), (7260, "2 h 01 min")],
)  # fmt: skip
def test_durations_are_said_in_two_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("environ", "tty", "width"),
    [({"COLUMNS": "60"}, True, 60), ({"COLUMNS": "60"}, False, 100), ({"COLUMNS": "0"}, True, 100),
     ({"COLUMNS": "x"}, True, 100), ({"COLUMNS": "400"}, True, 160), ({}, True, 100)],
)  # fmt: skip
def test_the_width_is_the_terminal_s_up_to_what_reads_well(monkeypatch, environ, tty, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    stream.tty = tty
    assert console.width(stream) == width
