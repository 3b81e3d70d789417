"""A Llama: RMSNorm, causal attention with interleaved RoPE, SwiGLU, a classifier of its own.

Axes: t positions, c features, h heads, d features of a head, m hidden features, v tokens. One
sequence; tensors and values bear the names of the trainer in C that the model follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Drawn, Program, Stage
from gradcheck_cases import (
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
from gradcheck_cases.models.tensors import gain, tokens, weight


def build(*, vocab=7, c=8, heads=2, hidden=11, layers=2, t=5):
    return Program(
        params=dict(_params(vocab, c, hidden, layers)),
        inputs={"tokens": tokens(vocab, t)},
        stages=tuple(_stages(c, heads, layers, t)),
        loss="loss",
    )


def _params(vocab: int, c: int, hidden: int, layers: int) -> Iterator[tuple[str, Drawn]]:
    yield "token_embedding", weight(vocab, c)
    for at in (f"layers.{layer}" for layer in range(layers)):
        yield f"{at}.rms_att_w", gain(c)
        for name in ("wq", "wk", "wv", "wo"):
            yield f"{at}.{name}", weight(c, c)
        yield f"{at}.rms_ffn_w", gain(c)
        yield f"{at}.w1", weight(hidden, c)
        yield f"{at}.w2", weight(c, hidden)
        yield f"{at}.w3", weight(hidden, c)
    yield "rms_final_w", gain(c)
    yield "wcls", weight(vocab, c)


def _stages(c: int, heads: int, layers: int, t: int) -> Iterator[Stage]:
    xs = (*(f"layers.{layer}.x" for layer in range(layers)), "pre_final")
    yield Stage(
        name="embedding", op=indexing.get_rows, reads=("token_embedding", "tokens"), writes=xs[0]
    )
    for layer, (x, after) in enumerate(itertools.pairwise(xs)):
        yield from _attention(f"layers.{layer}", x, c, heads, t)
        yield from _feed_forward(f"layers.{layer}", after)
    yield Stage(name="rms_final", op=norm.rms_norm, reads=(xs[-1], "rms_final_w"), writes="final")
    yield Stage(name="classifier", op=linear.matmul, reads=("final", "wcls"), writes="logits")
    yield Stage(
        name="cross_entropy",
        op=loss.softmax_cross_entropy,
        reads=("logits", "tokens"),
        writes="loss",
        attrs={"next_token": True},
    )


def _attention(at: str, x: str, c: int, heads: int, t: int) -> Iterator[Stage]:
    yield Stage(
        name=f"{at}.rms_att", op=norm.rms_norm, reads=(x, f"{at}.rms_att_w"), writes=f"{at}.xnorm"
    )
    yield _matmul(f"{at}.q", f"{at}.xnorm", f"{at}.wq", f"{at}.q_flat")
    yield _matmul(f"{at}.k", f"{at}.xnorm", f"{at}.wk", f"{at}.k_flat")
    yield _matmul(f"{at}.v", f"{at}.xnorm", f"{at}.wv", f"{at}.v")
    for z in ("q", "k"):
        yield _view(f"{at}.{z}_heads", f"{at}.{z}_flat", (t, heads, c // heads))
        yield Stage(
            name=f"{at}.{z}_rope",
            op=position.rope,
            reads=(f"{at}.{z}_heads",),
            writes=f"{at}.{z}_turned",
        )
        yield _view(f"{at}.{z}", f"{at}.{z}_turned", (t, c))
    yield Stage(
        name=f"{at}.attention",
        op=attention.attention,
        reads=(f"{at}.q", f"{at}.k", f"{at}.v"),
        writes=f"{at}.attn_out",
        attrs={"heads": heads},
    )
    yield _matmul(f"{at}.o", f"{at}.attn_out", f"{at}.wo", f"{at}.o")
    yield _residual(f"{at}.residual_att", x, f"{at}.o", f"{at}.x_att")


def _feed_forward(at: str, after: str) -> Iterator[Stage]:
    yield Stage(
        name=f"{at}.rms_ffn",
        op=norm.rms_norm,
        reads=(f"{at}.x_att", f"{at}.rms_ffn_w"),
        writes=f"{at}.ffn_in",
    )
    yield _matmul(f"{at}.gate", f"{at}.ffn_in", f"{at}.w1", f"{at}.h1")
    yield _matmul(f"{at}.up", f"{at}.ffn_in", f"{at}.w3", f"{at}.h3")
    yield Stage(
        name=f"{at}.swiglu", op=gated.swiglu, reads=(f"{at}.h1", f"{at}.h3"), writes=f"{at}.silu"
    )
    yield _matmul(f"{at}.down", f"{at}.silu", f"{at}.w2", f"{at}.ffn_out")
    yield _residual(f"{at}.residual_ffn", f"{at}.x_att", f"{at}.ffn_out", after)


def _matmul(name: str, x: str, w: str, y: str) -> Stage:
    return Stage(name=name, op=linear.matmul, reads=(x, w), writes=y)


def _view(writes: str, x: str, into: tuple[int, ...]) -> Stage:
    # As a stage it bears the name of what it writes, with a word that tells it from the matmul.
    return Stage(
        name=f"{writes}.view", op=shape.reshape, reads=(x,), writes=writes, attrs={"shape": into}
    )


def _residual(name: str, x: str, y: str, z: str) -> Stage:
    return Stage(name=name, op=elementwise.add, reads=(x, y), writes=z)


LLAMA = ModelSpec(
    name="llama",
    build=build,
    says="a Llama: RMSNorm, causal attention with interleaved RoPE, SwiGLU, a classifier of its "
    "own, mean loss over T - 1 next tokens",
    source="Touvron et al. 2023, arXiv:2302.13971; ANE training/backward.h, whose own backward is "
    "wrong three times",
    sizes=(
        Size(
            name="tiny",
            hunts="a norm fed another value than forward's, norm weights without a gradient, a "
            "residual that passes one way only, tokens that overwrite each other",
        ),
        Size(
            name="uneven",
            attrs={"vocab": 11, "c": 18, "heads": 3, "hidden": 13, "layers": 1, "t": 7},
            hunts="axes exchanged, or strides taken from another one",
        ),
        Size(
            name="large",
            attrs={"vocab": 89, "c": 48, "heads": 4, "hidden": 80, "layers": 3, "t": 24},
            hunts="what only many terms show: sums cut short, blocks and their remainders",
        ),
    ),
)
