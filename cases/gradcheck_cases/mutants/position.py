"""Mutants of the operators in `gradcheck_cases.position`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradcheck.numerics.draw import Draw
from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec import OpSpec
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.position import (
    alibi,
    diag_mask_inf,
    diag_mask_zero,
    rope,
    rope_back,
)

# ── rope and rope_back ───────────────────────────────────────────────────────────────────────


def _turned(vjp: Vjp, xp: Any, ct: Any, attrs: dict[str, Any]) -> tuple[Any, ...]:
    """A copy of ct, each pair's first and second feature, and its cosine and sine as `vjp` turns.

    The features come as index arrays, the cosines and sines as [t, 1, pairs].
    """
    i = np.arange((attrs["n_dims"] or ct.shape[-1]) // 2)
    a, b = (i, i + len(i)) if attrs["half_split"] else (2 * i, 2 * i + 1)
    unit = np.zeros_like(ct)
    unit[..., a] = 1
    table = vjp(xp, unit, unit, **attrs)
    return ct.copy(), a, b, table[..., a], table[..., b]


def _rope_again(vjp: Vjp, again: Vjp) -> Vjp:
    @functools.wraps(vjp)
    def body(xp, ct, x, **attrs):
        return again(xp, ct, x, **attrs)

    return body


def _rope_in_place(vjp: Vjp) -> Vjp:
    @functools.wraps(vjp)
    def body(xp, ct, x, **attrs):
        g, a, b, cos, sin = _turned(vjp, xp, ct, attrs)
        g[..., a] = g[..., a] * cos - g[..., b] * sin
        g[..., b] = g[..., a] * sin + g[..., b] * cos
        return g

    return body


def _rope_one_frequency(vjp: Vjp) -> Vjp:
    @functools.wraps(vjp)
    def body(xp, ct, x, **attrs):
        g, a, b, cos, sin = _turned(vjp, xp, ct, attrs)
        cos, sin = cos[..., :1], sin[..., :1]
        g[..., a], g[..., b] = (
            ct[..., a] * cos - ct[..., b] * sin,
            ct[..., a] * sin + ct[..., b] * cos,
        )
        return g

    return body


def _rope_by_head(vjp: Vjp) -> Vjp:
    @functools.wraps(vjp)
    def body(xp, ct, x, **attrs):
        ct, x = np.swapaxes(ct, -2, -3), np.swapaxes(x, -2, -3)
        return np.swapaxes(vjp(xp, ct, x, **attrs), -2, -3)

    return body


def _rope_runs_on(vjp: Vjp) -> Vjp:
    @functools.wraps(vjp)
    def body(xp, ct, x, **attrs):
        rows = (int(np.prod(x.shape[:-2])), *x.shape[-2:])
        return vjp(xp, ct.reshape(rows), x.reshape(rows), **attrs).reshape(x.shape)

    return body


def _rope_wide_frequencies(vjp: Vjp) -> Vjp:
    @functools.wraps(vjp)
    def body(xp, ct, x, *, base, n_dims, **attrs):
        d = x.shape[-1]
        return vjp(xp, ct, x, base=base ** ((n_dims or d) / d), n_dims=n_dims, **attrs)

    return body


def _rest_lost(xp, g, x, *, n_dims, **attrs):
    return xp.where(np.arange(x.shape[-1]) < (n_dims or x.shape[-1]), g, 0)


def _past_lost(xp, g, x, *, offset, skip_past, **attrs):
    lost = skip_past & (np.arange(x.shape[-3]) < offset)
    return xp.where(lost[:, None, None], 0, g)


def _rope_mutants(spec: OpSpec, again: Vjp) -> tuple[Mutant, ...]:
    """Mutants of a rotation; `again` rotates as forward does."""
    vjp = spec.vjp
    double = "double" if spec is rope_back else ""
    return mutant_table(
        spec.name,
        {
            ("same-way-again", f"layout sign {double}", "typical"): (
                "Backward turns the same way as forward: the Jacobian, not its transpose.",
                _rope_again(vjp, again),
            ),
            ("missing", f"slot {double}", "typical"): (
                "The kernel has no backward: no gradient upstream of it.",
                mutate.output(vjp, 0, mutate.nothing),
                {"modelled_on": "huggingface/candle #3612"},
            ),
            ("not-turned", f"derivative {double}", "typical"): (
                "The cotangent is passed on as if positions were added.",
                mutate.attribute(vjp, skip_past=True, offset=1 << 30),
            ),
            ("other-pairs", f"layout attribute {double}", "typical"): (
                "Pairs are taken from the other layout.",
                mutate.attribute(vjp, half_split=lambda half_split, **_: not half_split),
            ),
            ("base-built-in", f"attribute {double}", "base-100"): (
                "Backward keeps the base 10000, whatever forward was given.",
                mutate.attribute(vjp, base=10000.0),
                {"modelled_on": "llama.cpp #2054 and #3974"},
            ),
            ("offset-forgotten", f"attribute {double}", "offset"): (
                "Backward counts positions from 0, whatever is cached.",
                mutate.attribute(vjp, offset=0),
            ),
            ("positions-from-one", f"index attribute {double}", "one-row"): (
                "Backward counts positions from 1.",
                mutate.attribute(vjp, offset=lambda offset, **_: offset + 1),
            ),
            ("rest-lost", f"accumulation index {double}", "partial"): (
                "Features beyond n_dims get no gradient.",
                mutate.output(vjp, 0, _rest_lost),
            ),
            ("wide-frequencies", f"attribute {double}", "partial"): (
                "Frequencies are spread over all of d where n_dims are rotated.",
                _rope_wide_frequencies(vjp),
            ),
            ("past-turned", f"attribute {double}", "skip-past"): (
                "mode & 1 is ignored: every row is turned, and by its position plus n_past.",
                mutate.attribute(vjp, skip_past=False),
            ),
            ("past-lost", f"accumulation index {double}", "skip-past"): (
                "Rows of the past are skipped in backward too, and get nothing.",
                mutate.output(vjp, 0, _past_lost),
            ),
            ("in-place", f"aliasing saved-value {double}", "typical"): (
                "The second feature of a pair is computed from the first after it was written.",
                _rope_in_place(vjp),
            ),
            ("one-frequency", f"index saved-value {double}", "typical"): (
                "All pairs turn by the angle of the first.",
                _rope_one_frequency(vjp),
            ),
            ("by-head", f"index {double}", "square"): (
                "Angles follow the head instead of the position.",
                _rope_by_head(vjp),
            ),
            ("runs-on", f"index shape {double}", "batched"): (
                "Positions run on from one sequence of the batch to the next.",
                _rope_runs_on(vjp),
            ),
        },
    )


def rope_half_before_vjp(
    xp, ct, x, *, base=10000.0, offset=0, n_dims=0, half_split=False, skip_past=False
):
    attrs = {"base": base, "offset": offset, "n_dims": n_dims, "skip_past": skip_past}
    size = n_dims or x.shape[-1]
    unit = xp.zeros_like(x) + (np.arange(x.shape[-1]) < size // 2)
    turned, rest = rope.vjp(xp, unit, x, half_split=True, **attrs), ct[..., size:]
    cos, minus_sin = turned[..., : size // 2], turned[..., size // 2 : size]
    cos = xp.concatenate([cos, cos], axis=-1)
    minus_sin = xp.concatenate([minus_sin, minus_sin], axis=-1)
    rotated = xp.concatenate([-ct[..., size // 2 : size], ct[..., : size // 2]], axis=-1)
    return xp.concatenate([ct[..., :size] * cos + rotated * minus_sin, rest], axis=-1)


def _elsewhere(draw: Draw) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rows, heads, pairs, rotated, offset, skips = (int(n) for n in draw.integers(1, 7, 6))
    attrs = {
        "base": float(draw.uniform(2.0, 500.0)),
        "offset": 10 + offset,
        "n_dims": 2 * min(rotated, pairs),
        "half_split": True,
        "skip_past": skips > 3,
    }
    return (draw.normal(rows, heads, 2 * pairs),), attrs


MUTANTS: tuple[Mutant, ...] = _rope_mutants(rope, rope_back.vjp)
MUTANTS += mutant_table(
    "rope",
    {
        ("half-rotated-before", "layout", ""): (
            "The cotangent's halves are exchanged before the product with the sines, not after.",
            rope_half_before_vjp,
            {
                "modelled_on": "PaddlePaddle #74716",
                "dialects": ("half-split",),
                "equivalent": "Both halves of the table hold the same sines, so it does not matter "
                "which half an element is multiplied in.",
                "inputs": _elsewhere,
            },
        ),
    },
)
MUTANTS += _rope_mutants(rope_back, rope.vjp)

# ── alibi ────────────────────────────────────────────────────────────────────────────────────


def _slopes(xp: Any, x: Any, n_past: int, n_head: int, bias_max: float) -> Any:
    """Slopes [h, 1, 1], as the difference of two slots' biases."""
    zeros = xp.zeros((x.shape[-3], 1, 2))
    bias = alibi.forward(xp, zeros, n_past=n_past, n_head=n_head, bias_max=bias_max)
    return bias[..., 1:] - bias[..., :1]


def alibi_sloped_vjp(xp, ct, x, *, n_past=0, n_head=0, bias_max=8.0):
    return ct * _slopes(xp, x, n_past, n_head, bias_max)


def alibi_biased_vjp(xp, ct, x, *, n_past=0, n_head=0, bias_max=8.0):
    return alibi.forward(xp, ct, n_past=n_past, n_head=n_head, bias_max=bias_max)


def alibi_power_of_two_vjp(xp, ct, x, *, n_past=0, n_head=0, bias_max=8.0):
    n = 1 << ((n_head or x.shape[-3]).bit_length() - 1)
    return xp.where((np.arange(x.shape[-3]) < n)[:, None, None], ct, 0)


def alibi_past_lost_vjp(xp, ct, x, *, n_past=0, n_head=0, bias_max=8.0):
    return xp.where(np.arange(x.shape[-1]) < n_past, 0, ct)


def alibi_causal_vjp(xp, ct, x, *, n_past=0, n_head=0, bias_max=8.0):
    return xp.where(np.tri(x.shape[-2], x.shape[-1], n_past, dtype=bool), ct, 0)


def alibi_bias_max_vjp(xp, ct, x, *, n_past=0, n_head=0, bias_max=8.0):
    return ct * (bias_max / 8)


MUTANTS += mutant_table(
    "alibi",
    {
        ("times-slope", "derivative scale", "typical"): (
            "The slope is taken for a factor of x.",
            alibi_sloped_vjp,
        ),
        ("bias-added", "nonlinear term", "typical"): (
            "The forward is applied to the cotangent, bias and all.",
            alibi_biased_vjp,
        ),
        ("power-of-two-only", "shape accumulation", "seven-heads"): (
            "Heads beyond the largest power of two get no gradient.",
            alibi_power_of_two_vjp,
        ),
        ("past-lost", "index accumulation", "past"): (
            "Slots of the past get no gradient.",
            alibi_past_lost_vjp,
        ),
        ("causal", "index", "typical"): (
            "Backward hides later slots, which forward does not.",
            alibi_causal_vjp,
        ),
        ("head-0", "index cotangent", "typical"): (
            "Every head reads the cotangent of head 0.",
            mutate.cotangent(alibi.vjp, mutate.first_for_all(-3)),
        ),
        ("bias-max", "scale", "bias-16"): ("The gradient grows with bias_max.", alibi_bias_max_vjp),
        ("first-of-batch", "index shape", "batched"): (
            "Only the first batch entry gets a gradient.",
            mutate.output(alibi.vjp, 0, mutate.first_entry(3)),
        ),
    },
)

# ── diag_mask_inf and diag_mask_zero ─────────────────────────────────────────────────────────


def _diagonal(x: Any) -> Any:
    """Slot minus query, [t, s]."""
    return np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]


def diag_mask_strict_vjp(xp, ct, x, *, n_past=0):
    return xp.where(_diagonal(x) < n_past, ct, 0)


def diag_mask_beyond_vjp(xp, ct, x, *, n_past=0):
    return xp.where(_diagonal(x) <= n_past + 1, ct, 0)


def diag_mask_upper_vjp(xp, ct, x, *, n_past=0):
    return xp.where(_diagonal(x) >= n_past, ct, 0)


def diag_mask_last_row_vjp(xp, ct, x, *, n_past=0):
    return xp.where(_diagonal(x) <= x.shape[-1] - x.shape[-2], ct, 0)


def diag_mask_first_head_vjp(xp, ct, x, *, n_past=0):
    masked = xp.where(_diagonal(x) <= n_past, ct, 0)
    first = np.zeros(ct.shape[:-2], dtype=bool)
    first.reshape(-1)[:1] = True
    return xp.where(first[..., None, None], masked, ct)


def diag_mask_copied_vjp(xp, ct, x, *, n_past=0):
    return ct


def diag_mask_inf_divided_vjp(xp, ct, x, *, n_past=0):
    with np.errstate(all="ignore"):
        return ct * diag_mask_inf.forward(xp, x, n_past=n_past) / x


def diag_mask_minus_inf_vjp(xp, ct, x, *, n_past=0):
    return diag_mask_inf.forward(xp, ct, n_past=n_past)


def _mask_mutants(spec: OpSpec) -> tuple[Mutant, ...]:
    return mutant_table(
        spec.name,
        {
            ("not-masked", "index", "typical"): (
                "The cotangent is passed on to hidden elements too.",
                diag_mask_copied_vjp,
            ),
            ("minus-infinity", "non-finite", "typical"): (
                "The cotangent is masked with minus infinity instead of zero.",
                diag_mask_minus_inf_vjp,
            ),
            ("not-copied", "accumulation slot", "single"): (
                "Out of place, the elements that are not masked are never copied.",
                mutate.output(spec.vjp, 0, mutate.zeros),
                {"modelled_on": "ggml commit log: fix diag_mask to work with non-inplace input"},
            ),
            ("strict", "index attribute", "square"): (
                "The diagonal itself is hidden in backward.",
                diag_mask_strict_vjp,
            ),
            ("one-beyond", "index attribute", "square"): (
                "One slot beyond the diagonal is seen in backward.",
                diag_mask_beyond_vjp,
            ),
            ("upper", "layout index", "square"): (
                "The other triangle is kept.",
                diag_mask_upper_vjp,
            ),
            ("past-forgotten", "attribute", "past"): (
                "Backward puts the diagonal at 0, whatever n_past.",
                mutate.attribute(spec.vjp, n_past=0),
            ),
            ("last-row", "index attribute", "tall"): (
                "The diagonal ends in the last row's last slot, whatever n_past.",
                diag_mask_last_row_vjp,
            ),
            ("first-head", "shape index", "batched"): (
                "Only the first matrix of the batch is masked in backward.",
                diag_mask_first_head_vjp,
            ),
        },
    )


MUTANTS += _mask_mutants(diag_mask_inf)
MUTANTS += mutant_table(
    "diag_mask_inf",
    {
        ("divided-by-x", "non-finite", "typical"): (
            "The mask is recovered as y/x, which is infinite where it should be 0.",
            diag_mask_inf_divided_vjp,
        ),
    },
)
MUTANTS += _mask_mutants(diag_mask_zero)
