import numpy as np
import pytest
from gradcheck_cases.convolution import max_pool_2d_split_vjp

from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.model import ModelCase

SIZES = ["tiny", "uneven", "blank", "large"]


def forward(case):
    return case.program.forward(F64, case.given)


def split(stage, cts, values):
    """The operators' own VJPs, but ties in pooling windows share the gradient."""
    if stage.op.name != "max_pool_2d":
        return stage.vjp(F64, cts, values)
    return (max_pool_2d_split_vjp(F64, cts[0], values[stage.reads[0]], **stage.attrs),)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("model", ["mnist_fc", "mnist_cnn"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_activation_is_exactly_zero_before_its_relu(suite, model, seed):
    spec = suite.models[model]
    for size in spec.sizes:
        case = ModelCase(spec, spec.dialects[0], size, seed, "builtin")
        values = forward(case)
        before = [s.reads[0] for s in case.program.stages if s.op.name == "relu"]
        assert before
        for name in before:
            assert values[name].all()
            assert 0.1 < (values[name] > 0).mean() < 0.9


def test_some_units_are_dead(case):
    fc = case("mnist_fc", "large")
    assert not (forward(fc)["fc1"] > 0).any(axis=0).all()


# ── convolution and pooling ──────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", SIZES)
def test_ties_are_between_equals_so_that_the_loss_has_a_derivative(case, fold, size):
    cnn = case("mnist_cnn", size)
    first, shared = fold(cnn), fold(cnn, vjp=split)
    assert not np.array_equal(first["conv1.out"], shared["conv1.out"])
    for name in cnn.params:
        np.testing.assert_allclose(first[name], shared[name], rtol=1e-9, atol=1e-14)


def test_ties_between_different_patches_would_show(case):
    tiny = case("mnist_cnn", "tiny")
    given = {
        **tiny.given,
        "conv1.kernel": np.zeros_like(tiny.given["conv1.kernel"]),
        "conv1.bias": np.ones_like(tiny.given["conv1.bias"]),
    }
    values = tiny.program.forward(F64, given)
    first, shared = (
        tiny.program.backward(F64, values, np.array(1.0), vjp)["conv1.kernel"]
        for vjp in (None, split)
    )
    assert np.abs(first - shared).max() > 1e-3


def test_blank_windows_tie_above_zero(case):
    blank = case("mnist_cnn", "blank")
    biases = blank.given["conv1.bias"][:, 0, 0]
    assert biases.min() < 0 < biases.max()
    out = forward(blank)["conv1.out"][0]
    assert np.array_equal(out, np.broadcast_to(np.maximum(biases, 0)[:, None, None], out.shape))


@pytest.mark.suite(keep=3)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", SIZES)
def test_no_sum_of_a_kernels_taps_cancels(suite, size, seed):
    spec = suite.models["mnist_cnn"]
    found = next(s for s in spec.sizes if s.name == size)
    case = ModelCase(spec, spec.dialects[0], found, seed, "builtin")
    signs = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 9)).reshape(9, -1)
    signs = signs[:, signs.any(axis=0)]
    for name in ("conv1.kernel", "conv2.kernel"):
        assert (case.params[name].reshape(-1, 9) @ signs).all()


def test_a_blank_images_patches_tie_only_where_the_loss_has_a_derivative(suite):
    spec = suite.models["mnist_cnn"]
    blank = next(s for s in spec.sizes if s.name == "blank")
    case = ModelCase(spec, spec.dialects[0], blank, 17, "builtin")  # three taps summed up to zero
    assert ModelTruth(case).certified
