import numpy as np
import pytest

from gradcheck.implementations.returned import (
    Broken,
    as_array,
    broken,
    fault,
    gradients,
    overwrites,
)
from gradcheck.results.verdict import Verdict

X = np.zeros((3, 5), np.float32)


class Raises:
    def __array__(self, *args, **options):
        raise RuntimeError("I am on another device")


class Wraps:
    def __array__(self, *args, **options):
        return np.ones((3, 5), np.float32)


# ── one gradient per primal ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("container", [tuple, list])
def test_one_entry_per_primal_is_taken_as_it_is(container):
    entries = [X, None, "text"]
    assert all(a is b for a, b in zip(gradients(container(entries), "xyz"), entries, strict=True))


@pytest.mark.parametrize("bare", [X, None, 1.0, "text"])
def test_a_bare_result_is_the_gradient_of_a_single_primal(bare):
    (only,) = gradients(bare, ["x"])
    assert only is bare


@pytest.mark.parametrize(
    ("returned", "names", "reason"),
    [
        ((), "x", "returned 0 gradients for 1 primals (x)"),
        ((X, X), "x", "returned 2 gradients for 1 primals (x)"),
        ((X,), "xw", "returned 1 gradients for 2 primals (x, w)"),
        ([X, X, X], "xw", "returned 3 gradients for 2 primals (x, w)"),
        (X, "xw", "returned one ndarray for 2 primals (x, w); return a tuple"),
        (np.stack([X, X]), "xw", "returned one ndarray for 2 primals"),  # its length is no arity
        (None, "xw", "returned None for 2 primals (x, w); return a tuple"),
        ({"x": X, "w": X}, "xw", "returned one dict for 2 primals"),
        ((g for g in (X, X)), "xw", "returned one generator for 2 primals"),
    ],
)
def test_another_number_of_gradients_breaks_the_call(returned, names, reason):
    with pytest.raises(Broken) as caught:
        gradients(returned, names)
    assert caught.value.finding.verdict is Verdict.ERROR
    assert caught.value.finding.name == "vjp"
    assert reason in caught.value.finding.reason
    assert "; return" in caught.value.finding.reason


def test_what_is_broken_says_so_in_its_exception_too():
    error = broken("w", "it is gone", Verdict.MISSING)
    assert str(error) == "it is gone"
    assert (error.finding.name, error.finding.verdict) == ("w", Verdict.MISSING)
    assert error.finding.diagnosis is None


def test_a_breach_that_tells_its_class_carries_it():
    found = broken("w", "it adds", label="A", says="dw is added to").finding.diagnosis
    assert (found.label, found.says, found.rule) == ("A", "dw is added to", "call")
    written = overwrites("vjp", "vjp writes into its argument ct; copy first").finding
    assert (written.verdict, written.diagnosis.label) == (Verdict.ERROR, "X")
    assert written.reason.startswith("vjp writes into its argument ct")


# ── the form of one gradient ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "good",
    [np.ones((3, 5), np.float32), X.T.copy().T, np.full((3, 5), np.nan, np.float32), Wraps()],
)
def test_a_float_array_like_the_primal_has_no_fault_whatever_its_numbers(good):
    assert fault(good, X, "x") is None


@pytest.mark.parametrize(
    ("bad", "verdict", "reason"),
    [
        (None, Verdict.MISSING, "no gradient for x: vjp returned None; return zeros"),
        ("text", Verdict.FAIL, "is a str, not an array of numbers"),
        (b"bytes", Verdict.FAIL, "is a bytes, not an array of numbers"),
        (object(), Verdict.FAIL, "is a object, not an array of numbers"),
        ({"x": 1.0}, Verdict.FAIL, "is a dict, not an array of numbers"),
        ([[1.0], [1.0, 2.0]], Verdict.FAIL, "is a list, not an array of numbers"),
        ((v for v in (1.0,)), Verdict.FAIL, "is a generator, not an array of numbers"),
        (Raises(), Verdict.FAIL, "is a Raises, not an array of numbers"),
        (X.astype(object), Verdict.FAIL, "is a ndarray of object, not an array of numbers"),
        (X.astype(complex), Verdict.FAIL, "is a ndarray of complex128, not an array of numbers"),
        (X[0], Verdict.FAIL, "has shape (5,), x has (3, 5); give it the shape of x"),
        (X.T, Verdict.FAIL, "has shape (5, 3), x has (3, 5)"),
        (X[..., None], Verdict.FAIL, "has shape (3, 5, 1), x has (3, 5)"),
        (np.float32(1.0), Verdict.FAIL, "has shape (), x has (3, 5)"),
        ([1.0, 2.0], Verdict.FAIL, "has shape (2,), x has (3, 5)"),
        (X.astype(np.float64), Verdict.FAIL, "is float64, x is float32; keep its dtype"),
        (X.astype(np.float16), Verdict.FAIL, "is float16, x is float32"),
        (X.astype(np.int32), Verdict.FAIL, "is int32, x is float32"),
        (X.astype(bool), Verdict.FAIL, "is bool, x is float32"),
    ],
)
def test_another_form_is_named(bad, verdict, reason):
    finding = fault(bad, X, "x")
    assert (finding.name, finding.verdict, finding.compared) == ("x", verdict, 0)
    assert reason in finding.reason
    assert "\n" not in finding.reason


# ── what is an array of numbers ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (1.5, "float64", ()),
        (3, "int64", ()),
        (True, "bool", ()),
        ([1.0, 2.0], "float64", (2,)),
        (((1.0,), (2.0,)), "float64", (2, 1)),
        (np.float32(1.0), "float32", ()),
        (np.zeros((0, 3)), "float64", (0, 3)),
        (memoryview(np.ones(2)), "float64", (2,)),
    ],
)
def test_numbers_of_any_kind_are_an_array(value, dtype, shape):
    array = as_array(value)
    assert (array.dtype, array.shape) == (dtype, shape)


@pytest.mark.parametrize(
    "value", [None, "1.0", 1j, [None], ["1.0"], [[1.0], []], np.datetime64(0, "s"), Raises()]
)
def test_what_holds_no_numbers_is_none(value):
    assert as_array(value) is None


def test_an_empty_gradient_has_a_shape_and_a_dtype_too():
    primal = np.zeros((0, 5), np.float32)
    assert fault(np.zeros((0, 5), np.float32), primal, "x") is None
    for wrong, says in (
        (np.zeros((0, 5)), "the gradient of x is float64, x is float32; keep its dtype"),
        (np.zeros((5, 0), np.float32), "the gradient of x has shape (5, 0)"),
        (np.zeros(0, np.float32), "the gradient of x has shape (0,)"),
    ):
        found = fault(wrong, primal, "x")
        assert (found.verdict, found.reason.startswith(says)) == (Verdict.FAIL, True)
