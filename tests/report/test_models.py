import itertools
import math

import pytest

from gradcheck.report import models, outline
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL


def names(model, part):
    return [row.output for row in model.block(part).rows]


def test_a_stage_a_parameter_and_a_loss_of_one_name_are_three_rows(make):
    parts = (Part.STAGE, Part.GRADIENT, Part.VALUE)
    run = make.run(*(make.of_model("loss", part=part) for part in parts))
    (model,) = models.models(run)
    assert [(b.part, [r.output for r in b.rows]) for b in model.blocks] == [
        (part, ["loss"]) for part in (Part.VALUE, Part.GRADIENT, Part.STAGE)
    ]


def test_what_only_a_longer_model_has_stands_between_its_neighbours(make):
    short, long = ("wte", "h.0", "out"), ("wte", "h.0", "h.1", "h.2", "out")
    for order in itertools.permutations((short, long, ("h.2", "last"))):
        run = make.run(*(make.of_model(n, size=str(i)) for i, s in enumerate(order) for n in s))
        (model,) = models.models(run)
        assert names(model, Part.GRADIENT) == ["wte", "h.0", "h.1", "h.2", "last", "out"]


def test_sizes_that_share_nothing_stand_one_after_the_other(make):
    run = make.run(*(make.of_model(n, size=n[0]) for n in ("a.1", "b.1", "b.2", "a.2")))
    (model,) = models.models(run)
    assert names(model, Part.GRADIENT) == ["a.1", "a.2", "b.1", "b.2"]


def test_operators_are_no_models_and_models_no_operators(model):
    (found,) = models.models(model)
    assert (found.name, found.dialect, found.sizes) == ("gpt2", "default", ("tiny", "large"))
    assert {row.op for table in outline.tables(model) for row in table.rows} == {
        "rms_norm", "softmax",
    }  # fmt: skip


def test_dialects_and_implementations_are_models_of_their_own(make):
    found = [
        make.of_model(dialect=dialect, implementation=who)
        for who in ("b", "a")
        for dialect in ("sum", "mean")
    ]
    run = make.run(*found, implementations=("a", "b"))
    assert [(m.implementation, m.dialect) for m in models.models(run)] == [
        ("a", "sum"), ("a", "mean"), ("b", "sum"), ("b", "mean"),
    ]  # fmt: skip


def test_what_could_not_be_judged_as_a_whole_is_no_row_unless_it_is_all_there_is(make):
    skipped = make.of_model("gradients", Verdict.SKIP, size="large", reason="too many")
    (model,) = models.models(make.run(make.of_model("wte"), skipped))
    assert [row.output for row in model.rows] == ["wte"]
    (model,) = models.models(make.run(skipped))
    assert [row.output for row in model.rows] == ["gradients"]
    raised = make.of_model("gradients", Verdict.ERROR, size="large", reason="it raised")
    (model,) = models.models(make.run(make.of_model("wte"), raised))
    assert [row.output for row in model.rows] == ["wte", "gradients"]
    assert model.verdict is Verdict.ERROR


def test_a_block_counts_rows_that_pass_everywhere(make):
    results = [
        make.of_model("a"),
        make.of_model("a", dtype="float32"),
        make.of_model("b"),
        make.of_model("b", FAIL, dtype="float32"),
        make.of_model("c", Verdict.SKIP),
    ]
    (model,) = models.models(make.run(*results))
    block = model.block(Part.GRADIENT)
    assert (block.passed, len(block.rows)) == (1, 3)
    assert model.block(Part.STAGE).rows == ()


def test_a_whole_model_is_as_bad_as_its_worst_row(make):
    bad = make.of_model("b", FAIL, dtype="float32")
    run = make.run(make.of_model("a"), make.of_model("a", dtype="float32"), bad)
    (model,) = models.models(run)
    assert models.whole(model, "float64").verdict is Verdict.PASS
    assert models.whole(model, "float32").verdict is FAIL
    assert len(models.whole(model, "float32").results) == 2
    assert models.whole(model, "mp50") is None


def test_a_row_is_told_by_its_worst_result_and_a_nan_is_the_worst(make):
    def passing(error, **changes):
        return make.of_model(worst=(make.miss(error=error, bound=1.0),), **changes)

    nan = make.of_model(verdict=FAIL, size="nan", worst=(make.miss(error=math.nan, bound=1.0),))
    bad = make.of_model(verdict=FAIL, size="bad", worst=(make.miss(error=2.0, bound=1.0),))
    for results in itertools.permutations([passing(0.5, size="good"), nan, bad]):
        (model,) = models.models(make.run(*results))
        assert models.telling(model.rows[0]).case.sample == "nan"
    near, certified = passing(0.5, size="near"), passing(0.9, dtype="mp50", size="ours")
    (model,) = models.models(make.run(certified, near, passing(0.1, size="far")))
    assert models.telling(model.rows[0]).case.sample == "near"
    (model,) = models.models(make.run(certified))
    assert models.telling(model.rows[0]).case.sample == "ours"
    (model,) = models.models(make.run(make.of_model(verdict=Verdict.MISSING)))
    assert models.telling(model.rows[0]) is None


def test_equal_blame_is_told_once_and_rounds_come_in_order(make):
    rounds = (make.blame("b", round=2), make.blame("a", round=1))
    other = (make.blame("c"),)
    run = make.run(
        *(
            make.of_model("loss", part=Part.VALUE, size=size, dtype=dtype, blames=rounds)
            for size in ("tiny", "large")
            for dtype in ("float64", "float32")
        ),
        make.of_model("loss", part=Part.VALUE, size="odd", blames=other),
        make.of_model("loss", part=Part.VALUE, size="fine"),
    )
    first, second = models.blamed(run)
    assert [blame.stages for blame in first.blames] == [("a",), ("b",)]
    assert first.where == "tiny, large in float64, float32"
    assert (second.where, second.blames) == ("odd in float64", other)


def test_blame_that_holds_for_some_cases_names_them_one_by_one(make):
    pairs = (("tiny", "float64"), ("tiny", "float32"), ("large", "float32"))
    run = make.run(
        *(
            make.of_model("loss", size=size, dtype=dtype, blames=(make.blame("a"),))
            for size, dtype in pairs
        )
    )
    (found,) = models.blamed(run)
    assert found.where == "tiny/float64, tiny/float32, large/float32"


@pytest.mark.parametrize("evaluations", [0, 26])
def test_only_models_that_leave_something_unseen_have_to_say_so(make, evaluations):
    seen = make.of_model("a", smallest_visible_error=0.5)
    operator = make.result(unresolved=3, evaluations=evaluations)
    assert models.sights(make.run(seen, operator)) == []
    blind = make.of_model("b", unresolved=3, evaluations=evaluations)
    (sight,) = models.sights(make.run(seen, blind, operator))
    assert sight.case == "gpt2/default/tiny/float64"
    expected = ((blind,), ()) if evaluations else ((), (blind,))
    assert (sight.projected, sight.coarse) == expected


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
        (("a",), True, "faulty stage: a (1 of 25 stages)"),
        (("a", "b"), True, "faulty stages: a, b (2 of 25 stages)"),
        (("a", "b"), False, "faulty stage: one of a, b (2 of 25 stages)"),
        (("a",), False, "faulty stage: a (1 of 25 stages)"),
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
        "round 3: faulty stage: one of a, b (2 of 25 stages)",
        "between the right gradient of x and the wrong one of y",
        "a/dropped",
        "b/twice",
        "one fault at a time",
    ]
    both = models.charges([blame, make.blame("c")])
    assert both.count("one fault at a time") == 1
    assert both[-2:] == ["round 1: faulty stage: c (1 of 25 stages)", "one fault at a time"]


def test_blocks_are_counted_and_named(make):
    assert models.block(Part.GRADIENT, 1) == "1 gradient"
    assert models.block(Part.STAGE, 2).startswith("2 stages, each at the reference's")
    assert models.block(Part.TRAINING, 1) == "1 training"
    (model,) = models.models(make.run(make.of_model("a"), make.of_model("b", Verdict.FAIL)))
    assert models.passed(model.block(Part.GRADIENT)) == "1/2"
    assert models.passed(model.block(Part.STAGE)) == "–"
