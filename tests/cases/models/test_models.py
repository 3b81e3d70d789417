"""What holds for every model: its fold is the true gradient, in every arithmetic and size."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.oracle import Oracle
from gradcheck.spec.program import Whole

CASES = SUITE.model_cases()
SMALL = [c for c in CASES if c.size.name != "large"]
REAL = {"mnist_fc": 397_510, "mnist_cnn": 9_098}  # the original's own size
SMALL_ALONE = {"quadratic", "svm"}


def oracle(case, whole):
    params = list(case.params.values())
    return Oracle(whole, params, {}, [(np.array(1.0),)], [None] * len(params)).gradient()


def agrees(got, want, rtol):
    """Element by element, within `rtol` of the tensor's largest."""
    return np.shape(got) == np.shape(want) and bool(
        np.all(np.abs(got - want) <= rtol * np.abs(want).max())
    )


class Off(Whole):
    """A fold whose gradient of one parameter is off by a part in 10^15."""

    def vjp(self, xp, ct, *params):
        first, *rest = super().vjp(xp, ct, *params)
        return first * (1 + xp.const("1e-15")), *rest


@pytest.mark.suite(keep=3, by="gradcheck run --model '*'")
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_50_digit_differences_certify_the_fold_and_reject_one_that_is_off(case):
    whole = Whole(case.program, case.inputs)
    exact = oracle(case, whole)
    assert exact is not None
    assert oracle(case, Off(case.program, case.inputs)) is None
    params = list(case.params.values())
    for xp, rtol in ((F64, 1e-13), (F32, 1e-5)):
        found = whole.vjp(xp, xp.asarray(1.0), *(xp.asarray(p) for p in params))
        for name, got, want in zip(case.params, found, exact, strict=True):
            assert got.dtype == xp.dtype
            assert agrees(got, want.reshape(got.shape), rtol), name


@pytest.mark.frameworks
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_pytorch_returns_the_same_loss_and_gradients(case, by_torch, fold):
    loss, gradients = by_torch(case)
    ours = case.program.forward(F64, case.given)[case.program.loss]
    assert abs(loss - ours) <= 1e-12 * abs(ours)
    cts = fold(case)
    for name, gradient in gradients.items():
        assert agrees(cts[name], gradient, 1e-12), name


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_values_stay_near_1_and_every_parameter_matters(case, fold):
    values, cts = case.program.forward(F64, case.given), fold(case)
    loss = values.pop(case.program.loss)
    for name, value in values.items():
        if value.dtype.kind == "f":
            masked = np.isneginf(value)
            assert np.abs(value[~masked]).max() < 100, name
            assert not masked.any() or case.program.readers[name][0].op.name == "softmax"
    for name in case.params:
        assert 1e-3 < np.abs(cts[name]).max() < 100 * max(loss, 1), name


@pytest.mark.parametrize("model", SUITE.models)
def test_sizes_are_what_their_names_say(model):
    tiny, *others = (c for c in CASES if c.spec.name == model)
    count = {c.size.name: sum(p.size for p in c.params.values()) for c in (tiny, *others)}
    assert tiny.size.name == "tiny"
    assert count["tiny"] <= 1200
    if model in REAL:
        assert count["large"] == REAL[model]
    elif model in SMALL_ALONE:
        assert "large" not in count
    else:
        assert 20_000 <= count["large"] <= 100_000


@pytest.mark.frameworks
def test_every_model_has_a_module_in_pytorch():
    pytest.importorskip("torch")
    from gradcheck_cases.peers.torch.models import MODULES

    assert set(MODULES) == set(SUITE.models)
