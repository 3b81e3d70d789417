"""PyTorch functions with NumPy in and out, and the VJP that autograd gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it

from .pair import Pair, drawn, of_framework, uniform

KIND = "torch"
torch.set_num_threads(1)


def tensors(primals: tuple[Any, ...]) -> list[Any]:
    """Tensors with own memory; floating ones track gradients."""
    made = [torch.tensor(np.asarray(p)) for p in primals]
    return [t.requires_grad_() if t.is_floating_point() else t for t in made]


def both(f: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward and VJP of a function of tensors."""

    def forward(*primals):
        with torch.no_grad():
            return f(*tensors(primals)).numpy()

    def vjp(ct, *primals):
        given = tensors(primals)
        y = f(*given)
        y.backward(torch.tensor(np.asarray(ct)).to(y.dtype))
        got = [
            np.zeros(t.shape, p.dtype) if t.grad is None else t.grad.numpy()
            for t, p in zip(given, primals, strict=True)
        ]
        return tuple(got) if len(got) > 1 else got[0]

    return forward, vjp


def definite(x):
    return x @ x.T + torch.eye(len(x), dtype=x.dtype)


def gru(x, w, u):
    h = torch.zeros(3, dtype=x.dtype)
    for t in range(len(x)):
        z, r, n = (x[t] @ w).chunk(3)
        a, b, c = (h @ u).chunk(3)
        z, r = torch.sigmoid(z + a), torch.sigmoid(r + b)
        h = (1 - z) * torch.tanh(n + r * c) + z * h
    return h


FUNCTIONS = {
    "tanh": (torch.tanh, (drawn("tt", 5),)),
    "softmax": (lambda x: F.softmax(x, -1), (drawn("ts", 3, 4),)),
    "softmax 1000": (lambda x: F.softmax(x, -1), (1000 + drawn("ts", 3, 4),)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (10 * drawn("tl", 3, 4),)),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), (drawn("tlse", 3, 4),)),
    "logsumexp margin": (lambda x: torch.logsumexp(x, -1), (drawn("tlse", 3, 4) + np.array([30, 0,
        0, 0]),)),
    "gelu": (F.gelu, (drawn("tg", 5),)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (drawn("tgt", 5),)),
    "silu": (F.silu, (3 * drawn("tsi", 5),)),
    "mish": (F.mish, (3 * drawn("tm", 5),)),
    "softplus": (F.softplus, (5 * drawn("tsp", 5),)),
    "relu": (F.relu, (drawn("tr", 6),)),
    "relu on the kink": (F.relu, (drawn("tr", 6) * np.array([1, 0, 1, 1, 0, 1]),)),
    "hardswish": (F.hardswish, (3 * drawn("thw", 6),)),
    "celu": (F.celu, (drawn("tce", 6),)),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), (drawn("tln", 3, 6),)),
    "layer_norm 1000": (lambda x: F.layer_norm(x, x.shape[-1:]), (1000 + drawn("tln", 3, 6),)),
    "group_norm": (lambda x: F.group_norm(x, 2), (drawn("tgn", 2, 4, 3),)),
    "attention": (F.scaled_dot_product_attention,
                  (drawn("tq", 1, 3, 4), drawn("tk", 1, 5, 4), drawn("tv", 1, 5, 4))),
    "gru": (gru, (drawn("tx", 5, 2), drawn("tw", 2, 9), drawn("tu", 3, 9))),
    "conv2d": (lambda x, k: F.conv2d(x, k, padding=1), (drawn("tcx", 1, 2, 4, 4), drawn("tck", 2,
        2, 3, 3))),
    "conv transpose": (F.conv_transpose2d, (drawn("tctx", 1, 2, 3, 3),
        drawn("tctk", 2, 2, 2, 2))),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (drawn("tmp", 1, 1, 4, 4),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (drawn("tap", 1, 1, 4, 4),)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (drawn("tin", 1,
        1, 3, 3),)),
    "inv": (torch.linalg.inv, (drawn("ti", 4, 4),)),
    "solve": (torch.linalg.solve, (drawn("tsa", 4, 4), drawn("tsb", 4))),
    "slogdet": (lambda a: torch.linalg.slogdet(a)[1], (drawn("tsl", 4, 4),)),
    "det": (torch.linalg.det, (drawn("td", 4, 4),)),
    "cholesky": (lambda x: torch.linalg.cholesky(definite(x)), (drawn("tc", 4, 4),)),
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(definite(x)), (drawn("te", 4, 4),)),
    "svdvals": (torch.linalg.svdvals, (drawn("tsv", 4, 3),)),
    "qr": (lambda x: torch.linalg.qr(x)[1], (drawn("tqr", 4, 3),)),
    "pinv": (torch.linalg.pinv, (drawn("tpi", 4, 3),)),
    "matrix_exp": (torch.matrix_exp, (drawn("tme", 3, 3),)),
    "norm": (torch.linalg.norm, (drawn("tno", 5),)),
    "cdist": (torch.cdist, (drawn("tca", 3, 2), drawn("tcb", 4, 2))),
    "cosine": (lambda a, b: F.cosine_similarity(a, b, -1), (drawn("tcoa", 3, 4), drawn("tcob", 3,
        4))),
    "normalize": (lambda x: F.normalize(x, dim=-1), (drawn("tnz", 3, 4),)),
    "bce with logits": (F.binary_cross_entropy_with_logits, (9 * drawn("tb", 5), uniform("tby",
        0.1, 0.9, 5))),
    "smooth l1": (F.smooth_l1_loss, (2 * drawn("tsl1", 6), drawn("tsl2", 6))),
    "kl_div": (lambda p, q: F.kl_div(p.log(), q, reduction="batchmean"), (uniform("tkp", 0.1, 1, 3,
        4), uniform("tkq", 0.1, 1, 3, 4))),
    "gaussian nll": (F.gaussian_nll_loss, (drawn("tga", 5), drawn("tgb", 5), uniform("tgc", 0.1, 2,
        5))),
    "lgamma": (torch.lgamma, (uniform("tgl", 0.5, 9, 5),)),
    "digamma": (torch.digamma, (uniform("tdg", 0.5, 9, 5),)),
    "erf": (torch.erf, (drawn("terf", 5),)),
    "erfinv": (torch.erfinv, (uniform("tei", -0.9, 0.9, 5),)),
    "i0e": (torch.special.i0e, (drawn("ti0", 5),)),
    "log_ndtr": (torch.special.log_ndtr, (3 * drawn("tnd", 5),)),
    "xlogy": (torch.xlogy, (uniform("txa", 0.1, 1, 5), uniform("txb", 0.1, 1, 5))),
    "sinc": (torch.sinc, (drawn("tsinc", 5),)),
    "sort": (lambda x: torch.sort(x)[0], (drawn("tso", 6),)),
    "amax": (lambda x: torch.amax(x, -1), (drawn("tam", 3, 4),)),
    "cumprod": (lambda x: torch.cumprod(x, 0), (drawn("tcp", 5),)),
    "prod": (torch.prod, (drawn("tpr", 5),)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 0), (5 * drawn("tlc", 6),)),
    "std": (torch.std, (drawn("tst", 6),)),
    "fft power": (lambda x: torch.fft.fft(x).abs() ** 2, (drawn("tff", 8),)),
    "embedding bag": (lambda w: w[torch.tensor([0, 2, 2, 1])].sum(0), (drawn("tem", 4, 3),)),
    "clamp": (lambda x: torch.clamp(x, -1, 1), (2 * drawn("tcl", 6),)),
    "x/x": (lambda x: x / x, (drawn("txx", 4),)),
    "floor": (torch.floor, (3 * drawn("tfl", 5),)),
}  # fmt: skip
LOW = {
    "float16 tanh": (lambda x: torch.tanh(x.half()).to(x.dtype), torch.tanh, (drawn("tht", 5),)),
    "bfloat16 matmul": (lambda a, b: (a.bfloat16() @ b.bfloat16()).to(a.dtype), torch.matmul,
                        (drawn("tba", 3, 4), drawn("tbb", 4, 2))),
    "bfloat16 softmax": (lambda x: F.softmax(x.bfloat16(), -1).to(x.dtype), lambda x: F.softmax(x,
        -1),
                         (drawn("tbs", 3, 4),)),
    "float16 layer_norm": (lambda x: F.layer_norm(x.half(), x.shape[-1:]).to(x.dtype),
                           lambda x: F.layer_norm(x, x.shape[-1:]), (drawn("thl", 3, 6),)),
    "int8 weights": (lambda w: torch.ones(4).to(w) @ torch.round(w * 127) / 127,
                     lambda w: w.sum(0), (uniform("tiw", -1, 1, 4, 2),)),
}  # fmt: skip
IN_SINGLE = (
    "tanh", "softmax", "gelu", "layer_norm", "attention", "inv", "cholesky", "logsumexp", "conv2d",
    "gru",
)  # fmt: skip


def narrow(f: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward and VJP of a function of tensors, computed in float32."""
    return both(lambda *ts: f(*[t.float() for t in ts]).double())


def pairs() -> Iterator[Pair]:
    """All pairs of this file."""
    single = {f"{n} in float32": (*narrow(FUNCTIONS[n][0]), n) for n in IN_SINGLE}
    return of_framework(KIND, FUNCTIONS, LOW, single, both)
