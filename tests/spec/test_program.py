"""Programs: what contradicts itself is refused, and the reverse fold is the loss's gradient."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import activation, linear

from gradcheck.errors import SpecError
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digits import mp50
from gradcheck.spec.program import Nudged, Stage, Whole
from tests.net import build, stage


def program(**changes):
    return replace(build(), **changes)


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
