import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64

SIZES = ["tiny", "uneven", "large"]
CALLS = (
    "input_embedding rms_norm matmul rope rope scale masked_attention masked_softmax "
    "mix_by_attention multi_head_matmul add rms_norm matmul packed_geglu matmul add "
    "rms_norm matmul softcap softmax cross_entropy"
)


def test_it_has_as_many_parameters_as_gemma_2b(suite, count):
    gemma = suite.models["gemma"]
    two_b = count(gemma, vocab=256_000, c=2048, heads=8, d=256, hidden=16384, layers=18)
    assert two_b == 2_506_172_416


def test_a_scale_of_queries_that_float32_would_round_is_refused(suite):
    with pytest.raises(ValueError, match=r"d = 6: use a power of 4"):
        suite.models["gemma"].build(d=6)


def test_a_layers_stages_are_the_calls_of_gemma_cpp(case):
    uneven = case("gemma", "uneven")
    views = {"reshape", "slice", "concat"}
    ops = [s.op.name for s in uneven.program.stages if s.op.name not in views]
    assert " ".join(ops) == CALLS
    attrs = {s.op.name: s.all_attrs for s in uneven.program.stages}
    assert attrs["rms_norm"] == {"eps": 1e-6, "unit_offset": True}
    assert attrs["rope"]["half_split"]
    assert attrs["packed_geglu"] == {"form": "tanh", "root": "0.797884560804236"}
    assert attrs["softcap"] == {"cap": 30.0}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", SIZES)
def test_the_tied_table_gets_the_sum_of_both_contributions(case, fold, share, size):
    gemma, table = case("gemma", size), "embedder_input_embedding"
    tied, below, above = (
        fold(gemma)[table],
        share(gemma, "embedding", table),
        share(gemma, "unembed", table),
    )
    assert gemma.program.tied == {table}
    np.testing.assert_allclose(below + above, tied, rtol=1e-14, atol=1e-15)
    unused = np.setdiff1d(np.arange(gemma.attrs["vocab"]), gemma.inputs["tokens"][:-1])
    assert unused.size
    assert not below[unused].any()
    assert above[unused].all()


def test_the_embedding_is_scaled_by_the_root_of_c_in_bfloat16(case, fold, share):
    gemma = case("gemma", "tiny")
    rows, tokens = fold(gemma)["layers.0.input"], gemma.inputs["tokens"][:-1]
    gradient = share(gemma, "embedding", "embedder_input_embedding")
    assert (tokens == tokens[0]).sum() > 1
    expected = 2.453125 * rows[tokens == tokens[0]].sum(axis=0)  # √6 = 2.4494…
    np.testing.assert_allclose(gradient[tokens[0]], expected, rtol=1e-14)


@pytest.mark.parametrize("size", SIZES)
def test_positions_inside_the_context_are_not_scored(case, fold, size):
    gemma = case("gemma", size)
    values, cts = gemma.program.forward(F64, gemma.given), fold(gemma)
    first = max(gemma.attrs["context"] - 1, 0)
    assert not cts["probs"][:first].any()
    assert not cts["raw_logits"][:first].any()
    assert cts["layers.0.input"].all()  # but those after it look back at them
    scored = values["probs"][np.arange(gemma.attrs["t"]), gemma.inputs["next_tokens"]][first:]
    np.testing.assert_allclose(values["loss"], -np.log2(scored).sum(), rtol=1e-14)


def test_some_context_is_tried_and_none(case):
    assert [case("gemma", size).attrs["context"] for size in SIZES] == [3, 0, 8]


@pytest.mark.parametrize("size", SIZES)
def test_what_it_predicts_is_its_own_prompt(case, size):
    inputs = case("gemma", size).inputs
    assert np.array_equal(inputs["next_tokens"], inputs["tokens"][1:])
    assert inputs["query_scale"] ** -2 == case("gemma", size).attrs["d"]


def test_softmax_leaves_nothing_for_a_shift_and_the_cap_lets_a_little_through(case, fold):
    cts = fold(case("gemma", "tiny"))
    np.testing.assert_allclose(cts["logits"].sum(axis=-1), 0, atol=1e-14)
    assert np.abs(cts["raw_logits"].sum(axis=-1)).max() > 1e-3


def test_one_key_and_one_value_serve_all_heads(case, fold, share):
    gemma = case("gemma", "uneven")
    values, cts = gemma.program.forward(F64, gemma.given), fold(gemma)
    weights, dy = values["layers.0.att"], cts["layers.0.att_out"]
    packed = share(gemma, "layers.0.mix", "layers.0.qkv_packed")
    expected = np.einsum("ths,thd->sd", weights, dy)
    np.testing.assert_allclose(packed[:, -1], expected, rtol=1e-12, atol=1e-14)
    assert not packed[:, :-1].any()
