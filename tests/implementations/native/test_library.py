"""What a manifest claims and does not claim; what a Bound of a C library offers besides its VJP."""

import json

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main
from gradcheck.errors import ManifestError, Unsupported
from gradcheck.judge.contract_check import judge_contract
from gradcheck.judge.operator import CaseTruth, certified, judge_case
from gradcheck.results.verdict import Verdict
from gradcheck.run import plan as plan_module
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan
from gradcheck.spec import Sample
from gradcheck.spec.suite import Case

PARAMETERS = "double *dx, double *dy, const double *dz, const double *x, const double *y, int n"
F32 = "float *dx, float *dy, const float *dz, const float *x, const float *y, int n"
RIGHT = {"x": ("pass", ""), "y": ("pass", "")}


@pytest.fixture
def case(suite):
    """`case(op, dialect=, sample=)`: the one case of these names."""

    def one(op="mul", dialect="same-shape", sample="typical"):
        (found,) = suite.cases([op], [dialect] if dialect else [], [sample])
        return found

    return one


def arguments(case, dtype="float64"):
    """A cotangent, and the primals, in `dtype`."""
    truth = CaseTruth(case)
    (ct,) = truth.cotangents.typed(dtype)[1]
    return ct, [p.astype(dtype) for p in truth.primals]


# ── what is claimed ──────────────────────────────────────────────────────────────────────────


def test_an_operator_that_the_manifest_does_not_name(native, entry, case):
    assert native(entry("mul")).bind(case("sqr", ""), "float64") is None


def test_models_and_rules_are_not_bound(native, entry, suite):
    one = native(entry("mul"))
    assert one.bind_model(suite.model_cases(["gpt2"])[0], "float64") is None
    assert one.bind_rule(suite.rule_cases(["sgd"])[0], "float64") is None


def test_a_dtype_that_it_lacks(native, entry, case):
    with pytest.raises(Unsupported, match="kernels has it in float64, not in float32"):
        native(entry("mul")).bind(case(), "float32")


def test_a_symbol_per_dtype(native, mul, entry):
    op = entry("mul").replace(
        f'"void mul({PARAMETERS})"',
        f'{{ float64 = "void mul({PARAMETERS})", float32 = "void mul_f32({F32})" }}',
    )
    one = native(op)
    assert mul(one, "float64") == mul(one, "float32") == RIGHT


def test_the_dialect_s_own_entry_comes_first(native, mul, entry):
    ops = entry("mul_swapped", op="mul")
    assert mul(native(ops + entry("mul"))) == RIGHT
    assert {v for v, _ in mul(native(ops)).values()} == {"fail"}


@pytest.mark.parametrize(
    ("requires", "words"),
    [
        ('["ndim(x) == 3"]', "its code requires ndim(x) == 3"),
        ('["ndim(x) == 2", "n % 2 == 0"]', "its code requires n % 2 == 0"),
        (
            '["n > 100", "ndim(x) == 3"]',
            "its code requires ndim(x) == 3",
        ),  # without parameters first
    ],
)
def test_a_condition_that_is_not_met(native, mul, entry, requires, words):
    assert mul(native(entry("mul", more=f"requires = {requires}")))["vjp"] == ("unsupported", words)


def test_a_condition_that_is_met(native, mul, entry):
    assert mul(native(entry("mul", more='requires = ["ndim(x) == 2", "n == 15"]'))) == RIGHT


def test_a_condition_that_cannot_be_evaluated(native, mul, entry):
    verdict, reason = mul(native(entry("mul", more='requires = ["dim(x, 7) > 0"]')))["vjp"]
    assert verdict == "error"
    assert "`dim(x, 7) > 0` of `requires` cannot be evaluated" in reason


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("most", "verdict"), [(15, "pass"), (14, "unsupported")])
def test_the_largest_tensor(native, mul, entry, most, verdict):
    one = native(entry("mul"), f"[capabilities]\nmax_elements = {most}")
    assert next(iter(mul(one).values()))[0] == verdict


@pytest.mark.parametrize(
    ("more", "sample", "words"),
    [
        ("", "typical", ""),
        ("", "cap-2.5", "its code has cap=30.0; this case wants 2.5"),
        ("attrs = { cap = 2.5 }", "cap-2.5", ""),
        ("attrs = { cap = 2.5 }", "typical", "its code has cap=2.5; this case wants 30.0"),
    ],
)
def test_an_attribute_that_the_code_has_fixed(native, entry, case, more, sample, words):
    parameters = "double *dx, const double *dy, const double *y, int n"
    bound = {"op": "softcap", "dy": "cotangent", "y": "out", "more": more}
    one = native(entry("from_output", parameters, **bound))
    if words:
        with pytest.raises(Unsupported) as found:
            one.bind(case("softcap", "", sample), "float64")
        assert str(found.value) == words
    else:
        assert one.bind(case("softcap", "", sample), "float64") is not None


# ── what is wrong before a call ──────────────────────────────────────────────────────────────


def test_nonsense_is_found_before_a_call(native, mul, entry, suite):
    one = native(entry("mul_past", n="size(x) / 7"))
    problems = one.smoke(suite.cases(["mul", "sqr"]), ["float64", "float32"])
    assert problems
    assert all("`size(x) / 7` of parameter `n` yields" in text for text in problems)
    assert "(in mul/same-shape/typical/float64)" in problems[0]
    verdict, reason = mul(one)["vjp"]
    assert verdict == "error"
    assert reason in problems[0]


def test_a_saved_value_that_does_not_fit_is_found_before_a_call(native, entry, suite):
    parameters = (
        "double *dx, double *dy, const double *dz, const double *keep, const double *y, int n"
    )
    saved = 'residuals = "reference"\nsaved = { keep = "sum(x)" }'
    one = native(entry("from_saved", parameters, keep="saved:keep[n]", more=saved))
    (problem,) = one.smoke(suite.cases(["mul"], ["same-shape"], ["typical"]), ["float64"])
    assert "`keep` has 15 elements, but keep has 1 element" in problem


def test_what_is_right_or_unsupported_is_no_problem(native, entry, suite):
    one = native(entry("mul", more='requires = ["ndim(x) == 2"]'))
    assert one.smoke(suite.cases(["mul"]), ["float64", "float32"]) == []


def test_a_buffer_that_is_too_large_is_not_made(native, mul, entry):
    far = {"is": "in:x", "shape": ["n"], "strides": ["10 ** 8"]}
    verdict, reason = mul(native(entry("mul", x=far)))["vjp"]
    assert verdict == "error"
    assert "`x` would have 11,200,000,008 bytes; 4,294,967,296 are enough" in reason


def test_a_case_at_fault_is_not_the_manifest_s(native, entry, suite):
    def drawn(draw):
        raise ValueError("a sample at fault")

    (case,) = suite.cases(["mul"], ["same-shape"], ["typical"])
    broken = Sample(name="broken", primals=drawn, hunts="nothing")
    at_fault = Case(case.spec, case.dialect, broken, 0, case.suite)
    assert native(entry("mul")).smoke([at_fault, case], ["float64"]) == []


def test_what_is_not_claimed_is_refused_at_each_call(native, entry, case):
    op = entry("mul", more='requires = ["n == 15"]')
    bound = native(op).bind(case(), "float64")
    with pytest.raises(Unsupported, match="its code requires n == 15"):
        bound.vjp(*(np.ones((2, 2)) for _ in range(3)))


def test_a_run_does_not_begin_with_nonsense(native, entry, suite, monkeypatch):
    one = native(entry("mul_past", n="size(x) / 7"))
    monkeypatch.setattr(plan_module, "load", lambda *args, **more: one)
    monkeypatch.setattr(one, "_start", lambda: pytest.fail("a process is started"))
    plan = Plan(
        suite=suite,
        cases=suite.cases(["mul"], ["same-shape"]),
        implementations=[one.name],
        dtypes=["float64"],
        seed=0,
    )
    with pytest.raises(ManifestError, match="of parameter `n` yields"):
        execute(plan)


def test_a_run_ends_the_process(native, entry, suite, monkeypatch):
    one = native(entry("mul"))
    monkeypatch.setattr(plan_module, "load", lambda *args, **more: one)
    plan = Plan(
        suite=suite,
        cases=suite.cases(["mul"], ["same-shape"], ["typical"]),
        implementations=[one.name],
        dtypes=["float64"],
        seed=0,
        contract=False,
    )
    found = execute(plan)
    assert {r.finding.verdict for r in found.results} == {Verdict.PASS}
    assert one._worker is None


# ── into memory of the caller's ──────────────────────────────────────────────────────────────


def test_into_overwrites(native, entry, case):
    bound = native(entry("mul")).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    outs = {"x": np.full_like(x, 7), "y": np.full_like(y, np.nan)}
    bound.into.call(outs, ct, x, y)
    assert np.array_equal(outs["x"], ct * y)
    assert np.array_equal(outs["y"], ct * x)
    assert not bound.into.accumulates
    assert not bound.into.aliases


def test_into_accumulates(native, entry, case):
    op = entry("mul_adds", more='accumulates = ["dx"]')
    bound = native(op).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    outs = {"x": np.full_like(x, 7), "y": np.full_like(y, 7)}
    bound.into.call(outs, ct, x, y)
    assert np.array_equal(outs["x"], 7 + ct * y)
    assert np.array_equal(outs["y"], ct * x)
    assert bound.into.accumulates == {"x"}


def test_into_of_an_overwriter_that_says_it_accumulates(native, entry, case):
    bound = native(entry("mul", more='accumulates = ["dx"]')).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    outs = {"x": np.full_like(x, 7), "y": np.full_like(y, 7)}
    bound.into.call(outs, ct, x, y)
    assert np.array_equal(outs["x"], ct * y)  # what was there is lost, and can be seen to be


def test_into_scales_what_it_adds_to(native, entry, case):
    op = entry("mul_scaled", more='loss_scale = "8"')
    bound = native(op).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    outs = {"x": np.full_like(x, 7), "y": np.full_like(y, 7)}
    bound.into.call(outs, ct, x, y)
    assert np.array_equal(outs["x"], ct * y)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("shared", ["ct", "x"])
def test_a_gradient_in_the_memory_of_an_argument(native, entry, case, shared):
    pair = ["dx", "dz"] if shared == "ct" else ["dy", "x"]
    op = entry("mul", more=f"aliases = [{pair}]".replace("'", '"'))
    bound = native(op).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    ct, x = ct.copy(), x.copy()
    right = {"x": ct * y, "y": ct * x}
    name, argument = ("x", ct) if shared == "ct" else ("y", x)
    assert bound.into.aliases == ((name, shared),)
    other = {"x": "y", "y": "x"}[name]
    outs = {name: argument, other: np.empty_like(x)}
    bound.into.call(outs, ct, x, y)
    # One call of mul reads dz[i] before it writes dx[i]; x[i] it reads after dx[i] alone.
    assert np.array_equal(outs[name], right[name])
    assert np.array_equal(outs[other], right[other])


def test_sharing_memory_that_is_laid_out_otherwise(native, entry, case):
    padded = {"is": "grad:x", "at": "1", "size": "n + 1"}
    bound = native(entry("mul", dx=padded)).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    ct = ct.copy()
    with pytest.raises(Exception, match="declared to be the same memory, but their layouts differ"):
        bound.into.call({"x": ct, "y": np.empty_like(y)}, ct, x, y)


def test_what_cannot_be_asked_into_memory(native, entry, case, suite):
    parameters = (
        "double *dx, double *dx2, double *dy, const double *dz, const double *x, const double *y, "
        "int n"
    )
    several = native(entry("mul_two", parameters, dx2="grad:x")).bind(case(), "float64")
    assert several.into is None


# ── only some gradients ──────────────────────────────────────────────────────────────────────


def test_only_nullable_gradients_can_be_left_out(native, entry, case):
    assert native(entry("mul")).bind(case(), "float64").asked is None


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True), (False, False)])
def test_some_of_the_gradients(native, entry, case, needs):
    op = entry("mul_nullable", dx="grad:x?", dy="grad:y?")
    bound = native(op).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    found = bound.asked(needs, ct, x, y)
    for needed, gradient, right in zip(needs, found, (ct * y, ct * x), strict=True):
        assert np.array_equal(gradient, right) if needed else gradient is None


def test_a_pointer_that_must_not_be_null(native, entry, case):
    bound = native(entry("mul", dx="grad:x?")).bind(case(), "float64")
    ct, (x, y) = arguments(case())
    with pytest.raises(Exception, match="SIGSEGV in mul: a null pointer"):
        bound.asked((False, True), ct, x, y)


# ── a wider bound ────────────────────────────────────────────────────────────────────────────


def near(native, entry, ulp):
    slack = f'slack = {{ float32 = {{ ulp = {ulp}, because = "a table of f16" }} }}'
    return native(entry("mul_near", F32, more=slack if ulp else ""))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("ulp", "verdict"), [(0, "fail"), (8, "fail"), (40000, "pass")])
def test_slack_widens_the_bound(native, mul, entry, ulp, verdict):
    found = mul(near(native, entry, ulp), "float32")
    assert found["x"][0] == verdict
    assert found["y"] == ("pass", "")  # it needs none, and says nothing
    if ulp:
        assert found["x"][1].endswith(f"by a bound {ulp} ulp wider: a table of f16")


def test_the_certificate_is_of_the_wider_bound(native, entry, case):
    truth = CaseTruth(case())
    proofs = {}
    for ulp in (40000, 10**7):
        found = judge_case(truth, near(native, entry, ulp), "float32")
        proofs[ulp] = {f.name: f.certificate for f in certified(truth, found, "float32")}
    assert "zeros" in proofs[40000]["x"].rejected
    assert "zeros" in proofs[10**7]["x"].blind
    assert "zeros" in proofs[10**7]["y"].rejected


def test_slack_holds_for_forward_too(native, mul, entry):
    forward = (
        'forward = "void mul_forward_near(float *z, const float *x, const float *y, int n)"\n'
        'forward_bind = { z = "out", x = "in:x", y = "in:y", n = "size(x)" }\n'
    )
    slack = 'slack = { float32 = { ulp = 40000, because = "a table of f16" } }'
    assert mul(native(entry("mul_f32", F32, more=forward)), "float32")["forward"][0] == "fail"
    found = mul(native(entry("mul_f32", F32, more=forward + slack)), "float32")
    assert found["forward"] == ("pass", "by a bound 40000 ulp wider: a table of f16")
    assert found["x"] == ("pass", "")


# ── the contract ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("symbol", "more", "breaks"),
    [
        ("mul", "", set()),
        ("mul_adds", 'accumulates = ["dx"]', set()),
        ("mul", 'accumulates = ["dx"]', {"accumulates"}),
        ("mul", 'aliases = [["dx", "dz"]]', set()),
        ("mul_twice", 'aliases = [["dx", "dz"]]', {"aliases"}),
        ("mul_grows", "", set()),  # the ordinary judgement says so: nothing else is asked
    ],
)
def test_what_a_c_function_owes_beyond_its_numbers(native, entry, case, symbol, more, breaks):
    one = native(entry(symbol, more=more))
    found = judge_contract(CaseTruth(case()), one, "float64")
    assert {f.name for f in found if f.verdict.checked and f.verdict is not Verdict.PASS} == breaks
    assert bool(found) == (symbol != "mul_grows")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("symbol", "breaks"), [("from_output", 0), ("from_output_tails", 1)])
def test_other_sizes_of_a_c_function(native, entry, case, symbol, breaks):
    parameters = "double *dx, const double *dy, const double *y, int n"
    one = native(entry(symbol, parameters, op="tanh", dy="cotangent", y="out"))
    assert {f.verdict for f in judge_case(CaseTruth(case("tanh", "")), one, "float64")} == {
        Verdict.PASS
    }
    found = judge_contract(CaseTruth(case("tanh", "")), one, "float64")
    bad = [f.name for f in found if f.verdict.checked and f.verdict is not Verdict.PASS]
    assert bad == ["sizes"] * breaks


TANH = "double *dx, const double *dy, const double *y, int n"


@pytest.fixture
def manifest(kernels, tmp_path):
    """`manifest(*ops)`: the path of one, for `--impl`."""

    def written(*ops):
        path = tmp_path / "gradcheck.toml"
        head = f'schema = 1\n[impl]\nname = "kernels"\n[c]\nlibrary = "{kernels}"\ntimeout = 300\n'
        path.write_text(head + "".join(ops))
        return str(path)

    return written


@pytest.fixture
def results(tmp_path, capsys):
    """`results(*words)`: the exit code, and of every result its name, output, verdict, reason."""

    def found(*words):
        report = tmp_path / "run.json"
        code = main(["run", "--dtype", "float64", "--no-contract", "-o", str(report), *words])
        text = capsys.readouterr()
        told = json.loads(report.read_text())["results"] if code in (0, 1) else text.err
        report.unlink(missing_ok=True)
        if isinstance(told, str):
            return code, told
        return code, [(r["name"], r["output"], r["verdict"], r["reason"]) for r in told]

    return found


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("symbol", "code", "verdicts"),
    [
        ("mul", 0, {"pass"}),
        ("mul_swapped", 1, {"fail"}),
        ("mul_unwritten", 1, {"fail"}),
        ("mul_past", 1, {"crash"}),
    ],
)
def test_exit_codes(manifest, results, entry, symbol, code, verdicts):
    path = manifest(entry(symbol))
    got, told = results(
        "--impl", path, "--op", "mul", "--dialect", "same-shape", "--sample", "cube"
    )
    assert got == code
    assert {verdict for _, _, verdict, _ in told} == verdicts


def test_nonsense_ends_a_run_before_it_begins(manifest, results, entry):
    path = manifest(entry("mul", n="size(x) / 7"))
    code, said = results("--impl", path, "--op", "mul")
    assert code == 2
    assert "expression `size(x) / 7` of parameter `n` yields" in said


@pytest.mark.slow
def test_several_processes_say_the_same(manifest, results, entry):
    tanh = entry("from_output", TANH, op="tanh", dy="cotangent", y="out")
    path = manifest(entry("mul_past"), tanh)
    words = ("--impl", path, "--op", "mul", "--op", "tanh")
    (code, alone), (again, shared) = results(*words), results(*words, "-j", "2")
    assert code == again == 1
    assert [r[:3] for r in alone] == [r[:3] for r in shared]
    assert {r[2] for r in alone} == {"crash", "pass", "unbound"}


SIZES = "double *dx, const double *dy, const double *y, int rows, int cols"
RIGHT_SIZES = {"rows": "rows(x)", "cols": "dim(x, -1)"}
SWAPPED = {"rows": "dim(x, -1)", "cols": "rows(x)"}


@pytest.fixture
def softmax(native, entry):
    """`softmax(symbol, rows=, cols=)`: what is said of the manifest that binds it so."""

    def said(symbol, c="", samples=(), **bind):
        roles = {"dx": "grad:x", "dy": "cotangent", "y": "out"}
        text = entry(symbol, SIZES, op="softmax", **roles, **bind)
        cases = SUITE.cases(["softmax"], [], list(samples))
        made = native(text, c)
        assert made.smoke(cases, ["float64"]) == []
        return made.exchanged(cases, ["float64", "float32"])

    return said


def test_exchanged_sizes_are_named_with_what_to_write(softmax):
    (said,) = softmax("softmax_rows", **SWAPPED)
    assert said.startswith("gradcheck.toml, op 1 (softmax): bind: `rows` and `cols` are exchanged")
    assert said.endswith('with rows = "rows(x)" and cols = "dim(x, -1)" they are right')
    assert "softmax/default/typical" in said


def test_a_right_manifest_is_left_alone(softmax):
    assert softmax("softmax_rows", **RIGHT_SIZES) == []


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("bind", [RIGHT_SIZES, SWAPPED])
def test_code_that_is_wrong_either_way_is_left_to_the_judge(softmax, bind):
    assert softmax("softmax_wrong", **bind) == []


def test_sizes_that_are_given_alike_are_not_exchanged(softmax):
    assert softmax("softmax_wrong", rows="rows(x)", cols="rows(x)") == []


def test_where_rows_and_columns_are_as_many_nothing_can_be_told(softmax):
    assert softmax("softmax_rows", samples=["square"], **SWAPPED) == []


@pytest.mark.slow
def test_code_that_hangs_is_asked_once(softmax):
    assert softmax("softmax_hangs", "timeout = 0.5", **SWAPPED) == []


def test_a_run_ends_before_it_begins(kernels, entry, tmp_path, capsys):
    roles = {"dx": "grad:x", "dy": "cotangent", "y": "out"}
    path = tmp_path / "gradcheck.toml"
    head = f'schema = 1\n[impl]\nname = "kernels"\n[c]\nlibrary = "{kernels}"\n'
    path.write_text(head + entry("softmax_rows", SIZES, op="softmax", **roles, **SWAPPED))
    assert main(["run", "--impl", str(path), "--op", "softmax", "--dtype", "float64"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert "are exchanged, it seems" in line
