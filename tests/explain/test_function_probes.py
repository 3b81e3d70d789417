"""Differences as the truth behind a forward: right within their cost, and unknown beyond."""

import sys

import numpy as np
import pytest

from gradcheck import check
from gradcheck.explain import function_probes
from gradcheck.explain.function_probes import DifferenceTruth, PointTruth, Unknown
from gradcheck.explain.probe import ROUNDING_SAFETY
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.narrow import BFLOAT16, TF32, cut

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

    return DifferenceTruth(function, Point(plain, primals), U, range(len(primals)))


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
        assert np.all(np.abs(found - right) <= ROUNDING_SAFETY * U * cost)
        assert np.max(ROUNDING_SAFETY * U * cost) <= 1e-8 * np.max(np.abs(right))


def test_an_index_has_no_gradient():
    rows = np.array([2, 0, 2])
    found = made(lambda x, rows: x[rows], (X, rows)).vjp(CT, (X, rows), {})
    want = np.zeros_like(X)
    np.add.at(want, rows, CT[0])
    assert found[1] is None
    assert np.allclose(found[0], want, rtol=1e-9)


def test_only_what_was_asked_for_is_differenced_but_where_all_of_it_is():
    point = Point(lambda x, w: (forward(x, w),), (X, W))
    truth = DifferenceTruth(forward, point, U, [1])
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


@pytest.mark.parametrize(("limit", "value"), [("MAX_JACOBIANS", 1), ("MAX_SECONDS", 1e-12)])
def test_when_the_budget_is_spent_no_more_is_known(monkeypatch, limit, value):
    if limit == "MAX_JACOBIANS":
        monkeypatch.setattr(function_probes, limit, value)
        truth = made()
        truth.vjp(CT, (X, W), {})
        assert truth.vjp(CT, (X, W), {})[0].shape == X.shape  # made before
    else:
        assert made().affords(Point(lambda x: (x,), (X,)))
        monkeypatch.setattr(function_probes, limit, value)
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
    truth = PointTruth(lambda x, w: x * w, point, U, {"a": 1}, cts, known)
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


A, B = Draw("black box", "x").normal(4, 5), Draw("black box", "w").signed(5)


def rms(x, w, eps=0.1):
    return w * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def rms_vjp(ct, x, w, eps=0.1):
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    n, g = x * r, ct * w
    return r * (g - n * np.mean(g * n, axis=-1, keepdims=True)), (ct * n).sum(axis=0)


def told(forward, vjp, *primals, output="x", **options):
    found = check(forward, vjp, *primals, **options)
    assert not found.ok
    finding = next(f for f in found.findings if f.name == output)
    assert finding.diagnosis is not None
    return finding.diagnosis


def changed(x=lambda g: g, w=lambda g: g):
    def vjp(ct, *primals, **attrs):
        dx, dw = rms_vjp(ct, *primals, **attrs)
        return x(dx), w(dw)

    return vjp


@pytest.mark.suite(keep=4)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("vjp", "output", "label", "says"),
    [
        (changed(x=lambda g: -g), "x", "S", "dx has the wrong sign"),
        (changed(w=lambda g: g / 4), "w", "R", "averaged instead of summed"),
        (changed(x=np.zeros_like), "x", "G", "dx is zero"),
        (changed(w=lambda g: None), "w", "G", "dw is not returned"),
        (lambda ct, x, w: rms_vjp(np.ones_like(ct), x, w), "x", "U", "ignores the cotangent"),
        (lambda ct, x, w: (rms_vjp(ct, x, w)[0], ct * x), "w", "", "no known pattern"),
    ],
)
def test_a_wrong_vjp_is_named(vjp, output, label, says, dtype):
    found = told(rms, vjp, A.astype(dtype), B.astype(dtype), output=output)
    assert found.label == label, found
    assert says in found.says


def test_what_is_right_costs_nothing_and_has_no_diagnosis(monkeypatch):
    monkeypatch.delitem(sys.modules, "gradcheck.explain.findings", raising=False)
    found = check(rms, rms_vjp, A, B)
    assert found.ok
    assert all(finding.diagnosis is None for finding in found.findings)
    assert "gradcheck.explain.findings" not in sys.modules


def test_only_what_is_wrong_is_explained():
    found = check(rms, changed(x=lambda g: 2 * g), A, B)
    assert [f.diagnosis is None for f in found.findings] == [False, True]


def rms_with(eps):
    return lambda ct, x, w, *_, **__: rms_vjp(ct, x, w, *eps)


def twice_at_one_point(ct, x):
    return ct * np.cos(x) * (2 if np.array_equal(x, A) else 3 * x)


def asin(x):
    if np.any(np.abs(x) > 1):
        raise ValueError("out of the domain")
    return np.arcsin(x)


EDGE = np.array([0.9, -0.95, 0.85, -0.9])
HERE_ALONE = "all 2 inputs tried (the point checked)"


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize(
    ("forward", "vjp", "primals", "attrs", "label", "says", "evidence"),
    [
        (rms, rms_with([1e-5]), (A, B), {"eps": 0.3}, "E", "eps = 1e-05", "other eps"),
        (rms, rms_with([]), (A, B), {"eps": 0.3}, "P", "eps = 0.1, its default", ""),
        (np.tanh, lambda ct, x: ct * (1 - np.tanh(np.tanh(x)) ** 2), (A,), {}, "V",
         "dx reads the output where it needs x", ""),
        # beyond the largest, what the check differenced is known; so it is where others leave it
        (np.sin, lambda ct, x: -ct * np.cos(x), (Draw("black box", "big").normal(32, 40),), {}, "S",
         "", HERE_ALONE),
        (asin, lambda ct, x: -ct / np.sqrt(1 - x**2), (EDGE,), {}, "S", "", HERE_ALONE),
    ],
)  # fmt: skip
def test_a_mistake_is_named(forward, vjp, primals, attrs, label, says, evidence):
    found = told(forward, vjp, *primals, **({"attrs": attrs} if attrs else {}))
    assert found.label == label, found
    assert says in found.says
    assert evidence in found.evidence[-1]


def test_a_coincidence_at_the_point_checked_is_not_enough():
    assert told(np.sin, twice_at_one_point, A).label != "F"


def test_a_forward_that_saves_for_its_vjp_has_saved_what_is_asked():
    class Saving:
        def forward(self, x):
            self.x = x
            return np.sin(x)

        def vjp(self, ct, x):
            return 2 * ct * np.cos(self.x)

    saving = Saving()
    found = told(saving.forward, saving.vjp, A)
    assert found.says == "dx is twice the right value"
    assert "all 4 inputs tried" in found.evidence[-1]


def test_a_forward_that_is_slow_is_asked_nothing_more(monkeypatch):
    monkeypatch.setattr(function_probes.DifferenceTruth, "affords", lambda self, point: False)
    found = told(np.sin, lambda ct, x: -ct * np.cos(x), A)
    assert found.label == "S"
    assert "all 2 inputs tried" in found.evidence[-1]


# ── calls ────────────────────────────────────────────────────────────────────────────────────


def adding():
    kept = [np.zeros_like(A)]

    def vjp(ct, x):
        kept[0] = kept[0] + ct * np.cos(x)
        return kept[0]

    return vjp


def noisy():
    draws = np.random.Generator(np.random.Philox(key=3))
    return lambda ct, x: ct * np.cos(x) * (1 + 1e-3 * draws.standard_normal(x.shape))


def in_place(ct, x):
    ct *= np.cos(x)
    return ct


def cached():
    kept = {}
    return lambda ct, x: kept.setdefault(x.shape, ct * np.cos(x))


@pytest.mark.parametrize(
    ("vjp", "output", "label", "rule", "says"),
    [
        (adding(), "vjp", "A", "recall",
         "dx is added to what earlier calls gave: a buffer is never cleared"),
        (noisy(), "vjp", "C", "recall", ""),
        (in_place, "vjp", "X", "call", ""),
        (cached(), "x", "V", "earlier", "the answer to an earlier call"),
    ],
)  # fmt: skip
def test_calls_that_leave_something_behind_are_named(vjp, output, label, rule, says):
    found = told(np.sin, vjp, A, output=output)
    assert (found.label, found.rule) == (label, rule)
    assert says in found.says


def test_code_that_raises_has_no_class():
    found = check(np.sin, lambda ct, x: 1 / 0, A)
    assert found.findings[0].diagnosis is None


def test_the_class_stands_in_the_text():
    found = check(rms, changed(w=lambda g: g / 4), A, B)
    assert found.details().startswith("FAIL vjp, float64: dw: reduction: dw is 1/n of the")
    first, what, *_ = str(found).splitlines()
    assert (first, what[:14]) == ("FAIL vjp · dw, float64", "  dw is 1/n of")
    assert "(reduction; " in what


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("width", [5, 700])
def test_a_term_that_lacks_a_factor_is_seen_in_what_is_off(width):
    x, w = Draw("wide", width).normal(3, width), Draw("wide", "w").signed(width)

    def short(ct, x, w):
        r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 0.1)
        g = ct * w
        dx = r * (g - x * np.mean(g * x * r, axis=-1, keepdims=True))
        return dx, (ct * x * r).sum(axis=0)

    found = told(rms, short, x, w)
    assert found.label == "T"
    assert found.says.startswith("dx is off by a multiple of x in every row")


@pytest.mark.suite(keep=2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("narrow", "says"),
    [
        (TF32.rounded, "w is rounded to 10 bits of mantissa, as TF32 and float16 do"),
        (BFLOAT16.rounded, "w is rounded to bfloat16 (7 bits of mantissa)"),
        (lambda a: cut(a, 11), "w is cut to 10 bits of mantissa, as TF32 and float16 do"),
    ],
)
def test_operands_that_are_rounded_are_named_with_their_type(dtype, narrow, says):
    x, w = (Draw("narrow", name).normal(4, 5).astype(dtype) for name in "xw")

    def vjp(ct, x, w):
        a, b = (np.asarray(narrow(p), dtype=p.dtype) for p in (x, w))
        return ct @ b, ct.T @ a

    found = told(lambda x, w: x @ w.T, vjp, x, w)
    assert (found.label, found.says) == ("O", says)
