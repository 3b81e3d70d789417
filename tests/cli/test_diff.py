"""`gradcheck diff` from reports on file to an exit code."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

RELU = ("--op", "relu", "--op", "tanh", "--sample", "typical", "--dtype", "float64", "-q")
TWO = '{"relu": {"vjp": %s}, "tanh": {"vjp": tanh}}'
MORE = r"""
def dies(ct, x):
    import os
    os._exit(3)

IMPL = RIGHT
"""


@pytest.fixture
def reported(run):
    """`gradcheck run` of `kernels:IMPL` as it was, or as it is changed, into a report."""
    source = Path("kernels.py").read_text() + MORE

    def call(name, impl="RIGHT", *words, whose="kernels:IMPL", forms=("json",)):
        Path("kernels.py").write_text(source.replace("IMPL = RIGHT", f"IMPL = {impl}"))
        sys.modules.pop("kernels", None)
        outputs = [word for form in forms for word in ("-o", f"{name}.{form}")]
        return run(*RELU, "--impl", whose, *outputs, *words).code

    return call


@pytest.fixture
def diff(run):
    def call(*words):
        return run(*words, command="diff")

    return call


def test_nothing_changed(reported, diff):
    assert reported("old", forms=("json", "jsonl")) == 0
    for new in ("old.json", "old.jsonl"):
        found = diff("old.json", new)
        assert (found.code, found.err) == (0, "")
        assert "\nnothing changed (" in found.out
        assert found.out.splitlines()[-1].startswith("DIFF same compared=")


def test_a_change_for_the_worse_exits_1_and_for_the_better_0(reported, diff):
    reported("right")
    assert reported("wrong", "WRONG") == 1
    found = diff("right.json", "wrong.json")
    assert found.code == 1
    assert "NEWLY FAILING relu/default · dx: 1 result\n" in found.out
    assert "DIFF worse compared=" in found.out
    back = diff("wrong.json", "right.json")
    assert back.code == 0
    assert "FIXED 1 result of relu/default · dx" in back.out
    assert "nothing is worse" in back.out


@pytest.mark.slow
def test_a_crash_of_the_whole_call_is_newly_crashing(run, reported, diff):
    reported("right")
    sys.modules.pop("kernels", None)
    Path("kernels.py").write_text(
        Path("kernels.py").read_text().replace("IMPL = RIGHT", f"IMPL = {TWO % 'dies'}")
    )
    run(*RELU, "--impl", "kernels:IMPL", "-o", "dead.json", isolate=True)
    found = diff("right.json", "dead.json")
    assert found.code == 1
    assert "NEWLY CRASHING relu/default · dx: 1 result\n" in found.out


def test_a_narrower_run_has_removed_what_it_lacks(reported, diff):
    reported("all")
    reported("some", "RIGHT", "--no-contract")
    found = diff("all.json", "some.json")
    assert found.code == 1
    assert "REMOVED 2" in found.out
    assert "contract" in found.out
    assert diff("some.json", "all.json").code == 0
    assert diff("all.json", "some.json", "--fail-on", "newly-failing").code == 0


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("marks", "code"),
    [
        ("", 1),
        ("worse", 1),
        ("change", 1),
        ("newly-failing", 1),
        ("newly-crashing", 0),
        ("newly-crashing,newly-failing", 1),
        ("newly-crashing, removed", 0),
        ("still-failing", 0),
    ],
)
def test_the_marks_that_fail_can_be_chosen(reported, diff, marks, code):
    reported("right", "RIGHT", "--no-contract")
    reported("wrong", "WRONG", "--no-contract")
    words = ["--fail-on", marks] if marks else []
    assert diff("right.json", "wrong.json", *words).code == code
    fixed = diff("wrong.json", "right.json", *words).code
    assert fixed == int(marks == "change")
    still = diff("wrong.json", "wrong.json", *words).code
    assert still == int(marks == "still-failing")


def test_a_factor_is_what_an_error_grows_by(reported, diff):
    def off(by):
        return TWO % f"lambda ct, x: relu(ct, x) * (1 + {by})"

    assert reported("near", off("1e-9"), "--no-contract") == 0
    assert reported("far", off("5e-9"), "--no-contract") == 0
    found = diff("near.json", "far.json")
    assert (found.code, "ERROR GREW relu/default · dx" in found.out) == (1, True)
    assert diff("near.json", "far.json", "--factor", "6").code == 0
    assert "IMPROVED 1 result of relu" in diff("far.json", "near.json").out


def test_two_implementations_in_one_report(run, diff):
    run(*RELU, "--impl", "kernels:RIGHT", "--impl", "kernels:WRONG", "-o", "both.json")
    short = diff("both.json")
    found = diff("both.json::kernels:RIGHT", "both.json::kernels:WRONG")
    assert (found.code, found.out) == (short.code, short.out)
    assert found.code == 1
    assert "ONLY B FAILS relu/default · dx: 1 result\n" in found.out
    assert "\nA  both.json · kernels:RIGHT · " in f"\n{found.out}"
    back = diff("both.json::kernels:WRONG", "both.json::kernels:RIGHT")
    assert back.code == 0
    assert "ONLY A FAILS relu/default · dx: 1 result" in back.out


@pytest.mark.slow
def test_reports_of_one_implementation_each_need_no_names(reported, diff):
    reported("mine", whose="kernels:RIGHT")
    reported("theirs", whose="kernels:WRONG")
    found = diff("mine.json", "theirs.json")
    assert (found.code, "ONLY B FAILS relu/default · dx" in found.out) == (1, True)


@pytest.mark.slow
def test_several_implementations_are_compared_by_name(run, reported, diff):
    run(*RELU, "--impl", "kernels:RIGHT", "--impl", "kernels:WRONG", "-o", "both.json")
    found = diff("both.json", "both.json")
    assert (found.code, "nothing changed" in found.out) == (0, True)
    reported("one", whose="kernels:WRONG")
    assert diff("both.json", "one.json").code == 0
    assert diff("both.json::kernels:RIGHT", "one.json").code == 1


def test_a_run_that_was_cut_short_has_not_removed_anything(reported, diff):
    reported("whole", forms=("json", "jsonl"))
    lines = Path("whole.jsonl").read_bytes().splitlines(keepends=True)
    Path("cut.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:30])
    found = diff("whole.json", "cut.jsonl")
    assert found.code == 1
    assert "the new run stopped early" in " ".join(found.out.split())
    assert "REMOVED" not in found.out
    assert "incomplete: the log ends without its footer" in " ".join(found.out.split())
    back = diff("cut.jsonl", "whole.json")
    assert (back.code, "the old run stopped early" in " ".join(back.out.split())) == (0, True)


def test_every_format_is_written(reported, diff):
    reported("right")
    reported("wrong", "WRONG")
    found = diff("right.json", "wrong.json", "-o", "d.md", "-o", "d.json", "-o", "d.txt",
                 "-o", "d:github", "--format", "github")  # fmt: skip
    assert found.code == 1
    assert found.out == Path("d").read_text()
    assert found.out.startswith("::error ")
    assert Path("d.md").read_text().startswith("**gradcheck diff: 1 newly failing")
    assert json.loads(Path("d.json").read_text())["worse"] is True
    assert Path("d.txt").read_text().startswith("old  right.json")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_report_that_cannot_be_written_exits_2(reported, diff):
    reported("right")
    found = diff("right.json", "right.json", "-o", "/dev/full:markdown")
    assert found.code == 2
    assert "DIFF same" in found.out


def test_a_file_may_be_called_like_an_implementation(reported, diff):
    reported("old")
    Path("odd::name").write_bytes(Path("old.json").read_bytes())
    assert diff("odd::name", "old.json").code == 0


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("columns", [60, 100])
def test_a_terminal_has_its_width_and_colours(reported, environment, columns):
    reported("right")
    reported("wrong", "WRONG")
    code, text = in_terminal(["right.json", "wrong.json"], columns, environment)
    assert code == 1
    assert "\x1b[31mNEWLY FAILING\x1b[0m" in text
    plain = text.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[33m", "")
    lines = [x.replace("\x1b[0m", "") for x in plain.splitlines()]
    wide = [x for x in lines if len(x) > columns]
    assert all(x.startswith(("  run: ", "DIFF ")) for x in wide)
    _, plain = in_terminal(["right.json", "wrong.json", "--color=never"], columns, environment)
    assert "\x1b" not in plain


def in_terminal(words, columns, environment):
    """The command in a terminal of so many columns: exit code and what it showed."""
    parent, child = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {k: v for k, v in environment.items() if k not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-m", "gradcheck", "diff", *words]
    process = subprocess.Popen(command, stdout=child, stderr=child, env=env)
    os.close(child)
    parts = []
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:  # the last writer is gone
            break
        if not part:
            break
        parts.append(part)
    os.close(parent)
    return process.wait(), b"".join(parts).decode().replace("\r\n", "\n")


def test_help_shows_examples_and_exit_codes(diff, capsys):
    with pytest.raises(SystemExit) as ended:
        diff("--help")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "run.json::torch run.json::mine:IMPL" in out
    assert "1  something is" in out
