"""One stage's judgement: its operator's VJP at the reference's own values and cotangents."""

import functools
from dataclasses import replace

import gradcheck_cases
import numpy as np
import pytest
from gradcheck_cases import SUITE, activation, convolution

from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.stage import StageTruth, _draw_cotangent, judge_stage, tie_bounds
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.narrow import TYPES, narrower, short
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.fault import PLACES, narrowed
from gradcheck.spec.program import Stage

CASE = next(c for c in gradcheck_cases.SUITE.model_cases(["gpt2"]) if c.size.name == "tiny")
TRUTH = ModelTruth(CASE)
NARROW = [(dtype, narrow) for dtype in ("float64", "float32") for narrow in narrower(dtype)]


def judged(name, change, dtype="float64"):
    """The finding on one stage whose gradients are changed."""
    xp = FLOATS[dtype]

    def vjp(stage, cts, values):
        return tuple(change([np.array(g) for g in stage.vjp(xp, cts, values)], values))

    return judge_stage(TRUTH.at(dtype).stage(CASE.program.stage(name)), vjp, dtype)


def kept(found, values):
    return found


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [s.name for s in CASE.program.stages if s.op.name != "encoder"])
def test_every_stage_passes_and_a_thousandth_off_in_any_gradient_fails(name, dtype):
    assert judged(name, kept, dtype).verdict is Verdict.PASS
    stage = CASE.program.stage(name)
    for index, read in enumerate(stage.reads):
        if StageTruth(TRUTH, stage).primals[index].dtype.kind != "f":
            continue

        def off(found, values, index=index):
            found[index] = found[index] * found[index].dtype.type(1.001)
            return found

        found = judged(name, off, dtype)
        assert found.verdict is Verdict.FAIL
        assert found.part is Part.STAGE
        assert found.top.tensor == read
        assert read in found.reason


def test_a_stale_value_fails_at_the_stage_that_reads_it():
    stage = CASE.program.stage("h.1.ln_2")

    def vjp(stage, cts, values):
        stale = {**values, stage.reads[0]: values[other]}
        return stage.vjp(FLOATS["float64"], cts, stale)

    shape = TRUTH.values64[stage.reads[0]].shape
    other = next(n for n, v in TRUTH.values64.items() if v.shape == shape and n != stage.reads[0])
    assert judge_stage(TRUTH.stage(stage), vjp, "float64").verdict is Verdict.FAIL


def test_the_reference_cotangent_alone_would_miss_what_only_another_shows():
    # Rows whose cotangent is zero in this model: a defect there needs the random one.
    stage = CASE.program.stage("h.0.mlp.gelu")
    known = StageTruth(TRUTH, stage)
    assert known.names == ("reference", "random")
    assert np.abs(known.cts[1][0]).min() >= 0.5


@pytest.mark.parametrize("few", [(), (2,)])
def test_every_narrower_type_would_round_a_random_cotangent(few):
    """By nearly as much as it rounds anything: one that it holds would show no rounding."""
    for name in map(str, range(8)):
        drawn = _draw_cotangent(CASE, name, 0, few)
        for narrow in TYPES:
            off = np.max(np.abs(narrow.rounded(drawn) - drawn) / np.abs(drawn))
            assert off >= 0.45 * 2.0**-narrow.bits, narrow.name


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("dtype", "narrow"), NARROW, ids=str)
def test_a_stage_that_computes_in_a_narrower_type_fails(dtype, narrow, place):
    xp, wrong = FLOATS[dtype], narrowed(place, narrow)
    for name in ("h.0.ln_1", "h.0.attn", "h.1.mlp.fc", "h.1.mlp.gelu", "unembed"):
        found = judge_stage(
            TRUTH.at(dtype).stage(CASE.program.stage(name)), lambda *asked: wrong(xp, *asked), dtype
        )
        assert found.verdict is Verdict.FAIL, name


def test_each_dtype_is_asked_at_numbers_that_fill_its_mantissa():
    stage = CASE.program.stage("h.1.mlp.fc")
    wide, single = (TRUTH.at(dtype).stage(stage) for dtype in ("float64", "float32"))
    for known, bits in ((wide, 53), (single, 24)):
        arrays = [*known.primals, *(part for ct in known.cts for part in ct)]
        for array in arrays:
            assert np.array_equal(array, short(array, bits))
            assert not np.array_equal(array, short(array, bits - 1))


def test_a_vjp_that_is_wrong_in_float64_alone_gives_no_truth_in_float32():
    """Its 50 digits are right: they are asked again at the numbers of float32."""
    stage = CASE.program.stage("h.0.mlp.gelu")

    @functools.wraps(stage.op.vjp)
    def vjp(xp, *args, **attrs):
        found = stage.op.vjp(xp, *args, **attrs)
        return found * 2 if xp is FLOATS["float64"] else found

    spoilt = replace(stage, op=replace(stage.op, vjp=vjp))
    wide = StageTruth(TRUTH, spoilt)
    beside = StageTruth(TRUTH.at("float32"), spoilt, wide)
    sound = TRUTH.at("float32").stage(stage)
    np.testing.assert_allclose(beside.gradients[0], sound.gradients[0], rtol=1e-12)
    assert not np.allclose(beside.own[0], sound.gradients[0])


def test_a_shape_of_another_kind_is_one_line():
    found = judged("ln_f", lambda found, values: [found[0].T, *found[1:]])
    assert found.verdict is Verdict.FAIL
    assert "shape" in found.reason


def test_the_number_of_gradients_is_part_of_the_contract():
    found = judged("ln_f", lambda found, values: found[:2])
    assert found.verdict is Verdict.ERROR
    assert found.name == "ln_f"


# ── a sum that cancels ───────────────────────────────────────────────────────────────────────

GEMMA = next(c for c in gradcheck_cases.SUITE.model_cases(["gemma"]) if c.size.name == "uneven")


def cancelling(stage):
    """A truth in which the scale's gradient is next to nothing for the random cotangent."""
    truth = ModelTruth(GEMMA)
    known = truth.stage(stage)
    x, (ct,) = known.primals[0], known.cts[1]
    at = np.unravel_index(np.argmax(np.abs(x)), x.shape)
    ct[at] -= (np.sum(x * ct) - 5e-6 * np.sum(np.abs(x * ct))) / x[at]
    return truth


def scaled(factor, row):
    """The finding on that stage; `factor` on its scale's gradient for one of its cotangents."""
    xp, stage = FLOATS["float32"], GEMMA.program.stage("layers.0.q_scale")
    truth = cancelling(stage)
    cts = truth.at("float32").stage(stage).typed("float32")[row][0]

    def vjp(stage, given, values):
        dx, ds = stage.vjp(xp, given, values)
        return dx, ds * xp.dtype.type(factor if np.array_equal(given[0], cts) else 1)

    return judge_stage(truth.at("float32").stage(stage), vjp, "float32")


def test_what_cancels_under_one_cotangent_is_judged_by_the_other():
    right = scaled(1, 0)
    assert right.verdict is Verdict.PASS
    assert right.unresolved == 1
    assert scaled(1.01, 0).verdict is Verdict.FAIL


def test_what_cancels_is_wrong_all_the_same_beyond_what_rounding_may_cost():
    assert scaled(3, 1).verdict is Verdict.FAIL


(TIED_CASE,) = SUITE.model_cases(["mnist_cnn"], sizes=["blank"])
TIED_TRUTH = ModelTruth(TIED_CASE)
POOLS = ["conv1.pool", "conv2.pool"]


def judged_ties(name, change, dtype="float64"):
    """The finding on a pool whose gradient is `change(windows, ct, own)`, [c, p, q, kl]."""

    def vjp(stage, cts, values):
        x, ct = values[stage.reads[0]], cts[0]
        blocks = x.reshape(*x.shape[:-2], x.shape[-2] // 2, 2, x.shape[-1] // 2, 2)
        windows = np.swapaxes(blocks, -3, -2).reshape(*ct.shape, 4)
        shares = change(windows, ct[..., None]).astype(x.dtype)
        back = np.swapaxes(shares.reshape(*ct.shape, 2, 2), -3, -2)
        return (back.reshape(x.shape),)

    return judge_stage(TIED_TRUTH.at(dtype).stage(TIED_CASE.program.stage(name)), vjp, dtype)


def nth_largest(windows, n):
    """True at the n-th of the largest elements of each window."""
    largest = windows == windows.max(axis=-1, keepdims=True)
    place = n % largest.sum(axis=-1, keepdims=True)
    return largest & (np.cumsum(largest, axis=-1) == place + 1)


def test_every_pool_has_ties_in_some_windows_and_none_in_others():
    for name in POOLS:
        (on,) = TIED_TRUTH.stage(TIED_CASE.program.stage(name)).on_kink
        assert 0 < on.sum() < on.size


# ── what no convention returns ───────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_equal_elements_cannot_get_the_whole_gradient(name, dtype):
    found = judged_ties(name, lambda w, ct: ct * (w == w.max(axis=-1, keepdims=True)), dtype)
    assert found.verdict is Verdict.FAIL
    assert "whatever the convention" in found.reason


@pytest.mark.parametrize("name", POOLS)
def test_a_tied_window_cannot_drop_its_gradient(name):
    def alone(windows, ct):
        first = nth_largest(windows, 0)
        largest = windows == windows.max(axis=-1, keepdims=True)
        return ct * (first & (largest.sum(axis=-1, keepdims=True) == 1))

    found = judged_ties(name, alone)
    assert found.verdict is Verdict.FAIL
    assert "whatever the convention" in found.reason


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("factor", [-1.0, 1.001, 0.999, 2.0])
def test_the_share_of_a_tied_element_has_its_size_and_sign(name, factor):
    def scaled(windows, ct):
        largest = windows == windows.max(axis=-1, keepdims=True)
        tie = largest.sum(axis=-1, keepdims=True) > 1
        return ct * nth_largest(windows, 0) * np.where(tie, factor, 1.0)

    assert judged_ties(name, scaled).verdict is Verdict.FAIL


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_fails_on_a_kink_too(wrong):
    def broken(windows, ct):
        out = ct * nth_largest(windows, 0)
        largest = windows == windows.max(axis=-1, keepdims=True)
        ties = np.argwhere(largest & (largest.sum(axis=-1, keepdims=True) > 1))
        out[tuple(ties[0])] = wrong
        return out

    assert judged_ties("conv1.pool", broken).verdict is Verdict.FAIL


def test_elements_off_the_kink_are_judged_as_ever():
    def moved(windows, ct):
        tie = (windows == windows.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True) > 1
        return ct * np.where(tie, nth_largest(windows, 0), np.roll(nth_largest(windows, 0), 1, -1))

    found = judged_ties("conv1.pool", moved)
    assert found.verdict is Verdict.FAIL
    assert "outside the tolerance" in found.reason


# ── what conventions return ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", list(FLOATS))
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("place", [0, 1, 2, -1])
def test_any_one_of_the_equal_elements_may_get_it(name, place, dtype):
    found = judged_ties(name, lambda w, ct: ct * nth_largest(w, place), dtype)
    assert found.verdict is Verdict.PASS
    assert found.kinked > 0


@pytest.mark.parametrize("dtype", list(FLOATS))
@pytest.mark.parametrize("name", POOLS)
def test_equal_elements_may_share_it(name, dtype):
    def shared(windows, ct):
        largest = windows == windows.max(axis=-1, keepdims=True)
        return ct * (largest / largest.sum(axis=-1, keepdims=True))

    assert judged_ties(name, shared, dtype).verdict is Verdict.PASS


def test_a_corner_allows_what_lies_between_its_slopes():
    stage = Stage(name="act", op=activation.relu, reads=("x",), writes="y")
    x, ct = np.array([0.0, 1.0, 0.0, -2.0]), np.array([3.0, 5.0, -7.0, 9.0])
    found = tie_bounds(stage, [x], [(ct,)], 0, x == 0)
    assert found.interval.which.tolist() == [[True, False, True, False]]
    assert found.interval.low.tolist() == [[0.0, 0.0, -7.0, 0.0]]
    assert found.interval.high.tolist() == [[3.0, 0.0, 0.0, 0.0]]
    assert found.total is None


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("side", [2, 4])
def test_the_points_beside_a_tie_give_each_element_its_turn(side):
    stage = Stage(
        name="pool",
        op=convolution.max_pool_2d,
        reads=("x",),
        writes="y",
        attrs={"kernel": (side, side), "stride": (side, side)},
    )
    x, ct = np.ones((1, side, 4 * side)), np.array([[[2.0, -3.0, 5.0, 7.0]]])
    x[0, 0, -side:] = 0.0
    found = tie_bounds(stage, [x], [(ct,)], 0, x == 1)
    columns = np.repeat(ct[0, 0], side)
    ends = np.where(x[0] == 1, columns, 0.0).reshape(1, -1)
    assert np.array_equal(found.interval.high, np.maximum(ends, 0))
    assert np.array_equal(found.interval.low, np.minimum(ends, 0))
    assert found.total.tolist() == [11.0]
