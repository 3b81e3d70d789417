"""What the checks would have rejected, whose conventions were found, and folded tables."""

import html
import json

import pytest

from gradcheck.report import outline, render, run_words
from gradcheck.report.terminal import LONGEST
from gradcheck.results.finding import Certificate
from gradcheck.results.verdict import Verdict

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
        assert "4 of 8 impostors would have been rejected; passed by: double (2, as in" in text


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


def test_many_passing_rows_become_one_per_operator_and_a_failing_operator_keeps_its_own(make):
    run = many(
        make,
        make.result("bad", "x"),
        make.result("bad", "w", Verdict.FAIL),
        make.result("low", "x"),
        make.result("low", "vjp", Verdict.SKIP, sample="huge", reason="too large"),
    )
    text = render(run, "terminal", width=200)
    lines = [line.split() for line in text.splitlines()]
    (wide,) = (line for line in lines if line[:1] == ["wide"])
    assert wide[1:4] == ["all", str(LONGEST // 2 + 1), "all"]
    assert ["low", "weight", "dx", "PASS"] in [line[:4] for line in lines]
    bad = next(i for i, line in enumerate(lines) if line[:1] == ["bad"])
    assert (lines[bad][2], lines[bad + 1][0]) == ("dx", "dw")
    assert "FAIL" in lines[bad + 1]
    assert "One line per passing operator" in text


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
