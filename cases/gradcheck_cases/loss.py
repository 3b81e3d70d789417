"""Losses: cross_entropy, softmax_cross_entropy. Axes: t positions, v classes."""

from __future__ import annotations

import numpy as np

from gradcheck.spec import Dialect, OpSpec, Sample

# ── cross_entropy ────────────────────────────────────────────────────────────────────────────


def cross_entropy_forward(xp, p, targets, *, bits=False, total=False, context_size=0):
    losses = -xp.log(_scored(xp, p, targets, context_size)) / _unit(xp, bits)
    return xp.sum(losses, axis=-1) if total else losses


def cross_entropy_vjp(xp, ct, p, targets, *, bits=False, total=False, context_size=0):
    if total:
        ct = xp.stack([ct], axis=-1)  # the same for each position
    dp = -ct / (_scored(xp, p, targets, context_size) * _unit(xp, bits))
    dp = xp.where(_counts(xp, targets, context_size), dp, 0)[..., None]
    return xp.reduce_to(xp.where(xp.is_index(targets, p.shape[-1]), dp, 0), p), None


def _scored(xp, p, targets, context_size):
    """The targets' probabilities; 1, which costs nothing, inside the context."""
    return xp.where(_counts(xp, targets, context_size), xp.pick(p, targets), 1)


def _counts(xp, targets, context_size):
    """Whether position i is scored: token i + 1, which it predicts, lies after the context."""
    return xp.positions(targets.shape[-1]) + 1 >= context_size


def _unit(xp, bits):
    return xp.log(xp.asarray(2.0)) if bits else 1


cross_entropy = OpSpec(
    name="cross_entropy",
    signature="(t,v),(t)->(t)",  # `total` sums the last axis away
    forward=cross_entropy_forward,
    vjp=cross_entropy_vjp,
    formula=r"\ell_t = -\ln p_{t,\mathrm{target}_t},\quad "
    r"\ell = -\sum_{t + 1 \ge \mathrm{context}} \log_2 p_{t,\mathrm{target}_t}",
    source="Shannon 1948, Bell System Technical Journal 27",
    dialects=(
        Dialect(name="nats", says="GPT-2 in Go: -ln p at each position"),
        Dialect(
            name="bits",
            says="Gemma: the sum of -log2 p over the positions after the context",
            attrs={"bits": True, "total": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.probabilities(4, 5), np.array([3, 0, 2, 4])),
            hunts="a factor ln 2 too many or missing, a mean instead of the sum",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.probabilities(4, 4), np.array([1, 2, 0, 3])),
            hunts="targets taken as positions",
        ),
        Sample(
            name="raw",
            primals=lambda draw: (draw.positive(3, 4), np.array([2, 0, 2])),
            hunts="rows normalised on the way, p clipped at 1",
        ),
        Sample(
            name="extreme",
            primals=lambda draw: (
                np.array([[2.0**-20, 0.5, 0.5], [0.25, 1 - 2.0**-20, 0.25], [0.5, 0.25, 0.25]]),
                np.array([0, 1, 2]),
            ),
            hunts="p clipped or shifted by an epsilon, a bound that a large 1/p drowns",
        ),
        Sample(
            name="two-classes",
            primals=lambda draw: (draw.probabilities(3, 2), np.array([1, 0, 1])),
            hunts="the other class rewarded",
        ),
        Sample(
            name="same-target",
            primals=lambda draw: (draw.probabilities(4, 3), np.array([2, 2, 2, 2])),
            hunts="equal targets of several positions run into one",
        ),
        Sample(
            name="ends",
            primals=lambda draw: (draw.probabilities(2, 7), np.array([6, 0])),
            hunts="the first or the last class off by one",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: (draw.probabilities(1, 3), np.array([1])),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (
                draw.probabilities(2, 3, 4),
                np.array([[3, 0, 3], [1, 2, 0]]),
            ),
            hunts="the first position's cotangent given to all",
        ),
        Sample(
            name="context",
            primals=lambda draw: (draw.probabilities(5, 3), np.array([2, 0, 1, 1, 2])),
            attrs={"context_size": 3},
            dialects=("bits",),
            hunts="positions inside the context with a gradient, the boundary off by one",
        ),
        Sample(
            name="context-all-but-one",
            primals=lambda draw: (draw.probabilities(3, 4), np.array([2, 0, 1])),
            attrs={"context_size": 3},
            dialects=("bits",),
            hunts="the last position taken for a part of the context",
        ),
        Sample(
            name="context-of-one",
            primals=lambda draw: (draw.probabilities(3, 4), np.array([2, 3, 1])),
            attrs={"context_size": 1},
            dialects=("bits",),
            hunts="position 0 hidden: it predicts token 1, which lies after the context",
        ),
    ),
)

# ── softmax_cross_entropy ────────────────────────────────────────────────────────────────────


def softmax_cross_entropy_forward(xp, logits, targets, *, next_token=False):
    if next_token:
        losses = softmax_cross_entropy_forward(xp, logits[..., :-1, :], targets[..., 1:])
        return xp.mean(losses, axis=-1)
    z = logits - xp.max(logits, axis=-1, keepdims=True)
    return xp.log(xp.sum(xp.exp(z), axis=-1)) - xp.pick(z, targets)


def softmax_cross_entropy_vjp(xp, ct, logits, targets, *, next_token=False):
    if next_token:
        scored, last = logits[..., :-1, :], logits[..., -1:, :]
        ct = xp.stack([ct / scored.shape[-2]], axis=-1)  # the same for each position
        dscored, _ = softmax_cross_entropy_vjp(xp, ct, scored, targets[..., 1:])
        return xp.concatenate([dscored, xp.zeros_like(last)], axis=-2), None
    e = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    p = e / xp.sum(e, axis=-1, keepdims=True)
    slope = xp.where(xp.is_index(targets, logits.shape[-1]), p - 1, p)
    return xp.reduce_to(slope * ct[..., None], logits), None


softmax_cross_entropy = OpSpec(
    name="softmax_cross_entropy",
    signature="(t,v),(t)->(t)",  # `next_token` averages the last axis away
    forward=softmax_cross_entropy_forward,
    vjp=softmax_cross_entropy_vjp,
    formula=r"\ell_t = \ln \sum_j e^{x_{tj}} - x_{t,\mathrm{target}_t},\quad "
    r"\ell = \frac{1}{T - 1} \sum_{t < T - 1} \ell(x_t, \mathrm{target}_{t+1})",
    source="Bridle 1990, Neurocomputing, p. 227; llm.go, crossentropySoftmaxBackward",
    dialects=(
        Dialect(name="per-position", says="GPT-2 in Go: a loss for each position"),
        Dialect(
            name="next-token",
            says="the Llama trainer: row t against token t + 1, averaged over T - 1 rows",
            attrs={"next_token": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(4, 5), np.array([3, 0, 2, 4])),
            hunts="a missing 1 at the target, T instead of T - 1, tokens not shifted",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), np.array([1, 2, 0, 3])),
            hunts="softmax over positions, targets taken as positions",
        ),
        Sample(
            name="two-classes",
            primals=lambda draw: (draw.normal(3, 2), np.array([1, 0, 1])),
            hunts="the other class rewarded",
        ),
        Sample(
            name="same-target",
            primals=lambda draw: (draw.normal(4, 3), np.array([2, 2, 2, 2])),
            hunts="equal targets of several positions run into one",
        ),
        Sample(
            name="ends",
            primals=lambda draw: (draw.normal(2, 7), np.array([6, 0])),
            hunts="the first or the last class off by one, 1/(T - 1) where T is 2",
        ),
        Sample(
            name="one-position",
            primals=lambda draw: (draw.normal(1, 5), np.array([1])),
            dialects=("per-position",),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), np.array([[3, 0, 3], [1, 4, 2]])),
            hunts="the first position's cotangent given to all, a shift across sequences",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (draw.normal(4, 5, scale=8.0), np.array([3, 0, 2, 4])),
            hunts="log of a probability that underflows",
        ),
        Sample(
            name="certain",
            primals=lambda draw: (
                draw.normal(3, 4) + np.array([[12.0], [6.0], [0.0]]) * np.eye(4)[2],
                np.array([2, 2, 2]),
            ),
            hunts="a gradient cut off where the target is certain",
        ),
        Sample(
            name="shifted",
            primals=lambda draw: (
                draw.uniform(-3, 3, 3, 5) + np.array([[1000.0], [-1000.0], [0.0]]),
                np.array([4, 1, 0]),
            ),
            hunts="exp without the maximum taken out, or with that of another row",
        ),
    ),
)

OPERATORS = (cross_entropy, softmax_cross_entropy)
