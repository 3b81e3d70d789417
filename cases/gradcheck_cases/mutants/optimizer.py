"""Wrong updates of the rules in `gradcheck_cases.optimizer`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradcheck.power.rule import RuleMutant
from gradcheck.spec.rule import Tensors
from gradcheck_cases import optimizer
from gradcheck_cases.optimizer import adam, adamw, clip, dot, lbfgs, one, sgd

Update = Callable[..., Any]


# ── what is shared ───────────────────────────────────────────────────────────────────────────


def with_attrs(update: Update, **fixed: Any) -> Update:
    """Hyper-parameters that are written into the code."""

    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        return update(xp, params, grads, state, t, **{**attrs, **fixed})

    return wrong


def with_time(update: Update, time: Callable[[int], int]) -> Update:
    """A step counter that is off."""

    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        return update(xp, params, grads, state, time(t), **attrs)

    return wrong


def with_grads(update: Update, change: Callable[[Any, Tensors], Tensors]) -> Update:
    """Gradients that are changed before they are used."""

    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        return update(xp, params, change(xp, grads), state, t, **attrs)

    return wrong


def with_state(update: Update, change: Callable[[Any], Any]) -> Update:
    """A state that is read wrongly."""

    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        return update(xp, params, grads, change(state), t, **attrs)

    return wrong


def forgetful(update: Update) -> Update:
    """The new state is not written back."""

    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        return update(xp, params, grads, state, t, **attrs)[0], state

    return wrong


def uphill(update: Update) -> Update:
    """The step goes the other way."""

    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        new, remembered = update(xp, params, grads, state, t, **attrs)
        return {n: 2 * p - new[n] for n, p in params.items()}, remembered

    return wrong


def last_kept(update: Update) -> Update:
    """The last tensor is left out of the loop."""

    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        new, remembered = update(xp, params, grads, state, t, **attrs)
        last = list(params)[-1]
        return {**new, last: params[last]}, remembered

    return wrong


def _mean(xp: Any, grads: Tensors) -> Tensors:
    return {name: g / 2 for name, g in grads.items()}


def _common(rule: Any) -> tuple[RuleMutant, ...]:
    return (
        RuleMutant(rule=rule.name, name="uphill", killer="typical",
                   says="The step is added instead of taken off.", update=uphill(rule.update)),
        RuleMutant(rule=rule.name, name="last-tensor", killer="typical",
                   says="The last tensor is never updated.", update=last_kept(rule.update)),
        RuleMutant(rule=rule.name, name="forgetful", killer="typical",
                   says="The new state is not written back.", update=forgetful(rule.update)),
        RuleMutant(rule=rule.name, name="halved", killer="typical",
                   says="The gradient is averaged over two micro-batches where there is one.",
                   update=with_grads(rule.update, _mean)),
    )  # fmt: skip


# ── Adam and AdamW ───────────────────────────────────────────────────────────────────────────


def _adam_like(direction: Callable[..., Any], *, decay: str = "") -> Update:
    """Adam, or AdamW, with its own direction(xp, m, v, g, t, beta1, beta2, eps, eps_hat)."""

    def body(xp, params, grads, state, t, lr, beta1, beta2, eps, weight_decay, eps_hat, kept):
        new, ms, vs = {}, {}, {}
        for name, p in params.items():
            g = grads[name] + weight_decay * p if kept is None and weight_decay else grads[name]
            m = beta1 * state["m"][name] + (one(xp) - beta1) * g
            v = beta2 * state["v"][name] + (one(xp) - beta2) * (g * g)
            step = direction(xp, m, v, g, t, beta1, beta2, eps, eps_hat)
            new[name] = (p if kept is None else p * kept) - lr * step
            ms[name], vs[name] = m, v
        return new, {"m": ms, "v": vs}

    if decay:

        @functools.wraps(adamw.update)
        def wrong(xp, params, grads, state, t, *, lr, beta1, beta2, eps, weight_decay, by_rate):
            kept = 1 - (lr if by_rate else 1) * (one(xp) * weight_decay)
            return body(xp, params, grads, state, t, lr, beta1, beta2, eps, 0.0, False, kept)

        return wrong

    @functools.wraps(adam.update)
    def plain(xp, params, grads, state, t, *, lr, beta1, beta2, eps, weight_decay, eps_hat):
        return body(xp, params, grads, state, t, lr, beta1, beta2, eps, weight_decay, eps_hat, None)

    return plain


def _inside(xp, m, v, g, t, beta1, beta2, eps, eps_hat):
    unbias2 = 1 - xp.power(one(xp) * beta2, t)
    first = m / (1 - xp.power(one(xp) * beta1, t))
    if eps_hat:
        return first * xp.sqrt(unbias2) / xp.sqrt(v + eps)
    return first / xp.sqrt(v / unbias2 + eps)


def _biased(xp, m, v, g, t, beta1, beta2, eps, eps_hat):
    return m / (xp.sqrt(v) + eps)


def _biased_second(xp, m, v, g, t, beta1, beta2, eps, eps_hat):
    return m / (1 - xp.power(one(xp) * beta1, t)) / (xp.sqrt(v) + eps)


def _no_root(xp, m, v, g, t, beta1, beta2, eps, eps_hat):
    unbias1, unbias2 = (1 - xp.power(one(xp) * b, t) for b in (beta1, beta2))
    return m / unbias1 / (v / unbias2 + eps)


def _gradient_for_moment(xp, m, v, g, t, beta1, beta2, eps, eps_hat):
    unbias2 = 1 - xp.power(one(xp) * beta2, t)
    if eps_hat:
        return g * xp.sqrt(unbias2) / (xp.sqrt(v) + eps)
    return g / (xp.sqrt(v / unbias2) + eps)


def _other_place(xp, m, v, g, t, beta1, beta2, eps, eps_hat):
    return optimizer._direction(xp, m, v, t, beta1, beta2, eps, not eps_hat)


def _swapped(state: Any) -> Any:
    return {"m": state["v"], "v": state["m"]}


def _adam_family(rule: Any) -> tuple[RuleMutant, ...]:
    decay = "decay" if rule is adamw else ""

    def make(name: str, killer: str, says: str, update: Update, **rest: Any) -> RuleMutant:
        return RuleMutant(
            rule=rule.name, name=name, killer=killer, says=says, update=update, **rest
        )

    def turned(direction: Callable[..., Any]) -> Update:
        return _adam_like(direction, decay=decay)

    return (
        make("eps-inside", "tiny", "eps stands under the root.", turned(_inside)),
        make("no-correction", "quick", "Both bias corrections are missing.", turned(_biased)),
        make("second-uncorrected", "quick", "v is not corrected.", turned(_biased_second)),
        make("no-root", "wide-eps", "The root is missing.", turned(_no_root)),
        make("no-momentum", "alternating", "The gradient stands for m.",
             turned(_gradient_for_moment)),
        make("other-eps", "tiny", "eps stands beside the other root.", turned(_other_place)),
        make("late-counter", "quick", "The counter starts at 2: it is increased twice.",
             with_time(rule.update, lambda t: t + 1)),
        make("counter-lost", "step-1000", "The counter starts again after loading.",
             with_time(rule.update, lambda t: t % 1000 + 1)),
        make("default-betas", "quick", "The betas are fixed in the code.",
             with_attrs(rule.update, beta1=0.9, beta2=0.999)),
        make("default-eps", "wide-eps", "eps is fixed in the code.",
             with_attrs(rule.update, eps=1e-8)),
        make("betas-exchanged", "quick", "The moments decay at each other's rate.",
             _exchanged(rule.update)),
        make("decay-ignored", "decayed", "There is no weight decay.",
             with_attrs(rule.update, weight_decay=0.0)),
        make("moments-exchanged", "step-1000", "m and v are loaded into each other's place.",
             with_state(rule.update, _swapped)),
    )  # fmt: skip


def _exchanged(update: Update) -> Update:
    @functools.wraps(update)
    def wrong(xp: Any, params: Any, grads: Any, state: Any, t: int, **attrs: Any) -> Any:
        attrs["beta1"], attrs["beta2"] = attrs["beta2"], attrs["beta1"]
        return update(xp, params, grads, state, t, **attrs)

    return wrong


@functools.wraps(adam.update)
def adam_decoupled(xp, params, grads, state, t, *, weight_decay, lr, **attrs):
    """The decay goes past the moments, as in AdamW."""
    new, kept = adam.update(xp, params, grads, state, t, weight_decay=0.0, lr=lr, **attrs)
    return {n: p - lr * weight_decay * params[n] for n, p in new.items()}, kept


@functools.wraps(adamw.update)
def adamw_coupled(xp, params, grads, state, t, *, weight_decay, **attrs):
    """The decay goes through the moments, as in Adam."""
    decayed = {n: g + weight_decay * params[n] for n, g in grads.items()}
    return adamw.update(xp, params, decayed, state, t, weight_decay=0.0, **attrs)


@functools.wraps(adamw.update)
def adamw_after(xp, params, grads, state, t, *, weight_decay, lr, by_rate, **attrs):
    """The decay is taken of the parameter after the step."""
    new, kept = adamw.update(
        xp, params, grads, state, t, weight_decay=0.0, lr=lr, by_rate=by_rate, **attrs
    )
    rate = (lr if by_rate else 1) * (one(xp) * weight_decay)
    return {n: p * (1 - rate) for n, p in new.items()}, kept


@functools.wraps(adamw.update)
def adamw_other_rate(xp, params, grads, state, t, *, by_rate, **attrs):
    return adamw.update(xp, params, grads, state, t, by_rate=not by_rate, **attrs)


ADAM = (
    *_common(adam),
    *_adam_family(adam),
    RuleMutant(rule="adam", name="decoupled", killer="decayed", update=adam_decoupled,
               says="The decay goes past the moments, as in AdamW."),
)  # fmt: skip
ADAMW = (
    *_common(adamw),
    *_adam_family(adamw),
    RuleMutant(rule="adamw", name="coupled", killer="decayed", update=adamw_coupled,
               says="The decay goes through the moments: what PyTorch's Adam does.",
               modelled_on="the L2 decay that Loshchilov & Hutter 2019 warn of"),
    RuleMutant(rule="adamw", name="decay-after", killer="decayed", update=adamw_after,
               says="The decay is taken of the parameter after the step."),
    RuleMutant(rule="adamw", name="other-rate", killer="decayed", update=adamw_other_rate,
               says="The decay is (or is not) multiplied by the learning rate."),
)  # fmt: skip


# ── SGD ──────────────────────────────────────────────────────────────────────────────────────


@functools.wraps(sgd.update)
def sgd_first_dampened(xp, params, grads, state, t, **attrs):
    return sgd.update(xp, params, grads, state, t + 1, **attrs)


@functools.wraps(sgd.update)
def sgd_old_buffer(xp, params, grads, state, t, **attrs):
    """Nesterov's look-ahead with the buffer before the step."""
    new, kept = sgd.update(xp, params, grads, state, t, **attrs)
    if not attrs["nesterov"]:
        return new, kept
    lr = 1.0 if attrs["rate_inside"] else attrs["lr"]
    change = {n: attrs["momentum"] * (kept["buf"][n] - state["buf"][n]) for n in new}
    return {n: p + lr * change[n] for n, p in new.items()}, kept


@functools.wraps(sgd.update)
def sgd_decay_outside(xp, params, grads, state, t, *, weight_decay, lr, **attrs):
    new, kept = sgd.update(xp, params, grads, state, t, weight_decay=0.0, lr=lr, **attrs)
    return {n: p - lr * weight_decay * params[n] for n, p in new.items()}, kept


SGD = (
    *_common(sgd),
    RuleMutant(rule="sgd", name="no-momentum", killer="typical",
               says="The momentum is ignored.", update=with_attrs(sgd.update, momentum=0.0)),
    RuleMutant(rule="sgd", name="default-momentum", killer="plain",
               says="The momentum is fixed in the code.",
               update=with_attrs(sgd.update, momentum=0.9)),
    RuleMutant(rule="sgd", name="dampening-ignored", killer="dampened",
               says="The dampening is ignored.", update=with_attrs(sgd.update, dampening=0.0)),
    RuleMutant(rule="sgd", name="first-dampened", killer="dampened",
               says="The first step is dampened too.", update=sgd_first_dampened),
    RuleMutant(rule="sgd", name="not-nesterov", killer="nesterov",
               says="There is no look-ahead.", update=with_attrs(sgd.update, nesterov=False)),
    RuleMutant(rule="sgd", name="old-buffer", killer="nesterov",
               says="The look-ahead takes the buffer before the step.", update=sgd_old_buffer),
    RuleMutant(rule="sgd", name="decay-ignored", killer="decayed",
               says="There is no weight decay.", update=with_attrs(sgd.update, weight_decay=0.0)),
    RuleMutant(rule="sgd", name="decay-outside", killer="decayed",
               says="The decay is kept out of the buffer.", update=sgd_decay_outside),
    RuleMutant(rule="sgd", name="counter-lost", killer="step-1000",
               says="The counter starts again after loading: the buffer is thrown away.",
               update=with_time(sgd.update, lambda t: t % 1000 + 1)),
)  # fmt: skip


# ── clipping ─────────────────────────────────────────────────────────────────────────────────


def _clip_by(norm_of: Callable[[Any, Tensors], Any]) -> Update:
    @functools.wraps(clip.update)
    def wrong(xp, params, grads, state, t, *, max_norm, eps):
        norm = norm_of(xp, grads)
        if not eps and not norm > max_norm:
            return dict(grads), {}
        factor = xp.minimum(max_norm / (norm + eps), 1.0)
        return {n: g * factor for n, g in grads.items()}, {}

    return wrong


def _largest(xp: Any, grads: Tensors) -> Any:
    return max(xp.max(xp.abs(g)) for g in grads.values())


@functools.wraps(clip.update)
def clip_always(xp, params, grads, state, t, *, max_norm, eps):
    norm = xp.sqrt(dot(xp, grads, grads))
    return {n: g * (max_norm / (norm + eps)) for n, g in grads.items()}, {}


@functools.wraps(clip.update)
def clip_each(xp, params, grads, state, t, *, max_norm, eps):
    clipped: dict[str, Any] = {}
    for name, g in grads.items():
        clipped.update(clip.update(xp, params, {name: g}, state, t, max_norm=max_norm, eps=eps)[0])
    return clipped, {}


@functools.wraps(clip.update)
def clip_elements(xp, params, grads, state, t, *, max_norm, eps):
    return {n: xp.maximum(xp.minimum(g, max_norm), -max_norm) for n, g in grads.items()}, {}


@functools.wraps(clip.update)
def clip_other_eps(xp, params, grads, state, t, *, max_norm, eps):
    return clip.update(xp, params, grads, state, t, max_norm=max_norm, eps=0.0 if eps else 1e-6)


CLIP = (
    RuleMutant(rule="clip_norm", name="always", killer="below", update=clip_always,
               says="Gradients are stretched to the norm where they are shorter."),
    RuleMutant(rule="clip_norm", name="each-tensor", killer="typical", update=clip_each,
               says="Every tensor is clipped by its own norm."),
    RuleMutant(rule="clip_norm", name="elements", killer="typical", update=clip_elements,
               says="Elements are clipped, not the norm."),
    RuleMutant(rule="clip_norm", name="squared", killer="typical",
               says="The norm's root is missing.",
               update=_clip_by(lambda xp, g: dot(xp, g, g))),
    RuleMutant(rule="clip_norm", name="largest", killer="typical",
               says="The largest element stands for the norm.", update=_clip_by(_largest)),
    RuleMutant(rule="clip_norm", name="sum-of-norms", killer="typical",
               says="The norms of the tensors are added.",
               update=_clip_by(lambda xp, g: sum(xp.sqrt(xp.sum(x * x)) for x in g.values()))),
    RuleMutant(rule="clip_norm", name="mean", killer="typical",
               says="The norm is a root of the mean square.",
               update=_clip_by(lambda xp, g: xp.sqrt(dot(xp, g, g) / sum(
                   x.size for x in g.values())))),
    RuleMutant(rule="clip_norm", name="default-norm", killer="at-the-norm",
               says="The largest norm allowed is fixed in the code.",
               update=with_attrs(clip.update, max_norm=1.0)),
    RuleMutant(rule="clip_norm", name="other-eps", killer="tiny", update=clip_other_eps,
               says="There is (or is not) an eps in the divisor."),
)  # fmt: skip


# ── L-BFGS ───────────────────────────────────────────────────────────────────────────────────


def _history(change: Callable[[list[Any]], list[Any]]) -> Update:
    """The direction from a history that is read wrongly; the stored history is right."""

    @functools.wraps(lbfgs.update)
    def wrong(xp, params, grads, state, t, *, m, lr, sum_of_sizes):
        attrs = {"m": m, "lr": lr, "sum_of_sizes": sum_of_sizes}
        new, kept = lbfgs.update(xp, params, grads, state, t, **attrs)
        pairs = list(optimizer.history(kept))
        before = optimizer.two_loop(xp, grads, pairs)
        after = optimizer.two_loop(xp, grads, change(pairs))
        dim = {n: (new[n] - p) for n, p in params.items()}
        length = xp.sqrt(dot(xp, dim, dim) / dot(xp, before, before))
        return {n: p - length * after[n] for n, p in params.items()}, kept

    return wrong


@functools.wraps(lbfgs.update)
def lbfgs_steepest(xp, params, grads, state, t, *, m, lr, sum_of_sizes):
    _, kept = lbfgs.update(xp, params, grads, state, t, m=m, lr=lr, sum_of_sizes=sum_of_sizes)
    return {n: p - lr * grads[n] for n, p in params.items()}, kept


@functools.wraps(lbfgs.update)
def lbfgs_unchecked(xp, params, grads, state, t, *, m, lr, sum_of_sizes):
    """Pairs with sᵀy ≤ 0 are kept."""
    new, kept = lbfgs.update(xp, params, grads, state, t, m=m, lr=lr, sum_of_sizes=sum_of_sizes)
    if "x" not in state:
        return new, kept
    s = {n: p - state["x"][n] for n, p in params.items()}
    y = {n: g - state["g"][n] for n, g in grads.items()}
    pairs = [(s, y), *optimizer.history(state)][:m]
    step = optimizer.two_loop(xp, grads, pairs)
    remembered: dict[str, Tensors] = {"x": dict(params), "g": dict(grads)}
    for k, (move, turn) in enumerate(pairs):
        remembered[f"s.{k}"], remembered[f"y.{k}"] = move, turn
    return {n: p - lr * step[n] for n, p in params.items()}, remembered


@functools.wraps(lbfgs.update)
def lbfgs_unscaled(xp, params, grads, state, t, *, m, lr, sum_of_sizes):
    """H₀ is the identity."""
    new, kept = lbfgs.update(xp, params, grads, state, t, m=m, lr=lr, sum_of_sizes=sum_of_sizes)
    if "x" not in state:
        return new, kept
    pairs = list(optimizer.history(kept))
    q: Any = dict(grads)
    shares: list[Any] = []
    for s, y in pairs:
        shares.append(dot(xp, s, q) / dot(xp, s, y))
        q = {n: q[n] - shares[-1] * y[n] for n in q}
    for (s, y), share in reversed(list(zip(pairs, shares, strict=True))):
        change = share - dot(xp, y, q) / dot(xp, s, y)
        q = {n: q[n] + change * s[n] for n in q}
    return {n: p - lr * q[n] for n, p in params.items()}, kept


@functools.wraps(lbfgs.update)
def lbfgs_first_unscaled(xp, params, grads, state, t, *, m, lr, sum_of_sizes):
    new, kept = lbfgs.update(xp, params, grads, state, t, m=m, lr=lr, sum_of_sizes=sum_of_sizes)
    if "x" in state:
        return new, kept
    step = optimizer.two_loop(xp, grads, optimizer.history(kept))
    return {n: p - lr * step[n] for n, p in params.items()}, kept


@functools.wraps(lbfgs.update)
def lbfgs_longer(xp, params, grads, state, t, *, m, lr, sum_of_sizes):
    return lbfgs.update(xp, params, grads, state, t, m=m + 1, lr=lr, sum_of_sizes=sum_of_sizes)


@functools.wraps(lbfgs.update)
def lbfgs_other_first(xp, params, grads, state, t, *, sum_of_sizes, **attrs):
    return lbfgs.update(xp, params, grads, state, t, sum_of_sizes=not sum_of_sizes, **attrs)


LBFGS = (
    *_common(lbfgs),
    RuleMutant(rule="lbfgs", name="steepest", killer="typical", update=lbfgs_steepest,
               says="The direction is the gradient."),
    RuleMutant(rule="lbfgs", name="reversed", killer="full-history",
               says="The history is read from the other end.",
               update=_history(lambda pairs: pairs[::-1])),
    RuleMutant(rule="lbfgs", name="newest-ignored", killer="full-history",
               says="The newest pair is not used yet.", update=_history(lambda pairs: pairs[1:])),
    RuleMutant(rule="lbfgs", name="oldest-ignored", killer="full-history",
               says="The oldest pair is overwritten too early.",
               update=_history(lambda pairs: pairs[:-1])),
    RuleMutant(rule="lbfgs", name="unchecked", killer="hill", update=lbfgs_unchecked,
               says="Pairs with sᵀy ≤ 0 are kept."),
    RuleMutant(rule="lbfgs", name="identity", killer="typical", update=lbfgs_unscaled,
               says="H₀ is the identity: the scale sᵀy / yᵀy is missing."),
    RuleMutant(rule="lbfgs", name="first-unscaled", killer="far", update=lbfgs_first_unscaled,
               says="The first step is not scaled by the gradient's norm."),
    RuleMutant(rule="lbfgs", name="other-first", killer="far", update=lbfgs_other_first,
               says="The first step is scaled by another norm."),
    RuleMutant(rule="lbfgs", name="too-long", killer="one-pair", update=lbfgs_longer,
               says="m + 1 pairs are kept."),
)  # fmt: skip


RULE_MUTANTS = (*SGD, *ADAM, *ADAMW, *CLIP, *LBFGS)
