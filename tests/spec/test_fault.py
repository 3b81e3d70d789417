"""Planted faults: what contradicts its model is told, and each builder is wrong in one way."""

import numpy as np
import pytest
from gradcheck_cases import SUITE, elementwise, linear, reduction

from gradcheck import ModelSpec, Suite
from gradcheck.errors import LoadError, SpecError, UnknownNameError
from gradcheck.implementations.bound import BoundModel
from gradcheck.numerics.arithmetic import F64
from gradcheck.power import mutate
from gradcheck.power.model import Planted
from gradcheck.spec import fault as planting
from gradcheck.spec.fault import Fault, faults_of
from gradcheck.spec.model import ModelCase, Size
from gradcheck.spec.program import Program, Stage


def build(*, n=3):
    return Program(
        params={"w": lambda draw: draw.normal(2, n), "b": lambda draw: draw.normal(2)},
        inputs={"x": lambda draw: draw.normal(4, n)},
        stages=(
            Stage(name="dense", op=linear.matmul, reads=("x", "w", "b"), writes="y"),
            Stage(name="square", op=elementwise.sqr, reads=("y",), writes="y2"),
            Stage(name="sum", op=reduction.sum_all, reads=("y2",), writes="loss"),
        ),
        loss="loss",
    )


SPEC = ModelSpec(
    name="tiny-model", build=build, says="a model", source="here",
    sizes=(Size(name="tiny", hunts="anything"),),
)  # fmt: skip
CASE = ModelCase(SPEC, SPEC.dialects[0], SPEC.sizes[0], 0, "tests")


def plant(wrong=None, **options):
    usual = {
        "model": "tiny-model", "name": "wrong", "says": "It is wrong.", "kind": "sign",
        "stages": ("dense",), "wrong": wrong or planting.scaled(1, -1.0),
    }  # fmt: skip
    return Fault(**{**usual, **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "No Name"}, "lower-case letters"),
        ({"kind": "strange"}, "no kind 'strange'"),
        ({"says": " "}, "one sentence"),
        ({"stages": ()}, "name the stages"),
    ],
)
def test_a_fault_that_contradicts_itself(options, says):
    with pytest.raises(SpecError, match=says):
        plant(**options)


def table(monkeypatch, *faults):
    monkeypatch.setattr(planting, "TABLE", faults, raising=False)
    return Suite("mine", "1", [], models=[SPEC], faults="gradcheck.spec.fault:TABLE")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"model": "nobody"}, SpecError, "no model 'nobody'"),
        ({"stages": ("dens",)}, SpecError, "has no stage 'dens'"),
        ({"dialects": ("other",)}, UnknownNameError, "unknown dialect of tiny-model 'other'"),
    ],
)
def test_a_fault_that_contradicts_its_model(monkeypatch, options, error, says):
    with pytest.raises(error, match=says):
        faults_of(table(monkeypatch, plant(**options)))


def test_two_faults_of_one_name(monkeypatch):
    with pytest.raises(SpecError, match="two faults are called tiny-model/wrong"):
        faults_of(table(monkeypatch, plant(), plant()))


def test_a_table_of_something_else(monkeypatch):
    with pytest.raises(LoadError, match="make it a tuple of"):
        faults_of(table(monkeypatch, "no fault"))


def test_faults_of_joined_suites(monkeypatch):
    joined = Suite.joined([SUITE, table(monkeypatch, plant())])
    found = faults_of(joined)
    assert [f.full_name for f in found["tiny-model"]] == ["tiny-model/wrong"]
    assert len(found["gpt2"]) >= 10


def gradients(wrong):
    """dx, dw, db of the stage `dense`: the right ones and the wrong ones."""
    program = CASE.program
    values = program.forward(F64, {**CASE.given, "other": CASE.given["x"][::-1]})
    stage = program.stage("dense")
    cts = (np.arange(1.0, 9.0).reshape(4, 2),)
    return stage.vjp(F64, cts, values), wrong(F64, stage, cts, values), values


def same(a, b):
    return [np.array_equal(p, q) for p, q in zip(a, b, strict=True)]


def test_builders():
    for wrong, expected in (
        (planting.scaled(1, 2.0), lambda g: g[1] * 2),
        (planting.changed(1, mutate.zeros), lambda g: g[1] * 0),
        (planting.at(1, (0, slice(None)), 3.0), lambda g: g[1] * [[3.0], [1.0]]),
    ):
        right, found, _ = gradients(wrong)
        assert same(right, found) == [True, False, True]
        np.testing.assert_allclose(found[1], expected(right))


def test_a_stage_that_reads_another_value():
    right, found, values = gradients(planting.reading({0: "other"}))
    assert same(right, found) == [True, False, True]
    np.testing.assert_allclose(found[1], np.arange(1.0, 9.0).reshape(4, 2).T @ values["other"])
    both = planting.reading({0: "other"}, planting.scaled(1, 2.0))
    np.testing.assert_allclose(gradients(both)[1][1], 2 * found[1])


def test_a_cotangent_that_is_changed_first():
    right, found, _ = gradients(planting.fed(lambda xp, ct, *primals, **attrs: 2 * ct))
    assert [np.allclose(2 * a, b) for a, b in zip(right, found, strict=True)] == [True] * 3


def test_another_operators_vjp():
    def exchanged(xp, ct, x, w, b=None):
        return linear.matmul.vjp(xp, -ct, x, w, b)

    right, found, _ = gradients(planting.of_operator(exchanged))
    assert [np.allclose(-a, b) for a, b in zip(right, found, strict=True)] == [True] * 3


def test_planted_is_an_implementation_of_its_model_alone():
    fault = plant(dialects=("default",))
    other = ModelCase(SUITE.models["gpt2"], SUITE.models["gpt2"].dialects[0],
                      SUITE.models["gpt2"].sizes[0], 0, "tests")  # fmt: skip
    assert Planted(fault).bind_model(other, "float64") is None
    by_stage = Planted(fault).bind_model(CASE, "float64")
    whole = Planted(fault, whole=True).bind_model(CASE, "float64")
    assert isinstance(by_stage, BoundModel)
    assert by_stage.gradients is None
    found = whole.gradients(CASE.params, CASE.inputs)
    right = CASE.program.backward(F64, CASE.program.forward(F64, CASE.given), np.array(1.0))
    np.testing.assert_allclose(found["w"], -right["w"])
    np.testing.assert_array_equal(found["b"], right["b"])


def test_a_gradient_that_is_missing_is_left_out():
    fault = plant(planting.changed(1, mutate.nothing))
    found = Planted(fault, whole=True).bind_model(CASE, "float32")
    assert list(found.gradients(
        {n: p.astype(np.float32) for n, p in CASE.params.items()},
        {n: p.astype(np.float32) for n, p in CASE.inputs.items()},
    )) == ["b"]  # fmt: skip
