from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from gradcheck.report.junit import kind, render
from gradcheck.results.finding import Part
from gradcheck.results.run import Timing
from gradcheck.results.verdict import Verdict

SCHEMA = Path(__file__).parent / "data" / "junit-10.xsd"


@pytest.fixture(scope="module")
def schema():
    return xmlschema.XMLSchema(SCHEMA)


def parse(run):
    return ET.fromstring(render(run).encode())


@pytest.mark.slow(keep=2)
def test_every_run_is_valid(any_run, schema):
    schema.validate(render(any_run))


def test_the_schema_can_tell(passing, schema):
    text = render(passing)
    for broken in (
        text.replace("<testcase name=", "<testcase title=", 1),
        text.replace('tests="', 'tries="', 2),
        text.replace("<properties>", "<properties><oops/>", 1),
    ):
        assert broken != text
        assert not schema.is_valid(broken)


@pytest.mark.slow(keep=2)
def test_it_is_green_exactly_if_the_run_passed(any_run, make):
    runs = [
        any_run,
        make.run(make.result(), complete=False),
        make.run(make.result(), troubles=("mine does not load",)),
        make.run(make.result(verdict=Verdict.SKIP)),
        *(make.run(make.result(), make.result(verdict=v, sample="b")) for v in Verdict),
    ]
    for run in runs:
        root = parse(run)
        red = int(root.get("failures")) + int(root.get("errors"))
        assert (red == 0) == run.passed, run.summary


def test_verdicts_become_what_they_are():
    words = {
        "": "pass",
        "failure": "fail missing",
        "error": "inconclusive error crash timeout notrun invalid",
        "skipped": "unsupported unbound skip",
    }
    for tag, verdicts in words.items():
        assert [v.value for v in Verdict if kind(v) == tag] == verdicts.split()


def test_counts_are_right(failing):
    root = parse(failing)
    assert root.get("tests") == str(len(failing.results))
    assert root.get("failures") == "5"
    assert root.get("errors") == "6"
    for suite in root:
        cases = suite.findall("testcase")
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name)) == sum(case.find(tag) is not None for case in cases)
        assert int(suite.get("tests")) == len(cases)
    assert sum(int(suite.get("skipped")) for suite in root) == 4


def test_a_suite_per_implementation_and_operator(several):
    names = [suite.get("name") for suite in parse(several)]
    assert names == ["reference/rms_norm", "reference/softmax", "mine/rms_norm", "mine/softmax"]


def test_a_testcase_per_result_with_a_name_of_its_own(failing):
    cases = list(parse(failing).iter("testcase"))
    names = [case.get("name") for case in cases]
    assert len(set(names)) == len(names) == len(failing.results)
    assert names[0] == "rms_norm/weight/typical/float64/x"
    assert cases[0].get("classname") == "reference.rms_norm"


def test_a_failure_carries_its_reason_its_facts_and_its_repro(make):
    result = make.result(verdict=Verdict.FAIL)
    failure = parse(make.run(result)).find(".//failure")
    assert failure.get("message") == result.finding.reason
    assert failure.get("type") == "fail"
    told = failure.text.splitlines()
    assert told[0].startswith("FAIL rms_norm/weight/typical/float64 · dx: ")
    assert "worst: dx[1, 3] got 0.123456, expected 0.1234 ± 1e-20" in told
    assert told[-1] == f"run: {result.repro}"


def test_a_verdict_without_a_reason_has_a_message(make):
    crash = parse(make.run(make.result(verdict=Verdict.CRASH))).find(".//error")
    assert crash.get("message") == "CRASH"


def test_what_is_illegal_in_xml_is_gone(make, schema):
    illegal = "".join(map(chr, (*range(0x20), 0xFFFE, 0xFFFF, 0xD800, 0xDFFF)))
    run = make.run(make.result(op=illegal, verdict=Verdict.FAIL, reason=f"a{illegal}b<&>\"'"))
    schema.validate(render(run))
    message = parse(run).find(".//failure").get("message")
    assert message.startswith("a")
    assert message.endswith("b<&>\"'")


def test_troubles_are_errors_of_their_own(make):
    run = make.run(make.result(), troubles=("no mine", "no yours"), complete=False)
    suite = parse(run).findall("testsuite")[-1]
    messages = [error.get("message") for error in suite.iter("error")]
    assert messages == ["no mine", "no yours", "the run stopped early"]
    assert suite.get("name") == "gradcheck"


@pytest.mark.slow(keep=2)
def test_there_is_no_time_in_it(any_run):
    root = parse(any_run)
    assert {element.get("time", "0") for element in root.iter()} == {"0"}
    assert not [element for element in root.iter() if "timestamp" in element.attrib]


def test_a_stage_and_a_parameter_of_one_name_are_two_cases(make):
    run = make.run(make.of_model("ln_f"), make.of_model("ln_f", part=Part.STAGE))
    names = [case.get("name") for case in parse(run).iter("testcase")]
    assert names == ["gpt2/default/tiny/float64/ln_f", "gpt2/default/tiny/float64/stage ln_f"]


def test_blame_stands_with_every_failure_of_its_case(make):
    blames = (make.blame("h.0.attn", names=("its dk lacks a factor",)),)
    run = make.run(
        make.of_model("loss", part=Part.VALUE, blames=blames),
        make.of_model("wte", Verdict.FAIL),
        make.of_model("wte", Verdict.FAIL, size="large"),
    )
    tiny, large = parse(run).iter("failure")
    assert "\nround 1: faulty stage: h.0.attn (1 of 25 stages)\n" in tiny.text
    assert "\nits dk lacks a factor\n" in tiny.text
    assert "faulty" not in large.text


def test_the_message_names_the_class_and_the_text_what_it_rests_on(explained):
    cases = {case.get("name"): case.find("failure") for case in parse(explained).iter("testcase")}
    for sample in ("s0", "s4"):  # every case stands alone: nothing is as above
        failure = cases[f"rms_norm/weight/{sample}/float64/w"]
        assert failure.get("message") == "scale: dw is 1/3 of the right value"
        first, second, third, *_ = failure.text.splitlines()
        assert first.endswith("/float64 · dw: scale: dw is 1/3 of the right value")
        assert second == "reason: 3 of 24 elements are outside their bound"
        assert third == "evidence: 3 is the number of rows"
    unknown = cases["gelu/weight/typical/float64/x"]
    assert unknown.get("message") == "3 of 24 elements are outside their bound"
    assert unknown.text.splitlines()[1] == "pattern: none known; the residual is 0.3"
    assert cases["relu/weight/typical/float64/x"].get("message") == "slot: dx is lost"


def test_times_are_written_where_the_run_has_them_and_add_up(several, schema):
    assert {element.get("time") for element in parse(several).iter()} == {None, "0"}
    cases = {"rms_norm/weight/typical": 8.0, "softmax/weight/big": 0.5, "of no result": 9.0}
    timed = replace(several, timing=Timing(seconds=99.0, cases=cases), troubles=("x",))
    schema.validate(render(timed))
    root = parse(timed)
    seconds = {
        suite.get("name"): [float(case.get("time")) for case in suite.iter("testcase")]
        for suite in root
    }
    # Two gradients in two dtypes of two implementations share the case.
    assert [x for x in seconds["reference/rms_norm"] if x] == [1.0] * 4
    assert [x for x in seconds["mine/rms_norm"] if x] == [1.0] * 4
    assert [x for x in seconds["mine/softmax"] if x] == [0.5]
    assert sum(seconds["gradcheck"]) == 0
    for suite in root:
        assert float(suite.get("time")) == sum(seconds[suite.get("name")])
    assert float(root.get("time")) == 8.5
