"""What messages quote of a text: names where there are names, else the expression, shortened."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.explain.hypotheses.terms.names import (
    MAX_EXPRESSION_LENGTH,
    MAX_SPELT_OUT,
    Number,
    candidates,
    expression,
    factor_at,
    glossary,
    numbers,
    operand_text,
    span,
    text_of,
)
from gradcheck.explain.hypotheses.terms.tape import record
from gradcheck.explain.hypotheses.terms.text import Run
from tests.explain.scenes import scene


def vjp(xp, ct, x):
    r = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 0.5)
    g = ct * (
        x  # over several lines
        + r
    )
    ct = ct * 3
    both = xp.stack([g, ct - x], axis=0)
    return both[0] - r * xp.exp(x * x * x * x * x * x * x * x * x * x * x * x * x * x * x * x * x)


def nodes():
    spec = SimpleNamespace(vjp=vjp, forward=lambda xp, x: x)
    found = record(spec, (np.ones((2, 3)),), ["x"], [np.ones((2, 3))], {})
    return found.nodes


def only(kind, k=0):
    return [n for n in nodes() if n.kind == kind][k]


def test_a_value_that_has_a_name_goes_by_it():
    assert text_of(only("divide")) == "r"
    assert operand_text(only("add", 1), 1) == "r"


def test_the_expression_is_quoted_without_its_module_and_axes():
    assert text_of(only("mean")) == "mean(x * x)"
    assert text_of(only("sqrt")) == "sqrt(mean(x * x) + 0.5)"
    assert text_of(only("add", 1)) == "x + r"


def test_operands_are_quoted_as_they_stand_there():
    assert operand_text(only("add"), 0) == "mean(x * x)"
    assert operand_text(only("stack"), 1) == "ct - x"
    assert operand_text(only("add"), 1) == "0.5"


def test_a_leaf_is_its_name_and_a_number_is_itself():
    assert text_of(nodes()[0]) == "ct"
    assert text_of(0.25) == "0.25"


def test_a_long_expression_is_cut():
    shown = text_of(only("exp"))
    assert len(shown) == MAX_EXPRESSION_LENGTH
    assert shown.endswith("…")


def test_a_span_covers_the_lines_of_its_expression():
    product = next(n for n in nodes() if n.kind == "multiply" and text_of(n) == "g")
    (line, _), (end, _) = span(product.place)
    assert end - line == 3
    inner = span(only("add", 1).place)
    assert (line, 0) <= inner[0] <= inner[1] <= (end, 99)


def test_without_source_the_kind_must_do():
    space = {}
    exec(compile("def hidden(xp, ct, x):\n    return ct * x\n", "<nowhere>", "exec"), space)  # noqa: S102  code whose source is nowhere
    spec = SimpleNamespace(vjp=space["hidden"], forward=lambda xp, x: x)
    found = record(spec, (np.ones(3),), ["x"], [np.ones(3)], {})
    assert text_of(found.outputs[0]) == "multiply"
    assert operand_text(found.outputs[0], 1) == "x"


def test_a_name_that_is_bound_again_says_nothing():
    tripled = next(n for n in nodes() if n.kind == "multiply" and 3 in n.operands)
    assert text_of(tripled) == "ct * 3"


def test_an_operation_is_quoted_whatever_it_is_called():
    assert expression(only("divide")) == "1 / sqrt(mean(x * x) + 0.5)"
    assert expression(nodes()[0]) == "ct"


def area(xp, r, *, scale=1.0):
    square = r * r
    twice = 2 * square
    changed = square
    changed = changed + 1
    added = 0
    added += r
    return scale * twice + xp.sum(changed, axis=-1) + added


def test_a_name_is_spelt_out_and_so_is_what_it_is_made_of():
    said = glossary(area, "dr lacks the term `twice`")
    assert said == "in the reference, `twice` is `2 * square`, `square` is `r * r`"


def circle(xp, r):
    return volume(r) / 3


def volume(r):
    height = 2 * r
    return height * area(None, r)


def test_what_it_calls_in_its_module_gives_names_too():
    said = glossary(circle, "dr lacks the factor `height` of `twice`")
    assert said.startswith("in the reference, `height` is `2 * r`, `twice` is `2 * square`")


def test_arguments_functions_and_what_stands_outside_quotes_are_left():
    assert glossary(area, "square: `r * scale` lacks `sum(r)`") == ""
    assert glossary(area, "nothing quoted, twice") == ""


def test_a_name_that_changes_its_meaning_is_left():
    assert glossary(area, "`changed` and `added`") == ""


def test_a_function_without_a_source_says_nothing():
    assert glossary(eval("lambda x: x"), "`x`") == ""  # noqa: S307
    assert glossary(len, "`x`") == ""


def test_it_does_not_go_on_for_ever():
    def long(a):
        b = a + 1
        c = b + 1
        d = c + 1
        e = d + 1
        f = e + 1
        return f  # noqa: RET504

    assert glossary(long, "`f`").count(" is ") == MAX_SPELT_OUT


def twice(ct, x, w, *, eps, unit_offset):
    return 2 * x, 2 * w


@pytest.fixture(scope="module")
def run():
    return Run(scene("rms_norm", twice, "x").first, "x")


def says(run, value):
    return [(n.kind, n.says) for n in numbers(run, value)]


def test_plain_numbers_come_first(run):
    assert says(run, 2.0)[0] == ("number", "2")
    assert says(run, 0.25)[-1] == ("number", "0.25")


def test_counts_are_named_by_the_axis(run):
    length = run.leaves["x"].value.shape[-1]
    found = next(n for n in numbers(run, 1 / length))
    assert (found.kind, found.says) == ("count", "1/n")
    assert found.note == ", n being the length of axis -1 of ct"
    assert says(run, math.sqrt(length))[0] == ("number", "sqrt(n)")
    assert ("count", "n/(n - 1)") not in says(run, length)


def test_attributes_are_named(run):
    assert ("attribute", "eps") in says(run, run.probe.attrs["eps"])


def test_a_number_with_no_name_is_that_number(run):
    assert says(run, 0.7321) == [("number", "0.7321")]
    assert says(run, 1e9) == []


def test_every_name_gives_the_number(run):
    for value in (2.0, 1 / 7, 7.0, 0.7321):
        assert all(n.of(run) == pytest.approx(value) for n in numbers(run, value))


def test_arrays_are_named_once_and_the_shortest_first(run):
    found = candidates(run)
    assert {"ct", "x", "w", "r", "n"} <= {c.says for c in found}
    assert len({c.key for c in found}) == len(found)
    assert [len(c.says) for c in found] == sorted(len(c.says) for c in found)
    assert {c.says: c.flows for c in found}["ct"]
    assert not {c.says: c.flows for c in found}["r"]
    for candidate in found:
        np.testing.assert_array_equal(candidate.ref.on(run, 0), candidate.value)


def test_a_factor_must_fit_the_shape(run):
    rows = next(c for c in candidates(run) if c.says == "r")
    shape = run.leaves["x"].value.shape
    assert factor_at(rows, shape).shape == shape
    assert factor_at(rows, (shape[0] + 1, 2)) is None


def test_a_count_has_another_letter_where_its_own_is_quoted(run):
    length = run.leaves["x"].value.shape[-1]
    found = next(n for n in numbers(run, 1 / length))
    where = "being the length of axis -1 of ct"
    assert found.times("the term `x`") == f"1/n times the right value, n {where}"
    assert found.times("the term `n * x`") == f"1/N times the right value, N {where}"
    assert Number("n", "A", lambda run: 1.0).times("`n`") == "n times the right value"
