"""Three backward passes by hand: one is right, one is wrong, one ends its process.

Each takes the cotangent of the output (`ct`, dL/dy) and the inputs of the forward pass, and
returns the gradient with respect to each input. In the folder of this file:

    gradcheck run --impl kernels:IMPL
"""

import ctypes

import numpy as np


def silu(ct, x):
    """Right: y = x σ(x)."""
    s = 1 / (1 + np.exp(-x))
    return ct * s * (1 + x * (1 - s))


def rms_norm(ct, x, w, *, eps):
    """Wrong, as it stood in a real trainer: y = w x / rms(x), rms(x) = √(mean(x²) + eps)."""
    r = 1 / np.sqrt(mean(x * x) + eps)
    g = ct * w
    dx = r * (g - x * mean(g * x) * r)  # right: x * mean(g * x) * r**2
    dw = np.sum(ct * x * r, axis=tuple(range(x.ndim - 1)))
    return dx, dw


def relu(ct, x):
    """Reads memory at address 0, as compiled code does with a lost pointer: y = max(x, 0)."""
    mask = (ctypes.c_bool * x.size).from_address(0)
    return ct * np.array(mask[:], dtype=bool).reshape(x.shape)


def mean(x):
    """Of each row."""
    return np.sum(x, axis=-1, keepdims=True) / max(x.shape[-1], 1)


IMPL = {
    "silu": {"vjp": silu},
    "rms_norm/weight": {"vjp": rms_norm},
    "relu": {"vjp": relu},
}
