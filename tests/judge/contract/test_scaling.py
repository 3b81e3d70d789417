from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.contract.asking import Vacuous
from gradcheck.judge.contract.linearity import FACTORS, scaling


@pytest.mark.parametrize(
    ("name", "factor"), [("clips-absolute", "2^40"), ("flushes-small", "2^-40")]
)
def test_a_threshold_is_seen(subject, mutant, name, factor):
    breach = scaling(subject(mutant(name)))
    assert breach.seen.startswith(f"for {factor} times the cotangent, dx[")


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
