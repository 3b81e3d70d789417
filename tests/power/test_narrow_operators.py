"""Narrow mutants: made from any spec, each rejected or proved to change nothing that is allowed."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.numerics.narrow import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    PRODUCTS,
    RESULT,
    SUMS,
    TF32,
    NarrowArithmetic,
    cut,
)
from gradcheck.power.narrow import operator_outcomes
from gradcheck.power.narrow_operators import Rounding, narrow_mutant, narrow_of, roundings
from gradcheck.spec.mutant import check


def verdicts(op, dtypes=("float64", "float32"), samples=()):
    cases = SUITE.cases([op], [SUITE.operators[op].dialects[0].name], samples)
    return {(t.rounding.what, t.rounding.type.name, t.dtype): t for t in narrow_of(cases, dtypes)}


def test_every_type_that_is_narrower_is_put_everywhere():
    made = [(r.what, r.type.name) for r in roundings(["x", "w"], "float64")]
    places = ["operands", "x", "w", "cotangent", "result", "products", "sums"]
    assert [what for what, kind in made if kind == "tf32"] == places
    assert len(made) == 4 * 7
    assert {r.type.name for r in roundings(["x"], "float32")} == {"tf32", "bfloat16", "float16"}
    assert "operands" not in {r.what for r in roundings(["x"], "float64")}  # x says it


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_matrix_product_of_narrow_numbers_is_rejected(dtype):
    found = verdicts("matmul", [dtype])
    for (what, _, _), tried in found.items():
        assert bool(tried.killer) is (what != "b"), tried.name
        assert bool(tried.equivalent) is (what == "b"), tried.name
    assert found["w", "tf32", dtype].tried == ["bias/typical"]
    assert found["b", "tf32", dtype].equivalent == "no gradient depends on how b is rounded"


def test_what_passes_has_its_proof():
    found = verdicts("relu")
    assert found["sums", "tf32", "float32"].equivalent == "its backward adds nothing up"
    assert found["products", "tf32", "float32"].equivalent == "its backward multiplies nothing"
    assert found["x", "bfloat16", "float32"].equivalent == "no gradient depends on how x is rounded"


@pytest.mark.slow
def test_a_choice_that_no_sample_turns_says_from_how_many_bits_it_does():
    reason = verdicts("clamp")["x", "float32", "float64"].equivalent
    assert reason.startswith("no gradient changes at any sample; shows from ")


def test_short_operands_at_every_sample_are_no_proof():
    tried = verdicts("softmax", ["float64"], ["two-maxima"])["x", "tf32", "float64"]
    assert (tried.killer, tried.equivalent) == ("", "")
    assert tried.unclear == "TF32 holds x at every sample; draw it at one"


def test_what_is_allowed_has_its_number(monkeypatch):
    from gradcheck.judge import compare

    wide = {
        **compare.TOLERANCES,
        "float32": compare.Tolerance("float32", 2.0**-24, 0.05, 1e-3, 2.0**-118),
    }
    monkeypatch.setattr(compare, "TOLERANCES", wide)
    reason = verdicts("silu", ["float32"], ["typical"])["x", "tf32", "float32"].equivalent
    assert reason.startswith("no gradient is off by more than 0.0")
    assert "× its bound; shows from " in reason


@pytest.mark.parametrize("op", ["matmul", "conv_2d", "encoder", "softmax", "moe"])
def test_they_are_mutants_of_their_operator(op):
    case = SUITE.cases([op])[0]
    names = [case.primal_names[i] for i, p in enumerate(case.primals) if p.dtype.kind == "f"]
    for rounding in roundings(names, "float32"):
        mutant = narrow_mutant(rounding, case, "float32")
        check(mutant, case.spec)
        assert (mutant.label, mutant.name) == ("O", rounding.mutant)


def test_outcomes_tell_dialects_apart():
    found = list(operator_outcomes(SUITE, "matmul", ["float32"]))
    for dialect in ("bias", "no-bias"):
        outcome = (f"matmul/{dialect}", "operator", "w", "TF32", "float32", True, "")
        assert outcome in found
    assert not any(one.what == "b" for one in found if one.subject == "matmul/no-bias")
    assert ("matmul/bias", "operator", "b", "TF32", "float32", False,
            "no gradient depends on how b is rounded") in found  # fmt: skip


# ── the arithmetic ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_are_kept_inside_of_sums_too(dtype):
    kept = NarrowArithmetic(products=BFLOAT16, dtype=dtype)
    x, y = (np.random.default_rng(k).standard_normal((3, 4)).astype(dtype) for k in (0, 1))
    each = BFLOAT16.rounded(x[:, None, :] * y[None, :, :])
    found = [
        kept.matmul(kept.asarray(x), kept.asarray(y).T),
        kept.asarray(x) @ kept.asarray(y).T,
        kept.einsum("ik,jk->ij", kept.asarray(x), kept.asarray(y)),
    ]
    for one in found:
        assert one.dtype == dtype
        np.testing.assert_allclose(np.asarray(one), each.sum(-1), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_are_kept_where_rows_are_added_too(dtype):
    kept = NarrowArithmetic(sums=TF32, dtype=dtype)
    table = kept.zeros((2, 2))
    rows = kept.asarray(np.full((3, 2), 1 / 3))
    found = kept.add_rows(rows, np.array([0, 0, 1]), table)
    held = np.asarray(found, dtype=np.float64)
    assert np.array_equal(TF32.rounded(held), held)
    assert held[0, 0] == TF32.rounded(np.asarray(2 / 3))


def test_a_result_alone_is_rounded_and_a_nothing_stays_nothing():
    spec = SUITE.operators["encoder"]
    case = SUITE.cases(["encoder"])[0]
    from gradcheck.numerics.arithmetic import F64

    ct = np.full(spec.forward(F64, *case.primals, **case.attrs).shape, 1 / 3)
    for what in (RESULT, PRODUCTS, SUMS):
        found = Rounding(what, FLOAT32).of(spec, case.primal_names)(
            F64, ct, *case.primals, **case.attrs
        )
        right = spec.vjp(F64, ct, *case.primals, **case.attrs)
        assert [g is None for g in found] == [g is None for g in right]
        assert all(g.dtype == np.float64 for g in found if g is not None)


def test_cut_rounds_toward_zero():
    assert cut([1.0 + 2.0**-10 + 2.0**-11, -1.999999, 0.0], 11).tolist() == [
        1.0 + 2.0**-10, -2.0 + 2.0**-10, 0.0,
    ]  # fmt: skip


def test_says_name_the_type():
    assert Rounding("w", TF32).says == "w is rounded to TF32."
    assert Rounding(SUMS, FLOAT16).says == "Sums are kept in float16."
