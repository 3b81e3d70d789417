import dataclasses
import json

import pytest

from gradcheck.report import render
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Miss
from gradcheck.results.run import Footer, Header, Run
from gradcheck.results.verdict import SEVERITY, Verdict, worst
from tests.case_results import case_result

# interface.md §1, in full: whether the gate accepts the verdict, and whether it counts as checked
GATE = {
    "pass": ("ok", True),
    "fail": ("unexpected", True),
    "missing": ("unexpected", True),
    "inconclusive": ("unexpected", True),
    "error": ("unexpected", True),
    "crash": ("unexpected", True),
    "timeout": ("unexpected", True),
    "notrun": ("unexpected", True),
    "invalid": ("unexpected", True),
    "unsupported": ("ok", False),
    "unbound": ("ok", False),
    "skip": ("ok", False),
}
MISS = Miss(index=(1, 2), got=3.0, want=1.0, error=2.0, bound=0.5, error_bar=0.25, ulp=8.0,
            cotangent="ones")  # fmt: skip


def plain_of(found):
    return json.loads(render(found, "json"))


def record(verdict="pass", **changes):
    plain = {"name": "relu/default/typical/float64", "hash": "a1b2", "implementation": "mine",
             "op": "relu", "dialect": "default", "sample": "typical", "dtype": "float64",
             "output": "x", "seed": 0, "repro": "gradcheck run", "compared": 10}  # fmt: skip
    return case_result(verdict=Verdict(verdict), **{**plain, **changes})


def run(*verdicts, **changes):
    header = Header(version="1", suite="s", suite_version="2", implementations=("mine",),
                    dtypes=("float64",), seed=0)  # fmt: skip
    results = tuple(v if isinstance(v, CaseResult) else record(v) for v in verdicts)
    return Run(header=header, results=results, **changes)


def test_the_table_of_verdicts_is_complete():
    assert set(GATE) == set(Verdict) == set(SEVERITY)
    assert len(SEVERITY) == len(GATE)


@pytest.mark.parametrize("verdict", GATE)
def test_the_gate_accepts_what_the_interface_says(verdict):
    expectation, checked = GATE[verdict]
    found = run(verdict)
    assert found.accepts(found.results[0]) is (expectation == "ok")
    assert found.fails(found.results[0]) is (expectation != "ok")
    assert plain_of(found)["results"][0]["expectation"] == expectation
    assert Footer.of([record(verdict)], True).checked == checked


@pytest.mark.parametrize("verdict", GATE)
def test_a_run_passes_only_if_something_was_checked_and_all_is_as_expected(verdict):
    expectation, checked = GATE[verdict]
    alone, beside = run(verdict), run("pass", verdict)
    assert alone.passed is (expectation == "ok" and checked)
    assert beside.passed is (expectation == "ok")


def test_nothing_else_than_results_may_be_wrong_with_a_run_that_passes():
    assert run("pass").passed
    assert not run("pass", complete=False).passed
    assert not run("pass", troubles=("kernels:IMPL does not load",)).passed
    assert not run().passed


def test_the_footer_counts_every_verdict_and_every_element():
    results = [record(v, compared=3, unresolved=1) for v in (*GATE, "fail")]
    footer = Footer.of(results, complete=False)
    assert footer.counts == {**dict.fromkeys(GATE, 1), "fail": 2}
    assert (footer.checked, footer.elements, footer.unresolved) == (10, 39, 13)
    assert footer.complete is False
    assert Footer.of([], complete=True).counts == dict.fromkeys(GATE, 0)


def test_the_summary_names_what_scripts_look_for_and_what_happened():
    assert run("pass", "pass", "unbound").summary == (
        "RESULT pass checked=2 pass=2 fail=0 inconclusive=0 unsupported=0 unbound=1 "
        "elements=30 unresolved=0"
    )
    assert run("crash", "fail", "missing", record("inconclusive", unresolved=4)).summary == (
        "RESULT fail checked=4 pass=0 fail=1 missing=1 inconclusive=1 crash=1 unsupported=0 "
        "unbound=0 elements=40 unresolved=4"
    )
    assert run("pass", complete=False).summary.startswith("RESULT fail checked=1 pass=1 ")


@pytest.mark.parametrize("verdict", GATE)
def test_the_summary_counts_each_verdict(verdict):
    assert f" {verdict}=2 " in run(verdict, verdict).summary


def test_the_worst_of_several_verdicts_hides_nothing():
    assert worst([Verdict.PASS, Verdict.UNBOUND]) is Verdict.PASS
    assert worst([Verdict.PASS, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    for verdict, (expectation, _) in GATE.items():
        if expectation == "unexpected":
            assert worst([Verdict.PASS, Verdict(verdict), Verdict.UNBOUND]) is Verdict(verdict)
    assert worst([Verdict.INVALID, *Verdict]) is Verdict.INVALID
    assert worst([]) is Verdict.SKIP


def test_a_result_as_plain_data_says_what_the_record_says():
    result = record("fail", worst=(MISS, MISS), reason="2 of 10", hunts="a sign", oracle=True,
                    smallest_visible_error=1e-9, failed=2, kinked=3)  # fmt: skip
    (plain,) = plain_of(run(result))["results"]
    numbers = {"error": 2.0, "bound": 0.5, "error_bar": 0.25, "ulp": 8.0, "got": 3.0, "want": 1.0}
    assert {key: plain[key] for key in numbers} == numbers
    assert plain["worst_index"] == [1, 2]
    assert (plain["verdict"], plain["expectation"]) == ("fail", "unexpected")
    assert (plain["reason"], plain["hunts"], plain["certificate"]) == ("2 of 10", "a sign", None)
    parts = (result.case, {}), (result.finding, {"name": "output"})
    for part, names in parts:
        for field in dataclasses.fields(part):
            if field.name not in ("verdict", "worst"):
                kept = getattr(part, field.name)
                assert plain[names.get(field.name, field.name)] == ([] if kept == () else kept)
    assert len(plain["worst"]) == 2


def test_a_result_without_a_worst_element_has_no_numbers():
    (plain,) = plain_of(run(record("error", reason="it raised")))["results"]
    for key in ("error", "bound", "error_bar", "ulp", "got", "want", "worst_index"):
        assert plain[key] is None
    (plain,) = plain_of(run("pass"))["results"]
    assert plain["reason"] is None


def test_a_run_as_plain_data_survives_json():
    whole = run(record("fail", worst=(MISS,)), "unbound", complete=False, troubles=("a", "b"))
    again = plain_of(whole)
    assert list(again) == ["header", "results", "footer"]
    assert again["footer"] == {
        "complete": False, "checked": 1, "elements": 20, "unresolved": 0, "passed": False,
        "troubles": ["a", "b"], "counts": whole.footer.counts, "baseline": None, "stopped": "",
    }  # fmt: skip
    assert again["header"]["implementations"] == ["mine"]
    assert again["header"]["schema"] == 1
    assert again["results"][0]["verdict"] == "fail"


def test_records_cannot_be_changed_afterwards():
    whole = run("fail")
    finding = whole.results[0].finding
    for target, name in ((whole, "complete"), (finding, "verdict"), (whole.header, "seed"),
                         (MISS, "error")):  # fmt: skip
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(target, name, True)
