"""Mutants of the operators in `gradcheck_cases.shape`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.numerics.arithmetic import F64
from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec import Array, OpSpec
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases import shape

MUTANTS: tuple[Mutant, ...] = ()


# ── parts ────────────────────────────────────────────────────────────────────────────────────


def _averaged(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
    """The mean of the cotangent in every place."""
    return xp.broadcast_to(xp.sum(ct) / max(ct.size, 1), ct.shape)


def _common(spec: OpSpec, killer: str, index: int = 0) -> tuple[Mutant, ...]:
    """Mutants of every operator of the family."""
    return mutant_table(
        spec.name,
        {
            ("never-cleared", "accumulation", killer): (
                "The gradient is added to a buffer that is never cleared.",
                {"make": mutate.accumulated(spec.vjp, index)},
            ),
            ("upstream-averaged", "cotangent", killer): (
                "The mean of the cotangent stands for all of it.",
                mutate.cotangent(spec.vjp, _averaged),
            ),
        },
    )


# ── dup ──────────────────────────────────────────────────────────────────────────────────────


def dup_primal_vjp(xp, ct, x):
    return x


def dup_threads_vjp(xp, ct, x):
    return ct if ct.size >= 4 else xp.zeros_like(ct)


MUTANTS += _common(shape.dup, "typical")
MUTANTS += mutant_table(
    "dup",
    {
        ("fewer-elements-than-threads", "shape accumulation slot", "single"): (
            "With less than one element for each of four threads nothing is copied.",
            dup_threads_vjp,
            {
                "modelled_on": (
                    "ggml's commit log: ggml_compute_forward_dup_same_cont, nelements < nthreads"
                )
            },
        ),
        ("whole-blocks-only", "shape accumulation", "odd-length"): (
            "What is left over after the last block of four is not copied.",
            mutate.output(shape.dup_vjp, 0, mutate.whole_blocks(4)),
        ),
        ("primal", "cotangent", "typical"): (
            "The operand is copied once more, in place of its cotangent.",
            dup_primal_vjp,
        ),
        ("through-four-bits", "precision", "typical"): (
            "The copy goes through a type of four significant bits, as float8 is.",
            mutate.output(shape.dup_vjp, 0, mutate.rounded(4)),
        ),
    },
)

# ── cpy ──────────────────────────────────────────────────────────────────────────────────────


def _only(xp: Any, x: Any, keep: Array) -> Any:
    """Only where the flat mask `keep` holds; 0 elsewhere."""
    return xp.where(keep.reshape(x.shape), x, 0.0)


def cpy_destination_too_vjp(xp, ct, a, b):
    return xp.reshape(ct, a.shape), ct


def cpy_left_in_shape_vjp(xp, ct, a, b):
    return ct, xp.zeros_like(b)


def cpy_column_major_vjp(xp, ct, a, b):
    lead = a.shape[:-3]
    g = np.reshape(np.swapaxes(ct, -1, -3), (*lead, *a.shape[:-4:-1]))
    return np.swapaxes(g, -1, -3), xp.zeros_like(b)


def cpy_first_row_vjp(xp, ct, a, b):
    # The block to copy is one row of the destination long, and there is but one block.
    first = ct.shape[-1]
    keep = np.arange(math.prod(ct.shape[-3:])) < first
    keep = np.broadcast_to(keep, (math.prod(ct.shape[:-3]), keep.size))
    return xp.reshape(_only(xp, ct, keep), a.shape), xp.zeros_like(b)


MUTANTS += _common(shape.cpy, "typical")
MUTANTS += mutant_table(
    "cpy",
    {
        ("swapped", "slot", "single"): (
            "The destination gets the gradient, the source gets zeros.",
            mutate.swapped(shape.cpy_vjp, 0, 1),
        ),
        ("destination-too", "term slot", "into-zeros"): (
            "The destination gets the cotangent as well, as if it had been added to.",
            cpy_destination_too_vjp,
        ),
        ("source-forgotten", "slot", "typical"): (
            "No gradient reaches the source: the operation counts as one that reads nothing.",
            mutate.output(shape.cpy_vjp, 0, mutate.zeros),
        ),
        ("left-in-shape", "layout", "reshaped"): (
            "The source's gradient is left in the destination's shape.",
            cpy_left_in_shape_vjp,
        ),
        ("column-major", "layout", "reshaped"): (
            "The gradient goes back into the source's shape in column-major order.",
            cpy_column_major_vjp,
        ),
        ("first-row-only", "index accumulation", "typical"): (
            "One row of the destination is copied back, the others are not.",
            cpy_first_row_vjp,
        ),
    },
)

# ── cont ─────────────────────────────────────────────────────────────────────────────────────


def cont_strides_vjp(xp, ct, x, *, axes=(0, 1, 2)):
    return xp.reshape(ct, x.shape)


def cont_forward_axes_vjp(xp, ct, x, *, axes=(0, 1, 2)):
    return shape.cont_forward(xp, ct, axes=axes)


def cont_last_two_vjp(xp, ct, x, *, axes=(0, 1, 2)):
    return ct if axes == (0, 1, 2) else xp.reshape(xp.swapaxes(ct, -1, -2), x.shape)


def cont_from_front_vjp(xp, ct, x, *, axes=(0, 1, 2)):
    return xp.transpose(ct, (*np.argsort(axes), *range(3, ct.ndim)))


def cont_unit_axis_vjp(xp, ct, x, *, axes=(0, 1, 2)):
    if 1 in x.shape:
        return xp.reshape(ct, x.shape)
    return shape.cont_vjp(xp, ct, x, axes=axes)


def cont_primal_vjp(xp, ct, x, *, axes=(0, 1, 2)):
    return x


MUTANTS += _common(shape.cont, "typical")
MUTANTS += mutant_table(
    "cont",
    {
        ("strides-ignored", "layout", "transposed-square"): (
            "The cotangent is written one by one into memory, whatever the operand's strides.",
            cont_strides_vjp,
            {"modelled_on": "ggml's commit log: add with transposed tensors, before its fix"},
        ),
        ("permutation-for-its-inverse", "layout", "cycle-cube"): (
            "The cotangent's axes are permuted as forward permutes, not back.",
            cont_forward_axes_vjp,
        ),
        ("last-two-axes-only", "layout", "reversed"): (
            "Any permutation is taken for an exchange of the last two axes.",
            cont_last_two_vjp,
        ),
        ("axes-from-the-front", "index layout shape", "batched"): (
            "Axes are counted from the front, batch axes included.",
            cont_from_front_vjp,
        ),
        ("unit-axis-is-contiguous", "shape layout", "one-wide"): (
            "An operand with an axis of size 1 counts as contiguous in any order.",
            cont_unit_axis_vjp,
        ),
        ("primal", "cotangent", "typical"): (
            "The operand is returned in place of its cotangent.",
            cont_primal_vjp,
        ),
    },
)

# ── reshape ──────────────────────────────────────────────────────────────────────────────────


def reshape_left_vjp(xp, ct, x, *, shape=(-1,)):
    return ct


def reshape_column_major_vjp(xp, ct, x, *, shape=(-1,)):
    lead = tuple(range(ct.ndim - len(shape)))
    back = (*lead, *reversed(range(len(lead), ct.ndim)))
    g = np.reshape(np.transpose(ct, back), (*x.shape[:-3], *x.shape[:-4:-1]))
    return np.swapaxes(g, -1, -3)


def reshape_transposed_vjp(xp, ct, x, *, shape=(-1,)):
    turned = xp.swapaxes(ct, -1, -2) if ct.ndim > 1 else ct
    return turned if turned.shape == x.shape else xp.reshape(ct, x.shape)


def reshape_batch_inside_vjp(xp, ct, x, *, shape=(-1,)):
    if ct.ndim == len(shape):
        return xp.reshape(ct, x.shape)
    return xp.reshape(xp.moveaxis(ct, 0, -1), x.shape)


def reshape_rank_3_vjp(xp, ct, x, *, shape=(-1,)):
    keep = np.ones(ct.shape, dtype=bool)
    if len(shape) > 3:
        keep[..., 1:, :, :, :] = False
    return xp.reshape(xp.where(keep, ct, 0.0), x.shape)


MUTANTS += _common(shape.reshape, "typical")
MUTANTS += mutant_table(
    "reshape",
    {
        ("left-in-shape", "layout", "typical"): (
            "The gradient is left in the shape of y.",
            reshape_left_vjp,
        ),
        ("column-major", "layout", "to-2d"): (
            "The gradient goes back into the operand's shape in column-major order.",
            reshape_column_major_vjp,
        ),
        ("transposition", "layout", "exchanged"): (
            "Where only two axes seem exchanged, they are transposed back.",
            reshape_transposed_vjp,
        ),
        ("batch-innermost", "index layout shape", "batched"): (
            "Elements are counted with the batch as the innermost axis.",
            reshape_batch_inside_vjp,
        ),
        ("rank-3-at-most", "shape index", "to-4d"): (
            "The loops cover three axes; of a fourth, only the first slice comes back.",
            reshape_rank_3_vjp,
        ),
    },
)

# ── transpose ────────────────────────────────────────────────────────────────────────────────


def transpose_reinterpreted_vjp(xp, ct, x):
    return xp.reshape(ct, x.shape)


def transpose_reversed_vjp(xp, ct, x):
    return xp.transpose(ct, tuple(reversed(range(ct.ndim))))


def transpose_first_two_vjp(xp, ct, x):
    return xp.swapaxes(ct, 0, 1)


def transpose_tiles_vjp(xp, ct, x):
    m, n = x.shape[-2:]
    keep = (np.arange(m) < m // 2 * 2)[:, None] & (np.arange(n) < n // 2 * 2)
    return xp.where(keep, xp.swapaxes(ct, -1, -2), 0.0)


def transpose_upper_vjp(xp, ct, x):
    # In place, element by element: what has been written below the diagonal is read above it.
    m, n = x.shape[-2:]
    g = xp.swapaxes(ct, -1, -2)
    return xp.where(np.tri(m, n, dtype=bool), g, xp.swapaxes(g, -1, -2)) if m == n else g


MUTANTS += _common(shape.transpose, "typical")
MUTANTS += mutant_table(
    "transpose",
    {
        ("reinterpreted", "layout", "square"): (
            "The memory is given the other shape, and nothing is moved.",
            transpose_reinterpreted_vjp,
        ),
        ("all-axes-reversed", "layout index shape", "cube"): (
            "All axes are reversed, those of the batch too.",
            transpose_reversed_vjp,
        ),
        ("first-two-axes", "index layout shape", "cube"): (
            "The first two axes are exchanged, not the last two.",
            transpose_first_two_vjp,
        ),
        ("whole-tiles-only", "shape accumulation", "typical"): (
            "Tiles of 2 by 2 are transposed; what is left over at the edges is not.",
            transpose_tiles_vjp,
        ),
        ("in-place", "aliasing saved-value", "square"): (
            "A square is transposed in place without a spare copy, so one triangle appears twice.",
            transpose_upper_vjp,
        ),
    },
)

# ── permute ──────────────────────────────────────────────────────────────────────────────────


def permute_forward_vjp(xp, ct, x, *, axes=(0, 1, 2, 3), form="source"):
    return shape.permute_forward(xp, ct, axes=axes, form=form)


def permute_reinterpreted_vjp(xp, ct, x, *, axes=(0, 1, 2, 3), form="source"):
    return xp.reshape(ct, x.shape)


def permute_twice_vjp(xp, ct, x, *, axes=(0, 1, 2, 3), form="source"):
    once = shape.permute_forward(xp, ct, axes=axes, form=form)
    return shape.permute_forward(xp, once, axes=axes, form=form)


def permute_last_pair_vjp(xp, ct, x, *, axes=(0, 1, 2, 3), form="source"):
    g = xp.swapaxes(ct, -1, -2) if axes[3] != 3 else ct
    return xp.reshape(g, x.shape)


def permute_from_front_vjp(xp, ct, x, *, axes=(0, 1, 2, 3), form="source"):
    back = np.argsort(shape._sources(axes, form))
    return xp.transpose(ct, (*back, *range(4, ct.ndim)))


def permute_from_the_end_vjp(xp, ct, x, *, axes=(0, 1, 2, 3), form="source"):
    back = tuple(int(k) for k in np.argsort(axes))
    return shape.permute_forward(xp, ct, axes=back, form="destination")


def _other_form(axes: Any, form: str) -> str:
    return "source" if form == "destination" else "destination"


MUTANTS += _common(shape.permute, "identity")
MUTANTS += mutant_table(
    "permute",
    {
        ("permutation-for-its-inverse", "layout attribute", "cycle-3"): (
            "The cotangent's axes are permuted as forward permutes, not back.",
            permute_forward_vjp,
        ),
        ("strides-ignored", "layout", "hypercube"): (
            "The cotangent is written one by one into memory, whatever the strides.",
            permute_reinterpreted_vjp,
        ),
        ("right-for-3-cycles", "layout", "cycle-4"): (
            "The inverse is the permutation applied twice, which is right for 3-cycles alone.",
            permute_twice_vjp,
        ),
        ("other-systems-axes", "attribute layout", "cycle-3"): (
            "Where an axis comes from is taken for where it goes to.",
            mutate.attribute(shape.permute_vjp, form=_other_form),
        ),
        ("last-pair-only", "layout", "swap-pairs"): (
            "Of several exchanges only that of the last two axes is undone.",
            permute_last_pair_vjp,
        ),
        ("axes-from-the-front", "index layout shape", "batched"): (
            "Axes are counted from the front, batch axes included.",
            permute_from_front_vjp,
        ),
        ("axes-from-the-end", "index layout", "cycle-3-back"): (
            "The inverse is right but for the count of the axes, which runs from the innermost.",
            permute_from_the_end_vjp,
            {"dialects": ("source",)},
        ),
        ("default-order", "attribute layout", "hypercube"): (
            "The axes' order is at its default in backward.",
            mutate.attribute(shape.permute_vjp, axes=(0, 1, 2, 3)),
        ),
    },
)

# ── concat ───────────────────────────────────────────────────────────────────────────────────


def concat_shifted_vjp(xp, ct, x, y, *, axis=-1):
    # The boundary is off by one: x's part starts at its second element.
    dx, _ = shape.concat_vjp(xp, np.roll(ct, -1, axis), x, y, axis=axis)
    return dx, shape.concat_vjp(xp, ct, x, y, axis=axis)[1]


def concat_memory_vjp(xp, ct, x, y, *, axis=-1):
    flat = np.ravel(ct)
    return xp.reshape(flat[: x.size], x.shape), xp.reshape(flat[x.size :], y.shape)


def concat_no_offset_vjp(xp, ct, x, y, *, axis=-1):
    dx, _ = shape.concat_vjp(xp, ct, x, y, axis=axis)
    return dx, shape.concat_vjp(xp, ct, y, x, axis=axis)[0]


def concat_never_empty_vjp(xp, ct, x, y, *, axis=-1):
    dx, dy = shape.concat_vjp(xp, ct, x, y, axis=axis)
    return dx, (dy if x.shape[axis] else np.roll(dy, 1, axis))


def concat_unit_vjp(xp, ct, x, y, *, axis=-1):
    dx, dy = shape.concat_vjp(xp, ct, x, y, axis=axis)
    return (xp.sum(ct, axis=axis, keepdims=True) if x.shape[axis] == 1 else dx), dy


def concat_from_front_vjp(xp, ct, x, y, *, axis=-1):
    return shape.concat_vjp(xp, ct, x, y, axis=3 + axis - ct.ndim)


MUTANTS += _common(shape.concat, "typical")
MUTANTS += mutant_table(
    "concat",
    {
        ("swapped", "slot", "same-size"): (
            "Each operand gets the other one's part.",
            mutate.swapped(shape.concat_vjp, 0, 1),
        ),
        ("start-off-by-one", "index", "typical"): (
            "The first operand's part starts one element late.",
            concat_shifted_vjp,
        ),
        ("no-offset", "index", "typical"): (
            "The second operand's part is read from the start, without the offset.",
            concat_no_offset_vjp,
        ),
        ("memory-cut-in-two", "layout", "middle-axis"): (
            "The cotangent's memory is cut into two pieces, right for the outermost axis alone.",
            concat_memory_vjp,
        ),
        ("axis-default", "attribute", "cube"): (
            "The axis is at its default in backward.",
            mutate.attribute(shape.concat_vjp, axis=-1),
        ),
        ("axis-from-the-front", "index shape", "batched"): (
            "The axis is counted from the front, batch axes included.",
            concat_from_front_vjp,
        ),
        ("never-empty", "shape index", "empty-part"): (
            "A part of size 0 is skipped over as if it had one element.",
            concat_never_empty_vjp,
        ),
        ("unit-part-broadcast", "broadcast shape", "one-wide"): (
            "A part of size 1 is taken for one that was broadcast, and gets the sum of all.",
            concat_unit_vjp,
        ),
    },
)

# ── diag ─────────────────────────────────────────────────────────────────────────────────────


def diag_row_sum_vjp(xp, ct, x, *, offset=0):
    rows = xp.sum(ct, axis=-1)
    return rows[..., max(-offset, 0) :][..., : x.shape[-1]]


def diag_main_vjp(xp, ct, x, *, offset=0):
    return np.diagonal(ct, 0, -2, -1)[..., : x.shape[-1]]


def diag_first_vjp(xp, ct, x, *, offset=0):
    g = shape.diag_vjp(xp, ct, x, offset=offset)
    return xp.broadcast_to(g[:1], g.shape) if g.ndim > 1 else g


def diag_where_not_zero_vjp(xp, ct, x, *, offset=0):
    return xp.where(x != 0, shape.diag_vjp(xp, ct, x, offset=offset), 0.0)


def diag_second_on_vjp(xp, ct, x, *, offset=0):
    g = shape.diag_vjp(xp, ct, x, offset=offset)
    return xp.where(np.arange(g.shape[-1]) > 0, g, 0.0)


def diag_trace_vjp(xp, ct, x, *, offset=0):
    g = shape.diag_vjp(xp, ct, x, offset=offset)
    return xp.broadcast_to(xp.sum(g, axis=-1, keepdims=True), g.shape)


MUTANTS += _common(shape.diag, "typical")
MUTANTS += mutant_table(
    "diag",
    {
        ("row-sums", "derivative term", "typical"): (
            "Each element gets its whole row of the cotangent, off the diagonal too.",
            diag_row_sum_vjp,
        ),
        ("offset-ignored", "attribute", "above"): (
            "The main diagonal is read, whatever the offset.",
            diag_main_vjp,
        ),
        ("offset-without-sign", "attribute index", "below"): (
            "A diagonal below the main one is read above it.",
            mutate.attribute(shape.diag_vjp, offset=lambda **attrs: abs(attrs["offset"])),
        ),
        ("first-of-batch", "index cotangent", "batched"): (
            "Every matrix of a batch is read as the first one.",
            diag_first_vjp,
        ),
        ("found-by-value", "derivative", "with-zeros"): (
            "The diagonal is where y is not 0, so a zero in x gets no gradient.",
            diag_where_not_zero_vjp,
        ),
        ("second-on", "index", "single"): ("The loop starts at 1.", diag_second_on_vjp),
        ("trace", "derivative term", "typical"): (
            "Every element gets the sum along the diagonal.",
            diag_trace_vjp,
        ),
    },
)

# ── views ────────────────────────────────────────────────────────────────────────────────────

Writer = Callable[[Any, Any, tuple[int, ...], Array], Any]


def _placing(spec: OpSpec, write: Writer) -> Vjp:
    """A view's VJP whose values go to their places by `write(xp, ct, core, places)`."""

    def body(xp: Any, ct: Any, x: Any, **attrs: Any) -> Any:
        core = x.shape[-spec.core_ranks[0] :]
        places = spec.forward(_PLACES, np.arange(math.prod(core)).reshape(core), **attrs)
        return write(xp, ct, core, places)

    return functools.wraps(spec.vjp)(body)


class _Places:
    """The part of a namespace that a view needs, for integers: it yields places, not values."""

    gather = staticmethod(lambda x, index: x[..., index])
    reshape = staticmethod(np.reshape)


_PLACES = _Places()


def _write_last(xp: Any, ct: Any, core: tuple[int, ...], places: Array) -> Any:
    flat = xp.zeros((*ct.shape[: ct.ndim - places.ndim], math.prod(core)))
    flat[..., places.reshape(-1)] = ct.reshape(*flat.shape[:-1], places.size)
    return flat.reshape(*flat.shape[:-1], *core)


def _write_mean(xp: Any, ct: Any, core: tuple[int, ...], places: Array) -> Any:
    counts = np.bincount(places.reshape(-1), minlength=math.prod(core)).reshape(core)
    return shape._write(xp, ct, core, places) / np.maximum(counts, 1).astype(ct.dtype)


def _write_twice_at_most(xp: Any, ct: Any, core: tuple[int, ...], places: Array) -> Any:
    flat, seen = places.reshape(-1), np.zeros(math.prod(core), dtype=int)
    keep = np.zeros(flat.size, dtype=bool)
    for k, place in enumerate(flat):
        seen[place] += 1
        keep[k] = seen[place] <= 2
    return shape._write(xp, xp.where(keep.reshape(places.shape), ct, 0.0), core, places)


def _write_packed(xp: Any, ct: Any, core: tuple[int, ...], places: Array) -> Any:
    packed = (places.min(initial=0) + np.arange(places.size)) % max(math.prod(core), 1)
    return shape._write(xp, ct, core, packed.reshape(places.shape))


def _write_short(xp: Any, ct: Any, core: tuple[int, ...], places: Array) -> Any:
    keep = np.arange(places.size) < places.size - 1
    return shape._write(xp, xp.where(keep.reshape(places.shape), ct, 0.0), core, places)


def _write_on_top(xp: Any, ct: Any, core: tuple[int, ...], places: Array) -> Any:
    covered = shape._covered(core, places)
    return xp.where(covered, shape._write(xp, ct, core, places), 1.0)


def _as_it_is(xp: Any, ct: Any, core: tuple[int, ...], places: Array) -> Any:
    return ct


def _views(spec: OpSpec) -> tuple[Mutant, ...]:
    """Mutants of a view of any rank."""
    return (
        *_common(spec, "typical"),
        *mutant_table(
            spec.name,
            {
                ("offset-ignored", "attribute", "typical"): (
                    "The gradient goes to the front, whatever the offset.",
                    mutate.attribute(spec.vjp, offset=0),
                ),
                ("offset-in-bytes", "attribute index", "typical"): (
                    "The offset, in elements, is divided by the size of one.",
                    mutate.attribute(spec.vjp, offset=lambda offset, **attrs: offset // 4),
                ),
                ("left-in-shape", "layout", "typical"): (
                    "The gradient is left in the shape of the view.",
                    _placing(spec, _as_it_is),
                ),
                ("last-element-dropped", "index", "typical"): (
                    "The loop over the view stops one short.",
                    _placing(spec, _write_short),
                ),
                ("not-initialised", "accumulation", "typical"): (
                    "What the view does not touch keeps what its memory held, here 1.",
                    _placing(spec, _write_on_top),
                ),
            },
        ),
    )


def _strided(spec: OpSpec, overlapping: str) -> tuple[Mutant, ...]:
    """Mutants of a view with strides, which may overlap."""
    return (
        *_views(spec),
        *mutant_table(
            spec.name,
            {
                ("overwritten", "accumulation duplicates", overlapping): (
                    "Where places of the view overlap, the last one stays.",
                    _placing(spec, _write_last),
                    {
                        "modelled_on": (
                            "ggml's acc, which a view's backward calls: dst = src0 + src1 row by "
                            "row, not dst += src1"
                        )
                    },
                ),
                ("mean-of-overlap", "reduction duplicates", overlapping): (
                    "Where places of the view overlap, their mean is taken.",
                    _placing(spec, _write_mean),
                ),
                ("packed", "layout index attribute", "typical"): (
                    "The view's rows are written one after another, without their strides.",
                    _placing(spec, _write_packed),
                ),
            },
        ),
    )


def _exchanged(first: str, second: str) -> dict[str, Callable[..., Any]]:
    """Two attributes in each other's place."""
    return {first: lambda **attrs: attrs[second], second: lambda **attrs: attrs[first]}


def view_1d_whole_rows_vjp(xp, ct, x, *, ne0=None, offset=0):
    row = x.shape[-1]
    return shape.view_1d_vjp(xp, ct, x, ne0=ct.shape[-1], offset=offset // row * row)


MUTANTS += _views(shape.view_1d)
MUTANTS += mutant_table(
    "view_1d",
    {
        ("offset-in-rows", "index attribute", "inside-a-row"): (
            "The offset is rounded to the start of a row.",
            view_1d_whole_rows_vjp,
        ),
        ("first-of-batch", "index shape", "batched"): (
            "Only the first of a batch gets its gradient.",
            mutate.output(shape.view_1d.vjp, 0, mutate.first_entry(2)),
        ),
    },
)

# ── view_2d ──────────────────────────────────────────────────────────────────────────────────


def view_2d_nb1_of_view_vjp(xp, ct, x, *, ne0=None, ne1=None, nb1=None, offset=0):
    return shape.view_2d_vjp(xp, ct, x, ne0=ne0, ne1=ne1, nb1=ct.shape[-1], offset=offset)


MUTANTS += _strided(shape.view_2d, "overlapping")
MUTANTS += mutant_table(
    "view_2d",
    {
        ("nb1-default", "attribute", "every-second-row"): (
            "The row stride is the operand's own, whatever nb1.",
            mutate.attribute(shape.view_2d_vjp, nb1=None),
        ),
        ("nb1-of-the-view", "index layout attribute", "columns"): (
            "The row stride is the length of the view's rows.",
            view_2d_nb1_of_view_vjp,
        ),
    },
)

# ── view_3d ──────────────────────────────────────────────────────────────────────────────────

MUTANTS += _strided(shape.view_3d, "windows")
MUTANTS += mutant_table(
    "view_3d",
    {
        ("twice-at-most", "duplicates accumulation", "repeated-slice"): (
            "A place that the view shows three times gets only two of its gradients.",
            _placing(shape.view_3d, _write_twice_at_most),
        ),
        ("strides-exchanged", "index attribute", "heads-square"): (
            "nb1 and nb2 stand in each other's place.",
            mutate.attribute(shape.view_3d_vjp, **_exchanged("nb1", "nb2")),
            {"modelled_on": "ggml's commit log: add_at's arguments in another order than view's"},
        ),
        ("nb2-default", "attribute", "repeated-slice"): (
            "The slice stride is the operand's own, whatever nb2.",
            mutate.attribute(shape.view_3d_vjp, nb2=lambda nb2, nb1, **attrs: None),
        ),
    },
)

# ── view_4d ──────────────────────────────────────────────────────────────────────────────────

MUTANTS += _strided(shape.view_4d, "windows-2d")
MUTANTS += mutant_table(
    "view_4d",
    {
        ("twice-at-most", "duplicates accumulation", "windows-2d"): (
            "A place that the view shows four times gets only two of its gradients.",
            _placing(shape.view_4d, _write_twice_at_most),
        ),
        ("inner-strides-exchanged", "index attribute", "heads-square"): (
            "nb1 and nb2 stand in each other's place.",
            mutate.attribute(shape.view_4d_vjp, **_exchanged("nb1", "nb2")),
            {"modelled_on": "ggml's commit log: add_at's arguments in another order than view's"},
        ),
        ("outer-strides-exchanged", "index attribute", "outer-first"): (
            "nb2 and nb3 stand in each other's place.",
            mutate.attribute(shape.view_4d_vjp, **_exchanged("nb2", "nb3")),
        ),
    },
)

# ── set ──────────────────────────────────────────────────────────────────────────────────────

Change = Callable[[Any, Any, Any, Any, Array], Any]


def _window(spec: OpSpec, change: Change) -> Vjp:
    """Both gradients by `change(xp, ct, da, db, covered)`; `covered` marks the window in a."""

    def body(xp: Any, ct: Any, a: Any, b: Any, **attrs: Any) -> Any:
        rank_a, rank_b = spec.core_ranks
        blank, ones = np.zeros(a.shape[-rank_a:]), np.ones(b.shape[b.ndim - rank_b :])
        covered = spec.forward(F64, blank, ones, **attrs) != 0
        da, db = spec.vjp(xp, ct, a, b, **attrs)
        return change(xp, ct, da, db, covered)

    return functools.wraps(spec.vjp)(body)


def _all_through(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    return ct, db


def _window_alone(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    return xp.where(covered, ct, 0.0), db


def _unwritten(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    return xp.where(covered, da, 1.0), db


def _none_of_a(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    return (None if covered.all() else da), db


def _end_too_early(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    last = np.flatnonzero(covered)[-1:]
    here = np.isin(np.arange(covered.size), last).reshape(covered.shape)
    return xp.where(here, ct, da), db


def _packed_window(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    lead = ct.shape[: ct.ndim - covered.ndim]
    count = int(covered.sum())
    start = int(np.argmax(covered))
    places = (start + np.arange(count)) % max(covered.size, 1)
    return da, np.reshape(np.reshape(ct, (*lead, covered.size))[..., places], db.shape)


def _windows(spec: OpSpec) -> tuple[Mutant, ...]:
    """Mutants of an operator that puts b into a, or adds it."""
    cache = "ggml's baby-llama, whose cache was filled by cpy before there was set"
    return (
        *_common(spec, "typical"),
        *mutant_table(
            spec.name,
            {
                ("offset-ignored", "attribute", "typical"): (
                    "The window lies at the front, whatever the offset.",
                    mutate.attribute(spec.vjp, offset=0),
                ),
                ("no-gradient-of-b", "slot", "typical"): (
                    "No gradient reaches b.",
                    mutate.output(spec.vjp, 1, mutate.zeros),
                    {"modelled_on": "" if spec is shape.acc else cache},
                ),
                ("not-initialised", "accumulation", "typical"): (
                    "What the window does not touch keeps what its memory held, here 1.",
                    _window(spec, _unwritten),
                ),
            },
        ),
    )


def _sets(spec: OpSpec, killer: str) -> tuple[Mutant, ...]:
    """Mutants of an operator where b overwrites."""
    return (
        *_windows(spec),
        *mutant_table(
            spec.name,
            {
                ("passes-through", "index", "typical"): (
                    "a gets the cotangent inside the window as well, as if b were added to it.",
                    _window(spec, _all_through),
                ),
                ("wrong-way-round", "index", "typical"): (
                    "a gets the cotangent inside the window and zeros outside.",
                    _window(spec, _window_alone),
                    {
                        "modelled_on": (
                            "PyTorch 2.13, the backward of torch.as_strided_scatter (measured)"
                        )
                    },
                ),
                ("untouched-lost", "slot", killer): (
                    "a gets no gradient at all, as if b replaced it whole.",
                    mutate.output(spec.vjp, 0, mutate.zeros),
                ),
                ("missing-when-covered", "slot", "whole"): (
                    "a's gradient is missing, not zero, where b covers all of it.",
                    _window(spec, _none_of_a),
                ),
            },
        ),
    )


def _strides(spec: OpSpec) -> tuple[Mutant, ...]:
    """Mutants of a window's strides."""
    return mutant_table(
        spec.name,
        {
            ("nb1-default", "attribute", "every-second-row"): (
                "The row stride is a's own, whatever nb1.",
                mutate.attribute(spec.vjp, nb1=None),
            ),
            ("packed", "layout index", "typical"): (
                "b's gradient is read from rows that lie one after another.",
                _window(spec, _packed_window),
            ),
        },
    )


def _outer_strides(spec: OpSpec) -> tuple[Mutant, ...]:
    return (
        *_strides(spec),
        *mutant_table(
            spec.name,
            {
                ("strides-exchanged", "index attribute", "heads"): (
                    "nb1 and nb2 stand in each other's place.",
                    mutate.attribute(spec.vjp, **_exchanged("nb1", "nb2")),
                    {
                        "modelled_on": (
                            "ggml's commit log: add_at's arguments in another order than view's"
                        )
                    },
                ),
                ("nb3-default", "attribute", "outer"): (
                    "The outermost stride is a's own, whatever nb3.",
                    mutate.attribute(spec.vjp, nb3=None),
                ),
            },
        ),
    )


MUTANTS += _sets(shape.set_general, "rows")
MUTANTS += _outer_strides(shape.set_general)


MUTANTS += mutant_table(
    "set",
    {
        ("last-element-dropped", "index", "last-element"): (
            "The window ends one short: its last element still belongs to a.",
            _window(shape.set_general, _end_too_early),
        ),
    },
)

# ── set_1d ───────────────────────────────────────────────────────────────────────────────────

MUTANTS += _sets(shape.set_1d, "front")
MUTANTS += mutant_table(
    "set_1d",
    {
        ("last-element-dropped", "index", "back"): (
            "The window ends one short: its last element still belongs to a.",
            _window(shape.set_1d, _end_too_early),
        ),
        ("last-of-batch", "accumulation broadcast", "shared-b"): (
            "Each of a batch overwrites the gradient of a b that all share.",
            mutate.of_last(shape.set_1d, 1),
        ),
    },
)

# ── set_2d ───────────────────────────────────────────────────────────────────────────────────


def set_2d_nb1_of_b_vjp(xp, ct, a, b, *, nb1=None, offset=0):
    return shape.set_2d_vjp(xp, ct, a, b, nb1=b.shape[-1], offset=offset)


MUTANTS += _sets(shape.set_2d, "cache")
MUTANTS += _strides(shape.set_2d)
MUTANTS += mutant_table(
    "set_2d",
    {
        ("nb1-of-b", "index layout attribute", "columns"): (
            "The row stride is the length of b's rows.",
            set_2d_nb1_of_b_vjp,
        ),
    },
)

# ── acc ──────────────────────────────────────────────────────────────────────────────────────


def _cleared(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    return xp.where(covered, 0.0, ct), db


MUTANTS += _windows(shape.acc)
MUTANTS += _outer_strides(shape.acc)
MUTANTS += mutant_table(
    "acc",
    {
        ("untouched-not-copied", "accumulation index", "rows"): (
            "a passes through the window alone: what b does not touch is not copied.",
            _window(shape.acc, _window_alone),
            {"modelled_on": "ggml's commit log: add_at, before src0 was copied to dst"},
        ),
        ("window-cleared", "index", "typical"): (
            "a gets no gradient inside the window, as if b were set there.",
            _window(shape.acc, _cleared),
        ),
        ("b-twice", "scale", "one-element"): (
            "b's gradient is doubled.",
            mutate.scaled(shape.acc_vjp, 1, 2.0),
        ),
    },
)

# ── pad ──────────────────────────────────────────────────────────────────────────────────────


def pad_front_vjp(xp, ct, x, *, rows=(0, 0), columns=(0, 0), mode="constant", value=0.0):
    return ct[..., : x.shape[-2], : x.shape[-1]]


def pad_minus_zero_vjp(xp, ct, x, *, rows=(0, 0), columns=(0, 0), mode="constant", value=0.0):
    return ct[..., rows[0] : -rows[1], columns[0] : -columns[1]]


def pad_last_vjp(xp, ct, x, *, rows=(0, 0), columns=(0, 0), mode="constant", value=0.0):
    core = x.shape[-2:]
    return _write_last(xp, ct, core, shape._mirrored(core, rows, columns, mode))


def pad_mean_vjp(xp, ct, x, *, rows=(0, 0), columns=(0, 0), mode="constant", value=0.0):
    core = x.shape[-2:]
    return _write_mean(xp, ct, core, shape._mirrored(core, rows, columns, mode))


def pad_symmetric_vjp(xp, ct, x, *, rows=(0, 0), columns=(0, 0), mode="constant", value=0.0):
    # Mirrored at the border of the edge element, which so appears twice.
    core = x.shape[-2:]
    i, j = (
        np.pad(np.arange(n), width, mode="symmetric")
        for n, width in zip(core, (rows, columns), strict=True)
    )
    return shape._write(xp, ct, core, i[:, None] * core[1] + j)


def _factor(xp: Any, x: Any, *, value: float, **attrs: Any) -> float:
    return value or 1.0


MUTANTS += _common(shape.pad, "typical")
MUTANTS += mutant_table(
    "pad",
    {
        ("from-the-front", "index attribute", "before"): (
            "The inside is read from the front, whatever comes before it.",
            pad_front_vjp,
            {"dialects": ("constant",)},
        ),
        ("ends-at-minus-zero", "shape", "none"): (
            "Without padding behind, the slice that ends there, at -0, is empty.",
            pad_minus_zero_vjp,
            {"dialects": ("constant",)},
        ),
        ("before-after-exchanged", "index attribute", "typical"): (
            "What comes before and what comes behind are exchanged.",
            mutate.attribute(
                shape.pad_vjp,
                rows=lambda rows, **attrs: rows[::-1],
                columns=lambda columns, **attrs: columns[::-1],
            ),
        ),
        ("axes-exchanged", "index attribute", "square"): (
            "Rows are taken for columns.",
            mutate.attribute(shape.pad_vjp, **_exchanged("rows", "columns")),
        ),
        ("times-the-value", "scale", "value"): (
            "The gradient is multiplied by the constant.",
            mutate.scaled(shape.pad_vjp, 0, _factor),
            {"dialects": ("constant",)},
        ),
        ("inside-only", "term attribute", "typical"): (
            "What comes back from outside is lost, as if the padding were constant.",
            mutate.attribute(shape.pad_vjp, mode="constant"),
            {"dialects": ("reflect", "replicate", "circular")},
        ),
        ("overwritten", "duplicates accumulation", "as-wide-as-it-gets"): (
            "Where an element appears more than once, the last place stays.",
            pad_last_vjp,
            {"dialects": ("reflect", "replicate", "circular")},
        ),
        ("mean-of-repeats", "reduction duplicates", "typical"): (
            "Where an element appears more than once, the mean is taken.",
            pad_mean_vjp,
            {"dialects": ("reflect", "replicate", "circular")},
        ),
        ("edge-mirrored-too", "index", "typical"): (
            "Mirrored at the border, so that the edge element appears twice.",
            pad_symmetric_vjp,
            {"dialects": ("reflect",)},
        ),
        ("mode-ignored", "attribute", "typical"): (
            "The edge element is repeated, whatever the mode.",
            mutate.attribute(shape.pad_vjp, mode="replicate"),
            {"dialects": ("reflect", "circular")},
        ),
    },
)

# ── slice ────────────────────────────────────────────────────────────────────────────────────


def _comb(start: Callable[[int, int], int], stride: Callable[[int], int]) -> Vjp:
    """The VJP of slice from another start and with another step, as far as that stays inside."""

    def body(xp: Any, ct: Any, x: Any, *, rows: Any, columns: Any) -> Any:
        core = x.shape[-2:]
        lines = []
        for n, count, along in zip(core, ct.shape[-2:], (rows, columns), strict=True):
            first, _, step = slice(*along).indices(n)
            line = start(first, n) + stride(step) * np.arange(count)
            lines.append(line % max(n, 1))
        places = lines[0][:, None] * core[1] + lines[1]
        return _write_last(xp, ct, core, places)

    return functools.wraps(shape.slice_vjp)(body)


def slice_short_vjp(xp, ct, x, *, rows=shape.ALL, columns=shape.ALL):
    n = x.shape[-1]
    first, stop, step = slice(*columns).indices(n)
    whole = max((stop - first) // step, 0)
    keep = np.arange(ct.shape[-1]) < whole
    return shape.slice_vjp(xp, xp.where(keep, ct, 0.0), x, rows=rows, columns=columns)


def slice_on_top_vjp(xp, ct, x, *, rows=shape.ALL, columns=shape.ALL):
    touched = np.zeros(x.shape[-2:], dtype=bool)
    touched[slice(*rows), slice(*columns)] = True
    right = shape.slice_vjp(xp, ct, x, rows=rows, columns=columns)
    return xp.where(touched, right, 1.0)


def slice_left_vjp(xp, ct, x, *, rows=shape.ALL, columns=shape.ALL):
    return ct


def slice_twice_normalised_vjp(xp, ct, x, *, rows=shape.ALL, columns=shape.ALL):
    # A negative start has n added where it is parsed, and once more where it is used.
    m = x.shape[-2]
    start = rows[0]
    if start is not None and start < 0:
        rows = (min(start + 2 * m, m), *rows[1:])
    places = np.arange(x.shape[-2] * x.shape[-1]).reshape(x.shape[-2:])
    places = places[slice(*rows), slice(*columns)]
    return shape._write(xp, ct[..., : places.shape[0], : places.shape[1]], x.shape[-2:], places)


MUTANTS += _common(shape.slice_, "typical")
MUTANTS += mutant_table(
    "slice",
    {
        ("start-ignored", "attribute", "typical"): (
            "The gradient goes to the front, whatever the start.",
            _comb(lambda first, n: 0, lambda step: step),
        ),
        ("step-ignored", "attribute", "step"): (
            "The gradient goes to a block, whatever the step.",
            _comb(lambda first, n: first, lambda step: 1),
        ),
        ("step-without-sign", "attribute index", "backwards"): (
            "A step backwards is taken forwards.",
            _comb(lambda first, n: first, abs),
        ),
        ("rounded-down", "index", "step-remainder"): (
            "The number of elements is rounded down, and the last one is dropped.",
            slice_short_vjp,
        ),
        ("axes-exchanged", "index attribute", "square"): (
            "Rows are taken for columns.",
            mutate.attribute(shape.slice_vjp, **_exchanged("rows", "columns")),
        ),
        ("left-in-shape", "layout", "typical"): (
            "The gradient is left in the shape of the slice.",
            slice_left_vjp,
        ),
        ("not-initialised", "accumulation", "nothing"): (
            "What the slice does not touch keeps what its memory held, here 1.",
            slice_on_top_vjp,
        ),
        ("normalised-twice", "index", "from-the-end"): (
            "The size is added to a negative start twice.",
            slice_twice_normalised_vjp,
        ),
    },
)

# ── flip ─────────────────────────────────────────────────────────────────────────────────────


def flip_as_it_is_vjp(xp, ct, x, *, axes=(-1,)):
    return ct


def flip_other_axis_vjp(xp, ct, x, *, axes=(-1,)):
    return shape.flip_vjp(xp, ct, x, axes=tuple(-3 - axis for axis in axes))


def flip_about_an_element_vjp(xp, ct, x, *, axes=(-1,)):
    for axis in axes:
        ct = np.roll(xp.flip(ct, axis), 1, axis)
    return ct


def flip_batch_too_vjp(xp, ct, x, *, axes=(-1,)):
    g = shape.flip_vjp(xp, ct, x, axes=axes)
    return xp.flip(g, 0) if g.ndim > 2 else g


MUTANTS += _common(shape.flip, "typical")
MUTANTS += mutant_table(
    "flip",
    {
        ("as-it-is", "layout derivative", "typical"): (
            "The cotangent is passed on as it is.",
            flip_as_it_is_vjp,
        ),
        ("other-axis", "index layout", "square"): (
            "The other axis is reversed.",
            flip_other_axis_vjp,
        ),
        ("axis-default", "attribute layout", "rows"): (
            "The last axis is reversed, whichever was asked for.",
            mutate.attribute(shape.flip_vjp, axes=(-1,)),
        ),
        ("first-axis-only", "attribute layout", "both"): (
            "Only the first of several axes is reversed.",
            mutate.attribute(shape.flip_vjp, axes=lambda axes: axes[:1]),
        ),
        ("none-is-all", "attribute layout", "neither"): (
            "`axes or all`: no axes count as not given.",
            mutate.attribute(shape.flip_vjp, axes=lambda axes: axes or (-2, -1)),
        ),
        ("about-an-element", "index layout", "even-length"): (
            "Reversed about the first element, which stays where it is.",
            flip_about_an_element_vjp,
        ),
        ("batch-too", "index layout shape", "batched"): (
            "The batch is reversed as well.",
            flip_batch_too_vjp,
        ),
        ("transposed", "layout", "square"): (
            "A square is transposed as well.",
            mutate.output(shape.flip_vjp, 0, mutate.transposed),
        ),
    },
)

# ── tril ─────────────────────────────────────────────────────────────────────────────────────


def _with_mask(spec: OpSpec, mask: Callable[[int, int, int], Array]) -> Vjp:
    """The cotangent where `mask(m, n, diagonal)` holds, 0 elsewhere."""

    def body(xp: Any, ct: Any, x: Any, *, diagonal: int) -> Any:
        m, n = x.shape[-2:]
        return xp.where(mask(m, n, diagonal), ct, 0.0)

    return functools.wraps(spec.vjp)(body)


def _not_zero(spec: OpSpec) -> Vjp:
    def body(xp: Any, ct: Any, x: Any, *, diagonal: int) -> Any:
        return xp.where(spec.forward(xp, x, diagonal=diagonal) != 0, ct, 0.0)

    return functools.wraps(spec.vjp)(body)


def _first_matrix(spec: OpSpec) -> Vjp:
    def body(xp: Any, ct: Any, x: Any, *, diagonal: int) -> Any:
        g = spec.vjp(xp, ct, x, diagonal=diagonal)
        if g.ndim == 2:
            return g
        return xp.where((np.arange(len(g)) == 0)[:, None, None], g, ct)

    return functools.wraps(spec.vjp)(body)


def _one_row(spec: OpSpec) -> Vjp:
    def body(xp: Any, ct: Any, x: Any, *, diagonal: int) -> Any:
        return ct if 1 in x.shape[-2:] else spec.vjp(xp, ct, x, diagonal=diagonal)

    return functools.wraps(spec.vjp)(body)


def _triangles(
    spec: OpSpec,
    other: OpSpec,
    inside: Callable[[int, int, int], Array],
    thinner: int,
    line: str,
) -> tuple[Mutant, ...]:
    """Mutants of a triangle; `inside` is the right triangle, `thinner` shrinks it by one."""
    return (
        *_common(spec, "typical"),
        *mutant_table(
            spec.name,
            {
                ("whole", "index", "typical"): (
                    "The cotangent passes through everywhere.",
                    _with_mask(spec, lambda m, n, k: np.ones((m, n), dtype=bool)),
                ),
                ("other-triangle", "index layout", "typical"): (
                    "The other triangle passes through.",
                    other.vjp,
                ),
                ("diagonal-left-out", "index attribute", "typical"): (
                    "The triangle lacks its own diagonal.",
                    mutate.attribute(spec.vjp, diagonal=lambda diagonal: diagonal + thinner),
                ),
                ("diagonal-default", "attribute", "above"): (
                    "The diagonal is the main one, whichever was asked for.",
                    mutate.attribute(spec.vjp, diagonal=0),
                ),
                ("diagonal-without-sign", "attribute index", "below"): (
                    "A diagonal below the main one is taken for one above it.",
                    mutate.attribute(spec.vjp, diagonal=lambda **attrs: abs(attrs["diagonal"])),
                ),
                ("from-the-right", "index attribute", "wide"): (
                    "The diagonal ends in the last corner instead of starting in the first.",
                    _with_mask(spec, lambda m, n, k: inside(m, n, k + n - m)),
                ),
                ("transposed", "layout index", "square"): (
                    "The mask is read with rows and columns exchanged.",
                    _with_mask(spec, lambda m, n, k: inside(n, m, k).T),
                ),
                ("found-by-value", "derivative", "with-zeros"): (
                    "The triangle is where y is not 0, so a zero in x gets no gradient.",
                    _not_zero(spec),
                ),
                ("first-of-batch", "index shape", "batched"): (
                    "Only the first of a batch is masked.",
                    _first_matrix(spec),
                ),
                ("one-line-is-a-vector", "shape index", line): (
                    "One row, or one column, is not masked at all.",
                    _one_row(spec),
                ),
            },
        ),
    )


MUTANTS += _triangles(
    shape.tril, shape.triu, lambda m, n, k: np.tri(m, n, k, dtype=bool), -1, "one-row"
)

# ── triu ─────────────────────────────────────────────────────────────────────────────────────

MUTANTS += _triangles(
    shape.triu, shape.tril, lambda m, n, k: ~np.tri(m, n, k - 1, dtype=bool), 1, "one-column"
)

# ── where ────────────────────────────────────────────────────────────────────────────────────


def where_product_vjp(xp, ct, mask, x, y, *, guard="none"):
    m = mask.astype(ct.dtype)
    slope = 1 / (2 * xp.sqrt(shape._safe(xp, mask != 0, x))) if guard == "sqrt" else 1.0
    return None, xp.reduce_to(m * ct * slope, x), xp.reduce_to((1 - m) * ct, y)


def where_is_one_vjp(xp, ct, mask, x, y, *, guard="none"):
    return shape.where_vjp(xp, ct, (mask == 1).astype(np.int64), x, y, guard=guard)


def where_trap_vjp(xp, ct, mask, x, y, *, guard="none"):
    _, dx, dy = shape.where_vjp(xp, ct, mask, x, y, guard=guard)
    if guard == "sqrt":
        taken = (mask != 0).astype(ct.dtype)
        dx = xp.reduce_to(taken * ct / (2 * xp.sqrt(x)), x)
    return None, dx, dy


def where_not_masked_vjp(xp, ct, mask, x, y, *, guard="none"):
    return None, shape.where_vjp(xp, ct, mask, x, y, guard=guard)[1], xp.reduce_to(ct, y)


def where_unreduced_vjp(xp, ct, mask, x, y, *, guard="none"):
    _, dx, _ = shape.where_vjp(xp, ct, mask, x, y, guard=guard)
    return None, dx, xp.where(mask != 0, 0.0, ct)


def where_found_by_value_vjp(xp, ct, mask, x, y, *, guard="none"):
    z = shape.where_forward(xp, mask, x, y, guard=guard)
    from_y = xp.broadcast_to(z == y, ct.shape).astype(np.int64)
    return shape.where_vjp(xp, ct, 1 - from_y, x, y, guard=guard)


def where_turned_mask_vjp(xp, ct, mask, x, y, *, guard="none"):
    square = ct.ndim == 2 and ct.shape[0] == ct.shape[1]
    read = xp.broadcast_to(mask, ct.shape).T if square else mask
    return shape.where_vjp(xp, ct, read, x, y, guard=guard)


def where_missing_vjp(xp, ct, mask, x, y, *, guard="none"):
    _, dx, dy = shape.where_vjp(xp, ct, mask, x, y, guard=guard)
    return None, dx, (dy if np.any(mask == 0) else None)


def _share(xp: Any, mask: Any, x: Any, y: Any, **attrs: Any) -> Any:
    """One over the number of places in which an element of x is seen."""
    places = math.prod(np.broadcast_shapes(np.shape(mask), x.shape, y.shape))
    return x.size / max(places, 1)


MUTANTS += _common(shape.where, "typical", 1)[1:]
MUTANTS += mutant_table(
    "where",
    {
        ("swapped", "slot", "typical"): (
            "Each branch gets the other one's gradient.",
            mutate.swapped(shape.where_vjp, 1, 2),
        ),
        ("mask-multiplied", "derivative scale", "not-just-ones"): (
            "The mask is multiplied in, so that a mask of 2 doubles the gradient.",
            where_product_vjp,
        ),
        ("mask-is-one", "derivative", "not-just-ones"): (
            "The mask counts where it is 1, not where it is not 0.",
            where_is_one_vjp,
        ),
        ("trap", "non-finite", "guarded"): (
            "The slope of the branch that is not taken, infinite or NaN, is multiplied by 0.",
            where_trap_vjp,
            {
                "modelled_on": "JAX's FAQ: gradients contain NaN where using where",
                "dialects": ("guarded-sqrt",),
            },
        ),
        ("guard-ignored", "attribute derivative", "typical"): (
            "The root has no slope: x's gradient is the cotangent.",
            mutate.attribute(shape.where_vjp, guard="none"),
            {"dialects": ("guarded-sqrt",)},
        ),
        ("second-not-masked", "derivative", "typical"): (
            "y gets the cotangent where x is taken, too.",
            where_not_masked_vjp,
        ),
        ("unreduced", "broadcast", "broadcast-y"): (
            "y's gradient is not summed over the places where y was repeated.",
            where_unreduced_vjp,
        ),
        ("mean-of-repeats", "reduction", "broadcast-x"): (
            "x's gradient is the mean over the places where x was repeated.",
            mutate.scaled(shape.where_vjp, 1, _share),
        ),
        ("found-by-value", "kink", "equal-branches"): (
            "The branch is recovered by comparing the result with y, which a tie misleads.",
            where_found_by_value_vjp,
            {"dialects": ("select",)},
        ),
        ("mask-transposed", "layout index", "column-mask"): (
            "The mask lies along the other axis.",
            where_turned_mask_vjp,
        ),
        ("missing-when-never-taken", "slot", "all-on"): (
            "A branch that is never taken has no gradient, in place of zeros.",
            where_missing_vjp,
        ),
    },
)
