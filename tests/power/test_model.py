"""The attack of the models: what is not found, not blamed or wrongly blamed is told."""

import json
from dataclasses import replace

import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.faults import FAULTS

from gradcheck.power.model import FaultReport, FaultTrial
from gradcheck.power.run_mutants import MutationPlan, run
from gradcheck.report.fault import render, summary
from gradcheck.report.power_page import FORMATS
from gradcheck.spec import fault as planting
from gradcheck.spec.fault import Fault
from gradcheck.spec.suite import Suite

SOWN = FaultTrial(
    fault="svm/one", says="It is wrong.", kind="sign", dialect="default", dtype="float64",
    stages=("hinge",), of=7, parameters=2, rejected=2, blamed=("hinge",), named=("It is b|ad.",),
    suspects=(("score", "hinge"),), guess=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "exact", "contained"),
    [
        ({}, True, True),
        ({"rejected": 0}, True, True),
        ({"blamed": ()}, False, True),
        ({"blamed": ("hinge", "score")}, False, True),
        ({"suspects": (("score",),)}, True, False),
        ({"suspects": ()}, True, False),
        ({"suspects": (("hinge",), ("score",))}, True, False),
        ({"stages": ("hinge", "score"), "blamed": ("score", "hinge"),
          "suspects": (("score",), ("mean",))}, True, True),
    ],
)  # fmt: skip
def test_what_is_sound(change, exact, contained):
    sown = replace(SOWN, **change)
    assert sown.exact is exact
    assert sown.contained is contained
    assert sown.sound is (exact and contained and "rejected" not in change)


def test_where_it_is_wrong_is_no_name():
    assert SOWN.understood
    assert not replace(SOWN, named=()).understood
    assert not replace(SOWN, named=("dx: wrong only at place 1 of 2 along axis 0.",)).understood


def attacked(monkeypatch, *faults, models=("svm",), dtypes=("float64",)):
    suite = Suite(
        "mine", "1", list(SUITE), models=list(SUITE.models.values()),
        faults="gradcheck.spec.fault:TABLE",
    )  # fmt: skip
    monkeypatch.setattr(planting, "TABLE", faults, raising=False)
    monkeypatch.setattr(planting, "MINE", suite, raising=False)
    suites = ("gradcheck.spec.fault:MINE",)
    return run(MutationPlan(kind="models", suites=suites, names=models, dtypes=dtypes))


def some(name):
    return next(f for f in FAULTS if f.full_name == name)


def test_faults_are_found_blamed_and_named(monkeypatch):
    faults = [some("svm/hinge.sign"), some("svm/score.gradient-missing")]
    harvest = attacked(monkeypatch, *faults, dtypes=("float64", "float32"))
    assert harvest.sound
    assert len(harvest.sown) == 4
    assert summary(harvest) == (
        "POWER pass faults=4 found=4 exact=4 among_suspects=4 named=4 alarms=0 "
        "narrow=14 narrow_found=12"
    )
    assert "svm" in render(harvest, "terminal", short=True)


def test_a_fault_that_does_nothing_is_told(monkeypatch):
    idle = Fault(
        model="svm", name="idle", says="Nothing is wrong with it.", kind="sign",
        stages=("hinge",), wrong=planting.scaled(0, 1.0),
    )  # fmt: skip
    harvest = attacked(monkeypatch, idle)
    assert not harvest.sound
    text = render(harvest, "terminal")
    assert "svm/idle, default, float64: no parameter's gradient is rejected." in text
    assert summary(harvest).startswith("POWER fail faults=1 found=0 exact=0 among_suspects=0")


def test_a_fault_that_names_the_wrong_stage_is_told(monkeypatch):
    real = some("svm/hinge.sign")

    def one_alone(xp, stage, cts, values):
        if stage.name == "hinge":
            return real.wrong(xp, stage, cts, values)
        return stage.vjp(xp, cts, values)

    liar = replace(real, stages=("hinge", "norm"), wrong=one_alone)
    harvest = attacked(monkeypatch, liar)
    assert not harvest.sound
    assert "located in hinge, expected hinge, norm" in " ".join(render(harvest, "terminal").split())


def test_a_fault_that_raises_is_an_error_of_its_stage(monkeypatch):
    def broken(xp, stage, cts, values):
        raise ValueError("no such thing")

    harvest = attacked(monkeypatch, replace(some("svm/hinge.sign"), wrong=broken))
    assert harvest.sown[0].blamed == ("hinge",)
    assert not harvest.sown[0].contained


def test_nothing_planted_is_not_sound(monkeypatch):
    harvest = attacked(monkeypatch)
    assert not harvest.sound
    assert "nothing was planted" in render(harvest, "terminal")


def harvest(*sown, **options):
    from gradcheck.power.model import ModelScore

    usual = {"version": "1", "suite": "mine", "suite_version": "2", "dtypes": ("float64",),
             "seed": 0, "scores": (ModelScore(model="svm", sown=sown, judged=1),)}  # fmt: skip
    return FaultReport(**{**usual, **options})


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_tells_the_same(form):
    text = render(harvest(SOWN), form)
    assert text.endswith("\n")
    assert "svm" in text
    assert "hinge" in text


def test_markdown_escapes_what_others_wrote():
    text = render(harvest(SOWN), "markdown")
    assert "It is b|ad." not in text
    assert "every planted fault is found" in text


def test_json_holds_every_trial():
    document = json.loads(render(harvest(SOWN), "json"))
    (one,) = document["scores"][0]["sown"]
    assert one["exact"] is True
    assert one["suspects"] == [["score", "hinge"]]
    assert document["sound"] is True


def test_what_was_cut_short_is_not_sound():
    cut = harvest(SOWN, complete=False, troubles=("a process died",))
    assert not cut.sound
    text = render(cut, "terminal", short=True)
    assert "incomplete" in text
    assert "a process died" in text
