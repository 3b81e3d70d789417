import pytest

from benchmarks.machine import described
from benchmarks.table import PAIRED, by_turns, line, number, paired, table


def test_a_table_says_which_columns_are_text():
    assert table(("<name", "ms"), [("a", 1), ("b", 2)]) == (
        "| name | ms |\n|---|---:|\n| a | 1 |\n| b | 2 |"
    )


def test_a_bar_is_no_column():
    assert line(["a|b", 2]) == "| a\\|b | 2 |"


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, ""), (0.012345, "0.0123"), (12.345, "12.3"), (123.4, "123"), (98765.4, "98,765")],
)
def test_numbers_have_three_digits(value, said):
    assert number(value) == said


def test_medians_and_the_median_of_ratios_which_is_not_their_ratio():
    row = paired("help", ("A", "B"), [(1.0, 1.0), (2.0, 1.0), (9.0, 3.0)])
    assert (row.a_ms, row.b_ms, row.ratio) == (2000.0, 1000.0, 2.0)
    row = paired("help", ("A", "B"), [(1.0, 1.0), (2.0, 4.0), (9.0, 3.0)])
    assert (row.a_ms, row.b_ms, row.ratio) == (2000.0, 3000.0, 1.0)
    assert row.cells("≤ 3") == ("A", "B", "2,000", "3,000", "1", "≤ 3")
    assert len(row.cells()) == len(PAIRED)


def test_what_is_compared_is_measured_by_turns():
    order = []

    def one(name, seconds):
        order.append(name)
        return seconds

    row = by_turns("x", ("a", "b"), (lambda: one("a", 3.0), lambda: one("b", 1.0)), 2)
    assert order == ["a", "b", "a", "b"]
    assert row.ratio == 3.0


def test_a_machine_has_cores_a_kernel_and_versions():
    said = described({"numpy": "9.9"})
    assert "cores (" in said
    assert said.endswith("numpy 9.9")
