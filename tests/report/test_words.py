import math
from dataclasses import replace

import pytest

from gradcheck.judge.compare import KAPPA
from gradcheck.results import words
from gradcheck.results.verdict import Verdict

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\r\nc\td", "a b c d"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\x00\x7f\x85", "\\x00\\x7f"),  # U+0085 is a line break, and so white space
        ("\ud800", "\\ud800"),
        ("a\u202eb\u200bc", "a\\u202eb\\u200bc"),  # reversed text, invisible text
        ("\ufffe\U0001ffff", "\\ufffe\\U0001ffff"),
        ("a\u2028b\u00a0c", "a b c"),
        ("naïve ∂x ≤ 1 🙂", "naïve ∂x ≤ 1 🙂"),
        ("", ""),
    ],
)
def test_foreign_text_becomes_one_printable_line(text, line):
    assert words.clean(text) == line
    assert words.clean(text).isprintable()


def test_foreign_text_is_cut_and_says_by_how_much():
    assert words.clean("x" * 2000) == "x" * 2000
    assert words.clean("x" * 3500) == "x" * 2000 + " … (1,500 more characters)"


def test_a_command_is_copied_as_it_is_if_it_is_one_clean_line():
    assert words.command("run --impl 'a  b'") == "run --impl 'a  b'"
    assert words.command("run\nrm -rf  /") == "run rm -rf /"
    assert words.command("run \x1b[31m") == "run \\x1b[31m"


@pytest.mark.parametrize(
    ("value", "text"),
    [(NAN, "nan"), (INF, "inf"), (-INF, "-inf"), (0.0, "0"), (1234567.0, "1.23e+06"),
     (2.0e-13, "2e-13"), (0.5, "0.5"), (12.345, "12.3")],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("got", "want"), [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, -INF), (NAN, NAN), (0.0, 0.0)]
)
def test_nothing_is_relative_to_zero_or_to_what_is_no_number(make, got, want):
    assert words.relative(make.miss(got=got, want=want)) is None


def test_relative_means_relative_to_the_larger(make):
    small, large = make.miss(got=1.0, want=4.0, error=3.0, bound=0.4), (0.75, 0.1)
    assert words.relative(small) == large
    assert words.relative(make.miss(got=-4.0, want=1.0, error=5.0, bound=0.4)) == (1.25, 0.1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"got": 0.5, "want": 1.0, "error": 3.2e-4, "bound": 1e-8}, "3.2e-04 > 1.0e-08"),
        ({"got": 0.5, "want": 1.0, "error": 2.1e-13, "bound": 1e-8}, "2.1e-13 ≤ 1.0e-08"),
        ({"got": 1.0, "want": 1.0, "error": 0.0, "bound": 1e-8}, "0 ≤ 1.0e-08"),
        ({"got": 1.0, "want": 1.0, "error": 1e-8, "bound": 1e-8}, "1.0e-08 ≤ 1.0e-08"),
        # A failure that two digits would hide is told in as many as it takes.
        (
            {"got": 1.0, "want": 1.0, "error": 1.0001e-8, "bound": 1e-8},
            "1.0001e-08 > 1.0000e-08",
        ),
        ({"got": 1.0, "want": 1.0, "error": 1e-8, "bound": 0.0}, "1.0e-08 > 0"),
        ({"got": NAN, "want": 1.0, "error": NAN, "bound": 1e-8}, "got nan"),
        ({"got": -INF, "want": 1.0, "error": INF, "bound": 1e-8}, "got -inf"),
        # Near zero, relative numbers say nothing.
        ({"got": 1e-17, "want": 0.0, "error": 1e-17, "bound": 2e-17}, "1e-17 ≤ 2e-17 abs"),
        ({"got": 1e-17, "want": 0.0, "error": 1e-17, "bound": 5e-18}, "1.0e+00 > 5.0e-01"),
        ({"got": 0.0, "want": 1.0, "error": 1.04, "bound": 1.0}, "1.04e+00 > 1.00e+00 abs"),
        ({"got": 0.0, "want": 0.0, "error": 0.0, "bound": 2e-17}, "0 ≤ 2e-17 abs"),
    ],
)
def test_error_against_bound(make, changes, text):
    assert words.comparison(make.miss(**changes)) == text


def test_a_pass_is_held_against_what_was_allowed_with_its_error_bar(make):
    assert words.BARS == KAPPA
    miss = make.miss(got=0.5, want=1.0, error=5.5e-7, bound=1.1e-8, error_bar=4e-7)
    passed = make.result(verdict=Verdict.PASS, worst=(miss,))
    assert words.cell(passed.finding) == "5.5e-07 ≤ 8.1e-07"
    assert (miss.bound, words.allowed(miss, Verdict.PASS)) == (1.1e-8, 1.1e-8 + 2 * 4e-7)
    # What failed did so beyond it, and a pass within its bound needs no more.
    assert words.cell(replace(passed.finding, verdict=Verdict.FAIL)) == "5.5e-07 > 1.1e-08"
    within = replace(passed.finding, worst=(replace(miss, error=1e-8),))
    assert words.cell(within) == "1.0e-08 ≤ 1.1e-08"


def test_a_cell_measures_only_what_was_compared(make):
    for verdict in Verdict:
        measured = words.cell(make.result(verdict=verdict, worst=(make.miss(),)).finding)
        assert bool(measured) == (verdict in (Verdict.PASS, Verdict.FAIL)), verdict
    assert words.cell(make.result(verdict=Verdict.FAIL, worst=()).finding) == ""


def test_a_cell_gives_up_its_bound_then_its_error(make):
    failed = make.result(verdict=Verdict.FAIL)
    assert words.cell(failed.finding) == "4.5e-04 > 1.0e-08"
    assert words.cell(failed.finding, bound=False) == "4.5e-04"
    assert words.cell(failed.finding, measured=False) == ""
    tiny = make.result(worst=(make.miss(got=1e-17, want=0.0, error=1e-17, bound=2e-17),))
    assert words.cell(tiny.finding, bound=False) == "1e-17 abs"
    broken = make.result(verdict=Verdict.FAIL, worst=(make.miss(got=NAN, error=NAN),))
    assert words.cell(broken.finding, bound=False) == "got nan"


def test_an_element_is_named_as_in_code():
    assert words.element("x", (1, 3)) == "dx[1, 3]"
    assert words.element("x", (5,)) == "dx[5]"
    assert words.element("x", ()) == "dx"
    assert words.element("h.0.w", (2,)) == "d h.0.w[2]"
    assert words.element("forward", (2,)) == "forward[2]"
    assert words.gradient("vjp") == "vjp"


def test_only_a_pass_is_good():
    tones = {verdict: words.tone(verdict) for verdict in Verdict}
    assert [v for v in Verdict if tones[v] == "good"] == [Verdict.PASS]
    assert {v for v in Verdict if tones[v] == "calm"} == {v for v in Verdict if not v.checked}
    assert {v for v in Verdict if tones[v] == "warn"} == {Verdict.INCONCLUSIVE, Verdict.NOTRUN}
