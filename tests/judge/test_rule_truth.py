"""The true results of a rule, and those of one that computes in a narrower type."""

import numpy as np
import pytest

from gradcheck.errors import SpecError
from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.spec.rule import RuleCase, RuleSpec, Steps
from tests.judge.heavy_ball import drawn, init, truth_of


@pytest.fixture(scope="module")
def truth():
    return truth_of()


def test_single_steps_are_known_exactly_and_a_way_as_well_as_float64_rounds(truth):
    for dtype in ("float64", "float32"):
        for row in truth.rows(dtype)["w"]:
            exact = row.single or dtype == "float64"
            lost = 0.0 if exact else 4 * 2.0**-53 * row.cost
            np.testing.assert_array_equal(row.bar, np.abs(row.want) * 2.0**-53 + lost)


def test_a_rule_that_changes_shapes_is_at_fault_itself():
    def flat(xp, params, grads, state, t, *, momentum=0.5):
        return {n: xp.reshape(p, (-1,)) for n, p in params.items()}, {}

    sample = Steps(name="typical", hunts="a sign", params=drawn, gradients=drawn)
    spec = RuleSpec("heavy", init, flat, (sample,), "p", "s")
    with pytest.raises(SpecError, match="gives tensors of shape"):
        RuleTruth(RuleCase(spec, spec.dialects[0], sample, 0, "test"))


def test_a_rule_that_gives_no_numbers_is_at_fault_itself():
    def divide(xp, params, grads, state, t, *, momentum=0.5):
        return {n: p / (0 * p) for n, p in params.items()}, {}

    sample = Steps(name="typical", hunts="a sign", params=drawn, gradients=drawn)
    spec = RuleSpec("heavy", init, divide, (sample,), "p", "s")
    with pytest.raises((SpecError, ZeroDivisionError)):
        RuleTruth(RuleCase(spec, spec.dialects[0], sample, 0, "test")).rows("float64")


def test_narrower_rules_are_tried_at_the_first_a_middle_and_the_last_step(truth):
    found = truth.narrowed("float32")
    assert {kind: set(steps) for kind, steps in found.items() if "bfloat16" in kind} == {
        "bfloat16-params": {"step 1", "step 11", "step 20"},
        "bfloat16-state": {"step 11", "step 20"},  # it is zero at first
        "bfloat16-gradients": {"step 1", "step 11", "step 20"},
        "bfloat16-result": {"step 1", "step 11", "step 20"},
    }


def test_a_narrower_type_shows_in_what_follows_from_what_it_rounds(truth):
    steps = truth.narrowed("float32")
    assert steps["bfloat16-params"]["step 20"].keys() == {"w", "s"}  # no buffer reads them
    every = {"w", "s", "buf.w", "buf.s"}
    assert steps["bfloat16-gradients"]["step 20"].keys() == every
    assert steps["bfloat16-result"]["step 20"].keys() == every
    for row in truth.rows("float32")["w"]:
        if row.name == "step 20":
            short = steps["bfloat16-result"]["step 20"]["w"]
            off = np.abs(short - (row.base + row.want)) / np.abs(short)
            assert 2.0**-13 < off.max() <= 2.0**-8
