"""Planted faults of GPT-2."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.fault import changed, of_operator, reading, scaled
from gradcheck_cases.faults.kit import (
    element,
    first_of,
    lost,
    missing,
    mutated,
    planter,
)
from gradcheck_cases.linear import matmul
from gradcheck_cases.mutants.attention import PACKED_KERNEL

_planted = planter("gpt2")


def _keys_unscaled(xp: Any, ds: Any, p: Any, q: Any, k: Any, v: Any, ct: Any) -> tuple[Any, ...]:
    root = xp.sqrt_of(q.shape[-1])
    ds_t, p_t = (np.swapaxes(x, -1, -2) for x in (ds, p))
    return np.matmul(ds, k) / root, np.matmul(ds_t, q), np.matmul(p_t, ct)


def _one_beyond(t: int, s: int, attrs: Any) -> Any:
    return np.tri(t, s, 1, dtype=bool)


FAULTS = (
    _planted(
        "wrong scale", "h.0.attn", "dk is not divided by the root of d.",
        of_operator(PACKED_KERNEL.wrong(products=_keys_unscaled)), name="dk-unscaled",
    ),
    _planted(
        "mask off by one", "h.1.attn",
        "The weights that backward recomputes see one position beyond the mask.",
        of_operator(PACKED_KERNEL.wrong(seen=_one_beyond)),
    ),
    _planted(
        "one head only", "h.0.attn.proj",
        "The gradient of the first head's output is lost.",
        changed(0, lambda xp, g, *primals, **attrs: xp.where(
            np.arange(g.shape[-1]) < g.shape[-1] // 2, 0.0, g)),
    ),
    _planted(
        "stale activation", "h.0.mlp.gelu",
        "GELU's backward reads the next layer's input, whose buffer has the same name.",
        reading({0: "h.1.fch"}),
    ),
    _planted(
        "stale activation", "h.1.ln_2",
        "The second norm's backward reads the layer's input, not the residual after attention.",
        reading({0: "h.0.residual3"}),
    ),
    _planted(
        "missing residual", "h.0.residual_1",
        "The cotangent passes attention only, not the residual beside it.", lost(0),
    ),
    _planted(
        "missing residual", "h.1.residual_2",
        "The cotangent passes the residual only, not the MLP.", lost(1),
    ),
    _planted(
        "tied gradient overwritten", "unembed",
        "The encoder's gradient of wte overwrites the classifier's instead of being added.",
        lost(1),
    ),
    _planted(
        "position offset", "encoder",
        "Rows of wpe get the gradients of the positions before theirs.",
        mutated("encoder/positions-off-by-one"),
    ),
    _planted(
        "reduction", "encoder",
        "A token that occurs again overwrites what its row of wte had collected.",
        mutated("encoder/last-wins"), name="encoder.last-wins",
    ),
    _planted(
        "last layer only", "h.0.ln_1",
        "Gains get a gradient in the last layer only.", missing(1),
    ),
    _planted(
        "last layer only", "h.1.mlp.fc",
        "In the last layer the bias's gradient is divided by the number of positions.",
        changed(2, lambda xp, g, *primals, **attrs: g / primals[0].shape[-2]),
    ),
    _planted(
        "one element", "h.0.attn.qkv", "One element of dw is off by 10%.", element(1, 40),
    ),
    _planted(
        "one element", "h.1.mlp.proj", "One element of dx is off by 10%.", element(0, 7),
    ),
    _planted(
        "formula", "ln_f", "The projection on the normalised row is left out.",
        mutated("layer_norm/no-projection"),
    ),
    _planted(
        "reduction", "h.1.attn.qkv", "dw is that of the first sequence of the batch.",
        of_operator(mutate.replaced(
            matmul.vjp, 1, mutate.cotangent(matmul.vjp, first_of(0)))),
    ),
    _planted(
        "wrong scale", "mean", "The mean over batch and time is taken for one over time.",
        changed(0, lambda xp, g, *primals, **attrs: g * primals[0].shape[0]),
    ),
    _planted(
        "sign", "cross_entropy", "The gradient points uphill: target minus prediction.",
        scaled(0, -1.0),
    ),
)  # fmt: skip
