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


def test_what_a_loop_hands_on_is_lost():
    label, says = found(rows, lambda *a: rows(*a, carry=0.0))
    assert (label, says) == ("T", "dx lacks the term `held * x[t] * carry` in every turn")


def test_what_a_loop_hands_on_is_halved():
    label, says = found(rows, lambda *a: rows(*a, carry=0.5))
    assert (label, says) == ("F", "dx has half the term `held * x[t] * carry` in every turn")


def test_the_first_turn_alone_does_not_pass_for_all():
    def once(xp, ct, x, y):
        out = rows(xp, ct, x, y)
        return np.concatenate([out[:-1], 3 * out[-1:]])

    _, says = found(rows, once)
    assert "in every turn" not in says


def summed(xp, ct, x, y):
    total = xp.sum(ct * y, axis=-1, keepdims=True)
    return x * total


def test_a_sum_runs_over_another_axis():
    def other(xp, ct, x, y):
        return x * np.sum(ct * y, axis=0, keepdims=True)

    assert found(summed, other) == ("I", "dx: `total` runs over axis 0")


def test_a_sum_keeps_its_last_element():
    def last(xp, ct, x, y):
        return x * (ct * y)[..., -1:]

    assert found(summed, last) == ("A", "dx: `total` keeps its last element alone")


def test_a_sum_leaves_out_its_last_element():
    def short(xp, ct, x, y):
        return x * (ct * y)[..., :-1].sum(axis=-1, keepdims=True)

    assert found(summed, short) == ("I", "dx: `total` leaves out its last element")


def test_an_element_takes_its_own_value_alone():
    label, says = found(summed, lambda xp, ct, x, y: x * ct * y)
    assert (label, says) == (
        "T",
        "dx: `total` is not formed: each element takes its own value alone",
    )


def variance(xp, ct, x, y):
    spread = xp.mean(y * y, axis=-1, keepdims=True)
    centre = xp.mean(ct, axis=-1, keepdims=True)
    return (ct - centre) / (spread + y * y)


def test_all_means_are_counted_wrongly():
    def less_one(xp, ct, x, y):
        n = x.shape[-1]
        spread, centre = ((v.sum(axis=-1, keepdims=True) / (n - 1)) for v in (y * y, ct))
        return (ct - centre) / (spread + y * y)

    says = "dx: each mean divides by n - 1, where n elements are averaged"
    assert found(variance, less_one) == ("R", says)


def test_all_means_of_the_cotangent_are_halved():
    def right(xp, ct, x, y):
        along = xp.mean(ct * y, axis=-1, keepdims=True)
        return ct - xp.mean(ct, axis=-1, keepdims=True) - y * along

    def halved(xp, ct, x, y):
        return (ct + right(F64, ct, x, y)) / 2

    says = "dx: each mean of what comes from the cotangent is 0.5 times the right value"
    assert found(right, halved) == ("F", says)


def test_one_mean_inside_a_function_is_a_sum():
    def total(xp, ct, x, y):
        spread = (y * y).sum(axis=-1, keepdims=True)
        return (ct - ct.mean(axis=-1, keepdims=True)) / (spread + y * y)

    assert found(variance, total) == ("R", "dx: `spread` is a sum, not a mean")


def masked(xp, ct, x, y):
    seen = xp.causal(x.shape[0], x.shape[1])
    return xp.where(seen, ct * y, 0.0) + xp.where(x > 0.5, ct, 0.0)


@pytest.mark.parametrize(
    ("shift", "says"),
    [(1, "dx: the causal mask is off by +1"), (-1, "dx: the causal mask is off by -1")],
)
def test_a_mask_by_position_is_drawn_elsewhere(shift, says):
    def other(xp, ct, x, y):
        seen = np.tri(*x.shape, shift, dtype=bool)
        return np.where(seen, ct * y, 0) + np.where(x > 0.5, ct, 0)

    assert found(masked, other) == ("I", says)


def test_a_mask_by_value_is_left_out():
    def other(xp, ct, x, y):
        return np.where(np.tri(*x.shape, dtype=bool), ct * y, 0) + ct

    assert found(masked, other) == ("D", "dx: `ct` is taken everywhere, not only where `x > 0.5`")


def test_a_mask_by_value_is_inverted():
    def other(xp, ct, x, y):
        return np.where(np.tri(*x.shape, dtype=bool), ct * y, 0) + np.where(x > 0.5, 0, ct)

    assert found(masked, other) == ("D", "dx: `x > 0.5` is inverted")


def test_a_bound_that_is_an_attribute_is_ignored():
    def right(xp, ct, x, y, *, high):
        return xp.where(x < high, ct * y, 0.0)

    label, says = found(right, lambda xp, ct, x, y, **_: ct * y, high=0.25)
    assert (label, says) == ("D", "dx: `ct * y` is taken everywhere, not only where `x < high`")


def joined(xp, ct, x, y):
    return xp.concatenate([ct[:, :1] * y[:, :1], ct[:, 1:] * x[:, 1:]], axis=1)


def test_a_part_is_lost():
    def other(xp, ct, x, y):
        return np.concatenate([0 * y[:, :1], ct[:, 1:] * x[:, 1:]], axis=1)

    assert found(joined, other) == ("G", "dx: the part `ct[:, :1] * y[:, :1]` is taken for 0")


def roots(xp, ct, x, y):
    size = xp.sqrt(xp.sum(y * y, axis=-1, keepdims=True))
    return ct / size - x * xp.tanh(y)


def test_a_root_is_left_out():
    def other(xp, ct, x, y):
        return ct / np.sum(y * y, axis=-1, keepdims=True) - x * np.tanh(y)

    label, _ = found(roots, other)
    assert label in ("D", "F")  # it may as well be said to lack a factor


def test_a_function_is_another():
    def other(xp, ct, x, y):
        return ct / np.sqrt(np.sum(y * y, axis=-1, keepdims=True)) - x / (1 + np.exp(-y))

    assert found(roots, other) == ("D", "dx: `tanh(y)` is taken for sigmoid")


def test_an_eps_is_added_to_a_divisor():
    def other(xp, ct, x, y):
        return ct / (np.sqrt(np.sum(y * y, axis=-1, keepdims=True)) + 1e-5) - x * np.tanh(y)

    label, says = found(roots, other)
    assert label == "E"
    assert "1e-05 is added to" in says


def test_an_attribute_called_eps_is_lost():
    def right(xp, ct, x, y, *, eps):
        return ct / (xp.sum(y * y, axis=-1, keepdims=True) + eps)

    label, says = found(right, lambda xp, ct, x, y, **_: right(xp, ct, x, y, eps=0.0), eps=0.125)
    assert (label, says.split(":")[0]) == ("E", "dx")


def test_a_sign_that_depends_on_the_data():
    def right(xp, ct, x, y):
        return ct * xp.tanh(y) + x * ct

    assert found(right, lambda xp, ct, x, y: ct * np.tanh(np.abs(y)) + x * ct)[0] == "S"


def test_a_product_that_collects_in_a_loop_is_overwritten():
    def right(xp, ct, x, y):
        total = xp.zeros(x.shape[1:])
        for t in range(x.shape[0]):
            total = total + ct[t] * y[t]
        return x * total

    assert found(right, lambda xp, ct, x, y: x * ct[-1] * y[-1])[0] in ("A", "I")


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


def test_noise_is_not_named():
    def other(xp, ct, x, y):
        return summed(F64, ct, x, y) + 0.01 * np.sin(5 * ct)

    assert found(summed, other) == ("", "")


def test_a_truth_without_a_text_is_left_to_others():
    made = probe(lambda xp, ct, x, y: (ct, ct), lambda xp, ct, x, y: 2 * ct, (4, 3), 0, {})
    of = made.truth
    bare = SimpleNamespace(spec=None, vjp=of.vjp, forward=of.forward, cost=of.cost)
    object.__setattr__(made, "truth", bare)
    assert list(terms(Observations("x", [made], []))) == []
