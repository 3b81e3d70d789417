"""A C library that crashes, hangs or prints: the run goes on, and reports what happened."""

import pytest

from gradcheck.implementations.returned import Broken
from tests.implementations.native.kernels import entry

RIGHT = {"x": ("pass", ""), "y": ("pass", "")}
WRITABLE = {"const double *x": "double *x"}
TANH = entry("from_output")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("guard", "align", "verdict", "words"),
    [
        ("end", 1, "crash", "SIGSEGV in mul_past: it wrote up to 8 bytes past the end of dx"),
        ("start", 1, "fail", "mul_past wrote"),
        ("end", 64, "fail", "mul_past wrote"),
        ("off", 1, "fail", "mul_past wrote"),
    ],
)
def test_a_write_past_the_end(native, mul, guard, align, verdict, words):
    one = native(entry("mul_past"), c=f'guard = "{guard}"\nalign = {align}')
    ((name, (found, reason)),) = mul(one).items()
    assert (name, found) == ("vjp", verdict)
    assert reason.startswith(words)
    assert "dx" in reason


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        (entry("mul_clobbers"), "crash", "it wrote into its input x"),
        (
            entry("mul_handles_past"),
            "crash",
            "SIGSEGV in mul_handles_past: it wrote up to 8 bytes past the end of dx",
        ),
        (entry("mul_opens"), "error", "mul_opens wrote into x, which it was given to read"),
        (
            entry("mul_rounds"),
            "error",
            "mul_rounds leaves another rounding mode; restore what it was before",
        ),
        (entry("mul_grows"), "error", "mul_grows is not deterministic"),
        (entry("mul", {"mul(": "mul_nowhere("}), "error", "has no function 'mul_nowhere'"),
    ],
)
def test_what_it_breaks_or_leaves_behind(native, mul, text, verdict, words):
    one = native(text)
    for _ in range(2):  # in the next process, too
        found = mul(one)
        assert [*found] == ["vjp"]
        assert found["vjp"][0] == verdict
        assert words in found["vjp"][1]


def test_a_library_may_handle_faults_of_its_own(native, mul):
    one = native(entry("mul_handles_its_own"))
    for sample in ("typical", "single"):
        assert mul(one, sample=sample) == RIGHT


@pytest.mark.slow
def test_crashes_are_counted_by_operator(native, mul, judged, case):
    one = native(entry("mul_past"), TANH)
    for _ in range(10):
        assert mul(one)["vjp"][0] == "crash"
    assert mul(one)["vjp"] == ("notrun", "not run after 10 crashes of mul/same-shape")
    assert judged(one, "tanh", "")["x"].verdict.value == "pass"
    one.close()
    with pytest.raises(Broken, match="not run after 10 crashes"):
        one.bind(case(), "float64")  # before anything is called


def test_hangs_are_counted_by_operator(native, mul, judged):
    one = native(entry("mul_hangs"), TANH, c="timeout = 0.2")
    found = [mul(one)["vjp"] for _ in range(4)]
    assert [verdict for verdict, _ in found] == ["timeout"] * 3 + ["notrun"]
    assert found[0][1].startswith("mul_hangs did not")
    assert found[0][1].endswith("within 0.2 s")
    assert found[-1][1] == "not run after 3 hangs of mul/same-shape"
    one._worker._timeout = 300.0
    assert judged(one, "tanh", "")["x"].verdict.value == "pass"


def test_a_status(native, mul):
    one = native(entry("mul_status", **{"return": "status"}))
    assert mul(one) == RIGHT
    assert mul(one, sample="single")["vjp"] == ("error", "mul_status returned -5; 0 is success")
    assert mul(native(entry("mul_status")), sample="single") == RIGHT


def test_what_it_prints_is_reported_once(native, judged, case):
    one = native(entry("mul_prints"), TANH)
    found = judged(one)
    assert {f.verdict.value for f in found.values()} == {"pass"}
    assert found["x"].printed.startswith("mul of 15\n")
    assert found["y"].printed == ""
    assert one.printed() == ""
    (x, y) = case().primals
    one.bind(case(), "float64").vjp(x, x, y)  # nobody asks what it printed
    assert judged(one, "tanh", "")["x"].printed == ""


def test_what_it_prints_before_a_failure_or_its_end_is_kept(native, judged):
    found = judged(native(entry("mul_prints_wrong")))
    assert {f.verdict.value for f in found.values()} == {"fail"}
    assert all(f.printed.startswith("swapping\n") for f in found.values())
    found = judged(native(entry("mul_prints_and_dies", stream="null")))
    assert found["vjp"].verdict.value == "crash"
    assert "last words" in found["vjp"].printed


def test_closing_twice_and_going_on(native, mul):
    one = native(entry("mul"))
    assert mul(one) == RIGHT
    one.close()
    one.close()
    assert mul(one) == RIGHT
