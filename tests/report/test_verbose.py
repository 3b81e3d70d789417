"""With -v every case has a row of its own, and every failure is told in full."""

import pytest

from gradcheck.report import outline, render
from gradcheck.report.failures import MAX_GROUPS, SAMPLES
from gradcheck.report.outline import spread
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict


def cells(row):
    return [result for cell in row.cells.values() for result in cell.results]


def test_rows_are_taken_apart_and_nothing_is_lost_or_twice(any_run):
    for table in outline.tables(any_run):
        found = spread(any_run, table.rows)
        assert all({r.case.sample for r in cells(row)} == {sample} for sample, row in found)
        assert sorted(id(r) for _, row in found for r in cells(row)) == (
            sorted(id(r) for row in table.rows for r in cells(row))
        )


def test_the_gradients_of_a_case_stand_together(make):
    run = make.run(
        *[
            make.result(output=output, sample=sample, dtype=dtype)
            for output in ("x", "w")
            for sample in ("typical", "zero")
            for dtype in ("float64", "float32")
        ]
    )
    (table,) = outline.tables(run)
    assert [(s, r.output, [*r.cells]) for s, r in spread(run, table.rows)] == [
        (sample, output, ["float64", "float32"])
        for sample in ("typical", "zero")
        for output in ("x", "w")
    ]


def test_a_verdict_is_that_of_its_case(make):
    run = make.run(make.result(verdict=Verdict.FAIL), make.result(sample="zero"))
    text = render(run, "terminal", verbosity=1)
    rows = [line.split() for line in text.splitlines() if " dx  " in line]
    wrong, right = (row[row.index("dx") + 1] for row in rows)
    assert (wrong, right) == ("FAIL", "PASS")
    assert ["typical" in row for row in rows] == [True, False]


def test_every_failure_is_told_in_full(make):
    many = make.run(
        *[
            make.result(f"op{i:02}", verdict=Verdict.FAIL, sample=f"s{k}")
            for i in range(MAX_GROUPS + 2)
            for k in range(SAMPLES + 2)
        ]
    )
    usual, all_of_it = (render(many, "terminal", verbosity=v) for v in (0, 1))
    assert usual.count("\n  run: ") == MAX_GROUPS * SAMPLES
    assert all_of_it.count("\n  run: ") == len(many.results)
    assert "more" not in all_of_it


def test_a_long_table_is_not_folded(make):
    many = make.run(*[make.result(f"op{i:03}") for i in range(300)])
    assert "One line per passing operator" in render(many, "terminal")
    assert "One line per" not in render(many, "terminal", verbosity=1)


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("width", [60, 75, 100, 160])
def test_it_fits(any_run, width):
    lines = render(any_run, "terminal", width=width, verbosity=1).splitlines()
    assert [
        line for line in lines if len(line) > width and not line.startswith(("  run: ", "RESULT "))
    ] == []


def test_a_property_stays_in_its_row(make):
    run = make.run(
        *[make.result(output=name, part=Part.CONTRACT) for name in ("linear", "pure", "zero")]
    )
    assert "PASS 3/3" in render(run, "terminal", verbosity=1)
