"""The picture of a V: every step in its place, and words that are true of the numbers."""

import math
import re

import pytest

from gradcheck.report.plots import BOTTOM, LEFT, RIGHT, TOP
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
    assert picture(failed(make, **changes).finding) is None
    assert picture(make.result().finding) is None


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
        (1e-18, r"off by 1e-18, less than a difference can tell$"),
        (0.0, "right to the last digit$"),
        (math.nan, "this gradient is nan$"),
        (-math.inf, "this gradient is -inf$"),
    ],
)
def test_the_sentence_says_how_the_gradient_stands_to_the_floor(make, off, text):
    result = failed(make, off)
    assert re.search(text, says(result.finding)), says(result.finding)
    assert says(result.finding).startswith(f"dx[1, 3]: the best difference (h = {1e-5:.2g}) knows")
    if off == 0.01:
        (times,) = re.findall(r"([\d.e+]+) times", says(result.finding))
        assert float(times) == pytest.approx(off / result.finding.curve.floor, rel=1e-2)
    assert says(make.result().finding) == ""


def test_what_no_difference_can_tell_fifty_digits_do(make):
    beside = make.vcurve(0.01, errors=(0.5,) * 27)  # a kink nearer than the shortest step
    told = says(make.result(verdict=Verdict.FAIL, curve=beside, oracle=True).finding)
    assert told.endswith("off by 0.01: no difference can tell, 50-digit arithmetic does")
    for verdict, off, oracle in ((Verdict.FAIL, 0.01, False), (Verdict.PASS, 1e-10, True)):
        curve = make.vcurve(off, errors=(0.5,) * 27)
        assert says(make.result(verdict=verdict, curve=curve, oracle=oracle).finding).endswith(
            "less than a difference can tell"
        )


def test_foreign_text_is_cleaned(make):
    result = failed(make, tensor=make.hostile)
    assert "\x1b" not in says(result.finding)
    assert "\n" not in picture(result.finding).label
