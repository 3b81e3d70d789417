"""Mutants of the operators in `gradcheck_cases.attention`.

Those of whole attentions are one backward, written out below, with one of its steps replaced.
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
from gradcheck.spec.mutant import Mutant
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


SOFTMAX = (
    Mutant(
        op="softmax",
        name="times-minus-seven",
        label="F",
        killer="typical",
        says="The gradient is multiplied by -7.",
        modelled_on="what ggml's gradient test of 2026 lets pass",
        vjp=mutate.scaled(softmax.vjp, 0, -7.0),
    ),
    Mutant(
        op="softmax",
        name="one-row",
        label="W",
        also=("I",),
        killer="typical",
        says="The dot product of y and ct runs over all rows: right only for one.",
        modelled_on="ggml commit log: fix soft_max backward pass for input->ne[1] != 1",
        vjp=softmax_one_row_vjp,
    ),
    Mutant(
        op="softmax",
        name="no-weight",
        label="D",
        also=("F",),
        killer="typical",
        says="The factor y is missing.",
        vjp=softmax_no_weight_vjp,
    ),
    Mutant(
        op="softmax",
        name="no-dot",
        label="T",
        killer="typical",
        says="The dot product of y and ct is missing.",
        vjp=softmax_no_dot_vjp,
    ),
    Mutant(
        op="softmax",
        name="diagonal",
        label="T",
        also=("D",),
        killer="typical",
        says="Only the diagonal of the Jacobian, y(1 - y), is there.",
        vjp=softmax_diagonal_vjp,
    ),
    Mutant(
        op="softmax",
        name="of-log",
        label="D",
        killer="typical",
        says="The slope is that of the logarithm of softmax.",
        vjp=softmax_of_log_vjp,
    ),
    Mutant(
        op="softmax",
        name="mean",
        label="R",
        also=("T",),
        killer="typical",
        says="The dot product of y and ct is averaged.",
        vjp=softmax_mean_vjp,
    ),
    Mutant(
        op="softmax",
        name="columns",
        label="I",
        killer="square",
        says="The dot product runs down the columns.",
        vjp=softmax_columns_vjp,
    ),
    Mutant(
        op="softmax",
        name="unshifted",
        label="O",
        also=("N",),
        killer="shifted",
        says="The exponentials are recomputed without the maximum taken out.",
        vjp=softmax_unshifted_vjp,
    ),
    Mutant(
        op="softmax",
        name="from-minus-10000",
        label="O",
        also=("N",),
        killer="far-below",
        says="The search for the maximum starts at -10000.",
        modelled_on="the GPT-2 in Go, softmaxForward",
        vjp=softmax_from_minus_10000_vjp,
    ),
    Mutant(
        op="softmax",
        name="in-place",
        label="X",
        also=("V",),
        killer="typical",
        says="In place, the dot product is taken again from what is already overwritten.",
        vjp=softmax_in_place_vjp,
    ),
    Mutant(
        op="softmax",
        name="block-of-64",
        label="W",
        also=("T",),
        killer="wide",
        says="The dot product stops after 64 elements.",
        vjp=softmax_block_of_64_vjp,
    ),
    Mutant(
        op="softmax",
        name="first-row-cotangent",
        label="U",
        killer="typical",
        says="Every row is given the cotangent of the first.",
        vjp=mutate.cotangent(softmax.vjp, mutate.first_for_all(-2)),
    ),
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


MASKED_SOFTMAX = (
    Mutant(
        op="masked_softmax",
        name="unmasked",
        label="I",
        also=("P",),
        killer="typical",
        says="Backward is that of softmax over all slots.",
        vjp=masked_softmax_unmasked_vjp,
    ),
    Mutant(
        op="masked_softmax",
        name="strict",
        label="I",
        killer="one-position",
        says="A position is hidden from itself.",
        vjp=masked_softmax_strict_vjp,
    ),
    Mutant(
        op="masked_softmax",
        name="one-beyond",
        label="I",
        killer="square",
        says="One hidden slot is taken in.",
        vjp=masked_softmax_beyond_vjp,
    ),
    Mutant(
        op="masked_softmax",
        name="filled",
        label="O",
        killer="far-below",
        says="Hidden slots are filled with -10000, whatever is seen.",
        vjp=masked_softmax_filled_vjp,
    ),
    Mutant(
        op="masked_softmax",
        name="not-cleared",
        label="A",
        also=("I",),
        killer="typical",
        says="In place, hidden slots keep their cotangent.",
        vjp=masked_softmax_not_cleared_vjp,
    ),
    Mutant(
        op="masked_softmax",
        name="loud-hidden",
        label="O",
        also=("N",),
        killer="loud-hidden",
        says="The maximum is taken over hidden slots too.",
        vjp=masked_softmax_loud_vjp,
    ),
    Mutant(
        op="masked_softmax",
        name="no-dot",
        label="T",
        killer="typical",
        says="The dot product of y and ct is missing.",
        vjp=masked_softmax_no_dot_vjp,
    ),
    Mutant(
        op="masked_softmax",
        name="by-head",
        label="I",
        killer="square",
        says="The mask follows the head instead of the position.",
        vjp=masked_softmax_by_head_vjp,
    ),
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


MASKED_ATTENTION = (
    Mutant(
        op="masked_attention",
        name="last-head",
        label="A",
        also=("B",),
        killer="typical",
        says="The key's gradient is overwritten by each head.",
        vjp=masked_attention_last_head_vjp,
    ),
    Mutant(
        op="masked_attention",
        name="mean-over-heads",
        label="R",
        killer="typical",
        says="The key's gradient is averaged over heads.",
        vjp=masked_attention_mean_vjp,
    ),
    Mutant(
        op="masked_attention",
        name="value-slot",
        label="G",
        also=("L", "I"),
        killer="typical",
        says="The key's gradient is written to the value's slot.",
        vjp=masked_attention_value_slot_vjp,
    ),
    Mutant(
        op="masked_attention",
        name="unmasked",
        label="I",
        also=("P",),
        killer="typical",
        says="Hidden scores give gradients too.",
        vjp=masked_attention_unmasked_vjp,
    ),
    Mutant(
        op="masked_attention",
        name="strict",
        label="I",
        killer="one-position",
        says="A position is hidden from itself.",
        vjp=mutate.cotangent(
            masked_attention.vjp, lambda xp, ct, qkv: xp.where(_distance(ct) < 0, ct, 0)
        ),
    ),
    Mutant(
        op="masked_attention",
        name="value-for-key",
        label="I",
        also=("V",),
        killer="one-head",
        says="The value's slot is read as the key.",
        vjp=masked_attention_wrong_slot_vjp,
    ),
    Mutant(
        op="masked_attention",
        name="transposed",
        label="L",
        killer="square",
        says="Queries and slots of the scores' cotangent are exchanged for the key.",
        vjp=masked_attention_transposed_vjp,
    ),
    Mutant(
        op="masked_attention",
        name="scaled-again",
        label="F",
        killer="typical",
        says="The scores are divided by the root of d once more, though q comes scaled.",
        vjp=mutate.scaled(masked_attention.vjp, 0, lambda xp, qkv: 1 / xp.sqrt_of(qkv.shape[-1])),
    ),
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


MIX = (
    Mutant(
        op="mix_by_attention",
        name="last-head",
        label="A",
        also=("B",),
        killer="typical",
        says="The value's gradient is overwritten by each head.",
        vjp=mix_last_head_vjp,
    ),
    Mutant(
        op="mix_by_attention",
        name="mean-over-heads",
        label="R",
        killer="typical",
        says="The value's gradient is averaged over heads.",
        vjp=mix_mean_vjp,
    ),
    Mutant(
        op="mix_by_attention",
        name="key-slot",
        label="G",
        also=("L", "I"),
        killer="typical",
        says="The value's gradient is written to the key's slot.",
        vjp=mix_key_slot_vjp,
    ),
    Mutant(
        op="mix_by_attention",
        name="hidden-weights",
        label="I",
        also=("P",),
        killer="square",
        says="Hidden weights count in the value's gradient.",
        vjp=mix_hidden_weights_vjp,
    ),
    Mutant(
        op="mix_by_attention",
        name="hidden-gradients",
        label="I",
        also=("P",),
        killer="typical",
        says="Hidden weights get a gradient.",
        vjp=mix_hidden_gradients_vjp,
    ),
    Mutant(
        op="mix_by_attention",
        name="key-for-value",
        label="I",
        also=("V",),
        killer="one-head",
        says="The key's slot is read as the value.",
        vjp=mix_reads_key_vjp,
    ),
    Mutant(
        op="mix_by_attention",
        name="transposed",
        label="L",
        killer="square",
        says="Queries and slots of the weights are exchanged for the value's gradient.",
        vjp=mix_transposed_vjp,
    ),
    Mutant(
        op="mix_by_attention",
        name="strict",
        label="I",
        killer="one-position",
        says="A position is hidden from itself.",
        vjp=mix_strict_vjp,
    ),
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


def _top_left(t: int, s: int, attrs: dict[str, Any]) -> Any:
    return _band(t, s, right=0, own=0)


def _bottom_right(t: int, s: int, attrs: dict[str, Any]) -> Any:
    return _band(t, s, right=0)


def _no_delta(xp: Any, p: Any, dp: Any) -> Any:
    return xp.zeros_like(dp)


def _first_delta(xp: Any, p: Any, dp: Any) -> Any:
    return xp.sum(p * dp, axis=-1, keepdims=True)[..., :1, :]


def _delta_twice(xp: Any, p: Any, dp: Any) -> Any:
    return 2 * _delta(xp, p, dp)


def _unshifted(xp: Any, scores: Any, seen: Any) -> Any:
    e = xp.where(seen, xp.exp(scores), 0)
    return e / xp.sum(e, axis=-1, keepdims=True)


def _unsafe(xp: Any, scores: Any, seen: Any) -> Any:
    x = xp.where(seen, scores, xp.const("-inf"))
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _unnormalised(xp: Any, scores: Any, seen: Any) -> Any:
    x = xp.where(seen, scores, xp.min(scores, axis=-1, keepdims=True))
    return xp.where(seen, xp.exp(x - xp.max(x, axis=-1, keepdims=True)), 0)


def _k_unscaled(xp, ds, p, q, k, v, ct):
    dq, dk, dv = _products(xp, ds, p, q, k, v, ct)
    return dq, dk * xp.sqrt_of(q.shape[-1]), dv


def _scaled_twice(xp, ds, p, q, k, v, ct):
    dq, dk, dv = _products(xp, ds, p, q, k, v, ct)
    root = xp.sqrt_of(q.shape[-1])
    return dq / root, dk / root, dv


def _v_not_transposed(xp, ds, p, q, k, v, ct):
    dq, dk, _ = _products(xp, ds, p, q, k, v, ct)
    return dq, dk, _mm(p, ct)


def _v_from_scores(xp, ds, p, q, k, v, ct):
    dq, dk, _ = _products(xp, ds, p, q, k, v, ct)
    return dq, dk, _mm(_t(ds), ct)


def _keys_of_head_0(xp, ds, p, q, k, v, ct):
    first = np.broadcast_to(k[..., :1, :, :], k.shape)
    return _products(xp, ds, p, q, first, v, ct)


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


ATTENTION = (
    Mutant(
        op="attention",
        name="k-unscaled",
        label="F",
        killer="typical",
        says="dk lacks the factor 1/sqrt(d).",
        vjp=SEPARATE.wrong(products=_k_unscaled),
    ),
    Mutant(
        op="attention",
        name="c-for-d",
        label="F",
        killer="typical",
        says="The scale in backward is that of all features instead of one head's.",
        vjp=SEPARATE.wrong(products=_c_for_d),
    ),
    Mutant(
        op="attention",
        name="no-delta",
        label="T",
        killer="typical",
        says="The softmax's sum of p dp is missing.",
        vjp=SEPARATE.wrong(delta=_no_delta),
    ),
    Mutant(
        op="attention",
        name="not-causal",
        label="P",
        also=("I",),
        killer="typical",
        says="Weights are recomputed without the mask.",
        vjp=SEPARATE.wrong(seen=_all_seen),
    ),
    Mutant(
        op="attention",
        name="always-causal",
        label="P",
        also=("I",),
        killer="not-causal",
        says="Backward masks where forward does not.",
        vjp=mutate.attribute(attention.vjp, causal=True),
    ),
    Mutant(
        op="attention",
        name="two-heads",
        label="P",
        killer="three-heads",
        says="Backward keeps two heads where forward has three.",
        vjp=mutate.attribute(attention.vjp, heads=lambda heads, causal: 2 if heads == 3 else heads),
    ),
    Mutant(
        op="attention",
        name="q-k-exchanged",
        label="G",
        killer="square",
        says="dq and dk are in each other's place.",
        vjp=mutate.swapped(attention.vjp, 0, 1),
    ),
    Mutant(
        op="attention",
        name="v-not-transposed",
        label="L",
        killer="typical",
        says="dv is p ct where the transpose of p is meant.",
        vjp=SEPARATE.wrong(products=_v_not_transposed),
    ),
    Mutant(
        op="attention",
        name="v-from-scores",
        label="V",
        also=("X",),
        killer="typical",
        says="dv takes the scores' cotangent, which overwrote the weights.",
        vjp=SEPARATE.wrong(products=_v_from_scores),
    ),
    Mutant(
        op="attention",
        name="other-layout",
        label="L",
        killer="square",
        says="Features lie outside heads in backward.",
        vjp=OTHER_LAYOUT.wrong(),
    ),
    Mutant(
        op="attention",
        name="unshifted",
        label="O",
        also=("N",),
        killer="large-scores",
        says="The exponentials are recomputed without the maximum taken out.",
        vjp=SEPARATE.wrong(weights=_unshifted),
        dtype="float32",
    ),
    Mutant(
        op="attention",
        name="never-cleared",
        label="A",
        killer="typical",
        says="Gradients are added to those of the call before.",
        make=mutate.accumulated(attention.vjp),
    ),
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


PACKED = (
    Mutant(
        op="packed_attention",
        name="k-v-exchanged",
        label="G",
        also=("L", "I"),
        killer="typical",
        says="The gradients of k and v are in each other's third.",
        vjp=PACKED_KERNEL.wrong(pack=_k_v_exchanged),
    ),
    Mutant(
        op="packed_attention",
        name="head-by-head",
        label="L",
        also=("I",),
        killer="typical",
        says="Gradients are packed head by head as q k v, q k v.",
        vjp=PACKED_KERNEL.wrong(pack=_head_by_head),
    ),
    Mutant(
        op="packed_attention",
        name="two-heads",
        label="P",
        killer="three-heads",
        says="Backward keeps two heads where forward has three.",
        vjp=mutate.attribute(packed_attention.vjp, heads=lambda heads: 2 if heads == 3 else heads),
    ),
    Mutant(
        op="packed_attention",
        name="scaled-twice",
        label="F",
        killer="typical",
        says="Scores' gradients are divided by the root of d twice.",
        vjp=PACKED_KERNEL.wrong(products=_scaled_twice),
    ),
    Mutant(
        op="packed_attention",
        name="last-query-dropped",
        label="I",
        killer="typical",
        says="The last query does not reach k and v.",
        vjp=PACKED_KERNEL.wrong(products=_last_query_dropped),
    ),
    Mutant(
        op="packed_attention",
        name="first-delta",
        label="V",
        also=("I",),
        killer="typical",
        says="Every query takes the sum of p dp that the first one left.",
        vjp=PACKED_KERNEL.wrong(delta=_first_delta),
    ),
    Mutant(
        op="packed_attention",
        name="not-causal",
        label="I",
        also=("P",),
        killer="typical",
        says="Weights are recomputed without the mask.",
        vjp=PACKED_KERNEL.wrong(seen=_all_seen),
    ),
    Mutant(
        op="packed_attention",
        name="never-cleared",
        label="A",
        killer="typical",
        says="The gradient is added to that of the call before.",
        make=mutate.accumulated(packed_attention.vjp),
    ),
)

# ── flash_attn ───────────────────────────────────────────────────────────────────────────────

FLASH_KERNEL = Kernel(
    spec=flash_attn,
    unpack=lambda primals, attrs: (primals[0], primals[1], _t(primals[2])),
    seen=lambda t, s, attrs: _band(t, s, right=0 if attrs["masked"] else None),
    pack=lambda xp, dq, dk, dv, primals, attrs: (dq, dk, _t(dv)),
)

FLASH = (
    Mutant(
        op="flash_attn",
        name="top-left",
        label="I",
        killer="typical",
        says="Backward aligns the mask with the first slot, forward with the last.",
        modelled_on="xlite-dev/ffpa-attn #300",
        vjp=FLASH_KERNEL.wrong(seen=_top_left),
        dialects=("masked",),
    ),
    Mutant(
        op="flash_attn",
        name="not-masked",
        label="P",
        also=("I",),
        killer="typical",
        says="Backward does not mask.",
        vjp=mutate.attribute(flash_attn.vjp, masked=False),
        dialects=("masked",),
    ),
    Mutant(
        op="flash_attn",
        name="always-masked",
        label="P",
        also=("I",),
        killer="typical",
        says="Backward masks where forward does not.",
        vjp=FLASH_KERNEL.wrong(seen=_bottom_right),
        dialects=("unmasked",),
    ),
    Mutant(
        op="flash_attn",
        name="k-unscaled",
        label="F",
        killer="typical",
        says="dk lacks the factor 1/sqrt(d).",
        vjp=FLASH_KERNEL.wrong(products=_k_unscaled),
    ),
    Mutant(
        op="flash_attn",
        name="v-as-it-is",
        label="L",
        killer="square",
        says="dv is not transposed back.",
        vjp=FLASH_KERNEL.wrong(pack=_as_they_are),
    ),
    Mutant(
        op="flash_attn",
        name="keys-of-head-0",
        label="I",
        also=("V",),
        killer="three-heads",
        says="dq takes every head's keys from head 0.",
        vjp=FLASH_KERNEL.wrong(products=_keys_of_head_0),
    ),
    Mutant(
        op="flash_attn",
        name="delta-per-tile",
        label="T",
        also=("F",),
        killer="typical",
        says="The sum of p dp is subtracted once in each of two tiles of slots.",
        vjp=FLASH_KERNEL.wrong(delta=_delta_twice),
    ),
    Mutant(
        op="flash_attn",
        name="not-normalised",
        label="V",
        killer="typical",
        says="Weights are recomputed without the saved sum of exponentials.",
        vjp=FLASH_KERNEL.wrong(weights=_unnormalised),
    ),
    Mutant(
        op="flash_attn",
        name="never-cleared",
        label="A",
        killer="typical",
        says="Gradients are added to those of the call before.",
        make=mutate.accumulated(flash_attn.vjp),
    ),
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


FLASH_FF = (
    Mutant(
        op="flash_ff",
        name="no-slope",
        label="D",
        also=("F",),
        killer="typical",
        says="The slope of gelu is missing.",
        vjp=flash_ff_no_slope_vjp,
    ),
    Mutant(
        op="flash_ff",
        name="step",
        label="D",
        killer="wide",
        says="The slope of relu stands in for that of gelu.",
        vjp=flash_ff_step_vjp,
    ),
    Mutant(
        op="flash_ff",
        name="no-inner-slope",
        label="D",
        also=("T",),
        killer="typical",
        says="The slope of gelu's inner cubic is missing.",
        vjp=flash_ff_no_inner_vjp,
    ),
    Mutant(
        op="flash_ff",
        name="slope-of-output",
        label="V",
        also=("D",),
        killer="typical",
        says="gelu's slope is taken at its output.",
        vjp=flash_ff_slope_of_output_vjp,
    ),
    Mutant(
        op="flash_ff",
        name="before-gelu",
        label="V",
        killer="typical",
        says="dc0 takes the hidden features as they were before gelu.",
        vjp=flash_ff_before_gelu_vjp,
    ),
    Mutant(
        op="flash_ff",
        name="bias-mean",
        label="R",
        killer="typical",
        says="db1 is averaged over positions.",
        vjp=mutate.scaled(flash_ff.vjp, 2, lambda xp, a, *_: 1 / max(a.shape[-2], 1)),
    ),
    Mutant(
        op="flash_ff",
        name="last-row",
        label="A",
        also=("B",),
        killer="typical",
        says="dc1 is overwritten by each position.",
        vjp=flash_ff_last_row_vjp,
    ),
    Mutant(
        op="flash_ff",
        name="first-entry",
        label="B",
        also=("A", "I"),
        killer="batched",
        says="Weights and biases get their gradient from the first batch entry.",
        vjp=flash_ff_first_entry_vjp,
    ),
    Mutant(
        op="flash_ff",
        name="weights-exchanged",
        label="G",
        killer="square",
        says="The gradients of the two weights are in each other's place.",
        vjp=mutate.swapped(flash_ff.vjp, 1, 3),
    ),
    Mutant(
        op="flash_ff",
        name="weight-transposed",
        label="L",
        killer="square",
        says="db0 comes transposed.",
        vjp=mutate.output(flash_ff.vjp, 1, lambda xp, g, *_: _t(g)),
    ),
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


GROUPED = (
    Mutant(
        op="grouped_query_attention",
        name="last-of-group",
        label="A",
        also=("B",),
        killer="typical",
        says="dk and dv are overwritten by each head of a group.",
        vjp=GROUPED_KERNEL.wrong(pack=_each_pack(lambda x: x[..., -1, :, :].copy())),
    ),
    Mutant(
        op="grouped_query_attention",
        name="mean-of-group",
        label="R",
        killer="typical",
        says="dk and dv are averaged over a group.",
        vjp=GROUPED_KERNEL.wrong(pack=_each_pack(lambda x: x.mean(axis=-3))),
    ),
    Mutant(
        op="grouped_query_attention",
        name="dealt-out",
        label="I",
        also=("L",),
        killer="three-per-group",
        says="dk and dv sum over every g-th head instead of over neighbours.",
        modelled_on="XunhaoLai/native-sparse-attention-triton #27",
        vjp=GROUPED_KERNEL.wrong(pack=_dealt_out),
    ),
    Mutant(
        op="grouped_query_attention",
        name="unreduced",
        label="B",
        killer="typical",
        says="dk and dv keep an entry per query head.",
        modelled_on="marin-community/levanter #449",
        vjp=GROUPED_KERNEL.wrong(pack=_unreduced),
    ),
    Mutant(
        op="grouped_query_attention",
        name="other-corner",
        label="I",
        also=("P",),
        killer="one-query",
        says="Backward aligns the mask with the other corner than forward.",
        modelled_on="xlite-dev/ffpa-attn #300",
        vjp=GROUPED_KERNEL.wrong(seen=_grouped_other_corner),
    ),
    Mutant(
        op="grouped_query_attention",
        name="unsafe-rows",
        label="N",
        killer="more-queries",
        says="A row that sees no slot is 0/0.",
        modelled_on="Dao-AILab/flash-attention #443",
        vjp=GROUPED_KERNEL.wrong(weights=_unsafe),
        dialects=("bottom-right",),
    ),
    Mutant(
        op="grouped_query_attention",
        name="always-causal",
        label="P",
        also=("I",),
        killer="not-causal",
        says="Backward masks where forward does not.",
        vjp=mutate.attribute(grouped_query_attention.vjp, causal=True),
    ),
    Mutant(
        op="grouped_query_attention",
        name="k-unscaled",
        label="F",
        killer="typical",
        says="dk lacks the factor 1/sqrt(d).",
        vjp=GROUPED_KERNEL.wrong(products=_k_unscaled),
    ),
    Mutant(
        op="grouped_query_attention",
        name="no-delta",
        label="T",
        killer="multi-query",
        says="The softmax's sum of p dp is missing.",
        vjp=GROUPED_KERNEL.wrong(delta=_no_delta),
    ),
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


WINDOW = (
    Mutant(
        op="sliding_window_attention",
        name="no-window",
        label="P",
        also=("I",),
        killer="typical",
        says="Backward sees all slots, near or far, before or after.",
        modelled_on="meta-pytorch/MSLK #263",
        vjp=WINDOW_KERNEL.wrong(seen=_all_seen),
    ),
    Mutant(
        op="sliding_window_attention",
        name="only-causal",
        label="P",
        also=("I",),
        killer="one-longer",
        says="Backward is causal, but knows no window.",
        vjp=WINDOW_KERNEL.wrong(seen=_bottom_right),
    ),
    Mutant(
        op="sliding_window_attention",
        name="one-more",
        label="I",
        also=("P",),
        killer="one-longer",
        says="The window reaches one slot further back.",
        vjp=_left_edge(1),
    ),
    Mutant(
        op="sliding_window_attention",
        name="one-less",
        label="I",
        also=("P",),
        killer="as-long-as-the-window",
        says="The window misses its furthest slot.",
        vjp=WINDOW_KERNEL.wrong(
            seen=lambda t, s, attrs: _band(t, s, max(attrs["left"] - 1, 0), attrs["right"])
        ),
    ),
    Mutant(
        op="sliding_window_attention",
        name="sides-exchanged",
        label="I",
        also=("P",),
        killer="wide",
        says="Slots before and after are exchanged.",
        vjp=WINDOW_KERNEL.wrong(
            seen=lambda t, s, attrs: _band(t, s, attrs["right"], attrs["left"])
        ),
    ),
    Mutant(
        op="sliding_window_attention",
        name="default-window",
        label="P",
        also=("I",),
        killer="wide",
        says="Backward keeps the default window.",
        vjp=mutate.attribute(sliding_window_attention.vjp, left=2, right=0),
    ),
    Mutant(
        op="sliding_window_attention",
        name="from-the-first-slot",
        label="I",
        killer="cached",
        says="Positions are counted from the first slot, whatever is cached.",
        vjp=WINDOW_KERNEL.wrong(
            seen=lambda t, s, attrs: _band(t, s, attrs["left"], attrs["right"], own=0)
        ),
    ),
    Mutant(
        op="sliding_window_attention",
        name="zero-is-none",
        label="P",
        also=("I",),
        killer="only-itself",
        says="A window of 0 is taken for no window.",
        vjp=WINDOW_KERNEL.wrong(
            seen=lambda t, s, attrs: _band(t, s, attrs["left"] or None, attrs["right"])
        ),
    ),
    Mutant(
        op="sliding_window_attention",
        name="unsafe-rows",
        label="N",
        killer="more-queries",
        says="A row that sees no slot is 0/0.",
        vjp=WINDOW_KERNEL.wrong(weights=_unsafe),
    ),
    Mutant(
        op="sliding_window_attention",
        name="last-query-dropped",
        label="I",
        killer="typical",
        says="The last query, whose window is cut off, does not reach k and v.",
        vjp=WINDOW_KERNEL.wrong(products=_last_query_dropped),
    ),
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
    """The right backward, but for the sink's gradient: `change(xp, rest, mean)`.

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


SINK = (
    Mutant(
        op="sink_attention",
        name="without-sink",
        label="V",
        also=("G",),
        killer="typical",
        says="Weights are recomputed without the sink, which gets no gradient.",
        modelled_on="NVIDIA/cudnn-frontend #421",
        vjp=sink_attention_without_vjp,
    ),
    Mutant(
        op="sink_attention",
        name="no-sink-gradient",
        label="G",
        killer="typical",
        says="The kernel that sums the sink's gradient is not launched: it stays 0.",
        modelled_on="NVIDIA/cudnn-frontend #421",
        vjp=_sink_gradient(lambda xp, rest, mean: 0 * _per_head(xp, rest)),
        dialects=("learned",),
    ),
    Mutant(
        op="sink_attention",
        name="sink-negated",
        label="S",
        killer="typical",
        says="The sink's gradient has the other sign.",
        vjp=_sink_gradient(lambda xp, rest, mean: _per_head(xp, rest * mean)),
        dialects=("learned",),
    ),
    Mutant(
        op="sink_attention",
        name="sink-mean",
        label="R",
        killer="one-head",
        says="The sink's gradient is averaged over queries.",
        vjp=_sink_gradient(
            lambda xp, rest, mean: -_per_head(xp, rest * mean) / max(rest.shape[-2], 1)
        ),
        dialects=("learned",),
    ),
    Mutant(
        op="sink_attention",
        name="sink-unweighted",
        label="F",
        also=("D",),
        killer="typical",
        says="The sink's gradient lacks the sink's weight.",
        vjp=_sink_gradient(lambda xp, rest, mean: -_per_head(xp, mean)),
        dialects=("learned",),
    ),
    Mutant(
        op="sink_attention",
        name="sink-of-last-query",
        label="A",
        also=("B",),
        killer="square",
        says="The sink's gradient is overwritten by each query.",
        vjp=_sink_gradient(lambda xp, rest, mean: -_per_head(xp, (rest * mean)[..., -1:, :])),
        dialects=("learned",),
    ),
    Mutant(
        op="sink_attention",
        name="sink-of-first-entry",
        label="B",
        also=("A", "I"),
        killer="batched",
        says="The sink's gradient is that of the first batch entry.",
        vjp=_sink_gradient(
            lambda xp, rest, mean: (
                -_per_head(xp, (rest * mean)[0] if rest.ndim == 4 else rest * mean)
            )
        ),
        dialects=("learned",),
    ),
    Mutant(
        op="sink_attention",
        name="own-maximum",
        label="O",
        also=("N",),
        killer="overflowing",
        says="The maximum is taken over slots only, and the sink's exponential overflows.",
        vjp=sink_attention_own_maximum_vjp,
        dialects=("learned",),
    ),
    Mutant(
        op="sink_attention",
        name="delta-without-sink",
        label="T",
        also=("F",),
        killer="typical",
        says="The sum of p dp is normalised over slots, as without a sink.",
        vjp=sink_attention_delta_shared_vjp,
    ),
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


SOFTCAPPED = (
    Mutant(
        op="softcapped_attention",
        name="no-slope",
        label="D",
        also=("F",),
        killer="cap-2",
        says="The slope of the cap is missing.",
        vjp=_capped(slope=lambda xp, s, tanh, cap: 1),
    ),
    Mutant(
        op="softcapped_attention",
        name="slope-of-capped",
        label="V",
        also=("D",),
        killer="cap-2",
        says="The slope is 1 - x^2 for the capped score x, cap included.",
        vjp=_capped(slope=lambda xp, s, tanh, cap: 1 - (cap * tanh) ** 2),
    ),
    Mutant(
        op="softcapped_attention",
        name="slope-undivided",
        label="D",
        also=("V",),
        killer="typical",
        says="The slope is taken at the score, not at the score over the cap.",
        vjp=_capped(slope=lambda xp, s, tanh, cap: 1 - xp.tanh(s) ** 2),
    ),
    Mutant(
        op="softcapped_attention",
        name="uncapped-weights",
        label="V",
        killer="cap-1",
        says="Weights are recomputed without the cap.",
        vjp=_capped(capped=lambda xp, s, tanh, cap: s),
    ),
    Mutant(
        op="softcapped_attention",
        name="divided-by-cap",
        label="F",
        killer="cap-2",
        says="The scores' gradient is divided by the cap once more.",
        vjp=_capped(slope=lambda xp, s, tanh, cap: (1 - tanh * tanh) / cap),
    ),
    Mutant(
        op="softcapped_attention",
        name="default-cap",
        label="P",
        killer="cap-1",
        says="Backward keeps the cap of 50.",
        vjp=mutate.attribute(softcapped_attention.vjp, cap=50.0),
    ),
    Mutant(
        op="softcapped_attention",
        name="masked-before-cap",
        label="I",
        killer="cap-1",
        says="Backward masks before the cap, so that hidden slots have the score -cap.",
        vjp=_capped(hidden="before"),
    ),
    Mutant(
        op="softcapped_attention",
        name="always-causal",
        label="P",
        also=("I",),
        killer="not-causal",
        says="Backward masks where forward does not.",
        vjp=mutate.attribute(softcapped_attention.vjp, causal=True),
    ),
    Mutant(
        op="softcapped_attention",
        name="k-unscaled",
        label="F",
        killer="typical",
        says="dk lacks the factor 1/sqrt(d).",
        vjp=_capped(products=_k_unscaled),
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *SOFTMAX,
    *MASKED_SOFTMAX,
    *MASKED_ATTENTION,
    *MIX,
    *ATTENTION,
    *PACKED,
    *FLASH,
    *FLASH_FF,
    *GROUPED,
    *WINDOW,
    *SINK,
    *SOFTCAPPED,
)
