"""GPT-2: encoder, pre-norm blocks of packed attention and a tanh GELU, tied classifier.

Axes: b sequences, t positions, c features, e = 3c of packed q, k and v, m = 4c hidden, v tokens.
Values bear the names of llm.c's activations.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Drawn, Program, Stage
from gradcheck_cases import attention, elementwise, gated, indexing, linear, loss, norm, reduction
from gradcheck_cases.models.tensors import gain, ids, spread, tokens, weight


def build(*, vocab=7, c=6, heads=2, layers=2, batch=2, t=4, positions=4):
    return Program(
        params=dict(_params(vocab, c, layers, positions)),
        inputs={"tokens": tokens(vocab, batch, t), "targets": ids(vocab, batch, t)},
        stages=tuple(_stages(heads, layers)),
        loss="loss",
    )


def _params(vocab: int, c: int, layers: int, positions: int) -> Iterator[tuple[str, Drawn]]:
    yield "wte", weight(vocab, c)
    yield "wpe", spread(positions, c)
    for h in (f"h.{layer}" for layer in range(layers)):
        yield from _affine(f"{h}.ln_1", c)
        yield from _linear(f"{h}.attn.qkv", 3 * c, c)
        yield from _linear(f"{h}.attn.proj", c, c)
        yield from _affine(f"{h}.ln_2", c)
        yield from _linear(f"{h}.mlp.fc", 4 * c, c)
        yield from _linear(f"{h}.mlp.proj", c, 4 * c)
    yield from _affine("ln_f", c)


def _affine(name: str, c: int) -> Iterator[tuple[str, Drawn]]:
    yield f"{name}.w", gain(c)
    yield f"{name}.b", spread(c)


def _linear(name: str, out: int, features: int) -> Iterator[tuple[str, Drawn]]:
    yield f"{name}.w", weight(out, features)
    yield f"{name}.b", spread(out)


def _stages(heads: int, layers: int) -> Iterator[Stage]:
    xs = ("encoded", *(f"h.{layer}.residual3" for layer in range(layers)))
    yield Stage(name="encoder", op=indexing.encoder, reads=("wte", "wpe", "tokens"), writes=xs[0])
    for layer in range(layers):
        yield from _block(f"h.{layer}", xs[layer], heads)
    yield _norm("ln_f", xs[-1], "lnf")
    yield Stage(name="unembed", op=linear.matmul, reads=("lnf", "wte"), writes="logits")
    yield Stage(
        name="cross_entropy",
        op=loss.softmax_cross_entropy,
        reads=("logits", "targets"),
        writes="losses",
    )
    yield Stage(
        name="mean", op=reduction.mean, reads=("losses",), writes="loss", attrs={"axis": (-2, -1)}
    )


def _block(h: str, x: str, heads: int) -> Iterator[Stage]:
    yield _norm(f"{h}.ln_1", x, f"{h}.ln1")
    yield _matmul(f"{h}.attn.qkv", f"{h}.ln1", f"{h}.qkv")
    yield Stage(
        name=f"{h}.attn",
        op=attention.packed_attention,
        reads=(f"{h}.qkv",),
        writes=f"{h}.atty",
        attrs={"heads": heads},
    )
    yield _matmul(f"{h}.attn.proj", f"{h}.atty", f"{h}.attproj")
    yield _residual(f"{h}.residual_1", x, f"{h}.attproj", f"{h}.residual2")
    yield _norm(f"{h}.ln_2", f"{h}.residual2", f"{h}.ln2")
    yield _matmul(f"{h}.mlp.fc", f"{h}.ln2", f"{h}.fch")
    yield Stage(name=f"{h}.mlp.gelu", op=gated.gelu, reads=(f"{h}.fch",), writes=f"{h}.fch_gelu")
    yield _matmul(f"{h}.mlp.proj", f"{h}.fch_gelu", f"{h}.fcproj")
    yield _residual(f"{h}.residual_2", f"{h}.residual2", f"{h}.fcproj", f"{h}.residual3")


def _norm(name: str, x: str, y: str) -> Stage:
    return Stage(name=name, op=norm.layer_norm, reads=(x, f"{name}.w", f"{name}.b"), writes=y)


def _matmul(name: str, x: str, y: str) -> Stage:
    return Stage(name=name, op=linear.matmul, reads=(x, f"{name}.w", f"{name}.b"), writes=y)


def _residual(name: str, x: str, y: str, z: str) -> Stage:
    return Stage(name=name, op=elementwise.add, reads=(x, y), writes=z)


GPT2 = ModelSpec(
    name="gpt2",
    build=build,
    says="GPT-2: learned positions, LayerNorm, packed attention, tanh GELU, tied classifier, "
    "mean loss over batch and time",
    source="Radford et al. 2019; openai/gpt-2, src/model.py; llm.go",
    sizes=(
        Size(
            name="tiny",
            hunts="a tied table that gets one of its two gradients, tokens that overwrite each "
            "other, a residual that passes one way only",
        ),
        Size(
            name="uneven",
            attrs={
                "vocab": 11,
                "c": 10,
                "heads": 5,
                "layers": 1,
                "batch": 3,
                "t": 4,
                "positions": 7,
            },
            hunts="axes exchanged or strides taken from another one, positions past the sequence",
        ),
        Size(
            name="large",
            attrs={
                "vocab": 97,
                "c": 40,
                "heads": 5,
                "layers": 3,
                "batch": 2,
                "t": 12,
                "positions": 16,
            },
            hunts="what only many terms show: sums cut short, blocks and their remainders",
        ),
    ),
)
