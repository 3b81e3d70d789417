"""What the transformers promise of their sizes: moderate values, no dead weight, fair counts."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.arithmetic import F64

CASES = [c for model in ("gemma", "llama", "gpt2") for c in SUITE.model_cases([model])]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_values_stay_near_1_and_every_parameter_matters_whatever_the_seed(case, fold):
    for seed in range(8):
        drawn = replace(case, seed=seed)
        values, cts = drawn.program.forward(F64, drawn.given), fold(drawn)
        floats = (v for name, v in values.items() if v.dtype.kind == "f" and name != "loss")
        assert max(np.abs(v).max() for v in floats) < 100
        for name in drawn.params:
            assert 1e-4 < np.abs(cts[name]).max() < 100, name


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_parameters_are_as_many_as_the_size_says(case):
    count = sum(p.size for p in case.params.values())
    least, most = {"tiny": (300, 1200), "uneven": (1200, 3000), "large": (20_000, 100_000)}[
        case.size.name
    ]
    assert least <= count <= most


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_tokens_repeat_and_one_is_unused(case):
    tokens = np.atleast_2d(case.inputs["tokens"])
    for sequence in tokens:
        assert np.unique(sequence).size < sequence.size
    assert np.unique(tokens).max() < case.attrs["vocab"] - 1
