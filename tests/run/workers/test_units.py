"""A run taken apart: what is sent as one, what first, and what a spec says about how long it is."""

from dataclasses import replace

import pytest
from gradcheck_cases import SUITE

from gradcheck.run.plan import Plan
from gradcheck.run.workers.units import (
    CONTRACT,
    LONG_SHARE,
    UNKNOWN,
    Unit,
    asks_of,
    begun,
    cost_of,
    divided,
    units_of,
)
from gradcheck.spec.model import ModelCase, ModelSpec, Size

BOTH = ["float64", "float32"]


def plan(*ops, models=(), rules=(), **options):
    cases = SUITE.cases([*ops]) if ops else ()
    models = SUITE.model_cases([*models]) if models else ()
    rules = SUITE.rule_cases([*rules]) if rules else ()
    usual = {"implementations": ["reference"], "dtypes": BOTH, "seed": 0,
             "model_dtypes": ["mp50", *BOTH]}  # fmt: skip
    return Plan(suite=SUITE, cases=cases, models=models, rules=rules, **usual | options)


def unit(place, seconds, name="relu", asks=(("reference", "float64"),)):
    return Unit(place=place, names=(name, "default", str(place), 0), asks=asks, seconds=seconds)


def whole(asked, case):
    return cost_of(asked, case, asks_of(asked, case)).whole


# ── what is sent as one ──────────────────────────────────────────────────────────────────────


def test_a_case_is_one_unit_where_there_is_enough_to_do():
    asked = plan("relu", "rms_norm", implementations=["reference", "torch"])
    units = units_of(asked, asked.everything, 2)
    assert [u.place for u in units] == [*range(len(asked.cases))]
    assert {u.asks for u in units} == {
        (("reference", "float64"), ("reference", "float32"), ("torch", "float64"),
         ("torch", "float32"))
    }  # fmt: skip
    assert divided(units) == {}
    names = {(c.spec.name, c.dialect.name, c.sample.name, c.seed) for c in asked.cases}
    assert {u.names for u in units} == names


def alone(count, rule="sgd"):
    """One case of an update rule, and several implementations."""
    asked = plan(rules=[rule], implementations=[f"impl{number}" for number in range(count)])
    return replace(asked, rules=asked.rules[:1])


def test_an_operator_is_never_divided_whatever_it_costs():
    asked = plan("relu", implementations=[f"impl{number}" for number in range(9)])
    (first, *_) = asked.cases
    asked = replace(asked, cases=[first], contract_at=frozenset([first.name]))
    assert len(units_of(asked, [first], 64)) == 1


def test_a_case_that_leaves_no_room_is_divided_by_implementations():
    asked = alone(8)
    units = units_of(asked, asked.rules, 2)
    assert [u.place for u in units] == [0] * 8
    assert [u.asks for u in units] == [((f"impl{n}", "float64"), (f"impl{n}", "float32"))
                                       for n in range(8)]  # fmt: skip
    assert divided(units) == {}


def test_and_then_by_dtypes_but_every_ask_is_sent_once():
    asked = plan(models=["gpt2"], implementations=["reference"], train=True)
    asked = replace(asked, models=asked.models[:1])
    units = units_of(asked, asked.models, 8)
    assert [u.asks for u in units] == [(("reference", d),) for d in ("mp50", *BOTH)]
    assert divided(units) == {0: {"reference"}}
    some = alone(3)
    for slots in (1, 2, 3, 8, 64):
        units = units_of(some, some.rules, slots)
        assert [ask for u in units for ask in u.asks] == [*asks_of(some, some.rules[0])]


def test_parts_that_are_hardly_shorter_are_no_gain():
    """Nearly all of a small transformer is its 50 digits."""
    asked = plan(models=["gpt2"])
    (tiny,) = asked.models[:1]
    assert [u.asks for u in units_of(asked, [tiny], 64)] == [asks_of(asked, tiny)]


def test_a_run_of_nothing_has_no_units():
    assert units_of(plan(), [], 4) == []
    assert begun([], 4) == []


# ── what is begun first ──────────────────────────────────────────────────────────────────────


def test_long_ones_come_first_and_all_others_keep_their_order():
    units = [unit(place, 0.01) for place in range(100)]
    units[70] = unit(70, 3.0)
    units[30] = unit(30, 1.0)
    order = begun(units, 2)
    assert [u.place for u in order[:2]] == [70, 30]
    assert [u.first for u in order[:3]] == [True, True, False]
    assert [u.place for u in order[2:]] == [p for p in range(100) if p not in (30, 70)]
    assert {replace(u, first=False).place: u.seconds for u in order} == {
        u.place: u.seconds for u in units
    }


def test_long_is_what_would_keep_a_slot_from_ending_with_the_others():
    units = [unit(place, 1.0) for place in range(1000)]
    assert not any(u.first for u in begun(units, 2))
    assert all(u.first for u in begun(units, 1000 * LONG_SHARE + 1))
    assert [u.place for u in begun(units, 64)] == [*range(1000)]


def test_units_of_the_built_in_suite_end_together():
    """Slots that take what is next are busy to within what is long, by the prices themselves."""
    asked = plan("*", models=["*"], rules=["*"])
    for slots in (2, 5, 8):
        ends = [0.0] * slots
        for u in begun(units_of(asked, asked.everything, slots), slots):
            ends[ends.index(min(ends))] += u.seconds
        assert max(ends) - min(ends) <= 0.02 * max(ends)


# ── how long it is ───────────────────────────────────────────────────────────────────────────


def test_prices_follow_what_a_spec_says():
    asked = plan("relu", models=["gpt2", "quadratic"], rules=["sgd", "lbfgs"])
    price = {case.name: whole(asked, case) for case in asked.everything}
    assert price["gpt2/default/tiny"] > 10 * price["quadratic/default/tiny"]
    assert price["gpt2/default/tiny"] > 5 * price["gpt2/default/large"]  # no 50 digits there
    assert price["lbfgs/default/typical"] > 3 * price["sgd/default/typical"]
    kinked, *_ = (case for case in asked.cases if case.sample.at_kink)
    assert price[kinked.name] > 3 * price["relu/default/typical"]
    assert all(seconds > 0 for seconds in price.values())


def test_a_contract_is_paid_where_it_is_owed():
    (case, *_) = SUITE.cases(["relu"])
    asked = plan("relu", implementations=["reference", "mine:IMPL"])
    owed = replace(asked, contract_at=frozenset([case.name]))
    free, paid = (cost_of(p, case, asks_of(p, case)).asks for p in (asked, owed))
    assert paid[:2] == free[:2]
    assert [b - a for a, b in zip(free[2:], paid[2:], strict=True)] == pytest.approx([CONTRACT] * 2)


def test_training_costs_the_smallest_size_alone():
    asked = plan(models=["gpt2"])
    trained = replace(asked, train=True)
    dearer = [c.size.name for c in asked.models if whole(trained, c) > whole(asked, c)]
    assert dearer == [asked.models[0].spec.sizes[0].name]


def test_a_suite_at_fault_has_a_price_all_the_same():
    def build(*, width=1):
        raise ZeroDivisionError

    spec = ModelSpec(
        name="bad", build=build, sizes=(Size(name="tiny", hunts="h"),), says="It is.", source="us"
    )
    case = ModelCase(spec, spec.dialects[0], spec.sizes[0], 0, "x")
    asked = plan(models=["gpt2"])
    assert whole(asked, case) == pytest.approx(3 * UNKNOWN)
