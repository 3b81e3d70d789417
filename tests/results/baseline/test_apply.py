import ast
import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

import gradcheck
from gradcheck.results.baseline.apply import MANY
from gradcheck.results.baseline.entry import Baseline, today
from gradcheck.results.baseline.match import Scope, allowance, largest, matcher, measured, within
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Breach, Known

ALL = ("typical", "square", "tiny")


def failing(make, **changes):
    return make.run(*(make.result(s, "fail", label="F", **changes) for s in ALL))


def problems(run):
    return [(p.breach.value, p.line) for p in run.gate.problems]


def line(run, breach):
    (text,) = (p.text for p in run.gate.problems if p.breach.value == breach)
    assert "\n" not in text
    return text


def test_a_listed_failure_is_known_and_the_gate_is_open(make):
    before = failing(make)
    after = make.held(before, make.toml({"class": "scale", "max_error": 0.26, "link": "http://x"}))
    assert not before.passed
    assert after.passed
    assert after.results == before.results  # verdicts are what they were
    assert problems(after) == []
    assert {after.stands(r) for r in after.results} == {Known.XFAIL}
    said = after.expected(after.results[0])
    assert (said.entry, said.reason, said.link) == (
        "known.toml:1", "the mean is kept in half", "http://x"
    )  # fmt: skip
    assert " xfail=3 xpass=0 stale=0 " in after.summary
    assert after.summary.startswith("RESULT pass ")


def test_without_a_baseline_nothing_is_known(make):
    run = failing(make)
    assert run.gate is None
    assert run.expected(run.results[0]) is None
    assert "xfail" not in run.summary


def test_an_unlisted_failure_closes_the_gate(make):
    run = make.held(failing(make), make.toml({"match": "rms_norm/weight/t*/float32"}))
    assert not run.passed
    assert problems(run) == [("unlisted", None)]
    assert line(run, "unlisted") == (
        "known.toml: UNLISTED: rms_norm/weight/square/float32 · dx: fix it, or list it "
        "(`gradcheck baseline update known.toml`)"
    )
    assert [run.fails(r) for r in run.results] == [False, True, False]


def test_a_listed_pass_closes_the_gate(make):
    run = make.run(*(make.result(s, "fail" if s == "tiny" else "pass") for s in ALL))
    run = make.held(run, make.toml({}))
    assert not run.passed
    assert problems(run) == [("xpass", 1)]
    assert line(run, "xpass") == (
        "known.toml:1: XPASS: 2 results (rms_norm/weight/typical/float32 · dx; "
        "rms_norm/weight/square/float32 · dx) pass now: remove the entry, or narrow its match"
    )
    assert [run.stands(r).value for r in run.results] == ["xpass", "xpass", "xfail"]
    assert not any(map(run.fails, run.results))
    assert " xfail=1 xpass=2 stale=0 " in run.summary


def test_what_is_flaky_may_pass_and_may_fail_in_any_way(make):
    verdicts = ("pass", "crash", "fail")
    run = make.run(*map(make.result, ALL, verdicts))
    run = make.held(run, make.toml({"verdict": "flaky"}))
    assert run.passed
    assert [run.stands(r).value for r in run.results] == ["pass", "xfail", "xfail"]
    strict = make.held(run, make.toml({"verdict": "flaky", "max_error": 0.1}))
    assert problems(strict) == [("worse", 1)]


@pytest.mark.parametrize("label", ["D", None, ""])
def test_another_class_closes_the_gate(make, label):
    run = make.run(*(make.result(s, "fail", label=label) for s in ALL))
    run = make.held(run, make.toml({"class": "scale"}))
    assert not run.passed
    assert problems(run) == [("other class", 1)]
    got = "derivative" if label else "no known pattern"
    assert f"are of class {got}, not scale: look again" in line(run, "other class")


@pytest.mark.parametrize(
    ("error", "told"), [(0.2500001, "0.25"), (2.0, "2"), (math.nan, "inf"), (math.inf, "inf")]
)
def test_a_larger_error_closes_the_gate(make, error, told):
    run = failing(make, error=error)
    run = make.held(run, make.toml({"max_error": 0.25}))
    assert not run.passed
    assert problems(run) == [("worse", 1)]
    said = f" up to {told}, above max_error = 0.25: fix what made it worse"
    assert said in line(run, "worse")
    assert make.held(run, make.toml({})).passed  # no ratchet, no bound


def test_an_error_at_the_ratchet_is_within(make):
    assert make.held(failing(make, error=0.25), make.toml({"max_error": 0.25})).passed


@pytest.mark.parametrize("verdict", ["crash", "timeout", "missing", "error", "inconclusive"])
def test_another_verdict_closes_the_gate(make, verdict):
    run = make.run(*(make.result(s, verdict) for s in ALL))
    wrong = make.held(run, make.toml({}))
    assert problems(wrong) == [("other verdict", 1)]
    assert f"are {verdict.upper()}, not fail: fix it" in line(wrong, "other verdict")
    assert not wrong.passed
    assert make.held(run, make.toml({"verdict": verdict})).passed


@pytest.mark.parametrize("verdict", ["invalid", "notrun"])
def test_what_is_nobodys_fault_cannot_be_known(make, verdict):
    run = make.run(*(make.result(s, verdict) for s in ALL))
    run = make.held(run, make.toml({"verdict": "flaky"}))
    assert not run.passed
    assert all(map(run.fails, run.results))


@pytest.mark.parametrize("verdict", ["unsupported", "unbound"])
def test_lost_support_closes_the_gate(make, verdict):
    run = make.run(make.result(verdict=verdict, output="vjp", reason="no rms_norm here"),
                   make.result(op="softmax"))  # fmt: skip
    for entry in ({}, {"verdict": "flaky"}):
        run = make.held(run, make.toml(entry))
        assert not run.passed
        assert problems(run) == [("unsupported", 1)]
        text = line(run, "unsupported")
        assert f"is {verdict.upper()} now (no rms_norm here): remove the entry" in text


def test_a_call_that_crashes_breaks_what_its_gradients_promise(make):
    crash = make.run(*(make.result(s, "crash", "vjp") for s in ALL))
    assert problems(make.held(crash, make.toml({}))) == [("other verdict", 1)]
    mended = make.run(*(make.result(s) for s in ALL))
    text = make.toml({"output": "vjp", "verdict": "crash"})
    assert make.held(crash, text).passed
    assert problems(make.held(mended, text)) == [("xpass", 1)]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"match": "rms_nrm/*/*/float32"}, "no case matches rms_nrm/*/*/float32: remove the entry"),
        ({"match": "rms_norm/weight/typical/float23"}, "no case matches"),
        ({"output": "dz"}, "has no dz (it has dx): remove the entry, or correct its output"),
    ],
)
def test_an_entry_about_nothing_is_stale(make, changes, says):
    run = make.run(*map(make.result, ALL))
    run = make.held(run, make.toml(changes))
    assert not run.passed
    assert problems(run) == [("stale", 1)]
    assert says in line(run, "stale")
    assert " stale=1 " in run.summary


@pytest.mark.parametrize(
    "changes",
    [
        {"match": "rms_norm/weight/square/float32"},  # another sample
        {"match": "rms_norm/*/*/float64"},  # another dtype
        {"match": "rms_norm/*/*/bfloat16"},  # one that is not usual
        {"output": "dz", "match": "rms_norm/*/*/float32"},  # those not run may have it
        {"output": "contract: linear", "match": "rms_norm/weight/typical/float32"},
        {"output": "training by sgd", "match": "rms_norm/weight/typical/float32"},
        {"when": "implementation == 'theirs'", "match": "rms_norm/weight/typical/float32"},
    ],
)
def test_what_a_narrow_run_did_not_ask_for_is_not_stale(make, changes):
    run = make.held(make.run(make.result("typical")), make.toml(changes))
    assert run.passed
    assert problems(run) == []


def test_a_property_that_was_asked_for_under_another_name_is_stale(make):
    one = make.result("typical", output="linear", part=Part.CONTRACT)
    run = make.held(make.run(one), make.toml(
        {"output": "contract: lineer", "match": "rms_norm/weight/typical/float32"}))  # fmt: skip
    assert problems(run) == [("stale", 1)]


def test_what_does_not_fit_its_dtype_is_neither_known_nor_stale(make):
    run = make.run(make.result(op="softmax"), *(make.result(s, "skip", "vjp") for s in ALL))
    run = make.held(run, make.toml({}))
    assert run.passed
    assert run.gate.results == {}


def test_an_entry_holds_to_the_end_of_its_last_day(make):
    day = date(2027, 3, 1)
    text = make.toml({"expires": day})
    assert make.held(failing(make), text, day=day).passed
    run = make.held(failing(make), text, day=day + timedelta(days=1))
    assert not run.passed
    assert problems(run) == [("expired", 1)]
    assert "was known until 2027-03-01: fix it" in line(run, "expired")
    assert {run.stands(r) for r in run.results} == {Known.XFAIL}  # one line, and no more


def test_what_is_stale_and_expired_is_said_once(make):
    text = make.toml({"expires": date(2020, 1, 1), "match": "gone/*/*/float32"})
    assert problems(make.held(make.run(make.result()), text)) == [("stale", 1)]


def test_an_entry_that_is_about_many_cases_is_warned_of(make):
    for count, warned in ((MANY, 0), (MANY + 1, 1)):
        names = [f"s{n}" for n in range(count)]
        suite = make.suite([f"rms_norm/weight/{name}" for name in names])
        run = make.run(*(make.result(name, "fail") for name in names))
        run = make.held(run, make.toml({}), suite)
        assert run.passed
        assert len(run.gate.warnings) == warned
    assert run.gate.warnings[0].startswith("known.toml:1: matches 21 cases; narrow its match")


def test_a_file_for_other_cases_is_warned_of(make):
    for version, warned in (("2026.11", 0), ("2026.10", 1)):
        run = make.held(failing(make), make.toml({}, top=f'suite = "{version}"\n'))
        assert run.passed
        assert len(run.gate.warnings) == warned
    assert "written for the cases of 2026.10, and these are of 2026.11" in run.gate.warnings[0]


def test_of_several_entries_the_one_that_excuses_it_counts(make):
    run = make.run(*(make.result(s, "fail", label="FDF"[i]) for i, s in enumerate(ALL)))
    text = make.toml({"class": "scale"}, {"class": "derivative"})
    found = make.held(run, text)
    assert found.passed
    assert [found.expected(r).entry[-2:] for r in run.results] == [":1", ":8", ":1"]
    assert problems(make.held(run, make.toml({"class": "scale"}))) == [("other class", 1)]


def test_two_implementations_are_told_apart(make):
    run = make.run(make.result(verdict="fail", implementation="a"), make.result(implementation="b"),
                   implementations=("a", "b"))  # fmt: skip
    match = "rms_norm/weight/typical/float32"
    assert problems(make.held(run, make.toml({"match": match}))) == [("xpass", 1)]
    assert make.held(run, make.toml({"match": match, "when": "implementation == 'a'"})).passed


def test_problems_stand_in_the_files_order_and_name_their_own_lines(make):
    run = make.run(
        make.result("typical", "fail"), make.result("square"), make.result("tiny", "fail")
    )
    text = make.toml({"match": "gone/*/*/float32"}, {"match": "rms_norm/weight/square/float32"})
    assert problems(make.held(run, text)) == [("stale", 1), ("xpass", 7), ("unlisted", None)]


def test_more_results_than_a_line_names_are_counted(make):
    names = [f"s{n}" for n in range(9)]
    suite = make.suite([f"rms_norm/weight/{name}" for name in names])
    run = make.held(make.run(*map(make.result, names)), make.toml({}), suite)
    text = line(run, "xpass")
    assert "s0" in text
    assert "s3" not in text
    assert "XPASS: 9 results (" in text
    assert "; …) pass now" in text


def test_hostile_text_stays_inert(make):
    name = "rms_norm/weight/typical/float32"
    gone = make.result(verdict="unsupported", output="vjp", reason="\x1b[31mred\nline", name=name)
    run = make.held(make.run(gone), make.toml({"match": name}))
    from gradcheck.report.run_words import baseline

    assert all(text.isprintable() for text in baseline(run))


def test_every_breach_has_its_test():
    assert {b.value for b in Breach} == {
        "unlisted", "xpass", "other verdict", "other class", "worse", "unsupported", "stale",
        "expired",
    }  # fmt: skip


def test_today_is_the_day_in_utc():
    before = datetime.now(UTC).date()
    found = today()
    assert before <= found <= datetime.now(UTC).date()


def test_no_other_module_of_baselines_asks_for_the_day():
    folder = Path(gradcheck.__file__).parent / "results" / "baseline"
    asking = [
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("now", "today", "utcnow", "time")
    ]
    assert asking == ["entry.py"]


def scope(make, baseline=None, suite=None):
    run = make.run(make.result("typical"), make.result("square", dtype="float64"))
    return Scope.of(suite or make.suite(), baseline or Baseline(name="k"), run)


def test_what_exists_what_was_run_and_what_was_not(make):
    found = scope(make)
    assert found.reached("*/*/*/float32") == ["rms_norm/weight/typical/float32"]
    assert found.exists("rms_norm/*/tiny/bfloat16")
    assert not found.exists("rms_norm/*/tiny/float23")
    assert not found.exists("rms_norm/*/other/float32")
    assert sorted(found.missed("rms_norm/weight/t*/float32")) == ["rms_norm/weight/tiny/float32"]
    assert len(found.missed("rms_norm/weight/*/*")) == 4  # of 3 samples in 2 dtypes
    assert len(found.missed("rms_norm/weight/*/bfloat16")) == 3  # not usual, and yet not run


def test_a_file_says_which_dtypes_a_full_run_has(make):
    wide = Baseline(name="k", dtypes=("float64", "float32", "bfloat16"))
    assert len(scope(make, wide).missed("rms_norm/weight/*/*")) == 7


def test_each_kind_has_its_own_dtypes(make):
    suite = make.suite(["op/d/s"], models=["gpt/d/tiny"], rules=["adam/d/s"])
    found = scope(make, Baseline(name="k", dtypes=("float32", "float16", "mp50")), suite)
    assert {*found.missed("op/*/*/*")} == {f"op/d/s/{d}" for d in ("float64", "float32", "float16")}
    assert {*found.missed("gpt/*/*/*")} == {
        f"gpt/d/tiny/{d}" for d in ("float64", "float32", "mp50")
    }
    assert not found.exists("op/*/*/mp50")
    assert not found.exists("gpt/*/*/float16")
    assert found.exists("adam/*/*/bfloat16")


def test_a_star_crosses_no_slash_where_both_have_three():
    assert matcher("*/*/*/*")("a/b/c/d")
    assert not matcher("*/b/c/d")("a/x/b/c")
    assert not matcher("a/b")("a/b/c/d")


def test_only_a_failure_with_numbers_has_an_error(make):
    assert measured(make.result(verdict="fail", error=0.25)) == pytest.approx(0.25)
    assert measured(make.result(verdict="fail", error=math.nan)) == math.inf
    assert measured(make.result(verdict="fail", error=math.inf)) == math.inf
    assert measured(make.result(verdict="pass", error=0.25)) is None
    assert measured(make.result(verdict="crash")) is None
    assert measured(make.result(verdict="fail", worst=())) is None


def test_the_largest_of_several(make):
    errors = (0.25, 0.5, 0.125)
    assert largest(make.result(verdict="fail", error=e) for e in errors) == pytest.approx(0.5)
    assert largest([make.result(), make.result(verdict="crash")]) is None
    assert largest(make.result(verdict="fail", error=e) for e in (0.1, math.nan)) == math.inf


@pytest.mark.parametrize(
    ("error", "most"),
    [(0.04, 0.06), (0.0267, 0.041), (0.32, 0.48), (1.9994, 3.0), (2.0, 3.0), (6.63e-5, 1.0e-4),
     (1e-12, 1.5e-12), (1e-300, 1.5e-300), (0.0667, 0.11), (66.6, 100.0)],
)  # fmt: skip
def test_an_allowance_is_half_as_much_again_rounded_up_to_two_digits(error, most):
    assert allowance(error) == most
    assert error * 1.5 <= most <= error * 1.5 * 1.1


def test_worse_is_not_within_and_no_number_is_never():
    assert within(0.04, 0.04)
    assert not within(0.0401, 0.04)
    assert not within(math.inf, 0.04)
    assert not within(math.nan, 0.04)
    assert within(math.inf, None)
    assert within(None, 0.04)
