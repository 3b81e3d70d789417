import numpy as np
import pytest
from gradcheck_cases.attention import (
    attention,
    masked_attention,
    masked_softmax,
    mix_by_attention,
    packed_attention,
    softmax,
)

from gradcheck.arithmetic import F64
from gradcheck.draw import Draw


def hidden(t, s):
    """Where query t must not look, as [t, 1, s]."""
    return (np.arange(s) > np.arange(t)[:, None])[:, None, :]


# ── softmax ──────────────────────────────────────────────────────────────────────────────────


def test_softmax_gradient_sums_to_zero_in_each_row():
    draw = Draw("softmax")
    x, ct = draw.normal(3, 5), draw.signed(3, 5)
    dx = softmax.vjp(F64, ct, x)
    np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-15)
    assert np.abs(dx).min() > 1e-3


def test_softmax_gradient_ignores_constants_in_the_cotangent_and_in_x():
    draw = Draw("softmax")
    x, ct = draw.normal(3, 5), draw.signed(3, 5)
    dx = softmax.vjp(F64, ct, x)
    np.testing.assert_allclose(softmax.vjp(F64, np.ones((3, 5)), x), 0, atol=1e-15)
    np.testing.assert_allclose(softmax.vjp(F64, ct + 3, x), dx, atol=1e-14)
    np.testing.assert_allclose(softmax.vjp(F64, ct, x + 500), dx, atol=1e-14)


# ── Gemma's parts ────────────────────────────────────────────────────────────────────────────


def test_masked_softmax_is_softmax_over_the_slots_seen_and_zero_elsewhere():
    draw = Draw("masked_softmax")
    att, ct = draw.normal(3, 2, 5), draw.signed(3, 2, 5)
    y, d = masked_softmax.forward(F64, att), masked_softmax.vjp(F64, ct, att)
    for t in range(3):
        seen = (t, slice(None), slice(t + 1))
        np.testing.assert_allclose(y[seen], softmax.forward(F64, att[seen]), rtol=1e-15)
        np.testing.assert_allclose(d[seen], softmax.vjp(F64, ct[seen], att[seen]), atol=1e-15)
    assert not y[np.broadcast_to(hidden(3, 5), y.shape)].any()
    assert not d[np.broadcast_to(hidden(3, 5), d.shape)].any()


def test_masked_softmax_does_not_read_hidden_slots():
    draw = Draw("masked_softmax")
    att, ct = draw.normal(3, 2, 4), draw.signed(3, 2, 4)
    loud = np.where(hidden(3, 4), 1e30, att)
    loud_ct = np.where(hidden(3, 4), 1e30, ct)
    assert np.array_equal(masked_softmax.forward(F64, loud), masked_softmax.forward(F64, att))
    assert np.array_equal(masked_softmax.vjp(F64, loud_ct, loud), masked_softmax.vjp(F64, ct, att))


def test_masked_attention_leaves_hidden_scores_and_the_value_slot_at_zero():
    draw = Draw("masked_attention")
    qkv, ct = draw.signed(4, 5, 2), draw.signed(4, 3, 4)
    scores, dqkv = masked_attention.forward(F64, qkv), masked_attention.vjp(F64, ct, qkv)
    assert np.array_equal(scores == 0, np.broadcast_to(hidden(4, 4), scores.shape))
    assert not dqkv[:, -1].any()
    assert dqkv[:, :-1].all()
    loud = np.where(hidden(4, 4), 1e30, ct)
    assert np.array_equal(masked_attention.vjp(F64, loud, qkv), dqkv)


def test_mix_by_attention_reaches_the_value_slot_and_seen_weights_only():
    draw = Draw("mix_by_attention")
    qkv, att, ct = draw.signed(4, 5, 2), draw.signed(4, 3, 4), draw.signed(4, 3, 2)
    dqkv, datt = mix_by_attention.vjp(F64, ct, qkv, att)
    assert not dqkv[:, :-1].any()
    assert dqkv[:, -1].all()
    assert np.array_equal(datt == 0, np.broadcast_to(hidden(4, 4), datt.shape))
    loud = np.where(hidden(4, 4), 1e30, att)
    y = mix_by_attention.forward(F64, qkv, att)
    assert np.array_equal(mix_by_attention.forward(F64, qkv, loud), y)
    assert np.array_equal(mix_by_attention.vjp(F64, ct, qkv, loud)[0], dqkv)


def test_gemmas_parts_in_a_row_are_attention_with_one_key_and_value_for_all_heads():
    t, h, d = 4, 3, 2
    draw = Draw("gemma")
    qkv, ct = draw.normal(t, h + 2, d), draw.signed(t, h, d)
    scaled = np.concatenate([qkv[:, :h] / np.sqrt(d), qkv[:, h:]], axis=1)
    scores = masked_attention.forward(F64, scaled)
    weights = masked_softmax.forward(F64, scores)
    y = mix_by_attention.forward(F64, scaled, weights)
    dqkv, dweights = mix_by_attention.vjp(F64, ct, scaled, weights)
    dscores = masked_softmax.vjp(F64, dweights, scores)
    dqkv = dqkv + masked_attention.vjp(F64, dscores, scaled)
    dqkv[:, :h] /= np.sqrt(d)

    q = qkv[:, :h].reshape(t, h * d)
    k, v = (np.tile(qkv[:, slot], (1, h)) for slot in (h, h + 1))
    whole = attention.forward(F64, q, k, v, heads=h)
    dq, dk, dv = attention.vjp(F64, ct.reshape(t, h * d), q, k, v, heads=h)
    np.testing.assert_allclose(y.reshape(t, h * d), whole, atol=1e-14)
    np.testing.assert_allclose(dqkv[:, :h].reshape(t, h * d), dq, atol=1e-14)
    np.testing.assert_allclose(dqkv[:, h], dk.reshape(t, h, d).sum(axis=1), atol=1e-14)
    np.testing.assert_allclose(dqkv[:, h + 1], dv.reshape(t, h, d).sum(axis=1), atol=1e-14)


# ── attention ────────────────────────────────────────────────────────────────────────────────


def qkv_and_ct(t, c):
    draw = Draw("attention")
    return draw.normal(t, c), draw.normal(t, c), draw.normal(t, c), draw.signed(t, c)


@pytest.mark.parametrize("causal", [True, False])
def test_only_causal_attention_ignores_the_future(causal):
    q, k, v, _ = qkv_and_ct(5, 4)
    later = np.arange(5)[:, None] >= 3
    y = attention.forward(F64, q, k, v, causal=causal)
    changed = attention.forward(F64, q, k + later, v - later, causal=causal)
    same = (y == changed).all(axis=-1)
    assert same.tolist() == ([True] * 3 + [False] * 2 if causal else [False] * 5)


@pytest.mark.parametrize("causal", [True, False])
def test_only_causal_attention_gives_later_slots_no_gradient_from_earlier_queries(causal):
    q, k, v, ct = qkv_and_ct(5, 4)
    ct[3:] = 0
    dq, dk, dv = attention.vjp(F64, ct, q, k, v, causal=causal)
    assert not dq[3:].any()
    assert dk[3:].any() == dv[3:].any() == (not causal)
    assert dk[:3].all()
    assert dv[:3].all()


def test_permuting_keys_and_values_permutes_their_gradients():
    q, k, v, ct = qkv_and_ct(4, 6)
    order = [2, 0, 3, 1]
    dq, dk, dv = attention.vjp(F64, ct, q, k, v, causal=False)
    pq, pk, pv = attention.vjp(F64, ct, q, k[order], v[order], causal=False)
    np.testing.assert_allclose(pq, dq, atol=1e-14)
    np.testing.assert_allclose(pk, dk[order], atol=1e-14)
    np.testing.assert_allclose(pv, dv[order], atol=1e-14)


def test_one_position_passes_its_value_on():
    q, k, v, ct = qkv_and_ct(1, 6)
    assert np.array_equal(attention.forward(F64, q, k, v), v)
    dq, dk, dv = attention.vjp(F64, ct, q, k, v)
    assert not dq.any()
    assert not dk.any()
    assert np.array_equal(dv, ct)


def test_keys_shared_by_a_batch_get_the_sum_of_its_gradients():
    draw = Draw("attention", "shared")
    q, ct = draw.normal(2, 3, 4), draw.signed(2, 3, 4)
    k, v = draw.normal(3, 4), draw.normal(3, 4)
    dq, dk, dv = attention.vjp(F64, ct, q, k, v)
    singly = [attention.vjp(F64, ct[b], q[b], k, v) for b in range(2)]
    np.testing.assert_allclose(dq, np.stack([g[0] for g in singly]), atol=1e-14)
    np.testing.assert_allclose(dk, singly[0][1] + singly[1][1], atol=1e-14)
    np.testing.assert_allclose(dv, singly[0][2] + singly[1][2], atol=1e-14)


def test_packed_attention_is_attention_of_its_thirds():
    q, k, v, ct = qkv_and_ct(4, 6)
    x = np.concatenate([q, k, v], axis=-1)
    y = attention.forward(F64, q, k, v, heads=3)
    grads = attention.vjp(F64, ct, q, k, v, heads=3)
    np.testing.assert_allclose(packed_attention.forward(F64, x, heads=3), y, atol=1e-15)
    dx = packed_attention.vjp(F64, ct, x, heads=3)
    np.testing.assert_allclose(dx, np.concatenate(grads, axis=-1), atol=1e-15)
