"""The oracle certifies every built-in VJP, and refuses one that is wrong in the 20th digit."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.activation import relu
from gradcheck_cases.indexing import encoder
from gradcheck_cases.norm import layer_norm, rms_norm

from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arithmetic import DIGITS
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.numerics.operator_oracle import Oracle
from tests.sizes import ordinary, third


@dataclass
class Operator:
    forward: Any
    vjp: Any


def draw(*roles):
    return Draw("oracle", *roles)


def asked(operator, primals, *, outputs=None, still=None, attrs=None, count=2):
    """An oracle at `primals`, for `count` random cotangents of outputs shaped like the first."""
    shapes = [np.shape(primals[0])] if outputs is None else outputs
    cts = [tuple(draw("ct", k).signed(*s) for s in shapes) for k in range(count)]
    return Oracle(operator, primals, attrs or {}, cts, still or [None] * len(primals))


def spoiled(spec, spoil):
    """`spec` with its 50-digit gradients passed through `spoil(xp, gradients)`."""

    def vjp(xp, ct, *primals, **attrs):
        out = [np.array(g) for g in as_tuple(spec.vjp(xp, ct, *primals, **attrs))]
        return spoil(xp, out)

    return Operator(spec.forward, vjp)


X, W, B = draw("x").normal(3, 5), draw("w").normal(5), draw("b").normal(5)


# ── the proof that the built-in VJPs are right ───────────────────────────────────────────────


@pytest.mark.suite(keep=6, rest=18)
@pytest.mark.parametrize("name", third([spec.name for spec in SUITE]))
def test_every_builtin_vjp_is_certified_at_another_seed_than_that_of_a_run(suite, name):
    cases = ordinary(suite.cases([name], seed=1))
    assert cases
    assert [c.name for c in cases if not CaseTruth(c).spec_is_right] == []


@pytest.mark.soak
@pytest.mark.parametrize("name", [spec.name for spec in SUITE])
def test_so_it_is_at_large_samples(suite, name):
    assert [c.name for c in suite.cases([name]) if not CaseTruth(c).spec_is_right] == []


def test_a_certified_gradient_is_the_vjp_rounded_once():
    oracle = asked(layer_norm, (X, W, B))
    values = oracle.gradient()
    xp = mp50()
    for q, (ct,) in enumerate(oracle.cts):
        exact = layer_norm.vjp(xp, ct, *(xp.asarray(p) for p in (X, W, B)))
        for value, g in zip(values, exact, strict=True):
            assert value[q].tolist() == [float(v) for v in g.reshape(-1)]


def test_an_index_has_no_gradient():
    tokens = np.array([2, 0, 2])
    oracle = asked(encoder, (draw("wte").normal(3, 2), draw("wpe").normal(4, 2), tokens),
                   outputs=[(3, 2)])  # fmt: skip
    wte, wpe, index = oracle.gradient()
    assert (wte.shape, wpe.shape, index) == ((2, 6), (2, 8), None)


def test_several_outputs_and_none_but_one_element():
    def forward(xp, x):
        assert x.shape == np.shape(xp.exp(x))  # an array, also where it has no axes
        return xp.exp(x), xp.sum(x * x)

    def vjp(xp, ct, x):
        return ct[0] * xp.exp(x) + ct[1] * 2 * x

    for x in (draw("x").normal(3), np.array(0.5)):
        assert asked(Operator(forward, vjp), (x,), outputs=[x.shape, ()]).gradient() is not None
        wrong = Operator(forward, lambda xp, ct, x: ct[0] * xp.exp(x) - ct[1] * 2 * x)
        assert asked(wrong, (x,), outputs=[x.shape, ()]).gradient() is None


def test_what_cancels_inside_forward_does_not_refuse_a_right_vjp(suite):
    # The derivative along ones is exactly zero and forward loses digits in x − mean: without
    # guard digits, what the difference leaves is larger than any floor for it.
    for offset in ("near-constant", "offset-1000"):
        (case,) = suite.cases(["layer_norm"], dialects=["plain"], samples=[offset])
        assert CaseTruth(case).spec_is_right
    x = 1e6 + draw("x").normal(3, 5) * 2.0**-20
    assert asked(layer_norm, (x, W, B)).gradient() is not None


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("relative", ["1e-3", "1e-12", "1e-20", "-1e-24"])
@pytest.mark.parametrize("element", [0, 7, 14])
def test_one_element_that_is_off_by_little_is_refused(relative, element):
    def spoil(xp, out):
        out[0].reshape(-1)[element] *= 1 + xp.const(relative)
        return tuple(out)

    assert asked(spoiled(layer_norm, lambda xp, out: tuple(out)), (X, W, B)).gradient()
    assert asked(spoiled(layer_norm, spoil), (X, W, B)).gradient() is None


def test_a_small_element_beside_large_ones_is_not_overlooked():
    x = X * np.exp2([[0.0], [10.0], [20.0]])  # gradients fall as x grows

    def spoil(xp, out):
        out[0][2, 1] *= 1 + xp.const("1e-15")
        return tuple(out)

    assert asked(rms_norm, (x, W)).gradient() is not None
    assert asked(spoiled(rms_norm, spoil), (x, W)).gradient() is None


WRONG = {
    "a missing term": lambda xp, out: (out[0], out[1], 0 * out[2]),
    "a sign": lambda xp, out: (-out[0], out[1], out[2]),
    "another order": lambda xp, out: (out[0], out[2], out[1]),
    "one gradient too few": lambda xp, out: tuple(out[:2]),
    "one gradient too many": lambda xp, out: (*out, out[2]),
    "no tuple": lambda xp, out: out[0],
    "a gradient that is None": lambda xp, out: (out[0], out[1], None),
    "a shape that broadcasts": lambda xp, out: (out[0], out[1], out[2][None]),
    "a shape that does not": lambda xp, out: (out[0][:2], out[1], out[2]),
    "a sum instead of rows": lambda xp, out: (xp.sum(out[0], axis=0), out[1], out[2]),
    "NaN": lambda xp, out: (out[0] * xp.context.nan, out[1], out[2]),
    "infinity": lambda xp, out: (out[0] + xp.context.inf, out[1], out[2]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused(name):
    assert asked(spoiled(layer_norm, WRONG[name]), (X, W, B)).gradient() is None


def test_a_scalar_primal_without_its_gradient_is_refused():
    def forward(xp, x, s):
        return x * s

    operator = Operator(forward, lambda xp, ct, x, s: (ct * s, None))
    assert asked(operator, (draw("x").normal(3), np.array(0.5))).gradient() is None


def test_a_wrong_answer_under_one_cotangent_is_enough():
    def vjp(xp, ct, x):
        return ct * xp.exp(x) * (1 if ct[0] > 0 else 2)

    operator = Operator(lambda xp, x: xp.exp(x), vjp)
    oracle = asked(operator, (np.ones(1),), count=6)
    signs = [bool(ct[0][0] > 0) for ct in oracle.cts]
    assert set(signs) == {True, False}  # right under some of them
    assert oracle.gradient() is None


# ── kinks ────────────────────────────────────────────────────────────────────────────────────


def test_elements_on_a_kink_stay_still():
    x = np.array([0.0, 1.5, -0.5, 0.0])
    assert asked(relu, (x,)).gradient() is None
    assert asked(relu, (x,), still=[x == 0]).gradient() is not None
    wrong = spoiled(relu, lambda xp, out: out[0] * 2)
    assert asked(wrong, (x,), still=[x == 0]).gradient() is None


# ── differences ──────────────────────────────────────────────────────────────────────────────

KNOWN = {
    "exp": (lambda xp, x: xp.exp(x), lambda xp, x: xp.exp(x)),
    "tanh": (lambda xp, x: xp.tanh(x), lambda xp, x: 1 - xp.tanh(x) ** 2),
    "log": (lambda xp, x: xp.log(x * x), lambda xp, x: 2 / x),
    "cube": (lambda xp, x: x**3, lambda xp, x: 3 * x**2),
    "steep": (lambda xp, x: xp.sin(1e4 * x), lambda xp, x: 1e4 * xp.cos(1e4 * x)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_differences_have_more_digits_than_anyone_needs(name):
    forward, slope = KNOWN[name]
    x = draw("x").signed(4)
    oracle = asked(Operator(forward, None), (x,))
    xp = mp50()
    for element in range(4):
        direction = np.eye(4)[element]
        for (found, _), (ct,) in zip(oracle._slopes({0: direction}), oracle.cts, strict=True):
            exact = ct[element] * slope(xp, xp.asarray(x))[element]
            assert abs(found / exact - 1) < 1e-38
    rounded = oracle.differences(0, np.array([2, 0]))
    exact = [[float(ct[e] * slope(xp, xp.asarray(x))[e]) for e in (2, 0)] for (ct,) in oracle.cts]
    np.testing.assert_allclose(rounded, exact, rtol=1e-15)


def test_the_working_precision_is_back_where_it_was():
    xp = mp50()
    asked(layer_norm, (X, W, B)).gradient()
    assert xp.context.dps == DIGITS

    def forward(xp, x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asked(Operator(forward, None), (X,)).differences(0, np.array([0]))
    assert xp.context.dps == DIGITS


def test_a_direction_hides_no_element_and_moves_none_that_is_still():
    still = np.zeros((40, 5), bool)
    still[3, 2] = True
    of = SimpleNamespace(primals=[np.zeros((40, 5))], still=[still], close=[None])
    found = Oracle._direction(of, np.random.default_rng(0), 0)
    size = np.abs(found[~still])
    assert found[3, 2] == 0
    assert size.min() >= 0.5
    assert size.max() <= 1.5
    assert abs(np.mean(found > 0) - 0.5) < 0.1
