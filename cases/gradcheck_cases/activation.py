"""Activations. Axes: t rows, d features.

Slopes stand as the known systems write them: the engine reads off this text what rounding may
cost, so what 1 − y² loses in a tail, a right implementation may lose there too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Kink, OpSpec, Sample

# Points that ordinary samples keep away from: the kinks at −1, 0 and 1, and the places (about
# −0.75 and −1.28) where the slope of gelu and of silu crosses zero, so that what is left of two
# equal terms is mostly rounding in any implementation.
AVOIDED = (-1.25, -1.0, -0.75, 0.0, 1.0)

# Here the shape is at fault, not the number; every operator of one primal meets these.
SHAPES = (
    Sample(
        name="cube",
        primals=lambda draw: (draw.away(AVOIDED, 2, 3, 5),),
        hunts="elements counted over the last two axes only",
    ),
    Sample(
        name="single",
        primals=lambda draw: (draw.away(AVOIDED, 1),),
        hunts="a vector loop that forgets its remainder",
    ),
)


def sweep(draw: Any) -> tuple[Any, ...]:
    """Both tails and the middle, on a grid."""
    return (np.linspace(-8.0, 8.0, 33),)


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
    ),
)

# ── leaky_relu ───────────────────────────────────────────────────────────────────────────────


def leaky_relu_forward(xp, x, *, negative_slope=0.01):
    return xp.where(x > 0, x, negative_slope * x)


def leaky_relu_vjp(xp, ct, x, *, negative_slope=0.01):
    return xp.where(x > 0, ct, negative_slope * ct)


def _around_zero(draw: Any) -> tuple[Any, ...]:
    return (np.concatenate([draw.away(AVOIDED, 4), [0.0], draw.away(AVOIDED, 4)]),)


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
    below = xp.minimum(x, 0)  # exp must not overflow on the side that is not taken
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
            hunts="exp(x) taken on the side that is not used: 0 * inf",
        ),
        Sample(
            name="kink",
            primals=_around_zero,
            hunts="a slope other than 1 at 0, where both sides agree on 1",
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


BOUND = "[0, 1] lies between the one-sided slopes; ggml PR 921 and PyTorch take 1"

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
        ),
        Kink(
            name="x = max",
            gap=lambda xp, x, *, min, max: xp.abs(x - max),
            accept=(0.0, 1.0),
            source=BOUND,
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
            hunts="a slope of the wrong sign in the tail, where it is tiny",
        ),
        Sample(
            name="overflow",
            primals=lambda draw: (np.array([-800.0, -89.0, 0.0, 89.0, 800.0]),),
            hunts="exp(-x) overflows: inf/inf^2",
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

OPERATORS = (relu, leaky_relu, elu, clamp, tanh, sigmoid, softcap)
