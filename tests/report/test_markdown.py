import math
import re

import pytest

from gradcheck.report.markdown import LIMIT, OPEN_ROWS, SHORT, SUMMARY_LIMIT, render, summary
from gradcheck.report.marked import code, escape
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL
TAG = re.compile("</?(?:details|summary|b|code)>")
BARE = re.compile(r"(?<!\\)\|")


def outside_fences(text):
    """The lines that markdown reads, those of code blocks left out."""
    found, fence = [], ""
    for line in text.splitlines():
        opening = re.match("`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif opening:
            fence = opening[0]
        else:
            found.append(line)
    assert not fence, "a code block is left open"
    return found


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("passing", "**gradcheck: all 12 checks passed** (12 pass)"),
        ("empty", "**gradcheck: nothing was checked** (no results)"),
        ("several", "**gradcheck: 1 of 25 checks failed** (24 pass, 1 fail)"),
    ],
)
def test_the_verdict_is_on_the_first_line(name, line, request):
    assert render(request.getfixturevalue(name)).splitlines()[0] == line


def test_only_the_line_of_versions_differs_between_machines(make):
    found = [make.result(), make.result(verdict=FAIL, sample="b")]
    here = render(make.run(*found))
    there = render(make.run(*found, python="3.14.0", numpy="3.0.0", platform="Darwin arm64"))
    pairs = zip(here.splitlines(), there.splitlines(), strict=True)
    assert sum(a != b for a, b in pairs) == 1


def test_the_last_digits_of_what_passed_do_not_matter(make):
    def run(error):
        miss = make.miss(got=1.0, want=1.0, error=error, bound=1e-8, ulp=error * 2**52)
        return make.run(make.result(worst=(miss,)))

    assert render(run(2.1e-13)) == render(run(2.4e-13))
    assert "| PASS (< 0.001) |" in render(run(2.1e-13))
    assert "| PASS (< 0.01) |" in render(run(9e-11))
    assert "| PASS (< 0.1) |" in render(run(9e-10))
    assert "| PASS (< 1) |" in render(run(9e-9))
    assert "| PASS |" in render(run(0.0))


def test_the_matrix_has_a_row_per_gradient(passing):
    rows = [line for line in render(passing).splitlines() if line.startswith("|")]
    assert rows[0] == (
        "| operator | variant | gradient | `float64` | `float32` | samples | elements |"
    )
    assert [row.split(" | ")[:3] for row in rows[2:]] == [
        ["| `rms_norm`", "`weight`", "`dx`"],
        ["| ", "", "`dweight`"],
        ["| `softmax`", "`weight`", "`dx`"],
    ]


def test_what_failed_is_bold_and_what_was_not_checked_is_no_pass(make):
    text = render(make.run(*(make.result(v.value, verdict=v) for v in Verdict)))
    for verdict in Verdict:
        word = verdict.value.upper()
        assert (f"**{word}**" in text) == (not verdict.expected), word
        assert word in text
    assert "| **FAIL** 4.5e-04 > 1.0e-08 |" in text


def test_failures_unfold_with_the_worst_element_and_a_repro(make):
    result = make.result(verdict=FAIL)
    text = render(make.run(result))
    assert text.count("<details>") == text.count("</details>") == 1
    assert (
        "<details><summary><b>FAIL</b> rms_norm/weight · dx: "
        "3 of 24 elements are outside their bound</summary>\n\n| sample |" in text
    )
    assert "| `dx[1, 3]` | 0.123456 | 0.1234 ± 1e-20 |" in text
    assert f"\n```sh\n{result.repro}\n```\n" in text
    assert "- `typical` is designed to catch: a missing factor 1/n in the mean\n" in text


def test_failures_beyond_twenty_are_counted(make):
    found = [make.result(verdict=FAIL, sample=f"s{i}") for i in range(23)]
    text = render(make.run(*found))
    assert "\n… and 3 more\n" in text
    assert text.count("gradcheck run") == 1 + 20  # of the cause, then of each case


def test_implementations_are_told_apart(several):
    text = render(several)
    assert "\n### reference\n" in text
    assert "\n### mine\n" in text
    assert "### " not in render(several.__class__(header=several.header, results=())).replace(
        "### reference", ""
    )


def test_gaps_problems_and_an_early_end_are_told(make):
    gap = make.result("sort", verdict=Verdict.UNSUPPORTED, reason="no axis but the last")
    run = make.run(make.result(), gap, troubles=("mine does not load",), complete=False)
    text = render(run)
    assert "- UNSUPPORTED: 1 result of `sort`: no axis but the last\n" in text
    assert "\n> problem: mine does not load\n" in text
    assert "incomplete" in text.splitlines()[0]


def test_hostile_text_stays_text(hostile):
    lines = outside_fences(render(hostile))
    for line in lines:
        bare = TAG.sub("", line.removeprefix("> "))
        if not line.startswith("<details>"):  # in HTML, no markdown is read
            bare = re.sub(r"\\.|`[^`|]+`", "", bare)
            assert not re.search(r"[`\[]", bare), line
        assert not re.search("[<>]", bare), line
    assert "\x1b" not in "".join(lines)


def test_hostile_text_breaks_no_table(hostile):
    tables = [
        block
        for block in "\n".join(outside_fences(render(hostile))).split("\n\n")
        if block.startswith("|")
    ]
    assert len(tables) >= 2
    for table in tables:
        widths = {len(BARE.findall(line)) for line in table.splitlines()}
        assert len(widths) == 1, table


def test_a_repro_cannot_close_its_fence(make):
    evil = make.result(verdict=FAIL, repro="```\n</details><script>alert(1)</script>\n````")
    text = render(make.run(evil))
    assert "`````sh\n``` </details><script>alert(1)</script> ````\n`````\n" in text
    assert not [line for line in outside_fences(text) if "script" in line]


def test_escapes():
    assert escape("a|b") == "a\\|b"
    assert escape("<i>&`*_[x](y)~$\\") == "&lt;i&gt;&amp;\\`\\*\\_\\[x\\](y)\\~\\$\\\\"
    assert code("rms_norm") == "`rms_norm`"
    assert code("dx[1, 3]") == "`dx[1, 3]`"
    assert code("a`b|c") == "a\\`b\\|c"
    assert code("") == ""


def test_the_report_stops_growing_and_counts_what_it_leaves_out(make):
    found = [
        make.result(f"op{i}", verdict=FAIL, reason="é" * 2000, hunts="h" * 1000) for i in range(400)
    ]
    text = render(make.run(*found))
    assert LIMIT * 0.9 < len(text.encode()) <= LIMIT
    shown = text.count("<details>")
    left = re.search(r"\n… and (\d+) more failing gradients, left out for size\n$", text)
    assert shown + int(left[1]) == 400
    assert shown > 0
    outside_fences(text)  # every block is whole


def test_no_row_stands_under_the_name_of_one_that_was_left_out(make):
    names = ["first", "long" * 400, "last"]
    text = render(make.run(*(make.result(name) for name in names)), limit=2000)
    assert "`first`" in text
    assert "`last`" not in text
    assert "… and 2 more rows, left out for size" in text


def test_a_small_limit_still_says_the_verdict(make):
    found = [make.result(f"op{i}", verdict=FAIL) for i in range(200)]
    text = render(make.run(*found), limit=5000)
    assert len(text.encode()) <= 5000
    assert text.startswith("**gradcheck: 200 of 200 checks failed**")
    rows = len(re.findall(r"^\| `op", text, re.MULTILINE))
    assert 0 < rows < 200
    assert f"… and {200 - rows} more rows, left out for size" in text


def test_numbers_that_are_none_are_shown_as_they_are(make):
    miss = make.miss(got=math.nan, error=math.nan, ulp=None)
    text = render(make.run(make.result(verdict=FAIL, worst=(miss,))))
    assert "| nan | 0.1234 ± 1e-20 |  | 3 of 24 |" in text


def test_models_have_a_line_each_and_unfold_to_gradients_and_stages(model):
    text = render(model)
    assert (
        "| `gpt2` | `default` | 3/3 | 2/2 | PASS (< 0.1) | PASS (< 0.1) | `tiny`, `large` |" in text
    )
    (part,) = re.findall("<details><summary><b>PASS</b> gpt2.*?</details>", text, re.DOTALL)
    assert "gpt2/default: 3 gradients, 2 stages" in part
    rows = re.findall(r"^\| `([^`]*)` \| PASS \(< 0.1\) \| PASS \(< 0.1\) \| 96 \|$", part, re.M)
    assert rows == ["loss", "dwte", "d h.0.w", "d ln_f.w", "stage embed", "stage ln_f"]


def test_blame_stands_before_the_failures(faulty):
    text = render(faulty)
    blame = text.index("Faulty stages: `gpt2/default` (odd in float64)")
    assert text.index("**FAIL** gpt2 · stage h.0.attn") < blame
    assert blame < text.index("<b>FAIL</b> gpt2/default · stage h.0.attn")
    assert (
        "\n- round 1: faulty stage: h.0.attn (1 of 25 stages)\n  - its dk lacks a factor\n" in text
    )
    assert "\n- round 2: faulty stage: one of embed, h.0.attn (2 of 25 stages)\n  - between" in text
    assert text.count("\n- assumption: one fault at a time\n") == 1


def test_a_failing_model_gives_one_line_to_paste(make):
    found = [make.of_model("wte", FAIL, size=size, compared=count)
             for size, count in (("tiny", 24), ("large", 96))]  # fmt: skip
    text = render(make.run(*found))
    assert text.count("--sample tiny ") == 2  # of the cause, and of the gradient
    assert "--sample large " not in text
    found = [make.result("relu", verdict=FAIL, sample=s) for s in ("a-tiny", "large")]
    assert render(make.run(*found)).count("--sample large ") == 1


def test_what_projections_see_is_told(faulty):
    said = "Smallest detectable error: `gpt2/default/odd/float64`: an error of 0.25 of a typical"
    assert said in render(faulty)


def test_models_that_do_not_fit_are_counted(make):
    found = [make.of_model(f"w{i}", op=f"m{j}") for i in range(40) for j in range(40)]
    text = render(make.run(*found), limit=20_000)
    assert len(text.encode()) <= 20_000
    assert re.search(r"… and \d+ more models, left out for size", text)


def test_rules_and_trainings_are_told_too(make):
    told = make.of_model("training", part=Part.TRAINING, reason="loss 2 → 1")
    rule = make.result("adam", "m.w", kind=Kind.RULE, part=Part.UPDATE)
    text = render(make.run(told, rule))
    assert "| rule | variant | new value | `float64` |" in text
    assert "| `adam` | `weight` | `m.w` |" in text
    assert "| model | variant | trainings | `float64` | sizes |" in text
    (part,) = re.findall("<details>.*?gpt2.*?</details>", text, re.DOTALL)
    assert "\n- `gpt2/default/tiny/float64`: loss 2 → 1\n" in part


def test_a_class_stands_in_the_line_that_unfolds_and_what_it_rests_on_below(make):
    results = [make.result(output="w", verdict=FAIL, sample=s, diagnosis=make.why()) for s in "ab"]
    text = render(make.run(*results))
    assert (
        "<summary><b>FAIL</b> rms_norm/weight · dw: scale: dw is 1/3 of the right value</summary>"
        "\n\n- evidence: 3 is the number of rows\n- evidence: wrong in all 5 probes\n\n| sample |"
    ) in text
    assert text.count("dw is 1/3") == 2  # of the cause, and of the gradient
    assert text.count("| 3 of 24 elements are outside their bound |") == 2


def test_diagnoses_that_differ_are_counted_and_listed(explained):
    text = render(explained)
    assert (
        "\n- diagnoses: 5 scale, 1 term\n- scale: dw is 1/3 of the right value\n"
        "  - evidence: 3 is the number of rows\n"
    ) in text
    assert "\n- term: dw lacks a term\n" in text
    assert text.count("| scale: 3 of 24 elements are outside their bound |") == 5
    assert text.count("| term: 3 of 24 elements are outside their bound |") == 1


def test_where_no_pattern_is_known_the_residual_is_told(explained):
    text = render(explained)
    start = "gelu/weight · dx: 3 of 24 elements are outside their bound</summary>"
    assert f"{start}\n\n- pattern: none known; the residual is 0.3\n\n| sample |" in text


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
    text = summary(any_run)
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert text.startswith("**gradcheck: ")
    assert blocks(text)


def test_what_is_wrong_stands_before_what_is_right(make):
    right = [make.result(f"op{i:03}") for i in range(OPEN_ROWS)]
    text = summary(make.run(*right, make.result("zebra", verdict=FAIL), make.result("zebra", "w")))
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows[0].startswith("| `zebra` | `weight` | `dx` | **FAIL**")
    open_rows = text.partition("30 operators without failures")[0]
    assert "`dw` | PASS" in open_rows  # an operator that fails is shown whole
    (fold,) = re.findall(
        r"<details><summary>30 operators without failures</summary>(.*?)</details>", text, re.S
    )
    assert fold.count("| `op") == OPEN_ROWS
    assert text.index("<b>FAIL</b> zebra") < text.index("30 operators without failures")


def test_a_few_operators_stand_open(passing):
    text = summary(passing)
    assert "<details>" not in text
    assert text.count("| PASS") == 4  # two operators in two dtypes, a row each


def test_a_cause_unfolds_to_one_case_and_counts_the_others(make):
    found = [make.result(verdict=FAIL, sample=f"s{i}", diagnosis=make.why()) for i in range(23)]
    text = summary(make.run(*found))
    assert text.count("<details>") == 1
    assert text.count("gradcheck run --op") == 1
    assert "\n- evidence: 3 is the number of rows\n" in text
    told = "dx\\[1, 3\\] got 0.123456, expected 0.1234: rel. err 4.5e-04 &gt; tol 1.0e-08"
    assert f"\n- {told}; 23 of 23 cases fail\n" in text


def test_foreign_text_is_short(make):
    long = make.result(
        "o" * 5000, "p" * 5000, FAIL, reason="r" * 5000, hunts="h" * 5000, repro="",
        diagnosis=make.why(says="s" * 5000, evidence=("e" * 5000,)),
    )  # fmt: skip
    (fold,) = re.findall("<details>.*?</details>", summary(make.run(long)), re.S)
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


@pytest.mark.slow(rest=0)
def test_a_hundred_thousand_failures_fit_and_the_rest_is_counted(flood):
    text = summary(flood)
    assert 0.7 * SUMMARY_LIMIT < len(text.encode()) <= SUMMARY_LIMIT
    lines = blocks(text)
    assert lines[0].startswith("**gradcheck: 100,000 of 100,000 checks failed**")
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
    text = summary(make.run(*found), limit=limit)
    assert len(text.encode()) <= limit
    assert blocks(text)[0].startswith("**gradcheck: 300 of 600 checks failed**")


def test_models_have_a_line_and_blame_is_told(faulty):
    text = summary(faulty)
    assert re.search(r"^\| `gpt2` \| `default` \| ", text, re.MULTILINE)
    assert "faulty stage: h.0.attn" in text
    assert "| `d h.0.w` |" not in text  # a row per parameter is for the page


def test_gradients_that_a_guilty_stage_spoils_are_counted(make):
    run = make.run(
        make.of_model("ln_f", FAIL, part=make.Part.STAGE, blames=(make.blame("ln_f"),)),
        *(make.of_model(f"w{i}", FAIL) for i in range(20)),
    )
    text = summary(run)
    assert text.count("<details>") == 1
    assert "affected downstream: dw0, dw1, dw2 and 17 more\n" in text
    whole = render(run)
    (fold,) = re.findall("<summary>20 gradients affected downstream</summary>.*", whole, re.S)
    assert fold.count("<b>FAIL</b> gpt2/default · dw") == whole.count("· dw") == 20


def test_what_was_not_checked_and_what_a_baseline_says_is_told(outdated, failing):
    text = summary(outdated)
    assert "\n> baseline: known.toml: " in text
    assert "\n> baseline: known.toml:1: UNLISTED: remove the entry\n" in text
    assert "- UNSUPPORTED: 2 results of `sort`: no axis but the last\n" in summary(failing)
