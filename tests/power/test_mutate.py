"""What each mutation operator changes, and that it changes nothing else."""

import inspect

import numpy as np
import pytest

from gradcheck.power import mutate
from gradcheck.power.registry import check

CT, X, W = np.array([1.0, -2.0]), np.array([3.0, 5.0]), np.array([7.0, 11.0])
I = np.array([1, 0])  # noqa: E741


def one(xp, ct, x, *, alpha=2.0, beta=3.0):
    return alpha * ct * x + beta


def two(xp, ct, x, w):
    return ct * w, ct * x


def indexed(xp, ct, x, i):
    return ct[i], None


def called(vjp, *arguments, **attrs):
    """The gradients as lists; the arguments are read-only, so that a write is an error."""
    frozen = [np.array(a) for a in arguments]
    for array in frozen:
        array.flags.writeable = False
    out = vjp(np, *frozen, **attrs)
    return [None if g is None else g.tolist() for g in (out if isinstance(out, tuple) else (out,))]


@pytest.mark.parametrize(
    ("mutated", "wanted"),
    [
        (mutate.negated(two, 0), [[-7, 22], [3, -10]]),
        (mutate.negated(two, 1), [[7, -22], [-3, 10]]),
        (mutate.scaled(two, 1, 0.5), [[7, -22], [1.5, -5]]),
        (mutate.scaled(two, 0, lambda xp, x, w: xp.sum(w)), [[126, -396], [3, -10]]),
        (mutate.output(two, 1, lambda xp, g, x, w: g + w), [[7, -22], [10, 1]]),
        (mutate.output(two, 0, lambda *_: None), [None, [3, -10]]),
        (mutate.swapped(two, 0, 1), [[3, -10], [7, -22]]),
        (mutate.cotangent(two, lambda xp, ct, x, w: xp.abs(ct)), [[7, 22], [3, 10]]),
        (mutate.primal(two, 1, lambda xp, x, w: w - x), [[4, -12], [3, -10]]),
        (mutate.negated(mutate.scaled(two, 0, 2.0), 0), [[-14, 44], [3, -10]]),
    ],
)
def test_of_two_gradients_only_the_one_meant_is_changed(mutated, wanted):
    assert called(mutated, CT, X, W) == wanted
    assert called(two, CT, X, W) == [[7, -22], [3, -10]]


@pytest.mark.parametrize(
    ("mutated", "wanted"),
    [
        (mutate.negated(one, 0), [-9, 17]),
        (mutate.scaled(one, 0, lambda xp, x, *, alpha, beta: alpha * beta), [54, -102]),
        (mutate.attribute(one, alpha=0.0), [3, 3]),
        (mutate.attribute(one, beta=lambda alpha, beta: alpha - beta), [5, -21]),
        (mutate.attribute(one, alpha=1.0, beta=lambda alpha, **_: alpha), [5, -8]),
    ],
)
def test_a_single_gradient_stays_bare_and_attributes_reach_everything(mutated, wanted):
    assert called(mutated, CT, X, alpha=2.0, beta=3.0) == [wanted]
    assert not isinstance(mutated(np, CT, X, alpha=2.0, beta=3.0), tuple)


def test_an_attribute_that_is_not_meant_keeps_the_callers_value():
    assert called(mutate.attribute(one, alpha=0.0), CT, X, alpha=2.0, beta=9.0) == [[9, 9]]


def test_the_gradient_of_an_index_stays_none():
    assert called(mutate.negated(indexed, 0), CT, X, I) == [[2, -1], None]


def parts(xp, ct, x):
    return ct[0] * x + ct[1]


def test_a_cotangent_of_several_parts_is_changed_as_one():
    dropped = mutate.cotangent(parts, lambda xp, ct, x: (ct[0], xp.zeros_like(ct[1])))
    assert dropped(np, (CT, CT), X).tolist() == [3, -10]


@pytest.mark.parametrize("vjp", [one, two, indexed])
def test_what_is_mutated_takes_what_the_original_takes(vjp):
    for mutated in (
        mutate.output(vjp, 0, lambda xp, g, *_, **__: g),
        mutate.cotangent(vjp, lambda xp, ct, *_, **__: ct),
        mutate.primal(vjp, 0, lambda xp, x, *_, **__: x),
        mutate.attribute(vjp),
        mutate.swapped(vjp, 0, 1),
    ):
        assert inspect.signature(mutated) == inspect.signature(vjp)


def test_the_registry_takes_it_for_the_operators_own(make):
    check(make.mutant(mutate.negated(make.double, 0)), make.op())
