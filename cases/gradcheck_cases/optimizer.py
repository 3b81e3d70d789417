"""Update rules: Adam, AdamW, SGD with momentum, clipping by the global norm, L-BFGS.

Sources: Kingma & Ba 2015 (arXiv:1412.6980); Loshchilov & Hutter 2019 (arXiv:1711.05101); Nocedal
& Wright, Numerical Optimization, algorithm 7.4; ggml's optimiser of 2023; PyTorch's torch.optim.

A tensor is addressed by its parameter's name, one of the state by slot and name. Hyper-parameters
are Python floats; `one(xp) * x` makes a number of them that is rounded as in the working dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradcheck.numerics.draw import Draw
from gradcheck.spec import Array, Dialect
from gradcheck.spec.rule import RuleSpec, State, Steps, Tensors

SHAPES: Mapping[str, tuple[int, ...]] = {"w": (3, 4), "b": (5,), "k": (2, 3, 2), "s": ()}
"""Several tensors with several shapes, one of them a scalar."""


def one(xp: Any) -> Any:
    return xp.asarray(1.0)


def slots(xp: Any, params: Tensors, *names: str) -> State:
    """Zeros for every parameter, in every slot."""
    return {slot: {n: xp.zeros_like(p) for n, p in params.items()} for slot in names}


def dot(xp: Any, x: Tensors, y: Tensors) -> Any:
    """Σ x·y over all tensors."""
    return sum((xp.sum(x[name] * y[name]) for name in x), xp.asarray(0.0))


# ── samples ──────────────────────────────────────────────────────────────────────────────────


def params(scale: float) -> Callable[[Draw], Tensors]:
    """Parameters not much larger than a step, so that float32 resolves the step."""
    return lambda draw: {name: draw.signed(*shape) * scale for name, shape in SHAPES.items()}


def gradients(scale: float = 1.0) -> Callable[[Draw, int], Tensors]:
    def drawn(draw: Draw, t: int) -> Tensors:
        return {name: draw.signed(*shape) * scale for name, shape in SHAPES.items()}

    return drawn


def some_zero(draw: Draw, t: int) -> Tensors:
    """No gradient at all for `b`, none in every third step for `w`, every other one of `k`."""
    found = dict(gradients()(draw, t))
    found["b"] = found["b"] * 0
    found["w"] = found["w"] * float(t % 3 != 0)
    found["k"] = found["k"] * (draw.integers(0, 2, *SHAPES["k"]) * 1.0)
    return found


def alternating(draw: Draw, t: int) -> Tensors:
    """The sign changes from step to step, so that the state cancels."""
    sign = -1.0 if t % 2 else 1.0
    return {name: sign * draw.positive(*shape) for name, shape in SHAPES.items()}


def wide(draw: Draw, t: int) -> Tensors:
    return {name: draw.powers(*shape) for name, shape in SHAPES.items()}


def moments(draw: Draw, params: Tensors) -> State:
    """A state that Adam may have after many steps."""
    return {
        "m": {name: draw.signed(*p.shape) for name, p in params.items()},
        "v": {name: draw.positive(*p.shape) for name, p in params.items()},
    }


def buffers(draw: Draw, params: Tensors) -> State:
    return {"buf": {name: draw.signed(*p.shape) for name, p in params.items()}}


def steps(name: str, hunts: str, drawn: Any = None, **rest: Any) -> Steps:
    scale = rest.pop("scale", 1.0)
    drawn = drawn or gradients()
    return Steps(name=name, hunts=hunts, params=params(scale), gradients=drawn, **rest)


# ── SGD with momentum ────────────────────────────────────────────────────────────────────────


def sgd_init(xp: Any, params: Tensors) -> State:
    return slots(xp, params, "buf")


def sgd_update(
    xp, params, grads, state, t, *, lr=0.0625, momentum=0.9, dampening=0.0, weight_decay=0.0,
    nesterov=False, rate_inside=False,
):  # fmt: skip
    rate = lr if rate_inside else 1.0
    new, buf = {}, {}
    for name, p in params.items():
        g = grads[name] + weight_decay * p if weight_decay else grads[name]
        old = state["buf"][name]
        kept = one(xp) - dampening
        buf[name] = rate * g if t == 1 else momentum * old + kept * (rate * g)
        step = rate * g + momentum * buf[name] if nesterov else buf[name]
        new[name] = p - step if rate_inside else p - lr * step
    return new, {"buf": buf}


sgd = RuleSpec(
    "sgd",
    init=sgd_init,
    update=sgd_update,
    samples=(
        steps("typical", "a momentum that is not kept, or kept twice"),
        steps("plain", "momentum where none is wanted", attrs={"momentum": 0.0}),
        steps("dampened", "a first step that is dampened; dampening that is ignored",
              attrs={"dampening": 0.25, "momentum": 0.5}),
        steps("nesterov", "the look-ahead left out, or with the old buffer",
              attrs={"nesterov": True, "momentum": 0.75}),
        steps("decayed", "a weight decay that is ignored, or kept out of the buffer",
              attrs={"weight_decay": 0.25}),
        steps("zeros", "a buffer that is not decayed without a gradient", some_zero),
        steps("tiny", "an update that vanishes beside an absolute tolerance",
              gradients(2.0**-20), attrs={"momentum": 0.5}, scale=2.0**-20),
        steps("huge", "numbers that overflow", gradients(2.0**40)),
        steps("alternating", "a buffer that loses the sign", alternating),
        steps("step-1000", "a counter that starts again: the buffer thrown away",
              state=buffers, first=1000, attrs={"dampening": 0.125}),
    ),
    formula="buf = μ·buf + (1 − τ)·g (first step: buf = g), p −= lr · buf (Nesterov: g + μ·buf)",
    source="Sutskever, Martens, Dahl & Hinton 2013; torch.optim.SGD",
    dialects=(
        Dialect(name="default", says="the learning rate outside the buffer: PyTorch"),
        Dialect(
            name="rate-inside",
            says="the learning rate goes into the buffer: Sutskever et al., TensorFlow",
            attrs={"rate_inside": True},
        ),
    ),
    training={"lr": 2.0**-12, "momentum": 0.5},
)  # fmt: skip


# ── Adam and AdamW ───────────────────────────────────────────────────────────────────────────


def adam_init(xp: Any, params: Tensors) -> State:
    return slots(xp, params, "m", "v")


def _moved(xp: Any, g: Array, m: Array, v: Array, beta1: float, beta2: float) -> tuple[Any, Any]:
    """Both moments after one more gradient."""
    return beta1 * m + (one(xp) - beta1) * g, beta2 * v + (one(xp) - beta2) * (g * g)


def _direction(
    xp: Any, m: Array, v: Array, t: int, beta1: float, beta2: float, eps: float, eps_hat: bool
) -> Any:
    """m̂ / (√v̂ + eps); `eps_hat` adds eps beside the root of the uncorrected v."""
    unbias1 = 1 - xp.power(one(xp) * beta1, t)
    unbias2 = 1 - xp.power(one(xp) * beta2, t)
    if eps_hat:
        return (m / unbias1) * xp.sqrt(unbias2) / (xp.sqrt(v) + eps)
    return (m / unbias1) / (xp.sqrt(v / unbias2) + eps)


def adam_update(
    xp, params, grads, state, t, *, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0,
    eps_hat=False,
):  # fmt: skip
    new: dict[str, Array] = {}
    m: dict[str, Array] = {}
    v: dict[str, Array] = {}
    for name, p in params.items():
        g = grads[name] + weight_decay * p if weight_decay else grads[name]
        m[name], v[name] = _moved(xp, g, state["m"][name], state["v"][name], beta1, beta2)
        step = _direction(xp, m[name], v[name], t, beta1, beta2, eps, eps_hat)
        new[name] = p - lr * step
    return new, {"m": m, "v": v}


def adamw_update(
    xp, params, grads, state, t, *, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01,
    by_rate=True,
):  # fmt: skip
    decay = one(xp) * weight_decay
    kept = 1 - lr * decay if by_rate else 1 - decay
    new: dict[str, Array] = {}
    m: dict[str, Array] = {}
    v: dict[str, Array] = {}
    for name, p in params.items():
        old = state["m"][name], state["v"][name]
        m[name], v[name] = _moved(xp, grads[name], *old, beta1, beta2)
        step = _direction(xp, m[name], v[name], t, beta1, beta2, eps, eps_hat=False)
        new[name] = p * kept - lr * step
    return new, {"m": m, "v": v}


ADAM_STEPS = (
    steps("typical", "a formula that is wrong everywhere", scale=2.0**-6),
    steps("quick", "the default betas written into the code; moments exchanged",
          attrs={"beta1": 0.5, "beta2": 0.75, "lr": 0.125}),
    steps("wide-eps", "eps inside the root, or beside the uncorrected one",
          attrs={"eps": 0.125, "lr": 0.0625}),
    steps("decayed", "a weight decay that is ignored, or goes through the moments or does not",
          attrs={"weight_decay": 0.25, "lr": 0.0625}),
    steps("zeros", "0/0 where no gradient ever came; state that is not decayed without one",
          some_zero, scale=2.0**-6, attrs={"lr": 2.0**-6}),
    steps("tiny", "gradients of the size of eps: eps in the wrong place, squares that vanish",
          gradients(2.0**-27), scale=2.0**-6),
    steps("huge", "squares that overflow", gradients(2.0**40), scale=2.0**-6),
    steps("alternating", "the first moment taken without its sign", alternating, scale=2.0**-6),
    steps("magnitudes", "one tensor's scale used for another's", wide, attrs={"lr": 0.125}),
    steps("step-1000", "a counter that starts again; a state that is not read",
          state=moments, first=1000, attrs={"lr": 0.0625}),
    steps("step-1000-tiny", "a large state that must outweigh small gradients",
          gradients(2.0**-10), state=moments, first=1000, attrs={"lr": 0.0625}),
)  # fmt: skip

adam = RuleSpec(
    "adam",
    init=adam_init,
    update=adam_update,
    samples=ADAM_STEPS,
    formula="m = β₁m + (1−β₁)g, v = β₂v + (1−β₂)g², p −= lr · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + eps)",
    source="Kingma & Ba 2015, algorithm 1; a Llama trainer's model_adam_step; ggml's optimiser",
    dialects=(
        Dialect(name="default", says="eps outside the corrected root: PyTorch, ggml, the paper"),
        Dialect(
            name="eps-hat",
            says="eps beside the uncorrected root: TensorFlow, the paper's efficient form",
            attrs={"eps_hat": True},
        ),
    ),
    training={"lr": 2.0**-6},
)

adamw = RuleSpec(
    "adamw",
    init=adam_init,
    update=adamw_update,
    samples=ADAM_STEPS,
    formula="p = p·(1 − lr·λ) − lr · m̂ / (√v̂ + eps)",
    source="Loshchilov & Hutter 2019, algorithm 2; torch.optim.AdamW",
    dialects=(
        Dialect(name="default", says="decay times the learning rate: PyTorch, ggml"),
        Dialect(
            name="apart",
            says="decay without the learning rate, as in the paper's algorithm 2 at η = 1",
            attrs={"by_rate": False},
        ),
    ),
    training={"lr": 2.0**-6},
)


# ── clipping by the global norm ──────────────────────────────────────────────────────────────


def clip_init(xp: Any, params: Tensors) -> State:
    return {}


def clip_update(xp, params, grads, state, t, *, max_norm=1.0, eps=0.0):
    norm = xp.sqrt(dot(xp, grads, grads))
    if eps:
        factor = xp.minimum(max_norm / (norm + eps), 1.0)
    elif norm > max_norm:
        factor = max_norm / norm
    else:
        return dict(grads), {}
    return {name: g * factor for name, g in grads.items()}, {}


def around_five(draw: Draw, t: int) -> Tensors:
    """Norms of 5, a little less and a little more, in turn; all other elements are zero."""
    found = {name: 0 * draw.signed(*shape) for name, shape in SHAPES.items()}
    found["w"][0, 0], found["b"][2] = 3.0, 4.0 + (t % 3 - 1) / 128
    return found


clip = RuleSpec(
    "clip_norm",
    init=clip_init,
    update=clip_update,
    samples=(
        steps("typical", "each tensor clipped by its own norm"),
        steps("below", "gradients stretched to the norm where they are shorter",
              gradients(2.0**-6)),
        steps("at-the-norm", "a limit that is off by one element, or by eps", around_five,
              attrs={"max_norm": 5.0}),
        steps("zeros", "0/0 where all is zero", gradients(0.0)),
        steps("tiny", "squares that vanish", gradients(2.0**-40), attrs={"max_norm": 2.0**-40}),
        steps("huge", "squares that overflow, a norm that is not a root", gradients(2.0**40)),
        steps("magnitudes", "the largest element taken for the norm", wide,
              attrs={"max_norm": 2.5}),
    ),
    formula="n = √Σ‖g‖² over all tensors; g · max_norm/n where n > max_norm",
    source="Pascanu, Mikolov & Bengio 2013; a Llama trainer's model_clip_gradients",
    dialects=(
        Dialect(name="default", says="no eps in the divisor; scales only above the norm"),
        Dialect(
            name="in-divisor",
            says="min(1, max_norm / (n + 1e-6)): torch.nn.utils.clip_grad_norm_",
            attrs={"eps": 1e-6},
        ),
    ),
    gives="grads",
)  # fmt: skip


# ── L-BFGS ───────────────────────────────────────────────────────────────────────────────────

Pairs = Sequence[tuple[Tensors, Tensors]]


def two_loop(xp: Any, grads: Tensors, pairs: Pairs) -> Tensors:
    """H·g for the inverse Hessian of the pairs (s, y), the newest first; H₀ = (sᵀy / yᵀy)·I."""
    q: Tensors = dict(grads)
    shares = []
    for s, y in pairs:
        share = dot(xp, s, q) / dot(xp, s, y)
        shares.append(share)
        q = {name: q[name] - share * y[name] for name in q}
    if pairs:
        s, y = pairs[0]
        scale = dot(xp, s, y) / dot(xp, y, y)
        q = {name: scale * q[name] for name in q}
    for (s, y), share in reversed(list(zip(pairs, shares, strict=True))):
        change = share - dot(xp, y, q) / dot(xp, s, y)
        q = {name: q[name] + change * s[name] for name in q}
    return q


def history(state: State) -> Pairs:
    """The pairs that a state holds, the newest first."""
    count = sum(slot.startswith("s.") for slot in state)
    return [(state[f"s.{k}"], state[f"y.{k}"]) for k in range(count)]


def lbfgs_init(xp: Any, params: Tensors) -> State:
    return {}


def lbfgs_update(xp, params, grads, state, t, *, m=5, lr=1.0, sum_of_sizes=False):
    pairs = list(history(state))
    if "x" in state:
        s = {name: p - state["x"][name] for name, p in params.items()}
        y = {name: g - state["g"][name] for name, g in grads.items()}
        if dot(xp, s, y) > 0:
            pairs = [(s, y), *pairs][:m]
    if state:
        rate = lr
    elif sum_of_sizes:
        size = sum((xp.sum(xp.abs(g)) for g in grads.values()), xp.asarray(0.0))
        rate = lr * xp.minimum(1 / size, 1.0)
    else:
        rate = lr / xp.sqrt(dot(xp, grads, grads))
    step = two_loop(xp, grads, pairs)
    remembered: dict[str, Tensors] = {"x": dict(params), "g": dict(grads)}
    for k, (move, turn) in enumerate(pairs):
        remembered[f"s.{k}"], remembered[f"y.{k}"] = move, turn
    return {name: p - rate * step[name] for name, p in params.items()}, remembered


def pairs_of(count: int) -> Callable[[Draw, Tensors], State]:
    """A history of `count` pairs with sᵀy > 0."""

    def state(draw: Draw, params: Tensors) -> State:
        slots: dict[str, Tensors] = {}
        for k in range(count):
            s = {name: draw.signed(*p.shape) / 4 for name, p in params.items()}
            slots[f"s.{k}"] = s
            slots[f"y.{k}"] = {n: 2 * x + draw.signed(*x.shape) / 8 for n, x in s.items()}
        return slots

    return state


def centre(draw: Draw, t: int) -> Tensors:
    """Equal in every step."""
    return gradients()(Draw("centre"), t)


def far_centre(draw: Draw, t: int) -> Tensors:
    return gradients(16.0)(Draw("far centre"), t)


def uneven_centre(draw: Draw, t: int) -> Tensors:
    return wide(Draw("uneven centre"), t)


def bowl(xp: Any, params: Tensors, centre: Tensors) -> Tensors:
    """The gradient of Σ(1/2 + |c|)(p − c)²/2 + (cᵀ(p − c))²/32."""
    offset = {name: p - centre[name] for name, p in params.items()}
    shared = dot(xp, centre, offset) / 16
    return {n: (0.5 + xp.abs(c)) * offset[n] + shared * c for n, c in centre.items()}


def hill(xp: Any, params: Tensors, centre: Tensors) -> Tensors:
    """The negative of `bowl`: sᵀy < 0 always."""
    return {name: -g for name, g in bowl(xp, params, centre).items()}


def descent(name: str, hunts: str, drawn: Any = centre, **attrs: Any) -> Steps:
    rest = {key: attrs.pop(key) for key in ("state", "first") if key in attrs}
    slope = attrs.pop("slope", bowl)
    return steps(name, hunts, drawn, slope=slope, attrs={"lr": 0.125, **attrs}, **rest)


lbfgs = RuleSpec(
    "lbfgs",
    init=lbfgs_init,
    update=lbfgs_update,
    samples=(
        descent("typical", "a formula that is wrong everywhere"),
        descent("one-pair", "a history that keeps more than m pairs, or the oldest ones", m=1),
        descent("short-history", "pairs that are read where there are none yet",
                state=pairs_of(1), first=10, m=6),
        descent("full-history", "the oldest pair not dropped; the order of the two loops",
                state=pairs_of(3), first=10, m=3),
        descent("hill", "a pair with sᵀy ≤ 0 that is not skipped", slope=hill,
                state=pairs_of(2), first=10),
        descent("far", "a first step that is not scaled by the gradient's norm", far_centre),
        descent("uneven", "one tensor's curvature used for another's", uneven_centre),
    ),
    formula="p −= lr · H g, H from m pairs (s, y) with sᵀy > 0, H₀ = (sᵀy / yᵀy)·I; step 1: lr/‖g‖",
    source="Nocedal & Wright, algorithm 7.4 and equation 7.20; ggml's optimiser; torch.optim.LBFGS",
    dialects=(
        Dialect(name="default", says="a first step of length lr: ggml, libLBFGS"),
        Dialect(
            name="sum-of-sizes",
            says="a first rate of lr · min(1, 1/Σ|g|): PyTorch",
            attrs={"sum_of_sizes": True},
        ),
    ),
    training={"m": 16},
    searched=True,
)  # fmt: skip
