"""The verdict on every tensor: what fails, what passes, and what is said to be invisible."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.compare import ERROR_BAR_FACTOR
from gradcheck.judge.directional_check import (
    MAX_VISIBLE,
    MIN_ALIGNMENT,
    DirectionalCheck,
    DirectionalResult,
    common_factor,
    miss_of,
)
from gradcheck.judge.locate import WrongElement
from gradcheck.judge.loss import judge_tensors
from gradcheck.numerics.directional_slope import Sides, Slope, TensorView
from gradcheck.numerics.line_function import Given, Heading, Scalar, unit_of
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def judged(net, gradients, search=400, seed=0):
    found = judge_tensors(net.loss, net.params, gradients, seed=(seed,), search=search)
    return {f.name: f for f in found}


def spoilt(net, change, name="w1"):
    gradients = net.gradients()
    gradients[name] = change(gradients[name]).astype(gradients[name].dtype)
    return gradients


# --- what the loss owes -------------------------------------------------------------------------


def alone(loss, x=None, g=None):
    x = np.array([1.0, 2.0]) if x is None else x
    (found,) = judge_tensors(lambda: loss(x), {"x": x}, {"x": np.ones(2) if g is None else g})
    return found


def counting():
    calls = []

    def loss(x):
        calls.append(0)
        return x.sum() + 1e-13 * len(calls)

    return loss


def writing(x):
    x += 1
    return x.sum()


@pytest.mark.parametrize(
    ("loss", "verdict", "says"),
    [
        (lambda x: np.nan, OPEN, "loss is nan here: it has no derivative"),
        (lambda x: np.inf, OPEN, "loss is inf here"),
        (lambda x: 1 / 0, Verdict.ERROR, "loss raised ZeroDivisionError: division by zero"),
        (lambda x: x, Verdict.ERROR, "loss raised TypeError"),
        (lambda x: "no", Verdict.ERROR, "loss raised ValueError"),
        (counting(), Verdict.ERROR, "loss is not deterministic: it was 3.0"),
        (writing, Verdict.ERROR, "loss writes into x"),
    ],
)
def test_a_loss_that_cannot_be_differenced_is_one_clear_line(loss, verdict, says):
    found = alone(loss)
    assert (found.name, found.part, found.verdict) == ("loss", Part.VALUE, verdict)
    assert found.reason.startswith(says)


def test_a_loss_that_writes_into_the_gradients_is_caught():
    x, g = np.array([1.0, 2.0]), np.ones(2)

    def loss():
        g[:] = x  # a backward pass that refills its buffers
        return 0.5 * (x**2).sum()

    g[:] = x
    (found,) = judge_tensors(loss, {"x": x}, {"x": g})
    assert found.verdict is Verdict.ERROR
    assert found.reason == "the loss writes into the gradient of x: hand over a copy of it"
    assert x.tolist() == [1, 2]


def test_ctrl_c_leaves_the_tensors_as_they_were(network):
    net = network(20, 30, 4)
    before = {n: p.tobytes() for n, p in net.params.items()}

    def loss():
        if net.forwards == 9:
            raise KeyboardInterrupt
        return net.loss()

    with pytest.raises(KeyboardInterrupt):
        judge_tensors(loss, net.params, net.gradients())
    assert {n: p.tobytes() for n, p in net.params.items()} == before


# --- the form of a gradient ---------------------------------------------------------------------


def test_a_missing_gradient_a_finding_and_an_empty_tensor_leave_the_rest_intact(network):
    net = network(20, 30, 4)
    net.params |= {"empty": np.zeros((0, 3)), "step": np.array(7)}
    gradients = net.gradients() | {"empty": np.zeros((0, 3)), "step": None}
    wrong = Finding(name="w1", verdict=FAIL, reason="wrong shape")
    gradients["w1"] = wrong
    del gradients["b0"]
    found = judged(net, gradients)
    assert list(found) == ["w0", "b0", "w1", "b1", "empty"]
    assert [f.verdict for f in found.values()] == [PASS, Verdict.MISSING, FAIL, PASS, PASS]
    assert found["w1"] is wrong
    assert found["b0"].reason == "no gradient for b0: give zeros where it is zero"
    assert found["empty"].reason.startswith("it has no elements")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_fails_and_says_what_should_be_there(network, value):
    net = network(20, 30, 4)
    right = net.gradients()["w1"][2, 5]

    def change(g):
        g[2, 5] = g[3, 1] = value
        return g

    found = judged(net, spoilt(net, change))["w1"]
    assert (found.verdict, found.failed) == (FAIL, 2)
    assert found.reason == "2 of 120 elements are not finite"
    assert found.worst_index == (2, 5)
    assert found.want == pytest.approx(right, rel=1e-6)
    assert np.array_equal(found.got, value, equal_nan=True)


def test_a_parameter_that_is_not_finite_is_inconclusive(network):
    net = network(20, 30, 4)
    net.params["unused"] = np.array([1.0, np.nan])
    found = judged(net, net.gradients() | {"unused": np.zeros(2)})["unused"]
    assert found.verdict is OPEN
    assert "not finite" in found.reason


# --- wrong numbers ------------------------------------------------------------------------------

WHOLE = {
    "1e-6 too much": lambda g: g * (1 + 1e-6),
    "zero": lambda g: 0 * g,
    "negated": lambda g: -g,
    "doubled": lambda g: 2 * g,
    "reversed": lambda g: g[::-1],
    "offset": lambda g: g + 1e-3 * np.abs(g).mean(),
}


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("tensor", ["w0", "b0", "w2"])
def test_a_tensor_that_is_wrong_as_a_whole_fails_alone(network, name, tensor, relu):
    net = network(40, 60, 50, 5, relu=relu)
    found = judged(net, spoilt(net, WHOLE[name], tensor), search=0)
    assert {n for n, f in found.items() if f.verdict is not PASS} == {tensor}
    assert found[tensor].verdict is FAIL
    assert found[tensor].error > found[tensor].bound


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "name", [name for name in WHOLE if name not in ("1e-6 too much", "offset")]
)
def test_in_float32_too(network, name):
    net = network(40, 60, 50, 5, dtype="float32")
    found = judged(net, spoilt(net, WHOLE[name], "w1"), search=0)
    assert {n for n, f in found.items() if f.verdict is not PASS} == {"w1"}
    assert found["w1"].verdict is FAIL


def test_a_factor_is_called_a_factor(network):
    net = network(40, 60, 50, 5)
    found = judged(net, spoilt(net, lambda g: 1.25 * g))["w1"]
    assert found.reason.endswith("the whole of it is 1.25 times the slope of the loss")
    assert found.failed == 3000
    assert found.got == pytest.approx(1.25 * found.want, rel=1e-6)
    assert len(found.worst_index) == 2


def test_a_gradient_of_zero_is_called_so(network):
    net = network(40, 60, 50, 5)
    found = judged(net, spoilt(net, lambda g: 0 * g))["w1"]
    assert found.reason == "the gradient is zero, but the loss depends on w1"
    assert (found.verdict, found.failed) == (FAIL, 3000)


def test_a_loss_that_reads_another_copy_is_told_so(network):
    net = network(40, 60, 50, 5)
    gradients, copies = net.gradients(), {n: p.copy() for n, p in net.params.items()}
    found = judge_tensors(net.loss, copies, gradients)
    assert {f.verdict for f in found} == {FAIL}
    assert found[2].reason == (
        "the loss does not depend on w1, but the gradient is not zero; does the loss read another "
        "copy of it?"
    )


def test_one_wrong_element_is_found_by_its_index(network):
    net = network(40, 60, 50, 5)

    def change(g):
        g[31, 17] *= 1.1
        return g

    found = judged(net, spoilt(net, change))["w1"]
    assert found.verdict is FAIL
    assert found.reason == "1 of 3,000 elements is wrong"
    assert (found.worst_index, found.failed) == ((31, 17), 1)
    assert found.want == pytest.approx(net.gradients()["w1"][31, 17], rel=1e-6)
    assert abs(found.want - net.gradients()["w1"][31, 17]) <= 2 * found.error_bar
    assert found.evaluations < 250


def test_without_a_search_the_tensor_still_fails(network):
    net = network(40, 60, 50, 5)

    def change(g):
        g[31, 17] *= 1.1
        return g

    found = judged(net, spoilt(net, change), search=0)["w1"]
    assert (found.verdict, found.worst_index) == (FAIL, ())
    assert "along random directions it is off by" in found.reason


def test_two_directions_that_fail_are_enough_and_one_is_not(network):
    """A third is asked only where the two do not agree."""
    net = network(40, 60, 50, 5)
    tensor, loss = net.params["w1"], Scalar(net.loss)

    def judge(gradient):
        given = Given.of(gradient)
        site = TensorView(loss, loss(), tensor, given, unit_of(tensor))
        projection = DirectionalCheck("w1", site, ("directions",))
        return projection.judge(0).verdict, len(projection.results)

    right = net.gradients()["w1"]
    assert judge(right) == (PASS, 1)
    assert judge(1.5 * right) == (FAIL, 2)


@pytest.mark.parametrize(
    ("dtype", "zero", "most"),
    [
        ("float64", False, 1e-3 * 4),
        ("float32", False, 0.1 * 4),
        ("float64", True, 1e-8 * 3),
        ("float32", True, 1e-4 * 3),
    ],
)
def test_what_must_be_visible_follows_the_gradient_or_the_loss_where_that_is_zero(
    dtype, zero, most
):
    def sees(visible, ok=True, alarm=np.inf, before=()):
        ray = SimpleNamespace(unit=np.inf)
        site = SimpleNamespace(dtype=np.dtype(dtype), base=-3.0, ray=lambda heading: ray)
        projection = DirectionalCheck(
            "x", site, (), results=[SimpleNamespace(alarm=a) for a in before]
        )
        return projection._sees(
            SimpleNamespace(
                ok=ok, zero=zero, product=-4.0, visible=visible, alarm=alarm, heading=None
            )
        )

    assert sees(most)
    assert not sees(1.01 * most)
    assert not sees(most, ok=False)
    assert not sees(most, alarm=0.99 * most)
    assert sees(most, alarm=most, before=[most, np.inf])
    assert not sees(most, before=[0.99 * most])


# --- right numbers ------------------------------------------------------------------------------


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_right_gradient_raises_no_alarm(network, dtype, relu, seed):
    net = network(50, 80, 60, 6, dtype=dtype, relu=relu, seed=seed)
    before = {n: p.tobytes() for n, p in net.params.items()}
    found = judged(net, net.gradients(), seed=seed)
    assert {f.verdict for f in found.values()} <= ({PASS} if dtype == "float64" else {PASS, OPEN})
    opened = sum(f.verdict is OPEN for f in found.values())
    assert opened <= (1 if relu else 0)
    assert {n: p.tobytes() for n, p in net.params.items()} == before


def test_a_smooth_loss_takes_six_forwards_per_tensor(network):
    net = network(50, 80, 60, 6)
    found = judged(net, net.gradients())
    assert {f.evaluations for f in found.values()} == {6}
    assert net.forwards == 2 + 6 * len(found)
    for f in found.values():
        assert f.smallest_visible_error < 1e-5
        assert f.bound <= 1e-7 * abs(f.got)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_said_to_be_visible_is(network, dtype):
    """An element that is wrong by a little more than is claimed never passes."""
    net = network(40, 60, 50, 5, dtype=dtype)
    least = judged(net, net.gradients())["w1"].smallest_visible_error
    g = net.gradients()["w1"]
    typical = float(np.sqrt(np.mean(g.astype(float) ** 2)))
    for i in (0, 1234, 2999):

        def change(g, i=i):
            g.reshape(-1)[i] += 1.2 * least * typical
            return g

        assert judged(net, spoilt(net, change), search=0)["w1"].verdict is not PASS


def test_what_is_not_visible_is_not_claimed_to_be(network):
    net = network(300, 400, 5, dtype="float32")
    found = judged(net, net.gradients())["w0"]
    assert found.verdict is PASS
    assert found.smallest_visible_error > 0.1  # 10% of one of 120,000 elements: below resolution


# --- zeros --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gradient_that_is_zero_passes_and_says_so(network, dtype):
    net = network(40, 60, 50, 5, dtype=dtype)
    net.params["unused"] = np.ones((30, 30), dtype)
    found = judged(net, net.gradients() | {"unused": np.zeros((30, 30), dtype)})["unused"]
    assert found.verdict is PASS
    assert found.reason.startswith("zero up to rounding: a slope of ")
    assert found.smallest_visible_error is None


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gradient_of_rounding_alone_passes(dtype):
    """A shift of all logits: what a softmax's backward leaves of it is the rounding of a sum."""
    draw = np.random.default_rng(0)
    logits, shift = draw.normal(size=(8, 20)).astype(dtype), np.full((8, 1), 0.5, dtype)

    def loss():
        z = logits + shift
        return np.mean(np.log(np.exp(z - z.max()).sum(axis=1)) + z.max() - z[:, 3])

    rounding = (draw.normal(size=(8, 1)) * np.finfo(dtype).eps / 8).astype(dtype)
    (found,) = judge_tensors(loss, {"shift": shift}, {"shift": rounding})
    assert found.verdict is PASS
    (found,) = judge_tensors(loss, {"shift": shift}, {"shift": np.full((8, 1), 1e-3, dtype)})
    assert found.verdict is FAIL


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gradient_for_an_unused_tensor_fails(network, dtype):
    net = network(40, 60, 50, 5, dtype=dtype)
    net.params["unused"] = np.ones((30, 30), dtype)
    wrong = np.full((30, 30), 1e-4, dtype)
    assert judged(net, net.gradients() | {"unused": wrong})["unused"].verdict is FAIL


def test_tensors_of_zeros_and_of_tiny_numbers_are_moved_by_steps_that_show(network):
    net = network(40, 60, 50, 5)
    net.params["b0"][:] = 0
    net.params["b1"][:] = 1e-9 * np.random.default_rng(0).normal(size=50)
    found = judged(net, net.gradients())
    assert {f.verdict for f in found.values()} == {PASS}
    found = judged(net, spoilt(net, lambda g: 1.01 * g, "b1"), search=0)
    assert found["b1"].verdict is FAIL


# --- kinks and blindness ------------------------------------------------------------------------


def absolute(slope):
    x = np.array([0.0, 0.5, -0.25])
    (found,) = judge_tensors(
        lambda: abs(x[0]) + 0.3 * x[1] ** 2, {"x": x}, {"x": np.array([slope, 0.3, 0.0])}
    )
    return found


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("slope", [-1.0, 0.0, 0.5, 1.0])
def test_a_subgradient_at_a_kink_never_fails(slope):
    found = absolute(slope)
    assert found.verdict is OPEN
    assert found.reason


def test_far_outside_a_kink_is_wrong_after_all():
    assert absolute(100.0).verdict is FAIL


def test_a_slope_outside_a_kinks_is_inconclusive_and_both_are_told():
    found = absolute(5.0)
    assert found.verdict is OPEN
    assert "the loss has a kink here: its slopes along a random direction are" in found.reason


def test_a_slight_kink_is_judged_by_the_slopes_on_both_sides():
    x = np.array([0.0, 0.5, -0.25])

    def judge(slope):
        return judge_tensors(
            lambda: 1e-3 * abs(x[0]) + (x[1:] ** 2).sum(),
            {"x": x},
            {"x": np.array([slope, 1.0, -0.5])},
        )[0]

    assert judge(0.4e-3).verdict is PASS
    assert judge(0.4e-3).reason == "the loss has a kink here: judged by the slopes on both sides"
    assert judge(0.1).verdict is FAIL


def test_a_loss_too_coarse_to_show_anything_is_inconclusive():
    x = np.linspace(-1, 1, 50)
    (found,) = judge_tensors(lambda: 1e9 + (x**2).sum(), {"x": x}, {"x": 2 * x})
    assert found.verdict is PASS  # the whole tensor still shows
    (found,) = judge_tensors(lambda: 1e14 + (x**2).sum(), {"x": x}, {"x": 2 * x})
    assert found.verdict is OPEN
    assert "even an error of the whole tensor would show only above" in found.reason
    assert found.unresolved == 50


def test_a_loss_without_a_slope_is_inconclusive():
    x = np.array([1.0, 2.0])

    def loss():
        if x.tolist() != [1.0, 2.0]:
            raise ValueError("only here")
        return 1.0

    (found,) = judge_tensors(loss, {"x": x}, {"x": np.ones(2)})
    assert found.verdict is OPEN
    assert "it raises ValueError: only here" in found.reason


# --- reproducibility, memory --------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers_and_names_alone_decide(network):
    net = network(20, 30, 4)
    first = judged(net, net.gradients())
    assert judged(net, net.gradients()) == first
    assert judged(net, net.gradients(), seed=1)["w0"].got != first["w0"].got
    (alone,) = judge_tensors(
        net.loss, {"w1": net.params["w1"]}, {"w1": net.gradients()["w1"]}, seed=(0,)
    )
    assert alone == first["w1"]


@pytest.mark.slow
def test_memory_is_one_copy_of_the_largest_tensor():
    draw = np.random.default_rng(0)
    params = {name: draw.normal(size=1_000_000) for name in "abc"}
    gradients = {name: 2 * p / p.size for name, p in params.items()}

    def loss():  # in place: it takes no memory of its own
        return sum(float(np.einsum("i,i->", p, p)) for p in params.values()) / 1_000_000

    gradients["b"][777_777] *= 1.5
    tracemalloc.start()
    try:
        found = judge_tensors(loss, params, gradients)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [f.verdict for f in found] == [PASS, FAIL, PASS]
    assert found[1].worst_index == (777_777,)
    assert peak <= params["a"].nbytes + 2**22


def strike(error=0.0, bar=1e-9, product=1.0, **changes):
    slope = Slope(value=error, bar=bar, noise=0.0, level=4)
    options = {"norm": 1.0, "allowed": 1e-10, "noise": 1e-16} | changes
    return DirectionalResult(Heading(0), product, slope=slope, **options)


@pytest.mark.parametrize(
    ("error", "bar", "ok", "wrong"),
    [
        (np.nan, 1e-9, False, False),
        (np.nan, np.inf, False, False),
        (1.0, np.inf, True, False),
        (3e-9, 1e-9, False, True),
        (-3e-9, 1e-9, False, True),
        (2.05e-9, 1e-9, True, False),
    ],
)
def test_what_fails_is_neither_nan_nor_unknown(error, bar, ok, wrong):
    assert (strike(error, bar).ok, strike(error, bar).wrong) == (ok, wrong)


@pytest.mark.parametrize(
    ("sides", "error", "ok", "wrong"),
    [
        ((-1.0, 1.0), 0.0, True, False),
        ((0.5, 1.0), 0.5, False, False),
        ((-3.0, -1.0), -1.0, False, False),
        ((50.0, 51.0), 50.0, False, True),
    ],
)
def test_on_a_kink_the_nearest_slope_counts(sides, error, ok, wrong):
    found = strike(7.0, sides=Sides(*sides, bar=1e-9))
    assert (found.error, found.ok, found.wrong) == (error, ok, wrong)
    assert found.visible >= sides[1] - sides[0]


def test_zero_is_measured_by_the_noise_of_the_loss():
    assert strike(norm=1e-15).zero
    assert not strike(norm=1e-14).zero
    assert strike(norm=0.0, noise=0.0).zero


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_error_bar_aimed_for_shows_an_error_of_the_whole_along_any_direction(dtype):
    for size in (10, 10**4, 10**5, 10**8):
        check = DirectionalCheck("x", SimpleNamespace(dtype=np.dtype(dtype), size=size), ())
        assert ERROR_BAR_FACTOR * check._target() <= MAX_VISIBLE[dtype] * MIN_ALIGNMENT


@pytest.mark.parametrize("error", [0.5, -0.5])
def test_a_finding_says_what_the_slope_is_beside_what_the_gradient_says(error):
    """The error is that of the slope: it is added to the gradient's product."""
    check = DirectionalCheck("x", SimpleNamespace(size=4), ())
    (miss,) = check.finding(strike(error, product=2.0)).worst
    assert (miss.got, miss.want, miss.error) == (2.0, 2.0 + error, 0.5)


def test_a_wrong_element_may_be_off_by_two_error_bars_and_twelve_roundings():
    place = SimpleNamespace(u=2.0**-20, dtype=np.dtype(np.float64), shape=(3, 4))
    miss = miss_of(place, WrongElement(index=6, got=1.0, want=-4.0, bar=0.125))
    assert (miss.index, miss.got, miss.want, miss.error) == ((1, 2), 1.0, -4.0, 5.0)
    assert (miss.bound, miss.error_bar) == (0.25 + 48 * 2.0**-20, 0.125)


@pytest.mark.parametrize("factor", [2.0, 0.5, -1.0, 1 + 1e-6])
def test_a_common_factor(factor):
    strikes = [strike(a / factor - a, product=a) for a in (0.3, -2.0)]
    assert common_factor(strikes) == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize(
    "strikes",
    [
        [strike(0.1, product=1.0), strike(0.1, product=2.0)],
        [strike(1e-9, product=1.0), strike(1e-9, product=1.0)],
        [strike(1.0, product=0.0), strike(2.0, product=0.0)],
        [strike(-1.0, product=1.0), strike(-1.0, product=1.0)],
    ],
)
def test_no_common_factor(strikes):
    assert common_factor(strikes) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_error_of_exactly_what_is_tolerated_is_none(sign):
    """Twice the error bar, and what the implementation may round."""
    more = np.nextafter(2.5, 3.0)
    at, beyond = (strike(sign * error, 1.0, allowed=0.5) for error in (2.5, more))
    assert (at.tolerance, at.ok, at.wrong, at.visible) == (2.5, True, False, 5.0)
    assert (beyond.ok, beyond.wrong) == (False, True)
