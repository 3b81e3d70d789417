"""The table of roundings: what is rejected, what cannot be seen, and what was missed."""

import json

import pytest

from gradcheck.cli.main import main
from gradcheck.power.narrow import NarrowPower, Outcome
from gradcheck.report.narrow import render
from gradcheck.report.power_page import FORMATS


def outcome(what="operands", kind="TF32", *, rejected=True, reason="", subject="matmul/bias"):
    return Outcome(subject, "operator", what, kind, "float32", rejected, reason)


def power(*outcomes):
    return NarrowPower(suite="mine", suite_version="1", seed=0, scores=outcomes)


def line(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_a_letter_is_capital_only_where_every_dialect_rejects():
    text = render(
        power(
            outcome(),
            outcome(kind="bfloat16"),
            outcome(kind="bfloat16", subject="matmul/plain", rejected=False, reason="no part"),
            outcome("x", "float16"),
            outcome("sums", "float16", rejected=False, reason="adds nothing"),
        ),
        "markdown",
    )
    assert line(text, "| `matmul`") == "| `matmul` | float32 | TbH | – | – | – | – |"
    assert "no part" in text
    assert "adds nothing" in text


@pytest.mark.parametrize("form", FORMATS)
def test_what_passes_without_a_reason_is_named_and_the_table_is_not_sound(form):
    found = power(outcome(), outcome("cotangent", rejected=False))
    assert not found.sound
    text = render(found, form)
    assert "cotangent" in text
    if form == "json":
        assert json.loads(text)["sound"] is False
    else:
        assert "missed=1" in text
        assert "NARROW fail" in text


def test_reasons_that_differ_in_numbers_share_a_line():
    passing = [outcome(what, rejected=False, reason=f"shows from {n} bits")
               for what, n in (("x", 7), ("w", 9))]  # fmt: skip
    text = render(power(*passing), "markdown")
    assert "2 roundings" in line(text, "- operator")
    assert "2 places" in text


def test_the_command_writes_the_table(capsys, tmp_path):
    file = tmp_path / "narrow.md"
    assert main(["power", "--narrow", "--op", "softmax", "-o", str(file)]) == 0
    assert "NARROW pass" in capsys.readouterr().out
    text = file.read_text("utf-8")
    assert line(text, "| `softmax` | float64") == (
        "| `softmax` | float64 | TBHS | TBHS | TBHS | TBHS | TBHS |"
    )
    assert "## Models" not in text


@pytest.mark.parametrize("flags", [["--rule", "*"], ["--part", "1/2"], ["--dtype", "float16"]])
def test_flags_that_make_no_sense_are_refused(flags, capsys):
    assert main(["power", "--narrow", *flags]) == 2
    assert capsys.readouterr().err
