"""What narrows a run, ends it early, opens its gate, or keeps its tensors: the flags of `run`."""

import json
from pathlib import Path

import numpy as np
import pytest

from gradcheck.results.stored.read import read

WRONG = ("--impl", "kernels:WRONG", "--no-contract", "--dtype", "float64")
RELU = (*WRONG, "--op", "relu", "--op", "tanh")


def names(found):
    return [r["name"] for r in json.loads(found.out)["results"]]


# ── -k ───────────────────────────────────────────────────────────────────────────────────────


def test_a_keyword_narrows_what_is_selected(run):
    found = run("--op", "relu", "--op", "tanh", "-k", "TYPICAL or (relu and empty)",
                "--dtype", "float64", "--format", "json")  # fmt: skip
    assert set(names(found)) == {
        "relu/default/typical/float64", "relu/default/empty/float64", "tanh/default/typical/float64"
    }  # fmt: skip


def test_a_keyword_narrows_models_rules_lists_and_what_failed(run):
    found = run("--model", "*", "-k", "gpt2 and tiny", command="list")
    assert found.code == 0
    run(*RELU)
    found = run(*RELU, "--lf", "-k", "typical", "--format", "json")
    assert names(found) == ["relu/default/typical/float64"]


# ── --max-fail ───────────────────────────────────────────────────────────────────────────────

MANY = "stopped at too many failures (--max-fail); not reached: "


def test_a_run_ends_at_the_nth_case_that_fails(run):
    whole = run(*RELU, "--format", "json")
    failing = {r["name"] for r in json.loads(whole.out)["results"] if r["verdict"] == "fail"}
    assert len(failing) > 3
    found = run(*RELU, "--max-fail", "3", "-o", "part.jsonl")
    assert found.code == 1  # an answer, and no interruption
    assert f"\nincomplete: {MANY}" in found.out
    part = read(Path("part.jsonl"))
    assert len({r.case.name for r in part.results if part.fails(r)}) == 3
    assert part.halted
    assert run("part.jsonl", command="report").code == 1


def test_one_failure_is_the_first_one(run, untimed):
    one, first = (run(*RELU, *words) for words in (("--max-fail", "1"), ("-x",)))
    assert untimed(one.out) == untimed(first.out)
    assert "stopped at the first failure (-x)" in one.out


@pytest.mark.slow
def test_as_many_as_there_are_leave_nothing_out(run, untimed):
    found = run(*RELU, "--max-fail", "1000")
    assert found.code == 1
    assert "incomplete" not in found.out
    assert untimed(found.out) == untimed(run(*RELU).out)


def test_shards_that_ended_so_are_an_answer_together(run):
    for number in (1, 2):
        run(*RELU, "--max-fail", "2", "--shard", f"{number}/2", "-o", f"{number}.jsonl")
    found = run("1.jsonl", "2.jsonl", command="merge")
    assert found.code == 1
    assert "incomplete: stopped at too many failures (--max-fail) in shard 1/2" in found.out


# ── --max-time ───────────────────────────────────────────────────────────────────────────────

SLOW = """
import threading
def waits(ct, x): threading.Event().wait(90)  # below its own limit, at each of many calls
IMPL = {"relu": {"vjp": waits}}
"""


def test_the_time_of_a_run_is_bounded_whatever_the_code_does(run):
    Path("slow.py").write_text(SLOW)
    words = ("--impl", "slow:IMPL", "--op", "relu", "--op", "tanh", "--timeout", "100")
    found = run(*words, "--max-time", "0.7", "-o", "part.jsonl", "-o", "part.json")
    assert found.code == 1
    assert "\nincomplete: the time of the run, --max-time 0.7 s, was up" in found.out
    part = read(Path("part.jsonl"))
    assert part == read(Path("part.json"))
    assert part.late
    assert {r.case.op for r in part.results if r.finding.verdict == "notrun"} >= {"relu"}
    assert f"notrun={part.footer.counts['notrun']} " in found.out
    assert run("part.jsonl", command="report").code == 1


# ── --exit-zero ──────────────────────────────────────────────────────────────────────────────


def test_a_gate_that_fails_exits_with_zero_and_says_so(run):
    found = run(*RELU, "--exit-zero", "-o", "out.json", "-o", "out.jsonl")
    assert found.code == 0
    assert found.out.splitlines()[-1].startswith("RESULT fail ")
    assert json.loads(Path("out.json").read_text())["footer"]["passed"] is False
    assert run("out.jsonl", command="report").code == 1
    assert run("out.jsonl", "--exit-zero", command="report").code == 0
    assert run("out.jsonl", "--exit-zero", command="merge").code == 0


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--impl", "kernels:EMPTY", "--op", "relu"), 4),
        (("--impl", "kernels:ABSENT", "--op", "relu"), 3),
        (("--impl", "kernels:ABSENT", "--impl", "kernels:WRONG", "--op", "relu"), 3),
        (("--op", "reluu"), 2),
        (("--suite", "kernels:INVALID"), 5),
        (("--impl", "kernels:STOPS", "--op", "relu", "--op", "tanh"), 130),
    ],
)
def test_what_cannot_be_judged_keeps_its_code(run, words, code):
    assert run(*words, "--exit-zero").code == code
    assert run(*words).code == code


@pytest.mark.slow
def test_a_baseline_that_is_not_true_is_the_gates(run):
    Path("k.toml").write_text(
        '[[known]]\nmatch = "tanh/*/*/*"\noutput = "dx"\nverdict = "fail"\nreason = "r"\n'
    )
    assert run(*RELU, "--baseline", "k.toml").code == 1
    assert run(*RELU, "--baseline", "k.toml", "--exit-zero").code == 0


# ── --keep-artifacts ─────────────────────────────────────────────────────────────────────────


def test_failing_tensors_are_kept_and_a_line_says_how_many(run):
    found = run(*RELU, "-k", "typical", "--keep-artifacts", "deep/art")
    assert found.code == 1
    assert found.err == ("gradcheck: --keep-artifacts deep/art: 1 of 1 failing gradient written\n")
    with np.load("deep/art/relu.default.typical.float64.x.npz") as kept:
        right = kept["cotangent.0"] * (kept["primal.x"] > 0)
        np.testing.assert_array_equal(kept["got"], -right)
        np.testing.assert_array_equal(kept["want"], right)


@pytest.mark.slow
def test_several_jobs_keep_the_same(run):
    """In processes of their own, as Python is judged usually, and in this one."""
    few = (*WRONG, "--op", "relu", "-k", "typical or square or cube")
    assert run(*few, "--keep-artifacts", "one").code == 1
    assert run(*few, "--keep-artifacts", "two", "-j", "2", isolate=True).code == 1
    kept = sorted(Path("one").iterdir())
    assert len(kept) == 3
    assert [p.name for p in kept] == sorted(p.name for p in Path("two").iterdir())
    assert all(p.read_bytes() == (Path("two") / p.name).read_bytes() for p in kept)


def test_where_nothing_fails_nothing_is_said(run):
    found = run("--op", "relu", "--keep-artifacts", "art")
    assert (found.code, found.err) == (0, "")
    assert [*Path("art").iterdir()] == []


def test_a_full_disk_is_a_line_and_the_run_goes_on(run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gradcheck.system.atomic_io.replace", full)
    found = run(*RELU, "-o", "run.jsonl", "--keep-artifacts", "art")
    assert found.code == 2
    assert "--keep-artifacts art: 0 of " in found.err
    assert "No space left on device; what was judged is in the reports" in found.err
    assert found.out.splitlines()[-1].startswith("RESULT fail ")
    assert read(Path("run.jsonl")).complete


@pytest.mark.slow
def test_a_run_that_was_interrupted_keeps_none(run):
    found = run("--impl", "kernels:STOPS", "--op", "relu", "--op", "tanh", "--keep-artifacts", "a")
    assert found.code == 130
    assert [*Path("a").iterdir()] == []


# ── -v, --format concise ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_every_case_is_shown_and_a_line_can_be_had(run):
    found = run(*RELU, "-v")
    rows = [line for line in found.out.splitlines() if "  dx  " in line]
    assert len(rows) > 10
    found = run(*RELU, "--format", "concise", "-o", "out.txt:concise")
    *lines, last = found.out.splitlines()
    assert Path("out.txt").read_text() == found.out
    assert [line.partition(" — ")[0] for line in lines] == ["relu/default/typical/float64:x FAIL"
                                                             " 2.0e+00 > 1.1e-08"]  # fmt: skip
    assert last.startswith("RESULT fail ")
    several = run(*RELU, "--format", "concise", "-v").out.splitlines()
    assert len(several) > len(lines) + 1


@pytest.mark.slow
def test_a_quiet_run_shows_its_failures_alone(run):
    words = ("--op", "tanh", "--sample", "typical", "--dtype", "float64", "--no-contract", "-q")
    passing = run("--impl", "kernels:RIGHT", *words)
    assert passing.code == 0
    assert [line.split(" ")[:2] for line in passing.out.splitlines()] == [["RESULT", "pass"]]
    words = (*RELU, "--no-contract", "-v", "-q")  # -q goes before -v
    failing = run(*words)
    *lines, last = failing.out.splitlines()
    assert (failing.code, failing.err) == (1, "")
    assert last.startswith("RESULT fail ")
    assert lines
    assert all(line.startswith("relu/default/") and " FAIL " in line for line in lines)
    assert failing.out == run(*RELU, "--no-contract", "--format", "concise").out
    assert run(*words, "--format", "json").out.startswith("{")  # as asked for


@pytest.mark.slow
def test_what_was_loaded_is_said_and_quietly_not(run):
    loaded = "\nkernels:WRONG: 2 operators, float64; 2 of 2 returned gradients\n"
    assert loaded in run(*RELU, "-v").out
    assert "returned gradients" not in run(*RELU).out  # nothing is lacking
    assert "returned gradients" not in run("--op", "relu", "-v").out
    raised = run("--impl", "kernels:RAISES", "--op", "relu", "--dtype", "float64").out
    assert (
        "\nkernels:RAISES: 1 operator, float64; 0 of 1 returned gradients (not relu: ERROR)"
        in raised
    )
