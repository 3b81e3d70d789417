import re

import pytest

from gradcheck.report.markdown import OPEN_ROWS, SHORT, SUMMARY_LIMIT
from gradcheck.report.markdown import summary as render
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL
BARE = re.compile(r"(?<!\\)\|")
WIDE = "\U0001f4a5"
"""Four bytes of UTF-8."""


def blocks(text):
    """The text between the tables and lists, read as GitHub does; asserts that none is cut."""
    fence, depth, table, found = "", 0, 0, []
    for line in text.splitlines():
        ticks = re.match("`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
            continue
        if ticks:
            fence = ticks[0]
            continue
        depth += line.startswith("<details>") - line.startswith("</details>")
        assert depth in (0, 1), line
        assert line.count("<summary>") == line.count("</summary>"), line
        assert line.count("<b>") == line.count("</b>"), line
        if line.startswith("|"):
            bars = len(BARE.findall(line))
            assert line.endswith("|"), line
            assert bars == (table or bars), line
            table = bars
        else:
            table = 0
        found.append(line)
    assert not fence
    assert depth == 0
    return found


def test_every_run_fits_says_its_verdict_first_and_cuts_nothing(any_run):
    text = render(any_run)
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert text.startswith("**gradcheck: ")
    assert blocks(text)


def test_what_is_wrong_stands_before_what_is_right(make):
    right = [make.result(f"op{i:03}") for i in range(OPEN_ROWS)]
    text = render(make.run(*right, make.result("zebra", verdict=FAIL), make.result("zebra", "w")))
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows[0].startswith("| `zebra` | `weight` | `dx` | **FAIL**")
    assert "`dw` | PASS" in text.partition("<details>")[0]  # an operator that fails is shown whole
    (fold,) = re.findall(
        r"<details><summary>30 operators without failures</summary>(.*?)</details>", text, re.S
    )
    assert fold.count("| `op") == OPEN_ROWS
    assert text.index("<b>FAIL</b> zebra") < text.index("30 operators without failures")


def test_a_few_operators_stand_open(passing):
    text = render(passing)
    assert "<details>" not in text
    assert text.count("| PASS") == 4  # two operators in two dtypes, a row each


def test_a_failure_shows_its_worst_case_and_counts_the_others(make):
    found = [make.result(verdict=FAIL, sample=f"s{i}", diagnosis=make.why()) for i in range(23)]
    text = render(make.run(*found))
    assert text.count("<details>") == 1
    assert "\n- … and 22 more: 22 FAIL\n" in text
    assert text.count("gradcheck run --op") == 1
    assert "\n- evidence: 3 is the number of rows\n" in text
    assert "\n- worst: dx\\[1, 3\\] got 0.123456, want 0.1234 ± 1e-20\n" in text


def test_foreign_text_is_short(make):
    long = make.result(
        "o" * 5000, "p" * 5000, FAIL, reason="r" * 5000, hunts="h" * 5000, repro="",
        diagnosis=make.why(says="s" * 5000, evidence=("e" * 5000,)),
    )  # fmt: skip
    (fold,) = re.findall("<details>.*?</details>", render(make.run(long)), re.S)
    for letter in "oprhse":
        assert max(map(len, re.findall(f"{letter}+", fold))) < SHORT


@pytest.fixture(scope="module")
def flood(make):
    """A hundred thousand failures: 20,000 gradients of 5 samples each."""
    return make.run(
        *(
            make.result(f"op{i:05}", verdict=FAIL, sample=f"s{j}", reason=WIDE * 400)
            for i in range(20_000)
            for j in range(5)
        ),
        troubles=tuple(WIDE * 2000 for _ in range(1000)),
    )


@pytest.mark.slow
def test_a_hundred_thousand_failures_fit_and_the_rest_is_counted(flood):
    text = render(flood)
    assert 0.7 * SUMMARY_LIMIT < len(text.encode()) <= SUMMARY_LIMIT
    lines = blocks(text)
    assert lines[0].startswith("**gradcheck: 100,000 of 100,000 checks did not pass**")
    assert lines[0].endswith("(100,000 fail, 1,000 problems)")
    for pattern, noun, total in (
        (r"^\| `op", "row", 20_000),
        ("^<details><summary><b>FAIL", "failing gradient", 20_000),
        ("^> problem: ", "problem", 1000),
    ):
        shown = len(re.findall(pattern, text, re.MULTILINE))
        left = re.search(rf"… and ([\d,]+) more {noun}s, left out for size; `-o report", text)
        assert shown > 5, noun
        assert shown + int(left[1].replace(",", "")) == total, noun


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("limit", [3_000, 5_000, 20_000, 60_000])
def test_bytes_are_counted_and_not_characters(make, limit):
    found = [make.result(WIDE * 100, f"{i}", FAIL, reason=WIDE * 300) for i in range(300)]
    found += [make.result(f"{WIDE}{i}") for i in range(300)]
    text = render(make.run(*found), limit=limit)
    assert len(text.encode()) <= limit
    assert blocks(text)[0].startswith("**gradcheck: 300 of 600 checks did not pass**")


def test_models_have_a_line_and_blame_is_told(faulty):
    text = render(faulty)
    assert re.search(r"^\| `gpt2` \| `default` \| ", text, re.MULTILINE)
    assert "guilty: h.0.attn" in text
    assert "| `d h.0.w` |" not in text  # a row per parameter is for the page


def test_gradients_that_a_guilty_stage_spoils_are_counted(make):
    run = make.run(
        make.of_model("loss", blames=(make.blame("ln_f"),)),
        make.of_model("ln_f", FAIL, part=make.Part.STAGE),
        *(make.of_model(f"w{i}", FAIL) for i in range(20)),
    )
    text = render(run)
    assert text.count("<details>") == 1
    assert "\n20 gradients that the guilty stages spoil.\n" in text


def test_what_was_not_checked_and_what_a_baseline_says_is_told(outdated, failing):
    text = render(outdated)
    assert "\n> baseline: known.toml: " in text
    assert "\n> baseline: known.toml:1: UNLISTED: remove the entry\n" in text
    assert "- UNSUPPORTED: 2 results of `sort`: no axis but the last\n" in render(failing)
