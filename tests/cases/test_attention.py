import numpy as np
import pytest
from gradcheck_cases.attention import (
    attention,
    flash_attn,
    flash_ff,
    grouped_query_attention,
    masked_attention,
    masked_softmax,
    mix_by_attention,
    packed_attention,
    sink_attention,
    sliding_window_attention,
    softcapped_attention,
    softmax,
)
from gradcheck_cases.gated import gelu

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw


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


# ── the variants ─────────────────────────────────────────────────────────────────────────────


def same(found, wanted):
    for g, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(g, w, atol=1e-14)


def drawn(*shapes):
    draw = Draw("variants")
    return [draw.normal(*shape) for shape in shapes]


VARIANTS = pytest.mark.parametrize(
    ("variant", "attrs"),
    [
        (grouped_query_attention, {}),
        (grouped_query_attention, {"top_left": True}),
        (sliding_window_attention, {"left": 100}),
        (softcapped_attention, {"cap": 1e9}),
    ],
    ids=["bottom-right", "top-left", "wide window", "high cap"],
)


@VARIANTS
def test_without_what_makes_it_special_a_variant_is_attention(variant, attrs):
    q, k, v, ct = drawn(*[(2, 4, 3)] * 4)
    flat = [np.moveaxis(x, 0, 1).reshape(4, 6) for x in (q, k, v, ct)]
    y = attention.forward(F64, *flat[:3], heads=2)
    grads = attention.vjp(F64, flat[3], *flat[:3], heads=2)
    found = [variant.forward(F64, q, k, v, **attrs), *variant.vjp(F64, ct, q, k, v, **attrs)]
    same([np.moveaxis(x, 0, 1).reshape(4, 6) for x in found], [y, *grads])


def test_flash_attn_takes_v_transposed():
    q, k, v, ct = drawn((2, 3, 4), (2, 5, 4), (2, 5, 4), (2, 3, 4))
    turned = np.swapaxes(v, -1, -2)
    for masked in (True, False):
        y = grouped_query_attention.forward(F64, q, k, v, causal=masked)
        dq, dk, dv = grouped_query_attention.vjp(F64, ct, q, k, v, causal=masked)
        same([flash_attn.forward(F64, q, k, turned, masked=masked)], [y])
        found = flash_attn.vjp(F64, ct, q, k, turned, masked=masked)
        same(found, [dq, dk, np.swapaxes(dv, -1, -2)])


def test_flash_attn_refuses_masked_queries_that_would_see_no_slot():
    q, k, v = drawn((3, 4), (2, 4), (4, 2))
    with pytest.raises(ValueError, match="3 masked queries, but only 2 slots"):
        flash_attn.forward(F64, q, k, v)
    assert flash_attn.forward(F64, q, k, v, masked=False).shape == (3, 4)


def test_decoding_one_query_at_a_time_is_attending_at_once():
    q, k, v = drawn((2, 5, 3), (2, 5, 3), (2, 5, 3))
    at_once = grouped_query_attention.forward(F64, q, k, v)
    for t in range(5):
        slots = (slice(None), slice(t + 1))
        y = grouped_query_attention.forward(F64, q[:, t : t + 1], k[slots], v[slots])
        np.testing.assert_allclose(y, at_once[:, t : t + 1], atol=1e-15)


def test_flash_ff_is_two_linear_maps_around_gelu():
    a, b0, b1, c0, c1 = drawn((3, 2), (5, 2), (5,), (2, 5), (2,))
    z = gelu.forward(F64, a @ b0.T + b1)
    same([flash_ff.forward(F64, a, b0, b1, c0, c1)], [z @ c0.T + c1])
    ct = np.ones((3, 2))
    da, _, db1, dc0, dc1 = flash_ff.vjp(F64, ct, a, b0, b1, c0, c1)
    assert dc1.tolist() == [3, 3]
    same([dc0], [ct.T @ z])
    dh = gelu.vjp(F64, ct @ c0, a @ b0.T + b1)
    same([db1, da], [dh.sum(axis=0), dh @ b0])


# ── grouped_query_attention ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("heads", "groups"), [(6, 3), (6, 2), (3, 1), (2, 2)])
def test_groups_of_neighbouring_heads_share_a_key_and_sum_its_gradients(heads, groups):
    q, k, v, ct = drawn((heads, 3, 2), (groups, 4, 2), (groups, 4, 3), (heads, 3, 3))
    each = [np.repeat(x, heads // groups, axis=0) for x in (k, v)]
    y = grouped_query_attention.forward(F64, q, k, v)
    same([y], [grouped_query_attention.forward(F64, q, *each)])
    dq, dk, dv = grouped_query_attention.vjp(F64, ct, q, k, v)
    full = grouped_query_attention.vjp(F64, ct, q, *each)
    shared = [g.reshape(groups, -1, *g.shape[1:]).sum(axis=1) for g in full[1:]]
    same([dq, dk, dv], [full[0], *shared])


def test_heads_that_groups_cannot_share_evenly_are_refused():
    q, k = drawn((4, 2, 2), (3, 2, 2))
    with pytest.raises(ValueError, match="4 query heads cannot share 3 key heads"):
        grouped_query_attention.forward(F64, q, k, k)


def test_a_query_that_sees_no_slot_gives_zero_and_gets_no_gradient():
    q, k, v, ct = drawn((2, 5, 3), (2, 3, 3), (2, 3, 3), (2, 5, 3))
    blind = slice(0, 2)  # the last query sees all three slots, the first two see none
    y = grouped_query_attention.forward(F64, q, k, v)
    dq, dk, dv = grouped_query_attention.vjp(F64, ct, q, k, v)
    assert not y[:, blind].any()
    assert not dq[:, blind].any()
    assert y[:, 2:].all()
    without = grouped_query_attention.vjp(F64, ct[:, 2:], q[:, 2:], k, v)
    same([dq[:, 2:], dk, dv], without)


# ── sliding_window_attention ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("left", "right"), [(0, 0), (2, 0), (1, 2), (0, 3)])
@pytest.mark.parametrize(("queries", "slots"), [(5, 5), (2, 5), (1, 4)])
def test_values_get_a_gradient_from_the_windows_they_lie_in_only(left, right, queries, slots):
    q, k, v = drawn((queries, 3), (slots, 3), (slots, 1))
    for t in range(queries):
        ct = np.zeros((queries, 1))
        ct[t] = 1
        attrs = {"left": left, "right": right}
        _, dk, dv = sliding_window_attention.vjp(F64, ct, q, k, v, **attrs)
        own = t + slots - queries
        near = [own - left <= s <= own + right for s in range(slots)]
        assert (dv[:, 0] > 0).tolist() == near
        assert not dk[~np.array(near)].any()


def test_a_window_of_one_slot_passes_its_value_on():
    q, k, v, ct = drawn(*[(4, 3)] * 4)
    assert np.array_equal(sliding_window_attention.forward(F64, q, k, v, left=0), v)
    dq, dk, dv = sliding_window_attention.vjp(F64, ct, q, k, v, left=0)
    assert not dq.any()
    assert not dk.any()
    assert np.array_equal(dv, ct)


# ── sink_attention ───────────────────────────────────────────────────────────────────────────


def test_a_sink_is_one_more_slot_whose_value_is_zero():
    q, k, v, sink, ct = drawn((2, 3, 2), (2, 3, 2), (2, 3, 4), (2,), (2, 3, 4))
    y = sink_attention.forward(F64, q, k, v, sink)
    dsink = sink_attention.vjp(F64, ct, q, k, v, sink)[-1]
    for h in range(2):
        for t in range(3):
            scores = np.append(k[h, : t + 1] @ q[h, t] / np.sqrt(2), sink[h])
            weights = softmax.forward(F64, scores)[:-1]
            np.testing.assert_allclose(y[h, t], weights @ v[h, : t + 1], rtol=1e-13)
    step = 1e-6 * np.array([1.0, 0.0])
    ends = [sink_attention.forward(F64, q, k, v, sink + s * step) for s in (1, -1)]
    assert np.sum(ct * (ends[0] - ends[1])) / 2e-6 == pytest.approx(dsink[0], rel=1e-7)


def test_a_sink_far_below_is_no_sink_and_one_far_above_takes_all():
    q, k, v, ct = drawn(*[(2, 3, 2)] * 4)
    plain = grouped_query_attention.vjp(F64, ct, q, k, v)
    below = sink_attention.vjp(F64, ct, q, k, v, np.full(2, -1000.0))
    same(below, [*plain, np.zeros(2)])
    above = sink_attention.vjp(F64, ct, q, k, v, np.full(2, 1000.0))
    same(above, [np.zeros_like(g) for g in below])


def test_without_a_sink_its_logit_is_zero():
    q, k, v, ct = drawn(*[(2, 3, 2)] * 4)
    one = sink_attention.vjp(F64, ct, q, k, v)
    learned = sink_attention.vjp(F64, ct, q, k, v, np.zeros(2))
    same(one, learned[:3])
    assert len(one) == 3


# ── softcapped_attention ─────────────────────────────────────────────────────────────────────


def test_a_cap_bounds_the_ratio_of_two_weights():
    q, k = drawn((4, 3), (5, 3))
    attrs = {"cap": 1.0, "causal": False}
    weights = softcapped_attention.forward(F64, 100 * q, 100 * k, np.eye(5), **attrs)
    ratios = weights.max(axis=-1) / weights.min(axis=-1)
    np.testing.assert_allclose(ratios, np.exp(2), rtol=1e-6)  # from -1 to 1 in every row


def test_hidden_slots_weigh_nothing_however_low_the_cap():
    q, k, v, ct = drawn((3, 2), (3, 2), (3, 2), (3, 2))
    later = np.arange(3)[:, None] == 2
    y = softcapped_attention.forward(F64, q, k, v, cap=0.5)
    changed = softcapped_attention.forward(F64, q, k + later, v - later, cap=0.5)
    assert np.array_equal(y[:2], changed[:2])
    ct[2] = 0
    _, dk, dv = softcapped_attention.vjp(F64, ct, q, k, v, cap=0.5)
    assert not dk[2].any()
    assert not dv[2].any()
