"""Changes of small texts, one for each thing that a text may do."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.explain.engine import terms
from gradcheck.explain.hypothesis import Observations
from gradcheck.explain.operator_probes import SpecTruth
from gradcheck.explain.probe import Probe
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw


def probe(right, wrong, shape, seed, attrs):
    """One point of a text of two primals of one shape; the gradient of the first is asked."""
    spec = SimpleNamespace(
        vjp=right, forward=lambda xp, x, y, **_: xp.exp(x) * y, signature="(t,d),(t,d)->(t,d)"
    )
    draw = Draw("terms", seed, *map(str, shape))
    x, y, ct = (draw.away(0.0, *shape) for _ in range(3))
    with np.errstate(all="ignore"):
        came = np.asarray(wrong(F64, ct, x, y, **attrs))
    return Probe(
        where="x".join(map(str, shape)),
        seed=seed,
        names=("x", "y"),
        primals=(x, y),
        attrs=attrs,
        ct=(ct,),
        got={"x": came},
        truth=SpecTruth(spec),
        ask=lambda ct: {},
    )


def found(right, wrong, *others, **attrs):
    """Label and sentence of the first change that holds at all points.

    They have the attributes `attrs`, and those in each of `others`.
    """

    def both(xp, ct, x, y, **attrs):
        return right(xp, ct, x, y, **attrs), ct

    points = [
        probe(both, wrong, shape, k, given)
        for given in (attrs, *others)
        for shape in ((4, 3), (3, 5))
        for k in (0, 1)
    ]
    failing = [p for p in points if p.fails("x")]
    assert failing, "the wrong text is right"
    scene = Observations("x", failing, [p for p in points if not p.fails("x")])
    for hypothesis in terms(scene):
        if all(hypothesis.fits(p) for p in points):
            return hypothesis.label, hypothesis.says
    return "", ""


def rows(xp, ct, x, y, *, carry=1.0):
    """A scan backwards: what a row hands on decays by x."""
    held, out = 0 * ct[0], []
    for t in reversed(range(x.shape[0])):
        held = held + ct[t] * y[t]
        out.append(held)
        held = held * x[t] * carry
    return xp.stack(out[::-1], axis=0)


def summed(xp, ct, x, y):
    total = xp.sum(ct * y, axis=-1, keepdims=True)
    return x * total


def variance(xp, ct, x, y):
    spread = xp.mean(y * y, axis=-1, keepdims=True)
    centre = xp.mean(ct, axis=-1, keepdims=True)
    return (ct - centre) / (spread + y * y)


def less_one(xp, ct, x, y):
    n = x.shape[-1]
    spread, centre = ((v.sum(axis=-1, keepdims=True) / (n - 1)) for v in (y * y, ct))
    return (ct - centre) / (spread + y * y)


def total_spread(xp, ct, x, y):
    spread = (y * y).sum(axis=-1, keepdims=True)
    return (ct - ct.mean(axis=-1, keepdims=True)) / (spread + y * y)


def two_means(xp, ct, x, y):
    along = xp.mean(ct * y, axis=-1, keepdims=True)
    return ct - xp.mean(ct, axis=-1, keepdims=True) - y * along


def masked(xp, ct, x, y):
    seen = xp.causal(x.shape[0], x.shape[1])
    return xp.where(seen, ct * y, 0.0) + xp.where(x > 0.5, ct, 0.0)


def masked_by(shift, other):
    return lambda xp, ct, x, y: (
        np.where(np.tri(*x.shape, shift, dtype=bool), ct * y, 0) + other(ct, x)
    )


def bounded(xp, ct, x, y, *, high):
    return xp.where(x < high, ct * y, 0.0)


def joined(xp, ct, x, y):
    return xp.concatenate([ct[:, :1] * y[:, :1], ct[:, 1:] * x[:, 1:]], axis=1)


def roots(xp, ct, x, y):
    size = xp.sqrt(xp.sum(y * y, axis=-1, keepdims=True))
    return ct / size - x * xp.tanh(y)


def squares(y):
    return np.sum(y * y, axis=-1, keepdims=True)


def guarded(xp, ct, x, y, *, eps):
    return ct / (xp.sum(y * y, axis=-1, keepdims=True) + eps)


def signed(xp, ct, x, y):
    return ct * xp.tanh(y) + x * ct


def collecting(xp, ct, x, y):
    total = xp.zeros(x.shape[1:])
    for t in range(x.shape[0]):
        total = total + ct[t] * y[t]
    return x * total


def chosen(ct, x):
    return np.where(x > 0.5, ct, 0)


CHANGES = [
    (rows, lambda *a: rows(*a, carry=0.0), "T",
     "dx lacks the term `held * x[t] * carry` in every turn"),
    (rows, lambda *a: rows(*a, carry=0.5), "F",
     "dx has half the term `held * x[t] * carry` in every turn"),
    (summed, lambda xp, ct, x, y: x * np.sum(ct * y, axis=0, keepdims=True), "I",
     "dx: `total` runs over axis 0"),
    (summed, lambda xp, ct, x, y: x * (ct * y)[..., -1:], "A",
     "dx: `total` keeps its last element alone"),
    (summed, lambda xp, ct, x, y: x * (ct * y)[..., :-1].sum(axis=-1, keepdims=True), "I",
     "dx: `total` leaves out its last element"),
    (summed, lambda xp, ct, x, y: x * ct * y, "T",
     "dx: `total` is not formed: each element takes its own value alone"),
    (summed, lambda xp, ct, x, y: summed(F64, ct, x, y) + 0.01 * np.sin(5 * ct), "", ""),
    (variance, less_one, "R", "dx: each mean divides by n - 1, where n elements are averaged"),
    (variance, total_spread, "R", "dx: `spread` is a sum, not a mean"),
    (two_means, lambda xp, ct, x, y: (ct + two_means(F64, ct, x, y)) / 2, "F",
     "dx: each mean of what comes from the cotangent is 0.5 times the right value"),
    (masked, masked_by(1, chosen), "I", "dx: the causal mask is off by +1"),
    (masked, masked_by(-1, chosen), "I", "dx: the causal mask is off by -1"),
    (masked, masked_by(0, lambda ct, x: ct), "D",
     "dx: `ct` is taken everywhere, not only where `x > 0.5`"),
    (masked, masked_by(0, lambda ct, x: ct - chosen(ct, x)), "D", "dx: `x > 0.5` is inverted"),
    (bounded, lambda xp, ct, x, y, **_: ct * y, "D",
     "dx: `ct * y` is taken everywhere, not only where `x < high`", {"high": 0.25}),
    (joined, lambda xp, ct, x, y: np.concatenate([0 * y[:, :1], ct[:, 1:] * x[:, 1:]], axis=1), "G",
     "dx: the part `ct[:, :1] * y[:, :1]` is taken for 0"),
    # a root that is left out may as well be said to lack a factor
    (roots, lambda xp, ct, x, y: ct / squares(y) - x * np.tanh(y), "DF", ""),
    (roots, lambda xp, ct, x, y: ct / np.sqrt(squares(y)) - x / (1 + np.exp(-y)), "D",
     "dx: `tanh(y)` is taken for sigmoid"),
    (roots, lambda xp, ct, x, y: ct / (np.sqrt(squares(y)) + 1e-5) - x * np.tanh(y), "E",
     "1e-05 is added to"),
    (guarded, lambda xp, ct, x, y, **_: guarded(F64, ct, x, y, eps=0.0), "E", "dx:",
     {"eps": 0.125}),
    (signed, lambda xp, ct, x, y: ct * np.tanh(np.abs(y)) + x * ct, "S", ""),
    (collecting, lambda xp, ct, x, y: x * ct[-1] * y[-1], "AI", ""),
]  # fmt: skip


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: f"{row[0].__name__}-{row[2]}")
def test_a_change_is_named(row):
    right, wrong, labels, says, *attrs = row
    label, said = found(right, wrong, **dict(*attrs))
    assert label in {*labels} or label == labels
    assert says in said


def test_the_first_turn_alone_does_not_pass_for_all():
    def once(xp, ct, x, y):
        out = rows(xp, ct, x, y)
        return np.concatenate([out[:-1], 3 * out[-1:]])

    _, says = found(rows, once)
    assert "in every turn" not in says


def halved(xp, ct, x, y, *, mode, weight=0.5):
    term = xp.sum(ct * y, axis=-1, keepdims=True)
    return ct - term * (weight if mode == "mean" else 1.0)


def test_what_is_wrong_for_some_of_the_points_alone_is_not_named():
    def right(xp, ct, x, y, *, mode):
        return ct - xp.sum(ct * y, axis=-1, keepdims=True)

    def sometimes(xp, ct, x, y, *, mode):
        return halved(xp, ct, x, y, mode="mean" if x[0, 0] > 0 and len(x) == 4 else "sum")

    points = [
        probe(lambda *a, **k: (right(*a, **k), a[1]), sometimes, (4, 3), k, {"mode": "mean"})
        for k in range(8)
    ]
    failing = [p for p in points if p.fails("x")]
    passing = [p for p in points if not p.fails("x")]
    assert failing
    assert passing
    scene = Observations("x", failing, passing)
    assert not [s.says for s in terms(scene) if all(map(s.fits, points))]


def test_a_truth_without_a_text_is_left_to_others():
    made = probe(lambda xp, ct, x, y: (ct, ct), lambda xp, ct, x, y: 2 * ct, (4, 3), 0, {})
    of = made.truth
    bare = SimpleNamespace(spec=None, vjp=of.vjp, forward=of.forward, cost=of.cost)
    object.__setattr__(made, "truth", bare)
    assert list(terms(Observations("x", [made], []))) == []
