"""Mutants of the operators in `gradcheck_cases.attention`.

Those of whole attentions are one backward, written out below, with one step replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec import OpSpec
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.attention import (
    attention,
    flash_attn,
    flash_ff,
    grouped_query_attention,
    masked_attention,
    masked_softmax,
    packed_attention,
    sink_attention,
    sliding_window_attention,
    softcapped_attention,
    softmax,
)

MUTANTS: tuple[Mutant, ...] = ()


# ── softmax ──────────────────────────────────────────────────────────────────────────────────


def softmax_one_row_vjp(xp, ct, x):
    y = softmax.forward(xp, x)
    return y * (ct - xp.sum(y * ct))


def softmax_no_weight_vjp(xp, ct, x):
    y = softmax.forward(xp, x)
    return ct - xp.sum(y * ct, axis=-1, keepdims=True)


def softmax_no_dot_vjp(xp, ct, x):
    return softmax.forward(xp, x) * ct


def softmax_diagonal_vjp(xp, ct, x):
    y = softmax.forward(xp, x)
    return ct * y * (1 - y)


def softmax_of_log_vjp(xp, ct, x):
    y = softmax.forward(xp, x)
    return ct - y * xp.sum(ct, axis=-1, keepdims=True)


def softmax_mean_vjp(xp, ct, x):
    y = softmax.forward(xp, x)
    return y * (ct - xp.mean(y * ct, axis=-1, keepdims=True))


def softmax_columns_vjp(xp, ct, x):
    y = softmax.forward(xp, x)
    return y * (ct - xp.sum(y * ct, axis=-2, keepdims=True))


def softmax_unshifted_vjp(xp, ct, x):
    return _pulled(xp, ct, xp.exp(x))


def softmax_from_minus_10000_vjp(xp, ct, x):
    top = np.maximum(xp.max(x, axis=-1, keepdims=True), -10000)
    return _pulled(xp, ct, xp.exp(x - top))


def softmax_in_place_vjp(xp, ct, x):
    y, g = softmax.forward(xp, x), ct.copy()
    for i in range(x.shape[-1]):
        g[..., i] = y[..., i] * (g[..., i] - xp.sum(y * g, axis=-1))
    return g


def softmax_block_of_64_vjp(xp, ct, x):
    y = softmax.forward(xp, x)
    return y * (ct - xp.sum((y * ct)[..., :64], axis=-1, keepdims=True))


def _pulled(xp: Any, ct: Any, e: Any) -> Any:
    """The softmax's pullback for exponentials e."""
    with np.errstate(all="ignore"):
        y = e / xp.sum(e, axis=-1, keepdims=True)
        return y * (ct - xp.sum(y * ct, axis=-1, keepdims=True))


MUTANTS += mutant_table(
    "softmax",
    {
        ("times-minus-seven", "scale", "typical"): (
            "The gradient is multiplied by -7.",
            mutate.scaled(softmax.vjp, 0, -7.0),
            {"modelled_on": "what ggml's gradient test of 2026 lets pass"},
        ),
        ("one-row", "shape index", "typical"): (
            "The dot product of y and ct runs over all rows: right only for one.",
            softmax_one_row_vjp,
            {"modelled_on": "ggml commit log: fix soft_max backward pass for input->ne[1] != 1"},
        ),
        ("no-weight", "derivative scale", "typical"): (
            "The factor y is missing.",
            softmax_no_weight_vjp,
        ),
        ("no-dot", "term", "typical"): (
            "The dot product of y and ct is missing.",
            softmax_no_dot_vjp,
        ),
        ("diagonal", "term derivative", "typical"): (
            "Only the diagonal of the Jacobian, y(1 - y), is there.",
            softmax_diagonal_vjp,
        ),
        ("of-log", "derivative", "typical"): (
            "The slope is that of the logarithm of softmax.",
            softmax_of_log_vjp,
        ),
        ("mean", "reduction term", "typical"): (
            "The dot product of y and ct is averaged.",
            softmax_mean_vjp,
        ),
        ("columns", "index", "square"): (
            "The dot product runs down the columns.",
            softmax_columns_vjp,
        ),
        ("unshifted", "precision non-finite", "shifted"): (
            "The exponentials are recomputed without the maximum taken out.",
            softmax_unshifted_vjp,
        ),
        ("from-minus-10000", "precision non-finite", "far-below"): (
            "The search for the maximum starts at -10000.",
            softmax_from_minus_10000_vjp,
            {"modelled_on": "the GPT-2 in Go, softmaxForward"},
        ),
        ("in-place", "aliasing saved-value", "typical"): (
            "In place, the dot product is taken again from what is already overwritten.",
            softmax_in_place_vjp,
        ),
        ("block-of-64", "shape term", "wide"): (
            "The dot product stops after 64 elements.",
            softmax_block_of_64_vjp,
        ),
        ("first-row-cotangent", "cotangent", "typical"): (
            "Every row is given the cotangent of the first.",
            mutate.cotangent(softmax.vjp, mutate.first_for_all(-2)),
        ),
    },
)

# ── masked_softmax ───────────────────────────────────────────────────────────────────────────


def _distance(att: Any) -> Any:
    """Slot minus query, [t, 1, s]."""
    return np.arange(att.shape[-1]) - np.arange(att.shape[-3])[:, None, None]


def masked_softmax_unmasked_vjp(xp, ct, att):
    return softmax.vjp(xp, ct, att)


def masked_softmax_strict_vjp(xp, ct, att):
    return _pulled_where(xp, ct, att, _distance(att) < 0)


def masked_softmax_beyond_vjp(xp, ct, att):
    return _pulled_where(xp, ct, att, _distance(att) <= 1)


def masked_softmax_filled_vjp(xp, ct, att):
    return softmax.vjp(xp, ct, xp.where(_distance(att) <= 0, att, -10000))


def masked_softmax_not_cleared_vjp(xp, ct, att):
    return xp.where(_distance(att) <= 0, masked_softmax.vjp(xp, ct, att), ct)


def masked_softmax_loud_vjp(xp, ct, att):
    e = xp.exp(att - xp.max(att, axis=-1, keepdims=True))
    return _pulled(xp, ct, xp.where(_distance(att) <= 0, e, 0))


def masked_softmax_no_dot_vjp(xp, ct, att):
    return masked_softmax.forward(xp, att) * ct


def masked_softmax_by_head_vjp(xp, ct, att):
    heads = np.arange(att.shape[-2])[None, :, None]
    return _pulled_where(xp, ct, att, np.arange(att.shape[-1]) <= heads)


def _pulled_where(xp: Any, ct: Any, x: Any, seen: Any) -> Any:
    """The pullback of a softmax over the slots in `seen`."""
    e = xp.where(seen, xp.exp(x - xp.max(x, axis=-1, keepdims=True)), 0)
    return _pulled(xp, ct, e)


MUTANTS += mutant_table(
    "masked_softmax",
    {
        ("unmasked", "index attribute", "typical"): (
            "Backward is that of softmax over all slots.",
            masked_softmax_unmasked_vjp,
        ),
        ("strict", "index", "one-position"): (
            "A position is hidden from itself.",
            masked_softmax_strict_vjp,
        ),
        ("one-beyond", "index", "square"): (
            "One hidden slot is taken in.",
            masked_softmax_beyond_vjp,
        ),
        ("filled", "precision", "far-below"): (
            "Hidden slots are filled with -10000, whatever is seen.",
            masked_softmax_filled_vjp,
        ),
        ("not-cleared", "accumulation index", "typical"): (
            "In place, hidden slots keep their cotangent.",
            masked_softmax_not_cleared_vjp,
        ),
        ("loud-hidden", "precision non-finite", "loud-hidden"): (
            "The maximum is taken over hidden slots too.",
            masked_softmax_loud_vjp,
        ),
        ("no-dot", "term", "typical"): (
            "The dot product of y and ct is missing.",
            masked_softmax_no_dot_vjp,
        ),
        ("by-head", "index", "square"): (
            "The mask follows the head instead of the position.",
            masked_softmax_by_head_vjp,
        ),
    },
)

# ── masked_attention ─────────────────────────────────────────────────────────────────────────


def _qk_pulled(xp: Any, ct: Any, qkv: Any) -> tuple[Any, Any]:
    """Cotangents of q [t, h, d] and, head by head, of k [h, s, d]."""
    q, k = qkv[..., :-2, :], qkv[..., -2, :]
    dq = xp.einsum("...ths,...sd->...thd", ct, k)
    return dq, xp.einsum("...ths,...thd->...hsd", ct, q)


def _packed(xp: Any, dq: Any, dk: Any, dv: Any) -> Any:
    """[t, h + 2, d] from q's [t, h, d], k's and v's [t, d]."""
    return xp.concatenate([dq, dk[..., None, :], dv[..., None, :]], axis=-2)


def _seen_only(xp: Any, ct: Any, qkv: Any) -> Any:
    return xp.where(_distance(ct) <= 0, ct, 0)


def masked_attention_last_head_vjp(xp, ct, qkv):
    dq, dk = _qk_pulled(xp, _seen_only(xp, ct, qkv), qkv)
    return _packed(xp, dq, dk[..., -1, :, :], xp.zeros_like(dk[..., 0, :, :]))


def masked_attention_mean_vjp(xp, ct, qkv):
    dq, dk = _qk_pulled(xp, _seen_only(xp, ct, qkv), qkv)
    dk = xp.mean(dk, axis=-3)
    return _packed(xp, dq, dk, xp.zeros_like(dk))


def masked_attention_value_slot_vjp(xp, ct, qkv):
    dq, dk = _qk_pulled(xp, _seen_only(xp, ct, qkv), qkv)
    dk = xp.sum(dk, axis=-3)
    return _packed(xp, dq, xp.zeros_like(dk), dk)


def masked_attention_unmasked_vjp(xp, ct, qkv):
    dq, dk = _qk_pulled(xp, ct, qkv)
    dk = xp.sum(dk, axis=-3)
    return _packed(xp, dq, dk, xp.zeros_like(dk))


def masked_attention_wrong_slot_vjp(xp, ct, qkv):
    values = xp.concatenate([qkv[..., :-2, :], qkv[..., -1:, :], qkv[..., -1:, :]], axis=-2)
    return masked_attention.vjp(xp, ct, values)


def masked_attention_transposed_vjp(xp, ct, qkv):
    ct = _seen_only(xp, ct, qkv)
    dq, _ = _qk_pulled(xp, ct, qkv)
    dk = xp.einsum("...sht,...thd->...sd", ct, qkv[..., :-2, :])
    return _packed(xp, dq, dk, xp.zeros_like(dk))


MUTANTS += mutant_table(
    "masked_attention",
    {
        ("last-head", "accumulation broadcast", "typical"): (
            "The key's gradient is overwritten by each head.",
            masked_attention_last_head_vjp,
        ),
        ("mean-over-heads", "reduction", "typical"): (
            "The key's gradient is averaged over heads.",
            masked_attention_mean_vjp,
        ),
        ("value-slot", "slot layout index", "typical"): (
            "The key's gradient is written to the value's slot.",
            masked_attention_value_slot_vjp,
        ),
        ("unmasked", "index attribute", "typical"): (
            "Hidden scores give gradients too.",
            masked_attention_unmasked_vjp,
        ),
        ("strict", "index", "one-position"): (
            "A position is hidden from itself.",
            mutate.cotangent(
                masked_attention.vjp, lambda xp, ct, qkv: xp.where(_distance(ct) < 0, ct, 0)
            ),
        ),
        ("value-for-key", "index saved-value", "one-head"): (
            "The value's slot is read as the key.",
            masked_attention_wrong_slot_vjp,
        ),
        ("transposed", "layout", "square"): (
            "Queries and slots of the scores' cotangent are exchanged for the key.",
            masked_attention_transposed_vjp,
        ),
        ("scaled-again", "scale", "typical"): (
            "The scores are divided by the root of d once more, though q comes scaled.",
            mutate.scaled(masked_attention.vjp, 0, lambda xp, qkv: 1 / xp.sqrt_of(qkv.shape[-1])),
        ),
    },
)

# ── mix_by_attention ─────────────────────────────────────────────────────────────────────────


def _mixed_pulled(xp: Any, ct: Any, qkv: Any, weights: Any, value: int = -1) -> tuple[Any, Any]:
    """Cotangents of v, head by head [h, s, d], and of all weights."""
    dv = xp.einsum("...ths,...thd->...hsd", weights, ct)
    return dv, xp.einsum("...thd,...sd->...ths", ct, qkv[..., value, :])


def _in_slot(xp: Any, dv: Any, qkv: Any, slot: int = -1) -> Any:
    out = xp.zeros_like(qkv)
    out[..., slot, :] = dv
    return out


def _causal(xp: Any, weights: Any) -> Any:
    return xp.where(_distance(weights) <= 0, weights, 0)


def mix_last_head_vjp(xp, ct, qkv, attention):
    dv, datt = _mixed_pulled(xp, ct, qkv, _causal(xp, attention))
    return _in_slot(xp, dv[..., -1, :, :], qkv), _causal(xp, datt)


def mix_mean_vjp(xp, ct, qkv, attention):
    dv, datt = _mixed_pulled(xp, ct, qkv, _causal(xp, attention))
    return _in_slot(xp, xp.mean(dv, axis=-3), qkv), _causal(xp, datt)


def mix_key_slot_vjp(xp, ct, qkv, attention):
    dv, datt = _mixed_pulled(xp, ct, qkv, _causal(xp, attention))
    return _in_slot(xp, xp.sum(dv, axis=-3), qkv, -2), _causal(xp, datt)


def mix_hidden_weights_vjp(xp, ct, qkv, attention):
    dv, datt = _mixed_pulled(xp, ct, qkv, attention)
    return _in_slot(xp, xp.sum(dv, axis=-3), qkv), _causal(xp, datt)


def mix_hidden_gradients_vjp(xp, ct, qkv, attention):
    dv, datt = _mixed_pulled(xp, ct, qkv, _causal(xp, attention))
    return _in_slot(xp, xp.sum(dv, axis=-3), qkv), datt


def mix_reads_key_vjp(xp, ct, qkv, attention):
    dv, datt = _mixed_pulled(xp, ct, qkv, _causal(xp, attention), value=-2)
    return _in_slot(xp, xp.sum(dv, axis=-3), qkv), _causal(xp, datt)


def mix_transposed_vjp(xp, ct, qkv, attention):
    weights = _causal(xp, attention)
    _, datt = _mixed_pulled(xp, ct, qkv, weights)
    dv = xp.einsum("...sht,...thd->...sd", weights, ct)
    return _in_slot(xp, dv, qkv), _causal(xp, datt)


def mix_strict_vjp(xp, ct, qkv, attention):
    seen = _distance(attention) < 0
    dv, datt = _mixed_pulled(xp, ct, qkv, xp.where(seen, attention, 0))
    return _in_slot(xp, xp.sum(dv, axis=-3), qkv), xp.where(seen, datt, 0)


MUTANTS += mutant_table(
    "mix_by_attention",
    {
        ("last-head", "accumulation broadcast", "typical"): (
            "The value's gradient is overwritten by each head.",
            mix_last_head_vjp,
        ),
        ("mean-over-heads", "reduction", "typical"): (
            "The value's gradient is averaged over heads.",
            mix_mean_vjp,
        ),
        ("key-slot", "slot layout index", "typical"): (
            "The value's gradient is written to the key's slot.",
            mix_key_slot_vjp,
        ),
        ("hidden-weights", "index attribute", "square"): (
            "Hidden weights count in the value's gradient.",
            mix_hidden_weights_vjp,
        ),
        ("hidden-gradients", "index attribute", "typical"): (
            "Hidden weights get a gradient.",
            mix_hidden_gradients_vjp,
        ),
        ("key-for-value", "index saved-value", "one-head"): (
            "The key's slot is read as the value.",
            mix_reads_key_vjp,
        ),
        ("transposed", "layout", "square"): (
            "Queries and slots of the weights are exchanged for the value's gradient.",
            mix_transposed_vjp,
        ),
        ("strict", "index", "one-position"): ("A position is hidden from itself.", mix_strict_vjp),
    },
)

# ── one backward for whole attentions ────────────────────────────────────────────────────────


def _weights(xp: Any, scores: Any, seen: Any) -> Any:
    """Softmax over the slots in `seen`; rows without any are 0."""
    x = xp.where(seen, scores, xp.min(scores, axis=-1, keepdims=True))
    e = xp.where(seen, xp.exp(x - xp.max(x, axis=-1, keepdims=True)), 0)
    total = xp.sum(e, axis=-1, keepdims=True)
    return e / xp.where(total == 0, 1, total)


def _delta(xp: Any, p: Any, dp: Any) -> Any:
    return xp.sum(p * dp, axis=-1, keepdims=True)


def _products(xp: Any, ds: Any, p: Any, q: Any, k: Any, v: Any, ct: Any) -> tuple[Any, Any, Any]:
    """Cotangents of q, k and v from those of the scores before the root of d."""
    root = xp.sqrt_of(q.shape[-1])
    return _mm(ds, k) / root, _mm(_t(ds), q) / root, _mm(_t(p), ct)


def _mm(a: Any, b: Any) -> Any:
    return np.matmul(a, b)


def _t(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """How an operator's arguments become q, k, v per query head [h, t, d], and back.

    `unpack(primals, attrs)` gives q, k and v, `ct(ct, attrs)` the cotangent, `pack` the
    gradients from dq, dk and dv, `seen(queries, slots, attrs)` the mask.
    """

    spec: OpSpec
    unpack: Callable[..., Any]
    seen: Callable[..., Any]
    pack: Callable[..., Any]
    ct: Callable[..., Any] = lambda ct, attrs: ct

    def wrong(
        self,
        seen: Callable[..., Any] | None = None,
        weights: Callable[..., Any] = _weights,
        delta: Callable[..., Any] = _delta,
        products: Callable[..., Any] = _products,
        pack: Callable[..., Any] | None = None,
    ) -> Vjp:
        """The operator's backward with one of the steps replaced."""

        @functools.wraps(self.spec.vjp)
        def body(xp, ct, *primals, **attrs):
            q, k, v = self.unpack(primals, attrs)
            ct = self.ct(ct, attrs)
            mask = (seen or self.seen)(q.shape[-2], k.shape[-2], attrs)
            with np.errstate(all="ignore"):
                p = weights(xp, _mm(q, _t(k)) / xp.sqrt_of(q.shape[-1]), mask)
                dp = _mm(ct, _t(v))
                ds = p * (dp - delta(xp, p, dp))
                gradients = products(xp, ds, p, q, k, v, ct)
            return (pack or self.pack)(xp, *gradients, primals, attrs)

        return body


def _band(
    t: int, s: int, left: int | None = None, right: int | None = None, own: int | None = None
) -> Any:
    """Booleans [t, s]; query 0's own slot is `own`, or the last query's the last."""
    distance = np.arange(s) - np.arange(t)[:, None] - (s - t if own is None else own)
    low = distance >= -left if left is not None else True
    high = distance <= right if right is not None else True
    return (distance == distance) & low & high


def _all_seen(t: int, s: int, attrs: dict[str, Any]) -> Any:
    return _band(t, s)


def _bottom_right(t: int, s: int, attrs: dict[str, Any]) -> Any:
    return _band(t, s, right=0)


def _no_delta(xp: Any, p: Any, dp: Any) -> Any:
    return xp.zeros_like(dp)


def _unshifted(xp: Any, scores: Any, seen: Any) -> Any:
    e = xp.where(seen, xp.exp(scores), 0)
    return e / xp.sum(e, axis=-1, keepdims=True)


def _unsafe(xp: Any, scores: Any, seen: Any) -> Any:
    x = xp.where(seen, scores, xp.const("-inf"))
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _k_unscaled(xp, ds, p, q, k, v, ct):
    dq, dk, dv = _products(xp, ds, p, q, k, v, ct)
    return dq, dk * xp.sqrt_of(q.shape[-1]), dv


def _v_not_transposed(xp, ds, p, q, k, v, ct):
    dq, dk, _ = _products(xp, ds, p, q, k, v, ct)
    return dq, dk, _mm(p, ct)


def _v_from_scores(xp, ds, p, q, k, v, ct):
    dq, dk, _ = _products(xp, ds, p, q, k, v, ct)
    return dq, dk, _mm(_t(ds), ct)


def _last_query_dropped(xp, ds, p, q, k, v, ct):
    dq, dk, dv = _products(xp, ds, p, q, k, v, ct)
    ds, p = ds[..., :-1, :], p[..., :-1, :]
    _, dk, dv = _products(xp, ds, p, q[..., :-1, :], k, v, ct[..., :-1, :])
    return dq, dk, dv


def _as_they_are(xp, dq, dk, dv, primals, attrs):
    return dq, dk, dv


# ── attention and packed_attention ───────────────────────────────────────────────────────────


def _split(x: Any, heads: int) -> Any:
    """[t, c] as [h, t, d]."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -2, -3)


def _split_the_other_way(x: Any, heads: int) -> Any:
    """[t, c] as [h, t, d], features outside heads."""
    x = x.reshape(*x.shape[:-1], x.shape[-1] // heads, heads)
    return np.moveaxis(x, -1, -3)


def _merge(x: Any) -> Any:
    """[h, t, d] as [t, c]."""
    x = np.swapaxes(x, -2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _merge_the_other_way(x: Any) -> Any:
    x = np.moveaxis(x, -3, -1)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


SEPARATE = Kernel(
    spec=attention,
    unpack=lambda primals, attrs: [_split(x, attrs["heads"]) for x in primals],
    seen=lambda t, s, attrs: _band(t, s, right=0 if attrs["causal"] else None),
    ct=lambda ct, attrs: _split(ct, attrs["heads"]),
    pack=lambda xp, dq, dk, dv, primals, attrs: tuple(_merge(g) for g in (dq, dk, dv)),
)
OTHER_LAYOUT = Kernel(
    spec=attention,
    unpack=lambda primals, attrs: [_split_the_other_way(x, attrs["heads"]) for x in primals],
    seen=SEPARATE.seen,
    ct=lambda ct, attrs: _split_the_other_way(ct, attrs["heads"]),
    pack=lambda xp, dq, dk, dv, primals, attrs: tuple(
        _merge_the_other_way(g) for g in (dq, dk, dv)
    ),
)


def _c_for_d(xp, ds, p, q, k, v, ct):
    dq, dk, dv = _products(xp, ds, p, q, k, v, ct)
    more = xp.sqrt_of(q.shape[-3])
    return dq / more, dk / more, dv


MUTANTS += mutant_table(
    "attention",
    {
        ("k-unscaled", "scale", "typical"): (
            "dk lacks the factor 1/sqrt(d).",
            SEPARATE.wrong(products=_k_unscaled),
        ),
        ("c-for-d", "scale", "typical"): (
            "The scale in backward is that of all features instead of one head's.",
            SEPARATE.wrong(products=_c_for_d),
        ),
        ("no-delta", "term", "typical"): (
            "The softmax's sum of p dp is missing.",
            SEPARATE.wrong(delta=_no_delta),
        ),
        ("not-causal", "attribute index", "typical"): (
            "Weights are recomputed without the mask.",
            SEPARATE.wrong(seen=_all_seen),
        ),
        ("always-causal", "attribute index", "not-causal"): (
            "Backward masks where forward does not.",
            mutate.attribute(attention.vjp, causal=True),
        ),
        ("two-heads", "attribute", "three-heads"): (
            "Backward keeps two heads where forward has three.",
            mutate.attribute(attention.vjp, heads=lambda heads, causal: 2 if heads == 3 else heads),
        ),
        ("q-k-exchanged", "slot", "square"): (
            "dq and dk are in each other's place.",
            mutate.swapped(attention.vjp, 0, 1),
        ),
        ("v-not-transposed", "layout", "typical"): (
            "dv is p ct where the transpose of p is meant.",
            SEPARATE.wrong(products=_v_not_transposed),
        ),
        ("v-from-scores", "saved-value aliasing", "typical"): (
            "dv takes the scores' cotangent, which overwrote the weights.",
            SEPARATE.wrong(products=_v_from_scores),
        ),
        ("other-layout", "layout", "square"): (
            "Features lie outside heads in backward.",
            OTHER_LAYOUT.wrong(),
        ),
        ("unshifted", "precision non-finite", "large-scores"): (
            "The exponentials are recomputed without the maximum taken out.",
            SEPARATE.wrong(weights=_unshifted),
            {"dtype": "float32"},
        ),
        ("never-cleared", "accumulation", "typical"): (
            "Gradients are added to those of the call before.",
            {"make": mutate.accumulated(attention.vjp)},
        ),
    },
)


def _thirds(x: Any) -> Any:
    c = x.shape[-1] // 3
    return x[..., :c], x[..., c : 2 * c], x[..., 2 * c :]


PACKED_KERNEL = Kernel(
    spec=packed_attention,
    unpack=lambda primals, attrs: [_split(x, attrs["heads"]) for x in _thirds(primals[0])],
    seen=_bottom_right,
    ct=lambda ct, attrs: _split(ct, attrs["heads"]),
    pack=lambda xp, dq, dk, dv, primals, attrs: np.concatenate(
        [_merge(g) for g in (dq, dk, dv)], axis=-1
    ),
)


def _k_v_exchanged(xp, dq, dk, dv, primals, attrs):
    return np.concatenate([_merge(g) for g in (dq, dv, dk)], axis=-1)


def _head_by_head(xp, dq, dk, dv, primals, attrs):
    """Heads packed as q k v, q k v."""
    return _merge(np.concatenate([dq, dk, dv], axis=-1))


# ── packed_attention ─────────────────────────────────────────────────────────────────────────


def _first_delta(xp: Any, p: Any, dp: Any) -> Any:
    return xp.sum(p * dp, axis=-1, keepdims=True)[..., :1, :]


def _scaled_twice(xp, ds, p, q, k, v, ct):
    dq, dk, dv = _products(xp, ds, p, q, k, v, ct)
    root = xp.sqrt_of(q.shape[-1])
    return dq / root, dk / root, dv


MUTANTS += mutant_table(
    "packed_attention",
    {
        ("k-v-exchanged", "slot layout index", "typical"): (
            "The gradients of k and v are in each other's third.",
            PACKED_KERNEL.wrong(pack=_k_v_exchanged),
        ),
        ("head-by-head", "layout index", "typical"): (
            "Gradients are packed head by head as q k v, q k v.",
            PACKED_KERNEL.wrong(pack=_head_by_head),
        ),
        ("two-heads", "attribute", "three-heads"): (
            "Backward keeps two heads where forward has three.",
            mutate.attribute(packed_attention.vjp, heads=lambda heads: 2 if heads == 3 else heads),
        ),
        ("scaled-twice", "scale", "typical"): (
            "Scores' gradients are divided by the root of d twice.",
            PACKED_KERNEL.wrong(products=_scaled_twice),
        ),
        ("last-query-dropped", "index", "typical"): (
            "The last query does not reach k and v.",
            PACKED_KERNEL.wrong(products=_last_query_dropped),
        ),
        ("first-delta", "saved-value index", "typical"): (
            "Every query takes the sum of p dp that the first one left.",
            PACKED_KERNEL.wrong(delta=_first_delta),
        ),
        ("not-causal", "index attribute", "typical"): (
            "Weights are recomputed without the mask.",
            PACKED_KERNEL.wrong(seen=_all_seen),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "The gradient is added to that of the call before.",
            {"make": mutate.accumulated(packed_attention.vjp)},
        ),
    },
)

# ── flash_attn ───────────────────────────────────────────────────────────────────────────────

FLASH_KERNEL = Kernel(
    spec=flash_attn,
    unpack=lambda primals, attrs: (primals[0], primals[1], _t(primals[2])),
    seen=lambda t, s, attrs: _band(t, s, right=0 if attrs["masked"] else None),
    pack=lambda xp, dq, dk, dv, primals, attrs: (dq, dk, _t(dv)),
)


def _top_left(t: int, s: int, attrs: dict[str, Any]) -> Any:
    return _band(t, s, right=0, own=0)


def _delta_twice(xp: Any, p: Any, dp: Any) -> Any:
    return 2 * _delta(xp, p, dp)


def _unnormalised(xp: Any, scores: Any, seen: Any) -> Any:
    x = xp.where(seen, scores, xp.min(scores, axis=-1, keepdims=True))
    return xp.where(seen, xp.exp(x - xp.max(x, axis=-1, keepdims=True)), 0)


def _keys_of_head_0(xp, ds, p, q, k, v, ct):
    first = np.broadcast_to(k[..., :1, :, :], k.shape)
    return _products(xp, ds, p, q, first, v, ct)


MUTANTS += mutant_table(
    "flash_attn",
    {
        ("top-left", "index", "typical"): (
            "Backward aligns the mask with the first slot, forward with the last.",
            FLASH_KERNEL.wrong(seen=_top_left),
            {"modelled_on": "xlite-dev/ffpa-attn #300", "dialects": ("masked",)},
        ),
        ("not-masked", "attribute index", "typical"): (
            "Backward does not mask.",
            mutate.attribute(flash_attn.vjp, masked=False),
            {"dialects": ("masked",)},
        ),
        ("always-masked", "attribute index", "typical"): (
            "Backward masks where forward does not.",
            FLASH_KERNEL.wrong(seen=_bottom_right),
            {"dialects": ("unmasked",)},
        ),
        ("k-unscaled", "scale", "typical"): (
            "dk lacks the factor 1/sqrt(d).",
            FLASH_KERNEL.wrong(products=_k_unscaled),
        ),
        ("v-as-it-is", "layout", "square"): (
            "dv is not transposed back.",
            FLASH_KERNEL.wrong(pack=_as_they_are),
        ),
        ("keys-of-head-0", "index saved-value", "three-heads"): (
            "dq takes every head's keys from head 0.",
            FLASH_KERNEL.wrong(products=_keys_of_head_0),
        ),
        ("delta-per-tile", "term scale", "typical"): (
            "The sum of p dp is subtracted once in each of two tiles of slots.",
            FLASH_KERNEL.wrong(delta=_delta_twice),
        ),
        ("not-normalised", "saved-value", "typical"): (
            "Weights are recomputed without the saved sum of exponentials.",
            FLASH_KERNEL.wrong(weights=_unnormalised),
        ),
        ("never-cleared", "accumulation", "typical"): (
            "Gradients are added to those of the call before.",
            {"make": mutate.accumulated(flash_attn.vjp)},
        ),
    },
)

# ── flash_ff ─────────────────────────────────────────────────────────────────────────────────


def _ff_parts(xp: Any, ct: Any, a: Any, b0: Any, b1: Any, c0: Any) -> tuple[Any, ...]:
    """Hidden features before and after gelu, gelu's slope, and the cotangent before it."""
    root, cube = xp.sqrt_of(2 / xp.pi), xp.const("0.044715")
    h = _mm(a, _t(b0)) + b1
    y = xp.tanh(root * (h + cube * h * h * h))
    slope = (1 + y) / 2 + h * root * (1 + 3 * cube * h * h) * (1 - y * y) / 2
    return h, h * (1 + y) / 2, slope, _mm(ct, c0)


def _ff_pulled(ct: Any, a: Any, b0: Any, z: Any, dh: Any) -> tuple[Any, ...]:
    sums = tuple(range(ct.ndim - 1))
    flat = [x.reshape(-1, x.shape[-1]) if x.size else x for x in (dh, a, ct, z)]
    db0, dc0 = _mm(_t(flat[0]), flat[1]), _mm(_t(flat[2]), flat[3])
    return _mm(dh, b0), db0, dh.sum(axis=sums), dc0, ct.sum(axis=sums)


def flash_ff_no_slope_vjp(xp, ct, a, b0, b1, c0, c1):
    _, z, _, dz = _ff_parts(xp, ct, a, b0, b1, c0)
    return _ff_pulled(ct, a, b0, z, dz)


def flash_ff_step_vjp(xp, ct, a, b0, b1, c0, c1):
    h, z, _, dz = _ff_parts(xp, ct, a, b0, b1, c0)
    return _ff_pulled(ct, a, b0, z, dz * (h > 0))


def flash_ff_slope_of_output_vjp(xp, ct, a, b0, b1, c0, c1):
    _, z, _, dz = _ff_parts(xp, ct, a, b0, b1, c0)
    root, cube = xp.sqrt_of(2 / xp.pi), xp.const("0.044715")
    y = xp.tanh(root * (z + cube * z * z * z))
    slope = (1 + y) / 2 + z * root * (1 + 3 * cube * z * z) * (1 - y * y) / 2
    return _ff_pulled(ct, a, b0, z, dz * slope)


def flash_ff_no_inner_vjp(xp, ct, a, b0, b1, c0, c1):
    h, z, _, dz = _ff_parts(xp, ct, a, b0, b1, c0)
    root, cube = xp.sqrt_of(2 / xp.pi), xp.const("0.044715")
    y = xp.tanh(root * (h + cube * h * h * h))
    return _ff_pulled(ct, a, b0, z, dz * ((1 + y) / 2 + h * root * (1 - y * y) / 2))


def flash_ff_before_gelu_vjp(xp, ct, a, b0, b1, c0, c1):
    h, _, slope, dz = _ff_parts(xp, ct, a, b0, b1, c0)
    return _ff_pulled(ct, a, b0, h, dz * slope)


def flash_ff_last_row_vjp(xp, ct, a, b0, b1, c0, c1):
    da, db0, db1, dc0, dc1 = flash_ff.vjp(xp, ct, a, b0, b1, c0, c1)
    return da, db0, db1, dc0, ct[(0,) * (ct.ndim - 2)][-1] if ct.size else dc1


def flash_ff_first_entry_vjp(xp, ct, a, b0, b1, c0, c1):
    gradients = list(flash_ff.vjp(xp, ct, a, b0, b1, c0, c1))
    if ct.ndim == 3:
        gradients[1:] = flash_ff.vjp(xp, ct[0], a[0], b0, b1, c0, c1)[1:]
    return tuple(gradients)


MUTANTS += mutant_table(
    "flash_ff",
    {
        ("no-slope", "derivative scale", "typical"): (
            "The slope of gelu is missing.",
            flash_ff_no_slope_vjp,
        ),
        ("step", "derivative", "wide"): (
            "The slope of relu stands in for that of gelu.",
            flash_ff_step_vjp,
        ),
        ("no-inner-slope", "derivative term", "typical"): (
            "The slope of gelu's inner cubic is missing.",
            flash_ff_no_inner_vjp,
        ),
        ("slope-of-output", "saved-value derivative", "typical"): (
            "gelu's slope is taken at its output.",
            flash_ff_slope_of_output_vjp,
        ),
        ("before-gelu", "saved-value", "typical"): (
            "dc0 takes the hidden features as they were before gelu.",
            flash_ff_before_gelu_vjp,
        ),
        ("bias-mean", "reduction", "typical"): (
            "db1 is averaged over positions.",
            mutate.scaled(flash_ff.vjp, 2, lambda xp, a, *_: 1 / max(a.shape[-2], 1)),
        ),
        ("last-row", "accumulation broadcast", "typical"): (
            "dc1 is overwritten by each position.",
            flash_ff_last_row_vjp,
        ),
        ("first-entry", "broadcast accumulation index", "batched"): (
            "Weights and biases get their gradient from the first batch entry.",
            flash_ff_first_entry_vjp,
        ),
        ("weights-exchanged", "slot", "square"): (
            "The gradients of the two weights are in each other's place.",
            mutate.swapped(flash_ff.vjp, 1, 3),
        ),
        ("weight-transposed", "layout", "square"): (
            "db0 comes transposed.",
            mutate.output(flash_ff.vjp, 1, lambda xp, g, *_: _t(g)),
        ),
    },
)

# ── grouped_query_attention ──────────────────────────────────────────────────────────────────


def _share(primals: Any) -> int:
    return int(primals[0].shape[-3] // primals[1].shape[-3])


def _by_group(x: Any, primals: Any) -> Any:
    """[h, s, d] as [g, r, s, d]."""
    r = _share(primals)
    return x.reshape(*x.shape[:-3], x.shape[-3] // r, r, *x.shape[-2:])


def _each_pack(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xp, dq, dk, dv, primals, attrs: (
        dq,
        *(reduce(_by_group(x, primals)) for x in (dk, dv)),
    )


def _grouped_seen(t: int, s: int, attrs: dict[str, Any]) -> Any:
    own = 0 if attrs["top_left"] else None
    return _band(t, s, right=0 if attrs["causal"] else None, own=own)


def _grouped_other_corner(t: int, s: int, attrs: dict[str, Any]) -> Any:
    return _grouped_seen(t, s, {**attrs, "top_left": not attrs["top_left"]})


GROUPED_KERNEL = Kernel(
    spec=grouped_query_attention,
    unpack=lambda primals, attrs: (
        primals[0],
        *(np.repeat(x, _share(primals), axis=-3) for x in primals[1:]),
    ),
    seen=_grouped_seen,
    pack=_each_pack(lambda x: x.sum(axis=-3)),
)


def _dealt_out(xp, dq, dk, dv, primals, attrs):
    g, r = primals[1].shape[-3], _share(primals)
    dealt = [x.reshape(*x.shape[:-3], r, g, *x.shape[-2:]) for x in (dk, dv)]
    return (dq, *(x.sum(axis=-4) for x in dealt))


def _unreduced(xp, dq, dk, dv, primals, attrs):
    return dq, dk, dv


MUTANTS += mutant_table(
    "grouped_query_attention",
    {
        ("last-of-group", "accumulation broadcast", "typical"): (
            "dk and dv are overwritten by each head of a group.",
            GROUPED_KERNEL.wrong(pack=_each_pack(lambda x: x[..., -1, :, :].copy())),
        ),
        ("mean-of-group", "reduction", "typical"): (
            "dk and dv are averaged over a group.",
            GROUPED_KERNEL.wrong(pack=_each_pack(lambda x: x.mean(axis=-3))),
        ),
        ("dealt-out", "index layout", "three-per-group"): (
            "dk and dv sum over every g-th head instead of over neighbours.",
            GROUPED_KERNEL.wrong(pack=_dealt_out),
            {"modelled_on": "XunhaoLai/native-sparse-attention-triton #27"},
        ),
        ("unreduced", "broadcast", "typical"): (
            "dk and dv keep an entry per query head.",
            GROUPED_KERNEL.wrong(pack=_unreduced),
            {"modelled_on": "marin-community/levanter #449"},
        ),
        ("other-corner", "index attribute", "one-query"): (
            "Backward aligns the mask with the other corner than forward.",
            GROUPED_KERNEL.wrong(seen=_grouped_other_corner),
            {"modelled_on": "xlite-dev/ffpa-attn #300"},
        ),
        ("unsafe-rows", "non-finite", "more-queries"): (
            "A row that sees no slot is 0/0.",
            GROUPED_KERNEL.wrong(weights=_unsafe),
            {"modelled_on": "Dao-AILab/flash-attention #443", "dialects": ("bottom-right",)},
        ),
        ("always-causal", "attribute index", "not-causal"): (
            "Backward masks where forward does not.",
            mutate.attribute(grouped_query_attention.vjp, causal=True),
        ),
        ("k-unscaled", "scale", "typical"): (
            "dk lacks the factor 1/sqrt(d).",
            GROUPED_KERNEL.wrong(products=_k_unscaled),
        ),
        ("no-delta", "term", "multi-query"): (
            "The softmax's sum of p dp is missing.",
            GROUPED_KERNEL.wrong(delta=_no_delta),
        ),
    },
)

# ── sliding_window_attention ─────────────────────────────────────────────────────────────────

WINDOW_KERNEL = Kernel(
    spec=sliding_window_attention,
    unpack=lambda primals, attrs: primals,
    seen=lambda t, s, attrs: _band(t, s, attrs["left"], attrs["right"]),
    pack=_as_they_are,
)


def _left_edge(by: int) -> Vjp:
    return WINDOW_KERNEL.wrong(
        seen=lambda t, s, attrs: _band(t, s, attrs["left"] + by, attrs["right"])
    )


MUTANTS += mutant_table(
    "sliding_window_attention",
    {
        ("no-window", "attribute index", "typical"): (
            "Backward sees all slots, near or far, before or after.",
            WINDOW_KERNEL.wrong(seen=_all_seen),
            {"modelled_on": "meta-pytorch/MSLK #263"},
        ),
        ("only-causal", "attribute index", "one-longer"): (
            "Backward is causal, but knows no window.",
            WINDOW_KERNEL.wrong(seen=_bottom_right),
        ),
        ("one-more", "index attribute", "one-longer"): (
            "The window reaches one slot further back.",
            _left_edge(1),
        ),
        ("one-less", "index attribute", "as-long-as-the-window"): (
            "The window misses its furthest slot.",
            WINDOW_KERNEL.wrong(
                seen=lambda t, s, attrs: _band(t, s, max(attrs["left"] - 1, 0), attrs["right"])
            ),
        ),
        ("sides-exchanged", "index attribute", "wide"): (
            "Slots before and after are exchanged.",
            WINDOW_KERNEL.wrong(
                seen=lambda t, s, attrs: _band(t, s, attrs["right"], attrs["left"])
            ),
        ),
        ("default-window", "attribute index", "wide"): (
            "Backward keeps the default window.",
            mutate.attribute(sliding_window_attention.vjp, left=2, right=0),
        ),
        ("from-the-first-slot", "index", "cached"): (
            "Positions are counted from the first slot, whatever is cached.",
            WINDOW_KERNEL.wrong(
                seen=lambda t, s, attrs: _band(t, s, attrs["left"], attrs["right"], own=0)
            ),
        ),
        ("zero-is-none", "attribute index", "only-itself"): (
            "A window of 0 is taken for no window.",
            WINDOW_KERNEL.wrong(
                seen=lambda t, s, attrs: _band(t, s, attrs["left"] or None, attrs["right"])
            ),
        ),
        ("unsafe-rows", "non-finite", "more-queries"): (
            "A row that sees no slot is 0/0.",
            WINDOW_KERNEL.wrong(weights=_unsafe),
        ),
        ("last-query-dropped", "index", "typical"): (
            "The last query, whose window is cut off, does not reach k and v.",
            WINDOW_KERNEL.wrong(products=_last_query_dropped),
        ),
    },
)

# ── sink_attention ───────────────────────────────────────────────────────────────────────────


def _sink_parts(xp: Any, ct: Any, q: Any, k: Any, v: Any, sink: Any, top: str = "both") -> Any:
    """Weights of slots and sink, and the slots' cotangent."""
    scores = _mm(q, _t(k)) / xp.sqrt_of(q.shape[-1])
    seen = _bottom_right(q.shape[-2], k.shape[-2], {})
    z = sink[..., None, None]
    x = xp.where(seen, scores, xp.min(scores, axis=-1, keepdims=True))
    m = xp.max(x, axis=-1, keepdims=True)
    if top == "both":
        m = xp.maximum(m, z)
    with np.errstate(all="ignore"):
        e, rest = xp.where(seen, xp.exp(x - m), 0), xp.exp(z - m)
        total = xp.sum(e, axis=-1, keepdims=True) + rest
        return e / total, rest / total, _mm(ct, _t(v))


def _sink_pulled(xp, ct, q, k, v, p, dp, dsink):
    with np.errstate(all="ignore"):
        ds = p * (dp - xp.sum(p * dp, axis=-1, keepdims=True))
        return (*_products(xp, ds, p, q, k, v, ct), dsink)


def _sink_gradient(change: Callable[..., Any]) -> Vjp:
    """The right backward except for the sink's gradient: `change(xp, rest, mean)`.

    `rest` are the sink's weights [h, t, 1], `mean` the sums of p dp.
    """

    @functools.wraps(sink_attention.vjp)
    def body(xp, ct, q, k, v, sink=None):
        p, rest, dp = _sink_parts(xp, ct, q, k, v, sink)
        mean = xp.sum(p * dp, axis=-1, keepdims=True)
        return _sink_pulled(xp, ct, q, k, v, p, dp, change(xp, rest, mean))

    return body


def _per_head(xp: Any, g: Any) -> Any:
    g = g.sum(axis=(-2, -1))
    return g.reshape(-1, g.shape[-1]).sum(axis=0)


def sink_attention_without_vjp(xp, ct, q, k, v, sink=None):
    mask = _bottom_right(q.shape[-2], k.shape[-2], {})
    p = _weights(xp, _mm(q, _t(k)) / xp.sqrt_of(q.shape[-1]), mask)
    gradients = _sink_pulled(xp, ct, q, k, v, p, _mm(ct, _t(v)), None)
    return gradients[:3] if sink is None else (*gradients[:3], xp.zeros_like(sink))


def sink_attention_own_maximum_vjp(xp, ct, q, k, v, sink=None):
    p, rest, dp = _sink_parts(xp, ct, q, k, v, sink, top="slots")
    with np.errstate(all="ignore"):
        dsink = -_per_head(xp, rest * xp.sum(p * dp, axis=-1, keepdims=True))
    return _sink_pulled(xp, ct, q, k, v, p, dp, dsink)


def sink_attention_delta_shared_vjp(xp, ct, q, k, v, sink=None):
    p, rest, dp = _sink_parts(xp, ct, q, k, v, xp.zeros(q.shape[-3:-2]) if sink is None else sink)
    mean = xp.sum(p * dp, axis=-1, keepdims=True)
    ds = p * (dp - mean / (1 - rest))
    gradients = _products(xp, ds, p, q, k, v, ct)
    return gradients if sink is None else (*gradients, -_per_head(xp, rest * mean))


MUTANTS += mutant_table(
    "sink_attention",
    {
        ("without-sink", "saved-value slot", "typical"): (
            "Weights are recomputed without the sink, which gets no gradient.",
            sink_attention_without_vjp,
            {"modelled_on": "NVIDIA/cudnn-frontend #421"},
        ),
        ("no-sink-gradient", "slot", "typical"): (
            "The kernel that sums the sink's gradient is not launched: it stays 0.",
            _sink_gradient(lambda xp, rest, mean: 0 * _per_head(xp, rest)),
            {"modelled_on": "NVIDIA/cudnn-frontend #421", "dialects": ("learned",)},
        ),
        ("sink-negated", "sign", "typical"): (
            "The sink's gradient has the other sign.",
            _sink_gradient(lambda xp, rest, mean: _per_head(xp, rest * mean)),
            {"dialects": ("learned",)},
        ),
        ("sink-mean", "reduction", "one-head"): (
            "The sink's gradient is averaged over queries.",
            _sink_gradient(
                lambda xp, rest, mean: -_per_head(xp, rest * mean) / max(rest.shape[-2], 1)
            ),
            {"dialects": ("learned",)},
        ),
        ("sink-unweighted", "scale derivative", "typical"): (
            "The sink's gradient lacks the sink's weight.",
            _sink_gradient(lambda xp, rest, mean: -_per_head(xp, mean)),
            {"dialects": ("learned",)},
        ),
        ("sink-of-last-query", "accumulation broadcast", "square"): (
            "The sink's gradient is overwritten by each query.",
            _sink_gradient(lambda xp, rest, mean: -_per_head(xp, (rest * mean)[..., -1:, :])),
            {"dialects": ("learned",)},
        ),
        ("sink-of-first-entry", "broadcast accumulation index", "batched"): (
            "The sink's gradient is that of the first batch entry.",
            _sink_gradient(
                lambda xp, rest, mean: (
                    -_per_head(xp, (rest * mean)[0] if rest.ndim == 4 else rest * mean)
                )
            ),
            {"dialects": ("learned",)},
        ),
        ("own-maximum", "precision non-finite", "overflowing"): (
            "The maximum is taken over slots only, and the sink's exponential overflows.",
            sink_attention_own_maximum_vjp,
            {"dialects": ("learned",)},
        ),
        ("delta-without-sink", "term scale", "typical"): (
            "The sum of p dp is normalised over slots, as without a sink.",
            sink_attention_delta_shared_vjp,
        ),
    },
)

# ── softcapped_attention ─────────────────────────────────────────────────────────────────────


def _capped(
    slope: Callable[..., Any] = lambda xp, s, tanh, cap: 1 - tanh * tanh,
    capped: Callable[..., Any] = lambda xp, s, tanh, cap: cap * tanh,
    products: Callable[..., Any] = _products,
    hidden: str = "after",
) -> Vjp:
    """The softcapped backward with one of its steps replaced."""

    @functools.wraps(softcapped_attention.vjp)
    def body(xp, ct, q, k, v, *, cap, causal):
        seen = _band(q.shape[-2], k.shape[-2], right=0 if causal else None)
        s = _mm(q, _t(k)) / xp.sqrt_of(q.shape[-1])
        tanh = xp.tanh(s / cap)
        x = capped(xp, s, tanh, cap)
        if hidden == "before":  # the cap of minus infinity is minus the cap
            p = _weights(xp, xp.where(seen, x, -cap), _band(*seen.shape))
        else:
            p = _weights(xp, x, seen)
        dp = _mm(ct, _t(v))
        ds = p * (dp - _delta(xp, p, dp)) * slope(xp, s, tanh, cap)
        return products(xp, ds, p, q, k, v, ct)

    return body


MUTANTS += mutant_table(
    "softcapped_attention",
    {
        ("no-slope", "derivative scale", "cap-2"): (
            "The slope of the cap is missing.",
            _capped(slope=lambda xp, s, tanh, cap: 1),
        ),
        ("slope-of-capped", "saved-value derivative", "cap-2"): (
            "The slope is 1 - x^2 for the capped score x, cap included.",
            _capped(slope=lambda xp, s, tanh, cap: 1 - (cap * tanh) ** 2),
        ),
        ("slope-undivided", "derivative saved-value", "typical"): (
            "The slope is taken at the score, not at the score over the cap.",
            _capped(slope=lambda xp, s, tanh, cap: 1 - xp.tanh(s) ** 2),
        ),
        ("uncapped-weights", "saved-value", "cap-1"): (
            "Weights are recomputed without the cap.",
            _capped(capped=lambda xp, s, tanh, cap: s),
        ),
        ("divided-by-cap", "scale", "cap-2"): (
            "The scores' gradient is divided by the cap once more.",
            _capped(slope=lambda xp, s, tanh, cap: (1 - tanh * tanh) / cap),
        ),
        ("default-cap", "attribute", "cap-1"): (
            "Backward keeps the cap of 50.",
            mutate.attribute(softcapped_attention.vjp, cap=50.0),
        ),
        ("masked-before-cap", "index", "cap-1"): (
            "Backward masks before the cap, so that hidden slots have the score -cap.",
            _capped(hidden="before"),
        ),
        ("always-causal", "attribute index", "not-causal"): (
            "Backward masks where forward does not.",
            mutate.attribute(softcapped_attention.vjp, causal=True),
        ),
        ("k-unscaled", "scale", "typical"): (
            "dk lacks the factor 1/sqrt(d).",
            _capped(products=_k_unscaled),
        ),
    },
)
