"""Suspects from end-to-end gradients: the guilty stage is always among them."""

import numpy as np
import pytest

from gradcheck.explain import suspect_stages
from gradcheck.explain.suspect_stages import (
    GRAPH,
    LEFT,
    SEVERAL,
    SINGLE,
    TOGETHER,
    blame_judged_stages,
    suspects,
)

DIFFERENTIABLE = [
    ("embed", 0), ("fc", 0), ("fc", 1), ("fc", 2), ("act", 0), ("proj", 0), ("proj", 1),
    ("residual", 0), ("residual", 1), ("unembed", 0), ("unembed", 1), ("ce", 0), ("mean", 0),
]  # fmt: skip


def found(point, got, errors=True, names=()):
    wrong, right, seen = point.judged(got, names)
    return suspects(point.program, point.values, point.cts, wrong, right, seen if errors else None)


# ── one fault ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("how", ["scaled", "element", "missing"])
@pytest.mark.parametrize(("stage", "index"), DIFFERENTIABLE)
def test_the_guilty_one_is_among_the_suspects(points, spoil, stage, index, how):
    change = {
        "scaled": spoil.scaled(index),
        "element": spoil.element(index, 1),
        "missing": spoil.missing(index),
    }[how]
    got = points.net.fold(**{stage: change})
    for errors in (True, False):
        blames = found(points.net, got, errors)
        assert len(blames) == 1
        assert stage in blames[0].stages
        assert not blames[0].exact
        assert blames[0].of == len(points.net.program.stages)
    places = [
        points.net.program.stages.index(points.net.program.stage(s)) for s in blames[0].stages
    ]
    assert places == sorted(places)


def test_a_weight_of_its_own_convicts_its_stage(points, spoil):
    got = points.net.fold(fc=spoil.element(1, 3))
    (one,) = found(points.net, got)
    assert one.stages == ("fc",)
    assert one.bounds == ("w2", "w1")
    assert one.assumption == SINGLE


def test_errors_say_more_than_names(points, spoil):
    """Of one wrong element of a weight's gradient nobody else can be the cause; a name hides it."""
    got = points.net.fold(fc=spoil.element(1, 3))
    (sharp,), (dull,) = found(points.net, got), found(points.net, got, errors=False)
    assert sharp.stages == ("fc",)
    assert set(sharp.stages) < set(dull.stages)
    assert dull.assumption == GRAPH


def test_a_program_too_large_for_derivatives_says_what_it_assumes(points, spoil, monkeypatch):
    monkeypatch.setattr("gradcheck.explain.reproduce.MAX_DERIVATIVE_NUMBERS", 1.0)
    (one,) = found(points.net, points.net.fold(act=spoil.scaled(0)))
    assert one.assumption == GRAPH
    assert "act" in one.stages


def test_a_key_bias_that_is_right_by_structure_clears_nobody(points, spoil):
    point = points.keyed
    got = point.fold(attend=spoil.scaled(1))
    wrong, right, _ = point.judged(got)
    assert wrong == ["wk"]
    assert "bk" in right
    for errors in (True, False):
        assert "attend" in found(point, got, errors)[0].stages


def test_a_bias_that_is_right_after_rows_were_exchanged_clears_nobody(points):
    """Σ over tokens forgives every permutation: b1 stays right, w1 does not."""

    def turned(gradients, values):
        gradients[0] = np.roll(gradients[0], 1, axis=0)
        return gradients

    got = points.net.fold(act=turned)
    wrong, right, _ = points.net.judged(got)
    assert "b1" in right
    assert "w1" in wrong
    for errors in (True, False):
        assert "act" in found(points.net, got, errors)[0].stages


def test_a_tied_gradient_clears_nobody_and_blames_all_its_readers(points, spoil):
    got = points.net.fold(unembed=spoil.scaled(1, 0.0))
    (one,) = found(points.net, got)
    assert set(one.stages) >= {"embed", "unembed"}
    assert "fc" not in one.stages


def test_an_intermediate_cotangent_narrows_the_interval(points, spoil):
    got = points.net.fold(proj=spoil.scaled(0))
    wide, narrow = found(points.net, got), found(points.net, got, names=("h", "a", "p"))
    assert set(narrow[0].stages) < set(wide[0].stages)
    assert narrow[0].stages == ("proj",)
    assert narrow[0].bounds == ("p", "a")


def test_rounding_of_float32_clears_nobody(points, spoil):
    point = points.net
    got = point.fold(act=spoil.element(0, 5, 1.5))
    rough = {n: got[n].astype(np.float32).astype(np.float64) for n in point.program.params}
    wrong, right, errors = point.judged(got)
    errors = {n: rough[n] - point.cts[n] for n in errors}
    one = suspects(point.program, point.values, point.cts, wrong, right, errors, "float32")[0]
    assert "act" in one.stages


def test_a_gradient_that_is_not_finite_is_only_reachable(points):
    def spoilt(gradients, values):
        gradients[0] = np.full_like(gradients[0], np.nan)
        return gradients

    blames = found(points.net, points.net.fold(act=spoilt))
    assert "act" in blames[0].stages


def test_where_noise_hides_the_error_the_graph_is_asked(points, spoil, monkeypatch):
    point = points.net
    got = point.fold(fc=spoil.element(1, 3, 1.0001))
    wrong, right, errors = point.judged(got)
    assert wrong == ["w1"]
    given = (point.program, point.values, point.cts, wrong, right, errors, "float32")
    (blunt,) = suspects(*given)
    assert len(blunt.stages) > 4
    assert blunt.assumption == SINGLE
    monkeypatch.setattr(suspect_stages, "MAX_SHARP_SUSPECTS", 4)
    (fewer,) = suspects(*given)
    assert "fc" in fewer.stages
    assert 2 * len(fewer.stages) <= len(blunt.stages)
    assert fewer.assumption == GRAPH


# ── several faults ───────────────────────────────────────────────────────────────────────────


def test_behind_a_fault_nothing_more_is_said(points, spoil):
    """What is upstream of it may be its doing: it must be repaired first."""
    got = points.net.fold(proj=spoil.element(1, 0), fc=spoil.element(1, 0))
    (one,) = found(points.net, got)
    assert one.stages == ("proj",)
    assert one.assumption == SEVERAL


def test_two_faults_on_one_path(points, spoil):
    """What the second spoils is spoilt by the first as well; the first round holds the nearer."""
    got = points.net.fold(ce=spoil.element(0, 3), act=spoil.element(0, 4))
    blames = found(points.net, got)
    assert blames[0].assumption == SEVERAL
    assert "ce" in blames[0].stages


def test_two_missing_gradients_are_two_rounds(points, spoil):
    got = points.net.fold(proj=spoil.missing(1), fc=spoil.missing(2))
    first, second = found(points.net, got)
    assert (first.stages, second.stages) == (("proj",), ("fc",))
    assert first.names == ("no gradient of `w2` is produced.",)
    assert (first.assumption, second.assumption) == (SEVERAL, LEFT)
    assert (first.round, second.round) == (1, 2)


def test_a_cotangent_that_is_not_passed_on_is_one_fault(points, spoil):
    got = points.net.fold(act=spoil.missing(0))
    (one,) = found(points.net, got)
    assert "act" in one.stages
    assert "unembed" not in one.stages
    assert set(one.names) == {f"no gradient of `{n}` is produced." for n in ("w1", "b1")}


# ── with stages ──────────────────────────────────────────────────────────────────────────────


def test_rounds_replace_one_after_another_from_the_loss(points):
    order = []

    def still_wrong(replaced):
        order.append(set(replaced))
        return [] if {"act", "proj"} <= replaced else ["w1"] if "proj" in replaced else ["w2", "w1"]

    first, second = blame_judged_stages(points.net.program, {"act", "proj"}, still_wrong)
    assert (first.stages, first.round, first.bounds[1]) == (("proj",), 1, "w2")
    assert (second.stages, second.round, second.bounds[1]) == (("act",), 2, "w1")
    assert first.exact
    assert second.exact
    assert order == [set(), {"proj"}, {"act", "proj"}]


def test_what_no_stage_explains_is_nobodys_alone(points):
    blames = blame_judged_stages(points.net.program, {"act"}, lambda replaced: ["emb"])
    assert [b.exact for b in blames] == [True, False]
    assert blames[1].assumption == TOGETHER


def test_nothing_guilty_and_nothing_wrong(points):
    assert blame_judged_stages(points.net.program, (), lambda replaced: []) == ()
    assert found(points.net, points.net.fold()) == ()


def test_a_range_is_spanned_by_its_basis():
    rng = np.random.default_rng(3)
    for height, width, rank in ((9, 4, 4), (9, 4, 2), (4, 9, 3), (5, 5, 5)):
        matrix = rng.normal(size=(height, rank)) @ rng.normal(size=(rank, width))
        basis = suspect_stages._range(matrix)
        assert basis.shape == (height, rank)
        assert np.max(np.abs(basis @ (basis.T @ matrix) - matrix)) <= 1e-12
        assert np.max(np.abs(basis.T @ basis - np.eye(rank))) <= 1e-12
