from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.python import bound_operator, into_of, refuse_unknown, vjp_from
from gradcheck.numerics.draw import Draw

SPEC = SUITE.operators["rms_norm"]
CT = Draw(0, "test_into").powers(3, 7)  # sums of powers of two are exact
X, W = np.full((3, 7), 2.0), np.full(7, 3.0)
SUMS = CT.sum(axis=0)


def fills(outs, ct, x, w, *, eps=1e-5):
    outs["x"][...] = ct * eps
    outs["w"] += ct.sum(axis=0)


def entry(**changes):
    return SimpleNamespace(**{"vjp_into": fills, "accumulates": ("w",), **changes})


def test_what_is_declared_comes_along():
    into = into_of(entry(zeroed="x", aliases=[["x", "ct"]]), {"eps": 0.5}, {"eps": 1e-5})
    assert into.accumulates == {"w"}
    assert into.zeroed == {"x"}
    assert into.aliases == (("x", "ct"),)
    outs = {"x": np.zeros((3, 7)), "w": np.ones(7)}
    into.call(outs, CT, X, W, eps=0.25, unknown=1)  # it has attributes of its own
    assert np.array_equal(outs["x"], 0.5 * CT)
    assert np.array_equal(outs["w"], 1 + SUMS)


def test_without_a_vjp_into_there_is_none():
    assert into_of(SimpleNamespace(vjp=fills), {}, {}) is None


def test_an_attribute_that_it_does_not_take_is_fixed():
    fixed = entry(vjp_into=lambda outs, ct, x, w: None)
    assert into_of(fixed, {"eps": 1e-5}, {"eps": 1e-5}) is not None
    with pytest.raises(Unsupported, match="vjp_into takes no 'eps'"):
        into_of(fixed, {"eps": 0.1}, {"eps": 1e-5})


def test_a_vjp_into_alone_makes_a_vjp():
    bound = bound_operator(entry(), {"eps": 0.5}, {"eps": 1e-5}, ("x", "w"))
    dx, dw = bound.vjp(CT, X, W, **bound.attrs)
    assert np.array_equal(dx, 0.5 * CT)
    assert np.array_equal(dw, SUMS)
    again = bound.vjp(CT, X, W, **bound.attrs)
    assert np.array_equal(again[1], SUMS)  # from zeros each time
    assert bound.strided
    assert bound.asked is None
    with pytest.raises(Unsupported, match="stage"):
        bound_operator(entry(), {}, {})


def test_an_index_gets_no_buffer():
    seen = []

    def looks(outs, ct, x, ids):
        seen.append(sorted(outs))

    bound = bound_operator(SimpleNamespace(vjp_into=looks), {}, {}, ("x", "ids"))
    assert bound.vjp(CT, X, np.array([1, 2]))[1] is None
    assert seen == [["x"]]


def test_a_derived_vjp_survives_a_write_past_the_end():
    def strays(outs, ct, x):
        flat = np.lib.stride_tricks.as_strided(outs["x"], (22,), (8,))
        flat[...] = 1.0

    vjp = vjp_from(into_of(SimpleNamespace(vjp_into=strays), {}, {}), ("x",))
    assert vjp(CT, X)[0].tolist() == np.ones((3, 7)).tolist()


def test_a_vjp_that_takes_needs_can_be_asked_for_some():
    def vjp(ct, x, w, *, eps=1e-5, needs=(True, True)):
        return tuple(ct * eps if need else None for need in needs)

    bound = bound_operator(SimpleNamespace(vjp=vjp), {"eps": 0.5}, {"eps": 1e-5}, ("x", "w"))
    assert bound.attrs == {"eps": 0.5}
    dx, dw = bound.asked((False, True), CT, X, W, **bound.attrs)
    assert dx is None
    assert np.array_equal(dw, 0.5 * CT)
    silent = SimpleNamespace(vjp=lambda ct, x, w, **attrs: None)
    assert bound_operator(silent, {}, {}, ("x", "w")).asked is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accumulates": ("v",)}, "`accumulates` names 'v', no primal; did you mean|known"),
        (
            {"accumulates": "weight"},
            "`accumulates` names 'weight', no primal; known: \\['x', 'w'\\]",
        ),
        ({"zeroed": ("dx",)}, "`zeroed` names 'dx', no primal; did you mean 'x'"),
        ({"aliases": (("y", "ct"),)}, "`aliases` names 'y'"),
        ({"aliases": (("ct", "x"),)}, "`aliases` names 'ct'"),
        ({"aliases": ("x",)}, "as pairs"),
        ({"aliases": (("x", "ct", "w"),)}, "as pairs"),
        ({"vjp_into": None, "vjp": fills}, "`accumulates` is about vjp_into, and there is none"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(changes, said):
    with pytest.raises(LoadError, match=said):
        refuse_unknown("kernels:IMPL['rms_norm']", entry(**changes), SPEC)


def test_right_declarations_and_none_are_accepted():
    refuse_unknown("k", entry(aliases=(("x", "ct"), ("x", "x"))), SPEC)
    refuse_unknown("k", SimpleNamespace(vjp=fills), SPEC)
    refuse_unknown("k", {"vjp_into": fills, "zeroed": ["x"]}, SPEC)
