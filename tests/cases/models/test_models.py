"""What holds for every model: its fold is the true gradient, and it is the model of its original.

That a gradient is right wherever a size draws it is judged by `gradcheck run --model '*'` in 50
digits, and against PyTorch's modules below.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.models.baby_llama import EPS

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.numerics.operator_oracle import Oracle
from gradcheck.spec.model import MARGIN
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


@pytest.mark.frameworks(rest=18)
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


# ── the originals ────────────────────────────────────────────────────────────────────────────

LLAMA_7B = {"vocab": 32000, "c": 4096, "heads": 32, "hidden": 11008, "layers": 32}
PARAMETERS = [
    ("gemma", {"vocab": 256_000, "c": 2048, "heads": 8, "d": 256, "hidden": 16384, "layers": 18},
     2_506_172_416),
    ("gpt2", {"vocab": 50257, "c": 768, "heads": 12, "layers": 12, "positions": 1024},
     124_439_808),
    ("llama", LLAMA_7B, 6_738_415_616),
    ("baby_llama", LLAMA_7B, 6_738_415_616),
]  # fmt: skip


@pytest.mark.parametrize(("model", "dims", "wanted"), PARAMETERS)
def test_it_has_as_many_parameters_as_the_published_model(model, dims, wanted):
    shapes = SimpleNamespace(
        normal=lambda *shape, scale: math.prod(shape),
        uniform=lambda low, high, *shape: math.prod(shape),
    )
    drawn = SUITE.models[model].build(**dims).params.values()
    assert sum(parameter(shapes) for parameter in drawn) == wanted


BLOCK = "layer_norm matmul packed_attention matmul add layer_norm matmul gelu matmul add"
BABY = (
    "get_rows rms_norm mul matmul reshape rope permute matmul reshape rope permute "
    "matmul transpose reshape mul_mat scale diag_mask_inf softmax mul_mat permute reshape matmul "
    "add rms_norm mul matmul matmul silu mul matmul add rms_norm mul matmul"
)
CROSS_ENTROPY = "softmax softmax add1 log mul sum_rows neg sum"
CALLS = [
    ("gpt2", "default", "tiny", set(),
     f"encoder {BLOCK} {BLOCK} layer_norm matmul softmax_cross_entropy mean"),
    ("llama", "default", "uneven", {"reshape"},
     "get_rows rms_norm matmul matmul matmul rope rope attention matmul add "
     "rms_norm matmul matmul swiglu matmul add rms_norm matmul softmax_cross_entropy"),
    ("gemma", "default", "uneven", {"reshape", "slice", "concat"},
     "input_embedding rms_norm matmul rope rope scale masked_attention masked_softmax "
     "mix_by_attention multi_head_matmul add rms_norm matmul packed_geglu matmul add "
     "rms_norm matmul softcap softmax cross_entropy"),
    *((model, loss, "uneven", set(), f"{BABY} {head}")
      for model in ("baby_llama", "baby_llama_lora")
      for loss, head in (("square_error", "sub sqr sum"), ("cross_entropy", CROSS_ENTROPY))),
]  # fmt: skip


@pytest.mark.parametrize(("model", "dialect", "size", "views", "calls"), CALLS)
def test_its_stages_are_the_originals_list_of_calls(model, dialect, size, views, calls):
    (case,) = SUITE.model_cases([model], [dialect], [size])
    ops = [s.op.name for s in case.program.stages if s.op.name not in views]
    assert " ".join(ops).replace("low_rank_linear", "matmul") == calls


def test_a_feed_forward_norm_reads_what_attention_wrote(case):
    stage = case("llama", "uneven").program.stage("layers.0.rms_ffn")
    assert stage.reads[0] == "layers.0.x_att"


def test_baby_llamas_norms_hold_the_eps_of_the_example(case):
    stages = case("baby_llama", "uneven").program.stages
    assert {s.all_attrs["eps"] for s in stages if s.op.name == "rms_norm"} == {EPS}


def test_gemmas_stages_hold_the_constants_of_gemma_cpp(case):
    attrs = {s.op.name: s.all_attrs for s in case("gemma", "uneven").program.stages}
    assert attrs["rms_norm"] == {"eps": 1e-6, "unit_offset": True}
    assert attrs["rope"]["half_split"]
    assert attrs["packed_geglu"] == {"form": "tanh", "root": "0.797884560804236"}
    assert attrs["softcap"] == {"cap": 30.0}


def test_a_scale_of_queries_that_float32_would_round_is_refused():
    with pytest.raises(ValueError, match=r"d = 6: use a power of 4"):
        SUITE.models["gemma"].build(d=6)


@pytest.mark.parametrize(("size", "context"), [("tiny", 3), ("uneven", 0), ("large", 8)])
def test_gemma_predicts_its_own_prompt_after_some_context_and_none(case, size, context):
    gemma = case("gemma", size)
    assert np.array_equal(gemma.inputs["next_tokens"], gemma.inputs["tokens"][1:])
    assert gemma.inputs["query_scale"] ** -2 == gemma.attrs["d"]
    assert gemma.attrs["context"] == context


TIED = {
    "gemma": "embedder_input_embedding",
    "gpt2": "wte",
    "quadratic": "x",
    "svm": "w",
}


@pytest.mark.parametrize("model", TIED)
def test_a_value_that_two_stages_read_is_tied(case, model):
    assert case(model, "tiny").program.tied == {TIED[model]}


def test_the_bias_of_gpt2s_keys_has_no_effect(case):
    gpt2, mp = case("gpt2", "tiny"), mp50()
    c = gpt2.attrs["c"]
    given = {k: mp.asarray(v) if v.dtype.kind == "f" else v for k, v in gpt2.given.items()}
    exact = gpt2.program.backward(mp, gpt2.program.forward(mp, given), mp.asarray(1.0))
    for layer in range(gpt2.attrs["layers"]):
        assert abs(exact[f"h.{layer}.attn.qkv.b"][c : 2 * c]).max() <= 1e-48


# ── small models ─────────────────────────────────────────────────────────────────────────────


def test_the_headers_own_example_of_a_quadratic():
    program = SUITE.models["quadratic"].build()
    given = {
        name: np.array([value], dtype=np.float64)
        for name, value in zip("xab", (2, 3, 4), strict=True)
    }
    values = program.forward(F64, given)
    cts = program.backward(F64, values, np.array(1.0))
    assert values["loss"] == 16
    assert (cts["x"], cts["a"], cts["b"]) == ([12.0], [4.0], [1.0])


@pytest.mark.parametrize("size", ["tiny", "uneven", "large"])
def test_the_gradients_of_fits_are_moments_of_their_errors(case, fold, size):
    fit, regression = case("test_opt", size), case("linear_regression", size)
    a, b, c = (fit.given[name] for name in "abc")
    rest, cts = c - b @ a.T, fold(fit)
    np.testing.assert_allclose(cts["a"], -2 * rest.T @ b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(cts["b"], -2 * rest @ a, rtol=1e-12, atol=1e-12)
    x, y, w, b = (regression.given[name] for name in ("x", "y", "w", "b"))
    errors, cts = x @ w.T + b - y, fold(regression)
    np.testing.assert_allclose(cts["w"], 2 * errors.T @ x / errors.size, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(cts["b"], 2 * errors.sum(axis=0) / errors.size, rtol=1e-12)


@pytest.mark.parametrize("size", ["tiny", "uneven"])
def test_only_examples_short_of_the_margin_pull_and_some_lie_beyond_it(case, fold, size):
    svm = case("svm", size)
    x, labels, w = svm.inputs["x"], svm.inputs["labels"], svm.params["w"]
    distance = 1 - labels * svm.program.forward(F64, svm.given)["scores"]
    assert np.abs(distance).min() >= MARGIN
    assert 0 < (distance > 0).sum() < distance.size
    assert set(labels.ravel()) == {-1, 1}
    pull, cts = -labels * (distance > 0) / len(x), fold(svm)
    np.testing.assert_allclose(cts["w"], pull.T @ x + 2 * w / 32, rtol=1e-13)
    np.testing.assert_allclose(cts["b"], pull.sum(axis=0), rtol=1e-13)


def test_a_scalar_stays_an_array_in_50_digits(case):
    svm, mp = case("svm", "tiny"), mp50()
    given = {k: mp.asarray(v) if v.dtype.kind == "f" else v for k, v in svm.given.items()}
    values = svm.program.forward(mp, given)
    cts = svm.program.backward(mp, values, mp.asarray(1.0))
    for found in (values, cts):
        assert {type(found[name]) for name in ("loss", "penalty", "norm2")} == {np.ndarray}


# ── transformers ─────────────────────────────────────────────────────────────────────────────

TRANSFORMERS = [c for model in ("gemma", "llama", "gpt2") for c in SUITE.model_cases([model])]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("case", TRANSFORMERS, ids=lambda c: c.name)
def test_values_stay_near_1_and_every_parameter_matters_whatever_the_seed(case, fold):
    for seed in range(8):
        drawn = replace(case, seed=seed)
        values, cts = drawn.program.forward(F64, drawn.given), fold(drawn)
        floats = (v for name, v in values.items() if v.dtype.kind == "f" and name != "loss")
        assert max(np.abs(v).max() for v in floats) < 100
        for name in drawn.params:
            assert 1e-4 < np.abs(cts[name]).max() < 100, name


@pytest.mark.parametrize("case", TRANSFORMERS, ids=lambda c: c.name)
def test_tokens_repeat_and_one_is_unused(case):
    tokens = np.atleast_2d(case.inputs["tokens"])
    for sequence in tokens:
        assert np.unique(sequence).size < sequence.size
    assert np.unique(tokens).max() < case.attrs["vocab"] - 1


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("model", "op", "attr", "other"),
    [
        ("gemma", "input_embedding", "bf16_scale", False),
        ("gemma", "rms_norm", "eps", 1e-5),
        ("gemma", "rms_norm", "unit_offset", False),
        ("gemma", "rope", "half_split", False),
        ("gemma", "rope", "base", 9999.0),
        ("gemma", "packed_geglu", "root", ""),
        ("gemma", "softcap", "cap", 50.0),
        ("gemma", "cross_entropy", "bits", False),
        ("gemma", "cross_entropy", "context_size", 2),
        ("llama", "rms_norm", "eps", 1e-6),
        ("llama", "rope", "half_split", True),
        ("llama", "rope", "base", 9999.0),
        ("llama", "attention", "causal", False),
        ("llama", "attention", "heads", 1),
        ("gpt2", "layer_norm", "eps", 1e-6),
        ("gpt2", "packed_attention", "heads", 1),
        ("gpt2", "gelu", "form", "erf"),
    ],
)
def test_pytorch_tells_every_constant_from_another(model, op, attr, other, case, fold, by_torch):
    right = case(model, "tiny")
    first = next(stage for stage in right.program.stages if stage.op.name == op)
    assert first.all_attrs[attr] != other
    changed = replace(first, attrs={**first.attrs, attr: other})
    stages = tuple(changed if stage is first else stage for stage in right.program.stages)
    values = replace(right.program, stages=stages).forward(F64, right.given)
    loss, _ = by_torch(right)
    assert abs(values["loss"] - loss) > 2e-14 * abs(loss)
    assert abs(right.program.forward(F64, right.given)["loss"] - loss) <= 2e-15 * abs(loss)


@pytest.mark.parametrize("size", ["tiny", "uneven", "large"])
def test_baby_llamas_tokens_and_targets_are_one_wave(case, size):
    baby = case("baby_llama", size)
    tokens, targets = baby.inputs["tokens"], baby.inputs["targets"]
    wanted = targets.argmax(axis=-1)
    assert set(targets.ravel()) == {-1.0, 1.0}
    assert ((targets == 1).sum(axis=-1) == 1).all()
    assert not tokens[:, 0].any()
    assert np.array_equal(tokens[:, 1:], wanted[:, :-1])
    assert wanted.min() >= 1
    assert len(np.unique(wanted, axis=0)) == len(wanted)  # phases differ


def test_baby_llamas_wave_is_that_of_the_example(case):
    # Token max(1, min(1 + int(z (v - 1)), v - 1)) of z = (sin(k + i π/t) + 1)/2, for v = 7, t = 4.
    inputs = case("baby_llama", "tiny").inputs
    assert inputs["tokens"].tolist() == [[0, 6, 6, 6], [0, 6, 5, 3]]
    assert inputs["targets"].argmax(axis=-1).tolist() == [[6, 6, 6, 4], [6, 5, 3, 1]]
