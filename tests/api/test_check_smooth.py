"""Right derivatives of smooth functions, without a spec: `check` raises no false alarm."""

import numpy as np
import pytest

from gradcheck import check
from tests.sizes import seeds


def rms_norm(x, w):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * w


def rms_norm_vjp(ct, x, w):
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    n, g = x * r, ct * w
    return r * (g - n * np.mean(g * n, axis=-1, keepdims=True)), (ct * n).sum(axis=0)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_pullback(ct, y):
    return y * (ct - (y * ct).sum(axis=-1, keepdims=True))


def softmax_vjp(ct, x):
    return softmax_pullback(ct, softmax(x))


def normalised(x):
    c = x - x.mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5)
    return c * r, r


def layer_norm(x, w, b):
    return normalised(x)[0] * w + b


def layer_norm_vjp(ct, x, w, b):
    n, r = normalised(x)
    g = ct * w
    centred = g - g.mean(axis=-1, keepdims=True)
    dx = r * (centred - n * (g * n).mean(axis=-1, keepdims=True))
    return dx, (ct * n).sum(axis=0), ct.sum(axis=0)


def logsumexp(x):
    top = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=-1)) + top[..., 0]


def logsumexp_vjp(ct, x):
    return ct[..., None] * softmax(x)


def attention(q, k, v):
    return softmax(q @ k.T / q.dtype.type(q.shape[-1] ** 0.5)) @ v


def attention_vjp(ct, q, k, v):
    scale = q.dtype.type(q.shape[-1] ** 0.5)
    a = softmax(q @ k.T / scale)
    ds = softmax_pullback(ct @ v.T, a) / scale
    return ds @ k, ds.T @ q, a.T @ ct


# name: forward, vjp, mean and spread of the first primal, shapes
SMOOTH = {
    "rms_norm": (rms_norm, rms_norm_vjp, (0, 1), [(3, 16), (16,)]),
    "softmax": (softmax, softmax_vjp, (0, 1), [(3, 16)]),
    "softmax of N(0, 10)": (softmax, softmax_vjp, (0, 10), [(3, 16)]),
    "softmax at 1000": (softmax, softmax_vjp, (1000, 3), [(3, 16)]),
    "layer_norm": (layer_norm, layer_norm_vjp, (0, 1), [(3, 16), (16,), (16,)]),
    "layer_norm at 1000": (layer_norm, layer_norm_vjp, (1000, 1), [(3, 16), (16,), (16,)]),
    "logsumexp": (logsumexp, logsumexp_vjp, (0, 1), [(3, 16)]),
    "attention": (attention, attention_vjp, (0, 1), [(4, 8), (5, 8), (5, 8)]),
}


def drawn(name, seed, dtype):
    forward, vjp, (mean, spread), shapes = SMOOTH[name]
    rng = np.random.default_rng(seed)
    primals = [rng.normal(size=shape) for shape in shapes]
    primals[0] = mean + spread * primals[0]
    return forward, vjp, [p.astype(dtype) for p in primals]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("those", seeds(30, few=10))
def test_no_right_gradient_is_doubted_at_any_seed(name, dtype, those):
    alarms = []
    for seed in those:
        forward, vjp, primals = drawn(name, seed, dtype)
        for full in (False, True):
            found = check(forward, vjp, *primals, seed=seed, full=full)
            alarms += [f"seed {seed}: {found}"] * (not found.ok)
    assert not alarms, f"{len(alarms)} of {len(those)} seeds\n" + "\n\n".join(alarms)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("those", seeds(10, few=3))
def test_a_gradient_that_is_off_by_a_percent_is_always_found(name, dtype, those):
    missed = []
    for seed in those:
        forward, vjp, primals = drawn(name, seed, dtype)

        def wrong(ct, *primals, vjp=vjp):
            out = vjp(ct, *primals)
            first, *rest = out if isinstance(out, tuple) else (out,)
            first = first * first.dtype.type(1.01)
            return (first, *rest) if rest else first

        found = check(forward, wrong, *primals, seed=seed)
        missed += [f"seed {seed}: {found}"] * (found.findings[0].verdict != "fail")
    assert not missed, f"{len(missed)} of {len(those)} seeds\n" + "\n\n".join(missed)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("those", seeds(10, few=2))
def test_noise_that_follows_the_arguments_gains_no_allowance(name, dtype, those):
    """Deterministic, but another error at every neighbouring point: no conditioning, just wrong."""
    missed = []
    for seed in those:
        forward, vjp, primals = drawn(name, seed, dtype)

        def noisy(ct, *primals, vjp=vjp):
            key = int.from_bytes(b"".join(p.tobytes() for p in primals), "little")
            rng = np.random.default_rng(key)
            out = vjp(ct, *primals)
            first, *rest = out if isinstance(out, tuple) else (out,)
            first = first * (1 + 0.02 * rng.normal(size=first.shape)).astype(first.dtype)
            return (first, *rest) if rest else first

        found = check(forward, noisy, *primals, seed=seed)
        missed += [f"seed {seed}: {found}"] * (found.findings[0].verdict != "fail")
    assert not missed, f"{len(missed)} of {len(those)} seeds\n" + "\n\n".join(missed)
