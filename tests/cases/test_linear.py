import numpy as np
import pytest
from gradcheck_cases.linear import (
    batched_matmul,
    lora_linear,
    low_rank_linear,
    matmul,
    mul_mat,
    multi_head_matmul,
    outer_product,
)

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw

# ── multi_head_matmul ────────────────────────────────────────────────────────────────────────


def test_heads_side_by_side_are_one_wide_matmul():
    draw = Draw("heads")
    x, w, ct = draw.normal(3, 2, 5), draw.normal(2, 7, 5), draw.signed(3, 7)
    wide_x, wide_w = x.reshape(3, 10), np.concatenate(list(w), axis=-1)
    y = multi_head_matmul.forward(F64, x, w)
    np.testing.assert_allclose(y, matmul.forward(F64, wide_x, wide_w), rtol=1e-13)
    dx, dw = multi_head_matmul.vjp(F64, ct, x, w)
    wide_dx, wide_dw = matmul.vjp(F64, ct, wide_x, wide_w)
    np.testing.assert_allclose(dx.reshape(3, 10), wide_dx, rtol=1e-13)
    np.testing.assert_allclose(np.concatenate(list(dw), axis=-1), wide_dw, rtol=1e-13)


# ── mul_mat ──────────────────────────────────────────────────────────────────────────────────


def test_consecutive_matrices_of_b_share_one_of_a():
    a = np.array([1.0, 10.0]).reshape(1, 2, 1, 1)
    b = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    assert mul_mat.forward(F64, a, b).ravel().tolist() == [1, 2, 30, 40]
    da, db = mul_mat.vjp(F64, np.ones((1, 4, 1, 1)), a, b)
    assert da.ravel().tolist() == [1 + 2, 3 + 4]
    assert db.ravel().tolist() == [1, 1, 10, 10]


def test_without_groups_mul_mat_is_matmul_with_the_operands_exchanged():
    draw = Draw("mul_mat")
    a, b, ct = draw.normal(1, 1, 3, 5), draw.normal(1, 1, 7, 5), draw.signed(1, 1, 7, 3)
    np.testing.assert_array_equal(
        mul_mat.forward(F64, a, b)[0, 0], matmul.forward(F64, b[0, 0], a[0, 0])
    )
    da, db = mul_mat.vjp(F64, ct, a, b)
    dx, dw = matmul.vjp(F64, ct[0, 0], b[0, 0], a[0, 0])
    np.testing.assert_allclose(da[0, 0], dw, rtol=1e-13)
    np.testing.assert_allclose(db[0, 0], dx, rtol=1e-13)


# ── outer_product ────────────────────────────────────────────────────────────────────────────


def test_the_outer_product_is_what_matmul_needs_for_its_weight():
    draw = Draw("outer")
    x, ct = draw.normal(3, 5), draw.signed(3, 7)
    _, dw = matmul.vjp(F64, ct, x, np.zeros((7, 5)))
    np.testing.assert_array_equal(outer_product.forward(F64, x, ct), dw)


# ── batched_matmul ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("transpose_x", [False, True])
@pytest.mark.parametrize("transpose_y", [False, True])
def test_a_flag_and_a_transposition_cancel(transpose_x, transpose_y):
    draw = Draw("flags")
    x, y, ct = draw.normal(2, 3, 5), draw.normal(2, 5, 7), draw.signed(2, 3, 7)
    flags = {"transpose_x": transpose_x, "transpose_y": transpose_y}
    given = (x.mT if transpose_x else x, y.mT if transpose_y else y)
    np.testing.assert_allclose(batched_matmul.forward(F64, *given, **flags), x @ y, rtol=1e-13)
    plain = batched_matmul.vjp(F64, ct, x, y)
    for found, wanted, flag in zip(
        batched_matmul.vjp(F64, ct, *given, **flags), plain, flags.values(), strict=True
    ):
        np.testing.assert_allclose(found.mT if flag else found, wanted, rtol=1e-12)


# ── low_rank_linear, lora_linear ─────────────────────────────────────────────────────────────


def adapter(*roles):
    draw = Draw("low-rank", *roles)
    x, w = draw.normal(3, 5), draw.normal(7, 5)
    return x, w, draw.normal(7, 2), draw.normal(2, 5), draw.signed(3, 7)


def test_two_factors_are_their_product_and_share_its_gradient():
    x, _, a, b, ct = adapter()
    for merged in (False, True):
        y = low_rank_linear.forward(F64, x, a, b, merged=merged)
        np.testing.assert_allclose(y, matmul.forward(F64, x, a @ b), rtol=1e-12)
        dx, da, db = low_rank_linear.vjp(F64, ct, x, a, b, merged=merged)
        wide_dx, dw = matmul.vjp(F64, ct, x, a @ b)
        np.testing.assert_allclose(dx, wide_dx, rtol=1e-12)
        np.testing.assert_allclose(da, dw @ b.T, rtol=1e-12)
        np.testing.assert_allclose(db, a.T @ dw, rtol=1e-12)


@pytest.mark.parametrize(("per", "strength"), [("one", 3.0), ("rank", 1.5), ("root", 3 / 2**0.5)])
def test_an_adapter_is_a_weight_on_top_of_a_weight(per, strength):
    x, w, a, b, ct = adapter()
    merged = w + strength * a @ b
    attrs = {"s": 3.0, "per": per}
    y = lora_linear.forward(F64, x, w, a, b, **attrs)
    np.testing.assert_allclose(y, matmul.forward(F64, x, merged), rtol=1e-12)
    dx, dw, da, db = lora_linear.vjp(F64, ct, x, w, a, b, **attrs)
    wide_dx, wide_dw = matmul.vjp(F64, ct, x, merged)
    np.testing.assert_allclose(dx, wide_dx, rtol=1e-11)
    np.testing.assert_allclose(dw, wide_dw, rtol=1e-13)
    np.testing.assert_allclose(da, strength * wide_dw @ b.T, rtol=1e-12)
    np.testing.assert_allclose(db, strength * a.T @ wide_dw, rtol=1e-12)
