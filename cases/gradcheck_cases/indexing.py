"""Look-ups by token: encoder, input_embedding.

Axes: v vocabulary, p position table, t positions, n tokens, c features.
"""

from __future__ import annotations

import math

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample

# ── encoder ──────────────────────────────────────────────────────────────────────────────────


def encoder_forward(xp, wte, wpe, tokens):
    return xp.take_rows(wte, tokens) + wpe[..., : tokens.shape[-1], :]


def encoder_vjp(xp, ct, wte, wpe, tokens):
    used, rest = wpe[..., : tokens.shape[-1], :], wpe[..., tokens.shape[-1] :, :]
    dwpe = xp.concatenate([xp.reduce_to(ct, used), xp.zeros_like(rest)], axis=-2)
    return xp.add_rows(ct, tokens, wte), dwpe, None


encoder = OpSpec(
    name="encoder",
    signature="(v,c),(p,c),(t)->(t,c)",
    forward=encoder_forward,
    vjp=encoder_vjp,
    formula=r"y_t = \mathrm{wte}_{\mathrm{token}_t} + \mathrm{wpe}_t",
    source="Radford et al. 2019; openai/gpt-2, src/model.py; llm.go, encoderBackward",
    dialects=(Dialect(name="gpt2", says="GPT-2: token plus learned position"),),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (
                draw.normal(7, 3),
                draw.normal(5, 3),
                draw.permutation(7)[:5],
            ),
            hunts="rows written to the wrong place, tokens that no one used",
        ),
        Sample(
            name="repeated",
            primals=lambda draw: (
                draw.normal(5, 2),
                draw.normal(6, 2),
                np.array([3, 1, 3, 3, 1, 0]),
            ),
            hunts="a repeated token that overwrites instead of accumulating",
        ),
        Sample(
            name="all-same",
            primals=lambda draw: (draw.normal(3, 2), draw.normal(4, 2), np.full(4, 1)),
            hunts="additions lost in a race for one row",
        ),
        Sample(
            name="ends",
            primals=lambda draw: (draw.normal(5, 3), draw.normal(2, 3), np.array([4, 0])),
            hunts="the first or the last row off by one",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3), draw.normal(3, 3), np.array([1, 2, 0])),
            hunts="rows taken for columns, a permutation applied instead of its inverse",
        ),
        Sample(
            name="longer-table",
            primals=lambda draw: (draw.normal(4, 2), draw.normal(7, 2), np.array([2, 0, 2])),
            hunts="positions beyond the sequence without their zero gradient",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (
                draw.normal(5, 2),
                draw.normal(4, 2),
                np.array([[3, 1, 3], [1, 4, 0]]),
            ),
            hunts="the positions' gradient from one sequence instead of the sum over all",
        ),
        Sample(
            name="one-token",
            primals=lambda draw: (draw.normal(3, 1), draw.normal(2, 1), np.array([2])),
            hunts="an axis of size 1 dropped",
        ),
    ),
)

# ── input_embedding ──────────────────────────────────────────────────────────────────────────


def input_embedding_forward(xp, w, tokens, *, bf16_scale=False):
    return xp.take_rows(w, tokens[..., :-1]) * _scale(xp, w, bf16_scale)


def input_embedding_vjp(xp, ct, w, tokens, *, bf16_scale=False):
    return xp.add_rows(ct * _scale(xp, w, bf16_scale), tokens[..., :-1], w), None


def _scale(xp, w, bf16_scale):
    c = w.shape[-1]
    if not bf16_scale:
        return xp.sqrt_of(c)
    mantissa, exponent = math.frexp(math.sqrt(c))  # in [1/2, 1), of which bfloat16 keeps 8 bits
    return math.ldexp(round(mantissa * 256), exponent - 8)


input_embedding = OpSpec(
    name="input_embedding",
    signature="(v,c),(n)->(t,c)",
    forward=input_embedding_forward,
    vjp=input_embedding_vjp,
    formula=r"y_t = \sqrt c\; w_{\mathrm{token}_t},\quad t = 0, \dots, n - 2",
    source="Gemma Team 2024, arXiv:2403.08295; gemma.cpp, backprop/forward_scalar.h",
    dialects=(
        Dialect(name="sqrt", says="Gemma in float32: times the square root of c"),
        Dialect(
            name="bf16-sqrt",
            says="gemma.cpp: times the square root of c rounded to bfloat16",
            attrs={"bf16_scale": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(7, 3), draw.permutation(7)[:5]),
            hunts="a scale missing in backward, the last token used as an input",
        ),
        Sample(
            name="repeated",
            primals=lambda draw: (draw.normal(5, 2), np.array([3, 1, 3, 3, 1, 0])),
            hunts="a repeated token that overwrites instead of accumulating",
        ),
        Sample(
            name="ends",
            primals=lambda draw: (draw.normal(5, 3), np.array([4, 0, 2])),
            hunts="the first or the last row off by one",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), np.array([1, 2, 0, 3, 3])),
            hunts="rows taken for columns, a permutation applied instead of its inverse",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (
                draw.normal(5, 2),
                np.array([[3, 1, 3, 2], [1, 4, 0, 4]]),
            ),
            hunts="the last token dropped from the whole batch instead of each sequence",
        ),
        Sample(
            name="one-feature",
            primals=lambda draw: (draw.normal(3, 1), np.array([2, 0])),
            hunts="an axis of size 1 dropped",
        ),
    ),
)

OPERATORS = (encoder, input_embedding)
