"""Sums, products, extremes, running sums and order along an axis. Axes: t rows, d features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample

# Hard shapes with ordinary numbers, for reductions of the last axis.
SHAPES = (
    Sample(
        name="cube",
        primals=lambda draw: (draw.away(0.0, 2, 3, 5),),
        hunts="batch axes reduced too, or the wrong one",
    ),
    Sample(
        name="square",
        primals=lambda draw: (draw.away(0.0, 5, 5),),
        hunts="rows taken for columns, which only a square forgives",
    ),
    Sample(
        name="single",
        primals=lambda draw: (draw.signed(3, 1),),
        hunts="rows of one element: a difference or a neighbour that is not there",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((0, 5)),),
        hunts="no rows at all: a kernel that runs once anyway",
    ),
    Sample(
        name="width-67",
        primals=lambda draw: (draw.away(0.0, 2, 67),),
        hunts="a sum in blocks of 32 or 64 that drops or repeats the last block",
    ),
)


def spaced(draw: Any, *shape: int) -> Any:
    """Rows without ties: any two elements of a row are 3/16 apart or more."""
    order = [draw.permutation(shape[-1]) for _ in range(int(np.prod(shape[:-1])))]
    steps = np.reshape(order, shape) * 0.25 - 0.125 * shape[-1]
    return steps + draw.uniform(-0.03125, 0.03125, *shape)


def _long(draw: Any) -> tuple[Any, ...]:
    """A row whose largest elements stand at its end, and an ordinary one."""
    x = spaced(draw, 2, 37)
    x[0].sort()
    return (x,)


ORDERED = (
    Sample(
        name="typical",
        primals=lambda draw: (spaced(draw, 3, 7),),
        hunts="the cotangent gathered where it should be scattered",
    ),
    Sample(
        name="cube",
        primals=lambda draw: (spaced(draw, 2, 3, 5),),
        hunts="positions of the first row used for all, or flattened without the row's offset",
    ),
    Sample(
        name="square",
        primals=lambda draw: (spaced(draw, 5, 5),),
        hunts="columns ordered instead of rows, which only a square forgives",
    ),
    Sample(
        name="single",
        primals=lambda draw: (draw.signed(3, 1),),
        hunts="rows of one element: a neighbour that is not there",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((0, 5)),),
        hunts="no rows at all: a kernel that runs once anyway",
    ),
    Sample(
        name="negative",
        primals=lambda draw: (spaced(draw, 3, 5) - 8.0,),
        hunts="a running extreme that starts from 0",
    ),
    Sample(
        name="width-37",
        primals=_long,
        hunts="a tail behind the last block of 32 that never takes part",
    ),
)


def beside(value: float, steps: int = 1) -> float:
    """The next number above `value` in float32, or the one after that."""
    x = np.float32(value)
    for _ in range(steps):
        x = np.nextafter(x, np.float32(np.inf))
    return float(x)


# ── sum ──────────────────────────────────────────────────────────────────────────────────────


def _spread(xp: Any, ct: Any, x: Any, axis: Any) -> Any:
    """`ct` of a reduction over `axis` (a number, several, or None: all) in the shape of x."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = {a % x.ndim for a in axes}
    kept = [1 if a in gone else n for a, n in enumerate(x.shape)]
    return xp.broadcast_to(xp.reshape(ct, kept), x.shape)


def sum_forward(xp, x, *, axis=None, keepdims=False):
    return xp.sum(x, axis=axis, keepdims=keepdims)


def sum_vjp(xp, ct, x, *, axis=None, keepdims=False):
    return _spread(xp, ct, x, axis)


sum_all = OpSpec(
    name="sum",
    signature="(t,d)->()",
    forward=sum_forward,
    vjp=sum_vjp,
    formula=r"y = \sum_{i \in \text{axis}} x_i",
    source="ggml_sum: the sum of all elements",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="the mean's 1/n",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="a sum over the last two axes where all were meant",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1, 1),),
            hunts="a loop that starts at the second element",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            hunts="an empty sum: 0, and a gradient without elements",
        ),
        Sample(
            name="last-axis",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="one cotangent for all rows",
            attrs={"axis": -1},
        ),
        Sample(
            name="first-axis",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="the cotangent spread along the other axis",
            attrs={"axis": 0},
        ),
        Sample(
            name="square-first-axis",
            primals=lambda draw: (draw.normal(5, 5),),
            hunts="columns taken for rows, which only a square forgives",
            attrs={"axis": 0},
        ),
        Sample(
            name="two-axes",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="one of the two axes forgotten; a negative number not wrapped",
            attrs={"axis": (0, -1)},
        ),
        Sample(
            name="kept-axes",
            primals=lambda draw: (draw.normal(5, 2, 5),),
            hunts="the summed axis inserted again although it was kept",
            attrs={"axis": (-3, 1), "keepdims": True},
        ),
        Sample(
            name="cancelling",
            primals=lambda draw: (draw.signs(3, 5) * 1024.0,),
            hunts="a gradient in proportion to x",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(3, 131),),
            attrs={"axis": 0},
            hunts="columns behind 64 or 128 that no thread writes",
        ),
    ),
)

# ── sum_rows ─────────────────────────────────────────────────────────────────────────────────


def sum_rows_forward(xp, x):
    return xp.sum(x, axis=-1, keepdims=True)


def sum_rows_vjp(xp, ct, x):
    return xp.broadcast_to(ct, x.shape)


TYPICAL = Sample(
    name="typical",
    primals=lambda draw: (draw.away(0.0, 3, 7),),
    hunts="a constant factor, a missing factor, one cotangent for all rows",
)

sum_rows = OpSpec(
    name="sum_rows",
    signature="(d)->(1)",
    forward=sum_rows_forward,
    vjp=sum_rows_vjp,
    formula=r"y_{t,0} = \sum_i x_{t,i}",
    source="ggml_sum_rows: shape [a, b, c, d] to [1, b, c, d], fastest axis first",
    samples=(
        TYPICAL,
        *SHAPES,
        Sample(
            name="rank-4",
            primals=lambda draw: (draw.normal(2, 3, 2, 5),),
            hunts="the outer two axes run together or left out",
        ),
    ),
)

# ── mean ─────────────────────────────────────────────────────────────────────────────────────


def mean_forward(xp, x, *, axis=-1):
    return xp.mean(x, axis=axis)


def mean_vjp(xp, ct, x, *, axis=-1):
    axes = (axis,) if isinstance(axis, int) else axis
    return _spread(xp, ct, x, axis) / math.prod(x.shape[a] for a in axes)


mean = OpSpec(
    name="mean",
    signature="(d)->()",
    forward=mean_forward,
    vjp=mean_vjp,
    formula=r"y_t = \frac{1}{d} \sum_i x_{t,i}",
    source="ggml_mean: along rows",
    samples=(
        TYPICAL,
        *SHAPES,
        Sample(
            name="first-axis",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="divided by the length of the other axis",
            attrs={"axis": 0},
        ),
        Sample(
            name="two-axes",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="divided by the length of one of the two axes",
            attrs={"axis": (0, -1)},
        ),
    ),
)

# ── repeat ───────────────────────────────────────────────────────────────────────────────────


def _split(shape: Any, counts: Any, interleave: bool) -> tuple[Any, Any, Any, Any]:
    """Of a repetition of the last axes: x with axes of 1, all axes, their numbers, the result."""
    lead = len(shape) - len(counts)
    thin, wide, whole = list(shape[:lead]), list(shape[:lead]), list(shape[:lead])
    for n, count in zip(shape[lead:], counts, strict=True):
        thin += [n, 1] if interleave else [1, n]
        wide += [n, count] if interleave else [count, n]
        whole.append(n * count)
    repeated = tuple(lead + 2 * k + interleave for k in range(len(counts)))
    return thin, wide, repeated, whole


def repeat_forward(xp, x, *, counts=(1, 1), interleave=False):
    thin, wide, _, whole = _split(x.shape, counts, interleave)
    return xp.reshape(xp.broadcast_to(xp.reshape(x, thin), wide), whole)


def repeat_vjp(xp, ct, x, *, counts=(1, 1), interleave=False):
    _, wide, repeated, _ = _split(x.shape, counts, interleave)
    return xp.sum(xp.reshape(ct, wide), axis=repeated)


repeat = OpSpec(
    name="repeat",
    signature="(t,d)->(p,q)",
    forward=repeat_forward,
    vjp=repeat_vjp,
    formula=r"y_{i,j} = x_{i \bmod t,\, j \bmod d}",
    source="ggml_repeat: a repeated to fit a larger shape, any rank",
    dialects=(
        Dialect(name="tile", says="ggml_repeat, np.tile: the whole, again and again"),
        Dialect(
            name="interleave",
            says="torch.repeat_interleave, np.repeat: each element several times (query groups)",
            attrs={"interleave": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 2),),
            hunts="counts exchanged, or only one of them reduced",
            attrs={"counts": (2, 5)},
        ),
        Sample(
            name="rows",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="one copy's cotangent kept in place of the sum",
            attrs={"counts": (2, 1)},
        ),
        Sample(
            name="columns",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="the wrong one of the two orders; the mean over copies",
            attrs={"counts": (1, 3)},
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3),),
            hunts="the copies told apart along the wrong axis, which only a square forgives",
            attrs={"counts": (3, 3)},
        ),
        Sample(
            name="one-element",
            primals=lambda draw: (draw.normal(1, 1),),
            hunts="nothing: the only case that the sum of everything gets right",
            attrs={"counts": (3, 5)},
        ),
        Sample(
            name="one-row",
            primals=lambda draw: (draw.normal(1, 5),),
            hunts="a bias row, repeated for every token, that gets one token's gradient",
            attrs={"counts": (7, 1)},
        ),
        Sample(
            name="once",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="a copy of itself, dropped as nothing to do",
        ),
        Sample(
            name="rank-4",
            primals=lambda draw: (draw.normal(2, 1, 3, 2),),
            hunts="more than two axes: only the last two reduced",
            attrs={"counts": (2, 3, 1, 2)},
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="the batch axis summed along with the copies",
            attrs={"counts": (2, 2)},
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            hunts="nothing repeated is nothing",
            attrs={"counts": (2, 2)},
        ),
        Sample(
            name="many",
            primals=lambda draw: (draw.normal(3, 1),),
            attrs={"counts": (2311, 1)},
            dialects=("tile",),
            hunts="copies summed in float16 or bfloat16, which stops at 2048 or 256 equal terms",
        ),
    ),
)

# ── max ──────────────────────────────────────────────────────────────────────────────────────


def max_forward(xp, x):
    return xp.max(x, axis=-1)


def max_vjp(xp, ct, x):
    first = xp.argmax(x, axis=-1)[..., None]
    return xp.add_along(ct[..., None], first, x, axis=-1)


def max_split_vjp(xp, ct, x):
    tied = x == xp.max(x, axis=-1, keepdims=True)
    count = xp.sum(xp.where(tied, 1.0, xp.zeros_like(x)), axis=-1, keepdims=True)
    return xp.where(tied, ct[..., None] / count, 0.0)


def _max_gap(xp: Any, x: Any) -> Any:
    """Distance of an element from a tie for the first place."""
    top = xp.max(x, axis=-1, keepdims=True)
    if x.shape[-1] < 2:
        return xp.full(x.shape, "1")
    second = xp.take_along(x, xp.argsort(x, axis=-1)[..., -2:-1], axis=-1)
    first = np.expand_dims(xp.argmax(x, axis=-1), -1) == np.arange(x.shape[-1])
    return xp.where(first, x - second, top - x)


def _max_ties(draw: Any) -> tuple[Any, ...]:
    rows = [
        [0.5, 2.0, -1.0, 2.0, 1.0],
        [3.0, 3.0, 3.0, 3.0, 3.0],
        [-1.0, -3.0, -1.0, -1.0, -2.0],
        [1.0, 0.0, beside(1.0), -1.0, beside(1.0)],
        [0.0, -0.0, -1.0, -2.0, -0.5],
        [4.0, 1.0, 2.0, 3.0, 0.0],
    ]
    return (np.array(rows),)


max_rows = OpSpec(
    name="max",
    signature="(d)->()",
    forward=max_forward,
    vjp=max_vjp,
    formula=r"y_t = \max_i x_{t,i}",
    source="torch.max(x, dim), jnp.max",
    kinks=(
        Kink(
            name="tie",
            gap=_max_gap,
            source="The subdifferential of a maximum is the convex hull of the unit vectors of "
            "the elements that attain it: shares >= 0 that add up to 1",
            conventions=(
                # torch.max along an axis; torch.amax, and torch.max of all elements, split ties.
                Convention(name="first", systems=("PyTorch",), vjp=max_vjp),
                Convention(name="split", systems=("JAX", "TensorFlow"), vjp=max_split_vjp),
            ),
        ),
    ),
    samples=(
        *ORDERED,
        Sample(
            name="far-apart",
            primals=lambda draw: (spaced(draw, 3, 5) * 2.0**12,),
            hunts="a softmax in place of the largest, x in place of 1",
        ),
        Sample(
            name="at-the-ends",
            primals=lambda draw: (
                np.array([[5.0, 1.0, 2.0], [1.0, 2.0, 5.0], [1.0, 5.0, 2.0], [5.0, 2.0, 1.0]]),
            ),
            hunts="a loop that leaves out the first or the last element",
        ),
        Sample(
            name="ties",
            primals=_max_ties,
            hunts="the whole cotangent for every element that attains the maximum",
            at_kink=True,
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (spaced(draw, 1, 131),),
            hunts="blocks of 64 or 128 of which only the first is searched",
        ),
    ),
)

# ── prod ─────────────────────────────────────────────────────────────────────────────────────


def prod_forward(xp, x):
    return xp.prod(x, axis=-1)


def prod_vjp(xp, ct, x):
    return ct[..., None] * _before(xp, x) * xp.flip(_before(xp, xp.flip(x, -1)), -1)


def _before(xp: Any, x: Any) -> Any:
    """Product of all elements before each."""
    return xp.cumprod(xp.pad(x, -1, 1, 0, "1"), axis=-1)[..., :-1]


def _zeros(draw: Any) -> tuple[Any, ...]:
    x = draw.away(0.0, 5, 5)
    x[0, 2] = x[1, 0] = x[2, 4] = x[3, 1] = x[3, 3] = 0.0
    return (x,)


def _all_zero(draw: Any) -> tuple[Any, ...]:
    x = draw.away(0.0, 3, 3)
    x[1] = 0.0
    return (x,)


prod = OpSpec(
    name="prod",
    signature="(d)->()",
    forward=prod_forward,
    vjp=prod_vjp,
    formula=r"y_t = \prod_i x_{t,i}",
    source="torch.prod, jnp.prod",
    samples=(
        TYPICAL,
        *(s for s in SHAPES if s.name != "width-67"),
        Sample(
            name="zeros",
            primals=_zeros,
            hunts="y/x at a zero: 0/0, or 0 where the others' product is due; none, one and two "
            "zeros, at both ends and inside",
        ),
        Sample(
            name="all-zero",
            primals=_all_zero,
            hunts="0^0 among the others",
        ),
        Sample(
            name="length-2",
            primals=lambda draw: (np.concatenate([draw.away(0.0, 3, 2), [[0.0, 2.0]]]),),
            hunts="each element's gradient is the other element",
        ),
        Sample(
            name="no-columns",
            primals=lambda draw: (np.zeros((3, 0)),),
            hunts="an empty product: 1, with nothing to differentiate",
            no_features=True,
        ),
        Sample(
            name="scales",
            primals=lambda draw: (draw.filled(draw.powers(3, 11) * 16.0),),
            hunts="exp of a sum of logarithms: negative elements, lost digits",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.signs(1, 67) * draw.uniform(0.875, 1.125, 1, 67),),
            hunts="blocks of 32 or 64 factors whose tail is left out",
        ),
    ),
)

# ── logsumexp ────────────────────────────────────────────────────────────────────────────────


def logsumexp_forward(xp, x):
    top = xp.max(x, axis=-1, keepdims=True)
    return top[..., 0] + xp.log(xp.sum(xp.exp(x - top), axis=-1))


def logsumexp_vjp(xp, ct, x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return ct[..., None] * (e / xp.sum(e, axis=-1, keepdims=True))


logsumexp = OpSpec(
    name="logsumexp",
    signature="(d)->()",
    forward=logsumexp_forward,
    vjp=logsumexp_vjp,
    formula=r"y_t = \log \sum_i e^{x_{t,i}}",
    source="torch.logsumexp, jax.nn.logsumexp",
    samples=(
        TYPICAL,
        *SHAPES,
        Sample(
            name="large",
            primals=lambda draw: (draw.normal(3, 5) + 800.0,),
            hunts="exp(x) without the shift by the maximum: inf/inf",
        ),
        Sample(
            name="very-negative",
            primals=lambda draw: (draw.normal(3, 5) - 800.0,),
            hunts="exp(x) without the shift by the maximum: 0/0",
        ),
        Sample(
            name="rows-apart",
            primals=lambda draw: (draw.normal(3, 5) + np.array([[0.0], [800.0], [-800.0]]),),
            hunts="the maximum of the whole tensor taken for the shift: 0/0 in the other rows",
        ),
        Sample(
            name="equal",
            primals=lambda draw: (np.array([[2.0, 2.0, 2.0], [1.0, -3.0, 1.0]]),),
            exact=True,
            hunts="the maximum differentiated too, where it is attained twice",
        ),
        Sample(
            name="one-dominant",
            primals=lambda draw: (draw.normal(3, 5) + np.array([0.0, 0.0, 12.0, 0.0, 0.0]),),
            hunts="a tail that is cut off, where its share is 1e-6",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (np.log(draw.swamped(1, 131)),),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)

# ── cumsum ───────────────────────────────────────────────────────────────────────────────────


def cumsum_forward(xp, x, *, exclusive=False, reverse=False):
    return _running_sum(xp, x, exclusive, reverse)


def cumsum_vjp(xp, ct, x, *, exclusive=False, reverse=False):
    return _running_sum(xp, ct, exclusive, not reverse)


def _running_sum(xp: Any, x: Any, exclusive: bool, reverse: bool) -> Any:
    y = xp.cumsum(xp.flip(x, -1) if reverse else x, axis=-1)
    if exclusive:
        y = xp.pad(y, -1, 1, 0)[..., :-1]
    return xp.flip(y, -1) if reverse else y


cumsum = OpSpec(
    name="cumsum",
    signature="(d)->(d)",
    forward=cumsum_forward,
    vjp=cumsum_vjp,
    formula=r"y_{t,i} = \sum_{j \le i} x_{t,j}",
    source="torch.cumsum; exclusive and reverse as in tf.cumsum",
    samples=(
        TYPICAL,
        *SHAPES,
        Sample(
            name="exclusive",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="the element itself counted",
            attrs={"exclusive": True},
        ),
        Sample(
            name="reverse",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="the direction of the default",
            attrs={"reverse": True},
        ),
        Sample(
            name="exclusive-reverse",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="the shift towards the wrong end",
            attrs={"exclusive": True, "reverse": True},
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.positive(1, 131),),
            hunts="a scan in blocks of 64 or 128 whose carry is lost, or is kept in bfloat16",
        ),
    ),
)

# ── cumprod ──────────────────────────────────────────────────────────────────────────────────


def cumprod_forward(xp, x):
    return xp.cumprod(x, axis=-1)


def cumprod_vjp(xp, ct, x):
    if not x.size:
        return xp.zeros_like(x)
    # What later outputs pass back, as multiples of the product before them: no division.
    tails = [ct[..., -1]]
    for i in reversed(range(x.shape[-1] - 1)):
        tails.append(ct[..., i] + x[..., i + 1] * tails[-1])
    return _before(xp, x) * xp.stack(tails[::-1], axis=-1)


cumprod = OpSpec(
    name="cumprod",
    signature="(d)->(d)",
    forward=cumprod_forward,
    vjp=cumprod_vjp,
    formula=r"y_{t,i} = \prod_{j \le i} x_{t,j}",
    source="torch.cumprod, jnp.cumprod",
    samples=(
        TYPICAL,
        *(s for s in SHAPES if s.name != "width-67"),
        Sample(
            name="zeros",
            primals=_zeros,
            hunts="a division by x at a zero; what lies behind the first zero; two zeros",
        ),
        Sample(
            name="all-zero",
            primals=_all_zero,
            hunts="the first element of a row of zeros, which alone has a gradient",
        ),
        Sample(
            name="no-columns",
            primals=lambda draw: (np.zeros((3, 0)),),
            hunts="a last element that is not there",
            no_features=True,
        ),
        Sample(
            name="width-17",
            primals=lambda draw: (draw.signs(2, 17) * (1 + draw.uniform(-0.25, 0.25, 2, 17)),),
            hunts="a scan in blocks of 16 whose carry is lost",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.signs(1, 67) * draw.uniform(0.875, 1.125, 1, 67),),
            hunts="a scan in blocks of 32 or 64 whose carry is lost",
        ),
    ),
)

# ── sort ─────────────────────────────────────────────────────────────────────────────────────


def sort_forward(xp, x, *, descending=False):
    return xp.take_along(x, _order(xp, x, descending), axis=-1)


def sort_vjp(xp, ct, x, *, descending=False):
    return xp.add_along(ct, _order(xp, x, descending), x, axis=-1)


def _sort_flipped_vjp(xp, ct, x, *, descending=False):
    """Descending order as the reverse of the ascending one, ties included."""
    return sort_vjp(xp, xp.flip(ct, -1) if descending else ct, x)


def _order(xp: Any, x: Any, descending: bool) -> Any:
    return xp.argsort(-x if descending else x, axis=-1)


def _sort_gap(xp: Any, x: Any, **attrs: Any) -> Any:
    """Distance of an element from the nearest other one of its row."""
    return _nearest(xp, x, np.ones((*x.shape, x.shape[-1]), dtype=bool))


def _nearest(xp: Any, x: Any, matters: Any) -> Any:
    apart = xp.abs(x[..., :, None] - x[..., None, :])
    other = matters & ~np.eye(x.shape[-1], dtype=bool)
    return xp.min(xp.pad(xp.where(other, apart, 1024.0), -1, 1, 0, "1024"), axis=-1)


def _cycles(draw: Any) -> tuple[Any, ...]:
    # Orders of 3, 3, 5 and 4 elements in a cycle: none is its own inverse.
    orders = [[1, 2, 0, 3, 4], [2, 0, 1, 3, 4], [4, 0, 1, 2, 3], [2, 0, 3, 1, 4]]
    return (np.array(orders, dtype=np.float64) * 0.5 - 1.0,)


def _sort_ties(draw: Any) -> tuple[Any, ...]:
    rows = [
        [2.0, 1.0, 2.0, 0.5, 3.0],
        [3.0, -1.0, 3.0, -1.0, 0.0],
        [1.0, 4.0, 2.0, 1.0, 4.0],
        [1.0, beside(1.0), 0.0, 1.0, beside(1.0, 2)],
        [0.0, -0.0, -1.0, -2.0, 1.0],
    ]
    return (np.array(rows),)


sort = OpSpec(
    name="sort",
    signature="(d)->(d)",
    forward=sort_forward,
    vjp=sort_vjp,
    formula=r"y_{t,i} = x_{t,\pi_t(i)},\quad y_{t,0} \le y_{t,1} \le \dots",
    source="torch.sort, jnp.sort",
    kinks=(
        Kink(
            name="tie",
            gap=_sort_gap,
            source="Equal elements may take their places in any order, and so their cotangents",
            conventions=(
                Convention(name="in order", systems=("PyTorch",), vjp=sort_vjp),
                Convention(name="flipped", systems=("JAX",), vjp=_sort_flipped_vjp),
            ),
        ),
    ),
    samples=(
        *ORDERED,
        Sample(
            name="cycles",
            primals=_cycles,
            hunts="the permutation in place of its inverse: equal for an exchange of two, not for "
            "a cycle of three",
        ),
        Sample(
            name="sorted",
            primals=lambda draw: (np.array([[-1.0, 0.5, 1.0, 3.0], [2.0, 1.5, 0.0, -4.0]]),),
            hunts="a row in order, and one in reverse, which is its own inverse",
        ),
        Sample(
            name="descending",
            primals=lambda draw: (spaced(draw, 3, 5),),
            hunts="the order of the default",
            attrs={"descending": True},
        ),
        Sample(
            name="ties",
            primals=_sort_ties,
            hunts="one place for all equal elements: a cotangent lost, another counted twice",
            at_kink=True,
        ),
        Sample(
            name="descending-ties",
            primals=_sort_ties,
            hunts="a rank counted from comparisons, in which equal elements share a place",
            attrs={"descending": True},
            at_kink=True,
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (spaced(draw, 1, 263),),
            hunts="a position kept in one byte, a block of 256 sorted alone",
        ),
    ),
)

# ── top_k ────────────────────────────────────────────────────────────────────────────────────


def top_k_forward(xp, x, *, k=3, largest=True):
    return xp.take_along(x, _order(xp, x, largest)[..., :k], axis=-1)


def top_k_vjp(xp, ct, x, *, k=3, largest=True):
    return xp.add_along(ct, _order(xp, x, largest)[..., :k], x, axis=-1)


def _top_k_gap(xp: Any, x: Any, *, k: int = 3, largest: bool = True) -> Any:
    """Distance from the nearest other element, of pairs of which one is among the first k."""
    places = xp.argsort(_order(xp, x, largest), axis=-1)
    chosen = places < k
    edge = xp.take_along(x, _order(xp, x, largest)[..., k - 1 : k], axis=-1)
    matters = chosen | np.asarray(x == edge)
    return _nearest(xp, x, matters[..., :, None] | matters[..., None, :])


def _top_k_ties(draw: Any) -> tuple[Any, ...]:
    rows = [
        [2.0, 0.0, 2.0, 3.0, 1.0, 4.0],  # two for one place
        [2.0, 5.0, 2.0, 4.0, 2.0, 2.0],  # four for one
        [5.0, 5.0, 4.0, 1.0, 1.0, 0.0],  # inside; elements that are left out do not tie
        [0.0, 3.0, 1.0, 2.0, beside(1.0), -1.0],  # just beside a tie at the edge
        [-1.0, 0.0, -0.0, 3.0, 2.0, -2.0],
        [4.0, -1.0, 2.0, 1.0, 3.0, 0.0],
    ]
    return (np.array(rows),)


top_k = OpSpec(
    name="top_k",
    signature="(d)->(k)",
    forward=top_k_forward,
    vjp=top_k_vjp,
    formula=r"y_{t,i} = x_{t,\pi_t(i)},\ i < k,\quad y_{t,0} \ge y_{t,1} \ge \dots",
    source="torch.topk and jax.lax.top_k, values only",
    kinks=(
        Kink(
            name="tie",
            gap=_top_k_gap,
            source="Of equal elements at the edge, any may be among the first k; torch.topk does "
            "not say which",
            conventions=(Convention(name="first", systems=("JAX",), vjp=top_k_vjp),),
        ),
    ),
    samples=(
        *(s for s in ORDERED if s.name != "single"),
        Sample(
            name="single",
            primals=lambda draw: (draw.signed(3, 1),),
            hunts="one of one",
            attrs={"k": 1},
        ),
        Sample(
            name="k-1",
            primals=lambda draw: (spaced(draw, 3, 5),),
            hunts="k at its default; the largest only",
            attrs={"k": 1},
        ),
        Sample(
            name="k-all",
            primals=_cycles,
            hunts="a full sort: the permutation in place of its inverse",
            attrs={"k": 5},
        ),
        Sample(
            name="smallest",
            primals=lambda draw: (spaced(draw, 3, 5),),
            hunts="the largest whatever was asked for",
            attrs={"largest": False},
        ),
        Sample(
            name="ties",
            primals=_top_k_ties,
            hunts="a mask x >= y_k, which lets more than k elements in",
            at_kink=True,
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (spaced(draw, 1, 67),),
            hunts="blocks of 64 of which only the first is searched",
        ),
    ),
)

# ── variance ─────────────────────────────────────────────────────────────────────────────────


def variance_forward(xp, x, *, ddof=0):
    c = x - xp.mean(x, axis=-1, keepdims=True)
    return xp.sum(c * c, axis=-1) / (x.shape[-1] - ddof)


def variance_vjp(xp, ct, x, *, ddof=0):
    c = x - xp.mean(x, axis=-1, keepdims=True)
    return ct[..., None] * 2 * c / (x.shape[-1] - ddof)


variance = OpSpec(
    name="variance",
    signature="(d)->()",
    forward=variance_forward,
    vjp=variance_vjp,
    formula=r"y_t = \frac{1}{d - \delta} \sum_i (x_{t,i} - \mu_t)^2",
    source="np.var, torch.var; delta = ddof, the correction",
    dialects=(
        Dialect(name="population", says="np.var, jnp.var, normalisation layers: divided by d"),
        Dialect(name="sample", says="torch.var: divided by d - 1", attrs={"ddof": 1}),
    ),
    samples=(
        TYPICAL,
        *(s for s in SHAPES if s.name != "single"),
        Sample(
            name="one-element",
            primals=lambda draw: (draw.signed(3, 1),),
            hunts="a gradient other than 0 for a single element",
            dialects=("population",),
        ),
        Sample(
            name="length-2",
            primals=lambda draw: (draw.normal(3, 2),),
            hunts="d in place of d - 1, which is worst here",
        ),
        Sample(
            name="offset-100",
            primals=lambda draw: (100.0 + draw.normal(3, 5),),
            hunts="x not centred; the mean of squares, which cancels",
        ),
        Sample(
            name="constant",
            primals=lambda draw: (np.stack([np.full(4, 0.75), np.array([0.75, 0.75, 1.0, 0.75])]),),
            exact=True,
            hunts="a standard deviation of 0 divided by",
        ),
        Sample(
            name="ddof-2",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="a correction taken for a flag",
            attrs={"ddof": 2},
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (100.0 + draw.normal(1, 67),),
            dialects=("population",),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)

# ── l2_norm ──────────────────────────────────────────────────────────────────────────────────


def l2_norm_forward(xp, x):
    return xp.sqrt(xp.sum(x * x, axis=-1))


def l2_norm_vjp(xp, ct, x):
    y = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return ct[..., None] * xp.where(y > 0, x / xp.where(y > 0, y, 1.0), 0.0)


def _l2_gap(xp: Any, x: Any) -> Any:
    """Distance of the whole row from the origin, for each of its elements."""
    return xp.broadcast_to(xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True)), x.shape)


def _zero_vector(draw: Any) -> tuple[Any, ...]:
    x = np.concatenate([draw.away(0.0, 1, 5), np.zeros((2, 5)), draw.away(0.0, 1, 5)])
    x[2] = -x[2]  # zeros with a sign
    return (x,)


def _tiny_vector(draw: Any) -> tuple[Any, ...]:
    x = np.zeros((3, 3))
    x[0, 1] = float(np.nextafter(np.float32(2.0**-20), np.float32(1)))
    x[2] = [3 * 2.0**-18, 0.0, -(2.0**-16)]
    return (x,)


l2_norm = OpSpec(
    name="l2_norm",
    signature="(d)->()",
    forward=l2_norm_forward,
    vjp=l2_norm_vjp,
    formula=r"y_t = \sqrt{\sum_i x_{t,i}^2}",
    source="torch.linalg.vector_norm, jnp.linalg.norm",
    kinks=(
        Kink(
            name="x = 0",
            gap=_l2_gap,
            source="The subdifferential of the norm at the origin is the unit ball (jnp.linalg"
            ".norm and tf.norm give NaN there, which is no member)",
            conventions=(Convention(name="0", systems=("PyTorch",), vjp=l2_norm_vjp),),
        ),
    ),
    samples=(
        TYPICAL,
        *SHAPES,
        Sample(
            name="some-zero",
            primals=lambda draw: (np.array([[3.0, 0.0, 4.0], [0.0, -2.0, 0.0]]),),
            hunts="a test for zero of the element where the row was meant",
        ),
        Sample(
            name="scales",
            primals=lambda draw: (draw.away(0.0, 3, 5) * np.array([[1.0], [256.0], [65536.0]]),),
            hunts="one norm for all rows; the squared norm for the norm",
        ),
        Sample(
            name="zero-vector",
            primals=_zero_vector,
            hunts="0/0 at the origin; a share of the cotangent that is longer than it",
            at_kink=True,
        ),
        Sample(
            name="beside-zero",
            primals=_tiny_vector,
            hunts="an eps in the root, or a guard that takes a short vector for none",
            at_kink=True,
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                np.concatenate([np.sqrt(draw.swamped(1, 131)), draw.normal(1, 131)]),
            ),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)
