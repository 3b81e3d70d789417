import pytest

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.expression import (
    check_expression,
    evaluation_order,
    names_in,
)

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
