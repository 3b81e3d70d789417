"""Losses. Axes: t positions, v classes, n elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample

REDUCTIONS = ("none", "mean", "sum")


def _reduced(xp: Any, losses: Any, reduction: str) -> Any:
    """Losses along the last axis: unreduced, averaged, or summed."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction {reduction!r}: use one of {', '.join(REDUCTIONS)}")
    if reduction == "none":
        return losses
    total = xp.sum(losses, axis=-1)
    return total / losses.shape[-1] if reduction == "mean" else total


def _spread(xp: Any, ct: Any, count: int, reduction: str) -> Any:
    """Adjoint of `_reduced`: the cotangent of each of `count` losses."""
    if reduction == "none":
        return ct
    ct = xp.stack([ct], axis=-1)  # equal for all
    return ct / count if reduction == "mean" else ct


# ── cross_entropy ────────────────────────────────────────────────────────────────────────────


def cross_entropy_forward(xp, p, targets, *, bits=False, total=False, context_size=0):
    losses = -xp.log(_scored(xp, p, targets, context_size)) / _unit(xp, bits)
    return xp.sum(losses, axis=-1) if total else losses


def cross_entropy_vjp(xp, ct, p, targets, *, bits=False, total=False, context_size=0):
    if total:
        ct = xp.stack([ct], axis=-1)  # equal for all positions
    dp = -ct / (_scored(xp, p, targets, context_size) * _unit(xp, bits))
    dp = xp.where(_counts(xp, targets, context_size), dp, 0)[..., None]
    return xp.reduce_to(xp.where(xp.is_index(targets, p.shape[-1]), dp, 0), p), None


def _scored(xp, p, targets, context_size):
    """The targets' probabilities; 1, which has no loss, inside the context."""
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
            exact=True,
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
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros(0, dtype=np.int64)),
            hunts="a mean over no position, a first row read that is not there",
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
        Sample(
            name="tiles",
            primals=lambda draw: (draw.positive(2, 263), np.array([262, 1])),
            dialects=("nats",),
            hunts="a class numbered in one byte, a vocabulary in blocks of 64 or 128",
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
        ct = xp.stack([ct / scored.shape[-2]], axis=-1)  # equal for all positions
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
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros(0, dtype=np.int64)),
            dialects=("per-position",),
            hunts="a mean over no position, a first row read that is not there",
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
        Sample(
            name="tiles",
            primals=lambda draw: (np.log(draw.swamped(1, 131)), np.array([130])),
            dialects=("per-position",),
            hunts="a vocabulary in blocks of 64 or 128, the rest of it left out; its sum kept "
            "in float16 or bfloat16",
        ),
    ),
)

# ── label_smoothing_cross_entropy ────────────────────────────────────────────────────────────


def label_smoothing_cross_entropy_forward(
    xp, logits, targets, *, smoothing=0.1, others=False, reduction="none"
):
    z = logits - xp.max(logits, axis=-1, keepdims=True)
    log_p = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
    wanted = _smoothed(xp, targets, logits.shape[-1], smoothing, others)
    return _reduced(xp, -xp.sum(wanted * log_p, axis=-1), reduction)


def label_smoothing_cross_entropy_vjp(
    xp, ct, logits, targets, *, smoothing=0.1, others=False, reduction="none"
):
    e = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    p = e / xp.sum(e, axis=-1, keepdims=True)
    wanted = _smoothed(xp, targets, logits.shape[-1], smoothing, others)
    ct = _spread(xp, ct, logits.shape[-2], reduction)
    return xp.reduce_to((p - wanted) * ct[..., None], logits), None


def _smoothed(xp: Any, targets: Any, classes: int, smoothing: float, others: bool) -> Any:
    """The target probabilities, [t, v]; computed in `xp`, so that they sum to 1 in its rounding."""
    smoothing = xp.asarray(smoothing)
    share = smoothing / (classes - 1 if others else classes)
    at_target = 1 - smoothing if others else 1 - smoothing + share
    return xp.where(xp.is_index(targets, classes), at_target, share)


label_smoothing_cross_entropy = OpSpec(
    name="label_smoothing_cross_entropy",
    signature="(t,v),(t)->(t)",  # `reduction` takes t away
    forward=label_smoothing_cross_entropy_forward,
    vjp=label_smoothing_cross_entropy_vjp,
    formula=r"\ell_t = -\sum_v q_{tv} \ln p_{tv},\quad "
    r"q_{tv} = (1 - s)\,[v = \mathrm{target}_t] + s / V",
    source="Szegedy et al. 2016, arXiv:1512.00567; torch cross_entropy(label_smoothing)",
    dialects=(
        Dialect(name="all-classes", says="PyTorch: s is shared by all V classes"),
        Dialect(
            name="other-classes",
            says="fairseq: s is shared by the V - 1 classes beside the target",
            attrs={"others": True},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(4, 5), np.array([3, 0, 2, 4])),
            hunts="smoothing in forward only, s/V taken for s",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), np.array([1, 2, 0, 3])),
            hunts="targets taken as positions, s/T for s/V",
        ),
        Sample(
            name="smoothing-0",
            primals=lambda draw: (draw.normal(3, 5), np.array([4, 1, 1])),
            attrs={"smoothing": 0.0},
            hunts="a smoothing of 0 replaced by the default",
        ),
        Sample(
            name="smoothing-half",
            primals=lambda draw: (draw.normal(3, 4), np.array([3, 0, 2])),
            attrs={"smoothing": 0.5},
            hunts="the default smoothing whatever was asked for",
        ),
        Sample(
            name="smoothing-1",
            primals=lambda draw: (draw.normal(3, 4), np.array([3, 0, 2])),
            attrs={"smoothing": 1.0},
            hunts="the target's share counted twice: all of it is smoothed away",
        ),
        Sample(
            name="two-classes",
            primals=lambda draw: (draw.normal(3, 2), np.array([1, 0, 1])),
            hunts="V for V - 1, which is worst here",
        ),
        Sample(
            name="mean",
            primals=lambda draw: (draw.normal(3, 5), np.array([2, 0, 4])),
            attrs={"reduction": "mean"},
            hunts="1/V or 1 in place of 1/T",
        ),
        Sample(
            name="sum",
            primals=lambda draw: (draw.normal(3, 5), np.array([2, 0, 4])),
            attrs={"reduction": "sum"},
            hunts="the mean whatever was asked for",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 5), np.array([[3, 0, 3], [1, 4, 2]])),
            hunts="the first position's cotangent given to all",
        ),
        Sample(
            name="certain",
            primals=lambda draw: (
                draw.normal(2, 4) + np.array([[12.0], [24.0]]) * np.eye(4)[2],
                np.array([2, 2]),
            ),
            hunts="a gradient of 0 where p is 1: smoothing pulls it back",
        ),
        Sample(
            name="shifted",
            primals=lambda draw: (
                draw.uniform(-3, 3, 2, 5) + np.array([[1000.0], [-1000.0]]),
                np.array([4, 1]),
            ),
            hunts="exp without the maximum taken out",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros(0, dtype=np.int64)),
            hunts="a mean over no position",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 131), np.array([130])),
            dialects=("all-classes",),
            hunts="a vocabulary in blocks of 64 or 128, the rest of it left out",
        ),
    ),
)

# ── masked_cross_entropy ─────────────────────────────────────────────────────────────────────


def masked_cross_entropy_forward(xp, logits, targets, *, ignore_index=-100, reduction="mean"):
    counts = targets != ignore_index
    losses = softmax_cross_entropy_forward(xp, logits, targets * counts)
    losses = xp.where(counts, losses, 0)
    if reduction == "mean":
        return _reduced(xp, losses, "sum") / _counted(xp, counts)
    return _reduced(xp, losses, reduction)


def masked_cross_entropy_vjp(xp, ct, logits, targets, *, ignore_index=-100, reduction="mean"):
    counts = targets != ignore_index
    if reduction == "mean":
        ct, reduction = ct / _counted(xp, counts), "sum"
    ct = xp.where(counts, _spread(xp, ct, targets.shape[-1], reduction), 0)
    return softmax_cross_entropy_vjp(xp, ct, logits, targets * counts)


def _counted(xp: Any, counts: Any) -> Any:
    """Number of positions of each sequence that count; 1 if none does, so that the mean is 0."""
    return xp.asarray(np.maximum(counts.sum(axis=-1), 1))


masked_cross_entropy = OpSpec(
    name="masked_cross_entropy",
    signature="(t,v),(t)->()",  # reduction "none" keeps t
    forward=masked_cross_entropy_forward,
    vjp=masked_cross_entropy_vjp,
    formula=r"\ell = \frac{1}{|S|} \sum_{t \in S} \ell_t,\quad "
    r"S = \{t : \mathrm{target}_t \ne \mathrm{ignore}\}",
    source="torch.nn.functional.cross_entropy(ignore_index)",
    dialects=(
        Dialect(name="mean", says="PyTorch's default: over the positions that count"),
        Dialect(
            name="sum",
            says="for batches whose counts are known only later",
            attrs={"reduction": "sum"},
        ),
        Dialect(
            name="none",
            says="a loss for each position, 0 where it is ignored",
            attrs={"reduction": "none"},
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(5, 3), np.array([2, -100, 0, -100, 1])),
            hunts="1/T in place of 1/(positions that count), ignored rows with a gradient",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), np.array([1, -100, 0, 3])),
            hunts="the mask laid over classes",
        ),
        Sample(
            name="none-ignored",
            primals=lambda draw: (draw.normal(3, 5), np.array([4, 0, 2])),
            hunts="a count of T - 1",
        ),
        Sample(
            name="all-ignored",  # PyTorch's mean is 0/0 here
            primals=lambda draw: (draw.normal(3, 4), np.array([-100, -100, -100])),
            dialects=("sum", "none"),
            hunts="the gradient of another batch left in the buffer; it is exactly 0",
        ),
        Sample(
            name="one-counts",
            primals=lambda draw: (draw.normal(4, 3), np.array([-100, -100, 1, -100])),
            hunts="row 0 used where position 0 is ignored",
        ),
        Sample(
            name="index-0",
            primals=lambda draw: (draw.normal(4, 3), np.array([2, 0, 1, 0])),
            attrs={"ignore_index": 0},
            hunts="-100 whatever was asked for; index 0 taken for none",
        ),
        Sample(
            name="index-inside",
            primals=lambda draw: (draw.normal(4, 4), np.array([2, 1, 3, 0])),
            attrs={"ignore_index": 1},
            hunts="all classes from ignore_index on, instead of this one only",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (
                draw.normal(2, 3, 4),
                np.array([[-100, 3, 0], [1, -100, -100]]),
            ),
            hunts="one count for sequences whose counts differ",
        ),
        Sample(
            name="ignored-saturated",
            primals=lambda draw: (
                draw.normal(3, 4) * np.array([[1.0], [1024.0], [1.0]]),
                np.array([1, -100, 2]),
            ),
            hunts="mask times gradient in place of a choice: 0 * inf",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros(0, dtype=np.int64)),
            dialects=("sum", "none"),
            hunts="a first row read that is not there",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (
                draw.normal(37, 3),
                np.where(np.arange(37) % 3 == 1, -100, draw.integers(0, 3, 37)),
            ),
            dialects=("mean",),
            hunts="rows behind 32 left out of the mean",
        ),
    ),
)

# ── z_loss ───────────────────────────────────────────────────────────────────────────────────


def z_loss_forward(xp, logits, targets, *, weight=1e-4, reduction="none"):
    log_z = _log_sum_exp(xp, logits)
    losses = log_z - xp.pick(logits, targets) + weight * log_z * log_z
    return _reduced(xp, losses, reduction)


def z_loss_vjp(xp, ct, logits, targets, *, weight=1e-4, reduction="none"):
    log_z = _log_sum_exp(xp, logits)
    p = xp.exp(logits - log_z[..., None])
    slope = p * (1 + 2 * weight * log_z)[..., None]
    slope = xp.where(xp.is_index(targets, logits.shape[-1]), slope - 1, slope)
    ct = _spread(xp, ct, logits.shape[-2], reduction)
    return xp.reduce_to(slope * ct[..., None], logits), None


def _log_sum_exp(xp: Any, x: Any) -> Any:
    largest = xp.max(x, axis=-1, keepdims=True)
    return largest[..., 0] + xp.log(xp.sum(xp.exp(x - largest), axis=-1))


z_loss = OpSpec(
    name="z_loss",
    signature="(t,v),(t)->(t)",  # `reduction` takes t away
    forward=z_loss_forward,
    vjp=z_loss_vjp,
    formula=r"\ell_t = \ln Z_t - x_{t,\mathrm{target}_t} + \lambda \ln^2 Z_t,\quad "
    r"Z_t = \sum_v e^{x_{tv}}",
    source="Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, §5: λ = 1e-4",
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(4, 5), np.array([3, 0, 2, 4])),
            attrs={"weight": 0.25},
            hunts="the term of log Z left out, its factor 2 missing",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), np.array([1, 2, 0, 3])),
            attrs={"weight": 0.25},
            hunts="targets taken as positions",
        ),
        Sample(
            name="default-weight",
            primals=lambda draw: (draw.normal(3, 5) + 64.0, np.array([4, 1, 1])),
            hunts="another default: log Z is 65 here, so that 1e-4 counts",
        ),
        Sample(
            name="weight-0",
            primals=lambda draw: (draw.normal(3, 4), np.array([3, 0, 2])),
            attrs={"weight": 0.0},
            hunts="a weight of 0 replaced by the default",
        ),
        Sample(
            name="negative-log-z",
            primals=lambda draw: (draw.normal(3, 4) - 8.0, np.array([3, 0, 2])),
            attrs={"weight": 0.125},
            hunts="|log Z| in place of log Z",
        ),
        Sample(
            name="mean",
            primals=lambda draw: (draw.normal(3, 5), np.array([2, 0, 4])),
            attrs={"weight": 0.25, "reduction": "mean"},
            hunts="the mean of one term and the sum of the other",
        ),
        Sample(
            name="sum",
            primals=lambda draw: (draw.normal(3, 5), np.array([2, 0, 4])),
            attrs={"weight": 0.25, "reduction": "sum"},
            hunts="the mean whatever was asked for",
        ),
        Sample(
            name="batched",
            primals=lambda draw: (draw.normal(2, 3, 4), np.array([[3, 0, 3], [1, 0, 2]])),
            attrs={"weight": 0.5},
            hunts="log Z of the first position used for all",
        ),
        Sample(
            name="one-class",
            primals=lambda draw: (draw.normal(3, 1), np.array([0, 0, 0])),
            attrs={"weight": 0.25},
            hunts="a gradient of 0 where p is 1: log Z is x itself",
        ),
        Sample(
            name="shifted",
            primals=lambda draw: (
                draw.uniform(-3, 3, 2, 5) + np.array([[1000.0], [-1000.0]]),
                np.array([4, 1]),
            ),
            hunts="log Z without the maximum that was taken out",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0, 5)), np.zeros(0, dtype=np.int64)),
            hunts="a first row read that is not there",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(1, 131), np.array([130])),
            hunts="a vocabulary in blocks of 64 or 128, the rest of it left out",
        ),
    ),
)

# ── square_error ─────────────────────────────────────────────────────────────────────────────


def square_error_forward(xp, x, y, *, reduction="sum"):
    d = x - y
    return _reduced(xp, d * d, reduction)


def square_error_vjp(xp, ct, x, y, *, reduction="sum"):
    d = x - y
    g = 2 * d * _spread(xp, ct, d.shape[-1], reduction)
    return xp.reduce_to(g, x), xp.reduce_to(-g, y)


PAIR_SAMPLES = (  # of predictions and targets, both differentiated
    Sample(
        name="broadcast",
        primals=lambda draw: (draw.away((-0.5, 0.5), 3, 5), np.zeros((1, 5))),
        hunts="the targets' gradient not summed over the rows that share them",
    ),
    Sample(
        name="empty",
        primals=lambda draw: (np.zeros((0,)), np.zeros((0,))),
        attrs={"reduction": "sum"},
        hunts="a first element read that is not there",
    ),
)

square_error = OpSpec(
    name="square_error",
    signature="(n),(n)->()",  # reduction "none" keeps n
    forward=square_error_forward,
    vjp=square_error_vjp,
    formula=r"\ell = \sum_i (x_i - y_i)^2",
    source="Gauss 1809; ggml's baby-llama, square_error_loss; torch.nn.functional.mse_loss",
    dialects=(
        Dialect(name="sum", says="ggml's baby-llama: the sum, without a half"),
        Dialect(name="mean", says="PyTorch: the mean of the squares", attrs={"reduction": "mean"}),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 7), draw.normal(3, 7)),
            hunts="the factor 2 lost, the target's gradient with the same sign",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.normal(4, 4), draw.normal(4, 4)),
            hunts="the mean over rows in place of columns",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.signed(1), draw.signed(1) * 2.0),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="equal",
            primals=lambda draw: (np.array([0.5, -2.0, 3.0]), np.array([0.5, -2.0, 1.0])),
            exact=True,
            hunts="d/|d|: 0/0 where the target is met",
        ),
        Sample(
            name="scales",
            primals=lambda draw: (
                draw.filled(draw.powers(2, 5) * 1024.0),
                draw.filled(draw.powers(2, 5) * 2.0**-10),
            ),
            hunts="the gradient clipped",
        ),
        Sample(
            name="none",
            primals=lambda draw: (draw.normal(2, 3), draw.normal(2, 3)),
            attrs={"reduction": "none"},
            hunts="the first element's cotangent given to all",
        ),
        *PAIR_SAMPLES,
        Sample(
            name="tiles",
            primals=lambda draw: (draw.normal(131), draw.normal(131)),
            dialects=("sum",),
            hunts="blocks of 64 or 128 terms whose tail is left out",
        ),
    ),
)

# ── huber ────────────────────────────────────────────────────────────────────────────────────


def huber_forward(xp, x, y, *, delta=1.0, scaled=False, reduction="none"):
    d = x - y
    far = xp.abs(d)
    losses = xp.where(far <= delta, 0.5 * d * d, delta * (far - 0.5 * delta))
    return _reduced(xp, losses / delta if scaled else losses, reduction)


def huber_vjp(xp, ct, x, y, *, delta=1.0, scaled=False, reduction="none"):
    d = x - y
    slope = xp.where(xp.abs(d) <= delta, d, delta * xp.sign(d))
    g = _spread(xp, ct, d.shape[-1], reduction) * (slope / delta if scaled else slope)
    return xp.reduce_to(g, x), xp.reduce_to(-g, y)


def _bend(primal: str) -> Kink:
    """Points where the second derivative jumps; the first does not, so one answer is right."""
    return Kink(
        name=f"|x - y| = delta, {primal}",
        gap=lambda xp, x, y, *, delta, **attrs: xp.abs(xp.abs(x - y) - delta),
        primal=primal,
        source="both one-sided slopes are ±delta: the bend is in the second derivative",
    )


def _off_target(draw: Any) -> tuple[Any, ...]:
    """Differences away from every bend, at targets with full mantissas."""
    y = draw.normal(3, 7)
    return y + draw.away((-1.0, 0.0, 1.0), 3, 7, scale=2.0), y


def _at_delta(draw: Any) -> tuple[Any, ...]:
    """Differences of ±1, one ulp on either side, and away from it."""
    one = np.float32(1.0)
    up, down = np.nextafter(one, np.float32(2.0)), np.nextafter(one, np.float32(0.0))
    d = np.array([1.0, -1.0, up, down, -up, -down, 0.0, 0.5, -3.0])
    return d, np.zeros(9)


huber = OpSpec(
    name="huber",
    signature="(n),(n)->(n)",  # `reduction` takes n away
    forward=huber_forward,
    vjp=huber_vjp,
    formula=r"\ell = \begin{cases} \tfrac{1}{2} d^2 & |d| \le \delta \\ "
    r"\delta (|d| - \tfrac{1}{2} \delta) & |d| > \delta \end{cases},\quad d = x - y",
    source="Huber 1964, Ann. Math. Statist. 35(1); torch.nn.functional.huber_loss",
    dialects=(
        Dialect(name="huber", says="Huber, PyTorch's huber_loss, optax: slope up to delta"),
        Dialect(
            name="smooth-l1",
            says="Fast R-CNN, PyTorch's smooth_l1_loss: divided by delta, slope up to 1",
            attrs={"scaled": True},
        ),
    ),
    kinks=(_bend("x"), _bend("y")),
    samples=(
        Sample(
            name="typical",
            primals=_off_target,
            hunts="one branch for both, the sign lost in the outer one",
        ),
        Sample(
            name="targets",
            primals=lambda draw: (
                draw.filled([3.0, -2.5, 0.25]),
                draw.filled([2.5, 1.0, 1.75]),
            ),
            hunts="x in place of x - y, the target's gradient with the same sign",
        ),
        Sample(
            name="delta-0.25",
            primals=lambda draw: (draw.away((-0.25, 0.0, 0.25), 3, 5), np.zeros((3, 5))),
            attrs={"delta": 0.25},
            hunts="delta at its default, delta's square, a stray or missing division by it",
        ),
        Sample(
            name="delta-4",
            primals=lambda draw: (draw.away((-4.0, 0.0, 4.0), 2, 5, scale=4.0), np.zeros((2, 5))),
            attrs={"delta": 4.0},
            hunts="the slope clipped at 1",
        ),
        Sample(
            name="met",
            primals=lambda draw: (np.array([0.5, -2.0, 3.0]), np.array([0.5, -2.0, 1.0])),
            exact=True,
            hunts="d/|d|: 0/0 where the target is met",
        ),
        Sample(
            name="far",
            primals=lambda draw: (draw.filled(draw.powers(2, 5) * 4096.0), np.zeros((2, 5))),
            hunts="a slope that keeps growing",
        ),
        Sample(
            name="mean",
            primals=lambda draw: (draw.away((-1.0, 1.0), 2, 5), np.zeros((2, 5))),
            attrs={"reduction": "mean"},
            hunts="the mean over all rows in place of each",
        ),
        Sample(
            name="sum",
            primals=lambda draw: (draw.away((-1.0, 1.0), 2, 5), np.zeros((2, 5))),
            attrs={"reduction": "sum"},
            hunts="the mean whatever was asked for",
        ),
        Sample(
            name="kink",
            primals=_at_delta,
            hunts="0, or half of delta, on the bend",
            at_kink=True,
        ),
        Sample(
            name="kink-delta-2",
            primals=lambda draw: (np.array([2.0, -2.0, 1.0, 3.0]), np.zeros(4)),
            attrs={"delta": 2.0},
            hunts="1 in place of delta on the bend",
            at_kink=True,
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0,)), np.zeros((0,))),
            attrs={"reduction": "sum"},
            hunts="a first element read that is not there",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.away((-1.0, 0.0, 1.0), 263, scale=2.0), np.zeros(263)),
            dialects=("huber",),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind "
            "128 that is left out",
        ),
    ),
)

# ── hinge ────────────────────────────────────────────────────────────────────────────────────


def hinge_forward(xp, x, labels, *, margin=1.0, squared=False, reduction="none"):
    short = xp.maximum(margin - xp.asarray(labels) * x, 0)
    return _reduced(xp, short * short if squared else short, reduction)


def _hinge_vjp_with(on_kink: float) -> Any:
    """A VJP of hinge whose slope on the kink is `on_kink` times that of the sloped side."""

    def vjp(xp, ct, x, labels, *, margin=1.0, squared=False, reduction="none"):
        y = xp.asarray(labels)
        short = margin - y * x
        slope = xp.where(short > 0, -y, xp.where(short == 0, -y * on_kink, 0))
        if squared:
            slope = 2 * short * slope
        g = slope * _spread(xp, ct, short.shape[-1], reduction)
        return xp.reduce_to(g, x), None

    return vjp


hinge_vjp = _hinge_vjp_with(0.0)

hinge = OpSpec(
    name="hinge",
    signature="(n),(n)->(n)",  # `reduction` takes n away
    forward=hinge_forward,
    vjp=hinge_vjp,
    formula=r"\ell = \max(0,\, m - y x),\quad y = \pm 1",
    source="Cortes & Vapnik 1995, Machine Learning 20; scikit-learn's Hinge and SquaredHinge",
    dialects=(
        Dialect(name="hinge", says="support vector machines: max(0, 1 - y x)"),
        Dialect(
            name="squared",
            says="L2-SVM: its square, which bends only in the second derivative",
            attrs={"squared": True},
        ),
    ),
    kinks=(
        Kink(
            name="y x = margin",
            gap=lambda xp, x, labels, *, margin, **attrs: xp.abs(margin - labels * x),
            source="Clarke's generalised gradient: every slope between -y and 0",
            conventions=(
                Convention(name="0", systems=("PyTorch (relu)", "river"), vjp=hinge_vjp),
                Convention(
                    name="-y",
                    systems=("scikit-learn", "PyTorch (clamp)", "TensorFlow"),
                    vjp=_hinge_vjp_with(1.0),
                ),
                Convention(
                    name="-y/2",
                    systems=("JAX (optax)", "PyTorch (maximum)"),
                    vjp=_hinge_vjp_with(0.5),
                ),
            ),
        ),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (
                draw.away((-1.0, 1.0), 3, 7),
                draw.integers(0, 2, 3, 7) * 2 - 1,
            ),
            hunts="the label left out of the slope, its sign lost",
        ),
        Sample(
            name="all-met",
            primals=lambda draw: (np.array([2.0, -3.0, 1.5]), np.array([1, -1, 1])),
            hunts="a gradient where the margin is met",
        ),
        Sample(
            name="all-missed",
            primals=lambda draw: (
                draw.filled([-2.0, 0.5, 0.0]),
                np.array([1, -1, 1]),
            ),
            hunts="a gradient only where the sign is wrong: within the margin there is one too",
        ),
        Sample(
            name="margin-0.25",
            primals=lambda draw: (draw.away((-0.25, 0.25), 9), draw.integers(0, 2, 9) * 2 - 1),
            attrs={"margin": 0.25},
            hunts="margin 1 whatever was asked for",
        ),
        Sample(
            name="perceptron",
            primals=lambda draw: (draw.away(0.0, 9), draw.integers(0, 2, 9) * 2 - 1),
            attrs={"margin": 0.0},
            hunts="a margin of 0 replaced by the default",
        ),
        Sample(
            name="mean",
            primals=lambda draw: (draw.away((-1.0, 1.0), 2, 5), np.array([[1, -1, 1, 1, -1]])),
            attrs={"reduction": "mean"},
            hunts="the mean over the elements that miss the margin only",
        ),
        Sample(
            name="sum",
            primals=lambda draw: (draw.away((-1.0, 1.0), 2, 5), np.array([[1, -1, 1, 1, -1]])),
            attrs={"reduction": "sum"},
            hunts="the mean whatever was asked for",
        ),
        Sample(
            name="far",
            primals=lambda draw: (
                draw.filled(draw.powers(7) * 1024.0),
                np.array([1, 1, -1, 1, -1, -1, 1]),
            ),
            hunts="a slope that grows with the distance, or one that does not where it should",
        ),
        Sample(
            name="kink",
            primals=lambda draw: (
                np.array(
                    [1.0, -1.0, np.nextafter(np.float32(1), np.float32(9)), -3.0, 2.0, 0.0, 1.0]
                ),
                np.array([1, -1, 1, 1, 1, -1, -1]),
            ),
            hunts="a slope outside [-y, 0] on the margin",
            at_kink=True,
        ),
        Sample(
            name="kink-margin-2",
            primals=lambda draw: (np.array([2.0, -2.0, 1.0, -1.0]), np.array([1, -1, 1, -1])),
            attrs={"margin": 2.0, "reduction": "sum"},
            hunts="a kink where the default margin would have one",
            at_kink=True,
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0,)), np.zeros(0, dtype=np.int64)),
            attrs={"reduction": "sum"},
            hunts="a first element read that is not there",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.away((-1.0, 1.0), 263), draw.integers(0, 2, 263) * 2 - 1),
            dialects=("hinge",),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind "
            "128 that is left out",
        ),
    ),
)

# ── binary_cross_entropy ─────────────────────────────────────────────────────────────────────


def binary_cross_entropy_forward(xp, x, y, *, logits=True, pos_weight=1.0, reduction="none"):
    if logits:
        minus_log_p = xp.log1p(xp.exp(-xp.abs(x))) + xp.maximum(-x, 0)  # of sigmoid(x)
        losses = (1 - y) * x + (1 + (pos_weight - 1) * y) * minus_log_p
    else:
        losses = -(pos_weight * y * xp.log(x) + (1 - y) * xp.log(1 - x))
    return _reduced(xp, losses, reduction)


def binary_cross_entropy_vjp(xp, ct, x, y, *, logits=True, pos_weight=1.0, reduction="none"):
    if logits:
        minus_log_p = xp.log1p(xp.exp(-xp.abs(x))) + xp.maximum(-x, 0)
        positive = pos_weight * y
        dx = (positive + 1 - y) * xp.sigmoid(x) - positive
        dy = (pos_weight - 1) * minus_log_p - x
    else:
        dx = (1 - y) / (1 - x) - pos_weight * y / x
        dy = xp.log(1 - x) - pos_weight * xp.log(x)
    ct = _spread(xp, ct, (x - y).shape[-1], reduction)
    return xp.reduce_to(ct * dx, x), xp.reduce_to(ct * dy, y)


binary_cross_entropy = OpSpec(
    name="binary_cross_entropy",
    signature="(n),(n)->(n)",  # `reduction` takes n away
    forward=binary_cross_entropy_forward,
    vjp=binary_cross_entropy_vjp,
    formula=r"\ell = -w y \ln p - (1 - y) \ln (1 - p),\quad p = \sigma(x)",
    source="Cox 1958, J. R. Stat. Soc. B 20; torch binary_cross_entropy, _with_logits",
    dialects=(
        Dialect(name="logits", says="p = sigmoid(x), fused: no logarithm of a rounded p"),
        Dialect(name="probabilities", says="x is the probability itself", attrs={"logits": False}),
    ),
    samples=(
        Sample(  # any numbers are logits, probabilities too
            name="typical",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 3, 7), draw.signs(3, 7) / 2 + 0.5),
            hunts="y and 1 - y exchanged, the slope of the other form",
        ),
        Sample(
            name="soft",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 3, 5), draw.uniform(0.0, 1.0, 3, 5)),
            hunts="targets rounded to 0 and 1, their gradient of the wrong sign",
        ),
        Sample(
            name="outside",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 5), np.array([-0.5, 1.5, 2.0, -1, 0])),
            dialects=("logits",),
            hunts="targets clipped to [0, 1]",
        ),
        Sample(
            name="logits-normal",
            primals=lambda draw: (draw.normal(4, 4), draw.uniform(0.0, 1.0, 4, 4)),
            dialects=("logits",),
            hunts="a formula for positive x only",
        ),
        Sample(
            name="zero-logit",
            primals=lambda draw: (
                draw.filled([0.0, 0.0, -0.0, 0.5]),
                np.array([0.0, 1.0, 0.5, 1.0]),
            ),
            dialects=("logits",),
            hunts="the corners of |x| and max(x, 0), which cancel, differentiated one by one",
        ),
        Sample(
            name="saturated",
            primals=lambda draw: (
                draw.filled([-12.0, -8.0, 8.0, 12.0, -12.0, 12.0]),
                np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.5]),
            ),
            dialects=("logits",),
            hunts="log of a rounded probability",
        ),
        Sample(
            name="overflow",
            primals=lambda draw: (
                np.array([-800.0, 800.0, -104.0, 104.0]),
                np.array([1.0, 0.0, 1.0, 0.0]),
            ),
            dialects=("logits",),
            exact=True,
            hunts="log(1 + exp(-x)) without a guard: inf",
        ),
        Sample(
            name="extreme",
            primals=lambda draw: (
                np.array([2.0**-20, 1 - 2.0**-20, 2.0**-12, 1 - 2.0**-12]),
                np.array([1.0, 0.0, 0.5, 0.5]),
            ),
            dialects=("probabilities",),
            exact=True,
            hunts="p clipped or shifted by an epsilon",
        ),
        Sample(
            name="pos-weight",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 2, 5), draw.uniform(0.0, 1.0, 2, 5)),
            attrs={"pos_weight": 3.0},
            hunts="the weight left out, or put on both terms",
        ),
        Sample(
            name="mean",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 2, 5), draw.uniform(0.0, 1.0, 2, 5)),
            attrs={"reduction": "mean"},
            hunts="a sum over classes and a mean over rows",
        ),
        Sample(
            name="sum",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 2, 5), draw.uniform(0.0, 1.0, 2, 5)),
            attrs={"reduction": "sum"},
            hunts="the mean whatever was asked for",
        ),
        Sample(
            name="broadcast",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 3, 5), draw.uniform(0, 1, 1, 5)),
            hunts="the targets' gradient not summed over the rows that share them",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((0,)), np.zeros((0,))),
            attrs={"reduction": "sum"},
            hunts="a first element read that is not there",
        ),
        Sample(
            name="tiles",
            primals=lambda draw: (draw.uniform(0.125, 0.875, 263), draw.signs(263) / 2 + 0.5),
            dialects=("logits",),
            hunts="a grid of one block of 256 threads, an index of one byte, a tail behind "
            "128 that is left out",
        ),
    ),
)

# ── kl_divergence ────────────────────────────────────────────────────────────────────────────


def kl_divergence_forward(xp, q, p, *, log_q=True, log_p=False, reduction="sum"):
    weight, ln_p = (xp.exp(p), p) if log_p else (p, _log_or_0(xp, p))
    ln_q = q if log_q else xp.log(q)
    return _reduced(xp, weight * (ln_p - ln_q), reduction)


def kl_divergence_vjp(xp, ct, q, p, *, log_q=True, log_p=False, reduction="sum"):
    weight, ln_p = (xp.exp(p), p) if log_p else (p, _log_or_0(xp, p))
    d = ln_p - (q if log_q else xp.log(q))
    ct = _spread(xp, ct, d.shape[-1], reduction)
    dq = -ct * (weight if log_q else weight / q)
    dp = ct * (weight * (d + 1) if log_p else d + 1)
    return xp.reduce_to(dq, q), xp.reduce_to(dp, p)


def _log_or_0(xp: Any, p: Any) -> Any:
    """The logarithm; 0 where p is 0, since 0 ln 0 is 0 there."""
    return xp.log(xp.where(p == 0, 1.0, p))


kl_divergence = OpSpec(
    name="kl_divergence",
    signature="(v),(v)->()",  # reduction "none" keeps v
    forward=kl_divergence_forward,
    vjp=kl_divergence_vjp,
    formula=r"D(p \| q) = \sum_v p_v (\ln p_v - \ln q_v)",
    source="Kullback & Leibler 1951, Ann. Math. Statist. 22(1); torch.nn.functional.kl_div",
    dialects=(
        Dialect(name="log-input", says="PyTorch: the first operand is ln q, the second p"),
        Dialect(
            name="log-both",
            says="PyTorch's log_target: ln q and ln p",
            attrs={"log_p": True},
        ),
        Dialect(name="probabilities", says="SciPy: q and p", attrs={"log_q": False}),
    ),
    samples=(
        Sample(  # any numbers are logarithms, positive ones too
            name="typical",
            primals=lambda draw: (draw.probabilities(3, 7), draw.probabilities(3, 7)),
            hunts="the two operands exchanged, a missing + 1",
        ),
        Sample(
            name="square",
            primals=lambda draw: (draw.probabilities(4, 4), draw.probabilities(4, 4)),
            hunts="the sum over rows in place of columns",
        ),
        Sample(
            name="raw",
            primals=lambda draw: (draw.positive(3, 5), draw.positive(3, 5)),
            hunts="rows normalised on the way: the forms for sums of 1 differ",
        ),
        Sample(
            name="equal",
            primals=lambda draw: (np.array([0.25, 0.5, 0.125]), np.array([0.25, 0.5, 0.125])),
            exact=True,
            hunts="0 at the minimum: only along the simplex is it one",
        ),
        Sample(
            name="logarithms",
            primals=lambda draw: (draw.normal(2, 5) - 2.0, draw.normal(2, 5) - 2.0),
            dialects=("log-both",),
            hunts="the logarithm taken for the probability",
        ),
        Sample(
            name="far-apart",
            primals=lambda draw: (
                draw.filled([2.0**-20, 0.5, 0.5]),
                draw.filled([0.5, 2.0**-20, 0.5]),
            ),
            hunts="an epsilon within the logarithm or the quotient",
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.positive(1), draw.positive(1)),
            hunts="an axis of size 1 dropped",
        ),
        Sample(
            name="none",
            primals=lambda draw: (draw.probabilities(2, 3), draw.probabilities(2, 3)),
            attrs={"reduction": "none"},
            hunts="the first element's cotangent given to all",
        ),
        Sample(
            name="mean",
            primals=lambda draw: (draw.probabilities(2, 5), draw.probabilities(2, 5)),
            attrs={"reduction": "mean"},
            hunts="the mean over rows: PyTorch's 'mean' divides by V too",
        ),
        Sample(
            name="broadcast",
            primals=lambda draw: (draw.probabilities(3, 5), draw.probabilities(1, 5)),
            hunts="the gradient of a teacher that several rows share not summed",
        ),
        Sample(
            name="empty",
            primals=lambda draw: (np.zeros((2, 0)), np.zeros((2, 0))),
            hunts="a sum over nothing",
            no_features=True,
        ),
    ),
)
