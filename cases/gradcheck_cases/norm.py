"""Normalisations: rms_norm, layer_norm. Axes: t rows, d features."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample

# ── rms_norm ─────────────────────────────────────────────────────────────────────────────────


def rms_norm_forward(xp, x, w=None, *, eps=1e-5, unit_offset=False):
    r = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    return x * r if w is None else x * r * _gain(w, unit_offset)


def rms_norm_vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
    r = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    n = x * r
    g = ct if w is None else ct * _gain(w, unit_offset)  # cotangent of n
    dx = r * (g - n * xp.mean(g * n, axis=-1, keepdims=True))
    return dx if w is None else (dx, xp.reduce_to(ct * n, w))


def _gain(w: Any, unit_offset: bool) -> Any:
    return 1 + w if unit_offset else w


def _row_scales(draw: Any) -> tuple[Any, ...]:
    rows = np.exp2([[-20.0], [-10.0], [0.0], [10.0]])
    return draw.normal(4, 5) * rows, draw.normal(5)


def _zero_row(draw: Any) -> tuple[Any, ...]:
    return np.concatenate([draw.normal(1, 5), np.zeros((1, 5)), draw.normal(1, 5)]), draw.normal(5)


def _one_huge(draw: Any) -> tuple[Any, ...]:
    x = draw.normal(3, 5)
    x[1, 2] = 64.0
    return x, draw.normal(5)


rms_norm = OpSpec(
    name="rms_norm",
    signature="(d),(d)->(d)",
    forward=rms_norm_forward,
    vjp=rms_norm_vjp,
    formula=r"y = \frac{x}{\sqrt{\frac{1}{d}\sum_i x_i^2 + \epsilon}}\,w",
    source="Zhang & Sennrich 2019, arXiv:1910.07467",
    dialects=(
        Dialect(name="weight", says="Llama and its trainers: times w, eps 1e-5"),
        Dialect(
            name="unit-offset",
            says="Gemma: times 1 + w, eps 1e-6",
            attrs={"eps": 1e-6, "unit_offset": True},
        ),
        Dialect(
            name="plain", says="ggml: no weight, eps 1e-6", attrs={"eps": 1e-6}, without=("w",)
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7), draw.normal(7)),
            hunts="a missing factor 1/rms, a missing projection term, dw averaged over rows",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(5)),
            hunts="dw summed over one batch axis instead of all",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(5, 5), draw.normal(5)),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="single-row",
            primals=lambda draw: (draw.normal(1, 7), draw.normal(7)),
            hunts="dw of one row lost to a reduction that expects several",
        ),
        Sample(
            name="row-length-1",  # small, because dx is nearly 0 where eps does not matter
            primals=lambda draw: (draw.away(0.0, 3, 1) * 2.0**-9, draw.signed(1)),
            hunts="eps left out of the projection: dx = 0 without it",
        ),
        Sample(
            name="width-64",
            primals=lambda draw: (draw.normal(2, 64), draw.normal(64)),
            hunts="1/d taken for 1/sqrt(d), a sum in several accumulators that drops one",
        ),
        Sample(
            name="tiny",
            primals=lambda draw: (draw.normal(3, 5, scale=2.0**-13), draw.normal(5)),
            hunts="eps left out of, or outside, the root",
        ),
        Sample(
            name="row-scales",
            primals=_row_scales,
            hunts="one rms for all rows, an exponent of 1/rms that is off by one",
        ),
        Sample(
            name="eps-0.1",
            primals=lambda draw: (draw.normal(3, 5, scale=0.25), draw.normal(5)),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="zero-gain",
            primals=lambda draw: (draw.normal(3, 5), np.array([0.0, -1.0, 0.5, 0.0, -1.0])),
            hunts="n recovered as y/w: 0/0 (w = -1 is the zero of 1 + w)",
        ),
        Sample(
            name="one-huge",
            primals=_one_huge,
            hunts="the projection dropped where one element makes up the norm",
        ),
        Sample(
            name="zero-row",
            primals=_zero_row,
            hunts="division by a norm of 0; dx = g/sqrt(eps) there",
        ),
        Sample(
            name="offset",
            primals=lambda draw: (100.0 + draw.normal(3, 5), draw.normal(5)),
            hunts="x centred as in layer_norm",
        ),
        Sample(
            name="unsolved",  # the log prints x as 0.000153; 10 / 2^16 gives all its digits
            primals=lambda draw: (np.array([[10 / 2**16]]), draw.normal(1)),
            hunts="a checker whose step of 1e-4 is as large as x: its truncation error, "
            "h^2/(2 C eps) = 0.5% for rows of length C = 1, blames a right gradient",
            dialects=("plain",),
        ),
    ),
)

# ── layer_norm ───────────────────────────────────────────────────────────────────────────────


def layer_norm_forward(xp, x, w=None, b=None, *, eps=1e-5):
    n, _ = _normalise(xp, x, eps)
    return n if w is None else n * w + b


def layer_norm_vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
    n, r = _normalise(xp, x, eps)
    g = ct if w is None else ct * w  # cotangent of n
    g0 = xp.mean(g, axis=-1, keepdims=True)  # what centring removes
    g1 = xp.mean(g * n, axis=-1, keepdims=True)  # what scaling removes
    dx = r * (g - g0 - n * g1)
    return dx if w is None else (dx, xp.reduce_to(ct * n, w), xp.reduce_to(ct, b))


def _normalise(xp: Any, x: Any, eps: float) -> tuple[Any, Any]:
    """Centred and scaled rows, and the scale 1/sqrt(variance + eps)."""
    c = x - xp.mean(x, axis=-1, keepdims=True)
    r = 1 / xp.sqrt(xp.mean(c * c, axis=-1, keepdims=True) + eps)
    return c * r, r


def _constant_row(draw: Any) -> tuple[Any, ...]:
    rows = [draw.normal(1, 5), np.full((1, 5), 0.75), draw.normal(1, 5)]
    return np.concatenate(rows), draw.normal(5), draw.normal(5)


layer_norm = OpSpec(
    name="layer_norm",
    signature="(d),(d),(d)->(d)",
    forward=layer_norm_forward,
    vjp=layer_norm_vjp,
    formula=r"y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}\,w + b",
    source="Ba, Kiros & Hinton 2016, arXiv:1607.06450",
    dialects=(
        Dialect(name="affine", says="GPT-2: times w plus b, eps 1e-5"),
        Dialect(name="plain", says="ggml_norm: no weight, no bias", without=("w", "b")),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7), draw.normal(7), draw.normal(7)),
            hunts="a missing mean or projection term, dw and db exchanged or averaged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(5), draw.normal(5)),
            hunts="dw and db summed over one batch axis instead of all",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(5, 5), draw.normal(5), draw.normal(5)),
            hunts="rows taken for columns, which only a square forgives",
        ),
        Sample(
            name="row-length-1",
            primals=lambda draw: (draw.normal(3, 1), draw.signed(1), draw.normal(1)),
            hunts="a variance over d - 1 = 0 elements; dx is exactly 0",
            dialects=("plain",),  # after a product with w, right code may leave a rounding error
        ),
        Sample(
            name="row-length-2",
            primals=lambda draw: (
                draw.normal(3, 2, scale=2.0**-8),
                draw.normal(2),
                draw.normal(2),
            ),
            hunts="d - 1 in place of d, which is worst here; eps left out: dx = 0 without it",
        ),
        Sample(
            name="width-64",
            primals=lambda draw: (draw.normal(2, 64), draw.normal(64), draw.normal(64)),
            hunts="1/d taken for 1/sqrt(d), a sum in several accumulators that drops one",
        ),
        Sample(
            name="offset-100",
            primals=lambda draw: (100.0 + draw.normal(3, 7), draw.normal(7), draw.normal(7)),
            hunts="mean of squares minus square of the mean, which cancels",
        ),
        Sample(
            name="offset-1000",
            primals=lambda draw: (1000.0 + draw.normal(3, 7), draw.normal(7), draw.normal(7)),
            hunts="the same, where float32 keeps no digit of the difference",
        ),
        Sample(
            name="near-constant",
            primals=lambda draw: (
                1.0 + draw.normal(3, 5, scale=2.0**-10),
                draw.normal(5),
                draw.normal(5),
            ),
            hunts="eps left out of the root: the variance is a tenth of it",
        ),
        Sample(
            name="constant-row",
            primals=_constant_row,
            hunts="division by a variance of 0; dx = (g - mean g)/sqrt(eps) there",
        ),
        Sample(
            name="eps-0.1",
            primals=lambda draw: (
                draw.normal(3, 5, scale=0.25),
                draw.normal(5),
                draw.normal(5),
            ),
            hunts="eps at its default in the backward, whatever forward was given",
            attrs={"eps": 0.1},
        ),
        Sample(
            name="zero-weight",
            primals=lambda draw: (
                draw.normal(3, 5),
                np.array([0.0, 1.0, -0.5, 0.0, 2.0]),
                draw.normal(5),
            ),
            hunts="n recovered as (y - b)/w: 0/0",
        ),
    ),
)

OPERATORS = (rms_norm, layer_norm)
