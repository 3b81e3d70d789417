"""What rounding may cost a model's gradients: enough for every right fold, and no more."""

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.judge.compare import ROUNDING_SAFETY
from gradcheck.judge.model_truth import ModelTruth, PropagatedRounding
from gradcheck.numerics.arithmetic import F32, F64

SMALL = [c for c in gradcheck_cases.SUITE.model_cases() if c.size.name == "tiny"]
U = 2.0**-24


def single(truth):
    """The gradients of a fold in float32."""
    given = truth.case.given.items()
    typed = {n: v.astype(np.float32) if v.dtype.kind == "f" else v for n, v in given}
    values = truth.program.forward(F32, typed)
    return truth.program.backward(F32, values, np.ones((), dtype=np.float32))


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_errors_of_a_float32_fold_are_allowed_with_room_to_spare(case):
    truth = ModelTruth(case)
    got = single(truth)
    for name in truth.floating:
        known = truth.gradient(name)
        gradient = np.ravel(got[name]).astype(np.float64)
        error = np.abs(gradient - known.value)
        allowed = U * known.rounding() + 1e-30
        assert np.all(error <= allowed), f"{name}: {np.max(error / allowed)}"


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_what_is_allowed_hides_no_error_of_a_hundredth(case):
    truth = ModelTruth(case)
    for name in truth.floating:
        known = truth.gradient(name)
        size = float(np.sqrt(np.mean(known.value**2)))
        if size > 0:
            width = ROUNDING_SAFETY * U * np.median(known.rounding())
            assert width <= 1e-2 * size, name


def test_it_is_the_same_every_time():
    case = SMALL[0]
    one, two = (PropagatedRounding(case.program, case.given) for _ in range(2))
    for name, cost in one.cts.items():
        np.testing.assert_array_equal(cost, two.cts[name])


def test_cancellation_inside_a_stage_is_carried_to_the_gradients():
    case = next(c for c in SMALL if c.spec.name == "gpt2")
    given = dict(case.given)
    calm = PropagatedRounding(case.program, given).cts["h.0.ln_1.w"]
    given["wpe"] = given["wpe"] + 1000.0  # every row far from its own mean
    assert np.median(PropagatedRounding(case.program, given).cts["h.0.ln_1.w"]) > 100 * np.median(
        calm
    )


def test_the_fold_of_float64_itself_stays_far_below_what_stands_for_one_u():
    truth = ModelTruth(SMALL[0])
    values = truth.program.forward(F64, truth.case.given)
    assert np.isfinite(values[truth.program.loss])
    for name in truth.floating:
        assert np.all(np.isfinite(truth.gradient(name).rounding()))


def test_a_gradient_that_nothing_reaches_is_exact_and_its_neighbours_are_not():
    case = next(c for c in SMALL if c.name == "baby_llama/square_error/tiny")
    cost = ModelTruth(case).gradient("tok_embeddings").rounding()
    unused = np.ones((case.attrs["vocab"], case.attrs["c"]), dtype=bool)
    unused[case.inputs["tokens"]] = False
    assert 0 < unused.sum() < unused.size
    assert np.array_equal(cost == 0, unused.ravel())
