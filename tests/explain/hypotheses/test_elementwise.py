"""Whether forward, and code, act element by element: asked with other cotangents and places."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.elementwise import (
    answers_diagonally,
    follows_values,
    is_diagonal,
    over,
    slope,
)
from tests.explain.scenes import changed, probes, right


def first(op, vjp, dialect=""):
    return probes(op, vjp, dialect=dialect)[0]


def wrong(op):
    return first(op, changed(op, x=lambda g: 2 * g))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "diagonal"),
    [
        ("tanh", True),
        ("mul", True),
        ("sum", True),
        ("softmax", False),
        ("variance", False),
        ("cumprod", False),
        ("matmul", False),
        ("l2_norm", False),
    ],
)
def test_what_acts_element_by_element_is_told_from_what_does_not(op, diagonal):
    assert is_diagonal(wrong(op), "x") is diagonal


@pytest.mark.parametrize(
    ("change", "diagonal"),
    [
        (lambda g: 3 * g, True),
        (lambda g: g * np.linspace(0.5, 1.5, g.shape[-1]), True),
        (np.sign, False),
        (lambda g: g + 1, False),
        (lambda g: np.flip(g, -1), False),
        (lambda g: g - g.mean(), False),
    ],
)
def test_code_that_mixes_cotangents_or_bends_them_does_not_answer_with_a_slope(change, diagonal):
    assert answers_diagonally(first("tanh", changed("tanh", x=change)), "x") is diagonal


def test_a_gradient_that_did_not_come_is_no_slope():
    assert not answers_diagonally(first("tanh", lambda ct, x: np.zeros(2)), "x")


def neighbours(ct, x):
    return ct * (x + np.roll(x, 1, -1))


def places(ct, x):
    return ct * x * np.linspace(0.5, 1.5, x.shape[-1])


@pytest.mark.parametrize(
    ("vjp", "follows"),
    [(lambda ct, x: ct * x**3, True), (neighbours, False), (places, False)],
)
def test_a_slope_follows_the_values_if_neither_place_nor_neighbour_matters(vjp, follows):
    assert follows_values(first("sqr", vjp), "x") is follows


def test_code_that_cannot_be_asked_elsewhere_does_not_show_it():
    def once(ct, x):
        if not hasattr(once, "x"):
            once.x = x.copy()
        if not np.array_equal(once.x, x):
            raise ValueError("other values")
        return ct * x**3

    assert not follows_values(first("sqr", once), "x")


def test_a_cotangent_of_a_row_stands_for_all_of_it():
    probe = wrong("variance")
    shape = probe.right["x"].shape
    spread = over(probe, shape)
    assert spread.shape == shape
    assert (spread == probe.ct[0][:, None]).all()
    assert over(probe, (9, 9)) is None
    assert slope(probe, np.ones((9, 9))) is None
    assert np.allclose(slope(probe, right("variance", *probe.ct, *probe.primals)[0]) * spread,
                       probe.right["x"])  # fmt: skip
