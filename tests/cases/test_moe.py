import numpy as np
import pytest
from gradcheck_cases.moe import moe

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.draw import Draw


def primals(sample, dialect="mixtral"):
    """The primals of one sample, as the suite draws them."""
    (found,) = [s for s in moe.samples if s.name == sample]
    drawn = found.primals(Draw("moe", sample))
    without = moe.dialect(dialect).without
    return [np.array(p) for n, p in zip(moe.primals, drawn, strict=True) if n not in without]


def forward(*given, **attrs):
    return moe.forward(F64, *given, **attrs)


def vjp(ct, *given, **attrs):
    return moe.vjp(F64, ct, *given, **attrs)


def expert(x, up, gate, down):
    act = gate @ x
    return down @ (act / (1 + np.exp(-act)) * (up @ x))


# ── moe ──────────────────────────────────────────────────────────────────────────────────────


def test_a_mixture_by_hand():
    # Logits log 1, log 3, log 4: the last two are chosen, with weights 3/7 and 4/7.
    x, router = np.array([1.0, 2.0]), np.log([[1.0, 1.0], [3.0, 1.0], [4.0, 1.0]])
    up = np.array([[[100.0, 0.0]], [[7.0, 0.0]], [[0.0, 7.0]]])
    np.testing.assert_allclose(forward(x, router, up), [3.0 + 8.0], rtol=1e-15)
    y = forward(x, router, up, renormalise=False)
    np.testing.assert_allclose(y, [(3 * 7 + 4 * 14) / 8], rtol=1e-15)
    dx, dr, du = vjp(np.array([1.0]), x, router, up)
    np.testing.assert_allclose(du[:, 0], [[0, 0], [3 / 7, 6 / 7], [4 / 7, 8 / 7]], rtol=1e-14)
    slope = 12 / 49 * 7  # of y by the difference of the two logits: w (1 - w) (14 - 7)
    np.testing.assert_allclose(dr, slope * np.outer([0, -1, 1], x), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(dx, [3 + slope * np.log(4 / 3), 4], rtol=1e-13)


def test_renormalised_weights_are_a_softmax_over_the_chosen_logits():
    x, router, *experts = primals("one-token")
    logits = router @ x
    order = np.argsort(logits)[-2:]
    weights = np.exp(logits[order]) / np.exp(logits[order]).sum()
    outs = [expert(x, *(w[e] for w in experts)) for e in order]
    want = sum(w * out for w, out in zip(weights, outs, strict=True))
    np.testing.assert_allclose(forward(x, router, *experts), want, rtol=1e-13)


def test_all_experts_chosen_is_a_dense_mixture():
    x, router, *experts = primals("all-experts")
    both = [forward(x, router, *experts, top_k=3, renormalise=r) for r in (True, False)]
    np.testing.assert_allclose(*both, rtol=1e-13)
    ct = Draw("dense").signed(2, 2)
    gradients = [vjp(ct, x, router, *experts, top_k=3, renormalise=r) for r in (True, False)]
    for got, want in zip(*gradients, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-13)


def test_equal_experts_are_one_expert():
    x, router, *experts = primals("typical")
    experts = [np.repeat(w[:1], len(w), axis=0) for w in experts]
    alone = forward(x, router[:1], *(w[:1] for w in experts), top_k=1)
    np.testing.assert_allclose(forward(x, router, *experts), alone, rtol=1e-12)
    dr = vjp(np.ones((4, 7)), x, router, *experts)[1]
    np.testing.assert_allclose(dr, 0, atol=1e-12)


def test_a_sigmoid_router_renormalises_its_scores_and_is_scaled():
    x, router, *experts = primals("one-token")
    attrs = moe.dialect("deepseek-v3").attrs
    logits = router @ x
    order = np.argsort(logits)[-2:]
    scores = 1 / (1 + np.exp(-logits[order]))
    outs = np.stack([expert(x, *(w[e] for w in experts)) for e in order])
    want = 2.5 * (scores / scores.sum()) @ outs
    np.testing.assert_allclose(forward(x, router, *experts, **attrs), want, rtol=1e-13)


def test_a_shift_of_the_logits_that_overflows_in_float32_does_not_matter():
    given = [p.astype(np.float32) for p in primals("shifted")]
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(given[0] @ given[1].T)).any()
    y = moe.forward(F32, *given)
    assert y.dtype == np.float32
    assert all(np.isfinite(g).all() for g in moe.vjp(F32, np.ones_like(y), *given))


@pytest.mark.parametrize("sample", [s.name for s in moe.samples])
def test_no_sample_comes_near_a_tie(sample):
    (found,) = [s for s in moe.samples if s.name == sample]
    for seed in range(20):
        x, router, *_ = found.primals(Draw(seed, "ties", sample))
        gaps = np.diff(np.sort(np.einsum("...d,ed->...e", x, router)))
        assert np.min(gaps, initial=1.0) >= 0.125
