from dataclasses import replace

import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64

SIZES = ["tiny", "uneven", "large"]
CALLS = (
    "get_rows rms_norm matmul matmul matmul rope rope attention matmul add "
    "rms_norm matmul matmul swiglu matmul add rms_norm matmul softmax_cross_entropy"
)


def test_it_has_as_many_parameters_as_llama_2_7b(suite, count):
    llama = suite.models["llama"]
    assert count(llama, vocab=32000, c=4096, heads=32, hidden=11008, layers=32) == 6_738_415_616


def test_a_layers_stages_are_the_trainers_list_of_calls(case):
    llama = case("llama", "uneven")
    ops = [s.op.name for s in llama.program.stages if s.op.name != "reshape"]
    assert " ".join(ops) == CALLS
    assert llama.program.stage("layers.0.rms_ffn").reads[0] == "layers.0.x_att"


@pytest.mark.parametrize("size", SIZES)
def test_the_last_row_predicts_nothing_and_gets_no_gradient(case, fold, size):
    llama = case("llama", size)
    cts = fold(llama)
    for name in ("logits", "final", "layers.0.x"):
        assert not cts[name][-1].any()
        assert cts[name][:-1].all()


@pytest.mark.parametrize("size", SIZES)
def test_the_classifier_shifts_all_logits_of_a_row_without_effect(case, fold, size):
    gradient = fold(case("llama", size))["wcls"]
    np.testing.assert_allclose(gradient.sum(axis=0), 0, atol=1e-15)
    assert np.abs(gradient).max() > 1e-2


@pytest.mark.parametrize("size", SIZES)
def test_an_unused_token_has_a_gradient_in_the_classifier_alone(case, fold, size):
    llama = case("llama", size)
    cts, unused = fold(llama), llama.attrs["vocab"] - 1
    assert unused not in llama.inputs["tokens"]
    assert not cts["token_embedding"][unused].any()
    assert cts["wcls"][unused].all()


def test_a_repeated_token_gathers_the_gradients_of_all_its_places(case, fold):
    llama = case("llama", "tiny")
    cts, tokens = fold(llama), llama.inputs["tokens"]
    places = tokens == tokens[0]
    assert places.sum() > 1
    np.testing.assert_allclose(
        cts["token_embedding"][tokens[0]], cts["layers.0.x"][places].sum(axis=0), rtol=1e-14
    )


def test_a_norm_weights_gradient_is_what_its_rows_pass_on(case, fold):
    # y = w · n, so w · dw = Σ_t y · dy: the trainer leaves dw out.
    llama = case("llama", "tiny")
    values, cts = llama.program.forward(F64, llama.given), fold(llama)
    for stage in llama.program.stages:
        if stage.op.name == "rms_norm":
            w, y = stage.reads[1], stage.writes
            expected = (values[y] * cts[y]).sum(axis=0)
            np.testing.assert_allclose(values[w] * cts[w], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("model", ["llama", "gemma"])
def test_positions_count_relative_to_each_other(case, model):
    tiny = case(model, "tiny")
    losses = {}
    for which in ("all", "keys"):
        stages = tuple(
            replace(s, attrs={**s.attrs, "offset": 3})
            if s.op.name == "rope" and (which == "all" or "k_rope" in s.name)
            else s
            for s in tiny.program.stages
        )
        moved = replace(tiny.program, stages=stages)
        losses[which] = moved.forward(F64, tiny.given)["loss"]
    here = tiny.program.forward(F64, tiny.given)["loss"]
    assert abs(losses["all"] - here) <= 1e-14 * abs(here)
    assert abs(losses["keys"] - here) > 1e-4 * abs(here)
