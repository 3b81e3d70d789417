"""A straight way: its integral against known ones, its error bar over what it cannot see."""

import numpy as np
import pytest

from gradcheck.judge.compare import RULES
from gradcheck.judge.line_integral import PathCheck, PathIntegral

STEP = np.array([1.0, -2.0])


def way(slope, kinked=False):
    """Along Δ = (1, −2), with a gradient of which only the first element is not zero."""
    asked = []

    def gradients(s):
        asked.append(s)
        return {"w": np.array([slope(s), 0.0])}

    return PathIntegral(gradients, {"w": STEP}, kinked), asked


def along(slope, observed, *, splits=0, kinked=False):
    found, _ = way(slope, kinked)
    for _ in range(splits):
        found.split()
    return found.leg(observed, 0.0, RULES["float64"], 1, "")


@pytest.mark.parametrize("power", range(6))
def test_polynomials_up_to_the_fifth_degree_are_integrated_exactly(power):
    leg = along(lambda s: s**power, 1 / (power + 1))
    assert leg.error <= 1e-15
    assert leg.right


def test_a_slope_that_is_wrong_by_a_part_in_ten_thousand_is_seen():
    assert along(np.exp, np.e - 1, splits=3).right
    assert not along(lambda s: (1 + 1e-4) * np.exp(s), np.e - 1, splits=3).right


@pytest.mark.parametrize("at", [0.01, 0.125, 0.3, 0.4999, 0.5, 0.77])
def test_the_bar_covers_a_jump_of_the_slope_wherever_it_is(at):
    leg = along(lambda s: 1.0 if s < at else 3.0, at + 3 * (1 - at), kinked=True)
    assert leg.error <= leg.bar
    assert leg.right


def test_without_a_kink_panels_are_halved_where_they_are_uncertain():
    found, asked = way(lambda s: 1 / (0.01 + s))
    for _ in range(5):
        found.split()
    assert found.cuts[1] == 2.0**-5
    assert len(found.cuts) < 2**5
    assert len(asked) == len(set(asked))  # each slope is taken once


def test_a_slope_that_is_no_number_is_not_right():
    assert not along(lambda s: np.nan, 1.0).right


def test_a_bound_that_could_hide_a_wrong_gradient_resolves_nothing():
    plain = {"step": 1, "tensor": "w", "observed": 1.0, "predicted": 1.0, "bar": 0.0, "size": 1.0}
    assert PathCheck(**plain, bound=1e-3).resolved(0.0)
    assert not PathCheck(**plain, bound=0.04).resolved(0.0)
    assert PathCheck(**plain, bound=0.04, kinked=True).resolved(0.0)
    assert PathCheck(**plain, bound=0.04).resolved(1e3)  # next to nothing of the whole step
