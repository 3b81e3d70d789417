"""Models: what contradicts itself is refused, and what is drawn depends on names."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import activation, indexing, linear, reduction

from gradcheck.errors import SpecError, UnknownNameError
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec import DEFAULT
from gradcheck.spec.model import MARGIN, ModelCase, ModelSpec, Size
from gradcheck.spec.program import Program
from gradcheck.spec.suite import Suite
from tests.net import build, stage

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


@pytest.mark.parametrize("value", [1e-50, 1e39, np.nan])
def test_values_that_float32_does_not_hold_are_refused(value):
    lost = spec(lambda: program(params={**build().params, "b1": lambda draw: np.full(4, value)}))
    with pytest.raises(SpecError, match="float32 does not hold the values of 'b1'"):
        _ = case(lost).given


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
