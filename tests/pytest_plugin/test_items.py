import re
import shutil
import xml.etree.ElementTree as ET

import gradcheck_cases
import pytest

KERNELS = """
import numpy as np
from gradcheck import OpSpec, Sample, Suite, Unsupported

def relu(ct, x): return ct * (x > 0)
def tanh(ct, x): return ct * (1 - np.tanh(x) ** 2)
def negated(ct, x): return -relu(ct, x)
def raises(ct, x): raise RuntimeError("boom")
def lacks(ct, x): raise Unsupported("no tanh on this machine")
def stops(ct, x): raise KeyboardInterrupt
def flushes(ct, x): return relu(ct, x) * (abs(ct) > 1e-9)

RIGHT = {"relu": {"vjp": relu}, "tanh": {"vjp": tanh}}
MIXED = {"relu": {"vjp": negated}, "tanh": {"vjp": lacks}, "silu": {"vjp": raises}}
FLUSHES = {"relu": {"vjp": flushes}}
STOPS = {"relu": {"vjp": stops}}
CLAMP = {"clamp": {"vjp": lambda ct, x: ct}}  # its bounds cannot be set
NUMBER = 3

def quadratic(params, inputs):
    x, a = params["x"], params["a"]
    return {"x": 2 * a * x, "a": -x * x, "b": np.ones_like(x)}

MODEL = {"quadratic": {"gradients": quadratic}}

def square(xp, x): return x * x
def double(xp, ct, x): return 2 * ct * x

def op(name, **samples):
    drawn = [Sample(name=n, primals=lambda draw, k=k: (draw.normal(2),) * k, hunts="2")
             for n, k in samples.items()]
    return OpSpec(name, "()->()", square, double, tuple(drawn), formula="x^2", source="none")

SUITE = Suite("mine", "1", [op("square", good=1, broken=2)])
"""
SUITE = ("--gradcheck-suite", "gradcheck_cases:SUITE")
MIXED = (*SUITE, "--gradcheck-impl", "kernels:MIXED", "--gradcheck-sample", "typical",
         "--gradcheck-dtype", "float64")  # fmt: skip


def only(*ops):
    return [word for op in ops for word in ("--gradcheck-op", op)]


def collected(found):
    return [line for line in found.stdout.splitlines() if line.startswith("gradcheck::")]


def test_without_the_flag_nothing_is_added_and_nothing_imported(pytest_, folder):
    (folder / "test_own.py").write_text(
        "import sys\n"
        "def test_own():\n"
        "    assert 'gradcheck.pytest_plugin' in sys.modules\n"
        "    ours = {'gradcheck.run.execute', 'gradcheck.spec.suite'}\n"
        "    assert not {'numpy', *ours} & set(sys.modules)\n"
    )
    found = pytest_("--gradcheck-op", "no_such_operator", alone=True)
    assert found.returncode == 0, found.stdout
    assert "1 passed" in found.stdout


@pytest.mark.slow
def test_an_item_stands_for_implementation_operator_dialect_sample_and_dtype(pytest_):
    impls = ("--gradcheck-impl", "kernels:RIGHT", "--gradcheck-impl", "reference")
    words = (*SUITE, *impls, *only("rms_norm", "relu"), "--gradcheck-sample", "[tz]*")
    found = pytest_(*words, "--collect-only")
    names = collected(found)
    suite = gradcheck_cases.SUITE
    wanted = {
        f"gradcheck::{impl}::{case.name}/{dtype}"
        for impl in ("kernels:RIGHT", "reference")
        for case in suite.cases(["rms_norm", "relu"], samples=["[tz]*"])
        for dtype in ("float64", "float32")
    }
    assert found.returncode == 0
    assert len(names) == len(wanted) > 20
    assert set(names) == wanted
    assert f"{len(wanted)} tests collected" in found.stdout
    narrowed = pytest_(*words, "--gradcheck-dialect", "plain", "--gradcheck-dtype", "float32",
                       "--collect-only")  # fmt: skip
    assert collected(narrowed) == [n for n in names if "/plain/" in n and n.endswith("/float32")]


def test_failures_say_what_is_wrong_and_gaps_why_without_a_traceback(pytest_):
    words = only("relu", "tanh", "silu", "sigmoid")
    found = pytest_(*MIXED, *words, "-rs")
    assert found.returncode == 1
    assert "2 failed, 2 skipped" in found.stdout
    fail, error = (
        next(x for x in re.split(r"\n_{3,} ", found.stdout) if x.startswith(f"gradcheck {name}"))
        for name in ("kernels:MIXED::relu", "kernels:MIXED::silu")
    )
    assert "\nFAIL relu/default/typical/float64 · dx (kernels.py:" in fail
    assert ")\n  dx has the wrong sign: " in fail
    assert " (sign; wrong at " in fail
    assert "; 39 of 63 elements fail\n  run: " in fail
    assert "\n  run: gradcheck repro relu/default/typical/float64:x " in fail
    assert "\nERROR silu/default/typical/float64 · vjp" in error
    assert "\n  vjp raised RuntimeError: boom" in error
    assert "Traceback" not in found.stdout
    assert "runtest" not in found.stdout
    assert "UNSUPPORTED: no tanh on this machine" in found.stdout
    assert "UNBOUND: not implemented by kernels:MIXED" in found.stdout


@pytest.mark.slow
def test_items_are_what_is_bound_unless_all_is_asked_for(pytest_, folder):
    words = (*SUITE, "--gradcheck-impl", "kernels:RIGHT", "--gradcheck-sample", "typical",
             "--gradcheck-dtype", "float64", "--collect-only")  # fmt: skip
    bound = {f"gradcheck::kernels:RIGHT::{op}/default/typical/float64" for op in ("relu", "tanh")}
    assert {*collected(pytest_(*words))} == bound
    every = {*collected(pytest_(*words, "--gradcheck-all"))}
    assert len(every) == len(gradcheck_cases.SUITE.cases(samples=["typical"]))
    assert bound < every
    named = {*collected(pytest_(*words, *only("relu", "silu")))}
    assert {name.split("::")[-1].split("/")[0] for name in named} == {"relu", "silu"}


@pytest.mark.slow
def test_a_broken_contract_fails_the_item_at_which_it_is_asked(pytest_):
    words = (*SUITE, "--gradcheck-impl", "kernels:FLUSHES", *only("relu"))
    found = pytest_(*words, "--gradcheck-sample", "[ts]*", "--gradcheck-dtype", "float32")
    assert found.returncode == 1
    assert "1 failed" in found.stdout
    assert "FAIL relu/default/typical/float32 · side condition scaling" in found.stdout
    assert " (nonlinear)\n" in found.stdout


@pytest.mark.slow
def test_junit_names_the_implementation_and_the_case(pytest_, folder):
    pytest_(*MIXED, *only("relu", "tanh"), "--junitxml", "out.xml")
    cases = {c.get("name"): c for c in ET.parse(folder / "out.xml").iter("testcase")}
    assert set(cases) == {"relu/default/typical/float64", "tanh/default/typical/float64"}
    assert {c.get("classname") for c in cases.values()} == {"gradcheck.kernels:MIXED"}
    (failure,) = cases["relu/default/typical/float64"]
    assert (failure.tag, failure.text.split(" ")[0]) == ("failure", "FAIL")
    (skipped,) = cases["tanh/default/typical/float64"]
    assert (skipped.tag, "no tanh on this machine" in skipped.get("message")) == ("skipped", True)


@pytest.mark.slow
def test_k_selects_by_every_part_of_the_name(pytest_, folder):
    (folder / "test_own.py").write_text("def test_own(): pass\n")
    words = (*SUITE, "--gradcheck-impl", "kernels:RIGHT", *only("relu", "tanh"), "-k")
    found = pytest_(*words, "tanh and kink or relu and typical and not float32")
    assert found.returncode == 0
    assert re.search(r"^1 passed, \d+ deselected", found.stdout, re.MULTILINE)
    assert "2 passed" in pytest_(*words, "test_own or relu and typical and float32").stdout


@pytest.mark.slow(rest=0)
def test_what_failed_last_time_runs_again_alone(pytest_):
    basics = ("-q", "-p", "gradcheck.pytest_plugin")
    words = (*SUITE, *only("relu", "tanh"), "--gradcheck-sample", "typical")
    first = pytest_(*words, "--gradcheck-impl", "kernels:MIXED", basics=basics)
    assert "2 failed, 2 skipped" in first.stdout
    again = pytest_(*words, "--gradcheck-impl", "kernels:MIXED", "--lf", basics=basics)
    assert "2 failed, 2 deselected" in again.stdout
    assert again.returncode == 1


@pytest.mark.slow(rest=0)
def test_several_processes_judge_the_same_items(pytest_):
    pytest.importorskip("xdist")
    words = (*MIXED, *only("relu", "tanh", "silu", "sigmoid"), "-rA")
    alone, shared = pytest_(*words), pytest_(*words, "-p", "xdist", "-n", "2")
    assert alone.returncode == shared.returncode == 1

    def outcomes(found):
        return sorted(re.findall(r"^(FAILED|PASSED) (gradcheck::\S+)", found.stdout, re.MULTILINE))

    assert outcomes(alone) == outcomes(shared)
    assert len(outcomes(alone)) == 2
    assert "2 failed, 2 skipped" in shared.stdout


@pytest.mark.slow
def test_a_case_at_fault_fails(pytest_):
    words = ("--gradcheck-suite", "kernels:SUITE", "--gradcheck-impl", "reference")
    found = pytest_(*words, "--gradcheck-seed", "3")
    assert found.returncode == 1
    assert "2 failed, 2 passed" in found.stdout
    assert "INVALID square/default/broken/float64 · vjp" in found.stdout
    again = "run: gradcheck repro square/default/broken/float64 --suite kernels:SUITE"
    assert again in found.stdout
    assert " --seed 3\n" in found.stdout


@pytest.mark.slow(keep=1, rest=2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*MIXED, *only("rleu")], "unknown operator 'rleu': did you mean 'relu'?"),
        ([*SUITE, "--gradcheck-impl", "refrence"], "did you mean 'reference'?"),
        ([*MIXED, "--gradcheck-dtype", "bflaot16"], "did you mean 'bfloat16'?"),
        ([*SUITE, "--gradcheck-impl", "absent:X"], "importing absent raised ModuleNotFoundError"),
        ([*SUITE, "--gradcheck-impl", "kernels:NUMBER"], "kernels:NUMBER is a int"),
        ([*MIXED, *only("sigmoid")], "nothing to check: no implementation has any of the cases"),
        (
            [*SUITE, "--gradcheck-impl", "kernels:CLAMP", *only("clamp"), "--gradcheck-sample",
             "asymmetric"],
            "nothing to check",
        ),
        (
            [*SUITE, "--gradcheck-impl", "reference", *only("rms_norm"), "--gradcheck-sample",
             "unsolved", "--gradcheck-dialect", "weight"],
            "nothing to check",
        ),
    ],
)  # fmt: skip
def test_a_mistaken_word_is_a_usage_error(pytest_, words, said):
    found = pytest_(*words)
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = [x for x in found.stderr.splitlines() if x]
    assert line.startswith("ERROR: gradcheck: ")
    assert said in line


@pytest.mark.slow
def test_a_mistaken_word_is_a_usage_error_with_several_processes_too(pytest_):
    pytest.importorskip("xdist")
    found = pytest_(*MIXED, *only("rleu"), "-p", "xdist", "-n", "2")
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    assert "did you mean 'relu'?" in found.stderr
    assert "INTERNALERROR" not in found.stdout


@pytest.mark.slow
def test_an_interruption_interrupts(pytest_):
    words = (*SUITE, "--gradcheck-impl", "kernels:STOPS", *only("relu"))
    found = pytest_(*words, "--gradcheck-no-isolate")
    assert found.returncode == pytest.ExitCode.INTERRUPTED
    apart = pytest_(*words, "--gradcheck-sample", "typical", "--gradcheck-dtype", "float32")
    assert apart.returncode == pytest.ExitCode.TESTS_FAILED  # nobody has pressed a key
    assert "ERROR vjp raised KeyboardInterrupt" in apart.stdout


@pytest.mark.slow
def test_a_slip_of_the_checker_is_shown_with_its_traceback(pytest_, folder):
    (folder / "conftest.py").write_text(
        "import gradcheck.run.judge_case\n"
        "def slips(*_): raise ZeroDivisionError('a slip of ours')\n"
        "gradcheck.run.judge_case.judge = slips\n"
    )
    found = pytest_(*MIXED, *only("relu"), alone=True)
    assert found.returncode == 1
    assert "in slips" in found.stdout or "def slips" in found.stdout
    assert "ZeroDivisionError: a slip of ours" in found.stdout


@pytest.mark.slow
def test_a_model_is_an_item_per_size_and_dtype(pytest_):
    words = ("--gradcheck-model", "quadratic", "--gradcheck-sample", "tiny")
    found = pytest_(*SUITE, "--gradcheck-impl", "reference", *words, "--collect-only")
    assert collected(found) == [
        f"gradcheck::reference::quadratic/default/tiny/{dtype}"
        for dtype in ("mp50", "float64", "float32")
    ]
    found = pytest_(*SUITE, "--gradcheck-impl", "reference", *words)
    assert "3 passed" in found.stdout


@pytest.mark.slow
def test_a_wrong_gradient_of_a_model_fails_its_items(pytest_):
    words = ("--gradcheck-model", "quadratic", "--gradcheck-sample", "tiny")
    found = pytest_(*SUITE, "--gradcheck-impl", "kernels:MODEL", *words)
    assert found.returncode == 1
    assert "2 failed" in found.stdout  # nobody else's code is asked for 50 digits
    assert "FAIL quadratic/default/tiny/float64 · da" in found.stdout
    assert "--model quadratic --dialect default --sample tiny --dtype float64" in found.stdout


@pytest.mark.slow
def test_models_that_nobody_has_are_nothing_to_check(pytest_):
    found = pytest_(*SUITE, "--gradcheck-impl", "kernels:RIGHT", "--gradcheck-model", "svm")
    assert found.returncode == 4
    assert "nothing to check" in found.stderr


@pytest.mark.slow
def test_operators_stand_beside_models_where_both_are_named(pytest_):
    words = ("--gradcheck-model", "quadratic", *only("relu"), "--gradcheck-dtype", "float64")
    found = pytest_(*SUITE, "--gradcheck-impl", "reference", *words, "--collect-only")
    ops = {line.split("::")[2].partition("/")[0] for line in collected(found)}
    assert ops == {"relu", "quadratic"}


@pytest.mark.slow
def test_an_update_rule_is_an_item_per_sample_and_dtype(pytest_):
    words = ("--gradcheck-rule", "sgd", "--gradcheck-sample", "typical", *only("relu"))
    found = pytest_(*SUITE, "--gradcheck-impl", "reference", *words)
    assert found.returncode == 0
    found = pytest_(*SUITE, "--gradcheck-impl", "reference", *words, "--collect-only")
    names = [line.split("::")[2] for line in collected(found)]
    assert names[:2] == ["relu/default/typical/float64", "relu/default/typical/float32"]
    assert names[2:4] == ["sgd/default/typical/float64", "sgd/default/typical/float32"]


@pytest.mark.slow(rest=0)
@pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler")
def test_a_manifest_is_built_once_however_many_processes_run(pytest_, folder):
    pytest.importorskip("xdist")
    (folder / "k.c").write_text(
        "void neg_backward(double* dx, const double* dy, int n) {\n"
        "    for (int i = 0; i < n; i++) dx[i] = -2 * dy[i];\n}\n"
    )
    (folder / "gradcheck.toml").write_text(
        "schema = 1\n[impl]\nname = 'k'\nversion.cmd = 'echo 1.10'\n[c]\nlibrary = 'libk.so'\n"
        "[build]\ncmd = 'echo . >> built && gcc -shared -fPIC -o libk.so k.c'\n"
        "[[op]]\nname = 'neg'\n"
        "vjp = 'void neg_backward(double* dx, const double* dy, int n)'\n"
        "bind = { dx = 'grad:x', dy = 'cotangent', n = 'size(x)' }\n"
    )
    (folder / "known.toml").write_text(
        "[[known]]\nmatch = 'neg/*/*/*'\noutput = 'dx'\nverdict = 'fail'\nreason = 'twice'\n"
        "when = \"version < '1.9' or version >= '1.10'\"\n"
    )
    found = pytest_(
        *SUITE, "--gradcheck-impl", "gradcheck.toml", *only("neg"), "--gradcheck-sample", "typical",
        "--gradcheck-dtype", "float64", "--gradcheck-baseline", "known.toml", "-p", "xdist",
        "-n", "2",
    )  # fmt: skip
    assert "1 passed, 1 xfailed" in found.stdout  # the version reaches every process
    assert (folder / "built").read_text() == ".\n"
