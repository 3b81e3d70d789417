"""Kernels for PyTorch and JAX: `gradcheck run --impl examples.frameworks:IMPL`."""

import jax
import jax.numpy as jnp
import torch

from gradcheck import jax_op, torch_op


class Silu(torch.autograd.Function):
    """y = x·σ(x); what is judged is this backward, not autograd's."""

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, ct):
        x, s = ctx.saved_tensors
        return ct * s * (1 + x * (1 - s))


class RmsNorm(torch.autograd.Function):
    """y = x / rms · w; autograd sums the gradient of w over the rows, so that training works."""

    @staticmethod
    def forward(ctx, x, w, eps):  # behind the primals, attributes by their names
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x * r, w, r)
        return x * r * w

    @staticmethod
    def backward(ctx, ct):
        n, w, r = ctx.saved_tensors
        dx = r * (ct * w - n * (ct * w * n).mean(-1, keepdim=True))
        return dx, ct * n, None  # should be (ct * n).flatten(0, -2).sum(0)


def swiglu(gate, up):
    """A function of tensors, differentiated by autograd; σ was detached to save memory."""
    return gate * torch.sigmoid(gate.detach()) * up


@jax.custom_vjp
def sigmoid(x):
    """The logistic function, with a rule of its own."""
    return jax.nn.sigmoid(x)


def sigmoid_forward(x):
    y = jax.nn.sigmoid(x)
    return y, y


def sigmoid_backward(y, ct):
    return (ct * y * (1 - y),)


sigmoid.defvjp(sigmoid_forward, sigmoid_backward)


@jax.custom_vjp
def tanh(x):
    """The hyperbolic tangent, whose rule takes x for y."""
    return jnp.tanh(x)


tanh.defvjp(lambda x: (jnp.tanh(x), x), lambda x, ct: (ct * (1 - x * x),))


def loss(params, inputs):
    """Least squares, the suite's model `linear_regression`, differentiated by `jax.grad`."""
    y = inputs["x"] @ params["w"].T + params["b"]
    return jnp.mean(jnp.square(y - inputs["y"]))


IMPL = {
    "silu": Silu,
    "rms_norm/weight": RmsNorm,
    "swiglu": torch_op(swiglu),
    "softmax": torch.nn.Softmax(dim=-1),
    "sigmoid": sigmoid,
    "tanh": tanh,
    "gelu/erf": jax_op(lambda x: jax.nn.gelu(x, approximate=False), jit=True),
    "linear_regression": jax_op(loss),
}
