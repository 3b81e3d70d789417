"""Element-wise operators: residual sum, activations, gated units. Axes: t rows, d features.

Slopes stand as the known systems write them: the engine reads off this text what rounding may
cost, so what 1 − y² and 1 + tanh(a) lose in a tail, a right implementation may lose there too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Dialect, Kink, OpSpec, Sample

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


def _sweep(draw: Any) -> tuple[Any, ...]:
    return (np.linspace(-8.0, 8.0, 33),)


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
        Dialect(name="broadcast", says="ggml, NumPy: an operand is repeated along an axis"),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 5)),
            hunts="a cotangent that reaches one operand only, or half of it each",
            dialects=("residual",),
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(2, 3, 5)),
            hunts="elements counted over the last two axes only",
            dialects=("residual",),
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1), draw.normal(1)),
            hunts="a vector loop that forgets its remainder",
            dialects=("residual",),
        ),
        Sample(
            name="unequal-size",
            primals=lambda draw: (draw.normal(3, 5, scale=1024.0), draw.normal(3, 5)),
            hunts="a cotangent that is scaled by the operand",
            dialects=("residual",),
        ),
        Sample(
            name="row",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(5)),
            hunts="dy left unsummed, averaged, or taken from one row",
            dialects=("broadcast",),
        ),
        Sample(
            name="row-square",
            primals=lambda draw: (draw.normal(4, 4), draw.normal(4)),
            hunts="dy summed over the wrong axis, which only a square forgives",
            dialects=("broadcast",),
        ),
        Sample(
            name="row-batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(5)),
            hunts="dy summed over one batch axis instead of all",
            dialects=("broadcast",),
        ),
        Sample(
            name="column",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 1)),
            hunts="only leading axes are summed, a stretched last one is not",
            dialects=("broadcast",),
        ),
        Sample(
            name="both-stretched",
            primals=lambda draw: (draw.normal(1, 5), draw.normal(3, 1)),
            hunts="dx taken to have the output's shape",
            dialects=("broadcast",),
        ),
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
            primals=_sweep,
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
            primals=_sweep,
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

# ── gelu ─────────────────────────────────────────────────────────────────────────────────────

ROOT = "0.797884560804236"  # gemma.cpp writes √(2/π) so: 1.4e-12 too large


def _share(xp: Any, x: Any, form: str, root: str) -> tuple[Any, Any]:
    """The share of x that passes, from 0 far left to 1 far right, and its slope."""
    if form == "erf":
        density = xp.exp(-x * x / 2) / xp.sqrt_of(2 * xp.pi)
        return (1 + xp.erf(x / xp.sqrt_of(2))) / 2, density
    if form == "quick":
        k = xp.const("1.702")
        p = xp.sigmoid(k * x)
        return p, k * p * (1 - p)
    k = xp.const(root) if root else xp.sqrt_of(2 / xp.pi)
    cube = xp.const("0.044715")
    y = xp.tanh(k * (x + cube * x * x * x))
    return (1 + y) / 2, k * (1 + 3 * cube * x * x) * (1 - y * y) / 2


def _gelu(xp: Any, x: Any, form: str, root: str) -> Any:
    p, _ = _share(xp, x, form, root)
    return x * p


def _gelu_slope(xp: Any, x: Any, form: str, root: str) -> Any:
    p, dp = _share(xp, x, form, root)
    return p + x * dp


def gelu_forward(xp, x, *, form="tanh", root=""):
    return _gelu(xp, x, form, root)


def gelu_vjp(xp, ct, x, *, form="tanh", root=""):
    return ct * _gelu_slope(xp, x, form, root)


gelu = OpSpec(
    name="gelu",
    signature="()->()",
    forward=gelu_forward,
    vjp=gelu_vjp,
    formula=r"y = x\,\Phi(x) \approx \frac{x}{2}\bigl(1 + \tanh\sqrt{2/\pi}\,"
    r"(x + 0.044715\,x^3)\bigr) \approx x\,\sigma(1.702\,x)",
    source="Hendrycks & Gimpel 2016, arXiv:1606.08415",
    dialects=(
        Dialect(name="tanh", says='GPT-2, ggml, PyTorch approximate="tanh": the tanh form'),
        Dialect(
            name="gemma",
            says="gemma.cpp: the tanh form, its root of 2/pi off by 1.4e-12",
            attrs={"root": ROOT},
        ),
        Dialect(name="erf", says="PyTorch's default, BERT: the exact form", attrs={"form": "erf"}),
        Dialect(
            name="quick",
            says="CLIP, ggml's gelu_quick: x sigma(1.702 x)",
            attrs={"form": "quick"},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="another form's slope, a missing factor 3 in the cubic term",
        ),
        *SHAPES,
        Sample(
            name="sweep",
            primals=_sweep,
            hunts="the term x p'(x) left out, which is small near 0",
        ),
        Sample(
            name="tails",
            primals=lambda draw: (
                np.array([-20.0, -16.0, -12.5, -10.0, -6.0, -5.0, 5.0, 6.0, 10.0, 12.5, 20.0]),
            ),
            hunts="1/cosh^2 or exp of the cube overflows: 0 * inf",
        ),
        Sample(
            name="far-tail",
            primals=lambda draw: (np.array([-64.0, -60.0, -56.0, -48.0, -44.0, 48.0, 60.0]),),
            hunts="1/(1 + exp(-1.702 x)) overflows below -52 in float32",
            dialects=("quick",),
        ),
    ),
)

# ── silu ─────────────────────────────────────────────────────────────────────────────────────


def _silu_slope(xp: Any, x: Any) -> Any:
    p = xp.sigmoid(x)
    return p * (1 + x * (1 - p))


def silu_forward(xp, x):
    return x * xp.sigmoid(x)


def silu_vjp(xp, ct, x):
    return ct * _silu_slope(xp, x)


silu = OpSpec(
    name="silu",
    signature="()->()",
    forward=silu_forward,
    vjp=silu_vjp,
    formula=r"y = x\,\sigma(x)",
    source="Elfwing, Uchibe & Doya 2017, arXiv:1702.03118",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.away(AVOIDED, 3, 7),),
            hunts="the term x s (1 - s) left out, or without its x",
        ),
        *SHAPES,
        Sample(
            name="sweep",
            primals=_sweep,
            hunts="a slope of the wrong sign for x below -1.28",
        ),
        Sample(
            name="zero",
            primals=lambda draw: (np.array([-2.0, -0.0, 0.0, 0.5, 3.0]),),
            hunts="sigma recovered as y/x: 0/0",
        ),
        Sample(
            name="tails",
            primals=lambda draw: (np.array([-100.0, -96.0, -40.0, -20.0, 20.0, 40.0, 100.0]),),
            hunts="exp(-x) overflows: inf * 0",
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

# ── geglu ────────────────────────────────────────────────────────────────────────────────────

GATED_GELU = (
    Dialect(name="gemma", says="gemma.cpp: gemma's tanh gelu", attrs={"root": ROOT}),
    Dialect(name="tanh", says="T5 1.1, Transformers' Gemma: the tanh form"),
    Dialect(name="erf", says="Shazeer's GEGLU: the exact form", attrs={"form": "erf"}),
)


def geglu_forward(xp, gate, up, *, form="tanh", root=""):
    return _gelu(xp, gate, form, root) * up


def geglu_vjp(xp, ct, gate, up, *, form="tanh", root=""):
    return ct * up * _gelu_slope(xp, gate, form, root), ct * _gelu(xp, gate, form, root)


# Samples of a unit with the primals gate and up …
GATED = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.away(AVOIDED, 3, 7), draw.signed(3, 7)),
        hunts="gate and up exchanged, the factor up left out of dgate",
    ),
    Sample(
        name="cube",
        primals=lambda draw: (draw.away(AVOIDED, 2, 3, 4), draw.signed(2, 3, 4)),
        hunts="elements counted over the last two axes only",
    ),
    Sample(
        name="single",
        primals=lambda draw: (draw.away(AVOIDED, 1), draw.signed(1)),
        hunts="a vector loop that forgets its remainder",
    ),
    Sample(
        name="zeros",
        primals=lambda draw: (
            np.array([0.0, 0.0, 0.5, -2.0, 2.0]),
            np.array([1.5, 0.0, 0.0, 0.0, -1.0]),
        ),
        hunts="a factor recovered by dividing the output: 0/0",
    ),
    Sample(
        name="tails",
        primals=lambda draw: (np.array([-20.0, -12.0, -6.0, 6.0, 12.0, 20.0]), draw.signed(6)),
        hunts="the gate's slope overflows, or keeps a constant in the tail",
    ),
)

# … and of one whose only primal is [gate | up].
PACKED = (
    Sample(
        name="typical",
        primals=lambda draw: (draw.away(AVOIDED, 3, 14),),
        hunts="halves exchanged or taken for interleaved pairs, half of the gradient missing",
    ),
    Sample(
        name="batched",
        primals=lambda draw: (draw.away(AVOIDED, 2, 3, 10),),
        hunts="the row stride of the output (n) used for the input (2n)",
    ),
    Sample(
        name="square",
        primals=lambda draw: (draw.away(AVOIDED, 4, 4),),
        hunts="rows halved instead of columns",
    ),
    Sample(
        name="one-unit",
        primals=lambda draw: (draw.away(AVOIDED, 3, 2),),
        hunts="a vector loop that forgets its remainder",
    ),
    Sample(
        name="tails",
        primals=lambda draw: (
            np.array([[-20.0, -12.0, -6.0, 1.5, -0.5, 2.0], [6.0, 12.0, 20.0, 0.5, 3.0, -1.5]]),
        ),
        hunts="the gate's slope overflows, or keeps a constant in the tail",
    ),
)

geglu = OpSpec(
    name="geglu",
    signature="(),()->()",
    forward=geglu_forward,
    vjp=geglu_vjp,
    formula=r"y = \mathrm{gelu}(g) \cdot u",
    source="Shazeer 2020, arXiv:2002.05202",
    dialects=GATED_GELU,
    samples=GATED,
)


def _halves(x: Any) -> tuple[Any, Any]:
    n = x.shape[-1] // 2
    return x[..., :n], x[..., n:]


def packed_geglu_forward(xp, x, *, form="tanh", root=""):
    return geglu_forward(xp, *_halves(x), form=form, root=root)


def packed_geglu_vjp(xp, ct, x, *, form="tanh", root=""):
    return xp.concatenate(geglu_vjp(xp, ct, *_halves(x), form=form, root=root), axis=-1)


packed_geglu = OpSpec(
    name="packed_geglu",
    signature="(2n)->(n)",
    forward=packed_geglu_forward,
    vjp=packed_geglu_vjp,
    formula=r"y = \mathrm{gelu}(g) \cdot u, \quad [g \mid u] = x",
    source="gemma.cpp GatedGeluVJP",
    dialects=GATED_GELU,
    samples=PACKED,
)

# ── swiglu ───────────────────────────────────────────────────────────────────────────────────


def swiglu_forward(xp, gate, up):
    return silu_forward(xp, gate) * up


def swiglu_vjp(xp, ct, gate, up):
    return ct * up * _silu_slope(xp, gate), ct * silu_forward(xp, gate)


swiglu = OpSpec(
    name="swiglu",
    signature="(),()->()",
    forward=swiglu_forward,
    vjp=swiglu_vjp,
    formula=r"y = g\,\sigma(g) \cdot u",
    source="Shazeer 2020, arXiv:2002.05202; Llama's feed-forward gate, silu(h1) * h3",
    samples=GATED,
)


def packed_swiglu_forward(xp, x):
    return swiglu_forward(xp, *_halves(x))


def packed_swiglu_vjp(xp, ct, x):
    return xp.concatenate(swiglu_vjp(xp, ct, *_halves(x)), axis=-1)


packed_swiglu = OpSpec(
    name="packed_swiglu",
    signature="(2n)->(n)",
    forward=packed_swiglu_forward,
    vjp=packed_swiglu_vjp,
    formula=r"y = g\,\sigma(g) \cdot u, \quad [g \mid u] = x",
    source="Shazeer 2020, arXiv:2002.05202; fused gate and up projections (Llama servers)",
    samples=PACKED,
)
