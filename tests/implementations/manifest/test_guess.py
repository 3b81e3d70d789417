import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.manifest.guess import operator_of


@pytest.mark.parametrize(
    ("symbol", "operator", "backward"),
    [
        ("rmsnorm_backward", "rms_norm", True),
        ("rms_norm_bwd", "rms_norm", True),
        ("RmsNormBackward", "rms_norm", True),
        ("RMSNorm_backward", "rms_norm", True),
        ("rmsnormbackward", "rms_norm", True),
        ("k_rmsnorm_backward_f32", "rms_norm", True),
        ("softmax_grad", "softmax", True),
        ("grad_softmax", "softmax", True),
        ("softmax_vjp", "softmax", True),
        ("softmax", "softmax", False),
        ("softmax_forward", "softmax", False),
        ("softmax_cross_entropy_backward", "softmax_cross_entropy", True),
        ("crossentropy_softmax_backward", "softmax_cross_entropy", True),
        ("layernormForward", "layer_norm", False),
        ("silu_back", "silu", True),
        ("swish_backward", "silu", True),
        ("residual_backward", "add", True),
        ("conv2d_backward_naive", "conv_2d", True),
        ("leakyReluBackward", "leaky_relu", True),
        ("max_pool2d_backward", "max_pool_2d", True),
        ("groupnrom_backward", "group_norm", True),
    ],
)
def test_the_operator_that_a_name_suggests(symbol, operator, backward):
    named = operator_of(symbol, SUITE.operators)
    assert (named.operator, named.backward) == (operator, backward)


@pytest.mark.parametrize("symbol", ["main", "free_all", "zzz_backward", "backward", "", "_", "a"])
def test_a_name_that_suggests_nothing(symbol):
    assert operator_of(symbol, SUITE.operators) is None


def test_what_else_a_name_says_may_be_a_dialect():
    assert "plain" in operator_of("rmsnorm_plain_backward", SUITE.operators).rest
    assert operator_of("rmsnorm_backward_f32", SUITE.operators).rest == ()
