"""What messages quote of a text: names where there are names, else the expression, shortened."""

from types import SimpleNamespace

import numpy as np

from gradcheck.explain.trace.source import LONGEST, expression, operand_text, span, text_of
from gradcheck.explain.trace.tape import record


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
    assert len(shown) == LONGEST
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
