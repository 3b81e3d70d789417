"""What a gradient on a tie may come to along a direction."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.kink_constraint import Directions, Followed

BOUND = 2.0**-10


def violated(product, other=1.0, bound=BOUND):
    """Of ⟨g, d⟩ between 0 and 2, for two elements with a bound each, along (1, 1) and (1, −1/2)."""
    along = np.array([[1.0, 1.0], [1.0, -0.5]])
    got = np.linalg.solve(along, np.array([product, other]))[None]
    low, high = np.array([[0.0, 0.0]]), np.array([[2.0, 2.0]])
    return Directions(along, low, high).violated(got, np.full((1, 2), bound))


@pytest.mark.parametrize("beyond", [0.0, 2 * BOUND])
def test_a_sum_may_leave_its_interval_by_the_bounds_of_its_elements(beyond):
    assert violated(2.0 + beyond) is None
    assert violated(0.0 - beyond) is None


def test_one_that_leaves_it_further_is_told_with_its_ends():
    far = 2.01 * BOUND
    assert violated(2.0 + far) == (pytest.approx(2.0 + far), 0.0, 2.0)
    assert violated(0.0 - far) == (pytest.approx(0.0 - far), 0.0, 2.0)
    assert violated(2.0 + far, other=-1.0) == (pytest.approx(-1.0), 0.0, 2.0)  # the worst
    assert violated(2.0, other=2.0 + 1.49 * BOUND) is None
    assert violated(2.0, other=2.0 + 1.51 * BOUND) is not None


def test_what_is_no_number_is_outside():
    assert violated(np.nan) is not None


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (0.0, "tie: left (A); middle (A, B)"),
        (1.0, "tie: right (C)"),
        (0.5, "tie: none that is known"),
        (np.nan, "tie: none that is known"),
    ],
)
def test_the_conventions_that_a_gradient_follows_are_named(got, says):
    def convention(name, *systems):
        return SimpleNamespace(name=name, systems=systems)

    tables = (
        (convention("left", "A"), np.array([[0.0, 7.0]])),
        (convention("middle", "A", "B"), np.array([[0.0, 7.0]])),
        (convention("right", "C"), np.array([[1.0, 7.0]])),
    )
    found = SimpleNamespace(got=np.array([[got, -1.0]]), bound=np.full((1, 2), BOUND))
    which = np.array([True, False])
    assert Followed("tie", which, tables).by(found) == says
    # Where all say the same, none is followed; one alone is.
    assert Followed("tie", which, tables[:2]).by(found) == ("" if got == 0 else says.replace(
        "right (C)", "none that is known"))  # fmt: skip
    assert (Followed("tie", which, tables[2:]).by(found) == "tie: right (C)") is (got == 1.0)
