"""A GPT-2 trainer of your own, judged as a whole and kernel by kernel.

`gradcheck run --model gpt2 --impl examples.models:TRAINER` asks for every gradient at once;
`--impl examples.models:KERNELS` asks each kernel at its own place in the model. One is wrong.
"""

import numpy as np


class LayerNorm:
    """y = (x - mean) / std · w + b."""

    @staticmethod
    def forward(x, w, b, *, eps=1e-5):
        return LayerNorm._normalised(x, eps)[0] * w + b

    @staticmethod
    def vjp(ct, x, w, b, *, eps=1e-5):
        n, r = LayerNorm._normalised(x, eps)
        g = ct * w
        dx = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
        return dx, _rows(ct * n).sum(0), _rows(ct).sum(0)

    @staticmethod
    def _normalised(x, eps):
        centred = x - x.mean(-1, keepdims=True)
        r = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(eps))
        return centred * r, r


class Linear:
    """y = x Wᵀ + b."""

    @staticmethod
    def forward(x, w, b=None):
        return x @ w.T if b is None else x @ w.T + b

    @staticmethod
    def vjp(ct, x, w, b=None):
        dx, dw = ct @ w, _rows(ct).T @ _rows(x)
        return (dx, dw) if b is None else (dx, dw, _rows(ct).sum(0))


class Gelu:
    """The tanh form."""

    ROOT = float(np.sqrt(2 / np.pi))

    @staticmethod
    def forward(x):
        return x * (1 + np.tanh(Gelu.ROOT * (x + 0.044715 * x**3))) / 2

    @staticmethod
    def vjp(ct, x):
        t = np.tanh(Gelu.ROOT * (x + 0.044715 * x**3))
        slope = (1 - t * t) * Gelu.ROOT * (1 + 3 * 0.044715 * x * x)
        return ct * (1 + t + x * slope) / 2


class Attention:
    """Causal attention of packed queries, keys and values. The factor 1/√d lacks in dk."""

    @staticmethod
    def forward(qkv, *, heads):
        _, _, v, att = Attention._weights(qkv, heads)
        return Attention._join(att @ v)

    @staticmethod
    def vjp(ct, qkv, *, heads):
        q, k, v, att = Attention._weights(qkv, heads)
        (dy,) = Attention._split(ct, heads, 1)
        datt = dy @ v.swapaxes(-1, -2)
        dlogits = att * (datt - (datt * att).sum(-1, keepdims=True))
        dq = dlogits @ k / q.shape[-1] ** 0.5
        dk = dlogits.swapaxes(-1, -2) @ q
        parts = (dq, dk, att.swapaxes(-1, -2) @ dy)
        return np.concatenate([Attention._join(part) for part in parts], axis=-1)

    @staticmethod
    def _weights(qkv, heads):
        q, k, v = Attention._split(qkv, heads, 3)
        logits = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        future = np.triu(np.ones(logits.shape[-2:], dtype=bool), 1)
        e = np.exp(logits - logits.max(-1, keepdims=True)) * ~future
        return q, k, v, e / e.sum(-1, keepdims=True)

    @staticmethod
    def _split(x, heads, parts):
        """[…, t, parts · c] → parts arrays [batch, head, t, d]."""
        b, t, c = x.shape
        return x.reshape(b, t, parts, heads, c // parts // heads).transpose(2, 0, 3, 1, 4)

    @staticmethod
    def _join(x):
        b, h, t, d = x.shape
        return x.transpose(0, 2, 1, 3).reshape(b, t, h * d)


class Residual:
    """z = x + y."""

    @staticmethod
    def vjp(ct, x, y):
        return ct, ct


class Trainer:
    """The whole of it; dims are the model's, and what shapes say need not be among them."""

    @staticmethod
    def loss(params, inputs, *, heads, layers):
        *_, logits = Trainer._forward(params, inputs, heads, layers)
        p = np.take_along_axis(_softmax(logits), inputs["targets"][..., None], -1)
        return -np.log(p).mean()

    @staticmethod
    def gradients(params, inputs, *, heads, layers):
        saved, final, logits = Trainer._forward(params, inputs, heads, layers)
        targets = inputs["targets"]
        ct = _softmax(logits)
        rows = ct.reshape(-1, ct.shape[-1])
        rows[np.arange(len(rows)), targets.reshape(-1)] -= 1
        ct /= targets.size
        grads = {}
        ct, grads["dlm_head"] = Linear.vjp(ct, final, params["wte"])
        for name, kernel, args, attrs, adds in reversed(saved):
            if adds:
                skipped = ct
            ct = kernel.vjp(ct, *args, **attrs)
            if isinstance(ct, tuple):
                ct, grads[f"{name}.w"], grads[f"{name}.b"] = ct
            if kernel is LayerNorm and name != "ln_f":
                ct = ct + skipped
        tokens = inputs["tokens"]
        grads["dwte"], grads["wpe"] = np.zeros_like(params["wte"]), np.zeros_like(params["wpe"])
        np.add.at(grads["dwte"], tokens, ct)
        grads["wpe"][: tokens.shape[-1]] = ct.sum(0)
        return grads

    @staticmethod
    def _forward(params, inputs, heads, layers):
        """What each kernel was given, in order; the classifier's input, and its logits."""
        saved = []

        def run(name, kernel, x, adds=False, **attrs):
            own = [params[f"{name}.{p}"] for p in "wb" if f"{name}.{p}" in params]
            saved.append((name, kernel, (x, *own), attrs, adds))
            return kernel.forward(x, *own, **attrs)

        tokens = inputs["tokens"]
        x = params["wte"][tokens] + params["wpe"][: tokens.shape[-1]]
        for h in (f"h.{layer}" for layer in range(layers)):
            y = run(f"{h}.attn.qkv", Linear, run(f"{h}.ln_1", LayerNorm, x))
            y = run(f"{h}.attn", Attention, y, heads=heads)
            x = x + run(f"{h}.attn.proj", Linear, y, adds=True)
            y = run(f"{h}.mlp.fc", Linear, run(f"{h}.ln_2", LayerNorm, x))
            x = x + run(f"{h}.mlp.proj", Linear, run(f"{h}.mlp.gelu", Gelu, y), adds=True)
        final = run("ln_f", LayerNorm, x)
        return saved, final, final @ params["wte"].T


def _rows(x):
    return x.reshape(-1, x.shape[-1])


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


TRAINER = {
    "gpt2": {
        "gradients": Trainer.gradients,
        "loss": Trainer.loss,
        # The classifier shares its weight with the embedding; each has a buffer of its own.
        "buffers": {"wte": ("dwte", "dlm_head")},
    }
}
KERNELS = {
    "gpt2": {
        "stages": {  # the first glob that matches a stage's name counts
            "*ln_*": LayerNorm,
            "*.residual_?": Residual,
            "*.gelu": Gelu,
            "*.attn": Attention,
            "*.attn.*": Linear,
            "*.mlp.*": Linear,
            "unembed": Linear,
        }
    }
}
