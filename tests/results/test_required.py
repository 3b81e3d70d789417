"""What closes the gate of what is required, and what is the suite's own affair."""

import pytest

from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.run import Header, Run
from gradcheck.results.verdict import Verdict
from tests.case_results import case_result


def record(verdict="pass", **changes):
    plain = {"name": "relu/default/typical/float64", "hash": "a1b2", "implementation": "mine",
             "op": "relu", "dialect": "default", "sample": "typical", "dtype": "float64",
             "output": "x", "seed": 0, "repro": "", "reason": "so"}  # fmt: skip
    return case_result(verdict=Verdict(verdict), **{**plain, **changes})


def run(*results, require=("relu",), shard="", **changes):
    header = Header(version="1", suite="s", suite_version="2", implementations=("mine",),
                    dtypes=("float64",), seed=0, require=require, shard=shard)  # fmt: skip
    return Run(header=header, results=results, **changes)


@pytest.mark.parametrize("verdict", Verdict)
def test_nothing_but_a_pass_opens_the_gate(verdict):
    found = run(record(), record(verdict, output="w"))
    alone = run(record(), record(verdict, output="w", dtype="float32"))
    assert found.passed == (verdict in (Verdict.PASS, Verdict.SKIP))
    assert alone.passed == (verdict is Verdict.PASS)


LOW = {"dtype": "float16"}
OTHER = {"kind": Kind.MODEL, "op": "gpt2", "dialect": "tiny"}


@pytest.mark.parametrize(
    ("results", "require", "lines"),
    [
        # A sample that float16 does not hold, beside others that it does.
        ([record(**LOW), record("skip", sample="large", **LOW)], "relu", []),
        ([record("fail", **LOW), record("skip", sample="large", **LOW)], "relu", []),
        ([record(), record("skip", **LOW), record("skip", sample="large", **LOW)], "relu",
         ["relu: required, but SKIP in 2 results: so"]),
        ([record(), record("skip", **LOW)], "tanh", ["tanh: required, but nothing of it was run"]),
        # What a property cannot ask, beside those that are asked.
        ([record(), record("pass", part=Part.CONTRACT), record("skip", part=Part.CONTRACT)],
         "relu", []),
        ([record(), record("skip", part=Part.CONTRACT)], "relu",
         ["relu: required, but SKIP in typical/float64: so"]),
        # Dtypes in which nobody's code is judged.
        ([record(**OTHER), record("unsupported", dtype="mp50", **OTHER)], "gpt2", []),
        ([record("unsupported", **OTHER)], "gpt2",
         ["gpt2: required, but UNSUPPORTED in typical/float64: so"]),
        ([record(), record("unsupported", dtype="bfloat16")], "relu",
         ["relu: required, but UNSUPPORTED in typical/bfloat16: so"]),
        ([record(), record("unbound", implementation="other")], "rel*",
         ["relu of other: required, but UNBOUND in typical/float64: so"]),
        ([record(), record("unbound", dialect="ggml")], "relu/default", []),
        ([record(), record("unbound", dialect="ggml")], "relu/g*",
         ["relu: required, but UNBOUND in typical/float64: so"]),
    ],
)  # fmt: skip
def test_each_gap_is_a_line(results, require, lines):
    assert run(*results, require=(require,)).unmet == lines


def test_what_need_not_have_been_reached_is_not_missed():
    for changes in ({"shard": "1/2"}, {"complete": False}):
        assert run(record(op="tanh"), **changes).unmet == []
    assert run(record(op="tanh")).unmet == ["relu: required, but nothing of it was run"]
    assert run(record(op="tanh"), record("unbound"), shard="1/2").unmet != []


def test_without_requirements_all_is_as_it_was():
    found = run(record(), record("unsupported", op="tanh"), require=())
    assert (found.unmet, found.passed) == ([], True)
