import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.fifty_digits import mp50

BLOCK = "layer_norm matmul packed_attention matmul add layer_norm matmul gelu matmul add"
HEAD = "layer_norm matmul softmax_cross_entropy mean"


def test_it_has_as_many_parameters_as_gpt2_small(suite, count):
    gpt2 = suite.models["gpt2"]
    small = count(gpt2, vocab=50257, c=768, heads=12, layers=12, positions=1024)
    assert small == 124_439_808


def test_its_stages_are_llm_cs_list_of_calls(case):
    ops = [stage.op.name for stage in case("gpt2", "tiny").program.stages]
    assert " ".join(ops) == f"encoder {BLOCK} {BLOCK} {HEAD}"


@pytest.mark.parametrize("size", ["tiny", "uneven", "large"])
def test_the_tied_table_gets_the_sum_of_both_contributions(case, fold, share, size):
    gpt2 = case("gpt2", size)
    tied, encoder, unembed = (
        fold(gpt2)["wte"],
        share(gpt2, "encoder", "wte"),
        share(gpt2, "unembed", "wte"),
    )
    assert gpt2.program.tied == {"wte"}
    np.testing.assert_allclose(encoder + unembed, tied, rtol=1e-15, atol=1e-16)
    unused = np.setdiff1d(np.arange(gpt2.attrs["vocab"]), gpt2.inputs["tokens"])
    assert unused.size
    assert not encoder[unused].any()
    assert unembed[unused].any(axis=-1).all()


def test_a_repeated_token_gathers_the_gradients_of_all_its_places(case, fold, share):
    gpt2 = case("gpt2", "tiny")
    rows, tokens = fold(gpt2)["encoded"], gpt2.inputs["tokens"]
    repeated = [v for v in np.unique(tokens) if (tokens == v).sum() > 1]
    assert repeated
    for v in repeated:
        np.testing.assert_allclose(
            share(gpt2, "encoder", "wte")[v], rows[tokens == v].sum(axis=0), rtol=1e-14
        )


def test_the_bias_of_the_keys_has_no_effect(case, fold):
    gpt2 = case("gpt2", "tiny")
    c = gpt2.attrs["c"]
    mp = mp50()
    given = {k: mp.asarray(v) if v.dtype.kind == "f" else v for k, v in gpt2.given.items()}
    exact = gpt2.program.backward(mp, gpt2.program.forward(mp, given), mp.asarray(1.0))
    for h in range(gpt2.attrs["layers"]):
        name = f"h.{h}.attn.qkv.b"
        q, k, v = (abs(fold(gpt2)[name][n * c : (n + 1) * c]).max() for n in range(3))
        assert k <= 1e-15
        assert min(q, v) > 1e-4
        assert abs(exact[name][c : 2 * c]).max() <= 1e-48


def test_positions_past_the_sequence_have_no_gradient(case, fold):
    uneven = case("gpt2", "uneven")
    t, wpe = uneven.attrs["t"], fold(uneven)["wpe"]
    assert len(wpe) > t
    assert not wpe[t:].any()
    assert wpe[:t].all()


def test_a_loss_reaches_its_own_sequence_and_no_later_position(case, fold):
    gpt2 = case("gpt2", "tiny")
    losses = np.zeros(gpt2.inputs["targets"].shape)
    losses[1, 2] = 1.0
    rows = fold(gpt2, start={"losses": losses})["encoded"]
    assert not rows[0].any()
    assert not rows[1, 3:].any()
    assert rows[1, :3].all()


def test_the_loss_is_the_mean_over_batch_and_time(case, fold):
    gpt2 = case("gpt2", "uneven")
    values = gpt2.program.forward(F64, gpt2.given)
    assert values["losses"].shape == (3, 4)
    np.testing.assert_allclose(values["loss"], values["losses"].sum() / 12, rtol=1e-15)
    assert np.array_equal(fold(gpt2)["losses"], np.full((3, 4), 1 / 12))
