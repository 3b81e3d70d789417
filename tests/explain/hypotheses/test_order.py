"""The right numbers in the wrong places: named with the move, and silent on everything else."""

import numpy as np
import pytest

from tests.explain.scenes import changed, named, only, right

ORDERS = (*only("orientation"), *only("forward mode"), *only("layout"))
LOSSES = only("displaced")


def bare(found):
    return found[0] if len(found) == 1 else found


def reading_ct(op, change):
    def vjp(ct, *primals, **attrs):
        return bare(right(op, change(ct), *primals, **attrs))

    return vjp


def reading(op, at, change):
    def vjp(ct, *primals, **attrs):
        primals = list(primals)
        primals[at] = np.ascontiguousarray(change(primals[at]))
        return bare(right(op, ct, *primals, **attrs))

    return vjp


def relaid(op, at, move, back):
    def vjp(ct, *primals, **attrs):
        primals = list(primals)
        primals[at] = np.ascontiguousarray(move(primals[at]))
        found = list(right(op, ct, *primals, **attrs))
        found[at] = back(found[at])
        return bare(found)

    return vjp


def by_columns(g):
    return g.ravel(order="F").reshape(g.shape)


def pairs_for_halves(x):  # u0 g0 u1 g1 … for u0 u1 … g0 g1 …
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def halves_for_pairs(x):
    return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("op", "output", "vjp", "label", "says"),
    [
        ("matmul", "w", changed("matmul", w=by_columns), "L", "exchanged"),
        ("softmax", "x", changed("softmax", x=lambda g: np.flip(g, -1)), "L", "last axis reversed"),
        ("layer_norm", "x", changed("layer_norm", x=lambda g: np.roll(g, 1, -1)), "I", "1 place"),
        ("layer_norm", "x", changed("layer_norm", x=lambda g: np.roll(g, -2, -1)), "I", "2 places"),
        ("rms_norm", "x", reading_ct("rms_norm", by_columns), "L", "reads the cotangent with"),
        ("matmul", "x", reading("matmul", 1, by_columns), "L", "dx reads w with"),
        ("conv_1d_1s", "x", reading("conv_1d_1s", 1, lambda w: np.flip(w, -1)), "L", "reversed"),
        ("swiglu", "gate", changed("swiglu", gate=halves_for_pairs), "L", "2 parts"),
        ("packed_swiglu", "x", relaid("packed_swiglu", 0, pairs_for_halves, halves_for_pairs),
         "L", "right for another layout"),
    ],
)  # fmt: skip
def test_the_move_is_named(op, output, vjp, label, says):
    found = named(op, vjp, output, ORDERS)
    assert found.label == label, found
    assert says in found.says


def test_a_move_of_the_gradient_wins_over_a_move_of_what_it_reads():
    found = named("tanh", changed("tanh", x=lambda g: np.flip(g, -1)), "x", ORDERS)
    assert found.says.startswith("dx holds the right numbers")


def test_a_vector_that_goes_with_the_axis_moves_along():
    def vjp(ct, x, w=None, b=None, *, groups=2, eps=1e-5):  # channel c belongs to group c % groups
        order = np.arange(x.shape[-2]).reshape(-1, groups).T.ravel()
        given = [p if p is None else p[order] for p in (w, b)]
        found = list(right("group_norm", ct[:, order], x[:, order], *given, groups=groups, eps=eps))
        back = np.argsort(order)
        return (found[0][:, back], *(g if g is None else g[back] for g in found[1:]))

    found = named("group_norm", vjp, "x", ORDERS)
    assert found.label == "L", found
    assert "parts dealt out" in found.says or "parts in blocks" in found.says


def test_forward_in_place_of_backward_is_the_jacobian_itself():
    def vjp(ct, x, *, exclusive=False, reverse=False):
        g = np.flip(ct, -1) if reverse else ct
        g = np.cumsum(g, -1) - (g if exclusive else 0)
        return np.flip(g, -1) if reverse else g

    found = named("cumsum", vjp, "x", ORDERS)
    assert found.label == "L", found
    assert "not its transpose" in found.says


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change", "label", "says"),
    [
        ("layer_norm", "w", lambda g: 0 * g + g.sum(-1, keepdims=True), "B", "the sum over"),
        ("layer_norm", "w", lambda g: 0 * g + g[..., :1], "I", "first entry of its last axis"),
        ("softmax", "x", lambda g: np.concatenate([0 * g[..., :1], g[..., :-1]], -1), "I",
         "zero comes in"),
        ("softmax", "x", lambda g: np.concatenate([g[..., 1:], g[..., -1:]], -1), "I",
         "the end stays"),
    ],
)  # fmt: skip
def test_what_is_doubled_or_falls_out_is_named(op, output, change, label, says):
    found = named(op, changed(op, **{output: change}), output, LOSSES)
    assert found.label == label, found
    assert says in found.says


def test_a_distance_that_varies_with_the_shape_is_a_displacement():
    def change(g):  # a quarter of the width; what comes in is other numbers
        by = max(g.shape[-1] // 4, 1)
        return np.concatenate([3 * g[..., -by:], g[..., :-by]], -1)

    found = named("rms_norm", changed("rms_norm", x=change), "x", LOSSES)
    assert found.label == "I", found
    assert "it is displaced" in found.says


def test_equal_numbers_are_not_displaced():
    def change(g):  # the gradient of a mean is the same along the axis, wherever it stands
        return np.where(np.arange(g.shape[-1]) >= g.shape[-1] - 1, 0, g)

    found = named("mean", changed("mean", x=change), "x", LOSSES)
    assert "it is displaced" not in found.says, found


OTHERS = [
    ("softmax", "x", lambda g: 2 * g),
    ("layer_norm", "x", lambda g: g + 0.25),
    ("matmul", "w", lambda g: g * np.abs(g)),
    ("rms_norm", "x", lambda g: np.where(g > 0, g, 0)),
    ("tanh", "x", np.sign),
    ("conv_2d", "w", lambda g: g - g.mean()),
]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(("op", "output", "change"), OTHERS)
@pytest.mark.parametrize("rules", [ORDERS, LOSSES], ids=["orders", "losses"])
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change, rules):
    found = named(op, changed(op, **{output: change}), output, rules)
    assert not found.label, found


def test_a_move_at_one_sample_alone_is_not_enough():
    def sometimes(ct, x, **attrs):
        (g,) = right("softmax", ct, x, **attrs)
        return np.flip(g, -1) if x.ndim > 2 else 3 * g

    found = named("softmax", sometimes, "x", ORDERS)
    assert not found.label, found
