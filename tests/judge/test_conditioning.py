"""What rounding may cost, where the answers at every neighbour are known by hand."""

import numpy as np
import pytest

from gradcheck.judge.compare import TOLERANCES, tolerance_of
from gradcheck.judge.conditioning import CANCELLATION_LEFT, Conditioning, ElementConditioning
from gradcheck.numerics.evaluate import Point

U = 2.0**-24
F32 = TOLERANCES["float32"]
WITHOUT_LIMIT = np.full((1, 1), np.inf)
NOTHING = np.zeros((1, 1))


def at(x, answer):
    """A point at one number, and `rows_at` of a VJP that gives `answer(x, dtype)` there."""
    point = Point(lambda x: (x,), (np.array([x]),))
    return lambda primals, dtype: [np.array([[answer(float(primals[0][0]), dtype)]])], point


def of_one(rows_at, point):
    """What one element of a large gradient is allowed."""
    return ElementConditioning(rows_at, point, F32, 0, 0)


def shaking(by):
    """A VJP that gives 1 at 3, and is off by as much at every other point, however near."""
    return at(3.0, lambda x, dtype: 1.0 + by * (x != 3.0))


@pytest.mark.parametrize("alone", [False, True])
def test_the_last_bit_of_a_primal_costs_eight_times_what_it_moves(alone):
    """x² at 3 moves by 18u where x moves by 3u, and 1024 times as far away by 1024 times that."""
    rows_at, point = at(3.0, lambda x, dtype: x * x)
    found = of_one(rows_at, point) if alone else Conditioning(rows_at, point, F32)
    assert found.cost(0, WITHOUT_LIMIT) == pytest.approx(8 * 18 * U, rel=1e-3)


@pytest.mark.parametrize("alone", [False, True])
def test_noise_gains_a_thousandth_of_itself(alone):
    rows_at, point = shaking(1e-3)
    found = of_one(rows_at, point) if alone else Conditioning(rows_at, point, F32)
    assert found.cost(0, NOTHING) == pytest.approx(8e-3 / 1024)


@pytest.mark.parametrize(
    ("terms", "allowed"),
    [(1000.0, 8e-3), (2.0, 2.0**-14), (0.0, 8e-3 / 1024)],
)
def test_where_terms_cancel_noise_is_allowed_up_to_a_small_part_of_them(terms, allowed):
    rows_at, point = shaking(1e-3)
    found = Conditioning(rows_at, point, F32).cost(0, NOTHING, np.array([[terms]]))
    assert found == pytest.approx(allowed)


def test_terms_that_cancel_may_be_rounded_four_times_and_not_as_coarsely_as_in_a_narrower_type():
    u = {dtype: tolerance_of(dtype).u for dtype in CANCELLATION_LEFT}
    assert all(part >= 4 * u[dtype] for dtype, part in CANCELLATION_LEFT.items())
    for wide, narrow in (("float64", "float32"), ("float32", "float16"), ("float16", "bfloat16")):
        assert CANCELLATION_LEFT[wide] < u[narrow]


@pytest.mark.parametrize(("dtype", "part"), [("float32", 1.0), ("float64", 2.0**-29)])
def test_what_float32_loses_inside_is_allowed_in_proportion_to_the_dtype(dtype, part):
    rows_at, point = at(3.0, lambda x, kind: 1.0 + 1e-5 * (kind == "float32"))
    found = Conditioning(rows_at, point, tolerance_of(dtype)).cost(0, WITHOUT_LIMIT)
    assert found == pytest.approx(8e-5 * part)
    assert Conditioning(rows_at, point, F32).cost(0, NOTHING) == 0


@pytest.mark.parametrize("refused", [lambda x: x == 3.0, lambda x: x != 3.0, lambda x: True])
def test_where_the_vjp_refuses_the_cost_of_an_element_is_unknown(refused):
    rows_at, point = at(3.0, lambda x, dtype: x)

    def some(primals, dtype):
        return None if refused(float(primals[0][0])) else rows_at(primals, dtype)

    assert of_one(some, point).cost(0, WITHOUT_LIMIT) is None
