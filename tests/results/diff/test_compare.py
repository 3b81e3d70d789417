"""Every result of two runs is told once: paired by name, or with what stands for the whole call."""

import random
from collections import Counter

import pytest

from gradcheck.results.diff.change import Mark, Side
from gradcheck.results.diff.compare import compared, implementations
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from tests.case_results import changed

V = Verdict
OUTPUTS = ("x", "weight", "bias")  # none that stands for the whole call


def suite(make, ops=4, samples=3, implementation="mine", **changes):
    """A run of several operators that passes."""
    return make.run(
        *(
            make.result(output, op=f"op{op}", sample=f"s{sample}", dtype=dtype, times=0.25,
                        implementation=implementation)
            for op in range(ops)
            for sample in range(samples)
            for dtype in ("float64", "float32")
            for output in OUTPUTS
        ),
        **changes,
    )  # fmt: skip


def told(found):
    """The marks by output, as they are in the difference."""
    return {(e.of.finding.part.value, e.of.finding.name): (e.mark, e.worse) for e in found.entries}


def test_a_run_and_itself_do_not_differ(make):
    run = suite(make)
    found = make.diff(run, run)
    assert (found.entries, found.changes, found.worse) == ((), (), False)
    assert found.same == found.compared == len(run.results)
    failing = make.run(*(changed(r, verdict=V.FAIL) for r in run.results))
    found = make.diff(failing, failing)
    assert (found.changes, found.worse, found.same) == ((), False, 0)
    assert found.counts == {Mark.STILL_FAILING: len(run.results)}


MUTATIONS = {
    Mark.NEWLY_FAILING: {"verdict": V.FAIL},
    Mark.NEWLY_CRASHING: {"verdict": V.TIMEOUT},
    Mark.SUPPORT_LOST: {"verdict": V.SKIP},
    Mark.NOT_REACHED: {"verdict": V.NOTRUN},
    Mark.NOT_COMPARABLE: {"hash": "ffff"},
    Mark.ERROR_GREW: {"times": 0.75},
    Mark.IMPROVED: {"times": 0.01},
    Mark.REMOVED: None,
    None: {"reason": "another text", "repro": "elsewhere", "compared": 7, "hunts": "something"},
}


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("seed", range(20))
def test_every_change_is_told_once_and_nothing_else_is(make, seed):
    chance = random.Random(seed)
    run = suite(make)
    expected, results = {}, []
    for result in run.results:
        mark = chance.choice([*MUTATIONS, None, None, None])
        if mark is not None:
            expected[result.key] = mark
        change = MUTATIONS[mark]
        if change is None:
            continue
        change = dict(change)
        if "times" in change:
            change["worst"] = (make.off(change.pop("times")),)
        results.append(changed(result, **change))
    for i in range(chance.randrange(5)):
        results.append(make.result(f"new{i}", op="op0", sample="s0"))
        expected[results[-1].key] = Mark.ADDED
    chance.shuffle(results)
    found = make.diff(run, make.run(*results))
    assert {e.of.key: e.mark for e in found.entries} == expected
    assert len(found.entries) == len(expected)
    assert found.counts == Counter(expected.values())
    assert found.same + len(found.entries) == len({r.key for r in (*run.results, *results)})
    assert [e.mark for e in found.entries] == sorted(
        (e.mark for e in found.entries), key=[*Mark].index
    )


MIRRORED = {
    Mark.ADDED: Mark.REMOVED,
    Mark.REMOVED: Mark.ADDED,
    Mark.ERROR_GREW: Mark.IMPROVED,
    Mark.IMPROVED: Mark.ERROR_GREW,
    Mark.SUPPORT_LOST: Mark.SUPPORT_GAINED,
    Mark.NEWLY_FAILING: Mark.FIXED,
    Mark.NEWLY_CRASHING: Mark.FIXED,
    Mark.NOT_COMPARABLE: Mark.NOT_COMPARABLE,
    Mark.NOT_REACHED: Mark.NOT_REACHED,
}


@pytest.mark.parametrize("seed", range(5))
def test_the_other_way_round_everything_is_mirrored(make, seed):
    chance = random.Random(seed)
    old = suite(make)
    results = []
    for result in old.results:
        change = dict(chance.choice([c for c in MUTATIONS.values() if c is not None]))
        times = change.pop("times", 0.25)
        results.append(changed(result, worst=(make.off(times),), **change))
    new = make.run(*results[5:], make.result("more"))
    there, back = make.diff(old, new), make.diff(new, old)
    assert {e.of.key: MIRRORED[e.mark] for e in there.entries} == {
        e.of.key: e.mark for e in back.entries
    }
    assert (there.same, there.compared) == (back.same, back.compared)


def of_case(make, **verdicts):
    return make.run(*(make.result(output, V(verdict)) for output, verdict in verdicts.items()))


FAILS = (Mark.NEWLY_FAILING, True)
CRASHES = (Mark.NEWLY_CRASHING, True)
FIXED = (Mark.FIXED, False)


def test_a_crash_stands_for_every_gradient_that_the_call_owes(make):
    right = of_case(make, forward="pass", x="pass", weight="fail")
    crashed = of_case(make, forward="pass", vjp="crash")
    found = make.diff(right, crashed)
    assert told(found) == {("gradient", "x"): CRASHES, ("gradient", "weight"): CRASHES}
    assert {e.new.finding.name for e in found.entries} == {"vjp"}
    assert found.compared == 3
    back = make.diff(crashed, right)
    other = (Mark.OTHERWISE, False)
    assert told(back) == {("gradient", "x"): FIXED, ("gradient", "weight"): other}


def test_a_crash_in_forward_stands_for_the_gradients_that_were_not_asked(make):
    right, crashed = of_case(make, forward="pass", x="pass"), of_case(make, forward="crash")
    found = make.diff(right, crashed)
    assert told(found) == {("gradient", "forward"): CRASHES, ("gradient", "x"): CRASHES}
    assert told(make.diff(crashed, right)) == {
        ("gradient", "forward"): FIXED, ("gradient", "x"): FIXED,
    }  # fmt: skip


@pytest.mark.parametrize("verdict", ["fail", "missing", "inconclusive", "pass"])
def test_a_wrong_value_of_forward_stands_for_nothing_else(make, verdict):
    found = make.diff(of_case(make, forward=verdict, x="pass"), of_case(make, forward=verdict))
    assert told(found)["gradient", "x"] == (Mark.REMOVED, True)


def test_support_is_lost_and_gained_by_gradient(make):
    right, silent = of_case(make, forward="pass", x="pass"), of_case(make, vjp="unbound")
    lost, gained = (Mark.SUPPORT_LOST, True), (Mark.SUPPORT_GAINED, False)
    assert told(make.diff(right, silent)) == {
        ("gradient", "forward"): lost, ("gradient", "x"): lost,
    }  # fmt: skip
    assert told(make.diff(silent, right)) == {
        ("gradient", "forward"): gained, ("gradient", "x"): gained,
    }  # fmt: skip
    assert make.diff(silent, silent).same == 1
    assert not make.diff(silent, of_case(make, vjp="skip")).entries


def test_two_calls_that_ended_are_held_against_each_other(make):
    inside, ended = of_case(make, forward="crash"), of_case(make, vjp="error")
    assert told(make.diff(inside, ended)) == {("gradient", "vjp"): (Mark.OTHERWISE, False)}
    assert told(make.diff(ended, inside)) == {("gradient", "forward"): CRASHES}
    part = of_case(make, forward="pass", vjp="crash")
    assert told(make.diff(inside, part)) == {
        ("gradient", "forward"): FIXED,
        ("gradient", "vjp"): (Mark.STILL_FAILING, False),
    }
    assert told(make.diff(part, inside)) == {
        ("gradient", "forward"): CRASHES,
        ("gradient", "vjp"): (Mark.STILL_FAILING, False),
    }


def test_a_call_that_replaces_nothing_is_told_by_itself(make):
    assert told(make.diff(make.run(), of_case(make, vjp="crash"))) == {
        ("gradient", "vjp"): (Mark.ADDED, True)
    }
    assert told(make.diff(of_case(make, vjp="crash"), make.run())) == {
        ("gradient", "vjp"): (Mark.REMOVED, True)
    }
    # Another case's crash stands for nothing here.
    other = make.run(make.result("vjp", V.CRASH, sample="other"), make.result("vjp", V.SKIP))
    found = make.diff(of_case(make, x="pass"), other)
    assert Counter(e.mark for e in found.entries) == {Mark.ADDED: 1, Mark.SUPPORT_LOST: 1}


def test_a_model_and_a_rule_have_whole_calls_too(make):
    def of(part, name, verdict=V.PASS):
        return make.result(name, verdict, part=part)

    model = [of(Part.VALUE, "loss"), of(Part.GRADIENT, "wte"), of(Part.STAGE, "ln_f")]
    found = make.diff(make.run(*model), make.run(of(Part.VALUE, "loss", V.CRASH)))
    assert {e.mark for e in found.entries} == {Mark.NEWLY_CRASHING}
    assert len(found.entries) == 3
    found = make.diff(make.run(*model[1:]), make.run(of(Part.GRADIENT, "gradients", V.SKIP)))
    assert [e.mark for e in found.entries] == [Mark.SUPPORT_LOST] * 2
    rule = [of(Part.UPDATE, "m"), of(Part.UPDATE, "v")]
    found = make.diff(make.run(*rule), make.run(of(Part.UPDATE, "update", V.ERROR)))
    assert [e.mark for e in found.entries] == [Mark.NEWLY_FAILING] * 2


def test_a_contract_is_not_asked_where_the_call_fails(make):
    kept = [make.result(), make.contract("linear"), make.contract("zero", V.SKIP)]
    quiet = (Mark.NOT_REACHED, False)
    for verdict in (V.CRASH, V.ERROR):
        found = make.diff(make.run(*kept), make.run(make.result("vjp", verdict)))
        worse = CRASHES if verdict is V.CRASH else FAILS
        assert told(found) == {
            ("gradient", "x"): worse, ("contract", "linear"): quiet, ("contract", "zero"): quiet,
        }  # fmt: skip
    found = make.diff(make.run(*kept), make.run(make.result(verdict=V.FAIL)))
    assert told(found)["contract", "linear"] == quiet
    back = make.diff(make.run(make.result("vjp", V.CRASH)), make.run(*kept))
    assert told(back)["contract", "linear"] == quiet


def test_a_property_stands_for_itself_alone_whatever_its_name(make):
    """A property that crashes may be called as a whole call is."""
    gone = make.run(make.result("bias"), make.contract("update", V.CRASH))
    found = make.diff(make.run(make.result("bias"), make.result("x")), gone)
    assert told(found) == {
        ("gradient", "x"): (Mark.REMOVED, True), ("contract", "update"): (Mark.ADDED, True),
    }  # fmt: skip


def test_what_a_crash_keeps_from_being_asked_is_told_with_the_crash_alone(make):
    """Also where the run broke off afterwards."""
    kept = make.run(make.result(), make.contract("linear"))
    found = make.diff(kept, make.run(make.result("vjp", V.CRASH), complete=False))
    assert told(found) == {
        ("gradient", "x"): CRASHES, ("contract", "linear"): (Mark.NOT_REACHED, False),
    }  # fmt: skip


def test_a_property_that_cannot_be_asked_of_a_wrong_gradient_is_no_second_alarm(make):
    def of(gradient, sizes):
        return make.run(make.result(verdict=gradient), make.contract("sizes", sizes))

    wrong, right, quiet = of(V.FAIL, V.SKIP), of(V.PASS, V.PASS), (Mark.NOT_REACHED, False)
    found = make.diff(right, wrong)
    assert told(found) == {("gradient", "x"): FAILS, ("contract", "sizes"): quiet}
    found = make.diff(wrong, right)
    assert told(found) == {("gradient", "x"): FIXED, ("contract", "sizes"): quiet}
    lost, gained = (Mark.SUPPORT_LOST, True), (Mark.SUPPORT_GAINED, False)
    unasked = of(V.PASS, V.SKIP)  # for a reason of its own
    assert told(make.diff(right, unasked)) == {("contract", "sizes"): lost}
    assert told(make.diff(unasked, right)) == {("contract", "sizes"): gained}
    broken = of(V.FAIL, V.FAIL)
    assert told(make.diff(of(V.FAIL, V.SKIP), broken))["contract", "sizes"] == FAILS
    assert told(make.diff(of(V.FAIL, V.PASS), wrong))["contract", "sizes"] == quiet
    assert told(make.diff(right, of(V.FAIL, V.UNSUPPORTED)))["contract", "sizes"] == lost


def test_a_contract_that_is_not_asked_any_more_is_lost(make):
    kept = [make.result(), make.contract("linear"), make.contract("zero", V.SKIP)]
    found = make.diff(make.run(*kept), make.run(kept[0]))
    assert told(found)["contract", "linear"] == (Mark.REMOVED, True)
    silent = make.run(make.result("vjp", V.UNSUPPORTED))
    found = make.diff(make.run(*kept), silent)
    assert told(found) == {
        ("gradient", "x"): (Mark.SUPPORT_LOST, True),
        ("contract", "linear"): (Mark.SUPPORT_LOST, True),
    }
    assert found.same == 1
    broken = make.run(kept[0], make.contract("linear", V.FAIL), kept[2])
    assert told(make.diff(make.run(*kept), broken)) == {("contract", "linear"): FAILS}


def test_a_property_and_a_primal_of_one_name_are_not_mixed_up(make):
    old = make.run(make.result("sizes"), make.contract("sizes"))
    new = make.run(make.result("sizes"), make.contract("sizes", V.FAIL))
    assert told(make.diff(old, new)) == {("contract", "sizes"): FAILS}


def test_results_that_share_every_name_are_held_against_each_other_in_order(make):
    first, second = make.result(), make.result(verdict=V.FAIL)
    twice = make.run(first, second)
    assert make.diff(twice, twice).counts == {Mark.STILL_FAILING: 1}
    found = make.diff(twice, make.run(first))
    assert [e.mark for e in found.entries] == [Mark.REMOVED]
    assert found.entries[0].old is second


def test_implementations_are_paired_as_told(make):
    mine, theirs = suite(make), suite(make, implementation="theirs")
    both = make.run(*mine.results, *theirs.results)
    assert implementations(both) == ("mine", "theirs")
    found = make.diff(mine, theirs, {"mine": "theirs"})
    assert (found.entries, found.same, found.two) == ((), len(mine.results), True)
    wrong = make.run(*mine.results, *(changed(r, verdict=V.FAIL) for r in theirs.results))
    found = make.diff(wrong, wrong, {"mine": "theirs"})
    assert found.counts == {Mark.NEWLY_FAILING: len(mine.results)}
    assert {(e.old.case.implementation, e.new.case.implementation) for e in found.entries} == {
        ("mine", "theirs")
    }
    found = make.diff(both, wrong)
    assert (found.counts[Mark.NEWLY_FAILING], found.same, found.two) == (
        len(mine.results), len(mine.results), False,
    )  # fmt: skip


def test_two_implementations_are_compared_as_soon_as_one_pair_differs(make):
    run = make.run(make.result(), make.result(implementation="theirs"))
    assert make.diff(run, run, {"mine": "mine", "theirs": "mine"}).two
    assert not make.diff(run, run, {"mine": "mine", "theirs": "theirs"}).two


def test_an_error_has_to_double_unless_somebody_says_otherwise(make):
    old, less, more = (make.run(make.result(times=times)) for times in (0.3, 0.55, 0.65))
    for new, count in ((less, 0), (more, 1)):
        found = compared(Side(name="a", run=old), Side(name="b", run=new), {"mine": "mine"})
        assert found.counts[Mark.ERROR_GREW] == count


def test_a_property_that_is_broken_does_not_keep_another_from_being_asked(make):
    """Only the gradient or the call does."""
    broken = make.contract("written", V.FAIL)
    old = make.run(make.result(), broken, make.contract("sizes"))
    new = make.run(make.result(), broken, make.contract("sizes", V.SKIP))
    assert make.diff(old, new).counts[Mark.SUPPORT_LOST] == 1


def test_what_nobody_asked_for_is_left_out(make):
    both = make.run(make.result(), make.result(verdict=V.FAIL, implementation="theirs"))
    found = make.diff(both, make.run(make.result()), {"mine": "mine"})
    assert (found.entries, found.same) == ((), 1)
    assert (len(found.old.run.results), found.old.run.footer.checked) == (1, 1)
    assert found.old.run.header.implementations == ("mine",)


def test_runs_without_a_case_in_common_have_compared_nothing(make):
    old, new = make.run(make.result()), make.run(make.result(op="relu"))
    assert make.diff(old, new).compared == 0
    assert make.diff(old, make.run(make.result(seed=1))).compared == 0
    assert make.diff(make.run(), make.run()).compared == 0
    assert make.diff(old, old).compared == 1
    assert make.diff(make.run(), make.run()).summary.startswith("DIFF nothing compared=0 same=0 ")


def test_the_time_grows_with_the_results_alone(make, monkeypatch):
    """Counted, not timed: how often two results are looked at."""
    calls = Counter()
    from gradcheck.results.diff import compare

    def counted(function):
        def call(*arguments, **options):
            calls[function.__name__] += 1
            return function(*arguments, **options)

        return call

    for name in ("both", "unlike", "_whole", "_stands_for"):
        monkeypatch.setattr(compare, name, counted(getattr(compare, name)))
    looked = []
    for ops in (10, 40):
        calls.clear()
        make.diff(suite(make, ops=ops), suite(make, ops=ops))
        looked.append(calls.total())
    assert looked[1] == 4 * looked[0]
