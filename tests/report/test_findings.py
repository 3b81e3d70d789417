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
    found = [finding(), finding("w", verdict, reason="why")]
    brief, whole = (table("my_vjp", "float32", found, details=d) for d in (False, True))
    word = verdict.value.upper()
    if verdict.checked:
        assert brief.startswith(f"{word} my_vjp · dw, float32\n  why\n\n")
        assert whole.startswith(f"{word} my_vjp, float32: dw: why\n")
    else:  # what was not checked is a note beside a pass
        assert brief.startswith("PASS my_vjp, float32\n\n")
        assert whole.startswith("PASS my_vjp, float32\n\n")
        assert brief.endswith(f"\n\n{word} my_vjp · dw, float32\n  why")


@pytest.mark.parametrize("details", [False, True])
def test_a_failure_without_a_reason_is_no_pass(details):
    found = [finding(reason="forward has a kink"), finding("w", Verdict.FAIL)]
    first, *_ = table("f", "float64", found, details=details).splitlines()
    assert first == ("FAIL f, float64: dw" if details else "FAIL f · dw, float64")


def test_every_gradient_has_its_row_in_the_order_of_the_primals():
    text = table("f", "float64", [finding("a", worst=(MISS,)), FAIL, finding("b"), finding("vjp")])
    lines = text.splitlines()
    head = next(k for k, line in enumerate(lines) if line.startswith("gradient"))
    assert lines[head].split() == ["gradient", "verdict", "rel.", "err", "and", "tol", "elements"]
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
    found = [finding(), FAIL, error]
    brief, text = table("f", "float64", found), table("f", "float64", found, details=True)
    assert brief.startswith("ERROR f · vjp, float64\n  vjp raised ValueError: no\n\ngradient")
    assert brief.endswith(
        "\n\nFAIL f · dw, float64\n  2 of 12 elements are outside\n"
        "  dw[1, 3] got 0.25, expected -0.25: rel. err 2 > tol 4.0e-09"
    )
    assert text.startswith("ERROR f, float64: vjp raised ValueError: no\n")
    assert text.index("\ngradient") < text.index("\nFAIL f, float64: dw: 2 of 12 elements")
    assert "\n  worst: dw[1, 3] got 0.25, expected -0.25 ± 1e-12" in text
    assert "\n  failed: 2 of 12 elements; the worst with cotangent powers" in text
    for either in (brief, text):
        assert "run:" not in either  # there is no command line to repeat
        assert "dx:" not in either


def test_of_many_gradients_three_are_told_and_the_others_counted():
    found = [finding(name, Verdict.FAIL, reason=f"because of {name}") for name in "abcde"]
    brief, whole = (table("f", "float64", found, details=d) for d in (False, True))
    assert [name for name in "abcde" if f"because of {name}" in brief] == ["a", "b", "c"]
    assert brief.endswith("\n\n… and 2 more gradients: details()")
    assert all(f"FAIL f, float64: d{name}: because of {name}" in whole for name in "abcde")
    assert "more gradient" not in whole


def test_a_pass_may_carry_a_note_but_no_failure():
    close = replace(MISS, error=1e-9 + 1e-12, want=0.25, index=(1,))  # in reach of its bars
    found = [finding(reason="forward has a kink", worst=(close,))]
    text = table("f", "float64", found, details=True)
    assert text.splitlines()[0] == "PASS f, float64: dx: forward has a kink"
    assert text.count("forward has a kink") == 1
    assert "failed" not in text
    text = table("f", "float64", found)
    assert text.startswith("PASS f · dx, float64\n  forward has a kink\n  dx[1] got 0.25, expec")
    assert "fail" not in text
    assert ">" not in text


def test_what_cannot_be_seen_is_said():
    blind = finding("x", Verdict.INCONCLUSIVE, reason="blind", smallest_visible_error=0.03)
    text = table("f", "float64", [blind], details=True)
    assert "\n  visible: a relative error of 0.03 or more" in text


def test_a_class_stands_in_the_first_line(make):
    found = finding("w", Verdict.FAIL, reason="2 of 12", worst=(MISS,), diagnosis=make.why())
    brief = table("f", "float64", [finding(), found])
    assert brief.startswith(
        "FAIL f · dw, float64\n"
        "  dw is 1/3 of the right value (scale; wrong in all 5 probes)\n"
        "  dw[1, 3] got 0.25, expected -0.25: rel. err 2 > tol 4.0e-09\n\n"
    )
    first, *others = table("f", "float64", [finding(), found], details=True).splitlines()
    assert first == "FAIL f, float64: dw: scale: dw is 1/3 of the right value"
    assert others[:3] == [
        "  reason: 2 of 12",
        "  evidence: 3 is the number of rows",
        "  evidence: wrong in all 5 probes",
    ]


def test_a_diagnosis_is_told_even_where_no_reason_is(make):
    found = finding("w", Verdict.FAIL, diagnosis=make.why())
    brief, whole = (table("f", "float64", [found], details=d) for d in (False, True))
    assert brief.startswith("FAIL f · dw, float64\n  dw is 1/3 of the right value (scale; ")
    assert whole.startswith("FAIL f, float64: dw: scale: dw is 1/3")


def test_where_no_pattern_is_known_the_reason_comes_first(make):
    found = finding("w", Verdict.FAIL, reason="2 of 12", diagnosis=make.why(""))
    assert "\n  2 of 12 (no known pattern)\n" in table("f", "float64", [found])
    first, second, *_ = table("f", "float64", [found], details=True).splitlines()
    assert first == "FAIL f, float64: dw: 2 of 12"
    assert second == "  pattern: none known; 3 is the number of rows; wrong in all 5 probes"


def test_numbers_that_are_none_are_shown_as_such():
    nan = Miss(index=(), got=math.nan, want=1.0, error=math.nan, bound=1e-9, error_bar=0.0,
               ulp=None, cotangent="ones")  # fmt: skip
    text = table("f", "float64", [finding("x", Verdict.FAIL, reason="nan", worst=(nan,))])
    assert "FAIL       got nan" in text
    assert "\n  dx got nan, expected 1\n" in text
    whole = table(
        "f", "float64", [finding("x", Verdict.FAIL, reason="nan", worst=(nan,))], details=True
    )
    assert "worst: dx got nan, expected 1 ± 0" in whole


def test_a_value_that_is_not_known_well_comes_with_its_uncertainty():
    open_ = finding("x", Verdict.INCONCLUSIVE, reason="r", worst=(replace(MISS, error_bar=0.1),))
    text = table("f", "float64", [open_])
    assert "\n  dx[1, 3] got 0.25, expected -0.25 ± 0.1\n" in text
    assert " > tol" not in text


def test_foreign_text_stays_on_its_line(make):
    name = make.hostile
    for details in (False, True):
        found = [finding(name, Verdict.ERROR, reason=name, source=f"{name}:7")]
        text = table(name, "float64", found, details=details)
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
    assert text.startswith("FAIL <lambda> · dx2, float64\n  dx2 has the wrong sign")
    assert "4,500" in text
    assert result.details() == table(result.subject, "float64", result.findings, details=True)
    assert result.details().startswith("FAIL <lambda>, float64: dx2: sign: ")
    evidence = result.findings[1].diagnosis.evidence
    assert all(f"\n  evidence: {line}\n" in result.details() for line in evidence)


def _map(*rows):
    return Heat(shape=(len(rows), len(rows[0])), rows=len(rows), columns=len(rows[0]),
                cells="".join(rows), cotangent="powers")  # fmt: skip


def test_a_gradient_of_which_a_part_is_wrong_comes_with_a_map():
    found = [finding(), replace(FAIL, heat=_map("..7", "777"))]
    assert "map: " not in table("f", "float64", found)
    text = table("f", "float64", found, details=True)
    assert "\n  where: dw[1, :], dw[0, 2]\n" in text
    assert "\n  map: dw, 2 × 3 under the cotangent powers; " in text
    assert "\n    0  ..7\n    1  777\n" in text


@pytest.mark.parametrize("heat", [None, _map("777", "777"), _map(*["..7"] * 17)])
def test_what_is_wrong_as_a_whole_or_too_large_has_none(heat):
    def text(heat):
        return table("f", "float64", [replace(FAIL, heat=heat)], details=True)

    assert "map: " not in text(heat)
    assert "map: " in text(_map("..7"))


def test_check_draws_the_map_of_what_it_judged():
    def vjp(ct, x):
        out = 2 * x * ct
        out[1] = 0
        return out

    found = check(lambda x: x * x, vjp, np.arange(1.0, 13.0).reshape(3, 4))
    assert "\n  where: dx[1, :]\n" in found.details()
    assert "\n    0  ....\n    1  7777\n    2  ....\n" in found.details()
