import math

import numpy as np
import pytest

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.expression import (
    Context,
    check_expression,
    evaluation_order,
    names_in,
)
from gradcheck.implementations.manifest.operation import Function, Special, Value
from gradcheck.implementations.manifest.prototype import parse

X = np.arange(24.0).reshape(2, 3, 4)
PRIMALS = {"x": X, "w": np.ones(4), "s": np.array(2.5), "n": np.array([7, 9])}
ATTRS = {"eps": 1e-5, "axis": -1, "form": "tanh", "axes": (0, 2, 1), "ne0": None, "causal": True}


def context(**names):
    return Context(PRIMALS, ATTRS, names, "gradcheck.toml, op 3 (f)")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("7", 7), ("2 + 3 * 4", 14), ("2 ** 10", 1024), ("7 // 2", 3), ("7 % 4", 3), ("-3 + 4", 1),
        ("6 / 2", 3), ("dim(x, 0)", 2), ("dim(x, -1)", 4), ("dim(x, axis)", 4), ("ndim(x)", 3),
        ("ndim(s)", 0), ("size(x)", 24), ("size(s)", 1), ("rows(x)", 6), ("rows(s)", 1),
        ("rows(w)", 1), ("dims(x)[1]", 3), ("max(dims(x))", 4), ("min(3, 5)", 3), ("max(x)", 23),
        ("prod(dims(x)[:-1])", 6), ("sum(dims(x))", 9), ("len(dims(x))", 3), ("int(2.7)", 2),
        ("abs(-4)", 4), ("sqrt(16)", 4), ("3 if causal else 4", 3),
        ("1 if form == 'erf' else 2", 2),
        ("has(w) + 0", 1), ("1 if has(b) else 0", 0), ("dim(b, 0) if has(b) else 5", 5),
        ("N * 2", 22), ("1 if form in ['tanh', 'erf'] else 0", 1), ("1 if ne0 is None else 2", 1),
        ("dim(x, axis=0)", 2), ("not causal", 0), ("1 < 2 < 3 and 4", 4), ("len(axes)", 3),
        ("mean(w)", 1),
    ],
)  # fmt: skip
def test_sizes(text, size):
    assert context(N=11).size(text) == size
    assert type(context(N=11).size(text)) is int


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size(x) / 9", "yields 2.66667, which is no whole number"),
        ("0.5", "yields 0.5, which is no whole number"),
        ("1 - 2", "yields -1; a size is not negative"),
        ("2 ** 40", "yields 1099511627776, more than any sample needs"),
        ("(2 ** 63) ** 64 * (2 ** 63) ** 64", "yields a number that no C type holds"),
        ("log(0) * 0", "a number is needed"),
        ("exp(1000)", "no whole number"),
        ("x", "a number is needed"),
        ("'a'", "yields 'a'; a number is needed"),
        ("None", "yields None; a number is needed"),
        ("dims(x)", "a number is needed"),
        ("sqrt", "a number is needed"),
        ("...", "a number is needed"),
        ("1 // 0", "cannot be evaluated: "),
        ("dim(x, 3)", "cannot be evaluated: "),
        ("item(x)", "cannot be evaluated: "),
        ("rows(b)", "this dialect has no `b` (it has n, s, w, x)"),
        ("b", "write `… if has(b) else 0`"),
        ("max()", "cannot be evaluated: "),
        ("dim(x)", "cannot be evaluated: "),
        ("ne0 + 1", "cannot be evaluated: "),
    ],
)
def test_nonsense_is_an_error_that_names_the_expression_and_its_place(text, message):
    with pytest.raises(ManifestError) as caught:
        context().size(text, of="scratch `tmp`")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"gradcheck.toml, op 3 (f): expression `{text}` of scratch")


@pytest.mark.parametrize(
    "text",
    [
        "x.shape", "x.tofile('f')", "().__class__", "__import__('os')", "open('f')", "eval('1')",
        "(lambda: 1)()", "[n for n in dims(x)]", "f'{x}'", "(n := 3)", "import os", "a = 1",
        "'%1000000000d' % 1", "'a' * 1000000000", "[1] * 1000000000", "9 ** 9 ** 9", "2 ** 1000",
        "(2 ** 64) ** 2", "10 ** -1000", "1 << 10", "~3", "3 @ 4", "dims(x)(0)", "dim(*dims(x))",
        "max(**3)", "1;2", "", "(" * 300, "-" * 1900 + "1", "1 +" * 1000 + "1", "b'a'", "3j",
        "{1: 2}", "{1}", "await x", "globals()", "sqrt.__call__(2)", "int.from_bytes(b'a')",
        "x" * 5000,
    ],
)  # fmt: skip
def test_nothing_but_arithmetic_is_carried_out(text):
    with pytest.raises(ManifestError):
        context().size(text)


def test_numbers_of_any_sign():
    assert context().whole("-3") == -3
    assert context().number("eps * 2") == 2e-5
    assert context().number("log(0)") == -math.inf
    assert context().number("item(s)") == 2.5
    with pytest.raises(ManifestError, match="a number is needed"):
        context().number("form")


def test_texts():
    assert context().text("form") == "tanh"
    assert context().text("'causal' if causal else 'full'") == "causal"
    for wrong in ("3", "'a\\0b'", "dims(x)"):
        with pytest.raises(ManifestError, match="a string is needed"):
            context().text(wrong)


def test_lists():
    assert context().numbers("reversed(dims(x))") == [4, 3, 2]
    assert context(N=5).numbers("[1, rows(x), N / 5, 0.5]") == [1, 6, 1, 0.5]
    assert context().numbers("axes") == [0, 2, 1]
    assert context().numbers("dims(x)[:-1] + [9]") == [2, 3, 9]
    assert context().numbers("n") == [7, 9]
    for wrong in ("3", "'ab'", "['a']", "[None]"):
        with pytest.raises(ManifestError, match="needed"):
            context().numbers(wrong)


def test_arrays_are_float64():
    found = context().array("1 / sqrt(mean(x * x, -1) + eps)")
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 1 / np.sqrt((X * X).mean(-1) + 1e-5))
    np.testing.assert_allclose(context().array("sum(x, axis=0)"), X.sum(0))
    np.testing.assert_allclose(context().array("x ** 2 - mean(x, 2)[0, 0]"), X**2 - 1.5)
    for wrong in ("form", "[1, dims(x)]", "ne0", "['a', 1]"):
        with pytest.raises(ManifestError, match="an array of numbers is needed"):
            context().array(wrong)


def test_conditions():
    assert context(D=8).truth("D % 4 == 0")
    assert not context(D=9).truth("D % 4 == 0")
    assert context().truth("dims(x) == [2, 3, 4]")
    for wrong in ("x > 3", "form", "None"):
        with pytest.raises(ManifestError, match="a condition is needed"):
            context().truth(wrong)


def function(text, **bind):
    prototype = parse(text, "here")
    meanings = {n: m if isinstance(m, Special) else Value(expression=m) for n, m in bind.items()}
    return Function(prototype=prototype, library=None, meanings=meanings)


def test_scalars_of_a_function_are_evaluated_in_the_order_of_their_needs():
    f = function(
        "void f(int ld, int D, int N, float eps, bool last, const int* ne)",
        ld="D + 1", D="dim(x, -1)", N="rows(x)", eps="eps", last="causal", ne="dims(x)",
    )  # fmt: skip
    known = Context.of(f, PRIMALS, ATTRS).names
    assert known == {"ld": 5, "D": 4, "N": 6, "eps": 1e-5, "last": 1}


def test_a_parameter_that_is_called_like_a_primal_hides_it_but_from_tensor_functions():
    f = function("void f(int w, int x)", w="dim(w, 0) + 1", x="w * 10")
    made = Context.of(f, PRIMALS, ATTRS)
    assert made.names == {"w": 5, "x": 50}
    assert made.size("dim(w, 0)") == 4
    assert made.size("w") == 5


@pytest.mark.parametrize(
    ("ctype", "text", "message"),
    [
        ("int", "2 ** 31", "yields 2147483648, which is no int32"),
        ("unsigned", "-1", "yields -1, which is no uint32"),
        ("size_t", "0 - size(x)", "yields -24, which is no uint64"),
        ("uint8_t", "256", "no uint8"),
        ("bool", "2", "no bool"),
        ("int", "eps", "yields 1e-05, which is no whole number"),
        ("float", "form", "a number is needed"),
        ("int", "rows(b)", "of parameter `p`"),
    ],
)
def test_a_scalar_that_its_c_type_does_not_hold(ctype, text, message):
    with pytest.raises(ManifestError) as caught:
        Context.of(function(f"void f({ctype} p)", p=text), PRIMALS, ATTRS, "here")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("ctype", "text", "value"),
    [
        ("int", "2 ** 31 - 1", 2**31 - 1),
        ("int64_t", "-(2 ** 62)", -(2**62)),
        ("uint64_t", "2 ** 63", 2**63),
        ("float", "1024", 1024),
        ("double", "1e-300", 1e-300),
        ("bool", "ndim(x) > 2", 1),
        ("char", "65", 65),
    ],
)
def test_a_scalar_that_its_c_type_holds(ctype, text, value):
    made = Context.of(function(f"void f({ctype} p)", p=text), PRIMALS, ATTRS)
    assert made.names == {"p": value}


KNOWN = ("x", "weight", "eps", "rows_of_x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows(y)", "there is no `y` here"),
        ("wieght * 2", "there is no `wieght` here; did you mean `weight`?"),
        ("row(x)", "there is no function `row`; did you mean `rows`?"),
        ("zzz(x)", "there is no function `zzz`; known: "),
        ("x.shape", "an attribute (a dot) is not allowed"),
        ("rows(x", "it cannot be read: "),
        ("", "it cannot be read: "),
        ("1if x else 2", "it cannot be read: invalid decimal literal"),
        ("has(x, eps)", "has takes the name of one primal"),
        ("has(3)", "has takes the name of one primal"),
        ("has(y)", "there is no `y` here"),
        ("-" * 1900 + "x", "nested too deeply"),
    ],
)
def test_mistakes_are_found_before_any_shape_is_known(text, message):
    with pytest.raises(ManifestError) as caught:
        check_expression(text, KNOWN, "gradcheck.toml, op 1 (f): bind.N")
    assert message in str(caught.value)
    assert str(caught.value).startswith("gradcheck.toml, op 1 (f): bind.N: ")


def test_what_is_right_passes():
    for text in ("rows(x) * 2", "eps", "'text'", "[1, dim(x, -1)]", "mean(x, axis=-1)", "has(x)"):
        check_expression(text, KNOWN, "here")


def test_the_first_argument_of_a_tensor_function_is_a_tensor():
    mentioned = names_in("dim(x, axis) * N + sqrt(y) + has(w)")
    assert mentioned.tensors == {"x", "w"}
    assert mentioned.others == {"axis", "N", "y"}
    assert mentioned.all == {"x", "w", "axis", "N", "y"}


def test_an_order_in_which_each_stands_behind_what_it_needs():
    found = evaluation_order(
        {"a": "b + c", "b": "c * 2", "c": "rows(x)", "d": "dim(x, a)"}, ["x"], "here"
    )
    assert sorted(found) == ["a", "b", "c", "d"]
    assert found.index("c") < found.index("b") < found.index("a") < found.index("d")


def test_its_own_name_is_the_attribute():
    assert evaluation_order({"eps": "eps", "x": "rows(x)"}, ["x"], "here") is not None


@pytest.mark.parametrize(
    "circle",
    [{"N": "D", "D": "N"}, {"a": "b", "b": "c + 1", "c": "dim(x, a)"}, {"N": "rows(M)", "M": "N"}],
)
def test_a_circle_is_an_error_that_shows_it(circle):
    with pytest.raises(ManifestError, match="these are defined by each other") as caught:
        evaluation_order(circle, ["x"], "here")
    assert all(f"`{name}`" in str(caught.value) for name in circle)
