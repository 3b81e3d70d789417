import numpy as np
import pytest

from gradcheck.judge.cotangents import KINDS, THIRDS, draw_cotangents, first_cotangent
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.narrow import TYPES

SHAPES = [(), (1,), (7,), (3, 5), (2, 0), (2, 3, 4)]


def drawn(*names, shapes=((4, 6), (5,))):
    return draw_cotangents(Draw("cotangents", *names), shapes)


@pytest.mark.parametrize("shape", SHAPES)
def test_there_is_one_of_each_kind_in_the_shape_of_the_output(shape):
    cotangents = drawn(shapes=[shape])
    assert cotangents.names == KINDS == ("normal", "powers", "ones")
    assert [ct[0].shape for ct in cotangents.values] == [shape] * 3
    assert cotangents.flat.shape == (3, np.prod(shape, dtype=int))


def test_several_outputs_have_a_cotangent_each_in_their_order():
    cotangents = drawn()
    for row, (first, second) in zip(cotangents.flat, cotangents.values, strict=True):
        assert (first.shape, second.shape) == ((4, 6), (5,))
        np.testing.assert_array_equal(row, np.concatenate([first.ravel(), second]))


@pytest.mark.parametrize("seed", range(5))
def test_the_random_ones_are_dense_signed_and_not_constant(seed):
    # All ones alone is blind: the VJP of a softmax for it is exactly zero.
    normal, powers, ones = drawn(seed, shapes=[(8, 16)]).flat
    assert (ones == 1).all()
    for ct in (normal, powers):
        assert np.abs(ct).min() > 0
        assert 0.25 < np.mean(ct > 0) < 0.75
        assert len(np.unique(np.abs(ct))) > 4
        assert np.abs(ct.reshape(8, 16).sum(axis=1)).min() > 0
    assert np.abs(normal).min() >= 1 / 8  # no element too small to carry an error
    assert np.log2(np.abs(powers)).tolist() == np.round(np.log2(np.abs(powers))).tolist()
    assert np.abs(powers).max() / np.abs(powers).min() >= 2**6


def test_outputs_of_one_shape_do_not_share_their_cotangents():
    for kind, (first, second) in zip(KINDS, drawn(shapes=[(3, 5), (3, 5)]).values, strict=True):
        assert not np.shares_memory(first, second)
        assert kind == "ones" or not np.array_equal(first, second)


def test_they_depend_on_the_names_and_on_nothing_else():
    np.testing.assert_array_equal(drawn(1).flat, drawn(1).flat)
    assert not np.array_equal(drawn(1).flat[:2], drawn(2).flat[:2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_dtype_gets_the_same_numbers_as_it_holds_them(dtype):
    cotangents = drawn().rounded(dtype)
    assert np.count_nonzero(cotangents.flat[0] != drawn().flat[0]) == 29 * (dtype == "float32")
    np.testing.assert_array_equal(cotangents.flat, drawn().held([np.dtype(dtype)] * 2).flat)
    np.testing.assert_allclose(cotangents.flat, drawn().flat, rtol=2.0**-24)
    for typed, exact in zip(cotangents.typed(dtype), cotangents.values, strict=True):
        assert [part.dtype for part in typed] == [dtype, dtype]
        for part, whole in zip(typed, exact, strict=True):
            np.testing.assert_array_equal(part, whole.astype(dtype))


def test_nobody_can_change_them_for_the_next():
    cotangents = drawn()
    before = cotangents.flat
    for part in cotangents.typed("float64")[0]:
        part[...] = np.nan
    cotangents.flat[...] = np.nan
    np.testing.assert_array_equal(cotangents.flat, before)


def test_the_first_may_be_given_and_the_others_stay():
    given = drawn("first", shapes=[(2, 3), ()])
    first = np.arange(7.0)
    found = given.holding(first)
    np.testing.assert_array_equal(found.flat[0], first)
    np.testing.assert_array_equal(found.flat[1:], given.flat[1:])
    assert [p.shape for p in found.values[0]] == [(2, 3), ()]
    assert found.names == given.names


def test_of_one_number_twice_the_first_stands_for_the_power_and_no_chance_for_the_normal_one():
    given = drawn("first", shapes=[(1, 1)])
    found = given.holding(np.array([1.0]))
    assert [ct[0].tolist() for ct in found.values] == [[[-8 / 3]], [[-2.0]], [[1.0]]]


@pytest.mark.parametrize("kept", TYPES, ids=lambda kept: kept.name)
def test_a_third_of_the_last_place_of_every_type_lies_beyond_what_a_loss_is_asked_with(kept):
    assert abs(kept.rounded(THIRDS) / THIRDS - 1) == pytest.approx(0.25 * 2.0 ** (1 - kept.bits))


@pytest.mark.parametrize("kept", TYPES, ids=lambda kept: kept.name)
def test_a_random_cotangent_fills_the_mantissa(kept):
    for flat in (drawn().flat[0], first_cotangent(0, "f", 29)):
        assert np.all(kept.rounded(flat) != flat)


def test_a_projection_asks_a_number_with_one_and_others_at_random():
    np.testing.assert_array_equal(first_cotangent(3, "f", 1), [1.0])
    found = first_cotangent(3, "f", 2)
    assert found.shape == (2,)
    assert not np.array_equal(found, first_cotangent(4, "f", 2))
