import json
import re
import xml.etree.ElementTree as ET

import pytest

KERNELS = """
import numpy as np

def silu(x): return x / (1 + np.exp(-x))
def silu_backward(ct, x):
    s = 1 / (1 + np.exp(-x))
    return ct * (s + x * s * (1 - s))
def negated(ct, x): return -silu_backward(ct, x)
"""
TESTS = """
import gradcheck
import pytest
from kernels import silu, silu_backward, negated

X = gradcheck.normal(3, 4)
ROW = {"x": gradcheck.normal(1, 4)}
S = "gradcheck_cases:SUITE"

@gradcheck.case(x=X.rows("zero", "tiny"), seeds=2, samples={"one-row": ROW})
def test_right(case):
    case.check(silu, silu_backward)

@gradcheck.case(x=X)
def test_wrong(case):
    case.check(silu, negated)

@gradcheck.case(x=X, dtypes="float64")
def test_never(case):
    pass

@gradcheck.case(x=X, dtypes="float64")
def test_rejects(case):
    with pytest.raises(AssertionError, match="dx has the wrong sign"):
        case.check(silu, negated)

@pytest.mark.xfail(strict=True)
@gradcheck.case(x=X, dtypes="float64")
def test_expected(case):
    case.check(silu, negated)

@gradcheck.case(x=X, dtypes="float64")
@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_with_others(case, factor, tmp_path):
    case.check(lambda x: factor * x, lambda ct, x: factor * ct)

@gradcheck.case(x=X, dtypes="float32")
class TestClass:
    @pytest.fixture
    def kernel(self, case):
        return silu_backward if case.dtype == "float32" else None

    def test_method(self, case, kernel):
        assert case["x"].dtype == "float32"
        case.check(silu, kernel)

    def test_other(self):
        pass

@gradcheck.cases_of("silu", suite=S, samples=["t*"], dtypes="float64")
def test_suite(case):
    case.check(silu, silu_backward)

@gradcheck.cases_of("silu", suite=S, samples="typical", dtypes="float64")
def test_suite_wrong(case):
    case.check(vjp=negated)

@gradcheck.case(x=X, dtypes="float64")
def test_left_out(case):
    pytest.skip("not today")

def test_of_somebody_else():
    pytest.skip("never")

@gradcheck.cases_of("rms_norm/weight", suite=S, samples="eps-*", dtypes="float64")
def test_lacks(case):
    case.check(vjp=lambda ct, x, w: (x, w))
"""


@pytest.fixture
def tests(folder):
    (folder / "tests").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = --strict-markers\n")
    (folder / "tests" / "test_silu.py").write_text(TESTS)
    return folder


def outcomes(found):
    lines = found.stdout.splitlines()
    return dict(reversed(x.split(" ", 2)[:2]) for x in lines if re.match("PASSED|FAILED|XFAIL", x))


@pytest.mark.slow
def test_a_test_is_given_each_point_in_each_dtype(pytest_, tests):
    found = pytest_("-rA", "--junitxml", "out.xml")
    assert found.returncode == 1
    ended = outcomes(found)
    node = "tests/test_silu.py::"
    right = [f"{s}-{d}{n}" for s in ("typical", "one-row") for d in ("float64", "float32")
             for n in ("", "-seed1")]  # fmt: skip
    wanted = {f"test_right[{name}]": "PASSED" for name in right}
    wanted |= {
        "test_wrong[typical-float64]": "FAILED",
        "test_wrong[typical-float32]": "FAILED",
        "test_never[typical-float64]": "FAILED",
        "test_rejects[typical-float64]": "PASSED",
        "test_expected[typical-float64]": "XFAIL",
        "test_with_others[typical-float64-2.0]": "PASSED",
        "test_with_others[typical-float64-3.0]": "PASSED",
        "TestClass::test_method[typical-float32]": "PASSED",
        "TestClass::test_other": "PASSED",
        "test_suite[silu/default/typical/float64]": "PASSED",
        "test_suite[silu/default/tails/float64]": "PASSED",
        "test_suite[silu/default/tiles/float64]": "PASSED",
        "test_suite_wrong[silu/default/typical/float64]": "FAILED",
    }
    ended = {name.removeprefix(node): how for name, how in ended.items()}
    assert ended == wanted
    assert "3 skipped" in found.stdout
    lines = TESTS.splitlines()
    skipped = re.findall(r"SKIPPED \[1\] tests/test_silu.py:(\d+): (\w+)", found.stdout)
    where = {said: line for line, said in skipped}
    assert lines[int(where["not"]) - 1].endswith('pytest.skip("not today")')
    assert lines[int(where["never"]) - 1].endswith('pytest.skip("never")')
    assert "test_lacks" in "".join(lines[int(where["UNSUPPORTED"]) - 1 :])
    assert "UNSUPPORTED: vjp takes no 'eps'; this case wants eps=" in found.stdout

    lead = "dx: sign: dx has the wrong sign: the right value negated"
    assert f"FAILED {node}test_wrong[typical-float64] - {lead}" in found.stdout
    nothing = "nothing was compared: test_silu.py::test_never never calls case.check(forward, vjp)"
    assert f"FAILED {node}test_never[typical-float64] - {nothing}" in found.stdout
    assert f"run: pytest '{node}test_wrong[typical-float64]'" in found.stdout
    assert f"run: pytest '{node}test_suite_wrong[silu/default/typical/float64]'" in found.stdout
    assert ">       case.check(silu, negated)" in found.stdout
    assert "given.py" not in found.stdout  # no frame of the checker's
    assert "runtest" not in found.stdout
    assert re.search(
        r"\n\d\d checks, 3 failed \(sign 3\), 1 unsupported; as a page: ", found.stdout
    )
    failures = {c.get("name"): f for c in ET.parse(tests / "out.xml").iter("testcase")
                for f in c.iter("failure")}  # fmt: skip
    assert failures["test_wrong[typical-float64]"].get("message") == lead


@pytest.mark.slow
def test_what_a_failure_says_to_run_can_be_pasted(pytest_, tests):
    # As a shell takes it apart, started where the first one was.
    again = "tests/test_silu.py::test_suite_wrong[silu/default/typical/float64]"
    found = pytest_(again)
    assert found.returncode == 1
    assert "1 failed" in found.stdout
    assert f"run: pytest '{again}'" in found.stdout


@pytest.mark.slow(rest=0)
def test_several_processes_a_selection_and_what_failed_last(pytest_, tests):
    pytest.importorskip("xdist")
    basics = ("-q", "-p", "gradcheck.pytest_plugin")
    words = ("-k", "typical and float64 and not seed1 and (wrong or right)", "-m", "gradcheck")
    shared = pytest_(*words, "-rA", "-p", "xdist", "-n", "2", "--dist", "loadfile", basics=basics)
    assert "2 failed, 1 passed" in shared.stdout
    assert re.search(r"\n\d+ checks, 2 failed \(sign 2\); as a page: ", shared.stdout)
    again = pytest_("--lf", "--co", basics=basics)
    names = [line for line in again.stdout.splitlines() if "::" in line]
    assert names == [
        "tests/test_silu.py::test_wrong[typical-float64]",
        "tests/test_silu.py::test_suite_wrong[silu/default/typical/float64]",
    ]


@pytest.mark.slow(rest=0)
def test_what_is_found_can_be_written_as_a_report(pytest_, tests):
    words = ("-k", "test_wrong or test_right", "--gradcheck-report", "out.md")
    found = pytest_(*words, "--gradcheck-report", "out.json")
    assert "\nwritten: out.md\nwritten: out.json\n" in found.stdout
    text = (tests / "out.md").read_text()
    assert text.startswith("**gradcheck: 2 of ")
    assert "pytest 'tests/test_silu.py::test_wrong[typical-float64]'" in text
    assert json.loads((tests / "out.json").read_text())["footer"]["complete"]
    first = pytest_("-k", "test_wrong", "--gradcheck-report", "out.json", "-x")
    assert "stopping after 1 failures" in first.stdout
    footer = json.loads((tests / "out.json").read_text())["footer"]
    assert (footer["complete"], footer["checked"]) == (False, 1)
    assert footer["stopped"] == "stopping after 1 failures"
    refused = pytest_("--gradcheck-report", "nowhere/out.md")
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "there is no folder nowhere" in refused.stderr


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    ("test", "said"),
    [
        (
            "@gradcheck.case(x=gradcheck.normal(3))\ndef test_x(): pass",
            "test_bad.py::test_x is given no case: write `case` among its arguments",
        ),
        (
            "@gradcheck.cases_of('silv', suite='gradcheck_cases:SUITE')\ndef test_x(case): pass",
            "test_bad.py::test_x: unknown operator 'silv': did you mean 'silu'?",
        ),
        ("@gradcheck.case()\ndef test_x(case): pass", "@gradcheck.case names no primal"),
    ],
    ids=["argument", "operator", "primal"],
)
def test_a_mistake_is_an_error_where_tests_are_collected(pytest_, folder, test, said):
    (folder / "test_bad.py").write_text(f"import gradcheck\n{test}\n")
    found = pytest_()
    assert found.returncode == pytest.ExitCode.INTERRUPTED
    assert said in found.stdout
    assert "1 error" in found.stdout
