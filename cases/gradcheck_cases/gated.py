"""Smooth gates and gated units: gelu, silu, GeGLU, SwiGLU. Axes: t rows, d features.

As in `activation`, slopes are written as the known systems write them: the digits that
1 + tanh(a) loses in a tail, a right implementation may lose there too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample
from gradcheck_cases.activation import AVOIDED, SHAPES, shaped, sweep

# ── gelu ─────────────────────────────────────────────────────────────────────────────────────

ROOT = "0.797884560804236"  # √(2/π) as gemma.cpp has it: 1.4e-12 too large


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
            primals=sweep,
            hunts="the term x p'(x) left out, which is small near 0",
        ),
        Sample(
            name="tails",
            primals=lambda draw: (
                draw.filled([-20.0, -16.0, -12.5, -10.0, -6.0, -5.0, 5.0, 6.0, 10.0, 12.5, 20.0]),
            ),
            hunts="1/cosh^2 or exp of the cube overflows: 0 * inf",
        ),
        Sample(
            name="far-tail",
            primals=lambda draw: (draw.filled([-64.0, -60.0, -56.0, -48.0, -44.0, 48.0, 60.0]),),
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
            primals=sweep,
            hunts="a slope of the wrong sign for x below -1.28",
        ),
        Sample(
            name="zero",
            primals=lambda draw: (draw.filled([-2.0, -0.0, 0.0, 0.5, 3.0]),),
            hunts="sigma recovered as y/x: 0/0",
        ),
        Sample(
            name="tails",
            primals=lambda draw: (draw.filled([-100.0, -96.0, -40.0, -20.0, 20.0, 40.0, 100.0]),),
            hunts="exp(-x) overflows: inf * 0",
        ),
    ),
)

# ── silu_back ────────────────────────────────────────────────────────────────────────────────

# The slope of silu crosses zero at −1.28, its second derivative at ±2.40.
TURNS = (-2.375, -1.25, 0.0, 2.375)


def silu_back_forward(xp, g, x):
    return g * _silu_slope(xp, x)


def silu_back_vjp(xp, ct, g, x):
    p = xp.sigmoid(x)
    return ct * _silu_slope(xp, x), ct * g * p * (1 - p) * (2 + x * (1 - 2 * p))


silu_back = OpSpec(
    name="silu_back",
    signature="(),()->()",
    forward=silu_back_forward,
    vjp=silu_back_vjp,
    formula=r"dx = g\,\sigma(x)\,\bigl(1 + x\,(1 - \sigma(x))\bigr)",
    source="ggml_silu_back; its VJP is the double backward of silu",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.signed(3, 7), draw.away(TURNS, 3, 7)),
            hunts="2 taken for 1 in the second derivative, g left out of it",
        ),
        *shaped(lambda draw, *shape: (draw.signed(*shape), draw.away(TURNS, *shape))),
        Sample(
            name="sweep",
            primals=lambda draw: (draw.signed(33), *sweep(draw)),
            hunts="a second derivative that keeps its sign beyond 2.4",
        ),
        Sample(
            name="zeros",
            primals=lambda draw: (
                draw.filled([0.0, 1.5, 0.0, -0.5, 1.0]),
                draw.filled([0.0, 0.0, 0.5, -0.0, -2.0]),
            ),
            hunts="the slope recovered as dx/g, sigma as y/x: 0/0",
        ),
        Sample(
            name="tails",
            primals=lambda draw: (
                draw.signed(8),
                draw.filled([-100.0, -96.0, -40.0, -20.0, 20.0, 40.0, 100.0, 0.5]),
            ),
            hunts="exp(-x) overflows: inf * 0",
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


# Samples of units with the primals gate and up.
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
        name="square",
        primals=lambda draw: (draw.away(AVOIDED, 5, 5), draw.signed(5, 5)),
        hunts="rows taken for columns, which only a square forgives",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((0, 5)), np.zeros((0, 5))),
        hunts="a loop that assumes one element, or a buffer of another shape returned",
    ),
    Sample(
        name="zeros",
        primals=lambda draw: (
            draw.filled([0.0, 0.0, 0.5, -2.0, 2.0]),
            draw.filled([1.5, 0.0, 0.0, 0.0, -1.0]),
        ),
        hunts="a factor recovered by dividing the output: 0/0",
    ),
    Sample(
        name="tails",
        primals=lambda draw: (
            draw.filled([-20.0, -12.0, -6.0, 6.0, 12.0, 20.0]),
            draw.signed(6),
        ),
        hunts="the gate's slope overflows, or keeps a constant in the tail",
    ),
    Sample(
        name="tiles",
        primals=lambda draw: (draw.away(AVOIDED, 263), draw.signed(263)),
        hunts="a grid of one block of 256 threads, an index of one byte, a tail behind 128",
    ),
)

# Samples of units whose only primal is [gate | up].
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
        name="empty",
        primals=lambda draw: (np.zeros((0, 6)),),
        hunts="a loop that assumes one row, or a buffer of another shape returned",
    ),
    Sample(
        name="tails",
        primals=lambda draw: (
            draw.filled([[-20.0, -12.0, -6.0, 1.5, -0.5, 2.0], [6.0, 12.0, 20.0, 0.5, 3.0, -1.5]]),
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
