"""Right derivatives of smooth functions, without a spec: `check` raises no false alarm."""

import numpy as np
import pytest

from gradcheck import check
from tests.functions import (
    attention,
    attention_vjp,
    layer_norm,
    layer_norm_vjp,
    logsumexp,
    logsumexp_vjp,
    rms_norm,
    rms_norm_vjp,
    softmax,
    softmax_vjp,
)
from tests.sizes import seeds

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


@pytest.mark.slow(keep=2, rest=5)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("those", seeds(30, few=4))
def test_no_right_gradient_is_doubted_at_any_seed(name, dtype, those):
    alarms = []
    for seed in those:
        forward, vjp, primals = drawn(name, seed, dtype)
        for full in (False, True):
            found = check(forward, vjp, *primals, seed=seed, full=full)
            alarms += [f"seed {seed}: {found}"] * (not found.ok)
    assert not alarms, f"{len(alarms)} of {len(those)} seeds\n" + "\n\n".join(alarms)


def missed_by(name, dtype, those, change):
    """The seeds at which `change` of the first gradient does not fail."""
    missed = []
    for seed in those:
        forward, vjp, primals = drawn(name, seed, dtype)

        def wrong(ct, *primals, vjp=vjp):
            out = vjp(ct, *primals)
            first, *rest = out if isinstance(out, tuple) else (out,)
            first = change(first, primals)
            return (first, *rest) if rest else first

        found = check(forward, wrong, *primals, seed=seed)
        missed += [f"seed {seed}: {found}"] * (found.findings[0].verdict != "fail")
    return missed


@pytest.mark.slow(keep=2, rest=4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("those", seeds(10, few=3))
def test_a_gradient_that_is_off_by_a_percent_is_always_found(name, dtype, those):
    assert not missed_by(name, dtype, those, lambda first, _: first * first.dtype.type(1.01))


@pytest.mark.slow(keep=1, rest=4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("those", seeds(10, few=1))
def test_noise_that_follows_the_arguments_gains_no_allowance(name, dtype, those):
    """Deterministic, but another error at every neighbouring point: no conditioning, just wrong."""

    def noisy(first, primals):
        key = int.from_bytes(b"".join(p.tobytes() for p in primals), "little")
        noise = np.random.default_rng(key).normal(size=first.shape)
        return first * (1 + 0.02 * noise).astype(first.dtype)

    assert not missed_by(name, dtype, those, noisy)
