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
from gradcheck.spec.mutant import Mutant
from gradcheck_cases import shape

# ── parts ────────────────────────────────────────────────────────────────────────────────────


def _averaged(xp: Any, ct: Any, *primals: Any, **attrs: Any) -> Any:
    """One number for the whole cotangent."""
    return xp.broadcast_to(xp.sum(ct) / max(ct.size, 1), ct.shape)


def _common(spec: OpSpec, killer: str, index: int = 0) -> tuple[Mutant, ...]:
    """What can go wrong in any of them, whatever it moves."""
    return (
        Mutant(
            op=spec.name,
            name="never-cleared",
            label="A",
            killer=killer,
            says="The gradient is added to a buffer that is never cleared.",
            make=mutate.accumulated(spec.vjp, index),
        ),
        Mutant(
            op=spec.name,
            name="upstream-averaged",
            label="U",
            killer=killer,
            says="The mean of the cotangent stands for all of it.",
            vjp=mutate.cotangent(spec.vjp, _averaged),
        ),
    )


def _only(xp: Any, x: Any, keep: Array) -> Any:
    """Only where the flat mask `keep` holds; 0 elsewhere."""
    return xp.where(keep.reshape(x.shape), x, 0.0)


# ── dup, cpy, cont ───────────────────────────────────────────────────────────────────────────


def dup_primal_vjp(xp, ct, x):
    return x


def dup_threads_vjp(xp, ct, x):
    return ct if ct.size >= 4 else xp.zeros_like(ct)


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


COPIES = (
    *_common(shape.dup, "typical"),
    Mutant(
        op="dup",
        name="fewer-elements-than-threads",
        label="W",
        also=("A", "G"),
        killer="single",
        says="With less than one element for each of four threads nothing is copied.",
        modelled_on="ggml's commit log: ggml_compute_forward_dup_same_cont, nelements < nthreads",
        vjp=dup_threads_vjp,
    ),
    Mutant(
        op="dup",
        name="whole-blocks-only",
        label="W",
        also=("A",),
        killer="odd-length",
        says="What is left over after the last block of four is not copied.",
        vjp=mutate.output(shape.dup_vjp, 0, mutate.whole_blocks(4)),
    ),
    Mutant(
        op="dup",
        name="primal",
        label="U",
        killer="typical",
        says="The operand is copied once more, in place of its cotangent.",
        vjp=dup_primal_vjp,
    ),
    Mutant(
        op="dup",
        name="through-four-bits",
        label="O",
        killer="typical",
        says="The copy goes through a type of four significant bits, as float8 is.",
        vjp=mutate.output(shape.dup_vjp, 0, mutate.rounded(4)),
    ),
    *_common(shape.cpy, "typical"),
    Mutant(
        op="cpy",
        name="swapped",
        label="G",
        killer="single",
        says="The destination gets the gradient, the source gets zeros.",
        vjp=mutate.swapped(shape.cpy_vjp, 0, 1),
    ),
    Mutant(
        op="cpy",
        name="destination-too",
        label="T",
        also=("G",),
        killer="into-zeros",
        says="The destination gets the cotangent as well, as if it had been added to.",
        vjp=cpy_destination_too_vjp,
    ),
    Mutant(
        op="cpy",
        name="source-forgotten",
        label="G",
        killer="typical",
        says="No gradient reaches the source: the operation counts as one that reads nothing.",
        vjp=mutate.output(shape.cpy_vjp, 0, mutate.zeros),
    ),
    Mutant(
        op="cpy",
        name="left-in-shape",
        label="L",
        killer="reshaped",
        says="The source's gradient is left in the destination's shape.",
        vjp=cpy_left_in_shape_vjp,
    ),
    Mutant(
        op="cpy",
        name="column-major",
        label="L",
        killer="reshaped",
        says="The gradient goes back into the source's shape in column-major order.",
        vjp=cpy_column_major_vjp,
    ),
    Mutant(
        op="cpy",
        name="first-row-only",
        label="I",
        also=("A",),
        killer="typical",
        says="One row of the destination is copied back, the others are not.",
        vjp=cpy_first_row_vjp,
    ),
    *_common(shape.cont, "typical"),
    Mutant(
        op="cont",
        name="strides-ignored",
        label="L",
        killer="transposed-square",
        says="The cotangent is written one by one into memory, whatever the operand's strides.",
        modelled_on="ggml's commit log: add with transposed tensors, before its fix",
        vjp=cont_strides_vjp,
    ),
    Mutant(
        op="cont",
        name="permutation-for-its-inverse",
        label="L",
        killer="cycle-cube",
        says="The cotangent's axes are permuted as forward permutes, not back.",
        vjp=cont_forward_axes_vjp,
    ),
    Mutant(
        op="cont",
        name="last-two-axes-only",
        label="L",
        killer="reversed",
        says="Any permutation is taken for an exchange of the last two axes.",
        vjp=cont_last_two_vjp,
    ),
    Mutant(
        op="cont",
        name="axes-from-the-front",
        label="I",
        also=("L", "W"),
        killer="batched",
        says="Axes are counted from the front, batch axes included.",
        vjp=cont_from_front_vjp,
    ),
    Mutant(
        op="cont",
        name="unit-axis-is-contiguous",
        label="W",
        also=("L",),
        killer="one-wide",
        says="An operand with an axis of size 1 counts as contiguous in any order.",
        vjp=cont_unit_axis_vjp,
    ),
    Mutant(
        op="cont",
        name="primal",
        label="U",
        killer="typical",
        says="The operand is returned in place of its cotangent.",
        vjp=cont_primal_vjp,
    ),
)

# ── reshape, transpose, permute ──────────────────────────────────────────────────────────────


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


REARRANGEMENTS = (
    *_common(shape.reshape, "typical"),
    Mutant(
        op="reshape",
        name="left-in-shape",
        label="L",
        killer="typical",
        says="The gradient is left in the shape of y.",
        vjp=reshape_left_vjp,
    ),
    Mutant(
        op="reshape",
        name="column-major",
        label="L",
        killer="to-2d",
        says="The gradient goes back into the operand's shape in column-major order.",
        vjp=reshape_column_major_vjp,
    ),
    Mutant(
        op="reshape",
        name="transposition",
        label="L",
        killer="exchanged",
        says="Where only two axes seem exchanged, they are transposed back.",
        vjp=reshape_transposed_vjp,
    ),
    Mutant(
        op="reshape",
        name="batch-innermost",
        label="I",
        also=("L", "W"),
        killer="batched",
        says="Elements are counted with the batch as the innermost axis.",
        vjp=reshape_batch_inside_vjp,
    ),
    Mutant(
        op="reshape",
        name="rank-3-at-most",
        label="W",
        also=("I",),
        killer="to-4d",
        says="The loops cover three axes; of a fourth, only the first slice comes back.",
        vjp=reshape_rank_3_vjp,
    ),
    *_common(shape.transpose, "typical"),
    Mutant(
        op="transpose",
        name="reinterpreted",
        label="L",
        killer="square",
        says="The memory is given the other shape, and nothing is moved.",
        vjp=transpose_reinterpreted_vjp,
    ),
    Mutant(
        op="transpose",
        name="all-axes-reversed",
        label="L",
        also=("I", "W"),
        killer="cube",
        says="All axes are reversed, those of the batch too.",
        vjp=transpose_reversed_vjp,
    ),
    Mutant(
        op="transpose",
        name="first-two-axes",
        label="I",
        also=("L", "W"),
        killer="cube",
        says="The first two axes are exchanged, not the last two.",
        vjp=transpose_first_two_vjp,
    ),
    Mutant(
        op="transpose",
        name="whole-tiles-only",
        label="W",
        also=("A",),
        killer="typical",
        says="Tiles of 2 by 2 are transposed; what is left over at the edges is not.",
        vjp=transpose_tiles_vjp,
    ),
    Mutant(
        op="transpose",
        name="in-place",
        label="X",
        also=("V",),
        killer="square",
        says="A square is transposed in place without a spare copy, so one triangle appears twice.",
        vjp=transpose_upper_vjp,
    ),
    *_common(shape.permute, "identity"),
    Mutant(
        op="permute",
        name="permutation-for-its-inverse",
        label="L",
        also=("P",),
        killer="cycle-3",
        says="The cotangent's axes are permuted as forward permutes, not back.",
        vjp=permute_forward_vjp,
    ),
    Mutant(
        op="permute",
        name="strides-ignored",
        label="L",
        killer="hypercube",
        says="The cotangent is written one by one into memory, whatever the strides.",
        vjp=permute_reinterpreted_vjp,
    ),
    Mutant(
        op="permute",
        name="right-for-3-cycles",
        label="L",
        killer="cycle-4",
        says="The inverse is the permutation applied twice, which is right for 3-cycles alone.",
        vjp=permute_twice_vjp,
    ),
    Mutant(
        op="permute",
        name="other-systems-axes",
        label="P",
        also=("L",),
        killer="cycle-3",
        says="Where an axis comes from is taken for where it goes to.",
        vjp=mutate.attribute(shape.permute_vjp, form=_other_form),
    ),
    Mutant(
        op="permute",
        name="last-pair-only",
        label="L",
        killer="swap-pairs",
        says="Of several exchanges only that of the last two axes is undone.",
        vjp=permute_last_pair_vjp,
    ),
    Mutant(
        op="permute",
        name="axes-from-the-front",
        label="I",
        also=("L", "W"),
        killer="batched",
        says="Axes are counted from the front, batch axes included.",
        vjp=permute_from_front_vjp,
    ),
    Mutant(
        op="permute",
        name="axes-from-the-end",
        label="I",
        also=("L",),
        killer="cycle-3-back",
        says="The inverse is right but for the count of the axes, which runs from the innermost.",
        dialects=("source",),
        vjp=permute_from_the_end_vjp,
    ),
    Mutant(
        op="permute",
        name="default-order",
        label="P",
        also=("L",),
        killer="hypercube",
        says="The axes' order is at its default in backward.",
        vjp=mutate.attribute(shape.permute_vjp, axes=(0, 1, 2, 3)),
    ),
)

# ── concat, diag ─────────────────────────────────────────────────────────────────────────────


def concat_shifted_vjp(xp, ct, x, y, *, axis=-1):
    # The boundary lies one too far: x's part starts at its second element.
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


JOINTS = (
    *_common(shape.concat, "typical"),
    Mutant(
        op="concat",
        name="swapped",
        label="G",
        killer="same-size",
        says="Each operand gets the other one's part.",
        vjp=mutate.swapped(shape.concat_vjp, 0, 1),
    ),
    Mutant(
        op="concat",
        name="start-off-by-one",
        label="I",
        killer="typical",
        says="The first operand's part starts one element late.",
        vjp=concat_shifted_vjp,
    ),
    Mutant(
        op="concat",
        name="no-offset",
        label="I",
        killer="typical",
        says="The second operand's part is read from the start, without the offset.",
        vjp=concat_no_offset_vjp,
    ),
    Mutant(
        op="concat",
        name="memory-cut-in-two",
        label="L",
        killer="middle-axis",
        says="The cotangent's memory is cut into two pieces, right for the outermost axis alone.",
        vjp=concat_memory_vjp,
    ),
    Mutant(
        op="concat",
        name="axis-default",
        label="P",
        killer="cube",
        says="The axis is at its default in backward.",
        vjp=mutate.attribute(shape.concat_vjp, axis=-1),
    ),
    Mutant(
        op="concat",
        name="axis-from-the-front",
        label="I",
        also=("W",),
        killer="batched",
        says="The axis is counted from the front, batch axes included.",
        vjp=concat_from_front_vjp,
    ),
    Mutant(
        op="concat",
        name="never-empty",
        label="W",
        also=("I",),
        killer="empty-part",
        says="A part of size 0 is skipped over as if it had one element.",
        vjp=concat_never_empty_vjp,
    ),
    Mutant(
        op="concat",
        name="unit-part-broadcast",
        label="B",
        also=("W",),
        killer="one-wide",
        says="A part of size 1 is taken for one that was broadcast, and gets the sum of all.",
        vjp=concat_unit_vjp,
    ),
    *_common(shape.diag, "typical"),
    Mutant(
        op="diag",
        name="row-sums",
        label="D",
        also=("T",),
        killer="typical",
        says="Each element gets its whole row of the cotangent, off the diagonal too.",
        vjp=diag_row_sum_vjp,
    ),
    Mutant(
        op="diag",
        name="offset-ignored",
        label="P",
        killer="above",
        says="The main diagonal is read, whatever the offset.",
        vjp=diag_main_vjp,
    ),
    Mutant(
        op="diag",
        name="offset-without-sign",
        label="P",
        also=("I",),
        killer="below",
        says="A diagonal below the main one is read above it.",
        vjp=mutate.attribute(shape.diag_vjp, offset=lambda **attrs: abs(attrs["offset"])),
    ),
    Mutant(
        op="diag",
        name="first-of-batch",
        label="I",
        also=("U",),
        killer="batched",
        says="Every matrix of a batch is read as the first one.",
        vjp=diag_first_vjp,
    ),
    Mutant(
        op="diag",
        name="found-by-value",
        label="D",
        killer="with-zeros",
        says="The diagonal is where y is not 0, so a zero in x gets no gradient.",
        vjp=diag_where_not_zero_vjp,
    ),
    Mutant(
        op="diag",
        name="second-on",
        label="I",
        killer="single",
        says="The loop starts at 1.",
        vjp=diag_second_on_vjp,
    ),
    Mutant(
        op="diag",
        name="trace",
        label="D",
        also=("T",),
        killer="typical",
        says="Every element gets the sum along the diagonal.",
        vjp=diag_trace_vjp,
    ),
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
    """What goes wrong in a view of any rank."""
    return (
        *_common(spec, "typical"),
        Mutant(
            op=spec.name,
            name="offset-ignored",
            label="P",
            killer="typical",
            says="The gradient goes to the front, whatever the offset.",
            vjp=mutate.attribute(spec.vjp, offset=0),
        ),
        Mutant(
            op=spec.name,
            name="offset-in-bytes",
            label="P",
            also=("I",),
            killer="typical",
            says="The offset, in elements, is divided by the size of one.",
            vjp=mutate.attribute(spec.vjp, offset=lambda offset, **attrs: offset // 4),
        ),
        Mutant(
            op=spec.name,
            name="left-in-shape",
            label="L",
            killer="typical",
            says="The gradient is left in the shape of the view.",
            vjp=_placing(spec, _as_it_is),
        ),
        Mutant(
            op=spec.name,
            name="last-element-dropped",
            label="I",
            killer="typical",
            says="The loop over the view stops one short.",
            vjp=_placing(spec, _write_short),
        ),
        Mutant(
            op=spec.name,
            name="not-initialised",
            label="A",
            killer="typical",
            says="What the view does not touch keeps what its memory held, here 1.",
            vjp=_placing(spec, _write_on_top),
        ),
    )


def _strided(spec: OpSpec, overlapping: str) -> tuple[Mutant, ...]:
    """What goes wrong with strides, and where they overlap."""
    return (
        *_views(spec),
        Mutant(
            op=spec.name,
            name="overwritten",
            label="A",
            also=("DI",),
            killer=overlapping,
            says="Where places of the view overlap, the last one stays.",
            modelled_on="ggml's acc, which a view's backward calls: dst = src0 + src1 row by row, "
            "not dst += src1",
            vjp=_placing(spec, _write_last),
        ),
        Mutant(
            op=spec.name,
            name="mean-of-overlap",
            label="R",
            also=("DI",),
            killer=overlapping,
            says="Where places of the view overlap, their mean is taken.",
            vjp=_placing(spec, _write_mean),
        ),
        Mutant(
            op=spec.name,
            name="packed",
            label="L",
            also=("I", "P"),
            killer="typical",
            says="The view's rows are written one after another, without their strides.",
            vjp=_placing(spec, _write_packed),
        ),
    )


def _exchanged(first: str, second: str) -> dict[str, Callable[..., Any]]:
    """Two attributes in each other's place."""
    return {first: lambda **attrs: attrs[second], second: lambda **attrs: attrs[first]}


def view_1d_whole_rows_vjp(xp, ct, x, *, ne0=None, offset=0):
    row = x.shape[-1]
    return shape.view_1d_vjp(xp, ct, x, ne0=ct.shape[-1], offset=offset // row * row)


def view_2d_nb1_of_view_vjp(xp, ct, x, *, ne0=None, ne1=None, nb1=None, offset=0):
    return shape.view_2d_vjp(xp, ct, x, ne0=ne0, ne1=ne1, nb1=ct.shape[-1], offset=offset)


VIEWS = (
    *_views(shape.view_1d),
    Mutant(
        op="view_1d",
        name="offset-in-rows",
        label="I",
        also=("P",),
        killer="inside-a-row",
        says="The offset is rounded to the start of a row.",
        vjp=view_1d_whole_rows_vjp,
    ),
    Mutant(
        op="view_1d",
        name="first-of-batch",
        label="I",
        also=("W",),
        killer="batched",
        says="Only the first of a batch gets its gradient.",
        vjp=mutate.output(shape.view_1d.vjp, 0, mutate.first_entry(2)),
    ),
    *_strided(shape.view_2d, "overlapping"),
    Mutant(
        op="view_2d",
        name="nb1-default",
        label="P",
        killer="every-second-row",
        says="The row stride is the operand's own, whatever nb1.",
        vjp=mutate.attribute(shape.view_2d_vjp, nb1=None),
    ),
    Mutant(
        op="view_2d",
        name="nb1-of-the-view",
        label="I",
        also=("L", "P"),
        killer="columns",
        says="The row stride is the length of the view's rows.",
        vjp=view_2d_nb1_of_view_vjp,
    ),
    *_strided(shape.view_3d, "windows"),
    Mutant(
        op="view_3d",
        name="twice-at-most",
        label="DI",
        also=("A",),
        killer="repeated-slice",
        says="A place that the view shows three times gets only two of its gradients.",
        vjp=_placing(shape.view_3d, _write_twice_at_most),
    ),
    Mutant(
        op="view_3d",
        name="strides-exchanged",
        label="I",
        also=("P",),
        killer="heads-square",
        says="nb1 and nb2 stand in each other's place.",
        modelled_on="ggml's commit log: add_at's arguments in another order than view's",
        vjp=mutate.attribute(shape.view_3d_vjp, **_exchanged("nb1", "nb2")),
    ),
    Mutant(
        op="view_3d",
        name="nb2-default",
        label="P",
        killer="repeated-slice",
        says="The slice stride is the operand's own, whatever nb2.",
        vjp=mutate.attribute(shape.view_3d_vjp, nb2=lambda nb2, nb1, **attrs: None),
    ),
    *_strided(shape.view_4d, "windows-2d"),
    Mutant(
        op="view_4d",
        name="twice-at-most",
        label="DI",
        also=("A",),
        killer="windows-2d",
        says="A place that the view shows four times gets only two of its gradients.",
        vjp=_placing(shape.view_4d, _write_twice_at_most),
    ),
    Mutant(
        op="view_4d",
        name="inner-strides-exchanged",
        label="I",
        also=("P",),
        killer="heads-square",
        says="nb1 and nb2 stand in each other's place.",
        modelled_on="ggml's commit log: add_at's arguments in another order than view's",
        vjp=mutate.attribute(shape.view_4d_vjp, **_exchanged("nb1", "nb2")),
    ),
    Mutant(
        op="view_4d",
        name="outer-strides-exchanged",
        label="I",
        also=("P",),
        killer="outer-first",
        says="nb2 and nb3 stand in each other's place.",
        vjp=mutate.attribute(shape.view_4d_vjp, **_exchanged("nb2", "nb3")),
    ),
)

# ── set, acc ─────────────────────────────────────────────────────────────────────────────────

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


def _cleared(xp: Any, ct: Any, da: Any, db: Any, covered: Array) -> Any:
    return xp.where(covered, 0.0, ct), db


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
    """What goes wrong where b is put, or added, into a."""
    cache = "ggml's baby-llama, whose cache was filled by cpy before there was set"
    return (
        *_common(spec, "typical"),
        Mutant(
            op=spec.name,
            name="offset-ignored",
            label="P",
            killer="typical",
            says="The window lies at the front, whatever the offset.",
            vjp=mutate.attribute(spec.vjp, offset=0),
        ),
        Mutant(
            op=spec.name,
            name="no-gradient-of-b",
            label="G",
            killer="typical",
            says="No gradient reaches b.",
            modelled_on="" if spec is shape.acc else cache,
            vjp=mutate.output(spec.vjp, 1, mutate.zeros),
        ),
        Mutant(
            op=spec.name,
            name="not-initialised",
            label="A",
            killer="typical",
            says="What the window does not touch keeps what its memory held, here 1.",
            vjp=_window(spec, _unwritten),
        ),
    )


def _sets(spec: OpSpec, killer: str) -> tuple[Mutant, ...]:
    """What goes wrong where b overwrites."""
    return (
        *_windows(spec),
        Mutant(
            op=spec.name,
            name="passes-through",
            label="I",
            killer="typical",
            says="a gets the cotangent inside the window as well, as if b were added to it.",
            vjp=_window(spec, _all_through),
        ),
        Mutant(
            op=spec.name,
            name="wrong-way-round",
            label="I",
            killer="typical",
            says="a gets the cotangent inside the window and zeros outside.",
            modelled_on="PyTorch 2.13, the backward of torch.as_strided_scatter (measured)",
            vjp=_window(spec, _window_alone),
        ),
        Mutant(
            op=spec.name,
            name="untouched-lost",
            label="G",
            killer=killer,
            says="a gets no gradient at all, as if b replaced it whole.",
            vjp=mutate.output(spec.vjp, 0, mutate.zeros),
        ),
        Mutant(
            op=spec.name,
            name="missing-when-covered",
            label="G",
            killer="whole",
            says="a's gradient is missing, not zero, where b covers all of it.",
            vjp=_window(spec, _none_of_a),
        ),
    )


def _strides(spec: OpSpec) -> tuple[Mutant, ...]:
    """What goes wrong with the strides of the window."""
    return (
        Mutant(
            op=spec.name,
            name="nb1-default",
            label="P",
            killer="every-second-row",
            says="The row stride is a's own, whatever nb1.",
            vjp=mutate.attribute(spec.vjp, nb1=None),
        ),
        Mutant(
            op=spec.name,
            name="packed",
            label="L",
            also=("I",),
            killer="typical",
            says="b's gradient is read from rows that lie one after another.",
            vjp=_window(spec, _packed_window),
        ),
    )


def _outer_strides(spec: OpSpec) -> tuple[Mutant, ...]:
    return (
        *_strides(spec),
        Mutant(
            op=spec.name,
            name="strides-exchanged",
            label="I",
            also=("P",),
            killer="heads",
            says="nb1 and nb2 stand in each other's place.",
            modelled_on="ggml's commit log: add_at's arguments in another order than view's",
            vjp=mutate.attribute(spec.vjp, **_exchanged("nb1", "nb2")),
        ),
        Mutant(
            op=spec.name,
            name="nb3-default",
            label="P",
            killer="outer",
            says="The outermost stride is a's own, whatever nb3.",
            vjp=mutate.attribute(spec.vjp, nb3=None),
        ),
    )


def set_2d_nb1_of_b_vjp(xp, ct, a, b, *, nb1=None, offset=0):
    return shape.set_2d_vjp(xp, ct, a, b, nb1=b.shape[-1], offset=offset)


WINDOWS = (
    *_sets(shape.set_general, "rows"),
    *_outer_strides(shape.set_general),
    Mutant(
        op="set",
        name="last-element-dropped",
        label="I",
        killer="last-element",
        says="The window ends one short: its last element still belongs to a.",
        vjp=_window(shape.set_general, _end_too_early),
    ),
    *_sets(shape.set_1d, "front"),
    Mutant(
        op="set_1d",
        name="last-element-dropped",
        label="I",
        killer="back",
        says="The window ends one short: its last element still belongs to a.",
        vjp=_window(shape.set_1d, _end_too_early),
    ),
    Mutant(
        op="set_1d",
        name="last-of-batch",
        label="A",
        also=("B",),
        killer="shared-b",
        says="Each of a batch overwrites the gradient of a b that all share.",
        vjp=mutate.of_last(shape.set_1d, 1),
    ),
    *_sets(shape.set_2d, "cache"),
    *_strides(shape.set_2d),
    Mutant(
        op="set_2d",
        name="nb1-of-b",
        label="I",
        also=("L", "P"),
        killer="columns",
        says="The row stride is the length of b's rows.",
        vjp=set_2d_nb1_of_b_vjp,
    ),
    *_windows(shape.acc),
    *_outer_strides(shape.acc),
    Mutant(
        op="acc",
        name="untouched-not-copied",
        label="A",
        also=("I",),
        killer="rows",
        says="a passes through the window alone: what b does not touch is not copied.",
        modelled_on="ggml's commit log: add_at, before src0 was copied to dst",
        vjp=_window(shape.acc, _window_alone),
    ),
    Mutant(
        op="acc",
        name="window-cleared",
        label="I",
        killer="typical",
        says="a gets no gradient inside the window, as if b were set there.",
        vjp=_window(shape.acc, _cleared),
    ),
    Mutant(
        op="acc",
        name="b-twice",
        label="F",
        killer="one-element",
        says="b's gradient is doubled.",
        vjp=mutate.scaled(shape.acc_vjp, 1, 2.0),
    ),
)

# ── pad, slice, flip ─────────────────────────────────────────────────────────────────────────


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


PIECES = (
    *_common(shape.pad, "typical"),
    Mutant(
        op="pad",
        name="from-the-front",
        label="I",
        also=("P",),
        killer="before",
        says="The inside is read from the front, whatever comes before it.",
        dialects=("constant",),
        vjp=pad_front_vjp,
    ),
    Mutant(
        op="pad",
        name="ends-at-minus-zero",
        label="W",
        killer="none",
        says="Without padding behind, the slice that ends there, at -0, is empty.",
        dialects=("constant",),
        vjp=pad_minus_zero_vjp,
    ),
    Mutant(
        op="pad",
        name="before-after-exchanged",
        label="I",
        also=("P",),
        killer="typical",
        says="What comes before and what comes behind are exchanged.",
        vjp=mutate.attribute(
            shape.pad_vjp,
            rows=lambda rows, **attrs: rows[::-1],
            columns=lambda columns, **attrs: columns[::-1],
        ),
    ),
    Mutant(
        op="pad",
        name="axes-exchanged",
        label="I",
        also=("P",),
        killer="square",
        says="Rows are taken for columns.",
        vjp=mutate.attribute(shape.pad_vjp, **_exchanged("rows", "columns")),
    ),
    Mutant(
        op="pad",
        name="times-the-value",
        label="F",
        killer="value",
        says="The gradient is multiplied by the constant.",
        dialects=("constant",),
        vjp=mutate.scaled(shape.pad_vjp, 0, _factor),
    ),
    Mutant(
        op="pad",
        name="inside-only",
        label="T",
        also=("P",),
        killer="typical",
        says="What comes back from outside is lost, as if the padding were constant.",
        dialects=("reflect", "replicate", "circular"),
        vjp=mutate.attribute(shape.pad_vjp, mode="constant"),
    ),
    Mutant(
        op="pad",
        name="overwritten",
        label="DI",
        also=("A",),
        killer="as-wide-as-it-gets",
        says="Where an element appears more than once, the last place stays.",
        dialects=("reflect", "replicate", "circular"),
        vjp=pad_last_vjp,
    ),
    Mutant(
        op="pad",
        name="mean-of-repeats",
        label="R",
        also=("DI",),
        killer="typical",
        says="Where an element appears more than once, the mean is taken.",
        dialects=("reflect", "replicate", "circular"),
        vjp=pad_mean_vjp,
    ),
    Mutant(
        op="pad",
        name="edge-mirrored-too",
        label="I",
        killer="typical",
        says="Mirrored at the border, so that the edge element appears twice.",
        dialects=("reflect",),
        vjp=pad_symmetric_vjp,
    ),
    Mutant(
        op="pad",
        name="mode-ignored",
        label="P",
        killer="typical",
        says="The edge element is repeated, whatever the mode.",
        dialects=("reflect", "circular"),
        vjp=mutate.attribute(shape.pad_vjp, mode="replicate"),
    ),
    *_common(shape.slice_, "typical"),
    Mutant(
        op="slice",
        name="start-ignored",
        label="P",
        killer="typical",
        says="The gradient goes to the front, whatever the start.",
        vjp=_comb(lambda first, n: 0, lambda step: step),
    ),
    Mutant(
        op="slice",
        name="step-ignored",
        label="P",
        killer="step",
        says="The gradient goes to a block, whatever the step.",
        vjp=_comb(lambda first, n: first, lambda step: 1),
    ),
    Mutant(
        op="slice",
        name="step-without-sign",
        label="P",
        also=("I",),
        killer="backwards",
        says="A step backwards is taken forwards.",
        vjp=_comb(lambda first, n: first, abs),
    ),
    Mutant(
        op="slice",
        name="rounded-down",
        label="I",
        killer="step-remainder",
        says="The number of elements is rounded down, and the last one is dropped.",
        vjp=slice_short_vjp,
    ),
    Mutant(
        op="slice",
        name="axes-exchanged",
        label="I",
        also=("P",),
        killer="square",
        says="Rows are taken for columns.",
        vjp=mutate.attribute(shape.slice_vjp, **_exchanged("rows", "columns")),
    ),
    Mutant(
        op="slice",
        name="left-in-shape",
        label="L",
        killer="typical",
        says="The gradient is left in the shape of the slice.",
        vjp=slice_left_vjp,
    ),
    Mutant(
        op="slice",
        name="not-initialised",
        label="A",
        killer="nothing",
        says="What the slice does not touch keeps what its memory held, here 1.",
        vjp=slice_on_top_vjp,
    ),
    Mutant(
        op="slice",
        name="normalised-twice",
        label="I",
        killer="from-the-end",
        says="The size is added to a negative start twice.",
        vjp=slice_twice_normalised_vjp,
    ),
    *_common(shape.flip, "typical"),
    Mutant(
        op="flip",
        name="as-it-is",
        label="L",
        also=("D",),
        killer="typical",
        says="The cotangent is passed on as it is.",
        vjp=flip_as_it_is_vjp,
    ),
    Mutant(
        op="flip",
        name="other-axis",
        label="I",
        also=("L",),
        killer="square",
        says="The other axis is reversed.",
        vjp=flip_other_axis_vjp,
    ),
    Mutant(
        op="flip",
        name="axis-default",
        label="P",
        also=("L",),
        killer="rows",
        says="The last axis is reversed, whichever was asked for.",
        vjp=mutate.attribute(shape.flip_vjp, axes=(-1,)),
    ),
    Mutant(
        op="flip",
        name="first-axis-only",
        label="P",
        also=("L",),
        killer="both",
        says="Only the first of several axes is reversed.",
        vjp=mutate.attribute(shape.flip_vjp, axes=lambda axes: axes[:1]),
    ),
    Mutant(
        op="flip",
        name="none-is-all",
        label="P",
        also=("L",),
        killer="neither",
        says="`axes or all`: no axes count as not given.",
        vjp=mutate.attribute(shape.flip_vjp, axes=lambda axes: axes or (-2, -1)),
    ),
    Mutant(
        op="flip",
        name="about-an-element",
        label="I",
        also=("L",),
        killer="even-length",
        says="Reversed about the first element, which stays where it is.",
        vjp=flip_about_an_element_vjp,
    ),
    Mutant(
        op="flip",
        name="batch-too",
        label="I",
        also=("L", "W"),
        killer="batched",
        says="The batch is reversed as well.",
        vjp=flip_batch_too_vjp,
    ),
    Mutant(
        op="flip",
        name="transposed",
        label="L",
        killer="square",
        says="A square is transposed as well.",
        vjp=mutate.output(shape.flip_vjp, 0, mutate.transposed),
    ),
)

# ── tril, triu ───────────────────────────────────────────────────────────────────────────────


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
    """What goes wrong in either; `inside` is the right triangle, `thinner` shrinks it by one."""
    return (
        *_common(spec, "typical"),
        Mutant(
            op=spec.name,
            name="whole",
            label="I",
            killer="typical",
            says="The cotangent passes through everywhere.",
            vjp=_with_mask(spec, lambda m, n, k: np.ones((m, n), dtype=bool)),
        ),
        Mutant(
            op=spec.name,
            name="other-triangle",
            label="I",
            also=("L",),
            killer="typical",
            says="The other triangle passes through.",
            vjp=other.vjp,
        ),
        Mutant(
            op=spec.name,
            name="diagonal-left-out",
            label="I",
            also=("P",),
            killer="typical",
            says="The triangle lacks its own diagonal.",
            vjp=mutate.attribute(spec.vjp, diagonal=lambda diagonal: diagonal + thinner),
        ),
        Mutant(
            op=spec.name,
            name="diagonal-default",
            label="P",
            killer="above",
            says="The diagonal is the main one, whichever was asked for.",
            vjp=mutate.attribute(spec.vjp, diagonal=0),
        ),
        Mutant(
            op=spec.name,
            name="diagonal-without-sign",
            label="P",
            also=("I",),
            killer="below",
            says="A diagonal below the main one is taken for one above it.",
            vjp=mutate.attribute(spec.vjp, diagonal=lambda **attrs: abs(attrs["diagonal"])),
        ),
        Mutant(
            op=spec.name,
            name="from-the-right",
            label="I",
            also=("P",),
            killer="wide",
            says="The diagonal ends in the last corner instead of starting in the first.",
            vjp=_with_mask(spec, lambda m, n, k: inside(m, n, k + n - m)),
        ),
        Mutant(
            op=spec.name,
            name="transposed",
            label="L",
            also=("I",),
            killer="square",
            says="The mask is read with rows and columns exchanged.",
            vjp=_with_mask(spec, lambda m, n, k: inside(n, m, k).T),
        ),
        Mutant(
            op=spec.name,
            name="found-by-value",
            label="D",
            killer="with-zeros",
            says="The triangle is where y is not 0, so a zero in x gets no gradient.",
            vjp=_not_zero(spec),
        ),
        Mutant(
            op=spec.name,
            name="first-of-batch",
            label="I",
            also=("W",),
            killer="batched",
            says="Only the first of a batch is masked.",
            vjp=_first_matrix(spec),
        ),
        Mutant(
            op=spec.name,
            name="one-line-is-a-vector",
            label="W",
            also=("I",),
            killer=line,
            says="One row, or one column, is not masked at all.",
            vjp=_one_row(spec),
        ),
    )


TRIANGLES = (
    *_triangles(shape.tril, shape.triu, lambda m, n, k: np.tri(m, n, k, dtype=bool), -1, "one-row"),
    *_triangles(
        shape.triu, shape.tril, lambda m, n, k: ~np.tri(m, n, k - 1, dtype=bool), 1, "one-column"
    ),
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


CHOICES = (
    *_common(shape.where, "typical", 1)[1:],
    Mutant(
        op="where",
        name="swapped",
        label="G",
        killer="typical",
        says="Each branch gets the other one's gradient.",
        vjp=mutate.swapped(shape.where_vjp, 1, 2),
    ),
    Mutant(
        op="where",
        name="mask-multiplied",
        label="D",
        also=("F",),
        killer="not-just-ones",
        says="The mask is multiplied in, so that a mask of 2 doubles the gradient.",
        vjp=where_product_vjp,
    ),
    Mutant(
        op="where",
        name="mask-is-one",
        label="D",
        killer="not-just-ones",
        says="The mask counts where it is 1, not where it is not 0.",
        vjp=where_is_one_vjp,
    ),
    Mutant(
        op="where",
        name="trap",
        label="N",
        killer="guarded",
        says="The slope of the branch that is not taken, infinite or NaN, is multiplied by 0.",
        modelled_on="JAX's FAQ: gradients contain NaN where using where",
        dialects=("guarded-sqrt",),
        vjp=where_trap_vjp,
    ),
    Mutant(
        op="where",
        name="guard-ignored",
        label="P",
        also=("D",),
        killer="typical",
        says="The root has no slope: x's gradient is the cotangent.",
        dialects=("guarded-sqrt",),
        vjp=mutate.attribute(shape.where_vjp, guard="none"),
    ),
    Mutant(
        op="where",
        name="second-not-masked",
        label="D",
        killer="typical",
        says="y gets the cotangent where x is taken, too.",
        vjp=where_not_masked_vjp,
    ),
    Mutant(
        op="where",
        name="unreduced",
        label="B",
        killer="broadcast-y",
        says="y's gradient is not summed over the places where y was repeated.",
        vjp=where_unreduced_vjp,
    ),
    Mutant(
        op="where",
        name="mean-of-repeats",
        label="R",
        killer="broadcast-x",
        says="x's gradient is the mean over the places where x was repeated.",
        vjp=mutate.scaled(shape.where_vjp, 1, _share),
    ),
    Mutant(
        op="where",
        name="found-by-value",
        label="K",
        killer="equal-branches",
        says="The branch is recovered by comparing the result with y, which a tie misleads.",
        dialects=("select",),
        vjp=where_found_by_value_vjp,
    ),
    Mutant(
        op="where",
        name="mask-transposed",
        label="L",
        also=("I",),
        killer="column-mask",
        says="The mask lies along the other axis.",
        vjp=where_turned_mask_vjp,
    ),
    Mutant(
        op="where",
        name="missing-when-never-taken",
        label="G",
        killer="all-on",
        says="A branch that is never taken has no gradient, in place of zeros.",
        vjp=where_missing_vjp,
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *COPIES,
    *REARRANGEMENTS,
    *JOINTS,
    *VIEWS,
    *WINDOWS,
    *PIECES,
    *TRIANGLES,
    *CHOICES,
)
