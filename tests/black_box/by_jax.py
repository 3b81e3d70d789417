"""JAX functions with NumPy in and out, and the VJP that jax.vjp gives.

JAX rounds to float32 unless `jax_enable_x64` is set. Half of these pairs run with it; the others
run as most users do: in float32, for any input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from .pair import Pair, drawn, of_framework, uniform

KIND = "jax"


def wide(f: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward and VJP in the dtype of the input."""

    def forward(*primals):
        with jax.enable_x64(True):
            return np.asarray(f(*map(jnp.asarray, primals)))

    def vjp(ct, *primals):
        with jax.enable_x64(True):
            y, back = jax.vjp(f, *map(jnp.asarray, primals))
            got = [np.asarray(g) for g in back(jnp.asarray(ct, y.dtype))]
        return tuple(got) if len(got) > 1 else got[0]

    return forward, vjp


def narrow(f: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward and VJP in float32, returned in the dtype of the input."""

    def forward(*primals):
        with jax.enable_x64(False):
            return np.asarray(f(*map(jnp.asarray, primals)), primals[0].dtype)

    def vjp(ct, *primals):
        with jax.enable_x64(False):
            y, back = jax.vjp(f, *map(jnp.asarray, primals))
            got = [
                np.asarray(g, p.dtype)
                for g, p in zip(back(jnp.asarray(ct, y.dtype)), primals, strict=True)
            ]
        return tuple(got) if len(got) > 1 else got[0]

    return forward, vjp


def layer_norm(x):
    return jax.nn.standardize(x, axis=-1, epsilon=1e-5)


def scanned(x, w):
    def step(h, xt):
        h = jnp.tanh(w @ h + xt)
        return h, h

    return jax.lax.scan(step, jnp.zeros(w.shape[0], w.dtype), x)[1]


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T / q.shape[-1] ** 0.5, axis=-1) @ v


def conv(x, k):
    return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME")


def newton(a):
    """A square root by iterations of its own."""
    y = a
    for _ in range(8):
        y = 0.5 * (y + a / y)
    return y


def definite(x):
    return x @ x.T + jnp.eye(x.shape[0], dtype=x.dtype)


FUNCTIONS = {
    # name: function, its primals
    "tanh": (jnp.tanh, (drawn("jt", 5),)),
    "softmax": (lambda x: jax.nn.softmax(x, axis=-1), (drawn("js", 3, 4),)),
    "softmax 1000": (lambda x: jax.nn.softmax(x, axis=-1), (1000 + drawn("js", 3, 4),)),
    "log_softmax": (lambda x: jax.nn.log_softmax(x, axis=-1), (10 * drawn("jl", 3, 4),)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=-1), (drawn("jlse", 3, 4),)),
    "logsumexp margin": (lambda x: jax.nn.logsumexp(x, axis=-1), (drawn("jlse", 3,
        4) + np.array([30, 0, 0, 0]),)),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), (drawn("jg", 5),)),
    "gelu tanh": (jax.nn.gelu, (drawn("jgt", 5),)),
    "silu": (jax.nn.silu, (3 * drawn("jsi", 5),)),
    "softplus": (jax.nn.softplus, (9 * drawn("jsp", 5),)),
    "relu": (jax.nn.relu, (drawn("jr", 6),)),
    "relu on the kink": (jax.nn.relu, (drawn("jr", 6) * np.array([1, 0, 1, 1, 0, 1]),)),
    "leaky relu": (jax.nn.leaky_relu, (drawn("jlr", 6),)),
    "selu": (jax.nn.selu, (drawn("jse", 6),)),
    "standardize": (layer_norm, (drawn("jst", 3, 6),)),
    "standardize 1000": (layer_norm, (1000 + drawn("jst", 3, 6),)),
    "attention": (attention, (drawn("jq", 3, 4), drawn("jk", 5, 4), drawn("jv", 5, 4))),
    "scan": (jax.jit(scanned), (drawn("jx", 6, 3), drawn("jw", 3, 3))),
    "conv": (conv, (drawn("jcx", 1, 2, 4, 4), drawn("jck", 2, 2, 3, 3))),
    "newton": (newton, (uniform("jn", 1, 9, 4),)),
    "inv": (jnp.linalg.inv, (drawn("ji", 4, 4),)),
    "solve": (jnp.linalg.solve, (drawn("jsa", 4, 4), drawn("jsb", 4))),
    "slogdet": (lambda a: jnp.linalg.slogdet(a)[1], (drawn("jsl", 4, 4),)),
    "det": (jnp.linalg.det, (drawn("jd", 4, 4),)),
    "cholesky": (lambda x: jnp.linalg.cholesky(definite(x)), (drawn("jc", 4, 4),)),
    "eigvalsh": (lambda x: jnp.linalg.eigvalsh(definite(x)), (drawn("je", 4, 4),)),
    "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), (drawn("jsv", 4, 3),)),
    "qr": (lambda x: jnp.linalg.qr(x)[1], (drawn("jqr", 4, 3),)),
    "expm": (jax.scipy.linalg.expm, (drawn("jexp", 3, 3),)),
    "norm": (jnp.linalg.norm, (drawn("jno", 5),)),
    "einsum": (lambda a, b: jnp.einsum("ij,kj->ik", a, b), (drawn("jea", 2, 3), drawn("jeb", 4,
        3))),
    "logaddexp": (jnp.logaddexp, (20 * drawn("jla", 5), 20 * drawn("jlb", 5))),
    "hypot": (lambda x, y: jnp.sqrt(x * x + y * y), (drawn("jh", 5), drawn("jhy", 5))),
    "arctan2": (jnp.arctan2, (drawn("ja", 5), drawn("jay", 5))),
    "gammaln": (special.gammaln, (uniform("jgl", 0.5, 9, 5),)),
    "digamma": (special.digamma, (uniform("jdg", 0.5, 9, 5),)),
    "erf": (special.erf, (drawn("jerf", 5),)),
    "erfc": (special.erfc, (drawn("jerf", 5) + 3,)),
    "ndtri": (special.ndtri, (uniform("jnd", 0.05, 0.95, 5),)),
    "log_ndtr": (special.log_ndtr, (3 * drawn("jln", 5),)),
    "i0e": (special.i0e, (drawn("ji0", 5),)),
    "xlogy": (special.xlogy, (uniform("jxa", 0.1, 1, 5), uniform("jxb", 0.1, 1, 5))),
    "betainc": (lambda x: special.betainc(2.5, 1.5, x), (uniform("jbi", 0.2, 0.8, 4),)),
    "sort": (jnp.sort, (drawn("jso", 6),)),
    "max": (lambda x: jnp.max(x, axis=-1), (drawn("jma", 3, 4),)),
    "cumprod": (jnp.cumprod, (drawn("jcp", 5),)),
    "cumsum": (lambda x: jnp.cumsum(x) ** 2, (drawn("jcs", 5),)),
    "where": (lambda x: jnp.where(x > 0, jnp.log1p(jnp.abs(x)), x * x), (drawn("jwh", 5),)),
    "interp": (lambda x: jnp.interp(x, jnp.arange(5, dtype=x.dtype), jnp.arange(5,
        dtype=x.dtype) ** 2), (uniform("jin", 0.1, 3.9, 5),)),
    "fft power": (lambda x: jnp.abs(jnp.fft.fft(x)) ** 2, (drawn("jff", 8),)),
    "huber": (lambda x: jnp.where(jnp.abs(x) < 1, 0.5 * x * x, jnp.abs(x) - 0.5), (2 * drawn("jhu",
        6),)),
    "x/x": (lambda x: x / x, (drawn("jxx", 4),)),
    "floor": (jnp.floor, (3 * drawn("jfl", 5),)),
}  # fmt: skip
HALF = {
    "bfloat16 matmul": (
        lambda a, b: (a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16)).astype(a.dtype),
        lambda a, b: a @ b, (drawn("jba", 3, 4), drawn("jbb", 4, 2)),
    ),
    "float16 tanh": (
        lambda x: jnp.tanh(x.astype(jnp.float16)).astype(x.dtype), jnp.tanh, (drawn("jht", 5),)
    ),
    "bfloat16 gelu": (
        lambda x: jax.nn.gelu(x.astype(jnp.bfloat16)).astype(x.dtype), jax.nn.gelu, (drawn("jbg",
            5),)
    ),
}  # fmt: skip
IN_SINGLE = (
    "tanh", "softmax", "log_softmax", "logsumexp", "gelu", "silu", "softplus", "standardize",
    "attention", "scan", "conv", "inv", "solve", "slogdet", "cholesky", "eigvalsh", "norm",
    "gammaln", "erf", "einsum",
)  # fmt: skip


def pairs() -> Iterator[Pair]:
    """All pairs of this file."""
    single = {f"{n} without x64": (*narrow(FUNCTIONS[n][0]), n) for n in IN_SINGLE}
    # mean(x²) − mean(x)²: in float32 JAX's own VJP is wrong
    return of_framework(KIND, FUNCTIONS, HALF, single, wide, ("standardize 1000",))
