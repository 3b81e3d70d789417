import math
from dataclasses import replace

import numpy as np
import pytest

from gradcheck import Finding, Verdict, check
from gradcheck.report.findings import table
from gradcheck.results.finding import Heat, Miss

MISS = Miss(index=(1, 3), got=0.25, want=-0.25, error=0.5, bound=1e-9, error_bar=1e-12, ulp=3e9,
            cotangent="powers")  # fmt: skip


def finding(name="x", verdict=Verdict.PASS, **changes):
    return Finding(name=name, verdict=verdict, compared=12, **changes)


FAIL = finding("w", Verdict.FAIL, reason="2 of 12 elements are outside", failed=2, worst=(MISS,))


@pytest.mark.parametrize("verdict", Verdict)
def test_the_first_line_answers(verdict):
    first = table("my_vjp", "float32", [finding(), finding("w", verdict, reason="why")])
    word = verdict.value.upper() if verdict.checked else "PASS"
    assert first.splitlines()[0] == f"{word} my_vjp, float32: dw: why"


def test_every_gradient_has_its_row_in_the_order_of_the_primals():
    text = table("f", "float64", [finding("a", worst=(MISS,)), FAIL, finding("b"), finding("vjp")])
    lines = text.splitlines()
    head = next(k for k, line in enumerate(lines) if line.startswith("gradient"))
    assert lines[head].split() == ["gradient", "verdict", "worst", "error", "elements"]
    rows = [line.split() for line in lines[head + 2 : head + 6]]
    assert [row[:2] for row in rows] == [
        ["da", "PASS"],
        ["dw", "FAIL"],
        ["db", "PASS"],
        ["vjp", "PASS"],
    ]
    assert [row[-1] for row in rows] == ["12"] * 4
    assert "2.0e+00 > 4.0e-09" in lines[head + 3]


def test_what_failed_is_told_in_full_and_the_worst_verdict_first():
    error = finding("vjp", Verdict.ERROR, reason="vjp raised ValueError: no")
    text = table("f", "float64", [finding(), FAIL, error])
    assert text.startswith("ERROR f, float64: vjp raised ValueError: no\n")
    assert text.index("\ngradient") < text.index("\ndw: 2 of 12 elements")
    assert "\n  worst: dw[1, 3] got 0.25, want -0.25 ± 1e-12" in text
    assert "\n  failed: 2 of 12 elements; the worst with cotangent powers" in text
    assert "run:" not in text  # there is no command line to repeat
    assert "dx:" not in text


def test_a_pass_may_carry_a_note_but_no_failure():
    text = table("f", "float64", [finding(reason="forward has a kink", worst=(MISS,))])
    assert text.splitlines()[0] == "PASS f, float64: dx: forward has a kink"
    assert text.count("forward has a kink") == 1
    assert "failed" not in text


def test_what_cannot_be_seen_is_said():
    blind = finding("x", Verdict.INCONCLUSIVE, reason="blind", smallest_visible_error=0.03)
    assert "\n  visible: a relative error of 0.03 or more" in table("f", "float64", [blind])


def test_a_class_stands_in_the_first_line(make):
    found = finding("w", Verdict.FAIL, reason="2 of 12", worst=(MISS,), diagnosis=make.why())
    first, *others = table("f", "float64", [finding(), found]).splitlines()
    assert first == "FAIL f, float64: dw: scale: dw is 1/3 of the right value"
    assert others[:3] == [
        "  reason: 2 of 12",
        "  evidence: 3 is the number of rows",
        "  evidence: wrong in all 5 probes",
    ]


def test_a_diagnosis_is_told_even_where_no_reason_is(make):
    found = finding("w", Verdict.FAIL, diagnosis=make.why())
    assert table("f", "float64", [found]).startswith("FAIL f, float64: dw: scale: dw is 1/3")


def test_where_no_pattern_is_known_the_reason_comes_first(make):
    found = finding("w", Verdict.FAIL, reason="2 of 12", diagnosis=make.why(""))
    first, second, *_ = table("f", "float64", [found]).splitlines()
    assert first == "FAIL f, float64: dw: 2 of 12"
    assert second == "  pattern: none known; 3 is the number of rows; wrong in all 5 probes"


def test_numbers_that_are_none_are_shown_as_such():
    nan = Miss(index=(), got=math.nan, want=1.0, error=math.nan, bound=1e-9, error_bar=0.0,
               ulp=None, cotangent="ones")  # fmt: skip
    text = table("f", "float64", [finding("x", Verdict.FAIL, reason="nan", worst=(nan,))])
    assert "FAIL       got nan" in text
    assert "worst: dx got nan, want 1 ± 0" in text


def test_foreign_text_stays_on_its_line(make):
    name = make.hostile
    text = table(name, "float64", [finding(name, Verdict.ERROR, reason=name)])
    assert "\x1b" not in text
    assert "\x00" not in text
    assert len(text.splitlines()) == 6
    assert text.encode()


def test_nothing_found_is_no_pass():
    assert table("f", "float64", []).startswith("SKIP f, float64\n")


def test_a_result_prints_as_this_table():
    x = np.linspace(0.5, 2.0, 1500)
    result = check(np.multiply, lambda ct, x, y: (ct * y, -ct * x), x, x[::-1].copy())
    text = str(result)
    assert text == table(result.subject, "float64", result.findings)
    assert text.startswith("FAIL <lambda>, float64: d")
    assert "4,500" in text


def _map(*rows):
    return Heat(shape=(len(rows), len(rows[0])), rows=len(rows), columns=len(rows[0]),
                cells="".join(rows), cotangent="powers")  # fmt: skip


def test_a_gradient_of_which_a_part_is_wrong_comes_with_a_map():
    text = table("f", "float64", [finding(), replace(FAIL, heat=_map("..7", "777"))])
    assert "\n  where: dw[1, :], dw[0, 2]\n" in text
    assert "\n  map: dw, 2 × 3 under the cotangent powers; " in text
    assert "\n    0  ..7\n    1  777\n" in text


@pytest.mark.parametrize("heat", [None, _map("777", "777"), _map(*["..7"] * 17)])
def test_what_is_wrong_as_a_whole_or_too_large_has_none(heat):
    assert "map: " not in table("f", "float64", [replace(FAIL, heat=heat)])
    assert "map: " in table("f", "float64", [replace(FAIL, heat=_map("..7"))])


def test_check_draws_the_map_of_what_it_judged():
    def vjp(ct, x):
        out = 2 * x * ct
        out[1] = 0
        return out

    found = check(lambda x: x * x, vjp, np.arange(1.0, 13.0).reshape(3, 4))
    assert "\n  where: dx[1, :]\n" in str(found)
    assert "\n    0  ....\n    1  7777\n    2  ....\n" in str(found)
