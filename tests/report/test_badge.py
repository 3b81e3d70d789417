import json
from dataclasses import replace

import pytest

from gradcheck.report.json import badge as render
from gradcheck.results.verdict import Verdict

V = Verdict


def badge(run):
    found = json.loads(render(run))
    assert list(found) == ["schemaVersion", "label", "message", "color"]
    assert found["schemaVersion"] == 1
    assert found["label"] == "gradcheck"
    return found["message"], found["color"]


def of(make, **counts):
    return make.run(
        *(
            make.result(f"{verdict}{i}", verdict=Verdict(verdict))
            for verdict, count in counts.items()
            for i in range(count)
        )
    )


@pytest.mark.parametrize(
    ("counts", "message", "color"),
    [
        ({"pass": 42}, "42/42", "brightgreen"),
        ({"pass": 38, "unsupported": 4}, "38/42, 4 unsupported", "green"),
        ({"pass": 38, "fail": 4}, "38/42", "red"),
        ({"pass": 36, "crash": 2, "unsupported": 4}, "36/42, 4 unsupported", "red"),
        ({"pass": 3, "inconclusive": 1}, "3/4", "red"),
        ({"pass": 3, "invalid": 1}, "3/4, 1 invalid", "red"),
        ({"pass": 3, "unbound": 90, "skip": 7}, "3/3", "brightgreen"),
        ({"pass": 1234}, "1,234/1,234", "brightgreen"),
        ({}, "nothing checked", "lightgrey"),
        ({"unsupported": 4, "unbound": 3}, "nothing checked", "lightgrey"),
        ({"fail": 2}, "0/2", "red"),
    ],
)
def test_counts_and_colours(make, counts, message, color):
    assert badge(of(make, **counts)) == (message, color)


def test_an_incomplete_run_is_no_pass_and_says_so(make):
    run = replace(of(make, **{"pass": 12}), complete=False)
    assert badge(run) == ("incomplete, 12/12", "orange")


def test_what_did_not_load_is_no_pass(make):
    run = replace(of(make, **{"pass": 12}), troubles=("mine does not load",))
    assert badge(run) == ("12/12, not all judged", "red")


def test_known_failures_are_counted_and_are_not_bright(known, outdated):
    message, color = badge(known)
    assert message.startswith("12/21, 9 known")
    assert color == "yellowgreen"
    message, color = badge(outdated)
    assert "baseline to correct" in message
    assert color == "red"


def test_green_is_a_run_that_passed_and_there_is_no_percentage(any_run):
    message, color = badge(any_run)
    assert (color in ("brightgreen", "green", "yellowgreen")) == any_run.passed
    assert "%" not in message
    assert len(message) < 100  # a badge is one line of a page, and no text of anybody's is in it
