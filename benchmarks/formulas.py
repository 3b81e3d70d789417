"""Forwards and hand-written VJPs of the workloads, once for every array library with NumPy's names.

In the comments `...` stands for any axes in front: a parameter with one more axis is so many copies
of it, as in any NumPy code that counts its axes from the end. T positions, H heads, D their width,
C model width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

T, H, D = 16, 4, 16
ROWS, CLASSES = 32, 100
TARGETS = np.random.default_rng(1).integers(0, CLASSES, ROWS)

C, V, GPT_HEADS, LAYERS = 32, 64, 4, 2
TOKENS, NEXT = np.random.default_rng(2).integers(0, V, (2, T))
BLOCK = {
    "ln1_w": (C,), "ln1_b": (C,), "qkv_w": (C, 3 * C), "qkv_b": (3 * C,),
    "out_w": (C, C), "out_b": (C,), "ln2_w": (C,), "ln2_b": (C,),
    "up_w": (C, 4 * C), "up_b": (4 * C,), "down_w": (4 * C, C), "down_b": (C,),
}  # fmt: skip
GPT_SHAPES: dict[str, tuple[int, ...]] = {
    "wte": (V, C), "wpe": (T, C),
    **{f"{name}.{k}": shape for k in range(LAYERS) for name, shape in BLOCK.items()},
    "ln_w": (C,), "ln_b": (C,), "head": (C, V),
}  # fmt: skip

GELU = math.sqrt(2 / math.pi)
CUBIC = 0.044715


class Formulas:
    """The operators in one array library (`xp`: numpy, jax.numpy, torch).

    A VJP takes the cotangent first and returns a cotangent per primal, bare for one primal.
    """

    def __init__(self, xp: Any) -> None:
        """Constants as arrays of the library."""
        self.xp = xp
        self.mask = xp.asarray(np.triu(np.full((T, T), -np.inf), 1))
        self.rows, self.targets = xp.asarray(np.arange(ROWS)), xp.asarray(TARGETS)
        self.one_hot = xp.asarray(np.eye(CLASSES)[TARGETS])
        self.positions = xp.asarray(np.arange(T))
        self.tokens, self.next = xp.asarray(TOKENS), xp.asarray(NEXT)
        self.embedded, self.wanted = xp.asarray(np.eye(V)[TOKENS]), xp.asarray(np.eye(V)[NEXT])

    # rms_norm: x [..., C], w [..., C] → [..., C]

    def rms_norm(self, x: Any, w: Any, eps: float = 1e-5) -> Any:
        """X / rms(x) · w."""
        return x / self.xp.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

    def rms_norm_vjp(self, ct: Any, x: Any, w: Any, eps: float = 1e-5) -> Any:
        """r·(g − x·r²·mean(g·x)) with g = ct·w, r = 1/rms."""
        r = 1 / self.xp.sqrt((x * x).mean(-1, keepdims=True) + eps)
        g = ct * w
        dx = r * g - x * r**3 * (g * x).mean(-1, keepdims=True)
        return dx, (ct * x * r).sum(0)

    # softmax: x [..., C] → [..., C]

    def softmax(self, x: Any) -> Any:
        """exp(x) / sum(exp(x)), rows shifted by their maximum."""
        e = self.xp.exp(x - self.xp.amax(x, -1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def softmax_vjp(self, ct: Any, x: Any) -> Any:
        """y·(ct − ⟨ct, y⟩)."""
        y = self.softmax(x)
        return y * (ct - (ct * y).sum(-1, keepdims=True))

    # gelu: x [...] → [...]

    def gelu(self, x: Any) -> Any:
        """The approximation by tanh."""
        return 0.5 * x * (1 + self.xp.tanh(GELU * (x + CUBIC * x * x * x)))

    def gelu_vjp(self, ct: Any, x: Any) -> Any:
        """½(1 + t) + ½·x·(1 − t²)·u′ with t = tanh(u)."""
        t = self.xp.tanh(GELU * (x + CUBIC * x * x * x))
        return ct * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU * (1 + 3 * CUBIC * x * x))

    # matmul: a [..., I, K], b [..., K, J] → [..., I, J]

    def matmul(self, a: Any, b: Any) -> Any:
        """A·B."""
        return a @ b

    def matmul_vjp(self, ct: Any, a: Any, b: Any) -> Any:
        """ct·Bᵀ, Aᵀ·ct."""
        return ct @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ ct

    # layer_norm: x [..., C], w [..., C], b [..., C] → [..., C]

    def normalised(self, x: Any, eps: float) -> tuple[Any, Any]:
        """(x − mean) / σ and 1/σ."""
        m = x - x.mean(-1, keepdims=True)
        r = 1 / self.xp.sqrt((m * m).mean(-1, keepdims=True) + eps)
        return m * r, r

    def layer_norm(self, x: Any, w: Any, b: Any, eps: float = 1e-5) -> Any:
        """(x − mean) / σ · w + b."""
        return self.normalised(x, eps)[0] * w + b

    def layer_norm_vjp(self, ct: Any, x: Any, w: Any, b: Any, eps: float = 1e-5) -> Any:
        """r·(g − mean(g) − n·mean(g·n)) with g = ct·w, n the normalised row."""
        n, r = self.normalised(x, eps)
        g = ct * w
        dx = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
        return dx, (ct * n).sum(0), ct.sum(0)

    # attention, causal: q, k, v [..., H, T, D] → [..., H, T, D]

    def weights(self, q: Any, k: Any) -> Any:
        """softmax(q·kᵀ/√D), nothing to what comes later."""
        return self.softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + self.mask)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """weights·v."""
        return self.weights(q, k) @ v

    def attention_vjp(self, ct: Any, q: Any, k: Any, v: Any) -> Any:
        """Through the softmax: ds = p·(dp − ⟨dp, p⟩)/√D with dp = ct·vᵀ."""
        p, dp = self.weights(q, k), ct @ v.swapaxes(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / math.sqrt(q.shape[-1])
        return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ ct

    # cross_entropy: x [..., ROWS, CLASSES] → [...]

    def cross(self, x: Any, rows: Any, targets: Any) -> Any:
        """The mean over rows of log(sum(exp(x))) − x[target]."""
        m = self.xp.amax(x, -1, keepdims=True)
        log_sum = self.xp.log(self.xp.exp(x - m).sum(-1)) + m[..., 0]
        return (log_sum - x[..., rows, targets]).mean(-1)

    def cross_entropy(self, x: Any) -> Any:
        """Against the targets of this file."""
        return self.cross(x, self.rows, self.targets)

    def cross_entropy_vjp(self, ct: Any, x: Any) -> Any:
        """ct/rows · (softmax − one-hot)."""
        return ct * (self.softmax(x) - self.one_hot) / ROWS

    # relu_linear: x [..., N, K], w [..., J, K] → [..., N, J]

    def relu_linear(self, x: Any, w: Any) -> Any:
        """max(x·wᵀ, 0): a kink per output."""
        h = x @ w.swapaxes(-1, -2)
        return h * (h > 0)

    def relu_linear_vjp(self, ct: Any, x: Any, w: Any) -> Any:
        """What is positive goes through."""
        g = ct * (x @ w.swapaxes(-1, -2) > 0)
        return g @ w, g.swapaxes(-1, -2) @ x

    # gpt: the parameters of GPT_SHAPES in their order, any of them with copies in front → [...]

    def heads(self, qkv: Any) -> list[Any]:
        """[..., T, 3C] → q, k, v [..., heads, T, C/heads]."""
        split = (qkv[..., i * C : (i + 1) * C] for i in range(3))
        shape = (T, GPT_HEADS, C // GPT_HEADS)
        return [x.reshape(x.shape[:-2] + shape).swapaxes(-3, -2) for x in split]

    def joined(self, x: Any) -> Any:
        """[..., heads, T, C/heads] → [..., T, C]."""
        x = x.swapaxes(-3, -2)
        return x.reshape((*x.shape[:-2], C))

    def norm(self, x: Any, w: Any, b: Any) -> Any:
        """layer_norm over [..., T, C] with copies of w and b [..., C]."""
        return self.layer_norm(x, w[..., None, :], b[..., None, :])

    def gpt(self, *params: Any) -> Any:
        """The mean cross-entropy of the next token; pre-norm blocks, an untied head."""
        p = dict(zip(GPT_SHAPES, params, strict=True))
        x = p["wte"][..., self.tokens, :] + p["wpe"]
        for k in range(LAYERS):
            n = self.norm(x, p[f"ln1_w.{k}"], p[f"ln1_b.{k}"])
            qkv = n @ p[f"qkv_w.{k}"] + p[f"qkv_b.{k}"][..., None, :]
            a = self.joined(self.attention(*self.heads(qkv)))
            x = x + a @ p[f"out_w.{k}"] + p[f"out_b.{k}"][..., None, :]
            n = self.norm(x, p[f"ln2_w.{k}"], p[f"ln2_b.{k}"])
            h = self.gelu(n @ p[f"up_w.{k}"] + p[f"up_b.{k}"][..., None, :])
            x = x + h @ p[f"down_w.{k}"] + p[f"down_b.{k}"][..., None, :]
        logits = self.norm(x, p["ln_w"], p["ln_b"]) @ p["head"]
        return self.cross(logits, self.positions, self.next)

    def gpt_vjp(self, ct: Any, *params: Any) -> tuple[Any, ...]:
        """The forward's lines upside down; what they need is kept on the way up."""
        p, kept = dict(zip(GPT_SHAPES, params, strict=True)), []
        x = p["wte"][self.tokens] + p["wpe"]
        for k in range(LAYERS):
            n1 = self.layer_norm(x, p[f"ln1_w.{k}"], p[f"ln1_b.{k}"])
            qkv = self.heads(n1 @ p[f"qkv_w.{k}"] + p[f"qkv_b.{k}"])
            a = self.joined(self.attention(*qkv))
            y = x + a @ p[f"out_w.{k}"] + p[f"out_b.{k}"]
            n2 = self.layer_norm(y, p[f"ln2_w.{k}"], p[f"ln2_b.{k}"])
            u = n2 @ p[f"up_w.{k}"] + p[f"up_b.{k}"]
            h = self.gelu(u)
            kept.append((x, n1, qkv, a, y, n2, u, h))
            x = y + h @ p[f"down_w.{k}"] + p[f"down_b.{k}"]
        n = self.layer_norm(x, p["ln_w"], p["ln_b"])
        d: dict[str, Any] = {}
        logits_ct = ct * (self.softmax(n @ p["head"]) - self.wanted) / T
        d["head"] = n.swapaxes(0, 1) @ logits_ct
        dn = logits_ct @ p["head"].swapaxes(0, 1)
        dx, d["ln_w"], d["ln_b"] = self.layer_norm_vjp(dn, x, p["ln_w"], p["ln_b"])
        for k in reversed(range(LAYERS)):
            dx = self.block_vjp(k, dx, p, kept[k], d)
        d["wpe"], d["wte"] = dx, self.embedded.swapaxes(0, 1) @ dx
        return tuple(d[name] for name in GPT_SHAPES)

    def block_vjp(self, k: int, dx: Any, p: dict[str, Any], kept: Any, d: dict[str, Any]) -> Any:
        """One block: its parameters' cotangents into d, its input's returned."""
        x, n1, qkv, a, y, n2, u, h = kept

        def affine(name: str, ct: Any, given: Any) -> Any:
            d[f"{name}_w.{k}"], d[f"{name}_b.{k}"] = given.swapaxes(0, 1) @ ct, ct.sum(0)
            return ct @ p[f"{name}_w.{k}"].swapaxes(0, 1)

        def norm(name: str, ct: Any, given: Any) -> Any:
            w, b = f"{name}_w.{k}", f"{name}_b.{k}"
            out, d[w], d[b] = self.layer_norm_vjp(ct, given, p[w], p[b])
            return out

        du = self.gelu_vjp(affine("down", dx, h), u)
        dy = dx + norm("ln2", affine("up", du, n2), y)
        shape = (T, GPT_HEADS, C // GPT_HEADS)
        da = affine("out", dy, a).reshape(shape).swapaxes(0, 1)
        dqkv = [self.joined(g) for g in self.attention_vjp(da, *qkv)]
        return dy + norm("ln1", affine("qkv", self.xp.concatenate(dqkv, -1), n1), x)
