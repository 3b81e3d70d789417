"""Tables fit, lose no word while they can, and look as they always did where there is room."""

import pytest
from tabulate import tabulate

from gradcheck.report.page import wrapped_table

HEADS = ("operator", "family", "names of its dialects", "samples")
BODY = [
    ("rms_norm", "norm", "weight, unit-offset, plain", 15),
    ("cross_entropy", "loss", "mean, sum, label-smoothing-mean", 9),
    ("empty", "", "", 0),
]
ALIGN = ("left", "left", "left", "right")


def test_where_there_is_room_nothing_changes():
    usual = tabulate(BODY, HEADS, disable_numparse=True, colalign=ALIGN)
    assert (
        wrapped_table(HEADS, BODY, None, ALIGN) == wrapped_table(HEADS, BODY, 100, ALIGN) == usual
    )


@pytest.mark.parametrize("width", range(52, 90))
def test_it_fits_and_every_word_is_there(width):
    lines = wrapped_table(HEADS, BODY, width, ALIGN).splitlines()
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    for row in (HEADS, *BODY):
        assert {word for cell in row for word in str(cell).split()} <= words


@pytest.mark.parametrize("width", range(30, 52))
def test_what_is_spare_is_left_out_only_where_it_must(width):
    text = wrapped_table(HEADS, BODY, width, ALIGN, spare=("family", "names of its dialects"))
    assert max(map(len, text.splitlines())) <= width
    assert "family" not in text
    assert ("label-smoothing-mean" in text) == (width >= 44)
    assert "cross_entropy" in text


def test_what_cannot_fit_is_shown_all_the_same():
    text = wrapped_table(("name",), [("a-name-that-is-long",)], 5)
    assert "a-name-that-is-long" in text
    assert "a-name-that-is-long" in wrapped_table(
        ("name",), [("a-name-that-is-long",)], 5, spare=("x",)
    )


def test_numbers_stay_right_and_the_rule_spans_the_wrapped_columns():
    lines = wrapped_table(HEADS, BODY, 60, ALIGN).splitlines()
    (rule,) = (line for line in lines if set(line) == {"-", " "})
    assert len(rule) == max(map(len, lines)) <= 60
    assert next(line for line in lines if line.startswith("rms_norm")).endswith("     15")


def test_an_empty_table_is_its_heads():
    assert wrapped_table(HEADS, [], 40).split()[0] == "operator"
