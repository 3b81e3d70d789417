"""Gemma: scaled embedding, multi-query attention with half-split RoPE, GeGLU, softcap, bits.

Axes: t positions, c features, h query heads, d features of a head, m hidden features, v tokens.
One sequence of t + 1 tokens; tensors and values bear gemma.cpp's names.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from gradcheck.numerics.draw import Draw
from gradcheck.spec import Array
from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Drawn, Program, Stage
from gradcheck_cases import (
    activation,
    attention,
    elementwise,
    gated,
    indexing,
    linear,
    loss,
    norm,
    position,
    shape,
)
from gradcheck_cases.models.tensors import spread, tokens, weight


def build(*, vocab=7, c=6, heads=2, d=4, hidden=7, layers=2, t=5, context=3):
    return Program(
        params=dict(_params(vocab, c, heads, d, hidden, layers)),
        inputs=_inputs(vocab, d, t),
        stages=tuple(_stages(heads, d, layers, t, context)),
        loss="loss",
    )


def _params(
    vocab: int, c: int, heads: int, d: int, hidden: int, layers: int
) -> Iterator[tuple[str, Drawn]]:
    yield "embedder_input_embedding", weight(vocab, c)
    for at in (f"layers.{layer}" for layer in range(layers)):
        yield f"{at}.pre_attention_norm_scale", spread(c)
        yield f"{at}.qkv_einsum_w", weight((heads + 2) * d, c)
        yield f"{at}.attn_vec_einsum_w", weight(heads, c, d, fan_in=heads * d)
        yield f"{at}.pre_ffw_norm_scale", spread(c)
        yield f"{at}.gating_einsum_w", weight(2 * hidden, c)
        yield f"{at}.linear_w", weight(c, hidden)
    yield "final_norm_scale", spread(c)


def _inputs(vocab: int, d: int, t: int) -> dict[str, Drawn]:
    scale = 1 / math.sqrt(d)
    if math.frexp(scale)[0] != 0.5:
        raise ValueError(f"d = {d}: use a power of 4, as Gemma does, so that 1/sqrt(d) is exact")
    prompt = tokens(vocab, t + 1)(Draw("gemma", "prompt", vocab, t))
    return {
        "tokens": _given(prompt),
        "next_tokens": _given(prompt[1:]),  # of the same prompt, so neither is drawn by its name
        "query_scale": _given(np.array(scale)),
    }


def _given(value: Array) -> Drawn:
    return lambda _: value


def _stages(heads: int, d: int, layers: int, t: int, context: int) -> Iterator[Stage]:
    xs = (*(f"layers.{layer}.input" for layer in range(layers)), "final_layer_output")
    yield Stage(
        name="embedding",
        op=indexing.input_embedding,
        reads=("embedder_input_embedding", "tokens"),
        writes=xs[0],
        attrs={"bf16_scale": True},
    )
    for layer, (x, after) in enumerate(itertools.pairwise(xs)):
        yield from _packed_heads(f"layers.{layer}", x, heads, d, t)
        yield from _attention(f"layers.{layer}", x)
        yield from _feed_forward(f"layers.{layer}", after)
    yield _norm("final_norm", xs[-1], "final_norm_scale", "final_norm_output")
    yield _matmul("unembed", "final_norm_output", "embedder_input_embedding", "raw_logits")
    yield Stage(name="softcap", op=activation.softcap, reads=("raw_logits",), writes="logits")
    yield Stage(name="softmax", op=attention.softmax, reads=("logits",), writes="probs")
    yield Stage(
        name="cross_entropy",
        op=loss.cross_entropy,
        reads=("probs", "next_tokens"),
        writes="loss",
        attrs={"bits": True, "total": True, "context_size": context},
    )


def _packed_heads(at: str, x: str, heads: int, d: int, t: int) -> Iterator[Stage]:
    """From the layer's input to [t, h + 2, d]: queries turned and scaled, key turned, value."""
    yield _norm(
        f"{at}.pre_attention_norm", x, f"{at}.pre_attention_norm_scale", f"{at}.pre_att_rms_out"
    )
    yield _matmul(f"{at}.qkv", f"{at}.pre_att_rms_out", f"{at}.qkv_einsum_w", f"{at}.qkv_flat")
    yield Stage(
        name=f"{at}.heads",
        op=shape.reshape,
        reads=(f"{at}.qkv_flat",),
        writes=f"{at}.qkv_heads",
        attrs={"shape": (t, heads + 2, d)},
    )
    bounds = itertools.pairwise((0, heads, heads + 1, heads + 2))
    for z, (start, stop) in zip("qkv", bounds, strict=True):
        yield Stage(
            name=f"{at}.{z}",
            op=shape.slice_,
            reads=(f"{at}.qkv_heads",),
            writes=f"{at}.{z}",
            attrs={"rows": (start, stop, None)},
        )
    for z in "qk":
        yield Stage(
            name=f"{at}.{z}_rope",
            op=position.rope,
            reads=(f"{at}.{z}",),
            writes=f"{at}.{z}_turned",
            attrs={"half_split": True},
        )
    yield Stage(
        name=f"{at}.q_scale",
        op=elementwise.scale,
        reads=(f"{at}.q_turned", "query_scale"),
        writes=f"{at}.q_scaled",
    )
    yield _joined(f"{at}.qk", f"{at}.q_scaled", f"{at}.k_turned")
    yield _joined(f"{at}.qkv_packed", f"{at}.qk", f"{at}.v")


def _attention(at: str, x: str) -> Iterator[Stage]:
    qkv = f"{at}.qkv_packed"
    yield Stage(
        name=f"{at}.scores",
        op=attention.masked_attention,
        reads=(qkv,),
        writes=f"{at}.scores",
    )
    yield Stage(
        name=f"{at}.softmax",
        op=attention.masked_softmax,
        reads=(f"{at}.scores",),
        writes=f"{at}.att",
    )
    yield Stage(
        name=f"{at}.mix",
        op=attention.mix_by_attention,
        reads=(qkv, f"{at}.att"),
        writes=f"{at}.att_out",
    )
    yield Stage(
        name=f"{at}.attn_vec",
        op=linear.multi_head_matmul,
        reads=(f"{at}.att_out", f"{at}.attn_vec_einsum_w"),
        writes=f"{at}.attn_vec_out",
    )
    yield _residual(f"{at}.residual_attention", x, f"{at}.attn_vec_out", f"{at}.attention_out")


def _feed_forward(at: str, after: str) -> Iterator[Stage]:
    yield _norm(
        f"{at}.pre_ffw_norm",
        f"{at}.attention_out",
        f"{at}.pre_ffw_norm_scale",
        f"{at}.bf_pre_ffw_rms_out",
    )
    yield _matmul(
        f"{at}.gating", f"{at}.bf_pre_ffw_rms_out", f"{at}.gating_einsum_w", f"{at}.ffw_hidden"
    )
    yield Stage(
        name=f"{at}.geglu",
        op=gated.packed_geglu,
        reads=(f"{at}.ffw_hidden",),
        writes=f"{at}.ffw_hidden_gated",
        attrs={"root": gated.ROOT},
    )
    yield _matmul(f"{at}.linear", f"{at}.ffw_hidden_gated", f"{at}.linear_w", f"{at}.ffw_out")
    yield _residual(f"{at}.residual_ffw", f"{at}.attention_out", f"{at}.ffw_out", after)


def _norm(name: str, x: str, w: str, y: str) -> Stage:
    return Stage(
        name=name,
        op=norm.rms_norm,
        reads=(x, w),
        writes=y,
        attrs={"eps": 1e-6, "unit_offset": True},
    )


def _matmul(name: str, x: str, w: str, y: str) -> Stage:
    return Stage(name=name, op=linear.matmul, reads=(x, w), writes=y)


def _joined(name: str, x: str, y: str) -> Stage:
    return Stage(name=name, op=shape.concat, reads=(x, y), writes=name, attrs={"axis": -2})


def _residual(name: str, x: str, y: str, z: str) -> Stage:
    return Stage(name=name, op=elementwise.add, reads=(x, y), writes=z)


GEMMA = ModelSpec(
    name="gemma",
    build=build,
    says="Gemma: scaled embedding, RMSNorm times 1 + w, multi-query attention with half-split "
    "RoPE, GeGLU, tied classifier, softcap 30, summed loss in bits after the context",
    source="Gemma Team 2024, arXiv:2403.08295; gemma.cpp, backprop/backward_scalar.h",
    sizes=(
        Size(
            name="tiny",
            hunts="a tied table that gets one of its two gradients, or one unscaled; the key's "
            "gradient from one head, queries scaled on the way out only, masked positions scored",
        ),
        Size(
            name="uneven",
            attrs={
                "vocab": 13,
                "c": 11,
                "heads": 3,
                "d": 16,
                "hidden": 5,
                "layers": 1,
                "t": 7,
                "context": 0,
            },
            hunts="axes exchanged or strides taken from another one, no context at all",
        ),
        Size(
            name="large",
            attrs={
                "vocab": 101,
                "c": 48,
                "heads": 4,
                "d": 16,
                "hidden": 96,
                "layers": 3,
                "t": 24,
                "context": 8,
            },
            hunts="what only many terms show: sums cut short, blocks and their remainders",
        ),
    ),
)
