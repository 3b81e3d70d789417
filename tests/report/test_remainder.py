"""The picture of a Taylor remainder: steep where a gradient is right, less so where it is wrong."""

import itertools
import math
from dataclasses import replace

import pytest

from gradcheck.report.plots import BOTTOM, LEFT, RIGHT, TOP
from gradcheck.report.plots import taylor_plot as picture


def shown(make, intercept=0.0, **changes):
    return picture(make.result(taylor=make.curve(intercept, **changes)).finding)


@pytest.mark.parametrize("intercept", [0.0, 1e-9, -1e-3, 1e6])
def test_every_remainder_is_a_point_in_the_picture(make, intercept):
    at = shown(make, intercept)
    assert len(at.points) == 8
    assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for x, y in at.points)
    xs, ys = zip(*at.points, strict=True)
    assert list(xs) == sorted(xs, reverse=True)  # the longest step first, to the right
    assert list(ys) == sorted(ys)  # y grows downwards
    assert TOP <= at.noise <= BOTTOM == BOTTOM


def test_a_right_gradient_leaves_a_steeper_line_than_a_wrong_one(make):
    right, wrong = (shown(make, intercept) for intercept in (0.0, 10.0))

    def fall(at):
        pairs = itertools.pairwise(at.points)
        return [(b - d) / (a - c) for (a, b), (c, d) in pairs]

    assert all(s == pytest.approx(fall(right)[0], rel=0.02) for s in fall(right))
    assert all(s == pytest.approx(fall(wrong)[0], rel=0.02) for s in fall(wrong))
    assert (right.error, right.notes) == ("", ())
    assert wrong.error.startswith("M")


def test_the_error_is_drawn_only_where_it_exceeds_its_bar(make):
    assert shown(make, 1e-3).error
    assert not shown(make, 1e-3, error_bar=2e-3).error
    assert not shown(make, 1e-3, error_bar=math.inf).error
    assert not picture(
        make.result(taylor=replace(make.curve(1e-3), intercept=math.nan)).finding
    ).error


def test_the_error_lies_on_the_points_of_a_wrong_gradient(make):
    at = shown(make, 10.0)
    start, end = (tuple(map(float, part.split())) for part in at.error[1:].split("L"))
    for x, y in at.points:
        share = (x - start[0]) / (end[0] - start[0])
        assert y == pytest.approx(start[1] + share * (end[1] - start[1]), abs=0.6)


def test_what_cannot_be_drawn_is_left_out(make):
    rest = {"steps": (1.0, 0.5, 0.25, 0.125), "slopes": (3.0, 3.0, 3.0)}
    assert shown(make, remainders=(1.0, math.nan, 0.0, math.inf), **rest) is None
    assert len(shown(make, remainders=(1.0, math.nan, 0.0, 0.1), **rest).points) == 2
    assert len(shown(make, remainders=(1.0, 2.0, 4.0, 8.0), **rest).points) == 4
    assert picture(make.result().finding) is None
