"""PyTorch's own optimisers, one step at a time: state in, state out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensors = Mapping[str, Any]
Step = tuple[dict[str, Any], dict[str, dict[str, Any]]]


def leaves(params: Tensors, grads: Tensors) -> list[Any]:
    """Parameters as an optimiser holds them, with their gradients."""
    found = []
    for name, p in params.items():
        leaf = p.clone().requires_grad_()
        leaf.grad = grads[name].clone()
        found.append(leaf)
    return found


def values(params: Tensors, tensors: list[Any]) -> dict[str, Any]:
    return {name: t.detach() for name, t in zip(params, tensors, strict=True)}


def adaptive(
    optimizer: Callable[..., Any],
    params: Tensors,
    grads: Tensors,
    state: Any,
    t: int,
    **options: Any,
) -> Step:
    """Adam and its kin: both moments, and a counter per parameter."""
    tensors = leaves(params, grads)
    made = optimizer(tensors, **options)
    for name, leaf in zip(params, tensors, strict=True):
        made.state[leaf] = {
            "step": torch.tensor(float(t - 1)),
            "exp_avg": state["m"][name].clone(),
            "exp_avg_sq": state["v"][name].clone(),
        }
    made.step()
    kept = [made.state[leaf] for leaf in tensors]
    return values(params, tensors), {
        "m": values(params, [one["exp_avg"] for one in kept]),
        "v": values(params, [one["exp_avg_sq"] for one in kept]),
    }


def adam(params, grads, state, t, *, lr, beta1, beta2, eps, weight_decay, eps_hat):
    options = {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay}
    return adaptive(torch.optim.Adam, params, grads, state, t, **options)


def adamw(params, grads, state, t, *, lr, beta1, beta2, eps, weight_decay, by_rate):
    options = {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay}
    return adaptive(torch.optim.AdamW, params, grads, state, t, **options)


def sgd(
    params, grads, state, t, *, lr, momentum, dampening, weight_decay, nesterov, rate_inside
):  # fmt: skip
    tensors = leaves(params, grads)
    made = torch.optim.SGD(
        tensors, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
        nesterov=nesterov,
    )  # fmt: skip
    for name, leaf in zip(params, tensors, strict=True):
        if t > 1:
            made.state[leaf] = {"momentum_buffer": state["buf"][name].clone()}
    made.step()
    if not momentum:  # no buffer is kept: it would be the gradient
        return values(params, tensors), {"buf": dict(grads)}
    kept = [made.state[leaf]["momentum_buffer"] for leaf in tensors]
    return values(params, tensors), {"buf": values(params, kept)}


def clip_norm(params, grads, state, t, *, max_norm, eps):
    tensors = leaves(params, grads)
    torch.nn.utils.clip_grad_norm_(tensors, max_norm)
    return values(params, [leaf.grad for leaf in tensors]), {}


def flat(tensors: Tensors) -> Any:
    return torch.cat([t.reshape(-1) for t in tensors.values()])


def apart(vector: Any, like: Tensors) -> dict[str, Any]:
    parts = torch.split(vector, [p.numel() for p in like.values()])
    pairs = zip(like.items(), parts, strict=True)
    return {name: part.reshape(p.shape) for (name, p), part in pairs}


def lbfgs(params, grads, state, t, *, m, lr, sum_of_sizes):
    tensors = leaves(params, grads)
    made = torch.optim.LBFGS(
        tensors, lr=lr, max_iter=1, history_size=m, tolerance_grad=0, tolerance_change=0
    )
    kept = made.state[tensors[0]]
    slots = sorted((slot for slot in state if slot.startswith("s.")), key=lambda s: -int(s[2:]))
    moves = [flat(state[slot]) for slot in slots]
    turns = [flat(state[f"y.{slot[2:]}"]) for slot in slots]
    if state:
        last = state.get("x", params)  # nothing moved: no pair is made of the first step
        kept.update(
            func_evals=0, n_iter=1, t=1.0, d=flat(params) - flat(last), prev_loss=0.0,
            old_dirs=list(turns), old_stps=list(moves),
            ro=[1 / y.dot(s) for s, y in zip(moves, turns, strict=True)],
            H_diag=moves[-1].dot(turns[-1]) / turns[-1].dot(turns[-1]) if moves else 1,
            prev_flat_grad=flat(state.get("g", grads)),
        )  # fmt: skip
    made.step(lambda: torch.zeros(()))
    remembered = {"x": dict(params), "g": dict(grads)}
    pairs = zip(kept["old_stps"][::-1], kept["old_dirs"][::-1], strict=True)
    for k, (s, y) in enumerate(pairs):
        remembered[f"s.{k}"], remembered[f"y.{k}"] = apart(s, params), apart(y, params)
    return values(params, tensors), remembered


RULES: dict[str, Callable[..., Step]] = {
    "adam/default": adam,
    "adamw/default": adamw,
    "sgd/default": sgd,
    "clip_norm/in-divisor": clip_norm,
    "lbfgs/sum-of-sizes": lbfgs,
}
