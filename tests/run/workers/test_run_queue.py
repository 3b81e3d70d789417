"""A run put together again: the same records in the same order, whatever came when, and how."""

import random
from dataclasses import replace
from itertools import islice

import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.load import load
from gradcheck.implementations.processes.crash_or_hang import LIMITS, PLURALS
from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import execute
from gradcheck.run.judge_case import judge, judge_next, why_of
from gradcheck.run.plan import Plan
from gradcheck.run.workers import WorkersLostError
from gradcheck.run.workers import run_queue as assembly_module
from gradcheck.run.workers.run_queue import ENDED, MAX_WAIT, Answer, RunQueue
from tests.case_results import changed

BOTH = ("float64", "float32")


def plan(*ops, words=("reference",), samples=("t*", "e*"), dtypes=BOTH, **options):
    cases = SUITE.cases([*ops], samples=samples) if ops else ()
    return Plan(suite=SUITE, cases=cases, implementations=words, dtypes=dtypes, seed=0, **options)


def judged(asked, unit):
    """What a worker makes of a unit."""
    bindings = [load(word, asked.suite) for word in asked.implementations]
    case, left_out = asked.everything[unit.place], dict(unit.left_out)
    why = why_of(asked)
    found = judge_next(asked, case, bindings, why, lambda w, *_: left_out.get(w, ""), unit.asks)
    return Answer(records=tuple(found), seconds=1.0)


def records_of(asked, unit, verdict=Verdict.PASS, seconds=0.0):
    """One record for each ask, with a verdict of our choice."""
    case = asked.everything[unit.place]
    (like, *_) = judge(asked, case, load("reference", asked.suite))
    return Answer(
        records=tuple(
            changed(like, implementation=w, dtype=d, verdict=verdict, name=f"{case.name}/{d}")
            for w, d in unit.asks
        ),
        seconds=seconds,
    )


def taken(assembly, slot=None):
    """All that waits."""
    units = []
    while (unit := assembly.next(slot)) is not None:
        units.append(unit)
    return units


def hashed(asked, assembly):
    """The hash of a case that has ended workers is asked of one more."""
    (unit,) = taken(assembly)
    assert unit.asks == ()
    assembly.came(unit, Answer(hash=asked.everything[unit.place].fingerprint))
    assert assembly.next() is None


def divided(asked):
    """An assembly whose cases are sent in as many parts as there are asks."""
    whole = assembly_module.units_of(asked, asked.everything, 1)
    parts = [replace(unit, asks=(ask,)) for unit in whole for ask in unit.asks]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly_module, "units_of", lambda *_: parts)
        return asked, RunQueue(asked, asked.everything, 1000)


@pytest.mark.slow(keep=0)
@pytest.mark.parametrize("seed", range(4))
def test_records_come_back_in_the_order_of_a_run_whatever_came_when(seed):
    draw = random.Random(seed)
    asked = plan("rope", "relu", "scale")
    assembly = RunQueue(asked, asked.everything, draw.choice([1, 2, 9]))
    under_way = []
    while assembly.left:
        while (unit := assembly.next(draw.randrange(3), ahead=draw.random() < 0.3)) is not None:
            under_way.append(unit)
        if not under_way:
            continue
        unit = under_way.pop(draw.randrange(len(under_way)))
        if draw.random() < 0.2:
            assembly.back(unit)
        else:
            assembly.came(unit, judged(asked, unit))
    run = execute(asked)
    places = range(len(asked.everything))
    assert [r for place in places for r in assembly.result(place)] == [*run.results]
    assert [*assembly.finished()] == [*places]
    assert len([*assembly.until(places[-1])]) == len(places)


def test_parts_of_a_case_are_put_back_in_the_order_of_its_asks():
    rules = SUITE.rule_cases(["clip*"], samples=["typical"])[:1]
    asked, assembly = divided(plan(rules=rules))
    units = taken(assembly)
    assert [u.asks for u in units] == [(("reference", "float64"),), (("reference", "float32"),)]
    for unit in reversed(units):
        assert assembly.left == 1
        assembly.came(unit, judged(asked, unit))
    (whole,) = [*assembly.until(0)]
    assert (whole.place, whole.seconds) == (0, 2.0)
    assert assembly.result(0) == [*execute(asked).results]


def test_what_is_known_of_a_part_is_finished_though_its_case_is_not():
    asked, assembly = divided(plan("relu", "tanh", samples=("typical",)))
    last, *_ = reversed(taken(assembly))
    assert (last.place, last.asks) == (1, (("reference", "float32"),))
    answer = judged(asked, last)
    assembly.came(last, answer)
    assert assembly.finished() == {1: [*answer.records]}
    assert assembly.left == 2


def test_what_raises_or_ends_it_is_raised_where_it_is_waited():
    assembly = RunQueue(asked := plan("relu"), asked.everything, 2)
    assembly.broken(WorkersLostError("all gone"))
    with pytest.raises(WorkersLostError, match="all gone"):
        [*assembly.until(0)]
    assert assembly.finished() == {}


# ── workers that end ─────────────────────────────────────────────────────────────────────────


def test_what_was_lost_comes_next_each_ask_alone_and_then_has_crashed():
    asked = plan("relu", "tanh", words=("reference", "b:B"), samples=("typical",))
    assembly = RunQueue(asked, asked.everything, 1)
    first, second = taken(assembly)
    assembly.lost(first, "SIGSEGV")
    alone = taken(assembly)
    assert {u.place for u in alone} == {0}
    assert sorted(u.asks for u in alone) == sorted((ask,) for ask in first.asks)
    for unit in alone:
        if unit.asks == (("b:B", "float32"),):
            assembly.lost(unit, "SIGKILL")
        else:
            assembly.came(unit, records_of(asked, unit))
    hashed(asked, assembly)
    assert [r.finding.verdict for r in assembly.result(0)] == ["pass", "pass", "pass", "crash"]
    crash = assembly.result(0)[-1]
    assert crash.finding.reason == "its worker process ended, in 2 tries: SIGKILL"
    case = crash.case
    assert (crash.finding.name, case.implementation, case.dtype) == ("vjp", "b:B", "float32")
    assert crash.repro == "gradcheck repro relu/default/typical/float32 --impl b:B"
    assert crash.case.hash == asked.cases[0].fingerprint
    assembly.came(second, records_of(asked, second))
    assert assembly.left == 0


def test_one_that_ends_its_worker_once_is_as_good_as_any():
    asked = plan("relu", samples=("typical",), dtypes=("float64",))
    assembly = RunQueue(asked, asked.everything, 1)
    (unit,) = taken(assembly)
    assembly.lost(unit, "SIGKILL")
    (again,) = taken(assembly)
    assert (again.asks, again.names) == (unit.asks, unit.names)
    assembly.came(again, judged(asked, again))
    assert assembly.result(0) == [*execute(asked).results]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("verdict", sorted(ENDED))
def test_code_that_ended_in_a_part_is_asked_again_at_once(verdict):
    """How often it may end in a case is counted over its dtypes, by the process that asks."""
    asked, assembly = divided(plan("relu", words=("a:A", "b:B"), samples=("typical",)))
    bad, *others = taken(assembly)
    assert len(others) == 3
    assembly.came(bad, records_of(asked, bad, verdict))
    for unit in others:
        assembly.came(unit, records_of(asked, unit, Verdict.FAIL))
    (again,) = taken(assembly)
    assert again.asks == (("a:A", "float64"), ("a:A", "float32"))
    assert assembly.left == 1
    assembly.came(again, records_of(asked, again, verdict))
    assert [r.finding.verdict for r in assembly.result(0)] == [verdict, verdict, "fail", "fail"]
    assert (assembly.left, assembly.next()) == (0, None)


def test_parts_that_fail_differently_each_say_what_they_are():
    asked, assembly = divided(plan("relu", words=("a:A",), samples=("typical",)))
    wrong, deadly = taken(assembly)
    assembly.lost(deadly, "SIGSEGV")
    assembly.came(wrong, records_of(asked, wrong, Verdict.FAIL))
    (again,) = taken(assembly)
    assembly.lost(again, "SIGSEGV")
    hashed(asked, assembly)
    assert [r.finding.verdict for r in assembly.result(0)] == ["fail", "crash"]


def test_what_ends_a_worker_by_its_inputs_alone_has_no_hash():
    asked = plan("relu", samples=("typical",), dtypes=("float64",))
    assembly = RunQueue(asked, asked.everything, 1)
    for _ in range(3):  # twice with its ask, and once more for its hash
        (unit,) = taken(assembly)
        assembly.lost(unit, "SIGKILL")
    (crash,) = assembly.result(0)
    assert (crash.finding.verdict, crash.case.hash, assembly.left) == (Verdict.CRASH, "", 0)


# ── what is left out ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("verdict", sorted(LIMITS))
def test_only_what_comes_before_in_the_run_leaves_something_out(verdict):
    asked = plan("rms_norm", samples=(), words=("a:A", "b:B"), dtypes=("float64",))
    limit = LIMITS[verdict]
    assembly = RunQueue(asked, asked.everything, 0.001)
    units = taken(assembly)
    late, early = units[limit + 3 : 2 * limit + 3], units[1 : limit + 1]
    for bad in [late, early]:
        for unit in reversed(bad):
            answer = records_of(asked, unit, verdict)
            assembly.came(unit, replace(answer, records=answer.records[:1]))  # of a:A alone
    for unit in units[: 2 * limit + 2]:
        assembly.back(unit)
        ends = [u for u in early + late if u.place < unit.place and u.owner == unit.owner]
        why = f"not run after {limit} {PLURALS[verdict]} of {'/'.join(unit.owner)}"
        left_out = (("a:A", why),) * (len(ends) >= limit)
        assert assembly.next().left_out == left_out, unit.place


# ── which slot ───────────────────────────────────────────────────────────────────────────────


def test_a_slot_stays_with_its_operator_and_takes_another_than_the_others():
    asked = plan("relu", "tanh", "scale", samples=())
    assembly = RunQueue(asked, asked.everything, 0.001)  # nothing is long
    ops = [*dict.fromkeys(case.spec.name for case in asked.cases)]
    took = [[assembly.next(slot).owner[0] for _ in range(3)] for slot in "abc"]
    assert took == [[op] * 3 for op in ops]
    everything = [assembly.next("a") for _ in range(len(asked.cases) - 9)]
    assert [u.place for u in everything if u.owner[0] == "relu"] == sorted(
        u.place for u in everything if u.owner[0] == "relu"
    )
    assert assembly.next("a") is None


def test_without_slots_units_come_in_their_order():
    asked = plan("relu", "tanh")
    places = [u.place for u in taken(RunQueue(asked, asked.everything, 0.001))]
    assert places == [*range(len(asked.cases))]


def test_nothing_waits_behind_what_is_long_nor_long_ones_behind_anything():
    cases = SUITE.model_cases(["gpt2"])
    asked = replace(plan("relu"), models=cases, model_dtypes=("mp50",))
    assembly = RunQueue(asked, asked.everything, 2)
    assert assembly.next("a", ahead=True) is None  # it is at nothing
    long = assembly.next("a")
    assert long.seconds > MAX_WAIT
    assert assembly.next("a", ahead=True) is None
    for unit in islice(iter(lambda: assembly.next("b"), None), len(cases) - 1):
        assert unit.names[0] == "gpt2"
    short = assembly.next("b")
    assert short.seconds <= MAX_WAIT
    assert assembly.next("b", ahead=True) is not None
    assert assembly.next("a", ahead=True) is None
