"""PyTorch: its own operators forward, the formulas backward, in an autograd.Function."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks.formulas import Formulas
from benchmarks.peers import Check
from benchmarks.planted import Planted
from benchmarks.workloads import Workload


class Kernels(Formulas):
    """PyTorch's own kernels in place of the formulas, wherever it has one."""

    def softmax(self, x: Any) -> Any:
        """On the last axis."""
        return torch.softmax(x, -1)

    def gelu(self, x: Any) -> Any:
        """The approximation by tanh."""
        return functional.gelu(x, approximate="tanh")

    def rms_norm(self, x: Any, w: Any, eps: float = 1e-5) -> Any:
        """Over the last axis."""
        return functional.rms_norm(x, w.shape, w, eps)

    def layer_norm(self, x: Any, w: Any, b: Any, eps: float = 1e-5) -> Any:
        """Over the last axis."""
        return functional.layer_norm(x, w.shape[-1:], w.reshape(-1), b.reshape(-1), eps)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """Causal."""
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def cross(self, x: Any, rows: Any, targets: Any) -> Any:
        """The mean over rows."""
        return functional.cross_entropy(x, targets)

    def relu_linear(self, x: Any, w: Any) -> Any:
        """A kink per output."""
        return torch.relu(x @ w.T)


class Torch:
    """`torch.autograd.gradcheck`, by projection (fast) or the whole Jacobian (slow)."""

    def __init__(self, variant: str) -> None:
        """One thread, as everybody."""
        torch.set_num_threads(1)
        self.fast, self.own = variant != "slow", variant == "own"
        self.kernels = Kernels(torch)

    def prepare(self, workload: Workload, seed: int, planted: Planted | None) -> Check:
        """Tensors that require a gradient."""
        primals = [torch.tensor(p, requires_grad=True) for p in workload.primals(seed)]
        if self.own:
            kernel = getattr(self.kernels, workload.operator)
            function = partial(kernel, **workload.attrs)
        else:
            function = self._function(workload, planted).apply
        torch.manual_seed(seed)

        def check() -> bool:
            return bool(
                torch.autograd.gradcheck(
                    function, primals, fast_mode=self.fast, raise_exception=False
                )
            )

        return check

    def _function(self, workload: Workload, planted: Planted | None) -> Any:
        forwards = getattr(self.kernels, workload.operator)
        vjp = getattr(self.kernels, f"{workload.operator}_vjp")

        class Given(torch.autograd.Function):
            """The workload, and the gradient that is judged."""

            @staticmethod
            def forward(ctx: Any, *primals: Any) -> Any:
                ctx.save_for_backward(*primals)
                return forwards(*primals, **workload.attrs)

            @staticmethod
            def backward(ctx: Any, ct: Any) -> Any:
                found = vjp(ct, *ctx.saved_tensors, **workload.attrs)
                found = list(found if isinstance(found, tuple) else (found,))
                if planted is not None:
                    changed = found[planted.output].clone(memory_format=torch.contiguous_format)
                    changed.view(-1)[planted.index] *= planted.factor
                    found[planted.output] = changed
                return tuple(found)

        return Given


ADAPTER = Torch
