import math

import pytest

from gradcheck.report import failure_text
from gradcheck.results import words
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

INF, NAN = math.inf, math.nan


def projected(make, output, least, **changes):
    return make.of_model(output, smallest_visible_error=least, evaluations=26, **changes)


@pytest.mark.parametrize(
    ("got", "want", "texts"),
    [
        (0.123456, 0.2, ("0.123456", "0.2")),
        (1.0, 1.0 + 2**-52, ("1", "1.0000000000000002")),
        (0.1234567891, 0.1234567892, ("0.1234567891", "0.1234567892")),
        (1 / 3, 1 / 3, ("0.333333", "0.333333")),
        (NAN, 1.0, ("nan", "1")),
        (NAN, NAN, ("nan", "nan")),
        (-INF, INF, ("-inf", "inf")),
        (-0.0, 0.0, ("-0", "0")),
    ],
)
def test_got_and_want_show_where_they_differ(make, got, want, texts):
    found = failure_text.values(make.miss(got=got, want=want, error=0.0))
    assert found == texts
    if got != want and not math.isnan(got):
        assert found[0] != found[1]


def test_digits_stop_at_most(make):
    miss = make.miss(got=1.0, want=1.0 + 2**-52, error=2**-52)
    assert failure_text.values(miss, 8) == ("1", "1")


def test_an_error_is_told_in_four_units(make):
    miss = make.miss(got=1.5, want=1.0, error=0.5, bound=0.25, error_bar=0.125, ulp=7.0)
    assert failure_text.errors(miss) == "0.333 relative, 7 ulp, 2 × bound, 4 × error bar"


def test_units_that_mean_nothing_are_left_out(make):
    exact = make.miss(got=1.0, want=0.0, error=1.0, bound=0.0, error_bar=0.0, ulp=None)
    assert failure_text.errors(exact) == "1 relative"
    assert failure_text.errors(make.miss(got=NAN, error=NAN)) == ""
    assert failure_text.errors(make.miss(got=INF, error=INF)) == ""
    assert words.multiple(1.0, NAN) == ""


def test_the_facts_of_a_failure_end_with_how_to_rerun_it(make):
    result = make.result(verdict=Verdict.FAIL, unresolved=2)
    facts = failure_text.facts(result)
    assert [label for label, _ in facts] == ["worst", "error", "failed", "hunts", "run"]
    told = dict(facts)
    assert told["worst"] == "dx[1, 3] got 0.123456, want 0.1234 ± 1e-20"
    assert told["failed"] == "3 of 24 elements, 2 unresolved; the worst with cotangent normal-0"
    assert told["run"] == result.repro


def test_a_result_without_elements_has_no_empty_facts(make):
    crash = make.result(verdict=Verdict.CRASH, hunts="")
    assert [label for label, _ in failure_text.facts(crash)] == ["run"]


def test_what_an_inconclusive_check_could_have_seen_is_told(make):
    result = make.result(verdict=Verdict.INCONCLUSIVE, smallest_visible_error=0.01234)
    assert ("visible", "a relative error of 0.0123 or more") in failure_text.facts(result)
    passed = make.result(smallest_visible_error=0.01234)
    assert "visible" not in dict(failure_text.facts(passed))


def test_a_value_that_nobody_knows_is_not_told_with_an_error(make):
    miss = make.miss(got=0.5, want=1.0, error=0.5, error_bar=math.inf)
    facts = dict(failure_text.facts(make.result(verdict=Verdict.INCONCLUSIVE, worst=(miss,))))
    assert facts["worst"].endswith(" got 0.5, the true value is not known")
    assert "error" not in facts


def test_a_stage_is_called_one_and_its_element_by_its_gradients_name(make):
    stage = make.of_model("ln_f", part=Part.STAGE)
    assert words.title(stage) == "gpt2/default/tiny/float64 · stage ln_f"
    assert failure_text.place(stage.finding, make.miss(tensor="h.1.x", index=(2,))) == "d h.1.x[2]"
    assert (
        failure_text.place(make.of_model("loss", part=Part.VALUE).finding, make.miss(index=()))
        == "loss"
    )
    assert failure_text.place(make.of_model("wte").finding, make.miss(index=(1, 0))) == "dwte[1, 0]"


def test_a_projection_is_compared_along_a_direction(make):
    whole = projected(make, "wte", 3e-7, worst=(make.miss(index=()),))
    assert failure_text.place(whole.finding, whole.finding.top) == "dwte along d"
    found = projected(make, "wte", 3e-7, worst=(make.miss(index=(2,)),))  # the element it named
    assert failure_text.place(found.finding, found.finding.top) == "dwte[2]"


def test_a_projection_says_what_it_saw_even_if_it_passes(make):
    passed = projected(make, "wte", 3e-7)
    said = "an error of 3e-07 of a typical element or more; 26 forward evaluations"
    assert ("visible", said) in failure_text.facts(passed)
    assert "visible" not in dict(
        failure_text.facts(make.of_model("wte", smallest_visible_error=1e-8))
    )
