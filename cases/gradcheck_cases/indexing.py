"""Rows and elements by index: embeddings, get_rows, gather, scatter_add.

Axes: v vocabulary (rows of a table), p position table, t positions, n tokens, c features;
(r, q) a source and (i, j) an index, which may be smaller.
"""

from __future__ import annotations

import math
from typing import Any

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
        Sample(
            name="empty",
            primals=lambda draw: (draw.normal(3, 2), draw.normal(4, 2), draw.permutation(0)),
            hunts="no token at all: gradients left unwritten instead of zero",
        ),
        Sample(
            name="far",
            primals=lambda draw: (
                draw.normal(263, 1),
                draw.normal(71, 1),
                np.concatenate([[258, 2, 258, 262, 6, 2], draw.integers(0, 263, 59), [6, 258]]),
            ),
            hunts="a table's rows numbered in one byte, repeats that lie far apart or in "
            "another block of positions",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(3, 131), draw.normal(5, 131), np.array([2, 0, 2])),
            hunts="columns behind 64 or 128 that no thread reads",
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
        Sample(
            name="empty",
            primals=lambda draw: (draw.normal(4, 3), np.array([2])),
            hunts="a sequence of one token, whose last is no input: nothing to look up",
        ),
        Sample(
            name="far",
            primals=lambda draw: (
                draw.normal(263, 1),
                np.concatenate([[258, 2, 258, 262, 6, 2], draw.integers(0, 263, 59), [6, 258]]),
            ),
            dialects=("sqrt",),
            hunts="a table's rows numbered in one byte, repeats that lie far apart or in "
            "another block of positions",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(3, 131), np.array([2, 0, 2])),
            dialects=("sqrt",),
            hunts="columns behind 64 or 128 that no thread reads",
        ),
    ),
)

# ── get_rows ─────────────────────────────────────────────────────────────────────────────────


def get_rows_forward(xp, x, rows):
    return xp.take_rows(x, rows)


def get_rows_vjp(xp, ct, x, rows):
    return xp.add_rows(ct, rows, x), None


get_rows = OpSpec(
    name="get_rows",
    signature="(v,c),(t)->(t,c)",
    forward=get_rows_forward,
    vjp=get_rows_vjp,
    formula=r"y_t = x_{\mathrm{row}_t}",
    source="ggml, ggml_get_rows; torch.nn.functional.embedding",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(7, 3), draw.permutation(7)[:5]),
            hunts="rows written to the wrong place, rows that no one used",
        ),
        Sample(
            name="repeated",
            primals=lambda draw: (draw.normal(5, 2), np.array([3, 1, 3, 3, 1, 0, 3])),
            hunts="a repeated row that overwrites instead of accumulating",
        ),
        Sample(
            name="all-same",
            primals=lambda draw: (draw.normal(3, 2), np.full(4, 1)),
            hunts="additions lost in a race for one row",
        ),
        Sample(
            name="cycle",  # a permutation that is not its own inverse
            primals=lambda draw: (draw.normal(4, 4), np.array([1, 2, 3, 0])),
            hunts="rows gathered where they must be scattered, rows taken for columns",
        ),
        Sample(
            name="reversed",
            primals=lambda draw: (draw.normal(5, 2), np.array([4, 3, 2, 1, 0])),
            hunts="the order of positions where that of rows is meant",
        ),
        Sample(
            name="more-than-rows",
            primals=lambda draw: (draw.normal(2, 3), np.array([0, 1, 1, 0, 1, 1, 0])),
            hunts="a loop over rows of the table where positions are meant",
        ),
        Sample(
            name="ends",
            primals=lambda draw: (draw.normal(5, 3), np.array([4, 0])),
            hunts="the first or the last row off by one",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(5, 2), np.array([[3, 1, 3], [1, 4, 0]])),
            hunts="one batch entry instead of the sum over all",
        ),
        Sample(
            name="one-column",
            primals=lambda draw: (draw.normal(3, 1), np.array([2, 2])),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (draw.normal(3, 2), draw.permutation(0)),
            hunts="no row at all: a gradient left unwritten instead of zero",
        ),
        Sample(
            name="far",
            primals=lambda draw: (
                draw.normal(263, 1),
                np.concatenate([[258, 2, 258, 262, 6, 2], draw.integers(0, 263, 59), [6, 258]]),
            ),
            hunts="a table's rows numbered in one byte, repeats that lie far apart or in "
            "another block of positions",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(3, 131), np.array([2, 0, 2])),
            hunts="columns behind 64 or 128 that no thread reads",
        ),
        Sample(
            name="many",
            primals=lambda draw: (draw.normal(2, 1), np.zeros(2311, dtype=np.int64)),
            hunts="a row's gradient summed in float16 or bfloat16, which stops at 2048 or 256 "
            "equal terms",
        ),
    ),
)

# ── get_rows_back ────────────────────────────────────────────────────────────────────────────


def get_rows_back_forward(xp, g, rows, *, n_rows=5):
    columns = xp.scatter_add(xp.swapaxes(g, -1, -2), rows, n_rows)
    return xp.swapaxes(columns, -1, -2)


def get_rows_back_vjp(xp, ct, g, rows, *, n_rows=5):
    return xp.take_rows(ct, rows), None


get_rows_back = OpSpec(
    name="get_rows_back",
    signature="(t,c),(t)->(v,c)",
    forward=get_rows_back_forward,
    vjp=get_rows_back_vjp,
    formula=r"y_v = \sum_{t:\,\mathrm{row}_t = v} g_t",
    source="ggml, ggml_get_rows_back",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 2), np.array([4, 1, 2])),
            hunts="a scatter where its transpose, a gather, is meant",
        ),
        Sample(
            name="repeated",
            primals=lambda draw: (draw.normal(7, 2), np.array([3, 1, 3, 3, 1, 0, 3])),
            hunts="the cotangent of a shared row given to one of its positions, or divided",
        ),
        Sample(
            name="all-same",
            primals=lambda draw: (draw.normal(4, 3), np.full(4, 1)),
            hunts="a sum over the positions that share a row",
        ),
        Sample(
            name="cycle",  # a permutation that is not its own inverse
            primals=lambda draw: (draw.normal(4, 4), np.array([1, 2, 3, 0])),
            attrs={"n_rows": 4},
            hunts="the inverse permutation, rows taken for columns",
        ),
        Sample(
            name="ends",
            primals=lambda draw: (draw.normal(2, 3), np.array([6, 0])),
            attrs={"n_rows": 7},
            hunts="the first or the last row off by one",
        ),
        Sample(
            name="few-rows",
            primals=lambda draw: (draw.normal(5, 2), np.array([0, 1, 1, 0, 1])),
            attrs={"n_rows": 2},
            hunts="a loop over rows of the result where positions are meant",
        ),
        Sample(
            name="one-column",
            primals=lambda draw: (draw.normal(2, 1), np.array([2, 2])),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 2)), draw.permutation(0)),
            hunts="nothing to add: a table of zeros, a gradient without elements",
        ),
        Sample(
            name="far",
            primals=lambda draw: (
                draw.normal(67, 1),
                np.concatenate([[258, 2, 258, 262, 6, 2], draw.integers(0, 263, 59), [6, 258]]),
            ),
            attrs={"n_rows": 263},
            hunts="a table's rows numbered in one byte, repeats that lie far apart or in "
            "another block of positions",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(3, 131), np.array([2, 0, 2])),
            hunts="columns behind 64 or 128 that no thread reads",
        ),
    ),
)

# ── gather ───────────────────────────────────────────────────────────────────────────────────


def gather_forward(xp, x, index, *, axis=-1):
    return xp.take_along(_front(x, index, axis), index, axis)


def gather_vjp(xp, ct, x, index, *, axis=-1):
    return xp.add_along(ct, index, x, axis), None


def _front(x: Any, index: Any, axis: int) -> Any:
    """The part of `x[…, r, q]` that `index[…, i, j]` can reach: its first rows or columns."""
    rows, columns = index.shape[-2:]
    return x[..., :rows, :] if axis == -1 else x[..., :, :columns]


gather = OpSpec(
    name="gather",
    signature="(r,q),(i,j)->(i,j)",
    forward=gather_forward,
    vjp=gather_vjp,
    formula=r"y_{ij} = x_{i,\,\mathrm{index}_{ij}}\ (\mathrm{axis} = -1),\quad "
    r"x_{\mathrm{index}_{ij},\,j}\ (\mathrm{axis} = -2)",
    source="torch.gather; numpy.take_along_axis",
    dialects=(
        Dialect(name="along-columns", says="torch.gather(x, -1, index): one look-up per row"),
        Dialect(
            name="along-rows",
            says="torch.gather(x, -2, index): one look-up per column",
            attrs={"axis": -2},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.integers(0, 3, 3, 5)),
            hunts="the other axis, elements that no one used",
        ),
        Sample(
            name="repeated",
            primals=lambda draw: (draw.normal(3, 3), np.array([[1, 1, 1], [0, 2, 0], [1, 1, 0]])),
            hunts="a repeated element that overwrites instead of accumulating",
        ),
        Sample(
            name="cycles",
            primals=lambda draw: (draw.normal(3, 3), np.array([[1, 2, 0], [2, 0, 1], [0, 1, 2]])),
            hunts="a permutation applied instead of its inverse, the index transposed",
        ),
        Sample(
            name="smaller-index",
            primals=lambda draw: (draw.normal(5, 7), draw.integers(0, 5, 2, 3)),
            hunts="offsets from the index's strides where those of x are meant",
        ),
        Sample(
            name="wider-along-columns",
            primals=lambda draw: (draw.normal(3, 2), draw.integers(0, 2, 3, 7)),
            dialects=("along-columns",),
            hunts="a loop over x where the index is longer",
        ),
        Sample(
            name="wider-along-rows",
            primals=lambda draw: (draw.normal(2, 3), draw.integers(0, 2, 7, 3)),
            dialects=("along-rows",),
            hunts="a loop over x where the index is longer",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 4), draw.integers(0, 3, 2, 3, 4)),
            hunts="the axis counted from the front, elements of another batch entry",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1), np.array([[0]])),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (draw.normal(3, 5), draw.integers(0, 3, 0, 0)),
            hunts="an empty index: a gradient left unwritten instead of zero",
        ),
        Sample(
            name="far",
            primals=lambda draw: (
                draw.normal(1, 263),
                np.concatenate([[258, 2, 258, 262, 6, 2], draw.integers(0, 263, 59), [6, 258]])[
                    None
                ],
            ),
            dialects=("along-columns",),
            hunts="a table's rows numbered in one byte, repeats that lie far apart or in "
            "another block of positions",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(131, 3), draw.integers(0, 3, 131, 2)),
            dialects=("along-columns",),
            hunts="rows behind 64 or 128 that no thread reads",
        ),
    ),
)

# ── scatter_add ──────────────────────────────────────────────────────────────────────────────


def scatter_add_forward(xp, x, index, src, *, axis=-1):
    return x + xp.add_along(src, index, x, axis)


def scatter_add_vjp(xp, ct, x, index, src, *, axis=-1):
    return ct, None, xp.take_along(_front(ct, index, axis), index, axis)


scatter_add = OpSpec(
    name="scatter_add",
    signature="(r,q),(i,j),(i,j)->(r,q)",
    forward=scatter_add_forward,
    vjp=scatter_add_vjp,
    formula=r"y_{rq} = x_{rq} + \sum_{j:\,\mathrm{index}_{rj} = q} \mathrm{src}_{rj}\ "
    r"(\mathrm{axis} = -1)",
    source="torch.scatter_add; jax.numpy.ndarray.at[].add",
    dialects=(
        Dialect(name="along-columns", says="torch.scatter_add(x, -1, index, src)"),
        Dialect(
            name="along-rows",
            says="torch.scatter_add(x, -2, index, src)",
            attrs={"axis": -2},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (
                draw.normal(3, 5),
                draw.integers(0, 3, 3, 5),
                draw.normal(3, 5),
            ),
            hunts="dx and dsrc exchanged, the other axis",
        ),
        Sample(
            name="repeated",
            primals=lambda draw: (
                draw.normal(3, 3),
                np.array([[1, 1, 1], [0, 2, 0], [1, 1, 0]]),
                draw.normal(3, 3),
            ),
            hunts="dx set to 0 where it was added to, as if it had been overwritten",
        ),
        Sample(
            name="cycles",
            primals=lambda draw: (
                draw.normal(3, 3),
                np.array([[1, 2, 0], [2, 0, 1], [0, 1, 2]]),
                draw.normal(3, 3),
            ),
            hunts="a scatter of the cotangent where its transpose, a gather, is meant",
        ),
        Sample(
            name="smaller-index",
            primals=lambda draw: (
                draw.normal(5, 7),
                draw.integers(0, 5, 2, 3),
                draw.normal(2, 3),
            ),
            hunts="offsets from the index's strides where those of x are meant",
        ),
        Sample(
            name="wider-along-columns",
            primals=lambda draw: (
                draw.normal(3, 2),
                draw.integers(0, 2, 3, 7),
                draw.normal(3, 7),
            ),
            dialects=("along-columns",),
            hunts="a gradient of src in the shape of x",
        ),
        Sample(
            name="wider-along-rows",
            primals=lambda draw: (
                draw.normal(2, 3),
                draw.integers(0, 2, 7, 3),
                draw.normal(7, 3),
            ),
            dialects=("along-rows",),
            hunts="a gradient of src in the shape of x",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (
                draw.normal(2, 3, 4),
                draw.integers(0, 3, 2, 3, 4),
                draw.normal(2, 3, 4),
            ),
            hunts="the axis counted from the front, elements of another batch entry",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1), np.array([[0]]), draw.normal(1, 1)),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (
                draw.normal(3, 5),
                draw.integers(0, 3, 0, 0),
                np.zeros((0, 0)),
            ),
            hunts="nothing to add: dx lost with it",
        ),
        Sample(
            name="far",
            primals=lambda draw: (
                draw.normal(1, 263),
                np.concatenate([[258, 2, 258, 262, 6, 2], draw.integers(0, 263, 59), [6, 258]])[
                    None
                ],
                draw.normal(1, 67),
            ),
            dialects=("along-columns",),
            hunts="a table's rows numbered in one byte, repeats that lie far apart or in "
            "another block of positions",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                draw.normal(131, 3),
                draw.integers(0, 3, 131, 2),
                draw.normal(131, 2),
            ),
            dialects=("along-columns",),
            hunts="rows behind 64 or 128 that no thread reads",
        ),
    ),
)
