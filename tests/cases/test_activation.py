import numpy as np
import pytest
from gradcheck_cases.activation import (
    clamp,
    dropout,
    elu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    mish,
    relu,
    relu_squared,
    softplus,
)

from gradcheck.numerics.arithmetic import F32, F64


def slope(spec, x, **attrs):
    """The derivative at the points `x`."""
    return spec.vjp(F64, np.ones(np.shape(x)), np.asarray(x), **attrs)


# ── what happens on a kink ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "spec", [relu, leaky_relu, elu, clamp, softplus, hardswish, hardsigmoid, relu_squared]
)
def test_a_convention_lies_in_the_interval_and_its_system_is_named_once(spec):
    for kink in spec.kinks:
        low, high = kink.slopes(spec.defaults)
        systems = [name for c in kink.conventions for name in c.systems]
        assert len(set(systems)) == len(systems)
        assert "PyTorch" in systems
        for c in kink.conventions:
            assert low <= (c.slope(**spec.defaults) if callable(c.slope) else c.slope) <= high


# ── values that are published, and identities ───────────────────────────────────────────────


def test_the_slope_of_mish_at_zero_and_its_minimum():
    assert slope(mish, [0.0]) == pytest.approx(0.6)  # tanh(log 2)
    assert abs(slope(mish, [-1.1924312145154952]).item()) < 1e-12
    y = mish.forward(F64, np.array([-1.1924312145154952]))
    assert y.item() == pytest.approx(-0.30884, abs=5e-6)  # as the paper says


# ── dropout ──────────────────────────────────────────────────────────────────────────────────


def test_dropout_keeps_the_mean_over_all_masks():
    x, p = np.array([2.0, -3.0]), 0.25
    masks = np.array([[a, b] for a in (0, 1) for b in (0, 1)])
    chance = np.where(masks, 1 - p, p).prod(axis=-1)
    mean = sum(c * dropout.forward(F64, x, m, p=p) for c, m in zip(chance, masks, strict=True))
    np.testing.assert_allclose(mean, x, rtol=1e-15)
    plain = dropout.forward(F64, x, masks[3], p=p, inverted=False)
    assert plain.tolist() == x.tolist()


def test_dropout_of_float32_stays_float32_whatever_its_mask_is():
    x = np.ones(3, dtype=np.float32)
    mask = np.array([1, 0, 1], dtype=np.int64)
    assert dropout.forward(F32, x, mask).dtype == np.float32
    assert dropout.vjp(F32, x, x, mask)[0].dtype == np.float32


# ── defects of others that the samples show ──────────────────────────────────────────────────


@pytest.mark.frameworks
def test_pytorchs_hardsigmoid_rounds_a_sixth_to_float32_for_float64_too():
    torch = pytest.importorskip("torch")
    leaf = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.hardsigmoid(leaf).backward()
    if leaf.grad.item() == 1 / 6:
        pytest.skip("this PyTorch has it right")
    assert leaf.grad.item() == float(np.float32(1 / 6))
    assert abs(6 * leaf.grad.item() - 1) > 2e-8
