"""Programs: what contradicts itself is refused, and the reverse fold is the loss's gradient."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import activation, linear

from gradcheck.errors import SpecError
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.spec.program import Nudged, Stage, Whole
from tests.net import build, stage


def drawn(tensors):
    return {name: value(Draw("program", name)) for name, value in tensors.items()}


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


STAGES = build().stages
AGAIN = stage("again", activation.tanh, "a", "r")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"stages": STAGES[2:]}, "reads 'r' before it is written"),
        ({"stages": (*STAGES[:2], AGAIN, *STAGES[2:])}, "writes 'r' a second time"),
        (
            {"stages": (STAGES[0], replace(STAGES[1], name="hidden"), *STAGES[2:])},
            "two stages are called 'hidden'",
        ),
        ({"params": {**build().params, "w3": lambda draw: 0}}, "no stage reads 'w3'"),
        ({"inputs": {**build().inputs, "w1": lambda draw: 0}}, "share a name"),
        ({"loss": "r"}, "must write the loss 'r'"),
    ],
)
def test_a_program_that_contradicts_itself_is_refused(changes, says):
    with pytest.raises(SpecError, match=says):
        replace(build(), **changes)


def test_tied_parameters_collect_every_share():
    net = build()
    assert net.tied == {"w2"}
    assert [s.name for s in net.readers["w2"]] == ["mix", "out"]
    values = net.forward(F64, drawn({**net.params, **net.inputs}))
    whole = net.backward(F64, values, np.array(1.0))

    def without(name):
        def vjp(stage, cts, values):
            found = stage.vjp(F64, cts, values)
            return (found[0], None, *found[2:]) if stage.name == name else found

        return net.backward(F64, values, np.array(1.0), vjp)["w2"]

    np.testing.assert_allclose(without("mix") + without("out"), whole["w2"], rtol=1e-14)
    assert np.abs(without("mix")).max() > 0 < np.abs(without("out")).max()


def test_the_fold_is_linear_in_where_it_starts():
    net = build()
    values = net.forward(F64, drawn({**net.params, **net.inputs}))
    whole = net.backward(F64, values, np.array(1.0))
    part = net.backward(F64, values, np.array(0.0), start={"r": whole["r"]})
    np.testing.assert_allclose(part["w1"], whole["w1"], rtol=1e-14)
    assert "w2" not in part


def test_backward_agrees_with_differences_of_the_loss():
    net = build()
    whole = Whole(net, drawn(net.inputs))
    params = list(drawn(net.params).values())
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
    net, xp, calls = build(), mp50(), []
    inputs = drawn(net.inputs)
    original = Stage.forward

    def counted(self, *given):
        calls.append(self.name)
        return original(self, *given)

    params = [xp.asarray(p) for p in drawn(net.params).values()]
    whole = Whole(net, inputs)
    nudged = Nudged(net, inputs, dict(zip(net.params, params, strict=True)))
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
    names = [s.name for s in net.stages]
    once = [*names, *names, *names[2:], *names, *names[2:]]  # all at first, then what is moved
    assert calls == once * 2
