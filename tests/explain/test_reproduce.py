"""Defects that reproduce end-to-end gradients, and tied gradients that lack a share."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.explain.reproduce import contributions, reproduce
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.mutant_registry import KnownMutants

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
