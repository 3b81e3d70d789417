import numpy as np
from gradcheck_cases.linear import matmul, multi_head_matmul

from gradcheck.arithmetic import F64
from gradcheck.draw import Draw

# ── matmul ───────────────────────────────────────────────────────────────────────────────────


def test_the_weight_is_stored_as_out_by_in():
    x, b = np.array([[1.0, 2.0]]), np.array([100.0, 200.0, 300.0])
    w = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    assert matmul.forward(F64, x, w, b).tolist() == [[121, 242, 363]]
    dx, dw, db = matmul.vjp(F64, np.array([[1.0, 2.0, 4.0]]), x, w, b)
    assert dx.tolist() == [[17, 170]]
    assert dw.tolist() == [[1, 2], [2, 4], [4, 8]]
    assert db.tolist() == [1, 2, 4]


def test_weight_and_bias_accumulate_over_rows_and_batches():
    draw = Draw("accumulate")
    ct, x = draw.signed(2, 3, 4), draw.normal(2, 3, 5)
    _, dw, db = matmul.vjp(F64, ct, x, np.zeros((4, 5)), np.zeros(4))
    rows = [(b, t) for b in range(2) for t in range(3)]
    np.testing.assert_allclose(dw, sum(np.outer(ct[row], x[row]) for row in rows), rtol=1e-13)
    np.testing.assert_allclose(db, sum(ct[row] for row in rows), rtol=1e-13)


def test_a_linear_map_meets_its_gradients_in_one_number():
    draw = Draw("matmul")
    x, w, ct = draw.normal(2, 3, 5), draw.normal(7, 5), draw.signed(2, 3, 7)
    value = (ct * matmul.forward(F64, x, w)).sum()
    for primal, gradient in zip((x, w), matmul.vjp(F64, ct, x, w), strict=True):
        np.testing.assert_allclose((primal * gradient).sum(), value, rtol=1e-13)


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


def test_each_head_gets_the_whole_cotangent():
    ct = np.array([[1.0, 2.0]])
    dx, dw = multi_head_matmul.vjp(F64, ct, np.ones((1, 3, 1)), np.ones((3, 2, 1)))
    assert dx[0, :, 0].tolist() == [3, 3, 3]
    assert dw[..., 0].tolist() == [[1, 2]] * 3
