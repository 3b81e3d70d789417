"""Bisection: which elements are wrong, one or several, and in how many evaluations."""

import numpy as np
import pytest

from gradcheck.judge.locate import DirectionError, locate, one_element
from gradcheck.numerics.directional_slope import Slope, TensorView, slope_search
from gradcheck.numerics.line_function import Given, Heading, Scalar, unit_of

N = 4096


def function(x):
    return np.mean(np.tanh(x) ** 2 * (1 + np.roll(x, 1)))


def gradient(x):
    y, slope = np.tanh(x), 1 - np.tanh(x) ** 2
    return (2 * y * slope * (1 + np.roll(x, 1)) + np.roll(y**2, -1)) / x.size


def wrong_at(**changes):
    """A site whose gradient is multiplied at some elements: `e17=1.1`."""
    x = np.random.default_rng(0).normal(size=N)
    g = gradient(x)
    for name, factor in changes.items():
        g[int(name[1:])] *= factor
    scalar = Scalar(lambda: function(x))
    return TensorView(scalar, scalar(), x, Given.of(g), unit_of(x)), gradient(x)


def searched(site, count=2, **options):
    seen = []
    for key in range(count):
        with site.ray(Heading(key)) as ray:
            seen.append(DirectionError(Heading(key), slope_search(site, ray).exhaust()))
    before = site.value.evaluations
    found = locate(site, seen, 0.0, **options)
    return found, site.value.evaluations - before


def test_nothing_is_found_in_a_right_gradient():
    site, _ = wrong_at()
    found, evaluations = searched(site)
    assert (found.wrong, found.complete, evaluations) == ((), True, 0)


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("index", [0, 1, 2047, 2048, 3333, N - 1])
@pytest.mark.parametrize("factor", [1.1, 0.0, -1.0, 1 + 1e-5])
def test_one_wrong_element_is_named_with_its_true_value(index, factor):
    site, right = wrong_at(**{f"e{index}": factor})
    found, evaluations = searched(site)
    assert found.complete
    (only,) = found.wrong
    assert only.index == index
    assert abs(only.want - right[index]) <= 2 * only.bar
    assert only.got == factor * right[index]
    assert evaluations <= 8 * 12 + 50


def test_several_wrong_elements_are_all_named_the_largest_error_first():
    site, right = wrong_at(e5=2.0, e6=0.5, e3000=-1.0, e4001=1.3)
    found, _ = searched(site)
    assert found.complete
    assert {w.index for w in found.wrong} == {5, 6, 3000, 4001}
    errors = [abs(w.got - right[w.index]) for w in found.wrong]
    assert errors == sorted(errors, reverse=True)


def test_two_equal_errors_in_both_signs_are_found():
    for sign in (1, -1):
        site, _ = wrong_at()
        site.given.buffers[0][[100, 2900]] += 1e-3 * np.array([1, sign])
        found, _ = searched(site)
        assert {w.index for w in found.wrong} == {100, 2900}
        assert found.complete


def test_errors_that_cancel_along_one_direction_are_found_along_the_other():
    site, _ = wrong_at()
    d = [site.ray(Heading(0)).width(i) for i in (100, 2900)]
    site.given.buffers[0][[100, 2900]] += 1e-3 * np.array([1 / d[0], -1 / d[1]])
    site.given.buffers[0][7] += 1e-4
    found, _ = searched(site)
    assert {w.index for w in found.wrong} == {7, 100, 2900}
    assert found.complete


def test_a_tensor_that_is_wrong_everywhere_ends_the_search_early():
    site, _ = wrong_at()
    site.given.buffers[0][:] *= 1.5
    found, evaluations = searched(site, most=3)
    assert (len(found.wrong), found.complete) == (3, False)
    assert evaluations < 400


def test_the_search_keeps_to_its_budget():
    site, _ = wrong_at(e5=2.0, e3000=-1.0)
    found, evaluations = searched(site, search=30)
    assert not found.complete
    assert evaluations <= 30 + 70  # a ladder that was begun is ended


@pytest.mark.parametrize("index", [0, 17, N - 1])
def test_one_element_alone(index):
    site, right = wrong_at(e17=np.nan)
    silent = Given((np.zeros(N),))
    site = TensorView(site.value, site.base, site.tensor, silent, site.unit)
    found = one_element(site, index, Heading(3))
    assert abs(found.want - right[index]) <= 2 * found.bar
    assert found.bar <= 1e-6 * abs(right[index])
    assert found.got == 0


@pytest.mark.parametrize(("bars", "most"), [(1e6, 13 * 12 + 50), (2.0001, 40)])
def test_an_error_that_no_element_explains_blames_none(bars, most):
    """A clear one is followed to a leaf, which denies it; a faint one is lost at the first half."""
    site, _ = wrong_at()
    seen = [DirectionError(Heading(0), Slope(value=bars * 1e-9, bar=1e-9, noise=0.0, level=4))]
    before = site.value.evaluations
    found = locate(site, seen, 0.0)
    assert (found.wrong, found.complete) == ((), False)
    assert site.value.evaluations - before <= most


def test_an_element_is_blamed_once():
    site, right = wrong_at(e17=2.0)
    width = site.ray(Heading(0)).width(17)
    twice = Slope(value=-3 * right[17] * width, bar=1e-12, noise=0.0, level=4)
    found = locate(site, [DirectionError(Heading(0), twice)], 0.0)
    assert [w.index for w in found.wrong] == [17]
    assert not found.complete
