"""Local derivatives: named by their slope or described, and silent where it is no slope."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right, scene

LOCAL = only("local")


def sloping(slope):
    """A VJP of the cotangent times a slope of the primals."""
    return lambda ct, *primals, **attrs: ct * slope(*primals).astype(ct.dtype)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "slope", "says"),
    [
        ("tanh", np.ones_like, "passes the cotangent on as it came"),
        ("tanh", lambda x: 1 - np.tanh(x), "the slope 1 − y"),
        ("sigmoid", np.cos, "the slope cos x"),
        ("exp", lambda x: x * np.exp(x), "the slope x · y"),
        ("sqr", np.sign, "the slope sign x"),
        ("relu", lambda x: 1 / (1 + np.exp(-x)), "the slope sigmoid x"),
    ],
)
def test_a_slope_that_is_known_is_named(op, slope, says):
    found = named(op, sloping(slope), "x", LOCAL)
    assert found.label == "D"
    assert says in found.says


def test_a_slope_of_two_arguments_is_named():
    def vjp(ct, x, y):
        return right("mul", ct, x, y)[0], ct * np.exp(x) / y

    found = named("mul", vjp, "y", LOCAL)
    assert (found.label, "the slope exp x / y" in found.says) == ("D", True)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "slope"),
    [
        ("tanh", lambda x: np.exp(-np.abs(x)) * 1.5),
        ("silu", lambda x: x**2 / (3 + x**2)),
        ("sqr", lambda x: 2 * np.clip(x, -0.75, 0.75)),
    ],
)
def test_any_other_slope_is_said_to_be_one(op, slope):
    found = named(op, sloping(slope), "x", LOCAL)
    assert found.label == "D"
    assert found.says.startswith("dx has another slope than forward")
    assert any("the values at that element alone" in line for line in found.evidence)


def test_it_is_told_where_the_slope_is_wrong_and_what_stands_there():
    def vjp(ct, x, **attrs):
        (g,) = right("gelu", ct, x, **attrs)
        return np.where(x < -0.5, 0.25 * ct, g)

    found = named("gelu", vjp, "x", LOCAL)
    assert found.says == "dx has another slope than forward where x < -0.5"
    assert "where it is wrong, it is 0.25 times the cotangent" in found.evidence


def test_a_sign_that_is_wrong_in_a_region_is_a_sign():
    def vjp(ct, x, **attrs):
        (g,) = right("silu", ct, x, **attrs)
        return np.where(x > 1, -g, g)

    found = named("silu", vjp, "x", LOCAL)
    assert (found.label, found.says) == ("S", "dx has the other sign where x > 1")


def test_a_slope_of_what_is_summed_up_is_one_too():
    found = named("sum", lambda ct, x, *, axis=None, keepdims=False: (
        right("sum", ct, x, axis=axis, keepdims=keepdims)[0] * (1.25 + np.sin(3 * x))
    ), "x", LOCAL)  # fmt: skip
    assert found.label == "D"


@pytest.mark.parametrize(
    ("op", "label", "says"),
    [
        ("tanh", "D", "the slope is missing"),
        ("softmax", "D", "forward might as well not be"),
        ("flip", "L", "it is not put back in order"),
    ],
)
def test_a_cotangent_that_is_passed_on_is_told_from_one_in_the_wrong_order(op, label, says):
    found = named(op, lambda ct, x, **attrs: ct, "x", LOCAL)
    assert (found.label, says in found.says) == (label, True)


def test_the_diagonal_of_a_jacobian_is_recognised():
    def vjp(ct, x, **attrs):
        e = np.exp(x - x.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True)
        return ct * y * (1 - y)

    found = named("softmax", vjp, "x", LOCAL)
    assert found.label == "T"
    assert "only the diagonal of the Jacobian" in found.says


# ── silence ──────────────────────────────────────────────────────────────────────────────────


def tail_lost(g):
    out = np.array(g)
    flat = out.reshape(-1)
    flat[flat.size // 4 * 4 :] = 0
    return out


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("tanh", "x", lambda g: 1.5 * g),  # a factor
        ("tanh", "x", lambda g: np.flip(g, -1)),  # an order
        ("tanh", "x", tail_lost),  # places, not values
        ("tanh", "x", np.sign),  # not linear in the cotangent
        ("tanh", "x", lambda g: g + 0.125),  # nor is this
        ("softmax", "x", lambda g: g - g.mean(-1, keepdims=True) + g[..., :1]),  # no slope at all
        ("matmul", "x", lambda g: g * np.arange(1.0, g.size + 1).reshape(g.shape)),
        ("rms_norm", "x", lambda g: g - g.mean(-1, keepdims=True)),
    ],
)
def test_what_is_no_slope_is_left_to_others(op, output, change):
    found = named(op, changed(op, **{output: change}), output, LOCAL)
    assert not found.label, found


def test_a_slope_that_depends_on_the_place_is_none():
    def vjp(ct, x):
        return 2 * x * ct * np.linspace(0.5, 1.5, x.shape[-1])

    assert not named("sqr", vjp, "x", LOCAL).label


def test_a_slope_that_depends_on_a_neighbour_is_none():
    def vjp(ct, x):
        return ct * (x + np.roll(x, 1, -1)) if x.ndim else 3 * ct * x

    assert not named("sqr", vjp, "x", LOCAL).label


def test_errors_on_a_kink_alone_are_no_slope():
    def vjp(ct, x):
        return np.where(x == 0, 2 * ct, right("relu", ct, x)[0])

    where = scene("relu", vjp, "x", sample="kink")
    assert not named("relu", vjp, "x", LOCAL, sample="kink").label
    assert all((p.wrong("x") <= p.kinked["x"]).all() for p in where.failing)


ZEROS = only("zeros")


def skipping(op, at):
    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        found[at] = np.where(primals[at] == 0, 0.0, found[at])
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


@pytest.mark.parametrize(("op", "sample"), [("prod", "zeros"), ("cumprod", "zeros")])
def test_elements_of_zero_that_get_nothing_are_named(op, sample):
    found = named(op, skipping(op, 0), "x", ZEROS, sample=sample)
    assert (found.label, found.says) == ("D", "dx is 0 where x is: zeros are skipped")


def test_a_tensor_of_zeros_that_gets_nothing_has_lost_its_gradient():
    def vjp(ct, x, a, b, **attrs):
        dx, da, db = right("low_rank_linear", ct, x, a, b, **attrs)
        return dx, da * a.any(), db

    found = named("low_rank_linear", vjp, "a", ZEROS, sample="zero-factor")
    assert (found.label, "all of a" in found.says) == ("G", True)


@pytest.mark.parametrize("change", [np.zeros_like, lambda g: 2 * g, lambda g: np.flip(g, -1)])
def test_what_is_wrong_elsewhere_too_is_left_to_others(change):
    found = named("prod", changed("prod", x=change), "x", ZEROS, sample="zeros")
    assert not found.label, found
