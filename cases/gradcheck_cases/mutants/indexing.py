"""Mutants of the operators in `gradcheck_cases.indexing`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.indexing import (
    encoder,
    gather,
    get_rows,
    get_rows_back,
    input_embedding,
    scatter_add,
)

MUTANTS: tuple[Mutant, ...] = ()

PADDLE = "PaddlePaddle #17952"
TENSORS = "AiDotNet.Tensors #894"

# ── rows of a table ──────────────────────────────────────────────────────────────────────────


def _rows_set(xp: Any, rows: Any, index: Any, like: Any) -> Any:
    """As xp.add_rows, but a repeated index keeps the last row."""
    out = xp.zeros_like(like)
    flat = np.reshape(rows, (index.size, like.shape[-1]))
    for i, row in zip(index.reshape(-1), flat, strict=True):
        out[i] = row
    return out


def _rows_averaged(xp: Any, rows: Any, index: Any, like: Any) -> Any:
    """As xp.add_rows, but a repeated index gets the mean."""
    times = np.maximum(np.bincount(index.reshape(-1), minlength=len(like)), 1)
    return xp.add_rows(rows, index, like) / xp.asarray(times)[:, None]


def _rows_gathered(xp: Any, rows: Any, index: Any, like: Any) -> Any:
    """Row `index[v]` of `rows` where row v of the table should be; indices wrap around."""
    if not index.size:
        return xp.zeros_like(like)
    flat = np.reshape(rows, (index.size, like.shape[-1]))
    where = np.resize(index.reshape(-1), len(like)) % index.size
    return flat[where]


# ── encoder ──────────────────────────────────────────────────────────────────────────────────


def encoder_last_wins_vjp(xp, ct, wte, wpe, tokens):
    _, dwpe, _ = encoder.vjp(xp, ct, wte, wpe, tokens)
    return _rows_set(xp, ct, tokens, wte), dwpe, None


def encoder_averaged_vjp(xp, ct, wte, wpe, tokens):
    _, dwpe, _ = encoder.vjp(xp, ct, wte, wpe, tokens)
    return _rows_averaged(xp, ct, tokens, wte), dwpe, None


def encoder_gathered_vjp(xp, ct, wte, wpe, tokens):
    _, dwpe, _ = encoder.vjp(xp, ct, wte, wpe, tokens)
    return _rows_gathered(xp, ct, tokens, wte), dwpe, None


def encoder_first_sequence_vjp(xp, ct, wte, wpe, tokens):
    dwte, dwpe, _ = encoder.vjp(xp, ct, wte, wpe, tokens)
    first = ct[0] if ct.ndim == 3 else ct
    return dwte, xp.concatenate([first, dwpe[tokens.shape[-1] :]], axis=-2), None


def encoder_mean_of_batch_vjp(xp, ct, wte, wpe, tokens):
    dwte, dwpe, _ = encoder.vjp(xp, ct, wte, wpe, tokens)
    return dwte, dwpe / (tokens.size // tokens.shape[-1] if tokens.size else 1), None


MUTANTS += mutant_table(
    "encoder",
    {
        ("last-wins", "duplicates accumulation", "repeated"): (
            "A repeated token keeps the gradient of its last position.",
            encoder_last_wins_vjp,
            {"modelled_on": PADDLE},
        ),
        ("averaged", "duplicates reduction", "repeated"): (
            "A repeated token gets the mean over its positions.",
            encoder_averaged_vjp,
        ),
        ("gathered", "layout index", "square"): (
            "The embedding's gradient is gathered by token instead of scattered.",
            encoder_gathered_vjp,
            {"modelled_on": TENSORS},
        ),
        ("first-sequence", "broadcast accumulation index", "batched"): (
            "The positions' gradient is that of the first sequence.",
            encoder_first_sequence_vjp,
        ),
        ("mean-of-batch", "reduction", "batched"): (
            "The positions' gradient is averaged over the batch.",
            encoder_mean_of_batch_vjp,
        ),
        ("last-token-left-out", "index", "one-token"): (
            "The loop over tokens stops one too early.",
            mutate.replaced(encoder.vjp, 0, mutate.cotangent(encoder.vjp, mutate.cut(-1, axis=-2))),
        ),
        ("positions-off-by-one", "index", "longer-table"): (
            "Position t's gradient is written to row t + 1.",
            mutate.output(encoder.vjp, 1, lambda xp, g, wte, wpe, tokens: np.roll(g, 1, axis=-2)),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The embedding's gradient is added to that of the call before.",
            {"make": mutate.accumulated(encoder.vjp, 0)},
        ),
        ("tables-exchanged", "slot", "square"): (
            "The gradients of the two tables are in each other's place.",
            mutate.swapped(encoder.vjp, 0, 1),
        ),
    },
)

# ── input_embedding ──────────────────────────────────────────────────────────────────────────


def input_embedding_targets_vjp(xp, ct, w, tokens, *, bf16_scale=False):
    shifted = np.roll(tokens, -1, axis=-1)
    return input_embedding.vjp(xp, ct, w, shifted, bf16_scale=bf16_scale)


def input_embedding_unscaled_vjp(xp, ct, w, tokens, *, bf16_scale=False):
    return xp.add_rows(ct, tokens[..., :-1], w), None


def _last_of_each(xp, ct, w, tokens, *, bf16_scale=False):
    """The cotangent at the last position of each token, 0 at those before."""
    used = tokens[..., :-1].reshape(-1)
    last = np.array([token not in used[t + 1 :] for t, token in enumerate(used)], dtype=bool)
    return xp.where(last.reshape(*ct.shape[:-1], 1), ct, 0)


def input_embedding_flat_vjp(xp, ct, w, tokens, *, bf16_scale=False):
    rows = ct.reshape(-1, ct.shape[-1])
    flat = tokens.reshape(-1)[: len(rows) + 1]
    return input_embedding.vjp(xp, rows, w, flat, bf16_scale=bf16_scale)


MUTANTS += mutant_table(
    "input_embedding",
    {
        ("unscaled", "scale", "typical"): (
            "The square root of c is missing in backward.",
            input_embedding_unscaled_vjp,
        ),
        ("scaled-by-c", "scale", "typical"): (
            "The scale is c instead of its square root.",
            mutate.scaled(
                input_embedding.vjp, 0, lambda xp, w, tokens, bf16_scale: xp.sqrt_of(w.shape[-1])
            ),
        ),
        ("float32-scale", "attribute scale", "typical"): (
            "Backward takes the exact square root where forward rounds it to bfloat16.",
            mutate.attribute(input_embedding.vjp, bf16_scale=False),
            {"dialects": ("bf16-sqrt",)},
        ),
        ("targets", "index", "typical"): (
            "Rows are those of the next token, the target, instead of the token.",
            input_embedding_targets_vjp,
        ),
        ("last-wins", "duplicates accumulation", "repeated"): (
            "A repeated token keeps the gradient of its last position.",
            mutate.cotangent(input_embedding.vjp, _last_of_each),
            {"modelled_on": PADDLE},
        ),
        ("batch-flattened", "index shape", "batched"): (
            "The last token is dropped from the whole batch instead of from each sequence.",
            input_embedding_flat_vjp,
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The gradient is added to that of the call before.",
            {"make": mutate.accumulated(input_embedding.vjp, 0)},
        ),
        ("missing", "slot", "typical"): (
            "The tied embedding gets its gradient from the classifier alone.",
            mutate.output(input_embedding.vjp, 0, mutate.nothing),
        ),
    },
)

# ── get_rows ─────────────────────────────────────────────────────────────────────────────────


def get_rows_last_wins_vjp(xp, ct, x, rows):
    return _rows_set(xp, ct, rows, x), None


def get_rows_averaged_vjp(xp, ct, x, rows):
    return _rows_averaged(xp, ct, rows, x), None


def get_rows_gathered_vjp(xp, ct, x, rows):
    return _rows_gathered(xp, ct, rows, x), None


def get_rows_short_loop_vjp(xp, ct, x, rows):
    n = len(x)
    return xp.add_rows(ct[..., :n, :], rows[..., :n], x), None


def get_rows_padding_vjp(xp, ct, x, rows):
    return xp.add_rows(xp.where((rows == 0)[..., None], 0, ct), rows, x), None


LAX = "what ggml's gradient test of 2026 lets pass"


MUTANTS += mutant_table(
    "get_rows",
    {
        ("times-minus-seven", "scale", "typical"): (
            "The gradient is multiplied by -7.",
            mutate.scaled(get_rows.vjp, 0, -7.0),
            {"modelled_on": LAX},
        ),
        ("last-wins", "duplicates accumulation", "repeated"): (
            "A repeated row keeps the gradient of its last position.",
            get_rows_last_wins_vjp,
            {"modelled_on": PADDLE},
        ),
        ("averaged", "duplicates reduction", "all-same"): (
            "A repeated row gets the mean over its positions.",
            get_rows_averaged_vjp,
        ),
        ("gathered", "layout index", "cycle"): (
            "The gradient is gathered by row instead of scattered.",
            get_rows_gathered_vjp,
            {"modelled_on": TENSORS},
        ),
        ("loop-over-table", "shape accumulation", "more-than-rows"): (
            "Positions beyond the number of rows of the table are left out.",
            get_rows_short_loop_vjp,
        ),
        ("padding", "index", "ends"): (
            "Row 0 is taken for padding and gets no gradient.",
            get_rows_padding_vjp,
        ),
        ("first-sequence", "broadcast accumulation index", "batched"): (
            "Only the first batch entry reaches the table.",
            mutate.cotangent(get_rows.vjp, mutate.first_entry(2)),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The gradient is added to that of the call before.",
            {"make": mutate.accumulated(get_rows.vjp, 0)},
        ),
    },
)

# ── get_rows_back ────────────────────────────────────────────────────────────────────────────


def get_rows_back_in_order_vjp(xp, ct, g, rows, *, n_rows=5):
    return xp.take_rows(ct, np.arange(rows.size) % n_rows), None


def get_rows_back_default_vjp(xp, ct, g, rows, *, n_rows=5):
    return xp.take_rows(ct, np.minimum(rows % 5, n_rows - 1)), None


def get_rows_back_next_vjp(xp, ct, g, rows, *, n_rows=5):
    return xp.take_rows(ct, (rows + 1) % n_rows), None


def get_rows_back_shared_vjp(xp, ct, g, rows, *, n_rows=5):
    times = np.maximum(np.bincount(rows, minlength=n_rows), 1)
    return xp.take_rows(ct / xp.asarray(times)[:, None], rows), None


def get_rows_back_last_only_vjp(xp, ct, g, rows, *, n_rows=5):
    last = np.array([row not in rows[t + 1 :] for t, row in enumerate(rows)], dtype=bool)
    return xp.where(last[:, None], xp.take_rows(ct, rows), 0), None


def get_rows_back_inverse_vjp(xp, ct, g, rows, *, n_rows=5):
    order = np.argsort(rows, kind="stable")
    return xp.take_rows(ct, rows)[order][order] if rows.size else 0 * g, None


MUTANTS += mutant_table(
    "get_rows_back",
    {
        ("in-order", "index double", "typical"): (
            "The indices are ignored: position t reads row t.",
            get_rows_back_in_order_vjp,
        ),
        ("default-rows", "attribute double", "ends"): (
            "Rows are counted modulo the default size of the table.",
            get_rows_back_default_vjp,
        ),
        ("next-row", "index double", "typical"): (
            "The row after the right one is read.",
            get_rows_back_next_vjp,
        ),
        ("shared", "duplicates reduction double", "repeated"): (
            "Positions of one row share its cotangent.",
            get_rows_back_shared_vjp,
        ),
        ("last-only", "duplicates double", "all-same"): (
            "Of positions of one row only the last gets its cotangent.",
            get_rows_back_last_only_vjp,
        ),
        ("reordered", "layout index double", "cycle"): (
            "The result is left in the order of rows instead of that of positions.",
            get_rows_back_inverse_vjp,
        ),
        ("negated", "sign double", "typical"): (
            "The sign is turned, as if the rows had been subtracted.",
            mutate.negated(get_rows_back.vjp, 0),
        ),
        ("detached", "slot double", "typical"): (
            "The backward counts as a constant: it has no gradient of its own.",
            mutate.scaled(get_rows_back.vjp, 0, 0.0),
        ),
    },
)

# ── gather and scatter_add ───────────────────────────────────────────────────────────────────


def _set_along(xp: Any, values: Any, index: Any, like: Any, axis: int) -> Any:
    """As xp.add_along, but a repeated index keeps the last value."""
    out = xp.zeros_like(like)
    np.put_along_axis(_reach(out, index, axis), index, values, axis=axis)
    return out


def _reach(x: Any, index: Any, axis: int) -> Any:
    """The rows, or columns, of `x` that `index` can reach."""
    rows, columns = index.shape[-2:]
    return x[..., :rows, :] if axis == -1 else x[..., :, :columns]


def _times_along(xp: Any, index: Any, like: Any, axis: int) -> Any:
    """How often each element is named, at least 1."""
    return np.maximum(xp.add_along(xp.asarray(np.ones(index.shape)), index, like, axis), 1)


def gather_last_wins_vjp(xp, ct, x, index, *, axis=-1):
    return _set_along(xp, ct, index, x, axis), None


def gather_averaged_vjp(xp, ct, x, index, *, axis=-1):
    return xp.add_along(ct, index, x, axis) / _times_along(xp, index, x, axis), None


def gather_gathered_vjp(xp, ct, x, index, *, axis=-1):
    dx = xp.zeros_like(x)
    part = tuple(slice(min(m, n)) for m, n in zip(x.shape, index.shape, strict=True))
    where = index[part] % max(ct.shape[axis], 1)
    dx[part] = np.take_along_axis(_reach(ct, where, axis), where, axis=axis)
    return dx, None


def gather_other_axis_vjp(xp, ct, x, index, *, axis=-1):
    other = -3 - axis
    return xp.add_along(ct, index % x.shape[other], _room(xp, x, index), other)[
        tuple(slice(n) for n in x.shape)
    ], None


def _room(xp: Any, x: Any, index: Any) -> Any:
    """Zeros as large as `x` and `index`, whichever is larger, along each axis."""
    return xp.zeros(tuple(np.maximum(x.shape, index.shape)))


def gather_index_strides_vjp(xp, ct, x, index, *, axis=-1):
    dx = xp.zeros_like(x)
    columns = index.shape[-1]  # where the row length of x is meant
    for k in np.ndindex(index.shape):
        row, column = (k[-2], index[k]) if axis == -1 else (index[k], k[-1])
        flat = dx[k[:-2]].reshape(-1)
        flat[(row * columns + column) % flat.size] += ct[k]
    return dx, None


def gather_front_axis_vjp(xp, ct, x, index, *, axis=-1):
    return xp.add_along(ct, index, x, axis % 2), None


# ── gather ───────────────────────────────────────────────────────────────────────────────────

TORCH = "pytorch #1631"


MUTANTS += mutant_table(
    "gather",
    {
        ("last-wins", "duplicates accumulation", "repeated"): (
            "A repeated element keeps the last of its gradients.",
            gather_last_wins_vjp,
            {"modelled_on": TORCH},
        ),
        ("averaged", "duplicates reduction", "repeated"): (
            "A repeated element gets the mean of its gradients.",
            gather_averaged_vjp,
        ),
        ("gathered", "layout index", "cycles"): (
            "The cotangent is gathered by the index instead of scattered.",
            gather_gathered_vjp,
            {"modelled_on": TENSORS},
        ),
        ("other-axis", "index", "typical"): (
            "The gradient is scattered along the other axis.",
            gather_other_axis_vjp,
        ),
        ("index-strides", "index shape", "smaller-index"): (
            "Rows of x are taken to be as long as those of the index.",
            gather_index_strides_vjp,
        ),
        ("axis-from-the-front", "shape index", "batched"): (
            "The axis is counted from the front as if there were no batch.",
            gather_front_axis_vjp,
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The gradient is added to that of the call before.",
            {"make": mutate.accumulated(gather.vjp, 0)},
        ),
    },
)


def scatter_add_assigned_vjp(xp, ct, x, index, src, *, axis=-1):
    named = xp.add_along(xp.asarray(np.ones(index.shape)), index, x, axis) > 0
    _, _, dsrc = scatter_add.vjp(xp, ct, x, index, src, axis=axis)
    return xp.where(named, 0, ct), None, dsrc


def scatter_add_shared_vjp(xp, ct, x, index, src, *, axis=-1):
    shared = ct / _times_along(xp, index, x, axis)
    return ct, None, scatter_add.vjp(xp, shared, x, index, src, axis=axis)[2]


def scatter_add_scattered_vjp(xp, ct, x, index, src, *, axis=-1):
    part = tuple(slice(min(m, n)) for m, n in zip(x.shape, index.shape, strict=True))
    dsrc = xp.zeros_like(src)
    where = index[part] % max(src.shape[axis], 1)
    dsrc += xp.add_along(ct[part], where, src, axis)
    return ct, None, dsrc


def scatter_add_in_order_vjp(xp, ct, x, index, src, *, axis=-1):
    along = np.arange(index.shape[axis]) % x.shape[axis]
    order = np.broadcast_to(along if axis == -1 else along[:, None], index.shape)
    return scatter_add.vjp(xp, ct, x, order, src, axis=axis)


def scatter_add_front_axis_vjp(xp, ct, x, index, src, *, axis=-1):
    return ct, None, np.take_along_axis(_reach(ct, index, axis), index, axis=axis % 2)


def scatter_add_cleared_first_vjp(xp, ct, x, index, src, *, axis=-1):
    left = ct.copy()
    np.put_along_axis(_reach(left, index, axis), index, 0, axis=axis)
    return ct, None, scatter_add.vjp(xp, left, x, index, src, axis=axis)[2]


MUTANTS += mutant_table(
    "scatter_add",
    {
        ("assigned", "derivative", "repeated"): (
            "dx is 0 where something was added, as if it had been overwritten.",
            scatter_add_assigned_vjp,
        ),
        ("shared", "duplicates reduction", "repeated"): (
            "Sources of one element share its cotangent.",
            scatter_add_shared_vjp,
        ),
        ("scattered", "layout index", "cycles"): (
            "The source's gradient is scattered by the index instead of gathered.",
            scatter_add_scattered_vjp,
        ),
        ("in-order", "index", "typical"): (
            "The index is ignored in backward.",
            scatter_add_in_order_vjp,
        ),
        ("axis-from-the-front", "shape index", "batched"): (
            "The axis is counted from the front as if there were no batch.",
            scatter_add_front_axis_vjp,
        ),
        ("cleared-first", "aliasing saved-value slot", "typical"): (
            "The cotangent is cleared where something was added before it is read there.",
            scatter_add_cleared_first_vjp,
        ),
        ("x-missing", "slot", "empty"): (
            "x gets no gradient: what it was before the addition is taken for zeros.",
            mutate.output(scatter_add.vjp, 0, mutate.zeros),
        ),
        ("exchanged", "slot", "cycles"): (
            "The gradients of x and of the source are in each other's place.",
            mutate.swapped(scatter_add.vjp, 0, 2),
        ),
    },
)
