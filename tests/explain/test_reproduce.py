"""Where errors travel: the graph, and the derivatives of all values."""

import numpy as np
import pytest
from gradcheck_cases import SUITE, elementwise, recurrent, reduction

from gradcheck.explain.reproduce import (
    MAX_DERIVATIVE_NUMBERS,
    Derivatives,
    Reach,
    contributions,
    reproduce,
)
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.spec.mutant import KnownMutants
from gradcheck.spec.program import Program, Stage


def test_upstream_and_places(points):
    program = points.net.program
    reach = Reach(program)
    assert reach.upstream("w1") == {"w1"}
    assert reach.upstream("h") == {"h", "x0", "emb", "tokens", "w1", "b1"}
    assert reach.of(program.stage("proj")) == reach.upstream("a") | {"w2"}
    assert reach.place("emb") == 0
    assert reach.place("w2") == 3
    assert reach.place("loss") == len(program.stages)
    assert reach.tied("emb")
    assert not reach.tied("w1")
    assert not reach.tied("loss")


def test_what_still_gets_a_gradient(points):
    program = points.net.program
    reach = Reach(program)
    without = reach.without(program.stage("act"), "h")
    assert {"emb", "w2", "x0", "a"} <= without
    assert not {"w1", "b1", "h"} & without


@pytest.mark.parametrize("name", ["net", "keyed"])
def test_derivatives_of_the_loss_are_the_gradients(points, name):
    point = getattr(points, name)
    loss = point.derivatives.of("loss")
    for param, columns in point.derivatives.columns.items():
        gap = np.abs(loss[0, columns] - np.ravel(point.cts[param]))
        assert np.max(gap) <= 1e-14 + 1e-13 * point.size(param)


def test_a_derivative_in_the_middle_is_a_difference(points):
    point = points.net
    found = point.derivatives.of("x1")
    step = 1e-6
    ends = []
    for side in (1, -1):
        given = {n: point.values[n] for n in (*point.program.params, *point.program.inputs)}
        given["w1"] = given["w1"].copy()
        given["w1"][2, 1] += side * step
        ends.append(point.program.forward(F64, given)["x1"])
    slope = np.ravel(ends[0] - ends[1]) / (2 * step)
    column = point.derivatives.columns["w1"].start + 2 * 4 + 1
    assert np.max(np.abs(found[:, column] - slope)) <= 1e-8
    assert np.max(np.abs(slope)) > 1e-3


def test_columns_of_a_value_in_the_middle(points):
    point = points.net
    derivatives = Derivatives(point.program, point.values, ["a", "b1"])
    loss = derivatives.of("loss")[0]
    np.testing.assert_allclose(loss[derivatives.columns["a"]], np.ravel(point.cts["a"]), 1e-12)
    assert not np.any(derivatives.of("h")[:, derivatives.columns["a"]])


def test_a_stage_with_two_outputs():
    op = recurrent.lstm_cell
    sample = op.samples[0].primals(Draw("lstm"))
    names = tuple(f"p{i}" for i in range(len(sample)))
    program = Program(
        params={n: (lambda draw, p=p: p) for n, p in zip(names, sample, strict=True)},
        inputs={},
        stages=(
            Stage(name="cell", op=op, reads=names, writes=("y", "c")),
            Stage(name="y2", op=reduction.sum_all, reads=("y",), writes="ys"),
            Stage(name="c2", op=reduction.sum_all, reads=("c",), writes="cs"),
            Stage(name="both", op=elementwise.add, reads=("ys", "cs"), writes="loss"),
        ),
        loss="loss",
    )
    given = {n: d(None) for n, d in program.params.items()}
    values = program.forward(F64, given)
    cts = program.backward(F64, values, np.array(1.0))
    derivatives = Derivatives(program, values, names)
    whole = np.concatenate([np.ravel(cts[n]) for n in names])
    np.testing.assert_allclose(derivatives.of("loss")[0], whole, rtol=1e-12, atol=1e-14)


def test_what_is_too_large_is_not_affordable(points):
    point = points.net
    derivatives = Derivatives(point.program, point.values, list(point.program.params))
    assert derivatives.affordable
    values = dict(point.values)
    values["h"] = np.broadcast_to(0.0, (int(MAX_DERIVATIVE_NUMBERS),))
    assert not Derivatives(point.program, values, list(point.program.params)).affordable


BY_OP = KnownMutants(SUITE)


def told(point, got, suspects, dtype="float64"):
    got = {name: got.get(name) for name in point.program.params}
    return reproduce(
        point.program, point.values, point.cts, got, suspects, lambda op: BY_OP.get(op, ()), dtype
    )


def all_stages(point):
    return [stage.name for stage in point.program.stages]


def test_nothing_wrong_is_reproduced_by_nothing(points):
    assert told(points.net, points.net.fold(), all_stages(points.net)) == ()


def test_a_lost_residual_is_reproduced_at_its_stage(points, spoil):
    got = points.net.fold(residual=spoil.scaled(0, 0.0))
    found = told(points.net, got, all_stages(points.net))
    assert ("residual", "the gradient of `x0` is lost.") in [(f.stage, f.says) for f in found]


def test_a_mutant_is_reproduced(points):
    mutant = next(m for m in BY_OP["matmul"] if m.name == "bias-mean")

    def wrong(gradients, values):
        return list(
            mutant.fresh()(F64, points.net.cts["h"], *(values[n] for n in ("x0", "w1", "b1")))
        )

    (one,) = told(points.net, points.net.fold(fc=wrong), ["fc", "act"])
    assert one.stage == "fc"
    assert one.says.startswith("matmul/bias-mean")


def test_a_stage_that_is_no_suspect_is_not_tried(points, spoil):
    got = points.net.fold(residual=spoil.scaled(0, 0.0))
    assert told(points.net, got, ["ce"]) == ()


def test_what_no_hypothesis_gives_is_not_reproduced(points, spoil):
    got = points.net.fold(fc=spoil.element(1, 3, 1.37))
    assert told(points.net, got, all_stages(points.net)) == ()


def test_noise_in_a_gradient_that_is_zero_hides_nothing(points, spoil):
    point = points.keyed
    got = dict(point.fold(attend=spoil.scaled(1, -1.0)))
    got["bk"] = got["bk"] + 1e-17
    found = told(point, got, all_stages(point))
    assert ("attend", "the gradient of `k` has the wrong sign.") in [
        (f.stage, f.says) for f in found
    ]


@pytest.mark.parametrize("stage", ["embed", "unembed"])
def test_a_tied_gradient_that_was_overwritten(points, spoil, stage):
    point = points.net
    index = list(point.program.stage(stage).reads).index("emb")
    got = point.fold(**{stage: spoil.scaled(index, 0.0)})["emb"]
    said = contributions(point.program, point.values, point.cts, "emb", got, "float64")
    kept = {"embed": "unembed", "unembed": "embed"}[stage]
    assert f"the contribution of `{kept}` alone" in said
    assert f"that of `{stage}` is overwritten" in said


def test_a_tied_gradient_that_is_added_twice(points, spoil):
    point = points.net
    got = point.fold(embed=spoil.scaled(0, 2.0))["emb"]
    said = contributions(point.program, point.values, point.cts, "emb", got, "float64")
    assert said == "`emb`: the contribution of `embed` is added twice."


def test_tied_gradients_without_a_story(points, spoil):
    point = points.net
    given = (point.program, point.values, point.cts)
    got = point.fold(embed=spoil.element(0, 1, 1.1))["emb"]
    assert contributions(*given, "emb", got, "float64") == ""
    assert contributions(*given, "emb", None, "float64") == ""
    assert contributions(*given, "emb", np.zeros((2, 2)), "float64") == ""
    assert contributions(*given, "w1", point.cts["w1"], "float64") == ""
    assert contributions(*given, "emb", point.cts["emb"], "float64") == ""
