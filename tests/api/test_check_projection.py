"""`check` decides by a projection where that is certain; everything else is as with `full=True`."""

import functools
import re

import numpy as np
import pytest

from gradcheck import assert_vjp, check

X, W = np.random.default_rng(0).normal(size=(2, 12))


def forward(x, w):
    return np.tanh(x) * w


def vjp(ct, x, w):
    y = np.tanh(x)
    return ct * w * (1 - y * y), ct * y


def counted(function):
    """The function, and how often it is called."""
    calls = []

    def called(*args):
        calls.append(1)
        return function(*args)

    return called, calls


def test_a_pass_is_a_projection_and_says_what_it_could_have_seen():
    found = check(forward, vjp, X, W)
    assert found.ok
    for finding in found.findings:
        assert (finding.compared, finding.reason) == (12, "")
        assert finding.evaluations == 8
        assert finding.smallest_visible_error < 1e-6
    text = str(found)
    assert text.splitlines()[0] == "PASS vjp, float64"
    assert "one wrong element shows from" in text
    assert re.search(r"dx +PASS", text)


def test_full_looks_at_every_element_under_every_cotangent():
    for finding in check(forward, vjp, X, W, full=True).findings:
        assert (finding.compared, finding.evaluations) == (36, 0)


def test_a_projection_costs_a_handful_of_calls_whatever_the_size():
    for size in (3, 300):
        f, forwards = counted(forward)
        g, vjps = counted(vjp)
        x, w = np.random.default_rng(1).normal(size=(2, size))
        assert check(f, g, x, w).ok
        assert (len(forwards), len(vjps)) == (3, 2)


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "wrong",
    [
        lambda ct, x, w: (1.01 * vjp(ct, x, w)[0], ct * np.tanh(x)),
        lambda ct, x, w: (vjp(ct, x, w)[0], None),
        lambda ct, x, w: (vjp(ct, x, w)[0], np.full_like(w, np.nan)),
        lambda ct, x, w: vjp(np.ones_like(ct), x, w),
        lambda ct, x, w: vjp(ct, x, w)[:1],
        lambda ct, x, w: 1 / 0,
    ],
)
def test_what_does_not_pass_is_found_as_by_the_full_check(wrong, seed):
    one, other = (check(forward, wrong, X, W, seed=seed, full=full) for full in (False, True))
    assert not one.ok
    assert repr(one.findings) == repr(other.findings)
    assert str(one) == str(other)


def test_a_wrong_forward_is_found_as_by_the_full_check():
    draws = np.random.default_rng(0)
    for bad in (lambda x, w: x / 0, lambda x, w: x * draws.normal(size=12), lambda x, w: "text"):
        one, other = (check(bad, vjp, X, W, full=full) for full in (False, True))
        assert not one.ok
        assert repr(one.findings) == repr(other.findings)


def test_second_order_and_forward_mode_look_at_every_element():
    def jvp(us, x, w):
        y = np.tanh(x)
        return us[0] * w * (1 - y * y) + us[1] * y

    for options in ({"order": 2}, {"jvp": jvp}):
        found = check(forward, vjp, X, W, **options)
        assert found.ok
        assert [f.compared for f in found.findings[:2]] == [36, 36]
        assert len(found.findings) > 2


def test_an_assertion_may_ask_for_every_element():
    f, forwards = counted(forward)
    assert_vjp(f, vjp, X, W)
    few = len(forwards)
    assert_vjp(f, vjp, X, W, full=True)
    assert len(forwards) - few > 5 * few


def test_the_same_seed_gives_the_same_numbers():
    one, again, other = (check(forward, vjp, X, W, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.findings != other.findings


def test_a_path_of_its_own_for_a_cotangent_of_ones_is_seen_where_forward_is_one_number():
    def shortcut(ct, x):
        return 2 * x * ct * (1.5 if np.all(ct == 1.0) else 1.0)

    x = np.array([1.0, 2.0])
    assert not check(lambda x: np.sum(x * x), shortcut, x, explain=False).ok
    assert not check(
        np.square, shortcut, x, full=True, explain=False
    ).ok  # of several outputs by every element


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("full", [False, True])
def test_a_cotangent_of_one_number_that_is_cut_off_beyond_one_is_seen(full):
    def clipped(ct, x):
        return 2 * x * np.clip(ct, -1.0, 1.0)

    x = np.array([1.0, 2.0])
    for seed in range(20):
        assert not check(
            lambda x: np.sum(x * x), clipped, x, seed=seed, full=full, explain=False
        ).ok


@pytest.mark.slow
def test_a_cotangent_of_one_number_that_is_cut_to_an_integer_is_seen_in_full():
    def cut(ct, x):
        return 2 * x * np.trunc(ct)

    x = np.array([1.0, 2.0])
    for seed in range(20):
        assert not check(lambda x: np.sum(x * x), cut, x, seed=seed, full=True, explain=False).ok


def test_primals_are_called_as_the_parameters_of_a_method_or_a_wrapped_function():
    class Layer:
        def forward(self, x, w):
            return forward(x, w)

        def packed(self, *primals):
            return forward(*primals)

    @functools.wraps(forward)
    def wrapped(*primals):
        return forward(*primals)

    def few(x, *more):
        return forward(x, *more)

    def names(function):
        return [f.name for f in check(function, vjp, X, W).findings]

    for function in (forward, Layer().forward, wrapped, functools.partial(forward)):
        assert names(function) == ["x", "w"]
    for function in (Layer().packed, few, np.vectorize(forward)):
        assert names(function) == ["primal0", "primal1"]
