"""Planted faults of ggml's baby Llama, with and without low-rank weights."""

from __future__ import annotations

from dataclasses import replace

from gradcheck.power import mutate
from gradcheck.spec.fault import changed, fed, reading, scaled, with_attrs
from gradcheck_cases.faults.kit import element, first_of, lost, missing, mutated, planter

_planted = planter("baby_llama")
_lora = planter("baby_llama_lora")

_SHARED = (
    _planted(
        "formula", "layers.0.attention_norm.rms", "The second term of dx lacks one factor 1/rms.",
        mutated("rms_norm/second-term-short"),
    ),
    _planted(
        "wrong scale", "layers.0.kq.scale", "The scores' gradient is not scaled.",
        mutated("scale/unscaled"),
    ),
    _planted(
        "mask off by one", "layers.1.kq.mask", "Backward hides each position's own key as well.",
        mutated("diag_mask_inf/strict"),
    ),
    _planted(
        "position offset", "layers.1.q.rope", "Queries are turned back from one position too far.",
        with_attrs(offset=1),
    ),
    _planted(
        "stale activation", "layers.0.mul",
        "The product's backward reads the next layer's up projection.",
        reading({1: "layers.1.up"}),
    ),
    _planted(
        "stale activation", "layers.1.ffn_norm.rms",
        "The norm's backward reads the layer's input, not the residual after attention.",
        reading({0: "layers.0.out"}),
    ),
    _planted(
        "missing residual", "layers.0.attention.add",
        "The cotangent passes attention only, not the residual beside it.", lost(1),
    ),
    _planted(
        "missing residual", "layers.1.ffn.add",
        "The cotangent passes the residual only, not the FFN.", lost(0),
    ),
    _planted(
        "last layer only", "layers.0.ffn_norm.mul", "Gains get a gradient in the last layer only.",
        missing(1),
    ),
    _planted(
        "one head only", "layers.0.k.permute", "Keys get a gradient from the first head only.",
        fed(first_of(1)),
    ),
    _planted(
        "one element", "layers.1.silu", "One element of dx is off by 10%.", element(0, 13),
    ),
    _planted("one element", "norm.mul", "One element of the gain's is off by 10%.", element(1, 3)),
    _planted(
        "layout", "layers.1.kqv", "The gradients of the two factors are written transposed.",
        changed(0, mutate.transposed),
    ),
    _planted(
        "layout", "layers.0.v.reshape", "The axes are put back in another order.",
        changed(0, mutate.relaid),
    ),
    _planted(
        "reduction", "get_rows", "A token that occurs again overwrites its row's gradient.",
        mutated("get_rows/last-wins"),
    ),
    _planted(
        "formula", "layers.0.kq.soft_max", "The softmax's rows lose their sum of y dy.",
        mutated("softmax/no-dot"),
    ),
    _planted("one element", "output", "One element of dw is never written.", element(1, 5, 0.0)),
    _planted("sign", "layers.1.wo", "dx has the wrong sign.", scaled(0, -1.0)),
)  # fmt: skip

_LOSSES = (
    _planted(
        "formula", "loss.sqr", "The slope of the square lacks its 2.", mutated("sqr/two-missing"),
        dialects=("square_error",),
    ),
    _planted(
        "sign", "loss.sub", "The logits are added, not subtracted.", scaled(1, -1.0),
        dialects=("square_error",),
    ),
    _planted(
        "formula", "loss.log", "The slope of the logarithm is to base two.",
        mutated("log/base-two"), dialects=("cross_entropy",),
    ),
    _planted(
        "stale activation", "loss.mul", "The product's backward reads the softmax itself.",
        reading({0: "probabilities"}), dialects=("cross_entropy",),
    ),
)  # fmt: skip

FULL = (*_SHARED, *_LOSSES)
LORA = (
    *(
        replace(fault, model="baby_llama_lora")
        for fault in FULL
        if fault.stages[0] not in ("output", "layers.1.wo")
    ),
    _lora(
        "layout", "layers.0.wq", "The gradients of the factors are made of each other.",
        changed(1, mutate.relaid),
    ),
    _lora("wrong scale", "layers.1.w2", "db is doubled.", scaled(2, 2.0)),
    _lora("gradient missing", "output", "da is not produced.", missing(1)),
)  # fmt: skip

FAULTS = (*FULL, *LORA)
