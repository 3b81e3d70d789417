import numpy as np
import pytest
from gradcheck_cases.models.baby_llama import EPS

from gradcheck.numerics.arithmetic import F64

SIZES = ["tiny", "uneven", "large"]
BOTH = ["baby_llama", "baby_llama_lora"]
LOSSES = ["square_error", "cross_entropy"]
CALLS = (
    "get_rows rms_norm mul matmul reshape rope permute matmul reshape rope permute "
    "matmul transpose reshape mul_mat scale diag_mask_inf softmax mul_mat permute reshape matmul "
    "add rms_norm mul matmul matmul silu mul matmul add rms_norm mul matmul"
)


@pytest.fixture
def with_loss(suite):
    """`with_loss(model, dialect, size)`: the case with that loss."""
    return lambda model, dialect, size: suite.model_cases([model], [dialect], [size])[0]


def test_it_has_as_many_parameters_as_llama_7b(suite, count):
    dims = {"vocab": 32000, "c": 4096, "heads": 32, "hidden": 11008, "layers": 32}
    assert count(suite.models["baby_llama"], **dims) == 6_738_415_616


def test_its_stages_are_the_examples_list_of_calls(with_loss):
    heads = {"square_error": "sub sqr sum"}
    heads["cross_entropy"] = "softmax softmax add1 log mul sum_rows neg sum"
    for loss, head in heads.items():
        whole, low = (with_loss(model, loss, "uneven").program.stages for model in BOTH)
        assert " ".join(stage.op.name for stage in whole) == f"{CALLS} {head}"
        ops = [stage.op.name.replace("low_rank_linear", "matmul") for stage in low]
        assert " ".join(ops) == f"{CALLS} {head}"
    assert {stage.all_attrs["eps"] for stage in whole if stage.op.name == "rms_norm"} == {EPS}


@pytest.mark.parametrize("size", SIZES)
def test_tokens_and_targets_are_one_wave(case, size):
    baby = case("baby_llama", size)
    tokens, targets = baby.inputs["tokens"], baby.inputs["targets"]
    wanted = targets.argmax(axis=-1)
    assert set(targets.ravel()) == {-1.0, 1.0}
    assert ((targets == 1).sum(axis=-1) == 1).all()
    assert not tokens[:, 0].any()
    assert np.array_equal(tokens[:, 1:], wanted[:, :-1])
    assert wanted.min() >= 1
    assert len(np.unique(wanted, axis=0)) == len(wanted)  # phases differ


def test_the_wave_is_that_of_the_example(case):
    # Token max(1, min(1 + int(z (v - 1)), v - 1)) of z = (sin(k + i π/t) + 1)/2, for v = 7, t = 4.
    inputs = case("baby_llama", "tiny").inputs
    assert inputs["tokens"].tolist() == [[0, 6, 6, 6], [0, 6, 5, 3]]
    assert inputs["targets"].argmax(axis=-1).tolist() == [[6, 6, 6, 4], [6, 5, 3, 1]]


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("size", SIZES)
def test_an_unused_token_has_no_gradient_and_a_repeated_one_gathers_all(case, fold, model, size):
    baby = case(model, size)
    cts, tokens = fold(baby), baby.inputs["tokens"]
    used = np.unique(tokens)
    unused = np.setdiff1d(np.arange(baby.attrs["vocab"]), used)
    assert unused.size
    assert used.size < tokens.size
    assert not cts["tok_embeddings"][unused].any()
    for token in used:
        rows = cts["embedded"][tokens == token].sum(axis=0)
        np.testing.assert_allclose(cts["tok_embeddings"][token], rows, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("size", SIZES)
def test_square_error_pulls_each_logit_to_its_target(case, fold, model, size):
    baby = case(model, size)
    values = baby.program.forward(F64, baby.given)
    pull = 2 * (values["logits"] - baby.inputs["targets"])
    assert np.array_equal(fold(baby)["logits"], pull)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("size", SIZES)
def test_cross_entropy_does_not_see_a_shift_of_all_logits(with_loss, fold, model, size):
    cts = fold(with_loss(model, "cross_entropy", size))
    assert np.abs(cts["logits"]).max() > 1e-2
    assert np.abs(cts["logits"].sum(axis=-1)).max() < 1e-15
    shifts = fold(with_loss(model, "square_error", size))["logits"].sum(axis=-1)
    assert np.abs(shifts).min() > 1e-2


@pytest.mark.parametrize("loss", LOSSES)
def test_hidden_scores_have_no_gradient_and_the_first_position_only_itself(with_loss, fold, loss):
    baby = with_loss("baby_llama", loss, "tiny")
    cts, seen = fold(baby), np.tri(4, dtype=bool)
    for p in ("layers.0", "layers.1"):
        scores = cts[f"{p}.scores"]
        assert not scores[..., ~seen].any()
        assert not scores[..., 0, 0].any()  # one weight, which is 1
        assert scores[..., 1:, :][..., seen[1:]].all()
        assert not cts[f"{p}.q.rows"][..., 0, :].any()


def test_a_loss_reaches_its_own_sequence_and_no_later_position(case, fold):
    baby = case("baby_llama", "tiny")
    start = np.zeros(baby.inputs["targets"].shape)
    start[1, 2] = 1.0
    rows = fold(baby, start={"logits": start})["embedded"]
    assert not rows[0].any()
    assert not rows[1, 3:].any()
    assert rows[1, :3].all()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", SIZES)
def test_low_rank_gradients_are_those_of_the_product_through_the_other_factor(
    suite, with_loss, fold, loss, size
):
    low = with_loss("baby_llama_lora", loss, size)
    dims = {name: value for name, value in low.attrs.items() if name != "rank"}
    whole = suite.models["baby_llama"].build(**dims)
    given = {
        name: low.given[name]
        if name in low.given
        else low.given[f"{name}a"] @ low.given[f"{name}b"]
        for name in (*whole.params, *whole.inputs)
    }
    dense = whole.backward(F64, whole.forward(F64, given), np.array(1.0))
    cts = fold(low)
    split = [name for name in whole.params if name not in low.params]
    assert len(split) == 7 * low.attrs["layers"] + 1
    for name in split:
        a, b = low.given[f"{name}a"], low.given[f"{name}b"]
        for got, want in (
            (cts[f"{name}a"], dense[name] @ b.T),
            (cts[f"{name}b"], a.T @ dense[name]),
        ):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= 1e-12 * np.abs(want).max()
    for name in set(whole.params) - set(split):
        assert np.abs(cts[name] - dense[name]).max() <= 1e-12 * np.abs(dense[name]).max()
