"""Mixtures of experts. Axes: d features, e experts, f features inside an expert, o outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample

# ── moe ──────────────────────────────────────────────────────────────────────────────────────


def moe_forward(
    xp,
    x,
    w_router,
    w_up,
    w_gate=None,
    w_down=None,
    *,
    top_k=2,
    score="softmax",
    renormalise=True,
    scale=1.0,
):
    index, scores, _, shares = _routed(xp, x, w_router, top_k, score, renormalise)
    weights = xp.add_along(shares * scale, index, scores, -1)  # 0 for those not chosen
    out, _, _ = _experts(xp, x, w_up, w_gate, w_down)
    return xp.sum(weights[..., None] * out, axis=-2)


def moe_vjp(
    xp,
    ct,
    x,
    w_router,
    w_up,
    w_gate=None,
    w_down=None,
    *,
    top_k=2,
    score="softmax",
    renormalise=True,
    scale=1.0,
):
    index, scores, total, shares = _routed(xp, x, w_router, top_k, score, renormalise)
    out, up, gate = _experts(xp, x, w_up, w_gate, w_down)
    # Router: from the weights of the chosen back to the logits of all.
    dchosen = scale * xp.take_along(xp.sum(ct[..., None, :] * out, axis=-1), index, -1)
    if renormalise:
        dchosen = (dchosen - xp.sum(dchosen * shares, axis=-1, keepdims=True)) / total
    dscores = xp.add_along(dchosen, index, scores, -1)
    if score == "softmax":
        dlogits = scores * (dscores - xp.sum(dscores * scores, axis=-1, keepdims=True))
    else:
        dlogits = dscores * scores * (1 - scores)
    dx = _back(xp, dlogits, w_router)
    dw_router = xp.reduce_to(dlogits[..., :, None] * x[..., None, :], w_router)
    # Experts: those that were not chosen have weight 0, and so gradient 0.
    weights = xp.add_along(shares * scale, index, scores, -1)
    dout = weights[..., None] * ct[..., None, :]
    if w_gate is None:
        dx = dx + xp.sum(_back(xp, dout, w_up), axis=-2)
        return xp.reduce_to(dx, x), dw_router, _weight(xp, dout, x, w_up)
    sigma = xp.sigmoid(gate)
    act = gate * sigma
    dhidden = _back(xp, dout, w_down)
    dup = dhidden * act
    dgate = dhidden * up * sigma * (1 + gate * (1 - sigma))
    dx = dx + xp.sum(_back(xp, dup, w_up) + _back(xp, dgate, w_gate), axis=-2)
    return (
        xp.reduce_to(dx, x),
        dw_router,
        _weight(xp, dup, x, w_up),
        _weight(xp, dgate, x, w_gate),
        xp.reduce_to(dout[..., :, None] * (act * up)[..., None, :], w_down),
    )


def _routed(
    xp: Any, x: Any, w_router: Any, top_k: int, score: str, renormalise: bool
) -> tuple[Any, Any, Any, Any]:
    """The chosen experts [k], all scores [e], the sum of the chosen ones, and their shares [k]."""
    logits = _times(xp, w_router, x)
    if score == "softmax":
        scores = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
        scores = scores / xp.sum(scores, axis=-1, keepdims=True)
    else:
        scores = xp.sigmoid(logits)
    index = xp.argsort(logits, axis=-1)[..., logits.shape[-1] - top_k :]
    chosen = xp.take_along(scores, index, -1)
    total = xp.sum(chosen, axis=-1, keepdims=True)
    return index, scores, total, chosen / total if renormalise else chosen


def _experts(xp: Any, x: Any, w_up: Any, w_gate: Any, w_down: Any) -> tuple[Any, Any, Any]:
    """The outputs of all experts [e, o]; inside them up projections and gates [e, f]."""
    up = _times(xp, w_up, x[..., None, :])
    if w_gate is None:
        return up, None, None
    gate = _times(xp, w_gate, x[..., None, :])
    return _times(xp, w_down, gate * xp.sigmoid(gate) * up), up, gate


def _times(xp: Any, w: Any, x: Any) -> Any:
    return xp.matmul(w, x[..., None])[..., 0]


def _back(xp: Any, ct: Any, w: Any) -> Any:
    return xp.matmul(xp.swapaxes(w, -1, -2), ct[..., None])[..., 0]


def _weight(xp: Any, ct: Any, x: Any, w: Any) -> Any:
    """Gradient of an expert's matrix that reads the token itself."""
    return xp.reduce_to(ct[..., :, None] * x[..., None, None, :], w)


def _settled(
    draw: Any, d: int, e: int, f: int, o: int, *, batch: tuple[int, ...] = ()
) -> tuple[Any, ...]:
    """Tokens and a router whose logits differ by 1/4 or more, so that no choice is a tie."""
    x, w_router = draw.normal(*batch, d), draw.normal(e, d)
    tokens = x.reshape(-1, d)  # a view
    for k in range(len(tokens)):
        tries = 0
        while np.min(np.diff(np.sort(w_router @ tokens[k])), initial=1.0) < 0.25:
            tokens[k], tries = draw.normal(d), tries + 1
            if tries == 100:  # two rows are too close: draw again
                return _settled(draw, d, e, f, o, batch=batch)
    return x, w_router, draw.normal(e, f, d), draw.normal(e, f, d), draw.normal(e, o, f)


def _unlike(draw: Any) -> tuple[Any, ...]:
    """Experts whose outputs differ in size, so that little cancels in the router's gradient."""
    x, w_router, w_up, w_gate, w_down = _settled(draw, 3, 5, 2, 7, batch=(4,))
    sizes = np.exp2([[[2.0]], [[0.0]], [[-2.0]], [[-4.0]], [[-6.0]]])
    return x, w_router / 2, w_up * sizes, w_gate / 2, w_down


def _idle(draw: Any) -> tuple[Any, ...]:
    """All tokens rank the experts alike, so that no token reaches the last two."""
    x, _, *experts = _settled(draw, 3, 4, 2, 3, batch=(3,))
    x[:, 0] = draw.uniform(1.0, 1.5, 3)
    w_router = draw.uniform(-0.0625, 0.0625, 4, 3)
    w_router[:, 0] = [1.5, 0.5, -0.5, -1.5]
    return (np.clip(x, -2, 2), w_router, *experts)


def _same_token(draw: Any) -> tuple[Any, ...]:
    x, *rest = _settled(draw, 3, 4, 2, 2, batch=(3,))
    x[2] = x[0]
    return (x, *rest)


def _sure(draw: Any) -> tuple[Any, ...]:
    """The router is almost certain of one token's experts, not of the other's."""
    w_router = np.array([[1.0, 0.0], [0.0, 0.5], [-1.0, -0.5]])
    x = np.array([[5.0, 0.0], [1.0, -2.0]]) + draw.uniform(-0.125, 0.125, 2, 2)
    return x, w_router, draw.normal(3, 2, 2), draw.normal(3, 2, 2), draw.normal(3, 3, 2)


def _shifted(draw: Any) -> tuple[Any, ...]:
    """All logits of one token are about 96, of the other about -96."""
    w_router = np.array([[6.0, 0.5, 0.0], [6.0, -0.5, 0.5], [6.0, 0.0, -0.75]])
    x = np.array([[16.0, 1.5, -0.5], [-16.0, -1.25, 0.5]])
    w_up, w_gate = (draw.normal(3, 2, 3) / np.array([16.0, 1.0, 1.0]) for _ in range(2))
    return x, w_router, w_up, w_gate, draw.normal(3, 2, 2)


SOFTMAX = ("mixtral", "plain-weights", "switch", "linear")

moe = OpSpec(
    name="moe",
    signature="(d),(e,d),(e,f,d),(e,f,d),(e,o,f)->(o)",
    forward=moe_forward,
    vjp=moe_vjp,
    formula=r"y = \sum_{i \in \mathrm{top}_k} \frac{p_i}{\sum_{j \in \mathrm{top}_k} p_j}\,"
    r"V_i\,(\mathrm{silu}(G_i x) \odot U_i x),\quad p = \mathrm{softmax}(R x)",
    source="Shazeer et al. 2017, arXiv:1701.06538; Jiang et al. 2024, arXiv:2401.04088",
    dialects=(
        Dialect(name="mixtral", says="Mixtral: softmax, the best two, renormalised; gated experts"),
        Dialect(
            name="plain-weights",
            says="OLMoE, Qwen1.5-MoE: norm_topk_prob = False",
            attrs={"renormalise": False},
        ),
        Dialect(
            name="switch",
            says="Switch Transformer: the best one, its probability as it is",
            attrs={"renormalise": False, "top_k": 1},
        ),
        Dialect(
            name="deepseek-v3",
            says="DeepSeek-V3: sigmoid scores, renormalised, times 2.5",
            attrs={"score": "sigmoid", "scale": 2.5},
        ),
        Dialect(
            name="linear", says="every expert is one matrix (w_up)", without=("w_gate", "w_down")
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=_unlike,
            hunts="the router's gradient without the renormalisation, an expert's gradient "
            "without its weight, the expert of another token",
        ),
        Sample(
            name="square",
            primals=lambda draw: _settled(draw, 3, 3, 3, 3, batch=(3,)),
            hunts="tokens, experts and features exchanged, matrices transposed",
        ),
        Sample(
            name="one-token",
            primals=lambda draw: _settled(draw, 2, 3, 5, 2),
            hunts="a batch axis that is taken for granted",
        ),
        Sample(
            name="batched",
            primals=lambda draw: _settled(draw, 2, 3, 2, 2, batch=(2, 2)),
            hunts="weights summed over one batch axis instead of all",
        ),
        Sample(
            name="single",
            primals=lambda draw: _settled(draw, 2, 1, 2, 3, batch=(2,)),
            attrs={"top_k": 1},
            hunts="a gradient of the router where there is no choice",
        ),
        Sample(
            name="top-1",
            primals=lambda draw: _settled(draw, 3, 3, 2, 2, batch=(3,)),
            attrs={"top_k": 1},
            hunts="the number of experts at its default; renormalised, one weight is always 1",
        ),
        Sample(
            name="top-3",
            primals=lambda draw: _settled(draw, 3, 5, 2, 2, batch=(2,)),
            attrs={"top_k": 3},
            hunts="a sum over two experts whatever their number",
        ),
        Sample(
            name="all-experts",
            primals=lambda draw: _settled(draw, 3, 3, 2, 2, batch=(2,)),
            attrs={"top_k": 3},
            hunts="a last expert that is dropped",
        ),
        Sample(
            name="scaled",
            primals=lambda draw: _settled(draw, 3, 3, 2, 2, batch=(3,)),
            attrs={"scale": 0.375},
            hunts="the scale of the weights ignored, or applied twice",
        ),
        Sample(
            name="idle-experts",
            primals=_idle,
            hunts="gradients of experts that no token reached: zero, not left over",
        ),
        Sample(
            name="same-token",
            primals=_same_token,
            hunts="an expert that meets a token again: overwritten instead of accumulated",
        ),
        Sample(
            name="sure",
            primals=_sure,
            hunts="the router's gradient cut off where a probability is nearly 1",
            dialects=SOFTMAX,
        ),
        Sample(
            name="shifted",
            primals=_shifted,
            hunts="exp of logits without the largest taken out: it overflows in float32",
            dialects=SOFTMAX,
        ),
        Sample(
            name="empty",
            primals=lambda draw: _settled(draw, 3, 2, 2, 2, batch=(0,)),
            hunts="no tokens: gradients of router and experts are zero, not left over",
            dialects=("mixtral", "linear"),
        ),
    ),
)
