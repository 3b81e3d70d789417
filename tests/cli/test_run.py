"""What `gradcheck run` judges where the command line leaves it open: what is implemented."""

import json
from pathlib import Path

import gradcheck_cases
import pytest

KERNELS = """
import numpy as np
from kernels import negated, relu, tanh

def norm(ct, x, w, b, *, eps=1e-5):
    d = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt(np.mean(d * d, -1, keepdims=True) + x.dtype.type(eps))
    n, g = d * r, ct * w
    dx = r * (g - g.mean(-1, keepdims=True) - n * np.mean(g * n, -1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    return dx, (ct * n).sum(rows), ct.sum(rows)

def product(ct, x):
    if x.shape[-1] == 0:
        raise ValueError("no columns")
    return ct[..., None] * np.prod(x, -1, keepdims=True) / x

IMPL = {"relu": {"vjp": relu}, "tanh": {"vjp": tanh}, "layer_norm/affine": {"vjp": norm}}
WRONG = {"relu": {"vjp": negated}}
PROD = {"prod": {"vjp": product}}
"""
KNOWN = """
[[known]]
match = "silu/*/*/*"
output = "dx"
verdict = "fail"
reason = "of relu"
"""
FEW = ("--sample", "typical", "--dtype", "float64", "--no-contract")
IMPL = (*FEW, "--impl", "mine:IMPL")


@pytest.fixture(autouse=True)
def mine():
    Path("mine.py").write_text(KERNELS)


def variants(found, impl="mine:IMPL"):
    """Verdicts by operator and dialect."""
    return {
        f"{r['op']}/{r['dialect']}": r["verdict"]
        for r in found.results
        if r["implementation"] == impl
    }


BOUND = {"relu/default": "pass", "tanh/default": "pass", "layer_norm/affine": "pass"}


def test_what_is_bound_is_judged_and_nothing_else(judged):
    found = judged(*IMPL)
    assert (found.code, variants(found)) == (0, BOUND)
    assert found.footer["counts"]["unbound"] == 0
    assert "judging 3 of " in found.err
    assert "those that mine:IMPL implements; --all also reports the others\n" in found.err
    assert "--all" not in judged(*IMPL, "-q").err


@pytest.mark.slow
def test_all_asks_for_everything(judged):
    found = judged(*IMPL, "--all")
    every, typical = variants(found), gradcheck_cases.SUITE.cases(samples=["typical"])
    assert (found.code, len(every)) == (0, len(typical))
    assert {v for name, v in every.items() if name not in BOUND} == {"unbound"}
    assert BOUND.items() <= every.items()
    assert "--all" not in found.err
    Path("pyproject.toml").write_text("[tool.gradcheck]\nall = true\n")
    assert variants(judged(*IMPL)) == every


@pytest.mark.parametrize(
    ("ops", "code", "unbound"),
    [
        (["silu"], 4, {"silu/default"}),  # nothing is checked
        (["relu", "silu"], 0, {"silu/default"}),
        (["relu", "sil*"], 0, {"silu/default", "silu_back/default"}),
        (["*lu"], 0, set()),  # of which relu is bound
        (["layer_norm"], 0, set()),  # one dialect is
        (["no*", "tanh"], 0, {"norm/default"}),
    ],
)
def test_what_is_named_and_not_bound_is_reported(judged, ops, code, unbound):
    found = judged(*IMPL, *(word for op in ops for word in ("--op", op)))
    assert found.code == code
    missing = {name for name, verdict in variants(found).items() if verdict == "unbound"}
    assert missing == unbound


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "words",
    ["-k silu", "--op layer_norm --dialect plain", "--dialect plain", "--model quadratic",
     "--rule sgd"],
)  # fmt: skip
def test_a_selection_of_which_nothing_is_bound_is_no_pass(judged, words):
    few = FEW[2:] if words.startswith(("--model", "--rule")) else FEW
    found = judged(*words.split(), *few, "--impl", "mine:IMPL")
    assert (found.code, {*variants(found).values()}) == (4, {"unbound"})


def test_what_one_of_several_binds_is_asked_of_all(judged):
    found = judged(*IMPL, "--impl", "mine:WRONG", "--impl", "reference")
    assert variants(found) == BOUND
    others = {"layer_norm/affine": "unbound", "tanh/default": "unbound", "relu/default": "fail"}
    assert variants(found, "mine:WRONG") == others
    assert variants(found, "reference") == BOUND


def test_what_is_required_or_known_is_not_left_out(run, judged):
    found = judged(*IMPL, "--require", "silu")
    assert (found.code, variants(found)) == (1, {**BOUND, "silu/default": "unbound"})
    assert "silu: required, but UNBOUND in typical/float64: not implemented by mine" in found.err
    Path("known.toml").write_text(KNOWN)
    for words in (("--baseline", "known.toml"), ()):
        found = run(*IMPL, *words)
        assert found.code == bool(words)
    assert "known.toml:2: UNSUPPORTED: " in run(*IMPL, "--baseline", "known.toml").out
    pruned = run("prune", "known.toml", *IMPL, "--no-isolate", command="baseline")
    assert "known.toml:2: UNSUPPORTED: " in pruned.out


@pytest.mark.slow
def test_jobs_and_shards_leave_out_the_same(run):
    words = (
        "-k",
        "typical or batched",
        "--dtype",
        "float64",
        "--no-contract",
        "--impl",
        "mine:IMPL",
        "-q",
    )
    run(*words, "-o", "whole.json")
    run(*words, "-j", "2", "-o", "jobs.json")
    for number in (1, 2):
        run(*words, "--shard", f"{number}/2", "-o", f"{number}.json")
    assert run("1.json", "2.json", "-o", "merged.json", command="merge").code == 0
    whole = Path("whole.json").read_text()
    assert whole == Path("jobs.json").read_text() == Path("merged.json").read_text()
    assert {r["op"] for r in json.loads(whole)["results"]} == {"relu", "tanh", "layer_norm"}


@pytest.mark.slow
def test_a_budget_begins_with_a_typical_sample_of_every_operator(run, judged):
    words = ("--impl", "mine:IMPL", "--dtype", "float64", "--no-contract")
    found = judged(*words, "--budget", "10m", "-o", "run.jsonl")
    assert found.code == 0
    cases = [*dict.fromkeys((r["op"], r["sample"]) for r in found.results)]
    assert cases[:3] == [(op, "typical") for op in ("layer_norm", "relu", "tanh")]
    assert {r["verdict"] for r in found.results} == {"pass"}
    assert run("run.jsonl", "--format", "json", command="report").out == found.out
    late = judged(*words, "--budget", "1e-9s")
    assert (late.code, {r["verdict"] for r in late.results}) == (1, {"notrun"})


def test_a_sum_over_no_features_is_asked_of_the_suites_own_code_or_by_name(judged):
    words = ("--op", "prod", "--dtype", "float64", "--no-contract")
    (mine,) = [
        (r["verdict"], r["reason"])
        for r in judged(*words, "--impl", "mine:PROD").results
        if r["sample"] == "no-columns"
    ]
    assert mine[0] == "skip"
    assert (
        mine[1]
        == "a sum or a norm over no features: asked with --all, or by name with --sample, alone"
    )
    for more in (["--all"], ["--sample", "no-*"]):
        asked = judged(*words, *more, "--impl", "mine:PROD").results
        assert [r["verdict"] for r in asked if r["sample"] == "no-columns"] == ["error"]
    own = [r["verdict"] for r in judged(*words).results if r["sample"] == "no-columns"]
    assert {*own} == {"pass"}


JITTED = """
import sys, types
import numpy as np
sys.modules["numba"] = types.ModuleType("numba")  # as after `import numba`

def vjp(ct, x):
    with open("shapes.txt", "a") as file:
        print(x.shape, file=file)
    return ct * (1 - np.tanh(x) ** 2)

IMPL = {"tanh": {"vjp": vjp}}
"""


@pytest.mark.slow
def test_code_that_is_compiled_for_each_size_is_asked_at_few_unless_all_is(run):
    Path("jitted.py").write_text(JITTED)
    words = ("--impl", "jitted:IMPL", "--op", "tanh", "--sample", "typical", "--dtype", "float64")
    seen = []
    for more in ((), ("--all",)):
        Path("shapes.txt").unlink(missing_ok=True)
        assert run(*words, *more, isolate=True).code == 0
        seen.append({*Path("shapes.txt").read_text().splitlines()})
    assert "(3, 129)" not in seen[0]
    assert {"(3, 33)", "(33, 7)", "(0, 7)", "(3, 1)"} <= seen[0] < seen[1]
    assert {"(3, 129)", "(129, 7)"} < seen[1]
