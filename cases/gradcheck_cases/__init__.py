"""The built-in conformance suite: one module per operator family."""

from __future__ import annotations

from gradcheck.suite import Suite
from gradcheck_cases import (
    attention,
    elementwise,
    gated,
    indexing,
    linear,
    loss,
    norm,
    position,
)

SUITE = Suite(
    "builtin",
    "2026.11",
    (
        # what trainers are made of, in the order of a forward pass
        indexing.encoder,
        indexing.input_embedding,
        norm.rms_norm,
        norm.layer_norm,
        linear.matmul,
        linear.multi_head_matmul,
        position.rope,
        attention.softmax,
        attention.masked_softmax,
        attention.masked_attention,
        attention.mix_by_attention,
        attention.attention,
        attention.packed_attention,
        elementwise.add,
        gated.gelu,
        gated.silu,
        gated.geglu,
        gated.packed_geglu,
        gated.swiglu,
        gated.packed_swiglu,
        elementwise.softcap,
        loss.cross_entropy,
        loss.softmax_cross_entropy,
        # activations
        elementwise.relu,
        elementwise.leaky_relu,
        elementwise.elu,
        elementwise.clamp,
        elementwise.tanh,
        elementwise.sigmoid,
    ),
    peers={"torch": "gradcheck_cases.peers.torch:OPERATORS"},
)

__all__ = ["SUITE"]
