from dataclasses import replace

import numpy as np
import pytest

from gradcheck.implementations.returned import Broken
from gradcheck.judge.contract.asking import Unasked, Vacuous
from gradcheck.judge.contract.other_points import subsets


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("projection-with-dw", "asked for dx alone, dx["),
        ("dw-with-dx", "asked for dw alone, dw["),
    ],
)
def test_a_gradient_that_needs_another_is_seen(subject, mutant, name, seen):
    assert subsets(subject(mutant(name))).seen.startswith(seen)


def test_a_gradient_that_is_not_given_is_an_error(subject, mutant):
    with pytest.raises(Broken, match="asked for dx alone: no gradient for x"):
        subsets(subject(mutant("all-or-nothing")))


def test_what_needs_gives_must_be_what_vjp_gives(subject, right):
    vjp = right.vjp
    right.vjp = lambda ct, x, w, *, eps=1e-5, needs=None: tuple(
        g if g is None or needs is None else 2 * g
        for g in vjp(ct, x, w, eps=eps, needs=needs or (True, True))
    )
    assert subsets(subject(right)).seen.startswith("asked for all gradients by `needs`, d")


def test_right_ones_do_not_care(subject, right):
    asked = []
    vjp = right.vjp

    def spy(ct, x, w, *, eps=1e-5, needs=(True, True)):
        asked.append(needs)
        return vjp(ct, x, w, eps=eps, needs=needs)

    right.vjp = spy
    assert subsets(subject(right)) is None
    assert {(True, False), (False, True), (True, True)} == set(asked)


def test_who_takes_no_needs_cannot_be_asked(subject, right):
    right.vjp = lambda ct, x, w, *, eps=1e-5: right.both(ct, x, w, eps)
    with pytest.raises(Unasked, match="needs"):
        subsets(subject(right))


def test_one_gradient_has_no_others(subject, silu):
    with pytest.raises(Vacuous):
        subsets(subject(silu, "silu/default/typical"))


def test_of_what_is_not_asked_for_anything_may_come(subject, right):
    vjp = right.vjp
    right.vjp = lambda ct, x, w, *, eps=1e-5, needs=(True, True): tuple(
        np.full_like(p, np.nan) if not need else g
        for g, need, p in zip(vjp(ct, x, w, eps=eps), needs, (x, w), strict=True)
    )
    assert subsets(subject(right)) is None


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("attention/separate/typical", "dq and dk"),
        ("lstm_cell/pytorch/single", "dx and dh and dc and dw_ih and dw_hh and db_ih"),
    ],
)
def test_a_gradient_that_is_wrong_with_some_others_alone_is_seen(subject, name, asked):
    """Right alone, right with all of them: two of three, and all but one of many, are asked."""
    one = subject(name=name, dtype="float64")
    names, vjp = one.truth.names, one.bound.vjp

    def spoilt(needs, ct, *primals, **attrs):
        out = [*vjp(ct, *primals, **attrs)]
        if " and ".join(f"d{n}" for n, need in zip(names, needs, strict=True) if need) == asked:
            out[0] = 2 * out[0]
        return tuple(out)

    one.bound = replace(one.bound, asked=spoilt)
    assert subsets(one).seen.startswith(f"asked for {asked} alone, d")
