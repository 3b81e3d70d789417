"""A C library kills, hangs and prints: the run goes on, and says what happened."""

import pytest

from gradcheck.implementations.returned import Broken
from gradcheck.results.verdict import Verdict

RIGHT = {"x": ("pass", ""), "y": ("pass", "")}
PARAMETERS = "double *dx, double *dy, const double *dz, const double *x, const double *y, int n"


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
def test_a_write_past_the_end(native, mul, entry, guard, align, verdict, words):
    one = native(entry("mul_past"), f'guard = "{guard}"\nalign = {align}')
    ((name, (found, reason)),) = mul(one).items()
    assert (name, found) == ("vjp", verdict)
    assert reason.startswith(words)
    assert "dx" in reason


def test_an_input_is_written_to(native, mul, entry):
    parameters = "double *dx, double *dy, const double *dz, double *x, const double *y, int n"
    ((name, (verdict, reason)),) = mul(native(entry("mul_clobbers", parameters))).items()
    assert (name, verdict) == ("vjp", "crash")
    assert "it wrote into its input x" in reason


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "verdict", "words"),
    [
        ("mul_handles_past", "crash", "SIGSEGV in mul_handles_past: it wrote up to 8 bytes past "
         "the end of dx"),
        ("mul_opens", "error", "mul_opens wrote into x, which it was given to read"),
        ("mul_rounds", "error", "mul_rounds leaves another rounding mode; restore what it was "
         "before"),
    ],
)  # fmt: skip
def test_what_gets_around_the_pages_or_is_left_behind(native, mul, entry, symbol, verdict, words):
    parameters = PARAMETERS.replace("const double *x", "double *x")
    one = native(entry(symbol, parameters if symbol == "mul_opens" else PARAMETERS))
    for _ in range(2):  # in the next process, too
        assert mul(one)["vjp"] == (verdict, words)


def test_a_library_may_handle_faults_of_its_own(native, mul, entry):
    one = native(entry("mul_handles_its_own"))
    for sample in ("typical", "single"):
        assert mul(one, sample=sample) == RIGHT


@pytest.mark.slow
def test_after_a_crash_the_next_case_is_judged(native, judged, entry):
    parameters = "double *dx, const double *dy, const double *y, int n"
    tanh = entry("from_output", parameters, op="tanh", dy="cotangent", y="out")
    one = native(entry("mul_past") + tanh)
    for _ in range(2):
        assert judged(one, "mul", "same-shape")["vjp"].verdict is Verdict.CRASH
        assert judged(one, "tanh")["x"].verdict is Verdict.PASS


@pytest.mark.slow
def test_too_many_crashes(native, mul, entry):
    one = native(entry("mul_past"))
    found = [mul(one)["vjp"] for _ in range(11)]
    assert [verdict for verdict, _ in found] == ["crash"] * 10 + ["notrun"]
    assert found[-1][1] == "not run after 10 crashes of mul"


def test_too_many_hangs(native, mul, entry):
    one = native(entry("mul_hangs"), "timeout = 0.2")
    found = [mul(one)["vjp"] for _ in range(4)]
    assert [verdict for verdict, _ in found] == ["timeout"] * 3 + ["notrun"]
    assert found[0][1].startswith("mul_hangs did not")
    assert found[0][1].endswith("within 0.2 s")
    assert found[-1][1] == "not run after 3 hangs of mul"


def test_another_operator_is_run_all_the_same(native, mul, entry, judged):
    parameters = "double *dx, const double *dy, const double *y, int n"
    tanh = entry("from_output", parameters, op="tanh", dy="cotangent", y="out")
    one = native(entry("mul_hangs") + tanh, "timeout = 0.2")
    for _ in range(4):
        mul(one)
    one._worker._timeout = 300.0
    assert judged(one, "tanh")["x"].verdict.value == "pass"


def test_a_status(native, mul, entry):
    op = entry("mul_status", returns="int", **{"return": "status"})
    assert mul(native(op)) == RIGHT
    assert mul(native(op), sample="single")["vjp"] == (
        "error",
        "mul_status returned -5; 0 is success",
    )
    assert mul(native(entry("mul_status", returns="int")), sample="single") == RIGHT


def test_it_is_not_deterministic(native, mul, entry):
    verdict, reason = mul(native(entry("mul_grows")))["vjp"]
    assert verdict == "error"
    assert reason.startswith("mul_grows is not deterministic")


def test_what_it_prints_is_heard_once(native, judged, entry):
    one = native(entry("mul_prints"))
    found = judged(one, "mul", "same-shape")
    assert {f.verdict for f in found.values()} == {Verdict.PASS}
    assert found["x"].printed.startswith("mul of 15\n")
    assert found["y"].printed == ""
    assert one.printed() == ""


def test_what_one_case_printed_is_not_the_next_one_s(native, judged, entry, suite):
    parameters = "double *dx, const double *dy, const double *y, int n"
    tanh = entry("from_output", parameters, op="tanh", dy="cotangent", y="out")
    one = native(entry("mul_prints") + tanh)
    (case,) = suite.cases(["mul"], ["same-shape"], ["typical"])
    one.bind(case, "float64").vjp(*(p for p in (case.primals[0], *case.primals)))  # by nobody heard
    assert judged(one, "tanh")["x"].printed == ""


def test_what_it_prints_stands_at_what_is_wrong(native, judged, entry):
    found = judged(native(entry("mul_prints_wrong")), "mul", "same-shape")
    assert {f.verdict for f in found.values()} == {Verdict.FAIL}
    assert all(f.printed.startswith("swapping\n") for f in found.values())


def test_a_crash_keeps_what_was_printed(native, judged, entry):
    parameters = PARAMETERS.replace("int n", "int n, void *stream")
    op = entry("mul_prints_and_dies", parameters, stream="null")
    found = judged(native(op), "mul", "same-shape")
    assert found["vjp"].verdict is Verdict.CRASH
    assert "last words" in found["vjp"].printed


def test_a_function_that_is_not_there(native, mul, entry):
    verdict, reason = mul(native(entry("mul_nowhere")))["vjp"]
    assert verdict == "error"
    assert "has no function 'mul_nowhere'" in reason


def test_closing_twice_and_going_on(native, mul, entry):
    one = native(entry("mul"))
    assert mul(one) == RIGHT
    one.close()
    one.close()
    assert mul(one) == RIGHT


@pytest.mark.slow
def test_the_budget_is_asked_before_anything_is_called(native, mul, entry, suite):
    one = native(entry("mul_past"))
    for _ in range(10):
        mul(one)
    one.close()
    (case,) = suite.cases(["mul"], ["same-shape"], ["typical"])
    with pytest.raises(Broken, match="not run after 10 crashes"):
        one.bind(case, "float64")
