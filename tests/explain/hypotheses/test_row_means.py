"""Elements and rows divided by a count of their own: named, and silent on all else."""

import numpy as np
import pytest

from tests.explain.scenes import named, only, spoiled

SHARED, BY_ROW, REDUCTION = only("shared"), only("by row"), only("reduction")


def test_the_mean_of_contributions_is_no_constant_factor():
    """Rows that are read more than once are divided by how often."""

    def shared(g, ct, p, a):
        count = np.bincount(p["rows"].ravel(), minlength=g.shape[0])
        return g / np.maximum(count, 1)[:, None]

    found = named("get_rows", spoiled("get_rows", "x", shared), "x", SHARED)
    assert found.label == "R"
    assert "divided, element by element, by the number of its contributions" in found.says
    assert not named("get_rows", spoiled("get_rows", "x", shared), "x", REDUCTION).label


def in_use(p, a):
    return (p["targets"] != a["ignore_index"]).sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (lambda v, n: v / v.flat[0], "divided by the first row's count of targets other than"),
        (lambda v, n: v / n, "divided by all of targets other than `ignore_index`"),
        (lambda v, n: 1 / np.maximum(v, 1), "averaged over targets other than `ignore_index`"),
    ],
)
def test_a_count_of_each_row(factor, says):
    def change(g, ct, p, a):
        v, n = in_use(p, a), p["targets"].shape[-1]
        return np.where(g == 0, 0, g * np.asarray(factor(v, n))[..., None])

    vjp = spoiled("masked_cross_entropy", "logits", change)
    found = named("masked_cross_entropy", vjp, "logits", BY_ROW, sample="batched")
    assert found.label == "R", found
    assert says in found.says


@pytest.mark.parametrize("rules", [SHARED, BY_ROW])
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("masked_cross_entropy", "logits", lambda g, ct, p, a: 2 * g),
        ("masked_cross_entropy", "logits", lambda g, ct, p, a: np.flip(g, -1)),
        ("get_rows", "x", lambda g, ct, p, a: -g),
        ("get_rows", "x", lambda g, ct, p, a: g + 0.25),
        ("exp", "x", lambda g, ct, p, a: np.clip(g, -50, 50)),
        ("im2col", "x", lambda g, ct, p, a: np.roll(g, 1, -1)),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change, rules):
    where = {"sample": "sweep"} if op == "exp" else {}
    found = named(op, spoiled(op, output, change), output, rules, **where)
    assert not found.label, found
