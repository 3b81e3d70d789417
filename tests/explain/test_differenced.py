"""Differences as the truth behind a forward: right within their cost, and unknown beyond."""

import numpy as np
import pytest

from gradcheck.explain import differenced
from gradcheck.explain.differenced import Differenced, Estimated, Unknown
from gradcheck.explain.probe import SAFETY
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.evaluate import Point

X, W = Draw("differenced", "x").normal(3, 4), Draw("differenced", "w").signed(4)
CT = (Draw("differenced", "ct").away(0.0, 3, 4),)
U = 2.0**-53


def forward(x, w, *, power=2.0):
    return x * np.abs(w) ** power


def vjp(ct, x, w, power=2.0):
    slope = power * np.abs(w) ** (power - 1) * np.sign(w)
    return ct * np.abs(w) ** power, (ct * x * slope).sum(axis=0)


def made(function=forward, primals=(X, W)):
    def plain(*values):
        return (np.asarray(function(*values)),)

    return Differenced(function, Point(plain, primals), U, range(len(primals)))


@pytest.mark.parametrize(
    ("primals", "attrs"),
    [((X, W), {}), ((X, W), {"power": 3.0}), ((2 * X, 0.5 * W), {"power": 1.5}), ((X[:2], W), {})],
)
def test_a_vjp_is_right_within_its_cost(primals, attrs):
    truth = made()
    ct = (CT[0][: len(primals[0])],)
    want = vjp(ct[0], *primals, **attrs)
    costs = truth.cost(ct, primals, attrs)
    for found, right, cost in zip(truth.vjp(ct, primals, attrs), want, costs, strict=True):
        assert np.all(np.abs(found - right) <= SAFETY * U * cost)
        assert np.max(SAFETY * U * cost) <= 1e-8 * np.max(np.abs(right))


def test_an_index_has_no_gradient():
    rows = np.array([2, 0, 2])
    found = made(lambda x, rows: x[rows], (X, rows)).vjp(CT, (X, rows), {})
    want = np.zeros_like(X)
    np.add.at(want, rows, CT[0])
    assert found[1] is None
    assert np.allclose(found[0], want, rtol=1e-9)


def test_only_what_was_asked_for_is_differenced_but_where_all_of_it_is():
    point = Point(lambda x, w: (forward(x, w),), (X, W))
    truth = Differenced(forward, point, U, [1])
    truth.stand((X, W), {})
    assert [g is None for g in truth.vjp(CT, (X, W), {})] == [False, False]
    assert [g is None for g in truth.vjp(CT, (X, 2 * W), {})] == [True, False]


def test_what_mixes_is_looked_up_again_for_other_indices():
    rows = np.array([2, 0, 2])
    truth = made(lambda x, rows: x[rows], (X, rows))
    for other in (rows, rows[::-1] - 1, np.array([1, 1, 1])):
        want = np.zeros_like(X)
        np.add.at(want, other, CT[0])
        assert np.allclose(truth.vjp(CT, (X, other), {})[0], want, rtol=1e-9)


def test_a_jacobian_is_made_once():
    calls = []

    def counted(x):
        calls.append(1)
        return np.sin(x)

    truth = made(counted, (X,))
    first = truth.vjp(CT, (X,), {})
    count = len(calls)
    second = truth.vjp((-CT[0],), (X,), {})
    assert len(calls) == count
    assert np.array_equal(first[0], -second[0])


def test_where_forward_refuses_nothing_is_known():
    def positive(x):
        if np.any(x < 0):
            raise ValueError("out of the domain")
        return np.sqrt(x)

    truth = made(positive, (np.abs(X),))
    assert truth.vjp(CT, (np.abs(X),), {})[0].shape == X.shape
    for ask in (lambda: truth.vjp(CT, (X,), {}), lambda: truth.forward((X,), {})):
        with pytest.raises(Unknown):
            ask()


def test_at_a_kink_nothing_is_wrong():
    x = np.array([0.0, 1.0])
    truth = made(lambda x: np.maximum(x, 0), (x,))
    (cost,) = truth.cost((np.ones(2),), (x,), {})
    assert cost[0] > 1e100
    assert cost[1] < 1e6


@pytest.mark.parametrize(
    ("function", "primals"),
    [
        (lambda x: x * np.inf, (X,)),
        (lambda x: x, (X * np.nan,)),
        (lambda x: x[:2], (X,)),
    ],
)
def test_what_is_not_defined_is_unknown(function, primals):
    with pytest.raises(Unknown):
        made(function, primals).vjp(CT, primals, {})


@pytest.mark.parametrize(("limit", "value"), [("JACOBIANS", 1), ("SECONDS", 1e-12)])
def test_when_the_budget_is_spent_no_more_is_known(monkeypatch, limit, value):
    if limit == "JACOBIANS":
        monkeypatch.setattr(differenced, limit, value)
        truth = made()
        truth.vjp(CT, (X, W), {})
        assert truth.vjp(CT, (X, W), {})[0].shape == X.shape  # made before
    else:
        assert made().affords(Point(lambda x: (x,), (X,)))
        monkeypatch.setattr(differenced, limit, value)
        truth = made()
        assert not truth.affords(Point(lambda x: (x,), (X,)))
        truth.forward((X, W), {})
    with pytest.raises(Unknown, match="budget"):
        truth.vjp(CT, (X, 2 * W), {})


def test_defaults_are_what_the_signature_says():
    assert made().defaults == {"power": 2.0}
    assert made(lambda x: x, (X,)).defaults == {}


def test_estimates_are_known_where_they_were_made_alone():
    value = np.stack([X.reshape(-1), 2 * X.reshape(-1)])
    bar = np.full(value.shape, 1e-12)
    bar[0, 0] = np.inf
    known = {0: Estimate(value, bar, np.abs(value), np.ones(12, dtype=int), bar < 0)}
    cts = np.stack([CT[0].reshape(-1), np.ones(12)])
    point = Point(lambda x, w: (x * w,), (X, W))
    truth = Estimated(lambda x, w: x * w, point, U, {"a": 1}, cts, known)
    found = truth.vjp((np.ones((3, 4)),), (X, W), {"a": 1})
    assert found[1] is None
    assert np.array_equal(found[0], 2 * X)
    (cost, none) = truth.cost(CT, (X, W), {"a": 1})
    assert none is None
    assert cost[0, 0] > 1e100
    assert np.all(cost.reshape(-1)[1:] < 1e6)
    for ct, primals, attrs in [
        ((2 * CT[0],), (X, W), {"a": 1}),
        (CT, (X, 2 * W), {"a": 1}),
        (CT, (X, W), {"a": 2}),
    ]:
        with pytest.raises(Unknown):
            truth.vjp(ct, primals, attrs)
