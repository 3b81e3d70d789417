"""Shards go together to the run that they are of; what does not belong together is refused."""

from dataclasses import replace

import pytest

from gradcheck.errors import UsageError
from gradcheck.report import FORMATS, render
from gradcheck.results.run import AT_FIRST, AT_MOST, AT_TIME, digest_of
from gradcheck.results.stored.log import by_case, by_implementation, case_of
from gradcheck.results.verdict import Gate
from gradcheck.run.merge import Named, merged
from gradcheck.run.plan import shard_of


def sharded(run, of):
    """The run as its shards."""
    cases = [*dict.fromkeys(map(case_of, by_case(run)))]
    found = []
    for number in range(1, of + 1):
        mine = {*shard_of(cases, f"{number}/{of}")}
        results = tuple(r for r in run.results if case_of(r) in mine)
        header = replace(run.header, shard=f"{number}/{of}", cases=digest_of(results))
        found.append(replace(run, header=header, results=results))
    return found


def named(runs):
    return [Named(f"{number}.jsonl", run) for number, run in enumerate(runs, 1)]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("of", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("implementations", [("reference",), ("torch", "reference")])
def test_the_shards_of_a_run_are_the_run_in_every_format(make, of, implementations):
    run = make.whole(implementations=implementations, troubles=("no mine",))
    parts = named(sharded(run, of))
    for found in (merged(parts), merged(parts[::-1])):
        assert found == run
        for form in FORMATS:
            assert render(found, form) == render(run, form)


def test_a_run_alone_is_itself(make):
    run = make.whole()
    assert merged(named([run])) == run
    cut = replace(run, complete=False, stopped="interrupted")
    assert merged(named([cut])) == cut


def test_what_a_baseline_said_of_a_part_is_not_said_of_the_whole(make):
    parts = [replace(run, gate=Gate(baseline="k.toml")) for run in sharded(make.whole(), 2)]
    assert merged(named(parts)).gate is None


def test_a_shard_that_is_missing_makes_the_run_incomplete(make):
    run = make.whole()
    first, _, third = sharded(run, 3)
    found = merged(named([third, first]))
    assert (found.complete, found.passed) == (False, False)
    assert found.stopped == "shard 2/3 is missing"
    assert merged(named([third])).stopped == "shards 1/3, 2/3 are missing"
    assert found.header.shard == ""
    rest = {case_of(r) for r in found.results}
    assert rest == {case_of(r) for r in (*first.results, *third.results)}
    assert [*found.results] == [r for r in run.results if case_of(r) in rest]


def test_a_shard_that_is_incomplete_makes_the_run_incomplete(make):
    first, second, third, fourth = sharded(make.whole(), 4)
    second = replace(second, complete=False, stopped="interrupted; not reached: 1 of 2 cases")
    third = replace(third, complete=False)
    found = merged(named([first, second, third]))
    assert not found.complete
    assert found.stopped == (
        "shard 4/4 is missing; shard 2/4 is incomplete: interrupted; not reached: 1 of 2 cases; "
        "shard 3/4 is incomplete: the run stopped early"
    )
    assert not found.halted
    assert not merged(named([first, second, third, fourth])).halted


def test_shards_that_ended_at_a_failure_are_a_run_that_did(make):
    first, second = sharded(make.whole(), 2)
    second = replace(second, complete=False, stopped=f"{AT_FIRST}; not reached: 1 of 2 cases")
    found = merged(named([first, second]))
    assert found.halted
    assert found.stopped == f"{AT_FIRST} in shard 2/2"
    assert not merged(named([second])).halted  # the other one is missing


@pytest.mark.parametrize(("one", "said"), [(AT_FIRST, AT_MOST), (AT_MOST, AT_MOST)])
def test_shards_that_ended_at_several_failures_are_one_that_did(make, one, said):
    first, second = sharded(make.whole(), 2)
    first = replace(first, complete=False, stopped=one)
    second = replace(second, complete=False, stopped=f"{AT_MOST}; not reached: 1 of 2 cases")
    found = merged(named([first, second]))
    assert found.halted
    assert found.stopped == f"{said} in shard 1/2, shard 2/2"
    interrupted = replace(second, stopped="interrupted")
    assert not merged(named([first, interrupted])).halted


def test_a_shard_whose_time_was_up_is_told_of_all(make):
    first, second = sharded(make.whole(), 2)
    first = replace(first, complete=False, stopped=AT_MOST)
    late = f"{AT_TIME} 60 s, was up"
    second = replace(second, complete=False, stopped=f"{late}; not reached: 1 of 2 cases")
    found = merged(named([first, second]))
    assert (found.late, found.halted) == (True, True)
    assert found.stopped == f"{late} in shard 1/2, shard 2/2"


def test_troubles_of_all_shards_are_said_once(make):
    parts = sharded(make.whole(), 2)
    parts = [replace(run, troubles=("no mine", f"no {i}")) for i, run in enumerate(parts)]
    assert merged(named(parts)).troubles == ("no mine", "no 0", "no 1")


# ── side by side ─────────────────────────────────────────────────────────────────────────────


def test_implementations_stand_side_by_side(make):
    both = make.whole(implementations=("torch", "reference"))
    alone = [make.whole(implementations=(name,)) for name in ("torch", "reference")]
    assert merged(named(alone)) == both
    parts = [part for run in alone for part in sharded(run, 2)]
    assert merged(named([parts[0], parts[3], parts[1], parts[2]])) == both


def test_what_an_implementation_says_of_itself_stays(make):
    runs = [make.whole(implementations=(n,), versions={n: f"{n} 1"}) for n in ("a", "b")]
    assert merged(named(runs)).header.versions == {"a": "a 1", "b": "b 1"}


def test_one_that_is_incomplete_is_named(make):
    runs = [make.whole(implementations=(name,)) for name in ("a", "b")]
    runs[1] = replace(runs[1], complete=False, results=runs[1].results[:4], stopped="interrupted")
    found = merged(named(runs))
    assert (found.complete, found.stopped) == (False, "b: interrupted")
    runs[1] = replace(runs[1], stopped=AT_FIRST)
    assert merged(named(runs)).halted


# ── what does not belong together ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("version", "0.2.0", "gradcheck version 0.2.0, but 0.1.0 in 1.jsonl: merge"),
        ("suite", "mine", "suite mine, but builtin in 1.jsonl: merge"),
        ("suite_version", "2027.1", "suite version 2027.1, but"),
        ("seed", 1, "seed 1, but 0 in 1.jsonl: merge"),
        ("dtypes", ("float64",), "dtypes float64, but float64, float32 in 1.jsonl"),
        ("numpy", "", "NumPy version unknown, but 2.4.6"),
        ("python", "3.99", "Python version 3.99, but"),
        ("platform", "Plan9\x1b[1m", "platform Plan9"),
    ],
)
def test_another_header_is_refused(make, field, value, said):
    first, second = sharded(make.whole(), 2)
    second = replace(second, header=replace(second.header, **{field: value}))
    with pytest.raises(UsageError) as caught:
        merged(named([first, second]))
    assert str(caught.value).startswith(f"2.jsonl: {said}")
    assert "merge runs that differ in nothing but" in str(caught.value)
    assert str(caught.value).isprintable()


def test_another_version_of_the_code_is_refused(make):
    first, second = sharded(make.whole(versions={"reference": "1"}), 2)
    second = replace(second, header=replace(second.header, versions={"reference": "2"}))
    with pytest.raises(UsageError, match=r"2\.jsonl: it is of another version of the code than 1"):
        merged(named([first, second]))


@pytest.mark.parametrize(
    ("pick", "said"),
    [
        (lambda whole, two, three: [two[0], two[1], two[0]], "is in 1.jsonl, too: merge the"),
        (lambda whole, two, three: [two[0], whole], "is in 1.jsonl, too: merge the"),
        (lambda whole, two, three: [whole, whole], "is in 1.jsonl, too: merge the"),
        (lambda whole, two, three: [two[0], three[1]], "is in 1.jsonl, too: merge the"),
    ],
)
def test_overlapping_results_are_refused(make, pick, said):
    run = make.whole()
    with pytest.raises(UsageError) as caught:
        merged(named(pick(run, sharded(run, 2), sharded(run, 3))))
    assert said in str(caught.value)


def test_shards_of_other_numbers_are_refused(make):
    run, other = make.whole(make.ops[:3]), make.whole(make.ops[3:])
    with pytest.raises(UsageError, match=r"not shards of one run: 1.jsonl is 1/2, 2.jsonl is 2/3"):
        merged(named([sharded(run, 2)[0], sharded(other, 3)[1]]))
    with pytest.raises(UsageError, match=r"not shards of one run: 1.jsonl is 1/2, 2.jsonl is 1/2"):
        merged(named([sharded(run, 2)[0], sharded(other, 2)[0]]))
    with pytest.raises(UsageError, match=r"2\.jsonl: it is not a shard, and 1\.jsonl is of"):
        merged(named([sharded(run, 2)[0], other]))
    bad = replace(run, header=replace(run.header, shard="2/1"))
    with pytest.raises(UsageError, match=r"1\.jsonl: '2/1' is not a shard"):
        merged(named([bad]))


def test_shards_of_other_selections_are_refused(make):
    run, other = make.whole(make.ops[:2]), make.whole(make.ops[2:])
    with pytest.raises(UsageError, match=r"different selections: 1.jsonl has 1 case, 2.jsonl has"):
        merged(named([sharded(run, 2)[0], sharded(other, 2)[1]]))


def test_implementations_of_other_cases_are_refused(make):
    runs = [make.whole(implementations=("a",)), make.whole(make.ops[1:], implementations=("b",))]
    with pytest.raises(UsageError, match=r"2\.jsonl: its cases are others than those of 1\.jsonl"):
        merged(named(runs))


@pytest.mark.parametrize("cut", [0, 1])
def test_one_that_was_cut_short_may_have_fewer_cases(make, cut):
    runs = [make.whole(implementations=("mine",)), make.whole(implementations=("theirs",))]
    short = make.whole(make.ops[:3], implementations=runs[cut].header.implementations)
    runs[cut] = replace(short, complete=False)
    whole = merged(named(runs))
    assert not whole.complete
    assert len(whole.results) == sum(len(run.results) for run in runs)


def test_an_implementation_that_is_in_both_is_refused(make):
    runs = [make.whole(implementations=names) for names in (("a",), ("a", "b"))]
    with pytest.raises(UsageError, match=r"2\.jsonl: a is in 1\.jsonl, too"):
        merged(named(runs))


def test_results_keep_to_their_implementations(make):
    run = make.whole(implementations=("b", "a"))
    found = merged(named(sharded(run, 3)))
    assert [*found.results] == sorted(found.results, key=by_implementation(run.header))
