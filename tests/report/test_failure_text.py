import pytest

from gradcheck.report import failure_text
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
    assert [label for label, _ in said.facts] == ["worst", "error", "failed", "hunts", "run"]


def test_a_class_stands_in_the_first_line_and_what_it_rests_on_below(make):
    result = make.result(output="w", verdict=FAIL, diagnosis=make.why())
    first, *others = failure_text.paragraph(result).splitlines()
    title = "FAIL rms_norm/weight/typical/float64 · dw"
    assert first == f"{title}: scale: dw is 1/3 of the right value"
    assert others[:4] == [
        f"  reason: {REASON}",
        "  evidence: 3 is the number of rows",
        "  evidence: wrong in all 5 probes",
        "  worst: dw[1, 3] got 0.123456, want 0.1234 ± 1e-20",
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
