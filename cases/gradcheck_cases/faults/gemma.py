"""Planted faults of Gemma."""

from __future__ import annotations

from gradcheck.power import mutate
from gradcheck.spec.fault import changed, reading, scaled, with_attrs
from gradcheck_cases.faults.kit import element, lost, missing, mutated, planter

_planted = planter("gemma")

FAULTS = (
    _planted(
        "tied gradient overwritten", "unembed",
        "The embedding's gradient of the table overwrites the classifier's.", lost(1),
    ),
    _planted(
        "wrong scale", "embedding", "The table's gradient is not scaled by the root of the width.",
        mutated("input_embedding/unscaled"),
    ),
    _planted(
        "mask off by one", "layers.0.softmax", "Backward sees one position beyond the mask.",
        mutated("masked_softmax/one-beyond"),
    ),
    _planted(
        "mask off by one", "cross_entropy", "One position of the context is scored.",
        with_attrs(context_size=4),
    ),
    _planted(
        "one head only", "layers.1.scores", "The key's gradient is that of the last head.",
        mutated("masked_attention/last-head"),
    ),
    _planted(
        "one head only", "layers.0.mix", "The value's gradient is that of the last head.",
        mutated("mix_by_attention/last-head"),
    ),
    _planted(
        "position offset", "layers.0.q_rope", "Queries are turned back from one position too far.",
        with_attrs(offset=1),
    ),
    _planted(
        "layout", "layers.1.k_rope", "Keys are turned back in interleaved pairs.",
        with_attrs(half_split=False),
    ),
    _planted(
        "stale activation", "layers.1.pre_ffw_norm",
        "The norm's backward reads the layer's input, not the residual after attention.",
        reading({0: "layers.1.input"}),
    ),
    _planted(
        "stale activation", "layers.0.geglu", "The gate's backward reads the next layer's hidden.",
        reading({0: "layers.1.ffw_hidden"}),
    ),
    _planted(
        "missing residual", "layers.1.residual_attention",
        "The cotangent passes attention only, not the residual beside it.", lost(0),
    ),
    _planted(
        "wrong scale", "layers.0.q_scale", "The queries' gradient is not scaled.",
        mutated("scale/unscaled"),
    ),
    _planted(
        "formula", "layers.1.pre_attention_norm", "The gain is w where it is 1 + w.",
        mutated("rms_norm/offset-ignored"),
    ),
    _planted(
        "last layer only", "layers.0.linear", "linear_w gets a gradient in the last layer only.",
        missing(1),
    ),
    _planted("one element", "layers.0.qkv", "One element of dw is off by 10%.", element(1, 17)),
    _planted("one element", "final_norm", "One element of dx is off by 10%.", element(0, 8)),
    _planted(
        "formula", "softcap", "The cap outside is left out of the slope.",
        mutated("softcap/inner-cap-only"),
    ),
    _planted(
        "reduction", "layers.1.attn_vec", "Heads share the first one's gradient.",
        mutated("multi_head_matmul/first-head-for-all"),
    ),
    _planted(
        "layout", "layers.0.qk", "What belongs to the queries goes to the key.",
        changed(0, mutate.first_for_all(-2)),
    ),
    _planted("wrong scale", "layers.1.gating", "dx is halved.", scaled(0, 0.5)),
)  # fmt: skip
