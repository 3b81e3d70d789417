"""From the judgement of a model to who is to blame: wherever its code is bound."""

from dataclasses import replace

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.errors import LoadError
from gradcheck.explain.model_blame import ModelBlame
from gradcheck.implementations.bound import BoundModel
from gradcheck.implementations.reference import Reference
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.results.finding import Part
from gradcheck.spec.mutant import mutants_of

CASE = next(c for c in gradcheck_cases.SUITE.model_cases(["gpt2"]) if c.size.name == "tiny")
TRUTH = ModelTruth(CASE)
GUILT = ModelBlame(TRUTH, lambda: mutants_of(gradcheck_cases.SUITE))


class Foreign:
    name = "foreign"

    def __init__(self, **parts):
        self.parts = parts

    def bind_model(self, case, dtype):
        return BoundModel(**self.parts)


def stages(changes, dtype="float64"):
    """The reference's VJPs, those of some stages changed."""
    xp = FLOATS[dtype]

    def vjp(stage, cts, values):
        found = list(stage.vjp(xp, cts, values))
        return tuple(changes[stage.name](found) if stage.name in changes else found)

    return vjp


def whole(changes, dtype="float64"):
    """The same, folded into one backward."""
    xp, vjp = FLOATS[dtype], stages(changes, dtype)

    def gradients(params, inputs):
        values = CASE.program.forward(xp, {**params, **inputs})
        cts = CASE.program.backward(xp, values, xp.asarray(1.0), vjp)
        return {name: np.asarray(cts[name]) for name in params if name in cts}

    return gradients


def blames(binding, dtype="float64", guilt=GUILT):
    found = guilt.blamed(judge_model(TRUTH, binding, dtype), dtype)
    carrying = [f for f in found if f.blames]
    assert len(carrying) <= 1  # one finding carries all of a case
    return carrying[0].blames if carrying else ()


def times(factor, slot=0):
    def change(found):
        found[slot] = found[slot] * found[slot].dtype.type(factor)
        return found

    return change


def without(slot):
    def change(found):
        found[slot] = None
        return found

    return change


@pytest.mark.slow
def test_nobody_is_to_blame_where_everything_is_right():
    assert blames(Reference()) == ()
    assert blames(Foreign(gradients=whole({}))) == ()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_bound_stage_is_blamed_exactly_and_in_words(dtype):
    vjp = stages({"h.1.mlp.gelu": times(2)}, dtype)
    (blame,) = blames(Foreign(stage=lambda stage: vjp), dtype)
    assert blame.exact
    assert blame.stages == ("h.1.mlp.gelu",)
    assert blame.of == len(CASE.program.stages)
    assert "dx is twice the right value" in " ".join(blame.names)
    assert "one fault a round" in blame.assumption


def test_several_faults_are_blamed_one_after_another_from_the_loss_backwards():
    vjp = stages({"h.0.ln_2": times(2), "ln_f": without(1), "h.1.attn": times(-1)})
    found = blames(Foreign(stage=lambda stage: vjp))
    assert [b.stages for b in found] == [("ln_f",), ("h.1.attn",), ("h.0.ln_2",)]
    assert [b.round for b in found] == [1, 2, 3]
    assert "no gradient of `ln_f.w` is produced" in " ".join(found[0].names)
    assert "wrong sign" in " ".join(found[1].names)


def test_only_what_is_bound_is_blamed():
    vjp = stages({"h.0.ln_2": times(2)})
    bound = Foreign(stage=lambda stage: vjp if stage.name == "h.0.ln_2" else None)
    assert [b.stages for b in blames(bound)] == [("h.0.ln_2",)]


@pytest.mark.suite(keep=2, rest=5)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["h.0.attn", "h.1.ln_1", "unembed", "h.0.residual_2"])
def test_the_suspects_of_a_whole_backward_hold_the_guilty_stage(name, dtype):
    (blame,) = blames(Foreign(gradients=whole({name: times(1.25)}, dtype)), dtype)
    assert not blame.exact
    assert name in blame.stages
    assert len(blame.stages) <= 4
    assert "single stage is assumed" in blame.assumption


def test_a_tied_weight_that_is_overwritten_is_named():
    gradients = whole({"encoder": without(0)})
    (blame,) = blames(Foreign(gradients=gradients))
    assert "that of `encoder` is overwritten instead of added" in " ".join(blame.names)


def test_a_gradient_that_is_not_returned_points_at_its_reader():
    gradients = whole({"h.0.attn.proj": without(1)})
    (blame,) = blames(Foreign(gradients=gradients))
    assert "h.0.attn.proj" in blame.stages


@pytest.mark.slow
def test_a_cotangent_of_a_value_that_is_returned_too_narrows_the_suspects():
    change = {"h.0.attn": times(1.25)}

    def more(params, inputs):
        xp, vjp = FLOATS["float64"], stages(change)
        values = CASE.program.forward(xp, {**params, **inputs})
        cts = CASE.program.backward(xp, values, xp.asarray(1.0), vjp)
        shown = CASE.program.stage("h.0.attn").reads[0]
        return {name: np.asarray(cts[name]) for name in (*params, shown)}

    (few,) = blames(Foreign(gradients=more))
    (many,) = blames(Foreign(gradients=whole(change)))
    assert "h.0.attn" in few.stages
    assert len(few.stages) < len(many.stages)


def test_a_table_of_mutants_at_fault_does_not_hide_who_is_to_blame():
    def broken():
        raise LoadError("no table")

    vjp = stages({"h.1.mlp.gelu": times(2)})
    found = blames(Foreign(stage=lambda stage: vjp), guilt=ModelBlame(TRUTH, broken))
    assert [b.stages for b in found] == [("h.1.mlp.gelu",)]


def test_a_stage_that_raises_is_blamed_with_what_it_said():
    def vjp(stage, cts, values):
        if stage.name == "ln_f":
            raise ArithmeticError("nothing to divide by")
        return stage.vjp(FLOATS["float64"], cts, values)

    (blame,) = blames(Foreign(stage=lambda stage: vjp))
    assert blame.stages == ("ln_f",)
    assert "nothing to divide by" in " ".join(blame.names)


def test_the_loss_carries_the_blame_where_it_was_judged():
    def loss(params, inputs):
        return CASE.program.forward(FLOATS["float64"], {**params, **inputs})["loss"]

    judged = judge_model(TRUTH, Foreign(gradients=whole({"ln_f": times(2)}), loss=loss), "float64")
    found = GUILT.blamed(judged, "float64")
    assert [f.part for f in found if f.blames] == [Part.VALUE]
    assert replace(found[0], blames=()) == judged.findings[0]
