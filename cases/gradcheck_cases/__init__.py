"""The built-in conformance suite: one module per operator family, imported when it is asked for."""

from __future__ import annotations

from gradcheck.spec.lazy_specs import Families
from gradcheck.spec.suite import Suite

OPERATORS = {
    "indexing": "encoder input_embedding get_rows get_rows_back gather scatter_add",
    "shape": (
        "dup cpy cont reshape transpose permute concat diag view_1d view_2d view_3d "
        "view_4d set set_1d set_2d acc pad slice flip tril triu where"
    ),
    "linear": (
        "matmul multi_head_matmul mul_mat outer_product batched_matmul low_rank_linear lora_linear"
    ),
    "norm": ("rms_norm layer_norm norm rms_norm_back group_norm batch_norm l2_normalize qk_norm"),
    "reduction": (
        "sum sum_rows mean repeat max prod logsumexp cumsum cumprod sort top_k variance l2_norm"
    ),
    "position": "rope rope_back alibi diag_mask_inf diag_mask_zero",
    "attention": (
        "softmax masked_softmax masked_attention mix_by_attention attention "
        "packed_attention flash_attn flash_ff grouped_query_attention "
        "sliding_window_attention sink_attention softcapped_attention"
    ),
    "elementwise": (
        "add sub mul div add1 scale neg sqr exp sqrt log abs sgn step pow map_unary map_binary"
    ),
    "activation": (
        "relu leaky_relu elu clamp tanh tanh_back sigmoid sigmoid_back softcap "
        "softcap_back softplus mish hardswish hardsigmoid relu_squared dropout"
    ),
    "gated": "gelu silu silu_back geglu packed_geglu swiglu packed_swiglu",
    "convolution": (
        "conv_1d_1s conv_1d_2s conv_2d depthwise_conv_2d conv_transpose_1d "
        "conv_transpose_2d im2col max_pool_2d avg_pool_2d upscale"
    ),
    "recurrent": ("selective_scan wkv wkv6 linear_attention gated_delta_rule lstm_cell gru_cell"),
    "moe": "moe",
    "loss": (
        "cross_entropy softmax_cross_entropy label_smoothing_cross_entropy "
        "masked_cross_entropy z_loss square_error huber hinge binary_cross_entropy "
        "kl_divergence"
    ),
}
"""By family, in the order in which reports show them: each module's `OPERATORS`."""

MODELS = {
    "models": (
        "quadratic test_opt linear_regression svm gemma llama gpt2 baby_llama "
        "baby_llama_lora mnist_fc mnist_cnn"
    ),
}
RULES = {
    "optimizer": "sgd adam adamw clip_norm lbfgs",
}

SUITE = Suite(
    "builtin",
    "2026.11.1",
    Families(__name__, "OPERATORS", OPERATORS),
    peers={
        "torch": "gradcheck_cases.peers.torch:COUNTERPARTS",
        "jax": "gradcheck_cases.peers.jax:OPERATORS",
    },
    mutants={
        op: f"{__name__}.mutants.{family}:MUTANTS"
        for family, words in OPERATORS.items()
        for op in words.split()
    },
    models=Families(__name__, "MODELS", MODELS),
    faults="gradcheck_cases.faults:FAULTS",
    contract_mutants="gradcheck_cases.mutants.contract:MUTANTS",
    rules=Families(__name__, "RULES", RULES),
    rule_mutants="gradcheck_cases.mutants.optimizer:RULE_MUTANTS",
)

__all__ = ["SUITE"]
