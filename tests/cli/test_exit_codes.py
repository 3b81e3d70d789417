import json
from pathlib import Path

import pytest

from gradcheck.cli.exit_codes import exit_code

RELU = ("--op", "relu", "--sample", "typical", "--dtype", "float64")
BOTH = (*RELU, "--op", "tanh")
FULL = "-o /dev/full:markdown"

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


@pytest.mark.slow(keep=7, rest=10)
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "--op relu --op tanh"),
        (0, "--op relu --impl kernels:RIGHT"),
        (0, "--op relu --op tanh --impl kernels:PRINTS"),  # one is unbound, the other is right
        (1, "--op relu --impl kernels:WRONG"),
        (1, "--op relu --impl reference --impl kernels:WRONG"),
        (1, "--op relu --impl kernels:RAISES"),
        (1, "--suite kernels:FAILING"),
        (2, f"--op relu {FULL}"),
        (3, "--op relu --impl reference --impl raising:X"),
        (4, "--op rms_norm --dialect weight --sample unsolved"),  # of another dialect
        (4, "--op relu --impl kernels:EMPTY"),
        (5, "--suite kernels:INVALID"),
        (5, "--suite kernels:FAILING --impl kernels:SQUARE"),
        (130, "--op relu --op tanh --impl kernels:STOPS"),
        # where several apply, the worst one wins
        (2, f"--op relu --impl kernels:WRONG {FULL}"),
        (2, f"--op relu --impl kernels:EMPTY {FULL}"),
        (3, f"--op relu --impl kernels:WRONG --impl raising:X {FULL}"),
        (3, f"--op relu --impl kernels:EMPTY --impl raising:X {FULL}"),
        (5, f"--suite kernels:INVALID --impl reference --impl raising:X {FULL}"),
        (1, "--suite kernels:INVALID --impl kernels:SQUARE"),  # the invalid one is not bound
        (5, "--suite kernels:INVALID --impl kernels:SQUARE --all"),
        (130, f"--op relu --op tanh --impl kernels:STOPS --impl raising:X {FULL}"),
    ],
)
def test_the_exit_code_says_what_happened(run, code, words):
    found = run(*words.split())
    assert found.code == code
    assert "\nRESULT " in found.out
    assert "Traceback" not in found.err


def test_an_internal_error_is_no_failed_gate(run, monkeypatch):
    def slip(*_, **__):
        raise ZeroDivisionError("a slip\nof ours")

    monkeypatch.setattr("gradcheck.report.render", slip)
    found = run(*RELU)
    assert (found.code, found.out) == (5, "")
    assert "Traceback" in found.err
    last = found.err.splitlines()[-1]
    assert last.startswith("gradcheck: internal error: ZeroDivisionError: a slip of ours")


def test_an_interrupted_run_reports_what_it_has(run):
    found = run(*BOTH, "--impl", "kernels:STOPS", "-o", "part.json", "--no-contract")
    assert found.code == 130
    assert "\nincomplete: interrupted; not reached: 1 of 2 cases\n" in found.out
    assert "\nFAIL relu · dx (kernels.py:" in found.out
    part = json.loads(Path("part.json").read_text())
    assert part["footer"]["complete"] is False
    assert part["footer"]["passed"] is False
    assert {r["op"] for r in part["results"]} == {"relu"}
    found = [r["verdict"] for r in part["results"] if r["part"] == "gradient"]
    assert found == ["fail"]


def test_an_interruption_before_the_run_ends_quietly(run, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gradcheck.run.execute.execute", stop)
    found = run(*RELU)
    assert (found.code, found.out, found.err) == (130, "", "gradcheck: interrupted\n")


@pytest.mark.parametrize(
    "words",
    ["--op relu --impl kernels:EMPTY", "--op rms_norm --dialect weight --sample unsolved"],
)
def test_nothing_checked_is_said_and_is_no_pass(run, words):
    found = run(*words.split())
    assert "\nNothing was checked." in found.out
    assert "\nRESULT fail checked=0 " in found.out


def test_of_several_ends_the_worst_alone_is_told():
    """Each flag alone, then with all that count less; what nobody says is well."""
    assert [exit_code(passed=passed) for passed in (True, False)] == [0, 1]
    ranked = [
        ("complete", False, 130),
        ("invalid", True, 5),
        ("unloaded", True, 3),
        ("written", False, 2),
        ("checked", False, 4),
    ]
    for place, (flag, value, code) in enumerate(ranked):
        for passed in (True, False):
            assert exit_code(passed=passed, **{flag: value}) == code
            assert exit_code(passed=passed, **{f: v for f, v, _ in ranked[place:]}) == code
