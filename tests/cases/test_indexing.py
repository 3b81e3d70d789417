import numpy as np
import pytest
from gradcheck_cases.indexing import encoder, input_embedding

from gradcheck.arithmetic import F64

ZEROS = np.zeros((5, 1))


def bits(*positions):
    return float(sum(1 << p for p in positions))


def cotangent(*shape):
    """2^i at position i: a sum of them says which positions went in."""
    return np.exp2(np.arange(np.prod(shape))).reshape(*shape, 1)


def test_encoder_adds_every_position_of_a_token_once():
    tokens = np.array([3, 1, 3, 3, 0])
    dwte, dwpe, none = encoder.vjp(F64, cotangent(5), ZEROS, ZEROS, tokens)
    assert dwte.ravel().tolist() == [bits(4), bits(1), 0, bits(0, 2, 3), 0]
    assert dwpe.ravel().tolist() == [bits(p) for p in range(5)]
    assert none is None


def test_encoder_adds_over_the_batch_and_leaves_unused_positions_at_zero():
    tokens = np.array([[3, 1, 3], [1, 4, 0]])
    dwte, dwpe, _ = encoder.vjp(F64, cotangent(2, 3), ZEROS, ZEROS, tokens)
    assert dwte.ravel().tolist() == [bits(5), bits(1, 3), 0, bits(0, 2), bits(4)]
    assert dwpe.ravel().tolist() == [bits(0, 3), bits(1, 4), bits(2, 5), 0, 0]


def test_input_embedding_adds_every_position_of_a_token_but_the_last():
    tokens = np.array([[3, 1, 3, 2], [1, 4, 0, 4]])
    dw, none = input_embedding.vjp(F64, cotangent(2, 3), ZEROS, tokens)
    assert dw.ravel().tolist() == [bits(5), bits(1, 3), 0, bits(0, 2), bits(4)]
    assert none is None


@pytest.mark.parametrize(
    ("c", "bf16_scale", "scale"),
    [
        (3, False, 3**0.5),
        (3, True, 222 / 128),  # bfloat16 keeps eight bits of 1.7320508
        (9, True, 3.0),
        (1023, True, 32.0),  # 31.98 rounds up to a power of two
        (2048, True, 45.25),  # Gemma 2B
    ],
)
def test_input_embedding_scales_both_ways(c, bf16_scale, scale):
    w, tokens = np.ones((2, c)), np.array([1, 0])
    y = input_embedding.forward(F64, w, tokens, bf16_scale=bf16_scale)
    dw, _ = input_embedding.vjp(F64, np.ones((1, c)), w, tokens, bf16_scale=bf16_scale)
    assert np.array_equal(y, np.full((1, c), scale))
    assert np.array_equal(dw, np.array([[0.0], [scale]]) * w)
