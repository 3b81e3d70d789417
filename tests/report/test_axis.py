import itertools
import math

import pytest

from gradcheck.report.plots import EVERY, Axis, power


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([1e-3, 1.0], (-3, 0)),
        ([2e-3, 0.5], (-3, 0)),
        ([5.0], (0, 1)),
        ([1.0], (0, 1)),
        ([], (0, 1)),
        ([0.0, -1.0, math.nan, math.inf, 0.02], (-2, -1)),
        ([5e-324, 1.7e308], (-324, 309)),
    ],
)
def test_an_axis_spans_whole_decades_of_what_has_a_place(values, ends):
    axis = Axis.over(values, 0, 100)
    assert (axis.low, axis.high) == ends


@pytest.mark.parametrize(("start", "end"), [(10, 110), (110, 10)])
def test_a_value_stands_where_its_logarithm_does(start, end):
    axis = Axis.over([1e-4, 1.0], start, end)
    share = (end - start) / 4
    assert [axis.at(10.0**k) for k in range(-4, 1)] == [start + i * share for i in range(5)]
    assert axis.at(0.0) == axis.at(1e-9) == start
    assert axis.at(math.inf) == axis.at(1e9) == end


@pytest.mark.parametrize("span", [1, 2, 5, 12, 13, 26, 60, 320, 633])
@pytest.mark.parametrize("most", [3, 7])
def test_ticks_are_evenly_spaced_multiples_and_no_more_than_fit(span, most):
    axis = Axis(-7, span - 7, 0.0, 1000.0)
    ticks = axis.ticks(most)
    assert 1 <= len(ticks) <= most
    gaps = {round(b.at - a.at) for a, b in itertools.pairwise(ticks)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert all(0 <= tick.at <= 1000 for tick in ticks)
    assert len({tick.label for tick in ticks}) == len(ticks)
    if span >= most and most == 7:
        every = next(e for e in EVERY if span // e < most)
        assert power(-7 + (7 % every)) == ticks[0].label


def test_the_largest_number_is_no_overflow():
    axis = Axis.over([1.0, 1.7e308], 0, 1)
    assert axis.ticks(4)[-1].at <= 1


@pytest.mark.parametrize(
    ("exponent", "text"), [(0, "1"), (1, "10"), (-1, "10⁻¹"), (2, "10²"), (-308, "10⁻³⁰⁸")]
)
def test_powers_of_ten_are_written_as_such(exponent, text):
    assert power(exponent) == text
