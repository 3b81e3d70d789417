"""`check` in float16 and bfloat16: what careful kernels do passes, what loses more does not."""

from functools import wraps

import ml_dtypes
import numpy as np
import pytest

from gradcheck import Slack, check
from gradcheck.errors import UsageError
from tests.functions import (
    attention,
    attention_vjp,
    gelu,
    gelu_vjp,
    layer_norm,
    layer_norm_vjp,
    logsumexp,
    rms_norm,
    rms_norm_vjp,
    softmax,
    softmax_vjp,
)

LOW = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
IDS = ["float16", "bfloat16"]


def careful(function):
    """As a kernel does it: float32 inside where arrays are narrower, rounded once at the end."""

    @wraps(function)
    def kernel(*arrays):
        kind = arrays[0].dtype
        inside = kind if kind in (np.float64, np.float32) else np.dtype(np.float32)
        made = function(*(a.astype(inside) for a in arrays))
        parts = made if isinstance(made, tuple) else (made,)
        out = tuple(np.asarray(part).astype(kind) for part in parts)
        return out if isinstance(made, tuple) else out[0]

    return kernel


def silu_vjp(ct, x):
    s = 1 / (1 + np.exp(-x))
    return ct * s * (1 + x * (1 - s))


TARGETS = np.arange(6) % 5


def cross_entropy(x):
    shifted = x - x.max(-1, keepdims=True)
    picked = shifted[np.arange(len(x)), TARGETS[: len(x)]]
    return (np.log(np.exp(shifted).sum(-1)) - picked).mean()


def cross_entropy_vjp(ct, x):
    p = softmax(x)
    p[np.arange(len(x)), TARGETS[: len(x)]] -= 1
    return ct * p / len(x)


def conv1d(x, w):
    return sum(x[:, k : x.shape[1] - w.size + 1 + k] * w[k] for k in range(w.size))


def conv1d_vjp(ct, x, w):
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for k in range(w.size):
        dx[:, k : k + ct.shape[1]] += ct * w[k]
        dw[k] = (ct * x[:, k : k + ct.shape[1]]).sum()
    return dx, dw


OPERATORS = {
    "matmul": (lambda a, b: a @ b, lambda ct, a, b: (ct @ b.T, a.T @ ct), [(6, 32), (32, 8)]),
    "softmax": (softmax, softmax_vjp, [(6, 9)]),
    "layer_norm": (layer_norm, layer_norm_vjp, [(6, 16), (16,), (16,)]),
    "rms_norm": (rms_norm, rms_norm_vjp, [(6, 16), (16,)]),
    "gelu": (gelu, gelu_vjp, [(8, 12)]),
    "silu": (lambda x: x / (1 + np.exp(-x)), silu_vjp, [(8, 12)]),
    "tanh": (np.tanh, lambda ct, x: ct * (1 - np.tanh(x) ** 2), [(8, 12)]),
    "attention": (attention, attention_vjp, [(5, 4), (6, 4), (6, 4)]),
    "cross_entropy": (cross_entropy, cross_entropy_vjp, [(6, 5)]),
    "mul": (lambda a, b: a * b, lambda ct, a, b: (ct * b, ct * a), [(8, 12), (8, 12)]),
    "sum": (lambda x: x.sum(-1), lambda ct, x: np.repeat(ct[:, None], x.shape[1], 1), [(3, 256)]),
    "conv1d": (conv1d, conv1d_vjp, [(3, 24), (5,)]),
    "logsumexp": (logsumexp, lambda ct, x: ct[:, None] * softmax(x), [(6, 9)]),
    "relu": (lambda x: np.maximum(x, 0), lambda ct, x: ct * (x > 0), [(8, 12)]),
}


def primals(name, kind):
    rng = np.random.default_rng([ord(c) for c in name])
    return [rng.standard_normal(shape).astype(kind) for shape in OPERATORS[name][2]]


def said(name, kind, change=lambda gradients: gradients, where=None):
    """What is said of the operator's VJP after `change` of its gradients, in float32 or wider."""
    forward, vjp, _ = OPERATORS[name]

    def changed(*arrays):
        made = vjp(*arrays)
        return change(made) if isinstance(made, tuple) else change((made,))[0]

    return check(careful(forward), careful(changed), *(where or primals(name, kind)))


@pytest.mark.slow(keep=9)
@pytest.mark.parametrize("kind", LOW, ids=IDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_float32_inside_and_one_rounding_pass(name, kind):
    found = said(name, kind)
    assert found.ok, str(found)
    assert found.dtype == kind.name


def first(change):
    return lambda gradients: (change(gradients[0]), *gradients[1:])


def one_element(gradient):
    out = gradient.copy()
    out.reshape(-1)[np.argmax(np.abs(out))] *= 1.02
    return out


def zero_row(gradient):
    out = gradient.copy()
    out[1] = 0
    return out


@pytest.mark.slow(keep=9, rest=19)
@pytest.mark.parametrize("kind", LOW, ids=IDS)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    "change",
    [lambda g: 1.05 * g, zero_row],
    ids=["5%", "a row of zeros"],
)
def test_wrong_gradients_fail(name, kind, change):
    found = said(name, kind, first(change))
    assert found.verdict.value == "fail", str(found)


@pytest.mark.slow(keep=9, rest=19)
@pytest.mark.parametrize("kind", LOW, ids=IDS)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("change", [lambda g: 1.02 * g, one_element], ids=["2%", "one element"])
def test_two_percent_do_not_pass(name, kind, change):
    assert not said(name, kind, first(change)).ok


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", LOW, ids=IDS)
def test_a_dropped_term_and_what_is_no_number_fail(kind):
    x = primals("softmax", kind)
    wrong = careful(lambda ct, x: ct * softmax(x))
    assert check(careful(softmax), wrong, *x, explain=False).verdict.value == "fail"
    assert said("softmax", kind, first(lambda g: g * np.nan)).verdict.value == "fail"
    wide = check(
        careful(softmax), lambda ct, x: softmax_vjp(*(a.astype("f4") for a in (ct, x))), *x
    )
    assert "float32" in str(wide)
    assert not wide.ok


def truncated(function):
    """The bits of a right float32 result cut off, as a cast by shifting does."""

    def kernel(ct, *arrays):
        kind = ct.dtype
        made = careful(function)(*(a.astype(np.float32) for a in (ct, *arrays)))
        out = []
        for part in made if isinstance(made, tuple) else (made,):
            near = np.asarray(part).astype(kind)
            beyond = np.abs(near.astype(np.float32)) > np.abs(part)
            out.append((near.view(np.uint16) - beyond).astype(np.uint16).view(kind))
        return tuple(out) if isinstance(made, tuple) else out[0]

    return kernel


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", LOW, ids=IDS)
@pytest.mark.parametrize("name", ["mul", "gelu", "matmul", "softmax"])
def test_truncation_in_place_of_rounding_does_not_pass(name, kind):
    forward, vjp, _ = OPERATORS[name]
    found = check(careful(forward), truncated(vjp), *primals(name, kind))
    assert not found.ok
    assert "lean" in str(found) or found.verdict.value == "fail"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", LOW, ids=IDS)
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["one sign", "both signs"])
def test_a_sum_of_512_terms_kept_in_16_bits_does_not_pass(kind, sign):
    def forward(x, w):
        return x * w

    def vjp(ct, x, w):
        total, terms = np.zeros_like(w), ct * x
        for row in terms:
            total = (total + row).astype(terms.dtype)
        return ct * w, total

    rng = np.random.default_rng(7)
    x = rng.uniform(0.5, 1.5, (512, 8)) * np.where(rng.random((512, 8)) < 0.5, sign, 1.0)
    arrays = [x.astype(kind), rng.uniform(0.5, 1.5, 8).astype(kind)]
    assert not check(forward, vjp, *arrays, explain=False).ok
    right = careful(lambda ct, x, w: (ct * w, (ct * x).sum(0)))
    assert check(careful(forward), right, *arrays).ok


@pytest.mark.parametrize("kind", LOW, ids=IDS)
def test_where_no_wider_forward_shows_the_truth_it_is_said_why(kind):
    x = np.linspace(-2, 2, 9).astype(kind)
    right = careful(lambda ct, x: 2 * x * ct)

    def said_of(forward):
        found = check(forward, right, x)
        assert found.verdict.value == "inconclusive"
        return found.findings[0].reason

    assert f"returns {kind.name}" in said_of(lambda x: (x * x).astype(kind))
    assert "rounds its values" in said_of(lambda x: (x * x).astype(kind).astype(x.dtype))
    assert "is another function" in said_of(lambda x: x * x * (1 + (x.dtype.itemsize > 2)))

    def picky(x):
        if x.dtype != kind:
            raise TypeError(f"{kind.name} alone")
        return x * x

    assert f"raised TypeError: {kind.name} alone" in said_of(picky)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", LOW, ids=IDS)
def test_a_forward_that_keeps_float32_inside_is_differenced_in_float32(kind):
    def forward(x):
        return np.tanh(x.astype(np.float32)).astype(x.dtype)

    def vjp(ct, x, scale=1.0):
        y = np.tanh(x.astype(np.float32))
        return (scale * ct.astype(np.float32) * (1 - y * y)).astype(x.dtype)

    x = np.linspace(-1.5, 1.5, 40).astype(kind)
    assert check(forward, vjp, x).ok
    assert not check(forward, lambda ct, x: vjp(ct, x, 1.05), x, explain=False).ok


def test_dtypes_are_not_mixed_and_what_is_not_judged_in_16_bits_is_refused():
    x = np.ones(3, np.float16)
    square, vjp = lambda x: x * x, lambda ct, x: 2 * x * ct
    with pytest.raises(UsageError, match="mix float16 and float32: give them one dtype"):
        check(lambda x, y: x * y, lambda ct, x, y: (ct * y, ct * x), x, x.astype(np.float32))
    with pytest.raises(UsageError, match="judged in float64 and float32, not in float16"):
        check(square, vjp, x, order=2)
    with pytest.raises(UsageError, match="judged in float64 and float32, not in float16"):
        check(square, vjp, x, jvp=lambda u, x: 2 * x * u)
    with pytest.raises(UsageError, match="the bfloat16 of ml_dtypes"):
        check(square, vjp, x.astype(ml_dtypes.float8_e4m3fn))


# ── a wider bound ────────────────────────────────────────────────────────────────────────────


def test_a_wider_bound_with_a_reason_passes_a_kernel_that_truncates():
    @wraps(np.tanh)
    def forward(x):
        inside = np.float32 if x.dtype == np.float16 else x.dtype
        return np.tanh(x.astype(inside)).astype(x.dtype)

    def vjp(ct, x):
        if x.dtype != np.float16:
            return ct * (1 - np.tanh(x) ** 2)
        ct, x = ct.astype(np.float32), x.astype(np.float32)
        g = ct * (1 - np.tanh(x) ** 2)
        out = g.astype(np.float16)
        longer = np.abs(out.astype(np.float32)) > np.abs(g)
        return np.where(longer, np.nextafter(out, np.float16(0)), out)

    def wrong(ct, x):
        return (vjp(ct, x).astype(np.float64) * 1.05).astype(x.dtype)

    x = np.linspace(-2, 2, 64).astype(np.float16)
    wider = Slack(ulp=2, because="the unit truncates")
    assert not check(forward, vjp, x)
    found = check(forward, vjp, x, wider=wider)
    assert (found.ok, found.findings[0].slack) == (
        True,
        "by a tolerance 2 ulp wider: the unit truncates",
    )
    assert not check(forward, wrong, x, wider=wider)
