from functools import partial

import pytest

from gradcheck import Suite
from gradcheck.errors import LoadError, SpecError
from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.power.rule import RuleMutant, kills, rule_mutants_of
from gradcheck.spec.rule import RuleSpec, Steps


def init(xp, params):
    return {}


def descend(xp, params, grads, state, t, *, lr=0.5):
    return {name: p - lr * grads[name] for name, p in params.items()}, {}


def drawn(draw, *_):
    return {"w": draw.signed(2, 3)}


SAMPLES = tuple(
    Steps(name=name, hunts="a rate", params=drawn, gradients=drawn, count=3, attrs=attrs)
    for name, attrs in (("typical", {}), ("slow", {"lr": 0.25}))
)
SPEC = RuleSpec("descent", init, descend, SAMPLES, "p", "s")
mutant = partial(
    RuleMutant, rule="descent", name="wrong", says="It is.", killer="typical", update=descend
)


def fixed_rate(xp, params, grads, state, t, *, lr=0.5):
    return descend(xp, params, grads, state, t, lr=0.5)


def raising(xp, params, grads, state, t, *, lr=0.5):
    raise ZeroDivisionError


def dropped(xp, params, grads, state, t, *, lr=0.5):
    return {}, {}


def wide(xp, params, grads, state, t, *, lr=0.5):
    new, _ = descend(xp, params, grads, state, t, lr=lr)
    return {n: p.astype("float64") for n, p in new.items()}, {}


def other_arguments(xp, params, grads, state):
    return params, state


def suite(reference="", rules=(SPEC,)):
    return Suite("s", "0", (), rules=rules, rule_mutants=reference)


def killed(update, **parts):
    [found] = kills([mutant(update=update, **parts)], map(RuleTruth, suite().rule_cases()))
    return found


def test_a_wrong_update_is_killed_where_it_differs():
    found = killed(fixed_rate, killer="slow")
    assert found.tried == ("default/typical", "default/slow")
    assert found.killed == ("default/slow",)
    assert found.as_said
    assert not killed(fixed_rate).as_said


def test_the_right_update_survives():
    found = killed(descend)
    assert found.killed == ()
    assert not found.as_said


def test_what_raises_or_is_of_the_wrong_form_proves_nothing():
    assert killed(raising).killed == ()
    assert killed(wide).killed == ()


def test_what_is_missing_is_rejected():
    assert killed(dropped).killed == ("default/typical", "default/slow")


def test_a_dialect_that_is_left_out_is_not_tried():
    found = killed(fixed_rate, dialects=("other",))
    assert found.tried == ()


@pytest.mark.parametrize(
    ("parts", "said"),
    [({"name": "A b"}, "use lower-case letters"), ({"says": " "}, "say in `says`")],
)
def test_a_mutant_that_says_too_little_is_refused(parts, said):
    with pytest.raises(SpecError, match=said):
        mutant(**parts)


TABLES = {
    "GOOD": (mutant(), mutant(name="other")),
    "NONE": "no table",
    "STRANGE": (mutant(), 3),
    "TWICE": (mutant(), mutant()),
    "NO_RULE": (mutant(rule="ascent"),),
    "NO_SAMPLE": (mutant(killer="fast"),),
    "NO_DIALECT": (mutant(dialects=("x",)),),
    "ARGUMENTS": (mutant(update=other_arguments),),
}


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("NONE", LoadError, "make it a tuple of RuleMutant"),
        ("STRANGE", LoadError, "make it a tuple of RuleMutant"),
        ("TWICE", SpecError, "two mutants are called descent/wrong"),
        ("NO_RULE", SpecError, "the suite has no rule 'ascent'"),
        ("NO_SAMPLE", SpecError, "descent has no sample 'fast'"),
        ("NO_DIALECT", SpecError, "descent has no dialect 'x'"),
        ("ARGUMENTS", SpecError, "its update takes"),
    ],
)
def test_a_table_at_fault_is_one_line(monkeypatch, name, error, said):
    monkeypatch.setattr("gradcheck.power.run_mutants.resolve", TABLES.__getitem__)
    with pytest.raises(error, match=said):
        rule_mutants_of(suite(name))


def test_mutants_stand_by_their_rule(monkeypatch):
    monkeypatch.setattr("gradcheck.power.run_mutants.resolve", TABLES.__getitem__)
    found = rule_mutants_of(suite("GOOD"))
    assert [m.full_name for m in found["descent"]] == ["descent/wrong", "descent/other"]
    assert rule_mutants_of(suite()) == {"descent": []}
