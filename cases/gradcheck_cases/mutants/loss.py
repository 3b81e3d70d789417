"""Mutants of the operators in `gradcheck_cases.loss`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.power.mutate import Vjp
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.loss import (
    binary_cross_entropy,
    cross_entropy,
    hinge,
    huber,
    kl_divergence,
    label_smoothing_cross_entropy,
    masked_cross_entropy,
    softmax_cross_entropy,
    square_error,
    z_loss,
)

MUTANTS: tuple[Mutant, ...] = ()

GGML = "what ggml's gradient test of 2026 lets pass"
APRENDER = "aprender pull request 2182"

# ── what is shared ───────────────────────────────────────────────────────────────────────────


def sum_for_mean(reduction: str, **attrs: Any) -> str:
    return "sum" if reduction == "mean" else reduction


def mean_for_sum(reduction: str, **attrs: Any) -> str:
    return "mean" if reduction == "sum" else reduction


def first_row_for(vjp: Vjp, index: int) -> Vjp:
    """Gradient `index` of a primal that rows share is the first row's."""

    @functools.wraps(vjp)
    def body(xp: Any, ct: Any, x: Any, y: Any, **attrs: Any) -> Any:
        gradients = list(vjp(xp, ct, x, y, **attrs))
        if x.shape != y.shape:
            gradients[index] = vjp(xp, ct[:1], x[:1], y[:1], **attrs)[index]
        return tuple(gradients)

    return body


def spread(xp: Any, ct: Any, count: int, reduction: str) -> Any:
    """The cotangent of each of `count` losses."""
    if reduction == "none":
        return ct
    return ct[..., None] / count if reduction == "mean" else ct[..., None]


def naive_softmax(xp: Any, logits: Any) -> Any:
    """No maximum taken out."""
    with np.errstate(all="ignore"):
        e = xp.exp(logits)
        return e / xp.sum(e, axis=-1, keepdims=True)


def softmax_of(xp: Any, logits: Any) -> Any:
    e = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def less_target(xp: Any, p: Any, targets: Any) -> Any:
    """Probabilities, less 1 at the target."""
    return xp.where(xp.is_index(targets, p.shape[-1]), p - 1, p)


# ── cross_entropy ────────────────────────────────────────────────────────────────────────────


def cross_entropy_eps_vjp(xp, ct, p, targets, *, bits=False, total=False, context_size=0):
    attrs = {"bits": bits, "total": total, "context_size": context_size}
    return cross_entropy.vjp(xp, ct, p + xp.const("1e-5"), targets, **attrs)


def cross_entropy_fused_vjp(xp, ct, p, targets, *, bits=False, total=False, context_size=0):
    attrs = {"bits": bits, "total": total, "context_size": context_size}
    dp, _ = cross_entropy.vjp(xp, ct, p, targets, **attrs)
    return p * (dp - xp.sum(dp * p, axis=-1, keepdims=True)), None


def _positions(xp: Any, p: Any, targets: Any, **attrs: Any) -> Any:
    return 1 / max(targets.shape[-1], 1)


MUTANTS += mutant_table(
    "cross_entropy",
    {
        ("minus-7", "scale", "typical"): (
            "The gradient is multiplied by -7.",
            mutate.scaled(cross_entropy.vjp, 0, -7.0),
            {"modelled_on": GGML},
        ),
        ("nats", "attribute scale", "typical"): (
            "The gradient is that of the loss in nats.",
            mutate.attribute(cross_entropy.vjp, bits=False),
            {"dialects": ("bits",)},
        ),
        ("averaged", "reduction", "typical"): (
            "The gradient is that of the mean over positions, the loss is their sum.",
            mutate.scaled(cross_entropy.vjp, 0, _positions),
            {"dialects": ("bits",)},
        ),
        ("context-ignored", "attribute", "context"): (
            "Positions inside the context have a gradient.",
            mutate.attribute(cross_entropy.vjp, context_size=0),
            {"dialects": ("bits",)},
        ),
        ("context-too-long", "index attribute", "context-of-one"): (
            "Position i is compared with the context, not token i + 1.",
            mutate.attribute(
                cross_entropy.vjp, context_size=lambda context_size, **attrs: context_size + 1
            ),
            {"dialects": ("bits",)},
        ),
        ("eps", "eps", "extreme"): (
            "The backward divides by p + 1e-5; forward adds nothing to p.",
            cross_entropy_eps_vjp,
        ),
        ("through-softmax", "derivative", "typical"): (
            "The gradient goes on through a softmax that is not part of the operator.",
            cross_entropy_fused_vjp,
        ),
        ("first-position", "cotangent", "typical"): (
            "The cotangent of the first position is used for all: grad_output[0].",
            mutate.cotangent(cross_entropy.vjp, mutate.first_for_all()),
            {"dialects": ("nats",), "modelled_on": APRENDER},
        ),
        ("upstream-ignored", "cotangent", "typical"): (
            "The loss is taken to be the end of the graph: the cotangent to be 1.",
            mutate.cotangent(cross_entropy.vjp, mutate.ones),
        ),
    },
)

# ── softmax_cross_entropy ────────────────────────────────────────────────────────────────────


def softmax_cross_entropy_with(slope: Callable[..., Any]) -> Vjp:
    """A VJP whose slope for scored rows is `slope(xp, logits, targets)`."""

    def vjp(xp, ct, logits, targets, *, next_token=False):
        if not next_token:
            return slope(xp, logits, targets) * ct[..., None], None
        scored, last = logits[..., :-1, :], logits[..., -1:, :]
        g = slope(xp, scored, targets[..., 1:]) * (ct / scored.shape[-2])[..., None, None]
        return xp.concatenate([g, xp.zeros_like(last)], axis=-2), None

    return vjp


def _over_positions(xp: Any, logits: Any, targets: Any) -> Any:
    if not logits.size:
        return logits
    e = xp.exp(logits - xp.max(logits, axis=-2, keepdims=True))
    return less_target(xp, e / xp.sum(e, axis=-2, keepdims=True), targets)


def _first_rows_maximum(xp: Any, logits: Any, targets: Any) -> Any:
    if not logits.size:
        return logits
    p = naive_softmax(xp, logits - xp.max(logits[..., :1, :], axis=-1, keepdims=True))
    return less_target(xp, p, targets)


def _clipped(xp: Any, logits: Any, targets: Any) -> Any:
    p = xp.minimum(xp.maximum(softmax_of(xp, logits), 1e-7), 1 - 1e-7)
    return less_target(xp, p, targets)


def not_shifted_vjp(xp, ct, logits, targets, *, next_token=False):
    if next_token:
        targets = np.concatenate([targets[..., :1], targets[..., :-1]], axis=-1)
    return softmax_cross_entropy.vjp(xp, ct, logits, targets, next_token=next_token)


def last_row_filled_vjp(xp, ct, logits, targets, *, next_token=False):
    dx, _ = softmax_cross_entropy.vjp(xp, ct, logits, targets, next_token=next_token)
    if not next_token:
        return dx, None
    rest = softmax_of(xp, logits[..., -1:, :]) * (ct / (logits.shape[-2] - 1))[..., None, None]
    return xp.concatenate([dx[..., :-1, :], rest], axis=-2), None


def _t_for_t_less_1(xp: Any, logits: Any, targets: Any, **attrs: Any) -> Any:
    return (targets.shape[-1] - 1) / targets.shape[-1]


DIRECTML = "DirectML issue 739"


MUTANTS += mutant_table(
    "softmax_cross_entropy",
    {
        ("minus-7", "scale", "typical"): (
            "The gradient is multiplied by -7.",
            mutate.scaled(softmax_cross_entropy.vjp, 0, -7.0),
            {"modelled_on": GGML},
        ),
        ("no-target", "term", "typical"): (
            "The 1 at the target is not subtracted.",
            softmax_cross_entropy_with(lambda xp, logits, targets: softmax_of(xp, logits)),
        ),
        ("first-position", "cotangent", "typical"): (
            "The cotangent of the first position is used for all: grad_output[0].",
            mutate.cotangent(softmax_cross_entropy.vjp, mutate.first_for_all()),
            {"dialects": ("per-position",), "modelled_on": APRENDER},
        ),
        ("averaged", "reduction", "typical"): (
            "The gradient is divided by the number of positions, the losses are not.",
            mutate.scaled(softmax_cross_entropy.vjp, 0, _positions),
            {"dialects": ("per-position",), "modelled_on": APRENDER},
        ),
        ("vanished", "slot", "typical"): (
            "A loss for each position has a gradient of zeros.",
            mutate.scaled(softmax_cross_entropy.vjp, 0, 0.0),
            {"dialects": ("per-position",), "modelled_on": DIRECTML},
        ),
        ("over-t", "reduction", "typical"): (
            "The mean is taken over T positions in place of T - 1.",
            mutate.scaled(softmax_cross_entropy.vjp, 0, _t_for_t_less_1),
            {"dialects": ("next-token",)},
        ),
        ("not-shifted", "index", "typical"): (
            "Row t is compared with token t in place of t + 1.",
            not_shifted_vjp,
            {"dialects": ("next-token",)},
        ),
        ("last-row-filled", "index", "typical"): (
            "The loop over rows runs to T: the last row, which predicts nothing, gets p.",
            last_row_filled_vjp,
            {"dialects": ("next-token",)},
        ),
        ("over-positions", "index", "typical"): (
            "The softmax is taken over positions in place of classes.",
            softmax_cross_entropy_with(_over_positions),
        ),
        ("naive", "precision non-finite", "shifted"): (
            "exp is taken without subtracting the maximum: inf/inf, or 0/0.",
            softmax_cross_entropy_with(
                lambda xp, logits, targets: less_target(xp, naive_softmax(xp, logits), targets)
            ),
        ),
        ("first-rows-maximum", "precision non-finite index", "shifted"): (
            "The first row's maximum is subtracted from all.",
            softmax_cross_entropy_with(_first_rows_maximum),
        ),
        ("clipped", "precision", "saturated"): (
            "p is clipped to [1e-7, 1 - 1e-7].",
            softmax_cross_entropy_with(_clipped),
        ),
    },
)

# ── label_smoothing_cross_entropy ────────────────────────────────────────────────────────────


def smoothed_with(wanted: Callable[..., Any], p_of: Callable[..., Any] = softmax_of) -> Vjp:
    """A VJP that wants share `wanted(smoothing, classes, others)`: (at the target, elsewhere)."""

    def vjp(xp, ct, logits, targets, *, smoothing=0.1, others=False, reduction="none"):
        at_target, share = wanted(smoothing, logits.shape[-1], others)
        q = xp.where(xp.is_index(targets, logits.shape[-1]), at_target, share)
        g = spread(xp, ct, logits.shape[-2], reduction)
        return (p_of(xp, logits) - q) * g[..., None], None

    return vjp


def _right_shares(smoothing: float, classes: int, others: bool) -> tuple[float, float]:
    share = smoothing / (classes - others)
    return 1 - smoothing + (0 if others else share), share


MUTANTS += mutant_table(
    "label_smoothing_cross_entropy",
    {
        ("smoothing-ignored", "attribute", "typical"): (
            "The gradient is that without smoothing.",
            mutate.attribute(label_smoothing_cross_entropy.vjp, smoothing=0.0),
        ),
        ("smoothing-by-default", "attribute", "smoothing-half"): (
            "Smoothing is 0.1, whatever was asked for.",
            mutate.attribute(label_smoothing_cross_entropy.vjp, smoothing=0.1),
        ),
        ("other-share", "scale attribute reduction", "two-classes"): (
            "V - 1 classes share where V should, and the other way round.",
            mutate.attribute(
                label_smoothing_cross_entropy.vjp, others=lambda others, **attrs: not others
            ),
        ),
        ("not-shared", "scale reduction term", "typical"): (
            "Every class gets s in place of s/V.",
            smoothed_with(lambda smoothing, classes, others: (1 - smoothing, smoothing)),
        ),
        ("target-without-share", "term", "smoothing-1"): (
            "The target gets 1 - s, without its share s/V.",
            smoothed_with(lambda smoothing, classes, others: (1 - smoothing, smoothing / classes)),
            {"dialects": ("all-classes",)},
        ),
        ("summed", "reduction attribute", "mean"): (
            "The gradient of the mean is that of the sum.",
            mutate.attribute(label_smoothing_cross_entropy.vjp, reduction=sum_for_mean),
            {"modelled_on": APRENDER},
        ),
        ("first-position", "cotangent", "typical"): (
            "The cotangent of the first position is used for all: grad_output[0].",
            mutate.cotangent(label_smoothing_cross_entropy.vjp, mutate.first_for_all()),
            {"modelled_on": APRENDER},
        ),
        ("naive", "precision non-finite", "shifted"): (
            "exp is taken without subtracting the maximum: inf/inf, or 0/0.",
            smoothed_with(_right_shares, naive_softmax),
        ),
    },
)

# ── masked_cross_entropy ─────────────────────────────────────────────────────────────────────


def masked_with(
    rows: Callable[..., Any],
    count: Callable[[Any], Any] = lambda counts: np.maximum(counts.sum(axis=-1), 1),
    counts_of: Callable[[Any, int], Any] = lambda targets, ignore_index: targets != ignore_index,
) -> Vjp:
    """A VJP whose rows are `rows(xp, slope, ct, counts, logits)`; the mean is over `count`."""

    def vjp(xp, ct, logits, targets, *, ignore_index=-100, reduction="mean"):
        counts = counts_of(targets, ignore_index)
        if reduction == "mean":
            ct, reduction = ct / xp.asarray(count(counts)), "sum"
        g = xp.broadcast_to(spread(xp, ct, 1, reduction), targets.shape)[..., None]
        slope = less_target(xp, softmax_of(xp, logits), targets * counts)
        return rows(xp, slope, g, counts[..., None], logits), None

    return vjp


def _chosen(xp: Any, slope: Any, g: Any, counts: Any, logits: Any) -> Any:
    return xp.where(counts, slope * g, 0)


def _unmasked(xp: Any, slope: Any, g: Any, counts: Any, logits: Any) -> Any:
    return slope * g


def _left_as_logits(xp: Any, slope: Any, g: Any, counts: Any, logits: Any) -> Any:
    return xp.where(counts, slope * g, logits)


def _masked_too_late(xp: Any, slope: Any, g: Any, counts: Any, logits: Any) -> Any:
    rows = xp.where(counts, slope, naive_softmax(xp, logits))
    return rows * g * xp.asarray(counts)


def _moved_up(xp: Any, slope: Any, g: Any, counts: Any, logits: Any) -> Any:
    """The rows that count, one after another from the first row on."""
    right = xp.where(counts, slope * g, 0)
    order = np.argsort(~counts, axis=-2, kind="stable")
    return np.take_along_axis(right, order, axis=-2)


PADDLE = "PaddlePaddle pull request 28622"


MUTANTS += mutant_table(
    "masked_cross_entropy",
    {
        ("unmasked", "attribute derivative", "typical"): (
            "Ignored positions have a gradient, as if their target were class 0.",
            masked_with(_unmasked),
            {"modelled_on": PADDLE},
        ),
        ("over-all", "reduction", "typical"): (
            "The mean is taken over all positions.",
            masked_with(_chosen, lambda counts: max(counts.shape[-1], 1)),
            {"dialects": ("mean",)},
        ),
        ("one-count", "reduction index", "batched"): (
            "The mean of every sequence is taken over the first one's count.",
            masked_with(
                _chosen, lambda counts: max(counts.reshape(-1, counts.shape[-1])[0].sum(), 1)
            ),
            {"dialects": ("mean",)},
        ),
        ("index-by-default", "attribute", "index-0"): (
            "-100 is ignored, whatever was asked for.",
            mutate.attribute(masked_cross_entropy.vjp, ignore_index=-100),
        ),
        ("index-and-above", "index derivative", "index-inside"): (
            "Classes above ignore_index are ignored too.",
            masked_with(
                _chosen,
                counts_of=lambda targets, ignore_index: (
                    targets < ignore_index if ignore_index >= 0 else targets != ignore_index
                ),
            ),
        ),
        ("left-as-logits", "accumulation", "all-ignored"): (
            "Ignored rows of dx are never written; the buffer held the logits.",
            masked_with(_left_as_logits),
        ),
        ("masked-too-late", "non-finite precision", "ignored-saturated"): (
            "An ignored row that overflows is multiplied by 0: NaN.",
            masked_with(_masked_too_late),
        ),
        ("packed", "index layout", "one-counts"): (
            "The rows that count are written one after another, not where they belong.",
            masked_with(_moved_up),
        ),
        ("first-position", "cotangent", "typical"): (
            "The cotangent of the first position is used for all: grad_output[0].",
            mutate.cotangent(masked_cross_entropy.vjp, mutate.first_for_all()),
            {"dialects": ("none",), "modelled_on": APRENDER},
        ),
    },
)

# ── z_loss ───────────────────────────────────────────────────────────────────────────────────


def z_loss_with(slope: Callable[..., Any]) -> Vjp:
    """A VJP whose slope is `slope(xp, p, log_z, targets, weight)`, `log_z` as [t, 1]."""

    def vjp(xp, ct, logits, targets, *, weight=1e-4, reduction="none"):
        largest = xp.max(logits, axis=-1, keepdims=True)
        log_z = largest + xp.log(xp.sum(xp.exp(logits - largest), axis=-1, keepdims=True))
        g = spread(xp, ct, logits.shape[-2], reduction)[..., None]
        return slope(xp, xp.exp(logits - log_z), log_z, targets, weight) * g, None

    return vjp


def _magnitude(xp: Any, p: Any, log_z: Any, targets: Any, weight: float) -> Any:
    return less_target(xp, p * (1 + 2 * weight * xp.abs(log_z)), targets)


def _half(xp: Any, p: Any, log_z: Any, targets: Any, weight: float) -> Any:
    return less_target(xp, p * (1 + weight * log_z), targets)


def _not_through_p(xp: Any, p: Any, log_z: Any, targets: Any, weight: float) -> Any:
    return less_target(xp, p, targets) + 2 * weight * log_z


def _target_too(xp: Any, p: Any, log_z: Any, targets: Any, weight: float) -> Any:
    return less_target(xp, p, targets) * (1 + 2 * weight * log_z)


def _first_log_z(xp: Any, p: Any, log_z: Any, targets: Any, weight: float) -> Any:
    first = log_z.reshape(-1)[:1].sum()
    return less_target(xp, p * (1 + 2 * weight * first), targets)


def z_loss_without_maximum_vjp(xp, ct, logits, targets, *, weight=1e-4, reduction="none"):
    largest = xp.max(logits, axis=-1, keepdims=True)

    def slope(xp: Any, p: Any, log_z: Any, targets: Any, weight: float) -> Any:
        return less_target(xp, p * (1 + 2 * weight * (log_z - largest)), targets)

    return z_loss_with(slope)(xp, ct, logits, targets, weight=weight, reduction=reduction)


def z_loss_term_summed_vjp(xp, ct, logits, targets, *, weight=1e-4, reduction="none"):
    attrs = {"reduction": reduction}
    whole, _ = z_loss.vjp(xp, ct, logits, targets, weight=weight, **attrs)
    plain, _ = z_loss.vjp(xp, ct, logits, targets, weight=0.0, **attrs)
    times = logits.shape[-2] if reduction == "mean" else 1
    return plain + (whole - plain) * times, None


MUTANTS += mutant_table(
    "z_loss",
    {
        ("term-dropped", "term attribute", "typical"): (
            "The gradient is that of the cross entropy alone.",
            mutate.attribute(z_loss.vjp, weight=0.0),
        ),
        ("weight-by-default", "attribute", "weight-0"): (
            "The weight is 1e-4, whatever was asked for.",
            mutate.attribute(z_loss.vjp, weight=1e-4),
        ),
        ("factor-2", "scale term", "typical"): (
            "The square's factor 2 is missing.",
            z_loss_with(_half),
        ),
        ("magnitude", "sign", "negative-log-z"): (
            "The term's sign is lost where log Z is negative.",
            z_loss_with(_magnitude),
        ),
        ("not-through-p", "derivative term scale", "typical"): (
            "The derivative of log Z with respect to each logit is taken to be 1.",
            z_loss_with(_not_through_p),
        ),
        ("target-too", "term", "typical"): (
            "The term weighs the 1 at the target too.",
            z_loss_with(_target_too),
        ),
        ("without-maximum", "saved-value", "shifted"): (
            "The log Z that forward saved lacks the maximum that was taken out.",
            z_loss_without_maximum_vjp,
        ),
        ("first-log-z", "index saved-value", "batched"): (
            "log Z of the first position is used for all.",
            z_loss_with(_first_log_z),
        ),
        ("term-summed", "reduction term", "mean"): (
            "The term of log Z is summed where the cross entropy is averaged.",
            z_loss_term_summed_vjp,
        ),
    },
)

# ── square_error ─────────────────────────────────────────────────────────────────────────────


def square_error_with(slope: Callable[..., Any]) -> Vjp:
    """A VJP whose slope is `slope(xp, x, y)`."""

    def vjp(xp, ct, x, y, *, reduction="sum"):
        g = slope(xp, x, y) * spread(xp, ct, x.shape[-1], reduction)
        return xp.reduce_to(g, x), xp.reduce_to(-g, y)

    return vjp


def _by_magnitude(xp: Any, x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        return 2 * (x - y) * (x - y) / (x - y)


def _within_1(xp: Any, x: Any, y: Any) -> Any:
    return xp.minimum(xp.maximum(2 * (x - y), -1.0), 1.0)


MUTANTS += mutant_table(
    "square_error",
    {
        ("factor-2", "scale", "typical"): (
            "The factor 2 is missing: the gradient of half the square.",
            square_error_with(lambda xp, x, y: x - y),
        ),
        ("target-sign", "sign", "typical"): (
            "The target's gradient has the prediction's sign.",
            mutate.negated(square_error.vjp, 1),
        ),
        ("summed", "reduction attribute", "typical"): (
            "The gradient of the mean is that of the sum.",
            mutate.attribute(square_error.vjp, reduction=sum_for_mean),
            {"dialects": ("mean",)},
        ),
        ("averaged", "reduction attribute", "typical"): (
            "The gradient of the sum is that of the mean.",
            mutate.attribute(square_error.vjp, reduction=mean_for_sum),
            {"dialects": ("sum",)},
        ),
        ("exchanged", "slot sign", "typical"): (
            "The gradients of prediction and target stand in each other's place.",
            mutate.swapped(square_error.vjp, 0, 1),
        ),
        ("first-row", "broadcast accumulation index", "broadcast"): (
            "The gradient of targets that rows share is the first row's.",
            first_row_for(square_error.vjp, 1),
        ),
        ("by-magnitude", "non-finite", "equal"): (
            "The slope is 2 d²/d: 0/0 where the target is met.",
            square_error_with(_by_magnitude),
        ),
        ("clipped", "derivative", "scales"): (
            "The slope is clipped to [-1, 1], as Huber's.",
            square_error_with(_within_1),
        ),
        ("target-left-out", "derivative term", "typical"): (
            "The slope is 2 x in place of 2 (x - y).",
            square_error_with(lambda xp, x, y: 2 * x + 0 * y),
        ),
    },
)

# ── huber ────────────────────────────────────────────────────────────────────────────────────


def huber_with(slope: Callable[..., Any]) -> Vjp:
    """A VJP whose slope is `slope(xp, d, delta)`."""

    def vjp(xp, ct, x, y, *, delta=1.0, scaled=False, reduction="none"):
        g = slope(xp, x - y, delta) * spread(xp, ct, x.shape[-1], reduction)
        g = g / delta if scaled else g
        return xp.reduce_to(g, x), xp.reduce_to(-g, y)

    return vjp


def _nothing_on_the_bend(xp: Any, d: Any, delta: float) -> Any:
    inner = xp.where(xp.abs(d) < delta, d, 0)
    return xp.where(xp.abs(d) > delta, delta * xp.sign(d), inner)


def _both_on_the_bend(xp: Any, d: Any, delta: float) -> Any:
    inner = xp.where(xp.abs(d) <= delta, d, 0)
    return inner + xp.where(xp.abs(d) >= delta, delta * xp.sign(d), 0)


def _unsigned(xp: Any, d: Any, delta: float) -> Any:
    return xp.where(xp.abs(d) <= delta, d, delta + 0 * d)


def _delta_squared(xp: Any, d: Any, delta: float) -> Any:
    return xp.where(xp.abs(d) <= delta, d, delta * delta * xp.sign(d))


def _normalised(xp: Any, d: Any, delta: float) -> Any:
    with np.errstate(all="ignore"):
        return d / xp.abs(d) * xp.minimum(xp.abs(d), delta)


MUTANTS += mutant_table(
    "huber",
    {
        ("square-only", "derivative", "far"): (
            "The slope is that of the square everywhere.",
            huber_with(lambda xp, d, delta: d),
        ),
        ("sign-lost", "sign", "typical"): (
            "The outer slope is delta on both sides.",
            huber_with(_unsigned),
        ),
        ("delta-ignored", "attribute", "delta-0.25"): (
            "The bend is at 1, whatever delta is.",
            mutate.attribute(huber.vjp, delta=1.0),
        ),
        ("delta-squared", "scale derivative", "delta-4"): (
            "The outer slope is delta² in place of delta.",
            huber_with(_delta_squared),
        ),
        ("other-scale", "attribute scale", "delta-0.25"): (
            "Huber's loss and smooth L1 are taken for each other: a factor delta.",
            mutate.attribute(huber.vjp, scaled=lambda scaled, **attrs: not scaled),
        ),
        ("nothing-on-the-bend", "kink", "kink"): (
            "Both comparisons are strict: 0 where |d| is delta.",
            huber_with(_nothing_on_the_bend),
        ),
        ("both-on-the-bend", "kink", "kink-delta-2"): (
            "Neither comparison is strict: twice the slope where |d| is delta.",
            huber_with(_both_on_the_bend),
        ),
        ("normalised", "non-finite", "met"): (
            "The sign is d/|d|: 0/0 where the target is met.",
            huber_with(_normalised),
        ),
        ("target-sign", "sign", "targets"): (
            "The target's gradient has the prediction's sign.",
            mutate.negated(huber.vjp, 1),
        ),
        ("averaged", "reduction attribute", "sum"): (
            "The gradient of the sum is that of the mean.",
            mutate.attribute(huber.vjp, reduction=mean_for_sum),
        ),
    },
)

# ── hinge ────────────────────────────────────────────────────────────────────────────────────


def hinge_with(slope: Callable[..., Any], count: Callable[..., Any] | None = None) -> Vjp:
    """A VJP whose slope is `slope(xp, y, short, margin, squared)`, `short` = margin - y x."""

    def vjp(xp, ct, x, labels, *, margin=1.0, squared=False, reduction="none"):
        y = xp.asarray(labels)
        short = margin - y * x
        number = x.shape[-1] if count is None else count(short)
        return slope(xp, y, short, margin, squared) * spread(xp, ct, number, reduction), None

    return vjp


def _right_slope(xp: Any, y: Any, short: Any, margin: float, squared: bool) -> Any:
    return xp.where(short > 0, -y * (2 * short if squared else 1), 0)


def _without_label(xp: Any, y: Any, short: Any, margin: float, squared: bool) -> Any:
    return _right_slope(xp, 0 * y + 1, short, margin, squared)


def _wrong_side_only(xp: Any, y: Any, short: Any, margin: float, squared: bool) -> Any:
    return xp.where(short > margin, _right_slope(xp, y, short, margin, squared), 0)


def _without_2(xp: Any, y: Any, short: Any, margin: float, squared: bool) -> Any:
    return xp.where(short > 0, -y * short, 0)


def _pushed_on_the_margin(xp: Any, y: Any, short: Any, margin: float, squared: bool) -> Any:
    return xp.where(short == 0, y, _right_slope(xp, y, short, margin, squared))


def _everywhere(xp: Any, y: Any, short: Any, margin: float, squared: bool) -> Any:
    return -y * (2 * short if squared else 1)


def _missed(short: Any) -> Any:
    return max(int((short > 0).sum()), 1)


MUTANTS += mutant_table(
    "hinge",
    {
        ("label-left-out", "scale derivative sign", "typical"): (
            "The slope is -1 for both labels.",
            hinge_with(_without_label),
        ),
        ("sign", "sign", "typical"): (
            "The slope is y in place of -y.",
            mutate.negated(hinge.vjp, 0),
        ),
        ("wrong-side-only", "derivative", "all-missed"): (
            "Scores of the right sign within the margin get no gradient.",
            hinge_with(_wrong_side_only),
        ),
        ("everywhere", "derivative", "all-met"): (
            "Scores beyond the margin get the slope too.",
            hinge_with(_everywhere),
        ),
        ("margin-ignored", "attribute", "perceptron"): (
            "The margin is 1, whatever was asked for.",
            mutate.attribute(hinge.vjp, margin=1.0),
        ),
        ("pushed-on-the-margin", "kink", "kink"): (
            "A score exactly on the margin is pushed over it by a slope of y.",
            hinge_with(_pushed_on_the_margin),
        ),
        ("without-2", "scale", "typical"): (
            "The square's factor 2 is missing.",
            hinge_with(_without_2),
            {"dialects": ("squared",)},
        ),
        ("not-squared", "attribute", "far"): (
            "The squared hinge has the slope of the plain one.",
            mutate.attribute(hinge.vjp, squared=False),
            {"dialects": ("squared",)},
        ),
        ("over-missed", "reduction", "mean"): (
            "The mean is taken over the elements that miss the margin.",
            hinge_with(_right_slope, _missed),
        ),
        ("averaged", "reduction attribute", "sum"): (
            "The gradient of the sum is that of the mean.",
            mutate.attribute(hinge.vjp, reduction=mean_for_sum),
        ),
    },
)

# ── binary_cross_entropy ─────────────────────────────────────────────────────────────────────


def binary_dx(slope: Callable[..., Any]) -> Vjp:
    """A VJP whose dx is `slope(xp, x, y, logits, pos_weight)` times the cotangent."""

    def vjp(xp, ct, x, y, *, logits=True, pos_weight=1.0, reduction="none"):
        attrs = {"logits": logits, "pos_weight": pos_weight, "reduction": reduction}
        _, dy = binary_cross_entropy.vjp(xp, ct, x, y, **attrs)
        with np.errstate(all="ignore"):
            dx = slope(xp, x, y, logits, pos_weight) * spread(xp, ct, x.shape[-1], reduction)
        return dx, dy

    return vjp


def _right_dx(xp: Any, x: Any, y: Any, logits: bool, pos_weight: float) -> Any:
    if logits:
        return (pos_weight * y + 1 - y) * xp.sigmoid(x) - pos_weight * y
    return (1 - y) / (1 - x) - pos_weight * y / x


def _sigmoid_twice(xp: Any, x: Any, y: Any, logits: bool, pos_weight: float) -> Any:
    p = xp.sigmoid(x)
    return _right_dx(xp, x, y, logits, pos_weight) * p * (1 - p)


def _by_exp(xp: Any, x: Any, y: Any, logits: bool, pos_weight: float) -> Any:
    e = xp.exp(x)
    return (pos_weight * y + 1 - y) * (e / (1 + e)) - pos_weight * y


def _with_eps(xp: Any, x: Any, y: Any, logits: bool, pos_weight: float) -> Any:
    return (1 - y) / (1 - x + 1e-6) - pos_weight * y / (x + 1e-6)


def _weight_on_both(xp: Any, x: Any, y: Any, logits: bool, pos_weight: float) -> Any:
    return pos_weight * _right_dx(xp, x, y, logits, 1.0)


def _targets_clipped(xp: Any, x: Any, y: Any, logits: bool, pos_weight: float) -> Any:
    return _right_dx(xp, x, xp.minimum(xp.maximum(y, 0.0), 1.0), logits, pos_weight)


def _targets_rounded(xp: Any, x: Any, y: Any, logits: bool, pos_weight: float) -> Any:
    return _right_dx(xp, x, xp.where(y > 0.5, 1.0, xp.zeros_like(y)), logits, pos_weight)


MUTANTS += mutant_table(
    "binary_cross_entropy",
    {
        ("labels-exchanged", "derivative saved-value", "typical"): (
            "The backward reads 1 - y for y.",
            binary_dx(
                lambda xp, x, y, logits, pos_weight: _right_dx(xp, x, 1 - y, logits, pos_weight)
            ),
        ),
        ("sigmoid-twice", "derivative scale", "typical"): (
            "The sigmoid's own slope is multiplied in once more.",
            binary_dx(_sigmoid_twice),
            {"dialects": ("logits",)},
        ),
        ("exp-quotient", "precision non-finite", "overflow"): (
            "The sigmoid is e^x / (1 + e^x): inf/inf.",
            binary_dx(_by_exp),
            {"dialects": ("logits",)},
        ),
        ("eps", "eps", "extreme"): (
            "1e-6 is added to the denominators; forward adds nothing.",
            binary_dx(_with_eps),
            {"dialects": ("probabilities",)},
        ),
        ("targets-clipped", "derivative saved-value", "outside"): (
            "Targets are clipped to [0, 1] in the backward only.",
            binary_dx(_targets_clipped),
            {"dialects": ("logits",)},
        ),
        ("targets-rounded", "derivative saved-value", "soft"): (
            "Soft targets are rounded to 0 and 1.",
            binary_dx(_targets_rounded),
        ),
        ("weight-ignored", "attribute", "pos-weight"): (
            "pos_weight is 1, whatever was asked for.",
            mutate.attribute(binary_cross_entropy.vjp, pos_weight=1.0),
        ),
        ("weight-on-both", "scale term", "pos-weight"): (
            "pos_weight weighs both terms.",
            binary_dx(_weight_on_both),
        ),
        ("target-sign", "sign", "typical"): (
            "The target's gradient has the other sign.",
            mutate.negated(binary_cross_entropy.vjp, 1),
        ),
        ("target-constant", "slot", "soft"): (
            "The target is taken for a constant: its gradient is 0.",
            mutate.scaled(binary_cross_entropy.vjp, 1, 0.0),
        ),
        ("first-row", "broadcast accumulation index", "broadcast"): (
            "The gradient of targets that rows share is the first row's.",
            first_row_for(binary_cross_entropy.vjp, 1),
        ),
        ("averaged", "reduction attribute", "sum"): (
            "The gradient of the sum is that of the mean.",
            mutate.attribute(binary_cross_entropy.vjp, reduction=mean_for_sum),
        ),
    },
)

# ── kl_divergence ────────────────────────────────────────────────────────────────────────────


def kl_without_1_vjp(xp, ct, q, p, *, log_q=True, log_p=False, reduction="sum"):
    attrs = {"log_q": log_q, "log_p": log_p, "reduction": reduction}
    dq, dp = kl_divergence.vjp(xp, ct, q, p, **attrs)
    g = spread(xp, ct, q.shape[-1], reduction) + xp.zeros_like(q)
    return dq, dp - xp.reduce_to(g * xp.exp(p) if log_p else g, p)


def kl_normalised_vjp(xp, ct, q, p, *, log_q=True, log_p=False, reduction="sum"):
    attrs = {"log_q": log_q, "log_p": log_p, "reduction": reduction}
    dq, dp = kl_divergence.vjp(xp, ct, q, p, **attrs)
    g = spread(xp, ct, q.shape[-1], reduction) + xp.zeros_like(q)
    return dq + g * (xp.exp(q) if log_q else 1), dp


def kl_eps_vjp(xp, ct, q, p, *, log_q=True, log_p=False, reduction="sum"):
    attrs = {"log_q": log_q, "log_p": log_p, "reduction": reduction}
    return kl_divergence.vjp(xp, ct, q + (0 if log_q else 1e-6), p, **attrs)


def kl_p_not_log_vjp(xp, ct, q, p, *, log_q=True, log_p=False, reduction="sum"):
    attrs = {"log_q": log_q, "log_p": log_p, "reduction": reduction}
    _, dp = kl_divergence.vjp(xp, ct, q, p, **attrs)
    return -p * (spread(xp, ct, q.shape[-1], reduction) + xp.zeros_like(q)), dp


MUTANTS += mutant_table(
    "kl_divergence",
    {
        ("sign", "sign", "typical"): (
            "The gradient of q has the other sign.",
            mutate.negated(kl_divergence.vjp, 0),
        ),
        ("without-1", "term derivative", "typical"): (
            "The derivative of p ln p is taken to be ln p, without its 1.",
            kl_without_1_vjp,
        ),
        ("exchanged", "slot", "square"): (
            "The gradients of q and p stand in each other's place.",
            mutate.swapped(kl_divergence.vjp, 0, 1),
        ),
        ("normalised", "derivative term", "raw"): (
            "The gradient of q is that of a q which is normalised first.",
            kl_normalised_vjp,
        ),
        ("eps", "eps", "far-apart"): (
            "The backward divides by q + 1e-6; forward adds nothing.",
            kl_eps_vjp,
            {"dialects": ("probabilities",)},
        ),
        ("p-not-log", "attribute", "logarithms"): (
            "The gradient of q weighs by ln p in place of p: log_target is ignored.",
            kl_p_not_log_vjp,
            {"dialects": ("log-both",)},
        ),
        ("averaged", "reduction attribute", "typical"): (
            "The gradient of the sum is that of the mean.",
            mutate.attribute(kl_divergence.vjp, reduction=mean_for_sum),
        ),
        ("first-row", "broadcast accumulation index", "broadcast"): (
            "The gradient of a p that rows share is the first row's.",
            first_row_for(kl_divergence.vjp, 1),
        ),
        ("first-element", "cotangent", "none"): (
            "The cotangent of the first element is used for all.",
            mutate.cotangent(kl_divergence.vjp, mutate.first_for_all()),
        ),
    },
)
