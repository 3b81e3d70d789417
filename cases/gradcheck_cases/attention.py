"""Softmax and attention: whole, in Gemma's parts, and its modern variants; flash_ff.

Axes: t queries (positions), s slots (keys and values), h heads, g groups of heads that share a
key and a value, d features of a head, f features of a value, c = h·d features, e = 3c of packed
q, k and v, n = h + 2 packed heads, v values of a row, m hidden features of flash_ff.
Causal: query t sees the slots s ≤ t; in the variants, whose slots may outnumber the queries, the
last query sees all slots unless they say otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample

# ── softmax ──────────────────────────────────────────────────────────────────────────────────


def softmax_forward(xp, x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def softmax_vjp(xp, ct, x):
    return _softmax_pullback(xp, ct, softmax_forward(xp, x))


def _softmax_pullback(xp, ct, y):
    return y * (ct - xp.sum(y * ct, axis=-1, keepdims=True))


softmax = OpSpec(
    name="softmax",
    signature="(v)->(v)",
    forward=softmax_forward,
    vjp=softmax_vjp,
    formula=r"y_i = \frac{e^{x_i}}{\sum_j e^{x_j}}",
    source="Bridle 1990, Neurocomputing, p. 227",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7),),
            hunts="a missing sum of y ct, a missing factor y, the sum over the other axis",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4),),
            hunts="columns normalised instead of rows",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5),),
            hunts="backward that is right for one row only",
        ),
        Sample(
            name="wide",
            primals=lambda draw: (draw.normal(2, 67),),
            hunts="a row longer than a block of the kernel, its remainder lost",
        ),
        Sample(
            name="one-element",
            primals=lambda draw: (draw.normal(3, 1),),
            hunts="a gradient other than 0 where y is always 1",
        ),
        Sample(
            name="equal",
            primals=lambda draw: (np.stack([np.full(5, v) for v in (0.0, -1.5, 40.0)]),),
            exact=True,
            hunts="the derivative of the maximum leaking in at ties",
        ),
        Sample(
            name="dominant",
            primals=lambda draw: (
                draw.normal(3, 5) + np.array([[12.0], [6.0], [0.0]]) * np.eye(3, 5),
            ),
            hunts="a gradient cut off where y is near 1",
        ),
        Sample(
            name="saturated",
            # One ordinary row: if all rows were saturated, float32 would hold no information.
            primals=lambda draw: (draw.normal(3, 7) * np.array([[8.0], [8.0], [1.0]]),),
            hunts="gradients of saturated rows cut off or made up",
        ),
        Sample(
            name="shifted",
            primals=lambda draw: (
                draw.uniform(-3, 3, 3, 5) + np.array([[1000.0], [-1000.0], [0.0]]),
            ),
            hunts="exp without the maximum taken out, or with that of another row",
        ),
        Sample(
            name="far-below",
            primals=lambda draw: (draw.uniform(-3, 3, 2, 5) - 16384,),
            hunts="a search for the maximum that starts at -10000, as in the GPT-2 in Go",
        ),
        Sample(
            name="two-maxima",
            primals=lambda draw: (np.array([[2.0, 2.0, -1.0, 0.5], [0.5, 3.0, 3.0, 3.0]]),),
            exact=True,
            hunts="the largest element treated apart, where there are several",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)),),
            hunts="no row at all",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (np.log(draw.swamped(1, 131)),),
            hunts="blocks of 64 or 128 whose tail is left out, a running sum in float16 or "
            "bfloat16",
        ),
    ),
)

# ── masked_softmax ───────────────────────────────────────────────────────────────────────────


def masked_softmax_forward(xp, att):
    return _masked_softmax(xp, att, _seen(xp, att))


def masked_softmax_vjp(xp, ct, att):
    return _softmax_pullback(xp, ct, masked_softmax_forward(xp, att))  # 0 where y is 0


def _masked_softmax(xp, x, mask):
    """Softmax over the slots in `mask`, which holds slot 0; exactly 0 elsewhere."""
    x = xp.where(mask, x, x[..., :1])  # a hidden slot repeats a seen one: it cannot overflow
    e = xp.where(mask, xp.exp(x - xp.max(x, axis=-1, keepdims=True)), 0)
    return e / xp.sum(e, axis=-1, keepdims=True)


def _seen(xp, att):
    """Booleans [t, 1, s] for `att` [t, h, s]."""
    return xp.causal(att.shape[-3], att.shape[-1])[:, None, :]


masked_softmax = OpSpec(
    name="masked_softmax",
    signature="(t,h,s)->(t,h,s)",
    forward=masked_softmax_forward,
    vjp=masked_softmax_vjp,
    formula=r"y_{ths} = \frac{e^{a_{ths}}}{\sum_{r \le t} e^{a_{thr}}}\ (s \le t),\quad "
    r"0\ (s > t)",
    source="gemma.cpp, backprop/forward_scalar.h",
    dialects=(Dialect(name="gemma", says="Gemma: the softmax of masked_attention"),),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 2, 5),),
            hunts="softmax over hidden slots too, one slot too many or too few",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 3, 3),),
            hunts="a mask that follows the head instead of the position",
        ),
        Sample(
            name="more-slots",
            primals=lambda draw: (draw.normal(3, 2, 7),),
            hunts="slots beyond the last position left untouched",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: (draw.normal(1, 2, 3),),
            hunts="a gradient other than 0 where only one slot is seen",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 1, 4),),
            hunts="positions that run on from one sequence to the next",
        ),
        Sample(
            name="loud-hidden",
            primals=lambda draw: (draw.normal(3, 2, 4) + 1000 * (1 - np.tri(3, 4)[:, None, :]),),
            hunts="a maximum over hidden slots, which underflows all that are seen",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (draw.normal(4, 2, 4) * np.array([[8.0], [1.0]]),),
            hunts="gradients of saturated rows cut off or made up",
        ),
        Sample(
            name="shifted",
            primals=lambda draw: (draw.uniform(-3, 3, 3, 1, 3) + 1000,),
            hunts="exp without the maximum taken out",
        ),
        Sample(
            name="far-below",
            primals=lambda draw: (draw.uniform(-3, 3, 3, 2, 3) - 16384,),
            hunts="hidden slots filled with -10000, which is more than what is seen",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 2, 3)),),
            hunts="no position at all",
        ),
    ),
)

# ── masked_attention ─────────────────────────────────────────────────────────────────────────


def masked_attention_forward(xp, qkv):
    q, k = qkv[..., :-2, :], qkv[..., -2, :]
    scores = xp.matmul(q, xp.swapaxes(k, -1, -2)[..., None, :, :])
    return xp.where(_seen(xp, scores), scores, 0)


def masked_attention_vjp(xp, ct, qkv):
    q, k = qkv[..., :-2, :], qkv[..., -2, :]
    ct = xp.where(_seen(xp, ct), ct, 0)
    dq = xp.matmul(ct, k[..., None, :, :])
    dk = _over_heads(xp, ct, q)
    return xp.concatenate([dq, dk[..., None, :], xp.zeros_like(dq[..., :1, :])], axis=-2)


def _over_heads(xp, weights, x):
    """Σ_t Σ_h weights[t, h, s] x[t, h, d], as [s, d]."""
    rows = x.shape[-3] * x.shape[-2]
    weights = xp.reshape(weights, (*weights.shape[:-3], rows, weights.shape[-1]))
    x = xp.reshape(x, (*x.shape[:-3], rows, x.shape[-1]))
    return xp.matmul(xp.swapaxes(weights, -1, -2), x)


masked_attention = OpSpec(
    name="masked_attention",
    signature="(t,n,d)->(t,h,t)",
    forward=masked_attention_forward,
    vjp=masked_attention_vjp,
    formula=r"a_{ths} = q_{th} \cdot k_s\ (s \le t),\quad 0\ (s > t)",
    source="Shazeer 2019, arXiv:1911.02150; gemma.cpp, backprop/forward_scalar.h",
    dialects=(
        Dialect(
            name="gemma",
            says="Gemma: packed heads are h queries, one key, one value; q comes scaled",
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 4, 3),),
            hunts="the key's gradient from one head only, hidden slots that contribute",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 5, 3),),
            hunts="scores transposed: keys and queries, or heads and positions, exchanged",
        ),
        Sample(
            name="one-head",
            primals=lambda draw: (draw.normal(4, 3, 2),),
            hunts="the value slot read as the key",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: (draw.normal(1, 4, 3),),
            hunts="a strict mask, which hides a position from itself",
        ),
        Sample(
            name="one-feature",
            primals=lambda draw: (draw.normal(4, 4, 1),),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 4, 2),),
            hunts="keys of another sequence",
        ),
        Sample(
            name="uneven",
            primals=lambda draw: (draw.filled(draw.powers(3, 4, 2)),),
            hunts="small gradients lost beside large ones",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 4, 3)),),
            hunts="no position at all",
        ),
    ),
)

# ── mix_by_attention ─────────────────────────────────────────────────────────────────────────


def mix_by_attention_forward(xp, qkv, attention):
    attention = xp.where(_seen(xp, attention), attention, 0)
    return xp.matmul(attention, qkv[..., None, :, -1, :])


def mix_by_attention_vjp(xp, ct, qkv, attention):
    seen = _seen(xp, attention)
    dv = _over_heads(xp, xp.where(seen, attention, 0), ct)[..., None, :]
    dqk = xp.zeros((*dv.shape[:-2], qkv.shape[-2] - 1, dv.shape[-1]))
    datt = xp.matmul(ct, xp.swapaxes(qkv[..., None, :, -1, :], -1, -2))
    return (
        xp.reduce_to(xp.concatenate([dqk, dv], axis=-2), qkv),
        xp.reduce_to(xp.where(seen, datt, 0), attention),
    )


mix_by_attention = OpSpec(
    name="mix_by_attention",
    signature="(t,n,d),(t,h,t)->(t,h,d)",
    forward=mix_by_attention_forward,
    vjp=mix_by_attention_vjp,
    formula=r"y_{th} = \sum_{s \le t} a_{ths}\,v_s",
    source="Shazeer 2019, arXiv:1911.02150; gemma.cpp, backprop/forward_scalar.h",
    dialects=(Dialect(name="gemma", says="Gemma: packed heads are h queries, one key, one value"),),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 4, 3), draw.probabilities(5, 2, 5)),
            hunts="the value's gradient from one head only",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(3, 5, 3), draw.normal(3, 3, 3)),
            hunts="attention transposed, hidden weights that are not 0 and must not count",
        ),
        Sample(
            name="one-head",
            primals=lambda draw: (draw.normal(4, 3, 2), draw.normal(4, 1, 4)),
            hunts="the key slot read as the value",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: (draw.normal(1, 4, 3), draw.normal(1, 2, 1)),
            hunts="a strict mask, which hides a position from itself",
        ),
        Sample(
            name="one-feature",
            primals=lambda draw: (draw.normal(4, 4, 1), draw.normal(4, 2, 4)),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 4, 2), draw.normal(2, 3, 2, 3)),
            hunts="values of another sequence",
        ),
        Sample(
            name="uneven",
            primals=lambda draw: (
                draw.filled(draw.powers(3, 4, 2)),
                draw.filled(draw.powers(3, 2, 3)),
            ),
            hunts="small gradients lost beside large ones",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 4, 3)), np.zeros((0, 2, 0))),
            hunts="no position at all",
        ),
    ),
)

# ── attention ────────────────────────────────────────────────────────────────────────────────


def attention_forward(xp, q, k, v, *, heads=2, causal=True):
    q, k, v = (_split(xp, x, heads) for x in (q, k, v))
    return _merge(xp, xp.matmul(_weights(xp, q, k, causal), v))


def attention_vjp(xp, ct, q, k, v, *, heads=2, causal=True):
    primals = (q, k, v)
    q, k, v, ct = (_split(xp, x, heads) for x in (q, k, v, ct))
    a = _weights(xp, q, k, causal)
    ds = _softmax_pullback(xp, xp.matmul(ct, xp.swapaxes(v, -1, -2)), a)
    ds = ds / xp.sqrt_of(q.shape[-1])
    dq = xp.matmul(ds, k)
    dk = xp.matmul(xp.swapaxes(ds, -1, -2), q)
    dv = xp.matmul(xp.swapaxes(a, -1, -2), ct)
    return tuple(xp.reduce_to(_merge(xp, g), x) for g, x in zip((dq, dk, dv), primals, strict=True))


def _weights(xp, q, k, causal):
    """Softmax of the scaled scores, [h, t, s]."""
    scores = xp.matmul(q, xp.swapaxes(k, -1, -2)) / xp.sqrt_of(q.shape[-1])
    if not causal:
        return softmax_forward(xp, scores)
    return _masked_softmax(xp, scores, xp.causal(*scores.shape[-2:]))


def _split(xp, x, heads):
    """[t, c] as [h, t, d]."""
    x = xp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))
    return xp.swapaxes(x, -2, -3)


def _merge(xp, x):
    """[h, t, d] as [t, c]."""
    x = xp.swapaxes(x, -2, -3)
    return xp.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def _three(draw, *shape, scale=1.0):
    """Draws q times `scale`, k and v."""
    return draw.normal(*shape) * scale, draw.normal(*shape), draw.normal(*shape)


def _large_scores(draw: Any, t: int, s: int, base: float = 14.0) -> tuple[Any, ...]:
    """Draws q, k and v of four features; the last query's scores are about base²/2."""
    q, k = draw.normal(t, 4), draw.normal(s, 4)
    q[:, 0], q[-1, 0], k[:, 0] = q[:, 0] / 8, base, base + k[:, 0] / 8
    return q, k, draw.normal(s, 4)


attention = OpSpec(
    name="attention",
    signature="(t,c),(t,c),(t,c)->(t,c)",
    forward=attention_forward,
    vjp=attention_vjp,
    formula=r"y_h = \mathrm{softmax}\!\left(\frac{q_h k_h^\top}{\sqrt d} + m\right) v_h,\quad "
    r"m_{ts} = -\infty\ (s > t)",
    source="Vaswani et al. 2017, arXiv:1706.03762",
    dialects=(Dialect(name="separate", says="the Llama trainer: q, k and v apart, causal"),),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _three(draw, 5, 6),
            hunts="dk without 1/sqrt(d), dq and dk exchanged, a missing sum in softmax",
        ),
        Sample(
            name="square",
            primals=lambda draw: _three(draw, 4, 8),
            hunts="keys transposed where t = d, heads laid out d by h",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: _three(draw, 1, 6),
            hunts="dq and dk other than 0 where a query sees one slot only",
        ),
        Sample(
            name="one-head",
            primals=lambda draw: _three(draw, 3, 5),
            attrs={"heads": 1},
            hunts="a scale from c/2 instead of the head size",
        ),
        Sample(
            name="three-heads",
            primals=lambda draw: _three(draw, 3, 6),
            attrs={"heads": 3},
            hunts="backward with another number of heads than forward",
        ),
        Sample(
            name="one-feature",
            primals=lambda draw: _three(draw, 4, 2),
            hunts="an axis of size 1 dropped where d = 1",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _three(draw, 2, 3, 4),
            hunts="keys of another sequence",
        ),
        Sample(
            name="not-causal",
            primals=lambda draw: _three(draw, 3, 4),
            attrs={"causal": False},
            hunts="backward that masks where forward does not",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: _three(draw, 4, 4, scale=np.array([[8.0], [1.0], [8.0], [1.0]])),
            hunts="exp without the maximum taken out, gradients cut off at weights near 1",
        ),
        Sample(
            name="large-scores",
            primals=lambda draw: _large_scores(draw, 4, 4),
            attrs={"heads": 1},
            hunts="exp without the maximum taken out, which overflows in float32",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _three(draw, 0, 3, 4),
            hunts="a batch without sequences",
        ),
    ),
)

# ── packed_attention ─────────────────────────────────────────────────────────────────────────


def packed_attention_forward(xp, x, *, heads=2):
    return attention_forward(xp, *_thirds(x), heads=heads)


def packed_attention_vjp(xp, ct, x, *, heads=2):
    return xp.concatenate(attention_vjp(xp, ct, *_thirds(x), heads=heads), axis=-1)


def _thirds(x):
    c = x.shape[-1] // 3
    return x[..., :c], x[..., c : 2 * c], x[..., 2 * c :]


packed_attention = OpSpec(
    name="packed_attention",
    signature="(t,e)->(t,c)",
    forward=packed_attention_forward,
    vjp=packed_attention_vjp,
    formula=r"y = \mathrm{attention}(q, k, v),\quad x = (q \mid k \mid v)",
    source="Radford et al. 2019; openai/gpt-2, src/model.py; llm.go, attentionBackward",
    dialects=(Dialect(name="gpt2", says="GPT-2: one tensor holds q, k and v side by side"),),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 12),),
            hunts="the three thirds in another order, heads packed as q k v, q k v",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(2, 12),),
            hunts="keys transposed where t = d = heads",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: (draw.normal(1, 12),),
            hunts="dq and dk other than 0 where a query sees one slot only",
        ),
        Sample(
            name="one-head",
            primals=lambda draw: (draw.normal(3, 9),),
            attrs={"heads": 1},
            hunts="thirds of a head taken for heads",
        ),
        Sample(
            name="three-heads",
            primals=lambda draw: (draw.normal(2, 18),),
            attrs={"heads": 3},
            hunts="backward with another number of heads than forward",
        ),
        Sample(
            name="one-feature",
            primals=lambda draw: (draw.normal(4, 6),),
            hunts="an axis of size 1 dropped where d = 1",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 6),),
            hunts="keys of another sequence, the batch's stride without the factor 3",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (
                draw.normal(3, 12)
                * np.where(np.arange(12) < 4, np.array([[8.0], [1.0], [8.0]]), 1.0),
            ),
            hunts="exp without the maximum taken out, gradients cut off at weights near 1",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 2, 6)),),
            hunts="a batch without sequences",
        ),
    ),
)

# ── what the variants share ──────────────────────────────────────────────────────────────────


def _band(q: Any, k: Any, left: int | None, right: int | None, top_left: bool = False) -> Any:
    """Booleans [t, s]: slots from `left` before the query's own to `right` after it.

    None is no limit. The last query's own slot is the last one, or query 0's is slot 0
    (`top_left`).
    """
    queries, slots = q.shape[-2], k.shape[-2]
    own = np.arange(queries)[:, None] + (0 if top_left else slots - queries)
    distance = np.arange(slots) - own
    seen = np.ones((queries, slots), dtype=bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return seen


def _softmax_over(xp: Any, scores: Any, seen: Any) -> Any:
    """Softmax over the slots in `seen`; 0 elsewhere, and all over a row that sees none."""
    low = xp.min(scores, axis=-1, keepdims=True)
    x = xp.where(seen, scores, low)  # a hidden slot is never the largest
    e = xp.where(seen, xp.exp(x - xp.max(x, axis=-1, keepdims=True)), 0)
    total = xp.sum(e, axis=-1, keepdims=True)
    return e / xp.where(seen.any(axis=-1, keepdims=True), total, 1)


def _scores(xp: Any, q: Any, k: Any) -> Any:
    """q·k/√d, [t, s]."""
    return xp.matmul(q, xp.swapaxes(k, -1, -2)) / xp.sqrt_of(q.shape[-1])


def _scores_pullback(xp: Any, ds: Any, q: Any, k: Any) -> tuple[Any, Any]:
    """Cotangents of q and k for the cotangent `ds` of their scores."""
    ds = ds / xp.sqrt_of(q.shape[-1])
    return xp.matmul(ds, k), xp.matmul(xp.swapaxes(ds, -1, -2), q)


def _mix_pullback(xp: Any, ct: Any, a: Any, v: Any) -> tuple[Any, Any]:
    """Cotangents of the weights a and of v for the cotangent `ct` of a v."""
    return xp.matmul(ct, xp.swapaxes(v, -1, -2)), xp.matmul(xp.swapaxes(a, -1, -2), ct)


def _qkv(
    draw: Any, q: tuple[int, ...], k: tuple[int, ...], f: int = 0, scale: float = 1.0
) -> tuple[Any, ...]:
    """Draws q times `scale`, k, and v with `f` features (0: as many as k)."""
    return draw.normal(*q) * scale, draw.normal(*k), draw.normal(*k[:-1], f or k[-1])


# ── flash_attn ───────────────────────────────────────────────────────────────────────────────


def flash_attn_forward(xp, q, k, v, *, masked=True):
    a = _flash_weights(xp, q, k, masked)
    return xp.matmul(a, xp.swapaxes(v, -1, -2))


def flash_attn_vjp(xp, ct, q, k, v, *, masked=True):
    a = _flash_weights(xp, q, k, masked)
    da, dv = _mix_pullback(xp, ct, a, xp.swapaxes(v, -1, -2))
    dq, dk = _scores_pullback(xp, _softmax_pullback(xp, da, a), q, k)
    return dq, dk, xp.swapaxes(dv, -1, -2)


def _flash_weights(xp: Any, q: Any, k: Any, masked: bool) -> Any:
    if masked and q.shape[-2] > k.shape[-2]:
        raise ValueError(
            f"flash_attn: {q.shape[-2]} masked queries, but only {k.shape[-2]} slots; "
            "the first queries would see none"
        )
    return _softmax_over(xp, _scores(xp, q, k), _band(q, k, None, 0 if masked else None))


def _flash(draw: Any, heads: int, t: int, s: int, d: int, scale: Any = 1.0) -> tuple[Any, ...]:
    q, k = draw.normal(heads, t, d) * scale, draw.normal(heads, s, d)
    return q, k, draw.normal(heads, d, s)


flash_attn = OpSpec(
    name="flash_attn",
    signature="(t,d),(s,d),(d,s)->(t,d)",
    forward=flash_attn_forward,
    vjp=flash_attn_vjp,
    formula=r"y = \mathrm{softmax}\!\left(\frac{q k^\top}{\sqrt d} + m\right) v^\top,\quad "
    r"m_{ts} = -\infty\ (s > t + S - T)",
    source="ggml, ggml_flash_attn (v comes transposed); Dao et al. 2022, arXiv:2205.14135",
    dialects=(
        Dialect(name="masked", says="ggml, masked: the last query sees all slots"),
        Dialect(name="unmasked", says="ggml, not masked", attrs={"masked": False}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _flash(draw, 2, 3, 5, 7),
            hunts="dk without 1/sqrt(d), a mask aligned with the first slot",
        ),
        Sample(
            name="square",
            primals=lambda draw: _flash(draw, 2, 3, 3, 3),
            hunts="v, which comes transposed, read as k is; dv transposed",
        ),
        Sample(
            name="one-query",
            primals=lambda draw: _flash(draw, 1, 1, 5, 3),
            hunts="decoding: a mask that shows the only query the first slot only",
        ),
        Sample(
            name="one-slot",
            primals=lambda draw: _flash(draw, 2, 1, 1, 3),
            hunts="dq and dk other than 0 where a query sees one slot only",
        ),
        Sample(
            name="one-feature",
            primals=lambda draw: _flash(draw, 2, 3, 4, 1),
            hunts="an axis of size 1 dropped where d = 1",
        ),
        Sample(
            name="more-queries",
            primals=lambda draw: _flash(draw, 1, 5, 2, 3),
            dialects=("unmasked",),
            hunts="queries and slots exchanged",
        ),
        Sample(
            name="three-heads",
            primals=lambda draw: _flash(draw, 3, 2, 4, 2),
            hunts="every head with the keys of head 0",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: _flash(draw, 1, 3, 4, 4, scale=np.array([[1.0], [8.0], [1.0]])),
            hunts="exp without the maximum taken out, gradients cut off at weights near 1",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _flash(draw, 2, 0, 3, 5),
            hunts="no query: gradients of k and v left unwritten instead of zero",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: _flash(draw, 1, 1, 67, 1),
            dialects=("unmasked",),
            hunts="more than one block of 64 keys: the rescaling of what was summed before",
        ),
    ),
)

# ── flash_ff ─────────────────────────────────────────────────────────────────────────────────


def flash_ff_forward(xp, a, b0, b1, c0, c1):
    h = xp.matmul(a, xp.swapaxes(b0, -1, -2)) + b1[..., None, :]
    z, _ = _gelu(xp, h)
    return xp.matmul(z, xp.swapaxes(c0, -1, -2)) + c1[..., None, :]


def flash_ff_vjp(xp, ct, a, b0, b1, c0, c1):
    h = xp.matmul(a, xp.swapaxes(b0, -1, -2)) + b1[..., None, :]
    z, slope = _gelu(xp, h)
    dh = xp.matmul(ct, c0) * slope
    gradients = (
        xp.matmul(dh, b0),
        xp.matmul(xp.swapaxes(dh, -1, -2), a),
        xp.sum(dh, axis=-2),
        xp.matmul(xp.swapaxes(ct, -1, -2), z),
        xp.sum(ct, axis=-2),
    )
    return tuple(xp.reduce_to(g, x) for g, x in zip(gradients, (a, b0, b1, c0, c1), strict=True))


def _gelu(xp: Any, x: Any) -> tuple[Any, Any]:
    """The tanh form of gelu, and its slope."""
    root, cube = xp.sqrt_of(2 / xp.pi), xp.const("0.044715")
    y = xp.tanh(root * (x + cube * x * x * x))
    share = (1 + y) / 2
    return x * share, share + x * root * (1 + 3 * cube * x * x) * (1 - y * y) / 2


def _ff(draw: Any, *shape: int, m: int, scale: float = 1.0) -> tuple[Any, ...]:
    """Draws a `[…, d]`, and the weights and biases of m hidden features."""
    d = shape[-1]
    a, b0 = draw.normal(*shape), draw.normal(m, d) * scale
    return a, b0, draw.normal(m), draw.normal(d, m), draw.normal(d)


flash_ff = OpSpec(
    name="flash_ff",
    signature="(t,d),(m,d),(m),(d,m),(d)->(t,d)",
    forward=flash_ff_forward,
    vjp=flash_ff_vjp,
    formula=r"y = c_1 + C_0\,\mathrm{gelu}(b_1 + B_0\,a)",
    source="ggml, ggml_flash_ff",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _ff(draw, 3, 2, m=5),
            hunts="a missing slope of gelu, the bias gradients averaged or exchanged",
        ),
        Sample(
            name="square",
            primals=lambda draw: _ff(draw, 3, 3, m=3),
            hunts="a weight transposed, the two weights exchanged",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _ff(draw, 2, 3, 2, m=3),
            hunts="weights' gradients from one batch entry instead of the sum over all",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: _ff(draw, 1, 3, m=2),
            hunts="bias gradients lost to a sum over one row",
        ),
        Sample(
            name="one-hidden",
            primals=lambda draw: _ff(draw, 2, 3, m=1),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="wide",
            primals=lambda draw: _ff(draw, 3, 2, m=5, scale=4.0),
            hunts="gelu's slope taken for a step, its inner cubic left out",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _ff(draw, 0, 2, m=3),
            hunts="no position: weights' gradients left unwritten instead of zero",
        ),
    ),
)

# ── grouped_query_attention ──────────────────────────────────────────────────────────────────


def grouped_query_attention_forward(xp, q, k, v, *, causal=True, top_left=False):
    q = _grouped(xp, q, k)
    a = _grouped_weights(xp, q, k[..., None, :, :], causal, top_left)
    return _ungrouped(xp, xp.matmul(a, v[..., None, :, :]))


def grouped_query_attention_vjp(xp, ct, q, k, v, *, causal=True, top_left=False):
    primals = (q, k, v)
    q, ct = _grouped(xp, q, k), _grouped(xp, ct, k)
    k, v = k[..., None, :, :], v[..., None, :, :]
    a = _grouped_weights(xp, q, k, causal, top_left)
    da, dv = _mix_pullback(xp, ct, a, v)
    dq, dk = _scores_pullback(xp, _softmax_pullback(xp, da, a), q, k)
    gradients = (_ungrouped(xp, dq), xp.sum(dk, axis=-3), xp.sum(dv, axis=-3))
    return tuple(xp.reduce_to(g, x) for g, x in zip(gradients, primals, strict=True))


def _grouped(xp: Any, q: Any, k: Any) -> Any:
    """[h, t, d] as [g, h/g, t, d]: neighbouring heads share a key."""
    h, g = q.shape[-3], k.shape[-3]
    if h % g:
        raise ValueError(f"{h} query heads cannot share {g} key heads evenly")
    return xp.reshape(q, (*q.shape[:-3], g, h // g, *q.shape[-2:]))


def _ungrouped(xp: Any, x: Any) -> Any:
    """[g, r, t, d] as [g·r, t, d]."""
    return xp.reshape(x, (*x.shape[:-4], x.shape[-4] * x.shape[-3], *x.shape[-2:]))


def _grouped_weights(xp: Any, q: Any, k: Any, causal: bool, top_left: bool) -> Any:
    return _softmax_over(xp, _scores(xp, q, k), _band(q, k, None, 0 if causal else None, top_left))


grouped_query_attention = OpSpec(
    name="grouped_query_attention",
    signature="(h,t,d),(g,s,d),(g,s,f)->(h,t,f)",
    forward=grouped_query_attention_forward,
    vjp=grouped_query_attention_vjp,
    formula=r"y_h = \mathrm{softmax}\!\left(\frac{q_h k_{\lfloor h g/H \rfloor}^\top}{\sqrt d}"
    r" + m\right) v_{\lfloor h g/H \rfloor}",
    source="Ainslie et al. 2023, arXiv:2305.13245",
    dialects=(
        Dialect(
            name="bottom-right",
            says="Llama with cached keys, FlashAttention 2.1: the last query sees all slots; "
            "a query that sees none gives 0",
        ),
        Dialect(
            name="top-left",
            says="PyTorch's is_causal, FlashAttention 2.0: query t sees the slots up to t",
            attrs={"top_left": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _qkv(draw, (4, 3, 2), (2, 5, 2), 3, 0.25),
            hunts="dk and dv of one head of a group instead of the sum, or its mean",
        ),
        Sample(
            name="three-per-group",
            primals=lambda draw: _qkv(draw, (6, 2, 3), (2, 2, 3)),
            hunts="heads dealt out to the groups in turn instead of in blocks",
        ),
        Sample(
            name="three-groups",
            primals=lambda draw: _qkv(draw, (6, 2, 2), (3, 3, 2), 1),
            hunts="the number of groups taken for the number of heads in one",
        ),
        Sample(
            name="square",
            primals=lambda draw: _qkv(draw, (4, 4, 4), (2, 4, 4)),
            hunts="heads, queries and features exchanged; alignment, which only a square forgives",
        ),
        Sample(
            name="multi-query",
            primals=lambda draw: _qkv(draw, (3, 3, 2), (1, 3, 2)),
            hunts="the head axis dropped where all share one key",
        ),
        Sample(
            name="multi-head",
            primals=lambda draw: _qkv(draw, (2, 3, 2), (2, 3, 2)),
            hunts="a special case for groups of one",
        ),
        Sample(
            name="one-query",
            primals=lambda draw: _qkv(draw, (4, 1, 3), (2, 4, 3)),
            hunts="decoding: the only query shown the wrong slots",
        ),
        Sample(
            name="not-causal",
            primals=lambda draw: _qkv(draw, (4, 2, 2), (2, 3, 2)),
            attrs={"causal": False},
            hunts="backward that masks where forward does not",
        ),
        Sample(
            name="more-queries",  # aligned at the bottom right: two queries see no slot
            primals=lambda draw: _qkv(draw, (2, 5, 2), (1, 3, 2)),
            hunts="0/0 in a row without slots, which must give 0 and no gradient",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (
                draw.normal(4, 3, 4) * np.array([8.0, 1.0, 1.0, 8.0])[:, None, None],
                draw.normal(2, 3, 4),
                draw.normal(2, 3, 4),
            ),
            hunts="exp without the maximum taken out, gradients cut off at weights near 1",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _qkv(draw, (4, 0, 2), (2, 3, 2)),
            hunts="no query: gradients of k and v left unwritten instead of zero",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: _qkv(draw, (2, 1, 1), (1, 67, 1), 1),
            dialects=("bottom-right",),
            hunts="more than one block of 64 keys: the rescaling of what was summed before",
        ),
    ),
)

# ── sliding_window_attention ─────────────────────────────────────────────────────────────────


def sliding_window_attention_forward(xp, q, k, v, *, left=2, right=0):
    a = _softmax_over(xp, _scores(xp, q, k), _band(q, k, left, right))
    return xp.matmul(a, v)


def sliding_window_attention_vjp(xp, ct, q, k, v, *, left=2, right=0):
    a = _softmax_over(xp, _scores(xp, q, k), _band(q, k, left, right))
    da, dv = _mix_pullback(xp, ct, a, v)
    dq, dk = _scores_pullback(xp, _softmax_pullback(xp, da, a), q, k)
    return xp.reduce_to(dq, q), xp.reduce_to(dk, k), xp.reduce_to(dv, v)


sliding_window_attention = OpSpec(
    name="sliding_window_attention",
    signature="(t,d),(s,d),(s,f)->(t,f)",
    forward=sliding_window_attention_forward,
    vjp=sliding_window_attention_vjp,
    formula=r"y = \mathrm{softmax}\!\left(\frac{q k^\top}{\sqrt d} + m\right) v,\quad "
    r"m_{ts} = -\infty \text{ unless } -l \le s - (t + S - T) \le r",
    source="Beltagy, Peters & Cohan 2020, arXiv:2004.05150; FlashAttention, window_size",
    dialects=(
        Dialect(name="causal", says="Mistral, window 3: a slot and the two before it"),
        Dialect(
            name="local",
            says="FlashAttention, window_size=(1, 2): one slot before and two after",
            attrs={"left": 1, "right": 2},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _qkv(draw, (2, 7, 3), (2, 7, 3), 2, 0.5),
            hunts="a window of one slot more or less, on either side",
        ),
        Sample(
            name="square",
            primals=lambda draw: _qkv(draw, (5, 5), (5, 5)),
            hunts="the window transposed: slots before exchanged with slots after",
        ),
        Sample(
            name="as-long-as-the-window",
            primals=lambda draw: _qkv(draw, (3, 2), (3, 2)),
            hunts="the slot at the window's edge lost where nothing else is hidden",
        ),
        Sample(
            name="one-longer",
            primals=lambda draw: _qkv(draw, (4, 2), (4, 2)),
            hunts="the first slot that falls out of the window still there",
        ),
        Sample(
            name="one-shorter",
            primals=lambda draw: _qkv(draw, (2, 3), (2, 3)),
            hunts="a window that starts before the first slot",
        ),
        Sample(
            name="cached",
            primals=lambda draw: _qkv(draw, (2, 3), (7, 3)),
            hunts="positions counted from the first slot: the window over the wrong slots",
        ),
        Sample(
            name="one-query",
            primals=lambda draw: _qkv(draw, (1, 3), (6, 3)),
            hunts="decoding: slots that left the window with a gradient",
        ),
        Sample(
            name="wide",
            primals=lambda draw: _qkv(draw, (6, 2), (6, 2)),
            attrs={"left": 4, "right": 1},
            hunts="the default window in backward, left and right exchanged",
        ),
        Sample(
            name="only-itself",
            primals=lambda draw: _qkv(draw, (3, 2), (3, 2)),
            attrs={"left": 0, "right": 0},
            hunts="a window of 0 taken for none; dq and dk other than 0",
        ),
        Sample(
            name="more-queries",  # the first queries see no slot
            primals=lambda draw: _qkv(draw, (6, 2), (2, 2)),
            hunts="0/0 in a row without slots, which must give 0 and no gradient",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _qkv(draw, (2, 2, 4, 2), (2, 2, 4, 2), 1),
            hunts="a window that runs on from one sequence to the next",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _qkv(draw, (0, 2), (3, 2)),
            hunts="no query: gradients of k and v left unwritten instead of zero",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: _qkv(draw, (1, 1), (35, 1), 1),
            attrs={"left": 33},
            dialects=("causal",),
            hunts="a window wider than a block of 32 keys",
        ),
    ),
)

# ── sink_attention ───────────────────────────────────────────────────────────────────────────


def sink_attention_forward(xp, q, k, v, sink=None):
    a, _ = _sink_weights(xp, q, k, sink)
    return xp.matmul(a, v)


def sink_attention_vjp(xp, ct, q, k, v, sink=None):
    a, rest = _sink_weights(xp, q, k, sink)
    da, dv = _mix_pullback(xp, ct, a, v)
    mean = xp.sum(a * da, axis=-1, keepdims=True)
    dq, dk = _scores_pullback(xp, a * (da - mean), q, k)
    gradients = tuple(xp.reduce_to(g, x) for g, x in ((dq, q), (dk, k), (dv, v)))
    if sink is None:
        return gradients
    return (*gradients, xp.reduce_to(-xp.sum(rest * mean, axis=(-2, -1)), sink))


def _sink_weights(xp: Any, q: Any, k: Any, sink: Any) -> tuple[Any, Any]:
    """Weights [h, t, s] of the slots, and [h, t, 1] of the sink, which has no value."""
    seen = _band(q, k, None, 0)
    scores = _scores(xp, q, k)
    sink = xp.zeros(scores.shape[-3:-2]) if sink is None else sink
    sink = sink[..., None, None]
    x = xp.where(seen, scores, xp.min(scores, axis=-1, keepdims=True))
    top = xp.maximum(xp.max(x, axis=-1, keepdims=True), sink)
    e, rest = xp.where(seen, xp.exp(x - top), 0), xp.exp(sink - top)
    total = xp.sum(e, axis=-1, keepdims=True) + rest
    return e / total, rest / total


def _with_sink(
    draw: Any, q: tuple[int, ...], k: tuple[int, ...], f: int = 0, scale: float = 1.0
) -> tuple[Any, ...]:
    return *_qkv(draw, q, k, f, scale), draw.normal(q[-3])


sink_attention = OpSpec(
    name="sink_attention",
    signature="(h,t,d),(h,s,d),(h,s,f),(h)->(h,t,f)",
    forward=sink_attention_forward,
    vjp=sink_attention_vjp,
    formula=r"y_{ht} = \frac{\sum_s e^{a_{hts}} v_{hs}}{e^{z_h} + \sum_s e^{a_{hts}}},\quad "
    r"a_h = \frac{q_h k_h^\top}{\sqrt d} + m",
    source="OpenAI 2025, gpt-oss (sinks); Miller 2023, Attention Is Off By One",
    dialects=(
        Dialect(name="learned", says="gpt-oss: a learned logit per head in the denominator"),
        Dialect(name="one", says="softmax1: the sink's logit is 0", without=("sink",)),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _with_sink(draw, (2, 3, 2), (2, 5, 2), 3, 0.5),
            hunts="weights without the sink in backward, a sink without a gradient",
        ),
        Sample(
            name="square",
            primals=lambda draw: _with_sink(draw, (3, 3, 3), (3, 3, 3)),
            hunts="a sink per query, or per slot, instead of per head",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: _with_sink(draw, (2, 1, 3), (2, 1, 3)),
            hunts="dq and dk of 0, as without a sink",
        ),
        Sample(
            name="one-head",
            primals=lambda draw: _with_sink(draw, (1, 4, 2), (1, 4, 2)),
            hunts="the sink's gradient averaged over queries",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _with_sink(draw, (2, 2, 3, 2), (2, 2, 3, 2)),
            hunts="the sink's gradient from one batch entry instead of the sum over all",
        ),
        Sample(
            name="strong",
            primals=lambda draw: (*_qkv(draw, (2, 2, 2), (2, 3, 2)), np.array([12.0, 6.0])),
            hunts="a maximum without the sink, gradients cut off where it takes almost all",
            dialects=("learned",),
        ),
        Sample(
            name="overflowing",
            primals=lambda draw: (*_qkv(draw, (2, 2, 2), (2, 3, 2)), np.array([1000.0, -1000.0])),
            hunts="a maximum without the sink, whose exponential then overflows",
            dialects=("learned",),
        ),
        Sample(
            name="weak",
            primals=lambda draw: (*_qkv(draw, (3, 2, 2), (3, 2, 2)), np.array([-6.0, -12.0, 1.0])),
            hunts="a sink that is small beside the slots left out",
            dialects=("learned",),
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (
                draw.normal(2, 3, 4) * np.array([8.0, 1.0])[:, None, None],
                *_with_sink(draw, (2, 3, 4), (2, 3, 4))[1:],
            ),
            hunts="exp without the maximum taken out, gradients cut off at weights near 1",
        ),
        Sample(
            name="more-queries",  # two queries see only the sink
            primals=lambda draw: _with_sink(draw, (2, 4, 2), (2, 2, 2)),
            hunts="0/0 in a row that sees no slot: all its weight is the sink's",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _with_sink(draw, (2, 0, 3), (2, 2, 3)),
            hunts="no query: a sink's gradient left unwritten instead of zero",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: _with_sink(draw, (1, 1, 1), (1, 35, 1), 1),
            dialects=("learned",),
            hunts="more than one block of 32 keys: the rescaling of what was summed before",
        ),
    ),
)

# ── softcapped_attention ─────────────────────────────────────────────────────────────────────


def softcapped_attention_forward(xp, q, k, v, *, cap=50.0, causal=True):
    tanh = xp.tanh(_scores(xp, q, k) / cap)
    a = _softmax_over(xp, cap * tanh, _band(q, k, None, 0 if causal else None))
    return xp.matmul(a, v)


def softcapped_attention_vjp(xp, ct, q, k, v, *, cap=50.0, causal=True):
    tanh = xp.tanh(_scores(xp, q, k) / cap)
    a = _softmax_over(xp, cap * tanh, _band(q, k, None, 0 if causal else None))
    da, dv = _mix_pullback(xp, ct, a, v)
    ds = _softmax_pullback(xp, da, a) * (1 - tanh * tanh)
    dq, dk = _scores_pullback(xp, ds, q, k)
    return xp.reduce_to(dq, q), xp.reduce_to(dk, k), xp.reduce_to(dv, v)


softcapped_attention = OpSpec(
    name="softcapped_attention",
    signature="(t,d),(s,d),(s,f)->(t,f)",
    forward=softcapped_attention_forward,
    vjp=softcapped_attention_vjp,
    formula=r"y = \mathrm{softmax}\!\left(C \tanh\frac{q k^\top}{C \sqrt d} + m\right) v",
    source="Gemma Team 2024, arXiv:2408.00118; FlashAttention, softcap",
    dialects=(
        Dialect(name="gemma-2", says="Gemma 2: cap 50"),
        Dialect(name="grok-1", says="Grok-1: cap 30", attrs={"cap": 30.0}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: _qkv(draw, (2, 3, 2), (2, 5, 2), 3, 0.5),
            hunts="dk without 1/sqrt(d), a mask aligned with the first slot",
        ),
        Sample(
            name="square",
            primals=lambda draw: _qkv(draw, (3, 3), (3, 3)),
            hunts="keys transposed where t = d",
        ),
        Sample(
            name="cap-1",
            primals=lambda draw: _qkv(draw, (2, 4, 3), (2, 4, 3)),
            attrs={"cap": 1.0},
            hunts="the slope of the cap left out, or taken at the capped score",
        ),
        Sample(
            name="cap-2",
            primals=lambda draw: _qkv(draw, (4, 3), (4, 3)),
            attrs={"cap": 2.0},
            hunts="the default cap in backward, one division by the cap too many or too few",
        ),
        Sample(
            name="large-scores",
            primals=lambda draw: _large_scores(draw, 3, 5, 8.0),
            hunts="a cap that matters at its ordinary value",
        ),
        Sample(
            name="not-causal",
            primals=lambda draw: _qkv(draw, (4, 2), (3, 2)),
            attrs={"causal": False, "cap": 2.0},
            hunts="backward that masks where forward does not",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: _qkv(draw, (1, 3), (1, 3)),
            hunts="dq and dk other than 0 where a query sees one slot only",
        ),
        Sample(
            name="one-query",
            primals=lambda draw: _qkv(draw, (2, 1, 3), (2, 4, 3)),
            attrs={"cap": 2.0},
            hunts="a capped score of 0 for a hidden slot, as if masked before the cap",
        ),
        Sample(
            name="empty",
            primals=lambda draw: _qkv(draw, (0, 2), (3, 2)),
            hunts="no query: gradients of k and v left unwritten instead of zero",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: _qkv(draw, (1, 1), (35, 1), 1),
            dialects=("gemma-2",),
            hunts="more than one block of 32 keys: the rescaling of what was summed before",
        ),
    ),
)
