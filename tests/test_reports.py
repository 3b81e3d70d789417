"""The committed report of the built-in suite is what the suite says today."""

import re
from pathlib import Path

from gradcheck.cli import main

REPORT = Path(__file__).parent.parent / "reports" / "builtin.md"


def rows(text):
    """Table rows without the decade of the error, which another machine may round otherwise."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [re.sub(r" \(< [^)]*\)", "", line) for line in lines]


def test_the_committed_report_is_up_to_date(capsys):
    assert main(["run", "--format", "markdown", "-q"]) == 0
    today = rows(capsys.readouterr().out)
    assert len(today) > 80
    assert rows(REPORT.read_text(encoding="utf-8")) == today, (
        "run `gradcheck run -o reports/builtin.md` and commit it"
    )


def test_a_changed_verdict_would_be_noticed():
    line = "| `relu` | `default` | `dx` | PASS (< 0.1) | PASS | 5 | 100 |"
    assert rows(line) != rows(line.replace("| PASS |", "| FAIL |"))
    assert rows(line) == rows(line.replace("0.1", "0.001"))
