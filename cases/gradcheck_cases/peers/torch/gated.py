"""PyTorch's gelu and silu, and gates made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def gelu(x, *, form, root):
    """The three forms; PyTorch knows √(2/π) only exactly, and the quick form not at all."""
    if form == "quick":
        return x * torch.sigmoid(1.702 * x)
    if root:
        return 0.5 * x * (1 + torch.tanh(float(root) * (x + 0.044715 * x * x * x)))
    return F.gelu(x, approximate="none" if form == "erf" else form)


def silu_back(g, x):
    """The backward of F.silu; its own backward is autograd's double backward."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaf = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(F.silu(leaf), leaf, g, create_graph=again)[0]


def geglu(gate, up, *, form, root):
    """GELU of the gate times up."""
    return gelu(gate, form=form, root=root) * up


def packed_geglu(x, *, form, root):
    """Gate and up packed along the last axis."""
    return geglu(*x.chunk(2, dim=-1), form=form, root=root)


def swiglu(gate, up):
    """SiLU of the gate times up."""
    return F.silu(gate) * up


def packed_swiglu(x):
    """Gate and up packed along the last axis."""
    return swiglu(*x.chunk(2, dim=-1))


OTHERS: dict[str, Callable[..., Any]] = {
    "silu": F.silu,
}
