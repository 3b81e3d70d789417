"""What the transformers promise of their sizes: moderate values, no dead weight, fair counts."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.numerics.arithmetic import F64

CASES = [c for model in ("gemma", "llama", "gpt2") for c in SUITE.model_cases([model])]


@pytest.mark.slow(keep=2)
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
def test_tokens_repeat_and_one_is_unused(case):
    tokens = np.atleast_2d(case.inputs["tokens"])
    for sequence in tokens:
        assert np.unique(sequence).size < sequence.size
    assert np.unique(tokens).max() < case.attrs["vocab"] - 1


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("model", "op", "attr", "other"),
    [
        ("gemma", "input_embedding", "bf16_scale", False),
        ("gemma", "rms_norm", "eps", 1e-5),
        ("gemma", "rms_norm", "unit_offset", False),
        ("gemma", "rope", "half_split", False),
        ("gemma", "rope", "base", 9999.0),
        ("gemma", "packed_geglu", "root", ""),
        ("gemma", "softcap", "cap", 50.0),
        ("gemma", "cross_entropy", "bits", False),
        ("gemma", "cross_entropy", "context_size", 2),
        ("llama", "rms_norm", "eps", 1e-6),
        ("llama", "rope", "half_split", True),
        ("llama", "rope", "base", 9999.0),
        ("llama", "attention", "causal", False),
        ("llama", "attention", "heads", 1),
        ("gpt2", "layer_norm", "eps", 1e-6),
        ("gpt2", "packed_attention", "heads", 1),
        ("gpt2", "gelu", "form", "erf"),
    ],
)
def test_pytorch_tells_every_constant_from_another(model, op, attr, other, case, fold, by_torch):
    right = case(model, "tiny")
    first = next(stage for stage in right.program.stages if stage.op.name == op)
    assert first.all_attrs[attr] != other
    changed = replace(first, attrs={**first.attrs, attr: other})
    stages = tuple(changed if stage is first else stage for stage in right.program.stages)
    values = replace(right.program, stages=stages).forward(F64, right.given)
    loss, _ = by_torch(right)
    assert abs(values["loss"] - loss) > 2e-14 * abs(loss)
    assert abs(right.program.forward(F64, right.given)["loss"] - loss) <= 2e-15 * abs(loss)
