"""`gradcheck baseline` and `gradcheck run --baseline`, from the command line to the exit code."""

import json
from datetime import date
from itertools import cycle
from pathlib import Path

import pytest

from gradcheck.results.baseline import entry as entry_file

ONE = ("--op", "relu", "--dialect", "default", "--dtype", "float64", "--no-contract")
WRONG = (*ONE, "--impl", "kernels:WRONG")
FILE = "known-failures.toml"


@pytest.fixture
def baseline(run):
    """`gradcheck baseline`, in this process."""
    return lambda *words: run(*words, "--no-isolate", command="baseline")


@pytest.fixture
def listed(baseline):
    """A file that lists every failure of `WRONG`."""
    found = baseline("write", FILE, *WRONG)
    assert found.code == 0
    return Path(FILE)


def entry(path=FILE, number=0):
    import tomllib

    return tomllib.loads(Path(path).read_text())["known"][number]


def lines(found, word):
    return [line for line in found.out.splitlines() if word in line]


@pytest.mark.slow
def test_write_then_run_opens_the_gate_and_the_file_says_why(run, listed):
    assert run(*WRONG).code == 1
    found = run(*WRONG, "--baseline", FILE)
    assert found.code == 0
    assert "XFAIL" in found.out
    assert lines(found, "RESULT")[0].startswith("RESULT pass ")
    assert entry()["class"] == "sign"
    assert entry()["max_error"] == 3.0
    assert entry()["output"] == "dx"
    assert entry()["reason"]


@pytest.mark.slow
def test_the_json_report_says_what_is_known(run, listed):
    found = run(*WRONG, "--baseline", FILE, "--format", "json")
    results = json.loads(found.out)["results"]
    failed = [r for r in results if r["verdict"] == "fail"]
    assert failed
    for result in failed:
        assert (result["expectation"], result["known"]["as"]) == ("ok", "xfail")
        assert result["known"]["entry"].startswith(f"{FILE}:")


def test_breaking_something_else_closes_the_gate(run, listed):
    words = ("--op", "tanh", *ONE, "--impl")
    Path("worse.py").write_text(
        "from kernels import negated\n"
        "IMPL = {name: {'vjp': negated} for name in ('relu', 'tanh')}\n"
    )
    found = run(*words, "worse:IMPL", "--baseline", FILE)
    assert found.code == 1
    (line,) = lines(found, "UNLISTED")
    assert "tanh/default/" in line
    assert "relu" not in line


def test_mending_a_listed_failure_closes_the_gate_with_the_line_to_remove(run, listed):
    found = run(*ONE, "--baseline", FILE)
    assert found.code == 1
    for number, line in enumerate(listed.read_text().splitlines(), 1):
        if line == "[[known]]":
            assert f"{FILE}:{number}: XPASS: " in found.out
    assert "remove the entry" in found.out
    assert lines(found, "RESULT")[0].startswith("RESULT fail ")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("old", "new", "breach"),
    [
        ('class = "sign"', 'class = "scale"', "OTHER CLASS"),
        ("max_error = 3.0", "max_error = 1.9", "WORSE"),
        ('verdict = "fail"', 'verdict = "crash"', "OTHER VERDICT"),
        ("/default/", "/defualt/", "STALE"),
        ('output = "dx"', 'output = "dz"', "STALE"),
        ('reason = "', 'expires = 2026-11-20\nreason = "', "EXPIRED"),
    ],
)
def test_an_entry_that_is_not_true_closes_the_gate(run, listed, monkeypatch, old, new, breach):
    monkeypatch.setattr(entry_file, "today", lambda: date(2026, 11, 21))
    text = listed.read_text()
    if breach == "OTHER VERDICT":
        text = text.replace("max_error = 3.0\n", "")
    listed.write_text(text.replace(old, new))
    found = run(*WRONG, "--baseline", FILE)
    assert found.code == 1
    first = listed.read_text().splitlines().index("[[known]]") + 1
    assert f"{FILE}:{first}: {breach}: " in found.out


def test_where_stdout_is_a_report_each_line_is_said_on_stderr(run, listed):
    found = run(*ONE, "--baseline", FILE, "--format", "json")
    assert json.loads(found.out)["footer"]["passed"] is False
    assert found.err.splitlines()[0].startswith(f"gradcheck: {FILE}:6: XPASS: ")


@pytest.mark.slow
def test_an_operator_that_is_not_bound_any_more_closes_the_gate(run, listed):
    found = run("--op", "tanh", *WRONG[:-1], "kernels:WRONG", "--baseline", FILE)
    assert found.code == 0
    Path("less.py").write_text("from kernels import tanh\nIMPL = {'tanh': {'vjp': tanh}}\n")
    found = run("--op", "tanh", *ONE, "--impl", "less:IMPL", "--baseline", FILE)
    assert found.code == 1
    assert f"{FILE}:6: UNSUPPORTED: " in found.out


def test_a_narrow_run_says_nothing_of_entries_it_did_not_reach(run, listed):
    assert run("--op", "tanh", *ONE[2:], "--baseline", FILE).code == 0


BAD = [
    ("", "[[known]]\nmatch = 'a'\n", ":1: the entry has no `output`"),
    ("", "[[known]\n", ": it is no TOML"),
    ('class = "sign"', 'class = "sing"', "class: unknown class of defects 'sing': did you mean"),
    ('verdict = "fail"', 'verdict = "fails"', "verdict: unknown verdict 'fails'"),
    ("max_error = 3.0", "max_error = '3'", "max_error = '3': write a positive number"),
    ("max_error = 3.0", "max_eror = 3.0", "unknown key 'max_eror': did you mean 'max_error'?"),
]


def test_a_bad_file_is_refused_before_anything_runs(run, baseline, listed, monkeypatch):
    def never(*_):
        raise AssertionError("it ran")

    monkeypatch.setattr("gradcheck.run.execute.execute", never)
    right, actions = listed.read_text(), cycle(["run", "update", "prune", "check"])
    for (old, new, says), action in zip(BAD, actions, strict=False):
        text = right.replace(old, new) if old else new
        listed.write_text(text)
        words = (FILE, *WRONG)
        found = run("--baseline", *words) if action == "run" else baseline(action, *words)
        assert (found.code, found.out) == (2, "")
        assert found.err.startswith(f"gradcheck: {FILE}:")
        assert says in found.err
        assert found.err.count("\n") == 1
        assert listed.read_text() == text


def test_a_report_does_not_overwrite_the_baseline(run, listed):
    before = listed.read_text()
    found = run(*WRONG, "--baseline", FILE, "-o", f"./{FILE}:json")
    assert found.code == 2
    assert "it is the baseline" in found.err
    assert listed.read_text() == before


def test_write_does_not_overwrite(baseline, listed):
    before = listed.read_text()
    found = baseline("write", FILE, *WRONG)
    assert found.code == 2
    assert "it exists; update it with `gradcheck baseline update" in found.err
    assert listed.read_text() == before


@pytest.mark.slow
def test_a_report_serves_as_well_as_a_run(run, baseline, listed):
    run(*WRONG, "-o", "run.json")
    fresh = baseline("write", "other.toml", "run.json")
    assert fresh.code == 0
    assert Path("other.toml").read_text() == listed.read_text().replace(FILE, "other.toml")
    assert baseline("check", FILE, "run.json").code == 0
    listed.write_text(listed.read_text().replace("3.0", "1.0"))
    found = baseline("check", FILE, "run.json")
    assert found.code == 1
    assert f"{FILE}:6: WORSE: " in found.out
    assert baseline("update", FILE, "run.json").code == 0
    assert entry()["max_error"] == 3.0
    found = baseline("check", FILE, "run.json", "--op", "relu")
    assert found.code == 2
    assert "--op: the run is read from run.json; remove --op" in found.err


def test_a_report_of_another_suite_is_refused(run, baseline, listed):
    run("--suite", "kernels:FAILING", "-o", "run.json")
    found = baseline("check", FILE, "run.json")
    assert found.code == 2
    assert "its suite is mine 1, expected builtin" in found.err
    assert baseline("check", FILE, "absent.json").code == 2


@pytest.mark.slow
def test_update_keeps_every_comment_and_prints_what_it_changes(baseline, listed):
    text = "# kept\n" + listed.read_text().replace("3.0", "0.5  # measured by hand")
    listed.write_text(text)
    found = baseline("update", FILE, *WRONG)
    assert found.code == 0
    assert listed.read_text() == text.replace("0.5  #", "3.0  #")
    assert f"{FILE}:7: max_error: 0.5 → 3.0" in found.out


def test_update_after_a_part_of_the_run_refuses_what_was_not_run(baseline, listed):
    head, *_ = listed.read_text().split("[[known]]")
    listed.write_text(
        f'{head}[[known]]\nmatch = "relu/default/*/float64"\noutput = "dx"\nverdict = "fail"\n'
        'max_error = 0.5\nreason = "wrong"\n'
    )
    before = listed.read_text()
    found = baseline("update", FILE, *WRONG, "--sample", "typical")
    assert f"refused: {FILE}:6: " in found.out
    assert "not run" in found.out
    assert listed.read_text() == before
    assert found.code == 1  # 2 is above 0.5


@pytest.mark.slow
def test_an_interrupted_run_changes_nothing(baseline, listed):
    before = listed.read_text()
    for action in ("update", "prune"):
        found = baseline(action, FILE, "--op", "relu", "--op", "tanh", "--impl", "kernels:STOPS")
        assert found.code == 2
        assert "nothing is changed: interrupted; not reached: 9 of 18 cases; run again" in found.err
    assert listed.read_text() == before
    found = baseline("write", "new.toml", "--op", "tanh", "--impl", "kernels:STOPS")
    assert found.code == 2
    assert not Path("new.toml").exists()


@pytest.mark.slow
def test_prune_removes_what_passes_now_and_only_that(baseline, listed):
    text = listed.read_text()
    found = baseline("prune", FILE, *WRONG)
    assert found.code == 0
    assert listed.read_text() == text
    found = baseline("prune", FILE, *ONE)
    assert found.code == 0
    assert "[[known]]" not in listed.read_text()
    assert lines(found, "passes now")
    assert list(Path().glob(".known*")) == []


def test_nothing_checked_is_its_own_exit_code(baseline, listed):
    assert baseline("check", FILE, "--op", "relu", "--impl", "kernels:EMPTY").code in (1, 4)
    Path(FILE).unlink()
    assert baseline("write", FILE, "--op", "relu", "--impl", "kernels:EMPTY").code == 4


@pytest.mark.slow
def test_a_disk_that_fills_leaves_the_file_as_it_was(baseline, listed, monkeypatch):
    before = listed.read_text().replace("3.0", "0.5")
    listed.write_text(before)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradcheck.system.atomic_io.replace", full)
    found = baseline("update", FILE, *WRONG)
    assert found.code == 2
    assert "No space left on device; it is as it was" in found.err
    assert listed.read_text() == before


def test_help_names_every_action(baseline, capsys):
    with pytest.raises(SystemExit) as ended:
        baseline("--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(action in text for action in ("write", "update", "prune", "check"))
