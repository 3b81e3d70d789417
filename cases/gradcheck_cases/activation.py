"""Activations. Axes: t rows, d features.

Slopes are written as the known systems write them. The engine takes the rounding that it allows
from this text: the digits that 1 − y² loses in a tail, a right implementation may lose there too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample

# Points that ordinary samples keep away from: the kinks at −1, 0 and 1, and the places (about
# −0.75 and −1.28) where the slope of gelu and of silu crosses zero, so that what is left of two
# equal terms is mostly rounding in any implementation.
AVOIDED = (-1.25, -1.0, -0.75, 0.0, 1.0)


def shaped(primals: Any, single: Any = None) -> tuple[Sample, ...]:
    """Samples of `primals(draw, *shape)` with hard shapes and ordinary numbers."""
    return (
        Sample(
            name="cube",
            primals=lambda draw: primals(draw, 2, 3, 5),
            hunts="elements counted over the last two axes only",
        ),
        Sample(
            name="square",
            primals=lambda draw: primals(draw, 5, 5),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="single",
            primals=lambda draw: (single or primals)(draw, 1),
            hunts="a vector loop that forgets its remainder",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: primals(draw, 263),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind 128",
        ),
        Sample(
            name="empty",
            primals=lambda draw: primals(draw, 0, 5),
            hunts="a loop that assumes one element, or a buffer of another shape returned",
        ),
    )


def shapes(points: Any) -> tuple[Sample, ...]:
    """Samples of one primal whose values keep a distance from `points`."""
    return shaped(
        lambda draw, *shape: (draw.away(points, *shape),),
        lambda draw, *shape: (np.abs(draw.away(points, *shape)),),  # where slopes are positive
    )


SHAPES = shapes(AVOIDED)  # every operator of one primal meets these


def beside(point: float, ulps: int = 1) -> list[float]:
    """A kink and its neighbours on both sides: float32's next number, or its first normal one."""
    step = ulps * float(np.spacing(np.float32(point))) if point else 2.0**-126
    return [point - step, point, point + step]


def sweep(draw: Any) -> tuple[Any, ...]:
    """Both tails and the middle, evenly."""
    return (draw.filled(np.linspace(-8.0, 8.0, 33)),)


def saved_output(low: float, high: float, *points: float) -> tuple[Sample, ...]:
    """Samples of a backward from the saved output y in [low, high]; y keeps away from `points`."""

    def y(draw: Any, *shape: int) -> Any:
        drawn = draw.uniform(low, high, *shape)
        for point in points:
            drawn = np.where(np.abs(drawn - point) < 0.125, point + 0.1875, drawn)
        return drawn

    return (
        Sample(
            name="typical",
            primals=lambda draw: (draw.signed(3, 7), y(draw, 3, 7)),
            hunts="a factor 2 or g missing from dy, the two gradients exchanged",
        ),
        *shaped(lambda draw, *shape: (draw.signed(*shape), y(draw, *shape))),
        Sample(
            name="no-gradient",
            primals=lambda draw: (np.array([0.0, 1.5, -0.0, -0.75]), y(draw, 4)),
            hunts="the slope recovered as dx/g: 0/0",
        ),
    )


# ── relu ─────────────────────────────────────────────────────────────────────────────────────


def _distance_from_zero(xp: Any, x: Any, **attrs: Any) -> Any:
    return xp.abs(x)


def relu_forward(xp, x):
    return xp.where(x > 0, x, 0.0)


def relu_vjp(xp, ct, x):
    return xp.where(x > 0, ct, 0.0)


relu = OpSpec(
    name="relu",
    signature="()->()",
    forward=relu_forward,
    vjp=relu_vjp,
    formula=r"y = \max(x, 0)",
    source="Nair & Hinton 2010, ICML",
    kinks=(
        Kink(
            name="x = 0",
            gap=_distance_from_zero,
            accept=(0.0, 1.0),
            source="[0, 1] is the subdifferential of max(x, 0) at 0",
            conventions=(
                Convention(name="0", systems=("PyTorch", "JAX", "ggml"), slope=0.0),
                Convention(name="1/2", systems=("jnp.maximum",), slope=0.5),
            ),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="x, or a constant, in place of the cotangent",
        ),
        *SHAPES,
        Sample(
            name="wide",
            primals=lambda draw: (draw.away(0.0, 3, 5, scale=1024.0),),
            hunts="an upper bound (relu6), a slope that saturates",
        ),
        Sample(
            name="kink",
            primals=lambda draw: (np.concatenate([[0.0, -0.0], draw.away(AVOIDED, 5), [0.0]]),),
            hunts="a slope outside [0, 1] at 0, a sign bit taken for a sign",
            at_kink=True,
        ),
        Sample(
            name="beside",
            primals=lambda draw: (np.array([*beside(0.0), -0.0, 0.5, -0.5]),),
            hunts="a threshold above 0, below which x counts as 0",
            at_kink=True,
        ),
    ),
)

# ── leaky_relu ───────────────────────────────────────────────────────────────────────────────


def leaky_relu_forward(xp, x, *, negative_slope=0.01):
    return xp.where(x > 0, x, negative_slope * x)


def leaky_relu_vjp(xp, ct, x, *, negative_slope=0.01):
    return xp.where(x > 0, ct, negative_slope * ct)


def _around_zero(draw: Any) -> tuple[Any, ...]:
    return (np.concatenate([draw.away(AVOIDED, 4), beside(0.0), draw.away(AVOIDED, 4)]),)


leaky_relu = OpSpec(
    name="leaky_relu",
    signature="()->()",
    forward=leaky_relu_forward,
    vjp=leaky_relu_vjp,
    formula=r"y = \begin{cases} x & x > 0 \\ s\,x & x \le 0 \end{cases}",
    source="Maas, Hannun & Ng 2013, ICML; ggml PR 921 (s at 0)",
    kinks=(
        Kink(
            name="x = 0",
            gap=_distance_from_zero,
            accept=lambda negative_slope: (min(negative_slope, 1.0), max(negative_slope, 1.0)),
            source="Clarke's generalised gradient: every slope between the two one-sided ones",
            conventions=(
                Convention(
                    name="negative_slope",
                    systems=("PyTorch", "ggml"),
                    slope=lambda negative_slope: negative_slope,
                ),
                Convention(name="1", systems=("JAX",), slope=1.0),
            ),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="the slope left out, or applied to both sides",
        ),
        *SHAPES,
        Sample(
            name="kink",
            primals=_around_zero,
            hunts="slope*step(-x) + step(x), which is 0 at 0",
            at_kink=True,
        ),
        Sample(
            name="slope-0",
            primals=_around_zero,
            hunts="a slope of 0 replaced by the default; a division by it",
            attrs={"negative_slope": 0.0},
            at_kink=True,
        ),
        Sample(
            name="slope-0.3",
            primals=_around_zero,
            hunts="the default slope whatever was asked for",
            attrs={"negative_slope": 0.3},
            at_kink=True,
        ),
        Sample(
            name="slope-1",
            primals=_around_zero,
            hunts="a special value at 0 where there is no kink any more",
            attrs={"negative_slope": 1.0},
            at_kink=True,
        ),
        Sample(
            name="slope-negative",
            primals=_around_zero,
            hunts="the branch chosen by the sign of the output",
            attrs={"negative_slope": -0.2},
            at_kink=True,
        ),
        Sample(
            name="slope-steep",
            primals=_around_zero,
            hunts="max(x, slope*x), which swaps the sides for a slope above 1",
            attrs={"negative_slope": 1.5},
            at_kink=True,
        ),
    ),
)

# ── elu ──────────────────────────────────────────────────────────────────────────────────────


def elu_forward(xp, x, *, alpha=1.0):
    below = xp.minimum(x, 0)  # keeps exp finite in the branch that is not taken
    return xp.where(x > 0, x, alpha * (xp.exp(below) - 1))


def elu_vjp(xp, ct, x, *, alpha=1.0):
    below = xp.minimum(x, 0)
    return xp.where(x > 0, ct, ct * alpha * xp.exp(below))


elu = OpSpec(
    name="elu",
    signature="()->()",
    forward=elu_forward,
    vjp=elu_vjp,
    formula=r"y = \begin{cases} x & x > 0 \\ \alpha (e^x - 1) & x \le 0 \end{cases}",
    source="Clevert, Unterthiner & Hochreiter 2015, arXiv:1511.07289; ggml PR 921",
    kinks=(
        Kink(
            name="x = 0",
            gap=_distance_from_zero,
            accept=lambda alpha: (min(alpha, 1.0), max(alpha, 1.0)),
            source="the one-sided slopes are alpha and 1, equal for alpha = 1",
            conventions=(
                Convention(
                    name="alpha",
                    systems=("PyTorch", "JAX", "ggml"),
                    slope=lambda alpha: alpha,
                ),
            ),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="x in place of 1 for x > 0 (the first version of ggml PR 921)",
        ),
        *SHAPES,
        Sample(
            name="saturated",
            primals=lambda draw: (draw.away(0.0, 3, 5, scale=8.0),),
            hunts="y + alpha in place of alpha*exp(x), which is 0 in the tail",
        ),
        Sample(
            name="overflow",
            primals=lambda draw: (np.array([-800.0, -104.0, 89.0, 104.0, 710.0, 800.0]),),
            exact=True,
            hunts="exp(x) taken on the side that is not used: 0 * inf",
        ),
        Sample(
            name="kink",
            primals=_around_zero,
            hunts="a slope other than 1 at 0, where both sides agree on 1",
            at_kink=True,
        ),
        Sample(
            name="curvature",  # f'' jumps from 1 to 0 at 0: a difference across it is off by h/4
            primals=lambda draw: (
                np.concatenate([np.exp2(-np.arange(2.0, 12.0, 3.0)) * s for s in (-1, 1)] + [[0]]),
            ),
            hunts="a checker whose step straddles the jump of the second derivative",
            at_kink=True,
        ),
        Sample(
            name="alpha-0.5",
            primals=_around_zero,
            hunts="alpha left out of the slope",
            attrs={"alpha": 0.5},
            at_kink=True,
        ),
        Sample(
            name="alpha-2",
            primals=_around_zero,
            hunts="the two slopes at 0 taken to be in the order (alpha, 1)",
            attrs={"alpha": 2.0},
            at_kink=True,
        ),
    ),
)

# ── clamp ────────────────────────────────────────────────────────────────────────────────────


def clamp_forward(xp, x, *, min=-1.0, max=1.0):
    return xp.where(x < min, min, xp.where(x > max, max, x))


def clamp_vjp(xp, ct, x, *, min=-1.0, max=1.0):
    return xp.where((x >= min) & (x <= max), ct, 0.0)


BOUND = "the one-sided slopes are 0 and 1"
AT_BOUND = (
    Convention(name="1", systems=("PyTorch", "ggml"), slope=1.0),
    Convention(name="1/2", systems=("JAX",), slope=0.5),
    Convention(name="0", systems=("jax.lax.clamp",), slope=0.0),
)

clamp = OpSpec(
    name="clamp",
    signature="()->()",
    forward=clamp_forward,
    vjp=clamp_vjp,
    formula=r"y = \min(\max(x, a), b)",
    source="ggml PR 921 (clamp_back); torch.clamp",
    kinks=(
        Kink(
            name="x = min",
            gap=lambda xp, x, *, min, max: xp.abs(x - min),
            accept=(0.0, 1.0),
            source=BOUND,
            conventions=AT_BOUND,
        ),
        Kink(
            name="x = max",
            gap=lambda xp, x, *, min, max: xp.abs(x - max),
            accept=(0.0, 1.0),
            source=BOUND,
            conventions=AT_BOUND,
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="the slope of one bound only",
        ),
        *SHAPES,
        Sample(
            name="saturated",
            primals=lambda draw: (draw.away(AVOIDED, 3, 5, scale=8.0),),
            hunts="the bound itself passed on as the slope",
        ),
        Sample(
            name="kink",
            primals=lambda draw: (
                np.concatenate([[-1.0, 1.0], draw.away(AVOIDED, 6), [1.0, -1.0]]),
            ),
            hunts="a slope outside [0, 1] on a bound, 2 where both tests hold",
            at_kink=True,
        ),
        Sample(
            name="beside",
            primals=lambda draw: (np.array([*beside(-1.0), 0.25, *beside(1.0)]),),
            hunts="a tolerance around a bound: one ulp inside is inside, one outside is outside",
            at_kink=True,
        ),
        Sample(
            name="one-sided",
            primals=lambda draw: (np.concatenate([[0.75], draw.away((-1.0, 0.75), 7, scale=4.0)]),),
            hunts="a lower bound where none was given",
            attrs={"min": -np.inf, "max": 0.75},
            at_kink=True,
        ),
        Sample(
            name="asymmetric",
            primals=lambda draw: (
                np.concatenate([[-0.5, 2.0], draw.away((-0.5, 2.0), 7, scale=2.0)]),
            ),
            hunts="bounds swapped, mirrored, or left at their defaults",
            attrs={"min": -0.5, "max": 2.0},
            at_kink=True,
        ),
        Sample(
            name="positive",
            primals=lambda draw: (np.concatenate([[0.25], draw.away((0.25, 1.0), 7)]),),
            hunts="a bound taken for a magnitude: |x| compared with it",
            attrs={"min": 0.25},
            at_kink=True,
        ),
    ),
)

# ── tanh ─────────────────────────────────────────────────────────────────────────────────────


def _tanh_slope(xp: Any, x: Any) -> Any:
    y = xp.tanh(x)
    return 1 - y * y


def tanh_forward(xp, x):
    return xp.tanh(x)


def tanh_vjp(xp, ct, x):
    return ct * _tanh_slope(xp, x)


tanh = OpSpec(
    name="tanh",
    signature="()->()",
    forward=tanh_forward,
    vjp=tanh_vjp,
    formula=r"y = \tanh x",
    source="ggml PR 921: g (1 - y^2)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="1 - y in place of 1 - y^2; x in place of y",
        ),
        *SHAPES,
        Sample(
            name="sweep",
            primals=sweep,
            hunts="a slope of the wrong sign, or one-sided, away from 0",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (draw.normal(3, 5, scale=8.0),),
            hunts="a slope that stops falling, or turns negative, where y rounds to 1",
        ),
        Sample(
            name="overflow",
            primals=lambda draw: (np.array([-800.0, -89.0, 0.0, 89.0, 800.0]),),
            hunts="cosh or exp(2x) overflows: inf/inf",
        ),
    ),
)

# ── tanh_back ────────────────────────────────────────────────────────────────────────────────


def tanh_back_forward(xp, g, y):
    return g * (1 - y * y)


def tanh_back_vjp(xp, ct, g, y):
    return ct * (1 - y * y), -2 * ct * g * y


tanh_back = OpSpec(
    name="tanh_back",
    signature="(),()->()",
    forward=tanh_back_forward,
    vjp=tanh_back_vjp,
    formula=r"dx = g\,(1 - y^2), \quad y = \tanh x",
    source="ggml PR 921: g - g y^2 from the saved output; torch.ops.aten.tanh_backward",
    samples=(
        *saved_output(-0.96875, 0.96875),
        Sample(
            name="saturated",
            primals=lambda draw: (
                draw.signed(8),
                np.array([1.0, -1.0, 1.0, -1.0, 1.0 - 2.0**-8, 2.0**-12 - 1, 0.0, 0.5]),
            ),
            hunts="dy lost where the slope is 0: there it is -2 g y all the same",
        ),
        Sample(
            name="tiny",
            primals=lambda draw: (draw.signed(5), draw.away(0.0, 5) * 2.0**-30),
            hunts="dy lost where the slope is 1",
        ),
    ),
)

# ── sigmoid ──────────────────────────────────────────────────────────────────────────────────


def sigmoid_forward(xp, x):
    return xp.sigmoid(x)


def sigmoid_vjp(xp, ct, x):
    y = xp.sigmoid(x)
    return ct * y * (1 - y)


sigmoid = OpSpec(
    name="sigmoid",
    signature="()->()",
    forward=sigmoid_forward,
    vjp=sigmoid_vjp,
    formula=r"y = \sigma(x) = \frac{1}{1 + e^{-x}}",
    source="ggml PR 921: g y (1 - y)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="a missing factor y or 1 - y; x in place of y",
        ),
        *SHAPES,
        Sample(
            name="sweep",
            primals=sweep,
            hunts="a slope of the wrong sign, or one-sided, away from 0",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (draw.normal(3, 5, scale=8.0),),
            hunts="a slope that stops falling in the tail",
        ),
        Sample(
            name="tails",
            primals=lambda draw: (
                draw.filled([-80.0, -40.0, -20.0, -14.0, 0.5, 14.0, 17.0, 20.0]),
            ),
            hunts="a slope of the wrong sign in the tail, where it is tiny",
        ),
        Sample(
            name="overflow",
            primals=lambda draw: (np.array([-800.0, -89.0, 0.0, 89.0, 800.0]),),
            exact=True,
            hunts="exp(-x) overflows: inf/inf^2",
        ),
    ),
)

# ── sigmoid_back ─────────────────────────────────────────────────────────────────────────────


def sigmoid_back_forward(xp, g, y):
    return g * y * (1 - y)


def sigmoid_back_vjp(xp, ct, g, y):
    return ct * y * (1 - y), ct * g * (1 - 2 * y)


sigmoid_back = OpSpec(
    name="sigmoid_back",
    signature="(),()->()",
    forward=sigmoid_back_forward,
    vjp=sigmoid_back_vjp,
    formula=r"dx = g\,y\,(1 - y), \quad y = \sigma(x)",
    source="ggml PR 921: g y - g y^2 from the saved output; torch.ops.aten.sigmoid_backward",
    samples=(
        *saved_output(0.0625, 0.9375, 0.5),  # the slope of y (1 - y) is 0 at 1/2
        Sample(
            name="saturated",
            primals=lambda draw: (
                draw.signed(8),
                np.array([0.0, 1.0, 0.0, 1.0, 2.0**-20, 1.0 - 2.0**-8, 0.25, 2.0**-60]),
            ),
            hunts="dy lost where the slope is 0: there it is g (1 - 2 y) all the same",
        ),
    ),
)

# ── softcap ──────────────────────────────────────────────────────────────────────────────────


def softcap_forward(xp, x, *, cap=30.0):
    return cap * xp.tanh(x / cap)


def softcap_vjp(xp, ct, x, *, cap=30.0):
    return ct * _tanh_slope(xp, x / cap)


softcap = OpSpec(
    name="softcap",
    signature="()->()",
    forward=softcap_forward,
    vjp=softcap_vjp,
    formula=r"y = c \tanh(x / c)",
    source="Gemma Team 2024, arXiv:2408.00118; gemma.cpp SoftcapVJPT (cap 30)",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7, scale=16.0),),
            hunts="1 - y^2 in place of 1 - (y/cap)^2, a stray factor cap",
        ),
        *SHAPES,
        Sample(
            name="cap-2.5",
            primals=lambda draw: (draw.normal(3, 5, scale=2.0),),
            hunts="cap 30 whatever was asked for",
            attrs={"cap": 2.5},
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (draw.normal(3, 5, scale=256.0),),
            hunts="a slope that stops falling, or turns negative, where y rounds to cap",
        ),
    ),
)

# ── softcap_back ─────────────────────────────────────────────────────────────────────────────


def softcap_back_forward(xp, g, y, *, cap=30.0):
    s = y / cap
    return g * (1 - s * s)


def softcap_back_vjp(xp, ct, g, y, *, cap=30.0):
    s = y / cap
    return ct * (1 - s * s), -2 * ct * g * s / cap


softcap_back = OpSpec(
    name="softcap_back",
    signature="(),()->()",
    forward=softcap_back_forward,
    vjp=softcap_back_vjp,
    formula=r"dx = g\,\bigl(1 - (y/c)^2\bigr), \quad y = c \tanh(x / c)",
    source="gemma.cpp SoftcapVJPT (cap 30, from the saved output)",
    samples=(
        *saved_output(-29.0, 29.0),
        Sample(
            name="cap-2.5",
            primals=lambda draw: (draw.signed(3, 5), draw.uniform(-2.375, 2.375, 3, 5)),
            hunts="cap 30 whatever was asked for",
            attrs={"cap": 2.5},
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (draw.signed(5), np.array([30.0, -30.0, 29.75, 0.0, -15.0])),
            hunts="dy lost where the slope is 0: there it is -2 g y / cap^2 all the same",
        ),
    ),
)

# ── softplus ─────────────────────────────────────────────────────────────────────────────────


def _softplus(xp: Any, z: Any) -> Any:
    return xp.maximum(z, 0) + xp.log1p(xp.exp(-xp.abs(z)))


def softplus_forward(xp, x, *, beta=1.0, threshold=20.0):
    z = beta * x
    return xp.where(z > threshold, x, _softplus(xp, z) / beta)


def softplus_vjp(xp, ct, x, *, beta=1.0, threshold=20.0):
    z = beta * x
    return xp.where(z > threshold, ct, ct * xp.sigmoid(z))


def _slope_at_threshold(beta: float, threshold: float) -> float:
    return float(1 / (1 + np.exp(-threshold)))


def _around(point: float, draw: Any) -> tuple[Any, ...]:
    return (np.concatenate([beside(point), draw.away((0.0, point), 8, scale=2.0)]),)


softplus = OpSpec(
    name="softplus",
    signature="()->()",
    forward=softplus_forward,
    vjp=softplus_vjp,
    formula=r"y = \begin{cases} x & \beta x > t \\ \frac{1}{\beta}\log(1 + e^{\beta x}) & "
    r"\text{else} \end{cases}",
    source="Dugas et al. 2001, NIPS; torch.nn.functional.softplus",
    dialects=(
        Dialect(name="threshold", says="PyTorch, ggml: the identity where beta x > 20"),
        Dialect(
            name="exact",
            says="jax.nn.softplus: logaddexp(x, 0), no threshold",
            attrs={"threshold": np.inf},
        ),
    ),
    kinks=(
        Kink(
            name="beta x = threshold",
            gap=lambda xp, x, *, beta, threshold: xp.abs(x - threshold / beta),
            accept=lambda beta, threshold: (_slope_at_threshold(beta, threshold), 1.0),
            source="y jumps down to x there, by log(1 + exp(-threshold)) / beta; the slopes on "
            "both sides are sigma(threshold) and 1",
            conventions=(
                Convention(
                    name="sigma(threshold)", systems=("PyTorch",), slope=_slope_at_threshold
                ),
            ),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="the slope of exp or of log alone",
        ),
        *SHAPES,
        Sample(
            name="sweep",
            primals=sweep,
            hunts="a slope of the wrong sign, or one-sided, away from 0",
        ),
        Sample(
            name="beta-2.5",
            primals=lambda draw: (draw.normal(3, 5),),
            hunts="beta ignored, or a stray factor beta or 1/beta",
            attrs={"beta": 2.5},
        ),
        Sample(
            name="tails",
            primals=lambda draw: (
                draw.filled([-80.0, -40.0, -20.0, -17.0, 17.0, 19.5, 21.0, 40.0, 96.0, 800.0]),
            ),
            hunts="1 - exp(-y), which cancels on the left; exp(x) overflows on the right",
        ),
        Sample(
            name="threshold-2",
            primals=lambda draw: _around(2.0, draw),
            hunts="the threshold left out of the slope, 20 whatever was asked for",
            attrs={"threshold": 2.0},
            dialects=("threshold",),
            at_kink=True,
        ),
        Sample(
            name="both",
            primals=lambda draw: _around(0.5, draw),
            hunts="the threshold compared with x, not with beta x",
            attrs={"beta": 2.0, "threshold": 1.0},
            dialects=("threshold",),
            at_kink=True,
        ),
    ),
)

# ── mish ─────────────────────────────────────────────────────────────────────────────────────


def mish_forward(xp, x):
    return x * xp.tanh(_softplus(xp, x))


def mish_vjp(xp, ct, x):
    t = xp.tanh(_softplus(xp, x))
    return ct * (t + x * xp.sigmoid(x) * (1 - t * t))


mish = OpSpec(
    name="mish",
    signature="()->()",
    forward=mish_forward,
    vjp=mish_vjp,
    formula=r"y = x \tanh\bigl(\log(1 + e^x)\bigr)",
    source="Misra 2019, arXiv:1908.08681; torch.nn.functional.mish",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="the second term without sigma, or without x; silu's slope",
        ),
        *SHAPES,
        Sample(
            name="sweep",
            primals=sweep,
            hunts="a slope of the wrong sign for x below -1.19",
        ),
        Sample(
            name="zero",
            primals=lambda draw: (draw.filled([-2.0, -0.0, 0.0, 0.5, 3.0]),),
            hunts="tanh(softplus x) recovered as y/x: 0/0",
        ),
        Sample(
            name="tails",
            primals=lambda draw: (
                draw.filled([-80.0, -40.0, -20.0, -10.0, 10.0, 20.0, 40.0, 96.0, 240.0, 800.0]),
            ),
            hunts="exp(3x) or exp(x) overflows: inf/inf",
        ),
    ),
)

# ── hardswish ────────────────────────────────────────────────────────────────────────────────

# Kinks at ±3; the slope of hardswish crosses zero at −1.5.
HARD = (-3.0, -1.5, 0.0, 3.0)
_LOW, _HIGH = -3.0, 3.0


def _distance_from(point: float) -> Any:
    return lambda xp, x: xp.abs(x - point)


HARD_SAMPLES = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.away(HARD, 3, 7, scale=2.0),),
        hunts="the factor 1/6, the product rule",
    ),
    *shapes(HARD),
    Sample(
        name="saturated",
        primals=lambda draw: (np.array([-800.0, -89.0, -8.0, -4.0, 4.0, 8.0, 89.0, 800.0]),),
        hunts="a gradient in the saturated region, which values near 0 never visit",
    ),
    Sample(
        name="sweep",
        primals=lambda draw: (draw.filled(np.linspace(-7.875, 7.875, 22)),),
        hunts="kinks in the wrong place: at 1, 2.5 or 6",
    ),
    Sample(
        name="kink",
        primals=lambda draw: (np.concatenate([[-3.0, 3.0], draw.away(HARD, 5), [3.0, -3.0]]),),
        hunts="a slope outside the one-sided ones, both branches added up on a bound",
        at_kink=True,
    ),
    Sample(
        name="beside",
        # Two ulp: one ulp below 3, x + 3 may round to 6 in float32.
        primals=lambda draw: (np.array([*beside(-3.0, 2), 0.5, *beside(3.0, 2)]),),
        hunts="a tolerance around a bound: two ulps inside are inside, two outside are outside",
        at_kink=True,
    ),
)


def hardswish_forward(xp, x):
    return x * xp.minimum(xp.maximum(x + 3, 0), 6) / 6


def hardswish_vjp(xp, ct, x):
    middle = ct * (x / 3 + 0.5)
    return xp.where(x <= -3, 0.0, xp.where(x >= 3, ct, middle))


hardswish = OpSpec(
    name="hardswish",
    signature="()->()",
    forward=hardswish_forward,
    vjp=hardswish_vjp,
    formula=r"y = \frac{x}{6} \min(\max(x + 3, 0), 6)",
    source="Howard et al. 2019, arXiv:1905.02244; torch.nn.functional.hardswish",
    kinks=(
        Kink(
            name="x = -3",
            gap=_distance_from(_LOW),
            accept=(-0.5, 0.0),
            source="the one-sided slopes are 0 and -1/2",
            conventions=(
                Convention(name="0", systems=("PyTorch", "JAX"), slope=0.0),
                Convention(name="-1/4", systems=("JAX (minimum of maximum)",), slope=-0.25),
            ),
        ),
        Kink(
            name="x = 3",
            gap=_distance_from(_HIGH),
            accept=(1.0, 1.5),
            source="the one-sided slopes are 3/2 and 1",
            conventions=(
                Convention(name="1", systems=("PyTorch", "JAX"), slope=1.0),
                Convention(name="5/4", systems=("JAX (minimum of maximum)",), slope=1.25),
            ),
        ),
    ),
    samples=HARD_SAMPLES,
)

# ── hardsigmoid ──────────────────────────────────────────────────────────────────────────────


def hardsigmoid_forward(xp, x):
    return xp.minimum(xp.maximum(x + 3, 0), 6) / 6


def hardsigmoid_vjp(xp, ct, x):
    return xp.where((x > -3) & (x < 3), ct / 6, 0.0)


AT_END = (
    Convention(name="0", systems=("PyTorch", "JAX"), slope=0.0),
    Convention(name="1/12", systems=("JAX (minimum of maximum)",), slope=1 / 12),
)

hardsigmoid = OpSpec(
    name="hardsigmoid",
    signature="()->()",
    forward=hardsigmoid_forward,
    vjp=hardsigmoid_vjp,
    formula=r"y = \frac{1}{6} \min(\max(x + 3, 0), 6)",
    source="Howard et al. 2019, arXiv:1905.02244; torch.nn.functional.hardsigmoid",
    kinks=(
        Kink(
            name="x = -3",
            gap=_distance_from(_LOW),
            accept=(0.0, 1 / 6),
            source="the one-sided slopes are 0 and 1/6",
            conventions=AT_END,
        ),
        Kink(
            name="x = 3",
            gap=_distance_from(_HIGH),
            accept=(0.0, 1 / 6),
            source="the one-sided slopes are 1/6 and 0",
            conventions=AT_END,
        ),
    ),
    samples=HARD_SAMPLES,
)

# ── relu_squared ─────────────────────────────────────────────────────────────────────────────


def relu_squared_forward(xp, x):
    y = xp.where(x > 0, x, 0.0)
    return y * y


def relu_squared_vjp(xp, ct, x):
    return 2 * ct * xp.where(x > 0, x, 0.0)


relu_squared = OpSpec(
    name="relu_squared",
    signature="()->()",
    forward=relu_squared_forward,
    vjp=relu_squared_vjp,
    formula=r"y = \max(x, 0)^2",
    source="So et al. 2021, arXiv:2109.08668 (Primer)",
    kinks=(
        Kink(
            name="x = 0",
            gap=_distance_from_zero,
            accept=(0.0, 0.0),
            source="the slope is continuous, and 0 at 0; only the second derivative jumps",
            conventions=(Convention(name="0", systems=("PyTorch", "JAX"), slope=0.0),),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="the factor 2, or the inner relu left out",
        ),
        *SHAPES,
        Sample(
            name="wide",
            primals=lambda draw: (draw.away(0.0, 3, 5, scale=1024.0),),
            hunts="an upper bound, a slope that saturates",
        ),
        Sample(
            name="kink",
            primals=lambda draw: (np.array([0.0, -0.0, 0.5, -0.5, 1.5]),),
            hunts="relu's slope at 0, where this one is flat",
            at_kink=True,
        ),
    ),
)

# ── dropout ──────────────────────────────────────────────────────────────────────────────────


def _kept(p: float, inverted: bool) -> float:
    """The factor of a kept element; for p = 1 none is kept."""
    if not inverted:
        return 1.0
    return 0.0 if p == 1 else 1 / (1 - p)


def dropout_forward(xp, x, mask, *, p=0.5, inverted=True):
    return xp.where(mask != 0, x * _kept(p, inverted), 0.0)


def dropout_vjp(xp, ct, x, mask, *, p=0.5, inverted=True):
    return xp.where(mask != 0, ct * _kept(p, inverted), 0.0), None


dropout = OpSpec(
    name="dropout",
    signature="(),()->()",
    forward=dropout_forward,
    vjp=dropout_vjp,
    formula=r"y = \frac{m\,x}{1 - p}, \quad m \in \{0, 1\} \text{ drawn once and stored}",
    source="Srivastava et al. 2014, JMLR 15; torch.nn.functional.dropout",
    dialects=(
        Dialect(name="inverted", says="PyTorch, JAX, Flax: kept elements over 1 - p"),
        Dialect(
            name="plain",
            says="Srivastava et al.: kept elements as they are",
            attrs={"inverted": False},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7), draw.integers(0, 2, 3, 7)),
            hunts="the mask ignored, inverted, or drawn again",
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.integers(0, 2, 2, 3, 5)),
            hunts="one mask for all matrices of a batch",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(5, 5), draw.integers(0, 2, 5, 5)),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1), np.array([1])),
            hunts="a vector loop that forgets its remainder",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros((0, 5), dtype=np.int64)),
            hunts="a loop that assumes one element, or a buffer of another shape returned",
        ),
        Sample(
            name="p-0.25",
            primals=lambda draw: (draw.normal(3, 5), draw.integers(0, 2, 3, 5)),
            hunts="1/p in place of 1/(1 - p), which agree at 1/2; p at its default",
            attrs={"p": 0.25},
        ),
        Sample(
            name="p-0",
            primals=lambda draw: (draw.normal(3, 5), np.ones((3, 5), dtype=np.int64)),
            hunts="a factor of p where nothing is dropped",
            attrs={"p": 0.0},
        ),
        Sample(
            name="p-1",
            primals=lambda draw: (draw.normal(3, 5), np.zeros((3, 5), dtype=np.int64)),
            hunts="1/(1 - p) of p = 1: 0 * inf where 0 is right",
            attrs={"p": 1.0},
        ),
        Sample(
            name="zeros",
            primals=lambda draw: (
                np.array([0.0, 1.5, 0.0, -0.0, -0.5, 0.0]),
                np.array([1, 1, 0, 1, 0, 1]),
            ),
            hunts="the mask recovered from y != 0, which loses kept zeros; or as y/x",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(263), draw.integers(0, 2, 263)),
            dialects=("inverted",),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind "
            "128 that is left out",
        ),
    ),
)
