"""Element-wise arithmetic: sums, products and powers. Axes: t rows, d features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.numerics.draw import Draw
from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample

# ── samples of several operators ─────────────────────────────────────────────────────────────

# Every way to repeat an operand; y keeps a distance of 1/2 from 0, so that div can use it.
REPEATED = (
    Sample(
        name="row",
        primals=lambda draw: (draw.normal(3, 5), draw.signed(5)),
        hunts="dy left unsummed, averaged, or taken from one row",
        dialects=("broadcast",),
    ),
    Sample(
        name="row-square",
        primals=lambda draw: (draw.normal(4, 4), draw.signed(4)),
        hunts="dy summed over the wrong axis, which only a square forgives",
        dialects=("broadcast",),
    ),
    Sample(
        name="row-batched",
        primals=lambda draw: (draw.normal(2, 3, 5), draw.signed(5)),
        hunts="dy summed over one batch axis instead of all",
        dialects=("broadcast",),
    ),
    Sample(
        name="column",
        primals=lambda draw: (draw.normal(3, 5), draw.signed(3, 1)),
        hunts="only leading axes are summed, a stretched last one is not",
        dialects=("broadcast",),
    ),
    Sample(
        name="both-stretched",
        primals=lambda draw: (draw.normal(1, 5), draw.signed(3, 1)),
        hunts="dx taken to have the output's shape",
        dialects=("broadcast",),
    ),
    Sample(
        name="first-repeated",
        primals=lambda draw: (draw.normal(5), draw.signed(3, 5)),
        hunts="only the second operand expected to be the smaller one",
        dialects=("broadcast",),
    ),
    Sample(
        name="empty-rows",
        primals=lambda draw: (np.zeros((0, 5)), draw.signed(5)),
        hunts="a mean over no rows, 0/0, where the sum is 0",
        dialects=("broadcast",),
    ),
)
BROADCAST = Dialect(name="broadcast", says="ggml, NumPy: an operand is repeated along an axis")
SAME_SHAPE = Dialect(name="same-shape", says="ggml: two operands of one shape")


def _shapes(values: Any, single: Any, *more: Sample) -> tuple[Sample, ...]:
    """Samples of `values(draw, *shape)` with hard shapes and ordinary numbers, and `more`."""
    return (
        Sample(
            name="square",
            primals=lambda draw: (values(draw, 4, 4),),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (values(draw, 2, 3, 5),),
            hunts="elements counted over the last two axes only",
        ),
        Sample(
            name="single",
            primals=lambda draw: (single(draw, 1),),
            hunts="a vector loop that forgets its remainder",
        ),
        *more,
        Sample(
            name="empty",
            primals=lambda draw: (values(draw, 0, 5),),
            hunts="a size of 0 refused, or divided by",
        ),
    )


def _tiles(values: Any) -> Sample:
    """More elements than 256 threads, or an index of one byte; and a tail behind 128."""
    return Sample(
        name="tiles",
        primals=lambda draw: (values(draw, 263),),
        hunts="a grid of one block of 256 threads, an index of one byte, a tail behind 128",
    )


# Every smooth operator of one primal meets these.
SHAPES = _shapes(Draw.normal, Draw.signed, _tiles(Draw.normal))


def _same(
    name: str, shape: tuple[int, ...], hunts: str, y: str = "normal", dialect: str = "same-shape"
) -> Sample:
    """A sample of two operands of one shape, normal numbers and `draw.y(*shape)`."""
    return Sample(
        name=name,
        primals=lambda draw: (draw.normal(*shape), getattr(draw, y)(*shape)),
        hunts=hunts,
        dialects=(dialect,),
    )


# ── add ──────────────────────────────────────────────────────────────────────────────────────


def add_forward(xp, x, y):
    return x + y


def add_vjp(xp, ct, x, y):
    return xp.reduce_to(ct, x), xp.reduce_to(ct, y)


add = OpSpec(
    name="add",
    signature="(),()->()",
    forward=add_forward,
    vjp=add_vjp,
    formula=r"z = x + y",
    source="llmgo residualForward; ggml_add",
    dialects=(
        Dialect(name="residual", says="GPT-2, Llama, Gemma: two operands of one shape"),
        BROADCAST,
    ),
    samples=(
        _same(
            "typical",
            (3, 5),
            "a cotangent that reaches one operand only, or half of it each",
            dialect="residual",
        ),
        _same(
            "cube", (2, 3, 5), "elements counted over the last two axes only", dialect="residual"
        ),
        _same("single", (1,), "a vector loop that forgets its remainder", dialect="residual"),
        Sample(
            name="unequal-size",
            primals=lambda draw: (draw.normal(3, 5, scale=1024.0), draw.normal(3, 5)),
            hunts="a cotangent that is scaled by the operand",
            dialects=("residual",),
        ),
        _same("empty", (0, 5), "a size of 0 refused, or divided by", dialect="residual"),
        Sample(
            name="many",
            primals=lambda draw: (draw.normal(2311, 1), draw.signed(1)),
            hunts="dy summed in float16 or bfloat16, which stops at 2048 or 256 equal terms",
            dialects=("broadcast",),
        ),
        *REPEATED,
    ),
)

# ── sub ──────────────────────────────────────────────────────────────────────────────────────


def sub_forward(xp, x, y):
    return x - y


def sub_vjp(xp, ct, x, y):
    return xp.reduce_to(ct, x), -xp.reduce_to(ct, y)


sub = OpSpec(
    name="sub",
    signature="(),()->()",
    forward=sub_forward,
    vjp=sub_vjp,
    formula=r"z = x - y",
    source="ggml_sub; Apple's vDSP_vsub, which takes the subtrahend first",
    dialects=(SAME_SHAPE, BROADCAST),
    samples=(
        _same("typical", (3, 5), "the minus forgotten, or given to x (operands swapped)"),
        _same("square", (4, 4), "dy transposed, which only a square forgives"),
        _same("cube", (2, 3, 5), "elements counted over the last two axes only"),
        _same("single", (1,), "a vector loop that forgets its remainder"),
        Sample(
            name="near-equal",
            primals=lambda draw: (draw.near(256.0, 3, 5), draw.near(256.0, 3, 5)),
            hunts="a gradient computed from the difference, of which little is left",
            dialects=("same-shape",),
        ),
        *REPEATED,
    ),
)

# ── mul ──────────────────────────────────────────────────────────────────────────────────────


def mul_forward(xp, x, y):
    return x * y


def mul_vjp(xp, ct, x, y):
    return xp.reduce_to(ct * y, x), xp.reduce_to(ct * x, y)


def _with_zeros(draw: Any) -> tuple[Any, ...]:
    x, y = draw.signed(3, 5), draw.signed(3, 5)
    x[0, 1] = x[2, 3] = 0.0
    y[1, 2] = y[2, 3] = 0.0
    return x, y


mul = OpSpec(
    name="mul",
    signature="(),()->()",
    forward=mul_forward,
    vjp=mul_vjp,
    formula=r"z = x\,y",
    source="ggml_mul",
    dialects=(SAME_SHAPE, BROADCAST),
    samples=(
        _same("typical", (3, 5), "the operands' gradients swapped, or the other factor left out"),
        _same("square", (4, 4), "a factor transposed, which only a square forgives"),
        _same("cube", (2, 3, 5), "elements counted over the last two axes only"),
        _same("single", (1,), "a vector loop that forgets its remainder"),
        Sample(
            name="zeros",
            primals=_with_zeros,
            hunts="the other factor recovered as z/x: 0/0",
            dialects=("same-shape",),
        ),
        Sample(
            name="unequal-size",
            primals=lambda draw: (
                draw.normal(3, 5, scale=2.0**40),
                draw.normal(3, 5, scale=2.0**-40),
            ),
            hunts="x and y confused where their product looks harmless",
            dialects=("same-shape",),
        ),
        *REPEATED,
    ),
)

# ── div ──────────────────────────────────────────────────────────────────────────────────────


def div_forward(xp, x, y):
    return x / y


def div_vjp(xp, ct, x, y):
    return xp.reduce_to(ct / y, x), -xp.reduce_to(ct * (x / y) / y, y)


div = OpSpec(
    name="div",
    signature="(),()->()",
    forward=div_forward,
    vjp=div_vjp,
    formula=r"z = x / y",
    source="ggml_div; Apple's vDSP_vdiv, which takes the divisor first",
    dialects=(SAME_SHAPE, BROADCAST),
    samples=(
        _same(
            "typical",
            (3, 5),
            "the minus or the second 1/y of dy left out, operands swapped",
            y="signed",
        ),
        _same("square", (4, 4), "an operand transposed, which only a square forgives", y="signed"),
        _same("cube", (2, 3, 5), "elements counted over the last two axes only", y="signed"),
        _same("single", (1,), "a vector loop that forgets its remainder", y="signed"),
        Sample(
            name="near-zero",
            primals=lambda draw: (draw.normal(3, 5), draw.signed(3, 5) * 2.0**-20),
            hunts="an eps put under the fraction bar: 1/(y + eps)",
            dialects=("same-shape",),
        ),
        Sample(
            name="huge",
            primals=lambda draw: (draw.signed(3, 5) * 2.0**65, draw.signed(3, 5) * 2.0**65),
            hunts="y*y, which float32 cannot hold: dy = 0",
            dialects=("same-shape",),
        ),
        Sample(
            name="zero-numerator",
            primals=lambda draw: (np.array([0.0, 1.5, -0.0, -0.75, 0.0]), draw.signed(5)),
            hunts="dy or 1/y recovered through z/x: 0/0",
            dialects=("same-shape",),
        ),
        *REPEATED,
    ),
)

# ── add1 ─────────────────────────────────────────────────────────────────────────────────────

# Samples of a tensor and one number, whose gradient is a sum over the whole tensor.
SUMMED = (
    Sample(
        name="cube",
        primals=lambda draw: (draw.normal(2, 3, 5), draw.signed()),
        hunts="ds summed over one axis, or over the first matrix only",
    ),
    Sample(
        name="one-element-tensor",
        primals=lambda draw: (draw.normal(3, 7), draw.signed(1)),
        hunts="ds without the axis of size 1 that ggml's scalars have",
    ),
)
LONG = Sample(
    name="long",
    primals=lambda draw: (draw.normal(131), draw.signed()),
    hunts="a sum in several accumulators that drops one, or the remainder of its vectors",
)
NO_ROWS = Sample(
    name="empty",
    primals=lambda draw: (np.zeros((0, 5)), draw.signed()),
    hunts="a mean of nothing, 0/0, where the sum is 0",
)


def add1_forward(xp, x, s):
    return x + s


def add1_vjp(xp, ct, x, s):
    return ct, xp.reduce_to(ct, s)


add1 = OpSpec(
    name="add1",
    signature="(),()->()",
    forward=add1_forward,
    vjp=add1_vjp,
    formula=r"y = x + s",
    source="ggml_add1",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.signed()),
            hunts="ds taken as the mean, or left at the last element's cotangent",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), draw.signed()),
            hunts="a trace in place of the sum",
        ),
        *SUMMED,
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1), draw.signed()),
            hunts="dx and ds exchanged: here they agree but for their shapes",
        ),
        LONG,
        Sample(
            name="far-apart",
            primals=lambda draw: (draw.normal(3, 5), draw.signed() * 1024.0),
            hunts="a cotangent that is scaled by an operand",
        ),
        NO_ROWS,
    ),
)

# ── scale ────────────────────────────────────────────────────────────────────────────────────


def scale_forward(xp, x, s):
    return x * s


def scale_vjp(xp, ct, x, s):
    return ct * s, xp.reduce_to(ct * x, s)


scale = OpSpec(
    name="scale",
    signature="(),()->()",
    forward=scale_forward,
    vjp=scale_vjp,
    formula=r"y = s\,x",
    source="ggml_scale, whose gradient of s was a mean at first",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.signed()),
            hunts="ds taken as the mean; s left out of dx",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), draw.signed()),
            hunts="a trace, or a product of transposes, in place of the sum",
        ),
        *SUMMED,
        Sample(
            name="single",
            primals=lambda draw: (draw.signed(1), draw.signed()),
            hunts="dx and ds exchanged",
        ),
        LONG,
        Sample(
            name="zero-scalar",
            primals=lambda draw: (draw.normal(3, 5), np.array(0.0)),
            hunts="ds recovered from the output, sum(ct*y)/s: 0/0",
        ),
        Sample(
            name="small-scalar",
            primals=lambda draw: (draw.normal(3, 5), draw.signed() * 2.0**-20),
            hunts="y in place of x in ds",
        ),
        NO_ROWS,
    ),
)

# ── neg ──────────────────────────────────────────────────────────────────────────────────────


def neg_forward(xp, x):
    return -x


def neg_vjp(xp, ct, x):
    return -ct


neg = OpSpec(
    name="neg",
    signature="()->()",
    forward=neg_forward,
    vjp=neg_vjp,
    formula=r"y = -x",
    source="ggml_neg",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="the cotangent passed on, or negated twice",
        ),
        *SHAPES,
        Sample(
            name="zeros",
            primals=lambda draw: (np.array([0.0, -0.0, 1.0, -1.0, 0.0]),),
            hunts="a slope -x/|x|, which has no value at 0",
        ),
        Sample(
            name="huge",
            primals=lambda draw: (draw.signed(3, 5) * 2.0**100,),
            hunts="a slope recovered as y/x after a product that overflows",
        ),
    ),
)

# ── sqr ──────────────────────────────────────────────────────────────────────────────────────


def sqr_forward(xp, x):
    return x * x


def sqr_vjp(xp, ct, x):
    return ct * (2 * x)


sqr = OpSpec(
    name="sqr",
    signature="()->()",
    forward=sqr_forward,
    vjp=sqr_vjp,
    formula=r"y = x^2",
    source="ggml_sqr",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="the factor 2 left out, y in place of x",
        ),
        *SHAPES,
        Sample(
            name="zeros",
            primals=lambda draw: (draw.filled([0.0, -0.0, 1.5, -1.0, 0.0]),),
            hunts="the slope recovered as 2y/x: 0/0",
        ),
        Sample(
            name="negative",
            primals=lambda draw: (-draw.positive(3, 5),),
            hunts="the slope recovered as 2*sqrt(y), which loses the sign",
        ),
        Sample(
            name="huge",
            primals=lambda draw: (draw.signed(3, 5) * 2.0**60,),
            hunts="a cube on the way, which float32 cannot hold",
        ),
        Sample(
            name="tiny",
            primals=lambda draw: (draw.signed(3, 5) * 2.0**-40,),
            hunts="an absolute tolerance that takes 1e-12 for 0",
        ),
    ),
)

# ── exp ──────────────────────────────────────────────────────────────────────────────────────


def exp_forward(xp, x):
    return xp.exp(x)


def exp_vjp(xp, ct, x):
    return ct * xp.exp(x)


exp = OpSpec(
    name="exp",
    signature="()->()",
    forward=exp_forward,
    vjp=exp_vjp,
    formula=r"y = e^x",
    source="ggml_exp",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="the power rule, x*exp(x - 1); the exponential of y",
        ),
        *SHAPES,
        Sample(
            name="sweep",
            primals=lambda draw: (draw.filled(np.linspace(-8.0, 8.0, 33)),),
            hunts="an exponent that is clipped",
        ),
        Sample(
            name="large",
            primals=lambda draw: (draw.filled([20.0, 33.0, 47.0, 61.0, 80.0]),),
            hunts="a clip at 20, e^x squared on the way",
        ),
        Sample(
            name="tail",
            primals=lambda draw: (draw.filled([-3.0, -20.0, -41.0, -61.0, -80.0]),),
            hunts="exp(x) - 1 in place of exp(x) (a slope of -1), a slope flushed to 0",
        ),
        Sample(
            name="underflow",
            primals=lambda draw: (draw.filled([-110.0, -800.0, -1e4, -1.0]),),
            hunts="y/y, or a logarithm of y, where y is 0",
        ),
    ),
)

# ── sqrt ─────────────────────────────────────────────────────────────────────────────────────


def sqrt_forward(xp, x):
    return xp.sqrt(x)


def sqrt_vjp(xp, ct, x):
    return ct / (2 * xp.sqrt(x))


def _above_zero(xp: Any, x: Any, **attrs: Any) -> Any:
    return xp.abs(x)


def _quarter_up(draw: Any, *shape: int) -> Any:
    """Values in [1/4, 2]: positive, and away from 0."""
    return draw.uniform(0.25, 2.0, *shape)


# For operators that are defined above 0 only.
POSITIVE_SHAPES = _shapes(_quarter_up, _quarter_up, _tiles(_quarter_up))


def _down_to_zero(draw: Any) -> tuple[Any, ...]:
    near = [2.0**-100, 2.0**-24, 2.0**-12]
    return (np.concatenate([[0.0], near, draw.uniform(0.25, 2.0, 4), [0.0]]),)


INFINITE = Convention(name="inf", systems=("PyTorch", "JAX", "ggml"), slope=float("inf"))

sqrt = OpSpec(
    name="sqrt",
    signature="()->()",
    forward=sqrt_forward,
    vjp=sqrt_vjp,
    formula=r"y = \sqrt{x}",
    source="ggml_sqrt",
    kinks=(
        Kink(
            name="x = 0",
            gap=_above_zero,
            accept=(0.0, float("inf")),
            source="the slope from above is infinite; below there is no function, and guarded "
            "code gives 0",
            conventions=(INFINITE,),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (_quarter_up(draw, 3, 7),),
            hunts="1/2 left out, x in place of its root",
        ),
        *POSITIVE_SHAPES,
        Sample(
            name="large",
            primals=lambda draw: (draw.uniform(0.5, 1.5, 3, 5) * 2.0**80,),
            hunts="x*sqrt(x) or x*x on the way, which float32 cannot hold",
        ),
        Sample(
            name="kink",
            primals=_down_to_zero,
            hunts="an eps under the fraction bar, which shows beside 0; NaN at 0",
            at_kink=True,
        ),
    ),
)

# ── log ──────────────────────────────────────────────────────────────────────────────────────


def log_forward(xp, x):
    return xp.log(x)


def log_vjp(xp, ct, x):
    return ct / x


log = OpSpec(
    name="log",
    signature="()->()",
    forward=log_forward,
    vjp=log_vjp,
    formula=r"y = \log x",
    source="ggml_log",
    kinks=(
        Kink(
            name="x = 0",
            gap=_above_zero,
            accept=(0.0, float("inf")),
            source="the value is -inf and the slope from above infinite; guarded code gives 0",
            conventions=(INFINITE,),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (_quarter_up(draw, 3, 7),),
            hunts="1/y, or the logarithm itself, in place of 1/x; another base",
        ),
        *POSITIVE_SHAPES,
        Sample(
            name="large",
            primals=lambda draw: (draw.uniform(0.5, 1.5, 3, 5) * 2.0**60,),
            hunts="an absolute tolerance that takes 1e-18 for 0",
        ),
        Sample(
            name="near-one",
            primals=lambda draw: (draw.near(1.0, 3, 5),),
            hunts="a slope recovered from y, which is 0 there",
        ),
        Sample(
            name="kink",
            primals=_down_to_zero,
            hunts="an eps under the fraction bar, which shows beside 0; NaN at 0",
            at_kink=True,
        ),
    ),
)

# ── abs ──────────────────────────────────────────────────────────────────────────────────────


def _distance_from_zero(xp: Any, x: Any, **attrs: Any) -> Any:
    return xp.abs(x)


# For operators that are not smooth at 0.
CORNER_SHAPES = _shapes(
    lambda draw, *shape: draw.away(0.0, *shape),
    lambda draw, *shape: -draw.positive(*shape),
    Sample(
        name="wide",
        primals=lambda draw: (draw.away(0.0, 3, 5, scale=1024.0),),
        hunts="a slope that falls off, as of a smooth stand-in",
    ),
)
BESIDE = 2.0**-126  # float32's smallest normal number


def _around_zero(draw: Any) -> tuple[Any, ...]:
    middle = [0.0, -0.0, BESIDE, -BESIDE, 2.0**-24, -(2.0**-24), 0.0]
    return (np.concatenate([draw.away(0.0, 3), middle, draw.away(0.0, 3)]),)


def abs_forward(xp, x):
    return xp.abs(x)


def abs_vjp(xp, ct, x):
    return ct * xp.sign(x)


abs_ = OpSpec(
    name="abs",
    signature="()->()",
    forward=abs_forward,
    vjp=abs_vjp,
    formula=r"y = |x|",
    source="ggml_abs",
    kinks=(
        Kink(
            name="x = 0",
            gap=_distance_from_zero,
            accept=(-1.0, 1.0),
            source="[-1, 1] is the subdifferential of |x| at 0",
            conventions=(
                Convention(name="0", systems=("PyTorch", "ggml"), slope=0.0),
                Convention(name="1", systems=("JAX",), slope=1.0),
            ),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(0.0, 3, 7),),
            hunts="the sign left out, or applied twice",
        ),
        *CORNER_SHAPES,
        Sample(
            name="kink",
            primals=_around_zero,
            hunts="x/|x|, NaN at 0; a slope outside [-1, 1] there; an eps beside it",
            at_kink=True,
        ),
        Sample(
            name="all-zero",
            primals=lambda draw: (np.zeros((3, 5)),),
            hunts="NaN from a row of zeros, as after an initialisation",
            at_kink=True,
        ),
    ),
)

# ── sgn ──────────────────────────────────────────────────────────────────────────────────────

NOTHING = "the function jumps: the slope is 0 on both sides, and by convention between them"
NO_SLOPE = Convention(name="0", systems=("PyTorch", "JAX", "ggml"), slope=0.0)


def sgn_forward(xp, x):
    return xp.sign(x)


def sgn_vjp(xp, ct, x):
    return xp.zeros_like(x)


sgn = OpSpec(
    name="sgn",
    signature="()->()",
    forward=sgn_forward,
    vjp=sgn_vjp,
    formula=r"y = \operatorname{sgn} x,\quad \operatorname{sgn} 0 = 0",
    source="ggml_sgn; torch.sign",
    kinks=(
        Kink(
            name="x = 0",
            gap=_distance_from_zero,
            accept=(0.0, 0.0),
            source=NOTHING,
            conventions=(NO_SLOPE,),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(0.0, 3, 7),),
            hunts="a straight-through gradient where a true one was asked for; None for zeros",
        ),
        *CORNER_SHAPES,
        Sample(
            name="kink",
            primals=_around_zero,
            hunts="sgn 0 = 1 in the forward; a gradient at the jump; x/|x| differentiated, 0/0",
            at_kink=True,
        ),
        Sample(
            name="all-zero",
            primals=lambda draw: (np.zeros((3, 5)),),
            hunts="NaN from a row of zeros, as after an initialisation",
            at_kink=True,
        ),
    ),
)

# ── step ─────────────────────────────────────────────────────────────────────────────────────


def step_forward(xp, x, *, at_zero=0.0):
    return xp.where(x > 0, 1.0, xp.where(x < 0, 0.0, xp.zeros_like(x) + at_zero))


def step_vjp(xp, ct, x, *, at_zero=0.0):
    return xp.zeros_like(x)


step = OpSpec(
    name="step",
    signature="()->()",
    forward=step_forward,
    vjp=step_vjp,
    formula=r"y = \begin{cases} 1 & x > 0 \\ c & x = 0 \\ 0 & x < 0 \end{cases}",
    source="ggml_step; torch.heaviside",
    dialects=(
        Dialect(name="ggml", says="ggml: step(0) = 0"),
        Dialect(name="half", says="Heaviside's: 1/2 at 0", attrs={"at_zero": 0.5}),
        Dialect(name="closed", says="x >= 0: 1 at 0", attrs={"at_zero": 1.0}),
    ),
    kinks=(
        Kink(
            name="x = 0",
            gap=_distance_from_zero,
            accept=(0.0, 0.0),
            source=NOTHING,
            conventions=(Convention(name="0", systems=("JAX", "ggml"), slope=0.0),),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(0.0, 3, 7),),
            hunts="relu's gradient, which is the step itself; None for zeros",
        ),
        *CORNER_SHAPES,
        Sample(
            name="kink",
            primals=_around_zero,
            hunts="another value at 0 in the forward; a gradient at the jump",
            at_kink=True,
        ),
        Sample(
            name="all-zero",
            primals=lambda draw: (np.zeros((3, 5)),),
            hunts="NaN from a row of zeros, as after an initialisation",
            at_kink=True,
        ),
    ),
)

# ── pow ──────────────────────────────────────────────────────────────────────────────────────


def pow_forward(xp, x, y=None, *, exponent=2.0):
    return xp.power(x, y) if y is not None else _fixed_power(xp, x, exponent)


def pow_vjp(xp, ct, x, y=None, *, exponent=2.0):
    if y is None:
        if exponent == 0:
            return xp.zeros_like(x)
        return ct * (exponent * _fixed_power(xp, x, exponent - 1))
    logs = xp.log(xp.where(x > 0, x, 1.0))  # 0^y = 0 for every y > 0: no slope along y
    dx = ct * (y * xp.power(x, y - 1))
    return xp.reduce_to(dx, x), xp.reduce_to(ct * (xp.power(x, y) * logs), y)


def _fixed_power(xp: Any, x: Any, exponent: float) -> Any:
    """x^n as a product where n is an integer, so that x may be negative or 0; 0^0 = 1."""
    count = int(exponent)
    if count != exponent:
        return xp.power(x, exponent)
    product = xp.full(x.shape, "1")
    for _ in range(abs(count)):
        product = product * x
    return product if count >= 0 else 1 / product


def _base_above_zero(xp: Any, x: Any, y: Any = None, **attrs: Any) -> Any:
    """Distance from 0, where powers exist on one side only."""
    return xp.abs(x) if y is not None else xp.full(x.shape, "1")


def _negative_and_positive(draw: Any) -> tuple[Any, ...]:
    return draw.signed(3, 5), np.zeros(0)


def _with_zero_base(draw: Any) -> tuple[Any, ...]:
    return draw.filled([0.0, 1.5, -0.75, 0.0, -1.25]), np.zeros(0)


INTEGER = ("integer",)

pow_ = OpSpec(
    name="pow",
    signature="(),()->()",
    forward=pow_forward,
    vjp=pow_vjp,
    formula=r"z = x^y",
    source="torch.pow; jax.numpy.power; jax.lax.integer_pow",
    dialects=(
        Dialect(name="real", says="torch.pow, jnp.power: base above 0, both differentiated"),
        Dialect(
            name="integer",
            says="lax.integer_pow: a fixed integer exponent, any base",
            attrs={"exponent": 3.0},
            without=("y",),
        ),
        Dialect(
            name="fixed",
            says="torch.pow(x, 2.5): a fixed real exponent",
            attrs={"exponent": 2.5},
            without=("y",),
        ),
    ),
    kinks=(
        Kink(
            name="x = 0",
            gap=_base_above_zero,
            accept=(0.0, 0.0),
            source="x^y is defined for x >= 0; its slope from there is 0 for y > 1, the only "
            "exponents that stand beside a base of 0",
            conventions=(Convention(name="0", systems=("PyTorch", "JAX"), slope=0.0),),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.uniform(0.25, 2.0, 3, 5), draw.away((0.0, 1.0), 3, 5)),
            hunts="the logarithm of y for that of x, y*x^y for y*x^(y-1), the exponent's "
            "gradient missing",
            dialects=("real", "fixed"),
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.uniform(0.25, 2.0, 4, 4), draw.away((0.0, 1.0), 4, 4)),
            hunts="base and exponent swapped",
            dialects=("real", "fixed"),
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.uniform(0.25, 2.0, 1), draw.away((0.0, 1.0), 1)),
            hunts="a vector loop that forgets its remainder",
        ),
        Sample(
            name="row",
            primals=lambda draw: (draw.uniform(0.25, 2.0, 3, 5), draw.away((0.0, 1.0), 5)),
            hunts="the exponent's gradient left unsummed, averaged, or taken from one row",
            dialects=("real",),
        ),
        Sample(
            name="base-row",
            primals=lambda draw: (draw.uniform(0.25, 2.0, 5), draw.away((0.0, 1.0), 3, 5)),
            hunts="the base's gradient left unsummed",
            dialects=("real",),
        ),
        Sample(
            name="exponent-zero",
            primals=lambda draw: (draw.uniform(0.25, 2.0, 5), np.zeros(5)),
            hunts="dy = 0 because z is constant in x",
            dialects=("real",),
        ),
        Sample(
            name="base-zero",
            primals=lambda draw: (
                np.array([0.0, 0.75, 0.0, 1.5, 0.0]),
                np.array([2, 3, 3, 2, 4.0]),
            ),
            hunts="log 0 times 0, or z/x, which are NaN",
            dialects=("real",),
            at_kink=True,
        ),
        Sample(
            name="negative-base",
            primals=_negative_and_positive,
            hunts="|x| or exp(y*log x) in place of a product; the sign of an odd power",
            dialects=INTEGER,
        ),
        Sample(
            name="exponent-2",
            primals=_with_zero_base,
            hunts="the default exponent's slope; z/x at a base of 0",
            attrs={"exponent": 2.0},
            dialects=INTEGER,
        ),
        Sample(
            name="exponent-1",
            primals=_with_zero_base,
            hunts="0^0 taken to be 0, or NaN: the slope is 1 there too",
            attrs={"exponent": 1.0},
            dialects=INTEGER,
        ),
        Sample(
            name="exponent-0",
            primals=_with_zero_base,
            hunts="0*x^-1, which is 0*inf at a base of 0; 0^0 = 1",
            attrs={"exponent": 0.0},
            dialects=INTEGER,
        ),
        Sample(
            name="exponent-minus-2",
            primals=_negative_and_positive,
            hunts="an exponent taken by its magnitude",
            attrs={"exponent": -2.0},
            dialects=INTEGER,
        ),
        Sample(
            name="exponent-half",
            primals=lambda draw: (draw.uniform(0.25, 2.0, 3, 5), np.zeros(0)),
            hunts="an exponent rounded to an integer",
            attrs={"exponent": 0.5},
            dialects=("fixed",),
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros((0, 5))),
            hunts="a size of 0 refused, or divided by",
        ),
    ),
)

# ── map_unary ────────────────────────────────────────────────────────────────────────────────
# ggml maps a function of the user's. These represent it, with their derivatives: an even
# function, an odd one, and one without symmetry, so that a slope taken at −x or at y shows.


def _swish_slope(xp: Any, x: Any) -> Any:
    s = 1 / (1 + xp.exp(-x))
    return s * (1 + x * (1 - s))


UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "bell": (lambda xp, x: xp.exp(-x * x), lambda xp, x: -2 * x * xp.exp(-x * x)),
    "sine": (lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x)),
    "swish": (lambda xp, x: x / (1 + xp.exp(-x)), _swish_slope),
}


def map_unary_forward(xp, x, *, function="bell"):
    return UNARY[function][0](xp, x)


def map_unary_vjp(xp, ct, x, *, function="bell"):
    return ct * UNARY[function][1](xp, x)


# Away from the extrema of the three functions, where their slopes are mostly rounding.
FLAT = (-1.5703125, -1.28125, 0.0, 1.5703125)

map_unary = OpSpec(
    name="map_unary",
    signature="()->()",
    forward=map_unary_forward,
    vjp=map_unary_vjp,
    formula=r"y = f(x),\quad f \in \{e^{-x^2},\ \sin x,\ x\,\sigma(x)\}",
    source="ggml_map_unary_f32, whose function is the user's own",
    dialects=(
        Dialect(name="bell", says="exp(-x^2): even"),
        Dialect(name="sine", says="sin x: odd", attrs={"function": "sine"}),
        Dialect(name="swish", says="x times sigmoid(x): neither", attrs={"function": "swish"}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(FLAT, 3, 7),),
            hunts="the function where its derivative belongs",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.away(FLAT, 4, 4),),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.away(FLAT, 2, 3, 5),),
            hunts="the function mapped over the first matrix only",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.away(FLAT, 1),),
            hunts="a vector loop that forgets its remainder",
        ),
        Sample(
            name="negative",
            primals=lambda draw: (-draw.uniform(0.25, 1.125, 3, 5),),
            hunts="the derivative at |x|, or at the output",
        ),
        Sample(
            name="zeros",
            primals=lambda draw: (draw.filled([0.0, 0.5, -0.0, -0.5, 0.0]),),
            hunts="an element skipped because it is 0",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            hunts="a size of 0 refused, or divided by",
        ),
    ),
)

# ── map_binary ───────────────────────────────────────────────────────────────────────────────


def _hypot(xp: Any, x: Any, y: Any) -> Any:
    return xp.sqrt(x * x + y * y)


# Each with its two partial derivatives.
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "hypot": (
        _hypot,
        lambda xp, x, y: x / _hypot(xp, x, y),
        lambda xp, x, y: y / _hypot(xp, x, y),
    ),
    "wave": (
        lambda xp, x, y: xp.sin(x) * y,
        lambda xp, x, y: xp.cos(x) * y,
        lambda xp, x, y: xp.sin(x),
    ),
    "growth": (
        lambda xp, x, y: x * xp.exp(y),
        lambda xp, x, y: xp.exp(y),
        lambda xp, x, y: x * xp.exp(y),
    ),
}


def map_binary_forward(xp, x, y, *, function="hypot"):
    return BINARY[function][0](xp, x, y)


def map_binary_vjp(xp, ct, x, y, *, function="hypot"):
    return tuple(ct * partial(xp, x, y) for partial in BINARY[function][1:])


map_binary = OpSpec(
    name="map_binary",
    signature="(),()->()",
    forward=map_binary_forward,
    vjp=map_binary_vjp,
    formula=r"z = f(x, y),\quad f \in \{\sqrt{x^2 + y^2},\ y \sin x,\ x\,e^y\}",
    source="ggml_map_binary_f32, whose function is the user's own",
    dialects=(
        Dialect(name="hypot", says="sqrt(x^2 + y^2): symmetric, so a swap is no mistake in it"),
        Dialect(name="wave", says="y sin x: linear in y", attrs={"function": "wave"}),
        Dialect(name="growth", says="x exp(y): linear in x", attrs={"function": "growth"}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(FLAT, 3, 5), draw.signed(3, 5)),
            hunts="the two gradients exchanged, the second one left out",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.away(FLAT, 4, 4), draw.signed(4, 4)),
            hunts="an operand transposed, which only a square forgives",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.away(FLAT, 2, 3, 5), draw.signed(2, 3, 5)),
            hunts="the function mapped over the first matrix only",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.away(FLAT, 1), draw.signed(1)),
            hunts="a vector loop that forgets its remainder",
        ),
        Sample(
            name="equal",
            primals=lambda draw: (np.array([0.5, -0.75, 1.25]), np.array([0.5, -0.75, 1.25])),
            exact=True,
            hunts="one operand passed twice, where f(x, x) looks right",
        ),
        Sample(
            name="zero-operand",
            primals=lambda draw: (draw.signed(5), np.zeros(5)),
            hunts="a partial derivative recovered as z/y: 0/0",
        ),
        Sample(
            name="unequal-size",
            primals=lambda draw: (draw.signed(3, 5), draw.signed(3, 5) * 8.0),
            hunts="the operands' partial derivatives averaged",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros((0, 5))),
            hunts="a size of 0 refused, or divided by",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(263), draw.signed(263)),
            dialects=("hypot",),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind "
            "128 that is left out",
        ),
    ),
)
