"""One function, one backward pass, one check: a trainer's rms_norm, with a factor lost."""

import numpy as np

import gradcheck


def rms_norm(x, w, *, eps=1e-5):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * w


def rms_norm_backward(ct, x, w, *, eps=1e-5):
    rms = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    dot = (ct * w * x).sum(axis=-1, keepdims=True) / (x.shape[-1] * rms * rms)
    dx = ct * w / rms - x * dot  # should be x * dot / rms
    dw = (ct * x / rms).sum(axis=0)
    return dx, dw


rng = np.random.default_rng(0)
x, w = rng.standard_normal((2, 768)), rng.standard_normal(768)
print(gradcheck.check(rms_norm, rms_norm_backward, x, w))
