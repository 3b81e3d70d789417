import html
import json
from dataclasses import replace

import pytest

from gradcheck.report import outline, render, run_words
from gradcheck.report.run_words import load_summary
from gradcheck.report.terminal import LONGEST
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Certificate, Part
from gradcheck.results.run import Timing
from gradcheck.results.verdict import Known, Verdict


def test_the_headline_never_sounds_better_than_the_gate(make):
    passed = make.result()
    skipped = make.result(verdict=Verdict.SKIP)
    failed = make.result(verdict=Verdict.FAIL)
    for run, text in (
        (make.run(), "nothing was checked"),
        (make.run(skipped), "nothing was checked"),
        (make.run(passed), "1 check passed"),
        (make.run(passed, passed, skipped), "all 2 checks passed"),
        (make.run(passed, failed), "1 of 2 checks failed"),
        (make.run(passed, failed, complete=False), "1 of 2 checks failed"),
        (make.run(passed, complete=False), "the run is incomplete"),
        (make.run(passed, troubles=("x",)), "1 problem kept the run from judging everything"),
    ):
        assert run_words.headline(run) == text
        assert run_words.headline(run).endswith("passed") == run.passed


TOOK = Timing(seconds=135.2, cases={})


def test_the_last_sentence_says_verdict_reason_extent_and_time(make, untimed):
    """Of each kind of run; one on file has no seconds."""
    passed, why = make.result(), make.why(says="dx is 1/3")
    wrong = make.result("relu", verdict=Verdict.FAIL, diagnosis=why)
    other = make.result("silu", verdict=Verdict.MISSING, reason="dx is lost")
    known = make.gated(make.run(passed, wrong), [None, Known.XFAIL])
    worse = make.gated(make.run(passed, wrong, other), [None, Known.XFAIL, None])
    stale = make.gated(make.run(passed), [None], [make.problem()])
    for run, text in (
        (make.run(passed, other), "1 of 2 checks failed: silu/weight · dx: dx is lost. 24"),
        (make.run(passed, passed), "All 2 checks passed. 48"),
        (make.run(passed), "1 check passed. 24"),
        (make.run(passed, wrong), "1 of 2 checks failed: relu/weight · dx: dx is 1/3. 48"),
        (make.run(wrong, other), "2 of 2 checks failed, for 2 reasons. 24"),
        (make.run(make.result(verdict=Verdict.SKIP)), "Nothing was checked. 0"),
        (make.run(), "Nothing was checked."),
        (make.run(passed, complete=False), "The run is incomplete. 24"),
        (make.run(passed, troubles=("x",)), "1 problem kept the run from judging everything. 24"),
        (known, "1 of 2 checks passed, 1 known failure. 48"),
        (worse, "1 of 3 checks failed, 1 known failure: silu/weight · dx: dx is lost. 48"),
        (stale, "1 line of known.toml to correct. 24"),
    ):
        count = text.rpartition(". ")[2]
        whole = f"{text} numbers compared" if count.isdigit() else text.rstrip(".")
        timed = replace(run, timing=TOOK)
        shown = [render(one, "terminal", width=200) for one in (run, timed)]
        said = [text.rstrip("\n").split("\n")[-3] for text in shown]
        took = " in 2 min 15 s" if run.results else ""
        assert said == [f"{whole}.", f"{whole}{took}."]
        assert untimed(shown[1]) == shown[0]


def test_of_several_implementations_the_last_sentence_names_the_one_that_fails(several):
    text = render(several, "terminal", width=200)
    assert "\n1 of 25 checks failed: mine · softmax/weight · dx: 3 of 24 elements" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "under 0.1 s"), (0.049, "under 0.1 s"), (0.05, "0.1 s"), (9.94, "9.9 s"),
     (59.4, "59 s"), (59.6, "1 min 0 s"), (119.7, "2 min 0 s"), (3600.0, "60 min 0 s")],
)  # fmt: skip
def test_a_duration_is_rounded_once(seconds, text):
    assert run_words.duration(seconds) == text


def test_an_implementation_says_what_it_is(make):
    run = make.run(
        implementations=("gradcheck.toml", "torch", "odd.toml"),
        versions={"gradcheck.toml": "mykernels 1.2", "odd.toml": make.hostile + "x" * 10_000},
    )
    shown = dict(run_words.versions(run))["implementations"]
    assert shown.startswith("gradcheck.toml (mykernels 1.2), torch, odd.toml (")
    assert shown.isprintable()
    assert len(shown) < 1_000


FAIL = Verdict.FAIL


def test_gaps_are_told_once_per_reason(failing):
    gaps = [(g.verdict.value, g.reason, g.ops, g.count) for g in run_words.gaps(failing)]
    assert gaps == [
        ("unsupported", "no axis but the last", ("sort",), 2),
        ("unbound", "not implemented by reference", ("conv",), 1),
        ("skip", "left out by -k", ("einsum",), 1),
    ]


def test_what_is_unbound_is_one_gap_per_implementation(make):
    run = make.run(
        *(make.result(op, verdict=Verdict.UNBOUND, reason=f"nothing about {op}") for op in "abc"),
        make.result(verdict=Verdict.UNBOUND, implementation="mine"),
    )
    first, second = run_words.gaps(run)
    assert (first.ops, first.reason) == (("a", "b", "c"), "not implemented by reference")
    assert (second.count, second.reason) == (1, "not implemented by mine")


def test_what_talks_and_fails_is_no_harmless_noise(make):
    run = make.run(
        make.result("calm", printed="hello\n"),
        make.result("calm", sample="tiny", printed="again\n"),
        make.result("dead", printed="hello\n"),
        make.result("dead", "w", Verdict.CRASH, printed="ouch\n"),
        make.result("silent", printed=" \n"),
    )
    assert [(r.case.op, r.case.sample, count) for r, count in run_words.talkers(run)] == [
        ("calm", "typical", 2)
    ]


def of(make, *results, **changes):
    ops = [make.result(op, output, Verdict(verdict), implementation="k:IMPL", **more)
           for op, output, verdict, more in results]  # fmt: skip
    return make.run(*ops, implementations=("k:IMPL",), **changes)


def said(make, *results, everything=True):
    """The one line on how an implementation was loaded."""
    (line,) = load_summary(of(make, *[(*r, {})[:4] for r in results]), everything=everything)
    return line


@pytest.mark.parametrize("verdict", ["error", "crash", "timeout", "missing", "notrun", "invalid",
                                     "unsupported"])  # fmt: skip
def test_what_gives_no_gradient_has_not_answered(make, verdict):
    line = said(make, ("relu", "x", "pass"), ("silu", "vjp", verdict), everything=False)
    lack = f"(not silu: {verdict.upper()})"
    assert line == f"k:IMPL: 2 operators, float64; 1 of 2 returned gradients {lack}"


@pytest.mark.parametrize("verdict", ["pass", "fail", "inconclusive"])
def test_a_wrong_answer_is_one(make, verdict):
    line = said(make, ("silu", "x", verdict), ("silu", "x", "crash", {"sample": "zero"}))
    assert line == "k:IMPL: 1 operator, float64; 1 of 1 returned gradients"


def test_a_forward_and_a_property_are_no_gradient(make):
    line = said(
        make,
        ("silu", "forward", "pass"),
        ("silu", "linear", "pass", {"part": Part.CONTRACT}),
        ("silu", "vjp", "error"),
    )
    assert line.endswith("; 0 of 1 returned gradients (not silu: ERROR)")


@pytest.mark.parametrize("verdict", ["unbound", "skip"])
def test_what_nobody_was_asked_for_does_not_count(make, verdict):
    line = said(make, ("relu", "x", "pass"), ("silu", "vjp", verdict))
    assert line == "k:IMPL: 1 operator, float64; 1 of 1 returned gradients"
    nothing = said(make, ("silu", "vjp", verdict), everything=False)
    assert nothing == "k:IMPL has nothing of this selection"


def test_a_few_of_many_that_did_not_answer_are_named(make):
    line = said(make, *[(f"op{i}", "vjp", "crash") for i in range(12)])
    assert line.endswith("(not op0: CRASH, op1: CRASH, op2: CRASH, and 9 more)")


def test_of_everything_each_implementation_has_a_line_but_the_reference(make):
    run = make.run(
        make.result("relu", implementation="reference"),
        make.result("relu", implementation="k.toml", dtype="float32"),
        make.result("silu", implementation="k.toml"),
        make.result("gpt2", "wte", kind=Kind.MODEL, implementation="j"),
        make.result("sgd", "w", kind=Kind.RULE, part=Part.UPDATE, implementation="j"),
        implementations=("reference", "k.toml", "unloaded", "j"),
        versions={"k.toml": "mykernels 1.2"},
    )
    assert load_summary(run) == []  # none of them lacks anything
    assert load_summary(run, everything=True) == [
        "mykernels 1.2: 2 operators, float64, float32; 2 of 2 returned gradients",
        "j: 1 model, 1 update rule, float64; 2 of 2 returned gradients",
    ]


def test_it_stands_before_the_table_where_something_is_lacking_or_all_is_shown(make):
    lacking = of(make, ("silu", "x", "fail", {}), ("relu", "vjp", "crash", {}))
    complete = of(make, ("silu", "x", "fail", {}))
    for run, verbosity in ((lacking, 0), (lacking, 1), (complete, 1)):
        text = render(run, "terminal", verbosity=verbosity)
        assert text.index("\nk:IMPL: ") < text.index("\noperator ")
    assert "k:IMPL: " not in render(complete, "terminal")


def test_the_reference_needs_no_loading(passing):
    assert "loaded" not in render(passing, "terminal")


def test_a_name_is_one_line(make, hostile):
    assert all(line.isprintable() for line in load_summary(hostile))


ALL = Certificate(rejected=("zeros", "double"), blind=())
BLIND = Certificate(rejected=("zeros",), blind=("double", "stale"))
FORMATS = ("terminal", "markdown", "html")


def flat(text):
    return " ".join(text.split())


def test_certificates_are_added_up_and_the_blind_spots_named(make):
    run = make.run(
        make.result(certificate=ALL),
        make.result(sample="weak", certificate=BLIND),
        make.result(sample="weaker", dtype="float32", certificate=BLIND),
        make.result(output="forward"),
    )
    found = run_words.certificate(run)
    assert (found.rejected, found.tried) == (4, 8)
    assert [(name, count) for name, count, _ in found.blind] == [("double", 2), ("stale", 2)]
    assert all("rms_norm/weight/weak/float64" in where for *_, where in found.blind)
    for form in FORMATS:
        text = flat(render(run, form)).replace("\\_", "_")
        assert (
            "4 of 8 deliberately wrong gradients were caught; not caught: double (2, as in" in text
        )


def test_without_certificates_nothing_is_claimed(make):
    run = make.run(make.result())
    assert run_words.certificate(run) is None
    for form in FORMATS:
        assert "impostors" not in render(run, form)


@pytest.mark.parametrize("form", FORMATS)
def test_a_wider_bound_is_reported_with_its_sentence(make, form):
    because = "by a bound 64 ulp wider: a table of <f16>"
    plain = make.run(make.result("exp"))
    run = make.run(
        make.result("exp", slack=because),
        make.result("exp", sample="again", slack=because),
        make.result("silu"),
    )
    assert run_words.slacks(run) == [("exp", f"2 results {because}")]
    text = html.unescape(flat(render(run, form)).replace("\\", ""))
    assert f"2 results {because}" in text
    assert "<f16>" not in render(run, form) or form == "terminal"
    assert "ider bound" not in render(plain, form)


@pytest.mark.parametrize("form", FORMATS)
def test_conventions_are_reported_once_per_operator(make, form):
    kink = ("x = 0: 0 (PyTorch, JAX)",)
    run = make.run(
        make.result("relu", conventions=kink),
        make.result("relu", sample="again", conventions=kink),
        make.result("clamp", conventions=("x = min: 1 (ggml)", "x = max: none that is known")),
    )
    text = flat(render(run, form))
    assert text.count("x = 0: 0 (PyTorch, JAX)") == 1
    assert "x = min: 1 (ggml); x = max: none that is known" in text


def test_several_implementations_keep_their_conventions_apart(make):
    run = make.run(
        make.result("relu", implementation="mine", conventions=("x = 0: 1 (nobody)",)),
        make.result("relu", implementation="torch", conventions=("x = 0: 0 (PyTorch)",)),
        implementations=("mine", "torch"),
    )
    assert run_words.conventions(run) == [
        ("mine: relu", ("x = 0: 1 (nobody)",)),
        ("torch: relu", ("x = 0: 0 (PyTorch)",)),
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_a_hostile_convention_harms_no_report(make, form):
    text = render(make.run(make.result(make.hostile, conventions=(make.hostile,))), form)
    assert "<script>alert" not in text.replace("&lt;", "") or form == "terminal"
    assert "\x1b[31m" not in text
    assert "\x00" not in text


def test_json_counts_what_is_rejected_and_names_what_is_not(make):
    (plain,) = json.loads(render(make.run(make.result(certificate=BLIND)), "json"))["results"]
    assert plain["certificate"] == {
        "rejected": 1, "tried": 3, "blind": ["double", "stale"], "impostors": [*BLIND.rejected],
        "tolerated": [],
    }  # fmt: skip
    (none,) = json.loads(render(make.run(make.result()), "json"))["results"]
    assert none["certificate"] is None


# ── folding ──────────────────────────────────────────────────────────────────────────────────


def many(make, *more):
    dialects = [f"d{i}" for i in range(LONGEST // 2 + 1)]
    return make.run(
        *(make.result("wide", o, dialect=d) for d in dialects for o in ("x", "w")), *more
    )


def test_many_passing_rows_become_one_per_operator(make):
    run = many(
        make,
        make.result("low", "x"),
        make.result("low", "vjp", Verdict.SKIP, sample="huge", reason="too large"),
    )
    text = render(run, "terminal", width=200)
    lines = [line.split() for line in text.splitlines()]
    (wide,) = (line for line in lines if line[:1] == ["wide"])
    assert wide[1:4] == ["all", str(LONGEST // 2 + 1), "all"]
    assert ["low", "weight", "dx", "PASS"] in [line[:4] for line in lines]
    assert "One line per passing operator" in text


def test_a_failing_run_shows_the_first_rows_of_operators_that_fail_and_counts_all_others(make):
    bad = [make.result(f"bad{i}", o, Verdict.FAIL if o == "w" else Verdict.PASS)
           for i in range(6) for o in ("x", "w")]  # fmt: skip
    run = many(make, *bad)
    table = render(run, "terminal", width=200).split("\n\n")[1].splitlines()
    rows = [line.split() for line in table[2:-1]]
    assert [row[0] for row in rows[::2]] == ["bad0", "bad1", "bad2", "bad3"]
    assert [row[0] for row in rows[1::2]] == ["dw"] * 4
    assert ["FAIL" in row for row in rows] == [False, True] * 4
    assert table[-1].startswith("… and 4 more rows of failing operators and 1 operator without fai")
    whole = render(run, "terminal", width=200, verbosity=1)
    assert all(f"\n{r.case.op} " in whole for r in run.results)


def test_a_short_table_is_not_folded(make):
    text = render(make.run(make.result("a", "x"), make.result("a", "w")), "terminal")
    assert "One line per passing operator" not in text
    assert "dx" in text
    assert "dw" in text


def test_folding_never_hides_a_verdict(make):
    for verdict in Verdict:
        run = many(make, make.result("odd", "x"), make.result("odd", "w", verdict))
        (row,) = (r for r in outline.folded(outline.tables(run)[0].rows) if r.op == "wide")
        assert row.verdict is Verdict.PASS
        odd = [r for r in outline.folded(outline.tables(run)[0].rows) if r.op == "odd"]
        folds = verdict in (Verdict.PASS, Verdict.SKIP)
        assert len(odd) == (1 if folds else 2)
