import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gradcheck import report
from gradcheck.report.json import badge as render_badge
from gradcheck.results.finding import Part, Taylor
from gradcheck.results.stored.plain import footer_dict, header_dict, result_dict
from gradcheck.results.verdict import Verdict

render = partial(report.render, format="json")


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def load(text):
    return json.loads(text, parse_constant=refuse)


@pytest.mark.slow(keep=2)
def test_every_run_is_strict_json(any_run):
    found = load(render(any_run))
    assert list(found) == ["header", "results", "footer"]
    assert len(found["results"]) == len(any_run.results)


def test_numbers_that_are_not_finite_are_words(make):
    worst = make.miss(got=math.nan, want=math.inf, error=-math.inf, bound=0.1, error_bar=math.nan)
    run = make.run(make.result(verdict=Verdict.FAIL, worst=(worst,)))
    (result,) = load(render(run))["results"]
    assert (result["got"], result["want"], result["error"]) == ("nan", "inf", "-inf")
    assert result["worst"][0]["error_bar"] == "nan"
    assert result["bound"] == 0.1


def test_nothing_is_lost(passing):
    plain = {
        "header": header_dict(passing.header),
        "results": [result_dict(passing, result) for result in passing.results],
        "footer": footer_dict(passing),
    }
    assert load(render(passing)) == json.loads(json.dumps(plain))


def test_a_curve_is_data_like_the_rest(make):
    curve = Taylor(
        steps=(0.5, 0.25), remainders=(1.0, 0.0), slopes=(math.nan,), intercept=0.1,
        error_bar=math.inf, linear=False, product=2.0, noise=1e-16,
    )  # fmt: skip
    (result,) = load(render(make.run(make.result(taylor=curve))))["results"]
    assert result["taylor"] == {
        "steps": [0.5, 0.25], "remainders": [1.0, 0.0], "slopes": ["nan"], "intercept": 0.1,
        "error_bar": "inf", "linear": False, "product": 2.0, "noise": 1e-16,
    }  # fmt: skip


def test_numbers_keep_every_bit(make):
    miss = make.miss(got=0.1 + 0.2, want=5e-324, error=1.7976931348623157e308)
    (result,) = load(render(make.run(make.result(worst=(miss,)))))["results"]
    assert result["got"] == 0.1 + 0.2
    assert result["want"] == 5e-324
    assert result["error"] == 1.7976931348623157e308


def test_foreign_text_survives(hostile, make):
    text = render(hostile)
    assert text.isascii()
    assert load(text)["results"][0]["reason"] == make.hostile


def test_numpy_scalars_are_numbers(make):
    miss = make.miss(index=(np.int64(1), np.int64(2)), got=np.float32("nan"), want=np.float64(2))
    (result,) = load(render(make.run(make.result(worst=(miss,)))))["results"]
    assert (result["worst_index"], result["got"], result["want"]) == ([1, 2], "nan", 2.0)


def test_what_is_no_data_is_refused(make):
    with pytest.raises(TypeError):
        render(make.run(make.result(reason=object())))


def test_a_result_is_a_line(failing):
    body = [line for line in render(failing).splitlines() if line.startswith("    {")]
    assert len(body) == len(failing.results)
    for line, result in zip(body, failing.results, strict=True):
        assert load(line.rstrip(","))["name"] == result.case.name


def test_an_empty_run_has_no_results(empty):
    found = load(render(empty))
    assert found["results"] == []
    assert found["footer"]["passed"] is False


def test_a_models_results_say_what_they_are_about(make):
    blame = make.blame("a", exact=False, bounds=("x", "y"), names=("z",))
    run = make.run(
        make.of_model("ln_f", part=Part.STAGE),
        make.of_model("loss", blames=(blame,)),
        make.result(),
    )
    stage, loss, operator = load(render(run))["results"]
    assert (stage["kind"], stage["part"], stage["blames"]) == ("model", "stage", [])
    assert (operator["kind"], operator["part"]) == ("operator", "gradient")
    assert loss["blames"] == [{
        "exact": False, "stages": ["a"], "of": 25, "assumption": "one fault at a time",
        "bounds": ["x", "y"], "round": 1, "names": ["z"],
    }]  # fmt: skip


def test_a_diagnosis_is_data_with_the_word_of_its_class(explained, make):
    found = {
        f"{r['op']} {r['sample']}": r for r in load(render(explained))["results"] if r["reason"]
    }
    assert found["rms_norm s0"]["diagnosis"] == {
        "label": "F",
        "class": "scale",
        "says": "dw is 1/3 of the right value",
        "rule": "counts",
        "evidence": ["3 is the number of rows", "wrong in all 5 probes"],
        "cause": "",
    }
    narrow = make.result(verdict=Verdict.FAIL, diagnosis=make.why("P", cause="computed in TF32"))
    assert load(render(make.run(narrow)))["results"][0]["diagnosis"]["cause"] == "computed in TF32"
    unknown = found["gelu typical"]["diagnosis"]
    assert (unknown["label"], unknown["class"]) == ("", None)
    assert unknown["evidence"] == ["the residual is 0.3"]
    assert found["exp typical"]["diagnosis"] is None
    (placed,) = load(render(make.run(make.result(source="src/rms.c:120"))))["results"]
    assert placed["source"] == "src/rms.c:120"


V = Verdict


def badge(run):
    found = json.loads(render_badge(run))
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
