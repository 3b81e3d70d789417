"""Softmax and attention, whole and in Gemma's parts.

Axes: t queries (positions), s slots (keys and values), h heads, d features of a head,
c = h·d features, e = 3c of packed q, k and v, n = h + 2 packed heads, v values of a row.
Causal: query t sees the slots s ≤ t.
"""

from __future__ import annotations

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
            # One ordinary row: where all are saturated, float32 leaves nothing to judge by.
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
    weights = xp.reshape(weights, (*weights.shape[:-3], -1, weights.shape[-1]))
    x = xp.reshape(x, (*x.shape[:-3], -1, x.shape[-1]))
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
            primals=lambda draw: (draw.powers(3, 4, 2),),
            hunts="small gradients lost beside large ones",
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
            primals=lambda draw: (draw.powers(3, 4, 2), draw.powers(3, 2, 3)),
            hunts="small gradients lost beside large ones",
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
    return xp.reshape(x, (*x.shape[:-2], -1))


def _three(draw, *shape, scale=1.0):
    """Draws q times `scale`, k and v."""
    return draw.normal(*shape) * scale, draw.normal(*shape), draw.normal(*shape)


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
    ),
)

OPERATORS = (
    softmax,
    masked_softmax,
    masked_attention,
    mix_by_attention,
    attention,
    packed_attention,
)
