import subprocess
import sys
from pathlib import Path

import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.frameworks import differentiated
from gradcheck.implementations.load import load
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.operator import CaseTruth, judge_case

ROOT = Path(__file__).parents[2]

QUESTION = """
import sys
from gradcheck.implementations.frameworks import differentiated

class Kernel:
    def vjp(self, ct, x): ...

for entry in (Kernel, Kernel(), {"vjp": len}, len, lambda x: x, 3, None):
    assert differentiated(entry) is None
assert not {"torch", "jax"} & set(sys.modules)
"""


def test_no_framework_is_imported_for_the_question():
    root = {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", QUESTION], env=root, check=True)


@pytest.mark.frameworks
def test_what_says_itself_how_it_is_differentiated_is_not_a_frameworks():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")

    class Kernel:
        __module__ = "torch.kernels"

        def vjp(self, ct, x):
            return ct

        def __call__(self, x):
            return x

    for entry in (Kernel(), Kernel, {"vjp": torch.tanh}, {"forward": jax.numpy.tanh}):
        assert differentiated(entry) is None


def judged(op, dialect, dtype):
    (case,) = SUITE.cases([op], [dialect], ["typical"])
    found = judge_case(CaseTruth(case), load("examples.frameworks:IMPL", SUITE), dtype)
    return {f.name: f.verdict.value for f in found}


EXAMPLES = {
    ("silu", "default"): {"x": "pass"},
    ("rms_norm", "weight"): {"x": "pass", "w": "fail"},
    ("swiglu", "default"): {"gate": "fail", "up": "pass"},
    ("softmax", "default"): {"x": "pass"},
    ("sigmoid", "default"): {"x": "pass"},
    ("tanh", "default"): {"x": "fail"},
    ("gelu", "erf"): {"x": "pass"},
}


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("op", "dialect"), EXAMPLES)
def test_the_examples_are_right_and_wrong_as_they_say(op, dialect, dtype):
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    assert judged(op, dialect, dtype) == {"forward": "pass", **EXAMPLES[op, dialect]}


@pytest.mark.frameworks
def test_the_examples_model_is_right():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    (case,) = SUITE.model_cases(["linear_regression"], sizes=["tiny"])
    binding = load("examples.frameworks:IMPL", SUITE)
    found = judge_model(ModelTruth(case), binding, "float64").findings
    assert {f.name: f.verdict.value for f in found} == dict.fromkeys(("loss", "w", "b"), "pass")
