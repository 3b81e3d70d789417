"""Conditions: sizes that are wrong are told from values; rows that are right alone from others."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

SIZES, ALONE = only("sizes"), only("alone")


def wide(op, limit, change):
    """A VJP that is changed where the last axis is longer than a limit."""

    def vjp(ct, x, **attrs):
        (g,) = right(op, ct, x, **attrs)
        return change(g) if x.shape[-1] > limit else g

    return vjp


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("op", "limit"), [("l2_norm", 64), ("variance", 32), ("variance", 64)])
def test_a_size_from_which_on_it_is_wrong_is_found(op, limit):
    found = named(op, wide(op, limit, lambda g: g + g.mean(-1, keepdims=True) + 0.01), "x", SIZES,
                  sample="width-67")  # fmt: skip
    assert found.label == "W"
    assert f"more than {limit} elements" in found.says
    assert any("70 sizes from 1 to 70" in line for line in found.evidence)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("block", [4, 8])
def test_a_remainder_that_is_wrong_is_found(block):
    def vjp(ct, x, **attrs):
        (g,) = right("variance", ct, x, **attrs)
        n = x.shape[-1]
        return g if n % block == 0 else g - g[..., : n // block * block].sum(-1, keepdims=True) - 1

    found = named("variance", vjp, "x", SIZES, sample="width-67")
    assert found.label == "W"
    assert f"no multiple of {block}" in found.says


def test_what_depends_on_a_value_is_no_size():
    def vjp(ct, x, **attrs):
        (g,) = right("variance", ct, x, **attrs)
        return g * np.where(np.abs(x).max() > 2.4, 2.0, 1.0)

    assert not named("variance", vjp, "x", SIZES, sample="width-67").label


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("change", [lambda g: 2 * g, lambda g: g + 0.1, np.sign])
def test_what_is_wrong_at_all_sizes_is_left_to_others(change):
    assert not named("variance", changed("variance", x=change), "x", SIZES).label
    assert not named("softmax", changed("softmax", x=change), "x", ALONE).label


def test_rows_that_read_the_first_ones_statistics_are_right_alone():
    def vjp(ct, x, **attrs):
        e = np.exp(x - x.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True)
        dots = (ct * y).sum(-1, keepdims=True)
        return y * (ct - dots.reshape(-1)[0])

    found = named("softmax", vjp, "x", ALONE)
    assert found.label == "I"
    assert found.says == "dx mixes up the entries along axis 0: each alone is right"


def test_rows_that_read_another_ones_arguments_alone_are_right_alone():
    def vjp(ct, x, **attrs):
        e = np.exp(x - x.max(-1, keepdims=True))
        y = np.broadcast_to((e / e.sum(-1, keepdims=True)).reshape(-1, x.shape[-1])[0], x.shape)
        return y * (ct - (ct * y).sum(-1, keepdims=True))

    assert named("softmax", vjp, "x", ALONE).label == "I"


def test_rows_that_are_wrong_alone_too_are_left_to_others():
    def vjp(ct, x, **attrs):
        (g,) = right("softmax", ct, x, **attrs)
        return g - g.mean(0, keepdims=True) * 0.5

    assert not named("softmax", vjp, "x", ALONE).label


def test_the_right_numbers_in_another_order_are_not_called_mixed_up():
    found = named("tanh", changed("tanh", x=lambda g: np.roll(g, 1, 0)), "x", ALONE)
    assert not found.label


@pytest.mark.parametrize("op", ["softmax", "tanh"])
def test_what_reads_no_other_entry_does_not_mix_them_up(op):
    """Wrong by its size alone, each entry is right alone too."""
    assert not named(op, changed(op, x=lambda g: g * 2 if len(g) > 1 else g), "x", ALONE).label


@pytest.mark.parametrize("op", ["softmax", "tanh"])
def test_what_goes_by_its_place_is_told_from_what_reads_others(op):
    def placed(g):
        return g * (1 + np.arange(len(g)).reshape(-1, *(1,) * (g.ndim - 1)))

    found = named(op, changed(op, x=placed), "x", ALONE)
    assert found.label == "I"
    assert found.says == "dx is wrong by the place along axis 0: each entry alone is right"
