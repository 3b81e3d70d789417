"""Narrow: the type is named that operands, a cotangent, a result, products or sums are kept in."""

import pytest
from gradcheck_cases import SUITE

from gradcheck.numerics.narrow import BFLOAT16, FLOAT16, FLOAT32, TF32, cut
from gradcheck.power.narrow_operators import Rounding
from tests.explain.scenes import named, only, reading_cotangent, right

NARROW = only("narrow")
BOTH = "10 bits of mantissa, as TF32 and float16 do"


def rounded(op, what, kind):
    """The operator's own VJP with one rounding in it."""
    spec = SUITE.operators[op]
    vjp = Rounding(what, kind).of(spec, spec.primals)
    return lambda ct, *primals, **attrs: vjp(None, ct, *primals, **attrs)


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("op", "output", "what", "kind", "says"),
    [
        ("matmul", "x", "w", TF32, f"w is rounded to {BOTH}"),
        ("matmul", "x", "operands", TF32, f"w is rounded to {BOTH}"),  # x has no part in dx
        ("matmul", "w", "operands", BFLOAT16, "x is rounded to bfloat16 (7 bits of mantissa)"),
        ("rms_norm", "x", "operands", BFLOAT16, "x and w are rounded to bfloat16 (7 bits of man"),
        ("conv_2d", "w", "cotangent", FLOAT16, f"the cotangent is rounded to {BOTH}"),
        ("sqr", "x", "x", FLOAT16, "x is rounded to float16 (10 bits of mantissa)"),
        ("sqr", "x", "x", TF32, "x is rounded to 10 bits of mantissa, as TF32 does"),
        ("softmax", "x", "result", BFLOAT16, "dx is rounded to bfloat16 (7 bits of mantissa)"),
        ("layer_norm", "x", "products", TF32, "products are kept in 10 bits of mantissa, as TF32"),
        ("layer_norm", "w", "sums", BFLOAT16, "sums are kept in bfloat16 (7 bits of mantissa)"),
    ],
)
def test_what_is_rounded_and_to_which_type(op, output, what, kind, says, dtype):
    if op == "layer_norm" and what == "sums":
        says = "bfloat16 (7 bits of mantissa)"  # the last of its sums is the result
    found = named(op, rounded(op, what, kind), output, NARROW, dtype=dtype)
    assert found.label == "O"
    assert says in found.says


def test_float32_inside_of_float64_code_is_named():
    found = named("matmul", rounded("matmul", "w", FLOAT32), "x", NARROW)
    assert found.says == "w is rounded to float32 (23 bits of mantissa)"


def test_bits_that_are_cut_off_are_named_too():
    vjp = reading_cotangent("matmul", lambda ct, *_: cut(ct, 11).astype(ct.dtype))
    found = named("matmul", vjp, "w", NARROW, dtype="float32")
    assert found.says == f"the cotangent is cut to {BOTH}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_code_that_rounds_all_that_comes_in_names_what_has_a_part_in_it(dtype):
    def vjp(ct, x, w, *rest):
        ct, x, w = (TF32.rounded(a).astype(a.dtype) for a in (ct, x, w))
        return right("matmul", ct, x, w, *rest)

    assert named("matmul", vjp, "x", NARROW, dtype=dtype).says == (
        f"w and the cotangent are rounded to {BOTH}"
    )


def test_sums_in_another_order_are_the_same_rounding():
    def vjp(ct, x, w, *rest):
        held = TF32.rounded(w).astype(w.dtype)
        dx = sum(ct[..., k : k + 1] * held[..., k, :] for k in reversed(range(ct.shape[-1])))
        return (dx.astype(x.dtype), *right("matmul", ct, x, w, *rest)[1:])

    found = named("matmul", vjp, "x", NARROW, dtype="float32", sample="typical")
    assert found.says == f"w is rounded to {BOTH}"


@pytest.mark.parametrize("kind", [TF32, BFLOAT16])
def test_where_a_choice_alone_was_turned_every_type_that_turns_it_is_named(kind):
    found = named("max", rounded("max", "x", kind), "x", only("turned"), sample="ties")
    assert kind.title in found.says
    assert found.says.startswith("x is rounded to ")


def test_what_overflows_everywhere_at_some_points_is_named_by_the_others():
    found = named("sqr", rounded("sqr", "products", FLOAT16), "x", NARROW)
    assert found.says == "products are kept in float16 (10 bits of mantissa)"
