"""The registry against the project's own list of what it must hold."""

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import gradcheck_cases
import pytest

from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan

SUITE = gradcheck_cases.SUITE
FOLDER = Path(gradcheck_cases.__file__).with_name("catalogue")
FILES = {path.stem: tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml"))}
MODELS, RULES = FILES.pop("models"), FILES.pop("rules")  # the others are families of operators
LIST = {
    name: {**row, "family": family} for family, rows in FILES.items() for name, row in rows.items()
}
SEEDS = {"gemma", "ane", "ggml", "llmgo", "pr921", "beyond"}


def test_an_operator_has_the_dialects_kinks_and_family_listed_and_no_others():
    registered = {
        name: (spec.family, [d.name for d in spec.dialects], [k.name for k in spec.kinks])
        for name, spec in SUITE.operators.items()
    }
    listed = {
        name: (row["family"], row["dialects"], row.get("kinks", [])) for name, row in LIST.items()
    }
    assert registered == listed


def test_the_hard_points_listed_are_among_the_samples():
    for name, row in LIST.items():
        samples = {sample.name for sample in SUITE.operators[name].samples}
        assert set(row.get("samples", [])) <= samples, name


def test_the_list_itself_holds_what_was_asked_for():
    # Written out once more, by hand, from the requirements: the list cannot shrink unnoticed.
    asked = """
        add sub mul div add1 scale neg sqr exp sqrt log abs sgn step relu leaky_relu elu clamp tanh
        tanh_back sigmoid sigmoid_back gelu silu silu_back softcap softcap_back geglu packed_geglu
        swiglu packed_swiglu map_unary map_binary softplus mish hardswish hardsigmoid relu_squared
        pow dropout

        sum sum_rows mean repeat max prod logsumexp cumsum cumprod sort top_k variance l2_norm norm
        layer_norm rms_norm rms_norm_back group_norm batch_norm l2_normalize qk_norm

        matmul mul_mat multi_head_matmul outer_product batched_matmul low_rank_linear lora_linear

        dup cpy cont reshape transpose permute concat diag view_1d view_2d view_3d view_4d set
        set_1d set_2d acc get_rows get_rows_back encoder input_embedding pad slice flip gather
        scatter_add tril triu where

        rope rope_back alibi diag_mask_inf diag_mask_zero softmax masked_attention masked_softmax
        mix_by_attention packed_attention attention flash_attn flash_ff grouped_query_attention
        sliding_window_attention sink_attention softcapped_attention

        conv_1d_1s conv_1d_2s im2col conv_2d max_pool_2d avg_pool_2d upscale conv_transpose_1d
        conv_transpose_2d depthwise_conv_2d

        cross_entropy softmax_cross_entropy square_error label_smoothing_cross_entropy
        masked_cross_entropy z_loss kl_divergence binary_cross_entropy hinge huber

        selective_scan wkv linear_attention gated_delta_rule lstm_cell gru_cell moe
    """
    assert set(asked.split()) <= set(LIST)
    assert len(LIST["rms_norm"]["dialects"]) == 3
    assert len(LIST["rope"]["dialects"]) == 2
    assert {"tanh", "erf", "quick", "gemma"} <= set(LIST["gelu"]["dialects"])
    assert {"nats", "bits"} <= set(LIST["cross_entropy"]["dialects"])
    assert "unsolved" in LIST["rms_norm"]["samples"]


def test_a_row_has_known_keys_and_says_where_the_operator_comes_from():
    for name, row in LIST.items():
        required = {"family", "seeds", "dialects"}
        assert required <= set(row) <= required | {"kinks", "samples"}, name
        assert set() < set(row["seeds"]) <= SEEDS, name


def test_every_seed_is_represented():
    assert {seed for row in LIST.values() for seed in row["seeds"]} == SEEDS


def test_the_unsolved_case_is_the_one_that_was_given_up_on():
    (case,) = SUITE.cases(["rms_norm"], samples=["unsolved"])
    assert case.dialect.name == "plain"
    assert case.attrs["eps"] == 1e-6
    assert [p.shape for p in case.primals] == [(1, 1)]
    assert f"{case.primals[0].item():.6f}" == "0.000153"  # as far as the log tells


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.001, "fail"), (0.999, "fail")])
def test_the_unsolved_case_is_solved(monkeypatch, dtype, factor, verdict):
    (case,) = SUITE.cases(["rms_norm"], samples=["unsolved"])

    def vjp(ct, x):
        return factor * case.spec.vjp(FLOATS[dtype], ct, x, **case.attrs)

    monkeypatch.setitem(sys.modules, "user", SimpleNamespace(IMPL={"rms_norm/plain": {"vjp": vjp}}))
    plan = Plan(suite=SUITE, cases=[case], implementations=["user:IMPL"], dtypes=[dtype], seed=0,
                contract=False)  # fmt: skip
    (result,) = execute(plan).results
    assert (result.finding.name, result.finding.verdict) == ("x", verdict)
    # Beside it, in float32, the truth is known as well as float64's bound of 1e-8 confirms it.
    bar = {"float64": 1e-8, "float32": 1.1e-8}[dtype]
    assert result.finding.top.error_bar < bar * abs(result.finding.top.want)
    assert result.finding.top.bound < 5e-4 * abs(result.finding.top.want)


# ── models ───────────────────────────────────────────────────────────────────────────────────


def test_the_models_listed_are_those_registered():
    assert sorted(MODELS) == sorted(SUITE.models)


def test_a_model_has_the_dialects_and_sizes_listed_and_no_others():
    for name, spec in SUITE.models.items():
        row = MODELS[name]
        assert row["dialects"] == [d.name for d in spec.dialects], name
        assert row["sizes"] == [s.name for s in spec.sizes], name
        assert row.get("at_kink", []) == [s.name for s in spec.sizes if s.at_kink], name


def test_the_list_of_models_itself_holds_what_was_asked_for():
    # Once more by hand, as above.
    asked = """
        quadratic test_opt linear_regression svm gemma llama gpt2 baby_llama baby_llama_lora
        mnist_fc mnist_cnn
    """
    assert set(asked.split()) <= set(MODELS)
    for name in ("baby_llama", "baby_llama_lora"):
        assert MODELS[name]["dialects"] == ["square_error", "cross_entropy"]
    assert all({"tiny", "uneven"} <= set(row["sizes"]) for row in MODELS.values())
    assert "blank" in MODELS["mnist_cnn"]["sizes"]


def test_a_row_of_a_model_has_known_keys_and_says_where_it_comes_from():
    for name, row in MODELS.items():
        required = {"seeds", "dialects", "sizes"}
        assert required <= set(row) <= required | {"at_kink"}, name
        assert set() < set(row["seeds"]) <= SEEDS, name


def test_every_seed_has_a_model():
    assert {seed for row in MODELS.values() for seed in row["seeds"]} == SEEDS - {"beyond"}


# ── update rules ─────────────────────────────────────────────────────────────────────────────


def test_the_rules_listed_are_those_registered_and_those_that_were_asked_for():
    assert list(RULES) == list(SUITE.rules)
    assert set(RULES) == {"sgd", "adam", "adamw", "clip_norm", "lbfgs"}


def test_a_rule_has_the_dialects_and_the_hard_points_listed():
    for name, spec in SUITE.rules.items():
        row = RULES[name]
        assert row["dialects"] == [d.name for d in spec.dialects], name
        assert set(row["samples"]) <= {s.name for s in spec.samples}, name
        assert set(row["seeds"]) <= SEEDS, name
