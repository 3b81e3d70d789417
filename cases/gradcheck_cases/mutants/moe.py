"""Mutants of the operators in `gradcheck_cases.moe`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases import moe as cases
from gradcheck_cases.moe import _back, _experts, _routed, _times, _weight

# ── moe ──────────────────────────────────────────────────────────────────────────────────────


def moe_with(fault: str, memory: dict[tuple[int, ...], Any] | None = None) -> Vjp:
    """The backward of moe with one fault; `memory` keeps a buffer between calls."""

    def vjp(
        xp, ct, x, w_router, w_up, w_gate=None, w_down=None, *,
        top_k=2, score="softmax", renormalise=True, scale=1.0,
    ):  # fmt: skip
        index, scores, total, shares = _routed(xp, x, w_router, top_k, score, renormalise)
        if fault == "unshifted" and score == "softmax":
            e = xp.exp(_times(xp, w_router, x))
            scores = e / xp.sum(e, axis=-1, keepdims=True)
        if fault == "last-choice-dropped" and top_k > 1:
            shares = shares * np.array([0.0] + [1.0] * (top_k - 1), dtype=np.float32)
        out, up, gate = _experts(xp, x, w_up, w_gate, w_down)
        fit = xp.sum(ct[..., None, :] * out, axis=-1)
        dchosen = xp.take_along(fit, index, -1)
        if fault != "router-unscaled":
            dchosen = dchosen * scale * (scale if fault == "router-scaled-twice" else 1)
        if renormalise:
            shift = xp.sum(dchosen * shares, axis=-1, keepdims=True)
            if fault == "renormalisation-constant":
                shift = 0
            if fault == "renormalisation-sign":
                shift = -shift
            if fault == "total-of-tokens" and top_k == 1 and x.ndim > 1:
                total = xp.broadcast_to(xp.sum(total, axis=-2, keepdims=True), total.shape)
                shift = 0
            dchosen = dchosen - shift
            if fault != "total-missing":
                dchosen = dchosen / total
        slots = index
        if fault == "slots-sorted":
            slots = np.sort(index, axis=-1)
        if fault == "slots-as-experts":
            slots = np.broadcast_to(np.arange(top_k), index.shape)
        dscores = xp.add_along(dchosen, slots, scores, -1)
        if fault == "idle-slots":
            dscores = fit * scale / (total if renormalise else 1)
        if score == "softmax":
            mean = xp.sum(dscores * scores, axis=-1, keepdims=True)
            if fault == "softmax-diagonal":
                mean = dscores * scores
            if fault == "softmax-over-chosen":
                mean = xp.sum(dscores, axis=-1, keepdims=True) / top_k
            dlogits = scores * (dscores - mean)
        else:
            dlogits = dscores * (scores if fault == "sigmoid-slope" else scores * (1 - scores))
        through_router = 0 if fault == "x-not-by-router" else _back(xp, dlogits, w_router)
        dw_router = xp.reduce_to(dlogits[..., :, None] * x[..., None, :], w_router)
        weights = xp.add_along(shares * scale, index, scores, -1)
        if fault == "weights-of-slots":
            weights = xp.add_along(shares * scale, np.sort(index, axis=-1), scores, -1)
        if fault == "weight-missing":
            weights = xp.add_along(shares / shares, index, scores, -1)
        if fault == "weight-squared":
            weights = weights * weights
        if fault == "weights-of-next-token" and x.ndim > 1:
            weights = xp.concatenate([weights[1:], weights[:1]], axis=0)
        dout = weights[..., None] * ct[..., None, :]
        read = x
        if fault == "next-token" and x.ndim > 1:
            read = xp.concatenate([x[1:], x[:1]], axis=0)
        if w_gate is None:
            dx = through_router + xp.sum(_back(xp, dout, w_up), axis=-2)
            dw_up = _last_or_all(xp, fault, _weight, dout, read, w_up)
            return xp.reduce_to(dx, x), dw_router, _left_over(xp, memory, dw_up)
        sigma = xp.sigmoid(gate)
        act = gate * sigma
        dhidden = _back(xp, dout, w_down)
        dup = dhidden * act
        slope = sigma * (1 - sigma) if fault == "silu-slope" else sigma * (1 + gate * (1 - sigma))
        dgate = dhidden * up * slope
        by_gate = 0 if fault == "x-not-by-gate" else _back(xp, dgate, w_gate)
        dx = through_router + xp.sum(_back(xp, dup, w_up) + by_gate, axis=-2)
        hidden = gate * up if fault == "down-before-gate" else act * up
        dw_up = _last_or_all(xp, fault, _weight, dup, read, w_up)
        return (
            xp.reduce_to(dx, x),
            dw_router,
            _left_over(xp, memory, dw_up),
            _last_or_all(xp, fault, _weight, dgate, read, w_gate),
            xp.reduce_to(dout[..., :, None] * hidden[..., None, :], w_down),
        )

    return vjp


def _last_or_all(xp: Any, fault: str, rule: Any, ct: Any, x: Any, w: Any) -> Any:
    """Gradient of the experts' weights from all tokens; overwritten: from each expert's last."""
    if fault != "experts-overwritten" or x.ndim < 2 or x.size == 0:
        return rule(xp, ct, x, w)
    flat, tokens = xp.reshape(ct, (-1, *ct.shape[-2:])), xp.reshape(x, (-1, x.shape[-1]))
    rows = []
    for e in range(flat.shape[-2]):
        reached = [t for t in range(len(tokens)) if bool((flat[t, e] != 0).any())]
        t = reached[-1] if reached else 0
        rows.append(flat[t, e][:, None] * tokens[t][None, :])
    return xp.stack(rows, axis=0)


def _left_over(xp: Any, memory: dict[tuple[int, ...], Any] | None, g: Any) -> Any:
    """Experts that no token reached keep the buffer's content: first 1, then the last call's."""
    if memory is None:
        return g
    idle = xp.sum(xp.abs(g), axis=(-2, -1), keepdims=True) == 0
    memory[g.shape] = xp.where(idle, memory.get(g.shape, xp.zeros_like(g) + 1), g)
    return memory[g.shape]


SOFTMAX = cases.SOFTMAX
RENORMALISED = ("mixtral", "deepseek-v3", "linear")
GATED = ("mixtral", "plain-weights", "switch", "deepseek-v3")

MUTANTS: tuple[Mutant, ...] = mutant_table(
    "moe",
    {
        ("renormalisation-constant", "term", "typical"): (
            "The router's gradient treats the sum of the chosen scores as a constant.",
            {"dialects": RENORMALISED},
        ),
        ("renormalisation-sign", "sign", "typical"): (
            "The renormalisation's term of the router's gradient has the wrong sign.",
            {"dialects": RENORMALISED},
        ),
        ("total-missing", "scale derivative", "typical"): (
            "The router's gradient is not divided by the sum of the chosen scores.",
            {"dialects": RENORMALISED},
        ),
        ("total-of-tokens", "index", "top-1"): (
            "With one expert per token the scores are renormalised over the tokens.",
            {
                "modelled_on": (
                    "megablocks pull request 87: max drops the axis that the norm is taken over"
                ),
                "dialects": RENORMALISED,
            },
        ),
        ("renormalised-anyway", "attribute", "typical"): (
            "The backward renormalises, whatever forward did.",
            mutate.attribute(cases.moe_vjp, renormalise=True),
            {"dialects": ("plain-weights", "switch")},
        ),
        ("top-k-default", "attribute", "top-3"): (
            "The backward takes two experts, whatever forward took.",
            mutate.attribute(cases.moe_vjp, top_k=lambda top_k=2, **rest: min(top_k, 2)),
            {"dialects": ("mixtral", "plain-weights", "deepseek-v3", "linear")},
        ),
        ("last-choice-dropped", "index", "all-experts"): (
            "The chosen expert with the least weight gets no gradient."
        ),
        ("scale-default", "attribute scale", "scaled"): (
            "The backward leaves out the scale of the weights.",
            mutate.attribute(cases.moe_vjp, scale=1.0),
        ),
        ("router-unscaled", "scale attribute", "scaled"): (
            "The router's gradient lacks the scale."
        ),
        ("router-scaled-twice", "scale", "scaled"): (
            "The scale is applied to the router's gradient twice."
        ),
        ("idle-slots", "term derivative", "typical"): (
            "Experts that were not chosen feed the router's gradient too.",
            {
                "modelled_on": (
                    "transformers issue 48687: slots that were never routed collect a gradient"
                )
            },
        ),
        ("slots-sorted", "index", "typical"): (
            "The chosen scores' gradients are scattered in the order of the experts' numbers."
        ),
        ("slots-as-experts", "index", "typical"): (
            "The rank of a chosen expert is taken for its number."
        ),
        ("softmax-diagonal", "derivative term", "typical"): (
            "Only the diagonal of the softmax's Jacobian is applied.",
            {"dialects": SOFTMAX},
        ),
        ("softmax-over-chosen", "derivative term", "typical"): (
            "The softmax's gradient is centred by a plain mean over the chosen.",
            {"dialects": SOFTMAX},
        ),
        ("sigmoid-slope", "derivative", "typical"): (
            "The slope of a sigmoid score is taken for the score.",
            {"dialects": ("deepseek-v3",)},
        ),
        ("unshifted", "precision non-finite", "shifted"): (
            "The softmax of the router takes exp of the bare logits.",
            {"dialects": SOFTMAX, "dtype": "float32"},
        ),
        ("router-missing", "slot", "typical"): (
            "The router gets no gradient: the choice is taken for all that it does.",
            mutate.output(cases.moe_vjp, 1, mutate.zeros),
        ),
        ("x-not-by-router", "term", "one-token"): ("The token's gradient leaves out the router."),
        ("x-not-by-gate", "term", "one-token"): (
            "The token's gradient leaves out the experts' gates.",
            {"dialects": GATED},
        ),
        ("weight-missing", "scale derivative", "one-token"): (
            "The chosen experts' gradients lack their weights."
        ),
        ("weight-squared", "scale derivative", "one-token"): (
            "The experts' weights are applied to the gradient twice."
        ),
        ("weights-of-slots", "index saved-value", "typical"): (
            "The weights of the chosen are handed out in the order of the experts' numbers."
        ),
        ("weights-of-next-token", "index saved-value", "typical"): (
            "Every token reads the routing of the next one."
        ),
        ("next-token", "index saved-value", "typical"): (
            "The experts' weights see another token than the one that they were given."
        ),
        ("experts-overwritten", "accumulation broadcast", "typical"): (
            "An expert's gradient is overwritten by the last token that reached it."
        ),
        ("idle-left-over", "accumulation", "idle-experts"): (
            "The gradient of an expert that no token reached is what its buffer held.",
            {"make": lambda: moe_with("idle-left-over", {})},
        ),
        ("experts-averaged", "reduction", "typical"): (
            "The gradient of w_up is a mean over the tokens.",
            mutate.scaled(
                cases.moe_vjp, 2, lambda xp, x, *rest, **attrs: x.shape[-1] / max(x.size, 1)
            ),
        ),
        ("silu-slope", "derivative", "typical"): (
            "The slope of the gate is that of a sigmoid, not of a SiLU.",
            {"dialects": GATED},
        ),
        ("down-before-gate", "saved-value", "typical"): (
            "The gradient of w_down reads the gate's sum, not its SiLU.",
            {"dialects": GATED},
        ),
        ("up-gate-swapped", "slot", "typical"): (
            "The gradients of w_up and w_gate are in each other's place.",
            mutate.swapped(cases.moe_vjp, 2, 3),
            {"dialects": GATED},
        ),
        ("down-relaid", "layout", "typical"): (
            "The gradient of w_down is written as [e, f, o].",
            mutate.output(
                cases.moe_vjp,
                4,
                mutate.relaid,
            ),
            {"dialects": GATED},
        ),
    },
    faulty=moe_with,
)
