"""Memory: a run of the cotangent's numbers is told from what strides would pick."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

MEMORY = only("memory")


def in_memory(ct, x, y, *, axis=-1):
    """The cotangent of a concatenation cut in two, as if it had been along the first axis."""
    flat = np.ravel(ct)
    return flat[: x.size].reshape(x.shape), flat[x.size :].reshape(y.shape)


@pytest.mark.parametrize(
    ("output", "where"),
    [("x", "from its start"), ("y", "up to its end")],
)
def test_memory_that_is_cut_in_two(output, where):
    found = named("concat", in_memory, output, MEMORY, sample="middle-axis")
    assert found.label == "L"
    assert found.says == (
        f"d{output} is a piece of the cotangent's memory, {where}, without regard to strides"
    )


def test_it_is_told_before_what_says_less():
    assert named("concat", in_memory, "x", sample="middle-axis").rule == "memory"


def test_pieces_in_another_order_are_no_run():
    def vjp(ct, x, y, *, axis=-1):
        dx, dy = in_memory(ct, x, y)
        return dx[::-1], dy[::-1]

    assert not named("concat", vjp, "x", MEMORY, sample="middle-axis").label


@pytest.mark.parametrize("change", [np.zeros_like, lambda g: 2 * g, np.negative])
def test_other_numbers_are_left_to_others(change):
    wrong = changed("concat", x=change)
    assert not named("concat", wrong, "x", MEMORY, sample="middle-axis").label


def test_a_kernel_read_column_by_column_is_a_layout():
    def vjp(ct, x, *, kernel=(3, 2), **attrs):
        n, m = kernel
        parts = ct.reshape(*ct.shape[:-1], -1, m, n) if not attrs.get("columns") else None
        if parts is None:
            return right("im2col", ct, x, kernel=kernel, **attrs)
        turned = np.swapaxes(parts, -1, -2).reshape(ct.shape)
        return right("im2col", turned, x, kernel=kernel, **attrs)

    found = named("im2col", vjp, "x", only("orientation"), sample="square")
    assert found.label == "L"
    assert "the kernel's two extents within" in found.says


def test_the_cotangent_as_it_is_is_no_piece():
    assert not named("relu", lambda ct, x: ct, "x", MEMORY).label


def test_a_sum_that_is_one_number_of_the_cotangent_is_no_choice():
    def vjp(ct, x, s):
        return ct, ct.ravel()[-1:].reshape(np.shape(s))

    assert not named("add1", vjp, "s", MEMORY).label
