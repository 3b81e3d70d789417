from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.contract.asking import Vacuous
from gradcheck.judge.contract.linearity import FACTORS, linear, scaling, spike, zero


@pytest.mark.parametrize("power", [1.5, 0.999, 1.001])
def test_a_power_of_the_cotangent_is_seen(subject, power):
    bent = SimpleNamespace(vjp=lambda ct, x: -np.sign(ct) * np.abs(ct) ** power)
    breach = linear(subject(bent, "neg/default/typical"))
    assert breach.seen.startswith("with u normal and v of signed powers of two, dx[")


def test_what_only_a_lone_element_shows(subject, mutant):
    breach = linear(subject(mutant("clips-relative")))
    assert "zero elsewhere" in breach.seen


def test_an_absolute_value_is_seen(subject):
    breach = linear(subject(SimpleNamespace(vjp=lambda ct, x: -np.abs(ct)), "neg/default/typical"))
    assert breach is not None


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_right_ones_are_linear(subject, right, dtype):
    assert linear(subject(dtype=dtype)) is None
    assert linear(subject(dtype=dtype, name="lstm_cell/pytorch/typical")) is None
    if dtype.startswith("float") and dtype != "float16":
        assert linear(subject(right, dtype=dtype)) is None


def test_a_wrong_gradient_that_is_linear_is_not_blamed_here(subject):
    twice = SimpleNamespace(vjp=lambda ct, x: ct * (1 + x * x))
    assert linear(subject(twice, "silu/default/typical")) is None


def test_a_spike_is_one_once():
    like = (np.zeros((2, 3), np.float32), np.zeros(0, np.float32))
    first, empty = spike(like, 0)
    assert first.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert spike(like, -1)[0].tolist() == [[0, 0, 0], [0, 0, 1]]
    assert first.dtype == np.float32
    assert empty.shape == (0,)


def test_nan_of_nothing_is_seen(subject, mutant):
    breach = zero(subject(mutant("normalises-dy")))
    assert breach.seen == "dx[0, 0] is nan"


def test_a_constant_term_is_seen(subject):
    biased = SimpleNamespace(
        vjp=lambda ct, x: -ct + np.where(x == x.max(), 1e-30, 0).astype(x.dtype)
    )
    breach = zero(subject(biased, "neg/default/typical"))
    assert "is 1e-30" in breach.seen


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_give_zeros(subject, right, dtype):
    assert zero(subject(right, dtype=dtype)) is None
    minus = SimpleNamespace(vjp=lambda ct, x: -ct)  # −0 is 0
    assert zero(subject(minus, "neg/default/typical", dtype)) is None


@pytest.mark.parametrize(
    ("name", "factor"), [("clips-absolute", "2^40"), ("flushes-small", "2^-40")]
)
def test_a_threshold_is_seen(subject, mutant, name, factor):
    breach = scaling(subject(mutant(name)))
    assert breach.seen.startswith(f"for {factor} times the cotangent, dx[")


def test_a_threshold_at_one_element_alone_is_seen(subject):
    def vjp(ct, x):
        g = -ct
        g[1, 2] = g[1, 2] if abs(g[1, 2]) < 2.0**20 else 1
        return g

    breach = scaling(subject(SimpleNamespace(vjp=vjp), "neg/default/typical"))
    assert breach.seen.startswith("for 2^40 times the cotangent, dx[1, 2] is 1, not ")


def test_a_lost_bit_is_seen(subject):
    rough = SimpleNamespace(vjp=lambda ct, x: -(ct + np.float32(0.1)) + np.float32(0.1))
    assert "not" in scaling(subject(rough, "neg/default/typical")).seen


def test_an_odd_answer_to_a_sign_is_seen(subject):
    lopsided = SimpleNamespace(vjp=lambda ct, x: np.where(ct > 0, -ct, -ct * 2))
    assert scaling(subject(lopsided, "neg/default/typical")).seen.startswith("for -1 times")


@pytest.mark.parametrize("dtype", sorted(FACTORS))
def test_right_ones_scale_to_the_last_bit(subject, right, dtype):
    assert scaling(subject(name="softmax/default/typical", dtype=dtype)) is None
    if dtype in ("float64", "float32"):
        assert scaling(subject(right, dtype=dtype)) is None


def test_what_overflows_is_not_asked(subject, right):
    """Gradients that a factor would take out of the range of the dtype prove nothing."""
    tall = subject(right)
    tall.cts[0] = tuple(np.full_like(part, 2.0**120) for part in tall.cts[0])
    assert scaling(tall) is None
    tall.cts[0] = tuple(np.full_like(part, np.inf) for part in tall.cts[0])
    with pytest.raises(Vacuous):
        scaling(tall)


@pytest.mark.parametrize(("size", "least", "seen"), [(-80, -119, False), (-76, -115, True)])
def test_what_underflows_inside_may_be_lost_at_a_small_factor_too(subject, size, least, seen):
    """Up to 2^-118, where float32 ends, however small the cotangent is."""

    def vjp(ct, x):
        g = -ct * np.float32(2.0**size)
        return np.where(np.abs(g) < 2.0**least, np.float32(0), g)

    found = scaling(subject(SimpleNamespace(vjp=vjp), "neg/default/typical"))
    assert (found is not None) is seen


def test_every_factor_is_a_power_of_two_or_turns_the_sign():
    """Which no right backward rounds."""
    for factors in FACTORS.values():
        assert -1.0 in factors
        sizes = {factor for factor in factors if factor != -1.0}
        assert {np.frexp(size)[0] for size in sizes} == {0.5}
        assert min(sizes) < 1 < max(sizes)


@pytest.mark.parametrize(("lost", "seen"), [(-79, False), (-77, True)])
def test_what_underflows_inside_is_multiplied_by_a_large_factor(subject, lost, seen):
    """What is lost at 2^-118 is 2^-78 behind a factor of 2^40."""

    def vjp(ct, x):
        g = -ct * np.float32(2.0**-100)
        return np.where(np.abs(ct) > 2.0**20, g + np.float32(2.0**lost), g)

    found = scaling(subject(SimpleNamespace(vjp=vjp), "neg/default/typical"))
    assert (found is not None) is seen
