"""Precision: narrow types, differences, cancellation; and formulas are none of it."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.precision import short
from tests.explain.scenes import changed, named, only, right

PRECISION = only("precision")


def bfloat16(g):
    return short(np.asarray(g, dtype=np.float64), 8)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change", "says"),
    [
        ("silu", "x", lambda g: g.astype(np.float16), "rounded to float16"),
        ("tanh", "x", lambda g: g.astype(np.float32), "rounded to float32"),
        ("rms_norm", "x", bfloat16, "rounded to bfloat16"),
        ("softmax", "x", lambda g: short(g, 4), "rounded to four significant bits"),
        ("matmul", "w", lambda g: g.astype(np.float16), "rounded to float16"),
    ],
)
def test_a_narrow_type_is_named(op, output, change, says):
    found = named(op, changed(op, **{output: change}), output, PRECISION)
    assert found.label == "O"
    assert says in found.says


def test_a_float16_in_float32_code_is_named_too():
    found = named("gelu", changed("gelu", x=lambda g: g.astype(np.float16)), "x", PRECISION,
                  dtype="float32")  # fmt: skip
    assert (found.label, "float16" in found.says) == ("O", True)


def test_a_constant_in_float32_is_a_factor_of_nearly_one():
    found = named("sqr", changed("sqr", x=lambda g: g * float(np.float32(0.1)) * 10), "x",
                  PRECISION)  # fmt: skip
    assert found.label == "O"
    assert "a constant is rounded to float32" in found.says


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("step", [1e-2, 2.0**-8])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (1, 0), (0, 1)])
def test_a_difference_of_forward_is_told_with_its_step(step, up, down):
    def vjp(ct, x):
        return ct * (np.exp(x + up * step) - np.exp(x - down * step)) / ((up + down) * step)

    found = named("exp", vjp, "x", PRECISION)
    assert found.label == "O"
    assert f"difference with a step of {step:.3g}" in found.says


def test_cancellation_shows_as_an_error_that_jumps():
    def vjp(ct, x, *, ddof=0, **attrs):
        far = (x + 3e5).astype(np.float32).astype(x.dtype)
        centred = far - far.mean(-1, keepdims=True)
        return np.expand_dims(ct, -1) * 2 * centred / (x.shape[-1] - ddof)

    found = named("variance", vjp, "x", PRECISION)
    assert found.label == "O"
    assert "error of rounding" in found.says


# ── silence ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("tanh", "x", np.zeros_like),
        ("tanh", "x", lambda g: 1.001 * g),
        ("tanh", "x", lambda g: g * (1 + 1e-5)),
        ("tanh", "x", np.sign),
        ("tanh", "x", np.round),
        ("matmul", "x", lambda g: np.flip(g, -1)),
        ("rms_norm", "x", lambda g: g - g.mean(-1, keepdims=True)),
        ("softmax", "x", lambda g: g + 1e-4),
        ("layer_norm", "w", lambda g: g * 0.99),
    ],
)
def test_what_is_a_formula_is_left_to_others(op, output, change):
    found = named(op, changed(op, **{output: change}), output, PRECISION)
    assert not found.label, found


def test_an_eps_too_small_is_no_rounding():
    def vjp(ct, x, *rest, eps=1e-5, **attrs):
        return right("layer_norm", ct, x, *rest, eps=eps / 3, **attrs)

    assert not named("layer_norm", vjp, "x", PRECISION).label


def test_what_is_not_finite_is_left_to_others():
    found = named("log", changed("log", x=lambda g: g * np.nan), "x", PRECISION)
    assert not found.label


def test_short_rounds_to_nearest_at_any_exponent():
    assert short(np.array([1.0, 1.03125, 3e-30, 0.0, -7.3e20]), 24).astype(np.float32).tolist() == (
        np.array([1.0, 1.03125, 3e-30, 0.0, -7.3e20], dtype=np.float32).tolist()
    )
    assert short(np.array([1.0625]), 4)[0] == 1.0
    assert short(np.array([1.1875]), 4)[0] == 1.25


FLUSHED = only("flushed")


def test_what_is_flushed_is_told_with_its_thresholds():
    def flush(g):
        return np.where(np.abs(g) < 1e-6, 0.0, g)

    found = named("exp", changed("exp", x=flush), "x", FLUSHED, sample="tail")
    assert (found.label, found.says) == ("O", "dx is flushed to 0 where it is tiny")
    assert any("the largest lost is" in line for line in found.evidence)


def test_a_slope_that_is_flushed_is_a_formula():
    def vjp(ct, x):
        slope = 1 - np.tanh(x) ** 2
        return np.where(slope < 1e-5, 0.0, ct * slope)

    found = named("tanh", vjp, "x", FLUSHED, sample="saturated")
    assert found.label in ("O", "D")
    assert "tiny" in found.says


def test_a_floor_is_told_with_its_number():
    def vjp(ct, x):
        return ct * np.maximum(1 - np.tanh(x) ** 2, 1e-6)

    found = named("tanh", vjp, "x", FLUSHED, sample="saturated")
    assert (found.label, found.says) == ("O", "dx is cut off 1e-06 of the cotangent before 0")


def test_what_overflows_on_the_way_is_0_where_an_argument_is_huge():
    def vjp(ct, x, y):
        with np.errstate(all="ignore"):
            dx, dy = right("div", ct, x, y)
            return dx, np.where(np.isinf(y * y), 0, dy).astype(dy.dtype)

    found = named("div", vjp, "y", FLUSHED, sample="huge", dtype="float32")
    assert found.label == "O"
    assert "an intermediate overflows" in found.says


def test_a_relu_that_ends_early_is_not_flushed():
    def vjp(ct, x):
        return np.where(x > 0.5, ct, 0.0)

    assert not named("relu", vjp, "x", FLUSHED).label


@pytest.mark.parametrize("change", [np.zeros_like, lambda g: 2 * g, np.sign, np.round])
def test_what_is_wrong_at_any_size_is_left_to_others(change):
    assert not named("tanh", changed("tanh", x=change), "x", FLUSHED).label
