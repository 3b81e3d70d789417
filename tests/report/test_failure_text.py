import itertools
import math

import numpy as np
import pytest

from gradcheck.report import failure_text
from gradcheck.report.heat import MAX_SLICES, slices, unravelled
from gradcheck.results import words
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import LABELS

FAIL = Verdict.FAIL
REASON = "3 of 24 elements are outside their bound"


@pytest.mark.parametrize("label", ["", "ZZ", "scale", "f"])
def test_a_code_that_is_no_class_has_no_word(make, label):
    found = make.why(label)
    assert found.word == ""
    result = make.result(verdict=FAIL, diagnosis=found)
    assert failure_text.alone(result).lead == REASON


def test_every_class_has_its_word(make):
    for code, label in LABELS.items():
        assert make.why(code).word == label.word


def test_without_a_diagnosis_a_failure_is_told_by_its_reason(make):
    said = failure_text.alone(make.result(verdict=FAIL))
    assert (said.word, said.lead) == ("", REASON)
    assert [label for label, _ in said.facts] == [
        "worst",
        "error",
        "failed",
        "designed to catch",
        "run",
    ]


def test_a_class_stands_in_the_first_line_and_what_it_rests_on_below(make):
    result = make.result(output="w", verdict=FAIL, diagnosis=make.why())
    first, *others = failure_text.paragraph(result).splitlines()
    title = "FAIL rms_norm/weight/typical/float64 · dw"
    assert first == f"{title}: scale: dw is 1/3 of the right value"
    assert others[:4] == [
        f"  reason: {REASON}",
        "  evidence: 3 is the number of rows",
        "  evidence: wrong in all 5 probes",
        "  worst: dw[1, 3] got 0.123456, expected 0.1234 ± 1e-20",
    ]
    assert others[-1].startswith("  run: gradcheck run ")


def test_where_no_pattern_is_known_the_residual_is_a_fact(make):
    found = make.why("", evidence=("the residual is 0.3", "wrong in 1 of 2 probes"))
    first, second, *others = failure_text.paragraph(
        make.result(verdict=FAIL, diagnosis=found)
    ).splitlines()
    assert first.endswith(f"· dx: {REASON}")
    assert second == "  pattern: none known; the residual is 0.3; wrong in 1 of 2 probes"
    assert others[0].startswith("  worst: ")
    bare = failure_text.alone(make.result(verdict=FAIL, diagnosis=make.why("", evidence=())))
    assert bare.facts[0] == ("pattern", "none known")


def test_a_diagnosis_without_a_sentence_or_a_reason_leaves_no_gap(make):
    result = make.result(verdict=FAIL, reason="", diagnosis=make.why(says="", evidence=("",)))
    first, second, *_ = failure_text.paragraph(result).splitlines()
    assert first.endswith("· dx: scale")
    assert second.startswith("  worst: ")


def test_what_the_reason_says_is_no_evidence_once_more(make):
    found = make.why(evidence=("3 of 24 elements", "measured"))
    said = failure_text.alone(make.result(verdict=FAIL, diagnosis=found))
    assert [text for label, text in said.facts if label == "evidence"] == ["measured"]


def test_what_is_shared_is_said_once(make):
    results = [
        make.result(output="w", verdict=FAIL, sample=s, diagnosis=make.why(label, **changes))
        for s, label, changes in (
            ("a", "F", {}),
            ("b", "F", {"evidence": ("measured anew",)}),  # the same, though it was found again
            ("c", "T", {"says": "dw lacks a term"}),
            ("d", "F", {"says": "dw is 1/7 of the right value"}),
            ("e", "", {}),
            ("f", "", {"evidence": ("another residual",)}),
            ("g", "F", {}),
        )
    ]
    said = list(failure_text.told([*results, make.result(verdict=FAIL, sample="h")]))
    assert [one.lead for one in said] == [
        "scale: dw is 1/3 of the right value",
        "scale, as above",
        "term: dw lacks a term",
        "scale: dw is 1/7 of the right value",
        REASON,
        REASON,
        "scale, as above",
        REASON,
    ]
    told = [[label for label, _ in one.facts if label in ("evidence", "pattern")] for one in said]
    assert [len(labels) for labels in told] == [2, 0, 2, 2, 1, 0, 0, 0]
    assert [dict(one.facts).get("reason") for one in said] == [
        REASON, None, REASON, REASON, None, None, None, None,
    ]  # fmt: skip
    assert all("failed" in dict(one.facts) for one in said)  # which counts them, too
    assert [one.result for one in said[:7]] == results


def test_a_reason_of_its_own_is_told_with_each(make):
    results = [
        make.result(verdict=FAIL, sample=s, reason=f"got {s}", diagnosis=make.why()) for s in "ab"
    ]
    first, second = failure_text.told(results)
    assert second.lead == "scale, as above"
    assert (dict(first.facts)["reason"], dict(second.facts)["reason"]) == ("got a", "got b")


def test_the_rest_is_counted_and_named_only_where_diagnoses_differ(make):
    def many(count, label, says="dw is off", verdict=FAIL):
        found = None if label is None else make.why(label, says=says)
        return [make.result(verdict=verdict, diagnosis=found)] * count

    assert failure_text.rest(many(5, "F"), many(3, "F")) == "5 FAIL"
    assert failure_text.rest(many(5, None), many(3, None)) == "5 FAIL"
    assert failure_text.rest(many(5, ""), many(3, "")) == "5 FAIL"
    assert failure_text.rest(many(5, "F"), many(3, "T")) == "5 FAIL: 5 scale (dw is off)"
    assert failure_text.rest(many(5, "F"), [*many(1, "F"), *many(1, "")]) == "5 FAIL: 5 scale"
    mixed = [*many(2, "F"), *many(3, "", verdict=Verdict.MISSING), *many(1, None)]
    assert failure_text.rest(mixed, many(1, "F")) == (
        "3 FAIL, 3 MISSING: 2 scale, 3 no known pattern, 1 not diagnosed"
    )
    another = failure_text.rest([*many(2, "F"), *many(1, "F", "dw is 2 dw")], many(1, "F"))
    assert another == "3 FAIL: 2 scale, 1 scale (dw is 2 dw)"


def test_of_many_new_diagnoses_few_are_spelled_out_and_all_are_counted(make):
    results = [make.result(verdict=FAIL, diagnosis=make.why(says=f"way {i}")) for i in range(20)]
    text = failure_text.counts(results, [make.result(verdict=FAIL)])
    assert text == "1 scale (way 0), 1 scale (way 1), 1 scale (way 2), 17 scale"


def test_a_tally_is_in_the_order_of_the_verdicts(make):
    results = [make.result(verdict=v) for v in (Verdict.MISSING, FAIL, Verdict.MISSING)]
    assert failure_text.tally(results) == "1 FAIL, 2 MISSING"
    assert failure_text.tally([]) == ""


def test_the_first_evidence_of_a_diagnosis_is_the_one_that_is_kept(make):
    results = [
        make.result(verdict=FAIL, diagnosis=make.why(evidence=(text,))) for text in ("one", "two")
    ]
    assert failure_text.distinct(results) == [results[0].finding.diagnosis]
    assert not failure_text.differ(results)
    assert failure_text.differ([*results, make.result(verdict=FAIL)])
    assert not failure_text.differ([])


def test_foreign_text_stays_on_its_line(make):
    found = make.why(says=make.hostile, evidence=(make.hostile,))
    results = [make.result(verdict=FAIL, diagnosis=found), make.result(verdict=FAIL)]
    for text in (
        failure_text.paragraph(results[0]),
        failure_text.rest(results, results[1:]),
        failure_text.brief(results[0]),
    ):
        assert all(c.isprintable() or c == "\n" for c in text)
    assert len(failure_text.paragraph(results[0]).splitlines()) == 8


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
    assert failure_text.errors(miss) == "0.333 relative, 7 ulp, 2 × tolerance, 4 × uncertainty"


def test_units_that_mean_nothing_are_left_out(make):
    exact = make.miss(got=1.0, want=0.0, error=1.0, bound=0.0, error_bar=0.0, ulp=None)
    assert failure_text.errors(exact) == "1 relative"
    assert failure_text.errors(make.miss(got=NAN, error=NAN)) == ""
    assert failure_text.errors(make.miss(got=INF, error=INF)) == ""
    assert words.multiple(1.0, NAN) == ""


def test_the_facts_of_a_failure_end_with_how_to_rerun_it(make):
    result = make.result(verdict=Verdict.FAIL, unresolved=2)
    facts = failure_text.facts(result)
    assert [label for label, _ in facts] == ["worst", "error", "failed", "designed to catch", "run"]
    told = dict(facts)
    assert told["worst"] == "dx[1, 3] got 0.123456, expected 0.1234 ± 1e-20"
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


def marked(make, shape, parts, glyph="5"):
    """A map of a gradient of `shape` in which slices are wrong."""
    cells = np.full(shape, ".")
    for part in parts:
        cells[eval(f"np.s_{part}")] = glyph  # noqa: S307  what NumPy makes of it is the point
    flat = cells.reshape(-1, shape[-1])
    return make.heat(["".join(row) for row in flat], shape=shape)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((5, 7), ["[2, :]"]),
        ((5, 7), ["[2:4, :]"]),
        ((5, 7), ["[:, 6]"]),
        ((5, 7), ["[2, :]", "[:, 6]"]),
        ((5, 7), ["[0, :]", "[4, :]", "[:, 1:3]", "[2, 5]"]),
        ((5, 7), ["[1, 3]", "[4, 0]"]),
        ((9,), ["[3:7]"]),
        ((9,), ["[0]", "[2]", "[5:9]"]),
        ((2, 3, 4), ["[1, 0, :]"]),
        ((2, 3, 4), ["[..., 2]"]),
        ((2, 3, 4), ["[0, 2, :]", "[..., 0]", "[1, 1, 3]"]),
        ((1, 4), ["[0, 1]"]),
        ((4, 1), ["[1, 0]", "[3, 0]"]),
    ],
)
@pytest.mark.parametrize("glyph", ["0", "!", "?"])
def test_slices_are_found_again(make, shape, parts, glyph):
    assert slices(marked(make, shape, parts, glyph)) == parts


@pytest.mark.parametrize("seed", range(40))
def test_what_is_said_is_what_is_wrong(make, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(1, 4)))
    wrong = rng.random(shape) < rng.choice([0.1, 0.3, 0.9])
    if math.prod(shape) > 2 and rng.random() < 0.7:
        wrong[..., rng.integers(shape[-1])] = True
    cells = np.where(wrong, "7", ".").reshape(-1, shape[-1])
    found = slices(make.heat(["".join(row) for row in cells], shape=shape))
    again = np.zeros(shape, dtype=bool)
    for part in found:
        again[eval(f"np.s_{part}")] = True  # noqa: S307
    assert len(found) <= MAX_SLICES
    assert not found or np.array_equal(again, wrong)
    assert found or wrong.all() or not wrong.any() or wrong.sum() > MAX_SLICES or wrong.size == 1


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((5, 7), ["[:, :]"]),
        ((5, 7), []),
        ((5, 7), ["[0, 0]", "[1, 2]", "[2, 4]", "[3, 6]", "[4, 1]"]),
        ((1, 3), ["[0, :]"]),
    ],
)
def test_what_is_everything_or_too_much_is_not_said(make, shape, parts):
    assert slices(marked(make, shape, parts)) == []


def test_neither_blocks_nor_scalars_nor_nothing_have_slices(make):
    assert slices(make.heat(("1.", ".."), shape=(4, 4))) == []
    assert slices(make.heat(("1",), shape=())) == []
    assert slices(None) == []


def test_facts_name_them_where_no_diagnosis_does(make):
    def facts(**changes):
        plain = {"verdict": Verdict.FAIL, "heat": marked(make, (5, 7), ["[2, :]"])} | changes
        return dict(failure_text.facts(make.result(**plain)))

    assert facts()["where"] == "dx[2, :]"
    assert facts(diagnosis=make.why(""))["where"] == "dx[2, :]"
    assert "where" not in facts(diagnosis=make.why())
    assert "where" not in facts(verdict=Verdict.PASS)
    assert "where" not in facts(worst=())
    stage = make.of_model(
        "h.0.attn", Verdict.FAIL, part=Part.STAGE, heat=marked(make, (5, 7), ["[:, 1]"]),
        worst=(make.miss(tensor="h.0.qkv"),),
    )  # fmt: skip
    assert dict(failure_text.facts(stage))["where"] == "d h.0.qkv[:, 1]"


@pytest.mark.parametrize("shape", [(7,), (2, 3), (4, 3, 2), ()])
def test_an_index_is_found_from_its_place(shape):
    places = list(itertools.product(*map(range, shape)))
    assert [unravelled(k, shape) for k in range(len(places))] == places
