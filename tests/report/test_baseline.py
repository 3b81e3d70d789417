"""What a baseline knows, in every format; without one every report is what it was."""

import json
import re
from xml.etree import ElementTree as ET

import pytest

from gradcheck import report
from gradcheck.report import run_words
from gradcheck.report.outline import Cell
from gradcheck.results.verdict import Breach, Known, Verdict

FAIL, PASS = Verdict.FAIL, Verdict.PASS
XFAIL, XPASS = Known.XFAIL, Known.XPASS


@pytest.fixture
def listed(make):
    """One known failure, beside a pass."""
    return make.gated(make.run(make.result(verdict=FAIL), make.result(output="w")), [XFAIL, None])


@pytest.fixture
def mended(make):
    """One listed failure that passes."""
    run = make.run(make.result(), make.result(output="w"))
    return make.gated(run, [XPASS, None], [make.problem(Breach.XPASS)])


def cases(run):
    root = ET.fromstring(report.render(run, "junit"))
    return {case.get("name").rpartition("/")[2]: [*case] for case in root.iter("testcase")}


def test_a_known_failure_opens_the_gate_and_an_unexpected_pass_closes_it(listed, mended):
    assert listed.passed
    assert not mended.passed


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_tables_say_xfail_and_xpass(listed, mended, form):
    known, passing = report.render(listed, form), report.render(mended, form)
    assert "XFAIL" in known
    assert "XPASS" not in known
    assert re.search(r"\bFAIL\b", re.sub(r"<[^>]*>", "", known)) is None
    assert "XPASS" in passing
    assert "known.toml:7: XPASS: remove the entry" in passing
    assert "known.toml: 1 known failure (XFAIL)" in known
    assert "known.toml: 0 known failures (XFAIL), 1 unexpected pass (XPASS)" in passing


def test_a_known_failure_is_not_told_in_full(listed, make):
    bare = make.run(*listed.results)
    for form in ("terminal", "markdown", "github"):
        assert "outside their bound" in report.render(bare, form)
        assert "outside their bound" not in report.render(listed, form)


def test_an_unlisted_failure_outshines_a_known_one_in_its_cell(make):
    pair = [make.result(verdict=FAIL), make.result(verdict=FAIL, sample="tiny")]
    both = [make.gated(make.run(*pair), marks) for marks in ([XFAIL, XFAIL], [XFAIL, None])]
    assert [Cell.of(run, run.results).stands for run in both] == [XFAIL, FAIL]
    mixed = make.gated(make.run(make.result(sample="square"), *pair), [XPASS, XFAIL, XFAIL])
    assert Cell.of(mixed, mixed.results).stands is XPASS
    single = [Cell.of(mixed, [r]) for r in mixed.results]
    assert [cell.stands for cell in single] == [XPASS, XFAIL, XFAIL]
    assert Cell.joined(single).stands is XPASS
    assert Cell.joined([*single, Cell.of(both[1], both[1].results)]).stands is FAIL
    assert Cell.joined(single[1:]).stands is XFAIL


def test_headlines(listed, mended, make):
    assert run_words.headline(listed) == "1 of 2 checks passed, 1 known failure"
    assert run_words.headline(mended) == "1 line of known.toml to correct"
    worse = make.gated(make.run(make.result(verdict=FAIL), make.result(verdict=FAIL, sample="b")),
                       [XFAIL, None])  # fmt: skip
    assert run_words.headline(worse) == "1 of 2 checks failed, 1 known failure"
    assert run_words.tally(listed) == [("good", "1 pass"), ("calm", "1 fail"), ("calm", "1 xfail")]
    assert ("bad", "2 fail") in run_words.tally(worse)
    assert ("bad", "1 xpass") in run_words.tally(mended)


def test_junit_skips_what_is_known_and_fails_what_passes(listed, mended):
    (known,), nothing = cases(listed).values()
    assert (known.tag, known.get("type")) == ("skipped", "xfail")
    assert known.get("message") == "known.toml:7: kept in half"
    assert nothing == []
    (passing,), _ = cases(mended).values()
    assert (passing.tag, passing.get("type")) == ("failure", "xpass")


@pytest.mark.parametrize("breach", Breach)
def test_junit_is_red_for_each_line_that_no_testcase_stands_for(make, breach):
    bare = (Breach.STALE, Breach.EXPIRED, Breach.UNSUPPORTED)
    run = make.gated(make.run(make.result()), [None], [make.problem(breach)])
    errors = [e.get("message") for e in ET.fromstring(report.render(run, "junit")).iter("error")]
    assert errors == (
        [f"known.toml:7: {breach.value.upper()}: remove the entry"] if breach in bare else []
    )


def test_github_puts_each_line_where_it_is_to_be_edited(make):
    lines = [make.problem(Breach.STALE, 7), make.problem(Breach.UNLISTED, None)]
    run = make.gated(make.run(make.result()), [None], lines)
    assert report.render(run, "github").splitlines() == [
        "::error file=known.toml,line=7,title=baseline%3A stale::remove the entry",
        run.summary,
    ]


def test_json_says_what_is_known_and_why(listed, mended, make):
    plain = json.loads(report.render(listed, "json"))
    first, second = plain["results"]
    assert (first["verdict"], first["expectation"]) == ("fail", "ok")
    assert first["known"] == {
        "as": "xfail", "entry": "known.toml:7", "reason": "kept in half", "link": None
    }  # fmt: skip
    assert second["known"] is None
    assert plain["footer"]["passed"] is True
    assert plain["footer"]["counts"]["fail"] == 1
    plain = json.loads(report.render(mended, "json"))
    assert plain["results"][0]["expectation"] == "unexpected"
    assert plain["footer"]["baseline"] == {
        "file": "known.toml", "xfail": 0, "xpass": 1, "warnings": [],
        "problems": [
            {"kind": "xpass", "file": "known.toml", "line": 7, "says": "remove the entry"}
        ],
    }  # fmt: skip
    bare = json.loads(report.render(make.run(make.result()), "json"))
    assert bare["footer"]["baseline"] is bare["results"][0]["known"] is None


def test_the_line_for_scripts(listed, mended):
    assert " xfail=1 xpass=0 stale=0 elements=" in listed.summary
    assert " xfail=0 xpass=1 stale=0 elements=" in mended.summary
    assert listed.summary.startswith("RESULT pass ")


def test_what_a_known_failure_printed_is_no_noise_of_what_went_well(make):
    one = make.result(verdict=FAIL, printed="hello")
    text = report.render(make.gated(make.run(one), [XFAIL]), "terminal")
    assert "hello" not in text
