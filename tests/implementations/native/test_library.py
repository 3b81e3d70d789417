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
from tests.implementations.native.kernels import PROTOTYPES, entry

RIGHT = {"x": ("pass", ""), "y": ("pass", "")}
NONSENSE = "expression `size(x) / 7` of parameter `n` yields"


# ── what is claimed ──────────────────────────────────────────────────────────────────────────


def test_what_the_manifest_does_not_name_is_not_bound(native, case, suite):
    one = native(entry("mul"))
    assert one.bind(case("sqr", ""), "float64") is None
    assert one.bind_model(suite.model_cases(["gpt2"])[0], "float64") is None
    assert one.bind_rule(suite.rule_cases(["sgd"])[0], "float64") is None
    with pytest.raises(Unsupported, match="kernels has it in float64, not in float32"):
        one.bind(case(), "float32")


def test_a_symbol_per_dtype(native, mul):
    texts = [PROTOTYPES[symbol] for symbol in ("mul", "mul_f32")]
    both = f'{{ float64 = "{texts[0]}", float32 = "{texts[1]}" }}'
    one = native(entry("mul").replace(f'"{texts[0]}"', both))
    assert mul(one) == mul(one, dtype="float32") == RIGHT


def test_the_dialect_s_own_entry_comes_first(native, mul):
    ops = entry("mul_swapped", op="mul")
    assert mul(native(ops, entry("mul"))) == RIGHT
    assert {v for v, _ in mul(native(ops)).values()} == {"fail"}


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize(
    ("requires", "verdict", "words"),
    [
        ('["ndim(x) == 3"]', "unsupported", "its code requires ndim(x) == 3"),
        ('["ndim(x) == 2", "n % 2 == 0"]', "unsupported", "its code requires n % 2 == 0"),
        # those without parameters first
        ('["n > 100", "ndim(x) == 3"]', "unsupported", "its code requires ndim(x) == 3"),
        ('["dim(x, 7) > 0"]', "error", "`dim(x, 7) > 0` of `requires` cannot be evaluated"),
        ('["ndim(x) == 2", "n == 15"]\n[capabilities]\nmax_elements = 15', "pass", ""),
        ('["n == 15"]\n[capabilities]\nmax_elements = 14', "unsupported", "15 elements"),
    ],
)
def test_a_condition(native, judged, requires, verdict, words):
    requires, *capabilities = requires.partition("[cap")
    more = f"requires = {requires}{''.join(capabilities)}"
    finding = next(iter(judged(native(entry("mul", more=more))).values()))
    assert finding.verdict.value == verdict
    assert words in finding.reason


@pytest.mark.parametrize(
    ("more", "sample", "words"),
    [
        ("", "typical", ""),
        ("", "cap-2.5", "its code has cap=30.0; this case wants 2.5"),
        ("attrs = { cap = 2.5 }", "cap-2.5", ""),
        ("attrs = { cap = 2.5 }", "typical", "its code has cap=2.5; this case wants 30.0"),
    ],
)
def test_an_attribute_that_the_code_has_fixed(native, case, more, sample, words):
    one = native(entry("from_output", op="softcap", dy="cotangent", y="out", more=more))
    try:
        said = "" if one.bind(case("softcap", "", sample), "float64") else "nothing"
    except Unsupported as error:
        said = str(error)
    assert said == words


# ── what is wrong before a call ──────────────────────────────────────────────────────────────


def test_nonsense_is_found_before_a_call(native, mul, suite):
    one = native(entry("mul_past", n="size(x) / 7"))
    problems = one.smoke(suite.cases(["mul", "sqr"]), ["float64", "float32"])
    assert problems
    assert all(NONSENSE in text for text in problems)
    assert "(in mul/same-shape/typical/float64)" in problems[0]
    verdict, reason = mul(one)["vjp"]
    assert verdict == "error"
    assert reason in problems[0]


def test_a_saved_value_that_does_not_fit_is_found_before_a_call(native, suite):
    saved = 'residuals = "reference"\nsaved = { keep = "sum(x)" }'
    one = native(entry("from_saved", more=saved))
    (problem,) = one.smoke(suite.cases(["mul"], ["same-shape"], ["typical"]), ["float64"])
    assert "`keep` has 15 elements, but keep has 1 element" in problem


def test_what_is_right_unsupported_or_a_case_s_fault_is_no_problem(native, suite, case):
    def drawn(draw):
        raise ValueError("a sample at fault")

    one = native(entry("mul", more='requires = ["ndim(x) == 2"]'))
    assert one.smoke(suite.cases(["mul"]), ["float64", "float32"]) == []
    broken = Sample(name="broken", primals=drawn, hunts="nothing")
    at_fault = Case(case().spec, case().dialect, broken, 0, case().suite)
    assert native(entry("mul")).smoke([at_fault, case()], ["float64"]) == []


def test_a_buffer_that_is_too_large_is_not_made(native, mul):
    far = {"is": "in:x", "shape": ["n"], "strides": ["10 ** 8"]}
    verdict, reason = mul(native(entry("mul", x=far)))["vjp"]
    assert verdict == "error"
    assert "`x` would have 11,200,000,008 bytes; 4,294,967,296 are enough" in reason


def test_what_is_not_claimed_is_refused_at_each_call(native, case):
    bound = native(entry("mul", more='requires = ["n == 15"]')).bind(case(), "float64")
    with pytest.raises(Unsupported, match="its code requires n == 15"):
        bound.vjp(*(np.ones((2, 2)) for _ in range(3)))


def planned(one, monkeypatch):
    monkeypatch.setattr(plan_module, "load", lambda *args, **more: one)
    return Plan(
        suite=SUITE,
        cases=SUITE.cases(["mul"], ["same-shape"], ["typical"]),
        implementations=[one.name],
        dtypes=["float64"],
        seed=0,
        contract=False,
    )


def test_a_run_does_not_begin_with_nonsense(native, monkeypatch):
    one = native(entry("mul_past", n="size(x) / 7"))
    monkeypatch.setattr(one, "_start", lambda **_: pytest.fail("a process is started"))
    with pytest.raises(ManifestError, match="of parameter `n` yields"):
        execute(planned(one, monkeypatch))


def test_a_run_ends_the_process(native, monkeypatch):
    one = native(entry("mul"))
    found = execute(planned(one, monkeypatch))
    assert {r.finding.verdict for r in found.results} == {Verdict.PASS}
    assert one._worker is None


# ── into memory of the caller's ──────────────────────────────────────────────────────────────


@pytest.fixture
def bound(native, case):
    """`bound(text)`: the Bound of mul, its case's cotangent, and its primals."""

    def one(text):
        truth = CaseTruth(case())
        (ct,) = truth.cotangents.typed("float64")[1]
        return native(text).bind(case(), "float64"), ct.copy(), *map(np.copy, truth.primals)

    return one


@pytest.mark.parametrize(
    ("text", "accumulates", "kept"),
    [
        (entry("mul"), set(), 0),
        (entry("mul_adds", more='accumulates = ["dx"]'), {"x"}, 7),
        # An overwriter that says it accumulates: what was there is lost, and can be seen to be.
        (entry("mul", more='accumulates = ["dx"]'), {"x"}, 0),
        (entry("mul_scaled", more='loss_scale = "8"'), set(), 0),
    ],
)
def test_into(bound, text, accumulates, kept):
    one, ct, x, y = bound(text)
    outs = {"x": np.full_like(x, 7), "y": np.full_like(y, np.nan)}
    one.into.call(outs, ct, x, y)
    assert np.array_equal(outs["x"], kept + ct * y)
    assert np.array_equal(outs["y"], ct * x)
    assert one.into.accumulates == accumulates
    assert not one.into.aliases


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("pair", "name", "argument"), [(["dx", "dz"], "x", "ct"), (["dy", "x"], "y", "x")]
)
def test_a_gradient_in_the_memory_of_an_argument(bound, pair, name, argument):
    one, ct, x, y = bound(entry("mul", more=f"aliases = [{pair}]".replace("'", '"')))
    right = {"x": ct * y, "y": ct * x}
    assert one.into.aliases == ((name, argument),)
    (other,) = {"x", "y"} - {name}
    outs = {name: {"ct": ct, "x": x}[argument], other: np.empty_like(x)}
    one.into.call(outs, ct, x, y)
    # One call of mul reads dz[i] before it writes dx[i]; x[i] it reads after dx[i] alone.
    assert np.array_equal(outs[name], right[name])
    assert np.array_equal(outs[other], right[other])


def test_sharing_memory_that_is_laid_out_otherwise(bound):
    one, ct, x, y = bound(entry("mul", dx={"is": "grad:x", "at": "1", "size": "n + 1"}))
    with pytest.raises(Exception, match="declared to be the same memory, but their layouts differ"):
        one.into.call({"x": ct, "y": np.empty_like(y)}, ct, x, y)


def test_a_gradient_of_several_buffers_is_not_written_into_one(bound):
    assert bound(entry("mul_two", dx2="grad:x"))[0].into is None


# ── only some gradients ──────────────────────────────────────────────────────────────────────


def test_some_of_the_gradients(bound):
    assert bound(entry("mul"))[0].asked is None  # none may be null
    one, ct, x, y = bound(entry("mul_nullable", dx="grad:x?", dy="grad:y?"))
    for needs in ((True, False), (False, True), (True, True), (False, False)):
        found = one.asked(needs, ct, x, y)
        for needed, gradient, right in zip(needs, found, (ct * y, ct * x), strict=True):
            assert np.array_equal(gradient, right) if needed else gradient is None


def test_a_pointer_that_must_not_be_null(bound):
    one, ct, x, y = bound(entry("mul", dx="grad:x?"))
    with pytest.raises(Exception, match="SIGSEGV in mul: a null pointer"):
        one.asked((False, True), ct, x, y)


# ── a wider bound ────────────────────────────────────────────────────────────────────────────


def slack(ulp):
    return f'slack = {{ float32 = {{ ulp = {ulp}, because = "a table of f16" }} }}'


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("ulp", "verdict"), [(0, "fail"), (8, "fail"), (40000, "pass")])
def test_slack_widens_the_bound(native, mul, ulp, verdict):
    found = mul(native(entry("mul_near", more=slack(ulp) if ulp else "")), dtype="float32")
    assert found["x"][0] == verdict
    assert found["y"] == ("pass", "")  # it needs none, and says nothing
    if ulp:
        assert found["x"][1].endswith(f"by a tolerance {ulp} ulp wider: a table of f16")


def test_the_certificate_is_of_the_wider_bound(native, case):
    truth = CaseTruth(case())
    proofs = {}
    for ulp in (40000, 10**7):
        found = judge_case(truth, native(entry("mul_near", more=slack(ulp))), "float32")
        proofs[ulp] = {f.name: f.certificate for f in certified(truth, found, "float32")}
    assert "zeros" in proofs[40000]["x"].rejected
    assert "zeros" in proofs[10**7]["x"].blind
    assert "zeros" in proofs[10**7]["y"].rejected


def test_slack_holds_for_forward_too(native, mul):
    def found(more):
        return mul(native(entry("mul_f32", forward="mul_forward_near", more=more)), dtype="float32")

    assert found("")["forward"][0] == "fail"
    wider = found(slack(40000))
    assert wider["forward"] == ("pass", "by a tolerance 40000 ulp wider: a table of f16")
    assert wider["x"] == ("pass", "")


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
        ("mul_grows", "", None),  # the ordinary judgement says so: nothing else is asked
        ("from_output", "", set()),
        ("from_output_tails", "", {"sizes"}),
    ],
)
def test_what_a_c_function_owes_beyond_its_numbers(native, case, symbol, more, breaks):
    one, truth = native(entry(symbol, more=more)), CaseTruth(case())
    if symbol.startswith("from_output"):
        truth = CaseTruth(case("tanh", ""))
        assert {f.verdict for f in judge_case(truth, one, "float64")} == {Verdict.PASS}
    found = judge_contract(truth, one, "float64")
    if breaks is None:
        assert not found
    else:
        assert found
        bad = {f.name for f in found if f.verdict.checked and f.verdict is not Verdict.PASS}
        assert bad == breaks


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def results(manifest, tmp_path, capsys):
    """`results(*entries, words=)`: the exit code, and results or what a run says instead."""

    def found(*entries, words):
        report = tmp_path / "run.json"
        path = str(manifest(*entries, c="timeout = 300"))
        head = ["run", "--impl", path, "--dtype", "float64", "--no-contract", "-o", str(report)]
        code = main([*head, *words])
        said = capsys.readouterr()
        if code not in (0, 1):
            assert said.out == ""
            return code, said.err
        results = json.loads(report.read_text())["results"]
        return code, [(r["name"], r["output"], r["verdict"]) for r in results]

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
def test_exit_codes(results, symbol, code, verdicts):
    words = ["--op", "mul", "--dialect", "same-shape", "--sample", "cube"]
    got, told = results(entry(symbol), words=words)
    assert got == code
    assert {verdict for _, _, verdict in told} == verdicts


def test_a_run_that_does_not_begin(results):
    code, said = results(entry("mul", n="size(x) / 7"), words=["--op", "mul"])
    assert code == 2
    assert NONSENSE in said
    code, said = results(entry("softmax_rows", **SWAPPED), words=["--op", "softmax"])
    assert code == 2
    (line,) = said.splitlines()
    assert "are exchanged, it seems" in line


@pytest.mark.slow
def test_several_processes_say_the_same(results):
    entries = (entry("mul_past"), entry("from_output"))
    words = ("--op", "mul", "--op", "tanh", "--all")
    (code, alone), (again, shared) = (
        results(*entries, words=[*words, *jobs]) for jobs in ([], ["-j", "2"])
    )
    assert code == again == 1
    assert alone == shared
    assert {r[2] for r in alone} == {"crash", "pass", "unbound"}


SWAPPED = {"rows": "dim(x, -1)", "cols": "rows(x)"}


@pytest.fixture
def exchanged(native):
    """`exchanged(symbol, rows=, cols=)`: sizes of softmax that are taken to be exchanged."""

    def said(symbol, c="", samples=(), **bind):
        cases = SUITE.cases(["softmax"], [], list(samples))
        made = native(entry(symbol, **bind), c=c)
        assert made.smoke(cases, ["float64"]) == []
        return made.exchanged(cases, ["float64", "float32"])

    return said


def test_exchanged_sizes_are_named_with_what_to_write(exchanged):
    (said,) = exchanged("softmax_rows", **SWAPPED)
    assert said.startswith("gradcheck.toml, op 1 (softmax): bind: `rows` and `cols` are exchanged")
    assert said.endswith('with rows = "rows(x)" and cols = "dim(x, -1)" they are right')
    assert "softmax/default/typical" in said


@pytest.mark.slow(keep=2, rest=3)
@pytest.mark.parametrize(
    ("symbol", "more"),
    [
        ("softmax_rows", {}),
        ("softmax_wrong", {}),  # wrong either way: left to the judge
        ("softmax_wrong", SWAPPED),
        ("softmax_wrong", {"rows": "rows(x)", "cols": "rows(x)"}),  # given alike
        ("softmax_rows", {"samples": ["square"], **SWAPPED}),  # as many rows as columns
        ("softmax_hangs", {"c": "timeout = 0.5", **SWAPPED}),  # asked once
    ],
)
def test_sizes_that_are_not_exchanged_or_cannot_be_told(exchanged, symbol, more):
    assert exchanged(symbol, **more) == []
