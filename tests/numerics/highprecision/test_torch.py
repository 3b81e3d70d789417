"""Forwards that call PyTorch: what big numbers carry, and what they refuse and why."""

import mpmath
import numpy as np
import pytest

from gradcheck.numerics.highprecision.forward import BigForward
from gradcheck.numerics.highprecision.numbers import Leak, Unsupported
from tests.numerics.highprecision.frameworks import (
    BUDGET,
    SPD,
    M,
    compare,
    compare_elements,
    directed,
    refusal,
    slope_in_float32,
)

torch = pytest.importorskip("torch")
F = torch.nn.functional
linalg, special = torch.linalg, torch.special

# PyTorch's forward mode compiles by what PyTorch deprecates.
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]
V, B = M[0], M.reshape(2, 2, 4) * 1.5
IMAGE = np.random.default_rng(19).standard_normal((1, 2, 5, 4))
KERNEL = torch.from_numpy(np.random.default_rng(20).standard_normal((3, 2, 3, 2)))
OTHER = torch.from_numpy(M.T.copy())
CLASSES, TARGETS = torch.tensor([1, 0, 3, 1]), torch.tensor([1.0, 0.0, 1.0, 1.0]).double()


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def in_place(t):
    out = torch.empty_like(t)
    for i in range(len(t)):
        out[i] = t[i].sin() * 2
    out[1:3] += t[:2]
    out.view(2, 2)[0].mul_(out[3])
    return out


def buffer(t):
    out = zeros(4)
    out[0] = t[0] * t[1]
    out[1:3] = t[2:].exp()
    return out


def attention(t):
    return F.scaled_dot_product_attention(t, t, t.tanh(), is_causal=True)


DIFFERENTIATED = {
    "tanh": (torch.tanh, V), "softmax": (lambda t: F.softmax(t, -1), M),
    "log_softmax": (lambda t: F.log_softmax(t, 0), M), "logsumexp": (lambda t: t.logsumexp(1), M),
    "gelu": (F.gelu, V), "gelu tanh": (lambda t: F.gelu(t, approximate="tanh"), V),
    "silu": (F.silu, V), "softplus": (F.softplus, V), "elu": (F.elu, V), "mish": (F.mish, V),
    "leaky_relu": (F.leaky_relu, V), "hardswish": (F.hardswish, V), "glu": (F.glu, M),
    "logsigmoid": (F.logsigmoid, V), "layer_norm": (lambda t: F.layer_norm(t, (4,)), M),
    "rms_norm": (lambda t: F.rms_norm(t, (4,)), M),
    "group_norm": (lambda t: F.group_norm(t, 2), IMAGE),
    "batch_norm": (lambda t: F.batch_norm(t, None, None, training=True), IMAGE),
    "normalize": (lambda t: F.normalize(t, dim=-1), M),
    "linear": (lambda t: F.linear(t, OTHER, OTHER[0]), M),
    "matmul": (lambda t: t @ OTHER, M), "bmm": (lambda t: t @ t.transpose(-1, -2), B),
    "einsum": (lambda t: torch.einsum("bij,bkj->bik", t, t), B),
    "outer": (lambda t: torch.outer(t, t), V),
    "addmm": (lambda t: torch.addmm(t, t, OTHER, beta=0.5, alpha=2), M),
    "conv2d": (lambda t: F.conv2d(t, KERNEL, stride=(1, 2), padding=1), IMAGE),
    "grouped": (lambda t: F.conv2d(t, KERNEL[:2, :1], groups=2, dilation=2), IMAGE),
    "transposed": (
        lambda t: F.conv_transpose2d(t, KERNEL.transpose(0, 1), stride=2, output_padding=1),
        IMAGE,
    ),
    "max_pool": (lambda t: F.max_pool2d(t, 2, ceil_mode=True), IMAGE),
    "avg_pool": (lambda t: F.avg_pool2d(t, 3, 2, 1, count_include_pad=False), IMAGE),
    "adaptive": (lambda t: F.adaptive_avg_pool2d(t, 3), IMAGE),
    "interpolate": (lambda t: F.interpolate(t, scale_factor=2, mode="bilinear"), IMAGE),
    "embedding": (lambda t: F.embedding(CLASSES, t), M),
    "gather": (lambda t: t.gather(1, CLASSES[:, None]), M),
    "index": (lambda t: t[CLASSES, :2] * t[0, 0], M), "masked": (lambda t: t[t > 0] ** 2, V),
    "index_add": (lambda t: zeros(4, 4).index_add_(0, CLASSES, t), M),
    "scatter_add": (lambda t: zeros(4, 4).scatter_add(0, CLASSES[None].expand(4, 4), t), M),
    "accumulate": (lambda t: zeros(4).index_put_((CLASSES,), t, accumulate=True), V),
    "masked_fill": (lambda t: F.softmax(t.masked_fill(CLASSES == 1, -torch.inf), -1), M),
    "cross_entropy": (lambda t: F.cross_entropy(t, CLASSES, label_smoothing=0.1), M),
    "bce": (lambda t: F.binary_cross_entropy_with_logits(t, TARGETS), V),
    "huber": (lambda t: F.huber_loss(t, TARGETS), V), "mse": (lambda t: F.mse_loss(t, TARGETS), V),
    "kl_div": (
        lambda t: F.kl_div(F.log_softmax(t, 1), F.softmax(OTHER, 1), reduction="batchmean"),
        M,
    ),
    "cosine": (lambda t: F.cosine_similarity(t, t.flip(0)), M),
    "cumsum": (lambda t: t.cumsum(1), M),
    "logcumsumexp": (lambda t: torch.logcumsumexp(t, 0), V),
    "sort": (lambda t: t.sort(descending=True)[0], V),
    "topk": (lambda t: t.topk(2, 1).values, M), "median": (lambda t: t.median(), V),
    "max": (lambda t: t.max(1)[0], M),
    "std": (lambda t: t.std(), M),
    "norm": (lambda t: t.norm(3, dim=1), M),
    "prod": (lambda t: t.prod(1), M),
    "inverse": (linalg.inv, M),
    "solve": (lambda t: linalg.solve(t, OTHER), M),
    "logdet": (torch.logdet, SPD),
    "cholesky": (linalg.cholesky, SPD),
    "eigvalsh": (linalg.eigvalsh, SPD),
    "svdvals": (linalg.svdvals, M),
    "qr": (lambda t: linalg.qr(t)[1], M),
    "matrix_exp": (linalg.matrix_exp, M),
    "erfinv": (lambda t: torch.erfinv(t.tanh()), V),
    "lgamma": (lambda t: torch.lgamma(t**2 + 1), V),
    "i0e": (special.i0e, V),
    "log_ndtr": (special.log_ndtr, V),
    "xlogy": (lambda t: torch.xlogy(t**2, t**2 + 1), V),
    "power": (lambda t: t.abs() ** 1.7 + t**-3, V),
    "where": (lambda t: torch.where(t > 0, t, 0.1 * t), V),
    "clamp": (lambda t: t.clamp(-0.5, 0.5), V), "in place": (in_place, V), "buffer": (buffer, V),
    "views": (lambda t: t.view(2, 8)[:, ::2].t().reshape(-1)[:4] * t.diagonal(), M),
    "cat": (lambda t: torch.cat([t, t * 2], 1), M),
    "pad": (lambda t: F.pad(t, (1, 1), mode="reflect"), M),
    "roll": (lambda t: t.roll(1, 0) * t.tril(), M), "unfold": (lambda t: F.unfold(t, 2), IMAGE),
    "fft": (lambda t: torch.fft.rfft(t).abs(), V),
    "vmap": (torch.func.vmap(lambda r: F.softmax(r, 0) @ r), M),
    "grad": (torch.func.grad(lambda t: (t.sin() * t).sum()), V),
}  # fmt: skip
"""Forwards that PyTorch itself differentiates: (function of a tensor, primal)."""

# What PyTorch's own forward mode lacks; (module, primal), the truth by differences.
torch.manual_seed(18)
MODULES = {
    "perceptron": (
        torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU(), torch.nn.LayerNorm(3)),
        M,
    ),
    "convolutions": (
        torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.BatchNorm2d(3), torch.nn.ReLU()),
        IMAGE,
    ),
    "LSTM": (torch.nn.LSTM(4, 3), B), "GRU": (torch.nn.GRU(4, 3), B),
    "attention": (torch.nn.MultiheadAttention(4, 2), B[:1]),
    "transformer": (torch.nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0), B),
    "sdpa": (attention, B[None]), "bilinear": (torch.nn.Bilinear(4, 4, 2), M),
    "a branch": (lambda t: t.sin() if t.sum() > -99 else t, V),
    "stacked": (lambda t: torch.stack([v.sin() for v in t]), V),
}  # fmt: skip


def numpy_of(function):
    """A forward of NumPy's arrays, as a user of `check` writes it."""

    def forward(x):
        out = function(torch.from_numpy(x))
        return (out[0] if isinstance(out, tuple) else out).detach().numpy()

    return forward


def test_values_and_slopes_are_those_of_torch():
    assert len(DIFFERENTIATED) >= 60
    cases = {}
    for name, (function, x) in DIFFERENTIATED.items():
        d, forward = directed(name, x), numpy_of(function)
        pair = torch.from_numpy(x.copy()), torch.from_numpy(d)
        slope = torch.func.jvp(function, pair[:1], pair[1:])[1].numpy()
        cases[name] = forward, x, d, forward(x.copy()), slope
    compare(cases)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    function, x = MODULES[name]
    function = function.double() if isinstance(function, torch.nn.Module) else function
    plain = numpy_of(lambda t: function(t, t, t) if name == "attention" else function(t))
    plain = numpy_of(lambda t: function(t, t)) if name == "bilinear" else plain
    box, d = BigForward(plain, [x], {}, BUDGET), directed(name, x)
    np.testing.assert_allclose(box.outputs()[0], plain(x), 1e-11, 1e-12)
    central = (plain(x + 1e-5 * d) - plain(x - 1e-5 * d)) / 2e-5
    np.testing.assert_allclose(box.slopes([d]).ahead, central.reshape(-1), 1e-6, 1e-8)


ELEMENTS = {
    "tensor": (lambda x: torch.tensor(x).sin().numpy(), mpmath.sin),
    "requires_grad": (
        lambda x: torch.tensor(x, requires_grad=True).sin().detach().numpy(),
        mpmath.sin,
    ),
    "np.asarray": (lambda x: np.asarray(torch.as_tensor(x).tanh()), mpmath.tanh),
    "in turn": (
        lambda x: np.exp(torch.from_numpy(np.sin(x)).cos().numpy()),
        lambda t: mpmath.exp(mpmath.cos(mpmath.sin(t))),
    ),
    "hardsigmoid": (lambda x: F.hardsigmoid(torch.from_numpy(x)).numpy(), lambda t: (t + 3) / 6),
    "floats": (lambda x: [float(v.sin()) for v in torch.from_numpy(x)], mpmath.sin),
    "digamma": (
        lambda x: torch.digamma(torch.from_numpy(x) ** 2).numpy(),
        lambda t: mpmath.digamma(t * t),
    ),
}  # fmt: skip
"""Forwards of each element, and the same in mpmath."""


@pytest.mark.parametrize("name", ELEMENTS)
def test_sixty_digit_values(name):
    compare_elements(*ELEMENTS[name], V)


def test_one_sided_slopes_at_a_kink():
    box = BigForward(numpy_of(F.relu), [np.zeros(2)], {}, BUDGET)
    slopes = box.slopes([np.array([1.0, -2.0])])
    assert (slopes.behind.tolist(), slopes.ahead.tolist()) == ([0.0, -2.0], [1.0, 0.0])


def test_float32_all_through_is_no_leak():
    np.testing.assert_allclose(*slope_in_float32(numpy_of(lambda t: t.tanh().sum()), V))


def autocast(t):
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(t[None], OTHER[:1])[0].double()


OUTSIDE = torch.zeros(4, dtype=torch.float64)
LEAKS = {
    "float16 (to_copy)": lambda t: t.half().double(),
    "bfloat16 (to_copy)": lambda t: t.to(torch.bfloat16) * 2,
    "float32 (to_copy)": lambda t: t.float().sin().double(),
    "float32 (mul)": lambda t: t.sum() * torch.ones(3),
    "float32 (copy)": lambda t: torch.zeros(4).copy_(t),
    "float of a number (item)": lambda t: t * t.sum().item(),
    "floats of numbers (tolist)": lambda t: torch.tensor(t.tolist()).double(),
    "tensor of its own, of float64 (copy_)": lambda t: OUTSIDE.copy_(t) * 2,
}  # fmt: skip


@pytest.mark.parametrize("reason", LEAKS)
def test_leaks_are_refused_with_their_reason(reason):
    text = refusal(numpy_of(LEAKS[reason]), V)
    assert reason in text
    assert "test_torch.py" in text


def test_autocast_is_refused():
    with pytest.raises(Leak, match="bfloat16"):
        BigForward(numpy_of(autocast), [V.astype(np.float32)], {}, BUDGET).outputs()


def test_an_unknown_operator_is_named():
    with pytest.raises(Unsupported, match="PyTorch's linalg_eig is not known"):
        BigForward(numpy_of(lambda t: linalg.eigvals(t).abs()), [M], {}, BUDGET).outputs()


def test_nothing_stays_behind():
    with pytest.raises(Leak):
        BigForward(numpy_of(LEAKS["bfloat16 (to_copy)"]), [V], {}, BUDGET).outputs()
    assert type(torch.from_numpy(V)) is torch.Tensor
    assert torch.tensor([1.0]).dtype == torch.float32
    assert OUTSIDE.tolist() == [0.0] * 4
