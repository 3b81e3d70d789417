import itertools
import math

import pytest

from gradcheck.report import failures, outline, run_words
from gradcheck.report.outline import rows
from gradcheck.results.verdict import Verdict
from tests.case_results import changed

FAIL = Verdict.FAIL


def bad(make, times, **changes):
    return make.result(verdict=FAIL, worst=(make.miss(error=times, bound=1.0),), **changes)


def test_a_nan_is_the_worst_whatever_the_order(make):
    nan = make.miss(got=math.nan, error=math.nan)
    results = [
        make.result(verdict=FAIL, sample="nan", worst=(nan,)),
        bad(make, 1e300, sample="huge"),
        bad(make, 2.0, sample="small"),
    ]
    for order in itertools.permutations(results):
        run = make.run(*order)
        (row,) = rows(run)
        assert outline.shown(row.cells["float64"]).case.sample == "nan"
        (group,) = failures.groups(run)
        assert [r.case.sample for r in group.results] == ["nan", "huge", "small"]


@pytest.mark.parametrize(
    ("error", "bound", "times_bound"),
    [(1.0, 0.5, 2.0), (1.0, 0.0, math.inf), (0.0, 0.0, 0.0), (math.nan, 1.0, math.inf),
     (1.0, math.nan, math.inf), (math.inf, math.inf, math.inf), (math.inf, 1.0, math.inf)],
)  # fmt: skip
def test_times_bound_is_a_number(make, error, bound, times_bound):
    assert (
        make.result(worst=(make.miss(error=error, bound=bound),)).finding.times_bound == times_bound
    )


def test_a_result_without_elements_is_the_least_bad_of_its_verdict(make):
    assert make.result(worst=()).finding.times_bound < 0


def test_an_operator_stands_together_even_if_it_came_back_later(make):
    order = [("a", "one"), ("b", "one"), ("a", "two"), ("b", "two"), ("a", "one")]
    found = [
        make.result(op, output, dialect=dialect)
        for (op, dialect), output in zip(order, "vwxyz", strict=True)
    ]
    (table,) = outline.tables(make.run(*found))
    assert [(row.op, row.dialect, row.output) for row in table.rows] == [
        ("a", "one", "v"), ("a", "one", "z"), ("a", "two", "x"), ("b", "one", "w"),
        ("b", "two", "y"),
    ]  # fmt: skip


def test_columns_are_the_headers_dtypes_that_were_judged_and_any_others(make):
    run = make.run(make.result(dtype="float16"), make.result(dtype="float32"))
    (table,) = outline.tables(run)
    assert table.dtypes == ("float32", "float16")


def test_tables_follow_the_header_and_forget_nobody(make):
    run = make.run(
        make.result(implementation="stranger"),
        make.result(implementation="b"),
        make.result(implementation="a"),
        implementations=("a", "silent", "b"),
    )
    assert [t.implementation for t in outline.tables(run)] == ["a", "b", "stranger"]


def test_samples_keep_their_dtypes_together(make):
    run = make.run(*(make.result(sample=s, dtype=d) for s in "ab" for d in ("float64", "float32")))
    (row,) = outline.tables(run)[0].rows
    found = [[(r.case.sample, r.case.dtype) for r in part] for part in outline.by_sample(row)]
    assert found == [
        [("a", "float64"), ("a", "float32")],
        [("b", "float64"), ("b", "float32")],
    ]


def test_calls_that_were_not_made_are_left_to_the_gaps(make):
    lacking = Verdict.UNSUPPORTED
    run = make.run(
        make.result("wide", "x"),
        make.result("wide", "vjp", lacking, dtype="float32", reason="no float32"),
        make.result("wide", "vjp", lacking, dialect="other", reason="no other"),
        make.result("narrow", "vjp", Verdict.UNBOUND),
    )
    (table,) = outline.tables(run)
    assert [(r.op, r.dialect, r.output) for r in table.rows] == [
        ("wide", "weight", "x"),
        ("wide", "other", "vjp"),
    ]
    assert {gap.ops for gap in run_words.gaps(run)} == {("wide",), ("narrow",)}


@pytest.mark.parametrize("verdict", [Verdict.UNBOUND, Verdict.UNSUPPORTED])
def test_a_table_of_gaps_alone_is_no_empty_table(make, verdict):
    (table,) = outline.tables(make.run(make.result("a", "vjp", verdict)))
    assert [row.verdict for row in table.rows] == [verdict]


@pytest.mark.parametrize("verdict", [v for v in Verdict if v.checked])
def test_a_call_that_failed_is_never_left_out(make, verdict):
    (table,) = outline.tables(make.run(make.result("a"), make.result("a", "vjp", verdict)))
    assert [row.output for row in table.rows] == ["x", "vjp"]


def test_a_gradient_that_is_lacking_keeps_its_row(make):
    run = make.run(make.result("a"), make.result("a", "w", Verdict.UNSUPPORTED))
    (table,) = outline.tables(run)
    assert [row.output for row in table.rows] == ["x", "w"]


def test_rows_gather_samples_and_keep_everything_else_apart(make):
    base = make.result(compared=10)
    apart = [
        changed(base, implementation="other"),
        changed(base, op="tanh"),
        changed(base, dialect="quick"),
        changed(base, output="forward"),
    ]
    together = [
        changed(base, sample="tiny", verdict=Verdict.FAIL, compared=5),
        changed(base, dtype="float32", verdict=Verdict.MISSING, compared=0),
    ]
    found = rows(make.run(base, *apart, *together))
    assert [(r.implementation, r.op, r.dialect, r.output) for r in found] == [
        (r.case.implementation, r.case.op, r.case.dialect, r.finding.name) for r in (base, *apart)
    ]
    first = found[0]
    assert list(first.cells) == ["float64", "float32"]
    assert first.cells["float64"].results == (base, together[0])
    assert first.cells["float64"].verdict is Verdict.FAIL
    assert first.cells["float32"].verdict is Verdict.MISSING
    assert (first.verdict, first.compared, first.samples) == (Verdict.FAIL, 15, 2)
    assert (found[1].verdict, found[1].compared, found[1].samples) == (Verdict.PASS, 10, 1)
    assert rows(make.run()) == []
