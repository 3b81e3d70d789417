"""Views, copies and rearrangements. Axes: as each operator says.

Offsets and strides count elements of the row-major tensor. A view reads its operand's memory by
strides; an element that occurs in a view more than once gets the sum of its gradients. In
attributes of ggml's, axis 0 is the innermost; elsewhere axes are counted as in NumPy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradcheck.spec import Array, Dialect, OpSpec, Sample

# ── dup ──────────────────────────────────────────────────────────────────────────────────────


def dup_forward(xp, x):
    return xp.reshape(x, x.shape)


def dup_vjp(xp, ct, x):
    return ct


dup = OpSpec(
    name="dup",
    signature="()->()",
    forward=dup_forward,
    vjp=dup_vjp,
    formula=r"y = x",
    source="ggml_dup; torch.clone",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="x, or a constant, in place of the cotangent",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4),),
            hunts="a copy that transposes, which raises no error on a square",
        ),
        Sample(
            name="rank-4",
            primals=lambda draw: (draw.normal(2, 3, 2, 5),),
            hunts="rows counted over the last two axes only",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.signed(1),),
            hunts="more threads than elements, so that each gets less than one: nothing is copied",
        ),
        Sample(
            name="odd-length",
            primals=lambda draw: (draw.normal(17),),
            hunts="a tail beyond the last whole block that is left out",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (draw.filled(draw.powers(3, 7)),),
            hunts="a copy through a narrower type",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            hunts="a block of negative length",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(263),),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind "
            "128 that is left out",
        ),
    ),
)

# ── cpy ──────────────────────────────────────────────────────────────────────────────────────


def cpy_forward(xp, a, b):
    return xp.reshape(a, (*a.shape[:-3], *b.shape[-3:]))


def cpy_vjp(xp, ct, a, b):
    return xp.reshape(ct, a.shape), xp.zeros_like(b)  # the values of b are overwritten


cpy = OpSpec(
    name="cpy",
    signature="(a,b,c),(d,e,f)->(d,e,f)",
    forward=cpy_forward,
    vjp=cpy_vjp,
    formula=r"y_{\mathrm{flat}} = a_{\mathrm{flat}},\quad \partial y/\partial b = 0",
    source="ggml_cpy(a, b): a into the place and the shape of b",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(2, 3, 5)),
            hunts="the destination given a gradient, which it has none",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(3, 3, 3), draw.normal(3, 3, 3)),
            hunts="axes exchanged, which raises no error where they are equal",
        ),
        Sample(
            name="reshaped",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(1, 5, 6)),
            hunts="the gradient left in the destination's shape, or moved axis by axis",
        ),
        Sample(
            name="flattened",
            primals=lambda draw: (draw.normal(2, 3, 2), draw.normal(1, 1, 12)),
            hunts="a destination of one row: a row stride of the source used for it",
        ),
        Sample(
            name="into-zeros",
            primals=lambda draw: (draw.normal(2, 3, 2), np.zeros((2, 3, 2))),
            hunts="a + b in place of a, which a destination of zeros hides in forward",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 1, 2), draw.normal(2, 1, 3, 2)),
            hunts="leading axes counted into the copy twice",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1, 1), draw.normal(1, 1, 1)),
            hunts="the two gradients exchanged, where nothing else can go wrong",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 3, 2)), np.zeros((2, 0, 3))),
            hunts="a division by a row length of 0",
        ),
    ),
)

# ── cont ─────────────────────────────────────────────────────────────────────────────────────


def cont_forward(xp, x, *, axes=(0, 1, 2)):
    return _rearranged(xp, x, axes)


def cont_vjp(xp, ct, x, *, axes=(0, 1, 2)):
    return _rearranged(xp, ct, np.argsort(axes))


def _rearranged(xp: Any, x: Any, axes: Any) -> Any:
    """The last axes of x in another order; those before stay in front."""
    lead = x.ndim - len(axes)
    return xp.transpose(x, (*range(lead), *(lead + int(a) for a in axes)))


cont = OpSpec(
    name="cont",
    signature="(a,b,c)->(d,e,f)",
    forward=cont_forward,
    vjp=cont_vjp,
    formula=r"y_{\mathrm{flat}} = (\text{x read through the strides of its permuted axes})",
    source="ggml_cont of a permuted tensor; torch.Tensor.contiguous",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="x, or a constant, in place of the cotangent",
        ),
        Sample(
            name="transposed",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            attrs={"axes": (0, 2, 1)},
            hunts="the operand's strides ignored: memory copied in its own order",
        ),
        Sample(
            name="transposed-square",
            primals=lambda draw: (draw.normal(2, 3, 3),),
            attrs={"axes": (0, 2, 1)},
            hunts="the strides ignored, where no shape tells",
        ),
        Sample(
            name="cycle",  # not its own inverse
            primals=lambda draw: (draw.normal(2, 3, 5),),
            attrs={"axes": (1, 2, 0)},
            hunts="the permutation itself in place of its inverse",
        ),
        Sample(
            name="cycle-cube",
            primals=lambda draw: (draw.normal(3, 3, 3),),
            attrs={"axes": (2, 0, 1)},
            hunts="the permutation itself in place of its inverse, where no shape tells",
        ),
        Sample(
            name="reversed",
            primals=lambda draw: (draw.normal(3, 2, 5),),
            attrs={"axes": (2, 1, 0)},
            hunts="only the last two axes taken care of",
        ),
        Sample(
            name="one-wide",
            primals=lambda draw: (draw.normal(3, 1, 5),),
            attrs={"axes": (2, 0, 1)},
            hunts="the stride of an axis of size 1, which is arbitrary, put to use",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 3),),
            attrs={"axes": (1, 2, 0)},
            hunts="axes counted from the front of a batch",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0, 3)),),
            attrs={"axes": (2, 0, 1)},
            hunts="a division by an axis of size 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 33, 35),),
            attrs={"axes": (0, 2, 1)},
            hunts="a tile of 32 x 32 whose rows or columns over the edge are left out",
        ),
    ),
)

# ── reshape ──────────────────────────────────────────────────────────────────────────────────


def reshape_forward(xp, x, *, shape=(-1,)):
    return xp.reshape(x, (*x.shape[:-3], *shape))


def reshape_vjp(xp, ct, x, *, shape=(-1,)):
    return xp.reshape(ct, x.shape)


reshape = OpSpec(
    name="reshape",
    signature="(a,b,c)->(d)",
    forward=reshape_forward,
    vjp=reshape_vjp,
    formula=r"y_{\mathrm{flat}} = x_{\mathrm{flat}}",
    source="ggml_reshape, ggml_reshape_1d to _4d; numpy.reshape, row-major",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="the gradient left in the shape of y",
        ),
        Sample(
            name="to-2d",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            attrs={"shape": (5, 6)},
            hunts="elements in column-major order",
        ),
        Sample(
            name="to-3d",
            primals=lambda draw: (draw.normal(5, 2, 3),),
            attrs={"shape": (3, 5, 2)},
            hunts="a permutation of the axes in place of a reshape",
        ),
        Sample(
            name="to-4d",
            primals=lambda draw: (draw.normal(4, 3, 2),),
            attrs={"shape": (2, 2, 3, 2)},
            hunts="a rank above the operand's",
        ),
        Sample(
            name="exchanged",  # the shape of the transpose, but not its order
            primals=lambda draw: (draw.normal(2, 3, 5),),
            attrs={"shape": (2, 5, 3)},
            hunts="a transposition in place of a reshape, which gives the same shape",
        ),
        Sample(
            name="same",
            primals=lambda draw: (draw.normal(3, 3, 3),),
            attrs={"shape": (3, 3, 3)},
            hunts="a reshape to the same shape that reorders",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 2, 2),),
            attrs={"shape": (2, 6)},
            hunts="elements that move from one batch to another",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1, 1),),
            attrs={"shape": (1,)},
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0, 3)),),
            attrs={"shape": (0, 7)},
            hunts="a size inferred by a division by 0",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 3, 131),),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind "
            "128 that is left out",
        ),
    ),
)

# ── transpose ────────────────────────────────────────────────────────────────────────────────


def transpose_forward(xp, x):
    return xp.swapaxes(x, -1, -2)


def transpose_vjp(xp, ct, x):
    return xp.swapaxes(ct, -1, -2)


transpose = OpSpec(
    name="transpose",
    signature="(m,n)->(n,m)",
    forward=transpose_forward,
    vjp=transpose_vjp,
    formula=r"y_{nm} = x_{mn}",
    source="ggml_transpose, that is ggml_permute(1, 0, 2, 3); torch.Tensor.mT",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="the memory given another shape in place of a transposition",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4),),
            hunts="the cotangent passed on as it is, which raises no error on a square",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="all axes reversed",
        ),
        Sample(
            name="twice-batched",
            primals=lambda draw: (draw.normal(2, 3, 3, 2),),
            hunts="the first two axes exchanged in place of the last two",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(3, 3, 3),),
            hunts="the wrong pair of axes, where no shape tells",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(1, 5),),
            hunts="a row that stays a row",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            hunts="an axis of size 0 that loses its place",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(33, 35),),
            hunts="a tile of 32 x 32 whose rows or columns over the edge are left out",
        ),
    ),
)

# ── permute ──────────────────────────────────────────────────────────────────────────────────


def permute_forward(xp, x, *, axes=(0, 1, 2, 3), form="source"):
    return _rearranged(xp, x, _sources(axes, form))


def permute_vjp(xp, ct, x, *, axes=(0, 1, 2, 3), form="source"):
    return _rearranged(xp, ct, np.argsort(_sources(axes, form)))


def _sources(axes: tuple[int, ...], form: str) -> list[int]:
    """The axis of x that each axis of y is, in NumPy's count."""
    if form == "source":
        return list(axes)
    last = len(axes) - 1
    sources = [0] * len(axes)
    for axis, place in enumerate(axes):  # ggml: axis 0 is the innermost, and goes to place axes[0]
        sources[last - place] = last - axis
    return sources


def _permuted(name: str, shape: tuple[int, ...], axes: tuple[int, ...], hunts: str) -> Sample:
    return Sample(
        name=name, primals=lambda draw: (draw.normal(*shape),), attrs={"axes": axes}, hunts=hunts
    )


permute = OpSpec(
    name="permute",
    signature="(a,b,c,d)->(e,f,g,h)",
    forward=permute_forward,
    vjp=permute_vjp,
    formula=r"y_{i_{\pi(0)} i_{\pi(1)} i_{\pi(2)} i_{\pi(3)}} = x_{i_0 i_1 i_2 i_3}",
    source="numpy.transpose, torch.permute: axes say where from; ggml_permute: where to",
    dialects=(
        Dialect(name="source", says="NumPy, PyTorch, JAX: axis k of y is axis axes[k] of x"),
        Dialect(
            name="destination",
            says="ggml: axis k of x, counted from the innermost, becomes axis axes[k] of y",
            attrs={"form": "destination"},
        ),
    ),
    samples=(
        _permuted("identity", (2, 3, 2, 5), (0, 1, 2, 3), "a default order in backward"),
        _permuted("swap-inner", (2, 3, 2, 5), (0, 1, 3, 2), "strides of the last two axes ignored"),
        _permuted("swap-middle", (2, 3, 5, 2), (0, 2, 1, 3), "heads and positions, left exchanged"),
        _permuted("swap-pairs", (2, 3, 2, 3), (1, 0, 3, 2), "only one of two pairs restored"),
        _permuted("cycle-3", (2, 3, 5, 2), (0, 2, 3, 1), "the permutation for its inverse"),
        _permuted("cycle-3-back", (2, 5, 3, 2), (0, 3, 1, 2), "the permutation for its inverse"),
        _permuted("cycle-4", (2, 3, 5, 2), (1, 2, 3, 0), "an inverse right for 3-cycles only"),
        _permuted("cycle-4-mixed", (2, 3, 5, 2), (2, 0, 3, 1), "an order of another cycle"),
        _permuted("reversed", (2, 3, 5, 2), (3, 2, 1, 0), "axes counted from the wrong end"),
        _permuted("hypercube", (2, 2, 2, 2), (1, 3, 0, 2), "any of these, where no shape tells"),
        _permuted("cube", (3, 3, 3, 3), (2, 0, 1, 3), "a 3-cycle, where no shape tells"),
        _permuted("ones", (1, 3, 1, 5), (3, 0, 1, 2), "axes of size 1 squeezed away"),
        _permuted("batched", (2, 2, 3, 2, 3), (3, 0, 2, 1), "axes counted from a batch's front"),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0, 3, 5)),),
            attrs={"axes": (2, 0, 3, 1)},
            hunts="an axis of size 0 that loses its place",
        ),
    ),
)

# ── concat ───────────────────────────────────────────────────────────────────────────────────


def concat_forward(xp, x, y, *, axis=-1):
    lead = np.broadcast_shapes(x.shape[:-3], y.shape[:-3])
    parts = [xp.broadcast_to(part, (*lead, *part.shape[-3:])) for part in (x, y)]
    return xp.concatenate(parts, axis)


def concat_vjp(xp, ct, x, y, *, axis=-1):
    front = (Ellipsis, *(slice(None),) * (3 + axis))
    back = (slice(None),) * (-1 - axis)
    n = x.shape[axis]
    dx, dy = ct[(*front, slice(None, n), *back)], ct[(*front, slice(n, None), *back)]
    return xp.reduce_to(dx, x), xp.reduce_to(dy, y)


concat = OpSpec(
    name="concat",
    signature="(a,b,c),(d,e,f)->(g,h,i)",
    forward=concat_forward,
    vjp=concat_vjp,
    formula=r"z = [x, y] \text{ along one of the last three axes}",
    source="ggml_concat; torch.cat",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(2, 3, 7)),
            hunts="the two parts exchanged, the boundary off by one",
        ),
        Sample(
            name="same-size",
            primals=lambda draw: (draw.normal(2, 3, 2), draw.normal(2, 3, 2)),
            hunts="the two parts exchanged, where no shape tells",
        ),
        Sample(
            name="middle-axis",
            primals=lambda draw: (draw.normal(3, 2, 5), draw.normal(3, 3, 5)),
            attrs={"axis": -2},
            hunts="the cotangent's memory cut into two pieces, right for the first axis only",
        ),
        Sample(
            name="first-axis",
            primals=lambda draw: (draw.normal(2, 3, 2), draw.normal(3, 3, 2)),
            attrs={"axis": -3},
            hunts="the axis at its default",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(2, 2, 2), draw.normal(2, 2, 2)),
            attrs={"axis": -2},
            hunts="the parts cut along another axis, where no shape tells",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 1, 3), draw.normal(2, 2, 2, 3)),
            attrs={"axis": -2},
            hunts="axes counted from the front of a batch",
        ),
        Sample(
            name="one-wide",
            primals=lambda draw: (draw.normal(2, 3, 1), draw.normal(2, 3, 5)),
            hunts="a part of size 1 broadcast over the whole",
        ),
        Sample(
            name="empty-part",
            primals=lambda draw: (np.zeros((2, 3, 0)), draw.normal(2, 3, 5)),
            hunts="a part of size 0 that shifts the other one, such as an empty cache",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0, 3)), np.zeros((2, 0, 2))),
            hunts="nothing to copy at all",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 3, 67), draw.normal(1, 3, 131)),
            attrs={"axis": -1},
            hunts="columns behind 64 or 128 that no thread reads",
        ),
    ),
)

# ── diag ─────────────────────────────────────────────────────────────────────────────────────


def diag_forward(xp, x, *, offset=0):
    size, places = _diagonal(x.shape[-1], offset)
    return xp.reshape(xp.scatter_add(x, places, size * size), (*x.shape[:-1], size, size))


def diag_vjp(xp, ct, x, *, offset=0):
    size, places = _diagonal(x.shape[-1], offset)
    return xp.gather(xp.reshape(ct, (*ct.shape[:-2], size * size)), places)


def _diagonal(n: int, offset: int) -> tuple[int, Array]:
    """Side of the square, and the places of its diagonal in memory."""
    size = n + abs(offset)
    start = offset if offset >= 0 else -offset * size
    return size, start + (size + 1) * np.arange(n)


diag = OpSpec(
    name="diag",
    signature="(n)->(m,m)",
    forward=diag_forward,
    vjp=diag_vjp,
    formula=r"y_{ij} = x_i\,[j = i + k]",
    source="ggml_diag: [a, 1, c, d] to [a, a, c, d]; torch.diag_embed (offset k)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5),),
            hunts="a sum over rows or columns in place of the diagonal",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(3, 4),),
            hunts="the first matrix's diagonal used for all",
        ),
        Sample(
            name="twice-batched",
            primals=lambda draw: (draw.normal(2, 3, 2),),
            hunts="one of two batch axes lost",
        ),
        Sample(
            name="above",
            primals=lambda draw: (draw.normal(4),),
            attrs={"offset": 1},
            hunts="the offset ignored in backward",
        ),
        Sample(
            name="below",
            primals=lambda draw: (draw.normal(3),),
            attrs={"offset": -2},
            hunts="the offset's sign lost",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1),),
            hunts="a loop that starts at 1",
        ),
        Sample(
            name="many-magnitudes",
            primals=lambda draw: (draw.filled(draw.powers(7)),),
            hunts="x divided out of y, which loses what is small",
        ),
        Sample(
            name="with-zeros",
            primals=lambda draw: (np.array([1.5, 0.0, -0.5, 0.0]),),
            hunts="the diagonal found by what is not 0",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((3, 0)),),
            hunts="a matrix of no size",
        ),
    ),
)

# ── views ────────────────────────────────────────────────────────────────────────────────────


def _own_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements, outermost axis first."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def _places(
    core: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Array:
    """Places [*sizes] in the memory of a tensor of shape `core`; the innermost stride is 1."""
    index = np.asarray(offset)
    for size, stride in zip(sizes, (*strides, 1), strict=True):
        index = index[..., None] + stride * np.arange(size)
    if index.size and (index.min() < 0 or index.max() >= math.prod(core)):
        raise IndexError(
            f"a view from {index.min()} to {index.max()} leaves a tensor of "
            f"{math.prod(core)} elements: check ne, nb and offset (in elements, not bytes)"
        )
    return index


def _flat(xp: Any, x: Any, rank: int) -> Any:
    return xp.reshape(x, (*x.shape[: x.ndim - rank], math.prod(x.shape[x.ndim - rank :])))


def _read(xp: Any, x: Any, rank: int, places: Array) -> Any:
    return xp.gather(_flat(xp, x, rank), places)


def _write(xp: Any, values: Any, core: tuple[int, ...], places: Array) -> Any:
    """Zeros of shape `core` with `values` added at their places."""
    flat = xp.scatter_add(values, places, math.prod(core))
    return xp.reshape(flat, (*flat.shape[:-1], *core))


def _either(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def view_1d_forward(xp, x, *, ne0=None, offset=0):
    return _read(xp, x, 2, _places_1d(x, ne0, offset))


def view_1d_vjp(xp, ct, x, *, ne0=None, offset=0):
    return _write(xp, ct, x.shape[-2:], _places_1d(x, ne0, offset))


def _places_1d(x: Any, ne0: int | None, offset: int) -> Array:
    core = x.shape[-2:]
    return _places(core, (_either(ne0, math.prod(core) - offset),), (), offset)


view_1d = OpSpec(
    name="view_1d",
    signature="(r,c)->(i)",
    forward=view_1d_forward,
    vjp=view_1d_vjp,
    formula=r"y_i = x_{\mathrm{flat}}[\mathrm{offset} + i]",
    source="ggml_view_1d (its offset in bytes)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"ne0": 7, "offset": 3},
            hunts="the offset ignored; the gradient left in the shape of the view",
        ),
        Sample(
            name="whole",
            primals=lambda draw: (draw.normal(2, 3),),
            hunts="a special case without an offset",
        ),
        Sample(
            name="front",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"ne0": 5},
            hunts="what the view does not touch, not set to zero",
        ),
        Sample(
            name="back",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"offset": 11},
            hunts="the last element off by one",
        ),
        Sample(
            name="inside-a-row",
            primals=lambda draw: (draw.normal(4, 4),),
            attrs={"ne0": 2, "offset": 5},
            hunts="the offset counted in rows",
        ),
        Sample(
            name="one-element",
            primals=lambda draw: (draw.normal(3, 3),),
            attrs={"ne0": 1, "offset": 4},
            hunts="a view of one element broadcast over the whole",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 3),),
            attrs={"ne0": 4, "offset": 2},
            hunts="the offset applied to the first of a batch only",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            attrs={"ne0": 0},
            hunts="a view of nothing",
        ),
    ),
)


def view_2d_forward(xp, x, *, ne0=None, ne1=None, nb1=None, offset=0):
    return _read(xp, x, 2, _places_2d(x, ne0, ne1, nb1, offset))


def view_2d_vjp(xp, ct, x, *, ne0=None, ne1=None, nb1=None, offset=0):
    return _write(xp, ct, x.shape[-2:], _places_2d(x, ne0, ne1, nb1, offset))


def _places_2d(x: Any, ne0: int | None, ne1: int | None, nb1: int | None, offset: int) -> Array:
    core = x.shape[-2:]
    sizes = (_either(ne1, core[0]), _either(ne0, core[1]))
    return _places(core, sizes, (_either(nb1, core[1]),), offset)


view_2d = OpSpec(
    name="view_2d",
    signature="(r,c)->(j,i)",
    forward=view_2d_forward,
    vjp=view_2d_vjp,
    formula=r"y_{ji} = x_{\mathrm{flat}}[\mathrm{offset} + j\,\mathrm{nb}_1 + i]",
    source="ggml_view_2d (its strides in bytes); torch.as_strided",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 7),),
            attrs={"ne0": 3, "ne1": 2, "offset": 8},
            hunts="the offset ignored; rows of the view packed one after another",
        ),
        Sample(
            name="columns",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"ne0": 2, "offset": 3},
            hunts="a row stride taken from the view's own rows",
        ),
        Sample(
            name="every-second-row",
            primals=lambda draw: (draw.normal(5, 3),),
            attrs={"ne1": 3, "nb1": 6},
            hunts="nb1 ignored",
        ),
        Sample(
            name="overlapping",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"ne0": 4, "ne1": 5, "nb1": 2, "offset": 1},
            hunts="elements that lie in two rows of the view: overwritten, not accumulated",
        ),
        Sample(
            name="same-row-again",
            primals=lambda draw: (draw.normal(2, 3),),
            attrs={"ne0": 3, "ne1": 4, "nb1": 0, "offset": 2},
            hunts="a stride of 0, one row many times: the last one, or their mean",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4),),
            attrs={"ne0": 3, "ne1": 3, "offset": 4},
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="whole",
            primals=lambda draw: (draw.normal(3, 3),),
            hunts="a special case without strides",
        ),
        Sample(
            name="one-column",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"ne0": 1, "offset": 2},
            hunts="a column read as a row",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 3),),
            attrs={"ne0": 2, "ne1": 2, "offset": 1},
            hunts="the offset applied to the first of a batch only",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            attrs={"ne0": 2},
            hunts="a view of nothing",
        ),
    ),
)


def view_3d_forward(xp, x, *, ne0=None, ne1=None, ne2=None, nb1=None, nb2=None, offset=0):
    return _read(xp, x, 3, _places_nd(x, (ne2, ne1, ne0), (nb2, nb1), offset))


def view_3d_vjp(xp, ct, x, *, ne0=None, ne1=None, ne2=None, nb1=None, nb2=None, offset=0):
    return _write(xp, ct, x.shape[-3:], _places_nd(x, (ne2, ne1, ne0), (nb2, nb1), offset))


def _places_nd(
    x: Any, sizes: tuple[int | None, ...], strides: tuple[int | None, ...], offset: int
) -> Array:
    core = x.shape[-len(sizes) :]
    own = _own_strides(core)
    return _places(
        core,
        tuple(_either(size, n) for size, n in zip(sizes, core, strict=True)),
        tuple(_either(stride, n) for stride, n in zip(strides, own[:-1], strict=True)),
        offset,
    )


view_3d = OpSpec(
    name="view_3d",
    signature="(a,b,c)->(k,j,i)",
    forward=view_3d_forward,
    vjp=view_3d_vjp,
    formula=r"y_{kji} = x_{\mathrm{flat}}"
    r"[\mathrm{offset} + k\,\mathrm{nb}_2 + j\,\mathrm{nb}_1 + i]",
    source="ggml_view_3d (its strides in bytes); torch.as_strided",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 4, 5),),
            attrs={"ne0": 3, "ne1": 2, "ne2": 2, "offset": 6},
            hunts="the offset ignored; rows of the view packed one after another",
        ),
        Sample(
            name="heads",  # [t, h·d] seen as [h, t, d], as ggml splits a fused projection
            primals=lambda draw: (draw.normal(1, 5, 6),),
            attrs={"ne0": 2, "ne1": 5, "ne2": 3, "nb1": 6, "nb2": 2},
            hunts="nb1 and nb2 exchanged",
        ),
        Sample(
            name="heads-square",
            primals=lambda draw: (draw.normal(1, 3, 6),),
            attrs={"ne0": 2, "ne1": 3, "ne2": 3, "nb1": 6, "nb2": 2},
            hunts="nb1 and nb2 exchanged, where no shape tells",
        ),
        Sample(
            name="windows",
            primals=lambda draw: (draw.normal(1, 4, 5),),
            attrs={"ne0": 3, "ne1": 2, "ne2": 3, "nb1": 5, "nb2": 5, "offset": 1},
            hunts="overlapping windows: overwritten, not accumulated",
        ),
        Sample(
            name="overlapping-both",
            primals=lambda draw: (draw.normal(2, 2, 4),),
            attrs={"ne0": 4, "ne1": 3, "ne2": 2, "nb1": 2, "nb2": 3},
            hunts="an element counted twice at most, although four places of the view show it",
        ),
        Sample(
            name="repeated-slice",
            primals=lambda draw: (draw.normal(1, 3, 2),),
            attrs={"ne0": 2, "ne1": 2, "ne2": 3, "nb2": 0, "offset": 2},
            hunts="a stride of 0: the last slice, or the mean",
        ),
        Sample(
            name="whole",
            primals=lambda draw: (draw.normal(2, 3, 2),),
            hunts="a special case without strides",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(3, 3, 3),),
            attrs={"ne0": 2, "ne1": 2, "ne2": 2, "offset": 13},
            hunts="an axis taken for another one, where no shape tells",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 2, 3, 2),),
            attrs={"ne0": 1, "ne1": 2, "offset": 3},
            hunts="the offset applied to the first of a batch only",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0, 5)),),
            hunts="a view of nothing",
        ),
    ),
)


def view_4d_forward(
    xp,
    x,
    *,
    ne0=None,
    ne1=None,
    ne2=None,
    ne3=None,
    nb1=None,
    nb2=None,
    nb3=None,
    offset=0,
):
    return _read(xp, x, 4, _places_nd(x, (ne3, ne2, ne1, ne0), (nb3, nb2, nb1), offset))


def view_4d_vjp(
    xp,
    ct,
    x,
    *,
    ne0=None,
    ne1=None,
    ne2=None,
    ne3=None,
    nb1=None,
    nb2=None,
    nb3=None,
    offset=0,
):
    places = _places_nd(x, (ne3, ne2, ne1, ne0), (nb3, nb2, nb1), offset)
    return _write(xp, ct, x.shape[-4:], places)


view_4d = OpSpec(
    name="view_4d",
    signature="(a,b,c,d)->(l,k,j,i)",
    forward=view_4d_forward,
    vjp=view_4d_vjp,
    formula=r"y_{lkji} = x_{\mathrm{flat}}"
    r"[\mathrm{offset} + l\,\mathrm{nb}_3 + k\,\mathrm{nb}_2 + j\,\mathrm{nb}_1 + i]",
    source="ggml_view_4d (its strides in bytes); torch.as_strided",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(2, 3, 4, 5),),
            attrs={"ne0": 3, "ne1": 2, "ne2": 2, "ne3": 2, "offset": 6},
            hunts="the offset ignored; rows of the view packed one after another",
        ),
        Sample(
            name="heads",  # [b, t, h·d] seen as [b, h, t, d]
            primals=lambda draw: (draw.normal(1, 2, 5, 6),),
            attrs={"ne0": 2, "ne1": 5, "ne2": 3, "ne3": 2, "nb1": 6, "nb2": 2, "nb3": 30},
            hunts="nb1 and nb2 exchanged",
        ),
        Sample(
            name="heads-square",
            primals=lambda draw: (draw.normal(1, 2, 3, 6),),
            attrs={"ne0": 2, "ne1": 3, "ne2": 3, "ne3": 2, "nb1": 6, "nb2": 2, "nb3": 18},
            hunts="nb1 and nb2 exchanged, where no shape tells",
        ),
        Sample(
            name="outer-first",
            primals=lambda draw: (draw.normal(2, 3, 2, 2),),
            attrs={"ne1": 2, "ne2": 2, "ne3": 3, "nb2": 12, "nb3": 4},
            hunts="nb2 and nb3 exchanged, a stride of an axis that the view does not have",
        ),
        Sample(
            name="windows-2d",  # every 2×2 window of a 3×4 image
            primals=lambda draw: (draw.normal(1, 1, 3, 4),),
            attrs={"ne0": 2, "ne1": 2, "ne2": 3, "ne3": 2, "nb1": 4, "nb2": 1, "nb3": 4},
            hunts="an element in four windows: overwritten, or counted twice at most",
        ),
        Sample(
            name="repeated",
            primals=lambda draw: (draw.normal(1, 1, 3, 2),),
            attrs={"ne0": 2, "ne1": 2, "ne2": 2, "ne3": 2, "nb2": 0, "nb3": 2},
            hunts="a stride of 0 inside a stride that overlaps",
        ),
        Sample(
            name="whole",
            primals=lambda draw: (draw.normal(2, 1, 3, 2),),
            hunts="a special case without strides",
        ),
        Sample(
            name="hypercube",
            primals=lambda draw: (draw.normal(3, 3, 3, 3),),
            attrs={"ne0": 2, "ne1": 2, "ne2": 2, "ne3": 2, "offset": 40},
            hunts="an axis taken for another one, where no shape tells",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0, 3, 5)),),
            hunts="a view of nothing",
        ),
    ),
)

# ── set, acc ─────────────────────────────────────────────────────────────────────────────────


def set_forward(xp, a, b, *, nb1=None, nb2=None, nb3=None, offset=0):
    return _set(xp, a, b, 4, _window(a, b, 4, (nb3, nb2, nb1), offset))


def set_vjp(xp, ct, a, b, *, nb1=None, nb2=None, nb3=None, offset=0):
    return _set_vjp(xp, ct, a, b, 4, _window(a, b, 4, (nb3, nb2, nb1), offset))


def _window(a: Any, b: Any, rank: int, strides: tuple[int | None, ...], offset: int) -> Array:
    """Places of b in the memory of a; by default in a's own strides.

    Raises:
        ValueError: two elements of b share a place, so that which one stays is not defined.
    """
    core = a.shape[-rank:]
    own = _own_strides(core)[-1 - len(strides) : -1]
    steps = tuple(_either(stride, n) for stride, n in zip(strides, own, strict=True))
    places = _places(core, b.shape[b.ndim - len(strides) - 1 :], steps, offset)
    if np.unique(places).size < places.size:
        raise ValueError("two elements of b share a place in a: widen its strides")
    return places


def _set(xp: Any, a: Any, b: Any, rank: int, places: Array) -> Any:
    core = a.shape[-rank:]
    return xp.where(_covered(core, places), _write(xp, b, core, places), a)


def _set_vjp(xp: Any, ct: Any, a: Any, b: Any, rank: int, places: Array) -> tuple[Any, Any]:
    da = xp.where(_covered(a.shape[-rank:], places), 0.0, ct)
    return xp.reduce_to(da, a), xp.reduce_to(_read(xp, ct, rank, places), b)


def _covered(core: tuple[int, ...], places: Array) -> Array:
    """Booleans [*core]: true where the window lies."""
    covered = np.zeros(math.prod(core), dtype=bool)
    covered[places] = True
    return covered.reshape(core)


# Windows of b in a, for set and for acc.
WINDOWS = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.normal(2, 3, 4, 5), draw.normal(1, 2, 2, 3)),
        attrs={"offset": 26},
        hunts="the offset ignored; the window's rows packed one after another",
    ),
    Sample(
        name="whole",
        primals=lambda draw: (draw.normal(1, 2, 3, 2), draw.normal(1, 2, 3, 2)),
        hunts="a special case for a window that is everything",
    ),
    Sample(
        name="rows",
        primals=lambda draw: (draw.normal(1, 1, 5, 3), draw.normal(1, 1, 2, 3)),
        attrs={"offset": 6},
        hunts="what the window does not touch: not copied, or given to b as well",
    ),
    Sample(
        name="every-second-row",
        primals=lambda draw: (draw.normal(1, 1, 5, 3), draw.normal(1, 1, 3, 3)),
        attrs={"nb1": 6},
        hunts="nb1 ignored",
    ),
    Sample(
        name="heads",
        primals=lambda draw: (draw.normal(1, 1, 3, 6), draw.normal(1, 3, 3, 2)),
        attrs={"nb1": 6, "nb2": 2},
        hunts="nb1 and nb2 exchanged, where no shape tells",
    ),
    Sample(
        name="outer",
        primals=lambda draw: (draw.normal(3, 2, 2, 2), draw.normal(2, 2, 2, 1)),
        attrs={"nb3": 16, "nb2": 4, "offset": 1},
        hunts="nb3 ignored: the outermost strides taken from a",
    ),
    Sample(
        name="one-element",
        primals=lambda draw: (draw.normal(1, 2, 2, 3), draw.normal(1, 1, 1, 1)),
        attrs={"offset": 7},
        hunts="one element broadcast over the whole",
    ),
    Sample(
        name="last-element",
        primals=lambda draw: (draw.normal(1, 1, 3, 3), draw.normal(1, 1, 1, 2)),
        attrs={"offset": 7},
        hunts="the end of the window off by one",
    ),
    Sample(
        name="hypercube",
        primals=lambda draw: (draw.normal(2, 2, 2, 2), draw.normal(2, 2, 2, 2)),
        attrs={"nb1": 4, "nb2": 2, "nb3": 8},
        hunts="an axis taken for another one, where no shape tells",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (draw.normal(1, 1, 3, 2), np.zeros((1, 1, 0, 2))),
        hunts="an empty window: all of a passes through",
    ),
)

set_general = OpSpec(
    name="set",
    signature="(a,b,c,d),(e,f,g,h)->(a,b,c,d)",
    forward=set_forward,
    vjp=set_vjp,
    formula=r"y_{\mathrm{flat}}[p] = b_{lkji} \text{ where } p = \mathrm{offset} + "
    r"l\,\mathrm{nb}_3 + k\,\mathrm{nb}_2 + j\,\mathrm{nb}_1 + i, \text{ else } a",
    source="ggml_set (its strides in bytes): b into a view of a copy of a",
    samples=WINDOWS,
)


def set_1d_forward(xp, a, b, *, offset=0):
    return _set(xp, a, b, 2, _window(a, b, 2, (), offset))


def set_1d_vjp(xp, ct, a, b, *, offset=0):
    return _set_vjp(xp, ct, a, b, 2, _window(a, b, 2, (), offset))


set_1d = OpSpec(
    name="set_1d",
    signature="(r,c),(i)->(r,c)",
    forward=set_1d_forward,
    vjp=set_1d_vjp,
    formula=r"y_{\mathrm{flat}}[\mathrm{offset} + i] = b_i, \text{ else } a",
    source="ggml_set_1d (its offset in bytes)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(7)),
            attrs={"offset": 3},
            hunts="the offset ignored, a's gradient passed through the window",
        ),
        Sample(
            name="front",
            primals=lambda draw: (draw.normal(3, 3), draw.normal(4)),
            hunts="a special case without an offset",
        ),
        Sample(
            name="back",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(2)),
            attrs={"offset": 13},
            hunts="the end of the window off by one",
        ),
        Sample(
            name="whole",
            primals=lambda draw: (draw.normal(2, 3), draw.normal(6)),
            hunts="nothing of a left: its gradient is zero, not missing",
        ),
        Sample(
            name="one-element",
            primals=lambda draw: (draw.normal(3, 3), draw.normal(1)),
            attrs={"offset": 4},
            hunts="one element broadcast over the whole",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 3), draw.normal(2, 4)),
            attrs={"offset": 2},
            hunts="the offset applied to the first of a batch only",
        ),
        Sample(
            name="shared-b",
            primals=lambda draw: (draw.normal(3, 2, 3), draw.normal(2)),
            attrs={"offset": 1},
            hunts="one b written into all of a batch: its gradient from the last one only",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (draw.normal(2, 3), np.zeros(0)),
            attrs={"offset": 2},
            hunts="an empty window: all of a passes through",
        ),
    ),
)


def set_2d_forward(xp, a, b, *, nb1=None, offset=0):
    return _set(xp, a, b, 2, _window(a, b, 2, (nb1,), offset))


def set_2d_vjp(xp, ct, a, b, *, nb1=None, offset=0):
    return _set_vjp(xp, ct, a, b, 2, _window(a, b, 2, (nb1,), offset))


set_2d = OpSpec(
    name="set_2d",
    signature="(r,c),(j,i)->(r,c)",
    forward=set_2d_forward,
    vjp=set_2d_vjp,
    formula=r"y_{\mathrm{flat}}[\mathrm{offset} + j\,\mathrm{nb}_1 + i] = b_{ji}, "
    r"\text{ else } a",
    source="ggml_set_2d (its stride in bytes), as it fills a cache of keys and values",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 7), draw.normal(2, 3)),
            attrs={"offset": 8},
            hunts="the offset ignored; the window's rows packed one after another",
        ),
        Sample(
            name="cache",  # two new positions behind n_past = 2
            primals=lambda draw: (draw.normal(5, 3), draw.normal(2, 3)),
            attrs={"offset": 6},
            hunts="what the cache held before, without its gradient",
        ),
        Sample(
            name="columns",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 2)),
            attrs={"offset": 3},
            hunts="a row stride taken from b",
        ),
        Sample(
            name="every-second-row",
            primals=lambda draw: (draw.normal(5, 3), draw.normal(3, 3)),
            attrs={"nb1": 6},
            hunts="nb1 ignored",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), draw.normal(3, 3)),
            attrs={"offset": 1},
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="whole",
            primals=lambda draw: (draw.normal(2, 3), draw.normal(2, 3)),
            hunts="nothing of a left: its gradient is zero, not missing",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 3), draw.normal(2, 2, 2)),
            attrs={"offset": 4},
            hunts="the offset applied to the first of a batch only",
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(1, 5)),
            attrs={"offset": 5},
            hunts="a stride taken from the axis of size 1",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (draw.normal(2, 3), np.zeros((0, 3))),
            hunts="an empty window: all of a passes through",
        ),
    ),
)


def acc_forward(xp, a, b, *, nb1=None, nb2=None, nb3=None, offset=0):
    places = _window(a, b, 4, (nb3, nb2, nb1), offset)
    return a + _write(xp, b, a.shape[-4:], places)


def acc_vjp(xp, ct, a, b, *, nb1=None, nb2=None, nb3=None, offset=0):
    places = _window(a, b, 4, (nb3, nb2, nb1), offset)
    return xp.reduce_to(ct, a), xp.reduce_to(_read(xp, ct, 4, places), b)


acc = OpSpec(
    name="acc",
    signature="(a,b,c,d),(e,f,g,h)->(a,b,c,d)",
    forward=acc_forward,
    vjp=acc_vjp,
    formula=r"y_{\mathrm{flat}}[p] = a_{\mathrm{flat}}[p] + b_{lkji} \text{ where } "
    r"p = \mathrm{offset} + l\,\mathrm{nb}_3 + k\,\mathrm{nb}_2 + j\,\mathrm{nb}_1 + i, "
    r"\text{ else } a",
    source="ggml_acc (its strides in bytes): b added to a view of a copy of a",
    samples=WINDOWS,
)

# ── pad ──────────────────────────────────────────────────────────────────────────────────────


def pad_forward(xp, x, *, rows=(0, 0), columns=(0, 0), mode="constant", value=0.0):
    if mode == "constant":
        return xp.pad(xp.pad(x, -2, *rows, str(value)), -1, *columns, str(value))
    return _read(xp, x, 2, _mirrored(x.shape[-2:], rows, columns, mode))


def pad_vjp(xp, ct, x, *, rows=(0, 0), columns=(0, 0), mode="constant", value=0.0):
    m, n = x.shape[-2:]
    if mode == "constant":
        return ct[..., rows[0] : rows[0] + m, columns[0] : columns[0] + n]
    return _write(xp, ct, (m, n), _mirrored((m, n), rows, columns, mode))


def _mirrored(
    core: tuple[int, ...], rows: tuple[int, int], columns: tuple[int, int], mode: str
) -> Array:
    """Places of each padded element in the memory of x."""
    name: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    i, j = (
        np.pad(np.arange(n), width, mode=name)
        for n, width in zip(core, (rows, columns), strict=True)
    )
    return i[:, None] * core[1] + j


WRAPS = ("constant", "replicate", "circular")

pad = OpSpec(
    name="pad",
    signature="(m,n)->(p,q)",
    forward=pad_forward,
    vjp=pad_vjp,
    formula=r"y_{ij} = x_{\rho(i - r)\,\rho(j - c)}, \quad "
    r"\rho \text{ constant, reflecting, replicating or circular outside}",
    source="ggml_pad (zeros behind), ggml_pad_reflect_1d; torch.nn.functional.pad",
    dialects=(
        Dialect(name="constant", says="a number outside, 0 unless given"),
        Dialect(name="reflect", says="mirrored at the edge element", attrs={"mode": "reflect"}),
        Dialect(name="replicate", says="the edge element again", attrs={"mode": "replicate"}),
        Dialect(name="circular", says="from the other end", attrs={"mode": "circular"}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"rows": (1, 2), "columns": (3, 1)},
            hunts="before and after exchanged, rows and columns exchanged",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4),),
            attrs={"rows": (1, 2), "columns": (2, 1)},
            hunts="rows and columns exchanged, where no shape tells",
        ),
        Sample(
            name="before",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"columns": (2, 0)},
            hunts="an offset ignored: the window always at the front",
        ),
        Sample(
            name="after",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"rows": (0, 2), "columns": (0, 3)},
            hunts="a slice from the back, x[..., -0:]",
        ),
        Sample(
            name="none",
            primals=lambda draw: (draw.normal(2, 3),),
            hunts="a slice that ends at -0",
        ),
        Sample(
            name="as-wide-as-it-gets",
            primals=lambda draw: (draw.normal(3, 2),),
            attrs={"rows": (2, 2), "columns": (1, 1)},
            hunts="an element that comes back on both sides: overwritten, not accumulated",
        ),
        Sample(
            name="value",
            primals=lambda draw: (draw.normal(2, 3),),
            attrs={"rows": (1, 0), "columns": (1, 2), "value": 1.5},
            hunts="the constant multiplied into the gradient",
            dialects=("constant",),
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 3),),
            attrs={"columns": (1, 2)},
            hunts="the batch padded too",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1),),
            attrs={"rows": (1, 1), "columns": (1, 0)},
            hunts="one element that comes back in every place",
            dialects=WRAPS,  # nothing to reflect
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 3)),),
            attrs={"rows": (1, 2)},
            hunts="an edge element that does not exist",
            dialects=("constant",),
        ),
    ),
)

# ── slice ────────────────────────────────────────────────────────────────────────────────────

ALL = (None, None, None)


def slice_forward(xp, x, *, rows=ALL, columns=ALL):
    return x[..., slice(*rows), slice(*columns)]


def slice_vjp(xp, ct, x, *, rows=ALL, columns=ALL):
    m, n = x.shape[-2:]
    places = np.arange(m * n).reshape(m, n)[slice(*rows), slice(*columns)]
    return _write(xp, ct, (m, n), places)


slice_ = OpSpec(
    name="slice",
    signature="(m,n)->(p,q)",
    forward=slice_forward,
    vjp=slice_vjp,
    formula=r"y_{ij} = x_{r_0 + i\,r_s,\ c_0 + j\,c_s}",
    source="NumPy's basic slicing, one (start, stop, step) per axis; jax.lax.slice",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 7),),
            attrs={"rows": (1, 4, None), "columns": (2, 7, None)},
            hunts="the start ignored; the gradient left in the shape of the slice",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4),),
            attrs={"rows": (1, 3, None), "columns": (2, 4, None)},
            hunts="rows and columns exchanged, where no shape tells",
        ),
        Sample(
            name="step",
            primals=lambda draw: (draw.normal(5, 7),),
            attrs={"rows": (0, None, 2), "columns": (1, None, 3)},
            hunts="the step ignored: a block written instead of a comb",
        ),
        Sample(
            name="step-remainder",
            primals=lambda draw: (draw.normal(3, 8),),
            attrs={"columns": (1, 6, 3)},
            hunts="the number of elements rounded down, the last one dropped",
        ),
        Sample(
            name="backwards",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"rows": (None, None, -1), "columns": (3, 0, -2)},
            hunts="|step| in place of the step",
        ),
        Sample(
            name="from-the-end",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"rows": (-2, None, None), "columns": (None, -1, None)},
            hunts="a negative index counted from the front, or normalised twice",
        ),
        Sample(
            name="beyond-the-end",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"columns": (3, 9, None)},
            hunts="a stop beyond the end that is not cut off",
        ),
        Sample(
            name="one-element",
            primals=lambda draw: (draw.normal(3, 3),),
            attrs={"rows": (1, 2, None), "columns": (1, 2, None)},
            hunts="one element broadcast over the whole",
        ),
        Sample(
            name="whole",
            primals=lambda draw: (draw.normal(2, 3),),
            hunts="None taken for 0",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 3),),
            attrs={"columns": (1, None, None)},
            hunts="axes counted from the front of a batch",
        ),
        Sample(
            name="nothing",
            primals=lambda draw: (draw.normal(3, 2),),
            attrs={"columns": (1, 1, None)},
            hunts="an empty slice: the gradient must still be written, as zeros",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            attrs={"columns": (1, 4, None)},
            hunts="a slice of nothing",
        ),
    ),
)

# ── flip ─────────────────────────────────────────────────────────────────────────────────────


def flip_forward(xp, x, *, axes=(-1,)):
    for axis in axes:
        x = xp.flip(x, axis)
    return x


def flip_vjp(xp, ct, x, *, axes=(-1,)):
    for axis in axes:
        ct = xp.flip(ct, axis)
    return ct


flip = OpSpec(
    name="flip",
    signature="(m,n)->(m,n)",
    forward=flip_forward,
    vjp=flip_vjp,
    formula=r"y_{ij} = x_{i,\,n - 1 - j}",
    source="numpy.flip, torch.flip",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="the cotangent passed on as it is",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4),),
            hunts="a transposition in place of a reversal, a reversal of the other axis",
        ),
        Sample(
            name="rows",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"axes": (-2,)},
            hunts="the axis at its default",
        ),
        Sample(
            name="both",
            primals=lambda draw: (draw.normal(3, 5),),
            attrs={"axes": (-2, -1)},
            hunts="the first of several axes only",
        ),
        Sample(
            name="neither",
            primals=lambda draw: (draw.normal(2, 3),),
            attrs={"axes": ()},
            hunts="no axis taken for all axes",
        ),
        Sample(
            name="even-length",
            primals=lambda draw: (draw.normal(2, 6),),
            hunts="a reversal about an element: the negative frequencies of a Fourier transform",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 2),),
            attrs={"axes": (-2,)},
            hunts="the batch reversed too",
        ),
        Sample(
            name="one-column",
            primals=lambda draw: (draw.normal(5, 1),),
            attrs={"axes": (-2, -1)},
            hunts="an axis of size 1 that ends the loop over axes",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((3, 0)),),
            hunts="an index n - 1 = -1",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(3, 131),),
            hunts="blocks of 64 or 128 whose tail is left out",
        ),
    ),
)

# ── tril, triu ───────────────────────────────────────────────────────────────────────────────


def tril_forward(xp, x, *, diagonal=0):
    return xp.where(_lower(x, diagonal), x, 0.0)


def tril_vjp(xp, ct, x, *, diagonal=0):
    return xp.where(_lower(x, diagonal), ct, 0.0)


def triu_forward(xp, x, *, diagonal=0):
    return xp.where(_lower(x, diagonal - 1), 0.0, x)


def triu_vjp(xp, ct, x, *, diagonal=0):
    return xp.where(_lower(x, diagonal - 1), 0.0, ct)


def _lower(x: Any, diagonal: int) -> Array:
    """Booleans [m, n]: true on and below a diagonal (0 the main one, 1 the one above)."""
    m, n = x.shape[-2:]
    return np.tri(m, n, diagonal, dtype=bool)


def _triangle(name: str, shape: tuple[int, ...], hunts: str, diagonal: int | None = None) -> Sample:
    return Sample(
        name=name,
        primals=lambda draw: (draw.normal(*shape),),
        attrs={} if diagonal is None else {"diagonal": diagonal},
        hunts=hunts,
    )


TRIANGLES = (
    _triangle("typical", (5, 3), "the other triangle; a diagonal left out"),
    _triangle("wide", (3, 5), "a triangle laid to the right end, as bottom-right masks are"),
    _triangle("square", (4, 4), "a transposed triangle, which raises no error on a square"),
    _triangle("above", (4, 5), "the diagonal at its default", diagonal=1),
    _triangle("below", (5, 4), "the diagonal's sign lost", diagonal=-2),
    _triangle("all-or-nothing", (3, 2), "a diagonal beyond the corner, wrapped round", diagonal=-3),
    _triangle("nothing-or-all", (2, 3), "a diagonal beyond the corner, wrapped round", diagonal=3),
    _triangle("batched", (2, 3, 3), "the triangle in the first of a batch only"),
    _triangle("one-row", (1, 5), "one row: taken for a vector, or left as it is"),
    _triangle("one-column", (5, 1), "one column: taken for a vector, or left as it is"),
    Sample(
        name="with-zeros",
        primals=lambda draw: (np.where(draw.signs(4, 4) > 0, draw.normal(4, 4), 0.0),),
        hunts="the triangle found by what is not 0 in y",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((3, 0)),),
        hunts="a triangle of nothing",
    ),
)

tril = OpSpec(
    name="tril",
    signature="(m,n)->(m,n)",
    forward=tril_forward,
    vjp=tril_vjp,
    formula=r"y_{ij} = x_{ij}\,[j - i \le k]",
    source="numpy.tril, torch.tril; ggml_diag_mask_zero, whose n_past is our diagonal",
    samples=TRIANGLES,
)

triu = OpSpec(
    name="triu",
    signature="(m,n)->(m,n)",
    forward=triu_forward,
    vjp=triu_vjp,
    formula=r"y_{ij} = x_{ij}\,[j - i \ge k]",
    source="numpy.triu, torch.triu",
    samples=TRIANGLES,
)

# ── where ────────────────────────────────────────────────────────────────────────────────────


def where_forward(xp, mask, x, y, *, guard="none"):
    taken = mask != 0
    return xp.where(taken, xp.sqrt(_safe(xp, taken, x)) if guard == "sqrt" else x, y)


def where_vjp(xp, ct, mask, x, y, *, guard="none"):
    taken = mask != 0
    g = ct / (2 * xp.sqrt(_safe(xp, taken, x))) if guard == "sqrt" else ct
    dx, dy = xp.where(taken, g, 0.0), xp.where(taken, 0.0, ct)
    return None, xp.reduce_to(dx, x), xp.reduce_to(dy, y)


def _safe(xp: Any, taken: Any, x: Any) -> Any:
    """1 where x is not taken, which avoids a root whose slope would be 0 times infinity."""
    return xp.where(taken, x, 1.0)


def _guarded(draw: Any, *shape: int) -> tuple[Any, ...]:
    """A mask that is 1 where x is positive, and 0 at 0 and below."""
    x = draw.signs(*shape) * draw.positive(*shape)
    x.reshape(-1)[::5] = 0.0
    return (x > 0).astype(np.int64), x, draw.normal(*shape)


def _masked(draw: Any, *shape: int) -> tuple[Any, ...]:
    return draw.integers(0, 2, *shape), draw.positive(*shape), draw.normal(*shape)


where = OpSpec(
    name="where",
    signature="(),(),()->()",
    forward=where_forward,
    vjp=where_vjp,
    formula=r"z = \begin{cases} f(x) & \mathrm{mask} \ne 0 \\ y & \text{else} \end{cases},"
    r"\quad f(x) \in \{x, \sqrt x\}",
    source="numpy.where, torch.where; for the trap: JAX's FAQ, gradients contain NaN where using "
    "where",
    dialects=(
        Dialect(name="select", says="one operand or the other"),
        Dialect(
            name="guarded-sqrt",
            says="a root where the mask allows it: the slope is 0 elsewhere, not 0 times infinity",
            attrs={"guard": "sqrt"},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _masked(draw, 3, 7),
            hunts="the two branches exchanged, the mask ignored",
        ),
        Sample(
            name="guarded",
            primals=lambda draw: _guarded(draw, 3, 5),
            hunts="the slope of the branch not taken, times 0: NaN where it is infinite",
        ),
        Sample(
            name="not-just-ones",
            primals=lambda draw: (
                np.array([0, 1, 2, -1, 0, 3, -2]),
                draw.positive(7),
                draw.normal(7),
            ),
            hunts="a mask multiplied in, or compared with 1",
        ),
        Sample(
            name="all-on",
            primals=lambda draw: (np.ones(5, np.int64), draw.positive(5), draw.normal(5)),
            hunts="no gradient at all for a branch that is never taken: zeros, not missing",
        ),
        Sample(
            name="all-off",
            primals=lambda draw: (np.zeros(5, np.int64), np.zeros(5), draw.normal(5)),
            hunts="NaN of a branch that is never taken",
        ),
        Sample(
            name="row-mask",
            primals=lambda draw: (
                np.array([1, 0, 1, 0, 0]),
                draw.positive(3, 5),
                draw.normal(3, 5),
            ),
            hunts="the mask laid along the other axis",
        ),
        Sample(
            name="column-mask",
            primals=lambda draw: (
                np.array([[1], [0], [1]]),
                draw.positive(3, 3),
                draw.normal(3, 3),
            ),
            hunts="the mask laid along the other axis, where no shape tells",
        ),
        Sample(
            name="broadcast-y",
            primals=lambda draw: (draw.integers(0, 2, 3, 5), draw.positive(3, 5), draw.normal(1)),
            hunts="dy not reduced, or counted where y is not taken",
        ),
        Sample(
            name="broadcast-x",
            primals=lambda draw: (
                draw.integers(0, 2, 3, 5),
                draw.positive(5),
                draw.normal(3, 1),
            ),
            hunts="dx reduced over the wrong axis, or averaged over all places",
        ),
        Sample(
            name="equal-branches",
            primals=lambda draw: (np.array([1, 0, 1, 0]), np.full(4, 0.5), np.full(4, 0.5)),
            exact=True,
            hunts="the branch recovered by comparing the result with x",
        ),
        Sample(
            name="huge-and-tiny",
            primals=lambda draw: (
                np.array([1, 0, 1, 0, 1, 0]),
                np.exp2([40.0, 60.0, -40.0, -60.0, 1.0, 2.0]),
                np.exp2([60.0, 40.0, -60.0, -40.0, 2.0, 1.0]),
            ),
            hunts="mask*x + (1 - mask)*y taken apart again, which loses the smaller one",
            dialects=("select",),
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 3), np.int64), np.zeros((0, 3)), draw.normal(3)),
            hunts="nothing to choose: dy must still be written, as zeros",
        ),
    ),
)
