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
