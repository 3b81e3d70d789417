"""Baby Llama, ggml's example of training from scratch, with and without low-rank weights.

Axes: b sequences, t positions, c features of h heads of d, f hidden, v tokens. Stages are the
example's own calls: plain rms_norm times a gain, attention taken apart. Its cache of keys and
values is left out: it holds nothing else when a sequence starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradcheck.spec import Array, Dialect, OpSpec
from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Drawn, Program, Stage
from gradcheck_cases import (
    attention,
    elementwise,
    gated,
    indexing,
    linear,
    norm,
    position,
    reduction,
    shape,
)
from gradcheck_cases.models.tensors import gain, spread, weight

EPS = 1e-6
"""Of every norm: fixed in ggml's rms_norm of May 2023, when the example was written."""
LOG_EPS = float(np.float32(1e-3))
"""What the cross-entropy adds to a probability before its logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama:
    """Dimensions; `rank` 0 means whole matrices."""

    vocab: int
    c: int
    heads: int
    hidden: int
    layers: int
    batch: int
    t: int
    rank: int = 0

    def params(self) -> Iterator[tuple[str, Drawn]]:
        """Names and shapes of the example's tensors."""
        yield "tok_embeddings", spread(self.vocab, self.c, scale=1.0)
        for p in (f"layers.{layer}" for layer in range(self.layers)):
            yield f"{p}.attention_norm", gain(self.c)
            for name in ("wq", "wk", "wv", "wo"):
                yield from self.matrix(f"{p}.{name}", self.c, self.c)
            yield f"{p}.ffn_norm", gain(self.c)
            yield from self.matrix(f"{p}.w1", self.hidden, self.c)
            yield from self.matrix(f"{p}.w2", self.c, self.hidden)
            yield from self.matrix(f"{p}.w3", self.hidden, self.c)
        yield "norm", gain(self.c)
        yield from self.matrix("output", self.vocab, self.c)

    def matrix(self, name: str, out: int, features: int) -> Iterator[tuple[str, Drawn]]:
        """A matrix, or the two factors a [out, rank] and b [rank, features] in its place."""
        if self.rank:
            yield f"{name}a", weight(out, self.rank)
            yield f"{name}b", weight(self.rank, features)
        else:
            yield name, weight(out, features)

    def linear(self, name: str, x: str, y: str) -> Stage:
        """A product with the matrix `name`, transposed."""
        if self.rank:
            reads = (x, f"{name}a", f"{name}b")
            return Stage(name=name, op=linear.low_rank_linear, reads=reads, writes=y)
        return Stage(name=name, op=linear.matmul, reads=(x, name), writes=y)

    def stages(self) -> Iterator[Stage]:
        """From the tokens to the logits."""
        yield Stage(
            name="get_rows",
            op=indexing.get_rows,
            reads=("tok_embeddings", "tokens"),
            writes="embedded",
        )
        x = "embedded"
        for p in (f"layers.{layer}" for layer in range(self.layers)):
            yield from _norm(f"{p}.attention_norm", x, f"{p}.normed")
            yield from self.attention(p)
            yield self.linear(f"{p}.wo", f"{p}.merged", f"{p}.attended")
            yield _op(f"{p}.attention.add", elementwise.add, f"{p}.attended", x, f"{p}.ffn_in")
            yield from _norm(f"{p}.ffn_norm", f"{p}.ffn_in", f"{p}.ffn_normed")
            yield self.linear(f"{p}.w3", f"{p}.ffn_normed", f"{p}.up")
            yield self.linear(f"{p}.w1", f"{p}.ffn_normed", f"{p}.gate")
            yield _op(f"{p}.silu", gated.silu, f"{p}.gate", f"{p}.opened")
            yield _op(f"{p}.mul", elementwise.mul, f"{p}.opened", f"{p}.up", f"{p}.gated")
            yield self.linear(f"{p}.w2", f"{p}.gated", f"{p}.ffn_out")
            yield _op(f"{p}.ffn.add", elementwise.add, f"{p}.ffn_out", f"{p}.ffn_in", f"{p}.out")
            x = f"{p}.out"
        yield from _norm("norm", x, "normed")
        yield self.linear("output", "normed", "logits")

    def attention(self, p: str) -> Iterator[Stage]:
        """From the normalised input to the heads' outputs side by side."""
        d = self.c // self.heads
        for name in ("q", "k"):
            yield self.linear(f"{p}.w{name}", f"{p}.normed", f"{p}.{name}")
            yield Stage(
                name=f"{p}.{name}.reshape",
                op=shape.reshape,
                reads=(f"{p}.{name}",),
                writes=f"{p}.{name}.heads",
                attrs={"shape": (self.batch, self.t, self.heads, d)},
            )
            yield _op(f"{p}.{name}.rope", position.rope, f"{p}.{name}.heads", f"{p}.{name}.turned")
            yield _heads_first(f"{p}.{name}.permute", f"{p}.{name}.turned", f"{p}.{name}.rows")
        yield self.linear(f"{p}.wv", f"{p}.normed", f"{p}.v")
        yield _op(f"{p}.v.transpose", shape.transpose, f"{p}.v", f"{p}.v.columns")
        yield Stage(
            name=f"{p}.v.reshape",
            op=shape.reshape,
            reads=(f"{p}.v.columns",),
            writes=f"{p}.v.heads",
            attrs={"shape": (self.batch, self.heads, d, self.t)},
        )
        yield _op(f"{p}.kq", linear.mul_mat, f"{p}.k.rows", f"{p}.q.rows", f"{p}.scores")
        yield _op(f"{p}.kq.scale", elementwise.scale, f"{p}.scores", "kq_scale", f"{p}.scaled")
        yield _op(f"{p}.kq.mask", position.diag_mask_inf, f"{p}.scaled", f"{p}.masked")
        yield _op(f"{p}.kq.soft_max", attention.softmax, f"{p}.masked", f"{p}.weights")
        yield _op(f"{p}.kqv", linear.mul_mat, f"{p}.v.heads", f"{p}.weights", f"{p}.mixed")
        yield _heads_first(f"{p}.kqv.permute", f"{p}.mixed", f"{p}.mixed.rows")
        yield Stage(
            name=f"{p}.kqv.reshape",
            op=shape.reshape,
            reads=(f"{p}.mixed.rows",),
            writes=f"{p}.merged",
            attrs={"shape": (self.t, self.c)},
        )

    def program(self, cross_entropy: bool) -> Program:
        """The model and its loss: against +1 at the next token and −1 everywhere else."""
        d = self.c // self.heads
        wave = _sine(self.vocab, self.batch, self.t)
        wanted = 2.0 * (wave[:, 1:, None] == np.arange(self.vocab)) - 1.0
        inputs = {
            "tokens": wave[:, :-1],
            "targets": wanted,
            "kq_scale": np.array(np.float32(1 / math.sqrt(d))),
        }
        if cross_entropy:
            inputs["log_eps"] = np.array(LOG_EPS)
        return Program(
            params=dict(self.params()),
            inputs={name: _fixed(value) for name, value in inputs.items()},
            stages=(*self.stages(), *(_cross_entropy() if cross_entropy else _square_error())),
            loss="loss",
        )


def _op(name: str, op: OpSpec, *values: str) -> Stage:
    """A stage that reads all `values` but the last one, which it writes."""
    return Stage(name=name, op=op, reads=values[:-1], writes=values[-1])


def _norm(name: str, x: str, y: str) -> Iterator[Stage]:
    """rms_norm without a gain, then times the gain."""
    yield Stage(
        name=f"{name}.rms",
        op=norm.rms_norm,
        reads=(x,),
        writes=f"{name}.unit",
        attrs={"eps": EPS},
    )
    yield _op(f"{name}.mul", elementwise.mul, f"{name}.unit", name, y)


def _heads_first(name: str, x: str, y: str) -> Stage:
    """Exchanges the axes of heads and positions."""
    attrs = {"axes": (0, 2, 1, 3), "form": "destination"}
    return Stage(name=name, op=shape.permute, reads=(x,), writes=y, attrs=attrs)


def _fixed(value: Array) -> Drawn:
    return lambda draw: value


def _sine(vocab: int, batch: int, t: int) -> Array:
    """Tokens [b, t + 1] of the example: 0, then half a sine wave that starts at phase k."""
    k, i = np.arange(batch)[:, None], np.arange(1, t + 1)
    heights = (np.sin(k + i * 3.14159 / t) + 1) / 2  # the example's π keeps off the whole numbers
    ids = np.clip(1 + np.floor(heights * (vocab - 1)), 1, vocab - 1).astype(np.int64)
    return np.concatenate([np.zeros((batch, 1), np.int64), ids], axis=1)


def _square_error() -> Iterator[Stage]:
    yield _op("loss.sub", elementwise.sub, "targets", "logits", "errors")
    yield _op("loss.sqr", elementwise.sqr, "errors", "squares")
    yield _op("loss.sum", reduction.sum_all, "squares", "loss")


def _cross_entropy() -> Iterator[Stage]:
    yield _op("loss.wanted", attention.softmax, "targets", "wanted")
    yield _op("loss.soft_max", attention.softmax, "logits", "probabilities")
    yield _op("loss.add1", elementwise.add1, "probabilities", "log_eps", "above_zero")
    yield _op("loss.log", elementwise.log, "above_zero", "log_p")
    yield _op("loss.mul", elementwise.mul, "wanted", "log_p", "products")
    yield _op("loss.sum_rows", reduction.sum_rows, "products", "rows")
    yield _op("loss.neg", elementwise.neg, "rows", "losses")
    yield _op("loss.sum", reduction.sum_all, "losses", "loss")


def build(
    *, vocab=7, c=8, heads=2, hidden=6, layers=2, batch=2, t=4, cross_entropy=False
) -> Program:
    whole = Llama(vocab=vocab, c=c, heads=heads, hidden=hidden, layers=layers, batch=batch, t=t)
    return whole.program(cross_entropy)


def build_lora(
    *, vocab=7, c=8, heads=2, hidden=6, layers=2, batch=2, t=4, rank=3, cross_entropy=False
) -> Program:
    low = Llama(
        vocab=vocab, c=c, heads=heads, hidden=hidden, layers=layers, batch=batch, t=t, rank=rank
    )
    return low.program(cross_entropy)


LOSSES = (
    Dialect(
        name="square_error",
        says="the sum of (target - logit)^2, targets -1 and +1: what the example trains with",
    ),
    Dialect(
        name="cross_entropy",
        says="the sum of -softmax(targets) ln(softmax(logits) + 0.001), its other loss",
        attrs={"cross_entropy": True},
    ),
)
UNEVEN = {"vocab": 11, "c": 6, "heads": 3, "hidden": 5, "layers": 1, "batch": 3, "t": 5}
LARGE = {"vocab": 23, "c": 32, "heads": 8, "hidden": 86, "layers": 2, "batch": 3, "t": 8}
SOURCE = "ggml's baby-llama, named in the commit log of ggml.h; Touvron et al. 2023"

BABY_LLAMA = ModelSpec(
    name="baby_llama",
    build=build,
    says="a small Llama that learns a sine wave: rms_norm times a gain, interleaved RoPE, causal "
    "attention call by call, SiLU gate, separate output matrix",
    source=SOURCE,
    dialects=LOSSES,
    sizes=(
        Size(
            name="tiny",
            hunts="heads or positions exchanged, hidden scores with a gradient, a gain's gradient "
            "of one sequence alone",
        ),
        Size(name="uneven", attrs=UNEVEN, hunts="axes exchanged or strides taken from another"),
        Size(
            name="large",
            attrs=LARGE,
            hunts="what only many terms show: sums cut short, blocks and their remainders",
        ),
    ),
)

BABY_LLAMA_LORA = ModelSpec(
    name="baby_llama_lora",
    build=build_lora,
    says="baby_llama with a product A B of low rank in place of every big matrix",
    source=SOURCE,
    dialects=LOSSES,
    sizes=(
        Size(
            name="tiny",
            hunts="the factors' gradients exchanged, or one of them without the other factor",
        ),
        Size(
            name="uneven",
            attrs={**UNEVEN, "rank": 7},
            hunts="a rank above the width, taken for the smaller of the two",
        ),
        Size(
            name="large",
            attrs={**LARGE, "c": 48, "hidden": 128, "rank": 16},
            hunts="what only many terms show: sums cut short, blocks and their remainders",
        ),
    ),
)
