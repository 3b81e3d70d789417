import signal
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import gradcheck_cases
import numpy as np
import pytest

import gradcheck.run.judge_case
from gradcheck import OpSpec, Sample, Suite, Unsupported, Verdict
from gradcheck.errors import LoadError, UnknownNameError
from gradcheck.results.finding import Part
from gradcheck.run.execute import execute
from gradcheck.run.judge_case import judge
from gradcheck.run.limits import TimeLimit
from gradcheck.run.plan import Plan
from tests.case_results import changed

BUILTIN = gradcheck_cases.SUITE


def relu(ct, x):
    return ct * (x > 0)


def tanh(ct, x):
    return ct * (1 - np.tanh(x) ** 2)


def raises(error):
    def vjp(ct, x):
        raise error

    return vjp


def recurses(ct, x):
    return recurses(ct, x)


def writes(ct, x):
    ct *= x > 0
    return ct


def locked(ct, x):
    out = relu(ct, x)
    out.flags.writeable = False
    return out[...]


def drifts(ct, x, calls=[]):  # noqa: B006  a state is the point
    calls.append(0)
    return relu(ct, x) + len(calls)


@pytest.fixture
def impl(monkeypatch):
    """Make a module `user` with the objects given; returns the word that names its IMPL."""

    def make(**tables):
        module = ModuleType("user")
        vars(module).update(tables)
        monkeypatch.setitem(sys.modules, "user", module)
        return "user:IMPL"

    return make


def plan(*words, suite=BUILTIN, ops=("relu", "tanh"), samples=("typical",), **changes):
    settings = {"implementations": words, "dtypes": ("float64",), "seed": 0, **changes}
    settings.setdefault("contract", False)  # it has tests of its own, below
    cases = suite.cases(ops, samples=samples, seed=settings["seed"])
    return Plan(suite=suite, cases=cases, **settings)


def of(run, op):
    return [r for r in run.results if r.case.op == op]


# ── what the code judged does ────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("vjp", "verdict", "output", "said"),
    [
        (lambda ct, x: -relu(ct, x), "fail", "x", "elements are outside the tolerance"),
        (lambda ct, x: ct[...], "fail", "x", "elements are outside the tolerance"),
        (lambda ct, x: relu(ct, x) * np.nan, "fail", "x", "63 of 63 elements are not finite"),
        (lambda ct, x: relu(ct, x) + np.inf, "fail", "x", "63 of 63 elements are not finite"),
        (lambda ct, x: relu(ct, x)[..., None], "fail", "x", "has shape (3, 7, 1), x has (3, 7)"),
        (lambda ct, x: relu(ct, x).astype("f4"), "fail", "x", "is float32, x is float64"),
        (lambda ct, x: "gradient", "fail", "x", "is a str, not an array of numbers"),
        (lambda ct, x: None, "missing", "x", "no gradient for x: vjp returned None"),
        (lambda ct, x: (), "error", "vjp", "returned 0 gradients for 1 primals (x)"),
        (lambda ct, x: (ct, ct), "error", "vjp", "returned 2 gradients for 1 primals (x)"),
        (lambda ct: ct, "error", "vjp", "vjp raised TypeError"),
        (raises(RuntimeError("one\n two")), "error", "vjp", "vjp raised RuntimeError: one two"),
        (raises(SystemExit(0)), "error", "vjp", "vjp raised SystemExit: 0"),
        (raises(BaseException()), "error", "vjp", "vjp raised BaseException: no message"),
        (recurses, "error", "vjp", "vjp raised RecursionError"),
        (writes, "error", "vjp", "vjp writes into its arguments"),
        (drifts, "error", "vjp", "vjp is not deterministic"),
        (raises(Unsupported("not here")), "unsupported", "vjp", "not here"),
        (raises(NotImplementedError("no\nbroadcasting")), "unsupported", "vjp", "no broadcasting"),
        (raises(NotImplementedError()), "unsupported", "vjp", "vjp raised NotImplementedError"),
    ],
)
def test_a_fault_is_one_clear_line_and_the_other_operators_are_judged(
    impl, vjp, verdict, output, said
):
    run = execute(plan(impl(IMPL={"relu": {"vjp": vjp}, "tanh": {"vjp": tanh}})))
    (result,) = of(run, "relu")
    assert (result.finding.verdict, result.finding.name) == (verdict, output)
    assert said in result.finding.reason
    assert "\n" not in result.finding.reason
    assert [r.finding.verdict for r in of(run, "tanh")] == ["pass"]
    assert run.complete
    assert run.passed is (verdict == "unsupported")


def test_a_read_only_gradient_is_as_good_as_any(impl):
    run = execute(plan(impl(IMPL={"relu": {"vjp": locked}}), ops=["relu"]))
    assert [(r.finding.verdict, r.finding.compared) for r in run.results] == [("pass", 63)]


def test_an_operator_without_an_entry_is_unbound_and_checks_nothing(impl):
    run = execute(plan(impl(IMPL={"tanh": {"vjp": tanh}})))
    (result,) = of(run, "relu")
    assert (result.finding.verdict, result.finding.reason) == (
        "unbound",
        "not implemented by user:IMPL",
    )
    assert (run.footer.checked, run.passed) == (1, True)
    run = execute(plan(impl(IMPL={})))
    assert (run.footer.checked, run.passed) == (0, False)


def test_the_value_of_forward_is_judged_before_its_gradient(impl):
    entry = {"vjp": tanh, "forward": lambda x: np.tanh(x) + 1e-6}
    run = execute(plan(impl(IMPL={"tanh": entry}), ops=["tanh"]))
    assert [(r.finding.name, r.finding.verdict) for r in run.results] == [
        ("forward", "fail"),
        ("x", "pass"),
    ]
    assert "it computes something else than tanh" in run.results[0].finding.reason


# ── what keeps a part from being judged ──────────────────────────────────────────────────────


class Explosive:
    @property
    def vjp(self):
        raise RuntimeError("a property that raises")


def test_an_implementation_that_does_not_load_does_not_stop_the_others(impl):
    impl(IMPL={"relu": {"vjp": relu}}, BARE={"relu": 3}, EXPLOSIVE={"relu": Explosive()})
    words = ["user:BARE", "reference", "user:EXPLOSIVE", "user:ABSENT", "user:IMPL"]
    run = execute(plan(*words, ops=["relu"]))
    assert list(dict.fromkeys(r.case.implementation for r in run.results)) == [
        "reference",
        "user:IMPL",
    ]
    assert {r.finding.verdict for r in run.results} == {Verdict.PASS}
    assert run.header.implementations == tuple(words)
    assert [t.split(" ")[0] for t in run.troubles] == [
        "user:BARE['relu']",
        "--impl",
        "user:ABSENT:",
    ]
    assert "user:EXPLOSIVE: loading raised RuntimeError: a property that raises" in run.troubles[1]
    assert run.complete
    assert not run.passed


def test_where_none_loads_the_first_one_says_why(impl):
    impl()
    with pytest.raises(LoadError, match="user has no 'A'"):
        execute(plan("user:A", "user:B"))


def test_a_word_that_names_no_implementation_ends_everything(impl):
    with pytest.raises(UnknownNameError, match="did you mean 'torch'"):
        execute(plan("reference", "troch"))


def square(xp, x):
    return x * x


def double(xp, ct, x):
    return 2 * ct * x


def halved(xp, ct, x):
    return ct * x


def strays(xp, x):
    return xp.no_such_function(x)


def divides(xp, x):
    raise ZeroDivisionError("by\nnothing")


def leaves(xp, x):
    raise SystemExit(0)


def op(name, forward=square, vjp=double, **samples):
    samples = samples or {"typical": lambda draw: (draw.normal(3),)}
    drawn = tuple(Sample(name=n, primals=p, hunts="a factor") for n, p in samples.items())
    text = {"formula": "x^2", "source": "none"}
    return OpSpec(name, "()->()", forward, vjp, drawn, **text)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (op("broken", forward=divides), "the case itself raised ZeroDivisionError: by nothing"),
        (op("broken", forward=leaves), "the case itself raised SystemExit: 0"),
        (op("broken", forward=strays), "no_such_function"),
        (op("broken", typical=lambda draw: (draw.normal(3),) * 2), "the sample draws 2 primals"),
        (op("broken", typical=lambda draw: (np.array([1e-60]),)), "float32 does not hold"),
        (op("broken", typical=lambda draw: 1 / 0), "raised ZeroDivisionError"),
    ],
)
def test_a_case_at_fault_is_invalid_and_the_others_are_judged(broken, said):
    suite = Suite("mine", "1", [op("before"), broken, op("after")])
    run = execute(plan("reference", suite=suite, ops=(), dtypes=("float64", "float32")))
    invalid = of(run, "broken")
    assert [(r.finding.verdict, r.case.dtype) for r in invalid] == [
        ("invalid", "float64"),
        ("invalid", "float32"),
    ]
    assert all(said in r.finding.reason for r in invalid)
    assert all("\n" not in r.finding.reason for r in invalid)
    rest = of(run, "before") + of(run, "after")
    assert [r.finding.verdict for r in rest] == ["pass"] * 8
    assert not run.passed


def test_only_the_sample_at_fault_is_invalid():
    drawn = {"good": lambda draw: (draw.normal(3),), "bad": lambda draw: ()}
    run = execute(plan("reference", suite=Suite("mine", "1", [op("half", **drawn)]), ops=(),
                       samples=()))  # fmt: skip
    found = {s: {r.finding.verdict for r in run.results if r.case.sample == s} for s in drawn}
    assert found == {"good": {Verdict.PASS}, "bad": {Verdict.INVALID}}


def test_an_exception_of_the_engine_concerns_its_case_alone(monkeypatch):
    whole = gradcheck.run.judge_case.judge_case

    def fragile(truth, binding, dtype, **options):
        if truth.case.spec.name == "relu" and dtype == "float64":
            raise KeyError("a slip\nin the engine")
        return whole(truth, binding, dtype, **options)

    monkeypatch.setattr("gradcheck.run.judge_case.judge_case", fragile)
    run = execute(plan("reference", dtypes=("float64", "float32")))
    (invalid,) = [r for r in run.results if r.finding.verdict is Verdict.INVALID]
    assert (invalid.case.name, invalid.finding.name) == ("relu/default/typical/float64", "vjp")
    assert invalid.finding.reason.startswith("the case itself raised KeyError: 'a slip")
    assert len(run.results) == 1 + 3 * 2


def test_a_wrong_spec_fails_itself_and_convicts_nobody_else(impl):
    suite = Suite("mine", "1", [op("square", vjp=halved)])
    right, wrong = (lambda ct, x: 2 * ct * x), (lambda ct, x: 3 * ct * x)
    for vjp, verdict in ((right, Verdict.PASS), (wrong, Verdict.INVALID)):
        words = ("reference", impl(IMPL={"square": {"vjp": vjp}}))
        run = execute(plan(*words, suite=suite, ops=()))
        found = {(r.case.implementation, r.finding.name): r.finding.verdict for r in run.results}
        assert found["reference", "x"] is Verdict.FAIL
        assert found["user:IMPL", "x"] is verdict


# ── interruption ─────────────────────────────────────────────────────────────────────────────


def test_an_interruption_keeps_what_is_known(impl):
    stops = {"relu": {"vjp": relu}, "tanh": {"vjp": raises(KeyboardInterrupt())}}
    run = execute(plan("reference", impl(IMPL=stops), ops=("relu", "tanh", "sigmoid")))
    assert not run.complete
    assert not run.footer.complete
    assert not run.passed
    found = [(r.case.implementation, r.case.op, r.finding.name) for r in run.results]
    assert found == [
        ("reference", "relu", "forward"),
        ("reference", "relu", "x"),
        ("reference", "tanh", "forward"),
        ("reference", "tanh", "x"),
        ("user:IMPL", "relu", "x"),
    ]
    assert {r.finding.verdict for r in run.results} == {Verdict.PASS}


def test_an_interruption_before_the_first_case_leaves_an_empty_run():
    def stop(*_):
        raise KeyboardInterrupt

    run = execute(plan("reference"), stop)
    assert (run.results, run.complete, run.passed) == ((), False, False)


@pytest.fixture
def time_up(monkeypatch):
    """`time_up()`: the time of the run that goes on is up now."""
    made = []

    class Limit(TimeLimit):
        def __init__(self, *seconds):
            super().__init__(*seconds)
            made.append(self)

    def up(*_, **__):
        made[-1]._end = 0.0
        signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr("gradcheck.run.execute.TimeLimit", Limit)
    return up


UP = "the time of the run, --max-time 1000 s, was up"


def test_when_the_time_is_up_what_is_known_is_kept_and_the_rest_is_not_run(impl, time_up):
    late = {"relu": {"vjp": relu}, "tanh": {"vjp": time_up}, "sigmoid": {"vjp": time_up}}
    asked = plan("reference", impl(IMPL=late), ops=("relu", "tanh", "sigmoid"), max_time=1000.0,
                 dtypes=("float64", "float32"))  # fmt: skip
    run = execute(asked)
    known, cut = (
        [r for r in run.results if (r.finding.verdict == "notrun") is k] for k in (False, True)
    )
    assert {(r.case.implementation, r.case.op) for r in known} == {
        ("reference", "relu"), ("reference", "tanh"), ("user:IMPL", "relu")
    }  # fmt: skip
    assert [
        (r.case.implementation, r.case.op, r.case.dtype, r.finding.name, r.finding.reason)
        for r in cut
    ] == [
        ("reference", "sigmoid", "float64", "vjp", UP),
        ("reference", "sigmoid", "float32", "vjp", UP),
        ("user:IMPL", "tanh", "float64", "vjp", UP),
        ("user:IMPL", "tanh", "float32", "vjp", UP),
        ("user:IMPL", "sigmoid", "float64", "vjp", UP),
        ("user:IMPL", "sigmoid", "float32", "vjp", UP),
    ]
    assert run.stopped == f"{UP}; not reached: 1 of 3 cases"
    assert (run.complete, run.passed, run.halted, run.late) == (False, False, True, True)
    whole = execute(replace(asked, implementations=("reference",), max_time=None))
    assert {(r.case.name, r.case.hash) for r in run.results} == {
        (r.case.name, r.case.hash) for r in whole.results
    }


def test_when_the_time_is_up_before_anything_is_loaded_all_of_it_is_not_run(
    impl, time_up, monkeypatch
):
    monkeypatch.setattr("gradcheck.run.plan.load", time_up)
    run = execute(plan("reference", impl(IMPL={}), max_time=1000.0))
    assert [(r.case.implementation, r.case.op) for r in run.results] == [
        ("reference", "relu"), ("reference", "tanh"), ("user:IMPL", "relu"), ("user:IMPL", "tanh")
    ]  # fmt: skip
    assert {(r.finding.verdict, r.finding.reason) for r in run.results} == {(Verdict.NOTRUN, UP)}


def test_time_that_is_up_after_the_last_case_is_no_matter(time_up):
    observer = SimpleNamespace(begins=lambda header: None, sees=lambda results: time_up() or "")
    run = execute(plan("reference", ops=["relu"], max_time=1000.0), observer=observer)
    assert run.complete
    assert run.passed


# ── order, seeds, progress ───────────────────────────────────────────────────────────────────


def test_results_come_by_implementation_then_case_then_dtype(impl):
    word = impl(IMPL={"relu": {"vjp": relu}, "tanh": {"vjp": tanh}})
    run = execute(plan(word, "reference", dtypes=("float64", "float32")))
    keys = [
        (r.case.implementation, r.case.op, r.case.dtype)
        for r in run.results
        if r.finding.name == "x"
    ]
    assert keys == [
        (i, o, d) for i in (word, "reference") for o in ("relu", "tanh")
        for d in ("float64", "float32")
    ]  # fmt: skip


@pytest.mark.slow
def test_the_same_plan_gives_the_same_run():
    first, second = (execute(plan("reference", ops=("rms_norm",), samples=())) for _ in range(2))
    assert first == second


def test_a_seed_moves_the_inputs_and_is_written_into_hashes_and_repro_lines(impl):
    word = impl(IMPL={"tanh": {"vjp": lambda ct, x: ct}})
    runs = {seed: execute(plan(word, ops=("tanh",), seed=seed)) for seed in (0, 1)}
    (zero,), (one,) = (runs[seed].results for seed in (0, 1))
    assert zero.case.name == one.case.name
    assert zero.case.hash != one.case.hash
    assert runs[0].header.cases != runs[1].header.cases
    assert zero.finding.top.want != one.finding.top.want
    assert "--seed" not in zero.repro
    assert one.repro.endswith(" --seed 1")


def test_narrowing_a_plan_moves_no_other_input():
    all_, alone = execute(plan("reference")), execute(plan("reference", ops=("tanh",)))
    assert of(all_, "tanh") == of(alone, "tanh")
    assert all_.header.cases != alone.header.cases


def test_progress_names_each_case_before_it_is_judged():
    seen = []
    execute(plan("reference"), lambda *state: seen.append(state))
    assert seen == [(0, 2, "relu/default/typical"), (1, 2, "tanh/default/typical")]


def test_one_case_can_be_judged_alone():
    wanted = plan("reference")
    binding = SimpleNamespace(name="reference", bind=lambda case, dtype: None)
    (record,) = judge(wanted, wanted.cases[0], binding)
    assert (record.case.op, record.finding.verdict) == ("relu", Verdict.UNBOUND)


def test_curves_come_with_every_gradient_when_they_are_asked_for():
    plain = execute(plan("reference", dtypes=("float64", "float32")))
    asked = execute(plan("reference", dtypes=("float64", "float32"), taylor=True))
    assert all(record.finding.taylor is None for record in plain.results)
    for record in asked.results:
        assert (
            (record.finding.taylor is None)
            == (record.finding.name == "forward")
            == (record.finding.curve is None)
        )
    assert [changed(r, taylor=None, curve=None) for r in asked.results] == list(plain.results)


# ── what a backward owes beyond its numbers ──────────────────────────────────────────────────


def contract_of(run):
    return [r for r in run.results if r.finding.part is Part.CONTRACT]


def test_all_but_the_reference_are_asked_unless_it_is_said(impl):
    word = impl(IMPL={"relu": SimpleNamespace(vjp=relu), "tanh": SimpleNamespace(vjp=tanh)})
    asked = contract_of(execute(plan(word, "reference", contract=None)))
    assert {r.case.implementation for r in asked} == {word}
    assert {r.case.op for r in asked} == {"relu", "tanh"}
    assert {r.finding.verdict for r in asked} == {Verdict.PASS, Verdict.SKIP}
    both = contract_of(execute(plan(word, "reference", contract=True)))
    assert {r.case.implementation for r in both} == {word, "reference"}
    assert contract_of(execute(plan(word, "reference", contract=False))) == []


def test_the_contract_is_asked_once_per_dialect_and_dtype(impl):
    word = impl(IMPL={"relu": SimpleNamespace(vjp=relu)})
    wanted = plan(word, contract=None, ops=("relu",), samples=(), dtypes=("float64", "float32"))
    asked = [r for r in contract_of(execute(wanted)) if r.finding.name == "linear"]
    assert [(r.case.sample, r.case.dtype) for r in asked] == [
        ("typical", "float64"),
        ("typical", "float32"),
    ]


def test_a_broken_contract_closes_the_gate_and_says_how_to_ask_again(impl):
    flushes = SimpleNamespace(vjp=lambda ct, x: ct * (x > 0) * (np.abs(ct) > 1e-9))
    word = impl(IMPL={"relu": flushes})
    run = execute(plan(word, contract=None, ops=("relu",)))
    assert not run.passed
    (bad,) = (r for r in run.results if not r.finding.verdict.expected)
    assert (bad.finding.name, bad.finding.verdict, bad.finding.part) == (
        "scaling",
        Verdict.FAIL,
        Part.CONTRACT,
    )
    assert bad.case.hunts == ""
    assert bad.repro.endswith(f"--sample typical --dtype float64 --impl {word}")
    (of_reference,) = {
        r.repro for r in contract_of(execute(plan("reference", ops=("relu",), contract=True)))
    }
    assert of_reference.endswith(" --contract")


def test_a_sample_that_fits_no_contract_has_none(impl):
    word = impl(IMPL={"relu": SimpleNamespace(vjp=relu)})
    assert contract_of(execute(plan(word, contract=None, ops=("relu",), samples=("empty",)))) == []
