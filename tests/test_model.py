"""Programs and models: what contradicts itself is refused, and what is drawn depends on names."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import activation, indexing, linear, loss, reduction

from gradcheck.arithmetic import F64
from gradcheck.errors import SpecError, UnknownNameError
from gradcheck.fifty_digits import mp50
from gradcheck.model import MARGIN, ModelCase, ModelSpec, Nudged, Program, Size, Stage, Whole
from gradcheck.spec import DEFAULT
from gradcheck.suite import Suite


def stage(name, op, reads, writes, **attrs):
    return Stage(name=name, op=op, reads=tuple(reads.split()), writes=writes, attrs=attrs)


def build(*, n=5, d=3, h=4):
    """A net with one hidden layer, whose second matrix is read twice."""
    return Program(
        params={
            "w1": lambda draw: draw.normal(h, d),
            "b1": lambda draw: draw.normal(h),
            "w2": lambda draw: draw.normal(h, h),
        },
        inputs={"x": lambda draw: draw.normal(n, d), "y": lambda draw: draw.normal(n, h)},
        stages=(
            stage("hidden", linear.matmul, "x w1 b1", "a"),
            stage("act", activation.relu, "a", "r"),
            stage("mix", linear.matmul, "r w2", "m"),
            stage("out", linear.matmul, "m w2", "p"),
            stage("errors", loss.square_error, "p y", "e"),
            stage("loss", reduction.sum_all, "e", "loss"),
        ),
        loss="loss",
    )


TINY = (Size(name="tiny", hunts="anything"),)


def spec(builder=build, sizes=TINY, **fields):
    given = {"name": "toy", "says": "a toy", "source": "here", **fields}
    return ModelSpec(build=builder, sizes=sizes, **given)


def case(model=None, seed=0):
    model = model or spec()
    return ModelCase(model, model.dialects[0], model.sizes[0], seed, "toys")


def program(**changes):
    return replace(build(), **changes)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("name", "Loss", "lower-case"),
        ("reads", ("x",), "reads"),
        ("reads", ("x", "w", "b", "c"), "reads"),
        ("attrs", {"bias": 1}, "bias"),
    ],
)
def test_a_stage_that_its_operator_cannot_be_is_refused(field, value, says):
    good = {"name": "out", "op": linear.matmul, "reads": ("x", "w"), "writes": "y"}
    with pytest.raises(SpecError, match=says):
        Stage(**{**good, field: value})


def test_a_program_reads_only_what_is_written():
    with pytest.raises(SpecError, match="reads 'r' before it is written"):
        program(stages=build().stages[2:])


def test_a_program_writes_each_value_once():
    again = stage("again", activation.tanh, "a", "r")
    stages = build().stages
    with pytest.raises(SpecError, match="writes 'r' a second time"):
        program(stages=(*stages[:2], again, *stages[2:]))


def test_two_stages_do_not_share_a_name():
    stages = build().stages
    with pytest.raises(SpecError, match="two stages are called 'hidden'"):
        program(stages=(stages[0], replace(stages[1], name="hidden"), *stages[2:]))


def test_a_parameter_that_no_stage_reads_is_refused():
    with pytest.raises(SpecError, match="no stage reads 'w3'"):
        program(params={**build().params, "w3": lambda draw: draw.normal(2)})


def test_a_parameter_and_an_input_do_not_share_a_name():
    with pytest.raises(SpecError, match="share a name"):
        program(inputs={**build().inputs, "w1": lambda draw: draw.normal(2)})


def test_the_last_stage_writes_the_loss():
    with pytest.raises(SpecError, match="must write the loss 'r'"):
        program(loss="r")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "Toy"}, "lower-case"),
        ({"says": " "}, "`says` is empty"),
        ({"source": ""}, "`source` is empty"),
        ({"sizes": ()}, "no sizes"),
        ({"sizes": (Size(name="a", hunts="x"), Size(name="a", hunts="y"))}, "two sizes"),
        ({"dialects": (*DEFAULT, *DEFAULT)}, "two dialects"),
        ({"sizes": (Size(name="a", hunts="x", attrs={"width": 2}),)}, "'width' is not a keyword"),
        ({"builder": lambda n: None}, "keyword-only"),
        ({"builder": lambda *, n: None}, "keyword-only, with a default"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(changes, says):
    with pytest.raises(SpecError, match=says):
        _ = spec(**changes).defaults


def test_a_size_says_what_it_hunts():
    with pytest.raises(SpecError, match="hunts"):
        Size(name="tiny", hunts=" ")


def test_a_number_depends_on_names_alone():
    given = case().given
    more = spec(lambda *, n=5, d=3, h=4: replace(build(), loss="loss"))
    for name, value in case(more).given.items():
        np.testing.assert_array_equal(value, given[name])
    other = case(seed=1).given
    assert all(not np.array_equal(other[name], given[name]) for name in given)


def test_what_is_given_cannot_be_written_into():
    with pytest.raises(ValueError, match="read-only"):
        case().given["w1"][0, 0] = 1.0


def test_values_that_float32_does_not_hold_are_refused():
    thirds = spec(lambda: program(params={**build().params, "b1": lambda draw: np.full(4, 1 / 3)}))
    with pytest.raises(SpecError, match="float32 does not hold the values of 'b1'"):
        _ = case(thirds).given


@pytest.mark.parametrize("seed", range(20))
def test_values_keep_their_distance_from_kinks(seed):
    values = build().forward(F64, case(seed=seed).given)
    assert np.abs(values["a"]).min() >= MARGIN


def kinked(at_kink):
    def blank(*, n=5):
        zeros = {"x": lambda draw: np.zeros((n, 3)), "y": lambda draw: draw.normal(n, 4)}
        params = {**build().params, "b1": lambda draw: np.array([0.0, 1.0, -1.0, 0.5])}
        return program(inputs=zeros, params=params)

    return case(spec(blank, (Size(name="tiny", hunts="x", at_kink=at_kink),)))


def test_a_size_that_always_meets_a_kink_is_at_fault_and_names_the_stage():
    with pytest.raises(SpecError, match="close to a kink, the last time at stage 'act'"):
        _ = kinked(at_kink=False).given


def test_a_size_may_sit_exactly_on_a_kink_if_it_says_so():
    assert kinked(at_kink=True).given["x"].sum() == 0


def test_the_fingerprint_changes_with_values_and_stages():
    here = case().fingerprint
    assert case().fingerprint == here
    assert case(seed=1).fingerprint != here
    tanh = spec(
        lambda: program(
            stages=tuple(
                replace(s, op=activation.tanh) if s.name == "act" else s for s in build().stages
            )
        )
    )
    assert case(tanh).fingerprint != here


def test_a_stage_that_raises_is_named():
    broken = spec(lambda: program(inputs={**build().inputs, "x": lambda draw: draw.normal(5, 7)}))
    with pytest.raises(SpecError, match=r"stage 'hidden' \(matmul\) raised ValueError"):
        _ = case(broken).given


def test_tied_parameters_collect_every_share():
    here = case()
    program = here.program
    assert program.tied == {"w2"}
    assert [s.name for s in program.readers["w2"]] == ["mix", "out"]
    values = program.forward(F64, here.given)
    whole = program.backward(F64, values, np.array(1.0))

    def without(name):
        def vjp(stage, cts, values):
            found = stage.vjp(F64, cts, values)
            return (found[0], None, *found[2:]) if stage.name == name else found

        return program.backward(F64, values, np.array(1.0), vjp)["w2"]

    np.testing.assert_allclose(without("mix") + without("out"), whole["w2"], rtol=1e-14)
    assert np.abs(without("mix")).max() > 0 < np.abs(without("out")).max()


def test_the_fold_is_linear_in_where_it_starts():
    here = case()
    program = here.program
    values = program.forward(F64, here.given)
    whole = program.backward(F64, values, np.array(1.0))
    part = program.backward(F64, values, np.array(0.0), start={"r": whole["r"]})
    np.testing.assert_allclose(part["w1"], whole["w1"], rtol=1e-14)
    assert "w2" not in part


def test_backward_agrees_with_differences_of_the_loss():
    here = case()
    whole = Whole(here.program, here.inputs)
    params = list(here.params.values())
    gradients = whole.vjp(F64, np.array(1.0), *params)
    for index, gradient in enumerate(gradients):
        direction = np.random.default_rng(index).normal(size=gradient.shape)
        ends = []
        for sign in (1, -1):
            moved = list(params)
            moved[index] = params[index] + sign * 1e-6 * direction
            ends.append(float(whole.forward(F64, *moved)))
        slope = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-7)


def test_what_no_moved_parameter_reaches_is_remembered_and_nothing_else_is(monkeypatch):
    here, xp, calls = case(), mp50(), []
    original = Stage.forward

    def counted(self, *given):
        calls.append(self.name)
        return original(self, *given)

    params = [xp.asarray(p) for p in here.params.values()]
    whole = Whole(here.program, here.inputs)
    nudged = Nudged(here.program, here.inputs, dict(zip(here.params, params, strict=True)))
    for digits in (50, 75):
        with xp.context.workdps(digits):
            for index in (0, 2, 1, 2):
                moved = list(params)
                moved[index] = params[index] + xp.const("1e-25")
                want = whole.forward(xp, *moved)
                with monkeypatch.context() as patch:
                    patch.setattr(Stage, "forward", counted)
                    got = nudged.forward(xp, *moved)
                assert got == want
                assert got != whole.forward(xp, *params)
            every = [p + xp.const("1e-25") for p in params]
            assert nudged.forward(xp, *every) == whole.forward(xp, *every)
    names = [s.name for s in here.program.stages]
    once = [*names, *names, *names[2:], *names, *names[2:]]  # all at first, then what is moved
    assert calls == once * 2


def test_integers_are_kept_as_they_are():
    tokens = spec(
        lambda: Program(
            params={"e": lambda draw: draw.normal(5, 3)},
            inputs={"tokens": lambda draw: draw.integers(0, 5, 4)},
            stages=(
                stage("rows", indexing.get_rows, "e tokens", "x"),
                stage("loss", reduction.sum_all, "x", "loss"),
            ),
            loss="loss",
        )
    )
    here = case(tokens)
    assert here.given["tokens"].dtype == np.int64
    assert list(here.params) == ["e"]
    assert list(here.inputs) == ["tokens"]


# ── the suite ────────────────────────────────────────────────────────────────────────────────


def test_a_model_does_not_share_a_name_with_an_operator():
    with pytest.raises(SpecError, match="two specs are called 'matmul'"):
        Suite("s", "1", [linear.matmul], models=[spec(name="matmul")])


def test_cases_are_selected_by_globs():
    sizes = (Size(name="tiny", hunts="x"), Size(name="wide", hunts="y", attrs={"h": 7}))
    suite = Suite("s", "1", [], models=[spec(sizes=sizes), spec(name="other")])
    assert [c.name for c in suite.model_cases(["t*"])] == ["toy/default/tiny", "toy/default/wide"]
    assert [c.name for c in suite.model_cases(sizes=["wide"])] == ["toy/default/wide"]
    for what in ({"models": ["tor"]}, {"sizes": ["tinny"]}, {"dialects": ["x"]}):
        with pytest.raises(UnknownNameError):
            suite.model_cases(**what)


def test_joined_suites_keep_their_models_and_their_numbers():
    one, two = Suite("a", "1", [], models=[spec()]), Suite("b", "1", [], models=[spec(name="z")])
    both = Suite.joined([one, two])
    assert list(both.models) == ["toy", "z"]
    first, second = both.model_cases(["toy"])[0], one.model_cases()[0]
    np.testing.assert_array_equal(first.given["w1"], second.given["w1"])
