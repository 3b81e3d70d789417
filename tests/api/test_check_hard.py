"""Right gradients at hard points pass, and wrong ones there do not: 50 digits, or every scale."""

import numpy as np
import pytest

from gradcheck import check
from gradcheck.judge.high_precision import HighPrecisionForward, HighPrecisionVjp


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def softmax_vjp(ct, x):
    y = softmax(x)
    return y * (ct - (y * ct).sum())


def norm(x):
    return np.sqrt((x * x).sum())


def layer_norm(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def layer_norm_vjp(ct, x):
    r = 1 / np.sqrt(x.var() + 1e-5)
    h = (x - x.mean()) * r
    return r * (ct - ct.mean() - h * (ct * h).mean())


def least_squares(a, b):
    return np.linalg.lstsq(a, b, rcond=None)[0]


def least_squares_vjp(ct, a, b):
    x = least_squares(a, b)
    w = np.linalg.solve(a.T @ a, ct)
    return np.outer(b - a @ x, w) - np.outer(a @ w, x), a @ w


TALL = np.random.default_rng(0).normal(size=(6, 3))
HARD = {
    "a norm at 1e-10": (norm, lambda ct, x: ct * x / norm(x), [3e-10, 4e-10]),
    "a large element": (lambda x: np.exp(-x * x), lambda ct, x: -2 * ct * x * np.exp(-x * x),
                        [1.0, -2.0, 0.5, 3e6]),
    "a narrow feature": (lambda x: np.tanh(1e7 * (x - 1)),
                         lambda ct, x: ct * 1e7 / np.cosh(1e7 * (x - 1)) ** 2, [1.0, 1 + 1e-8]),
    "absorbed": (lambda x: (1e3 + np.exp(x)) - 1e3, lambda ct, x: ct * np.exp(x), [-30.0, -40.0]),
    "absorbed whole": (lambda x: (1e15 + np.exp(x)) - 1e15, lambda ct, x: ct * np.exp(x),
                       [0.3, 0.5]),
    "saturated": (lambda x: 1 - np.tanh(x), lambda ct, x: -ct / np.cosh(x) ** 2,
                  [18.1, 17.3, -18.2, 16.7]),
    "x / x": (lambda x: x / x, lambda ct, x: ct / x - ct * x / (x * x), [1.3e-3, -2.1, 0.7, 3.3]),
    "a softmax summed": (lambda x: softmax(x).sum(), softmax_vjp, [1.1, -2.3, 0.5, 3.7]),
    "layer_norm at 1e7": (layer_norm, layer_norm_vjp, [1e7, 1e7 + 1.3, 1e7 + 3.1]),
    "floor": (np.floor, lambda ct, x: 0 * ct, [2.5, 7.3]),
    "sign": (np.sign, lambda ct, x: 0 * ct, [1.5, -7.3]),
    "least squares at 1e9": (least_squares, least_squares_vjp,
                             (TALL @ np.diag([1, 1e-5, 1e-9]), TALL[:, 0] + 1)),
    "an inverse at 1e8": (np.linalg.inv,
                          lambda ct, a: -np.linalg.inv(a).T @ ct @ np.linalg.inv(a).T,
                          np.vander(np.linspace(0.1, 1, 8))),
    "a sort of ties": (np.sort, lambda ct, x: ct[np.argsort(np.argsort(x, kind="stable"))],
                       [1.7] * 6),
    "a tie of the maximum": (np.max, lambda ct, x: ct * np.array([0, 0.25, 0.75]),
                             [-1.0, 2.0, 2.0]),
}  # fmt: skip


def arguments(primals):
    return primals if isinstance(primals, tuple) else (np.asarray(primals, dtype=np.float64),)


@pytest.mark.slow(keep=10, rest=14)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", HARD)
def test_a_right_gradient_passes_at_a_hard_point(name, full):
    forward, vjp, primals = HARD[name]
    found = check(forward, vjp, *arguments(primals), full=full)
    assert found.ok or (name == "layer_norm at 1e7" and found.verdict == "inconclusive"), str(found)


@pytest.mark.slow(keep=3, rest=9)
@pytest.mark.parametrize("name", HARD)
def test_a_wrong_gradient_does_not(name):
    forward, vjp, primals = HARD[name]
    values = arguments(primals)
    zero = name in ("x / x", "a softmax summed", "floor", "sign", "layer_norm at 1e7")
    for factor in (1.01, -1.0):

        def wrong(ct, *x, factor=factor):
            right = vjp(ct, *x)
            if isinstance(right, tuple):
                return tuple(factor * g for g in right)
            return right + (0.3 if np.ndim(ct) == 0 else 0.3 * ct) if zero else factor * right

        assert not check(forward, wrong, *values, explain=False).ok, factor


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("element", range(6))
def test_no_element_is_excused_by_those_that_50_digits_settle(element, full):
    """Half of these values are 1 to the last bit, and half are resolved by differences."""
    x = np.array([300.035, 298.987, 300.019, -299.812, -300.184, -299.605])

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def wrong(ct, x):
        g = ct * sigmoid(x) * sigmoid(-x)
        g[element] *= 1.01
        return g

    assert check(sigmoid, wrong, x, full=full, explain=False).verdict == "fail"


def test_a_tie_of_the_maximum_shares_one_cotangent():
    for shares in ([0, 1, 1], [0, 0, 0], [0, 0.5, 0.6]):
        found = check(np.max, lambda ct, x, s=shares: ct * np.array(s, float), [-1.0, 2.0, 2.0])
        assert "the 2 elements on a kink share" in found.findings[0].reason


QUANTISED = {
    "float16": (lambda x: np.tanh(x).astype(np.float16).astype(np.float64),
                "forward rounds to float16"),
    "three decimals": (lambda x: np.round(np.tanh(x), 3), "is a staircase or a table at x[0]"),
    "a table": (lambda x: np.interp(x, np.linspace(-4, 4, 400), np.tanh(np.linspace(-4, 4, 400))),
                "is a staircase or a table at x[0]"),
}  # fmt: skip


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", QUANTISED)
def test_the_slope_of_the_envelope_is_neither_right_nor_wrong(name):
    forward, reason = QUANTISED[name]
    x = np.array([0.513, -1.217])
    (found,) = check(forward, lambda ct, x: ct * (1 - np.tanh(x) ** 2), x).findings
    assert (found.verdict, reason in found.reason) == ("inconclusive", True), found.reason
    assert check(forward, lambda ct, x: 4 * ct, x, explain=False).verdict == "fail"


def test_a_right_formula_that_rounds_is_no_witness_for_a_narrower_type():
    """What is cast inside is no text that 50 digits can follow."""
    x = np.array([0.513, -1.217, 0.931])

    def vjp(ct, x):
        return ct * (1 - np.float64(np.float32(np.tanh(x))) ** 2)

    assert check(np.tanh, vjp, x, explain=False).verdict == "fail"


def test_forward_must_be_what_it_is_otherwise():
    """One that looks at its arguments' dtype is another function in 50 digits."""

    def forward(x):
        return np.sin(x) if type(x) is np.ndarray else np.cos(x)

    x = np.array([0.3, 0.7])
    arbiter = HighPrecisionForward(forward, (x,), {}, (forward(x),))
    assert arbiter.slopes(0, np.arange(2)) is None
    assert arbiter.refusal == "forward returns other values in 50 digits than in its own dtype"


def test_a_forward_that_exits_on_big_numbers_ends_nothing():
    def forward(x):
        if type(x) is not np.ndarray:
            raise SystemExit("arrays only")
        return np.abs(x - 0.7)

    x = np.array([0.7, -1.3])
    assert check(forward, lambda ct, x: ct * np.array([0.3, -1.0]), x).ok
    assert (
        check(forward, lambda ct, x: ct * np.array([1.3, -1.0]), x, explain=False).verdict == "fail"
    )
    arbiter = HighPrecisionForward(forward, (x,), {}, (forward(x),))
    assert arbiter.slopes(0, np.arange(2)) is None
    assert arbiter.refusal == "forward raises SystemExit on big numbers: arrays only"


@pytest.mark.parametrize("broken", ["_lifted", "_exponents"])
def test_a_mistake_in_our_big_numbers_refuses_them(monkeypatch, broken):
    def mistaken(*_):
        raise RecursionError("too deep")

    monkeypatch.setattr(f"gradcheck.numerics.highprecision.forward.{broken}", mistaken)
    x = np.array([0.7, -1.3])
    arbiter = HighPrecisionForward(np.abs, (x,), {}, (np.abs(x),))
    assert arbiter.slopes(0, np.arange(2)) is None
    assert "gradcheck's own big numbers fail here, please report it: RecursionError: too deep" in (
        arbiter.refusal
    )
    assert check(np.tanh, lambda ct, x: ct * np.cos(x), x, explain=False).verdict == "fail"


def test_the_slopes_of_50_digits_are_those_of_each_side():
    x = np.array([0.0, -2.0])
    arbiter = HighPrecisionForward(np.abs, (x,), {}, (np.abs(x),))
    behind, ahead = arbiter.slopes(0, np.arange(2))
    assert (behind.tolist(), ahead.tolist()) == ([-1, -1], [1, -1])


def test_a_vjp_in_50_digits_has_rows_for_every_cotangent():
    x, ct = np.array([0.3, 0.7]), np.array([1.5, -2.5])
    formula = HighPrecisionVjp(lambda ct, x: ct * np.cos(x), [(ct,), (2 * ct,)], (x,), {})
    np.testing.assert_allclose(formula(0), [ct * np.cos(x), 2 * ct * np.cos(x)], rtol=1e-15)
    assert HighPrecisionVjp(lambda ct, x: np.float32(ct), [(ct,)], (x,), {})(0) is None
