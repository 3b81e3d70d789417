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


def test_only_the_chosen_experts_count():
    x, router, *experts = primals("one-token")
    logits = router @ x
    last = np.argmin(logits)
    ct = Draw("chosen").signed(2)
    before, gradients = forward(x, router, *experts), vjp(ct, x, router, *experts)
    for w in experts:
        w[last] = 1e3
    np.testing.assert_array_equal(forward(x, router, *experts), before)
    for got, want in zip(vjp(ct, x, router, *experts), gradients, strict=True):
        np.testing.assert_array_equal(got, want)
    assert not any(g[last].any() for g in gradients[2:])


def test_renormalised_weights_are_a_softmax_over_the_chosen_logits():
    x, router, *experts = primals("one-token")
    logits = router @ x
    order = np.argsort(logits)[-2:]
    weights = np.exp(logits[order]) / np.exp(logits[order]).sum()
    outs = [expert(x, *(w[e] for w in experts)) for e in order]
    want = sum(w * out for w, out in zip(weights, outs, strict=True))
    np.testing.assert_allclose(forward(x, router, *experts), want, rtol=1e-13)


def test_the_router_of_a_renormalised_mixture_has_gradients_that_cancel_over_the_experts():
    x, router, *experts = primals("typical")
    ct = Draw("cancel").signed(4, 7)
    dr = vjp(ct, x, router, *experts)[1]
    np.testing.assert_allclose(dr.sum(axis=0), 0, atol=1e-12)
    assert np.abs(dr).max() > 1e-2


def test_plain_weights_reach_the_router_through_experts_that_were_not_chosen():
    x, router, *experts = primals("one-token")
    last = np.argmin(router @ x)
    ct = np.ones(2)
    np.testing.assert_allclose(vjp(ct, x, router, *experts)[1][last], 0, atol=1e-15)
    plain = vjp(ct, x, router, *experts, renormalise=False)[1][last]
    assert np.abs(plain).min() > 1e-6


def test_one_renormalised_expert_leaves_the_router_without_a_gradient():
    x, router, *experts = primals("top-1")
    ct = Draw("top-1").signed(3, 2)
    assert not vjp(ct, x, router, *experts, top_k=1)[1].any()
    assert vjp(ct, x, router, *experts, top_k=1, renormalise=False)[1].any()


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


def test_tokens_are_independent():
    x, router, *experts = primals("typical")
    ct = Draw("tokens").signed(4, 7)
    whole = vjp(ct, x, router, *experts)
    rows = [vjp(ct[t], x[t], router, *experts) for t in range(4)]
    for i, want in enumerate(whole):
        parts = np.stack([row[i] for row in rows])
        np.testing.assert_allclose(want, parts if i == 0 else parts.sum(axis=0), atol=1e-12)


def test_idle_experts_get_exactly_zero():
    x, router, *experts = primals("idle-experts")
    assert set(np.argsort(x @ router.T, axis=1)[:, -2:].ravel()) == {0, 1}
    for g in vjp(np.ones((3, 3)), x, router, *experts)[2:]:
        assert not g[2:].any()
        assert g[:2].all()


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
