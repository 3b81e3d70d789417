"""Plots over the step: every step in its place, and words that are true of the numbers."""

import itertools
import math
import re
from dataclasses import replace

import pytest

from gradcheck.report.plots import (
    BOTTOM,
    EVERY,
    LEFT,
    RIGHT,
    TOP,
    Axis,
    power,
    taylor_plot,
    taylor_says,
)
from gradcheck.report.plots import v_plot as picture
from gradcheck.report.plots import v_says as says
from gradcheck.results.verdict import Verdict

NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def failed(make, off=0.01, **changes):
    return make.result(verdict=Verdict.FAIL, curve=make.vcurve(off, **changes))


def inside(x, y):
    return LEFT <= x <= RIGHT and TOP <= y <= BOTTOM


@pytest.mark.parametrize("off", [0.01, 1e-300, 1e300, 0.0, math.nan, math.inf])
def test_everything_is_inside_the_picture(make, off):
    at = picture(failed(make, off).finding)
    assert len(at.dots) == 27
    assert all(inside(dot.x, dot.y) for dot in (*at.dots, at.best))
    for path in (at.band, at.trace):
        numbers = [float(n) for n in NUMBERS.findall(path)]
        assert all(inside(x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True))
    for level in filter(None, (at.off, at.bound)):
        assert TOP <= level.y <= BOTTOM
        assert TOP - 8 <= level.note.y <= BOTTOM
    assert all(0 <= tick.at <= at.width for tick in (*at.across, *at.up))


def test_steps_grow_to_the_right_and_errors_upwards(make):
    result = failed(make)
    at, found = picture(result.finding), result.finding.curve
    xs = [dot.x for dot in at.dots]
    assert xs == sorted(xs, reverse=True)
    ranks = sorted(range(27), key=lambda k: found.errors[k])
    heights = [at.dots[k].y for k in ranks]
    assert heights == sorted(heights, reverse=True)
    assert at.off.y < at.best.y  # a wrong gradient stands above the V's floor


def test_dots_tell_truncation_from_rounding(make):
    at = picture(failed(make).finding)
    kinds = [dot.kind for dot in at.dots]
    turn = kinds.index("noise")
    assert set(kinds[:turn]) == {"clear"}
    assert set(kinds[turn:]) == {"noise"}
    exact = picture(failed(make, errors=(1e-3,) * 13 + (0.0,) * 14).finding)
    assert [dot.kind for dot in exact.dots] == ["clear"] * 13 + ["exact"] * 14
    assert {dot.y for dot in exact.dots[13:]} == {BOTTOM}


def test_the_bar_of_the_truth_is_part_of_what_is_explained(make):
    wide = picture(failed(make, error_bar=1e3).finding)
    assert {dot.kind for dot in wide.dots} == {"noise"}


@pytest.mark.parametrize("off", [1e-3, 1e-8])
def test_the_line_is_where_a_dot_of_that_error_would_be(make, off):
    errors = (off, *make.vcurve().errors[1:])
    at = picture(failed(make, off, errors=errors).finding)
    assert at.off.y == at.dots[0].y
    assert at.off.note.text == f"this gradient is off by {off:.3g}"


@pytest.mark.parametrize(("off", "texts"), [(0.0, 0), (math.nan, 0), (math.inf, 0), (1e-6, 1)])
def test_what_is_no_size_has_no_line(make, off, texts):
    assert (picture(failed(make, off).finding).off is not None) == bool(texts)


def test_what_lies_far_below_the_floor_stands_at_the_edge_and_says_so(make):
    at = picture(failed(make, 1e-40).finding)
    assert at.off.y == BOTTOM
    assert at.off.note.text.startswith("↓ ")
    assert not picture(failed(make, 1e-12).finding).off.note.text.startswith("↓")


@pytest.mark.slow(keep=10)
@pytest.mark.parametrize("off", [10.0 ** (-k / 4) for k in range(80)])
def test_no_two_texts_lie_on_each_other(make, off):
    at = picture(failed(make, off, bound=3e-9).finding)
    boxes = []
    for note in (*at.notes, *(level.note for level in (at.off, at.bound) if level)):
        wide = 5.6 * len(note.text)
        left = {"start": note.x, "middle": note.x - wide / 2, "end": note.x - wide}[note.anchor]
        assert LEFT - 12 <= left <= left + wide <= RIGHT + 1
        boxes.append((left, left + wide, note.y))
    for i, (a, b, y) in enumerate(boxes):
        for c, d, z in boxes[:i]:
            assert b <= c or d <= a or abs(y - z) >= 9, (boxes, off)


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [(Verdict.PASS, "good"), (Verdict.FAIL, "bad"), (Verdict.INCONCLUSIVE, "warn")],
)
def test_the_line_has_the_tone_of_the_verdict(make, verdict, tone):
    assert picture(make.result(verdict=verdict, curve=make.vcurve()).finding).tone == tone


def test_sides_are_named_only_where_they_are(make):
    def names(**changes):
        return {
            note.text.partition(" ")[0] for note in picture(failed(make, **changes).finding).notes
        }

    assert {"rounding", "truncation"} <= names()
    assert "truncation" not in names(errors=make.vcurve().bars)
    assert "truncation" not in names(errors=(0.5,) * 27)  # a kink nearer than any step
    assert "truncation" in names(errors=(0.1, 0.1, *make.vcurve().errors[2:]))


@pytest.mark.parametrize(
    "changes",
    [
        {"errors": (math.nan,) * 27},
        {"errors": (0.1, *[math.inf] * 26)},
        {"bars": (math.nan,) * 27},
        {"steps": (), "errors": (), "bars": ()},
    ],
)
def test_what_cannot_be_drawn_is_left_out(make, changes):
    assert taylor_plot(failed(make, **changes).finding) is None
    assert taylor_plot(make.result().finding) is None


def test_a_step_without_a_value_leaves_a_gap(make):
    errors = (math.nan, math.inf, *make.vcurve().errors[2:])
    at = picture(failed(make, errors=errors).finding)
    assert len(at.dots) == 25
    assert at.best is not None


def test_where_no_step_is_sure_there_is_no_best_one(make):
    errors = tuple(1e-3 if k % 2 else math.nan for k in range(27))
    at = picture(failed(make, errors=errors).finding)
    assert at.best is None
    assert at.caption == ""
    assert at.off is not None


@pytest.mark.parametrize(
    ("off", "text"),
    [
        (0.01, r"off by 0\.01, [\d.e+]+ times as much$"),
        (1e-18, r"off by 1e-18, less than a difference can show$"),
        (0.0, "right to the last digit$"),
        (math.nan, "this gradient is nan$"),
        (-math.inf, "this gradient is -inf$"),
    ],
)
def test_the_sentence_says_how_the_gradient_stands_to_the_floor(make, off, text):
    result = failed(make, off)
    assert re.search(text, says(result.finding)), says(result.finding)
    assert says(result.finding).startswith(f"dx[1, 3]: the best difference (h = {1e-5:.2g}) gives")
    if off == 0.01:
        (times,) = re.findall(r"([\d.e+]+) times", says(result.finding))
        assert float(times) == pytest.approx(off / result.finding.curve.floor, rel=1e-2)
    assert says(make.result().finding) == ""


def test_what_no_difference_can_tell_fifty_digits_do(make):
    beside = make.vcurve(0.01, errors=(0.5,) * 27)  # a kink nearer than the shortest step
    told = says(make.result(verdict=Verdict.FAIL, curve=beside, oracle=True).finding)
    shown = "smaller than any difference can show; 50-digit arithmetic shows it"
    assert told.endswith(f"off by 0.01: {shown}")
    for verdict, off, oracle in ((Verdict.FAIL, 0.01, False), (Verdict.PASS, 1e-10, True)):
        curve = make.vcurve(off, errors=(0.5,) * 27)
        assert says(make.result(verdict=verdict, curve=curve, oracle=oracle).finding).endswith(
            "less than a difference can show"
        )


def test_foreign_text_is_cleaned(make):
    result = failed(make, tensor=make.hostile)
    assert "\x1b" not in says(result.finding)
    assert "\n" not in picture(result.finding).label


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


def shown(make, intercept=0.0, **changes):
    return taylor_plot(make.result(taylor=make.curve(intercept, **changes)).finding)


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
    assert not taylor_plot(
        make.result(taylor=replace(make.curve(1e-3), intercept=math.nan)).finding
    ).error


def test_the_error_lies_on_the_points_of_a_wrong_gradient(make):
    at = shown(make, 10.0)
    start, end = (tuple(map(float, part.split())) for part in at.error[1:].split("L"))
    for x, y in at.points:
        share = (x - start[0]) / (end[0] - start[0])
        assert y == pytest.approx(start[1] + share * (end[1] - start[1]), abs=0.6)


def test_a_taylor_plot_needs_two_points(make):
    rest = {"steps": (1.0, 0.5, 0.25, 0.125), "slopes": (3.0, 3.0, 3.0)}
    assert shown(make, remainders=(1.0, math.nan, 0.0, math.inf), **rest) is None
    assert len(shown(make, remainders=(1.0, math.nan, 0.0, 0.1), **rest).points) == 2
    assert len(shown(make, remainders=(1.0, 2.0, 4.0, 8.0), **rest).points) == 4
    assert taylor_plot(make.result().finding) is None


def test_what_is_missing_from_a_directional_derivative_is_told_with_its_bar(make):
    wrong = taylor_says(make.curve(1e-3))
    assert wrong.startswith("⟨g, d⟩ is 0.25, and 0.001 ± 1e-12 is missing from it; slope 1.0 (")
    right = taylor_says(make.curve(0.0))
    assert "and 0 ± 1e-12 is missing from it; slope 3.0 (" in right


def test_a_curve_of_noise_has_no_slope_to_speak_of(make):
    assert "slope" not in taylor_says(make.curve(0.0, noise=1.0))
    nan = (math.nan,) * 7
    assert "slope" not in taylor_says(make.curve(0.0, slopes=nan))
    assert taylor_says(make.curve(0.0, linear=True)).endswith("every remainder is noise")
    lost = taylor_says(make.curve(0.0, error_bar=math.inf))
    assert lost == "⟨g, d⟩ is 0.25; no steps agree on what is missing from it"
