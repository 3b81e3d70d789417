"""A primal judged along directions: small ones here, for which every answer is known."""

import numpy as np
import pytest

from gradcheck.judge.call import vjp_rows_at
from gradcheck.judge.compare import TOLERANCES
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.large_primal_check import LargePrimalCheck, too_large
from gradcheck.numerics.estimator import NoiseProbe
from gradcheck.numerics.evaluate import Point
from gradcheck.results.verdict import Verdict

PASS, FAIL = Verdict.PASS, Verdict.FAIL
DRAWN = np.random.default_rng(0).normal(size=40)


def primal(forward, vjp, x, cts, dtype="float64"):
    """The check of `forward(x)` and its gradient [q, n] under the cotangents `cts` [q, m]."""
    point = Point(lambda x: (forward(x),), (x,))
    shape = np.shape(forward(x))
    names = tuple(f"ct{i}" for i in range(len(cts)))
    cotangents = Cotangents(names, tuple((np.reshape(ct, shape),) for ct in cts))
    rows_at = lambda cotangents: vjp_rows_at(vjp, cotangents, {})  # noqa: E731
    box = LargePrimalCheck(point, 0, "x", cotangents, NoiseProbe(point), TOLERANCES[dtype], rows_at)
    (got,) = rows_at(cotangents)((x.astype(dtype),), dtype)
    return box, got


@pytest.mark.parametrize(("size", "large"), [(1500, False), (2200, False), (2600, True)])
def test_a_sum_of_some_two_thousand_elements_is_judged_element_by_element(size, large):
    """Of a dense forward, whose copies for all elements would hold more than 2^26 numbers."""
    x = np.ones(size)
    assert too_large(Point(lambda x: (x.sum(),), (x,)), 0, (x.sum(),)) is large


@pytest.mark.parametrize(("part", "unseen"), [(1e-6, 0), (1e-9, 20)])
def test_what_is_negligible_in_the_primal_need_not_show_and_is_counted(part, unseen):
    """Half of the elements, a millionth of the others' size, or a billionth."""
    size = np.where(np.arange(40) < 20, part, 1.0)
    box, got = primal(
        lambda x: np.sum(size * np.tanh(x)),
        lambda ct, x: ct * size / np.cosh(x) ** 2,
        DRAWN,
        np.ones((1, 1)),
    )
    found = box.judge(got)
    assert (found.verdict, found.unresolved) == (PASS, unseen)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize(("off", "verdict"), [(4e-9, PASS), (4e-8, FAIL)])
def test_an_error_that_is_allowed_in_each_element_is_allowed_in_all_of_any_unit(unit, off, verdict):
    """A direction shows it, as no single element would."""

    def forward(x):
        return unit * np.sum(np.tanh(x))

    box, got = primal(
        forward, lambda ct, x: ct * unit / np.cosh(x) ** 2 * (1 + off), DRAWN, np.ones((1, 1))
    )
    assert box.judge(got).verdict is verdict


@pytest.mark.parametrize("off", [1.0, 1.01])
def test_a_vjp_that_is_wrong_in_float64_alone_is_not_wrong_in_float32(off):
    def vjp(ct, x):
        return (ct / np.cosh(x) ** 2 * (off if x.dtype == np.float64 else 1.0)).astype(x.dtype)

    box, got = primal(lambda x: np.sum(np.tanh(x)), vjp, DRAWN, np.ones((1, 1)), "float32")
    assert box.judge(got).verdict is PASS


def test_a_vjp_that_is_wrong_in_float32_alone_is_told_so():
    def vjp(ct, x):
        out = ct / np.cosh(x) ** 2
        out[7] *= 1.01 if x.dtype == np.float32 else 1.0
        return out.astype(x.dtype)

    box, got = primal(lambda x: np.sum(np.tanh(x)), vjp, DRAWN, np.ones((1, 1)), "float32")
    found = box.judge(got)
    assert found.verdict is FAIL
    assert found.reason == "1 of 40 elements are not what vjp gives in float64"
    assert found.worst_index == (7,)


def nan_raises(x):
    if np.isnan(x).any():
        raise ValueError("NaN")
    return np.array([x[0], 3 * x[1]])


@pytest.mark.parametrize(("given", "verdict"), [(3.0, PASS), (2.0, FAIL), (0.0, FAIL)])
def test_an_element_is_judged_by_the_outputs_that_it_moves_where_forward_refuses_nan(
    given, verdict
):
    box, _ = primal(nan_raises, lambda ct, x: ct * [1, 3], np.array([0.5, 2.0]), np.ones((1, 2)))
    assert box._elements.judge(0, 1, np.array([[1.0, given]])).verdict is verdict


@pytest.mark.parametrize("given", [0.0, 1.0])
def test_an_output_that_moves_on_one_side_alone_is_one_that_moves(given):
    """At the end of a plateau, that NaN does not leave either: both slopes are allowed."""

    def forward(x):
        return np.array([1.0, 0.0]) + np.array([0.0, np.where(x[0] < 1.0, x[0], 1.0)])

    box, _ = primal(forward, lambda ct, x: ct[1:], np.array([1.0]), np.ones((1, 2)))
    assert box._elements.judge(0, 0, np.array([[given]])).verdict is not FAIL
    assert box._elements.judge(0, 0, np.array([[-1.0]])).verdict is FAIL
