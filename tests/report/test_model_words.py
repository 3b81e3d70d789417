import math

import pytest

from gradcheck.report import models
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict


def sight(make, *results):
    (found,) = models.sights(make.run(*results))
    return models.sight(found)


def projected(make, output, least, **changes):
    return make.of_model(output, smallest_visible_error=least, evaluations=26, **changes)


def test_the_blindest_projection_is_the_one_that_is_named(make):
    results = [projected(make, f"w{i}", least) for i, least in enumerate([1e-7, 3e-5, 1e-6])]
    assert sight(make, *results) == (
        "an error of 3e-05 of a typical element in dw1, the blindest of 3 projected gradients "
        "(1e-06 in the median); 78 forward evaluations"
    )


def test_a_projection_that_saw_nothing_is_the_blindest(make):
    text = sight(make, projected(make, "a", 1e-7), projected(make, "b", math.inf))
    assert text.startswith("an error of inf of a typical element in db")
    assert sight(make, projected(make, "a", None)) == "26 forward evaluations"


def test_unresolved_elements_are_counted_and_the_first_gradients_named(make):
    results = [make.of_model(f"w{i}", unresolved=1000) for i in range(6)]
    assert sight(make, *results) == (
        "6,000 elements too uncertain to be judged: dw0 (1,000), dw1 (1,000), dw2 (1,000), "
        "dw3 (1,000) and 2 more"
    )
    one = make.of_model("ln_f", part=Part.STAGE, unresolved=1)
    assert sight(make, one) == "1 element too uncertain to be judged: stage ln_f (1)"


def test_of_several_models_the_one_with_most_unresolved_elements_is_named(make):
    def found(*counts):
        results = [make.of_model("w", op=f"m{i}", unresolved=n) for i, n in enumerate(counts)]
        return models.together(models.sights(make.run(*results)))

    assert found(1, 5, 2) == [
        "8 elements too uncertain to be judged, the most of them in m1/default/tiny/float64: "
        "--model m1 says where"
    ]
    assert found() == []


def test_of_several_models_the_blindest_projection_is_named_with_its_case(make):
    leasts = {"a": 1e-7, "b": 3e-5, "c": 1e-6}
    results = [projected(make, "w", least, op=op) for op, least in leasts.items()]
    assert models.together(models.sights(make.run(*results))) == [
        "an error of 3e-05 of a typical element in b/default/tiny/float64 · dw, the blindest of "
        "3 projected gradients (1e-06 in the median); 78 forward evaluations"
    ]


@pytest.mark.parametrize(
    ("stages", "exact", "said"),
    [
        (("a",), True, "guilty: a (1 of 25 stages)"),
        (("a", "b"), True, "guilty: a, b (2 of 25 stages)"),
        (("a", "b"), False, "one of 2 of 25 stages: a, b"),
        (("a",), False, "a, the only suspect of 25 stages"),
    ],
)
def test_an_accusation_never_says_more_than_is_known(make, stages, exact, said):
    assert models.accusation(make.blame(*stages, exact=exact)) == said


@pytest.mark.parametrize(
    ("bounds", "exact", "said"),
    [
        (("ln_f.w", "wte"), False, "between the right gradient of ln_f.w and the wrong one of wte"),
        (("", "wte"), False, "between the loss and the wrong one of wte"),
        (("ln_f.w", ""), False, ""),
        (("", ""), False, ""),
        (("ln_f.w", "wte"), True, ""),
    ],
)
def test_an_interval_has_two_ends(make, bounds, exact, said):
    assert models.interval(make.blame("a", exact=exact, bounds=bounds)) == said


def test_everything_that_is_known_of_a_round_is_said_in_order(make):
    blame = make.blame(
        "a", "b", exact=False, bounds=("x", "y"), names=("a/dropped", "b/twice"), round=3
    )
    assert models.charges([blame]) == [
        "round 3: one of 2 of 25 stages: a, b",
        "between the right gradient of x and the wrong one of y",
        "a/dropped",
        "b/twice",
        "one fault at a time",
    ]
    both = models.charges([blame, make.blame("c")])
    assert both.count("one fault at a time") == 1
    assert both[-2:] == ["round 1: guilty: c (1 of 25 stages)", "one fault at a time"]


def test_blocks_are_counted_and_named(make):
    assert models.block(Part.GRADIENT, 1) == "1 gradient"
    assert models.block(Part.STAGE, 2).startswith("2 stages, each at the reference's")
    assert models.block(Part.TRAINING, 1) == "1 training"
    (model,) = models.models(make.run(make.of_model("a"), make.of_model("b", Verdict.FAIL)))
    assert models.passed(model.block(Part.GRADIENT)) == "1/2"
    assert models.passed(model.block(Part.STAGE)) == "–"
