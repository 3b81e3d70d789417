"""Narrow types, differences, cancellation, underflow: and formulas are none of it."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.precision import short
from tests.explain.scenes import changed, named, only, right, spoiled, table


def bfloat16(g):
    return short(np.asarray(g, dtype=np.float64), 8)


def to(kind):
    return lambda g: g.astype(kind)


def cancelling(ct, x, *, ddof=0, **attrs):
    far = (x + 3e5).astype(np.float32).astype(x.dtype)
    centred = far - far.mean(-1, keepdims=True)
    return np.expand_dims(ct, -1) * 2 * centred / (x.shape[-1] - ddof)


def smaller_eps(ct, x, *rest, eps=1e-5, **attrs):
    return right("layer_norm", ct, x, *rest, eps=eps / 3, **attrs)


test_rounding_is_named = table(
    [
        ("precision", "silu", "x", changed("silu", x=to(np.float16)), "O", "rounded to float16"),
        ("precision", "tanh", "x", changed("tanh", x=to(np.float32)), "O", "rounded to float32"),
        ("precision", "rms_norm", "x", changed("rms_norm", x=bfloat16), "O", "rounded to bfloat16"),
        ("precision", "softmax", "x", changed("softmax", x=lambda g: short(g, 4)), "O",
         "rounded to four significant bits"),
        ("precision", "matmul", "w", changed("matmul", w=to(np.float16)), "O",
         "rounded to float16"),
        ("precision", "gelu", "x", changed("gelu", x=to(np.float16)), "O", "float16",
         {"dtype": "float32"}),
        ("precision", "sqr", "x", changed("sqr", x=lambda g: g * float(np.float32(0.1)) * 10), "O",
         "a constant is rounded to float32"),
        ("precision", "variance", "x", cancelling, "O", "error of rounding"),
        ("precision", "layer_norm", "x", smaller_eps, "", ""),
    ],
    keep=5,
)  # fmt: skip


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("step", [1e-2, 2.0**-8])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (1, 0), (0, 1)])
def test_a_difference_of_forward_is_told_with_its_step(step, up, down):
    def vjp(ct, x):
        return ct * (np.exp(x + up * step) - np.exp(x - down * step)) / ((up + down) * step)

    found = named("exp", vjp, "x", only("precision"))
    assert found.label == "O"
    assert f"difference with a step of {step:.3g}" in found.says


def test_short_rounds_to_nearest_at_any_exponent():
    values = np.array([1.0, 1.03125, 3e-30, 0.0, -7.3e20])
    assert np.array_equal(short(values, 24).astype(np.float32), values.astype(np.float32))
    assert short(np.array([1.0625]), 4)[0] == 1.0
    assert short(np.array([1.1875]), 4)[0] == 1.25


def tanh_slope(change):
    return lambda ct, x: ct * change(1 - np.tanh(x) ** 2)


def overflowing(g, ct, p, a):
    with np.errstate(all="ignore"):
        return np.where(np.isinf(p["y"] * p["y"]), 0, g)


test_what_is_flushed_is_named_with_its_thresholds = table(
    [
        ("flushed", "exp", "x", changed("exp", x=lambda g: np.where(np.abs(g) < 1e-6, 0.0, g)), "O",
         "dx is flushed to 0 where it is tiny",
         {"sample": "tail", "evidence": "the largest lost is"}),
        # a slope that is flushed is a formula
        ("flushed", "tanh", "x", tanh_slope(lambda s: np.where(s < 1e-5, 0.0, s)), "D", "tiny",
         {"sample": "saturated"}),
        ("flushed", "tanh", "x", tanh_slope(lambda s: np.maximum(s, 1e-6)), "O",
         "dx is cut off 1e-06 of the cotangent before 0", {"sample": "saturated"}),
        ("flushed", "div", "y", spoiled("div", "y", overflowing), "O",
         "an intermediate overflows", {"sample": "huge", "dtype": "float32"}),
    ]
)  # fmt: skip
