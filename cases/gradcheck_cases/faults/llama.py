"""Planted faults of the Llama, and its trainer's own three defects."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.fault import Fault, Wrong, changed, of_operator, reading, scaled, with_attrs
from gradcheck_cases.faults.kit import (
    element,
    head,
    lost,
    missing,
    mutated,
    negated,
    planter,
)
from gradcheck_cases.mutants.attention import SEPARATE

_planted = planter("llama")
LAYERS = (0, 1)
NORMS = (*(f"layers.{i}.rms_{z}" for i in LAYERS for z in ("att", "ffn")), "rms_final")


def _one_beyond(t: int, s: int, attrs: Any) -> Any:
    return np.tri(t, s, 1, dtype=bool)


FAULTS = (
    _planted(
        "wrong scale", "layers.0.attention", "dk is not divided by the root of d.",
        mutated("attention/k-unscaled"),
    ),
    _planted(
        "mask off by one", "layers.1.attention",
        "The weights that backward recomputes see one position beyond the mask.",
        of_operator(SEPARATE.wrong(seen=_one_beyond)),
    ),
    _planted(
        "one head only", "layers.0.attention", "The second head's queries get no gradient.",
        head(0, 1),
    ),
    _planted(
        "position offset", "layers.1.k_rope", "Keys are turned back from one position too far.",
        with_attrs(offset=1),
    ),
    _planted(
        "sign", "layers.0.q_rope", "Queries are turned once more the same way, not back.",
        mutated("rope/same-way-again"),
    ),
    _planted(
        "stale activation", "layers.1.rms_ffn",
        "The FFN norm's backward reads the layer's input, not the residual after attention.",
        reading({0: "layers.1.x"}),
    ),
    _planted(
        "stale activation", "layers.0.swiglu",
        "The gate's backward reads the next layer's up projection.",
        reading({1: "layers.1.h3"}),
    ),
    _planted(
        "missing residual", "layers.1.residual_att",
        "The cotangent passes attention only, not the residual beside it.", lost(0),
    ),
    _planted(
        "missing residual", "layers.0.residual_ffn",
        "The cotangent passes the FFN only, not the residual beside it.", lost(0),
    ),
    _planted(
        "last layer only", "layers.0.down", "Weights w2 get a gradient in the last layer only.",
        lost(1),
    ),
    _planted(
        "gradient missing", "layers.1.rms_att", "The norm's weight gets no gradient.", missing(1),
    ),
    _planted("one element", "layers.1.v", "One element of dw is off by 10%.", element(1, 9)),
    _planted("one element", "rms_final", "One element of dx is off by 10%.", element(0, 11)),
    _planted(
        "formula", "layers.0.rms_att", "The second term of dx lacks one factor 1/rms.",
        mutated("rms_norm/second-term-short"),
    ),
    _planted(
        "layout", "layers.0.q", "dw is written transposed: the matrix is square.",
        changed(1, mutate.transposed),
    ),
    _planted(
        "reduction", "embedding", "A token that occurs again overwrites its row's gradient.",
        mutated("get_rows/last-wins"),
    ),
    _planted("sign", "layers.1.up", "dx is subtracted, not added.", negated(0)),
    _planted(
        "wrong scale", "cross_entropy", "The mean is over T where it is over T - 1.",
        mutated("softmax_cross_entropy/over-t"),
    ),
    _planted("wrong scale", "classifier", "dw is doubled.", scaled(1, 2.0)),
)  # fmt: skip


# ── the trainer's own backward ───────────────────────────────────────────────────────────────

_SHORT = mutated("rms_norm/second-term-short")
_NO_WEIGHT = missing(1)


def _stale(then: Wrong | None = None) -> Wrong:
    """The FFN norm's backward is fed the layer's input."""

    def wrong(xp: Any, stage: Any, cts: Any, values: Any) -> tuple[Any, ...]:
        ffn = stage.name.endswith(".rms_ffn")
        swap = {0: stage.name.replace(".rms_ffn", ".x")} if ffn else {}
        return reading(swap, then)(xp, stage, cts, values)

    return wrong


def _together(xp: Any, stage: Any, cts: Any, values: Any) -> tuple[Any, ...]:
    return (_stale(_SHORT)(xp, stage, cts, values)[0], None)


TRAINER = (
    Fault(
        model="llama",
        name="trainer.rms",
        kind="formula",
        stages=NORMS,
        says="The second term of every norm's dx is divided by rms^2 where rms^3 is right.",
        wrong=_SHORT,
        modelled_on="a Llama trainer's cpu_rmsnorm_backward",
    ),
    Fault(
        model="llama",
        name="trainer.ffn-norm-input",
        kind="stale activation",
        stages=tuple(name for name in NORMS if name.endswith("ffn")),
        says="The FFN norm's backward reads the layer's input, not the residual after attention.",
        wrong=_stale(),
        modelled_on="a Llama trainer's model_backward",
    ),
    Fault(
        model="llama",
        name="trainer.no-norm-weights",
        kind="gradient missing",
        stages=NORMS,
        says="The three kinds of norm weight get no gradient.",
        wrong=_NO_WEIGHT,
        modelled_on="a Llama trainer's model_backward",
    ),
    Fault(
        model="llama",
        name="trainer",
        kind="formula",
        stages=NORMS,
        says="All three: rms^2 for rms^3, the wrong saved activation, no gradient of the weights.",
        wrong=_together,
        modelled_on="a Llama trainer's model_backward",
    ),
)
"""Several stages are at fault in each of them."""
