from gradcheck.report import failures
from gradcheck.results.verdict import Verdict


def bad(make, times, **changes):
    worst = (make.miss(error=times, bound=1.0),)
    return make.result(verdict=Verdict.FAIL, worst=worst, **changes)


def test_groups_come_worst_first_by_verdict_then_by_error(make):
    run = make.run(
        make.result("a", verdict=Verdict.INCONCLUSIVE),
        bad(make, 2.0, op="b"),
        bad(make, 3.0, op="c"),
        make.result("d", verdict=Verdict.CRASH),
        make.result("e", verdict=Verdict.SKIP),
        make.result("f"),
    )
    assert [group.op for group in failures.groups(run)] == ["d", "c", "b", "a"]


def test_failures_are_all_that_the_gate_does_not_accept(failing):
    grouped = [r for group in failures.groups(failing) for r in group.results]
    assert len(grouped) == 11
    assert {id(r) for r in grouped} == {
        id(r) for r in failing.results if not r.finding.verdict.expected
    }
