"""The mutation test as a page: what survives first, then every mutant in its own words."""

import pytest

from gradcheck.power.model import FaultReport, FaultTrial, ModelScore, Shortened
from gradcheck.power.operators import Power, Score, Trial
from gradcheck.report import fault, power, power_html
from gradcheck.report.power_html import Cell, PowerPage, Section, counted
from tests.report.test_html import Page

ONE, TWO = "plain/one", "plain/two"


def trial(what="wrong", **changes):
    plain = {"kind": "mutant", "label": "F", "says": "The factor `2` is missing.",
             "tried": (ONE, TWO), "killed": (ONE,)}  # fmt: skip
    return Trial(what=what, **{**plain, **changes})


def report(*trials, **changes):
    plain = {"op": "square", "family": "mine", "sizes": {ONE: 3, TWO: 7}, "judged": 4}
    score = Score(trials=trials, **{**plain, **changes})
    return Power(version="1", suite="s", suite_version="1", seed=0, scores=(score,))


def page(*trials, **changes):
    return power.render(report(*trials, **changes), "html")


def test_survivors_come_first_in_their_own_words_and_with_what_to_do():
    text = page(trial(), trial("sly", killed=(), says="It is `halved` < 1."))
    found = Page(text).text
    assert found.startswith("FAILED: 1 wrong gradient of 2 not rejected")
    start = found.index("Survivors: 1 wrong gradient that no check rejects square · sly scale")
    told = found[start : found.index("Every mutant")]
    assert "It is halved < 1. No sample rejects it; add one that does, or prove" in told
    assert "<code>halved</code> &lt; 1" in text
    assert "50% 1 of 2" in found
    assert "No survivors" not in found
    assert "survives:" not in found  # said once, not as a problem too


def test_every_mutant_has_its_class_its_words_and_what_rejected_it():
    found = Page(page(trial(killed=(TWO,), modelled_on="numpy #1"), trial("other"))).text
    assert "No survivors" in found
    assert "all 2 wrong gradients are rejected" in found
    assert (
        "wrong scale The factor 2 is missing. Modelled on: numpy #1. plain/two ·● 1 of 2 samples"
    ) in found
    assert "plain/one 3 elements, rejects 1 of 2" in found


def test_equivalent_mutants_and_generic_ones_are_no_survivors():
    generic = trial("zeros of x", kind="impostor", label="", killed=(ONE, TWO))
    same = trial("same", killed=(), equivalent="Addition commutes.")
    found = Page(page(trial(), same, generic)).text
    assert "1 more proved equivalent" in found
    assert "Addition commutes." in found
    assert "Generic wrong gradients rejected in every sample: zeros." in found
    assert "No survivors" in found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alarms": ("square/plain/one/float64",)}, "the right VJP does not pass"),
        ({"useless": ("square/plain/one",)}, "this sample rejects nothing"),
        ({"troubles": ("square/plain/one: no such thing",)}, "no such thing"),
    ],
)
def test_what_is_amiss_beside_survivors_is_to_correct(changes, said):
    found = Page(page(trial(), **changes)).text
    assert said in found[found.index("To correct") :]
    assert found.startswith("FAILED: ")
    assert "No survivors" not in found


def test_a_grid_counts_the_mutants_of_a_class_and_shows_a_gap():
    text = page(trial(), trial("sly", killed=()), trial("signed", label="S"))
    assert 'title="1 of 2 rejected">1/2' in text
    assert '<td class="good" title="1 of 1 rejected">1' in text
    assert counted(0, 0) == Cell()
    assert counted(0, 3).tone == "bad"


def test_a_share_is_never_rounded_up_to_all():
    assert power_html.Score(name="", part=1999, of=2000).share == "99.9%"
    assert power_html.Score(name="", part=2000, of=2000).share == "100%"
    assert power_html.alarms(1, 9, "").tone == "bad"
    assert power_html.alarms(0, 9, "").tone == "good"


def test_foreign_text_is_no_element(make):
    def tags(text):
        one = trial(text, says=text, killer=text, modelled_on=text, killed=(), tried=(text,))
        whole = page(one, trial(text), op=text, sizes={text: 1, ONE: 1, TWO: 2}, troubles=(text,))
        return [tag for tag in Page(whole).tags if tag != "code"], whole

    calm, hostile = tags("calm"), tags(make.hostile)
    assert calm[0] == hostile[0]
    assert "<script>alert" not in hostile[1]
    assert "&lt;script&gt;alert(1)" in hostile[1]


def planted(**changes):
    plain = {
        "fault": "net/late", "says": "It reads `h` too late.", "kind": "stale activation",
        "dialect": "default", "dtype": "float64", "stages": ("h.0",), "of": 3, "parameters": 4,
        "rejected": 2, "blamed": ("h.0",), "named": ("dx: reads `g`.",), "suspects": (("h.0",),),
        "guess": (),
    }  # fmt: skip
    return FaultTrial(**{**plain, **changes})


def models(*sown, **changes):
    score = ModelScore(model="net", sown=sown, judged=2, **changes)
    return FaultReport(version="1", suite="s", suite_version="1", seed=0, scores=(score,))


def test_a_planted_fault_says_which_stage_was_located():
    found = Page(fault.render(models(planted()), "html")).text
    assert "All 1 planted faults are found and located" in found
    assert "late stale activation It reads h too late. Diagnosis: dx: reads g ." in found
    assert "located: h.0 2 of 4 gradients rejected" in found


def test_a_fault_that_nothing_rejects_survives_and_one_in_the_wrong_place_is_no_pass():
    found = Page(fault.render(models(planted(rejected=0, blamed=())), "html")).text
    assert "Survivors: 1 wrong gradient" in found
    found = Page(fault.render(models(planted(blamed=("h.1",))), "html")).text
    assert found.startswith("FAILED: ")
    assert "found, but not located" in found
    assert "located in h.1, expected h.0" in found
    assert "0/1" in found


def test_stages_in_a_narrower_type_have_a_score():
    narrow = Shortened(fault="net/n", says="Rounded.", dialect="default", dtype="float64",
                       stage="h.0", failed=True, rejected=1, blamed=("h.0",),
                       named=("dx is rounded to float32.",))  # fmt: skip
    found = Page(fault.render(models(planted(), narrow=(narrow,)), "html")).text
    assert "stages in a narrower type 100% 1 of 1" in found


def test_the_page_runs_its_own_script_and_asks_for_nothing():
    text = page(trial())
    found = Page(text)
    names = {name for _, name, _ in found.attributes}
    assert not [name for name in names if name.startswith("on") or name == "src"]
    assert {v for _, name, v in found.attributes if name == "href"} == {"#of-square"}
    assert text.count("<script>") == 1
    assert "default-src 'none'" in text


def test_a_page_without_mutants_has_no_filter():
    empty = PowerPage(command="x", headline="nothing", passed=False, facts="f", scores=(),
                      summary="POWER fail")  # fmt: skip
    assert 'id="filter"' not in power_html.render(empty)
    assert Section(name="a", counts="", mutants=()).survived == 0
