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
    ),
)
