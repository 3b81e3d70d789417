import math
import re
from dataclasses import replace

import pytest

from gradcheck.finding import Part
from gradcheck.report import figures, models
from gradcheck.verdict import Verdict


def inside(curve, x, y):
    return curve.margin <= x <= curve.width and 0 <= y <= curve.height - curve.margin


@pytest.mark.parametrize("intercept", [0.0, 1e-9, -1e-3, 1e6])
def test_every_remainder_is_a_point_in_the_picture(make, intercept):
    found = make.curve(intercept)
    curve = figures.curve(found)
    assert len(curve.points) == len(found.steps)
    assert all(inside(curve, *point) for point in (*curve.points, *(curve.error or ())))
    xs, ys = zip(*curve.points, strict=True)
    assert list(xs) == sorted(xs, reverse=True)  # the longest step first, to the right
    assert list(ys) == sorted(ys)  # y grows downwards


def test_a_right_gradient_leaves_a_steeper_line_than_a_wrong_one(make):
    def decades(curve):
        return math.log10(float(curve.remainders[1])) - math.log10(float(curve.remainders[0]))

    right, wrong = (figures.curve(make.curve(intercept)) for intercept in (0.0, 10.0))
    assert right.steps == wrong.steps == ("0.004", "0.5")
    assert decades(right) == pytest.approx(3 * decades(wrong), rel=0.1)


def test_the_error_is_drawn_only_where_it_exceeds_its_bar(make):
    assert figures.curve(make.curve(1e-3)).error is not None
    assert figures.curve(make.curve(1e-3, error_bar=2e-3)).error is None
    assert figures.curve(make.curve(1e-3, error_bar=math.inf)).error is None
    assert figures.curve(replace(make.curve(1e-3), intercept=math.nan)).error is None


def test_the_error_lies_on_the_curve_of_a_wrong_gradient(make):
    curve = figures.curve(make.curve(10.0))
    assert curve.error[0] == pytest.approx(curve.points[-1], abs=0.5)
    assert curve.error[1] == pytest.approx(curve.points[0], abs=0.5)


def test_what_cannot_be_drawn_is_left_out(make):
    steps = (1.0, 0.5, 0.25, 0.125)
    rest = {"steps": steps, "slopes": (3.0, 3.0, 3.0)}
    some = figures.curve(make.curve(0.0, remainders=(1.0, math.nan, 0.0, math.inf), **rest))
    assert some is None
    some = figures.curve(make.curve(0.0, remainders=(1.0, math.nan, 0.0, 0.1), **rest))
    assert len(some.points) == 2
    flat = figures.curve(make.curve(0.0, remainders=(1.0, 2.0, 4.0, 8.0), **rest))
    assert all(inside(flat, *point) for point in flat.points)  # r(h) is constant: no height


def lights(run):
    (blamed,) = models.blamed(run)
    found = figures.stages(run, blamed)
    *stages, others = found if found[-1].name.endswith(" others") else (*found, None)
    assert (others is None) == (len(stages) == 25)
    assert others is None or others.name == f"{25 - len(stages)} others"
    return {light.name: (light.tone, light.mark) for light in stages}


def test_each_stage_is_right_suspect_wrong_or_unknown(make):
    verdicts = {"a": "pass", "b": "fail", "c": "missing", "d": "unbound", "e": "pass", "f": "pass"}
    found = [make.of_model(n, Verdict(v), part=Part.STAGE) for n, v in verdicts.items()]
    blames = (make.blame("e"), make.blame("a", "d", "x", exact=False))
    shown = lights(make.run(*found, make.of_model("loss", part=Part.VALUE, blames=blames)))
    tones = {name: tone for name, (tone, _) in shown.items()}
    assert tones == {"a": "good", "b": "bad", "c": "bad", "d": "warn", "e": "bad", "f": "good",
                     "x": "warn"}  # fmt: skip
    assert len({mark for _, mark in shown.values()}) == len(set(tones.values()))


def test_a_suspect_stays_one_in_every_round_that_does_not_name_it(make):
    blames = (make.blame("a", "b", exact=False), make.blame("b", round=2))
    assert lights(make.run(make.of_model("loss", blames=blames))) == {
        "a": ("warn", "?"), "b": ("bad", "✗"),
    }  # fmt: skip


def test_stages_of_another_implementation_say_nothing(make):
    mine = make.of_model("loss", implementation="mine", blames=(make.blame("a"),))
    other = make.of_model("b", part=Part.STAGE, implementation="other")
    assert lights(make.run(mine, other)) == {"a": ("bad", "✗")}


def test_where_every_stage_is_known_there_are_no_others(make):
    found = [make.of_model(f"s{i}", part=Part.STAGE) for i in range(25)]
    blames = (make.blame("s3"),)
    shown = lights(make.run(*found, make.of_model("loss", part=Part.VALUE, blames=blames)))
    assert [tone for tone, _ in shown.values()].count("good") == 24


def test_marks_are_told_without_colour():
    marks = [mark for _, mark, _ in figures.LIGHTS.values()]
    assert len(set(marks)) == len(marks)
    assert all(re.fullmatch(r"\S", mark) for mark in marks)
